"""Mechanisms with finitely many outputs."""

from abc import abstractmethod
from functools import cached_property

import numpy as np

from fedldp.checks import Floats
from fedldp.mechanisms.base import Mechanism


class Finite(Mechanism):
    """Finitely many outputs, with probabilities that are linear in x between `letters`.

    Equivalently: round x without bias to a neighbouring letter, then draw the output from that
    letter's row of `table`.
    """

    @cached_property
    @abstractmethod
    def letters(self) -> Floats:
        """The inputs, from -1 to 1, between which the probabilities are linear."""

    @cached_property
    @abstractmethod
    def table(self) -> Floats:
        """The probability of each value (columns) at each letter (rows)."""

    @property
    def bound(self) -> float:
        return float(self.values[-1])

    @property
    def _knots(self) -> tuple[float, ...]:
        return (0.0, *(float(x) for x in self.letters if x > 0))

    def _probabilities(self, x: Floats) -> Floats:
        left = np.clip(np.searchsorted(self.letters, x) - 1, 0, len(self.letters) - 2)
        low, high = self.letters[left], self.letters[left + 1]
        to_low, to_high = (high - x) / (high - low), (x - low) / (high - low)
        # A convex combination, never a difference: tiny probabilities keep all their digits.
        return to_low[..., None] * self.table[left] + to_high[..., None] * self.table[left + 1]

    def _variance(self, x: Floats) -> Floats:
        deviations = self.values - x[..., None]
        result: Floats = np.sum(self._probabilities(x) * deviations**2, axis=-1)
        return result

    def _density(self, y: Floats, x: Floats) -> Floats:
        return np.zeros(y.shape)
