"""Directions: private in integers, unbiased, as good as PrivUnit, and the same in vehicle.py."""

import hashlib
import itertools
import math
import random
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from plans import directions_law, directions_of
from plans import quantiles as second_reading
from scipy.optimize import minimize_scalar
from scipy.signal import fftconvolve
from scipy.special import betainc
from scipy.stats import norm

import fedldp
from fedldp import vehicle
from fedldp._internal.vectors import DenseRows, SparseRows
from fedldp.coders import DirectionsCoder, codebook
from fedldp.coders.codebook import NumpyCodebook, drawn_together
from fedldp.coders.directions import DEFAULT_FLEET, OFFERED_DIRECTIONS, _best, _length_shares
from fedldp.errors import DomainError, PrivacyError

EPSILONS = (0.001, 0.1, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0)
TABLE = np.array(vehicle.quantiles())


def vectors(n, d, seed, longest=1.0):
    """Return vectors of lengths up to the longest, about half of their numbers zero."""
    source = fedldp.source(seed)
    x = source.uniform((n, d)) - 0.5
    x[source.uniform((n, d)) < 0.5] = 0.0
    lengths = np.sqrt((x**2).sum(axis=1))
    return x * (longest * source.uniform(n) / np.where(lengths > 0, lengths, 1.0))[:, None]


class Tape(random.Random):
    """A generator that throws what it is given, and counts."""

    def __init__(self, *words):
        super().__init__(0)
        self.words, self.asked = list(words), []

    def getrandbits(self, bits):
        self.asked.append(bits)
        return self.words.pop(0)


# The numbers that directions are made of


def test_the_table_is_the_same_everywhere():
    assert second_reading() == TABLE.tolist()
    octets = TABLE.astype(">i2").tobytes()
    assert hashlib.sha256(octets).hexdigest() == (
        "093f72d4a048161dc193e3282123d85ab9e8cd918e25177f571acdbc297318fc"
    )
    # No entry is as close to a half as errors of a mathematical library could matter.
    exact = 1024 * norm.ppf((np.arange(65536) + 0.5) / 65536)
    assert np.abs(np.abs(exact - np.floor(exact)) - 0.5).min() > 5e-6
    assert np.array_equal(TABLE, -TABLE[::-1])


def test_words_look_random():
    """The mean of each of 63 directions, and each of 1,953 pairs, within 5 standard errors.

    Truly random words would fail in 1 of 800 cases; these are fixed.
    """
    coder = DirectionsCoder.of(1.0, 40)
    seeds = np.arange(4000, dtype=np.uint32)
    sent = np.stack([coder.codebook.sent(seeds, np.full(4000, j, np.uint32)) for j in range(63)])
    flat = sent.reshape(63, -1) / 1024
    n = flat.shape[1]
    assert np.all(np.abs(flat.mean(axis=1)) < 5 / np.sqrt(n))
    correlation = flat @ flat.T / n
    np.fill_diagonal(correlation, 0.0)
    assert np.abs(correlation).max() < 5 / np.sqrt(n)


# Private in integers


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("directions", OFFERED_DIRECTIONS)
@pytest.mark.parametrize("null", [False, True])
def test_odds_are_exact_and_close_to_the_budget(epsilon, directions, null):
    coder = DirectionsCoder.of(epsilon, 30, directions=directions, null=null)
    for_vector = coder.best * coder.high + (directions - coder.best) * coder.low + coder.null
    assert for_vector == 2**62
    if null:
        assert directions * coder.low + coder.null_input == 2**62
    limit = vehicle.exp_below(vehicle.exact(epsilon))
    assert limit * (1 - Fraction(1, 10**7)) < coder.ratio <= limit
    assert coder.bits <= 32


NOT_BEST, ORDER = "best of 7 directions", "out of order"
NOT_POWER, RATIO = "add up to", "differ by more than"
NUMBER, FIT = "one less than a power of two", "do not fit into 32 bits"
HOSTILE = {
    "no best": (NOT_BEST, {"best": 0}),
    "all best": (NOT_BEST, {"best": 7}),
    "more best than there are": (NOT_BEST, {"best": 8}),
    "unequal totals": ("differ in their total", {"null_input": 17}),
    "a total that is no power of two": (NOT_POWER, {"null": 13, "null_input": 19}),
    "a total above 2^62": (
        NOT_POWER,
        {"high": 5 << 58, "low": 2 << 58, "null": 12 << 58, "null_input": 18 << 58},
    ),
    "high above e^epsilon": (RATIO, {"high": 6, "null": 10}),
    "high above e^epsilon, no null input": (RATIO, {"high": 6, "null": 10, "null_input": 0}),
    "null above e^epsilon": (RATIO, {"high": 7, "low": 3, "null": 3, "null_input": 11}),
    "no null for a vector": (RATIO, {"high": 6, "low": 4, "null": 0, "null_input": 4}),
    "no low": (ORDER, {"high": 10, "low": 0, "null_input": 32}),
    "high below low": (ORDER, {"high": 1, "low": 4, "null": 10, "null_input": 0}),
    "odds that say nothing": (ORDER, {"high": 4, "low": 4, "null": 4, "null_input": 4}),
    "negative null odds": (ORDER, {"high": 8, "low": 4, "null": -4, "null_input": 4}),
    "more directions than there may be": (NUMBER, {"directions": 511}),
    "very many directions": (NUMBER, {"directions": 2**40 - 1}),
    "directions that do not fill their bits": (NUMBER, {"directions": 6}),
    "a seed of no bits": (FIT, {"seed_bits": 0}),
    "a seed and a direction of 33 bits": (FIT, {"seed_bits": 30}),
    "a key of 65 bits": ("is not a number of 64 bits", {"key": 2**64}),
    "a negative key": ("is not a number of 64 bits", {"key": -1}),
}
# 2 best of 7 with 5 to 2, and the null code with 12; the null input: 7 times 2, and 18.
SOUND = {"directions": 7, "best": 2, "high": 5, "low": 2, "null": 12, "null_input": 18}
SOUND |= {"seed_bits": 3, "key": 5}


def as_plan(part, d=3):
    schema = fedldp.Schema.vector(d, length=1.0).to_document()
    part = {"attributes": [0], "epsilon": "0.92", "kind": "directions", **part}
    part = {k: vehicle.json_integer(v) if type(v) is int else v for k, v in part.items()}
    entries = {"epsilon": "0.92", "format": "fedldp plan 2", "tables": []}
    return vehicle.canonical({**entries, "parts": [part], "schema": schema})


def test_a_valid_plan_made_by_hand_is_accepted():
    assert DirectionsCoder(0.92, 3, **SOUND).ratio == Fraction(5, 2)
    assert vehicle.Plan(as_plan(SOUND), "0.92").bits == 6
    assert fedldp.Plan.from_json(as_plan(SOUND)).bits == 6


@pytest.mark.parametrize(("reason", "change"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_plans_are_refused(reason, change):
    """By the library, when the coder is made or a plan is read, and by a vehicle: each alone."""
    part = {**SOUND, **change}
    with pytest.raises(PrivacyError, match=reason):
        DirectionsCoder(0.92, 3, **part)
    with pytest.raises(ValueError, match=f"refused: .*{reason}"):
        vehicle.Plan(as_plan(part), "0.92")
    with pytest.raises(PrivacyError, match=reason):
        fedldp.Plan.from_json(as_plan(part))


def test_vectors_of_too_many_numbers_are_refused():
    most = vehicle.MOST_VECTOR_NUMBERS
    assert DirectionsCoder(0.92, most, **SOUND).d == most
    with pytest.raises(DomainError, match="d must be from 1"):
        DirectionsCoder(0.92, most + 1, **SOUND)
    with pytest.raises(ValueError, match="numbers are not 1 to"):
        vehicle.Plan(as_plan(SOUND, most + 1), "0.92")
    with pytest.raises(ValueError, match=r"cap is 0\.91"):
        vehicle.Plan(as_plan(SOUND), "0.91")


@pytest.mark.parametrize("null", [False, True])
def test_vehicles_draw_with_exactly_these_odds(null):
    """Every seed, every draw and every vector of -1, 0 and 1, in vehicle.py and in the library."""
    part = SOUND if null else {**SOUND, "null_input": 0}
    table, total, bits = {"kind": "directions", **part, "d": 2}, 32, 3
    coder = DirectionsCoder(0.92, 2, **part)
    for number, vector in enumerate(itertools.product((-1, 0, 1), repeat=2)):
        for share in ("itself", "not"):
            given, sign = number, 1
            if share == "not":  # the null input, or the opposite vector
                given, sign = (9, 1) if null else (8 - number, 1)
            law = {}
            for seed, u in itertools.product(range(8), range(total)):
                rounding = 0 if share == "itself" else 2**32 - 1
                words = (seed << 29, rounding, u << 59)
                # Of a length that both throws of the rounding make the difference.
                numbers = [x * vehicle.LENGTH // 2 * sign for x in vector]
                tape = Tape(*words)
                if vector == (0, 0) and share == "itself" and null:
                    continue
                code = vehicle.direction_code(coder._odds, bits, 5, numbers, tape)
                assert tape.asked == [32, 32, 64]
                record = f"{code:06b}"
                law[record] = law.get(record, 0) + Fraction(1, total * 8)
            if law:
                assert law == {r: p for r, p in directions_law(table, given).items() if p}


def words_of(source, vehicles, directions):
    """Yield the three words of each vehicle: those of some vehicles at a time lie together."""
    step = drawn_together(directions)
    for start in range(0, vehicles, step):
        some = min(step, vehicles - start)
        kinds = np.uint32, np.uint32, np.uint64
        yield from zip(*(source.words(some, kind).tolist() for kind in kinds), strict=True)


@pytest.mark.parametrize("directions", OFFERED_DIRECTIONS)
@pytest.mark.parametrize(("epsilon", "mean_length"), [(0.5, 1.0), (1.0, 0.3), (4.0, 0.5), (8.0, 1)])
def test_vehicle_and_library_send_the_same_code(epsilon, mean_length, directions):
    """Code by code, for the same whole numbers: also where products are equal, or all zero."""
    coder = DirectionsCoder.of(epsilon, 6, mean_length=mean_length, directions=directions)
    x = vectors(400, 6, 1)
    x[:40] = 0.0
    x[40:80] = np.sign(x[40:80]) / 3
    x[80:120, 1:] = 0.0
    codes = coder.encode(x, fedldp.source(3))
    drawn = words_of(fedldp.source(3), len(x), directions)
    for row, code, words in zip(x.tolist(), codes.tolist(), drawn, strict=True):
        numbers = [round(number * vehicle.LENGTH) for number in row]
        tape = Tape(*words)
        odds = coder._odds
        assert vehicle.direction_code(odds, coder.seed_bits, coder.key, numbers, tape) == code


def test_lengths_are_whole_numbers_as_on_a_vehicle():
    """At every root that a double rounds up, at squares and beside them, and at random."""
    roots = np.concatenate([np.arange(1, 2000), np.random.default_rng(1).integers(1, 2**20, 2000)])
    squares = {0, 2**40 - 1, 2**40, 2**40 + 1, 2**41, 2**38 + 2**8}
    for root in roots.tolist():
        squares |= {root * root, root * root - 1, root * root + 1}
        squares |= {2 ** (2 * k) + root for k in range(12, 20)}
    lengths = np.sqrt(np.array(sorted(squares), np.float64))
    expected = [min(math.isqrt(square << 24), 2**32) for square in sorted(squares)]
    assert _length_shares(lengths).tolist() == expected


def test_rows_are_shortened_as_on_a_vehicle():
    """To the last digit: squares are added in one order everywhere."""
    rows = np.random.default_rng(2).normal(size=(300, 37))
    schema = fedldp.Schema.vector(37, length=3.0)
    plan = vehicle.Plan(fedldp.Plan(schema, 1.0, strategy="directions").to_json(), 1)
    found = DenseRows(rows).shortened(1 / 3.0, 0.0).matrix
    assert found.tolist() == [plan.inputs({"x": row}) for row in rows.tolist()]


def test_sparse_rows_give_the_same_codes():
    coder, x = DirectionsCoder.of(2.0, 50, mean_length=0.5), vectors(1500, 50, 2)
    x[x > 0] = 0.0
    x[3] = 0.0
    dense = coder.encode(x, fedldp.source(4))
    np.testing.assert_array_equal(coder.encode(SparseRows.of(x), fedldp.source(4)), dense)
    assert coder.encode(x[:0], fedldp.source(4)).shape == (0,)


@pytest.fixture
def mixed(monkeypatch):
    """Return a list of how many words are mixed at a time, which is what directions cost."""
    found, mix = [], codebook._mixed

    def remembered(words, scratch):
        found.append(words.shape)
        return mix(words, scratch)

    monkeypatch.setattr(codebook, "_mixed", remembered)
    return found


@pytest.mark.parametrize("rows", [1, 3, 700])
def test_on_a_vehicle_the_work_does_not_depend_on_the_numbers(mixed, rows):
    """Otherwise a network whose gradient is zero for some data alone would show it in the time."""
    coder = DirectionsCoder.of(1.0, 300)
    full = np.full((rows, 300), 0.05)
    some = full * (np.arange(300) % 7 == 0)
    work = []
    for x in (full, some, 0.0 * full, 1e-12 * full):
        mixed.clear()
        coder.encode(x, fedldp.source())
        work.append(mixed.copy())
    assert work == [work[0]] * 4
    assert work[0]
    mixed.clear()
    coder.encode(0.0 * full, fedldp.source(1))  # there is nothing to hide: zeros take no time
    assert sum(shape[0] for shape in mixed) < sum(shape[0] for shape in work[0])


@pytest.mark.parametrize("block", [1 << 17, 1 << 11], ids=["one block", "parts of rows"])
def test_rows_of_any_number_of_numbers_give_the_same_codes(mixed, block, monkeypatch):
    monkeypatch.setattr(codebook, "_BLOCK", block)
    coder, x = DirectionsCoder.of(2.0, 90), vectors(40, 90, 5)
    for row, numbers in enumerate(x):
        numbers[2 * row :] = 0.0
    codes = coder.encode(SparseRows.of(x), fedldp.source(4))
    drawn = words_of(fedldp.source(4), len(x), coder.directions)
    blocks = [words for (words,) in mixed[1:]]
    assert len(blocks) == 1 if block == 1 << 17 else max(blocks) == block // 4
    for row, code, words in zip(x.tolist(), codes.tolist(), drawn, strict=True):
        numbers, tape = [round(number * vehicle.LENGTH) for number in row], Tape(*words)
        assert (
            vehicle.direction_code(coder._odds, coder.seed_bits, coder.key, numbers, tape) == code
        )


def test_rows_that_do_not_fit_are_refused():
    coder = DirectionsCoder.of(1.0, 3)
    for rows in ([[0.6, 0.8, 0.1]], [[np.nan, 0, 0]], [[np.inf, 0, 0]]):
        with pytest.raises(DomainError, match="length of at most 1"):
            coder.encode(rows, fedldp.source(1))
    for rows in ([[0.1, 0.2]], [0.1, 0.2, 0.3], SparseRows.of(np.ones((1, 4)) / 4)):
        with pytest.raises(DomainError, match="rows of 3 numbers"):
            coder.encode(rows, fedldp.source(1))
    with pytest.raises(DomainError, match="Source"):
        coder.encode([[0.1, 0.2, 0.3]], 7)


# Unbiased, computed exactly


def lattice(weight=1, moment=0):
    """Return the law of weight times an entry of the table, times a power of the entry."""
    top = int(TABLE[-1])
    law = np.zeros(2 * top * weight + 1)
    np.add.at(law, (TABLE + top) * weight, TABLE.astype(float) ** moment / 65536)
    return law


@cache
def convolved(weights):
    """Return, for each product of a direction with a vector, how likely smaller ones are.

    And the mean of the direction's first number there, times the probability of the product.
    """
    every, first = lattice(weights[0]), lattice(weights[0], moment=1)
    for weight in weights[1:]:
        every, first = (fftconvolve(each, lattice(weight)) for each in (every, first))
    below = np.clip(np.cumsum(every) - every / 2, 0.0, 1.0)
    matters = every > 1e-15
    return below[matters], first[matters]


def followed(weights, directions, best):
    """Return how far the best of some directions follow a vector, by its first number.

    A direction is among the best if few others have a larger product with it: a binomial law.
    """
    below, first = convolved(weights)
    among = betainc(directions - best, best, below)
    share = weights[0] / np.sqrt(np.sum(np.square(weights)))
    return directions / best * (first @ among) / share


CASES = {
    "1-sparse": (1,),
    "2-sparse, equal": (1, 1),
    "2-sparse, large of 1 and 3": (3, 1),
    "2-sparse, small of 1 and 3": (1, 3),
    "3-sparse, equal": (1, 1, 1),
    "3-sparse, middle of 1, 2 and 4": (2, 1, 4),
    "dense": (1,) * 36,
}


@pytest.mark.parametrize("weights", CASES.values(), ids=CASES)
def test_the_bias_is_small_for_every_vector(weights):
    """By convolution, for every number of directions and every epsilon: at most 0.3%."""
    d, found = len(weights), {}
    for directions, epsilon, null in itertools.product(OFFERED_DIRECTIONS, EPSILONS, (False, True)):
        for length in (1.0, 0.3):
            odds = _best(epsilon, d, length, directions, null).odds
            lean = odds.best * (odds.high - odds.low) / odds.total
            # What follows the vector, as the coder has it; it depends on these two numbers alone.
            known = DirectionsCoder(epsilon, d, *odds, 20, 1).scale / lean
            assert found.setdefault((directions, odds.best), known) == pytest.approx(known)
    for (directions, best), known in found.items():
        bias = followed(weights, directions, best) / known - 1
        assert abs(bias) < (1e-6 if weights == (1,) else 3e-3), (directions, best)


def test_the_bias_is_that_of_whole_codebooks():
    """By enumeration of many seeds: within 5 standard errors, for each of 6 numbers.

    By chance it fails in 1 of 300,000 runs, and the codebooks are fixed.
    """
    x = np.array([0.6, -0.5, 0.3, 0.0, 0.2, -0.1])
    coder = DirectionsCoder.of(4.0, 6)
    seeds = np.arange(60_000, dtype=np.uint32)
    whole = np.rint(x * vehicle.LENGTH)
    g = np.stack([coder.codebook.sent(seeds, np.full(seeds.size, j, np.uint32)) for j in range(63)])
    products = np.einsum("jcn,c->nj", g, whole)
    order = np.argsort(-products, axis=1, kind="stable")
    odds = np.full(products.shape, float(coder.low))
    np.put_along_axis(odds, order[:, : coder.best], float(coder.high), axis=1)
    estimates = np.einsum("nj,jcn->nc", odds / 2.0**62, g) / coder.scale
    error = estimates.std(axis=0) / np.sqrt(seeds.size)
    length = np.sqrt((x**2).sum())
    assert np.all(np.abs(estimates.mean(axis=0) - x / length) < 5 * error)
    assert np.all(error < 0.005)


def test_the_law_of_one_number_is_unbiased_and_of_the_largest_moments():
    for null in (False, True):
        coder = DirectionsCoder.of(2.0, 5, null=null, mean_length=0.5)
        law = coder.law
        np.testing.assert_allclose(law.table.sum(axis=1), 1, atol=1e-12)
        np.testing.assert_allclose(law.table @ law.values, law.letters, atol=1e-9)
        end = float(law.table[-1] @ law.values**2) - 1
        np.testing.assert_allclose(end, coder.variance(1.0), rtol=1e-6)
        # Of a vector with two equal numbers, one of them has a smaller exponential moment.
        values = np.arange(-TABLE[-1], TABLE[-1] + 1)
        for s in (0.1, 1.0, 4.0):
            tilt = lattice() * np.exp(s * values / 1024)
            every = fftconvolve(lattice(), lattice())
            below = np.clip(np.cumsum(every) - every / 2, 0.0, 1.0)
            among = betainc(63 - coder.best, coder.best, below) * 63 / coder.best
            lean = coder.best * (coder.high - coder.low) / 2.0**62
            common = 63 * coder.low / 2.0**62 * tilt.sum()
            two = common + lean * (fftconvolve(tilt, lattice()) @ among) + coder.null / 2.0**62
            one = law.table[-1] @ np.exp(s * law.values * coder.scale / 1024)
            assert two < one * (1 + 1e-9)


# As good as it can be


def privunit(epsilon):
    """Return the error of PrivUnitG for a coordinate of a long vector: the best threshold."""
    ratio = np.exp(epsilon)

    def follows(threshold):
        return (
            (ratio - 1) * norm.pdf(threshold) / (ratio * norm.sf(threshold) + norm.cdf(threshold))
        )

    found = minimize_scalar(lambda x: -follows(x), bounds=(-1, 7), method="bounded")
    return 1 / found.fun**2


def test_the_error_is_close_to_that_of_privunit():
    known = {0.5: 25.2, 1.0: 6.33, 2.0: 1.617, 4.0: 0.435, 6.0: 0.213, 8.0: 0.133}
    for epsilon, error in known.items():
        assert privunit(epsilon) == pytest.approx(error, rel=3e-3)
    for epsilon in np.linspace(0.1, 4.0, 40).round(2):
        coder = DirectionsCoder.of(epsilon, 100_000, null=False)
        assert coder.directions == 63
        assert 1 < coder.noise / privunit(epsilon) < 1.07
        more = DirectionsCoder.of(epsilon, 100_000, null=False, directions=255)
        assert 1 < more.noise / privunit(epsilon) < 1.016
    assert DirectionsCoder.of(8.0, 100_000, fleet=1_000_000).directions == 255


def test_the_null_input_is_used_where_it_has_less_error():
    for epsilon, length in ((0.7, 0.22), (1.0, 0.52), (2.0, 0.85), (4.0, 0.98)):
        assert DirectionsCoder.of(epsilon, 1000, mean_length=length - 0.03).null_input
        assert not DirectionsCoder.of(epsilon, 1000, mean_length=min(length + 0.03, 1)).null_input
    assert DirectionsCoder.of(4.0, 1000, mean_length=0.1).noise_at(0.1) < 0.26 * privunit(4.0)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("d", [1, 4, 200])
@pytest.mark.parametrize("mean_length", [0.2, 1.0])
def test_no_other_choice_has_less_error(epsilon, d, mean_length):
    chosen = DirectionsCoder.of(epsilon, d, mean_length=mean_length, directions=63)
    public = np.full((1, d), mean_length / np.sqrt(d))

    def error(coder):
        noise, _, _ = coder.assumed(public, 1.0)
        return float(np.mean(noise))

    for best, null in itertools.product((1, 3, 8, 16, 22, 27, 31), (False, True)):
        other = directions_of(epsilon, d, 63, best, null)
        assert error(chosen) <= error(other) * (1 + 1e-6)


@pytest.mark.parametrize("mean_length", [0.3, 1.0])
@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_the_stated_noise_is_that_of_the_answers(epsilon, mean_length):
    """The mean square of 200,000 answers, within 6 standard errors for each of 4 numbers."""
    coder = DirectionsCoder.of(epsilon, 4, mean_length=mean_length)
    x = np.tile(vectors(2000, 4, 7, mean_length), (100, 1))
    cells = np.zeros((1, coder.cells), np.int64)
    coder.count(coder.encode(x, fedldp.source(8)), 0, cells[0])
    noise, mean, square = coder.assumed(x, 1.0)
    found = coder.moments(cells)
    expected = noise + square - mean**2
    # The fourth moment of a normal number is three times the square of its second.
    assert np.all(np.abs(found.variance / expected - 1) < 6 * np.sqrt(4 / len(x)))
    assert np.all(np.abs(found.mean - mean) < 5 * np.sqrt(found.variance / len(x)))


# Seeds


def test_seeds_are_long_enough_for_the_fleet():
    for epsilon, directions in itertools.product((0.1, 1.0, 2.0, 4.0), OFFERED_DIRECTIONS):
        coder = DirectionsCoder.of(epsilon, 30, directions=directions)
        assert coder.fleet >= DEFAULT_FLEET
        assert replace(coder, seed_bits=coder.seed_bits - 1).fleet < DEFAULT_FLEET
        small = DirectionsCoder.of(epsilon, 30, directions=directions, fleet=1000)
        assert small.fleet >= 1000
        assert small.seed_bits < coder.seed_bits
    assert DirectionsCoder.of(16.0, 30).fleet > 6_000_000  # the most that 32 bits allow
    with pytest.raises(DomainError, match="do not suffice for a fleet of 20000000"):
        DirectionsCoder.of(8.0, 30, fleet=20_000_000)


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_few_codebooks_add_what_is_computed(epsilon):
    """The mean over all codebooks of a short seed, for many keys, of numbers that are zero.

    Its variance, over 60 keys and 40 numbers, is within a quarter: 5 standard errors or more.
    """
    d, seeds = 41, 32
    coder = replace(DirectionsCoder.of(epsilon, d), seed_bits=5)
    found = []
    for key in range(60):
        keyed = replace(coder, key=key)
        g = np.stack(
            [keyed.codebook.sent(np.arange(seeds), np.full(seeds, j, np.uint32)) for j in range(63)]
        )
        order = np.argsort(-g[:, 0], axis=0, kind="stable")  # the vector is the first axis
        odds = np.full((63, seeds), coder.low / 2.0**62)
        np.put_along_axis(odds, order[: coder.best], coder.high / 2.0**62, axis=0)
        found.append(np.einsum("js,jcs->c", odds, g)[1:] / seeds / coder.scale)
    expected = coder.noise * 0.1 / coder.fleet  # what all vehicles together cannot go below
    assert np.mean(np.square(found)) == pytest.approx(expected, rel=0.25)


def test_intervals_know_of_few_codebooks():
    """Where codebooks are too few for the fleet, errors are as large as stated: over 40 keys.

    The mean square of 40 times 8 standardised errors is within 5 standard errors of 1.
    """
    x = np.tile([0.6, 0, 0, -0.8, 0, 0, 0, 0], (20_000, 1))
    found = []
    for key in range(40):
        coder = replace(DirectionsCoder.of(4.0, 8), seed_bits=9, key=key)
        moments = coder.moments(cells_of(coder, coder.encode(x, fedldp.source(key))))
        assert np.all(moments.variance > 3 * coder.variance(x[0]))
        found.append((moments.mean - x[0]) / np.sqrt(moments.variance / len(x)))
    assert np.mean(np.square(found)) == pytest.approx(1, abs=5 * np.sqrt(2 / 320))


# Tallies


def test_impossible_counters_are_refused():
    coder = DirectionsCoder.of(1.0, 2)
    cells = np.zeros((1, coder.cells), np.int64)
    coder.count(coder.encode(np.zeros((50, 2)), fedldp.source(1)), 0, cells[0])
    answers = np.array([50])
    assert coder.invalid(cells, answers) is None
    top = int(TABLE[-1])
    for place, value in [(1, -1), (1, 51), (2, 50 * top + 1), (4, -1), (4, 50 * top**2 + 1)]:
        wrong = cells.copy()
        wrong[0, place] = value
        assert coder.invalid(wrong, answers) is not None
    wrong = cells.copy()
    wrong[0, [2, 4]] = 50 * top, 50 * top  # a mean square below the square of the mean
    assert coder.invalid(wrong, answers) is not None
    assert coder.invalid(cells, answers + (1 << 38)) is not None


def test_tallies_end_before_integers_do():
    plan = fedldp.Plan(fedldp.Schema.vector(2, length=1.0), 1.0, strategy="directions")
    assert int(TABLE[-1]) ** 2 * plan.parts[0].most_answers < 2**63
    with pytest.raises(DomainError, match="at most 274877906944 reports"):
        replace(plan.tally(), reports=(1 << 38) + 1)


def test_bad_options_are_refused():
    for options, message in [
        ({"mean_length": 1.5}, "mean_length must be"),
        ({"mean_length": "long"}, "mean_length must be"),
        ({"fleet": 0}, "fleet must be at least 1"),
        ({"directions": 64}, "directions must be"),
        ({"null": "yes"}, "null must be"),
    ]:
        with pytest.raises(DomainError, match=message):
            DirectionsCoder.of(1.0, 5, **options)


@pytest.mark.parametrize("mean_length", [0.3, 1.0])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_what_is_not_needed_is_ranked_only_where_time_could_tell(epsilon, mean_length, monkeypatch):
    """A simulation has the same codes; a private source hides which codes depend on the vector."""
    coder, n, d = DirectionsCoder.of(epsilon, 12, mean_length=mean_length), 5_000, 12
    ranked = []
    products = NumpyCodebook._products

    def counted(self, vectors, seeds, product):
        ranked.append(len(vectors))
        return products(self, vectors, seeds, product)

    monkeypatch.setattr(NumpyCodebook, "_products", counted)
    x = vectors(n, d, 3)
    known, private = fedldp.source(5), fedldp.source(5)
    codes = coder.encode(x, known)
    assert sum(ranked) < 0.95 * n
    ranked.clear()
    private._current().seek()  # to the keystream, and not to words of the operating system
    private._current().secret = True  # as if its key were of the operating system
    assert np.array_equal(coder.encode(x, private), codes)
    assert sum(ranked) == n
    assert private.position == known.position


# Honest answers are plausible, searched seeds are not


def cells_of(coder, codes):
    cells = np.zeros((1, coder.cells), np.int64)
    coder.count(codes, 0, cells[0])
    return cells


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("mean_length", [0.3, 1.0])
def test_honest_answers_pass_all_checks(epsilon, mean_length):
    """Of vectors of any kind: each of 36 p-values is below 1/1000 in 1 of 28 runs; seeds are fixed.

    They are bounds, so most of them are far from that.
    """
    coder, n = DirectionsCoder.of(epsilon, 12, mean_length=mean_length), 20_000
    longest = np.full((n, 12), 1 / np.sqrt(12))
    for x in (longest, np.eye(12)[np.arange(n) % 12], np.zeros((n, 12)), vectors(n, 12, 3)):
        checks = coder.checks(cells_of(coder, coder.encode(x, fedldp.source(11))))
        assert len(checks) == 3
        assert min(check.p_value for check in checks) > 1e-3
    assert coder.checks(cells_of(coder, np.zeros(0, np.uint32))) == []


def test_the_mean_square_length_hardly_depends_on_the_vector():
    """By convolution: what `checks` allows for is enough, for every number of best directions."""
    for weights, directions in itertools.product(((1, 1), (3, 1), (1,) * 12), OFFERED_DIRECTIONS):
        unit = float(np.mean(TABLE.astype(float) ** 2))
        for best in (1, 2, 5, 15, directions // 3):
            # The product with the vector has the mean square of its own law where it is large.
            every = lattice(weights[0])
            for weight in weights[1:]:
                every = fftconvolve(every, lattice(weight))
            below = np.clip(np.cumsum(every) - every / 2, 0.0, 1.0)
            among = betainc(directions - best, best, below) * directions / best
            places = np.arange(every.size) - every.size // 2
            many = (every * among) @ (places.astype(float) ** 2) / np.sum(np.square(weights))
            below = (np.arange(65536) + 0.5) / 65536
            one = betainc(directions - best, best, below) * directions / best
            single = np.mean(one * TABLE.astype(float) ** 2)
            assert abs(many - single) / unit < 0.01


def test_searched_seeds_are_found():
    """Three of a hundred vehicles send the best of 2^16 seeds for the vector of all ones."""
    coder, n, d = DirectionsCoder.of(1.0, 12), 50_000, 12
    seeds = np.arange(1 << 16, dtype=np.uint32)
    along = coder.codebook.sent(seeds, np.zeros_like(seeds)).sum(axis=0) / np.sqrt(d) / 1024
    liar = int(np.argmax(along)) << 6
    assert 4 < along.max() < 5.2
    codes = coder.encode(vectors(n, d, 3), fedldp.source(12))
    codes[: n * 3 // 100] = liar
    few, many, long = coder.checks(cells_of(coder, codes))
    assert min(few.p_value, many.p_value) > 0.01
    assert long.p_value < 1e-9
    assert long.found > long.expected


@pytest.mark.parametrize(
    ("mean_length", "length"), [(0.3, 0.0), (0.3, 0.05), (0.3, 1.0), (1.0, 0.05), (1.0, 1.0)]
)
def test_short_vectors_hide_no_searched_seeds(mean_length, length):
    """At epsilon = 4, where directions of vectors are much longer than others, 2% liars are found.

    Null codes tell how many directions were chosen for vectors. Without a null input, a short
    vector is sent as a long one with a random sign, so that only zero vectors could hide them.
    """
    coder, n, d = DirectionsCoder.of(4.0, 12, mean_length=mean_length), 40_000, 12
    assert bool(coder.null_input) == (mean_length < 1)
    honest = coder.encode(np.tile(length * np.eye(d)[3], (n, 1)), fedldp.source(21))
    _, _, long = coder.checks(cells_of(coder, honest))
    assert long.p_value > 0.01
    seeds = np.arange(1 << 16, dtype=np.uint32)
    along = coder.codebook.sent(seeds, np.zeros_like(seeds)).sum(axis=0)
    honest[: n // 50] = int(np.argmax(along)) << (coder.bits - coder.seed_bits)
    _, _, long = coder.checks(cells_of(coder, honest))
    assert long.p_value < 1e-9
    assert long.found > long.expected


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
@pytest.mark.parametrize("null", [False, True])
def test_the_expected_length_holds_for_every_input(epsilon, null):
    """The mean of what is checked, from the odds: 0 for a vector and the null input, else below."""
    coder = DirectionsCoder.of(epsilon, 12, null=null)
    lengths, total = coder._lengths, coder._odds.total
    squares = TABLE.astype(float) ** 2
    top = betainc(coder.directions - coder.best, coder.best, (np.arange(65536) + 0.5) / 65536) * (
        coder.directions / coder.best
    )
    of_best = np.mean(top * squares) / np.mean(squares)
    low, extra = coder.directions * coder.low, coder.best * (coder.high - coder.low)
    along = (low + extra * of_best) / (low + extra)
    for nulls, last in ((coder.null, along), (coder.null_input, 1.0)):
        share = nulls / total
        mean = share * lengths.of_null + (1 - share) * (11 + last - lengths.of_direction)
        if null or last != 1.0:
            assert abs(mean) < 1e-3
        else:
            assert mean < 0
    # Its logarithm is that of the largest E[e^(s T)], which is 1 at s = 0, and convex.
    assert abs(lengths.logarithms[0]) < 1e-5
    assert (np.diff(lengths.logarithms) > -1e-9).all()


def test_null_codes_are_counted():
    coder, n = DirectionsCoder.of(2.0, 5, mean_length=0.3), 10_000
    codes = coder.encode(vectors(n, 5, 3), fedldp.source(13))
    few, many, _ = coder.checks(cells_of(coder, codes))
    assert few.expected < few.found == many.found < many.expected
    for check, x in ((few, np.eye(5)[np.zeros(n, int)]), (many, np.zeros((n, 5)))):
        found = coder.checks(cells_of(coder, coder.encode(x, fedldp.source(14))))[0].found
        assert abs(found - check.expected) < 5 * np.sqrt(check.expected)  # five deviations or more
    few, many, _ = coder.checks(cells_of(coder, np.full(n, 63, np.uint32)))
    assert many.p_value < 1e-9 < few.p_value
    none = codes[codes & 63 < 63]
    few, many, _ = coder.checks(cells_of(coder, none))
    assert few.p_value < 1e-9 < many.p_value
    without = DirectionsCoder.of(2.0, 5)
    _, many, _ = without.checks(cells_of(without, np.full(1, 63, np.uint32)))
    assert many.p_value < 1e-9  # 2^62 / 100, or so


@pytest.mark.parametrize("length", [0.0, 0.4, 1.0])
def test_the_mean_length_is_that_of_the_vectors(length):
    """Within five standard deviations, which the noise exceeds in 1 of 1.7 million cases."""
    coder, n = DirectionsCoder.of(2.0, 5, mean_length=0.4), 40_000
    x = np.tile([length, 0.0, 0.0, 0.0, 0.0], (n, 1))
    shape = coder._shape
    found = coder.mean_length(cells_of(coder, coder.encode(x, fedldp.source(17)))[None])
    assert abs(found - length) < 5 * 0.5 / np.sqrt(n) / (shape.sent - shape.sent_null)


@pytest.mark.parametrize("mean_length", [0.3, 1.0])
def test_what_is_assumed_holds_for_vectors_of_that_kind(mean_length):
    """Uniform lengths in all directions, by sums over a grid and not by its formulas."""
    coder, d = DirectionsCoder.of(2.0, 3, mean_length=mean_length), 3
    rng = np.random.default_rng(5)
    directions = rng.normal(size=(20_000, d))
    directions /= np.sqrt((directions**2).sum(axis=1, keepdims=True))
    lengths = (np.arange(20_000) + 0.5) / 20_000
    for assumption, x in (("uniform", directions * lengths[:, None]), ("worst", directions)):
        noise, mean, square = coder.assumed(assumption, 1.0)
        shown = coder.assumed(x, 1.0)
        assert shown[0].mean() == pytest.approx(float(noise), rel=1e-6)
        assert shown[1] == pytest.approx(np.full(d, mean), abs=0.02)  # some four deviations
        assert shown[2].mean() == pytest.approx(float(square), rel=1e-6)


def test_no_answer_is_farther_than_the_reach():
    coder = DirectionsCoder.of(2.0, 3)
    assert coder.reach == pytest.approx(coder.law.values[-1] - (-1.0), rel=1e-9)


def test_what_is_not_noise_in_the_farthest_answer_is_the_farthest_data():
    coder = DirectionsCoder.of(4.0, 3)
    codes = coder.encode(np.tile([0.6, 0.0, -0.8], (10_000, 1)), fedldp.source(19))
    found = coder.moments(cells_of(coder, codes))
    far = np.maximum((1 - found.mean) ** 2, (-1 - found.mean) ** 2)
    assert found.hidden == pytest.approx(far / (far + coder.noise), rel=1e-12)
    assert found.square == pytest.approx(found.mean**2, rel=1e-12)  # all that is known of it
