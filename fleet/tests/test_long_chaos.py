"""A large fleet on both roads, whose every part is killed again and again: `make test-chaos`.

Two server processes on PostgreSQL behind nginx, mosquitto, and agents, each a process with a
ledger: two thirds of them hold many vehicles, the others one; half of them call over HTTPS, the
others over MQTT. Statistics are added one after another, and with each of them the training gets a
further round.

CHAOS_VEHICLES, CHAOS_KILLS (of each kind) and CHAOS_MINUTES set the size, and CHAOS_SUMMARY names a
file for the figures.
"""

import datetime
import heapq
import itertools
import json
import os
import random
import resource
import signal
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from engine_cases import OPERATOR, PLAN, statistic, training
from failures import AgentProcess, account, check, missing

from fedldp.results.tally import from_json
from fedldp_fleet.agent import mqtt, service
from fedldp_fleet.jobs import Schedule
from fedldp_fleet.store.base import DONE

KILLS = int(
    os.environ.get("CHAOS_KILLS", "4")
)  # of servers, agents, PostgreSQL and the broker each
VEHICLES = int(os.environ.get("CHAOS_VEHICLES", "300"))
SECONDS = 60 * float(os.environ.get("CHAOS_MINUTES", "2"))
SUMMARY = os.environ.get("CHAOS_SUMMARY", "")

LARGE, SMALL = max(8, VEHICLES // 200), max(4, VEHICLES // 400)  # agents with many, and with one
ROUNDS = OPENINGS = 20
SHARE, GROUP = 2 * VEHICLES // 5, VEHICLES // 50  # that a statistic wants, and a round
CAP = 2 * 12  # for 12 answers: the jobs want 8.4 of each vehicle
LONGEST_DEAD = 10.0  # seconds
BROKEN = (OSError, AssertionError)  # what a part says while another one is away

_MISSING = missing("nginx", "mosquitto")
pytestmark = [pytest.mark.chaos, pytest.mark.skipif(bool(_MISSING), reason=_MISSING)]


class Fleet:
    """All processes, and what has to be done with them at which moment."""

    def __init__(self, folder, stack):
        from mosquitto_broker import Mosquitto
        from postgresql_server import PostgreSQLServer
        from proxied_fleet import ProxiedFleet
        from server_process import free_port

        self.postgresql = PostgreSQLServer(free_port()).start()
        stack.callback(self.postgresql.stop)
        bounds = [(VEHICLES - SMALL) * each // LARGE for each in range(LARGE + 1)]
        sizes = [last - first for first, last in itertools.pairwise(bounds)] + [1] * SMALL
        self.agents = [AgentProcess(folder / f"a-{i}", size, CAP) for i, size in enumerate(sizes)]
        over_mqtt = self.agents[1::2]
        self.broker = Mosquitto(folder / "broker", *(each.folder.name for each in over_mqtt))
        self.broker.start()
        stack.callback(self.broker.kill)
        keys = {f"broker_{key}": str(path) for key, path in self.broker.keys("server").items()}
        self.server = ProxiedFleet(
            folder / "server",
            self.postgresql.make_database("chaos"),
            broker=self.broker.url,
            idle_poll=10,
            **keys,
        )
        self.server.start()
        stack.callback(self.server.stop)
        now = datetime.datetime.now(datetime.UTC)
        closes = now + datetime.timedelta(seconds=SECONDS + 300)
        self.schedule = Schedule(
            now - datetime.timedelta(hours=1), closes, answer_seconds=5.0, round_seconds=120.0
        )
        self.jobs = set()
        self.open()
        for agent in self.agents:
            self._join(agent, agent in over_mqtt)
            stack.callback(agent.close)

    def _join(self, agent, is_over_mqtt):
        name, network = agent.folder.name, agent.folder / "network"
        code = self.server.enroll(name, agent.vehicles)
        if is_over_mqtt:
            keys = (str(path) for path in self.broker.keys(name).values())
            membership = mqtt.BrokerMembership(self.broker.url, name, False, *keys)
            mqtt.join(network, membership)
        else:
            service.join(network, self.server.url, code, self.server.path / "ca.pem")

    def open(self):
        """Add a statistic, and a further round of the training."""
        number = max(1, len(self.jobs))
        self.server.add(training("training", number, GROUP, self.schedule), OPERATOR)
        added = statistic(f"statistic-{number}", SHARE, self.schedule)
        self.server.add(added, OPERATOR)
        self.jobs |= {"training", added.name}

    def is_done(self):
        return all(self.server.job(name).state == DONE for name in self.jobs)

    def stored(self):
        """Return the vehicles of all answers that the server has."""
        query = "SELECT job, round, encode(identifier, 'hex'), vehicles FROM fedldp.answers"
        rows = (line.split("|") for line in self.postgresql.execute("chaos", query).splitlines())
        return {
            (job, int(number), bytes.fromhex(identifier)): int(vehicles)
            for job, number, identifier, vehicles in rows
        }

    def parts(self):
        """Return what may be killed, by its kind."""
        running = [each for each in self.agents if each.process is not None]
        return {
            "server": self.server.processes,
            "agent": running,
            "postgresql": [self.postgresql],
            "broker": [self.broker],
        }


class Play:
    """What happens at which moment. What fails because a part is away is tried again."""

    def __init__(self, fleet, rng):
        self.fleet, self.rng, self.kills, self.restarts = fleet, rng, Counter(), Counter()
        self._events, self._numbers, self._dead = [], itertools.count(), set()
        self._began = time.monotonic()

    def at(self, moment, act, *given):
        heapq.heappush(self._events, (moment, next(self._numbers), act, given))

    def run(self):
        while self._events:
            self._supervise()
            if (left := self._events[0][0] - self._now()) > 0:
                time.sleep(min(1.0, left))
                continue
            _, _, act, given = heapq.heappop(self._events)
            try:
                act(*given)
            except BROKEN:
                self.at(self._now() + 1.0, act, *given)

    def kill(self, kind):
        alive = [each for each in self.fleet.parts()[kind] if each not in self._dead]
        if not alive:
            return self.at(self._now() + 1.0, self.kill, kind)
        part = self.rng.choice(alive)
        part.kill()
        self.kills[kind] += 1
        self._dead.add(part)
        return self.at(self._now() + self.rng.uniform(0.0, LONGEST_DEAD), self.revive, part)

    def revive(self, part):
        part.start()
        self._dead.discard(part)

    def _supervise(self):
        """Start again what has ended by itself, as systemd does."""
        for kind, parts in self.fleet.parts().items():
            for part in parts:
                if part not in self._dead and part.process.poll() is not None:
                    self.restarts[kind] += 1
                    self._dead.add(part)
                    self.at(self._now() + 1.0, self.revive, part)

    def _now(self):
        return time.monotonic() - self._began


def test_whatever_is_killed_nothing_is_lost_or_counted_twice(tmp_path, capsys):
    began, rng = time.monotonic(), random.Random(34)
    with ExitStack() as stack:
        fleet = Fleet(tmp_path, stack)
        play, gap = Play(fleet, rng), SECONDS / OPENINGS
        for number in range(1, OPENINGS):
            play.at(number * gap, fleet.open)
        for agent in fleet.agents:  # vehicles are switched on one after another
            play.at(rng.uniform(0.0, SECONDS / 2), agent.start)
        for kind in fleet.parts():
            for _ in range(KILLS):  # mostly while a job that was just added is answered
                moment = rng.randrange(OPENINGS) * gap + min(gap, rng.expovariate(4 / gap))
                play.at(moment, play.kill, kind)
        play.run()
        until = time.monotonic() + 900
        while not (fleet.is_done() and all(agent.is_settled() for agent in fleet.agents)):
            assert time.monotonic() < until
            play.at(0.0, time.sleep, 1.0)
            play.run()
        results = {name: fleet.server.job(name).result for name in fleet.jobs}
        stored = fleet.stored()
        for agent in fleet.agents:
            agent.process.send_signal(signal.SIGTERM)
        for agent in fleet.agents:
            agent.process.wait(60)
        figures = account(fleet.agents, stored)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    by_job = Counter()
    for (job, _, _), vehicles in stored.items():
        by_job[job] += vehicles
    summary = {
        "vehicles": sum(agent.vehicles for agent in fleet.agents),
        "agents with many vehicles": LARGE,
        "agents with one vehicle": SMALL,
        "kills": dict(play.kills),
        "restarts of what ended by itself": dict(play.restarts),
        "statistics": OPENINGS,
        "rounds of the training": ROUNDS,
        "answers to the training": by_job["training"],
        **figures,
        "seconds": round(time.monotonic() - began),
        "processor seconds": round(used.ru_utime + used.ru_stime),
    }
    text = json.dumps(summary, indent=2)
    if SUMMARY:
        Path(SUMMARY).write_text(f"{text}\n")
    with capsys.disabled():
        print(f"\n{text}")
    check(figures)
    assert play.kills == dict.fromkeys(("server", "agent", "postgresql", "broker"), KILLS)
    for name in fleet.jobs - {"training"}:
        assert from_json(results[name], PLAN).reports == by_job[name] <= SHARE
    assert by_job["training"] <= ROUNDS * GROUP
