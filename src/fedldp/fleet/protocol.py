"""What a fleet says on its network: a question to many vehicles, and the answer to it.

An answer has the same length whatever the vehicles hold and however many of them answered: it has
room for as many records as were asked for. The records that came are in ascending order, so that
their places say nothing of who sent them; zeros fill the rest.
"""

import hashlib
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, final

from fedldp import vehicle
from fedldp._internal import documents, packing
from fedldp.errors import DomainError, WireError
from fedldp.report import Report

FORMAT = "fedldp question 1"
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
    """What is asked of n vehicles in one round of a job; the vault chooses which ones answer.

    Without a model, they are asked for their rows; with one, for their gradients.

    >>> question = Question(job="spring", round=1, gateway="7", n=2, plan="{}")
    >>> Question.from_bytes(question.to_bytes()) == question
    True
    """

    job: str
    round: int  # from 1
    gateway: str  # that passes it on: of several that do, a vault answers the first
    n: int
    plan: str  # as JSON
    model: str = ""  # as JSON

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
        if not isinstance(self.plan, str) or not isinstance(self.model, str):
            raise DomainError("the plan and the model must be JSON, as a text.")

    @property
    def width(self) -> int:
        """The bits of a record that answers it; a plan that has none raises `WireError`."""
        return _width(self.plan)

    @property
    def size(self) -> int:
        """How many bytes the answer to it has."""
        return HEADER + packing.length(self.n, self.width)

    def check(self) -> None:
        """Refuse an invalid plan, and an answer that would take too much room."""
        if self.n * self.width > MOST_BITS:
            raise DomainError(
                f"{self.n} records of {self.width} bits are more than {MOST_BITS} bits: "
                "ask fewer vehicles."
            )

    @property
    def request(self) -> str:
        """What a vault answers one question for, and no other: a round of a job."""
        return f"{self.job}/{self.round}"

    @cached_property
    def digest(self) -> bytes:
        """A SHA-256 of all of it."""
        return hashlib.sha256(self.to_bytes()).digest()

    def to_bytes(self) -> bytes:
        """Return the question as it is sent: equal questions give equal bytes."""
        document = {"format": FORMAT} | {name: getattr(self, name) for name in _ENTRIES}
        return vehicle.canonical(document).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Question":
        """Read a question, or raise `WireError`."""
        with documents.reading(repr(FORMAT)):
            if len(data) > MOST_BYTES:
                raise ValueError("it is too long")
            document = documents.parse(data, [FORMAT], _ENTRIES)
            question = cls(**{name: document[name] for name in _ENTRIES})
            documents.check_written(question.to_bytes().decode(), data.decode())
        return question


@lru_cache(maxsize=8)  # the same plan comes in every round
def _width(plan: str) -> int:
    try:
        return vehicle.Plan(plan, vehicle.ANY_EPSILON).bits
    except ValueError as error:
        raise WireError(f"the plan of a question is none: {error}") from None


_ENTRIES = ("job", "round", "gateway", "n", "plan", "model")


@final
@dataclass(frozen=True)
class Answer:
    """The answer to a question: the records of those who answered, and how many were silent.

    Of n vehicles asked for, some answered, some refused or were absent, and some are behind a
    vault that said nothing in time: these are the silent ones, which may be asked the same again.
    """

    question: bytes  # its digest
    n: int
    width: int  # bits of a record
    silent: int
    answered: int
    records: bytes  # packed

    @classmethod
    def of(cls, question: Question, records: Iterable[bytes] = (), silent: int = 0) -> "Answer":
        """Return the answer with some records, each given as bytes of its own."""
        ordered, width = sorted(records), question.width
        packed = packing.join(ordered, width).to_bytes()
        return cls(question.digest, question.n, width, silent, len(ordered), packed)

    @classmethod
    def merged(cls, question: Question, parts: "Sequence[Answer]") -> "Answer":
        """Return the answer that the answers of several vaults make up together."""
        if len(parts) == 1 and parts[0].question == question.digest:
            return parts[0]  # the records are packed, and in order
        records = [record for part in parts for record in part.split()]
        return cls.of(question, records, sum(part.silent for part in parts))

    def split(self) -> list[bytes]:
        """Return the records, each as bytes of its own."""
        return packing.parse(self.records, self.answered, self.width).split()

    def report(self, plan: str) -> Report:
        """Return the records as a report on a plan, given by its fingerprint."""
        return Report(plan, self.width, self.answered, self.records)

    @property
    def size(self) -> int:
        """How many bytes are sent: as many whatever was answered."""
        return HEADER + packing.length(self.n, self.width)

    def to_bytes(self) -> bytes:
        """Return the answer as it is sent."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Return the answer in pieces: the zeros after the records take no memory."""
        head = _HEAD.pack(VERSION, self.question[:16], self.n, self.answered, self.silent)
        zeros = self.size - HEADER - len(self.records)
        check = zlib.crc32(self.records, zlib.crc32(head))
        for piece in _zeros(zeros):
            check = zlib.crc32(piece, check)
        return chain((head + _CHECK.pack(check), self.records), _zeros(zeros))

    @classmethod
    def from_bytes(cls, data: Any, question: Question) -> "Answer":
        """Read the answer to a question, or raise `WireError`."""
        width = question.width
        if not isinstance(data, bytes) or len(data) != question.size:
            raise WireError("an answer of another length than the question asks for.")
        head, area = data[: _HEAD.size], data[HEADER:]
        version, short, n, answered, silent = _HEAD.unpack(head)
        if (version, short, n) != (VERSION, question.digest[:16], question.n):
            raise WireError("an answer of another question, or of another format.")
        if _CHECK.unpack(data[_HEAD.size : HEADER]) != (zlib.crc32(area, zlib.crc32(head)),):
            raise WireError("an answer that was damaged on its way.")
        if answered + silent > n:
            raise WireError("an answer of more vehicles than were asked.")
        end = packing.length(answered, width)
        spare = -answered * width % 8
        if area[end:].strip(b"\0") or (spare and area[end - 1] & ((1 << spare) - 1)):
            raise WireError("an answer with bits after its last record.")
        return cls(question.digest, n, width, silent, answered, area[:end])


def _zeros(count: int) -> Iterator[memoryview]:
    for start in range(0, count, len(_ZEROS)):
        yield _ZEROS[: count - start]


def deflated(data: bytes) -> bytes:
    """Return a question as it travels to a gateway: the tables of a plan repeat themselves.

    >>> inflated(deflated(b"question" * 100)) == b"question" * 100
    True
    """
    return zlib.compress(data, 9)


def inflated(data: bytes) -> bytes:
    """Return what was deflated, if it is no longer than a question may be, or raise `WireError`."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise WireError(f"a question that was damaged on its way: {error}.") from None
    if not stream.eof or stream.unused_data:
        raise WireError("a question that is too long, or not whole.")
    return found
