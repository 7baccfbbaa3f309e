"""A part of the fleet as real agents: processes that answer a real server over HTTPS."""

import contextlib
import csv
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from traffic import Rows

import fedldp

AGENTS = 2
_WANTED = 0.7  # of the answers that are expected in a period, so that it ends early
_HOST = "127.0.0.1"
_PATIENCE_SECONDS = 240.0


def ask(
    folder: Path, calendar: fedldp.Calendar, rows: Rows, periods: int, cars: int
) -> fedldp.Tally:
    """Ask agents in the first periods, and return the sum of the server's tallies.

    Each agent holds the data and the ledger of its cars, which draw their periods themselves.
    """
    server, agents = folder / "server", [folder / f"agent-{n}" for n in range(1, AGENTS + 1)]
    folder.mkdir(parents=True)
    schema, plan = folder / "schema.toml", folder / "calendar.json"
    schema.write_text(calendar.plan.schema.to_toml(), "utf-8")
    plan.write_text(calendar.to_json(), "utf-8")
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for place in sockets:
            place.bind((_HOST, 0))
        address, page = (f"{_HOST}:{place.getsockname()[1]}" for place in sockets)
    _fedldp("server", "init", server, "--host", _HOST, "--listen", address, "--page", page)
    with _running("server", "run", server):
        _wait_for(address)
        for agent in agents:
            agent.mkdir()
            _write(agent / "rows.csv", rows, 1, agent.name, 0, cars)
            cap, key = float(calendar.epsilon), server / "operator.pub"
            what = ("--data", agent / "rows.csv", "--schema", schema, "--vehicle", "car")
            _fedldp("agent", "init", agent, "--cap", cap, "--operator", key, *what)
            code = _fedldp("server", "enroll", server, agent.name, "--vehicles", cars).strip()
            authority = server / "ca.pem"
            _fedldp("agent", "join", agent, f"https://{address}", code, "--ca", authority)
        keys = ("--server", server, "--key", server / "operator.key")
        wanted = int(_WANTED * cars * AGENTS * calendar.share)
        tallies = []
        for period in range(1, periods + 1):
            for number, agent in enumerate(agents):
                _write(agent / "rows.csv", rows, period, agent.name, number * cars, cars)
            name = f"period-{period}"
            asked = ("--plan", plan, "--period", period, "--vehicles", wanted)
            _fedldp("server", "job", "statistic", name, *asked, *keys)
            _answer(server, agents, name, folder / f"{name}.json")
            tallies.append(calendar.plan.load_tally(folder / f"{name}.json"))
    return sum(tallies[1:], tallies[0])


def _write(file: Path, rows: Rows, period: int, agent: str, first: int, cars: int) -> None:
    """Write what the cars of an agent measured in a period."""
    there = (rows["period"] == period).nonzero()[0][first : first + cars]
    names = [name for name in rows if name.startswith("Vehicle.")]
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["car", *names])
        for number, place in enumerate(there):
            writer.writerow([f"{agent}-car-{number}", *(rows[name][place] for name in names)])


def _answer(server: Path, agents: list[Path], job: str, result: Path) -> None:
    """Let agents answer a job until it is done, and write its tally."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        calls = [_start("agent", "run", agent, "--once") for agent in agents]
        for call in calls:
            call.communicate()
        with contextlib.suppress(RuntimeError):
            _fedldp("server", "job", "result", server, job, "-o", result)
            return
    raise RuntimeError(f"the job {job} has not ended: see {server.parent}")


def _start(*words: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "fedldp", *map(str, words)]
    threads = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=threads)


def _fedldp(*words: object) -> str:
    """Run a command of fedldp, and return what it printed."""
    process = _start(*words)
    printed, error = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"fedldp {' '.join(map(str, words))} failed: {error.strip()}")
    return printed


@contextlib.contextmanager
def _running(*words: object) -> Iterator[None]:
    with (Path(str(words[-1])) / "log").open("wb") as log:
        command = [sys.executable, "-m", "fedldp", *map(str, words)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def _wait_for(address: str) -> None:
    """Wait until the server takes connections."""
    host, port = address.split(":")
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=5):
            return
        time.sleep(0.1)
    raise RuntimeError(f"the server at {address} has not started")
