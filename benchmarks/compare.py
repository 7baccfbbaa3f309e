"""`make bench-compare`: ratios of a small set of costs to those of the last release, in one go.

Each case runs in new processes of both commits in turn, and a ratio is taken of two that ran one
right after the other. A case is lost if it costs over 10% more, beyond the spread: in three of four
pairs. Then the command fails. It also says which tables in the documentation are older than what
they measure.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import harness
import pages
from compare_cases import CASES
from harness import Spread
from pages import Table
from rich.console import Console
from rich.progress import track

FORMAT = "fedldp bench-compare 1"
ROOT = Path(__file__).parents[1]
PAIRS, TURNS = 7, 3
LARGEST_LOSS = 1.10

LIBRARY = ("src/fedldp",)
COUNTING = ("src/fedldp/counting", "src/fedldp/results/tally.py")
MEASURED = {  # by the tables of each name; all others measure the library
    "gpu": ("src/fedldp/learn", "src/fedldp/coders"),
    "flights": ("src/fedldp/learn", "src/fedldp/coders"),
    "regression": ("src/fedldp/learn",),
    "engines": COUNTING,
    "scale": COUNTING,
    "flower-mods": ("fleet/fedldp_fleet/flower",),
    "fleet": (
        "fleet/fedldp_fleet/server",
        "fleet/fedldp_fleet/store",
        "fleet/fedldp_fleet/engine.py",
    ),
    "mqtt": ("fleet/fedldp_fleet/mqtt.py", "fleet/fedldp_fleet/messages.py"),
    "ten-million": ("benchmarks/fleet_costs.json", "benchmarks/ten_million.py"),
}


@dataclass(frozen=True)
class Comparison:
    """What a case costs now, and by how much more than before."""

    what: str
    before: float  # seconds of processor time
    after: float
    ratio: Spread

    @property
    def is_lost(self) -> bool:
        return self.ratio.low > LARGEST_LOSS


def git(*arguments: str, folder: Path = ROOT) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def last_release(folder: Path = ROOT) -> str:
    """Return the newest tag of a release among the ancestors."""
    tags = git("tag", "--merged", "HEAD", "--sort=-creatordate", "--list", "v*", folder=folder)
    if not tags:
        raise SystemExit("no release has a tag here. Name a commit: BENCH='--base COMMIT'")
    return tags.splitlines()[0]


def checkout(commit: str) -> Path:
    """Return a working tree of a commit, under build/."""
    commit = git("rev-parse", "--verify", f"{commit}^{{commit}}")
    folder = ROOT / "build" / "bench-compare" / commit[:12]
    if not (folder / ".git").exists():
        git("worktree", "prune")
        git("worktree", "add", "--detach", str(folder), commit)
    return folder


def seconds(tree: Path, name: str, turns: int) -> float | None:
    """Return the median time of a case with the library of a tree; None if it cannot run there."""
    paths = os.pathsep.join([str(tree / "src"), str(tree / "fleet")])
    cases = Path(__file__).with_name("compare_cases.py")
    found = subprocess.run(
        [sys.executable, "-W", "ignore", str(cases), name, str(turns)],
        env={**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    answer = json.loads(found.stdout.splitlines()[-1])
    if "missing" in answer:
        return None
    if not Path(answer["library"]).is_relative_to(tree):
        raise SystemExit(f"{answer['library']} was imported, and not the library in {tree}.")
    return Spread.of(answer["seconds"]).middle


def compared(name: str, base: Path, pairs: int, turns: int) -> Comparison | None:
    """Run a case in both trees, in turn; None if the base does not have what it needs."""
    times: dict[Path, list[float]] = {base: [], ROOT: []}
    for pair in range(pairs):
        for tree in (base, ROOT) if pair % 2 else (ROOT, base):
            taken = seconds(tree, name, turns)
            if taken is None and tree == ROOT:
                raise SystemExit(f"{name!r} does not run in this commit: correct compare_cases.py.")
            if taken is None:
                return None
            times[tree].append(taken)
    before, after = (Spread.of(times[tree]).middle for tree in (base, ROOT))
    return Comparison(name, before, after, harness.ratios(times[ROOT], times[base]))


def stale_tables(folder: Path = ROOT) -> Iterator[str]:
    """Yield what is wrong with the age of tables in the documentation: warnings, not failures."""
    for page in sorted((folder / "docs").rglob("*.md")):
        marks = re.findall(
            r"<!-- begin: ([\w-]+) -->\n(.*?)<!-- end: \1 -->", page.read_text("utf-8"), re.DOTALL
        )
        for name, text in marks:
            table = f"{page.relative_to(folder)}: the table {name!r}"
            named = re.search(r"\bcommit ([0-9a-f]{7,40})\b", text)
            if named is None:
                yield f"{table} does not name its commit."
                continue
            log = [
                "git",
                "log",
                "--oneline",
                f"{named[1]}..HEAD",
                "--",
                *MEASURED.get(name, LIBRARY),
            ]
            done = subprocess.run(log, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                yield f"{table} is of commit {named[1]}, which is not in this repository."
            elif done.stdout:
                changes = len(done.stdout.splitlines())
                yield f"{table} is of commit {named[1]}; changes since then: {changes}."


def table(found: list[Comparison], base: str) -> Table:
    return Table(
        f"Processor time now / at {base}: median (quartiles)",
        ("what", "before, ms", "now, ms", "now / before", ""),
        [
            (
                case.what,
                harness.shown(1e3 * case.before),
                harness.shown(1e3 * case.after),
                str(case.ratio),
                "LOST" if case.is_lost else "",
            )
            for case in found
        ],
    )


def save(path: Path, found: list[Comparison], base: str, commit: str) -> None:
    rows = [{**asdict(case), "is_lost": case.is_lost} for case in found]
    document = {
        "format": FORMAT, "machine": pages.machine(), "base": base, "commit": commit, "rows": rows,
    }  # fmt: skip
    path.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--base", metavar="COMMIT", help="by default the last release's tag")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep this run")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with this in their name")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--turns", type=int, default=TURNS)
    chosen = parser.parse_args(arguments)
    base = chosen.base or last_release()
    tree = checkout(base)
    found, console = [], Console()
    for name in track([name for name in CASES if chosen.only in name], "Measuring", transient=True):
        case = compared(name, tree, chosen.pairs, chosen.turns)
        if case is None:
            console.print(f"{name}: {base} cannot do that", highlight=False)
        else:
            found.append(case)
    table(found, base).print()
    if chosen.json:
        save(chosen.json, found, base, pages.commit())
    for warning in stale_tables():
        console.print(f"warning: {warning}", highlight=False)
    return int(any(case.is_lost for case in found))


if __name__ == "__main__":
    raise SystemExit(main())
