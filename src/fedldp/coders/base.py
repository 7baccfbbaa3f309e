"""The Coder protocol: the only place where kinds of answers differ.

A coder is the vehicle's half and the server's half of one thing. The vehicle calls `encode` and
`put`: a value becomes a code, drawn with integer odds, and the code becomes bits of a record. The
server calls `get` and `count`: bits become a code again, and the code is added to counters. What
the counters say about the data is in `moments`.

To add a coder, write a class in a file of its own, derive it from one of the classes here (or, for
categories, from `categories.BySupport`), and list it in `fedldp.coders.CODERS`. Plans, reports,
tallies and estimates then work with it. A vehicle runs only what it knows: `vehicle.py` needs its
check, which the class calls, and a function that draws a code. docs/architecture.md has the steps.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
import numpy.typing as npt

from fedldp._internal.packing import Records
from fedldp._internal.validation import Floats, Integers
from fedldp._internal.vectors import Vectors
from fedldp.coders.laws import Law
from fedldp.coders.moments import Covariance, Moments
from fedldp.errors import WireError
from fedldp.randomness import Source
from fedldp.vehicle import PLAN_FORMAT

__all__ = ["AsBits", "ByLaw", "Coder", "ForCategories", "ForNumbers", "VectorCoder"]

Document = dict[str, Any]
Codes = npt.NDArray[Any]
Cells = npt.NDArray[Any]  # counters: integers, or floats in a plan for study
Mask = npt.NDArray[np.bool_]
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
    coordinates of its part with one code. A unit is what one code answers.

    Attributes
    ----------
    kind
        The name of the coder in a plan's JSON.
    joint
        Whether one code answers all coordinates of a part.
    exact
        Whether its odds are integers. If not, it is for study only, with floating-point noise.
    one_counter_per_code
        Whether the counters of a unit are a histogram of its codes.
    plan_format
        The first format of plans that can name the coder.
    most_answers
        How many answers its counters can hold: far below the limit of int64.
    inputs_dtype
        The type of its inputs.
    ends
        The least and the largest value that a true mean can have.
    epsilon
        The privacy budget of one code.

    Examples
    --------
    >>> from fedldp.coders import CODERS
    >>> CODERS["response"].__name__
    'RandomizedResponse'
    """

    kind: ClassVar[str]
    joint: ClassVar[bool] = False
    exact: ClassVar[bool] = True
    one_counter_per_code: ClassVar[bool] = True
    plan_format: ClassVar[str] = PLAN_FORMAT
    most_answers: ClassVar[int] = 1 << 46

    inputs_dtype: ClassVar[type[np.generic]]
    ends: ClassVar[tuple[float, float]]

    epsilon: float

    # What it is.

    @property
    @abstractmethod
    def inputs(self) -> tuple[float, float]:
        """The least and the largest input: an attribute with the same `inputs` fits the coder."""

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

    @property
    @abstractmethod
    def likeliest(self) -> float:
        """The largest probability that a code has under any input.

        It tells how often honest vehicles send equal reports.
        """

    @abstractmethod
    def to_document(self) -> Document:
        """Return the coder as it is written in a plan's JSON.

        Returns
        -------
        dict
            Entries for JSON, `kind` among them.

        Examples
        --------
        >>> from fedldp.coders import CubeCoder
        >>> sorted(CubeCoder.of(epsilon=1.0, d=3).to_document())
        ['epsilon', 'heavy', 'kind', 'light', 'threshold']
        """

    @classmethod
    @abstractmethod
    def from_document(cls, document: Document, coordinates: int = 1) -> Self:
        """Read what `to_document` returned, and validate it again.

        Parameters
        ----------
        document
            Entries, as read from JSON.
        coordinates
            How many coordinates a joint coder answers, which the document does not say.

        Returns
        -------
        Coder
            The coder.

        Raises
        ------
        ValueError, TypeError, KeyError
            If the document is not valid. Reading a plan turns them into `WireError`.

        Examples
        --------
        >>> from fedldp.coders import CubeCoder
        >>> cube = CubeCoder.of(epsilon=1.0, d=3)
        >>> CubeCoder.from_document(cube.to_document(), coordinates=3) == cube
        True
        """

    # The vehicle's half.

    @abstractmethod
    def encode(self, values: Any, source: Source) -> Any:
        """Return a code for each value, or for each row of values if the coder is joint.

        The number of random words does not depend on the values.

        Parameters
        ----------
        values
            Inputs of the coder, such as numbers in [-1, 1] or the numbers of categories.
        source
            The random source, from `fedldp.source`.

        Returns
        -------
        array
            The codes.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp.mechanisms import Duchi
        >>> Duchi(epsilon=1.0).channel().encode([0.5, -0.9, 1.0], fedldp.source(1))
        array([1, 0, 1], dtype=uint8)
        """

    def put(self, codes: Codes, records: Records, first: int, rows: Integers | None = None) -> None:
        """Write codes into a field of some records.

        Parameters
        ----------
        codes
            The codes, as `encode` returns them.
        records
            The records to write to.
        first
            The first bit of the field.
        rows
            The records that the codes are for; by default all.

        Examples
        --------
        >>> from fedldp._internal import packing
        >>> from fedldp.coders import RandomizedResponse
        >>> coder, records = RandomizedResponse.of(epsilon=1.0, categories=4), packing.empty(2, 2)
        >>> coder.put(np.array([3, 1]), records, first=0)
        >>> coder.get(records, first=0)
        array([3, 1], dtype=uint16)
        """
        records.put(first, self.bits, codes, rows)

    # The server's half.

    def get(self, records: Records, first: int, rows: Integers | None = None) -> Codes:
        r"""Read codes from a field of some records.

        Parameters
        ----------
        records
            The records to read from.
        first
            The first bit of the field.
        rows
            The records to read; by default all.

        Returns
        -------
        array
            The codes.

        Raises
        ------
        WireError
            If a record holds an unknown code.

        Examples
        --------
        >>> from fedldp._internal import packing
        >>> from fedldp.coders import RandomizedResponse
        >>> coder = RandomizedResponse.of(epsilon=1.0, categories=4)
        >>> coder.get(packing.parse(b"\xd0", count=2, width=2), first=0)
        array([3, 1], dtype=uint16)
        """
        codes = records.get(first, self.bits)
        codes = codes if rows is None else codes[rows]
        if codes.size and codes.max() >= self.cells:
            raise WireError(f"a record has the code {codes.max()}; codes end at {self.cells - 1}")
        return codes

    def unknown(self, records: Records, first: int, rows: Integers | None = None) -> Mask | None:
        r"""Return which records hold a code that does not exist, and that `get` would refuse.

        Parameters
        ----------
        records
            The records to read from.
        first
            The first bit of the field.
        rows
            The records to read; by default all.

        Returns
        -------
        array of bool, or None
            True for each unknown code. None if there are no unknown codes, whatever the bits are.

        Examples
        --------
        >>> from fedldp._internal import packing
        >>> from fedldp.coders import RandomizedResponse
        >>> coder = RandomizedResponse.of(epsilon=1.0, categories=3)
        >>> coder.unknown(packing.parse(b"\xd0", count=2, width=2), first=0)
        array([ True, False])
        """
        if self.cells == 1 << self.bits:
            return None
        codes = records.get(first, self.bits)
        return (codes if rows is None else codes[rows]) >= self.cells

    def count(self, codes: Codes, place: int, cells: Cells) -> None:
        """Add the codes of one unit to its counters.

        Parameters
        ----------
        codes
            The codes, as `get` returns them.
        place
            Where the counters of the unit begin.
        cells
            The counters of a part, which are changed.

        Examples
        --------
        >>> from fedldp.coders import RandomizedResponse
        >>> coder, cells = RandomizedResponse.of(epsilon=1.0, categories=4), np.zeros(8, np.int64)
        >>> coder.count(np.array([3, 1, 3]), 4, cells)
        >>> cells
        array([0, 0, 0, 0, 0, 1, 0, 2])
        """
        own, codes = cells[place : place + self.cells], codes.astype(np.intp, copy=False)
        if self.cells > _FEW and codes.size < self.cells:
            np.add.at(own, codes, 1)
        else:
            own += np.bincount(codes, minlength=self.cells)

    def count_at(self, codes: Codes, places: Integers, cells: Cells) -> None:
        """Add codes of several units to their counters.

        Parameters
        ----------
        codes
            The codes, as `get` returns them.
        places
            For each code, where the counters of its unit begin. It may be overwritten.
        cells
            The counters of a part, which are changed.

        Examples
        --------
        >>> from fedldp.coders import RandomizedResponse
        >>> coder, cells = RandomizedResponse.of(epsilon=1.0, categories=4), np.zeros(8, np.int64)
        >>> coder.count_at(np.array([3, 1, 3]), np.array([0, 4, 4]), cells)
        >>> cells
        array([0, 0, 0, 1, 0, 1, 0, 1])
        """
        if not self.one_counter_per_code:
            for place in np.unique(places):
                self.count(codes[places == place], int(place), cells)
            return
        start, stop = 0, cells.size
        if cells.size > _FEW:
            start, stop = int(places.min()), int(places.max()) + self.cells
            places -= start
        places += codes.astype(np.int64, copy=False)
        if places.size < stop - start - _FEW:
            np.add.at(cells[start:stop], places, 1)
        else:
            cells[start:stop] += np.bincount(places, minlength=stop - start)

    def answers(self, cells: Cells) -> Cells:
        """Return how many answers counters hold.

        Parameters
        ----------
        cells
            Counters of units, along the last axis.

        Returns
        -------
        array
            The number of answers of each unit.

        Examples
        --------
        >>> from fedldp.coders import RandomizedResponse
        >>> RandomizedResponse.of(epsilon=1.0, categories=4).answers(np.array([[5, 2, 2, 1]]))
        array([10])
        """
        return cast(Cells, cells.sum(axis=-1))

    def invalid(self, cells: Cells, answers: Cells) -> str | None:
        """Return why counters cannot be those of a number of answers, or None if they can.

        Parameters
        ----------
        cells
            Counters, a row for each unit.
        answers
            The number of answers of each unit.

        Returns
        -------
        str or None
            The reason, or None if the counters are possible.

        Examples
        --------
        >>> from fedldp.coders import RandomizedResponse
        >>> coder = RandomizedResponse.of(epsilon=1.0, categories=4)
        >>> coder.invalid(np.array([[5, 2, 2, -1]]), np.array([8]))
        'a counter is negative, or larger than the number of answers'
        """
        if np.any(cells < 0) or np.any(cells > answers[:, None]):
            return "a counter is negative, or larger than the number of answers"
        return None

    # What the counters say. Units are along the axis before the last, counters along the last.

    @abstractmethod
    def sums(self, cells: Cells) -> tuple[Floats, Floats]:
        """Return, for each estimate, how many answers there are and the sum of their values.

        Parameters
        ----------
        cells
            Counters, a row for each unit.

        Returns
        -------
        tuple of array
            The numbers of answers and the sums.

        Examples
        --------
        >>> import fedldp
        >>> answers, sums = fedldp.mechanisms.Duchi(epsilon=1.0).channel().sums(np.array([[3, 7]]))
        >>> answers, sums.round(3)
        (array([10.]), array([8.656]))
        """

    @abstractmethod
    def squares(self, cells: Cells) -> Floats:
        """Return, for each estimate, the sum of the squares of the values of all answers.

        Parameters
        ----------
        cells
            Counters, a row for each unit.

        Returns
        -------
        array
            The sums of squares.

        Examples
        --------
        >>> import fedldp
        >>> fedldp.mechanisms.Duchi(epsilon=1.0).channel().squares(np.array([[3, 7]])).round(2)
        array([46.83])
        """

    @abstractmethod
    def moments(self, cells: Cells) -> Moments:
        """Return the moments of the answers about each estimate.

        Parameters
        ----------
        cells
            Counters, a row for each unit.

        Returns
        -------
        Moments
            The numbers from which estimates and their errors follow.

        Examples
        --------
        >>> import fedldp
        >>> fedldp.mechanisms.Duchi(epsilon=1.0).channel().moments(np.array([[3, 7]])).mean.round(3)
        array([0.866])
        """

    @abstractmethod
    def beyond(self, m: Floats, mean: Floats) -> tuple[Floats, Floats] | None:
        """Bound the probability that honest answers have a mean as high, or as low, as given.

        The bound holds whatever the data are.

        Parameters
        ----------
        m
            The numbers of answers.
        mean
            The means of the answers.

        Returns
        -------
        tuple of array, or None
            A bound for each mean from above and from below, or None if the law is unknown.

        Examples
        --------
        >>> import fedldp
        >>> channel = fedldp.mechanisms.Duchi(epsilon=1.0).channel()
        >>> high, low = channel.beyond(np.array([1000.0]), np.array([1.5]))
        >>> high < 1e-10, low
        (array([ True]), array([1.]))
        """

    def checks(self, cells: Cells) -> list[Check]:
        """Return what else is known about honest answers.

        Parameters
        ----------
        cells
            The counters of a single unit, in one row.

        Returns
        -------
        list of Check
            Numbers with the largest probability that honest vehicles cause them; most coders have
            none.

        Examples
        --------
        >>> import fedldp
        >>> fedldp.mechanisms.Duchi(epsilon=1.0).channel().checks(np.array([[3, 7]]))
        []
        """
        return []

    @property
    @abstractmethod
    def noise(self) -> float:
        """The variance of an answer about one estimate, as far as it is known without the data."""

    def noise_at(self, length: Any) -> Any:
        """Return the noise of an answer about a number near 0 of a vector.

        Parameters
        ----------
        length
            The length of the vector, as a share of its bound; or the mean length of many. Only a
            `VectorCoder` depends on it.

        Returns
        -------
        float or array
            The variance of the answer.

        Examples
        --------
        >>> import fedldp
        >>> channel = fedldp.mechanisms.Duchi(epsilon=1.0).channel()
        >>> channel.noise_at(0.5) == channel.noise
        True
        """
        return self.noise

    def _covariance(self, mean: Floats) -> Covariance | None:
        """Return the covariance of the answers about two estimates, where it is known."""
        return None

    @property
    @abstractmethod
    def reach(self) -> float:
        """The largest distance of one answer from an honest mean."""

    @abstractmethod
    def assumed(self, inputs: Floats | str, weight: float) -> Assumed:
        """Return what to expect of a report: its noise, and the mean of x and of x^2.

        Parameters
        ----------
        inputs
            Public inputs, a row for each vehicle, or one of `ASSUMPTIONS`.
        weight
            The worst case maximises the noise plus `weight` times x^2.

        Returns
        -------
        tuple
            The mean noise, the mean of x and the mean of x^2.

        Examples
        --------
        >>> from fedldp.mechanisms import Duchi
        >>> noise, mean, square = Duchi(epsilon=1.0).channel().assumed("uniform", 1.0)
        >>> round(float(noise), 3), mean, round(square, 3)
        (4.349, 0.0, 0.333)
        """


class ByLaw(Coder):
    """A coder whose answers have few values, each with a known probability: see `Law`.

    Examples
    --------
    >>> import fedldp
    >>> fedldp.mechanisms.Duchi(epsilon=1.0).channel().law.values.round(3)
    array([-2.164,  2.164])
    """

    @cached_property
    @abstractmethod
    def law(self) -> Law:
        """The probability of each value as the answer to a question."""

    @abstractmethod
    def histograms(self, cells: Cells) -> Cells:
        """Return how often each value of the law occurred.

        Parameters
        ----------
        cells
            Counters, a row for each unit.

        Returns
        -------
        array
            A row for each estimate, with a count for each value of the law.

        Examples
        --------
        >>> from fedldp.coders import RandomizedResponse
        >>> RandomizedResponse.of(epsilon=1.0, categories=2).histograms(np.array([[3, 7]]))
        array([[7, 3],
               [3, 7]])
        """

    @cached_property
    def _counted(self) -> Floats:
        """What each count of a value adds to the number of answers and to their sum."""
        values = self.law.values
        return np.stack([np.ones(values.size), values], axis=1)

    def sums(self, cells: Cells) -> tuple[Floats, Floats]:
        found = self.histograms(cells) @ self._counted
        return found[..., 0], found[..., 1]

    def squares(self, cells: Cells) -> Floats:
        found: Floats = self.histograms(cells) @ self.law.values**2
        return found

    def moments(self, cells: Cells) -> Moments:
        found = Moments.by_law(self.law, self.histograms(cells))
        return replace(found, covariance_at=self._covariance)

    def beyond(self, m: Floats, mean: Floats) -> tuple[Floats, Floats] | None:
        return self.law.beyond(m, mean)

    @property
    def reach(self) -> float:
        values, (low, high) = self.law.values, self.ends
        return float(max(values[-1] - low, high - values[0]))


class ForNumbers(Coder):
    """A coder of numbers in [-1, 1].

    Examples
    --------
    >>> import fedldp
    >>> fedldp.mechanisms.Duchi(epsilon=1.0).channel().inputs
    (-1.0, 1.0)
    """

    inputs_dtype = np.float64
    inputs = (-1.0, 1.0)
    ends = (-1.0, 1.0)

    @property
    def estimates(self) -> int:
        return self.coordinates

    @abstractmethod
    def variance(self, x: npt.ArrayLike) -> Any:
        """Return the variance of the decoded value of one number.

        Parameters
        ----------
        x
            A number in [-1, 1], or an array of such numbers.

        Returns
        -------
        float or array
            The variance for each x, the rounding of x included.

        Raises
        ------
        DomainError
            If x is not in [-1, 1].

        Examples
        --------
        >>> import fedldp
        >>> fedldp.mechanisms.Duchi(epsilon=1.0).channel().variance([0.0, 1.0]).round(3)
        array([4.683, 3.683])
        """

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
    """A coder of categories, each given by its number.

    Attributes
    ----------
    categories
        The number of categories.
    p, q
        The probabilities that a report supports the true category, and any other one.

    Examples
    --------
    >>> from fedldp.coders import RandomizedResponse
    >>> RandomizedResponse.of(epsilon=1.0, categories=4).inputs
    (0.0, 3.0)
    """

    inputs_dtype = np.int64
    ends = (0.0, 1.0)

    categories: int

    def _covariance(self, mean: Floats) -> Covariance:
        return partial(self.covariance, np.clip(mean, 0.0, 1.0))

    @property
    @abstractmethod
    def p(self) -> float:
        """The probability that a report supports the true category."""

    @property
    @abstractmethod
    def q(self) -> float:
        """The probability that a report supports any other category."""

    @property
    def inputs(self) -> tuple[float, float]:
        return 0.0, float(self.categories - 1)

    @property
    def estimates(self) -> int:
        return self.categories

    @property
    @abstractmethod
    def variance(self) -> float:
        """The sum of the variances of all frequencies that one report estimates."""

    @property
    def noise(self) -> float:
        return self.variance / self.categories

    @abstractmethod
    def both(self, frequencies: Floats, first: Integers, second: Integers) -> Floats:
        """Return the probability that a report supports two different categories at once.

        A report supports a category if it counts for the category's frequency.

        Parameters
        ----------
        frequencies
            The frequency of each category.
        first, second
            The numbers of the categories of each pair: arrays that broadcast.

        Returns
        -------
        array of float
            The probability for each pair.

        Examples
        --------
        >>> from fedldp.coders import UnaryEncoding
        >>> shares, first, second = np.full(3, 1 / 3), np.array([0]), np.array([1, 2])
        >>> UnaryEncoding.of(epsilon=1.0, categories=3).both(shares, first, second).round(3)
        array([0.114, 0.114])
        """

    def covariance(self, frequencies: Floats, first: Integers, second: Integers) -> Floats:
        """Return the covariance of what one report says about the frequencies of two categories.

        Its vehicle is drawn from a population with the given frequencies.

        Parameters
        ----------
        frequencies
            The frequency of each category.
        first, second
            The numbers of the categories of each pair: arrays that broadcast.

        Returns
        -------
        array of float
            The covariance for each pair; the variance, if a category is paired with itself.

        Examples
        --------
        >>> from fedldp.coders import RandomizedResponse
        >>> coder, pair = RandomizedResponse.of(epsilon=1.0, categories=3), np.arange(2)
        >>> coder.covariance(np.full(3, 1 / 3), pair[:, None], pair).round(2)
        array([[ 1.68, -0.84],
               [-0.84,  1.68]])
        """
        one, other = frequencies[first], frequencies[second]
        supported = [self.q + (self.p - self.q) * each for each in (one, other)]
        both = np.where(first == second, supported[0], self.both(frequencies, first, second))
        found: Floats = (both - supported[0] * supported[1]) / (self.p - self.q) ** 2
        return found

    def assumed(self, inputs: Floats | str, weight: float) -> Assumed:
        shares = np.full(self.categories, 1 / self.categories)  # the worst case too
        if not isinstance(inputs, str):
            # A position between two categories is rounded to one of them.
            lower = np.floor(inputs.reshape(-1)).astype(np.int64)
            upper = inputs.reshape(-1) - lower
            shares = np.bincount(lower, 1 - upper, minlength=self.categories + 1)
            shares += np.bincount(lower + 1, upper, minlength=self.categories + 1)
            shares = shares[:-1] / len(inputs)
        return self.noise, shares, shares


class VectorCoder(ForNumbers):
    """A coder of one vector whose length is at most 1, all numbers with one code.

    Its answers may also reveal how long the vectors are, and its noise depends on their length.

    Examples
    --------
    >>> from fedldp.coders import DirectionsCoder
    >>> issubclass(DirectionsCoder, VectorCoder)
    True
    """

    joint = True
    one_counter_per_code = False

    @abstractmethod
    def nearby(self, inputs: Vectors) -> Self:
        """Return an equal coder that counts on the device where some inputs are.

        Parameters
        ----------
        inputs
            Inputs, as `encode` takes them.

        Returns
        -------
        Coder
            An equal coder.

        Examples
        --------
        >>> from fedldp._internal.vectors import DenseRows
        >>> from fedldp.coders import DirectionsCoder
        >>> coder = DirectionsCoder.of(epsilon=2.0, d=3)
        >>> coder.nearby(DenseRows(np.zeros((1, 3)))) == coder
        True
        """

    @abstractmethod
    def mean_length(self, cells: Cells) -> Floats | None:
        """Return the mean length of the vectors, if the counters reveal it.

        Parameters
        ----------
        cells
            The counters of one unit, in a row for each replica.

        Returns
        -------
        array of float or None
            The mean length of each replica, from 0 to 1, or None if the coder does not reveal it.

        Examples
        --------
        >>> from fedldp.coders import DirectionsCoder
        >>> coder = DirectionsCoder.of(epsilon=4.0, d=3, null=False)
        >>> coder.mean_length(np.ones((1, coder.cells), np.int64)) is None
        True
        """


class AsBits(Coder):
    """A coder whose code is a row of bits, each of which is counted.

    Examples
    --------
    >>> import fedldp
    >>> from fedldp.coders import UnaryEncoding
    >>> UnaryEncoding.of(epsilon=1.0, categories=4).encode([3], fedldp.source(7)).shape
    (1, 4)
    """

    one_counter_per_code = False

    def put(self, codes: Codes, records: Records, first: int, rows: Integers | None = None) -> None:
        records.put_bits(first, codes, rows)

    def get(self, records: Records, first: int, rows: Integers | None = None) -> Codes:
        codes = records.get_bits(first, self.bits)
        return codes if rows is None else codes[rows]

    def unknown(self, records: Records, first: int, rows: Integers | None = None) -> None:
        return None  # every row of bits is a code


def epsilon_of(document: Document) -> float:
    """Return the epsilon in a document; errors become `WireError` when a plan is read."""
    text = document["epsilon"]
    if not isinstance(text, str):
        raise TypeError("epsilon must be a number written as a text")
    return float(text)
