"""Refuse to publish what is not ready: see CONTRIBUTING.md, "Publishing a version".

python tools/publishable.py dist --tag v0.3.0
"""

import argparse
import hashlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def obstacles(root: Path, dist: Path, tag: str) -> Iterator[str]:
    """Yield what must be done before a version is published."""
    document = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    version = document["project"]["version"]
    if not document["tool"]["hatch"]["metadata"]["hooks"]["custom"]["address"]:
        yield "the project has no public address: set `address` in pyproject.toml"
    if tag != f"v{version}":
        yield f"the tag must be v{version}; it is {tag}"
    newest = re.search(r"(?m)^## (.*)$", (root / "CHANGELOG.md").read_text("utf-8"))
    if newest is None or not re.fullmatch(
        rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", newest[1]
    ):
        yield f"the newest entry of CHANGELOG.md must be {version} with its date in brackets"
    sums = dist / "SHA256SUMS"
    if not sums.exists():
        yield f"{dist} has no SHA256SUMS: run `make dist`"
        return
    for line in sums.read_text().splitlines():
        digest, name = line.split("  ")
        if not (dist / name).exists() or _digest(dist / name) != digest:
            yield f"{name} is not what `make dist` built"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Exit with 1 if anything stands in the way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dist", type=Path)
    parser.add_argument("--tag", required=True)
    options = parser.parse_args()
    if found := list(obstacles(ROOT, options.dist, options.tag)):
        raise SystemExit("Not published:\n" + "\n".join(f"- {text}" for text in found))
    print("Ready to be published.")


if __name__ == "__main__":
    main()
