"""The messages between an agent and the server, whatever road they take.

An agent calls, and is offered the open rounds and perhaps a place in them. It announces that it
draws, delivers its answer, and gets an acknowledgement. A lease is in seconds from the reply on, so
that clocks need not agree. Nothing here depends on the data but the records in an answer.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, final

from .common import WireError, documents, vehicle
from .questions import check_name

CALL, OFFERS = "fedldp call 1", "fedldp offers 1"
MOST_VEHICLES = 1 << 20  # that an agent states at once
MOST_JOBS = 1000  # in a call
MOST_BITS = 1 << 27  # of all records of an answer
IDENTIFIER = 16

_VERSION = 1
_ANSWER = struct.Struct(">B64sI32s16sII")  # version, job, round, digest, identifier, places, length
_ACKNOWLEDGEMENT = struct.Struct(">B16s16sB")  # version, incarnation, identifier, verdict
_ANNOUNCEMENT = struct.Struct(">B64sI")  # version, job, round


@final
@dataclass(frozen=True)
class Call:
    """What an agent says when it calls: how many of its vehicles may still answer each job.

    >>> Call.from_bytes(Call({"spring": 3}).to_bytes())
    Call(able={'spring': 3})
    """

    able: Mapping[str, int]

    def to_bytes(self) -> bytes:
        """Return the call as it is sent."""
        return vehicle.canonical({"format": CALL, "able": dict(self.able)}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Call":
        """Read a call, or raise `WireError`."""
        with documents.reading(repr(CALL)):
            able = documents.parse(data, [CALL], ("able",))["able"]
            if not isinstance(able, dict) or len(able) > MOST_JOBS:
                raise ValueError("able must be an object with at most 1,000 jobs")
            for name, vehicles in able.items():
                check_name(name, "job")
                if type(vehicles) is not int or not 0 <= vehicles <= MOST_VEHICLES:
                    raise ValueError("able must be numbers of vehicles")
        return cls(able)


class Place(NamedTuple):
    """Room for some vehicles in a round, for some seconds."""

    vehicles: int
    lease: float


class Offer(NamedTuple):
    """An open round of a job, and the place that the agent has in it."""

    job: str
    signed: str  # the SHA-256 of the signed job, in hexadecimal
    statement: str  # which names the question
    place: Place | None


@final
@dataclass(frozen=True)
class Offers:
    """The reply to a call: all open rounds, and when to call again."""

    incarnation: bytes
    retry: float  # seconds
    offers: tuple[Offer, ...] = ()

    def to_bytes(self) -> bytes:
        """Return the reply as it is sent."""
        jobs = [each._asdict() for each in self.offers]
        for each in jobs:
            each["place"] = each["place"] and list(each["place"])
        document = {"format": OFFERS, "incarnation": self.incarnation.hex(), "retry": self.retry}
        return vehicle.canonical(document | {"jobs": jobs}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Offers":
        """Read a reply, or raise `WireError`."""
        with documents.reading(repr(OFFERS)):
            document = documents.parse(data, [OFFERS], ("incarnation", "retry", "jobs"))
            offers = tuple(_offer(each) for each in document["jobs"])
            incarnation = bytes.fromhex(document["incarnation"])
            return cls(incarnation, _seconds(document["retry"]), offers)


def _offer(document: Any) -> Offer:
    if document.keys() != set(Offer._fields):
        raise ValueError("an offer has other entries")
    check_name(document["job"], "job")
    place = document["place"]
    if place is not None:
        vehicles, lease = place
        if type(vehicles) is not int or not 1 <= vehicles <= MOST_VEHICLES:
            raise ValueError("a place is for other numbers of vehicles")
        place = Place(vehicles, _seconds(lease))
    return Offer(document["job"], str(document["signed"]), str(document["statement"]), place)


def _seconds(value: Any) -> float:
    if not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ValueError("a time is not a number of seconds")
    return float(value)


class Announcement(NamedTuple):
    """An agent will draw now, for the place that it has in a round.

    >>> Announcement.from_bytes(Announcement("spring", 1).to_bytes())
    Announcement(job='spring', round=1)
    """

    job: str
    round: int

    def to_bytes(self) -> bytes:
        """Return the announcement as it is sent."""
        return _ANNOUNCEMENT.pack(_VERSION, self.job.encode(), self.round)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Announcement":
        """Read an announcement, or raise `WireError`."""
        with documents.reading("announcement"):
            _, job, number = _unpacked(_ANNOUNCEMENT, data)
            return cls(_name(job), number)


@final
@dataclass(frozen=True)
class Answer:
    """The report of the vehicles of one place, under an identifier that no other answer has.

    Its length depends on the place alone: zeros follow the report if fewer vehicles answer.

    >>> answer = Answer("spring", 1, bytes(32), b"sixteen bytes...", 2, b"report", bits=8)
    >>> found = Answer.from_bytes(answer.to_bytes())
    >>> found.identifier, found.report, len(answer.to_bytes())
    (b'sixteen bytes...', b'report', 143)
    """

    job: str
    round: int
    question: bytes  # the SHA-256 of the question that was answered
    identifier: bytes
    places: int
    report: bytes
    bits: int = 0  # of a record; the receiver knows it from the plan

    def to_bytes(self) -> bytes:
        """Return the answer as it is sent."""
        head = _ANSWER.pack(
            _VERSION,
            self.job.encode(),
            self.round,
            self.question,
            self.identifier,
            self.places,
            len(self.report),
        )
        size = vehicle.HEADER_BYTES - (-self.places * self.bits // 8)
        return head + self.report + bytes(max(0, size - len(self.report)))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Answer":
        """Read an answer, or raise `WireError`; its report is checked by whoever knows the plan."""
        with documents.reading("answer"):
            head = _unpacked(_ANSWER, data[: _ANSWER.size])
            _, job, number, question, identifier, places, length = head
            report, rest = data[_ANSWER.size :][:length], data[_ANSWER.size + length :]
            if len(report) != length or rest.strip(b"\0"):
                raise ValueError("its report has another length")
            return cls(_name(job), number, question, identifier, places, report)


class AnswerVerdict(IntEnum):
    """What became of an answer."""

    COUNTED = 0  # it is stored, and counts in its round
    LATE = 1  # its round was closed before: it never counts
    REFUSED = 2  # it is invalid, or more than the agent is enrolled for
    EARLY = 3  # its round has not begun: send it again later

    @property
    def final(self) -> bool:
        """Whether the agent need not send the answer again."""
        return self is not AnswerVerdict.EARLY


class Acknowledgement(NamedTuple):
    """What a server says about an answer, after that is on disk.

    >>> said = Acknowledgement(bytes(16), b"sixteen bytes...", AnswerVerdict.COUNTED)
    >>> Acknowledgement.from_bytes(said.to_bytes()) == said
    True
    """

    incarnation: bytes
    identifier: bytes
    verdict: AnswerVerdict

    def to_bytes(self) -> bytes:
        """Return the acknowledgement as it is sent."""
        return _ACKNOWLEDGEMENT.pack(_VERSION, *self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Acknowledgement":
        """Read an acknowledgement, or raise `WireError`."""
        with documents.reading("acknowledgement"):
            _, incarnation, identifier, verdict = _unpacked(_ACKNOWLEDGEMENT, data)
            return cls(incarnation, identifier, AnswerVerdict(verdict))


def _unpacked(form: struct.Struct, data: bytes) -> tuple[Any, ...]:
    if len(data) != form.size:
        raise WireError(f"expected {form.size} bytes; got {len(data)}.")
    found = form.unpack(data)
    if found[0] != _VERSION:
        raise WireError(f"expected version {_VERSION}; got {found[0]}.")
    return found


def _name(padded: bytes) -> str:
    return check_name(padded.rstrip(b"\0").decode("ascii"), "job")
