"""Numbers that some vehicles do not have."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from fedldp._internal.validation import Floats
from fedldp.attributes.base import Labelled, Values
from fedldp.attributes.grouped import GroupMeans, MeanOfSome
from fedldp.attributes.number import Number
from fedldp.attributes.results import Numbers, Result
from fedldp.data.frames import Cells
from fedldp.errors import DomainError
from fedldp.vehicle import PLAN_FORMAT_2

__all__ = ["OptionalNumber"]

_KEYS = {"low", "high", "optional"}


@final
@dataclass(frozen=True)
class OptionalNumber(Labelled):
    """A number between public bounds that some vehicles do not have.

    Estimated are the share of vehicles that have a value, and the mean among those. A value is
    rounded at random to one of its bounds, "-" or "+"; a vehicle without one says "missing". This
    is what `Number(..., optional=True)` returns.

    Parameters
    ----------
    name
        The name of the attribute.
    low, high
        The public bounds. A value outside counts as the bound.

    Raises
    ------
    DomainError
        If a bound is not finite, or low is not below high.

    Examples
    --------
    >>> speed = Number("speed", 0, 130, optional=True)
    >>> speed
    OptionalNumber(name='speed', low=0.0, high=130.0)
    >>> speed.joined([np.array([[32.5], [200.0], [np.nan]])])
    array([[0.25],
           [1.  ],
           [2.  ]])
    """

    name: str
    low: float
    high: float

    labels = ("-", "+", "missing")
    feature_labels = ()
    optional = True
    rounds = True
    missing = "missing"
    missing_input = 2.0
    invalid = "unreadable"
    declared_as = "low, high and optional = true"
    plan_format = PLAN_FORMAT_2
    replacement = "'missing'"

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", self._number.low)
        object.__setattr__(self, "high", self._number.high)

    @cached_property
    def _number(self) -> Number:
        return Number(self.name, self.low, self.high)

    @classmethod
    def from_shorthand(cls, name: str, given: Any, size: int) -> None:
        return None

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> "OptionalNumber | None":
        if table.keys() != _KEYS or table["optional"] is not True:
            return None
        return cls(name, table["low"], table["high"])

    @classmethod
    def is_entry(cls, options: Mapping[str, Any]) -> bool:
        return (
            options.keys() == _KEYS
            and options["optional"] is True
            and all(type(options[key]) in (int, float) for key in ("low", "high"))
        )

    def options(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "optional": True}

    @property
    def domain(self) -> str:
        """The bounds, for display."""
        return f"{self._number.domain}, or missing"

    def joined(self, values: list[Floats]) -> Floats:
        return np.where(np.isnan(values[0]), 2.0, self._number.positions(values[0]))

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
        return MeanOfSome.of((self.low, self.high), numbers)

    def described(self, place: int) -> tuple[str, tuple[float, float]]:
        if place == 0:
            return self.name, (self.low, self.high)
        return f"share with {self.name}", (0.0, 1.0)

    def within(self, groups: tuple[str, ...], numbers: Numbers) -> Result:
        return GroupMeans.of(groups, len(self.letters), (self.low, self.high), numbers)

    def sums_within(self, groups: Values, number: int, positions: Floats) -> tuple[Values, Values]:
        return self._number.sums_within(groups, number, positions)

    def sums(self, values: Values) -> tuple[Values, Any]:
        positions = self.positions(values)[:, 0]
        return self.sums_within(np.zeros(len(values), np.int64), 1, positions)

    def known(self, values: Values) -> Any:
        return ((values >= 0) & (values <= 1)) | (values == self.missing_input)

    def compact(self, values: Floats) -> Values:
        return self.positions(values[:, 0]).astype(np.float32)

    def check_column(self, column: Values) -> None:
        if column.dtype.kind not in "iuf" or not self.known(column).all():
            raise DomainError(f"column {self.name!r} must hold positions from 0 to 1, or 2.")

    def summary(self, values: Values) -> dict[str, Any]:
        (total, present), (_, number) = self.sums(values)
        return {"mean": float(total / max(present, 1)), "missing": float(1 - present / number)}

    def typical(self, summary: Mapping[str, Any]) -> str:
        return f"{summary['mean']:.4g}"

    def to_features(self, values: Values) -> Floats:
        positions = self.positions(values)
        return np.where(positions > 1, 0.0, 2 * positions - 1)

    def from_features(self, numbers: Any) -> Any:
        return self._number.from_features(numbers)
