"""The checkpoint: the server's file on the state of a job, from which it resumes after any crash.

Questions are written to it before they are sent, and answers before they are used. So a server that
was killed sends the same questions again, and only to gateways that have not answered. All reports
stay in the file, so that the whole job can be computed again from them.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from time import time
from typing import IO, NamedTuple, Self, final

from fedldp.errors import DomainError, WireError
from fedldp.fleet.protocol import LAST_ROUND, Answer, Question
from fedldp.fleet.server.names import Name, unnamed
from fedldp.fleet.stages import Learned, Stage, span_of, spans
from fedldp.plan.plan import Plan
from fedldp.results.plausibility import Plausibility
from fedldp.results.tally import Tally
from fedldp.storage import locks
from fedldp.storage.database import Database, Kind, Readable, snapshot

_KIND = Kind(
    name="checkpoint",
    mark=b"fJOB",
    format=2,
    tables="""
        CREATE TABLE job (
            name TEXT NOT NULL,
            settings TEXT NOT NULL,  -- their digest
            start TEXT NOT NULL,  -- the state before the first round
            state TEXT NOT NULL,  -- the state after the last one
            round INTEGER NOT NULL,  -- how many are done
            ended TEXT NOT NULL,  -- why, once it is over
            failed INTEGER NOT NULL,  -- whether it ended without a result
            began_at REAL,  -- as all times, seconds since 1970; NULL before format 2
            ended_at REAL
        );
        CREATE TABLE asks (
            round INTEGER NOT NULL,
            gateway TEXT NOT NULL,
            n INTEGER NOT NULL,
            digest BLOB NOT NULL,  -- of the question
            asked_at REAL,
            PRIMARY KEY (round, gateway)
        );
        CREATE TABLE batches (
            round INTEGER NOT NULL,
            gateway TEXT NOT NULL,
            answered INTEGER NOT NULL,
            silent INTEGER NOT NULL,
            size INTEGER NOT NULL,  -- bytes, as it came
            report BLOB NOT NULL,  -- the records that it held
            received_at REAL,
            PRIMARY KEY (round, gateway)
        );
    """,
    advice="Restore the file: a new one would ask vehicles again that have answered.",
    migrations={
        1: (
            "ALTER TABLE job ADD COLUMN began_at REAL",
            "ALTER TABLE job ADD COLUMN ended_at REAL",
            "ALTER TABLE asks ADD COLUMN asked_at REAL",
            "ALTER TABLE batches ADD COLUMN received_at REAL",
        ),
    },
)
_ROOM = 1 << 24  # counters of all tallies that are kept in memory
_READ = 1 << 20  # the same for those who only look
_RECENT = 5  # rounds that are done, from which the rate of reports is computed


class Standing(NamedTuple):
    """How far a job is and, if it has ended, why."""

    round: int  # how many are done
    state: str
    ended: str
    failed: int  # 0 or 1


class Counts(NamedTuple):
    """How many vehicles a round or a whole job asked, and how many of them answered.

    >>> Counts(asked=10, reports=6, refusals=1, silent=1).waiting
    2
    """

    asked: int = 0
    reports: int = 0  # vehicles that answered
    refusals: int = 0  # vehicles that refused or were absent: a vault does not say which
    silent: int = 0  # vehicles behind a vault or a gateway that did not answer in time

    @property
    def waiting(self) -> int:
        """How many vehicles may still answer because their round is open."""
        return self.asked - self.reports - self.refusals - self.silent

    def closed(self) -> "Counts":
        """Return the counts after the round: vehicles that have not answered are silent."""
        return self._replace(silent=self.silent + self.waiting)

    def __str__(self) -> str:
        return (
            f"{self.asked:,} vehicles asked, {self.reports:,} answered, {self.silent:,} silent, "
            f"{self.refusals:,} refused or absent"
        )


def total(rounds: Iterable[Counts]) -> Counts:
    """Return the counts of several rounds together.

    >>> str(total([Counts(4, 3, 1), Counts(4, 2, 0, 2)]))
    '8 vehicles asked, 5 answered, 2 silent, 1 refused or absent'
    """
    return Counts(*(sum(column) for column in zip(Counts(), *rounds, strict=True)))


class Exchange(NamedTuple):
    """What the server and one gateway exchanged in all rounds. Times are seconds since 1970."""

    gateway: str
    reports: int = 0  # of its vehicles
    bytes: int = 0
    heard: float | None = None  # when its last answer came
    round: int = 0  # the last one in which it was asked
    asked: float | None = None  # when that was
    answered: bool = False  # whether it has answered in that round


@final
@dataclass(frozen=True)
class JobStatus:
    """The progress of a job, and why it has ended if it has. Times are seconds since 1970."""

    job: str
    rounds: int  # that are done
    asked: int  # gateways, in the open round
    received: int  # how many of these have answered
    total: Counts  # of all rounds
    last: Counts  # of the last round that is done
    open: Counts  # of the open round
    gateways: tuple[Exchange, ...]
    ended: str  # why it has ended, or empty
    failed: bool
    began_at: float | None = None
    ended_at: float | None = None
    opened_at: float | None = None  # when the open round was first asked
    rate: float | None = None  # reports per second, in the last rounds

    @property
    def missing(self) -> list[Exchange]:
        """The gateways that were asked in the open round and have not answered."""
        number = self.rounds + 1
        return [each for each in self.gateways if each.round == number and not each.answered]

    @property
    def bytes(self) -> dict[str, int]:
        """How many bytes each gateway has sent."""
        return {each.gateway: each.bytes for each in self.gateways if each.heard or each.bytes}

    @property
    def reports(self) -> int:
        """How many vehicles have answered."""
        return self.total.reports

    @property
    def refusals(self) -> int:
        """How many vehicles refused or were absent."""
        return self.total.refusals

    @property
    def silent(self) -> int:
        """How many vehicles did not answer in time."""
        return self.total.silent


@final
class Checkpoint:
    """The file of one job. Only one process can open it at a time: others get `BlockingIOError`.

    A file of another job, or of this job with other settings, raises `DomainError`.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "job.db"
    >>> question = Question("spring", round=1, gateway="7", n=2, plan="{}")
    >>> with Checkpoint(path, "spring", settings="a digest") as checkpoint:
    ...     checkpoint.ask([question])
    ...     locked(path), checkpoint.pending
    (True, ['7'])
    >>> locked(path), finished(path), status(path).asked
    (False, False, 1)
    >>> folder.cleanup()
    """

    def __init__(
        self, path: str | os.PathLike[str], job: str, settings: str, start: str = ""
    ) -> None:
        path = Path(path).resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._counted = _Counted()
        self._lock = _take(path)
        try:
            self._file = Database(path, _KIND)
            try:
                self._begin(job, settings, start)
            except BaseException:
                self._file.close()
                raise
        except BaseException:
            self._lock.close()
            raise

    def _begin(self, job: str, settings: str, start: str) -> None:
        with self._file.transaction():
            if not _belongs(self._file, job, settings):
                values = (job, settings, start, start, time())
                insert = "INSERT INTO job VALUES (?, ?, ?, ?, 0, '', 0, ?, NULL)"
                self._file.execute(insert, values)

    @property
    def standing(self) -> Standing:
        """How far the job is."""
        with self._file.reading():
            return _standing(self._file)

    @property
    def asked(self) -> dict[str, bytes]:
        """The gateways that were asked in the open round, with the digests of their questions."""
        with self._file.reading():
            query = "SELECT gateway, digest FROM asks WHERE round = ? ORDER BY gateway"
            return dict(self._file.execute(query, (_standing(self._file).round + 1,)))

    @property
    def pending(self) -> list[str]:
        """The gateways in `asked` that have not answered."""
        with self._file.reading():
            query = """
                SELECT gateway FROM asks WHERE round = ?1 AND gateway NOT IN (
                    SELECT gateway FROM batches WHERE round = ?1) ORDER BY gateway
            """
            rows = self._file.execute(query, (_standing(self._file).round + 1,))
            return [gateway for (gateway,) in rows]

    def ask(self, questions: Iterable[Question]) -> None:
        """Record, in one transaction, that these questions may be sent from now on."""
        with self._file.transaction():
            number = _standing(self._file).round + 1
            for question in questions:
                if question.round != number:
                    raise DomainError(
                        f"expected questions of round {number}; got one of round {question.round}."
                    )
                values = (number, question.gateway, question.n, question.digest, time())
                self._file.execute("INSERT INTO asks VALUES (?, ?, ?, ?, ?)", values)

    def store(self, question: Question, answer: Answer, report: bytes, tally: Tally) -> None:
        """Store the first answer of a gateway, with its report and tally; ignore later ones."""
        place = (question.round, question.gateway)
        values = (*place, answer.answered, answer.silent, question.size)
        with self._file.transaction():
            if question.round != _standing(self._file).round + 1:
                raise DomainError(
                    f"round {question.round} is not open: its answers are no longer counted."
                )
            insert = "INSERT OR IGNORE INTO batches VALUES (?, ?, ?, ?, ?, ?, ?)"
            self._file.execute(insert, (*values, report, time()))
            [(stored,)] = self._file.execute("SELECT changes()")
        if stored:
            self._counted.keep(place, tally)

    def tally(self, plan: Plan, number: int) -> Tally:
        """Return the tally of all reports of a round."""
        with self._file.reading():
            return _tally(self._file, plan, number, self._counted)

    def warnings(
        self,
        stages: Sequence[Stage],
        *,
        number: int | None = None,
        among: int = 1,
        name: Name = unnamed,
    ) -> list[str]:
        """Return what is implausible about the reports of all rounds of a job, or of one round.

        It is one of `among` such checks: the false-alarm rate holds for all of them together.
        """
        with self._file.reading():
            return _warnings(self._file, stages, number, among, self._counted, name)

    def counts(self, number: int) -> Counts:
        """Return the counts of a round."""
        with self._file.reading():
            return total(_counts(self._file, number))

    def history(self) -> list[Counts]:
        """Return the counts of each round, including the open one if it was asked."""
        with self._file.reading():
            return _counts(self._file)

    def step(self, state: str) -> None:
        """End the round with a new state, and open the next one."""
        with self._file.transaction():
            self._file.execute("UPDATE job SET round = round + 1, state = ?", (state,))

    def end(self, why: str, *, failed: bool = False) -> None:
        """End the job."""
        with self._file.transaction():
            update = "UPDATE job SET ended = ?, failed = ?, ended_at = ?"
            self._file.execute(update, (why, failed, time()))

    def close(self) -> None:
        """Close the file, so that another process can open it."""
        self._file.close()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


# These functions read a checkpoint while the server runs. None of them waits for the lock.


def locked(path: str | os.PathLike[str]) -> bool:
    """Return whether a server has locked the checkpoint."""
    beside = locks.lock_file(Path(path).resolve())
    if not beside.exists():
        return False
    with beside.open("rb") as lock:
        return locks.is_taken(lock)


def finished(path: str | os.PathLike[str]) -> bool:
    """Return whether the job has ended, with or without a result."""
    found = status(path)
    return found is not None and bool(found.ended)


def check(path: str | os.PathLike[str], job: str, settings: str) -> None:
    """Raise `DomainError` if a checkpoint is of another job, or was begun with other settings."""
    with _opened(path) as file:
        if file is not None:
            _belongs(file, job, settings)


def status(path: str | os.PathLike[str]) -> JobStatus | None:
    """Return the progress of a job; None if it has not begun."""
    with _opened(path) as file:
        if file is None:
            return None
        [(job,)] = file.execute("SELECT name FROM job")
        standing = _standing(file)
        rounds = _counts(file)
        counts = "SELECT (SELECT COUNT(*) FROM asks WHERE round = ?1), COUNT(*) FROM batches"
        [(asked, received)] = file.execute(f"{counts} WHERE round = ?1", (standing.round + 1,))
        [(began, ended)] = file.execute("SELECT began_at, ended_at FROM job")
        first = "SELECT MIN(asked_at) FROM asks WHERE round = ?"
        [(opened,)] = file.execute(first, (standing.round + 1,))
        return JobStatus(
            job=job,
            rounds=standing.round,
            asked=asked,
            received=received,
            total=total(rounds),
            last=total(rounds[: standing.round][-1:]),
            open=total(rounds[standing.round :]),
            gateways=tuple(_exchanges(file)),
            ended=standing.ended,
            failed=bool(standing.failed or (standing.ended and not total(rounds).reports)),
            began_at=began,
            ended_at=ended,
            opened_at=opened,
            rate=_rate(file, standing),
        )


def _exchanges(file: Readable) -> Iterator[Exchange]:
    query = """
        SELECT gateway, TOTAL(answered), TOTAL(size), MAX(received_at), MAX(round)
        FROM asks LEFT JOIN batches USING (round, gateway) GROUP BY gateway ORDER BY gateway
    """
    last = """
        SELECT asked_at, size IS NOT NULL FROM asks LEFT JOIN batches USING (round, gateway)
        WHERE gateway = ? AND round = ?
    """
    for gateway, reports, size, heard, number in file.execute(query):
        [(asked, answered)] = file.execute(last, (gateway, number))
        yield Exchange(gateway, int(reports), int(size), heard, number, asked, bool(answered))


def _rate(file: Readable, standing: Standing) -> float | None:
    """Return how many reports come in a second, from the last rounds; None if that is unknown.

    While a round is open, its time counts up to now: the rate falls while nothing comes.
    """
    query = """
        SELECT TOTAL(answered), MIN(asked_at), MAX(received_at)
        FROM asks LEFT JOIN batches USING (round, gateway) WHERE round > ?
    """
    [(reports, begin, end)] = file.execute(query, (standing.round - _RECENT,))
    if begin is None or end is None:
        return None
    seconds = (end if standing.ended else max(time(), end)) - begin
    return reports / seconds if reports and seconds > 0 else None


def warnings(
    path: str | os.PathLike[str], stages: Sequence[Stage], name: Name = unnamed
) -> list[str]:
    """Return what is implausible about the reports of a job, of each gateway and of all together.

    Honest vehicles cause a warning in less than one in a million jobs.
    """
    with _opened(path) as file:
        return [] if file is None else _warnings(file, stages, None, 1, _Counted(room=0), name)


class Latest(NamedTuple):
    """The last rounds whose reports are enough to tell something, one for each plan of a stage."""

    rounds: range
    stage: Stage
    learned: Learned  # by all rounds that are done
    tallies: list[Tally]


@final
class Reader:
    """Counts the reports in a checkpoint while a server adds to it, each of them once."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path, self._counted = path, _Counted(_READ)

    def latest(self, stages: Sequence[Stage]) -> Latest | None:
        """Return the last rounds in which vehicles have answered every plan, if there are any."""
        with _opened(self._path) as file:
            if file is None:
                return None
            rounds = "SELECT DISTINCT round FROM batches WHERE answered"
            answered = {number for (number,) in file.execute(rounds)}
            number = max(answered, default=0)
            while number > 0:
                span = span_of(stages, number)
                if answered.issuperset(cycle := span.cycle(number)):
                    plans = [(span.plan(each), each) for each in cycle]
                    tallies = [_tally(file, *each, self._counted) for each in plans]
                    learned = Learned.from_json(_standing(file).state)
                    return Latest(cycle, span.stage, learned, tallies)
                number = cycle[0] - 1
        return None


def replay(path: str | os.PathLike[str], stages: Sequence[Stage]) -> Learned:
    """Compute what a job has learned again from the reports in its checkpoint."""
    with _opened(path) as file:
        if file is None:
            raise DomainError(f"expected the checkpoint of a job that has begun; got {path}.")
        [(start,)] = file.execute("SELECT start FROM job")
        learned, done, number = Learned.from_json(start), _standing(file).round, 1
        while (cycle := (span := span_of(stages, number)).cycle(number))[-1] <= done:
            counted = _Counted(room=0)
            tallies = [_tally(file, span.plan(each), each, counted) for each in cycle]
            learned, number = span.stage.learn(learned, tallies), cycle[-1] + 1
    return learned


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[Readable | None]:
    """Open a checkpoint to read a consistent snapshot; None if the job has not begun."""
    if not Path(path).exists():
        yield None
        return
    with snapshot(path, _KIND) as file:
        yield file if file.execute("SELECT 1 FROM job") else None


def _standing(file: Readable) -> Standing:
    [row] = file.execute("SELECT round, state, ended, failed FROM job")
    return Standing(*row)


def _belongs(file: Readable, job: str, settings: str) -> bool:
    """Return whether a file is of this job: False if it is new. Raise if it is of another job."""
    known = file.execute("SELECT name, settings FROM job")
    if known and known != [(job, settings)]:
        raise DomainError(
            f"{file.path} belongs to the job {known[0][0]!r}, or was begun with another plan, "
            "model, recipe or number of reports. Give a new job another checkpoint, or restore "
            "the settings of this one."
        )
    return bool(known)


def _counts(file: Readable, number: int | None = None) -> list[Counts]:
    """Return the counts of each round or of one. In a closed round, the rest is silent."""
    query = """
        SELECT round, SUM(n), TOTAL(answered), TOTAL(n - answered - silent), TOTAL(silent)
        FROM asks LEFT JOIN batches USING (round, gateway) WHERE round = ?1 OR ?1 IS NULL
        GROUP BY round ORDER BY round
    """
    standing = _standing(file)
    found = []
    for each, *row in file.execute(query, (number,)):
        counts = Counts(*map(int, row))
        over = standing.ended or each <= standing.round
        found.append(counts.closed() if over else counts)
    return found


@final
class _Counted:
    """A cache of the tallies of answers, so that this process counts each answer once.

    A checkpoint stores reports and no tallies. When the cache is full, the oldest tallies go first.
    """

    def __init__(self, room: int = _ROOM) -> None:
        self._room, self._kept = room, dict[tuple[int, str], Tally]()

    def keep(self, place: tuple[int, str], tally: Tally) -> None:
        """Store the tally of the answer that a gateway gave in a round."""
        self._kept[place] = tally
        self._room -= _size(tally)
        while self._room < 0:
            self._room += _size(self._kept.pop(next(iter(self._kept))))

    def find(self, place: tuple[int, str]) -> Tally | None:
        """Return a stored tally, if there is one."""
        return self._kept.get(place)


def _size(tally: Tally) -> int:
    return sum(part.size for part in tally.counts)


def _tally(file: Readable, plan: Plan, number: int, counted: _Counted) -> Tally:
    query = "SELECT round, gateway FROM batches WHERE round = ? ORDER BY gateway"
    return sum((tally for _, tally in _tallies(file, plan, counted, query, number)), plan.tally())


def _tallies(
    file: Readable, plan: Plan, counted: _Counted, query: str, *values: int | None
) -> Iterator[tuple[str, Tally]]:
    """Yield each gateway with the tally of its reports, for the rounds that the query returns."""
    report = "SELECT report FROM batches WHERE round = ? AND gateway = ?"  # one at a time in memory
    for gateway, places in groupby(file.execute(query, values), key=itemgetter(1)):
        tally = plan.tally()
        for place in places:
            found = counted.find(place)
            if found is None:
                [(data,)] = file.execute(report, place)
                try:
                    found = plan.parse(data)
                except WireError as error:
                    reason = f"a report of round {place[0]} does not fit the plan: {error}"
                    raise file.damaged(reason) from None
                counted.keep(place, found)
            tally += found
        yield gateway, tally


def _warnings(
    file: Readable,
    stages: Sequence[Stage],
    number: int | None,
    among: int,
    counted: _Counted,
    name: Name,
) -> list[str]:
    """Check the reports of each gateway, and of all of them together, on each plan."""
    query = """
        SELECT round, gateway FROM batches
        WHERE round BETWEEN ?1 AND ?2 AND (round - ?1) % ?3 = ?4 AND (round = ?5 OR ?5 IS NULL)
        ORDER BY gateway, round
    """
    found: dict[str, Plausibility] = {}
    for span in spans(stages):
        plans = span.stage.plans
        for level, plan in enumerate(plans):
            which = f", epsilon {plan.epsilon:g}" if len(plans) > 1 else ""
            which = which if span.last is None else f", {span.stage.name}"
            total, before = plan.tally(), len(found)
            values = span.first, span.last or LAST_ROUND, len(plans), level, number
            for gateway, tally in _tallies(file, plan, counted, query, *values):
                found[f"{name(gateway)}{which}"] = tally.plausibility()
                total += tally
            if len(found) > before + 1:
                found[f"All gateways{which}"] = total.plausibility()
    return [
        f"{who}: {text}"
        for who, each in found.items()
        for text in each.among(among * len(found)).warnings
    ]


def _take(path: Path) -> IO[bytes]:
    lock = locks.lock_file(path).open("ab")
    if not locks.take(lock):
        lock.close()
        raise BlockingIOError(f"{path} is locked by another server.")
    return lock
