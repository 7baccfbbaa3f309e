"""Jobs, and agents that are functions, for tests of the engine."""

import datetime
import hashlib
from dataclasses import dataclass, field

import numpy as np

import fedldp
from fedldp import Category, Plan, Schema
from fedldp.learn.layers import Activation, Dense
from fedldp.learn.model import Model
from fedldp.learn.networks import Network
from fedldp.learn.optimizer import Adam, Recipe
from fedldp.plan.parts import Matrix
from fedldp.plan.strategies import Sample
from fedldp.signing import PrivateKey
from fedldp_fleet import engine, jobs
from fedldp_fleet.engine import Engine
from fedldp_fleet.jobs import Schedule, StatisticJob, TrainingJob
from fedldp_fleet.messages import Announcement, Answer, Call
from fedldp_fleet.questions import Question
from fedldp_fleet.store.base import Member

OPERATOR, SERVER = PrivateKey.generate(), PrivateKey.generate()
OPENS = datetime.datetime(2027, 3, 1, tzinfo=datetime.UTC)
START = OPENS.timestamp()
DAY = 86_400.0
SCHEDULE = Schedule(OPENS, OPENS + datetime.timedelta(days=1))

ROWS = Schema.of(speed=(0, 50), load=(0, 1))
PLAN = Plan(ROWS, 2.0, Sample(k=1, mechanism="three-outputs"))
MODEL = Model("logistic", ROWS, Category("late", ["no", "yes"]), [0.0, 0.0, 0.0])
GRADIENTS = Plan(Schema.vector(3, 1.0), 2.0, Sample(k=1, mechanism="three-outputs"))
RECIPE = Recipe(Adam(0.2))

FIXED = Network(  # only its last layer is trained
    (2,),
    (Dense(3), Activation("tanh")),
    MODEL.goal,
    fixed=(0.5, -1.0, 0.25, 1.0, 0.5, 0.0, -0.5, 0.75, 0.125),
)
OF_FIXED = Model("logistic", ROWS, MODEL.target, FIXED.start(0), layers=FIXED)


def statistic(name="spring", wanted=10, schedule=SCHEDULE, **options):
    return StatisticJob(name, PLAN, wanted, schedule, **options)


def training(name="learn", rounds=3, group=8, schedule=SCHEDULE, **options):
    return TrainingJob(name, MODEL, (GRADIENTS,), RECIPE, rounds, group, schedule, **options)


def signed(job, server=SERVER):
    return jobs.to_sign(job, server.public).signed(OPERATOR)


def new_engine(**options):
    return Engine(SERVER, spread=lambda low, high: (low + high) / 2, **options)


def prepared(store, *some, agents=20, vehicles=1, machine=None):
    """Enroll agents and add jobs."""
    machine = machine or new_engine()
    with store.transaction() as inside:
        engine.start(inside, b"i" * 16)
        for number in range(agents):
            inside.set_member(Member(f"agent-{number}", vehicles, secret=b"s" * 32))
        for job in some:
            machine.add(inside, job, signed(job))
        machine.tick(inside, START)
    return machine


def report_to(question, vehicles=1, seed=1):
    """Return the report of some vehicles whose values follow from the question and the seed."""
    plan = Plan.from_json(question.asked.plan)
    number = int.from_bytes(hashlib.sha256(question.digest + repr(seed).encode()).digest()[:6])
    source = fedldp.source(number)
    values = Matrix(source.uniform((vehicles, plan.schema.dimensions)) - 0.8)
    return plan.report_batches([values], source).to_bytes()


def answer_to(question, name="agent-0", vehicles=1, seed=1):
    identifier = hashlib.sha256(f"{name} {question.job} {question.round} {seed}".encode()).digest()
    report = report_to(question, vehicles, identifier.hex())
    return Answer(
        question.job, question.round, question.digest, identifier[:16], vehicles, report, bits=8
    )


@dataclass
class FakeAgent:
    """An agent that answers each job once, and repeats until it is acknowledged."""

    machine: Engine
    store: object
    name: str
    vehicles: int = 1
    used: dict = field(default_factory=dict)
    pending: list = field(default_factory=list)
    said: dict = field(default_factory=dict)  # verdicts, by (job, round, identifier)
    calls: int = 0
    retry: float = 0.0

    def call(self, now, *, able=None):
        names = [each.name for each in self._read(lambda inside: inside.jobs())]
        free = {each: self.vehicles - self.used.get(each, 0) for each in names}
        self.calls += 1
        with self.store.transaction() as inside:
            found = self.machine.call(inside, self.name, Call(able or free), now)
        self.retry = found.retry
        return found

    def _read(self, query):
        with self.store.reading() as inside:
            return query(inside)

    def announce(self, job, number, now):
        with self.store.transaction() as inside:
            return self.machine.announce(inside, self.name, Announcement(job, number), now)

    def question(self, job, number):
        def query(inside):
            return inside.question(inside.round(job, number).digest)

        return Question.from_bytes(self._read(query))

    def visit(self, now):
        """Call, and answer where there is a place; return how many vehicles have answered."""
        found, answered = self.call(now), 0
        for offer in found.offers:
            if offer.place is None:
                continue
            number = self._read(lambda inside, name=offer.job: inside.job(name)).round
            if not self.announce(offer.job, number, now):
                continue
            self.draw(offer.job, number, offer.place.vehicles)
            answered += offer.place.vehicles
        self.send(now)
        return answered

    def draw(self, job, number, vehicles):
        before = self.used.get(job, 0)
        question = self.question(job, number)
        self.pending.append(answer_to(question, self.name, vehicles, seed=before))
        self.used[job] = before + vehicles

    def send(self, now):
        for answer in list(self.pending):
            with self.store.transaction() as inside:
                [parsed] = self.machine.parse(inside, [answer])
                found = self.machine.deliver(inside, self.name, answer, parsed, now)
            key = answer.job, answer.round, answer.identifier
            self.said[key] = found.verdict
            if found.verdict.final:
                self.pending.remove(answer)


def tick(machine, store, now):
    with store.transaction() as inside:
        return machine.tick(inside, now)


def job_row(store, name):
    with store.reading() as inside:
        return inside.job(name)


def fleet(machine, store, agents, vehicles=1):
    return [FakeAgent(machine, store, f"agent-{each}", vehicles) for each in range(agents)]


def same_numbers(one, two):
    return all(np.array_equal(a, b) for a, b in zip(one.counts, two.counts, strict=True))
