"""The demo: honest numbers, a table that fits, and a picture of them."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.image import imread
from sklearn.linear_model import LogisticRegression

import fedldp
from fedldp import _plots as plots
from fedldp import datasets
from fedldp.cli.demo import demo_command
from fedldp.cli.program import program
from fedldp.cli.runs import TASKS, base_rate, holdout_errors, linear
from fedldp.learn.features import written_out
from fedldp.learn.settings import Settings


def run(*arguments):
    texts = [str(argument) for argument in arguments]
    result = CliRunner().invoke(demo_command, texts, env={"COLUMNS": "80"})
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


SIZES = [10_000, 30_000, 100_000, 294_611]


def test_all_flights_in_fleets_of_several_sizes(monkeypatch):
    """Without the trainings, which the next tests and those in learn/test_flights.py run."""
    runs = []

    def run_nothing(_bars, rows, sizes, replicas, processes):
        assert processes == os.cpu_count()
        runs.append((rows, sizes, replicas))
        return [
            {"epsilon": epsilon, "vehicles": n, "error": 0.1, "spread": None}
            for epsilon in (1.0, 2.0, 4.0, None)
            for n in sizes
        ]

    monkeypatch.setattr("fedldp.cli.demo._runs", run_nothing)
    document = json.loads(run("--json"))
    assert (document["flights"], document["holdout"], document["replicas"]) == (327_346, 32_735, 10)
    assert runs == [(None, SIZES, 10)]
    assert document["converged"] < document["base_rate"] / 2


def test_several_processes_find_the_same(monkeypatch):
    found = []
    for least in (1, 100_000):
        monkeypatch.setattr("fedldp.cli.demo._WORTH_PROCESSES", least)
        monkeypatch.setattr("os.cpu_count", lambda: 2)
        runs = json.loads(run("--rows", 500, "--replicas", 2, "--json"))["runs"]
        found.append([each | {"seconds": 0} for each in runs])
    assert found[0] == found[1]


@pytest.mark.slow
def test_all_flights():
    """The seed is fixed; each two errors are 3 standard deviations apart or more: 1 in 10^3."""
    document = json.loads(run("--json", "--replicas", 2))
    assert (document["flights"], document["holdout"]) == (327_346, 32_735)
    found = {(each["epsilon"], each["vehicles"]): each["error"] for each in document["runs"]}
    assert list(found) == [(epsilon, n) for epsilon in (1.0, 2.0, 4.0, None) for n in SIZES]
    errors = [document["base_rate"], *(found[epsilon, SIZES[-1]] for epsilon in (1, 2, 4, None))]
    assert errors == sorted(errors, reverse=True)
    for epsilon in (1, 2, 4):
        assert found[epsilon, SIZES[-1]] < found[epsilon, SIZES[0]]


def test_few_flights():
    document = json.loads(run("--rows", 12_000, "--replicas", 2, "--json", "-o", "a/b"))
    assert Path("a/b/flights.png").exists()
    flights = replace(datasets.load("flights", rows=12_000), reference="none")
    fleet, public = flights.split(0.1)
    task, test = (linear(part, TASKS["logistic"]) for part in (fleet, public))
    assert [run["vehicles"] for run in document["runs"]] == [10_000, 10_800] * 4
    assert document["base_rate"] == base_rate(public, TASKS["logistic"])
    other = LogisticRegression(C=1.0, fit_intercept=False, solver="newton-cholesky")
    features, targets = task.examples.read(slice(None))
    other.fit(written_out(features), targets)  # both may differ in single flights
    assert document["converged"] == pytest.approx(test.error(other.coef_)[0], abs=2 / len(public))
    for epsilon, replicas, number in ((4.0, 2, 5), (None, 1, 7)):
        settings, errors = Settings(4.0) if epsilon else Settings(None), []
        for replica in range(replicas):
            rng = fedldp.source(2013 + replica)
            training = settings.training(task, 8.0, rng, shuffle=False)
            for _ in training:
                pass
            errors += holdout_errors(test, training).tolist()
        told = document["runs"][number]
        assert told["error"] == np.mean(errors)
        assert told["spread"] == (np.std(errors, ddof=1) if epsilon else None)
        assert told["epsilon"] == epsilon
        assert told["bits_per_vehicle"] == (settings.plan(36).bits if epsilon else 32 * 36)


def test_what_is_shown():
    output = run("--rows", 500, "--replicas", 2)
    shown, _, _ = output.partition("To try next:")  # followed by paths, which may be long
    assert max(map(len, shown.splitlines())) <= 80
    for text in ("450 flights answer, 50 are the test", "epsilon 2", "the same steps", "base rate",
                 "all data, to convergence", "bits per vehicle", "seconds", "of 2 trainings",
                 "Drew demo/flights.png",
                 "fedldp train --data flights"):  # fmt: skip
        assert text in output
    picture = imread("demo/flights.png")
    assert min(picture.shape[:2]) > 500
    assert np.ptp(picture) > 0.5


def test_the_picture():
    runs = [
        {"epsilon": epsilon, "vehicles": n, "error": error, "spread": spread}
        for epsilon, spread in ((1.0, 0.02), (4.0, 0.01), (None, None))
        for n, error in ((1000, 0.3), (5000, 0.2))
    ]
    lines = {"base rate": 0.25, "best": 0.05}
    figure = plots.training_errors(runs, lines, "bare", r"costs $\1$")
    left, right = figure.axes
    assert figure.get_suptitle() == r"costs $\1$"
    assert left.get_title() == "5,000 vehicles"
    assert right.get_xscale() == "log"
    labels = right.get_legend_handles_labels()[1]
    assert sorted(labels) == ["bare", "base rate", "best", "ε = 1", "ε = 4"]
    one = right.containers[0]
    assert one.lines[0].get_xdata().tolist() == [1000, 5000]
    assert one.lines[0].get_ydata().tolist() == pytest.approx([30, 20])
    bars = [segment[:, 1].tolist() for segment in one.lines[2][0].get_segments()]
    assert bars == [pytest.approx([28, 32]), pytest.approx([18, 22])]
    assert {text.get_text() for text in left.texts} == {"20.0%"}
    for level in (20.0, 25.0, 5.0):  # bare, and the lines
        assert [level, level] in [list(line.get_ydata()) for line in left.lines]
    figure.savefig("picture.png")


def test_the_commands_to_try_next_can_be_copied_into_a_shell_without_fedldp_on_its_path():
    script = Path(sys.executable).parent / "fedldp"
    done = subprocess.run(
        [script, "demo", "--rows", "500", "--replicas", "2"],
        env={"PATH": os.defpath, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    _, _, hints = done.stdout.partition("To try next:\n")
    words = [shlex.split(line)[0] for line in hints.splitlines()]
    assert words
    assert all(Path(word).samefile(script) for word in words)


def test_the_program_is_called_by_the_shortest_text_that_works(monkeypatch):
    folder = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.defpath}")
    assert program() == "fedldp"
    monkeypatch.setenv("PATH", os.defpath)
    assert program() == str(folder / "fedldp")
    monkeypatch.chdir(folder.parent)
    assert program() == "bin/fedldp"
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert program() == "/nowhere/python -m fedldp"
