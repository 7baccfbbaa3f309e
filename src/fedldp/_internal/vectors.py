"""Vectors with a public bound on their length: one for each row, dense or mostly zeros."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from fedldp._internal.validation import Floats, Integers

_LARGEST = 1e100  # larger coordinates become this; its square is still finite


@final
@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of numbers, most of them zero: the number of the others, their columns and values.

    A column occurs at most once in a row. Time and memory depend on the number of nonzero numbers,
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

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def starts(self) -> Integers:
        """Where the numbers of each row begin, and where those of the last row end."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @cached_property
    def lengths(self) -> Floats:
        """The length of each row."""
        rows = np.repeat(np.arange(len(self)), self.counts)
        return np.sqrt(np.bincount(rows, self.numbers**2, minlength=len(self)))

    def __getitem__(self, part: slice) -> "SparseRows":
        start, stop, _ = part.indices(len(self))
        own = slice(self.starts[start], self.starts[stop])
        return SparseRows(self.counts[part], self.columns[own], self.numbers[own])

    def dense(self, width: int) -> Floats:
        """Return a matrix with these rows."""
        matrix = np.zeros((len(self), width))
        matrix[np.repeat(np.arange(len(self)), self.counts), self.columns] = self.numbers
        return matrix


def shortened(rows: Floats, missing: float) -> Floats:
    """Scale rows that are longer than 1 to the length 1, in place; NaN becomes `missing`."""
    _make_finite(rows, missing)
    lengths = np.sqrt(np.einsum("...i,...i->...", rows, rows))
    rows /= np.maximum(lengths, 1.0)[..., None]
    return rows


def shortened_sparse(rows: SparseRows, missing: float) -> SparseRows:
    """Return what `shortened` does, for rows that are mostly zeros."""
    numbers = rows.numbers.copy()
    _make_finite(numbers, missing)
    rows = replace(rows, numbers=numbers)
    return replace(rows, numbers=numbers / np.repeat(np.maximum(rows.lengths, 1.0), rows.counts))


def _make_finite(numbers: Floats, missing: float) -> None:
    np.clip(numbers, -_LARGEST, _LARGEST, out=numbers)
    np.copyto(numbers, missing, where=numbers != numbers)
