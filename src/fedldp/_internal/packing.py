"""Records: fields of a few bits, packed one after another without gaps.

The most significant bit comes first. A record of up to 64 bits is kept as one number, a wider one
as a row of bits; both are filled, and read, field by field.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Integers

Bits = npt.NDArray[np.uint8]
Unsigned = npt.NDArray[np.unsignedinteger[Any]]

_WIDEST_NUMBER = 64
_CHUNK_RECORDS = 1 << 16  # a multiple of 8, so that chunks end with a full byte
_CHUNK_BITS = 1 << 24  # fewer records where they are wide


class Records(ABC):
    """Some records of the same width; a field is named by its first bit and its width."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, rows: Integers) -> "Records":
        """Return some of the records."""

    @abstractmethod
    def put(self, first: int, width: int, numbers: Any, rows: Integers | None = None) -> None:
        """Write numbers into a field that is zero so far, of all records or of some rows."""

    @abstractmethod
    def put_bits(self, first: int, bits: Bits, rows: Integers | None = None) -> None:
        """Write a row of bits into the field that begins at a bit and is zero so far."""

    @abstractmethod
    def get(self, first: int, width: int) -> Unsigned:
        """Return a field of every record as a number."""

    @abstractmethod
    def get_bits(self, first: int, width: int) -> Bits:
        """Return a field of every record as a row of bits."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Return the records packed, with zeros up to the next full byte."""

    @abstractmethod
    def split(self) -> list[bytes]:
        """Return each record as bytes of its own, with zeros up to the next full byte."""


def ranges(count: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) ranges of records that bound memory use and begin with a full byte.

    >>> list(ranges(100_000, width=9))
    [(0, 65536), (65536, 100000)]
    """
    size = min(_CHUNK_RECORDS, max(8, _CHUNK_BITS // width // 8 * 8))
    for start in range(0, count, size):
        yield start, min(start + size, count)


def empty(count: int, width: int) -> Records:
    """Return records that are all zeros.

    >>> records = empty(2, 9)
    >>> records.put(0, 7, np.array([93, 2]))
    >>> records.put(7, 2, np.array([0, 1]))
    >>> records.to_bytes().hex(), parse(records.to_bytes(), 2, 9).get(0, 7)
    ('ba0240', array([93,  2], dtype=uint16))
    """
    if width <= _WIDEST_NUMBER:
        return _Narrow(width, np.zeros(count, _number_type(width)))
    return _Wide(np.zeros((count, width), np.uint8))


def parse(data: bytes | memoryview, count: int, width: int) -> Records:
    """Return the records in some bytes, whose number must be that of the records."""
    octets = np.frombuffer(data, np.uint8)
    if width <= _WIDEST_NUMBER:
        return _Narrow(width, _unpack(octets, count, width))
    return _Wide(np.unpackbits(octets, count=count * width).reshape(count, width))


def parse_ranges(data: bytes | memoryview, count: int, width: int) -> Iterator[Records]:
    """Yield the records in some bytes, a range of them at a time."""
    for start, stop in ranges(count, width):
        octets = data[start * width // 8 : length(stop, width)]
        yield parse(octets, stop - start, width)


def join(pieces: Sequence[bytes], width: int) -> Records:
    r"""Return records of which each is given as separate bytes: the inverse of `split`.

    >>> records = join([b"\xba\x00", b"\x04\x80"], 9)
    >>> records.to_bytes().hex(), records.split()
    ('ba0240', [b'\xba\x00', b'\x04\x80'])
    """
    octets = np.frombuffer(b"".join(pieces), np.uint8).reshape(len(pieces), length(1, width))
    return from_rows(octets, 1, width)


def from_rows(octets: Bits, count: int, width: int) -> Records:
    """Return the records in rows of bytes, with the same number of records in each row.

    >>> from_rows(np.array([[93], [2]], np.uint8), count=2, width=3).get(0, 3)
    array([2, 7, 0, 0], dtype=uint16)
    """
    if count > 1:
        bits = np.unpackbits(octets, axis=1)[:, : count * width].reshape(-1, width)
        octets = np.packbits(bits, axis=1)
    if width > _WIDEST_NUMBER:
        return _Wide(np.unpackbits(octets, axis=1)[:, :width])
    numbers = np.zeros((len(octets), 8), np.uint8)
    for place in range(octets.shape[1]):
        numbers[:, place] = octets[:, place]
    aligned = numbers.view(">u8").reshape(-1) >> np.uint64(64 - width)
    return _Narrow(width, aligned.astype(_number_type(width)))


def length(count: int, width: int) -> int:
    """Return how many bytes a number of records take."""
    return (count * width + 7) // 8


@final
class _Narrow(Records):
    def __init__(self, width: int, numbers: Unsigned) -> None:
        self._width = width
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def take(self, rows: Integers) -> "Records":
        return _Narrow(self._width, self._numbers[rows])

    def put(self, first: int, width: int, numbers: Any, rows: Integers | None = None) -> None:
        shift = self._width - first - width
        shifted = numbers.astype(self._numbers.dtype)
        if shift:
            shifted <<= shift
        if rows is None:
            self._numbers |= shifted
        else:
            self._numbers[rows] |= shifted

    def put_bits(self, first: int, bits: Bits, rows: Integers | None = None) -> None:
        for place, column in enumerate(bits.T, first):
            self.put(place, 1, column, rows)

    def get(self, first: int, width: int) -> Unsigned:
        if width == self._width:
            return self._numbers
        field: Unsigned = self._numbers >> self._numbers.dtype.type(self._width - first - width)
        field &= field.dtype.type((1 << width) - 1)
        return field

    def get_bits(self, first: int, width: int) -> Bits:
        columns = [self.get(place, 1).astype(np.uint8) for place in range(first, first + width)]
        return np.stack(columns, axis=1)

    def to_bytes(self) -> bytes:
        return _pack(self._numbers, self._width)

    def split(self) -> list[bytes]:
        aligned = self._numbers.astype(np.uint64) << np.uint64(64 - self._width)
        octets = aligned.astype(">u8").view(np.uint8).reshape(-1, 8)
        return _pieces(octets[:, : length(1, self._width)])


@final
class _Wide(Records):
    def __init__(self, bits: Bits) -> None:
        self._bits = bits

    def __len__(self) -> int:
        return len(self._bits)

    def take(self, rows: Integers) -> "Records":
        return _Wide(self._bits[rows])

    def put(self, first: int, width: int, numbers: Any, rows: Integers | None = None) -> None:
        octets = numbers.astype(">u4").view(np.uint8).reshape(-1, 4)
        self.put_bits(first, np.unpackbits(octets, axis=1)[:, 32 - width :], rows)

    def put_bits(self, first: int, bits: Bits, rows: Integers | None = None) -> None:
        self._bits[slice(None) if rows is None else rows, first : first + bits.shape[1]] = bits

    def get(self, first: int, width: int) -> Unsigned:
        padded = np.zeros((len(self._bits), 32), np.uint8)
        padded[:, 32 - width :] = self._bits[:, first : first + width]
        return np.packbits(padded, axis=1).view(">u4").astype(np.uint32).reshape(-1)

    def get_bits(self, first: int, width: int) -> Bits:
        return self._bits[:, first : first + width]

    def to_bytes(self) -> bytes:
        return np.packbits(self._bits).tobytes()

    def split(self) -> list[bytes]:
        return _pieces(np.packbits(self._bits, axis=1))


def _pieces(octets: Bits) -> list[bytes]:
    """Return the rows of a table of bytes, each as bytes of its own."""
    data, step = octets.tobytes(), octets.shape[1]
    return [data[place : place + step] for place in range(0, len(data), step)]


def _number_type(width: int) -> type[np.unsignedinteger[Any]]:
    return np.uint16 if width <= 16 else np.uint32 if width <= 32 else np.uint64


# Eight records of w bits are w bytes. So the records with the same remainder modulo eight, and
# the bytes with the same remainder modulo w, are shifted alike: all of them in one operation.


def _pack(numbers: Unsigned, width: int) -> bytes:
    count = len(numbers)
    if count % 8:
        numbers = np.concatenate([numbers, np.zeros(-count % 8, numbers.dtype)])
    planes = np.ascontiguousarray(numbers.reshape(-1, 8).T)
    octets = np.empty((planes.shape[1], width), np.uint8)
    merged = np.empty_like(planes[0])
    for place in range(width):
        _overlay(planes, width, 8 * place, 8 * (place + 1), merged)
        octets[:, place] = merged
    return octets.tobytes()[: length(count, width)]


def _unpack(octets: Bits, count: int, width: int) -> Unsigned:
    if count % 8:
        octets = np.concatenate([octets, np.zeros(-len(octets) % width, np.uint8)])
    planes = octets.reshape(-1, width).T.astype(_number_type(width), order="C")
    numbers = np.empty((8, planes.shape[1]), planes.dtype)
    for place in range(8):
        _overlay(planes, 8, place * width, (place + 1) * width, numbers[place])
    numbers &= (1 << width) - 1
    return numbers.T.reshape(-1)[:count]


def _overlay(planes: Unsigned, width: int, start: int, end: int, out: Unsigned) -> None:
    """Write the bits from start to end of a row of planes, each of which has `width` bits."""
    first, last = start // width, (end - 1) // width
    _shift(planes[first], end - width * (first + 1), out)
    for number in range(first + 1, last + 1):
        out |= _shift(planes[number], end - width * (number + 1))


def _shift(numbers: Unsigned, left: int, out: Unsigned | None = None) -> Unsigned:
    if left >= 0:
        return np.left_shift(numbers, left, out=out)
    return np.right_shift(numbers, -left, out=out)
