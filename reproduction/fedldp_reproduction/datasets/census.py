"""Census-like people, SYNTHETIC: the shapes of the paper's Brazil and Mexico, without real people.

Each person belongs to a latent class, and each class has a standing in society. Standing moves
every trait, more or less, and traits and noise together make the income. So traits hang together as
they do in a census, a linear model can learn the income from them, and none learns it all.

Incomes of a real census that are scaled by their least and largest value lie near -1: few people
earn a hundred times the median. In the first two sets they spread over the range; the `skewed` ones
have longer tails and a bound as far off as that of a real census, and so their incomes lie near -1.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from fedldp._internal.validation import Floats, Integers
from fedldp.datasets import Generated
from fedldp.datasets.dataset import About, Dataset, seeded_source
from fedldp.schema.attributes import Category, Number
from fedldp.schema.schema import Schema

_CHUNK = 1 << 16  # people made at a time
_STANDING = np.array([-1.0, -0.6, -0.3, 0.0, 0.4, 1.0])  # of each latent class
_SHARES = np.cumsum([0.2, 0.25, 0.2, 0.15, 0.13, 0.07])  # of the people, up to each class
_NOISE, _LONG_TAIL = 0.6, 1.0  # of the logarithm of an income
_FAR_OFF = 100  # times as high is the bound of a skewed income


@final
@dataclass(frozen=True)
class _Label:
    """A trait with labels, of which the first ones are common and the last ones well paid."""

    name: str
    labels: int
    tilt: float  # how much it depends on standing
    pay: float  # how much the logarithm of the income depends on it

    @property
    def attribute(self) -> Category:
        return Category(self.name, tuple(str(label + 1) for label in range(self.labels)))

    @property
    def ranks(self) -> Floats:
        return np.linspace(-1.0, 1.0, self.labels)

    def draw(self, classes: Integers, uniform: Floats) -> npt.NDArray[np.uint8]:
        weights = np.exp(self.tilt * np.outer(_STANDING, self.ranks))
        weights /= np.arange(1, self.labels + 1)
        upto = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
        upto[:, -1] = 1.0
        # One search for all classes: class c has its labels between c and c + 1.
        ends = (upto + np.arange(len(upto))[:, None]).reshape(-1)
        found: Integers = np.searchsorted(ends, classes + uniform) - classes * self.labels
        return found.clip(0, self.labels - 1).astype(np.uint8)  # c + u may round to a whole number

    def score(self, values: npt.NDArray[np.uint8]) -> Floats:
        return self.ranks[values]


@final
@dataclass(frozen=True)
class _Count:
    """A trait that is a whole number, normal about a mean that depends on standing."""

    name: str
    low: int
    high: int
    mean: float
    deviation: float
    tilt: float
    pay: float

    @property
    def attribute(self) -> Number:
        return Number(self.name, self.low, self.high)

    def draw(self, classes: Integers, uniform: Floats) -> npt.NDArray[np.uint8]:
        centres = self.mean + self.tilt * _STANDING
        drawn: Floats = np.rint(centres[classes] + self.deviation * ndtri(uniform))
        return drawn.clip(self.low, self.high).astype(np.uint8)

    def score(self, values: npt.NDArray[np.uint8]) -> Floats:
        return (values.astype(np.float64) - self.mean) / (self.high - self.low)


@final
@dataclass(frozen=True)
class _Census:
    about: About
    traits: tuple[_Label | _Count, ...]
    typical: float  # income a month, of those in the middle of every trait
    most: float  # the public bound of incomes; the few above count as this
    threshold: float  # a public one, above which an income is high
    noise: float = _NOISE

    def skewed(self) -> "_Census":
        """Return the census with incomes as skewed as real ones."""
        about = replace(
            self.about,
            name=f"{self.about.name}-skewed",
            title=f"{self.about.title}, skewed incomes",
            note=f"{self.about.note} Incomes have a long tail, and their bound is {_FAR_OFF} times "
            "as high: scaled to [-1, 1] most lie near -1, as real ones do.",
        )
        return replace(self, about=about, most=_FAR_OFF * self.most, noise=_LONG_TAIL)

    def with_threshold(self, name: str, threshold: float) -> "_Census":
        """Return the census with another public threshold of a high income."""
        about = replace(
            self.about,
            name=name,
            title=f"{self.about.title}, high incomes above {threshold:g}",
            note=f"{self.about.note} The threshold is {threshold:g} in place of "
            f"{self.threshold:g}.",
        )
        return replace(self, about=about, threshold=threshold)

    @property
    def schema(self) -> Schema:
        return Schema(
            (
                *(trait.attribute for trait in self.traits),
                Number("income", 0, self.most),
                Category("high_income", ("no", "yes")),
            )
        )

    def make(self, rows: int, seed: int) -> Dataset:
        """Return this many people. With the same seed, fewer are the first of more."""
        parts = list(self._parts(rows, seed))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        columns.append((columns[-1] > self.threshold).astype(np.uint8))
        return Dataset(
            self.about,
            self.schema,
            tuple(columns),
            targets={"logistic": "high_income", "hinge": "high_income", "squared": "income"},
            derived=("high_income",),
        )

    def _parts(self, rows: int, seed: int) -> Iterator[list[npt.NDArray[np.generic]]]:
        words = seeded_source(self.about.name, seed)
        for start in range(0, rows, _CHUNK):
            drawn = words.uniform((min(_CHUNK, rows - start), len(self.traits) + 2))
            classes = np.searchsorted(_SHARES[:-1], drawn[:, 0])
            logarithm = self.noise * ndtri(drawn[:, 1])
            columns: list[npt.NDArray[np.generic]] = []
            for trait, uniform in zip(self.traits, drawn.T[2:], strict=True):
                values = trait.draw(classes, uniform)
                logarithm += trait.pay * trait.score(values)
                columns.append(values)
            income = np.minimum(self.typical * np.exp(logarithm), self.most)
            yield [*columns, income.astype(np.float32)]


def _about(name: str, country: str, rows: int, dimensions: int, shape: str) -> About:
    return About(
        name=name,
        title=f"SYNTHETIC census like {country}",
        licence="Apache-2.0",
        citation="Made by fedldp.",
        source="made on this machine from a seed",
        rows=rows,
        dimensions=dimensions,
        note=f"Nobody's data: {shape}, as the paper's {country} has. The target is the income, or "
        "whether it lies above a public threshold.",
        synthetic=True,
    )


BR = _Census(
    _about("br", "Brazil", 4_000_000, 90, "6 numbers and 10 categories with 94 labels"),
    (
        _Count("age", 0, 100, mean=38, deviation=14, tilt=4, pay=1.0),
        _Count("hours", 0, 100, mean=38, deviation=11, tilt=3, pay=1.2),
        _Count("children", 0, 15, mean=2, deviation=1.5, tilt=-1, pay=-0.4),
        _Count("household", 1, 20, mean=4, deviation=1.8, tilt=-0.8, pay=-0.3),
        _Count("rooms", 1, 20, mean=5, deviation=1.7, tilt=1.5, pay=0.8),
        _Label("state", 27, tilt=0.4, pay=0.15),
        _Label("industry", 16, tilt=0.9, pay=0.25),
        _Label("occupation", 12, tilt=1.6, pay=0.4),
        _Label("education", 10, tilt=2.2, pay=0.5),
        _Label("religion", 8, tilt=0.1, pay=0.0),
        _Label("marital", 6, tilt=0.2, pay=0.05),
        _Label("worker", 6, tilt=0.8, pay=0.2),
        _Label("race", 5, tilt=0.5, pay=0.05),
        _Label("sex", 2, tilt=0.0, pay=0.1),
        _Label("literate", 2, tilt=1.5, pay=0.1),
    ),
    typical=3500,
    most=5000,
    threshold=1500,
)

MX = _Census(
    _about("mx", "Mexico", 4_000_000, 94, "5 numbers and 14 categories with 103 labels"),
    (
        _Count("age", 0, 100, mean=36, deviation=14, tilt=3, pay=0.9),
        _Count("hours", 0, 120, mean=44, deviation=13, tilt=3, pay=1.2),
        _Count("children", 0, 15, mean=2.3, deviation=1.6, tilt=-1, pay=-0.4),
        _Count("household", 1, 20, mean=4.5, deviation=1.9, tilt=-0.8, pay=-0.3),
        _Label("state", 32, tilt=0.5, pay=0.15),
        _Label("industry", 15, tilt=0.9, pay=0.25),
        _Label("occupation", 11, tilt=1.6, pay=0.4),
        _Label("education", 9, tilt=2.2, pay=0.5),
        _Label("marital", 6, tilt=0.2, pay=0.05),
        _Label("relation", 6, tilt=0.1, pay=0.1),
        _Label("religion", 5, tilt=0.1, pay=0.0),
        _Label("worker", 5, tilt=0.8, pay=0.2),
        _Label("insurance", 4, tilt=1.2, pay=0.1),
        _Label("sex", 2, tilt=0.0, pay=0.1),
        _Label("literate", 2, tilt=1.5, pay=0.1),
        _Label("urban", 2, tilt=0.8, pay=0.1),
        _Label("indigenous", 2, tilt=-0.3, pay=-0.05),
        _Label("disability", 2, tilt=-0.2, pay=-0.1),
    ),
    typical=14_000,
    most=20_000,
    threshold=6000,
)

BR_SKEWED, MX_SKEWED = BR.skewed(), MX.skewed()

BR_RICH = BR.with_threshold("br-rich", 3000)

BRAZIL, MEXICO, BRAZIL_SKEWED, MEXICO_SKEWED, BRAZIL_RICH = (
    Generated(each.about, each.make) for each in (BR, MX, BR_SKEWED, MX_SKEWED, BR_RICH)
)
