"""Campaigns over a real broker: mosquitto, with TLS and client certificates. `make test-mqtt`."""

import contextlib
import itertools
import json
import os
import random
import re
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from collections import Counter as Counted
from pathlib import Path

import pytest
from campaigns import KEY, asked, packet, sent, store
from click.testing import CliRunner
from mosquitto import PAGE, Mosquitto, free_port

from fedldp import Plan, Schema
from fedldp.budget.ledger import Ledger
from fedldp.budget.vehicle import new_nonce
from fedldp.campaigns import mqtt
from fedldp.campaigns.campaign import utc_now
from fedldp.campaigns.counter import Counter
from fedldp.campaigns.store import Store
from fedldp.cli.app import fedldp

pytestmark = pytest.mark.mqtt

ROOT = Path(__file__).parents[2]
VEHICLES = int(os.environ.get("MQTT_VEHICLES", "10000"))
COUNTERS, POOLS = 3, 3
MOST_KILLS = 10  # of each kind: the rest of the time is for work
PATIENCE = 1800  # seconds
ALONE = (
    VEHICLES // 20
)  # vehicles with a connection of their own; the others share one for each pool
PROGRAM = Path(sys.executable).with_name("fedldp")
HERE = {**os.environ, "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}:/usr/sbin"}


@pytest.fixture
def broker(tmp_path):
    found = Mosquitto(tmp_path / "broker")
    for name in ("server", "car-1", "car-2"):
        found.issue(name)
    with found:
        yield found


def test_the_page_works_when_it_is_followed(tmp_path):
    """All its commands, in order, in an empty folder; only the port is another one."""
    text = re.search(r"(?s)## Try it on one machine\n(.*?)\n## ", PAGE.read_text())[1]
    script = "\n".join(re.findall(r"(?s)```bash\n(.*?)```", text)).replace("8883", str(free_port()))
    done = subprocess.run(
        ["bash", "-eu", "-c", f"trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n{script}\nwait"],
        cwd=tmp_path,
        env=HERE,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 vehicle in tally.json" in done.stdout
    assert "Estimates from 1 vehicle" in done.stdout
    assert (
        Plan.from_json((tmp_path / "plan.json").read_text())
        .load_tally(tmp_path / "tally.json")
        .reports
        == 1
    )


def test_a_vehicle_reads_its_own_acknowledgement_and_campaigns_alone(broker):
    campaign = asked()
    mine, other = new_nonce(), new_nonce()
    with (
        broker.client("server").connect("counter-1") as server,
        broker.client("car-1").connect(mine.hex()) as car,
        broker.client("car-2").connect("spy") as spy,
    ):
        server.subscribe(campaign.shared_answers)
        spy.subscribe("#")
        spy.subscribe(f"$share/counters/{campaign.answers}")
        car.subscribe("fedldp/north/ack/+/+/+")
        server.retain(campaign.topic, b"campaign", 60)
        assert spy.receive(2).payload == b"campaign"
        car.publish(campaign.answers, mine + packet(), certain=True)
        message = server.receive(2)
        assert message.payload[:16] == mine
        server.acknowledge(message)
        for identifier in (other, mine):
            server.publish(campaign.acknowledgement(identifier), b"")
        assert car.receive(2).topic == campaign.acknowledgement(mine)
        assert car.receive(0.5) is None
        assert spy.receive(0.5) is None
    for topic in (campaign.topic, campaign.acknowledgement(mine), "fedldp/south/answers/a/1"):
        with broker.client("car-1").connect("liar") as car:
            car.publish(topic, b"", certain=True)
            with pytest.raises(PermissionError, match="Not authorized"):
                car.receive(2)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of paho-mqtt
def test_a_stranger_without_a_certificate_is_refused(broker):
    stranger = Mosquitto(broker.folder.parent / "stranger")
    stranger.issue("car-1")
    stranger.port = broker.port
    with pytest.raises(OSError, match=r"certificate verify failed|unknown ca|lost"):
        stranger.client("car-1").connect("car")


def test_a_broker_that_sends_more_than_was_asked_for_is_left(monkeypatch):
    """It answers no subscription, and sends until the connection is cut."""
    monkeypatch.setattr(mqtt, "_MOST_WAITING", 1 << 16)
    topic = b"fedldp/north/campaign/spring"
    body = struct.pack(">H", len(topic)) + topic + b"\0" + bytes(10_000)
    message = b"\x30" + bytes([len(body) & 127 | 128, len(body) >> 7]) + body

    def flood(listening):
        link, _ = listening.accept()
        with contextlib.suppress(OSError), link:
            link.recv(1 << 16)
            link.sendall(b"\x20\x03\0\0\0")  # connected
            while True:
                link.sendall(message)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=flood, args=(listening,))
        thread.start()
        host, port = listening.getsockname()
        connection = mqtt.Broker.of(f"mqtt://{host}:{port}").connect("car")
        with pytest.raises(OSError, match="sends more than was asked for"):
            connection.subscribe("fedldp/north/campaign/+")
        connection.close()
        assert connection._waiting <= (1 << 16) + 10_000
        thread.join()


def test_a_counter_gets_from_the_broker_what_it_had_not_acknowledged(broker, tmp_path):
    """It is killed between its commit and the acknowledgements: both are repeated."""
    campaign, mine = asked(issued=utc_now().replace(microsecond=0), hours=1), new_nonce()
    connect = broker.client("server").connect
    with store(tmp_path, campaign) as file:
        connection = connect(file.counter, seconds_kept=60)
        connection.subscribe(campaign.shared_answers)
        with broker.client("car-1").connect(mine.hex()) as car:
            car.subscribe(campaign.acknowledgement(mine))
            car.publish(campaign.answers, mine + packet(), certain=True)
            message = connection.receive(2)
            file.add([message.payload])
            connection._client.socket().close()  # the counter is gone
            assert car.receive(0.5) is None
            turns = itertools.count()
            Counter(file, connect).run(time.sleep, lambda: next(turns) > 3)
            assert car.receive(2).topic == campaign.acknowledgement(mine)
        assert file.received == 1


def test_a_vehicle_without_fedldp_is_counted_once(broker, tmp_path):
    """The example needs the standard library, vehicle.py and paho-mqtt alone."""
    for path in ("examples/mqtt/vehicle_mqtt.py", "src/fedldp/vehicle.py"):
        (tmp_path / Path(path).name).write_text((ROOT / path).read_text())
    settings = {
        "host": "localhost",
        "port": broker.port,
        "authority": str(broker.folder / "ca.crt"),
        "certificate": str(broker.folder / "car-1.crt"),
        "key": str(broker.folder / "car-1.key"),
        "fleet": "north",
        "operator": KEY.public.text,
        "cap": "1.5",
    }
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    (tmp_path / "row.json").write_text('{"speed": 31, "city": "Oslo"}')
    block = "import sys; sys.modules.update(fedldp=None, numpy=None, cryptography=None)"
    words = [
        sys.executable,
        "-c",
        f"{block}; sys.path.insert(0, '.'); import vehicle_mqtt as v; "
        "sys.exit(v.main('settings.json', 'row.json'))",
    ]
    begin = [
        *words[:-1],
        words[-1].replace("'settings.json', 'row.json'", "'init', 'settings.json'"),
    ]
    subprocess.run(begin, cwd=tmp_path, check=True)
    connect = broker.client("server").connect
    texts = [asked(job=job, issued=utc_now().replace(microsecond=0)) for job in ("spring", "late")]
    with store(tmp_path, texts[0]) as file:
        subprocess.run(words, cwd=tmp_path, check=True)  # there is no campaign yet
        spent = []
        for fresh in ([texts[0], asked(job="old")], texts[1:]):
            with connect("server-1") as connection:
                for each in fresh:
                    connection.retain(each.topic, sent(each), 60)
            car = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
            Counter(file, connect).run(time.sleep, lambda: car.poll() is not None)  # noqa: B023
            log = car.communicate()[1]
            assert car.returncode == 0, log
            spent.append(json.loads((tmp_path / "state.json").read_text())["state"]["spent"])
        assert file.received == 1
        assert file.refused == {}
    assert spent == ["1", "1"]
    assert "did not answer fedldp/north/campaign/old" in log
    assert "did not answer fedldp/north/campaign/late: refused: it costs 1.0" in log


# Kills.


class Process:
    """A program that is started again after it was killed."""

    def __init__(self, words, log, **options):
        self._words, self._log, self._options = words, log, options
        self.start()

    def start(self):
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                list(map(str, self._words)), stdout=log, stderr=log, env=HERE, **self._options
            )

    @property
    def ended(self):
        return self.process.poll() is not None

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.start()

    def stop(self):
        if not self.ended:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def answers_of(folder):
    """Return for each vehicle what it has sent, and whether it saw the acknowledgement."""
    path = folder / "cars.db"
    if not path.exists():
        return {}
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as file:
        return {
            car: (payload, bool(seen))
            for car, payload, seen in file.execute(
                "SELECT key, payload, acknowledged FROM campaigns WHERE payload IS NOT NULL"
            )
        }


def test_acknowledged_once_others_at_most_once_and_nobody_spends_twice(tmp_path, request):
    rng = random.Random(1)
    mosquitto = Mosquitto(tmp_path / "broker")
    mosquitto.issue("server")
    for name in ("alone", "pool"):
        mosquitto.issue(name)
    with (mosquitto.folder / "acl").open("a") as acl:
        acl.write("user pool\ntopic read fedldp/north/ack/+/+/+\n")
    request.addfinalizer(lambda: mosquitto.process.kill())
    mosquitto.start()
    server = tmp_path / "server"
    run = CliRunner().invoke
    done = run(
        fedldp, ["campaign", "init", str(server), "--fleet", "north", "--broker", mosquitto.url]
    )
    assert done.exit_code == 0, done.output
    for name in ("ca.crt", "server.crt", "server.key"):
        (server / name).write_bytes((mosquitto.folder / name).read_bytes())
    (mosquitto.folder / "operator.pub").write_bytes((server / "operator.pub").read_bytes())
    schema = Schema.of(speed=(0, 130), city=["Oslo", "Rome", "Lima"])
    (mosquitto.folder / "schema.toml").write_text(schema.to_toml())
    plan = Plan(schema, epsilon=1.0)
    (tmp_path / "plan.json").write_text(plan.to_json())
    words = ["campaign", "publish", str(server), str(tmp_path / "plan.json"), "--job", "spring"]
    assert run(fedldp, words).exit_code == 0
    campaign = server / "spring-1.campaign"

    counters = [
        Process(
            [PROGRAM, "campaign", "count", campaign, "--counter", f"c{number}"],
            tmp_path / f"counter-{number}.log",
        )
        for number in range(COUNTERS)
    ]
    bounds = [0, *(ALONE + (VEHICLES - ALONE) * pool // POOLS for pool in range(POOLS + 1))]
    script, cars, folders = ROOT / "tests/helpers/mqtt_vehicles.py", [], []
    for number, (first, last) in enumerate(itertools.pairwise(bounds)):
        folders.append(tmp_path / f"cars-{number}")
        folders[-1].mkdir()
        words = [folders[-1], mosquitto.folder, mosquitto.url, first, last]
        how = "pool" if number else "alone"
        cars.append(Process([sys.executable, script, *words, how], folders[-1] / "log"))
    kills, until = Counted(), time.monotonic() + PATIENCE
    victims = itertools.cycle(["cars", "broker", "counter"])  # in turn: none may be left out
    try:
        # Some vehicles never see an acknowledgement: the test ends before.
        seen = 0
        while seen < 0.97 * VEHICLES and time.monotonic() < until:
            time.sleep(rng.uniform(2, 8))  # a program that was killed needs a while to start
            victim = next(victims)
            running = [p for p in (counters if victim == "counter" else cars) if not p.ended]
            if kills[victim] < MOST_KILLS and victim == "broker":
                mosquitto.kill()
                time.sleep(rng.uniform(0, 1))
                mosquitto.start()
                kills[victim] += 1
            elif kills[victim] < MOST_KILLS and running:
                rng.choice(running).kill()
                kills[victim] += 1
            with contextlib.suppress(sqlite3.Error):
                seen = sum(ack for folder in folders for _, ack in answers_of(folder).values())
    finally:
        for each in cars:
            each.process.kill()
            each.process.wait()
        for each in counters:
            each.stop()
        mosquitto.kill()
    done = run(
        fedldp,
        [
            "campaign",
            "close",
            str(campaign),
            "--early",
            "--offline",
            "--json",
            "-o",
            str(tmp_path / "tally.json"),
        ],
    )
    assert done.exit_code == 0, done.output
    closed = json.loads(done.stdout)

    sent, acknowledged = {}, set()
    for folder in folders:
        with Ledger(folder / "ledger.db", 1) as ledger:
            totals = ledger.totals()
        assert set(totals.values()) <= {1}
        found = answers_of(folder)
        assert found.keys() <= totals.keys()
        for car, (payload, ack) in found.items():
            sent[payload] = car
            if ack:
                acknowledged.add(payload)
    counted, rows = set(), 0
    for path in server.glob("*.db"):
        with Store(path) as each:
            stored = [identifier + body for identifier, body in each.answers()]
        counted.update(stored)
        rows += len(stored)
    print(
        f"\n{VEHICLES} vehicles; kills: {dict(kills)}; "
        f"acknowledged {len(acknowledged)}, counted {len(counted)}, "
        f"stored by several counters {closed['repeated']}, refused {closed['refused']}"
    )
    assert acknowledged <= counted  # exactly once: the merged set has no duplicates
    assert counted <= set(sent)  # nobody else, and the bytes of the ledgers
    assert closed["vehicles"] == len(counted) == len({payload[:16] for payload in counted})
    assert plan.load_tally(tmp_path / "tally.json").reports == len(counted)
    assert rows - len(counted) == closed["repeated"]
    assert closed["conflicts"] == 0
    assert closed["refused"] == {}
    assert len(acknowledged) >= 0.97 * VEHICLES
    assert kills.keys() == {"broker", "counter", "cars"}
