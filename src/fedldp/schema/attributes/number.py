"""Numbers between public bounds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp._internal import validation
from fedldp._internal.validation import Floats, checked_text, is_real
from fedldp._internal.vectors import scaled, shortened
from fedldp.errors import DomainError
from fedldp.schema.attributes.base import Measured, Values, finite
from fedldp.schema.attributes.results import Mean, Numbers, Result
from fedldp.schema.frames import Cells, is_missing_number, numbers
from fedldp.vehicle import MOST_COORDINATES

__all__ = ["Number"]

_KEYS = {"low", "high", "missing", "size"}
_VECTOR = {*_KEYS, "length"}
_SLACK = 1e-6  # of the range: a value that is closer to a bound is not counted as clipped
_FINE = 1e-5  # the coarsest spacing of 32-bit numbers, on the scale of [-1, 1]


@final
@dataclass(frozen=True)
class Number(Measured):
    """A number between public bounds, or a vector of them; a value outside counts as the bound.

    Parameters
    ----------
    name
        The name of the attribute.
    low, high
        The public bounds.
    missing
        The public value that a vehicle uses if its own is missing or unreadable. By default it is
        the centre of the bounds.
    size
        How many numbers the attribute has: more than 1 for a vector.
    length
        A public bound on the length of a vector: the root of the sum of its squares. A longer
        vector is shortened to this length. `low` must then be -length and `high` length.
    constant
        Whether the value of a vehicle never changes. See `Attribute`.

    Raises
    ------
    DomainError
        If a bound is not finite, low is not below high, or `missing` lies outside the bounds.

    Examples
    --------
    >>> age = Number("age", 0, 100)
    >>> age.to_unit([25.0, 130.0, float("nan")])
    array([-0.5,  1. ,  0. ])
    >>> age.from_unit(0.1)
    55.0
    """

    name: str
    low: float
    high: float
    missing: float = None  # type: ignore[assignment]  # the centre
    size: int = 1
    length: float | None = None
    constant: bool = field(default=False, kw_only=True)

    reads_floats = True
    invalid = "unreadable"
    declared_as = "low and high, or a length (both with an optional missing and size)"

    def __post_init__(self) -> None:
        checked_text(self.name, "an attribute's name")
        for bound in ("low", "high"):
            object.__setattr__(self, bound, finite(self.name, bound, getattr(self, bound)))
        if not self.low < self.high:
            raise DomainError(
                f"low of {self.name!r} must be below high; got {self.low!r} and {self.high!r}. "
                "Did you swap them?"
            )
        if not (self.high - self.low < math.inf and self.scale < math.inf):
            raise DomainError(
                f"the distance from low to high of {self.name!r} is too large, or too small, for "
                f"a float; got {self.low!r} and {self.high!r}."
            )
        missing = (
            self.centre if self.missing is None else finite(self.name, "missing", self.missing)
        )
        if not self.low <= missing <= self.high:
            raise DomainError(
                f"missing of {self.name!r} must lie between {self.low!r} and {self.high!r}; "
                f"got {missing!r}."
            )
        object.__setattr__(self, "missing", missing)
        object.__setattr__(self, "size", validation.whole(self.size, f"size of {self.name!r}"))
        if not 1 <= self.size <= MOST_COORDINATES:
            raise DomainError(
                f"size of {self.name!r} must be from 1 to {MOST_COORDINATES}; got {self.size}."
            )
        if self.length is not None:
            object.__setattr__(self, "length", finite(self.name, "length", self.length))
            if (self.low, self.high) != (-self.length, self.length):
                raise DomainError(
                    f"{self.name!r} has a bound on its length, {self.length!r}: low must be "
                    f"{-self.length!r} and high {self.length!r}; got {self.low!r} and "
                    f"{self.high!r}. Leave them out, as in Schema.vector(d, length=1.0)."
                )

    def __repr__(self) -> str:
        length = [] if self.length is None else ["length"]
        return self._shown(["name", "low", "high", "missing", "size", *length])

    @classmethod
    def from_shorthand(cls, name: str, given: Any, size: int) -> "Number | None":
        if isinstance(given, tuple) and len(given) == 2 and all(map(is_real, given)):
            return cls(name, given[0], given[1], size=size)
        return None

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> "Number | None":
        if "length" in table and table.keys() <= _VECTOR and is_real(table["length"]):
            return cls(name, **{"low": -table["length"], "high": table["length"], **table})
        return cls(name, **table) if {"low", "high"} <= table.keys() <= _KEYS else None

    @classmethod
    def is_entry(cls, options: Mapping[str, Any]) -> bool:
        known = options.keys() in (_KEYS, _VECTOR)
        return known and all(type(value) in (int, float) for value in options.values())

    def options(self) -> dict[str, Any]:
        keys = ["low", "high", "missing", "size", *(["length"] if self.length is not None else [])]
        return {key: getattr(self, key) for key in keys}

    @property
    def domain(self) -> str:
        """The bounds, for display."""
        size = f", {self.size:,} numbers" if self.size > 1 else ""
        return f"{self.low:g} to {self.high:g}{size}"

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds: a mean lies between them."""
        return self.low, self.high

    @property
    def missing_input(self) -> float:
        """The input of a missing value."""
        return min(max((self.missing - self.centre) * self.scale, -1.0), 1.0)

    @property
    def centre(self) -> float:  # type: ignore[override]
        """The middle between the bounds, which becomes 0."""
        return self.low / 2 + self.high / 2

    @property
    def scale(self) -> float:  # type: ignore[override]
        """The factor of a distance from the centre."""
        width = self.high - self.low
        return 2 / width if width else math.inf

    @property
    def half_width(self) -> float:  # type: ignore[override]
        """The distance from the centre to a bound, which becomes 1."""
        return self.high / 2 - self.low / 2

    def to_unit(self, values: npt.ArrayLike) -> Floats:
        """Scale values to [-1, 1] and clip them.

        The work is the same for every value, also for a missing one.

        Parameters
        ----------
        values
            Numbers in the attribute's own units. NaN becomes what `missing` becomes. Rows of a
            vector with a bound on its length are clipped to that length.

        Returns
        -------
        array of float
            Numbers in [-1, 1].

        Examples
        --------
        >>> Number("age", 0, 100).to_unit([25.0, 130.0, float("nan")])
        array([-0.5,  1. ,  0. ])
        """
        units = np.array(values, np.float64)
        if self.length is not None and units.ndim and units.shape[-1] == self.size:
            with np.errstate(over="ignore"):
                return shortened(units * self.scale, self.missing_input)
        return scaled(units, self.centre, self.scale, self.missing_input)

    def to_inputs(self, values: Values) -> Floats:
        return self.to_unit(values)

    def result(self, numbers: Numbers) -> Result:
        return Mean.of(numbers.first if self.size == 1 else numbers)

    def read(self, cells: Cells) -> Floats:
        return numbers(cells)

    def is_missing(self, cell: object) -> bool:
        return is_missing_number(cell)

    def _expected(self, cell: object, is_entry: bool) -> str:
        return "a number" if is_entry or self.size == 1 else f"a list of {self.size} numbers"

    @property
    def limits(self) -> str:
        """What values are clipped to, in words."""
        if self.length is not None:
            return f"a length of {self.length:.10g}"
        return f"[{self.low:.10g}, {self.high:.10g}]"

    @property
    def replacement(self) -> str:
        """The public value that replaces an unusable one, in words."""
        return f"{self.missing:.10g}"

    def clipped(self, values: Floats, least: float, most: float) -> int:
        if self.length is not None:
            with np.errstate(over="ignore"):
                lengths = np.sqrt(np.nansum((values / self.length) ** 2, axis=1))
            return int(np.count_nonzero(lengths > 1 + _SLACK) * values.shape[1])
        slack = _SLACK * (self.high - self.low)
        low, high = self.low - slack, self.high + slack
        if least >= low and most <= high:  # not if one of them is NaN
            return 0
        return int(np.count_nonzero((values < low) | (values > high)))

    def known(self, values: Values) -> npt.NDArray[np.bool_]:
        return ~np.isnan(values)

    def compact(self, values: Floats) -> Values:
        within = np.clip(values, self.low, self.high)
        found = np.where(np.isnan(within), self.missing, within)
        step = np.spacing(np.float32(max(abs(self.low), abs(self.high))))
        if step * self.scale < _FINE:
            found = found.astype(np.float32)
        return found[:, 0] if self.size == 1 else found

    def check_column(self, column: Values) -> None:
        if column.dtype.kind not in "iuf" or not self.known(column).all():
            raise DomainError(f"column {self.name!r} must hold numbers, none of them NaN.")

    def summary(self, values: Values) -> dict[str, Any]:
        outside = (values < self.low) | (values > self.high)
        return {"mean": float(values.mean()), "outside": float(outside.mean())}

    def typical(self, summary: Mapping[str, Any]) -> str:
        return f"{summary['mean']:.4g}"
