"""Reports on the wire: one small header, then a record of a few bits per vehicle.

The format is described in docs/wire-format.md.
"""

import struct
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, final

from fedldp import vehicle
from fedldp._internal import packing
from fedldp._internal.text import counted
from fedldp.errors import WireError

__all__ = ["Report"]

VERSION = vehicle.WIRE_VERSION
MOST_REPORTS = (1 << 32) - 1

_HEAD = struct.Struct(">B7sI")  # version, the plan's fingerprint cut short, number of records
_CHECK = struct.Struct(">I")
HEADER = _HEAD.size + _CHECK.size

_PIECE = 1 << 20  # bytes
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
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0, mechanism="duchi")
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
        >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0, mechanism="duchi")
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
        >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0, mechanism="duchi")
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


def read(stream: BinaryIO, plan: str, width: int) -> bytes | None:
    """Return the next of several reports in a stream, or None at its end.

    Only the header is validated here.
    """
    header = stream.read(HEADER)
    if not header:
        return None
    _, size = _sizes(memoryview(header), plan, width)
    # In pieces: a header alone must not make a server allocate the memory that it announces.
    packet = bytearray(header)
    while piece := stream.read(min(size - len(packet), _PIECE)):
        packet += piece
    return bytes(packet)


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


def _short(fingerprint: str) -> bytes:
    return bytes.fromhex(fingerprint[:14])
