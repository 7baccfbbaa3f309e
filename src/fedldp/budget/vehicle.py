"""A vehicle answers a plan through its ledger: the only way in which a report leaves a vehicle.

A question gets a name. If the ledger has an answer of this name, it is repeated. Otherwise the
ledger refuses, or the row is read, a record is drawn, paid for and stored, and only then returned.
The data decide nothing but the record: a row that cannot be read counts as missing values.

What a ledger stores for an answer is 16 random bytes and the record. Version 0.2 stored it in three
other forms, which are read too: in all of them, the record comes last.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any, final

from fedldp import vehicle
from fedldp._internal import packing
from fedldp.budget.calendars import Calendar
from fedldp.budget.ledger import MOST_DRAWN, Ledger, check_job
from fedldp.errors import DomainError
from fedldp.plan.plan import Plan, for_vehicle
from fedldp.plan.report import HEADER, Report
from fedldp.randomness import Source
from fedldp.randomness import source as secret_source

__all__ = ["PaidAnswer", "PlanQuestion", "Vehicle", "Vehicles"]

ONLY_VEHICLE = "vehicle"  # the id of a vehicle that shares its ledger with no other
NONCE_BYTES = 16

_MOST_NOTES = 10  # in one line
_PERIODS_AT_ONCE = 1 << 20  # that are drawn for many vehicles

AnyPlan = Plan | vehicle.Plan
RecordsOf = Callable[[list[str]], Iterable[bytes]]


def new_nonce() -> bytes:
    """Return 16 random bytes.

    Returns
    -------
    bytes
        The bytes, from the operating system.

    Examples
    --------
    >>> len(new_nonce())
    16
    """
    return secrets.token_bytes(NONCE_BYTES)


@final
@dataclass(frozen=True)
class PlanQuestion:
    """A plan that is asked, and what a ledger calls the question.

    With a job and a round, their names are the question's name, and there is one question for each
    round. Otherwise it is named by what is asked.

    Parameters
    ----------
    plan
        The plan, checked as a vehicle checks it.
    job
        The job that asks, or an empty text.
    round
        The name of the round, or an empty text.
    digest
        A hash of all that is asked, if that is more than the plan: the model of a gradient.
    period
        The calendar's fingerprint and the number of the period, if the plan belongs to a calendar.
    entry
        What is asked, for the hash chain of the ledger: see `Ledger.release`.
    former
        Other names of this question, in ledgers of earlier versions.
    repeats
        Whether a plan of attributes that never change is answered once in a life: not if it is
        about a gradient, which changes with the model.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0, mechanism="duchi")
    >>> checked = for_vehicle(plan.to_json(), 1)
    >>> PlanQuestion(checked, "spring", "1").request
    'spring/1'
    >>> PlanQuestion(checked).request == plan.fingerprint
    True
    """

    plan: vehicle.Plan
    job: str = ""
    round: str = ""
    digest: bytes = b""
    period: tuple[str, int] | None = None
    entry: str = ""
    former: Sequence[str] = ()
    repeats: bool = True

    @property
    def request(self) -> str:
        """The name of the question in a ledger."""
        if self.period is not None:
            calendar, number = self.period
            return f"{calendar} {number}"
        if self._is_of_round:
            return f"{self.job}/{self.round}"
        what = self.digest.hex() or self.plan.fingerprint
        if self.job:
            return f"{self.job}/{what}"
        return f"{what} {self.round}" if self.round else what

    @property
    def _is_of_round(self) -> bool:
        """Whether its name is that of a round of a job, and says nothing about what is asked."""
        return bool(self.job and self.round) and self.period is None

    @property
    def content(self) -> bytes:
        """A hash of all that is asked."""
        return self.digest or bytes.fromhex(self.plan.fingerprint)

    @property
    def constant(self) -> str | None:
        """The name under which an answer is repeated in other rounds and jobs, if it is."""
        return self.plan.fingerprint if self.repeats and self.plan.constant else None

    @cached_property
    def _start(self) -> bytes:
        """What a report begins with, before its checksum."""
        return self.packet(bytes(packing.length(1, self.plan.bits)))[: HEADER - 4]

    def packet(self, record: bytes) -> bytes:
        r"""Return the report that consists of a record.

        Parameters
        ----------
        record
            The record of one vehicle.

        Returns
        -------
        bytes
            The report as it is sent.

        Examples
        --------
        >>> import fedldp
        >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0, mechanism="duchi")
        >>> packet = PlanQuestion(for_vehicle(plan.to_json(), 1)).packet(b"\x80")
        >>> plan.parse(packet).reports
        1
        """
        return Report(self.plan.fingerprint, self.plan.bits, 1, record).to_bytes()

    def parted(self, stored: bytes) -> tuple[bytes, bytes]:
        r"""Return the nonce and the record of a stored answer.

        Parameters
        ----------
        stored
            What the ledger has, written by this version or by an earlier one.

        Returns
        -------
        tuple of bytes
            The nonce, which is empty if an earlier version has stored none, and the record.

        Raises
        ------
        DomainError
            If it is no answer to this plan.

        Examples
        --------
        >>> import fedldp
        >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0, mechanism="duchi")
        >>> PlanQuestion(for_vehicle(plan.to_json(), 1)).parted(b"sixteen bytes...\x80")
        (b'sixteen bytes...', b'\x80')
        """
        size = packing.length(1, self.plan.bits)
        before, record = stored[:-size], stored[-size:]
        if len(before) == NONCE_BYTES and not before.startswith(self._start):
            return before, record
        if len(before) in (0, HEADER) and len(record) == size:
            return b"", record
        if len(before) == NONCE_BYTES + HEADER and before.startswith(self._start, NONCE_BYTES):
            return before[:NONCE_BYTES], record
        raise DomainError(
            f"what the ledger has stored for {self.request!r} is no answer to this plan: another "
            "program has used this name."
        )


@final
@dataclass(frozen=True, eq=False)
class PaidAnswer:
    """An answer that is on disk and paid for, and may be sent as often as it takes.

    Attributes
    ----------
    report
        What is sent.
    nonce
        Sixteen random bytes that belong to this answer for ever. A server that gets the answer
        twice can know it by them; they are not part of the report.
    repeated
        Whether it was stored before: nothing was spent now.
    plan
        The plan that is answered.
    row
        What the answer was drawn from, for the owner alone. None if a function that returns it was
        not called, or failed.
    failure
        Why that function failed, so that the answer is about missing values; or an empty text.

    Examples
    --------
    >>> import fedldp, tempfile
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0)
    >>> with fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
    ...     answer = Vehicle(ledger, tell=tell_nobody).answer(plan, {"speed": 80})
    >>> answer.repeated, answer.notes, len(answer.report)
    (False, ['speed is clipped (80)'], 17)
    """

    report: bytes
    nonce: bytes
    repeated: bool
    plan: vehicle.Plan
    row: Any = None
    failure: str = ""

    @cached_property
    def notes(self) -> list[str]:
        """What was clipped or replaced in the row, for the owner alone: it must not be sent."""
        if self.failure:
            return [self.failure]
        try:
            return [] if self.row is None else self.plan.check(self.row)
        except Exception as error:  # a note must not decide whether an answer leaves
            return [str(error)]


def tell_owner(answer: PaidAnswer) -> None:
    """Warn the owner of the data on standard error of what an answer has clipped or replaced.

    Nothing that happens there changes anything: see `fedldp.vehicle.warn_owner`.

    Parameters
    ----------
    answer
        The answer.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0)
    >>> tell_owner(PaidAnswer(b"", b"", False, for_vehicle(plan.to_json(), 1), {"speed": 30}))
    """
    if notes := answer.notes:
        vehicle.warn_owner(f"fedldp: warning: {some_notes(notes)}.")


def tell_nobody(answer: PaidAnswer) -> None:
    """Do nothing: for a program that tells the owner later.

    Parameters
    ----------
    answer
        The answer.
    """


def some_notes(notes: list[str]) -> str:
    """Return some notes in one line.

    Parameters
    ----------
    notes
        The notes.

    Returns
    -------
    str
        The first ten of them, and how many there are more.

    Examples
    --------
    >>> some_notes(["speed is missing", "color is unknown"])
    'speed is missing; color is unknown'
    """
    more = [f"and {len(notes) - _MOST_NOTES:,} more"] if len(notes) > _MOST_NOTES else []
    return "; ".join(notes[:_MOST_NOTES] + more)


@final
@dataclass(frozen=True)
class Vehicle:
    """A vehicle that answers plans through a ledger.

    Each question is answered once: if it is asked again, the same bytes are returned, at no cost.
    The ledger refuses what exceeds its cap, or a second answer to a job. Random numbers are those
    of the operating system.

    Parameters
    ----------
    ledger
        The ledger, which other vehicles may share.
    vehicle_id
        The name of this vehicle in the ledger.
    tell
        A function that is called with each answer, to tell the owner what was clipped or replaced.
        By default it is written to standard error.

    Examples
    --------
    >>> import fedldp, tempfile
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0)
    >>> ledger = fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0)
    >>> car = Vehicle(ledger, "car-7")
    >>> answer = car.answer(plan, {"speed": 31}, job="spring")
    >>> plan.parse(answer.report).reports, ledger.spent("car-7")
    (1, Fraction(1, 1))
    >>> car.answer(plan, {"speed": 48}, job="spring").report == answer.report
    True
    >>> car.answer(plan, {"speed": 48}, job="summer")
    Traceback (most recent call last):
    fedldp.errors.BudgetError: 'car-7' has spent 1 of its cap of 1: 1 more is too much...
    """

    ledger: Ledger
    vehicle_id: str = ONLY_VEHICLE
    tell: Callable[[PaidAnswer], None] = tell_owner

    def answer(
        self,
        plan: AnyPlan,
        row: Any,
        *,
        job: str | None = None,
        round: str = "",  # noqa: A002 (the word for it everywhere)
        digest: bytes = b"",
        run: str = "",
        entry: str = "",
        former: Sequence[str] = (),
        nonce: Callable[[], bytes] = new_nonce,
    ) -> PaidAnswer:
        """Answer a plan: with stored bytes, or with new ones that are paid for.

        Parameters
        ----------
        plan
            What is asked. Its integers are checked first, and its cost against the cap.
        row
            The values: a mapping of names, or all values in a sequence. Or a function without
            parameters that returns them. It is called only if nothing else stands against an
            answer, and may take long; if it fails, all values count as missing.
        job
            The job that asks. A vehicle answers a job once, or as often as its ledger allows.
            Without a job, only the cap counts.
        round
            The name of the round. In another round of the same plan, a vehicle pays again.
        digest
            A hash of all that is asked, if that is more than the plan.
        run
            A label for the ledger's history, which changes nothing.
        entry
            What is asked, for the ledger's hash chain.
        former
            Other names of this question, in ledgers of earlier versions.
        nonce
            A function that draws the nonce of a new answer.

        Returns
        -------
        PaidAnswer
            The answer, which is on disk.

        Raises
        ------
        PrivacyError
            If the plan leaks more than it claims, or costs more than the cap.
        BudgetError
            If the vehicle cannot afford the answer, has answered the job, or the ledger is sealed.
        DomainError
            If a parameter is invalid, or another question was asked in this round.
        OSError
            If the ledger cannot be read or written. Nothing is released then.
        """
        checked = _checked(plan, self.ledger)
        question = PlanQuestion(checked, check_job(job), round, digest, entry=entry, former=former)
        return self._answer(question, row, run, nonce)

    def answer_period(self, calendar: Calendar, period: int, row: Any) -> PaidAnswer | None:
        """Answer in a period of a calendar, if the vehicle has drawn this period.

        The first call draws the vehicle's periods, before anything is read, and the ledger keeps
        them. A vehicle that cannot afford all of its answers draws nothing.

        Parameters
        ----------
        calendar
            The calendar.
        period
            The number of the period, from 1.
        row
            The values, or a function that returns them, as for `answer`.

        Returns
        -------
        PaidAnswer or None
            The answer, which is on disk; None in a period in which this vehicle is silent.

        Raises
        ------
        BudgetError
            If the vehicle cannot afford the calendar or this answer, or the ledger is sealed.
        DomainError
            If there is no such period, or a parameter is invalid.

        Examples
        --------
        >>> import fedldp, tempfile
        >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=0.5)
        >>> calendar = fedldp.Calendar(plan, periods=7, answers=2)
        >>> with fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     car = Vehicle(ledger)
        ...     sent = [car.answer_period(calendar, day, {"speed": 30}) for day in range(1, 8)]
        ...     sum(answer is not None for answer in sent), ledger.spent("vehicle")
        (2, Fraction(1, 1))
        """
        calendar.check_period(period)
        name = calendar.fingerprint
        question = PlanQuestion(
            _checked(calendar.plan, self.ledger),
            period=(name, period),
            former=(f"records of {name} {period}",),
        )
        drawn = self.ledger.periods(
            self.vehicle_id,
            calendar.epsilon,
            name,
            lambda: calendar.draw(secret_source()),
            question.constant,
        )
        if period not in drawn:
            return None
        return self._answer(question, row, f"period {period} of {calendar.periods}", new_nonce)

    def check(self, plan: AnyPlan, *, job: str | None = None) -> None:
        """Raise an error if the vehicle would refuse a new question. Nothing is spent.

        Parameters
        ----------
        plan
            What would be asked.
        job
            The job that would ask.

        Raises
        ------
        FedLDPError
            As for `answer`.

        Examples
        --------
        >>> import fedldp, tempfile
        >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0)
        >>> with fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=0.5) as ledger:
        ...     Vehicle(ledger).check(plan)
        Traceback (most recent call last):
        fedldp.errors.PrivacyError: refused: it costs 1.0, and the cap is 1/2...
        """
        question = PlanQuestion(_checked(plan, self.ledger), check_job(job))
        constant = question.constant
        if constant and self.vehicle_id in self.ledger.repeating(constant, job):
            return
        with suppress(_Undrawn):
            self._release(question, f"a check {secrets.token_hex(8)}", "", _draw_nothing)

    def _answer(
        self, question: PlanQuestion, row: Any, run: str, nonce: Callable[[], bytes]
    ) -> PaidAnswer:
        drawn, failure, read = b"", "", None if callable(row) else row
        try:
            stored = self._release(question, question.request, run, _draw_nothing)
        except _Undrawn:
            # Reading may take minutes, and drawing seconds: not inside a transaction. Nothing
            # leaves before it is paid for.
            before = nonce()
            record, read, failure = _drawn_record(question.plan, row)
            drawn = before + record
            stored = self._release(question, question.request, run, lambda: drawn)
        known, record = question.parted(stored)
        answer = PaidAnswer(
            question.packet(record),
            known or self._nonce(question),
            stored != drawn,
            question.plan,
            read,
            failure,
        )
        with suppress(BaseException):  # what the owner is told decides nothing
            self.tell(answer)
        return answer

    def _release(
        self, question: PlanQuestion, request: str, run: str, produce: Callable[[], bytes]
    ) -> bytes:
        return self.ledger.release(
            self.vehicle_id,
            question.plan.epsilon,
            request,
            produce,
            run=run,
            job=question.job or None,
            constant=question.constant,
            entry=question.entry,
            question=question.content if question._is_of_round else None,
            former=question.former,
        )

    def _nonce(self, question: PlanQuestion) -> bytes:
        """Return a nonce for an answer that an earlier version has stored without one."""
        names = vehicle.canonical([self.vehicle_id, question.request])
        return sha256(self.ledger.identity + names.encode()).digest()[:NONCE_BYTES]


@final
@dataclass(frozen=True)
class Vehicles:
    r"""Many vehicles that share a ledger, and are asked at once.

    Parameters
    ----------
    ledger
        The ledger.

    Examples
    --------
    >>> import fedldp, tempfile
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0, mechanism="duchi")
    >>> question = PlanQuestion(for_vehicle(plan.to_json(), 1), "spring", "1")
    >>> draw = lambda able: [b"\x80"] * len(able)
    >>> with fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
    ...     Vehicles(ledger).answer(question, ["car 7", "bus 1"], draw)
    {'car 7': b'\x80', 'bus 1': b'\x80'}
    """

    ledger: Ledger

    def answer(
        self, question: PlanQuestion, vehicle_ids: list[str], records: RecordsOf
    ) -> Mapping[str, bytes]:
        """Ask some vehicles at once, and return the record of each that answers.

        If the same question is put again, the records of those that have answered are returned,
        and no other vehicle is asked.

        Parameters
        ----------
        question
            What is asked.
        vehicle_ids
            The vehicles to ask.
        records
            A function that is called with the vehicles that pay for a new answer, and returns their
            records. It may raise an error: then nobody answers or pays.

        Returns
        -------
        mapping of bytes
            The record of each vehicle that has answered, which is on disk.

        Raises
        ------
        BudgetError
            If the ledger is sealed.
        DomainError
            If another question was asked under this name.
        OSError
            If the ledger cannot be read or written. Nothing is released then.
        """

        def produce(able: list[str]) -> dict[str, bytes]:
            drawn = list(records(able))
            nonces = secrets.token_bytes(NONCE_BYTES * len(drawn))
            parts = (nonces[i : i + NONCE_BYTES] for i in range(0, len(nonces), NONCE_BYTES))
            return dict(zip(able, map(bytes.__add__, parts, drawn), strict=True))

        stored = self.ledger.release_many(
            vehicle_ids,
            question.plan.epsilon,
            question.request,
            question.content,
            produce,
            run=question.job,
            job=question.job or None,
            constant=question.constant,
            entry=question.entry,
            former=question.former,
        )
        return {each: question.parted(answer)[1] for each, answer in stored.items()}

    def answering(
        self, question: PlanQuestion, calendar: Calendar, vehicle_ids: list[str], source: Source
    ) -> dict[str, bool]:
        """Return which vehicles answer in the period of a question.

        Vehicles that have not drawn their periods draw them now. One that cannot afford all
        answers of the calendar draws nothing.

        Parameters
        ----------
        question
            What is asked, in a period of the calendar.
        calendar
            The calendar.
        vehicle_ids
            The vehicles.
        source
            The random source from which periods are drawn.

        Returns
        -------
        dict of bool
            For each vehicle that has drawn its periods, whether this one is among them.

        Raises
        ------
        BudgetError
            If the ledger is sealed.
        DomainError
            If the question belongs to no period, or the calendar has too many answers to be drawn
            for many vehicles.

        Examples
        --------
        >>> import fedldp, tempfile
        >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=0.5, mechanism="duchi")
        >>> calendar, checked = fedldp.Calendar(plan, 2, answers=2), for_vehicle(plan.to_json(), 1)
        >>> question = PlanQuestion(checked, period=(calendar.fingerprint, 1))
        >>> with fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     Vehicles(ledger).answering(question, calendar, ["car 7"], fedldp.source())
        {'car 7': True}
        """
        if question.period is None:
            raise DomainError("the question must belong to a period of a calendar.")
        if calendar.answers > MOST_DRAWN:
            raise DomainError(
                f"a vault draws at most {MOST_DRAWN} periods for a vehicle; the calendar has "
                f"{calendar.answers}."
            )

        def draw(vehicles: int) -> Iterator[list[int]]:
            step = max(1, _PERIODS_AT_ONCE // calendar.answers)
            for first in range(0, vehicles, step):
                for periods in calendar.draw_many(min(step, vehicles - first), source):
                    yield periods.tolist()

        return self.ledger.in_period(
            vehicle_ids,
            calendar.epsilon,
            calendar.fingerprint,
            question.period[1],
            calendar.answers,
            draw,
            question.constant,
        )

    def repeating(self, question: PlanQuestion) -> set[str]:
        """Return the vehicles that would repeat an earlier answer, at no cost.

        Parameters
        ----------
        question
            What is asked.

        Returns
        -------
        set of str
            The vehicles; none if anything that is asked can change.

        Examples
        --------
        >>> import fedldp, tempfile
        >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0)
        >>> with fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     Vehicles(ledger).repeating(PlanQuestion(for_vehicle(plan.to_json(), 1)))
        set()
        """
        if question.constant is None:
            return set()
        return self.ledger.repeating(question.constant, question.job or None)


class _Undrawn(Exception):
    """The ledger has no answer yet, and nothing stands against one."""


def _draw_nothing() -> bytes:
    raise _Undrawn


def _checked(plan: AnyPlan, ledger: Ledger) -> vehicle.Plan:
    return plan if isinstance(plan, vehicle.Plan) else _read_plan(plan.to_json(), ledger.cap)


_read_plan = lru_cache(maxsize=4)(for_vehicle)  # one process may answer for many vehicles


def _drawn_record(plan: vehicle.Plan, row: Any) -> tuple[bytes, Any, str]:
    """Return a record, the row that it was drawn from, and why reading the row has failed.

    Data can cause every kind of exception, Ctrl-C's and those that end coroutines and generators
    too. Nothing can be done about a process that ends, or a function that never does.
    """
    try:
        values = row() if callable(row) else row
        return plan.report(values)[HEADER:], values, ""
    except BaseException as error:
        failure = _described(error)
    # Not earlier: the exception keeps what the function had in memory, which may be all there is.
    return plan.report({})[HEADER:], None, failure


def _described(error: BaseException) -> str:
    """Return what an exception says, if it can: a program may raise one of its own."""
    name = type(error).__name__
    try:
        return str(error) if isinstance(error, DomainError) else f"{name}: {error}"
    except BaseException:
        return name
