"""The guarantee, with a broker that loses and forgets, and with vehicles and counters that die.

Everybody may be killed whenever they use the broker, before or after it has done its part. Here a
death is an exception that nothing catches, so open transactions are rolled back, as after a crash.
`make test-mqtt` kills real processes.
"""

import contextlib
import itertools

import pytest
from campaigns import KEY, PLAN, Vehicles, asked, published, pump, store
from chaos import Chaos, Killed

from fedldp.budget.vehicle import Vehicle
from fedldp.campaigns.counter import Counter
from fedldp.campaigns.store import merge

CARS = [f"car {number}" for number in range(12)]


def run(tmp_path, seed, steps=80):
    """Return what was counted, and how many were acknowledged, after many faults."""
    broker = published()
    chaos = Chaos(broker, seed)
    stores = [store(tmp_path, name=name) for name in "ab"]
    vehicles = Vehicles(tmp_path / "cars")
    clock = vehicles.clock

    def count():
        each = chaos.rng.choice(stores)
        with contextlib.suppress(Killed):
            pump(Counter(each, broker.connect, silence=0, clock=clock), broker)

    def idle(connection):
        if not connection.client.startswith("counter-") and chaos.rng.random() < 0.5:
            count()

    broker.on_idle = idle
    for _ in range(steps):
        with contextlib.suppress(Killed):
            vehicles.agent(broker, chaos.rng.choice(CARS)).visit()
        count()
        if chaos.happens(0.3):  # counters stayed away for too long
            broker.sessions.clear()
    chaos.active = False
    for each in stores:
        each.finish()
    merged = merge(stores)
    counted = {identifier: packet for each in stores for identifier, packet in each.answers()}
    acknowledged = {car for car in CARS if vehicles.accepted.is_acknowledged(car, asked())}
    totals = vehicles.ledger.totals()
    # The ledger gives back what each vehicle has sent, or would send.
    answers = {
        car: Vehicle(vehicles.ledger, car).answer(PLAN, {}, job="spring", round="1")
        for car in totals
    }
    sent = {car: answer.nonce + answer.report for car, answer in answers.items()}
    vehicles.close()
    for each in stores:
        each.close()
    return merged, counted, acknowledged, totals, sent, chaos


@pytest.fixture(autouse=True)
def no_time(monkeypatch):
    """Let a millisecond pass between two looks at the clock, so that the load does not matter."""
    turns = itertools.count()
    monkeypatch.setattr("fedldp.campaigns.agent.monotonic", lambda: next(turns) / 1000)


@pytest.mark.parametrize("seed", range(3))
def test_acknowledged_once_others_at_most_once_and_nobody_spends_twice(tmp_path, seed):
    merged, counted, acknowledged, totals, sent, chaos = run(tmp_path, seed)
    assert set(totals.values()) == {1}
    assert acknowledged <= set(totals)
    identifiers = {payload[:16]: car for car, payload in sent.items()}
    assert len(identifiers) == len(sent)
    # What was counted are the bytes of the ledgers, each identifier once.
    assert all(sent[identifiers[name]] == name + packet for name, packet in counted.items())
    assert merged.counted.tally.reports == len(counted) <= len(totals)
    assert merged.conflicts == 0
    counted_cars = {identifiers[name] for name in counted}
    assert acknowledged <= counted_cars
    # The faults were real ones, and work was done in spite of them.
    assert chaos.kills > 5
    assert acknowledged


def test_without_faults_all_vehicles_are_acknowledged(tmp_path):
    broker = published()
    with store(tmp_path) as file, Vehicles(tmp_path / "cars") as vehicles:
        counter = Counter(file, broker.connect, clock=vehicles.clock)
        pump(counter, broker)
        broker.on_idle = lambda connection: (
            None if connection.client.startswith("counter-") else pump(counter, broker)
        )
        left = [vehicles.agent(broker, car).visit().pending for car in CARS]
        assert left == [0] * len(CARS)
        assert file.received == len(CARS)
        assert {payload for _, topic, payload in broker.published if "/answers/" in topic} == {
            identifier + packet for identifier, packet in file.answers()
        }
        assert file.text == asked().signed(KEY)
