"""The moments of some answers, from which estimates and their errors follow.

All of it is about one answer y to one question x: y is unbiased, E[y | x] = x, where x is a number
in [-1, 1] or says (1 or 0) whether a vehicle is in a category.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, Integers
from fedldp.coders.laws import Law

Covariance = Callable[[Integers, Integers], Floats]  # of two estimates, by their numbers

_NORMAL_QUARTILE_RANGE = 1.349  # in standard deviations


@final
@dataclass(frozen=True)
class Moments:
    """The moments of the answers to some questions: their number, mean and variance.

    `square` is a lower bound of the mean of x^2, `noise` a lower bound of the mean variance of y
    given x. The fields after them are about rare values, and about noise that comes in a few large
    steps.
    """

    m: Floats
    mean: Floats
    variance: Floats
    square: Floats
    noise: Any
    farthest: Any = 0.0  # the largest squared distance from the mean that an answer can have
    hidden: Any = 0.0  # which part of it is not noise
    bulk: Any = 0.0  # the variance of the answers between the quartiles, scaled to all
    jump: float = 0.0  # the size of the steps in which noise comes, squared
    # For the means of one attribute, how its answers about two estimates vary together.
    covariance_at: Callable[[Floats], Covariance | None] | None = None

    @classmethod
    def by_law(cls, law: Law, rows: npt.NDArray[Any]) -> "Moments":
        """Return the moments of answers that are counted by their values, in a row for each number.

        The variance is never below the noise: a few answers that happen to agree prove nothing.
        """
        values, m = law.values, rows.sum(axis=1)
        mean = rows @ values / m
        low, high = law.letters[[0, -1]]
        possible = np.clip(mean, low, high)
        noise = law.least_noise(possible)
        variance = np.maximum(((values - mean[:, None]) ** 2 * rows).sum(axis=1) / m, noise)
        square = np.clip(rows @ law.square_weights / m, possible**2, 1.0)
        far = np.maximum(high - possible, possible - low) ** 2
        first, third = _quartiles(values, rows, m)
        return cls(
            m,
            mean,
            variance,
            square,
            noise,
            farthest=np.maximum(values[-1] - possible, possible - values[0]) ** 2,
            hidden=far / (far + law.variances[[0, -1]].max()),
            bulk=((third - first) / _NORMAL_QUARTILE_RANGE) ** 2,
            jump=law.jump,
        )

    @property
    def spread(self) -> Floats:
        """A lower bound of the variance of x: what is known of x^2 and not explained by noise."""
        variance = self.variance * self.m / (self.m - 1)
        least = np.minimum(self.square - self.mean**2, variance - self.noise)
        return cast(Floats, np.maximum(least, 0.0))

    def unseen(self, pseudo: float) -> Floats:
        """Return the variance of values so rare that m answers may show too few of them, or none.

        A value that a few vehicles have moves both the mean and its estimated error: where few of
        them happened to answer, the mean is too low, and the error too small. As Agresti and Coull
        do, add `pseudo` answers at the far end. Where most of the answers vary more than these
        would, rare values hardly matter, and nothing is added.
        """
        return cast(Floats, np.maximum(pseudo * self.farthest / self.m - self.bulk, 0.0))

    def rare_noise(self, pseudo: float) -> Floats:
        """Return what to add to the variance where the noise comes in a few large steps.

        The expected number of such steps is known, and need not be estimated: where they are few, a
        quarter of the pseudo-answers is enough, less a quarter of those expected.
        """
        noise = self.variance - self.spread
        return np.maximum(pseudo * self.jump / self.m - noise, 0.0) / 4


def _quartiles(values: Floats, rows: npt.NDArray[Any], m: Floats) -> tuple[Floats, Floats]:
    """Return the values below which a quarter, and three quarters, of the answers lie."""
    below = np.cumsum(rows, axis=1)[:, :-1]
    low, high = (np.sum(below < share * m[:, None], axis=1) for share in (0.25, 0.75))
    return values[low], values[high]
