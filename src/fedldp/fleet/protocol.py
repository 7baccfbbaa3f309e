"""The messages of a fleet: a question to many vehicles, and the answer to it.

The length of an answer depends neither on the data of the vehicles nor on how many of them
answered: there is room for as many records as were asked for. The records are in ascending order,
so that their positions do not reveal who sent them; zeros fill the rest.
"""

import hashlib
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, final

from fedldp import vehicle
from fedldp._internal import documents, packing
from fedldp.budget.periods import read_plan_or_period
from fedldp.errors import DomainError, WireError
from fedldp.plan.report import Report

FORMAT = "fedldp question 1"
FORMAT_2 = "fedldp question 2"  # of a signed job
FORMATS = FORMAT, FORMAT_2
VERSION = 1
MOST = 1 << 20  # vehicles asked at once
MOST_BITS = 1 << 27  # of all records of an answer
MOST_BYTES = 1 << 22  # of a question
LAST_ROUND = 1 << 31

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HEAD = struct.Struct(">B16sIII")  # version, the question's digest cut short, n, answered, silent
_CHECK = struct.Struct(">I")
HEADER = _HEAD.size + _CHECK.size
_ZEROS = memoryview(bytes(1 << 16))


@final
@dataclass(frozen=True)
class Question:
    """What n vehicles are asked in one round of a job; the vault chooses which vehicles answer.

    Without a model, they are asked for their rows; with a model, for their gradients.

    >>> question = Question(job="spring", round=1, gateway="7", n=2, plan="{}")
    >>> Question.from_bytes(question.to_bytes()) == question
    True
    """

    job: str
    round: int  # from 1
    gateway: str  # that passes it on: if several do, a vault answers only the first
    n: int
    plan: str  # as JSON: a plan, or a period of a calendar, with the plan in it
    model: str = ""  # as JSON
    signed: str = ""  # what the operator has signed of the job, if it is a signed job

    def __post_init__(self) -> None:
        for name in ("job", "gateway"):
            value = getattr(self, name)
            if not isinstance(value, str) or not _NAME.fullmatch(value):
                raise DomainError(
                    f"{name} must be 1 to 64 letters, digits or any of . _ -; got {value!r:.80}."
                )
        for name, most in (("round", LAST_ROUND), ("n", MOST)):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise DomainError(f"{name} must be from 1 to {most}; got {value!r:.80}.")
        for name in ("plan", "model", "signed"):
            if not isinstance(value := getattr(self, name), str):
                raise DomainError(f"{name} must be a text of JSON; got {type(value).__name__}.")

    @property
    def width(self) -> int:
        """The number of bits of a record that answers it; an invalid plan raises `WireError`."""
        return _width(self.plan)

    @property
    def size(self) -> int:
        """The number of bytes of the answer to it."""
        return HEADER + packing.length(self.n, self.width)

    def check(self) -> None:
        """Raise an error if the plan is invalid or the answer would be too large."""
        if self.n * self.width > MOST_BITS:
            raise DomainError(
                f"all records of an answer must have at most {MOST_BITS} bits; got {self.n} "
                f"records of {self.width} bits. Ask fewer vehicles."
            )

    @property
    def plan_alone(self) -> str:
        """The plan, without the calendar that it may belong to; `WireError` if that is invalid."""
        return _asked(self.plan).plan

    @property
    def request(self) -> str:
        """The round of the job: a vault answers only one question for it."""
        return f"{self.job}/{self.round}"

    @property
    def paid_for(self) -> str:
        """What a ledger records that a vehicle has paid for: the round of the job, or the period.

        So a vehicle answers a period of a calendar once, even if several jobs ask for it.
        """
        period = _asked(self.plan).period
        return period or self.request

    @cached_property
    def digest(self) -> bytes:
        """The SHA-256 of what is asked.

        What the operator has signed is not part of it. So a job that is signed again, because it
        has expired or has more rounds, can repeat its open questions.
        """
        return hashlib.sha256(replace(self, signed="").to_bytes()).digest()

    def to_bytes(self) -> bytes:
        """Return the question as it is sent. Equal questions give equal bytes."""
        document = {"format": FORMAT} | {name: getattr(self, name) for name in _ENTRIES}
        if self.signed:
            document |= {"format": FORMAT_2, "signed": self.signed}
        return vehicle.canonical(document).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Question":
        """Read a question, or raise `WireError`."""
        with documents.reading(repr(FORMAT)):
            if len(data) > MOST_BYTES:
                raise ValueError("it is too long")
            document = documents.parse(data, FORMATS, _ENTRIES, "signed")
            question = cls(**{name: document[name] for name in document if name != "format"})
            documents.check_written(question.to_bytes().decode(), data.decode())
        return question


_asked = lru_cache(maxsize=8)(read_plan_or_period)  # the same plan comes in every round


@lru_cache(maxsize=8)
def _width(plan: str) -> int:
    try:
        return vehicle.Plan(_asked(plan).plan, vehicle.ANY_EPSILON).bits
    except ValueError as error:
        raise WireError(f"the plan of a question is invalid: {error}") from None


_ENTRIES = ("job", "round", "gateway", "n", "plan", "model")


@final
@dataclass(frozen=True)
class Answer:
    """The answer to a question: the records of the vehicles that answered, and some counts.

    Of the n vehicles that were asked for, some answered, some refused or were absent, and some are
    silent: their vault did not answer in time, and may be asked the same question again.
    """

    question: bytes  # its digest
    n: int
    width: int  # bits of a record
    silent: int
    answered: int
    records: bytes  # packed

    @classmethod
    def of(cls, question: Question, records: Iterable[bytes] = (), silent: int = 0) -> "Answer":
        """Return the answer with some records, each given as separate bytes."""
        ordered, width = sorted(records), question.width
        packed = packing.join(ordered, width).to_bytes()
        return cls(question.digest, question.n, width, silent, len(ordered), packed)

    @classmethod
    def merged(cls, question: Question, parts: "Sequence[Answer]") -> "Answer":
        """Return the answers of several vaults as one answer."""
        if len(parts) == 1 and parts[0].question == question.digest:
            return parts[0]  # its records are packed and sorted already
        records = [record for part in parts for record in part.split()]
        return cls.of(question, records, sum(part.silent for part in parts))

    @staticmethod
    def unread(question: Question) -> bytes:
        """Return what a vault sends instead of an answer if it does not read the plan.

        It is an answer without records and without the zeros in their place: how many those are
        can only be known from the plan.
        """
        head = _HEAD.pack(VERSION, question.digest[:16], question.n, 0, 0)
        return head + _CHECK.pack(zlib.crc32(head))

    def split(self) -> list[bytes]:
        """Return the records, each as separate bytes."""
        return packing.parse(self.records, self.answered, self.width).split()

    def report(self, plan: str) -> Report:
        """Return the records as a report on the plan with this fingerprint."""
        return Report(plan, self.width, self.answered, self.records)

    @property
    def size(self) -> int:
        """The number of bytes that are sent, which does not depend on the records."""
        return HEADER + packing.length(self.n, self.width)

    def to_bytes(self) -> bytes:
        """Return the answer as it is sent."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Return the answer in pieces, so that the zeros after the records take no memory."""
        head = _HEAD.pack(VERSION, self.question[:16], self.n, self.answered, self.silent)
        zeros = self.size - HEADER - len(self.records)
        check = zlib.crc32(self.records, zlib.crc32(head))
        for piece in _zeros(zeros):
            check = zlib.crc32(piece, check)
        return chain((head + _CHECK.pack(check), self.records), _zeros(zeros))

    @classmethod
    def from_bytes(cls, data: Any, question: Question) -> "Answer":
        """Read the answer to a question, or raise `WireError`.

        The errors quote nothing from the answer: the server logs each different text once, and a
        hostile gateway must not fill its disk.
        """
        width = question.width
        if not isinstance(data, bytes) or len(data) != question.size:
            raise WireError("the answer does not have the length that the question asks for.")
        head, area = data[: _HEAD.size], data[HEADER:]
        version, short, n, answered, silent = _HEAD.unpack(head)
        if (version, short, n) != (VERSION, question.digest[:16], question.n):
            raise WireError("the answer is to another question, or has another format.")
        if _CHECK.unpack(data[_HEAD.size : HEADER]) != (zlib.crc32(area, zlib.crc32(head)),):
            raise WireError("the answer was damaged in transit: its checksum is wrong.")
        if answered + silent > n:
            raise WireError("the answer is from more vehicles than were asked.")
        end = packing.length(answered, width)
        spare = -answered * width % 8
        if area[end:].strip(b"\0") or (spare and area[end - 1] & ((1 << spare) - 1)):
            raise WireError("the answer has bits after its last record.")
        return cls(question.digest, n, width, silent, answered, area[:end])


def _zeros(count: int) -> Iterator[memoryview]:
    for start in range(0, count, len(_ZEROS)):
        yield _ZEROS[: count - start]


def deflated(data: bytes) -> bytes:
    """Return a question compressed, as it is sent to a gateway: plans are repetitive.

    >>> inflated(deflated(b"question" * 100)) == b"question" * 100
    True
    """
    return zlib.compress(data, 9)


def inflated(data: bytes) -> bytes:
    """Return what `deflated` was given; raise `WireError` if it is damaged or too long."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise WireError(f"the question was damaged in transit: {error}.") from None
    if not stream.eof or stream.unused_data:
        raise WireError(f"the question is incomplete, or longer than {MOST_BYTES} bytes.")
    return found
