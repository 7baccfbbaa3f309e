"""Attributes whose values never change: how they are declared, and what asking again costs."""

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from ledgers import open_ledger
from plans import RESPONSE, TWO, canonical, category, document, inputs, law, number, sample
from samples import ATTRIBUTE_SAMPLES

import fedldp
from fedldp import (
    Angle,
    BinnedNumber,
    Calendar,
    Category,
    Number,
    Plan,
    Schema,
    Within,
    vehicle,
)
from fedldp.budget.vehicle import Vehicle
from fedldp.errors import DomainError, WireError
from fedldp.plan.strategies import Directions, Sample

MODEL = Category("model", ["A", "B", "C"], constant=True)
YEAR = Number("year", 1990, 2030, constant=True)
KINDS = [
    *(
        replace(attribute, constant=True)
        for samples in ATTRIBUTE_SAMPLES.values()
        for attribute in samples
        if not isinstance(attribute, Within)
    ),
    BinnedNumber.of("load", 0, 9, bins=[0, 3, 9], optional=True, constant=True),
    Angle("door", period=12, bins=4, constant=True),
    Category("tires", ["summer", "winter"], optional=True, constant=True),
    Category.of_range("zone", 1, 5, constant=True),
    Within("year by model", YEAR, MODEL),
]


def plan_of(*attributes, epsilon=1.0):
    strategy = Directions() if attributes[0].inputs.length else Sample(mechanism="duchi")
    return Plan(Schema(attributes), epsilon, strategy)


@pytest.mark.parametrize("attribute", KINDS, ids=repr)
def test_every_kind_can_be_constant(attribute):
    assert attribute.constant is True
    schema = Schema((attribute,))
    assert Schema.from_toml(schema.to_toml()) == schema
    plan = plan_of(attribute)
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.constant is True
    small = vehicle.Plan(plan.to_json(), 1)
    assert small.constant is True
    assert "constant" in repr(attribute)
    assert json.loads(plan.to_json())["format"] == vehicle.PLAN_FORMAT_2


@pytest.mark.parametrize("attribute", KINDS[:-1], ids=repr)
def test_only_the_declaration_differs(attribute):
    """The coder, and so the answers, are those of an attribute that may change."""
    written = json.loads(plan_of(attribute).to_json())
    entry = written["schema"][0]
    assert entry.pop("constant") is True
    changing = Schema.from_document([entry])
    [other] = changing.attributes
    assert other != attribute
    assert "constant" not in repr(other)
    plain = plan_of(other)
    assert not plain.constant
    assert not vehicle.Plan(plain.to_json(), 1).constant
    written["format"] = json.loads(plain.to_json())["format"]
    assert canonical(written) == plain.to_json()


def test_a_plan_is_constant_if_all_of_it_is():
    speed = Number("speed", 0, 50)
    for others, constant in (((YEAR,), True), ((speed,), False), ((YEAR, speed), False)):
        plan = plan_of(MODEL, *others)
        assert plan.constant is vehicle.Plan(plan.to_json(), 1).constant is constant
    assert not Within("a", speed, MODEL).constant
    assert not Within("a", YEAR, Category("model", ["A", "B"])).constant


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('constant = "yes"', "constant of 'model' must be true or false; got 'yes'"),
        ("constant = 1", "must be true or false; got 1"),
    ],
)
def test_a_declaration_is_true_or_false(table, message):
    with pytest.raises(DomainError, match=message):
        Schema.from_toml(f'[model]\ncategories = ["A", "B"]\n{table}')
    entry = MODEL.declaration() | {"name": "model", "constant": False}
    with pytest.raises(WireError, match="does not describe an attribute"):
        Schema.from_document([entry])
    with pytest.raises(DomainError, match="constant of 'model' must be True or False; got 'yes'"):
        Schema((Category("model", ["A", "B"], constant="yes"),))
    assert not Schema.from_toml('[a]\ncategories = ["A", "B"]\nconstant = false')["a"].constant


def test_the_columns_of_one_attribute_say_it_themselves():
    attribute = Within("year by model", YEAR, MODEL)
    assert [*attribute.declaration()] == ["of", "groups"]
    with pytest.raises(DomainError, match="declare constant of each of them"):
        Schema.of(**{"year by model": attribute.options() | {"constant": True}})
    written = json.loads(plan_of(attribute).to_json())
    written["schema"][0]["constant"] = True
    for read in (Plan.from_json, lambda text: vehicle.Plan(text, 1)):
        with pytest.raises(ValueError, match="constant"):
            read(canonical(written))


# What it costs


TINY = {
    "a number": document("1.1", [number("x")], [TWO], sample(1, [0], [0])),
    "a category": document("1.8", [category("c")], [RESPONSE], sample(1, [0], [0])),
}


def constant(document):
    """Return a plan with the declaration that all of its values never change."""
    schema = [entry | {"constant": True} for entry in document["schema"]]
    return document | {"format": vehicle.PLAN_FORMAT_2, "schema": schema}


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize(("periods", "answers"), [(1, 1), (3, 2), (3, 3)])
def test_the_cost_is_that_of_one_report_even_if_the_values_do_change(name, periods, answers):
    """All that is seen in all periods, over all pairs of sequences of values, in fractions."""
    plan = Plan.from_json(canonical(constant(TINY[name])))
    written = json.loads(plan.to_json())
    laws = {value: law(written, value) for value in inputs(written)}
    sets = [*itertools.combinations(range(periods), answers)]

    def observed(values):
        found = {}
        for drawn in sets:
            for record, odds in laws[values[drawn[0]]].items():  # of the first answer
                seen = tuple(record if t in drawn else None for t in range(periods))
                found[seen] = found.get(seen, 0) + odds / len(sets)
        assert sum(found.values()) == 1
        return found

    everything = [observed(each) for each in itertools.product(laws, repeat=periods)]
    largest = max(
        one[seen] / other[seen]
        for one, other in itertools.permutations(everything, 2)
        for seen in one
    )
    calendar = Calendar(plan, periods, answers)
    assert calendar.epsilon == plan.total_epsilon
    assert largest <= vehicle.exp_below(calendar.epsilon)
    assert largest > vehicle.exp_below(calendar.epsilon) * Fraction(96, 100)  # no less holds


def test_a_vehicle_sends_the_same_bytes_in_all_its_periods(tmp_path):
    plan = plan_of(MODEL)
    calendar, models = Calendar(plan, periods=9, answers=5), iter("ABCABCABC")

    def row():
        return {"model": next(models)}

    with open_ledger(tmp_path / "ledger", plan.total_epsilon) as ledger:
        car = Vehicle(ledger, "car")
        answers = [car.answer_period(calendar, t, row) for t in range(1, 10)]
        sent = [answer and answer.report for answer in answers]
        assert [*models] == [*"BCABCABC"]  # one was read
        assert len([each for each in sent if each]) == 5
        assert len({each for each in sent if each}) == 1
        assert ledger.spent("car") == calendar.epsilon == plan.total_epsilon
        longer = Calendar(plan, periods=30, answers=30)  # nothing is left, and nothing is needed
        assert car.answer_period(longer, 1, row).report in sent
        other = Calendar(plan_of(Category("model", ["A", "B", "C"])), periods=9, answers=5)
        with pytest.raises(fedldp.errors.BudgetError):
            car.answer_period(other, 1, row)


def test_a_simulated_fleet_repeats_its_answers():
    plan = plan_of(MODEL)
    rows = [{"model": "ABC"[i % 3]} for i in range(300)]
    always = Calendar(plan, periods=3, answers=3).simulate([rows] * 3, fedldp.source(1))
    assert always[1].reports == 300
    for period in (2, 3):
        for one, other in zip(always[1].counts, always[period].counts, strict=True):
            assert np.array_equal(one, other)
    often = Calendar(plan, periods=3, answers=2).simulate([rows] * 3, fedldp.source(1))
    assert sum(tally.reports for tally in often.values()) == 600
    # Each vehicle is counted twice with the same answer: the sums of all counters are even.
    for counts in (often[1] + often[2] + often[3]).counts:
        assert not np.any(counts % 2)
    plain = Calendar(plan_of(Category("model", ["A", "B", "C"])), periods=3, answers=2)
    fresh = plain.simulate([rows] * 3, fedldp.source(1))
    assert any(np.any(counts % 2) for counts in (fresh[1] + fresh[2] + fresh[3]).counts)


def test_intervals_of_a_trend_of_repeated_answers_are_not_too_narrow():
    """The fleet does not change. Of 80 simulations, 95% intervals would miss 12 once in 1,500."""
    calendar = Calendar(plan_of(MODEL, epsilon=3.0), periods=4, answers=2)
    rows = [{"model": "AAB"[i % 3]} for i in range(300)]
    missed = np.zeros(2)
    for seed in range(80):
        trend = calendar.trend(calendar.simulate([rows] * 4, fedldp.source(seed)))
        for place, each in enumerate((trend.slope, trend.changes[2])):
            low, high = each["model"].interval[0]
            missed[place] += not low <= 0 <= high
    assert np.all(missed < 12)


# A second randomisation against tracking, which is not offered: docs/repeated.md has its cost.


def response(same, other, labels=3):
    """Return the law of randomised response as exact fractions: a row for each label."""
    total = same + (labels - 1) * other
    return [[Fraction(same if i == j else other, total) for j in range(labels)] for i in range(3)]


def reports(permanent, instant, count):
    """Return the law of all sequences of reports, for each value."""
    found = []
    for row in permanent:
        chances = {}
        for seen in itertools.product(range(3), repeat=count):
            kept = (p * math.prod(instant[b][y] for y in seen) for b, p in enumerate(row))
            chances[seen] = sum(kept)
        assert sum(chances.values()) == 1
        found.append(chances)
    return found


def largest(laws):
    return max(a[seen] / b[seen] for a, b in itertools.permutations(laws, 2) for seen in a)


def test_the_second_step_costs_no_more_than_the_first_in_a_lifetime():
    permanent, instant = response(8, 1), response(2, 1)
    ratios = [largest(reports(permanent, instant, count)) for count in range(1, 7)]
    assert ratios[0] == Fraction(18, 11)  # (8·2 + 1·1 + 1·1) / (8·1 + 1·2 + 1·1)
    assert all(less < more < 8 for less, more in itertools.pairwise(ratios))
    assert ratios[-1] > 6  # it soon gives hardly any protection beyond the first step
    assert ratios[1] < ratios[0] ** 2  # and less than the sum of its reports would


def test_estimates_invert_both_steps():
    """Of a fleet of two: mean and variance over all answers and reports, in exact fractions."""
    permanent, instant = response(8, 1), response(2, 1)
    both = [[sum(row[b] * instant[b][y] for b in range(3)) for y in range(3)] for row in permanent]
    same, other = both[0][0], both[0][1]
    assert all(both[i][j] == (same if i == j else other) for i in range(3) for j in range(3))
    for fleet in itertools.product(range(3), repeat=2):
        mean, square = Fraction(0), Fraction(0)
        for answers in itertools.product(range(3), repeat=2):
            for seen in itertools.product(range(3), repeat=2):
                chance = math.prod(
                    permanent[x][b] * instant[b][y]
                    for x, b, y in zip(fleet, answers, seen, strict=True)
                )
                estimate = (Fraction(seen.count(0), 2) - other) / (same - other)
                mean += chance * estimate
                square += chance * estimate**2
        truth = Fraction(fleet.count(0), 2)
        assert mean == truth
        spread = truth * same * (1 - same) + (1 - truth) * other * (1 - other)
        assert square - mean**2 == spread / 2 / (same - other) ** 2


def test_the_page_states_what_a_second_noise_costs():
    """Sequences with the same numbers of each report are equally likely, so counts suffice."""
    page = (Path(__file__).parent.parent / "docs/repeated.md").read_text("utf-8")
    alone = Fraction(1, 10) * Fraction(9, 10) / Fraction(7, 10) ** 2
    second, count, right = 2, 30, 0
    instant = response(second, 1)
    for a, b in itertools.product(range(count + 1), repeat=2):
        if a + b <= count:
            seen = (a, b, count - a - b)
            orders = math.factorial(count) // math.prod(map(math.factorial, seen))
            kept = (
                math.prod(instant[own][y] ** times for y, times in enumerate(seen))
                for own in range(3)
            )
            right += Fraction(orders * max(kept), 3)
    same = Fraction(8 * second + 2, 10 * (second + 2))
    other = (1 - same) / 2
    variance = float(other * (1 - other) / (same - other) ** 2 / alone)
    sentence = (
        f"the stored answer about three categories has odds 8 : 1 : 1, a second noise with odds "
        f"{second} : 1 : 1 multiplies the variance by {variance:.2g}, and {count} reports still "
        f"reveal the stored answer in {float(right):.0%} of the cases"
    )
    assert sentence in " ".join(page.split())
