"""Agents on the MQTT road, for a broker in memory and a real one."""

import dataclasses
import random
import time

from agent_cases import Party, Time
from fleet_server import OPEN

import fedldp_fleet.agent.mqtt
import fedldp_vehicle.fleet.agent.mqtt
from fedldp_fleet.topics import Topics

TOPICS = Topics("north")
LOT = dataclasses.replace(OPEN, order="lot")


def real_time():
    clock = Time(time.time())
    clock.sleep = clock.sleeps.append  # no test waits for a tick
    return clock


ROADS = {
    "many": fedldp_fleet.agent.mqtt,
    "one": fedldp_fleet.agent.mqtt,
    "alone": fedldp_vehicle.fleet.agent.mqtt,
}


def agent_of(
    broker, name, client="", *, kind="many", patience=30.0, spread=random.uniform, **options
):
    """Return an agent that a broker knows under a name."""
    road = ROADS[kind].MQTTRoad(TOPICS, name, client or name, broker.connect, patience, spread)
    return Party(None, None, kind, road=road, time=real_time(), **options)


def end(agents):
    for each in agents:
        each.road.close()
        each.close()


def wait_until(holds, seconds=60.0):
    until = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


def visit_until_answered(agent):
    wait_until(lambda: agent.visit() is None or agent.outbox.counts())
