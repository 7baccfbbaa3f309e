"""Plans as files: canonical, whole again when read, and refused when tampered with."""

import copy
import json
import pickle
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import (
    CATEGORIES,
    HAND_MADE,
    MIXED,
    NUMBERS,
    STRATEGIES,
    TWO,
    canonical,
    changed,
    document,
    number,
    places,
    plan_of,
    sample,
)

import fedldp
from fedldp import Plan, Schema, vehicle
from fedldp.errors import DataWarning, PrivacyError, WireError
from fedldp.plan.strategies import Sample
from fedldp.results.estimate import ESTIMATORS


def response(categories, same):
    odds = {"categories": categories, "same": same, "other": 1}
    return {"kind": "response", "epsilon": "2.8", **odds}


COLOUR = {"name": "colour", "categories": ["red", "blue"], "missing": "red"}
RANGE = {"name": "range", "low": 0.0, "high": 9.0, "optional": True, "grid": 3}
DOCUMENTS = HAND_MADE | {
    "format 2": {
        **document(
            "5.6",
            [
                {"name": "by colour", "of": number("x"), "groups": COLOUR},
                {"name": "table", "of": RANGE, "groups": {**COLOUR, "name": "paint"}},
                RANGE,
                {"name": "zone", "first": 2, "last": 3},
                {"name": "app", "buckets": 3, "salt": "a"},
                {"name": "tires", "categories": ["summer", "winter"], "optional": True},
            ],
            [response(4, 13), response(8, 9)],
            sample(2, [0, 1, 2, 3, 4, 5], [0, 1, 0, 0, 0, 0]),
        ),
        "format": "fedldp plan 2",
    }
}
PLANS = {name: Plan.from_json(canonical(document)) for name, document in DOCUMENTS.items()}
for schema in (MIXED, NUMBERS, CATEGORIES):
    PLANS |= {f"{name} of {len(schema)}": plan_of(schema, name=name) for name in STRATEGIES}


@pytest.mark.parametrize("name", PLANS)
def test_writing_and_reading_is_the_identity(name):
    plan = PLANS[name]
    text = plan.to_json()
    assert text == canonical(json.loads(text))
    assert text.isascii()
    for again in (Plan.from_json(text), pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        assert again.to_json() == text
        assert again == plan
        assert hash(again) == hash(plan)
        assert again.fingerprint == plan.fingerprint
        assert (again.schema, again.epsilon, again.bits) == (plan.schema, plan.epsilon, plan.bits)
        assert again.total_epsilon == plan.total_epsilon
    with pytest.raises(WireError, match="it is not canonical"):
        Plan.from_json(json.dumps(json.loads(text), indent=2))


def test_different_plans_are_different():
    assert len({plan.fingerprint for plan in PLANS.values()}) == len(set(PLANS.values()))
    assert plan_of(MIXED, 4.0) == plan_of(MIXED, 4.0)
    assert plan_of(MIXED, 4.0) != plan_of(MIXED, 4.0 + 1e-15)
    assert plan_of(MIXED, 4.0) != plan_of(MIXED, 4.0).to_json()
    other = Schema.of(age=(0, 100), way={"low": -1, "high": 3, "size": 3, "missing": 0})
    assert plan_of(other) != plan_of(NUMBERS)


@pytest.mark.parametrize("name", PLANS)
def test_each_distinct_table_occurs_once(name):
    document = json.loads(PLANS[name].to_json())
    tables = [canonical(table) for table in document["tables"]]
    assert len(set(tables)) == len(tables)
    used = [number for part in document["parts"] for number in part.get("tables", [])]
    assert set(used) == set(range(len(tables)))


def test_attributes_that_can_share_a_table_do():
    labels = {f"c{i}": ["a", "b", "c"] for i in range(5)}
    schema = Schema.of(**labels, d=["a", "b"], **{f"x{i}": (0, i + 1) for i in range(5)})
    document = json.loads(Plan(schema, 2.0, Sample(k=1, mechanism="duchi")).to_json())
    assert len(document["tables"]) == 3
    assert document["parts"][0]["tables"] == [0] * 5 + [1] + [2] * 5


def test_parts_can_share_a_table():
    schema, parts = [number("x"), number("y")], [sample(1, [i], [0]) for i in (1, 0)]
    text = canonical(document("2.2", schema, [TWO], *parts))
    plan = Plan.from_json(text)
    assert plan.to_json() == text
    assert plan.total_epsilon == Fraction("2.2")
    twice = [sample(1, [1], [0]), sample(1, [0], [1])]
    with pytest.raises(WireError, match="a table stands twice"):
        Plan.from_json(canonical(document("2.2", schema, [TWO, TWO], *twice)))


@pytest.mark.parametrize("name", ["sample", "split", "paper", "cube"])
def test_equal_plans_draw_equal_reports(name):
    """A study must not depend on whether its plan was made here, read or sent to a worker."""
    schema = Schema.of(a=["x", "y"], b=["x", "y"], c=(0, 1), e=["x", "y", "z"], f=(0, 2))
    plan = plan_of(schema, 3.0, name)
    rows = [{"a": "y", "b": "x", "c": 0.3, "e": "x", "f": 1}] * 40
    for again in (Plan.from_json(plan.to_json()), pickle.loads(pickle.dumps(plan))):
        wanted = plan.report(rows, fedldp.source(1)).to_bytes()
        assert again.report(rows, fedldp.source(1)).to_bytes() == wanted


def test_golden_text():
    plan = PLANS["small cube"]
    assert plan.to_json() == (
        '{"epsilon":"2.71","format":"fedldp plan 1","parts":[{"attributes":[0],"epsilon":"1.61",'
        '"heavy":5,"kind":"cube","light":1,"threshold":0},{"attributes":[1],"k":1,"kind":"sample",'
        '"tables":[0]}],"schema":[{"high":1.0,"low":-1.0,"missing":0.0,"name":"x","size":2},'
        '{"categories":["c0","c1","c2"],"missing":"c2","name":"c"}],'
        '"tables":[{"absent":1,"categories":3,"epsilon":"1.1","kind":"unary","total":4}]}'
    )
    assert plan.fingerprint.startswith("d7d5dc284aee07")


def test_integers_beyond_2_to_the_53_are_texts():
    document = json.loads(plan_of(MIXED, name="split").to_json())
    response = next(table for table in document["tables"] if table["kind"] == "response")
    assert int(response["same"]) + 2 * int(response["other"]) == 1 << 60
    assert all(type(response[key]) is str for key in ("same", "other"))


# Tampering

OTHERS = [None, True, False, 0, 1, -1, 2, 7, 10**6, 2**53, 2**64, 10**400, 0.5, -0.5, 1e308]
OTHERS += [float("inf"), float("nan"), "", "0", "1", "1.0", "2", "-1", "1e0", " 1.0", "nan", "x"]
OTHERS += ["9" * 30, "9" * 5000, "sample", "cube", "numbers", "\ud800", [], [0], [[0]], {}]
OTHERS += [{"kind": "sample"}, [1.0, -1.0], ["a", "b", "c"]]


def check(document):
    """Read it: it is refused with one of two errors, or it is a plan that every vehicle reads."""
    try:
        text = canonical(document)
        plan = Plan.from_json(text)
    except (WireError, PrivacyError) as error:
        return error
    assert plan.to_json() == text
    assert plan.total_epsilon <= Fraction(str(plan.epsilon))
    ready = vehicle.Plan(text, 64)
    assert (ready.epsilon, ready.bits) == (plan.total_epsilon, plan.bits)
    assert ready.fingerprint == plan.fingerprint
    with pytest.warns(DataWarning):  # a plan says by itself what stands for nothing
        data = plan.report([{}] * 3, fedldp.source(1)).to_bytes()
    assert plan.parse(data).reports == 3
    return None


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_entry_is_checked(name):
    """Each entry deleted, replaced and moved by one: only `WireError` and `PrivacyError` escape."""
    document, accepted = DOCUMENTS[name], set()
    for path in places(document):
        value = document
        for key in path:
            value = value[key]
        others = [*OTHERS, ...]
        if type(value) in (int, float):
            others += [value + 1, value - 1, float(value), str(value), value * 2]
        if isinstance(value, list):
            others += [value[:-1], value * 2, value[::-1], [*value, 0], [*value, *value[:1]]]
        for other in others:
            if type(other) is not type(value) or other != value:
                where = path[0], path[-1] if isinstance(path[-1], str) else path[-2]
                accepted |= {where} if check(changed(document, path, other)) is None else set()
        if isinstance(value, dict):
            assert isinstance(check(changed(document, path, {**value, "note": 1})), WireError)
    assert ("schema", "name") in accepted
    fixed = [("format", "format"), ("parts", "kind"), ("parts", "tables")]
    fixed += [("tables", key) for key in ("kind", "counts", "letters", "values", "categories")]
    assert not accepted & set(fixed)


JSON = st.recursive(
    st.one_of(st.sampled_from(OTHERS), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=6,
)


@settings(max_examples=400)
@given(st.sampled_from(sorted(DOCUMENTS)), st.data())
def test_any_changes_are_refused_or_harmless(name, data):
    document = DOCUMENTS[name]
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(document)))
        source = data.draw(st.sampled_from(places(document)))
        value = document
        for key in source:
            value = value[key]
        document = changed(document, path, data.draw(st.one_of(JSON, st.just(value))))
        if not places(document):
            return
    check(document)


@given(st.one_of(st.text(), st.binary(), JSON.map(json.dumps), JSON))
def test_any_text_is_refused(text):
    with pytest.raises(WireError, match="not a plan"):
        Plan.from_json(text)


@pytest.mark.parametrize("text", ["[" * 10**5, '{"a":' * 10**5, "9" * 10**4, "{}", "null"])
def test_hostile_text_is_refused(text):
    with pytest.raises(WireError, match="not a plan"):
        Plan.from_json(text)


@pytest.mark.parametrize(
    ("path", "value", "kind", "said"),
    [
        (("epsilon",), "1.7", PrivacyError, r"a whole report would cost 1\.8, more than"),
        (("tables", 0, "epsilon"), "1.6", PrivacyError, "column 0 has a count 5 times the least"),
        (("tables", 0, "counts", 0), [6, 1, 1], PrivacyError, "column 0 has a count 6 times"),
        (("tables", 1, "epsilon"), "1.79", PrivacyError, "differ by more than e"),
        (("parts", 0, "k"), 2, PrivacyError, r"would cost 3\.41"),
        (("tables", 0, "values"), [-2.0, 0.0, 2.5], WireError, "unbiased"),
        (("tables", 0, "letters"), [-1, 0.0, 1.0], WireError, "it is not canonical"),
        (("parts", 0, "attributes"), [0], WireError, "needs a coder for each of 1 attributes"),
        (("parts", 0, "attributes"), [0, 0], WireError, "named twice|of another kind"),
        (("parts", 0, "tables"), [1, 0], WireError, "not those that its parts name"),
        (("parts", 0, "kind"), "all", WireError, "unknown kind of part 'all'"),
        (("schema", 0, "low"), 1.0, WireError, "must be below high"),
        (("format",), "fedldp plan 3", WireError, "a newer version of fedldp has written"),
    ],
)
def test_says_what_is_wrong(path, value, kind, said):
    with pytest.raises(kind, match=said):
        Plan.from_json(canonical(changed(HAND_MADE["one of two"], path, value)))


def test_warnings_are_not_part_of_a_refusal():
    """They are errors here, and nothing but the two may escape: differences beyond all floats."""
    values = [-1.7e308, 1.6e308, 1.7e308]
    with pytest.raises(WireError):
        Plan.from_json(canonical(changed(HAND_MADE["one of two"], ("tables", 0, "values"), values)))


def test_only_a_plan_with_an_estimator_of_its_own_has_the_second_format():
    usual, other = (
        Plan(NUMBERS, 2.0, Sample(mechanism="hm-tp"), estimator=name) for name in ESTIMATORS
    )
    assert json.loads(usual.to_json())["format"] == vehicle.PLAN_FORMAT
    document = json.loads(other.to_json())
    assert document["format"] == vehicle.PLAN_FORMAT_2
    assert Plan.from_json(other.to_json()) == other
    assert vehicle.Plan(other.to_json(), 2.0).bits == other.bits
    for changes in ({"format": vehicle.PLAN_FORMAT}, {"estimator": "ratio"}):
        text = vehicle.canonical(document | changes)
        with pytest.raises(WireError, match="not a plan"):
            Plan.from_json(text)
        with pytest.raises(ValueError, match="refused"):
            vehicle.Plan(text, 2.0)
