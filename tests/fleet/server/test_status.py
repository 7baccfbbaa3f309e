"""The status of a server: how far its job is, and each gateway by its name."""

import contextlib
import json
import os
from datetime import UTC, datetime

import pytest
from gateways import MODEL, PLAN, batch

from fedldp.fleet import state
from fedldp.fleet.job import Job
from fedldp.fleet.server import admission, checkpoint, names
from fedldp.fleet.server import status as module
from fedldp.fleet.server.rounds import Rounds
from fedldp.fleet.status import read

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()
NODES = {"gateway-1": "11", "gateway-2": "22", "depot": "33"}


@pytest.fixture
def clock(monkeypatch):
    now = [NOON]
    for each in (module, checkpoint):
        monkeypatch.setattr(each, "time", lambda: now[0])
    return now


class Server:
    """The folder of a server with three gateways, and the job in it."""

    def __init__(self, folder, clock):
        self.folder, self.state, self.clock = folder, folder / "state", clock
        (folder / "gateways").mkdir(parents=True)
        self.state.mkdir()
        (folder / "plan.json").write_text(PLAN.to_json())
        (folder / "model.json").write_text(MODEL.to_json())
        (folder / "job.toml").write_text(
            'job = "spring"\nplan = "plan.json"\nmodel = "model.json"\nreports = 8\nrounds = 2\n'
            'gateways = 3\ndeadline = 60\ncheckpoint = "state/job.db"\n'
            'result = "state/model.json"\nrecipe = {rate = 0.4}\n'
        )
        entries = {name: name for name in ("authority", "certificate", "key", "gateways", "app")}
        entries |= {"front": "127.0.0.1:1", "job": "job.toml"}
        lines = [f"{name} = {json.dumps(value)}" for name, value in entries.items()]
        (folder / "server.toml").write_text("\n".join([*lines, "link = 1"]))
        for name in NODES:
            (folder / "gateways" / f"{name}.pub").write_text(f"ecdsa key-of-{name} a comment\n")
        known = {f"ecdsa key-of-{name}": node for name, node in NODES.items()}
        (self.state / "registered.json").write_text(json.dumps(known))
        names.keep(self.state, {node: name for name, node in NODES.items()})
        self.call(*NODES)

    def call(self, *gateways, at=None):
        """Have some gateways call the endpoint."""
        path = self.state / admission.HEARD
        heard = admission.load(path)
        heard |= {name: admission.Heard(at or self.clock[0], "0.3.0") for name in gateways}
        admission.save(path, heard)

    @contextlib.contextmanager
    def running(self):
        with state.hold(self.state):
            yield

    @contextlib.contextmanager
    def rounds(self):
        rounds = Rounds(Job.load(self.folder / "job.toml"), names.lookup(self.state))
        with contextlib.closing(rounds):
            yield rounds

    def read(self):
        [found] = read(self.folder)
        return found

    def document(self):
        found = self.read().document()
        json.dumps(found)
        return found

    def states(self):
        return {each["name"]: each["state"] for each in self.document()["gateways"]}


@pytest.fixture
def server(tmp_path, clock):
    return Server(tmp_path / "server", clock)


def answer(rounds, *nodes):
    for node, question in rounds.questions().items():
        if node in nodes:
            rounds.receive(question, batch(question))


def test_before_it_ever_ran(server):
    found = server.read()
    document = found.document()
    assert (document["part"], document["name"], document["running"]) == ("server", "server", False)
    job = document["job"]
    assert (job["name"], job["task"], job["state"]) == (
        "spring",
        "training (logistic)",
        "not begun",
    )
    assert (job["round"], job["rounds"], job["reports"], job["expected"]) == (1, 2, 0, 48)
    assert (job["rate"], job["seconds_left"], job["open"]) == (None, None, None)
    assert set(server.states().values()) == {"not connected"}
    assert found.healthy  # nothing is expected of it yet
    assert "Start the server to begin the job: fedldp fleet server" in found.next


def test_it_waits_for_gateways(server):
    with server.running():
        found = server.document()
    assert found["job"]["state"] == "waiting"
    assert found["since"] is not None
    assert found["next"] == "The server asks when 3 gateways can be reached."


def test_a_round_with_rate_and_time_left(server, clock):
    with server.running(), server.rounds() as rounds:
        rounds.ask(NODES.values())
        clock[0] += 4
        answer(rounds, "11", "22")
        clock[0] += 4
        server.call(*NODES)
        found = server.document()
        job = found["job"]
        assert (job["state"], job["round"], job["stage"]) == ("asking", 1, "gradients")
        assert (job["asked"], job["reports"], job["silent"]) == (24, 16, 0)
        assert job["rate"] == 16 / 8
        assert job["seconds_left"] == (48 - 16) / 2
        assert job["open"] == {
            "gateways": 3,
            "received": 2,
            "since": "2026-11-16T12:00:00+00:00",
            "deadline": "2026-11-16T12:01:00+00:00",
        }
        assert server.states() == {
            "gateway-1": "answered",
            "gateway-2": "answered",
            "depot": "waiting",
        }
        first = next(each for each in found["gateways"] if each["name"] == "gateway-1")
        assert first["heard"] == "2026-11-16T12:00:08+00:00"
        assert (first["node"], first["reports"], first["version"]) == ("11", 8, "0.3.0")
        assert first["bytes"] == rounds.job.question("11", 1).size
        assert "without the others." in found["next"]
        clock[0] += 8  # the rate falls while nothing comes
        assert server.document()["job"]["rate"] == 1


def test_a_silent_gateway_is_named(server, clock, monkeypatch):
    monkeypatch.setattr(module, "AWAY", 60.0)
    with server.running(), server.rounds() as rounds:
        rounds.ask(NODES.values())
        answer(rounds, "11", "33")
        clock[0] += 61  # past the deadline
        server.call(*NODES)
        found = server.read()
        silent = next(e for e in found.document()["gateways"] if e["state"] == "silent")
        assert (silent["name"], silent["since"]) == ("gateway-2", "2026-11-16T12:00:00+00:00")
        started(server, NOON - 3600)
        found = server.read()
        assert not found.healthy
        assert any(text.startswith("gateway-2 is silent: ") for text in found.attention)
        rounds.step()
        rounds.ask(["11", "33"])
        answer(rounds, "11", "33")
        assert server.states()["gateway-2"] == "silent"  # in the round before


def started(server, when):
    """Set when the server was started."""
    os.utime(server.state / state.LOCK, (when, when))


def test_a_gateway_that_does_not_call_is_not_connected(server, clock):
    with server.running():
        started(server, NOON)
        clock[0] += 61
        server.call("gateway-1", "gateway-2")
        found = server.read()
    assert server.states()["depot"] == "not connected"
    [text] = found.attention
    assert text == "depot is not connected: run `fedldp fleet status` on its machine."


def test_gateways_have_time_to_connect_after_a_start(server, clock):
    clock[0] += 3600
    with server.running():
        started(server, clock[0] - 5)
        found = server.read()
        assert set(server.states().values()) == {"not connected"}
        assert found.healthy


def test_nobody_has_answered_by_the_deadline(server, clock):
    with server.running(), server.rounds() as rounds:
        rounds.ask(NODES.values())
        clock[0] += 61
        found = server.read()
    said = "the deadline has passed, and no vehicle has answered in this round."
    assert said in found.attention
    assert "The same question is sent again every 12 s." in found.next


def test_a_server_that_was_stopped_in_the_middle(server):
    with server.rounds() as rounds:
        rounds.ask(NODES.values())
        answer(rounds, "11")
    found = server.read()
    assert found.attention == ["the job is not done, and the server does not run."]
    assert "Start the server to resume the job" in found.next
    assert found.document()["job"]["state"] == "asking"


def test_a_job_that_is_done(server, clock):
    with server.rounds() as rounds:
        for _ in range(2):
            rounds.ask(NODES.values())
            clock[0] += 2
            answer(rounds, *NODES.values())
            rounds.step()
        rounds.finish()
    clock[0] += 3600
    found = server.read()
    job = found.document()["job"]
    assert (job["state"], job["why"]) == ("done", "all rounds are done")
    assert (job["round"], job["reports"], job["seconds_left"]) == (2, 48, None)
    assert job["rate"] == 12  # in the time that it took
    assert (job["began"], job["ended"]) == (
        "2026-11-16T12:00:00+00:00",
        "2026-11-16T12:00:04+00:00",
    )
    assert found.healthy
    assert found.next == f"The job is done. Its result is {server.state / 'model.json'}"
    assert set(server.states().values()) == {"answered"}


def test_a_job_that_has_failed(server):
    with server.rounds() as rounds:
        rounds.ask(NODES.values())
        rounds._end("nothing to learn from", failed=True)
    found = server.read()
    assert found.document()["job"]["state"] == "failed"
    assert found.attention == ["the job has failed: nothing to learn from."]
    assert "start a job with another name" in found.next


def test_a_revoked_gateway_keeps_its_name(server):
    with server.running(), server.rounds() as rounds:
        rounds.ask(NODES.values())
        answer(rounds, *NODES.values())
        (server.folder / "gateways" / "depot.pub").unlink()
        assert server.states() == {
            "gateway-1": "answered",
            "gateway-2": "answered",
            "depot": "revoked",
        }


def test_a_gateway_with_a_new_key_is_one_gateway(server):
    with server.running(), server.rounds() as rounds:
        rounds.ask(NODES.values())
        answer(rounds, *NODES.values())
        rounds.step()
        (server.folder / "gateways" / "depot.pub").write_text("ecdsa new-key\n")
        known = json.loads((server.state / "registered.json").read_text())
        known |= {"ecdsa key-of-depot": "revoked", "ecdsa new-key": "44"}
        (server.state / "registered.json").write_text(json.dumps(known))
        names.keep(server.state, {"44": "depot"})
        rounds.ask(["11", "22", "44"])
        answer(rounds, "44")
        [found] = [each for each in server.document()["gateways"] if each["name"] == "depot"]
    assert (found["node"], found["reports"], found["state"]) == ("44", 16, "answered")


def test_warnings_and_errors_come_from_the_logs(server):
    (server.state / "job.log").write_text(
        "2026-11-16 12:00:01 WARNING spring, round 1. depot: Implausible reports: x has too many.\n"
        "2026-11-16 12:00:02 INFO    spring, round 1 is done.\n"
        "2026-11-16 12:00:03 WARNING spring, depot: the answer came too late, or twice.\n"
        "2026-11-16 12:00:04 WARNING winter, round 1. depot: Implausible reports: of another job.\n"
    )
    (server.state / "server.log").write_text(
        '{"time": "2026-11-16T12:00:02+00:00", "level": "ERROR", "event": "The disk is full"}\n'
    )
    found = server.read()
    assert found.warnings == ["spring, round 1. depot: Implausible reports: x has too many."]
    assert sorted(line.text for line in found.errors) == [
        "The disk is full",
        "spring, depot: the answer came too late, or twice.",
    ]
    assert found.warnings[0] in found.attention


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("state/job.db", "is not a valid checkpoint"),
        ("state/heard.json", "not a 'fedldp gateways heard 1'"),
        ("state/processes.json", "not a 'fedldp processes 1'"),
        ("job.toml", "job.toml"),
        ("server.toml", "server.toml"),
    ],
)
@pytest.mark.parametrize("content", [b"", b"\xff{", b'{"format": "another 1"}', b"[]"])
def test_a_damaged_file_is_said_and_the_rest_is_shown(server, name, said, content):
    (server.folder / name).write_bytes(content)
    found = server.read()
    assert any(said in text for text in found.attention)
    assert found.document()["unreadable"]
    assert found.document()["part"] == "server"


def test_damaged_registrations_are_said(server):
    (server.state / "registered.json").write_text("{")
    assert any("registered.json" in text for text in server.read().attention)


def test_it_reads_and_changes_nothing(server):
    with server.rounds() as rounds:
        rounds.ask(NODES.values())
    before = {path: path.read_bytes() for path in server.folder.rglob("*") if path.is_file()}
    server.read()
    after = {path: path.read_bytes() for path in server.folder.rglob("*") if path.is_file()}
    assert before == after
