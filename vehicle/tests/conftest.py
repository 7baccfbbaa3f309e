"""The wheel of the distribution, in an environment that has nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1]


def _built(folder, hook, target):
    """Build in a folder of the source, and return the path of what was built."""
    code = "import hatchling.build, sys; print(getattr(hatchling.build, sys.argv[1])(sys.argv[2]))"
    words = [sys.executable, "-c", code, hook, str(target)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return target / done.stdout.splitlines()[-1]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    return _built(FOLDER, "build_wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def bin_folder(wheel, tmp_path_factory):
    """Return where the programs of an environment are in which only the wheel is installed."""
    environment = tmp_path_factory.mktemp("alone") / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    words = [environment / "bin/python", "-m", "pip", "install", "--quiet", "--no-index", wheel]
    subprocess.run(words, check=True)
    return environment / "bin"


@pytest.fixture(scope="session")
def built():
    """Return a function that builds in a folder of the source."""
    return _built
