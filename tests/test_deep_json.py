"""JSON that is nested too deeply: rows are read without it, documents are refused truthfully."""

import json

import pytest

from fedldp import Calendar, Plan, Schema, signing, vehicle
from fedldp.errors import WireError
from fedldp.learn import computations, model
from fedldp.results import tally
from fedldp_fleet import transparency
from fedldp_fleet.questions import Question

DEPTHS = [500, 3000, 100_000]
ROW = {"speed": 30, "city": "Rome"}
PLAN = Plan(Schema.of(speed=(0, 50), city=["Oslo", "Rome", "Lima"]), epsilon=1.0)
KEY = signing.PrivateKey.generate()


def nested(depth):
    return "[" * depth + "]" * depth


def deep_object(depth):
    return '{"a":' * depth + "1" + "}" * depth


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("deep", [nested, deep_object])
def test_a_row_with_a_deep_value_is_reported_as_one_with_another_bad_value(depth, deep):
    """Data decide neither whether a report is sent nor how many words it takes."""
    plan = vehicle.Plan(PLAN.to_json(), 1)
    for text in (
        f'{{"speed":{deep(depth)},"city":"Rome"}}',
        f'{{"city":"Rome","speed":{deep(depth)}}}',
        f'{{"city":"Rome","speed":{deep(depth)},"more":"[{{ \\" [["}}',
    ):
        row = vehicle.read_row(text.encode())
        assert row["city"] == "Rome"
        assert plan.inputs(row) == plan.inputs({"speed": None, "city": "Rome"})
        assert len(plan.report(row)) == len(plan.report(ROW))
        assert any("speed is" in note for note in plan.check(row))


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_deep_row_has_no_values(depth):
    plan = vehicle.Plan(PLAN.to_json(), 1)
    row = vehicle.read_row(deep_object(depth).encode())
    assert plan.inputs(row) == plan.inputs({})
    with pytest.raises(ValueError, match=r"must be a JSON object; got .*Give one row"):
        vehicle.read_row(nested(depth).encode())


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_deep_text_that_is_not_json_is_refused_as_such(depth):
    for text in ("[" * depth, "[" * depth + "]" * (depth - 1), nested(depth) + "]", '{"a' * depth):
        with pytest.raises(ValueError, match="it is not JSON"):
            vehicle.read_row(text.encode())


def test_what_is_not_deep_is_not_changed():
    for value in (ROW, [1, [2, ["]"]]], {"a": {"b": '[{"'}}, {"a": '\\"['}):
        text = json.dumps(value)
        assert json.loads(vehicle.flattened(text)) == value
    deepest = nested(vehicle.DEEPEST_NESTING)
    assert vehicle.flattened(deepest) == deepest
    assert vehicle.flattened(f"[{deepest},7]") == f"{'[' * 64}null{']' * 63},7]"


READERS = {
    "a plan": Plan.from_json,
    "a calendar": Calendar.from_json,
    "a tally": lambda text: tally.from_json(text, PLAN),
    "a question": lambda text: Question.from_bytes(text.encode()),
    "a computation": computations.check_format,
    "a model": model.Model.from_json,
    "what was asked": transparency.AskedQuestion.of,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("depth", [3000, 100_000])
def test_documents_are_refused_because_they_are_deep(name, depth):
    for text in (nested(depth), deep_object(depth)):
        with pytest.raises(WireError, match="nested too deeply") as refused:
            READERS[name](text)
        assert "not JSON" not in str(refused.value)


@pytest.mark.parametrize("depth", [*range(900, 1000, 3), 3000])
def test_at_every_depth_a_vehicle_refuses_with_an_error_of_its_own(depth):
    for text in (nested(depth), deep_object(depth)):
        for read in (vehicle.Plan, vehicle.Calendar):
            with pytest.raises(ValueError, match=r"^refused: "):
                read(text, 1)
        signed = f'{{"a":{text},"format":"other"}}'
        whole = signing._write(KEY.public, KEY.signature(signed.encode()), signed)
        with pytest.raises(ValueError, match=r"^refused: what was signed is not a"):
            vehicle.signed_document(whole, KEY.public.raw, "fedldp signed job 2")
