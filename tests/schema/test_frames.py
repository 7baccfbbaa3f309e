"""Cells, tables and files: what they stand for, in constant memory, and what is refused."""

import csv
import math
import subprocess
import sys
import tracemalloc
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from fedldp import Category, Number, vehicle
from fedldp.errors import DomainError, MissingExtra
from fedldp.schema import frames
from fedldp.schema.rows import kinds
from fedldp.schema.schema import Schema

NAN = math.nan


# Values that are not numbers, and values that are not categories


@pytest.mark.parametrize(
    "data",
    [
        {"x": np.array(["2020-01-01", "2021-01-01"], "M8[ns]")},
        {"x": np.array([1, 2], "m8[s]")},
        {"x": np.array([1j, 2])},
        {"x": [date(2020, 1, 1), datetime(2021, 1, 1)]},
        pd.DataFrame({"x": pd.to_datetime(["2020-01-01", None])}),
        pd.DataFrame({"x": pd.to_timedelta([1, 2])}),
        pd.DataFrame({"x": [1j, 2]}),
        pl.DataFrame({"x": [date(2020, 1, 1), None]}),
        pa.table({"x": [datetime(2020, 1, 1), None]}),
        pa.table({"x": pa.nulls(2)}),
        pl.DataFrame({"x": [{"a": 1}, {"a": 2}]}),
    ],
)
def test_values_that_are_not_numbers_are_nan(data):
    np.testing.assert_array_equal(Schema.of(x=(0, 9)).rows(data).matrix(), [[NAN], [NAN]])


def test_dates_can_be_categories():
    schema = Schema.of(day=[date(2020, 1, 1), date(2021, 1, 1)])
    days = [date(2021, 1, 1), None, date(1999, 1, 1)]
    inputs = [
        {"day": days},
        {"day": np.array(days, "M8[D]")},
        pl.DataFrame({"day": days}),
        pa.table({"day": days}),
    ]
    for data in inputs:
        np.testing.assert_array_equal(schema.rows(data).matrix(), [[1], [NAN], [NAN]])


def test_equal_values_with_different_labels_stay_apart():
    schema = Schema.of(x=["true", "1", "0", "false", "1.5"])
    mixed = [True, 1, 1.0, 0, False, -0.0, np.True_, np.float32(1), np.int8(0), Decimal("1.5")]
    codes = [0, 1, 1, 2, 3, 2, 0, 1, 2, 4]
    assert schema.rows({"x": mixed}).matrix()[:, 0].tolist() == codes
    assert schema.rows({"x": np.array(mixed, object)}).matrix()[:, 0].tolist() == codes
    assert schema.rows(np.array([1.0, 0.0, 1.5])).matrix()[:, 0].tolist() == [1, 2, 4]
    assert schema.rows(np.array([True, False])).matrix()[:, 0].tolist() == [0, 3]


class Hostile:
    """A value with which nothing works."""

    def __float__(self):
        raise RuntimeError("no")

    __str__ = __repr__ = __eq__ = __hash__ = __float__


def test_no_cell_is_refused():
    schema = Schema.of(x=(0, 1), c=["a", "b"])
    cells = [
        Hostile(),
        10**5000,
        -(10**5000),
        [],
        {},
        b"2",
        "a" * 10**6,
        pd.NA,
        pd.NaT,
        np.ma.masked,
    ]
    matrix = schema.rows([{"x": cell, "c": cell} for cell in cells]).matrix()
    assert np.isnan(matrix[:, 1]).all()
    np.testing.assert_array_equal(matrix[:4, 0], [NAN, np.inf, -np.inf, NAN])
    rows = schema.rows([{"x": 10**5000, "c": cell} for cell in cells])
    for start in range(len(cells)):
        _, quality = rows.read(start)
        assert quality["c"].replaced == quality["x"].clipped == len(cells) - start
        assert quality["c"].example.startswith(f"row {start}: ")
    assert rows.quality()["c"].missing == 3  # NA, NaT and what is masked


# A vehicle reads the same


cells = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "a", "b", "true", "1", "1.0", " 2 ", "1_0", "nan", "inf", "٣", "x"])
    | st.sampled_from([10**400, -(10**400), 1j, [1], {}, b"1", object()])
    | st.sampled_from([Decimal("1.5"), Decimal("sNaN"), Fraction(1, 3), date(2020, 1, 1)])
)


def on_a_vehicle(read, value, missing):
    try:
        return read(value)
    except Exception:
        return missing


@given(st.lists(st.fixed_dictionaries({}, optional={"x": cells, "c": cells}), max_size=5))
def test_a_vehicle_reads_every_value_in_the_same_way(data):
    schema = Schema.of(x={"low": -3, "high": 12, "missing": 4}, c=["a", "true", "1", "nan", "None"])
    matrix, (x, c) = schema.rows(data).matrix(), schema.attributes
    missing = vehicle.scaled(4, -3, 12)
    assert x.to_unit(matrix[:, 0]).tolist() == [
        on_a_vehicle(lambda value: vehicle.scaled(value, -3, 12), row.get("x"), missing)
        for row in data
    ]
    assert np.where(np.isnan(matrix[:, 1]), -1, matrix[:, 1]).tolist() == [
        on_a_vehicle(lambda value: c.codes[vehicle.label(value)], row.get("c"), -1) for row in data
    ]


# Structure


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_a_missing_column_is_named(make):
    with pytest.raises(DomainError, match=r"no column 'city'; they have \['age', 'town'\]"):
        Schema.of(age=(0, 1), city=["a", "b"]).rows(make({"age": [1], "town": ["a"]}))


def test_nothing_is_read_from_nothing():
    schema = Schema.of(age=(0, 1), city=["a", "b"])
    empty = {"age": [], "city": []}
    for data in ([], empty, pd.DataFrame(empty), pl.DataFrame(empty), np.zeros((0, 2))):
        rows = schema.rows(data)
        assert len(rows) == 0
        assert rows.matrix().shape == (0, 2)
        assert rows.quality().clean
        assert rows.quality().rows == 0


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"x": 3}, "For a single row, give a list"),
        ({"x": "text"}, "must be a list or an array"),
        ({"x": [1, 2], "y": [1]}, "one length; got {'x': 2, 'y': 1}"),
        ([{"x": 1}, [1]], r"row 1 is \[1\]"),
        ([1.0, 2.0], "row 0 is 1.0"),
        (3, "got int 3"),
        ("data.csv", "got str 'data.csv'"),
        (None, "got NoneType"),
        (pl.LazyFrame({"x": [1]}), "collected"),
        (pa.record_batch({"x": [1]}), "table of pyarrow"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "unique"),
        (pd.Series([1, 2], name="x"), "data must be"),
    ],
)
def test_other_structures_are_refused(data, said):
    with pytest.raises(DomainError, match=said):
        Schema.of(x=(0, 1)).rows(data)


# Kinds


def test_kinds_are_inferred_alike():
    columns = {"n": [1, None], "t": ["a", "b"], "b": [True, None], "s": ["1", "2"], "f": [0.5, NAN]}
    asked = r"Schema.infer\(data, n=\(low, high\), t=\[...\], b=\[...\], s=\(low, high\), f=\(l"
    for make in (dict, pd.DataFrame, pl.DataFrame, pa.table):
        with pytest.raises(DomainError, match=asked):
            Schema.infer(make(columns))
    nullable = pd.DataFrame(columns).astype({"n": "Int64", "b": "boolean", "t": "category"})
    with pytest.raises(DomainError, match=asked):
        Schema.infer(nullable)
    with pytest.raises(DomainError, match=r"v=\(low, high\)"):
        Schema.infer({"v": np.zeros((3, 4))})
    assert Schema.infer({"v": np.zeros((3, 4))}, v=(0, 1))["v"].size == 4
    assert Schema.infer(pl.DataFrame({"v": [[1, 2]]}), v=(0, 1))["v"].size == 2


# Optional packages


def test_nothing_optional_is_imported_before_it_is_needed():
    code = (
        "import sys, fedldp.schema.schema as s\n"
        "s.Schema.of(x=(0, 1)).rows([{'x': 1}]).matrix()\n"
        "assert not {'narwhals', 'pandas', 'polars', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_packages_are_named(monkeypatch, tmp_path):
    frame = pl.DataFrame({"x": [1]})
    monkeypatch.setitem(sys.modules, "narwhals.stable.v2", None)
    with pytest.raises(MissingExtra, match=r"narwhals .*extra 'frames'"):
        Schema.of(x=(0, 1)).rows(frame)
    with pytest.raises(DomainError, match="got int"):
        Schema.of(x=(0, 1)).rows(3)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pyarrow .*extra 'parquet'"):
        next(frames.read(tmp_path / "data.parquet"))


# Files


@pytest.fixture
def write(tmp_path):
    def write(content, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_csv_is_read_in_chunks(write):
    path = write('a,b\n1,x\n2,"y, z"\n\n3,\n,"two\nlines"\n5,é\n')
    chunks = list(frames.read(path, rows=2))
    assert [chunk.data for chunk in chunks] == [
        {"a": ["1", "2"], "b": ["x", "y, z"]},
        {"a": ["3", None], "b": [None, "two\nlines"]},
        {"a": ["5"], "b": ["é"]},
    ]
    assert [chunk.first_row for chunk in chunks] == [0, 2, 4]
    size = path.stat().st_size
    assert [round(chunk.fraction * size) for chunk in chunks] == [17, 34, size]


@pytest.mark.parametrize("text", ["a,b\r\n1,2\r\n", "\ufeffa,b\n1,2", '"a","b"\n"1","2"\n\n\n'])
def test_csv_of_other_writers(write, text):
    assert [chunk.data for chunk in frames.read(write(text))] == [{"a": ["1"], "b": ["2"]}]


def test_csv_without_rows_has_no_chunks(write):
    assert list(frames.read(write("a,b\n"))) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", r"data\.csv must begin with a line of different names.*got \[\]"),
        ("\n1,2\n", "must begin"),
        ("a,a\n1,2\n", "different names"),
        ("a,b\n1,2\n1\n", "line 3: the header has 2 fields, this line 1"),
        ("a,b\n1,2\n1,2,3\n", "line 3: the header has 2 fields, this line 3"),
        ('a,b\n"x\ny",2\n1\n', "line 4: the header"),
        ('a,b\n1,"2\n', "line 2"),
        ('a,b\n1,"2"3\n', "line 2"),
        (b"a,b\n1,2\n\xff,2\n", "line 3 is not UTF-8"),
        (b"\xff\xfea\x00", "line 1 is not UTF-8"),
        ("a\n" + "x" * 200_000, "line 2: field larger"),
    ],
)
def test_malformed_csv_is_refused_with_its_line(write, content, said):
    with pytest.raises(DomainError, match=said):
        list(frames.read(write(content)))


fields = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=5)


@given(st.data(), st.integers(1, 4))
def test_csv_round_trip(tmp_path_factory, draw, width):
    names = draw.draw(st.lists(fields.filter(bool), min_size=width, max_size=width, unique=True))
    rows = draw.draw(st.lists(st.lists(fields, min_size=width, max_size=width), max_size=6))
    path = tmp_path_factory.mktemp("csv") / "data.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    chunks = list(frames.read(path, rows=draw.draw(st.integers(1, 3))))
    for number, name in enumerate(names):
        cells = [cell for chunk in chunks for cell in chunk.data[name.removeprefix("\ufeff")]]
        assert cells == [row[number] or None for row in rows]


def test_rows_of_chunks_are_those_of_the_whole(tmp_path):
    schema = Schema.of(age=(0, 100), city=["Oslo", "Rome"], doors=["2", "4"])
    columns = {
        "doors": pd.array([4, 2, None, 3, 2], "Int64"),
        "city": ["Rome", "Bonn", None, "Oslo", "Oslo"],
        "age": [31.5, None, 54, -7, 1e300],
    }
    frame = pd.DataFrame(columns)
    expected = [[31.5, 1, 1], [NAN, NAN, 0], [54, NAN, NAN], [-7, 0, NAN], [1e300, 0, 0]]
    frame.to_csv(tmp_path / "data.csv", index=False)
    frame.to_parquet(tmp_path / "data.parquet")
    frame.to_parquet(tmp_path / "groups.PQ", row_group_size=3)
    for name in ("data.csv", "data.parquet", "groups.PQ"):
        for size in (1, 2, 5, 100):
            chunks = list(frames.read(str(tmp_path / name), size))
            parts = [schema.rows(chunk.data, chunk.first_row) for chunk in chunks]
            assert max(map(len, parts)) <= size
            np.testing.assert_array_equal(np.vstack([rows.matrix() for rows in parts]), expected)
            assert chunks[-1].fraction == 1.0
            fractions = [chunk.fraction for chunk in chunks]
            assert fractions == sorted(fractions)
        chunk = list(frames.read(tmp_path / name, 3))[1]
        rows = schema.rows(chunk.data, chunk.first_row)
        with pytest.raises(DomainError, match=r"doors: .*row 3: "):
            rows.quality().refuse()


def test_other_files_are_refused(write, tmp_path):
    with pytest.raises(DomainError, match=r"x\.parquet cannot be read as a Parquet file"):
        list(frames.read(write("a,b\n1,2\n", "x.parquet")))
    for name in ("absent.csv", "absent.parquet"):
        with pytest.raises(FileNotFoundError):
            list(frames.read(tmp_path / name))
    for rows in (0, -1, 1.5):
        with pytest.raises(DomainError, match="rows"):
            frames.read(tmp_path / "absent.csv", rows)
    parquet.write_table(pa.table({"a": []}), tmp_path / "empty.parquet")
    assert sum(chunk.data.num_rows for chunk in frames.read(tmp_path / "empty.parquet")) == 0


def test_a_file_takes_the_memory_of_a_chunk(write):
    schema = Schema.of(a=(0, 1), b=["x", "y"])

    def peak(rows):
        path = write("a,b\n" + "0.5,x\n" * rows)
        tracemalloc.start()
        try:
            for chunk in frames.read(path, rows=500):
                schema.rows(chunk.data).matrix()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(500)
    assert peak(50_000) < 1.5 * peak(2_000)


# Vectors


def vectors(kind):
    """Return the same two rows of a vector of three, in different forms."""
    columns = {
        "x[0]": ["1", ""],
        "x[1]": ["2", "5"],
        "x[2]": ["3", "far"],
        "city": ["Oslo", "Oslo"],
    }
    if kind == "columns of texts":
        return columns
    if kind == "columns of numbers":
        rest = {"x[0]": [1.0, np.nan], "x[1]": [2.0, 5.0], "x[2]": [3.0, np.nan]}
        return columns | {name: np.array(each) for name, each in rest.items()}
    return {"x": [[1, 2, 3], [None, 5, "far"]], "city": columns["city"]}


VECTOR = Schema((Number("x", 0, 4, size=3), Category("city", ["Oslo", "Rome"])))


@pytest.mark.parametrize("kind", ["columns of texts", "columns of numbers", "lists"])
def test_a_vector_is_a_column_of_lists_or_several_columns(kind):
    matrix, quality = VECTOR.rows(vectors(kind)).read()
    np.testing.assert_array_equal(matrix, [[1, 2, 3, 0], [np.nan, 5, np.nan, 0]])
    found = quality["x"]
    assert (found.clipped, found.missing + found.unreadable) == (1, 2)
    assert quality.unused_columns == ()


def test_a_vector_of_which_columns_are_missing():
    data = {name: each for name, each in vectors("columns of texts").items() if name != "x[1]"}
    with pytest.raises(DomainError, match=r"'x' of 3 numbers, and not all of x\[0\] to \[2\]"):
        VECTOR.rows(data)
    with pytest.raises(DomainError, match="no column 'x' of 3 numbers"):
        VECTOR.rows({"city": ["Oslo"]})


def test_columns_of_a_vector_are_one_attribute_in_a_draft():
    data = vectors("columns of numbers") | {"y[0]": [1, 2], "z[0]": ["a", "b"], "z[1]": ["a", "b"]}
    assert kinds(data) == {"x": 3, "city": None, "y[0]": 1, "z[0]": None, "z[1]": None}
    assert kinds(data | {"x": [1, 2]})["x[0]"] == 1
