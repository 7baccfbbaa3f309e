"""Mechanisms of other papers for means: privacy, published figures, and simulations."""

from math import exp, gamma, pi, sqrt

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from fedldp.baselines.means import (
    VECTOR_MECHANISMS,
    OneBitMean,
    PrivUnit,
    PrivUnitG,
    ProjUnit,
    SimplexCoding,
)
from fedldp.coders import DirectionsCoder
from fedldp.errors import DomainError
from fedldp.mechanisms import Duchi

FALSE_ALARM = 4.9  # standard errors: one test in a million fails by chance


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_one_bit_mean_is_published_mechanism(epsilon):
    """Ding et al., equations 1 and 2, for [0, m] with m = 2."""
    mechanism, odds = OneBitMean(epsilon), exp(epsilon)
    for x in np.linspace(-1, 1, 9):
        p = 1 / (odds + 1) + (x + 1) / 2 * (odds - 1) / (odds + 1)
        values = 2 * (np.array([0, 1]) * (odds + 1) - 1) / (odds - 1) - 1
        np.testing.assert_allclose(mechanism.decode([False, True]), values)
        mean = (1 - p) * values[0] + p * values[1]
        assert mean == pytest.approx(x)
        assert mechanism.error(x) == pytest.approx((1 - p) * p * np.diff(values)[0] ** 2)
        bits = mechanism.answer(np.full(20_000, x), 3)
        assert abs(bits.mean() - p) < FALSE_ALARM * sqrt(p * (1 - p) / 20_000) + 1e-12
    # It is Duchi's mechanism for one number.
    assert mechanism.worst_error == pytest.approx(Duchi(epsilon).worst_case_variance)


def part_density(d):
    """Return the density of the part of a random unit vector along another one."""
    constant = gamma(d / 2) / (sqrt(pi) * gamma((d - 1) / 2))
    return lambda t: constant * (1 - t * t) ** ((d - 3) / 2)


@pytest.mark.parametrize(("epsilon", "d"), [(0.5, 3), (1.0, 10), (4.0, 40)])
def test_privunit_by_integration(epsilon, d):
    mechanism, density = PrivUnit(epsilon, d), part_density(d)
    q, p = mechanism.beyond, mechanism.probability
    assert p / q / ((1 - p) / (1 - q)) == pytest.approx(exp(epsilon))

    def gain(threshold):
        inside = quad(density, threshold, 1)[0]
        odds = exp(epsilon) * inside
        p = odds / (odds + 1 - inside)
        above = quad(lambda t: t * density(t), threshold, 1)[0]
        return above * (p / inside - (1 - p) / (1 - inside))

    threshold = float(mechanism._quantile(np.array(1 - q)))
    assert quad(density, threshold, 1)[0] == pytest.approx(q)
    assert mechanism.scale == pytest.approx(gain(threshold))
    assert mechanism.error == pytest.approx(1 / gain(threshold) ** 2 - 1)
    assert mechanism.scale >= max(gain(t) for t in np.linspace(0, 0.95, 60)) - 1e-9


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_privunitg_by_integration(epsilon):
    d, mechanism = 30, PrivUnitG(epsilon, 30)
    q, p = mechanism.beyond, mechanism.probability
    assert p / q / ((1 - p) / (1 - q)) == pytest.approx(exp(epsilon))
    threshold, law = norm.isf(q) / sqrt(d), norm(scale=1 / sqrt(d))

    def moment(power):
        above = law.expect(lambda t: t**power, lb=threshold, ub=10)
        below = law.expect(lambda t: t**power, lb=-10, ub=threshold)
        return p / q * above + (1 - p) / (1 - q) * below

    assert mechanism.scale == pytest.approx(moment(1), rel=1e-6)
    square = (moment(2) + (d - 1) / d) / moment(1) ** 2
    assert mechanism.error == pytest.approx(square - 1, rel=1e-6)


def test_published_figures_of_privunitg():
    """Asi, Feldman and Talwar 2022: epsilon times the error for each number falls towards 0.614."""
    rates = [epsilon * PrivUnitG(epsilon, 100_000).error / 100_000 for epsilon in (2, 5, 10, 20)]
    assert np.all(np.diff(rates) < 0)
    assert 0.614 < rates[-1] < 0.73
    found = [PrivUnitG(epsilon, 1000).error / 1000 for epsilon in (0.5, 1, 2, 4, 6, 8)]
    np.testing.assert_allclose(found, [25.18, 6.33, 1.617, 0.435, 0.213, 0.133], rtol=3e-3)


def test_projunit_to_all_numbers_is_privunitg_of_a_rotation():
    assert ProjUnit(2.0, 50, 50).error == pytest.approx(PrivUnitG(2.0, 50).error)
    errors = [ProjUnit(2.0, 256, k).error for k in (8, 16, 64, 256)]
    assert np.all(np.diff(errors) < 0)


@pytest.mark.parametrize("d", [2, 5, 64])
def test_two_corners_answer_with_one_bit(d):
    """With two corners RRSC sends the sign of the part along a random line."""
    epsilon = 1.5
    part = gamma(d / 2) / (sqrt(pi) * gamma((d + 1) / 2))  # the mean of its absolute value
    gain = (exp(epsilon) - 1) / (exp(epsilon) + 1) * part
    assert SimplexCoding(epsilon, d, 2).error == pytest.approx(1 / gain**2 - 1, rel=1e-5)


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_privunit_is_optimal(epsilon):
    """No other mechanism here, and none of the library, has less error."""
    least = PrivUnit(epsilon, 64).error
    assert all(kind(epsilon, 64).error >= least for kind in VECTOR_MECHANISMS)
    rows = np.eye(64)[:1]
    assert float(np.sum(DirectionsCoder.of(epsilon, 64).assumed(rows, 1.0)[0])) > least


@pytest.mark.parametrize(("epsilon", "d"), [(1.0, 2), (2.0, 12), (5.0, 40)])
@pytest.mark.parametrize("kind", VECTOR_MECHANISMS)
def test_simulated_error_and_bias(kind, epsilon, d):
    mechanism, random = kind(epsilon, d), np.random.default_rng(11)
    vehicles = 6000
    vector = np.linspace(1, 2, d) / np.linalg.norm(np.linspace(1, 2, d))
    answers = mechanism.answer(np.tile(vector, (vehicles, 1)), random)
    errors = np.sum((answers - vector) ** 2, axis=1)
    stderr = max(np.std(errors) / vehicles**0.5, 1e-9 * mechanism.error)
    assert abs(errors.mean() - mechanism.error) < FALSE_ALARM * stderr
    spread = np.std(answers, axis=0) / vehicles**0.5
    assert np.all(np.abs(answers.mean(axis=0) - vector) < FALSE_ALARM * spread)


def test_bad_arguments_are_refused():
    with pytest.raises(DomainError, match="d must be at least 2; got 1"):
        PrivUnit(1.0, 1)
    with pytest.raises(DomainError, match="k must be from 2 to 8; got 9"):
        ProjUnit(1.0, 8, 9)
    with pytest.raises(DomainError, match="corners must be from 2 to 9; got 10"):
        SimplexCoding(1.0, 8, 10)
    with pytest.raises(DomainError, match="rows of 3 numbers"):
        PrivUnit(1.0, 3).answer([1.0, 0.0, 0.0], 1)
    with pytest.raises(DomainError, match="must have the length 1"):
        PrivUnit(1.0, 3).answer([[0.5, 0.0, 0.0]], 1)
