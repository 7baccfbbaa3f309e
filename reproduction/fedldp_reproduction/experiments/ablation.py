"""From the paper to the library's default, one step at a time, on every panel of the paper.

Each step changes one thing and keeps what the steps before it changed. For each the error is shown,
and how many times as many vehicles the step before would need for the same error. The error of a
mean falls as 1/n. For a model that is measured: the part of its error above that of the converged
model falls by a power of n, which follows from a quarter of the fleet and the whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import final

import numpy as np

from fedldp_reproduction.experiments.samples import ErrorSample, interval
from fedldp_reproduction.figures import Way
from fedldp_reproduction.results import ClaimVerdict, Point

MEANS = ("paper", "best-k", "ratio", "dominant")
MODELS = (
    "paper",
    "best-rate",
    "best-k",
    "ratio",
    "dominant",
    "directions",
    "noise-aware",
    "survey",
)
TITLES = {
    "paper": "as in the paper, HM-TP",
    "best-rate": "the best learning rate",
    "best-k": "the best k",
    "ratio": "divided by those who answered",
    "dominant": "the mechanism dominant",
    "directions": "a direction for the whole gradient",
    "noise-aware": "a server that knows its noise",
    "survey": "a survey first: the default",
}
SMALL = 4  # the other fleet is this many times smaller
_SLOWEST = 0.2  # a power of n below which an error falls too slowly to count vehicles by it
_SERIES = "error"

_PAPER = Way("hm-tp", discretized=True, rate=1.0)
_BEST_RATE = Way("hm-tp", discretized=True)
_BEST_K = Way("hm-tp", discretized=True, k="best")
_RATIO = Way("hm-tp", discretized=True, k="best", estimator="ratio")
_DOMINANT = Way("dominant", k="best", estimator="ratio", study=False)
# A label is one feature of 0 or 1 here, so that |x|^2 is at most the number of attributes, not d.
_DIRECTIONS = replace(
    _DOMINANT, mechanism="directions", strategy="directions", coding="none", rate_unit=8.0
)
WAYS = {
    "paper": _PAPER,
    "best-rate": _BEST_RATE,
    "best-k": _BEST_K,
    "ratio": _RATIO,
    "dominant": _DOMINANT,
    "directions": _DIRECTIONS,
    "noise-aware": replace(_DIRECTIONS, server="noise-aware"),
    "survey": replace(_DIRECTIONS, server="default"),
}


@final
@dataclass(frozen=True)
class Panel:
    """The samples of one data set and one task, by the name of the step."""

    title: str
    steps: Mapping[str, ErrorSample]
    small: Mapping[str, ErrorSample]  # with a smaller fleet; none of means
    floor: float  # the error of the converged model; 0 of means

    @property
    def names(self) -> list[str]:
        """The steps, in their order."""
        return list(self.steps)

    def error(self, name: str) -> float:
        """Return the error after a step."""
        return self.steps[name].level

    def vehicles(self, place: int) -> float | None:
        """Return how many times as many vehicles the step before needs; None if it is unknown."""
        before, name = self.names[place - 1], self.names[place]
        excess = [self.error(each) - self.floor for each in (before, name)]
        if min(excess) <= 0:
            return None
        if not self.small:
            return excess[0] / excess[1]
        less = self.small[before].level - self.floor
        if less <= excess[0]:
            return None
        power = log(less / excess[0]) / log(SMALL)
        if power < _SLOWEST:
            return None
        return float((excess[0] / excess[1]) ** (1 / power))


def points(panels: Sequence[Panel]) -> tuple[Point, ...]:
    """Return the errors as tidy data: x is the number of the step, from 0."""
    found = []
    for panel in panels:
        for name, sample in panel.steps.items():
            place = MODELS.index(name)
            mean, low, high = interval(sample.errors, sample.overlap)
            ends = (low, high) if np.isfinite(high) else (None, None)
            runs = len(sample.values)
            found.append(Point(panel.title, _SERIES, place, mean, ends[0], ends[1], runs))
        if panel.floor:
            places = (0, len(MODELS) - 1)
            found += [
                Point(panel.title, "converged", place, panel.floor, None, None, 0)
                for place in places
            ]
    return tuple(found)


def table(panels: Sequence[Panel]) -> tuple[tuple[str, ...], ...]:
    """Return the table: a row for each step of each panel."""
    rows = [("Panel", "Step", "Error", "Change", "Vehicles that the step before needs")]
    for panel in panels:
        for place, name in enumerate(panel.names):
            change = vehicles = ""
            if place:
                gap = panel.error(name) / panel.error(panel.names[place - 1]) - 1
                change = f"{gap:+.1%}"
                times = panel.vehicles(place)
                vehicles = "not known" if times is None else f"{times:.2f} times as many"
            step = f"{MODELS.index(name)} {'+ ' * bool(place)}{TITLES[name]}"
            rows.append((panel.title, step, f"{panel.error(name):.4g}", change, vehicles))
    return tuple(rows)


def verdict(panels: Sequence[Panel]) -> ClaimVerdict:
    """Return whether the library's default has less error than the paper's method everywhere."""
    told, lower = [], True
    for panel in panels:
        first, last = (panel.steps[name] for name in (panel.names[0], panel.names[-1]))
        gap = last.level / first.level - 1
        lower &= gap < 0
        told.append(f"{gap:+.1%} on {panel.title}")
    return ClaimVerdict(
        "The library's default has less error than the paper's method (beyond the paper)",
        lower if panels else None,
        f"From the first step to the last: {'; '.join(told)}." if told else "No data.",
        "" if lower else "It has less error where the change is negative.",
        beyond=True,
    )
