"""The optimum: the least worst-case variance there is, or the least mean under a cap."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar, cast, final

import numpy as np

from fedldp._internal.validation import Floats, whole
from fedldp.coders.channel import Channel
from fedldp.errors import DomainError
from fedldp.mechanisms.base import Mechanism
from fedldp.mechanisms.duchi import Duchi
from fedldp.mechanisms.optimal.program import Solution, trapezoid
from fedldp.mechanisms.optimal.search import (
    four_outputs,
    letters_for,
    limits_under,
    search,
    to_channel,
)
from fedldp.mechanisms.optimal.solved import Solved, is_below

_NO_LIMIT = 1e4  # a factor so large that it demands nothing
_TIGHTER = (1.0, 0.9999, 0.999)

Weights = Callable[[Floats], Floats]


@final
@dataclass(frozen=True)
class Optimal(Solved):
    """The channel with evenly spaced outputs and the least worst-case variance.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 16.
    outputs
        The number of outputs, from 3 to 255.
    weights
        A function from an array of inputs to an array of weights. If it is given, the weighted
        mean of the variance is minimized instead; x and -x are treated alike.
    cap
        The name of a mechanism, or a number: the variance must not exceed it at any x.

    Examples
    --------
    >>> best = Optimal(epsilon=1.0, outputs=31)
    >>> round(best.worst_case_variance, 2), round(best.lower_bound, 2)
    (3.99, 3.99)
    """

    name: ClassVar[str] = "optimal"
    epsilon: float
    outputs: int = 31
    weights: Weights | None = None
    cap: str | float | None = None

    def _key(self) -> str:
        x = self._right
        weights, cap = self._weights(x), self._cap(x)
        numbers = [None if each is None else each.tolist() for each in (weights, cap)]
        return repr((self.name, self.epsilon, self.outputs, numbers))

    @property
    def _right(self) -> Floats:
        letters = letters_for(self.epsilon)
        return letters[letters >= 0]

    def _weights(self, x: Floats) -> Floats | None:
        if self.weights is None and self.cap is None:
            return None
        weight_function = np.ones_like if self.weights is None else self.weights
        try:
            weights = np.broadcast_to(
                np.asarray(weight_function(x), np.float64)
                + np.asarray(weight_function(-x), np.float64),
                x.shape,
            )
        except (TypeError, ValueError) as error:
            raise DomainError(
                f"weights must be a function from arrays to arrays: {error}"
            ) from error
        if not (np.all(weights >= 0) and 0 < weights.sum() < np.inf):
            raise DomainError("weights must be finite and not negative, and somewhere positive.")
        return weights

    def _cap(self, x: Floats) -> Floats | None:
        if self.cap is None:
            return None
        if isinstance(self.cap, str):
            return np.asarray(_mechanism(self.cap, self.epsilon).variance(x))
        is_number = isinstance(self.cap, Real) and not isinstance(self.cap, bool)
        if not is_number or not 0 < self.cap < 1e9:
            raise DomainError(
                f"cap must be a mechanism's name, or positive and below 1e9; got {self.cap!r}."
            )
        return np.full(x.shape, float(self.cap))

    def _find(self) -> tuple[Channel, float]:
        right, duchi = self._right, Duchi(self.epsilon).channel()
        weights = self._weights(right)
        if weights is None:
            solution = search(self.epsilon, self.outputs, right, limits_under(self.epsilon, right))
            if solution is None:
                raise DomainError(f"no channel was found for epsilon {self.epsilon:g}.")
            # For very small epsilon two outputs beat any even grid.
            return min(self._channel(solution), duchi, key=_worst), solution.factor
        candidates = [duchi]
        factors: tuple[float, ...] = (_NO_LIMIT,)
        limits = limits_under(self.epsilon, right)
        if self.cap is not None:
            limits = limits_under(self.epsilon, right, cast(Weights, self._cap))
            factors = _TIGHTER
            if isinstance(self.cap, str):
                with contextlib.suppress(DomainError):
                    candidates.append(_mechanism(self.cap, self.epsilon).channel())
        for factor in factors:  # a little tighter where rounding in the solver broke the cap
            solution = search(self.epsilon, self.outputs, right, limits, weights, factor)
            if solution is not None:
                candidates.append(self._channel(solution))
                if self._is_kept(candidates[-1], 1.0):
                    break
        fitting = [
            candidate
            for candidate in candidates
            if candidate.outputs <= self.outputs and self._is_kept(candidate, 1.0)
        ]
        if not fitting:
            raise DomainError(
                f"no channel with {self.outputs} outputs and epsilon {self.epsilon:g} was found "
                f"that stays below the cap {self.cap!r}; allow more."
            )
        mean = trapezoid(weights)
        return min(fitting, key=lambda candidate: float(mean @ candidate.variance(right))), 1.0

    def _channel(self, solution: Solution) -> Channel:
        return to_channel(solution.outputs, solution.base, self.epsilon)

    def _is_kept(self, channel: Channel, factor: float) -> bool:
        return self.cap is None or is_below(channel, cast(Weights, self._cap))


def best_channel(epsilon: float, bits: int) -> Channel:
    """Return the channel with the least worst-case variance whose codes fit a number of bits.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 16.
    bits
        The number of bits of a code, from 1 to 8.

    Returns
    -------
    Channel
        The best channel that was found.

    Raises
    ------
    DomainError
        If epsilon or bits is out of range.

    Examples
    --------
    >>> [round(best_channel(1.0, bits).worst_case_variance, 2) for bits in (1, 2, 3)]
    [4.68, 4.15, 4.01]
    """
    if not 1 <= whole(bits, "bits") <= 8:
        raise DomainError(f"bits must be a whole number from 1 to 8; got {bits!r}.")
    candidates = [Duchi(epsilon).channel()]
    if bits >= 2:
        candidates.append(four_outputs(epsilon))
        candidates += [Optimal(epsilon, outputs=n).channel() for n in _counts_for(epsilon, bits)]
    return min((each for each in candidates if each.bits <= bits), key=_worst)


def _counts_for(epsilon: float, bits: int) -> list[int]:
    """Return numbers of evenly spaced outputs to try.

    For small epsilon the best channel leaves out those near 0, so that more of them than there
    are codes can still fit.
    """
    full = 1 << bits
    most = 4 if epsilon < 1 else 2
    more = [full * 3 // 2, *(full * times for times in range(2, most + 1))]
    return [full - 1, full, *(n for n in more if n <= 64)]


def _mechanism(name: str, epsilon: float) -> Mechanism:
    from fedldp.mechanisms import mechanism  # the registry, which lists this module's classes too

    return mechanism(name, epsilon)


def _worst(channel: Channel) -> float:
    return channel.worst_case_variance
