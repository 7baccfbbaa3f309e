"""Numbers that some vehicles do not have."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from fedldp._internal.validation import Floats, whole
from fedldp.errors import DomainError
from fedldp.schema.attributes.base import Attribute
from fedldp.schema.attributes.estimands import OptionalMean
from fedldp.schema.attributes.inputs import LabelInputs, OfferedCoders, Values
from fedldp.schema.attributes.number import Number
from fedldp.schema.attributes.readers import NumberReader
from fedldp.vehicle import MISSING, MOST_GRID_VALUES, MOST_LABELS, PLAN_FORMAT_2, RANDOM

__all__ = ["OptionalNumber"]

_KEYS = {"low", "high", "optional"}
_GRID_SIZES = (2, 3, 5, 9, 17)  # which a plan chooses from
_ASSUMED_SHARE = 0.75  # of vehicles that have a value
_PLACES = (np.arange(200) + 0.5) / 100 - 1


@final
@dataclass(frozen=True, repr=False)
class OptionalNumber(Attribute):
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
    rule
        How several rows of a vehicle become one value. See `Attribute`.
    unit
        What a value means to people. See `Attribute`.

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
    >>> speed.join([np.array([[32.5], [200.0], [np.nan]])])
    array([[0.25],
           [1.  ],
           [2.  ]])
    """

    name: str
    low: float
    high: float
    grid: int | None = None
    constant: bool = field(default=False, kw_only=True)
    rule: str = field(default=RANDOM, kw_only=True)
    unit: str = field(default="", kw_only=True, compare=False)

    size = 1
    feature_labels = ()
    declared_as = "low, high and optional = true (with an optional grid)"
    plan_format = PLAN_FORMAT_2

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", self._number.low)
        object.__setattr__(self, "high", self._number.high)
        if self.grid is not None:
            object.__setattr__(self, "grid", whole(self.grid, f"grid of {self.name!r}"))
            if not 2 <= self.grid <= MOST_GRID_VALUES:
                raise DomainError(
                    f"grid of {self.name!r} must be from 2 to {MOST_GRID_VALUES}; got {self.grid}."
                )

    @property
    def unresolved(self) -> bool:  # type: ignore[override]
        """Whether the plan is to choose the grid."""
        return self.grid is None

    @cached_property
    def _grid(self) -> Floats:
        return np.linspace(self.low, self.high, self.grid or 2)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The values that numbers are rounded to, as texts, and "missing"."""
        return (*(f"{value:g}" for value in self._grid), MISSING)

    @cached_property
    def _number(self) -> Number:
        return Number(self.name, self.low, self.high)

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> "OptionalNumber | None":
        if not _KEYS <= table.keys() <= {*_KEYS, "grid"} or table["optional"] is not True:
            return None
        return cls(name, table["low"], table["high"], table.get("grid"))

    def options(self) -> dict[str, Any]:
        found = {"low": self.low, "high": self.high, "optional": True}
        return found if self.grid is None else {**found, "grid": self.grid}

    def resolve(self, epsilon: float, coders: OfferedCoders, groups: int = 1) -> "OptionalNumber":
        if self.grid is not None:
            return self
        offered = [number for number in _GRID_SIZES if groups * (number + 1) <= MOST_LABELS]
        best = min(offered, key=lambda number: _error(number, groups, epsilon, coders))
        return replace(self, grid=best)

    @property
    def domain(self) -> str:
        """The bounds, for display."""
        return f"{self._number.domain}, or missing"

    @property
    def readers(self) -> tuple[NumberReader, ...]:
        """What reads its column."""
        bounds = self.low, self.high
        return (NumberReader(self.name, repr(MISSING), bounds, optional=True),)

    def join(self, columns: list[Floats]) -> Floats:
        (values,), last = columns, len(self._grid) - 1
        positions = last * self._number.inputs.positions(values)
        return np.where(np.isnan(values), last + 1.0, positions)

    @cached_property
    def inputs(self) -> LabelInputs:
        """What a coder takes: the number of a value of the grid, or of "missing"."""
        grid = len(self._grid)
        return LabelInputs(self.labels, missing=float(grid), ladder=grid)

    @property
    def estimand(self) -> OptionalMean:
        """What is estimated: the mean among those that have a value, and their share."""
        return OptionalMean(self.name, self.inputs, tuple(self._grid.tolist()))

    def to_features(self, values: Values) -> Floats:
        positions, last = self.inputs.of(values), len(self._grid) - 1
        return np.where(positions > last, 0.0, 2 * positions / last - 1)

    def from_features(self, numbers: Any) -> Any:
        return self._number.from_features(numbers)


def _error(grid: int, groups: int, epsilon: float, coders: OfferedCoders) -> float:
    """Return the variance of one answer about a mean of some groups, times the share squared.

    Numbers are assumed to be uniform, with the variance that the plan assumes; the mean to be
    anywhere, so that the error of the share counts a third.
    """
    number = grid + 1
    coder = coders.compact(epsilon, groups * number)
    x = np.clip(_PLACES * np.sqrt(3 * coders.variance), -1.0, 1.0)
    shares = np.maximum(1 - np.abs((x[:, None] + 1) / 2 * (grid - 1) - np.arange(grid)), 0.0)
    share_errors = np.append(_ASSUMED_SHARE * shares.mean(axis=0), 1 - _ASSUMED_SHARE) / groups
    places = np.arange(grid)
    cov = coder.covariance(np.tile(share_errors, groups), places[:, None], places)
    values = np.linspace(-1.0, 1.0, grid)
    return float(values @ cov @ values + cov.sum() / 3)
