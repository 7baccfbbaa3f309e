"""What the holder of vehicles guarantees, whatever it is asked: budgets, periods, constants."""

import contextlib
import dataclasses
import json
from collections import Counter
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from engine_cases import SERVER
from holders import answered, checked, held, in_round, period_of, statistic_of
from plans import HAND_MADE, canonical, changed, places

from fedldp import Calendar, Category, Number, Plan, Schema
from fedldp.budget import policy as limits
from fedldp.errors import BudgetError, DomainError, FedLDPError
from fedldp.learn.computations import asked_for
from fedldp_fleet import jobs
from fedldp_fleet.questions import Question
from fedldp_fleet.signed_jobs import sha256_text
from fedldp_vehicle.budget.ledger import Ledger as LedgerAlone
from fedldp_vehicle.errors import FedLDPError as ErrorAlone
from fedldp_vehicle.fleet.agent.one import OneVehicle as OneAlone
from fedldp_vehicle.fleet.questions import Question as QuestionAlone

BRAND, SPEED = Category("model", ["A", "B", "C"], constant=True), Number("speed", 0, 50)
SCHEMA = Schema((BRAND, SPEED))
BRANDS = Plan(Schema((BRAND,)), epsilon=1.0)
SPEEDS = Plan(Schema((SPEED,)), epsilon=1.0)
CARS = [f"car {i:02}" for i in range(20)]
MATRIX = np.column_stack([np.arange(20) % 3, np.full(20, 30.0)])


@pytest.fixture
def cars(tmp_path):
    """Return a function that opens the cars' holder, again and again on one ledger."""
    with contextlib.ExitStack() as stack:

        def make(cap=1, number=20, schema=SCHEMA, **options):
            found = held(
                tmp_path / "ledger.db", schema, MATRIX[:number], CARS[:number], cap, **options
            )
            stack.callback(found.ledger.close)
            return found

        yield make


# The cap, and one answer for each job


def test_the_cap_is_for_life_and_a_new_job_buys_nothing(cars):
    holder = cars(cap=2)
    found = [len(answered(holder, statistic_of(SPEEDS, f"job-{i}"))) for i in range(5)]
    assert found == [20, 20, 0, 0, 0]
    again = cars(cap=2)
    assert checked_able(again, statistic_of(SPEEDS, "job-9")) == 0
    assert again.ledger.totals() == dict.fromkeys(CARS, Fraction(2))


def checked_able(holder, job):
    return holder.able(checked(holder, job))


def test_a_vehicle_answers_a_job_once_over_all_rounds_and_restarts(cars):
    job = statistic_of(SPEEDS)
    before = cars(cap=9)
    first = answered(before, job, most=12)
    again = cars(cap=9)
    assert answered(again, job, most=12) == first  # the same question, the same bytes
    assert len(again.draw(in_round(checked(again, job), 2), 20)) == 8
    assert again.ledger.totals() == dict.fromkeys(CARS, Fraction(1))


def test_those_with_the_fewest_answers_come_first(cars):
    holder = cars(cap=9, answers_per_job=2)
    job = statistic_of(SPEEDS)
    for number in range(1, 5):
        holder.draw(in_round(checked(holder, job), number), 10)
        counts = set(holder.ledger.answers("spring").values())
        assert counts == {1} if number < 3 else counts <= {1, 2}
    assert set(holder.ledger.answers("spring").values()) == {2}


def test_another_question_in_the_same_round_is_refused(cars):
    holder = cars(cap=9)
    first = checked(holder, statistic_of(SPEEDS))
    holder.draw(first, 5)
    other = checked(holder, statistic_of(Plan(Schema((SPEED,)), epsilon=0.5)))
    with pytest.raises(FedLDPError, match="another question"):
        holder.draw(other, 5)
    assert sum(holder.ledger.totals().values()) == 5


# Plans, whoever has signed them


def tampered():
    """Yield plans whose tables leak more than they say, or that cost more than they claim."""
    for name, plan in HAND_MADE.items():
        yield f"{name}: epsilon", changed(plan, ("epsilon",), "0.3")
        for at, table in enumerate(plan["tables"]):
            path = "tables", at
            yield f"{name}: {path} epsilon", changed(plan, (*path, "epsilon"), "0.2")
            if table["kind"] == "numbers":
                first = [*table["counts"][0]]
                first[0], first[-1] = first[0] + first[-1], 0
                yield f"{name}: {path} zero", changed(plan, (*path, "counts", 0), first)
                yield f"{name}: {path} short", changed(plan, (*path, "counts", 0), first[:-1])
            elif table["kind"] == "response":
                yield f"{name}: {path} same", changed(plan, (*path, "same"), 62)
                yield f"{name}: {path} other", changed(plan, (*path, "other"), 0)
            else:
                yield f"{name}: {path} absent", changed(plan, (*path, "absent"), 0)
                yield f"{name}: {path} total", changed(plan, (*path, "total"), 64)


TAMPERED = dict(tampered())


def signed_question(plan, model=""):
    """Return a question with any plan, and a job that covers it as if it had been signed."""
    question = Question("spring", 1, plan, model)
    sound = jobs.to_sign(statistic_of(SPEEDS), SERVER.public)
    [stage] = sound.stages
    with contextlib.suppress(FedLDPError):
        asks = canonical(asked_for(Plan.from_json(plan).schema, model).declaration)
        stage = dataclasses.replace(stage, asks=asks)
    stage = dataclasses.replace(stage, plans=(sha256_text(question.plan),))
    return question, dataclasses.replace(sound, stages=(stage,)), stage


@pytest.fixture(scope="module")
def holders_of(tmp_path_factory):
    """Return a function that returns the holders of both distributions for one of the plans."""
    return lru_cache(lambda name: _holders(tmp_path_factory.mktemp("held"), name, 4))


def _holders(folder, name, cap):
    schema = Schema.from_document(HAND_MADE[name]["schema"])
    zeros = np.zeros((2, schema.dimensions))
    many = held(folder / "many.db", schema, zeros, ["car 1", "car 2"], cap)
    fresh = held(folder / "one.db", schema, zeros[:1], ["car 1"], cap)
    fresh.ledger.close()
    ledger = LedgerAlone(folder / "one.db", cap)
    return many, OneAlone(ledger, lambda: pytest.fail("the row was read"))


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered_tables_are_refused_even_if_the_operator_has_signed_them(holders_of, name):
    many, alone = holders_of(name.split(":")[0])
    question, job, stage = signed_question(canonical(TAMPERED[name]))
    with pytest.raises(FedLDPError):
        many.check(question, job, stage)
    theirs = QuestionAlone.from_bytes(question.to_bytes())
    with pytest.raises(ErrorAlone):
        alone.check(theirs, job, stage)
    assert many.ledger.totals() == alone._ledger.totals() == {}


@pytest.mark.parametrize("name", ["small split", "small cube"])
def test_whatever_entry_is_changed_no_more_is_spent_than_the_tables_allow(tmp_path, name):
    """A changed plan is refused, or it is a plan that is paid for in full."""
    plan = HAND_MADE[name]
    schema = Schema.from_document(plan["schema"])
    zeros = np.zeros((1, schema.dimensions))
    holder = held(tmp_path / "ledger.db", schema, zeros, ["car"], 1000, answers_per_job=1000)
    accepted = refused = 0
    for path in places(plan):
        for odd in (..., None, True, -1, 0, 1, 7, 0.5, 1e308, "", "0", "5", "64", [], [0], {}):
            text = canonical(changed(plan, path, odd))
            question = Question("spring", accepted + 1, text)
            before = holder.ledger.spent("car")
            try:
                _, job, stage = signed_question(text)
                holder.draw(holder.check(question, job, stage), 1)
            except FedLDPError:
                refused += 1
                assert holder.ledger.spent("car") == before
                continue
            accepted += 1
            read = Plan.from_json(text)
            assert holder.ledger.spent("car") - before == read.total_epsilon
            assert read.total_epsilon <= Fraction(json.loads(text)["epsilon"])
    assert 0 < accepted < refused
    holder.ledger.close()


# What never changes


def test_later_jobs_get_the_same_answers_to_constants_and_cost_nothing(cars):
    holder = cars()
    first = answered(holder, statistic_of(BRANDS))
    assert len(first) == 20
    for name in ("summer", "autumn"):
        assert answered(holder, statistic_of(BRANDS, name)) == first
    restarted = cars()
    assert answered(restarted, statistic_of(BRANDS, "winter")) == first
    assert restarted.ledger.totals() == dict.fromkeys(CARS, BRANDS.total_epsilon)
    assert answered(restarted, statistic_of(SPEEDS, "speeds")) == []  # nothing is left for it


def test_new_vehicles_pay_and_others_repeat(cars):
    first = Counter(answered(cars(number=12), statistic_of(BRANDS)))
    grown = cars()
    both = Counter(answered(grown, statistic_of(BRANDS, "summer")))
    assert first <= both
    assert (first.total(), both.total()) == (12, 20)
    assert grown.ledger.totals() == dict.fromkeys(CARS, BRANDS.total_epsilon)


def test_what_the_owner_has_not_declared_constant_is_not_answered(cars):
    holder = cars(schema=Schema((Category("model", ["A", "B", "C"]), SPEED)))
    with pytest.raises(DomainError, match="does not hold"):
        answered(holder, statistic_of(BRANDS))
    assert holder.ledger.totals() == {}


def test_vehicles_that_may_not_repeat_are_not_behind_an_answer(cars):
    """`fewest_vehicles` counts those that answer: with a lower cap, the first twelve do not."""
    holder = cars(cap=2, number=12)
    answered(holder, statistic_of(BRANDS))
    answered(holder, statistic_of(SPEEDS, "speeds"))
    lowered = cars(cap=1, policy={"fewest_vehicles": 10})
    assert lowered.able(checked(lowered, statistic_of(BRANDS, "summer"))) in (0, 20)
    with pytest.raises(DomainError, match="at least 10 vehicles to answer together; only 8"):
        answered(lowered, statistic_of(BRANDS, "summer"))


def test_asking_again_and_again_does_not_fill_the_disk(cars, monkeypatch):
    monkeypatch.setattr(limits, "MOST_REPEATED", 2)
    holder = cars()
    found = [len(answered(holder, statistic_of(BRANDS, f"job-{i}"))) for i in range(5)]
    assert found == [20, 20, 20, 0, 0]
    assert len(holder.ledger.history()) == 60


# Calendars


CALENDAR = Calendar(Plan(Schema((SPEED,)), epsilon=0.5), periods=5, answers=2)


def test_each_vehicle_answers_in_the_periods_that_it_has_drawn(cars):
    holder, found = cars(), Counter()
    for number in range(1, 6):
        before = holder.ledger.totals()
        records = answered(holder, period_of(CALENDAR, number))
        after = holder.ledger.totals()
        paid = [name for name, spent in after.items() if spent > before.get(name, 0)]
        assert len(paid) == len(records)
        found.update(paid)
    assert found == dict.fromkeys(CARS, 2)
    assert holder.ledger.totals() == dict.fromkeys(CARS, CALENDAR.epsilon)


def test_an_agent_that_is_started_again_keeps_what_was_drawn(cars):
    before = [answered(cars(), period_of(CALENDAR, number)) for number in (1, 2)]
    again = cars()
    assert [answered(again, period_of(CALENDAR, number)) for number in (1, 2)] == before
    for number in (3, 4, 5):
        answered(again, period_of(CALENDAR, number))
    assert again.ledger.totals() == dict.fromkeys(CARS, CALENDAR.epsilon)


def test_a_period_is_answered_once_whatever_the_job_is_called(cars):
    holder = cars()
    for number in range(1, 6):
        answered(holder, period_of(CALENDAR, number))
    for number in range(1, 6):
        with pytest.raises(DomainError, match="another question was asked under this request"):
            answered(holder, period_of(CALENDAR, number, f"again-{number}"))
    assert holder.ledger.totals() == dict.fromkeys(CARS, CALENDAR.epsilon)


def test_a_vehicle_that_cannot_afford_all_answers_of_a_calendar_draws_nothing(cars):
    holder = cars(cap="0.75")  # one answer of 0.5, and not two
    for number in range(1, 6):
        assert answered(holder, period_of(CALENDAR, number)) == []
    assert holder.ledger.totals() == {}


# What owners choose


def test_vehicles_answer_with_their_own_epsilon_alone(cars):
    half = Plan(Schema((SPEED,)), epsilon=0.5)
    holder = cars(cap=9, epsilons=["0.5"] * 12 + ["1"] * 8)
    assert len(answered(holder, statistic_of(SPEEDS, "one"))) == 8
    assert len(answered(holder, statistic_of(half, "half"))) == 12


def test_no_vehicle_spends_more_in_a_period_than_its_owner_allows(cars):
    holder = cars(cap=9, policy={"most_epsilon_per_period": "1.5", "period": "30 days"})
    found = [len(answered(holder, statistic_of(SPEEDS, f"job-{i}"))) for i in range(3)]
    assert found == [20, 0, 0]
    again = cars(cap=9, policy={"most_epsilon_per_period": "1.5", "period": "30 days"})
    assert answered(again, statistic_of(SPEEDS, "job-9")) == []


def test_if_fewer_could_answer_than_the_owner_wants_none_does(cars):
    holder = cars(policy={"fewest_vehicles": 15})
    with pytest.raises(DomainError, match="at least 15 vehicles"):
        answered(holder, statistic_of(SPEEDS), most=10)
    assert len(answered(holder, statistic_of(SPEEDS, "summer"), most=16)) == 16
    assert checked_able(holder, statistic_of(SPEEDS, "summer")) in (0, 16)


# A sealed ledger


def test_a_sealed_ledger_refuses_everybody(cars, tmp_path):
    cars().ledger.close()
    from fedldp.budget import ledger

    ledger.seal(tmp_path / "ledger.db")
    holder = cars()
    with pytest.raises(BudgetError):
        answered(holder, statistic_of(SPEEDS))
