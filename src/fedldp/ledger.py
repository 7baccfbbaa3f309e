"""What every vehicle has spent, kept so that nothing is ever released that has not been paid for.

A ledger is one SQLite file. The spending and the bytes it pays for are written in one transaction,
and are on the disk before the bytes are handed out: a vehicle that is killed or loses its power may
have paid for bytes that nobody got, never the reverse. Asking for them again costs nothing.
"""

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple, Self, final

from fedldp.database import Database, Kind
from fedldp.errors import BudgetError, DomainError
from fedldp.vehicle import exact

Number = float | str | Fraction
Request = str | bytes
Answer = Callable[[], bytes]
Answers = Callable[[list[str]], Mapping[str, bytes]]

_LARGEST = 10**30  # in a fraction's parts: with larger ones, sums would grow beyond all bounds

_KIND = Kind(
    name="ledger",
    mark=b"fLDP",
    format=2,
    tables="""
        CREATE TABLE releases (
            number INTEGER PRIMARY KEY,
            key TEXT NOT NULL,
            request NOT NULL,  -- a text or bytes, as it was given
            run TEXT NOT NULL,
            epsilon TEXT NOT NULL,  -- an exact fraction, "n/d"
            answer BLOB NOT NULL,
            UNIQUE (key, request)
        );
        CREATE INDEX by_request ON releases (request);
        CREATE TABLE questions (  -- what was asked of many under one request
            request PRIMARY KEY,
            question BLOB NOT NULL
        );
    """,
    lost="forget what has been spent",
)
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

    >>> import tempfile
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
        self._file = Database(path, _KIND)
        self.path = self._file.path

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
        _text(key, "key")
        price, request = _number(epsilon, "epsilon"), _request(request)
        with self._file.transaction():
            answer = self._stored(key, price, request)
            if answer is None:
                if self._spent(key) + price > self.cap:
                    raise BudgetError(
                        f"{key!r} has spent {float(self._spent(key)):.12g} of its cap of "
                        f"{float(self.cap):.12g}: {epsilon} more is too much. "
                        "Ask for less, or let its owner raise the cap."
                    )
                if self._asked(request) is not None:
                    raise DomainError("Many were asked under this request: put it under another.")
                answer = produce()
                self._burn({key: answer}, [key], price, request, run)
        return answer  # and not a line earlier: now the transaction is on the disk

    def release_many(
        self,
        keys: list[str],
        epsilon: Number,
        request: Request,
        question: bytes,
        produce: Answers,
        *,
        run: str = "",
    ) -> dict[str, bytes]:
        """Put a question to many at once, in one transaction: return the bytes of each.

        `produce` is given the keys that can afford the epsilon, and returns bytes for as many of
        them as it likes: these pay. There is one question for each request, told by a hash of all
        that is asked. Whoever puts it again, to whichever keys, gets the bytes of those who have
        answered, and no other is asked; another question is refused (`DomainError`).
        """
        keys = [_text(key, "key") for key in keys]
        price, request = _number(epsilon, "epsilon"), _request(request)
        with self._file.transaction():
            asked = self._asked(request)
            query = "SELECT key, answer FROM releases WHERE request = ?"
            answers: dict[str, bytes] = dict(self._file.execute(query, (request,)))
            if asked != question and (asked is not None or answers):
                raise DomainError("Another question was put under this request.")
            if asked is None:
                able = [key for key in keys if self._spent(key) + price <= self.cap]
                answers = dict(produce(able))
                if answers:  # or whoever asks those that have spent all could fill the disk
                    self._file.execute("INSERT INTO questions VALUES (?, ?)", (request, question))
                self._burn(answers, able, price, request, run)
        return answers  # and not a line earlier: now the transaction is on the disk

    def spent(self, key: str) -> Fraction:
        """Return what a key has spent in its life."""
        with self._file.gate():
            return self._spent(_text(key, "key"))

    def totals(self) -> dict[str, Fraction]:
        """Return what each key has spent that has spent anything."""
        query = "SELECT key, epsilon, COUNT(*) FROM releases GROUP BY key, epsilon"
        found: dict[str, Fraction] = defaultdict(Fraction)
        with self._file.gate():
            for key, text, count in self._file.execute(query):
                found[key] += self._fraction(text) * count
        return dict(found)

    def history(self, key: str | None = None) -> list[Spending]:
        """Return the spendings of a key, or those of all keys, the oldest first."""
        query = "SELECT key, run, request, epsilon FROM releases WHERE key = ?1 OR ?1 IS NULL"
        with self._file.gate():
            rows = self._file.execute(f"{query} ORDER BY number", (key and _text(key, "key"),))
            return [Spending(who, run, what, self._fraction(text)) for who, run, what, text in rows]

    def close(self) -> None:
        """Close the file. Closing it again does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type["Ledger"], tuple[Path, Fraction]]:
        return Ledger, (self.path, self.cap)  # a copy has a connection of its own

    # What follows is called while the gate is held.

    def _stored(self, key: str, price: Fraction, request: Request) -> bytes | None:
        query = "SELECT epsilon, answer FROM releases WHERE key = ? AND request = ?"
        for text, answer in self._file.execute(query, (key, request)):
            if self._fraction(text) != price:
                raise DomainError(
                    f"{key!r} has answered this request for an epsilon of {text}, and is now "
                    f"asked for {price}. Put another epsilon under another request."
                )
            return bytes(answer)
        return None

    def _asked(self, request: Request) -> bytes | None:
        query = "SELECT question FROM questions WHERE request = ?"
        for (question,) in self._file.execute(query, (request,)):
            return bytes(question)
        return None

    def _burn(
        self,
        answers: Mapping[str, bytes],
        able: list[str],
        price: Fraction,
        request: Request,
        run: str,
    ) -> None:
        if not answers.keys() <= set(able) or not all(type(a) is bytes for a in answers.values()):
            raise DomainError("produce must return bytes, and for no key but those it was given.")
        text, run = f"{price.numerator}/{price.denominator}", _text(run, "run")
        for key, answer in answers.items():
            self._file.execute(_INSERT, (key, request, run, text, answer))

    def _spent(self, key: str) -> Fraction:
        query = "SELECT epsilon, COUNT(*) FROM releases WHERE key = ? GROUP BY epsilon"
        prices = self._file.execute(query, (key,))
        return sum((self._fraction(text) * count for text, count in prices), Fraction())

    def _fraction(self, text: str) -> Fraction:
        try:
            return exact(text)
        except ValueError:
            raise self._file.damaged(f"it has an epsilon of {text!r}") from None


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


def _request(value: Request) -> Request:
    return value if isinstance(value, bytes) else _text(value, "request")
