"""A SuperLink on the loopback, with SuperNodes or with a simulation, that runs an app."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from ledgers import made

# Programs of Flower start each other by name. They only talk to each other, on this machine, and
# what they print is read: without colors.
PLACES = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath), "/usr/sbin")
SEARCHED = os.pathsep.join(PLACES)
QUIET = {
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FORCE_COLOR": "",
    "NO_PROXY": "*",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TERM": "dumb",
    "no_proxy": "*",
}


def program(name, *words):
    """Return the command line of a program, first of those that this Python has installed."""
    found = shutil.which(name, path=SEARCHED)
    assert found, f"{name} is not installed"
    return [found, *words]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Deployment:
    """Programs of Flower in a folder: a SuperLink, and a SuperNode for each partition."""

    def __init__(self, folder, nodes, simulation=False):
        self.folder, self.port = folder, free_port()
        home = folder / "flwr"
        home.mkdir()
        self.environment = os.environ | QUIET | {"FLWR_HOME": str(home), "PATH": SEARCHED}
        address = f"127.0.0.1:{self.port}"
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "test"\n[superlink.test]\naddress = "{address}"\n'
            "insecure = true\n"
        )
        self.nodes, self.simulation, self.stack = nodes, simulation, contextlib.ExitStack()

    def __enter__(self):
        words = ["--insecure", "--host", "127.0.0.1", "--port", str(self.port)]
        self.start("flower-superlink", *words, *(["--simulation"] if self.simulation else []))
        self.wait()
        for node in range(0 if self.simulation else self.nodes):
            self.start(
                "flower-supernode",
                "--insecure",
                "--superlink",
                f"127.0.0.1:{self.port}",
                "--port",
                str(free_port()),
                "--node-config",
                f"partition-id={node} num-partitions={self.nodes}",
                IRIS_LEDGER=str(made(self.folder / f"ledger {node}.db")),
            )
        return self

    def __exit__(self, *exception):
        self.stack.close()

    def start(self, name, *words, **environment):
        log = self.stack.enter_context((self.folder / f"{name}.log").open("a"))
        process = subprocess.Popen(
            program(name, *words),
            env=self.environment | environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=self.folder,
        )
        self.stack.callback(self.stop, process)
        return process

    def stop(self, process):
        """End a program and what it has started, all of it in a session of its own."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)

    def wait(self):
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.1)
        raise TimeoutError("the SuperLink does not listen")

    def run(self, app, *words):
        """Run an app until it ends, and return what Flower's log says."""
        if self.simulation:
            words = (*words, "--federation-config", f"num-supernodes={self.nodes}")
        done = subprocess.run(
            program("flwr", "run", str(app), "--stream", *words),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr
