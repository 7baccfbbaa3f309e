"""Duchi et al.'s mechanism for many numbers in the form that is cited, for study only.

The signs t in {-1, 1}^d that are sent agree with the rounded signs v of a vehicle, t.v >= 0, with
probability e^epsilon / (e^epsilon + 1), and disagree, t.v <= 0, otherwise. For even d there are
ties, t.v = 0, in both halves: so a tie is e^epsilon + 1 times as likely as a sign vector on the far
side, and the form costs ln(e^epsilon + 1). `fedldp.coders.CubeCoder` counts a tie once; it is what
the other figures call duchi. For odd d both are the same.
"""

from dataclasses import dataclass
from functools import cached_property
from math import comb, exp, log1p
from typing import final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats
from fedldp.coders.cube import CubeCoder
from fedldp.randomness import Source

_CHUNK_SIGNS = 1 << 18  # a few arrays of this size stay in the cache


@final
@dataclass(frozen=True)
class CitedDuchi:
    """The cited form for d numbers in [-1, 1].

    >>> cited = CitedDuchi(epsilon=1.0, d=90)
    >>> round(cited.true_epsilon, 3), round(cited.variance_factor, 2)
    (1.313, 1.27)
    >>> CitedDuchi(1.0, 43).true_epsilon, round(CitedDuchi(1.0, 43).variance_factor, 9)
    (1.0, 1.0)
    """

    epsilon: float
    d: int

    @property
    def true_epsilon(self) -> float:
        """What a report really costs."""
        return self.epsilon if self.d % 2 else self.epsilon + log1p(exp(-self.epsilon))

    @cached_property
    def agreements(self) -> Floats:
        """The probability of 0, 1, ..., d agreements with the rounded signs."""
        ways = np.array([comb(self.d, h) for h in range(self.d + 1)], float)
        side = 2 * np.arange(self.d + 1) - self.d
        near, far = ways * (side >= 0), ways * (side <= 0)
        likely = exp(self.epsilon) / (exp(self.epsilon) + 1)
        law: Floats = likely * near / near.sum() + (1 - likely) * far / far.sum()
        return law

    @property
    def scale(self) -> float:
        """B: the value of a sign, which makes the answer unbiased."""
        side = 2 * np.arange(self.d + 1) / self.d - 1
        return float(1 / (self.agreements @ side))

    @property
    def variance_factor(self) -> float:
        """The worst-case variance, as a multiple of that of the form without the leak."""
        sound = CubeCoder.of(self.epsilon, self.d, threshold=0).worst_case_variance
        return self.scale**2 / sound

    def sums(self, x: npt.NDArray[np.floating], models: int, source: Source) -> Floats:
        """Return the sum of the answers to rows of numbers, for each of some models.

        The rows of x are those of the first model, then those of the second, and so on.
        """
        rows = len(x) // models
        totals = np.zeros((models, self.d))
        ends = np.cumsum(self.agreements)[:-1]
        at_once = max(1, _CHUNK_SIGNS // self.d)
        for model in range(models):
            for start in range(model * rows, (model + 1) * rows, at_once):
                part = x[start : min(start + at_once, (model + 1) * rows)]
                number = np.searchsorted(ends, source.uniform(len(part)), side="right")
                keys = source.words(part.shape, np.uint32)
                order = np.sort(keys, axis=1)
                agree = keys < order[np.arange(len(part)), np.minimum(number, self.d - 1)][:, None]
                agree |= (number == self.d)[:, None]
                up = source.uniform(part.shape) * 2 - 1 < part
                totals[model] += 2.0 * (up == agree).sum(axis=0) - len(part)
        return self.scale * totals

    def expected_error(self, x: npt.NDArray[np.floating], n: int) -> float:
        """Return the expected squared error of a mean of n rows like x, averaged over columns."""
        return float((self.scale**2 - np.mean(x.astype(np.float64) ** 2)) / n)
