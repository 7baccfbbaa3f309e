"""What every vehicle has spent, so that nothing is ever released that has not been paid for.

A ledger is one SQLite file, and a small file beside it that knows how much it must hold
(`fedldp.storage.head`). The spending and the bytes it pays for are written in one transaction,
and are on disk before the bytes are returned: a vehicle that is killed or loses power may have paid
for bytes that nobody received, never the reverse. Asking for them again costs nothing.

The same transaction enforces the rules of the owner. The cap limits what a vehicle spends in its
life, and a further limit what it spends in any period of some days or hours. In each job, a vehicle
answers at most `answers_per_job` times, whatever its cap allows.

What was asked stands in a hash chain (`fedldp.fleet.transparency`), which the transaction extends.

A ledger also keeps the periods that a vehicle has drawn from a calendar (`fedldp.Calendar`): it
never draws again. And it knows which answers are about values that never change: such an answer is
repeated, at no cost, whenever the same is asked again (`constant`).
"""

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self, final

from .._internal.checks import checked_text, whole
from ..errors import BudgetError, DomainError
from ..storage import chain, database, head
from ..storage import mirror as mirrors
from ..storage.chain import Link
from ..storage.database import Database, Kind, Readable
from ..vehicle import exact

Number = float | str | Fraction
Request = str | bytes
Produce = Callable[[], bytes]
ProduceMany = Callable[[list[str]], Mapping[str, bytes]]
Draw = Callable[[], Iterable[int]]
DrawMany = Callable[[int], Iterable[Iterable[int]]]

# Answers to jobs that a vehicle repeats at no cost, in its life: every day for eleven years. Each
# takes some room, and somebody who invents names of jobs must not fill the disk.
MOST_REPEATED = 1 << 12
MOST_DRAWN = 1 << 12  # periods that a vehicle of many draws in its life, for the same reason

_AT_ONCE = 500  # vehicles looked up in one query: SQLite takes at least 999 values
_LARGEST = 10**30  # of a numerator or denominator: with larger ones, sums could grow without limit

_RELEASES = """
    CREATE TABLE releases (
        number INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        request NOT NULL,  -- a text or bytes, as it was given
        run TEXT NOT NULL,
        job TEXT NOT NULL,  -- empty for a release that belongs to no job
        epsilon TEXT NOT NULL,  -- an exact fraction, "n/d"
        answer BLOB NOT NULL,
        UNIQUE (key, request)
    )
"""
_BY_REQUEST = "CREATE INDEX by_request ON releases (request)"
_BY_JOB = "CREATE INDEX by_job ON releases (job, key)"
_QUESTIONS = """
    CREATE TABLE questions (  -- what was asked of many under one request
        request PRIMARY KEY,
        question BLOB NOT NULL
    )
"""
_SEALS = "CREATE TABLE seals (date TEXT NOT NULL)"  # with a row in it, no vehicle may spend
_DRAWS = """
    CREATE TABLE draws (  -- in which periods of a calendar a vehicle answers
        key TEXT NOT NULL,
        calendar TEXT NOT NULL,
        periods TEXT NOT NULL,  -- whole numbers, "3 7 21"
        PRIMARY KEY (key, calendar)
    )
"""
_CONSTANTS = """
    CREATE TABLE constants (  -- which release a vehicle repeats if the same is asked again
        key TEXT NOT NULL,
        constant TEXT NOT NULL,  -- a name of what was asked
        request NOT NULL,
        PRIMARY KEY (key, constant)
    )
"""

# Releases are never deleted, so their numbers ascend.
_TIMES = """
    CREATE TABLE times (  -- when the release with this number, and those up to the next, were made
        number INTEGER PRIMARY KEY,
        time INTEGER NOT NULL  -- seconds since 1970, rounded down
    )
"""

_KIND = Kind(
    name="ledger",
    mark=b"fLDP",
    format=7,
    tables=";".join(
        (
            *(_RELEASES, _BY_REQUEST, _BY_JOB, _QUESTIONS, _SEALS, _DRAWS, _CONSTANTS, _TIMES),
            *chain.TABLES,
            head.TABLE,
            "",
        )
    ),
    advice=(
        "Do not restore a backup and do not delete the file: what was spent would be forgotten, "
        "and could be spent again. If it has a mirror: `fedldp ledger takeover MIRROR`. Otherwise "
        "`fedldp ledger seal {path}` moves it aside and writes a ledger that refuses everybody."
    ),
    migrations={
        # In format 2 a vault wrote the job as the run. The table is made anew, because a program
        # that has it open, and does not know of jobs, must not be able to write into it.
        2: (
            "ALTER TABLE releases RENAME TO releases_2",
            "DROP INDEX by_request",
            _RELEASES,
            """
            INSERT INTO releases (number, key, request, run, job, epsilon, answer)
            SELECT number, key, request, run, run, epsilon, answer FROM releases_2
            """,
            "DROP TABLE releases_2",
            _BY_REQUEST,
            _BY_JOB,
            _SEALS,
        ),
        3: (_DRAWS,),  # no calendars were known
        4: (_CONSTANTS,),  # every answer was paid for
        # When something was released is not known. It counts as released now, so that nobody
        # spends more in a period.
        5: (
            _TIMES,
            """
            INSERT INTO times
            SELECT MIN(number), CAST(strftime('%s', 'now') AS INTEGER) FROM releases
            HAVING COUNT(*)
            """,
            *chain.TABLES,
        ),
        6: (head.TABLE,),  # nothing could tell whether the last transactions are missing
    },
    head_since=7,
    missing=(
        "If its vehicles have never answered, make one: `fedldp ledger init {path}`. If they have, "
        "find it: with a new one, what they spent would be forgotten. If it is lost and has a "
        "mirror: `fedldp ledger takeover MIRROR`. Otherwise `fedldp ledger seal {path}` writes one "
        "that refuses everybody."
    ),
)
_NONE = 1 << 62  # above the number of every release
_INSERT = "INSERT INTO releases (key, request, run, job, epsilon, answer) VALUES (?, ?, ?, ?, ?, ?)"
_ASKED = "INSERT INTO questions VALUES (?, ?)"
_DRAWN = "INSERT INTO draws VALUES (?, ?, ?)"
_TOTALS = "SELECT key, epsilon, COUNT(*) FROM releases GROUP BY key, epsilon"
_RECENT = "SELECT key, epsilon, COUNT(*) FROM releases WHERE number >= ? GROUP BY key, epsilon"
_FREE = Fraction()  # what a vehicle pays that repeats an answer

# Names of constants: the one that is given, and those that version 0.2 has made of it.
_CONSTANT_NAMES = "{}", "records of {}", "answers of {}"


class Spending(NamedTuple):
    """One line of a ledger: which vehicle has spent what, on which run, to answer which request.

    An answer that was repeated has an epsilon of 0.
    """

    vehicle_id: str
    run: str
    request: Request
    epsilon: Fraction
    job: str  # empty if it belongs to no job


class _Standing(NamedTuple):
    """What a vehicle has spent and answered so far."""

    spent: Fraction = Fraction()  # in its life
    answers: int = 0  # in a job
    recent: Fraction = Fraction()  # spent in the period that ends now
    repeated: int = 0  # answers to jobs at no cost, in its life


class Period(NamedTuple):
    """The most epsilon that a vehicle may spend in any period of some seconds.

    >>> Period(Fraction(2), 7 * 24 * 3600)
    Period(most=Fraction(2, 1), seconds=604800)
    """

    most: Fraction
    seconds: int


@final
class Ledger:
    """The spending of one vehicle or of many, each under a cap for its whole life.

    The cap, `answers_per_job` and the period belong to the owner's configuration and not to the
    file: they are given whenever the file is opened, and count at once against everything that has
    been spent before. Raising them is the owner's decision alone.

    A file that is missing or damaged, or is not a ledger, is refused (`WireError`): `Ledger.create`
    makes a new one. A ledger of format 2 (fedldp 0.1) to 6 is migrated when it is opened; runs of
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
        cap: Number,
        *,
        answers_per_job: int = 1,
        period: Period | None = None,
    ) -> None:
        self.cap = _number(cap, "cap")
        self.answers_per_job = check_answers_per_job(answers_per_job)
        self.period = None if period is None else _period(period)
        self._file = Database(path, _KIND, create=False)
        self.path = self._file.path

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        cap: Number,
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
        _number(cap, "cap")
        check_answers_per_job(answers_per_job)
        if period is not None:
            _period(period)
        create(path)
        return cls(path, cap, answers_per_job=answers_per_job, period=period)

    def __repr__(self) -> str:
        answers = f"{self.answers_per_job} answer{'s' * (self.answers_per_job > 1)}"
        return f"<Ledger {self.path}: cap {float(self.cap):g}, {answers} per job>"

    def release(
        self,
        vehicle_id: str,
        epsilon: Number,
        request: Request,
        produce: Produce,
        *,
        run: str = "",
        job: str | None = None,
        constant: str | None = None,
        entry: str = "",
        question: bytes | None = None,
        former: Sequence[Request] = (),
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
        with self._file.transaction():
            asked = self._asked(request)
            if question is not None and asked is not None and asked != question:
                raise _another_question()
            answer = self._stored(vehicle_id, cost, [request, *former])
            if answer is None:
                self._refuse_if_sealed()
                kept = self._kept([vehicle_id], constant)
                cost = _FREE if kept else cost
                if refusal := self._refusal(vehicle_id, self._standing(vehicle_id, job), cost, job):
                    raise BudgetError(refusal)
                if question is None and asked is not None:
                    raise DomainError(
                        "many vehicles were asked under this request. Use another request for one."
                    )
                found = kept or {vehicle_id: produce()}
                if question is not None and asked is None:
                    self._file.execute(_ASKED, (request, question))
                if entry:
                    chain.append(self._file, str(request), entry)
                self._record(found, [vehicle_id], cost, request, run, job, constant)
                answer = found[vehicle_id]
        return answer  # not earlier: now the transaction is on disk

    def release_many(
        self,
        vehicle_ids: list[str],
        epsilon: Number,
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
        vehicle_ids = [_text(each, "vehicle_id") for each in vehicle_ids]
        cost, job = _number(epsilon, "epsilon"), check_job(job)
        request = _request(request, entry)
        with self._file.transaction():
            known = [each for each in (request, *former) if self._asked(each) is not None]
            request = known[0] if known else request
            asked = self._asked(request)
            query = "SELECT key, answer FROM releases WHERE request = ?"
            answers: dict[str, bytes] = dict(self._file.execute(query, (request,)))
            if asked != question and (asked is not None or answers):
                raise _another_question()
            if asked is None:
                self._refuse_if_sealed()
                kept = self._kept(vehicle_ids, constant)
                repeating = self._able([each for each in vehicle_ids if each in kept], _FREE, job)
                able = self._able([each for each in vehicle_ids if each not in kept], cost, job)
                repeated = {each: kept[each] for each in repeating}
                new = dict(produce(able))
                answers = repeated | new
                if answers:  # otherwise, asking vehicles without budget could fill the disk
                    self._file.execute(_ASKED, (request, question))
                    if entry:
                        chain.append(self._file, str(request), entry)
                self._record(repeated, repeating, _FREE, request, run, job, constant)
                self._record(new, able, cost, request, run, job, constant)
        return answers  # not earlier: now the transaction is on disk

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
            return chain.refused(self._file)

    def periods(
        self,
        vehicle_id: str,
        epsilon: Number,
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
        query = "SELECT periods FROM draws WHERE key = ? AND calendar = ?"
        with self._file.transaction():
            for (text,) in self._file.execute(query, (vehicle_id, calendar)):
                return self._periods(text)
            self._refuse_if_sealed()
            cost = _FREE if self._kept([vehicle_id], constant) else cost
            if refusal := self._beyond_cap(vehicle_id, self._standing(vehicle_id).spent, cost):
                raise BudgetError(refusal)
            drawn = _in_order(draw())
            self._file.execute(_DRAWN, (vehicle_id, calendar, _periods_text(drawn)))
        return drawn  # not earlier: now the transaction is on disk

    def in_period(
        self,
        vehicle_ids: list[str],
        epsilon: Number,
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
        vehicle_ids = [_text(each, "vehicle_id") for each in vehicle_ids]
        cost, calendar = _number(epsilon, "epsilon"), _text(calendar, "calendar")
        with self._file.transaction():
            found: dict[str, bool] = {}
            for some in _batches(vehicle_ids):
                query = f"""
                    SELECT key, periods FROM draws
                    WHERE calendar = ? AND key IN ({_marks(some)})
                """  # noqa: S608 (nothing but question marks)
                rows = self._file.execute(query, (calendar, *some))
                found.update((each, self._has(text, period)) for each, text in rows)
            new = [each for each in vehicle_ids if each not in found]
            if not new:
                return found
            self._refuse_if_sealed()
            kept, standings = self._kept(new, constant), self._standings(new, "")
            before = self._drawn_before(new)
            # Nobody draws in vain: a stranger who asks must not keep a vault busy at no cost.
            able = [
                each
                for each in new
                if before.get(each, 0) + answers <= MOST_DRAWN
                and not self._beyond_cap(
                    each, standings.get(each, _Standing()).spent, _FREE if each in kept else cost
                )
            ]

            def drawn() -> Iterator[tuple[str, str, str]]:
                for each, periods in zip(able, map(_in_order, draw(len(able))), strict=True):
                    if len(periods) != answers:
                        raise DomainError(
                            f"draw must return {answers} periods; got {periods!r:.80}."
                        )
                    found[each] = period in periods
                    yield each, calendar, _periods_text(periods)

            self._file.execute_many(_DRAWN, drawn())
        return found  # not earlier: now the transaction is on disk

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
        query = "SELECT DISTINCT key FROM constants WHERE constant IN (?, ?, ?)"
        with self._file.reading():
            found = self._file.execute(query, _constant_names(constant))
            return set(self._able([each for (each,) in found], _FREE, check_job(job)))

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
            return _sums(self._file, self._file.execute(_TOTALS))

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
            return _sums(self._file, self._file.execute(_RECENT, (self._first_recent(),)))

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
                Spending(who, run, what, self._fraction(text), job)
                for who, run, what, text, job in rows
            ]

    @property
    def sealed(self) -> bool:
        """Whether the ledger refuses everybody: see `fedldp.budget.ledger.seal`."""
        with self._file.reading():
            return bool(self._file.execute("SELECT 1 FROM seals"))

    @property
    def identity(self) -> bytes:
        """Sixteen random bytes that distinguish it from every other ledger: a secret."""
        with self._file.reading():
            [(found,)] = self._file.execute("SELECT identity FROM head")
            return bytes(found)

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

    def _stored(self, vehicle_id: str, cost: Fraction, requests: Sequence[Request]) -> bytes | None:
        query = "SELECT epsilon, answer FROM releases WHERE key = ? AND request = ?"
        rows = (row for each in requests for row in self._file.execute(query, (vehicle_id, each)))
        for text, answer in rows:
            if self._fraction(text) not in (cost, _FREE):
                raise DomainError(
                    f"{vehicle_id!r} has answered this request for an epsilon of {text}, and is "
                    f"now asked for {cost}. Use a new request for another epsilon."
                )
            return bytes(answer)
        return None

    def _asked(self, request: Request) -> bytes | None:
        query = "SELECT question FROM questions WHERE request = ?"
        for (question,) in self._file.execute(query, (request,)):
            return bytes(question)
        return None

    def _kept(self, vehicle_ids: list[str], constant: str | None) -> dict[str, bytes]:
        """Return the answers that some vehicles repeat."""
        kept: dict[str, bytes] = {}
        if constant is None:
            return kept
        for some in _batches(vehicle_ids):
            query = f"""
                SELECT key, answer FROM constants JOIN releases USING (key, request)
                WHERE constant IN (?, ?, ?) AND key IN ({_marks(some)})
                ORDER BY constants.rowid DESC  -- the first answer of a vehicle counts
            """  # noqa: S608 (nothing but question marks)
            kept.update(self._file.execute(query, (*_constant_names(constant), *some)))
        return kept

    def _record(
        self,
        answers: Mapping[str, bytes],
        able: list[str],
        cost: Fraction,
        request: Request,
        run: str,
        job: str,
        constant: str | None,
    ) -> None:
        if not answers.keys() <= set(able) or not all(type(a) is bytes for a in answers.values()):
            raise DomainError("produce must return bytes, and only for vehicles that it was given.")
        text, run = f"{cost.numerator}/{cost.denominator}", _text(run, "run")
        rows = ((each, request, run, job, text, answer) for each, answer in answers.items())
        if answers:
            # One row for many releases. A clock that was set back makes later rows with earlier
            # times, which `_first_recent` allows for.
            self._file.execute(
                """
                INSERT INTO times
                SELECT (SELECT COALESCE(MAX(number), 0) + 1 FROM releases), ?1
                WHERE ?1 IS NOT (SELECT time FROM times ORDER BY number DESC LIMIT 1)
                """,
                (_now(),),
            )
        self._file.execute_many(_INSERT, rows)
        if constant is not None and cost:
            new = ((each, constant, request) for each in answers)
            self._file.execute_many("INSERT INTO constants VALUES (?, ?, ?)", new)

    def _refuse_if_sealed(self) -> None:
        for (date,) in self._file.execute("SELECT date FROM seals"):
            raise BudgetError(
                f"the ledger {self.path} refuses everybody: it was sealed on {date}, to replace "
                "one that was damaged or lost. Its vehicles can no longer answer anything."
            )

    def _able(self, vehicle_ids: list[str], cost: Fraction, job: str) -> list[str]:
        """Return the vehicles that may answer something new."""
        standings = self._standings(vehicle_ids, job)
        newcomer = not self._refusal("", _Standing(), cost, job)  # one that has spent nothing
        return [
            each
            for each in vehicle_ids
            if (
                not self._refusal(each, standings[each], cost, job)
                if each in standings
                else newcomer
            )
        ]

    def _refusal(self, vehicle_id: str, standing: _Standing, cost: Fraction, job: str) -> str:
        """Return why a vehicle may not answer something new, or an empty text if it may."""
        if job and standing.answers >= self.answers_per_job:
            times = "once" if standing.answers == 1 else f"{standing.answers} times"
            return (
                f"{vehicle_id!r} has answered the job {job!r} {times}, and answers_per_job is "
                f"{self.answers_per_job}. Ask another vehicle, or let its owner allow more."
            )
        if job and not cost and standing.repeated >= MOST_REPEATED:
            return (
                f"{vehicle_id!r} has repeated answers {standing.repeated} times, and no vehicle "
                f"does so more than {MOST_REPEATED} times."
            )
        if self.period is not None and standing.recent + cost > self.period.most:
            return (
                f"{vehicle_id!r} has spent {float(standing.recent):.12g} of the "
                f"{float(self.period.most):.12g} that it may spend in {self.period.seconds} "
                f"seconds: {float(cost):.12g} more is too much. Ask later, or for less."
            )
        return self._beyond_cap(vehicle_id, standing.spent, cost)

    def _beyond_cap(self, vehicle_id: str, spent: Fraction, cost: Fraction) -> str:
        """Return that a vehicle cannot afford something in its life, or an empty text."""
        if spent + cost <= self.cap:
            return ""
        return (
            f"{vehicle_id!r} has spent {float(spent):.12g} of its cap of "
            f"{float(self.cap):.12g}: {float(cost):.12g} more is too much. "
            "Ask for less, or let its owner raise the cap."
        )

    def _standing(self, vehicle_id: str, job: str = "") -> _Standing:
        return self._standings([vehicle_id], job).get(vehicle_id, _Standing())

    def _standings(self, vehicle_ids: list[str], job: str) -> dict[str, _Standing]:
        """Return what the vehicles that have spent anything have spent and answered."""
        found: dict[str, _Standing] = {}
        recent_from = self._first_recent()
        for some in _batches(vehicle_ids):
            query = f"""
                SELECT key, epsilon, COUNT(*), SUM(job = ?), SUM(job <> ''), SUM(number >= ?)
                FROM releases
                WHERE key IN ({_marks(some)}) GROUP BY key, epsilon
            """  # noqa: S608 (nothing but question marks)
            values = job, recent_from, *some
            for each, text, count, of_job, of_jobs, recently in self._file.execute(query, values):
                spent, answers, recent, repeated = found.get(each, _Standing())
                cost = self._fraction(text)
                found[each] = _Standing(
                    spent + cost * count,
                    answers + of_job,
                    recent + cost * recently,
                    repeated if cost else repeated + of_jobs,
                )
        return found

    def _first_recent(self) -> int:
        return _NONE if self.period is None else _first_recent(self._file, self.period)

    def _drawn_before(self, vehicle_ids: list[str]) -> dict[str, int]:
        """Return how many periods of all calendars the vehicles have drawn that have drawn any."""
        found: dict[str, int] = {}
        for some in _batches(vehicle_ids):
            query = f"""
                SELECT key, SUM(LENGTH(periods) - LENGTH(REPLACE(periods, ' ', '')) + 1)
                FROM draws WHERE key IN ({_marks(some)}) GROUP BY key
            """  # noqa: S608 (nothing but question marks)
            found.update(self._file.execute(query, tuple(some)))
        return found

    def _periods(self, text: str) -> tuple[int, ...]:
        try:
            return tuple(map(int, text.split(" ")))
        except ValueError:
            raise self._file.damaged(f"it has periods of {text!r:.80}") from None

    def _has(self, text: str, period: int) -> bool:
        """Return whether a period is among those of a text, which may be thousands."""
        if not text.replace(" ", "").isdecimal():
            raise self._file.damaged(f"it has periods of {text!r:.80}")
        return f" {period} " in f" {text} "

    def _fraction(self, text: str) -> Fraction:
        return _fraction(self._file, text)


class JobAnswers(NamedTuple):
    """What vehicles have answered in a job; the name is empty for what belongs to no job."""

    job: str
    questions: int
    answers: int  # of all vehicles together


class Overview(NamedTuple):
    """What a ledger records about all vehicles."""

    totals: dict[str, Fraction]  # what each vehicle that has answered has spent
    jobs: list[JobAnswers]  # in the order of their first answers
    sealed: str  # the date since which the ledger refuses everybody, or an empty text

    def left(self, cap: Fraction, others: int) -> dict[Fraction, int]:
        """Return how many vehicles have how much left of their cap, the most first.

        `others` is the number of vehicles that have spent nothing.

        >>> found = Overview({"car 1": Fraction(1), "car 2": Fraction(3)}, [], "")
        >>> found.left(Fraction(2), others=8)
        {Fraction(2, 1): 8, Fraction(1, 1): 1, Fraction(0, 1): 1}
        """
        return _left(self.totals, cap, others)


def overview(path: str | os.PathLike[str], *, inspect: bool = True) -> Overview:
    """Read what a ledger records, without changing it or waiting for a vault that uses it.

    All rows are checked, unless `inspect=False`: then only that no transaction was lost.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Ledger.create(Path(folder.name) / "ledger.db", cap=1) as ledger:
    ...     _ = ledger.release("bus 1", 0.5, "round 1", lambda: b"report", job="summer")
    ...     overview(ledger.path)
    Overview(totals={'bus 1': Fraction(1, 2)}, jobs=[JobAnswers(job='summer', ...)], sealed='')
    >>> folder.cleanup()
    """
    jobs = """
        SELECT job, COUNT(DISTINCT request), COUNT(*) FROM releases GROUP BY job
        ORDER BY MIN(number)
    """
    with database.snapshot(path, _KIND, inspect=inspect) as file:
        return Overview(
            _sums(file, file.execute(_TOTALS)),
            [JobAnswers(*row) for row in file.execute(jobs)],
            "".join(date for (date,) in file.execute("SELECT MAX(date) FROM seals") if date),
        )


class Recent(NamedTuple):
    """What vehicles have spent in the period that ends now, and when they get it back."""

    totals: dict[str, Fraction]  # of each vehicle that has spent anything
    returns: tuple[int, int] | None  # seconds since 1970: when the first of it does, and the last

    def left(self, period: Period, others: int) -> dict[Fraction, int]:
        """Return how many vehicles may now spend how much in this period, the most first.

        `others` is the number of vehicles that have spent nothing. What the cap allows is another
        question.

        >>> Recent({"car 1": Fraction(1, 2)}, None).left(Period(Fraction(2), 3600), others=8)
        {Fraction(2, 1): 8, Fraction(3, 2): 1}
        """
        return _left(self.totals, period.most, others)


def recent(path: str | os.PathLike[str], period: Period) -> Recent:
    """Read what a ledger records about a period, as `overview` reads the rest.

    >>> import tempfile
    >>> week = Period(Fraction(1), 7 * 24 * 3600)
    >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=4.0) as ledger:
    ...     _ = ledger.release("bus 1", 0.5, "round 1", lambda: b"report")
    ...     recent(ledger.path, week).totals
    {'bus 1': Fraction(1, 2)}
    """
    ends = "SELECT MIN(number), MAX(number) FROM releases WHERE number >= ? AND epsilon <> '0/1'"
    # A release counts as long as any release before it does: see `_first_recent`.
    counted = "SELECT MAX(time) FROM times WHERE number <= ?"
    with database.snapshot(path, _KIND, inspect=False) as file:
        first = _first_recent(file, period)
        [numbers] = file.execute(ends, (first,))
        times = [file.execute(counted, (each,))[0][0] for each in numbers if each is not None]
        back = [time + period.seconds + 1 for time in times]
        totals = _sums(file, file.execute(_RECENT, (first,)))
        return Recent(totals, (back[0], back[1]) if back else None)


def _first_recent(file: Readable, period: Period) -> int:
    """Return the number of the first release that counts for the period that ends now.

    Times are rounded down, and all releases after one that counts do too. So none is left out that
    was made within the period, even if the clock was set back since.
    """
    query = "SELECT MIN(number) FROM times WHERE time >= ?"
    [(first,)] = file.execute(query, (_now() - period.seconds,))
    return _NONE if first is None else first


def _left(totals: dict[str, Fraction], most: Fraction, others: int) -> dict[Fraction, int]:
    """Return how many vehicles have how much left of the most that each may spend."""
    counts = Counter({most: max(0, others)})
    for spent, count in Counter(totals.values()).items():  # there are few different sums
        counts[max(Fraction(), most - spent)] += count
    return {left: counts[left] for left in sorted(counts, reverse=True) if counts[left]}


def asked_and_refused(path: str | os.PathLike[str]) -> tuple[list[Link], list[str]]:
    """Read what a ledger was asked, without changing it or waiting for a vault that uses it.

    See `Ledger.asked` and `Ledger.refused`.

    >>> import tempfile
    >>> with Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
    ...     ledger.note("spring/1", "plan 7", chained=False)
    ...     asked_and_refused(ledger.path)
    ([], ['plan 7'])
    """
    with database.snapshot(path, _KIND) as file:
        return chain.links(file), chain.refused(file)


def _sums(file: Readable, rows: Iterable[tuple[str, str, int]]) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    costs: dict[tuple[str, int], Fraction] = {}  # there are few different ones
    for vehicle_id, text, count in rows:
        if (text, count) not in costs:
            costs[text, count] = _fraction(file, text) * count
        cost = costs[text, count]
        found[vehicle_id] = found[vehicle_id] + cost if vehicle_id in found else cost
    return found


def _fraction(file: Readable, text: str) -> Fraction:
    try:
        return exact(text) if text != "0/1" else _FREE
    except ValueError:
        raise file.damaged(f"it has an epsilon of {text!r}") from None


def create(path: str | os.PathLike[str]) -> None:
    """Make a new ledger, as `Ledger.create` does, and leave it closed.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "ledger.db")
    >>> create(path)
    >>> overview(path).totals
    {}
    """
    try:
        database.create(path, _KIND)
    except FileExistsError:
        raise DomainError(
            f"there is a ledger {Path(path).resolve()} already. Open it: a new one would forget "
            "what was spent."
        ) from None


def seal(path: str | os.PathLike[str]) -> Path | None:
    """Move a ledger aside, and write one in its place that refuses everybody, for good.

    This is for a ledger that is damaged or lost: nobody knows any more what was spent, so nobody
    may spend. The file is moved as it is, with its -wal and -shm, into a new folder next to it.
    Return the folder, or None if there was no file.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "ledger.db"
    >>> _ = path.write_bytes(b"damaged")
    >>> [each.name for each in seal(path).iterdir()]
    ['ledger.db']
    >>> with Ledger(path, cap=1) as ledger:
    ...     ledger.release("car 7", 0.1, "question", lambda: b"report")
    Traceback (most recent call last):
    fedldp.errors.BudgetError: the ledger ... refuses everybody: it was sealed on ...
    >>> folder.cleanup()
    """
    return database.replace(path, _KIND, "INSERT INTO seals VALUES (date());")


def mirror(path: str | os.PathLike[str], copy: str | os.PathLike[str]) -> None:
    """Keep a second file of a ledger, on another disk: nothing is released before both have it.

    The ledger is refused while its mirror is missing. If the ledger is lost or damaged, `take_over`
    turns the mirror into the ledger.

    >>> import tempfile
    >>> path, copy = (Path(tempfile.mkdtemp(), "ledger.db") for _ in range(2))
    >>> with Ledger.create(path, cap=1) as ledger:
    ...     mirror(path, copy)
    ...     ledger.release("car 7", 0.5, "question", lambda: b"report")
    b'report'
    >>> take_over(copy) == path
    True
    >>> with Ledger(copy, cap=1) as ledger:
    ...     ledger.spent("car 7")
    Fraction(1, 2)
    >>> Ledger(path, cap=1)
    Traceback (most recent call last):
    fedldp.errors.WireError: ... was detached from ... which has more or has taken over: it is...
    """
    mirrors.attach(path, copy, _KIND)


def detach(path: str | os.PathLike[str]) -> bool:
    """Use a ledger without its mirror from now on, because the mirror's disk has failed.

    Return whether the mirror could be told. It may then never take over. If it could not be told,
    destroy it: nothing else can keep it from taking over with less than was spent.
    """
    return mirrors.detach(path, _KIND)


def take_over(path: str | os.PathLike[str]) -> Path:
    """Turn a mirror into the ledger; return the path of the old one, which is refused from now on.

    A mirror that may lack something that was spent is refused.
    """
    return mirrors.take_over(path, _KIND)


def check_job(value: str | None) -> str:
    """Validate the name of a job and return it as a ledger stores it: empty for no job."""
    if value == "":
        raise DomainError("job must not be empty: give the job a name, or leave it out.")
    return "" if value is None else _text(value, "job")


def check_answers_per_job(value: int) -> int:
    """Validate how many times a vehicle may answer one job."""
    number = whole(value, "answers_per_job")
    if isinstance(value, bool) or number < 1:
        raise DomainError(f"answers_per_job must be at least 1; got {value!r}.")
    return number


def _batches(vehicle_ids: list[str]) -> Iterator[list[str]]:
    for first in range(0, len(vehicle_ids), _AT_ONCE):
        yield vehicle_ids[first : first + _AT_ONCE]


def _marks(some: list[str]) -> str:
    return ", ".join("?" * len(some))


def _in_order(drawn: Iterable[int]) -> tuple[int, ...]:
    """Return periods in ascending order, each once."""
    periods = tuple(sorted({whole(each, "a period") for each in drawn}))
    if not periods or periods[0] < 1:
        raise DomainError(f"draw must return whole numbers from 1 on; got {periods!r}.")
    return periods


def _periods_text(periods: tuple[int, ...]) -> str:
    return " ".join(map(str, periods))


def _now() -> int:
    return int(time.time())


def _period(period: Period) -> Period:
    seconds = whole(period.seconds, "seconds of a period")
    if seconds < 1:
        raise DomainError(f"a period must have at least a second; got {seconds}.")
    return Period(_number(period.most, "most of a period"), seconds)


def _number(value: Number, name: str) -> Fraction:
    with contextlib.suppress(ValueError):
        number = exact(value)
        if max(number.numerator, number.denominator) < _LARGEST:
            return number
    raise DomainError(f"{name} must be a positive number of up to 30 digits; got {value!r}.")


def _text(value: object, name: str) -> str:
    return checked_text(value, name, empty=True)


def _constant_names(constant: str) -> tuple[str, ...]:
    return tuple(name.format(_text(constant, "constant")) for name in _CONSTANT_NAMES)


def _another_question() -> DomainError:
    return DomainError("another question was asked under this request. Use a new request for it.")


def _request(value: Request, entry: str) -> Request:
    """Return a request; that of an entry of the hash chain is a text."""
    return value if isinstance(value, bytes) and not entry else _text(value, "request")
