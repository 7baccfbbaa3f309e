"""Gateways that are functions, on a network in one process with a clock of its own."""

import contextlib
import sqlite3

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

import fedldp
from fedldp import Category, Plan, Schema
from fedldp._internal import packing
from fedldp.fleet.flower.messages import packed, unpacked
from fedldp.fleet.flower.strategy import LDPFedSGD
from fedldp.fleet.job import Job
from fedldp.fleet.protocol import Answer, Question, inflated
from fedldp.fleet.server import checkpoint, successors
from fedldp.fleet.stages import Learned
from fedldp.learn import computations
from fedldp.learn.model import Model
from fedldp.learn.optimizer import Adam, Recipe
from fedldp.plan.parts import Matrix

FEATURES = Schema.of(speed=(0, 50), load=(0, 1))
MODEL = Model("logistic", FEATURES, Category("late", ["no", "yes"]), [0.0, 0.0, 0.0])
PLAN = Plan(Schema.vector(3, 1.0), 2.0, mechanism="three-outputs", k=1)
RECIPE = Recipe(Adam(0.2))


def training(folder, **options):
    files = {"checkpoint": folder / "state" / "job.db", "result": folder / "state" / "model.json"}
    numbers = {"gateways": 3, "reports": 8, "rounds": 3, "resend": 10.0, "deadline": 60.0}
    start = {"model": MODEL, "recipe": RECIPE}
    return Job("test", PLAN, **(files | numbers | start | options))


def statistic(folder, **options):
    plan = Plan(FEATURES, 2.0, mechanism="three-outputs", k=1)
    return Job("sums", plan, folder / "job.db", folder / "tally.json", 8, gateways=3, **options)


def batch(question, answered=None, silent=0):
    """Return the batch of vehicles whose values follow from the question: every time the same."""
    plan, n = Plan.from_json(question.plan), question.n if answered is None else answered
    source = fedldp.source(int.from_bytes(question.digest[:6]))
    values = Matrix(source.uniform((n, plan.schema.dimensions)) - 0.8)
    report = plan.report_batches([values], source)
    return Answer.of(
        question, packing.parse(report.records, n, plan.bits).split(), silent
    ).to_bytes()


def honest(question, _):
    yield packed(batch(question))


def mute(*_):
    yield from ()


class AsSimulated:
    """A gateway whose vehicles answer what those of a simulation answer, in the same order."""

    def __init__(self, data, seed):
        self.data, self.done = data, 0
        self.source = fedldp.source(seed).spawn(1)[0]
        key = int(self.source.words(1)[0])
        self.order = np.argsort(fedldp.source(key).words(len(data)), kind="stable")

    def __call__(self, question, _):
        vehicles = self.order[self.done : self.done + question.n]
        self.done += question.n
        asked = computations.read(question.model)
        names = [attribute.name for attribute in asked.attributes]
        values = asked.answers(self.data.matrix(vehicles, names), None)
        records = Plan.from_json(question.plan).records(values, self.source).split()
        yield packed(Answer.of(question, records).to_bytes())


class Network(Grid):
    """Gateways, each a function from a question and the number of times it came to contents."""

    def __init__(self, *gateways):
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # as Flower does
        self.gateways = {10 + i: each for i, each in enumerate(gateways)}
        self.now, self.sent, self.replies, self.calls = 0.0, [], {}, 0
        self.service, self.busy, self.ready = {}, {}, {}  # seconds for a message; until when
        self.absent, self.after_sleep, self.fails = set(), lambda: None, lambda _: None
        self.before = {}  # the node before each node that a gateway has because of a new key
        self.revoked = set()

    @property
    def run(self):
        raise NotImplementedError

    def set_run(self, run):
        raise NotImplementedError

    def create_message(self, *arguments):
        raise NotImplementedError

    def send_and_receive(self, *arguments, **options):
        raise NotImplementedError

    def sleep(self, seconds):
        self.now += seconds
        assert self.now < 5000, "it waits for ever"
        self.after_sleep()

    def strategy(self, job):
        clock, before, revoked = lambda: self.now, lambda: self.before, lambda: self.revoked
        return LDPFedSGD(
            job, before=before, revoked=revoked, poll=2.5, clock=clock, sleep=self.sleep
        )

    def start(self, job, **options):
        return self.strategy(job).start(self, **options)

    def _called(self):
        self.calls += 1
        self.fails(self.calls)

    def get_node_ids(self):
        self._called()
        return [node for node in self.gateways if node not in self.absent]

    def push_messages(self, messages):
        self._called()
        ids = []
        for message in messages:
            assert message.metadata.message_type == "train"
            node, data = message.metadata.dst_node_id, inflated(unpacked(message.content))
            question = Question.from_bytes(data)
            assert question.gateway == successors.first(str(node), self.before)
            earlier = sum(each == (node, data) for each in self.sent)
            self.sent.append((node, data))
            key = f"message {len(self.sent)}"
            message.metadata.__dict__["_message_id"] = key
            if node not in self.absent:
                contents = list(self.gateways[node](question, earlier))
                self.ready[key] = self.served(node)
                self.replies[key] = [_reply(content, message) for content in contents]
            ids.append(key)
        return ids

    def served(self, node):
        """Return when a gateway is done with a message: it serves one after the other."""
        self.busy[node] = max(self.busy.get(node, 0.0), self.now) + self.service.get(node, 0.0)
        return self.busy[node]

    def pull_messages(self, message_ids):
        self._called()
        assert all(isinstance(key, str) for key in message_ids), "Flower takes nothing else"
        ready = [key for key in message_ids if self.ready.get(key, 0.0) <= self.now]
        return [each for key in ready for each in self.replies.pop(key, ())]

    def questions(self, number):
        """Return who was asked what in a round, as often as it was sent."""
        found = [(node, Question.from_bytes(data)) for node, data in self.sent]
        return [(node, question) for node, question in found if question.round == number]


def _reply(content, message):
    if isinstance(content, Message):
        return content
    return Message(content, reply_to=message)


def final(job):
    """Return the state of a job's training, after a replay has given the same."""
    with contextlib.closing(sqlite3.connect(job.checkpoint)) as file:
        [(text,)] = file.execute("SELECT state FROM job").fetchall()
    assert checkpoint.replay(job.checkpoint, job.stages).to_json() == text
    return Learned.from_json(text).state


def result(job):
    return Model.from_json(job.result.read_text())
