"""Data of which nothing can be used: a simulation refuses them, and a vehicle reports as ever."""

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner

import fedldp
from fedldp import Plan, Schema, vehicle
from fedldp.cli.app import fedldp as command
from fedldp.errors import DataWarning, DomainError

SCHEMA = Schema.of(delay=(0, 120), origin=["EWR", "JFK", "LGA"])
PLAN = Plan(SCHEMA, 2.0)
GOOD = {"delay": 30, "origin": "JFK"}
UNUSABLE = {
    "unreadable": [GOOD | {"delay": f"{i} min"} for i in range(50)],
    "unknown": [GOOD | {"origin": "Oslo"}] * 50,
    "missing": [GOOD | {"delay": None}] * 50,
    "none of the columns": [{"verspätung": 30, "abflug": "JFK"}] * 50,
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_simulation_refuses_an_attribute_without_a_value(name):
    rows = UNUSABLE[name]
    with pytest.raises(DomainError, match=r"no value of (delay|origin) can be used: .*100%"):
        PLAN.simulate(rows, fedldp.source(1))


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_vehicle_reports_as_ever_and_its_owner_is_told(name):
    """Data decide neither whether a report is sent nor how long it is."""
    rows = UNUSABLE[name]
    with pytest.warns(DataWarning, match="100%"):
        report = PLAN.report(rows, fedldp.source())
    assert len(report.to_bytes()) == len(PLAN.report([GOOD] * 50, fedldp.source()).to_bytes())
    alone = vehicle.Plan(PLAN.to_json(), 2)
    assert len(alone.report(rows[0])) == len(alone.report(GOOD))
    assert alone.check(rows[0])


def test_so_does_a_simulation_of_a_calendar():
    calendar = fedldp.Calendar(PLAN, periods=2, answers=1)
    with pytest.raises(DomainError, match="no value of origin can be used"):
        calendar.simulate([UNUSABLE["unknown"]] * 2, fedldp.source(1))


def test_a_single_value_is_enough():
    rows = [GOOD | {"delay": None}] * 49 + [GOOD]
    with pytest.warns(DataWarning, match="49 of 50"):
        PLAN.simulate(rows, fedldp.source(1))


def test_optional_values_may_all_be_missing():
    schema = Schema.of(battery={"low": 0, "high": 100, "optional": True})
    plan = Plan(schema, 2.0)
    assert plan.simulate([{"battery": None}] * 50, fedldp.source(1)).reports == 50


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    schema = Schema.of(delay=(0, 120), origin=["EWR", "JFK"])
    Path("fleet.toml").write_text(schema.to_toml())
    with Path("fleet.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["delay", "origin"])
        writer.writeheader()
        writer.writerows({"delay": f"{i} min", "origin": "JFK"} for i in range(50))


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    "words",
    [
        ["collect", "fleet.csv"],
        ["train", "--data", "fleet.csv", "--target", "origin", "--task", "logistic"],
    ],
)
def test_the_commands_refuse_it(words):
    words = [*words, "--schema", "fleet.toml", "--epsilon", "2"]
    result = CliRunner().invoke(command, words)
    assert result.exit_code != 0
    assert "no value of delay can be used: 50 of 50 (100%) unreadable" in str(result.exception)
    assert "JFK" not in result.stdout


def test_unknown_labels_say_which_share_they_make_too_large():
    """They count as a public category; without `other`, that is the first one."""
    rows = [GOOD] * 30 + [GOOD | {"origin": "Oslo"}] * 10
    with pytest.warns(DataWarning) as warned:
        PLAN.simulate(rows, fedldp.source(1))
    said = "the share of 'EWR' is too large by 25%: add the category 'other'"
    assert said in str(warned[0].message)
    for origin in (
        ["EWR", "JFK", "other"],
        {"categories": ["EWR", "JFK"], "optional": True},
    ):
        plan = Plan(Schema.of(delay=(0, 120), origin=origin), 2.0)
        with pytest.warns(DataWarning) as warned:
            plan.simulate(rows, fedldp.source(1))
        assert "too large" not in str(warned[0].message)


def test_the_draft_of_a_schema_has_other():
    assert '"other"' in fedldp.schema.schema.template({"origin": ["EWR", "JFK"]})
