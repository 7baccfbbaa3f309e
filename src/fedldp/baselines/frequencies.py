"""Frequency oracles: what share of the vehicles has each of some categories."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import ceil, comb, exp, floor, log2
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from fedldp._internal import validation
from fedldp._internal.validation import Floats, Integers
from fedldp.errors import DomainError
from fedldp.randomness import StudySource, study_generator

_HASH_PRIME = (1 << 31) - 1
_CHUNK_NUMBERS = 1 << 22


@dataclass(frozen=True)
class FrequencyOracle(ABC):
    """Asks each vehicle for its category, and estimates the frequency of every category.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.
    categories
        The number of categories, at least 2.

    Raises
    ------
    DomainError
        If a parameter is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> oracle = SubsetSelection(epsilon=2.0, categories=8)
    >>> random = np.random.default_rng(1)
    >>> oracle.estimate(oracle.answer(np.full(100_000, 3), random)).round(1) + 0.0
    array([0., 0., 0., 1., 0., 0., 0., 0.])
    """

    name: ClassVar[str]

    epsilon: float
    categories: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validation.studied_epsilon(self.epsilon))
        object.__setattr__(self, "categories", validation.whole(self.categories, "categories"))
        if self.categories < 2:
            raise DomainError(f"there must be at least 2 categories; got {self.categories}.")

    @property
    @abstractmethod
    def bits(self) -> int:
        """How many bits an answer takes, its random seed included."""

    def answer(self, values: npt.ArrayLike, random: StudySource | int) -> Any:
        """Return what vehicles with some categories send.

        Parameters
        ----------
        values
            The numbers of the categories, from 0.
        random
            A generator of NumPy, a `fedldp.Source` or a seed.

        Returns
        -------
        array
            An answer for each vehicle, along the first axis.

        Raises
        ------
        DomainError
            If a category is unknown, or `random` is none of these.

        Examples
        --------
        >>> RandomResponse(epsilon=8.0, categories=4).answer([0, 3, 1], random=1)
        array([0, 3, 1])
        """
        own = np.atleast_1d(np.asarray(values))
        if own.dtype.kind not in "iu" or np.any((own < 0) | (own >= self.categories)):
            raise DomainError(f"categories must be integers from 0 to {self.categories - 1}.")
        return self._answer(own.astype(np.int64), study_generator(random))

    @abstractmethod
    def estimate(self, answers: Any) -> Floats:
        """Return the unbiased estimate of each frequency.

        Parameters
        ----------
        answers
            What some vehicles sent, as `answer` returns it.

        Returns
        -------
        array of float
            A frequency for each category; some may be negative.

        Examples
        --------
        >>> import numpy as np
        >>> oracle = RandomResponse(epsilon=8.0, categories=2)
        >>> oracle.estimate(np.array([0, 0, 0, 1])).round(2)
        array([0.75, 0.25])
        """

    @abstractmethod
    def error(self, value: int) -> float:
        """Return the squared error of one answer, summed over all categories.

        The error of n answers is the mean of this over their vehicles, divided by n.

        Parameters
        ----------
        value
            The category of the vehicle.

        Returns
        -------
        float
            The expected squared error.

        Examples
        --------
        >>> round(RandomResponse(epsilon=1.0, categories=4).error(0), 3)
        7.556
        """

    @property
    def worst_error(self) -> float:
        """The largest error over all categories."""
        return max(self.error(value) for value in range(self.categories))

    @property
    def typical_error(self) -> float:
        """The mean error over all categories."""
        return sum(self.error(value) for value in range(self.categories)) / self.categories

    @abstractmethod
    def _answer(self, own: Integers, random: np.random.Generator) -> Any: ...


class PureOracle(FrequencyOracle):
    """A pure protocol: each answer supports the true category with probability p, others with q.

    Its variance is that of Wang et al., "Locally differentially private protocols for frequency
    estimation", USENIX Security 2017, theorem 2.
    """

    @property
    @abstractmethod
    def support(self) -> tuple[float, float]:
        """The probabilities p and q."""

    @abstractmethod
    def supported(self, answers: Any) -> Integers:
        """Return how many answers support each category."""

    def estimate(self, answers: Any) -> Floats:
        p, q = self.support
        found: Floats = (self.supported(answers) / len(answers) - q) / (p - q)
        return found

    def error(self, value: int) -> float:
        p, q = self.support
        return (p * (1 - p) + (self.categories - 1) * q * (1 - q)) / (p - q) ** 2


@final
@dataclass(frozen=True)
class RandomResponse(PureOracle):
    """Generalized randomized response (GRR): mostly the true category, else any other one.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.
    categories
        The number of categories, at least 2.

    References
    ----------
    S. L. Warner, "Randomized response", JASA 1965; P. Kairouz, S. Oh, P. Viswanath, "Extremal
    mechanisms for local differential privacy", NeurIPS 2014.

    Examples
    --------
    >>> RandomResponse(epsilon=1.0, categories=64).bits
    6
    """

    name = "grr"

    @property
    def bits(self) -> int:
        """How many bits an answer takes: the number of a category."""
        return ceil(log2(self.categories))

    @property
    def support(self) -> tuple[float, float]:
        """The probabilities p and q."""
        odds = exp(self.epsilon)
        return odds / (odds + self.categories - 1), 1 / (odds + self.categories - 1)

    def _answer(self, own: Integers, random: np.random.Generator) -> Integers:
        other = random.integers(self.categories - 1, size=own.size)
        other += other >= own
        return np.where(random.random(own.size) < self.support[0], own, other)

    def supported(self, answers: Any) -> Integers:
        return np.bincount(answers, minlength=self.categories)


class BitVector(PureOracle):
    """A bit for each category, each of them random on its own."""

    @property
    def bits(self) -> int:
        """How many bits an answer takes: one for each category."""
        return self.categories

    def _answer(self, own: Integers, random: np.random.Generator) -> npt.NDArray[np.bool_]:
        p, q = self.support
        answers: npt.NDArray[np.bool_] = random.random((own.size, self.categories)) < q
        answers[np.arange(own.size), own] = random.random(own.size) < p
        return answers

    def supported(self, answers: Any) -> Integers:
        counts: Integers = np.sum(answers, axis=0, dtype=np.int64)
        return counts


@final
@dataclass(frozen=True)
class OptimizedUnaryEncoding(BitVector):
    """Optimized unary encoding (OUE): a fair coin for the true category, rarely a 1 for others.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.
    categories
        The number of categories, at least 2.

    References
    ----------
    T. Wang, J. Blocki, N. Li, S. Jha, "Locally differentially private protocols for frequency
    estimation", USENIX Security 2017.

    Examples
    --------
    >>> OptimizedUnaryEncoding(epsilon=1.0, categories=64).bits
    64
    """

    name = "oue"

    @property
    def support(self) -> tuple[float, float]:
        """The probabilities p and q."""
        return 0.5, 1 / (exp(self.epsilon) + 1)


@final
@dataclass(frozen=True)
class Rappor(BitVector):
    """Basic one-time RAPPOR: each bit is kept, or replaced by a fair coin with probability f.

    This is RAPPOR without Bloom filter and without a second randomization of each report. It is
    also known as symmetric unary encoding.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.
    categories
        The number of categories, at least 2.

    References
    ----------
    U. Erlingsson, V. Pihur, A. Korolova, "RAPPOR: randomized aggregatable privacy-preserving
    ordinal response", CCS 2014, with h = 1 and epsilon = 2 ln((1 - f/2) / (f/2)).

    Examples
    --------
    >>> round(Rappor(epsilon=2.0, categories=8).f, 3)
    0.538
    """

    name = "rappor"

    @property
    def f(self) -> float:
        """The probability that a bit is replaced by a fair coin."""
        return 2 / (exp(self.epsilon / 2) + 1)

    @property
    def support(self) -> tuple[float, float]:
        """The probabilities p and q."""
        return 1 - self.f / 2, self.f / 2


@final
@dataclass(frozen=True)
class LocalHashing(PureOracle):
    """Optimized local hashing (OLH): a hash of the category by randomized response.

    A vehicle draws a hash function to about e^epsilon + 1 numbers, and sends it with the hash.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.
    categories
        The number of categories, at least 2.

    References
    ----------
    T. Wang, J. Blocki, N. Li, S. Jha, "Locally differentially private protocols for frequency
    estimation", USENIX Security 2017.

    Examples
    --------
    >>> LocalHashing(epsilon=1.0, categories=64).hashes
    4
    """

    name = "olh"

    @property
    def hashes(self) -> int:
        """How many numbers a hash can be."""
        return max(2, round(exp(self.epsilon)) + 1)

    @property
    def bits(self) -> int:
        """How many bits an answer takes: the two numbers of the hash function, and the hash."""
        return 2 * _HASH_PRIME.bit_length() + ceil(log2(self.hashes))

    @property
    def support(self) -> tuple[float, float]:
        """The probabilities p and q."""
        odds = exp(self.epsilon)
        return odds / (odds + self.hashes - 1), 1 / self.hashes

    def _answer(self, own: Integers, random: np.random.Generator) -> Integers:
        factor = random.integers(1, _HASH_PRIME, size=own.size)
        term = random.integers(_HASH_PRIME, size=own.size)
        hashed = (factor * own + term) % _HASH_PRIME % self.hashes
        other = random.integers(self.hashes - 1, size=own.size)
        other += other >= hashed
        kept = random.random(own.size) < self.support[0]
        return np.stack([factor, term, np.where(kept, hashed, other)], axis=1)

    def supported(self, answers: Any) -> Integers:
        counts, every = np.zeros(self.categories, np.int64), np.arange(self.categories)
        rows = max(1, _CHUNK_NUMBERS // self.categories)
        for start in range(0, len(answers), rows):
            factor, term, sent = answers[start : start + rows].T[:, :, None]
            counts += np.sum((factor * every + term) % _HASH_PRIME % self.hashes == sent, axis=0)
        return counts


@final
@dataclass(frozen=True)
class SubsetSelection(PureOracle):
    """Subset selection: a set of some categories, which contains the true one more often.

    No mechanism with one answer has less error.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.
    categories
        The number of categories, at least 2.

    References
    ----------
    M. Ye, A. Barg, "Optimal schemes for discrete distribution estimation under locally
    differential privacy", IEEE Transactions on Information Theory 2018; S. Wang et al., "Mutual
    information optimally local private discrete distribution estimation", 2016.

    Examples
    --------
    >>> SubsetSelection(epsilon=1.0, categories=64).size
    17
    """

    name = "subset-selection"

    @property
    def size(self) -> int:
        """How many categories a set has: the number next to k / (e^epsilon + 1) that errs less."""
        best = self.categories / (exp(self.epsilon) + 1)
        near = {min(max(1, side(best)), self.categories - 1) for side in (floor, ceil)}
        return min(near, key=self._error_with)

    def _support_with(self, size: int) -> tuple[float, float]:
        odds, others = size * exp(self.epsilon), self.categories - size
        q = (odds * (size - 1) + others * size) / (self.categories - 1) / (odds + others)
        return odds / (odds + others), q

    def _error_with(self, size: int) -> float:
        p, q = self._support_with(size)
        return (p * (1 - p) + (self.categories - 1) * q * (1 - q)) / (p - q) ** 2

    @property
    def bits(self) -> int:
        """How many bits an answer takes: the number of a set."""
        return (comb(self.categories, self.size) - 1).bit_length()

    @property
    def support(self) -> tuple[float, float]:
        """The probabilities p and q."""
        return self._support_with(self.size)

    def _answer(self, own: Integers, random: np.random.Generator) -> Integers:
        sets = np.empty((own.size, self.size), np.int64)
        rows = max(1, _CHUNK_NUMBERS // self.categories)
        for start in range(0, own.size, rows):
            mine = own[start : start + rows]
            keys = random.random((mine.size, self.categories))
            with_own = random.random(mine.size) < self.support[0]
            keys[np.arange(mine.size), mine] = np.where(with_own, -1.0, 2.0)
            sets[start : start + rows] = np.argpartition(keys, self.size - 1)[:, : self.size]
        return sets

    def supported(self, answers: Any) -> Integers:
        return np.bincount(np.ravel(answers), minlength=self.categories)


@final
@dataclass(frozen=True)
class HadamardResponse(FrequencyOracle):
    """Hadamard response: a number whose entry in the category's row of a Hadamard matrix is 1.

    Categories are divided among blocks, each with a matrix of its own; more blocks for a larger
    epsilon.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.
    categories
        The number of categories, at least 2.

    References
    ----------
    J. Acharya, Z. Sun, H. Zhang, "Hadamard response: estimating distributions privately,
    efficiently, and with little communication", AISTATS 2019, with its estimator for a medium
    epsilon in section 5.

    Examples
    --------
    >>> oracle = HadamardResponse(epsilon=2.0, categories=64)
    >>> oracle.blocks, oracle.order
    (4, 32)
    """

    name = "hadamard-response"

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return 1 << max(0, ceil(log2(min(exp(self.epsilon), 2 * self.categories))) - 1)

    @property
    def order(self) -> int:
        """The order of the matrix of each block."""
        return 1 << max(1, ceil(log2(self.categories / self.blocks + 1)))

    @property
    def bits(self) -> int:
        """How many bits an answer takes: a block, and a column of its matrix."""
        return ceil(log2(self.blocks * self.order))

    @property
    def _total(self) -> float:
        """The sum of the odds of all answers, those outside of the category's set having 1."""
        return self.order / 2 * exp(self.epsilon) + self.blocks * self.order - self.order / 2

    @property
    def _scale(self) -> float:
        """The probability of an answer beyond those that all categories share."""
        return self.order / 2 * (exp(self.epsilon) - 1) / self._total

    def _places(self, own: Integers) -> tuple[Integers, Integers]:
        """Return the block of each category and its row there; the row of ones is left out."""
        block, row = np.divmod(own, -(-self.categories // self.blocks))
        return block, row + 1

    def _answer(self, own: Integers, random: np.random.Generator) -> Integers:
        block, row = self._places(own)
        # Any answer, and then for some vehicles one of those with a 1 instead: of a column and its
        # neighbour in the lowest bit of the row, one has a 1 and the other has not.
        answers = random.integers(self.blocks * self.order, size=own.size)
        column = random.integers(self.order, size=own.size)
        column ^= np.where(_odd(row & column), row & -row, 0)
        chosen = random.random(own.size) < self._scale
        return np.where(chosen, block * self.order + column, answers)

    def estimate(self, answers: Any) -> Floats:
        counts = np.bincount(answers, minlength=self.blocks * self.order)
        signed = _hadamard(counts.reshape(self.blocks, self.order).astype(np.float64))
        found: Floats = signed[self._places(np.arange(self.categories))] / len(answers)
        return found / self._scale

    def error(self, value: int) -> float:
        block, _ = self._places(np.arange(self.categories))
        sizes = np.bincount(block, minlength=self.blocks)
        own = self.order / 2 * (exp(self.epsilon) + 1) / self._total
        likely = np.full(self.blocks, self.order / self._total)
        likely[block[value]] = own
        return float(likely @ sizes / self._scale**2 - 1)


def _odd(numbers: Integers) -> npt.NDArray[np.bool_]:
    """Return which numbers have an odd number of ones in binary."""
    odd: npt.NDArray[np.bool_] = np.bitwise_count(numbers) % 2 == 1
    return odd


def _hadamard(rows: Floats) -> Floats:
    """Return the products of each row with those of Sylvester's Hadamard matrix."""
    half = 1
    while half < rows.shape[1]:
        pairs = rows.reshape(len(rows), -1, 2, half)
        rows = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        rows = rows.reshape(len(rows), -1)
        half *= 2
    return rows


FREQUENCY_ORACLES: tuple[type[FrequencyOracle], ...] = (
    RandomResponse,
    OptimizedUnaryEncoding,
    LocalHashing,
    SubsetSelection,
    HadamardResponse,
    Rappor,
)
"""All frequency oracles here."""
