"""What a vehicle does in integers: bound e^epsilon, draw from a row, round to a letter."""

import itertools
import json
import math
import random
from collections import Counter, defaultdict
from fractions import Fraction
from functools import cache

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from laws import SWITCHES, Scripted
from scipy import stats

import fedldp
from fedldp import vehicle
from fedldp.coders.categories import RandomizedResponse, UnaryEncoding
from fedldp.coders.cube import CubeCoder
from fedldp.mechanisms import HMTP, PM, Duchi, ThreeOutputsFlat

WORDS = 1 << vehicle.ROUNDING


@cache
def channel(name, epsilon, outputs=None):
    return fedldp.mechanism(name, epsilon).channel(outputs)


@cache
def prepared(name, epsilon, outputs=None):
    return vehicle.Channel(channel(name, epsilon, outputs).to_json(), epsilon)


@pytest.mark.parametrize("epsilon", [0.001, 0.1, *SWITCHES, 1.0, 5.0, 16.0])
def test_exp_below_is_just_below(epsilon):
    with mp.workdps(120):
        below = vehicle.exp_below(vehicle.exact(epsilon))
        ratio = mp.mpf(below.numerator) / below.denominator / mp.exp(mp.mpf(repr(epsilon)))
        assert 1 - mp.mpf("1e-60") < ratio < 1


@st.composite
def rows(draw):
    """Counts that add up to a power of two, large enough for a number of outputs."""
    outputs = draw(st.integers(1, 40))
    total = 1 << draw(st.integers(vehicle.column_bits(outputs), 62))
    cuts = sorted(draw(st.lists(st.integers(0, total), min_size=outputs - 1, max_size=outputs - 1)))
    return [high - low for low, high in zip([0, *cuts], [*cuts, total], strict=True)]


@given(row=rows())
@example(row=[1, 1, 1, 1])
@example(row=[0, 0, 4])
@example(row=[1 << 62])
@example(row=[(1 << 62) - 1, 1, 0])
@example(row=Duchi(1.0).channel().counts[0].tolist())
@example(row=PM(1.0).channel(2001).counts[3].tolist())
@settings(max_examples=200)
def test_alias_row_gives_each_output_exactly_its_count(row):
    thresholds, others = alias = vehicle.alias_row(row)
    b = vehicle.column_bits(len(row))
    assert len(thresholds) == len(others) == 1 << b
    width = vehicle.WORD - b
    mass = [0] * (1 << b)
    for column, (threshold, other) in enumerate(zip(thresholds, others, strict=True)):
        below, rest = divmod(threshold, 1 << b)  # how many words of this column stay below it
        assert rest == 0
        assert 0 <= below <= 1 << width
        mass[column] += below
        mass[other] += (1 << width) - below
        # The words next to the threshold are drawn accordingly.
        first = column << width
        for word, output in ((below - 1, column), (below, other)):
            if 0 <= word < 1 << width:
                assert vehicle.draw(alias, first + word) == output
    scale = (1 << vehicle.WORD) // sum(row)
    assert mass[: len(row)] == [count * scale for count in row]
    assert not any(mass[len(row) :])


def words_that_round_up(place):
    """How many of the 2^32 words give the upper letter: a bisection, for they are the highest."""
    low, high = 0, WORDS
    while low < high:
        middle = (low + high) // 2
        if vehicle.letter_of(place, middle) > math.floor(place):
            high = middle
        else:
            low = middle + 1
    return WORDS - low


LADDERS = [
    [-1.0, 1.0],
    ThreeOutputsFlat(1.0).letters.tolist(),
    HMTP(4.0).channel().letters.tolist(),
    [-1.0, -0.3, 0.1, 1 / 3, 0.99, 1.0],
    [-1.0, 0.0, 2.0**-20, 1.0],
]


@pytest.mark.parametrize("letters", LADDERS, ids=range(len(LADDERS)))
@given(x=st.floats(-1, 1) | st.floats(0, 2.0**-20))
def test_rounding_to_letters_is_unbiased(letters, x):
    place = vehicle.position(letters, vehicle.is_even(letters), x)
    left = min(math.floor(place), len(letters) - 2)
    low, high = Fraction(letters[left]), Fraction(letters[left + 1])
    up = 1 if place == len(letters) - 1 else Fraction(words_that_round_up(place), WORDS)
    assert abs(low + up * (high - low) - Fraction(x)) <= (high - low) / WORDS
    assert {vehicle.letter_of(place, word) for word in (0, WORDS - 1)} <= {left, left + 1}


@pytest.mark.parametrize("letters", LADDERS, ids=range(len(LADDERS)))
def test_letters_are_never_rounded_away(letters):
    for number, letter in enumerate(letters):
        place = vehicle.position(letters, vehicle.is_even(letters), letter)
        assert {vehicle.letter_of(place, word) for word in (0, WORDS - 1)} == {number}


# The same codes as the library


@pytest.mark.parametrize(
    ("name", "epsilon", "outputs", "n"),
    [
        ("duchi", 1.0, None, 30_000),
        ("three-outputs", 1.0, None, 5_000),
        ("three-outputs-flat", 4.0, None, 10_000),
        ("pm-sub", 0.01, 3, 3_000),
        ("pm", 1.0, 2001, 5_000),
        ("hm", 8.0, 127, 5_000),
        ("hm-tp", 2.0, 31, 10_000),
        ("optimal", 1.0, None, 10_000),
    ],
)
def test_same_codes_from_the_same_words(name, epsilon, outputs, n):
    """For n below 2^15 `Channel.encode` takes all words first, and then all that round."""
    c, ours = channel(name, epsilon, outputs), prepared(name, epsilon, outputs)
    x = fedldp.source(40).uniform(n) * 2 - 1
    special = np.concatenate([c.letters, np.nextafter(c.letters, 0), [-1.0, 0.0, 1.0, -0.0]])
    x[: special.size] = special
    source = fedldp.source(41)
    given = (x.tolist(), source.words(n).tolist(), source.words(n, np.uint32).tolist())
    assert ours.bits == c.bits
    np.testing.assert_array_equal(c.encode(x, fedldp.source(41)), list(map(ours.encode, *given)))


@pytest.mark.parametrize("name", ["duchi", "three-outputs-flat"])
def test_same_codes_at_the_words_that_just_round_up(name):
    """With epsilon 16 the code all but tells the letter."""
    c, ours, n = channel(name, 16.0), prepared(name, 16.0), 3_000
    x, words = fedldp.source(42).uniform(n) * 2 - 1, fedldp.source(43).words(n).tolist()
    places = [vehicle.position(ours.letters, len(c.letters) == 2, value) for value in x.tolist()]
    first = [-int(place * WORDS + 0.5) % WORDS for place in places]  # that rounds up
    codes = []
    for rounding in (first, [word - 1 for word in first]):
        codes.append(c.encode(x, Scripted([*words, *rounding])))
        np.testing.assert_array_equal(
            codes[-1], list(map(ours.encode, x.tolist(), words, rounding))
        )
    assert np.mean(codes[0] > codes[1]) > 0.6  # so the words are those that decide


def test_draws_its_own_words(monkeypatch):
    """Without given words: 20,000 codes, each count within 6 deviations; once in 10^8."""
    c, ours, n = channel("three-outputs", 1.0), prepared("three-outputs", 1.0), 20_000
    observed = np.bincount([ours.encode(1.0) for _ in range(n)], minlength=3)
    p = c.table[-1]
    assert np.all(np.abs(observed - n * p) < 6 * np.sqrt(n * p * (1 - p)))
    asked = []
    monkeypatch.setattr(vehicle.secrets, "randbits", lambda bits: asked.append(bits) or 0)
    ours.encode(0.3)
    assert asked == [vehicle.WORD, vehicle.ROUNDING]  # so what draws and what rounds share no bit


def test_a_cap_beyond_any_table_works():
    text = channel("duchi", 16.0).to_json()
    assert vehicle.Channel(text, "1e300").encode(1.0) in (0, 1)


@pytest.mark.parametrize("x", [None, "0.3x", [], object(), 1j])
def test_a_value_that_is_not_a_number_counts_as_zero(x):
    ours = prepared("hm-tp", 2.0)
    assert ours.encode(x, 12345, 678) == ours.encode(0.0, 12345, 678)


@given(x=st.floats() | st.integers(), word=st.integers(0, 2**64 - 1), up=st.integers(0, WORDS - 1))
@example(x=10**400, word=0, up=0)
@example(x=-(10**400), word=0, up=0)
def test_no_value_makes_a_vehicle_refuse(x, word, up):
    for name in ("duchi", "three-outputs-flat", "hm-tp"):
        ours = prepared(name, 2.0)
        code = ours.encode(x, word, up)
        assert 0 <= code < len(ours.counts[0])
        public = 0.0 if x != x else max(-1.0, min(1.0, x))
        assert code == ours.encode(public, word, up)


# Whole reports


def small_plan(k, attributes):
    """A number, one of three categories and one of two, with epsilons of their own."""
    schema = [
        {"name": "x", "low": -1.0, "high": 1.0, "missing": 0.0, "size": 1},
        {"name": "city", "categories": ["a", "b", "c"], "missing": "a"},
        {"name": "flag", "categories": ["no", "yes"], "missing": "no"},
    ]
    numbers = {**json.loads(channel("duchi", 0.7).to_json()), "kind": "numbers"}
    del numbers["format"]
    tables = [
        numbers,
        RandomizedResponse.of(1.0, 3).to_document(),
        UnaryEncoding.of(0.5, 2).to_document(),
    ]
    part = {"kind": "sample", "k": k, "attributes": attributes, "tables": attributes}
    last = attributes[-1] + 1
    plan = {"format": "fedldp plan 1", "epsilon": "9.0", "schema": schema[:last], "parts": [part]}
    return vehicle.Plan(vehicle.canonical({**plan, "tables": tables[:last]}), 9)


def coordinate_law(number, value):
    """The probability of each code of a coordinate of that plan, as it is written in a report."""
    if number == 0:
        c = channel("duchi", 0.7)
        up = Fraction(int((value + 1) * 2**31), 2**32)  # of 2^32 words, those that round up
        rows = [[Fraction(count, c.total) for count in row] for row in c.counts.tolist()]
        return {code: (1 - up) * rows[0][code] + up * rows[1][code] for code in (0, 1)}
    if number == 1:
        coder = RandomizedResponse.of(1.0, 3)
        odds = [coder.same if code == value else coder.other for code in range(3)]
        return {code: Fraction(each, coder.total) for code, each in enumerate(odds)}
    coder = UnaryEncoding.of(0.5, 2)
    one = [Fraction(1, 2) if i == value else Fraction(coder.absent, coder.total) for i in (0, 1)]
    return {
        2 * a + b: (one[0] if a else 1 - one[0]) * (one[1] if b else 1 - one[1])
        for a in (0, 1)
        for b in (0, 1)
    }


def report_law(k, attributes, row):
    """The probability of each record, from the tables: a choice of coordinates, then codes."""
    d, law = len(attributes), defaultdict(Fraction)
    chosen = list(itertools.combinations(range(d), k))
    for places in chosen:
        codes = [coordinate_law(attributes[place], row[attributes[place]]) for place in places]
        for sent in itertools.product(*codes):
            text = "".join(
                f"{place:0{(d - 1).bit_length()}b}{code:02b}"
                for place, code in zip(places, sent, strict=True)
            )
            odds = math.prod(each[code] for each, code in zip(codes, sent, strict=True))
            law[text] += odds / len(chosen)
    assert sum(law.values()) == 1
    return law


@pytest.mark.parametrize(
    ("k", "attributes", "epsilon"),
    [(1, [0, 1], "1.0"), (2, [0, 1, 2], "1.7"), (1, [0, 1, 2], "1.0")],
)
def test_whole_reports_cost_what_the_plan_says_and_have_their_law(k, attributes, epsilon):
    """Exact over all rows; then chi-squares, a false alarm of any of 6 once in 10^5."""
    plan = small_plan(k, attributes)
    assert plan.epsilon == Fraction(epsilon)
    rows = list(itertools.product((-1.0, 1.0, 0.25), range(3), range(2)))
    laws = [report_law(k, attributes, row) for row in rows]
    assert all(law.keys() == laws[0].keys() for law in laws)
    ratio = max(max(law[text] for law in laws) / min(law[text] for law in laws) for text in laws[0])
    assert ratio <= vehicle.exp_below(plan.epsilon)
    assert ratio > vehicle.exp_below(plan.epsilon) * (1 - Fraction(1, 10**11))
    n, rng = 20_000, random.Random(80)
    for place in (5, len(rows) - 1):
        x, city, flag = rows[place]
        row = {"x": x, "city": "abc"[city], "flag": ("no", "yes")[flag]}
        found = Counter(f"{plan.report(row, rng)[16]:08b}"[: plan.bits] for _ in range(n))
        texts = sorted(laws[place])
        assert found.keys() <= set(texts)
        expected = [float(laws[place][text] * n) for text in texts]
        assert stats.chisquare([found[text] for text in texts], expected).pvalue > 1e-6


@pytest.mark.parametrize(("d", "threshold"), [(1, 0), (2, 0), (3, "best"), (4, 0), (5, 2)])
def test_a_vehicles_cube_has_the_law(d, threshold):
    """Chi-squares of all signs of a cube; a false alarm of any of 5 once in 10^5."""
    cube, n, rng = CubeCoder.of(1.5, d, threshold), 20_000, random.Random(81)
    x = [0.25, -1.0, 1.0, 0.0, -0.5][:d]
    attribute = {"name": "x", "low": -1.0, "high": 1.0, "missing": 0.0, "size": d}
    part = {**cube.to_document(), "attributes": [0]}
    plan = {"format": "fedldp plan 1", "epsilon": "1.5", "schema": [attribute], "tables": []}
    ready = vehicle.Plan(vehicle.canonical({**plan, "parts": [part]}), "1.5")
    assert (ready.bits, ready.epsilon) == (d, Fraction(3, 2))
    found = Counter(ready.report(x, rng)[16] >> (8 - d) for _ in range(n))
    corners = np.array(list(itertools.product((-1, 1), repeat=d)))
    heavy = corners @ corners.T > cube.threshold
    table = np.where(heavy, float(cube.heavy), float(cube.light))
    p = np.prod((1 + corners * x) / 2, axis=1) @ table / table[0].sum()
    assert stats.chisquare([found[code] for code in range(2**d)], n * p).pvalue > 1e-6


# What is private


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1), Fraction(7, 2), Fraction(16)])
def test_faults_begin_exactly_at_the_bound(epsilon):
    limit = vehicle.exp_below(epsilon)
    light = 1 << 30
    heavy = int(limit * light)
    assert vehicle.cube_fault(5, 0, heavy, light, epsilon) is None
    assert "differ by more than e" in vehicle.cube_fault(5, 0, heavy + 1, light, epsilon)
    for categories in (2, 3, 100):
        other = math.ceil((1 << 60) / (limit + categories - 1))
        same = (1 << 60) - (categories - 1) * other
        assert vehicle.response_fault(same, other, categories, epsilon) is None
        leak = vehicle.response_fault(same + categories - 1, other - 1, categories, epsilon)
        assert "differ by more than e" in leak
    absent = math.ceil((1 << 60) / (limit + 1))
    assert vehicle.unary_fault(absent, 1 << 60, epsilon) is None
    assert "differ by more than e" in vehicle.unary_fault(absent - 1, 1 << 60, epsilon)


def test_an_epsilon_beyond_all_tables_works():
    """It is not even computed; and nothing with a zero is private with it."""
    huge = Fraction(10) ** 400
    assert vehicle.cube_fault(1, 0, 1 << 90, 1, huge) is None
    assert "too large" in vehicle.cube_fault(1, 0, 1 << 97, 1, huge)
    assert "beside a zero" in vehicle.fault([[2, 0], [1, 1]], huge)


@pytest.mark.parametrize(("d", "threshold"), [(1, 0), (1, -1), (4, 0), (5, -5), (9, 8), (60, 7)])
def test_agreement_odds_count_corners(d, threshold):
    odds = vehicle.agreement_odds(d, threshold, 7, 3)
    weights = [7 if 2 * h - d > threshold else 3 for h in range(d + 1)]
    exactly = [math.comb(d, h) * weight for h, weight in enumerate(weights)]
    assert odds == [sum(exactly[: h + 1]) for h in range(d + 1)]
