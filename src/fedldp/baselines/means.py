"""Mechanisms for means: of one number in [-1, 1], and of vectors of length 1."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, exp, floor, lgamma, log, log2, pi, sqrt
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from fedldp._internal import validation
from fedldp._internal.validation import Floats
from fedldp.errors import DomainError
from fedldp.randomness import StudySource, study_generator

_FLOAT_BITS = 32  # of a number that is sent in floating point
_LENGTH_TOLERANCE = 1e-6
_CHUNK_NUMBERS = 1 << 22


@final
@dataclass(frozen=True)
class OneBitMean:
    """The mean of a number from one bit, whose probability rises linearly with the number.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.

    References
    ----------
    B. Ding, J. Kulkarni, S. Yekhanin, "Collecting telemetry data privately", NeurIPS 2017, with
    the range [-1, 1] for their [0, m].

    Examples
    --------
    >>> import numpy as np
    >>> mechanism = OneBitMean(epsilon=4.0)
    >>> answers = mechanism.answer(np.full(100_000, 0.5), np.random.default_rng(1))
    >>> mechanism.decode(answers).mean().round(2)
    np.float64(0.5)
    """

    name: ClassVar[str] = "one-bit-mean"
    bits: ClassVar[int] = 1

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validation.studied_epsilon(self.epsilon))

    def answer(self, values: npt.ArrayLike, random: StudySource | int) -> npt.NDArray[np.bool_]:
        """Return the bit that each vehicle sends.

        Parameters
        ----------
        values
            Numbers in [-1, 1].
        random
            A generator of NumPy, a `fedldp.Source` or a seed.

        Returns
        -------
        array of bool
            The bits.

        Examples
        --------
        >>> OneBitMean(epsilon=20.0).answer([-1.0, 1.0], random=1)
        array([False,  True])
        """
        x, odds = validation.unit(values), exp(self.epsilon)
        probability = (1 + (x + 1) / 2 * (odds - 1)) / (odds + 1)
        chosen: npt.NDArray[np.bool_] = study_generator(random).random(x.shape) < probability
        return chosen

    def decode(self, answers: npt.ArrayLike) -> Floats:
        """Return the unbiased estimate that each bit stands for.

        Parameters
        ----------
        answers
            Bits, as `answer` returns them.

        Returns
        -------
        array of float
            The estimates.

        Examples
        --------
        >>> OneBitMean(epsilon=1.0).decode([False, True]).round(3)
        array([-2.164,  2.164])
        """
        odds = exp(self.epsilon)
        bits = np.asarray(answers, np.float64)
        return 2 * (bits * (odds + 1) - 1) / (odds - 1) - 1

    def error(self, x: npt.ArrayLike) -> Any:
        """Return the variance of the estimate.

        Parameters
        ----------
        x
            A number in [-1, 1], or an array of them.

        Returns
        -------
        float or array
            The variance.

        Examples
        --------
        >>> round(float(OneBitMean(epsilon=1.0).error(0.0)), 3)
        4.683
        """
        odds = exp(self.epsilon)
        return ((odds + 1) / (odds - 1)) ** 2 - validation.unit(x) ** 2

    @property
    def worst_error(self) -> float:
        """The largest variance."""
        return float(self.error(0.0))


@dataclass(frozen=True)
class VectorMechanism(ABC):
    """Answers a whole vector of length 1 with a random vector that is right on average.

    Parameters
    ----------
    epsilon
        The privacy budget of the whole vector, from 0.001 to 20.
    d
        How many numbers the vector has, at least 2.

    Raises
    ------
    DomainError
        If a parameter is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> mechanism = PrivUnit(epsilon=4.0, d=3)
    >>> vectors = np.tile([0.6, 0.0, 0.8], (100_000, 1))
    >>> mechanism.answer(vectors, np.random.default_rng(1)).mean(axis=0).round(2) + 0.0
    array([0.6, 0. , 0.8])
    """

    name: ClassVar[str]

    epsilon: float
    d: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validation.studied_epsilon(self.epsilon))
        object.__setattr__(self, "d", validation.whole(self.d, "d"))
        if self.d < 2:
            raise DomainError(f"d must be at least 2; got {self.d}.")

    @property
    @abstractmethod
    def bits(self) -> int:
        """How many bits an answer takes; random bits that everybody knows are not counted."""

    @property
    @abstractmethod
    def error(self) -> float:
        """The squared error of one answer, summed over all numbers of the vector."""

    @property
    def worst_error(self) -> float:
        """The squared error for the zero vector, which is answered as a random vector."""
        return self.error + 1

    def answer(self, vectors: npt.ArrayLike, random: StudySource | int) -> Floats:
        """Return the unbiased estimate of its vector that each vehicle's answer stands for.

        Parameters
        ----------
        vectors
            A row of length 1 for each vehicle.
        random
            A generator of NumPy, a `fedldp.Source` or a seed.

        Returns
        -------
        array of float
            A row for each vehicle.

        Raises
        ------
        DomainError
            If the rows have another size or length.

        Examples
        --------
        >>> PrivUnitG(epsilon=1.0, d=2).answer([[0.0, 1.0]], random=1).shape
        (1, 2)
        """
        rows = validation.reals(vectors, "vectors")
        if rows.ndim != 2 or rows.shape[1] != self.d:
            raise DomainError(f"vectors must have rows of {self.d} numbers; got {rows.shape}.")
        lengths = np.linalg.norm(rows, axis=1)
        if np.any(np.abs(lengths - 1) > _LENGTH_TOLERANCE):
            raise DomainError("each vector must have the length 1: divide it by its length.")
        return self._answer(rows, study_generator(random))

    @abstractmethod
    def _answer(self, rows: Floats, random: np.random.Generator) -> Floats: ...


class Cap(VectorMechanism):
    """Sends a vector whose part along the true one mostly exceeds a threshold.

    That is the case with the largest probability that epsilon allows. The threshold is chosen such
    that the error is least, which fixes the probability q that a random vector exceeds it.
    """

    @abstractmethod
    def _part_beyond(self, q: float) -> float:
        """Return the mean part of random vectors, counted as 0 where it is below the threshold."""

    @abstractmethod
    def _quantile(self, probabilities: Floats) -> Floats:
        """Return the quantiles of the part of a random vector along another one."""

    @abstractmethod
    def _across(self, rows: Floats, along: Floats, random: np.random.Generator) -> Floats:
        """Return random parts across the rows, given the parts along them."""

    def _gain(self, q: float) -> float:
        """Return the mean part of what is sent along the true vector."""
        return self._part_beyond(q) * (exp(self.epsilon) - 1) / (1 + (exp(self.epsilon) - 1) * q)

    @cached_property
    def beyond(self) -> float:
        """The probability that a random vector exceeds the threshold."""
        from scipy.optimize import minimize_scalar

        found = minimize_scalar(
            lambda logarithm: -self._gain(exp(logarithm)),
            bounds=(log(0.5) - self.epsilon - 6, log(0.5)),
            method="bounded",
            options={"xatol": 1e-9},
        )
        return exp(float(found.x))

    @property
    def probability(self) -> float:
        """The probability that what is sent exceeds the threshold."""
        odds = exp(self.epsilon) * self.beyond
        return odds / (odds + 1 - self.beyond)

    @cached_property
    def scale(self) -> float:
        """What is sent is divided by it: then it is right on average."""
        return self._gain(self.beyond)

    @property
    def bits(self) -> int:
        """How many bits an answer takes: a floating-point number for each of the vector."""
        return _FLOAT_BITS * self.d

    def _answer(self, rows: Floats, random: np.random.Generator) -> Floats:
        place = random.random(len(rows))
        exceeds = random.random(len(rows)) < self.probability
        place = np.where(exceeds, 1 - self.beyond * place, (1 - self.beyond) * place)
        along = self._quantile(place)[:, None]
        return (along * rows + self._across(rows, along, random)) / self.scale


@final
@dataclass(frozen=True)
class PrivUnit(Cap):
    """PrivUnit: a random vector of length 1 that mostly lies in a cap around the true one.

    With the best threshold it is optimal among all unbiased mechanisms.

    Parameters
    ----------
    epsilon
        The privacy budget of the whole vector, from 0.001 to 20.
    d
        How many numbers the vector has, at least 2.

    References
    ----------
    A. Bhowmick, J. Duchi, J. Freudiger, G. Kapoor, R. Rogers, "Protection against reconstruction
    and its applications in private federated learning", 2018; H. Asi, V. Feldman, K. Talwar,
    "Optimal algorithms for mean estimation under local differential privacy", ICML 2022.

    Examples
    --------
    >>> round(PrivUnit(epsilon=4.0, d=128).error / 128, 3)
    0.43
    """

    name = "privunit"

    def _part_beyond(self, q: float) -> float:
        # The density of the part t is proportional to (1 - t^2)^((d - 3) / 2).
        threshold = float(self._quantile(np.array(1 - q)))
        constant = lgamma(self.d / 2) - lgamma((self.d - 1) / 2) - log(pi) / 2
        power = (self.d - 1) / 2
        return float(exp(constant) * (1 - threshold**2) ** power / (self.d - 1))

    def _quantile(self, probabilities: Floats) -> Floats:
        from scipy.special import betaincinv

        half = (self.d - 1) / 2
        found: Floats = 2 * betaincinv(half, half, probabilities) - 1
        return found

    def _across(self, rows: Floats, along: Floats, random: np.random.Generator) -> Floats:
        noise = _without_part_along(random.standard_normal(rows.shape), rows)
        lengths = np.linalg.norm(noise, axis=1, keepdims=True)
        across: Floats = noise / lengths * np.sqrt(np.maximum(1 - along**2, 0.0))
        return across

    @property
    def error(self) -> float:
        """The squared error of one answer, summed over all numbers of the vector."""
        return 1 / self.scale**2 - 1


@final
@dataclass(frozen=True)
class PrivUnitG(Cap):
    """PrivUnitG: PrivUnit with a normal vector in place of one of length 1, nearly as good.

    Parameters
    ----------
    epsilon
        The privacy budget of the whole vector, from 0.001 to 20.
    d
        How many numbers the vector has, at least 2.

    References
    ----------
    H. Asi, V. Feldman, K. Talwar, "Optimal algorithms for mean estimation under local differential
    privacy", ICML 2022.

    Examples
    --------
    >>> round(PrivUnitG(epsilon=4.0, d=1000).error / 1000, 3)
    0.435
    """

    name = "privunitg"

    def _part_beyond(self, q: float) -> float:
        from scipy.special import ndtri

        return exp(-(float(ndtri(q)) ** 2) / 2) / sqrt(2 * pi * self.d)

    def _quantile(self, probabilities: Floats) -> Floats:
        from scipy.special import ndtri

        found: Floats = ndtri(probabilities) / sqrt(self.d)
        return found

    def _across(self, rows: Floats, along: Floats, random: np.random.Generator) -> Floats:
        noise = random.standard_normal(rows.shape) / sqrt(self.d)
        return _without_part_along(noise, rows)

    @cached_property
    def mean_square(self) -> float:
        """The mean squared length of an estimate."""
        from scipy.special import ndtri

        q, p = self.beyond, self.probability
        threshold = -float(ndtri(q))
        tail = threshold * exp(-(threshold**2) / 2) / sqrt(2 * pi)
        along = p * (1 + tail / q) + (1 - p) * (1 - tail / (1 - q))
        return (along + self.d - 1) / self.d / self.scale**2

    @property
    def error(self) -> float:
        """The squared error of one answer, summed over all numbers of the vector."""
        return self.mean_square - 1


@final
@dataclass(frozen=True)
class ProjUnit(VectorMechanism):
    """ProjUnit: PrivUnitG of the vector's part in a random subspace that everybody knows.

    Parameters
    ----------
    epsilon
        The privacy budget of the whole vector, from 0.001 to 20.
    d
        How many numbers the vector has, at least 2.
    k
        The dimension of the subspace. By default it is d/4, and at least 2.

    References
    ----------
    H. Asi, V. Feldman, J. Nelson, H. Nguyen, K. Talwar, "Fast optimal locally private mean
    estimation via random projections", NeurIPS 2023, with independent rotations.

    Examples
    --------
    >>> mechanism = ProjUnit(epsilon=4.0, d=128)
    >>> mechanism.k, mechanism.bits, round(mechanism.error / 128, 3)
    (32, 1024, 0.464)
    """

    name = "projunit"

    k: int = field(default=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        k = validation.whole(self.k, "k") or max(2, self.d // 4)
        object.__setattr__(self, "k", k)
        if not 2 <= k <= self.d:
            raise DomainError(f"k must be from 2 to {self.d}; got {k}.")

    @cached_property
    def inner(self) -> PrivUnitG:
        """What answers the part in the subspace."""
        return PrivUnitG(self.epsilon, self.k)

    @property
    def _mean_length(self) -> float:
        """The mean length of the part: the root of a number with a Beta law."""
        halves = lgamma((self.k + 1) / 2) + lgamma(self.d / 2)
        return exp(halves - lgamma(self.k / 2) - lgamma((self.d + 1) / 2))

    @property
    def bits(self) -> int:
        """How many bits an answer takes; the subspace is known to everybody."""
        return self.inner.bits

    @property
    def error(self) -> float:
        """The squared error of one answer, summed over all numbers of the vector."""
        return self.inner.mean_square / self._mean_length**2 - 1

    def _answer(self, rows: Floats, random: np.random.Generator) -> Floats:
        answered = np.empty_like(rows)
        step = max(1, _CHUNK_NUMBERS // (self.d * self.k))
        for start in range(0, len(rows), step):
            mine = rows[start : start + step]
            bases = np.linalg.qr(random.standard_normal((len(mine), self.d, self.k)))[0]
            parts = (mine[:, None] @ bases)[:, 0]
            parts /= np.linalg.norm(parts, axis=1, keepdims=True)
            answers = self.inner.answer(parts, random) / self._mean_length
            answered[start : start + step] = (bases @ answers[:, :, None])[:, :, 0]
        return answered


@final
@dataclass(frozen=True)
class SimplexCoding(VectorMechanism):
    """Random rotated simplex coding (RRSC): one of the corners of a simplex, randomly rotated.

    Everybody knows the rotation. Of the corners, those next to the vector are sent more often.

    Parameters
    ----------
    epsilon
        The privacy budget of the whole vector, from 0.001 to 20.
    d
        How many numbers the vector has, at least 2.
    corners
        How many corners the simplex has, at most d + 1. By default it is the largest power of two
        with which epsilon + 1 bits, and d, can do.

    References
    ----------
    B. Isik, W.-N. Chen, A. Ozgur, T. Weissman, A. No, "Exact optimality of communication-privacy-
    utility tradeoffs in distributed mean estimation", NeurIPS 2023.

    Examples
    --------
    >>> mechanism = SimplexCoding(epsilon=4.0, d=128)
    >>> mechanism.bits, mechanism.best, round(mechanism.error / 128, 3)
    (6, 4, 0.445)
    """

    name = "rrsc"

    corners: int = field(default=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        default = 1 << min(ceil(self.epsilon) + 2, floor(log2(self.d + 1)))
        corners = validation.whole(self.corners, "corners") or max(2, default)
        object.__setattr__(self, "corners", corners)
        if not 2 <= corners <= self.d + 1:
            raise DomainError(f"corners must be from 2 to {self.d + 1}; got {corners}.")

    @property
    def bits(self) -> int:
        """How many bits an answer takes; the rotation is known to everybody."""
        return ceil(log2(self.corners))

    @cached_property
    def _top(self) -> Floats:
        """The mean sum of the largest products of a vector with the corners, for each number."""
        from scipy.special import bdtr, ndtr

        # The products are those of a vector of normal numbers, divided by its length.
        x = np.linspace(-9.0, 9.0, 4001)
        density = np.exp(-(x**2) / 2) / sqrt(2 * pi)
        others, beyond = self.corners - 1, ndtr(-x)
        ranks = np.arange(others)[:, None]
        sums = np.trapezoid(self.corners * x * density * bdtr(ranks, others, beyond), x, axis=1)
        length = sqrt(2) * exp(lgamma((self.d + 1) / 2) - lgamma(self.d / 2))
        scaled: Floats = sqrt(self.corners / others) * sums / length
        return scaled

    def _gain(self, best: int) -> float:
        odds = exp(self.epsilon)
        return float(self._top[best - 1]) * (odds - 1) / (best * odds + self.corners - best)

    @cached_property
    def best(self) -> int:
        """How many corners next to the vector are sent more often."""
        return max(range(1, self.corners), key=self._gain)

    @property
    def error(self) -> float:
        """The squared error of one answer, summed over all numbers of the vector."""
        return 1 / self._gain(self.best) ** 2 - 1

    def _answer(self, rows: Floats, random: np.random.Generator) -> Floats:
        number = self.corners
        simplex = _simplex(number)
        answers = np.empty_like(rows)
        odds, scale = exp(self.epsilon), self._gain(self.best)
        likely = self.best * odds / (self.best * odds + number - self.best)
        step = max(1, _CHUNK_NUMBERS // (self.d * number))
        for start in range(0, len(rows), step):
            mine = rows[start : start + step]
            frames = np.linalg.qr(random.standard_normal((len(mine), self.d, number - 1)))[0]
            order = np.argsort(-((mine[:, None] @ frames)[:, 0] @ simplex.T), axis=1)
            near = random.random(len(mine)) < likely
            rank = np.where(
                near,
                random.integers(self.best, size=len(mine)),
                random.integers(self.best, number, size=len(mine)),
            )
            sent = simplex[order[np.arange(len(mine)), rank]]
            answers[start : start + step] = (frames @ sent[:, :, None])[:, :, 0] / scale
        return answers


def _simplex(corners: int) -> Floats:
    """Return the corners of a regular simplex around 0, of length 1, in as few numbers as can be.

    >>> (_simplex(3) @ _simplex(3).T).round(2) + 0.0
    array([[ 1. , -0.5, -0.5],
           [-0.5,  1. , -0.5],
           [-0.5, -0.5,  1. ]])
    """
    centred = np.eye(corners) - 1 / corners
    basis = np.linalg.qr(centred[:, :-1])[0]
    found: Floats = centred @ basis * sqrt(corners / (corners - 1))
    return found


def _without_part_along(noise: Floats, rows: Floats) -> Floats:
    """Return the part of each row of noise that is orthogonal to a row of length 1."""
    across: Floats = noise - np.sum(noise * rows, axis=1, keepdims=True) * rows
    return across


NUMBER_MECHANISMS = (OneBitMean,)
"""All mechanisms here for one number in [-1, 1]."""

VECTOR_MECHANISMS: tuple[type[VectorMechanism], ...] = (
    PrivUnit,
    PrivUnitG,
    ProjUnit,
    SimplexCoding,
)
"""All mechanisms here for a vector."""
