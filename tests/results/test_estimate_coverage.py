"""In the long run: estimates without bias, and intervals that cover what they promise to cover.

Each check of an interval counts how often it covers the truth in R replicates, and wants a share
from fedldp.plan.strategies import Sample
from 94% to 96%. With R = 16,000 the standard error is 0.17%. The true coverage, measured with
100,000 replicates, lies between 94.8% and 95.3% in all cells, at least 4 standard errors from the
limits: a check alarms by chance less than once in 10,000 times, and the seeds are fixed anyway.

Some checks have fewer replicates in `make test` and all of them in `make test-slow`: the limits are
then wider, by the same number of standard errors.

A tally is all that an estimate sees, so most replicates draw the tally itself, from the law of the
table; others send every vehicle's report. The replicates of a cell are the coordinates of one
long vector: one call estimates them all.
"""

import itertools
from functools import cache

import numpy as np
import pytest
from scipy import stats

import fedldp
from fedldp import Plan, Schema, Tally, combine_estimates
from fedldp.coders import tables
from fedldp.coders.categories import RandomizedResponse, UnaryEncoding
from fedldp.coders.cube import CubeCoder
from fedldp.mechanisms import ThreeOutputs
from fedldp.plan.parts import Part
from fedldp.plan.strategies import Sample
from fedldp.results.estimate import ESTIMATORS, TARGETS

N = 20_000  # with this many vehicles a table of two outputs moves the coverage by at most 0.1%
R = 16_000
QUANTILES = (np.arange(4000) + 0.5) / 4000
DATA = {
    "uniform": 2 * QUANTILES - 1,
    "skewed": 2 * stats.beta(0.5, 3).ppf(QUANTILES) - 1,
    "two ends": np.where(QUANTILES < 0.9, -1.0, 1.0),
}
CELLS = list(itertools.product((1, 2, 16), (0.5, 1.0, 4.0), DATA))
# Every third: each pair of a size, an epsilon and data is among them. `make test-slow` tries all.
SOME_CELLS = [cell for i, cell in enumerate(CELLS) if (i // 9 + i // 3 + i) % 3 == 0]


@cache
def plan_of(d, epsilon, mechanism="dominant"):
    return Plan(Schema.vector(d, 1.0), epsilon, Sample(mechanism=mechanism))


# Without bias, over all that can happen


@pytest.mark.parametrize("name", sorted({*fedldp.mechanism_names()} - {"laplace"}))
def test_numbers_are_unbiased(name):
    x = np.linspace(-1, 1, 41)
    for epsilon in (0.3, 1.0, 4.0):
        part = plan_of(4, epsilon, name).parts[0]
        [coder] = part.coders
        law = tables.probabilities(coder.letters, coder.table, x)
        each = np.repeat(np.eye(coder.outputs, dtype=int), 4, axis=0)  # for the share's sake
        for estimator, share in (("ratio", 1), ("horvitz-thompson", part.share)):
            found = tally_of(part, 1, each).estimate(estimator)["x"].mean[::4]
            np.testing.assert_allclose(
                share * law @ found, x, atol=1e-11 * np.abs(coder.values).max()
            )


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_whole_fleet_is_unbiased(estimator):
    """Three vehicles, two numbers, one answer each: all choices and all codes."""
    coder, x = (
        ThreeOutputs(2.0).channel(),
        np.array([[-1.0, 0.3], [0.5, 0.5], [1.0, -0.2]]),
    )
    part = Part(Schema.vector(2, 1.0), (0,), (coder,), 1)
    law = tables.probabilities(coder.letters, coder.table, x)
    total, mass = np.zeros(2), np.zeros(2)
    for events in itertools.product(itertools.product(range(2), range(3)), repeat=3):
        counts, odds = np.zeros((2, 3), int), 1.0
        for vehicle, (number, code) in enumerate(events):
            counts[number, code] += 1
            odds *= law[vehicle, number, code] / 2
        found = Tally("", (part,), 3, (counts.reshape(-1),)).estimate(estimator)["x"]
        total += odds * np.nan_to_num(found.mean)
        # Whom nobody answered has no mean; the paper's estimator counts it as zero.
        mass += odds * ((found.answers > 0) | (estimator != "ratio"))
    np.testing.assert_allclose(total / mass, x.mean(axis=0), atol=1e-12)


def frequencies(coder, counts):
    part = Part(Schema.of(c=["a", "b", "c"]), (0,), (coder,), 1)
    return Tally("", (part,), 1, (np.array(counts),)).estimate()["c"].frequencies


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_categories_are_unbiased(epsilon):
    response, unary = RandomizedResponse.of(epsilon, 3), UnaryEncoding.of(epsilon, 3)
    sent = np.array([frequencies(response, row) for row in np.eye(3, dtype=int)])
    bits = list(itertools.product((0, 1), repeat=3))
    decoded = np.array([frequencies(unary, [*each, 1]) for each in bits])
    for own in range(3):
        truth = np.eye(3)[own]
        law = np.where(truth, response.p, response.q)
        np.testing.assert_allclose(law @ sent, truth, atol=1e-12)
        one = np.where(truth, unary.p, unary.q)
        odds = [np.prod(np.where(each, one, 1 - one)) for each in bits]
        np.testing.assert_allclose(odds @ decoded, truth, atol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_the_cube_is_unbiased(d):
    cube = CubeCoder.of(2.0, d)
    part = Part(Schema.vector(d, 1.0), (0,), (cube,), 1)
    signs = np.array(list(itertools.product((-1, 1), repeat=d)))
    counts = [np.stack([t < 0, t > 0], axis=1).astype(int).reshape(-1) for t in signs]
    means = [Tally("", (part,), 1, (each,)).estimate()["x"].mean for each in counts]
    for v in signs:
        odds = np.where(signs @ v > cube.threshold, cube.heavy, cube.light) + 0.0
        mean = np.average(np.reshape(means, (-1, d)), axis=0, weights=odds)
        np.testing.assert_allclose(mean, v, atol=1e-9)


# Means


def tally_of(part, n, counts):
    """Return a tally in which each row of counters is a coordinate asked as in a part."""
    k = round(len(counts) * part.share)
    wide = Part(Schema.vector(len(counts), 1.0), (0,), part.coders, k)
    assert wide.share == part.share
    return Tally("", (wide,), n, (counts.reshape(-1),))


def drawn(part, atoms, n, replicates, seed):
    """Draw tallies of fleets whose values are equally likely to be any of the atoms.

    Return them with the true mean of each fleet.
    """
    rng, [coder] = np.random.default_rng(seed), part.coders
    answered = rng.binomial(n, part.share, replicates)
    odds = np.full(len(atoms), 1 / len(atoms))
    asked, others = rng.multinomial(answered, odds), rng.multinomial(n - answered, odds)
    law = tables.probabilities(coder.letters, coder.table, atoms)
    law /= law.sum(axis=1, keepdims=True)  # up to rounding it was 1
    counts = sum(rng.multinomial(asked[:, i], law[i]) for i in range(len(atoms)))
    return tally_of(part, n, counts), (asked + others) @ atoms / n


def reported(d, epsilon, name, n, replicates, seed):
    """Draw fleets, and let every vehicle report: a tally of all coordinates, and their means."""
    plan, source = plan_of(d, epsilon), fedldp.source(seed)
    counts, means = [], []
    for _ in range(replicates // d):
        x = DATA[name].take(source.below(len(QUANTILES), (n, d)))
        counts.append(plan.simulate(x, source).counts[0].reshape(d, -1))
        means.append(x.mean(axis=0))
    return tally_of(plan.parts[0], n, np.concatenate(counts)), np.concatenate(means)


def check(tally, mean, means, slack=0.01):
    """Check the intervals about the population's mean, and about each fleet's."""
    for estimator, of in itertools.product(ESTIMATORS, TARGETS):
        found = tally.estimate(estimator, of=of)["x"]
        cover(found.interval, mean if of == "population" else means, (estimator, of), slack)


def cover(intervals, truth, what, slack=0.01):
    low, high = np.moveaxis(intervals, -1, 0)
    share = np.mean((low <= truth) & (truth <= high))
    assert 0.95 - slack <= share <= 0.95 + slack, (what, share)


@pytest.mark.parametrize(("d", "epsilon", "name"), SOME_CELLS)
def test_means(d, epsilon, name):
    part, atoms = plan_of(d, epsilon).parts[0], DATA[name].reshape(10, -1).mean(axis=1)
    tally, means = drawn(part, atoms, N, R, seed=CELLS.index((d, epsilon, name)))
    check(tally, atoms.mean(), means)


@pytest.mark.parametrize(("d", "epsilon", "name"), [(1, 4.0, "two ends"), (16, 1.0, "skewed")])
def test_means_of_reports(d, epsilon, name):
    """With 2000 replicates: a check alarms by chance about once in 1000 times."""
    tally, means = reported(d, epsilon, name, 2000 if d == 1 else N, 2000, seed=1)
    check(tally, DATA[name].mean(), means, slack=0.018)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "epsilon", "name"), CELLS)
def test_means_of_many_reports(d, epsilon, name):
    """With 12,800 replicates: a check alarms by chance about once in 10,000 times."""
    seed = 100 + CELLS.index((d, epsilon, name))
    tally, means = reported(d, epsilon, name, N, 12_800, seed)
    check(tally, DATA[name].mean(), means)


def test_cubes():
    """With 9600 replicates: a check alarms by chance about once in 5000 times."""
    d, n, source = 16, 3000, fedldp.source(2)
    plan = Plan(Schema.vector(d, 1.0), 1.0, strategy="cube")
    found = {choice: [] for choice in itertools.product(ESTIMATORS, TARGETS)}
    means = []
    for _ in range(600):
        x = DATA["skewed"].take(source.below(len(QUANTILES), (n, d)))
        tally = plan.simulate(x, source)
        means.append(x.mean(axis=0))
        for (estimator, of), intervals in found.items():
            intervals.append(tally.estimate(estimator, of=of)["x"].interval)
    for choice, intervals in found.items():
        mean = means if choice[1] == "fleet" else DATA["skewed"].mean()
        cover(np.array(intervals), np.array(mean), choice)


# Categories: each replicate is an attribute of its own


def frequencies_of(coder, odds, n, share, replicates, seed):
    """Draw tallies of fleets with such frequencies; return them with each fleet's own."""
    rng = np.random.default_rng(seed)
    answered = rng.binomial(n, share, replicates)
    own, others = rng.multinomial(answered, odds), rng.multinomial(n - answered, odds)
    if isinstance(coder, UnaryEncoding):
        ones = rng.binomial(own, coder.p) + rng.binomial(answered[:, None] - own, coder.q)
        counts = np.column_stack([ones, answered])
    else:
        law = np.where(np.eye(len(odds)), coder.p, coder.q)
        counts = sum(rng.multinomial(own[:, i], law[i]) for i in range(len(odds)))
    labels = [str(i) for i in range(len(odds))]
    schema = Schema.of(**{f"replicate {i}": labels for i in range(replicates)})
    part = Part(schema, tuple(range(replicates)), (coder,) * replicates, round(share * replicates))
    return Tally("", (part,), n, (counts.reshape(-1),)), (own + others) / n


@pytest.mark.parametrize(
    ("kind", "epsilon", "share"), [(RandomizedResponse, 1.0, 1), (UnaryEncoding, 4.0, 0.5)]
)
@pytest.mark.parametrize(
    ("replicates", "slack"), [(1000, 0.02), pytest.param(4000, 0.01, marks=pytest.mark.slow)]
)
def test_frequencies(kind, epsilon, share, replicates, slack):
    """A check alarms by chance about once in 250 times; the seed is fixed."""
    odds = [0.02, 0.6, 0.18, 0.2]
    coder = kind.of(epsilon, len(odds))
    tally, shares = frequencies_of(coder, odds, N, share, replicates, seed=3)
    different = ESTIMATORS if share < 1 else ESTIMATORS[:1]  # if all answer, they are the same
    for estimator, of in itertools.product(different, TARGETS):
        estimate = tally.estimate(estimator, of=of)
        found = np.array([each.interval for each in estimate.values()])
        for i, name in ((0, "rare"), (1, "frequent")):
            truth = odds[i] if of == "population" else shares[:, i]
            cover(found[:, i], truth, (estimator, of, name), slack)


@pytest.mark.parametrize("kind", [RandomizedResponse, UnaryEncoding])
def test_projected_frequencies_are_closer(kind):
    odds = np.array([0.0, 0.01, 0.04, 0.05, 0.9])
    tally, _ = frequencies_of(kind.of(0.5, 5), odds, 2000, 1, 500, seed=4)
    raw = np.array([each.frequencies for each in tally.estimate().values()])
    closer = np.array([each.projected for each in tally.estimate().values()])
    assert np.all(closer >= 0)
    np.testing.assert_allclose(closer.sum(axis=1), 1.0)
    errors = [np.sum((each - odds) ** 2, axis=1) for each in (raw, closer)]
    assert np.all(errors[1] <= errors[0] + 1e-12)  # the truth is among what is projected onto
    assert errors[1].mean() < 0.7 * errors[0].mean()


# Several at once


@pytest.mark.parametrize(
    ("replicates", "slack"), [(1000, 0.02), pytest.param(5000, 0.01, marks=pytest.mark.slow)]
)
def test_simultaneous_intervals_cover_all_at_once(replicates, slack):
    """The share is 95.1% or more: the lower limit is 3 standard errors off or more."""
    part, atoms = plan_of(16, 1.0, "three-outputs").parts[0], DATA["skewed"].reshape(10, -1)
    atoms = atoms.mean(axis=1)
    tally, _ = drawn(part, atoms, N, 16 * replicates, seed=5)
    covered = 0
    for counts in tally.counts[0].reshape(replicates, -1):
        found = Tally("", (part,), N, (counts,)).estimate()["x"]
        low, high = found.simultaneous.T
        assert np.all((low < found.interval[:, 0]) & (found.interval[:, 1] < high))
        covered += np.all((low <= atoms.mean()) & (atoms.mean() <= high))
    assert 0.95 - slack <= covered / replicates <= 0.955 + slack


def test_three_levels_of_epsilon_combined():
    """The paper's ULDP: better than each level alone, unbiased, and with intervals that hold."""
    atoms = DATA["skewed"].reshape(10, -1).mean(axis=1)
    levels = [
        drawn(plan_of(1, epsilon).parts[0], atoms, n, R, seed)[0].estimate()
        for seed, (epsilon, n) in enumerate([(0.5, 9000), (1.0, 6000), (4.0, 3000)])
    ]
    both = combine_estimates(*levels)
    assert both.reports == 18_000
    error = both["x"].mean - atoms.mean()
    for each in levels:
        assert np.mean(error**2) < 0.95 * np.mean((each["x"].mean - atoms.mean()) ** 2)
        assert np.all(both["x"].stderr < each["x"].stderr)
    # Of its own size: 5 standard errors of the mean of all replicates.
    assert abs(error.mean()) < 5 * error.std() / R**0.5
    np.testing.assert_allclose(both["x"].stderr.mean(), error.std(), rtol=0.03)
    cover(both["x"].interval, atoms.mean(), "combined")
