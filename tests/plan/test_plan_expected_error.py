"""The error that a plan promises, against simulated fleets and against a hand-made worst case."""

import itertools
import math

import numpy as np
import pytest
from plans import CATEGORIES, MIXED, NUMBERS, STRATEGIES, plan_of

import fedldp
from fedldp import Plan, Schema
from fedldp.errors import DataWarning, DomainError
from fedldp.mechanisms import HMTP
from fedldp.plan.parts import Matrix
from fedldp.plan.strategies import Sample

ESTIMATORS = ("ratio", "horvitz-thompson")
TARGETS = ("population", "fleet")
SCHEMA = Schema.of(
    age=(0, 100), city=["Oslo", "Rome", "Lima"], way={"low": -1, "high": 3, "size": 2}
)
VEHICLES, FLEETS = 1200, 120


def uniform(n, rng):
    columns = [rng.uniform(0, 100, n), rng.integers(0, 3, n), *rng.uniform(-1, 3, (2, n))]
    return np.stack(columns, axis=1)


def skewed(n, rng):
    """Most ages are at one end and some beyond it, most cities the same; the numbers depend."""
    age = np.where(rng.random(n) < 0.8, 97.0 + 5 * rng.random(n), 20.0)
    city = rng.choice(3, n, p=[0.9, 0.08, 0.02])
    return np.stack([age, city, 2.8 - 3 * (age < 50), rng.choice([-1.0, 3.0], n)], axis=1)


def truth(matrix):
    """Return means on the scale of [-1, 1], and frequencies."""
    numbers = (matrix[:, [0, 2, 3]] - [50, 1, 1]) / [50, 2, 2]
    cities = np.bincount(matrix[:, 1].astype(int), minlength=3) / len(matrix)
    return np.concatenate([np.clip(numbers, -1, 1).mean(axis=0), cities])


def found(tally, estimator):
    estimate = tally.estimate(estimator)
    age, way = (estimate["age"].mean - 50) / 50, (estimate["way"].mean - 1) / 2
    return np.array([age, *way, *estimate["city"].frequencies])


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("draw", [uniform, skewed])
def test_simulated_fleets_have_the_promised_error(name, draw):
    """Within 5 standard errors of the mean over 120 fleets: by chance in 3 of 10^5 runs of all."""
    plan, rng = (
        plan_of(SCHEMA, 8.0, name, "hm-tp", outputs=None if name == "cube" else 31),
        np.random.default_rng(11),
    )
    # A fleet is drawn from a finite population, whose mean is known.
    population = draw(20_000 if draw is uniform else 2000, rng)
    labels = SCHEMA["city"].categories
    rows = {"age": population[:, 0], "way": population[:, 2:]}
    rows["city"] = [labels[code] for code in population[:, 1].astype(int)]
    source, squares = fedldp.source(3), {key: [] for key in itertools.product(ESTIMATORS, TARGETS)}
    for _ in range(FLEETS):
        fleet = population[rng.integers(0, len(population), VEHICLES)]
        tally = plan.simulate_batches([Matrix(fleet)], source)
        for estimator in ESTIMATORS:
            means = found(tally, estimator)
            for of, wanted in zip(TARGETS, (truth(population), truth(fleet)), strict=True):
                squares[estimator, of].append(np.sum((means - wanted) ** 2))
    for (estimator, of), seen in squares.items():
        if draw is uniform:
            promised = plan.expected_error(VEHICLES, estimator=estimator, of=of)
        else:
            with pytest.warns(DataWarning, match="age: .* clipped"):
                promised = plan.expected_error(VEHICLES, rows, estimator=estimator, of=of)
        spread = np.std(seen, ddof=1) / math.sqrt(FLEETS)
        assert abs(np.mean(seen) - promised) < 5 * spread
        assert spread < 0.1 * promised


def test_the_four_errors_are_distinguished():
    """So that the test above can fail: they differ by more than its tolerance of about 25%."""
    plan = plan_of(SCHEMA, 8.0, "sample", "hm-tp", outputs=31)
    rows = [{"age": 100, "city": SCHEMA["city"].missing, "way": [3, 3]}]
    error = {
        key: plan.expected_error(1, rows, estimator=key[0], of=key[1])
        for key in itertools.product(ESTIMATORS, TARGETS)
    }
    assert error["horvitz-thompson", "population"] > 1.5 * error["ratio", "population"]
    split = plan_of(SCHEMA, 8.0, "split", "hm-tp", outputs=31)
    assert split.expected_error(1) > 1.25 * split.expected_error(1, of="fleet")


# By hand


def test_by_hand_for_one_number():
    """With k = d = 1 both estimators are the mean; the data add their variance, or not."""
    plan = Plan(Schema.of(x=(-1, 1)), 1.0, Sample(mechanism="duchi"))
    C = (math.e + 1) / (math.e - 1)
    for estimator in ESTIMATORS:
        uniform = plan.expected_error(100, estimator=estimator)
        assert uniform == pytest.approx(C**2 / 100, rel=1e-6)
        fleet = plan.expected_error(100, estimator=estimator, of="fleet")
        assert fleet == pytest.approx((C**2 - 1 / 3) / 100, rel=1e-6)
        half = plan.expected_error(1, [{"x": 0.5}], estimator=estimator)
        assert half == pytest.approx(C**2 - 0.25, rel=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("of", TARGETS)
def test_by_hand_for_one_of_four(estimator, of):
    plan = Plan(Schema.vector(4, 2.0), 2.0, Sample(k=1, mechanism="duchi"))
    C2 = (math.exp(2) + 1) ** 2 / (math.exp(2) - 1) ** 2
    x = np.array([[0.5, -1.0, 0.0, 0.25], [0.5, 1.0, 0.0, 0.75]])  # of 2
    mean, square = x.mean(axis=0), (x**2).mean(axis=0)
    noise, s2 = C2 - square, square - mean**2
    errors = {
        ("ratio", "population"): 4 * (noise + s2),
        ("ratio", "fleet"): 4 * (noise + s2) - s2,
        ("horvitz-thompson", "population"): 4 * (noise + square) - mean**2,
        ("horvitz-thompson", "fleet"): 4 * (noise + square) - square,
    }
    promised = plan.expected_error(10, 2 * x, estimator=estimator, of=of)
    assert promised == pytest.approx(errors[estimator, of].sum() / 10, rel=1e-9)


@pytest.mark.parametrize("oue", [False, True])
def test_by_hand_for_categories(oue):
    """The variance of an indicator is p(1-p)/(p-q)^2 for the true category, else q(1-q)/(p-q)^2."""
    labels = [str(i) for i in range(5)]
    plan = Plan(Schema.of(c=labels), 1.0, strategy="paper" if oue else "sample")
    E = math.e
    p, q = (0.5, 1 / (E + 1)) if oue else (E / (E + 4), 1 / (E + 4))
    noise = (p * (1 - p) + 4 * q * (1 - q)) / (p - q) ** 2
    shares = np.array([0.5, 0.5, 0, 0, 0])
    rows = [{"c": "0"}, {"c": "1"}]
    for estimator, of in itertools.product(ESTIMATORS, TARGETS):
        spread = np.sum(shares - shares**2) if of == "population" else 0.0
        promised = plan.expected_error(1, rows, estimator=estimator, of=of)
        assert promised == pytest.approx(noise + spread, rel=1e-9)
    assert plan.expected_error(1) == pytest.approx(noise + 0.8, rel=1e-9)


def test_missing_and_unknown_values_count_as_what_they_become():
    plan = plan_of(MIXED)
    rows = [{"age": None, "city": "Paris", "way": [math.nan] * 3, "colour": None}, {"age": 900}]
    clean = [
        {"age": 20, "city": "Rome", "way": [3.0] * 3, "colour": "colour 0"},
        {"age": 100, "city": "Rome", "way": [3.0] * 3, "colour": "colour 0"},
    ]
    for estimator, of in itertools.product(ESTIMATORS, TARGETS):
        wanted = plan.expected_error(5, clean, estimator=estimator, of=of)
        with pytest.warns(DataWarning, match="age: .* clipped .* missing"):
            found = plan.expected_error(5, rows, estimator=estimator, of=of)
        assert found == pytest.approx(wanted)


# The worst case


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("schema", [MIXED, NUMBERS, CATEGORIES], ids=["mixed", "num", "cat"])
@pytest.mark.parametrize("mechanism", ["duchi", "hm-tp"])
def test_no_data_are_worse_than_the_worst(name, schema, mechanism):
    rng, wide = np.random.default_rng(5), {"age": (0, 100), "way": (-1, 3)}
    plans = [plan_of(schema, epsilon, name, mechanism) for epsilon in (0.7, 4.0, 6.0)]
    for trial in range(20):
        rows = []
        for _ in range(rng.integers(1, 6)):
            row = {"city": rng.choice(["Oslo", "Rome", "Lima"]).item()}
            row["colour"] = f"colour {rng.integers(0, 3 if trial % 2 else 40)}"
            for key, (low, high) in wide.items():
                places = [(low, high), ((low + high) / 2,), np.linspace(low, high, 9)][trial % 3]
                row[key] = rng.choice(places, 3 if key == "way" else None).tolist()
            rows.append({key: row[key] for key in schema})
        for plan, estimator, of in itertools.product(plans, ESTIMATORS, TARGETS):
            worst = plan.expected_error(1, "worst", estimator=estimator, of=of)
            assert plan.expected_error(1, rows, estimator=estimator, of=of) <= worst * (1 + 1e-6)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_worst_case_is_reached(name):
    """By half of the vehicles at some x and half at -x: for every estimator and estimand."""
    plan, x = plan_of(NUMBERS, 4.0, name, "hm-tp"), np.linspace(0, 1, 101)
    for estimator, of in itertools.product(ESTIMATORS, TARGETS):
        seen = [
            plan.expected_error(
                1,
                [{"age": 50 + s * 50 * v, "way": [1 + s * 2 * v] * 3} for s in (-1, 1)],
                estimator=estimator,
                of=of,
            )
            for v in x
        ]
        worst = plan.expected_error(1, "worst", estimator=estimator, of=of)
        assert max(seen) == pytest.approx(worst, rel=1e-3)


# How to choose


def test_it_is_how_to_choose():
    """The cube wins in the worst case for epsilon >= 2, sampling for data near zero."""
    schema, zeros = Schema.vector(16, 1.0), np.zeros((1, 16))
    for epsilon in (2.0, 4.0):
        sample, cube = (plan_of(schema, epsilon, name, "hm-tp") for name in ("one", "cube"))
        assert cube.expected_error(9, "worst") < sample.expected_error(9, "worst")
    sample, cube = (plan_of(schema, 4.0, name, "hm-tp") for name in ("one", "cube"))
    assert sample.expected_error(9, zeros) < cube.expected_error(9, zeros)
    at_zero = 16 * 16 * HMTP(4.0).variance(0.0) / 9
    assert sample.expected_error(9, zeros) == pytest.approx(at_zero, rel=0.01)


def test_it_falls_with_the_number_of_vehicles():
    plan = plan_of(MIXED)
    assert plan.expected_error(1) == pytest.approx(1000 * plan.expected_error(1000))


@pytest.mark.parametrize(
    "data", [[], np.empty((0, 6)), {"age": [], "city": [], "way": [], "colour": []}]
)
def test_no_rows_are_refused(data):
    with pytest.raises(DomainError, match="row"):
        plan_of(MIXED).expected_error(10, data)


def test_refusals():
    plan = plan_of(MIXED)
    for n in (0, -1):
        with pytest.raises(DomainError, match=f"n must be at least 1; got {n}"):
            plan.expected_error(n)
    with pytest.raises(DomainError, match=r"n must be a whole number; got 1\.5"):
        plan.expected_error(1.5)
    with pytest.raises(DomainError, match=r"data must be rows, or one of .*; got 'normal'"):
        plan.expected_error(1, "normal")
    for wrong in ({"estimator": "mean"}, {"of": "everybody"}):
        with pytest.raises(DomainError, match="estimator must be one of"):
            plan.expected_error(1, **wrong)
