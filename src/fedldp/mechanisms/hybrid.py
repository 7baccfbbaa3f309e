"""Hybrids: toss a coin, then use a piecewise mechanism or one with few outputs."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import exp, expm1, sqrt
from typing import ClassVar, final

import numpy as np

from fedldp._internal.validation import Floats
from fedldp.coders.channel import Channel
from fedldp.mechanisms.base import Mechanism
from fedldp.mechanisms.discretization import checked_outputs, discretized_channel
from fedldp.mechanisms.duchi import Duchi
from fedldp.mechanisms.finite import Finite
from fedldp.mechanisms.piecewise import PM, Piecewise, PMSub
from fedldp.mechanisms.three_outputs import ThreeOutputs


class Hybrid(Mechanism):
    """With probability beta the `continuous` mechanism, otherwise the `discrete` one.

    This is the base class of `HM` and `HMTP`.

    Examples
    --------
    >>> mechanism = HMTP(epsilon=2.0)
    >>> mechanism.continuous, mechanism.discrete, round(mechanism.beta, 3)
    (PMSub(epsilon=2.0), ThreeOutputs(epsilon=2.0), 0.24)
    """

    @cached_property
    @abstractmethod
    def beta(self) -> float:
        """The probability of the continuous part."""

    @cached_property
    @abstractmethod
    def rest(self) -> float:
        """1 - beta, with all its digits."""

    @cached_property
    @abstractmethod
    def continuous(self) -> Piecewise:
        """The mechanism that answers with probability beta."""

    @cached_property
    @abstractmethod
    def discrete(self) -> Finite:
        """The mechanism that answers with probability 1 - beta."""

    @property
    def bound(self) -> float:
        if self.beta == 0.0:
            return self.discrete.bound
        return max(self.continuous.bound, self.discrete.bound)

    @property
    def values(self) -> Floats:
        return self.discrete.values

    def channel(self, outputs: int | None = None) -> Channel:
        if self.beta == 0.0:
            checked_outputs(outputs)
            return Duchi(self.epsilon).channel()
        return discretized_channel(self, outputs, self.on_grid)

    def on_grid(self, letters: Floats, grid: Floats) -> Floats:
        """Return P(Z | x) when the outputs of both mechanisms are rounded at random to the grid.

        Parameters
        ----------
        letters
            Inputs in [-1, 1].
        grid
            Evenly spaced points from -`bound` to `bound`.

        Returns
        -------
        array
            The probability of each point of the grid (columns) at each letter (rows).

        Examples
        --------
        >>> mechanism = HMTP(epsilon=2.0)
        >>> grid = mechanism.bound * np.linspace(-1, 1, 5)
        >>> mechanism.on_grid(np.array([-1.0, 1.0]), grid).round(3)
        array([[0.267, 0.516, 0.108, 0.073, 0.036],
               [0.036, 0.073, 0.108, 0.516, 0.267]])
        """
        distance = np.abs(self.discrete.values[:, None] - grid) / (grid[1] - grid[0])
        points: Floats = self.discrete.probabilities(letters) @ np.maximum(1 - distance, 0)
        return self.beta * self.continuous.on_grid(letters, grid) + self.rest * points

    @property
    def _knots(self) -> tuple[float, ...]:
        return tuple(sorted({*self.continuous._knots, *self.discrete._knots}))

    def _draw(self, x: Floats, u: Floats, out: Floats, scratch: Floats) -> None:
        if self.beta == 0.0:
            self.discrete._draw(x, u, out, scratch)
            return
        # Given on which side of 1 + beta it fell, u is still uniform there: stretch it.
        _, stretched, other = scratch
        beyond = u - (1 + self.beta)
        np.multiply(beyond, 1 / self.rest, out=stretched)
        stretched += 1
        self.discrete._draw(x, stretched, out, scratch)
        np.multiply(u, 1 / self.beta, out=stretched)
        stretched += 1 - 1 / self.beta
        self.continuous._draw(x, stretched, other, scratch)
        # Where beyond < 0 take the continuous one, elsewhere keep the first: done on the bits.
        heads = beyond.view(np.int64)
        heads >>= 63
        first, second = out.view(np.int64), other.view(np.int64)
        second ^= first
        second &= heads
        first ^= second

    def _variance(self, x: Floats) -> Floats:
        # Both parts are unbiased, so the variances mix like the laws do.
        continuous, discrete = self.continuous._variance(x), self.discrete._variance(x)
        return self.beta * continuous + self.rest * discrete

    def _probabilities(self, x: Floats) -> Floats:
        return self.rest * self.discrete._probabilities(x)

    def _density(self, y: Floats, x: Floats) -> Floats:
        return self.beta * self.continuous._density(y, x)


@final
@dataclass(frozen=True)
class HM(Hybrid):
    """The Hybrid Mechanism of Wang et al. (2019): PM and Duchi.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.

    Examples
    --------
    >>> HM(epsilon=1.0).beta
    0.393469...
    """

    name: ClassVar[str] = "hm"
    epsilon: float

    @cached_property
    def beta(self) -> float:
        """1 - e^(-eps/2), which makes the variance flat in x, where that beats Duchi alone."""
        return -expm1(-self.epsilon / 2) if self._pays else 0.0

    @cached_property
    def rest(self) -> float:
        return exp(-self.epsilon / 2) if self._pays else 1.0

    @property
    def _pays(self) -> bool:
        return bool(self.continuous.variance(0.0) < self.discrete.variance(0.0))

    @cached_property
    def continuous(self) -> PM:
        return PM(self.epsilon)

    @cached_property
    def discrete(self) -> Duchi:
        return Duchi(self.epsilon)


@final
@dataclass(frozen=True)
class HMTP(Hybrid):
    """HM-TP of the paper: PM-SUB and Three-Outputs.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.

    Examples
    --------
    >>> HMTP(epsilon=2.0).worst_case_variance
    0.984...
    """

    name: ClassVar[str] = "hm-tp"
    epsilon: float

    @cached_property
    def beta(self) -> float:
        """The beta with the least worst-case variance, Eq. (beta-value)."""
        if self._gamma is None:
            return 0.0
        return (expm1(self.epsilon) + self._gamma) / (exp(self.epsilon) + self.continuous.t)

    @cached_property
    def rest(self) -> float:
        if self._gamma is None:
            return 1.0
        return (1 + self.continuous.t - self._gamma) / (exp(self.epsilon) + self.continuous.t)

    @cached_property
    def _gamma(self) -> float | None:
        """Beta (E + t) - E + 1, in terms of which the worst case is A gamma + B / gamma + const.

        None where PM-SUB does not pay, for epsilon up to 0.610986.
        """
        E, t, a = exp(self.epsilon), self.continuous.t, self.discrete.a
        rest = expm1(self.epsilon)
        bend = a**2 * E**2 * (E + 1) ** 4
        bend /= 4 * (E + t) ** 2 * (E - a) ** 4 * rest
        A = (
            ((t + 1) ** 3 + rest) / (3 * t**2 * rest**2)
            - (1 - a) * E**2 * (E + 1) ** 2 / ((E + t) * rest**2 * (E - a) ** 2)
            - bend
        )
        if A >= 0:
            return None
        minus_B = (1 + t) ** 2 * bend
        return -sqrt(minus_B / -A)

    @cached_property
    def continuous(self) -> PMSub:
        return PMSub(self.epsilon)

    @cached_property
    def discrete(self) -> ThreeOutputs:
        return ThreeOutputs(self.epsilon)
