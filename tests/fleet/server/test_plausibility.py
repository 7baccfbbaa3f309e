"""The server notices implausible reports: of each gateway, in each round and over all rounds."""

import logging

import numpy as np
import pytest

import fedldp
from fedldp import Number, Plan, Schema
from fedldp._internal import packing
from fedldp.fleet.job import Job
from fedldp.fleet.protocol import Answer
from fedldp.fleet.server import checkpoint, names
from fedldp.fleet.server.process import ServerConfig, _log_end
from fedldp.fleet.server.rounds import Rounds
from fedldp.fleet.stages import Collection
from fedldp.learn.model import Model
from fedldp.learn.optimizer import Adam, Recipe

D, REPORTS, ROUNDS = 20, 400, 5
PLAN = Plan(Schema.vector(D, 1.0), 2.0, mechanism="three-outputs", k=1)
MODEL = Model("squared", Schema.vector(D - 1, 1.0), Number("y", -1, 1), (0.0,) * D)
GATEWAYS = "7", "8", "9"


def records(answered, liars, seed):
    """Return records of which the last ones are all the same: the largest value of x[3]."""
    found = PLAN.report(np.zeros((answered, D)), fedldp.source(seed))
    rows = packing.parse(found.records, answered, PLAN.bits).split()
    for row in rows:  # a record that a vehicle at 1 may send
        tally = PLAN.parse(Answer.of(question(), [row]).report(PLAN.fingerprint).to_bytes())
        if tally.counts[0][3 * 3 + 2]:
            return [*rows[: answered - liars], *[row] * liars]
    raise AssertionError("no vehicle has answered x[3]")


def question():
    return Job("j", PLAN, "job.db", "tally.json", REPORTS).question("7", 1)


def run(job, liars, rounds=1):
    """Run a job in which the vehicles of gateway 8 are liars, `reports` of them in each round."""
    running = Rounds(job)
    for number in range(rounds):
        running.ask(GATEWAYS)
        for gateway, asked in running.questions().items():
            count = liars if gateway == "8" else 0
            rows = records(REPORTS, count, seed=100 * number + int(gateway))
            running.receive(asked, Answer.of(asked, rows).to_bytes())
        running.step()
    running.finish()
    running.close()


@pytest.mark.parametrize(("liars", "noticed"), [(0, False), (60, True)])
def test_a_statistic(tmp_path, caplog, liars, noticed):
    job = Job("statistic", PLAN, tmp_path / "job.db", tmp_path / "tally.json", REPORTS)
    with caplog.at_level(logging.WARNING):
        run(job, liars)
    found = checkpoint.warnings(job.checkpoint, job.stages)
    assert [each.getMessage() for each in caplog.records] == [
        f"statistic, all rounds. {text}" for text in found
    ]
    assert bool(found) == noticed
    if noticed:
        assert {text.split(":")[0] for text in found} <= {"gateway 8", "All gateways"}
        assert any(
            text.startswith("gateway 8: Implausible reports: x[3] has ")
            and "answers, and 20 are expected. Honest vehicles cause this" in text
            for text in found
        )
        with pytest.warns(fedldp.errors.ImplausibleWarning):
            PLAN.load_tally(job.result).estimate()


def training(folder, rounds, plan=PLAN, **options):
    files, recipe = (folder / "job.db", folder / "model.json"), Recipe(Adam(0.1))
    return Job("training", plan, *files, REPORTS, MODEL, recipe, rounds=rounds, **options)


def test_a_training_adds_up_what_no_round_shows(tmp_path, caplog):
    """Fifteen liars among 400 are hidden in each round; over all rounds they are not."""
    job = training(tmp_path, ROUNDS)
    with caplog.at_level(logging.WARNING):
        run(job, 15, ROUNDS)
    texts = [each.getMessage() for each in caplog.records]
    assert all("gateway 8" in text or "All gateways" in text for text in texts)
    assert not any("training, round" in text and "answers, and" in text for text in texts)
    assert any(text.startswith("training, all rounds. gateway 8: Implausible") for text in texts)


def test_a_round_of_a_training(tmp_path, caplog):
    job = training(tmp_path, 2)
    with caplog.at_level(logging.WARNING):
        run(job, 60, 2)
    texts = [each.getMessage() for each in caplog.records]
    assert any(text.startswith("training, round 1. gateway 8: Implausible") for text in texts)


def test_a_training_with_two_levels(tmp_path):
    """The reports of each level are checked by its own plan."""
    other = Plan(PLAN.schema, 4.0, mechanism="three-outputs", k=1)
    job = training(tmp_path, 2, other, levels=(PLAN,))
    running = Rounds(job)
    for number, plan in ((1, other), (2, PLAN)):
        running.ask(["7"])
        [asked] = running.questions().values()
        found = plan.report(np.zeros((REPORTS, D)), fedldp.source(number))
        rows = packing.parse(found.records, REPORTS, plan.bits).split()
        if plan is PLAN:
            rows = records(REPORTS, 60, seed=2)
        running.receive(asked, Answer.of(asked, rows).to_bytes())
        running.step()
    running.finish()
    running.close()
    found = checkpoint.warnings(job.checkpoint, job.stages)
    assert found
    assert all(text.startswith("gateway 7, epsilon 2: Implausible reports: ") for text in found)


def test_the_terminal_shows_it(tmp_path, monkeypatch, caplog):
    job = Job("statistic", PLAN, tmp_path / "job.db", tmp_path / "tally.json", REPORTS)
    run(job, 40)
    monkeypatch.setattr("fedldp.fleet.server.process.ending", lambda *_: "The job is over.")
    caplog.set_level(logging.INFO)
    caplog.clear()
    server = ServerConfig(*[tmp_path] * 2, 1, 2, *[tmp_path] * 6)
    names.keep(make(server.state), {"8": "gateway-8"})
    _log_end(checkpoint.status(job.checkpoint), server, job)
    said = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert said[0] == ("INFO", "The job is over.")
    named = names.lookup(server.state)
    assert said[1:] == [
        ("WARNING", text) for text in checkpoint.warnings(job.checkpoint, job.stages, named)
    ]
    assert any(text.startswith("gateway-8: Implausible") for _, text in said)


def make(folder):
    folder.mkdir()
    return folder


def test_nothing_has_begun(tmp_path):
    assert checkpoint.warnings(tmp_path / "job.db", [Collection(PLAN, 1)]) == []
