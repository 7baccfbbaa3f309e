"""Whether a model beats the base rate: measured on public rows, and said plainly."""

import numpy as np
import pytest

import fedldp
from fedldp.learn import Comparison

LABELS = np.tile(["no", "no", "yes"], 100)


def test_labels():
    found = Comparison.of_labels(LABELS, LABELS)
    assert (found.error, found.base_rate, found.rows) == (0.0, pytest.approx(1 / 3), 300)
    assert found.gain == pytest.approx(1 / 3)
    assert found.margin == pytest.approx(1.96 * np.std(LABELS == "yes", ddof=1) / 300**0.5)
    assert found.beats_base_rate
    assert "It beats the base rate." in str(found)


def test_always_the_same_answer_gains_nothing():
    found = Comparison.of_labels(LABELS, np.full(300, "no"))
    assert (found.gain, found.margin, found.beats_base_rate) == (0.0, 0.0, False)
    assert "always giving the same answer does as well" in found.verdict


def test_a_small_gain_is_not_certain():
    predicted = np.full(300, "no", "U3")
    predicted[2] = "yes"  # one label that the base rate misses
    found = Comparison.of_labels(LABELS, predicted)
    assert found.gain > 0
    assert not found.beats_base_rate
    assert "may do, as far as these rows can tell," in found.verdict


@pytest.mark.parametrize("wild", [np.nan, np.inf, 1e300])
def test_numbers_that_have_overflowed(wild):
    found = Comparison.of_numbers([1.0, 2.0, 3.0], [wild] * 3)
    assert not found.beats_base_rate
    assert "not better than the base rate" in str(found)


def test_one_row_proves_nothing():
    assert not Comparison.of_labels(["a"], ["a"]).beats_base_rate


def test_numbers():
    found = Comparison.of_numbers([0.0, 2.0], [0.0, 1.0])
    assert (found.error, found.base_rate, found.gain) == (0.5, 1.0, 0.5)


@pytest.mark.parametrize("kind", [fedldp.LDPLogisticRegression, fedldp.LDPLinearSVC])
def test_estimators_say_so(kind):
    """A label that follows a number, and one that does not."""
    x = fedldp.source(1).uniform((8000, 2))
    follows, random = x[:, 0] > 0.5, fedldp.source(2).uniform(8000) > 0.5
    for labels, beats in ((follows, True), (random, False)):
        model = kind(epsilon=4.0, bounds=(0, 1), random_state=1).fit(x[:7000], labels[:7000])
        found = model.compare(x[7000:], labels[7000:])
        assert found.beats_base_rate == beats
        assert found.error == pytest.approx(1 - model.score(x[7000:], labels[7000:]))


def test_a_regression_says_so():
    x = fedldp.source(1).uniform((8000, 1))
    model = fedldp.LDPLinearRegression(
        epsilon=4.0, bounds=(0, 1), target_bounds=(0, 10), random_state=1
    ).fit(x, 10 * x[:, 0])
    found = model.compare(x, 10 * x[:, 0])
    assert found.beats_base_rate
    assert 1 - found.error / found.base_rate == pytest.approx(model.score(x, 10 * x[:, 0]))
