"""The two apps of the road, with real agents, on a grid that is a function call."""

import contextlib
import datetime
import threading
import time
from types import SimpleNamespace

import agent_folder
import pytest
from agent_cases import Party, Time
from engine_cases import OPERATOR, PLAN, statistic, training
from flwr.app import ConfigRecord, Context, Error, Message, Metadata, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from road_client import Client
from server_process import ServerProcess, wait_until

from fedldp import Ledger
from fedldp.errors import DomainError, WireError
from fedldp.results.tally import from_json
from fedldp_fleet.agent.relay import Door, SocketRoad
from fedldp_fleet.flower import app
from fedldp_fleet.flower.messages import NAME
from fedldp_fleet.jobs import Schedule
from fedldp_fleet.messages import Call
from fedldp_fleet.server import members
from fedldp_fleet.store.base import DONE, RUNNING

NOW = datetime.datetime.now(datetime.UTC)
OPEN = Schedule(NOW - datetime.timedelta(hours=1), NOW + datetime.timedelta(hours=1))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(app, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(app, "RETRY_SECONDS", 0.05)
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # as Flower does


class Beside:
    """An agent that listens, in a thread; its network comes and goes."""

    def __init__(self, folder, vehicles):
        self.path = folder / f"agent of {vehicles}"
        self.door, self.stopped = Door(self.path), threading.Event()
        clock = Time(time.time())
        clock.sleep = clock.sleeps.append
        road = SocketRoad(self.door)
        self.party = Party(None, None, vehicles=vehicles, road=road, time=clock)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.stopped.is_set():
            if self.door.wait(0.05):
                while self.party.visit() == 0:
                    pass
                self.party.road.close()

    def stop(self):
        if self.stopped.is_set():
            return
        self.stopped.set()
        self.thread.join()
        self.door.close()
        self.party.close()


class Grid:
    """Nodes with agents, or without; `lost` replies become errors after the agent has answered."""

    def __init__(self, *agents):
        self.paths = {7 + number: str(agent.path) for number, agent in enumerate(agents)}
        self.replies, self.lost, self.pushed, self.dies_after = {}, set(), 0, None

    def get_node_ids(self):
        return list(self.paths)

    def push_messages(self, messages):
        return [self._push(each) for each in messages]

    def _push(self, message):
        self.pushed += 1
        number, node = f"message {self.pushed}", message.metadata.dst_node_id
        ids = 1, number, 1, node, "", ""
        metadata = Metadata(*ids, time.time(), 60.0, "query")
        asked = Message(metadata=metadata, content=message.content)
        context = Context(1, node, {"agent": self.paths[node]}, RecordDict(), {})
        reply = app.client(asked, context)
        if self.pushed in self.lost:
            reply = Message(Error(5, "the node is gone"), reply_to=asked)
        self.replies[number] = reply
        return number

    def pull_messages(self, numbers):
        if self.dies_after is not None and self.pushed >= self.dies_after:
            raise ConnectionError("the run dies")
        return [self.replies.pop(each) for each in numbers if each in self.replies]


@pytest.fixture
def server(tmp_path):
    made = ServerProcess(tmp_path / "server")
    yield made
    made.stop()


@pytest.fixture
def beside(tmp_path):
    with contextlib.ExitStack() as stack:

        def beside(vehicles=1):
            made = Beside(tmp_path, vehicles)
            stack.callback(made.stop)
            return made

        yield beside


def run(server, grid):
    """Run the ServerApp until no job is open."""
    app.serve(grid, Context(1, 0, {}, RecordDict(), {"server": str(server.path)}))


def enrolled(server, *agents):
    for number, agent in enumerate(agents):
        server.enroll(f"flower-{7 + number}", agent.party.vehicles)
    return Grid(*agents)


def reports(server):
    return from_json(server.job("spring").result, PLAN).reports


def test_jobs_run_until_none_is_open(server, beside):
    depot, car = beside(30), beside(1)
    grid = enrolled(server, depot, car)
    server.add(statistic(wanted=31, schedule=OPEN), OPERATOR)
    server.add(training(rounds=2, group=10, schedule=OPEN), OPERATOR)
    run(server, grid)
    assert reports(server) == 31
    assert server.job("learn").state == DONE
    assert depot.party.outbox.counts()["spring"] == {"counted": 1}  # it was acknowledged
    assert car.party.outbox.counts()["spring"] == {"counted": 1}
    assert depot.party.spent() + car.party.spent() == 2 * (31 + 20)
    assert depot.party.told == car.party.told == []
    assert server.read(lambda store: store.heard()).keys() == {"flower-7", "flower-8"}


def test_a_lost_reply_is_sent_again_and_counts_once(server, beside):
    depot = beside(5)
    grid = enrolled(server, depot)
    server.add(statistic(wanted=5, schedule=OPEN), OPERATOR)
    grid.lost = {2, 3}  # the first one with an answer, and its repetition
    run(server, grid)
    assert reports(server) == 5
    assert depot.party.spent() == 10


def test_a_run_that_dies_is_followed_by_another(server, beside):
    depot = beside(5)
    grid = enrolled(server, depot)
    server.add(statistic(wanted=5, schedule=OPEN), OPERATOR)
    grid.dies_after = 2
    with pytest.raises(ConnectionError):
        run(server, grid)
    assert server.job("spring").state == RUNNING
    assert depot.party.spent() == 10
    grid.dies_after = None
    run(server, grid)
    assert reports(server) == 5
    assert depot.party.spent() == 10


def test_strangers_and_revoked_nodes_are_asked_nothing(server, beside, caplog):
    depot, stranger, revoked = beside(5), beside(4), beside(3)
    grid = enrolled(server, depot)
    grid.paths |= {8: str(stranger.path), 9: str(revoked.path)}
    server.enroll("flower-9", 3)
    with contextlib.closing(server.folder.store()) as store, store.transaction() as inside:
        members.revoke(inside, "flower-9")
    server.add(statistic(wanted=5, schedule=OPEN), OPERATOR)
    run(server, grid)
    assert reports(server) == 5
    assert (stranger.party.reads, revoked.party.reads) == (0, 0)
    said = [each.getMessage() for each in caplog.records if "enroll" in each.getMessage()]
    assert sorted(each.split(" which ")[0] for each in said) == [
        "The server asks nothing of the node 8,",
        "The server asks nothing of the node 9,",
    ]
    assert "fedldp server enroll FOLDER flower-8" in min(said)


def test_a_node_without_its_agent_keeps_no_place(server, beside, caplog):
    depot, absent = beside(5), beside(4)
    grid = enrolled(server, depot, absent)
    absent.stop()
    server.add(statistic(wanted=5, schedule=OPEN), OPERATOR)
    run(server, grid)
    assert reports(server) == 5
    assert "No agent listens on" in caplog.text


def test_a_node_is_counted_for_as_many_vehicles_as_it_is_enrolled_for(server, beside):
    depot, car = beside(5), beside(1)
    server.enroll("flower-7", 2)
    server.enroll("flower-8", 1)
    server.add(statistic(wanted=3, schedule=OPEN), OPERATOR)
    run(server, Grid(depot, car))
    assert reports(server) == 3
    assert depot.party.spent() == 4


def test_a_job_uses_several_roads_at_once(server, beside):
    depot = beside(5)
    grid = enrolled(server, depot)
    server.add(statistic(wanted=6, schedule=OPEN), OPERATOR)
    server.start()
    wait_until(lambda: server.job("spring").state == RUNNING)
    flower = threading.Thread(target=run, args=(server, grid))
    flower.start()
    car = Client.joined(server)
    wait_until(lambda: car.visit("spring"))
    flower.join()
    car.connection.close()
    assert reports(server) == 6
    assert depot.party.spent() == 10


def test_what_a_node_says_is_checked(server, beside, monkeypatch):
    depot = beside(5)
    grid = enrolled(server, depot)
    replies = iter(
        [
            RecordDict(),
            RecordDict({NAME: ConfigRecord({"call": [b"?"], "answers": []})}),
            RecordDict({NAME: ConfigRecord({"call": [Call({}).to_bytes()], "answers": [b"?"]})}),
            RecordDict({NAME: ConfigRecord({"call": "text", "answers": [1]})}),
        ]
    )
    answer = app.client

    def broken(message, context):
        content = next(replies, None)
        return answer(message, context) if content is None else Message(content, reply_to=message)

    monkeypatch.setattr(app, "client", broken)
    server.add(statistic(wanted=5, schedule=OPEN), OPERATOR)
    run(server, grid)
    assert grid.pushed > 5
    assert reports(server) == 5


@pytest.mark.parametrize("content", [RecordDict(), app._content(offers=[], open=[], said=[])])
def test_what_a_server_says_is_checked(content):
    metadata = Metadata(1, "message", 1, 7, "", "", time.time(), 60.0, "query")
    with pytest.raises(WireError):
        app.client(Message(metadata=metadata, content=content), Context(1, 7, {}, RecordDict(), {}))


def test_a_job_is_answered_by_the_process_of_an_agent(server, tmp_path):
    """As `fedldp agent run --listen` starts it; SIGTERM ends it, and its socket."""
    depot, path = agent_folder.make(tmp_path / "depot", OPERATOR, 5), tmp_path / "socket"
    process = agent_folder.start(depot, "--listen", str(path))
    try:
        wait_until(path.exists)
        assert path.stat().st_mode & 0o777 == 0o660
        server.enroll("flower-7", 5)
        server.add(statistic(wanted=5, schedule=OPEN), OPERATOR)
        run(server, Grid(SimpleNamespace(path=path)))
        assert reports(server) == 5
    finally:
        process.terminate()
        assert process.wait(60) == 0
    assert not path.exists()
    with Ledger(depot / "ledger.db", 4) as ledger:
        assert list(ledger.totals().values()) == [2] * 5


def test_an_agent_has_one_road(tmp_path):
    depot = agent_folder.make(tmp_path / "depot", OPERATOR, 1)
    process = agent_folder.start(depot, "--listen", "a", "--road", "b")
    assert process.wait(60) != 0
    assert "at most one of --road and --listen" in depot.with_suffix(".log").read_text()


def test_a_run_needs_a_server():
    with pytest.raises(DomainError, match="flwr run APP"):
        app.serve(Grid(), Context(1, 0, {}, RecordDict(), {"server": ""}))
