"""What an agent has drawn, and what the server has said about it.

A row is written before anything is drawn. So after a crash the agent knows where to look in its
ledger, which has the records, and sends what it finds there: what is paid for is always sent. The
file is not needed for privacy, which the ledger guards alone. If it is lost, questions that are
asked again get the same bytes under the same identifiers.

It also keeps what the server has signed: two statements for one round prove that it asked
differently.
"""

import os
from fractions import Fraction
from typing import NamedTuple, final

from ..common import Database, Kind, PublicKey
from ..messages import AnswerVerdict
from ..questions import Statement
from ..transparency import SignedStatement

_KIND = Kind(
    name="outbox of an agent",
    mark=b"fOut",
    format=1,
    tables="""
        CREATE TABLE settings (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
        CREATE TABLE entries (
            job TEXT NOT NULL,
            round INTEGER NOT NULL,
            chunk INTEGER NOT NULL,
            question BLOB NOT NULL,
            statement TEXT NOT NULL,
            request TEXT NOT NULL,
            content BLOB NOT NULL,
            fingerprint TEXT NOT NULL,
            epsilon TEXT NOT NULL,
            bits INTEGER NOT NULL,
            identifier BLOB NOT NULL,
            vehicles INTEGER NOT NULL,
            closes TEXT NOT NULL,
            drawn INTEGER NOT NULL,
            verdict INTEGER,
            incarnation BLOB NOT NULL,
            PRIMARY KEY (job, round, chunk)
        ) WITHOUT ROWID;
        CREATE TABLE statements (
            job TEXT NOT NULL,
            round INTEGER NOT NULL,
            question BLOB NOT NULL,
            server TEXT NOT NULL,
            statement TEXT NOT NULL,
            PRIMARY KEY (job, round, question)
        ) WITHOUT ROWID;
        CREATE INDEX entries_to_send ON entries (drawn, verdict);
    """,
    advice=(
        "It holds nothing that the ledger does not know: move it away, and open questions are "
        "answered again, with the same bytes."
    ),
)
_INCARNATION = "incarnation"


class Entry(NamedTuple):
    """An answer that is drawn, or about to be."""

    job: str
    round: int
    chunk: int  # an agent with many vehicles answers a round in several chunks
    question: bytes  # the SHA-256 of the question
    statement: str  # with which the server has signed it: evidence of what it has asked
    request: str  # its name in the ledger
    content: bytes  # what the ledger binds that name to
    fingerprint: str  # of the plan
    epsilon: str  # that each vehicle pays, exactly
    bits: int  # of a record
    identifier: bytes
    vehicles: int  # in the place
    closes: str  # when the job ends, as documents have it
    drawn: bool = False
    verdict: int | None = None
    incarnation: bytes = b""  # of the server that has said so

    @property
    def cost(self) -> Fraction:
        """What each vehicle pays."""
        return Fraction(self.epsilon)


@final
class Outbox:
    """A file with the answers of an agent. A missing one is created."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = Database(path, _KIND)

    def close(self) -> None:
        """Close the file. Closing it again does nothing."""
        self._file.close()

    def begin(self, entry: Entry) -> None:
        """Note that an answer will be drawn, before it is."""
        with self._file.transaction():
            self._file.execute(_BEGIN, entry)

    def forget(self, entry: Entry) -> None:
        """Forget an answer that was not drawn."""
        with self._file.transaction():
            self._file.execute(_FORGET, entry[:3])

    def drawn(self, entry: Entry) -> Entry:
        """Note that an answer is in the ledger."""
        with self._file.transaction():
            self._file.execute(_DRAW, entry[:3])
        return entry._replace(drawn=True)

    def acknowledge(self, entry: Entry, verdict: AnswerVerdict, incarnation: bytes) -> None:
        """Note what the server has said."""
        with self._file.transaction():
            self._file.execute(_ACKNOWLEDGE, (int(verdict), incarnation, *entry[:3]))

    def renew(self, incarnation: bytes) -> bool:
        """Note the server's incarnation; if it is another one, everything is sent again."""
        with self._file.reading():
            known = self._file.execute("SELECT value FROM settings WHERE name = ?", (_INCARNATION,))
        if known == [(incarnation,)]:
            return False
        with self._file.transaction():
            self._file.execute(
                "INSERT OR REPLACE INTO settings VALUES (?, ?)", (_INCARNATION, incarnation)
            )
            self._file.execute(
                "UPDATE entries SET verdict = NULL WHERE incarnation <> ?", (incarnation,)
            )
        return bool(known)

    def unsettled(self) -> list[Entry]:
        """Return the answers of which it is not known whether they were drawn."""
        return self._entries("WHERE NOT drawn")

    def pending(self) -> list[Entry]:
        """Return the answers to send, the oldest job first."""
        return self._entries("WHERE drawn AND verdict IS NULL ORDER BY closes, round, chunk")

    def of_round(self, job: str, number: int) -> list[Entry]:
        """Return the answers in a round, chunk by chunk."""
        return self._entries("WHERE job = ? AND round = ? ORDER BY chunk", job, number)

    def state(self, statement: Statement, server: PublicKey, text: str) -> bool:
        """Keep what the server has signed; return whether it now contradicts itself.

        Of each round at most two statements are kept, which are proof enough.
        """
        where = statement.job, statement.round
        with self._file.reading():
            known = [row[0] for row in self._file.execute(_STATED, where)]
        if statement.question in known or len(known) > 1:
            return False
        with self._file.transaction():
            self._file.execute(_STATE, (*where, statement.question, server.text, text))
        return bool(known)

    def statements(self) -> list[SignedStatement]:
        """Return what the server has signed, round by round."""
        with self._file.reading():
            rows = self._file.execute(
                "SELECT server, statement FROM statements ORDER BY job, round, question"
            )
        return [SignedStatement(*row) for row in rows]

    def contradicted(self) -> list[str]:
        """Return the rounds for which the server has signed two questions."""
        with self._file.reading():
            rows = self._file.execute(_CONTRADICTED)
        return [f"{job}, round {number}" for job, number in rows]

    def counts(self) -> dict[str, dict[str, int]]:
        """Return, for each job, how many answers were drawn, and what the server says of them."""
        found: dict[str, dict[str, int]] = {}
        query = "SELECT job, verdict, COUNT(*) FROM entries WHERE drawn GROUP BY job, verdict"
        with self._file.reading():
            rows = self._file.execute(query)
        for job, verdict, count in rows:
            said = "pending" if verdict is None else AnswerVerdict(verdict).name.lower()
            found.setdefault(job, {})[said] = count
        return found

    def prune(self, before: str) -> None:
        """Forget acknowledged answers of jobs that closed before a time."""
        with self._file.reading():
            old = self._file.execute(_OLD, (before,))
        if old:
            with self._file.transaction():
                self._file.execute(_PRUNE, (before,))

    def _entries(self, condition: str, *values: object) -> list[Entry]:
        columns = ", ".join(Entry._fields)
        with self._file.reading():
            query = f"SELECT {columns} FROM entries {condition}"  # noqa: S608 (our own words)
            rows = self._file.execute(query, values)
        return [entry._replace(drawn=bool(entry.drawn)) for entry in (Entry(*row) for row in rows)]


_STATED = "SELECT question FROM statements WHERE job = ? AND round = ?"
_STATE = "INSERT OR IGNORE INTO statements VALUES (?, ?, ?, ?, ?)"
_CONTRADICTED = (
    "SELECT job, round FROM statements GROUP BY job, round HAVING COUNT(*) > 1 ORDER BY job, round"
)
_MARKS = ", ".join("?" * len(Entry._fields))
_BEGIN = f"INSERT OR REPLACE INTO entries VALUES ({_MARKS})"  # noqa: S608 (question marks)
_FORGET = "DELETE FROM entries WHERE job = ? AND round = ? AND chunk = ? AND NOT drawn"
_DRAW = "UPDATE entries SET drawn = 1 WHERE job = ? AND round = ? AND chunk = ?"
_ACKNOWLEDGE = (
    "UPDATE entries SET drawn = 1, verdict = ?, incarnation = ? "
    "WHERE job = ? AND round = ? AND chunk = ?"
)
_OLD = "SELECT 1 FROM entries WHERE verdict IS NOT NULL AND closes < ? LIMIT 1"
_PRUNE = "DELETE FROM entries WHERE verdict IS NOT NULL AND closes < ?"
