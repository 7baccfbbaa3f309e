"""Numbers and angles in bins: from a row to a distribution with intervals."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

import fedldp
from fedldp import (
    Angle,
    BinnedNumber,
    Category,
    Number,
    Plan,
    Schema,
    Within,
    combine_estimates,
    compare_estimates,
    vehicle,
)
from fedldp.coders.categories import project
from fedldp.errors import DomainError, WireError
from fedldp.schema.attributes.distribution import ascending
from fedldp.schema.attributes.results import Joint

SPEED = BinnedNumber.of("speed", 0, 130, bins=26)
CONFIDENCE = 0.95


def estimated(attribute, values, epsilon, seed, **options):
    plan = Plan(Schema((attribute,)), epsilon)
    return plan.simulate({attribute.name: values}, fedldp.source(seed)).estimate(**options)


@pytest.mark.parametrize(
    "attribute",
    [
        SPEED,
        BinnedNumber.of("x", 1, 1000, bins=6, spacing="logarithmic", missing=3),
        BinnedNumber.of("x", -5, 5, bins=[-5, 0, 5], optional=True),
        Angle("heading"),
        Angle("hour", period=24, bins=24, optional=True),
        Within("by model", SPEED, Category("model", ["A", "B"])),
        Within("by speed", Number("x", 0, 1), BinnedNumber.of("speed", 0, 130, bins=3)),
    ],
    ids=lambda attribute: attribute.domain,
)
def test_a_plan_keeps_it_in_json_and_in_toml(attribute):
    plan = Plan(Schema((attribute,)), 2.0)
    assert json.loads(plan.to_json())["format"] == "fedldp plan 2"
    assert Plan.from_json(plan.to_json()) == plan
    assert Schema.from_toml(plan.schema.to_toml()) == plan.schema
    assert vehicle.Plan(plan.to_json(), "2").bits == plan.bits


def test_it_is_declared_in_toml_with_bounds_and_a_number_of_bins():
    schema = Schema.from_toml(
        "speed = {low = 0, high = 130, bins = 26}\n"
        "way = {low = 1, high = 100, bins = 2, spacing = 'logarithmic', optional = true}\n"
        "age = {edges = [0, 18, 65, 120]}\n"
        "hour = {period = 24, bins = 24}\n"
    )
    assert schema["speed"] == SPEED
    assert schema["way"].labels == ("1 to 10", "10 to 100", "missing")
    assert schema["age"] == BinnedNumber("age", [0, 18, 65, 120], missing=60)
    assert schema["hour"] == Angle("hour", 24, 24)


NUMBERS = [-1, 0, 4.999, 5, 64.9, 129.9, 130, 1e300, "31.5", "far", None, float("nan"), "inf", True]


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("circular", [False, True])
def test_a_vehicle_and_the_library_read_alike(optional, circular):
    kind = Angle("x", 13, 26, optional=optional)
    attribute = kind if circular else BinnedNumber.of("x", 0, 130, bins=26, optional=optional)
    plan = Plan(Schema((attribute,)), 1.0)
    alone = vehicle.Plan(plan.to_json(), "1")
    rows = [{"x": value} for value in NUMBERS]
    found = attribute.inputs.of(plan.schema.rows(rows).matrix())[:, 0]
    assert found.tolist() == [alone.inputs(row)[0] for row in rows]


def test_values_beyond_the_ends_are_counted_as_clipped():
    quality = Schema((SPEED,)).check({"speed": [-3, 10, 131, "fast", None]})["speed"]
    assert (quality.clipped, quality.unreadable, quality.missing) == (2, 1, 1)
    assert "[0, 130]" in str(quality)
    plan = vehicle.Plan(Plan(Schema((SPEED,)), 1.0).to_json(), "1")
    assert [bool(plan.check({"speed": value})) for value in (-3, 10, 131, "fast")] == [1, 0, 1, 1]
    angle = Schema((Angle("heading"),))
    assert angle.check({"heading": [-3, 10, 720]}).clean
    plan = vehicle.Plan(Plan(angle, 1.0).to_json(), "1")
    assert [bool(plan.check({"heading": value})) for value in (-3, 720, "north")] == [0, 0, 1]


def test_who_has_no_value_says_so():
    attribute = BinnedNumber.of("speed", 0, 130, bins=13, optional=True)
    quality = Schema((attribute,)).check({"speed": [None, "", 3, "fast"]})["speed"]
    assert (quality.missing, quality.unreadable) == (0, 1)


def test_points_are_a_distribution_and_lie_in_their_intervals():
    rng = np.random.default_rng(1)
    found = estimated(SPEED, np.minimum(rng.exponential(20, 2000), 130), 0.5, seed=3)["speed"]
    assert np.min(found.values) < 0  # so that projecting them matters
    for each in (found.histogram, found.cdf):
        for kind in (each.interval, each.simultaneous):
            low, high = kind.T
            assert np.all((low <= each.frequencies) & (each.frequencies <= high))
    assert found.histogram.frequencies.min() >= 0
    assert found.histogram.frequencies.sum() == pytest.approx(1)
    assert np.all(np.diff(found.cdf.frequencies) >= 0)
    np.testing.assert_allclose(
        found.cdf.frequencies, np.cumsum(found.histogram.frequencies)[:-1], atol=1e-12
    )
    assert found.mean_interval[0] <= found.mean <= found.mean_interval[1]
    assert found.variance_interval[0] <= found.variance <= found.variance_interval[1]
    for q in (0.01, 0.5, 0.99):
        value, low, high = found.quantile(q)
        assert low <= value <= high
        assert {low, high} <= set(found.edges)
    assert found.median_interval.tolist() == list(found.quantile(0.5)[1:])


def test_moments_and_quantiles_are_those_of_values_that_are_spread_evenly_over_their_bins():
    found = estimated(
        BinnedNumber.of("x", 0, 10, bins=[0, 2, 10]), [1.0, 5.0, 5.0] * 9000, 8.0, seed=1
    )["x"]
    first, second = found.histogram.frequencies
    rng = np.random.default_rng(2)
    n = 200_000  # so that the mean below is off by 0.05 in fewer than 1 of 10^9 cases
    drawn = np.concatenate(
        [rng.uniform(0, 2, round(first * n)), rng.uniform(2, 10, round(second * n))]
    )
    assert found.mean == pytest.approx(drawn.mean(), abs=0.05)
    assert found.variance == pytest.approx(drawn.var(), abs=0.1)
    for q in (0.2, 0.5, 0.9):
        assert found.quantile(q).value == pytest.approx(np.quantile(drawn, q), abs=0.15)


def test_frequencies_that_add_up_to_1_are_the_least_squares_estimate():
    coder = fedldp.coders.Lines.of(1.0, 10)
    truth = np.linspace(0.01, 0.19, 10)
    every = np.arange(10)
    raw = Joint(truth + 0.1, lambda a, b: coder.covariance(truth, a, b), 100, (0.05, 0.05))
    found = raw.given_total()
    covariance = raw.of_an_answer(every[:, None], every)
    inverse = np.linalg.inv(covariance)
    # Minimise (f - raw)' C^-1 (f - raw) subject to a sum of 1: the condition with a multiplier.
    system = np.block([[inverse, np.ones((10, 1))], [np.ones((1, 10)), np.zeros((1, 1))]])
    wanted = np.linalg.solve(system, np.append(inverse @ raw.frequencies, 1.0))[:10]
    np.testing.assert_allclose(found.frequencies, wanted, atol=1e-9)
    assert found.frequencies.sum() == pytest.approx(1)
    reduced = found.of_an_answer(every[:, None], every)
    assert reduced.sum() == pytest.approx(0, abs=1e-9)
    assert np.linalg.eigvalsh(covariance - reduced).min() > -1e-9  # never more variance
    exact = fedldp.coders.RandomizedResponse.of(1.0, 10)  # whose estimates add up to 1 already
    joint = Joint(truth, lambda a, b: exact.covariance(truth, a, b), 100, (0.05, 0.05))
    assert joint.given_total() is joint


def test_an_optional_number_has_a_distribution_among_those_who_have_a_value():
    rng = np.random.default_rng(4)
    values = np.where(rng.random(60_000) < 0.3, np.nan, rng.normal(80, 10, 60_000))
    found = estimated(
        BinnedNumber.of("speed", 0, 130, bins=13, optional=True), values, 4.0, seed=5
    )["speed"]
    # Each of these fails in fewer than 1 of 20 cases; the seed is fixed.
    assert found.share_interval[0] < 0.7 < found.share_interval[1]
    assert found.median_interval.tolist() == [70, 90] or 80 in found.median_interval
    assert found.mean_interval[0] < 80 < found.mean_interval[1]
    assert found.labels[-1] == "missing"
    assert found.shown.values[-1] == pytest.approx(1 - found.share)


def test_nobody_answered():
    for attribute in (SPEED, BinnedNumber.of("x", 0, 1, bins=4, optional=True), Angle("x", bins=4)):
        found = Plan(Schema((attribute,)), 1.0).tally().estimate()[attribute.name]
        assert np.isnan(found.histogram.frequencies).all()
        assert found.answers == 0
        assert json.dumps(found.details, allow_nan=False)
        assert repr(found)
    found = Plan(Schema((SPEED,)), 1.0).tally().estimate()["speed"]
    assert found.quantile(0.5)[1:] == (0, 130)
    assert found.mean_interval.tolist() == [0, 130]


def test_distributions_combine():
    rng = np.random.default_rng(6)
    rows = np.minimum(rng.exponential(20, 40_000), 130)
    one = estimated(SPEED, rows[:20_000], 1.0, seed=1)
    other = estimated(SPEED, rows[20_000:], 4.0, seed=2)
    both = combine_estimates(one, other)["speed"]
    precise = other["speed"]
    assert both.answers == 40_000
    assert np.mean(both.cdf.stderr**2) < 0.99 * np.mean(precise.cdf.stderr**2)
    # The covariance of a weighted mean, entry by entry.
    joints = [each["speed"].numbers.joint for each in (one, other)]
    pair = np.array([3, 7])
    every = np.arange(26)
    total = [joint.covariance(every, every).sum() for joint in joints]  # of all labels
    weights = np.tile(1 / np.array(total), (2, 1)).T
    weights /= weights.sum(axis=0)
    wanted = sum(
        w[0] * w[1] * joint.covariance(pair[0], pair[1])
        for w, joint in zip(weights, joints, strict=True)
    )
    found = Joint.combined(joints)
    assert found.covariance(pair[0], pair[1]) == pytest.approx(wanted)
    np.testing.assert_allclose(both.values.sum(), 1.0)
    assert len(compare_estimates(one, other)["speed"].values) == 26


def test_within_groups():
    rng = np.random.default_rng(7)
    n = 60_000
    model = rng.choice(["A", "B"], n, p=[0.7, 0.3])
    speed = np.where(model == "A", rng.normal(40, 8, n), rng.normal(90, 8, n))
    plan = Plan(Schema((Within("by model", SPEED, Category("model", ["A", "B", "C"])),)), 4.0)
    rows = {"speed": speed, "model": model}
    found = plan.simulate(rows, fedldp.source(8)).estimate()["by model"]
    for group in "AB":
        truth = np.median(speed[model == group])
        assert found[group].quantile(0.5).low <= truth <= found[group].quantile(0.5).high
        assert found[group].mean_interval[0] < truth < found[group].mean_interval[1]
    assert found["C"].mean_interval.tolist() == [0, 130]  # nobody is in it
    empty = [plan.simulate(rows, fedldp.source(seed)).estimate()["by model"] for seed in range(4)]
    below = [each for each in empty if each.shares.frequencies[2] < 0]  # its share is unbiased
    assert below
    for each in below:
        assert np.isnan(each["C"].values).all()
        assert each["C"].quantile(0.5)[1:] == (0, 130)
    assert found.shares.interval[0, 0] < 0.7 < found.shares.interval[0, 1]
    assert list(found.distributions) == ["A", "B", "C"]
    assert json.dumps(found.distributions, allow_nan=False)
    heights = found.heights.reshape(3, 26)
    assert heights[:2].max(axis=1).tolist() == [1, 1]
    assert found.summary.startswith("A: mean ")


@pytest.mark.parametrize("shift", [0, 7.5, 90, 177.5, 352.5])
def test_an_angle_has_no_seam(shift):
    rng = np.random.default_rng(9)
    headings = rng.normal(shift, 20, 40_000)
    found = estimated(Angle("heading"), headings, 4.0, seed=10)["heading"]
    low, high = found.mean_interval
    assert (shift - low) % 360 < 10
    assert (high - shift) % 360 < 10
    assert (high - low) % 360 < 20
    length = np.exp(-(np.radians(20) ** 2) / 2)
    assert found.resultant_interval[0] < length < found.resultant_interval[1]
    assert abs((found.mean_direction - shift + 180) % 360 - 180) < 3


def test_angles_that_balance_have_no_mean_direction():
    found = estimated(Angle("hour", 24, 24), np.arange(24_000) / 1000, 1.0, seed=11)["hour"]
    assert found.mean_interval.tolist() == [0, 24]
    assert "unknown" in repr(found)
    assert found.resultant_interval[0] == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BinnedNumber.of("x", 0, 1, bins=1), "from 2 to 1024 bins"),
        (lambda: BinnedNumber.of("x", 0, 1, bins=1025), "from 2 to 1024 bins"),
        (lambda: BinnedNumber.of("x", 0, 1, bins=2.5), "bins of 'x'"),
        (lambda: BinnedNumber.of("x", 0, 1, bins=[0, 0.5, 2]), "edges from 0.0 to 1.0"),
        (lambda: BinnedNumber.of("x", 0, 1, bins=[0, 0.5, 0.5, 1]), "must ascend"),
        (lambda: BinnedNumber.of("x", 0, 1, bins=[0, float("nan"), 1]), "finite number"),
        (lambda: BinnedNumber.of("x", 0, 1, bins=4, spacing="logarithmic"), "need low > 0"),
        (lambda: BinnedNumber.of("x", 0, 1, bins=4, spacing="square"), "spacing of 'x'"),
        (lambda: BinnedNumber.of("x", 1, 0, bins=4), "must be below high"),
        (lambda: BinnedNumber.of("x", 0, 1, bins=4, missing=2), "missing of 'x'"),
        (
            lambda: BinnedNumber.of("x", 0, 1, bins=4, missing=0.5, optional=True),
            "leave missing out",
        ),
        (lambda: BinnedNumber("x", "01"), "list of numbers"),
        (lambda: BinnedNumber("x", (-1e308, 0, 1e308)), "finite range"),
        (lambda: Angle("x", 0), "must be positive"),
        (lambda: Angle("x", -360), "must be positive"),
        (lambda: Angle("x", bins=1), "from 2 to 1024 bins"),
        (lambda: Angle("x", missing=361), "missing of 'x'"),
        (lambda: Angle("x", optional="yes"), "True or False"),
    ],
)
def test_what_is_invalid_is_refused(make, message):
    with pytest.raises(DomainError, match=message):
        make()


def test_a_quantile_is_between_0_and_1():
    found = estimated(SPEED, [50.0] * 100, 4.0, seed=1)["speed"]
    for q in (0, 1, -0.1, "half", float("nan")):
        with pytest.raises(DomainError, match="between 0 and 1"):
            found.quantile(q)


@pytest.mark.parametrize(
    "entry",
    [
        {"edges": [0.0, 1.0]},
        {"edges": [0.0, "1", 2.0], "missing": 1.0},
        {"edges": [0.0, 1.0, 2.0], "missing": 1.0, "optional": True},
        {"edges": [0.0, 1.0, 2.0], "optional": False},
        {"period": 24.0, "bins": 24.0, "missing": 0.0},
        {"period": 24.0, "bins": 24},
    ],
)
def test_other_entries_are_refused(entry):
    with pytest.raises(WireError):
        Schema.from_document([{"name": "x", **entry}])


def test_groups_of_optional_numbers_and_of_angles():
    model = Category("model", ["A", "B"])
    speed = BinnedNumber.of("speed", 0, 130, bins=13, optional=True)
    rows = {"speed": [25.0, None, 105.0] * 9000, "model": ["A", "A", "B"] * 9000}
    plan = Plan(Schema((Within("by model", speed, model),)), 6.0)
    found = plan.simulate(rows, fedldp.source(1)).estimate()["by model"]
    assert found["A"].quantile(0.5)[1:] == (20, 30)
    assert found["B"].quantile(0.5)[1:] == (100, 110)
    assert len(found.heights) == len(found.labels) == 28
    heading = Angle("heading", bins=12)
    rows = {"heading": [350.0, 100.0] * 9000, "model": ["A", "B"] * 9000}
    plan = Plan(Schema((Within("by model", heading, model),)), 6.0)
    found = plan.simulate(rows, fedldp.source(1)).estimate()["by model"]
    for group, direction in (("A", 350), ("B", 100)):
        low, high = found[group].mean_interval
        assert (direction - low) % 360 <= 30
        assert (high - direction) % 360 <= 30


@pytest.mark.parametrize("estimator", ["ratio", "horvitz-thompson"])
def test_both_estimators_have_distributions(estimator):
    schema = Schema((SPEED, Number("age", 0, 100)))
    plan = Plan(schema, 2.0)
    assert plan.parts[0].share < 1
    rows = {"speed": [42.0] * 20_000, "age": [30.0] * 20_000}
    found = plan.simulate(rows, fedldp.source(1)).estimate(estimator)["speed"]
    assert found.quantile(0.5)[1:] == (40, 45)


def test_the_interval_of_a_mean_direction_covers():
    rng = np.random.default_rng(12)
    plan = Plan(Schema((Angle("x", 360, 24),)), 1.0)
    fleets = 60
    hits = 0
    for seed in range(fleets):
        rows = rng.vonmises(np.radians(350), 1.0, 4000)
        found = plan.simulate({"x": np.degrees(rows)}, fedldp.source(seed)).estimate()["x"]
        low, high = found.mean_interval
        hits += high - low == 360 or (350 - low) % 360 <= (high - low) % 360
    # At least 95% are covered: fewer than 50 of 60 happen by chance in fewer than 1 of 1,000 cases.
    assert hits >= 50


# Coverage, over many fleets that are drawn from the same population.


def exponential(rng, n):
    return rng.exponential(8.0, n)


def delays(rng, n):
    """Most are a little early; some are very late, as departures of aeroplanes are."""
    return np.where(rng.random(n) < 0.7, rng.normal(-4, 4, n), rng.exponential(40, n))


def some(rng, n):
    return np.where(rng.random(n) < 0.3, np.nan, rng.normal(50, 15, n))


CASES = {
    "exponential": (exponential, BinnedNumber.of("x", 0, 60, bins=20), 1.0),
    "delays": (delays, BinnedNumber.of("x", -20, 180, bins=25), 1.0),
    "logarithmic": (
        exponential,
        BinnedNumber.of("x", 0.1, 100, bins=20, spacing="logarithmic"),
        4.0,
    ),
    "some have a value": (some, BinnedNumber.of("x", 0, 100, bins=20, optional=True), 2.0),
}


def coverage(draw, attribute, epsilon, fleets, n):
    """Return how often the CDF at each edge, some quantiles, mean and variance are covered."""
    ends = attribute.edges[0], attribute.edges[-1]
    large = np.clip(draw(np.random.default_rng(1), 2_000_000), *ends)
    large = large[~np.isnan(large)]
    cdf = np.searchsorted(np.sort(large), attribute.edges[1:-1]) / len(large)
    shares = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
    quantiles = np.quantile(large, shares)
    plan, rng, source = Plan(Schema((attribute,)), epsilon), np.random.default_rng(2), fedldp.source
    hits = []
    for seed in range(fleets):
        rows = np.clip(draw(rng, n), *ends)[:, None]
        found = plan.simulate(rows, source(seed)).estimate()["x"]
        of_quantiles = [found.quantile(q)[1:] for q in shares]
        of_moments = [found.mean_interval, found.variance_interval]
        low, high = np.vstack([found.cdf.interval, of_quantiles, of_moments]).T
        truth = np.concatenate([cdf, quantiles, [large.mean(), large.var()]])
        hits.append((low <= truth) & (truth <= high))
    hits = np.mean(hits, axis=0)
    return hits[: len(cdf)], hits[len(cdf) : -2], hits[-2:]


@pytest.mark.parametrize("name", CASES)
def test_intervals_cover(name):
    cdf, quantiles, moments = coverage(*CASES[name], fleets=60, n=4000)
    # Of 60 fleets 95% are covered. That an edge has fewer than 82%, or a quantile fewer than 82%,
    # happens by chance in fewer than 1 of 1,000 cases for each; the seeds are fixed.
    assert cdf.min() > 0.82
    assert 0.91 < cdf.mean() < 0.99
    assert quantiles.min() > 0.82
    assert moments.min() > 0.82


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_intervals_cover_as_often_as_they_say(name):
    cdf, quantiles, moments = coverage(*CASES[name], fleets=2000, n=4000)
    # The standard error of 95% of 2,000 is 0.5%: each limit is 6 of them away from it.
    assert cdf.min() > 0.92
    assert cdf.max() < 0.98
    assert quantiles.min() > 0.93
    assert moments.min() > 0.93


# The point of a distribution


@given(st.lists(st.floats(-1, 2), min_size=1, max_size=40))
def test_numbers_that_never_descend_are_the_closest_ones(numbers):
    found = ascending(np.array(numbers))
    assert np.allclose(found, isotonic_regression(numbers).x, atol=1e-12)


def test_the_point_is_the_mean_of_two_projections():
    speed = BinnedNumber.of("speed", 0, 130, bins=26)
    plan = Plan(Schema((speed,)), 0.5)
    found = plan.simulate({"speed": [10.0, 60.0, 61.0] * 300}, fedldp.source(1)).estimate()["speed"]
    shares = np.asarray(found.values)
    sums = np.clip(isotonic_regression(np.cumsum(shares)[:-1]).x, 0, 1)
    mean = (project(shares) + np.diff(sums, prepend=0, append=1)) / 2
    assert np.allclose(found.histogram.frequencies, mean, atol=1e-12)
    assert mean.min() >= 0
    assert mean.sum() == pytest.approx(1)
    assert np.allclose(found.cdf.frequencies, np.cumsum(mean)[:-1], atol=1e-12)
