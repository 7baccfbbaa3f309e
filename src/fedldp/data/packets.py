"""Where packets come from: lists, columns of Arrow and pandas, Parquet files, folders.

A packet is the bytes of one report as they were received. Only this module reads columns of
packets; it imports pyarrow when it meets one.
"""

import glob
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np

from fedldp._internal.packets import Packets
from fedldp._internal.text import listed
from fedldp.data.frames import is_missing, shown
from fedldp.errors import DomainError, MissingExtra

Split = Callable[[BinaryIO], Iterator[Packets]]  # the packets of a stream of reports
Progress = Callable[
    [int], object
]  # called with the number of bytes that were read since the last call

_BLOCK = 1 << 16  # packets of a list, or rows of a file, at a time,
_BLOCK_BYTES = 1 << 23  # and fewer where they are long
_FIRST = 1 << 8  # packets of a list before their length is known
_PIECE = 1 << 20  # bytes of a Parquet file that are read at a time
_PARQUET = b"PAR1"
_BEGINNING = 16  # bytes
_EXPECTED = (
    "packets must be a list of bytes, a column or a table of Arrow, pandas or polars, or the path "
    "of a file, a folder or a pattern"
)


# Packets in memory


def in_memory(data: Any, column: str | None = None) -> Iterator[Packets]:
    """Yield the packets of a list of bytes, a binary column, or a table with such a column."""
    if isinstance(data, bytes | bytearray | memoryview | str):
        raise DomainError(
            f"{_EXPECTED}; got {type(data).__name__}. Give a list, or use parse for one report."
        )
    if _is_arrow(data):
        yield from _of_arrow(data, column)
    elif isinstance(data, Iterable):
        rest, first, size = iter(data), 0, _FIRST
        while block := list(islice(rest, size)):
            packets = _of_list(block, first)
            yield packets
            first += len(block)
            size = _rows(packets.data.size / len(block))
    else:
        raise DomainError(f"{_EXPECTED}; got {type(data).__name__}.")


def _rows(length: float) -> int:
    """Return how many packets of a mean length to read at a time, so that memory is bounded."""
    return max(1, min(_BLOCK, int(_BLOCK_BYTES / max(length, 1))))


def _of_list(block: list[Any], first: int) -> Packets:
    if set(map(type, block)) <= {bytes}:
        return Packets.of(block)
    missing = np.zeros(len(block), np.bool_)
    for place, each in enumerate(block):
        if isinstance(each, bytearray | memoryview):
            block[place] = bytes(each)
        elif not isinstance(each, bytes):
            if not is_missing(each):
                raise DomainError(
                    f"a packet must be bytes or None; number {first + place} is {shown(each)}."
                )
            block[place], missing[place] = b"", True
    packets = Packets.of(block)
    return Packets(packets.data, packets.starts, packets.lengths, missing)


def _is_arrow(data: Any) -> bool:
    """Return whether data are, or hold, columns of Arrow."""
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "array"):
        return hasattr(data.array, "__arrow_array__") and data.dtype != object
    names = "__arrow_c_stream__", "__arrow_c_array__", "to_batches"
    return any(hasattr(data, name) for name in names)


def _of_arrow(data: Any, column: str | None) -> Iterator[Packets]:
    pa = _pyarrow()
    columns: Iterator[Any]
    if hasattr(data, "scanner"):  # a data set
        name = _column(data.schema, column)
        batches = data.scanner(columns=[name], batch_size=_BLOCK).to_batches()
        columns = (batch.column(0) for batch in batches)
    elif hasattr(data, "array"):  # a series of pandas
        found = pa.array(data)
        columns = iter(found.chunks if isinstance(found, pa.ChunkedArray) else [found])
    elif isinstance(data, pa.Array):
        columns = iter([data])
    elif hasattr(data, "__arrow_c_array__") and not isinstance(data, pa.RecordBatch):
        columns = iter([pa.array(data)])
    else:
        columns = _of_stream(pa, data, column)
    for each in columns:
        yield from _of_array(pa, each)


def _of_stream(pa: Any, data: Any, column: str | None) -> Iterator[Any]:
    """Yield the arrays of a column, or of one column of a table."""
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if not hasattr(data, "schema") and not hasattr(data, "columns"):
        yield from pa.chunked_array(data).chunks
        return
    reader = pa.RecordBatchReader.from_stream(data)
    name = _column(reader.schema, column)
    for batch in reader:
        yield batch.column(name)


def _column(schema: Any, column: str | None) -> str:
    """Return the name of the column of packets, which is the only binary one by default."""
    pa = _pyarrow()
    names = [field.name for field in schema if _is_binary(pa, field.type)]
    if column is None and len(names) == 1:
        return str(names[0])
    if column is None:
        raise DomainError(
            f"a table of packets must have one binary column; this one has {len(names)} "
            f"({listed(names) or 'none'}): name the one to count as `column`."
        )
    if column not in names:
        raise DomainError(
            f"there is no binary column {column!r}; the table has {listed(names) or 'none'}."
        )
    return column


def _is_binary(pa: Any, kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    names = "is_binary", "is_large_binary", "is_fixed_size_binary", "is_binary_view"
    return any(getattr(pa.types, name, bool)(kind) for name in names)


def _of_array(pa: Any, array: Any) -> Iterator[Packets]:
    """Yield the packets of an Arrow array without copying them."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not _is_binary(pa, array.type):
        raise DomainError(f"a column of packets must be binary; got {array.type}.")
    fixed = pa.types.is_fixed_size_binary(array.type)
    if not (fixed or pa.types.is_large_binary(array.type) or pa.types.is_binary(array.type)):
        array = _without_views(pa, array)
    first, count = array.offset, len(array)
    if fixed:
        size = array.type.byte_width
        data = _octets(array.buffers()[1])
        ends = size * np.arange(first, first + count + 1, dtype=np.int64)
    else:
        _, offsets, values = array.buffers()
        kind = np.int64 if pa.types.is_large_binary(array.type) else np.int32
        found = np.frombuffer(offsets or b"", kind)[first : first + count + 1]
        ends, data = found.astype(np.int64), _octets(values)
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    for start in range(0, count, _BLOCK):
        rows = slice(start, start + _BLOCK)
        starts, lengths = ends[:-1][rows], np.diff(ends[start : start + _BLOCK + 1])
        yield Packets(data, starts, lengths, None if missing is None else missing[rows])


def _without_views(pa: Any, array: Any) -> Any:
    """Return a column of views into other buffers, as polars makes them, with one buffer."""
    try:
        return array.cast(pa.large_binary())
    except pa.ArrowNotImplementedError:  # in old versions of pyarrow
        return pa.array(array.to_pylist(), pa.large_binary())


def _octets(buffer: Any) -> Any:
    return np.frombuffer(b"" if buffer is None else buffer, np.uint8)


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra("pyarrow", "parquet") from None
    return pyarrow


# Packets in files


def no_one(_: int) -> None:
    """Tell nobody how many bytes were read."""


def digest(file: BinaryIO) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def beginning(file: BinaryIO) -> bytes:
    """Return the first bytes of a file, which show what it holds, and go back to its start."""
    file.seek(0)
    start = file.read(_BEGINNING)
    file.seek(0)
    return start


@final
@dataclass(frozen=True)
class Shard:
    """A file of packets: a Parquet file, or reports one after another."""

    path: Path

    @property
    def name(self) -> str:
        """What a manifest calls the file: its full path, whatever the current folder is."""
        return self.path.resolve().as_posix()

    @property
    def size(self) -> int:
        """The number of bytes, and 0 if the file is not there."""
        return self.path.stat().st_size if self.path.is_file() else 0

    def digest(self) -> str:
        """Return the SHA-256 of the file."""
        with self.path.open("rb") as file:
            return digest(file)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Open the file, and refuse it if it changes before it is closed.

        Otherwise its SHA-256 and its packets might be those of two different files.
        """
        with self.path.open("rb") as file:
            before = os.fstat(file.fileno())
            yield file
            after = os.fstat(file.fileno())
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise DomainError(f"{self.path} changed while it was read: count it once it is whole.")

    def packets(
        self, file: BinaryIO, split: Split, column: str | None = None, progress: Progress = no_one
    ) -> Iterator[Packets]:
        """Yield the packets of the open file; `split` finds reports that follow one another."""
        if beginning(file).startswith(_PARQUET):
            yield from self._of_parquet(file, column, progress)
            return
        done = 0
        for packets in split(file):
            yield packets
            progress(file.tell() - done)
            done = file.tell()

    def _of_parquet(
        self, file: BinaryIO, column: str | None, progress: Progress
    ) -> Iterator[Packets]:
        pa = _pyarrow()
        from pyarrow import parquet

        try:
            with parquet.ParquetFile(file, buffer_size=_PIECE) as table:
                name = _column(table.schema_arrow, column)
                facts, rows = table.metadata, max(table.metadata.num_rows, 1)
                groups = map(facts.row_group, range(facts.num_row_groups))
                length = sum(group.total_byte_size for group in groups) / rows
                for batch in table.iter_batches(_rows(length), columns=[name]):
                    for packets in _of_array(pa, batch.column(0)):
                        yield packets
                        progress(self.size * len(packets) // rows)
        except pa.ArrowException as error:
            raise DomainError(f"{self.path} cannot be read as a Parquet file: {error}") from error


def shards(source: str | os.PathLike[str]) -> list[Shard]:
    """Return the files that a path names: a file, all files of a folder, or those of a pattern.

    As data sets have it, names that begin with a point or an underscore are left out in a folder.
    """
    path = Path(source)
    if path.is_dir():
        inside = (each for each in path.rglob("*") if each.is_file())
        return [Shard(each) for each in sorted(inside) if not _is_hidden(each.relative_to(path))]
    if not path.exists() and glob.has_magic(str(source)):
        found = sorted(map(Path, glob.glob(str(source), recursive=True)))  # noqa: PTH207
        if not found:
            raise DomainError(f"no file matches {str(source)!r}.")
        return [shard for each in found for shard in shards(each)]
    return [Shard(path)]


def _is_hidden(path: Path) -> bool:
    return any(name.startswith((".", "_")) for name in path.parts)
