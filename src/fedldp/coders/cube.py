"""The cube: one sign for each of d numbers, all drawn at once.

The numbers x are rounded without bias to signs v, a corner of the cube {-1, 1}^d. A corner t that
agrees with v in h places is sent with odds that depend on h alone: `heavy` if t.v = 2h - d is
above a threshold, `light` if not. Then B t estimates x without bias for a certain B. The threshold
0 is the mechanism of Duchi et al. with its ties t.v = 0 counted once; for larger epsilons a higher
threshold has less error.
"""

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal import validation
from fedldp._internal.validation import Integers
from fedldp.coders.base import AsBits, ByLaw, Cells, Codes, Document, ForNumbers, epsilon_of
from fedldp.coders.laws import Law
from fedldp.errors import DomainError, PrivacyError
from fedldp.randomness import Source, check_source

__all__ = ["CubeCoder"]

Bits = npt.NDArray[np.uint8]

_LIGHT = 1 << 40
_CHUNK_SIGNS = 1 << 16  # a few arrays of this size stay in the cache


@final
@dataclass(frozen=True)
class CubeCoder(AsBits, ByLaw, ForNumbers):
    """All d numbers at once, epsilon-private together: a bit for each.

    `CubeCoder.of` computes the odds.

    Parameters
    ----------
    epsilon
        The privacy budget of all numbers together, from 0.001 to 16.
    d
        How many numbers there are.
    threshold
        Signs t have the odds `heavy` if t.v is above it, where v are the true signs.
    heavy
        The odds of signs above the threshold.
    light
        The odds of all other signs.

    Raises
    ------
    PrivacyError
        If the odds are not epsilon-private.
    DomainError
        If a parameter is out of range, or the noise would be too large for floats.

    Examples
    --------
    >>> import fedldp
    >>> cube = CubeCoder.of(epsilon=4.0, d=90)
    >>> cube.threshold, round(cube.worst_case_variance, 1)
    (14, 39.3)
    >>> round(CubeCoder.of(epsilon=4.0, d=90, threshold=0).worst_case_variance)
    129
    >>> CubeCoder.of(epsilon=1.0, d=3).encode([[0.5, -0.9, 1.0]], fedldp.source(7))
    array([[1, 0, 1]], dtype=uint8)
    """

    kind = "cube"
    joint = True

    epsilon: float
    d: int
    threshold: int
    heavy: int
    light: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validation.epsilon(self.epsilon))
        for name in ("d", "threshold", "heavy", "light"):
            object.__setattr__(self, name, validation.whole(getattr(self, name), name))
        _check_place(self.d, self.threshold)
        if self.heavy == self.light:
            raise DomainError("heavy and light are equal: the signs would say nothing.")
        reason = vehicle.cube_fault(
            self.d, self.threshold, self.heavy, self.light, vehicle.exact(self.epsilon)
        )
        if reason is not None:
            raise PrivacyError(f"not an epsilon = {self.epsilon:g} cube: {reason}.")
        if self._exact_scale > vehicle.LARGEST_CUBE_SCALE:
            raise DomainError(
                f"with threshold {self.threshold} of {self.d} the noise is too large for floats: "
                'pass one closer to 0, or "best".'
            )

    @classmethod
    def of(cls, epsilon: float, d: int, threshold: int | str = "best") -> "CubeCoder":
        """Return the cube with a given threshold, or with the best one.

        Parameters
        ----------
        epsilon
            The privacy budget of all numbers together, from 0.001 to 16.
        d
            How many numbers there are.
        threshold
            A whole number from -d to d - 1, or `"best"` for the one with the least error.

        Returns
        -------
        CubeCoder
            The coder.

        Examples
        --------
        >>> CubeCoder.of(epsilon=4.0, d=90).threshold
        14
        """
        epsilon, d = validation.epsilon(epsilon), validation.whole(d, "d")
        heavy = int(vehicle.exp_below(vehicle.exact(epsilon)) * _LIGHT)
        _check_place(d, 0)
        if threshold == "best":
            threshold = _best_threshold(d, heavy, _LIGHT)
        return cls(epsilon, d, validation.whole(threshold, "threshold"), heavy, _LIGHT)

    @cached_property
    def _exact_scale(self) -> Fraction:
        difference = self.heavy - self.light
        return vehicle.cube_scale(self.d, self.threshold, difference, self._odds[-1])

    @property
    def scale(self) -> float:
        """B: the value of a sign."""
        return float(self._exact_scale)

    @cached_property
    def law(self) -> Law:
        """The probability of each sign, times B, as the answer to a number."""
        signs = np.array([-1.0, 1.0])
        return Law(signs, self.scale * signs, (1 + np.outer(signs, signs) / self.scale) / 2)

    def histograms(self, cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return cells.reshape(*cells.shape[:-2], -1, 2)

    def count(self, codes: Codes, place: int, cells: Cells) -> None:
        plus = codes.sum(axis=0, dtype=np.int64)
        cells[place : place + self.cells : 2] += len(codes) - plus
        cells[place + 1 : place + self.cells : 2] += plus

    def answers(self, cells: Cells) -> Cells:
        return cells[..., 0] + cells[..., 1]

    def invalid(self, cells: Cells, answers: Cells) -> str | None:
        if np.any(cells[:, 0::2] + cells[:, 1::2] != answers[:, None]):
            return "the counters of two numbers differ in the number of answers"
        return super().invalid(cells, answers)

    @property
    def worst_case_variance(self) -> float:
        """The largest variance of one number's estimate: at 0."""
        return self.scale**2

    def variance(self, x: npt.ArrayLike) -> Any:
        return self.scale**2 - validation.unit(x) ** 2

    @property
    def coordinates(self) -> int:
        """How many numbers one code answers: all."""
        return self.d

    @property
    def bits(self) -> int:
        """How many bits a code takes: one for each number."""
        return self.d

    @property
    def cells(self) -> int:
        """How many counters a tally keeps: two for each number."""
        return 2 * self.d

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of two probabilities of a code: at most e^epsilon."""
        return Fraction(self.heavy, self.light)

    @property
    def likeliest(self) -> float:
        """The largest probability that some signs have."""
        return float(Fraction(self.heavy, self._odds[-1]))

    @classmethod
    def from_document(cls, document: Document, coordinates: int = 1) -> "CubeCoder":
        threshold = document["threshold"]
        if type(threshold) is not int:
            raise TypeError("a threshold must be a whole number")
        if set(document) != {"kind", "epsilon", "threshold", "heavy", "light"}:
            raise ValueError("it has unknown or missing entries")
        heavy, light = (vehicle.integer(document[name]) for name in ("heavy", "light"))
        return cls(epsilon_of(document), coordinates, threshold, heavy, light)

    def to_document(self) -> Document:
        return {
            "kind": self.kind,
            "epsilon": str(self.epsilon),
            "threshold": self.threshold,
            "heavy": vehicle.json_integer(self.heavy),
            "light": vehicle.json_integer(self.light),
        }

    def encode(self, x: npt.ArrayLike, source: Source) -> Bits:
        """Return the signs to send for each row of x.

        The positions that agree are drawn without looking at x, and the work is the same for every
        x.

        Parameters
        ----------
        x
            Rows of d numbers in [-1, 1].
        source
            The random source, from `fedldp.source`.

        Returns
        -------
        array
            Rows of d bits: 1 for +1, 0 for -1.

        Raises
        ------
        DomainError
            If x has another shape or is not in [-1, 1], or source is not a `Source`.

        Examples
        --------
        >>> import fedldp
        >>> CubeCoder.of(epsilon=1.0, d=3).encode([[0.5, -0.9, 1.0]], fedldp.source(7))
        array([[1, 0, 1]], dtype=uint8)
        """
        array = validation.reals(x, "x")
        check_source(source)
        if array.ndim != 2 or array.shape[1] != self.d:
            raise DomainError(f"x must have rows of {self.d} numbers; got shape {array.shape}.")
        bits = np.empty(array.shape, np.bool_)
        rows = max(1, _CHUNK_SIGNS // self.d)
        for start in range(0, len(array), rows):
            part = slice(start, start + rows)
            values = array[part]
            if not validation.is_unit(values):  # here, while they are in the cache
                validation.unit(array)  # refuses, and says where
            agree = self._agreements(len(values), source)
            # Rounded up if and only if `vehicle.letter_of` does: both sides are exact.
            place = values * 0.5
            place += 0.5
            place *= 1 << vehicle.ROUNDING
            place += 0.5
            words = source.words(values.shape, np.uint32)
            np.equal(place >= float(1 << vehicle.ROUNDING) - words, agree, out=bits[part])
        return bits.view(np.uint8)

    def _agreements(self, n: int, source: Source) -> npt.NDArray[np.bool_]:
        """Draw the positions that agree, for each report: first how many, then which."""
        words = source.words(n)
        number = np.searchsorted(self._leading, words, side="right")
        ties = np.flatnonzero((number > 0) & (self._leading[number - 1] == words))
        for i in ties.tolist():  # about once in 2^64 / d
            number[i] = self._agreements_of(int(words[i]), source)
        return _subsets(number, self.d, source)

    @cached_property
    def _odds(self) -> list[int]:
        return vehicle.agreement_odds(self.d, self.threshold, self.heavy, self.light)

    @cached_property
    def _leading(self) -> npt.NDArray[np.uint64]:
        """The first 64 binary digits of the probability of at most 0, 1, ..., d - 1 agreements."""
        digits = [(odds << vehicle.WORD) // self._odds[-1] for odds in self._odds[:-1]]
        return np.array(digits, np.uint64)

    def _agreements_of(self, word: int, source: Source) -> int:
        """Return how many agreements a uniform number means, given its first 64 digits."""
        value, bits, total = word, vehicle.WORD, self._odds[-1]
        while True:
            least = bisect_right(self._odds, value * total >> bits)
            most = bisect_right(self._odds, ((value + 1) * total - 1) >> bits)
            if least == most:
                return least
            value = value << vehicle.WORD | int(source.words(1)[0])
            bits += vehicle.WORD


def _subsets(number: Integers, d: int, source: Source) -> npt.NDArray[np.bool_]:
    """Choose a given number of d positions in each row, each set equally likely.

    The positions get random keys, and those with the smallest are chosen. Where two keys of a row
    are equal, the whole row is drawn again: this favours no set. It must not depend on how many are
    chosen: that number, together with the report, would reveal the true signs.
    """
    keys = source.words((number.size, d), np.uint32)
    ordered = np.sort(keys, axis=1)
    chosen = keys < ordered[np.arange(number.size), np.minimum(number, d - 1)][:, None]
    chosen |= (number == d)[:, None]
    equal = ordered[:, 1:] == ordered[:, :-1]
    if equal.any():  # about once in 2^33 / d^2 rows
        ties = np.flatnonzero(equal.any(axis=1))
        chosen[ties] = _subsets(number[ties], d, source)
    return chosen


def _best_threshold(d: int, heavy: int, light: int) -> int:
    """Return the threshold with the least B, compared in integers."""
    best, least, lean = 0, 1, 0  # B is least / lean, up to a factor: infinite
    ways, above = 1, 0  # C(d, h), and the sum of C(d, h), ..., C(d, d)
    for h in range(d, 0, -1):
        above += ways
        total, gain = (light << d) + (heavy - light) * above, ways * h  # C(d - 1, h - 1) d
        if total * lean < least * gain:
            best, least, lean = 2 * (h - 1) - d, total, gain
        ways = ways * h // (d - h + 1)
    return best


def _check_place(d: int, threshold: int) -> None:
    if not 1 <= d <= vehicle.MOST_CUBE_SIGNS or not -d <= threshold < d:
        raise DomainError(
            f"d must be from 1 to {vehicle.MOST_CUBE_SIGNS} and the threshold from -d to d - 1; "
            f"got d = {d} and threshold = {threshold}."
        )
