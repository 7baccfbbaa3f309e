"""What the figures were computed with: versions of Python and of all packages, and the commit.

    python -m fedldp_reproduction.environment reproduction/requirements.lock

writes the packages that the reproduction needs, as they are installed here. Every run writes the
same beside its results.
"""

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from fedldp import __version__

OURS = ("fedldp", "fedldp-reproduction")
SHOWN = ("numpy", "scipy", "scikit-learn", "matplotlib")  # of which versions stand on the page
NAME = "environment.txt"
_EXTRAS = ("cli", "learn", "plots", "parquet")  # of fedldp, that the reproduction asks for
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^]]*\])?[^;]*(?:;(.*))?")


def commit() -> str | None:
    """Return the commit of the source, with a mark if files were changed; None if unknown."""
    git = shutil.which("git")
    if git is None:
        return None
    tracked, described = (
        subprocess.run(  # noqa: S603 (the arguments are ours)
            (git, *arguments),
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
        for arguments in (
            ("ls-files", "--error-unmatch", Path(__file__).name),
            ("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"),
        )
    )
    known = tracked.returncode == described.returncode == 0
    return described.stdout.strip() if known else None


def packages() -> dict[str, str]:
    """Return the version of every package that the reproduction needs, directly or not.

    >>> "numpy" in packages(), "fedldp" in packages()
    (True, False)
    """
    found: dict[str, str] = {}
    seen, left = set(OURS), [*_requirements("fedldp-reproduction"), *_requirements("fedldp")]
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            found[name] = distribution(name).version
        except PackageNotFoundError:  # for another platform
            continue
        left += _requirements(name)
    return dict(sorted(found.items()))


def _requirements(name: str) -> Iterator[str]:
    """Yield the names of what a package requires; of fedldp with the extras that are used."""
    for text in distribution(name).requires or ():
        match = _REQUIREMENT.match(text)
        if match is None:
            continue
        required, condition = match.groups()
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", condition or "")
        if extra is None or (name == "fedldp" and extra[1] in _EXTRAS):
            yield re.sub(r"[-_.]+", "-", required).lower()


def summary() -> str:
    """Return in a line with what the figures were computed.

    >>> summary().startswith("fedldp ")
    True
    """
    source = commit()
    known = packages()
    versions = [f"Python {platform.python_version()}"]
    versions += [f"{name} {known[name]}" for name in SHOWN if name in known]
    where = f" (commit {source})" if source else ""
    return f"fedldp {__version__}{where}, {', '.join(versions)}"


def lock() -> str:
    """Return a file of requirements with every version, which pip installs."""
    lines = [
        f"# What the reproduction of fedldp {__version__} runs with, on Python "
        f"{platform.python_version()}:",
        *(f"{name}=={version}" for name, version in packages().items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(lock(), encoding="utf-8")
