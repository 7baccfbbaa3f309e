"""The law of one answer: the probability that a question x gets the value y as its answer.

Every exact coder has one (`coder.law`). x is a number in [-1, 1], or says (1 or 0) whether a
vehicle is in a category. Estimates, their intervals and their checks follow from the law alone.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from fedldp._internal.validation import Floats
from fedldp.coders import tables

_CHUNK_MEANS = 1 << 10
_MANY_OUTPUTS = 64
# Any exponent gives a valid bound, and the best of these is within 1% of the best there is.
_EXPONENTS = np.geomspace(1e-7, 1e2, 200)


@final
@dataclass(frozen=True, eq=False)
class Law:
    """The probability `table[i, j]` of the answer `values[j]` at x = `letters[i]`; unbiased.

    An x between two letters is rounded to one of them at random. An `indicator` is never between
    its letters 0 and 1.
    """

    letters: Floats
    values: Floats
    table: Floats
    indicator: bool = False

    @classmethod
    def of_indicator(cls, p: float, q: float, difference: float) -> "Law":
        """Return the law of a bit that is 1 with probability p if x = 1, and q if x = 0.

        The difference p - q is given, so that it can be exact.
        """
        values = np.array([-q, 1 - q]) / difference
        return cls(np.array([0.0, 1.0]), values, np.array([[1 - q, q], [1 - p, p]]), indicator=True)

    @cached_property
    def variances(self) -> Floats:
        """The variance of y at each letter."""
        return tables.variance(self.letters, self.values, self.table, self.letters)

    def least_noise(self, mean: Floats) -> Floats:
        """Return the least that the mean variance of y given x can be, if x has some mean.

        At both ends of the range it is exact, and for an indicator everywhere.
        """
        return np.interp(mean, *self._envelope)

    @cached_property
    def _envelope(self) -> tuple[Floats, Floats]:
        """The corners of the largest convex function below the variances.

        Between letters the variance lies above the straight line, so the letters are enough.
        """
        corners: list[tuple[float, float]] = []
        for x, y in zip(self.letters.tolist(), self.variances.tolist(), strict=True):
            while len(corners) > 1:
                (x0, y0), (x1, y1) = corners[-2:]
                if (y1 - y0) * (x - x0) < (y - y0) * (x1 - x0):
                    break
                corners.pop()
            corners.append((x, y))
        xs, ys = np.array(corners).T
        return xs, ys

    @cached_property
    def jump(self) -> float:
        """The largest distance between neighboring values, squared: noise comes in such steps."""
        return float(np.max(np.diff(self.values)) ** 2)

    @cached_property
    def square_weights(self) -> Floats:
        """For each value a weight w with E[w | x] <= x^2 for every x, and as close as possible."""
        if self.indicator:
            return self.values  # E[y | x] = x = x^2
        # As close to x^2 as a combination of the columns can be, at little variance; then moved
        # down until it is nowhere above. With two outputs that says nothing, with ten it is exact;
        # of very many outputs, powers of their values are combined: all columns would fit any few
        # points.
        letters, values, outputs = self.letters, self.values, self.values.size
        x = np.union1d(letters, (letters[1:] + letters[:-1]) / 2)
        basis = np.eye(outputs)
        if outputs > _MANY_OUTPUTS:
            basis = np.abs(values / values[-1])[:, None] ** np.arange(9)
        table = tables.probabilities(letters, self.table, x)
        few = np.sqrt(1e-6 * len(x) * table.mean(axis=0))[:, None] * basis
        target = np.concatenate([x**2, np.zeros(outputs)])
        weights: Floats = (
            basis @ np.linalg.lstsq(np.vstack([table @ basis, few]), target, rcond=None)[0]
        )
        at_letters = self.table @ weights  # and in between on a straight line
        weights -= tables.largest_piecewise_quadratic(
            lambda x: np.interp(x, letters, at_letters) - x**2, letters
        )
        return weights

    def beyond(self, m: Floats, mean: Floats) -> tuple[Floats, Floats]:
        """Bound the probability of a mean of m answers as high, or as low, whatever the x are.

        This is Chernoff's bound, P(sum y >= m t) <= E[e^(s (y - t))]^m for every s > 0, at the x
        with the largest expectation. It holds for every m, not only for large ones.
        """
        return self._above(m, mean, 1.0), self._above(m, -mean, -1.0)

    def _above(self, m: Floats, mean: Floats, sign: float) -> Floats:
        shares = np.ones(mean.shape)
        places = np.flatnonzero(mean > np.max(sign * self.letters))
        if places.size:
            exponents, logarithms = self._upper if sign > 0 else self._lower
            # Some means at a time: there can be very many of them.
            for start in range(0, places.size, _CHUNK_MEANS):
                chunk = places[start : start + _CHUNK_MEANS]
                rates = logarithms[:, None] - exponents[:, None] * mean[chunk]
                shares[chunk] = np.exp(m[chunk] * np.minimum(rates.min(axis=0), 0.0))
        return shares

    @cached_property
    def _upper(self) -> tuple[Floats, Floats]:
        return self._bounds(self.values)

    @cached_property
    def _lower(self) -> tuple[Floats, Floats]:
        return self._bounds(-self.values)

    def _bounds(self, values: Floats) -> tuple[Floats, Floats]:
        """Return exponents s, and for each the largest ln E[e^(s y)] over all x."""
        exponents = _EXPONENTS / np.abs(values).max()
        raised = np.expm1(exponents[:, None] * values)
        return exponents, np.log1p(np.max(raised @ self.table.T, axis=1))
