"""The Coder protocol: the only place where kinds of answers differ.

A coder is the half of a vehicle and the half of a server at once. The vehicle calls `encode` and
`put`: a value becomes a code, drawn with integer odds, and the code becomes bits of a record. The
server calls `get` and `count`: bits become a code again, and the code is added to counters. What
the counters say about the data is in `moments`.

To add a coder, write a class in a file of its own, derive it from one of the classes here, and
list it in `fedldp.coders.CODERS`. Plans, reports, tallies and estimates then work with it.
"""

from abc import ABC, abstractmethod
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
import numpy.typing as npt

from fedldp._internal.packing import Records
from fedldp._internal.validation import Floats, Integers
from fedldp.coders.laws import Law
from fedldp.coders.moments import Moments
from fedldp.errors import WireError
from fedldp.randomness import Source
from fedldp.vehicle import PLAN_FORMAT

__all__ = ["AsBits", "ByLaw", "Coder", "ForCategories", "ForNumbers"]

Document = dict[str, Any]
Codes = npt.NDArray[Any]
Cells = npt.NDArray[Any]  # counters: integers, or floats in a plan for study
Assumed = tuple[Any, Any, Any]  # the mean noise, the mean of x and the mean of x^2

ASSUMPTIONS = ("uniform", "worst")

_FEW = 1 << 16  # counters that are cheap to go through
_X = np.linspace(-1.0, 1.0, 4001)


class Check(NamedTuple):
    """A number that honest vehicles hardly ever make as large, or as small."""

    kind: str
    found: float
    expected: float  # the most, or the least, that is expected of honest vehicles
    p_value: float  # the probability of a number as far beyond, whatever the data are, at most


class Coder(ABC):
    """Turns values into codes, exactly private, and counters of codes into estimates.

    A coder answers one coordinate, such as a number or a category. A `joint` coder answers all
    coordinates of its part with one code.
    """

    kind: ClassVar[str]  # its name in a plan's JSON
    joint: ClassVar[bool] = False
    exact: ClassVar[bool] = True  # False: for study only, with floating-point noise
    one_counter_per_code: ClassVar[bool] = True
    ball: ClassVar[bool] = False  # True: for one vector with a bound on its length, which is 1 here
    plan_format: ClassVar[str] = PLAN_FORMAT  # the first format of plans that can name it
    most_answers: ClassVar[int] = 1 << 46  # that counters can hold; far from where int64 ends

    inputs_dtype: ClassVar[type[np.generic]]
    ends: ClassVar[tuple[float, float]]  # between which a true mean lies

    epsilon: float

    # What it is.

    @property
    @abstractmethod
    def inputs(self) -> tuple[float, float]:
        """The least and the largest input: an attribute with the same `inputs` fits."""

    @property
    def coordinates(self) -> int:
        """How many coordinates one code answers."""
        return 1

    @property
    @abstractmethod
    def estimates(self) -> int:
        """How many numbers are estimated from the counters of one unit."""

    @property
    @abstractmethod
    def bits(self) -> int:
        """How many bits a code takes."""

    @property
    @abstractmethod
    def cells(self) -> int:
        """How many counters a tally keeps for one unit."""

    @property
    @abstractmethod
    def ratio(self) -> Fraction:
        """The largest ratio of the probabilities of a code under two inputs: at most e^epsilon."""

    @abstractmethod
    def to_document(self) -> Document:
        """Return the coder as it stands in a plan's JSON."""

    @classmethod
    @abstractmethod
    def from_document(cls, document: Document, coordinates: int = 1) -> Self:
        """Read what `to_document` gives, and check it again; a joint coder is told its size."""

    # The vehicle's half.

    @abstractmethod
    def encode(self, values: Any, source: Source) -> Any:
        """Return a code for each value, or for each row of values if the coder is joint.

        The number of random words does not depend on the values.
        """

    def put(self, codes: Codes, records: Records, first: int, rows: Integers | None = None) -> None:
        """Write codes into the field of some records that begins at a bit."""
        records.put(first, self.bits, codes, rows)

    # The server's half.

    def get(self, records: Records, first: int, rows: Integers | None = None) -> Codes:
        """Read codes from the field of some records that begins at a bit, or raise `WireError`."""
        codes = records.get(first, self.bits)
        codes = codes if rows is None else codes[rows]
        if codes.size and codes.max() >= self.cells:
            raise WireError(f"a record has the code {codes.max()}; codes end at {self.cells - 1}")
        return codes

    def count(self, codes: Codes, place: int, cells: Cells) -> None:
        """Add the codes of one unit to its counters, which begin at a place."""
        found = np.bincount(codes.astype(np.intp, copy=False), minlength=self.cells)
        cells[place : place + self.cells] += found

    def count_at(self, codes: Codes, places: Integers, cells: Cells) -> None:
        """Add codes of several units to their counters; `places` may be overwritten."""
        if not self.one_counter_per_code:
            for place in np.unique(places):
                self.count(codes[places == place], int(place), cells)
            return
        start, stop = 0, cells.size
        if cells.size > _FEW:
            start, stop = int(places.min()), int(places.max()) + self.cells
            places -= start
        places += codes.astype(np.int64, copy=False)
        cells[start:stop] += np.bincount(places, minlength=stop - start)

    def answers(self, cells: Cells) -> Cells:
        """Return how many answers the counters along the last axis hold."""
        return cast(Cells, cells.sum(axis=-1))

    def invalid(self, cells: Cells, answers: Cells) -> str | None:
        """Return why counters cannot be those of so many answers, or None if they can."""
        if np.any(cells < 0) or np.any(cells > answers[:, None]):
            return "a counter is negative, or larger than the number of answers"
        return None

    # What the counters say. Units are along the axis before the last, counters along the last.

    @abstractmethod
    def sums(self, cells: Cells) -> tuple[Floats, Floats]:
        """Return, for each estimate, how many answers there are and the sum of their values."""

    @abstractmethod
    def moments(self, cells: Cells) -> Moments:
        """Return the moments of the answers about each estimate."""

    @abstractmethod
    def beyond(self, m: Floats, mean: Floats) -> tuple[Floats, Floats] | None:
        """Bound the probability that honest answers have a mean as high, or as low; None: unknown.

        It holds whatever the data are.
        """

    def checks(self, cells: Cells) -> list[Check]:
        """Return what else is known about honest answers, for counters of a single unit."""
        return []

    @property
    @abstractmethod
    def noise(self) -> float:
        """The variance of an answer about one estimate, as far as it is known without the data."""

    @property
    @abstractmethod
    def reach(self) -> float:
        """How far one answer can lie from an honest mean, at most."""

    @abstractmethod
    def assumed(self, inputs: Floats | str, weight: float) -> Assumed:
        """Return what to expect of a report: its noise, and the mean of x and of x^2.

        The inputs are public ones, a row for each vehicle, or one of `ASSUMPTIONS`. The worst case
        maximises the noise plus `weight` times x^2.
        """


class ByLaw(Coder):
    """A coder whose answers have few values, each with a known probability: see `Law`."""

    @cached_property
    @abstractmethod
    def law(self) -> Law:
        """With which probability a question gets which value as its answer."""

    @abstractmethod
    def histograms(self, cells: Cells) -> Cells:
        """Return how often each value of the law came, a row for each estimate."""

    @cached_property
    def _counted(self) -> Floats:
        """What each count of a value adds to the number of answers and to their sum."""
        values = self.law.values
        return np.stack([np.ones(values.size), values], axis=1)

    def sums(self, cells: Cells) -> tuple[Floats, Floats]:
        found = self.histograms(cells) @ self._counted
        return found[..., 0], found[..., 1]

    def moments(self, cells: Cells) -> Moments:
        return Moments.by_law(self.law, self.histograms(cells))

    def beyond(self, m: Floats, mean: Floats) -> tuple[Floats, Floats] | None:
        return self.law.beyond(m, mean)

    @property
    def reach(self) -> float:
        values, (low, high) = self.law.values, self.ends
        return float(max(values[-1] - low, high - values[0]))


class ForNumbers(Coder):
    """A coder of numbers in [-1, 1]."""

    inputs_dtype = np.float64
    inputs = (-1.0, 1.0)
    ends = (-1.0, 1.0)

    @property
    def estimates(self) -> int:
        return self.coordinates

    @abstractmethod
    def variance(self, x: npt.ArrayLike) -> Any:
        """Return the variance of what is decoded for one number, for each x."""

    @property
    def noise(self) -> float:
        return float(self.variance(0.0))

    def assumed(self, inputs: Floats | str, weight: float) -> Assumed:
        if not isinstance(inputs, str):
            noise = self.variance(inputs).mean(axis=0)
            return noise, inputs.mean(axis=0), (inputs**2).mean(axis=0)
        noise = self.variance(_X)
        if inputs == "worst":  # half of the vehicles at x, the others at -x
            worst = np.argmax(noise + weight * _X**2)
            return noise[worst], 0.0, _X[worst] ** 2
        return np.trapezoid(noise, _X) / 2, 0.0, 1 / 3


class ForCategories(Coder):
    """A coder of categories, each given by its number."""

    inputs_dtype = np.int64
    ends = (0.0, 1.0)

    categories: int

    @property
    def inputs(self) -> tuple[float, float]:
        return 0.0, float(self.categories - 1)

    @property
    def estimates(self) -> int:
        return self.categories

    @property
    @abstractmethod
    def variance(self) -> float:
        """The variances of all frequencies that one report estimates, added up."""

    @property
    def noise(self) -> float:
        return self.variance / self.categories

    def assumed(self, inputs: Floats | str, weight: float) -> Assumed:
        shares = np.full(self.categories, 1 / self.categories)  # the worst case too
        if not isinstance(inputs, str):
            numbers = inputs.astype(np.int64).reshape(-1)
            shares = np.bincount(numbers, minlength=self.categories) / len(inputs)
        return self.noise, shares, shares


class AsBits(Coder):
    """A coder whose code is a row of bits, of which each is counted."""

    one_counter_per_code = False

    def put(self, codes: Codes, records: Records, first: int, rows: Integers | None = None) -> None:
        records.put_bits(first, codes, rows)

    def get(self, records: Records, first: int, rows: Integers | None = None) -> Codes:
        codes = records.get_bits(first, self.bits)
        return codes if rows is None else codes[rows]


def epsilon_of(document: Document) -> float:
    """Return the budget in a coder's document; raises what becomes `WireError`."""
    text = document["epsilon"]
    if not isinstance(text, str):
        raise TypeError("epsilon must be a number written as a text")
    return float(text)
