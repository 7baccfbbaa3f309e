"""From a continuous output to a channel: the paper's Algorithm 4, integrated in closed form."""

from collections.abc import Callable
from math import ceil, log2, sqrt
from typing import Protocol

import numpy as np

from fedldp.channel import Channel, channel_epsilon, exact_channel
from fedldp.checks import Floats, whole
from fedldp.errors import DomainError

MOST_OUTPUTS = 4001
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


def discretized(
    mechanism: Bounded, outputs: int | None, on_grid: Callable[[Floats, Floats], Floats]
) -> Channel:
    """Return a channel with evenly spaced outputs, given the probabilities on a grid."""
    channel_epsilon(mechanism.epsilon)
    outputs = checked_outputs(outputs) or default_outputs(mechanism)
    grid = mechanism.bound * np.linspace(-1.0, 1.0, outputs)
    letters = even_letters(mechanism.worst_case_variance)
    return exact_channel(mechanism.epsilon, letters, grid, on_grid(letters, grid))


def checked_outputs(outputs: int | None) -> int | None:
    """Return a number of outputs that the paper's discretization can have, or refuse it."""
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
    """Return 2^b + 1 letters, enough that rounding x costs little beside a given variance.

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
