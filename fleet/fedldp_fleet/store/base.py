"""The server's store: what the engine reads and writes, in transactions.

A transaction is complete or has no effect, and what it has written is on disk when it ends. Only
one runs at a time, whichever thread or process it is in: otherwise an answer could be stored, and
acknowledged, after its round was counted. No table names both an agent and an answer.
"""

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

QUEUED, RUNNING, DONE, FAILED = STATES = ("queued", "running", "done", "failed")


class JobRow(NamedTuple):
    """A job, and how far it has come."""

    name: str
    document: str  # of the job
    signed: str  # by its operator
    state: str  # one of `STATES`
    round: int  # the open one, or the last one; 0 before the first
    learned: str  # so far
    reason: str = ""  # why it has ended
    result: str = ""  # a tally or a model
    restored: bool = False  # whether answers to questions of an incarnation before may count


class RoundRow(NamedTuple):
    """A round that was opened."""

    job: str
    number: int
    digest: bytes  # of the question
    statement: str
    wanted: int  # vehicles
    opened: float
    deadline: float  # after which it gives no further places
    answers: int = 0  # vehicles whose answers are stored
    placed: int = 0  # vehicles in places that are not used, expired or given back
    closed: float | None = None


class PlaceRow(NamedTuple):
    """The place of an agent in the open round of a job."""

    job: str
    agent: str
    round: int
    vehicles: int
    expires: float
    announced: bool = False


class Member(NamedTuple):
    """An agent that is enrolled, or has a code to enroll."""

    agent: str
    vehicles: int  # whose answers count in a job, at most
    secret: bytes = b""  # empty before it has joined
    next_secret: bytes = b""  # from a rotation until it is first used
    code: bytes = b""  # the SHA-256 of its one-time code
    revoked: bool = False
    change: int = 0  # the number of its last change, among those of all agents


class AuditRow(NamedTuple):
    """An entry of the audit log, and the head of its hash chain after it."""

    number: int
    entry: str
    head: bytes


class Token(NamedTuple):
    """What lets a program use the API."""

    name: str
    role: str
    secret_hash: bytes  # SHA-256
    revoked: bool = False


class Uncounted(NamedTuple):
    """Answers that do not count."""

    job: str
    round: int
    reason: str
    vehicles: int


AnswerKey = tuple[str, int, bytes]  # job, round, identifier
Rows = list[tuple[object, ...]]  # of one table


class Sender(NamedTuple):
    """How many vehicles an agent has answered for in a job."""

    job: str
    agent: str
    vehicles: int  # whose answers count
    excess: int = 0  # beyond those for which the agent is enrolled


class Transaction(Protocol):
    """What can be read and written in a transaction."""

    def expect(self, agents: Collection[str], answers: Collection[AnswerKey]) -> None:
        """Read in few steps what requests of these agents, with these answers, will ask for."""

    def origin(self) -> str:
        """Return a text that changes when the store is another one: a copy, or what took over.

        It is empty where that cannot be known.
        """

    def tables(self) -> Iterator[tuple[str, Rows]]:
        """Yield the names of tables and some of their rows, until these were all rows."""

    def add_rows(self, table: str, rows: Rows) -> None:
        """Add rows that `tables` of another store has yielded."""

    def value(self, name: str) -> str:
        """Return a value of the server itself; empty if it was never set."""

    def set_value(self, name: str, value: str) -> None:
        """Set a value of the server itself."""

    def jobs(self) -> list[JobRow]:
        """Return all jobs, in the order in which they were added."""

    def active_jobs(self) -> list[JobRow]:
        """Return the jobs that are queued or running."""

    def job(self, name: str) -> JobRow | None:
        """Return a job."""

    def set_job(self, row: JobRow) -> None:
        """Add or replace a job."""

    def rounds(self, job: str) -> list[RoundRow]:
        """Return the rounds of a job."""

    def round(self, job: str, number: int) -> RoundRow | None:
        """Return a round."""

    def set_round(self, row: RoundRow) -> None:
        """Add or replace a round."""

    def question(self, digest: bytes) -> bytes | None:
        """Return the question with this SHA-256."""

    def add_question(self, digest: bytes, question: bytes) -> None:
        """Keep a question, which may be known already."""

    def place(self, job: str, agent: str) -> PlaceRow | None:
        """Return the place of an agent in a job."""

    def set_place(self, row: PlaceRow) -> None:
        """Add or replace the place of an agent; the round's `placed` follows."""

    def remove_place(self, row: PlaceRow) -> None:
        """Remove the place of an agent; the round's `placed` follows."""

    def expired_places(self, job: str, now: float) -> list[PlaceRow]:
        """Return the places in a job that have expired."""

    def places(self, job: str) -> list[PlaceRow]:
        """Return all places in a job."""

    def answer(self, job: str, number: int, identifier: bytes) -> bytes | None:
        """Return the stored report with this identifier."""

    def add_answer(
        self, job: str, number: int, identifier: bytes, vehicles: int, report: bytes
    ) -> None:
        """Store a report; the round's `answers` follow."""

    def answers(self, job: str, number: int) -> Iterator[bytes]:
        """Yield the reports of a round, by identifier."""

    def answered(self, job: str, number: int) -> int:
        """Return how many vehicles have answered in a round."""

    def used(self, job: str, agent: str) -> int:
        """Return how many answers of an agent count in a job."""

    def add_used(self, job: str, agent: str, vehicles: int, excess: int = 0) -> None:
        """Count further answers of an agent in a job, and those beyond its enrollment."""

    def senders(self, job: str, most: int) -> list[Sender]:
        """Return the agents with the most answers beyond their enrollment, then at all."""

    def most_used(self, job: str) -> tuple[int, int]:
        """Return how many agents have sent answers to a job, and the most that count of one."""

    def add_uncounted(self, row: Uncounted) -> None:
        """Note answers that do not count."""

    def uncounted(self, job: str) -> list[Uncounted]:
        """Return how many answers did not count, by round and reason."""

    def members(self) -> list[Member]:
        """Return all agents."""

    def members_since(self, change: int) -> list[Member]:
        """Return the agents that were changed after this change."""

    def member(self, agent: str) -> Member | None:
        """Return an agent."""

    def set_member(self, row: Member) -> None:
        """Add or replace an agent."""

    def heard(self) -> dict[str, float]:
        """Return when each agent was heard last, whatever its road, to about a minute."""

    def set_heard(self, agent: str, time: float) -> None:
        """Note when an agent was heard."""

    def tokens(self) -> list[Token]:
        """Return all tokens."""

    def token(self, name: str) -> Token | None:
        """Return a token."""

    def set_token(self, row: Token) -> None:
        """Add or replace a token."""

    def audit(self) -> list[AuditRow]:
        """Return the audit log, from its beginning on."""

    def last_audit(self) -> AuditRow | None:
        """Return the last entry of the audit log."""

    def add_audit(self, row: AuditRow) -> None:
        """Add an entry to the audit log. None can be changed or removed."""


class Store(Protocol):
    """A store that threads and processes may share."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Run a transaction."""

    def reading(self) -> AbstractContextManager[Transaction]:
        """Read one state of everything, without waiting; nothing may be written."""

    def serving(self) -> AbstractContextManager[None]:
        """Serve this store until the block ends, or refuse it where one process alone may."""

    def is_served(self) -> bool:
        """Return whether a process serves this store."""

    def close(self) -> None:
        """Close the store."""
