"""Agents of both distributions on a road that is a function call, to the real engine and store."""

import datetime
import hashlib
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from engine_cases import MODEL, OPERATOR, ROWS, START

import fedldp.budget.ledger
import fedldp.signing
import fedldp_fleet.agent.https
import fedldp_fleet.agent.loop
import fedldp_fleet.agent.one
import fedldp_fleet.agent.outbox
import fedldp_fleet.agent.policy
import fedldp_fleet.agent.roads
import fedldp_fleet.messages
import fedldp_vehicle.budget.ledger
import fedldp_vehicle.errors
import fedldp_vehicle.fleet.agent.https
import fedldp_vehicle.fleet.agent.loop
import fedldp_vehicle.fleet.agent.one
import fedldp_vehicle.fleet.agent.outbox
import fedldp_vehicle.fleet.agent.policy
import fedldp_vehicle.fleet.agent.roads
import fedldp_vehicle.fleet.messages
import fedldp_vehicle.signing
from fedldp import Schema
from fedldp_fleet.agent.many import ManyVehicles
from fedldp_fleet.agent.rows import TableRows
from fedldp_fleet.messages import Announcement, Answer, Call

LIBRARY = SimpleNamespace(
    name="fedldp_fleet",
    errors=fedldp.errors,
    ledgers=fedldp.budget.ledger,
    https=fedldp_fleet.agent.https,
    loop=fedldp_fleet.agent.loop,
    messages=fedldp_fleet.messages,
    one=fedldp_fleet.agent.one,
    outbox=fedldp_fleet.agent.outbox,
    policy=fedldp_fleet.agent.policy,
    roads=fedldp_fleet.agent.roads,
    signing=fedldp.signing,
)
ALONE = SimpleNamespace(
    name="fedldp_vehicle",
    errors=fedldp_vehicle.errors,
    ledgers=fedldp_vehicle.budget.ledger,
    https=fedldp_vehicle.fleet.agent.https,
    loop=fedldp_vehicle.fleet.agent.loop,
    messages=fedldp_vehicle.fleet.messages,
    one=fedldp_vehicle.fleet.agent.one,
    outbox=fedldp_vehicle.fleet.agent.outbox,
    policy=fedldp_vehicle.fleet.agent.policy,
    roads=fedldp_vehicle.fleet.agent.roads,
    signing=fedldp_vehicle.signing,
)

ALL_ATTRIBUTES = Schema((*ROWS.attributes, MODEL.target))
ROW = {"speed": 30.0, "load": 0.25, "late": "yes"}


class Time:
    """A wall clock, a monotonic clock, and a sleep that moves both."""

    def __init__(self, now=START):
        self.now, self.monotonic, self.sleeps = now, 1000.0, []

    def wall(self):
        return datetime.datetime.fromtimestamp(self.now, datetime.UTC)

    def tick(self):
        return self.monotonic

    def move(self, seconds):
        self.now += seconds
        self.monotonic += seconds

    def sleep(self, seconds):
        self.sleeps.append(seconds)
        self.move(seconds)


class Cut(OSError):
    """The network fails here."""


@dataclass
class EngineRoad:
    """A road without a network; `cuts` names the acts that fail, before or after the server."""

    machine: object
    store: object
    name: str
    time: Time
    package: object = field(default_factory=lambda: LIBRARY)
    before: set = field(default_factory=set)  # acts that fail before the server has acted
    after: set = field(default_factory=set)  # and after it has
    log: list = field(default_factory=list)
    delay: float = 0.0

    def _act(self, what, act):
        if what in self.before:
            raise self.package.roads.RoadError(f"cut before {what}")
        self.log.append(what)
        self.time.move(self.delay)
        done = act()
        if what in self.after:
            raise self.package.roads.RoadError(f"cut after {what}")
        return done

    def _transaction(self, act):
        with self.store.transaction() as inside:
            return act(inside)

    def call(self, call):
        given = Call.from_bytes(call.to_bytes())

        def act():
            found = self._transaction(
                lambda inside: self.machine.call(inside, self.name, given, self.time.now)
            )
            return self.package.messages.Offers.from_bytes(found.to_bytes())

        return self._act("call", act)

    def question(self, digest):
        def act():
            with self.store.reading() as inside:
                return inside.question(digest)

        return self._act("question", act)

    def signed_job(self, digest):
        def act():
            with self.store.reading() as inside:
                texts = {hash_of(job.signed): job.signed for job in inside.jobs()}
            return texts[digest]

        return self._act("job", act)

    def announce(self, said):
        given = Announcement.from_bytes(said.to_bytes())
        return self._act(
            "announce",
            lambda: self._transaction(
                lambda inside: self.machine.announce(inside, self.name, given, self.time.now)
            ),
        )

    def deliver(self, answer):
        given = Answer.from_bytes(answer)
        self.log.append(("size", len(answer)))

        def act():
            def inside_of(inside):
                [parsed] = self.machine.parse(inside, [given])
                return self.machine.deliver(inside, self.name, given, parsed, self.time.now)

            found = self._transaction(inside_of).to_bytes()
            return self.package.messages.Acknowledgement.from_bytes(found)

        return self._act("deliver", act)

    def close(self):
        pass


def hash_of(text):
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass
class Party:
    """An agent with its folder, which can be started again."""

    machine: object
    store: object
    kind: str = "many"
    name: str = "agent-0"
    vehicles: int = 1
    cap: float = 4.0
    time: Time = field(default_factory=Time)
    rows: object = None
    matrix: object = None  # the row of each of many vehicles, if they differ
    policy: dict = field(default_factory=dict)
    answers_per_job: int = 1
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp()))
    told: list = field(default_factory=list)
    owner: list = field(default_factory=list)
    reads: int = 0
    road: object = None

    def __post_init__(self):
        self.package = ALONE if self.kind == "alone" else LIBRARY
        if self.road is None:
            self.road = EngineRoad(self.machine, self.store, self.name, self.time, self.package)
        fedldp.Ledger.create(self.folder / "ledger.db", cap=self.cap).close()
        self.agent = None
        self.start()

    def start(self):
        """Start the agent, or start it again as after a crash."""
        if self.agent is not None:
            self.close()
        package = self.package
        rules = package.policy.OwnerRules.of(self.policy)
        self.ledger = package.ledgers.Ledger(
            self.folder / "ledger.db",
            self.cap,
            answers_per_job=self.answers_per_job,
            period=rules.period,
        )
        self.outbox = package.outbox.Outbox(self.folder / "outbox.db")
        self.agent = package.loop.Agent(
            self.road,
            self._holder(rules),
            self.ledger,
            self.outbox,
            package.signing.PublicKey.from_text(OPERATOR.public.text),
            rules,
            clock=self.time.wall,
            monotonic=self.time.tick,
            sleep=self.time.sleep,
            spread=max,
            tell=self.told.append,
        )

    def _holder(self, rules):
        if self.kind == "many":
            return ManyVehicles(self._table(), self.ledger, rules)
        return self.package.one.OneVehicle(
            self.ledger,
            self._row,
            vehicle_id="car-0",
            schema=ALL_ATTRIBUTES.to_document(),
            fewest_vehicles=rules.fewest_vehicles,
            tell=lambda answer: self.owner.extend(answer.notes),
        )

    def _row(self):
        self.reads += 1
        return ROW if self.rows is None else self.rows()

    def _table(self):
        ids = [f"car-{number}" for number in range(self.vehicles)]
        matrix = self.matrix
        if matrix is None:
            matrix = ALL_ATTRIBUTES.rows([ROW] * self.vehicles).matrix()
        table = TableRows(ALL_ATTRIBUTES, np.array(matrix), ids)
        return Counting(table, self)

    def close(self):
        self.ledger.close()
        self.outbox.close()

    def visit(self):
        return self.agent.attempt()

    def spent(self):
        return sum(self.ledger.totals().values())


class Counting:
    """Data that counts how often it is read, or fails."""

    def __init__(self, table, party):
        self.schema, self.vehicle_ids, self.epsilons = table.schema, table.vehicle_ids, ()
        self._table, self._party = table, party

    def held(self):
        self._party._row()
        return self._table.held()
