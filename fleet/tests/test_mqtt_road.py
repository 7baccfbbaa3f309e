"""Agents of both distributions over MQTT, with a broker in memory and the real server."""

import pytest
from brokers import Broker
from engine_cases import OPERATOR, PLAN, statistic
from fleet_server import OPEN, running
from mqtt_cases import LOT, agent_of, end

from fedldp.results.tally import from_json
from fedldp_fleet.store.base import DONE


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def server(tmp_path, broker):
    folder = tmp_path / "server"
    folder.mkdir()
    with running(folder, operator=OPERATOR, connect=broker.connect) as found:
        assert found.mqtt.ready.wait(30)
        yield found


@pytest.fixture
def agents(broker):
    made = []

    def make(name="car-7", client="", **options):
        made.append(agent_of(broker, name, client, **options))
        return made[-1]

    yield make
    end(made)


def opened(server, broker, job):
    """Add a job, and wait until it is retained."""
    server.add(job)
    server.tick()
    with broker.changed:
        assert broker.changed.wait_for(
            lambda: any("/job/" in topic for topic in broker.retained), 30
        )


def test_an_agent_asks_for_a_place_and_answers(server, broker, agents):
    server.enroll("car-7")
    opened(server, broker, statistic(wanted=1, schedule=OPEN))
    agent = agents()
    agent.visit(), agent.visit()
    acts = ("call", "announce", "answer")
    assert broker.sent("car-7") == [f"fedldp/north/ask/{act}/car-7/car-7" for act in acts]
    server.tick()
    assert server.job("spring").state == DONE
    assert from_json(server.job("spring").result, PLAN).reports == 1
    assert agent.outbox.counts() == {"spring": {"counted": 1}}
    assert agent.told == []


def test_in_a_lot_an_agent_sends_one_message(server, broker, agents):
    server.enroll("car-7")
    opened(server, broker, statistic(wanted=1, schedule=LOT))
    agent = agents()
    agent.visit()
    assert broker.sent("car-7") == ["fedldp/north/ask/answer/car-7/car-7"]
    assert agent.outbox.counts() == {"spring": {"counted": 1}}
