"""The mechanisms as one would write them first in NumPy: the yardstick of `make bench`.

They follow the paper's algorithms line by line, with NumPy's default generator.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

import fedldp

Floats = npt.NDArray[np.float64]


def check(x: Floats) -> None:
    if np.isnan(x).any() or (np.abs(x) > 1).any():
        raise ValueError("x must lie in [-1, 1]")


def three_outputs(m: fedldp.ThreeOutputs, x: Floats, rng: np.random.Generator) -> Floats:
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


def duchi(m: fedldp.Duchi, x: Floats, rng: np.random.Generator) -> Floats:
    return np.where(rng.random(x.shape) < 0.5 + x / (2 * m.C), m.C, -m.C)


def pm_sub(m: fedldp.PMSub, x: Floats, rng: np.random.Generator) -> Floats:
    E, t, A = np.exp(m.epsilon), m.t, m.A
    left = (E + t) * (x * t - 1) / (t * (E - 1))
    right = (E + t) * (x * t + 1) / (t * (E - 1))
    inside = rng.random(x.shape) < E / (t + E)
    window = left + (right - left) * rng.random(x.shape)
    outside = rng.random(x.shape) * (left + A + A - right)
    outside = np.where(outside < left + A, outside - A, outside - A + right - left)
    return np.where(inside, window, outside)


def hm_tp(m: fedldp.HMTP, x: Floats, rng: np.random.Generator) -> Floats:
    heads = rng.random(x.shape) < m.beta
    return np.where(heads, pm_sub(m.continuous, x, rng), three_outputs(m.discrete, x, rng))


def laplace(m: fedldp.Laplace, x: Floats, rng: np.random.Generator) -> Floats:
    return x + rng.laplace(0.0, m.scale, x.shape)


def collect(m: Any, x: Floats, rng: np.random.Generator) -> Floats:
    """The paper's Algorithm 5 with k = 1: perturb whole rows, keep one entry of each, average."""
    n, d = x.shape
    noisy = hm_tp(m, x, rng)
    kept = np.zeros((n, d))
    rows, chosen = np.arange(n), rng.integers(0, d, n)
    kept[rows, chosen] = d * noisy[rows, chosen]
    return kept.mean(axis=0)


def collect_sampled(m: Any, x: Floats, rng: np.random.Generator) -> Floats:
    """The same with a second thought: perturb the chosen entries alone."""
    n, d = x.shape
    rows, chosen = np.arange(n), rng.integers(0, d, n)
    kept = np.zeros((n, d))
    kept[rows, chosen] = d * hm_tp(m, x[rows, chosen], rng)
    return kept.mean(axis=0)


def train(m: Any, x: Floats, y: Floats, group: int, rng: np.random.Generator) -> Floats:
    """One pass of the paper's Algorithm 1, logistic: whole gradients perturbed, one entry kept."""
    weights = np.zeros(x.shape[1])
    for start in range(0, len(x), group):
        rows, targets = x[start : start + group], y[start : start + group]
        gradients = -(targets / (1 + np.exp(targets * (rows @ weights))))[:, None] * rows
        weights -= 0.1 * collect(m, gradients, rng)
    return weights


def dense_mean(chosen: npt.NDArray[Any], values: Floats, d: int) -> Floats:
    """The server's half: a row of floats for each report, and their mean; a million at a time."""
    total, million = np.zeros(d), 1_000_000
    for start in range(0, len(chosen), million):
        some = chosen[start : start + million]
        rows = np.zeros((len(some), d))
        rows[np.arange(len(some)), some] = values[start : start + million]
        total += rows.sum(axis=0)
    return d * total / len(chosen)


def discretized(
    y: Floats, bound: float, outputs: int, rng: np.random.Generator
) -> npt.NDArray[Any]:
    """The paper's Algorithm 4: the number of the point that each output is rounded to."""
    m = (outputs - 1) // 2
    k = np.floor(m * y / bound)
    to_the_left = k + 1 - m * y / bound
    return np.where(rng.random(y.shape) < to_the_left, k, k + 1).astype(np.int64) + m
