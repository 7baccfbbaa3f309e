"""What a counter stores, acknowledges and refuses; how the files of a round are merged."""

import itertools
import secrets
import struct
import zlib

import numpy as np
import pytest
from campaigns import (
    HOUR,
    NOW,
    PLAN,
    ROW,
    SCHEMA,
    Clock,
    Vehicles,
    asked,
    count,
    packet,
    published,
    pump,
    sent,
    store,
)
from ledger_victim import never

import fedldp
from fedldp import Category, Plan, Schema
from fedldp.budget.vehicle import Vehicle
from fedldp.campaigns.counter import GRACE, Counter
from fedldp.campaigns.store import CONFLICT, VEHICLES, Finished, Store, merge
from fedldp.campaigns.transport import Message
from fedldp.errors import DomainError, WireError


def several(vehicles, plan=PLAN):
    """Return a packet of several vehicles, or of none."""
    rows = {name: [value] * vehicles for name, value in ROW.items() if name in plan.schema}
    return plan.report(rows, fedldp.source(2)).to_bytes()


def payload(identifier=None, body=None):
    return (identifier or secrets.token_bytes(16)) + (packet() if body is None else body)


def test_an_answer_is_stored_once_and_acknowledged_each_time(tmp_path):
    with store(tmp_path) as counter:
        one, two = payload(), payload()
        assert [v.acknowledged for v in counter.add([one, two, one])] == [True] * 3
        assert [v.acknowledged for v in counter.add([one])] == [True]
        assert counter.received == 2
        assert counter.refused == {}
        assert sorted(a + b for a, b in counter.answers()) == sorted([one, two])


def test_equal_packets_of_different_vehicles_all_count(tmp_path):
    with store(tmp_path) as counter:
        counter.add([payload() for _ in range(50)])
        counter.finish()
        assert merge([counter]).counted.tally.reports == 50


def test_invalid_messages_are_counted_by_reason_and_not_acknowledged(tmp_path):
    other = Plan(SCHEMA, epsilon=0.5)
    damaged = bytearray(packet())
    damaged[-1] ^= 0x80
    bad = {
        b"": "length",
        b"short": "length",
        payload(body=b""): "length",
        payload(body=packet() + b"\0"): "length",
        payload(body=packet(plan=other)): "plan",
        payload(body=bytes(damaged)): "checksum",
        payload(body=several(0)): VEHICLES,
        payload(body=several(2)): VEHICLES,
    }
    with store(tmp_path) as counter:
        good = payload()
        verdicts = counter.add([*bad, good])
        assert [verdict.reason for verdict in verdicts] == [*bad.values(), ""]
        assert [verdict.acknowledged for verdict in verdicts] == [False] * len(bad) + [True]
        assert counter.received == 1
        assert counter.refused == {"checksum": 1, "length": 4, "plan": 1, VEHICLES: 2}


def test_a_packet_of_several_vehicles_in_the_bytes_of_one_is_refused(tmp_path):
    """Eight records of one bit take as many bytes as one: the header has to say one vehicle."""
    plan = Plan(Schema(SCHEMA.attributes[:1]), epsilon=1.0, mechanism="duchi")
    assert plan.bits == 1
    with store(tmp_path, asked(plan)) as counter:
        assert len(several(8, plan)) == len(several(1, plan))
        found = counter.add([payload(body=several(8, plan)), payload(body=several(1, plan))])
        assert [verdict.reason for verdict in found] == [VEHICLES, ""]


def test_an_identifier_keeps_its_first_packet(tmp_path):
    name, one = secrets.token_bytes(16), packet()
    other = next(p for s in range(99) if (p := packet(source=fedldp.source(s))) != one)
    with store(tmp_path) as counter:
        assert counter.add([name + one, name + other])[1].reason == CONFLICT
        assert [v.acknowledged for v in counter.add([name + other, name + one])] == [False, True]
        assert list(counter.answers()) == [(name, one)]
        assert counter.refused == {CONFLICT: 2}


def test_two_counters_count_an_identifier_once_or_not_at_all(tmp_path):
    name, one, shared = secrets.token_bytes(16), packet(), payload()
    other = next(p for s in range(99) if (p := packet(source=fedldp.source(s))) != one)
    with store(tmp_path, name="a") as a, store(tmp_path, name="b") as b:
        a.add([name + one, shared, payload()])
        b.add([name + other, shared, payload(), b"bad"])
        for each in (a, b):
            each.finish()
        found, again = merge([a, b]), merge([b, a])
        assert found == again
        assert found.counted.tally.reports == 3
        assert (found.repeated, found.conflicts, found.refused) == (1, 1, {"length": 1})
        [shard] = found.counted.manifest.shards
        assert shard == "campaign north/spring/1"
        with pytest.raises(DomainError, match="would count twice"):
            found.counted + merge([a]).counted


def test_a_finished_file_takes_no_more_and_no_other_is_merged(tmp_path):
    with store(tmp_path) as counter:
        counter.add([payload()])
        with pytest.raises(DomainError, match="is not finished"):
            merge([counter])
        counter.finish()
        counter.finish()
        with pytest.raises(Finished):
            counter.add([payload()])
        assert counter.received == 1
    with Store(tmp_path / "counter.db") as counter:
        assert counter.finished
    with pytest.raises(DomainError, match="at least one counter"):
        merge([])


def test_an_identifier_never_counts_for_several_vehicles(tmp_path):
    """No counter stores that, but the file may come from a machine that somebody has taken over."""
    with store(tmp_path) as file:
        with file._file.transaction():
            insert = "INSERT INTO answers VALUES (?, ?)"
            file._file.execute(insert, (secrets.token_bytes(16), several(1000)))
        file.finish()
        with pytest.raises(WireError, match="not that of one vehicle"):
            merge([file])


def test_files_of_different_campaigns_are_not_merged(tmp_path):
    others = [asked(number=2), asked(job="summer"), asked(Plan(SCHEMA, 0.5))]
    with store(tmp_path) as counter:
        counter.finish()
        for number, campaign in enumerate(others):
            with store(tmp_path, campaign, f"other-{number}") as other:
                other.finish()
                with pytest.raises(DomainError, match="another campaign"):
                    merge([counter, other])
        with pytest.raises(DomainError, match="another campaign"):
            store(tmp_path, others[0])
        # The same round with another deadline is the same campaign.
        with store(tmp_path, asked(hours=48)) as again:
            assert again.campaign.deadline == NOW + 48 * HOUR


def test_a_file_that_is_none_is_refused(tmp_path):
    with pytest.raises(DomainError, match="is not there"):
        Store(tmp_path / "missing.db")
    (tmp_path / "other.db").write_bytes(b"x" * 4096)
    with pytest.raises(WireError, match="not a valid file of a counter"):
        Store(tmp_path / "other.db")


def test_many_answers_are_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("fedldp.campaigns.store._AT_ONCE", 7)
    payloads = sorted(payload() for _ in range(50))
    with store(tmp_path) as counter:
        counter.add(payloads)
        assert [a + b for a, b in counter.answers()] == payloads


# A counter and a broker.


def test_a_counter_acknowledges_after_its_commit_and_never_what_is_invalid(tmp_path):
    broker = published()
    with store(tmp_path) as file:
        (counter,) = count([file], broker)
        vehicle = broker.connect("vehicle")
        good, campaign = payload(), asked()
        vehicle.subscribe("fedldp/north/ack/spring/1/+")
        for each in (good, b"bad", good):
            vehicle.publish(campaign.answers, each)
        (session,) = broker.sessions.values()
        assert len(session[1]) == 3
        file.add = None  # the commit fails
        with pytest.raises(TypeError):
            pump(counter, broker)
        assert not vehicle.waiting
        del file.add
        pump(counter, broker)  # the broker delivers again what was not acknowledged
        topics = [message.topic for message in vehicle.waiting]
        assert topics == [campaign.acknowledgement(good[:16])] * 2
        assert file.received == 1
        assert file.refused == {"length": 1}
        (session,) = broker.sessions.values()
        assert not session[1]  # all were acknowledged to the broker


def test_after_a_restart_of_the_broker_the_campaign_is_published_again(tmp_path):
    broker, campaign = published(), asked()
    with store(tmp_path) as file:
        (counter,) = count([file], broker, silence=0)
        text = broker.retained[campaign.topic]
        broker.crash()
        assert broker.retained == {}
        pump(counter, broker)
        assert broker.retained == {campaign.topic: text}
        # A later round is left alone.
        later = sent(asked(number=2))
        broker.retained[campaign.topic] = later
        pump(counter, broker)
        assert broker.retained == {campaign.topic: later}


def test_a_counter_waits_for_a_broker_that_is_down(tmp_path):
    broker = published()
    broker.up = False
    naps = []

    def sleep(seconds):
        naps.append(seconds)
        broker.up = len(naps) == 8

    with store(tmp_path) as file:
        idle = []
        broker.on_idle = lambda _: idle.append(1)
        Counter(file, broker.connect, clock=Clock()).run(sleep, lambda: bool(idle))
    assert naps == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_a_counter_finishes_its_file_after_the_deadline_and_some_grace(tmp_path):
    broker, clock = published(), Clock()
    with store(tmp_path) as file:
        (counter,) = count([file], broker, clock)
        clock.now = NOW + 24 * HOUR + GRACE / 3601 * HOUR
        assert pump(counter, broker) is False
        assert not file.finished
        clock.now = NOW + 24 * HOUR + GRACE / 3599 * HOUR
        assert pump(counter, broker) is True
        assert file.finished


def test_a_counter_that_is_closed_from_outside_acknowledges_nothing_more(tmp_path):
    broker = published()
    with store(tmp_path) as file, Store(tmp_path / "counter.db") as outside:
        (counter,) = count([file], broker)
        vehicle = broker.connect("vehicle")
        vehicle.subscribe("fedldp/north/ack/spring/1/+")
        vehicle.publish(asked().answers, payload())
        outside.finish()
        assert pump(counter, broker) is True
        assert not vehicle.waiting
        assert outside.received == 0


# A vehicle, a counter and a broker.


def test_a_vehicle_is_counted_and_then_silent(tmp_path):
    broker = published()
    with store(tmp_path) as file, Vehicles(tmp_path / "car") as vehicles:
        count([file], broker)
        agent = vehicles.agent(broker)
        assert agent.visit() == (True, 0)
        assert file.received == 1
        sent = len(broker.published)
        assert agent.visit() == (True, 0)
        assert len(broker.published) == sent


def test_a_vehicle_sends_the_same_bytes_until_it_is_acknowledged(tmp_path):
    broker, campaign = published(), asked()
    with store(tmp_path) as file, Vehicles(tmp_path / "car") as vehicles:
        count([file], broker)
        losses = iter([campaign.answers, "ack", "ack", None])
        losing = next(losses)
        broker.lose = lambda topic: losing is not None and f"/{losing}/" in f"/{topic}/"
        left = []
        while losing is not None:
            left.append(vehicles.agent(broker).visit().pending)
            losing = next(losses)
        left.append(vehicles.agent(broker).visit().pending)
        assert left == [1, 1, 1, 0]
        sent = {payload for _, topic, payload in broker.published if topic == campaign.answers}
        assert len(sent) == 1
        assert file.received == 1
        assert vehicles.ledger.totals() == {"vehicle": 1}


def test_the_name_of_a_connection_is_the_identifier_and_returns_in_no_other_job(tmp_path):
    broker = published()
    summer = asked(job="summer")
    broker.retained[summer.topic] = sent(summer)
    with Vehicles(tmp_path / "car", cap="2") as vehicles:
        vehicles.agent(broker).visit()
        vehicles.agent(broker).visit()
        pending = vehicles.answers().pending()
    assert [answer.job for answer in pending] == ["spring", "summer"]
    by_client = {client: topic for client, topic, _ in broker.published}
    assert by_client == {answer.identifier.hex(): answer.topic for answer in pending}
    # The first answer is sent in the visit that found it; the other one needs another connection.
    assert broker.clients[0] == pending[0].identifier.hex()
    assert broker.clients[1] == pending[1].identifier.hex()


def test_a_repeated_answer_has_identifiers_that_the_broker_cannot_link(tmp_path):
    """They are derived from a secret in the ledger, which is never the name of a connection."""
    schema = Schema((Category("model", ["A", "B"], constant=True),))
    plan = Plan(schema, epsilon=1.0)
    with Vehicles(tmp_path / "car", schema=schema) as vehicles:
        for job in ("spring", "summer"):
            broker = published(asked(plan, job=job))
            vehicles.agent(broker, row={"model": "A"}).visit()
            secret = Vehicle(vehicles.ledger).answer(plan, never, job=job, round="1").nonce
            assert broker.published
            assert secret.hex() not in broker.clients
            assert not any(secret in payload for _, _, payload in broker.published)


def test_a_vehicle_says_in_its_log_why_it_does_not_answer_once(tmp_path, caplog):
    broker = published(asked(fleet="north", hours=0.5, issued=NOW - HOUR))
    with Vehicles(tmp_path / "car") as vehicles:
        agent = vehicles.agent(broker)
        agent.visit()
        agent.visit()
    assert broker.published == []
    (line,) = [record.getMessage() for record in caplog.records]
    assert "did not answer 'fedldp/north/campaign/spring': its deadline was" in line


def test_a_vehicle_waits_longer_each_time_and_stops_at_the_deadline(tmp_path, monkeypatch):
    broker, clock = published(), Clock()
    seconds = itertools.count()  # that pass between two looks at the clock: a thousandth
    slept, sent = [0.0], []
    now = lambda: next(seconds) / 1000 + sum(slept)  # noqa: E731
    monkeypatch.setattr("fedldp.campaigns.agent.monotonic", now)
    broker.lose = lambda topic: topic == asked().answers and sent.append(now())

    def sleep(pause):
        slept.append(pause)
        clock.now = NOW + now() / 3600 * HOUR

    with Vehicles(tmp_path / "car", clock=clock) as vehicles:
        agent = vehicles.agent(broker)
        agent._every, agent._retry = 4000, 30
        agent.run(sleep, lambda: clock.now > NOW + 30 * HOUR)
        assert vehicles.ledger.totals() == {"vehicle": 1}
    assert len({payload for _, _, payload in broker.published}) == 1
    assert len(sent) > 20
    assert sent[-1] < 24 * 3600
    for number, pause in enumerate(np.diff(sent).tolist()):
        usual = min(30 * 2**number, 4000)
        assert 0.5 * usual <= pause <= 1.5 * usual + 1


def test_a_vehicle_looks_again_soon_if_the_broker_was_down(tmp_path):
    broker, naps = published(), []
    broker.up = False
    with Vehicles(tmp_path / "car") as vehicles:
        agent = vehicles.agent(broker)
        agent._every, agent._retry = 4000, 30
        agent.run(naps.append, lambda: len(naps) == 1)
        assert 0.49 * 30 < naps[0] < 1.5 * 30
        broker.up = True
        agent.visit()
    assert len(broker.published) == 1


def test_a_broker_that_never_stops_sending_does_not_keep_a_vehicle(tmp_path):
    broker = published()
    topic, (payload,) = asked().topic, broker.retained.values()
    broker.on_idle = lambda connection: connection.waiting.append(Message(topic, payload, 0))
    with Vehicles(tmp_path / "car") as vehicles:
        agent = vehicles.agent(broker)
        found = agent._campaigns(broker.connect("car"))
        assert found == {topic: payload}


def test_large_campaigns_do_not_fill_the_memory_of_a_vehicle(tmp_path, monkeypatch):
    monkeypatch.setattr("fedldp.campaigns.agent.MOST_BYTES", 1000)
    broker = published()
    broker.retained = {f"fedldp/north/campaign/job-{n}": bytes(300) for n in range(30)}
    with Vehicles(tmp_path / "car") as vehicles:
        connection = broker.connect("car")
        connection.subscribe("fedldp/north/campaign/+")
        assert len(vehicles.agent(broker)._campaigns(connection)) == 3


def test_messages_that_are_too_long_do_not_fill_the_memory_of_a_counter(tmp_path):
    """It stores up to a thousand together: of each, it holds what is needed to refuse it."""
    broker, lengths = published(), []
    with store(tmp_path) as file:
        (counter,) = count([file], broker)
        vehicle = broker.connect("vehicle")
        for each in (payload() + bytes(1 << 20), payload()):
            vehicle.publish(asked().answers, each)
        file.add = lambda payloads, _: (
            lengths.extend(map(len, payloads)) or Store.add(file, payloads)
        )
        pump(counter, broker)
        assert lengths == [file.size + 1, file.size]
        assert (file.received, file.refused) == (1, {"length": 1})


def test_nothing_but_the_answer_leaves_a_vehicle(tmp_path):
    """Whatever the row holds, the vehicle connects, subscribes and publishes alike."""
    seen = []
    for number, row in enumerate([{"speed": 30, "city": "Rome"}, {}, {"speed": "no number"}]):
        broker = published()
        with Vehicles(tmp_path / str(number)) as vehicles:
            vehicles.agent(broker, row=row).visit()
        (own,) = broker.clients
        [(client, topic, sent)] = broker.published
        assert (client, sent[:16].hex()) == (own, own)
        size = struct.unpack(">I", sent[24:28])[0], zlib.crc32(sent[16:28] + sent[32:])
        assert size == (1, int.from_bytes(sent[28:32]))
        seen.append((topic, len(sent)))
    assert len(set(seen)) == 1
