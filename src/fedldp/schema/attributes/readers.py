"""Readers: how the cells of one column become values, and what the owner is told about them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from fedldp._internal.validation import Floats
from fedldp.schema.frames import Cells, is_missing, is_missing_number, numbers, shown

_CLIP_TOLERANCE = 1e-6  # relative to the range


class Reader(ABC):
    """How the cells of one column become values: floats, with NaN for what cannot be used.

    Attributes
    ----------
    name
        The name of the column.
    size
        How many values a cell holds.
    replacement
        The public value that replaces an unusable one, in words.
    optional
        Whether a missing value is an answer like others, and not replaced.
    invalid
        What an unusable value is called if it is not missing: "unreadable" or "unknown".
    """

    name: str
    size: int
    replacement: str
    optional: bool
    invalid: ClassVar[str]

    @property
    @abstractmethod
    def limits(self) -> str:
        """What values are clipped to, in words; empty if they are not clipped."""

    @abstractmethod
    def read(self, cells: Cells) -> Floats:
        """Return a value for each cell; NaN if the cell is missing, unreadable or unknown."""

    @abstractmethod
    def is_missing(self, cell: object) -> bool:
        """Return whether a cell without a value is missing, and not unreadable or unknown."""

    @abstractmethod
    def expected(self, cell: object, is_entry: bool) -> str:
        """Return what was expected instead of a cell, or of an entry of it."""

    @abstractmethod
    def clipped(self, values: Floats, least: float, most: float) -> int:
        """Return how many values will be clipped, given the smallest and the largest of them."""

    def fault(self, cell: object, is_entry: bool = True) -> str:
        """Return why a cell, or an entry of it, has no value."""
        if self.is_missing(cell):
            return "the value is missing"
        return f"{shown(cell)} is not {self.expected(cell, is_entry)}"


@final
@dataclass(frozen=True)
class NumberReader(Reader):
    """Reads numbers, or lists of them.

    Without bounds, as on a circle, infinity is not a number, and nothing is clipped.

    >>> reader = NumberReader("age", "50", bounds=(0.0, 100.0))
    >>> reader.read([31, "54", None]), reader.clipped(np.array([[31.0], [130.0]]), 31.0, 130.0)
    (array([31., 54., nan]), 1)
    """

    name: str
    replacement: str
    bounds: tuple[float, float] | None = None
    size: int = 1
    length: float | None = None
    optional: bool = False

    invalid = "unreadable"

    @property
    def limits(self) -> str:
        if self.length is not None:
            return f"a length of {self.length:.10g}"
        return f"[{self.bounds[0]:.10g}, {self.bounds[1]:.10g}]" if self.bounds else ""

    def read(self, cells: Cells) -> Floats:
        values = numbers(cells)
        return values if self.bounds else np.where(np.isinf(values), np.nan, values)

    def is_missing(self, cell: object) -> bool:
        return is_missing_number(cell)

    def expected(self, cell: object, is_entry: bool) -> str:
        return "a number" if is_entry or self.size == 1 else f"a list of {self.size} numbers"

    def clipped(self, values: Floats, least: float, most: float) -> int:
        if self.length is not None:
            with np.errstate(over="ignore"):
                lengths = np.sqrt(np.nansum((values / self.length) ** 2, axis=1))
            return int(np.count_nonzero(lengths > 1 + _CLIP_TOLERANCE) * values.shape[1])
        if self.bounds is None:
            return 0
        tolerance = _CLIP_TOLERANCE * (self.bounds[1] - self.bounds[0])
        low, high = self.bounds[0] - tolerance, self.bounds[1] + tolerance
        if least >= low and most <= high:  # not if one of them is NaN
            return 0
        return int(np.count_nonzero((values < low) | (values > high)))


@final
@dataclass(frozen=True)
class LabelReader(Reader):
    """Reads labels: one function returns their codes, another says what was expected instead."""

    name: str
    replacement: str
    codes: Callable[[Cells], Floats]
    expectation: Callable[[object], str]
    optional: bool = False

    size: ClassVar[int] = 1  # type: ignore[misc]
    invalid = "unknown"
    limits = ""

    def read(self, cells: Cells) -> Floats:
        return self.codes(cells)

    def is_missing(self, cell: object) -> bool:
        return is_missing(cell)

    def expected(self, cell: object, is_entry: bool) -> str:
        return self.expectation(cell)

    def clipped(self, values: Floats, least: float, most: float) -> int:
        return 0
