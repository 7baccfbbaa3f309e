"""What the mechanisms found by linear programming have in common.

Each is a channel from the start. Finding one takes a second or two for 63 outputs, and up to a
minute for 255; it is kept in the cache.
"""

import json
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np

from fedldp import cache
from fedldp.channel import Channel, channel_epsilon
from fedldp.checks import Floats, whole
from fedldp.errors import DomainError, FedLDPError
from fedldp.mechanisms.certificate import Certificate, certificate
from fedldp.mechanisms.finite import Finite

SOLVER = 1  # part of the cache's keys: raise it when results change
MOST_OUTPUTS = 255
_ALLOWED = 1 + 1e-6  # for rounding to integers
_EVERYWHERE = np.linspace(-1.0, 1.0, 2**13 + 1)


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
        numbers = np.arange(len(self.letters))
        place = np.interp(x, self.letters, numbers)
        low = np.floor(place)
        odds, u = place - low, u - 1
        up = u < odds
        letter = low + up
        # Given on which side of the odds it fell, u is still uniform there: stretch it.
        with np.errstate(invalid="ignore", divide="ignore"):
            u = np.where(up, u / odds, (u - odds) / (1 - odds))
        rows = np.cumsum(self.table, axis=1)
        rows[:, -1] = 1.0
        ends = (rows + numbers[:, None]).reshape(-1)
        found = np.searchsorted(ends, letter + np.minimum(u, 1 - 2.0**-40), side="right")
        out[:] = self.values[found - (letter * len(self.values)).astype(np.int64)]


def is_below(channel: Channel, cap: Callable[[Floats], Floats]) -> bool:
    """Tell whether a channel's variance stays below a cap at every input."""
    return bool(np.all(channel.variance(_EVERYWHERE) <= cap(_EVERYWHERE) * _ALLOWED))
