"""Packets in memory: lists of bytes, and columns of Arrow, pandas and polars.

A packet is the bytes of one report as they were received. Only this module reads columns of
packets; it imports pyarrow when it meets one.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from fedldp._internal.packets import Packets, RepeatedPackets
from fedldp._internal.text import listed
from fedldp.errors import DomainError, MissingExtra
from fedldp.schema.frames import is_missing, shown

_BLOCK_PACKETS = 1 << 16
_BLOCK_BYTES = 1 << 23  # fewer packets where they are long
_FIRST_PACKETS = 1 << 8  # before their length is known
_EXPECTED = (
    "packets must be a list of bytes, a column or a table of Arrow, pandas or polars, or the path "
    "of a file, a folder or a pattern"
)


def in_memory(data: Any, column: str | None = None) -> Iterator[Packets | RepeatedPackets]:
    """Yield the packets of a list of bytes, a binary column, or a table with such a column."""
    if isinstance(data, bytes | bytearray | memoryview | str):
        raise DomainError(
            f"{_EXPECTED}; got {type(data).__name__}. Give a list, or use parse for one report."
        )
    if _is_arrow(data):
        yield from _of_arrow(data, column)
    elif isinstance(data, Iterable):
        rest, first, size = iter(data), 0, _FIRST_PACKETS
        while block := list(islice(rest, size)):
            packets = _of_list(block, first)
            yield packets
            first += len(block)
            size = rows_at_a_time(packets.data.size / len(block))
    else:
        raise DomainError(f"{_EXPECTED}; got {type(data).__name__}.")


def rows_at_a_time(length: float) -> int:
    """Return how many packets of a mean length to read at a time, so that memory is bounded."""
    return max(1, min(_BLOCK_PACKETS, int(_BLOCK_BYTES / max(length, 1))))


def _of_list(block: list[Any], first: int) -> Packets:
    if set(map(type, block)) <= {bytes}:
        return Packets.of(block)
    missing = np.zeros(len(block), np.bool_)
    for place, packet in enumerate(block):
        if isinstance(packet, bytearray | memoryview):
            block[place] = bytes(packet)
        elif not isinstance(packet, bytes):
            if not is_missing(packet):
                raise DomainError(
                    f"a packet must be bytes or None; number {first + place} is {shown(packet)}."
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


def _of_arrow(data: Any, column: str | None) -> Iterator[Packets | RepeatedPackets]:
    pa = import_pyarrow()
    columns: Iterator[Any]
    if hasattr(data, "scanner"):  # a data set
        name = column_name(data.schema, column)
        batches = data.scanner(columns=[name], batch_size=_BLOCK_PACKETS).to_batches()
        columns = (batch.column(0) for batch in batches)
    elif hasattr(data, "array"):  # a series of pandas
        array = pa.array(data)
        columns = iter(array.chunks if isinstance(array, pa.ChunkedArray) else [array])
    elif isinstance(data, pa.Array):
        columns = iter([data])
    elif hasattr(data, "__arrow_c_array__") and not isinstance(data, pa.RecordBatch):
        columns = iter([pa.array(data)])
    else:
        columns = _of_stream(pa, data, column)
    yield from of_arrays(pa, columns)


def _of_stream(pa: Any, data: Any, column: str | None) -> Iterator[Any]:
    """Yield the arrays of a column, or of one column of a table."""
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if not hasattr(data, "schema") and not hasattr(data, "columns"):
        yield from pa.chunked_array(data).chunks
        return
    reader = pa.RecordBatchReader.from_stream(data)
    name = column_name(reader.schema, column)
    for batch in reader:
        yield batch.column(name)


def column_name(schema: Any, column: str | None) -> str:
    """Return the name of the column of packets in an Arrow schema."""
    pa = import_pyarrow()
    return packet_column([field.name for field in schema if _is_binary(pa, field.type)], column)


def packet_column(names: list[str], column: str | None) -> str:
    """Return which of the binary columns has the packets: the only one by default."""
    if column is None and len(names) == 1:
        return names[0]
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


def of_arrays(pa: Any, arrays: Iterable[Any]) -> Iterator[Packets | RepeatedPackets]:
    """Yield the packets of Arrow arrays without copying them.

    Arrays with a dictionary that is shorter than they are stay as they are.
    """
    dictionary = distinct = None
    for array in arrays:
        if not pa.types.is_dictionary(array.type):
            yield from _of_array(pa, array)
        elif len(array.dictionary) >= len(array) or array.dictionary.null_count:
            yield from _of_array(pa, array.dictionary_decode())
        else:
            if distinct is None or not _is_same(array.dictionary, dictionary):
                dictionary = array.dictionary
                distinct = _join([*_of_array(pa, dictionary)])
            yield _repeats(array, distinct)


def _is_same(dictionary: Any, other: Any) -> bool:
    """Return whether two dictionaries are one: those of a Parquet file are for each batch."""
    buffers = (
        [buffer and (buffer.address, buffer.size) for buffer in each.buffers()]
        for each in (dictionary, other)
    )
    same = dictionary.offset == other.offset and len(dictionary) == len(other)
    return (same and next(buffers) == next(buffers)) or bool(dictionary.equals(other))


def _join(blocks: list[Packets]) -> Packets:
    """Return the packets of an array that was divided."""
    if len(blocks) == 1:
        return blocks[0]
    starts, lengths = (
        np.concatenate([getattr(block, name) for block in blocks]) for name in ("starts", "lengths")
    )
    return Packets(blocks[0].data, starts, lengths)


def _repeats(array: Any, distinct: Packets) -> RepeatedPackets:
    indices = array.indices
    if not indices.null_count:
        return RepeatedPackets(distinct, indices.to_numpy())
    missing = indices.is_null().to_numpy(zero_copy_only=False)
    return RepeatedPackets(distinct, indices.fill_null(0).to_numpy(), missing)


def _of_array(pa: Any, array: Any) -> Iterator[Packets]:
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
        positions = np.frombuffer(offsets or b"", kind)[first : first + count + 1]
        ends, data = positions.astype(np.int64), _octets(values)
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    for start in range(0, count, _BLOCK_PACKETS):
        rows = slice(start, start + _BLOCK_PACKETS)
        starts, lengths = ends[:-1][rows], np.diff(ends[start : start + _BLOCK_PACKETS + 1])
        yield Packets(data, starts, lengths, None if missing is None else missing[rows])


def _without_views(pa: Any, array: Any) -> Any:
    """Return a column of views into other buffers, as polars makes them, with one buffer."""
    try:
        return array.cast(pa.large_binary())
    except pa.ArrowNotImplementedError:  # in old versions of pyarrow
        return pa.array(array.to_pylist(), pa.large_binary())


def _octets(buffer: Any) -> Any:
    return np.frombuffer(b"" if buffer is None else buffer, np.uint8)


def import_pyarrow() -> Any:
    """Return pyarrow, or say which extra has it."""
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra("pyarrow", "parquet") from None
    return pyarrow
