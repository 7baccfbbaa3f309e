"""Categories: k-ary randomised response and unary encoding, with integers as their odds.

Both give each category an indicator, which is 1 with probability p for the own category and with
probability q for any other. From n reports of which c have it, (c/n - q) / (p - q) estimates the
category's frequency without bias.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal import validation
from fedldp._internal.validation import Floats
from fedldp.coders.base import AsBits, ByLaw, Cells, Codes, Document, ForCategories, epsilon_of
from fedldp.coders.laws import Law
from fedldp.coders.tables import TOTAL_BITS
from fedldp.errors import DomainError, PrivacyError
from fedldp.randomness import Source

__all__ = ["RandomizedResponse", "UnaryEncoding", "better", "project"]

_CHUNK = 1 << 15  # words drawn at a time: a few arrays of this size stay in the cache


@final
@dataclass(frozen=True)
class RandomizedResponse(ByLaw, ForCategories):
    """Send the own category with the odds `same`, each of the others with the odds `other`.

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
        _refuse(epsilon, reason, useless=self.same == self.other)

    @classmethod
    def of(cls, epsilon: float, categories: int) -> "RandomizedResponse":
        """Return the one with the least error, rounded towards privacy."""
        epsilon, categories = validation.epsilon(epsilon), _categories(categories)
        most = vehicle.exp_below(vehicle.exact(epsilon))
        other = -(-(1 << TOTAL_BITS) // (most + categories - 1))
        return cls(epsilon, categories, (1 << TOTAL_BITS) - (categories - 1) * other, other)

    @property
    def total(self) -> int:
        """What all odds add up to: a power of two."""
        return self.same + (self.categories - 1) * self.other

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of two probabilities of a category: at most e^epsilon."""
        return Fraction(max(self.same, self.other), min(self.same, self.other))

    @property
    def p(self) -> float:
        """The probability of the own category."""
        return self.same / self.total

    @property
    def q(self) -> float:
        """The probability of each of the others."""
        return self.other / self.total

    @property
    def bits(self) -> int:
        """How many bits a code takes."""
        return vehicle.column_bits(self.categories)

    @property
    def cells(self) -> int:
        """How many counters a server keeps: one for each category."""
        return self.categories

    @property
    def variance(self) -> float:
        """The variances of all frequencies that one report estimates, added up."""
        return _variance(self.same, self.other, self.total, self.categories)

    @cached_property
    def law(self) -> Law:
        """With which probability a category's indicator gets which value as its answer."""
        return Law.of_indicator(self.p, self.q, (self.same - self.other) / self.total)

    def histograms(self, cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return how often each value of the law came, a row for each category."""
        others = cells.sum(axis=-1, keepdims=True) - cells
        return _by_category(np.stack([others, cells], axis=-1))

    def encode(self, categories: npt.ArrayLike, source: Source) -> Any:
        """Return the category to send for each one in an array; one random word for each."""
        own = _own(categories, self.categories, source)
        dtype = np.uint8 if self.bits <= 8 else np.uint16
        codes = np.empty(own.shape, dtype)
        flat, sent = own.reshape(-1), codes.reshape(-1)
        shift = np.uint64(vehicle.WORD + 1 - self.total.bit_length())
        gap, other = np.uint64(self.same - self.other), np.uint64(self.other)
        for start in range(0, flat.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            words = source.words(flat[part].size)
            words >>= shift
            kept = words < gap
            words -= gap
            words //= other
            # Where the own one is kept, the quotient means nothing: it wrapped around.
            sent[part] = np.where(kept, flat[part].astype(dtype), words.astype(dtype))
        return codes[()]

    def frequencies(self, counts: npt.ArrayLike) -> tuple[int, Floats]:
        """Return how many reports were counted, and each category's frequency, unbiased."""
        array = _counts(counts, self.cells)
        reports = int(array.sum())
        return reports, _unbiased(array, reports, self.other, self.same, self.total)

    def to_document(self) -> Document:
        """Return the table as it stands in a plan's JSON."""
        return {
            "kind": self.kind,
            "epsilon": str(self.epsilon),
            "categories": self.categories,
            "same": vehicle.json_integer(self.same),
            "other": vehicle.json_integer(self.other),
        }

    @classmethod
    def from_document(cls, document: Document, coordinates: int = 1) -> "RandomizedResponse":
        """Read what `to_document` gives, and check it again."""
        return cls(**_entries(document))


@final
@dataclass(frozen=True)
class UnaryEncoding(AsBits, ByLaw, ForCategories):
    """Send a bit for each category: a fair coin for the own one, absent / total for any other.

    Known as OUE. For many categories it has less error than randomised response, and more bits.

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
        _refuse(epsilon, reason, useless=2 * self.absent == self.total)

    @classmethod
    def of(cls, epsilon: float, categories: int) -> "UnaryEncoding":
        """Return the one with the least error, rounded towards privacy."""
        epsilon, categories = validation.epsilon(epsilon), _categories(categories)
        most = vehicle.exp_below(vehicle.exact(epsilon))
        return cls(epsilon, categories, 1 << TOTAL_BITS, -(-(1 << TOTAL_BITS) // (most + 1)))

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of two probabilities of all bits together: at most e^epsilon."""
        least, most = sorted((self.absent, self.total - self.absent))
        return Fraction(most, least)

    @property
    def p(self) -> float:
        """The probability of a 1 for the own category."""
        return 0.5

    @property
    def q(self) -> float:
        """The probability of a 1 for each of the others."""
        return self.absent / self.total

    @property
    def bits(self) -> int:
        """How many bits a code takes."""
        return self.categories

    @property
    def cells(self) -> int:
        """How many counters a server keeps: one for each category, and one for the reports."""
        return self.categories + 1

    @property
    def variance(self) -> float:
        """The variances of all frequencies that one report estimates, added up."""
        return _variance(self.total // 2, self.absent, self.total, self.categories)

    @cached_property
    def law(self) -> Law:
        """With which probability a category's indicator gets which value as its answer."""
        return Law.of_indicator(self.p, self.q, (self.total // 2 - self.absent) / self.total)

    def histograms(self, cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return how often each value of the law came, a row for each category."""
        ones, reports = cells[..., :-1], cells[..., -1:]
        return _by_category(np.stack([reports - ones, ones], axis=-1))

    def count(self, codes: Codes, place: int, cells: Cells) -> None:
        """Add bits to the counters of one unit, the last of which counts the answers."""
        cells[place : place + self.categories] += codes.sum(axis=0, dtype=np.int64)
        cells[place + self.categories] += len(codes)

    def answers(self, cells: Cells) -> Cells:
        """Return how many answers the counters along the last axis hold."""
        return cells[..., -1]

    def encode(self, categories: npt.ArrayLike, source: Source) -> npt.NDArray[np.uint8]:
        """Return the bits to send for each category, along a new last axis.

        Each bit takes one random word; the work is the same for every category.
        """
        own = _own(categories, self.categories, source)
        bits = np.empty((own.size, self.categories), np.bool_)
        flat = own.reshape(-1)
        threshold = np.uint64(self.absent << vehicle.WORD + 1 - self.total.bit_length())
        rows = max(1, _CHUNK // self.categories)
        for start in range(0, flat.size, rows):
            part = slice(start, start + rows)
            words = source.words(bits[part].shape)
            np.less(words, threshold, out=bits[part])
            place = np.arange(len(words)), flat[part]
            bits[part][place] = words[place] < np.uint64(1 << vehicle.WORD - 1)
        return bits.view(np.uint8).reshape(*own.shape, self.categories)

    def frequencies(self, counts: npt.ArrayLike) -> tuple[int, Floats]:
        """Return how many reports were counted, and each category's frequency, unbiased."""
        array = _counts(counts, self.cells)
        reports = int(array[-1])
        return reports, _unbiased(array[:-1], reports, self.absent, self.total // 2, self.total)

    def to_document(self) -> Document:
        """Return the table as it stands in a plan's JSON."""
        return {
            "kind": self.kind,
            "epsilon": str(self.epsilon),
            "categories": self.categories,
            "total": vehicle.json_integer(self.total),
            "absent": vehicle.json_integer(self.absent),
        }

    @classmethod
    def from_document(cls, document: Document, coordinates: int = 1) -> "UnaryEncoding":
        """Read what `to_document` gives, and check it again."""
        return cls(**_entries(document))


def better(epsilon: float, categories: int) -> RandomizedResponse | UnaryEncoding:
    """Return the one of the two that has less error.

    >>> type(better(1.0, 4)).__name__, type(better(1.0, 40)).__name__
    ('RandomizedResponse', 'UnaryEncoding')
    """
    response = RandomizedResponse.of(epsilon, categories)
    unary = UnaryEncoding.of(epsilon, categories)
    return response if response.variance <= unary.variance else unary


def project(frequencies: npt.ArrayLike) -> Floats:
    """Return the closest frequencies that are not negative and add up to 1; of NaN, NaN.

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


def _check(coder: RandomizedResponse | UnaryEncoding, *names: str) -> None:
    """Give a coder plain numbers, or refuse what are none."""
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


def _refuse(epsilon: Fraction, reason: str | None, useless: bool) -> None:
    if reason is not None:
        raise PrivacyError(f"not private with epsilon = {float(epsilon):g}: {reason}.")
    if useless:
        raise DomainError("the odds are the same for all categories: a report would say nothing.")


def _own(categories: npt.ArrayLike, number: int, source: Source) -> npt.NDArray[Any]:
    """Return categories as an array, or refuse them."""
    try:
        array = np.asarray(categories)
    except ValueError:  # rows of different lengths
        array = np.array(None)
    if not isinstance(source, Source):
        raise DomainError(f"source must be a Source: pass fedldp.source(); got {source!r}.")
    if array.dtype.kind not in "iu" or (
        array.size and not 0 <= int(array.min()) <= int(array.max()) < number
    ):
        raise DomainError(f"categories must be integers from 0 to {number - 1}.")
    return array


def _by_category(rows: Cells) -> Cells:
    """Return counts of 0 and 1, of units with some categories each, as a row for each category."""
    return rows.reshape(*rows.shape[:-3], -1, 2)


def _entries(document: Document) -> dict[str, Any]:
    """Return a coder's arguments; raises what reading a plan turns into `WireError`."""
    numbers = {name: number for name, number in document.items() if name not in ("kind", "epsilon")}
    found = {name: vehicle.integer(number) for name, number in numbers.items()}
    return {"epsilon": epsilon_of(document), **found}


def _counts(counts: npt.ArrayLike, cells: int) -> npt.NDArray[Any]:
    array = np.asarray(counts)
    if array.dtype.kind not in "iu" or array.shape != (cells,):
        raise DomainError(f"counts must be {cells} integers; got {array.dtype}, {array.shape}.")
    return array


def _unbiased(counts: npt.NDArray[Any], reports: int, other: int, own: int, total: int) -> Floats:
    """Return the frequencies; the difference of two odds is taken exactly."""
    if not reports:
        return np.full(counts.shape, np.nan)
    return (counts / reports - other / total) / ((own - other) / total)


def _variance(own: int, other: int, total: int, categories: int) -> float:
    """Return [p(1-p) + (a-1) q(1-q)] / (p-q)^2, whatever the data are."""
    spread = own * (total - own) + (categories - 1) * other * (total - other)
    return float(Fraction(spread, (own - other) ** 2))
