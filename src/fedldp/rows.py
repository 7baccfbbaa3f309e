"""Rows of values as one matrix of numbers, whatever holds the data.

The matrix is of float64, with a row for each vehicle and a column for each coordinate. A number
stands as it is, a category as its code, and what is missing, unreadable or unknown is NaN. No cell
is ever refused here, because on a vehicle the data may not decide whether a report goes out;
`Rows.check` refuses for those who own a whole data set.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fedldp import frames
from fedldp.attributes import Category, Number, checked_text
from fedldp.checks import Floats
from fedldp.errors import DomainError
from fedldp.frames import REAL, Cells, is_missing, numbers, shown

_LOOKED_AT = 1000  # cells of a column, to tell whether it holds numbers


class Rows:
    """The rows of a data set, of which `matrix` reads a range. Made by `Schema.rows`.

    >>> from fedldp.schema import Schema
    >>> schema = Schema.of(age=(0, 100), city=["Oslo", "Paris"])
    >>> rows = schema.rows([{"age": 31, "city": "Paris"}, {"age": "54", "city": "Pari"}])
    >>> matrix = rows.matrix(0, len(rows))
    >>> matrix
    array([[31.,  1.],
           [54., nan]])
    >>> rows.check(matrix)
    Traceback (most recent call last):
    fedldp.errors.DomainError: row 1 (the first is 0), column 'city': 'Pari' is none of the 2
    categories (did you mean 'Paris'?). Correct or drop the row, or write 'Oslo' there.
    """

    def __init__(
        self, attributes: Sequence[Number | Category], data: Any, first_row: int = 0
    ) -> None:
        self._attributes = attributes
        self._first_row = first_row
        ends = np.cumsum([attribute.size for attribute in attributes]).tolist()
        self._slices = [slice(*pair) for pair in pairwise([0, *ends])]
        self._data: npt.NDArray[Any] | frames.Table
        if isinstance(data, np.ndarray):
            self._data = self._checked_array(data, ends[-1])
        else:
            self._data = self._checked_table(frames.table(data))

    def _checked_array(self, data: npt.NDArray[Any], dimensions: int) -> npt.NDArray[Any]:
        array = frames.plain(data)
        array = array[:, None] if array.ndim == 1 and dimensions == 1 else array
        if array.ndim != 2 or array.shape[1] != dimensions or array.dtype.kind == "V":
            names = ", ".join(attribute.name for attribute in self._attributes)
            raise DomainError(
                f"an array must have {dimensions} columns, in the order of the schema "
                f"({names:.200}); got shape {data.shape} of {data.dtype}."
            )
        return array

    def _checked_table(self, table: frames.Table) -> frames.Table:
        if isinstance(table, frames.Dicts):
            return table  # a dict may lack any key: that is data
        for attribute in self._attributes:
            if attribute.name not in table.names:
                raise DomainError(
                    f"the data have no column {attribute.name!r}; they have "
                    f"{list(table.names)!r:.500}. The names must be those of the schema."
                )
        return table

    def __len__(self) -> int:
        return len(self._data)

    def matrix(self, start: int = 0, stop: int | None = None) -> Floats:
        """Return a C-contiguous row of coordinates for each row from start to stop.

        It is a view of the data, where they are such an array already: do not write to it.
        """
        start, stop, _ = slice(start, stop).indices(len(self))
        stop = max(start, stop)
        data = self._data
        if isinstance(data, np.ndarray) and data.dtype.kind in REAL and self._numbers_only:
            with np.errstate(over="ignore"):  # what is too large for float64 becomes infinite
                return np.ascontiguousarray(data[start:stop], np.float64)
        matrix = np.empty((stop - start, self._slices[-1].stop))
        for attribute, columns in zip(self._attributes, self._slices, strict=True):
            matrix[:, columns] = _read(attribute, self._cells(attribute, columns, start, stop))
        return matrix

    @cached_property
    def _numbers_only(self) -> bool:
        return all(isinstance(attribute, Number) for attribute in self._attributes)

    def _cells(self, attribute: Number | Category, columns: slice, start: int, stop: int) -> Cells:
        if isinstance(self._data, np.ndarray):
            return self._data[start:stop, columns]
        return self._data.cells(attribute.name, start, stop)

    def check(self, matrix: Floats, start: int = 0) -> None:
        """Refuse a matrix, read from row `start` on, that has NaN; say where, and what was there.

        This is for tools of those who own the data set, never for a vehicle. Numbers outside the
        bounds are not refused: they are clipped.
        """
        bad = np.isnan(matrix)
        if not bad.any():
            return
        row, coordinate = divmod(int(bad.argmax()), matrix.shape[1])
        number = next(i for i, columns in enumerate(self._slices) if coordinate < columns.stop)
        attribute, columns = self._attributes[number], self._slices[number]
        value = self._cells(attribute, columns, start + row, start + row + 1)[0]
        place, is_entry = repr(attribute.name), _is_vector(value, attribute.size)
        if is_entry:
            value = value[coordinate - columns.start]
            place += f"[{coordinate - columns.start}]" if attribute.size > 1 else ""
        raise DomainError(
            f"row {self._first_row + start + row} (the first is 0), column {place}: "
            f"{_fault(attribute, value, is_entry)}. "
            f"Correct or drop the row, or write {attribute.missing!r} there."
        )


def kinds(data: Any) -> dict[str, int | None]:
    """Return for each column how many numbers it has in a cell, or None if it holds categories.

    >>> kinds({"age": [31, None], "city": ["Rome", "Oslo"], "at": [(59.9, 10.7), (41.9, 12.5)]})
    {'age': 1, 'city': None, 'at': 2}
    """
    if isinstance(data, np.ndarray):
        raise DomainError("an array has no names: use Schema.of(...) or Schema.vector(d, bound).")
    table = frames.table(data)
    for name in table.names:
        checked_text(name, "the name of a column")
    return {name: _size(table.cells(name, 0, _LOOKED_AT)) for name in table.names}


def _size(cells: Cells) -> int | None:
    if isinstance(cells, np.ndarray) and cells.ndim > 1:
        return int(cells.shape[1])
    present = [cell for cell in cells if not is_missing(cell)]
    if present and all(isinstance(cell, list | tuple | np.ndarray) for cell in present):
        return len(present[0])
    if any(isinstance(cell, bool | np.bool_) for cell in present):
        return None
    return None if np.isnan(numbers(present)).any() else 1


def _read(attribute: Number | Category, cells: Cells) -> Floats:
    """Return a row for each cell, with the coordinates of the attribute."""
    size = attribute.size
    if isinstance(cells, np.ndarray) and cells.ndim > 1:
        if cells.shape[1:] != (size,):
            raise DomainError(
                f"column {attribute.name!r} must have the shape (rows, {size}); got {cells.shape}."
            )
        return attribute.read(cells.reshape(-1)).reshape(-1, size)
    if size == 1:
        return attribute.read(cells)[:, None]
    rows = np.full((len(cells), size), np.nan)
    for row, cell in zip(rows, cells, strict=True):
        if _is_vector(cell, size):
            row[:] = attribute.read(cell)
    return rows


def _is_vector(cell: Any, size: int) -> bool:
    if isinstance(cell, np.ndarray):
        return bool(cell.shape == (size,))
    return isinstance(cell, list | tuple) and len(cell) == size


def _fault(attribute: Number | Category, value: Any, is_entry: bool) -> str:
    """Say why a value is read as NaN."""
    if is_missing(value):
        return "the value is missing"
    if isinstance(attribute, Number):
        whole = attribute.size == 1 or is_entry
        return f"{shown(value)} is no {'number' if whole else f'list of {attribute.size} numbers'}"
    near = get_close_matches(value, attribute.categories, n=1) if isinstance(value, str) else []
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{shown(value)} is none of the {len(attribute.categories)} categories{hint}"
