"""The mechanisms as one would write them first in NumPy: the yardstick of `make bench`.

They follow the paper's algorithms line by line, with NumPy's default generator.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fedldp.mechanisms import (
    Duchi,
    Finite,
    Hybrid,
    Laplace,
    Mechanism,
    Piecewise,
    ThreeOutputs,
    ThreeOutputsFlat,
)

Floats = npt.NDArray[np.float64]


def check(x: Floats) -> None:
    if np.isnan(x).any() or (np.abs(x) > 1).any():
        raise ValueError("x must lie in [-1, 1]")


def three_outputs(m: ThreeOutputs, x: Floats, rng: np.random.Generator) -> Floats:
    E, a = np.exp(m.epsilon), m.a
    minus = np.where(
        x >= 0,
        (1 - a) / 2 - ((1 - a) / 2 - (E - a) / (E * (E + 1))) * x,
        (1 - a) / 2 - ((E - a) / (E + 1) - (1 - a) / 2) * x,
    )
    zero = a - (a - a / E) * np.abs(x)
    u = rng.random(x.shape)
    sign = np.where(u < minus, -1, np.where(u < minus + zero, 0, 1))
    return sign * m.C


def duchi(m: Duchi, x: Floats, rng: np.random.Generator) -> Floats:
    return np.where(rng.random(x.shape) < 0.5 + x / (2 * m.C), m.C, -m.C)


def three_outputs_flat(m: ThreeOutputsFlat, x: Floats, rng: np.random.Generator) -> Floats:
    E, a = np.exp(m.epsilon), m.a
    zero = np.minimum(a, 1 - 2 * (E - a) / (E * (E + 1)) - np.abs(x) / m.C)
    minus = (1 - zero - x / m.C) / 2
    u = rng.random(x.shape)
    sign = np.where(u < minus, -1, np.where(u < minus + zero, 0, 1))
    return sign * m.C


def piecewise(m: Piecewise, x: Floats, rng: np.random.Generator) -> Floats:
    E, t, A = np.exp(m.epsilon), m.t, m.A
    left = (E + t) * (x * t - 1) / (t * (E - 1))
    right = (E + t) * (x * t + 1) / (t * (E - 1))
    inside = rng.random(x.shape) < E / (t + E)
    window = left + (right - left) * rng.random(x.shape)
    outside = rng.random(x.shape) * (left + A + A - right)
    outside = np.where(outside < left + A, outside - A, outside - A + right - left)
    return np.where(inside, window, outside)


def hybrid(m: Hybrid, x: Floats, rng: np.random.Generator) -> Floats:
    heads = rng.random(x.shape) < m.beta
    return np.where(heads, perturb(m.continuous, x, rng), perturb(m.discrete, x, rng))


def from_table(m: Finite, x: Floats, rng: np.random.Generator) -> Floats:
    return m.values[codes_of(m, x, rng)]


def codes_of(m: Finite, x: Floats, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Round each x to a letter, then draw from the rows of the table, one letter at a time."""
    letters = m.letters
    low = np.clip(np.searchsorted(letters, x, side="right") - 1, 0, len(letters) - 2)
    odds = (x - letters[low]) / (letters[low + 1] - letters[low])
    letter = low + (rng.random(x.shape) < odds)
    codes = np.empty(x.shape, np.int64)
    for number, row in enumerate(m.table):
        here = letter == number
        codes[here] = rng.choice(len(row), np.count_nonzero(here), p=row)
    return codes


def laplace(m: Laplace, x: Floats, rng: np.random.Generator) -> Floats:
    return x + rng.laplace(0.0, m.scale, x.shape)


WAYS: dict[type, Callable[[Any, Floats, np.random.Generator], Floats]] = {
    Laplace: laplace,
    Duchi: duchi,
    ThreeOutputs: three_outputs,
    ThreeOutputsFlat: three_outputs_flat,
    Piecewise: piecewise,
    Hybrid: hybrid,
    Finite: from_table,
}


def perturb(m: Mechanism, x: Floats, rng: np.random.Generator) -> Floats:
    """One noisy output for each x, by any of the mechanisms."""
    return way_of(m)(m, x, rng)


def way_of(m: Mechanism) -> Callable[[Any, Floats, np.random.Generator], Floats]:
    """How a mechanism is written first: if it is no formula here, from its table."""
    return next(way for kind, way in WAYS.items() if isinstance(m, kind))


def encode(m: Mechanism, outputs: int, x: Floats, rng: np.random.Generator) -> npt.NDArray[Any]:
    """The number of an output for each x: what `Channel.encode` does exactly."""
    if isinstance(m, Finite) and way_of(m) is from_table:
        return codes_of(m, x, rng)
    noisy = perturb(m, x, rng)
    if isinstance(m, Finite):
        return np.sign(noisy).astype(np.int8)
    return discretized(noisy, m.bound, outputs, rng)


def collect(m: Any, x: Floats, rng: np.random.Generator) -> Floats:
    """The paper's Algorithm 6 with k = 1: perturb whole rows, keep one entry of each, average."""
    n, d = x.shape
    noisy = perturb(m, x, rng)
    kept = np.zeros((n, d))
    rows, chosen = np.arange(n), rng.integers(0, d, n)
    kept[rows, chosen] = d * noisy[rows, chosen]
    return kept.mean(axis=0)


def collect_sampled(m: Any, x: Floats, rng: np.random.Generator) -> Floats:
    """The same with a second thought: perturb the chosen entries alone."""
    n, d = x.shape
    rows, chosen = np.arange(n), rng.integers(0, d, n)
    kept = np.zeros((n, d))
    kept[rows, chosen] = d * perturb(m, x[rows, chosen], rng)
    return kept.mean(axis=0)


def train(m: Any, x: Floats, y: Floats, group: int, rng: np.random.Generator) -> Floats:
    """One pass of the paper's Algorithm 1, logistic: whole gradients perturbed, one entry kept."""
    weights = np.zeros(x.shape[1])
    for start in range(0, len(x), group):
        rows, targets = x[start : start + group], y[start : start + group]
        gradients = -(targets / (1 + np.exp(targets * (rows @ weights))))[:, None] * rows
        weights -= 0.1 * collect(m, gradients, rng)
    return weights


def train_sampled(m: Any, x: Floats, y: Floats, group: int, rng: np.random.Generator) -> Floats:
    """The same with a second thought: only the chosen entries of gradients are computed."""
    n, d = x.shape
    weights = np.zeros(d)
    for start in range(0, n, group):
        rows, targets = x[start : start + group], y[start : start + group]
        chosen = rng.integers(0, d, len(rows))
        entries = rows[np.arange(len(rows)), chosen]
        entries = -targets / (1 + np.exp(targets * (rows @ weights))) * entries
        noisy = np.bincount(chosen, perturb(m, entries, rng), d)
        weights -= 0.1 * d * noisy / len(rows)
    return weights


def served(packet: bytes, count: int, widths: tuple[int, int], values: Floats, d: int) -> Floats:
    """The server's half: unpack each report, and average; nothing is checked."""
    records = unpacked(packet, count, sum(widths))
    chosen, codes = records >> widths[1], records & (1 << widths[1]) - 1
    return d * np.bincount(chosen, values[codes], d) / count


def discretized(
    y: Floats, bound: float, outputs: int, rng: np.random.Generator
) -> npt.NDArray[Any]:
    """The paper's Algorithm 5: the number of the point that each output is rounded to."""
    m = (outputs - 1) // 2
    k = np.floor(m * y / bound)
    to_the_left = k + 1 - m * y / bound
    return np.where(rng.random(y.shape) < to_the_left, k, k + 1).astype(np.int64) + m


def packed(fields: list[tuple[npt.NDArray[Any], int]]) -> bytes:
    """Some fields of every record, given their widths: all bits side by side, then packed."""
    bits = [
        (numbers[:, None] >> np.arange(width - 1, -1, -1) & 1).astype(np.uint8)
        for numbers, width in fields
    ]
    return np.packbits(np.concatenate(bits, axis=1)).tobytes()


def unpacked(data: bytes, count: int, width: int) -> npt.NDArray[Any]:
    """The record of every vehicle as a number."""
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=count * width).reshape(count, width)
    return bits @ (1 << np.arange(width - 1, -1, -1))
