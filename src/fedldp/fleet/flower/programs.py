"""How Flower's programs are run: without telemetry, update checks or installations."""

import os
import shutil
import sys
from pathlib import Path

from fedldp.errors import MissingExtra


def program(name: str, *arguments: str | Path) -> tuple[str, ...]:
    """Return the command line of one of Flower's programs, the one installed with this Python.

    >>> program("flwr", "run")[1:]
    ('run',)
    """
    found = shutil.which(name, path=_path())
    if found is None:
        raise MissingExtra("flwr", "flower")
    return (found, *map(str, arguments))


def python(module: str, *arguments: str | Path) -> tuple[str, ...]:
    """Return the command line that runs a module of this package as a program.

    Python files in the current folder are not imported: anybody may have put them there.
    """
    return (sys.executable, "-P", "-m", module, *map(str, arguments))


def home(state: Path) -> Path:
    """Return the folder, inside a state folder, where Flower's programs keep their own files."""
    return state / "flwr"


def environment(state: Path) -> dict[str, str]:
    """Return the environment variables for Flower's programs."""
    return {
        # Their JSON is read. A notebook and some CI set FORCE_COLOR, and then it has colours.
        "FORCE_COLOR": "",
        "TERM": "dumb",
        "FLWR_HOME": str(home(state)),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "NO_PROXY": "*",  # they only talk to each other, on this machine
        "no_proxy": "*",
        "PATH": _path(),  # they start each other by name
    }


def _path() -> str:
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
