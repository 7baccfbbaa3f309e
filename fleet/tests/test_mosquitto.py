"""The MQTT road with a real broker, TLS and client certificates: `make test-mqtt`."""

import pytest
from engine_cases import OPERATOR, PLAN, statistic
from fleet_server import OPEN, running
from mosquitto_broker import Mosquitto
from mqtt_cases import LOT, TOPICS, agent_of, end, visit_until_answered, wait_until

from fedldp.results.tally import from_json
from fedldp_fleet.agent.mqtt import MQTTRoad
from fedldp_fleet.agent.roads import RoadError
from fedldp_fleet.messages import Call
from fedldp_fleet.mqtt import Message
from fedldp_fleet.store.base import DONE

pytestmark = pytest.mark.mqtt


@pytest.fixture
def broker(tmp_path):
    with Mosquitto(tmp_path / "broker", "car-1", "car-2") as found:
        yield found


@pytest.fixture
def server(tmp_path, broker):
    folder = tmp_path / "server"
    folder.mkdir()
    connect = broker.client("server").connect
    with running(folder, operator=OPERATOR, connect=connect) as found:
        assert found.mqtt.ready.wait(60)
        yield found


@pytest.fixture
def agents(broker):
    made = []

    def make(name):
        made.append(agent_of(broker.client(name), name))
        return made[-1]

    yield make
    end(made)


@pytest.mark.parametrize("schedule", [OPEN, LOT], ids=["call", "lot"])
def test_vehicles_answer_a_statistic(server, agents, schedule):
    for name in ("car-1", "car-2"):
        server.enroll(name)
    server.add(statistic(wanted=2, schedule=schedule))
    server.tick()
    for name in ("car-1", "car-2"):
        agent = agents(name)
        visit_until_answered(agent)
        assert agent.outbox.counts() == {"spring": {"counted": 1}}
    wait_until(lambda: server.tick() or server.job("spring").state == DONE)
    assert from_json(server.job("spring").result, PLAN).reports == 2


def test_an_agent_can_neither_write_as_another_nor_read_what_others_are_told(broker):
    spy = broker.client("car-2").connect("spy")
    spy.subscribe("#")
    server = broker.client("server").connect("server-1")
    server.subscribe(TOPICS.asks, certain=True)
    server.retain(Message(TOPICS.open, b"told"))
    [told] = spy.receive(30)
    assert (told.topic, told.payload) == (TOPICS.open, b"told")
    car = broker.client("car-1").connect("car-1")
    car.subscribe(TOPICS.reply("car-1"))
    car.publish(Message(TOPICS.ask("call", "car-1", "car-1"), b"mine"), certain=True)
    for topic in (
        TOPICS.ask("answer", "car-2", "car-1"),
        TOPICS.ask("answer", "car-1", "car-2"),
        TOPICS.reply("car-1"),
        TOPICS.open,
    ):
        with pytest.raises(PermissionError, match="refuses messages"):
            car.publish(Message(topic, b"not mine"), certain=True)
    [asked] = server.receive(30)
    assert asked.payload == b"mine"
    server.acknowledge(asked)
    server.publish(Message(TOPICS.reply("car-1"), b"reply"))
    server.receive(0)
    [reply] = car.receive(30)
    assert reply.payload == b"reply"
    server.retain(Message(TOPICS.open, b"later"))
    assert [each.payload for each in spy.receive(30)] == [b"later"]  # no reply came before it
    for each in (spy, server, car):
        each.close()


def test_an_unknown_agent_is_unwelcome(server, agents):
    server.add(statistic(schedule=OPEN))
    server.tick()
    agent = agents("car-1")
    wait_until(lambda: agent.visit() is None or agent.told)
    assert "does not know this agent" in agent.told[-1]
    assert agent.spent() == 0


def test_a_stranger_without_a_certificate_is_refused(broker, tmp_path):
    stranger = Mosquitto(tmp_path / "stranger", "car-1")
    stranger.port = broker.port
    road = MQTTRoad(TOPICS, "car-1", "car-1", stranger.client("car-1").connect)
    with pytest.raises(RoadError, match=r"certificate verify failed|unknown ca|closed|EOF"):
        road.call(Call({}))


def test_a_broker_tells_how_long_retained_messages_remain(broker):
    server = broker.client("server").connect("server-1")
    server.retain(Message(TOPICS.open, b"told", seconds=1000))
    car = broker.client("car-1").connect("car-1")
    car.subscribe(TOPICS.open)
    [told] = car.receive(30)
    assert 0 < told.seconds <= 1000
    for each in (server, car):
        each.close()
