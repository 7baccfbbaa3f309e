"""SQLite files that survive crashes: what is committed is on disk, and damage is noticed.

The threads and processes of one machine may share a file. While it is in use, and after a crash,
files named `-wal` and `-shm` lie next to it. They are part of it and must be moved with it. Kinds
of files that must never lose a transaction have a head too (`fedldp.storage.head`).

A file of an older format is migrated when it is opened; one of a newer format is refused. A
`snapshot` only reads: it neither waits for the processes that use the file nor changes anything.
"""

import contextlib
import errno
import os
import shlex
import sqlite3
import threading
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from time import sleep
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, cast, final

from ..errors import DomainError, WireError
from ..vehicle import shown
from . import files, head
from .head import Head, Record

_LOCK_TIMEOUT_SECONDS = 60.0
_SNAPSHOT_TIMEOUT_SECONDS = 5.0  # it waits only while a crash is recovered from

__all__ = ["Database", "Kind", "Readable", "create", "replace", "snapshot"]

# A damaged file can also make texts, those of errors among them, that are no UTF-8.
ERRORS = sqlite3.Error, UnicodeDecodeError

_TRIES, _PAUSE_SECONDS = 5, 0.01  # to read a head that others are writing

FILE_NAME_ENDINGS = "", "-head", "-wal", "-shm", "-journal"  # of the files of one database

_CACHE_KILOBYTES = 1 << 16  # SQLite uses as many as it needs, and the disk beyond


class Kind(NamedTuple):
    """What distinguishes the databases of one purpose from others.

    Attributes
    ----------
    name
        What messages call it.
    mark
        Four bytes in the header of the file.
    format
        The number of its format.
    tables
        The SQL statements that create its tables.
    advice
        What to do about a damaged file; `{path}` is replaced by its path.
    migrations
        For each older format, the statements and functions that turn it into the next one.
    head_since
        The format from which on files have a head, so that a lost transaction is noticed. By
        default they have none, and their rows may be changed.
    missing
        What to do about a missing file, where it is not made without being told.
    derived
        Tables that repeat, for speed, what the rows of others say, and may change: they are not
        counted, a mirror keeps its own, and whoever opens a file compares them with the others. For
        each table, the triggers that keep it, such as "AFTER INSERT ON main.words BEGIN ... END".

    Examples
    --------
    >>> Kind("list", b"LIST", 1, "CREATE TABLE words (word TEXT);", "Delete {path}.").format
    1
    """

    name: str
    mark: bytes
    format: int
    tables: str
    advice: str
    migrations: "Mapping[int, tuple[Step, ...]]" = MappingProxyType({})
    head_since: int = 0
    missing: str = ""
    derived: "Mapping[str, tuple[str, ...]]" = MappingProxyType({})


class Readable(Protocol):
    """What can be read: a file, or a snapshot of one.

    Attributes
    ----------
    path
        The file.

    Examples
    --------
    >>> def first_word(file: Readable) -> str:
    ...     [(word,)] = file.execute("SELECT word FROM words ORDER BY rowid LIMIT 1")
    ...     if not isinstance(word, str):
    ...         raise file.damaged(f"it has a word {word!r}")
    ...     return word
    """

    path: Path

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Return the rows of a statement.

        Parameters
        ----------
        statement
            The statement, in SQL.
        values
            What its question marks stand for.

        Returns
        -------
        list
            The rows, each a tuple.

        Raises
        ------
        WireError
            If the file is damaged.
        OSError
            If it cannot be read or written.
        """

    def damaged(self, what: str) -> WireError:
        """Return the error for a damaged file.

        Parameters
        ----------
        what
            What is wrong with it.

        Returns
        -------
        WireError
            An error with the path and the advice of its kind.
        """


Step = str | Callable[[Readable], None]  # of a migration


@final
class _Added:
    """The rows that a connection has added in its transaction."""

    def __init__(self) -> None:
        self.begin(keep=False)

    def begin(self, *, keep: bool) -> None:
        self.count, self.sum = 0, 0
        self.rows: dict[str, list[tuple[object, ...]]] | None = {} if keep else None

    def add(self, table: str, *values: object) -> None:
        self.count += 1
        self.sum += head.row_hash(table, values)
        if self.rows is not None:
            self.rows.setdefault(table, []).append(values)


@final
class Database:
    """An SQLite file in which nothing that was committed is lost, and damage is noticed.

    Threads and forked children may use it too, except a child that was forked in a transaction.

    Parameters
    ----------
    path
        The file.
    kind
        Its kind. A file of another kind is refused.
    create
        Whether a missing file is created.
    inspect
        Whether the whole file is searched for damage, which takes long if it is large.
    paired
        Whether a file that has a mirror is used together with it, and a mirror is refused.

    Raises
    ------
    WireError
        If the file is damaged, of another kind, or missing and not to be created.
    OSError
        If it cannot be read or written.

    Examples
    --------
    >>> import tempfile
    >>> kind = Kind("list", b"LIST", 1, "CREATE TABLE words (word TEXT);", "Delete {path}.")
    >>> path = Path(tempfile.mkdtemp(), "words.db")
    >>> file = Database(path, kind)
    >>> with file.transaction():
    ...     file.execute_many("INSERT INTO words VALUES (?)", [("hello",)])
    >>> with file.reading():
    ...     file.execute("SELECT word FROM words")
    [('hello',)]
    >>> str(file.damaged("its words are gone"))
    '... is not a valid list: its words are gone. Delete ...words.db.'
    >>> file.close()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: Kind,
        *,
        create: bool = True,
        inspect: bool = True,
        paired: bool = True,
    ) -> None:
        self.path = Path(path).resolve()
        self._kind, self._inspect, self._paired = kind, inspect, paired
        self._mirror: Database | None = None
        self._connection: sqlite3.Connection | None = None
        self._head: Head | None = None
        self._head_synced = True
        self._added = _Added()
        self._process = os.getpid()
        self._closed = False
        with _GATE:
            if not self.path.exists():
                _refuse_remains(self.path, kind)
                if not create:
                    raise _absent_error(self.path, kind)
                with contextlib.suppress(FileExistsError):  # another process was faster
                    _create(self.path, kind)
            _OPEN.add(self)
            self._connect()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Record | None]:
        """Run a transaction, which is complete or has no effect, and is on disk at the end.

        Yields
        ------
        Record or None
            For a file with a head, what `view` yields: if it is the same, the file is too. If the
            block raises an error, nothing is committed.

        Raises
        ------
        DomainError
            If the file is in a transaction already, or is closed.
        WireError
            If the file was damaged, removed or replaced.
        OSError
            If it cannot be written.
        """
        with self.reading():
            self._refuse_transaction()
            with self._counted_transaction() as record:
                self._version()  # a newer program may have migrated the file since it was opened
                yield record
            self._refuse_another_file()

    def _change_record(self, change: Callable[[Record], Record | None]) -> None:
        """Commit another role, partner or generation, which a function finds or refuses.

        It returns None if nothing is to be changed.
        """
        with self.reading(), self._counted_transaction(change):
            pass

    @contextlib.contextmanager
    def _counted_transaction(
        self, change: Callable[[Record], Record | None] | None = None
    ) -> Iterator[Record | None]:
        """Run a transaction whose rows are added to the record, to the head, and to a mirror."""
        if not self._kind.head_since:
            with self._undone():
                self.execute("BEGIN IMMEDIATE")
                yield None
                self.execute("COMMIT")
            return
        with self._locked_transaction() as record, self._mirrored_transaction(record) as mirror:
            self._added.begin(keep=mirror is not None)
            yield record
            changed = None if change is None else change(record)
            if changed is None and not self._added.count:
                self.execute("COMMIT")
                return
            record = record.following(self._added.sum, changed)
            self._commit(record)
            if mirror is not None:
                try:
                    for table, rows in (self._added.rows or {}).items():
                        mirror._add_rows(table, rows)
                    mirror._commit_as_mirror(record, self.path)
                except OSError as error:
                    raise OSError(
                        f"the mirror {mirror.path} failed: {error.__cause__ or error}. What "
                        "was committed was not returned: repeat it."
                    ) from error

    @contextlib.contextmanager
    def _locked_transaction(self) -> Iterator[Record]:
        """Begin a transaction and lock the head; what is not committed inside is undone."""
        with self.reading(), self._undone():
            self.execute("BEGIN IMMEDIATE")
            with cast(Head, self._head).locked(_LOCK_TIMEOUT_SECONDS):
                record = self._settle()
                self._refuse_role(record)
                self._added.begin(keep=False)
                yield record

    def _commit(self, record: Record) -> None:
        self.execute(head.UPDATE, record.row())
        self.execute("COMMIT")
        self._write_head(record)

    def _write_head(self, record: Record) -> None:
        self._head_synced = False  # if this fails, it may be written and not on disk
        try:
            cast(Head, self._head).write(record.mark)
        except OSError as error:
            raise OSError(
                f"the head of the {self._kind.name} {self.path} failed: {error}. What was "
                "committed was not returned: repeat it."
            ) from error
        self._head_synced = True

    @contextlib.contextmanager
    def _mirrored_transaction(self, record: Record) -> "Iterator[Database | None]":
        """Let the mirror follow a transaction, if there is one."""
        if record.role != head.MIRRORED or not self._paired:
            yield None
            return
        from . import mirror  # which knows this module

        with mirror.following(self, record, self._open_mirror(record)):
            yield self._mirror

    def _open_mirror(self, record: Record) -> "Database":
        if self._mirror is not None and self._mirror.path != Path(record.partner):
            self._mirror.close()
            self._mirror = None
        if self._mirror is None:
            path = shlex.quote(str(self.path)).replace("{", "{{").replace("}", "}}")
            advice = (
                "Bring the mirror back. If its disk has failed, and it has never taken over: "
                f"`fedldp ledger detach {path}`."
            )
            kind = self._kind._replace(advice=advice, missing=advice)
            try:
                self._mirror = Database(
                    record.partner, kind, create=False, inspect=self._inspect, paired=False
                )
            except (WireError, OSError) as error:
                ending = "" if isinstance(error, WireError) else f" {advice.format()}"
                raise WireError(
                    f"{self.path} cannot be used without its mirror: {error}{ending}"
                ) from error
        return self._mirror

    def _add_rows(self, table: str, rows: list[tuple[object, ...]]) -> None:
        """Add rows of the file that this one mirrors."""
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            insert = f'INSERT INTO main."{table}" VALUES ({marks})'  # noqa: S608 (our own names)
            self.execute_many(insert, rows)

    def _commit_as_mirror(self, record: Record, leader: Path) -> None:
        """Commit what was added as the mirror of a file with this record."""
        as_mirror = record._replace(role=head.MIRROR, partner=str(leader))
        own = self._record().following(self._added.sum, as_mirror)
        if (own.content, own.commits) != (record.content, record.commits):
            raise self.damaged(f"it does not hold what {leader} holds")
        self._commit(own)
        self._refuse_another_file()

    def _table_names(self) -> list[str]:
        """Return the tables whose rows are counted."""
        return _tables(cast(sqlite3.Connection, self._connection), self._kind.derived)

    def _content(self) -> int:
        return _content(cast(sqlite3.Connection, self._connection), self._kind.derived)

    def _refuse_role(self, record: Record) -> None:
        """Refuse a mirror, or a file that has been replaced, where it is not told apart."""
        if self._paired and record.role == head.MIRROR:
            raise WireError(
                f"{self.path} mirrors {record.partner}. If that is lost, let this one take its "
                f"place: `fedldp ledger takeover {shlex.quote(str(self.path))}`."
            )
        if self._paired and record.role == head.DETACHED:
            raise WireError(
                f"{self.path} was detached from {record.partner}, which has more or has taken "
                "over: it is refused for good. Use the other one."
            )

    @contextlib.contextmanager
    def _undone(self) -> Iterator[None]:
        """Roll back what was not committed."""
        try:
            yield
        finally:
            if self._in_transaction():
                self.execute("ROLLBACK")

    def _settle(self) -> Record:
        """Make the head agree with the file, if a process was killed between them; else refuse."""
        if self._head is None or not self._head.is_in_place():
            raise self.damaged("its -head has been removed or replaced while it was in use")
        record, state = self._record(), self._head.read()
        if state is None:
            raise self.damaged("its -head is damaged")
        if problem := record.problem(*state):
            raise self.damaged(problem)
        if record.is_ahead(state[0]) or not self._head_synced:
            wal = Path(f"{self.path}-wal")
            if wal.exists():  # a process may have been killed before it was on disk
                files.sync(wal)
            self._write_head(record)
        return record

    def _record(self) -> Record:
        return _record(self)

    def _refuse_another_file(self) -> None:
        try:
            now = self.path.stat()
        except OSError:
            now = None
        if now is None or not os.path.samestat(self._opened, now):
            raise self.damaged("it has been removed or replaced while it was in use")
        self._refuse_names(now)

    def _refuse_names(self, status: os.stat_result) -> None:
        """Refuse a file with several names: each name would have its own -wal and head."""
        if self._kind.head_since and status.st_nlink > 1:
            raise WireError(
                f"{self.path} has {status.st_nlink} names (hard links), and a {self._kind.name} "
                "that is used under two names would spend twice. Remove the other names: "
                f"`find / -samefile {shlex.quote(str(self.path))}` finds those on this machine."
            )

    def reading(self) -> contextlib.AbstractContextManager[object]:
        """Let one thread at a time use the file, to read it outside of a transaction.

        Returns
        -------
        context manager
            The thread has the file to itself until it ends.

        Raises
        ------
        DomainError
            If this process was forked while the file was in a transaction.
        """
        self._refuse_another_process()  # there the gate may never open again
        return _GATE

    @contextlib.contextmanager
    def view(self) -> Iterator[Record | None]:
        """Read one state of the file, without waiting for those who write.

        Yields
        ------
        Record or None
            For a file with a head, what every commit changes. What others commit meanwhile is not
            seen.

        Raises
        ------
        DomainError
            If the file is in a transaction already, or is closed.
        WireError
            If the file is damaged.
        OSError
            If it cannot be read.

        Examples
        --------
        >>> import tempfile
        >>> kind = Kind("list", b"LIST", 1, "CREATE TABLE words (word TEXT);", "Delete {path}.")
        >>> file = Database(Path(tempfile.mkdtemp(), "words.db"), kind)
        >>> with file.view():
        ...     file.execute("SELECT COUNT(*) FROM words")
        [(0,)]
        """
        with self.reading():
            self._refuse_transaction()
            with self._undone():
                self.execute("BEGIN")
                yield self._record() if self._kind.head_since else None

    def _refuse_transaction(self) -> None:
        if self._in_transaction():
            raise DomainError(
                f"the {self._kind.name} is in a transaction and cannot be used by the function "
                "that it waits for."
            )

    def _in_transaction(self) -> bool:
        return self._connection is not None and self._connection.in_transaction

    def _refuse_another_process(self) -> None:
        if self._process != os.getpid():
            raise DomainError(
                f"this process was forked during a transaction, or without Python's knowledge, "
                f"while {self.path} was open. Fork first, then open the file."
            )

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Return the rows of a statement; call it in `transaction` or `reading`.

        Parameters
        ----------
        statement
            The statement, in SQL.
        values
            What its question marks stand for.

        Returns
        -------
        list
            The rows, each a tuple.

        Raises
        ------
        WireError
            If the file is damaged.
        OSError
            If it cannot be read or written.
        """
        self._refuse_another_process()
        try:
            return (self._connection or self._connect()).execute(statement, values).fetchall()
        except ERRORS as error:
            raise self._trouble(error) from error

    def execute_many(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Execute a statement without rows for each of many values, in a transaction.

        Parameters
        ----------
        statement
            The statement, in SQL.
        rows
            For each execution, what its question marks stand for.

        Raises
        ------
        WireError
            If the file is damaged.
        OSError
            If it cannot be written.
        """
        self._refuse_another_process()
        try:
            (self._connection or self._connect()).executemany(statement, rows)
        except ERRORS as error:
            raise self._trouble(error) from error

    def close(self) -> None:
        """Close the file. Closing it again does nothing."""
        if self._process == os.getpid():  # not the connection of another process
            with _GATE:
                self._disconnect()
                self._closed = True

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise DomainError(f"the {self._kind.name} {self.path} is closed. Open it again.")
        self._opened = self.path.stat()
        self._refuse_names(self._opened)
        if self._opened.st_size == 0:
            # SQLite would take it for a new one, and delete the -wal next to it.
            raise self.damaged("it is empty")
        try:
            self._connection = connect(
                self.path, _LOCK_TIMEOUT_SECONDS
            )  # the gate keeps threads apart
            _check_mark(self, self._kind)
            version = self._version()
            current = version == self._kind.format
            if self._kind.head_since and version >= self._kind.head_since:
                self._head = _existing_head(self)  # before anything is changed
            self.execute("PRAGMA journal_mode = WAL")
            self.execute("PRAGMA synchronous = FULL")
            self.execute(f"PRAGMA cache_size = -{_CACHE_KILOBYTES}")
            self.execute("PRAGMA fullfsync = ON")  # without it, macOS does not wait for the disk
            if self._inspect or not current:
                [(verdict,)] = self.execute("PRAGMA integrity_check(1)")
                if verdict != "ok":
                    raise self.damaged(verdict.splitlines()[-1])
            if not current:
                self._migrate()
            _check_tables(self, self._kind)
            if self._kind.head_since:
                self._open_head()
        except ERRORS as error:
            raise self._trouble(error) from error
        except BaseException:
            self._disconnect()
            raise
        return self._connection

    def _version(self) -> int:
        """Return the format of the file, if it is the current one or can be migrated to it."""
        return _version(self, self._kind)

    def _migrate(self) -> None:
        """Turn a file of an older format into the current one, all of it or nothing."""
        with self._undone():
            self.execute("BEGIN IMMEDIATE")
            version = self._version()  # again: another process may have been faster
            if version != self._kind.format and self._head is not None:
                self._migrate_counted(version)
                return
            if version != self._kind.format:
                _migrate(self, self._kind, version)
                if self._kind.head_since:
                    self._start_head()
            self.execute("COMMIT")

    def _migrate_counted(self, version: int) -> None:
        """Migrate a file that has a head, which counts as one commit."""
        with cast(Head, self._head).locked(_LOCK_TIMEOUT_SECONDS):
            record = self._settle()
            if self._content() != record.content:
                raise self.damaged("its rows are not those that were written")
            _migrate(self, self._kind, version)
            self._commit(record.following(self._content() - record.content))

    def _start_head(self) -> None:
        """Give a file of a format without heads its head: this happens once."""
        with contextlib.closing(Head(head.path_of(self.path), create=True)) as started:
            if not started.is_new():
                raise self.damaged("it has an older format than its -head")
            record = Record.first(self._content())
            started.start(record.mark)
            self.execute(head.INSERT, record.row())

    def _open_head(self) -> None:
        """Open the head, count rows from now on, and check that all before were counted."""
        connection = cast(sqlite3.Connection, self._connection)
        self._head = self._head or _existing_head(self)
        connection.create_function("count_row", -1, self._added.add)
        for table in self._table_names():
            columns = [name for _, name, *_ in self.execute(f'PRAGMA table_info("{table}")')]
            values = ", ".join(f'NEW."{name}"' for name in columns)
            for when, action in (
                ("AFTER INSERT", f"count_row('{table}', {values})"),
                ("BEFORE UPDATE", "RAISE(ABORT, 'its rows never change')"),
                ("BEFORE DELETE", "RAISE(ABORT, 'its rows are never deleted')"),
            ):
                self.execute(
                    f'CREATE TEMP TRIGGER "{table} {when}" {when} ON main."{table}" '
                    f"BEGIN SELECT {action}; END"
                )
        for table, triggers in self._kind.derived.items():
            for number, trigger in enumerate(triggers):
                self.execute(f'CREATE TEMP TRIGGER "{table} derived {number}" {trigger}')
        state = self._head.read()
        with self._undone():
            self.execute("BEGIN")
            record = self._record()
            if self._inspect and self._content() != record.content:
                raise self.damaged("its rows are not those that were written")
        self._refuse_role(record)
        has_mirror = self._paired and record.role == head.MIRRORED
        if has_mirror or state is None or record.mark != state[0] or record.problem(*state):
            # A process was killed, or writes at this moment, or the file is damaged.
            with self._counted_transaction():
                pass
        if record.commits == 0 and self._has_rows():
            # It was migrated. With a head that knows of no commit, it could be migrated again from
            # an older copy, or made anew.
            with self._counted_transaction(lambda record: record):
                pass

    def _has_rows(self) -> bool:
        tables = (f'SELECT 1 FROM main."{table}"' for table in self._table_names())  # noqa: S608
        return any(self.execute(f"{query} LIMIT 1") for query in tables)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._head is not None:
            self._head.close()
            self._head = None
        if self._mirror is not None:
            self._mirror.close()
            self._mirror = None

    def damaged(self, what: str) -> WireError:
        """Return the error for a damaged file.

        Parameters
        ----------
        what
            What is wrong with it.

        Returns
        -------
        WireError
            An error with the path and the advice of its kind.
        """
        return _damage_error(self.path, self._kind, what)

    def _trouble(self, error: Exception) -> Exception:
        return _trouble(self.path, self._kind, error)


@final
class _Snapshot:
    """A consistent view of a file, in the current format."""

    def __init__(self, path: Path, kind: Kind, *, inspect: bool) -> None:
        self.path, self._kind = path, kind
        self._connection = connect(path, _SNAPSHOT_TIMEOUT_SECONDS)
        try:
            self.execute("PRAGMA query_only = ON")
            _check_mark(self, kind)
            version = _version(self, kind)
            state = _head_state(self, version, kind) if kind.head_since else None
            self.execute("BEGIN")  # from here on, nothing that others write is seen
            version = _version(self, kind)
            if state is not None:
                self._check(*state, inspect=inspect)
            if version != kind.format:
                self._copy()
                _migrate(self, kind, version)
            _check_tables(self, kind)
        except BaseException:
            self.close()
            raise

    def _check(self, mark: head.Mark, certain: bool, *, inspect: bool) -> None:
        """Refuse a file that has lost rows; others may have added some since the head was read."""
        record = _record(self)
        is_newer = record.identity == mark.identity and record.commits > mark.commits
        problem = "" if is_newer else record.problem(mark, certain)
        if problem:
            raise self.damaged(problem)
        if inspect and _content(self._connection, self._kind.derived) != record.content:
            raise self.damaged("its rows are not those that were written")

    def _copy(self) -> None:
        """Continue with a copy in memory, which may be migrated."""
        file, self._connection = self._connection, sqlite3.connect(":memory:", isolation_level=None)
        with contextlib.closing(file):
            file.backup(self._connection)

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Return the rows of a statement."""
        try:
            return self._connection.execute(statement, values).fetchall()
        except ERRORS as error:
            raise _trouble(self.path, self._kind, error) from error

    def damaged(self, what: str) -> WireError:
        """Return the error for a damaged file."""
        return _damage_error(self.path, self._kind, what)

    def close(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def snapshot(
    path: str | os.PathLike[str], kind: Kind, *, inspect: bool = True
) -> Iterator[Readable]:
    """Read a file as it is now: nothing is written, and nobody who uses it has to wait.

    A file of an older format is migrated in memory alone. One with a head must not have lost a
    transaction. Other files are not inspected for damage beyond what is read.

    Parameters
    ----------
    path
        The file.
    kind
        Its kind.
    inspect
        Whether all rows of a file with a head are compared with what was written.

    Yields
    ------
    Readable
        The file as it is at this moment.

    Raises
    ------
    WireError
        If the file is damaged or of another kind.
    OSError
        If it is missing or cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> kind = Kind("list", b"LIST", 1, "CREATE TABLE words (word TEXT);", "Delete {path}.")
    >>> path = Path(tempfile.mkdtemp(), "words.db")
    >>> create(path, kind)
    >>> with snapshot(path, kind) as file:
    ...     file.execute("SELECT COUNT(*) FROM words")
    [(0,)]
    """
    path = Path(path).resolve()
    if kind.head_since and not path.exists():
        _refuse_remains(path, kind)
        raise _absent_error(path, kind)
    if not path.stat().st_size:  # raises if there is no file
        raise _damage_error(path, kind, "it is empty")
    with _LOOKING:
        try:
            opened = _Snapshot(path, kind, inspect=inspect)
        except ERRORS as error:
            raise _trouble(path, kind, error) from error
        with contextlib.closing(opened):
            yield opened


def create(path: str | os.PathLike[str], kind: Kind) -> None:
    """Make a new file, which appears under its name all at once.

    Parameters
    ----------
    path
        The file.
    kind
        Its kind.

    Raises
    ------
    FileExistsError
        If there is such a file.
    WireError
        If it is gone, and something of it is left.

    Examples
    --------
    >>> import tempfile
    >>> kind = Kind("list", b"LIST", 1, "CREATE TABLE words (word TEXT);", "Delete {path}.")
    >>> path = Path(tempfile.mkdtemp(), "words.db")
    >>> create(path, kind)
    >>> path.exists()
    True
    """
    path = Path(path).resolve()
    with _GATE:
        if not path.exists():
            _refuse_remains(path, kind)
        _create(path, kind)


def _create(path: Path, kind: Kind) -> None:
    """Make a file that appears under its name atomically and durably.

    So an empty or half-written file is never a new one: it is damaged. The name is on disk before
    the first commit, as SQLite then syncs the folder for the -wal.
    """
    if not kind.head_since:
        with _fresh(path, kind) as (fresh, _):
            os.link(fresh, path)
        return
    with contextlib.ExitStack() as stack:
        started = stack.enter_context(contextlib.closing(Head(head.path_of(path), create=True)))
        stack.enter_context(started.locked(_LOCK_TIMEOUT_SECONDS))
        if not started.is_in_place():
            raise OSError(f"another process has just failed to create {path}. Try again.")
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        if not started.is_new():
            raise _damage_error(path, kind, "it is gone, but its -head is still there")
        try:
            fresh, record = stack.enter_context(_fresh(path, kind))
            started.start(cast(Record, record).mark)
            fresh.rename(path)
            files.sync(path.parent)
        except BaseException:
            if not path.exists():
                started.path.unlink()
            raise


def _refuse_remains(path: Path, kind: Kind) -> None:
    """Refuse a missing file of which something is left."""
    # In this order: another process that makes them makes the -wal after the file.
    if Path(f"{path}-wal").exists() and not path.exists():
        raise _damage_error(path, kind, "it is gone, but its -wal is still there")
    if kind.head_since and not head.is_new(_head_bytes(path)) and not path.exists():
        raise _damage_error(path, kind, "it is gone, but its -head is still there")


def connect(path: Path, patience: float = _LOCK_TIMEOUT_SECONDS) -> sqlite3.Connection:
    """Open an existing file. Transactions begin and end where this module says so."""
    uri = f"{path.as_uri()}?mode=rw"  # and not rwc: no file is made here
    return sqlite3.connect(
        uri, timeout=patience, isolation_level=None, check_same_thread=False, uri=True
    )


def _tables(connection: sqlite3.Connection, derived: Container[str]) -> list[str]:
    """Return the tables whose rows are counted."""
    query = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    names = [name for (name,) in connection.execute(query)]
    return [name for name in names if name != "head" and name not in derived]


def _content(connection: sqlite3.Connection, derived: Container[str] = ()) -> int:
    """Return the sum of the hashes of counted rows, and of the statements that made all tables."""
    queries = {"sqlite_schema": "SELECT type, name, tbl_name, sql FROM main.sqlite_schema"}
    for table in _tables(connection, derived):
        queries[table] = f'SELECT * FROM main."{table}"'  # noqa: S608 (our own names)
    total = 0
    for table, query in queries.items():
        for row in connection.execute(query):
            total += head.row_hash(table, row)
    return total % head.MODULUS


def _record(file: Readable) -> Record:
    record = head.read_record(file.execute(head.READ))
    if record is None:
        raise file.damaged("its table head is damaged")
    return record


def _no_head(file: Readable) -> WireError:
    return file.damaged(
        "its -head is missing. If it was moved or copied without, or this is a second name for it "
        "(a bind mount of the one file), use it where its -head is"
    )


def _existing_head(file: Readable) -> Head:
    try:
        return Head(head.path_of(file.path))
    except FileNotFoundError:
        raise _no_head(file) from None


def _head_bytes(path: Path) -> bytes:
    """Return the bytes of the head of a file; none if it is missing."""
    try:
        return head.path_of(path).read_bytes()
    except FileNotFoundError:
        return b""


def _head_state(file: Readable, version: int, kind: Kind) -> tuple[head.Mark, bool] | None:
    """Return what the head of a file says, which others may be writing at this moment."""
    if version < kind.head_since:
        if not head.is_new(_head_bytes(file.path)):
            raise file.damaged("it has an older format than its -head")
        return None
    for _ in range(_TRIES):
        state = head.read(_head_bytes(file.path))
        if state is not None and state[1]:
            return state
        sleep(_PAUSE_SECONDS)
    if state is None:
        raise _no_head(file) if not _head_bytes(file.path) else file.damaged("its -head is damaged")
    return state


def _check_mark(file: Readable, kind: Kind) -> None:
    [(mark,)] = file.execute("PRAGMA application_id")
    if mark != int.from_bytes(kind.mark):
        raise file.damaged(f"it does not have the mark of a {kind.name}")


def _check_tables(file: Readable, kind: Kind) -> None:
    """Refuse a file with other tables, or with views, triggers or columns that compute something.

    Somebody else may have written it.
    """
    expected, given = _structure_of(kind.tables), _structure(file.execute)
    for name in expected.keys() | given.keys():
        if expected.get(name) != given.get(name):
            raise file.damaged(f"{shown(name)} is not what a {kind.name} has under this name")


@lru_cache(maxsize=16)
def _structure_of(statements: str) -> dict[str, object]:
    """Return the tables that some statements create."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(statements)
        return _structure(lambda query, values=(): connection.execute(query, values).fetchall())


def _structure(execute: Callable[..., list[Any]]) -> dict[str, object]:
    """Return what is known of each table, index, view and trigger, by name."""
    found: dict[str, object] = {}
    columns = 'SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?)'
    for kind, name, text in execute("SELECT type, name, sql FROM sqlite_master"):
        if kind == "table" and str(text).startswith("CREATE TABLE"):  # not a virtual one
            without_rowid = " ".join(str(text).upper().split()).endswith(") WITHOUT ROWID")
            found[name] = sorted(execute(columns, (name,))), without_rowid
        else:
            found[name] = kind, str(text).split("(")[0]
    return found


def _version(file: Readable, kind: Kind) -> int:
    """Return the format of a file, if it is the current one or can be migrated to it."""
    version: int
    [(version,)] = file.execute("PRAGMA user_version")
    if version > kind.format:
        raise WireError(
            f"{file.path} is a {kind.name} of format {version}, and this version of fedldp reads "
            f"formats up to {kind.format}. A newer version has written it: use that one."
        )
    if version != kind.format and version not in kind.migrations:
        raise file.damaged(f"it has an unknown format, {version}")
    return version


def _migrate(file: Readable, kind: Kind, version: int) -> None:
    for each in range(version, kind.format):
        for step in kind.migrations[each]:
            if callable(step):
                step(file)
            else:
                file.execute(step)
    file.execute(f"PRAGMA user_version = {kind.format}")


def _absent_error(path: Path, kind: Kind) -> WireError:
    advice = kind.missing.format(path=shlex.quote(str(path)))
    return WireError(f"there is no {kind.name} {path}. {advice}")


def _damage_error(path: Path, kind: Kind, what: str) -> WireError:
    advice = kind.advice.format(path=shlex.quote(str(path)))
    return WireError(f"{path} is not a valid {kind.name}: {what}. {advice}")


def _trouble(path: Path, kind: Kind, error: Exception) -> Exception:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the higher bits are details
    damage = code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    if damage or str(error) == "unsupported file format":
        return _damage_error(path, kind, str(error))
    if isinstance(error, UnicodeDecodeError | sqlite3.OperationalError) and not code:
        return _damage_error(path, kind, "it has a text that is not UTF-8")
    return _failure(path, kind, error)


def replace(path: str | os.PathLike[str], kind: Kind, contents: str) -> Path | None:
    """Replace a file by a new one, and move the old one into a folder next to it.

    The old file may be damaged, or missing; its -wal, -shm and -head move with it.

    Stop the processes that use the file first; one that has it open fails at its next transaction.
    If this is interrupted, no program can open the old file without its -wal, or the new one with
    a -wal of the old one, or create a fresh file in their place: while the -wal is moved, an empty
    file has the name, which is refused.

    Parameters
    ----------
    path
        The file.
    kind
        Its kind.
    contents
        SQL statements that fill the new file.

    Returns
    -------
    Path or None
        The folder; None if there was nothing to move.

    Raises
    ------
    OSError
        If anything cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> kind = Kind("list", b"LIST", 1, "CREATE TABLE words (word TEXT);", "Delete {path}.")
    >>> path = Path(tempfile.mkdtemp(), "words.db")
    >>> create(path, kind)
    >>> folder = replace(path, kind, "INSERT INTO words VALUES ('new');")
    >>> [each.name for each in folder.iterdir()]
    ['words.db']
    """
    path = Path(path).resolve()
    companions = [Path(f"{path}{end}") for end in ("-wal", "-shm", "-journal")]
    old = [file for file in (path, *companions, head.path_of(path)) if file.exists()]
    owner, aside = (path if path.exists() else path.parent).stat(), None
    with _fresh(path, kind, contents) as (fresh, record), _GATE:
        new = [fresh]
        if record is not None:
            new.append(fresh.with_name("head"))
            with contextlib.closing(Head(new[1], create=True)) as started:
                started.start(record.mark)
        if os.geteuid() == 0:  # keep the owner of the old one
            for file in new:
                os.chown(file, owner.st_uid, owner.st_gid)
        if old:
            aside = files.new_folder(path.parent, f"{path.name}-aside-")
            for file in old:
                os.link(file, aside / file.name)
            files.sync(aside)
        empty = fresh.with_name("empty")
        empty.touch(mode=0o600)
        empty.replace(path)
        files.sync(path.parent)
        for companion in companions:
            companion.unlink(missing_ok=True)
        if record is not None:
            new[1].replace(head.path_of(path))
        files.sync(path.parent)
        fresh.replace(path)
        files.sync(path.parent)
    return aside


@contextlib.contextmanager
def _fresh(path: Path, kind: Kind, contents: str = "") -> Iterator[tuple[Path, Record | None]]:
    """Make a new file in a temporary folder next to its path; return its record for a head too."""
    with fresh_folder(path.parent) as folder:
        fresh = folder / "fresh"
        fresh.touch(mode=0o600)
        try:
            with contextlib.closing(sqlite3.connect(fresh)) as connection:
                connection.executescript(f"""
                    PRAGMA synchronous = FULL;
                    PRAGMA application_id = {int.from_bytes(kind.mark)};
                    PRAGMA user_version = {kind.format};
                    {kind.tables}
                    {contents}
                """)
                record = None
                if kind.head_since:
                    content = _content(connection, kind.derived)
                    record = Record.first(content, has_rows=bool(contents))
                    connection.execute(head.INSERT, record.row())
                    connection.commit()
                connection.execute("PRAGMA journal_mode = WAL")
        except ERRORS as error:
            raise _failure(path, kind, error) from error
        yield fresh, record


@contextlib.contextmanager
def fresh_folder(parent: Path) -> Iterator[Path]:
    """Make a temporary folder on the same disk as a file that will be moved out of it."""
    folder = files.new_folder(parent, ".database-")
    try:
        yield folder
    finally:
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()


def _failure(path: Path, kind: Kind, error: Exception) -> OSError:
    busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
    which = TimeoutError if busy else OSError
    return which(f"the {kind.name} {path} failed: {error}. Nothing was committed.")


# SQLite keeps its locks in memory too. A fork copies that memory, but not the kernel's locks: a
# child that opens a file which its parent had open at the fork believes that it holds locks, and
# may write into a -wal that is gone. So no connection may survive a fork. One gate for all files of
# a process admits one thread at a time, and a fork waits until no other thread is inside.
# Snapshots have a lock of their own, so that nobody who uses a file waits for their readers.
_GATE, _LOOKING = threading.RLock(), threading.RLock()
_OPEN: weakref.WeakSet[Database] = weakref.WeakSet()
_NO_PROCESS = 0  # a number that no process has


def _pause() -> None:
    _GATE.acquire()
    _LOOKING.acquire()
    for each in _OPEN:
        if not each._in_transaction():
            each._disconnect()


def _resume() -> None:
    for each in _OPEN:
        # One without a connection makes its own when it is used. One that was in a transaction
        # belongs to the parent, whose number may be the same in another PID namespace. So does the
        # lock of its head, which must not outlive the parent.
        if each._connection is not None and each._head is not None:
            each._head.close()
        each._process = os.getpid() if each._connection is None else _NO_PROCESS
    _release()


def _release() -> None:
    _LOOKING.release()
    _GATE.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_pause, after_in_parent=_release, after_in_child=_resume)
