"""What every objective must do: losses, slopes and errors, against plain formulas and each other.

A new objective is tested by its entry in `OBJECTIVES`. Add its loss to `FORMULAS`, and its slope to
`SLOPES` in tests/helpers/fleets.py.
"""

import math

import numpy as np
import pytest
from fleets import SLOPES
from hypothesis import given
from hypothesis import strategies as st

from fedldp.errors import DomainError, UnknownName
from fedldp.learn.objectives import OBJECTIVES, Objective, Softmax, objective
from fedldp.schema.attributes import Category, Number

FORMULAS = {  # the loss of a score z and a target y
    "squared": lambda z, y: (z - y) ** 2 / 2,
    "logistic": lambda z, y: max(0.0, -y * z) + math.log1p(math.exp(-abs(z))),
    "hinge": lambda z, y: max(0.0, 1 - y * z),
}
SCORES = st.floats(-50.0, 50.0)
STEP = 1e-5

ONE = {name: each for name, each in OBJECTIVES.items() if each.outputs == 1}
every = pytest.mark.parametrize("chosen", ONE.values(), ids=ONE)
classifying = pytest.mark.parametrize(
    "chosen", [each for each in ONE.values() if each.classifies], ids=lambda each: each.name
)
labels = pytest.mark.parametrize("outputs", [2, 3, 7])


def targets(chosen):
    return st.sampled_from([-1.0, 1.0]) if chosen.classifies else st.floats(-1.0, 1.0)


def one(function, z, y):
    found = function(np.array([[z]]), np.array([y]))
    assert found.shape == (1, 1)
    return float(found[0, 0])


def test_the_registry():
    assert set(OBJECTIVES) == {*FORMULAS, "softmax"}
    for name, each in OBJECTIVES.items():
        assert isinstance(each, Objective)
        assert each.name == name
        assert each.distance > 0
        assert objective(name) is each
    for wrong in ("Squared", "", "svm", None):
        with pytest.raises(UnknownName, match=f"no objective .* from {', '.join(OBJECTIVES)}"):
            objective(wrong)


@every
@given(z=SCORES, data=st.data())
def test_losses_and_slopes_are_the_formulas(chosen, z, data):
    y = data.draw(targets(chosen))
    wanted = FORMULAS[chosen.name](z, y)
    assert one(chosen.loss, z, y) == pytest.approx(wanted, rel=1e-12, abs=1e-15)
    assert one(chosen.slope, z, y) == pytest.approx(SLOPES[chosen.name](z, y), abs=1e-15)


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
        wanted = [SLOPES[chosen.name](float(each), y) for each in z[0]]
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


# Several labels


def several(outputs, rows=6, seed=1):
    draw = np.random.default_rng(seed)
    return draw.normal(size=(2, rows, outputs)) * 3, draw.integers(0, outputs, rows).astype(float)


@labels
def test_softmax_is_the_formula(outputs):
    z, y = several(outputs)
    chosen = Softmax(outputs)
    for model, found in zip(z, chosen.loss(z, y), strict=True):
        for row, target, loss in zip(model, y, found, strict=True):
            wanted = math.log(sum(math.exp(each) for each in row)) - row[int(target)]
            assert loss == pytest.approx(wanted, abs=1e-12)
    assert chosen.decide(z).tolist() == [
        [max(range(outputs), key=r.__getitem__) for r in m] for m in z
    ]
    assert chosen.error(z, y).tolist() == (z.argmax(axis=2) != y).astype(float).tolist()
    np.testing.assert_allclose(chosen.probabilities(z).sum(axis=2), 1.0)


@labels
def test_slopes_of_softmax_are_what_finite_differences_give(outputs):
    z, y = several(outputs)
    slopes = Softmax(outputs).slope(z, y)
    np.testing.assert_allclose(slopes.sum(axis=2), 0.0, atol=1e-12)
    for place in range(outputs):
        moved = np.where(np.arange(outputs) == place, STEP, 0.0)
        up, down = (Softmax(outputs).loss(z + way, y) for way in (moved, -moved))
        np.testing.assert_allclose(slopes[:, :, place], (up - down) / (2 * STEP), atol=1e-8)


@labels
def test_curvature_of_softmax_where_it_is_known(outputs):
    """Where all labels are equally likely, and for two labels of any probability."""
    z, y = np.zeros((1, 1, outputs)), np.zeros(1)
    chosen = Softmax(outputs)
    length = np.linalg.norm(chosen.slope(z, y))
    assert chosen.first_slope == pytest.approx(length)
    p = np.full(outputs, 1 / outputs)
    matrix = np.diag(p) - np.outer(p, p)
    across = np.eye(outputs)[0] - np.eye(outputs)[1]  # adds up to 0
    wanted = across @ matrix @ across / 2
    assert chosen.curvature(np.array([length]))[0] == pytest.approx(wanted)
    for q in (0.1, 0.3, 0.5):
        mean = math.sqrt(2) * 2 * q * (1 - q)  # of the length of slopes
        found = Softmax(2).curvature(np.array([mean]))[0]
        assert found == pytest.approx(2 * q * (1 - q))


def test_extreme_scores_of_softmax():
    z = np.array([[[1e300, -1e300, 0.0], [800.0, 0.0, -800.0]]])
    y = np.array([0.0, 2.0])
    assert Softmax(3).slope(z, y).tolist() == [[[0.0, 0.0, 0.0], [1.0, 0.0, -1.0]]]
    assert Softmax(3).loss(z, y).tolist() == [[0.0, 1600.0]]


def test_targets_of_softmax():
    gait = Category("gait", ["stand", "walk", "run"], missing="walk")
    chosen = objective("softmax").for_target(gait)
    assert chosen == Softmax(3)
    assert chosen.targets(gait, np.array([2.0, np.nan, 0.0])).tolist() == [2.0, 1.0, 0.0]
    assert chosen.constant(np.array([2.0, 2.0, 0.0, 1.0])).tolist() == [0.25, 0.25, 0.5]
    assert chosen.base_rate(np.array([2.0, 2.0, 0.0, 1.0])) == 0.5
    with pytest.raises(DomainError, match="must be a category"):
        objective("softmax").for_target(Number("y", 0, 1))
    for wrong in (1, 0, 2.0, True, None):
        with pytest.raises(DomainError, match="outputs"):
            objective("softmax").with_outputs(wrong)


@every
def test_base_rates(chosen):
    y = np.array([1.0, 1.0, -1.0, 1.0])
    wanted = 0.25 if chosen.classifies else 0.75
    assert chosen.base_rate(y) == pytest.approx(wanted)
    assert chosen.with_outputs(1) is chosen
    with pytest.raises(DomainError, match="1 output"):
        chosen.with_outputs(2)
