"""Flower as a road: real SuperLink and SuperNodes with TLS and keys, real agents and ledgers."""

import contextlib
import datetime
import subprocess
import threading

import pytest
from engine_cases import OPERATOR, PLAN, statistic, training
from flower_road import FlowerRoad
from server_process import wait_until

from fedldp.results.tally import from_json
from fedldp_fleet.jobs import Schedule
from fedldp_fleet.store.base import DONE

VEHICLES, ROUNDS, PATIENCE = 30, 6, 400.0
NOW = datetime.datetime.now(datetime.UTC)
OPEN = Schedule(NOW - datetime.timedelta(hours=1), NOW + datetime.timedelta(hours=1))


@pytest.fixture
def road(tmp_path):
    with FlowerRoad(tmp_path, OPERATOR) as made:
        yield made


def answers(road, job):
    return [each.answers for each in road.server.read(lambda store: store.rounds(job))]


@pytest.mark.slow
def test_jobs_run_as_an_app_of_flower(road):
    road.add("depot", 30)
    road.add("yard", 20)
    road.server.add(statistic(wanted=50, schedule=OPEN), OPERATOR)
    road.server.add(training(rounds=2, group=20, schedule=OPEN), OPERATOR)
    road.run_app()
    assert from_json(road.server.job("spring").result, PLAN).reports == 50
    assert road.server.job("learn").state == DONE
    assert answers(road, "learn") == [20, 20]
    spent = road.spent("depot") | road.spent("yard")
    assert len(spent) == 50
    assert sorted(spent.values()) == [2] * 10 + [4] * 40


@pytest.mark.slow
def test_the_front_passes_on_what_nodes_need_and_nothing_else(road):
    road.flwr("list")  # whoever reaches the port of the SuperLink needs no password
    for path in ("/v1/control/list-runs", "/v1/control/start-run", "/v1/runtime/", "/docs", "/"):
        assert road.says(path) == 403
    for path in ("/v1/fleet/../control/list-runs", "/v1/fleet/%2e%2e/control/list-runs"):
        assert road.says(path) in (400, 403)
    assert road.says("/v1/fleet/pull-messages") == 415  # it is the SuperLink that objects


@pytest.mark.faults
def test_kills_of_all_parts_lose_and_repeat_nothing(road):
    """The SuperLink, a SuperNode, the ServerApp and an agent, each at its moment; minutes."""
    for name in ("depot", "yard"):
        road.add(name, VEHICLES)
    long = Schedule(OPEN.opens, OPEN.closes, round_seconds=600.0)
    road.server.add(training(rounds=ROUNDS, group=2 * VEHICLES // ROUNDS, schedule=long), OPERATOR)
    ended, runs = threading.Event(), []

    def keep_running():
        """Run the app again when it has died, and start nodes again, as a supervisor does."""
        while not ended.is_set():
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                runs.append(0)
                road.run_app()
            ended.wait(1.0)

    def keep_nodes():
        while not ended.wait(1.0):
            for name in ("depot", "yard"):
                if road.programs[road.node(name)].poll() is not None:
                    road.start_node(name)

    threads = [threading.Thread(target=each) for each in (keep_running, keep_nodes)]
    for each in threads:
        each.start()
    try:
        round_begins(road, 2)
        road.kill("depot")  # the agent
        road.start_agent("depot", "--listen", str(road.socket("depot")))
        round_begins(road, 3)
        wait_until(road.kill_server_app)
        round_begins(road, 4)
        road.kill(road.node("yard"))
        round_begins(road, 5)
        road.kill("link")
        road.start_link()
        wait_until(lambda: road.server.job("learn").state == DONE, PATIENCE)
    finally:
        ended.set()
        for each in threads:
            each.join()
    assert sum(answers(road, "learn")) == 2 * VEHICLES
    assert road.server.read(lambda store: store.uncounted("learn")) == []
    spent = road.spent("depot") | road.spent("yard")
    assert list(spent.values()) == [2] * 2 * VEHICLES
    assert len(runs) >= 3


def round_begins(road, number):
    wait_until(lambda: road.server.job("learn").round >= number, PATIENCE)
