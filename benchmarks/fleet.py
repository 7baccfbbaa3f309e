"""`make bench-fleet`: what answers over HTTPS cost the server, and what an agent of many costs.

Times are those of processors, read from /proc: other work on the machine hardly changes them. Each
figure stands beside one that was measured in the same run: a handler of Starlette that only stores
what it gets, and a server of OpenSSL that only shakes hands.
"""

import asyncio
import contextlib
import http.client
import os
import queue
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pages
from pages import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "fleet/tests/helpers"))

from engine_cases import OPERATOR, PLAN, ROWS, answer_to, statistic, training
from fleet_server import OPEN
from holders import answered, held, statistic_of
from road_client import authentic
from server_process import HOST, ServerProcess, free_port, wait_until
from visits import SECRET, CountedConnection, visit

import fedldp
from fedldp.budget.ledger import create
from fedldp_fleet.agent import https
from fedldp_fleet.agent.loop import Agent
from fedldp_fleet.agent.one import OneVehicle
from fedldp_fleet.agent.outbox import Outbox
from fedldp_fleet.questions import Question
from fedldp_fleet.server import members
from fedldp_fleet.store.base import DONE, Member

ANSWERS, AGENTS, LEDGERS, HANDSHAKES, VEHICLES = 4000, 2000, 500, 600, 500_000
CONNECTIONS, CROWD = 16, 200
TICK_SECONDS, IDLE_SECONDS = 0.01, 20.0
_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """Return the time that a process has used of processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def megabytes(pid: int) -> float:
    """Return the largest resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def in_threads(work, items) -> None:
    """Call a function for each item, in threads that each keep a connection in a box."""
    waiting: queue.SimpleQueue = queue.SimpleQueue()
    for item in items:
        waiting.put(item)
    errors = []

    def run() -> None:
        box: dict = {}
        try:
            while True:
                work(box, waiting.get_nowait())
        except queue.Empty:
            pass
        except Exception as error:
            errors.append(error)
        finally:
            if "connection" in box:
                box["connection"].close()

    threads = [threading.Thread(target=run) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def post(box, port, context, path, body, headers, *, keep=True) -> bytes:
    """Send a request on the connection of a thread, or on a new one."""
    if "connection" not in box or not keep:
        if "connection" in box:
            box["connection"].close()
        box["connection"] = http.client.HTTPSConnection(HOST, port, context=context, timeout=60)
    box["connection"].request("POST", path, body, headers)
    reply = box["connection"].getresponse()
    data = reply.read()
    if reply.status != 200:
        raise RuntimeError(f"{reply.status}: {data!r}")
    return data


def enroll(server: ServerProcess, count: int) -> list[str]:
    """Enroll agents whose secret is known, without their joining."""
    names = [f"agent-{number}" for number in range(count)]
    with contextlib.closing(server.folder.store()) as store, store.transaction() as inside:
        for name in names:
            inside.set_member(Member(name, 1, secret=SECRET))
        inside.set_value(members.CHANGES, str(members.changes(inside) + 1))
    return names


def question_of(server: ServerProcess, job: str, number: int) -> Question:
    rows = server.read(lambda store: store.rounds(job))
    return Question.from_bytes(server.read(lambda store: store.question(rows[number - 1].digest)))


def answers(folder: Path) -> tuple[float, float, list[bytes], ServerProcess]:
    """Return the processor time of an answer on kept connections, and the server's memory."""
    server = ServerProcess(folder / "server")
    names = enroll(server, ANSWERS)
    server.add(statistic("spring", ANSWERS, OPEN), OPERATOR)
    server.start()
    wait_until(lambda: server.job("spring").state == "running")
    question = question_of(server, "spring", 1)
    bodies = [answer_to(question, name).to_bytes() for name in names]
    context = server.context
    given = [
        (body, authentic(name, SECRET, "POST", "/v1/answer", body))
        for name, body in zip(names, bodies, strict=True)
    ]

    def send(box, item):
        post(box, server.port, context, "/v1/answer", *item)

    before = processor_seconds(server.process.pid)
    in_threads(send, given)
    spent = processor_seconds(server.process.pid) - before
    wait_until(lambda: server.job("spring").state == DONE)
    return spent / ANSWERS, megabytes(server.process.pid), bodies, server


def bare(server: ServerProcess, bodies: list[bytes]) -> float:
    """Return the processor time of a request to a handler that only stores its body."""
    port = free_port()
    process = subprocess.Popen([sys.executable, __file__, "--bare", str(port), str(server.path)])
    try:
        wait_until(lambda: _listens(port))
        context = server.context
        before = processor_seconds(process.pid)
        in_threads(lambda box, body: post(box, port, context, "/v1/answer", body, {}), bodies)
        return (processor_seconds(process.pid) - before) / len(bodies)
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port)):
        return True
    return False


def run_bare(port: int, folder: Path) -> None:
    """Serve a handler of Starlette that inserts what it gets, one transaction for a batch."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    with tempfile.TemporaryDirectory() as place:
        file = sqlite3.connect(Path(place) / "bare.db", check_same_thread=False)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = FULL")
        file.execute("CREATE TABLE answers (number INTEGER PRIMARY KEY, body BLOB)")
        waiting: list = []
        running = False

        def insert(batch) -> None:
            with file:
                file.executemany("INSERT INTO answers (body) VALUES (?)", [(b,) for b, _ in batch])

        async def drain() -> None:
            nonlocal running
            while waiting:
                batch = waiting[:]
                waiting.clear()
                await asyncio.get_running_loop().run_in_executor(None, insert, batch)
                for _, done in batch:
                    done.set_result(None)
            running = False

        async def answer(request):
            nonlocal running
            done = asyncio.get_running_loop().create_future()
            waiting.append((await request.body(), done))
            if not running:
                running = True
                box.append(asyncio.ensure_future(drain()))
            await done
            return Response(bytes(34))

        box: list = []
        app = Starlette(routes=[Route("/v1/answer", answer, methods=["POST"])])
        uvicorn.run(
            app, host=HOST, port=port, http="httptools", log_level="error", access_log=False,
            ssl_certfile=str(folder / "tls.pem"), ssl_keyfile=str(folder / "tls.key"),
        )  # fmt: skip


def handshakes(server: ServerProcess) -> tuple[float, float]:
    """Return the processor time of a handshake, for the server and for `openssl s_server`."""
    port = free_port()
    words = ["openssl", "s_server", "-quiet", "-accept", str(port), "-tls1_3", "-cert"]
    words += [str(server.path / "tls.pem"), "-key", str(server.path / "tls.key")]
    other = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: _listens(port))
        found = []
        for pid, where in ((server.process.pid, server.port), (other.pid, port)):
            before = processor_seconds(pid)
            in_threads(lambda _, where: _shake(server.context, where), [where] * HANDSHAKES)
            found.append((processor_seconds(pid) - before) / HANDSHAKES)
        return found[0], found[1]
    finally:
        other.kill()
        other.wait()


def _shake(context: ssl.SSLContext, port: int) -> None:
    plain = socket.create_connection((HOST, port), timeout=60)
    with plain, contextlib.suppress(OSError), context.wrap_socket(plain, server_hostname=HOST):
        pass


def training_round(folder: Path, *, keep: bool) -> tuple[float, float]:
    """Return the processor time of a round, for each of its agents, and that of its step.

    What the agents answer was drawn before. Connections that are kept were opened before, too.
    """
    server, names = with_training(folder / f"round-{keep}", AGENTS)
    question = question_of(server, "learn", 1)
    drawn = {name: answer_to(question, name).to_bytes() for name in names}

    async def attend(kept: list[CountedConnection], some: list[str]) -> None:
        """Let agents visit on one connection, or each on its own."""
        for name in some:
            connection = kept[0] if kept else await opened()
            await visit(connection, name, "learn", None, drawn[name])
            if not kept:
                connection.close()

    async def opened() -> CountedConnection:
        return await CountedConnection.to(server.port, server.context)

    async def crowd() -> float:
        kept = [[await opened()] if keep else [] for _ in range(CROWD if keep else CONNECTIONS)]
        before = processor_seconds(server.process.pid)
        shares = (names[first : -1 : len(kept)] for first in range(len(kept)))
        await asyncio.gather(*map(attend, kept, shares))
        spent = processor_seconds(server.process.pid) - before
        for connection in chain(*kept):
            connection.close()
        return spent

    spent = asyncio.run(crowd())
    before = processor_seconds(server.process.pid)
    asyncio.run(attend([], names[-1:]))
    wait_until(lambda: server.job("learn").round == 2)
    step = processor_seconds(server.process.pid) - before
    server.stop()
    return spent / (AGENTS - 1), step


def with_training(path: Path, count: int) -> tuple[ServerProcess, list[str]]:
    """Start a server with a training whose rounds want an answer of each agent."""
    server = ServerProcess(path)
    names = enroll(server, count)
    server.add(training("learn", 2, count, replace(OPEN, round_seconds=3000.0)), OPERATOR)
    server.start()
    wait_until(lambda: server.job("learn").state == "running")
    return server, names


def ledger_round(folder: Path) -> float:
    """Return the processor time of a round for each agent that has a ledger of its own.

    The agents are real ones, in this process, and some share a kept connection. They hear of the
    job for the first time, which takes two more requests. As they are slow on a machine that they
    share with their server, what the server takes without them is subtracted.
    """
    server, names = with_training(folder / "ledgers", LEDGERS)
    row = {"speed": 20, "load": 0.5, "late": "no"}
    tls = https.tls(server.path / "ca.pem")
    agents, opened = [], []
    for name in names:
        create(folder / f"{name}.db")
        ledger = fedldp.Ledger(folder / f"{name}.db", 4)
        outbox = Outbox(folder / f"{name}-outbox.db")
        opened += [ledger, outbox]
        road = https.HTTPSRoad(https.Membership(server.url, name, SECRET, 1), tls)
        holder = OneVehicle(ledger, lambda: row)
        agent = Agent(road, holder, ledger, outbox, OPERATOR.public, tick_seconds=TICK_SECONDS)
        agents.append((agent, road))

    def attend(box, item) -> None:
        agent, road = item
        road._connection = box.setdefault("connection", road._connection)
        agent.visit()  # which tells it of the job
        agent.visit()
        if agent.answered != 1:
            raise RuntimeError("an agent has not answered")

    def spent(work) -> tuple[float, float]:
        before, began = processor_seconds(server.process.pid), time.monotonic()
        work()
        return processor_seconds(server.process.pid) - before, time.monotonic() - began

    idle, idle_seconds = spent(lambda: time.sleep(IDLE_SECONDS))
    busy, busy_seconds = spent(lambda: in_threads(attend, agents[:-1]))
    server.stop()
    for each in opened:
        each.close()
    return (busy - idle * busy_seconds / idle_seconds) / (LEDGERS - 1)


def one_agent(folder: Path) -> float:
    """Return how many answers an agent of many vehicles draws in a second of a processor."""
    matrix = fedldp.source(1).uniform((VEHICLES, 2))
    holder = held(folder / "ledger.db", ROWS, np.array(matrix), map(str, range(VEHICLES)))
    before = time.process_time()
    found = answered(holder, statistic_of(PLAN), VEHICLES)
    seconds = time.process_time() - before
    holder.ledger.close()
    return len(found) / seconds


def main() -> None:
    """Measure, and print the figures."""
    chosen = pages.options(__doc__ or "").parse_args()
    where = f"{pages.machine('uvicorn')}; {pages.busy()}"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        own, memory, bodies, server = answers(folder)
        plain = bare(server, bodies)
        ours, theirs = handshakes(server)
        server.stop()
        kept, step = training_round(folder, keep=True)
        fresh, _ = training_round(folder, keep=False)
        with_ledgers = ledger_round(folder)
        draws = one_agent(folder)
    rows = [
        ("an answer of one vehicle, on a kept connection", f"{own * 1e6:,.0f} µs"),
        ("the same, in a bare Starlette handler that only stores it", f"{plain * 1e6:,.0f} µs"),
        ("a TLS handshake", f"{ours * 1e6:,.0f} µs"),
        ("the same, of `openssl s_server`", f"{theirs * 1e6:,.0f} µs"),
        (
            f"a round of 10,000 agents with one vehicle each, scaled from {AGENTS:,}; "
            "connections are open, and the job was fetched before",
            f"{kept * 1e4:.1f} s",
        ),
        ("the same, but each agent opens a connection", f"{fresh * 1e4:.1f} s"),
        (
            f"a round of 10,000 agents, scaled from {LEDGERS}, which also fetch the job and "
            "write ledgers; connections are open",
            f"{with_ledgers * 1e4:.1f} s",
        ),
        ("a step of a training, with the round's last answer", f"{step:.3f} s"),
        ("answers that an agent with 500,000 vehicles makes in a second", f"{draws:,.0f}"),
        ("memory of the server", f"{memory:.0f} MB"),
    ]
    table = Table("What a fleet costs", ("in processor time", ""), rows)
    pages.publish("fleet", [table], where, chosen.write)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--bare"]:
        run_bare(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
