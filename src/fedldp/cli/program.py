"""How a user calls this program, for hints that can be copied as they are."""

import os
import shutil
import sys
from pathlib import Path


def program() -> str:
    """Return what to type for `fedldp` in the current folder.

    It is the name alone if the shell finds this program under it, otherwise a path to it, such as
    `.venv/bin/fedldp`.
    """
    installed = Path(sys.executable).parent / "fedldp"
    if not installed.exists():
        return f"{sys.executable} -m fedldp"
    found = shutil.which("fedldp")
    if found is not None and Path(found).resolve() == installed.resolve():
        return "fedldp"
    return os.path.relpath(installed) if installed.is_relative_to(Path.cwd()) else str(installed)
