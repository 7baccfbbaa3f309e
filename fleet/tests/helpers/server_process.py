"""A server as an operator runs it: a folder, and a process that is killed at any moment."""

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

from fedldp_fleet.jobs import to_sign
from fedldp_fleet.server import folder as folders
from fedldp_fleet.server import members
from fedldp_fleet.server.folder import ServerFolder

HOST = "127.0.0.1"
PATIENCE = 60.0


def free_port():
    with socket.socket() as found:
        found.bind((HOST, 0))
        return found.getsockname()[1]


class ServerProcess:
    """A folder, and the process that serves it."""

    def __init__(
        self, path: Path, database: str = "", tls: bool = True, hosts=(), environment=(), **entries
    ) -> None:
        self.path, self.port, self.page_port = path, free_port(), free_port()
        self._environment = dict(environment)
        if not path.exists():
            where = {
                "listen": f"{'0.0.0.0' if hosts else HOST}:{self.port}",
                "page": f"{HOST}:{self.page_port}",
            }
            folders.init(path, hosts, **where, database=database, tls=tls)
            with (path / folders.CONFIG).open("a") as config:
                for name, value in entries.items():
                    config.write(f"{name} = {json.dumps(value)}\n")
        self.folder = ServerFolder.load(path)
        self.port, self.page_port = self.folder.listen[1], self.folder.page[1]
        self.process = None

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.port}"

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.path / "ca.pem")

    def enroll(self, agent, vehicles=1):
        with contextlib.closing(self.folder.store()) as store, store.transaction() as inside:
            return members.enroll(inside, agent, vehicles)

    def add(self, job, operator):
        """Add a job, signed by an operator whose public key its agents have."""
        signed = to_sign(job, self.folder.public).signed(operator)
        with contextlib.closing(self.folder.store()) as store, store.transaction() as inside:
            return self.folder.engine().add(inside, job, signed)

    def job(self, name):
        return self.read(lambda store: store.job(name))

    def read(self, query):
        with contextlib.closing(self.folder.store()) as store, store.reading() as inside:
            return query(inside)

    def change(self, act):
        with contextlib.closing(self.folder.store()) as store, store.transaction() as inside:
            return act(inside)

    def start(self):
        command = [sys.executable, "-m", "fedldp", "server", "run", str(self.path)]
        with (self.path / "log").open("a") as log:
            environment = os.environ | {"OMP_NUM_THREADS": "1"} | self._environment
            self.process = subprocess.Popen(command, stderr=log, env=environment)
        until = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port)):
                return self
            assert self.process.poll() is None, (self.path / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.02)

    def kill(self):
        """Kill the process as a crash does it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE)
        return self.process and self.process.returncode


def wait_until(holds, seconds=PATIENCE):
    until = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return found
