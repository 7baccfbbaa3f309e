"""The paper's Algorithm 5: for outputs on their own, and in closed form for a channel."""

from collections.abc import Callable
from math import ceil, inf, log2, sqrt
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedldp._internal import validation
from fedldp._internal.validation import Floats, is_real, whole
from fedldp.coders.channel import Channel, exact_channel
from fedldp.errors import DomainError
from fedldp.randomness import Source, check_source

MOST_OUTPUTS = 4001
PAPER_PIECES = 1000  # m of the paper's experiments: 2,001 outputs
FEWEST_LETTERS = 33
ROUNDING_COST = 0.0019  # of the worst-case variance, by rounding x to a letter
OUTPUT_COST = 0.0028  # by rounding the output to the grid, where the number of outputs is free


class Bounded(Protocol):
    """What discretization has to know about a mechanism."""

    @property
    def name(self) -> str: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def bound(self) -> float: ...
    @property
    def worst_case_variance(self) -> float: ...


def discretize(y: npt.ArrayLike, bound: float, source: Source, *, m: int = PAPER_PIECES) -> Any:
    """Round each y in [-bound, bound] at random to one of 2m + 1 values: the paper's Algorithm 5.

    With C the bound and k = floor(m y / C), y becomes C k / m with probability k + 1 - m y / C, and
    C (k + 1) / m otherwise, so that its mean stays y. Like `Mechanism.perturb` this is floating
    point, for study: what a vehicle sends comes from `Mechanism.channel(outputs=2 * m + 1)`, which
    has the probabilities of both steps in one exact table.

    Parameters
    ----------
    y
        An output of a mechanism, or an array of outputs, from -bound to bound.
    bound
        The largest absolute value of an output: `Mechanism.bound`.
    source
        The random source, from `fedldp.source`.
    m
        The number of steps from 0 to the bound.

    Returns
    -------
    float or array
        The rounded outputs: a float if y is a number, otherwise an array of the shape of y.

    Raises
    ------
    DomainError
        If m is below 1, the bound is not positive, y lies outside the bound, or source is not a
        `Source`.

    Examples
    --------
    >>> import fedldp
    >>> mechanism, source = fedldp.mechanisms.PMSub(epsilon=1.0), fedldp.source(7)
    >>> y = mechanism.perturb([0.3, -0.7, 0.1], source)
    >>> z = discretize(y, mechanism.bound, source, m=2)
    >>> z / mechanism.bound
    array([-0.5, -0.5,  1. ])
    """
    outputs = validation.reals(y, "y")
    if whole(m, "m") < 1:
        raise DomainError(f"m must be at least 1; got {m!r}.")
    if not is_real(bound) or not 0 < bound < inf:
        raise DomainError(f"bound must be a positive number; got {bound!r}.")
    check_source(source)
    if not np.all(np.abs(outputs) <= bound):
        raise DomainError(
            f"y must be numbers from {-bound:g} to {bound:g}, where the mechanism's outputs lie; "
            f"got {y!r:.80}."
        )
    scaled = outputs * m / bound
    below = np.clip(np.floor(scaled), -m, m - 1)  # y = C lies at the end of the last piece
    up = source.uniform(outputs.shape) < scaled - below
    return ((below + up) * bound / m)[()]


def discretized_channel(
    mechanism: Bounded, outputs: int | None, on_grid: Callable[[Floats, Floats], Floats]
) -> Channel:
    """Return a channel with evenly spaced outputs, given the probabilities on a grid."""
    validation.epsilon(mechanism.epsilon)
    outputs = checked_outputs(outputs) or default_outputs(mechanism)
    grid = mechanism.bound * np.linspace(-1.0, 1.0, outputs)
    letters = even_letters(mechanism.worst_case_variance)
    return exact_channel(mechanism.epsilon, letters, grid, on_grid(letters, grid))


def checked_outputs(outputs: int | None) -> int | None:
    """Validate the number of outputs of the paper's discretization."""
    if outputs is None:
        return None
    number = whole(outputs, "outputs")
    if not (3 <= number <= MOST_OUTPUTS and number % 2 == 1):
        raise DomainError(
            f"outputs must be an odd number from 3 to {MOST_OUTPUTS}; got {outputs!r}."
        )
    return number


def default_outputs(mechanism: Bounded) -> int:
    """Return 2^b - 1 outputs, enough that their spacing costs little.

    An output that falls anywhere between two points of the grid costs a sixth of the squared
    pitch on average.
    """
    pitch = sqrt(6 * OUTPUT_COST * mechanism.worst_case_variance)
    bits = ceil(log2(2 * mechanism.bound / pitch + 2))
    return min((1 << bits) - 1, MOST_OUTPUTS)


def even_letters(variance: float, cost: float = ROUNDING_COST) -> Floats:
    """Return 2^b + 1 letters, enough that rounding x adds little to a given variance.

    Rounding x to one of two letters costs at most a quarter of their squared distance.
    """
    pitch = sqrt(4 * cost * variance)
    last = max(1 << ceil(log2(2 / pitch)) if pitch < 2 else 1, FEWEST_LETTERS - 1)
    return np.arange(last + 1) * 2 / last - 1


def hat_integral(s: Floats) -> Floats:
    """Return the integral up to s of the hat function, which rises from -1 to 0 and falls to 1."""
    rising = np.clip(s + 1, 0, 1)
    falling = np.clip(s, 0, 1)
    return rising**2 / 2 + falling - falling**2 / 2
