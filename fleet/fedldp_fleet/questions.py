"""What agents are asked: a question is the same bytes for all of them, and the server signs it.

A question is a job, a round, a plan and, unless vehicles answer their rows, a document that names
what they compute, such as a model. Agents fetch it by its hash. With each round the server signs a
statement, the hash of its question. Two statements for one round prove that it asked differently.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, final

from .common import (
    DomainError,
    PlanOrPeriod,
    PrivateKey,
    TrustedKeys,
    WireError,
    documents,
    read_plan_or_period,
    signing,
    vehicle,
)

FORMAT = "fedldp question 3"
STATEMENT = "fedldp statement 1"
MOST_BYTES = 1 << 22  # of a question
LAST_ROUND = 1 << 31

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ENTRIES = ("job", "round", "plan", "model")


@final
@dataclass(frozen=True)
class Question:
    """What vehicles are asked in a round of a job.

    >>> question = Question("spring", 1, "{}")
    >>> Question.from_bytes(question.to_bytes()) == question
    True
    """

    job: str
    round: int  # from 1
    plan: str  # as JSON: a plan, or a period of a calendar, with the plan in it
    model: str = ""  # what vehicles compute, as JSON; empty if they answer their rows

    def __post_init__(self) -> None:
        check_name(self.job, "job")
        if type(self.round) is not int or not 1 <= self.round <= LAST_ROUND:
            raise DomainError(f"round must be from 1 to {LAST_ROUND}; got {self.round!r:.80}.")

    @cached_property
    def digest(self) -> bytes:
        """The SHA-256 of the question."""
        return hashlib.sha256(self.to_bytes()).digest()

    @property
    def asked(self) -> PlanOrPeriod:
        """The plan, and the period that it is asked in; `WireError` if a calendar is invalid."""
        return _read_plan_or_period(self.plan)

    def to_bytes(self) -> bytes:
        """Return the question as it is sent. Equal questions give equal bytes."""
        model = json.loads(self.model) if self.model else None
        plan = json.loads(self.plan)
        document = {"format": FORMAT, "job": self.job, "round": self.round}
        return vehicle.canonical(document | {"plan": plan, "model": model}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Question":
        """Read a question, or raise `WireError`."""
        with documents.reading(repr(FORMAT)):
            if len(data) > MOST_BYTES:
                raise ValueError("it is too long")
            document = documents.parse(data, [FORMAT], _ENTRIES)
            plan, model = (_text(document[name]) for name in ("plan", "model"))
            question = cls(document["job"], document["round"], plan, model)
            documents.check_written(question.to_bytes().decode(), data.decode())
        return question


_read_plan_or_period = lru_cache(maxsize=8)(
    read_plan_or_period
)  # the same plan comes in every round


def _text(document: Any) -> str:
    if document is not None and not isinstance(document, dict):
        raise ValueError("a plan or a model must be a JSON object")
    return "" if document is None else vehicle.canonical(document)


def check_name(name: Any, what: str) -> str:
    """Return the name of a job or an agent; raise `DomainError` if it is invalid."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DomainError(
            f"the name of a {what} must be 1 to 64 letters, digits or any of . _ -; "
            f"got {name!r:.80}."
        )
    return name


@final
@dataclass(frozen=True)
class Statement:
    """What a server says that it asks in a round."""

    job: str
    round: int
    question: bytes  # the SHA-256 of the question

    def signed(self, server: PrivateKey) -> str:
        """Return the statement, signed: the same text for all agents."""
        return signing.sign(
            server,
            {
                "format": STATEMENT,
                "job": self.job,
                "round": self.round,
                "question": self.question.hex(),
            },
        )

    @classmethod
    def verified(cls, text: str, server: TrustedKeys) -> "Statement":
        """Read a statement that this server has signed, or raise `WireError`."""
        document = signing.verify(server, text, STATEMENT)
        with documents.reading(repr(STATEMENT)):
            question = bytes.fromhex(document["question"])
            found = cls(check_name(document["job"], "job"), int(document["round"]), question)
            if len(question) != hashlib.sha256().digest_size:
                raise ValueError("the hash of its question has another length")
        return found

    def contradicts(self, other: "Statement") -> bool:
        """Return whether it states another question for the same round.

        >>> one, other = Statement("spring", 1, bytes(32)), Statement("spring", 1, b"1" * 32)
        >>> one.contradicts(other), one.contradicts(one)
        (True, False)
        """
        same = (self.job, self.round) == (other.job, other.round)
        return same and self.question != other.question

    def check(self, question: Question) -> None:
        """Raise `WireError` if a question is not the one that is stated."""
        if (question.job, question.round, question.digest) != (self.job, self.round, self.question):
            raise WireError("the server has sent another question than it has signed.")
