"""Fleets of real processes for `make bench-fleet`: run, overheard, weighed and timed."""

import asyncio
import contextlib
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fedldp import datasets
from fedldp.fleet import processes
from fedldp.fleet.flower import bundle
from fedldp.fleet.folder import Place, Work, init
from fedldp.fleet.gateway import process as gateway_process
from fedldp.fleet.gateway.relay import ask
from fedldp.fleet.job import Job
from fedldp.fleet.processes import GRACE, MARK, Process, Supervisor, free_port
from fedldp.fleet.server import checkpoint
from fedldp.fleet.server.process import registered
from fedldp.fleet.state import STATE
from fedldp.fleet.vault.process import VaultConfig
from fedldp.learn.settings import Settings

EPSILON = 4.0
ROUNDS = 3  # of which the first, with all that is sent once, is left out
ASKED = 100  # vehicles in each question whose time is taken
DEPOT = 10 * ASKED  # vehicles in its vault
LOOK = 0.1  # seconds
PATIENCE = 300.0  # seconds for a round

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Run:
    """What the rounds of a fleet took, the first one left out; every vehicle answers in each."""

    vehicles: int
    gateways: int
    up: float  # bytes to the server in a round, from all gateways
    down: float
    seconds: float  # of a round
    memory: dict[str, float]  # the most that a process or a group of them has held, in MB

    @property
    def asked(self) -> int:
        """How many vehicles are behind each gateway."""
        return -(-self.vehicles // self.gateways)


class Forwarder:
    """A way to a port of this machine, on which bytes are counted, with TLS and all headers."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._seen: list[tuple[float, bool, int]] = []  # when, whether to the server, bytes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> "Forwarder":
        start = asyncio.start_server(self._handle, "127.0.0.1", 0)
        self._server = self._loop.run_until_complete(start)
        self.port = self._server.sockets[0].getsockname()[1]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))  # in which they end
        self._loop.close()

    def between(self, start: float, end: float, up: bool) -> int:
        return sum(n for when, upward, n in self._seen if start < when <= end and upward == up)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            with contextlib.closing(back):
                await asyncio.gather(
                    self._pump(reader, back, True), self._pump(there, writer, False)
                )

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, up: bool
    ) -> None:
        while data := await reader.read(1 << 16):
            self._seen.append((time.monotonic(), up, len(data)))
            writer.write(data)
            await writer.drain()
        writer.close()


def fleet(vehicles: int, gateways: int) -> Run:
    """Run a fleet in which all vehicles answer in each round."""
    return _run(vehicles, gateways, None, _ends_of_job)


def fedavg(vehicles: int) -> Run:
    """Run Flower's FedAvg in the same way: each vehicle has a SuperNode of its own."""
    return _run(vehicles, vehicles, "fedavg", _ends_of_fedavg)


def _ends_of_job(job: Job, known: list[float]) -> list[float]:
    found = checkpoint.status(job.checkpoint)
    missing = (0 if found is None else found.rounds) - len(known)
    return known + [time.monotonic()] * missing


def _ends_of_fedavg(job: Job, _: list[float]) -> list[float]:
    if not job.result.exists():
        return []
    return [float(line) for line in job.result.read_text().splitlines()][1:]


def _run(
    vehicles: int,
    gateways: int,
    app: str | None,
    ends_of: Callable[[Job, list[float]], list[float]],
) -> Run:
    ends: list[float] = []  # when each round ended
    memory: Counter[str] = Counter()
    with _folder() as folder, Forwarder(front := free_port()) as forwarder:
        job = _init(folder, vehicles, gateways, forwarder.port, front, app)
        with _supervised(folder) as supervisor:
            if app is None:
                for i in range(1, gateways + 1):
                    supervisor.start(_part("vault", folder / f"vault-{i}"))
            supervisor.start(_part("server", folder / "server"))
            waiting = [_part("gateway", folder / f"gateway-{i}") for i in range(1, gateways + 1)]
            last = time.monotonic()
            while len(ends) < ROUNDS:
                if len(registered(folder / "server" / STATE)) == gateways:
                    while waiting:
                        supervisor.start(waiting.pop())
                memory |= weighed(folder)
                if len(found := ends_of(job, ends)) > len(ends):
                    ends, last = found, time.monotonic()
                if time.monotonic() - last > PATIENCE or not supervisor.wait(LOOK):
                    raise SystemExit(f"{vehicles} vehicles, {gateways} gateways: no end of a round")
        window, rounds = (ends[0], ends[-1]), ROUNDS - 1
        up, down = (forwarder.between(*window, up) / rounds for up in (True, False))
        return Run(vehicles, gateways, up, down, (ends[-1] - ends[0]) / rounds, dict(memory))


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fleet-") as place:
        yield Path(place) / "fleet"


@contextlib.contextmanager
def _supervised(folder: Path) -> Iterator[Supervisor]:
    """Have processes that are all ended in the end."""
    try:
        # The parts are supervisors themselves: they need time to end what they have started.
        with Supervisor(folder / STATE, grace=2 * GRACE) as supervisor:
            yield supervisor
    finally:
        processes.stop(folder)


def _init(
    folder: Path, vehicles: int, gateways: int, port: int, front: int, app: str | None
) -> Job:
    """Write a fleet whose gateways find the server by another port than that of its front."""
    data = datasets.load("flights", rows=vehicles)
    work = Work.on_data_set(data, "logistic", gateways, ROUNDS, {"rows": vehicles})
    place = Place("127.0.0.1", port, free_port(), None)
    settings = Settings(EPSILON * ROUNDS, participations=ROUNDS)  # all are asked in every round
    job = init(folder, work, settings, gateways, place)
    _change(folder / "server" / "server.toml", f":{port}", f":{front}")
    # Nothing gets lost here, so nobody is asked twice, however long the largest vault takes.
    _change(folder / "server" / "job.toml", f"resend = {Job.resend}", f"resend = {Job.deadline}")
    for path in folder.glob("gateway-*/gateway.toml"):
        _change(path, f"deadline = {gateway_process.DEADLINE}", f"deadline = {Job.deadline}")
    if app is not None:
        _change(folder / "server" / "app" / "pyproject.toml", "fedldp.fleet.app", app)
        known = bundle.sha256(folder / "server" / "app", HERE)
        for path in folder.glob("gateway-*/gateway.toml"):
            _change(path, bundle.SHA256, known)
    return job


def _change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    if old not in text:
        raise SystemExit(f"{path} has no {old}")
    path.write_text(text.replace(old, new))


def _part(kind: str, folder: Path) -> Process:
    argv = sys.executable, "-m", "fedldp", "fleet", kind, str(folder)
    return Process(folder.name, argv, {"PYTHONPATH": str(HERE)}, restart="no")


def weighed(folder: Path) -> Counter[str]:
    """Return the resident memory of the parts of a fleet in MB; of several alike, the largest."""
    groups: Counter[tuple[str, str]] = Counter()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            variables = (path / "environ").read_bytes().split(b"\0")
            marks = [each for each in variables if each.startswith(f"{MARK}={folder}/".encode())]
            if marks:
                part = Path(os.fsdecode(marks[0]).partition("=")[2]).parent.relative_to(folder)
                words = os.fsdecode((path / "cmdline").read_bytes()).split("\0")
                pages = int((path / "statm").read_text().split()[1])
                size = pages * os.sysconf("SC_PAGESIZE") / 1e6
                groups[_role(str(part), words)] += size
    found: Counter[str] = Counter()
    for (role, _), size in groups.items():
        found |= Counter({role: size})
    return found


def _role(part: str, words: list[str]) -> tuple[str, str]:
    """Return what a process is counted as, and the group that it is counted with."""
    if part == ".":  # started by the benchmark: python -m fedldp fleet KIND FOLDER
        kind = words[4]
        return ("vault" if kind == "vault" else f"supervisor of a {kind}"), words[5]
    if part.startswith("gateway"):
        uplink = "fedldp.fleet.gateway.uplink" in words
        return ("uplink" if uplink else "SuperNode and its children"), part
    names = {"flower-superlink": "SuperLink", "flower-superexec": "superexec"}
    names |= {"flwr-serverapp": "ServerApp", "fedldp.fleet.server.endpoint": "front"}
    found = [names[Path(word).name] for word in words if Path(word).name in names]
    return (found[0] if found else "Flower's commands"), part


def answers(turns: int) -> dict[str, list[float]]:
    """Return how many milliseconds a vault took to answer questions that cost it more and less.

    A vault is a process of its own. In each turn it gets a new question, one that it has answered,
    and one that it refuses, in random order.
    """
    rng = random.Random(1)
    times: dict[str, list[float]] = {"fresh": [], "repeated": [], "refused": []}
    with _folder() as folder:
        job = _init(folder, DEPOT, 1, free_port(), free_port(), None)
        vault = folder / "vault-1"
        _change(vault / "vault.toml", f'cap = "{EPSILON * ROUNDS}"', f'cap = "{EPSILON * turns}"')
        _change(vault / "vault.toml", f"per_job = {ROUNDS}", f"per_job = {turns}")
        address = VaultConfig.load(vault).address
        with _supervised(folder) as supervisor:
            supervisor.start(_part("vault", vault))
            while not Path(address.path).exists():
                supervisor.wait(LOOK)
            known = replace(job.question("1", 1), n=ASKED)
            ask(address, known, time.monotonic() + PATIENCE)
            for turn in range(2, turns + 2):
                fresh = replace(known, round=turn)
                kinds = {"fresh": fresh, "repeated": known, "refused": replace(known, gateway="2")}
                for kind in rng.sample(list(kinds), 3):
                    start = time.perf_counter()
                    batch = ask(address, kinds[kind], time.monotonic() + PATIENCE)
                    times[kind].append(1e3 * (time.perf_counter() - start))
                    if batch.silent or batch.answered != (0 if kind == "refused" else ASKED):
                        raise SystemExit(f"a {kind} question got {batch.answered} answers")
                known = fresh
    return times
