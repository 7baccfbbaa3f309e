"""Numbers between public bounds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy.typing as npt

from fedldp._internal import validation
from fedldp._internal.validation import Floats, checked_text, is_real
from fedldp.errors import DomainError
from fedldp.schema.attributes.base import Attribute, finite
from fedldp.schema.attributes.estimands import NumberMean
from fedldp.schema.attributes.inputs import NumberInputs
from fedldp.schema.attributes.readers import NumberReader
from fedldp.vehicle import MOST_COORDINATES, RANDOM

__all__ = ["Number"]

_KEYS = {"low", "high", "missing", "size"}
_VECTOR_KEYS = {*_KEYS, "length"}


@final
@dataclass(frozen=True)
class Number(Attribute):
    """A number between public bounds, or a vector of them; a value outside counts as the bound.

    Parameters
    ----------
    name
        The name of the attribute.
    low, high
        The public bounds.
    missing
        The public value that a vehicle uses if its own is missing or unreadable. By default it is
        the center of the bounds.
    size
        How many numbers the attribute has: more than 1 for a vector.
    length
        A public bound on the length of a vector: the root of the sum of its squares. A longer
        vector is shortened to this length. `low` must then be -length and `high` length.
    constant
        Whether the value of a vehicle never changes. See `Attribute`.
    rule
        How several rows of a vehicle become one value. See `Attribute`.
    unit
        What a value means to people. See `Attribute`.

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
    missing: float = None  # type: ignore[assignment]  # the center
    size: int = 1
    length: float | None = None
    constant: bool = field(default=False, kw_only=True)
    rule: str = field(default=RANDOM, kw_only=True)
    unit: str = field(default="", kw_only=True, compare=False)

    reads_floats = True
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
        width = self.high - self.low
        if not (width < math.inf and 2 / width < math.inf):
            raise DomainError(
                f"the distance from low to high of {self.name!r} is too large, or too small, for "
                f"a float; got {self.low!r} and {self.high!r}."
            )
        missing = (
            self.low / 2 + self.high / 2
            if self.missing is None
            else finite(self.name, "missing", self.missing)
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
        if "length" in table and table.keys() <= _VECTOR_KEYS and is_real(table["length"]):
            return cls(name, **{"low": -table["length"], "high": table["length"], **table})
        return cls(name, **table) if {"low", "high"} <= table.keys() <= _KEYS else None

    def options(self) -> dict[str, Any]:
        keys = ["low", "high", "missing", "size", *(["length"] if self.length is not None else [])]
        return {key: getattr(self, key) for key in keys}

    @property
    def domain(self) -> str:
        """The bounds, for display."""
        size = f", {self.size:,} numbers" if self.size > 1 else ""
        return f"{self.low:g} to {self.high:g}{size}"

    @property
    def readers(self) -> tuple[NumberReader, ...]:
        """What reads its column."""
        missing, bounds = f"{self.missing:.10g}", (self.low, self.high)
        return (NumberReader(self.name, missing, bounds, self.size, self.length),)

    @cached_property
    def inputs(self) -> NumberInputs:
        """What a coder takes: numbers in [-1, 1]."""
        return NumberInputs(self.low, self.high, self.missing, self.size, self.length)

    @property
    def estimand(self) -> NumberMean:
        """What is estimated: the mean."""
        return NumberMean(self.name, self.inputs)

    @property
    def centre(self) -> float:
        """The middle between the bounds, which becomes 0."""
        return self.inputs.centre

    @property
    def scale(self) -> float:
        """The factor of a distance from the center."""
        return self.inputs.scale

    @property
    def half_width(self) -> float:
        """The distance from the center to a bound, which becomes 1."""
        return self.estimand.half_width

    def to_unit(self, values: npt.ArrayLike) -> Floats:
        """Scale values to [-1, 1] and clip them.

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
        return self.inputs.of(values)

    def from_unit(self, mean: Any) -> Any:
        """Convert numbers in [-1, 1] to the attribute's own units.

        Parameters
        ----------
        mean
            A number or an array.

        Returns
        -------
        float or array
            Numbers in the attribute's own units.

        Examples
        --------
        >>> Number("age", 0, 100).from_unit(0.1)
        55.0
        """
        return self.estimand.from_unit(mean)
