"""What a vault was asked, so that owners can compare whether all were asked the same.

Each question becomes an entry with its job, its round and the SHA-256 of its plan and its model;
the gateway and the number of vehicles are left out, because they differ between vaults. The ledger
keeps the entries in a hash chain (`fedldp.storage.chain`). Vaults that were asked the same
questions in the same order have the same head, and owners who compare their heads by some other
way than the server find out if it asked them differently.

The chain holds every question that a vehicle has answered. If the vault holds the operator's public
key, it also holds the questions of signed jobs that no vehicle has answered, one for each round.
What else was refused is in a list beside it, which has an end.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from fedldp._internal import documents
from fedldp.budget.ledger import asked_and_refused
from fedldp.fleet.protocol import Question
from fedldp.storage import chain
from fedldp.storage.chain import Link
from fedldp.vehicle import canonical

FORMAT = "fedldp transparency 1"
ASKED = "fedldp asked 1"

_OF_ENTRY = "job", "round", "plan", "model"


def entry(question: Question) -> str:
    """Return the entry of a question, as canonical JSON.

    >>> one = entry(Question(job="spring", round=1, gateway="7", n=2, plan="{}"))
    >>> one == entry(Question(job="spring", round=1, gateway="8", n=90, plan="{}"))
    True
    """
    return entry_of(question.job, question.round, question.plan, question.model)


def entry_of(job: str, number: int, plan: str, model: str = "") -> str:
    """Return the entry of what was asked in a round of a job, as `entry` does."""
    return _text(job, number, _sha256(plan), _sha256(model))


@final
@dataclass(frozen=True)
class Asked:
    """One entry: the model is empty if vehicles were asked for their rows."""

    job: str
    round: int
    plan: str  # SHA-256, in hexadecimal
    model: str

    @classmethod
    def of(cls, text: str) -> "Asked":
        """Read an entry, or raise `WireError`."""
        with documents.reading(repr(ASKED)):
            document = documents.parse(text, [ASKED], _OF_ENTRY)
            found = cls(*(document[name] for name in _OF_ENTRY))
            if type(found.round) is not int or not all(
                isinstance(each, str) for each in (found.job, found.plan, found.model)
            ):
                raise ValueError("its entries have the wrong types")
            documents.check_written(found.text, text)
        return found

    @property
    def text(self) -> str:
        """The entry as canonical JSON."""
        return _text(self.job, self.round, self.plan, self.model)

    @property
    def where(self) -> str:
        """The job and the round, in messages."""
        return f"{self.job}, round {self.round}"

    def to_document(self) -> dict[str, Any]:
        """Return the entry without its format."""
        return {name: getattr(self, name) for name in _OF_ENTRY}


@final
@dataclass(frozen=True)
class Transparency:
    """All that a vault was asked."""

    asked: tuple[Asked, ...]  # the chain
    refused: tuple[Asked, ...] = ()  # the list

    @classmethod
    def of(cls, links: Iterable[Link], refused: Iterable[str]) -> "Transparency":
        """Return what a ledger holds."""
        return cls(tuple(Asked.of(link.entry) for link in links), tuple(map(Asked.of, refused)))

    @classmethod
    def read(cls, path: Path) -> "Transparency":
        """Read the ledger of a vault, which may be running or never have been started."""
        return cls.of(*asked_and_refused(path)) if path.exists() else cls(())

    @property
    def head(self) -> str:
        """The head of the chain, in hexadecimal."""
        return chain.follow(each.text for each in self.asked).hex()

    @property
    def is_full(self) -> bool:
        """Whether the list of refused questions has reached its end."""
        return len(self.refused) >= chain.MOST_REFUSED

    @property
    def jobs(self) -> list[str]:
        """The jobs in the chain, in the order in which they began."""
        return list(dict.fromkeys(each.job for each in self.asked))

    def of_job(self, job: str) -> "Transparency":
        """Return what was asked in one job; its head is that of the job's own chain."""
        return Transparency(
            *(
                tuple(each for each in some if each.job == job)
                for some in (self.asked, self.refused)
            )
        )

    def to_document(self) -> dict[str, Any]:
        """Return JSON for other owners: it says nothing about vehicles."""
        return {
            "format": FORMAT,
            "head": self.head,
            "jobs": [
                {"job": job, "head": some.head, "questions": len(some.asked)}
                for job, some in ((job, self.of_job(job)) for job in self.jobs)
            ],
            "questions": [each.to_document() for each in self.asked],
            "refused": [each.to_document() for each in self.refused],
        }

    @classmethod
    def from_json(cls, text: str) -> "Transparency":
        """Read what another owner has printed, and check that its heads fit; or `WireError`."""
        with documents.reading(repr(FORMAT), ". Use `fedldp fleet transparency --json`."):
            entries = "head", "jobs", "questions", "refused"
            document = documents.parse(text, [FORMAT], entries)
            lists = [
                tuple(Asked.of(canonical({"format": ASKED, **each})) for each in document[name])
                for name in ("questions", "refused")
            ]
            found = cls(*lists)
            if json.loads(json.dumps(found.to_document())) != document:
                raise ValueError("its heads do not fit its questions")
        return found

    def differences(self, other: "Transparency") -> list[str]:
        """Return what differs, a sentence for each; nothing if both heads are equal.

        >>> one = Transparency((Asked("spring", 1, "a", ""), Asked("spring", 2, "a", "m")))
        >>> one.differences(Transparency((Asked("spring", 1, "a", ""),)))
        ['spring, round 2: asked here only.']
        >>> one.differences(Transparency((one.asked[0], Asked("spring", 2, "a", "n"))))
        ['spring, round 2: another model was asked there.']
        """
        if self.head == other.head:
            return []
        found = []
        here, there = _by_round(self.asked), _by_round(other.asked)
        for where in dict.fromkeys((*here, *there)):
            mine, theirs = here.get(where), there.get(where)
            if mine is None or theirs is None:
                found.append(f"{where}: asked {'here' if theirs is None else 'there'} only.")
            elif mine != theirs:
                found.append(f"{where}: {_what_differs(mine, theirs)} was asked there.")
        return found or ["the same questions were asked in another order."]


def _by_round(asked: Iterable[Asked]) -> dict[str, list[Asked]]:
    found: dict[str, list[Asked]] = {}
    for each in asked:
        found.setdefault(each.where, []).append(each)
    return found


def _what_differs(mine: list[Asked], theirs: list[Asked]) -> str:
    plans, models = (
        {getattr(each, name) for each in mine} != {getattr(each, name) for each in theirs}
        for name in ("plan", "model")
    )
    if plans and models:
        return "another plan and model"
    return "another plan" if plans else "another model"


def _text(job: str, number: int, plan: str, model: str) -> str:
    return canonical({"format": ASKED, "job": job, "round": number, "plan": plan, "model": model})


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest() if text else ""
