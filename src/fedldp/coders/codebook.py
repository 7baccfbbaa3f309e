"""Codebooks: the public directions that a seed stands for, which everybody can compute.

Directions are vectors of whole numbers that look normal, from a key, the seed and a counter, as
`vehicle.products` computes them. Here they are computed for many seeds at once. Nothing in a
codebook is secret, and nothing in it is random: what a vehicle draws is in `directions`.

`Codebook` says what is computed, so that a simulation can do it on another device; the results are
whole numbers, and equal wherever they come from.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal.validation import Floats, Integers
from fedldp._internal.vectors import SparseRows

Words = npt.NDArray[np.uint64]

DRAWN_NUMBERS = 1 << 15  # of all directions: random words are drawn for so many at a time
_MOST_NUMBERS = 1 << 21  # of vectors that are encoded at a time
_BLOCK = 1 << 17  # numbers of all directions that are computed at a time: they stay in the cache

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
        """How many vectors to encode at a time: a multiple of `drawn_together`."""

    @abstractmethod
    def ranked(
        self, vectors: Any, seeds: Any, signs: Any, ranks: Any, secret: bool = True
    ) -> Integers:
        """Return for each vector the direction of its seed that has a rank.

        Directions are ranked by their product with the vector, times its sign: the best has the
        rank 0, and of equal ones that with the lower number comes first. If vectors are secret,
        the work does not depend on their numbers.
        """

    @abstractmethod
    def totals(self, parts: list[tuple[Any, Any]]) -> Integers:
        """Return the sum of the directions of each part, and the sum of their squares.

        A part is some seeds, and the number of a direction for each. The result has two rows for
        each part, with a number for each coordinate.
        """


def drawn_together(directions: int) -> int:
    """Return for how many vectors random words are drawn at a time, whatever ranks them."""
    return max(8, DRAWN_NUMBERS // (directions + 1))


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
        together = drawn_together(self.directions)
        return together * min(8, 1 + _MOST_NUMBERS // (together * self.d))

    def ranked(
        self, vectors: SparseRows, seeds: Any, signs: Any, ranks: Any, secret: bool = True
    ) -> Integers:
        found = self._products(vectors, seeds, _constant_product if secret else np.matmul)
        # One number for product and direction; those of equal products descend with the number.
        found *= (signs * float(self.directions + 1))[:, None]
        found += np.arange(self.directions, -1, -1)
        found = np.sort(found[:, :-1], axis=1)[np.arange(len(found)), self.directions - 1 - ranks]
        chosen: Integers = self.directions - np.mod(found, self.directions + 1).astype(np.int64)
        return chosen

    def _products(self, vectors: SparseRows, seeds: Any, product: Any) -> Floats:
        """Return the product of each direction of the seeds with the vectors: whole numbers.

        The last column is of a direction that is not used. No sum comes near 2^53, so the order in
        which it is taken does not matter.
        """
        words = (self.directions + 1) // 4
        states, steps = self._states(seeds), _times_golden(np.arange(1, words + 1))
        products = np.zeros((len(vectors), 1, 4 * words))
        size = min(_BLOCK, 4 * words * len(vectors) * int(vectors.counts.max(initial=0)))
        mixing, scratch = np.empty((2, size // 4), np.uint64)
        quantiles, numbers = np.empty(size, np.int16), np.empty(size)
        places = numbers.view(np.int64)  # they are not needed together
        for rows, columns, factors in _blocks(vectors, _BLOCK // (4 * words)):
            size = columns.size * words
            first = states[rows, None] + _times_golden(columns * words)
            np.add(first.reshape(-1, 1), steps, out=mixing[:size].reshape(-1, words))
            size *= 4
            places[:size] = _lanes(mixing[: size // 4], scratch[: size // 4])
            # Out of 128 KB, which stay in the cache; all of these places are valid.
            _small_table().take(places[:size], out=quantiles[:size], mode="wrap")
            numbers[:size] = quantiles[:size]
            matrices = numbers[:size].reshape(*columns.shape, 4 * words)
            products[rows] += product(factors[:, None], matrices)
        return products[:, 0]

    def totals(self, parts: list[tuple[Any, Any]]) -> Integers:
        totals = np.zeros((len(parts), 2, self.d), np.int64)
        step = max(1, _BLOCK // self.d)
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
        found: Floats = table().take(every.view(np.int64), mode="wrap")
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


def _blocks(vectors: SparseRows, room: int) -> Iterator[tuple[Integers, Integers, Floats]]:
    """Yield rows with the columns and numbers of each, at most `room` in all.

    Rows are taken from the longest to the shortest; in a block, short ones end with zeros.
    """
    order = np.argsort(-vectors.counts, kind="stable")
    counts, starts, start = vectors.counts[order], vectors.starts[order], 0
    while start < len(order) and counts[start]:
        longest = int(counts[start])
        block = slice(start, start + max(1, room // longest))
        for first in range(0, longest, room):
            places = np.arange(first, min(longest, first + room))
            at = starts[block, None] + places
            if counts[block][-1] == longest:
                yield order[block], vectors.columns[at], vectors.numbers[at]
            else:
                at = np.minimum(at, len(vectors.numbers) - 1)
                within = places < counts[block, None]
                yield order[block], vectors.columns[at], vectors.numbers[at] * within
        start = block.stop


def _constant_product(rows: Floats, matrices: Floats) -> Floats:
    """Return products of matrices, by work that does not depend on any number.

    Libraries behind `np.matmul` may leave out zeros.
    """
    products: Floats = np.einsum("nij,njk->nik", rows, matrices)
    return products


@lru_cache(maxsize=1)
def _small_table() -> npt.NDArray[np.int16]:
    return table().astype(np.int16)


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
