"""Lines: many categories in few bits.

The category c is written with t digits in a base q, which makes it a vector in Z_q^t. A vehicle
draws a direction r in Z_q^t without looking at its data, and sends it together with the product
<r, c> modulo q, one of q numbers, which goes through randomized response. A report so supports all
categories on one line (for t > 2: on one hyperplane): those whose product with r is the number that
was sent.

If q is prime, any two categories lie on a common line in equally many directions. So a category is
supported with probability p if it is the true one, and with the same lower probability if it is any
other one: a count of the reports that support it estimates its frequency, as for randomized
response. All these counts together are one Fourier transform over Z_q^t.

With t = 1 this is randomized response, with q = 2 Hadamard response. In between lies the q with the
least error: it is near e^epsilon + 1, as for local hashing, of which this is a form whose
collisions are the same for all pairs. The sum of all variances is 1.00 to 1.14 times that of subset
selection, the best possible.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, floor, log2
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal import validation
from fedldp._internal.science import scipy_module
from fedldp._internal.validation import Floats, Integers
from fedldp.coders.base import Cells, Codes, Document
from fedldp.coders.categories import (
    CHUNK,
    BySupport,
    RandomizedResponse,
    UnaryEncoding,
    entries_of,
    indicator_variance,
    own_categories,
    refuse,
    respond,
    response_odds,
)
from fedldp.errors import DomainError
from fedldp.randomness import Source

__all__ = ["Lines", "compact"]

MOST_BITS = 25  # of a code that the library chooses: a tally has at most 2^25 counters

_MOST_LISTED_SUPPORTS = 1 << 16  # larger numbers of supports are not added up one by one
_MOST_ERROR_FOR_FEWER_BITS = 1.1  # relative to the least error of a coder

_ENTRIES = ("categories", "base", "digits", "same", "other")


@final
@dataclass(frozen=True)
class Lines(BySupport):
    """Send a random direction, and the category's product with it by randomized response.

    `Lines.of` chooses the base and computes the odds.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 16.
    categories
        The number of categories, at most 2^20.
    base
        How many numbers a product can be: a prime number, or any number if there is one digit.
    digits
        How many digits a category has in this base.
    same
        The odds of the true product.
    other
        The odds of each other product. All odds together are a power of two.

    Raises
    ------
    PrivacyError
        If the odds are not epsilon-private, or the other numbers do not fit together.
    DomainError
        If a parameter is out of range.

    Examples
    --------
    >>> import fedldp
    >>> coder = Lines.of(epsilon=1.0, categories=3000)
    >>> coder.base, coder.digits, coder.bits
    (3, 8, 14)
    >>> cells = np.zeros(coder.cells, np.int64)
    >>> coder.count(coder.encode([7] * 100_000, fedldp.source(1)), 0, cells)
    >>> reports, frequencies = coder.frequencies(cells)
    >>> reports, frequencies[[7, 8]].round(1) + 0.0
    (100000, array([1., 0.]))
    """

    kind = "lines"
    plan_format = vehicle.PLAN_FORMAT_2

    epsilon: float
    categories: int
    base: int
    digits: int
    same: int
    other: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validation.epsilon(self.epsilon))
        for name in _ENTRIES:
            object.__setattr__(self, name, validation.whole(getattr(self, name), name))
        _check_categories(self.categories)
        epsilon = vehicle.exact(self.epsilon)
        reason = vehicle.lines_fault(self._lines, epsilon)
        refuse(epsilon, reason, useless=self.same == self.other)

    @classmethod
    def of(cls, epsilon: float, categories: int, *, bits: int | None = None) -> "Lines":
        """Return the lines with the least error, rounded towards privacy.

        Parameters
        ----------
        epsilon
            The privacy budget, from 0.001 to 16.
        categories
            The number of categories, at most 2^20.
        bits
            How many bits a code may take. By default two more than the number of a category takes,
            or 2.9 epsilon + 2 if that is more, and at most 25.

        Returns
        -------
        Lines
            The coder.

        Raises
        ------
        DomainError
            If a parameter is out of range, or the categories need more bits.

        Examples
        --------
        >>> Lines.of(epsilon=1.0, categories=100_000).bits
        19
        >>> Lines.of(epsilon=4.0, categories=16).digits
        1
        """
        epsilon = validation.epsilon(epsilon)
        categories = _check_categories(validation.whole(categories, "categories"))
        if bits is None:
            bits = min(max(ceil(log2(categories)) + 2, floor(2.9 * epsilon + 2)), MOST_BITS)
        base, digits = _best(epsilon, categories, validation.whole(bits, "bits"))
        return cls(epsilon, categories, base, digits, *response_odds(epsilon, base))

    @property
    def _lines(self) -> vehicle.Lines:
        return vehicle.Lines(*(getattr(self, name) for name in _ENTRIES))

    @cached_property
    def directions(self) -> int:
        """How many directions there are: (q^t - 1) / (q - 1), opposite ones counted once."""
        return self._lines.directions

    @property
    def total(self) -> int:
        """The sum of the odds of all products: a power of two."""
        return self.same + (self.base - 1) * self.other

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of two probabilities of a code: at most e^epsilon."""
        return Fraction(self.same, self.other)

    @property
    def likeliest(self) -> float:
        """The largest probability of a direction together with a product."""
        return self.same / self.total / self.directions

    @property
    def support(self) -> tuple[int, int, int]:
        return _support(self.base, self.digits, self.same, self.other)

    @property
    def bits(self) -> int:
        """How many bits a code takes: the direction and the product together."""
        return vehicle.column_bits(self.cells)

    @property
    def cells(self) -> int:
        """How many counters a server keeps: one for each direction and product."""
        return self.directions * self.base

    # The vehicle's half.

    def encode(self, categories: npt.ArrayLike, source: Source) -> Any:
        """Return the direction and the product to send for each true category.

        Each takes two random words.

        Parameters
        ----------
        categories
            The number of a category, or an array of such numbers.
        source
            The random source, from `fedldp.source`.

        Returns
        -------
        int or array
            For each category the number of the direction times the base, plus the product.

        Raises
        ------
        DomainError
            If a category is unknown, or source is not a `Source`.

        Examples
        --------
        >>> import fedldp
        >>> Lines.of(epsilon=1.0, categories=50).encode([7, 7, 8], fedldp.source(7))
        array([97, 61, 81], dtype=uint32)
        """
        own = own_categories(categories, self.categories, source)
        codes = np.empty(own.shape, np.uint32)
        flat, sent = own.reshape(-1), codes.reshape(-1)
        for start in range(0, flat.size, CHUNK):
            part = slice(start, start + CHUNK)
            directions = _share(source.words(flat[part].size), self.directions)
            products = self._products(directions, flat[part].astype(np.uint32))
            answers = respond(products, self.same, self.other, self.total, source)
            directions *= np.uint32(self.base)
            np.add(directions, answers, out=sent[part])
        return codes[()]

    def _products(self, directions: Codes, categories: Codes) -> Codes:
        """Return the product of each direction with a category, as `vehicle.line_product` does."""
        base = np.uint32(self.base)
        starts = [(self.base**s - 1) // (self.base - 1) for s in range(self.digits)]
        block = np.searchsorted(np.array(starts, np.uint32), directions, side="right") - 1
        # A direction as a number: its first digit is 1, and the digits after it count the block.
        first = [self.base**s - start for s, start in enumerate(starts)]
        numbers = directions + np.array(first, np.uint32)[block]
        products = np.zeros_like(directions)
        for _ in range(self.digits):
            numbers, factors = _split(numbers, base)
            categories, digits = _split(categories, base)
            factors *= digits
            products += factors
        return _split(products, base)[1]

    # The server's half.

    def supports(self, cells: Cells) -> Cells:
        """Return how many reports support each category: exact, mostly by a Fourier transform.

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
        >>> coder, cells = Lines.of(epsilon=1.0, categories=9), np.zeros(12, np.int64)
        >>> cells[0] = 5  # the first digit of the category is 0
        >>> coder.supports(cells)
        array([5, 0, 0, 5, 0, 0, 5, 0, 0])
        """
        if self.digits == 1:
            return cells[..., : self.categories]
        if self.categories * self.directions <= _MOST_LISTED_SUPPORTS:
            counts: Cells = cells[..., self._supporting].sum(axis=-1)
            return counts
        rows = cells.reshape(-1, self.cells)
        counted = np.empty((len(rows), self.categories), cells.dtype)
        for row, supports in zip(rows, counted, strict=True):
            supports[:] = np.rint(self._transform(row))
        return counted.reshape(*cells.shape[:-1], self.categories)

    @cached_property
    def _supporting(self) -> Codes:
        """For each category, the code of each direction that supports it."""
        directions = np.arange(self.directions, dtype=np.uint32)
        every = np.arange(self.categories, dtype=np.uint32)[:, None] + 0 * directions
        products = self._products(np.broadcast_to(directions, every.shape), every)
        return (directions * np.uint32(self.base) + products).astype(np.intp)

    def _transform(self, row: Cells) -> Floats:
        """Return the sum over all directions r of the counter of (r, <r, c>), for each c.

        Let h(r, y) be the counters, and H(r, k) their transform in y. The sum over r of
        h(r, <r, c>) is that over r and k of H(r, k) e^(2 pi i <k r, c> / q) / q. As k runs from 1
        to q - 1, k r runs through every vector v of Z_q^t but 0 exactly once: the sum is the
        inverse transform of F(k r) = H(r, k), in all t coordinates at once. Counters are real, so
        F(-v) is conjugate to F(v), and half of F is enough.
        """
        fft = scipy_module("fft")

        base, digits = self.base, self.digits
        lower, half = base ** (digits - 1), base // 2 + 1
        spectrum = fft.rfft(row.reshape(self.directions, base).astype(np.float64), axis=1)
        # Where the highest digit of v is k > 0, v is k times a direction of the last block. Its
        # transform is needed only for the highest digits that categories have.
        highest = np.arange(-(-self.categories // lower))
        k = np.arange(1, half)
        waves = np.exp(2j * np.pi / base * (k[:, None] * highest % base))
        waves[2 * k < base] *= 2  # for -k, which for base 2 is k itself
        block = spectrum[-lower:].T
        partial = (
            np.take_along_axis(block[1:], self._quotient_counts(k, digits - 1), axis=1).T @ waves
        )
        partial += self._lower(spectrum, float(row.sum()))[:, None]
        shape = (base,) * (digits - 1)
        axes = tuple(range(digits - 1))
        transformed: Floats = fft.ifftn(
            partial.reshape(*shape, -1), axes=axes, overwrite_x=True
        ).real
        transformed = np.moveaxis(transformed, -1, 0).reshape(-1)[: self.categories]
        transformed *= lower / base
        return transformed

    def _lower(self, spectrum: npt.NDArray[Any], reports: float) -> npt.NDArray[Any]:
        """Return F(v) for each vector v whose highest digit is 0."""
        base = self.base
        digits_lower = np.empty(base ** (self.digits - 1), np.complex128)
        digits_lower[0] = reports
        k = np.arange(1, base // 2 + 1)
        for digits in range(self.digits - 1):
            size = base**digits
            start = (size - 1) // (base - 1)
            block = spectrum[start : start + size].T
            values = digits_lower[size : size * base].reshape(base - 1, size)  # by k, from 1
            values[k - 1] = np.take_along_axis(block[1:], self._quotient_counts(k, digits), axis=1)
            values[-k] = values[k - 1].conj()[
                :, self._quotient_counts(np.array([base - 1]), digits)[0]
            ]
        return digits_lower

    def _quotient_counts(self, divisors: Codes, digits: int) -> Codes:
        """Return the number of v / k for each divisor k and each vector v of some digits."""
        inverses = np.array([pow(k, -1, self.base) for k in divisors.tolist()], np.intp)
        divided = inverses[:, None] * np.arange(self.base) % self.base
        places = np.zeros((len(inverses), 1), np.intp)
        for place in range(digits):
            places = (divided[:, :, None] * self.base**place + places[:, None]).reshape(
                len(inverses), -1
            )
        return places

    def both(self, frequencies: Floats, first: Integers, second: Integers) -> Floats:
        if self.digits == 1:
            return np.zeros(np.broadcast_shapes(first.shape, second.shape))
        base = self.base
        every = np.zeros(base**self.digits)
        every[: self.categories] = frequencies
        # The categories on the line through the two lie on all lines that contain both.
        on_line: Any = 0.0
        digits = base ** np.arange(self.digits)
        steps = np.asarray(second)[..., None] // digits - np.asarray(first)[..., None] // digits
        points = np.asarray(first)[..., None] // digits
        for number in range(base):
            on_line = on_line + every[((points + number * steps) % base) @ digits]
        pairs, triples = ((base ** (self.digits - n) - 1) / (base**self.digits - 1) for n in (1, 2))
        true, other = self.same / self.total, self.other / self.total
        off_line = triples * true + (pairs - triples) * other
        shares: Floats = on_line * pairs * true + (1 - on_line) * off_line
        return shares

    def to_document(self) -> Document:
        entries = {name: vehicle.json_integer(getattr(self, name)) for name in _ENTRIES}
        return {"kind": self.kind, "epsilon": str(self.epsilon), **entries}

    @classmethod
    def from_document(cls, document: Document, coordinates: int = 1) -> "Lines":
        return cls(**entries_of(document))


def compact(epsilon: float, categories: int) -> RandomizedResponse | UnaryEncoding | Lines:
    """Return the coder of categories with the fewest bits that has hardly more error than the best.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 16.
    categories
        The number of categories, at most 2^20.

    Returns
    -------
    RandomizedResponse, UnaryEncoding or Lines
        Of those whose error is at most a tenth above the least error, the one with the fewest bits,
        and of equally many bits that with the least error.

    Examples
    --------
    >>> [type(compact(1.0, categories)).__name__ for categories in (3, 10, 100_000)]
    ['RandomizedResponse', 'Lines', 'Lines']
    """
    lines = Lines.of(epsilon, categories)
    if categories > vehicle.MOST_CATEGORIES:
        return lines
    offered = (
        RandomizedResponse.of(epsilon, categories),
        UnaryEncoding.of(epsilon, categories),
        lines,
    )
    least = min(coder.variance for coder in offered)
    good = [coder for coder in offered if coder.variance <= _MOST_ERROR_FOR_FEWER_BITS * least]
    return min(good, key=lambda coder: (coder.bits, coder.variance))


def _check_categories(number: int) -> int:
    if not 2 <= number <= vehicle.MOST_LABELS:
        raise DomainError(f"there must be 2 to {vehicle.MOST_LABELS} categories; got {number}.")
    return number


def _support(base: int, digits: int, same: int, other: int) -> tuple[int, int, int]:
    """Return the odds that a report supports the true category and another one, and all odds."""
    directions = (base**digits - 1) // (base - 1)
    common = (base ** (digits - 1) - 1) // (base - 1)  # in which two categories share a line
    total = (same + (base - 1) * other) * directions
    return same * directions, common * same + (directions - common) * other, total


@lru_cache(maxsize=1024)
def _best(epsilon: float, categories: int, bits: int) -> tuple[int, int]:
    """Return the base and the number of digits with the least error for a number of bits."""
    codes = min(1 << bits, vehicle.MOST_LINE_CODES)
    if categories > codes:
        raise DomainError(
            f"{categories} categories need at least {vehicle.column_bits(categories)} bits; "
            f"got bits = {bits}."
        )
    offered = [(categories, 1)]
    for digits in range(2, categories.bit_length() + 1):
        most = _root(codes, digits)
        offered += [
            (base, digits)
            for base in _primes(most).tolist()
            if base ** (digits - 1) < categories <= base**digits
            and (base**digits - 1) // (base - 1) * base <= codes
        ]

    def error(choice: tuple[int, int]) -> Fraction:
        base, digits = choice
        support = _support(base, digits, *response_odds(epsilon, base))
        return indicator_variance(*support, categories)

    return min(offered, key=error)


def _root(number: int, degree: int) -> int:
    """Return the largest whole number whose power is at most a number."""
    root: int = round(number ** (1 / degree)) + 1
    while root**degree > number:
        root -= 1
    return root


@lru_cache(maxsize=8)
def _primes(most: int) -> npt.NDArray[np.intp]:
    sieve = np.ones(most + 1, np.bool_)
    sieve[:2] = False
    for number in range(2, int(most**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = False
    return np.flatnonzero(sieve)


def _share(words: npt.NDArray[np.uint64], number: int) -> npt.NDArray[np.uint32]:
    """Return word * number / 2^64, rounded down, for a number below 2^32."""
    low = words & np.uint64(0xFFFFFFFF)
    low *= np.uint64(number)
    low >>= np.uint64(32)
    words >>= np.uint64(32)
    words *= np.uint64(number)
    words += low
    words >>= np.uint64(32)
    return words.astype(np.uint32)


def _split(numbers: Codes, base: np.uint32) -> tuple[Codes, Codes]:
    """Return the numbers without their last digit, and that digit."""
    higher = numbers // base
    return higher, numbers - higher * base
