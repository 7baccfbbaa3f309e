"""A gateway whose key is removed from the server's folder, or replaced there, is revoked."""

import json
import logging
import subprocess
from pathlib import Path

import pytest
from accounts import forked
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from endpoints import Door, fresh_key, headers, public
from fleet_parts import Fleet, running, until
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node

from fedldp import datasets
from fedldp.fleet import processes
from fedldp.fleet.flower import programs
from fedldp.fleet.folder import Place, Work, init
from fedldp.fleet.server import names, registrations, successors
from fedldp.fleet.server import process as server_process
from fedldp.fleet.server.process import ServerConfig
from fedldp.fleet.server.registrations import registered
from fedldp.learn.settings import Settings

A, B = (public(fresh_key()).decode() for _ in range(2))
BAD = "ecdsa-sha2-nistp384 AAAA"  # not a key


class Flower:
    """In the place of the supervisor: runs Flower's commands as Flower answers them."""

    def __init__(self, folder):
        self._folder, self.nodes, self.unregistered = folder, {}, []

    def log(self, process):
        return self._folder / f"{process.name}.log"

    def call(self, *processes):
        for process in processes:
            _, _, command, argument, *_ = process.argv
            self.log(process).write_text(
                f"a warning\n{json.dumps(self._answer(command, argument))}"
            )
        return [0] * len(processes)

    def _answer(self, command, argument):
        if command == "unregister":
            self.unregistered.append(argument)
            return {"success": argument in self.nodes.values()}
        if command == "list":
            gone, found = set(self.unregistered), self.nodes.values()
            states = {node: "unregistered" if node in gone else "online" for node in found}
            nodes = [{"node-id": node, "status": state} for node, state in states.items()]
            return {"success": True, "nodes": nodes}
        key = Path(argument).read_text().split()[1]
        if key in self.nodes or key == BAD.split()[1]:
            return {"success": False, "error-message": "in any words"}
        self.nodes[key] = str(len(self.nodes) + 1)
        return {"success": True, "node-id": int(self.nodes[key])}


@pytest.fixture
def fleet(tmp_path, monkeypatch, caplog):
    """A server with a folder of keys; `look` makes it look at them, after some seconds."""
    clock = [100.0]
    monkeypatch.setattr(server_process, "monotonic", lambda: clock[0])
    (tmp_path / "gateways").mkdir()
    (tmp_path / "state").mkdir()
    paths = dict.fromkeys(("authority", "certificate", "key", "app", "job"), tmp_path)
    made = ServerConfig(tmp_path, "h", 1, 2, gateways=tmp_path / "gateways", **paths)

    class Fleet:
        folder, state = tmp_path / "gateways", tmp_path / "state"
        flower = Flower(tmp_path)

        def look(self, after=0.0):
            clock[0] += after
            caplog.clear()
            with caplog.at_level(logging.INFO):
                server_process._register(self.flower, made)
            return [each.getMessage() for each in caplog.records]

        def keys(self):
            return {key.split()[1] for key in registered(self.state)}

    return Fleet()


def number(key):
    return key.split()[1]


def test_a_key_that_is_replaced_in_its_file_is_unregistered(fleet):
    path = fleet.folder / "gateway-1.pub"
    path.write_text(A)
    assert fleet.look() == ["Registered gateway-1."]
    path.write_text(B)
    assert fleet.look() == ["Registered gateway-1."]
    assert fleet.look(9.9) == []  # it could be copied just now
    assert fleet.look(0.1) == ["Revoked a key of gateway-1: it has a new one."]
    assert fleet.flower.unregistered == ["1"]
    assert fleet.keys() == {number(B)}
    assert fleet.look(100) == []


def test_a_gateway_with_a_new_key_follows_itself(fleet):
    """In both ways: with two keys for a while, and with another key in the same file."""
    path, upcoming = fleet.folder / "gateway-1.pub", fleet.folder / "gateway-1.next.pub"
    path.write_text(A)
    (fleet.folder / "gateway-2.pub").write_text(public(fresh_key()).decode())
    fleet.look()
    assert successors.known(fleet.state) == {}
    upcoming.write_text(B)
    assert fleet.look() == ["Registered gateway-1.next."]
    assert successors.known(fleet.state) == {"3": "1"}
    assert fleet.look(100) == []
    upcoming.replace(path)  # as the front does when the gateway has used it
    fleet.look()
    assert fleet.look(10) == ["Revoked a key of gateway-1: it has a new one."]
    assert fleet.flower.unregistered == ["1"]
    path.write_text(public(fresh_key()).decode())
    fleet.look()
    assert successors.known(fleet.state) == {"3": "1", "4": "3"}
    assert successors.first("4", successors.known(fleet.state)) == "1"


def test_a_job_learns_which_gateways_were_revoked(fleet, monkeypatch):
    """At no moment does one that has just been registered seem to be revoked."""
    found, keep = [], names.keep

    def keep_and_look(*given):
        keep(*given)
        found.append(registrations.revoked(fleet.state))

    monkeypatch.setattr(names, "keep", keep_and_look)
    (fleet.folder / "gateway-1.pub").write_text(A)
    (fleet.folder / "gateway-2.pub").write_text(B)
    fleet.look()
    (fleet.folder / "gateway-3.pub").write_text(public(fresh_key()).decode())
    (fleet.folder / "gateway-1.pub").unlink()
    fleet.look()
    assert registrations.revoked(fleet.state) == set()
    fleet.look(10)
    assert registrations.revoked(fleet.state) == {"1"}
    assert found == [set(), set(), set()]
    registrations.save(fleet.state, {A: "", B: "2"})  # if a number is unknown, nothing is certain
    assert registrations.revoked(fleet.state) == set()


def test_two_new_keys_of_a_gateway_are_in_order(fleet):
    (fleet.folder / "gateway-1.pub").write_text(A)
    (fleet.folder / "gateway-1.next.pub").write_text(B)
    fleet.look()
    assert successors.known(fleet.state) == {"2": "1"}
    assert fleet.flower.nodes == {number(A): "1", number(B): "2"}


def test_a_key_that_is_removed_is_unregistered_and_one_that_comes_back_is_not(fleet):
    path, other = fleet.folder / "gateway-1.pub", fleet.folder / "gateway-2.pub"
    path.write_text(A)
    other.write_text(B)
    fleet.look()
    path.unlink()
    fleet.look(5)
    path.write_text(A)  # for example while it is copied
    assert fleet.look(5) == fleet.look(100) == []
    path.unlink()
    assert fleet.look() == []
    assert len(fleet.look(10)) == 1
    assert fleet.keys() == {number(B)}
    path.write_text(A)  # too late: Flower takes no key twice
    [said] = fleet.look()
    assert said.startswith("Flower refused the key of gateway-1")
    assert said.endswith("It was revoked before: make a new key.")
    assert fleet.look(100) == []
    assert fleet.keys() == {number(B)}


def test_a_key_with_another_comment_is_the_same_key(fleet):
    path = fleet.folder / "gateway-1.pub"
    path.write_text(A)
    fleet.look()
    path.write_text(f"{A.strip()} gateway in Oslo\n\n")
    assert fleet.look() == fleet.look(100) == []
    assert fleet.keys() == {number(A)}
    assert fleet.flower.unregistered == []


def test_keys_that_version_0_1_registered_are_known(fleet):
    """It wrote no numbers down, so these keys cannot be unregistered; the front refuses them."""
    (fleet.state / "registered.json").write_text(json.dumps([A + "\n", B]))
    fleet.flower.nodes = {number(A): "7", number(B): "8"}
    (fleet.folder / "gateway-1.pub").write_text(A)
    assert fleet.look() == fleet.look(100) == []
    assert fleet.keys() == {number(A), number(B)}


def test_a_key_that_flower_knows_already_counts_as_registered(fleet):
    """The server was killed before it wrote down that it had registered the key."""
    (fleet.folder / "gateway-1.pub").write_text(A)
    (fleet.folder / "gateway-2.pub").write_text(BAD)
    fleet.flower.nodes = {number(A): "7"}
    good, bad = fleet.look()
    assert good == "Registered gateway-1."
    assert bad.startswith("Flower refused the key of gateway-2")
    assert registrations.nodes(fleet.state) == {A.strip(): "7"}
    assert fleet.look() == []


def test_of_several_keys_that_flower_knows_the_numbers_stay_unknown(fleet):
    for name, key in {"gateway-1": A, "gateway-2": B}.items():
        (fleet.folder / f"{name}.pub").write_text(key)
    fleet.flower.nodes = {number(A): "7", number(B): "8"}
    assert fleet.look() == ["Registered gateway-1.", "Registered gateway-2."]
    assert registrations.nodes(fleet.state) == {A.strip(): "", B.strip(): ""}
    fresh = public(fresh_key()).decode()
    (fleet.folder / "gateway-3.pub").write_text(fresh)
    assert fleet.look() == ["Registered gateway-3."]
    assert registrations.nodes(fleet.state)[fresh.strip()] == "3"


@pytest.fixture
def always(fleet, monkeypatch):
    """Return a function that has Flower's commands say the same; it returns their number."""

    def say(said):
        (fleet.folder / "gateway-1.pub").write_text(A)
        calls = []

        def call(*processes):
            for process in processes:
                fleet.flower.log(process).write_text(said)
            calls.append([each.name for each in processes])
            return [1] * len(processes)

        monkeypatch.setattr(fleet.flower, "call", call)
        return calls

    return say


def test_a_key_that_flower_refuses_is_named_once(fleet, always):
    always('{"success": false}')
    assert [line[:40] for line in fleet.look()] == ["Flower refused the key of gateway-1: see"]
    assert fleet.look() == []
    assert fleet.keys() == set()


@pytest.mark.parametrize("said", ["", "Traceback", "{", "[1]"])
def test_what_cannot_be_read_is_tried_again_a_few_times(fleet, always, said):
    calls = always(said)
    lines = [fleet.look() for _ in range(8)]
    assert [len(each) for each in lines] == [1, 0, 0, 0, 1, 0, 0, 0]
    assert lines[0][0].endswith("It is tried again.")
    assert lines[4][0].endswith("Restart the server to try again.")
    assert calls.count(["register-gateway-1"]) == 5
    assert fleet.keys() == set()


def test_what_can_be_read_later_is_no_refusal(fleet, always, monkeypatch):
    call = fleet.flower.call
    always("too busy")
    assert fleet.look()[0].endswith("It is tried again.")
    monkeypatch.setattr(fleet.flower, "call", call)
    assert fleet.look() == ["Registered gateway-1."]
    assert fleet.keys() == {number(A)}


@pytest.mark.faults
def test_the_front_and_flower_refuse_the_key_that_was_replaced(tmp_path):
    folder = tmp_path / "fleet"
    work = Work.on_data_set(datasets.load("flights", rows=600), "logistic", 2, 3, {"rows": 600})
    place = Place("127.0.0.1", processes.free_port(), processes.free_port(), None)
    init(folder, work, Settings(4.0), 2, place)
    made = ServerConfig.load(folder / "server")
    old, fresh = (
        load_ssh_private_key((folder / "gateway-1" / "key").read_bytes(), None),
        fresh_key(),
    )
    path, fleet = made.gateways / "gateway-1.pub", Fleet(folder)
    old_key = " ".join(path.read_text().split()[:2])

    def calls(port, key, node):
        beat = SendNodeHeartbeatRequest(node=Node(node_id=int(node)), heartbeat_interval=30.0)
        door = Door(folder / "server", port, made.link, [])
        content = beat.SerializeToString()
        return door.post("/v1/fleet/send-node-heartbeat", headers=headers(key), content=content)

    def inside(function):
        """Flower's own port is in a private network."""
        return forked(function, network_of=fleet.process("server", "flower-superlink"))

    try:
        fleet.start("server")
        until(lambda: len(registered(made.state)) == 2, "registration")
        node = registrations.nodes(made.state)[old_key]
        assert inside(lambda: _listed(made))[node] == "registered"
        assert calls(made.port, old, node).status_code == 200
        with path.open("r+b") as file:
            file.write(public(fresh))
            file.truncate()
        assert calls(made.port, old, node).status_code == 401
        assert inside(lambda: calls(made.link, old, node).status_code) == 200  # it follows later
        until(lambda: old_key not in registered(made.state), "revocation")
        assert inside(lambda: calls(made.link, old, node).status_code) == 401
        assert inside(lambda: _listed(made))[node] == "unregistered"
        other = registrations.nodes(made.state)[public(fresh).decode()]
        assert calls(made.port, fresh, other).status_code == 200
    finally:
        fleet.close()
        assert running(folder) == {}


def _listed(made):
    """Return what Flower itself says of its nodes."""
    argv = programs.program("flwr", "supernode", "list", "fleet", "--format", "json", "--verbose")
    found = subprocess.run(
        argv, env=programs.environment(made.state), capture_output=True, check=True, timeout=60
    )
    return {node["node-id"]: node["status"] for node in json.loads(found.stdout)["nodes"]}
