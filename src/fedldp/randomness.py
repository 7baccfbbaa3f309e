"""Randomness: the only way in which chance enters fedldp.

A `Source` is an AES-256-CTR keystream. Keyed by the operating system it is fit for release;
keyed by a seed it is the same keystream, reproducible on every machine, and fit for study only.
"""

import hashlib
import hmac
import os
import sys
import threading
from fractions import Fraction
from numbers import Rational
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedldp._internal.validation import Floats, whole
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
        return Source(os.urandom(32), "keyed by the operating system", secret=True)
    number = whole(seed, "seed")
    key = hashlib.sha256(b"fedldp source 1: %x" % number).digest()
    shown = str(number) if number.bit_length() <= 64 else f"{number:#x}"[:18] + "..."
    return Source(key, f"from seed {shown}: reproducible, for study only")


# How often this process and its parents were forked since this module was imported. The number of
# a process is not enough: in PID namespaces of their own, parent and child can both be number 1.
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def _process() -> tuple[int, int]:
    """Return what differs between a process and its children; from C, a fork runs no hook."""
    return os.getpid(), _forks


class _Stream:
    """A key and the keystream under it, for use in one process alone."""

    __slots__ = ("drawn", "key", "keystream", "label", "lock", "process", "secret", "spawned")

    def __init__(self, key: bytes, label: str, secret: bool) -> None:
        self.key = key
        self.label = label
        self.secret = secret
        self.drawn = 0  # bytes
        self.keystream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        self.lock = threading.RLock()  # re-entrant: a signal handler may draw too (cryptography 50)
        self.spawned = 0
        self.process = _process()


class Source:
    """A stream of random words. Make one with `fedldp.source()`.

    The stream is one sequence of bytes: asking for it in larger or smaller pieces gives the
    same bytes. Threads may share a source. In a forked child it goes on with a new key from the
    operating system, so that it never repeats its parent; a seeded source is then no longer
    reproducible (make one in the child, or use `spawn` before).
    """

    __slots__ = ("_stream",)

    def __init__(self, key: bytes, label: str, *, secret: bool = False) -> None:
        self._stream = _Stream(key, label, secret)

    def _current(self) -> _Stream:
        stream = self._stream
        if stream.process != _process():
            # Neither the key nor the lock may be used: a thread of the parent may hold the lock.
            stream = _Stream(os.urandom(32), "keyed by the operating system after a fork", True)
            self._stream = stream
        return stream

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
        stream = self._current()
        with stream.lock:
            for start in range(0, len(target), _BLOCK):
                part = target[start : start + _BLOCK]
                stream.keystream.update_into(_ZEROS[: len(part)], part)
            stream.drawn += len(target)
        if sys.byteorder == "big":
            out.byteswap(inplace=True)

    @property
    def secret(self) -> bool:
        """Whether the key comes from the operating system, and not from a seed.

        >>> source().secret, source(7).secret, source(7).spawn(1)[0].secret
        (True, False, False)
        """
        return self._current().secret

    @property
    def position(self) -> int:
        """How many bytes were drawn so far."""
        return self._current().drawn

    def skip(self, count: int) -> None:
        """Go on as if so many bytes more had been drawn.

        >>> ahead = source(7)
        >>> ahead.skip(8)
        >>> ahead.words(1), ahead.position
        (array([9545086663768817934], dtype=uint64), 16)
        """
        if whole(count, "count") < 0:
            raise DomainError(f"count must not be negative; got {count!r}.")
        stream = self._current()
        with stream.lock:
            stream.drawn += whole(count, "count")
            block, rest = divmod(stream.drawn, 16)
            start = modes.CTR((block % (1 << 128)).to_bytes(16, "big"))
            stream.keystream = Cipher(algorithms.AES(stream.key), start).encryptor()
            stream.keystream.update(bytes(rest))

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
        n = whole(n, "n")
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
        words -= words // n * n  # the remainder, by a division that NumPy does many at a time
        return words.astype(np.int64)

    def bernoulli(self, p: Fraction | float, size: Shape) -> npt.NDArray[np.bool_]:
        """Return True with probability exactly p, a rational number (a float is one too).

        >>> source(7).bernoulli(Fraction(1, 3), 5)
        array([False, False, False,  True, False])
        """
        if isinstance(p, np.floating):
            p = float(p)
        if not isinstance(p, Rational | float) or not 0 <= p <= 1:
            raise DomainError(f"p must be a probability, from 0 to 1; got {p!r}.")
        exact = Fraction(p)
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

    def choose(self, k: int, d: int, size: int) -> npt.NDArray[np.int64]:
        """Return `size` rows of k different integers below d: each set equally likely, sorted.

        >>> source(7).choose(2, 5, size=3)
        array([[1, 2],
               [2, 4],
               [2, 3]])
        """
        k, d = whole(k, "k"), whole(d, "d")
        if not 1 <= k <= d < 1 << 31:
            raise DomainError(f"need 1 <= k <= d < 2^31; got k = {k!r} and d = {d!r}.")
        if k == 1:
            return self.below(d, size)[:, None]
        chosen = np.empty((size, k), np.int64)
        for column, top in enumerate(range(d - k, d)):  # Floyd's algorithm
            pick = self.below(top + 1, size)
            taken = (chosen[:, :column] == pick[:, None]).any(axis=1)
            chosen[:, column] = np.where(taken, top, pick)
        chosen.sort(axis=1)
        return chosen

    def spawn(self, n: int) -> list["Source"]:
        """Return n sources with streams of their own, whatever was drawn here before.

        >>> source(7).spawn(2)[1]
        <Source from seed 7: reproducible, for study only, stream 1>
        """
        n = whole(n, "n")
        if n < 0:
            raise DomainError(f"n must not be negative; got {n!r}.")
        stream = self._current()
        with stream.lock:
            first = stream.spawned
            stream.spawned += n
        return [
            Source(
                hmac.digest(stream.key, b"fedldp spawn 1: %d" % number, "sha256"),
                f"{stream.label}, stream {number}",
                secret=stream.secret,
            )
            for number in range(first, first + n)
        ]

    def __repr__(self) -> str:
        return f"<Source {self._current().label}>"

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
