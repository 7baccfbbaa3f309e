"""Mechanisms that leak more than they claim: what an audit must catch.

Each is a mistake that public implementations make, in plain NumPy.
"""

from math import exp

import numpy as np

from fedldp import Channel, Source, vehicle


def numpy_random(source: Source, size: int) -> np.ndarray:
    """What `Generator.random` returns: multiples of 2^-53 in [0, 1)."""
    return (source.words(size) >> np.uint64(11)) * 2.0**-53


def uniform(low, high, u):
    """What `Generator.uniform` computes."""
    return low + (high - low) * u


def window(x, epsilon: float, t: float):
    """The bound A, and the window [L, R] around x, of the piecewise family."""
    E = exp(epsilon)
    slope = (E + t) / (E - 1)
    return slope * (1 + 1 / t), slope * (x - 1 / t), slope * (x + 1 / t)


def pm_branches(u, x, epsilon: float = 1.0):
    """Textbook PM given which of left tail, window and right tail it takes: the last axis."""
    A, left, right = window(x, epsilon, exp(epsilon / 2))
    return np.stack(
        [
            uniform(-A, left, u[..., 0]),
            uniform(left, right, u[..., 1]),
            uniform(right, A, u[..., 2]),
        ],
        axis=-1,
    )


def pm_inverse(y, x, epsilon: float = 1.0):
    A, left, right = window(x, epsilon, exp(epsilon / 2))
    return np.stack(
        [(y + A) / (left + A), (y - left) / (right - left), (y - right) / (A - right)], axis=-1
    )


def piecewise(x, source: Source, epsilon: float, t: float, *, even_tails=False, still_tail=False):
    """PM (t = e^(eps/2)) or PM-SUB (t = e^(eps/3)) in textbook NumPy, with mistakes if asked."""
    A, left, right = window(x, epsilon, t)
    inside, side, u = (numpy_random(source, len(x)) for _ in range(3))
    share = 0.5 if even_tails else (left + A) / (left + A + A - right)
    tail = np.where(
        side < share, uniform(-A, left, u), right if still_tail else uniform(right, A, u)
    )
    return np.where(inside < exp(epsilon) / (exp(epsilon) + t), uniform(left, right, u), tail)


def pm(x, source: Source, epsilon: float = 1.0):
    return piecewise(x, source, epsilon, exp(epsilon / 2))


def pm_with_even_tails(x, source: Source, epsilon: float = 1.0):
    """The tails are chosen by a fair coin, not by their lengths."""
    return piecewise(x, source, epsilon, exp(epsilon / 2), even_tails=True)


def pm_sub_with_a_still_tail(x, source: Source, epsilon: float = 1.0):
    """The right tail has no randomness: it is its left end, which tells x."""
    return piecewise(x, source, epsilon, exp(epsilon / 3), still_tail=True)


def duchi_cube(x, source: Source, epsilon: float = 1.0):
    """Duchi's mechanism for two attributes with ties, t . v = 0, drawn from both halves."""
    corners = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]])
    v = np.where(numpy_random(source, x.size).reshape(x.shape) < (1 + x) / 2, 1, -1)
    truthful = numpy_random(source, len(x)) < exp(epsilon) / (exp(epsilon) + 1)
    agreement = np.where(truthful, 1, -1)[:, None] * (v @ corners.T)
    place = np.argsort(agreement < 0, axis=1, kind="stable")  # those of the half come first
    pick = (3 * numpy_random(source, len(x))).astype(int)  # three of the four lie in it
    return corners[place[np.arange(len(x)), pick]]


def raised_by_one(channel: Channel) -> tuple[np.ndarray, int]:
    """A channel's counts, one of them 1 above what its column allows; and the column.

    What the row then has too much is taken from another output, which can spare it.
    """
    counts = channel.counts.copy()
    limit = vehicle.exp_below(vehicle.exact(channel.epsilon))
    most = [int(least) * limit.numerator // limit.denominator for least in counts.min(axis=0)]
    column = int(np.argmax(counts.max(axis=0) / counts.min(axis=0)))
    row = int(np.argmax(counts[:, column]))
    excess = most[column] + 1 - int(counts[row, column])
    spare = counts[row] - counts.min(axis=0)
    spare[column] = -1
    counts[row, column] += excess
    counts[row, np.argmax(spare)] -= excess
    return counts, column
