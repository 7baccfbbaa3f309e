"""`make bench-mqtt`: what a campaign over MQTT costs a vehicle, a counter and a broker.

Needs mosquitto. Bytes are counted on the way between the vehicle and the broker, with TLS and all
of MQTT, without the headers of TCP and IP.
"""

import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pages
from fleet_runs import Forwarder
from pages import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))  # a broker with certificates

from mosquitto import Mosquitto, program

import fedldp
from fedldp import Plan, Schema
from fedldp.budget.ledger import Ledger
from fedldp.campaigns.agent import Agent
from fedldp.campaigns.answers import Accepted, Answers, new_identifier
from fedldp.campaigns.campaign import Campaign, utc_now
from fedldp.campaigns.counter import KEPT, Counter
from fedldp.campaigns.mqtt import Broker
from fedldp.campaigns.store import Store, merge
from fedldp.signing import PrivateKey

TIMES = 3  # each way is measured, and the least is shown: connections may repeat a packet
ANSWERS = 10_000  # for the counter
KEY = PrivateKey.generate()
SIZES = {
    "11 bits": (33, 1),
    "256 bits": (256, None),
}  # numbers in the vector, and how many are sent


class Costs(NamedTuple):
    """What an answer costs a counter."""

    seconds: float  # of a processor: receive, check, store and acknowledge it
    merge: float  # the same, when the round is closed
    disk: float  # bytes


class Bytes(NamedTuple):
    up: int
    down: int


def campaign(name: str, job: str) -> Campaign:
    numbers, k = SIZES[name]
    schema = Schema.vector(numbers, bound=1.0)
    if k is None:
        plan = Plan(schema, 4.0, strategy="cube")
    else:
        plan = Plan(schema, 4.0, mechanism="dominant", k=k, outputs=31)
    issued = utc_now().replace(microsecond=0)
    return Campaign("north", job, 1, plan.to_json(), issued, issued + timedelta(hours=1))


@contextmanager
def counting(mosquitto: Mosquitto, asked: Campaign, folder: Path) -> Iterator[None]:
    """Run a counter, directly at the broker."""
    done = threading.Event()
    with Store(folder / f"{asked.name}.db", asked.signed(KEY)) as store:
        counter = Counter(store, mosquitto.client("server").connect)
        thread = threading.Thread(target=lambda: counter.run(done.wait, done.is_set))
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def overheard(forwarder: Forwarder, begin: float, end: float) -> Bytes:
    return Bytes(forwarder.between(begin, end, True), forwarder.between(begin, end, False))


def vehicle_bytes(mosquitto: Mosquitto, name: str, resumed: bool) -> tuple[Bytes, Bytes]:
    """Return the bytes of a visit that finds a campaign and answers, and of sending once more."""
    visits, again = [], []
    with tempfile.TemporaryDirectory() as text, ExitStack() as stack:
        folder = Path(text)
        forwarder = stack.enter_context(Forwarder(mosquitto.port))
        ledger = stack.enter_context(Ledger.create(folder / "ledger.db", 1000))
        accepted = stack.enter_context(Accepted(folder / "campaigns.db"))
        client = mosquitto.client("car")
        for number in range(TIMES + 1):  # the first one has no session to resume
            asked = campaign(name, f"{secrets.token_hex(4)}-{number}")
            if not resumed:
                client = mosquitto.client("car")
            there = Broker(client.host, forwarder.port, client.context)
            row = {"x": [0.5] * SIZES[name][0]}
            schema = Plan.from_json(asked.plan).schema
            answers = Answers("north", KEY.public, schema, lambda row=row: row, ledger, accepted)
            agent = Agent(answers, there.connect, silence=0.5)
            with counting(mosquitto, asked, folder):
                time.sleep(2.5)  # in which the counter publishes the campaign
                begin = time.monotonic()
                agent.look()
                time.sleep(0.2)
                middle = time.monotonic()
                visits.append(
                    Bytes(*(forwarder.between(begin, middle, up) for up in (True, False)))
                )
                assert not answers.pending()
            if not resumed:
                there = Broker(client.host, forwarder.port, mosquitto.client("car").context)
            with counting(mosquitto, asked, folder):
                time.sleep(1)
                accepted._file.execute(
                    "UPDATE campaigns SET acknowledged = 0 WHERE job = ?", (asked.job,)
                )
                begin = time.monotonic()
                Agent(answers, there.connect).send()
                time.sleep(0.2)
                end = time.monotonic()
                again.append(overheard(forwarder, begin, end))
                accepted._file.execute("UPDATE campaigns SET acknowledged = 1")
            with mosquitto.client("server").connect("server-1") as server:
                server.retain(asked.topic, b"", 0)
    return min(visits[1:], key=sum), min(again[1:], key=sum)


def counter_costs(mosquitto: Mosquitto) -> Costs:
    """Return what an answer costs a counter, commits included."""
    with tempfile.TemporaryDirectory() as text:
        asked = campaign("11 bits", secrets.token_hex(4))
        packet = Plan.from_json(asked.plan).report([{"x": [0.5] * 33}], fedldp.source(1)).to_bytes()
        with Store(Path(text) / "many.db", asked.signed(KEY)) as store:
            connect = mosquitto.client("server").connect
            with connect(store.counter, seconds_kept=KEPT) as connection:
                connection.subscribe(asked.shared_answers)
            with mosquitto.client("car").connect("car") as car:
                for _ in range(ANSWERS):
                    car.publish(asked.answers, new_identifier() + packet, certain=True)
                    car.receive(0)
                while car._client._out_messages:
                    car.receive(0.01)
            begin = time.process_time()
            Counter(store, connect).run(time.sleep, lambda: store.received >= ANSWERS)
            middle = time.process_time()
            store.finish()
            merge([store])
            end = time.process_time()
            store._file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            disk = store.path.stat().st_size
            return Costs(*(each / ANSWERS for each in (middle - begin, end - middle, disk)))


def lost(mosquitto: Mosquitto, messages: int, killed: bool) -> str:
    """Return how many messages for a counter that is away get lost, although all have a PUBACK."""
    client = mosquitto.client("server")
    with client.connect("counter-x", seconds_kept=KEPT) as connection:
        connection.subscribe("fedldp/north/answers/x/1")
    with client.connect("car") as car:
        for _ in range(messages):
            car.publish("fedldp/north/answers/x/1", b"x" * 40, certain=True)
            car.receive(0)
        while car._client._out_messages:  # a PUBACK with an error would raise one here
            car.receive(0.01)
    if killed:
        mosquitto.kill(signal.SIGKILL)
        mosquitto.start()
    found = 0
    with client.connect("counter-x", seconds_kept=KEPT) as connection:
        while (message := connection.receive(1)) is not None:
            connection.acknowledge(message)
            found += 1
    return f"{messages - found:,} of {messages:,}"


def losses(plain: Mosquitto, secure: Mosquitto) -> Table:
    rows = [
        ["as it is installed, and killed", lost(plain, 2_000, killed=True)],
        ["with persistence, saved every 60 s, and killed", lost(secure, 2_000, killed=True)],
        ["as it is installed: its queue is full", lost(plain, 3_000, killed=False)],
    ]
    title = "Messages for a counter that is away, all acknowledged with success by mosquitto"
    return Table(title, ("mosquitto", "lost"), rows)


def measure() -> list[Table]:
    vehicles: list[list[str]] = []
    with tempfile.TemporaryDirectory() as text:
        plain = Mosquitto(Path(text) / "plain", tls=False)
        secure = Mosquitto(Path(text) / "secure")
        for name in ("server", "car"):
            secure.issue(name)
        with (secure.folder / "acl").open("a") as acl:  # for the tables below the first
            acl.write("user server\ntopic readwrite fedldp/north/answers/#\n")
        with plain, secure:
            for name in SIZES:
                asked = campaign(name, "size").signed(KEY)
                for how, broker, resumed in (
                    ("without TLS", plain, False),
                    ("TLS, a new session", secure, False),
                    ("TLS, resumed", secure, True),
                ):
                    visit, again = vehicle_bytes(broker, name, resumed)
                    cells = (f"{each:,}" for each in (*visit, *again))
                    vehicles.append([f"{name}, {how}", f"{len(asked):,}", *cells])
            costs = min(counter_costs(secure) for _ in range(TIMES))
            table = losses(plain, secure)
    flower = [  # docs/fleet.md, `make bench-fleet`
        ["11 bits, Flower, a gateway for this vehicle", "", "10,778", "7,302", "", ""],
        ["11 bits, Flower, 10,000 behind a gateway", "", "2.4", "0.75", "", ""],
    ]
    rate = [
        f"{1e6 * costs.seconds:.0f} µs",
        f"{1 / costs.seconds:,.0f}",
        f"{costs.disk:.0f} bytes",
        f"{1e6 * costs.merge:.1f} µs",
    ]
    return [
        Table(
            "Bytes of one vehicle and campaign",
            (
                "record and connection",
                "campaign as text",
                "visit, up",
                "visit, down",
                "again, up",
                "again, down",
            ),
            [*vehicles, *flower],
        ),
        Table(
            "One counter, with TLS, on one core",
            ("an answer", "processor time", "answers a second", "on disk", "to merge it"),
            [["11 bits", *rate]],
        ),
        table,
    ]


def main() -> None:
    parser = pages.options(__doc__ or "")
    chosen = parser.parse_args()
    version = subprocess.run([program(), "-h"], capture_output=True, text=True, check=False)
    broker = version.stdout.partition("\n")[0].replace(" version", "")
    where = f"{pages.machine('paho-mqtt')}, {broker}; {pages.busy()}"
    pages.publish("mqtt", measure(), where, chosen.write)


if __name__ == "__main__":
    main()
