"""The vehicle of examples/mqtt, by the faults that fedldp's own vehicle is tested with.

Runs that overlap, deaths at every write, a broker that loses and forgets, and files that are lost,
torn or damaged: it never spends more than its cap, nor forgets what it has spent.
"""

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import example_vehicles
import pytest
from campaigns import NOW, PLAN, Clock, asked, published, pump, sent, store
from chaos import Chaos, Killed
from example_vehicles import Car

from fedldp.campaigns.campaign import utc_now
from fedldp.campaigns.counter import Counter

JOBS = ("spring", "summer", "autumn")


def broker_of(jobs=JOBS):
    """Return a broker with a campaign of each job: each costs 1."""
    broker = published(asked(job=jobs[0]))
    for job in jobs[1:]:
        campaign = asked(job=job)
        broker.retained[campaign.topic] = sent(campaign)
    return broker


def released(broker):
    """Return the different answers that were published."""
    return {payload for _, topic, payload in broker.published if "/answers/" in topic}


@pytest.fixture
def broker():
    return broker_of()


@pytest.fixture
def car(tmp_path, broker):
    found = Car(tmp_path / "car", broker)
    found.init()
    return found


def acknowledging(broker):
    """Let the broker acknowledge each answer."""
    broker.on_idle = lambda _connection: acknowledge(broker)


def acknowledge(broker):
    for _, topic, payload in broker.published[:]:
        if "/answers/" in topic:
            name = f"{topic.replace('/answers/', '/ack/')}/{payload[:16].hex()}"
            broker.deliver("counter", name, b"")


def test_it_answers_what_its_cap_covers(broker, car):
    acknowledging(broker)
    assert [car.run(), car.run()] == [0, 0]
    assert len(released(broker)) == 1
    assert PLAN.parse(next(iter(released(broker)))[16:]).reports == 1
    state = car.state()
    assert state["spent"] == "1"
    assert [answer["acknowledged"] for answer in state["answers"].values()] == [True]


def test_a_broker_that_is_not_reached_has_a_status_of_its_own(broker, car, capsys):
    broker.up = False
    assert car.run() == 4
    assert capsys.readouterr().err == "cannot use h: the broker is down\n"


# Runs that overlap


def test_runs_that_overlap_spend_once(broker, car):
    """Whenever the first run waits for the broker, another one begins."""
    refused = []

    def overlap(_connection):
        acknowledging(broker)
        try:
            car.run()
        except ValueError as error:
            refused.append(str(error))
        acknowledge(broker)
        broker.on_idle = overlap

    broker.on_idle = overlap
    car.run()
    assert len(released(broker)) == 1
    assert len(refused) >= 2
    assert all("another run is at work" in why for why in refused)
    assert car.state()["spent"] == "1"


def test_a_run_whose_lock_was_removed_spends_nothing_more(car):
    """Otherwise it would overwrite what another run has spent, which holds a lock of its own."""
    with car.module.held_state(car.folder) as first:
        (car.folder / "state.lock").unlink()
        with pytest.raises(ValueError, match="was removed during this run"):
            first.save_answer("spring", {}, 1)
        car.init()
        with car.module.held_state(car.folder) as second:
            second.save_answer("summer", {}, 1)
        with pytest.raises(ValueError, match="was removed during this run"):
            first.save_answer("spring", {}, 1)
    assert car.state()["spent"] == "1"


# Deaths


class Dying:
    """Kills a program before or after the operation of some number that changes the disk."""

    def __init__(self, monkeypatch, place, after):
        self.count, self.place, self.after = itertools.count(1), place, after
        self.came = False
        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "open")):
            monkeypatch.setattr(owner, name, self.risky(getattr(owner, name)))

    def risky(self, function):
        def called(*words, **options):
            mine = next(self.count) == self.place
            self.came = self.came or mine
            if mine and not self.after:
                raise Killed
            found = function(*words, **options)
            if mine:
                if found is not None and hasattr(found, "close"):
                    found.close()
                raise Killed
            return found

        return called


@pytest.mark.parametrize("after", [False, True])
def test_a_run_that_dies_at_a_write_has_spent_what_it_has_sent(tmp_path, after):
    for place in itertools.count(1):
        broker = broker_of()
        acknowledging(broker)
        car = Car(tmp_path / f"{place}", broker)
        car.init()
        with pytest.MonkeyPatch.context() as patch:
            dying = Dying(patch, place, after)
            with contextlib.suppress(Killed):
                car.run()
        assert len(released(broker)) <= int(Fraction(car.state()["spent"]))
        car.run()
        assert len(released(broker)) == 1
        assert car.state()["spent"] == "1"
        if not dying.came:
            break
    assert place > 8


@pytest.mark.parametrize("after", [False, True])
def test_a_first_step_that_dies_is_repeated(tmp_path, broker, after):
    for place in itertools.count(1):
        car = Car(tmp_path / f"{place}", broker)
        with pytest.MonkeyPatch.context() as patch:
            dying = Dying(patch, place, after)
            with contextlib.suppress(Killed):
                car.init()
        with contextlib.suppress(ValueError):  # it was done
            car.init()
        assert car.state() == {"spent": "0", "answers": {}}
        if not dying.came:
            break
    assert place > 4


def test_a_disk_that_is_full_lets_nothing_out(broker, car, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        car.run()
    monkeypatch.undo()
    assert released(broker) == set()
    assert car.state()["spent"] == "0"


@pytest.mark.parametrize("seed", range(2))
def test_acknowledged_once_others_at_most_once_and_nobody_spends_twice(tmp_path, seed):
    """As the library's vehicle in test_faults.py."""
    broker = broker_of(JOBS[:1])
    chaos = Chaos(broker, seed)
    counter = store(tmp_path)
    cars = [Car(tmp_path / f"car {number}", broker) for number in range(5)]
    for car in cars:
        car.init()

    def count():
        with contextlib.suppress(Killed):
            pump(Counter(counter, broker.connect, silence=0, clock=Clock(NOW)), broker)

    def idle(connection):
        if not connection.client.startswith("counter-") and chaos.rng.random() < 0.5:
            count()

    broker.on_idle = idle
    for _ in range(40):
        with contextlib.suppress(Killed):
            chaos.rng.choice(cars).run()
        count()
    chaos.active = False
    counter.finish()
    counted = {identifier + packet for identifier, packet in counter.answers()}
    counter.close()
    payloads, acknowledged = set(), set()
    for car in cars:
        state = car.state()
        assert Fraction(state["spent"]) == len(state["answers"]) <= 1
        for answer in state["answers"].values():
            payloads.add(bytes.fromhex(answer["payload"]))
            if answer["acknowledged"]:
                acknowledged.add(bytes.fromhex(answer["payload"]))
    assert released(broker) <= payloads
    assert acknowledged <= counted <= payloads
    assert acknowledged
    assert chaos.kills > 5


def kill_processes(folder, kills):
    """Kill real runs, some of which overlap, each at a random moment."""
    rng, broker = random.Random(1), folder / "broker"
    broker.mkdir()
    for job in JOBS:
        campaign = asked(job=job, issued=utc_now().replace(microsecond=0))
        (broker / f"{job}.campaign").write_bytes(sent(campaign))
    example_vehicles.write(folder, cap="2.0")
    module = example_vehicles.load()
    module.main("init", str(folder / "settings.json"))
    command = [sys.executable, "-W", "ignore", example_vehicles.__file__, str(folder)]
    longest, died = 1.0, 0
    while died < kills or not (broker / "answers").exists():
        pair = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
        time.sleep(rng.uniform(0.2, longest))
        for process in pair:
            process.kill()
            died += process.wait() == -signal.SIGKILL
        longest = min(1.5 * longest, 4)
    lines = (broker / "answers").read_text().splitlines()
    answers = {line for line in lines if len(line) == max(map(len, lines))}
    with module.held_state(folder) as state:
        return answers, state.data


@pytest.mark.slow
def test_runs_that_are_killed_have_spent_what_they_have_sent(tmp_path):
    answers, state = kill_processes(tmp_path, 20)
    assert len(answers) <= int(Fraction(state["spent"])) == len(state["answers"]) <= 2


# Files that are lost or damaged


@pytest.fixture
def spent(broker, car):
    """A vehicle that has spent its cap."""
    acknowledging(broker)
    car.run()
    assert len(released(broker)) == 1
    return car


def refuses(car):
    with pytest.raises(ValueError, match=r"lost or damaged|is missing|has no state yet"):
        car.run()


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 37])
def test_every_bit_and_every_byte_of_the_state_counts(spent, broker, step):
    path = spent.folder / "state.json"
    whole = path.read_bytes()
    damages = [whole[:size] for size in range(0, len(whole), step)]
    damages += [whole + b" ", whole + whole]
    for place, bit in [*itertools.product(range(len(whole)), range(8))][::step]:
        data = bytearray(whole)
        data[place] ^= 1 << bit
        damages.append(bytes(data))
    state = spent.module.State(path, None)  # which only reads
    for damaged in damages:
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="lost or damaged"):
            state.read()
    refuses(spent)
    with pytest.raises(ValueError, match="has a state already"):
        spent.init()
    path.write_bytes(whole)
    assert spent.run() == 0
    assert len(released(broker)) == 1


@pytest.mark.parametrize("names", [["state.json"], ["state.lock"]])
def test_a_lost_file_is_no_new_vehicle(spent, broker, names):
    for name in names:
        (spent.folder / name).unlink()
    refuses(spent)
    with contextlib.suppress(ValueError):  # without the lock alone, what the state says stays true
        spent.init()
    with contextlib.suppress(ValueError):
        assert spent.state()["spent"] == "1"
        spent.run()
    assert len(released(broker)) == 1


@pytest.mark.parametrize("content", [b"", b"this vehicle has"])
def test_a_torn_lock_is_refused(spent, broker, content):
    (spent.folder / "state.lock").write_bytes(content)
    refuses(spent)
    spent.init()
    assert spent.run() == 0
    assert len(released(broker)) == 1


def test_what_a_run_that_died_has_left_behind_is_not_read(spent):
    (spent.folder / "state.new").write_bytes(b'{"sha256":"')
    assert spent.run() == 0
    assert spent.state()["spent"] == "1"


def test_nothing_begins_by_itself(tmp_path, broker):
    car = Car(tmp_path / "car", broker)
    refuses(car)
    assert not (car.folder / "state.json").exists()
    assert car.init() == 0
    with pytest.raises(ValueError, match="has a state already"):
        car.init()


def test_a_state_of_version_02_is_taken_over_by_the_first_step(tmp_path, broker):
    car = Car(tmp_path / "car", broker)
    answers = {
        "old": {"round": 1, "deadline": "2026-01-01T00:00:00Z", "payload": "", "acknowledged": True}
    }
    (car.folder / "state.json").write_text(json.dumps({"spent": "1/2", "answers": answers}))
    refuses(car)
    car.init()
    assert car.state() == {"spent": "1/2", "answers": answers}
    assert car.run() == 0
    assert released(broker) == set()  # 1/2 is left of the cap, and each campaign costs 1
