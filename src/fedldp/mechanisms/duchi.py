"""Duchi's mechanism for one number: two outputs."""

from dataclasses import dataclass
from functools import cached_property
from math import exp, tanh
from typing import ClassVar, final

import numpy as np

from fedldp._internal.validation import Floats
from fedldp.coders.tables import read_only
from fedldp.mechanisms.finite import Finite


@final
@dataclass(frozen=True)
class Duchi(Finite):
    """Output C or -C, with a probability linear in x (Duchi et al. 2013). One bit.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.

    Examples
    --------
    >>> Duchi(epsilon=1.0).worst_case_variance
    4.682694...
    """

    name: ClassVar[str] = "duchi"
    epsilon: float

    @property
    def C(self) -> float:
        """(e^eps + 1) / (e^eps - 1)."""
        return 1 / tanh(self.epsilon / 2)

    @property
    def values(self) -> Floats:
        return read_only([-self.C, self.C])

    @cached_property
    def letters(self) -> Floats:
        return read_only([-1.0, 1.0])

    @cached_property
    def table(self) -> Floats:
        lie = exp(-self.epsilon)
        return read_only(np.array([[1.0, lie], [lie, 1.0]]) / (1 + lie))

    def _draw(self, x: Floats, u: Floats, out: Floats, scratch: Floats) -> None:
        lean = np.multiply(x, 0.5 / self.C, out=out)
        lean -= u
        np.copyto(out, lean > -1.5)
        out *= 2 * self.C
        out -= self.C
