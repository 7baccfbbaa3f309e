"""A whole vehicle on the standard library: check a table, draw from it, send a few bits.

This file needs nothing but Python. Copy it to a vehicle, or read it to see that the privacy of
what is sent is a fact about integers:

    python vehicle.py channel.json --cap 1.0 0.3 -0.7

A channel is a table of counts. Its rows are the letters, which are input values from -1 to 1; its
columns are the outputs; every row adds up to the same power of two. A value is rounded at random
to one of the two letters next to it, and an output is drawn with the odds in that letter's row.
Whatever the value, no output is more than e^epsilon times as likely as under another value, if no
count is more than e^epsilon times another one in its column. Nothing else matters for privacy.
"""

import json
import secrets
import sys
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

FORMAT = "fedldp channel 1"
WORD = 64  # bits that draw from the table
LARGEST_TOTAL = 1 << 62  # of a row
LEAST_GAP = 2.0**-20  # between two letters: closer ones would not survive the division by it
ROUNDING = 32  # further bits, that round a value to a letter

Alias = tuple[list[int], list[int]]


def exact(epsilon: float | str | Fraction) -> Fraction:
    """Return the positive number that was written: 0.1 means one tenth."""
    try:
        number = epsilon if isinstance(epsilon, Fraction) else Fraction(str(epsilon))
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"epsilon must be a number; got {epsilon!r}") from None
    if number <= 0:
        raise ValueError(f"epsilon must be positive; got {epsilon!r}")
    return number


def exp_below(epsilon: Fraction, bits: int = 256) -> Fraction:
    """Return a number just below e^epsilon: its power series, every term rounded down."""
    term = total = 1 << bits
    k = 0
    while term:
        k += 1
        term = term * epsilon.numerator // (epsilon.denominator * k)
        total += term
    return Fraction(total, 1 << bits)


def fault(counts: Sequence[Sequence[int]], epsilon: Fraction) -> str | None:
    """Return why a table is not epsilon-private, or None if it is. Integers alone decide."""
    if not counts or not counts[0]:
        return "it is empty"
    outputs, total = len(counts[0]), sum(counts[0])
    if outputs < 2:
        return "it has a single output"
    if total & (total - 1) or not 1 << column_bits(outputs) <= total <= LARGEST_TOTAL:
        return f"a row adds up to {total}: no power of two, or one of the wrong size"
    for number, row in enumerate(counts):
        if len(row) != outputs or min(row) < 0 or sum(row) != total:
            return f"row {number} is not made of {outputs} counts that add up to {total}"
    limit = exp_below(min(epsilon, Fraction(64)))  # no two positive counts have a ratio of e^64
    for number, column in enumerate(zip(*counts, strict=True)):
        least, largest = min(column), max(column)
        if largest * limit.denominator > limit.numerator * least:
            ratio = f"{largest / least:.17g} times the least" if least else "beside a zero"
            return (
                f"column {number} has a count {ratio}, more than e^{float(epsilon):g}: "
                f"{largest} and {least}"
            )
    return None


def alias_row(row: Sequence[int]) -> Alias:
    """Prepare a row for drawing with one word and one comparison (Walker's alias method).

    The total is dealt out to 2^b columns of equal size, of which each holds at most two outputs:
    the column's own number below the threshold, and above it another one. Returned are the
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
    """Return how many bits it takes to tell so many outputs apart."""
    return (outputs - 1).bit_length()


def draw(alias: Alias, word: int) -> int:
    """Draw an output from a prepared row with a random word."""
    thresholds, others = alias
    b = len(others).bit_length() - 1
    column = word >> (WORD - b)
    rest = (word << b) & ((1 << WORD) - 1)
    return column if rest < thresholds[column] else others[column]


def is_ladder(letters: Sequence[float]) -> bool:
    """Tell whether letters ascend from -1 to 1, with room between any two of them."""
    if len(letters) < 2 or (letters[0], letters[-1]) != (-1.0, 1.0):
        return False
    return all(high - low >= LEAST_GAP for low, high in pairwise(letters))


def is_even(letters: Sequence[float]) -> bool:
    """Tell whether the letters are the evenly spaced ones from -1 to 1."""
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


def integer(count: object) -> int:
    """Return a count as it stands in JSON: a whole number, or a text if it is a long one."""
    is_text = isinstance(count, str) and count.isascii() and count.isdigit()
    if not is_text and (not isinstance(count, int) or isinstance(count, bool)):
        raise TypeError(f"a count must be a whole number; got {count!r}")
    return int(count)  # type: ignore[call-overload, no-any-return]


def table_of(document: dict[str, object]) -> tuple[list[list[int]], list[float]]:
    """Return the counts and the letters of a channel's document, or raise if it has none."""
    if document["format"] != FORMAT:
        raise ValueError("the format differs")
    counts, letters = document["counts"], document["letters"]
    if not isinstance(counts, list) or not all(isinstance(row, list) for row in counts):
        raise TypeError("counts must be a list of lists")
    if not isinstance(letters, list) or not all(type(x) in (int, float) for x in letters):
        raise TypeError("letters must be a list of numbers")
    return [[integer(count) for count in row] for row in counts], [float(x) for x in letters]


class Channel:
    """A channel that has been checked against the most that one value may cost here."""

    def __init__(self, text: str, epsilon: float | str | Fraction) -> None:
        try:
            self.counts, self.letters = table_of(json.loads(text))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
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
        letter = letter_of(position(self.letters, self._even, _clipped(x)), rounding)
        return draw(self._prepared[letter], word)


def _clipped(x: object) -> float:
    """Return x within [-1, 1], and 0 for what is no number: the data never cause a refusal."""
    try:
        value = float(x)  # type: ignore[arg-type]
    except OverflowError:  # an integer beyond all floats
        return 1.0 if x > 0 else -1.0  # type: ignore[operator]
    except (TypeError, ValueError):
        return 0.0
    return min(max(value, -1.0), 1.0) if value == value else 0.0


def pack(codes: Iterable[int], bits: int) -> bytes:
    """Pack codes one after another, the first in the highest bits, and fill up with zeros."""
    packed = bytearray()
    number = length = 0
    for code in codes:
        number, length = number << bits | code, length + bits
        while length >= 8:
            length -= 8
            packed.append(number >> length)
            number &= (1 << length) - 1
    if length:
        packed.append(number << (8 - length))
    return bytes(packed)


def main(arguments: Sequence[str]) -> str:
    """Encode the values given on the command line; return the bytes to send, in hexadecimal."""
    if len(arguments) < 4 or arguments[1] != "--cap":
        raise ValueError("usage: vehicle.py CHANNEL.json --cap EPSILON X [X ...]")
    path, _, cap, *values = arguments
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        # The cap is for all values together.
        channel = Channel(file.read(), exact(cap) / len(values))
    # Not even a value that cannot be read may change whether something is sent.
    return pack((channel.encode(x) for x in values), channel.bits).hex()


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]))
    except (OSError, ValueError) as error:
        sys.exit(f"vehicle: {error}")
