"""A complete vehicle on the standard library: check a plan, draw a report, send a few bytes.

This file needs only Python. Copy it to a vehicle, or read it to see that the privacy of a report is
a fact about integers:

    python vehicle.py plan.json --cap 1.0 row.json

A plan is a JSON file. Its `schema` lists what a row holds: numbers with public bounds, which are
scaled to [-1, 1], and categories. Its `tables` are integers: the odds of each code that may be
sent for a value. Its `parts` say how each attribute is reported. A `sample` part chooses k of its
coordinates (a coordinate is one number or one category) and draws a code for each from its table;
a `cube` part sends a sign for each of its coordinates, drawn all at once; a `directions` part sends
one of some public random directions, preferably one along its vector. The odds of a code under two
values may not differ by more than a factor of e^epsilon, and the total cost of one report may not
exceed the cap. Nothing else matters for privacy, and no row is ever refused: a value that is
missing or unknown becomes a public value. `Plan.check` reports this to the owner alone, and
`warn_owner` prints it without any effect on the report. Only input that is neither a JSON object,
the row, nor a list of them, the rows of one vehicle, is refused, before anything is drawn: it is a
mistake of the calling program. Of several rows, `Plan.one_row` makes one.
"""

import base64
import hashlib
import json
import os
import random
import re
import secrets
import select
import stat
import sys
import zlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from math import comb, fsum, inf, isfinite, isqrt, sqrt
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

FORMAT = "fedldp channel 1"
PLAN_FORMAT = "fedldp plan 1"
PLAN_FORMAT_2 = "fedldp plan 2"  # with an `estimator` (nothing for a vehicle) or a newer kind
PLAN_FORMATS = PLAN_FORMAT, PLAN_FORMAT_2
CALENDAR_FORMAT = "fedldp calendar 1"
SERVERS_ESTIMATOR = "horvitz-thompson"
WIRE_VERSION = 1
HEADER_BYTES = 16  # of a report
WORD = 64  # bits that draw from the table
LARGEST_ROW_TOTAL = 1 << 62
LEAST_EPSILON = Fraction(1, 1000)
LARGEST_EPSILON = 16  # that a plan writes
ANY_EPSILON = Fraction(64)  # no two positive counts have a ratio of e^64
LARGEST_WEIGHT = 1 << 96  # of a cube
LARGEST_CUBE_SCALE = 1 << 400  # its square is still a float
LARGEST_RELATIVE_BIAS = 2.0**-40  # of the mean of a table's values, relative to the largest
LARGEST_JSON_INTEGER = 1 << 53  # beyond it, many readers of JSON lose digits
LEAST_LETTER_GAP = 2.0**-20  # closer letters would not survive the division by it
ROUNDING = 32  # further bits, that round a value to a letter
MOST_OUTPUTS = 1 << 16  # of a table of numbers
MOST_CATEGORIES = 1 << 16  # of randomized response and of a unary encoding
MOST_LABELS = 1 << 20  # of an attribute
MOST_GRID_VALUES = 255  # of an optional number
MOST_BINS = 1024  # of a number or an angle
OTHER, MISSING = "other", "missing"  # labels that an optional category has
RANDOM = "random"  # the rule of an attribute that declares none: a random row
MOST_LINE_CODES = 1 << 26
MOST_CUBE_SIGNS = 10_000
MOST_DIRECTIONS = 255
MOST_VECTOR_NUMBERS = 1 << 17
DIRECTION_BITS = 32  # of a seed and a direction, at most
LENGTH = 1 << 20  # the whole number that a vector of the public length has as its length
QUANTILES = 1 << 16
QUANTILE_UNIT = 1 << 10  # one standard deviation of the numbers that directions are made of
LARGEST_COORDINATE = 1e100  # before a vector's length is limited: its square is finite
GOLDEN = 0x9E3779B97F4A7C15
MIX = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
MOST_COORDINATES = 1 << 24
MOST_TABLES = 1 << 10
MOST_PERIODS = 1 << 16  # of a calendar: one for each hour of seven years
MOST_BITS = 1 << 27  # of a record
MOST_COUNTERS = 1 << 26  # of a server
MOST_SIGNED_CHARACTERS = 1 << 20
SYSTEM = secrets.SystemRandom()
MISSING_NUMBER_TEXTS = ("", "nan", "+nan", "-nan")
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)

Alias = tuple[list[int], list[int]]


def exact(epsilon: float | str | Fraction) -> Fraction:
    """Return a positive number exactly as it is written: 0.1 means one tenth."""
    try:
        # An exponent can ask for more digits than fit into memory: floats set the limits.
        if "e" in str(epsilon).lower() and not 0 < float(str(epsilon)) < inf:
            raise ValueError
        number = epsilon if isinstance(epsilon, Fraction) else Fraction(str(epsilon))
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"epsilon must be a number; got {epsilon!r}") from None
    if number <= 0:
        raise ValueError(f"epsilon must be positive; got {epsilon!r}")
    return number


@lru_cache(maxsize=256)  # the tables of a plan often have the same epsilon
def exp_below(epsilon: Fraction, bits: int = 256) -> Fraction:
    """Return a number just below e^epsilon: its power series, every term rounded down."""
    term = total = 1 << bits
    k = 0
    while term:
        k += 1
        term = term * epsilon.numerator // (epsilon.denominator * k)
        total += term
    return Fraction(total, 1 << bits)


# Is it private? Integers alone decide.


def fault(counts: Sequence[Sequence[int]], epsilon: Fraction) -> str | None:
    """Return why a table is not epsilon-private, or None if it is. Integers alone decide."""
    if not counts or not counts[0]:
        return "it is empty"
    outputs, total = len(counts[0]), sum(counts[0])
    if outputs < 2:
        return "it has a single output"
    if total & (total - 1) or not 1 << column_bits(outputs) <= total <= LARGEST_ROW_TOTAL:
        return f"a row adds up to {total}: no power of two, or one of the wrong size"
    for number, row in enumerate(counts):
        if len(row) != outputs or min(row) < 0 or sum(row) != total:
            return f"row {number} is not made of {outputs} counts that add up to {total}"
    epsilon = min(epsilon, ANY_EPSILON)
    limit = exp_below(epsilon)
    for number, column in enumerate(zip(*counts, strict=True)):
        least, largest = min(column), max(column)
        if largest * limit.denominator > limit.numerator * least:
            ratio = f"{largest / least:.17g} times the least" if least else "beside a zero"
            return (
                f"column {number} has a count {ratio}, more than e^{float(epsilon):g}: "
                f"{largest} and {least}"
            )
    return None


def response_fault(same: int, other: int, categories: int, epsilon: Fraction) -> str | None:
    """Return why a randomized response is not epsilon-private, or None if it is.

    The true category is sent with the odds `same`, each of the others with the odds `other`.
    """
    if not 2 <= categories <= MOST_CATEGORIES:
        return f"it has {categories} categories, not 2 to {MOST_CATEGORIES}"
    return _response_fault(same, other, categories, epsilon)


def _response_fault(same: int, other: int, labels: int, epsilon: Fraction) -> str | None:
    total = same + (labels - 1) * other
    if not 1 <= other <= same or total & (total - 1) or total > LARGEST_ROW_TOTAL:
        return f"same = {same} and other = {other} are out of order or add up to no power of two"
    return _ratio_fault(same, other, epsilon)


def unary_fault(absent: int, total: int, epsilon: Fraction) -> str | None:
    """Return why a unary encoding is not epsilon-private, or None if it is.

    The true category's bit is 1 with probability 1/2, each other one with absent / total. Under
    two categories two bits differ, and their ratios multiply to (total - absent) / absent.
    """
    if total & (total - 1) or not 2 <= 2 * absent <= total <= LARGEST_ROW_TOTAL:
        return f"absent = {absent} is more than half of total = {total}, or that no power of two"
    return _ratio_fault(total - absent, absent, epsilon)


class Lines(NamedTuple):
    """A category as a vector of `digits` digits in the given base, and the odds of its answers."""

    categories: int
    base: int
    digits: int
    same: int
    other: int

    @property
    def directions(self) -> int:
        """How many directions there are: vectors of digits whose first that is not 0 is 1."""
        return sum(self.base**place for place in range(self.digits))


def lines_fault(lines: Lines, epsilon: Fraction) -> str | None:
    """Return why lines are not epsilon-private, or say nothing; None if they are valid.

    A direction is drawn without looking at the data. Its product with the category, one of `base`
    numbers, is sent by randomized response, so that integers decide as they do there.
    """
    categories, base, digits, same, other = lines
    if not 2 <= categories <= MOST_LABELS:
        return f"it has {categories} categories, not 2 to {MOST_LABELS}"
    if not 1 <= digits <= MOST_LABELS.bit_length() or not 2 <= base <= MOST_LINE_CODES:
        return f"it has {digits} digits in base {base}, which are too few or too many"
    if not base ** (digits - 1) < categories <= base**digits:
        return f"{digits} digits in base {base} are not what {categories} categories need"
    if digits > 1 and any(base % divisor == 0 for divisor in range(2, isqrt(base) + 1)):
        return f"its base {base} is not a prime number"
    if lines.directions * base > MOST_LINE_CODES:
        return f"it has {lines.directions * base} codes, more than {MOST_LINE_CODES}"
    return _response_fault(same, other, base, epsilon)


def cube_fault(d: int, threshold: int, heavy: int, light: int, epsilon: Fraction) -> str | None:
    """Return why a cube is not epsilon-private, or None if it is.

    Signs that agree with the true ones in h of d positions have the odds `heavy` if 2h - d is above
    the threshold, and `light` if not; so the sum of all odds does not depend on the true signs.
    """
    if not 1 <= d <= MOST_CUBE_SIGNS or not -d <= threshold < d:
        return (
            f"{d} signs are not 1 to {MOST_CUBE_SIGNS}, or the threshold {threshold} is beyond them"
        )
    if not 1 <= light <= heavy <= LARGEST_WEIGHT:
        return f"light = {light} and heavy = {heavy} are out of order or too large"
    return _ratio_fault(heavy, light, epsilon)


class Odds(NamedTuple):
    """The odds of a `directions` part.

    For a vector, each of the `best` directions has the odds `high`, each other one `low`, and the
    null code `null`. For the null input each direction has `low` and the null code `null_input`;
    if that is 0, the null input is not used.
    """

    directions: int
    best: int
    high: int
    low: int
    null: int
    null_input: int

    @property
    def total(self) -> int:
        """All odds for a vector."""
        others = self.directions - self.best
        return self.best * self.high + others * self.low + self.null


def directions_fault(odds: Odds, d: int, seed_bits: int, key: int, epsilon: Fraction) -> str | None:
    """Return why directions are not epsilon-private, or cannot be drawn; None if they are valid.

    Each row of odds has the same total, so ratios of probabilities are ratios of odds, whatever
    the directions are, and no matter which of them are the best.
    """
    directions, best, high, low, null, null_input = odds
    if not 1 <= d <= MOST_VECTOR_NUMBERS:
        return f"{d} numbers are not 1 to {MOST_VECTOR_NUMBERS}"
    if directions & (directions + 1) or not 3 <= directions <= MOST_DIRECTIONS:
        return f"{directions} directions are not one less than a power of two from 4 to 256"
    if not 1 <= best < directions:
        return f"{best} best of {directions} directions are not 1 to {directions - 1}"
    if not 1 <= low < high or min(null, null_input) < 0:
        return f"high = {high} and low = {low} are out of order, or null odds are negative"
    total = odds.total
    if total > LARGEST_ROW_TOTAL or total & (total - 1):
        return f"its odds for a vector add up to {total}: no power of two, or one above 2^62"
    if not 1 <= seed_bits <= DIRECTION_BITS - directions.bit_length():
        return f"a seed of {seed_bits} bits and a direction do not fit into {DIRECTION_BITS} bits"
    if not 0 <= key < 1 << WORD:
        return f"its key {key} is not a number of {WORD} bits"
    if null_input:
        if directions * low + null_input != total:
            return f"its odds for a vector and for the null input differ in their total: {odds}"
        reason = _ratio_fault(null_input, null, epsilon)
        if reason is not None:
            return reason
    return _ratio_fault(high, low, epsilon)


def _ratio_fault(largest: int, least: int, epsilon: Fraction) -> str | None:
    epsilon = min(epsilon, ANY_EPSILON)
    if largest <= exp_below(epsilon) * least:
        return None
    return f"its odds {largest} and {least} differ by more than e^{float(epsilon):g}"


# Is it useful? No server counts the answers to a plan that is not.


def bias_fault(
    counts: Sequence[Sequence[int]], letters: Sequence[float], values: Sequence[float]
) -> str | None:
    """Return why a valid table is biased, or None if the mean at each letter is the letter."""
    total, largest = sum(counts[0]), max(map(abs, values))
    for row, letter in zip(counts, letters, strict=True):
        try:
            mean = fsum(count / total * value for count, value in zip(row, values, strict=True))
        except OverflowError:
            mean = inf
        if not abs(mean - letter) <= LARGEST_RELATIVE_BIAS * largest:
            return f"a bias of {abs(mean - letter):g} at the letter {letter:g}"
    return None


def cube_scale(d: int, threshold: int, difference: int, total: int) -> Fraction:
    """Return what a server multiplies a cube's signs by, so that their means are right.

    `difference` is that of heavy and light, and `total` the sum of all odds. In the sum over all
    signs above the threshold, all terms but one cancel.
    """
    above = (d + threshold) // 2 + 1  # the least number of agreements above it
    return Fraction(total, difference * comb(d - 1, above - 1))


# How codes are drawn.


def alias_row(row: Sequence[int]) -> Alias:
    """Prepare a row for drawing with one word and one comparison (Walker's alias method).

    The total is divided among 2^b columns of equal size, each of which holds at most two outputs:
    the column's own number below the threshold, and another one above it. Returned are the
    thresholds, scaled to the bits of a word that follow the first b, and the numbers.
    """
    b = column_bits(len(row))
    total = sum(row)
    size = total >> b
    left = [*row, *[0] * ((1 << b) - len(row))]
    thresholds, others = [0] * len(left), list(range(len(left)))
    short = [i for i, count in enumerate(left) if count < size]
    long = [i for i, count in enumerate(left) if count > size]
    scale = (1 << WORD) // total << b
    while short:
        i, j = short.pop(), long[-1]
        thresholds[i], others[i] = left[i] * scale, j
        left[j] -= size - left[i]
        if left[j] <= size:
            long.pop()
            if left[j] < size:
                short.append(j)
    return thresholds, others


def column_bits(outputs: int) -> int:
    """Return how many bits distinguish a number of outputs."""
    return (outputs - 1).bit_length()


def draw(alias: Alias, word: int) -> int:
    """Draw an output from a prepared row with a random word."""
    thresholds, others = alias
    b = len(others).bit_length() - 1
    column = word >> (WORD - b)
    rest = (word << b) & ((1 << WORD) - 1)
    return column if rest < thresholds[column] else others[column]


def response_code(same: int, other: int, categories: int, own: int, rng: random.Random) -> int:
    """Draw the category to send, by k-ary randomized response, with one random word."""
    total = same + (categories - 1) * other
    u = rng.getrandbits(WORD) >> (WORD + 1 - total.bit_length())
    return own if u < same - other else (u - (same - other)) // other


def line_code(lines: Lines, own: int, rng: random.Random) -> int:
    """Draw a direction, then the product of the category with it, with a random word for each.

    All directions are equally likely up to a share of 2^-38.
    """
    direction = rng.getrandbits(WORD) * lines.directions >> WORD
    product = line_product(lines.base, lines.digits, direction, own)
    answer = response_code(lines.same, lines.other, lines.base, product, rng)
    return direction * lines.base + answer


def line_product(base: int, digits: int, direction: int, own: int) -> int:
    """Return the product of a direction and a category: that of their digits, modulo the base.

    Direction i has, as a number in this base, the i-th of all numbers that begin with the digit 1.
    """
    first = 1
    while direction >= first:
        direction, first = direction - first, first * base
    number, product = first + direction, 0
    for _ in range(digits):
        number, factor = divmod(number, base)
        own, digit = divmod(own, base)
        product += factor * digit
    return product % base


def unary_code(absent: int, total: int, categories: int, own: int, rng: random.Random) -> int:
    """Draw a bit for each category, the first one highest, with a random word for each."""
    shift, code = WORD + 1 - total.bit_length(), 0
    for category in range(categories):
        odds = total // 2 if category == own else absent
        code = code << 1 | (rng.getrandbits(WORD) >> shift < odds)
    return code


def agreement_odds(d: int, threshold: int, heavy: int, light: int) -> list[int]:
    """Return a cube's odds of at most 0, 1, ..., d agreements; the last are those of all."""
    ways, odds = 1, []
    for h in range(d + 1):
        odds.append(ways * (heavy if 2 * h - d > threshold else light))
        ways = ways * (d - h) // (h + 1)
    return list(accumulate(odds))


def below(n: int, rng: random.Random) -> int:
    """Draw a whole number below n, each equally likely.

    The 64 bits beyond those of n make it rare to draw again: less than once in 2^64 times.
    """
    bits = n.bit_length() + WORD
    share = (1 << bits) // n
    while (number := rng.getrandbits(bits) // share) >= n:
        pass
    return number


def subset(k: int, d: int, rng: random.Random) -> list[int]:
    """Choose k of d numbers, each set equally likely, in ascending order (Floyd's algorithm).

    A device in another language needs memory for k numbers only, and throws the same dice.
    """
    chosen: set[int] = set()
    for last in range(d - k, d):
        number = below(last + 1, rng)
        chosen.add(last if number in chosen else number)
    return sorted(chosen)


def distinct(count: int, rng: random.Random) -> list[int]:
    """Draw random words, all of them again if two are equal: so every order is equally likely."""
    while True:
        words = [rng.getrandbits(WORD) for _ in range(count)]
        if len(set(words)) == count:
            return words


def agreements(odds: Sequence[int], rng: random.Random) -> list[bool]:
    """Draw the positions where the sent signs agree with the true ones, without using the data.

    Each position gets a random key, and the h positions with the smallest keys agree. This takes
    the same number of random words for every h: otherwise that number, together with the report,
    would reveal the true signs.
    """
    h, keys = bisect_right(odds, below(odds[-1], rng)), distinct(len(odds) - 1, rng)
    last = [-1, *sorted(keys)][h]
    return [key <= last for key in keys]


@lru_cache(maxsize=1)
def quantiles() -> list[int]:
    """Return the numbers that directions are made of: quantiles of the normal law, rounded.

    None of them is close to a half before it is rounded, so every machine computes the same.
    """
    from statistics import NormalDist  # which few plans need

    normal = NormalDist()
    places = ((u + 0.5) / QUANTILES for u in range(QUANTILES // 2, QUANTILES))
    upper = [round(QUANTILE_UNIT * normal.inv_cdf(place)) for place in places]
    return [-number for number in reversed(upper)] + upper


def mixed(counter: int) -> int:
    """Return a word that looks random: the finalizer of SplitMix64."""
    x = counter & (1 << WORD) - 1
    x = (x ^ x >> 30) * MIX[0] & (1 << WORD) - 1
    x = (x ^ x >> 27) * MIX[1] & (1 << WORD) - 1
    return x ^ x >> 31


def products(vector: Sequence[int], directions: int, key: int, seed: int) -> list[int]:
    """Return the product of each direction of a seed with a vector of whole numbers.

    A word has the coordinates of four directions. The work is the same for every vector.
    """
    table, words = quantiles(), (directions + 1) // 4
    sums = [0] * (4 * words)
    counter = mixed(key + GOLDEN * (seed + 1))
    for x in vector:
        for first in range(0, 4 * words, 4):
            counter += GOLDEN
            word = mixed(counter)
            sums[first] += x * table[word & 0xFFFF]
            sums[first + 1] += x * table[word >> 16 & 0xFFFF]
            sums[first + 2] += x * table[word >> 32 & 0xFFFF]
            sums[first + 3] += x * table[word >> 48]
    return sums[:directions]


def direction_code(
    odds: Odds, seed_bits: int, key: int, vector: Sequence[int], rng: random.Random
) -> int:
    """Draw a seed and one of its directions, or the null code, with three random words.

    A vector that is shorter than LENGTH is used as it is with a probability such that the mean is
    right: otherwise the null input is sent or, where that is not used, perhaps the opposite vector.
    """
    seed, rounding = (rng.getrandbits(ROUNDING) for _ in range(2))
    u = rng.getrandbits(WORD) >> (WORD + 1 - odds.total.bit_length())
    seed >>= ROUNDING - seed_bits
    share = min(isqrt(sum(x * x for x in vector) << 24), 1 << ROUNDING)
    itself = rounding < (share if odds.null_input else (1 << ROUNDING) + share >> 1)
    sign = 1 if itself or odds.null_input else -1
    sums = products(vector, odds.directions, key, seed)
    # The best first; of equal ones that with the lower number.
    order = sorted(range(odds.directions), key=lambda j: -sign * sums[j])
    # Whatever the data are: low for each direction, the rest of high for each of the best, null.
    common = odds.directions * odds.low
    rank = (u - common) // (odds.high - odds.low)
    code = odds.directions
    if u < common:
        code = u // odds.low
    elif rank < odds.best and (itself or not odds.null_input):
        code = order[rank]
    return seed << odds.directions.bit_length() | code


def is_ladder(letters: Sequence[float]) -> bool:
    """Return whether letters ascend from -1 to 1, with room between any two of them."""
    if len(letters) < 2 or (letters[0], letters[-1]) != (-1.0, 1.0):
        return False
    return all(high - low >= LEAST_LETTER_GAP for low, high in pairwise(letters))


def is_even(letters: Sequence[float]) -> bool:
    """Return whether the letters are evenly spaced from -1 to 1."""
    last = len(letters) - 1
    return all(letter == 2 * i / last - 1 for i, letter in enumerate(letters))


def position(letters: Sequence[float], even: bool, x: float) -> float:
    """Return where x lies among the letters: 2.25 is a quarter of the way from 2 to 3."""
    last = len(letters) - 1
    if even:
        return x * (last / 2) + last / 2
    total = 0.0
    for low, high in pairwise(letters):
        total += min(max((x - low) * (1 / (high - low)), 0.0), 1.0)
    return total


def letter_of(place: float, word: int) -> int:
    """Round a position up or down at random, without bias, with a word of 32 bits."""
    return (int(place * (1 << ROUNDING) + 0.5) + word) >> ROUNDING


# What is read: numbers, tables and rows.


def integer(count: object) -> int:
    """Return a count from JSON: a whole number, or a text if it is above 2^53."""
    is_text = isinstance(count, str) and count.isascii() and count.isdigit()
    if not is_text and (not isinstance(count, int) or isinstance(count, bool)):
        raise TypeError(f"a count must be a whole number; got {count!r}")
    number: int = int(count)  # type: ignore[call-overload]
    if json_integer(number) != count:
        raise ValueError(f"a count above 2^53 is a text without leading zeros; got {count!r:.80}")
    return number


def json_integer(number: int) -> int | str:
    """Return a number as it is written in JSON: as a text if it is above 2^53."""
    return number if number <= LARGEST_JSON_INTEGER else str(number)


def table_of(document: dict[str, object]) -> tuple[list[list[int]], list[float]]:
    """Return the counts and the letters of a channel's document, or raise if they are invalid."""
    counts, letters = document["counts"], document["letters"]
    if not isinstance(counts, list) or not all(isinstance(row, list) for row in counts):
        raise TypeError("counts must be a list of lists")
    if not isinstance(letters, list) or not all(type(x) in (int, float) for x in letters):
        raise TypeError("letters must be a list of numbers")
    return [[integer(count) for count in row] for row in counts], [float(x) for x in letters]


class Channel:
    """A channel that has been checked against the most that one value may cost here."""

    def __init__(self, text: str | dict[str, Any], epsilon: float | str | Fraction) -> None:
        try:
            document = text if isinstance(text, dict) else json.loads(text)
            if document is not text and document["format"] != FORMAT:
                raise ValueError(difference(document["format"], [FORMAT]))
            self.counts, self.letters = table_of(document)
        except UNREADABLE as error:
            raise ValueError(f"not a {FORMAT!r}: {error!r}") from None
        reason = fault(self.counts, exact(epsilon))
        if reason is not None:
            raise ValueError(f"refused: {reason}")
        if len(self.letters) != len(self.counts) or not is_ladder(self.letters):
            raise ValueError("refused: it needs a letter for each row, ascending from -1 to 1")
        self.bits = column_bits(len(self.counts[0]))
        self._even = is_even(self.letters)
        self._prepared = [alias_row(row) for row in self.counts]

    def encode(self, x: object, word: int | None = None, rounding: int | None = None) -> int:
        """Return the code to send for x; the words are random unless a test gives them."""
        word = secrets.randbits(WORD) if word is None else word
        rounding = secrets.randbits(ROUNDING) if rounding is None else rounding
        return self.code_of(_clipped(x), word, rounding)

    def code_of(self, x: float, word: int, rounding: int) -> int:
        """Return the code that two random words give for a number in [-1, 1]."""
        letter = letter_of(position(self.letters, self._even, x), rounding)
        return draw(self._prepared[letter], word)


def number_code(channel: Channel, x: float, rng: random.Random) -> int:
    """Draw a code from a channel with two random words."""
    return channel.code_of(x, rng.getrandbits(WORD), rng.getrandbits(ROUNDING))


def _clipped(x: object) -> float:
    """Clip x to [-1, 1], and return 0 if it is not a number: the data never cause a refusal."""
    try:
        return scaled(x, -1.0, 1.0)
    except Exception:
        return 0.0


def scaled(value: Any, low: float, high: float) -> float:
    """Scale a number from its bounds to [-1, 1] and clip it, or raise if it is not a number."""
    number = float_of(value)
    if number != number:
        raise ValueError("not a number")
    return min(max((number - (low / 2 + high / 2)) * (2 / (high - low)), -1.0), 1.0)


def in_lengths(value: Any, length: float) -> float:
    """Scale a number of a vector so that the bound on its length is 1, or raise ValueError."""
    number = float_of(value)
    if number != number:
        raise ValueError("not a number")
    return min(max(number * (1 / length), -LARGEST_COORDINATE), LARGEST_COORDINATE)


def float_of(value: Any) -> float:
    """Return a value as a float, or raise if it is not a number."""
    try:
        return float(value)
    except OverflowError:  # an integer beyond all floats
        return inf if value > 0 else -inf


def shown(value: Any) -> str:
    """Return a value as it is shown in a message."""
    try:
        return f"{value!r:.60}"
    except Exception:  # such as an integer with more digits than Python writes
        return f"this {type(value).__name__}"


def present(value: Any) -> Any:
    """Return a value, or raise if it is missing."""
    if value is None or value != value or value == "":
        raise ValueError("it is missing")
    return value


def position_of(value: Any, low: float, high: float, last: int) -> float:
    """Return where a number lies on a grid, from 0 to the last, or raise if it is not a number."""
    return last * ((1 + scaled(value, low, high)) / 2)


def bucket(value: Any, buckets: int, salt: str) -> int:
    """Return the bucket of a label: the first 64 bits of a hash, modulo their number."""
    digest = hashlib.sha256(salt.encode() + b"\0" + label(value).encode()).digest()
    return int.from_bytes(digest[:8], "big") % buckets


def label(value: Any) -> str:
    """Return the label of a category, or raise if the value is missing."""
    if value is None or value != value:
        raise ValueError("not a category")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


class Attribute(NamedTuple):
    """An attribute that a vehicle reads: `size` numbers, or one of some categories."""

    name: str
    size: int
    categories: int  # 0 for numbers
    missing: float
    read: Callable[[Any], float]  # returns a number in [-1, 1] or a category's number, or raises
    first: int = 0  # its position in a row that is a sequence
    low: float = -inf  # the bounds of a number
    high: float = inf
    length: float = 0.0  # the bound on the length of a vector, if it has one
    optional: bool = False  # whether "missing" is a value like others
    other: int | None = None  # the category of unknown values, if it has one of its own
    rounds: bool = False  # whether an input between two categories is rounded to one of them
    newer: bool = False  # whether it is not in format 1
    parts: tuple["Attribute", ...] = ()  # of an attribute within groups: both attributes
    constant: bool = False  # whether its value never changes
    rule: str = RANDOM  # how several rows become one value

    def value(self, row: Any, offset: int) -> Any:
        """Return the value in a row, or raise if the row has no such value."""
        if not isinstance(row, Mapping):
            return row[self.first + offset]
        value: Any = row.get(self.name)
        if self.size > 1 and value is not None:
            if not isinstance(value, list | tuple) or len(value) != self.size:
                raise TypeError("not a vector of this size")  # no part of it is used
            return value[offset]
        return value

    def value_of(self, rows: Sequence[Any], word: int) -> Any:
        """Return one value of several rows by the rule, or None; a random word chooses a row."""
        if self.rule == RANDOM:
            return rows[word * len(rows) >> WORD].get(self.name) if rows else None
        values = [self._combined(rows, offset) for offset in range(self.size)]
        return values if self.size > 1 else values[0]

    def _combined(self, rows: Sequence[Any], offset: int) -> Any:
        values: list[Any] = []
        places: list[float] = []  # of values in their order
        for row in rows:
            with suppress(Exception):  # a row without a usable value is left out
                value = present(self.value(row, offset))
                is_count = self.rule == "count"
                place = 0.0 if is_count else self._place(value)
                values.append(value)
                places.append(place)
        if self.rule == "count":
            return len(values)
        if not values:
            return None
        if self.rule == "last":
            return values[-1]
        if self.rule == "any":
            labels = [label(value) for value in values]
            return "true" in labels if {"true", "false"} & {*labels} else None
        if self.rule == "maximum":
            return values[places.index(max(places))]
        total = 0.0
        for place in places:  # `sum` would compensate for rounding, in some versions of Python
            total += place
        return total / len(places)

    def _place(self, value: Any) -> float:
        """Return a number, or the number of a label; raise if the value is unusable."""
        code = self.read(value)
        if not self.categories or self.high < inf:
            number = float_of(value)
            return min(max(number, self.low), self.high) if self.rule == "mean" else number
        if self.optional and code == self.missing:
            raise ValueError("it is missing")
        if self.rule == "maximum" and code == self.other:
            raise ValueError("an unknown value")
        return code

    def find(self, row: Any, offset: int) -> float:
        """Return the input of a row's value, or `missing`: an error would reveal something."""
        if self.parts:
            of, groups = (part.find(row, 0) for part in self.parts)
            letters, is_number = self.parts[0].categories or 2, not self.parts[0].categories
            return groups * letters + ((1 + of) / 2 if is_number else of)
        try:
            return self.read(self.value(row, offset))
        except Exception:
            return self.missing

    def inputs(self, row: Any) -> list[float]:
        """Return the input of each coordinate; a vector that is too long is shortened."""
        found = [self.find(row, offset) for offset in range(self.size)]
        if self.length:
            longer = max(length_of(found), 1.0)
            found = [x / longer for x in found]
        return found

    def too_long(self, row: Any) -> str:
        """Return a note if a row's vector is longer than its bound, or an empty text."""
        length = length_of([self.find(row, i) for i in range(self.size)]) if self.length else 0.0
        return f"clipped (its length is {length * self.length:.6g})" if length > 1 + 1e-6 else ""

    def fault(self, row: Any, offset: int) -> str:
        """Return why `find` does not use a row's value as it is, or an empty text if it does."""
        try:
            value = self.value(row, offset)
        except Exception as error:
            missing = "" if self.optional else "missing"
            return "unreadable" if isinstance(error, TypeError) else missing
        try:
            blank = type(value) is str and value.strip().lower() in MISSING_NUMBER_TEXTS
            is_number = not self.categories or self.high < inf
            if value is None or value != value or value == "" or (blank and is_number):
                return "" if self.optional else "missing"
            if self.read(value) == self.other:
                raise ValueError("an unknown value")
            if self.length:
                return ""  # the vector is clipped as a whole
            slack = 1e-6 * (self.high - self.low)
            if not is_number or self.low - slack <= float_of(value) <= self.high + slack:
                return ""
            return f"clipped ({shown(value)})"
        except Exception:
            return f"{'unreadable' if is_number else 'unknown'} ({shown(value)})"


def length_of(vector: Sequence[float]) -> float:
    """Return the length of a vector: squares are added from the first to the last, as doubles."""
    total = 0.0
    for x in vector:  # `sum` would compensate for rounding, in some versions of Python
        total += x * x
    return sqrt(total)


def inputs(attributes: list[Attribute], row: Any) -> list[float]:
    """Return the inputs of a row for each coordinate of some attributes."""
    return [x for each in attributes for x in each.inputs(row)]


def one_row(attributes: Sequence[Attribute], rows: Sequence[Any], word: int) -> dict[str, Any]:
    """Return one row of a vehicle that has several, by the rule of each column."""
    columns = [part for each in attributes for part in each.parts or (each,)]
    return {column.name: column.value_of(rows, word) for column in columns}


class Table(NamedTuple):
    """What a vehicle draws for one coordinate."""

    epsilon: Fraction
    categories: int  # 0 for numbers
    bits: int
    cells: int  # counters for its answers
    draw: Callable[[Any, random.Random], int]


class Part(NamedTuple):
    """What a vehicle sends about some attributes: a text of `bits` characters 0 and 1."""

    epsilon: Fraction
    bits: int
    cells: int
    draw: Callable[[Any, random.Random], str]


def finite(number: Any) -> float:
    """Return a number of a plan, which is written with a point or an exponent."""
    if type(number) is not float or not isfinite(number):
        raise ValueError(f"it needs a finite number, written with a point; got {number!r:.80}")
    return number


def bound(number: Any) -> float:
    """Return a number of an attribute: 0 is not written as -0.0, which would be another text."""
    if str(finite(number)) == "-0.0":
        raise ValueError("zero has no sign")
    return float(number)


def name_of(text: Any) -> str:
    """Return a name or a label of a plan, or raise if it is empty or no text."""
    if text == "":
        raise ValueError("names and labels must not be empty")
    return encodable(text)


def encodable(text: Any) -> str:
    """Return a text of a plan, or raise if it has half of a character, which has no UTF-8."""
    if type(text) is not str:
        raise TypeError(f"it must be a text; got {text!r:.80}")
    text.encode()
    return text


def budget(text: Any) -> Fraction:
    """Return an epsilon of a plan: the shortest text for a double, with a point, no exponent."""
    if type(text) is not str or not set(text) <= set("0123456789.") or str(float(text)) != text:
        raise ValueError(f"epsilon must be a text such as '0.5'; got {text!r:.80}")
    if exact(text) < LEAST_EPSILON:  # so that a cap limits the number of answers too
        raise ValueError(f"epsilon must be at least {float(LEAST_EPSILON)}; got {text}")
    if exact(text) > LARGEST_EPSILON:
        raise ValueError(f"epsilon must be at most {LARGEST_EPSILON}; got {text:.80}")
    return exact(text)


# Plans: every entry is validated.

Entries = dict[str, Callable[[Any], Any]]

WEIGHTS = {"heavy": integer, "light": integer}
NUMBER: Entries = {"name": name_of, "size": int, "low": bound, "high": bound, "missing": bound}
ODDS = {"high": integer, "low": integer, "null": integer, "null_input": integer}
DIRECTIONS: Entries = {"directions": int, "best": int, **ODDS, "seed_bits": int, "key": integer}
LINES: Entries = {"categories": int, "base": int, "digits": int, "same": integer, "other": integer}
ENTRIES: dict[str, Entries] = {  # of objects, except `kind`
    "plan": {"format": str, "epsilon": budget, "schema": list, "tables": list, "parts": list},
    "calendar": {"format": str, "answers": int, "periods": int, "plan": dict},
    "number": NUMBER,
    "vector": {**NUMBER, "length": bound},
    "category": {"name": name_of, "categories": list, "missing": str},
    "optional number": {
        "name": name_of,
        "low": bound,
        "high": bound,
        "optional": bool,
        "grid": int,
    },
    "bins": {"name": name_of, "edges": list, "missing": bound},
    "optional bins": {"name": name_of, "edges": list, "optional": bool},
    "angle": {"name": name_of, "period": bound, "bins": int, "missing": bound},
    "optional angle": {"name": name_of, "period": bound, "bins": int, "optional": bool},
    "optional category": {"name": name_of, "categories": list, "optional": bool},
    "whole numbers": {"name": name_of, "first": int, "last": int},
    "hashed category": {"name": name_of, "buckets": int, "salt": encodable},
    "within": {"name": name_of, "of": dict, "groups": dict},
    "numbers": {"epsilon": budget, "letters": list, "values": list, "counts": list},
    "response": {"epsilon": budget, "categories": int, "same": integer, "other": integer},
    "unary": {"epsilon": budget, "categories": int, "total": integer, "absent": integer},
    "lines": {"epsilon": budget, **LINES},
    "sample": {"k": int, "attributes": list, "tables": list},
    "cube": {"epsilon": budget, "attributes": list, "threshold": int, **WEIGHTS},
    "directions": {"epsilon": budget, "attributes": list, **DIRECTIONS},
}
JOINT_KINDS = ("cube", "directions")  # their parts answer all of their numbers at once
NEWER = ("directions", "lines")  # kinds that are not in format 1


def entries(document: Any, kind: str) -> list[Any]:
    """Return the entries of an object, which must have exactly the entries of its kind."""
    wanted = ENTRIES[kind]
    if type(document) is not dict or document.keys() != wanted.keys():
        raise ValueError(f"it needs the entries {', '.join(wanted)}; got {document!r:.80}")
    for name, of in wanted.items():
        if isinstance(of, type) and type(document[name]) is not of:
            raise TypeError(f"{name} must be of type {of.__name__}; got {document[name]!r:.80}")
    return [of(document[name]) for name, of in wanted.items()]


def check_tables(tables: list[Any], parts: list[Any]) -> None:
    """Refuse tables that no part uses, before any is read: each takes time to check.

    They must come in the order in which the parts use them, each of them once.
    """
    named = dict.fromkeys(number for part in parts for number in part.get("tables", ()))
    if list(named) != list(range(len(tables))):
        raise ValueError("its tables are not those that its parts name, in that order")
    if len(tables) > MOST_TABLES:
        raise ValueError(f"it has {len(tables)} tables, more than {MOST_TABLES}")
    if len(set(map(canonical, tables))) < len(tables):
        raise ValueError("a table stands twice")


def difference(found: object, formats: Collection[str]) -> str:
    """Say how a format differs from the known ones: a newer version may have written it.

    >>> difference("fedldp plan 9", ["fedldp plan 1"])
    "it is a 'fedldp plan 9', which a newer version of fedldp has written: use that one"
    >>> difference("fedldp tally 1", ["fedldp plan 1"])
    "the format differs; got 'fedldp tally 1'"
    """
    if isinstance(found, str):
        name, _, number = found.rpartition(" ")
        known = [int(each.rpartition(" ")[2]) for each in formats if each.startswith(f"{name} ")]
        if known and number.isdecimal() and len(number) < 10 and int(number) > max(known):
            return f"it is a {found!r}, which a newer version of fedldp has written: use that one"
    return f"the format differs; got {found!r:.80}"


def canonical(document: Any) -> str:
    """Return JSON that is the same for equal documents; fingerprints are computed from it."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def canonically(text: str) -> Any:
    """Return what is written in canonical JSON, and refuse any other text.

    Two readers of JSON may understand a text differently, for example one with a key that occurs
    twice. So there is one text for a plan, and it has the fingerprint.
    """
    try:
        document = json.loads(text)
        written = canonical(document)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if written != text:
        raise ValueError("it is not canonical JSON: use the file as fedldp wrote it")
    return document


def refuse(reason: str | None) -> None:
    """Refuse for a reason, if there is one."""
    if reason is not None:
        raise ValueError(reason)


def rules_of(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the rules by which several rows of a vehicle can become one value of an attribute."""
    if "groups" in document:
        return ()  # its two columns have rules
    if "low" in document or "edges" in document:
        return ("mean", "last", "maximum", *(["count"] if document.get("size", 1) == 1 else []))
    if "first" in document:
        return ("last", "maximum", "count")
    if "categories" not in document:
        return ("last",)
    if "optional" in document:
        return ("last", "count")
    is_truth = {"false", "true"} <= {*document["categories"]}
    return ("last", "maximum", "count", *(["any"] if is_truth else []))


def read_attribute(document: Any, first: int) -> Attribute:
    """Read an attribute of the schema."""
    if "rule" in document:
        others = {key: entry for key, entry in document.items() if key != "rule"}
        attribute = read_attribute(others, first)
        known = document["rule"] in rules_of(others)
        refuse(None if known else f"`rule` of {attribute.name} is {document['rule']!r:.80}")
        return attribute._replace(rule=document["rule"], newer=True)
    if "constant" in document:
        known = document["constant"] is True and "groups" not in document
        refuse(
            None if known else "`constant` must be true, and is not for the whole of two columns"
        )
        others = {key: entry for key, entry in document.items() if key != "constant"}
        return read_attribute(others, first)._replace(constant=True, newer=True)
    if "categories" in document:
        return read_category(document, first)
    if "edges" in document or "period" in document:
        return read_bins(document, first)
    if "optional" in document:
        name, low, high, optional, grid = entries(document, "optional number")
        missing = low / 2 + high / 2
    elif "first" in document:
        return read_whole(first, *entries(document, "whole numbers"))
    elif "buckets" in document:
        return read_hashed(first, *entries(document, "hashed category"))
    elif "groups" in document:
        return read_within(*entries(document, "within"))
    else:
        kind, optional = "vector" if "length" in document else "number", False
        name, size, low, high, missing, *bound = entries(document, kind)
    if not (0 < high - low < inf and 2 / (high - low) < inf and low <= missing <= high):
        raise ValueError(f"{name} needs low < high and `missing` between: {low, high, missing}")
    if "optional" in document:
        read = partial(position_of, low=low, high=high, last=grid - 1)
        refuse(None if optional else f"{name} needs `optional` to be true")
        is_grid = 2 <= grid <= MOST_GRID_VALUES
        refuse(None if is_grid else f"{name} needs a grid from 2 to {MOST_GRID_VALUES}")
        number = Attribute(name, 1, grid + 1, grid, read, first, low, high)
        return number._replace(optional=True, rounds=True, newer=True)
    if size < 1:
        raise ValueError(f"{name} needs a size of at least 1; got {size}")
    if bound:
        (length,) = bound
        if (low, high) != (-length, length):
            raise ValueError(f"{name} needs low = -length and high = length; got {low, high}")
        read = partial(in_lengths, length=length)
        return Attribute(name, size, 0, read(missing), read, first, low, high, length)
    default = scaled(missing, low, high)
    return Attribute(name, size, 0, default, lambda x: scaled(x, low, high), first, low, high)


def read_category(document: Any, first: int) -> Attribute:
    """Read a category with listed labels."""
    optional = "optional" in document
    kind = "optional category" if optional else "category"
    name, categories, missing = entries(document, kind)
    codes = {name_of(text): code for code, text in enumerate(categories)}
    if not 2 <= len(codes) == len(categories) <= MOST_LABELS - 2 * optional:
        raise ValueError(f"{name} needs different texts as categories")
    if not optional:
        if missing not in codes:
            raise ValueError(f"{name} needs a list of categories with `missing` among them")
        return Attribute(name, 1, len(codes), codes[missing], lambda x: codes[label(x)], first)
    refuse(None if missing is True else f"{name} needs `optional` to be true")
    other, none = (codes.setdefault(text, len(codes)) for text in (OTHER, MISSING))
    known = lambda x: codes.get(label(present(x)), other)  # noqa: E731
    attribute = Attribute(name, 1, len(codes), none, known, first)
    return attribute._replace(
        optional=True, newer=True, other=None if OTHER in categories else other
    )


def read_bins(document: Any, first: int) -> Attribute:
    """Read a number, or an angle, of which a vehicle sends the bin."""
    is_angle, optional = "period" in document, "optional" in document
    kind = f"{'optional ' * optional}{'angle' if is_angle else 'bins'}"
    name, *numbers, default = entries(document, kind)
    bins = numbers[1] if is_angle else len(numbers[0]) - 1
    if not 2 <= bins <= MOST_BINS:
        raise ValueError(f"{name} needs from 2 to {MOST_BINS} bins; got {bins}")
    period = numbers[0] if is_angle else 0.0
    places = (period * (i / bins) for i in range(bins + 1))
    edges = list(places if is_angle else map(bound, numbers[0]))
    if not all(low < high for low, high in pairwise(edges)) or edges[-1] - edges[0] == inf:
        raise ValueError(f"{name} needs edges that ascend, with a finite range")

    def read(value: Any) -> int:
        number = float_of(value)
        number = number % period if is_angle else number
        if number != number:
            raise ValueError("not a number")
        return bisect_right(edges, number, 1, bins) - 1

    # An angle is never clipped.
    low, high = (-LARGEST_COORDINATE, LARGEST_COORDINATE) if is_angle else (edges[0], edges[-1])
    if optional:
        refuse(None if default is True else f"{name} is not optional: leave `optional` out")
        attribute = Attribute(name, 1, bins + 1, bins, read, first, low, high)
        return attribute._replace(optional=True, newer=True)
    if not edges[0] <= default <= edges[-1]:
        raise ValueError(f"{name} needs `missing` from {edges[0]} to {edges[-1]}; got {default}")
    return Attribute(name, 1, bins, read(default), read, first, low, high)._replace(newer=True)


def read_whole(first: int, name: str, least: int, most: int) -> Attribute:
    """Read a category for each whole number in a range, for others, and for none."""
    bounds = (-LARGEST_JSON_INTEGER, LARGEST_JSON_INTEGER)
    if not bounds[0] <= least < most <= bounds[1] or most - least + 3 > MOST_LABELS:
        raise ValueError(f"{name} needs first < last, and at most {MOST_LABELS} categories")
    other = most - least + 1

    def read(value: Any) -> int:
        try:
            number = float_of(present(value))
        except (ValueError, TypeError):
            if value is None or value != value or value == "":
                raise
            return other
        is_known = least <= number <= most and number.is_integer()
        return int(number) - least if is_known else other

    attribute = Attribute(name, 1, other + 2, other + 1, read, first)
    return attribute._replace(optional=True, newer=True, other=other)


def read_hashed(first: int, name: str, buckets: int, salt: str) -> Attribute:
    """Read a category whose labels are hashed."""
    if not 2 <= buckets < MOST_LABELS:
        raise ValueError(f"{name} needs 2 to {MOST_LABELS - 1} buckets; got {buckets}")
    read = lambda x: bucket(present(x), buckets, salt)  # noqa: E731
    found = Attribute(name, 1, buckets + 1, buckets, read, first)
    return found._replace(optional=True, newer=True)


def read_within(name: str, *entries: Any) -> Attribute:
    """Read an attribute within the groups of another: a row that is a sequence has neither."""
    of, groups = (read_attribute(entry, MOST_COORDINATES) for entry in entries)
    if of.parts or of.size != 1 or of.length or groups.parts or groups.name == of.name:
        raise ValueError(f"{name} needs two different attributes, neither of them a vector")
    if not groups.categories or groups.rounds:
        raise ValueError(f"{name} needs a category as its groups")
    labels = groups.categories * (of.categories or 2)
    if labels > MOST_LABELS:
        raise ValueError(f"{name} has {labels} labels, more than {MOST_LABELS}")
    attribute = Attribute(name, 1, labels, 0, lambda x: x, parts=(of, groups))
    attribute = attribute._replace(rounds=of.rounds or not of.categories, newer=True)
    if (of.rule == RANDOM) is not (groups.rule == RANDOM):
        raise ValueError(f"{name} needs a rule for both columns, or for none")
    return attribute._replace(constant=of.constant and groups.constant)


def read_table(document: Any) -> Table:
    """Read a table and check it."""
    kind = document.pop("kind", None)
    if kind == "numbers":
        epsilon, letters, values, _ = entries(document, kind)
        channel = Channel({**document, "letters": list(map(finite, letters))}, epsilon)
        ascend = all(low < high for low, high in pairwise(map(finite, values)))
        if not len(values) == len(channel.counts[0]) <= MOST_OUTPUTS or not ascend:
            raise ValueError("it needs ascending values, one for each column")
        refuse(bias_fault(channel.counts, channel.letters, values))
        return Table(epsilon, 0, channel.bits, len(values), partial(number_code, channel))
    if kind == "response":
        epsilon, a, same, other = entries(document, kind)
        refuse(response_fault(same, other, a, epsilon))
        refuse("it sends all categories equally often" if same == other else None)
        return Table(epsilon, a, column_bits(a), a, partial(response_code, same, other, a))
    if kind == "unary":
        epsilon, a, total, absent = entries(document, kind)
        refuse(unary_fault(absent, total, epsilon))
        refuse("its bits are 1 equally often" if 2 * absent == total else None)
        return Table(epsilon, a, a, a + 1, partial(unary_code, absent, total, a))
    if kind == "lines":
        epsilon, *numbers = entries(document, kind)
        lines = Lines(*numbers)
        refuse(lines_fault(lines, epsilon))
        refuse("it sends all products equally often" if lines.same == lines.other else None)
        codes = lines.directions * lines.base
        return Table(
            epsilon, lines.categories, column_bits(codes), codes, partial(line_code, lines)
        )
    raise ValueError(f"a table of an unknown kind: {kind!r:.80}")


def largest_cost(costs: Iterable[tuple[Fraction, int]], k: int) -> Fraction:
    """Return the largest cost of k coordinates, given costs and how many coordinates have each."""
    total = Fraction(0)
    for cost, size in sorted(costs, reverse=True):
        total += cost * min(size, k)
        k -= min(size, k)
    return total


def sample_part(attributes: list[Attribute], tables: list[Table], k: int) -> Part:
    """Return the part that sends k coordinates, chosen at random, each through its table."""
    pairs = list(zip(attributes, tables, strict=True))
    if any(attribute.categories != table.categories for attribute, table in pairs):
        raise ValueError("a table is not for its attribute")
    starts = list(accumulate((attribute.size for attribute in attributes), initial=0))
    d = starts[-1]
    if not 1 <= k <= d:
        raise ValueError(f"k must be from 1 to {d}; got {k}")
    epsilon = largest_cost(((t.epsilon, a.size) for a, t in pairs), k)
    index, widest = column_bits(d), max(table.bits for table in tables)
    bits = k * (index + widest) if k < d else sum(a.size * t.bits for a, t in pairs)

    def draw(row: Any, rng: random.Random) -> str:
        sent = []
        for i in subset(k, d, rng) if k < d else range(d):
            place = bisect_right(starts, i) - 1
            attribute, table = pairs[place]
            own = attribute.find(row, i - starts[place])
            if attribute.rounds:
                own = letter_of(own, rng.getrandbits(ROUNDING))
            code = table.draw(own, rng)
            sent.append(f"{i:0{index}b}{code:0{widest}b}" if k < d else f"{code:0{table.bits}b}")
        return "".join(sent)

    return Part(epsilon, bits, sum(a.size * t.cells for a, t in pairs), draw)


def cube_part(
    attributes: list[Attribute], epsilon: Fraction, threshold: int, heavy: int, light: int
) -> Part:
    """Return the part that sends a sign for each coordinate."""
    d = sum(attribute.size for attribute in attributes)
    if any(attribute.categories for attribute in attributes):
        raise ValueError("a cube is for numbers, not for categories")
    refuse(cube_fault(d, threshold, heavy, light, epsilon))
    refuse("the signs of a cube agree and differ equally often" if heavy == light else None)
    odds = agreement_odds(d, threshold, heavy, light)
    if cube_scale(d, threshold, heavy - light, odds[-1]) > LARGEST_CUBE_SCALE:
        raise ValueError(f"the threshold {threshold} of a cube is too far from 0")

    def draw(row: Any, rng: random.Random) -> str:
        agree = agreements(odds, rng)
        values = inputs(attributes, row)
        signs = [letter_of(x * 0.5 + 0.5, rng.getrandbits(ROUNDING)) for x in values]
        return "".join("01"[agrees == sign] for agrees, sign in zip(agree, signs, strict=True))

    return Part(epsilon, d, 2 * d, draw)


def directions_part(attributes: list[Attribute], epsilon: Fraction, *weights: int) -> Part:
    """Return the part that sends a seed and one of its directions for a whole vector."""
    if len(attributes) != 1 or not attributes[0].length:
        raise ValueError("directions are for one vector with a bound on its length")
    odds, (seed_bits, key) = Odds(*weights[:6]), weights[6:]
    refuse(directions_fault(odds, attributes[0].size, seed_bits, key, epsilon))
    bits = seed_bits + odds.directions.bit_length()

    def draw(row: Any, rng: random.Random) -> str:
        vector = [round(x * LENGTH) for x in attributes[0].inputs(row)]
        return f"{direction_code(odds, seed_bits, key, vector, rng):0{bits}b}"

    return Part(epsilon, bits, 2 + 2 * attributes[0].size, draw)


class Plan:
    """A plan that has been checked against the most that one report may cost here.

    Parameters
    ----------
    text
        The plan as canonical JSON: the text of its file.
    cap
        The most epsilon that one report may cost.

    Attributes
    ----------
    epsilon
        What a report costs, exactly.
    bits
        The number of bits of a record.
    fingerprint
        The SHA-256 of the plan's text, in hexadecimal.
    constant
        Whether it asks only for what never changes. Keep the bytes of the first report then, and
        send them whenever the plan is asked again: that costs nothing more.

    Raises
    ------
    ValueError
        If the text is not a valid plan, leaks more than it claims, or costs more than the cap.

    Examples
    --------
    >>> import fedldp
    >>> speed = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> plan = Plan(speed.to_json(), cap=1.0)
    >>> plan.epsilon, plan.bits, len(plan.report({"speed": 30}))
    (Fraction(1, 1), 1, 17)
    >>> plan.check({"speed": 80})
    ['speed is clipped (80)']
    """

    def __init__(self, text: str, cap: float | str | Fraction) -> None:
        most = exact(cap)
        try:
            self._read(canonically(text))
        except UNREADABLE as error:
            raise ValueError(f"refused: {str(error).removeprefix('refused: ')}") from None
        if self.epsilon > most:
            raise ValueError(f"refused: it costs {float(self.epsilon)}, and the cap is {cap}")
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()

    def _read(self, document: Any) -> None:
        if type(document) is dict and document.get("format", PLAN_FORMAT) not in PLAN_FORMATS:
            raise ValueError(difference(document["format"], PLAN_FORMATS))
        expected_format = PLAN_FORMAT
        if type(document) is dict and document.get("estimator") == SERVERS_ESTIMATOR:
            document = {name: entry for name, entry in document.items() if name != "estimator"}
            expected_format = PLAN_FORMAT_2
        name, claim, schema, tables, parts = entries(document, "plan")
        if any(type(item) is dict and item.get("kind") in NEWER for item in (*tables, *parts)):
            expected_format = PLAN_FORMAT_2
        self._schema: list[Attribute] = []
        d = 0
        for entry in schema:
            self._schema.append(read_attribute(entry, d))
            d += self._schema[-1].size
        if any(attribute.newer for attribute in self._schema):
            expected_format = PLAN_FORMAT_2
        self.constant = all(attribute.constant for attribute in self._schema)
        if len({attribute.name for attribute in self._schema}) < len(schema):
            raise ValueError("two attributes have one name")
        columns = [part for each in self._schema for part in each.parts or (each,)]
        if len({(part.name, part.rule) for part in columns}) > len({part.name for part in columns}):
            raise ValueError("a column has two rules")
        if not 1 <= d <= MOST_COORDINATES:
            raise ValueError(f"{d} coordinates are not 1 to {MOST_COORDINATES}")
        if sum(type(part) is dict and part.get("kind") in JOINT_KINDS for part in parts) > 1:
            raise ValueError("it has more than one part of all numbers at once: each takes much")
        check_tables(tables, parts)
        self._tables = [read_table(table) for table in tables]
        self._parts = [self._part(part) for part in parts]
        if name != expected_format:  # after the parts, so that a kind that is unknown here is named
            raise ValueError(f"its format is not {expected_format!r}")
        if sorted(n for part in parts for n in part["attributes"]) != list(range(len(schema))):
            raise ValueError("an attribute is in no part, or in two")
        self.epsilon = sum((part.epsilon for part in self._parts), Fraction(0))
        if self.epsilon > claim:
            raise ValueError(f"it costs {float(self.epsilon)}, and claims {float(claim)}")
        self.bits = sum(part.bits for part in self._parts)
        if self.bits > MOST_BITS:
            raise ValueError(f"a record would have {self.bits} bits, more than {MOST_BITS}")
        if (cells := sum(part.cells for part in self._parts)) > MOST_COUNTERS:
            raise ValueError(f"a server would need {cells} counters, more than {MOST_COUNTERS}")

    def _part(self, document: Any) -> Part:
        kind = document.pop("kind", None)
        if kind == "sample":
            k, attributes, tables = entries(document, kind)
            return sample_part(self._numbers(attributes), chosen(self._tables, tables), k)
        if kind == "cube":
            epsilon, attributes, *weights = entries(document, kind)
            return cube_part(self._numbers(attributes), epsilon, *weights)
        if kind == "directions":
            epsilon, attributes, *weights = entries(document, kind)
            return directions_part(chosen(self._schema, attributes), epsilon, *weights)
        raise ValueError(f"a part of an unknown kind: {kind!r:.80}")

    def _numbers(self, attributes: list[Any]) -> list[Attribute]:
        """Return attributes, which may not have a bound on their length: that is for directions."""
        found = chosen(self._schema, attributes)
        if any(attribute.length for attribute in found):
            raise ValueError("a vector with a bound on its length is for directions alone")
        return found

    def one_row(self, rows: Any, word: int) -> Any:
        """Return one row of a vehicle that has several, by the rule of each attribute.

        Draw the word whatever the rows are, as many programs do not know how many there will be.

        Parameters
        ----------
        rows
            A list of mappings, which may be empty. Anything else is a row, and is returned as it
            is.
        word
            A random word of 64 bits, which chooses a row for attributes without a rule.

        Returns
        -------
        mapping or sequence
            A row for `report`.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed={"low": 0, "high": 50, "rule": "mean"})
        >>> plan = Plan(fedldp.Plan(schema, 1.0).to_json(), cap=1.0)
        >>> plan.one_row([{"speed": 30}, {"speed": 40}], SYSTEM.getrandbits(64))
        {'speed': 35.0}
        """
        if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
            return rows
        return one_row(self._schema, rows, word)

    def inputs(self, row: Any) -> list[float]:
        """Return the inputs that a row is read as.

        Parameters
        ----------
        row
            A mapping of names, or all values in a sequence.

        Returns
        -------
        list of float
            For each coordinate a number in [-1, 1], or the number of a category.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> speed = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="duchi"))
        >>> Plan(speed.to_json(), cap=1.0).inputs({"speed": 30})
        [0.2]
        """
        return inputs(self._schema, row)

    def check(self, row: Any) -> list[str]:
        """Return what a report clips or replaces in a row: for the owner, never to be sent.

        Parameters
        ----------
        row
            A mapping of names, or all values in a sequence.

        Returns
        -------
        list of str
            A sentence for each value and each unknown key; empty if the row is used as it is.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> speed = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="duchi"))
        >>> Plan(speed.to_json(), cap=1.0).check({"sped": 30})
        ['speed is missing', "the key 'sped' is unknown (did you mean 'speed'?)"]
        """
        notes: list[str] = []
        faults: dict[str, None] = {}  # of values, each once
        read = [part for attribute in self._schema for part in attribute.parts or (attribute,)]
        for part in read:
            for offset in range(part.size):
                place = f"{part.name}[{offset}]" if part.size > 1 else part.name
                if fault := part.fault(row, offset):
                    faults[f"{place} is {fault}"] = None
            if fault := part.too_long(row):
                faults[f"{part.name} is {fault}"] = None
        names = [part.name for part in read]
        for key in row if type(row) is dict else ():
            if type(key) is not str or key not in names:
                near = close_to(key, names) if type(key) is str else []
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                notes.append(f"the key {shown(key)} is unknown{hint}")
        return [*faults, *notes]

    def report(self, row: Any, rng: random.Random = SYSTEM) -> bytes:
        """Return what to send for a row.

        Every row gives a report, and takes the same number of random words.

        Parameters
        ----------
        row
            A mapping of names, or all values in a sequence.
        rng
            The random generator; by default that of the operating system.

        Returns
        -------
        bytes
            A report of one vehicle.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> speed = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="duchi"))
        >>> Plan(speed.to_json(), cap=1.0).report({"speed": 30}, random.Random(1)).hex()
        '016e5cc23400e34c00000001d0c3e44c80'
        """
        sent = "".join(part.draw(row, rng) for part in self._parts)
        size = -(-self.bits // 8)
        record = int(sent.ljust(8 * size, "0"), 2).to_bytes(size, "big")
        return packet(self.fingerprint, record)


def close_to(text: str, names: Collection[str]) -> list[str]:
    """Return the name that a text was probably meant to be, if there is one."""
    from difflib import get_close_matches  # for mistakes alone

    return get_close_matches(text, names, n=1)


def packet(fingerprint: str, record: bytes) -> bytes:
    """Return the report of one vehicle: a header of 16 bytes, and its record."""
    head = bytes([WIRE_VERSION]) + bytes.fromhex(fingerprint)[:7] + bytes([0, 0, 0, 1])
    return head + zlib.crc32(head + record).to_bytes(4, "big") + record


class Calendar:
    """A plan that is asked in many periods, of which a vehicle answers in a few that it draws.

    Draw the periods once, before any data are read, and keep them on disk for as long as the
    calendar lasts: a vehicle that draws again would answer too often. In the other periods, send
    nothing.

    Parameters
    ----------
    text
        The calendar as canonical JSON: the text of its file.
    cap
        The most epsilon that all answers together may cost.
    repeats
        Whether your program keeps the bytes of its first report and sends them again in all other
        periods. Only then a plan of attributes that never change (`plan.constant`) costs its
        epsilon once; a program that answers anew pays for every answer.

    Attributes
    ----------
    plan
        What is asked in each period: a `Plan`.
    periods
        The number of periods, which are numbered from 1.
    answers
        In how many of them a vehicle answers.
    epsilon
        What the answers cost in all periods together, exactly.
    fingerprint
        The SHA-256 of the calendar's text, in hexadecimal.

    Raises
    ------
    ValueError
        If the text is not a valid calendar, its plan leaks, or all answers cost more than the cap.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 0.5, fedldp.Sample(mechanism="duchi"))
    >>> calendar = Calendar(fedldp.Calendar(plan, periods=7, answers=2).to_json(), cap=1)
    >>> calendar.epsilon, len(calendar.draw())
    (Fraction(1, 1), 2)
    """

    def __init__(self, text: str, cap: float | str | Fraction, *, repeats: bool = False) -> None:
        try:
            document = canonically(text)
            name, self.answers, self.periods, plan = entries(document, "calendar")
            if name != CALENDAR_FORMAT:
                raise ValueError(f"its format is not {CALENDAR_FORMAT!r}")
            if not 1 <= self.answers <= self.periods <= MOST_PERIODS:
                raise ValueError(
                    f"{self.answers} answers in {self.periods} periods are not allowed"
                )
        except UNREADABLE as error:
            raise ValueError(f"refused: {error}") from None
        self.plan = Plan(canonical(plan), cap)
        once = repeats and self.plan.constant
        self.epsilon = (1 if once else self.answers) * self.plan.epsilon
        if self.epsilon > exact(cap):
            raise ValueError(f"refused: it costs {float(self.epsilon)}, and the cap is {cap}")
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()

    def draw(self, rng: random.Random = SYSTEM) -> list[int]:
        """Draw the periods in which the vehicle answers, each set of them equally likely.

        Parameters
        ----------
        rng
            The random source; by default the operating system's.

        Returns
        -------
        list of int
            The periods in ascending order. Keep them.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 0.5, fedldp.Sample(mechanism="duchi"))
        >>> Calendar(fedldp.Calendar(plan, periods=2, answers=2).to_json(), cap=1).draw()
        [1, 2]
        """
        return [place + 1 for place in subset(self.answers, self.periods, rng)]


def chosen(things: list[Any], numbers: list[Any]) -> list[Any]:
    """Return the things with the given numbers."""
    if not all(type(number) is int and 0 <= number < len(things) for number in numbers):
        raise ValueError(f"there are no such attributes or tables: {numbers!r:.80}")
    return [things[number] for number in numbers]


# Who has signed it? Ed25519 of RFC 8032, for questions that come over a network.

FIELD = (1 << 255) - 19
ORDER = (1 << 252) + 27742317777372353535851937790883648493  # of the base point
CURVE = -121665 * pow(121666, -1, FIELD) % FIELD
SIGNED = re.compile(
    r'\{"format":"fedldp signed 1","key":"([0-9a-f]{64})",'
    r'"signature":"([A-Za-z0-9+/]{85}[AQgw]==)","signed":(\{.*\})\}'
)

Point = tuple[int, int, int, int]  # (x, y, z, t) is the point (x/z, y/z), and t = xy/z


def point(data: bytes) -> Point | None:
    """Return the point that 32 bytes are the only encoding of; None if there is none."""
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & ((1 << 255) - 1)
    if len(data) != 32 or y >= FIELD:
        return None
    # x^2 = u/v, and the root of a fraction takes one power.
    u, v = (y * y - 1) % FIELD, (CURVE * y * y + 1) % FIELD
    x = u * pow(v, 3, FIELD) * pow(u * pow(v, 7, FIELD), (FIELD - 5) // 8, FIELD) % FIELD
    if (v * x * x - u) % FIELD:
        x = x * pow(2, (FIELD - 1) // 4, FIELD) % FIELD
    if (v * x * x - u) % FIELD or (not x and sign):
        return None
    x = FIELD - x if x & 1 != sign else x
    return x, y, 1, x * y % FIELD


def added(p: Point, q: Point) -> Point:
    """Return the sum of two points, which may be equal."""
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % FIELD, (p[1] + p[0]) * (q[1] + q[0]) % FIELD
    c, d = 2 * CURVE * p[3] * q[3] % FIELD, 2 * p[2] * q[2] % FIELD
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % FIELD, g * h % FIELD, f * g % FIELD, e * h % FIELD


def doubled(p: Point) -> Point:
    """Return twice a point."""
    x, y, z, _ = p
    a, b = x * x, y * y
    g, h = a - b, a + b
    e, f = h - (x + y) * (x + y), 2 * z * z + g
    return e * f % FIELD, g * h % FIELD, f * g % FIELD, e * h % FIELD


def key_point(public: bytes) -> Point | None:
    """Return the point of a public key, or None if it is not a key that can be trusted.

    A key of small order would accept a signature for every message, and a key in another form than
    its only one could pass for two keys.
    """
    key = point(public)
    return None if key is None or doubled(doubled(doubled(key)))[0] == 0 else key


def is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether a message has an Ed25519 signature (RFC 8032). It takes some milliseconds.

    A signature or a key that is not in its only form is refused, and so is a key of small order,
    which would accept a signature for every message. Nothing here is secret: the time may depend
    on the values.

    Parameters
    ----------
    public
        The 32 bytes of the key.
    signature
        The 64 bytes of the signature.
    message
        What was signed.

    Returns
    -------
    bool
        Whether the owner of the key has signed the message.

    Examples
    --------
    >>> key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    >>> is_signed(bytes.fromhex(key), bytes(64), b"")
    False
    """
    base, key = point((4 * pow(5, -1, FIELD) % FIELD).to_bytes(32, "little")), key_point(public)
    s = int.from_bytes(signature[32:], "little")
    if base is None or key is None or len(signature) != 64 or s >= ORDER:
        return False
    hashed = hashlib.sha512(signature[:32] + public + message).digest()
    k = int.from_bytes(hashed, "little") % ORDER
    # The first half of the signature must encode [s] base - [k] key.
    minus = FIELD - key[0], key[1], 1, FIELD - key[3]
    terms = None, base, minus, added(base, minus)
    total = 0, 1, 1, 0
    for place in reversed(range(ORDER.bit_length())):
        total = doubled(total)
        term = terms[(s >> place & 1) + 2 * (k >> place & 1)]
        total = total if term is None else added(total, term)
    inverse = pow(total[2], -1, FIELD)
    x, y = total[0] * inverse % FIELD, total[1] * inverse % FIELD
    return (y + ((x & 1) << 255)).to_bytes(32, "little") == signature[:32]


def signed_document(text: str, public: bytes, name: str) -> dict[str, Any]:
    """Return what the owner of a key has signed. Nothing of it is read before that is certain.

    Parameters
    ----------
    text
        The signed text, exactly as `fedldp` wrote it.
    public
        The 32 bytes of the key, which the vehicle's owner has put there.
    name
        The format that the document must have: a signature is valid for one purpose.

    Returns
    -------
    dict
        The document.

    Raises
    ------
    ValueError
        If the key has not signed it, or it is something else.

    Examples
    --------
    >>> signed_document("{}", bytes(32), "fedldp signed job 2")
    Traceback (most recent call last):
    ValueError: refused: it is not a signed text
    """
    parsed = (
        SIGNED.fullmatch(text) if text.isascii() and len(text) <= MOST_SIGNED_CHARACTERS else None
    )
    if parsed is None:
        raise ValueError("refused: it is not a signed text")
    key, signature, signed = parsed.groups()
    if key != hashlib.sha256(public).hexdigest():
        raise ValueError(f"refused: another key has signed it, {key[:16]}...")
    if not is_signed(public, base64.b64decode(signature), signed.encode()):
        raise ValueError("refused: its signature is wrong")
    try:
        document = canonically(signed)
    except UNREADABLE as error:
        raise ValueError(f"refused: what was signed is not a {name!r}: {error}") from None
    if type(document) is not dict or document.get("format") != name:
        raise ValueError(f"refused: what was signed is not a {name!r}")
    return document


# What the owner is told.


def warn_owner(text: str) -> None:
    """Write a line on standard error, for the owner of the data alone.

    What the owner is told depends on the data, so nothing else may depend on standard error. If it
    is closed, full or broken, or its reader does not keep up, the line or the rest of it is left
    out: this function never raises, never waits, and never writes anywhere else.

    Parameters
    ----------
    text
        The line, without its end.

    Examples
    --------
    >>> warn_owner("vehicle: warning: speed is clipped (80)")
    """
    with suppress(Exception):
        stream, line = sys.stderr, f"{text}\n"
        if stream is None:  # it was closed when Python began: its number may be that of any file
            return
        own = stream is sys.__stderr__ and hasattr(select, "poll")  # which Windows has not
        if own:
            # Not through the stream's buffer: Python would write it when it ends, and would wait
            # for that, or fail with a status of its own.
            write_now(stream.fileno(), line.encode(stream.encoding, "backslashreplace"))
        else:  # the stream of a program around this one, such as a notebook
            stream.write(line)
            stream.flush()


def write_now(descriptor: int, data: bytes) -> None:
    """Write what an open file takes without waiting, and leave out the rest.

    Parameters
    ----------
    descriptor
        The number of the open file.
    data
        The bytes to write.

    Raises
    ------
    OSError
        If the file is full or broken.
    """
    own, mode = descriptor, os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        # Others may fill a pipe between `poll` and `write`, and a terminal may have less room than
        # `poll` says. The flag against waiting belongs to an opening of the file, which other
        # programs share: it is set on an opening of our own.
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
        with suppress(OSError):
            own = os.open(f"/dev/fd/{descriptor}", flags)
    try:
        room = select.poll()
        room.register(own, select.POLLOUT)
        while data and room.poll(0) == [(own, select.POLLOUT)]:
            data = data[os.write(own, data[: select.PIPE_BUF]) :]
    finally:
        if own != descriptor:
            os.close(own)


def protect_standard_files() -> None:
    """Open the null device in the place of each standard file that is closed: call this first.

    Otherwise the next file to be opened, such as a ledger, would get the number of standard error,
    and whatever a library writes there would go into that file. And let Python, if this program
    fails, tell that by `warn_owner`: its own traceback would wait for who reads standard error.
    """
    if sys.excepthook is sys.__excepthook__:  # otherwise the process belongs to another program
        sys.excepthook = tell_failure
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest number that is free is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def tell_failure(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Write the traceback of an error that nobody has caught, as `sys.excepthook`."""
    import traceback

    warn_owner("".join(traceback.format_exception(kind, error, trace)).rstrip("\n"))


# A row, and a program.

DEEPEST_NESTING = 64  # of lists and objects in a row
TEXT_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def flattened(text: str) -> str:
    """Return JSON without what is nested too deeply to be a value of a row: null stands there."""
    pieces, depth, start = [], 0, 0
    for match in TEXT_OR_BRACKET.finditer(text):
        if match[0] in ("[", "{"):
            depth += 1
            if depth == DEEPEST_NESTING + 1:
                pieces.append(f"{text[start : match.start()]}null")
                start = len(text)
        elif match[0] in ("]", "}"):
            start = match.end() if depth == DEEPEST_NESTING + 1 else start
            depth -= 1
    return "".join(pieces) + text[start:]


def read_row(data: bytes) -> Any:
    """Return a row from JSON, an object, or several rows: a list of objects, which may be empty.

    Any other text is a mistake of the program that calls, and not data: nothing may be drawn or
    spent for it. So is a list of values, which would be answered with public ones; `Plan.report`
    takes it. The values in objects are data, and never refused.

    Parameters
    ----------
    data
        The bytes of a JSON text.

    Returns
    -------
    dict or list of dict
        The row or rows.

    Raises
    ------
    ValueError
        If the text is not JSON, or neither an object nor a list of them.

    Examples
    --------
    >>> read_row(b'{"speed": 30}')
    {'speed': 30}
    """
    try:
        # Bytes that are not valid text, and numbers of any length, are values like others.
        text = data.decode(json.detect_encoding(data), "replace")
        read = partial(json.loads, parse_int=lambda x: int(x) if len(x) < 400 else float(x))
        try:
            row = read(text)
        except RecursionError:  # it is data like others
            row = read(flattened(text))
    except ValueError as error:
        raise ValueError(f"the row must be a JSON object; it is not JSON: {error}") from None
    rows = row if isinstance(row, list) else [row]
    if not all(isinstance(each, dict) for each in rows):
        names = ". Give one row, or a list of rows, with a name for each value"
        hint = names if isinstance(row, list) else ""
        raise ValueError(f"the row must be a JSON object; got {shown(row)}{hint}")
    return row


def main(arguments: Sequence[str]) -> None:
    """Write the report for a row in hexadecimal, then warn the owner of replaced values."""
    if len(arguments) != 4 or arguments[1] != "--cap":
        raise ValueError("usage: vehicle.py PLAN.json --cap EPSILON ROW.json")
    if sys.stdout is None:
        raise OSError("standard output is closed")
    plan = Plan(Path(arguments[0]).read_text("utf-8"), arguments[2])
    word = SYSTEM.getrandbits(WORD)
    row = plan.one_row(read_row(Path(arguments[3]).read_bytes()), word)
    # A file of its own, so that nothing is left to be written when Python ends.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as output:
        print(plan.report(row).hex(), file=output)
    with suppress(Exception):  # the report is out: nothing else may depend on the data
        for note in plan.check(row):
            warn_owner(f"vehicle: warning: {note}")


if __name__ == "__main__":
    protect_standard_files()
    try:
        main(sys.argv[1:])
    except (OSError, ValueError) as error:
        warn_owner(f"vehicle: {error}")
        sys.exit(1)
