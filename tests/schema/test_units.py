"""Units, dates, times, durations and truth values: read from rows, shown, and no part of a plan."""

import json
from datetime import date, datetime, time, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from click.testing import CliRunner

import fedldp
from fedldp import Number, Plan, Schema, vehicle
from fedldp.cli.app import fedldp as command
from fedldp.errors import DomainError
from fedldp.schema import units

TOML = """
speed = {low = 0, high = 130, unit = "km/h"}
bought = {low = 2020-01-01, high = 2026-12-31}
start = {unit = "hour of day"}
day = {unit = "weekday"}
trip = {low = 0, high = 3, unit = "h"}

[alarm]
categories = ["false", "true", "other"]
aliases = {True = "true", yes = "true", no = "false", 1 = "true"}

["speed by day"]
of = {name = "speed", low = 0, high = 130, unit = "km/h"}
groups = {name = "day", unit = "weekday"}
"""
SCHEMA = Schema.from_toml(TOML)
WHEN = datetime(2024, 2, 29, 8, 30)  # a Thursday
VALUES = [60.0, 19782.0, 8.0, 3.0, 1.0, 1.5]


def values(cells, names=("speed", "bought", "start", "day", "alarm", "trip")):
    schema = Schema(tuple(SCHEMA[name] for name in names))
    return schema.rows(cells).matrix()[0].tolist()


ROWS = {
    "objects": [60, WHEN.date(), WHEN.time(), WHEN.date(), True, timedelta(hours=1.5)],
    "moments": ["60", WHEN.date(), WHEN, WHEN, np.True_, "1:30:00"],
    "texts": [60, "2024-02-29", "08:30", "2024-02-29T08:30", "True", "1:30"],
    "numbers": [60, 19782, 8.5, "Thursday", 1, 1.5],
    "numpy": [
        60,
        np.datetime64("2024-02-29"),
        np.datetime64("2024-02-29T08:30"),
        np.datetime64("2024-02-29T08:30"),
        "yes",
        np.timedelta64(90, "m"),
    ],
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_rows_have_dates_and_times(row):
    named = dict(zip(("speed", "bought", "start", "day", "alarm", "trip"), row, strict=True))
    assert values([named]) == VALUES
    assert SCHEMA.check([named]).clean


def test_columns_of_frames():
    columns = {
        "speed": [60.0],
        "bought": [WHEN.date()],
        "start": [time(8, 30)],
        "day": [WHEN],
        "alarm": [True],
        "trip": [timedelta(hours=1.5)],
    }
    for frame in (columns, pd.DataFrame(columns), pl.DataFrame(columns)):
        assert values(frame) == VALUES
    moments = pd.DataFrame(
        {"start": pd.to_datetime([WHEN]), "bought": pd.to_datetime(["2024-02-29"])}
    )
    assert values(moments, ["start", "bought"]) == [8.0, 19782.0]
    array = {"bought": np.array(["2024-02-29", "NaT"], "datetime64[D]")}
    assert Schema((SCHEMA["bought"],)).rows(array).matrix()[0] == [19782.0]
    assert Schema((SCHEMA["bought"],)).check(array)["bought"].missing == 1


@pytest.mark.parametrize("cell", ["soon", "2024-02-30", "25:61:x", [1], object(), b"x"])
def test_what_is_no_time_is_replaced(cell):
    quality = SCHEMA.check([dict.fromkeys(("bought", "start", "day", "alarm", "trip"), cell)])
    for name in ("bought", "start", "day", "alarm", "trip"):
        assert quality[name].replaced == 1


def test_a_plan_has_numbers_and_labels_alone():
    plan = Plan(SCHEMA, 4.0)
    plain = Plan(Schema.from_document(SCHEMA.to_document()), 4.0)
    assert plan.to_json() == plain.to_json()
    assert plan.schema == plain.schema  # a unit makes no other attribute
    document = json.loads(plan.to_json())["schema"]
    assert document[1]["low"] == 18262.0
    assert "unit" not in plan.to_json()
    small = vehicle.Plan(plan.to_json(), 4)
    row = {
        "speed": 60,
        "bought": 19782,
        "start": 8.5,
        "day": "Thursday",
        "alarm": True,
        "trip": 1.5,
    }
    assert small.check(row) == []
    matrix = SCHEMA.rows([row]).matrix()
    places = iter(range(len(SCHEMA)))
    expected = [a.inputs.of(matrix[:, [next(places)]])[0, 0] for a in SCHEMA.attributes]
    assert small.inputs(row) == expected


def test_schemas_keep_their_units():
    again = Schema.from_toml(SCHEMA.to_toml())
    assert again == SCHEMA
    assert [each.unit for each in again.attributes] == [each.unit for each in SCHEMA.attributes]
    assert SCHEMA["bought"].unit == "date"
    assert SCHEMA["speed by day"].unit == "km/h"
    of = Schema.of(
        bought=(date(2020, 1, 1), date(2026, 12, 31)), alarm=bool, start={"unit": "hour of day"}
    )
    assert of == Schema(tuple(SCHEMA[name] for name in ("bought", "alarm", "start")))
    assert "unit='km/h'" in repr(Number("speed", 0, 130, unit="km/h"))
    four = Schema.of(start={"unit": "hour of day", "bins": 4})["start"]
    assert four.labels == ("0 to 6", "6 to 12", "12 to 18", "18 to 24")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('x = {low = 2020-01-01, high = 2026-01-01, unit = "km"}', "'date' for dates; got 'km'"),
        ("x = {low = 0, high = 1, unit = 3}", "unit of 'x' must be a text"),
        ('x = {low = 0, high = 1, unit = "a\\nb"}', "unit of 'x' must be a text"),
        ("x = {low = 2026-01-01, high = 2020-01-01}", "Did you swap them"),
    ],
)
def test_units_that_are_refused(table, said):
    with pytest.raises(DomainError, match=said):
        Schema.from_toml(table)


def test_what_is_expected_has_units():
    expected = Plan(SCHEMA, 4.0).expect(20_000)
    assert expected["speed"].unit == "km/h"
    assert expected["bought"].unit == "days"
    assert expected["day"].unit == ""
    assert "speed (km/h)" in expected._repr_html_()


def test_tables_and_pictures_have_units(tmp_path):
    rows = [
        {"speed": 60, "bought": "2024-02-29", "start": f"{8 + i % 9}:30", "day": "2024-02-29"}
        | {"alarm": ["True", "no"][i % 2], "trip": "0:30"}
        for i in range(2000)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "fleet.csv", index=False)
    (tmp_path / "fleet.toml").write_text(TOML)
    given = ["collect", tmp_path / "fleet.csv", "--schema", tmp_path / "fleet.toml", "--epsilon", 8]
    given += ["--seed", 1, "--plot", tmp_path / "fleet.svg"]
    result = CliRunner().invoke(command, [*map(str, given)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    for text in ("speed (km/h)", "bought (date)", "2024-02-29", "trip (h)", "start (hour of day)"):
        assert text in result.stdout
    document = json.loads(
        CliRunner().invoke(command, [*map(str, given), "--json"], catch_exceptions=False).stdout
    )
    assert {row["name"]: row.get("unit") for row in document["estimates"]}["trip"] == "h"
    result = CliRunner().invoke(
        command, ["plan", "--schema", str(tmp_path / "fleet.toml"), "--epsilon", "8"]
    )
    assert "bought (days)" in result.stdout


@pytest.mark.parametrize("days", [19_782.0, 0.0, -1.0, 1e12, float("inf"), float("nan")])
def test_dates_are_shown(days):
    shown = units.shown(days, 2.0, "date")
    if abs(days) < 1e5:
        assert units.days_of(date.fromisoformat(shown)) == days


def test_reports_are_those_of_the_numbers():
    rows = [{"bought": "2024-02-29"}, {"bought": WHEN.date()}]
    plan = Plan(Schema((SCHEMA["bought"],)), 2.0)
    numbers = plan.report({"bought": [19782, 19782]}, fedldp.source(1))
    assert plan.report(rows, fedldp.source(1)) == numbers
