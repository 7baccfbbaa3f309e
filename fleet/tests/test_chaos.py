"""A fleet of real processes whose server, agents and network fail again and again.

Real TLS, real ledgers, real files. What fails stays away for a while and returns. In the end
nothing is counted twice, nothing that was acknowledged is lost, nobody is over the cap, and hardly
anything was paid for in vain.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from agent_cases import ALL_ATTRIBUTES
from engine_cases import OPERATOR, statistic, training
from fleet_server import OPEN
from server_process import HOST, ServerProcess, wait_until

from fedldp.budget.ledger import Ledger
from fedldp_fleet.agent import service
from fedldp_fleet.agent.outbox import Outbox
from fedldp_fleet.engine import vehicles_in
from fedldp_fleet.server import backup
from fedldp_fleet.server.folder import ServerFolder
from fedldp_fleet.store.base import DONE

AGENTS, VEHICLES, CAP = 4, 25, 4.0
SCHEDULE = replace(OPEN, answer_seconds=5.0, round_seconds=60.0)
LARGEST_WASTE = 0.005  # of what is spent, if all that fails returns within half a round
PATIENCE = 300.0

FEW = int(os.environ.get("FEDLDP_KILLS", "6"))  # of each kind; 50 were tried before the release
pytestmark = pytest.mark.faults


class Network:
    """A way to the server that can be cut: every connection breaks, and none is made."""

    def __init__(self, port):
        self.server, self.is_cut = port, False
        self.listening = socket.create_server((HOST, 0))
        self.port = self.listening.getsockname()[1]
        self.open = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listening.accept()
            except OSError:
                return
            if self.is_cut:
                near.close()
                continue
            try:
                far = socket.create_connection((HOST, self.server))
            except OSError:
                near.close()
                continue
            self.open += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self):
        self.is_cut = True
        for each in list(self.open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def mend(self):
        self.is_cut = False

    def close(self):
        self.cut()
        for each in (self.listening, *self.open):
            each.close()


class AgentProcess:
    """An agent's folder, and the process that runs it."""

    def __init__(self, folder, url, code, authority):
        self.folder, self.process = folder, None
        folder.mkdir()
        (folder / "operator.pub").write_text(OPERATOR.public.text)
        (folder / "schema.toml").write_text(ALL_ATTRIBUTES.to_toml())
        rows = "".join(f"{folder.name}-{i},30,0.25,yes\n" for i in range(VEHICLES))
        (folder / "rows.csv").write_text(f"id,speed,load,late\n{rows}")
        (folder / "agent.toml").write_text(
            f'cap = "{CAP}"\noperator = "operator.pub"\ndata = "rows.csv"\n'
            'schema = "schema.toml"\nvehicle = "id"\ntick = 0.05\n'
        )
        Ledger.create(folder / "ledger.db", CAP).close()
        service.join(folder / "network", url, code, authority)

    def start(self):
        command = [sys.executable, "-m", "fedldp_fleet", "agent", "run", str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            self.process = subprocess.Popen(command, stderr=log, env=environment)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def answers(self):
        """Return how often each vehicle has answered each job, and what each has spent."""
        with Ledger(self.folder / "ledger.db", CAP) as ledger:
            lines = Counter((line.vehicle_id, line.job) for line in ledger.history())
            return lines, ledger.totals()

    def verdicts(self):
        outbox = Outbox(self.folder / "outbox.db")
        with contextlib.closing(outbox):
            return outbox.counts()


class Fleet:
    def __init__(self, folder):
        self.server = ServerProcess(folder / "server").start()
        self.network = Network(self.server.port)
        url, authority = f"https://{HOST}:{self.network.port}", self.server.path / "ca.pem"
        codes = [self.server.enroll(f"agent-{i}", VEHICLES) for i in range(AGENTS)]
        self.agents = [
            AgentProcess(folder / f"agent-{i}", url, code, authority)
            for i, code in enumerate(codes)
        ]
        wanted = AGENTS * VEHICLES
        self.jobs = {"spring": wanted, "learn": wanted}
        self.server.add(statistic("spring", wanted, SCHEDULE), OPERATOR)
        self.server.add(training("learn", 10, wanted // 10, SCHEDULE), OPERATOR)
        for agent in self.agents:
            agent.start()

    def close(self):
        for agent in self.agents:
            if agent.process is not None and agent.process.poll() is None:
                agent.kill()
        self.server.stop()
        self.network.close()

    def is_done(self):
        return all(self.server.job(name).state == DONE for name in self.jobs)

    def stored(self, job):
        """Return the vehicles of all answers that the server has."""

        def count(store):
            rounds = [row.number for row in store.rounds(job)]
            return sum(vehicles_in(a) for number in rounds for a in store.answers(job, number))

        return self.server.read(count)

    def check(self):
        """See that the ledgers, the outboxes and the server tell one story."""
        spent, kept = Counter(), Counter()
        for agent in self.agents:
            lines, totals = agent.answers()
            assert set(lines.values()) <= {1}  # nobody answered a job twice
            assert all(total <= CAP for total in totals.values())
            spent.update(job for _, job in lines)
            for job, said in agent.verdicts().items():
                assert said.keys() <= {"counted", "late"}
                kept[job] += said.get("counted", 0)
        for job, wanted in self.jobs.items():
            stored = self.stored(job)
            assert stored <= spent[job] <= wanted  # nothing is counted twice
            assert spent[job] - stored <= LARGEST_WASTE * spent[job]
            answers = self.server.read(
                lambda store, job=job: sum(
                    len(list(store.answers(job, row.number))) for row in store.rounds(job)
                )
            )
            assert kept[job] <= answers  # nothing that was acknowledged is lost


@pytest.fixture
def fleet(tmp_path):
    found = Fleet(tmp_path)
    yield found
    found.close()


def test_whatever_fails_nothing_is_lost_or_counted_twice(fleet):
    rng = random.Random(33)
    victims = [*["server"] * FEW, *["agent"] * FEW, *["network"] * FEW]
    rng.shuffle(victims)
    for victim in victims:
        time.sleep(rng.uniform(0.0, 0.8))  # a random moment, not a time that is waited for
        if victim == "server":
            fleet.server.kill()
            time.sleep(rng.uniform(0.0, 0.5))
            fleet.server.start()
        elif victim == "agent":
            agent = rng.choice(fleet.agents)
            agent.kill()
            time.sleep(rng.uniform(0.0, 0.5))
            agent.start()
        else:
            fleet.network.cut()
            time.sleep(rng.uniform(0.0, 0.5))
            fleet.network.mend()
    wait_until(fleet.is_done, PATIENCE)
    for agent in fleet.agents:
        wait_until(lambda agent=agent: _is_settled(agent), PATIENCE)
        agent.kill()
    fleet.check()


def _is_settled(agent):
    return all("pending" not in said for said in agent.verdicts().values())


def test_a_server_that_is_restored_gets_everything_again(fleet, tmp_path):
    """From a backup that was made before the first answer, while agents answer."""
    copy = tmp_path / "backup"
    backup.back_up(fleet.server.folder, copy)
    wait_until(lambda: fleet.stored("spring") > 0, PATIENCE)
    fleet.server.kill()
    shutil.move(fleet.server.path, tmp_path / "lost")
    backup.restore(copy, fleet.server.path)
    fleet.server.folder = ServerFolder.load(fleet.server.path)
    fleet.server.start()
    wait_until(lambda: fleet.server.job("spring").state == DONE, PATIENCE)
    for agent in fleet.agents:
        wait_until(lambda agent=agent: _is_settled(agent), PATIENCE)
        agent.kill()
    spent = Counter()
    for agent in fleet.agents:
        lines, _ = agent.answers()
        assert set(lines.values()) <= {1}
        spent.update(job for _, job in lines)
    assert fleet.stored("spring") == spent["spring"] == fleet.jobs["spring"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_server_whose_disk_is_full_acknowledges_nothing_and_loses_nothing(tmp_path):
    """Its agents keep what they have drawn, and send it when there is room again."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount a disk")
    try:
        fleet = Fleet(disk)
        try:
            filler = Path(disk / "filler")
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass
            time.sleep(2.0)  # whatever happens meanwhile: nothing may be lost
            filler.unlink()
            wait_until(fleet.is_done, PATIENCE)
            for agent in fleet.agents:
                wait_until(lambda agent=agent: _is_settled(agent), PATIENCE)
                agent.kill()
            fleet.check()
        finally:
            fleet.close()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
