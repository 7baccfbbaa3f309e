"""Where the linear program meets the mechanisms: grids, limits, the range of outputs, channels."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache

import numpy as np

from fedldp._internal import cache as cache_files
from fedldp._internal.science import scipy_module
from fedldp._internal.validation import Floats
from fedldp.coders.channel import Channel, exact_channel
from fedldp.errors import FedLDPError
from fedldp.mechanisms.discretization import even_letters
from fedldp.mechanisms.duchi import Duchi
from fedldp.mechanisms.hybrid import HMTP
from fedldp.mechanisms.optimal.program import (
    SOLVER_VERSION,
    Cut,
    Solution,
    VarianceLimits,
    best_rows,
    solve,
    trapezoid,
)
from fedldp.mechanisms.piecewise import PMOpt

_ROUNDING_COST = 0.0006  # of HM-TP's worst-case variance, by rounding x to a letter
_NEGLIGIBLE_MEASURE = 1e-9  # relative to the largest


def letters_for(epsilon: float) -> Floats:
    """Return letters so close together that rounding x to them costs next to nothing."""
    return even_letters(HMTP(epsilon).worst_case_variance, _ROUNDING_COST)


def limits_under(
    epsilon: float, x: Floats, cap: Callable[[Floats], Floats] | None = None
) -> VarianceLimits:
    """Return what to demand at the letters so that the cap holds between them too.

    Rounding to a letter adds up to pitch^2/4 between two letters; and there the cap, which is
    quadratic with some curvature, lies below its chord by up to curvature * pitch^2/8.
    """
    if cap is None:
        return VarianceLimits(np.full(len(x), HMTP(epsilon).worst_case_variance))
    pitch = x[1] - x[0]
    limit, middle = cap(x), cap((x[:-1] + x[1:]) / 2)
    sag = (limit[:-1] + limit[1:]) / 2 - middle
    sag = np.maximum(np.append(sag, sag[-1]), np.append(sag[0], sag))
    return VarianceLimits(limit - sag, float(pitch**2 / 4))


def search(
    epsilon: float,
    count: int,
    x: Floats,
    limits: VarianceLimits,
    weights: Floats | None = None,
    factor: float | None = None,
    near: Solution | None = None,
) -> Solution | None:
    """Solve the program for the best range of evenly spaced outputs."""
    minimize_scalar = scipy_module("optimize").minimize_scalar

    solutions: list[tuple[float, Solution]] = []
    grid = np.linspace(-1.0, 1.0, count)
    cuts: frozenset[Cut] = frozenset() if near is None else near.cuts

    def objective(bound: float) -> float:
        nonlocal cuts
        solution = solve(
            bound * grid, epsilon, x, limits, weights=weights, factor=factor, cuts=cuts
        )
        if solution is None:
            return 1e9 * bound
        cuts = solution.cuts
        score = solution.factor
        if weights is not None:
            score = float(trapezoid(weights) @ solution.variances)
        solutions.append((score, solution))
        return score

    # Few outputs fit the problem better at some ranges than at others: look around first.
    least, most = Duchi(epsilon).C, PMOpt(epsilon).A
    low, high = least + 1e-6 * (most - least), most + 0.1 * (most - 1)
    if near is not None:
        around = near.outputs[-1] - 1
        low, high = max(low, 1 + 0.85 * around), 1 + 1.15 * around
    trials = np.linspace(low, high, 14 if count <= 31 else 6)
    scores = [objective(bound) for bound in trials]
    middle, step = trials[int(np.argmin(scores))], trials[1] - trials[0]
    bounds = (max(low, middle - step), middle + step)
    minimize_scalar(objective, bounds=bounds, options={"xatol": 0.04 * step})
    return min(solutions, key=lambda scored: scored[0])[1] if solutions else None


def to_channel(outputs: Floats, base: Floats, epsilon: float) -> Channel:
    """Return the exact channel of a base measure, without the outputs that it does not use."""
    letters = letters_for(epsilon)
    used = base > _NEGLIGIBLE_MEASURE * base.max()
    base, outputs = base[used], outputs[used]
    # Rounding in the solver may put the mean 1 just out of reach: stretch the outputs by that.
    reached = float(best_rows(outputs, base, epsilon, np.array([1.0]))[0] @ outputs)
    outputs = outputs * max(1.0, (1 + 1e-15) / reached)
    right = best_rows(outputs, base, epsilon, letters[letters >= 0])
    table = np.vstack([right[:0:-1, ::-1], right])
    return exact_channel(epsilon, letters, outputs, table)


@cache
def four_outputs(epsilon: float) -> Channel:
    """Return the best channel with four outputs, wherever they lie.

    It is kept in the cache, and validated again when it is read.
    """
    key = f"four outputs, solver {SOLVER_VERSION}: {epsilon!r}"
    cached = cache_files.load(key)
    if cached is not None:
        with suppress(FedLDPError):  # damaged: find it again
            channel = Channel.from_json(cached)
            if channel.epsilon == epsilon and channel.outputs <= 4:
                return channel
    channel = _four_outputs(epsilon)
    cache_files.save(key, channel.to_json())
    return channel


def _four_outputs(epsilon: float) -> Channel:
    minimize = scipy_module("optimize").minimize

    letters = letters_for(epsilon)
    right = letters[letters >= 0]
    limits = limits_under(epsilon, right)
    solutions: list[Solution] = []

    def worst(inner_and_outer: Floats) -> float:
        inner, outer = np.exp(inner_and_outer)
        outputs = np.array([-inner - outer, -inner, inner, inner + outer])
        solution = solve(outputs, epsilon, right, limits)
        if solution is None:
            return 1e9
        solutions.append(solution)
        return solution.factor

    for start in ((0.5, 0.7), (0.9, 0.2), (0.1, 1.0)):  # in units of Duchi's output
        first = np.log(np.array(start) * Duchi(epsilon).C)
        minimize(worst, first, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-5})
    solution = min(solutions, key=lambda solution: solution.factor)
    return to_channel(solution.outputs, solution.base, epsilon)
