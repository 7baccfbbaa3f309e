"""What transactions read and write, in SQL that SQLite and PostgreSQL share.

As a transaction that writes is the only one, what it has read stays true: each row is read once,
and written once, before the transaction ends.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, final, get_type_hints

from fedldp_fleet.store.base import (
    QUEUED,
    RUNNING,
    AnswerKey,
    AuditRow,
    JobRow,
    Member,
    PlaceRow,
    RoundRow,
    Rows,
    Sender,
    Token,
    Uncounted,
)

ROWS_AT_ONCE = 1 << 12  # read from the store
MOST_KEYS_AT_ONCE = 1 << 9

Row = TypeVar("Row", bound=tuple[Any, ...])
Key = tuple[Any, ...]


class DatabaseConnection(Protocol):
    """What executes statements, with question marks for values."""

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Return the rows of a statement."""

    def put(self, text: "TableText", rows: Sequence[Key]) -> None:
        """Add or replace rows of a table."""

    def remove(self, text: "TableText", keys: Sequence[Key]) -> None:
        """Remove the rows with these keys from a table."""


class _Setting(NamedTuple):
    name: str
    value: str


class _QuestionRow(NamedTuple):
    digest: bytes
    question: bytes


class _AnswerRow(NamedTuple):
    job: str
    round: int
    identifier: bytes
    vehicles: int
    report: bytes


class _Heard(NamedTuple):
    agent: str
    time: float


def _job(row: Key) -> JobRow:
    found = JobRow(*row)
    return found._replace(restored=bool(found.restored))


def _place(row: Key) -> PlaceRow:
    found = PlaceRow(*row)
    return found._replace(announced=bool(found.announced))


def _token(row: Key) -> Token:
    found = Token(*row)
    return found._replace(revoked=bool(found.revoked))


def _member(row: Key) -> Member:
    found = Member(*row)
    return found._replace(revoked=bool(found.revoked))


def marks(count: int) -> str:
    """Return so many question marks."""
    return ", ".join("?" * count)


class TableText(NamedTuple):
    """A table, and the statements that read it. The first columns are its key."""

    name: str
    keys: int
    columns: tuple[str, ...]
    types: tuple[str, ...]  # of the columns, in Python
    select: str
    one: str
    some: str
    order: str
    after: str
    on_conflict: str

    @classmethod
    def of(cls, name: str, keys: int, row: type[NamedTuple]) -> "TableText":
        """Return the statements for a table of such rows."""
        columns = tuple(row._fields)
        key = columns[:keys]
        where = " AND ".join(f"{each} = ?" for each in key)
        rest = ", ".join(f"{each} = excluded.{each}" for each in columns[keys:])
        select = f"SELECT {', '.join(columns)} FROM {name}"  # noqa: S608 (our own names)
        one = f"{select} WHERE {where}"
        order = f"ORDER BY {', '.join(key)} LIMIT ?"
        return cls(
            name,
            keys,
            columns,
            tuple(str(getattr(each, "__name__", each)) for each in get_type_hints(row).values()),
            select,
            one,
            some=f"{one.removesuffix('= ?')}IN ",
            order=f"{select} {order}",
            after=f"{select} WHERE ({', '.join(key)}) > ({marks(keys)}) {order}",
            on_conflict=f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {rest}",
        )


@final
class _Table(Generic[Row]):
    """The rows of a table that a transaction has read or written, by their first columns.

    Removed rows, and those that were looked for and are missing, are None.
    """

    def __init__(
        self, file: DatabaseConnection, text: TableText, make: Callable[[Key], Row]
    ) -> None:
        self._file, self._text, self._make, self._keys = file, text, make, text.keys
        self._rows: dict[Key, Row | None] = {}
        self._changed: dict[Key, None] = {}  # in the order in which they were changed

    def get(self, *key: object) -> Row | None:
        """Return a row."""
        if key not in self._rows:
            rows = self._file.execute(self._text.one, key)
            self._rows[key] = self._make(rows[0]) if rows else None
        return self._rows[key]

    def set(self, row: Row) -> None:
        """Add or replace a row."""
        self._change(row[: self._keys], row)

    def remove(self, *key: object) -> None:
        """Remove a row."""
        self._change(key, None)

    def _change(self, key: Key, row: Row | None) -> None:
        self._rows[key] = row
        self._changed[key] = None

    def pages(self) -> Iterator[list[Key]]:
        """Yield all rows, in the order of their keys, some at a time."""
        self.flush()
        rows = self._file.execute(self._text.order, (ROWS_AT_ONCE,))
        while rows:
            yield rows
            last = rows[-1][: self._keys]
            rows = self._file.execute(self._text.after, (*last, ROWS_AT_ONCE))

    def add(self, rows: list[Key]) -> None:
        """Add rows as another store has them, without remembering them."""
        self._file.put(self._text, [self._make(row) for row in rows])

    def expect(self, first: Key, last: Iterable[object]) -> None:
        """Read the rows with these first columns of the key, and any of the last ones."""
        missing = [each for each in last if (*first, each) not in self._rows]
        for start in range(0, len(missing), MOST_KEYS_AT_ONCE):
            some = missing[start : start + MOST_KEYS_AT_ONCE]
            # A power of two, so that there are few statements, which stay prepared.
            count = 1 << (len(some) - 1).bit_length()
            values = (*first, *some, *some[:1] * (count - len(some)))
            self._rows.update(dict.fromkeys((*first, each) for each in some))
            self.take(self._file.execute(f"{self._text.some}({marks(count)})", values))

    def take(self, rows: list[Key]) -> list[Row]:
        """Remember rows as they were read."""
        found = [self._make(row) for row in rows]
        self._rows.update((row[: self._keys], row) for row in found)
        return found

    def all(self, rest: str, *values: object) -> list[Row]:
        """Return the rows that a condition, which ends a statement, selects."""
        self.flush()
        return self.take(self._file.execute(f"{self._text.select} {rest}", values))

    def flush(self) -> None:
        """Write what was changed."""
        if not self._changed:
            return
        written = [(key, self._rows[key]) for key in self._changed]
        gone = [key for key, row in written if row is None]
        some = [row for _, row in written if row is not None]
        if gone:
            self._file.remove(self._text, gone)
        if some:
            self._file.put(self._text, some)
        self._changed.clear()


_SETTINGS = TableText.of("settings", 1, _Setting)
_JOBS = TableText.of("jobs", 1, JobRow)
_ROUNDS = TableText.of("rounds", 2, RoundRow)
_QUESTIONS = TableText.of("questions", 1, _QuestionRow)
_PLACES = TableText.of("places", 2, PlaceRow)
_ANSWERS = TableText.of("answers", 3, _AnswerRow)
_USED = TableText.of("used", 2, Sender)
_UNCOUNTED = TableText.of("uncounted", 3, Uncounted)
_MEMBERS = TableText.of("members", 1, Member)
_TOKENS = TableText.of("tokens", 1, Token)
_AUDIT = TableText.of("audit", 1, AuditRow)
_HEARD = TableText.of("heard", 1, _Heard)


@final
class Statements:
    """A transaction over a connection; `flush` writes what was changed."""

    def __init__(self, file: DatabaseConnection, origin: str = "SELECT ''") -> None:
        self._file, self._execute, self._origin = file, file.execute, origin
        self._settings = _Table(file, _SETTINGS, _Setting._make)
        self._jobs = _Table(file, _JOBS, _job)
        self._rounds = _Table(file, _ROUNDS, RoundRow._make)
        self._questions = _Table(file, _QUESTIONS, _QuestionRow._make)
        self._places = _Table(file, _PLACES, _place)
        self._answers = _Table(file, _ANSWERS, _AnswerRow._make)
        self._used = _Table(file, _USED, Sender._make)
        self._uncounted = _Table(file, _UNCOUNTED, Uncounted._make)
        self._members = _Table(file, _MEMBERS, _member)
        self._heard = _Table(file, _HEARD, _Heard._make)
        self._tokens = _Table(file, _TOKENS, _token)
        self._audit = _Table(file, _AUDIT, AuditRow._make)
        self._last_audit: AuditRow | None = None
        self._tables: dict[str, _Table[Any]] = {
            "settings": self._settings,
            "jobs": self._jobs,
            "rounds": self._rounds,
            "questions": self._questions,
            "places": self._places,
            "answers": self._answers,
            "used": self._used,
            "uncounted": self._uncounted,
            "members": self._members,
            "heard": self._heard,
            "tokens": self._tokens,
            "audit": self._audit,
        }
        self._active: list[str] | None = None
        self._none_expired: dict[str, float] = {}  # until when no place in a job has expired

    def flush(self) -> None:
        for table in self._tables.values():
            table.flush()

    def origin(self) -> str:
        [(found,)] = self._execute(self._origin)
        return str(found)

    def tables(self) -> Iterator[tuple[str, Rows]]:
        if jobs := self.jobs():
            yield "jobs", list(jobs)  # in their order
        for name, table in self._tables.items():
            if table is not self._jobs:
                for rows in table.pages():
                    yield name, rows

    def add_rows(self, table: str, rows: Rows) -> None:
        self._tables[table].add(rows)

    def expect(self, agents: Collection[str], answers: Collection[AnswerKey]) -> None:
        identifiers: dict[tuple[str, int], list[bytes]] = {}
        for job, number, identifier in answers:
            identifiers.setdefault((job, number), []).append(identifier)
        self._settings.all("")
        self._members.expect((), agents)
        for first, some in identifiers.items():
            self._answers.expect(first, some)
        rounds = {(row.name, row.round) for row in self.active_jobs()} | identifiers.keys()
        for job in {job for job, _ in rounds}:
            self._used.expect((job,), agents)
            self._places.expect((job,), agents)
            self._rounds.expect((job,), {number for name, number in rounds if name == job})

    def value(self, name: str) -> str:
        row = self._settings.get(name)
        return row.value if row else ""

    def set_value(self, name: str, value: str) -> None:
        self._settings.set(_Setting(name, value))

    def jobs(self) -> list[JobRow]:
        return self._jobs.all("ORDER BY position")

    def active_jobs(self) -> list[JobRow]:
        if self._active is None:
            rows = self._jobs.all("WHERE state IN (?, ?) ORDER BY position", QUEUED, RUNNING)
            self._active = [row.name for row in rows]
        return [row for row in map(self._jobs.get, self._active) if row is not None]

    def job(self, name: str) -> JobRow | None:
        return self._jobs.get(name)

    def set_job(self, row: JobRow) -> None:
        self._jobs.set(row)
        self._active = None

    def rounds(self, job: str) -> list[RoundRow]:
        return self._rounds.all("WHERE job = ? ORDER BY number", job)

    def round(self, job: str, number: int) -> RoundRow | None:
        return self._rounds.get(job, number)

    def set_round(self, row: RoundRow) -> None:
        self._rounds.set(row)

    def question(self, digest: bytes) -> bytes | None:
        row = self._questions.get(digest)
        return row.question if row else None

    def add_question(self, digest: bytes, question: bytes) -> None:
        self._questions.set(_QuestionRow(digest, question))

    def place(self, job: str, agent: str) -> PlaceRow | None:
        return self._places.get(job, agent)

    def set_place(self, row: PlaceRow) -> None:
        before = self.place(row.job, row.agent)
        if before is not None:
            self._add_placed(before, -before.vehicles)
        self._places.set(row)
        self._add_placed(row, row.vehicles)
        if row.expires <= self._none_expired.get(row.job, 0.0):
            del self._none_expired[row.job]

    def remove_place(self, row: PlaceRow) -> None:
        self._places.remove(row.job, row.agent)
        self._add_placed(row, -row.vehicles)

    def _add_placed(self, row: PlaceRow, vehicles: int) -> None:
        found = self.round(row.job, row.round)
        if found is not None:
            self.set_round(found._replace(placed=found.placed + vehicles))

    def expired_places(self, job: str, now: float) -> list[PlaceRow]:
        if now <= self._none_expired.get(job, 0.0):
            return []
        found = self._places.all("WHERE job = ? AND expires <= ?", job, now)
        if not found:
            self._none_expired[job] = now
        return found

    def places(self, job: str) -> list[PlaceRow]:
        return self._places.all("WHERE job = ?", job)

    def answer(self, job: str, number: int, identifier: bytes) -> bytes | None:
        row = self._answers.get(job, number, identifier)
        return row.report if row else None

    def add_answer(
        self, job: str, number: int, identifier: bytes, vehicles: int, report: bytes
    ) -> None:
        self._answers.set(_AnswerRow(job, number, identifier, vehicles, report))
        found = self.round(job, number)
        if found is not None:
            self.set_round(found._replace(answers=found.answers + vehicles))

    def answers(self, job: str, number: int) -> Iterator[bytes]:
        self._answers.flush()
        last = b""
        query = (
            "SELECT identifier, report FROM answers WHERE job = ? AND round = ? "
            "AND identifier > ? ORDER BY identifier LIMIT ?"
        )
        while rows := self._execute(query, (job, number, last, ROWS_AT_ONCE)):
            for last, report in rows:  # noqa: B007 (the last one is where the next query begins)
                yield report

    def answered(self, job: str, number: int) -> int:
        self._answers.flush()
        query = "SELECT COALESCE(SUM(vehicles), 0) FROM answers WHERE job = ? AND round = ?"
        [(found,)] = self._execute(query, (job, number))
        return int(found)

    def used(self, job: str, agent: str) -> int:
        row = self._used.get(job, agent)
        return row.vehicles if row else 0

    def add_used(self, job: str, agent: str, vehicles: int, excess: int = 0) -> None:
        before = self._used.get(job, agent) or Sender(job, agent, 0)
        self._used.set(Sender(job, agent, before.vehicles + vehicles, before.excess + excess))

    def senders(self, job: str, most: int) -> list[Sender]:
        rest = "WHERE job = ? ORDER BY excess DESC, vehicles DESC, agent LIMIT ?"
        return self._used.all(rest, job, most)

    def most_used(self, job: str) -> tuple[int, int]:
        self._used.flush()
        query = "SELECT COUNT(*), COALESCE(MAX(vehicles), 0) FROM used WHERE job = ?"
        [(agents, most)] = self._execute(query, (job,))
        return int(agents), int(most)

    def add_uncounted(self, row: Uncounted) -> None:
        before = self._uncounted.get(*row[:3])
        vehicles = row.vehicles + (before.vehicles if before else 0)
        self._uncounted.set(row._replace(vehicles=vehicles))

    def uncounted(self, job: str) -> list[Uncounted]:
        return self._uncounted.all("WHERE job = ?", job)

    def members(self) -> list[Member]:
        return self._members.all("ORDER BY agent")

    def members_since(self, change: int) -> list[Member]:
        return self._members.all("WHERE change > ? ORDER BY change", change)

    def member(self, agent: str) -> Member | None:
        return self._members.get(agent)

    def set_member(self, row: Member) -> None:
        self._members.set(row)

    def heard(self) -> dict[str, float]:
        return dict(self._heard.all("ORDER BY agent"))

    def set_heard(self, agent: str, time: float) -> None:
        self._heard.set(_Heard(agent, time))

    def tokens(self) -> list[Token]:
        return self._tokens.all("ORDER BY name")

    def token(self, name: str) -> Token | None:
        return self._tokens.get(name)

    def set_token(self, row: Token) -> None:
        self._tokens.set(row)

    def audit(self) -> list[AuditRow]:
        return self._audit.all("ORDER BY number")

    def last_audit(self) -> AuditRow | None:
        if self._last_audit is None:
            rows = self._audit.all("ORDER BY number DESC LIMIT 1")
            self._last_audit = rows[0] if rows else None
        return self._last_audit

    def add_audit(self, row: AuditRow) -> None:
        self._audit.set(row)
        self._last_audit = row
