"""The Laplace mechanism."""

from dataclasses import dataclass
from math import inf
from typing import ClassVar, NoReturn, final

import numpy as np

from fedldp._internal.validation import Floats
from fedldp.errors import DomainError
from fedldp.mechanisms.base import Mechanism


@final
@dataclass(frozen=True)
class Laplace(Mechanism):
    """x plus Laplace noise of scale 2 / eps (Dwork et al. 2006). Its output has no bound.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.

    Examples
    --------
    >>> Laplace(epsilon=1.0).worst_case_variance
    8.0
    """

    name: ClassVar[str] = "laplace"
    epsilon: float

    @property
    def scale(self) -> float:
        """2 / eps: the length of [-1, 1] over epsilon."""
        return 2 / self.epsilon

    @property
    def bound(self) -> float:
        return inf

    @property
    def values(self) -> Floats:
        return np.empty(0)

    def channel(self, outputs: int | None = None) -> NoReturn:
        """Raise `DomainError`: a finite table cannot hold an output without a bound.

        Parameters
        ----------
        outputs
            Ignored.

        Raises
        ------
        DomainError
            Always.

        Examples
        --------
        >>> Laplace(epsilon=1.0).channel()
        Traceback (most recent call last):
        fedldp.errors.DomainError: laplace has no channel: its output has no bound...
        """
        raise DomainError(
            "laplace has no channel: its output has no bound, so no finite table can hold it. "
            "For release use another mechanism; 'hm-tp' is more accurate for every epsilon."
        )

    @property
    def _knots(self) -> tuple[float, ...]:
        return (0.0, 1.0)

    def _draw(self, x: Floats, u: Floats, out: Floats, scratch: Floats) -> None:
        side = np.subtract(u, 1.5, out=u)
        side += 2.0**-53  # between -1/2 and 1/2, never at either end
        noise = np.abs(side, out=out)
        noise *= -2
        np.log1p(noise, out=noise)
        noise *= np.copysign(self.scale, side, out=side)
        np.subtract(x, noise, out=out)

    def _variance(self, x: Floats) -> Floats:
        return np.full(x.shape, 2 * self.scale**2)

    def _probabilities(self, x: Floats) -> Floats:
        return np.empty((*x.shape, 0))

    def _density(self, y: Floats, x: Floats) -> Floats:
        result: Floats = np.exp(-np.abs(y - x) / self.scale) / (2 * self.scale)
        return result
