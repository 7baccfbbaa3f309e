"""The layout of deploy/docker/compose.yaml, in namespaces: who can reach whom, and that it works.

Each service has a network and processes of its own, as a container has; the commands are those of
the images. Sockets and folders are shared as there.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from accounts import forked, needs_root
from fleet_parts import VEHICLES, edit, kill, until

from fedldp import datasets
from fedldp.fleet.folder import Place, Work, init
from fedldp.fleet.job import Job
from fedldp.learn.settings import Settings

pytestmark = [needs_root, pytest.mark.hostile]

SERVER, UPLINK = "10.77.0.1", "10.77.0.2"  # on a wire between these two
FRONT, LINK = 9443, 9410


class Container:
    """Namespaces for the network and for processes, held by a process that sleeps."""

    def __init__(self, loopback=True):
        words = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "sleep", "infinity"]
        self._outside = subprocess.Popen(words)
        self.pid = until(self._sleeping, "a container")
        self.parts = []
        if loopback:
            self.run("ip", "link", "set", "lo", "up")

    def _sleeping(self):
        children = Path(f"/proc/{self._outside.pid}/task/{self._outside.pid}/children").read_text()
        for child in map(int, children.split()):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{child}/comm").read_text() == "sleep\n":
                    return child
        return None

    def _inside(self, *words):
        return ["nsenter", "--target", str(self.pid), "--net", "--pid", "--mount", *words]

    def run(self, *words):
        subprocess.run(self._inside(*words), check=True, timeout=60)

    def start(self, log, *words):
        command = self._inside(sys.executable, "-m", "fedldp", "fleet", *map(str, words))
        with log.open("ab") as output:
            self.parts.append(subprocess.Popen(command, stdout=output, stderr=output))

    def reaches(self, host, port):
        """Return whether a process in the container can connect."""

        def attempt():
            try:
                socket.create_connection((host, port), 2).close()
            except OSError:
                return False
            return True

        return forked(attempt, network_of=self.pid)

    def close(self):
        """End the first process of the container, and with it all others."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._outside.wait(60)
        for part in self.parts:
            part.wait(60)


@pytest.fixture
def folder():
    """A short path: those of sockets are limited."""
    found = Path(tempfile.mkdtemp(prefix="fleet-", dir="/tmp"))
    yield found
    shutil.rmtree(found)


@pytest.fixture
def containers():
    if shutil.which("ip") is None:
        pytest.skip("needs ip, of iproute2")
    found = {name: Container(name != "vault") for name in ("vault", "gateway", "uplink", "server")}
    wire = f"w{os.getpid() % 10**6}"
    try:
        ends = {"server": SERVER, "uplink": UPLINK}
        words = ["ip", "link", "add", f"{wire}a", "netns", str(found["server"].pid), "type", "veth"]
        words += ["peer", "name", f"{wire}b", "netns", str(found["uplink"].pid)]
        subprocess.run(words, check=True, timeout=60)
        for (name, address), end in zip(ends.items(), "ab", strict=True):
            found[name].run("ip", "address", "add", f"{address}/24", "dev", f"{wire}{end}")
            found[name].run("ip", "link", "set", f"{wire}{end}", "up")
        yield found
    finally:
        for each in found.values():
            each.close()


def test_only_the_uplink_reaches_the_server_and_the_vault_reaches_nobody(folder, containers):
    data = datasets.load("flights", rows=VEHICLES)
    work = Work.on_data_set(data, "logistic", 1, 2, {"rows": VEHICLES})
    fleet = folder / "fleet"
    init(fleet, work, Settings(4.0), 1, Place(SERVER, FRONT, LINK))
    vault, uplink = folder / "vault.sock", folder / "uplink.sock"
    edit(fleet / "vault-1" / "vault.toml", listen=f'"{vault}"')
    edit(fleet / "gateway-1" / "gateway.toml", vaults=f'["{vault}"]')
    job = Job.load(fleet / "server" / "job.toml")
    for name, *words in (
        ("vault", "vault", fleet / "vault-1"),
        ("uplink", "uplink", fleet / "gateway-1", "--listen", uplink),
        ("gateway", "gateway", fleet / "gateway-1", "--uplink", uplink, "--require-isolation"),
        ("server", "server", fleet / "server", "--stay", "--container"),
    ):
        containers[name].start(folder / f"{name}.log", *words)

    def logs():
        return "\n".join(path.read_text() for path in folder.glob("*.log"))

    def ended():
        assert all(part.poll() is None for each in containers.values() for part in each.parts), (
            logs()
        )
        return job.summary.exists()

    until(ended, "the result", 300)
    assert json.loads(job.summary.read_text())["answered"] == VEHICLES, logs()
    reached = {
        name: [each.reaches(SERVER, FRONT), each.reaches(SERVER, LINK), each.reaches(UPLINK, 22)]
        for name, each in containers.items()
        if name != "server"
    }
    assert reached == {
        "vault": [False, False, False],
        "gateway": [False, False, False],
        "uplink": [True, False, False],
    }
    assert containers["server"].reaches("127.0.0.1", LINK)  # nobody else is in its container
    assert not containers["vault"].reaches("127.0.0.1", 1)
    assert "Warning" not in logs()


def test_a_server_that_is_not_alone_does_not_claim_to_be(tmp_path):
    """Elsewhere the option would open Flower's ports to every account of the machine."""
    other = subprocess.Popen(["setpriv", "--reuid=65534", "--clear-groups", "sleep", "60"])
    try:
        until(lambda: "Uid:\t65534" in Path(f"/proc/{other.pid}/status").read_text(), "nobody")
        words = [sys.executable, "-m", "fedldp", "fleet", "server", str(tmp_path), "--container"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert "processes of other users run here" in done.stderr
    finally:
        kill([other.pid])
        other.wait()
