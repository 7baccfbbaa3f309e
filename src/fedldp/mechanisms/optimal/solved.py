"""What the mechanisms found by linear programming have in common.

Each is a channel from the start. Finding one takes a second or two for 63 outputs, and up to a
minute for 255; it is kept in the cache. The usual ones come with the library.
"""

import json
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal import cache, validation
from fedldp._internal.validation import Floats, whole
from fedldp.coders.channel import Channel
from fedldp.errors import DomainError, FedLDPError
from fedldp.mechanisms.duchi import Duchi
from fedldp.mechanisms.finite import Finite
from fedldp.mechanisms.hybrid import HMTP
from fedldp.mechanisms.optimal import solutions
from fedldp.mechanisms.optimal.certificate import Certificate, certificate
from fedldp.mechanisms.optimal.program import SOLVER_VERSION
from fedldp.mechanisms.optimal.search import to_channel

MOST_OUTPUTS = 255
_ROUNDING_TOLERANCE = 1 + 1e-6
_DOUBTFUL_SHARE = 2.0**-32  # rounding may favour a column that only leads to another output
_EVERYWHERE = np.linspace(-1.0, 1.0, 2**13 + 1)


class Solved(Finite):
    """A mechanism that is a channel, found by a linear program.

    This is the base class of `Optimal`, `Dominant` and `NearZero`. The channel is computed when it
    is first used, and kept in the cache. Outputs that would never be drawn are left out of it.

    Attributes
    ----------
    outputs
        The largest number of outputs, from 3 to 255.

    Examples
    --------
    >>> import fedldp
    >>> fedldp.mechanisms.Dominant(epsilon=2.0, outputs=15).channel()
    <Channel: epsilon 2, 65 letters to 11 outputs, 4 bits>
    """

    outputs: int

    def __post_init__(self) -> None:
        super().__post_init__()
        validation.epsilon(self.epsilon)
        if not 3 <= whole(self.outputs, "outputs") <= MOST_OUTPUTS:
            raise DomainError(f"outputs must be from 3 to {MOST_OUTPUTS}; got {self.outputs!r}.")

    @abstractmethod
    def _find(self) -> tuple[Channel, float]:
        """Return the channel, and the factor that its variance has against some limit."""

    @abstractmethod
    def _is_kept(self, channel: Channel, factor: float) -> bool:
        """Return whether a channel satisfies what this mechanism guarantees."""

    def _key(self) -> str:
        """Return a text that identifies this mechanism in the cache."""
        return repr(self)

    @cached_property
    def _solution(self) -> tuple[Channel, float]:
        if known := solutions.load(self._key(), self.outputs):
            outputs, base, factor = known
            return to_channel(outputs, base, self.epsilon), factor
        key = f"solver {SOLVER_VERSION}: {self._key()}"
        cached = cache.load(key)
        if cached is not None:
            try:
                document = json.loads(cached)
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
            return self._solution[0]
        other: Self = replace(cast(Any, self), outputs=outputs)
        return other.channel()

    def quick_variance(self, outputs: int | None = None) -> float:
        if outputs is None:
            return HMTP(self.epsilon).worst_case_variance
        if outputs < 3:
            return Duchi(self.epsilon).worst_case_variance
        return HMTP(self.epsilon).channel(outputs - 1 + outputs % 2).worst_case_variance

    @property
    def values(self) -> Floats:
        return self._solution[0].values

    @cached_property
    def letters(self) -> Floats:
        return self._solution[0].letters

    @cached_property
    def table(self) -> Floats:
        return self._solution[0].table

    @cached_property
    def certificate(self) -> Certificate:
        """The proof of `lower_bound`."""
        return certificate(self.epsilon)

    @property
    def lower_bound(self) -> float:
        """The worst-case variance that no unbiased mechanism with this epsilon can go below."""
        return self.certificate.lower_bound

    def _draw(self, x: Floats, u: Floats, out: Floats, scratch: Floats) -> None:
        channel = self._solution[0]
        thresholds, flips = self._shares
        # The first digits of u choose a column of the letter's row; what is left of u rounds x to
        # a letter and, being uniform on either side of the odds for that, decides for the column
        # or for the other output of that column.
        u -= 1
        u *= 1 << channel.bits
        column = u.astype(np.int64)
        u -= column
        place, beyond, share = channel.places(x), scratch[1], scratch[2]
        letter = np.add(place, u, out=beyond).astype(np.int64)
        np.minimum(letter, len(self.letters) - 1, out=letter)
        np.subtract(letter, place, out=beyond)
        letter <<= channel.bits
        letter += column
        np.subtract(1.0, np.abs(beyond, out=share), out=share)
        share *= thresholds.take(letter)
        share += np.maximum(beyond, 0.0, out=beyond)
        u += _DOUBTFUL_SHARE
        column ^= flips.take(letter) * (u >= share)
        self.values.take(column, out=out)

    @cached_property
    def _shares(self) -> tuple[Floats, npt.NDArray[np.int64]]:
        """The channel's alias table, with thresholds in [0, 1]."""
        thresholds, flips = self._solution[0].alias
        return thresholds / 2.0**vehicle.WORD, flips.astype(np.int64)


def is_below(channel: Channel, cap: Callable[[Floats], Floats]) -> bool:
    """Return whether a channel's variance stays below a cap at every input."""
    return bool(np.all(channel.variance(_EVERYWHERE) <= cap(_EVERYWHERE) * _ROUNDING_TOLERANCE))
