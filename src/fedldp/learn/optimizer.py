"""The server's half of LDP-FedSGD: from the tally of a group to the next model.

Whatever the server does with reports is free: it costs no privacy. So it may average iterates,
keep a momentum, and scale its steps by the noise that it sees, as Adam does.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from fedldp._internal.validation import Floats
from fedldp.attributes import is_real
from fedldp.coders.tables import read_only
from fedldp.errors import DomainError, WireError
from fedldp.estimate import ESTIMATORS, means, means_of_levels
from fedldp.tally import Tally
from fedldp.vehicle import UNREADABLE, canonical

OPTIMIZERS = ("adam", "sgd")
SCHEDULES = {"constant": 0.0, "sqrt": 0.5, "inverse": 1.0}  # the rate falls with this power
FORMAT = "fedldp state 1"

ROUNDS = 300  # about so many, given enough vehicles
FEWEST_ROUNDS = 10
ANSWERS = 30  # for each coordinate in each round
LARGEST_RATE = 0.4

_SQUARES = 0.999  # Adam's memory of squared gradients
_TINY = 1e-8  # and what keeps it from dividing by zero


@final
@dataclass(frozen=True)
class Recipe:
    """How the server steps.

    The default is Adam, and an average of the iterates in which the t-th weighs t (t + 1). For
    Algorithm 1 of the paper as printed see `Settings.paper`.
    """

    rate: float
    optimizer: str = "adam"
    schedule: str = "constant"
    momentum: float = 0.8
    averaging: bool = True
    regularization: float = 0.0  # lambda of lambda/2 |theta|^2: it depends on no data
    tolerance: float = 0.0  # stop when a step is shorter; at 0, when no vehicle is left
    estimator: str = "ratio"

    def __post_init__(self) -> None:
        choices = (
            ("optimizer", OPTIMIZERS),
            ("schedule", tuple(SCHEDULES)),
            ("averaging", (True, False)),
            ("estimator", ESTIMATORS),
        )
        for name, known in choices:
            if getattr(self, name) not in known:
                raise DomainError(f"{name} must be one of {known}; got {getattr(self, name)!r}.")
        ranges = (("momentum", 1.0), ("regularization", math.inf), ("tolerance", math.inf))
        for name, end in ranges:
            value = getattr(self, name)
            if not is_real(value) or not 0 <= value < end:
                raise DomainError(f"{name} must be from 0 to below {end:g}; got {value!r}.")
            object.__setattr__(self, name, float(value))
        if not is_real(self.rate) or not 0 < self.rate < math.inf:
            raise DomainError(f"rate must be a positive number; got {self.rate!r}.")
        object.__setattr__(self, "rate", float(self.rate))


@final
@dataclass(frozen=True, eq=False)
class State:
    """Where a training stands: everything that the next step depends on.

    Arrays have a row for each replica.
    """

    round: int
    weights: Floats
    average: Floats
    momentum: Floats
    squares: Floats
    change: Floats  # the length of the last step

    @classmethod
    def start(cls, weights: Floats) -> "State":
        """Begin with some weights, a row for each replica."""
        weights = read_only(np.array(weights, np.float64, ndmin=2))
        zeros = read_only(np.zeros(weights.shape))
        unknown = read_only(np.full(len(weights), np.finfo(np.float64).max))  # JSON has no more
        return cls(0, weights, weights, zeros, zeros, unknown)

    def to_json(self) -> str:
        """Return the state as JSON, from which it is read again exactly."""
        document = {"format": FORMAT, "round": self.round} | {
            name: getattr(self, name).tolist() for name in _ARRAYS
        }
        return canonical(document)

    @classmethod
    def from_json(cls, text: str) -> "State":
        """Read a state, or raise `WireError`."""
        try:
            document = json.loads(text)
            if type(document["round"]) is not int or document["round"] < 0:
                raise ValueError("the round is none")
            arrays = {name: read_only(document[name]) for name in _ARRAYS}
            state, (*matrices, change) = cls(document["round"], **arrays), arrays.values()
            shape = state.weights.shape
            if len(shape) != 2 or not all(each.shape == shape for each in matrices):
                raise ValueError("the arrays do not fit together")
            if change.shape != shape[:1] or not np.isfinite(matrices).all():
                raise ValueError("the numbers cannot be those of a training")
            if state.to_json() != canonical(document):
                raise ValueError("it is not written as a state is")
        except UNREADABLE as error:
            raise WireError(f"not a {FORMAT!r}: {error}") from None
        return state


_ARRAYS = ("weights", "average", "momentum", "squares", "change")


def auto_group(vehicles: int, share: float) -> int:
    """Return how many vehicles to ask in a round, given the share that answers a coordinate.

    That makes about 300 rounds, but fewer (10 at the least) where a coordinate would get less than
    30 answers in a round. It depends on public numbers alone.

    >>> auto_group(294_611, 1 / 33), auto_group(20_000, 1 / 94)
    (990, 2000)
    """
    enough = min(math.ceil(ANSWERS / share), vehicles // FEWEST_ROUNDS)
    return max(1, enough, math.ceil(vehicles / ROUNDS))


def auto_rate(distance: float, dimensions: int, rounds: int) -> float:
    """Return the rate with which Adam can go so far from its start, whatever the noise.

    With noise in d coordinates, T steps of D / sqrt(d T) are best for a minimum at the distance D
    (Nemirovski et al. 2009): Adam divides by the noise. Larger steps than 0.4 overshoot. For plain
    steps it is the same rule, given that no coordinate of a gradient exceeds 1.

    >>> round(auto_rate(8.0, 33, 300), 3), auto_rate(8.0, 33, 10)
    (0.08, 0.4)
    """
    return min(distance / math.sqrt(dimensions * rounds), LARGEST_RATE)


def gradient(tally: Tally, estimator: str = "ratio") -> Floats:
    """Return the mean gradient that the reports of a group tell: a row of it."""
    (part,), (cells,) = tally.parts, tally.counts
    return means(part, tally.reports, cells[None], estimator)


def gradient_of_levels(tallies: Sequence[Tally], estimator: str = "ratio") -> Floats:
    """Return the mean gradient of a group whose vehicles have chosen different epsilons.

    There is a tally for each epsilon; they are weighted by the inverse of their known variance.
    """
    if len(tallies) == 1:
        return gradient(tallies[0], estimator)
    levels = [(each.parts[0], each.reports, each.counts[0][None]) for each in tallies]
    return means_of_levels(levels, estimator)


def step(recipe: Recipe, state: State, gradient: Floats) -> State:
    """Return the state after one more group, given its mean gradient: a row for each replica."""
    t = state.round + 1
    if recipe.regularization:
        gradient = gradient + recipe.regularization * state.weights
    rate = recipe.rate / t ** SCHEDULES[recipe.schedule]
    kept, squares = recipe.momentum, state.squares
    momentum = kept * state.momentum + gradient if kept else gradient
    if recipe.optimizer == "adam":
        squares = _SQUARES * squares + (1 - _SQUARES) * gradient**2
        scale = np.sqrt(squares / (1 - _SQUARES**t))
        scale += _TINY
        move = momentum / scale
        move *= rate * (1 - kept) / (1 - kept**t)
    else:
        move = rate * momentum
    weights = state.weights - move
    average = weights
    if recipe.averaging:
        average = state.average + 3 / (t + 2) * (weights - state.average)
    change = np.sqrt((move * move).sum(axis=1))
    still = state.change < recipe.tolerance  # a replica that has settled stays as it is
    if recipe.tolerance and still.any():
        weights[still], average[still] = state.weights[still], state.average[still]
        change[still] = state.change[still]
    return State(t, weights, average, momentum, squares, change)


def settled(recipe: Recipe, state: State) -> bool:
    """Tell whether the last step was shorter than the tolerance, in every replica."""
    return bool((state.change < recipe.tolerance).all())
