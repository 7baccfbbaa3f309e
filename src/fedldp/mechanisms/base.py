"""What every mechanism for one number in [-1, 1] has in common."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedldp._internal import validation
from fedldp._internal.validation import Floats
from fedldp.coders.channel import Channel
from fedldp.coders.tables import largest_piecewise_quadratic
from fedldp.errors import DomainError
from fedldp.randomness import StudySource, from_one_to_two, study_source

_CHUNK_VALUES = 1 << 16  # a few arrays of this size stay in the cache
_SCRATCH_ARRAYS = 3  # of that size, which a mechanism may use meanwhile


class Mechanism(ABC):
    """An unbiased, epsilon-locally private randomizer of one number in [-1, 1].

    Given x, the law of the output has point masses, `probabilities(x)` on `values`, and
    elsewhere a `density(y, x)`. Purely discrete mechanisms have no density, purely continuous
    ones no values, and hybrids have both.

    This is the base class of all mechanisms. Each of them takes the privacy budget `epsilon` as
    its first parameter.

    Attributes
    ----------
    name
        The name of the mechanism in the registry: see `mechanism_names`.
    epsilon
        The privacy budget, from 0.001 to 20.

    Examples
    --------
    >>> import fedldp
    >>> laws = [fedldp.mechanism(name, epsilon=1.0) for name in ("duchi", "pm-sub", "hm-tp")]
    >>> [round(law.worst_case_variance, 2) for law in laws]
    [4.68, 5.08, 4.42]
    """

    name: ClassVar[str]
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validation.studied_epsilon(self.epsilon))

    @property
    @abstractmethod
    def bound(self) -> float:
        """The largest possible absolute value of the output."""

    @property
    @abstractmethod
    def values(self) -> Floats:
        """The outputs that can have a probability of their own, ascending."""

    def perturb(self, x: npt.ArrayLike, source: StudySource | None = None) -> Any:
        """Return one noisy output for each number in x.

        This is the paper's mechanism in floating point, for study. Do not release its outputs:
        the last bits of a float can reveal which x it came from, however large the noise. What a
        vehicle sends comes from a table of integers: `channel().encode(x, source)`.

        Parameters
        ----------
        x
            A number in [-1, 1], or an array of such numbers.
        source
            The random source, from `fedldp.source`, or a generator of NumPy.

        Returns
        -------
        float or array
            A float if x is a number, otherwise an array of the shape of x.

        Raises
        ------
        DomainError
            If x is not a number in [-1, 1], or there is no source.

        Examples
        --------
        >>> import fedldp
        >>> fedldp.mechanisms.Duchi(epsilon=1.0).perturb([0.3, -0.7], fedldp.source(7)).round(3)
        array([-2.164, -2.164])
        """
        array = validation.reals(x, "x")
        drawn = study_source(source)
        noisy = np.empty(array.shape)
        flat_x, flat_noisy = array.reshape(-1), noisy.reshape(-1)
        words = np.empty(min(_CHUNK_VALUES, array.size), np.uint64)
        scratch = np.empty((_SCRATCH_ARRAYS, words.size))
        for start in range(0, array.size, _CHUNK_VALUES):
            values = flat_x[start : start + _CHUNK_VALUES]
            n = values.size
            if not validation.is_unit(values, scratch[0, :n]):  # here, while they are in the cache
                validation.unit(array)  # refuses, and says where
            drawn.fill(words[:n])
            out = flat_noisy[start : start + n]
            self._draw(values, from_one_to_two(words[:n]), out, scratch[:, :n])
        return noisy[()]

    def variance(self, x: npt.ArrayLike) -> Any:
        """Return the variance of the output for each number in x.

        Parameters
        ----------
        x
            A number in [-1, 1], or an array of such numbers.

        Returns
        -------
        float or array
            A float if x is a number, otherwise an array of the shape of x.

        Raises
        ------
        DomainError
            If x is not in [-1, 1].

        Examples
        --------
        >>> import fedldp
        >>> fedldp.mechanisms.HMTP(epsilon=2.0).variance([0.0, 1.0]).round(3)
        array([0.504, 0.972])
        """
        return self._variance(validation.unit(x))[()]

    @property
    def worst_case_variance(self) -> float:
        """The largest variance over all x in [-1, 1]: what the paper compares."""
        return largest_piecewise_quadratic(self._variance, np.array(self._knots))

    def quick_variance(self, outputs: int | None = None) -> float:
        """Return the worst-case variance of the channel, or nearly that, without a long search.

        A plan that chooses how many numbers to ask for compares it at many epsilons.

        Parameters
        ----------
        outputs
            The number of outputs of the channel: see `channel`. By default it is the variance of
            the mechanism itself.

        Returns
        -------
        float
            The largest variance. A mechanism that a linear program finds returns that of HM-TP,
            which a formula gives.

        Examples
        --------
        >>> import fedldp
        >>> round(fedldp.mechanisms.Duchi(epsilon=1.0).quick_variance(), 2)
        4.68
        """
        return (self if outputs is None else self.channel(outputs)).worst_case_variance

    def probabilities(self, x: npt.ArrayLike) -> Floats:
        """Return the probability of each of `values`.

        Parameters
        ----------
        x
            A number in [-1, 1], or an array of such numbers.

        Returns
        -------
        array
            The probabilities, along a new last axis. They add up to 1 only if the mechanism has no
            density.

        Raises
        ------
        DomainError
            If x is not in [-1, 1].

        Examples
        --------
        >>> import fedldp
        >>> fedldp.mechanisms.ThreeOutputs(epsilon=1.0).probabilities(0.5).round(3)
        array([0.299, 0.196, 0.506])
        """
        return self._probabilities(validation.unit(x))

    def density(self, y: npt.ArrayLike, x: npt.ArrayLike) -> Any:
        """Return the density of the continuous part of the output's law.

        Parameters
        ----------
        y
            An output, or an array of outputs.
        x
            The input in [-1, 1], or an array of inputs whose shape matches that of y.

        Returns
        -------
        float or array
            The density at output y, given input x. Point masses are not part of it.

        Raises
        ------
        DomainError
            If x is not in [-1, 1], if y contains NaN, or if the shapes do not match.

        Examples
        --------
        >>> import fedldp
        >>> fedldp.mechanisms.PM(epsilon=1.0).density([0.0, 2.0], 0.0).round(3)
        array([0.202, 0.074])
        """
        outputs, inputs = validation.reals(y, "y"), validation.unit(x)
        if np.isnan(outputs).any():
            raise DomainError("y must not contain NaN.")
        try:
            outputs, inputs = np.broadcast_arrays(outputs, inputs)
        except ValueError:
            raise DomainError(
                f"y and x must have matching shapes; got {outputs.shape} and {inputs.shape}."
            ) from None
        return self._density(outputs, inputs)[()]

    @abstractmethod
    def channel(self, outputs: int | None = None) -> Channel:
        """Return the exact form of this mechanism, whose outputs may be released.

        Parameters
        ----------
        outputs
            The number of outputs. A mechanism with a continuous output is discretized to an odd
            number of outputs, from 3 to 4001 (the paper's Algorithm 5); the default costs less
            than 0.5% in variance. A mechanism found by linear programming takes from 3 to 255.
            Other mechanisms have a fixed number of outputs.

        Returns
        -------
        Channel
            A table of integers, checked to be epsilon-private.

        Raises
        ------
        DomainError
            If the mechanism has no channel, or none with this number of outputs, or if epsilon is
            above 16.

        Examples
        --------
        >>> import fedldp
        >>> fedldp.mechanisms.PMSub(epsilon=1.0).channel(outputs=33)
        <Channel: epsilon 1, 33 letters to 33 outputs, 6 bits>
        """

    @property
    @abstractmethod
    def _knots(self) -> tuple[float, ...]:
        """0 = knots[0] < ... < knots[-1] = 1 between which the variance is quadratic in |x|."""

    @abstractmethod
    def _draw(self, x: Floats, u: Floats, out: Floats, scratch: Floats) -> None:
        """Turn numbers u, uniform on [1, 2), into outputs for x; scratch[0] holds |x| at the start.

        Most of the time of `perturb` is spent here. In NumPy plain arithmetic into existing arrays
        is fast; a `where`, a masked write, a `copysign` or a `sign` takes as long as several
        additions.
        """

    @abstractmethod
    def _variance(self, x: Floats) -> Floats: ...

    @abstractmethod
    def _probabilities(self, x: Floats) -> Floats: ...

    @abstractmethod
    def _density(self, y: Floats, x: Floats) -> Floats: ...
