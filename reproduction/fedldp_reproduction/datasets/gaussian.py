"""The paper's Gaussian sets, SYNTHETIC: 16 numbers about one mean.

The paper has N(mu, 1/16), with a standard deviation of 1/4, "truncated to [-1, 1]", and does not
say how, nor how many rows. It is read here in the usual sense, as the normal distribution given
that the value lies in [-1, 1]: what lies outside is drawn again, not moved to the bound, where for
mu = 1 half of all values would lie. The `clipped` sets are the other reading.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np
from scipy.special import ndtr, ndtri

from fedldp.datasets import Generated
from fedldp.datasets.dataset import About, Dataset, seeded_source
from fedldp.schema.schema import Schema

_NUMBERS = 16
_DEVIATION = 0.25
_CHUNK = 1 << 16  # rows made at a time


@final
@dataclass(frozen=True)
class Gaussian:
    """A Gaussian set about one mean."""

    name: str
    mean: Fraction
    clipped: bool = False  # what lies outside is moved to the bound, and not drawn again

    @property
    def about(self) -> About:
        """What to know about it."""
        how = "clipped" if self.clipped else "truncated"
        return About(
            name=self.name,
            title=f"SYNTHETIC Gaussian, mean {self.mean}{', clipped' * self.clipped}",
            licence="Apache-2.0",
            citation="Made by fedldp.",
            source="made on this machine from a seed",
            rows=1_000_000,
            dimensions=_NUMBERS + 1,
            note=f"{_NUMBERS} numbers, each N({self.mean}, 1/16) {how} to [-1, 1]. No target: for "
            "statistics.",
            synthetic=True,
        )

    def make(self, rows: int, seed: int) -> Dataset:
        """Return this many rows. With the same seed, fewer are the first of more."""
        words, mean = seeded_source(self.name, seed), float(self.mean)
        low, high = 0.0, 1.0
        if not self.clipped:
            low, high = ndtr((-1.0 - mean) / _DEVIATION), ndtr((1.0 - mean) / _DEVIATION)
        values = np.empty((rows, _NUMBERS), np.float32)
        for start in range(0, rows, _CHUNK):
            part = values[start : start + _CHUNK]
            # One word for each value, where drawing again would take some and shift the rows.
            drawn = mean + _DEVIATION * ndtri(low + (high - low) * words.uniform(part.shape))
            np.clip(drawn, -1.0, 1.0, out=drawn)  # also where rounding leaves the bounds
            part[:] = drawn
        return Dataset(self.about, Schema.vector(_NUMBERS, 1.0), (values,))


SETS = (
    Gaussian("gaussian-0", Fraction(0)),
    Gaussian("gaussian-1-3", Fraction(1, 3)),
    Gaussian("gaussian-2-3", Fraction(2, 3)),
    Gaussian("gaussian-1", Fraction(1)),
)

CLIPPED = tuple(
    Gaussian(f"{each.name}-clipped", each.mean, clipped=True) for each in SETS if each.mean > 0.5
)

GAUSSIAN_0, GAUSSIAN_1_3, GAUSSIAN_2_3, GAUSSIAN_1, GAUSSIAN_2_3_CLIPPED, GAUSSIAN_1_CLIPPED = (
    Generated(each.about, each.make) for each in (*SETS, *CLIPPED)
)
