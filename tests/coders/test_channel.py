"""Channels: exactly private by enumeration in integers, what can be built, encode and decode."""

import copy
import dataclasses
import pickle
from fractions import Fraction
from functools import cache
from itertools import product
from math import log
from operator import mul

import mpmath as mp
import numpy as np
import pytest
from laws import CLOSED, SOLVED, SWITCHES, Scripted, continuous_part
from scipy import stats

import fedldp
from fedldp import Channel
from fedldp.errors import DomainError, PrivacyError
from fedldp.mechanisms import Duchi

BOUNDED = tuple(name for name in CLOSED if name != "laplace")
PIECEWISE = ("pm", "pm-sub", "pm-opt", "hm", "hm-tp")
OUTPUTS = (3, 15, 31, 127)
# 40 of them from 0.01 to 12, those included where a formula changes.
EPSILONS = sorted(
    [*SWITCHES, *np.geomspace(0.01, 12, 17).tolist(), *np.linspace(0.3, 11.7, 17).tolist()]
)

TINY = Channel(1.0, [[8, 4, 4], [6, 4, 6], [4, 4, 8]], [-1.0, 0.0, 1.0], [-4.0, 0.0, 4.0])


@cache
def channel(name, epsilon, outputs=None):
    return fedldp.mechanism(name, epsilon).channel(outputs)


def each_channel(name, epsilons, outputs):
    """The mechanism's continuous part, if it is used, and its channel; not kept in memory."""
    for epsilon in epsilons:
        m = fedldp.mechanism(name, epsilon)
        part = continuous_part(m)
        for number in outputs if part else (None,):
            yield part, m.channel(number)


# Exactness, by means that are not the library's own


def scaled_exp(epsilon, factor):
    """The integer part of factor e^epsilon, where epsilon is the decimal number as written."""
    with mp.workdps(120):
        return int(mp.floor(mp.exp(mp.mpf(repr(epsilon))) * factor))


def shortfall(c):
    """How much of its epsilon a channel leaves unused; refuses one that uses more."""
    limit, ratios = scaled_exp(c.epsilon, 1 << 200), []
    for column in c.counts.T.tolist():
        least, largest = min(column), max(column)
        assert least > 0
        assert largest << 200 <= limit * least
        ratios.append(Fraction(largest, least))
    with mp.workdps(60):
        true = mp.log(max(ratios).numerator) - mp.log(max(ratios).denominator)
        return float(mp.mpf(repr(c.epsilon)) - true)


@pytest.mark.parametrize("name", BOUNDED)
def test_true_epsilon_is_at_most_the_nominal_one_and_falls_hardly_short(name):
    assert len(EPSILONS) == 40
    for part, c in each_channel(name, EPSILONS, OUTPUTS):
        unused = shortfall(c)
        assert unused >= 0
        if part is None or part.t <= c.outputs - 2:
            assert unused < 1e-6, (c.epsilon, c.outputs)


@pytest.mark.parametrize("name", PIECEWISE)
def test_true_epsilon_with_the_papers_2001_outputs(name):
    for _, c in each_channel(name, (0.65, 4.0, 8.0), (2001,)):
        assert (c.outputs, c.bits) == (2001, 11)
        assert 0 <= shortfall(c) < 1e-6


def bias(c):
    """The largest exact error of the mean at a letter, relative to the largest value."""
    values = [Fraction(value) for value in c.values.tolist()]
    scale = max(value.denominator for value in values)  # a power of two, as they all are
    scaled = [int(value * scale) for value in values]
    return max(
        abs(Fraction(sum(map(mul, row, scaled)), c.total * scale) - Fraction(letter))
        for row, letter in zip(c.counts.tolist(), c.letters.tolist(), strict=True)
    ) / Fraction(c.values[-1])


@pytest.mark.parametrize("name", BOUNDED)
def test_rows_symmetry_bits_and_exact_means(name):
    for _, c in each_channel(name, EPSILONS[::3], OUTPUTS):
        assert set(map(sum, c.counts.tolist())) == {c.total}
        assert c.total.bit_count() == 1
        np.testing.assert_array_equal(c.counts, c.counts[::-1, ::-1])
        np.testing.assert_allclose(c.values, -c.values[::-1], rtol=1e-14)
        np.testing.assert_array_equal(c.letters, -c.letters[::-1])
        assert 2 ** (c.bits - 1) < c.outputs <= 2**c.bits
        assert bias(c) <= Fraction(1, 2**40)


# Construction


@pytest.mark.parametrize("epsilon", [0.001, 0.1, log(2), 1.0, 16.0])
def test_the_bound_is_accepted_and_one_count_more_refused(epsilon):
    total, least = 1 << 60, 1 << 35
    largest = scaled_exp(epsilon, least)

    def build(most):
        row = [most, total - most - least, least]
        end = total / (most - least)
        return Channel(epsilon, [row, row[::-1]], [-1.0, 1.0], [-end, 0.0, end])

    assert build(largest).counts[0, 0] == largest
    with pytest.raises(PrivacyError) as refusal:
        build(largest + 1)
    assert (
        f"column 0 has a count {(largest + 1) / least:.17g} times the least, "
        f"more than e^{epsilon:g}: {largest + 1} and {least}"
    ) in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"counts": [[9, 4, 3], [6, 4, 6], [3, 4, 9]]}, PrivacyError, "column 0 has a count 3 tim"),
        ({"counts": [[4, 4, 8], [6, 5, 5], [8, 6, 2]]}, PrivacyError, "column 2 has a count 4 tim"),
        ({"counts": [[8, 0, 8], [6, 4, 6], [8, 0, 8]]}, PrivacyError, "column 1 .* beside a zero"),
        ({"counts": [[8, 4, 4], [6, 5, 6], [4, 4, 8]]}, PrivacyError, "row 1 is not made of"),
        ({"counts": [[-8, 4, 20], [6, 4, 6], [4, 4, 8]]}, PrivacyError, "row 0 is not made of"),
        ({"counts": [[9, 4, 4], [7, 4, 6], [4, 4, 9]]}, PrivacyError, "up to 17: no power of two"),
        ({"counts": [[0, 0, 0]] * 3}, PrivacyError, "adds up to 0"),
        ({"counts": [[1, 0, 0]] * 3}, PrivacyError, "adds up to 1"),
        ({"counts": TINY.counts << 59}, PrivacyError, "one of the wrong size"),
        ({"epsilon": 0.69}, PrivacyError, "column 0 has a count 2 times the least"),
        ({"counts": TINY.counts + 0.0}, DomainError, r"integers of at most 2\^62"),
        ({"counts": TINY.counts > 4}, DomainError, "integers of at most"),
        ({"counts": TINY.counts.astype(np.uint64) << 60}, DomainError, "integers of at most"),
        ({"counts": [[2**70, 4, 4]] * 3}, DomainError, "integers of at most"),
        ({"counts": [[8, 4, 4], [8, 8], [4, 4, 8]]}, DomainError, "in rows of one length"),
        (
            {"values": [-4, 0, 4.001]},
            DomainError,
            "unbiased at every letter; got a bias of 0.00025",
        ),
        ({"values": [-4 - 2**-35, 0, 4 + 2**-35]}, DomainError, "unbiased"),
        ({"epsilon": 0.0}, DomainError, "epsilon must be a number from"),
        ({"epsilon": "1"}, DomainError, "epsilon must be a number from"),
        (
            {"epsilon": 16.5},
            DomainError,
            r"epsilon must be a number from 0\.001 to 16; got 16\.5\.",
        ),
    ],
)
def test_what_is_not_a_channel_cannot_be_built(changes, error, said):
    with pytest.raises(error, match=said):
        dataclasses.replace(TINY, **changes)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("letters", [[-1, 1, 0], [-1, 1, 1], [-1, 0, 0.999], [-1.5, 0, 1], [-1, np.nan, 1]]),
        ("letters", [[-1, 1 - 2.0**-21, 1], [-1, 1], [[-1], [0], [1]]]),  # one too close to divide
        ("values", [[-4, 4, 0], [-4, 0, np.inf], [-4, np.nan, 4], [-4, 0, 0, 4], [[-4], [0], [4]]]),
        ("counts", [[8, 4, 4], [[8, 4, 4]], [TINY.counts]]),
    ],
)
def test_letters_and_values_ascend_with_a_count_for_each_pair(field, wrong):
    for each in wrong:
        with pytest.raises(DomainError, match="a channel needs ascending letters from -1 to 1"):
            dataclasses.replace(TINY, **{field: each})


def test_what_is_just_allowed():
    assert dataclasses.replace(TINY, counts=TINY.counts << 58).total == 2**62
    assert dataclasses.replace(TINY, values=TINY.values * (1 + 2.0**-43)).values[2] > 4
    a = 1 << 22
    counts = [[2 * a, a, a], [a + 2, a, 2 * a - 2], [a, a, 2 * a]]
    assert Channel(1.0, counts, [-1, 1 - 2.0**-20, 1], TINY.values).letters[1] < 1
    unused = Channel(1.0, [[8, 0, 4, 4], [4, 0, 4, 8]], [-1, 1], [-4, -1, 0, 4])
    assert set(unused.encode(np.zeros(1000), fedldp.source(1)).tolist()) == {0, 2, 3}


def of_many_outputs(n):
    """The upper half three times as likely at the letter 1, the lower half at -1."""
    row = np.repeat([1, 3], n // 2)
    values = (2 * np.arange(n) - (n - 1)) * (4 / n)
    return Channel(1.1, [row[::-1], row], [-1.0, 1.0], values)


def test_as_many_outputs_as_a_code_of_16_bits_can_name():
    c = of_many_outputs(1 << 16)
    codes = c.encode(np.ones(10_000), fedldp.source(1))
    assert codes.max() > 65_500
    assert np.mean(codes >= 1 << 15) == pytest.approx(0.75, abs=0.02)
    with pytest.raises(DomainError, match="a channel needs"):
        of_many_outputs(1 << 17)


def test_is_a_frozen_value_and_keeps_its_own_arrays():
    counts = TINY.counts.copy()
    c = dataclasses.replace(TINY, counts=counts)
    counts[0, 0] = 1
    assert c == TINY
    assert hash(c) == hash(TINY)
    assert c != TINY.to_json()
    assert c != dataclasses.replace(TINY, epsilon=0.7)
    for array in (c.counts, c.letters, c.values):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        c.epsilon = 2.0


# Encoding and decoding


@pytest.mark.parametrize(
    ("name", "epsilon"), [*product(BOUNDED, (0.3, 1.0, 5.0)), *product(SOLVED, (0.3, 1.0))]
)
def test_codes_follow_the_counts(name, epsilon):
    """Chi-square of 100,000 codes, fixed seed; each x alarms by chance once in a million."""
    c, n = channel(name, epsilon, 31 if name in PIECEWISE else None), 100_000
    for x in (-1.0, -0.3141592653589793, 0.0, 0.3141592653589793, 1.0):
        observed = np.bincount(c.encode(np.full(n, x), fedldp.source(30)), minlength=c.outputs)
        # Rounding to a letter makes the law linear between letters.
        expected = n * np.array([np.interp(x, c.letters, column) for column in c.table.T])
        rare = expected < 5
        assert np.all(observed[expected == 0] == 0)
        observed = np.append(observed[~rare], observed[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
        if expected[-1] < 5:
            observed, expected = observed[:-1], expected[:-1]
        statistic = np.sum((observed - expected) ** 2 / expected)
        assert stats.chi2.sf(statistic, expected.size - 1) > 1e-6, x


@pytest.mark.parametrize("rest", [0, 1, 2**60 - 1])
@pytest.mark.parametrize(
    ("x", "rounding", "letter"),
    [
        *[(-1.0, 0, 0), (-1.0, 2**32 - 1, 0), (1.0, 0, 2), (1.0, 2**32 - 1, 2)],
        *[(0.0, 0, 1), (0.0, 2**31, 1), (0.0, 2**32 - 1, 1)],
        *[(0.5, 2**31 - 1, 1), (0.5, 2**31, 2), (-0.75, 3 * 2**30 - 1, 0), (-0.75, 3 * 2**30, 1)],
    ],
)
def test_every_word_of_a_small_table_enumerated(rest, x, rounding, letter):
    """One word draws, another one rounds: whatever rounds, the codes have their exact counts."""
    words = [(word << 60) + rest for word in range(16)]
    source = Scripted([*words, *[rounding] * 16])
    codes = TINY.encode(np.full(16, x), source)
    assert source.script == []
    assert np.bincount(codes, minlength=3).tolist() == TINY.counts[letter].tolist()


def test_golden_codes():
    """Fixed for ever, as fedldp.source is: a study must give the same codes on every machine."""
    for codes, *which in (
        ("0 1 1 0 0 0 0 0 1 1 1 1 0 1 1 1 1 1 1 1", "duchi", 1.0),
        ("0 2 2 0 0 0 2 1 0 1 1 2 2 2 0 1 2 0 2 2", "three-outputs", 1.0),
        ("5 5 5 5 15 5 15 10 14 15 15 15 25 25 14 25 20 14 29 25", "hm-tp", 2.0, 31),
    ):
        found = channel(*which).encode(np.linspace(-1, 1, 20), fedldp.source(7))
        assert found.tolist() == list(map(int, codes.split()))


def test_a_long_array_keeps_its_order_and_takes_12_bytes_for_each_value():
    n, source, same = 50_000, fedldp.source(3), fedldp.source(3)
    x = np.repeat([-1.0, 1.0, -1.0], n)
    codes = channel("duchi", 16.0).encode(x, source)
    assert np.count_nonzero(codes != (x > 0)) <= 3  # each with probability e^-16
    same.words(9 * n, np.uint32)
    assert source.words(4).tolist() == same.words(4).tolist()


@pytest.mark.parametrize("name", ["duchi", "three-outputs-flat", "pm"])
def test_encode_accepts_every_shape_and_keeps_it(name):
    def encode(x):
        return channel(name, 1.0).encode(x, fedldp.source(1))

    assert encode(0.5).dtype == encode([]).dtype == np.uint8
    for x in (0.5, 1, [0.1, -0.2], [], np.zeros((3, 0))):
        assert encode(x).shape == np.shape(x)
    grid = np.linspace(-1, 1, 24).reshape(2, 3, 4)
    before, codes = grid.copy(), encode(grid)
    np.testing.assert_array_equal(grid, before)
    for same in (np.asfortranarray(grid), np.repeat(grid, 2, axis=1)[:, ::2], grid.tolist()):
        np.testing.assert_array_equal(encode(same), codes, strict=True)
    small = grid.astype(np.float32)
    np.testing.assert_array_equal(encode(small), encode(small.astype(float)), strict=True)


@pytest.mark.parametrize("outputs", [255, 257, 4001])
def test_codes_are_as_small_as_they_can_be(outputs):
    c = channel("pm", 1.0, outputs)
    codes = c.encode(np.linspace(-1, 1, 100_000), fedldp.source(1))
    assert codes.dtype == (np.uint8 if outputs < 257 else np.uint16)
    assert (codes.min(), codes.max()) == (0, outputs - 1)


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (1 + 1e-12, "got 1.000000000001"),
        (-2, "got -2.0"),
        ([0.0, float("nan")], r"got nan at index \(1,\)"),
        (np.full((2, 2), np.inf), r"got inf at index \(0, 0\)"),
        (np.r_[np.zeros(100_000), 1.5], r"got 1.5 at index \(100000,\)"),
        (np.float32(1.0000001), "got 1.00000011"),
        ("0.5", "str '0.5'"),
        ([1j], "list"),
        ([[0.1], [0.2, 0.3]], "list"),
    ],
)
def test_refuses_a_bad_x(x, said):
    for call in (lambda: TINY.encode(x, fedldp.source(1)), lambda: TINY.variance(x)):
        with pytest.raises(DomainError, match=said):
            call()


def test_refuses_an_invalid_source():
    with pytest.raises(DomainError, match="source must be a Source"):
        TINY.encode(0.0, np.random.default_rng(7))


def test_decode_gives_the_values_back():
    c = channel("hm-tp", 1.0)
    codes = np.arange(c.outputs)
    for dtype in (np.uint8, np.int64, np.uint64):
        np.testing.assert_array_equal(c.decode(codes.astype(dtype)), c.values, strict=True)
    assert isinstance(c.decode(np.uint8(1)), float)
    assert c.decode(0) == c.values[0]
    assert c.decode([]).shape == (0,)
    assert c.decode(c.encode(np.zeros((2, 0)), fedldp.source(2))).shape == (2, 0)
    assert c.decode(c.encode([[-1.0, 0.1], [0.2, 1.0]], fedldp.source(2))).shape == (2, 2)
    for bad in (-1, c.outputs, [0, c.outputs], [0.0], "0", [True], None, [10**30], [[0], [0, 1]]):
        with pytest.raises(DomainError, match=f"integers from 0 to {c.outputs - 1}"):
            c.decode(bad)


def test_neither_copies_nor_pickles_get_around_the_constructor():
    ours = Duchi(1.0).channel()
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), ours):
        assert other == ours
        for array in (other.counts, other.letters, other.values, other.table):
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.flags.writeable = True


@pytest.mark.parametrize("name", ["duchi", "three-outputs", "pm-sub", "hm-tp"])
@pytest.mark.parametrize("weight", [0.0, 0.7, 20.0])
def test_the_worst_data_are_those_with_the_most_noise_and_spread(name, weight):
    c = channel(name, 1.0)
    x = np.linspace(0.0, 1.0, 20_001)
    noise, mean, square = c.assumed("worst", weight)
    assert noise + weight * square == pytest.approx((c.variance(x) + weight * x**2).max(), rel=1e-6)
    assert c.variance(np.sqrt(square)) == pytest.approx(noise, rel=1e-9)
    assert mean == 0.0


@pytest.mark.parametrize("name", ["duchi", "three-outputs", "pm-sub", "hm-tp"])
def test_uniform_data_are_what_a_grid_of_data_is(name):
    x = (np.arange(-5000, 5000) + 0.5) / 5000
    for assumed, shown in zip(
        channel(name, 1.0).assumed("uniform", 1.0), channel(name, 1.0).assumed(x, 1.0), strict=True
    ):
        assert shown == pytest.approx(assumed, rel=1e-3, abs=1e-12)
