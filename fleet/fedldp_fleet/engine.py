"""The job engine: a state machine over a store. It knows no road, and no clock of its own.

A job is queued, running, done or failed. A running job has one open round. A call may get a place
in it; a place that is announced is waited for, one that is not expires. A round closes when it has
the answers that it wants or, after its deadline, when no announced place is left; then the server
learns and opens the next round. Every method runs in a transaction of its caller.
"""

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol, final

from fedldp.errors import DomainError, FedLDPError
from fedldp.learn.optimizer import settled
from fedldp.plan.plan import Plan
from fedldp.results.tally import Tally
from fedldp.signing import PrivateKey
from fedldp.vehicle import canonical
from fedldp_fleet import jobs
from fedldp_fleet.common import documents
from fedldp_fleet.jobs import Job
from fedldp_fleet.messages import (
    MOST_BITS,
    MOST_VEHICLES,
    Acknowledgement,
    Announcement,
    Answer,
    AnswerVerdict,
    Call,
    Offer,
    Offers,
    Place,
)
from fedldp_fleet.questions import Statement
from fedldp_fleet.signed_jobs import SignedJob
from fedldp_fleet.stages import Descent, Learned, spans
from fedldp_fleet.store.base import (
    DONE,
    FAILED,
    QUEUED,
    RUNNING,
    JobRow,
    Member,
    PlaceRow,
    RoundRow,
    Transaction,
    Uncounted,
)

ALL_ROUNDS = "all rounds are done"
SETTLED = "the model has settled"
CLOSED = "the job was open until now"
NOTHING = "no vehicle answered, so there is nothing to learn from"

EXCESS = "enrolled for fewer vehicles"  # why an answer is refused

IDLE_POLL_SECONDS = 300.0  # in which an agent that is not needed calls once
LONGEST_WAIT_SECONDS = 900.0  # for each round that is left, of an agent that has no place yet
ROUNDS_PER_DEADLINE = 4  # calls are spread as if a round took a quarter of its longest time
NETWORK_SECONDS = 20.0  # that a lease leaves for messages, beyond the time to answer
SHORTEST_RETRY_SECONDS = 1.0
MOST_PLACES = 1 << 14  # vehicles in one place

INCARNATION, ORIGIN = "incarnation", "origin"
INCARNATION_BYTES = 16
UNKNOWN_JOB = "job"  # why an answer cannot count

Spread = Callable[[float, float], float]

_SYSTEM = random.SystemRandom()


class Jobs(Protocol):
    """Where the jobs of answers are looked up: a transaction, or what was read in one before."""

    def job(self, name: str) -> JobRow | None:
        """Return a job."""


class Parsed(NamedTuple):
    """What is in the report of an answer, as far as its plan decides it."""

    vehicles: int
    reason: str  # why it cannot count; empty if it can


@final
class Engine:
    """Runs the jobs of a server.

    Parameters
    ----------
    key
        The server's key, with which it signs what it asks.
    spread
        A function that draws a number between two others: when agents call again.
    most_places
        The largest number of vehicles in a place: the chunk of an agent with many vehicles.
    idle_poll
        Seconds in which an agent that waits for no place calls once, and hears of a new job.
    """

    def __init__(
        self,
        key: PrivateKey,
        spread: Spread = _SYSTEM.uniform,
        most_places: int = MOST_PLACES,
        idle_poll: float = IDLE_POLL_SECONDS,
    ) -> None:
        self._key, self._spread, self._most_places = key, spread, most_places
        self._idle_poll = idle_poll

    # What the operator does

    def add(self, store: Transaction, job: Job, signed: str) -> str:
        """Queue a job, or extend the one that has its name; return what was done.

        Raise `DomainError` if another job has its name, or the operator has signed another one.
        """
        if SignedJob.unverified(signed) != jobs.to_sign(job, self._key.public):
            raise DomainError(
                f"the operator has not signed this job {job.name!r} for this server. Sign it: "
                "fedldp server job sign FILE --key operator.key"
            )
        before = store.job(job.name)
        if before is None:
            learned = job.start.to_json()
            store.set_job(JobRow(job.name, job.to_json(), signed, QUEUED, 0, learned))
            return "queued"
        if (before.document, before.signed) == (job.to_json(), signed):
            return "unchanged"
        if before.state == FAILED or not job.extends(jobs.read_job(before.document)):
            raise DomainError(
                f"there is a job {job.name!r} already, which asks something else or has failed. A "
                "job can be extended: more answers of a statistic, more rounds of a training, or a "
                "later end. For everything else choose another name."
            )
        self._extend(store, before, job, signed)
        return "extended"

    def _extend(self, store: Transaction, before: JobRow, job: Job, signed: str) -> None:
        row = before._replace(document=job.to_json(), signed=signed)
        number = before.round
        opened = store.round(job.name, number) if number else None
        if before.state == DONE:
            row = row._replace(state=RUNNING, reason="", result="")
        if opened is not None:
            last = number == jobs.rounds_of(job)
            wanted = jobs.span_of(job, number).stage.wanted
            if opened.closed is None or (last and wanted > opened.answers):
                deadline = max(opened.deadline, _deadline(job, opened.opened))
                store.set_round(opened._replace(wanted=wanted, deadline=deadline, closed=None))
                store.set_job(row)
                return
            row = row._replace(state=QUEUED)  # the next round is opened as the first one is
        store.set_job(row)

    # What agents do

    def call(
        self,
        store: Transaction,
        agent: str,
        call: Call,
        now: float,
        *,
        holder: str = "",
        most_bits: int = MOST_BITS,
    ) -> Offers:
        """Return the open rounds, with the places that an agent gets, and when to call again.

        Where vehicles share one enrollment, each has a place of its own: `holder` is its name. An
        answer for a place has at most `most_bits` bits.
        """
        offers: list[Offer] = []
        waits: list[float] = []
        member = _member(store, agent)
        for row, opened in _running(store):
            job, able = _job(row.document), call.able.get(row.name, 0)
            free = member.vehicles - store.used(row.name, agent) if member is not None else 0
            able, place = min(able, free, _largest(job, opened, most_bits)), None
            if able > 0:
                place = self._place(store, holder or agent, job, opened, able, now)
                if place is None:
                    waits.append(self._wait(job, opened.number, able))
            offers.append(_offer(row, opened, place))
        for row in _between_rounds(store):
            job = _job(row.document)
            able = call.able.get(row.name, 1 if member is None else member.vehicles)
            if able > 0:
                begins = max(0.0, job.schedule.opens.timestamp() - now)
                waits.append(begins + self._wait(job, row.round + 1, able))
        idle = self._idle_poll * self._spread(0.5, 1.0)
        retry = max(SHORTEST_RETRY_SECONDS, min(waits, default=idle))
        return Offers(self._incarnation(store), round(retry, 3), tuple(offers))

    def open_rounds(self, store: Transaction, now: float, most_bits: int = MOST_BITS) -> Offers:
        """Return the open rounds as all agents may be told of them at once.

        In a lot, the vehicles that have drawn this round need no places of their own: the place is
        everybody's, for as long as the round is open.
        """
        offers, retry = [], self._idle_poll
        for row, opened in _running(store):
            job, place = _job(row.document), None
            if job.schedule.order == "lot" and opened.deadline > now:
                if jobs.rounds_of(job) > 1:
                    retry = min(retry, job.schedule.round_seconds / ROUNDS_PER_DEADLINE)
                vehicles = min(_largest(job, opened, most_bits), self._most_places)
                if opened.answers < opened.wanted:
                    place = Place(vehicles, round(opened.deadline - now, 3))
            offers.append(_offer(row, opened, place))
        return Offers(self._incarnation(store), retry, tuple(offers))

    def _place(
        self, store: Transaction, agent: str, job: Job, opened: RoundRow, able: int, now: float
    ) -> Place | None:
        """Return the place of an agent: the one that it has, or a new one if there is room."""
        held = store.place(job.name, agent)
        if held is not None and held.round == opened.number and held.expires > now:
            return Place(held.vehicles, held.expires - now)
        if held is not None:
            store.remove_place(held)
            opened = _same(store, opened)
        if opened.wanted - opened.answers - opened.placed < 1:
            for each in store.expired_places(job.name, now):
                store.remove_place(each)
            opened = _same(store, opened)
        seconds = job.schedule.answer_seconds
        lease = min(seconds + NETWORK_SECONDS, opened.deadline - now)
        room = opened.wanted - opened.answers - opened.placed
        vehicles = min(able, room, self._most_places, MOST_VEHICLES)
        if vehicles < 1 or lease < seconds:
            return None
        store.set_place(PlaceRow(job.name, agent, opened.number, vehicles, now + lease))
        return Place(vehicles, lease)

    def _wait(self, job: Job, number: int, able: int) -> float:
        """Return when an agent without a place calls again: spread over the rounds to come.

        One whose vehicles can give many answers comes sooner, as often as several agents would.
        """
        left = max(0, jobs.rounds_of(job) - number + 1)
        longest = left * job.schedule.round_seconds / ROUNDS_PER_DEADLINE
        return self._spread(0.0, min(longest, LONGEST_WAIT_SECONDS * max(1, left)) / able)

    def announce(self, store: Transaction, agent: str, said: Announcement, now: float) -> bool:
        """Wait for the place of an agent, which draws now; return whether it still has it."""
        row = store.job(said.job)
        held = store.place(said.job, agent)
        if row is None or row.state != RUNNING or held is None or held.round != said.round:
            return False
        if held.expires <= now:
            return False
        if not held.announced:
            until = now + _job(row.document).schedule.round_seconds
            store.set_place(held._replace(announced=True, expires=until))
        return True

    def parse(self, store: Jobs, answers: Sequence[Answer]) -> list[Parsed]:
        """Return what is in some answers, each checked as the plan of its round wants it."""
        found: list[Parsed] = [Parsed(0, UNKNOWN_JOB)] * len(answers)
        groups: dict[tuple[str, int], list[int]] = {}
        for place, answer in enumerate(answers):
            groups.setdefault((answer.job, answer.round), []).append(place)
        for (name, number), places in groups.items():
            row = store.job(name)
            if row is None or number > jobs.rounds_of(_job(row.document)):
                continue
            plan = jobs.span_of(_job(row.document), number).plan(number)
            counted = plan.count([answers[each].report for each in places], most_listed=len(places))
            refused = {each.number: each.reason for each in counted.listed}
            for at, place in enumerate(places):
                vehicles = vehicles_in(answers[place].report) if at not in refused else 0
                found[place] = Parsed(vehicles, refused.get(at, ""))
        return found

    def deliver(
        self,
        store: Transaction,
        agent: str,
        answer: Answer,
        parsed: Parsed,
        now: float,
        *,
        holder: str = "",
    ) -> Acknowledgement:
        """Store an answer, and return what is said about it once the transaction is on disk."""
        verdict, reason = self._verdict(store, agent, answer, parsed)
        if verdict is AnswerVerdict.COUNTED and not reason and parsed.vehicles:
            store.add_answer(
                answer.job, answer.round, answer.identifier, parsed.vehicles, answer.report
            )
            store.add_used(answer.job, agent, parsed.vehicles)
        if reason == EXCESS:
            store.add_used(answer.job, agent, 0, excess=parsed.vehicles)
        if reason and reason != _REPEATED:
            vehicles = parsed.vehicles or 1
            store.add_uncounted(Uncounted(answer.job, answer.round, reason, vehicles))
        held = store.place(answer.job, holder or agent) if verdict.final else None
        if held is not None and held.round == answer.round:
            store.remove_place(held)
        return Acknowledgement(self._incarnation(store), answer.identifier, verdict)

    def _verdict(
        self, store: Transaction, agent: str, answer: Answer, parsed: Parsed
    ) -> tuple[AnswerVerdict, str]:
        """Return what becomes of an answer, and why it is not stored."""
        row, member = store.job(answer.job), _member(store, agent)
        if row is None or member is None:
            return AnswerVerdict.REFUSED, ""  # strangers and unknown jobs must not fill the store
        opened = store.round(answer.job, answer.round)
        stored = store.answer(answer.job, answer.round, answer.identifier)
        if stored is not None:
            same = stored == answer.report
            return (
                (AnswerVerdict.COUNTED, _REPEATED) if same else (AnswerVerdict.REFUSED, "conflict")
            )
        if parsed.reason:
            return AnswerVerdict.REFUSED, parsed.reason
        if opened is not None and opened.closed is not None:
            return AnswerVerdict.LATE, "late"
        if opened is None and answer.round <= row.round:
            return (
                AnswerVerdict.LATE,
                "late",
            )  # of a store that is lost: the model has learned from it
        if opened is None and not (row.restored and answer.round > row.round):
            return AnswerVerdict.EARLY, ""
        if opened is not None and opened.digest != answer.question and not row.restored:
            return AnswerVerdict.REFUSED, "question"
        if store.used(answer.job, agent) + parsed.vehicles > member.vehicles:
            return AnswerVerdict.REFUSED, EXCESS
        return AnswerVerdict.COUNTED, ""

    def _incarnation(self, store: Transaction) -> bytes:
        return bytes.fromhex(store.value(INCARNATION))

    # What time does

    def tick(self, store: Transaction, now: float) -> list[JobRow]:
        """Open and close what is due; return the jobs that have stepped or ended."""
        changed = []
        for row in store.active_jobs():
            after = self._advanced(store, row, now)
            if after is not None:
                changed.append(after)
        return changed

    def _advanced(self, store: Transaction, row: JobRow, now: float) -> JobRow | None:
        job = _job(row.document)
        if row.state == QUEUED:
            if now < job.schedule.opens.timestamp():
                return None
            if now < job.schedule.closes.timestamp():
                return self._open(store, row, row.round + 1, now)
            return self._finish(store, row, CLOSED)
        opened = store.round(row.name, row.round)
        if opened is None:
            raise DomainError(f"the store has no round {row.round} of the job {row.name!r}.")
        if opened.answers < opened.wanted:
            if now < opened.deadline:
                return None
            for each in store.expired_places(row.name, now):
                store.remove_place(each)
            if any(each.announced for each in store.places(row.name)):
                return None
            over = now >= job.schedule.closes.timestamp()
            if not opened.answers and not over:  # a round without answers stays open
                store.set_round(_same(store, opened)._replace(deadline=_deadline(job, now)))
                return None
        elif job.schedule.order == "lot":
            # Vehicles that draw now were not told yet that nobody else is needed: they count, too.
            soon = now + job.schedule.answer_seconds + NETWORK_SECONDS
            if soon < opened.deadline:
                store.set_round(opened._replace(deadline=soon))
            if now < opened.deadline:
                return None
        return self._close(store, row, _same(store, opened), now)

    def _open(self, store: Transaction, row: JobRow, number: int, now: float) -> JobRow:
        job = _job(row.document)
        asked = jobs.question(job, number, Learned.from_json(row.learned))
        statement = Statement(job.name, number, asked.digest).signed(self._key)
        store.add_question(asked.digest, asked.to_bytes())
        wanted = jobs.span_of(job, number).stage.wanted
        store.set_round(
            RoundRow(
                job.name,
                number,
                asked.digest,
                statement,
                wanted,
                now,
                _deadline(job, now),
                answers=store.answered(job.name, number),  # of an incarnation before
            )
        )
        row = row._replace(state=RUNNING, round=number)
        store.set_job(row)
        return row

    def _close(self, store: Transaction, row: JobRow, opened: RoundRow, now: float) -> JobRow:
        """Close a round: learn from its answers, and open the next one or end the job."""
        job, number = _job(row.document), opened.number
        for each in store.places(row.name):
            store.remove_place(each)
        store.set_round(_same(store, opened)._replace(closed=now))
        over = now >= job.schedule.closes.timestamp()
        span = jobs.span_of(job, number)
        cycle = span.cycle(number)
        if number == cycle[-1]:
            tallies = [self.tally(store, job, each) for each in cycle]
            if not any(tally.reports for tally in tallies):
                return self._finish(store, row, CLOSED)
            try:
                learned = span.stage.learn(Learned.from_json(row.learned), tallies)
                text = learned.to_json()
                job.check(Learned.from_json(text))
            except FedLDPError as error:
                return self._finish(store, row, f"in round {number}: {error}", failed=True)
            row = row._replace(learned=text)
            if isinstance(span.stage, Descent) and _has_settled(span.stage, learned):
                return self._finish(store, row, SETTLED)
        if number == jobs.rounds_of(job):
            return self._finish(store, row, ALL_ROUNDS)
        return self._finish(store, row, CLOSED) if over else self._open(store, row, number + 1, now)

    def tally(self, store: Transaction, job: Job, number: int) -> Tally:
        """Count the answers of a round."""
        plan: Plan = jobs.span_of(job, number).plan(number)
        return plan.count(store.answers(job.name, number)).tally

    def _finish(
        self, store: Transaction, row: JobRow, reason: str, *, failed: bool = False
    ) -> JobRow:
        job, result = _job(row.document), ""
        if not failed:
            *_, last = spans(job.stages)
            rounds = store.rounds(job.name)
            answered = any(each.answers for each in rounds if each.number >= last.first)
            learned = Learned.from_json(row.learned)
            failed = not answered and not learned.has_begun
            reason = NOTHING if failed else reason
            if not failed:
                result = job.result(learned, lambda number: self.tally(store, job, number))
        row = row._replace(state=FAILED if failed else DONE, reason=reason, result=result)
        store.set_job(row)
        return row


_REPEATED = "repeated"
_STATE = "fedldp job state at a step 1"
_STATE_ENTRIES = ("job", "learned", "reason", "result", "round", "signed", "state")


def start(store: Transaction, incarnation: bytes) -> None:
    """Give a store its first incarnation, or another one after it was restored."""
    if store.value(INCARNATION):
        for row in store.active_jobs():
            store.set_job(row._replace(restored=True))
    store.set_value(INCARNATION, incarnation.hex())


def settle(store: Transaction, incarnation: bytes) -> bool:
    """Start another incarnation if the store is a new one, a copy, or what took over.

    Return whether it is.
    """
    origin = store.origin()
    if store.value(INCARNATION) and store.value(ORIGIN) == origin:
        return False
    start(store, incarnation)
    store.set_value(ORIGIN, origin)
    return True


def state_of(row: JobRow) -> str:
    """Return what a second place keeps of a job that learns, at each step; empty for a statistic.

    A statistic is rebuilt from its answers, which agents send again.
    """
    job, number = _job(row.document), row.round
    if not row.learned:
        return ""
    if row.state == RUNNING:
        number = jobs.span_of(job, number).cycle(number)[0] - 1
    document = {"format": _STATE, "job": row.document, "learned": row.learned, "round": number}
    others = {"reason": row.reason, "result": row.result, "signed": row.signed, "state": row.state}
    return canonical(document | others)


def resume(store: Transaction, text: str, now: float) -> bool:
    """Continue a job from what `state_of` has returned; return whether the store is not as far.

    Answers to its rounds up to there are late from now on: the model has learned from them.
    Answers to later rounds count, whatever model they are about.
    """
    with documents.reading(repr(_STATE)):
        given = documents.parse(text, [_STATE], _STATE_ENTRIES)
        job, number = _job(given["job"]), given["round"]
        Learned.from_json(given["learned"])
        if type(number) is not int or not 0 <= number <= jobs.rounds_of(job):
            raise ValueError(f"round must be one of the job's; got {number!r:.80}")
        state = given["state"] if given["state"] in (DONE, FAILED) else QUEUED
    before = store.job(job.name)
    if before is not None and (before.round > number or before.state in (DONE, FAILED)):
        return False
    for opened in store.rounds(job.name):
        if opened.number <= number and opened.closed is None:
            store.set_round(opened._replace(closed=now))
    for place in store.places(job.name):
        store.remove_place(place)
    row = JobRow(job.name, given["job"], given["signed"], state, number, given["learned"])
    row = row._replace(reason=given["reason"], result=given["result"], restored=True)
    store.set_job(row)
    return True


def vehicles_in(report: bytes) -> int:
    """Return how many vehicles a valid report holds."""
    return int.from_bytes(report[8:12], "big")


_job = lru_cache(maxsize=64)(jobs.read_job)


def _running(store: Transaction) -> Iterator[tuple[JobRow, RoundRow]]:
    """Yield the running jobs and their open rounds."""
    for row in store.active_jobs():
        opened = store.round(row.name, row.round) if row.state == RUNNING else None
        if opened is not None and opened.closed is None:
            yield row, opened


def _between_rounds(store: Transaction) -> Iterator[JobRow]:
    """Yield the jobs whose next round has still to be opened: soon, or when they begin."""
    running = {row.name for row, _ in _running(store)}
    yield from (row for row in store.active_jobs() if row.name not in running)


def _offer(row: JobRow, opened: RoundRow, place: Place | None) -> Offer:
    signed = hashlib.sha256(row.signed.encode()).hexdigest()
    return Offer(row.name, signed, opened.statement, place)


def _largest(job: Job, opened: RoundRow, most_bits: int) -> int:
    """Return how many vehicles an answer of so many bits can hold."""
    return most_bits // jobs.span_of(job, opened.number).plan(opened.number).bits


def _member(store: Transaction, agent: str) -> Member | None:
    """Return an agent, unless it is revoked."""
    found = store.member(agent)
    return None if found is None or found.revoked else found


def _same(store: Transaction, opened: RoundRow) -> RoundRow:
    """Return a round as this transaction has left it."""
    return store.round(opened.job, opened.number) or opened


def _deadline(job: Job, now: float) -> float:
    """Return until when a round gives places: a statistic has one round, which takes all time."""
    closes = job.schedule.closes.timestamp()
    return closes if jobs.rounds_of(job) == 1 else min(closes, now + job.schedule.round_seconds)


def _has_settled(stage: Descent, learned: Learned) -> bool:
    state = learned.state
    return stage.recipe.optimizer.tol > 0 and state is not None and settled(stage.recipe, state)
