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
class ErrorSample:
    """The errors of one competitor at one place of a figure.

    The n-th value of two samples in one panel comes from the same fold. A fold has as many values,
    one after the other, as there are replicates: trainings with other noise.
    """

    panel: str
    series: str
    x: float
    values: tuple[float, ...]
    overlap: float = 0.0  # of cross-validations: see `interval`
    stand_in: bool = False  # made-up data, or another collection, in the place of the paper's
    expected: float | None = None  # their mean over ever more runs, where that can be computed
    replicates: int = 1

    @property
    def errors(self) -> Floats:
        """The values as an array: a row for each fold, a column for each replicate."""
        return np.reshape(np.array(self.values, np.float64), (-1, self.replicates))

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

    all: tuple[ErrorSample, ...]

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

    def sample(self, panel: str, series: str, x: float) -> ErrorSample:
        """Return the sample at one place."""
        (found,) = (s for s in self.all if (s.panel, s.series, s.x) == (panel, series, x))
        return found


def interval(values: Floats, overlap: float = 0.0, risk: float = RISK) -> Interval:
    """Return the mean of some runs and its interval, by Student's t.

    Values of two dimensions have a row for each fold of a cross-validation and a column for each
    replicate of the noise. Folds train on much the same rows, so that they tell less than as many
    fresh ones would: Nadeau and Bengio (2003) widen their interval, where `overlap` is the number
    of rows that a fold is tested on, divided by those it is trained on. The noise of two trainings
    is independent, whatever rows they share. So only that part of the variance is widened which the
    folds have beyond their noise; replicates tell the two apart. Where they have none, all values
    count as independent. Degrees of freedom are those of Satterthwaite (1946).

    >>> interval(np.array([1.0, 2.0, 3.0]))
    Interval(mean=2.0, low=-0.484..., high=4.484...)
    >>> interval(np.array([1.0]))
    Interval(mean=1.0, low=-inf, high=inf)
    >>> interval(np.array([[1.0, 3.0], [3.0, 1.0]]), overlap=1.0).high  # noise alone
    3.83...
    """
    table = values.reshape(len(values), -1)
    folds, replicates = table.shape
    n, mean = table.size, float(table.mean())
    if folds < 2 or (mean != 0 and np.ptp(table) == 0):  # rates of few rows can agree by chance
        return Interval(mean, -np.inf, np.inf)
    variance = float(table.mean(axis=1).var(ddof=1))  # of the mean of a fold
    noise = float(table.var(axis=1, ddof=1).mean()) / replicates if replicates > 1 else 0.0
    square, freedom = variance * (1 / folds + overlap), float(folds - 1)
    if replicates > 1 and variance <= noise:
        square, freedom = float(table.var(ddof=1)) / n, float(n - 1)
    elif replicates > 1:
        known = (variance * (1 / folds + overlap)) ** 2 / (folds - 1)
        known += (overlap * noise) ** 2 / (folds * (replicates - 1))
        square -= overlap * noise
        freedom = min(max(square**2 / known, 1.0), n - 1) if known else freedom
    reach = -float(stdtrit(freedom, risk / 2)) * square**0.5
    return Interval(mean, mean - reach, mean + reach)
