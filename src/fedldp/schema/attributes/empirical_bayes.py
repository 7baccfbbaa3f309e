"""Frequencies of many labels: a prior that is learned from all of them, and its posterior means.

The unbiased estimates z of m frequencies f have noise of known standard errors s, about normal.
With many labels, their own spread shows how frequencies are distributed: a mixture of narrow normal
laws, whose mean must be 1/m because frequencies add up to 1. The mean of f given z under this prior
has less squared error than z or its projection. docs/collection.md has what was measured.

The prior may fit what is chance. So there are two: one with laws as narrow as the noise allows,
which sees that many labels are equally frequent, and one with laws as wide as half of their place,
which hardly changes what stands out of the noise. The narrow prior needs strong evidence.
"""

from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats

FEWEST_LABELS = 64
"""With fewer labels, the projection alone can have less error."""
LARGEST_SIGNAL = 15.0
"""Beyond this mean frequency, in standard errors, there is little to win, and something to lose."""

_STEPS = 100
_WIDE_SHARE = 0.5
_LEAST_EVIDENCE = 12.0
_SPACING, _SPACING_GROWTH, _EVEN_UP_TO = 0.25, 0.1, 4.0
_NARROWEST_AT_LABELS = 60.0
_ROWS_PER_ERROR = 16.0
_BISECTIONS = 30
_INSIDE = 1 - 1e-9
_BLOCK = 1 << 14


def applies(values: Floats, stderr: Floats) -> bool:
    """Return whether there are enough labels, and enough noise, for less error than projection."""
    return bool(
        values.size >= FEWEST_LABELS
        and np.isfinite(values).all()
        and np.isfinite(stderr).all()
        and (stderr > 0).all()
        and values.size * LARGEST_SIGNAL * np.median(stderr) >= 1
    )


def posterior_means(values: Floats, stderr: Floats) -> Floats:
    """Return the mean of each frequency given its unbiased estimate; they need not add up to 1."""
    rows = _DistinctEstimates.of(values, stderr)
    typical = float(np.median(stderr))
    wide = _NormalMixture.fitted(rows, typical, values.size, _WIDE_SHARE)
    narrow = _NormalMixture.fitted(rows, typical, values.size, 0.0)
    prior = narrow if narrow.evidence > wide.evidence + _LEAST_EVIDENCE else wide
    blocks = range(0, values.size, _BLOCK)
    means = [
        prior.posterior(values[start : start + _BLOCK], stderr[start : start + _BLOCK])
        for start in blocks
    ]
    return np.concatenate(means)


class _DistinctEstimates(NamedTuple):
    """Estimates, of which those that differ by much less than their errors count as one."""

    values: Floats
    variances: Floats
    counts: Floats

    @classmethod
    def of(cls, values: Floats, stderr: Floats) -> "_DistinctEstimates":
        cells = np.round(values * (_ROWS_PER_ERROR / np.median(stderr)))
        _, places, counts = np.unique(cells, return_inverse=True, return_counts=True)
        values, variances = (np.bincount(places, each) / counts for each in (values, stderr**2))
        return cls(values, variances, counts.astype(np.float64))


class _NormalMixture(NamedTuple):
    """A mixture of normal laws."""

    centres: Floats
    variances: Floats
    weights: Floats
    evidence: float
    """The logarithm of the likelihood of the estimates."""

    @classmethod
    def fitted(
        cls, rows: _DistinctEstimates, typical: float, labels: int, wide_share: float
    ) -> "_NormalMixture":
        """Return the prior that steps of expectation and maximization find."""
        centres = _grid(max(float(rows.values.max()), 2 / labels), typical)
        spacing = np.gradient(centres)
        narrowest = typical * min(1.0, _NARROWEST_AT_LABELS / labels) ** 0.5
        least = np.where(centres > _EVEN_UP_TO * typical, spacing / 2, 0.0)
        widths = np.maximum(np.maximum(narrowest, least), wide_share * centres)
        variances = np.minimum(widths, centres / 2) ** 2
        logarithms = _log_densities(rows.values, rows.variances, centres, variances)
        largest = logarithms.max(axis=1, keepdims=True)
        densities = np.exp(logarithms - largest)
        weights = np.full(centres.size, 1 / centres.size)
        for _ in range(_STEPS):
            expected = weights * (densities.T @ (rows.counts / (densities @ weights)))
            weights = _with_mean(expected / labels, centres - 1 / labels)
        evidence = rows.counts @ (np.log(densities @ weights) + largest[:, 0])
        return cls(centres, variances, weights, float(evidence))

    def posterior(self, values: Floats, stderr: Floats) -> Floats:
        """Return the mean of each frequency given its estimate."""
        noise = stderr**2
        logarithms = _log_densities(values, noise, self.centres, self.variances)
        odds = np.exp(logarithms - logarithms.max(axis=1, keepdims=True)) * self.weights
        trust = self.variances / (self.variances + noise[:, None])
        means = self.centres + trust * (values[:, None] - self.centres)
        return cast(Floats, (odds * means).sum(axis=1) / odds.sum(axis=1))


def _grid(top: float, typical: float) -> Floats:
    """Return centres from 0 to `top`: some in each standard error, and fewer far from 0."""
    centres = [0.0]
    while centres[-1] < top:
        beyond = max(0.0, centres[-1] / typical - _EVEN_UP_TO)
        centres.append(centres[-1] + typical * (_SPACING + _SPACING_GROWTH * beyond))
    return np.array(centres)


def _log_densities(
    values: Floats, noise: Floats, centres: Floats, variances: Floats
) -> npt.NDArray[np.float64]:
    """Return the logarithm of the density of each estimate under each law, but for a constant."""
    total = noise[:, None] + variances
    return -((values[:, None] - centres) ** 2) / (2 * total) - np.log(total) / 2


def _with_mean(weights: Floats, distances: Floats) -> Floats:
    """Return weights tilted to w / (1 + t d), so that the mean of the distances d is 0.

    These are the most likely weights whose mean is given. The sum of w d / (1 + t d) falls with t.
    """
    low, high = -_INSIDE / distances.max(), -_INSIDE / distances.min()
    for _ in range(_BISECTIONS):
        tilt = (low + high) / 2
        if (weights * distances / (1 + tilt * distances)).sum() > 0:
            low = tilt
        else:
            high = tilt
    tilted = weights / (1 + tilt * distances)
    return cast(Floats, tilted / tilted.sum())
