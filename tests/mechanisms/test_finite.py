"""A mechanism with finitely many outputs is its letters, its table and its values."""

from dataclasses import dataclass

import numpy as np
import pytest
from laws import Scripted

import fedldp
from fedldp.mechanisms import Finite


@dataclass(frozen=True)
class Uneven(Finite):
    """Five outputs, of which the first and the last never occur."""

    name = "uneven"

    epsilon: float = 2.0

    letters = np.array([-1.0, 0.0, 1.0])
    values = np.array([-4.0, -2.0, 0.0, 2.0, 4.0])
    table = np.array([[0, 10, 4, 2, 0], [0, 5, 6, 5, 0], [0, 2, 4, 10, 0]]) / 16


@pytest.mark.parametrize("x", [-1.0, -0.5, 0.0, 0.3, 1.0])
def test_a_number_u_gives_the_output_whose_share_it_lies_in(x):
    """All of 4096 equally spaced u: each output comes out as often as its probability says."""
    words = [(2 * i + 1) << 51 for i in range(4096)]
    drawn = Uneven().perturb(np.full(4096, x), Scripted(words))
    assert np.all(np.diff(drawn) >= 0)
    shares = [np.mean(drawn == value) for value in Uneven.values]
    np.testing.assert_allclose(shares, Uneven().probabilities(x), atol=1 / 4096)


@pytest.mark.parametrize(("word", "output"), [(0, -2.0), (2**64 - 1, 2.0)])
def test_outputs_of_probability_0_never_occur(word, output):
    for x in np.linspace(-1.0, 1.0, 101):
        assert Uneven().perturb(x, Scripted([word])) == output


def test_the_channel_has_the_outputs_that_occur():
    channel = Uneven().channel()
    assert channel.values.tolist() == [-2.0, 0.0, 2.0]
    assert fedldp.audit.exact(channel).holds
