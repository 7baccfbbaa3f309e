"""Angles and other numbers on a circle, such as the hour of a day, without a seam."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np

from fedldp._internal.text import counted, or_none, rounded
from fedldp._internal.validation import Floats, Integers, whole
from fedldp.errors import DomainError
from fedldp.schema.attributes.base import finite
from fedldp.schema.attributes.binned import Binned
from fedldp.schema.attributes.distribution import Bins, entries
from fedldp.schema.attributes.results import Numbers
from fedldp.vehicle import MOST_BINS, RANDOM

__all__ = ["Angle", "CircularDistribution"]

_GRID_DIRECTIONS = 720  # which are tried as ends of an interval


@final
@dataclass(frozen=True, eq=False, repr=False)
class CircularDistribution(Bins):
    """The distribution of an angle: histogram, mean direction and resultant length.

    The values, as points on a circle of radius 1, have a center. The mean direction is where it
    lies, seen from the middle of the circle; the resultant length is how far away it is: 1 if all
    angles are the same, and 0 if they balance, when there is no mean direction.

    Attributes
    ----------
    edges
        The edges of the bins, from 0 to the period.
    numbers
        All of these, with how the errors of the frequencies depend on each other.
    places
        The numbers of the bins among the labels.
    values
        The unbiased share of each bin, of which some may be negative; then, if some vehicles have
        no value, the frequency of "missing".
    stderr
        The standard error of each value.
    interval
        An interval for each value.
    simultaneous
        Wider intervals, which contain all numbers of the estimate at once.
    answers
        How many vehicles answered.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema((fedldp.Angle("heading", bins=36),)), epsilon=4.0)
    >>> rows = {"heading": [355.0, 15.0] * 10_000}
    >>> found = plan.simulate(rows, fedldp.source(1)).estimate()["heading"]
    >>> round(found.mean_direction), found.mean_interval.round()
    (5, array([359.,  11.]))
    """

    edges: tuple[float, ...]
    numbers: Numbers
    places: Integers

    def __repr__(self) -> str:
        bins, answers = counted(len(self.places), "bin"), counted(self.answers, "answer")
        return f"<CircularDistribution in {bins}: {self.summary}; {answers}>"

    @property
    def summary(self) -> str:
        """Its mean direction and resultant length, for display."""
        low, high = self.mean_interval
        wide = (high - low) % self._period or self._period
        least, most = self.resultant_interval
        direction = (
            "mean direction unknown"
            if wide == self._period
            else f"mean direction {rounded(self.mean_direction, wide / 2)} "
            f"({rounded(low, wide / 2)} to {rounded(high, wide / 2)})"
        )
        return (
            f"{direction}, resultant length {self.resultant_length:.2f} ({least:.2f} to {most:.2f})"
        )

    @property
    def details(self) -> dict[str, Any]:
        """Everything about it, for JSON."""
        return {
            "edges": list(self.edges),
            "histogram": entries(self.histogram),
            "mean_direction": {
                "estimate": or_none(self.mean_direction),
                "interval": self.mean_interval.tolist(),
            },
            "resultant_length": {
                "estimate": or_none(self.resultant_length),
                "interval": self.resultant_interval.tolist(),
            },
        }

    @property
    def _period(self) -> float:
        return self.edges[-1]

    @cached_property
    def _radians(self) -> Floats:
        """The edges as radians."""
        return 2 * np.pi * np.array(self.edges) / self._period

    @cached_property
    def _centre(self) -> complex:
        """The center of all values, if those of each bin are spread evenly over it."""
        points = np.exp(1j * self._radians)
        return complex(self.histogram.frequencies @ (np.diff(points) / 1j / np.diff(self._radians)))

    @property
    def mean_direction(self) -> float:
        """The mean direction, from 0 to the period."""
        return float(np.angle(self._centre) % (2 * np.pi) / (2 * np.pi) * self._period)

    @property
    def resultant_length(self) -> float:
        """The resultant length: 1 if all values are the same, 0 if they balance."""
        return abs(self._centre)

    def _component(self, directions: Floats, quarter: int) -> tuple[Floats, Floats]:
        """Return the least and the largest component of the center along or across directions.

        A value can be anywhere in its bin. The cosine of its distance to the direction (or to the
        direction a quarter further) is extreme at an edge, or where it is 1 or -1.
        """
        turned = self._radians - directions[:, None] - quarter * np.pi / 2
        at_edges = np.cos(turned)
        first, last = turned[:, :-1] / (2 * np.pi), turned[:, 1:] / (2 * np.pi)
        least = np.minimum(at_edges[:, :-1], at_edges[:, 1:])
        most = np.maximum(at_edges[:, :-1], at_edges[:, 1:])
        least = np.where(np.floor(last - 0.5) >= np.ceil(first - 0.5), -1.0, least)
        most = np.where(np.floor(last) >= np.ceil(first), 1.0, most)
        low, high = (self._linear(top, -1.0, 1.0).interval for top in (least, most))
        return low[:, 0], high[:, 1]

    @cached_property
    def mean_interval(self) -> Floats:
        """The interval of the mean direction, which may contain 0: (350, 10) has a width of 20.

        If the center may be the middle of the circle, it is the whole circle, from 0 to the period.
        """
        whole = np.array([0.0, self._period])
        if not np.isfinite(self._centre):
            return whole
        turns = np.arange(-_GRID_DIRECTIONS // 2, _GRID_DIRECTIONS // 2 + 1) / _GRID_DIRECTIONS
        directions = np.angle(self._centre) + 2 * np.pi * turns
        # A direction is possible if nothing need lie across it, and something may lie along it.
        low, high = self._component(directions, 1)
        along = self._component(directions, 0)[1]
        possible = (low <= 0) & (high >= 0) & (along >= 0)
        possible[_GRID_DIRECTIONS // 2] = True  # the estimate itself
        if np.any(possible & (np.abs(turns) >= 0.25)):
            return whole
        ends = np.flatnonzero(possible)[[0, -1]] + [-1, 1]  # outward to the grid
        bounds: Floats = (directions[ends] % (2 * np.pi)) / (2 * np.pi) * self._period
        return bounds

    @cached_property
    def resultant_interval(self) -> Floats:
        """The interval of the resultant length."""
        if not np.isfinite(self._centre):
            return np.array([0.0, 1.0])
        direction = np.array([np.angle(self._centre)])
        low, high = self._component(direction, 0)
        across = np.max(np.abs(self._component(direction, 1)))
        ends = max(low[0], 0.0), min(np.hypot(max(high[0], 0.0), across), 1.0)
        return np.array([min(ends[0], abs(self._centre)), max(ends[1], abs(self._centre))])


@final
@dataclass(frozen=True, repr=False)
class Angle(Binned):
    """A number on a circle, such as a heading or an hour, whose distribution is estimated.

    Parameters
    ----------
    name
        The name of the attribute.
    period
        After which the values begin anew: 360 for degrees, 24 for the hour of a day.
    bins
        In how many bins the circle is divided, from 0 on. A vehicle answers with the bin of its
        value.
    missing
        The public value that a vehicle uses if its own is missing or unreadable. By default it is
        0, in the first bin.
    optional
        Whether some vehicles have no value. They say so, and the distribution among the others is
        estimated.
    constant
        Whether the value of a vehicle never changes. See `Attribute`.
    rule
        How several rows of a vehicle become one value. See `Attribute`.
    unit
        What a value means to people. See `Attribute`.

    Raises
    ------
    DomainError
        If the period is not positive, there are fewer than 2 bins or too many, or `missing` is not
        from 0 to the period.

    Examples
    --------
    >>> hour = Angle("hour", period=24, bins=24)
    >>> hour.labels[23], hour.bin(np.array([23.5, -0.5, 25.0]))
    ('23 to 24', array([23., 23.,  1.]))
    """

    name: str
    period: float = 360.0
    bins: int = 36
    missing: float | None = None
    optional: bool = False
    constant: bool = field(default=False, kw_only=True)
    rule: str = field(default=RANDOM, kw_only=True)
    unit: str = field(default="", kw_only=True, compare=False)

    declared_as = "period and bins (with an optional missing)"
    kind = CircularDistribution
    bounds = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "period", finite(self.name, "period", self.period))
        object.__setattr__(self, "bins", whole(self.bins, f"bins of {self.name!r}"))
        if not 2 <= self.bins <= MOST_BINS:
            raise DomainError(f"{self.name!r} needs from 2 to {MOST_BINS} bins; got {self.bins}.")
        if not self.period > 0 or len(set(self.edges)) <= self.bins:
            raise DomainError(f"period of {self.name!r} must be positive; got {self.period!r}.")
        self._check(0.0)

    @cached_property
    def edges(self) -> tuple[float, ...]:  # type: ignore[override]
        """The edges of the bins, from 0 to the period."""
        return tuple(self.period * (place / self.bins) for place in range(self.bins + 1))

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> "Angle | None":
        if not {"period"} <= table.keys() <= {"period", "bins", "missing", "optional"}:
            return None
        return cls(name, **table)

    def options(self) -> dict[str, Any]:
        return {"period": self.period, "bins": self.bins, **self._defaults()}

    @property
    def domain(self) -> str:
        """The period and the number of bins, for display."""
        missing = ", or missing" if self.optional else ""
        return f"a circle of {self.period:g} in {self.bins} bins{missing}"

    def bin(self, values: Floats) -> Floats:
        with np.errstate(invalid="ignore"):  # values may be infinite
            return super().bin(np.mod(values, self.period))

    @property
    def largest_shift(self) -> float:
        """The farthest direction is opposite."""
        return self.period / 2
