"""Where a job stands: the server's file, from which it goes on after any crash.

What is asked is written before it is sent, and what is received before anything else is done with
it. So a server that was killed asks the same again of those who have not answered, and nobody
else; and as all reports stay in the file, the whole job can be computed again from them.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, NamedTuple, Self, final

import numpy as np

from fedldp._internal import locks
from fedldp._internal.database import Database, Kind
from fedldp.errors import DomainError, WireError
from fedldp.fleet.protocol import Answer, Question
from fedldp.learn.optimizer import Recipe, State, gradient_of_levels, step
from fedldp.plan import Plan
from fedldp.plausibility import Plausibility
from fedldp.tally import Tally

_KIND = Kind(
    name="checkpoint",
    mark=b"fJOB",
    format=1,
    tables="""
        CREATE TABLE job (
            name TEXT NOT NULL,
            settings TEXT NOT NULL,  -- their digest
            start TEXT NOT NULL,  -- the state before the first round
            state TEXT NOT NULL,  -- the state after the last one
            round INTEGER NOT NULL,  -- how many are done
            ended TEXT NOT NULL,  -- why, once it is over
            failed INTEGER NOT NULL  -- whether it ended without a result
        );
        CREATE TABLE asks (
            round INTEGER NOT NULL,
            gateway TEXT NOT NULL,
            n INTEGER NOT NULL,
            digest BLOB NOT NULL,  -- of the question
            PRIMARY KEY (round, gateway)
        );
        CREATE TABLE batches (
            round INTEGER NOT NULL,
            gateway TEXT NOT NULL,
            answered INTEGER NOT NULL,
            silent INTEGER NOT NULL,
            size INTEGER NOT NULL,  -- bytes, as it came
            report BLOB NOT NULL,  -- the records that it held
            PRIMARY KEY (round, gateway)
        );
    """,
    advice="Restore the file: a new one would ask vehicles again that have answered.",
)
_ROOM = 1 << 24  # counters of all tallies that are kept in memory


class Standing(NamedTuple):
    """How far a job is, and why it is over if it is."""

    round: int  # how many are done
    state: str
    ended: str
    failed: int  # 0 or 1


class Counts(NamedTuple):
    """How many vehicles a round, or a whole job, asked, and what became of them.

    >>> Counts(asked=10, reports=6, refusals=1, silent=1).waiting
    2
    """

    asked: int = 0
    reports: int = 0  # vehicles that answered
    refusals: int = 0  # vehicles that refused or were absent: a vault does not say which
    silent: int = 0  # vehicles behind a vault or a gateway that said nothing in time

    @property
    def waiting(self) -> int:
        """How many vehicles may still answer, as their round is open."""
        return self.asked - self.reports - self.refusals - self.silent

    def closed(self) -> "Counts":
        """Return the counts when nobody is waited for any more: the rest was silent."""
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


@final
@dataclass(frozen=True)
class JobStatus:
    """What there is to see of a job while it runs."""

    job: str
    rounds: int  # that are done
    asked: int  # gateways, in the round that is not done
    received: int  # of these
    total: Counts  # of all rounds
    last: Counts  # of the last round that is done
    open: Counts  # of the round that is not done
    bytes: Mapping[str, int]  # that came from each gateway
    ended: str  # why it is over, or nothing
    failed: bool

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
        """How many vehicles said nothing in time."""
        return self.total.silent


@final
class Checkpoint:
    """The file of one job, for one process at a time: others get `BlockingIOError`.

    A file of another job, or of one with other settings, is refused (`DomainError`).

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
                values = (job, settings, start, start)
                self._file.execute("INSERT INTO job VALUES (?, ?, ?, ?, 0, '', 0)", values)

    @property
    def standing(self) -> Standing:
        """How far the job is."""
        with self._file.gate():
            return _standing(self._file)

    @property
    def asked(self) -> dict[str, bytes]:
        """The gateways asked in the round that is not done, each with its question's digest."""
        with self._file.gate():
            query = "SELECT gateway, digest FROM asks WHERE round = ? ORDER BY gateway"
            return dict(self._file.execute(query, (_standing(self._file).round + 1,)))

    @property
    def pending(self) -> list[str]:
        """The gateways among these that have not answered."""
        with self._file.gate():
            query = """
                SELECT gateway FROM asks WHERE round = ?1 AND gateway NOT IN (
                    SELECT gateway FROM batches WHERE round = ?1) ORDER BY gateway
            """
            rows = self._file.execute(query, (_standing(self._file).round + 1,))
            return [gateway for (gateway,) in rows]

    def ask(self, questions: Iterable[Question]) -> None:
        """Write down that these questions may be sent from now on, all of them or none."""
        with self._file.transaction():
            number = _standing(self._file).round + 1
            for question in questions:
                if question.round != number:
                    raise DomainError(f"round {number} is to be asked, not {question.round}.")
                values = (number, question.gateway, question.n, question.digest)
                self._file.execute("INSERT INTO asks VALUES (?, ?, ?, ?)", values)

    def store(self, question: Question, answer: Answer, report: bytes, tally: Tally) -> None:
        """Keep what a gateway has answered, its report and its tally; the first answer stays."""
        place = (question.round, question.gateway)
        values = (*place, answer.answered, answer.silent, question.size)
        with self._file.transaction():
            if question.round != _standing(self._file).round + 1:
                raise DomainError(f"round {question.round} is not open: nothing is counted in it.")
            insert = "INSERT OR IGNORE INTO batches VALUES (?, ?, ?, ?, ?, ?)"
            self._file.execute(insert, (*values, report))
            [(stored,)] = self._file.execute("SELECT changes()")
        if stored:
            self._counted.keep(place, tally)

    def tally(self, plan: Plan, number: int) -> Tally:
        """Return what all the reports of a round say."""
        with self._file.gate():
            return _tally(self._file, plan, number, self._counted)

    def warnings(self, *plans: Plan, number: int | None = None, among: int = 1) -> list[str]:
        """Return what is implausible about the reports of all rounds, or of one and its plan.

        It is one of a number of such checks: the false-alarm rate holds for all of them together.
        """
        with self._file.gate():
            return _warnings(self._file, plans, number, among, self._counted)

    def counts(self, number: int) -> Counts:
        """Return what has come in a round."""
        with self._file.gate():
            return total(_counts(self._file, number))

    def history(self) -> list[Counts]:
        """Return what has come in each round, also in the one that is open if it was asked."""
        with self._file.gate():
            return _counts(self._file)

    def step(self, state: str) -> None:
        """End the round with a new state: the next one is open."""
        with self._file.transaction():
            self._file.execute("UPDATE job SET round = round + 1, state = ?", (state,))

    def end(self, why: str, *, failed: bool = False) -> None:
        """End the job."""
        with self._file.transaction():
            self._file.execute("UPDATE job SET ended = ?, failed = ?", (why, failed))

    def close(self) -> None:
        """Close the file, and let others have it."""
        self._file.close()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


# What others may ask while the server runs: none of it waits for the lock.


def locked(path: str | os.PathLike[str]) -> bool:
    """Return whether a server has the checkpoint."""
    beside = locks.beside(Path(path).resolve())
    if not beside.exists():
        return False
    with beside.open("rb") as lock:
        return locks.is_taken(lock)


def finished(path: str | os.PathLike[str]) -> bool:
    """Return whether the job is over, with a result or without."""
    found = status(path)
    return found is not None and bool(found.ended)


def check(path: str | os.PathLike[str], job: str, settings: str) -> None:
    """Refuse a checkpoint of another job, or of one with other settings, as `Checkpoint` does."""
    with _opened(path) as file:
        if file is not None:
            _belongs(file, job, settings)


def status(path: str | os.PathLike[str]) -> JobStatus | None:
    """Return how far a job is; None if it has not begun."""
    with _opened(path) as file:
        if file is None:
            return None
        [(job,)] = file.execute("SELECT name FROM job")
        standing = _standing(file)
        rounds = _counts(file)
        counts = "SELECT (SELECT COUNT(*) FROM asks WHERE round = ?1), COUNT(*) FROM batches"
        [(asked, received)] = file.execute(f"{counts} WHERE round = ?1", (standing.round + 1,))
        sizes = file.execute("SELECT gateway, SUM(size) FROM batches GROUP BY 1 ORDER BY 1")
        return JobStatus(
            job=job,
            rounds=standing.round,
            asked=asked,
            received=received,
            total=total(rounds),
            last=total(rounds[: standing.round][-1:]),
            open=total(rounds[standing.round :]),
            bytes=dict(sizes),
            ended=standing.ended,
            failed=bool(standing.failed or (standing.ended and not total(rounds).reports)),
        )


def warnings(path: str | os.PathLike[str], *plans: Plan) -> list[str]:
    """Return what is implausible about the reports of a job: of each gateway, and of all of them.

    The plans are those of all levels. Honest vehicles cause a warning less than once in a million
    jobs.
    """
    with _opened(path) as file:
        return [] if file is None else _warnings(file, plans, None, 1, _Counted(room=0))


def replay(path: str | os.PathLike[str], plan: Plan, recipe: Recipe, *levels: Plan) -> State:
    """Compute a training again from the reports in its checkpoint: it gives the same state.

    The plans are those of the job: of its first level, and of the others.
    """
    plans = (plan, *levels)
    with _opened(path) as file:
        if file is None:
            raise DomainError(f"{path} is no checkpoint of a job that has begun.")
        [(start,)] = file.execute("SELECT start FROM job")
        state = State.from_json(start)
        for number in range(len(plans), _standing(file).round + 1, len(plans)):
            rounds = range(number - len(plans) + 1, number + 1)
            tallies = [
                _tally(file, *each, _Counted(room=0)) for each in zip(plans, rounds, strict=True)
            ]
            state = advance(recipe, state, *tallies)
    return state


def advance(recipe: Recipe, state: State, *tallies: Tally) -> State:
    """Return the state after a round of each level: of one, if there are no levels.

    A model that leaves all bounds is for others to see. The server and a replay both step here.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return step(recipe, state, gradient_of_levels(tallies, recipe.estimator))


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[Database | None]:
    """Open a checkpoint to read it at one moment; None if the job has not begun."""
    if not Path(path).exists():
        yield None
        return
    file = Database(path, _KIND, inspect=False)
    try:
        with file.gate():
            file.execute("BEGIN")  # all that is read belongs together, and nobody has to wait
            yield file if file.execute("SELECT 1 FROM job") else None
    finally:
        file.close()


def _standing(file: Database) -> Standing:
    [row] = file.execute("SELECT round, state, ended, failed FROM job")
    return Standing(*row)


def _belongs(file: Database, job: str, settings: str) -> bool:
    """Return whether a file is of this job; it is of none if the job has not begun."""
    known = file.execute("SELECT name, settings FROM job")
    if known and known != [(job, settings)]:
        raise DomainError(
            f"{file.path} is of the job {known[0][0]!r}, or was begun with another "
            "plan, model, recipe or number of reports: give a new job another checkpoint, "
            "or restore its settings."
        )
    return bool(known)


def _counts(file: Database, number: int | None = None) -> list[Counts]:
    """Return the counts of each round, or of one. Once it is over, who said nothing was silent."""
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
    """The tallies of answers that this process has counted: each is counted once, if there is room.

    A checkpoint keeps reports, and not what was counted. The oldest tallies go first.
    """

    def __init__(self, room: int = _ROOM) -> None:
        self._room, self._kept = room, dict[tuple[int, str], Tally]()

    def keep(self, place: tuple[int, str], tally: Tally) -> None:
        """Keep the tally of the answer that a gateway gave in a round."""
        self._kept[place] = tally
        self._room -= _size(tally)
        while self._room < 0:
            self._room += _size(self._kept.pop(next(iter(self._kept))))

    def find(self, place: tuple[int, str]) -> Tally | None:
        """Return a tally that is kept."""
        return self._kept.get(place)


def _size(tally: Tally) -> int:
    return sum(part.size for part in tally.counts)


def _tally(file: Database, plan: Plan, number: int, counted: _Counted) -> Tally:
    query = "SELECT round, gateway FROM batches WHERE round = ? ORDER BY gateway"
    return sum((tally for _, tally in _tallies(file, plan, counted, query, number)), plan.tally())


def _tallies(
    file: Database, plan: Plan, counted: _Counted, query: str, *values: int | None
) -> Iterator[tuple[str, Tally]]:
    """Yield each gateway with what its reports say, of the rounds and gateways that are queried."""
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
    file: Database, plans: Sequence[Plan], number: int | None, among: int, counted: _Counted
) -> list[str]:
    """Check what each gateway, and all of them, have reported on each of the plans.

    The plans take turns: of L plans the first is asked in round 1, L + 1, and so on.
    """
    query = """
        SELECT round, gateway FROM batches
        WHERE (round = ?1 OR ?1 IS NULL AND (round - 1) % ?2 = ?3) ORDER BY gateway, round
    """
    found: dict[str, Plausibility] = {}
    for level, plan in enumerate(plans):
        which = f", epsilon {plan.epsilon:g}" if len(plans) > 1 else ""
        total, before = plan.tally(), len(found)
        for gateway, tally in _tallies(file, plan, counted, query, number, len(plans), level):
            found[f"Gateway {gateway}{which}"] = tally.plausibility()
            total += tally
        if len(found) > before + 1:
            found[f"All gateways{which}"] = total.plausibility()
    return [
        f"{who}: {text}"
        for who, each in found.items()
        for text in each.among(among * len(found)).warnings
    ]


def _take(path: Path) -> IO[bytes]:
    lock = locks.beside(path).open("ab")
    if not locks.take(lock):
        lock.close()
        raise BlockingIOError(f"{path} is locked by another server.")
    return lock
