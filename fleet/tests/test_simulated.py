"""From the same reports, the model of a fleet is that of a simulation, bit for bit.

The same vehicles, the same random words, and every rule is in one place.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from engine_cases import SCHEDULE, START, new_engine, prepared

import fedldp
from fedldp import Plan, datasets
from fedldp.learn import Layered, Linear, Model, Network, Settings, computations
from fedldp_fleet import engine, jobs
from fedldp_fleet.agent.loop import report_of
from fedldp_fleet.library import packing
from fedldp_fleet.messages import Announcement, Answer, Call
from fedldp_fleet.questions import Question
from fedldp_fleet.server import work
from fedldp_fleet.stages import Learned
from fedldp_fleet.store.base import DONE

VEHICLES = 1000
PAPER = {"group": 100, "learning_rate": 0.2, "tol": 1e-12}
NETWORK = partial(Network.perceptron, hidden=[3])


def fixed(features, goal):
    """Return a network of which only the last layer is trained."""
    network = NETWORK(features, goal)
    hidden = 3 * features
    return replace(network, fixed=tuple(network.start(7)[:hidden].tolist()))


CASES = {  # objective, layers, settings
    **{
        f"the paper with {name}": ("logistic", None, Settings.paper(4.0, name, **PAPER))
        for name in ("duchi", "hm-tp")
    },
    "a survey of scales": ("logistic", None, Settings(4.0, survey="scale", group=100)),
    "a survey of correlations": ("logistic", None, Settings(4.0, survey="whiten", group=100)),
    "several labels": ("softmax", None, Settings(4.0, survey=None, group=100)),
    "a network": ("logistic", NETWORK, Settings(4.0, survey=None, group=100)),
    "fixed layers": ("logistic", fixed, Settings(4.0, survey=None, group=100)),
    "a survey of hidden numbers": ("logistic", fixed, Settings(4.0, survey="scale", group=100)),
    "of their correlations": ("softmax", fixed, Settings(2.0, survey="whiten", group=100)),
    "of them with Adam": (
        "logistic",
        fixed,
        Settings(4.0, survey="scale", optimizer="adam", group=100),
    ),
    "a regression": ("squared", None, Settings(4.0, survey="scale", group=86)),
}


class AsSimulated:
    """Vehicles that answer what those of a simulation answer, in the same order."""

    def __init__(self, data, seed):
        self.data, self.done = data, 0
        self.source = fedldp.source(seed).spawn(1)[0]
        key = int(self.source.words(1)[0])
        self.order = np.argsort(fedldp.source(key).words(len(data)), kind="stable")

    def answer(self, question, wanted):
        some = self.order[self.done : self.done + wanted]
        self.done += wanted
        asked = computations.read(question.model)
        names = [attribute.name for attribute in asked.attributes]
        values = asked.answers(self.data.matrix(some, names), None)
        plan = Plan.from_json(question.plan)
        records = sorted(plan.records(values, self.source).split())
        packed = packing.join(records, plan.bits).to_bytes()
        report = report_of(plan.fingerprint, len(records), packed)
        identifier = question.digest[:16]
        return Answer(
            question.job, question.round, question.digest, identifier, wanted, report, plan.bits
        )


def run(store, job, vehicles):
    """Run a job with one agent; return the job as it has ended."""
    machine = prepared(store, job, agents=1, vehicles=VEHICLES, machine=new_engine())
    for _ in range(jobs.rounds_of(job)):
        with store.transaction() as inside:
            offers = machine.call(inside, "agent-0", Call({job.name: VEHICLES}), START)
            [offer] = offers.offers
            opened = inside.round(job.name, inside.job(job.name).round)
            assert machine.announce(inside, "agent-0", Announcement(job.name, opened.number), START)
            question = Question.from_bytes(inside.question(opened.digest))
            answer = vehicles.answer(question, offer.place.vehicles)
            [parsed] = machine.parse(inside, [answer])
            machine.deliver(inside, "agent-0", answer, parsed, START)
            machine.tick(inside, START)
    with store.reading() as inside:
        return inside.job(job.name)


@pytest.mark.parametrize("case", CASES)
def test_the_model_of_the_fleet_is_that_of_the_simulation(store, case):
    goal, layers, settings = CASES[case]
    flights = datasets.load("flights", rows=VEHICLES)
    flights = replace(flights, reference=settings.reference)
    examples, target = flights.examples(goal), flights.target(goal)
    network = (layers or Network.linear)(examples.dimensions, examples.objective)
    linear = layers is None
    task = Linear(examples.objective, examples) if linear else Layered(network, examples)
    simulated = settings.training(task, task.distance, fedldp.source(5))
    *_, last = simulated
    first = Model(
        goal,
        flights.features.schema,
        target,
        network.start(0) if not linear else (0.0,) * task.dimensions,
        settings.reference,
        layers=None if linear else network,
    )
    job = work.training("flights", first, settings, VEHICLES, SCHEDULE)
    assert last.reports == VEHICLES
    row = run(store, job, AsSimulated(flights, 5))
    learned, result = Learned.from_json(row.learned), Model.from_json(row.result)
    assert (row.state, row.reason) == (DONE, engine.ALL_ROUNDS)
    assert learned.to_json() == replace(learned, state=simulated.state).to_json()
    assert list(result.weights) == simulated.models[0].tolist()
    assert any(result.weights)
    if layers is fixed and settings.survey is not None:
        assert result.layers == network.scaled(simulated.scaling)
        [error] = task.scaled(simulated.scaling).error(simulated.models)
        assert result.checked_errors(flights.frame())[0].mean() == pytest.approx(error)
