"""Mechanisms with finitely many outputs."""

from abc import abstractmethod
from functools import cached_property

import numpy as np

from fedldp._internal.validation import Floats, whole
from fedldp.coders import tables
from fedldp.coders.channel import Channel, exact_channel
from fedldp.errors import DomainError
from fedldp.mechanisms.base import Mechanism


class Finite(Mechanism):
    """Finitely many outputs, with probabilities that are linear in x between `letters`.

    Equivalently: round x without bias to a neighboring letter, then draw the output from that
    letter's row of `table`. This is the base class of such mechanisms: `letters`, `table` and
    `values` are all that one needs.

    Examples
    --------
    >>> import fedldp
    >>> mechanism = fedldp.mechanisms.ThreeOutputs(epsilon=1.0)
    >>> mechanism.letters
    array([-1.,  0.,  1.])
    >>> mechanism.table.round(3)
    array([[0.654, 0.105, 0.241],
           [0.357, 0.286, 0.357],
           [0.241, 0.105, 0.654]])
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

    def channel(self, outputs: int | None = None) -> Channel:
        used = self.table.max(axis=0) > 0
        if outputs is not None and whole(outputs, "outputs") not in (used.size, used.sum()):
            raise DomainError(
                f"{self.name} has {used.sum()} outputs at this epsilon; got outputs={outputs}. "
                "Leave the argument out."
            )
        return exact_channel(self.epsilon, self.letters, self.values[used], self.table[:, used])

    def _probabilities(self, x: Floats) -> Floats:
        return tables.probabilities(self.letters, self.table, x)

    def _variance(self, x: Floats) -> Floats:
        return tables.variance(self.letters, self.values, self.table, x)

    def _draw(self, x: Floats, u: Floats, out: Floats, scratch: Floats) -> None:
        # A mechanism with few outputs can do this faster by a rule of its own.
        odds = np.cumsum(self._probabilities(x), axis=-1)
        odds /= odds[:, -1:]  # rounding must not leave room for an output of probability 0
        np.take(self.values, (u[:, None] - 1 >= odds).sum(axis=1), out=out)

    def _density(self, y: Floats, x: Floats) -> Floats:
        return np.zeros(y.shape)
