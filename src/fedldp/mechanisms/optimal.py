"""Mechanisms found by linear programming: at the proven optimum, or better than HM-TP everywhere.

Each is a channel from the start. Finding one takes a second or two for 63 outputs, and up to a
minute for 255; it is kept in the cache.
"""

import contextlib
import json
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, Self, cast, final

import numpy as np

from fedldp import cache
from fedldp.channel import Channel, channel_epsilon
from fedldp.checks import Floats, whole
from fedldp.errors import DomainError, FedLDPError
from fedldp.mechanisms.base import Mechanism
from fedldp.mechanisms.certificate import Certificate, certificate
from fedldp.mechanisms.duchi import Duchi
from fedldp.mechanisms.finite import Finite
from fedldp.mechanisms.hybrid import HMTP
from fedldp.mechanisms.program import Solution, trapezoid
from fedldp.mechanisms.search import (
    four_outputs,
    letters_for,
    limits_under,
    search,
    to_channel,
)

SOLVER = 1  # part of the cache's keys: raise it when results change
MOST_OUTPUTS = 255
_NO_LIMIT = 1e4  # a factor so large that it demands nothing
_TIGHTER = (1.0, 0.9999, 0.999)
_ALLOWED = 1 + 1e-6  # for rounding to integers
_EVERYWHERE = np.linspace(-1.0, 1.0, 2**13 + 1)

Weights = Callable[[Floats], Floats]


class Solved(Finite):
    """A mechanism that is a channel, found by a linear program."""

    outputs: int

    def __post_init__(self) -> None:
        super().__post_init__()
        channel_epsilon(self.epsilon)
        if not 3 <= whole(self.outputs, "outputs") <= MOST_OUTPUTS:
            raise DomainError(f"outputs must be from 3 to {MOST_OUTPUTS}; got {self.outputs!r}.")

    @abstractmethod
    def _find(self) -> tuple[Channel, float]:
        """Return the channel, and the factor that its variance has against some limit."""

    @abstractmethod
    def _is_kept(self, channel: Channel, factor: float) -> bool:
        """Tell whether a channel keeps what this mechanism promises."""

    def _key(self) -> str:
        """Return a text that tells this mechanism from all others."""
        return repr(self)

    @cached_property
    def _found(self) -> tuple[Channel, float]:
        key = f"solver {SOLVER}: {self._key()}"
        kept = cache.load(key)
        if kept is not None:
            try:
                document = json.loads(kept)
                channel, factor = Channel.from_json(document["channel"]), float(document["factor"])
                fits = channel.epsilon == self.epsilon and channel.outputs <= self.outputs
                if fits and 0 < factor < np.inf and self._is_kept(channel, factor):
                    return channel, factor
            except (FedLDPError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
                pass  # damaged: find it again
        channel, factor = self._find()
        cache.save(key, json.dumps({"channel": channel.to_json(), "factor": factor}))
        return channel, factor

    def channel(self, outputs: int | None = None) -> Channel:
        if outputs is None:
            return self._found[0]
        other: Self = replace(cast(Any, self), outputs=outputs)
        return other.channel()

    @property
    def values(self) -> Floats:
        return self._found[0].values

    @cached_property
    def letters(self) -> Floats:
        return self._found[0].letters

    @cached_property
    def table(self) -> Floats:
        return self._found[0].table

    @cached_property
    def certificate(self) -> Certificate:
        """The proof of `lower_bound`."""
        return certificate(self.epsilon)

    @property
    def lower_bound(self) -> float:
        """What no unbiased mechanism with this epsilon can go below in the worst case."""
        return self.certificate.lower_bound

    def _draw(self, x: Floats, u: Floats, out: Floats, scratch: Floats) -> None:
        last = len(self.letters) - 1
        place = np.interp(x, self.letters, np.arange(last + 1))
        low = np.minimum(np.floor(place), last - 1)
        odds, u = place - low, u - 1
        up = u < odds
        letter = low + up
        # Given on which side of the odds it fell, u is still uniform there: stretch it.
        with np.errstate(invalid="ignore", divide="ignore"):
            u = np.where(up, u / odds, (u - odds) / (1 - odds))
        rows = np.cumsum(self.table, axis=1)
        rows[:, -1] = 1.0
        ends = (rows + np.arange(last + 1)[:, None]).reshape(-1)
        found = np.searchsorted(ends, letter + np.minimum(u, 1 - 2.0**-40), side="right")
        out[:] = self.values[found - (letter * len(self.values)).astype(np.int64)]


@final
@dataclass(frozen=True)
class Optimal(Solved):
    """The channel with evenly spaced outputs and the least worst-case variance.

    `weights`, a function of x, asks for the least weighted mean of the variance instead (x and -x
    are treated alike). `cap`, the name of a mechanism or a number, demands a variance no larger
    than that at every x.

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
        given = np.ones_like if self.weights is None else self.weights
        try:
            weights = np.broadcast_to(
                np.asarray(given(x), np.float64) + np.asarray(given(-x), np.float64), x.shape
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
            return np.asarray(_named(self.cap, self.epsilon).variance(x))
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
                    candidates.append(_named(self.cap, self.epsilon).channel())
        for factor in factors:  # a little tighter where rounding in the solver broke the cap
            solution = search(self.epsilon, self.outputs, right, limits, weights, factor)
            if solution is not None:
                candidates.append(self._channel(solution))
                if self._is_kept(candidates[-1], 1.0):
                    break
        fitting = [
            each for each in candidates if each.outputs <= self.outputs and self._is_kept(each, 1.0)
        ]
        if not fitting:
            raise DomainError(
                f"no channel with {self.outputs} outputs and epsilon {self.epsilon:g} was found "
                f"that stays below the cap {self.cap!r}; allow more."
            )
        mean = trapezoid(weights)
        return min(fitting, key=lambda each: float(mean @ each.variance(right))), 1.0

    def _channel(self, solution: Solution) -> Channel:
        return to_channel(solution, self.epsilon, letters_for(self.epsilon))

    def _is_kept(self, channel: Channel, factor: float) -> bool:
        cap = self._cap(_EVERYWHERE)
        return cap is None or bool(np.all(channel.variance(_EVERYWHERE) <= cap * _ALLOWED))


@final
@dataclass(frozen=True)
class Dominant(Solved):
    """At no input worse than HM-TP, the paper's best, and on average as good as that allows.

    Let f be the least factor such that some channel has at most f times HM-TP's variance at every
    x. Among the channels with at most (1 + f) / 2 times HM-TP's, this has the least mean variance.
    Where HM-TP is Duchi's mechanism, f is 1, and so is this. Where so few outputs cannot keep up
    with HM-TP, f is above 1, and this is the channel that comes closest: take more outputs.

    >>> round(Dominant(epsilon=1.0).factor, 2)
    0.93
    """

    name: ClassVar[str] = "dominant"
    epsilon: float
    outputs: int = 31

    @property
    def factor(self) -> float:
        """The least f such that f times HM-TP's variance can be had everywhere."""
        return self._found[1]

    def _is_kept(self, channel: Channel, factor: float) -> bool:
        return _is_below_paper(channel, max((1 + factor) / 2, factor))

    def _find(self) -> tuple[Channel, float]:
        paper = HMTP(self.epsilon)
        letters = letters_for(self.epsilon)
        right = letters[letters >= 0]
        if paper.beta == 0:
            return paper.channel(), 1.0
        limits = limits_under(self.epsilon, right, paper.variance)
        least = search(self.epsilon, self.outputs, right, limits)
        if least is None:
            raise DomainError(f"no channel was found for epsilon {self.epsilon:g}.")
        if least.factor >= 1:  # too few outputs for so large an epsilon
            return to_channel(least, self.epsilon, letters), least.factor
        half_way = (1 + least.factor) / 2
        solution = search(
            self.epsilon, self.outputs, right, limits, np.ones(len(right)), half_way, near=least
        )
        return to_channel(solution or least, self.epsilon, letters), least.factor


@final
@dataclass(frozen=True)
class NearZero(Solved):
    """For values near zero, such as gradients: the least variance there, never above HM-TP's.

    Minimises the mean variance for inputs that follow a Gaussian of width 0.15. Where so few
    outputs cannot keep up with HM-TP, `factor` is above 1 and tells by how much they miss it.

    >>> NearZero(epsilon=4.0).variance(0.0) < 0.8 * HMTP(epsilon=4.0).variance(0.0)
    np.True_
    """

    name: ClassVar[str] = "near-zero"
    epsilon: float
    outputs: int = 31

    @property
    def factor(self) -> float:
        """How many times HM-TP's variance this has at most: 1, or more with too few outputs."""
        return self._found[1]

    def _is_kept(self, channel: Channel, factor: float) -> bool:
        return _is_below_paper(channel, factor)

    def _find(self) -> tuple[Channel, float]:
        paper = HMTP(self.epsilon)
        letters = letters_for(self.epsilon)
        right = letters[letters >= 0]
        if paper.beta == 0:
            return paper.channel(), 1.0
        weights = np.exp(-0.5 * (right / 0.15) ** 2)
        limits = limits_under(self.epsilon, right, paper.variance)
        solution = search(self.epsilon, self.outputs, right, limits, weights, 1.0)
        if solution is None:  # too few outputs for so large an epsilon: come as close as possible
            solution = search(self.epsilon, self.outputs, right, limits)
        if solution is None:
            raise DomainError(f"no channel was found for epsilon {self.epsilon:g}.")
        return to_channel(solution, self.epsilon, letters), solution.factor


def best(epsilon: float, bits: int) -> Channel:
    """Return the channel with the least worst-case variance whose codes fit so many bits.

    >>> [round(best(1.0, bits).worst_case_variance, 2) for bits in (1, 2, 3)]
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


def _is_below_paper(channel: Channel, factor: float) -> bool:
    limit = factor * HMTP(channel.epsilon).variance(_EVERYWHERE)
    return bool(np.all(channel.variance(_EVERYWHERE) <= limit * _ALLOWED))


def _named(name: str, epsilon: float) -> Mechanism:
    from fedldp.mechanisms import mechanism  # the registry, which lists this module's classes too

    return mechanism(name, epsilon)


def _worst(channel: Channel) -> float:
    return channel.worst_case_variance
