"""Reports on the wire: one small header, then a record of a few bits per vehicle.

The format is described in docs/wire-format.md.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from os import SEEK_END
from typing import Any, BinaryIO, Protocol, final

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal import packing
from fedldp._internal.packets import Octets, Packets
from fedldp._internal.text import counted
from fedldp._internal.validation import Integers
from fedldp.errors import WireError

__all__ = ["Report"]

VERSION = vehicle.WIRE_VERSION
MOST_REPORTS = (1 << 32) - 1

_HEAD = struct.Struct(">B7sI")  # version, the plan's fingerprint cut short, number of records
_CHECK = struct.Struct(">I")
HEADER = _HEAD.size + _CHECK.size

Verdicts = npt.NDArray[np.uint8]  # ACCEPTED, or the number of a reason

# Why a packet is refused, in the order in which it is checked. Only a length that differs from what
# a whole header says is checked later: after the format and the plan.
REASONS = {
    "missing": "there are no bytes",
    "length": "the number of bytes is not what the header says",
    "format": f"the format of a report must be {VERSION}",
    "plan": "the report answers another plan",
    "checksum": "the checksum differs: the report was damaged in transit",
    "code": "a record names an unknown coordinate or code, or has bits beyond it",
}
ACCEPTED, MISSING, LENGTH, FORMAT, PLAN, CHECKSUM, CODE = range(len(REASONS) + 1)

_PIECE = 1 << 22  # bytes
_MOST_RUN = 1 << 16  # packets
_ANOTHER_PLAN = "the report answers another plan: its fingerprint differs."


class Planned(Protocol):
    """What a report needs to know about its plan."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def bits(self) -> int: ...


@final
@dataclass(frozen=True, repr=False)
class Report:
    """What some vehicles send: one record each, all of the same number of bits.

    `Plan.report` makes one from data, `Report.from_bytes` from what a server has received.

    Parameters
    ----------
    plan
        The fingerprint of the plan that the vehicles answer.
    width
        The number of bits of a record.
    vehicles
        The number of vehicles.
    records
        The records, packed one after the other.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> report = plan.report([{"speed": 30}, {"speed": 48}], fedldp.source(1))
    >>> report
    <Report of 2 vehicles, 1 bit each, for plan 6e5cc23400e34c>
    >>> Report.from_bytes(report.to_bytes(), plan) == report
    True
    """

    plan: str
    width: int
    vehicles: int
    records: bytes

    def __repr__(self) -> str:
        vehicles, bits = counted(self.vehicles, "vehicle"), counted(self.width, "bit")
        return f"<Report of {vehicles}, {bits} each, for plan {self.plan[:14]}>"

    @classmethod
    def from_bytes(cls, data: bytes, plan: Planned) -> "Report":
        """Read and validate what `to_bytes` returned.

        Parameters
        ----------
        data
            The bytes of a report.
        plan
            The plan that the report answers: the bytes alone do not say how long a record is.

        Returns
        -------
        Report
            The report.

        Raises
        ------
        WireError
            If the bytes are damaged, or answer another plan.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="duchi"))
        >>> data = plan.report([{"speed": 30}], fedldp.source(1)).to_bytes()
        >>> Report.from_bytes(data, plan).vehicles
        1
        """
        vehicles, records = records_of(data, plan.fingerprint, plan.bits)
        return cls(plan.fingerprint, plan.bits, vehicles, bytes(records))

    def to_bytes(self) -> bytes:
        """Return the report as it is sent.

        Returns
        -------
        bytes
            A header of 16 bytes and the records.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="duchi"))
        >>> len(plan.report([{"speed": 30}] * 8, fedldp.source(1)).to_bytes())
        17
        """
        head = _HEAD.pack(VERSION, _short(self.plan), self.vehicles)
        return head + _CHECK.pack(zlib.crc32(self.records, zlib.crc32(head))) + self.records


def records_of(data: Any, plan: str, width: int) -> tuple[int, memoryview]:
    """Return how many records a report or its bytes hold, and the records."""
    if isinstance(data, Report):
        if (data.plan, data.width) != (plan, width):
            raise WireError(_ANOTHER_PLAN)
        if len(data.records) != packing.length(data.vehicles, width):
            raise WireError(
                f"{counted(data.vehicles, 'record')} of {width} bits have "
                f"{packing.length(data.vehicles, width)} bytes; got {len(data.records)}."
            )
        return _without_spare_bits(data.vehicles, memoryview(data.records), width)
    try:
        view = memoryview(data).cast("B")
    except (TypeError, ValueError):
        raise WireError(f"a report must be a Report or bytes; got {type(data).__name__}.") from None
    vehicles, size = _sizes(view[:HEADER], plan, width)
    if len(view) != size:
        raise WireError(f"a report of {vehicles} vehicles has {size} bytes; got {len(view)}.")
    packed = view[HEADER:]
    (check,) = _CHECK.unpack(view[_HEAD.size : HEADER])
    if zlib.crc32(packed, zlib.crc32(view[: _HEAD.size])) != check:
        raise WireError("the checksum differs: the report was damaged in transit.")
    return _without_spare_bits(vehicles, packed, width)


def _without_spare_bits(vehicles: int, packed: memoryview, width: int) -> tuple[int, memoryview]:
    spare = -vehicles * width % 8
    if spare and packed[-1] & ((1 << spare) - 1):
        raise WireError("there are bits after the last record.")
    return vehicles, packed


def check_headers(packets: Packets, plan: str, width: int) -> tuple[Verdicts, Integers]:
    """Return why each packet is refused because of its header, and its number of vehicles."""
    verdicts = np.zeros(len(packets), np.uint8)
    vehicles = np.zeros(len(packets), np.int64)
    if np.all(packets.lengths >= HEADER):
        long: Integers | slice = slice(None)
    else:
        long = np.flatnonzero(packets.lengths >= HEADER)
        verdicts[packets.lengths < HEADER] = LENGTH
        packets = packets.take(long)
    checksums = packets.field(_HEAD.size - 4, ">u4").astype(np.int64)
    wrong = np.where(packets.lengths != HEADER + (checksums * width + 7) // 8, LENGTH, ACCEPTED)
    start = np.frombuffer(_start(plan), "<u8")
    if np.any(packets.field(0, "<u8") != start):
        wrong[packets.field(0, "<u8") != start] = PLAN
        wrong[packets.field(0, "u1") != VERSION] = FORMAT
    verdicts[long], vehicles[long] = wrong, checksums
    return verdicts, vehicles


def check_bodies(packets: Packets, plan: str, width: int, vehicles: int) -> Verdicts:
    """Return why packets are refused whose headers are valid and name a number of vehicles."""
    size, verdicts = packing.length(vehicles, width), np.zeros(len(packets), np.uint8)
    spare = -vehicles * width % 8
    if spare:
        after = packets.field(HEADER + size - 1, "u1") & np.uint8((1 << spare) - 1)
        verdicts[after != 0] = CODE
    head = zlib.crc32(_HEAD.pack(VERSION, _short(plan), vehicles))
    found = packets.checksums(HEADER, size, head)
    verdicts[found != packets.field(_HEAD.size, ">u4")] = CHECKSUM
    return verdicts


def split(stream: BinaryIO, plan: str, width: int) -> Iterator[Packets]:
    """Yield the packets of a stream in which reports follow one another.

    The rest of a stream whose next header is invalid is one packet, which is refused.
    """
    # In pieces: a header alone must not make a server allocate the memory that it announces.
    left, rest = bytearray(), _remaining(stream)
    while piece := stream.read(_PIECE):
        left += piece
        rest -= len(piece)
        size = _next_size(left, plan, width)
        if len(left) < size <= len(left) + rest:
            continue
        if len(left) < size:
            break  # it says more than there is
        data = np.frombuffer(bytes(left), np.uint8)
        used = 0
        for packets in _runs(data, plan, width):
            used = int(packets.starts[-1] + packets.lengths[-1])
            yield packets
        del left[:used]
        if len(left) >= HEADER and not _is_followed(left, plan):
            yield Packets.of([bytes(left[:HEADER])])
            return
    if left:
        yield Packets.of([bytes(left[:HEADER])])


def _remaining(stream: BinaryIO) -> float:
    """Return how many bytes follow in a stream, and infinity if it is not a file."""
    if not stream.seekable():
        return inf
    here, end = stream.tell(), stream.seek(0, SEEK_END)
    stream.seek(here)
    return end - here


def _runs(data: Octets, plan: str, width: int) -> Iterator[Packets]:
    """Yield the whole packets at the start of some bytes, those of one size at once."""
    start, ahead = 0, 1
    while len(data) - start >= HEADER and _is_followed(data[start : start + HEADER], plan):
        size = _next_size(data[start : start + HEADER], plan, width)
        ahead = min(ahead, (len(data) - start) // size)
        if not ahead:
            return
        places = np.arange(start, start + ahead * size, size, dtype=np.int64)
        packets = Packets(data, places, np.full(ahead, size, np.int64))
        same = packets.field(0, "<u8") == packets.field(0, "<u8")[0]
        same &= packets.field(8, "<u4") == packets.field(8, "<u4")[0]
        run = ahead if same.all() else int(np.argmin(same))
        yield packets.take(slice(run))
        start += run * size
        ahead = min(2 * run, _MOST_RUN)


def _is_followed(header: Any, plan: str) -> bool:
    """Return whether a header tells where the next packet begins."""
    return bytes(header[:8]) == _start(plan)


def _next_size(data: Any, plan: str, width: int) -> int:
    """Return the size of the first packet as far as it is known."""
    if len(data) < HEADER or not _is_followed(data, plan):
        return HEADER
    return HEADER + packing.length(_HEAD.unpack(bytes(data[: _HEAD.size]))[2], width)


def _sizes(header: memoryview, plan: str, width: int) -> tuple[int, int]:
    """Return the number of vehicles and the size of a report, from a header of this plan."""
    if len(header) < HEADER:
        raise WireError(f"a report has a header of {HEADER} bytes; got {len(header)}.")
    version, short, vehicles = _HEAD.unpack(header[: _HEAD.size])
    if version != VERSION:
        raise WireError(f"the format of a report must be {VERSION}; got {version}.")
    if short != _short(plan):
        raise WireError(_ANOTHER_PLAN)
    return vehicles, HEADER + packing.length(vehicles, width)


def _start(plan: str) -> bytes:
    """Return the version and the plan's fingerprint, cut short, with which a report begins."""
    return bytes([VERSION]) + _short(plan)


def _short(fingerprint: str) -> bytes:
    return bytes.fromhex(fingerprint[:14])
