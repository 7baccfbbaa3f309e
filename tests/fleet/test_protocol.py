"""What goes over the fleet's network: golden bytes, round trips, and all that is refused."""

import hashlib
import json
import zlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import HAND_MADE, canonical, changed, crc, places
from vaults import GRADIENT, MODEL, ROWS, asked, gradients

import fedldp
from fedldp import Plan, Schema
from fedldp._internal import packing
from fedldp.errors import DataWarning, DomainError, FedLDPError, WireError
from fedldp.fleet import protocol
from fedldp.fleet.protocol import MOST_BYTES, Answer, Question, deflated, inflated

PLANS = {
    "narrow": ROWS,
    "gradient": GRADIENT,
    "whole bytes": Plan(Schema.vector(8, 1.0), 1.0, strategy="cube"),
    "64 bits": Plan(Schema.vector(64, 1.0), 1.0, strategy="cube"),
    "wide": Plan(Schema.vector(70, 1.0), 1.0, strategy="cube"),
    "vast": Plan(Schema.vector(1000, 1.0), 1.0, strategy="cube"),
}
WIDTHS = {name: plan.bits for name, plan in PLANS.items()}
NAMES = st.sampled_from(sorted(PLANS))
DOCUMENT = json.loads(gradients().to_bytes())


def rows_from(numbers, width):
    """Return records in bytes of their own, from the numbers that their bits are."""
    size = (width + 7) // 8
    return [(number << 8 * size - width).to_bytes(size) for number in numbers]


def written(question, numbers, silent, n=None, width=None, version=1, digest=None, bits=""):
    """Return the bytes of a batch as the format has them, by means of texts of 0 and 1."""
    n, width = n or question.n, width or question.width
    digest = digest or hashlib.sha256(question.to_bytes()).digest()
    head = bytes([version]) + digest[:16]
    head += b"".join(each.to_bytes(4) for each in (n, len(numbers), silent))
    text = "".join(f"{number:0{width}b}" for number in sorted(numbers)) + bits
    size = (n * width + 7) // 8
    area = int(text.ljust(8 * size, "0"), 2).to_bytes(size)
    return head + crc(head + area) + area


@st.composite
def batches(draw):
    plan = PLANS[draw(NAMES)]
    question = asked(draw(st.integers(1, 20)), plan)
    numbers = st.integers(0, (1 << plan.bits) - 1)
    found = draw(st.lists(numbers, max_size=question.n))
    return question, found, draw(st.integers(0, question.n - len(found)))


def test_the_plans_have_widths_of_all_kinds():
    assert list(WIDTHS.values()) == [5, 12, 8, 64, 70, 1000]


def test_golden_bytes():
    question = Question(job="a", round=2, gateway="b", n=3, plan=ROWS.to_json())
    start = '{"format":"fedldp question 1","gateway":"b","job":"a","model":"","n":3,"plan":"{'
    assert question.to_bytes().startswith(start.encode())
    assert question.to_bytes().endswith(b',"round":2}')
    assert question.request == "a/2"
    batch = Answer.of(question, rows_from([21, 1], 5), silent=1)
    head = b"\1" + question.digest[:16] + bytes.fromhex("000000030000000200000001")
    assert batch.to_bytes() == head + crc(head + b"\x0d\x40") + b"\x0d\x40"


@given(batches())
def test_a_batch_goes_there_and_back(given_):
    question, numbers, silent = given_
    width = question.width
    data = Answer.of(question, rows_from(numbers, width), silent).to_bytes()
    assert data == written(question, numbers, silent)
    assert len(data) == question.size == len(Answer.of(question).to_bytes())
    again = Answer.from_bytes(data, question)
    assert again.split() == rows_from(sorted(numbers), width)
    assert (again.answered, again.silent) == (len(numbers), silent)
    assert again == Answer.of(question, rows_from(reversed(numbers), width), silent)


@pytest.mark.parametrize("name", PLANS)
def test_a_batch_is_a_report_on_its_plan(name):
    plan = PLANS[name]
    with pytest.warns(DataWarning):  # they have no values
        sent = plan.report([{}] * 11, fedldp.source(1))
    batch = Answer.of(asked(20, plan), packing.parse(sent.records, 11, plan.bits).split())
    tally = plan.parse(batch.report(plan.fingerprint).to_bytes())
    assert tally == plan.parse(sent.to_bytes())


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("answered", [0, 1, 3])
def test_every_flipped_bit_and_every_other_length_is_refused(name, answered):
    question = asked(3, PLANS[name])
    data = Answer.of(question, rows_from(range(answered), question.width)).to_bytes()
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(WireError):
            Answer.from_bytes(bytes(flipped), question)
    for other in (*(data[:end] for end in range(len(data))), data + b"\0", data * 2):
        with pytest.raises(WireError, match="does not have the length"):
            Answer.from_bytes(other, question)
    for other in (None, data.hex(), bytearray(data), memoryview(data), [data], 7):
        with pytest.raises(WireError, match="does not have the length"):
            Answer.from_bytes(other, question)


@pytest.mark.parametrize("name", PLANS)
def test_what_is_well_sealed_and_still_no_answer_is_refused(name):
    question = asked(3, PLANS[name])
    assert Answer.from_bytes(written(question, [1, 0], 1), question).answered == 2
    wrong = {
        "another question": [
            written(question, [1], 0, digest=asked(3, PLANS[name], number=2).digest),
            written(question, [1], 0, digest=bytes(32)),
            written(question, [1], 0, version=2),
            written(question, [1], 0, version=0),
            written(question, [], 0, n=2).ljust(question.size, b"\0"),
            bytes(question.size),
        ],
        "more vehicles than were asked": [
            written(question, [1, 1], 2),
            written(question, [], 4),
            written(question, [1, 1, 1], (1 << 32) - 3),
            written(question, [1, 1, 1], (1 << 32) - 1),
        ],
        "bits after its last record": [
            written(question, [], 0, bits="1"),
            written(question, [1], 0, bits="1"),
            written(question, [1, 1], 1, bits="0" * (question.width - 1) + "1"),
        ],
    }
    if question.width * 3 % 8:
        wrong["bits after its last record"] += [written(question, [1, 1, 1], 0, bits="1")]
    for why, cases in wrong.items():
        for case in cases:
            with pytest.raises(WireError, match=why):
                Answer.from_bytes(case, question)


@given(NAMES, st.integers(1, 9), st.integers(0, 9), st.integers(0, 9), st.binary(max_size=80))
def test_what_is_read_is_written_the_same(name, n, answered, silent, noise):
    question = asked(n, PLANS[name])
    head = b"\1" + question.digest[:16] + b"".join(x.to_bytes(4) for x in (n, answered, silent))
    area = noise[: question.size - protocol.HEADER].ljust(question.size - protocol.HEADER, b"\0")
    data = head + crc(head + area) + area
    try:
        batch = Answer.from_bytes(data, question)
    except WireError:
        return
    assert batch.to_bytes() == data
    assert len(batch.split()) == answered <= n - silent


def test_a_batch_answers_its_question_alone():
    question = gradients(n=5)
    data = Answer.of(question, rows_from([1, 2], question.width)).to_bytes()
    others = [
        replace(question, **change)
        for change in (
            {"job": "summer"},
            {"round": 2},
            {"gateway": "8"},
            {"model": ""},
            {"model": MODEL.to_json() + " "},
            {"plan": Plan(GRADIENT.schema, 1.5, mechanism="three-outputs", k=3).to_json()},
        )
    ]
    assert {len(Answer.of(other).to_bytes()) for other in others} == {len(data)}
    assert len({other.digest for other in (question, *others)}) == 7
    for other in others:
        with pytest.raises(WireError, match="another question"):
            Answer.from_bytes(data, other)


# Questions


@given(
    st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True),
    st.integers(1, 1 << 31),
    st.integers(1, 1 << 20),
    st.text(),
    st.text(),
)
def test_a_question_goes_there_and_back(job, number, n, plan, model):
    question = Question(job, number, job[::-1], n, plan, model)
    data = question.to_bytes()
    assert Question.from_bytes(data) == question
    assert question.digest == hashlib.sha256(data).digest()
    assert data == canonical(json.loads(data)).encode()


ODD = (..., None, True, 0, -1, 1.0, 1 << 40, float("nan"), float("inf"), "", "a/1", "x" * 65)
ODD += ("a\n", "ä", [], {}, ["a"], "\ud800")


@pytest.mark.parametrize("name", DOCUMENT)
@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_question_has_these_entries_and_of_these_kinds(name, odd):
    data = canonical(changed(DOCUMENT, (name,), odd)).encode()
    if name in ("plan", "model") and isinstance(odd, str):  # no plan, but a question
        assert Question.from_bytes(data).to_bytes() == data
    else:
        with pytest.raises(WireError, match="not a 'fedldp question 1'"):
            Question.from_bytes(data)


GOOD = canonical(DOCUMENT)
BAD = {
    "empty": "",
    "no JSON": "{",
    "a number": "7",
    "a text": '"format"',
    "null": "null",
    "a list": "[" + GOOD + "]",
    "a vehicle": canonical(DOCUMENT | {"vehicle": "car 1"}),
    "vehicles": canonical(DOCUMENT | {"vehicles": [1]}),
    "a coordinate": canonical(DOCUMENT | {"coordinate": 3}),
    "a space": GOOD + " ",
    "spaces": json.dumps(DOCUMENT, sort_keys=True),
    "another order": json.dumps(dict(reversed(DOCUMENT.items())), separators=(",", ":")),
    "a key twice": GOOD.replace('"n":3', '"n":2,"n":3'),
    "a key twice, the same": GOOD.replace('"n":3', '"n":3,"n":3'),
    "an escape": GOOD.replace("spring", "\\u0073pring"),
    "a plus": GOOD.replace('"n":3', '"n":+3'),
    "an exponent": GOOD.replace('"n":3', '"n":3e0'),
    "NaN": GOOD.replace('"n":3', '"n":NaN'),
    "infinite": GOOD.replace('"n":3', '"n":Infinity'),
    "many digits": GOOD.replace('"n":3', f'"n":{"9" * 5000}'),
    "deep": "[" * 200_000,
    "deep within": GOOD.replace('"n":3', '"n":' + '{"a":' * 200_000),
    "UTF-16": GOOD.encode("utf-16"),
    "no UTF-8": GOOD.encode().replace(b"spring", b"spr\xffng"),
    "a mark": b"\xef\xbb\xbf" + GOOD.encode(),
    "too long": canonical(DOCUMENT | {"plan": "x" * (1 << 24)}),
    "another format": GOOD.replace("question 1", "question 2"),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_an_invalid_question_is_refused(data):
    with pytest.raises(WireError, match=r"^not a 'fedldp question 1': [^\n]{1,200}$"):
        Question.from_bytes(data if isinstance(data, bytes) else data.encode())


@settings(max_examples=300)
@given(st.data())
def test_damaged_questions_are_refused_by_wire_errors_alone(data):
    octets = bytearray(GOOD.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(octets) - 1))
        octets[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    try:
        question = Question.from_bytes(bytes(octets))
        assert question.to_bytes() == octets
        question.check()
    except (WireError, DomainError):
        return
    assert question.width * question.n <= protocol.MOST_BITS


@pytest.mark.parametrize("name", ["two of three", "small cube"])
def test_only_a_plan_has_a_width(name):
    """Every entry of a plan, replaced by something odd: nothing but a `WireError` escapes."""
    read = refused = 0
    for path in places(HAND_MADE[name]):
        for odd in (*ODD, "9" * 5000, 10**400, [[]], "0"):
            question = asked(plan=canonical(changed(HAND_MADE[name], path, odd)))
            try:
                read += question.width > 0
            except WireError as error:
                refused += "the plan of a question is invalid" in str(error)
    assert 0 < read < refused
    for text in ("", "{}", "null", "[" * 200_000, "[1]", '"x"', GOOD):
        with pytest.raises(WireError, match="the plan of a question is invalid"):
            asked(plan=text).check()


def test_a_batch_may_not_take_too_much_room():
    largest = protocol.MOST_BITS // WIDTHS["vast"]
    asked(largest, PLANS["vast"]).check()
    with pytest.raises(DomainError, match="Ask fewer vehicles"):
        asked(largest + 1, PLANS["vast"]).check()
    asked(protocol.MOST, PLANS["narrow"]).check()
    with pytest.raises(FedLDPError, match="n must be from 1 to"):
        asked(protocol.MOST + 1, PLANS["narrow"])


def test_a_question_travels_packed_and_no_bomb_does():
    data = gradients().to_bytes()
    assert inflated(deflated(data)) == data
    assert len(deflated(data)) < len(data) / 2
    bomb = zlib.compress(bytes(MOST_BYTES + 1), 9)
    for broken in (b"", b"garbage", deflated(data)[:-1], deflated(data) + b"x", bomb):
        with pytest.raises(WireError, match=r"the question (was damaged|is incomplete)"):
            inflated(broken)
