"""Gradient reports are exactly private: their law from the text of a plan, in fractions."""

import itertools
import json
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from chances import Chance, Every
from fleets import NAMES, STRATEGIES, gradient, plan_for
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import THREE, TWO, canonical, coordinates, cube, document, inputs, law, number, sample
from scipy import stats
from spellings import nested

import fedldp
from fedldp import Plan, Schema, vehicle
from fedldp.learn.examples import Arrays, VehicleRows
from fedldp.learn.objectives import objective
from fedldp.learn.privacy import Privacy
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Linear
from fedldp.plan.strategies import Sample


def rounded(table, x):
    """Return the letters, or signs, that a number in [-1, 1] is rounded to, and their odds."""
    letters = [-1.0, 1.0] if table is None else table["letters"]
    above = max(1, next(i for i, each in enumerate(letters) if each >= x))
    low, high, x = (Fraction(each) for each in (letters[above - 1], letters[above], x))
    share = (x - low) / (high - low)
    return [(own, odds) for own, odds in ((above - 1, 1 - share), (above, share)) if odds]


def law_of(plan, own):
    """Return the probability of each record for a vehicle's gradient, by the text of a plan."""
    (part,), bound = plan["parts"], plan["schema"][0]["high"]
    unit = [min(max(float(each) / bound, -1.0), 1.0) for each in own]
    total = Counter()
    places = [rounded(*each) for each in zip(coordinates(plan, part), unit, strict=True)]
    for corner in itertools.product(*places):
        share = math.prod(odds for _, odds in corner)
        for record, odds in law(plan, [[letter for letter, _ in corner]]).items():
            total[record] += share * odds
    return dict(total)


def largest_ratio(first, second):
    assert first.keys() == second.keys()
    assert sum(first.values()) == sum(second.values()) == 1
    return max(max(first[each] / second[each], second[each] / first[each]) for each in first)


# Two arbitrary vehicles

FEATURES = st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3)
VEHICLES = st.tuples(FEATURES, st.sampled_from([-1.0, 1.0]))
PLANS = {
    (name, epsilon): plan_for(3, name, epsilon) for name in STRATEGIES for epsilon in (0.4, 5.3)
}


@given(
    st.sampled_from(sorted(PLANS)),
    st.sampled_from(NAMES),
    st.lists(st.floats(-9.0, 9.0), min_size=3, max_size=3),
    VEHICLES,
    VEHICLES,
)
@settings(max_examples=60)
def test_any_two_vehicles_under_any_model(key, name, weights, one, other):
    """Rows, labels, weights are whatever they like: the odds of every report are within e^eps."""
    plan = PLANS[key]
    limit = vehicle.exp_below(plan.total_epsilon)
    assert limit <= vehicle.exp_below(Fraction(str(key[1])))
    text = json.loads(plan.to_json())
    laws = [law_of(text, gradient(name, weights, x, y)) for x, y in (one, other)]
    assert largest_ratio(*laws) <= Privacy.of(plan, 1).ratio <= limit


@pytest.mark.parametrize("key", sorted(PLANS))
def test_the_ratio_is_attained_and_never_exceeded(key):
    """By vehicles at the corners, which can be: features of 1 and -1 at a steep slope."""
    plan = PLANS[key]
    text = json.loads(plan.to_json())
    laws = [law(text, given) for given in inputs(text)]
    odds = [[each[record] for each in laws] for record in laws[0]]
    ratio = max(max(each) / min(each) for each in odds)
    privacy = Privacy.of(plan, reports=7)
    limit = vehicle.exp_below(plan.total_epsilon)
    assert limit * (1 - Fraction(1, 10**9)) < ratio == privacy.ratio <= limit
    assert privacy.epsilon == plan.total_epsilon
    corners = [
        gradient("squared", [0.0] * 3, [a, b, 1.0], y)
        for a, b, y in itertools.product((-1.0, 1.0), (-1.0, 1.0), (-1.0, 1.0))
    ]
    found = [law_of(text, each) for each in corners]
    assert max(largest_ratio(*pair) for pair in itertools.combinations(found, 2)) == ratio


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_the_default_mechanism_too(epsilon):
    """With all its letters: of two coordinates, one is answered."""
    plan = Settings(epsilon, Sample(k=1)).plan(2)
    text = json.loads(plan.to_json())
    assert text["parts"][0]["k"] == 1
    (table,) = text["tables"]
    letters = range(len(table["letters"]))
    laws = [law(text, [[letter, letter]]) for letter in letters]
    odds = zip(*(each.values() for each in laws), strict=True)
    ratio = max(max(each) / min(each) for each in odds)
    limit = vehicle.exp_below(Fraction(str(epsilon)))
    assert limit * (1 - Fraction(1, 10**6)) < ratio == Privacy.of(plan, 1).ratio <= limit


# It is the law that is drawn

TINY = {
    "one of two": document("1.61", [number("x", 2)], [THREE], sample(1, [0], [0])),
    "one of four": document("1.1", [number("x", 4)], [TWO], sample(1, [0], [0])),
    "two of three": document("3.22", [number("x", 3)], [THREE], sample(2, [0], [0])),
    "both": document("2.2", [number("x", 2)], [TWO], sample(2, [0], [0])),
    "cube": document("1.61", [number("x", 2)], [], cube([0], "1.61", 0, heavy=5, light=1)),
    "cube of three": document("1.1", [number("x", 3)], [], cube([0], "1.1", 0, heavy=3, light=1)),
}
BITS = {"one of two": 3, "one of four": 2, "two of three": 3, "both": 2, "cube": 3}
BITS["cube of three"] = 4


def tiny_fleet(d, halves):
    """Return vehicles and a model with gradients at letters, beyond them and, some, half-way."""
    slopes = (-2.0, -1.0, 0.0, 1.0, 2.0, *((-0.5, 0.5) if halves else ()))
    x = np.array([*itertools.product((-1.0, 0.0, 1.0) if d == 2 else (-1.0, 1.0), repeat=d - 1)])
    x = np.column_stack([x, np.ones(len(x))])
    weights = np.linspace(0.25, -0.5, d)[None] * 8 // 1 / 8  # so that sums are exact
    features = np.repeat(x, len(slopes), axis=0)
    targets = features @ weights[0] - np.tile(slopes, len(x))
    return weights, features, targets


@pytest.mark.parametrize(
    ("name", "owned"), [*((name, False) for name in TINY), ("one of two", True), ("cube", True)]
)
def test_every_course_of_chance(name, owned):
    """All random words, for all vehicles at once: what is sent has exactly the law."""
    text = TINY[name]
    plan, d = Plan.from_json(canonical(text)), text["schema"][0]["size"]
    weights, x, y = tiny_fleet(d, halves=text["tables"] == [THREE])
    grouped, n = None, len(x)
    if owned:  # the same rows twice, far apart: their mean is the gradient of each
        grouped, x, y = VehicleRows(np.tile(np.arange(n), 2)), np.tile(x, (2, 1)), np.tile(y, 2)
    task = Linear(objective("squared"), Arrays(x, y), grouped)
    gradients = [gradient("squared", weights[0], x[i], y[i]) for i in range(n)]
    known = {own: law_of(text, own) for own in map(tuple, gradients)}
    assert len(known) > 2**d
    chance, found = Chance(), [Counter() for _ in range(n)]
    for odds in chance.runs():
        batch = task.gradients(weights, np.arange(n))
        data = plan.report_batches([batch], Every(chance, BITS[name], 1)).to_bytes()
        bits = "".join(f"{octet:08b}" for octet in data[16:])
        share = odds()
        for i, seen in enumerate(found):
            seen[bits[i * plan.bits : (i + 1) * plan.bits]] += share
    assert [dict(seen) for seen in found] == [known[tuple(own)] for own in gradients]
    limit = vehicle.exp_below(plan.total_epsilon)
    first = known[tuple(gradients[0])]
    assert all(largest_ratio(first, each) <= limit for each in known.values())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", STRATEGIES)
def test_reports_of_a_fleet_follow_the_law(name, dtype):
    """Chi-square of 20,000 records of alike vehicles; by chance in 8 of 10^6 runs, all together."""
    plan, n = plan_for(3, name, epsilon=2.0, bound=0.8), 20_000
    x, y, weights = [0.3, -0.9, 1.0], 1.0, [0.7, 0.2, -0.4]
    rows = Arrays(np.tile(np.array(x, dtype), (n, 1)), np.full(n, y))
    batch = Linear(objective("logistic"), rows).gradients(np.array([weights]), slice(0, n))
    data = plan.report_batches([batch], fedldp.source(3)).to_bytes()
    bits = "".join(f"{octet:08b}" for octet in data[16:])
    seen = Counter(bits[i * plan.bits : (i + 1) * plan.bits] for i in range(n))
    wanted = law_of(json.loads(plan.to_json()), gradient("logistic", weights, x, y))
    assert seen.keys() <= wanted.keys()
    expected = [float(odds) * n for odds in wanted.values()]
    assert min(expected) > 5
    assert stats.chisquare([seen[each] for each in wanted], expected).pvalue > 1e-6


# What all of a training costs


@given(st.sampled_from(sorted(PLANS)), st.integers(1, 9), st.integers(0, 10**7))
def test_a_training_costs_and_takes(key, participations, reports):
    plan = PLANS[key]
    privacy = Privacy.of(plan, reports, participations)
    once = Privacy.of(plan, 1)
    assert privacy.epsilon == participations * plan.total_epsilon
    assert privacy.ratio == once.ratio**participations
    assert privacy.ratio <= vehicle.exp_below(plan.total_epsilon) ** participations
    assert (privacy.participations, privacy.reports) == (participations, reports)
    assert (privacy.bits, privacy.bytes) == (plan.bits, -(-plan.bits * reports // 8))


def test_for_study_nothing_is_sent_and_nothing_proved():
    privacy = Privacy.of(
        Plan(Schema.vector(3, 1.0), 1.0, Sample(mechanism="laplace", study=True)), 5, 2
    )
    assert (privacy.epsilon, privacy.ratio, privacy.bits, privacy.bytes) == (2, None, 0, 0)


AWKWARD = (5.0, 5 / 3, 0.1, 0.3, 1 / 3, 0.7, 1.1, 2.0, math.e, math.pi, 4.35, 9.95, 16.0)


@given(
    st.one_of(st.sampled_from(AWKWARD), st.floats(0.5, 16.0)),
    st.one_of(st.just(3), st.integers(1, 50)),
    st.sampled_from(sorted(STRATEGIES)),
)
def test_all_participations_together_stay_within_epsilon(epsilon, participations, name):
    """Exactly, and with next to nothing left over."""
    options = {"mechanism": "duchi", "participations": participations} | STRATEGIES[name]
    plan = Settings(epsilon, **nested(options)).plan(2)
    whole = Fraction(str(epsilon))
    spent = Privacy.of(plan, 1, participations)
    assert whole * (1 - Fraction(1, 10**13)) < spent.epsilon <= whole
    assert spent.ratio <= vehicle.exp_below(spent.epsilon / participations) ** participations
    assert spent.epsilon == plan.total_epsilon * participations
    vehicle.Plan(plan.to_json(), whole / participations)  # a vehicle with such a cap agrees
