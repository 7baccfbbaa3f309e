"""Codebooks: the public directions that a seed stands for, which everybody can compute.

Directions are vectors of whole numbers that look normal, from a key, the seed and a counter, as
`vehicle.products` computes them. Here they are computed for many seeds at once. Nothing in a
codebook is secret, and nothing in it is random: what a vehicle draws is in `directions`.

`Codebook` says what is computed, so that a simulation can do it on another device; the results are
whole numbers, and equal wherever they come from.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal.validation import Floats, Integers
from fedldp._internal.vectors import SparseRows

Words = npt.NDArray[np.uint64]

BLOCK = 1 << 15  # numbers of all directions that are computed at a time: they stay in the cache

_GOLDEN = np.uint64(vehicle.GOLDEN)
_MIX = tuple(np.uint64(factor) for factor in vehicle.MIX)
_MIXING = tuple(zip((30, 27), _MIX, strict=True))


class Codebook(ABC):
    """The directions of all seeds."""

    d: int  # how many numbers a direction has
    directions: int  # how many directions a seed has
    key: int  # on which all of them depend

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many vectors to rank at a time: a multiple of `drawn_together`."""

    @property
    def rows_of_some(self) -> int:
        """How many vectors to take at a time if only some of them are needed."""
        return self.rows

    @abstractmethod
    def ranked(
        self, vectors: Any, seeds: Any, signs: Any, ranks: Any, needed: Any = None
    ) -> Integers:
        """Return for each vector the direction of its seed that has a rank.

        Directions are ranked by their product with the vector, times its sign: the best has the
        rank 0, and of equal ones that with the lower number comes first. Of vectors that are not
        needed, nothing need be computed.
        """

    @abstractmethod
    def totals(self, parts: list[tuple[Any, Any]]) -> Integers:
        """Return the sum of the directions of each part, and the sum of their squares.

        A part is some seeds, and the number of a direction for each. The result has two rows for
        each part, with a number for each coordinate.
        """


def drawn_together(directions: int) -> int:
    """Return for how many vectors random words are drawn at a time, whatever ranks them."""
    return max(8, BLOCK // (directions + 1))


@final
@dataclass(frozen=True)
class NumpyCodebook(Codebook):
    """The directions of all seeds, by NumPy.

    >>> book = NumpyCodebook(d=2, directions=3, key=5)
    >>> vectors = SparseRows.of(np.array([[1000.0, 2000.0], [1000.0, 2000.0]]))
    >>> book.sent(np.array([7, 7]), np.array([0, 1]))
    array([[ -303.,   639.],
           [ -392., -1606.]])
    >>> book.ranked(vectors, np.array([7, 7]), np.array([1, -1]), np.array([0, 0]))
    array([0, 2])
    """

    d: int
    directions: int
    key: int

    @property
    def rows(self) -> int:
        return drawn_together(self.directions)

    @property
    def rows_of_some(self) -> int:
        return 8 * self.rows

    def ranked(
        self, vectors: SparseRows, seeds: Any, signs: Any, ranks: Any, needed: Any = None
    ) -> Integers:
        if needed is None:
            return self._ranked(vectors, seeds, signs, ranks)
        needing, places = vectors.where(needed), np.flatnonzero(needed)
        chosen = np.zeros(len(vectors), np.int64)
        for start in range(0, len(places), self.rows):
            part, at = slice(start, start + self.rows), places[start : start + self.rows]
            chosen[at] = self._ranked(needing[part], seeds[at], signs[at], ranks[at])
        return chosen

    def _ranked(self, vectors: SparseRows, seeds: Any, signs: Any, ranks: Any) -> Integers:
        found = self._products(vectors, seeds)
        # One number for product and direction; those of equal products descend with the number.
        found *= (signs * float(self.directions + 1))[:, None]
        found += np.arange(self.directions, -1, -1)
        found = np.sort(found[:, :-1], axis=1)[np.arange(len(found)), self.directions - 1 - ranks]
        chosen: Integers = self.directions - np.mod(found, self.directions + 1).astype(np.int64)
        return chosen

    def _products(self, vectors: SparseRows, seeds: Any) -> Floats:
        """Return the product of each direction of the seeds with the vectors: whole numbers.

        The last column is of a direction that is not used. No sum comes near 2^53, so the order in
        which it is taken does not matter.
        """
        words, n = (self.directions + 1) // 4, len(vectors)
        products = np.zeros((n, 4 * words))
        # Rows with more numbers first: the rows that have a number i come first.
        order = np.argsort(-vectors.counts, kind="stable")
        starts, counts = vectors.starts[order], vectors.counts[order]
        states = self._states(seeds[order])
        steps = _times_golden(np.arange(1, words + 1))
        room = max(n, BLOCK // (4 * words))
        every, scratch = np.empty((room, words), np.uint64), np.empty((room, words), np.uint64)
        numbers = np.empty((room, 4 * words))
        i = 0
        while n and i < counts[0]:
            last = int(np.searchsorted(-counts, -i))
            # Of few rows, several numbers at a time, as many as all of these rows have.
            many = min(int(counts[last - 1]) - i, room // last)
            at = (starts[:last, None] + np.arange(i, i + many)).reshape(-1)
            first = np.repeat(states[:last], many) + _times_golden(vectors.columns[at] * words)
            lanes = _lanes(np.add(first[:, None], steps, out=every[: len(at)]), scratch[: len(at)])
            np.take(table(), lanes, out=numbers[: len(at)], mode="clip")
            numbers[: len(at)] *= vectors.numbers[at][:, None]
            added = numbers[: len(at)]
            products[:last] += added if many == 1 else added.reshape(last, many, -1).sum(axis=1)
            i += many
        numbers = np.empty_like(products)
        numbers[order] = products
        return numbers

    def totals(self, parts: list[tuple[Any, Any]]) -> Integers:
        totals = np.zeros((len(parts), 2, self.d), np.int64)
        step = max(1, 4 * BLOCK // self.d)
        for (seeds, numbers), (sums, squares) in zip(parts, totals, strict=True):
            for start in range(0, len(seeds), step):
                block = slice(start, start + step)
                sent = self.sent(seeds[block], numbers[block])
                sums += sent.sum(axis=1).astype(np.int64)  # floats of whole numbers below 2^53
                squares += np.einsum("ij,ij->i", sent, sent).astype(np.int64)
        return totals

    def sent(self, seeds: Any, numbers: Any) -> Floats:
        """Return the coordinates of some directions, a row for each coordinate."""
        words = (self.directions + 1) // 4
        states = self._states(seeds) + _times_golden((numbers >> 2).astype(np.int64) + 1)
        every = np.add(_times_golden(np.arange(self.d) * words)[:, None], states)
        _mixed(every, np.empty_like(every))
        every >>= 16 * (numbers & 3).astype(np.uint64)
        every &= np.uint64(0xFFFF)
        found: Floats = table().take(every.astype(np.int64), mode="clip")
        return found

    def _states(self, seeds: Any) -> Words:
        states = _times_golden(seeds.astype(np.int64) + 1) + np.uint64(self.key)
        return _mixed(states, np.empty_like(states))


@lru_cache(maxsize=1)
def table() -> Floats:
    """Return the numbers that directions are made of, as floats: products of them are exact."""
    found = np.array(vehicle.quantiles(), np.float64)
    found.flags.writeable = False
    return found


def _times_golden(numbers: Any) -> Words:
    words: Words = numbers.astype(np.uint64)
    words *= _GOLDEN  # modulo 2^64
    return words


def _mixed(words: Words, scratch: Words) -> Words:
    """Mix words, in place."""
    for shift, factor in _MIXING:
        words ^= np.right_shift(words, shift, out=scratch)
        words *= factor
    words ^= np.right_shift(words, 31, out=scratch)
    return words


def _lanes(words: Words, scratch: Words) -> Any:
    """Mix words and return the four numbers of 16 bits of each, the lowest first."""
    return _mixed(words, scratch).astype("<u8", copy=False).view("<u2")
