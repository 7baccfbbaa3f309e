"""The server's store in one SQLite file, which one server uses."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from fedldp.storage.database import Database, Kind, Readable, snapshot
from fedldp_fleet.store.base import (
    QUEUED,
    RUNNING,
    JobRow,
    Member,
    PlaceRow,
    RoundRow,
    Transaction,
    Uncounted,
)

_AT_ONCE = 1 << 12  # reports that are read from the file

KIND = Kind(
    name="store of a server",
    mark=b"fSrv",
    format=1,
    tables="""
        CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
        CREATE TABLE jobs (
            position INTEGER PRIMARY KEY,
            name TEXT NOT NULL UNIQUE,
            document TEXT NOT NULL,
            signed TEXT NOT NULL,
            state TEXT NOT NULL,
            round INTEGER NOT NULL,
            learned TEXT NOT NULL,
            reason TEXT NOT NULL,
            result TEXT NOT NULL,
            restored INTEGER NOT NULL
        );
        CREATE TABLE rounds (
            job TEXT NOT NULL,
            number INTEGER NOT NULL,
            question BLOB NOT NULL,
            digest BLOB NOT NULL,
            statement TEXT NOT NULL,
            wanted INTEGER NOT NULL,
            opened REAL NOT NULL,
            deadline REAL NOT NULL,
            answers INTEGER NOT NULL,
            placed INTEGER NOT NULL,
            closed REAL,
            PRIMARY KEY (job, number)
        );
        CREATE INDEX rounds_by_question ON rounds (digest);
        CREATE TABLE places (
            job TEXT NOT NULL,
            agent TEXT NOT NULL,
            round INTEGER NOT NULL,
            vehicles INTEGER NOT NULL,
            expires REAL NOT NULL,
            announced INTEGER NOT NULL,
            PRIMARY KEY (job, agent)
        ) WITHOUT ROWID;
        CREATE INDEX places_by_time ON places (job, expires);
        CREATE TABLE answers (
            job TEXT NOT NULL,
            round INTEGER NOT NULL,
            identifier BLOB NOT NULL,
            vehicles INTEGER NOT NULL,
            report BLOB NOT NULL,
            PRIMARY KEY (job, round, identifier)
        ) WITHOUT ROWID;
        CREATE TABLE used (
            job TEXT NOT NULL,
            agent TEXT NOT NULL,
            vehicles INTEGER NOT NULL,
            PRIMARY KEY (job, agent)
        ) WITHOUT ROWID;
        CREATE TABLE uncounted (
            job TEXT NOT NULL,
            round INTEGER NOT NULL,
            reason TEXT NOT NULL,
            vehicles INTEGER NOT NULL,
            PRIMARY KEY (job, round, reason)
        ) WITHOUT ROWID;
        CREATE TABLE members (
            agent TEXT PRIMARY KEY,
            vehicles INTEGER NOT NULL,
            secret BLOB NOT NULL,
            next_secret BLOB NOT NULL,
            code BLOB NOT NULL,
            revoked INTEGER NOT NULL
        ) WITHOUT ROWID;
    """,
    advice=(
        "Agents may have been told that their answers count. Restore the last backup with "
        "`fedldp server restore`: agents then send again what they have."
    ),
)


@final
class SQLiteStore:
    """A store in a file. A missing one is created.

    >>> import tempfile
    >>> store = SQLiteStore(tempfile.mkdtemp() + "/server.db")
    >>> with store.transaction() as transaction:
    ...     transaction.set_value("incarnation", "1")
    >>> with store.reading() as transaction:
    ...     transaction.value("incarnation")
    '1'
    >>> store.close()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = Database(path, KIND)
        self.path = self._file.path

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Run a transaction. SQLite admits one at a time, so every lock is exclusive."""
        with self._file.transaction():
            yield _Transaction(self._file)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Read one state of everything, without waiting for transactions."""
        with snapshot(self.path, KIND, inspect=False) as file:
            yield _Transaction(file)

    def close(self) -> None:
        """Close the file. Closing it again does nothing."""
        self._file.close()


@final
class _Transaction:
    def __init__(self, file: Readable) -> None:
        self._file, self._execute = file, file.execute

    def value(self, name: str) -> str:
        rows = self._execute("SELECT value FROM settings WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else ""

    def set_value(self, name: str, value: str) -> None:
        self._execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    def jobs(self) -> list[JobRow]:
        return [_job(row) for row in self._execute(f"{_JOBS} ORDER BY position")]

    def active_jobs(self) -> list[JobRow]:
        query = f"{_JOBS} WHERE state IN (?, ?) ORDER BY position"
        return [_job(row) for row in self._execute(query, (QUEUED, RUNNING))]

    def job(self, name: str) -> JobRow | None:
        rows = self._execute(f"{_JOBS} WHERE name = ?", (name,))
        return _job(rows[0]) if rows else None

    def set_job(self, row: JobRow) -> None:
        self._execute(
            f"INSERT INTO jobs ({_JOB}) VALUES ({_marks(row)}) "  # noqa: S608 (our own names)
            "ON CONFLICT (name) DO UPDATE SET document = excluded.document, "
            "signed = excluded.signed, state = excluded.state, round = excluded.round, "
            "learned = excluded.learned, reason = excluded.reason, result = excluded.result, "
            "restored = excluded.restored",
            row,
        )

    def rounds(self, job: str) -> list[RoundRow]:
        query = "SELECT * FROM rounds WHERE job = ? ORDER BY number"
        return [RoundRow(*row) for row in self._execute(query, (job,))]

    def round_states(self, job: str) -> list[RoundRow]:
        columns = ", ".join("x''" if name == "question" else name for name in RoundRow._fields)
        query = f"SELECT {columns} FROM rounds WHERE job = ? ORDER BY number"  # noqa: S608
        return [RoundRow(*row) for row in self._execute(query, (job,))]

    def shared_round(self, job: str, number: int) -> RoundRow | None:
        query = "SELECT * FROM rounds WHERE job = ? AND number = ?"
        rows = self._execute(query, (job, number))
        return RoundRow(*rows[0]) if rows else None

    locked_round = shared_round

    def question(self, digest: bytes) -> bytes | None:
        rows = self._execute("SELECT question FROM rounds WHERE digest = ? LIMIT 1", (digest,))
        return bytes(rows[0][0]) if rows else None

    def set_round(self, row: RoundRow) -> None:
        self._execute(f"INSERT OR REPLACE INTO rounds VALUES ({_marks(row)})", row)  # noqa: S608

    def place(self, job: str, agent: str) -> PlaceRow | None:
        rows = self._execute("SELECT * FROM places WHERE job = ? AND agent = ?", (job, agent))
        return _place(rows[0]) if rows else None

    def set_place(self, row: PlaceRow) -> None:
        before = self.place(row.job, row.agent)
        if before is not None:
            self.remove_place(before)
        self._execute("INSERT INTO places VALUES (?, ?, ?, ?, ?, ?)", row)
        self._add_placed(row, row.vehicles)

    def remove_place(self, row: PlaceRow) -> None:
        self._execute("DELETE FROM places WHERE job = ? AND agent = ?", (row.job, row.agent))
        self._add_placed(row, -row.vehicles)

    def _add_placed(self, row: PlaceRow, vehicles: int) -> None:
        update = "UPDATE rounds SET placed = placed + ? WHERE job = ? AND number = ?"
        self._execute(update, (vehicles, row.job, row.round))

    def expired_places(self, job: str, now: float) -> list[PlaceRow]:
        query = "SELECT * FROM places WHERE job = ? AND expires <= ?"
        return [_place(row) for row in self._execute(query, (job, now))]

    def places(self, job: str) -> list[PlaceRow]:
        return [_place(row) for row in self._execute("SELECT * FROM places WHERE job = ?", (job,))]

    def answer(self, job: str, number: int, identifier: bytes) -> bytes | None:
        query = "SELECT report FROM answers WHERE job = ? AND round = ? AND identifier = ?"
        rows = self._execute(query, (job, number, identifier))
        return bytes(rows[0][0]) if rows else None

    def add_answer(
        self, job: str, number: int, identifier: bytes, vehicles: int, report: bytes
    ) -> None:
        row = (job, number, identifier, vehicles, report)
        self._execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?)", row)
        update = "UPDATE rounds SET answers = answers + ? WHERE job = ? AND number = ?"
        self._execute(update, (vehicles, job, number))

    def answers(self, job: str, number: int) -> Iterator[bytes]:
        last = b""
        query = (
            "SELECT identifier, report FROM answers WHERE job = ? AND round = ? "
            "AND identifier > ? ORDER BY identifier LIMIT ?"
        )
        while rows := self._execute(query, (job, number, last, _AT_ONCE)):
            for last, report in rows:  # noqa: B007 (the last one is where the next query begins)
                yield report

    def answered(self, job: str, number: int) -> int:
        query = "SELECT COALESCE(SUM(vehicles), 0) FROM answers WHERE job = ? AND round = ?"
        [(found,)] = self._execute(query, (job, number))
        return int(found)

    def used(self, job: str, agent: str) -> int:
        query = "SELECT vehicles FROM used WHERE job = ? AND agent = ?"
        rows = self._execute(query, (job, agent))
        return int(rows[0][0]) if rows else 0

    def add_used(self, job: str, agent: str, vehicles: int) -> None:
        self._execute(
            "INSERT INTO used VALUES (?, ?, ?) ON CONFLICT (job, agent) "
            "DO UPDATE SET vehicles = vehicles + excluded.vehicles",
            (job, agent, vehicles),
        )

    def add_uncounted(self, row: Uncounted) -> None:
        self._execute(
            "INSERT INTO uncounted VALUES (?, ?, ?, ?) ON CONFLICT (job, round, reason) "
            "DO UPDATE SET vehicles = vehicles + excluded.vehicles",
            row,
        )

    def uncounted(self, job: str) -> list[Uncounted]:
        rows = self._execute("SELECT * FROM uncounted WHERE job = ?", (job,))
        return [Uncounted(*row) for row in rows]

    def members(self) -> list[Member]:
        return [_member(row) for row in self._execute("SELECT * FROM members ORDER BY agent")]

    def member(self, agent: str) -> Member | None:
        rows = self._execute("SELECT * FROM members WHERE agent = ?", (agent,))
        return _member(rows[0]) if rows else None

    def set_member(self, row: Member) -> None:
        self._execute(f"INSERT OR REPLACE INTO members VALUES ({_marks(row)})", row)  # noqa: S608


_JOB = ", ".join(JobRow._fields)
_JOBS = f"SELECT {_JOB} FROM jobs"  # noqa: S608 (our own names)


def _marks(row: tuple[object, ...]) -> str:
    return ", ".join("?" * len(row))


def _job(row: tuple[object, ...]) -> JobRow:
    found = JobRow(*row)  # type: ignore[arg-type]
    return found._replace(restored=bool(found.restored))


def _place(row: tuple[object, ...]) -> PlaceRow:
    found = PlaceRow(*row)  # type: ignore[arg-type]
    return found._replace(announced=bool(found.announced))


def _member(row: tuple[object, ...]) -> Member:
    found = Member(*row)  # type: ignore[arg-type]
    return found._replace(revoked=bool(found.revoked))
