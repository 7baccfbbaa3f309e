"""What an agent was asked, so that owners can compare whether all were asked the same.

Each question becomes an entry with its job, its round and the SHA-256 of its plan and its model.
The ledger keeps the entries in a hash chain. Agents that were asked the same questions in the same
order have the same head, and owners who compare their heads by some other way than the server find
out if it asked them differently. Where they differ, the server's own signatures prove it: an agent
keeps the statement with which the server has signed the question of each round
(`fedldp_fleet.questions.Statement`), and a second one for the same round beside it.

The chain holds every question that a vehicle has answered, and those of signed jobs that no vehicle
has answered, one for each round. What else was refused is in a list beside it, which has an end.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, final

from .common import (
    MOST_REFUSED,
    Link,
    PublicKey,
    asked_and_refused,
    canonical,
    documents,
    follow,
)
from .questions import Question, Statement

FORMAT = "fedldp transparency 1"
ASKED = "fedldp asked 1"

_OF_ENTRY = "job", "round", "plan", "model"


def entry(question: Question) -> str:
    """Return the entry of a question, as canonical JSON.

    >>> AskedQuestion.of(entry(Question("spring", 1, "{}"))).where
    'spring, round 1'
    """
    plan, model = _sha256(question.plan), _sha256(question.model)
    return _text(question.job, question.round, plan, model)


@final
@dataclass(frozen=True)
class AskedQuestion:
    """One entry: the model is empty if vehicles were asked for their rows."""

    job: str
    round: int
    plan: str  # SHA-256, in hexadecimal
    model: str

    @classmethod
    def of(cls, text: str) -> "AskedQuestion":
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
class SignedStatement:
    """What a server has signed, and the key that the operator has named as the server's."""

    server: str
    statement: str

    @property
    def verified(self) -> Statement:
        """The statement; `WireError` if this key has not signed it."""
        return Statement.verified(self.statement, PublicKey.from_text(self.server))

    def contradicts(self, other: "SignedStatement") -> bool:
        """Return whether one server has signed both, and they state different questions."""
        return self.server == other.server and self.verified.contradicts(other.verified)


@final
@dataclass(frozen=True)
class Transparency:
    """All that an agent was asked."""

    asked: tuple[AskedQuestion, ...]  # the chain
    refused: tuple[AskedQuestion, ...] = ()  # the list
    stated: tuple[SignedStatement, ...] = ()  # the evidence

    @classmethod
    def of(
        cls, links: Iterable[Link], refused: Iterable[str], stated: Iterable[SignedStatement] = ()
    ) -> "Transparency":
        """Return what a ledger holds, and what the server has signed."""
        asked = tuple(AskedQuestion.of(link.entry) for link in links)
        return cls(asked, tuple(map(AskedQuestion.of, refused)), tuple(stated))

    @classmethod
    def read(cls, path: Path, stated: Iterable[SignedStatement] = ()) -> "Transparency":
        """Read the ledger of an agent, which may be running or never have been started."""
        return cls.of(*asked_and_refused(path), stated) if path.exists() else cls(())

    @property
    def head(self) -> str:
        """The head of the chain, in hexadecimal."""
        return follow(each.text for each in self.asked).hex()

    @property
    def is_full(self) -> bool:
        """Whether the list of refused questions has reached its end."""
        return len(self.refused) >= MOST_REFUSED

    @property
    def jobs(self) -> list[str]:
        """The jobs in the chain, in the order in which they began."""
        return list(dict.fromkeys(each.job for each in self.asked))

    def of_job(self, job: str) -> "Transparency":
        """Return what was asked in one job; its head is that of the job's own chain."""
        asked, refused = (
            tuple(each for each in some if each.job == job) for some in (self.asked, self.refused)
        )
        return Transparency(asked, refused)

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
            "stated": [{"server": s.server, "statement": s.statement} for s in self.stated],
        }

    @classmethod
    def from_json(cls, text: str) -> "Transparency":
        """Read what another owner has printed, and check that its heads fit; or `WireError`."""
        with documents.reading(repr(FORMAT), ". Use `fedldp agent transparency --json`."):
            entries = "head", "jobs", "questions", "refused", "stated"
            document = documents.parse(text, [FORMAT], entries)
            asked, refused = (
                tuple(
                    AskedQuestion.of(canonical({"format": ASKED, **each}))
                    for each in document[name]
                )
                for name in ("questions", "refused")
            )
            stated = [
                SignedStatement(each["server"], each["statement"]) for each in document["stated"]
            ]
            for each in stated:
                each.verified  # noqa: B018 (raises if it is not signed)
            found = cls(asked, refused, tuple(stated))
            if json.loads(json.dumps(found.to_document())) != document:
                raise ValueError("its heads do not fit its questions")
        return found

    def proofs(
        self, other: "Transparency | None" = None
    ) -> list[tuple[SignedStatement, SignedStatement]]:
        """Return pairs of statements that prove that one server asked differently in a round."""
        here = _stated_by_round(self.stated)
        there = _stated_by_round(self.stated if other is None else other.stated)
        return [
            pair
            for where in here.keys() & there.keys()
            for pair in product(here[where], there[where])
            if pair[0].contradicts(pair[1]) and (other or pair[0].statement < pair[1].statement)
        ]

    def differences(self, other: "Transparency") -> list[str]:
        """Return what differs, a sentence for each; nothing if both heads are equal.

        >>> first = AskedQuestion("spring", 1, "a", "")
        >>> one = Transparency((first, AskedQuestion("spring", 2, "a", "m")))
        >>> one.differences(Transparency((first,)))
        ['spring, round 2: asked here only.']
        >>> one.differences(Transparency((one.asked[0], AskedQuestion("spring", 2, "a", "n"))))
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


def _stated_by_round(
    stated: Iterable[SignedStatement],
) -> dict[tuple[str, int], list[SignedStatement]]:
    found: dict[tuple[str, int], list[SignedStatement]] = {}
    for each in stated:
        statement = each.verified
        found.setdefault((statement.job, statement.round), []).append(each)
    return found


def _by_round(asked: Iterable[AskedQuestion]) -> dict[str, list[AskedQuestion]]:
    found: dict[str, list[AskedQuestion]] = {}
    for each in asked:
        found.setdefault(each.where, []).append(each)
    return found


def _what_differs(mine: list[AskedQuestion], theirs: list[AskedQuestion]) -> str:
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
