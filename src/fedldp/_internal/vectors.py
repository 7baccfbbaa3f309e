"""Numbers scaled to public bounds, and vectors to a public length, wherever they are."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal.validation import Floats, Integers

_LARGEST_COORDINATE = vehicle.LARGEST_COORDINATE

_TINY = 2.0**-40

_MOSTLY = 0.9  # of the numbers of a matrix: so many are faster to use than to choose from

_SQUARES_AT_ONCE = 1 << 16

_silently = partial(np.errstate, over="ignore", invalid="ignore")


class Vectors(ABC):
    """Rows of numbers of one width: in memory, dense or mostly zeros, or on another device."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, part: slice) -> Self: ...

    @property
    @abstractmethod
    def lengths(self) -> Floats:
        """The length of each row."""

    @abstractmethod
    def fits(self, width: int) -> bool:
        """Return whether these can be rows of `width` numbers."""

    @abstractmethod
    def sums(self, parts: int, width: int) -> Floats:
        """Return the sum of the rows of each of some parts of equal size."""

    @abstractmethod
    def shortened(self, scale: float, missing: float) -> "Vectors":
        """Return the rows times a scale, those that are longer than 1 then scaled to the length 1.

        Numbers that are NaN become `missing` before that.
        """

    @abstractmethod
    def rounded(self, unit: int, *, zeros: bool = False) -> "Vectors":
        """Return the rows times a unit, with each number rounded to a whole number.

        Zeros may be left out, which saves time. With `zeros` they are kept like other numbers, so
        that the time that the rows take later does not depend on what the numbers are.
        """

    @abstractmethod
    def where(self, chosen: npt.NDArray[np.bool_]) -> Self:
        """Return some of the rows."""

    def nearby(self, codebook: Any) -> Any:
        """Return a codebook that works where the rows are: that of NumPy, as it is."""
        return codebook


@final
@dataclass(frozen=True, eq=False)
class DenseRows(Vectors):
    """Rows of a matrix.

    >>> rows = DenseRows(np.array([[3.0, 4.0], [0.3, np.nan]])).shortened(1.0, missing=0.4)
    >>> rows.matrix, rows.lengths
    (array([[0.6, 0.8],
           [0.3, 0.4]]), array([1. , 0.5]))
    """

    matrix: Floats

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, part: slice) -> "DenseRows":
        return DenseRows(self.matrix[part])

    @property
    def lengths(self) -> Floats:
        lengths: Floats = np.sqrt(np.einsum("ij,ij->i", self.matrix, self.matrix))
        return lengths

    def fits(self, width: int) -> bool:
        return self.matrix.ndim == 2 and self.matrix.shape[1] == width

    def sums(self, parts: int, width: int) -> Floats:
        sums: Floats = self.matrix.reshape(parts, -1, width).sum(axis=1)
        return sums

    def shortened(self, scale: float, missing: float) -> "DenseRows":
        with _silently():
            return DenseRows(shortened(self.matrix * scale, missing))

    def rounded(self, unit: int, *, zeros: bool = False) -> "SparseRows":
        matrix = np.rint(self.matrix * unit)
        mostly = zeros or np.count_nonzero(matrix) > _MOSTLY * matrix.size
        return (SparseRows.every if mostly else SparseRows.of)(matrix)

    def where(self, chosen: npt.NDArray[np.bool_]) -> "DenseRows":
        return DenseRows(self.matrix[chosen])


@final
@dataclass(frozen=True, eq=False)
class SparseRows(Vectors):
    """Rows of numbers, most of them zero: how many are written out, their columns and values.

    Zeros may be written out as well, even in a column that occurs earlier in the row; apart from
    that, a column occurs at most once. Time and memory depend on how many numbers are written out,
    not on the width of the rows.

    >>> rows = SparseRows.of(np.array([[0.0, 0.6, 0.8], [0.0, 0.0, 0.0], [0.5, 0.0, 0.0]]))
    >>> rows.counts, rows.columns, rows.numbers
    (array([2, 0, 1]), array([1, 2, 0]), array([0.6, 0.8, 0.5]))
    >>> rows.lengths
    array([1. , 0. , 0.5])
    >>> rows.dense(3)[0]
    array([0. , 0.6, 0.8])
    """

    counts: Integers
    columns: Integers
    numbers: Floats

    @classmethod
    def of(cls, matrix: Floats) -> "SparseRows":
        """Return the nonzero numbers of the rows of a matrix."""
        rows, columns = np.nonzero(matrix)
        return cls(np.bincount(rows, minlength=len(matrix)), columns, matrix[rows, columns])

    @classmethod
    def every(cls, matrix: Floats) -> "SparseRows":
        """Return all numbers of the rows of a matrix, with the zeros."""
        rows, width = matrix.shape
        return cls(np.full(rows, width), np.tile(np.arange(width), rows), matrix.reshape(-1))

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def starts(self) -> Integers:
        """Where the numbers of each row begin, and where those of the last row end."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @cached_property
    def lengths(self) -> Floats:
        return np.sqrt(np.bincount(self._rows, self.numbers**2, minlength=len(self)))

    @property
    def _rows(self) -> Integers:
        """The row of each number."""
        return np.repeat(np.arange(len(self)), self.counts)

    def __getitem__(self, part: slice) -> "SparseRows":
        start, stop, _ = part.indices(len(self))
        own = slice(self.starts[start], self.starts[stop])
        return SparseRows(self.counts[part], self.columns[own], self.numbers[own])

    def where(self, chosen: npt.NDArray[np.bool_]) -> "SparseRows":
        own = np.repeat(chosen, self.counts)
        return SparseRows(self.counts[chosen], self.columns[own], self.numbers[own])

    def dense(self, width: int) -> Floats:
        """Return a matrix with these rows."""
        return self.sums(len(self), width)

    def fits(self, width: int) -> bool:
        columns = self.columns
        return not columns.size or bool(0 <= columns.min() <= columns.max() < width)

    def sums(self, parts: int, width: int) -> Floats:
        places = self._rows * parts // len(self) * width + self.columns
        sums: Any = np.bincount(places, self.numbers, parts * width)
        return np.asarray(sums, np.float64).reshape(parts, width)

    def shortened(self, scale: float, missing: float) -> "SparseRows":
        with _silently():
            numbers = self.numbers * scale
            _make_finite(numbers, missing)
        scaled = SparseRows(self.counts, self.columns, numbers)
        numbers /= np.repeat(np.maximum(scaled.lengths, 1.0), self.counts)
        return SparseRows(self.counts, self.columns, numbers)

    def rounded(self, unit: int, *, zeros: bool = False) -> "SparseRows":
        numbers = np.rint(self.numbers * unit)
        if zeros:
            return SparseRows(self.counts, self.columns, numbers)
        kept = numbers != 0
        counts = np.bincount(self._rows[kept], minlength=len(self))
        return SparseRows(counts, self.columns[kept], numbers[kept])


def scale_and_clip(
    values: Floats,
    centre: float | Floats,
    scale: float | Floats,
    missing: float | Floats,
    ends: tuple[float, float] = (-1.0, 1.0),
) -> Floats:
    """Scale values and clip them to the ends, in place; NaN becomes `missing`.

    The work is the same for every value, also for a missing one.

    >>> scale_and_clip(np.array([25.0, 130.0, np.nan]), 50.0, 0.02, 0.0)
    array([-0.5,  1. ,  0. ])
    """
    with np.errstate(over="ignore", invalid="ignore"):
        values -= centre
        values *= scale
    np.clip(values, *ends, out=values)
    np.copyto(values, missing, where=values != values)
    return values


def shortened(rows: Floats, missing: float) -> Floats:
    """Scale rows that are longer than 1 to the length 1, in place; NaN becomes `missing`."""
    _make_finite(rows, missing)
    flat = rows.reshape(-1, rows.shape[-1])
    step = max(1, _SQUARES_AT_ONCE // rows.shape[-1])
    for start in range(0, len(flat), step):
        block = flat[start : start + step]
        # Added from the first square to the last, as on every vehicle: others round otherwise.
        squares = np.add.accumulate(block * block, axis=1)[:, -1]
        block /= np.maximum(np.sqrt(squares), 1.0)[:, None]
    return rows


def _make_finite(numbers: Floats, missing: float) -> None:
    np.clip(numbers, -_LARGEST_COORDINATE, _LARGEST_COORDINATE, out=numbers)
    np.copyto(numbers, missing, where=numbers != numbers)


def without_tiny(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return values with 0 for tiny ones, so that no time depends on them.

    Many processors take a hundred times as long for numbers below 2^-126, the least normal one in
    32 bits, and a model could be made so that they occur for some rows and not for others. What is
    left here is a multiple of 2^-63: a sum of products is 0 or at least 2^-126, however it is
    rounded.

    >>> without_tiny(np.array([1.0, -1e-30, 0.0]))
    array([1., 0., 0.])
    """
    return np.where(np.abs(values) < _TINY, values.dtype.type(0), values)
