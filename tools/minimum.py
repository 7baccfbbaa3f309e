"""Print the oldest versions that pyproject.toml promises to support, as constraints for pip."""

import re
import sys
import tomllib
from pathlib import Path

# Packages of the tests that the oldest dependencies cannot read: narwhals 2.0 knows no polars 2.
CONTEMPORARIES = ["polars<2"]
_LEAST = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?>=([0-9.]+)")


def constraints(project: str) -> list[str]:
    r"""Return `name==version` for each dependency with a least version.

    >>> constraints('[project]\ndependencies = ["numpy>=2", "scipy>=1.13,<2"]')
    ['numpy==2', 'scipy==1.13']
    """
    table = tomllib.loads(project)["project"]
    extras = table.get("optional-dependencies", {}).values()
    found = (
        _LEAST.match(text)
        for text in [*table["dependencies"], *(each for extra in extras for each in extra)]
    )
    return [f"{match[1]}=={match[2]}" for match in found if match]


if __name__ == "__main__":
    print("\n".join([*constraints(Path(sys.argv[1]).read_text()), *CONTEMPORARIES]))
