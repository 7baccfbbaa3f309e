"""The cube: its law corner by corner, its constants, its thresholds, and how it is drawn."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import Scripted
from scipy import stats

import fedldp
from fedldp import vehicle
from fedldp.coders.cube import CubeCoder, _subsets
from fedldp.errors import DomainError, PrivacyError
from fedldp.mechanisms import Duchi

SMALL = [
    (epsilon, d, threshold)
    for d in (1, 2, 3, 4, 5, 8, 9, 10)
    for epsilon, threshold in [(0.1, 0), (1.0, -1), (1.0, d - 2), (2.0, "best"), (4.0, "best")]
    if threshold == "best" or -d <= threshold < d
]


def corners(d):
    return np.array(list(itertools.product((-1, 1), repeat=d)))


def corner_odds(cube):
    """The odds of one corner, by its number of agreements, from the odds that are drawn with."""
    odds = vehicle.agreement_odds(cube.d, cube.threshold, cube.heavy, cube.light)
    exactly = [high - low for low, high in itertools.pairwise([0, *odds])]
    shared = [divmod(each, math.comb(cube.d, h)) for h, each in enumerate(exactly)]
    assert not any(rest for _, rest in shared)
    return [each for each, _ in shared], odds[-1]


def law(cube):
    """The odds of all corners (columns) at all corners (rows), and what each row adds up to."""
    points = corners(cube.d)
    each, total = corner_odds(cube)
    assert total < 1 << 63
    return np.array(each)[(points @ points.T + cube.d) // 2], total


def exact_scale(d, threshold, heavy, light):
    """B by its definition: the sums over all corners, grouped by agreements."""
    above = [h for h in range(d + 1) if 2 * h - d > threshold]
    S = sum(math.comb(d, h) for h in above)
    T = sum(Fraction(math.comb(d, h) * (2 * h - d), d) for h in above)
    E = Fraction(heavy, light)
    return (2**d + S * (E - 1)) / ((E - 1) * T)


# The law


@pytest.mark.parametrize(("epsilon", "d", "threshold"), SMALL)
def test_every_corner_is_private_and_the_estimate_unbiased(epsilon, d, threshold):
    cube = CubeCoder.of(epsilon, d, threshold)
    table, total = law(cube)
    assert set(table.sum(axis=1).tolist()) == {total}
    limit = vehicle.exp_below(vehicle.exact(epsilon))
    for column in table.T:
        least, largest = int(column.min()), int(column.max())
        assert (largest, least) == (cube.heavy, cube.light)
        assert largest <= limit * least
    assert Fraction(cube.heavy + 1, cube.light) > limit
    B = exact_scale(d, cube.threshold, cube.heavy, cube.light)
    sums = table @ corners(d)
    assert all(
        B * int(found) == int(wanted) * total
        for found, wanted in zip(sums.flat, corners(d).flat, strict=True)
    )
    assert cube.scale == float(B)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("d", [2, 3, 4, 5, 6, 7])
def test_ties_in_both_halves_leak_for_even_d_and_ties_that_count_once_do_not(epsilon, d):
    """With ties t.v = 0 drawn from both halves it is ln(1 + E) instead of epsilon."""
    points = corners(d)
    product = points @ points.T
    E = vehicle.exp_below(vehicle.exact(epsilon))
    half = int(np.count_nonzero(product[0] >= 0))
    odds = {s: (E * (s >= 0) + (s <= 0)) / half for s in range(-d, d + 1)}
    largest = max(
        max(odds[s] for s in column) / min(odds[s] for s in column) for column in product.tolist()
    )
    assert largest == (1 + E if d % 2 == 0 else E)
    cube = CubeCoder.of(epsilon, d, 0)
    table, _ = law(cube)
    assert Fraction(int(table.max()), int(table.min())) <= E


@pytest.mark.parametrize("d", [1, 3, 5, 9, 91])
def test_for_odd_d_the_threshold_below_zero_is_duchi_unchanged(d):
    cube = CubeCoder.of(1.0, d, -1)
    E, half = math.e, 2 ** (d - 1)
    assert cube.scale == pytest.approx(
        half / math.comb(d - 1, (d - 1) // 2) * (E + 1) / (E - 1), rel=1e-11
    )
    each, total = corner_odds(cube)
    assert each == [cube.light] * ((d + 1) // 2) + [cube.heavy] * ((d + 1) // 2)
    assert total == half * (cube.heavy + cube.light)
    assert corner_odds(CubeCoder.of(1.0, d, 0)) == (each, total)


def test_one_number_is_duchi():
    cube, channel = CubeCoder.of(1.0, 1), Duchi(1.0).channel()
    assert cube.scale == pytest.approx(channel.values[1], rel=1e-11)
    assert cube.worst_case_variance == pytest.approx(Duchi(1.0).worst_case_variance)


# Constants


def test_figures_of_the_notes():
    duchi, best = CubeCoder.of(4.0, 90, 0), CubeCoder.of(4.0, 90)
    assert best.threshold == 14
    assert duchi.worst_case_variance == pytest.approx(129, abs=0.5)
    assert best.worst_case_variance == pytest.approx(39.3, abs=0.05)
    assert best.bits == 90


@settings(max_examples=50)
@given(d=st.integers(1, 200), epsilon=st.floats(0.001, 12.0), data=st.data())
def test_scale_is_the_formula_of_the_notes(d, epsilon, data):
    threshold = data.draw(st.integers(-d, d - 1))
    cube = CubeCoder.of(epsilon, d, threshold)
    E = math.exp(epsilon)
    above = range((d + threshold) // 2 + 1, d + 1)
    S = sum(math.comb(d, h) for h in above)
    T = sum(math.comb(d, h) * (2 * h - d) for h in above) / d
    # heavy is rounded down by up to 2^-40, which matters beside E - 1
    assert cube.scale == pytest.approx((2**d / (E - 1) + S) / T, rel=1e-11 + 2e-12 / (E - 1))


@pytest.mark.parametrize("epsilon", [0.001, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0])
def test_the_best_threshold_is_the_best_of_all(epsilon):
    for d in range(1, 25):
        best = CubeCoder.of(epsilon, d)
        scales = [exact_scale(d, t, best.heavy, best.light) for t in range(-d, d)]
        found = exact_scale(d, best.threshold, best.heavy, best.light)
        assert found == min(scales)
        assert best.scale == float(found)


def test_variance_is_that_of_the_law():
    cube, x = CubeCoder.of(1.0, 4), np.array([0.3, -0.8, 0.0, 1.0])
    points = corners(4)
    table, total = law(cube)
    p = np.prod((1 + points * x) / 2, axis=1) @ (table / total)
    mean = cube.scale * p @ points
    np.testing.assert_allclose(mean, x, atol=1e-10)
    np.testing.assert_allclose(cube.scale**2 - mean**2, cube.variance(x), rtol=1e-10)
    assert cube.variance(0.0) == cube.worst_case_variance


# Drawing


def number_of_agreements(cube, *words):
    """How many places agree when these words are drawn; all of them must be used."""
    source = Scripted([*words, *range(cube.d), *[0] * cube.d])
    bits = cube.encode(np.full((1, cube.d), 1.0), source)  # v = 1, whatever the words
    assert source.script == []
    return int(bits.sum())


@pytest.mark.parametrize(("epsilon", "d", "threshold"), [(1.0, 1, 0), (1.0, 4, 0), (4.0, 7, 3)])
def test_agreements_are_counted_to_the_last_binary_digit(epsilon, d, threshold):
    cube = CubeCoder.of(epsilon, d, threshold)
    odds = vehicle.agreement_odds(d, threshold, cube.heavy, cube.light)
    assert number_of_agreements(cube, 0) == 0
    assert number_of_agreements(cube, 2**64 - 1) == d
    for h, below in enumerate(odds[:-1]):
        first, rest = divmod(below << 64, odds[-1])
        second, rest = divmod(rest << 64, odds[-1])
        third = (rest << 64) // odds[-1]
        assert 0 < second < 2**64 - 1
        assert number_of_agreements(cube, first - 1) == h
        assert number_of_agreements(cube, first + 1) == h + 1
        assert number_of_agreements(cube, first, second - 1) == h
        assert number_of_agreements(cube, first, second + 1) == h + 1
        assert number_of_agreements(cube, first, second, third - 1) == h
        assert number_of_agreements(cube, first, second, third + 1) == h + 1


def test_a_power_of_two_needs_no_further_words():
    cube = CubeCoder(epsilon=1.2, d=1, threshold=0, heavy=3, light=1)
    assert number_of_agreements(cube, 2**62 - 1) == 0
    assert number_of_agreements(cube, 2**62) == 1


def test_the_smallest_keys_are_chosen_and_ties_drawn_again():
    everything = [
        tuple(_subsets(np.array([2]), 4, Scripted(keys))[0].tolist())
        for keys in itertools.permutations((3, 0, 2**32 - 1, 7))
    ]
    assert sorted(map(everything.count, set(everything))) == [4] * 6  # 24 orders, 6 sets
    # All rows but one have a tie: in the second it occurs twice, in the last it does not matter.
    number = np.array([1, 1, 2, 2, 0, 3])
    keys = [(1, 2, 2), (5, 5, 9), (4, 3, 5), (8, 2, 8), (6, 6, 6), (6, 7, 6)]
    again = [(1, 2, 3), (7, 7, 9), (9, 8, 7), (1, 2, 3), (1, 2, 3), (3, 2, 1)]
    source = Scripted(itertools.chain(*keys, *again))
    chosen = _subsets(number, 3, source)
    assert source.script == []
    assert chosen.astype(int).tolist() == [
        *([1, 0, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1])
    ]


@pytest.mark.parametrize("keys", [(1, 2, 3), (1, 2, 2), (1, 1, 2), (2, 1, 2), (5, 5, 5)])
def test_how_many_are_chosen_does_not_decide_how_much_is_drawn(keys):
    left = set()
    for number in range(4):
        source = Scripted([*keys, 1, 2, 3])
        assert _subsets(np.array([number]), 3, source).sum() == number
        left.add(len(source.script))
    assert left == {3 if len(set(keys)) == 3 else 0}


@given(
    x=st.lists(st.floats(-1, 1), min_size=3, max_size=3),
    words=st.lists(st.integers(0, 2**32 - 1), min_size=3, max_size=3),
)
def test_rounds_like_a_vehicle(x, words):
    """With agreement everywhere the signs are those that x is rounded to."""
    places = [value * 0.5 + 0.5 for value in x]
    edges = [-int(place * 2**32 + 0.5) % 2**32 for place in places]  # the first to round up
    for rounding in (words, edges, [(edge - 1) % 2**32 for edge in edges]):
        source = Scripted([2**64 - 1, 0, 1, 2, *rounding])
        bits = CubeCoder.of(1.0, 3).encode([x], source)
        assert bits[0].tolist() == list(map(vehicle.letter_of, places, rounding))


@pytest.mark.parametrize(
    ("epsilon", "d", "threshold"), [(1.0, 3, 0), (2.0, 4, 0), (4.0, 5, "best")]
)
def test_whole_reports_have_the_law(epsilon, d, threshold):
    """Chi-square of all 2^d reports; a false alarm once in 10^6."""
    cube, n = CubeCoder.of(epsilon, d, threshold), 200_000
    x = np.array([0.3, -0.8, 1.0, 0.0, -1.0])[:d]
    table, total = law(cube)
    p = np.prod((1 + corners(d) * x) / 2, axis=1) @ (table / total)
    bits = cube.encode(np.tile(x, (n, 1)), fedldp.source(50 + d))
    found = np.bincount(bits @ (1 << np.arange(d)[::-1]), minlength=1 << d)
    assert stats.chisquare(found, n * p).pvalue > 1e-6


def test_ten_thousand_numbers():
    """The mean of 40 x 10,000 signs within 6 standard errors; a false alarm once in 10^6."""
    cube, n = CubeCoder.of(4.0, 10_000), 40
    assert 0 < cube.threshold < 300
    for value in (1.0, -0.5):
        bits = cube.encode(np.full((n, cube.d), value), fedldp.source(60))
        means = (2.0 * bits - 1).mean(axis=1) * cube.scale
        assert abs(means.mean() - value) < 6 * means.std() / math.sqrt(n)


# What is refused


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((1.0, 0), DomainError, "d must be from 1 to 10000"),
        ((1.0, 10_001), DomainError, "d must be from 1 to 10000"),
        ((1.0, 2.5), DomainError, "d must be a whole number"),
        ((1.0, 4, 4), DomainError, "threshold from -d to d - 1; got d = 4 and threshold = 4"),
        ((1.0, 4, -5), DomainError, "threshold from -d"),
        ((1.0, 4, "worst"), DomainError, "threshold must be a whole number; got 'worst'"),
        ((0.0, 4), DomainError, "epsilon must be a number"),
        ((1.0, 1000, 998), DomainError, "the noise is too large for floats"),
    ],
)
def test_refuses_nonsense(arguments, error, said):
    with pytest.raises(error, match=said):
        CubeCoder.of(*arguments)


def test_refuses_what_leaks_by_one_and_what_says_nothing():
    cube = CubeCoder.of(1.0, 6)
    with pytest.raises(PrivacyError, match=r"not an epsilon = 1 cube: its odds .* more than e\^1"):
        CubeCoder(1.0, 6, 0, cube.heavy + 1, cube.light)
    with pytest.raises(PrivacyError, match="out of order"):
        CubeCoder(1.0, 6, 0, 1, 2)
    with pytest.raises(PrivacyError, match="out of order"):
        CubeCoder(1.0, 6, 0, 1, 0)
    with pytest.raises(DomainError, match="say nothing"):
        CubeCoder(1.0, 6, 0, 5, 5)


@pytest.mark.parametrize(
    ("x", "said"),
    [
        ([0.1, 0.2], "rows of 2 numbers; got shape"),
        ([[0.1, 0.2, 0.3]], "rows of 2 numbers"),
        ([[0.1, 1.5]], r"got 1\.5 at index \(0, 1\)"),
        ([[0.1, math.nan]], "got nan"),
        ([["a", "b"]], "real number"),
    ],
)
def test_refuses_other_values(x, said):
    with pytest.raises(DomainError, match=said):
        CubeCoder.of(1.0, 2).encode(x, fedldp.source(1))
    with pytest.raises(DomainError, match="source must be a Source"):
        CubeCoder.of(1.0, 2).encode([[0.0, 0.0]], 7)


def test_no_rows_and_memory_in_pieces():
    cube = CubeCoder.of(1.0, 5)
    assert cube.encode(np.empty((0, 5)), fedldp.source(1)).shape == (0, 5)
    assert cube.encode(np.zeros((40_000, 5)), fedldp.source(1)).mean() == pytest.approx(
        0.5, abs=0.01
    )


def test_document_is_what_a_plan_holds():
    document = CubeCoder.of(16.0, 4).to_document()
    assert document["heavy"] == str(CubeCoder.of(16.0, 4).heavy)
    assert {**document, "heavy": 0} == {
        **{"kind": "cube", "epsilon": "16.0"},
        **{"threshold": CubeCoder.of(16.0, 4).threshold, "heavy": 0, "light": 1 << 40},
    }
