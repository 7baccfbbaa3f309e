"""The law of one answer: bounds that follow from it, against direct computation."""

import numpy as np
import pytest

import fedldp
from fedldp.coders.laws import Law


def irregular_law(seed):
    """Return a law without any symmetry, whose variances rise and fall from letter to letter."""
    rng = np.random.default_rng(seed)
    letters, values = np.sort(rng.uniform(-1, 1, 9)), np.sort(rng.uniform(-3, 2, 5))
    return Law(letters, values, rng.dirichlet(np.ones(5), 9))


@pytest.mark.parametrize("seed", range(5))
def test_the_least_noise_is_that_of_the_best_pair_of_letters(seed):
    law = irregular_law(seed)
    x, noise = law.letters, law.variances
    for mean in np.linspace(x[0], x[-1], 41):
        pairs = [
            noise[i] + (noise[j] - noise[i]) * (mean - x[i]) / (x[j] - x[i] or 1.0)
            for i in range(x.size)
            for j in range(i, x.size)
            if x[i] <= mean <= x[j]
        ]
        assert law.least_noise(mean) == pytest.approx(min(pairs), rel=1e-12)


def test_a_mean_too_low_is_as_unlikely_as_its_mirror_image_is_high():
    law = Law.of_indicator(0.7, 0.2, 0.5)
    mirrored = Law(-law.letters[::-1], -law.values[::-1], law.table[::-1, ::-1])
    m, mean = np.full(6, 400.0), np.array([-0.3, -0.1, 0.0, 0.5, 1.1, 1.3])
    high, low = law.beyond(m, mean)
    assert low == pytest.approx(mirrored.beyond(m, -mean)[0], rel=1e-9)
    assert high == pytest.approx(mirrored.beyond(m, -mean)[1], rel=1e-9)
    assert (low < 1).tolist() == [True, True, False, False, False, False]
    assert (high < 1).tolist() == [False, False, False, False, True, True]


@pytest.mark.parametrize("name", ["duchi", "three-outputs", "hm-tp"])
def test_the_farthest_answer_is_as_far_as_a_value_reaches(name):
    channel = fedldp.mechanism(name, epsilon=1.0).channel()
    assert channel.reach == max(abs(y - x) for y in channel.values for x in (-1.0, 1.0))
