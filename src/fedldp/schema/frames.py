"""Tables: columns with names, in memory or in a file, and the values of their cells.

Only this module uses data frames and Parquet files. It imports narwhals, pandas and pyarrow when
they are needed.
"""

import csv
import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import chain, islice, repeat
from operator import contains
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from fedldp._internal import validation
from fedldp._internal.validation import Floats
from fedldp.errors import DomainError, MissingExtra
from fedldp.vehicle import MISSING_NUMBER_TEXTS, label

Cells = Sequence[Any] | npt.NDArray[Any]

REAL_ARRAY_KINDS = "biuf"  # which become floats at once
CHUNK = 1 << 15  # rows read from a file at a time
MOST_LINES_OF_A_ROW = 100  # a quotation mark that is not closed must not take more


def to_frame(columns: Mapping[str, Sequence[Any]]) -> Any:
    """Return a pandas data frame of some columns."""
    try:
        import pandas
    except ImportError:
        raise MissingExtra("pandas", "pandas") from None
    return pandas.DataFrame(columns)


def write_columns(columns: Mapping[str, Sequence[Any]], path: Path) -> None:
    """Write columns of equal length to a CSV file or, if its name says so, a Parquet file."""
    suffix = path.suffix.lower()
    if suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    elif suffix == ".parquet":
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError:
            raise MissingExtra("pyarrow", "parquet") from None
        parquet.write_table(pa.table({name: list(cells) for name, cells in columns.items()}), path)
    else:
        raise DomainError(f"a table's name must end in .csv or .parquet; got {path.name!r}.")


class Dicts:
    """A list of dicts, one for each row; a value is missing if its key is."""

    def __init__(self, data: Sequence[Mapping[str, Any]]) -> None:
        for number, row in enumerate(data):
            if type(row) is not dict and not isinstance(row, Mapping):
                raise DomainError(
                    f"a list must hold a dict for each row; row {number} is {row!r:.60}. "
                    "For rows of numbers, give a NumPy array."
                )
        self._data = data

    @property
    def names(self) -> Sequence[str]:
        return list(dict.fromkeys(chain.from_iterable(self._data)))

    def __len__(self) -> int:
        return len(self._data)

    def cells(self, name: str, start: int, stop: int) -> Cells:
        return [row.get(name) for row in self._data[start:stop]]

    def other_keys(self, known: Set[str], start: int, stop: int) -> dict[str, int]:
        """Return the keys that are not known, with the number of rows that have them."""
        rows = self._data[start:stop]
        others = set().union(*rows) - known
        if len(others) <= len(known):
            counts = {key: sum(map(contains, rows, repeat(key))) for key in others}
        else:
            counts = Counter(key for key in chain.from_iterable(rows) if key in others)
        texts = {key if isinstance(key, str) else shown(key): counts[key] for key in counts}
        return dict(sorted(texts.items(), key=lambda item: (-item[1], item[0])))


class Columns:
    """A dict of columns: lists or arrays of one length."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = {name: self._column(name, column) for name, column in data.items()}
        lengths = {name: len(column) for name, column in self._data.items()}
        if len(set(lengths.values())) > 1:
            raise DomainError(f"columns must have one length; got {lengths}.")
        self._length = max(lengths.values(), default=0)

    @staticmethod
    def _column(name: str, column: Any) -> Cells:
        if isinstance(column, list | tuple):
            return column
        array = plain(column)
        if array.ndim == 0:
            raise DomainError(
                f"column {name!r} must be a list or an array; got {column!r:.60}. "
                "For a single row, give a list that holds its dict."
            )
        return array

    @property
    def names(self) -> Sequence[str]:
        return list(self._data)

    def __len__(self) -> int:
        return self._length

    def cells(self, name: str, start: int, stop: int) -> Cells:
        return self._data[name][start:stop]


class Frame:
    """A data frame of pandas, polars, pyarrow, or another library that narwhals reads."""

    def __init__(self, data: Any) -> None:
        try:
            import narwhals.stable.v2 as nw
        except ImportError:
            raise MissingExtra("narwhals", "frames") from None
        try:
            self._frame: nw.DataFrame[Any] = nw.from_native(data, eager_only=True)
        except (TypeError, ValueError) as error:
            raise DomainError(
                f"this {type(data).__module__}.{type(data).__name__} cannot be read: {error}. "
                "Give a data frame of pandas or polars, collected, or a table of pyarrow."
            ) from error
        self._nw = nw

    @property
    def names(self) -> Sequence[str]:
        return self._frame.columns

    def __len__(self) -> int:
        return len(self._frame)

    def declared(self, name: str) -> list[Any] | type[bool] | None:
        """Return the labels that the type of a column declares, or bool; None if it has none."""
        series, nw = self._frame.get_column(name), self._nw
        if series.dtype == nw.Boolean:
            return bool
        listed = series.dtype == nw.Categorical and series.implementation.is_pandas_like()
        if listed or series.dtype == nw.Enum:  # other categorical types list the labels that occur
            return list(series.cat.get_categories().to_list())
        return None

    def cells(self, name: str, start: int, stop: int) -> Cells:
        series = self._frame.get_column(name)[start:stop]
        nw, kind = self._nw, series.dtype
        if kind.is_numeric() and kind not in (nw.Decimal, nw.Int128, nw.UInt128):
            return series.to_numpy()
        if series.implementation.is_pyarrow() and kind == nw.Categorical:
            series = series.cast(nw.String)  # its list would be made cell by cell
        # Not to_numpy, which reads the nulls of a dictionary column of pyarrow as a category.
        try:
            return series.to_list()
        except (ValueError, OverflowError):  # such as a text that is not UTF-8
            return [_cell(series, place) for place in range(len(series))]


def _cell(series: Any, place: int) -> Any:
    """Return a cell, or a text that is no value if the cell cannot be read."""
    try:
        return series[place : place + 1].to_list()[0]
    except (ValueError, OverflowError):
        return "\ufffd"


Table = Dicts | Columns | Frame


def table(data: Any) -> Table:
    """Return data with named columns as a table, from which ranges of cells can be read.

    >>> table([{"age": 31, "city": "Oslo"}, {"age": 54}]).cells("city", 0, 2)
    ['Oslo', None]
    """
    if isinstance(data, Mapping):
        return Columns(data)
    if isinstance(data, list | tuple):
        return Dicts(data)
    if hasattr(type(data), "columns"):
        return Frame(data)
    raise DomainError(
        "data must be a NumPy array, a list of dicts, a dict of columns, or a data frame of "
        f"pandas, polars or pyarrow; got {type(data).__name__} {data!r:.60}."
    )


def plain(data: Any) -> npt.NDArray[Any]:
    """Return data as a plain array, with None for masked values."""
    if not isinstance(data, np.ma.MaskedArray):
        return np.asarray(data)
    array = np.array(data.data, object)
    array[np.ma.getmaskarray(data)] = None
    return array


def numbers(cells: Cells) -> Floats:
    """Return a float for each cell, and NaN for a cell that is not a number.

    >>> numbers([31, "54", None, "old"])
    array([31., 54., nan, nan])
    """
    if isinstance(cells, np.ndarray):
        if cells.dtype.kind in REAL_ARRAY_KINDS:
            with np.errstate(over="ignore"):
                return cells.astype(np.float64, copy=False)
        if cells.dtype.kind not in "OSTU":  # dates and complex numbers
            return np.full(len(cells), np.nan)
        cells = cells.tolist()
    try:
        return np.fromiter(map(float, cells), np.float64, len(cells))
    except Exception:  # one bad cell must not stop the others
        return np.fromiter(map(to_float, cells), np.float64, len(cells))


def to_float(value: Any) -> float:
    """Return a value as a float, and NaN if it is not a number."""
    try:
        try:
            return float(value)
        except OverflowError:  # an integer beyond all floats
            return math.inf if value > 0 else -math.inf
    except Exception:  # a value may be anything
        return math.nan


def codes(cells: Cells, known: Mapping[str, int], missing: float = math.nan) -> Floats:
    """Return the code of each cell's label, `missing` for a missing one, NaN for an unknown one.

    >>> codes(["Rome", None, "Bonn"], {"Oslo": 0, "Rome": 1})
    array([ 1., nan, nan])
    """
    if isinstance(cells, np.ndarray) and cells.dtype.kind in REAL_ARRAY_KINDS:
        distinct, places = np.unique(cells, return_inverse=True)
        return codes(distinct.tolist(), known, missing)[places]
    return labels_of(cells, lambda cell: known[label(cell)], missing)


def labels_of(cells: Cells, code: Callable[[Any], int], missing: float) -> Floats:
    """Return the code of each cell's label, by a function, and `missing` for a missing one.

    >>> labels_of(["Rome", None, "Oslo", "Rome"], len, -1.0)
    array([ 4., -1.,  4.,  4.])
    """
    if isinstance(cells, np.ndarray):
        # NumPy turns dates into Python's, or into integers, depending on their unit.
        cells = (cells.astype(str) if cells.dtype.kind in "mM" else cells).tolist()

    def code_of(cell: Any) -> float:
        try:
            cell = cell.item() if isinstance(cell, np.generic) else cell
            return missing if is_missing(cell) else float(code(cell))
        except Exception:  # a value may be anything
            return math.nan

    kinds = set(map(type, cells)) - {str, type(None)}
    if kinds in (set(), {float}, {int}, {bool}):  # equal values of these have equal labels
        table = {cell: code_of(cell) for cell in set(cells)}
        return np.fromiter(map(table.__getitem__, cells), np.float64, len(cells))
    return np.fromiter(map(code_of, cells), np.float64, len(cells))


def is_missing(value: object) -> bool:
    """Return whether a value is missing: None, an empty text, or NaN, NaT and NA of any library."""
    if value is None or value is np.ma.masked:
        return True
    if issubclass(type(value), str):
        return not value
    try:
        return bool(value != value)  # NaN and NaT differ from themselves
    except Exception:  # the NA of pandas is neither equal nor different; a value may be anything
        return type(value).__name__ == "NAType"


def is_missing_number(cell: object) -> bool:
    """Return whether a cell of a column of numbers is missing: as above, or a text such as "nan".

    >>> is_missing_number(" NaN "), is_missing_number("old")
    (True, False)
    """
    if type(cell) is str:
        return cell.strip().lower() in MISSING_NUMBER_TEXTS
    return is_missing(cell)


def shown(value: object) -> str:
    """Return a value as it is shown in a message."""
    try:
        return f"{value.item() if isinstance(value, np.generic) else value!r:.60}"
    except Exception:  # such as an integer with more digits than Python writes
        return f"this {type(value).__name__}"


class Chunk(NamedTuple):
    """Some rows of a file: give `data` and `first_row` to `Schema.rows`."""

    data: Any
    first_row: int
    fraction: float  # how much of the file has been read, including this chunk
    malformed: Mapping[int, str] = MappingProxyType({})  # by the number of a row: what is wrong


def read(
    path: str | PathLike[str],
    rows: int = CHUNK,
    *,
    tolerant: bool = False,
    vehicle: str | None = None,
) -> Iterator[Chunk]:
    r"""Read a Parquet file (.parquet, .pq) or a CSV file (any other) in chunks of rows.

    A CSV file is in UTF-8, separated by commas, and begins with the names of its columns; an empty
    cell is a missing value. Only one chunk is held in memory.

    A line that is malformed raises `DomainError`. With `tolerant`, as on a vehicle, it is a row of
    missing values, so that it affects no other row; only the cell of the column `vehicle` is kept,
    if the line is long enough.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "fleet.csv")
    >>> _ = path.write_text("age,city\n31,Oslo\n54,\n")
    >>> next(read(path))
    Chunk(data={'age': ['31', '54'], 'city': ['Oslo', None]}, first_row=0, fraction=1.0, ...)
    >>> _ = path.write_text("age,city\n31\n54,Rome\n")
    >>> next(read(path, tolerant=True)).data
    {'age': [None, '54'], 'city': [None, 'Rome']}
    """
    path = Path(path)
    if validation.whole(rows, "rows") < 1:
        raise DomainError(f"rows must be at least 1; got {rows}.")
    if path.suffix.lower() in (".parquet", ".pq"):
        return _parquet(path, rows)
    return _tolerant_csv(path, rows, vehicle) if tolerant else _csv(path, rows)


def _parquet(path: Path, rows: int) -> Iterator[Chunk]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet") from None
    try:
        with parquet.ParquetFile(path) as file:
            first_row, total = 0, file.metadata.num_rows
            for batch in file.iter_batches(rows):
                end = first_row + len(batch)
                yield Chunk(pa.Table.from_batches([batch]), first_row, end / max(total, 1))
                first_row = end
    except pa.ArrowException as error:
        raise DomainError(f"{path.name} cannot be read as a Parquet file: {error}") from error


def _csv(path: Path, rows: int) -> Iterator[Chunk]:
    bytes_read = 0

    def lines() -> Iterator[str]:
        nonlocal bytes_read
        for number, line in enumerate(file):
            bytes_read += len(line)
            yield line.decode("utf-8" if number else "utf-8-sig")

    def records() -> Iterator[list[str]]:
        for record in reader:
            if len(record) == len(names):
                yield record
            elif record:  # an empty line is ignored
                raise DomainError(
                    f"{path.name}, line {reader.line_num}: the header has {len(names)} fields, "
                    f"this line {len(record)}. Put a text that contains commas in quotes."
                )

    with path.open("rb") as file:
        total = max(path.stat().st_size, 1)
        reader = csv.reader(lines(), strict=True)
        first_row = 0
        try:
            names = next(reader, [])
            _check_header(path, names)
            good = records()
            while chunk := list(islice(good, rows)):
                columns = ([cell or None for cell in column] for column in zip(*chunk, strict=True))
                data = dict(zip(names, columns, strict=True))
                yield Chunk(data, first_row, min(bytes_read / total, 1.0))
                first_row += len(chunk)
        except UnicodeDecodeError as error:
            raise DomainError(
                f"{path.name}, line {reader.line_num + 1} is not UTF-8: {error}. Save it as UTF-8."
            ) from error
        except csv.Error as error:
            raise DomainError(f"{path.name}, line {reader.line_num}: {error}.") from error


def _tolerant_csv(path: Path, rows: int, vehicle: str | None) -> Iterator[Chunk]:
    """Read a CSV file in which a malformed line is a row of missing values."""
    total = max(path.stat().st_size, 1)
    with path.open("rb") as file:
        first = file.readline()
        try:
            names = next(csv.reader([first.decode("utf-8-sig")], strict=True), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise DomainError(f"{path.name}, line 1: {error}.") from error
        _check_header(path, names)
        vehicle_column = names.index(vehicle) if vehicle in names else None
        records, first_row = _records(_Lines(file), len(names)), 0
        while chunk := list(islice(records, rows)):
            malformed = {
                row: record.fault for row, record in enumerate(chunk, first_row) if record.fault
            }
            cells = [
                _without_cells(record.cells, len(names), vehicle_column)
                if record.fault
                else record.cells
                for record in chunk
            ]
            columns = ([cell or None for cell in column] for column in zip(*cells, strict=True))
            data = dict(zip(names, columns, strict=True))
            yield Chunk(data, first_row, min(file.tell() / total, 1.0), malformed)
            first_row += len(chunk)


class _Record(NamedTuple):
    """The cells of a row, and what is wrong with its line."""

    cells: Sequence[str]
    fault: str = ""


class _Lines:
    """The lines of a file after its header, some of which are looked at before they are used."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._waiting = file, deque[bytes]()
        self.number = 1  # of the last line that was used

    def ahead(self) -> Iterator[bytes]:
        """Yield the lines that come next, without using them: as many as a row may have."""
        for place in range(MOST_LINES_OF_A_ROW):
            if place == len(self._waiting):
                if not (line := self._file.readline()):
                    return
                self._waiting.append(line)
            yield self._waiting[place]

    def use(self, count: int) -> list[bytes]:
        """Return the lines that come next, and go on after them."""
        self.number += count
        return [self._waiting.popleft() for _ in range(count)]


def _records(lines: _Lines, width: int) -> Iterator[_Record]:
    while line := next(lines.ahead(), None):
        found = _record(lines, line.decode("utf-8", "replace"), width)
        if found.cells:  # an empty line is ignored
            yield found


def _record(lines: _Lines, text: str, width: int) -> _Record:
    """Return the next row, which has several lines if a text in quotes does."""
    reader = csv.reader((line.decode("utf-8", "replace") for line in lines.ahead()), strict=True)
    fault = ""
    try:
        cells = next(reader)
    except csv.Error as error:
        fault = str(error)
    if fault or (reader.line_num > 1 and len(cells) != width):
        # The quotation mark may be a mistake: no other line is a part of this row.
        fault = fault or "a quotation mark is not closed"
        cells, used = [cell.strip('"') for cell in text.rstrip("\r\n").split(",")], 1
    else:
        used = reader.line_num
    if not fault and cells and len(cells) != width:
        fault = f"the header has {width} fields, this line {len(cells)}"
    number = lines.number + 1
    try:
        b"".join(lines.use(used)).decode()
    except UnicodeDecodeError as error:
        fault = f"it is not UTF-8: {error}"
    return _Record(cells, f"line {number}: {fault}" if fault else "")


def _without_cells(cells: Sequence[str], width: int, kept: int | None) -> list[str]:
    """Return a row of missing values, with the cell of one column if a malformed row has it."""
    found = [""] * width
    if kept is not None and len(cells) > kept:
        last = kept == width - 1  # counted from the end, as further cells come before it
        found[kept] = "" if "\ufffd" in cells[kept] else cells[-1 if last else kept]
    return found


def _check_header(path: Path, names: Sequence[str]) -> None:
    if not names or len(set(names)) < len(names):
        raise DomainError(
            f"{path.name} must begin with a line of different names, one for each column; "
            f"got {names}."
        )
