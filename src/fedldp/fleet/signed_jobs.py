"""What the operator of a fleet has signed: which questions a job may ask.

The operator signs a job offline. Vaults that hold the operator's public key then answer only the
questions that it covers, so a server that was taken over cannot ask anything else. Covered are the
name of the job, the plan of every round and what vehicles compute in it (the objective, the
attributes, the layers of a network), the number of rounds, and the time until which it is valid.

What changes from round to round is not covered: the weights of the model, its scaling, the number
of vehicles that are asked, and the gateway.
"""

import datetime
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from fedldp import signing
from fedldp._internal import documents
from fedldp.errors import DomainError
from fedldp.fleet.protocol import LAST_ROUND, Question
from fedldp.learn.computations import Computation, asked_for
from fedldp.signing import Trusted
from fedldp.vehicle import canonical

if TYPE_CHECKING:
    from fedldp.fleet.job import Job

FORMAT = "fedldp signed job 1"

_ENTRIES = {"format", "job", "stages", "expires"}
_OF_STAGE = {"asks", "plans", "rounds"}


@final
@dataclass(frozen=True)
class SignedStage:
    """Some rounds of a signed job that ask for the same."""

    asks: str  # what vehicles compute, as canonical JSON
    plans: tuple[str, ...]  # the SHA-256 of the plans, which the rounds take in turn
    rounds: int

    def check(self, asked: Computation) -> None:
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
    expires: datetime.datetime

    @classmethod
    def of(cls, job: "Job", expires: datetime.datetime) -> "SignedJob":
        """Return what an operator signs of a job."""
        stages = []
        for span in job.spans:
            asks = asked_for(span.plan(span.first).schema, job.question("0", span.first).model)
            rounds = span.cycle(span.first)
            plans = tuple(_sha256(job.question("0", number).plan) for number in rounds)
            stages.append(SignedStage(canonical(asks.declaration), plans, span.stage.rounds))
        return cls(job.name, tuple(stages), expires.replace(microsecond=0))

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
                }
                for stage in self.stages
            ],
            "expires": signing.format_time(self.expires),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "SignedJob":
        """Read what was signed, or raise `WireError`."""
        with documents.reading(repr(FORMAT)):
            if document.keys() != _ENTRIES or not document["stages"]:
                raise ValueError(f"its entries must be {', '.join(sorted(_ENTRIES))}")
            stages = tuple(_stage(each) for each in document["stages"])
            found = cls(str(document["job"]), stages, signing.parse_time(document["expires"]))
            documents.check_written(canonical(found.to_document()), canonical(dict(document)))
        return found

    @classmethod
    def verified(cls, text: str, operator: Trusted, now: datetime.datetime) -> "SignedJob":
        """Read a signed text that this operator has signed and that has not expired.

        Everything else raises `WireError`.
        """
        return cls.from_document(signing.verify(operator, text, FORMAT, now))

    @classmethod
    def unverified(cls, text: str) -> "SignedJob":
        """Read a signed text from one's own folder, without checking who has signed it."""
        return cls.from_document(signing.read_unverified(text, FORMAT))

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
        if _sha256(question.plan) != expected:
            raise DomainError(
                "the plan of the question is not the one that the operator has signed for round "
                f"{question.round}, {expected[:16]}..."
            )
        return stage


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _stage(document: Mapping[str, Any]) -> SignedStage:
    if document.keys() != _OF_STAGE or not document["plans"]:
        raise ValueError(f"the entries of a stage must be {', '.join(sorted(_OF_STAGE))}")
    rounds = document["rounds"]
    if type(rounds) is not int or not 1 <= rounds <= LAST_ROUND:
        raise ValueError(f"a stage must have 1 to {LAST_ROUND} rounds; got {rounds!r:.80}")
    return SignedStage(canonical(document["asks"]), tuple(map(str, document["plans"])), rounds)
