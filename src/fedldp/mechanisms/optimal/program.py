"""The linear program behind the optimal mechanisms.

A mechanism is epsilon-private exactly if, for some base measure q, all its rows lie between q and
e^epsilon q. Given q on finitely many outputs y, the best row for an input x, the one of least
variance, is known in closed form: e^epsilon q on a window of outputs and q outside it, with the
two ends of the window cut so that the row has mass 1 and mean x. By duality its variance is

    Var(x) = max over centres m and radii r of  r^2 - (x - m)^2 + sum_y q_y phi((y - m)^2 - r^2),
    phi(c) = c if c >= 0 else e^epsilon c,

and the maximum is attained where the window's ends are outputs, m - r = y_a and m + r = y_b. Each
triple (x, a, b) is thus one linear inequality between Var(x) and q, and only a few of them
matter: they are added as they turn out to be violated.
"""

from dataclasses import dataclass
from math import exp, expm1, sqrt

import numpy as np

from fedldp._internal.science import scipy_module
from fedldp._internal.validation import Floats, Integers

Cut = tuple[int, int, int]

SOLVER_VERSION = 1  # a part of the cache's keys: raise it when results change
_RELATIVE_PRECISION = 1e-7  # of the variances in the program
_FIRST_INPUTS = 64
_NEXT_INPUTS = 16
_FIRST_WINDOW_LENGTHS = (0.25, 0.5, 1.0)  # relative to the outputs' range


@dataclass(frozen=True)
class VarianceLimits:
    """Demands Var(x_i) + spare <= factor * limit_i, for each input x_i."""

    limit: Floats
    spare: float = 0.0


@dataclass(frozen=True)
class Solution:
    """A base measure and what it achieves."""

    outputs: Floats
    base: Floats
    factor: float
    variances: Floats
    cuts: frozenset[Cut]
    multipliers: dict[Cut, float]
    reach: Floats  # the multipliers that keep the mean 1 within reach, for each output
    mass: Floats  # those of sum q <= 1 and of 1 <= e^epsilon sum q


def trapezoid(weights: Floats) -> Floats:
    """Return weights, on even spacing from end to end, that add up to 1."""
    halved = weights.copy()
    halved[[0, -1]] /= 2
    scaled: Floats = halved / halved.sum()
    return scaled


def phi(c: Floats, growth: float) -> Floats:
    """Return c if c >= 0 else growth * c: the least p c for p from 1 to growth."""
    return np.where(c >= 0, c, growth * c)


def solve(
    outputs: Floats,
    epsilon: float,
    inputs: Floats,
    limits: VarianceLimits,
    *,
    weights: Floats | None = None,
    factor: float | None = None,
    cuts: frozenset[Cut] = frozenset(),
) -> Solution | None:
    """Minimise the factor of the limits or, given weights, the weighted mean of the variances.

    Outputs are symmetric about 0, and inputs are those from 0 to 1, evenly spaced: all else
    follows by symmetry. The program starts with some of the inputs, and others join where the
    limits turn out to be violated. Returns None if there is no solution.
    """
    linprog = scipy_module("optimize").linprog

    growth = exp(epsilon)
    # The solver sees numbers near 1: lengths in this unit, and e^epsilon q instead of q.
    unit = sqrt(float(limits.limit.max()))
    y, x = outputs / unit, inputs / unit
    size, half = len(y), (len(y) + 1) // 2
    fold = np.zeros((size, half))
    fold[np.arange(size), np.minimum(np.arange(size), np.arange(size)[::-1])] = 1 / growth
    active = np.arange(0, len(x), -(-(len(x) - 1) // _FIRST_INPUTS))
    price = np.zeros(len(x))
    if weights is not None:
        price[active] = trapezoid(weights[active])
    active = np.union1d(active, [i for i, _, _ in cuts]).astype(np.int64)
    cuts = cuts or _first_cuts(y, x, active)
    while True:
        fixed, fixed_to = _fixed_inequalities(y, 1 / unit, growth, fold, limits, active, unit**2)
        chosen = sorted(cuts)
        i, a, b = np.array(chosen).T
        centre, square = (y[a] + y[b]) / 2, ((y[b] - y[a]) / 2) ** 2
        slopes = phi((y - centre[:, None]) ** 2 - square[:, None], growth) @ fold
        picked = np.where(active == i[:, None], -1.0, 0.0)
        body = np.hstack([slopes, picked, np.zeros((len(i), 1))])
        result = linprog(
            np.concatenate([np.zeros(half), price[active], [1.0 if weights is None else 0.0]]),
            A_ub=np.vstack([body, fixed]),
            b_ub=np.concatenate([(x[i] - centre) ** 2 - square, fixed_to]),
            bounds=np.repeat(
                [(0, np.inf), (-np.inf, np.inf), (factor or 0, factor or np.inf)],
                [half, len(active), 1],
                axis=0,
            ),
        )
        if result.status != 0:
            return None
        base = fold @ result.x[:half]
        variances, windows = _variances(outputs, base, epsilon, inputs)
        claimed = np.full(len(x), np.inf)
        claimed[active] = result.x[half:-1] * unit**2
        wrong = np.flatnonzero(variances - claimed > _RELATIVE_PRECISION * variances)
        allowed = result.x[-1] * limits.limit - limits.spare
        over = np.setdiff1d(np.flatnonzero(variances > (1 + _RELATIVE_PRECISION) * allowed), active)
        over = over[:: -(-len(over) // _NEXT_INPUTS)] if len(over) else over
        new = frozenset((int(k), *windows[k]) for k in (*wrong, *over)) - cuts
        if not new:
            break
        cuts |= new
        active = np.union1d(active, over).astype(np.int64)
    # A multiplier is the price of one unit, and the lengths' unit is not 1.
    prices = -result.ineqlin.marginals
    return Solution(
        outputs,
        base,
        float(result.x[-1]),
        variances,
        cuts,
        dict(zip(chosen, prices.tolist(), strict=False)),
        unit * prices[len(chosen) + 2 :][:size],
        unit**2 * prices[len(chosen) : len(chosen) + 2],
    )


def _fixed_inequalities(
    y: Floats,
    one: float,
    growth: float,
    fold: Floats,
    limits: VarianceLimits,
    active: Integers,
    area: float,
) -> tuple[Floats, Floats]:
    """Return the inequalities that are not cuts: mass, reach of the mean 1, the limits."""
    mass = fold.sum(axis=0)
    above = y - y[:, None]
    # The largest mean within q <= p <= growth q is the least of these over all thresholds.
    reach = np.where(above >= 0, growth * above, above) @ fold
    left = np.vstack([mass, -growth * mass, -reach])
    count = len(active)
    below = np.hstack([np.eye(count), -limits.limit[active, None] / area])
    rows = [
        np.hstack([left, np.zeros((len(left), count + 1))]),
        np.hstack([np.zeros((count, left.shape[1])), below]),
    ]
    right = [np.array([1.0, -1.0]), y - one, np.full(count, -limits.spare / area)]
    return np.vstack(rows), np.concatenate(right)


def _first_cuts(y: Floats, x: Floats, active: Integers) -> frozenset[Cut]:
    def closest(values: Floats) -> list[int]:
        nearest_outputs: list[int] = np.argmin(np.abs(y - values[:, None]), axis=1).tolist()
        return nearest_outputs

    inputs = x[active]
    return frozenset(
        cut
        for length in _FIRST_WINDOW_LENGTHS
        for cut in zip(
            active.tolist(),
            closest(inputs - length * y[-1] / 2),
            closest(inputs + length * y[-1] / 2),
            strict=True,
        )
    )


def best_rows(outputs: Floats, base: Floats, epsilon: float, inputs: Floats) -> Floats:
    """Return the row of least variance for each input: the base, and more of it in a window."""
    edges, start, length = _windows(outputs, base, epsilon, inputs)
    low = np.maximum(edges[:-1], start[:, None])
    high = np.minimum(edges[1:], start[:, None] + length)
    rows: Floats = base + expm1(epsilon) * np.maximum(high - low, 0)
    return rows


def _windows(
    outputs: Floats, base: Floats, epsilon: float, inputs: Floats
) -> tuple[Floats, Floats, float]:
    """Return the outputs' edges on the scale of accumulated base, and the windows on it.

    All windows have the same length there, and as they move up, the mean of the row rises.
    """
    edges = np.concatenate([[0.0], np.cumsum(base)])
    moments = np.concatenate([[0.0], np.cumsum(base * outputs)])
    length = max((1 - edges[-1]) / expm1(epsilon), 0.0)
    starts = np.unique(np.clip(np.concatenate([edges, edges - length]), 0, edges[-1] - length))
    means = np.interp(starts + length, edges, moments) - np.interp(starts, edges, moments)
    start = np.interp(inputs / expm1(epsilon), np.maximum.accumulate(means), starts)
    return edges, start, length


def _variances(
    outputs: Floats, base: Floats, epsilon: float, inputs: Floats
) -> tuple[Floats, list[tuple[int, int]]]:
    """Return the least variance for each input, and the two ends of its window."""
    rows = best_rows(outputs, base, epsilon, inputs)
    variances: Floats = np.sum(rows * (outputs - inputs[:, None]) ** 2, axis=1)
    edges, start, length = _windows(outputs, base, epsilon, inputs)
    last = len(outputs) - 1
    a = np.clip(np.searchsorted(edges, start, side="right") - 1, 0, last)
    b = np.clip(np.searchsorted(edges, start + length, side="left") - 1, 0, last)
    return variances, list(zip(a.tolist(), b.tolist(), strict=True))
