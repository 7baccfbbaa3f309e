"""What every objective must do: losses, slopes and errors, against plain formulas and each other.

A new objective is tested by its entry in `OBJECTIVES`, and by its formulas here.
"""

import math

import numpy as np
import pytest
from fleets import slope
from hypothesis import given
from hypothesis import strategies as st

from fedldp.errors import UnknownName
from fedldp.learn.objectives import OBJECTIVES, Objective, objective

FORMULAS = {  # the loss of a score z and a target y
    "squared": lambda z, y: (z - y) ** 2 / 2,
    "logistic": lambda z, y: max(0.0, -y * z) + math.log1p(math.exp(-abs(z))),
    "hinge": lambda z, y: max(0.0, 1 - y * z),
}
SCORES = st.floats(-50.0, 50.0)
STEP = 1e-5

every = pytest.mark.parametrize("chosen", OBJECTIVES.values(), ids=OBJECTIVES)
classifying = pytest.mark.parametrize(
    "chosen", [each for each in OBJECTIVES.values() if each.classifies], ids=lambda each: each.name
)


def targets(chosen):
    return st.sampled_from([-1.0, 1.0]) if chosen.classifies else st.floats(-1.0, 1.0)


def one(function, z, y):
    found = function(np.array([[z]]), np.array([y]))
    assert found.shape == (1, 1)
    return float(found[0, 0])


def test_the_registry():
    assert set(OBJECTIVES) == set(FORMULAS)
    for name, each in OBJECTIVES.items():
        assert isinstance(each, Objective)
        assert each.name == name
        assert each.distance > 0
        assert objective(name) is each
    for wrong in ("Squared", "", "svm", None):
        with pytest.raises(UnknownName, match=r"no objective .* from squared, logistic, hinge"):
            objective(wrong)


@every
@given(z=SCORES, data=st.data())
def test_losses_and_slopes_are_the_formulas(chosen, z, data):
    y = data.draw(targets(chosen))
    wanted = FORMULAS[chosen.name](z, y)
    assert one(chosen.loss, z, y) == pytest.approx(wanted, rel=1e-12, abs=1e-15)
    assert one(chosen.slope, z, y) == pytest.approx(slope(chosen.name, z, y), abs=1e-15)


@every
@given(z=SCORES, data=st.data())
def test_a_slope_lies_between_those_on_both_sides(chosen, z, data):
    """Where the loss has a derivative, they are equal but for the step."""
    y = data.draw(targets(chosen))
    low, at, high = (one(chosen.loss, each, y) for each in (z - STEP, z, z + STEP))
    left, right = (at - low) / STEP, (high - at) / STEP
    assert left - 1e-5 <= one(chosen.slope, z, y) <= right + 1e-5


@every
@given(z=SCORES, other=SCORES, data=st.data())
def test_a_loss_is_convex_and_its_slope_a_subgradient(chosen, z, other, data):
    y = data.draw(targets(chosen))
    line = one(chosen.loss, z, y) + one(chosen.slope, z, y) * (other - z)
    assert one(chosen.loss, other, y) >= line - 1e-9 * (1 + abs(line))


@classifying
def test_slopes_of_classifiers_stay_within_the_default_bound(chosen):
    """So that with features in [-1, 1] a bound of 1 clips nothing, at any score."""
    z = np.array([[-math.inf, -1e300, -800.0, -1.0, 0.0, 1.0, 800.0, 1e300, math.inf]])
    for y in (-1.0, 1.0):
        slopes = chosen.slope(z, np.full(9, y))
        assert np.all(np.abs(slopes) <= 1.0)
        assert np.all(slopes * y <= 0.0)
        assert slopes[0, 0 if y > 0 else -1] == -y
        assert slopes[0, -1 if y > 0 else 0] == 0.0


@every
def test_single_precision_is_as_good_as_it_can_be(chosen):
    z = np.linspace(-30, 30, 601, dtype=np.float32)[None]
    for y in (-1.0, 1.0):
        wanted = [slope(chosen.name, float(each), y) for each in z[0]]
        found = chosen.slope(z, np.full(601, y, np.float32))
        np.testing.assert_allclose(found[0], wanted, atol=2e-7, rtol=2e-7)


@every
def test_scores_and_targets_are_not_written_to(chosen):
    z, y = np.array([[0.3, -2.0], [1.0, 0.0]]), np.array([1.0, -1.0])
    kept = z.copy(), y.copy()
    for function in (chosen.slope, chosen.loss, chosen.error):
        found = function(z, y)
        assert found.shape == z.shape
        found += 1.0
        np.testing.assert_array_equal(z, kept[0])
        np.testing.assert_array_equal(y, kept[1])


@every
def test_errors_are_wrong_signs_or_squares(chosen):
    z, y = np.array([[-0.1, 0.0, 0.1, -3.0, 0.0, 3.0]]), np.array([1.0, 1, 1, -1, -1, -1])
    if chosen.classifies:  # a score of 0 predicts the first label
        assert chosen.error(z, y).tolist() == [[1.0, 1.0, 0.0, 0.0, 0.0, 1.0]]
    else:
        np.testing.assert_allclose(chosen.error(z, y), (z - y) ** 2)
