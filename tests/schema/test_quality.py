"""Data quality: whatever is clipped or replaced is counted, said once, and refused if strict."""

import itertools
import math
import warnings
from datetime import date, datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedldp
from fedldp import Category, Number, Plan, Schema
from fedldp.budget.vehicle import for_vehicle
from fedldp.errors import DataWarning, DomainError, UnknownName
from fedldp.schema.quality import total

NAN = math.nan
PRICE = Schema.of(price=(300, 19_820))  # the centre is 10,060
MIXED = Schema.of(age=(0, 100), city=["Oslo", "Paris"])


def counts(quality, name):
    each = quality[name]
    return each.clipped, each.missing, each.unreadable, each.unknown


def mean_and_warning(schema, data):
    """Return the estimated mean of the first attribute, and what was said about the data."""
    plan = Plan(schema, 8.0)
    with pytest.warns(DataWarning) as caught:
        report = plan.report(data, fedldp.source(1))
    assert len(caught) == 1  # once for a call
    assert caught[0].filename == __file__  # it names the line that called
    return plan.parse(report.to_bytes()).estimate()[schema.names[0]].mean, str(caught[0].message)


# What went wrong without a word: every value is replaced by the centre, 10,060.


N = 2000
WRONG = {
    "a column of NaN": (np.full(N, NAN), "2,000 of 2,000 (100%) missing, replaced by 10060"),
    "texts with a unit": (
        [{"price": "100 USD"}] * N,
        "2,000 of 2,000 (100%) unreadable, replaced by 10060; row 0: '100 USD' is not a number",
    ),
    "datetimes": (
        {"price": np.full(N, "2020-01-01", "datetime64[D]")},
        "2,000 of 2,000 (100%) unreadable, replaced by 10060; row 0: datetime.date(2020, 1, 1) is",
    ),
    "a misspelt key": (
        [{"prize": 3933}] * N,
        "Unknown key: 'prize' in 2,000 of 2,000 rows (did you mean 'price'?).",
    ),
    "clipping": (np.full(N, 1e6), "2,000 of 2,000 (100%) clipped to [300, 19820]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_confident_wrong_mean_is_announced(name):
    data, said = WRONG[name]
    mean, message = mean_and_warning(PRICE, data)
    assert abs(mean - (19_820 if name == "clipping" else 10_060)) < 1000
    assert said in message
    assert "strict=True" in message
    assert len(message.splitlines()) <= 4


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("method", ["report", "simulate"])
def test_strict_refuses_before_anything_is_drawn(name, method):
    source = fedldp.source(1)
    with pytest.raises(DomainError, match=r"must be usable as they are; .*price"):
        getattr(Plan(PRICE, 2.0), method)(WRONG[name][0], source, strict=True)
    assert source.words(4).tolist() == fedldp.source(1).words(4).tolist()


def test_good_data_are_silent_and_strict_changes_nothing():
    plan, data = Plan(MIXED, 2.0), [{"age": 31, "city": "Paris"}, {"age": "100", "city": "Oslo"}]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wanted = plan.report(data, fedldp.source(1)).to_bytes()
        assert plan.report(data, fedldp.source(1), strict=True).to_bytes() == wanted
        assert plan.simulate(data, fedldp.source(1)) == plan.parse(wanted)
        assert plan.report([], fedldp.source(1)).vehicles == 0
        assert plan.report([], fedldp.source(1), strict=True).vehicles == 0


def test_the_report_does_not_depend_on_what_is_counted():
    """A replaced value gives the bytes of its replacement, drawn with the same words."""
    plan = Plan(MIXED, 2.0)
    wanted = plan.report([{"age": 50, "city": "Oslo"}] * 9, fedldp.source(1)).to_bytes()
    for row in ({}, {"age": "x", "city": "Bonn"}, {"age": NAN, "city": None}):
        with pytest.warns(DataWarning):
            assert plan.report([row] * 9, fedldp.source(1)).to_bytes() == wanted


def test_chunks_add_up():
    n = 100_000  # more than a chunk
    ages = np.full(n, 31.0)
    ages[::10] = 131.0
    ages[::25] = NAN
    data = {"age": ages, "city": ["Pari" if i % 4 == 0 else "Oslo" for i in range(n)]}
    with pytest.warns(DataWarning, match=r"100,000 rows: 37,000 values") as caught:
        Plan(MIXED, 2.0).report(data, fedldp.source(1))
    assert len(caught) == 1
    quality = MIXED.check(data)
    assert counts(quality, "age") == (8000, 4000, 0, 0)
    assert counts(quality, "city") == (0, 0, 0, 25_000)
    assert quality["city"].example.startswith("row 0: 'Pari'")
    parts = [
        MIXED.check({name: column[start : start + 999] for name, column in data.items()})
        for start in range(0, n, 999)
    ]
    assert total(parts) == quality


# What counts as what


NULLS = {
    "dicts": [{"x": 1.0, "c": "a"}, {"x": None, "c": None}, {}, {"x": NAN, "c": NAN}],
    "texts": [{"x": "1", "c": "a"}, {"x": "", "c": ""}, {"x": " nan "}, {"x": "NaN"}],
    "columns": {"x": [1.0, None, NAN, ""], "c": ["a", None, NAN, ""]},
    "arrays": {"x": np.array([1, NAN, NAN, NAN]), "c": np.array(["a", None, NAN, ""], object)},
    "pandas": pd.DataFrame({"x": [1.0, None, NAN, None], "c": ["a", None, None, NAN]}),
    "pandas nullable": pd.DataFrame(
        {
            "x": pd.array([1.0, pd.NA, None, pd.NA], "Float64"),
            "c": pd.array(["a", pd.NA, None, pd.NA], "string"),
        }
    ),
    "pandas objects": pd.DataFrame(
        {"x": [1.0, pd.NA, None, pd.NaT], "c": ["a", pd.NA, None, pd.NaT]}, dtype=object
    ),
    "pandas categories": pd.DataFrame(
        {"x": [1.0, NAN, NAN, NAN], "c": pd.Categorical(["a", None, None, None])}
    ),
    "polars": pl.DataFrame({"x": [1.0, None, NAN, None], "c": ["a", None, None, None]}),
    "pyarrow": pa.table({"x": [1.0, None, NAN, None], "c": ["a", None, None, None]}),
    "masked": np.ma.masked_array([["1", "a"]] * 4, [[i > 0] * 2 for i in range(4)]),
}


@pytest.mark.parametrize("name", NULLS)
def test_missing_is_missing_in_every_kind_of_data(name):
    quality = Schema.of(x=(0, 1), c=["a", "b"]).check(NULLS[name])
    assert counts(quality, "x") == counts(quality, "c") == (0, 3, 0, 0)


DATES = {
    "python": [datetime(2020, 1, 1), date(2020, 1, 1), None],
    "numpy": np.array(["2020-01-01", "2020-01-02", "NaT"], "datetime64[ns]"),
    "pandas": pd.Series([pd.Timestamp(0), pd.Timestamp(1), pd.NaT]),
    "durations": np.array([1, 2, "NaT"], "timedelta64[s]"),
}


@pytest.mark.parametrize("name", DATES)
@pytest.mark.parametrize("make", [dict, pd.DataFrame])
def test_dates_are_not_numbers(name, make):
    quality = Schema.of(x=(0, 1)).check(make({"x": DATES[name]}))
    assert counts(quality, "x") == (0, 1, 2, 0)


def test_dates_of_polars_and_pyarrow_are_not_numbers():
    columns = {"x": [datetime(2020, 1, 1), None, datetime(2020, 1, 2)]}
    for frame in (pl.DataFrame(columns), pa.table(columns)):
        assert counts(Schema.of(x=(0, 1)).check(frame), "x") == (0, 1, 2, 0)


def test_every_kind_of_number():
    schema = Schema.of(x=(0, 10))
    clipped = [-1, 10.1, 1e300, math.inf, -math.inf, 10**400, "11", np.float32(11)]
    assert counts(schema.check([{"x": value} for value in clipped]), "x") == (8, 0, 0, 0)
    wrong = ["100 USD", "1,5", "ten", b"\xff", [1], {}, object(), 1j, float]
    assert counts(schema.check([{"x": value} for value in wrong]), "x") == (0, 0, 9, 0)
    good = [0, 10, True, "5", " 5 ", np.int8(3), 10 + 1e-9, -1e-9]  # rounding is not clipping
    assert schema.check([{"x": value} for value in good]).clean
    assert counts(schema.check(np.array([1j, complex(NAN)])), "x") == (0, 1, 1, 0)


def test_every_kind_of_category():
    schema = Schema.of(c=["1", "2", "true"])
    for data in ([1, 2.0, "1", True], np.array([1, 2, 1])):
        assert schema.check({"c": data}).clean
    assert counts(schema.check({"c": [3, "Bonn", False, [1]]}), "c") == (0, 0, 0, 4)
    assert counts(schema.check({"c": np.array([1, 7, NAN])}), "c") == (0, 1, 0, 1)


def test_vectors_count_each_number():
    schema = Schema((Number("v", 0, 9, size=2),))
    cells = [[1, 2], [3, None], None, [7], ["5", "x"], [1, 99]]
    quality = schema.check([{"v": cell} for cell in cells])
    assert quality["v"].values == 12
    assert counts(quality, "v") == (1, 3, 3, 0)
    assert quality["v"].example == "row 1, number 1: the value is missing"
    array = np.array([[1, NAN], [10, 3]])
    assert counts(schema.check(array), "v") == counts(schema.check({"v": array}), "v")
    assert counts(schema.check(array), "v") == (1, 1, 0, 0)
    objects = np.array([[1, None], [10, "x"]], object)
    assert counts(schema.check(objects), "v") == (1, 1, 1, 0)


@given(
    st.integers(1, 30),
    st.lists(
        st.tuples(st.integers(0, 2999), st.integers(0, 29), st.sampled_from([NAN, -1.0, 2.0]))
    ),
    st.sampled_from([1, 7, 1024, 3000]),
)
def test_arrays_of_any_shape_are_counted_as_in_a_loop(d, changes, n):
    matrix = np.full((n, d), 0.5)
    for row, column, value in changes:
        matrix[row % n, column % d] = value
    quality = Schema.of(**{f"x{i}": (0, 1) for i in range(d)}).check(matrix)
    for i in range(d):
        missing = sum(x != x for x in matrix[:, i])
        clipped = sum(not 0 <= x <= 1 for x in matrix[:, i]) - missing
        assert counts(quality, f"x{i}") == (clipped, missing, 0, 0)


# Keys and columns


def test_unknown_keys_are_counted_and_the_likely_one_is_named():
    rows = [
        {"age": 1, "city": "Oslo"},
        {"agee": 2, "city": "Oslo"},
        {"age": 3, "city": "Oslo", 7: 0},
    ]
    quality = MIXED.check(rows)
    assert quality.unknown_keys == {"7": 1, "agee": 1}
    assert "'agee' in 1 of 3 rows (did you mean 'age'?)" in str(quality)
    assert not MIXED.check([{"age": 1, "city": "Oslo", "id": 7}]).clean
    many = [{f"key {i}": 0 for i in range(100)}] * 3
    assert MIXED.check(many).unknown_keys == {f"key {i}": 3 for i in range(100)}
    assert "and 95 more" in str(MIXED.check(many))


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_unused_columns_are_named_and_are_not_an_error(make):
    """Every column of the schema must be in a table, so that none is there misspelt."""
    quality = MIXED.check(make({"age": [1], "city": ["Oslo"], "id": [7]}))
    assert quality.unused_columns == ("id",)
    assert quality.clean
    assert "Unused column: 'id'." in str(quality)
    assert quality.using("id").unused_columns == ()


def test_a_summary_is_short_and_begins_with_the_worst():
    schema = Schema.of(**{f"x{i}": (0, 1) for i in range(20)})
    matrix = np.zeros((10, 20))
    for i in range(20):
        matrix[: i // 2, i] = NAN
    lines = str(schema.check(matrix)).splitlines()
    assert lines[0] == "10 rows: 90 values are clipped or replaced."
    assert lines[1].strip().startswith("x18: 9 of 10 (90%) missing")
    assert lines[-1] == "  and 13 more attributes."
    assert len(lines) == 7


def test_values_are_left_out_where_a_summary_is_kept():
    quality = Schema.of(x=(0, 1)).check([{"x": "secret"}])
    assert "secret" in str(quality)
    assert "secret" not in quality.summary(examples=False)


def test_an_unknown_name_is_refused():
    with pytest.raises(
        UnknownName, match=r"'agee' \(did you mean 'age'\?\); choose from age, city"
    ):
        MIXED.check([])["agee"]


# The label for others


def test_other_takes_what_is_missing_or_unknown():
    assert Category("c", ["Oslo", "other", "Rome"]).missing == "other"
    assert Category("c", ["Oslo", "Rome"]).missing == "Oslo"
    assert Category("c", ["Oslo", "other"], missing="Oslo").missing == "Oslo"
    schema = Schema.of(c=["Oslo", "Rome", "other"])
    assert Schema.from_toml('c = {categories = ["Oslo", "Rome", "other"]}') == schema
    entry = {"name": "c", "categories": ["Oslo", "other"], "missing": "Oslo"}
    assert Schema.from_document([entry]).to_document() == [entry]  # a plan says it itself
    with pytest.warns(DataWarning, match="replaced by 'other'"):
        tally = Plan(schema, 8.0).simulate([{"c": "Bonn"}] * 5000, fedldp.source(1))
    assert tally.estimate()["c"].frequencies.round(1).tolist() == [0.0, 0.0, 1.0]


# A vehicle on the standard library says the same


ANYTHING = (
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.just(10**400)
    | st.sampled_from(["", " ", "nan", "Oslo", "Paris", "Pari", "7", "1e3", "x", b"7"])
    | st.lists(st.none() | st.floats() | st.text(max_size=2), max_size=3)
    | st.dictionaries(st.text(max_size=2), st.none(), max_size=1)
)
SMALL = Schema((*MIXED.attributes, Number("v", -1, 1, size=2)))
READY = for_vehicle(Plan(SMALL, 2.0).to_json(), 2.0)


@given(st.dictionaries(st.sampled_from([*SMALL.names, "agee", ""]), ANYTHING, max_size=5))
def test_a_vehicle_without_numpy_finds_the_same(row):
    notes = READY.check(row)
    quality = SMALL.check([row])
    for word in ("clipped", "missing", "unreadable", "unknown"):
        expected = sum(getattr(each, word) for each in quality.attributes)
        said = [note for note in notes if f" is {word}" in note and not note.startswith("the key")]
        assert len(said) == expected, (word, notes)
    assert sum(note.startswith("the key") for note in notes) == len(quality.unknown_keys)
    assert (not notes) == quality.clean


def test_what_a_vehicle_says():
    row = {"age": 131, "city": "Pari", "agee": 7, "v": [1, "x"]}
    assert READY.check(row) == [
        "age is clipped (131)",
        "city is unknown ('Pari')",
        "v[1] is unreadable ('x')",
        "the key 'agee' is unknown (did you mean 'age'?)",
    ]
    assert READY.check([31, "Oslo", 0.5, 1]) == []
    assert READY.check([31]) == ["city is missing", "v[0] is missing", "v[1] is missing"]


# Estimators


ROWS = np.array(list(itertools.product([-2.0, 0.5], repeat=3)) * 20)  # half of it outside
LABELS = ROWS[:, 0] > 0


@pytest.mark.filterwarnings("ignore::fedldp.errors.AccuracyWarning")  # 160 vehicles are few
@pytest.mark.parametrize("name", ["LDPLogisticRegression", "LDPLinearSVC"])
def test_estimators_say_what_they_clip(name):
    model = getattr(fedldp, name)
    with pytest.warns(DataWarning, match=r"X: 240 of 480 \(50%\) clipped to \[-1, 1\]") as caught:
        model(bounds=(-1, 1), random_state=0).fit(ROWS, LABELS)
    assert {str(warning.filename) for warning in caught} == {__file__}
    with pytest.raises(DomainError, match="clipped"):
        model(bounds=(-1, 1), strict=True).fit(ROWS, LABELS)
    model(bounds=(-2, 1), strict=True, random_state=0).fit(ROWS, LABELS)


@pytest.mark.filterwarnings("ignore::fedldp.errors.AccuracyWarning")
def test_a_regression_also_counts_the_target():
    options = {"bounds": ([-2, -1, -2], [1, 1, 1]), "target_bounds": (-1, 1), "random_state": 0}
    with pytest.warns(DataWarning) as caught:
        fedldp.LDPLinearRegression(**options).fit(ROWS, ROWS[:, 0])
    said = str(caught[0].message)
    assert "X[:, 1]: 80 of 160 (50%) clipped to [-1, 1]" in said
    assert "y: 80 of 160 (50%) clipped to [-1, 1]" in said
    with pytest.raises(DomainError, match="y: 80 of 160"):
        fedldp.LDPLinearRegression(strict=True, **options).fit(ROWS, ROWS[:, 0])
