"""What the defaults gain over the paper's best, from exact errors: a comparison without noise."""

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import fedldp
from fedldp.plan.strategies import Sample

EPSILONS, MEANS, ATTRIBUTES, SPREAD = (0.5, 1.0, 2.0, 4.0), (0.0, 1 / 3, 2 / 3, 1.0), 16, 0.25


def gaussian(mu):
    """The paper's data, N(mu, 1/16) truncated to [-1, 1], by evenly spread quantiles."""
    low, high = ndtr((-1 - mu) / SPREAD), ndtr((1 - mu) / SPREAD)
    u = (np.arange(20_000) + 0.5) / 20_000
    column = np.clip(mu + SPREAD * ndtri(low + (high - low) * u), -1, 1)
    return np.repeat(column[:, None], ATTRIBUTES, axis=1)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_defaults_are_nowhere_worse_than_the_paper(epsilon):
    schema = fedldp.Schema.vector(ATTRIBUTES, bound=1.0)
    paper = fedldp.Plan(schema, epsilon, Sample(k="paper", mechanism="hm-tp"))
    default = fedldp.Plan(schema, epsilon)
    gains = {
        mu: paper.expected_error(1, gaussian(mu), estimator="horvitz-thompson")
        / default.expected_error(1, gaussian(mu))
        for mu in MEANS
    }
    # Where both are Duchi's mechanism and the mean is 0, they are equal.
    assert min(gains.values()) > 1 - 1e-6
    if epsilon == 4.0:
        assert gains[2 / 3] > 3.3
        assert gains[1.0] > 4.5
