"""Directions: a whole vector, of bounded length, answered with one of J public random directions.

A vehicle draws a seed, which stands for J directions that everybody can compute, and ranks them by
their product with its vector. It sends the seed and one direction: each of the t best with the odds
`high`, each of the others with the odds `low`, or the null code. Every input has the same total of
odds, so the ratio of two probabilities of a code is a ratio of odds, whatever was ranked.

The direction that is sent, divided by a constant, estimates the vector without bias. With many
directions the error is that of PrivUnit (Bhowmick et al. 2018, Asi et al. 2022), the least that any
mechanism for long vectors can have: it does not grow with d for a coordinate.

A shorter vector is sent as itself with a probability equal to its length in terms of the bound.
Otherwise the vehicle answers for the null input, which mostly gives the null code, or, in a coder
without null input, sends itself or its opposite, each as likely.
"""

import hashlib
import itertools
from copy import copy
from dataclasses import astuple, dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, exp, log2
from numbers import Real
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal import validation
from fedldp._internal.science import scipy_module
from fedldp._internal.validation import Floats, Integers
from fedldp._internal.vectors import DenseRows, Vectors
from fedldp.coders.base import Assumed, Cells, Check, Codes, Document, VectorCoder, epsilon_of
from fedldp.coders.codebook import Codebook, NumpyCodebook, drawn_together, table
from fedldp.coders.laws import Law
from fedldp.coders.moments import Moments
from fedldp.errors import DomainError, PrivacyError
from fedldp.randomness import Source, check_source

__all__ = ["DirectionsCoder"]

DEFAULT_FLEET = 10_000_000
OFFERED_DIRECTIONS = (63, 255)  # with the null code, they fill whole bits

_TOTAL = vehicle.LARGEST_ROW_TOTAL
_LEAST_GAIN = (
    1.10  # more directions take more time: used only if the error is this many times smaller
)
_DRAWN_BYTES = 16  # for each vehicle
_CODEBOOK_SHARE = 0.1  # of the variance that a finite number of seeds may add
_SQUARED_LENGTH_TOLERANCE = 0.01  # relative, between vectors
_SMALLEST_PROBABILITY = 1e-300  # in place of 0, whose logarithm is not finite
_LENGTH_TOLERANCE = 1e-9  # rounding may lengthen a vector that was scaled to its bound


@final
@dataclass(frozen=True)
class DirectionsCoder(VectorCoder):
    """All d numbers of a vector at once, epsilon-private together, in at most 32 bits.

    The vector's length is at most 1. `DirectionsCoder.of` chooses everything but epsilon and d.

    Parameters
    ----------
    epsilon
        The privacy budget of the whole vector, from 0.001 to 16.
    d
        How many numbers the vector has.
    directions
        How many directions a seed has: 3, 7, 15, ... or 255.
    best
        How many directions count as the best for a vector.
    high
        The odds of each of the best directions.
    low
        The odds of each other direction, and of every direction for the null input.
    null
        The odds of the null code for a vector.
    null_input
        The odds of the null code for the null input; 0 if the null input is not used.
    seed_bits
        How many bits a seed has.
    key
        A number of 64 bits on which all directions depend.

    Raises
    ------
    PrivacyError
        If the odds are not epsilon-private, or the other numbers are out of range.
    DomainError
        If epsilon or d is out of range.

    Examples
    --------
    >>> import fedldp
    >>> coder = DirectionsCoder.of(epsilon=2.0, d=1000)
    >>> coder.bits, coder.directions, coder.best, round(coder.noise, 2)
    (28, 63, 14, 1.67)
    >>> DirectionsCoder.of(epsilon=2.0, d=1000, mean_length=0.3).null_input > 0
    True
    """

    kind = "directions"
    plan_format = vehicle.PLAN_FORMAT_2
    most_answers = 1 << 38  # so that a sum of squares stays below 2^63

    epsilon: float
    d: int
    directions: int
    best: int
    high: int
    low: int
    null: int
    null_input: int
    seed_bits: int
    key: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validation.epsilon(self.epsilon))
        for name in ("d", *_ENTRIES):
            object.__setattr__(self, name, validation.whole(getattr(self, name), name))
        if not 1 <= self.d <= vehicle.MOST_VECTOR_NUMBERS:
            raise DomainError(f"d must be from 1 to {vehicle.MOST_VECTOR_NUMBERS}; got {self.d}.")
        reason = vehicle.directions_fault(
            self._odds, self.d, self.seed_bits, self.key, vehicle.exact(self.epsilon)
        )
        if reason is not None:
            raise PrivacyError(f"not epsilon = {self.epsilon:g} directions: {reason}.")

    @classmethod
    def of(
        cls,
        epsilon: float,
        d: int,
        *,
        mean_length: float = 1.0,
        fleet: int | None = None,
        directions: int | str = "best",
        null: bool | str = "best",
        key: int | None = None,
    ) -> "DirectionsCoder":
        """Return the directions with the least error.

        Parameters
        ----------
        epsilon
            The privacy budget of the whole vector, from 0.001 to 16.
        d
            How many numbers the vector has.
        mean_length
            A public guess of the mean length of the fleet's vectors, as a share of the bound. It
            decides about the null input, which pays where vectors are short. A wrong guess costs
            accuracy, never privacy.
        fleet
            How many vehicles answer, at most. The seed gets long enough that the finite number of
            codebooks adds at most a tenth to the variance of the mean of that many vehicles. By
            default it is long enough for ten million or, above epsilon = 5, as long as 32 bits
            allow: for seven million or more.
        directions
            63 or 255. By default 63, and 255 where that has less error by more than a tenth.
        null
            Whether to use the null input. By default it is used where that has less error.
        key
            A number of 64 bits on which all directions depend. By default it follows from the rest.

        Returns
        -------
        DirectionsCoder
            The coder, with the longest odds that epsilon allows.

        Raises
        ------
        DomainError
            If a parameter is invalid, or the fleet is too large for 32 bits.

        Examples
        --------
        >>> DirectionsCoder.of(1.0, d=30).fleet, DirectionsCoder.of(1.0, 30, fleet=9000).bits
        (10468371, 17)
        """
        epsilon, d = validation.epsilon(epsilon), validation.whole(d, "d")
        if not isinstance(mean_length, Real) or not 0 <= mean_length <= 1:
            raise DomainError(
                f"mean_length must be a number from 0 to 1, a share of the bound on the length; "
                f"got {mean_length!r}."
            )
        vehicles = validation.whole(DEFAULT_FLEET if fleet is None else fleet, "fleet")
        if vehicles < 1:
            raise DomainError(f"fleet must be at least 1; got {fleet!r}.")
        if directions != "best" and directions not in OFFERED_DIRECTIONS:
            raise DomainError(
                f'directions must be "best" or one of {OFFERED_DIRECTIONS}; got {directions!r}.'
            )
        offered = OFFERED_DIRECTIONS if directions == "best" else (int(directions),)
        coders = []
        for number in offered:
            best = _best(epsilon, d, float(mean_length), number, null)
            bits = vehicle.DIRECTION_BITS - number.bit_length()
            needed = max(1, ceil(log2(vehicles * _doubling(best.odds) / _CODEBOOK_SHARE)))
            if needed <= bits or (fleet is None and number == offered[0]):
                coders.append((best, min(needed, bits)))
        if not coders:
            raise DomainError(
                f"directions of {vehicle.DIRECTION_BITS} bits do not suffice for a fleet of "
                f"{vehicles} at epsilon = {epsilon:g}: make a plan for each part of the fleet, "
                "each with a key of its own, and combine the estimates."
            )
        (chosen, seed_bits), *others = coders
        for other, bits in others:
            if other.error * _LEAST_GAIN < chosen.error:
                chosen, seed_bits = other, bits
        if key is None:
            text = f"fedldp directions 1 {epsilon} {d} {seed_bits} {tuple(chosen.odds)}"
            key = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        return cls(epsilon, d, *chosen.odds, seed_bits, validation.whole(key, "key"))

    @property
    def _odds(self) -> vehicle.Odds:
        return vehicle.Odds(*astuple(self)[2:8])

    # What it is.

    @property
    def coordinates(self) -> int:
        """How many numbers one code answers: all."""
        return self.d

    @property
    def _code_bits(self) -> int:
        """How many of the bits are for the direction; the null code has ones in all of them."""
        return self.directions.bit_length()

    @property
    def bits(self) -> int:
        """How many bits a code takes: those of the seed, then those of the direction."""
        return self.seed_bits + self._code_bits

    @property
    def cells(self) -> int:
        """How many counters a tally keeps.

        The number of answers, that of null codes, then of the directions that were sent the sum of
        each coordinate, and the sum of its squares.
        """
        return 2 + 2 * self.d

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of two probabilities of a code: at most e^epsilon."""
        ratio = Fraction(self.high, self.low)
        return max(ratio, Fraction(self.null_input, self.null)) if self.null_input else ratio

    @property
    def likeliest(self) -> float:
        """The largest probability of a seed together with a direction, or with the null code."""
        odds = self._odds
        return max(self.high, odds.null, odds.null_input) / odds.total / (1 << self.seed_bits)

    @property
    def fleet(self) -> int:
        """To how many vehicles the finite number of seeds adds at most a tenth of the variance."""
        return max(1, int(_CODEBOOK_SHARE * (1 << self.seed_bits) / _doubling(self._odds)))

    def to_document(self) -> Document:
        entries = {name: vehicle.json_integer(getattr(self, name)) for name in _ENTRIES}
        return {"kind": self.kind, "epsilon": str(self.epsilon), **entries}

    @classmethod
    def from_document(cls, document: Document, coordinates: int = 1) -> "DirectionsCoder":
        if set(document) != {"kind", "epsilon", *_ENTRIES}:
            raise ValueError("it has unknown or missing entries")
        numbers = [vehicle.integer(document[name]) for name in _ENTRIES]
        return cls(epsilon_of(document), coordinates, *numbers)

    # The vehicle's half.

    def encode(self, x: npt.ArrayLike | Vectors, source: Source) -> npt.NDArray[np.uint32]:
        """Return a seed and a direction for each row of x, whose length is at most 1.

        The work is the same for all rows of an array, and what is drawn does not depend on them.
        From a seed that is known, as in a simulation, there is nothing to hide: then zeros take no
        time, and directions are ranked only for codes that depend on it.

        Parameters
        ----------
        x
            Rows of d numbers: an array, or `Vectors`.
        source
            The random source, from `fedldp.source`.

        Returns
        -------
        array
            For each row the number of the seed, then the number of the direction in the last bits.

        Raises
        ------
        DomainError
            If x has another shape, a row is longer than 1, or source is not a `Source`.

        Examples
        --------
        >>> import fedldp
        >>> coder = DirectionsCoder.of(epsilon=4.0, d=3)
        >>> coder.encode(np.array([[0.6, 0.0, 0.8]]), fedldp.source(7)).shape
        (1,)
        """
        check_source(source)
        rows = x if isinstance(x, Vectors) else DenseRows(validation.reals(x, "x"))
        if not rows.fits(self.d):
            raise DomainError(f"x must have rows of {self.d} numbers; got {x!r:.80}.")
        codebook = rows.nearby(self.codebook)
        codes = np.empty(len(rows), np.uint32)
        for start in range(0, len(rows), codebook.rows):
            block = rows[start : start + codebook.rows]
            drawn = self._draw(len(block), source)  # while a device still computes the block
            _check_lengths(block, start)
            codes[start : start + len(block)] = self._encode(
                block, codebook, drawn, secret=source.secret
            )
        return codes

    def _encode(
        self, rows: Vectors, codebook: Codebook, drawn: list[npt.NDArray[Any]], *, secret: bool
    ) -> Any:
        """Return the codes of some rows, as many as the codebook takes at a time."""
        seeds, rounding, words = drawn
        # Everything up to the order of the directions is exact: see `vehicle.direction_code`.
        common = np.uint64(self.directions * self.low)
        rank = (words - np.minimum(words, common)) // np.uint64(self.high - self.low)
        low = np.minimum(words, common - np.uint64(1)) // np.uint64(self.low)
        code = np.where(words < common, low, self.directions).astype(np.uint32)
        is_best = (words >= common) & (rank < self.best)
        places = np.arange(len(rows))
        if not secret:  # only these codes depend on their vectors
            rows, places = rows.where(is_best), places[is_best]
        vectors = rows.rounded(vehicle.LENGTH, zeros=secret)
        share = _length_shares(vectors.lengths)
        itself = rounding[places] < (
            share if self.null_input else (1 << vehicle.ROUNDING) + share >> 1
        )
        if self.null_input:
            is_best[places] &= itself
            if not secret:
                vectors, places, itself = vectors.where(itself), places[itself], itself[itself]
        signs = np.where(itself | (self.null_input > 0), 1, -1)
        known = np.minimum(rank[places], np.uint64(self.best - 1)).astype(np.int64)
        chosen = codebook.ranked(vectors, seeds[places], signs, known, secret)
        code[places] = np.where(is_best[places], chosen, code[places])
        return seeds << np.uint32(self._code_bits) | code

    def _draw(self, n: int, source: Source) -> list[npt.NDArray[Any]]:
        """Draw the seeds of n vehicles, the words that round lengths, and those that choose codes.

        The words of some vehicles at a time lie together, however many are encoded at once.
        """
        octets, step = source.words(_DRAWN_BYTES * n, np.uint8), drawn_together(self.directions)
        full = _DRAWN_BYTES * (n - n % step)
        drawn = _split_words(octets[:full], step), _split_words(octets[full:], n % step)
        seeds, rounding, words = map(np.concatenate, zip(*drawn, strict=True))
        seeds >>= np.uint32(vehicle.ROUNDING - self.seed_bits)
        words >>= np.uint64(vehicle.WORD + 1 - self._odds.total.bit_length())
        return [seeds, rounding, words]

    @cached_property
    def codebook(self) -> NumpyCodebook:
        """The public directions of all seeds."""
        return NumpyCodebook(self.d, self.directions, self.key)

    @cached_property
    def _counted_by(self) -> Codebook:
        """The codebook that finds the directions of codes again."""
        return self.codebook

    def nearby(self, inputs: Vectors) -> "DirectionsCoder":
        found = copy(self)
        found.__dict__["_counted_by"] = inputs.nearby(self.codebook)
        return found

    # The server's half.

    def get(self, records: Any, first: int, rows: Integers | None = None) -> Codes:
        codes: Codes = records.get(first, self.bits)
        return codes if rows is None else codes[rows]

    def unknown(self, records: Any, first: int, rows: Integers | None = None) -> None:
        return None  # a seed, then a direction or the null code: they fill their bits

    def count(self, codes: Codes, place: int, cells: Cells) -> None:
        self._count(codes, [slice(None)], [place], cells)

    def count_at(self, codes: Codes, places: Integers, cells: Cells) -> None:
        order = np.argsort(places, kind="stable")
        starts, first = np.unique(places[order], return_index=True)
        bounds = [*first.tolist(), len(codes)]
        self._count(codes[order], list(map(slice, bounds, bounds[1:])), starts.tolist(), cells)

    def _count(self, codes: Codes, parts: list[slice], starts: list[int], cells: Cells) -> None:
        """Add the codes of each part to the counters that begin at its start."""
        direction = codes & codes.dtype.type(self.directions)
        seeds = codes >> codes.dtype.type(self._code_bits)
        sent = [direction[part] < self.directions for part in parts]
        pairs = [
            (seeds[part][mine], direction[part][mine])
            for part, mine in zip(parts, sent, strict=True)
        ]
        totals = self._counted_by.totals(pairs)
        for start, mine, (sums, squares) in zip(starts, sent, totals, strict=True):
            own = cells[start : start + self.cells]
            own[0] += len(mine)
            own[1] += len(mine) - np.count_nonzero(mine)
            own[2 : 2 + self.d] += sums
            own[2 + self.d :] += squares

    def vectors(self, codes: Codes) -> Floats:
        """Return the direction of each code, a row for each; the null code has zeros.

        The mean of these rows, divided by `scale`, estimates the mean of the vectors.

        Parameters
        ----------
        codes
            Codes, as `encode` returns them.

        Returns
        -------
        array
            Rows of d whole numbers, of which 1024 stand for a standard deviation of 1.

        Examples
        --------
        >>> import fedldp
        >>> coder = DirectionsCoder.of(epsilon=4.0, d=3)
        >>> codes = coder.encode([[0.6, 0.0, -0.8]] * 10_000, fedldp.source(1))
        >>> (coder.vectors(codes).mean(axis=0) / coder.scale).round(1) + 0.0
        array([ 0.6,  0. , -0.8])
        """
        codes = np.asarray(codes, np.uint32)
        direction = codes & np.uint32(self.directions)
        sent = self.codebook.sent(codes >> np.uint32(self._code_bits), direction)
        return np.where(direction < self.directions, sent, 0.0).T

    def answers(self, cells: Cells) -> Cells:
        found: Cells = cells[..., 0]
        return found

    def invalid(self, cells: Cells, answers: Cells) -> str | None:
        nulls, (sums, squares) = cells[:, 1], self._by_coordinate(cells)
        if np.any((nulls < 0) | (nulls > answers)):
            return "there are more null codes than answers, or fewer than none"
        if np.any(answers > self.most_answers):
            return f"there are more than {self.most_answers} answers"
        largest = int(table()[-1])
        sent = (answers - nulls)[:, None]
        wrong = (np.abs(sums) > sent * largest) | (squares < 0) | (squares > sent * largest**2)
        # Cauchy and Schwarz, in floats with a margin; and whole numbers have larger squares.
        short = sums.astype(np.float64) ** 2 > squares.astype(np.float64) * sent * (1 + 1e-9)
        if np.any(wrong | short | (np.abs(sums) > squares)):
            return "a sum, or a sum of squares, is impossible for this number of directions"
        return None

    # What the counters say.

    def _by_coordinate(self, cells: Cells) -> tuple[Cells, Cells]:
        """Return the sums of the coordinates, and those of their squares."""
        return cells[..., 2 : 2 + self.d], cells[..., 2 + self.d :]

    @cached_property
    def _shape(self) -> "_Shape":
        return _shape(self._odds)

    @property
    def scale(self) -> float:
        """What a coordinate of a direction is divided by: how far it follows the vector."""
        return self._shape.scale

    def sums(self, cells: Cells) -> tuple[Floats, Floats]:
        sums = self._by_coordinate(cells[..., 0, :])[0] / self.scale
        return np.broadcast_to(cells[..., 0, :1].astype(np.float64), sums.shape), sums

    def squares(self, cells: Cells) -> Floats:
        found: Floats = self._by_coordinate(cells[..., 0, :])[1] / self.scale**2
        return found

    def moments(self, cells: Cells) -> Moments:
        """Return the moments of the answers about each number.

        Only the mean of the data is known. The variance is that of the answers, and never below
        that of the noise: a few answers that happen to agree prove nothing. What the finite number
        of codebooks can add at most to the error of the mean of all answers is included.

        Parameters
        ----------
        cells
            Counters, a row for each unit.

        Returns
        -------
        Moments
            The numbers from which estimates and their errors follow.

        Examples
        --------
        >>> import fedldp
        >>> coder = DirectionsCoder.of(epsilon=4.0, d=3)
        >>> codes = coder.encode(np.tile([0.6, 0.0, 0.8], (10_000, 1)), fedldp.source(7))
        >>> cells = np.zeros(coder.cells, np.int64)
        >>> coder.count(codes, 0, cells)
        >>> coder.moments(cells[None]).mean.round(1) + 0.0
        array([0.6, 0. , 0.8])
        """
        (m, total), squares = self.sums(cells), self._by_coordinate(cells[0])[1]
        mean = total / m
        least = self._least_noise
        variance = np.maximum(squares / self.scale**2 / m - mean**2, least)
        variance *= 1 + _CODEBOOK_SHARE * m / self.fleet
        largest = float(table()[-1]) / self.scale
        possible = np.clip(mean, -1.0, 1.0)
        far = (1 + np.abs(possible)) ** 2
        return Moments(
            m,
            mean,
            variance,
            np.minimum(mean**2, 1.0),
            0.0,
            farthest=(largest + np.abs(possible)) ** 2,
            hidden=far / (far + self.noise),
            bulk=least,
        )

    @cached_property
    def law(self) -> Law:
        """The law of one coordinate's value if it is the only one of its vector.

        Chernoff's bound on a mean of its answers holds for all vectors. A coordinate of a vector
        along u, with the share a = u_i, is a s + sqrt(1 - a^2) z, where s is the product with u and
        z is normal. The logarithm of its exponential moment at v is psi(v a) + v^2 (1 - a^2) / 2,
        where psi is that of s among the best. The derivative by a is v (psi'(v a) - v a) >= 0,
        since choosing the best only raises the mean of s. So the moment is largest at a = 1.
        """
        odds, values, places = self._odds, *np.unique(table(), return_inverse=True)
        uniform = np.bincount(places) / vehicle.QUANTILES
        top = np.bincount(places, _top(self.directions, self.best))
        extra = self.best * (self.high - self.low) / odds.total
        common = self.directions * self.low / odds.total
        rows = [common * uniform + extra * side for side in (top[::-1], top)]
        middle = np.flatnonzero(values == 0)[0]
        for row in rows:
            row[middle] += odds.null / odds.total
        letters = [-1.0, 1.0]
        if self.null_input:
            rows.insert(1, common * uniform)
            rows[1][middle] += self.null_input / odds.total
            letters = [-1.0, 0.0, 1.0]
        return Law(np.array(letters), values / self.scale, np.array(rows))

    def beyond(self, m: Floats, mean: Floats) -> tuple[Floats, Floats] | None:
        return self.law.beyond(m, mean)

    def checks(self, cells: Cells) -> list[Check]:
        """Return how likely the number of null codes is, and the lengths of the directions.

        Seeds are drawn at random, so that the square of the length of a direction has a known law,
        whatever the vectors are. A vehicle that searches seeds for a direction that points far to
        one side sends directions that are too long. With a null input, the number of null codes
        tells how many directions were chosen for a vector, and so how long they may be. Without
        one, nothing tells how many vectors are zero, and all directions may be as long as those of
        vectors.

        Parameters
        ----------
        cells
            The counters of a single unit, in one row.

        Returns
        -------
        list of Check
            Numbers with the largest probability that honest vehicles cause them.

        Examples
        --------
        >>> import fedldp
        >>> coder = DirectionsCoder.of(epsilon=4.0, d=3)
        >>> codes = coder.encode(np.tile([0.6, 0.0, 0.8], (10_000, 1)), fedldp.source(7))
        >>> cells = np.zeros(coder.cells, np.int64)
        >>> coder.count(codes, 0, cells)
        >>> all(check.p_value > 1e-6 for check in coder.checks(cells[None]))
        True
        """
        special = scipy_module("special")
        bdtr, bdtrc = special.bdtr, special.bdtrc

        m, nulls = int(cells[0, 0]), int(cells[0, 1])
        if not m:
            return []
        total = self._odds.total
        least = self.null / total
        most = max(self.null_input / total, least)
        few = Check("number of null codes", nulls, m * least, float(bdtr(nulls, m, least)))
        many = Check("number of null codes", nulls, m * most, float(bdtrc(nulls - 1, m, most)))
        square = float(self._by_coordinate(cells[0])[1].sum(dtype=np.float64))
        lengths, sent = self._lengths, m - nulls
        square /= self._shape.square * self._shape.scale**2  # the mean square of one coordinate
        honest = sent * lengths.of_direction - nulls * lengths.of_null
        beyond = square - honest - sent * _SQUARED_LENGTH_TOLERANCE
        rates = m * lengths.logarithms - lengths.exponents * beyond
        long = Check(
            "mean square length of directions",
            square / max(sent, 1),
            honest / max(sent, 1),
            float(np.exp(min(rates.min(), 0.0))),
        )
        return [few, many, long]

    @cached_property
    def _lengths(self) -> "_Lengths":
        """What Chernoff's bound on the lengths of directions needs, as in `Law.beyond`.

        It is for vectors with a single number, whose law is that of the table; that of all other
        vectors is so close that `_ALLOWED` covers the difference.
        """
        exponents = np.geomspace(1e-6, 0.4, 200)
        squares, places = np.unique(table() ** 2, return_inverse=True)
        uniform = np.bincount(places) / vehicle.QUANTILES
        top = np.bincount(places, _top(self.directions, self.best))
        raised = np.exp(np.outer(exponents, squares / (uniform @ squares)))
        low, extra = self.directions * self.low, self.best * (self.high - self.low)
        every = raised @ uniform
        along = (low * every + extra * (raised @ top)) / (low + extra)
        # The mean of T must be 0 for a vector, and for the null input (or at most 0 without one).
        excess = max(self._shape.along / self._shape.square - 1, 0.0)
        of_null, from_vector, from_null = 0.0, self.null / self._odds.total, 0.0
        if self.null_input:
            from_null = self.null_input / self._odds.total
            excess *= (1 - from_vector) * from_null / (from_null - from_vector)
            of_null = excess * (1 - from_null) / from_null
        of_direction = self.d + excess
        known = [
            np.logaddexp(
                np.log(max(share, _SMALLEST_PROBABILITY)) + exponents * of_null,
                np.log1p(-share) + (self.d - 1) * np.log(every) + np.log(last)
                - exponents * of_direction,
            )
            for share, last in ((from_null, every), (from_vector, along))
        ]  # fmt: skip
        return _Lengths(of_direction, of_null, exponents, np.maximum(*known))

    @property
    def reach(self) -> float:
        """How far one answer can lie from an honest mean, at most."""
        return float(table()[-1]) / self.scale + 1

    @cached_property
    def _least_noise(self) -> float:
        shape = self._shape
        return min(shape.sent_null * shape.square, shape.sent * shape.along - 1)

    def variance(self, x: npt.ArrayLike) -> Any:
        """Return the variance of the estimate of one number of a vector of length 1.

        Parameters
        ----------
        x
            The number, in [-1, 1], or an array of such numbers.

        Returns
        -------
        float or array
            The variance for each x.

        Examples
        --------
        >>> bool(DirectionsCoder.of(epsilon=4.0, d=3).variance(0.0) > 0)
        True
        """
        square, shape = validation.unit(x) ** 2, self._shape
        return shape.sent * (shape.square + square * (shape.along - shape.square)) - square

    def mean_length(self, cells: Cells) -> Floats | None:
        if not self.null_input:
            return None
        shape, (answers, nulls) = self._shape, np.moveaxis(cells[..., 0, :2], -1, 0)
        sent = 1 - nulls / np.maximum(answers, 1)
        length = (sent - shape.sent_null) / (shape.sent - shape.sent_null)
        return np.asarray(np.clip(length, 0.0, 1.0))

    def noise_at(self, length: Any) -> Any:
        shape = self._shape
        return shape.square * (shape.sent_null + length * (shape.sent - shape.sent_null))

    def assumed(self, inputs: Floats | str, weight: float) -> Assumed:
        """Return what to expect of a report: its noise, and the mean of x and of x^2.

        Parameters
        ----------
        inputs
            Public inputs, a row for each vehicle, or one of `ASSUMPTIONS`: `"uniform"` are vectors
            in all directions, with all lengths equally likely; in the `"worst"` case they are as
            long as they can be.
        weight
            The worst case maximises the noise plus `weight` times x^2.

        Returns
        -------
        tuple
            The mean noise, the mean of x and the mean of x^2.

        Examples
        --------
        >>> noise, mean, square = DirectionsCoder.of(epsilon=4.0, d=3).assumed("worst", 1.0)
        >>> float(mean), round(float(square), 3)
        (0.0, 0.333)
        """
        shape = self._shape
        extra = shape.sent * (shape.along - shape.square)
        if isinstance(inputs, str):
            length, square = (1.0, 1.0) if inputs == "worst" else (1 / 2, 1 / 3)
            shown = length if self.null_input else 1.0
            noise = self.noise_at(length) + (shown * extra - square) / self.d
            return noise, 0.0, square / self.d
        squares = inputs**2
        lengths = np.sqrt(squares.sum(axis=1))
        # How often a direction is chosen for the vector, and the share of a number in its square.
        shown = lengths if self.null_input else 1.0
        shares = squares / np.where(lengths > 0, lengths, 1.0)[:, None] ** 2
        along = extra * shares * np.broadcast_to(shown, lengths.shape)[:, None]
        noise = self.noise_at(float(lengths.mean())) + (along - squares).mean(axis=0)
        return noise, inputs.mean(axis=0), squares.mean(axis=0)


_ENTRIES = ("directions", "best", "high", "low", "null", "null_input", "seed_bits", "key")


# How good some odds are.


@lru_cache(maxsize=8)
def _ranks(directions: int) -> tuple[Floats, Floats]:
    """Return the mean, and the mean square, of the j-th largest of some numbers of the table.

    The table stands for a law with equal odds for all entries, so that an entry has j of the others
    above it with a binomial probability. The entries below zero mirror those above.
    """
    upper = table()[vehicle.QUANTILES // 2 :]
    powers = np.stack([upper, upper**2])
    mean, square = np.array([powers @ weight for weight in _binomial(directions)]).T
    factor = directions / vehicle.QUANTILES
    return factor * (mean - mean[::-1]), factor * (square + square[::-1])


def _binomial(directions: int) -> Any:
    """Yield the probability that j others are above an entry, for the entries above zero."""
    above = (np.arange(vehicle.QUANTILES // 2, 0, -1) - 0.5) / vehicle.QUANTILES
    odds, probability = above / (1 - above), (1 - above) ** (directions - 1)
    for j in range(directions):
        yield probability
        probability *= odds
        probability *= (directions - 1 - j) / (j + 1)


@lru_cache(maxsize=32)
def _top(directions: int, best: int) -> Floats:
    """Return the probability of each entry of the table to be a number of one of the best."""
    upper, lower = (np.zeros(vehicle.QUANTILES // 2) for _ in range(2))
    for j, probability in enumerate(_binomial(directions)):
        if j < best:
            upper += probability
        if j >= directions - best:
            lower += probability
    found: Floats = np.concatenate([lower[::-1], upper])
    found /= found.sum()
    return found


class _Lengths(NamedTuple):
    """How long the directions of honest vehicles are, in terms of the mean square of a coordinate.

    T is the square of the length of a direction less `of_direction`, or `of_null` for a null code.
    """

    of_direction: float
    of_null: float
    exponents: Floats  # s
    logarithms: Floats  # the largest ln E[e^(s T)] of an honest vehicle


class _Shape(NamedTuple):
    """What answers are like, in terms of the vector."""

    scale: float
    square: float  # the mean square of a coordinate of a direction, if the data do not matter
    along: float  # the same of its product with the vector, if it was chosen for the vector
    sent: float  # the probability that a vector gets a direction, and not the null code
    sent_null: float  # the same for the null input, or for a vector if that is not used


@lru_cache(maxsize=256)
def _shape(odds: vehicle.Odds) -> _Shape:
    means, squares = _ranks(odds.directions)
    total, t, low = odds.total, odds.best, odds.directions * odds.low
    extra = t * (odds.high - odds.low)
    scale = extra / total * float(means[:t].mean())
    top, every = float(squares[:t].mean()), float(squares.mean())
    along = (low * every + extra * top) / (low + extra)
    sent, sent_null = (low + extra) / total, low / total
    return _Shape(
        scale,
        every / scale**2,
        along / scale**2,
        sent,
        sent_null if odds.null_input else sent,
    )


class _Choice(NamedTuple):
    odds: vehicle.Odds
    error: float


def _check_lengths(rows: Vectors, first: int) -> None:
    """Refuse rows that are too long: nothing is clipped here. `first` numbers the first of them."""
    lengths = rows.lengths
    if lengths.size and not lengths.max() <= 1 + _LENGTH_TOLERANCE:  # not if one of them is NaN
        place = int(np.argmin(lengths <= 1 + _LENGTH_TOLERANCE))
        raise DomainError(
            f"x must have rows of a length of at most 1; row {first + place} has "
            f"{lengths[place]!r}. Divide by the public bound on the length first, and scale down "
            "longer rows."
        )


def _split_words(octets: npt.NDArray[np.uint8], vehicles: int) -> list[npt.NDArray[Any]]:
    """Return the seeds, the words that round lengths and those that choose codes, of some vehicles.

    For each `vehicles` of them, all seeds come first, then all words of the second kind.
    """
    together = octets.reshape(-1, max(1, _DRAWN_BYTES * vehicles))
    ends = [0, 4 * vehicles, 8 * vehicles, _DRAWN_BYTES * vehicles]
    parts = [np.ascontiguousarray(together[:, a:b]) for a, b in itertools.pairwise(ends)]
    seeds, rounding, words = (part.reshape(-1) for part in parts)
    return [
        seeds.view("<u4").astype(np.uint32, copy=False),
        rounding.view("<u4").astype(np.uint32, copy=False),
        words.view("<u8").astype(np.uint64, copy=False),
    ]


def _length_shares(lengths: Floats) -> Integers:
    """Return the share of the bound that vectors of whole numbers have as their length, in 2^-32.

    The same whole numbers as `vehicle.direction_code`: the root of a double can be rounded up to a
    whole number that the exact root does not reach, and never down from one.
    """
    squares = np.rint(lengths * lengths).astype(np.int64)  # whole numbers again, below 2^42
    inside = np.minimum(squares, (1 << 40) - 1)
    shares = (np.sqrt(inside.astype(np.float64)) * 2.0**12).astype(np.int64)  # at most 2^32
    # Squares reach 2^64, where signed numbers wrap: the difference is small, and right again.
    shares -= shares * shares - (inside << 24) > 0
    shares[squares > inside] = 1 << vehicle.ROUNDING
    return shares


@lru_cache(maxsize=256)
def _best(epsilon: float, d: int, mean_length: float, directions: int, null: bool | str) -> _Choice:
    """Return the odds with the least squared error of a report, summed over d coordinates.

    The mean square of the vectors counts alike for all, and is left out.
    """
    if not isinstance(null, bool) and null != "best":
        raise DomainError(f'null must be True, False or "best"; got {null!r}.')
    means, squares = _ranks(directions)
    t = np.arange(1, directions)
    top = np.cumsum(squares)[:-1] / t
    every = squares.mean()
    ratio = exp(epsilon)
    candidates = []
    for use in (False, True) if null == "best" else (bool(null),):
        total = t * ratio + directions - (0 if use else t)
        scale = (ratio - 1) * np.cumsum(means)[:-1] / total
        low, extra = directions / total, t * (ratio - 1) / total
        # With null input: a vector of length r gives a direction with probability low + r extra.
        share = mean_length if use else 1.0
        error = (d * (low + share * extra) * every + share * extra * (top - every)) / scale**2
        place = int(np.argmin(error))
        candidates.append(
            _Choice(_integers(epsilon, directions, place + 1, use), float(error[place]))
        )
    return min(candidates, key=lambda choice: choice.error)


def _integers(epsilon: float, directions: int, best: int, null: bool) -> vehicle.Odds:
    """Return odds that add up to 2^62, the largest below the ratio e^epsilon."""
    ratio = vehicle.exp_below(vehicle.exact(epsilon))
    others = directions if null else directions - best
    low = int(_TOTAL / (best * ratio + others))
    high = int(low * ratio)
    rest = _TOTAL - best * high - (directions - best) * low
    null_input = _TOTAL - directions * low if null else 0
    return vehicle.Odds(directions, best, high, low, rest, null_input)


def _doubling(odds: vehicle.Odds) -> float:
    """Return how likely two vehicles with one vector and one seed are to send one direction.

    It is in terms of the probability to send a direction: for n vehicles and S seeds, n / S times
    this is what the finite number of seeds adds to the variance, in terms of it.
    """
    best, others = odds.best * odds.high, (odds.directions - odds.best) * odds.low
    return (best * odds.high + others * odds.low) / odds.total / (best + others)
