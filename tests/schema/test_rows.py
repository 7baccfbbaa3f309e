"""Rows: every kind of input gives the same matrix, and what is refused of it."""

import math
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedldp.errors import DomainError
from fedldp.schema.attributes import Number
from fedldp.schema.schema import Schema, template

NAN = math.nan

SCHEMA = Schema.of(
    age=(0, 100), city=["Oslo", "Rome", "Lima"], doors=["2", "4"], on=[False, True], km=(0, 10)
)
DATA = {  # columns in another order, and one that nobody asked for
    "km": [1.5, None, 2.0, float("nan"), 1e300],
    "id": [1, 2, 3, 4, 5],
    "city": ["Rome", "Bonn", None, "Lima", "Oslo"],
    "on": [True, False, None, True, False],
    "doors": [4, 2, None, 3, 2],
    "age": [31, None, 54, -7, 2**60],
}
MATRIX = np.array(
    [
        [31, 1, 1, 1, 1.5],
        [NAN, NAN, 0, 0, NAN],
        [54, NAN, NAN, NAN, 2.0],
        [-7, 2, NAN, 1, NAN],
        [2**60, 0, 0, 0, 1e300],
    ]
)


def typed(**types):
    """The data as pandas columns of these types, the others as pandas makes them."""
    columns = {name: pd.Series(values, dtype=types.get(name)) for name, values in DATA.items()}
    return pd.DataFrame(columns)


def polars(**types):
    return pl.DataFrame({k: pl.Series(v, dtype=types.get(k)) for k, v in DATA.items()})


def as_dicts():
    return [dict(zip(DATA, row, strict=True)) for row in zip(*DATA.values(), strict=True)]


def as_text():
    return {k: [None if v is None else str(v) for v in column] for k, column in DATA.items()}


NULLABLE = {"age": "Int64", "doors": "Int8", "city": "string", "on": "boolean", "km": "Float64"}
ARROW = {"age": "int64[pyarrow]", "city": "string[pyarrow]", "on": "bool[pyarrow]"}

INPUTS = {
    "dicts": as_dicts,
    "dicts with absent keys": lambda: [
        {key: value for key, value in row.items() if value is not None} for row in as_dicts()
    ],
    "tuple of dicts": lambda: tuple(as_dicts()),
    "columns": lambda: DATA,
    "columns of arrays": lambda: {name: np.array(column) for name, column in DATA.items()},
    "columns of objects": lambda: {name: np.array(v, object) for name, v in DATA.items()},
    "columns of Series": lambda: dict(typed(**NULLABLE).items()),
    "columns of polars": lambda: {column.name: column for column in polars()},
    "object array": lambda: np.array([DATA[name] for name in SCHEMA.names], object).T,
    "pandas": typed,
    "pandas objects": lambda: typed(**dict.fromkeys(DATA, object)),
    "pandas nullable": lambda: typed(**NULLABLE),
    "pandas arrow": lambda: typed(**ARROW),
    "pandas categories": lambda: typed(city="category", doors="category", on="category"),
    "pandas with an index": lambda: typed().set_index(pd.Index([7, 7, 3, 1, 0])),
    "polars": polars,
    "polars categories": lambda: polars(city=pl.Categorical),
    "polars enum": lambda: polars(city=pl.Enum(["Bonn", "Rome", "Lima", "Oslo"])),
    "polars small": lambda: polars(doors=pl.UInt8, id=pl.Int16),
    "polars large": lambda: polars(age=pl.Int128),
    "polars decimals": lambda: polars().with_columns(age=pl.col("age").cast(pl.Decimal(38, 2))),
    "pyarrow": lambda: pa.table(DATA),
    "pyarrow dictionaries": lambda: pa.table(
        {**DATA, **{k: pa.array(DATA[k]).dictionary_encode() for k in ("city", "doors", "age")}}
    ),
    "pyarrow chunks": lambda: pa.concat_tables([pa.table(DATA)[:2], pa.table(DATA)[2:]]),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_every_input_gives_the_same_matrix(kind):
    rows = SCHEMA.rows(INPUTS[kind]())
    assert len(rows) == 5
    matrix = rows.matrix()
    np.testing.assert_array_equal(matrix, MATRIX)
    assert matrix.dtype == np.float64
    assert matrix.flags.c_contiguous
    for start, stop in ((0, 2), (2, 5), (1, 1), (3, 2), (4, 99), (5, 9)):
        np.testing.assert_array_equal(rows.matrix(start, stop), MATRIX[start:stop])
    np.testing.assert_array_equal(rows.matrix(1), MATRIX[1:])


def test_texts_are_read_as_numbers_but_keep_their_labels():
    matrix = MATRIX.copy()
    matrix[:, 3] = NAN  # 'True' is not 'true'
    for data in (as_text(), pd.DataFrame(as_text()), pl.DataFrame(as_text()), pa.table(as_text())):
        np.testing.assert_array_equal(SCHEMA.rows(data).matrix(), matrix)
    array = np.array([[str(value) for value in as_text()[name]] for name in SCHEMA.names]).T
    np.testing.assert_array_equal(SCHEMA.rows(array).matrix(), matrix)


values = st.none() | st.floats(width=32) | st.integers(-(2**40), 2**40)
labels = st.none() | st.sampled_from(["a", "b", "c", "", "1", "nan", "None"])


@given(st.lists(st.tuples(values, labels), min_size=1, max_size=20), st.data())
def test_frames_agree_with_lists_on_random_data(pairs, draw):
    schema = Schema.of(x=(0, 1), c=["a", "b", "1", "nan", "None"])
    x, c = (list(column) for column in zip(*pairs, strict=True))
    expected = schema.rows([{"x": a, "c": b} for a, b in pairs]).matrix()
    floats = [None if value is None else float(value) for value in x]
    columns = {"x": floats, "c": c}
    frame = draw.draw(st.sampled_from([pd.DataFrame, pl.DataFrame, pa.table, dict]))(columns)
    start = draw.draw(st.integers(0, len(pairs)))
    np.testing.assert_array_equal(schema.rows(frame).matrix(start), expected[start:])


# Arrays


def test_plain_floats_are_not_copied():
    schema = Schema((Number("a", 0, 1), Number("v", 0, 1, size=2)))
    array = np.arange(30.0).reshape(10, 3)
    part = schema.rows(array).matrix(2, 7)
    assert np.shares_memory(part, array)
    np.testing.assert_array_equal(part, array[2:7])
    line = np.arange(5.0)
    assert np.shares_memory(Schema.of(x=(0, 1)).rows(line).matrix(), line)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.astype(np.int32),
        lambda a: a.astype(np.float32),
        lambda a: a.astype(np.float16),
        lambda a: a.astype(np.longdouble),
        lambda a: a.astype(">f8"),
        lambda a: a.astype(object),
        lambda a: a.astype(str),
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=1)[:, ::2],
        np.ma.masked_array,
    ],
)
def test_other_arrays_are_converted(change):
    array = np.arange(30.0).reshape(10, 3)
    part = Schema((Number("a", 0, 1), Number("v", 0, 1, size=2))).rows(change(array)).matrix(2, 7)
    np.testing.assert_array_equal(part, array[2:7])
    assert part.dtype == np.float64
    assert part.dtype.isnative
    assert part.flags.c_contiguous


def test_masked_values_are_missing():
    schema = Schema.of(x=(0, 9), c=["1", "2"])
    array = np.ma.masked_array([[1, 1], [2, 2]], [[False, True], [True, False]])
    np.testing.assert_array_equal(schema.rows(array).matrix(), [[1, NAN], [NAN, 1]])
    columns = {"x": array[:, 0], "c": array[:, 1]}
    np.testing.assert_array_equal(schema.rows(columns).matrix(), [[1, NAN], [NAN, 1]])


def test_too_large_numbers_become_infinite():
    array = np.array([[np.longdouble("1e400"), np.longdouble("-1e400")]])
    expected = [[np.inf, -np.inf]]
    np.testing.assert_array_equal(Schema.vector(2, 1.0).rows(array).matrix(), expected)


@pytest.mark.parametrize("shape", [(4, 2), (4,), (3, 4), (2, 3, 1), ()])
def test_arrays_of_another_shape_are_refused(shape):
    with pytest.raises(DomainError, match=r"must have 3 columns.*\(a, v\)"):
        Schema((Number("a", 0, 1), Number("v", 0, 1, size=2))).rows(np.zeros(shape))
    with pytest.raises(DomainError, match="got shape"):
        Schema.of(x=(0, 1)).rows(np.zeros(3, [("x", float)]))


# Vectors


VECTORS = [[1.0, 2.0], [3.0, None], None, [7.0], [1.0, 2.0, 3.0], ["5", "x"]]
EXPECTED = [[1, 2], [3, NAN], [NAN, NAN], [NAN, NAN], [NAN, NAN], [5, NAN]]


def test_vectors_are_read_entry_by_entry_and_whole_or_not_at_all():
    schema = Schema((Number("v", 0, 9, size=2),))
    inputs = [
        {"v": VECTORS},
        [{"v": cell} for cell in VECTORS],
        pd.DataFrame({"v": pd.Series(VECTORS, dtype=object)}),
        {"v": [None if cell is None else tuple(cell) for cell in VECTORS]},
        {"v": [None if cell is None else np.array(cell, object) for cell in VECTORS]},
    ]
    for data in inputs:
        np.testing.assert_array_equal(schema.rows(data).matrix(), EXPECTED)


def test_vectors_in_frames():
    schema = Schema((Number("a", 0, 9), Number("v", 0, 9, size=2)))
    vectors = [[1, 2], None, [3, None]]
    columns = {"a": [7, 8, 9], "v": vectors}
    inputs = [
        pl.DataFrame(columns),
        pl.DataFrame(columns, schema_overrides={"v": pl.Array(pl.Int64, 2)}),
        pa.table(columns),
        pd.DataFrame({"a": [7, 8, 9], "v": [np.array([1, 2]), None, np.array([3.0, NAN])]}),
        {"a": [7, 8, 9], "v": np.array([[1, 2], [NAN, NAN], [3, NAN]])},
    ]
    for data in inputs:
        matrix = schema.rows(data).matrix()
        np.testing.assert_array_equal(matrix, [[7, 1, 2], [8, NAN, NAN], [9, 3, NAN]])


def test_a_column_of_another_width_is_refused():
    with pytest.raises(DomainError, match=r"'v' must have the shape \(rows, 2\); got \(4, 3\)"):
        Schema((Number("v", 0, 9, size=2),)).rows({"v": np.zeros((4, 3))}).matrix()
    with pytest.raises(DomainError, match=r"'c' must have the shape"):
        Schema.of(c=["a", "b"]).rows({"c": np.zeros((4, 3))}).matrix()


# What is said about a bad value


def example(data, schema, name, first_row=0, start=0):
    """Return what is said about the first value that is replaced, and see that it is refused."""
    _, quality = schema.rows(data, first_row).read(start)
    with pytest.raises(DomainError, match="must be usable as they are") as caught:
        quality.refuse()
    assert quality[name].example in str(caught.value)
    return quality[name].example


def test_good_rows_pass():
    data = {"age": [1, 100], "city": ["Oslo"] * 2, "doors": [2, 4], "on": [True] * 2, "km": [1, 2]}
    SCHEMA.check(data).refuse()
    quality = SCHEMA.check(data | {"age": [1, -1e9]})
    quality.refuse(clipped=False)
    with pytest.raises(DomainError, match=r"age: 1 of 2 \(50%\) clipped to \[0, 100\]"):
        quality.refuse()


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_the_first_bad_value_is_named(make):
    schema = Schema.of(age=(0, 100), city=["Oslo", "Paris"])
    data = make({"age": ["31", "x", "4"], "city": ["Oslo", "Oslo", "Pari"]})
    assert example(data, schema, "age") == "row 1: 'x' is not a number"
    assert example(data, schema, "city", first_row=1000, start=2) == (
        "row 1002: 'Pari' is not one of the 2 categories (did you mean 'Paris'?)"
    )


def test_what_is_shown_of_a_bad_value():
    x, c, v = Schema.of(x=(0, 1)), Schema.of(c=["1", "2"]), Schema((Number("v", 0, 1, size=2),))
    for missing in (None, NAN, "", np.float32(NAN)):
        assert example([{"x": missing}], x, "x") == "row 0: the value is missing"
        assert example([{"c": missing}], c, "c") == "row 0: the value is missing"
    assert example(np.array([NAN], np.float32), x, "x") == "row 0: the value is missing"
    assert example(pl.DataFrame({"x": [1, None]}), x, "x") == "row 1: the value is missing"
    assert example(np.array([7]), c, "c") == "row 0: 7 is not one of the 2 categories"
    said = example([{"x": date(2020, 1, 1)}], x, "x")
    assert said == "row 0: datetime.date(2020, 1, 1) is not a number"
    assert example([{"v": [1, "b"]}], v, "v") == "row 0, number 1: 'b' is not a number"
    assert example(np.array([[1, NAN]]), v, "v") == "row 0, number 1: the value is missing"
    assert example([{"v": [1]}], v, "v") == "row 0: [1] is not a list of 2 numbers"
    assert example([{}], v, "v") == "row 0: the value is missing"
    assert len(example([{"x": "long" * 1000}], x, "x")) < 200


# Inference


def refused(call, *arguments, **named):
    with pytest.raises(DomainError) as caught:
        call(*arguments, **named)
    return str(caught.value)


COLUMNS = [
    {"age": 31, "city": "Rome", "on": True, "at": [59.9, 10.7], "trip km": "1.5", "class": "b"},
    {"age": None, "city": "", "on": None, "at": None, "trip km": "", "class": "c"},
]


def test_inference_asks_for_everything_at_once_in_a_form_to_paste():
    said = refused(Schema.infer, COLUMNS, city=["Oslo", "Rome"])
    call = said.splitlines()[-1].strip()
    assert call == (
        "Schema.infer(data, age=(low, high), city=['Oslo', 'Rome'], on=[...], at=(low, high), "
        "**{'trip km': (low, high), 'class': [...]})"
    )
    assert "31" not in said
    filled = call.replace("(low, high)", "(0, 100)").replace("[...]", "['true', 'b', 'c']")
    schema = eval(filled, {"Schema": Schema, "data": COLUMNS})
    assert schema.names == tuple(COLUMNS[0])
    assert schema["at"] == Number("at", 0, 100, size=2)
    assert schema["class"].categories == ("true", "b", "c")


def test_inference_leaves_out_refuses_unknown_names_and_takes_any_attribute():
    known = dict.fromkeys(COLUMNS[0]) | {"age": Number("age", 0, 10, missing=1)}
    assert Schema.infer(COLUMNS, **known) == Schema.of(age=Number("age", 0, 10, missing=1))
    assert "no column 'agee'" in refused(Schema.infer, COLUMNS, agee=(0, 1))
    assert "an array has no names" in refused(Schema.infer, np.zeros((2, 2)))
    assert "name of a column" in refused(Schema.infer, [{3: 1}])


def test_a_template_is_refused_until_it_is_filled_in():
    text = template(COLUMNS)
    said = refused(Schema.from_toml, text)
    for place in ("low of 'age'", "high of 'age'", "categories of 'city'", "low of 'trip km'"):
        assert place in said
    assert "31" not in text
    assert "Rome" not in text
    half = text.replace('"?"', "0", 1)
    assert "low of 'age'" not in refused(Schema.from_toml, half)
    full = text.replace('low = "?"', "low = 0").replace('high = "?"', "high = 9")
    schema = Schema.from_toml(full.replace('["?", "other"]', '["a", "b", "other"]'))
    assert schema.names == tuple(COLUMNS[0])
    assert schema["at"].size == 2
    assert schema["city"].missing == "other"
