"""Randomised response and unary encoding: their laws, errors, codes and estimates."""

import itertools
import math
import random
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from laws import Scripted
from scipy import stats

import fedldp
from fedldp import vehicle
from fedldp.coders.categories import RandomizedResponse, UnaryEncoding, better, cut, project
from fedldp.errors import DomainError, PrivacyError

EPSILONS = (0.001, 0.1, 0.7, 1.0, 2.5, 4.0, 8.0)
KINDS = (RandomizedResponse, UnaryEncoding)


class Words(random.Random):
    """A generator that gives the words it is told."""

    def __init__(self, words):
        self.script = list(words)

    def getrandbits(self, k):
        assert k == vehicle.WORD
        return self.script.pop(0)


def response_law(coder):
    """The odds of each code (columns) for each category (rows), from where the draw changes."""
    gap, shift = coder.same - coder.other, vehicle.WORD + 1 - coder.total.bit_length()
    edges = [gap + i * coder.other for i in range(coder.categories + 1)]
    law = np.zeros((coder.categories, coder.categories), object)

    def code(own, u):
        word = u << shift | random.Random(u).getrandbits(shift)  # the lower bits do not matter
        return vehicle.response_code(coder.same, coder.other, coder.categories, own, Words([word]))

    for own in range(coder.categories):
        for low, high in itertools.pairwise([0, *edges]):
            if low < high:
                assert code(own, low) == code(own, high - 1)
                law[own, code(own, low)] += high - low
    assert edges[-1] == coder.total
    return law


def unary_law(coder):
    """The odds of each of 2^a codes (columns) for each category (rows)."""
    codes = list(itertools.product((0, 1), repeat=coder.categories))

    def odds(own, bits):
        ones = [coder.total // 2 if i == own else coder.absent for i in range(coder.categories)]
        return math.prod(c if bit else coder.total - c for c, bit in zip(ones, bits, strict=True))

    return np.array(
        [[odds(own, bits) for bits in codes] for own in range(coder.categories)], object
    )


def law_of(coder):
    return (response_law if isinstance(coder, RandomizedResponse) else unary_law)(coder)


# Laws


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("categories", [2, 3, 4, 5, 6])
def test_true_epsilon_is_just_below_the_nominal_one(kind, epsilon, categories):
    law = law_of(kind.of(epsilon, categories))
    assert len(set(law.sum(axis=1))) == 1
    ratio = max(Fraction(max(column), min(column)) for column in law.T)
    assert ratio <= vehicle.exp_below(vehicle.exact(epsilon))
    with mp.workdps(50):
        found = mp.log(mp.mpf(ratio.numerator) / ratio.denominator)
        assert mp.mpf(repr(epsilon)) - found < 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("epsilon", "categories"), [(0.5, 2), (1.0, 3), (2.0, 5), (4.0, 6)])
def test_estimates_are_unbiased_with_the_variance_stated(kind, epsilon, categories):
    coder = kind.of(epsilon, categories)
    law, unary = law_of(coder), kind is UnaryEncoding
    codes = (
        np.array(list(itertools.product((0, 1), repeat=categories)))
        if unary
        else np.eye(categories, dtype=int)
    )
    for own in range(categories):
        p = (law[own] / law[own].sum()).astype(float)
        estimates = np.array(
            [coder.frequencies([*bits, 1] if unary else bits)[1] for bits in codes]
        )
        mean = p @ estimates
        np.testing.assert_allclose(mean, np.eye(categories)[own], atol=1e-9)
        assert (p @ estimates**2 - mean**2).sum() == pytest.approx(coder.variance, rel=1e-9)
    p, q = coder.p, coder.q
    formula = (p * (1 - p) + (categories - 1) * q * (1 - q)) / (p - q) ** 2
    assert coder.variance == pytest.approx(formula, rel=1e-10)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 4.0])
def test_better_is_the_one_with_less_error(epsilon):
    E = math.exp(epsilon)
    kinds = []
    for categories in range(2, 200):
        # Both in closed form: p, q = (E, 1) / (E + a - 1), and 1/2, 1 / (E + 1).
        pairs = [(E / (E + categories - 1), 1 / (E + categories - 1)), (0.5, 1 / (E + 1))]
        errors = [(p * (1 - p) + (categories - 1) * q * (1 - q)) / (p - q) ** 2 for p, q in pairs]
        chosen = better(epsilon, categories)
        assert isinstance(chosen, KINDS[int(np.argmin(errors))])
        assert chosen.variance == pytest.approx(min(errors), rel=1e-9)
        kinds.append(KINDS.index(type(chosen)))
    assert kinds == sorted(kinds)  # few categories: randomised response; many: unary
    assert set(kinds) == {0, 1}


def test_codes_and_counters():
    assert [RandomizedResponse.of(1.0, a).bits for a in (2, 3, 4, 5, 256, 257)] == [
        1,
        2,
        2,
        3,
        8,
        9,
    ]
    assert RandomizedResponse.of(1.0, 5).cells == 5
    assert (UnaryEncoding.of(1.0, 5).bits, UnaryEncoding.of(1.0, 5).cells) == (5, 6)


@pytest.mark.parametrize("epsilon", [0.001, 1.0, 16.0])
def test_as_many_categories_as_there_may_be(epsilon):
    most = vehicle.MOST_CATEGORIES
    coder = RandomizedResponse.of(epsilon, most)
    codes = coder.encode(np.full(1000, most - 1), fedldp.source(1))
    assert codes.dtype == np.uint16
    assert len(set(codes.tolist())) > (990 if epsilon < 16 else 0)
    assert UnaryEncoding.of(epsilon, most).encode(np.array([7]), fedldp.source(1)).shape == (
        1,
        most,
    )


# Drawing


def test_every_word_of_a_small_table():
    """All 16 upper digits, in NumPy and on a vehicle: 7 times the true one, 3 times each other."""
    coder = RandomizedResponse(2.0, 4, 7, 3)
    for own in range(4):
        words = [u << 60 for u in range(16)]
        codes = [vehicle.response_code(7, 3, 4, own, Words([word])) for word in words]
        assert [codes.count(i) for i in range(4)] == [7 if i == own else 3 for i in range(4)]
        np.testing.assert_array_equal(coder.encode(np.full(16, own), Scripted(words)), codes)
    flags = UnaryEncoding(2.0, 2, 16, 3)
    for own in range(2):
        for u in range(16):
            code = vehicle.unary_code(3, 16, 2, own, Words([u << 60, u << 60]))
            expected = [u < (8 if i == own else 3) for i in range(2)]
            assert [code >> 1, code & 1] == expected
            bits = flags.encode([own], Scripted([u << 60, u << 60]))
            assert bits.tolist() == [expected]


@pytest.mark.parametrize("categories", [2, 3, 10, 300, 40_000])
def test_same_codes_as_a_vehicle_from_the_same_words(categories):
    n = 40_000  # more than one piece
    own = fedldp.source(70).below(categories, n)
    response = RandomizedResponse.of(1.0, categories)
    rng = Words(fedldp.source(71).words(n).tolist())
    expected = [
        vehicle.response_code(response.same, response.other, categories, x, rng)
        for x in own.tolist()
    ]
    codes = response.encode(own, fedldp.source(71))
    assert codes.dtype == (np.uint8 if categories <= 256 else np.uint16)
    np.testing.assert_array_equal(codes, expected)
    unary, m = UnaryEncoding.of(1.0, categories), max(2, 80_000 // categories)
    rng = Words(fedldp.source(72).words(m * categories).tolist())
    texts = [
        f"{vehicle.unary_code(unary.absent, unary.total, categories, x, rng):0{categories}b}"
        for x in own[:m].tolist()
    ]
    bits = unary.encode(own[:m], fedldp.source(72))
    assert bits.dtype == np.uint8
    np.testing.assert_array_equal(bits, [list(map(int, text)) for text in texts])


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_drawn_codes_have_the_law(epsilon):
    """Chi-square of all codes at each category; a false alarm of any of 12 once in 10^5."""
    n, a = 100_000, 3
    for kind in KINDS:
        coder = kind.of(epsilon, a)
        law = law_of(coder)
        for own in range(a):
            codes = coder.encode(np.full(n, own), fedldp.source(73 + own))
            codes = codes @ [4, 2, 1] if kind is UnaryEncoding else codes
            found = np.bincount(codes, minlength=law.shape[1])
            expected = (n * law[own] / law[own].sum()).astype(float)
            assert stats.chisquare(found, expected).pvalue > 1e-6


def test_shapes():
    response, unary = RandomizedResponse.of(1.0, 3), UnaryEncoding.of(1.0, 3)
    assert response.encode(2, fedldp.source(1)) in (0, 1, 2)
    assert response.encode(np.zeros((4, 5), np.uint8), fedldp.source(1)).shape == (4, 5)
    assert unary.encode(np.zeros((4, 5), np.uint8), fedldp.source(1)).shape == (4, 5, 3)
    assert unary.encode(np.zeros(0, int), fedldp.source(1)).shape == (0, 3)
    assert response.encode(np.zeros(0, int), fedldp.source(1)).shape == (0,)


# Estimates


@pytest.mark.parametrize("kind", KINDS)
def test_frequencies_of_the_expected_counts_are_the_truth(kind):
    coder = kind.of(1.0, 4)
    truth = np.array([5, 0, 2, 1])
    response = kind is RandomizedResponse
    own, other = (coder.same, coder.other) if response else (coder.total // 2, coder.absent)
    # of 8 * 2^20 reports, each count to the nearest integer
    counts = [
        round(Fraction((own * t + other * (8 - t)) << 20, coder.total)) for t in truth.tolist()
    ]
    if not response:
        counts.append(8 << 20)
    reports, frequencies = coder.frequencies(counts)
    assert abs(reports - (8 << 20)) <= 2
    np.testing.assert_allclose(frequencies, truth / 8, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_no_reports_and_very_many(kind):
    coder = kind.of(1.0, 2)
    reports, frequencies = coder.frequencies([0] * coder.cells)
    assert reports == 0
    assert np.isnan(frequencies).all()
    many = np.full(coder.cells, 10**12)
    reports, frequencies = coder.frequencies(many)
    assert reports == (10**12 if kind is UnaryEncoding else 2 * 10**12)
    assert np.isfinite(frequencies).all()


def closest_by_trying_all(frequencies):
    """Of all sets that could stay positive: equal shifts within each; the closest feasible one."""
    best, distance = None, math.inf
    a = len(frequencies)
    for size in range(1, a + 1):
        for kept in map(list, itertools.combinations(range(a), size)):
            point = np.zeros(a)
            point[kept] = frequencies[kept] - (frequencies[kept].sum() - 1) / size
            if point.min() >= 0 and np.sum((point - frequencies) ** 2) < distance:
                best, distance = point, np.sum((point - frequencies) ** 2)
    return best


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=6))
@example([0.2, 0.3, 0.5])
@example([5.0, 0.0])
@example([0.5, 0.5, 0.5, 0.5])
def test_projection_is_the_closest_point(frequencies):
    array = np.array(frequencies)
    found = project(array)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1, abs=1e-12)
    expected = closest_by_trying_all(array)
    np.testing.assert_allclose(np.linalg.norm(found - array), np.linalg.norm(expected - array))
    np.testing.assert_allclose(found, expected, atol=1e-7)
    np.testing.assert_allclose(project(found), found, atol=1e-12)


def test_projection_of_nan_and_of_nonsense():
    assert np.isnan(project([math.nan, math.nan])).all()
    with pytest.raises(DomainError, match="a list of numbers"):
        project([])
    with pytest.raises(DomainError, match="a list of numbers"):
        project([[0.5, 0.5]])


# What is refused


def test_refuses_what_leaks():
    response, unary = RandomizedResponse.of(1.0, 4), UnaryEncoding.of(1.0, 4)
    with pytest.raises(PrivacyError, match=r"not private with epsilon = 1: its odds .* than e\^1"):
        RandomizedResponse(1.0, 4, response.same + 3, response.other - 1)
    with pytest.raises(PrivacyError, match="no power of two"):
        RandomizedResponse(1.0, 4, response.same + 1, response.other)
    with pytest.raises(PrivacyError, match="out of order"):
        RandomizedResponse(1.0, 4, 1, 5)
    with pytest.raises(PrivacyError, match="its odds"):
        UnaryEncoding(1.0, 4, unary.total, unary.absent - 1)
    for total, absent in [(16, 9), (16, 0), (15, 7), (1 << 63, 1 << 62)]:
        with pytest.raises(PrivacyError, match="no power of two"):
            UnaryEncoding(1.0, 4, total, absent)


@pytest.mark.parametrize("kind", KINDS)
def test_refuses_nonsense(kind):
    for categories in (1, 0, -3, (1 << 16) + 1):
        with pytest.raises(DomainError, match="there must be 2 to 65536 categories"):
            kind.of(1.0, categories)
    with pytest.raises(DomainError, match="categories must be a whole number"):
        kind.of(1.0, 2.0)
    with pytest.raises(DomainError, match="epsilon must be"):
        kind.of(0.0, 3)
    with pytest.raises(DomainError, match="say nothing"):
        kind(1.0, 4, *((4, 4) if kind is RandomizedResponse else (16, 8)))
    coder = kind.of(1.0, 3)
    for own in ([3], [-1], [0.0], ["a"], [True], [[1], [1, 2]]):
        with pytest.raises(DomainError, match="integers from 0 to 2"):
            coder.encode(own, fedldp.source(1))
    with pytest.raises(DomainError, match="source must be a Source"):
        coder.encode([0], None)
    for counts in ([1, 2], [0.5] * coder.cells, [[1] * coder.cells]):
        with pytest.raises(DomainError, match=f"counts must be {coder.cells} integers"):
            coder.frequencies(counts)


@pytest.mark.parametrize("kind", KINDS)
def test_a_vehicle_takes_the_document(kind):
    coder = kind.of(1.5, 5)
    document = coder.to_document()
    assert document["epsilon"] == "1.5"
    table = vehicle.read_table(dict(document))
    assert (table.categories, table.bits, table.epsilon) == (5, coder.bits, Fraction(3, 2))
    assert [value for value in document.values() if isinstance(value, int)] == [5]  # long: texts


def test_cut_frequencies_are_not_negative_and_add_up():
    np.testing.assert_allclose(cut([0.9, 0.3, -0.2, 0.0]), [0.75, 0.25, 0, 0])
    np.testing.assert_allclose(cut([-0.1, 0.0, -3]), [1 / 3] * 3)
    assert np.isnan(cut([0.5, np.nan])).all()
    for wrong in ([], [[0.5]], "a"):
        with pytest.raises(DomainError):
            cut(wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_assumed_shares_are_those_of_the_data(kind):
    coder = kind.of(1.0, 4)
    data = np.array([[0.0], [0.0], [3.0], [1.25]])  # the last is 1 or, in one of four cases, 2
    _, mean, square = coder.assumed(data, 1.0)
    assert mean.tolist() == square.tolist() == [0.5, 0.1875, 0.0625, 0.25]
    _, mean, _ = coder.assumed("uniform", 1.0)
    assert mean.tolist() == [0.25] * 4
