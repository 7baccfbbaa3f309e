"""Rows of a file: one malformed line affects its own vehicle alone, and files may change."""

import json

import numpy as np
import pytest
from holders import answered, statistic_of

import fedldp
from fedldp import Plan, Schema, vehicle
from fedldp.budget import ledger
from fedldp.errors import DomainError
from fedldp_fleet.agent.linear import RowItself
from fedldp_fleet.agent.many import ManyVehicles
from fedldp_fleet.agent.rows import FileRows, ProgramRows, TableRows

SCHEMA = Schema.of(speed=(0, 50), city=["Oslo", "Rome"])
PLAN = Plan(SCHEMA, 1.0)
GOOD = ["car,speed,city", "a,31,Oslo", "b,32,Rome", "c,33,Oslo", "d,34,Rome"]
MALFORMED = {
    "too few": b"b,32",
    "too many": b"b,32,Rome,Italy",
    "a quotation mark that stays open": b'b,"32,Rome',
    "text after a quotation mark": b'b,"32"x,Rome',
    "a quotation mark at the end": b'b,32,"Rome',
    "not UTF-8": b"b,32,R\xf6m",
    "a carriage return": b"b,3\r2,Rome",
    "alone": b"b",
    "without its vehicle": b'"',
    "spaces": b"   ",
    "NUL": b"b\0,32,Rome,",
    "a very long field": b"b,32,Rome," + b"x" * 200_000,
}
KNOWN = [name for name in MALFORMED if name not in ("without its vehicle", "spaces", "NUL")]


@pytest.fixture
def rows_of(tmp_path):
    """Return a function that writes a file in which one line is another one, and reads it."""

    def read(line=None, place=2, lines=GOOD, column="car", **options):
        found = [text.encode() for text in lines]
        if line is not None:
            found[place] = line
        (tmp_path / "rows.csv").write_bytes(b"\n".join(found) + b"\n")
        told = []
        rows = FileRows(tmp_path / "rows.csv", SCHEMA, column, tell=told.append, **options)
        rows.told = told
        return rows

    return read


def values(rows, column=0):
    """Return the value of each vehicle that has one row."""
    held = rows.held()
    names = [rows.vehicle_ids[owner] for owner in held.owners]
    return dict(zip(names, held.matrix[:, column].tolist(), strict=True))


def answering(rows, folder):
    """Return which vehicles answer."""
    if not (folder / "ledger.db").exists():
        fedldp.Ledger.create(folder / "ledger.db", 4).close()
    with ledger.Ledger(folder / "ledger.db", 4) as spent:
        before = spent.totals()
        number = len(answered(ManyVehicles(rows, spent), statistic_of(PLAN, f"job-{len(before)}")))
        after = spent.totals()
    assert number == sum(after[name] > before.get(name, 0) for name in after)
    return set(after)


@pytest.mark.parametrize("place", [1, 2, 4])
@pytest.mark.parametrize("name", MALFORMED)
def test_all_others_answer(rows_of, tmp_path, name, place):
    rows = rows_of(MALFORMED[name], place)
    others = {"a", "b", "c", "d"} - {GOOD[place][0]}
    found = values(rows)
    for car, speed in zip("abcd", (31, 32, 33, 34), strict=True):
        if car in others - {"b"}:
            assert found[car] == speed, "another vehicle is affected"
    assert any("1 row malformed" in line for line in rows.told)
    assert others - {"b"} <= answering(rows, tmp_path)


@pytest.mark.parametrize("name", KNOWN)
def test_its_own_vehicle_answers_with_the_public_default(rows_of, tmp_path, name):
    rows = rows_of(MALFORMED[name])
    assert rows.vehicle_ids == ["a", "b", "c", "d"]
    assert np.isnan(values(rows)["b"])
    assert answering(rows, tmp_path) == {"a", "b", "c", "d"}


@pytest.mark.parametrize("name", MALFORMED)
def test_without_ids_a_vehicle_is_its_line(rows_of, name):
    rows = rows_of(MALFORMED[name], column=None)
    assert rows.vehicle_ids == ["0", "1", "2", "3"]
    found = values(rows)
    assert [found["0"], found["2"], found["3"]] == [31, 33, 34]
    assert np.isnan(found["1"])


def test_a_shifted_cell_gives_no_row_to_another_vehicle(rows_of):
    """A malformed line may seem to be one of a vehicle that has lines of its own."""
    assert values(rows_of(b"a,32,Rome,Italy")) == {"a": 31, "c": 33, "d": 34}


@pytest.mark.parametrize("vehicle", ["", "a\x07", "\x00"])
def test_a_row_of_an_unknown_vehicle_is_left_out(rows_of, tmp_path, vehicle):
    rows = rows_of(f"{vehicle},32,Rome".encode())
    assert rows.vehicle_ids == ["a", "c", "d"]
    assert answering(rows, tmp_path) == {"a", "c", "d"}


def test_the_owner_is_told_counts_and_no_values(rows_of):
    told = "\n".join(rows_of(b"b,Stavanger").told)
    assert "1 row malformed" in told
    assert "Stavanger" not in told


def test_a_malformed_line_keeps_the_choice_of_its_vehicle(rows_of, tmp_path):
    """The epsilon of a vehicle is that of its other lines; without any, it answers no plan."""
    lines = ["car,speed,city,most", "a,31,Oslo,1.0", "b,32,Rome,1.0", "b,33", "c,34", "d,35,Rome,"]
    rows = rows_of(lines=lines, epsilon="most")
    assert rows.vehicle_ids == ["a", "b", "c", "d"]
    assert list(rows.epsilons) == [1, 1, 0, 0]
    assert answering(rows, tmp_path) == {"a", "b"}


def test_a_vehicle_keeps_its_budget_wherever_its_row_is(rows_of, tmp_path):
    assert answering(rows_of(), tmp_path) == set("abcd")
    moved = [GOOD[0], "e,12,Rome", *GOOD[:0:-1]]
    rows = rows_of(lines=moved)
    assert answering(rows, tmp_path) == set("abcde")
    with ledger.Ledger(tmp_path / "ledger.db", 4) as spent:
        assert spent.totals() == dict.fromkeys("abcd", 2) | {"e": 1}


def test_a_file_that_has_changed_is_read_again(rows_of, tmp_path):
    rows = rows_of()
    (tmp_path / "rows.csv").write_text("car,speed,city\nb,48,Oslo\nnew,1,Rome\na,2,Oslo\n")
    found = values(rows)
    assert (found["a"], found["b"]) == (2, 48)
    assert np.isnan([found["c"], found["d"]]).all()  # they answer with the public default
    assert rows.vehicle_ids == ["a", "b", "c", "d"]  # a new one is asked after a restart


@pytest.mark.parametrize("text", ["car,speed\na,1\n", "", "speed,city\n1,Oslo\n", "car,speed"])
def test_a_file_that_cannot_be_read_again_changes_nothing(rows_of, tmp_path, text):
    rows = rows_of()
    before = values(rows)
    (tmp_path / "rows.csv").write_text(text)
    assert values(rows) == before
    assert "the old rows stay" in rows.told[-1]
    assert rows.vehicle_ids == ["a", "b", "c", "d"]


def test_a_file_without_vehicles_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("car,speed,city\n")
    with pytest.raises(DomainError, match="no rows of a known vehicle"):
        FileRows(tmp_path / "rows.csv", SCHEMA, "car")


# Several rows of a vehicle

TRIPS = Schema.of(
    speed={"low": 0, "high": 130, "rule": "mean"},
    trip={"low": 0, "high": 10, "rule": "count"},
    alarm={"categories": ["false", "true"], "rule": "any"},
    city=["Oslo", "Rome"],
)
TRIP_ROWS = [
    {"car": car, "speed": speed, "trip": trip, "alarm": alarm, "city": city}
    for car, speed, trip, alarm, city in [
        ("a", "60", "x", "false", "Rome"),
        ("b", "200", None, "false", "Oslo"),
        ("a", "70", "y", "true", "Rome"),
        ("a", None, "z", "maybe", "Rome"),
        ("b", "10", "u", None, "Oslo"),
    ]
]
EXPECTED = [[65.0, 3.0, 1.0, 1.0], [70.0, 1.0, 0.0, 0.0]]


def in_file(folder):
    lines = [",".join("" if cell is None else cell for cell in row.values()) for row in TRIP_ROWS]
    path = folder / "trips.csv"
    path.write_text("\n".join(["car,speed,trip,alarm,city", *lines]) + "\n")
    return FileRows(path, TRIPS, "car", tell=[].append)


def in_program(_):
    return ProgramRows(TRIPS, lambda: TRIP_ROWS, ["a", "b"], "car", tell=[].append)


@pytest.mark.parametrize("source", [in_file, in_program])
def test_agents_answer_with_one_row_of_each_vehicle(source, tmp_path, monkeypatch):
    """The values before the coder are those of the library and of one vehicle."""
    data, drawn, plan = source(tmp_path), [], Plan(TRIPS, 4.0)
    records = Plan.records

    def recording(self, values, *rest):
        drawn.append(values.matrix.tolist())
        return records(self, values, *rest)

    monkeypatch.setattr(Plan, "records", recording)
    fedldp.Ledger.create(tmp_path / "ledger.db", 4).close()
    with ledger.Ledger(tmp_path / "ledger.db", 4) as spent:
        assert len(answered(ManyVehicles(data, spent), statistic_of(plan))) == 2
    assert drawn == [EXPECTED]
    one = RowItself(json.loads(plan.to_json()))
    small = vehicle.Plan(plan.to_json(), 4)
    rows_of = {car: [row for row in TRIP_ROWS if row["car"] == car] for car in "ab"}
    combined = {car: one.answer(mine, 7) for car, mine in rows_of.items()}
    assert TRIPS.rows([*combined.values()]).matrix().tolist() == EXPECTED
    for car, row in combined.items():
        assert small.one_row(rows_of[car], 7) == row
        assert one.answer(row, 7) == row  # a row alone is used as it is


def test_a_program_that_fails_answers_with_public_values():
    rows = ProgramRows(TRIPS, lambda: 1 / 0, ["a", "b"], "car", tell=[].append)
    held = rows.held()
    assert np.isnan(held.matrix).all()
    assert held.ruled is None


def test_a_vehicle_without_rows_counts_none():
    rows = ProgramRows(TRIPS, lambda: TRIP_ROWS, ["a", "b", "c"], "car", tell=[].append)
    np.testing.assert_array_equal(rows.held().ruled[2], [np.nan, 0, np.nan, np.nan])


def test_a_matrix_has_no_rules():
    with pytest.raises(DomainError, match="rows with rules must come from a file or a program"):
        TableRows(TRIPS, np.zeros((1, 4)), ["a"])
