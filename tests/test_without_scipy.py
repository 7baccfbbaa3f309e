"""SciPy is for people: agents work without it, and all else says how to install it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedldp
from fedldp.learn.layers import Activation, Dense
from fedldp.learn.model import Model
from fedldp.learn.networks import Network
from fedldp.learn.objectives import objective
from fedldp.learn.quantiles import QuantileSearch
from fedldp.learn.settings import Settings

VECTORS = Path(__file__).parent.parent / "docs/vectors.json"

WITHOUT = """
import importlib.abc, sys

class NoSciPy(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "scipy":
            raise ModuleNotFoundError(f"No module named {name!r}", name="scipy")

sys.meta_path.insert(0, NoSciPy())
"""

AGENT = """
import json, tempfile
import fedldp, numpy as np
from fedldp.learn import computations
from fedldp.plan.plan import Plan

cases = json.load(open(sys.argv[1]))["cases"]
ledger = fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1000)
for case in cases:
    plan = fedldp.Plan.from_json(case["plan"])
    rows = [answer["row"] for answer in case["answers"] if isinstance(answer["row"], dict)]
    answer = fedldp.Vehicle(ledger, case["name"]).answer(plan, rows[0], job="spring")
    report = plan.report(rows, fedldp.source())
    assert plan.count([answer.report, report.to_bytes()]).tally.reports == 1 + len(rows)
for question, plan in json.loads(sys.argv[2]):
    computation = computations.read(question)
    row = [attribute.inputs.missing for attribute in computation.attributes]
    values = computation.answers(np.array([row, row]), None)
    assert len(Plan.from_json(plan).records(values, fedldp.source())) == 2
print(len(cases))
"""

SPEED = """
import fedldp
schema = fedldp.Schema.of(speed=(0, 50), model=["Alpha", "Beta"])
plan = fedldp.Plan(schema, 1, fedldp.Sample(mechanism="hm-tp"))
tally = plan.parse(plan.report([{"speed": 30, "model": "Beta"}], fedldp.source()).to_bytes())
try:
    print(EXPRESSION)
except fedldp.errors.MissingExtra as error:
    print(error)
"""


def questions():
    """Return what trainings and a quantile ask, as a model or a survey, each with its plan."""
    schema = fedldp.Schema.of(age=(0, 100), city=["Oslo", "Rome", "Lima"])
    late, settings = fedldp.Category("late", ["no", "yes"]), Settings(4.0)
    network = Network((4,), (Dense(2), Activation("tanh")), objective("logistic"))
    for layers in (None, network):
        weights = np.zeros(5 if layers is None else layers.dimensions)
        model = Model("logistic", schema, late, weights, layers=layers, reference="none")
        yield model.to_json(), settings.plan(len(weights)).to_json()
    search = QuantileSearch(fedldp.Number("speed", 0, 50), 0.5, 4.0, 1000)
    yield search.computation([]).to_json(), search.plan.to_json()


def printed(program):
    """Return what a program prints where SciPy is not installed."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + program, str(VECTORS), json.dumps([*questions()])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_agent_answers_every_kind_of_plan_without_scipy():
    assert int(printed(AGENT)) >= 20


@pytest.mark.parametrize(
    "expression",
    [
        "tally.estimate()['speed'].interval",
        "tally.estimate()['model'].interval",
        "tally.plausibility()",
        "fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0625)",
        "fedldp.mechanism('optimal', 1.0625).channel()",
        "fedldp.best_channel(1.0625, bits=2)",
        "fedldp.shuffled_epsilon(1.0, 10_000, 1e-6)",
        "fedldp.audit.attack(fedldp.mechanism('hm-tp', 1.0).perturb, [(0, 1)], fedldp.source(1))",
    ],
)
def test_what_people_do_names_the_package_that_is_missing(expression):
    told = printed(SPEED.replace("EXPRESSION", expression))
    assert told == "scipy is not installed. Install it with: pip install 'scipy>=1.13'\n"
