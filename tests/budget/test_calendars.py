"""The same question in many periods: what it costs by enumeration, what is stored, and trends."""

import itertools
import json
import math
import signal
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from chances import Chance, Every
from ledger_victim import never, victim
from ledgers import open_ledger, tamper
from plans import (
    RESPONSE,
    TWO,
    canonical,
    category,
    document,
    inputs,
    law,
    number,
    sample,
)
from scipy.stats import binom

import fedldp
from fedldp import Calendar, Plan, Schema, vehicle
from fedldp.budget.ledger import seal
from fedldp.budget.vehicle import Vehicle
from fedldp.errors import BudgetError, DomainError, PrivacyError, WireError
from fedldp.plan.strategies import Sample

SPEED = Schema.of(speed=(0, 50))
PLAN = Plan(SPEED, 0.5, Sample(mechanism="duchi"))
CALENDAR = Calendar(PLAN, periods=7, answers=2)


# What it costs, from the text of a calendar alone


TINY = {
    "a number": document("1.1", [number("x")], [TWO], sample(1, [0], [0])),
    "a category": document("1.8", [category("c")], [RESPONSE], sample(1, [0], [0])),
}


def observed(calendar, values):
    """Return the probability of each observation: the reports of all periods, None if silent."""
    periods, answers = calendar["periods"], calendar["answers"]
    sets = [*itertools.combinations(range(periods), answers)]
    laws = [law(calendar["plan"], value) for value in values]
    found = {}
    for drawn in sets:
        for records in itertools.product(*(laws[t].items() for t in drawn)):
            seen = [None] * periods
            for t, (record, _) in zip(drawn, records, strict=True):
                seen[t] = record
            found[tuple(seen)] = Fraction(1, len(sets)) * math.prod(odds for _, odds in records)
    return found


def largest_ratio(one, other):
    assert one.keys() == other.keys()
    assert sum(one.values()) == sum(other.values()) == 1
    return max(one[seen] / other[seen] for seen in one)


@pytest.mark.parametrize(
    ("name", "periods", "answers"),
    [("a number", 4, 2), ("a number", 3, 3), ("a category", 3, 1), ("a category", 3, 2)],
)
def test_all_sequences_of_values_cost_the_answers_and_no_more(name, periods, answers):
    """All that is seen, over all sequences of values: the reports, and when there was none."""
    plan = Plan.from_json(canonical(TINY[name]))
    calendar = Calendar(plan, periods, answers)
    written = json.loads(calendar.to_json())
    sequences = [*itertools.product(list(inputs(written["plan"])), repeat=periods)]
    laws = [observed(written, values) for values in sequences]
    largest = Fraction(0)
    for one, other in itertools.permutations(range(len(sequences)), 2):
        # Where few values differ, few answers can show it: each costs the plan's epsilon.
        differ = sum(a != b for a, b in zip(sequences[one], sequences[other], strict=True))
        ratio = largest_ratio(laws[one], laws[other])
        assert ratio <= vehicle.exp_below(min(differ, answers) * plan.total_epsilon)
        largest = max(largest, ratio)
    assert calendar.epsilon == answers * plan.total_epsilon
    assert largest <= vehicle.exp_below(calendar.epsilon)
    # The hand-made tables use nearly all of what they claim: no smaller epsilon holds.
    assert largest > vehicle.exp_below(calendar.epsilon) * Fraction(96, 100)


@pytest.mark.parametrize(("periods", "answers"), [(1, 1), (5, 1), (5, 2), (6, 3), (4, 4)])
def test_every_set_of_periods_is_equally_likely(periods, answers):
    """All random choices are tried: this is exact."""
    calendar, chance, found = Calendar(PLAN, periods, answers), Chance(), Counter()
    for probability in chance.runs():
        drawn = calendar.draw(Every(chance, 0, 0))
        found[drawn] += probability()
    sets = [*itertools.combinations(range(1, periods + 1), answers)]
    assert found == dict.fromkeys(sets, Fraction(1, len(sets)))


def test_lifetime_epsilon_is_an_exact_fraction():
    third = Plan(SPEED, 0.1, Sample(mechanism="duchi"))
    assert Calendar(third, periods=30, answers=3).epsilon == 3 * third.total_epsilon
    assert isinstance(CALENDAR.epsilon, Fraction)
    always = Calendar(PLAN, periods=30, answers=30)
    assert always.epsilon == 30 * PLAN.total_epsilon
    assert always.draw(fedldp.source(1)) == tuple(range(1, 31))


# The file


def test_a_calendar_travels_with_its_plan():
    text = CALENDAR.to_json()
    again = Calendar.from_json(text)
    assert again == CALENDAR
    assert again.plan == PLAN
    assert again.fingerprint == CALENDAR.fingerprint
    assert len({CALENDAR.fingerprint, Calendar(PLAN, 7, 3).fingerprint, PLAN.fingerprint}) == 3
    with pytest.raises(ValueError, match="format"):
        vehicle.Plan(text, cap=9)  # a vehicle that knows no calendars does not answer every day


@pytest.mark.parametrize(
    "change",
    [
        {"answers": 0},
        {"answers": 8},
        {"answers": 2.0},
        {"answers": True},
        {"periods": "7"},
        {"periods": 1 << 17},
        {"plan": None},
        {"plan": []},
        {"epsilon": "0.1"},  # a smaller claim about the whole life
        {"format": "fedldp plan 1"},
    ],
    ids=str,
)
def test_an_invalid_calendar_is_refused(change):
    text = canonical(json.loads(CALENDAR.to_json()) | change)
    with pytest.raises(WireError, match="not a calendar"):
        Calendar.from_json(text)


def test_a_calendar_whose_plan_leaks_is_refused():
    written = json.loads(Calendar(Plan.from_json(canonical(TINY["a number"])), 3, 1).to_json())
    written["plan"]["tables"][0]["counts"] = [[7, 1], [1, 7]]
    with pytest.raises((PrivacyError, WireError)):
        Calendar.from_json(canonical(written))
    with pytest.raises(WireError, match="canonical"):
        Calendar.from_json(CALENDAR.to_json() + " ")


@pytest.mark.parametrize(("periods", "answers"), [(0, 0), (7, 0), (7, 8), (7, -1), (1 << 17, 1)])
def test_impossible_numbers_are_refused(periods, answers):
    with pytest.raises(DomainError, match=f"got {periods} periods and {answers} answers"):
        Calendar(PLAN, periods, answers)
    with pytest.raises(DomainError, match="must be a whole number"):
        Calendar(PLAN, periods, 1.5)
    with pytest.raises(DomainError, match="plan must be a Plan; got <Schema"):
        Calendar(SPEED, 7, 2)


# Vehicles


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


def test_a_vehicle_answers_in_its_periods_and_keeps_them(path):
    made = []

    def row():
        made.append({"speed": 7.0 * len(made)})
        return made[-1]

    first, second = {}, {}
    for found in (first, second):
        for period in range(1, 8):
            with open_ledger(path, cap=1) as ledger:  # it is started again in each period
                answer = Vehicle(ledger, "car").answer_period(CALENDAR, period, row)
                found[period] = answer and answer.report
    drawn = [period for period, report in first.items() if report]
    assert len(drawn) == len(made) == 2
    assert second == first  # the same bytes, however often they are asked for
    with open_ledger(path, cap=1) as ledger:
        assert ledger.spent("car") == CALENDAR.epsilon == 1
        assert ledger.periods("car", 1, CALENDAR.fingerprint, never) == tuple(drawn)
        assert [line.run for line in ledger.history()] == [f"period {t} of 7" for t in drawn]


def test_data_are_not_touched_before_the_periods_are_on_disk(path):
    """Who kills the vehicle in its first answer finds its periods, and no spending."""
    found = []

    def row():  # whoever kills the vehicle now leaves this behind
        with open_ledger(path, cap=1) as other:
            found.append(other.periods("car", 1, CALENDAR.fingerprint, never))
            found.append(other.spent("car"))
        return {}

    with open_ledger(path, cap=1) as ledger:
        car = Vehicle(ledger, "car")
        sent = [car.answer_period(CALENDAR, period, row) for period in range(1, 8)]
        drawn = tuple(period for period, answer in enumerate(sent, 1) if answer)
    assert found == [drawn, 0, drawn, Fraction(1, 2)]


def test_killed_at_any_statement_it_never_draws_twice(tmp_path):
    """What a vehicle said of its periods before a kill is what the ledger says after it."""
    deaths, said = victim("draw", tmp_path, 16)
    assert signal.SIGKILL in deaths
    assert 0 in deaths
    for place, lines in enumerate(said):
        with open_ledger(tmp_path / str(place), cap=9) as ledger:
            kept = ledger.periods("car", 1, "calendar", lambda: [99])
        assert lines in ([], [list(kept)])
        assert (kept == (99,)) <= (lines == [])


def test_several_processes_agree_on_the_periods(tmp_path):
    seen = victim("draw_at_once", tmp_path, 4, 10)
    assert all(each == seen[0] for each in seen)
    assert len(seen[0]) == 10


def test_a_vehicle_that_cannot_afford_all_answers_draws_nothing(path):
    with open_ledger(path, cap=0.9) as ledger:
        with pytest.raises(BudgetError, match=r"has spent 0 of its cap of 0\.9: 1 more is too"):
            Vehicle(ledger, "car").answer_period(CALENDAR, 1, never)
        assert ledger.periods("car", 0.5, CALENDAR.fingerprint, lambda: [1]) == (1,)  # a first draw


def test_the_cap_holds_for_each_answer_too(path):
    with open_ledger(path, cap=1) as ledger:
        first, second = ledger.periods("car", 1, CALENDAR.fingerprint, lambda: [2, 5])
        Vehicle(ledger, "car").answer_period(CALENDAR, first, {})
        ledger.release("car", 0.4, "something else", lambda: b"2")
        with pytest.raises(BudgetError, match=r"has spent 0\.9 of its cap of 1"):
            Vehicle(ledger, "car").answer_period(CALENDAR, second, never)


def test_a_sealed_ledger_draws_nothing(path):
    seal(path)
    with open_ledger(path, cap=9) as ledger, pytest.raises(BudgetError, match="refuses everybody"):
        Vehicle(ledger, "car").answer_period(CALENDAR, 1, never)


@pytest.mark.parametrize("period", [0, 8, -1, 1.0, "1", None])
def test_an_unknown_period_is_refused(path, period):
    with open_ledger(path, cap=9) as ledger:
        with pytest.raises(DomainError, match="period must be a whole number"):
            Vehicle(ledger, "car").answer_period(CALENDAR, period, never)
        assert ledger.periods("car", 1, CALENDAR.fingerprint, lambda: [5]) == (5,)


@pytest.mark.parametrize("drawn", [[], [0, 1], [1.5], ["1"]])
def test_a_ledger_stores_nothing_but_periods(path, drawn):
    with open_ledger(path, cap=9) as ledger:
        with pytest.raises(DomainError, match="whole number"):
            ledger.periods("car", 1, "calendar", lambda: drawn)
        assert ledger.periods("car", 1, "calendar", lambda: [2]) == (2,)


def test_damaged_periods_are_noticed(path):
    with open_ledger(path, cap=9) as ledger:
        ledger.periods("car", 1, "calendar", lambda: [2])
        tamper(ledger._file, "UPDATE draws SET periods = 'x'")
        with pytest.raises(WireError, match="it has periods of 'x'"):
            ledger.periods("car", 1, "calendar", never)


def test_many_vehicles_draw_once_and_keep_what_they_have_drawn(path):
    with open_ledger(path, cap=1) as ledger:
        drawn = ledger.in_period(["car", "bus"], 1, "calendar", 3, 2, lambda _: [[3, 7], [1, 12]])
        assert drawn == {"car": True, "bus": False}
        asked = []
        drawn = ledger.in_period(
            ["bus", "van", "car"], 1, "calendar", 7, 2, lambda n: asked.append(n) or [[2, 7]]
        )
        assert drawn == {"bus": False, "van": True, "car": True}
        assert asked == [1]
    with open_ledger(path, cap=1) as ledger:
        for period, who in ((1, ["bus"]), (2, ["van"]), (7, ["car", "van"]), (12, ["bus"])):
            found = ledger.in_period(["car", "bus", "van"], 1, "calendar", period, 2, never)
            assert sorted(each for each in found if found[each]) == who
        assert ledger.periods("bus", 1, "calendar", never) == (1, 12)


def test_many_vehicles_draw_as_many_periods_as_they_answer(path):
    with open_ledger(path, cap=1) as ledger:
        with pytest.raises(DomainError, match=r"draw must return 2 periods; got \(3,\)"):
            ledger.in_period(["car", "bus"], 1, "calendar", 3, 2, lambda _: [[1, 2], [3]])
        assert ledger.periods("car", 1, "calendar", lambda: [5]) == (5,)  # nothing was kept


# Simulation and trends


def test_each_vehicle_of_a_simulation_answers_as_often_as_it_should():
    rows = [np.full((500, 1), 30.0)] * 7
    tallies = CALENDAR.simulate(rows, fedldp.source(1))
    assert [*tallies] == [*range(1, 8)]
    assert sum(tally.reports for tally in tallies.values()) == 500 * 2
    with pytest.raises(DomainError, match="rows of 7 periods; got 6"):
        CALENDAR.simulate(rows[1:], fedldp.source(1))
    with pytest.raises(DomainError, match="rows of 7 periods; got 8"):
        CALENDAR.simulate([*rows, rows[0]], fedldp.source(1))
    with pytest.raises(
        DomainError, match=r"same vehicles: 500 in the first one; got 7 in period 2"
    ):
        CALENDAR.simulate([rows[0], rows[0][:7], *rows[2:]], fedldp.source(1))


def test_a_trend_is_a_weighted_sum_of_the_estimates_of_its_periods():
    """Against the definition of least squares; a period may be missing."""
    schema = Schema.of(speed=(0, 50), city=["Oslo", "Rome", "Lima"])
    calendar = Calendar(Plan(schema, 4.0, Sample(mechanism="duchi")), periods=4, answers=2)
    row = {"speed": 20, "city": "Rome"}
    tallies = calendar.simulate([[row] * 4000] * 4, fedldp.source(1))
    del tallies[3]
    trend, estimates = calendar.trend(tallies), {t: tallies[t].estimate() for t in tallies}
    assert [*trend.changes] == [2, 4]
    for name in schema:
        values = np.array([np.atleast_1d(each[name].values) for each in estimates.values()])
        np.testing.assert_allclose(
            trend.slope[name].values, np.polyfit([1, 2, 4], values, 1)[0], rtol=1e-9, atol=1e-12
        )
        np.testing.assert_allclose(trend.changes[4][name].values, values[2] - values[1])
        between = fedldp.compare_estimates(estimates[4], estimates[2])[name]
        found = trend.changes[4][name]
        assert found.labels == between.labels == estimates[2][name].labels
        np.testing.assert_allclose(found.stderr, between.stderr)
        np.testing.assert_allclose(found.interval, between.interval)
        # More numbers at once than in one difference: the intervals are wider.
        assert np.all(np.ptp(found.simultaneous, axis=1) > np.ptp(between.simultaneous, axis=1))
    assert trend.slope.reports == sum(each.reports for each in tallies.values())


@pytest.mark.parametrize(
    ("chosen", "message"),
    [([], "two periods; got 0"), ([1], "two periods; got 1"), ([1, 8], "from 1 to 7; got 8")],
)
def test_a_trend_needs_two_periods_of_its_plan(chosen, message):
    with pytest.raises(DomainError, match=message):
        CALENDAR.trend(dict.fromkeys(chosen, PLAN.tally()))
    other = Plan(SPEED, 1.0, Sample(mechanism="duchi")).tally()
    with pytest.raises(DomainError, match="calendar's own plan"):
        CALENDAR.trend({1: PLAN.tally(), 2: other})


def fleet(kind, vehicles, periods):
    """Return values in [-1, 1] of each vehicle in each period, which depend on each other."""
    rng = np.random.default_rng(5)
    drift = np.linspace(-0.2, 0.2, periods)
    if kind == "constant":
        values = np.repeat(rng.choice([-0.7, 0.7], (vehicles, 1)), periods, axis=1)
    elif kind == "two halves":  # neighbours are alike, as bad as can be for a slope
        side = rng.choice([-0.7, 0.7], (vehicles, 1))
        values = side * np.where(np.arange(periods) < periods / 2, -1, 1)
    else:  # as bad as can be for a change
        side = rng.choice([-0.7, 0.7], (vehicles, 1))
        values = side * (-1.0) ** np.arange(periods)
    return values + drift


def test_answering_in_few_periods_adds_no_error_however_values_depend_on_each_other():
    """Exactly, over all sets of periods: the variance of a weighted sum of a vehicle's values.

    It is at most what it would be if different vehicles answered in each period.
    """
    rng = np.random.default_rng(3)
    for periods, answers in ((5, 1), (5, 2), (6, 3), (4, 4)):
        sets = [*itertools.combinations(range(periods), answers)]
        share = Fraction(answers, periods)
        for values in ([1] * periods, *rng.integers(-9, 10, (20, periods)).tolist()):
            sums = [sum(values[t] for t in drawn) for drawn in sets]
            mean = Fraction(sum(sums), len(sets))
            variance = sum((each - mean) ** 2 for each in sums) / len(sets)
            both = share * Fraction(answers - 1, max(periods - 1, 1))
            squares, whole = sum(v * v for v in values), sum(values) ** 2
            assert variance == (share - both) * squares + (both - share**2) * whole
            assert variance <= share * squares


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["constant", "two halves", "alternating"])
def test_intervals_of_trends_cover_the_fleet_whatever_its_values_do(kind):
    """At epsilon 4 values spread more than noise, and half of all periods are answered.

    The truth is the fleet's own. With a coverage of 95% a single interval would miss more often
    than is allowed here with a probability of 1e-6 in each of the two lines (and of 1e-6 for all at
    once); the seed is fixed.
    """
    vehicles, periods, runs = 400, 6, 300
    calendar = Calendar(Plan(Schema.of(x=(-1, 1)), 4.0, Sample(mechanism="hm-tp")), periods, 3)
    values = fleet(kind, vehicles, periods)
    truth = values.mean(axis=0)
    slope, steps = np.polyfit(range(periods), truth, 1)[0], np.diff(truth)
    source = fedldp.source(11)
    missed_slope = missed_step = missed_any = 0
    for _ in range(runs):
        trend = calendar.trend(calendar.simulate(values.T[:, :, None], source))
        found = [trend.slope["x"], *(each["x"] for each in trend.changes.values())]
        missed_slope += _outside(found[0].interval, slope)
        missed_step += _outside(found[1].interval, steps[0])
        missed_any += any(
            _outside(a.simultaneous, b) for a, b in zip(found, [slope, *steps], strict=True)
        )
    most = binom.isf(1e-6, runs, 0.05)
    assert missed_slope <= most
    assert missed_step <= most
    assert missed_any <= most


def _outside(interval, truth):
    return not interval[0, 0] <= truth <= interval[0, 1]


# On the standard library alone


@pytest.mark.parametrize("plan", [PLAN, Plan(Schema.of(c=["a", "b"]), 1.0)], ids=["speed", "c"])
def test_a_small_vehicle_reads_a_calendar(plan):
    calendar = Calendar(plan, periods=7, answers=2)
    small = vehicle.Calendar(calendar.to_json(), cap=calendar.epsilon)
    assert (small.periods, small.answers, small.epsilon) == (7, 2, calendar.epsilon)
    assert small.fingerprint == calendar.fingerprint
    assert small.plan.fingerprint == plan.fingerprint
    drawn = small.draw()
    assert drawn == sorted(set(drawn))
    assert len(drawn) == 2
    assert set(drawn) <= set(range(1, 8))
    less = calendar.epsilon - Fraction(1, 1000)
    with pytest.raises(ValueError, match="refused: it costs"):
        vehicle.Calendar(calendar.to_json(), cap=less)


def test_a_small_vehicle_pays_once_for_what_never_changes():
    plan = Plan(Schema((fedldp.Number("year", 1990, 2030, constant=True),)), 1.0)
    text = Calendar(plan, 30, 30).to_json()
    with pytest.raises(ValueError, match="it costs 30"):  # on the server's word it is not cheaper
        vehicle.Calendar(text, cap=1)
    small = vehicle.Calendar(text, cap=1, repeats=True)
    assert small.epsilon == plan.total_epsilon
    assert small.plan.constant


@pytest.mark.parametrize(
    "change",
    [
        {"answers": 0},
        {"answers": 8},
        {"answers": 2.0},
        {"periods": True},
        {"periods": 1 << 17, "answers": 1},
        {"plan": {}},
        {"plan": "plan"},
        {"format": "fedldp calendar 2"},
        {"comment": ""},
    ],
    ids=str,
)
def test_a_small_vehicle_refuses_what_is_not_a_calendar(change):
    document = json.loads(CALENDAR.to_json())
    with pytest.raises(ValueError, match=r"^refused: "):
        vehicle.Calendar(canonical(document | change), cap=99)
    with pytest.raises(ValueError, match=r"^refused: it is not canonical"):
        vehicle.Calendar(json.dumps(document), cap=99)
    with pytest.raises(ValueError, match=r"^refused: "):
        vehicle.Calendar("[", cap=99)


def test_a_small_vehicle_draws_every_set_alike(monkeypatch):
    """All choices of its source, which is asked for nothing but numbers below 4 and below 5."""
    small = vehicle.Calendar(Calendar(PLAN, 5, 2).to_json(), cap=9)
    monkeypatch.setattr(vehicle, "below", lambda n, rng: rng[n])
    sets = Counter(
        tuple(small.draw({4: first, 5: second}))
        for first, second in itertools.product(range(4), range(5))
    )
    assert sets == dict.fromkeys(itertools.combinations(range(1, 6), 2), 2)
