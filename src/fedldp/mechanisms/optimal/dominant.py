"""Channels that go beyond the worst case: at every input no worse than HM-TP, the paper's best."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from fedldp._internal.validation import Floats
from fedldp.coders.channel import Channel
from fedldp.errors import DomainError
from fedldp.mechanisms.hybrid import HMTP
from fedldp.mechanisms.optimal.program import Solution, VarianceLimits
from fedldp.mechanisms.optimal.search import letters_for, limits_under, search, to_channel
from fedldp.mechanisms.optimal.solved import Solved, is_below

NEAR_ZERO_WIDTH = 0.15


class BelowPaper(Solved):
    """A channel whose variance is limited at every input by HM-TP's.

    Where HM-TP is Duchi's mechanism, so is this. Where the number of outputs is too small to match
    HM-TP, `factor` is above 1, and this is the channel that comes closest: use more outputs.
    """

    @property
    def factor(self) -> float:
        """The factor that was found against HM-TP's variance."""
        return self._solution[1]

    @abstractmethod
    def _choose(self, x: Floats, limits: VarianceLimits) -> tuple[Solution | None, float]:
        """Return a solution within the limits, if there is one, and the factor."""

    def _find(self) -> tuple[Channel, float]:
        paper, letters = HMTP(self.epsilon), letters_for(self.epsilon)
        if paper.beta == 0:
            return paper.channel(), 1.0
        right = letters[letters >= 0]
        limits = limits_under(self.epsilon, right, paper.variance)
        solution, factor = self._choose(right, limits)
        if solution is None:
            solution = search(self.epsilon, self.outputs, right, limits)
            if solution is None:
                raise DomainError(f"no channel was found for epsilon {self.epsilon:g}.")
            factor = solution.factor
        return to_channel(solution.outputs, solution.base, self.epsilon), factor

    def _is_kept(self, channel: Channel, factor: float) -> bool:
        most, paper = max((1 + factor) / 2, factor), HMTP(self.epsilon)
        return is_below(channel, lambda x: most * paper.variance(x))


@final
@dataclass(frozen=True)
class Dominant(BelowPaper):
    """Better than HM-TP at every input, and on average as good as that allows.

    Let f, the `factor`, be the least such that some channel has at most f times HM-TP's variance
    at every x. Of the channels with at most (1 + f) / 2 times, this has the least mean variance.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 16.
    outputs
        The number of outputs, from 3 to 255.

    Examples
    --------
    >>> round(Dominant(epsilon=1.0).factor, 2)
    0.93
    """

    name: ClassVar[str] = "dominant"
    epsilon: float
    outputs: int = 31

    def _choose(self, x: Floats, limits: VarianceLimits) -> tuple[Solution | None, float]:
        least = search(self.epsilon, self.outputs, x, limits)
        if least is None or least.factor >= 1:
            return least, 1.0 if least is None else least.factor
        half_way, even = (1 + least.factor) / 2, np.ones(len(x))
        solution = search(self.epsilon, self.outputs, x, limits, even, half_way, near=least)
        return solution or least, least.factor


@final
@dataclass(frozen=True)
class NearZero(BelowPaper):
    """For values near zero, such as gradients: the least variance there, never above HM-TP's.

    It minimizes the mean variance for inputs that follow a Gaussian of width 0.15.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 16.
    outputs
        The number of outputs, from 3 to 255.

    Examples
    --------
    >>> bool(NearZero(epsilon=4.0).variance(0.0) < 0.8 * HMTP(epsilon=4.0).variance(0.0))
    True
    """

    name: ClassVar[str] = "near-zero"
    epsilon: float
    outputs: int = 31

    def _choose(self, x: Floats, limits: VarianceLimits) -> tuple[Solution | None, float]:
        weights = np.exp(-0.5 * (x / NEAR_ZERO_WIDTH) ** 2)
        return search(self.epsilon, self.outputs, x, limits, weights, 1.0), 1.0
