"""Features and targets: a second reading of the encoding, and whatever the data hold."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedldp import Category, Number, Schema
from fedldp.errors import DomainError
from fedldp.learn.features import Features, Scaling, check_target, encode_target, written_out

SCHEMA = Schema.of(
    age={"low": 0, "high": 100, "missing": 20},
    city={"categories": ["Oslo", "Rome", "Lima"], "missing": "Rome"},
    way={"low": -1, "high": 3, "size": 3},
    late=["no", "yes"],
)
FEATURES = Features(SCHEMA)


def unit(value, low, high, missing):
    value = missing if value is None or math.isnan(value) else min(max(value, low), high)
    return 2 * (value - low) / (high - low) - 1


def encoded(row):
    """The features of a row of SCHEMA, written down once more."""
    city = row.get("city") if row.get("city") in ("Oslo", "Rome", "Lima") else "Rome"
    way = row.get("way") or [None] * 3
    return [
        unit(row.get("age"), 0, 100, 20),
        1.0 if city == "Rome" else -1.0,
        1.0 if city == "Lima" else -1.0,
        *(unit(each, -1, 3, 1) for each in way),
        1.0 if row.get("late") == "yes" else -1.0,
        1.0,
    ]


NUMBERS = st.one_of(st.none(), st.floats(-500, 500), st.sampled_from([math.nan, math.inf, -1e300]))
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "age": NUMBERS,
        "city": st.sampled_from(["Oslo", "Rome", "Lima", "Bonn", "", None, "rome"]),
        "way": st.lists(NUMBERS, min_size=3, max_size=3),
        "late": st.sampled_from(["no", "yes", "maybe", None]),
    },
)


@given(st.lists(ROWS, min_size=1, max_size=6))
def test_rows_become_features(rows):
    """Whatever they hold: what is missing or unknown is the public default, the rest clipped."""
    found = FEATURES.encode(SCHEMA.rows(rows).matrix())
    np.testing.assert_allclose(found, [encoded(row) for row in rows], atol=1e-6)
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    assert np.all(np.abs(found) <= 1.0)
    assert np.all(found[:, -1] == 1.0)


def test_names_and_dimensions():
    names = ("age", "city=Rome", "city=Lima", "way[0]", "way[1]", "way[2]", "late=yes", "1")
    assert FEATURES.names == names
    assert FEATURES.dimensions == len(names) == FEATURES.encode(np.zeros((0, 6))).shape[1]
    assert Features(Schema.of(x=(0, 1))).names == ("x", "1")
    assert Features(Schema.of(c=["a", "b"])).names == ("c=b", "1")


def test_each_label_has_its_own_column():
    """Of a category between two others, so that a wrong offset would show."""
    schema = Schema.of(a=["x", "y"], b=[str(i) for i in range(5)], c=["u", "v", "w"])
    features = Features(schema)
    rows = [{"a": a, "b": str(b), "c": c} for a in "xy" for b in range(5) for c in "uvw"]
    found = features.encode(schema.rows(rows).matrix())
    for row, values in zip(rows, found, strict=True):
        on = {name for name, value in zip(features.names, values, strict=True) if value == 1.0}
        assert on == {f"{key}={row[key]}" for key in "abc"} & set(features.names) | {"1"}
        assert set(values.tolist()) <= {-1.0, 1.0}
    assert len({tuple(values) for values in found.tolist()}) == len(rows)


def test_more_labels_than_the_schema_knows():
    """Rows from a later time: they count as the public default, not as a neighbour's label."""
    schema = Schema.of(b={"categories": ["0", "1", "2"], "missing": "2"}, c=["u", "v"])
    rows = [{"b": str(b), "c": "u"} for b in (2, 3, 4, 77)]
    found = Features(schema).encode(schema.rows(rows).matrix())
    assert found.tolist() == [[-1.0, 1.0, -1.0, 1.0]] * 4


def test_codes_of_any_type_and_data_untouched():
    matrix = np.array([[30.0, 2, 0, 1, 2, 1], [np.nan] * 6])
    kept = matrix.copy()
    wanted = FEATURES.encode(matrix)
    np.testing.assert_array_equal(matrix, kept)
    np.testing.assert_array_equal(FEATURES.encode(matrix[:1].astype(np.int16)), wanted[:1])
    np.testing.assert_array_equal(FEATURES.encode(np.asfortranarray(matrix)), wanted)


def test_targets():
    number = Number("delay", 0, 60, missing=15)
    values = np.array([0.0, 30.0, 60.0, 90.0, -5.0, np.nan])
    np.testing.assert_allclose(encode_target(number, values), [-1, 0, 1, 1, -1, -0.5])
    late = Category("late", ("no", "yes"), missing="yes")
    found = encode_target(late, np.array([0.0, 1.0, np.nan]))
    assert found.tolist() == [-1.0, 1.0, 1.0]
    assert found.dtype == np.float64
    assert encode_target(late, np.array([0, 1], np.uint8)).tolist() == [-1.0, 1.0]


NUMBER, VECTOR = Number("t", 0, 1), Number("t", 0, 1, size=2)
TWO, THREE = Category("t", ("a", "b")), Category("t", ("a", "b", "c"))


def test_targets_that_an_objective_can_have():
    check_target(TWO, classifies=True)
    check_target(NUMBER, classifies=False)


@pytest.mark.parametrize(
    ("target", "classifies", "said"),
    [
        (NUMBER, True, "'t' must be a category with two labels .* use linear regression"),
        (THREE, True, "must be a category with two labels"),
        (TWO, False, "'t' of a linear regression must be one number .* use logistic"),
        (VECTOR, False, "must be one number"),
    ],
)
def test_targets_that_it_cannot(target, classifies, said):
    with pytest.raises(DomainError, match=said):
        check_target(target, classifies)


# A feature for each label


def test_labels_are_0_and_1():
    features = Features(SCHEMA, reference="none")
    assert features.names == ("age", "city=Oslo", "city=Rome", "city=Lima", "way[0]", "way[1]",
                              "way[2]", "late=no", "late=yes", "1")  # fmt: skip
    rows = [{"age": 75, "city": "Lima", "way": [1, 3, -1], "late": "yes"}, {}]
    found = features.encode(SCHEMA.rows(rows).matrix())
    expected = [
        [0.5, 0, 0, 1, 0, 1, -1, 0, 1, 1],
        [-0.6, 0, 1, 0, 0, 0, 0, 1, 0, 1],
    ]
    np.testing.assert_allclose(found.dense(), expected, atol=1e-6)
    assert found.shape == (2, features.dimensions) == (2, 10)
    np.testing.assert_allclose(found[1:].dense(), expected[1:], atol=1e-6)


@given(st.lists(ROWS, min_size=1, max_size=6), st.integers(0, 2**32))
def test_sparse_features_are_those_that_are_written_out(rows, seed):
    features = Features(SCHEMA, reference="none", scaling=SCALING)
    found = features.encode(SCHEMA.rows(rows).matrix())
    dense = found.dense()
    draws = np.random.default_rng(seed)
    weights = draws.normal(size=(2, 10)).astype(np.float32)
    np.testing.assert_allclose(found.scores(weights), weights @ dense.T, rtol=1e-4, atol=1e-4)
    columns = draws.integers(0, 10, (2, len(rows)))
    expected = dense[np.arange(len(rows)), columns]
    np.testing.assert_array_equal(found.at(columns), expected)


def test_a_thousand_labels_take_no_more_memory():
    def peak(labels):
        schema = Schema.of(age=(0, 9), city=[f"city {i}" for i in range(labels)])
        matrix = np.c_[np.zeros(20_000), np.arange(20_000) % labels]
        tracemalloc.start()
        try:
            Features(schema, reference="none").encode(matrix)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(1000) < 1.1 * peak(10) + 100_000


# A public map of the numbers

SCALING = Scaling(
    (0.1, 0.0, -0.2, 0.3),
    (2.0, 1.0, 4.0, 0.5),
    ((1.0, 0.2, 0.0, 0.0), (0.2, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0)),
)


@pytest.mark.parametrize("reference", ["none", "first", "last"])
def test_numbers_are_scaled(reference):
    rows = SCHEMA.rows([{"age": 75, "city": "Lima", "way": [1, 3, -1]}]).matrix()
    plain = written_out(Features(SCHEMA, reference).encode(rows))[0]
    scaled = written_out(Features(SCHEMA, reference, SCALING).encode(rows))[0]
    numbers, _ = Features(SCHEMA, reference).kinds
    units = plain[numbers]
    expected = SCALING.matrix @ (units - np.array(SCALING.centres))
    np.testing.assert_allclose(scaled[numbers], expected, rtol=1e-6)
    np.testing.assert_array_equal(scaled[~numbers], plain[~numbers])


def test_scalings_that_cannot_be():
    for centres, factors, mixing in [
        ((0.0,), (1.0, 1.0), None),
        ((0.0,), (math.nan,), None),
        ((0.0,), (1e9,), None),
        (("0",), (1.0,), None),
        ((0.0,), (1.0,), ((1.0, 2.0),)),
        ((0.0,), (1.0,), ()),
    ]:
        with pytest.raises(DomainError):
            Scaling(centres, factors, mixing)
    with pytest.raises(DomainError, match="of 4 numbers"):
        Features(SCHEMA, "none", Scaling((0.0,), (1.0,)))
    assert Scaling.from_document(SCALING.to_document()) == SCALING
    with pytest.raises(DomainError):
        Scaling.from_document(SCALING.to_document() | {"more": 1})
