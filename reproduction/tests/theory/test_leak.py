"""A clipped gradient names its row, a report does not."""

from math import exp

import numpy as np
import pytest
from theory_results import computed

import fedldp
from fedldp_reproduction.theory import leak


def test_every_row_follows_from_its_gradient():
    people = leak.fleet()
    features, labels = leak.reconstructed(people.gradients)
    assert features == pytest.approx(people.features, abs=1e-9)
    assert (labels == people.targets).all()
    assert np.abs(people.gradients).max() <= 1


@pytest.mark.parametrize("epsilon", leak.EPSILONS)
def test_the_best_attacker_is_as_good_as_privacy_allows_at_most(epsilon):
    gradients = leak.fleet().gradients
    n = len(gradients)
    assert 1 / n < leak.named(epsilon, gradients) <= exp(epsilon) / n


def test_the_chance_to_name_a_row_is_that_of_an_attack():
    """An attack on 40,000 reports of four rows; false alarm 1e-6 at 4.9 standard deviations."""
    gradients, epsilon = np.array([[1.0, -1.0], [0.3, 0.2], [-0.4, 0.9], [-1.0, 0.0]]), 2.0
    random, reports = fedldp.source(3), 40_000
    chosen = fedldp.mechanism("three-outputs", epsilon)
    rows, columns = random.below(4, reports), random.below(2, reports)
    sent = chosen.perturb(gradients[rows, columns], random)
    right = 0
    for column in (0, 1):
        laws = chosen.probabilities(gradients[:, column])
        for place, output in enumerate(chosen.values):
            got = (columns == column) & np.isclose(sent, output)
            right += int((rows[got] == laws[:, place].argmax()).sum())
    chance = leak.named(epsilon, gradients)
    assert right / reports == pytest.approx(chance, abs=4.9 * 0.5 / reports**0.5)


def test_more_epsilon_tells_more():
    people = leak.fleet()
    for chance in (
        [leak.named(each, people.gradients) for each in (1.0, 4.0, 12.0)],
        [leak.guessed(each, people.gradients, people.targets) for each in (1.0, 4.0, 12.0)],
    ):
        assert chance == sorted(chance)


def test_the_reconstruction_from_a_report_is_hardly_better_than_a_guess():
    people = leak.fleet()
    guess = np.sqrt(people.features.var(axis=0).mean())
    misses = [leak.missed(each, people.gradients, people.features) for each in (1.0, 4.0, 12.0)]
    assert misses == sorted(misses, reverse=True)
    assert 0.97 * guess < misses[1] < misses[0] < guess


def test_the_error_of_the_reconstruction_is_that_of_an_attack():
    """Four rows, whose reports an attacker averages; false alarm 1e-6 at 4.9 standard errors."""
    gradients, epsilon = np.array([[1.0, -1.0], [0.3, 0.2], [-0.4, 0.9], [-1.0, 0.0]]), 2.0
    features = np.array([[1.0, 0.2], [0.4, -0.9], [0.3, 0.5], [-1.0, 0.1]])
    random, reports = fedldp.source(4), 40_000
    chosen = fedldp.mechanism("three-outputs", epsilon)
    rows, columns = random.below(4, reports), random.below(2, reports)
    sent = chosen.perturb(gradients[rows, columns], random)
    squares = np.empty(reports)
    for column in (0, 1):
        laws = chosen.probabilities(gradients[:, column])
        for place, output in enumerate(chosen.values):
            got = (columns == column) & np.isclose(sent, output)
            mean = laws[:, place] @ features / laws[:, place].sum()
            squares[got] = ((features[rows[got]] - mean) ** 2).mean(axis=1)
    expected = leak.missed(epsilon, gradients, features) ** 2
    assert squares.mean() == pytest.approx(expected, abs=4.9 * squares.std() / reports**0.5)


def test_the_figure_says_so():
    result = computed("leak")
    assert all(each.holds for each in result.verdicts)
    assert result.synthetic
    assert {point.series for point in result.points} == {
        "clipped gradient",
        "at most: e^ε / rows",
        "report",
        "guess",
    }
