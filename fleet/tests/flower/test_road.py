"""Flower as a road: real SuperLink and SuperNodes with TLS and keys, real agents and ledgers."""

import datetime

import pytest
from engine_cases import OPERATOR, PLAN, statistic, training
from flower_road import FlowerRoad

from fedldp.results.tally import from_json
from fedldp_fleet.jobs import Schedule
from fedldp_fleet.store.base import DONE

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
