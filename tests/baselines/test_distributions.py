"""Methods of other papers for distributions: laws, published figures, and simulations."""

from math import exp, log

import numpy as np
import pytest

from fedldp.baselines.distributions import (
    DISTRIBUTION_METHODS,
    BinnedOracle,
    HierarchicalHistogram,
    SquareWave,
)
from fedldp.baselines.frequencies import FREQUENCY_ORACLES
from fedldp.errors import DomainError

METHODS = [*DISTRIBUTION_METHODS, *(lambda e, bins, k=k: BinnedOracle(e, bins, k)
                                    for k in FREQUENCY_ORACLES)]  # fmt: skip


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0])
def test_square_wave_is_private_and_its_reach_is_the_published_one(epsilon):
    """Li et al. 2020, section 5.3: the reach that maximizes a bound on mutual information."""
    method = SquareWave(epsilon, 16)
    near, far = method.densities
    assert near / far == pytest.approx(exp(epsilon))
    assert 2 * method.reach * near + far == pytest.approx(1)
    reaches = np.linspace(0.001, 0.999, 4000)
    total = 2 * reaches * exp(epsilon) + 1
    information = np.log((2 * reaches + 1) / total) + 2 * reaches * epsilon * exp(epsilon) / total
    assert method.reach == pytest.approx(reaches[np.argmax(information)], abs=3e-4)


def test_square_wave_of_a_small_epsilon_is_continuous():
    below, above = SquareWave(0.00999, 4).reach, SquareWave(0.01001, 4).reach
    assert below == pytest.approx(above, rel=1e-4)


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_answers_of_the_square_wave_follow_its_law(epsilon):
    method, n = SquareWave(epsilon, 10), 400_000
    np.testing.assert_allclose(method.transitions.sum(axis=0), 1.0)
    for x in (0.0, 0.3, 1.0):
        answers = method.answer(np.full(n, x), 5)
        edges = np.linspace(-method.reach, 1 + method.reach, 9)
        counts = np.histogram(answers, edges)[0]
        assert counts.sum() == n
        near, far = method.densities
        overlap = np.minimum(edges[1:], x + method.reach) - np.maximum(edges[:-1], x - method.reach)
        expected = n * (far * np.diff(edges) + (near - far) * np.maximum(overlap, 0.0))
        assert np.all(np.abs(counts - expected) < 5.5 * np.sqrt(expected))


def test_variance_of_a_hierarchical_histogram():
    method, random = HierarchicalHistogram(1.0, 16), np.random.default_rng(4)
    vehicles, repeats = 4000, 400
    found = np.array(
        [method.unbiased_shares(np.full(vehicles, 0.99), random) for _ in range(repeats)]
    )
    assert np.all(np.abs(found.mean(axis=0)[:-1]) < 4.9 * found.std(axis=0)[:-1] / repeats**0.5)
    assert found.mean(axis=0)[-1] == pytest.approx(1, abs=0.05)
    # Of a sum of bins that nobody is in; its noise is that of frequencies near 0.
    below = np.cumsum(np.eye(16), axis=0)[:11] @ method.covariance() @ np.cumsum(np.eye(16), 0)[
        :11].T  # fmt: skip
    expected = np.diag(below) / vehicles
    measured = np.var(np.cumsum(found, axis=1)[:, :11], axis=0)
    assert np.all(np.abs(measured / expected - 1) < 5 * (2 / repeats) ** 0.5)


@pytest.mark.parametrize("bins", [16, 64, 256])
def test_published_bound_on_ranges_of_a_hierarchical_histogram(bins):
    """Cormode et al. 2019, section 4.4: (B + 1) V_F h log_B(r) / 2 for a range of length r."""
    epsilon, branches = 1.0, 4
    covariance = HierarchicalHistogram(epsilon, bins, branches).covariance()
    sums = np.concatenate([[0.0], np.cumsum(np.ones(bins))])
    cumulative = np.pad(np.cumsum(np.cumsum(covariance, 0), 1), ((1, 0), (1, 0)))
    each = np.diag(cumulative)
    of_range = each[:, None] + each - 2 * cumulative
    one = 4 * exp(epsilon) / (exp(epsilon) - 1) ** 2
    levels = log(bins) / log(branches)
    for length in (branches, branches**2, bins):
        apart = sums[None] - sums[:, None] == length
        bound = (branches + 1) * one * levels * (log(length) / log(branches) + 1) / 2
        assert of_range[apart].mean() <= bound


def test_a_hierarchy_is_better_than_bins_for_long_ranges():
    shape = np.random.default_rng(1).beta(2, 5, size=30_000)
    tree, flat = HierarchicalHistogram(0.7, 256), BinnedOracle(0.7, 256)
    half = np.tri(256)[127]
    raw = flat.oracle(0.7, 256)
    p, q = raw.support
    of_flat = q * (1 - q) / (p - q) ** 2 * 128
    assert half @ tree.covariance() @ half < of_flat / 3
    assert tree.shares(shape, 1).sum() == pytest.approx(1)


@pytest.mark.parametrize("shape", [lambda r: r.beta(2, 5, 40_000), lambda r: r.random(40_000)])
@pytest.mark.parametrize("make", METHODS)
def test_shares_are_a_law_and_near_the_truth(make, shape):
    method, x = make(4.0, 12), shape(np.random.default_rng(2))
    shares = method.shares(x, np.random.default_rng(3))
    assert shares.shape == (12,)
    assert np.all(shares >= 0)
    assert shares.sum() == pytest.approx(1)
    truth = np.histogram(x, 12, (0, 1))[0] / x.size
    assert np.max(np.abs(np.cumsum(shares - truth))) < 0.04
    assert method.bits >= 1


def test_bad_arguments_are_refused():
    with pytest.raises(DomainError, match="at least 2 bins; got 1"):
        SquareWave(1.0, 1)
    with pytest.raises(DomainError, match="branches must be at least 2"):
        HierarchicalHistogram(1.0, 16, 1)
    for values in ([1.5], []):
        with pytest.raises(DomainError, match=r"must lie in \[0, 1\], and be at least one"):
            SquareWave(1.0, 4).shares(values, 1)
