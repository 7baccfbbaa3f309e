"""The agent's loop: it calls, checks what is asked, answers, and repeats until it is acknowledged.

A question is checked in this order before any data are read: the operator's signature of the job,
the server's statement, the time, the owner's policy, the plan, the cap. Then the rest of the lease,
by the monotonic clock, must suffice for the job's public `answer_seconds`, and the server must say
that it waits. When the agent calls, and when it sends, depends on the server, the clock and public
numbers, never on the data.
"""

import datetime
import hashlib
import json
import math
import random
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol, final

from ..common import (
    FedLDPError,
    Ledger,
    PlanQuestion,
    TrustedKeys,
    WireError,
    canonical,
    exact,
    read_plan_or_period,
    signing,
    vehicle,
    warn_owner,
)
from ..messages import MOST_BITS, MOST_JOBS, Acknowledgement, Announcement, Answer, Call, Offer
from ..questions import Question, Statement
from ..signed_jobs import SignedJob, SignedStage
from ..transparency import entry as transparency_entry
from .outbox import Entry, Outbox
from .policy import OwnerRules
from .roads import Road, RoadError

TICK_SECONDS = 1.0
RETRY_SECONDS = 5.0  # until the first attempt after the server could not be reached
LONGEST_RETRY_SECONDS = 900.0
LONGEST_RESEND_SECONDS = 30.0  # of an agent whose answer must arrive while its round is open
QUESTION_CACHE_BYTES = 1 << 25
KEPT_AFTER_CLOSE = datetime.timedelta(days=30)  # for a server that is restored

_LARGEST_REASON = 500  # characters of what the owner is told
_MOST_REASONS = 1000
_SYSTEM = random.SystemRandom()

Clock = Callable[[], datetime.datetime]


def utc_now() -> datetime.datetime:
    """Return the time."""
    return datetime.datetime.now(datetime.UTC)


@final
@dataclass(frozen=True, eq=False)
class CheckedQuestion:
    """A question that may be answered, as far as the question itself decides it."""

    question: Question
    asked: PlanQuestion
    job: SignedJob
    work: Any = None  # what the holder has prepared


class Holder(Protocol):
    """Who holds the data of one vehicle or of many, and answers for them."""

    def check(self, question: Question, job: SignedJob, stage: SignedStage) -> CheckedQuestion:
        """Read a question and check its plan, what it computes, and the cap. Read no data."""

    def able(self, checked: CheckedQuestion) -> int:
        """Return how many vehicles may still answer: it follows from the ledger and the owner."""

    def draw(self, checked: CheckedQuestion, most: int) -> list[bytes]:
        """Draw the answers of at most so many vehicles, and return their records, sorted.

        What is returned is paid for and on disk. The same question gets the same records.
        """

    def pack(self, records: Sequence[bytes], bits: int) -> bytes:
        """Pack sorted records of this many bits one after another."""


@final
class Agent:
    """Takes part in the jobs of a server, for the vehicles of one holder.

    Parameters
    ----------
    road
        How to reach the server.
    holder
        Who answers.
    ledger
        The vehicles' ledger, which the holder uses too.
    outbox
        What was drawn and is not yet acknowledged.
    operator
        The public key of the operator: nothing else is answered than what it has signed.
    policy
        What the owner allows beyond the cap.
    tick_seconds
        An answer leaves a multiple of this after the call that brought its question.
    tell
        A function that tells the owner why something was not answered. No reason depends on data.
    """

    def __init__(
        self,
        road: Road,
        holder: Holder,
        ledger: Ledger,
        outbox: Outbox,
        operator: TrustedKeys,
        policy: OwnerRules | None = None,
        *,
        tick_seconds: float = TICK_SECONDS,
        clock: Clock = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        spread: Callable[[float, float], float] = _SYSTEM.uniform,
        tell: Callable[[str], object] = warn_owner,
    ) -> None:
        self._road, self._holder, self._ledger, self._outbox = road, holder, ledger, outbox
        self._operator, self._policy = operator, policy or OwnerRules()
        self._tick, self._clock, self._monotonic = tick_seconds, clock, monotonic
        self._sleep, self._spread, self._tell = sleep, spread, tell
        self._checked: dict[str, CheckedQuestion] = {}  # by job: its open round
        self._jobs: OrderedDict[str, SignedJob] = OrderedDict()  # by the SHA-256 of its text
        self._questions = _Cache(QUESTION_CACHE_BYTES)
        self._told: set[str] = set()
        self._failures = 0
        self.answered = 0  # answers that were drawn since the start
        self.calls = 0
        self.trouble = ""  # why the last attempt has failed

    def trust(self, operator: TrustedKeys) -> None:
        """Answer from now on what this operator has signed, and nothing else."""
        self._operator = operator
        self._jobs.clear()
        self._checked.clear()

    def attempt(self) -> float:
        """Call once; return after how many seconds to call again, whatever has happened."""
        try:
            seconds = self.visit()
        except (OSError, FedLDPError) as error:
            what = "the server" if isinstance(error, RoadError) else "this agent"
            self.trouble = f"{what}: {error}"
            self._tell_once(self.trouble)
            self._failures += 1
            longest = RETRY_SECONDS * 2.0 ** min(self._failures - 1, 10)
            most = LONGEST_RESEND_SECONDS if self._has_to_send() else LONGEST_RETRY_SECONDS
            return self._spread(0.5, 1.0) * min(longest, most)
        self._failures, self.trouble = 0, ""
        return seconds

    def _has_to_send(self) -> bool:
        try:
            return bool(self._outbox.pending() or self._outbox.unsettled())
        except OSError:  # the disk fails: there may be something
            return True

    def visit(self) -> float:
        """Call once, send what is to be sent, answer what is asked; return when to call again.

        Raise `RoadError` if the server cannot be reached, or `OSError` if a disk fails.
        """
        self._settle()
        able = {job: self._able(checked) for job, checked in self._checked.items()}
        began = self._monotonic()
        self.calls += 1
        reply = self._road.call(Call(able))
        self._outbox.renew(reply.incarnation)
        for entry in self._outbox.pending():
            self._deliver(entry)
        offers = {offer.job: offer for offer in reply.offers[:MOST_JOBS]}
        for job in self._checked.keys() - offers.keys():
            del self._checked[job]
        waits = [self._offered(offer, able, began) for offer in offers.values()]
        self._outbox.prune(signing.format_time(self._clock() - KEPT_AFTER_CLOSE))
        return min([reply.retry, *waits])

    def _settle(self) -> None:
        """Find out which answers were drawn before a crash or a failure."""
        for entry in self._outbox.unsettled():
            if self._ledger.stored(entry.request):
                self._outbox.drawn(entry)
            else:
                self._outbox.forget(entry)

    # What is asked

    def _offered(self, offer: Offer, able: dict[str, int], began: float) -> float:
        """Answer an offer if that is possible; return when to call again for it.

        That is at once if there may be more to do, after the lease if a place was not used, and
        otherwise never.
        """
        before = self._checked.pop(offer.job, None)
        try:
            checked = self._read(offer, before)
        except FedLDPError as error:
            self._tell_once(f"{offer.job}: {error}")
            return math.inf
        if checked is None:
            return math.inf
        self._checked[offer.job] = checked
        if offer.place is None:  # the server did not know that vehicles may answer
            return 0.0 if not able.get(offer.job) and self._able(checked) > 0 else math.inf
        until = began + offer.place.lease - checked.job.answer_seconds
        is_counted = self._answered(checked, offer, until)
        if self._able(checked) < 1:
            return math.inf
        return 0.0 if is_counted else offer.place.lease

    def _able(self, checked: CheckedQuestion) -> int:
        try:
            return self._holder.able(self._at_next_chunk(checked))
        except FedLDPError as error:  # a sealed ledger, or one that another question was put to
            self._tell_once(f"{checked.question.job}: {error}")
            return 0

    def _read(self, offer: Offer, before: CheckedQuestion | None) -> CheckedQuestion | None:
        """Check a question; raise `FedLDPError` if it must not be answered."""
        job = self._signed_job(offer)
        statement = Statement.verified(offer.statement, job.server)
        if statement.job != offer.job:
            raise WireError(f"the server has signed a question of the job {statement.job!r}.")
        if self._outbox.state(statement, job.server, offer.statement):
            self._tell_once(
                f"{offer.job}, round {statement.round}: the server has signed two questions. "
                "`fedldp agent transparency` has the proof. An honest server does so only after it "
                "was restored."
            )
        job.check_time(self._clock())
        if (
            before is not None
            and before.job is job
            and before.question.digest == (statement.question)
        ):
            return before
        question = self._question(statement)
        covered = False  # by a job that the operator has signed
        try:
            stage = job.stage_of(question)
            self._policy.check(question.job, *claimed(question))
            checked = self._holder.check(question, job, stage)
            covered = True
            self._policy.check(question.job, checked.asked.plan.epsilon, ())
            return checked
        except FedLDPError:
            self._note(question, covered)
            raise

    def _signed_job(self, offer: Offer) -> SignedJob:
        job = self._jobs.get(offer.signed)
        if job is None:
            text = self._road.signed_job(offer.signed)
            if hashlib.sha256(text.encode()).hexdigest() != offer.signed:
                raise WireError("the server has sent another signed job than it has offered.")
            job = SignedJob.verified(text, self._operator)
            self._jobs[offer.signed] = job
            if len(self._jobs) > MOST_JOBS:
                self._jobs.popitem(last=False)
        if job.job != offer.job:
            raise WireError(f"the operator has signed the job {job.job!r}, not {offer.job!r}.")
        return job

    def _question(self, statement: Statement) -> Question:
        data = self._questions.get(statement.question)
        if data is None:
            data = self._road.question(statement.question)
            if hashlib.sha256(data).digest() != statement.question:
                raise WireError("the server has sent another question than it has signed.")
            self._questions.put(statement.question, data)
        question = Question.from_bytes(data)
        statement.check(question)
        return question

    def _note(self, question: Question, covered: bool) -> None:
        """Record a question that nobody has answered, for the owner."""
        request = f"{question.job}/{question.round}"
        self._ledger.note(request, transparency_entry(question), chained=covered)

    # Answers

    def _answered(self, checked: CheckedQuestion, offer: Offer, until: float) -> bool:
        """Answer for a place; return whether the answer counts. Nothing is drawn in vain."""
        question, place = checked.question, offer.place
        if place is None or self._monotonic() > until:
            return False
        most = min(place.vehicles, MOST_BITS // checked.asked.plan.bits)
        able = self._able(checked)
        if min(able, most) < 1:
            return False
        checked = self._at_next_chunk(checked)
        if not self._road.announce(Announcement(question.job, question.round)):
            return False
        arrived = self._monotonic()
        if arrived > until:  # the reply took too long
            return False
        # Everybody's place in a lot is larger. Who may answer follows from the ledger alone.
        entry = self._entry(checked, offer, min(place.vehicles, able))
        self._outbox.begin(entry)
        try:
            records = self._holder.draw(checked, most)
        except FedLDPError:
            self._outbox.forget(entry)
            self._note(question, covered=True)
            raise
        if not records:
            self._outbox.forget(entry)
            self._note(question, covered=True)
            return False
        self.answered += 1
        self._sleep(-(self._monotonic() - arrived) % self._tick)
        said = self._send(entry, records)
        return said.verdict == 0

    def _at_next_chunk(self, checked: CheckedQuestion) -> CheckedQuestion:
        """Return a question under the name of its next answer: one after those that were drawn."""
        question = checked.question
        drawn = self._outbox.of_round(question.job, question.round)
        if not drawn:
            return checked
        known = any(entry.question == question.digest for entry in drawn)
        entry = "" if known else checked.asked.entry  # it is in the chain once
        named = replace(checked.asked, chunk=drawn[-1].chunk + 1, entry=entry)
        return replace(checked, asked=named)

    def _entry(self, checked: CheckedQuestion, offer: Offer, vehicles: int) -> Entry:
        question, plan = checked.question, checked.asked.plan
        name = canonical([question.job, question.round, checked.asked.request])
        secret = hashlib.sha256(self._ledger.identity + question.digest + name.encode())
        return Entry(
            question.job,
            question.round,
            checked.asked.chunk,
            question.digest,
            offer.statement,
            checked.asked.request,
            checked.asked.content,
            plan.fingerprint,
            str(plan.epsilon),
            plan.bits,
            secret.digest()[:16],
            vehicles,
            signing.format_time(checked.job.closes),
        )

    def _deliver(self, entry: Entry) -> None:
        """Send an answer that was drawn before."""
        size = -(-entry.bits // 8)
        stored = self._ledger.stored(entry.request).values()
        self._send(entry, sorted(answer[-size:] for answer in stored))

    def _send(self, entry: Entry, records: Sequence[bytes]) -> Acknowledgement:
        report = report_of(entry.fingerprint, len(records), self._holder.pack(records, entry.bits))
        answer = Answer(
            entry.job,
            entry.round,
            entry.question,
            entry.identifier,
            entry.vehicles,
            report,
            entry.bits,
        )
        said = self._road.deliver(answer.to_bytes())
        if said.identifier != entry.identifier:
            raise RoadError("the server has acknowledged another answer.")
        if said.verdict.final:
            self._outbox.acknowledge(entry, said.verdict, said.incarnation)
        return said

    def _tell_once(self, reason: str) -> None:
        """Tell the owner something, once: nobody can fill a disk with it."""
        reason = "".join(c if c.isprintable() else "?" for c in reason[:_LARGEST_REASON])
        if reason not in self._told and len(self._told) < _MOST_REASONS:
            self._told.add(reason)
            self._tell(f"fedldp agent: {reason}")


def claimed(question: Question) -> tuple[Fraction, list[str]]:
    """Return the epsilon that a question claims to cost, and the attributes that it needs.

    A plan never costs more than it claims; whether that is so is checked after the owner's policy.
    """
    try:
        plan = json.loads(read_plan_or_period(question.plan).plan)
        work = json.loads(question.model) if question.model else plan
        attributes = [*work["schema"], *([work["target"]] if "target" in work else [])]
        return exact(plan["epsilon"]), [str(attribute["name"]) for attribute in attributes]
    except vehicle.UNREADABLE as error:
        raise WireError(f"not a plan or a model: {error!r:.200}") from None


def report_of(fingerprint: str, vehicles: int, packed: bytes) -> bytes:
    """Return the report of some vehicles, whose records are packed.

    >>> report_of("00" * 32, 1, b"a") == vehicle.packet("00" * 32, b"a")
    True
    """
    start = bytes([vehicle.WIRE_VERSION]) + bytes.fromhex(fingerprint)[:7]
    head = start + vehicles.to_bytes(4, "big")
    return head + zlib.crc32(packed, zlib.crc32(head)).to_bytes(4, "big") + packed


@final
class _Cache:
    """The questions that were fetched last, in a limited number of bytes."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()

    def get(self, digest: bytes) -> bytes | None:
        """Return a question, if it is there."""
        if digest in self._kept:
            self._kept.move_to_end(digest)
        return self._kept.get(digest)

    def put(self, digest: bytes, data: bytes) -> None:
        """Keep a question, and drop the oldest ones."""
        self._kept[digest] = data
        self._size += len(data)
        while self._size > self._most:
            _, dropped = self._kept.popitem(last=False)
            self._size -= len(dropped)
