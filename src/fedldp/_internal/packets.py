"""Many packets in one buffer, and their fields and checksums all at once."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Integers

Octets = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_CHUNK_PACKETS = 1 << 15
_CHUNK_BYTES = 1 << 20  # fewer packets where they are long: their arrays stay in the cache
_COLUMNWISE_BYTES = 8  # rows up to this length are copied column by column
_ZLIB_BYTES = 128  # from this length on, zlib is faster than tables


@final
@dataclass(frozen=True, eq=False)
class Packets:
    """Some packets, each of which is a range of bytes in a buffer.

    >>> packets = Packets.of([b"abcd", b"efgh", b"ij"])
    >>> packets.take(np.array([0, 1])).field(1, "u1")
    array([ 98, 102], dtype=uint8)
    """

    data: Octets
    starts: Integers
    lengths: Integers
    missing: Mask | None = None  # which of them are not there at all

    @classmethod
    def of(cls, packets: list[bytes]) -> "Packets":
        """Return the packets of a list."""
        lengths = np.fromiter(map(len, packets), np.int64, len(packets))
        data = np.frombuffer(b"".join(packets), np.uint8)
        return cls(data, np.cumsum(lengths) - lengths, lengths)

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: Integers | slice) -> "Packets":
        """Return some of the packets."""
        missing = None if self.missing is None else self.missing[rows]
        return Packets(self.data, self.starts[rows], self.lengths[rows], missing)

    def chunks(self) -> Iterator[tuple[int, "Packets"]]:
        """Yield a few packets at a time, which bounds memory use, with the number of the first."""
        start, ends = 0, np.cumsum(self.lengths)
        while start < len(self):
            before = ends[start - 1] if start else 0
            stop = int(np.searchsorted(ends, before + _CHUNK_BYTES, side="right"))
            stop = min(max(stop, start + 1), start + _CHUNK_PACKETS)
            yield start, self.take(slice(start, stop))
            start = stop

    def texts(self) -> list[bytes]:
        """Return the bytes of each packet."""
        ends = (self.starts + self.lengths).tolist()
        ranges = zip(self.starts.tolist(), ends, strict=True)
        return [self.data[start:end].tobytes() for start, end in ranges]

    @cached_property
    def _places(self) -> slice | Integers:
        """Where the packets begin: a slice if the distance is always the same."""
        if not len(self):
            return slice(0, 0)
        first, last = int(self.starts[0]), int(self.starts[-1])
        step = int(self.starts[1]) - first if len(self) > 1 else 1
        if step > 0 and np.all(np.diff(self.starts) == step):
            return slice(first, last + 1, step)
        return self.starts

    def field(self, offset: int, dtype: str) -> npt.NDArray[Any]:
        """Return a field of every packet; all of them must be long enough."""
        kind = np.dtype(dtype)
        size = max(0, len(self.data) - offset - kind.itemsize + 1)
        # A view in which a field begins at each byte of the buffer.
        everywhere = np.ndarray((size,), kind, self.data, min(offset, len(self.data)), (1,))
        return everywhere[self._places]

    def octets(self, offset: int, size: int) -> Octets:
        """Return a row of bytes of every packet; all of them must be long enough."""
        if size > _COLUMNWISE_BYTES:
            shape = max(0, len(self.data) - offset - size + 1), size
            everywhere = np.ndarray(shape, np.uint8, self.data, min(offset, len(self.data)), (1, 1))
            return everywhere[self._places]
        rows = np.empty((len(self), size), np.uint8)
        for place in range(size):
            rows[:, place] = self.field(offset + place, "u1")
        return rows

    def checksums(self, offset: int, size: int, before: int) -> npt.NDArray[np.uint32]:
        r"""Return the CRC-32 of some bytes of every packet, after bytes whose CRC-32 is given.

        >>> head = zlib.crc32(b"head")
        >>> sums = Packets.of([b"ab", b"cd"]).checksums(0, 2, before=head)
        >>> sums.tolist() == [zlib.crc32(b"headab"), zlib.crc32(b"headcd")]
        True
        """
        if size >= _ZLIB_BYTES:
            data = self.data.data
            ranges = ((start + offset, start + offset + size) for start in self.starts.tolist())
            sums = (zlib.crc32(data[start:stop], before) for start, stop in ranges)
            return np.fromiter(sums, np.uint32, len(self))
        # A CRC is linear: each byte changes it by a number that depends on nothing but the byte
        # and how many bytes follow it.
        checksums = np.full(len(self), zlib.crc32(bytes(size), before), np.uint32)
        for place in range(size):
            checksums ^= _crc_tables()[size - 1 - place].take(self.field(offset + place, "u1"))
        return checksums


@final
@dataclass(frozen=True, eq=False)
class RepeatedPackets:
    """Some packets of which few are different, as a column with a dictionary has them.

    >>> repeated = RepeatedPackets(Packets.of([b"ab", b"cd"]), np.array([1, 1, 0]))
    >>> len(repeated)
    3
    """

    distinct: Packets  # the same object where several columns share one dictionary
    rows: Integers  # for each packet, its place among these
    missing: Mask | None = None  # which of them are not there at all

    def __len__(self) -> int:
        return len(self.rows)


@cache
def _crc_tables() -> list[npt.NDArray[np.uint32]]:
    """Return, for 0, 1, ... following bytes, by what each byte changes a CRC-32."""
    first = [zlib.crc32(bytes([octet])) ^ zlib.crc32(b"\0") for octet in range(256)]
    tables = [np.array(first, np.uint32)]
    while len(tables) < _ZLIB_BYTES:
        last = tables[-1]
        tables.append((last >> np.uint32(8)) ^ tables[0][last & np.uint32(255)])
    return tables
