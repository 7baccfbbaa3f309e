"""The server's store in one SQLite file, which one server uses."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import final

from fedldp.errors import DomainError
from fedldp.storage import locks
from fedldp.storage.database import Database, Kind, Readable, snapshot
from fedldp_fleet.store.base import Transaction
from fedldp_fleet.store.statements import Key, Statements, TableText, marks

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
        CREATE TABLE questions (digest BLOB PRIMARY KEY, question BLOB NOT NULL) WITHOUT ROWID;
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
            excess INTEGER NOT NULL,
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
            revoked INTEGER NOT NULL,
            change INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE INDEX members_by_change ON members (change);
        CREATE TABLE tokens (
            name TEXT PRIMARY KEY,
            role TEXT NOT NULL,
            secret_hash BLOB NOT NULL,
            revoked INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE TABLE audit (number INTEGER PRIMARY KEY, entry TEXT NOT NULL, head BLOB NOT NULL);
        CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
            BEGIN SELECT RAISE(ABORT, 'the audit log can only grow'); END;
        CREATE TRIGGER audit_is_not_cut BEFORE DELETE ON audit
            BEGIN SELECT RAISE(ABORT, 'the audit log can only grow'); END;
        CREATE TABLE heard (agent TEXT PRIMARY KEY, time REAL NOT NULL) WITHOUT ROWID;
    """,
    advice=(
        "Agents may have been told that their answers count. Restore the last backup with "
        "`fedldp server restore`: agents then send again what they have."
    ),
)


@final
class SQLiteStore:
    """A store in a file. A missing one is created, or refused.

    >>> import tempfile
    >>> store = SQLiteStore(tempfile.mkdtemp() + "/server.db")
    >>> with store.transaction() as transaction:
    ...     transaction.set_value("incarnation", "1")
    >>> with store.reading() as transaction:
    ...     transaction.value("incarnation")
    '1'
    >>> store.close()
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        self.path = Path(path).resolve()
        if not create and not self.path.exists():
            raise DomainError(
                f"{self.path} is missing. Restore the last backup: fedldp server restore"
            )
        self._file = Database(self.path, KIND)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Run a transaction. SQLite admits one at a time."""
        with self._file.transaction():
            statements = Statements(_SQLiteConnection(self._file))
            yield statements
            statements.flush()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Read one state of everything, without waiting for transactions."""
        with reading(self.path) as statements:
            yield statements

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Refuse a second process that serves the same file."""
        with locks.lock_file(self.path).open("w") as lock:
            if not locks.take(lock):
                raise DomainError(f"another process runs the server in {self.path.parent}.")
            yield

    def is_served(self) -> bool:
        """Return whether a process serves this file."""
        try:
            with locks.lock_file(self.path).open("w") as lock:
                return locks.is_taken(lock)
        except OSError:
            return False

    def close(self) -> None:
        """Close the file. Closing it again does nothing."""
        self._file.close()


@contextmanager
def reading(path: Path) -> Iterator[Transaction]:
    """Read one state of a file, and write nothing, not even beside it."""
    with snapshot(path, KIND, inspect=False) as file:
        yield Statements(_SQLiteConnection(file))


@final
class _SQLiteConnection:
    """A file, or a snapshot of one, in which nothing can be written."""

    def __init__(self, file: Readable) -> None:
        self._file, self.execute = file, file.execute

    def put(self, text: TableText, rows: Sequence[Key]) -> None:
        listed = ", ".join(text.columns)
        values = f"({listed}) VALUES ({marks(len(text.columns))})"
        self._change(f"INSERT INTO {text.name} {values} {text.on_conflict}", rows)

    def remove(self, text: TableText, keys: Sequence[Key]) -> None:
        where = " AND ".join(f"{each} = ?" for each in text.columns[: text.keys])
        self._change(f"DELETE FROM {text.name} WHERE {where}", keys)  # noqa: S608 (our own names)

    def _change(self, statement: str, rows: Sequence[Key]) -> None:
        self._file.execute_many(statement, rows)  # type: ignore[attr-defined]
