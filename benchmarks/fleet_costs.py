"""`make bench-fleet-costs`: what a vehicle's answer costs the server, its database and its proxy.

Real server processes, a real PostgreSQL and a real nginx that ends TLS. Each vehicle calls,
announces and answers on a connection that is kept. Times are those of processors, read from /proc.
What is measured is written to benchmarks/fleet_costs.json, from which `ten_million.py` computes.
"""

import asyncio
import json
import os
import random
import socket
import sqlite3
import ssl
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import mqtt
import pages
from pages import Table
from visits import SECRET, CountedConnection, visit

sys.path.insert(0, str(Path(__file__).parents[1] / "fleet/tests/helpers"))

from engine_cases import OPERATOR, START, answer_to, prepared, statistic
from fleet_server import OPEN
from postgresql_server import PostgreSQLServer
from proxied_fleet import ProxiedFleet
from server_process import HOST, free_port, wait_until

from fedldp_fleet.messages import Call
from fedldp_fleet.questions import Question
from fedldp_fleet.server.desk import MOST_AT_ONCE, KnownJobs
from fedldp_fleet.store.base import Member
from fedldp_fleet.store.postgresql import PostgreSQLStore

VEHICLES, CONNECTIONS, HANDSHAKES = 3000, 64, 1500
CONSTANTS = Path(__file__).with_name("fleet_costs.json")
FORMAT = "fedldp fleet costs 1"


class Costs(NamedTuple):
    """What each vehicle costs: microseconds of processors, and bytes."""

    server: float
    database: float
    proxy: float
    up: float
    down: float
    stored: float


def seconds_of(process: int) -> float:
    """Return how long a process and those that it started have computed."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(seconds_of(int(each)) for each in children)


@contextmanager
def running(processes: int, database: PostgreSQLServer | None) -> Iterator[ProxiedFleet]:
    """Run a server with agents that have joined, and a job that wants all of their answers."""
    with tempfile.TemporaryDirectory() as folder:
        url = "" if database is None else database.make_database(f"costs-{random.getrandbits(40)}")
        fleet = ProxiedFleet(Path(folder, "server"), url, processes)
        with closing(fleet.folder.store()) as store, store.transaction() as inside:
            for number in range(VEHICLES):
                inside.set_member(Member(f"car-{number}", 1, SECRET))
        fleet.add(statistic(wanted=VEHICLES, schedule=OPEN), OPERATOR)
        try:
            fleet.start()
            wait_until(lambda: fleet.job("spring").state == "running")
            yield fleet
        finally:
            fleet.stop()


def measure(processes: int, database: PostgreSQLServer | None) -> Costs:
    """Return what a vehicle costs with some processes."""
    with running(processes, database) as fleet:
        watched = {
            "server": [each.process.pid for each in fleet.processes],
            "database": [] if database is None else [database.process.pid],
            "proxy": [fleet.nginx.pid],
        }

        def seconds() -> dict[str, float]:
            return {name: sum(map(seconds_of, some)) for name, some in watched.items()}

        async def all_visits() -> list[CountedConnection]:
            return await asyncio.gather(
                *(visits(range(first, VEHICLES, CONNECTIONS)) for first in range(CONNECTIONS))
            )

        async def visits(numbers: Iterable[int]) -> CountedConnection:
            connection, asked = await CountedConnection.to(fleet.port, fleet.context), None
            for number in numbers:
                asked = await visit(connection, f"car-{number}", "spring", asked, b"")
            connection.close()
            return connection

        before, size = seconds(), stored_bytes(fleet, database)
        connections = asyncio.run(all_visits())
        after = seconds()
        wait_until(lambda: fleet.job("spring").state == "done")
        spent = {name: 1e6 * (after[name] - before[name]) / VEHICLES for name in before}
        up, down = (sum(getattr(each, way) for each in connections) for way in ("up", "down"))
        stored = (stored_bytes(fleet, database) - size) / VEHICLES
        return Costs(**spent, up=up / VEHICLES, down=down / VEHICLES, stored=stored)


def stored_bytes(fleet: ProxiedFleet, database: PostgreSQLServer | None) -> float:
    """Return what answers, and what agents have used, take on disk, with their indexes."""
    if database is None:
        with closing(sqlite3.connect(fleet.path / "server.db")) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return float((fleet.path / "server.db").stat().st_size)
    name = fleet.folder.database.rpartition("/")[2]
    tables = "pg_total_relation_size('fedldp.answers') + pg_total_relation_size('fedldp.used')"
    return float(database.execute(name, f"SELECT {tables}"))


def handshake_cost() -> tuple[float, float]:
    """Return what a TLS handshake costs a proxy: microseconds, and bytes in both directions."""
    with running(1, None) as fleet:
        before, total = seconds_of(fleet.nginx.pid), 0
        for _ in range(HANDSHAKES):
            total += handshake_bytes(fleet)
        return 1e6 * (seconds_of(fleet.nginx.pid) - before) / HANDSHAKES, total / HANDSHAKES


def handshake_bytes(fleet: ProxiedFleet) -> int:
    """Make a connection; return how many bytes its handshake took in both directions."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = fleet.context.wrap_bio(incoming, outgoing, server_hostname=HOST)
    total = 0
    with socket.create_connection((HOST, fleet.port)) as plain:
        while True:
            try:
                tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            sent = outgoing.read()
            plain.sendall(sent)
            total += len(sent)
            if done:
                return total
            received = plain.recv(1 << 16)
            total += len(received)
            incoming.write(received)


def lock_cost(database: PostgreSQLServer) -> float:
    """Return for how long a vehicle holds the lock of all processes, in microseconds.

    Its call and its answer are in transactions with those of many others.
    """
    with closing(PostgreSQLStore(database.make_database("lock"))) as store:
        machine = prepared(store, statistic(wanted=VEHICLES), agents=VEHICLES)
        with store.reading() as inside:
            opened = inside.round("spring", 1)
            if opened is None:
                raise RuntimeError("the round is not open")
            asked = Question.from_bytes(inside.question(opened.digest) or b"")
        names = [f"agent-{number}" for number in range(VEHICLES)]
        answers = [answer_to(asked, name) for name in names]
        parsed = machine.parse(KnownJobs(store), answers)
        before = time.process_time() + seconds_of(database.process.pid)
        for first in range(0, VEHICLES, MOST_AT_ONCE):
            some = range(first, min(first + MOST_AT_ONCE, VEHICLES))
            with store.transaction() as inside:
                inside.expect([names[each] for each in some], [])
                for each in some:
                    machine.call(inside, names[each], Call({"spring": 1}), START)
            keys = [(answers[n].job, answers[n].round, answers[n].identifier) for n in some]
            with store.transaction() as inside:
                inside.expect([names[each] for each in some], keys)
                for each in some:
                    machine.deliver(inside, names[each], answers[each], parsed[each], START)
        spent = time.process_time() + seconds_of(database.process.pid) - before
        return 1e6 * spent / VEHICLES


def member_bytes() -> float:
    """Return what an enrolled agent takes in the memory of each process."""
    tracemalloc.start()
    held = {
        name.encode(): Member(name, 1, os.urandom(32))
        for name in (f"car-{number}" for number in range(10 * VEHICLES))
    }
    size = tracemalloc.get_traced_memory()[0] / len(held)
    tracemalloc.stop()
    return size


def broker_costs() -> tuple[float, float]:
    """Return what an answer over MQTT costs the broker and the server, in microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        broker = mqtt.Mosquitto(Path(folder) / "broker", "car")
        with broker:
            before = seconds_of(broker.process.pid)
            server = mqtt.server_costs(broker).seconds
            return 1e6 * (seconds_of(broker.process.pid) - before) / mqtt.ANSWERS, 1e6 * server


def main() -> None:
    parser = pages.options(__doc__ or "")
    parser.add_argument("--constants", type=Path, default=CONSTANTS, metavar="FILE")
    chosen = parser.parse_args()
    with ExitStack() as opened:
        database = PostgreSQLServer(free_port()).start()
        opened.callback(database.stop)
        found = {
            "SQLite": measure(1, None),
            "PostgreSQL": measure(1, database),
            "PostgreSQL, two processes": measure(2, database),
            "PostgreSQL, four processes": measure(4, database),
        }
        handshake, handshake_size = handshake_cost()
        lock = lock_cost(database)
    broker, over_mqtt = broker_costs()
    one = found["PostgreSQL"]
    rows = [
        [
            name,
            *(f"{each:,.0f}" for each in costs),
            f"{(costs.server + costs.database) / (one.server + one.database):.2f}",
        ]
        for name, costs in found.items()
    ]
    headings = ("store", "server, µs", "database, µs", "proxy, µs", "up", "down", "stored", "ratio")
    table = Table("Each vehicle: call, announcement, answer", headings, rows)
    where = f"{pages.machine('uvicorn', 'psycopg')}; {pages.busy()}"
    pages.publish("fleet-costs", [table], where, chosen.write)
    document: dict[str, Any] = {
        "format": FORMAT,
        "machine": where,
        "handshake_microseconds": handshake,
        "handshake_bytes": handshake_size,
        "lock_microseconds": lock,
        "broker_microseconds": broker,
        "server_over_mqtt_microseconds": over_mqtt,
        "member_bytes": member_bytes(),
        "stores": {name: costs._asdict() for name, costs in found.items()},
    }
    chosen.constants.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
