"""Lines: every pair of categories alike, the figures against the optimum, and the transform."""

from fractions import Fraction
from math import ceil, exp, log2

import numpy as np
import pytest
from plans import digits_of, line_directions, lines_law

import fedldp
from fedldp import vehicle
from fedldp.coders import Lines, RandomizedResponse
from fedldp.coders.categories import UnaryEncoding
from fedldp.coders.lines import MOST_BITS
from fedldp.errors import DomainError, PrivacyError

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SIZES = (8, 16, 64, 100, 1000, 3000, 100_000)
SMALL = [
    Lines.of(1.0, 9),
    Lines.of(0.3, 8, bits=4),
    Lines.of(0.5, 64),
    Lines.of(2.0, 50),
    Lines.of(2.0, 100),
    Lines.of(3.0, 7),
]


def subset_selection(epsilon, categories):
    """Return the least sum of variances that subsets of any size have: the best possible."""
    k = np.arange(1, categories)
    p = k * exp(epsilon) / (k * exp(epsilon) + categories - k)
    q = (p * (k - 1) + (1 - p) * k) / (categories - 1)
    return np.min((p * (1 - p) + (categories - 1) * q * (1 - q)) / (p - q) ** 2)


def most_bits(epsilon, categories):
    return max(ceil(log2(categories)) + 2, 2.9 * epsilon + 2)


def directions_of(coder):
    return np.array(line_directions(coder.base, coder.digits))


def supported(coder, direction, answer):
    """Return the categories whose product with a direction is the answer, by brute force."""
    every = [digits_of(c, coder.base, coder.digits) for c in range(coder.categories)]
    return [c for c, digits in enumerate(every) if np.dot(direction, digits) % coder.base == answer]


# The figures


def test_the_error_is_near_the_optimum_in_few_bits():
    ratios = {}
    for categories in SIZES:
        for epsilon in EPSILONS:
            coder = Lines.of(epsilon, categories)
            ratios[categories, epsilon] = coder.variance / subset_selection(epsilon, categories)
            assert coder.bits <= most_bits(epsilon, categories)
    assert min(ratios.values()) > 0.9999
    assert max(ratios.values()) == ratios[16, 2.0] == pytest.approx(1.143, abs=5e-4)
    # From a thousand labels on, the loss is a few hundredths.
    assert max(ratio for (m, _), ratio in ratios.items() if m >= 1000) < 1.03


def hard_sizes():
    """Return numbers of categories at which a base, or a bit, becomes too small or possible."""
    powers = [base**digits for base in range(2, 317) for digits in range(2, 18)]
    edges = {n for n in [*powers, *(2**bit for bit in range(1, 17))] if n <= 100_000}
    near = {n + step for n in edges for step in (0, 1)} | set(range(2, 130)) | {100_000}
    return sorted(n for n in near if 2 <= n <= 100_000)


@pytest.mark.parametrize(
    "step", [40, pytest.param(1, marks=pytest.mark.slow)], ids=["some sizes", "all edges"]
)
@pytest.mark.parametrize("epsilon", [0.5, 0.8, 1.4, 2.3, 3.1, 4.5, 6.0, 8.0])
def test_no_number_of_categories_is_far_from_the_optimum(epsilon, step):
    """The ratio only jumps where a base becomes too small, and falls slowly in between."""
    for categories in hard_sizes()[::step]:
        coder = Lines.of(epsilon, categories)
        assert coder.variance <= 1.25 * subset_selection(epsilon, categories)
        assert coder.bits <= most_bits(epsilon, categories)


def test_no_other_base_is_better():
    """The variance from its definition, by floats, for all bases that fit into the bits."""
    for epsilon, categories in ((0.5, 40), (1.0, 100), (2.0, 300), (3.0, 1000)):
        found = {}
        for base in range(2, 1 << 12):
            digits = next(t for t in range(1, 20) if base**t >= categories)
            prime = all(base % divisor for divisor in range(2, int(base**0.5) + 1))
            number = sum(base**s for s in range(digits))
            if (digits > 1 and not prime) or number * base > 2 ** most_bits(epsilon, categories):
                continue
            p = exp(epsilon) / (exp(epsilon) + base - 1)
            share = sum(base**s for s in range(digits - 1)) / number
            q = share * p + (1 - share) * (1 - p) / (base - 1)
            found[base] = (p * (1 - p) + (categories - 1) * q * (1 - q)) / (p - q) ** 2
        coder = Lines.of(epsilon, categories)
        assert coder.base == min(found, key=found.get)
        assert coder.variance == pytest.approx(found[coder.base])


def test_the_two_ends_are_randomised_response_and_hadamard():
    response, coder = RandomizedResponse.of(4.0, 16), Lines.of(4.0, 16)
    assert (coder.digits, coder.base, coder.bits) == (1, 16, response.bits)
    assert (coder.same, coder.other) == (response.same, response.other)
    assert coder.variance == response.variance
    assert Lines.of(0.3, 8, bits=4).base == 2
    # In between: better than local hashing with ideal hash functions into as many values.
    many = Lines.of(1.1, 2**20)
    g, p = many.base, exp(1.1) / (exp(1.1) + many.base - 1)
    ideal = (p * (1 - p) + (2**20 - 1) / g * (1 - 1 / g)) / (p - 1 / g) ** 2
    assert 0.999 * ideal < many.variance < ideal


def test_more_categories_than_others_can_take():
    coder = Lines.of(1.0, vehicle.MOST_LABELS)
    assert coder.bits <= 22
    assert coder.cells <= 2**22
    assert Lines.of(16.0, vehicle.MOST_LABELS).bits <= MOST_BITS
    for categories in (1, vehicle.MOST_LABELS + 1):
        with pytest.raises(DomainError, match="there must be 2 to 1048576 categories"):
            Lines.of(1.0, categories)
    with pytest.raises(DomainError, match="100 categories need at least 7 bits; got bits = 6"):
        Lines.of(1.0, 100, bits=6)


# The structure


@pytest.mark.parametrize("coder", SMALL, ids=repr)
def test_every_pair_of_categories_collides_equally_often(coder):
    own, other, total = coder.support
    directions = directions_of(coder)
    assert len(directions) == coder.directions == len({tuple(r) for r in directions.tolist()})
    assert coder.cells == coder.directions * coder.base
    categories = range(min(coder.categories, 12))
    digits = np.array([digits_of(c, coder.base, coder.digits) for c in categories])
    products = digits @ directions.T % coder.base
    for c in categories:
        for other_c in range(c):
            shared = int(np.sum(products[c] == products[other_c]))
            odds = shared * coder.same + (coder.directions - shared) * coder.other
            assert Fraction(odds, coder.directions) == Fraction(other * coder.total, total)
    assert Fraction(own, total) == Fraction(coder.same, coder.total)


@pytest.mark.parametrize("coder", SMALL[:2], ids=repr)
def test_estimates_are_unbiased_with_the_stated_variance_exactly(coder):
    """In rational numbers, over all codes."""
    own, other, total = coder.support
    p, q = Fraction(own, total), Fraction(other, total)
    table = {**coder.to_document(), "kind": "lines"}
    lines = [
        supported(coder, direction, answer)
        for direction in directions_of(coder)
        for answer in range(coder.base)
    ]
    for true in range(coder.categories):
        law = lines_law(table, true)
        mean, square = ([Fraction(0)] * coder.categories for _ in range(2))
        for code, odds in law.items():
            for c in range(coder.categories):
                value = ((c in lines[code]) - q) / (p - q)
                mean[c] += odds * value
                square[c] += odds * value**2
        assert mean == [int(c == true) for c in range(coder.categories)]
        variance = sum(s - m**2 for s, m in zip(square, mean, strict=True))
        assert float(variance) == coder.variance


# The server's half


@pytest.mark.parametrize("coder", SMALL, ids=repr)
def test_the_transform_counts_exactly(coder):
    """Against a count of all lines that hold a category; counters may be large."""
    directions = directions_of(coder)
    digits = np.array([digits_of(c, coder.base, coder.digits) for c in range(coder.categories)])
    products = digits @ directions.T % coder.base
    for most in (3, 1 << 40):
        cells = fedldp.source(1).below(most, (2, coder.cells))
        rows = cells.reshape(2, coder.directions, coder.base)
        wanted = rows[:, np.arange(coder.directions), products].sum(axis=-1)
        np.testing.assert_array_equal(coder.supports(cells), wanted)
        np.testing.assert_array_equal(coder.supports(cells[0]), wanted[0])
        transformed = [coder._transform(row) for row in cells if coder.digits > 1]
        for found, each in zip(transformed, wanted, strict=False):
            np.testing.assert_array_equal(np.rint(found), each)


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_a_hundred_thousand_categories(epsilon):
    """Five standard errors, for 5 frequencies: by chance in fewer than 1 of 10^5 runs."""
    coder, n = Lines.of(epsilon, 100_000), 200_000
    true = np.minimum(fedldp.source(1).below(8, n), 4) * 24_999
    cells = np.zeros((1, coder.cells), np.int64)
    coder.count(coder.encode(true, fedldp.source(2)), 0, cells[0])
    reports, frequencies = coder.frequencies(cells[0])
    error = np.sqrt(coder.noise / n)
    assert reports == n
    for label in range(5):
        share = np.mean(true == 24_999 * label)
        assert abs(frequencies[24_999 * label] - share) < 5 * (error + np.sqrt(share / n))
    np.testing.assert_allclose(coder.moments(cells).mean, frequencies, atol=1e-9)
    # Never assumed to be below the noise, so that it is a little larger on average.
    assert 1 < coder.moments(cells).variance.mean() / coder.noise < 1.1


def test_frequencies_need_one_count_for_each_code():
    with pytest.raises(DomainError, match="counts must be 12 integers"):
        Lines.of(1.0, 9).frequencies([1, 2, 3])


# The vehicle's half


@pytest.mark.parametrize("coder", SMALL, ids=repr)
def test_products_are_those_of_a_vehicle(coder):
    directions = fedldp.source(1).below(coder.directions, 500)
    own = fedldp.source(2).below(coder.categories, 500)
    found = coder._products(directions.astype(np.uint32), own.astype(np.uint32))
    for product, direction, category in zip(found, directions, own, strict=True):
        numbers = int(direction), int(category)
        assert product == vehicle.line_product(coder.base, coder.digits, *numbers)
        digits = digits_of(int(category), coder.base, coder.digits)
        assert product == np.dot(directions_of(coder)[direction], digits) % coder.base


def test_directions_are_drawn_alike_by_both():
    """The share of a word, with all 64 bits: at the edges of every direction."""
    for directions in (1, 3, 7, 88573, vehicle.MOST_LINE_CODES // 2):
        places = range(directions) if directions < 10 else (1, 2, directions // 3, directions - 1)
        edges = [-(-(place << 64) // directions) for place in places]
        words = [word for edge in edges for word in (max(edge - 1, 0), min(edge, 2**64 - 1))]
        found = fedldp.coders.lines._share(np.array(words, np.uint64), directions)
        assert found.tolist() == [word * directions >> 64 for word in words]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base": 4, "digits": 2}, "its base 4 is not a prime number"),
        ({"digits": 3}, "3 digits in base 3 are not what 9 categories need"),
        ({"digits": 1}, "1 digits in base 3 are not what 9 categories need"),
        ({"digits": 0}, "it has 0 digits in base 3"),
        ({"digits": 10**9}, "it has 1000000000 digits in base 3"),
        ({"base": 1, "digits": 2}, "it has 2 digits in base 1"),
        ({"base": 10**30, "digits": 1}, "which are too few or too many"),
        ({"epsilon": 0.9}, "differ by more than"),
        ({"same": 1 << 30, "other": 1 << 30}, "add up to no power of two"),
        ({"base": 2, "digits": 4, "same": 1, "other": 1}, "a report would say nothing"),
        ({"categories": 9000, "base": 8209, "digits": 2}, "more than 67108864"),
    ],
)
def test_lines_that_do_not_fit_together_are_refused(change, message):
    coder = Lines.of(1.0, 9)
    arguments = {name: getattr(coder, name) for name in coder.__dataclass_fields__}
    with pytest.raises((PrivacyError, DomainError), match=message):
        Lines(**arguments | change)


def test_lines_need_ten_times_fewer_bits_than_unary_from_a_thousand_labels_on():
    for categories in (1000, 3000, 65_536):
        for epsilon in EPSILONS:
            unary, lines = UnaryEncoding.of(epsilon, categories), Lines.of(epsilon, categories)
            assert 10 * lines.bits <= unary.bits
            assert lines.variance < 1.07 * unary.variance
