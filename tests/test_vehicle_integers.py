"""What a vehicle does in integers: bound e^epsilon, draw from a row, round to a letter, pack."""

import math
from fractions import Fraction

import mpmath as mp
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from laws import SWITCHES

import fedldp
from fedldp import vehicle

WORDS = 1 << vehicle.ROUNDING


@pytest.mark.parametrize("epsilon", [0.001, 0.1, *SWITCHES, 1.0, 5.0, 16.0])
def test_exp_below_is_just_below(epsilon):
    with mp.workdps(120):
        below = vehicle.exp_below(vehicle.exact(epsilon))
        ratio = mp.mpf(below.numerator) / below.denominator / mp.exp(mp.mpf(repr(epsilon)))
        assert 1 - mp.mpf("1e-60") < ratio < 1


@st.composite
def rows(draw):
    """Counts that add up to a power of two, large enough for so many outputs."""
    outputs = draw(st.integers(1, 40))
    total = 1 << draw(st.integers(vehicle.column_bits(outputs), 62))
    cuts = sorted(draw(st.lists(st.integers(0, total), min_size=outputs - 1, max_size=outputs - 1)))
    return [high - low for low, high in zip([0, *cuts], [*cuts, total], strict=True)]


@given(row=rows())
@example(row=[1, 1, 1, 1])
@example(row=[0, 0, 4])
@example(row=[1 << 62])
@example(row=[(1 << 62) - 1, 1, 0])
@example(row=fedldp.Duchi(1.0).channel().counts[0].tolist())
@example(row=fedldp.PM(1.0).channel(2001).counts[3].tolist())
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
    fedldp.ThreeOutputsFlat(1.0).letters.tolist(),
    fedldp.HMTP(4.0).channel().letters.tolist(),
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


@given(bits=st.integers(1, 12), data=st.data())
def test_pack_puts_the_codes_one_after_another(bits, data):
    codes = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=40))
    packed, used = vehicle.pack(iter(codes), bits), len(codes) * bits
    assert len(packed) == math.ceil(used / 8)
    text = "".join(f"{byte:08b}" for byte in packed)
    assert [int(text[i : i + bits], 2) for i in range(0, used, bits)] == codes
    assert set(text[used:]) <= {"0"}


def test_pack_golden_bytes():
    assert vehicle.pack([1, 2, 3], 5).hex() == "0886"
    assert vehicle.pack([1, 0, 1], 1).hex() == "a0"
    assert vehicle.pack([], 5) == b""
