"""The piecewise family: PM, PM-SUB and PM-OPT differ in one parameter, t."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import exp, expm1
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from fedldp._internal import validation
from fedldp._internal.validation import Floats
from fedldp.coders.channel import Channel
from fedldp.mechanisms.base import Mechanism
from fedldp.mechanisms.discretization import discretized_channel, hat_integral
from fedldp.mechanisms.newton import descend


class Piecewise(Mechanism):
    """A continuous output on [-A, A], e^eps times as likely in a window around x as outside.

    The window is [L, R], of one length for all x. Wrapped around a circle of circumference 2A
    the law is the same for all x, only rotated; that is how outputs are drawn. This is the base
    class of `PM`, `PMSub` and `PMOpt`, which differ in `t`.

    Examples
    --------
    >>> mechanism = PMSub(epsilon=1.0)
    >>> round(mechanism.A, 3), round(mechanism.t, 3)
    (4.11, 1.396)
    """

    @cached_property
    @abstractmethod
    def t(self) -> float:
        """(A + L) / (A - L) at x = 1, or the window's share: P(window) = e^eps / (e^eps + t)."""

    @cached_property
    def slope(self) -> float:
        """(e^eps + t) / (e^eps - 1): by how much the window moves when x moves by 1."""
        return (exp(self.epsilon) + self.t) / expm1(self.epsilon)

    @property
    def A(self) -> float:
        """(e^eps + t)(t + 1) / (t (e^eps - 1)): outputs lie in [-A, A]."""
        return self.slope * (1 + 1 / self.t)

    @property
    def bound(self) -> float:
        return self.A

    @property
    def values(self) -> Floats:
        return np.empty(0)

    def window(self, x: npt.ArrayLike) -> tuple[Any, Any]:
        """Return L(eps, x, t) and R(eps, x, t), between which the density is high.

        Parameters
        ----------
        x
            A number in [-1, 1], or an array of such numbers.

        Returns
        -------
        tuple of float or array
            The left and the right end of the window for each x.

        Raises
        ------
        DomainError
            If x is not in [-1, 1].

        Examples
        --------
        >>> left, right = PM(epsilon=1.0).window([0.0, 1.0])
        >>> left.round(3), right.round(3)
        (array([-1.541,  1.   ]), array([1.541, 4.083]))
        """
        array = validation.unit(x)
        return self.slope * (array - 1 / self.t), self.slope * (array + 1 / self.t)

    @cached_property
    def heights(self) -> tuple[float, float]:
        """The density inside the window, c, and outside it, d = c / e^eps."""
        E = exp(self.epsilon)
        outside = self.t * expm1(self.epsilon) / (2 * (self.t + E) ** 2)
        return E * outside, outside

    def channel(self, outputs: int | None = None) -> Channel:
        return discretized_channel(self, outputs, self.on_grid)

    def on_grid(self, letters: Floats, grid: Floats) -> Floats:
        """Return P(Z | x) when the output is rounded at random, without bias, to the grid.

        It is the integral of the density against a hat function around each point, in closed form.

        Parameters
        ----------
        letters
            Inputs in [-1, 1].
        grid
            Evenly spaced points from -A to A.

        Returns
        -------
        array
            The probability of each point of the grid (columns) at each letter (rows).

        Examples
        --------
        >>> mechanism = PM(epsilon=1.0)
        >>> grid = mechanism.A * np.linspace(-1, 1, 5)
        >>> mechanism.on_grid(np.array([-1.0, 1.0]), grid).round(3)
        array([[0.206, 0.381, 0.186, 0.152, 0.076],
               [0.076, 0.152, 0.186, 0.381, 0.206]])
        """
        pitch = float(grid[1] - grid[0])
        high, low = self.heights
        ends = np.where(np.arange(len(grid)) % (len(grid) - 1) == 0, 0.5, 1.0)
        left, right = ((edge[:, None] - grid) / pitch for edge in self.window(letters))
        window: Floats = hat_integral(right) - hat_integral(left)
        return pitch * (low * ends + (high - low) * window)

    @property
    def _knots(self) -> tuple[float, ...]:
        return (0.0, 1.0)

    def _draw(self, x: Floats, u: Floats, out: Floats, scratch: Floats) -> None:
        turn = 2 * self.A  # the length of the circle, which is the unit here
        half = self.slope / self.t / turn
        steep, steeper = (1 / (height * turn) for height in self.heights)
        inside = 2 * half / steep  # the probability of the window
        # The distance along the circle from the window's centre: a convex function of u with
        # two straight parts, first through the window and then through all the rest.
        distance = np.multiply(u, steep, out=out)
        distance -= steep + half
        beyond = np.multiply(u, steeper, out=scratch[0])
        beyond += half - (1 + inside) * steeper
        np.maximum(distance, beyond, out=distance)
        centre = np.multiply(x, self.slope / turn, out=scratch[0])
        distance += centre
        distance -= np.rint(distance, out=scratch[0])
        distance *= turn

    def _variance(self, x: Floats) -> Floats:
        E, rest, t = exp(self.epsilon), expm1(self.epsilon), self.t
        at_zero = (t + E) * ((t + 1) ** 3 + rest) / (3 * t**2 * rest**2)
        return (t + 1) / rest * x**2 + at_zero

    def _probabilities(self, x: Floats) -> Floats:
        return np.empty((*x.shape, 0))

    def _density(self, y: Floats, x: Floats) -> Floats:
        half = self.slope / self.t + 2.0**-50 * self.A  # rounding must not cut off its ends
        inside = np.abs(y - self.slope * x) <= half
        height: Floats = np.where(inside, *self.heights)
        return np.where(np.abs(y) <= self.A, height, 0.0)


@final
@dataclass(frozen=True)
class PM(Piecewise):
    """The Piecewise Mechanism of Wang et al. (2019): t = e^(eps/2).

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.

    Examples
    --------
    >>> PM(epsilon=1.0).worst_case_variance
    5.223...
    """

    name: ClassVar[str] = "pm"
    epsilon: float

    @cached_property
    def t(self) -> float:
        return exp(self.epsilon / 2)


@final
@dataclass(frozen=True)
class PMSub(Piecewise):
    """PM-SUB, Algorithm 4 of the paper: t = e^(eps/3), close to the best.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.

    Examples
    --------
    >>> PMSub(epsilon=4.0).worst_case_variance
    0.166...
    """

    name: ClassVar[str] = "pm-sub"
    epsilon: float

    @cached_property
    def t(self) -> float:
        return exp(self.epsilon / 3)


@final
@dataclass(frozen=True)
class PMOpt(Piecewise):
    """PM-OPT, Algorithm 3 of the paper: the t with the least worst-case variance.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.

    Examples
    --------
    >>> PMOpt(epsilon=4.0).worst_case_variance
    0.161...
    """

    name: ClassVar[str] = "pm-opt"
    epsilon: float

    @cached_property
    def t(self) -> float:
        """The positive root of t^4 + 2 E t^3 - 2 E t - E^2 (the paper's Eq. (t-value)).

        The paper gives it in radicals, which next to eps = ln(sqrt 2) lose half of the digits.
        """
        E = exp(self.epsilon)
        return descend((1.0, 2 * E, 0.0, -2 * E, -(E**2)), start=exp(self.epsilon / 3))
