"""What every vehicle has spent, so that nothing is ever released that has not been paid for.

A ledger is one SQLite file, and a small file beside it that knows how much it must hold
(`fedldp.storage.head`). The spending and the bytes it pays for are written in one transaction,
and are on disk before the bytes are returned: a vehicle that is killed or loses power may have paid
for bytes that nobody received, never the reverse. Asking for them again costs nothing.

The same transaction enforces the rules of the owner. The cap limits what a vehicle spends in its
life, and a further limit what it spends in any period of some days or hours. In each job, a vehicle
answers at most `answers_per_job` times, whatever its cap allows.

What was asked stands in a hash chain (`fedldp_fleet.transparency`), which the transaction extends.

A ledger also keeps the periods that a vehicle has drawn from a calendar (`fedldp.Calendar`): it
never draws again. And it knows which answers are about values that never change: such an answer is
repeated, at no cost, whenever the same is asked again (`constant`).
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self, final

from .._internal.checks import checked_text, whole
from ..errors import BudgetError, DomainError
from ..storage import chain
from ..storage.chain import Link
from ..storage.database import Database
from . import policy as policies
from . import records
from .overview import JobAnswers, Overview, RecentSpending, asked_and_refused, overview, recent
from .policy import NEWCOMER, Amount, Period, Policy, Standing, check_answers_per_job, check_job
from .policy import checked_number as _number
from .records import NO_COST, Request
from .upkeep import create, detach, mirror, seal, take_over

__all__ = [
    "JobAnswers",
    "Ledger",
    "Overview",
    "Period",
    "RecentSpending",
    "Spending",
    "asked_and_refused",
    "check_answers_per_job",
    "check_job",
    "create",
    "detach",
    "mirror",
    "overview",
    "recent",
    "seal",
    "take_over",
]

Produce = Callable[[], bytes]
ProduceMany = Callable[[list[str]], Mapping[str, bytes]]
Draw = Callable[[], Iterable[int]]
DrawMany = Callable[[int], Iterable[Iterable[int]]]


class Spending(NamedTuple):
    """One line of a ledger: which vehicle has spent what, on which run, to answer which request.

    An answer that was repeated has an epsilon of 0.
    """

    vehicle_id: str
    run: str
    request: Request
    epsilon: Fraction
    job: str  # empty if it belongs to no job


class _StoredState(NamedTuple):
    """What a ledger knows when one vehicle is asked."""

    stored: bytes | None  # its answer to the same request
    kept: dict[str, bytes]  # its answer to what never changes, under another request
    standing: Standing
    was_asked: bool  # whether there is a question under this request


@final
class Ledger:
    """The spending of one vehicle or of many, each under a cap for its whole life.

    The cap, `answers_per_job` and the period belong to the owner's configuration and not to the
    file: they are given whenever the file is opened, and count at once against everything that has
    been spent before. Raising them is the owner's decision alone.

    A file that is missing or damaged, or is not a ledger, is refused (`WireError`): `Ledger.create`
    makes a new one. A ledger of format 2 (fedldp 0.1) to 8 is migrated when it is opened; runs of
    format 2 become jobs, and what was spent before counts, for a period, as spent when it was
    migrated. Threads and forked children may use a ledger too, except a child that was forked while
    bytes were produced.

    Parameters
    ----------
    path
        The file.
    cap
        The most epsilon that any one vehicle may ever spend, over all jobs and runs.
    answers_per_job
        How many requests of one job a vehicle answers at most.
    period
        The most that a vehicle may spend within any period of some seconds, by the clock of this
        machine. If the clock is set back, what was spent counts for longer; never for shorter. By
        default only the cap applies.

    Raises
    ------
    WireError
        If the file is not a valid ledger.
    DomainError
        If the cap is not positive, answers_per_job is below 1, or the period is invalid.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.create(Path(folder.name) / "ledger.db", cap=0.3)
    >>> ledger.release("car 7", 0.1, "question 1", lambda: b"report", run="spring")
    b'report'
    >>> ledger.release("car 7", 0.1, "question 1", lambda: b"is not called")
    b'report'
    >>> ledger.spent("car 7")
    Fraction(1, 10)
    >>> ledger.release("car 7", 0.25, "question 2", lambda: b"report")
    Traceback (most recent call last):
    fedldp.errors.BudgetError: 'car 7' has spent 0.1 of its cap of 0.3: 0.25 more is too much...
    >>> ledger.history("car 7")
    [Spending(vehicle_id='car 7', run='spring', request='question 1', epsilon=..., job='')]

    A vehicle with budget left still answers a job only once:

    >>> ledger.release("bus 1", 0.1, "round 1", lambda: b"report", job="summer")
    b'report'
    >>> ledger.release("bus 1", 0.1, "round 2", lambda: b"report", job="summer")
    Traceback (most recent call last):
    fedldp.errors.BudgetError: 'bus 1' has answered the job 'summer' once...
    >>> ledger.answers("summer"), ledger.totals()
    ({'bus 1': 1}, {'bus 1': Fraction(1, 10), 'car 7': Fraction(1, 10)})
    >>> ledger.close(); folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        cap: Amount,
        *,
        answers_per_job: int = 1,
        period: Period | None = None,
    ) -> None:
        self._policy = Policy.of(cap, answers_per_job, period)
        self._file = Database(path, records.KIND, create=False)
        with self._file.reading():
            records.check_balances(self._file)
        self.path = self._file.path

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        cap: Amount,
        *,
        answers_per_job: int = 1,
        period: Period | None = None,
    ) -> Self:
        """Make a new file and open it: an explicit act, once in the life of its vehicles.

        A file that is lost must never be made anew without notice: its vehicles would spend again
        what they have spent already.

        Parameters
        ----------
        path
            The file, which must not exist.
        cap, answers_per_job, period
            As for an existing file.

        Returns
        -------
        Ledger
            A ledger in which nobody has spent anything.

        Raises
        ------
        DomainError
            If there is such a file, or the cap, answers_per_job or period is invalid.
        WireError
            If the file is gone, but some of what lies beside it is left.

        Examples
        --------
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "ledger.db")
        >>> with Ledger.create(path, cap=1) as ledger:
        ...     ledger.totals()
        {}
        >>> Ledger.create(path, cap=1)
        Traceback (most recent call last):
        fedldp.errors.DomainError: there is a ledger ... already...
        """
        Policy.of(cap, answers_per_job, period)
        create(path)
        return cls(path, cap, answers_per_job=answers_per_job, period=period)

    @property
    def cap(self) -> Fraction:
        """The most epsilon that any one vehicle may ever spend."""
        return self._policy.cap

    @property
    def answers_per_job(self) -> int:
        """How many requests of one job a vehicle answers at most."""
        return self._policy.answers_per_job

    @property
    def period(self) -> Period | None:
        """The most that a vehicle may spend within some seconds, if that is limited."""
        return self._policy.period

    def __repr__(self) -> str:
        answers = f"{self.answers_per_job} answer{'s' * (self.answers_per_job > 1)}"
        return f"<Ledger {self.path}: cap {float(self.cap):g}, {answers} per job>"

    def release(
        self,
        vehicle_id: str,
        epsilon: Amount,
        request: Request,
        produce: Produce,
        *,
        run: str = "",
        job: str | None = None,
        constant: str | None = None,
        entry: str = "",
        question: bytes | None = None,
        former: Sequence[Request] = (),
        early: bool = False,
    ) -> bytes:
        """Return the bytes that answer a request: stored ones, or new ones that are paid for.

        Nothing is returned if the vehicle is refused, if `produce` raises, or if the disk fails
        (`OSError`); then nothing is spent either, unless the disk failed after it had written.

        Parameters
        ----------
        vehicle_id
            The vehicle that answers.
        epsilon
            What the answer costs.
        request
            A name of the question, preferably a hash of all of it. If it is asked again, the same
            bytes are returned at no cost, and `produce` is not called.
        produce
            A function that returns the bytes of a new answer.
        run
            A label for the history, which changes nothing.
        job
            The job that the request belongs to. A vehicle that has answered `answers_per_job` other
            requests of this job is refused. Without a job only the cap applies.
        constant
            A name of what is asked if it is about values that never change, such as the fingerprint
            of a plan whose attributes are all constant. A vehicle that has answered it, under any
            request, repeats that answer and pays nothing; `produce` is not called. In jobs, it does
            so 4,096 times in its life, so that nobody can fill the disk.
        entry
            What was asked, for the hash chain: it is added to the chain in the same transaction,
            once for all vehicles. Needs a request that is a text.
        question
            A hash of all that is asked. If it is given, there is one question for each request.
        former
            Other names of the same question, under which earlier versions have stored answers.
        early
            Whether `produce` is called before the transaction, in which others wait: it may take
            long. If somebody else has meanwhile stored an answer, or spent the budget, what it
            returned is dropped.

        Returns
        -------
        bytes
            The answer, which is on disk.

        Raises
        ------
        BudgetError
            If the vehicle cannot afford epsilon, has given its answers to the job, or the ledger is
            sealed.
        DomainError
            If a parameter is invalid, the request was answered for another epsilon, or another
            question was asked under it.

        Examples
        --------
        >>> import tempfile
        >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     ledger.release("car 7", 0.1, "question 1", lambda: b"report")
        b'report'
        >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     ledger.release("car 7", 0.1, "day 1", lambda: b"red", constant="colour")
        ...     ledger.release("car 7", 0.1, "day 2", lambda: b"is not called", constant="colour")
        ...     ledger.spent("car 7")
        b'red'
        b'red'
        Fraction(1, 10)
        """
        _text(vehicle_id, "vehicle_id")
        cost, job = _number(epsilon, "epsilon"), check_job(job)
        request = _request(request, entry)
        asked = vehicle_id, cost, request, job, constant, question, former
        seen, before = None, None
        if early:
            with self._file.view() as seen:
                before = self._before(*asked)
            is_new = before.stored is None and not before.kept
            produce = _called(produce) if is_new else _lost_answer
        with self._file.transaction() as now:
            # With a period, what counts also depends on the clock.
            if before is None or now != seen or self.period is not None:
                before = self._before(*asked)
            answer = before.stored
            if answer is None:
                answers = before.kept or {vehicle_id: produce()}
                if question is not None and not before.was_asked:
                    records.add_question(self._file, request, question)
                if entry:
                    chain.append(self._file, str(request), entry)
                able = {vehicle_id: before.standing}
                cost = NO_COST if before.kept else cost
                self._record(answers, able, cost, request, run, job, constant)
                answer = answers[vehicle_id]
        return answer  # not earlier: now the transaction is on disk

    def needs_answer(
        self,
        vehicle_id: str,
        epsilon: Amount,
        request: Request,
        *,
        job: str | None = None,
        constant: str | None = None,
        question: bytes | None = None,
        former: Sequence[Request] = (),
    ) -> bool:
        """Return whether `release` would call `produce` now. Nothing is spent, and nobody waits.

        Parameters
        ----------
        vehicle_id, epsilon, request, job, constant, question, former
            As for `release`.

        Returns
        -------
        bool
            False if `release` would return what is stored.

        Raises
        ------
        BudgetError
            If the vehicle cannot afford epsilon, has given its answers to the job, or the ledger is
            sealed.
        DomainError
            If a parameter is invalid, the request was answered for another epsilon, or another
            question was asked under it.

        Examples
        --------
        >>> import tempfile
        >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     before = ledger.needs_answer("car 7", 0.1, "question 1")
        ...     _ = ledger.release("car 7", 0.1, "question 1", lambda: b"report")
        ...     before, ledger.needs_answer("car 7", 0.1, "question 1")
        (True, False)
        """
        _text(vehicle_id, "vehicle_id")
        cost, job = _number(epsilon, "epsilon"), check_job(job)
        with self._file.view():
            arguments = vehicle_id, cost, _request(request, ""), job, constant, question, former
            before = self._before(*arguments)
        return before.stored is None and not before.kept

    def release_many(
        self,
        vehicle_ids: list[str],
        epsilon: Amount,
        request: Request,
        question: bytes,
        produce: ProduceMany,
        *,
        run: str = "",
        job: str | None = None,
        constant: str | None = None,
        entry: str = "",
        former: Sequence[Request] = (),
    ) -> dict[str, bytes]:
        """Ask many vehicles at once, in one transaction, and return the bytes of each.

        If the same question is put again, to any vehicles, the bytes of those that have answered
        are returned, and no other vehicle is asked.

        Parameters
        ----------
        vehicle_ids
            The vehicles to ask.
        epsilon
            What an answer costs.
        request
            A name of the question.
        question
            A hash of all that is asked. There is one question for each request.
        produce
            A function that takes the vehicles that can afford epsilon and may still answer the job,
            and returns bytes for any of them: these pay.
        run
            A label for the history, which changes nothing.
        job
            The job that the request belongs to: see `release`.
        constant
            A name of what is asked if it never changes: see `release`. Vehicles that repeat an
            answer are not given to `produce`.
        entry
            What was asked, for the hash chain: if anybody answers, it is added to the chain in the
            same transaction. Needs a request that is a text.
        former
            Other names of the same question: see `release`.

        Returns
        -------
        dict of bytes
            The answer of each vehicle that has answered, which is on disk.

        Raises
        ------
        BudgetError
            If the ledger is sealed.
        DomainError
            If a parameter is invalid, or another question was asked under this request.

        Examples
        --------
        >>> import tempfile
        >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     ledger.release_many(
        ...         ["car 7", "bus 1"], 0.1, "round 1", b"hash", lambda able: {able[0]: b"report"}
        ...     )
        {'car 7': b'report'}
        """
        vehicle_ids = [_text(name_given, "vehicle_id") for name_given in vehicle_ids]
        cost, job = _number(epsilon, "epsilon"), check_job(job)
        request = _request(request, entry)
        with self._file.transaction():
            stored_question = None
            for name in (request, *former):
                stored_question = records.question(self._file, name)
                if stored_question is not None:
                    request = name
                    break
            answers = records.answers(self._file, request)
            if stored_question != question and (stored_question is not None or answers):
                raise _another_question()
            if stored_question is None:
                self._refuse_if_sealed()
                constants = self._repeated_answers(vehicle_ids, constant)
                repeating = self._able(
                    [vehicle_id for vehicle_id in vehicle_ids if vehicle_id in constants],
                    NO_COST,
                    job,
                )
                able = self._able(
                    [vehicle_id for vehicle_id in vehicle_ids if vehicle_id not in constants],
                    cost,
                    job,
                )
                repeated = {vehicle_id: constants[vehicle_id] for vehicle_id in repeating}
                new = dict(produce([*able]))
                answers = repeated | new
                if answers:  # otherwise, asking vehicles without budget could fill the disk
                    records.add_question(self._file, request, question)
                    if entry:
                        chain.append(self._file, str(request), entry)
                self._record(repeated, repeating, NO_COST, request, run, job, constant)
                self._record(new, able, cost, request, run, job, constant)
        return answers  # not earlier: now the transaction is on disk

    def stored(self, request: Request) -> dict[str, bytes]:
        """Return the answers to a request that are on disk. Nothing is drawn or spent.

        Parameters
        ----------
        request
            The name of the question.

        Returns
        -------
        dict of bytes
            The answer of each vehicle that has answered.

        Examples
        --------
        >>> import tempfile
        >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     _ = ledger.release("car 7", 0.1, "question 1", lambda: b"report")
        ...     ledger.stored("question 1"), ledger.stored("question 2")
        ({'car 7': b'report'}, {})
        """
        query = "SELECT key, answer FROM releases WHERE request = ?"
        with self._file.reading():
            return dict(self._file.execute(query, (_request(request, ""),)))

    def note(self, request: str, entry: str, *, chained: bool) -> None:
        """Record something that was asked, and that no vehicle has answered.

        Parameters
        ----------
        request
            A name of the question.
        entry
            What was asked.
        chained
            Whether to add it to the hash chain, unless there is an entry of this request. Otherwise
            it is added to a list, which takes no more than a thousand: only what costs a stranger
            something may be chained.

        Examples
        --------
        >>> import tempfile
        >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     ledger.note("spring/1", "plan 7", chained=True)
        ...     ledger.note("spring/1", "plan 8", chained=True)
        ...     [link.entry for link in ledger.asked()], ledger.refused()
        (['plan 7'], ['plan 8'])
        """
        with self._file.transaction():
            chain.note(self._file, _text(request, "request"), entry, chained=chained)

    def asked(self) -> list[Link]:
        """Return the hash chain of what was asked, the oldest entry first.

        Returns
        -------
        list of Link
            The entries, each with the head of the chain after it.

        Raises
        ------
        WireError
            If a head does not fit its entry.

        Examples
        --------
        >>> import hashlib, tempfile
        >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     ledger.note("spring/1", "plan 7", chained=True)
        ...     [link] = ledger.asked()
        >>> link.head == hashlib.sha256(bytes(32) + b"plan 7").digest()
        True
        """
        with self._file.reading():
            return chain.links(self._file)

    def refused(self) -> list[str]:
        """Return what was asked, was not answered and is not in the hash chain.

        Returns
        -------
        list of str
            The first thousand entries.

        Examples
        --------
        >>> import tempfile
        >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     ledger.note("spring/1", "plan 7", chained=False)
        ...     ledger.refused()
        ['plan 7']
        """
        with self._file.reading():
            return chain.refused_entries(self._file)

    def periods(
        self,
        vehicle_id: str,
        epsilon: Amount,
        calendar: str,
        draw: Draw,
        constant: str | None = None,
    ) -> tuple[int, ...]:
        """Return in which periods of a calendar a vehicle answers: stored ones, or new ones.

        Nothing is spent: each answer is paid for when it is given. But a vehicle that cannot afford
        all of them draws nothing. `fedldp.Vehicle` calls this method.

        Parameters
        ----------
        vehicle_id
            The vehicle.
        epsilon
            What the answers cost in all periods together.
        calendar
            A name of the calendar, preferably a hash of all of it.
        draw
            A function that draws the periods. It is called once in the life of a vehicle, and does
            not see any data.
        constant
            A name of what is asked if it never changes: see `release`. A vehicle that has answered
            it before can afford it.

        Returns
        -------
        tuple of int
            The periods in ascending order, which are on disk.

        Raises
        ------
        BudgetError
            If the vehicle cannot afford epsilon, or the ledger is sealed.
        DomainError
            If a parameter is invalid.

        Examples
        --------
        >>> import tempfile
        >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     ledger.periods("car 7", 0.5, "spring", lambda: [7, 3])
        ...     ledger.periods("car 7", 0.5, "spring", lambda: [1, 2])
        (3, 7)
        (3, 7)
        """
        _text(vehicle_id, "vehicle_id")
        cost, calendar = _number(epsilon, "epsilon"), _text(calendar, "calendar")
        with self._file.transaction():
            if drawn := records.drawn(self._file, vehicle_id, calendar):
                return drawn
            self._refuse_if_sealed()
            cost = NO_COST if self._repeated_answers([vehicle_id], constant) else cost
            spent = self._standing(vehicle_id).spent
            if refusal := self._policy.beyond_cap(vehicle_id, spent, cost):
                raise BudgetError(refusal)
            drawn = _in_order(draw())
            records.add_drawn(self._file, calendar, [(vehicle_id, drawn)])
        return drawn  # not earlier: now the transaction is on disk

    def in_period(
        self,
        vehicle_ids: list[str],
        epsilon: Amount,
        calendar: str,
        period: int,
        answers: int,
        draw: DrawMany,
        constant: str | None = None,
    ) -> dict[str, bool]:
        """Return which of many vehicles answer in a period of a calendar, in one transaction.

        Those that have drawn no periods yet draw them now. A vehicle that cannot afford all answers
        draws nothing, and neither does one that would have drawn more than 4,096 periods in its
        life: drawing costs nothing, and nobody must be able to fill the disk.

        Parameters
        ----------
        vehicle_ids
            The vehicles.
        epsilon
            What the answers of a vehicle cost in all periods together.
        calendar
            A name of the calendar, as for `periods`.
        period
            The number of the period.
        answers
            In how many periods a vehicle answers.
        draw
            A function that draws the periods of as many vehicles as it is told. They are kept in
            memory one vehicle at a time.
        constant
            A name of what is asked if it never changes: see `periods`.

        Returns
        -------
        dict of bool
            For each vehicle that has drawn its periods, whether this one is among them. What was
            drawn is on disk.

        Raises
        ------
        BudgetError
            If the ledger is sealed.
        DomainError
            If a parameter is invalid.

        Examples
        --------
        >>> import tempfile
        >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     drawn = [[3, 7], [1, 2]]
        ...     ledger.in_period(["car 7", "bus 1"], 0.5, "spring", 3, 2, lambda n: drawn)
        {'car 7': True, 'bus 1': False}
        """
        vehicle_ids = [_text(name_given, "vehicle_id") for name_given in vehicle_ids]
        cost, calendar = _number(epsilon, "epsilon"), _text(calendar, "calendar")
        with self._file.transaction():
            is_drawn = records.drawn_in_period(self._file, vehicle_ids, calendar, period)
            new = [vehicle_id for vehicle_id in vehicle_ids if vehicle_id not in is_drawn]
            if not new:
                return is_drawn
            self._refuse_if_sealed()
            constants = self._repeated_answers(new, constant)
            standings = records.standings(self._file, new, "", self.period)
            before = records.drawn_counts(self._file, new)
            # Nobody draws in vain: a stranger who asks must not keep an agent busy at no cost.
            able = [
                vehicle_id
                for vehicle_id in new
                if before.get(vehicle_id, 0) + answers <= policies.MOST_DRAWN
                and not self._policy.beyond_cap(
                    vehicle_id,
                    standings.get(vehicle_id, NEWCOMER).spent,
                    NO_COST if vehicle_id in constants else cost,
                )
            ]

            def drawn() -> Iterator[tuple[str, tuple[int, ...]]]:
                for vehicle_id, periods in zip(able, map(_in_order, draw(len(able))), strict=True):
                    if len(periods) != answers:
                        raise DomainError(
                            f"draw must return {answers} periods; got {periods!r:.80}."
                        )
                    is_drawn[vehicle_id] = period in periods
                    yield vehicle_id, periods

            records.add_drawn(self._file, calendar, drawn())
        return is_drawn  # not earlier: now the transaction is on disk

    def repeating(self, constant: str, job: str | None = None) -> set[str]:
        """Return the vehicles that have answered what never changes, and would repeat their answer.

        Parameters
        ----------
        constant
            The name of what was asked: see `release`.
        job
            The job in which it is asked again, if it is.

        Returns
        -------
        set of str
            The vehicles.

        Examples
        --------
        >>> import tempfile
        >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     _ = ledger.release("car 7", 0.1, "day 1", lambda: b"red", constant="colour")
        ...     ledger.repeating("colour")
        {'car 7'}
        """
        with self._file.reading():
            keepers = records.keepers(self._file, _text(constant, "constant"))
            return set(self._able(keepers, NO_COST, check_job(job)))

    def spent(self, vehicle_id: str) -> Fraction:
        """Return what a vehicle has spent in its life.

        Parameters
        ----------
        vehicle_id
            The vehicle.

        Returns
        -------
        Fraction
            The sum of its epsilons, exactly.

        Examples
        --------
        >>> import tempfile
        >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     ledger.spent("car 7")
        Fraction(0, 1)
        """
        with self._file.reading():
            return self._standing(_text(vehicle_id, "vehicle_id")).spent

    def answers(self, job: str) -> dict[str, int]:
        """Return how many requests of a job each vehicle has answered.

        Parameters
        ----------
        job
            The name of the job.

        Returns
        -------
        dict of int
            A number for each vehicle that has answered at least once.

        Examples
        --------
        >>> import tempfile
        >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     _ = ledger.release("bus 1", 0.1, "round 1", lambda: b"report", job="summer")
        ...     ledger.answers("summer")
        {'bus 1': 1}
        """
        query = "SELECT key, COUNT(*) FROM releases WHERE job = ? GROUP BY key"
        with self._file.reading():
            return dict(self._file.execute(query, (check_job(job),)))

    def totals(self) -> dict[str, Fraction]:
        """Return what each vehicle has spent.

        Returns
        -------
        dict of Fraction
            A sum for each vehicle that has spent anything.

        Examples
        --------
        >>> import tempfile
        >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     _ = ledger.release("bus 1", 0.1, "round 1", lambda: b"report")
        ...     ledger.totals()
        {'bus 1': Fraction(1, 10)}
        """
        with self._file.reading():
            return records.totals(self._file)

    def recent(self) -> dict[str, Fraction]:
        """Return what each vehicle has spent in the period that ends now.

        Returns
        -------
        dict of Fraction
            A sum for each vehicle that has spent anything; empty if the ledger has no period.

        Examples
        --------
        >>> import tempfile
        >>> week = Period(Fraction(1), 7 * 24 * 3600)
        >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=4.0, period=week) as ledger:
        ...     _ = ledger.release("bus 1", 0.5, "round 1", lambda: b"report")
        ...     ledger.recent()
        {'bus 1': Fraction(1, 2)}
        """
        with self._file.reading():
            return records.recent_totals(self._file, self.period)

    def history(self, vehicle_id: str | None = None) -> list[Spending]:
        """Return the spendings of a vehicle, or of all vehicles, the oldest first.

        Parameters
        ----------
        vehicle_id
            The vehicle; by default all of them.

        Returns
        -------
        list of Spending
            A line for each answer.

        Examples
        --------
        >>> import tempfile
        >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     _ = ledger.release("bus 1", 0.1, "round 1", lambda: b"report", job="summer")
        ...     [(line.vehicle_id, line.job) for line in ledger.history()]
        [('bus 1', 'summer')]
        """
        query = "SELECT key, run, request, epsilon, job FROM releases WHERE key = ?1 OR ?1 IS NULL"
        with self._file.reading():
            wanted = vehicle_id and _text(vehicle_id, "vehicle_id")
            rows = self._file.execute(f"{query} ORDER BY number", (wanted,))
            return [
                Spending(who, run, what, records.fraction(self._file, text), job)
                for who, run, what, text, job in rows
            ]

    @property
    def sealed(self) -> bool:
        """Whether the ledger refuses everybody: see `fedldp.budget.ledger.seal`."""
        with self._file.reading():
            return records.seal_date(self._file) is not None

    @property
    def identity(self) -> bytes:
        """Sixteen random bytes that distinguish it from every other ledger: a secret."""
        with self._file.reading():
            [(identity,)] = self._file.execute("SELECT identity FROM head")
            return bytes(identity)

    def close(self) -> None:
        """Close the file. Closing it again does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., "Ledger"], tuple[Path, Fraction]]:
        again = partial(Ledger, answers_per_job=self.answers_per_job, period=self.period)
        return again, (self.path, self.cap)  # a copy has a connection of its own

    # What follows is called while the gate is held.

    def _before(
        self,
        vehicle_id: str,
        cost: Fraction,
        request: Request,
        job: str,
        constant: str | None,
        question: bytes | None,
        former: Sequence[Request],
    ) -> "_StoredState":
        """Return what stands in the ledger when one vehicle is asked, or refuse the question."""
        stored_question = records.question(self._file, request)
        if question is not None and stored_question is not None and stored_question != question:
            raise _another_question()
        stored = self._stored_answer(vehicle_id, cost, [request, *former])
        if stored is not None:
            return _StoredState(stored, {}, NEWCOMER, was_asked=True)
        self._refuse_if_sealed()
        constants = self._repeated_answers([vehicle_id], constant)
        standing = self._standing(vehicle_id, job)
        if refusal := self._policy.refusal(
            vehicle_id, standing, NO_COST if constants else cost, job
        ):
            raise BudgetError(refusal)
        if question is None and stored_question is not None:
            raise DomainError(
                "many vehicles were asked under this request. Use another request for one."
            )
        return _StoredState(None, constants, standing, was_asked=stored_question is not None)

    def _stored_answer(
        self, vehicle_id: str, cost: Fraction, requests: Sequence[Request]
    ) -> bytes | None:
        for request in requests:
            stored = records.answer(self._file, vehicle_id, request)
            if stored is None:
                continue
            text, answer = stored
            if records.fraction(self._file, text) not in (cost, NO_COST):
                raise DomainError(
                    f"{vehicle_id!r} has answered this request for an epsilon of {text}, and is "
                    f"now asked for {cost}. Use a new request for another epsilon."
                )
            return answer
        return None

    def _repeated_answers(self, vehicle_ids: list[str], constant: str | None) -> dict[str, bytes]:
        """Return the answers that some vehicles repeat."""
        if constant is None:
            return {}
        return records.kept_answers(self._file, vehicle_ids, _text(constant, "constant"))

    def _record(
        self,
        answers: Mapping[str, bytes],
        able: Mapping[str, Standing],
        cost: Fraction,
        request: Request,
        run: str,
        job: str,
        constant: str | None,
    ) -> None:
        if not answers.keys() <= able.keys() or not all(type(a) is bytes for a in answers.values()):
            raise DomainError("produce must return bytes, and only for vehicles that it was given.")
        records.add(self._file, answers, able, cost, request, _text(run, "run"), job)
        if constant is not None and cost:
            records.keep(self._file, answers, constant, request)

    def _refuse_if_sealed(self) -> None:
        date = records.seal_date(self._file)
        if date is not None:
            raise BudgetError(
                f"the ledger {self.path} refuses everybody: it was sealed on {date}, to replace "
                "one that was damaged or lost. Its vehicles can no longer answer anything."
            )

    def _able(self, vehicle_ids: Sequence[str], cost: Fraction, job: str) -> dict[str, Standing]:
        """Return the vehicles that may answer something new, and what they have spent before."""
        standings = records.standings(self._file, vehicle_ids, job, self.period)
        is_able: dict[int, bool] = {}  # by the identity of a standing, which many share
        able = {}
        for vehicle_id in vehicle_ids:
            standing = standings.get(vehicle_id, NEWCOMER)
            if id(standing) not in is_able:
                is_able[id(standing)] = not self._policy.refusal(vehicle_id, standing, cost, job)
            if is_able[id(standing)]:
                able[vehicle_id] = standing
        return able

    def _standing(self, vehicle_id: str, job: str = "") -> Standing:
        found = records.standings(self._file, [vehicle_id], job, self.period)
        return found.get(vehicle_id, NEWCOMER)


def _in_order(drawn: Iterable[int]) -> tuple[int, ...]:
    """Return periods in ascending order, each once."""
    periods = tuple(sorted({whole(each, "a period") for each in drawn}))
    if not periods or periods[0] < 1:
        raise DomainError(f"draw must return whole numbers from 1 on; got {periods!r}.")
    return periods


def _called(produce: Produce) -> Produce:
    answer = produce()
    return lambda: answer


def _lost_answer() -> bytes:
    raise DomainError("the ledger has lost an answer that it had a moment ago.")


def _text(value: object, name: str) -> str:
    return checked_text(value, name, empty=True)


def _another_question() -> DomainError:
    return DomainError("another question was asked under this request. Use a new request for it.")


def _request(value: Request, entry: str) -> Request:
    """Return a request; that of an entry of the hash chain is a text."""
    return value if isinstance(value, bytes) and not entry else _text(value, "request")
