"""The contract of expectations: every kind of attribute keeps what `Plan.expect` promises.

Fleets are simulated whose data have the law that is assumed. Half of each interval must be what was
expected, and the errors must be as large as the intervals say. A kind without samples in
tests/helpers/samples.py fails `test_no_kind_is_forgotten`.
"""

from itertools import pairwise

import numpy as np
import pytest
from samples import ATTRIBUTE_SAMPLES, MODEL, SPEED, TEMPERATURE

from fedldp import OptionalNumber, Plan, Schema, source
from fedldp.errors import DomainError, UnknownName
from fedldp.plan.expectation import _half_widths, _typical
from fedldp.plan.parts import Matrix
from fedldp.plan.strategies import Sample
from fedldp.schema.attributes import ATTRIBUTES

REPEATS = 60
VEHICLES = 6000

CASES = [attribute for several in ATTRIBUTE_SAMPLES.values() for attribute in several]
EACH_KIND = pytest.mark.parametrize("attribute", CASES, ids=lambda attribute: attribute.name)


def plan_of(attribute, epsilon=4.0, **options):
    if attribute.inputs.length is not None:
        options["strategy"] = "directions"
    return Plan(Schema((attribute,)), epsilon, **options)


def fleet(attribute, random, vehicles=VEHICLES):
    """Return values of vehicles whose law is the one that is assumed."""
    law = _typical(attribute, None)
    if attribute.inputs.numeric:
        rows = law[random.integers(len(law), size=vehicles)]
        if attribute.inputs.length is not None:
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)
        return attribute.estimand.from_unit(rows)
    return random.choice(law.size, size=vehicles, p=law)[:, None].astype(float)


def test_no_kind_is_forgotten():
    assert ATTRIBUTE_SAMPLES.keys() == ATTRIBUTES.keys()
    for kind, several in ATTRIBUTE_SAMPLES.items():
        assert all(type(attribute) is ATTRIBUTES[kind] for attribute in several)


@EACH_KIND
def test_intervals_are_as_long_as_expected(attribute):
    plan, random = plan_of(attribute), np.random.default_rng(1)
    asked = plan.schema.attributes[0]
    expected = plan.expect(VEHICLES)
    found = {}
    for number in range(REPEATS):
        tally = plan.simulate_batches([Matrix(fleet(asked, random))], source(number))
        for what, (half, _) in _half_widths(asked, tally.estimate()[asked.name]).items():
            found.setdefault(what, []).append(half)
    assert [row.what for row in expected.rows] == list(found)
    for row in expected.rows:
        # The ends of quantiles are edges of bins, and some results show the largest of several.
        several = row.what.startswith("each of") or "each group" in row.what
        tolerance = 0.5 if row.what.startswith("median") else 0.15 if several else 0.06
        assert np.mean(found[row.what]) == pytest.approx(row.typical, rel=tolerance), row
        assert row.worst >= row.typical
        assert row.answers == VEHICLES * plan.parts[0].share


@EACH_KIND
def test_errors_are_as_large_as_expected(attribute):
    """The root mean square error of unbiased numbers is half of an interval over 1.96."""
    plan, random = plan_of(attribute), np.random.default_rng(2)
    asked = plan.schema.attributes[0]
    first = plan.expect(VEHICLES).rows[0]
    values = [
        np.atleast_1d(
            plan.simulate_batches([Matrix(fleet(asked, random))], source(number))
            .estimate()[asked.name]
            .values
        )
        for number in range(REPEATS)
    ]
    lines = [asked.estimand.line(place)[1] for place in range(values[0].size)]
    alike = np.array([ends == lines[0] for ends in lines])
    if first.range == 0.5 and "each of" in first.what and len(asked.labels) > alike.size:
        alike[len(asked.labels) :] = False
    spread = np.std(np.array(values)[:, alike], axis=0, ddof=1)
    # Point estimates of some results are pulled into what is possible, which shortens errors.
    assert 0.7 * first.typical < 1.96 * np.mean(spread) < 1.2 * first.typical


@EACH_KIND
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_more_vehicles_are_never_worse(attribute, epsilon):
    plan = plan_of(attribute, epsilon)
    sizes = (1, 10, 1000, 100_000, 10_000_000)
    by_size = [plan.expect(n).rows[0] for n in sizes]
    typical = [row.typical for row in by_size]
    assert all(b <= a for a, b in pairwise(typical))
    assert typical[-1] < typical[2]


@EACH_KIND
def test_the_fleet_that_is_needed_is_the_least(attribute):
    plan = plan_of(attribute)
    name = attribute.name
    target = 0.7 * plan.expect(5000)[name].typical
    n = plan.vehicles_for({name: target})
    assert plan.expect(n)[name].typical <= target < plan.expect(int(0.985 * n) - 1)[name].typical


# Numbers and categories: exact


def test_the_mean_of_a_number_is_exact():
    plan = Plan(Schema((SPEED,)), 2.0, Sample(mechanism="hm-tp"))
    coder = plan.parts[0].coders[0]
    x = np.linspace(-1, 1, 401)
    for spread, data in ((None, x), (13.0, np.array([-0.2, 0.2]))):
        noise, square = coder.variance(data).mean(), np.mean(data**2)
        half = 1.96 * 65 * ((noise + square) / 50_000) ** 0.5
        given = {} if spread is None else {"speed": spread}
        assert plan.expect(50_000, spread=given)["speed"].typical == pytest.approx(half, rel=2e-3)
    worst = max(coder.variance(data) + data**2 for data in x)
    half = 1.96 * 65 * (worst / 50_000) ** 0.5
    assert plan.expect(50_000)["speed"].worst == pytest.approx(half, rel=2e-3)


def test_public_rows_take_the_place_of_the_assumption():
    schema = Schema((SPEED, MODEL))
    plan = Plan(schema, 2.0)
    rows = [{"speed": 60 + i, "model": "A"} for i in range(10)]
    near, even = plan.expect(10_000, rows), plan.expect(10_000)
    assert near["speed"].typical < even["speed"].typical
    assert near["model"].worst == even["model"].worst
    assert plan.vehicles_for(speed=2.0, data=rows) < plan.vehicles_for(speed=2.0)


def test_vehicles_are_divided_among_attributes():
    alone = Plan(Schema((SPEED,)), 1.0, Sample(k=1)).expect(20_000)["speed"]
    both = Plan(Schema((SPEED, MODEL)), 1.0, Sample(k=1)).expect(20_000)["speed"]
    assert both.answers == 10_000
    assert both.typical == pytest.approx(2**0.5 * alone.typical, rel=0.01)


def test_horvitz_thompson_counts_its_own_spread():
    schema = Schema((SPEED, MODEL))
    ratio, horvitz = Plan(schema, 1.0, Sample(k=1)), Plan.paper(schema, 1.0)
    assert horvitz.estimator != ratio.estimator
    expected = horvitz.expect(20_000)["speed"].typical
    random, errors = np.random.default_rng(3), []
    for number in range(80):
        matrix = np.column_stack([random.uniform(0, 130, 20_000), random.integers(3, size=20_000)])
        tally = horvitz.simulate_batches([Matrix(matrix)], source(number))
        errors.append(tally.estimate()["speed"].mean)
    assert 1.96 * np.std(errors) == pytest.approx(expected, rel=0.25)


# What users see, and what is refused


def test_an_expectation_is_a_mapping_and_a_frame():
    expected = Plan(Schema((TEMPERATURE, MODEL)), 2.0).expect(20_000)
    names = ["temperature", "temperature: median", "temperature: mean", "model"]
    assert list(expected) == names
    frame = expected.to_frame()
    assert frame["typical"].tolist() == [expected[name].typical for name in names]
    assert "<caption>Half of 95% intervals, 20,000 vehicles</caption>" in expected._repr_html_()
    with pytest.raises(UnknownName, match=r"no expected error 'modle' \(did you mean 'model'\?\)"):
        expected["modle"]


def test_targets_may_be_keywords_and_further_results():
    plan = Plan(Schema((OptionalNumber("range", 0, 500), MODEL)), 4.0)
    one = plan.vehicles_for({"range": 10.0})
    assert plan.vehicles_for(range=10.0) == one
    assert plan.vehicles_for({"range: share with range": 0.01}, model=0.01) > one


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda plan: plan.expect(0), "n must be at least 1, and at most"),
        (lambda plan: plan.expect(10, confidence=1.0), "confidence must lie between 0 and 1"),
        (lambda plan: plan.expect(10, []), "at least one row"),
        (lambda plan: plan.expect(10, spread={"sped": 1}), r"did you mean 'speed'"),
        (lambda plan: plan.expect(10, spread={"speed": 99}), r"deviation from 0 to 65; got 99"),
        (lambda plan: plan.expect(10, spread={"model": 1}), "asked for by labels"),
        (lambda plan: plan.vehicles_for(), "say what you want"),
        (lambda plan: plan.vehicles_for(speed=0), "must be a positive number; got 0"),
        (lambda plan: plan.vehicles_for(speed=1e-9), "more than 1,000,000,000,000 vehicles"),
        (lambda plan: plan.vehicles_for(sped=1), "did you mean 'speed'"),
    ],
)
def test_what_cannot_be_expected_is_refused(call, message):
    with pytest.raises(DomainError, match=message):
        call(Plan(Schema((SPEED, MODEL)), 2.0))
