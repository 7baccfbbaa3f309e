"""SciPy is for people: agents work without it, and all else says how to install it."""

import subprocess
import sys
from pathlib import Path

import pytest

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
import fedldp
from fedldp.learn import computations
from fedldp.learn.model import Model

cases = json.load(open(sys.argv[1]))["cases"]
ledger = fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1000)
for case in cases:
    plan = fedldp.Plan.from_json(case["plan"])
    rows = [answer["row"] for answer in case["answers"] if isinstance(answer["row"], dict)]
    answer = fedldp.Vehicle(ledger, case["name"]).answer(plan, rows[0], job="spring")
    report = plan.report(rows, fedldp.source())
    assert plan.count([answer.report, report.to_bytes()]).tally.reports == 1 + len(rows)
schema = fedldp.Schema.of(age=(0, 100), city=["Oslo", "Rome", "Lima"])
late = fedldp.Category("late", ["no", "yes"])
model = Model("logistic", schema, late, (0.5, 0.25, -1.0, 0.125)).to_json()
print(len(cases), computations.read(model).dimensions)
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


def printed(program):
    """Return what a program prints where SciPy is not installed."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + program, str(VECTORS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_agent_answers_every_kind_of_plan_without_scipy():
    cases, dimensions = map(int, printed(AGENT).split())
    assert cases >= 20
    assert dimensions == 4


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
