"""A vehicle answers a plan through its ledger: the only way in which a report leaves a vehicle.

A question gets a name. If the ledger has an answer of this name, it is repeated. Otherwise the
ledger refuses, or the row is read, a record is drawn, paid for and stored, and only then returned.
The data decide nothing but the record: a row that cannot be read counts as missing values.

What a ledger stores for an answer is 16 random bytes and the record. Version 0.2 stored it in three
other forms, which are read too: in all of them, the record comes last.
"""

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any, Protocol, final

from .. import vehicle
from .._internal.checks import whole
from ..errors import DomainError, PrivacyError
from ..vehicle import HEADER_BYTES
from .ledger import Ledger, check_job

__all__ = ["PaidAnswer", "PlanQuestion", "Vehicle"]

ONLY_VEHICLE = "vehicle"  # the id of a vehicle that shares its ledger with no other
NONCE_BYTES = 16

_MOST_NOTES_IN_A_LINE = 10
_LARGEST_CALENDAR_COST = Fraction(vehicle.MOST_PERIODS * vehicle.LARGEST_EPSILON)


class PlanText(Protocol):
    """Anything that has a plan as its canonical JSON, such as `fedldp.Plan`."""

    def to_json(self) -> str:
        """Return the plan as canonical JSON."""


class CalendarText(Protocol):
    """Anything that has a calendar as its canonical JSON, such as `fedldp.Calendar`."""

    @property
    def plan(self) -> PlanText:
        """The plan that is asked in each period."""

    def to_json(self) -> str:
        """Return the calendar as canonical JSON."""


AnyPlan = PlanText | vehicle.Plan
AnyCalendar = CalendarText | vehicle.Calendar


def for_vehicle(text: str, cap: float | str | Fraction) -> vehicle.Plan:
    """Check a plan against a cap as a small vehicle does, in integers.

    Raise `PrivacyError` if it leaks or costs more than the cap.
    """
    try:
        return vehicle.Plan(text, cap)
    except ValueError as error:
        raise PrivacyError(f"{error}.") from None


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
    chunk
        The number of the group that is asked, from 0, if an agent asks its vehicles in groups.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
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
    chunk: int = 0

    @property
    def request(self) -> str:
        """The name of the question in a ledger."""
        return f"{self._request} {self.chunk}" if self.chunk else self._request

    @property
    def _request(self) -> str:
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

    @property
    def _record_bytes(self) -> int:
        return -(-self.plan.bits // 8)

    @cached_property
    def _start(self) -> bytes:
        """What a report begins with, before its checksum."""
        return self.packet(bytes(self._record_bytes))[: HEADER_BYTES - 4]

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
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="duchi"))
        >>> packet = PlanQuestion(for_vehicle(plan.to_json(), 1)).packet(b"\x80")
        >>> plan.parse(packet).reports
        1
        """
        return vehicle.packet(self.plan.fingerprint, record)

    def split_answer(self, stored: bytes) -> tuple[bytes, bytes]:
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
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="duchi"))
        >>> PlanQuestion(for_vehicle(plan.to_json(), 1)).split_answer(b"sixteen bytes...\x80")
        (b'sixteen bytes...', b'\x80')
        """
        size = self._record_bytes
        before, record = stored[:-size], stored[-size:]
        if len(before) == NONCE_BYTES and not before.startswith(self._start):
            return before, record
        if len(before) in (0, HEADER_BYTES) and len(record) == size:
            return b"", record
        if len(before) == NONCE_BYTES + HEADER_BYTES and before.startswith(
            self._start, NONCE_BYTES
        ):
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
    more = (
        [f"and {len(notes) - _MOST_NOTES_IN_A_LINE:,} more"]
        if len(notes) > _MOST_NOTES_IN_A_LINE
        else []
    )
    return "; ".join(notes[:_MOST_NOTES_IN_A_LINE] + more)


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
            The values: a mapping of names, or all values in a sequence. Or several rows, a list of
            mappings, which become one by the rule of each attribute. Or a function without
            parameters that returns either. It is called only if nothing else stands against an
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
        checked = _check_plan(plan, self.ledger)
        question = PlanQuestion(checked, check_job(job), round, digest, entry=entry, former=former)
        return self.answer_question(question, row, run=run, nonce=nonce)

    def answer_period(self, calendar: AnyCalendar, period: int, row: Any) -> PaidAnswer | None:
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
        checked = _checked_calendar(calendar, self.ledger)
        if not 1 <= whole(period, "period") <= checked.periods:
            raise DomainError(
                f"period must be a whole number from 1 to {checked.periods}; got {period!r}."
            )
        name = checked.fingerprint
        question = PlanQuestion(
            checked.plan,
            period=(name, period),
            former=(f"records of {name} {period}",),
        )
        drawn = self.ledger.periods(
            self.vehicle_id, checked.epsilon, name, checked.draw, question.constant
        )
        if period not in drawn:
            return None
        return self.answer_question(question, row, run=f"period {period} of {checked.periods}")

    def answer_question(
        self,
        question: PlanQuestion,
        row: Any,
        *,
        run: str = "",
        nonce: Callable[[], bytes] = new_nonce,
    ) -> PaidAnswer:
        """Answer a question whose plan was checked: with stored bytes, or with new ones.

        A period of a calendar is answered even if the vehicle has not drawn it: see
        `answer_period`.

        Parameters
        ----------
        question
            What is asked, with its plan and its name in the ledger.
        row
            The values, or a function that returns them, as for `answer`.
        run
            A label for the ledger's history, which changes nothing.
        nonce
            A function that draws the nonce of a new answer.

        Returns
        -------
        PaidAnswer
            The answer, which is on disk.

        Raises
        ------
        FedLDPError
            As for `answer`.
        OSError
            If the ledger cannot be read or written. Nothing is released then.

        Examples
        --------
        >>> import fedldp, tempfile
        >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0)
        >>> question = PlanQuestion(for_vehicle(plan.to_json(), 1), "spring", "1")
        >>> with fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     Vehicle(ledger).answer_question(question, {"speed": 30}).repeated
        False
        """
        drawn, failure, read = b"", "", None if callable(row) else row

        def draw() -> bytes:
            nonlocal drawn, read, failure
            before = nonce()
            record, read, failure = _drawn_record(question.plan, row)
            drawn = before + record
            return drawn

        stored = self._release(question, run, draw)
        known, record = question.split_answer(stored)
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
        question = PlanQuestion(_check_plan(plan, self.ledger), check_job(job))
        constant = question.constant
        if constant and self.vehicle_id in self.ledger.repeating(constant, job):
            return
        self._needs_answer(question, f"a check {secrets.token_hex(8)}")

    def _needs_answer(self, question: PlanQuestion, request: str) -> bool:
        return self.ledger.needs_answer(
            self.vehicle_id,
            question.plan.epsilon,
            request,
            job=question.job or None,
            constant=question.constant,
            question=question.content if question._is_of_round else None,
            former=question.former,
        )

    def _release(self, question: PlanQuestion, run: str, draw: Callable[[], bytes]) -> bytes:
        return self.ledger.release(
            self.vehicle_id,
            question.plan.epsilon,
            question.request,
            draw,
            run=run,
            job=question.job or None,
            constant=question.constant,
            entry=question.entry,
            question=question.content if question._is_of_round else None,
            former=question.former,
            early=True,  # reading may take minutes, and drawing seconds
        )

    def _nonce(self, question: PlanQuestion) -> bytes:
        """Return a nonce for an answer that an earlier version has stored without one."""
        names = vehicle.canonical([self.vehicle_id, question.request])
        return sha256(self.ledger.identity + names.encode()).digest()[:NONCE_BYTES]


def _check_plan(plan: AnyPlan, ledger: Ledger) -> vehicle.Plan:
    return plan if isinstance(plan, vehicle.Plan) else _read_plan(plan.to_json(), ledger.cap)


def _checked_calendar(calendar: AnyCalendar, ledger: Ledger) -> vehicle.Calendar:
    if isinstance(calendar, vehicle.Calendar):
        return calendar
    _check_plan(calendar.plan, ledger)
    return _read_calendar(calendar.to_json(), _LARGEST_CALENDAR_COST, repeats=True)


# One process may answer for many vehicles.
_read_plan = lru_cache(maxsize=4)(for_vehicle)
_read_calendar = lru_cache(maxsize=4)(vehicle.Calendar)


def _drawn_record(plan: vehicle.Plan, row: Any) -> tuple[bytes, Any, str]:
    """Return a record, the row that it was drawn from, and why reading the row has failed.

    Data can cause every kind of exception, Ctrl-C's and those that end coroutines and generators
    too. Nothing can be done about a process that ends, or a function that never does.
    """
    word = vehicle.SYSTEM.getrandbits(vehicle.WORD)  # even if the row cannot be read
    try:
        values = plan.one_row(row() if callable(row) else row, word)
        return plan.report(values)[HEADER_BYTES:], values, ""
    except BaseException as error:
        failure = _error_text(error)
    # Not earlier: the exception keeps what the function had in memory, which may be all there is.
    return plan.report({})[HEADER_BYTES:], None, failure


def _error_text(error: BaseException) -> str:
    """Return what an exception says, if it can: a program may raise one of its own."""
    name = type(error).__name__
    try:
        return str(error) if isinstance(error, DomainError) else f"{name}: {error}"
    except BaseException:
        return name
