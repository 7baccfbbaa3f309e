"""Randomness: every random decision of fedldp is drawn from a `Source`.

A `Source` is an AES-256-CTR keystream. Keyed by the operating system it is fit for release;
keyed by a seed it is the same keystream, reproducible on every machine, and for study only.

A source that is keyed by the operating system takes its first words from there: a vehicle that
draws few of them does not load package cryptography, which is a sixth of its memory.
"""

import hashlib
import hmac
import os
import sys
import threading
from fractions import Fraction
from numbers import Rational
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, Union

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, whole
from fedldp.errors import DomainError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

Shape = int | tuple[int, ...]

_BLOCK_BYTES = 1 << 18  # encrypted at a time: a call takes little of the time, and the cache fits
_ZEROS = memoryview(bytes(_BLOCK_BYTES))
_MOST_SYSTEM_BYTES = 1 << 16  # of a secret source before it has a keystream of its own
_BITS_OF_ONE = np.uint64(0x3FF0_0000_0000_0000)
_LEAST_MARKED = 64  # from this k on, marks are faster than comparisons
_MOST_MARK_BYTES = 1 << 26
_HALF_STEP = 2.0**-53


def source(seed: SupportsIndex | None = None) -> "Source":
    """Return a source keyed by the operating system or, for study, by a seed.

    Parameters
    ----------
    seed
        A whole number, for a stream that is reproducible and therefore not private. By default
        the key comes from the operating system.

    Returns
    -------
    Source
        A new source.

    Raises
    ------
    DomainError
        If the seed is not a whole number.

    Examples
    --------
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


# How often this process and its parents were forked since this module was imported. The process
# id is not enough: in different PID namespaces, parent and child can both be process 1.
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def _process() -> tuple[int, int]:
    """Return what differs between a process and its children; a fork from C runs no hook."""
    return os.getpid(), _forks


class _Stream:
    """A key and its keystream, for use in one process only."""

    __slots__ = ("drawn", "key", "keystream", "label", "lock", "process", "secret", "spawned")

    def __init__(self, key: bytes, label: str, secret: bool) -> None:
        self.key = key
        self.label = label
        self.secret = secret
        self.drawn = 0  # bytes
        self.keystream: CipherContext | None = None
        self.lock = threading.RLock()  # re-entrant: a signal handler may draw too (cryptography 50)
        self.spawned = 0
        self.process = _process()

    def seek(self) -> "CipherContext":
        """Return a keystream that continues after the bytes that were drawn."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        block, rest = divmod(self.drawn, 16)
        start = modes.CTR((block % (1 << 128)).to_bytes(16, "big"))
        self.keystream = Cipher(algorithms.AES(self.key), start).encryptor()
        self.keystream.update(bytes(rest))
        return self.keystream

    def fill(self, target: memoryview) -> None:
        """Overwrite bytes with the next ones of the stream."""
        is_short = self.drawn + len(target) <= _MOST_SYSTEM_BYTES
        if self.secret and self.keystream is None and is_short:
            target[:] = os.urandom(len(target))
        else:
            keystream = self.keystream or self.seek()
            for start in range(0, len(target), _BLOCK_BYTES):
                part = target[start : start + _BLOCK_BYTES]
                keystream.update_into(_ZEROS[: len(part)], part)
        self.drawn += len(target)


class Source:
    """A stream of random words. Make one with `fedldp.source()`.

    The stream is one sequence of bytes: the sizes of the pieces in which they are drawn do not
    matter. Threads may share a source. In a forked child a source gets a new key from the
    operating system, so that it never repeats its parent; a seeded source is then no longer
    reproducible (make one in the child, or use `spawn` before the fork).

    Parameters
    ----------
    key
        The key of the AES-256 cipher, 32 bytes.
    label
        What `repr` says about the key.
    secret
        Whether the key comes from the operating system, and not from a seed.

    Examples
    --------
    >>> numbers = source(7)
    >>> numbers.words(1), numbers.below(6, 3)
    (array([15087055307872568030], dtype=uint64), array([4, 5, 4]))
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
        """Overwrite an array with random words.

        Parameters
        ----------
        out
            A C-contiguous array of native unsigned integers.

        Raises
        ------
        DomainError
            If the array has another layout or type.

        Examples
        --------
        >>> words = np.zeros(2, np.uint16)
        >>> source(7).fill(words)
        >>> words
        array([33502, 11370], dtype=uint16)
        """
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
            stream.fill(target)
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
        """How many bytes have been drawn so far."""
        return self._current().drawn

    def skip(self, count: int) -> None:
        """Skip bytes of the stream, as if they had been drawn.

        Parameters
        ----------
        count
            The number of bytes to skip.

        Raises
        ------
        DomainError
            If the count is negative or not a whole number.

        Examples
        --------
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
            stream.seek()

    def words(self, size: Shape, dtype: npt.DTypeLike = np.uint64) -> npt.NDArray[Any]:
        """Return an array of random words.

        Parameters
        ----------
        size
            The shape of the array.
        dtype
            A type of unsigned integers.

        Returns
        -------
        array
            Unsigned integers, each of all their values equally likely.

        Examples
        --------
        >>> source(7).words(3, np.uint8)
        array([222, 130, 106], dtype=uint8)
        """
        out = np.empty(size, dtype)
        self.fill(out)
        return out

    def uniform(self, size: Shape) -> Floats:
        """Return random numbers that are uniform on (0, 1), never 0 and never 1.

        Parameters
        ----------
        size
            The shape of the array.

        Returns
        -------
        array of float
            Odd multiples of 2^-53.

        Examples
        --------
        >>> source(7).uniform(2).round(3)
        array([0.818, 0.517])
        """
        floats = from_one_to_two(self.words(size))
        np.subtract(floats, 1.0 - _HALF_STEP, out=floats)  # exact
        return floats

    def below(self, n: int, size: Shape) -> npt.NDArray[np.int64]:
        """Return integers from 0 to n - 1, all equally likely (by rejection).

        Parameters
        ----------
        n
            A whole number from 1 to 2^63.
        size
            The shape of the array.

        Returns
        -------
        array of int
            The random integers.

        Raises
        ------
        DomainError
            If n is out of range.

        Examples
        --------
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
        """Return booleans that are True with probability exactly p.

        Parameters
        ----------
        p
            The probability: a rational number, or a float, whose exact value is used.
        size
            The shape of the array.

        Returns
        -------
        array of bool
            The random decisions.

        Raises
        ------
        DomainError
            If p is not a number from 0 to 1.

        Examples
        --------
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
        """Return rows of k different integers below d, each set of k equally likely.

        Parameters
        ----------
        k
            How many integers to choose for a row.
        d
            How many integers there are to choose from.
        size
            The number of rows.

        Returns
        -------
        array of int
            The chosen integers, sorted within each row.

        Raises
        ------
        DomainError
            If k is below 1 or above d, or d is too large.

        Examples
        --------
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
        # Where many integers are chosen, a mark for each saves comparing it with all before.
        rows, marks = np.arange(size), np.zeros((0, 0), np.bool_)
        if k >= _LEAST_MARKED and size * d <= _MOST_MARK_BYTES:
            marks = np.zeros((size, d), np.bool_)
        for column, top in enumerate(range(d - k, d)):  # Floyd's algorithm
            pick = self.below(top + 1, size)
            if marks.size:
                pick = np.where(marks[rows, pick], top, pick)
                marks[rows, pick] = True
            else:
                pick = np.where((chosen[:, :column] == pick[:, None]).any(axis=1), top, pick)
            chosen[:, column] = pick
        chosen.sort(axis=1)
        return chosen

    def spawn(self, n: int) -> list["Source"]:
        """Return sources with streams of their own, which do not depend on what was drawn before.

        Parameters
        ----------
        n
            The number of sources.

        Returns
        -------
        list of Source
            New sources; another call returns different ones.

        Raises
        ------
        DomainError
            If n is negative or not a whole number.

        Examples
        --------
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
            "Pass a seed, or a new Source made with spawn()."
        )


StudySource = Union[Source, "np.random.Generator"]  # the module is large: agents need none of it
"""What simulations draw from: a source, or a generator of NumPy."""


def study_source(random: StudySource | None) -> Source:
    """Return a source for a simulation, whose reports nobody may release.

    A generator of NumPy can be predicted from its outputs, so that it is for study only. With a
    secret source, coders do equal work for every value; in a simulation, where one process holds
    all data, they need not.
    """
    if not isinstance(random, Source | None) and isinstance(random, np.random.Generator):
        return Source(random.bytes(32), "from a generator of NumPy: for study only")
    source = checked_source(random)
    return Source(os.urandom(32), "for study only") if source.secret else source


def study_generator(random: StudySource | SupportsIndex) -> "np.random.Generator":
    """Return a generator of NumPy for code that is for study only, made of a source or a seed."""
    if isinstance(random, np.random.Generator):
        return random
    if isinstance(random, Source):
        return np.random.default_rng(random.words(4).tolist())
    return np.random.default_rng(whole(random, "a seed"))


def checked_source(source: Source | None) -> Source:
    """Return a source, or raise `DomainError` if it is missing or something else."""
    check_source(source)
    return source  # type: ignore[return-value]


def check_source(source: object) -> None:
    """Raise `DomainError` if something is not a `Source`, such as a generator of NumPy."""
    if source is None:
        raise DomainError(
            "source must be a Source and is missing: pass fedldp.source() or, for a simulation "
            "that can be repeated, fedldp.source(seed)."
        )
    if not isinstance(source, Source):
        raise DomainError(f"source must be a Source: pass fedldp.source(); got {source!r}.")


def from_one_to_two(words: npt.NDArray[np.uint64]) -> Floats:
    """Turn random words, in place, into multiples of 2^-52 that are uniform on [1, 2)."""
    np.right_shift(words, 12, out=words)
    np.bitwise_or(words, _BITS_OF_ONE, out=words)  # the upper 52 bits, behind the point of 1.0
    return words.view(np.float64)
