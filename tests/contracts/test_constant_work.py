"""What releases does equal work for every value; a simulation, which holds all data, need not.

A coder does equal work if its source is secret. So whatever draws reports that may leave a vehicle
passes a secret source to coders, or runs `vehicle.py`, and simulations pass one for study.
"""

import ast
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import fedldp
from fedldp.budget.calendars import Calendar
from fedldp.cli.collect import collect_command
from fedldp.coders import DirectionsCoder, codebook
from fedldp.coders.codebook import NumpyCodebook
from fedldp.plan.parts import Matrix
from fedldp.randomness import study_source

ROOT = Path(__file__).parents[2]
SCHEMA = fedldp.Schema.vector(4, length=1.0)
ROWS = np.full((60, 4), 0.25)
MAY_SIMULATE = {
    "src/fedldp/randomness.py",
    "src/fedldp/plan/plan.py",
    "src/fedldp/learn/training.py",
    "src/fedldp/budget/calendars.py",
    "src/fedldp/mechanisms/base.py",
}


@pytest.fixture
def secrets(monkeypatch):
    """Return a list of whether each source was secret that a vector was encoded with."""
    seen, encode = [], DirectionsCoder.encode

    def encoded(self, x, source):
        seen.append(source.secret)
        return encode(self, x, source)

    monkeypatch.setattr(DirectionsCoder, "encode", encoded)
    return seen


@pytest.fixture
def plan():
    return fedldp.Plan(SCHEMA, epsilon=2.0, strategy="directions")


def simulated(plan, **_):
    plan.simulate(ROWS, fedldp.source())


def asked_again(plan, **_):
    Calendar(plan, periods=2, answers=1).simulate([ROWS] * 2, fedldp.source())


def fitted(**_):
    X, y = np.tile(ROWS, (10, 1)), np.arange(600) % 2
    fedldp.LDPLogisticRegression(epsilon=2.0, bounds=(0, 1), strategy="directions").fit(X, y)


def collected(folder, **_):
    path, schema = folder / "rows.csv", folder / "fleet.toml"
    np.savetxt(path, ROWS, delimiter=",", header="x[0],x[1],x[2],x[3]", comments="")
    schema.write_text("x = {size = 4, length = 1.0}\n")
    options = ["--schema", str(schema), "--epsilon", "2", "--strategy", "directions"]
    answer = CliRunner().invoke(collect_command, [str(path), *options])
    assert answer.exit_code == 0, answer.output


SIMULATIONS = [simulated, asked_again, fitted, collected]

RELEASES = {
    "report": lambda plan: plan.report(ROWS, fedldp.source()),
    "report_batches": lambda plan: plan.report_batches(iter([Matrix(ROWS)]), fedldp.source()),
    "records": lambda plan: plan.records(Matrix(ROWS), fedldp.source()),
}


@pytest.mark.parametrize("simulation", SIMULATIONS)
def test_simulations_need_not_do_equal_work(simulation, plan, secrets, tmp_path):
    simulation(plan=plan, folder=tmp_path)
    assert secrets
    assert not any(secrets)


@pytest.mark.parametrize("name", RELEASES)
def test_what_releases_does_equal_work(name, plan, secrets):
    RELEASES[name](plan)
    assert secrets
    assert all(secrets)


@pytest.mark.parametrize("name", RELEASES)
def test_what_releases_ranks_every_vector_without_leaving_out_zeros(name, plan, monkeypatch):
    ranked, products = [], NumpyCodebook._products

    def remembered(self, vectors, seeds, product):
        ranked.append((len(vectors), set(vectors.counts.tolist()), product))
        return products(self, vectors, seeds, product)

    monkeypatch.setattr(NumpyCodebook, "_products", remembered)
    RELEASES[name](plan)
    assert ranked == [(len(ROWS), {4}, codebook._constant_product)]
    ranked.clear()
    simulated(plan)
    [(count, _, product)] = ranked
    assert count < len(ROWS)
    assert product is np.matmul


def test_a_source_that_is_not_secret_stays_as_it_is():
    known, secret = fedldp.source(5), fedldp.source()
    assert study_source(known) is known
    assert (study_source(secret).secret, secret.secret) == (False, True)


def test_only_simulations_draw_from_sources_for_study():
    """What draws reports for release may not: its modules do not know the function."""
    users = {
        str(path.relative_to(ROOT))
        for folder in ("src", "fleet/fedldp_fleet", "vehicle")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Name | ast.Attribute)
        and getattr(node, "id", getattr(node, "attr", "")) == "study_source"
    }
    assert users <= MAY_SIMULATE
    for place in ("report", "report_batches", "records"):
        [function] = [
            node
            for node in ast.walk(ast.parse((ROOT / "src/fedldp/plan/plan.py").read_text("utf-8")))
            if isinstance(node, ast.FunctionDef) and node.name == place
        ]
        assert "study_source" not in ast.unparse(function), place
