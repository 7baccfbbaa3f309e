"""What was measured, run by run, and what that says about means and differences."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from scipy.special import stdtrit

from fedldp._internal.validation import Floats
from fedldp_reproduction.results import Point

RISK = 0.05  # of an interval to miss what it is for


class Interval(NamedTuple):
    """A mean, and where it may really be."""

    mean: float
    low: float
    high: float


@final
@dataclass(frozen=True)
class Sample:
    """The errors of one competitor at one place of a figure.

    The n-th value of two samples in one panel comes from the same folds.
    """

    panel: str
    series: str
    x: float
    values: tuple[float, ...]
    overlap: float = 0.0  # of cross-validations: see `interval`
    stand_in: bool = False  # made-up data, or another collection, in the place of the paper's
    expected: float | None = None  # their mean over ever more runs, where that can be computed

    @property
    def errors(self) -> Floats:
        """The values as an array."""
        return np.array(self.values)

    @property
    def level(self) -> float:
        """The best that is known about the mean."""
        return float(self.errors.mean()) if self.expected is None else self.expected

    def point(self) -> Point:
        """Return the line of tidy data."""
        mean, low, high = interval(self.errors, self.overlap)
        ends = (low, high) if np.isfinite(high) else (None, None)
        return Point(self.panel, self.series, self.x, mean, ends[0], ends[1], len(self.values))


@final
@dataclass(frozen=True)
class Samples:
    """The samples of a figure, or of some of its panels."""

    all: tuple[Sample, ...]

    @property
    def panels(self) -> list[str]:
        """The names of the panels."""
        return list(dict.fromkeys(sample.panel for sample in self.all))

    @property
    def xs(self) -> list[float]:
        """Where the figure has points, ascending."""
        return sorted({sample.x for sample in self.all})

    def stand_ins(self, wanted: bool) -> "Samples":
        """Return those of data in the place of the paper's, or those of the paper's own."""
        return Samples(tuple(sample for sample in self.all if sample.stand_in == wanted))

    def at(self, xs: Collection[float]) -> "Samples":
        """Return those at some places."""
        return Samples(tuple(sample for sample in self.all if sample.x in xs))

    def sample(self, panel: str, series: str, x: float) -> Sample:
        """Return the sample at one place."""
        (found,) = (s for s in self.all if (s.panel, s.series, s.x) == (panel, series, x))
        return found


def interval(values: Floats, overlap: float = 0.0, risk: float = RISK) -> Interval:
    """Return the mean of some runs and its interval, by Student's t.

    Runs of a cross-validation train on much the same rows, so that they tell less than as many
    fresh ones would: their interval is widened as Nadeau and Bengio (2003) propose, where `overlap`
    is the number of rows that a run is tested on, divided by those it is trained on.

    >>> interval(np.array([1.0, 2.0, 3.0]))
    Interval(mean=2.0, low=-0.484..., high=4.484...)
    >>> interval(np.array([1.0]))
    Interval(mean=1.0, low=-inf, high=inf)
    """
    n, mean = len(values), float(values.mean())
    if n < 2 or (mean != 0 and np.ptp(values) == 0):  # rates of few rows can agree by chance
        return Interval(mean, -np.inf, np.inf)
    error = float(values.std(ddof=1)) * (1 / n + overlap) ** 0.5
    reach = -float(stdtrit(n - 1, risk / 2)) * error
    return Interval(mean, mean - reach, mean + reach)
