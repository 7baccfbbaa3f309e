"""Channels: the finite, exact form of a mechanism, from which everything released is drawn.

The privacy of a channel is a property of one table of integers, which the constructor checks in
integers. The functions of `fedldp.vehicle`, on the standard library alone, do the checking.
"""

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal import documents, notebook, validation
from fedldp._internal.text import counted
from fedldp._internal.validation import Floats, Integers
from fedldp.coders import tables
from fedldp.coders.base import ByLaw, Document, ForNumbers, epsilon_of
from fedldp.coders.laws import Law
from fedldp.errors import DomainError, PrivacyError
from fedldp.randomness import Source, check_source

_ENTRIES = {"epsilon", "letters", "values", "counts"}

_CHUNK_VALUES = 1 << 15  # a few arrays of this size stay in the cache


@final
@dataclass(frozen=True, eq=False, repr=False)
class Channel(ByLaw, ForNumbers):
    """An exactly epsilon-private table: input letters (rows) to outputs (columns).

    `counts[i, j] / total` is the probability of output j at letter i. A value between two letters
    is first rounded to one of them at random, without bias. A table that cannot be proved private
    in integers is refused. `Mechanism.channel` makes channels.

    Parameters
    ----------
    epsilon
        The privacy budget, from 0.001 to 16.
    counts
        The table of integers. Every row adds up to the same power of two.
    letters
        The inputs of the rows, ascending from -1 to 1.
    values
        The values of the columns, ascending.

    Raises
    ------
    PrivacyError
        If the table is not epsilon-private.
    DomainError
        If the parameters do not fit together, or the table is biased.

    Examples
    --------
    >>> import fedldp
    >>> channel = fedldp.mechanisms.Duchi(epsilon=1.0).channel()
    >>> channel
    <Channel: epsilon 1, 2 letters to 2 outputs, 1 bit>
    >>> channel.counts.tolist()
    [[842853156429848119, 310068348176998857], [310068348176998857, 842853156429848119]]
    >>> codes = channel.encode([0.5, -0.9, 1.0], fedldp.source(1))
    >>> codes, channel.decode(codes).round(3)
    (array([1, 0, 1], dtype=uint8), array([ 2.164, -2.164,  2.164]))
    """

    kind = "numbers"

    epsilon: float
    counts: Integers
    letters: Floats
    values: Floats

    def __post_init__(self) -> None:
        epsilon = validation.epsilon(self.epsilon)
        object.__setattr__(self, "epsilon", epsilon)
        try:
            counts = np.array(self.counts)
        except ValueError:
            raise DomainError("counts must be in rows of one length.") from None
        if counts.dtype.kind not in "iu" or (
            counts.size and counts.max() > vehicle.LARGEST_ROW_TOTAL
        ):
            raise DomainError("counts must be integers of at most 2^62.")
        object.__setattr__(self, "counts", tables.read_only(counts, np.int64))
        object.__setattr__(
            self, "letters", tables.read_only(validation.reals(self.letters, "letters"))
        )
        object.__setattr__(
            self, "values", tables.read_only(validation.reals(self.values, "values"))
        )
        self._check_shape()
        reason = vehicle.fault(self.counts.tolist(), vehicle.exact(epsilon))
        if reason is not None:
            raise PrivacyError(f"not an epsilon = {epsilon:g} channel: {reason}.")
        arrays = (array.tolist() for array in (self.counts, self.letters, self.values))
        reason = vehicle.bias_fault(*arrays)
        if reason is not None:
            raise DomainError(f"a channel must be unbiased at every letter; got {reason}.")

    def __repr__(self) -> str:
        return (
            f"<Channel: epsilon {self.epsilon:g}, {self.letters.size:,} letters to "
            f"{self.outputs:,} outputs, {counted(self.bits, 'bit')}>"
        )

    def _repr_html_(self) -> str:
        shown = [0, self.letters.size // 2, self.letters.size - 1]
        columns = ["code", "value", *(f"probability at {self.letters[i]:.4g}" for i in shown)]
        table = np.column_stack([self.values, *self.table[shown]]).tolist()
        rows = ([code, *row] for code, row in enumerate(table))
        return notebook.table(repr(self)[1:-1], columns, rows)

    def _check_shape(self) -> None:
        letters, values = self.letters, self.values
        fits = (
            letters.ndim == values.ndim == 1
            and self.counts.shape == (letters.size, values.size)
            and 2 <= values.size <= vehicle.MOST_OUTPUTS
            and np.all(np.isfinite(values))
            and np.all(values[1:] > values[:-1])
            and vehicle.is_ladder(letters.tolist())
        )
        if not fits:
            shapes = letters.shape, values.shape, self.counts.shape
            raise DomainError(
                "a channel needs ascending letters from -1 to 1, up to "
                f"{vehicle.MOST_OUTPUTS} ascending values, and a count for each pair; got the "
                f"shapes {shapes}."
            )

    @property
    def total(self) -> int:
        """The sum of every row: a power of two."""
        return int(self.counts[0].sum())

    @property
    def outputs(self) -> int:
        """How many outputs there are."""
        return self.values.size

    @property
    def bits(self) -> int:
        """How many bits a code takes."""
        return vehicle.column_bits(self.outputs)

    @property
    def cells(self) -> int:
        """How many counters a tally keeps: one for each output."""
        return self.outputs

    @cached_property
    def ratio(self) -> Fraction:
        """The largest ratio of two probabilities of an output: at most e^epsilon."""
        columns = zip(*self.counts.tolist(), strict=True)
        return max(Fraction(max(column), min(column)) for column in columns if max(column))

    @property
    def likeliest(self) -> float:
        """The largest probability that an output has at any letter."""
        return float(self.counts.max() / self.total)

    @cached_property
    def table(self) -> Floats:
        """The probabilities of the outputs (columns) at the letters (rows)."""
        return tables.read_only(self.counts / self.total)

    @cached_property
    def law(self) -> Law:
        """The probability of each value as the answer to a number."""
        return Law(self.letters, self.values, self.table)

    def histograms(self, cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return cells

    def variance(self, x: npt.ArrayLike) -> Any:
        array = validation.unit(x)
        return tables.variance(self.letters, self.values, self.table, array)[()]

    @cached_property
    def worst_case_variance(self) -> float:
        """The largest variance over all real x in [-1, 1], the rounding of x included."""
        return tables.largest_piecewise_quadratic(self.variance, self.letters)

    @cached_property
    def alias(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.unsignedinteger[Any]]]:
        """For each letter and column: a threshold, and the bits to flip in the column's number."""
        rows = [vehicle.alias_row(row) for row in self.counts.tolist()]
        thresholds = np.array([row[0] for row in rows], np.uint64)
        flips = np.array([row[1] for row in rows]) ^ np.arange(thresholds.shape[1])
        return thresholds.reshape(-1), flips.astype(self._code_dtype).reshape(-1)

    @cached_property
    def _is_even(self) -> bool:
        return vehicle.is_even(self.letters.tolist())

    @property
    def _code_dtype(self) -> type[np.unsignedinteger[Any]]:
        return np.uint8 if self.bits <= 8 else np.uint16

    def encode(self, x: npt.ArrayLike, source: Source) -> Any:
        """Return one code for each number in x.

        Each value takes 64 random bits to draw from the table and 32 others to round x; all
        decisions are integer comparisons and the work is the same for every value.

        Parameters
        ----------
        x
            A number in [-1, 1], or an array of such numbers.
        source
            The random source, from `fedldp.source`.

        Returns
        -------
        int or array
            The codes, in the shape of x.

        Raises
        ------
        DomainError
            If x is not in [-1, 1], or source is not a `Source`.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp.mechanisms import Duchi
        >>> Duchi(epsilon=1.0).channel().encode([0.5, -0.9, 1.0], fedldp.source(1))
        array([1, 0, 1], dtype=uint8)
        """
        array = validation.reals(x, "x")
        check_source(source)
        codes = np.empty(array.shape, self._code_dtype)
        flat_x, flat_codes = array.reshape(-1), codes.reshape(-1)
        for start in range(0, array.size, _CHUNK_VALUES):
            part = slice(start, start + _CHUNK_VALUES)
            values = flat_x[part]
            if not validation.is_unit(values):  # here, while they are in the cache
                validation.unit(array)  # refuses, and says where
            words = source.words(values.size)
            rounding = source.words(values.size, np.uint32)
            self._draw(self._letters_of(values, rounding), words, flat_codes[part])
        return codes[()]

    def places(self, x: Floats) -> Floats:
        """Return where each x lies among the letters.

        Parameters
        ----------
        x
            Numbers in [-1, 1].

        Returns
        -------
        array of float
            3 for an x that is letter 3, and 3.2 for one a fifth of the way from letter 3 to letter
            4.

        Examples
        --------
        >>> import fedldp
        >>> fedldp.mechanisms.ThreeOutputs(epsilon=1.0).channel().places(np.array([-1.0, 0.5]))
        array([0. , 1.5])
        """
        last = self.letters.size - 1
        if self._is_even:
            place = x * (last / 2)
            place += last / 2
        else:
            place = np.zeros(x.shape)
            for low, high in pairwise(self.letters):
                place += np.clip((x - low) * (1 / (high - low)), 0.0, 1.0)
        return place

    def _letters_of(self, x: Floats, rounding: npt.NDArray[np.uint32]) -> Integers:
        """Round each x at random to the number of a letter, like `vehicle.letter_of`."""
        place = self.places(x)
        place *= 1 << vehicle.ROUNDING
        place += 0.5
        letters = place.astype(np.int64)
        letters += rounding
        letters >>= vehicle.ROUNDING
        return letters

    def _draw(
        self, letters: Integers, words: npt.NDArray[np.uint64], codes: npt.NDArray[Any]
    ) -> None:
        """Draw a code from each letter's row, like `vehicle.draw`."""
        thresholds, flips = self.alias
        columns = words >> np.uint64(vehicle.WORD - self.bits)
        letters <<= self.bits
        letters += columns.view(np.int64)
        words <<= np.uint64(self.bits)
        keeps_letter = words < thresholds.take(letters)
        flip = flips.take(letters)
        flip *= ~keeps_letter
        np.bitwise_xor(columns.astype(codes.dtype), flip, out=codes)

    def decode(self, codes: npt.ArrayLike) -> Any:
        """Return the value of each code.

        Parameters
        ----------
        codes
            A code, or an array of codes.

        Returns
        -------
        float or array
            The values, in the shape of the codes.

        Raises
        ------
        DomainError
            If a code is unknown.

        Examples
        --------
        >>> import fedldp
        >>> fedldp.mechanisms.Duchi(epsilon=1.0).channel().decode([1, 0, 1]).round(3)
        array([ 2.164, -2.164,  2.164])
        """
        try:
            array = np.asarray(codes)
        except ValueError:  # rows of different lengths
            array = np.array(None)
        if array.size == 0:
            return np.empty(array.shape)
        if array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= self.outputs:
            raise DomainError(f"codes must be integers from 0 to {self.outputs - 1}.")
        return self.values[array]

    def to_json(self) -> str:
        """Return the channel as canonical JSON: equal channels give equal text.

        Returns
        -------
        str
            Text that `from_json` and `fedldp.vehicle.Channel` read.

        Examples
        --------
        >>> import fedldp
        >>> channel = fedldp.mechanisms.Duchi(epsilon=1.0).channel()
        >>> Channel.from_json(channel.to_json()) == channel
        True
        """
        document = {"format": vehicle.FORMAT, **self.to_document()}
        del document["kind"]
        return vehicle.canonical(document)

    def to_document(self) -> Document:
        return {
            "kind": self.kind,
            "epsilon": str(self.epsilon),
            "letters": self.letters.tolist(),
            "values": self.values.tolist(),
            "counts": [
                [vehicle.json_integer(count) for count in row] for row in self.counts.tolist()
            ],
        }

    @classmethod
    def from_json(cls, text: str) -> "Channel":
        """Read a channel and validate all of it again.

        Parameters
        ----------
        text
            The text that `to_json` returned.

        Returns
        -------
        Channel
            The channel.

        Raises
        ------
        WireError
            If the text is not a valid channel.
        PrivacyError
            If the table leaks more than it claims.

        Examples
        --------
        >>> Channel.from_json("[]")
        Traceback (most recent call last):
        fedldp.errors.WireError: not a 'fedldp channel 1': it must be a JSON object
        """
        with documents.reading(repr(vehicle.FORMAT)):
            document = documents.parse(text, [vehicle.FORMAT], _ENTRIES)
            del document["format"]
            return cls.from_document({"kind": cls.kind, **document})

    @classmethod
    def from_document(cls, document: Document, coordinates: int = 1) -> "Channel":
        counts, letters = vehicle.table_of(document)
        if set(document) != {"kind", *_ENTRIES}:
            raise ValueError("it has unknown or missing entries")
        epsilon = epsilon_of(document)
        return cls(epsilon, cast(Any, counts), cast(Any, letters), document["values"])

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the canonical JSON, in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def __reduce__(self) -> tuple[type["Channel"], tuple[Any, ...]]:
        return Channel, (self.epsilon, self.counts, self.letters, self.values)  # checked again

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Channel) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


def exact_channel(epsilon: float, letters: Floats, values: Floats, table: Floats) -> Channel:
    """Return the channel closest to a table of probabilities that is symmetric about 0."""
    return Channel(epsilon, tables.to_counts(values, letters, table, epsilon), letters, values)
