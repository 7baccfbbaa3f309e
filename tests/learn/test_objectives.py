"""Losses and slopes: against plain formulas, their derivatives and each other."""

import math

import numpy as np
import pytest
from fleets import NAMES, slope
from hypothesis import given
from hypothesis import strategies as st

from fedldp.errors import UnknownName
from fedldp.learn.objectives import OBJECTIVES, Objective, objective

SCORES = st.floats(-50.0, 50.0)
SIGNS = st.sampled_from([-1.0, 1.0])
TARGETS = {"squared": st.floats(-1.0, 1.0), "logistic": SIGNS, "hinge": SIGNS}


def loss(name, z, y):
    if name == "squared":
        return (z - y) ** 2 / 2
    if name == "hinge":
        return max(0.0, 1 - y * z)
    return max(0.0, -y * z) + math.log1p(math.exp(-abs(z)))


def one(function, z, y):
    found = function(np.array([[z]]), np.array([y]))
    assert found.shape == (1, 1)
    return float(found[0, 0])


@given(st.sampled_from(NAMES), SCORES, st.data())
def test_losses_and_slopes_are_the_formulas(name, z, data):
    y = data.draw(TARGETS[name])
    assert one(objective(name).loss, z, y) == pytest.approx(loss(name, z, y), rel=1e-12, abs=1e-15)
    assert one(objective(name).slope, z, y) == pytest.approx(slope(name, z, y), abs=1e-15)


@given(st.sampled_from(NAMES), SCORES, st.data())
def test_a_slope_is_the_derivative(name, z, data):
    y, h = data.draw(TARGETS[name]), 1e-5
    if name == "hinge" and abs(y * z - 1) < 2 * h:
        return  # there is no derivative at the kink
    chosen = objective(name)
    rise = one(chosen.loss, z + h, y) - one(chosen.loss, z - h, y)
    assert one(chosen.slope, z, y) == pytest.approx(rise / (2 * h), abs=1e-7)


@given(st.sampled_from(NAMES), SCORES, SCORES, st.data())
def test_a_loss_is_convex_and_its_slope_a_subgradient(name, z, other, data):
    y, chosen = data.draw(TARGETS[name]), objective(name)
    line = one(chosen.loss, z, y) + one(chosen.slope, z, y) * (other - z)
    assert one(chosen.loss, other, y) >= line - 1e-9 * (1 + abs(line))


@pytest.mark.parametrize("name", ["logistic", "hinge"])
def test_slopes_of_classifiers_stay_within_the_default_bound(name):
    """So that with features in [-1, 1] a bound of 1 clips nothing, at any score."""
    z = np.array([[-math.inf, -1e300, -800.0, -1.0, 0.0, 1.0, 800.0, 1e300, math.inf]])
    for y in (-1.0, 1.0):
        slopes = objective(name).slope(z, np.full(9, y))
        assert np.all(np.abs(slopes) <= 1.0)
        assert np.all(slopes * y <= 0.0)
        assert slopes[0, 0 if y > 0 else -1] == -y
        assert slopes[0, -1 if y > 0 else 0] == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_single_precision_is_as_good_as_it_can_be(name):
    z = np.linspace(-30, 30, 601, dtype=np.float32)[None]
    for y in (-1.0, 1.0):
        targets = np.full(601, y, np.float32)
        wanted = [slope(name, float(each), y) for each in z[0]]
        found = objective(name).slope(z, targets)
        np.testing.assert_allclose(found[0], wanted, atol=2e-7, rtol=2e-7)


@pytest.mark.parametrize("name", NAMES)
def test_scores_and_targets_are_not_written_to(name):
    z, y = np.array([[0.3, -2.0], [1.0, 0.0]]), np.array([1.0, -1.0])
    kept = z.copy(), y.copy()
    chosen = objective(name)
    for function in (chosen.slope, chosen.loss, chosen.error):
        found = function(z, y)
        assert found.shape == z.shape
        found += 1.0
        np.testing.assert_array_equal(z, kept[0])
        np.testing.assert_array_equal(y, kept[1])


def test_errors_are_wrong_signs_or_squares():
    z, y = np.array([[-0.1, 0.0, 0.1, -3.0, 0.0, 3.0]]), np.array([1.0, 1, 1, -1, -1, -1])
    for name in ("logistic", "hinge"):  # a score of 0 is no 1
        assert objective(name).error(z, y).tolist() == [[1.0, 1.0, 0.0, 0.0, 0.0, 1.0]]
    np.testing.assert_allclose(objective("squared").error(z, y), (z - y) ** 2)


def test_names():
    assert NAMES == ("squared", "logistic", "hinge")
    assert all(isinstance(each, Objective) for each in OBJECTIVES.values())
    assert [objective(name).name for name in NAMES] == list(NAMES)
    assert [objective(name).classifies for name in NAMES] == [False, True, True]
    assert all(objective(name).distance > 0 for name in NAMES)
    for wrong in ("Squared", "", "svm", None):
        with pytest.raises(UnknownName, match=r"no objective .* from squared, logistic, hinge"):
            objective(wrong)
