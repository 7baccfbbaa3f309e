"""`make bench-mqtt`: what the MQTT road costs a vehicle and a server.

Needs mosquitto. Bytes are counted on the way between the vehicle and the broker, with TLS and all
of MQTT, without the headers of TCP and IP. Processor time is that of the server's process: it
receives, checks, stores and acknowledges answers.
"""

import asyncio
import contextlib
import dataclasses
import multiprocessing
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pages
from pages import Table

from fedldp.plan.strategies import Sample

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))
sys.path.insert(0, str(Path(__file__).parents[1] / "fleet/tests/helpers"))

from fleet_server import OPEN, FleetServer, running
from mosquitto_broker import Mosquitto, program

import fedldp
from fedldp import Ledger, Plan, Schema
from fedldp_fleet.agent.loop import Agent
from fedldp_fleet.agent.mqtt import MQTTRoad
from fedldp_fleet.agent.one import OneVehicle
from fedldp_fleet.agent.outbox import Outbox
from fedldp_fleet.jobs import StatisticJob
from fedldp_fleet.messages import Answer
from fedldp_fleet.mqtt import Broker, BrokerConnection, Message, published
from fedldp_fleet.server.desk import Desk
from fedldp_fleet.server.documents import Documents
from fedldp_fleet.server.guard import Guard
from fedldp_fleet.server.mqtt import MQTTServer
from fedldp_fleet.topics import Topics

TIMES = 3  # each is measured, and the least is shown
ANSWERS = 10_000  # for the server
AT_ONCE = 500  # answers on their way
TOPICS = Topics("north")
SIZES = {"11 bits": (33, 1), "256 bits": (256, None)}  # numbers in the vector, how many are sent
QUICK = dataclasses.replace(OPEN, answer_seconds=0.1)
ORDERS = {
    "call": QUICK,
    "lot": dataclasses.replace(QUICK, order="lot"),
}


class Costs(NamedTuple):
    """What an answer costs a server."""

    seconds: float  # of a processor
    disk: float  # bytes


class Bytes(NamedTuple):
    up: int
    down: int


def plan_of(name: str) -> Plan:
    numbers, k = SIZES[name]
    schema = Schema.vector(numbers, bound=1.0)
    if k is None:
        return Plan(schema, 4.0, strategy="cube")
    return Plan(schema, 4.0, Sample(k=k, mechanism="dominant", outputs=31))


class Forwarder:
    """A way to a port of this machine, on which bytes are counted."""

    def __init__(self, target: int) -> None:
        self._target, self._listening = target, socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.up = self.down = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listening.accept()
                there = socket.create_connection(("127.0.0.1", self._target))
                for ends in ((here, there, "up"), (there, here, "down")):
                    threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                setattr(self, way, getattr(self, way) + len(data))
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listening.close()


def visit_bytes(mosquitto: Mosquitto, name: str, order: str, resumed: bool) -> Bytes:
    """Return the bytes with which a vehicle finds a job, answers and is acknowledged."""
    found = []
    forwarder = Forwarder(mosquitto.port)
    client = mosquitto.client("car")
    with tempfile.TemporaryDirectory() as text:
        connect = mosquitto.client("server").connect
        with running(Path(text), tls=False, connect=connect) as server:
            server.enroll("car")
            for number in range(TIMES + 1):  # the first one has no session to resume
                if not resumed:
                    client = mosquitto.client("car")
                there = Broker(client.host, forwarder.port, client.context, client.session)
                job = f"{secrets.token_hex(4)}-{number}"
                server.add(StatisticJob(job, plan_of(name), 1, ORDERS[order]))
                server.tick()
                wait_until_told(mosquitto, job)
                found.append(one_visit(server, there, forwarder, Path(text), name))
                client.session = there.session
                wait_until_done(server, job)
    forwarder.close()
    return min(found[1:], key=sum)


def one_visit(
    server: FleetServer, there: Broker, forwarder: Forwarder, folder: Path, name: str
) -> Bytes:
    row = {"x": [0.5] * SIZES[name][0]}
    with tempfile.TemporaryDirectory(dir=folder) as text:
        ledger = Ledger.create(Path(text) / "ledger.db", 1000)
        outbox = Outbox(Path(text) / "outbox.db")
        road = MQTTRoad(TOPICS, "car", "car", there.connect)
        agent = Agent(road, OneVehicle(ledger, lambda: row), ledger, outbox, server.operator.public)
        before = forwarder.up, forwarder.down
        while not outbox.counts():
            agent.visit()
        road.close()
        time.sleep(0.2)  # in which the last bytes arrive
        after = forwarder.up, forwarder.down
        outbox.close()
        ledger.close()
    return Bytes(after[0] - before[0], after[1] - before[1])


def wait_until_told(mosquitto: Mosquitto, job: str) -> None:
    with mosquitto.client("server").connect("looks") as connection:
        connection.subscribe(TOPICS.open)
        while not any(job.encode() in message.payload for message in connection.receive(1)):
            pass


def wait_until_done(server: FleetServer, job: str) -> None:
    """A round of a lot that is full closes later: the next job must be alone."""
    with server.store.transaction() as store:
        server.engine.tick(store, time.time() + 60)
    assert server.job(job).state == "done"


def server_costs(mosquitto: Mosquitto) -> Costs:
    """Return what an answer costs a server, transactions included."""
    with tempfile.TemporaryDirectory() as text:
        server = FleetServer(Path(text), tls=False)
        server.enroll("car", 1 << 20)
        plan = plan_of("11 bits")
        server.add(StatisticJob("spring", plan, 2 * ANSWERS, OPEN))
        seconds = asyncio.run(_served(mosquitto, server, plan))
        server.store.close()
        disk = sum(path.stat().st_size for path in Path(text).glob("server.db"))
        return Costs(seconds / ANSWERS, disk / ANSWERS)


async def _served(mosquitto: Mosquitto, server: FleetServer, plan: Plan) -> float:
    guard = Guard()
    desk = Desk(server.store, server.engine, guard)
    await desk.tick()
    [opened] = server.rounds("spring")
    report = plan.report([{"x": [0.5] * 33}], fedldp.source(1)).to_bytes()
    road = MQTTServer(
        desk, Documents(server.store), TOPICS, mosquitto.client("server").connect, "server-1"
    )
    road.start()
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, road.ready.wait)
    given = (mosquitto.folder, mosquitto.url, opened.digest, report)
    sender = multiprocessing.get_context("spawn").Process(target=send, args=given)
    sender.start()
    begin = time.process_time()
    await loop.run_in_executor(None, sender.join)
    seconds = time.process_time() - begin
    await road.stop()
    await desk.close()
    with server.store.reading() as store:
        assert store.answered("spring", 1) == ANSWERS
    return seconds


def send(folder: Path, url: str, question: bytes, report: bytes) -> None:
    """Send answers as agents do, each confirmed by the broker, and wait for acknowledgements."""
    keys = (folder / name for name in ("ca.crt", "car.crt", "car.key"))
    connection = BrokerConnection(Broker.of(url, *keys), "car")
    connection.subscribe(TOPICS.reply("car"))
    topic, sent, acknowledged = TOPICS.ask("answer", "car", "car"), 0, 0
    while acknowledged < ANSWERS:
        while sent < ANSWERS and sent - acknowledged < AT_ONCE:
            answer = Answer("spring", 1, question, os.urandom(16), 1, report, bits=11)
            sent += 1
            body = published(Message(topic, answer.to_bytes()), sent)
            connection._put(0x32, body)  # without waiting for each confirmation
        acknowledged += len(connection.receive(5))
    connection.close()


def measure() -> list[Table]:
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as text:
        plain = Mosquitto(Path(text) / "plain", tls=False)
        secure = Mosquitto(Path(text) / "secure", "car")
        with plain, secure:
            for name in SIZES:
                for order in ORDERS:
                    for how, broker, resumed in (
                        ("without TLS", plain, False),
                        ("TLS, a new session", secure, False),
                        ("TLS, resumed", secure, True),
                    ):
                        found = visit_bytes(broker, name, order, resumed)
                        rows.append([name, order, how, *(f"{each:,}" for each in found)])
            costs = min(server_costs(secure) for _ in range(TIMES))
    rate = [
        f"{1e6 * costs.seconds:.0f} µs",
        f"{1 / costs.seconds:,.0f}",
        f"{costs.disk:.0f} bytes",
    ]
    return [
        Table(
            "Bytes of one vehicle that finds a job and answers",
            ("record", "order", "connection", "up", "down"),
            rows,
            words=3,
        ),
        Table(
            "One server, with TLS, on one core",
            ("an answer", "processor time", "answers a second", "on disk"),
            [["11 bits", *rate]],
        ),
    ]


def main() -> None:
    parser = pages.options(__doc__ or "")
    chosen = parser.parse_args()
    version = subprocess.run([program(), "-h"], capture_output=True, text=True, check=False)
    broker = version.stdout.partition("\n")[0].replace(" version", "")
    pages.publish("mqtt", measure(), f"{pages.machine()}, {broker}; {pages.busy()}", chosen.write)


if __name__ == "__main__":
    main()
