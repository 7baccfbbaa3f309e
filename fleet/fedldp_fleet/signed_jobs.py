"""What the operator of a fleet has signed: which questions a job may ask, when, and which server.

The operator signs a job offline. Agents hold the operator's public key and answer only questions
that a signed job covers, so that a server that was taken over cannot ask anything else. Covered are
the name of the job, the plan of every round and what vehicles compute in it (the objective, the
attributes, the layers of a network), the rounds and the answers that each of them wants, the order
in which vehicles are asked, the time from opening to closing, and the key of the server that asks.

What changes from round to round is not covered: the weights of the model and its scaling.
"""

import datetime
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, final

from .common import (
    DomainError,
    PrivateKey,
    PublicKey,
    TrustedKeys,
    canonical,
    documents,
    signing,
)
from .questions import LAST_ROUND, Question, check_name

FORMAT = "fedldp signed job 2"
ORDERS = ("call", "lot")  # who calls is asked; or each vehicle draws its round beforehand
LONGEST_SECONDS = 604_800.0

_ENTRIES = {"format", "job", "stages", "opens", "closes", "answer_seconds", "order", "server"}
_OF_STAGE = {"asks", "plans", "rounds", "wanted"}


class Declared(Protocol):
    """Anything that vehicles compute."""

    @property
    def declaration(self) -> dict[str, Any]:
        """What is computed, as JSON, without what changes from round to round."""


@final
@dataclass(frozen=True)
class SignedStage:
    """Some rounds of a signed job that ask for the same."""

    asks: str  # what vehicles compute, as canonical JSON
    plans: tuple[str, ...]  # the SHA-256 of the plans, which the rounds take in turn
    rounds: int
    wanted: int  # answers in each round

    def check(self, asked: Declared) -> None:
        """Raise `DomainError` if vehicles are asked to compute something else."""
        if canonical(asked.declaration) != self.asks:
            raise DomainError(
                "the question asks vehicles to compute something else than the operator has "
                "signed: another objective, other attributes or other layers."
            )


@final
@dataclass(frozen=True)
class SignedJob:
    """A job as its operator has signed it."""

    job: str
    stages: tuple[SignedStage, ...]
    opens: datetime.datetime
    closes: datetime.datetime
    answer_seconds: float  # that an agent needs at most to compute and deliver an answer
    order: str
    server: PublicKey

    @property
    def rounds(self) -> int:
        """The number of rounds of all stages."""
        return sum(stage.rounds for stage in self.stages)

    def to_document(self) -> dict[str, Any]:
        """Return what is signed."""
        return {
            "format": FORMAT,
            "job": self.job,
            "stages": [
                {
                    "asks": json.loads(stage.asks),
                    "plans": list(stage.plans),
                    "rounds": stage.rounds,
                    "wanted": stage.wanted,
                }
                for stage in self.stages
            ],
            "opens": signing.format_time(self.opens),
            "closes": signing.format_time(self.closes),
            "answer_seconds": self.answer_seconds,
            "order": self.order,
            "server": self.server.text,
        }

    def signed(self, operator: PrivateKey) -> str:
        """Return the text that the operator signs."""
        return signing.sign(operator, self.to_document())

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "SignedJob":
        """Read what was signed, or raise `WireError`."""
        with documents.reading(repr(FORMAT)):
            if document.keys() != _ENTRIES or not document["stages"]:
                raise ValueError(f"its entries must be {', '.join(sorted(_ENTRIES))}")
            if document["order"] not in ORDERS:
                raise ValueError(f"its order must be one of {', '.join(ORDERS)}")
            found = cls(
                check_name(document["job"], "job"),
                tuple(_stage(each) for each in document["stages"]),
                signing.parse_time(document["opens"]),
                signing.parse_time(document["closes"]),
                float(document["answer_seconds"]),
                document["order"],
                PublicKey.from_text(document["server"]),
            )
            if not 0 < found.answer_seconds <= LONGEST_SECONDS:
                raise ValueError("its answer_seconds must be positive, and at most a week")
            documents.check_written(canonical(found.to_document()), canonical(dict(document)))
        return found

    @classmethod
    def verified(cls, text: str, operator: TrustedKeys) -> "SignedJob":
        """Read a text that this operator has signed, or raise `WireError`."""
        return cls.from_document(signing.verify(operator, text, FORMAT))

    @classmethod
    def unverified(cls, text: str) -> "SignedJob":
        """Read a signed text from one's own folder, without checking who has signed it."""
        return cls.from_document(signing.read_unverified(text, FORMAT))

    def check_time(self, now: datetime.datetime) -> None:
        """Raise `DomainError` if the job is not open."""
        if not self.opens <= now < self.closes:
            raise DomainError(
                f"the job {self.job!r} is open from {signing.format_time(self.opens)} to "
                f"{signing.format_time(self.closes)}; it is {signing.format_time(now)}."
            )

    def stage_of(self, question: Question) -> SignedStage:
        """Return the stage of a question; raise `DomainError` if the job does not cover it.

        It parses neither the plan nor the model: `SignedStage.check` has the last word.
        """
        if question.job != self.job:
            raise DomainError(
                f"the operator has signed the job {self.job!r}, and not {question.job!r}."
            )
        first = 1
        for stage in self.stages:
            if question.round < first + stage.rounds:
                break
            first += stage.rounds
        else:
            raise DomainError(
                f"the operator has signed {self.rounds} rounds; the question is of round "
                f"{question.round}."
            )
        expected = stage.plans[(question.round - first) % len(stage.plans)]
        if sha256_text(question.plan) != expected:
            raise DomainError(
                "the plan of the question is not the one that the operator has signed for round "
                f"{question.round}, {expected[:16]}..."
            )
        return stage

    def round_of(self, lot: int) -> int:
        """Return the round that a number drawn by a vehicle stands for, as rounds want answers."""
        number, lot = 0, lot % sum(stage.rounds * stage.wanted for stage in self.stages)
        for stage in self.stages:
            if lot < stage.rounds * stage.wanted:
                return number + 1 + lot // stage.wanted
            number, lot = number + stage.rounds, lot - stage.rounds * stage.wanted
        raise AssertionError("a remainder is below its divisor")


def sha256_text(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def _stage(document: Mapping[str, Any]) -> SignedStage:
    if document.keys() != _OF_STAGE or not document["plans"]:
        raise ValueError(f"the entries of a stage must be {', '.join(sorted(_OF_STAGE))}")
    for name in ("rounds", "wanted"):
        if type(document[name]) is not int or not 1 <= document[name] <= LAST_ROUND:
            raise ValueError(f"a stage must have 1 to {LAST_ROUND} {name}")
    plans = tuple(map(str, document["plans"]))
    return SignedStage(canonical(document["asks"]), plans, document["rounds"], document["wanted"])
