"""SQLite files that survive crashes: what is committed is on disk, and damage is noticed.

The threads and processes of one machine may share a file. While it is in use, and after a crash,
files named `-wal` and `-shm` lie next to it. They are part of it and must be moved with it.

A file of an older format is migrated when it is opened; one of a newer format is refused. A
`snapshot` only reads: it neither waits for the processes that use the file nor changes anything.
"""

import contextlib
import os
import shlex
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, final

from fedldp._internal import files
from fedldp.errors import DomainError, WireError
from fedldp.vehicle import shown

_PATIENCE = 60.0  # seconds to wait for the transaction of another process
_GLANCE = 5.0  # seconds for a snapshot, which waits only while a crash is recovered from

# In a damaged file, names may be no texts: sqlite3 fails when it puts them into its own errors.
_ERRORS = sqlite3.Error, UnicodeDecodeError

_CACHE = 1 << 16  # kilobytes: SQLite uses as many as it needs, and the disk beyond


class Kind(NamedTuple):
    """What distinguishes the databases of one purpose from others."""

    name: str
    mark: bytes  # four bytes in the file's header
    format: int
    tables: str  # the statements that create the tables
    advice: str  # what to do about a damaged file; "{path}" is replaced by its path
    # For each older format, the statements that turn it into the next one.
    migrations: Mapping[int, tuple[str, ...]] = MappingProxyType({})


class Readable(Protocol):
    """What can be read: a file, or a snapshot of one."""

    path: Path

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Return the rows of a statement."""

    def damaged(self, what: str) -> WireError:
        """Return the error for a damaged file."""


@final
class Database:
    """One file. A missing one is created; one that is damaged or of another kind is refused.

    Threads and forked children may use it too, except a child that was forked in a transaction.
    Looking for damage takes long in a large file: `inspect=False` skips it, for programs that open
    the file often.
    """

    def __init__(self, path: str | os.PathLike[str], kind: Kind, *, inspect: bool = True) -> None:
        self.path = Path(path).resolve()
        self._kind, self._inspect = kind, inspect
        self._connection: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._closed = False
        with _GATE:
            # In this order: another process that makes them makes the -wal after the file.
            if Path(f"{self.path}-wal").exists() and not self.path.exists():
                raise self.damaged("it is gone, but its -wal is still there")
            if not self.path.exists():
                self._create()
            _OPEN.add(self)
            self._connect()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a transaction, which is complete or has no effect, and is on disk at the end."""
        with self.gate():
            if self._in_transaction():
                raise DomainError(
                    f"the {self._kind.name} is in a transaction and cannot be used by the function "
                    "that it waits for."
                )
            with self._atomic():
                self._version()  # a newer program may have migrated the file since it was opened
                yield
            if not self.path.exists() or not os.path.samestat(self._opened, self.path.stat()):
                raise self.damaged("it has been removed or replaced while it was in use")

    @contextlib.contextmanager
    def _atomic(self) -> Iterator[None]:
        try:
            self.execute("BEGIN IMMEDIATE")
            yield
            self.execute("COMMIT")
        finally:
            if self._in_transaction():
                self.execute("ROLLBACK")

    def gate(self) -> contextlib.AbstractContextManager[object]:
        """Let one thread at a time use the file, outside of transactions too."""
        self._refuse_another_process()  # there the gate may never open again
        return _GATE

    def _in_transaction(self) -> bool:
        return self._connection is not None and self._connection.in_transaction

    def _refuse_another_process(self) -> None:
        if self._process != os.getpid():
            raise DomainError(
                f"this process was forked during a transaction, or without Python's knowledge, "
                f"while {self.path} was open. Fork first, then open the file."
            )

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Return the rows of a statement; call it in a transaction or within the gate."""
        self._refuse_another_process()
        try:
            return (self._connection or self._connect()).execute(statement, values).fetchall()
        except _ERRORS as error:
            raise self._trouble(error) from error

    def execute_many(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Execute a statement without rows for each of many values, in a transaction."""
        self._refuse_another_process()
        try:
            (self._connection or self._connect()).executemany(statement, rows)
        except _ERRORS as error:
            raise self._trouble(error) from error

    def close(self) -> None:
        """Close the file. Closing it again does nothing."""
        if self._process == os.getpid():  # not the connection of another process
            with _GATE:
                self._disconnect()
                self._closed = True

    def _create(self) -> None:
        """Make a file that appears under its name atomically and durably.

        So an empty or half-written file is never a new one: it is damaged. The name is on disk
        before the first commit, as SQLite then syncs the folder for the -wal.
        """
        faster = contextlib.suppress(FileExistsError)  # if another process was
        with _fresh(self.path, self._kind) as fresh, faster:
            os.link(fresh, self.path)

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise DomainError(f"the {self._kind.name} {self.path} is closed. Open it again.")
        self._opened = self.path.stat()
        if self._opened.st_size == 0:
            # SQLite would take it for a new one, and delete the -wal next to it.
            raise self.damaged("it is empty")
        try:
            self._connection = _connected(self.path, _PATIENCE)  # the gate keeps threads apart
            _check_mark(self, self._kind)
            current = self._version() == self._kind.format
            self.execute("PRAGMA journal_mode = WAL")
            self.execute("PRAGMA synchronous = FULL")
            self.execute(f"PRAGMA cache_size = -{_CACHE}")
            self.execute("PRAGMA fullfsync = ON")  # without it, macOS does not wait for the disk
            if self._inspect or not current:
                [(verdict,)] = self.execute("PRAGMA integrity_check(1)")
                if verdict != "ok":
                    raise self.damaged(verdict.splitlines()[-1])
            if not current:
                self._migrate()
            _check_tables(self, self._kind)
        except _ERRORS as error:
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
        with self._atomic():
            # The version is read again: another process may have been faster.
            _migrate(self, self._kind, self._version())

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def damaged(self, what: str) -> WireError:
        """Return the error for a damaged file."""
        return _damaged(self.path, self._kind, what)

    def _trouble(self, error: Exception) -> Exception:
        return _trouble(self.path, self._kind, error)


@final
class _Snapshot:
    """A consistent view of a file, in the current format."""

    def __init__(self, path: Path, kind: Kind) -> None:
        self.path, self._kind = path, kind
        self._connection = _connected(path, _GLANCE)
        try:
            self.execute("PRAGMA query_only = ON")
            self.execute("BEGIN")  # from here on, nothing that others write is seen
            _check_mark(self, kind)
            version = _version(self, kind)
            if version != kind.format:
                self._copy()
                _migrate(self, kind, version)
            _check_tables(self, kind)
        except BaseException:
            self.close()
            raise

    def _copy(self) -> None:
        """Continue with a copy in memory, which may be migrated."""
        file, self._connection = self._connection, sqlite3.connect(":memory:", isolation_level=None)
        with contextlib.closing(file):
            file.backup(self._connection)

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Return the rows of a statement."""
        try:
            return self._connection.execute(statement, values).fetchall()
        except _ERRORS as error:
            raise _trouble(self.path, self._kind, error) from error

    def damaged(self, what: str) -> WireError:
        """Return the error for a damaged file."""
        return _damaged(self.path, self._kind, what)

    def close(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def snapshot(path: str | os.PathLike[str], kind: Kind) -> Iterator[Readable]:
    """Read a file as it is now: nothing is written, and nobody who uses it has to wait.

    A file of an older format is migrated in memory alone. It is not inspected for damage beyond
    what is read.
    """
    path = Path(path).resolve()
    if not path.stat().st_size:  # raises if there is no file
        raise _damaged(path, kind, "it is empty")
    with _LOOKING:
        try:
            found = _Snapshot(path, kind)
        except _ERRORS as error:
            raise _trouble(path, kind, error) from error
        with contextlib.closing(found):
            yield found


def _connected(path: Path, patience: float) -> sqlite3.Connection:
    """Open an existing file. Transactions begin and end where this module says so."""
    uri = f"{path.as_uri()}?mode=rw"  # and not rwc: no file is made here
    return sqlite3.connect(
        uri, timeout=patience, isolation_level=None, check_same_thread=False, uri=True
    )


def _check_mark(file: Readable, kind: Kind) -> None:
    [(mark,)] = file.execute("PRAGMA application_id")
    if mark != int.from_bytes(kind.mark):
        raise file.damaged(f"it does not have the mark of a {kind.name}")


def _check_tables(file: Readable, kind: Kind) -> None:
    """Refuse a file with other tables, or with views, triggers or columns that compute something.

    Somebody else may have written it.
    """
    expected, given = _tables_of(kind.tables), _tables(file.execute)
    for name in expected.keys() | given.keys():
        if expected.get(name) != given.get(name):
            raise file.damaged(f"{shown(name)} is not what a {kind.name} has under this name")


@lru_cache(maxsize=16)
def _tables_of(statements: str) -> dict[str, object]:
    """Return the tables that some statements create."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(statements)
        return _tables(lambda query, values=(): connection.execute(query, values).fetchall())


def _tables(execute: Callable[..., list[Any]]) -> dict[str, object]:
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
        for statement in kind.migrations[each]:
            file.execute(statement)
    file.execute(f"PRAGMA user_version = {kind.format}")


def _damaged(path: Path, kind: Kind, what: str) -> WireError:
    advice = kind.advice.format(path=shlex.quote(str(path)))
    return WireError(f"{path} is not a valid {kind.name}: {what}. {advice}")


def _trouble(path: Path, kind: Kind, error: Exception) -> Exception:
    if isinstance(error, UnicodeDecodeError):
        return _damaged(path, kind, "a name in it is no text")
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the higher bits are details
    damage = "decode to UTF-8" in str(error) or str(error) == "unsupported file format"
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or damage:
        return _damaged(path, kind, str(error))
    return _failed(path, kind, error)


def replace(path: str | os.PathLike[str], kind: Kind, contents: str) -> Path | None:
    """Replace a file by a new one, and move the old one into a folder next to it.

    The old file may be damaged, or missing; its -wal and -shm move with it. `contents` are
    statements that fill the new one. Return the folder, or None if there was nothing to move.

    Stop the processes that use the file first; one that has it open fails at its next transaction.
    If this is interrupted, no program can open the old file without its -wal, or the new one with
    a -wal of the old one, or create a fresh file in their place: while the -wal is moved, an empty
    file has the name, which is refused.
    """
    path = Path(path).resolve()
    companions = [Path(f"{path}{end}") for end in ("-wal", "-shm")]
    old = [each for each in (path, *companions) if each.exists()]
    owner, aside = (path if path.exists() else path.parent).stat(), None
    with _fresh(path, kind, contents) as fresh, _GATE:
        if os.geteuid() == 0:  # keep the owner of the old one
            os.chown(fresh, owner.st_uid, owner.st_gid)
        if old:
            aside = files.new_folder(path.parent, f"{path.name}-aside-")
            for each in old:
                os.link(each, aside / each.name)
            files.sync(aside)
        empty = fresh.with_name("empty")
        empty.touch(mode=0o600)
        empty.replace(path)
        files.sync(path.parent)
        for each in companions:
            each.unlink(missing_ok=True)
        files.sync(path.parent)
        fresh.replace(path)
        files.sync(path.parent)
    return aside


@contextlib.contextmanager
def _fresh(path: Path, kind: Kind, contents: str = "") -> Iterator[Path]:
    """Make a new file in a temporary folder next to its path."""
    folder = files.new_folder(path.parent, ".database-")
    try:
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
                    PRAGMA journal_mode = WAL;
                """)
        except _ERRORS as error:
            raise _failed(path, kind, error) from error
        yield fresh
    finally:
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()


def _failed(path: Path, kind: Kind, error: Exception) -> OSError:
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
_ANOTHER = 0  # instead of a process's number: no process has it


def _pause() -> None:
    _GATE.acquire()
    _LOOKING.acquire()
    for each in _OPEN:
        if not each._in_transaction():
            each._disconnect()


def _resume() -> None:
    for each in _OPEN:
        # One without a connection makes its own when it is used. One that was in a transaction
        # belongs to the parent, whose number may be the same in another PID namespace.
        each._process = os.getpid() if each._connection is None else _ANOTHER
    _release()


def _release() -> None:
    _LOOKING.release()
    _GATE.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_pause, after_in_parent=_release, after_in_child=_resume)
