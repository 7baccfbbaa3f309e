"""Rows of values as one matrix of numbers, for all kinds of data.

The matrix is of float64, with a row for each vehicle and a column for each coordinate. It contains
numbers as they are, categories as their codes, and NaN for values that are missing, unreadable or
unknown. No cell is ever refused here, because on a vehicle the data must not decide whether a
report is sent; `Rows.read` counts for the owner what will be clipped or replaced.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, Integers, checked_text
from fedldp.errors import DomainError, UnknownName
from fedldp.schema import frames, rules
from fedldp.schema.attributes import Attribute
from fedldp.schema.attributes.readers import Reader
from fedldp.schema.frames import REAL_ARRAY_KINDS, Cells, is_missing, numbers
from fedldp.schema.quality import AttributeQuality, DataQuality, total
from fedldp.schema.units import converted
from fedldp.schema.vehicle_ids import VehicleIds
from fedldp.vehicle import RANDOM

_SNIFFED_CELLS = 1000  # of a column decide whether it holds numbers
_ROWS_AT_ONCE = 1 << 15
_WIDE_LINE_NUMBERS = 1024  # lines that NumPy reduces fast


class Rows:
    """The rows of some data, read in ranges. Made by `Schema.rows`.

    >>> from fedldp.schema.schema import Schema
    >>> schema = Schema.of(age=(0, 100), city=["Oslo", "Paris"])
    >>> rows = schema.rows([{"age": 31, "city": "Paris"}, {"age": "54", "city": "Pari"}])
    >>> matrix = rows.matrix(0, len(rows))
    >>> matrix
    array([[31.,  1.],
           [54., nan]])
    >>> rows.quality()["city"].example
    "row 1: 'Pari' is not one of the 2 categories (did you mean 'Paris'?)"
    """

    def __init__(
        self,
        attributes: Sequence[Attribute],
        data: Any,
        first_row: int = 0,
        several: bool = False,  # of one vehicle, which become one by the rules
    ) -> None:
        self._attributes = attributes
        self._counted = {
            column.name
            for attribute in attributes
            for column in attribute.columns
            if several and column.rule == "count"
        }
        self._first_row = first_row
        ends = np.cumsum([attribute.size for attribute in attributes]).tolist()
        self._slices = [slice(*pair) for pair in pairwise([0, *ends])]
        self._readers = [reader for attribute in attributes for reader in attribute.readers]
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
            return table  # a key may be missing from any dict: that is data
        known = set(table.names)
        for reader in self._readers:
            if not known.issuperset(_columns(reader, table)):
                several = "" if reader.size == 1 else f" of {reader.size} numbers, and not"
                several += several and f" all of {reader.name}[0] to [{reader.size - 1}]"
                raise UnknownName(
                    f"the data have no column {reader.name!r}{several}; they have "
                    f"{list(table.names)!r:.500}. The names must be those of the schema."
                )
        return table

    def __len__(self) -> int:
        return len(self._data)

    def matrix(self, start: int = 0, stop: int | None = None) -> Floats:
        """Return a C-contiguous row of coordinates for each row from start to stop.

        It may be a view of the data: do not write to it.
        """
        start, stop = self._range(start, stop)
        if isinstance(self._data, np.ndarray) and self._is_plain:
            return _floats(self._data[start:stop])
        matrix = np.empty((stop - start, self._slices[-1].stop))
        for attribute, columns in zip(self._attributes, self._slices, strict=True):
            cells = self._cells(attribute, columns, start, stop)
            matrix[:, columns] = attribute.join([_read(*pair) for pair in cells])
        return matrix

    def read(self, start: int = 0, stop: int | None = None) -> tuple[Floats, DataQuality]:
        """Return what `matrix` returns, and what a vehicle clips or replaces in it.

        The quality is for the owner of the data, and never sent.
        """
        start, stop = self._range(start, stop)
        qualities = []
        if isinstance(self._data, np.ndarray) and self._is_plain:
            matrix = _floats(self._data[start:stop])
            least, most = _extremes(matrix)
            for reader, columns in zip(self._readers, self._slices, strict=True):
                values, ends = matrix[:, columns], (least[columns].min(), most[columns].max())
                qualities.append(_quality(reader, values, values, ends, self._first_row + start))
        else:
            matrix = np.empty((stop - start, self._slices[-1].stop))
            for attribute, columns in zip(self._attributes, self._slices, strict=True):
                names = names_of(attribute)
                joined: list[Floats] = []
                for reader, cells in self._cells(attribute, columns, start, stop):
                    values = _read(reader, cells)
                    ends = (values.min(initial=np.inf), values.max(initial=-np.inf))
                    if reader.name in self._counted:  # whatever a cell holds, it counts
                        quality = AttributeQuality(reader.name, len(values))
                    else:
                        quality = _quality(reader, values, cells, ends, self._first_row + start)
                    qualities.append(replace(quality, name=names[len(joined)]))
                    joined.append(values)
                matrix[:, columns] = attribute.join(joined)
        return matrix, DataQuality(len(matrix), tuple(qualities), *self._others(start, stop))

    def unjoined(self, start: int = 0, stop: int | None = None) -> Floats:
        """Return what is read of the columns of attributes with a rule, for `rules`.

        For the rule "count", it is 1 where a cell has a value, and NaN elsewhere.
        """
        start, stop = self._range(start, stop)
        read = [np.empty((stop - start, 0))]
        for attribute, columns in zip(self._attributes, self._slices, strict=True):
            if attribute.rule == RANDOM:
                continue
            cells = self._cells(attribute, columns, start, stop)
            for column, (reader, values) in zip(attribute.columns, cells, strict=True):
                read.append(_present(values) if column.rule == "count" else _read(reader, values))
        return np.concatenate(read, axis=1)

    def one_each(
        self, vehicle_ids: Any, uniform: Callable[[int], Floats]
    ) -> tuple[Floats, DataQuality]:
        """Return a row for each vehicle, in the order of their sorted ids, and the quality.

        `vehicle_ids` has an id for each row, or is the name of their column. `uniform` returns
        random numbers in (0, 1), of which one for each vehicle is drawn.
        """
        ids, column = np.asarray(vehicle_ids), "vehicle_ids"
        if isinstance(vehicle_ids, str):
            column = vehicle_ids
            if isinstance(self._data, np.ndarray) or column not in self._data.names:
                raise DomainError(f"the data have no column {column!r} with vehicle ids.")
            ids = np.asarray(self._data.cells(column, 0, len(self)))
        if ids.dtype.kind not in "biu" and ids.ndim == 1:
            named = VehicleIds(column)
            named.add({column: ids}, 0)
            ids = np.array(named.names())
        if ids.shape != (len(self),):
            raise DomainError(
                f"vehicle_ids must be one id for each of {len(self)} rows; "
                f"got an array of shape {ids.shape}."
            )
        names, owners = np.unique(ids, return_inverse=True)
        places = uniform(len(names))
        unjoined = self.unjoined()
        rows = rules.one_row_each(self._attributes, self.matrix(), unjoined, owners, places)
        return rows, with_counts(self.quality(), self._attributes, unjoined, owners, len(names))

    def quality(self) -> DataQuality:
        """Return what a vehicle clips or replaces in all rows: a dry run."""
        starts = range(0, max(len(self), 1), _ROWS_AT_ONCE)
        return total(self.read(start, start + _ROWS_AT_ONCE)[1] for start in starts)

    def _range(self, start: int, stop: int | None) -> tuple[int, int]:
        start, stop, _ = slice(start, stop).indices(len(self))
        return start, max(start, stop)

    @cached_property
    def _is_plain(self) -> bool:
        """Whether the data are an array of numbers, which is a matrix as it is."""
        is_real = isinstance(self._data, np.ndarray) and self._data.dtype.kind in REAL_ARRAY_KINDS
        return (
            is_real
            and not self._counted
            and all(attribute.reads_floats for attribute in self._attributes)
        )

    def _others(self, start: int, stop: int) -> tuple[dict[str, int], tuple[str, ...]]:
        """Return the keys of dicts and the columns of tables that the schema does not name."""
        if isinstance(self._data, np.ndarray):
            return {}, ()
        if isinstance(self._data, frames.Dicts):
            names = {reader.name for reader in self._readers}
            return self._data.other_keys(names, start, stop), ()
        names = {name for reader in self._readers for name in _columns(reader, self._data)}
        return {}, tuple(name for name in self._data.names if name not in names)

    def _cells(
        self, attribute: Attribute, columns: slice, start: int, stop: int
    ) -> Iterator[tuple[Reader, Cells]]:
        """Yield the readers of an attribute, each with its cells."""
        if isinstance(self._data, np.ndarray):
            if len(attribute.readers) > 1:
                names = " and ".join(repr(reader.name) for reader in attribute.readers)
                raise DomainError(
                    f"{attribute.name!r} is read from the columns {names}: give data whose columns "
                    "have names."
                )
            array = self._data[start:stop, columns]
            yield attribute.readers[0], _converted(array[:, 0], attribute, array)
            return
        for column, reader in zip(attribute.columns, attribute.readers, strict=True):
            cells = [self._data.cells(name, start, stop) for name in _columns(reader, self._data)]
            read = cells[0] if len(cells) == 1 else _beside(cells)
            yield reader, _converted(read, column, read)


def _converted(cells: Cells, column: Attribute, otherwise: Cells) -> Cells:
    """Return cells as numbers and labels; something else if there is nothing to convert."""
    codes, aliases = getattr(column, "codes", {}), getattr(column, "aliases", {})
    read = converted(cells, column.unit, codes, aliases)
    return otherwise if read is cells else read


def _columns(reader: Reader, table: frames.Table) -> list[str]:
    """Return the columns of a table that a reader needs.

    A vector x is one column of lists or, in a file of texts, the columns x[0], x[1] and so on.
    """
    several = reader.size > 1 and not isinstance(table, frames.Dicts)
    if not several or f"{reader.name}[0]" not in table.names:
        return [reader.name]
    return [f"{reader.name}[{place}]" for place in range(reader.size)]


def _beside(columns: Sequence[Cells]) -> npt.NDArray[Any]:
    """Return columns of cells side by side."""
    if all(
        isinstance(each, np.ndarray) and each.dtype.kind in REAL_ARRAY_KINDS for each in columns
    ):
        return np.stack(columns, axis=1)
    found = np.empty((len(columns[0]), len(columns)), object)
    for place, each in enumerate(columns):
        found[:, place] = each
    return found


def names_of(attribute: Attribute) -> list[str]:
    """Return the names by which the quality of an attribute's columns is found."""
    if len(attribute.readers) == 1:
        return [attribute.name]
    return [f"{attribute.name}: {reader.name}" for reader in attribute.readers]


def with_counts(
    quality: DataQuality,
    attributes: Sequence[Attribute],
    unjoined: Floats,
    owners: Integers,
    vehicles: int,
) -> DataQuality:
    """Return a quality in which columns with the rule "count" are about the counts of vehicles.

    >>> from fedldp.schema.schema import Schema
    >>> schema = Schema.of(trips={"low": 0, "high": 2, "rule": "count"})
    >>> rows = schema.rows({"trips": [5, 7, 8, 9]}, several=True)
    >>> owners = np.array([0, 0, 0, 1])
    >>> with_counts(rows.quality(), schema.attributes, rows.unjoined(), owners, 2)["trips"].clipped
    1
    """
    counted: dict[str, AttributeQuality] = {}
    first = 0
    for attribute in attributes:
        if attribute.rule == RANDOM:
            continue
        for name, column in zip(names_of(attribute), attribute.columns, strict=True):
            if column.rule == "count":
                [reader] = column.readers
                present = ~np.isnan(unjoined[:, first])
                values = reader.read(np.bincount(owners[present], minlength=vehicles))
                least, most = values.min(initial=np.inf), values.max(initial=-np.inf)
                counted[name] = AttributeQuality(
                    name,
                    vehicles,
                    clipped=reader.clipped(values, least, most),
                    unknown=0 if reader.optional else int(np.isnan(values).sum()),
                    bounds=reader.limits,
                    replacement=reader.replacement,
                )
            first += column.size
    changed = tuple(counted.get(known.name, known) for known in quality.attributes)
    return replace(quality, attributes=changed)


def kinds(data: Any) -> dict[str, int | None]:
    """Return for each column how many numbers it has in a cell, or None if it holds categories.

    >>> kinds({"age": [31, None], "city": ["Rome", "Oslo"], "at": [(59.9, 10.7), (41.9, 12.5)]})
    {'age': 1, 'city': None, 'at': 2}
    >>> kinds({"age": [31], "at[0]": [59.9], "at[1]": [10.7]})  # a vector, in a file of texts
    {'age': 1, 'at': 2}
    """
    if isinstance(data, np.ndarray):
        raise DomainError("an array has no names: use Schema.of(...) or Schema.vector(d, bound).")
    table = frames.table(data)
    for name in table.names:
        checked_text(name, "the name of a column")
    sizes = {name: _size(table.cells(name, 0, _SNIFFED_CELLS)) for name in table.names}
    for first in [name for name in sizes if name.endswith("[0]")]:
        stem = first.removesuffix("[0]")
        several: list[str] = []
        while sizes.get(name := f"{stem}[{len(several)}]") == 1:
            several.append(name)
        if len(several) > 1 and stem not in sizes:
            sizes = {
                (stem if name == first else name): (len(several) if name == first else size)
                for name, size in sizes.items()
                if name not in several[1:]
            }
    return sizes


def _size(cells: Cells) -> int | None:
    if isinstance(cells, np.ndarray) and cells.ndim > 1:
        return int(cells.shape[1])
    present = [cell for cell in cells if not is_missing(cell)]
    if present and all(isinstance(cell, list | tuple | np.ndarray) for cell in present):
        return len(present[0])
    if any(isinstance(cell, bool | np.bool_) for cell in present):
        return None
    return None if np.isnan(numbers(present)).any() else 1


def _read(reader: Reader, cells: Cells) -> Floats:
    """Return a row for each cell, with the coordinates of the reader."""
    size = reader.size
    if isinstance(cells, np.ndarray) and cells.ndim > 1:
        if cells.shape[1:] != (size,):
            raise DomainError(
                f"column {reader.name!r} must have the shape (rows, {size}); got {cells.shape}."
            )
        return reader.read(cells.reshape(-1)).reshape(-1, size)
    if size == 1:
        return reader.read(cells)[:, None]
    rows = np.full((len(cells), size), np.nan)
    for row, cell in zip(rows, cells, strict=True):
        if _is_vector(cell, size):
            row[:] = reader.read(cell)
    return rows


def _present(cells: Cells) -> Floats:
    present = [[np.nan if is_missing(_entry(cell)) else 1.0] for cell in cells]
    return np.array(present, np.float64).reshape(len(cells), 1)


def _is_vector(cell: Any, size: int) -> bool:
    if isinstance(cell, np.ndarray):
        return bool(cell.shape == (size,))
    return isinstance(cell, list | tuple) and len(cell) == size


def _entry(cell: Any) -> Any:
    """Return a cell, of an array of one column its entry."""
    return cell[0] if isinstance(cell, np.ndarray) and cell.shape == (1,) else cell


def _floats(array: npt.NDArray[Any]) -> Floats:
    with np.errstate(over="ignore"):  # a number that is too large for float64 becomes infinite
        return np.ascontiguousarray(array, np.float64)


def _extremes(matrix: Floats) -> tuple[Floats, Floats]:
    """Return the least and the largest value of each column, NaN where there is NaN.

    NumPy is slow on narrow matrices, so that many rows are joined into one long line first.
    """
    rows, columns = matrix.shape
    group = max(1, _WIDE_LINE_NUMBERS // columns)
    whole = rows // group * group
    lines = matrix[:whole].reshape(-1, group * columns)
    ends = []
    for reduce, initial in ((np.minimum.reduce, np.inf), (np.maximum.reduce, -np.inf)):
        parts = [reduce(lines, initial=initial).reshape(group, columns), matrix[whole:]]
        by_column = np.ascontiguousarray(np.concatenate(parts).T)
        ends.append(reduce(by_column, axis=1, initial=initial))
    return ends[0], ends[1]


def _quality(
    reader: Reader,
    values: Floats,
    cells: Cells,
    ends: tuple[float, float],
    first_row: int,
) -> AttributeQuality:
    """Count what is clipped or replaced, given the values, their cells and their two extremes."""
    quality = AttributeQuality(
        reader.name,
        values.size,
        clipped=reader.clipped(values, *ends),
        bounds=reader.limits,
        replacement=reader.replacement,
    )
    if not np.isnan(ends[0]):
        return quality
    bad = np.isnan(values)
    if reader.optional:  # to have no value is no fault
        rows = np.flatnonzero(bad[:, 0]).tolist()
        bad[[row for row in rows if reader.is_missing(_entry(cells[row]))]] = False
        if not bad.any():
            return quality
    row, offset = divmod(int(bad.argmax()), reader.size)
    place = f"row {first_row + row}"
    value, is_entry = cells[row], _is_vector(cells[row], reader.size)
    if is_entry:
        value = value[offset]
        place += f", number {offset}" if reader.size > 1 else ""
    missing = _missing(reader, cells, bad)
    others: dict[str, Any] = {reader.invalid: int(np.count_nonzero(bad)) - missing}
    example = f"{place}: {reader.fault(value, is_entry)}"
    return replace(quality, missing=missing, example=example, **others)


def _missing(reader: Reader, cells: Cells, bad: npt.NDArray[np.bool_]) -> int:
    """Return how many of the bad values are missing."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biufcmM":
        cells = cells.reshape(bad.shape)[bad]
        return int(np.count_nonzero(cells != cells))  # NaN and NaT, which differ from themselves
    absent = reader.is_missing
    rows = np.flatnonzero(bad.any(axis=1)).tolist()
    if reader.size == 1 and not (isinstance(cells, np.ndarray) and cells.ndim > 1):
        present = [cell for row in rows if (cell := cells[row]) is not None]
        return len(rows) - len(present) + sum(map(absent, present))
    count = 0
    for row in rows:
        cell = cells[row]
        if _is_vector(cell, reader.size):
            count += sum(absent(cell[offset]) for offset in np.flatnonzero(bad[row]).tolist())
        elif is_missing(cell):
            count += reader.size
    return count
