"""Numbers that some vehicles do not have."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from fedldp._internal.validation import Floats, whole
from fedldp.errors import DomainError
from fedldp.schema.attributes.base import Coders, Labelled, Values
from fedldp.schema.attributes.grouped import GroupMeans, MeanOfSome, moved_ratio
from fedldp.schema.attributes.number import Number
from fedldp.schema.attributes.results import Numbers, Result
from fedldp.schema.frames import Cells
from fedldp.vehicle import MISSING, MOST_GRID, MOST_LABELS, PLAN_FORMAT_2

__all__ = ["OptionalNumber"]

_KEYS = {"low", "high", "optional"}
_GRIDS = (2, 3, 5, 9, 17)  # that a plan chooses from
_SHARE = 0.75  # of vehicles that have a value, as a plan assumes it
_PLACES = (np.arange(200) + 0.5) / 100 - 1


@final
@dataclass(frozen=True, repr=False)
class OptionalNumber(Labelled):
    """A number between public bounds that some vehicles do not have.

    Estimated are the share of vehicles that have a value, and the mean among those. A value is
    rounded at random to one of the values of a grid; a vehicle without one says "missing".

    Parameters
    ----------
    name
        The name of the attribute.
    low, high
        The public bounds. A value outside counts as the bound.
    grid
        How many evenly spaced values there are to round to, from 2, the bounds alone, to 255. By
        default the plan chooses the number with the least error: more for a larger epsilon.
    constant
        Whether the value of a vehicle never changes. See `Attribute`.

    Raises
    ------
    DomainError
        If a bound is not finite, or low is not below high.

    Examples
    --------
    >>> speed = OptionalNumber("speed", 0, 130)
    >>> speed
    OptionalNumber(name='speed', low=0.0, high=130.0, grid=None)
    >>> OptionalNumber("speed", 0, 130, grid=3).labels
    ('0', '65', '130', 'missing')
    >>> speed.joined([np.array([[32.5], [200.0], [np.nan]])])
    array([[0.25],
           [1.  ],
           [2.  ]])
    """

    name: str
    low: float
    high: float
    grid: int | None = None
    constant: bool = field(default=False, kw_only=True)

    feature_labels = ()
    optional = True
    rounds = True
    missing = MISSING
    invalid = "unreadable"
    declared_as = "low, high and optional = true (with an optional grid)"
    plan_format = PLAN_FORMAT_2
    replacement = "'missing'"

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", self._number.low)
        object.__setattr__(self, "high", self._number.high)
        if self.grid is not None:
            object.__setattr__(self, "grid", whole(self.grid, f"grid of {self.name!r}"))
            if not 2 <= self.grid <= MOST_GRID:
                raise DomainError(
                    f"grid of {self.name!r} must be from 2 to {MOST_GRID}; got {self.grid}."
                )

    @property
    def unsettled(self) -> bool:  # type: ignore[override]
        """Whether the plan is to choose the grid."""
        return self.grid is None

    @cached_property
    def _grid(self) -> Floats:
        return np.linspace(self.low, self.high, self.grid or 2)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The values that numbers are rounded to, as texts, and "missing"."""
        return (*(f"{value:g}" for value in self._grid), MISSING)

    @property
    def missing_input(self) -> float:
        """The input of a missing value."""
        return float(len(self._grid))

    @cached_property
    def _number(self) -> Number:
        return Number(self.name, self.low, self.high)

    @classmethod
    def from_shorthand(cls, name: str, given: Any, size: int) -> None:
        return None

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> "OptionalNumber | None":
        if not _KEYS <= table.keys() <= {*_KEYS, "grid"} or table["optional"] is not True:
            return None
        return cls(name, table["low"], table["high"], table.get("grid"))

    @classmethod
    def is_entry(cls, options: Mapping[str, Any]) -> bool:
        return (
            _KEYS <= options.keys() <= {*_KEYS, "grid"}
            and options["optional"] is True
            and type(options.get("grid", 2)) is int
            and all(type(options[key]) in (int, float) for key in ("low", "high"))
        )

    def options(self) -> dict[str, Any]:
        found = {"low": self.low, "high": self.high, "optional": True}
        return found if self.grid is None else {**found, "grid": self.grid}

    def settled(self, epsilon: float, coders: Coders) -> "OptionalNumber":
        return self.settled_within(1, epsilon, coders)

    def settled_within(self, groups: int, epsilon: float, coders: Coders) -> "OptionalNumber":
        if self.grid is not None:
            return self
        offered = [number for number in _GRIDS if groups * (number + 1) <= MOST_LABELS]
        best = min(offered, key=lambda number: _error(number, groups, epsilon, coders))
        return replace(self, grid=best)

    @property
    def domain(self) -> str:
        """The bounds, for display."""
        return f"{self._number.domain}, or missing"

    def joined(self, values: list[Floats]) -> Floats:
        last = len(self._grid) - 1
        return np.where(np.isnan(values[0]), last + 1.0, last * self._number.positions(values[0]))

    def read(self, cells: Cells) -> Floats:
        return self._number.read(cells)

    def is_missing(self, cell: object) -> bool:
        return self._number.is_missing(cell)

    def _expected(self, cell: object, is_entry: bool) -> str:
        return "a number"

    @property
    def limits(self) -> str:
        """What values are clipped to, in words."""
        return self._number.limits

    def clipped(self, values: Floats, least: float, most: float) -> int:
        return self._number.clipped(values, least, most)

    def result(self, numbers: Numbers) -> Result:
        return MeanOfSome.of(self._grid, numbers)

    def described(self, place: int) -> tuple[str, tuple[float, float]]:
        if place == 0:
            return self.name, (self.low, self.high)
        return f"share with {self.name}", (0.0, 1.0)

    def within(self, groups: tuple[str, ...], numbers: Numbers) -> Result:
        return GroupMeans.of(groups, len(self.letters), self._grid, numbers)

    def moved(self, coder: Any, liars: float, group: float) -> float:
        places = np.linspace(0.0, 1.0, len(self._grid))
        return (self.high - self.low) * moved_ratio(coder, places, liars, group)

    def moved_within(self, coder: Any, liars: float, group: float) -> float:
        return self.moved(coder, liars, group)

    def sums_within(self, groups: Values, number: int, positions: Floats) -> tuple[Values, Values]:
        last = len(self._grid) - 1
        shares = np.where(positions > last, 2.0, positions / last)
        return self._number.sums_within(groups, number, shares)

    def sums(self, values: Values) -> tuple[Values, Any]:
        positions = self.positions(values)[:, 0]
        return self.sums_within(np.zeros(len(values), np.int64), 1, positions)

    def known(self, values: Values) -> Any:
        last = self.missing_input - 1
        return ((values >= 0) & (values <= last)) | (values == last + 1)

    def compact(self, values: Floats) -> Values:
        return self.positions(values[:, 0]).astype(np.float32)

    def check_column(self, column: Values) -> None:
        if column.dtype.kind not in "iuf" or not self.known(column).all():
            raise DomainError(f"column {self.name!r} must hold positions on its grid.")

    def summary(self, values: Values) -> dict[str, Any]:
        (total, present), (_, number) = self.sums(values)
        return {"mean": float(total / max(present, 1)), "missing": float(1 - present / number)}

    def typical(self, summary: Mapping[str, Any]) -> str:
        return f"{summary['mean']:.4g}"

    def to_features(self, values: Values) -> Floats:
        positions, last = self.positions(values), self.missing_input - 1
        return np.where(positions > last, 0.0, 2 * positions / last - 1)

    def from_features(self, numbers: Any) -> Any:
        return self._number.from_features(numbers)


def _error(grid: int, groups: int, epsilon: float, coders: Coders) -> float:
    """Return the variance of one answer about a mean of some groups, times the share squared.

    Numbers are assumed to be uniform, with the variance that the plan assumes; the mean to be
    anywhere, so that the error of the share counts a third.
    """
    number = grid + 1
    coder = coders.compact(epsilon, groups * number)
    x = np.clip(_PLACES * np.sqrt(3 * coders.variance), -1.0, 1.0)
    shares = np.maximum(1 - np.abs((x[:, None] + 1) / 2 * (grid - 1) - np.arange(grid)), 0.0)
    each = np.append(_SHARE * shares.mean(axis=0), 1 - _SHARE) / groups
    places = np.arange(grid)
    cov = coder.covariance(np.tile(each, groups), places[:, None], places)
    values = np.linspace(-1.0, 1.0, grid)
    return float(values @ cov @ values + cov.sum() / 3)
