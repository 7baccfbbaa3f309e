"""The command line over many periods: a plan with periods, daily reports, and a trend."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner
from ledgers import made

import fedldp
from fedldp import Calendar
from fedldp.budget.composition import Composition
from fedldp.cli.app import fedldp as command

SCHEMA = '[speed]\nlow = 0\nhigh = 50\n\n[city]\ncategories = ["Oslo", "Rome"]\n'


def run(*arguments, **options):
    return CliRunner().invoke(command, [*map(str, arguments)], **options)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made("ledger.db")
    Path("fleet.toml").write_text(SCHEMA)
    Path("row.json").write_text('{"speed": 30, "city": "Rome"}')
    options = ["--schema", "fleet.toml", "--epsilon", 0.5, "--mechanism", "duchi"]
    done = run("plan", *options, "--periods", 7, "--answers", 2, "-o", "calendar.json", "--json")
    assert done.exit_code == 0, done.output
    assert run("plan", *options, "-o", "plan.json").exit_code == 0
    return json.loads(done.output)


def test_a_plan_states_what_it_costs_over_all_periods(folder):
    assert (folder["epsilon"], folder["lifetime_epsilon"]) == (0.5, 1.0)
    assert (folder["periods"], folder["answers_of_a_vehicle"]) == (7, 2)
    assert folder["reports_of_a_period"] == round(100_000 * 2 / 7)
    plan = fedldp.Plan.from_json(Path("plan.json").read_text())
    calendar = Calendar.from_json(Path("calendar.json").read_text())
    assert calendar == Calendar(plan, 7, 2)
    expected = (plan.expected_error(folder["reports_of_a_period"]) / 3) ** 0.5
    assert folder["error_if_uniform"] == expected
    options = ["--schema", "fleet.toml", "--epsilon", 0.5]
    shown = run("plan", *options, "--periods", 7, "--answers", 7).output
    assert "epsilon of a vehicle over all periods" in shown
    assert "3.5" in shown
    assert "but for a probability of" not in shown
    assert "over all periods" not in run("plan", *options).output


@pytest.mark.usefixtures("folder")
def test_a_plan_of_many_answers_has_a_second_number():
    options = "--schema", "fleet.toml", "--epsilon", 0.1, "--periods", 365
    second = Composition.of({Fraction(1, 10): 365}).approximate()
    found = json.loads(run("plan", *options, "--json").stdout)
    assert found["lifetime_epsilon"] == 36.5
    assert (found["lifetime_approximate_epsilon"], found["lifetime_delta"]) == (second, 1e-6)
    shown = run("plan", *options, env={"COLUMNS": "120"}).output
    assert "the same, but for a probability of 1e-06" in shown


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["plan", "--schema", "fleet.toml", "--epsilon", 1, "--answers", 7], 2, "give --periods"),
        (["plan", "--schema", "fleet.toml", "--epsilon", 1, "--lifetime", 7], 2, "give --periods"),
        (
            ["plan", "--schema", "fleet.toml", "--epsilon", 1, "--periods", 7, "--lifetime", 6.9],
            1,
            "at most 6.9 over all periods; <Calendar: each vehicle answers in 7 of 7 periods, "
            "epsilon 1 each and 7 in all> costs 7. Take a smaller epsilon or fewer answers. "
            "Answers are repeated at no cost only if the schema declares all attributes constant; "
            "not declared so: speed, city.",
        ),
        (
            ["plan", "--schema", "fleet.toml", "--epsilon", 1, "--periods", 2, "--answers", 3],
            1,
            "got 2 periods and 3 answers",
        ),
        (["report", "calendar.json", "row.json"], 2, "give --period, from 1 to 7"),
        (["report", "calendar.json", "row.json", "--period", 8], 1, "from 1 to 7; got 8"),
        (["report", "calendar.json", "row.json", "--period", 1, "--job", "a"], 2, "leave out"),
        (["report", "plan.json", "row.json", "--period", 1], 2, "a plan without periods"),
        (["trend", "plan.json", "row.json"], 2, "a plan without periods"),
        (["trend", "calendar.json", "1=row.json", "1=row.json"], 1, "period 1 is given twice"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, status, message):
    if arguments[0] == "report":
        arguments = [*arguments, "--cap", 4, "--ledger", "ledger.db"]
    done = run(*arguments)
    text = done.output + str(done.exception or "")
    assert message in " ".join(text.split())
    assert done.exit_code == status


@pytest.mark.usefixtures("folder")
def test_a_vehicle_answers_in_as_many_periods_as_it_should():
    sent = []
    for period in range(1, 8):
        file = f"{period}.bin"
        options = ["--period", period, "--cap", 1, "--ledger", "ledger.db", "-o", file]
        done = run("report", "calendar.json", "row.json", *options)
        assert done.exit_code == 0, done.output
        assert Path(file).exists() != ("has not drawn" in done.stderr)
        sent += [period] * Path(file).exists()
    assert len(sent) == 2
    before = Path(f"{sent[0]}.bin").read_bytes()
    options = ["--period", sent[0], "--cap", 1, "--ledger", "ledger.db", "-o", "again.bin"]
    assert run("report", "calendar.json", "row.json", *options).exit_code == 0
    assert Path("again.bin").read_bytes() == before
    assert run("report", "calendar.json", "row.json", "--check").exit_code == 0
    assert run("tally", "calendar.json", *(f"{t}.bin" for t in sent), "-o", "t.json").exit_code == 0
    assert "from 2 vehicles" in run("estimate", "calendar.json", "t.json").output


@pytest.mark.usefixtures("folder")
def test_a_vehicle_with_too_small_a_cap_sends_nothing():
    options = ["--period", 1, "--cap", 0.75, "--ledger", "ledger.db"]
    done = run("report", "calendar.json", "row.json", *options)
    assert done.exit_code == 1
    assert "1 more is too much" in done.output + str(done.exception)


@pytest.mark.usefixtures("folder")
def test_a_trend_of_some_periods():
    calendar = Calendar.from_json(Path("calendar.json").read_text())
    rows = [[{"speed": 10 + t, "city": "Rome"}] * 700 for t in range(7)]
    tallies = calendar.simulate(rows, fedldp.source(1))
    for period in (1, 2, 5):
        tallies[period].save(f"{period}.json")
    files = "1.json", "2.json", "5=5.json"
    done = run("trend", "calendar.json", *files, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    titles = ["Slope per period", "Change from period 1 to 2", "Change from period 2 to 5"]
    assert [each["what"] for each in found["trend"]] == titles
    trend = calendar.trend({period: tallies[period] for period in (1, 2, 5)})
    slope = found["trend"][0]["estimates"]
    assert slope[0]["estimate"] == trend.slope["speed"].values[0]
    assert [each["interval"] for each in slope[1:]] == trend.slope["city"].interval.tolist()
    shown = run("trend", "calendar.json", *files).output
    assert all(title in shown for title in titles)


# What never changes


def test_a_constant_plan_costs_once_however_often_it_is_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made("ledger.db")
    Path("fleet.toml").write_text('[model]\ncategories = ["A", "B", "C"]\nconstant = true\n')
    options = ["--schema", "fleet.toml", "--epsilon", 0.5, "--periods", 30, "--lifetime"]
    done = run("plan", *options, 0.5, "-o", "calendar.json", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["lifetime_epsilon"] == 0.5
    assert json.loads(done.output)["answers_of_a_vehicle"] == 30
    refused = run("plan", *options, 0.4)
    assert refused.exit_code == 1
    message = str(refused.exception)
    assert "epsilon 0.5 in all: it repeats its answer> costs 0.5. Take a smaller eps" in message
    plan = Calendar.from_json(Path("calendar.json").read_text()).plan
    Path("plan.json").write_text(plan.to_json())
    book = ["--cap", 0.5, "--ledger", "ledger.db"]
    sent = []
    for n, options in enumerate((["--period", 3], ["--period", 9], ["--period", 9])):
        done = run("report", "calendar.json", "-", *book, *options, input='{"model": "B"}')
        assert ("repeats its report" in done.stderr) == (n > 0)
        sent.append(done.stdout_bytes)
    for options in ([], ["--round", "a"], ["--job", "spring"], ["--job", "autumn", "--round", "b"]):
        done = run("report", "plan.json", "-", *book, *options, input='{"model": "C"}')
        assert "repeats its report" in done.stderr
        sent.append(done.stdout_bytes)
    assert len(sent[0]) > 16
    assert sent == sent[:1] * 7
    with fedldp.Ledger("ledger.db", 0.5) as ledger:
        assert ledger.spent("vehicle") == plan.total_epsilon
        assert ledger.answers("autumn") == {"vehicle": 1}


def test_a_plan_says_what_is_declared_constant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made("ledger.db")
    model = '[model]\ncategories = ["A", "B"]\nconstant = true\n'
    for text, said in (
        (model, "all: asked again, a vehicle repeats its answer at no cost"),
        (model + SCHEMA, "model: only in a plan of their own are answers repeated"),
        (SCHEMA, ""),
    ):
        Path("fleet.toml").write_text(text)
        done = run("plan", "--schema", "fleet.toml", "--epsilon", 1, env={"COLUMNS": "120"})
        assert ("declared constant" in done.output) == bool(said)
        assert said in done.output
        shown = run("plan", "--schema", "fleet.toml", "--epsilon", 1, "--json")
        assert json.loads(shown.output)["constant"] == said.startswith("all")
