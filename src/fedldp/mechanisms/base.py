"""What every mechanism for one number in [-1, 1] has in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedldp import checks
from fedldp.checks import Floats
from fedldp.source import Source, from_one_to_two

_CHUNK = 1 << 16  # values perturbed at a time: a few arrays of this size stay in the cache
_SCRATCH = 3  # arrays of that size that a mechanism may use meanwhile


class Mechanism(ABC):
    """An unbiased, epsilon-locally private randomizer of one number in [-1, 1].

    Given x, the law of the output has point masses, `probabilities(x)` on `values`, and
    elsewhere a `density(y, x)`. Purely discrete mechanisms have no density, purely continuous
    ones no values, and hybrids have both.
    """

    name: ClassVar[str]
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checks.epsilon(self.epsilon))

    @property
    @abstractmethod
    def bound(self) -> float:
        """The largest possible absolute value of the output."""

    @property
    @abstractmethod
    def values(self) -> Floats:
        """The outputs with a positive probability of their own, ascending."""

    def perturb(self, x: npt.ArrayLike, source: Source) -> Any:
        """Return one noisy output for each number in x: a float, or an array like x.

        This is the paper's mechanism in floating point, for study. Do not release its outputs:
        the last bits of a float can tell which x it came from, however large the noise. What a
        vehicle sends has to come from a table of integers.
        """
        array = checks.reals(x, "x")
        noisy = np.empty(array.shape, array.dtype)
        flat_x, flat_noisy = array.reshape(-1), noisy.reshape(-1)
        words = np.empty(min(_CHUNK, array.size), np.uint64)
        scratch = np.empty((_SCRATCH, words.size))
        for start in range(0, array.size, _CHUNK):
            part = slice(start, min(start + _CHUNK, array.size))
            n = part.stop - start
            values = flat_x[part].astype(np.float64, copy=False)
            if not np.abs(values, out=scratch[0, :n]).max() <= 1.0:  # NaN included
                checks.unit(array)  # refuses, and says where
            source.fill(words[:n])
            drawn = flat_noisy[part].astype(np.float64, copy=False)
            self._draw(values, from_one_to_two(words[:n]), drawn, scratch[:, :n])
            if noisy.dtype != np.float64:  # then drawn is a copy
                flat_noisy[part] = drawn
        return noisy[()]

    def variance(self, x: npt.ArrayLike) -> Any:
        """Return the variance of the output for each number in x."""
        return self._variance(checks.unit(x).astype(np.float64, copy=False))[()]

    @property
    def worst_case_variance(self) -> float:
        """The largest variance over all x in [-1, 1]: what the paper compares."""
        return _largest_piecewise_quadratic(self._variance, np.array(self._knots))

    def probabilities(self, x: npt.ArrayLike) -> Floats:
        """Return the probability of each of `values`, along a new last axis."""
        return self._probabilities(checks.unit(x).astype(np.float64, copy=False))

    def density(self, y: npt.ArrayLike, x: npt.ArrayLike) -> Any:
        """Return the density at output y, given input x, of what is not a point mass."""
        outputs = checks.reals(y, "y").astype(np.float64, copy=False)
        inputs = checks.unit(x).astype(np.float64, copy=False)
        return self._density(*np.broadcast_arrays(outputs, inputs))[()]

    @property
    @abstractmethod
    def _knots(self) -> tuple[float, ...]:
        """0 = knots[0] < ... < knots[-1] = 1 between which the variance is quadratic in |x|."""

    @abstractmethod
    def _draw(self, x: Floats, u: Floats, out: Floats, scratch: Floats) -> None:
        """Turn numbers u, uniform on [1, 2), into outputs for x; scratch[0] brings |x|.

        Speed is decided here. In NumPy plain arithmetic into existing arrays is fast, whereas a
        `where`, a masked write, a `copysign` or a `sign` takes as long as several additions.
        """

    @abstractmethod
    def _variance(self, x: Floats) -> Floats: ...

    @abstractmethod
    def _probabilities(self, x: Floats) -> Floats: ...

    @abstractmethod
    def _density(self, y: Floats, x: Floats) -> Floats: ...


def _largest_piecewise_quadratic(function: Callable[[Floats], Floats], knots: Floats) -> float:
    """Return the maximum of a function that is quadratic between consecutive knots."""
    left, right = knots[:-1], knots[1:]
    middle, half = (left + right) / 2, (right - left) / 2
    low, mid, high = function(left), function(middle), function(right)
    curvature = low - 2 * mid + high
    concave = curvature < 0
    summits = middle - half * (high - low) / (2 * np.where(concave, curvature, -1.0))
    return float(np.max(function(np.clip(np.concatenate([knots, summits]), 0.0, 1.0))))
