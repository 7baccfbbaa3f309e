"""Tables of probabilities: what they do to an input, and how they become tables of integers.

A table has a row for each letter (an input from -1 to 1) and a column for each output value. An
input between two letters is rounded to one of them at random, without bias.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal.validation import Floats, Integers

ROW_TOTAL_BITS = 60


def read_only(numbers: npt.ArrayLike, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """Return an array that cannot be changed: its memory is immutable bytes."""
    array = np.asarray(numbers, dtype)
    return np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)


def probabilities(letters: Floats, table: Floats, x: Floats) -> Floats:
    """Return the probabilities of the outputs for inputs x, along a new last axis."""
    left, to_left, to_right = _neighbours(letters, x)
    # A convex combination, never a difference: tiny probabilities keep all their digits.
    return to_left[..., None] * table[left] + to_right[..., None] * table[left + 1]


def variance(letters: Floats, values: Floats, table: Floats, x: Floats) -> Floats:
    """Return the variance of the output about x, the rounding of x included."""
    deviations = values - letters[:, None]
    mean, square = np.sum(table * deviations, axis=1), np.sum(table * deviations**2, axis=1)
    left, to_left, to_right = _neighbours(letters, x)
    result = np.zeros(x.shape)
    for letter, weight in ((left, to_left), (left + 1, to_right)):
        shift = letters[letter] - x
        result += weight * (square[letter] + 2 * shift * mean[letter] + shift**2)
    return result


def _neighbours(letters: Floats, x: Floats) -> tuple[Integers, Floats, Floats]:
    """Return the letter to the left of each x, and the odds to round there and to the right."""
    left = np.maximum(np.searchsorted(letters, x) - 1, 0)
    low, high = letters[left], letters[left + 1]
    return left, (high - x) / (high - low), (x - low) / (high - low)


def largest_piecewise_quadratic(function: Callable[[Floats], Floats], knots: Floats) -> float:
    """Return the maximum of a function that is quadratic between consecutive knots."""
    left, right = knots[:-1], knots[1:]
    middle, half = (left + right) / 2, (right - left) / 2
    low, mid, high = function(left), function(middle), function(right)
    curvature = low - 2 * mid + high
    summits = middle - half * (high - low) / (2 * np.where(curvature < 0, curvature, -1.0))
    return float(np.max(function(np.concatenate([knots, np.clip(summits, left, right)]))))


def to_counts(values: Floats, letters: Floats, table: Floats, epsilon: float) -> Integers:
    """Return integers in proportion to a symmetric table, rounded towards privacy.

    In each column the least count is rounded up, and no count may exceed e^epsilon times that.
    What a row then lacks or has too much goes to one output, as close to the letter as there is
    room: too little to be seen in the mean.
    """
    total = 1 << ROW_TOTAL_BITS
    ideal = (table + table[::-1, ::-1]) * (total / 2)
    limit = vehicle.exp_below(vehicle.exact(epsilon))
    least = np.ceil(ideal.min(axis=0)).astype(np.int64)
    most = np.array([min(q * limit.numerator // limit.denominator, total) for q in least.tolist()])
    counts = np.clip(np.rint(ideal).astype(np.int64), least, most)
    rows = len(letters)
    for i in range(rows // 2):
        lack = total - int(counts[i].sum())
        room = (most - counts[i]) if lack > 0 else (counts[i] - least)
        counts[i, _closest(values, letters[i], room, abs(lack))] += lack
        counts[rows - 1 - i] = counts[i, ::-1]
    if rows % 2:
        _balance(values, counts[rows // 2], least, most, total)
    return counts


def _balance(values: Floats, row: Integers, least: Integers, most: Integers, total: int) -> None:
    """Make the row of the letter 0 add up to the total, its own mirror image as before."""
    middle, lack = len(values) // 2, total - int(row.sum())
    if len(values) % 2 and least[middle] <= row[middle] + lack <= most[middle]:
        row[middle] += lack
        return
    if lack % 2:  # then there is an output in the middle: only that can be odd
        row[middle] += 1 if row[middle] < most[middle] else -1
    half = (total - int(row.sum())) // 2
    room = (most - row) if half > 0 else (row - least)
    place = _closest(values[:middle], 0.0, room[:middle], abs(half))
    row[place] += half
    row[-1 - place] += half


def _closest(values: Floats, x: float, room: Integers, needed: int) -> int:
    """Return the output closest to x that has the needed room."""
    return int(np.argmin(np.where(room >= needed, np.abs(values - x), np.inf)))
