"""Where requests meet the store: many of them in one transaction, in one thread.

While a transaction is written to disk, the next requests gather, and a moment longer where several
came together before: a transaction costs more than most requests. Answers are parsed before it.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, final

from fedldp.storage import files
from fedldp_fleet.engine import (
    INCARNATION_BYTES,
    UNKNOWN_JOB,
    Engine,
    Parsed,
    settle,
    state_of,
)
from fedldp_fleet.messages import (
    MOST_BITS,
    Acknowledgement,
    Announcement,
    Answer,
    AnswerVerdict,
    Call,
    Offers,
)
from fedldp_fleet.questions import check_name
from fedldp_fleet.server.guard import UNKNOWN, Guard, Refused
from fedldp_fleet.store.base import JobRow, Member, Store, Transaction

Act = Callable[..., Any]  # of the transaction, the time and, for an answer, what is in it
T = TypeVar("T")

STATE_ENDING = ".state.json"  # of a training, in the second place
TROUBLE = "trouble"  # in the store's settings: why the last step failed; empty if it did not
MOST_AT_ONCE = 512  # requests in a transaction
REQUEST_GATHERING_SECONDS = 0.05  # before a transaction that several requests will share
TICK_SECONDS = 0.5
HEARD_SECONDS = 30.0  # between two times at which it is stored whom this process has heard
REFRESH_SECONDS = 0.05

_LOG = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    """A request that waits for its transaction."""

    act: Act
    agents: tuple[str, ...]  # whose rows it reads
    answer: Answer | None
    reply: "asyncio.Future[Any]"


@final
class Desk:
    """Takes requests in an event loop, and runs them in transactions of its own thread."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        guard: Guard,
        clock: Callable[[], float] = time.time,
        second: Path | None = None,
    ) -> None:
        self._store, self._engine, self._guard, self._clock = store, engine, guard, clock
        self._second = second  # a folder for the states of trainings, on another disk
        self._unwritten: dict[str, JobRow] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._waiting: list[_Waiting] = []
        self._running: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._is_full = self._is_closed = False
        self._heard_due = 0.0
        self._is_crowded = False  # whether the last transaction was shared
        self._trouble: str | None = None
        self._jobs = KnownJobs(store)

    def call(
        self,
        agent: str,
        call: Call,
        *,
        holder: str = "",
        most_bits: int = MOST_BITS,
        admits: int = 0,
    ) -> "asyncio.Future[Offers]":
        """Return what is open, and the places that an agent gets.

        An agent that is unknown is enrolled for as many vehicles as the road admits.
        """
        engine = self._engine

        def act(store: Transaction, now: float) -> Offers:
            named = _holder(store, agent, holder, admits)
            return engine.call(store, agent, call, now, holder=named, most_bits=most_bits)

        return self._wait(act, agent, holder)

    def announce(
        self, agent: str, said: Announcement, *, holder: str = "", admits: int = 0
    ) -> "asyncio.Future[bool]":
        """Return whether an agent still has the place for which it draws now."""
        engine = self._engine

        def act(store: Transaction, now: float) -> bool:
            return engine.announce(store, _holder(store, agent, holder, admits), said, now)

        return self._wait(act, agent, holder)

    def open_rounds(self, most_bits: int = MOST_BITS) -> "asyncio.Future[Offers]":
        """Return what is open, as all agents may be told of it."""
        engine = self._engine
        return self._wait(lambda store, now: engine.open_rounds(store, now, most_bits))

    def deliver(
        self, agent: str, answer: Answer, *, holder: str = "", admits: int = 0
    ) -> "asyncio.Future[Acknowledgement]":
        """Store an answer; return what is said about it once it is on disk."""
        engine = self._engine

        def act(store: Transaction, now: float, parsed: Parsed) -> Acknowledgement:
            named = _holder(store, agent, holder, admits)
            said = engine.deliver(store, agent, answer, parsed, now, holder=named)
            if said.verdict is AnswerVerdict.COUNTED and not self._is_full:
                opened = store.round(answer.job, answer.round)
                self._is_full = opened is not None and opened.answers >= opened.wanted
            return said

        return self._wait(act, agent, holder, answer=answer)

    async def run(self, act: Callable[[Transaction], T]) -> T:
        """Run a function in a transaction, with those of others; return what it returned."""
        found: T = await self._wait(lambda store, _: act(store))
        return found

    def hear(self, agent: str) -> None:
        """Remember that an agent was heard, on any road."""
        self._guard.hear(agent, self._clock())

    async def refresh(self) -> None:
        """Let the guard notice what other processes have changed; many wait for one look."""
        if self._refreshing is None:
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
        await asyncio.shield(self._refreshing)

    async def _refresh(self) -> None:
        await asyncio.sleep(REFRESH_SECONDS)
        self._refreshing = None  # whoever comes later may ask about a later change
        await self.run(lambda _: None)  # every transaction refreshes the guard

    def _wait(self, act: Act, *agents: str, answer: Answer | None = None) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        if self._is_closed:  # another road may still ask
            reply.set_exception(ConnectionAbortedError("the server ends"))
            return reply
        self._waiting.append(_Waiting(act, tuple(filter(None, agents)), answer, reply))
        if self._running is None:
            self._running = loop.create_task(self._work())
        return reply

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                await asyncio.sleep(REQUEST_GATHERING_SECONDS if self._is_crowded else 0.0)
                batch, self._waiting = (
                    self._waiting[:MOST_AT_ONCE],
                    self._waiting[MOST_AT_ONCE:],
                )
                self._is_crowded = len(batch) > 1
                results = await loop.run_in_executor(self._thread, self._transact, batch)
                for each, result in zip(batch, results, strict=True):
                    if each.reply.done():  # its connection is gone
                        continue
                    if isinstance(result, Exception):
                        each.reply.set_exception(result)
                    else:
                        each.reply.set_result(result)
                if self._is_full:
                    self._is_full = False
                    with contextlib.suppress(Exception):  # logged at the next tick
                        await self.tick()
        finally:
            self._running = None

    def _transact(self, batch: Sequence[_Waiting]) -> list[Any]:
        """Run requests in one transaction; each in its own if one of them fails unexpectedly."""
        try:
            answers = [each.answer for each in batch if each.answer is not None]
            parsed = iter(self._parse(answers))
            with self._store.transaction() as store:
                now, results = self._clock(), []
                store.expect(
                    {agent for each in batch for agent in each.agents},
                    [(each.job, each.round, each.identifier) for each in answers],
                )
                self._guard.refresh(store)
                for each in batch:
                    given = (store, now) if each.answer is None else (store, now, next(parsed))
                    try:
                        results.append(each.act(*given))
                    except Refused as refused:
                        results.append(refused)
                self._guard.refresh(store)
                return results
        except Exception as error:
            if len(batch) == 1 or isinstance(error, OSError):
                _LOG.exception("%d requests failed", len(batch))
                return [error] * len(batch)
            return [result for each in batch for result in self._transact([each])]

    def _parse(self, answers: Sequence[Answer]) -> list[Parsed]:
        """Return what is in some answers; another process may have added or extended their jobs."""
        parsed = self._engine.parse(self._jobs, answers)
        if any(each.reason == UNKNOWN_JOB for each in parsed):
            self._jobs.forget({each.job for each in answers})
            parsed = self._engine.parse(self._jobs, answers)
        return parsed

    async def tick(self) -> list[JobRow]:
        """Open and close what is due; return the jobs that have stepped or ended."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._tick)

    def _tick(self) -> list[JobRow]:
        with self._store.transaction() as store:
            settle(store, secrets.token_bytes(INCARNATION_BYTES))
            self._guard.refresh(store)
            changed = self._engine.tick(store, self._clock())
            if self._clock() >= self._heard_due and self._guard.store_heard(store):
                self._heard_due = self._clock() + HEARD_SECONDS
        if self._second is not None:
            self._unwritten |= {each.name: each for each in changed}
            for name, row in list(self._unwritten.items()):
                if text := state_of(row):
                    files.write(self._second / f"{name}{STATE_ENDING}", text)
                del self._unwritten[name]
        return changed

    async def open(self) -> None:
        """Begin to tick."""
        await self.tick()
        self._ticking = asyncio.get_running_loop().create_task(self._tick_for_ever())

    async def _tick_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            trouble = ""
            try:
                await self.tick()
            except Exception as error:
                trouble = f"a step failed, and is tried again: {error}"
            if trouble != self._trouble:
                if trouble:
                    _LOG.error(trouble)
                elif self._trouble:
                    _LOG.info("steps succeed again")
                with contextlib.suppress(Exception):  # the disk may be full: it is in the log
                    await loop.run_in_executor(self._thread, self._tell, trouble)
                self._trouble = trouble

    def _tell(self, trouble: str) -> None:
        with self._store.transaction() as store:
            store.set_value(TROUBLE, trouble)

    async def close(self) -> None:
        """Wait for what has begun, and begin nothing more."""
        self._is_closed = True
        if self._ticking is not None:
            self._ticking.cancel()
        while self._running is not None:
            await asyncio.wait([self._running])
        with contextlib.suppress(Exception):  # it is not worth a failure at the end
            await asyncio.get_running_loop().run_in_executor(self._thread, self._store_heard)
        self._thread.shutdown()

    def _store_heard(self) -> None:
        with self._store.transaction() as store:
            self._guard.store_heard(store)


@final
class KnownJobs:
    """The jobs of answers, read once: the plan of a round never changes after it was opened."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: dict[str, JobRow] = {}

    def job(self, name: str) -> JobRow | None:
        row = self._rows.get(name)
        if row is None:
            with self._store.reading() as store:
                row = store.job(name)
            if row is not None:
                self._rows[name] = row._replace(learned="", result="")
        return row

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._rows.pop(name, None)


def _holder(store: Transaction, agent: str, holder: str, admits: int) -> str:
    """Return under which name an agent has a place; refuse one that is unknown or revoked.

    An enrollment for one vehicle has one place, however many names its connections have.
    """
    member = store.member(agent)
    if member is None and admits:
        member = Member(check_name(agent, "agent"), admits)
        store.set_member(member)
    if member is None or member.revoked:
        raise Refused(401, UNKNOWN)
    return holder if holder and member.vehicles > 1 else agent
