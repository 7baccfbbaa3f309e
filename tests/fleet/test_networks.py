"""Networks on a fleet: written by the command, trained by real vaults, resumed, and replayed."""

import csv
import json
from dataclasses import replace
from functools import partial
from time import sleep

import numpy as np
import pytest
import signals
from click.testing import CliRunner
from fleet_parts import PATIENCE, Fleet, edit, running, until
from gateways import AsSimulated, Network, final, result
from signals import CONVOLUTION, GAIT, SCHEMA, SIGNAL

import fedldp
from fedldp import datasets
from fedldp.budget.ledger import Ledger
from fedldp.cli.app import fedldp as command
from fedldp.fleet import processes
from fedldp.fleet.flower.messages import packed
from fedldp.fleet.folder import SEED
from fedldp.fleet.job import Job
from fedldp.fleet.server import checkpoint
from fedldp.fleet.server.registrations import registered
from fedldp.fleet.server.rounds import ROUNDS
from fedldp.fleet.vault.process import VaultConfig
from fedldp.fleet.vault.vault import Vault
from fedldp.learn import Layered, Linear, Model, Settings, objective
from fedldp.learn.networks import Network as Layers


def told(*words):
    """Run a command, and return what it says."""
    found = CliRunner().invoke(command, list(map(str, words)))
    return found.output, found.exit_code if found.exception is None else found.exception


# What the command writes


@pytest.mark.parametrize(
    ("words", "goal", "layers", "weights"),
    [
        (["--task", "logistic"], "logistic", [], 36),
        (["--task", "multiclass"], "softmax", [], 72),
        (["--task", "mlp"], "logistic", ["dense", "activation"], 36 * 8 + 9),
        (
            ["--task", "mlp", "--hidden", 4, "--hidden", 3, "--activation", "relu"],
            "logistic",
            ["dense", "activation"] * 2,
            36 * 4 + 5 * 3 + 4,
        ),
    ],
)
def test_tasks_of_a_data_set(tmp_path, words, goal, layers, weights):
    said, status = told("fleet", "init", tmp_path / "fleet", "--rounds", 7, *words)
    assert (status, "in 7 rounds" in said) == (0, True)
    job = Job.load(tmp_path / "fleet" / "server" / "job.toml")
    assert job.model.objective == goal
    assert [each.kind for each in job.model.network.layers] == layers
    assert job.model.dimensions == weights
    assert list(job.model.weights) == job.model.network.start(SEED).tolist()
    assert any(job.model.weights) == bool(layers)  # a linear model begins with zeros
    assert (job.recipe.optimizer, job.recipe.rounds) == (
        ("adam", 7) if layers else ("noise-aware", None)
    )
    assert job.actual_survey.numbers == 4


def test_a_network_of_a_file(tmp_path):
    signals.init(tmp_path / "fleet", "--epsilon", 2)
    job = Job.load(tmp_path / "fleet" / "server" / "job.toml")
    assert job.model.network == CONVOLUTION
    assert (job.model.schema, job.model.target) == (SIGNAL, GAIT)
    assert (job.recipe.optimizer, job.rounds, job.reports) == ("adam", 2, 20)
    assert job.actual_survey is None  # the values of a signal are alike
    assert Model.from_json(job.question("7", 1).model) == job.model
    config = VaultConfig.load(tmp_path / "fleet" / "vault-1")
    (schema, matrix, names), quality = config.read()
    assert (schema, len(names)) == (SCHEMA, 40)
    np.testing.assert_allclose(matrix, signals.signals(40, 1), atol=1e-4)
    assert quality.clean


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--hidden", 8], "--hidden and --activation are for --task mlp"),
        (["--task", "svm", "--activation", "relu"], "--hidden and --activation are for --task mlp"),
        (["--task", "mlp", "--network", "NETWORK"], "--network is the whole model: leave out"),
        (["--network", "OTHER"], "the network must have 36 inputs"),
        (["--network", "BROKEN"], "broken.json: not a 'fedldp network 1'"),
        (["--task", "mlp", "--hidden", 60_000], "at most 65,536 weights"),
    ],
)
def test_networks_that_are_refused(tmp_path, words, said):
    other = Layers.perceptron(5, objective("logistic"), [3])
    files = {"NETWORK": CONVOLUTION.to_json(), "OTHER": other.to_json(), "BROKEN": "{}"}
    for name, text in files.items():
        (tmp_path / f"{name.lower()}.json").write_text(text)
    given = [tmp_path / f"{each.lower()}.json" if each in files else each for each in words]
    output, error = told("fleet", "init", tmp_path / "fleet", *given)
    text = f"{output} {error}"
    assert said.split("36")[0] in " ".join(text.split())
    assert not (tmp_path / "fleet").exists()


# From the first question to predictions, in one process


def answering(folder):
    """Return a gateway with the vault of a folder."""
    config = VaultConfig.load(folder)
    (schema, matrix, names), _ = config.read()
    ledger = Ledger(folder / "ledger.db", config.cap)
    vault = Vault(schema, matrix, names, ledger)

    def gateway(question, _):
        yield packed(vault.answer(question).to_bytes())

    return gateway, ledger


def test_from_a_folder_to_predictions(tmp_path):
    """At an epsilon where noise is small, the network learns; its file predicts probabilities."""
    folder = tmp_path / "fleet"
    signals.init(folder, "--epsilon", 16, vehicles=1000, rounds=50, gateways=1)
    edit(folder / "server" / "job.toml", resend=10.0, deadline=60.0)
    job = Job.load(folder / "server" / "job.toml")
    gateway, ledger = answering(folder / "vault-1")
    with ledger:
        Network(gateway).start(job)
        assert len(ledger.totals()) == len(ledger.history()) == 1000
    model = result(job)
    assert final(job).to_json()  # a replay of the reports gives the same
    test = signals.signals(500, 99)
    rows = {
        "x": test[:, :12],
        "y": test[:, 12:24],
        "gait": [GAIT.categories[int(i)] for i in test[:, -1]],
    }
    first, last = job.model.error(rows), model.error(rows)
    assert first > 0.5
    assert last < first - 0.15
    signals.write_rows(tmp_path / "new.csv", test)
    output, status = told(
        "predict", job.result, tmp_path / "new.csv", "--probabilities", "-o", tmp_path / "out.csv"
    )
    assert (status, f"is {last:.4g}" in output) == (0, True)
    with (tmp_path / "out.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    names = [f"probability of {each}" for each in GAIT.categories]
    found = np.array([[float(row[name]) for name in names] for row in table])
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    likely = [GAIT.categories[i] for i in found.argmax(axis=1)]
    assert [row["prediction"] for row in table] == likely == model.predict(rows).tolist()


TASKS = {
    "softmax": ("softmax", None),
    "perceptron": ("logistic", partial(Layers.perceptron, hidden=[3])),
    "several labels": ("softmax", partial(Layers.perceptron, hidden=[2], activation="relu")),
}


@pytest.mark.parametrize("name", TASKS)
def test_the_same_reports_give_the_model_of_the_simulation(tmp_path, name):
    """Exactly: the same vehicles, the same random words, and every rule is in one place."""
    goal, make = TASKS[name]
    flights = replace(datasets.load("flights", rows=600), reference="none")
    examples, target = flights.examples(goal), flights.target(goal)
    network = (make or Layers.linear)(examples.dimensions, examples.objective)
    task = Linear(examples.objective, examples) if make is None else Layered(network, examples)
    settings = Settings(4.0, survey=None, group=100)
    simulated = settings.training(task, task.distance, fedldp.source(5))
    for _ in simulated:
        pass
    layers = network if network.layers else None
    schema, start = flights.features.schema, network.start(0)
    job = Job(
        "flights",
        settings.plan(task.dimensions, task.length, task.mean_length),
        tmp_path / "job.db",
        tmp_path / "model.json",
        reports=100,
        model=Model(goal, schema, target, start, "none", layers=layers),
        recipe=settings.recipe(task.dimensions, 6, task.distance, make is None),
        rounds=6,
    )
    Network(AsSimulated(flights, 5)).start(job)
    assert checkpoint.status(job.checkpoint).reports == 600
    assert final(job).to_json() == simulated.state.to_json()
    assert list(result(job).weights) == simulated.models[0].tolist()
    assert result(job).layers == layers


# Real processes


def started(folder):
    """Start all parts of a fleet."""
    fleet = Fleet(folder)
    for part in (*fleet.vaults, "server"):
        fleet.start(part)
    until(lambda: len(registered(folder / "server" / "state")) == 2, "registration")
    for part in fleet.gateways:
        fleet.start(part)
    return fleet


def trained(fleet, rounds):
    """Wait for the end of a job, and check what has come of it."""
    assert fleet.popens["server"].wait(PATIENCE) == 0, fleet.log("server")
    found, job = fleet.progress(), fleet.job
    assert (found.ended, found.rounds, found.reports) == (ROUNDS, rounds, job.expected)
    assert job.expected == 80
    fleet.prove()
    learned = checkpoint.replay(job.checkpoint, job.stages)
    assert fleet.checkpoint("SELECT state FROM job") == [(learned.to_json(),)]
    model = Model.from_json(job.result.read_text())
    assert model.layers == CONVOLUTION
    assert list(model.weights) == learned.state.average[0].tolist()
    assert model.weights != job.model.weights


def small(folder, rounds):
    """Write a small fleet on this machine."""
    ports = "--port", processes.free_port(), "--link-port", processes.free_port()
    signals.init(folder, *ports, rounds=rounds)
    edit(folder / "server" / "job.toml", resend=15.0, deadline=3600.0)


@pytest.mark.slow
def test_a_convolutional_network_on_a_fleet_of_processes(tmp_path):
    folder = tmp_path / "fleet"
    small(folder, rounds=2)
    fleet = None
    try:
        fleet = started(folder)
        trained(fleet, rounds=2)
    finally:
        if fleet is not None:
            fleet.close()
        assert running(folder) == {}
    summary = json.loads(fleet.job.summary.read_text())
    assert (summary["complete"], summary["answered"]) == (True, 80)


@pytest.mark.faults
def test_a_vault_and_the_server_are_killed_in_the_training_of_a_network(tmp_path):
    folder = tmp_path / "fleet"
    small(folder, rounds=4)
    for path in folder.glob("vault-*/vault.toml"):
        edit(path, tick=1.0)  # from a vault's burning to its answer: the time to do harm
    fleet = None
    try:
        fleet = started(folder)
        until(partial(fleet.recorded, "vault-1", 1), "an answer")
        recorded = fleet.recorded("vault-1", 1)
        fleet.kill("vault-1")
        sleep(1)
        fleet.start("vault-1")
        until(lambda: fleet.rounds() >= 1, "the round")
        assert fleet.recorded("vault-1", 1) == recorded
        node = fleet.node("vault-1", 1)
        assert fleet.batches()[1, node] == recorded[1]  # as it was recorded before the kill
        until(partial(fleet.recorded, "vault-2", 2), "an answer")
        before = fleet.batches()
        fleet.kill("server")
        assert before.items() <= fleet.batches().items()
        fleet.start("server")
        trained(fleet, rounds=4)
    finally:
        if fleet is not None:
            fleet.close()
        assert running(folder) == {}
