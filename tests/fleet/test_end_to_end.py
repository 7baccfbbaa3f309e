"""A small fleet of real processes, from end to end: TLS, keys, ledgers, a survey, three rounds.

The cap of each vehicle is enough for three answers, and each gives one.

What two gateways send to the server goes through the test, which overhears it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass

import fleet_parts
import pytest
from click.testing import CliRunner
from fleet_parts import PATIENCE, Fleet, Proxy, calls, edit, reroute, running, sign, until
from flwr.app import ConfigRecord
from flwr.proto.message_pb2 import Message, PushObjectRequest
from flwr.supercore.inflatable.inflatable_object import (
    get_object_head_values_from_object_content as head,
)

from fedldp import __version__
from fedldp._internal import packing
from fedldp.cli.fleet.demo import demo_command
from fedldp.cli.fleet.parts import FAILED, STOPPED
from fedldp.errors import MissingExtra
from fedldp.fleet import logs, processes, status
from fedldp.fleet.protocol import HEADER
from fedldp.fleet.server import checkpoint
from fedldp.fleet.server.checkpoint import Counts, replay
from fedldp.fleet.server.endpoint import CALLS
from fedldp.fleet.server.process import ServerConfig
from fedldp.fleet.server.rounds import NOTHING, ROUNDS
from fedldp.fleet.server.summary import Summary, shortfalls
from fedldp.fleet.status import Status
from fedldp.fleet.transparency import Transparency
from fedldp.learn.model import Model

GATEWAYS, ROWS, HELD_OUT, TURNS = 2, 3000, 300, 3
FLEET = ROWS - HELD_OUT
SURVEYED = FLEET // 10 // GATEWAYS  # of a gateway, in the two rounds of the survey
REPORTS = (FLEET // GATEWAYS - SURVEYED) // TURNS  # of a gateway in a round: everybody answers once
ASKED = [(SURVEYED + 1) // 2, SURVEYED // 2, *[REPORTS] * TURNS]  # of a gateway, in each round


@dataclass
class Demo:
    fleet: Fleet
    shown: dict  # what it has printed
    left: dict  # processes that were there when it had ended
    heard: list  # what was sent to the server, by connection
    said: str  # what it has shown on the way
    seen: list  # the status of all its parts, again and again


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Run the demo to its end, and overhear its gateways."""
    folder, port = tmp_path_factory.mktemp("demo") / "fleet", processes.free_port()
    options = ("--gateways", GATEWAYS, "--rounds", TURNS, "--rows", ROWS, "--cap", 12, "--json")
    words = [sys.executable, fleet_parts.__file__, folder, port, *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    json_logs = os.environ | {logs.FORMAT: "json"}
    popen = subprocess.Popen(list(map(str, words)), **pipes, env=json_logs)
    over, seen = threading.Event(), []

    def look():
        while not over.wait(1.0):
            seen.append([each.document() for each in status.read(folder)])

    looking = threading.Thread(target=look)
    try:
        until((folder / "README.md").exists, "the folder")
        server = ServerConfig.load(folder / "server")
        looking.start()
        with Proxy(port, server.port, server) as proxy:
            out, err = popen.communicate(timeout=PATIENCE)
        assert popen.returncode == 0, err
        return Demo(Fleet(folder), json.loads(out), running(folder), proxy.heard, err, seen)
    finally:
        over.set()
        if looking.ident:
            looking.join()
        popen.kill()
        popen.wait()
        if folder.exists():
            processes.stop(folder)


def test_everybody_answers_once_and_all_of_it_counts(demo):
    found = {name: demo.shown[name] for name in ("rounds", "reports", "refusals", "silent")}
    assert found == {"rounds": len(ASKED), "reports": FLEET, "refusals": 0, "silent": 0}
    assert demo.shown["ended"] == ROUNDS
    assert demo.shown["surveyed"] == GATEWAYS * SURVEYED
    assert len(demo.fleet.batches()) == GATEWAYS * len(ASKED)
    demo.fleet.prove()


def test_the_ledgers_prove_it(demo):
    assert demo.shown["ledgers"] == {
        "burnt": FLEET,
        "burnt_and_not_received": 0,
        "answered_twice": 0,
        "over_the_cap": 0,
        "most_spent": demo.shown["epsilon"],
    }
    lines = []
    for vault in demo.fleet.vaults:
        lines += demo.fleet.rows(f"{vault}/ledger.db", "SELECT key, request, epsilon FROM releases")
    assert len({key for key, _, _ in lines}) == len(lines) == FLEET
    assert {epsilon for _, _, epsilon in lines} == {"4/1"}
    requests = Counter(request for _, request, _ in lines)
    assert requests == {f"flights/{i}": GATEWAYS * n for i, n in enumerate(ASKED, 1)}


def test_the_reports_give_the_same_model_in_the_simulator(demo):
    """Exactly: the captured reports, replayed through the simulator's server half."""
    job = demo.fleet.job
    [(text,)] = demo.fleet.checkpoint("SELECT state FROM job")
    learned = replay(job.checkpoint, job.stages)
    assert learned.to_json() == text
    model = Model.from_json(job.result.read_text())
    assert list(model.weights) == learned.state.average[0].tolist()
    assert model.weights != job.model.weights
    assert (learned.state.round, job.model.scaling) == (TURNS, None)
    assert model.scaling == learned.scaling
    assert all(factor > 1 for factor in model.scaling.factors)


def test_the_result_is_a_model_that_was_evaluated(demo):
    assert 0 < demo.shown["error"] < 1
    assert demo.shown["simulated"]["seeds"] == 30
    assert demo.shown["vehicles"] == FLEET


def test_it_says_what_it_does(demo):
    counts = f"{GATEWAYS * REPORTS} vehicles asked, {GATEWAYS * REPORTS} answered, 0 silent"
    total = len(ASKED)
    stages = (
        "Reading the flights",
        "Writing the fleet's folder",
        f"Starting {GATEWAYS} vaults and the server",
        f"Starting {GATEWAYS} gateways",
        f"Round 1 of {total}, a survey of centres, is done: {GATEWAYS * ASKED[0]} vehicles asked",
        f"Round 3 of {total} is done: {counts}",
        f"Round {total} of {total} is done: {counts}",
        "Stopping all processes",
        "Simulating the same training",
        "Reading the ledgers",
    )
    places = [demo.said.index(stage) for stage in stages]
    assert places == sorted(places)
    assert f"{FLEET:,} of {FLEET:,} planned reports" in demo.said


def test_its_status_was_right_all_the_time(demo):
    """While it started, ran and ended: counts only grow, and nothing was unreadable."""
    servers = [part for parts in demo.seen for part in parts if part["part"] == "server"]
    reports = [each["job"]["reports"] for each in servers]
    assert reports == sorted(reports)
    assert {"asking", "done"} <= {each["job"]["state"] for each in servers}
    assert {each["running"] for each in servers} == {False, True}
    assert not [text for parts in demo.seen for part in parts for text in part["unreadable"]]
    assert any(each["job"]["reports"] > 0 and each["job"]["seconds_left"] for each in servers)
    assert any(part.get("connected") for parts in demo.seen for part in parts)


def test_its_status_at_the_end(demo):
    found = {part["name"]: part for part in map(Status.document, status.read(demo.fleet.folder))}
    job = found["server"]["job"]
    assert (job["state"], job["reports"], job["expected"]) == ("done", FLEET, FLEET)
    each = FLEET // GATEWAYS
    assert {
        (gateway["name"], gateway["state"], gateway["reports"], gateway["version"])
        for gateway in found["server"]["gateways"]
    } == {(f"gateway-{i}", "answered", each, __version__) for i in (1, 2)}
    for number in (1, 2):
        vault, [passed] = found[f"vault-{number}"], found[f"gateway-{number}"]["vaults"]
        assert vault["budget"] == [{"left": "8.0", "vehicles": each}]
        assert vault["jobs"] == [
            {"job": "flights", "rounds": len(ASKED), "answers": each, "refused": 0}
        ]
        assert vault["questions"]["answered"] >= len(ASKED)
        assert (passed["name"], passed["state"]) == (f"vault-{number}", "answered")
        assert (passed["answered"], passed["asked"]) == (each, each)


def test_every_log_is_json_where_it_was_asked_for(demo):
    """Also in the processes that Flower has started."""
    names = ["server/state/server.log", "server/state/job.log"]
    names += [f"{part}-{i}/state/{part}.log" for part in ("gateway", "vault") for i in (1, 2)]
    found = {}
    for name in names:
        lines = (demo.fleet.folder / name).read_text().splitlines()
        found[name] = [json.loads(line) for line in lines]
        assert all({"time", "level", "event"} <= each.keys() for each in found[name])
    rounds = [each["round"] for each in found["server/state/job.log"] if "is done" in each["event"]]
    assert rounds == list(range(1, len(ASKED) + 1))
    for i, name in ((i, f"vault-{i}/state/vault.log") for i in (1, 2)):
        answers = [each for each in found[name] if "answered" in each]
        assert [(each["round"], each["answered"]) for each in answers] == [*enumerate(ASKED, 1)]
        texts = [each["event"] for each in found[f"gateway-{i}/state/gateway.log"]]
        assert any(text.startswith("Connected to the server at ") for text in texts)
        for number, n in enumerate(ASKED, 1):
            assert f"flights, round {number}: asked for {n} vehicles." in texts
            said = f"flights, round {number}: vault-{i} answered for {n} of {n} vehicles."
            assert said in texts


def test_the_summary_says_that_nothing_is_missing(demo):
    found = Summary.load(demo.fleet.job.summary)
    assert (found.complete, found.done, found.reason) == (True, len(ASKED), ROUNDS)
    assert found.rounds == tuple(Counts(GATEWAYS * n, GATEWAYS * n) for n in ASKED)
    assert list(shortfalls(demo.fleet.job.result)) == []


def copy(folder, target):
    """Copy a fleet. Its server forgets which gateways Flower takes to be connected.

    Otherwise Flower turns them away for a minute, and each starts a new process every few seconds.
    """
    left_out = shutil.ignore_patterns("*.sock", "link.db*", "registered.json")
    shutil.copytree(folder, target, ignore=left_out)


def test_a_server_that_is_stopped_before_the_end_does_not_report_success(demo, tmp_path):
    folder = tmp_path / "fleet"
    copy(demo.fleet.folder, folder)
    edit(folder / "server" / "job.toml", job='"third"', checkpoint='"state/third.db"')
    sign(folder)
    fleet = Fleet(folder)
    try:
        server = fleet.start("server")
        while "Starting Flower's SuperLink" not in fleet.log("server"):
            assert server.poll() is None, fleet.log("server")
            time.sleep(0.1)
        server.terminate()
        assert server.wait(PATIENCE) == STOPPED
    finally:
        fleet.close()
    assert "Stopped before the job third was done." in fleet.log("server")


def fails(fleet):
    """Run the job of a copied fleet, which gets no answers."""
    try:
        for gateway in fleet.gateways:
            reroute(fleet.folder, gateway, ServerConfig.load(fleet.folder / "server").port)
        for part in (*fleet.vaults, *fleet.gateways):
            fleet.start(part)
        assert fleet.start("server").wait(PATIENCE) == FAILED
    finally:
        fleet.close()


def test_a_second_job_without_budget_fails(demo, tmp_path):
    """As in a copy of the fleet: all caps are spent, and nobody answers."""
    folder = tmp_path / "fleet"
    copy(demo.fleet.folder, folder)
    edit(folder / "server" / "job.toml", job='"second"', checkpoint='"state/second.db"')
    sign(folder)
    first = (folder / "server" / "state" / "model.json").read_bytes()
    fleet = Fleet(folder)
    for vault in fleet.vaults:  # of which the first job has taken everything
        edit(folder / vault / "vault.toml", cap=f'"{demo.shown["epsilon"]}"')
    fails(fleet)
    asked = GATEWAYS * ASKED[0]
    counts = f"{asked} vehicles asked, 0 answered, 0 silent, {asked} refused or absent"
    log = fleet.log("server")
    assert f"the job second has failed and has no result: {NOTHING}" in log
    assert f"0 of {FLEET:,} planned reports: {counts}" in log
    assert str(fleet.job.log) in log
    assert str(folder / "server" / "state") in log
    assert fleet.job.result.read_bytes() == first  # the first job's, and said to be
    assert f"{fleet.job.result} belongs to another job" in log
    assert Summary.load(fleet.job.summary).failed
    for vault in fleet.vaults:  # the reason stays with them
        said = f"second/1: of {ASKED[0]} vehicles that were asked for, 0 answered"
        assert said in fleet.log(vault)
    assert "cap" not in fleet.job.log.read_text()


def test_nothing_is_left_running(demo):
    assert demo.left == {}
    assert not checkpoint.locked(demo.fleet.job.checkpoint)


def test_a_gateway_sends_one_record_of_bytes_whatever_is_in_it(demo):
    """Each reply is a message of one record with one value: the batch. All are equally long."""
    pushed, job = [], demo.fleet.job
    for path, body in (call for heard in demo.heard for call in calls(heard)):
        if path == "/v1/fleet/push-object":
            request = PushObjectRequest.FromString(body)
            kind, children, length = head(request.object_content)
            pushed.append((kind, len(children), request.object_content, length))
    shapes = Counter((kind, children) for kind, children, *_ in pushed)
    assert set(shapes) == {("Message", 1), ("RecordDict", 1), ("ConfigRecord", 0)}
    # A repeated answer sends again what the server does not have yet: messages and, if its first
    # one is still on the way, records.
    assert min(shapes.values()) >= GATEWAYS * len(ASKED)
    rounds = zip(ASKED, map(job.plan_of, range(1, len(ASKED) + 1)), strict=True)
    lengths = {HEADER + packing.length(n, plan.bits) for n, plan in rounds}
    for kind, _, content, length in pushed:
        if kind == "Message":
            assert not Message.FromString(content[-length:]).HasField("error")
        elif kind == "ConfigRecord":
            [(name, batch)] = ConfigRecord.inflate(content).items()
            assert (name, type(batch)) == ("fedldp", bytes)
            assert len(batch) in lengths


def test_gateways_say_nothing_but_what_the_front_lets_in(demo):
    paths = {path for heard in demo.heard for path, _ in calls(heard)}
    assert paths <= {call.decode() for call in CALLS}


def test_keys_and_ledgers_are_for_their_owner_alone(demo):
    names = ("ca.key", "server/server.key", "gateway-*/key", "vault-*/ledger.db")
    private = [path for name in names for path in demo.fleet.folder.glob(name)]
    assert len(private) == 2 + 2 * GATEWAYS
    assert {path.stat().st_mode & 0o077 for path in private} == {0}


def test_without_flower_the_demo_says_so_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    folder = tmp_path / "fleet"
    found = CliRunner().invoke(demo_command, ["--output", str(folder)])
    assert isinstance(found.exception, MissingExtra)
    assert "flwr is not installed" in str(found.exception)
    assert not folder.exists()


@pytest.mark.slow
def test_a_server_that_was_taken_over_learns_nothing(demo, tmp_path):
    """It asks for another job, for which there is budget; the operator has not signed it."""
    folder = tmp_path / "fleet"
    copy(demo.fleet.folder, folder)
    path = folder / "server" / "job.toml"
    edit(path, job='"stolen"', checkpoint='"state/stolen.db"', result='"state/stolen.json"')
    path.write_text(re.sub(r"(?m)^(signed|operator) = .*\n", "", path.read_text()))
    fleet = Fleet(folder)
    for vault in fleet.vaults:
        edit(folder / vault / "vault.toml", cap='"1000"')
    fails(fleet)
    assert not fleet.job.result.exists()
    for vault in fleet.vaults:
        assert "answers only jobs that its operator has signed" in fleet.log(vault)
        assert not fleet.rows(f"{vault}/ledger.db", "SELECT * FROM releases WHERE job = 'stolen'")
        found = Transparency.read(folder / vault / "ledger.db")
        assert "stolen" not in found.jobs
        assert [(each.job, each.round) for each in found.refused] == [("stolen", 1)]
