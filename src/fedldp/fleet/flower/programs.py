"""How Flower's programs are run: nothing is reported, looked up or installed behind one's back."""

import os
import shutil
import sys
from pathlib import Path

from fedldp.errors import MissingExtra


def program(name: str, *arguments: str | Path) -> tuple[str, ...]:
    """Return the words that run a program of Flower, the one that is installed beside this Python.

    >>> program("flwr", "run")[1:]
    ('run',)
    """
    found = shutil.which(name, path=_path())
    if found is None:
        raise MissingExtra("flwr", "flower")
    return (found, *map(str, arguments))


def python(module: str, *arguments: str | Path) -> tuple[str, ...]:
    """Return the words that run a module of this package as a program."""
    return (sys.executable, "-m", module, *map(str, arguments))


def home(state: Path) -> Path:
    """Return where Flower's programs keep their own files, in a state folder."""
    return state / "flwr"


def environment(state: Path) -> dict[str, str]:
    """Return what Flower's programs are to find in their environment."""
    return {
        "FLWR_HOME": str(home(state)),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "NO_PROXY": "*",  # they talk to each other alone, on this machine
        "no_proxy": "*",
        "PATH": _path(),  # they start each other by name
    }


def _path() -> str:
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
