"""Mechanisms with the outputs -C, 0 and C: two bits."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import exp, expm1, log, sqrt
from typing import ClassVar, final

import numpy as np

from fedldp._internal.validation import Floats
from fedldp.coders.tables import read_only
from fedldp.mechanisms.finite import Finite
from fedldp.mechanisms.newton import descend

LAST_CUBIC_EPSILON = log((3 + sqrt(65)) / 2)  # above it, a has its simple form


class ThreePoint(Finite):
    """Outputs -C, 0, C, where C and -C are as unlikely as privacy allows at the far end.

    What remains to choose is P(0 | x); it is a at x = 0 and a / e^eps at x = 1 and -1.
    """

    @cached_property
    @abstractmethod
    def a(self) -> float:
        """P(0 | 0), the probability to answer 0 when the value is 0."""

    @abstractmethod
    def _edge(self, magnitude: Floats) -> Floats:
        """Turn |x|, in place, into (P(0 | x) - 3) / 2."""

    @cached_property
    def C(self) -> float:
        """e^eps (e^eps + 1) / ((e^eps - 1)(e^eps - a))."""
        q = exp(-self.epsilon)
        return -(1 + q) / (expm1(-self.epsilon) * (1 - self.a * q))

    @property
    def values(self) -> Floats:
        return read_only([-self.C, 0.0, self.C])

    @property
    def _row_at_one(self) -> list[float]:
        """The probabilities of -C, 0 and C at x = 1."""
        q = exp(-self.epsilon)
        truth = (1 - self.a * q) / (1 + q)
        return [q * truth, self.a * q, truth]

    def _draw(self, x: Floats, u: Floats, out: Floats, scratch: Floats) -> None:
        # C if u - 1 < P(C | x) = (x / C + 1 - P(0 | x)) / 2, and by symmetry -C from above.
        lean = np.multiply(x, 0.5 / self.C, out=out)
        lean -= u
        edge = self._edge(scratch[0])
        up = lean >= edge  # on one side with equality: where P(0 | x) is 0, 0 never comes out
        down = lean < np.subtract(-3.0, edge, out=edge)
        np.copyto(out, np.subtract(up.view(np.int8), down.view(np.int8)))
        out *= self.C


@final
@dataclass(frozen=True)
class ThreeOutputs(ThreePoint):
    """Three-Outputs, Algorithm 2 of the paper: P(0 | x) falls linearly in |x|.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.

    Examples
    --------
    >>> ThreeOutputs(epsilon=1.0).a
    0.286076...
    """

    name: ClassVar[str] = "three-outputs"
    epsilon: float

    @cached_property
    def a(self) -> float:
        """P(0 | 0), Eq. (a_opt_1): 0 up to ln 2, then a root of a cubic, then E / (E + 2).

        The cubic is the derivative of the worst-case variance; the paper writes its root with
        a cosine, which next to ln 2 loses digits that Newton's method keeps.
        """
        E = exp(self.epsilon)
        if self.epsilon <= log(2):
            return 0.0
        if self.epsilon > LAST_CUBIC_EPSILON:
            return E / (E + 2)
        cubic = (2.0, -(E**2 + 4 * E + 5), -E * (E**2 + 4 * E - 7), 2 * E**2 * (E - 2))
        return descend(cubic, start=E / (E + 2))

    @cached_property
    def letters(self) -> Floats:
        return read_only([-1.0, 0.0, 1.0])

    @cached_property
    def table(self) -> Floats:
        rest = 2 / (exp(self.epsilon) + 2) if self.epsilon > LAST_CUBIC_EPSILON else 1 - self.a
        one = self._row_at_one
        return read_only([one[::-1], [rest / 2, self.a, rest / 2], one])

    def _edge(self, magnitude: Floats) -> Floats:
        magnitude *= self.a * expm1(-self.epsilon) / 2
        magnitude += (self.a - 3) / 2
        return magnitude


@final
@dataclass(frozen=True)
class ThreeOutputsFlat(ThreePoint):
    """The best mechanism with three outputs: P(0 | x) is flat, then falls.

    It is not in the paper. Its worst-case variance is 5.6% below Three-Outputs at epsilon 1 and
    8.5% below at 1.5, for the same two bits. For small epsilon it is Duchi's mechanism.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.

    Examples
    --------
    >>> ThreeOutputsFlat(epsilon=1.0).worst_case_variance
    4.20...
    """

    name: ClassVar[str] = "three-outputs-flat"
    epsilon: float

    @cached_property
    def a(self) -> float:
        E = exp(self.epsilon)
        flat = (0.75 - 2 / (E + 1)) / (1 - 2 / (E * (E + 1)))
        if 2 * (E - 1) * (E - flat) < E * (E + 1):  # C > 2: the summit at C / 2 lies beyond 1
            # Then (1-a) C^2 = 2 P(C|-1) C^2 + C - 1, which is a quadratic equation for a / E.
            half = 1 + (E + 1) ** 2 / (2 * expm1(self.epsilon))
            flat = E / (half + sqrt(half**2 - 1))
        no_worse_than_duchi = (1 - flat) * E**2 <= (E - flat) ** 2
        return flat if no_worse_than_duchi else 0.0

    @cached_property
    def shoulder(self) -> float:
        """The |x| up to which P(0 | x) stays at a; beyond it P(-C | x) stays at its least."""
        if self.a == 0.0:
            return 1.0
        return self.C / 4 if self.C <= 2 else 1 - 1 / self.C

    @cached_property
    def letters(self) -> Floats:
        inner = [] if self.a == 0.0 else [-self.shoulder, self.shoulder]
        return read_only([-1.0, *inner, 1.0])

    @cached_property
    def table(self) -> Floats:
        one = self._row_at_one
        shoulder = [one[0], self.a, 1 - self.a - one[0]]
        inner = [] if self.a == 0.0 else [shoulder[::-1], shoulder]
        return read_only([one[::-1], *inner, one])

    def _edge(self, magnitude: Floats) -> Floats:
        magnitude *= -0.5 / self.C
        magnitude += (self._row_at_one[1] + 1 / self.C - 3) / 2
        return np.minimum(magnitude, (self.a - 3) / 2, out=magnitude)
