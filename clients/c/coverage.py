"""Count which lines and branches of the vehicle in C its quick tests execute.

python clients/c/coverage.py

The exit status is 1 if a line is not executed. The branches that are not taken are those of
conditions with several terms, and of what the compiler adds.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
TESTS = [FOLDER / "tests" / f"test_{name}.py" for name in ("core", "ledgers")]


def executed(folder: Path) -> list[dict[str, Any]]:
    """Run the tests, and return what gcov says of each file that was compiled."""
    environment = {**os.environ, "FEDLDP_C_COVERAGE": str(folder)}
    command = [sys.executable, "-m", "pytest", "-q", *map(str, TESTS)]
    subprocess.run(command, check=True, env=environment)
    found = []
    for counts in folder.rglob("*.gcda"):
        command = ["gcov", "--json-format", "--stdout", "--branch-probabilities", counts.name]
        done = subprocess.run(command, cwd=counts.parent, capture_output=True, check=True)
        for line in done.stdout.splitlines():
            found += json.loads(line)["files"]
    return found


def main() -> int:
    """Print the coverage of each file, and the lines that were not executed."""
    sources = {path.name: path for path in FOLDER.glob("fedldp*.[ch]")}
    lines: dict[str, Counter[int]] = defaultdict(Counter)
    branches: dict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory() as folder:
        for entry in executed(Path(folder)):
            path = Path(entry["file"])
            source = sources.get(path.name)
            if source is None or path.read_bytes() != source.read_bytes():
                continue  # a test, or a source that a test has made wrong
            for line in entry["lines"]:
                number = line["line_number"]
                lines[path.name][number] += line["count"]
                for place, branch in enumerate(line["branches"]):
                    branches[path.name][number, place] += branch["count"]
    unreached = 0
    for name in sorted(lines):
        text = sources[name].read_text("ascii").splitlines()
        reached = [sum(map(bool, counts.values())) for counts in (lines[name], branches[name])]
        print(
            f"{name}: {reached[0]} of {len(lines[name])} lines, "
            f"{reached[1]} of {len(branches[name])} branches"
        )
        for number in sorted(number for number, count in lines[name].items() if not count):
            unreached += 1
            print(f"  line {number} was not executed: {text[number - 1].strip()}")
    return int(unreached > 0)


if __name__ == "__main__":
    sys.exit(main())
