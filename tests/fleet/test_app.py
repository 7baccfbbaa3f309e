"""The apps that Flower runs: a gateway sends one batch whatever happens, a server runs its job."""

import logging

import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from gateways import MODEL, PLAN, Network, batch, honest

from fedldp.fleet import app
from fedldp.fleet.flower.messages import packed, unpacked
from fedldp.fleet.job import Job
from fedldp.fleet.protocol import Question, deflated
from fedldp.fleet.server import checkpoint
from fedldp.fleet.sockets import REFUSED, Address
from fedldp.storage import locks

QUESTION = Question("test", 1, "7", 5, PLAN.to_json(), MODEL.to_json())
NODE = {"vaults": "/run/a.sock, tcp://host:7000", "deadline": 30}


def context(node=None, run=None):
    return Context(1, 7, node or {}, RecordDict(), run or {})


def message(content):
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    return Message(content, 7, "train")


def said(reply):
    """Return the one thing that a reply says."""
    assert reply.has_content()
    [(_, record)] = reply.content.items()
    assert isinstance(record, ConfigRecord)
    assert len(record) == 1
    return unpacked(reply.content)


@pytest.fixture
def node(tmp_path):
    (tmp_path / "token").write_text("secret\n")
    return NODE | {"token": str(tmp_path / "token")}


def test_a_gateway_passes_on_what_it_gets(node, monkeypatch):
    seen = []

    def relay(*given):
        seen.append(given)
        return batch(QUESTION)

    monkeypatch.setattr(app, "relay", relay)
    reply = app.client(message(packed(deflated(QUESTION.to_bytes()))), context(node))
    assert said(reply) == batch(QUESTION)
    vaults = [Address(path="/run/a.sock"), Address(host="host", port=7000, token=b"secret")]
    assert seen == [(QUESTION.to_bytes(), vaults, 30.0, (), None)]


def test_vaults_that_are_not_there_are_silent(tmp_path):
    node = {"vaults": str(tmp_path / "none.sock"), "deadline": 0.1}
    reply = app.client(message(packed(deflated(QUESTION.to_bytes()))), context(node))
    assert len(said(reply)) == QUESTION.size


def broken(*_):
    raise RuntimeError("48 km/h")


@pytest.mark.parametrize(
    ("content", "changes"),
    [
        (RecordDict({}), {}),
        (RecordDict({"fedldp": MetricRecord({"fedldp": 1})}), {}),
        (packed(b"garbage"), {}),
        (packed(deflated(QUESTION.to_bytes())), {"vaults": ""}),
        (packed(deflated(QUESTION.to_bytes())), {"vaults": "tcp://host"}),
        (packed(deflated(QUESTION.to_bytes())), {"token": "/no/such/file"}),
        (packed(deflated(QUESTION.to_bytes())), {"deadline": "soon"}),
        (packed(deflated(QUESTION.to_bytes())), {"relay": broken}),
    ],
)
def test_a_gateway_says_nothing_of_what_went_wrong(content, changes, node, monkeypatch):
    monkeypatch.setattr(app, "relay", changes.get("relay", app.relay))
    reply = app.client(message(content), context(node | {"relay": 0} | changes))
    assert said(reply) == REFUSED


def test_a_gateway_without_configuration_answers_too():
    assert said(app.client(message(packed(deflated(QUESTION.to_bytes()))), context())) == REFUSED


@pytest.fixture
def job(tmp_path):
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    (tmp_path / "model.json").write_text(MODEL.to_json())
    (tmp_path / "job.toml").write_text(
        'job = "test"\nplan = "plan.json"\nmodel = "model.json"\nreports = 8\nrounds = 2\n'
        'checkpoint = "state/job.db"\nresult = "state/model.json"\nrecipe = {rate = 0.4}\n'
    )
    return tmp_path / "job.toml"


def run(job, network):
    app.server(network, context(run={"job": str(job)}))


def test_a_server_runs_its_job(job):
    run(job, Network(honest))
    state = job.parent / "state"
    assert checkpoint.finished(state / "job.db")
    assert (state / "model.json").exists()
    log = (state / "job.log").read_text()
    assert "round 2" in log
    assert log.count("test is over: all rounds are done") == 1
    assert "16 of 16 planned reports: 16 vehicles asked, 16 answered" in log
    assert logging.getLogger("fedldp.fleet").handlers == []


def test_a_second_server_ends_harmlessly(job, monkeypatch):
    monkeypatch.setattr(locks, "RETRY_SECONDS", 0.0)
    first, second = Job.load(job), Network(honest)
    with checkpoint.Checkpoint(first.checkpoint, "test", first.settings):
        run(job, second)
        assert second.calls == 0
    assert "is locked by another server" in (job.parent / "state" / "job.log").read_text()


def test_what_ends_a_server_is_in_its_log(job):
    network = Network(honest)

    def fails(_):
        raise KeyboardInterrupt if network.calls > 3 else ConnectionError("down")

    network.fails = fails
    with pytest.raises(KeyboardInterrupt):
        run(job, network)
    job.write_text(job.read_text().replace("reports = 8", "reports = 9"))
    with pytest.raises(ValueError, match="belongs to the job 'test', or was begun with another"):
        run(job, network)
    log = (job.parent / "state" / "job.log").read_text()
    assert "a call to Flower's grid failed with ConnectionError" in log
    assert "DomainError: " in log
