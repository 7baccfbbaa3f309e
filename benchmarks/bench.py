"""`make bench`: how fast and how small, as ratios measured in one run.

Each row has what an item costs, how many times less that is than the straightforward way costs, and
how many times the limit. See `harness` for how it is measured, `cases` for what. All on one core.
"""

import os
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy is imported, here and in each process

import harness
import pages
import sizes
from cases import CASES
from harness import Row, Spread
from pages import Table
from rich.progress import track

from fedldp import _plots as plots

TURNS, PROCESSES = 5, 3


def measure(name: str, turns: int) -> dict[str, list[float]]:
    return harness.timed(CASES[name](), turns)


def measured(only: str, turns: int, processes: int) -> list[Row]:
    """Run the cases whose name has that text."""
    jobs = [name for name in CASES if only in name for _ in range(processes)]
    runs: dict[str, list[dict[str, list[float]]]] = {}
    for name in track(jobs, "Measuring", transient=True):
        runs.setdefault(name, []).append(harness.in_new_process(measure, name, turns))
    timed = [harness.row(name, found) for name, found in runs.items()]
    return timed + [each for each in sizes.rows() if only in each.what]


def table(rows: list[Row], turns: int, processes: int) -> Table:
    pairs = turns * processes
    return Table(
        f"Costs and how they compare: median (quartiles) of {pairs} turns in {processes} processes",
        ("what", "ours, each", "straightforward / ours", "ours / limit"),
        [
            (
                each.what,
                f"{harness.shown(each.each)} {each.unit}",
                str(each.faster or ""),
                str(each.limit or ""),
            )
            for each in rows
        ],
    )


def difference(old: Path, new: Path) -> Table:
    """What changed between two runs by more than their spread."""
    (before, there), (after, here) = harness.load(old), harness.load(new)
    meaning = {"faster": "straightforward / ours", "limit": "ours / limit"}
    found = harness.changes(before, after)
    same = "" if there == here else ": the machines differ"
    return Table(
        f"{len(found)} ratios changed beyond their spread{same}",
        ("what", "ratio", "before", "after", "after / before"),
        [
            (
                each.what,
                meaning[each.against],
                str(each.before),
                str(each.after),
                f"{each.after.middle / each.before.middle:.2f}",
            )
            for each in found
        ],
        words=2,
    )


def picture(rows: list[Row]) -> plots.Figure:
    figure = plots.Figure(figsize=(10, 1 + 0.21 * len(rows)), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    sides = (
        (axes[0], [each.faster for each in rows], "straightforward / ours"),
        (axes[1], [each.limit for each in rows], "ours / limit"),
    )
    for side, spreads, label in sides:
        for place, spread in enumerate(spreads):
            if spread is not None:
                _draw(side, place, spread)
        side.axvline(1, color=plots.BLACK, lw=1)
        side.set(xscale="log", xlabel=label)
        side.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        side.grid(alpha=0.25)
        side.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(range(len(rows)), [each.what for each in rows])
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    return figure


def _draw(side: object, place: int, spread: Spread) -> None:
    side.plot([spread.low, spread.high], [place, place], color=plots.BLUE, lw=4, alpha=0.4)
    side.plot(spread.middle, place, "o", color=plots.BLUE, ms=5)


def main() -> None:
    parser = pages.options(__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep this run, to compare with")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("OLD", "NEW"))
    parser.add_argument("--only", default="", metavar="TEXT", help="rows with this in their name")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--processes", type=int, default=PROCESSES)
    chosen = parser.parse_args()
    if chosen.compare:
        difference(*chosen.compare).print()
        return
    machine, busy = pages.machine("cryptography"), pages.busy()
    rows = measured(chosen.only, chosen.turns, chosen.processes)
    shown = table(rows, chosen.turns, chosen.processes)
    pages.publish("bench", [shown], f"{machine}; {busy}", chosen.write)
    if chosen.json:
        harness.save(chosen.json, rows, machine)
    if chosen.plot:
        plots.save(picture(rows), chosen.plot)


if __name__ == "__main__":
    main()
