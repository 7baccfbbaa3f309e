"""`fedldp plan` and `fedldp advise`: errors in the units of the attributes, and fleets needed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedldp import Plan, Schema
from fedldp.cli.app import fedldp
from fedldp.errors import DomainError, UnknownName
from fedldp.plan.advice import EPSILONS, advise

TOML = """
[speed]
low = 0
high = 130

[model]
categories = ["A", "B", "C"]

[temperature]
low = -40
high = 60
bins = 10
"""
SCHEMA = Schema.from_toml(TOML)


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "fleet.toml"
    path.write_text(TOML)
    return path


def run(*words, status=0):
    result = CliRunner().invoke(fedldp, [*map(str, words)], env={"COLUMNS": "90"})
    assert result.exit_code == status, result.output
    return result.output


def test_a_plan_shows_what_to_expect_of_each_attribute(schema):
    plan, options = Plan(SCHEMA, 2.0), ["--epsilon", 2, "--vehicles", 20_000]
    document = json.loads(run("plan", "--schema", schema, *options, "--json"))
    expected = plan.expect(20_000)
    assert [row["typical"] for row in document["expected"]] == [r.typical for r in expected.rows]
    text = run("plan", "--schema", schema, *options)
    row = next(line for line in text.splitlines() if "speed" in line and "mean" in line)
    assert f" {expected['speed'].typical:.2g} " in row
    assert "Half of a 95% interval, 20,000 reports" in text


def test_wishes_name_the_fleet_that_is_needed(schema):
    plan = Plan(SCHEMA, 2.0)
    words = ["plan", "--schema", schema, "--epsilon", 2, "--want", "speed=1"]
    text = run(*words, "--want", "temperature: mean=20")
    assert f"speed ± 1: you need {plan.vehicles_for(speed=1.0):,} reports" in text
    document = json.loads(run(*words, "--json"))
    assert document["vehicles_needed"] == {"speed": plan.vehicles_for(speed=1.0)}
    for wish in ("speed", "=1", "speed=fast"):
        assert "write NAME=ERROR" in run(*words, "--want", wish, status=2)


def test_errors_of_a_calendar_are_those_of_one_period(schema):
    words = ["plan", "--schema", schema, "--epsilon", 1, "--vehicles", 40_000, "--json"]
    document = json.loads(run(*words, "--periods", 10, "--answers", 5))
    expected = Plan(SCHEMA, 1.0).expect(20_000)
    assert document["expected"][0]["typical"] == expected["speed"].typical


def test_a_picture_of_errors(schema, tmp_path):
    path = tmp_path / "errors.svg"
    run("plan", "--schema", schema, "--epsilon", 2, "--mechanism", "duchi", "--plot", path)
    assert path.read_text("utf-8").count("<path") > 20
    result = CliRunner().invoke(
        fedldp, ["plan", "--schema", str(schema), "--epsilon", "2", "--plot", "errors.txt"]
    )
    assert isinstance(result.exception, DomainError)


def test_advice_is_the_smallest_epsilon_that_suffices():
    advice = advise(SCHEMA, 50_000)
    reached = {
        epsilon: all(
            Plan(SCHEMA, epsilon).expect(50_000)[name].typical <= goal
            for name, goal in advice.goals.items()
        )
        for epsilon in EPSILONS
    }
    assert advice.plan.epsilon == min(epsilon for epsilon, all_are in reached.items() if all_are)
    assert not advice.needed
    assert advice.smaller is not None
    assert advice.expected["speed"].typical < advice.smaller["speed"].typical
    assert advice.sentences[0].startswith(f"Take epsilon {advice.plan.epsilon:g}: the smallest")


def test_advice_names_what_cannot_be_learnt_and_the_fleet_it_takes():
    advice = advise(SCHEMA, 300, {"speed": 0.5, "temperature: mean": 0.1})
    assert advice.needed["speed"] == advice.plan.vehicles_for(speed=0.5)
    assert advice.needed["temperature: mean"] is None
    text = " ".join(advice.sentences)
    assert f"you would need {advice.needed['speed']:,} vehicles for ± 0.5; you have 300" in text
    assert "temperature: mean: ± 0.1 cannot be reached by more vehicles" in text
    with pytest.raises(UnknownName, match="did you mean 'speed'"):
        advise(SCHEMA, 300, {"sped": 0.5})


def test_advice_takes_another_strategy_where_it_has_less_error():
    advice = advise(Schema.vector(40, length=1.0), 20_000)
    assert advice.strategy == "directions"
    cube = advise(Schema.vector(2, bound=1.0), 300)
    usual = Plan(Schema.vector(2, bound=1.0), cube.plan.epsilon)
    assert cube.expected["x"].typical <= usual.expect(300)["x"].typical


def test_advice_on_the_command_line_ends_with_a_command_that_works(schema, tmp_path):
    text = run("advise", schema, "--vehicles", 50_000)
    command = text.splitlines()[-1]
    assert command.startswith("fedldp plan --schema ")
    words = command.split()[1:]
    words[words.index("plan.json")] = str(tmp_path / "plan.json")
    run(*words)
    document = json.loads(run("advise", schema, "--vehicles", 50_000, "--json"))
    made = Plan.from_json((tmp_path / "plan.json").read_text())
    assert made.epsilon == document["epsilon"]
    assert document["sentences"][0] in " ".join(text.split())
    assert "Channel" not in text


@pytest.mark.parametrize("epsilon", [0.0005, 17, 25, "nan"])
@pytest.mark.parametrize(
    "words",
    [
        "plan --schema fleet.toml",
        "collect rows.csv --schema fleet.toml",
        "collect rows.csv --schema fleet.toml --study --mechanism pm",
        "train --data flights --rows 1000 --task logistic",
        "train --data flights --rows 1000 --task logistic --forecast",
        "quantile rows.csv --schema fleet.toml --column speed",
        "audit pm",
        "compare --number",
        "compare --categories 8",
        "compare --vector 8",
        "compare --distribution 8",
    ],
)
def test_one_range_of_epsilon(schema, monkeypatch, words, epsilon):
    monkeypatch.chdir(schema.parent)
    Path("rows.csv").write_text("speed,model,temperature\n" + 400 * "50,A,3\n")
    result = CliRunner().invoke(fedldp, [*words.split(), "--epsilon", str(epsilon)])
    assert isinstance(result.exception, DomainError)
    assert str(result.exception).startswith("epsilon must be a number from 0.001 to 16; got ")


@pytest.mark.parametrize("epsilon", [0.0005, 25])
def test_mechanisms_may_be_studied_a_little_further(epsilon):
    assert "17" in run("mechanisms", "--epsilon", 17)
    result = CliRunner().invoke(fedldp, ["mechanisms", "--epsilon", str(epsilon)])
    assert "0.001 to 20 for study" in str(result.exception)
    assert "What a vehicle sends goes up to 16." in str(result.exception)
