"""Distributions of numbers in [0, 1]: the share of each of some equal bins."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, exp, log, log2
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from fedldp._internal import validation
from fedldp._internal.validation import Floats
from fedldp.baselines.frequencies import FrequencyOracle, OptimizedUnaryEncoding
from fedldp.coders.categories import project
from fedldp.errors import DomainError
from fedldp.randomness import StudySource, study_generator

_FLOAT_BITS = 32  # of a number that is sent in floating point
_LEAST_EM_CELLS = 256
_MOST_EM_STEPS = 10_000  # it stops long before


@dataclass(frozen=True)
class DistributionMethod(ABC):
    """Asks each vehicle for its number, and estimates how the numbers of all are distributed.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.
    bins
        In how many equal bins of [0, 1] the distribution is described, at least 2.

    Raises
    ------
    DomainError
        If a parameter is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> method = SquareWave(epsilon=4.0, bins=4)
    >>> random = np.random.default_rng(1)
    >>> method.shares(random.beta(2, 5, size=50_000), random).round(1)
    array([0.5, 0.4, 0.1, 0. ])
    """

    name: ClassVar[str]

    epsilon: float
    bins: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validation.studied_epsilon(self.epsilon))
        object.__setattr__(self, "bins", validation.whole(self.bins, "bins"))
        if self.bins < 2:
            raise DomainError(f"there must be at least 2 bins; got {self.bins}.")

    @property
    @abstractmethod
    def bits(self) -> int:
        """How many bits an answer takes."""

    def shares(self, values: npt.ArrayLike, random: StudySource | int) -> Floats:
        """Simulate a fleet, and return the share of each bin that is estimated from its answers.

        Parameters
        ----------
        values
            A number in [0, 1] for each vehicle.
        random
            A generator of NumPy, a `fedldp.Source` or a seed.

        Returns
        -------
        array of float
            Shares that are not negative and add up to 1.

        Raises
        ------
        DomainError
            If a value is outside of [0, 1].

        Examples
        --------
        >>> HierarchicalHistogram(epsilon=8.0, bins=4).shares([0.9] * 10_000, random=1).round(1)
        array([0., 0., 0., 1.])
        """
        x = validation.reals(values, "values")
        if x.size == 0 or not (x.min() >= 0 and x.max() <= 1):
            raise DomainError("values must lie in [0, 1], and be at least one.")
        return self._shares(x.reshape(-1), study_generator(random))

    @abstractmethod
    def _shares(self, x: Floats, random: np.random.Generator) -> Floats: ...

    def _bin_of(self, x: Floats) -> npt.NDArray[np.int64]:
        return np.minimum((x * self.bins).astype(np.int64), self.bins - 1)


@final
@dataclass(frozen=True)
class SquareWave(DistributionMethod):
    """Square wave: a number near the true one, more likely; then EM finds the distribution.

    After each step of EM, neighboring shares are averaged with the weights (1, 2, 1) / 4.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.
    bins
        In how many equal bins of [0, 1] the distribution is described, at least 2.
    smooth
        Whether shares are averaged (EMS), or not (EM).

    References
    ----------
    Z. Li, T. Wang, M. Lopuhaa-Zwakenberg, B. Skoric, N. Li, "Estimating numerical distributions
    under local differential privacy", SIGMOD 2020.

    Examples
    --------
    >>> round(SquareWave(epsilon=1.0, bins=32).reach, 3)
    0.256
    """

    name = "square-wave"

    smooth: bool = field(default=True)

    @property
    def reach(self) -> float:
        """How far a likely answer is from the number: the paper's b."""
        e, odds = self.epsilon, exp(self.epsilon)
        if e < 1e-2:  # the limit, where the formula loses all digits
            return 0.5 - e / 3
        return (e * odds - odds + 1) / (2 * odds * (odds - 1 - e))

    @property
    def densities(self) -> tuple[float, float]:
        """The density of answers near the number, and of all others."""
        odds = exp(self.epsilon)
        total = 2 * self.reach * odds + 1
        return odds / total, 1 / total

    @property
    def bits(self) -> int:
        """How many bits an answer takes: a floating-point number."""
        return _FLOAT_BITS

    def answer(self, values: npt.ArrayLike, random: StudySource | int) -> Floats:
        """Return what vehicles with some numbers send.

        Parameters
        ----------
        values
            Numbers in [0, 1].
        random
            A generator of NumPy, a `fedldp.Source` or a seed.

        Returns
        -------
        array of float
            Numbers from -reach to 1 + reach.

        Examples
        --------
        >>> answers = SquareWave(epsilon=1.0, bins=8).answer([0.2, 0.7], random=1)
        >>> bool(answers.min() >= -0.257 and answers.max() <= 1.257)
        True
        """
        x, generator = validation.reals(values, "values"), study_generator(random)
        near = generator.random(x.shape) < 2 * self.reach * self.densities[0]
        anywhere = generator.random(x.shape)
        far = np.where(anywhere < x, anywhere - self.reach, anywhere + self.reach)
        return np.where(near, x + generator.uniform(-self.reach, self.reach, x.shape), far)

    @property
    def cells(self) -> int:
        """How many equal cells EM knows: smoothing must not reach from one bin far into others."""
        return self.bins * -(-_LEAST_EM_CELLS // self.bins)

    @cached_property
    def transitions(self) -> Floats:
        """The probability of each of as many intervals of answers, given the centre of a cell."""
        edges = np.linspace(-self.reach, 1 + self.reach, self.cells + 1)
        centres = (np.arange(self.cells) + 0.5) / self.cells
        low = np.maximum(edges[:-1, None], centres - self.reach)
        high = np.minimum(edges[1:, None], centres + self.reach)
        near, far = self.densities
        found: Floats = far * np.diff(edges)[:, None] + (near - far) * np.maximum(high - low, 0.0)
        return found

    def _shares(self, x: Floats, random: np.random.Generator) -> Floats:
        ends = (-self.reach, 1 + self.reach)
        counts = np.histogram(self.answer(x, random), self.cells, ends)[0]
        shares, before = np.full(self.cells, 1 / self.cells), -np.inf
        for _ in range(_MOST_EM_STEPS):
            expected = self.transitions @ shares
            likelihood = float(counts @ np.log(expected))
            if likelihood - before < 1e-3 * exp(self.epsilon):
                break
            before = likelihood
            shares = shares * (self.transitions.T @ (counts / expected))
            if self.smooth:
                padded = np.pad(shares, 1, mode="edge")
                shares = padded[:-2] / 4 + padded[1:-1] / 2 + padded[2:] / 4
            shares /= shares.sum()
        binned: Floats = shares.reshape(self.bins, -1).sum(axis=1)
        return binned


@final
@dataclass(frozen=True)
class HierarchicalHistogram(DistributionMethod):
    """Hierarchical histogram (HH): OUE about the node of one level of a tree of intervals.

    A vehicle draws a level. Least squares make the shares of all levels consistent.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.
    bins
        In how many equal bins of [0, 1] the distribution is described, at least 2.
    branches
        Into how many intervals each interval is divided.

    References
    ----------
    G. Cormode, T. Kulkarni, D. Srivastava, "Answering range queries under local differential
    privacy", VLDB 2019; M. Hay, V. Rastogi, G. Miklau, D. Suciu, "Boosting the accuracy of
    differentially private histograms through consistency", VLDB 2010.

    Examples
    --------
    >>> HierarchicalHistogram(epsilon=1.0, bins=64).levels
    3
    """

    name = "hierarchical"

    branches: int = field(default=4)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "branches", validation.whole(self.branches, "branches"))
        if self.branches < 2:
            raise DomainError(f"branches must be at least 2; got {self.branches}.")

    @property
    def levels(self) -> int:
        """How many levels the tree has, its root not counted."""
        return max(1, ceil(round(log(self.bins) / log(self.branches), 9)))

    @property
    def bits(self) -> int:
        """How many bits an answer takes at the finest level: the level, and a bit for each bin."""
        return ceil(log2(self.levels)) + self.bins

    def _width(self, level: int) -> int:
        """Return how many bins a node of a level has, of which level 1 is the coarsest."""
        return int(self.branches ** (self.levels - level))

    def _oracle(self, level: int) -> FrequencyOracle:
        nodes = -(-self.bins // self._width(level))
        return OptimizedUnaryEncoding(self.epsilon, max(2, nodes))

    @cached_property
    def consistent(self) -> Floats:
        """The matrix that turns the shares of all nodes, level by level, into those of bins."""
        rows, weights = [], []
        for level in range(1, self.levels + 1):
            oracle = self._oracle(level)
            nodes = np.arange(self.bins) // self._width(level)
            rows.append(np.arange(oracle.categories)[:, None] == nodes)
            weights += [oracle.categories / oracle.worst_error] * oracle.categories
        tree = np.vstack(rows).astype(np.float64)
        weighted = tree.T * np.array(weights)
        shares: Floats = np.linalg.solve(weighted @ tree, weighted)
        return shares

    def covariance(self) -> Floats:
        """Return the covariance of the bins' shares for one answer, before they are projected.

        Frequencies are taken as small, so that each node has the noise of a frequency 0.

        Returns
        -------
        array of float
            A row and a column for each bin.

        Examples
        --------
        >>> HierarchicalHistogram(epsilon=1.0, bins=16).covariance().shape
        (16, 16)
        """
        noise = []
        for level in range(1, self.levels + 1):
            oracle = self._oracle(level)
            p, q = 0.5, 1 / (exp(self.epsilon) + 1)
            noise += [self.levels * q * (1 - q) / (p - q) ** 2] * oracle.categories
        found: Floats = self.consistent * np.array(noise) @ self.consistent.T
        return found

    def unbiased_shares(self, values: npt.ArrayLike, random: StudySource | int) -> Floats:
        """Simulate a fleet, and return the consistent shares before they are projected.

        Parameters
        ----------
        values
            A number in [0, 1] for each vehicle.
        random
            A generator of NumPy, a `fedldp.Source` or a seed.

        Returns
        -------
        array of float
            Unbiased shares, of which some may be negative.

        Examples
        --------
        >>> method = HierarchicalHistogram(epsilon=8.0, bins=4)
        >>> method.unbiased_shares([0.9] * 10_000, random=1).round(1) + 0.0
        array([0., 0., 0., 1.])
        """
        generator, x = study_generator(random), validation.reals(values, "values")
        own, levels = self._bin_of(x), list[Any]()
        level_of = generator.integers(1, self.levels + 1, size=own.size)
        for level in range(1, self.levels + 1):
            oracle = self._oracle(level)
            nodes = own[level_of == level] // self._width(level)
            answers = oracle.answer(nodes, generator)
            levels.append(oracle.estimate(answers) if nodes.size else np.zeros(oracle.categories))
        shares: Floats = self.consistent @ np.concatenate(levels)
        return shares

    def _shares(self, x: Floats, random: np.random.Generator) -> Floats:
        return project(self.unbiased_shares(x, random))


@final
@dataclass(frozen=True)
class BinnedOracle(DistributionMethod):
    """A frequency oracle about bins, whose estimates are projected to shares.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 20.
    bins
        In how many equal bins of [0, 1] the distribution is described, at least 2.
    oracle
        The class of the frequency oracle.

    References
    ----------
    T. Wang, M. Lopuhaa-Zwakenberg, Z. Li, B. Skoric, N. Li, "Locally differentially private
    frequency estimation with consistency", NDSS 2020, where the projection is called Norm-Sub.

    Examples
    --------
    >>> BinnedOracle(epsilon=8.0, bins=4).shares([0.9] * 10_000, random=1).round(1)
    array([0., 0., 0., 1.])
    """

    oracle: type[FrequencyOracle] = field(default=OptimizedUnaryEncoding)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the oracle, and what is done with it."""
        return f"{self.oracle.name}-bins"

    @cached_property
    def _oracle(self) -> FrequencyOracle:
        return self.oracle(self.epsilon, self.bins)

    @property
    def bits(self) -> int:
        """How many bits an answer takes."""
        return self._oracle.bits

    def _shares(self, x: Floats, random: np.random.Generator) -> Floats:
        return project(self._oracle.estimate(self._oracle.answer(self._bin_of(x), random)))


DISTRIBUTION_METHODS: tuple[type[DistributionMethod], ...] = (SquareWave, HierarchicalHistogram)
"""All methods here that are for distributions alone."""
