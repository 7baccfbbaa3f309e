"""What every vehicle has spent, kept so that nothing is ever released that has not been paid for.

A ledger is one SQLite file. The spending and the bytes it pays for are written in one transaction,
and are on the disk before the bytes are handed out: a vehicle that is killed or loses its power may
have paid for bytes that nobody got, never the reverse. Asking for them again costs nothing.

The threads and processes of one machine may share the file. While it is in use, and after a crash,
files named `-wal` and `-shm` lie beside it: they are part of it, and move with it.
"""

import contextlib
import os
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, Self, final

from fedldp.errors import BudgetError, DomainError, WireError
from fedldp.vehicle import exact

Number = float | str | Fraction
Request = str | bytes
Answer = Callable[[], bytes]
Answers = Callable[[list[str]], Mapping[str, bytes]]

_MARK = int.from_bytes(b"fLDP")  # in the file's header: it tells a ledger from other databases
_FORMAT = 1
_PATIENCE = 60.0  # seconds to wait for another process that is in the midst of a release
_LARGEST = 10**30  # in a fraction's parts: with larger ones, sums would grow beyond all bounds

_NEW = f"""
PRAGMA synchronous = FULL;
PRAGMA application_id = {_MARK};
PRAGMA user_version = {_FORMAT};
CREATE TABLE releases (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    request NOT NULL,  -- a text or bytes, as it was given
    run TEXT NOT NULL,
    epsilon TEXT NOT NULL,  -- an exact fraction, "n/d"
    answer BLOB NOT NULL,
    UNIQUE (key, request)
);
PRAGMA journal_mode = WAL;
"""
_INSERT = "INSERT INTO releases (key, request, run, epsilon, answer) VALUES (?, ?, ?, ?, ?)"


class Spending(NamedTuple):
    """One line of a ledger: who has spent what, on which run, to answer which request."""

    key: str
    run: str
    request: Request
    epsilon: Fraction


@final
class Ledger:
    """The spending of one vehicle or of many, each under a cap for its whole life.

    The cap is the most that any one key may ever spend, over all runs. It is part of the owner's
    configuration and not of the file: it is given whenever the file is opened, and counts at once
    against all that has been spent before. Raising it is the owner's decision alone.

    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(Path(folder.name) / "ledger.db", cap=0.3)
    >>> ledger.release("car 7", 0.1, "question 1", lambda: b"report", run="spring")
    b'report'
    >>> ledger.release("car 7", 0.1, "question 1", lambda: b"never asked for")
    b'report'
    >>> ledger.spent("car 7")
    Fraction(1, 10)
    >>> ledger.release("car 7", 0.25, "question 2", lambda: b"report")
    Traceback (most recent call last):
    fedldp.errors.BudgetError: 'car 7' has spent 0.1 of its cap of 0.3: 0.25 more is too much...
    >>> ledger.history("car 7")
    [Spending(key='car 7', run='spring', request='question 1', epsilon=Fraction(1, 10))]
    >>> ledger.close(); folder.cleanup()

    A file that is damaged, or is no ledger, is refused (`WireError`); only a missing one is made.
    Threads and forked children may use it too, but no child that was forked while producing bytes.
    """

    def __init__(self, path: str | os.PathLike[str], cap: Number) -> None:
        self.cap = _number(cap, "cap")
        self.path = Path(path).resolve()
        self._connection: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._closed = False
        with _GATE:
            # In this order: another process that makes them makes the -wal after the file.
            if Path(f"{self.path}-wal").exists() and not self.path.exists():
                raise self._damaged("it is gone, but its -wal is still there")
            if not self.path.exists():
                self._create()
            _LEDGERS.add(self)
            self._connect()

    def release(
        self, key: str, epsilon: Number, request: Request, produce: Answer, *, run: str = ""
    ) -> bytes:
        """Return the bytes that answer a request: stored ones, or new ones that are paid for.

        `request` names the question, best by a hash of all of it: whoever asks it again gets the
        same bytes at no cost, and `produce` is not called. `run` is a label for the history, and
        buys nothing. Nothing is returned if the epsilon is too much (`BudgetError`), if `produce`
        raises, or if the disk fails (`OSError`); then nothing is spent either, unless the disk
        failed after it had written.
        """

        def answers(able: list[str]) -> dict[str, bytes]:
            if not able:
                raise BudgetError(
                    f"{key!r} has spent {float(self._spent(key)):.12g} of its cap of "
                    f"{float(self.cap):.12g}: {epsilon} more is too much. "
                    "Ask for less, or let its owner raise the cap."
                )
            return {key: produce()}

        return self.release_many([key], epsilon, request, answers, run=run)[key]

    def release_many(
        self, keys: list[str], epsilon: Number, request: Request, produce: Answers, *, run: str = ""
    ) -> dict[str, bytes]:
        """Put one request to many vehicles, in one transaction: return the bytes of each.

        `produce` is given the keys that can afford the epsilon, and returns bytes for as many of
        them as it likes: these pay. If any of the keys has answered the request before, then all
        that have are returned with their stored bytes, and no other is asked.
        """
        keys = [_text(key, "key") for key in keys]
        price = _number(epsilon, "epsilon")
        request = request if isinstance(request, bytes) else _text(request, "request")
        run = _text(run, "run")
        with self._transaction():
            answers = self._stored(keys, price, request)
            if not answers:
                able = [key for key in keys if self._spent(key) + price <= self.cap]
                answers = _checked(produce(able), able)
                for key, answer in answers.items():
                    text = f"{price.numerator}/{price.denominator}"
                    self._execute(_INSERT, (key, request, run, text, answer))
        return answers  # and not a line earlier: now the transaction is on the disk

    def spent(self, key: str) -> Fraction:
        """Return what a key has spent in its life."""
        with self._gate():
            return self._spent(_text(key, "key"))

    def history(self, key: str | None = None) -> list[Spending]:
        """Return the spendings of a key, or those of all keys, the oldest first."""
        query = "SELECT key, run, request, epsilon FROM releases WHERE key = ?1 OR ?1 IS NULL"
        with self._gate():
            rows = self._execute(f"{query} ORDER BY number", (key and _text(key, "key"),))
            return [Spending(who, run, what, self._fraction(text)) for who, run, what, text in rows]

    def close(self) -> None:
        """Close the file. Closing it again does nothing."""
        if self._process == os.getpid():  # what belongs to another process is left alone
            with _GATE:
                self._disconnect()
                self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type["Ledger"], tuple[Path, Fraction]]:
        return Ledger, (self.path, self.cap)  # a copy has a connection of its own

    # What follows is called while the gate is held, and speaks to SQLite through _execute alone.

    def _stored(self, keys: list[str], price: Fraction, request: Request) -> dict[str, bytes]:
        query = "SELECT epsilon, answer FROM releases WHERE key = ? AND request = ?"
        answers = {}
        for key in keys:
            for text, answer in self._execute(query, (key, request)):
                if self._fraction(text) != price:
                    raise DomainError(
                        f"{key!r} has answered this request for an epsilon of {text}, and is now "
                        f"asked for {price}. Put another epsilon under another request."
                    )
                answers[key] = answer
        return answers

    def _spent(self, key: str) -> Fraction:
        query = "SELECT epsilon, COUNT(*) FROM releases WHERE key = ? GROUP BY epsilon"
        prices = self._execute(query, (key,))
        return sum((self._fraction(text) * count for text, count in prices), Fraction())

    def _fraction(self, text: str) -> Fraction:
        try:
            return exact(text)
        except ValueError:
            raise self._damaged(f"it has an epsilon of {text!r}") from None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._gate():
            if self._in_transaction():
                raise DomainError("A ledger must not be asked by what it waits for: produce.")
            try:
                self._execute("BEGIN IMMEDIATE")
                yield
                self._execute("COMMIT")
            finally:
                if self._in_transaction():
                    self._execute("ROLLBACK")
            if not self.path.exists() or not os.path.samestat(self._opened, self.path.stat()):
                raise self._damaged("it has been removed or replaced while it was in use")

    def _gate(self) -> contextlib.AbstractContextManager[object]:
        self._refuse_another_process()  # in which the gate may be closed for ever
        return _GATE

    def _in_transaction(self) -> bool:
        return self._connection is not None and self._connection.in_transaction

    def _refuse_another_process(self) -> None:
        if self._process != os.getpid():
            raise DomainError(
                f"This process was forked, in the midst of a release or without Python's "
                f"knowledge, while {self.path} was open. Fork first, then open the ledger."
            )

    def _execute(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        self._refuse_another_process()
        try:
            return (self._connection or self._connect()).execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._trouble(error) from error

    def _create(self) -> None:
        """Make a ledger that appears under its name all at once, and durably.

        So an empty or half-written file is never a young ledger: it is a damaged one. The name
        is on the disk before the first release, as SQLite then syncs the folder for the -wal.
        """
        with tempfile.TemporaryDirectory(dir=self.path.parent, prefix=".ledger-") as folder:
            fresh = Path(folder) / "fresh"
            fresh.touch(mode=0o600)
            try:
                with contextlib.closing(sqlite3.connect(fresh)) as connection:
                    connection.executescript(_NEW)
            except sqlite3.Error as error:
                raise self._trouble(error) from error
            with contextlib.suppress(FileExistsError):  # another process was faster
                os.link(fresh, self.path)

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise DomainError(f"The ledger {self.path} is closed. Open it again.")
        self._opened = self.path.stat()
        if self._opened.st_size == 0:
            # SQLite would take it for a new one, and throw away a -wal that lies beside it.
            raise self._damaged("it is empty")
        uri = f"{self.path.as_uri()}?mode=rw"  # and not rwc: no file is made here
        try:
            # Transactions begin and end where this module says so; the gate keeps threads apart.
            self._connection = sqlite3.connect(
                uri, _PATIENCE, isolation_level=None, check_same_thread=False, uri=True
            )
            [(mark,)] = self._execute("PRAGMA application_id")
            [(version,)] = self._execute("PRAGMA user_version")
            if (mark, version) != (_MARK, _FORMAT):
                raise self._damaged(f"it has not the mark of a ledger of format {_FORMAT}")
            self._execute("PRAGMA journal_mode = WAL")
            self._execute("PRAGMA synchronous = FULL")
            self._execute("PRAGMA fullfsync = ON")  # without it, macOS does not wait for the disk
            [(verdict,)] = self._execute("PRAGMA integrity_check(1)")
            if verdict != "ok":
                raise self._damaged(verdict.splitlines()[-1])
        except sqlite3.Error as error:
            raise self._trouble(error) from error
        except BaseException:
            self._disconnect()
            raise
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _damaged(self, what: str) -> WireError:
        todo = "Restore the file: a new one would forget what has been spent"
        return WireError(f"{self.path} is no sound ledger: {what}. {todo}.")

    def _trouble(self, error: sqlite3.Error) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the higher bits are details
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return self._damaged(str(error))
        kind = TimeoutError if code == sqlite3.SQLITE_BUSY else OSError
        return kind(f"The ledger {self.path} failed: {error}. Nothing was released.")


def _number(value: Number, name: str) -> Fraction:
    with contextlib.suppress(ValueError):
        number = exact(value)
        if max(number.numerator, number.denominator) < _LARGEST:
            return number
    raise DomainError(f"{name} must be a positive number of up to 30 digits; got {value!r}.")


def _text(value: str, name: str) -> str:
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError):
        raise DomainError(f"{name} must be a text in Unicode; got {value!r}.") from None
    return value


def _checked(answers: Mapping[str, bytes], able: list[str]) -> dict[str, bytes]:
    if not answers.keys() <= set(able) or not all(type(a) is bytes for a in answers.values()):
        raise DomainError("produce must return bytes, and for no key but those it was given.")
    return dict(answers)


# SQLite keeps its locks in memory too, where a fork copies them and the kernel does not: a child
# that opens a file which its parent had open at the fork believes to hold locks that it has not,
# and may write into a -wal that is gone. So no connection may live through a fork. One gate for all
# ledgers of a process lets in one thread at a time, and a fork waits until no other is inside.
_GATE = threading.RLock()
_LEDGERS: weakref.WeakSet[Ledger] = weakref.WeakSet()


def _pause() -> None:
    _GATE.acquire()
    for ledger in _LEDGERS:
        if not ledger._in_transaction():
            ledger._disconnect()


def _resume() -> None:
    for ledger in _LEDGERS:
        if ledger._connection is None:  # it makes one of its own when it is used
            ledger._process = os.getpid()
    _GATE.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_pause, after_in_parent=_GATE.release, after_in_child=_resume)
