"""Fleets of real processes for tests to run, to watch and to kill.

Run as a script, `python fleet_parts.py FOLDER PORT [OPTION ...]` is the demo, whose gateways find
the server at that port: there a test listens. And it has a ServerApp for Flower, which dies by a
signal when a test has asked for it.
"""

import asyncio
import contextlib
import itertools
import os
import re
import signal
import sqlite3
import ssl
import subprocess
import sys
import threading
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import monotonic, sleep
from unittest import mock

from flwr.serverapp import ServerApp

from fedldp import datasets
from fedldp._internal import packing
from fedldp.cli import main
from fedldp.cli.fleet import demo as fleet_demo
from fedldp.fleet import app, processes, signing
from fedldp.fleet.flower import bundle
from fedldp.fleet.folder import Place, Work, init
from fedldp.fleet.job import Job
from fedldp.fleet.server import checkpoint
from fedldp.fleet.server.checkpoint import Checkpoint
from fedldp.fleet.state import started
from fedldp.fleet.vault.process import VaultConfig
from fedldp.learn.settings import Settings
from fedldp.plan import report
from fedldp.signing import PrivateKey

PATIENCE = 600.0  # seconds for whatever must come, on the busiest machine
DEATHS = ("push", "pull", "store")


def until(condition, what="it", patience=PATIENCE):
    """Wait for what must come."""
    deadline = monotonic() + patience
    while not (found := condition()):
        assert monotonic() < deadline, f"{what} has not come in {patience:g} seconds"
        sleep(0.02)
    return found


def running(folder):
    """Return the processes that were started for a folder, and their words.

    One is told by a path among its words, or by the mark that a supervisor has left on it.
    """
    found, mark = {}, f"{processes.MARK}=".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            variables = (path / "environ").read_bytes().split(b"\0")
            marks = [each.removeprefix(mark) for each in variables if each.startswith(mark)]
            if any(Path(os.fsdecode(each)).is_relative_to(folder) for each in words + marks):
                found[int(path.name)] = os.fsdecode(b" ".join(words))
    return {pid: words for pid, words in found.items() if pid != os.getpid() and alive(pid)}


def alive(pid):
    return started(pid) is not None


def kill(pids):
    """End processes at once, whatever they are at, and wait until they are gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(alive, pids)), "death")


def reroute(folder, gateway, port):
    """Have a gateway find its server at a port of this machine."""
    edit(folder / gateway / "gateway.toml", server=f'"127.0.0.1:{port}"')


def pin(folder):
    """Have the gateways of a fleet run the app in its server's folder, whatever it is."""
    with mock.patch.dict(os.environ, found_here()):
        known = bundle.sha256(folder / "server" / "app")
    for path in folder.glob("gateway-*/gateway.toml"):
        edit(path, bundle=f'"{known}"')


def found_here():
    """Return the environment in which Flower finds the apps in this folder."""
    return {"PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def edit(path, **entries):
    """Change or add entries of a TOML file that has no tables before them."""
    text = path.read_text()
    for name, value in entries.items():
        text, found = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value}", text)
        text = text if found else f"{name} = {value}\n{text}"
    path.write_text(text)


SETTINGS = Settings(4.0)
VEHICLES, TURNS = 40, 2  # behind each gateway of a small fleet; its rounds


@dataclass
class Fleet:
    """The processes of a fleet's folder, each part started and ended by the test."""

    folder: Path
    popens: dict = field(default_factory=dict)
    network: object = None  # a proxy on the way of some gateways

    @cached_property
    def job(self):
        return Job.load(self.folder / "server" / "job.toml")

    @property
    def gateways(self):
        return sorted(path.parent.name for path in self.folder.glob("gateway-*/gateway.toml"))

    @property
    def vaults(self):
        return sorted(path.parent.name for path in self.folder.glob("vault-*/vault.toml"))

    def start(self, part, command=None, code=None):
        """Start a part ("server", "gateway-1", "vault-1") by its command, or by another one.

        `code` is the folder of another version of the package.
        """
        command = command or ["-m", "fedldp", "fleet", part.partition("-")[0]]
        words = [sys.executable, *command]
        with (self.folder / f"{part}.log").open("ab") as log:
            self.popens[part] = subprocess.Popen(
                [*words, str(self.folder / part)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | ({"PYTHONPATH": str(code)} if code else found_here()),
            )
        return self.popens[part]

    def log(self, part):
        return (self.folder / f"{part}.log").read_text()

    def process(self, part, program):
        """Return the number of the process of a part that runs a program, when there is one."""

        def found():
            all_ = running(self.folder / part).items()
            return [pid for pid, words in all_ if f"/{program} " in words]

        return until(found, program)[0]

    def kill(self, part):
        """Kill a part with all its processes at once, as if its machine had lost its power."""
        supervisor = self.popens.pop(part)
        supervisor.kill()
        supervisor.wait()
        while found := running(self.folder / part):
            kill(found)

    def close(self):
        """End everything; `stop` alone would miss what has only just been started."""
        for popen in self.popens.values():
            popen.terminate()
        processes.stop(self.folder)
        for popen in self.popens.values():
            popen.wait(60)

    # What there is to see from outside, while it runs.

    def rows(self, file, query, *values):
        with contextlib.closing(sqlite3.connect(self.folder / file, timeout=60)) as connection:
            return connection.execute(query, values).fetchall()

    def checkpoint(self, query, *values):
        path = self.job.checkpoint
        return self.rows(path, query, *values) if path.exists() else []

    def progress(self):
        return checkpoint.status(self.job.checkpoint)

    def rounds(self):
        """Return how many rounds are done."""
        found = self.progress()
        return 0 if found is None else found.rounds

    def batches(self):
        """Return the records in the checkpoint, by round and gateway."""
        found = {}
        for number, gateway, data in self.checkpoint("SELECT round, gateway, report FROM batches"):
            plan = self.job.plan_of(number)
            count, records = report.records_of(data, plan.fingerprint, plan.bits)
            found[number, gateway] = sorted(packing.parse(records, count, plan.bits).split())
        return found

    def recorded(self, vault, number):
        """Return what a vault has recorded in a round: the question and the records, or nothing."""
        path, request = f"{vault}/ledger.db", f"{self.job.name}/{number}"
        if not (self.folder / path).exists():
            return None
        asked = self.rows(path, "SELECT question FROM questions WHERE request = ?", request)
        rows = self.rows(path, "SELECT answer FROM releases WHERE request = ?", request)
        if not asked:
            return None
        size = packing.length(1, self.job.plan_of(number).bits)  # a nonce stands before the record
        return asked[0][0], sorted(answer[-size:] for (answer,) in rows)

    def fresh_round(self, vault):
        """Return the first round in which a vault has recorded nothing yet."""
        return next(n for n in itertools.count(1) if not self.recorded(vault, n))

    def node(self, vault, number):
        """Return the gateway whose question a vault has recorded in a round."""
        query = "SELECT gateway FROM asks WHERE round = ? AND digest = ?"
        [(gateway,)] = self.checkpoint(query, number, self.recorded(vault, number)[0])
        return gateway

    def prove(self):
        """Check that nobody answered a job twice, and that the server counts what they said.

        All that was recorded for a round that is done is counted, every answer once.
        """
        before, recorded, lines = self.batches(), {}, []
        for vault in self.vaults:
            config = VaultConfig.load(self.folder / vault)
            with config.ledger() as ledger:
                lines += [(vault, line) for line in ledger.history()]
                assert max(ledger.totals().values(), default=0) <= config.cap
        assert len({(vault, line.vehicle_id, line.job) for vault, line in lines}) == len(lines)
        for vault, request in {(vault, line.request) for vault, line in lines}:
            job, _, number = request.rpartition("/")
            if job == self.job.name:
                node = self.node(vault, int(number))
                recorded[int(number), node] = self.recorded(vault, int(number))[1]
        after, done = self.batches(), self.rounds()
        assert before.items() <= after.items()
        assert before.items() <= recorded.items()
        missing = {number for number, _ in recorded.keys() - after.keys()}
        assert missing <= {done + 1}, "what was recorded is lost"


def small_fleet(folder, gateways):
    """Write a fleet in which the first round costs each vehicle all that it has."""
    rows = VEHICLES * gateways
    data = datasets.load("flights", rows=rows)
    work = Work.on_data_set(data, "logistic", gateways, TURNS, {"rows": rows})
    place = Place("127.0.0.1", processes.free_port(), processes.free_port(), None)
    init(folder, replace(work, vehicles=TURNS * VEHICLES), SETTINGS, gateways, place)
    return Fleet(folder)


def sign(folder):
    """Sign the job of a fleet again, as its operator does after a change."""
    key = PrivateKey.load(folder / "operator.key")
    signing.sign(folder / "server" / "job.toml", key)


def unpin(folder):
    """Have the vaults of a fleet answer unsigned jobs too, as those of version 0.1 do."""
    for path in folder.glob("vault-*/vault.toml"):
        path.write_text(re.sub(r"(?m)^operator = .*\n", "", path.read_text()))


class Proxy:
    """A way through this process to a server of this machine, which can be cut or overheard.

    A cut connection stalls: nothing is closed, nothing passes, and nothing is lost by it. With the
    folder of a server, TLS ends here, and all that is sent to the server is kept, by connection.
    """

    def __init__(self, port, target, server=None):
        self._port, self._target = port, target
        self.heard = []
        self._inside = self._outside = None
        if server is not None:
            self._inside = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._inside.load_cert_chain(server.certificate, server.key)
            self._outside = ssl.create_default_context(cafile=server.authority)
        self._loop = asyncio.new_event_loop()
        self._passes, self._end, self._tasks = asyncio.Event(), asyncio.Event(), set()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))

    def __enter__(self):
        self._passes.set()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    def cut(self):
        self._loop.call_soon_threadsafe(self._passes.clear)

    def heal(self):
        self._loop.call_soon_threadsafe(self._passes.set)

    async def _run(self):
        listening = await asyncio.start_server(
            self._handle, "127.0.0.1", self._port, ssl=self._inside
        )
        await self._end.wait()
        listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _handle(self, reader, writer):
        self._tasks.add(task := asyncio.current_task())
        self.heard.append(heard := bytearray())
        try:
            there = await self._connect()
            try:
                up = self._pump(reader, there[1], heard if self._inside else None)
                await asyncio.gather(up, self._pump(there[0], writer))
            finally:
                there[1].close()
        except OSError:
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _connect(self):
        """Reach the server when it is there: a gateway whose handshake is cut short turns deaf."""
        while True:
            await self._passes.wait()
            with contextlib.suppress(ConnectionRefusedError):
                return await asyncio.open_connection("127.0.0.1", self._target, ssl=self._outside)
            await asyncio.sleep(0.1)

    async def _pump(self, reader, writer, heard=None):
        while data := await reader.read(1 << 16):
            await self._passes.wait()
            if heard is not None:
                heard += data
            writer.write(data)
            await writer.drain()
        writer.close()


def calls(heard):
    """Return the paths and bodies of the calls in all that was sent on a connection."""
    found, data = [], bytes(heard)
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        length = int(re.search(rb"(?i)\r\ncontent-length: (\d+)", head)[1])
        found.append((head.split()[1].decode(), data[:length]))
        data = data[length:]
    return found


# A ServerApp that dies when the file state/die-after-push, -pull or -store tells it to.

server = ServerApp()


@server.main()
def mortal(grid, context):
    """Run the job as ever, but die right after something was sent, received or written down."""
    state = Job.load(str(context.run_config["job"])).checkpoint.parent

    def dies(name, call):
        def wrapped(*arguments):
            found, told = call(*arguments), state / f"die-after-{name}"
            if told.exists() and (found or name == "store"):
                told.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return wrapped

    push, pull = grid.push_messages, grid.pull_messages
    grid.push_messages = dies("push", lambda messages: list(push(messages)))
    grid.pull_messages = dies("pull", lambda ids: list(pull(ids)))
    Checkpoint.store = dies("store", Checkpoint.store)
    app.main(grid, context)


if __name__ == "__main__":
    folder_, port_, *options_ = sys.argv[1:]
    written = fleet_demo.init

    def rerouted(*arguments):
        job = written(*arguments)
        for gateway_ in Fleet(Path(folder_)).gateways:
            reroute(Path(folder_), gateway_, port_)
        return job

    fleet_demo.init = rerouted
    sys.argv[1:] = ["fleet", "demo", "--output", folder_, *options_]
    main()
