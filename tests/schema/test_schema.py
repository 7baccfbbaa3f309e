"""Schemas: what they refuse, how they scale, and that they survive being written."""

import json
import math
import pickle
import tomllib
from datetime import date
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fedldp import vehicle
from fedldp.errors import DomainError, WireError
from fedldp.schema.attributes import Category, Number
from fedldp.schema.schema import Schema
from fedldp.vehicle import MOST_COORDINATES

NAN = math.nan
finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)  # all but lone surrogates


@st.composite
def numbers(draw, name=None):
    low, high = draw(finite), draw(finite)
    assume(0 < high - low < math.inf and 2 / (high - low) < math.inf)
    missing = draw(st.none() | st.floats(low, high))
    return Number(name or draw(texts), low, high, missing, draw(st.integers(1, 5)))


@st.composite
def categories(draw):
    labels = draw(st.lists(texts, min_size=2, max_size=6, unique=True))
    return Category(draw(texts), labels, draw(st.none() | st.sampled_from(labels)))


schemas = st.lists(
    numbers() | categories(), min_size=1, max_size=5, unique_by=lambda attribute: attribute.name
).map(Schema)


def refusal(call, *arguments, error=DomainError, **named):
    with pytest.raises(error) as caught:
        call(*arguments, **named)
    return str(caught.value)


# Numbers


def test_a_number_knows_its_scale():
    age = Number("age", 0, 100)
    assert (age.low, age.high, age.centre, age.scale) == (0.0, 100.0, 50.0, 0.02)
    assert (age.half_width, age.missing, age.size) == (50.0, 50.0, 1)
    assert all(type(x) is float for x in (age.low, age.high, age.missing))


@given(numbers(), st.lists(st.floats() | st.sampled_from([1e308, -1e308]), max_size=20))
def test_units_are_in_range_and_the_same_as_on_a_vehicle(number, values):
    units = number.to_unit(values)
    assert np.all(np.abs(units) <= 1)
    missing = vehicle.scaled(number.missing, number.low, number.high)
    expected = [missing if math.isnan(x) else scaled(number, x) for x in values]
    np.testing.assert_array_equal(units, expected)


def scaled(number, x):
    return vehicle.scaled(x, number.low, number.high)


@given(numbers(), st.floats(-1, 1))
def test_units_can_be_turned_back(number, x):
    value = number.from_unit(x)
    size = max(abs(number.low), abs(number.high))
    assert abs(number.from_unit(number.to_unit([value])[0]) - value) <= 1e-14 * size


def test_to_unit_keeps_the_shape_and_the_values():
    values = np.array([[0.0, NAN, 25.0], [np.inf, -np.inf, 100.0]])
    before = values.copy()
    units = Number("x", 0, 100, missing=75).to_unit(values)
    np.testing.assert_array_equal(units, [[-1.0, 0.5, -0.5], [1.0, -1.0, 1.0]])
    np.testing.assert_array_equal(values, before)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (1, 1),
        (2, 1),
        (NAN, 1),
        (0, math.inf),
        (-1e308, 1e308),  # the width overflows
        (0, 5e-324),  # the scale does
        ("0", 1),
        (False, True),
        (None, 1),
        (0, 10**400),
        pytest.param(0, 10**5000, id="beyond repr"),
        (1j, 2),
    ],
)
def test_impossible_bounds_are_refused(low, high):
    assert "'speed'" in refusal(Number, "speed", low, high)


def test_other_impossible_numbers_are_refused():
    assert "between 0.0 and 1.0; got 2.0" in refusal(Number, "x", 0, 1, missing=2)
    assert "missing of 'x'" in refusal(Number, "x", 0, 1, missing=NAN)
    for size in (0, -1, MOST_COORDINATES + 1, 1.5, "2"):
        assert "size of 'x'" in refusal(Number, "x", 0, 1, size=size)
    for name in ("", None, 3, "\ud800"):
        assert "name" in refusal(Number, name, 0, 1)


def test_bounds_may_be_any_real_numbers():
    given = Number("x", np.float32(0), Fraction(1, 2), missing=np.int64(0), size=np.int64(2))
    assert given == Number("x", 0.0, 0.5, 0.0, 2)
    assert json.dumps(Schema((Number("x", -0.0, 1),)).to_document()) == json.dumps(
        Schema((Number("x", 0.0, 1),)).to_document()
    )


# Categories


def test_labels_are_those_of_the_vehicle():
    values = [True, 3, 4.0, 2.5, "x", np.float32(7.0), np.bool_(False), date(2020, 1, 2)]
    labels = ("true", "3", "4", "2.5", "x", "7", "false", "2020-01-02")
    category = Category("c", values, missing=4)
    assert category.categories == labels
    assert category.missing == "4"
    assert category.codes == {label: code for code, label in enumerate(labels)}
    assert category.size == 1
    assert Category("c", ["a", "b"]).missing == "a"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["a"], "from 2 to 1048576 categories; got 1"),
        (range((1 << 20) + 1), "got 1048577"),
        (["a", "b", "a"], "'a' twice"),
        ([1, "b", 1.0], "'1' twice"),
        (["a", None], "got None"),
        (["a", NAN], "got nan"),
        (["a", ""], "got ''"),
        (["a", ["b"]], "got ['b']"),
        (["a", "\udc80"], "Unicode"),
        ("ab", "must be a list"),
        ({"a", "b"}, "must be a list"),
    ],
)
def test_impossible_categories_are_refused(values, said):
    assert said in refusal(Category, "city", values)


def test_missing_must_be_a_category():
    assert "must be a category; got 'c'" in refusal(Category, "x", ["a", "b"], missing="c")


# Schemas


def test_brackets_distinguish_bounds_and_categories():
    schema = Schema.of(age=(0, 100), city=["Oslo", "Rome"], doors=[2, 4, 5], on=[False, True])
    assert schema.attributes == (
        Number("age", 0, 100),
        Category("city", ("Oslo", "Rome")),
        Category("doors", ("2", "4", "5")),
        Category("on", ("false", "true")),
    )
    assert Schema.of(city=("Oslo", "Rome", "Lima")) == Schema.of(city=["Oslo", "Rome", "Lima"])
    assert Schema.of(age=(np.int64(0), np.float32(1)))["age"].high == 1.0


@pytest.mark.parametrize(
    "given",
    [[0, 1], (0, 1, 2), (0, "a"), 7, "Oslo", None, {"a", "b"}, range(3, 0, -1), (False, True)],
)
def test_an_ambiguous_attribute_is_refused(given):
    said = refusal(Schema.of, x=given)
    assert "'x' must be bounds in round brackets" in said
    assert "square brackets" in said


def test_options_are_in_a_dict_or_in_the_attribute_itself():
    options = {"low": 0, "high": 10, "missing": 1, "size": 3}
    ready = Number("x", 0, 10, missing=1, size=3)
    assert Schema.of(x=options) == Schema.of(x=ready) == Schema((ready,))
    city = Category("city", ["a", "b"], missing="b")
    assert Schema.of(city={"categories": ["a", "b"], "missing": "b"}) == Schema.of(city=city)
    assert "another name: 'x'" in refusal(Schema.of, y=ready)
    assert "got 'low'" in refusal(Schema.of, x={"low": 0})
    assert "got 'low', 'high', 'of'" in refusal(Schema.of, x={"low": 0, "high": 1, "of": "m"})
    assert "got nothing" in refusal(Schema.of, x={})


def test_a_vector_is_one_attribute():
    schema = Schema.vector(1000, 0.5)
    assert schema.attributes == (Number("x", -0.5, 0.5, 0.0, 1000),)
    assert (schema.dimensions, len(schema)) == (1000, 1)
    for bound in (0, -1, "1", NAN, None):
        refusal(Schema.vector, 3, bound)
    refusal(Schema.vector, 0, 1.0)


def test_a_schema_is_looked_at():
    schema = Schema([Number("at", 0, 1, size=2), Category("city", ["a", "b"])])
    assert schema.names == ("at", "city")
    assert schema.dimensions == 3
    assert list(schema) == ["at", "city"]
    assert list(schema.values()) == list(schema.attributes)
    assert dict(schema) == {"at": schema["at"], "city": schema["city"]}
    assert schema.get("xy") is None
    assert schema["city"] is schema.attributes[1]
    assert "at" in schema
    assert "xy" not in schema
    assert "no attribute 'xy'; choose from at, city" in refusal(schema.__getitem__, "xy")
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert hash(schema) == hash(Schema(list(schema.attributes)))
    with pytest.raises(AttributeError):
        schema.attributes = ()


def test_impossible_schemas_are_refused():
    assert "different names" in refusal(Schema, ())
    assert "different names" in refusal(Schema, [Number("x", 0, 1), Number("x", 0, 2)])
    assert "Numbers, Categories" in refusal(Schema, ["x"])
    half = MOST_COORDINATES // 2 + 1
    two = [Number(name, 0, 1, size=half) for name in "ab"]
    assert "coordinates" in refusal(Schema, two)


# In and out


@given(schemas)
@example(Schema([Number('a.b "c"\\\n', 0, 1), Category("\x00\x7f\u2028", ["\r\n", "\x85", "?"])]))
@example(Schema([Number("low", 1e-7, 1e22), Category("#", ["?", "]"])]))
def test_toml_round_trip(schema):
    text = schema.to_toml()
    assert Schema.from_toml(text) == schema
    assert Schema.from_toml(text).to_toml() == text
    assert Schema.from_toml(text.encode().decode()) == schema
    assert list(tomllib.loads(text)) == list(schema.names)


@given(schemas)
def test_document_round_trip(schema):
    document = json.loads(json.dumps(schema.to_document()))
    assert Schema.from_document(document) == schema
    assert Schema.from_document(document).to_document() == schema.to_document()


def test_toml_may_leave_out_options():
    schema = Schema.from_toml('age = {low = 0, high = 100}\n[city]\ncategories = ["a", 1, true]')
    assert schema == Schema.of(age=(0, 100), city=["a", "1", "true"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "needs attributes"),
        ("age = ", "not valid TOML"),
        ("age = 3", "'age' must be a table"),
        ("[age]", "got nothing"),
        ("[age]\nlow = 0", "got 'low'"),
        ("[age]\nlow = 0\nhigh = true", "high of 'age'"),
        ("[age]\nlow = 0\nhigh = 1\nmax = 2", "got 'low', 'high', 'max'"),
        ("[age]\nlow = 0\nhigh = nan", "finite"),
        ("[age]\nlow = 0\nhigh = 1\nsize = 1.0", "size of 'age'"),
        ('[c]\ncategories = "ab"', "must be a list"),
        ('[c]\ncategories = [["a"], "b"]', "got ['a']"),
        ("x = " + "[" * 5000, "not valid TOML"),
    ],
)
def test_toml_that_is_not_a_schema_is_refused(text, said):
    assert said in refusal(Schema.from_toml, text)


NUMBER = {"name": "x", "low": 0.0, "high": 1.0, "missing": 0.5, "size": 1}
CATEGORY = {"name": "c", "categories": ["a", "b"], "missing": "a"}


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        [],
        "x",
        [3],
        [[]],
        [{}],
        [NUMBER, NUMBER],
        [{**NUMBER, "name": 1}],
        [{**NUMBER, "name": ""}],
        [{**NUMBER, "name": []}],
        [{**NUMBER, "low": "0"}],
        [{**NUMBER, "low": True}],
        [{**NUMBER, "low": None}],
        [{**NUMBER, "low": NAN}],
        [{**NUMBER, "low": 2.0}],
        [{**NUMBER, "high": 10**400}],
        [{**NUMBER, "high": 10**5000}],
        [{**NUMBER, "missing": None}],
        [{**NUMBER, "missing": 9}],
        [{**NUMBER, "size": 1.0}],
        [{**NUMBER, "size": 0}],
        [{**NUMBER, "size": 1 << 60}],
        [{**NUMBER, "unit": "m"}],
        [{**NUMBER, "categories": ["a", "b"]}],
        [{key: NUMBER[key] for key in ("name", "low", "high")}],
        [{**CATEGORY, "categories": "ab"}],
        [{**CATEGORY, "categories": ["a", 1]}],
        [{**CATEGORY, "categories": ["a"]}],
        [{**CATEGORY, "categories": ["a", "a"]}],
        [{**CATEGORY, "categories": None}],
        [{**CATEGORY, "missing": "z"}],
        [{**CATEGORY, "missing": None}],
        [{**CATEGORY, "missing": ["a"]}],
        [{**CATEGORY, "size": 1}],
    ],
)
def test_a_document_that_is_not_a_schema_is_refused(document):
    assert refusal(Schema.from_document, document, error=WireError).startswith("not a schema")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)


@given(
    st.lists(
        json_values
        | st.fixed_dictionaries(dict.fromkeys(NUMBER, json_values))
        | st.fixed_dictionaries(dict.fromkeys(CATEGORY, json_values))
        | st.builds(dict, st.just(NUMBER), size=json_values, name=json_values),
        max_size=3,
    )
)
def test_only_wire_errors_escape(document):
    try:
        schema = Schema.from_document(document)
    except WireError:
        return
    assert Schema.from_document(schema.to_document()) == schema
