"""Randomness: the only way in which chance enters fedldp.

A `Source` is an AES-256-CTR keystream. Keyed by the operating system it is fit for release;
keyed by a seed it is the same keystream, reproducible on every machine, and fit for study only.
"""

import hashlib
import hmac
import operator
import os
import sys
import threading
import weakref
from fractions import Fraction
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedldp.checks import Floats
from fedldp.errors import DomainError

Shape = int | tuple[int, ...]

_BLOCK = (
    1 << 18
)  # bytes encrypted per call: large enough to amortise it, small enough for the cache
_ZEROS = memoryview(bytes(_BLOCK))
_ONE = np.uint64(0x3FF0_0000_0000_0000)  # the bits of 1.0
_HALF_STEP = 2.0**-53


def source(seed: SupportsIndex | None = None) -> "Source":
    """Return a source keyed by the operating system or, for study, by a seed.

    >>> source(7).words(2)
    array([15087055307872568030,  9545086663768817934], dtype=uint64)
    >>> source(7)
    <Source from seed 7: reproducible, for study only>
    >>> source()
    <Source keyed by the operating system>
    """
    if seed is None:
        return Source(os.urandom(32), "keyed by the operating system")
    try:
        number = operator.index(seed)
    except TypeError:
        raise DomainError(f"seed must be an integer or None; got {seed!r}.") from None
    key = hashlib.sha256(b"fedldp source 1: %d" % number).digest()
    return Source(key, f"from seed {number}: reproducible, for study only")


class Source:
    """A stream of random words. Make one with `fedldp.source()`.

    The stream is one sequence of bytes: asking for it in larger or smaller pieces gives the
    same bytes. Threads may share a source. A forked child gets a new key from the operating
    system for each of its sources, so it never repeats its parent (and a seeded source is no
    longer reproducible there: make one in the child, or use `spawn` before).
    """

    __slots__ = ("__weakref__", "_key", "_keystream", "_label", "_lock", "_spawned")

    def __init__(self, key: bytes, label: str) -> None:
        self._start(key, label)
        _living.add(self)

    def _start(self, key: bytes, label: str) -> None:
        self._key = key
        self._label = label
        self._lock = threading.Lock()
        self._spawned = 0
        self._keystream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def fill(self, out: npt.NDArray[Any]) -> None:
        """Overwrite a C-contiguous array of unsigned integers with random words."""
        if out.dtype.kind != "u" or not out.dtype.isnative or not out.flags.c_contiguous:
            raise DomainError(
                "out must be a C-contiguous array of native unsigned integers; "
                f"got dtype {out.dtype}, shape {out.shape}."
            )
        if out.size == 0:
            return
        target = out.data.cast("B")
        with self._lock:
            for start in range(0, len(target), _BLOCK):
                part = target[start : start + _BLOCK]
                self._keystream.update_into(_ZEROS[: len(part)], part)
        if sys.byteorder == "big":
            out.byteswap(inplace=True)

    def words(self, size: Shape, dtype: npt.DTypeLike = np.uint64) -> npt.NDArray[Any]:
        """Return an array of random words: unsigned integers, 64 bits unless told otherwise."""
        out = np.empty(size, dtype)
        self.fill(out)
        return out

    def uniform(self, size: Shape) -> Floats:
        """Return odd multiples of 2^-53: uniform on (0, 1), never 0 and never 1."""
        floats = from_one_to_two(self.words(size))
        np.subtract(floats, 1.0 - _HALF_STEP, out=floats)  # exact
        return floats

    def below(self, n: int, size: Shape) -> npt.NDArray[np.int64]:
        """Return integers from 0 to n - 1, all equally likely (by rejection).

        >>> source(7).below(6, 10)
        array([4, 4, 4, 5, 4, 1, 0, 1, 0, 4])
        """
        if not 1 <= n <= 1 << 63:
            raise DomainError(f"n must be an integer from 1 to 2^63; got {n!r}.")
        bits = 32 if n < 1 << 32 else 64
        words = self.words(size, np.dtype(f"u{bits // 8}"))
        accepted = (1 << bits) // n * n  # the largest multiple of n that a word can stay below
        if accepted < 1 << bits:
            flat = words.reshape(-1)
            refused = np.flatnonzero(flat >= accepted)
            while refused.size:
                flat[refused] = self.words(refused.size, words.dtype)
                refused = refused[flat[refused] >= accepted]
        return (words % n).astype(np.int64)

    def bernoulli(self, p: Fraction | float, size: Shape) -> npt.NDArray[np.bool_]:
        """Return True with probability exactly p, a rational number (a float is one too).

        >>> source(7).bernoulli(Fraction(1, 3), 5)
        array([False, False, False,  True, False])
        """
        exact = Fraction(p) if np.isfinite(float(p)) else Fraction(-1)
        if not 0 <= exact <= 1:
            raise DomainError(f"p must be a probability, from 0 to 1; got {p!r}.")
        if exact == 1:
            return np.ones(size, np.bool_)
        # Compare p with a uniform number, 64 binary digits at a time, until they differ.
        threshold, rest = divmod(exact.numerator << 64, exact.denominator)
        words = self.words(size)
        hits = np.empty(size, np.bool_)
        np.less(words, np.uint64(threshold), out=hits)
        ties = np.flatnonzero(words == np.uint64(threshold))
        if rest and ties.size:
            hits.reshape(-1)[ties] = self.bernoulli(Fraction(rest, exact.denominator), ties.size)
        return hits

    def choose(self, k: int, d: int, size: int) -> npt.NDArray[np.int32]:
        """Return `size` rows of k different integers below d: each set equally likely, sorted.

        >>> source(7).choose(2, 5, size=3)
        array([[1, 2],
               [2, 4],
               [2, 3]], dtype=int32)
        """
        if not 1 <= k <= d < 1 << 31:
            raise DomainError(f"need 1 <= k <= d < 2^31; got k = {k!r} and d = {d!r}.")
        chosen = np.empty((size, k), np.int32)
        for column, top in enumerate(range(d - k, d)):  # Floyd's algorithm
            pick = self.below(top + 1, size).astype(np.int32)
            taken = (chosen[:, :column] == pick[:, None]).any(axis=1)
            chosen[:, column] = np.where(taken, top, pick)
        chosen.sort(axis=1)
        return chosen

    def spawn(self, n: int) -> list["Source"]:
        """Return n sources with streams of their own, whatever was drawn here before.

        >>> source(7).spawn(2)[1]
        <Source from seed 7: reproducible, for study only, stream 1>
        """
        with self._lock:
            streams = range(self._spawned, self._spawned + n)
            self._spawned += n
        return [
            Source(
                hmac.digest(self._key, b"fedldp spawn 1: %d" % stream, "sha256"),
                f"{self._label}, stream {stream}",
            )
            for stream in streams
        ]

    def __repr__(self) -> str:
        return f"<Source {self._label}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A Source cannot be copied or pickled: its words would be used twice. "
            "Pass a seed, or a Source of its own made with spawn()."
        )


def from_one_to_two(words: npt.NDArray[np.uint64]) -> Floats:
    """Turn random words, in place, into multiples of 2^-52 that are uniform on [1, 2)."""
    np.right_shift(words, 12, out=words)
    np.bitwise_or(words, _ONE, out=words)  # the upper 52 bits, behind the point of 1.0
    return words.view(np.float64)


# Sources to re-key in a forked child: there no other thread runs, and a lock that one of the
# parent's threads held would stay locked for ever.
_living: "weakref.WeakSet[Source]" = weakref.WeakSet()


def _rekey_in_child() -> None:
    for each in list(_living):
        each._start(os.urandom(32), "keyed by the operating system after a fork")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_rekey_in_child)
