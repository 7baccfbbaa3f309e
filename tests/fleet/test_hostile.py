"""Whatever gateways send, and however the network fails, nobody else's round suffers."""

import itertools
import logging

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from gateways import Network, batch, final, honest, mute, training

from fedldp import Plan, Schema
from fedldp.fleet.flower.messages import NAME, packed
from fedldp.fleet.protocol import Answer, Question
from fedldp.fleet.server import checkpoint


def damaged(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def others(question, **changes):
    """Return a batch that answers another question."""
    entries = {name: getattr(question, name) for name in ("job", "round", "gateway", "n")}
    entries |= {"plan": question.plan, "model": question.model} | changes
    return batch(Question(**entries))


def invalid(question):
    """Return a batch of codes that the plan does not have."""
    width = question.width
    return Answer.of(question, [bytes([255] * (-(-width // 8)))] * question.n).to_bytes()


BYTES = {
    "nothing": lambda _: b"",
    "garbage": lambda _: b"garbage" * 9,
    "as long as it should be": lambda question: bytes(question.size),
    "damaged": lambda question: damaged(batch(question)),
    "longer": lambda question: batch(question) + b"\0",
    "shorter": lambda question: batch(question)[:-1],
    "10 MB": lambda _: bytes(10_000_000),
    "another job": lambda question: others(question, job="other"),
    "another round": lambda question: others(question, round=question.round + 1),
    "another gateway": lambda question: others(question, gateway="12"),
    "another n": lambda question: others(question, n=question.n - 1),
    "another model": lambda question: others(question, model=""),
    "another plan": lambda question: others(
        question, plan=Plan(Schema.vector(3, 1.0), 1.0, mechanism="three-outputs", k=1).to_json()
    ),
    "invalid codes": invalid,
    "a question": lambda question: question.to_bytes(),
}
CONTENTS = {name: lambda question, f=f: packed(f(question)) for name, f in BYTES.items()} | {
    "no record": lambda _: RecordDict({}),
    "two records": lambda question: RecordDict(
        {NAME: ConfigRecord({NAME: batch(question)}), "more": ConfigRecord({})}
    ),
    "metrics too": lambda question: RecordDict(
        {NAME: ConfigRecord({NAME: batch(question)}), "m": MetricRecord({"loss": 0.5})}
    ),
    "two values": lambda question: RecordDict(
        {NAME: ConfigRecord({NAME: batch(question), "loss": 0.5})}
    ),
    "another name": lambda question: RecordDict({NAME: ConfigRecord({"x": batch(question)})}),
    "another record": lambda question: RecordDict({"x": ConfigRecord({NAME: batch(question)})}),
    "a text": lambda _: RecordDict({NAME: ConfigRecord({NAME: "text"})}),
    "a list": lambda question: RecordDict({NAME: ConfigRecord({NAME: [batch(question)]})}),
    "arrays": lambda _: RecordDict({NAME: ArrayRecord([np.zeros(3)])}),
    "metrics": lambda _: RecordDict({NAME: MetricRecord({NAME: 0.5})}),
    "an error": lambda _: Error(5, "the text of an exception: 48 km/h"),
}


@pytest.fixture(scope="module")
def without_the_second(tmp_path_factory):
    job = training(tmp_path_factory.mktemp("plain"))
    Network(honest, mute, honest).start(job)
    return final(job).to_json()


@pytest.mark.parametrize("name", CONTENTS)
def test_an_invalid_batch_is_ignored(name, tmp_path, caplog, without_the_second):
    """The round continues without it, the question is sent again, and the log says so once."""

    def hostile(question, _):
        yield CONTENTS[name](question)

    job, network = training(tmp_path), Network(honest, hostile, honest)
    with caplog.at_level(logging.INFO, "fedldp"):
        network.start(job)
    assert final(job).to_json() == without_the_second
    assert [node for node, _ in network.sent].count(11) == 3 * 6
    logged = [each for each in caplog.records if "gateway 11" in each.message]
    assert len(logged) == 1
    assert len(logged[0].message) < 200
    assert "48 km/h" not in caplog.text


@pytest.mark.parametrize("name", CONTENTS)
def test_who_sends_rubbish_first_is_heard_later(name, tmp_path):
    def confused(question, attempt):
        yield packed(batch(question)) if attempt else CONTENTS[name](question)

    job, network = training(tmp_path, rounds=1), Network(honest, confused, honest)
    network.start(job)
    assert network.now == 10
    assert checkpoint.status(job.checkpoint).reports == 24


def test_the_first_batch_wins(tmp_path):
    def twice(question, _):
        yield packed(batch(question))
        yield packed(batch(question))
        yield packed(batch(question, 3))

    job, network = training(tmp_path), Network(twice, honest, twice)
    network.start(job)
    plain = training(tmp_path / "plain")
    Network(honest, honest, honest).start(plain)
    assert final(job).to_json() == final(plain).to_json()
    assert len(network.sent) == 9


def test_replies_to_two_sendings_count_once(tmp_path, caplog):
    """Both came while the server did not look; or the second is another batch."""
    stored = []

    def slow(question, attempt):
        stored.append(question)
        if attempt:  # the reply to the first one comes now too
            network.replies["message 2"] = [
                Message(packed(batch(question, 4)), reply_to=first(network, "message 2"))
            ]
            yield packed(batch(question))

    def first(network, key):
        content = packed(network.sent[1][1])
        message = Message(content, 11, "train")
        message.metadata.__dict__["_message_id"] = key
        return message

    job, network = training(tmp_path, rounds=1), Network(honest, slow, honest)
    network.start(job)
    assert len(stored) == 2
    progress = checkpoint.status(job.checkpoint)
    assert (progress.reports, progress.received, progress.rounds) == (20, 0, 1)
    assert caplog.text.count("gateway 11: the answer came too late, or twice") == 1


def test_batches_of_a_round_that_is_over_are_ignored(tmp_path):
    old = []

    def late(question, _):
        old.append(batch(question))
        yield packed(old[-2] if len(old) > 1 else b"")

    job, network = training(tmp_path), Network(honest, late, honest)
    network.start(job)
    progress = checkpoint.status(job.checkpoint)
    assert (progress.rounds, progress.reports) == (3, 72)
    assert network.now == 30  # in each round, the second sending brought the right one


def test_a_gateway_cannot_answer_for_another(tmp_path):
    """Not even with that one's question: what counts is which message it replies to."""

    def thief(question, _):
        yield packed(others(question, gateway="12"))

    job, network = training(tmp_path, rounds=1), Network(honest, thief, mute)

    network.start(job)
    assert set(checkpoint.status(job.checkpoint).bytes) == {"10"}


def test_replies_to_nothing_are_ignored(tmp_path, caplog):
    def lost(question, _):
        other = Message(packed(b""), int(question.gateway), "train")
        other.metadata.__dict__["_message_id"] = "message 77"
        yield Message(packed(batch(question)), reply_to=other)

    job, network = training(tmp_path, rounds=1), Network(honest, lost, lost)
    network.start(job)
    assert checkpoint.status(job.checkpoint).reports == 8
    assert caplog.text.count("a reply to a message that was never sent") == 1


# A grid that fails


@pytest.mark.parametrize("every", [2, 3, 5, 7])
def test_a_grid_that_fails_now_and_then(every, tmp_path):
    network = Network(honest, honest, honest)

    def fails(call):
        if call % every == 0:
            raise ConnectionError("the SuperLink is down")

    network.fails = fails
    job = training(tmp_path)
    network.start(job)
    plain = training(tmp_path / "plain")
    Network(honest, honest, honest).start(plain)
    assert final(job).to_json() == final(plain).to_json()


def test_a_grid_that_is_down_for_a_while(tmp_path):
    network = Network(honest, honest, honest)

    def fails(_):
        if 20 < network.now < 70 or network.now < 12:
            raise ConnectionError("the SuperLink is down")

    network.fails = fails
    job = training(tmp_path)
    network.start(job)
    assert final(job).round == 3


def test_a_grid_that_is_down_for_good_ends_the_process_but_not_the_job(tmp_path, caplog):
    network, job = Network(honest, honest, honest), training(tmp_path)

    def fails(call):
        if call > 8:
            raise ConnectionError("no such run")

    network.fails = fails
    with pytest.raises(ConnectionError, match="no such run"):
        network.start(job)
    assert job.deadline < network.now < 2 * job.deadline
    assert caplog.text.count("ConnectionError") == 1
    assert not checkpoint.locked(job.checkpoint)
    assert not checkpoint.finished(job.checkpoint)
    Network(honest, honest, honest).start(job)
    assert final(job).round == 3


def test_what_the_grid_does_not_take_is_sent_again(tmp_path):
    network, job = Network(honest, honest, honest), training(tmp_path)
    push, answers = network.push_messages, itertools.cycle([[None], [], None])

    def picky(messages):
        answer = next(answers)
        return push(messages) if answer is None else answer

    network.push_messages = picky
    network.start(job)
    plain = training(tmp_path / "plain")
    Network(honest, honest, honest).start(plain)
    assert final(job).to_json() == final(plain).to_json()
