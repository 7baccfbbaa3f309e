"""A statistic that a fleet is asked again and again: vehicles answer in periods they have drawn."""

import contextlib
import json
import sqlite3
import tomllib
import tracemalloc
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from ledgers import open_ledger

import fedldp
from fedldp import Calendar, Category, Number, Plan, Schema
from fedldp.budget import policy, vehicles
from fedldp.budget.calendars import CalendarPeriod, is_calendar
from fedldp.budget.ledger import Period
from fedldp.budget.periods import is_period
from fedldp.cli.app import fedldp as command
from fedldp.errors import DomainError, FedLDPError, WireError
from fedldp.fleet import status
from fedldp.fleet.job import Job
from fedldp.fleet.protocol import Question
from fedldp.fleet.server.rounds import Rounds
from fedldp.fleet.signed_jobs import SignedJob
from fedldp.fleet.vault.vault import Vault
from fedldp.learn import Model

SPEED, MODEL = Number("speed", 0, 50), Category("model", ["A", "B", "C"], constant=True)
SCHEMA = Schema((SPEED, MODEL))
PLAN = Plan(Schema((SPEED,)), epsilon=0.5)
CALENDAR = Calendar(PLAN, periods=5, answers=2)
CARS = [f"car {i}" for i in range(40)]
MATRIX = np.column_stack([np.full(40, 30.0), np.arange(40) % 3])


@pytest.fixture
def opened(tmp_path):
    """Return a function that opens a vault of some cars on one ledger."""
    with contextlib.ExitStack() as stack:

        def open_vault(cap=1, matrix=MATRIX, seed=1, name="ledger", **options):
            book = stack.enter_context(open_ledger(tmp_path / name, cap, **options))
            found = Vault(SCHEMA, matrix, CARS[: len(matrix)], book)
            found._source = fedldp.source(seed)
            return found

        yield open_vault


def ask(number, job=None, calendar=CALENDAR, n=40):
    plan = CalendarPeriod(calendar, number).to_json()
    return Question(job=job or f"day-{number}", round=1, gateway="7", n=n, plan=plan)


def draws(vault):
    """Return what vehicles have drawn, as it stands in the ledger."""
    with contextlib.closing(sqlite3.connect(vault._ledger.path)) as file:
        rows = file.execute("SELECT key, calendar, periods FROM draws ORDER BY key, calendar")
        return rows.fetchall()


# What a vault answers.


def test_each_vehicle_answers_in_the_periods_that_it_has_drawn(opened):
    vault, answered = opened(), Counter()
    for number in range(1, 6):
        before = vault._ledger.totals()
        count = vault.answer(ask(number)).answered
        paid = [
            each for each, spent in vault._ledger.totals().items() if spent > before.get(each, 0)
        ]
        answered.update(paid)
        assert len(paid) == count
        assert vault.missing == f"of its 40 vehicles, {40 - count} have not drawn this period"
    assert answered == dict.fromkeys(CARS, 2)
    assert vault._ledger.totals() == dict.fromkeys(CARS, CALENDAR.epsilon)
    drawn = {key: set(map(int, periods.split())) for key, _, periods in draws(vault)}
    for line in vault._ledger.history():
        assert int(line.job.removeprefix("day-")) in drawn[line.vehicle_id]


def test_a_vault_that_is_started_again_keeps_what_was_drawn(opened):
    first = opened()
    answers = [first.answer(ask(number)).split() for number in (1, 2)]
    kept = draws(first)
    second = opened(seed=2)
    assert [second.answer(ask(number)).split() for number in (1, 2)] == answers
    for number in (3, 4, 5):
        second.answer(ask(number))
    assert draws(second) == kept
    assert second._ledger.totals() == dict.fromkeys(CARS, CALENDAR.epsilon)


def test_a_vault_that_dies_after_drawing_has_spent_nothing_and_keeps_what_was_drawn(opened):
    vault = opened()

    def killed(*_, **__):
        raise KeyboardInterrupt

    vault._ledger.release_many = killed
    with pytest.raises(KeyboardInterrupt):
        vault.answer(ask(1))
    kept = draws(vault)
    assert (len(kept), vault._ledger.totals()) == (40, {})
    again = opened(seed=2)
    drawn = sum("1" in periods.split() for _, _, periods in kept)
    assert again.answer(ask(1)).answered == drawn
    assert draws(again) == kept


def test_what_is_drawn_does_not_depend_on_the_data(opened):
    other = MATRIX.copy()
    other[:, 0] = np.nan
    vaults = opened(name="a"), opened(name="b", matrix=other)
    for number in range(1, 6):
        counts = {vault.answer(ask(number)).answered for vault in vaults}
        assert len(counts) == 1
    assert draws(vaults[0]) == draws(vaults[1])


def test_a_period_is_answered_once_whatever_the_job_is_called(opened):
    vault = opened(cap=10)
    first = vault.answer(ask(1))
    assert first.answered
    spent = vault._ledger.totals()
    with pytest.raises(DomainError, match="another question was asked under this request"):
        vault.answer(ask(1, job="day-1-again"))
    assert vault.answer(ask(1)).split() == first.split()  # the same question: the same answer
    assert vault._ledger.totals() == spent


def test_a_vehicle_that_cannot_afford_all_answers_draws_nothing(opened):
    vault = opened(cap=Fraction(99, 100))
    for number in range(1, 6):
        assert vault.answer(ask(number)).answered == 0
        assert vault.missing.endswith("40 have too little left for all answers of the calendar")
    assert draws(vault) == []
    assert opened(cap=1).answer(ask(1)).answered  # its owner has raised the cap


def test_vehicles_that_come_later_draw_from_all_periods(opened):
    few = opened(matrix=MATRIX[:10])
    few.answer(ask(1))
    kept = draws(few)
    many = opened()
    many.answer(ask(2))
    assert len(draws(many)) == 40
    assert set(kept) < set(draws(many))


def test_the_limit_of_a_period_applies_to_each_answer(opened, monkeypatch):
    """A day's answer is within it, although all answers together are not."""
    now = [1_000_000]
    monkeypatch.setattr(policy, "now", lambda: now[0])
    vault = opened(period=Period(Fraction(1, 2), 3600))
    for number in range(1, 6):
        vault.answer(ask(number))
        now[0] += 3601
    assert vault._ledger.totals() == dict.fromkeys(CARS, CALENDAR.epsilon)


def test_what_never_changes_is_repeated_in_the_periods_that_were_drawn(opened):
    calendar = Calendar(Plan(Schema((MODEL,)), epsilon=1.0), periods=3, answers=2)
    vault, sent = opened(), Counter()
    for number in (1, 2, 3):
        vault.answer(ask(number, calendar=calendar))
    for line in vault._ledger.history():
        sent[line.vehicle_id] += 1
    assert sent == dict.fromkeys(CARS, 2)
    assert vault._ledger.totals() == dict.fromkeys(CARS, calendar.plan.total_epsilon)
    with contextlib.closing(sqlite3.connect(vault._ledger.path)) as file:
        kinds = file.execute("SELECT COUNT(DISTINCT answer) FROM releases GROUP BY key").fetchall()
    assert kinds == [(1,)] * 40


# What a hostile server may not do.


def test_invented_calendars_do_not_fill_the_disk(opened, monkeypatch):
    monkeypatch.setattr(policy, "MOST_DRAWN", 6)
    monkeypatch.setattr(vehicles, "MOST_DRAWN", 6)
    vault = opened(cap=1000)
    for periods in range(5, 15):
        vault.answer(ask(1, f"job-{periods}", Calendar(PLAN, periods, answers=2)))
    assert Counter(key for key, _, _ in draws(vault)) == dict.fromkeys(CARS, 3)
    with pytest.raises(DomainError, match="at most 6 periods for a vehicle; the calendar has 7"):
        vault.answer(ask(1, "long", Calendar(PLAN, 9, answers=7)))


def test_at_no_cost_a_vehicle_draws_no_more_than_it_keeps(opened, monkeypatch):
    """Otherwise invented calendars would keep a vault busy for as long as somebody asks."""
    monkeypatch.setattr(policy, "MOST_DRAWN", 6)
    vault, drawn, draw = opened(cap=1000), [], Calendar.draw_many

    def counted(calendar, vehicles, source):
        drawn.append(vehicles)
        return draw(calendar, vehicles, source)

    monkeypatch.setattr(Calendar, "draw_many", counted)
    for periods in range(5, 15):
        vault.answer(ask(1, f"job-{periods}", Calendar(PLAN, periods, answers=2)))
    assert drawn == [40, 40, 40]


def test_long_calendars_take_little_memory(opened):
    """A few bytes make every vehicle draw thousands of periods: not all are in memory at once."""
    plan = Plan(Schema((MODEL,)), epsilon=0.5)  # repeated: it costs a vehicle 0.5 in all
    vault = opened()
    tracemalloc.start()
    for number in (1, 2):  # the periods are drawn, then read
        vault.answer(ask(number, calendar=Calendar(plan, periods=4096, answers=4095)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(draws(vault)) == 40
    assert peak < 40 * 4095 * 16  # an integer of Python, and a place in a tuple, take 36 bytes


def test_a_calendar_asks_for_no_model(opened):
    """A model is paid for each time, also where a plan says that its numbers never change."""
    vault = opened(cap=10)
    model = Model("squared", Schema((MODEL,)), SPEED, [0.0, 0.0, 0.0])
    gradient = Schema((Number("x", -1.0, 1.0, size=3, constant=True),))
    question = replace(ask(1, calendar=Calendar(Plan(gradient, 0.5), 5, 2)), model=model.to_json())
    with pytest.raises(DomainError, match="a calendar asks for rows; the question also has a mod"):
        vault.answer(question)
    assert draws(vault) == []


def changed(**entries):
    document = json.loads(CalendarPeriod(CALENDAR, 1).to_json())
    return fedldp.vehicle.canonical(document | entries)


@pytest.mark.parametrize(
    "plan",
    [
        changed(period=0),
        changed(period=6),
        changed(period=70_000),
        changed(period="1"),
        changed(period=True),
        changed(period=None),
        changed(calendar=None),
        changed(calendar={"plan": {}}),
        changed(calendar=json.loads(PLAN.to_json())),
        changed(more=1),
        changed(format="fedldp period 2"),
        CalendarPeriod(CALENDAR, 1).to_json().replace(":", ": "),
        CALENDAR.to_json(),
    ],
)
def test_what_is_no_period_is_refused(opened, plan):
    vault = opened()
    with pytest.raises(FedLDPError):
        vault.answer(Question("day-1", 1, "7", 40, plan))
    assert (draws(vault), vault._ledger.history()) == ([], [])
    assert len(vault._ledger.refused()) == 1


# A period as JSON.


def test_a_period_is_told_from_a_plan_and_a_calendar():
    texts = PLAN.to_json(), CALENDAR.to_json(), CalendarPeriod(CALENDAR, 3).to_json()
    assert [is_calendar(text) for text in texts] == [False, True, False]
    assert [is_period(text) for text in texts] == [False, False, True]
    sly = Schema.of(
        **{'"format":"fedldp period 1"': (0, 1), '"format":"fedldp calendar 1"': (0, 1)}
    )
    assert not is_period(text := Plan(sly, 1.0).to_json())
    assert not is_calendar(text)
    for number in (0, 6):
        with pytest.raises(DomainError, match="from 1 to 5"):
            CalendarPeriod(CALENDAR, number)
    with pytest.raises(WireError, match="period of a calendar"):
        CalendarPeriod.from_json(CALENDAR.to_json())


# Jobs.


def job(folder, number=1, **options):
    given = {"period": CalendarPeriod(CALENDAR, number), "reports": 40} | options
    return Job(f"day-{number}", PLAN, folder / f"{number}.db", folder / f"{number}.json", **given)


def test_a_job_is_read_with_its_period(tmp_path):
    (tmp_path / "calendar.json").write_text(CALENDAR.to_json())
    (tmp_path / "plan.json").write_text(PLAN.to_json())

    def load(plan, *lines):
        given = ['job = "day-3"', "reports = 40", 'checkpoint = "3.db"', 'result = "3.json"']
        (tmp_path / "job.toml").write_text("\n".join([*given, f'plan = "{plan}"', *lines]))
        return Job.load(tmp_path / "job.toml")

    found = load("calendar.json", "period = 3")
    assert found == job(tmp_path, 3)
    assert found.stages[0].name == "statistics, period 3 of 5"
    assert found.question("7", 1) == ask(3)
    assert found.settings != job(tmp_path, 3, period=CalendarPeriod(CALENDAR, 2)).settings
    for plan, lines, said in (
        ("calendar.json", [], "say in the job which period it asks"),
        ("calendar.json", ["period = 6"], "from 1 to 5"),
        ("plan.json", ["period = 1"], "period needs a calendar"),
    ):
        with pytest.raises(DomainError, match=said):
            load(plan, *lines)


def test_a_period_belongs_to_the_plan_of_a_statistic(tmp_path):
    other = CalendarPeriod(Calendar(Plan(PLAN.schema, 0.25), 5, 2), 1)
    with pytest.raises(DomainError, match="got another plan's"):
        job(tmp_path, period=other)


def test_an_operator_signs_one_period(tmp_path):
    signed = SignedJob.of(job(tmp_path, 2), fedldp.fleet.signing._now())
    assert signed.stage_of(ask(2))
    for question in (ask(1, job="day-2"), Question("day-2", 1, "7", 40, PLAN.to_json())):
        with pytest.raises(DomainError, match="not the one that the operator has signed"):
            signed.stage_of(question)


def test_the_tallies_of_all_periods_make_a_trend(opened, tmp_path):
    """From the server's questions to the slope, without the network in between."""
    tallies, vault = {}, opened(cap=10)
    for number in range(1, 6):
        vault._matrix[:, 0] = 10.0 + 5 * number
        with contextlib.closing(Rounds(each := job(tmp_path, number))) as rounds:
            rounds.ask(["7"])
            (question,) = rounds.questions().values()
            rounds.receive(question, vault.answer(question).to_bytes())
            rounds.step()
            rounds.finish()
        tallies[number] = PLAN.load_tally(each.result)
    assert sum(tally.reports for tally in tallies.values()) == 80
    low, high = CALENDAR.trend(tallies).slope["speed"].interval[0]
    assert low < 5 < high


# The command line.


def run(*words, status=0):
    done = CliRunner().invoke(command, ["fleet", *map(str, words)])
    assert done.exit_code == status, done.output
    return " ".join(done.output.split()) + (str(done.exception) if status else "")


@pytest.fixture
def fleet(tmp_path):
    (tmp_path / "rows.toml").write_text(Schema((SPEED,)).to_toml())
    options = ["--data", "rows.csv", "--schema", tmp_path / "rows.toml", "--vehicles", 9000]
    options += ["--task", "statistics", "--epsilon", 0.5, "--periods", 3, "--answers", 1]
    said = run("init", tmp_path / "fleet", *options, "--gateways", 1)
    assert "It asks period 1" in said
    return tmp_path / "fleet"


def finish(job):
    with contextlib.closing(Rounds(job)) as rounds:
        rounds._file.end("all rounds are done")


def test_a_fleet_with_a_calendar(fleet):
    found = Job.load(fleet / "server" / "job.toml")
    assert found.period == CalendarPeriod(Calendar(Plan(Schema((SPEED,)), 0.5), 3, 1), 1)
    assert (found.reports, found.expected) == (9000, 2865)  # 3000 less three deviations of 44.7
    assert tomllib.loads((fleet / "vault-1" / "vault.toml").read_text())["cap"] == "0.5"
    text = Path(fleet, "README.md").read_text()
    assert "in 3 periods" in text
    assert "fedldp trend server/calendar.json" in text
    assert "$" not in text
    [found] = status.read(fleet / "server")
    cost = {"job": "rows", "state": "not begun", "epsilon": "0.5", "answers": 0}
    assert found.document()["spent"] == [cost]


def test_the_next_job_asks_the_next_period(fleet):
    server = fleet / "server"
    finish(Job.load(server / "job.toml"))
    for name, options, number in (
        ("two", [], 2),
        ("again", ["--period", 1], 1),
        ("three", ["--period", 3], 3),
    ):
        said = run("job", fleet, name, *options)
        assert f"asks for period {number}, and plans for 2,865 reports" in said
        made = Job.load(server / f"{name}.toml", signed=False)
        assert made.period.number == number
        assert made.plan == Job.load(server / "job.toml").plan
        finish(made)
    assert "period 3 was the last of the calendar" in run("job", fleet, "four", status=1)
    assert "from 1 to 3" in run("job", fleet, "four", "--period", 4, status=1)
    assert "all periods of a calendar ask the same" in run(
        "job", fleet, "x", "--epsilon", 1, status=1
    )
    assert "give no other option" in run("job", fleet, "x", "--epsilon", 1, "--period", 1, status=2)
    run("job", fleet, "aside", "--task", "statistics")  # beside the calendar
    aside = Job.load(server / "aside.toml", signed=False)
    assert aside.period is None
    finish(aside)
    assert "does not follow a calendar" in run("job", fleet, "x", "--period", 1, status=1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--answers", 2], "--answers is about periods"),
        (["--periods", 3], "periods are for statistics"),
        (["--task", "statistics", "--periods", 3, "--answers", 4], "got 3 periods and 4 answers"),
        (
            ["--task", "statistics", "--periods", 3, "--cap", 11],
            "what a vehicle spends in all periods, 12",
        ),
    ],
)
def test_what_init_refuses(tmp_path, options, said):
    done = CliRunner().invoke(
        command, ["fleet", "init", str(tmp_path / "fleet"), *map(str, options)]
    )
    assert done.exit_code
    assert said in done.output + str(done.exception)
    assert not (tmp_path / "fleet").exists()
