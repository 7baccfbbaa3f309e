"""Time several ways to do the same work, in turn, and compare them by ratios.

A time is a matter of the machine; the ratio of two times that were taken one right after the other
is much less so. All ways of a case take turns, forwards and then backwards (A B C, C B A, ...), so
that a machine that slows down meanwhile favours none of them, and each ratio is taken within one
turn. Shown is the median with its quartiles. Time is that of one core, spent in this process: when
others are busy on the machine, it is not counted how long this one has to wait.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "fedldp bench 1"

Work = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """A number of items of work, done in our way and, if there are any, in other ways."""

    ours: Work
    items: int
    straightforward: Work | None = None
    limit: Work | None = None
    part: float = 1.0  # of the work, that the straightforward way does: its time is scaled


@dataclass(frozen=True)
class Spread:
    """A median and its quartiles."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(*(float(each) for each in np.percentile(values, [25, 50, 75])))

    @classmethod
    def exactly(cls, value: float) -> "Spread":
        return cls(value, value, value)

    def apart(self, other: "Spread") -> bool:
        """Whether the two are apart by more than both spreads together.

        Two runs of the same code differ by more than the quartiles of either often enough: so each
        is widened, on both sides, by as much as its quartiles are apart.
        """
        room = (self.high - self.low) + (other.high - other.low)
        return self.high + room < other.low or other.high + room < self.low

    def __str__(self) -> str:
        if self.low == self.high:
            return shown(self.middle)
        return f"{shown(self.middle)} ({shown(self.low)} - {shown(self.high)})"


@dataclass(frozen=True)
class Row:
    """What came out of a case."""

    what: str
    each: float  # what an item costs us
    unit: str
    faster: Spread | None = None  # the straightforward way's cost over ours
    limit: Spread | None = None  # our cost over the limit's


@dataclass(frozen=True)
class Change:
    """A ratio that two runs disagree about by more than their spread."""

    what: str
    against: str
    before: Spread
    after: Spread


def shown(value: float) -> str:
    """Three digits, as people write them: 0.123, 1.23, 12.3, 123 and 12,346."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def seconds(work: Work, clock: Callable[[], float] = time.process_time) -> float:
    """How long it takes."""
    start = clock()
    work()
    return clock() - start


def interleaved(
    ways: Mapping[str, Work], turns: int, timer: Callable[[Work], float] = seconds
) -> dict[str, list[float]]:
    """How long each way takes in each turn; what comes before the first turn does not count."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(-1, turns):
        for name in list(ways) if turn % 2 else list(ways)[::-1]:
            taken = timer(ways[name])
            if turn >= 0:
                times[name].append(taken)
    return times


def timed(case: Case, turns: int) -> dict[str, list[float]]:
    """Return the times of a case's ways, for all of its work."""
    ways = {"straightforward": case.straightforward, "ours": case.ours, "limit": case.limit}
    times = interleaved({name: way for name, way in ways.items() if way is not None}, turns)
    if case.part != 1:
        times["straightforward"] = [each / case.part for each in times["straightforward"]]
    return {**times, "items": [case.items]}


def ratios(above: Iterable[float], below: Iterable[float]) -> Spread:
    """Return the spread of ratios that were each taken within one turn."""
    return Spread.of([a / b for a, b in zip(above, below, strict=True)])


def row(what: str, runs: Sequence[Mapping[str, list[float]]]) -> Row:
    """Put together what several processes have measured."""
    times = {name: [each for run in runs for each in run[name]] for name in runs[0]}
    ours = times["ours"]
    return Row(
        what,
        float(np.median(ours)) / times["items"][0] * 1e9,
        "ns",
        ratios(times["straightforward"], ours) if "straightforward" in times else None,
        ratios(ours, times["limit"]) if "limit" in times else None,
    )


def in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a process that has done nothing else.

    What ran before matters: once large arrays have come and gone, the allocator keeps memory for
    NumPy's temporaries, and the same code is up to half as fast again. And of two processes that do
    the same, one may be luckier with where its arrays lie: so each case runs in several.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def changes(old: Iterable[Row], new: Iterable[Row]) -> list[Change]:
    """Return the ratios of which two runs disagree by more than their spread."""
    before = {each.what: each for each in old}
    return [
        Change(after.what, against, first, second)
        for after in new
        if after.what in before
        for against in ("faster", "limit")
        if (first := getattr(before[after.what], against)) is not None
        and (second := getattr(after, against)) is not None
        and first.apart(second)
    ]


def save(path: Path, rows: Sequence[Row], machine: str) -> None:
    """Write a run as JSON."""
    document = {"format": FORMAT, "machine": machine, "rows": [asdict(each) for each in rows]}
    path.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def load(path: Path) -> tuple[list[Row], str]:
    """Read a run: its rows, and the machine in words."""
    document = json.loads(path.read_text("utf-8"))
    if document.get("format") != FORMAT:
        raise SystemExit(f"{path} is no {FORMAT!r}: make it with --json.")
    rows = [
        Row(**{**each, **{key: each[key] and Spread(**each[key]) for key in ("faster", "limit")}})
        for each in document["rows"]
    ]
    return rows, document["machine"]
