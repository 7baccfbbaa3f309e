"""The mod: one report leaves a ClientApp, and whatever happens nothing else."""

import asyncio
import hashlib
import logging
import time
import zlib

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Error,
    Message,
    MetricRecord,
)
from hypothesis import given
from hypothesis import strategies as st
from nodes import (
    DRIVES,
    FAST,
    SIGNS,
    SIZE,
    SLOW,
    SPEED,
    VECTOR,
    Node,
    asked,
    check_shape,
    code,
    content,
    refused,
)

import fedldp
from fedldp import Plan, Schema
from fedldp.errors import DomainError
from fedldp.plan.strategies import Sample
from fedldp_fleet.flower import messages
from fedldp_fleet.flower.messages import NAME, packed
from fedldp_fleet.flower.mod import tally

# What leaves


def test_one_report_and_nothing_else_leaves(tmp_path):
    reply = content(
        arrays=ArrayRecord([np.ones(100)]),
        metrics=MetricRecord({"speed": 50.0, "num-examples": 17, "loss": 0.3}),
        config=ConfigRecord({"name": "Ada"}),
    )
    node = Node(tmp_path, reply)
    found = node.ask()
    check_shape(found)
    assert code(found) == FAST
    assert node.spent() == 16
    assert node.calls == 1


def test_the_metadata_are_settled_before_the_app_begins(tmp_path):
    def tell(message, _):
        began.append(time.time())
        message.metadata.dst_node_id = message.metadata.ttl = 99
        message.metadata.message_type = "train.secret"
        return DRIVES

    began = []
    found = Node(tmp_path, tell).ask(asked(node=7)).metadata
    assert (found.src_node_id, found.dst_node_id, found.message_type) == (7, 1, "train")
    assert found.ttl > 500
    assert found.created_at <= began[0]


def raises(error):
    def fail(*_):
        raise error

    return fail


def lazy(message, _):
    return Message(Error(code=1, reason="17 examples"), reply_to=message)


class Own(BaseException):
    """An exception that cannot be shown: showing it raises another."""

    def __str__(self):
        raise KeyboardInterrupt


class Hostile:
    """A reply that raises whenever anything is asked of it."""

    def __getattr__(self, name):
        raise Own


BROKEN = {
    "an exception": raises(ZeroDivisionError("17 examples")),
    "an exit": raises(SystemExit("17 examples")),
    "a coroutine that is cancelled": raises(asyncio.CancelledError()),
    "a key that is pressed": raises(KeyboardInterrupt()),
    "a generator that ends": raises(GeneratorExit()),
    "an exception of its own": raises(Own()),
    "a domain error that cannot be shown": raises(type("Error", (DomainError, Own), {})()),
    "too deep": raises(RecursionError()),
    "a group": raises(BaseExceptionGroup("17 examples", [Own()])),
    "hostile": lambda *_: Hostile(),
    "no memory": raises(MemoryError()),
    "an error": lazy,
    "nothing": lambda *_: None,
    "no record": content(),
    "not a number": content(metrics=MetricRecord({"speed": float("nan")})),
    "a list": content(metrics=MetricRecord({"speed": [50.0, 50.0]})),
    "a text": content(config=ConfigRecord({"speed": "fast"})),
    "another name": content(metrics=MetricRecord({"Speed": 50.0})),
    "two numbers": content(arrays=ArrayRecord([np.full(2, 50.0)])),
    "no numbers": content(arrays=ArrayRecord([np.zeros(0)])),
    "no array": content(arrays=ArrayRecord({"a": Array("f8", (1,), "numpy.ndarray", b"x")})),
    "complex": content(arrays=ArrayRecord([np.array([50j])])),
}


@pytest.mark.parametrize("reply", BROKEN.values(), ids=BROKEN)
def test_the_data_never_cause_a_refusal(tmp_path, reply):
    node = Node(tmp_path, reply)
    found = node.ask()
    check_shape(found)
    assert code(found) == SLOW  # the public default
    assert node.spent() == 16
    assert node.ask().content == found.content  # an answer like any other, also when asked again
    assert node.calls == 1


def test_what_the_app_does_to_the_message_or_to_numpy_does_not_matter(tmp_path):
    def spoil(message, _):
        np.seterr(all="raise")
        message.__dict__.clear()
        return content(arrays=ArrayRecord([np.array([np.float64(1e308)]), np.array([np.nan])]))

    node = Node(tmp_path, spoil)
    with np.errstate():
        check_shape(node.ask())
    assert node.spent() == 16


class Breaks(logging.Handler):
    """What a program around the node may have added to Flower's logger."""

    def emit(self, record):
        raise Own


@pytest.mark.parametrize("value", [50.0, 99.0, float("nan")])
def test_what_is_logged_cannot_fail(tmp_path, monkeypatch, value):
    monkeypatch.setattr(messages.log, "handlers", [Breaks()])
    node = Node(tmp_path, content(metrics=MetricRecord({"speed": value})))
    check_shape(node.ask())
    assert node.spent() == 16
    assert refused(node.ask(asked(kind="evaluate")))


# What is read from the app's reply


ARRAYS = {
    "one": [np.array([1.0, -1.0, 1.0])],
    "several": [np.array([[1.0], [-1.0]]), np.float32([1])],
    "whole numbers": [np.array([[1, -1, 1]], np.int8)],
    "clipped": [np.array([1e300, -np.inf, 7])],
    "partly unknown": [np.array([1.0, np.nan, 1.0])],
}


def signs(node, count=40):
    found = tally(VECTOR, [node.ask(asked({"round": number})) for number in range(count)])
    assert found.reports == count
    return found.counts[0].reshape(3, 2).astype(bool).tolist()


@pytest.mark.parametrize("arrays", ARRAYS.values(), ids=ARRAYS)
def test_arrays_are_the_vector(tmp_path, arrays):
    node = Node(tmp_path, content(arrays=ArrayRecord(arrays)), VECTOR, cap=640)
    assert signs(node) == [[False, True], [True, False], [False, True]]


def test_arrays_in_several_records_come_one_after_the_other(tmp_path):
    first, rest = ArrayRecord([np.ones(1)]), ArrayRecord([np.array([-1.0, 1.0])])
    node = Node(tmp_path, content(zzz=first, aaa=rest), VECTOR, cap=640)
    assert signs(node) == [[False, True], [True, False], [False, True]]


def test_a_vector_of_the_wrong_size_is_the_default_in_all_places(tmp_path):
    node = Node(tmp_path, content(arrays=ArrayRecord([np.ones(4)])), VECTOR, cap=640)
    assert signs(node) == [[True, False]] * 3


def test_a_vector_may_be_a_metric(tmp_path):
    reply = content(
        arrays=ArrayRecord([np.zeros(7)]),  # the weights: not what is asked for
        metrics=MetricRecord({"x": [1.0, -1.0, 1.0]}),
    )
    assert signs(Node(tmp_path, reply, VECTOR, cap=640)) == [
        [False, True],
        [True, False],
        [False, True],
    ]


def test_categories_are_found_by_their_names(tmp_path):
    plan = Plan(Schema.of(city=["Oslo", "Rome", "Lima"]), epsilon=16.0)
    node = Node(tmp_path, content(config=ConfigRecord({"city": "Lima"})), plan)
    assert code(node.ask(), plan) == 2


# The server's half


def reply_of(parts):
    return Message(parts, reply_to=asked())


def report(vehicles=1, plan=SIGNS):
    rows = [{"speed": 50}] * vehicles
    return plan.report(rows, fedldp.source(1)).to_bytes()


def flipped(data):
    return data[:-1] + bytes([data[-1] ^ 0x80])


OTHER = Plan(SPEED, 10.0, Sample(mechanism="duchi"))
MALFORMED = {
    "a refusal": packed(bytes(SIZE)),
    "nothing": content(),
    "another name": content(other=ConfigRecord({NAME: report()})),
    "another value": content(**{NAME: ConfigRecord({"other": report()})}),
    "a value more": content(**{NAME: ConfigRecord({NAME: report(), "loss": 0.3})}),
    "a record more": content(**{NAME: ConfigRecord({NAME: report()}), "m": MetricRecord()}),
    "a text": content(**{NAME: ConfigRecord({NAME: "x" * SIZE})}),
    "a metric": content(**{NAME: MetricRecord({NAME: 1.0})}),
    "no bytes": packed(b""),
    "too few": packed(report()[:-1]),
    "too many": packed(report() + b"\0"),
    "a bit flipped": packed(flipped(report())),
    "another plan": packed(report(plan=OTHER)),
    "three vehicles": packed(report(3)),  # which take no more bytes than one does
    "many vehicles": packed(report(1000)),
    "nobody": packed(report(0).ljust(SIZE, b"\0")),
}


@pytest.mark.parametrize("parts", MALFORMED.values(), ids=MALFORMED)
def test_what_is_malformed_counts_nothing_and_loses_nothing(parts):
    good = reply_of(packed(report()))
    found = tally(SIGNS, [good, reply_of(parts), good])
    assert found == SIGNS.parse(report()) + SIGNS.parse(report())


def test_it_is_logged_how_many_have_refused(caplog):
    contents = [packed(bytes(SIZE)), packed(report()), packed(b""), packed(bytes(SIZE))]
    assert tally(SIGNS, map(reply_of, contents)).reports == 1
    assert caplog.messages == [
        "2 replies were not counted: the vehicle refused.",
        "1 replies were not counted: a report has a header of 16 bytes; got 0.",
    ]


def test_errors_of_flower_count_nothing():
    error = Message(Error(code=5, reason="17 examples"), reply_to=asked())
    assert tally(SIGNS, iter([error])) == SIGNS.tally()


@given(st.binary(min_size=SIZE, max_size=SIZE))
def test_whatever_bytes_come_nothing_is_raised(data):
    sound = data[:12] + zlib.crc32(data[:12] + data[16:]).to_bytes(4, "big") + data[16:]
    head = bytes([1]) + bytes.fromhex(SIGNS.fingerprint)[:7] + data[8:12]
    own = head + zlib.crc32(head + data[16:]).to_bytes(4, "big") + data[16:]
    for each in (data, sound, own):
        assert tally(SIGNS, [reply_of(packed(each))]).reports in (0, 1)


def test_estimates_come_from_the_replies_of_many(tmp_path):
    nodes = 100
    plan = Plan(SPEED, 8.0, Sample(mechanism="duchi"))
    speeds = np.linspace(30, 50, nodes)

    def drive(_, context):
        speed = float(speeds[context.node_config["partition-id"]])
        return content(metrics=MetricRecord({"speed": speed}))

    node = Node(
        tmp_path, drive, plan, cap=8, vehicle_id=lambda c: str(c.node_config["partition-id"])
    )
    estimate = tally(plan, [node.ask(**{"partition-id": i}) for i in range(nodes)]).estimate()
    # A sign says 25 +- 25, so the mean of 100 has a standard error of at most 2.5: with another
    # seed it would be out by five of them less than once in a million runs.
    assert abs(estimate["speed"].mean - 40) < 12.5
    assert estimate.reports == nodes


def test_a_report_is_bound_to_its_plan():
    short = bytes.fromhex(hashlib.sha256(SIGNS.to_json().encode()).hexdigest())[:7]
    assert report()[1:8] == short
