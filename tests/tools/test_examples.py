"""The scripts in examples/ run as they are, and what they show is right."""

import csv
import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedldp
from fedldp.budget.ledger import Ledger

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(script, folder, *arguments):
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{script}.py", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []  # nothing is left behind
    return done


@pytest.mark.parametrize(
    ("script", "arguments"),
    [("statistics_from_csv", []), ("scikit_learn_pipeline", ["20000"])],
)
def test_scripts_run_as_they_are(script, arguments, tmp_path):
    done = run(script, tmp_path, *arguments)
    assert "bits each" in done.stdout
    assert done.stderr == ""


def test_statistics_are_those_of_the_file(tmp_path, capsys):
    example = load("statistics_from_csv")
    path = tmp_path / "flights.csv"
    example.write_flights(path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 50_000
    estimate = example.main(path, fedldp.source(1))
    shown = capsys.readouterr().out
    assert "clipped to [-30, 120]" in shown
    # Within 4 standard errors; 5 numbers, so that 1 seed in 3,000 would raise a false alarm.
    for name in ("dep_delay", "distance"):
        attribute = example.SCHEMA[name]
        clipped = np.clip([float(row[name]) for row in rows], attribute.low, attribute.high)
        assert abs(estimate[name].mean - clipped.mean()) < 4 * estimate[name].stderr
        assert f"{name}: mean {estimate[name].mean:.1f}" in shown
    origin = estimate["origin"]
    labels = np.array([row["origin"] for row in rows])
    for number, label in enumerate(example.SCHEMA["origin"].categories):
        off = origin.frequencies[number] - np.mean(labels == label)
        assert abs(off) < 4 * origin.stderr[number]
        assert f"origin {label}: {origin.frequencies[number]:.1%}" in shown


def test_the_pipeline_learns_without_looking_at_the_data(capsys):
    example = load("scikit_learn_pipeline")
    right = example.main(rows=60_000, seed=1)
    shown = capsys.readouterr().out
    assert "54000 vehicles, epsilon 4, 30 bits each" in shown
    assert f"{right:.1%} right" in shown.splitlines()[-1]
    always = float(shown.splitlines()[1].split()[-2].rstrip("%")) / 100
    assert right > always + 0.05


@pytest.mark.filterwarnings("ignore::fedldp.errors.DataWarning")  # long delays are clipped
def test_features_do_not_depend_on_the_rows():
    """A vehicle's features do not depend on the other vehicles of the fleet."""
    from fedldp import datasets

    example = load("scikit_learn_pipeline")
    flights = datasets.load("flights", rows=4000)
    x, late = flights.frame(example.NAMES), flights.frame(["late"])["late"]
    fleets = [slice(None), x.origin == "EWR"]  # all, and those of one origin
    features = []
    for rows in fleets:
        model = example.pipeline(flights.schema, 4.0, seed=1).fit(x[rows], late[rows])
        schema = model[-1].features_.schema
        matrix = schema.rows(model[0].transform(x)).matrix()
        features.append(replace(model[-1].features_, scaling=None).encode(matrix).dense())
    np.testing.assert_array_equal(*features)


def test_the_flower_app_passes_its_dry_run(tmp_path):
    """See fleet/tests/flower/test_example.py for a simulation and a deployment."""
    ledger = tmp_path / "ledger.db"
    Ledger.create(ledger, cap=6).close()
    for environment in ({}, {"IRIS_LEDGER": str(ledger)}):
        done = subprocess.run(
            [sys.executable, EXAMPLES / "flower" / "dry_run.py"],
            capture_output=True,
            text=True,
            env=os.environ | {"TMPDIR": str(tmp_path)} | environment,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("LDPMod: the update has a length of") == 20
        assert "The plan shortens updates to 1. 28 bits each." in done.stdout
        assert "15 weights, 100 vehicles in a round, epsilon = 2: the noise" in done.stdout
    with Ledger(ledger, cap=6) as book:
        assert book.totals() == {}
