"""An agent in its folder: its settings, who holds the data, and the process that runs it.

agent.toml            what the owner has decided
ledger.db             what was spent: never delete it
outbox.db             what was drawn, and what the server says of it
network/              what the network process needs: membership.json and perhaps ca.pem, or
                      broker.json and the keys for the broker
state.json            when the agent last called, for `status`
"""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final

from ..common import DomainError, FedLDPError, Ledger, PublicKeys, exact, files, locks, toml
from ..common import overview as ledger_overview
from ..transparency import SignedStatement
from . import https, policy
from .https import HTTPSRoad, Membership
from .loop import TICK_SECONDS, Agent, Holder
from .outbox import Outbox
from .policy import OwnerRules
from .roads import Road

if TYPE_CHECKING:
    from .relay import Door

FILE, LEDGER, OUTBOX, NETWORK = "agent.toml", "ledger.db", "outbox.db", "network"
MEMBERSHIP, AUTHORITY, STATE, LOCK = "membership.json", "ca.pem", "state.json", ".agent.lock"
BROKER = "broker.json"
POSTGRESQL = ("postgresql://", "postgres://")  # how the address of a database begins
NOT_ACKNOWLEDGED, NOT_REACHED = 3, 4  # exit statuses, which depend on the network alone
STATE_FORMAT = "fedldp agent state 1"
DOOR_SECONDS = 1.0  # between two looks at signals, while nobody connects
LEAST_FREE_BYTES = 1 << 24  # of the disk: below, `status` warns

ENTRIES: dict[str, toml.Types] = {
    "cap": str,  # what a vehicle may spend in its life
    "operator": str,  # the file with the public key, or keys, one of which has signed every job
    "data": str,  # a file with rows
    "program": str,  # or "module:function", which returns rows
    "query": str,  # or a query in SQL, which returns them
    "database": str,  # a file of SQLite, or postgresql://...: whom the query asks
    "schema": str,  # the attributes that the rows have
    "vehicle": str,  # the column with the id of each row's vehicle
    "vehicle_ids": list,  # of a program's rows
    "epsilon": str,  # vehicles answer only questions with this epsilon
    "epsilons": str,  # or the column of a file with the epsilon of each vehicle
    "answers_per_job": int,
    "ledger": str,
    "tick": (int, float),  # seconds
    **policy.ENTRIES,
}

T = TypeVar("T")
MakeHolder = Callable[["AgentSettings", Ledger], Holder]


@final
@dataclass(frozen=True)
class AgentSettings:
    """What the owner has decided: agent.toml. Paths are relative to its folder."""

    folder: Path
    entries: Mapping[str, Any]
    cap: Fraction
    policy: OwnerRules = field(default_factory=OwnerRules)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "AgentSettings":
        """Read the file agent.toml in a folder, or raise `DomainError`."""
        path = Path(folder).resolve() / FILE
        if not path.exists():
            raise DomainError(f"{path} does not exist: make an agent with `init` first.")
        entries = toml.read(path, ENTRIES, ("cap", "operator"))
        try:
            cap = _positive(entries["cap"], "cap")
            if entries.get("answers_per_job", 1) < 1:
                raise DomainError("answers_per_job must be at least 1.")
            if not 0 < entries.get("tick", TICK_SECONDS) <= 3600:
                raise DomainError("tick must be a number of seconds, above 0 and at most 3600.")
            if sum(name in entries for name in ("data", "program", "query")) != 1:
                raise DomainError(
                    "expected one of `data`, `program` and `query`, which say where rows are."
                )
            if ("query" in entries) != ("database" in entries):
                raise DomainError("`query` and `database` need each other: give both, or neither.")
            return cls(path.parent, entries, cap, OwnerRules.of(entries))
        except DomainError as error:
            raise DomainError(f"{path}: {error}") from None

    @property
    def ledger_path(self) -> Path:
        """The file of the ledger."""
        return self.folder / str(self.entries.get("ledger", LEDGER))

    @property
    def network(self) -> Path:
        """The folder of the network process."""
        return self.folder / NETWORK

    @cached_property
    def epsilon(self) -> Fraction | None:
        """The epsilon that all vehicles have chosen, if they have."""
        text = self.entries.get("epsilon")
        return None if text is None else _positive(text, "epsilon")

    def path(self, entry: str) -> Path:
        """Return the file that an entry names."""
        return self.folder / str(self.entries[entry])

    def operator(self) -> PublicKeys:
        """Read the operator's public key, or both while it changes."""
        try:
            return PublicKeys.load(self.path("operator"))
        except FedLDPError as error:
            raise DomainError(f"{self.folder / FILE}: operator: {error}") from None

    def ledger(self) -> Ledger:
        """Open the ledger."""
        return Ledger(
            self.ledger_path,
            self.cap,
            answers_per_job=self.entries.get("answers_per_job", 1),
            period=self.policy.period,
        )

    def program(self) -> Callable[[], Any]:
        """Return the function that returns rows."""
        module, _, name = str(self.entries["program"]).partition(":")
        try:
            function: Callable[[], Any] = getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise DomainError(
                f'{self.folder / FILE}: program must be like "module:function"; {error}.'
            ) from None
        return function


def join(network: Path, url: str, code: str, authority: Path | None) -> Membership:
    """Use a one-time code, and write what the network process needs into its folder."""
    path = network / MEMBERSHIP
    if path.exists():
        known = Membership.load(path)
        raise DomainError(
            f"this agent has joined {known.url} as {known.agent!r} already. To join again, move "
            f"{path} away."
        )
    network.mkdir(mode=0o700, parents=True, exist_ok=True)
    if authority is not None:
        files.write(network / AUTHORITY, authority.read_text("utf-8"))
    membership = https.join(url, code, https.tls(authority))
    membership.save(path)
    return membership


def https_road(network: Path) -> HTTPSRoad:
    """Return the road of an agent that has joined."""
    authority = network / AUTHORITY
    context = https.tls(authority if authority.exists() else None)
    path = network / MEMBERSHIP
    return HTTPSRoad(Membership.load(path), context, path)


def road_of(network: Path) -> Road:
    """Return the road of an agent: through a broker, if it has joined one."""
    if not (network / BROKER).exists():
        return https_road(network)
    from .mqtt import BrokerMembership  # which most agents do without

    return BrokerMembership.from_json((network / BROKER).read_text("utf-8")).road(network)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Be the only process that runs the agent of a folder."""
    with open(folder / LOCK, "a") as lock:  # noqa: PTH123 (of the type that locks take)
        if not locks.take(lock):
            raise DomainError(f"the agent {folder} is running already.")
        yield


def is_running(folder: Path) -> bool:
    """Return whether a process runs the agent of a folder."""
    try:
        with open(folder / LOCK) as lock:  # noqa: PTH123
            return locks.is_taken(lock)
    except FileNotFoundError:
        return False


def run(
    settings: AgentSettings,
    make_holder: MakeHolder,
    socket: Path | None = None,
    listen: Path | None = None,
    *,
    once: bool = False,
) -> int:
    """Take part until SIGTERM or Ctrl-C; read the operator's key again on SIGHUP.

    With `once`, take part until there is nothing to do now. Return the exit status.

    With a socket, the network is in another process: one that `relay` runs, or one that connects to
    the socket on which the agent is to listen.
    """
    stop, renew = threading.Event(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    signal.signal(signal.SIGHUP, lambda *_: renew.set())
    with alone(settings.folder), settings.ledger() as ledger:
        road, door = _road(settings, socket, listen)
        outbox = Outbox(settings.folder / OUTBOX)
        agent = Agent(
            road,
            make_holder(settings, ledger),
            ledger,
            outbox,
            settings.operator(),
            settings.policy,
            tick_seconds=float(settings.entries.get("tick", TICK_SECONDS)),
        )
        state = AgentState(settings.folder / STATE)
        try:
            while not stop.is_set():
                if renew.is_set():
                    renew.clear()
                    with contextlib.suppress(DomainError):  # the key that is known stays
                        agent.trust(settings.operator())
                if door is not None and not door.wait(DOOR_SECONDS):
                    continue
                seconds = agent.attempt()
                while door is not None and seconds == 0 and not stop.is_set():
                    seconds = agent.attempt()
                state.save(agent, seconds)
                if once and (seconds or agent.trouble):
                    return _status_after(agent, outbox)
                if door is None:
                    road.wait(seconds, stop)
                else:
                    road.close()
        finally:
            road.close()
            outbox.close()
            if door is not None:
                door.close()
    return 0


def _status_after(agent: Agent, outbox: Outbox) -> int:
    if agent.trouble:
        return NOT_REACHED
    return NOT_ACKNOWLEDGED if outbox.pending() else 0


def _road(
    settings: AgentSettings, socket: Path | None, listen: Path | None
) -> "tuple[Road, Door | None]":
    if socket is None and listen is None:
        return road_of(settings.network), None
    from .relay import Door, SocketRoad  # which a process with its own network does without

    if listen is None:
        return SocketRoad(str(socket)), None
    door = Door(listen)
    return SocketRoad(door), door


def relay(network: Path, socket: Path) -> None:
    """Run the network process of an agent until SIGTERM or Ctrl-C."""
    from .relay import Relay

    road = road_of(network)
    server = Relay(road, socket)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.close())
    try:
        server.serve()
    finally:
        road.close()


@final
class AgentState:
    """A small file that says when an agent has called, and whether that has worked.

    What it says follows from the server and the ledger, never from data. It is written at most once
    a second, and not at all if the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._since, self._written = path, time.time(), 0.0

    def save(self, agent: Agent, seconds: float) -> None:
        """Write how an attempt went, and when the next one is."""
        now = time.time()
        if seconds < 1 and now - self._written < 1:
            return
        self._written = now
        document = {
            "format": STATE_FORMAT,
            "since": self._since,
            "last_call": now,
            "next_call": now + seconds,
            "calls": agent.calls,
            "answers": agent.answered,
            "trouble": agent.trouble,
        }
        with contextlib.suppress(OSError):
            files.write(self._path, json.dumps(document))


def status(settings: AgentSettings) -> tuple[dict[str, Any], list[str]]:
    """Return what is known about an agent, and what needs attention: nothing about its data."""
    attention: list[str] = []
    running = is_running(settings.folder)
    if not running:
        attention.append("the agent is not running.")
    state = _state(settings.folder / STATE)
    if running and state.get("trouble"):
        attention.append(str(state["trouble"]))
    spent: dict[str, Any] = {}
    try:
        found = ledger_overview(settings.ledger_path, inspect=False)
        left = found.left(settings.cap, 0)
        spent = {
            "vehicles_that_answered": len(found.totals),
            "left": {str(float(each)): count for each, count in left.items()},
            "jobs": {each.job: each.answers for each in found.jobs},
        }
        if found.sealed:
            attention.append(f"the ledger was sealed on {found.sealed}: it refuses every vehicle.")
    except (FedLDPError, OSError) as error:
        attention.append(str(error))
    for each in _signed_twice(settings):
        attention.append(f"{each}: the server has signed two questions.")
    disk = os.statvfs(settings.folder)
    free = disk.f_bavail * disk.f_frsize
    if free < LEAST_FREE_BYTES:
        attention.append(f"the disk is full: less than {LEAST_FREE_BYTES:,} bytes are left.")
    document = {
        "running": running,
        "cap": str(float(settings.cap)),
        "disk_free": free and 1 << (free.bit_length() - 1),  # rounded: it might depend on data
        "disk_size": disk.f_blocks * disk.f_frsize,
        **{name: state.get(name) for name in ("since", "last_call", "next_call")},
        **spent,
    }
    return document, attention


def statements(settings: AgentSettings) -> list[SignedStatement]:
    """Return what the server has signed, as far as the agent has seen it."""
    return _look(settings, Outbox.statements)


def _signed_twice(settings: AgentSettings) -> list[str]:
    try:
        return _look(settings, Outbox.contradicted)
    except (FedLDPError, OSError):  # a damaged outbox is told by the agent itself
        return []


def _look(settings: AgentSettings, query: Callable[[Outbox], list[T]]) -> list[T]:
    if not (settings.folder / OUTBOX).exists():
        return []
    outbox = Outbox(settings.folder / OUTBOX)
    try:
        return query(outbox)
    finally:
        outbox.close()


def _state(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) and document.get("format") == STATE_FORMAT else {}


def _positive(text: str, name: str) -> Fraction:
    try:
        return exact(text)
    except ValueError:
        raise DomainError(
            f'{name} must be a positive number, such as "4.0"; got {text!r:.80}.'
        ) from None
