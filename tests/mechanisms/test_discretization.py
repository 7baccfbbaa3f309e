"""From mechanisms to channels: the outputs they get, and what the exact form costs in accuracy."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from laws import SWITCHES, continuous_part
from scipy import integrate

import fedldp
from fedldp.coders import tables
from fedldp.coders.channel import exact_channel
from fedldp.errors import DomainError

FINITE = ("duchi", "three-outputs", "three-outputs-flat")
PIECEWISE = ("pm", "pm-sub", "pm-opt", "hm", "hm-tp")
every_mechanism = pytest.mark.parametrize("name", FINITE + PIECEWISE)
every_piecewise = pytest.mark.parametrize("name", PIECEWISE)


@cache
def channel(name, epsilon, outputs=None):
    return fedldp.mechanism(name, epsilon).channel(outputs)


# Outputs and letters


@pytest.mark.parametrize("name", ["pm-sub", "hm-tp"])
@pytest.mark.parametrize("epsilon", [0.7, 1.0, 4.0])
def test_discretization_is_the_integral_against_hat_functions(name, epsilon):
    m, c = fedldp.mechanism(name, epsilon), channel(name, epsilon, 15)
    np.testing.assert_allclose(c.values, np.linspace(-m.bound, m.bound, 15), atol=1e-14)
    pitch = 2 * m.bound / 14
    for i in (0, 3, 16, 21, len(c.letters) - 1):
        x = float(c.letters[i])
        edges = continuous_part(m).window(x)
        for j, z in enumerate(c.values.tolist()):

            def hat(y, z=z):
                return np.maximum(1 - np.abs(y - z) / pitch, 0)

            low, high = max(z - pitch, -m.bound), min(z + pitch, m.bound)
            breaks = [low, *sorted(e for e in (z, *edges) if low < e < high), high]
            mass = float(np.sum(m.probabilities(x) * hat(m.values)))
            for a, b in pairwise(breaks):
                mass += integrate.quad(lambda y, x=x, f=hat: m.density(y, x) * f(y), a, b)[0]
            assert c.table[i, j] == pytest.approx(mass, abs=1e-9)


@every_piecewise
def test_every_odd_number_of_outputs_from_3_to_4001(name):
    for outputs in (3, 5, 7, 99, 1001, 4001):
        assert channel(name, 1.0, outputs).outputs == outputs


@every_piecewise
def test_letters_are_as_many_as_the_variance_asks_for(name):
    """Evenly spaced; 33 are enough for epsilon 1, 257 are needed for 8."""
    for epsilon, letters in ((0.7, 33), (1.0, 33), (8.0, 257)):
        for outputs in (None, 15):
            found = channel(name, epsilon, outputs).letters
            np.testing.assert_array_equal(found, np.linspace(-1, 1, letters))


@pytest.mark.parametrize("name", ["hm", "hm-tp"])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 0.6])
def test_hybrids_below_their_switch_are_duchi(name, epsilon):
    duchi = channel("duchi", epsilon)
    for outputs in (None, 3, 2001):
        assert channel(name, epsilon, outputs).fingerprint == duchi.fingerprint


def test_laplace_has_no_channel():
    for outputs in (None, 31):
        with pytest.raises(DomainError, match="laplace has no channel: its output has no bound"):
            fedldp.mechanisms.Laplace(1.0).channel(outputs)


@every_piecewise
@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_refuses_a_wrong_number_of_outputs(name, epsilon):
    m = fedldp.mechanism(name, epsilon)
    for outputs in (4, 30, 1, 0, -3, 4003, True):
        with pytest.raises(DomainError, match="outputs must be an odd number from 3 to 4001; got"):
            m.channel(outputs)
    for outputs in (31.0, 31.5, "31", [31]):
        with pytest.raises(DomainError, match="outputs must be a whole number; got"):
            m.channel(outputs)


@pytest.mark.parametrize("name", FINITE)
def test_few_outputs_are_what_they_are(name):
    m = fedldp.mechanism(name, 1.0)
    own = m.channel()
    assert own.outputs == (2 if name == "duchi" else 3)
    assert m.channel(own.outputs) == own
    for outputs in (1, 4, 31):
        with pytest.raises(DomainError, match=r"outputs at this epsilon; got outputs=.*Leave"):
            m.channel(outputs)
    with pytest.raises(DomainError, match="outputs must be a whole number; got '3'"):
        m.channel("3")


@every_mechanism
def test_refuses_an_epsilon_above_16(name):
    outputs = 3 if name in PIECEWISE else None
    assert fedldp.mechanism(name, 16.0).channel(outputs).epsilon == 16
    with pytest.raises(DomainError, match=r"epsilon must be a number from 0\.001 to 16; got 17\."):
        fedldp.mechanism(name, 17.0).channel(outputs)


@pytest.mark.parametrize(
    ("row", "least", "most", "balanced"),
    [
        ([4, 2, 4], [1, 1, 1], [9, 4, 9], [4, 4, 4]),  # the middle takes it all
        ([4, 6, 4], [1, 4, 1], [9, 9, 9], [4, 4, 4]),
        ([4, 3, 4], [1, 1, 1], [9, 4, 9], [6, 4, 6]),  # or what is odd, as far as it has room
        ([4, 4, 4], [1, 1, 1], [9, 4, 9], [6, 3, 6]),
        ([1, 2, 2, 1], [1, 1, 1, 1], [9, 9, 9, 9], [1, 3, 3, 1]),
        ([1, 2, 2, 1], [1, 1, 1, 1], [9, 5, 5, 9], [1, 5, 5, 1]),  # those closest to 0
        ([1, 2, 2, 1], [1, 1, 1, 1], [9, 4, 4, 9], [4, 2, 2, 4]),  # that have room for all of it
        ([5, 3, 3, 5], [1, 1, 1, 1], [9, 9, 9, 9], [5, 1, 1, 5]),
        ([5, 3, 3, 5], [1, 2, 2, 1], [9, 9, 9, 9], [3, 3, 3, 3]),
    ],
)
def test_the_row_of_zero_is_balanced_within_its_limits(row, least, most, balanced):
    counts = np.array(row)
    values = np.arange(len(row)) - (len(row) - 1) / 2
    tables._balance(values, counts, np.array(least), np.array(most), sum(balanced))
    assert counts.tolist() == balanced


@pytest.mark.parametrize(
    ("room", "place"), [([9, 9, 3, 9], 2), ([9, 9, 2, 9], 3), ([9, 9, 2, 2], 1)]
)
def test_what_a_row_lacks_goes_to_the_closest_output_with_room(room, place):
    assert tables._closest(np.array([-3.0, -1.0, 1.0, 3.0]), 1.2, np.array(room), 3) == place


# Costs


@every_mechanism
@pytest.mark.parametrize("epsilon", [1.5, 9.0])
def test_variance_against_brute_force(name, epsilon):
    c = channel(name, epsilon, 15 if name in PIECEWISE else None)
    x = np.linspace(-1, 1, 4001)
    # Rounding to a letter makes the law linear between letters.
    law = np.array([np.interp(x, c.letters, column) for column in c.table.T])
    brute = np.sum(law * (c.values[:, None] - x) ** 2, axis=0)
    np.testing.assert_allclose(c.variance(x), brute, rtol=1e-11)
    assert brute.max() * (1 - 1e-12) <= c.worst_case_variance <= brute.max() * (1 + 1e-5)
    assert isinstance(c.variance(0.25), float)


@every_piecewise
def test_default_outputs_and_integers_cost_little(name):
    for epsilon in [*np.geomspace(0.05, 12, 20).tolist(), 0.65, 4.16, 4.78, 9.1]:
        m = fedldp.mechanism(name, epsilon)
        c = m.channel()
        assert c.worst_case_variance <= 1.005 * m.worst_case_variance, epsilon
        if continuous_part(m) is None:
            continue
        assert c.outputs == min(2**c.bits - 1, 4001)  # a full code, and one in the middle
        ideal = m.on_grid(c.letters, c.values)

        def variance(x, c=c, ideal=ideal):
            return tables.variance(c.letters, c.values, ideal, x)

        worst = tables.largest_piecewise_quadratic(variance, c.letters)
        assert c.worst_case_variance == pytest.approx(worst, rel=1e-9)  # 3e-6 is what is promised
        np.testing.assert_allclose(c.variance(c.letters), variance(c.letters), rtol=1e-9)


@every_piecewise
def test_rounding_x_costs_less_than_a_five_hundredth(name):
    for epsilon in (0.65, 2.0, 6.01, 7.57):
        m = fedldp.mechanism(name, epsilon)
        c = m.channel()
        last = 16 * (len(c.letters) - 1)
        letters = np.arange(last + 1) * 2 / last - 1
        fine = exact_channel(epsilon, letters, c.values, m.on_grid(letters, c.values))
        assert fine.worst_case_variance <= c.worst_case_variance
        assert c.worst_case_variance < 1.002 * fine.worst_case_variance


@pytest.mark.parametrize("name", FINITE)
def test_few_outputs_compile_without_loss(name):
    x = np.linspace(-1, 1, 101)
    for epsilon in (0.001, *SWITCHES, *np.geomspace(0.01, 16, 30).tolist()):
        m, c = fedldp.mechanism(name, epsilon), channel(name, epsilon)
        assert c.outputs == np.count_nonzero(m.table.any(axis=0))
        np.testing.assert_allclose(
            c.variance(x), m.variance(x), rtol=0, atol=1e-12 * m.worst_case_variance
        )
        assert c.worst_case_variance == pytest.approx(m.worst_case_variance, rel=1e-12)
