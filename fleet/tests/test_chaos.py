"""A fleet of real processes whose server, agents, networks, disks and clocks fail again and again.

Real TLS, ledgers, files and networks. What fails stays away for a while and returns. In the end
nothing is counted twice, nothing that was acknowledged is lost, nobody is over the cap, and hardly
anything was paid for in vain. The figures are printed.
"""

import json
import os
import random
import shutil
import time
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import cycle

import pytest
from engine_cases import OPERATOR, PLAN, statistic, training
from failures import (
    AgentProcess,
    Clock,
    Disk,
    Namespace,
    account,
    check,
    compile_clock,
    missing,
    sqlite,
)
from fleet_server import OPEN
from server_process import ServerProcess, wait_until

from fedldp.results.tally import from_json
from fedldp_fleet.agent import service
from fedldp_fleet.server import backup
from fedldp_fleet.server.folder import ServerFolder
from fedldp_fleet.store.base import DONE

AGENTS, VEHICLES, ROUNDS = 4, 25, 10
EVERYBODY = AGENTS * VEHICLES
GROUP = 9 * EVERYBODY // (10 * ROUNDS)
EPSILON_OF_AN_ANSWER = 2
SCHEDULE = replace(OPEN, answer_seconds=5.0, round_seconds=60.0)
PATIENCE = 1800.0
KILLS = int(os.environ.get("FEDLDP_KILLS", "50"))  # of the server, and as many of agents
DAY = 86_400

_MISSING = (
    missing("ip", "mount", "cc") if os.geteuid() == 0 else "needs root, for networks and disks"
)
pytestmark = [pytest.mark.faults, pytest.mark.skipif(bool(_MISSING), reason=_MISSING)]


class Fleet:
    """A server and agents, each agent in a network of its own, on two small disks."""

    def __init__(self, folder, stack, jobs):
        library = compile_clock(folder)
        self.disks = {}
        for name in ("server", "agents", "second"):
            self.disks[name] = Disk(folder / name, 64)
            stack.callback(self.disks[name].close)
        networks = [Namespace() for _ in range(AGENTS)]
        for each in networks:
            stack.callback(each.close)
        self.clock = Clock(library, folder / "server.clock")
        self.server = ServerProcess(
            folder / "server/folder",
            hosts=[each.machine for each in networks],
            environment=self.clock.environment,
            second=str(folder / "second"),
            idle_poll=2,
        ).start()
        stack.callback(self.server.stop)
        self.agents = []
        for number, network in enumerate(networks):
            clock = Clock(library, folder / f"{number}.clock")
            agent = AgentProcess(
                folder / f"agents/agent-{number}",
                VEHICLES,
                EPSILON_OF_AN_ANSWER * jobs,
                prefix=network.command(),
                environment=clock.environment,
            )
            agent.clock, agent.network = clock, network
            code = self.server.enroll(agent.folder.name, VEHICLES)
            url = f"https://{network.machine}:{self.server.port}"
            service.join(agent.folder / "network", url, code, self.server.path / "ca.pem")
            stack.callback(agent.close)
            agent.start()
            self.agents.append(agent)
        self.jobs = []

    def add(self, job):
        self.server.add(job, OPERATOR)
        self.jobs.append(job.name)

    def add_both(self, name):
        """Add a statistic that wants everybody, and a training that wants 90%."""
        self.add(statistic(f"{name}-statistic", EVERYBODY, SCHEDULE))
        self.add(training(f"{name}-training", ROUNDS, GROUP, SCHEDULE))

    def is_done(self):
        return all(self.server.job(name).state == DONE for name in self.jobs)

    def is_settled(self):
        return all(agent.is_settled() for agent in self.agents)

    def calls(self):
        """Return how often each agent has called since it was started."""
        return [json.loads((a.folder / "state.json").read_text())["calls"] for a in self.agents]

    def wait(self):
        """Wait until all jobs have ended and all answers are acknowledged."""
        wait_until(self.is_done, PATIENCE)
        wait_until(self.is_settled, PATIENCE)

    def finish(self):
        """Wait, end the agents, and return the figures."""
        self.wait()
        for agent in self.agents:
            agent.kill()
        return account(self.agents, self.stored())

    def stored(self):
        """Return the vehicles of all answers that the server has."""
        query = "SELECT job, round, identifier, vehicles FROM answers"
        with closing(sqlite(self.server.path / "server.db")) as store:
            return {tuple(key): vehicles for *key, vehicles in store.execute(query)}

    def reports(self, name):
        """Return how many answers the result of a statistic has."""
        return from_json(self.server.job(name).result, PLAN).reports

    # What fails: each takes a while, and ends

    def fail(self, victim, rng):
        agent = rng.choice(self.agents)
        if victim in ("server", "agent"):
            self._kill(agent if victim == "agent" else self.server, rng)
        elif victim == "network":
            self._cut(rng.sample(self.agents, rng.randint(1, AGENTS)), rng)
        elif victim == "clock of the server":
            self._jump(self.clock, (-20, 20), rng)
        elif victim == "clock of an agent":
            self._jump(agent.clock, (-DAY, -600, -30, 30, 600, DAY), rng)
        elif victim == "disk of the server":
            self._fill(self.disks["server"], self.server, rng)
        else:
            self._fill(self.disks["agents"], agent, rng)

    def _kill(self, process, rng):
        process.kill()
        time.sleep(rng.uniform(0.0, 0.5))
        process.start()

    def _cut(self, agents, rng):
        for agent in agents:
            agent.network.cut()
        time.sleep(rng.uniform(0.0, 2.0))
        for agent in agents:
            agent.network.mend()

    def _jump(self, clock, jumps, rng):
        clock.jump(rng.choice(jumps))
        time.sleep(rng.uniform(0.0, 2.0))
        clock.jump(0)

    def _fill(self, disk, process, rng):
        """Fill a disk; half of the times, kill a process that needs it meanwhile."""
        disk.fill()
        time.sleep(rng.uniform(0.0, 2.0))
        is_killed = rng.random() < 0.5
        if is_killed:
            process.kill()
        disk.make_room()
        if is_killed:
            process.start()


@pytest.fixture
def make_fleet(tmp_path):
    with ExitStack() as stack:
        yield lambda jobs: Fleet(tmp_path, stack, jobs)


@pytest.fixture
def tell(capsys):
    """Return a function that prints figures, whether the test passes or not."""

    def tell(figures):
        with capsys.disabled():
            print(f"\n{json.dumps(figures, indent=2)}")

    return tell


def test_whatever_fails_nothing_is_lost_or_counted_twice(make_fleet, tell):
    rng = random.Random(33)
    few, fewer = max(1, KILLS // 4), max(1, KILLS // 8)
    failures = {"server": KILLS, "agent": KILLS, "network": KILLS}
    failures |= {"clock of the server": few, "clock of an agent": few}
    failures |= {"disk of the server": fewer, "disk of the agents": fewer}
    victims = [victim for victim, times in failures.items() for _ in range(times)]
    rng.shuffle(victims)
    pairs = max(1, len(victims) // 10)
    openings = {len(victims) * pair // pairs for pair in range(pairs)}
    fleet = make_fleet(2 * pairs)  # answers that each vehicle can pay
    meanwhile = Counter()
    for number, victim in enumerate(victims):
        if number in openings:
            fleet.add_both(f"job-{number}")
        time.sleep(rng.uniform(0.0, 0.8))  # a random moment, not a time that is waited for
        meanwhile["work" if not fleet.is_done() else "idle"] += 1
        fleet.fail(victim, rng)
    fleet.wait()
    heard = fleet.calls()
    beyond = statistic("beyond", EVERYBODY, SCHEDULE)  # who answered all others cannot pay it
    fleet.server.add(beyond, OPERATOR)
    wait_until(
        lambda: all(now > old + 1 for now, old in zip(fleet.calls(), heard, strict=True)), PATIENCE
    )
    figures = fleet.finish()
    tell({"failures": failures, "failures during": dict(meanwhile), **figures})
    check(figures)
    for name in fleet.jobs:
        if name.endswith("statistic"):
            assert fleet.reports(name) == EVERYBODY
    assert meanwhile["work"] > meanwhile["idle"]


def test_a_server_that_is_restored_gets_everything_again(make_fleet, tmp_path, tell):
    """From a backup of before the first answer, while it and its agents are killed."""
    rng = random.Random(34)
    fleet = make_fleet(2)
    copy = tmp_path / "backup"
    fleet.add_both("job")
    backup.back_up(fleet.server.folder, copy)
    wait_until(lambda: fleet.server.job("job-training").round > 2, PATIENCE)
    for victim, _ in zip(cycle(["server", "agent", "network"]), range(6), strict=False):
        fleet.fail(victim, rng)
    fleet.server.kill()
    before = fleet.stored()
    shutil.rmtree(fleet.server.path)
    backup.restore(copy, fleet.server.path, tmp_path / "second")
    fleet.server.folder = ServerFolder.load(fleet.server.path)
    fleet.server.start()
    for victim, _ in zip(cycle(["server", "agent", "network"]), range(6), strict=False):
        fleet.fail(victim, rng)
    figures = fleet.finish()
    # Answers to rounds from which the training had learned are late now: its state has them.
    learned = {key: v for key, v in before.items() if key not in fleet.stored()}
    assert {job for job, _, _ in learned} <= {"job-training"}
    figures["learned from before"] = sum(learned.values())
    useful = figures["answers counted"] + figures["learned from before"]
    figures["waste"] = 1 - useful / figures["answers spent for"]
    tell(figures)
    check(figures)
    assert fleet.reports("job-statistic") == EVERYBODY
