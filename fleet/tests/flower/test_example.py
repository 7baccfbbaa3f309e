"""The apps in examples: Flower's strict check, a simulation, and a deployment on loopback."""

import json
import os
import re
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
from flwr.serverapp.strategy import FedAvg
from ledgers import made
from superlink import QUIET, Deployment, program

from fedldp import Plan, Schema
from fedldp.budget.ledger import Ledger
from fedldp_fleet.flower import private

APP = Path(__file__).parents[3] / "examples" / "flower"
ROUNDS = 3


def run(deployment, nodes, **config):
    """Run the app; return the accuracy after each round and what was logged."""
    result = deployment.folder / "result.json"
    config = {"nodes": nodes, "result": f'"{result}"'} | config
    said = deployment.run(APP, "-c", " ".join(f"{name}={value}" for name, value in config.items()))
    found = json.loads(result.read_text())
    return [found[str(number)]["accuracy"] for number in range(len(found))], said


def reports(said):
    return [int(each) for each in re.findall(r"MetricRecord: \{.*'reports': (\d+)", said)]


def test_the_plan_is_what_the_readme_says():
    plan = Plan.from_json((APP / "iris" / "plan.json").read_text("utf-8"))
    assert plan == Plan(Schema.vector(15, length=1.0), epsilon=2.0, strategy="directions")
    assert f"sends {plan.bits} bits" in (APP / "pyproject.toml").read_text("utf-8")
    assert private(FedAvg, plan)


@pytest.mark.parametrize("app", ["flower", "flower-fleet"])
def test_the_apps_pass_the_strict_check_of_flower(tmp_path, app):
    """The one of `fab-format-version = 1`, as `flwr build` makes it."""
    folder = tmp_path / app
    shutil.copytree(APP.parent / app, folder, ignore=shutil.ignore_patterns("__pycache__"))
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["tool"]["flwr"]["app"]["fab-format-version"] == 1
    options = {"env": os.environ | QUIET, "cwd": tmp_path, "capture_output": True, "text": True}
    done = subprocess.run(program("flwr", "build", "--app", str(folder)), **options)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = tmp_path.glob("*.fab")
    assert "LICENSE" in zipfile.ZipFile(built).namelist()


@pytest.mark.slow
def test_a_deployment_on_loopback_learns_from_reports_alone(tmp_path):
    with Deployment(tmp_path, nodes=2) as deployment:
        accuracies, said = run(deployment, nodes=2)
        again, repeated = run(deployment, nodes=2)
    assert reports(said) == reports(repeated) == [2] * ROUNDS
    assert len(accuracies) == 1 + ROUNDS
    assert again == accuracies  # the same questions, which cost nothing
    for node in range(2):
        with Ledger(tmp_path / f"ledger {node}.db", cap=6.0) as ledger:
            assert ledger.totals() == {str(node): 2 * ROUNDS}
    assert "epsilon = 2: the noise of a round will be about 3.5 times" in said
    nodes = (tmp_path / "flower-supernode.log").read_text()
    assert nodes.count("has answered this question before") == 2 * ROUNDS


@pytest.mark.simulation
def test_a_simulation_learns(tmp_path, monkeypatch):
    """In 12 runs with 100 nodes the accuracy was 0.78 to 0.92; that of the first model is 0.28."""
    monkeypatch.setenv("IRIS_LEDGER", str(made(tmp_path / "ledger.db")))
    with Deployment(tmp_path, nodes=100, simulation=True) as deployment:
        accuracies, said = run(deployment, nodes=100)
    assert reports(said) == [100] * ROUNDS
    assert accuracies[-1] > 0.6
    with Ledger(tmp_path / "ledger.db", cap=6.0) as ledger:
        assert ledger.totals() == {str(node): 2 * ROUNDS for node in range(100)}
