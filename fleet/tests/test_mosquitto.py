"""The MQTT road with a real broker, TLS and client certificates: `make test-mqtt`."""

import contextlib
import dataclasses
import itertools
import os
import random
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from engine_cases import OPERATOR, PLAN, statistic, training
from fleet_server import OPEN, running
from mosquitto_broker import PAGE, Mosquitto, free_port
from mqtt_cases import LOT, TOPICS, agent_of, end, visit_until_answered, wait_until
from server_process import ServerProcess

from fedldp import Ledger, Plan, Schema
from fedldp.results.tally import from_json
from fedldp_fleet.agent.mqtt import MQTTRoad
from fedldp_fleet.agent.roads import RoadError
from fedldp_fleet.jobs import StatisticJob
from fedldp_fleet.messages import Call
from fedldp_fleet.mqtt import Message
from fedldp_fleet.store.base import DONE

pytestmark = pytest.mark.mqtt

VEHICLES = int(os.environ.get("MQTT_VEHICLES", "300"))
POOLS, ROUNDS = 3, 4
MOST_KILLS = 10  # of each kind: the rest of the time is for work
PATIENCE_SECONDS = 1800
SCRIPT = Path(__file__).parent / "helpers/mqtt_vehicles.py"
PATHS = [str(SCRIPT.parent), str(SCRIPT.parents[3] / "tests/helpers")]


@pytest.fixture
def broker(tmp_path):
    with Mosquitto(tmp_path / "broker", "car-1", "car-2") as found:
        yield found


@pytest.fixture
def server(tmp_path, broker):
    folder = tmp_path / "server"
    folder.mkdir()
    connect = broker.client("server").connect
    with running(folder, operator=OPERATOR, connect=connect) as found:
        assert found.mqtt.ready.wait(60)
        yield found


@pytest.fixture
def agents(broker):
    made = []

    def make(name):
        made.append(agent_of(broker.client(name), name))
        return made[-1]

    yield make
    end(made)


@pytest.mark.parametrize("schedule", [OPEN, LOT], ids=["call", "lot"])
def test_vehicles_answer_a_statistic(server, agents, schedule):
    for name in ("car-1", "car-2"):
        server.enroll(name)
    server.add(statistic(wanted=2, schedule=schedule))
    server.tick()
    for name in ("car-1", "car-2"):
        agent = agents(name)
        visit_until_answered(agent)
        assert agent.outbox.counts() == {"spring": {"counted": 1}}
    wait_until(lambda: server.tick() or server.job("spring").state == DONE)
    assert from_json(server.job("spring").result, PLAN).reports == 2


def test_an_agent_can_neither_write_as_another_nor_read_what_others_are_told(broker):
    spy = broker.client("car-2").connect("spy")
    spy.subscribe("#")
    server = broker.client("server").connect("server-1")
    server.subscribe(TOPICS.asks, certain=True)
    server.retain(Message(TOPICS.open, b"told"))
    [told] = spy.receive(30)
    assert (told.topic, told.payload) == (TOPICS.open, b"told")
    car = broker.client("car-1").connect("car-1")
    car.subscribe(TOPICS.reply("car-1"))
    car.publish(Message(TOPICS.ask("call", "car-1", "car-1"), b"mine"), certain=True)
    for topic in (
        TOPICS.ask("answer", "car-2", "car-1"),
        TOPICS.ask("answer", "car-1", "car-2"),
        TOPICS.reply("car-1"),
        TOPICS.open,
    ):
        with pytest.raises(PermissionError, match="refuses messages"):
            car.publish(Message(topic, b"not mine"), certain=True)
    [asked] = server.receive(30)
    assert asked.payload == b"mine"
    server.acknowledge(asked)
    server.publish(Message(TOPICS.reply("car-1"), b"reply"))
    server.receive(0)
    [reply] = car.receive(30)
    assert reply.payload == b"reply"
    server.retain(Message(TOPICS.open, b"later"))
    assert [each.payload for each in spy.receive(30)] == [b"later"]  # no reply came before it
    for each in (spy, server, car):
        each.close()


def test_an_unknown_agent_is_unwelcome(server, agents):
    server.add(statistic(schedule=OPEN))
    server.tick()
    agent = agents("car-1")
    wait_until(lambda: agent.visit() is None or agent.told)
    assert "does not know this agent" in agent.told[-1]
    assert agent.spent() == 0


def test_a_stranger_without_a_certificate_is_refused(broker, tmp_path):
    stranger = Mosquitto(tmp_path / "stranger", "car-1")
    stranger.port = broker.port
    road = MQTTRoad(TOPICS, "car-1", "car-1", stranger.client("car-1").connect)
    with pytest.raises(RoadError, match=r"certificate verify failed|unknown ca|closed|EOF"):
        road.call(Call({}))


def test_a_broker_tells_how_long_retained_messages_remain(broker):
    server = broker.client("server").connect("server-1")
    server.retain(Message(TOPICS.open, b"told", seconds=1000))
    car = broker.client("car-1").connect("car-1")
    car.subscribe(TOPICS.open)
    [told] = car.receive(30)
    assert 0 < told.seconds <= 1000
    for each in (server, car):
        each.close()


# Kills


class Process:
    """A program that is started again after it was killed."""

    def __init__(self, log, *words):
        self._log, self._words = log, [str(each) for each in words]
        self.start()

    def start(self):
        with self._log.open("ab") as log:
            environment = os.environ | {"PYTHONPATH": ":".join(PATHS), "OMP_NUM_THREADS": "1"}
            self.process = subprocess.Popen(self._words, stdout=log, stderr=log, env=environment)

    def kill(self):
        self.process.kill()
        self.process.wait()


def outbox_of(folder):
    """Return the answers that a vehicle has drawn: job, round and identifier, and the verdict."""
    with contextlib.closing(
        sqlite3.connect(f"file:{folder / 'outbox.db'}?mode=ro", uri=True)
    ) as db:
        query = "SELECT job, round, identifier, verdict FROM entries WHERE drawn"
        return {row[:3]: row[3] for row in db.execute(query)}


def test_answers_count_once_and_acknowledged_ones_always_whatever_is_killed(tmp_path, request):
    random_source = random.Random(1)
    broker = Mosquitto(tmp_path / "broker", "pool")
    broker.start()
    request.addfinalizer(broker.kill)
    keys = {f"broker_{name}": str(path) for name, path in broker.keys("server").items()}
    server = ServerProcess(tmp_path / "server", broker=broker.url, **keys)
    server.enroll("pool", VEHICLES)
    OPERATOR.public.save(tmp_path / "operator.pub")
    quick = {"answer_seconds": 10.0, "round_seconds": 60.0}
    group = VEHICLES // (2 * ROUNDS)
    lot, called = (dataclasses.replace(each, **quick) for each in (LOT, OPEN))
    server.add(statistic(wanted=VEHICLES, schedule=lot), OPERATOR)
    server.add(training(rounds=ROUNDS, group=group, schedule=called), OPERATOR)
    server.start()
    request.addfinalizer(server.stop)
    bounds = [VEHICLES * each // POOLS for each in range(POOLS + 1)]
    pools = [
        Process(
            tmp_path / f"pool-{first}.log",
            *(sys.executable, SCRIPT, tmp_path / "cars", broker.folder, broker.url),
            *(tmp_path / "operator.pub", first, last, "spring", "learn"),
        )
        for first, last in itertools.pairwise(bounds)
    ]
    for each in pools:
        request.addfinalizer(each.kill)
    kills, until = Counter(), time.monotonic() + PATIENCE_SECONDS
    victims = itertools.cycle(["pool", "broker", "server"])  # in turn: none may be left out

    def have_ended():
        return all(server.job(name).state == DONE for name in ("spring", "learn"))

    while not have_ended():
        assert time.monotonic() < until, logs(tmp_path)
        assert all(each.process.poll() is None for each in pools), logs(tmp_path)
        time.sleep(random_source.uniform(1, 5))
        victim = next(victims)
        if kills[victim] >= MOST_KILLS:
            continue
        kills[victim] += 1
        if victim == "pool":
            chosen = random_source.choice(pools)
            chosen.kill()
            chosen.start()
        elif victim == "broker":
            broker.kill()
            time.sleep(random_source.uniform(0, 1))
            broker.start()
        else:
            server.kill()
            server.start()
    for each in pools:
        each.kill()
    server.stop()

    drawn, spent = {}, []
    for folder in (tmp_path / "cars").iterdir():
        drawn |= outbox_of(folder)
        with Ledger(folder / "ledger.db", 4) as ledger:
            spent.append(sum(ledger.totals().values()))
    with contextlib.closing(sqlite3.connect(server.path / "server.db")) as database:
        stored = set(database.execute("SELECT job, round, identifier FROM answers"))
        uncounted = dict(database.execute("SELECT reason, SUM(vehicles) FROM uncounted GROUP BY 1"))
    acknowledged = {answer for answer, verdict in drawn.items() if verdict == 0}
    counts = Counter(job for job, _, _ in stored)
    print(
        f"\n{VEHICLES} vehicles; kills: {dict(kills)}; answers counted: {dict(counts)}, "
        f"drawn: {len(drawn)}, acknowledged: {len(acknowledged)}, not counted: {uncounted}"
    )
    assert acknowledged <= stored <= drawn.keys()
    assert counts["spring"] == VEHICLES
    assert 0 < counts["learn"] <= ROUNDS * group  # a round may have ended before all came back
    assert from_json(server.job("spring").result, PLAN).reports == VEHICLES
    assert set(uncounted) <= {"late"}
    assert sum(spent) == 2 * len(drawn)  # nobody pays twice
    assert max(spent) <= 4
    assert len(drawn) - len(stored) <= max(2, 0.005 * len(drawn))  # hardly anybody in vain
    assert kills.keys() == {"broker", "server", "pool"}


def logs(folder):
    return "\n".join(path.read_text()[-3000:] for path in folder.rglob("*log"))


def test_the_page_works_when_it_is_followed(tmp_path):
    """All its commands, in order, in an empty folder; only the ports are others."""
    text = re.search(r"(?s)## Try it on one machine\n(.*?)\n## ", PAGE.read_text())[1]
    script = "\n".join(re.findall(r"(?s)```bash\n(.*?)```", text))
    script = script.replace("8883", str(free_port())).replace("8443", str(free_port()))
    script = script.replace(" --listen", f" --page 127.0.0.1:{free_port()} --listen")
    paths = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"
    done = subprocess.run(
        ["bash", "-eu", "-c", f"trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n{script}\nwait"],
        cwd=tmp_path,
        env=os.environ | {"PATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr + logs(tmp_path)
    assert "Estimates from 1 vehicle" in done.stdout
    plan = Plan.from_json((tmp_path / "plan.json").read_text())
    assert plan.load_tally(tmp_path / "tally.json").reports == 1


def test_a_device_answers_as_the_example_has_it(broker, tmp_path):
    """It has the standard library and fedldp-vehicle alone, and is run until it is acknowledged."""
    keys = {f"broker_{name}": str(path) for name, path in broker.keys("server").items()}
    server = ServerProcess(tmp_path / "server", broker=broker.url, **keys)
    server.enroll("car-1")
    example = PAGE.parents[2] / "examples/mqtt"
    for path in example.glob("*[!md]"):
        shutil.copy(path, tmp_path)
    OPERATOR.public.save(tmp_path / "operator.pub")
    for path in broker.keys("car-1").values():
        shutil.copy(path, tmp_path)
    block = "import sys; sys.modules.update(fedldp=None, numpy=None, cryptography=None)"
    program = f"{block}; from fedldp_vehicle.command import main; main()"
    commands = re.findall(
        r"    fedldp-vehicle ((?:.*\\\n)*.*)\n", (example / "README.md").read_text()
    )
    join, run = (shlex.split(each.replace("\\\n", " ")) for each in commands)
    join[2] = broker.url
    schema = Schema.of(speed=(0, 130), city=["Oslo", "Rome", "Lima"])
    plan = Plan(schema, 1.0)
    quick = dataclasses.replace(LOT, answer_seconds=1.0)
    server.add(StatisticJob("spring", plan, 1, quick), OPERATOR)
    server.start()
    try:
        environment = os.environ | {"PYTHONPATH": "."}

        def status(*words):
            command = [sys.executable, "-c", program, *words]
            return subprocess.run(command, cwd=tmp_path, env=environment).returncode

        assert status(*join) == 0
        wait_until(lambda: status(*run) == 0 and server.job("spring").state == DONE, 300)
        broker.kill()
        assert status(*run) == 4
        broker.start()
    finally:
        server.stop()
    assert from_json(server.job("spring").result, plan).reports == 1


def test_commands_join_a_broker_and_answer(broker, tmp_path):
    """As docs/how-to/mqtt.md has it: a server with a broker, an agent with its certificate."""
    keys = {f"broker_{name}": str(path) for name, path in broker.keys("server").items()}
    path = tmp_path / "server"
    server = ServerProcess(path, broker=broker.url, vehicles_per_certificate=1, **keys)
    OPERATOR.public.save(tmp_path / "operator.pub")
    (tmp_path / "rows.csv").write_text("speed,load,late\n31,0.5,yes\n")
    schema = "speed = {low = 0, high = 50}\nload = {low = 0, high = 1}\n"
    (tmp_path / "schema.toml").write_text(schema)
    fedldp = [sys.executable, "-m", "fedldp", "agent"]
    options = ["--cap", "4", "--operator", "operator.pub", "--data", "rows.csv"]
    options += ["--schema", "schema.toml"]
    subprocess.run([*fedldp, "init", "car", *options], cwd=tmp_path, check=True)
    paths = itertools.chain(*((f"--{name}", path) for name, path in broker.keys("car-1").items()))
    given = [str(each) for each in paths]
    given[0] = "--ca"
    server.add(statistic(wanted=1, schedule=OPEN), OPERATOR)
    server.start()
    agent = None
    try:
        join = [*fedldp, "join", "car", broker.url, "--name", "car-1", *given]
        subprocess.run(join, cwd=tmp_path, check=True)
        agent = subprocess.Popen([*fedldp, "run", "car"], cwd=tmp_path)
        wait_until(lambda: server.job("spring").state == DONE)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(60) == 0
    finally:
        if agent is not None:
            agent.kill()
        server.stop()
    assert (tmp_path / "car/network/key.pem").stat().st_mode & 0o777 == 0o600
    assert from_json(server.job("spring").result, PLAN).reports == 1
