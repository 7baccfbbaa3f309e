"""Where the gradients of a linear regression are clipped, and how many are.

A gradient is the residual times the features of a row, and its length is clipped. A residual that
is far from 0 then counts for less, which draws the model from the mean towards a median: on a
skewed target the predictions are biased, however many vehicles answer. A loose clip has no bias,
and more noise.

So the target is surveyed (see `fedldp.learn.survey`), and the model is trained on
t = (y - centre) / (`SPREADS` spreads). For a row of the usual length L, a clip at the length C
limits residuals to g = `SPREADS` C / L spreads of the target. The rule for g balances bias against
noise. It depends on public numbers only: let V be the variance that noise would add to a typical
score if residuals were limited to one spread, in terms of the square of the spread. Then

    g = `NOISE_WEIGHT` V^(-1/4), at least `FEWEST` and at most `MOST` spreads.

The noise adds about g^2 V, so more vehicles buy a looser clip and less noise. Targets with two or
three values, and all within 1.5 spreads of their mean, are hardly clipped at all.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from fedldp.learn.networks import LINEAR_LENGTH
from fedldp.learn.noise_aware import Prior, score_variance
from fedldp.results.estimate import Mean

SPREADS = 3.0  # of the target become 1 on the scale that the server learns

# Settled on synthetic problems (benchmarks/regression.py); see docs/learning.md.
NOISE_WEIGHT = 0.3
FEWEST, MOST = 1.5, 6.0  # spreads
MEAN_RESIDUAL = 0.7  # the mean absolute residual of a model that predicts a little, in spreads

BIASED_SHARE = 0.15  # of the first model's gradients; FEWEST clips 13% for a normal target
WIDENING_ERRORS, WARNING_ERRORS = 2.0, 3.0  # standard errors by which a share is above that

# Without privacy nothing needs a clip. This one only keeps the first steps from diverging: it is
# reached by a residual of 2, the whole range of the target, in a row of the usual length.
LOOSE = 2.0


@final
@dataclass(frozen=True)
class Clip:
    """Where the length of a gradient is clipped.

    >>> Clip.at(1.0, row_length=2.0).spreads
    1.5
    """

    length: float
    mean_length: float  # a public guess of the mean length, as a share of `length`
    spreads: float | None = None  # how large a residual may be; None unless a regression's

    @classmethod
    def at(cls, length: float, row_length: float) -> "Clip":
        """Return the clip at a length, with the mean length that follows for residuals."""
        spreads = SPREADS * length / row_length
        return cls(length, min(1.0, MEAN_RESIDUAL / spreads), spreads)

    @classmethod
    def loose(cls, prior: Prior) -> "Clip":
        """Return the clip without privacy, where next to nothing is clipped."""
        return cls(LOOSE * prior.length, LINEAR_LENGTH)

    @classmethod
    def of(cls, prior: Prior, variance: float, width: float = 1.0) -> "Clip":
        """Return the clip that balances bias and noise.

        `variance` is that of a coordinate of the mean of all gradients, if these are clipped at 1;
        `width` is by how much the survey of the target overestimates the spread.
        """
        unit = prior.length / SPREADS  # the length of a gradient whose residual is one spread
        noise = SPREADS**2 * score_variance(prior, variance * unit**2)
        spreads = min(MOST, max(FEWEST, NOISE_WEIGHT * noise**-0.25)) / width
        rounded = float(f"{unit * spreads:.3g}")  # the same on every machine
        return cls.at(rounded, prior.length)


@final
@dataclass(frozen=True)
class ClippedShare:
    """The share of gradients that the first model's residuals would have clipped, as surveyed.

    >>> print(ClippedShare(0.08, 0.01))
    8.0% ± 2.0%
    """

    share: float
    stderr: float

    def __str__(self) -> str:
        return f"{self.share:.1%} ± {2 * self.stderr:.1%}"

    @classmethod
    def of(cls, answered: Mean) -> "ClippedShare":
        """Return the share that a survey of tails has found."""
        share, stderr = (float(np.ravel(each)[0]) for each in (answered.mean, answered.stderr))
        return cls(min(1.0, max(0.0, share)), stderr)

    @property
    def warning(self) -> str:
        """What to tell people if the share is large."""
        return (
            f"{self} of the gradients are clipped, which draws predictions towards a median: they "
            "may be biased. Choose narrower bounds of the target, a larger bound for gradients, or "
            "ask more vehicles."
        )

    @property
    def is_biased(self) -> bool:
        """Whether so many gradients are clipped that people should know."""
        return self.exceeds(WARNING_ERRORS)

    def exceeds(self, errors: float) -> bool:
        """Return whether more than `BIASED_SHARE` are clipped, by some standard errors.

        >>> ClippedShare(0.3, 0.06).exceeds(2.0), ClippedShare(0.3, 0.06).exceeds(3.0)
        (True, False)
        """
        return math.isfinite(self.stderr) and self.share - errors * self.stderr > BIASED_SHARE
