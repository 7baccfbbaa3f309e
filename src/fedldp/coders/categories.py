"""Categories: k-ary randomized response and unary encoding, with integers as their odds.

Both give each category an indicator, which is 1 with probability p for the true category and with
probability q for any other. If c of n reports have it, (c/n - q) / (p - q) estimates the
category's frequency without bias.
"""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal import validation
from fedldp._internal.validation import Floats, Integers
from fedldp.coders.base import (
    AsBits,
    ByLaw,
    Cells,
    Check,
    Codes,
    Document,
    ForCategories,
    epsilon_of,
)
from fedldp.coders.laws import Law
from fedldp.coders.tables import ROW_TOTAL_BITS
from fedldp.errors import DomainError, PrivacyError
from fedldp.randomness import Source, check_source

__all__ = ["RandomizedResponse", "UnaryEncoding", "better", "cut", "project"]

_CHERNOFF_EXPONENTS = np.geomspace(1e-6, 10.0, 300)  # any of them gives a valid bound
CHUNK = 1 << 15  # words drawn at a time: a few arrays of this size stay in the cache


class BySupport(ByLaw, ForCategories):
    """A coder of categories whose every report supports some of them, the true one more often.

    Examples
    --------
    >>> coder = RandomizedResponse.of(epsilon=1.0, categories=4)
    >>> own, other, total = coder.support
    >>> coder.p == own / total, coder.q == other / total
    (True, True)
    """

    @property
    @abstractmethod
    def support(self) -> tuple[int, int, int]:
        """The odds that a report supports the true category and any other one, and all odds."""

    @abstractmethod
    def supports(self, cells: Cells) -> Cells:
        """Return how many reports support each category.

        Parameters
        ----------
        cells
            Counters of units, along the last axis.

        Returns
        -------
        array
            For each unit a number for each category.

        Examples
        --------
        >>> UnaryEncoding.of(epsilon=1.0, categories=2).supports(np.array([400, 300, 1000]))
        array([400, 300])
        """

    @property
    def p(self) -> float:
        own, _, total = self.support
        return own / total

    @property
    def q(self) -> float:
        _, other, total = self.support
        return other / total

    def most(self, weights: Floats) -> float:
        """Return the most that one report can add to a weighted sum of frequencies.

        This is for reports that can support any categories together; for others it is a bound.

        Parameters
        ----------
        weights
            A weight for some of the categories, 0 for the others.

        Returns
        -------
        float
            The most, times the number of reports.

        Examples
        --------
        >>> weights = np.array([1.0, -1.0])
        >>> round(RandomizedResponse.of(1.0, 4).most(weights), 2)
        3.33
        >>> round(UnaryEncoding.of(1.0, 4).most(weights), 2)
        4.33
        """
        each = np.maximum(weights * (1 - self.q), -weights * self.q)
        return float(each.sum() / (self.p - self.q))

    @property
    def variance(self) -> float:
        return float(indicator_variance(*self.support, self.categories))

    @cached_property
    def law(self) -> Law:
        own, other, total = self.support
        return Law.of_indicator(self.p, self.q, (own - other) / total)

    def histograms(self, cells: Cells) -> Cells:
        ones = self.supports(cells)
        rows = np.stack([self.answers(cells)[..., None] - ones, ones], axis=-1)
        return rows.reshape(*rows.shape[:-3], -1, 2)

    def frequencies(self, counts: npt.ArrayLike) -> tuple[int, Floats]:
        """Return how many reports were counted, and the unbiased frequency of each category.

        Parameters
        ----------
        counts
            The counters of a tally: how often each code was sent or, in unary codes, how often each
            category had a 1, and the number of reports.

        Returns
        -------
        tuple
            The number of reports, and an array of frequencies.

        Raises
        ------
        DomainError
            If the counts are not integers, one for each counter.

        Examples
        --------
        >>> reports, frequencies = RandomizedResponse.of(1.0, 4).frequencies([500, 200, 200, 100])
        >>> reports, frequencies.round(3)
        (1000, array([ 1.082,  0.084,  0.084, -0.249]))
        >>> reports, frequencies = UnaryEncoding.of(1.0, 3).frequencies([400, 300, 250, 1000])
        >>> reports, frequencies.round(3)
        (1000, array([ 0.567,  0.134, -0.082]))
        """
        cells = np.asarray(counts)
        if cells.dtype.kind not in "iu" or cells.shape != (self.cells,):
            raise DomainError(
                f"counts must be {self.cells} integers; got {cells.dtype}, {cells.shape}."
            )
        reports, (own, other, total) = int(self.answers(cells)), self.support
        if not reports:
            return 0, np.full(self.categories, np.nan)
        # The difference of two odds is taken exactly.
        return reports, (self.supports(cells) / reports - other / total) / ((own - other) / total)


@final
@dataclass(frozen=True)
class RandomizedResponse(BySupport):
    """Send the true category with the odds `same`, each of the others with the odds `other`.

    `RandomizedResponse.of` computes the odds.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 16.
    categories
        The number of categories.
    same
        The odds of the true category.
    other
        The odds of each other category. All odds together are a power of two.

    Raises
    ------
    PrivacyError
        If the odds are not epsilon-private.
    DomainError
        If a parameter is out of range.

    Examples
    --------
    >>> import fedldp
    >>> coder = RandomizedResponse.of(epsilon=1.0, categories=4)
    >>> round(coder.p, 3), round(coder.q, 3), coder.bits
    (0.475, 0.175, 2)
    >>> coder.encode([0, 1, 2, 3, 3, 3], fedldp.source(7))
    array([2, 1, 2, 3, 2, 3], dtype=uint8)
    >>> reports, frequencies = coder.frequencies([500, 200, 200, 100])
    >>> reports, frequencies.round(3)
    (1000, array([ 1.082,  0.084,  0.084, -0.249]))
    """

    kind = "response"

    epsilon: float
    categories: int
    same: int
    other: int

    def __post_init__(self) -> None:
        _check(self, "categories", "same", "other")
        epsilon = vehicle.exact(self.epsilon)
        reason = vehicle.response_fault(self.same, self.other, self.categories, epsilon)
        refuse(epsilon, reason, useless=self.same == self.other)

    @classmethod
    def of(cls, epsilon: float, categories: int) -> "RandomizedResponse":
        """Return the coder with the least error, rounded towards privacy.

        Parameters
        ----------
        epsilon
            The privacy budget, from 0.001 to 16.
        categories
            The number of categories.

        Returns
        -------
        RandomizedResponse
            The coder.

        Examples
        --------
        >>> RandomizedResponse.of(epsilon=1.0, categories=4).bits
        2
        """
        epsilon, categories = validation.epsilon(epsilon), _categories(categories)
        return cls(epsilon, categories, *response_odds(epsilon, categories))

    @property
    def total(self) -> int:
        """The sum of all odds: a power of two."""
        return self.same + (self.categories - 1) * self.other

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of two probabilities of a category: at most e^epsilon."""
        return Fraction(self.same, self.other)

    @property
    def likeliest(self) -> float:
        """The largest probability that a category is sent with."""
        return self.p

    @property
    def support(self) -> tuple[int, int, int]:
        return self.same, self.other, self.total

    def supports(self, cells: Cells) -> Cells:
        return cells

    def most(self, weights: Floats) -> float:
        # One category is sent, and with others than these the weights are 0.
        best = weights.max() if weights.size == self.categories else max(weights.max(), 0.0)
        return float((best - self.q * weights.sum()) / (self.p - self.q))

    @property
    def bits(self) -> int:
        """How many bits a code takes."""
        return vehicle.column_bits(self.categories)

    @property
    def cells(self) -> int:
        """How many counters a server keeps: one for each category."""
        return self.categories

    def both(self, frequencies: Floats, first: Integers, second: Integers) -> Floats:
        return np.zeros(np.broadcast_shapes(first.shape, second.shape))  # one category is sent

    def encode(self, categories: npt.ArrayLike, source: Source) -> Any:
        """Return the category to send for each true one, with one random word for each.

        Parameters
        ----------
        categories
            The number of a category, or an array of such numbers.
        source
            The random source, from `fedldp.source`.

        Returns
        -------
        int or array
            The categories to send, in the same shape.

        Raises
        ------
        DomainError
            If a category is unknown, or source is not a `Source`.

        Examples
        --------
        >>> import fedldp
        >>> RandomizedResponse.of(1.0, 4).encode([0, 1, 2, 3, 3, 3], fedldp.source(7))
        array([2, 1, 2, 3, 2, 3], dtype=uint8)
        """
        own = own_categories(categories, self.categories, source)
        dtype = np.uint8 if self.bits <= 8 else np.uint16
        codes = np.empty(own.shape, dtype)
        flat, sent = own.reshape(-1), codes.reshape(-1)
        for start in range(0, flat.size, CHUNK):
            part = slice(start, start + CHUNK)
            mine = flat[part].astype(dtype)
            sent[part] = respond(mine, self.same, self.other, self.total, source)
        return codes[()]

    def to_document(self) -> Document:
        return {
            "kind": self.kind,
            "epsilon": str(self.epsilon),
            "categories": self.categories,
            "same": vehicle.json_integer(self.same),
            "other": vehicle.json_integer(self.other),
        }

    @classmethod
    def from_document(cls, document: Document, coordinates: int = 1) -> "RandomizedResponse":
        return cls(**entries_of(document))


@final
@dataclass(frozen=True)
class UnaryEncoding(AsBits, BySupport):
    """Send a bit for each category: a fair coin for the true one, absent / total for any other.

    It is known as OUE. For many categories it has less error than randomized response, and more
    bits. `UnaryEncoding.of` computes the odds.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 16.
    categories
        The number of categories.
    total
        The denominator of all probabilities, a power of two.
    absent
        The odds, out of total, of a 1 for a category that is not the true one.

    Raises
    ------
    PrivacyError
        If the odds are not epsilon-private.
    DomainError
        If a parameter is out of range.

    Examples
    --------
    >>> import fedldp
    >>> coder = UnaryEncoding.of(epsilon=1.0, categories=4)
    >>> coder.p, round(coder.q, 3), coder.bits
    (0.5, 0.269, 4)
    >>> coder.encode([0, 3], fedldp.source(7))
    array([[0, 0, 0, 1],
           [0, 1, 0, 1]], dtype=uint8)
    """

    kind = "unary"

    epsilon: float
    categories: int
    total: int
    absent: int

    def __post_init__(self) -> None:
        _check(self, "categories", "total", "absent")
        epsilon = vehicle.exact(self.epsilon)
        reason = vehicle.unary_fault(self.absent, self.total, epsilon)
        refuse(epsilon, reason, useless=2 * self.absent == self.total)

    @classmethod
    def of(cls, epsilon: float, categories: int) -> "UnaryEncoding":
        """Return the coder with the least error, rounded towards privacy.

        Parameters
        ----------
        epsilon
            The privacy budget, from 0.001 to 16.
        categories
            The number of categories.

        Returns
        -------
        UnaryEncoding
            The coder.

        Examples
        --------
        >>> UnaryEncoding.of(epsilon=1.0, categories=4).bits
        4
        """
        epsilon, categories = validation.epsilon(epsilon), _categories(categories)
        most = vehicle.exp_below(vehicle.exact(epsilon))
        return cls(
            epsilon, categories, 1 << ROW_TOTAL_BITS, -(-(1 << ROW_TOTAL_BITS) // (most + 1))
        )

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of two probabilities of all bits together: at most e^epsilon."""
        return Fraction(self.total - self.absent, self.absent)

    @property
    def likeliest(self) -> float:
        """The largest probability of a row of bits: the bit of the true category is 0 or 1."""
        return self.p * (1 - self.q) ** (self.categories - 1)

    @property
    def support(self) -> tuple[int, int, int]:
        return self.total // 2, self.absent, self.total

    def supports(self, cells: Cells) -> Cells:
        return cells[..., :-1]

    @property
    def bits(self) -> int:
        """How many bits a code takes."""
        return self.categories

    @property
    def cells(self) -> int:
        """How many counters a server keeps: one for each category, and one for the reports."""
        return self.categories + 1

    def both(self, frequencies: Floats, first: Integers, second: Integers) -> Floats:
        own = frequencies[first] + frequencies[second]
        found: Floats = own * self.p * self.q + (1 - own) * self.q**2
        return found

    def count(self, codes: Codes, place: int, cells: Cells) -> None:
        cells[place : place + self.categories] += codes.sum(axis=0, dtype=np.int64)
        cells[place + self.categories] += len(codes)

    def answers(self, cells: Cells) -> Cells:
        return cells[..., -1]

    def checks(self, cells: Cells) -> list[Check]:
        """Return how likely the number of ones is, which does not depend on the data.

        Parameters
        ----------
        cells
            The counters of a single unit, in one row.

        Returns
        -------
        list of Check
            The number of ones, as too few and as too many.

        Examples
        --------
        >>> [few, many] = UnaryEncoding.of(4.0, 4).checks(np.array([[1000, 0, 0, 0, 1000]]))
        >>> bool(few.p_value > 1e-6), bool(many.p_value < 1e-40)
        (True, True)
        """
        m, ones = int(cells[0, -1]), int(cells[0, :-1].sum())
        if not m:
            return []
        expected = m * (self.p + (self.categories - 1) * self.q)

        def bound(exponents: Floats) -> float:
            """Bound the probability by Chernoff's inequality."""
            raised = np.expm1(exponents)
            log_ratios = np.log1p(self.p * raised) + (self.categories - 1) * np.log1p(
                self.q * raised
            )
            return float(np.exp(min(0.0, np.min(m * log_ratios - exponents * ones))))

        kind = "number of ones"
        return [Check(kind, ones, expected, bound(sign * _CHERNOFF_EXPONENTS)) for sign in (-1, 1)]

    def encode(self, categories: npt.ArrayLike, source: Source) -> npt.NDArray[np.uint8]:
        """Return the bits to send for each true category.

        Each bit takes one random word; the work is the same for every category.

        Parameters
        ----------
        categories
            The number of a category, or an array of such numbers.
        source
            The random source, from `fedldp.source`.

        Returns
        -------
        array
            The bits, along a new last axis.

        Raises
        ------
        DomainError
            If a category is unknown, or source is not a `Source`.

        Examples
        --------
        >>> import fedldp
        >>> UnaryEncoding.of(1.0, 4).encode(3, fedldp.source(7))
        array([0, 0, 0, 1], dtype=uint8)
        """
        own = own_categories(categories, self.categories, source)
        bits = np.empty((own.size, self.categories), np.bool_)
        flat = own.reshape(-1)
        threshold = np.uint64(self.absent << vehicle.WORD + 1 - self.total.bit_length())
        rows = max(1, CHUNK // self.categories)
        for start in range(0, flat.size, rows):
            part = slice(start, start + rows)
            words = source.words(bits[part].shape)
            np.less(words, threshold, out=bits[part])
            place = np.arange(len(words)), flat[part]
            bits[part][place] = words[place] < np.uint64(1 << vehicle.WORD - 1)
        return bits.view(np.uint8).reshape(*own.shape, self.categories)

    def to_document(self) -> Document:
        return {
            "kind": self.kind,
            "epsilon": str(self.epsilon),
            "categories": self.categories,
            "total": vehicle.json_integer(self.total),
            "absent": vehicle.json_integer(self.absent),
        }

    @classmethod
    def from_document(cls, document: Document, coordinates: int = 1) -> "UnaryEncoding":
        return cls(**entries_of(document))


def better(epsilon: float, categories: int) -> RandomizedResponse | UnaryEncoding:
    """Return the coder of categories that has less error.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 16.
    categories
        The number of categories.

    Returns
    -------
    RandomizedResponse or UnaryEncoding
        The better of the two.

    Examples
    --------
    >>> type(better(1.0, 4)).__name__, type(better(1.0, 40)).__name__
    ('RandomizedResponse', 'UnaryEncoding')
    """
    response = RandomizedResponse.of(epsilon, categories)
    unary = UnaryEncoding.of(epsilon, categories)
    return response if response.variance <= unary.variance else unary


def project(frequencies: npt.ArrayLike) -> Floats:
    """Return the closest frequencies that are not negative and add up to 1.

    Parameters
    ----------
    frequencies
        Estimated frequencies, some of which may be negative.

    Returns
    -------
    array of float
        The projected frequencies; NaN if one of them is NaN.

    Raises
    ------
    DomainError
        If the frequencies are not a list of numbers.

    Examples
    --------
    >>> project([0.7, 0.5, -0.1])
    array([0.6, 0.4, 0. ])
    """
    array = validation.reals(frequencies, "frequencies")
    if array.ndim != 1 or not array.size:
        raise DomainError(f"frequencies must be a list of numbers; got shape {array.shape}.")
    # All that stay positive are lowered by one amount. They are the j largest, for the largest j
    # with which the smallest of them does stay positive.
    falling = np.sort(array)[::-1]
    lowered = (np.cumsum(falling) - 1) / np.arange(1, array.size + 1)
    last = np.count_nonzero(falling > lowered) - 1
    projected: Floats = np.maximum(array - lowered[last], 0.0)
    return projected


def cut(frequencies: npt.ArrayLike) -> Floats:
    """Return frequencies with negative ones cut at 0, and scaled so that they add up to 1.

    Where noise hides most categories, this has less error than `project`: all of them become
    nearly equal. Where a few categories stand out, it has more.

    Parameters
    ----------
    frequencies
        Estimated frequencies, some of which may be negative.

    Returns
    -------
    array of float
        The scaled frequencies; NaN if one of them is NaN, and equal ones if none is positive.

    Raises
    ------
    DomainError
        If the frequencies are not a list of numbers.

    Examples
    --------
    >>> cut([0.75, 0.5, -0.25])
    array([0.6, 0.4, 0. ])
    """
    array = validation.reals(frequencies, "frequencies")
    if array.ndim != 1 or not array.size:
        raise DomainError(f"frequencies must be a list of numbers; got shape {array.shape}.")
    positive = np.maximum(array, 0.0)
    total = positive.sum()
    scaled: Floats = positive / total if total != 0 else np.full(array.size, 1 / array.size)
    return scaled


def _check(coder: RandomizedResponse | UnaryEncoding, *names: str) -> None:
    """Validate the numbers of a coder, and store them as plain ones."""
    object.__setattr__(coder, "epsilon", validation.epsilon(coder.epsilon))
    for name in names:
        object.__setattr__(coder, name, validation.whole(getattr(coder, name), name))
    _categories(coder.categories)


def _categories(number: int) -> int:
    categories = validation.whole(number, "categories")
    if not 2 <= categories <= vehicle.MOST_CATEGORIES:
        raise DomainError(
            f"there must be 2 to {vehicle.MOST_CATEGORIES} categories; got {categories}."
        )
    return categories


def refuse(epsilon: Fraction, reason: str | None, useless: bool) -> None:
    if reason is not None:
        raise PrivacyError(f"not private with epsilon = {float(epsilon):g}: {reason}.")
    if useless:
        raise DomainError("the odds are the same for all categories: a report would say nothing.")


def response_odds(epsilon: float, labels: int) -> tuple[int, int]:
    """Return the odds `same` and `other` of randomized response, rounded towards privacy."""
    most = vehicle.exp_below(vehicle.exact(epsilon))
    other = -(-(1 << ROW_TOTAL_BITS) // (most + labels - 1))
    return (1 << ROW_TOTAL_BITS) - (labels - 1) * other, other


def respond(own: Codes, same: int, other: int, total: int, source: Source) -> Codes:
    """Return the label to send for each true one by randomized response, with one word for each."""
    words = source.words(own.size)
    words >>= np.uint64(vehicle.WORD + 1 - total.bit_length())
    gap = np.uint64(same - other)
    kept = words < gap
    words -= gap
    words //= np.uint64(other)
    # Where the true label is kept, the quotient has no meaning: it wrapped around.
    return np.where(kept, own, words.astype(own.dtype))


def own_categories(categories: npt.ArrayLike, number: int, source: Source) -> npt.NDArray[Any]:
    """Return categories as an array, or refuse them."""
    try:
        array = np.asarray(categories)
    except ValueError:  # rows of different lengths
        array = np.array(None)
    check_source(source)
    if array.dtype.kind not in "iu" or (
        array.size and not 0 <= int(array.min()) <= int(array.max()) < number
    ):
        raise DomainError(f"categories must be integers from 0 to {number - 1}.")
    return array


def entries_of(document: Document) -> dict[str, Any]:
    """Return a coder's arguments; errors become `WireError` when a plan is read."""
    numbers = {name: number for name, number in document.items() if name not in ("kind", "epsilon")}
    found = {name: vehicle.integer(number) for name, number in numbers.items()}
    return {"epsilon": epsilon_of(document), **found}


def indicator_variance(own: int, other: int, total: int, categories: int) -> Fraction:
    """Return [p(1-p) + (a-1) q(1-q)] / (p-q)^2, whatever the data are."""
    spread = own * (total - own) + (categories - 1) * other * (total - other)
    return Fraction(spread, (own - other) ** 2)
