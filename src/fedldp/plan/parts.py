"""The parts of a plan: which attributes share a coder, and how many of them a vehicle answers.

A part divides its coordinates into units, each of which is answered by one code: a unit is one
coordinate or, with a joint coder, all of them. A vehicle answers k of the units, chosen at random.
A part knows where things lie, in a record and in a tally; its coder knows what a code means.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, chain, groupby
from math import comb, prod
from typing import Any, NamedTuple, Protocol, cast, final, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal.packing import Records
from fedldp._internal.validation import Floats, Integers
from fedldp._internal.vectors import DenseRows, Vectors, scale_and_clip
from fedldp.coders import CODERS
from fedldp.coders.base import Cells, Coder, Document, Mask, VectorCoder
from fedldp.coders.moments import Moments
from fedldp.errors import DomainError, WireError
from fedldp.randomness import Source
from fedldp.schema.attributes import Attribute
from fedldp.schema.schema import Schema

__all__ = ["Matrix", "Part", "VehicleValues"]

_SMALL = 16  # bits of a slot that are counted by one histogram


class VehicleValues(Protocol):
    """Some vehicles, each with a value for every column of a schema.

    A vehicle is asked only for the values it has chosen to answer: what is costly to compute, such
    as a gradient, need not be computed for the others.

    Examples
    --------
    >>> values: VehicleValues = Matrix(np.array([[31.0, 1.0], [54.0, 0.0]]))
    >>> len(values)
    2
    """

    def __len__(self) -> int: ...

    def take(self, rows: Integers | None, columns: Integers) -> Floats:
        """Return a new array with one value of each row.

        Parameters
        ----------
        rows
            The numbers of the rows; None for all.
        columns
            For each of the rows, the column of the value.

        Returns
        -------
        array of float
            The values.

        Examples
        --------
        >>> Matrix(np.array([[31.0, 1.0], [54.0, 0.0]])).take(None, np.array([1, 0]))
        array([ 1., 54.])
        """

    def all(self, columns: Integers) -> Floats:
        """Return a new array with the values of every row in some columns.

        Parameters
        ----------
        columns
            The numbers of the columns.

        Returns
        -------
        array of float
            A row for each vehicle.

        Examples
        --------
        >>> Matrix(np.array([[31.0, 1.0], [54.0, 0.0]])).all(np.array([0]))
        array([[31.],
               [54.]])
        """


@runtime_checkable
class VectorValues(VehicleValues, Protocol):
    """Values that are mostly zero, or on a device: vectors of bounded length are read as such."""

    def vectors(self, columns: Integers) -> Vectors:
        """Return the values in some columns, which are numbered from 0 in their order."""


def vectors_of(values: VehicleValues, columns: Integers) -> Vectors:
    """Return the values in some columns as vectors, wherever they are."""
    if isinstance(values, VectorValues):
        return values.vectors(columns)
    return DenseRows(values.all(columns))


@final
@dataclass(frozen=True)
class Matrix:
    """Values in memory: a row for each vehicle, NaN where a value is missing.

    Parameters
    ----------
    matrix
        A matrix with a column for each coordinate of the schema.

    Examples
    --------
    >>> len(Matrix(np.array([[31.0, 1.0], [54.0, 0.0]])))
    2
    """

    matrix: Floats

    def __len__(self) -> int:
        return len(self.matrix)

    def take(self, rows: Integers | None, columns: Integers) -> Floats:
        """Return a new array with one value of each row.

        Parameters
        ----------
        rows
            The numbers of the rows; None for all.
        columns
            For each of the rows, the column of the value.

        Returns
        -------
        array of float
            The values.

        Examples
        --------
        >>> Matrix(np.array([[31.0, 1.0], [54.0, 0.0]])).take(None, np.array([1, 0]))
        array([ 1., 54.])
        """
        rows = np.arange(len(self.matrix)) if rows is None else rows
        values: Floats = self.matrix.reshape(-1).take(rows * self.matrix.shape[1] + columns)
        return values

    def all(self, columns: Integers) -> Floats:
        """Return a new array with the values of every row in some columns.

        Parameters
        ----------
        columns
            The numbers of the columns.

        Returns
        -------
        array of float
            A row for each vehicle.

        Examples
        --------
        >>> Matrix(np.array([[31.0, 1.0], [54.0, 0.0]])).all(np.array([0]))
        array([[31.],
               [54.]])
        """
        return self.matrix[:, columns]


class Decoder(Protocol):
    """What a server needs of a coder to learn the mean of a vector from counters."""

    @property
    def noise(self) -> float:
        """The variance of an answer about one estimate, as far as it is known without the data."""

    def sums(self, cells: Cells) -> tuple[Floats, Floats]:
        """Return, for each number, how many answers there are and the sum of their values."""

    def noise_at(self, length: Any) -> Any:
        """Return the noise of an answer about a number near 0 of a vector of some length."""


class Countable(Protocol):
    """What a simulation needs of a part: to count answers, and to read the counters."""

    @property
    def study(self) -> bool:
        """Whether the counters are not whole numbers."""

    @property
    def share(self) -> float:
        """The share of the vehicles that answer a coordinate."""

    @property
    def starts(self) -> Integers:
        """Where the counters of each unit begin, and where the last ones end."""

    def simulate(self, values: VehicleValues, source: Source, cells: Cells) -> None:
        """Add what some vehicles would answer to counters."""

    def by_block(self, cells: Cells) -> Iterator[tuple[Decoder, tuple[Attribute, ...], Cells]]:
        """Yield each coder with its attributes and their counters."""


class _Slot(NamedTuple):
    """A field of a record for one answer: the number of the unit, then the code."""

    start: int
    unit_bits: int
    code_bits: int

    @property
    def end(self) -> int:
        return self.start + self.unit_bits + self.code_bits


class _Answer(NamedTuple):
    """What some vehicles put into one slot: rows, the units they chose, and their inputs."""

    slot: _Slot
    rows: Integers | None  # all, if None
    units: Integers
    coder: Coder
    inputs: npt.NDArray[Any] | Vectors


class _Block(NamedTuple):
    """Neighboring units with the same coder, and their attributes."""

    coder: Coder
    attributes: tuple[Attribute, ...]
    units: slice


@final
@dataclass(frozen=True)
class Part:
    """Some attributes of a schema; a vehicle answers k of their units, chosen at random.

    Parameters
    ----------
    schema
        The schema.
    attributes
        The numbers of the attributes.
    coders
        A coder for each attribute, or one joint coder for all of them.
    k
        How many units a vehicle answers.

    Raises
    ------
    DomainError
        If the coders do not fit the attributes, or k is out of range.

    Examples
    --------
    >>> import fedldp
    >>> schema = fedldp.Schema.vector(3, bound=1.0)
    >>> part = Part(schema, attributes=(0,), coders=(fedldp.mechanisms.Duchi(1.0).channel(),), k=1)
    >>> part.units, part.k, part.epsilon, part.width
    (3, 1, Fraction(1, 1), 3)
    """

    schema: Schema
    attributes: tuple[int, ...]
    coders: tuple[Coder, ...]
    k: int

    def __post_init__(self) -> None:
        known = range(len(self.schema.attributes))
        if not self.attributes or any(number not in known for number in self.attributes):
            raise DomainError(f"a part needs attributes of its schema; got {self.attributes!r}.")
        if len(set(self.attributes)) < len(self.attributes):
            raise DomainError(f"an attribute is named twice in {self.attributes!r}.")
        if len(self.coders) != (1 if self.joint else len(self.attributes)):
            raise DomainError(
                f"a part needs a coder for each of {len(self.attributes)} attributes, or one joint "
                f"coder; got {len(self.coders)} coders."
            )
        if not 1 <= self.k <= self.units:
            raise DomainError(f"k must be from 1 to {self.units}; got {self.k!r}.")
        for block in self._blocks:
            for attribute in block.attributes:
                if attribute.inputs.ends != block.coder.inputs:
                    raise DomainError(f"the coder of {attribute.name!r} is for other inputs.")
                bounded = attribute.inputs.length is not None
                if bounded is not isinstance(block.coder, VectorCoder):
                    raise DomainError(
                        f"the coder of {attribute.name!r} is for numbers with other bounds: a "
                        "vector with a bound on its length is answered by directions alone, and "
                        "directions answer nothing else."
                    )
            if isinstance(block.coder, VectorCoder) and len(block.attributes) > 1:
                raise DomainError("directions answer one vector; got several attributes.")
        if self.joint and self.coders[0].coordinates != self.d:
            raise DomainError(
                f"the coder is for {self.coders[0].coordinates} coordinates; the part has {self.d}."
            )

    # What there is: coordinates, units and attributes.

    @cached_property
    def joint(self) -> bool:
        """Whether one code answers all coordinates."""
        return any(coder.joint for coder in self.coders)

    @cached_property
    def study(self) -> bool:
        """Whether this part is for study only."""
        return not all(coder.exact for coder in self.coders)

    @cached_property
    def _attributes(self) -> tuple[Attribute, ...]:
        return tuple(self.schema.attributes[number] for number in self.attributes)

    @cached_property
    def _sizes(self) -> list[int]:
        return [attribute.size for attribute in self._attributes]

    @cached_property
    def d(self) -> int:
        """How many coordinates there are."""
        return sum(self._sizes)

    @cached_property
    def units(self) -> int:
        """How many units there are."""
        return 1 if self.joint else self.d

    @cached_property
    def share(self) -> float:
        """The probability that a vehicle answers a given coordinate."""
        return self.k / self.units

    @property
    def epsilon(self) -> Fraction:
        """What a report costs: the k most expensive units."""
        costs = ((vehicle.exact(coder.epsilon), units) for coder, units in self._units_by_coder)
        return vehicle.largest_cost(costs, self.k)

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of the probabilities of an answer under two rows of values."""
        ratios = sorted(
            ratio
            for coder, units in self._units_by_coder
            for ratio in [coder.ratio] * min(units, self.k)
        )
        product = Fraction(1)
        for ratio in ratios[-self.k :]:
            product *= ratio
        return product

    @property
    def likeliest(self) -> float:
        """The largest probability of an answer under any row of values."""
        largest = sorted(
            likeliest
            for coder, units in self._units_by_coder
            for likeliest in [coder.likeliest] * min(units, self.k)
        )
        return prod(largest[-self.k :]) / comb(self.units, self.k)

    @property
    def most_answers(self) -> int:
        """How many answers the counters of a unit can hold."""
        return min(coder.most_answers for coder in self.coders)

    @property
    def _units_by_coder(self) -> list[tuple[Coder, int]]:
        sizes = [1] if self.joint else self._sizes
        return list(zip(self.coders, sizes, strict=True))

    @cached_property
    def _blocks(self) -> list[_Block]:
        if self.joint:
            return [_Block(self.coders[0], self._attributes, slice(0, 1))]
        blocks, start = [], 0
        asked = zip(self.coders, self._attributes, strict=True)
        for _, run in groupby(asked, lambda pair: id(pair[0])):
            coders, attributes = zip(*run, strict=True)
            stop = start + sum(attribute.size for attribute in attributes)
            blocks.append(_Block(coders[0], attributes, slice(start, stop)))
            start = stop
        return blocks

    @property
    def asked(self) -> Iterator[tuple[Coder, Attribute]]:
        """Yield each attribute with its coder."""
        for coder, attributes, _ in self._blocks:
            for attribute in attributes:
                yield coder, attribute

    @property
    def units_of(self) -> Iterator[tuple[Attribute, slice]]:
        """Yield each attribute with the units that answer it."""
        start = 0
        for attribute in self._attributes:
            stop = start + (1 if self.joint else attribute.size)
            yield attribute, slice(start, stop)
            start = 0 if self.joint else stop

    @cached_property
    def _distinct(self) -> list[Coder]:
        return list({id(coder): coder for coder in self.coders}.values())

    @cached_property
    def _coder_of(self) -> Integers:
        """For each unit, the place of its coder among the distinct ones."""
        places = {id(coder): place for place, coder in enumerate(self._distinct)}
        numbers = [places[id(coder)] for coder, _ in self._units_by_coder]
        return np.repeat(numbers, [units for _, units in self._units_by_coder])

    @cached_property
    def _rounding(self) -> set[int]:
        """Which of the distinct coders take whole numbers, from an attribute whose inputs are not.

        Inputs of other attributes with the same coder are rounded too, which changes nothing.
        """
        places = {id(coder): place for place, coder in enumerate(self._distinct)}
        whole = [
            coder
            for coder, attribute in self.asked
            if attribute.inputs.rounds and coder.inputs_dtype is np.int64
        ]
        return {places[id(coder)] for coder in whole}

    def _rows(self, units: Integers, place: int) -> Integers:
        """Return where units are those of one coder."""
        return np.flatnonzero(self._coder_of.take(units) == place)

    # Where things lie: columns of values, slots of a record, counters of a tally.

    @cached_property
    def columns(self) -> Integers:
        """The column of each coordinate of this part."""
        starts = np.cumsum([0, *(attribute.size for attribute in self.schema.attributes)])
        return np.concatenate([np.arange(starts[a], starts[a + 1]) for a in self.attributes])

    @cached_property
    def _in_order(self) -> bool:
        """Whether a coordinate's number is that of its column."""
        return bool((self.columns == np.arange(self.d)).all())

    @cached_property
    def starts(self) -> Integers:
        """Where each unit's counters begin in a tally, and where the last ones end."""
        cells = np.array([coder.cells for coder in self._distinct])
        return np.concatenate([[0], np.cumsum(cells[self._coder_of])])

    @cached_property
    def _code_bits(self) -> Integers:
        """For each unit, the bits of its code."""
        return np.array([coder.bits for coder in self._distinct])[self._coder_of]

    @cached_property
    def _slots(self) -> list[_Slot]:
        if self.k == self.units:  # nothing to choose: slot j is unit j
            widths = self._code_bits.tolist()
            ends = accumulate(widths)
            return [_Slot(end - width, 0, width) for end, width in zip(ends, widths, strict=True)]
        unit, code = vehicle.column_bits(self.units), int(self._code_bits.max())
        return [_Slot(slot * (unit + code), unit, code) for slot in range(self.k)]

    @property
    def width(self) -> int:
        """How many bits of a record this part takes."""
        return self._slots[-1].end

    # The vehicle's half.

    @cached_property
    def _scaling(self) -> tuple[Floats, Floats, Floats]:
        """For each coordinate: the centre and scale of its inputs, and the input of a missing one.

        Where all coordinates have the same values, there is one entry for all of them.
        """
        rows: list[tuple[float, float, float]] = []
        for attribute in self._attributes:
            rows += [(*attribute.inputs.scaling, attribute.inputs.missing)] * attribute.size
        centre, scale, missing = np.array(rows if len(set(rows)) > 1 else rows[:1]).T
        return centre, scale, missing

    def _inputs(
        self,
        values: VehicleValues,
        rows: Integers | None,
        units: Integers,
        place: int,
        source: Source,
    ) -> npt.NDArray[Any] | Vectors:
        """Return what a coder takes: values scaled and clipped, whether one is missing or not."""
        coder = self._distinct[place]
        centre, scale, missing = self._scaling
        if isinstance(coder, VectorCoder):
            vectors = vectors_of(values, self.columns)
            return vectors.shortened(float(scale[0]), float(missing[0]))
        if coder.joint:
            inputs = values.all(self.columns)
        else:
            inputs = values.take(rows, units if self._in_order else self.columns.take(units))
            if centre.size > 1:
                centre, scale, missing = (numbers.take(units) for numbers in self._scaling)
        scale_and_clip(inputs, centre, scale, missing, coder.inputs)
        if place in self._rounding:
            return round_at_random(inputs, source)
        return inputs.astype(coder.inputs_dtype, copy=False)

    def _answers(self, values: VehicleValues, source: Source) -> Iterator[_Answer]:
        """Choose units; yield, for each slot and coder, which rows answer what."""
        n = len(values)
        chosen = source.choose(self.k, self.units, n) if self.k < self.units else None
        for number, slot in enumerate(self._slots):
            units = np.full(n, number) if chosen is None else chosen[:, number]
            places = [self._coder_of[number]] if chosen is None else range(len(self._distinct))
            for place in places:
                rows = None if len(places) == 1 else self._rows(units, place)
                mine, coder = units if rows is None else units[rows], self._distinct[place]
                if mine.size:
                    inputs = self._inputs(values, rows, mine, place, source)
                    yield _Answer(slot, rows, mine, coder, inputs)

    def encode(self, values: VehicleValues, source: Source, records: Records, first: int) -> None:
        """Write the answers of some vehicles, one for each row, into their records.

        Parameters
        ----------
        values
            The values of the vehicles.
        source
            The random source, from `fedldp.source`.
        records
            The records to write to.
        first
            The first bit of the part in a record.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp.mechanisms import Duchi
        >>> from fedldp._internal import packing
        >>> schema = fedldp.Schema.vector(3, bound=1.0)
        >>> part = Part(schema, attributes=(0,), coders=(Duchi(1.0).channel(),), k=1)
        >>> records = packing.empty(2, part.width)
        >>> part.encode(Matrix(np.zeros((2, 3))), fedldp.source(1), records, 0)
        >>> records.to_bytes().hex()
        'a8'
        """
        for slot, rows, units, coder, inputs in self._answers(values, source):
            codes = coder.encode(inputs, source)
            if slot.unit_bits:
                records.put(first + slot.start, slot.unit_bits, units, rows)
            coder.put(codes, records, first + slot.end - coder.bits, rows)

    def simulate(self, values: VehicleValues, source: Source, cells: Cells) -> None:
        """Add what some vehicles would answer to counters.

        Random words are used as in `encode`, so that one replica gives what its reports would.

        Parameters
        ----------
        values
            The values of the vehicles of the first replica, then of the second, and so on.
        source
            The random source, from `fedldp.source`.
        cells
            Counters, a row for each replica, which are changed.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp.mechanisms import Duchi
        >>> schema = fedldp.Schema.vector(3, bound=1.0)
        >>> part = Part(schema, attributes=(0,), coders=(Duchi(1.0).channel(),), k=1)
        >>> cells = np.zeros((1, 6), np.int64)
        >>> part.simulate(Matrix(np.zeros((100, 3))), fedldp.source(1), cells)
        >>> cells
        array([[15, 20, 16, 20,  9, 20]])
        """
        flat, replicas = cells.reshape(-1), len(cells)
        first: Integers | None = None  # counter of the replica of each vehicle
        if replicas > 1:
            first = np.repeat(np.arange(replicas) * cells.shape[1], len(values) // replicas)
        for slot, rows, units, coder, inputs in self._answers(values, source):
            codes = coder.encode(inputs, source)
            if isinstance(inputs, Vectors):
                coder = cast(VectorCoder, coder).nearby(inputs)
            if not slot.unit_bits and first is None:  # all of one unit
                coder.count(codes, int(self.starts[units[0]]), flat)
                continue
            places = self.starts.take(units)
            if first is not None:
                places += first if rows is None else first[rows]
            coder.count_at(codes, places, flat)

    # The server's half.

    def count(self, records: Records, first: int, cells: Integers) -> None:
        """Add what some records say to a tally's counters.

        Parameters
        ----------
        records
            The records to read.
        first
            The first bit of the part in a record.
        cells
            The counters of the part, which are changed.

        Raises
        ------
        WireError
            If a record holds an unknown coordinate or code.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp.mechanisms import Duchi
        >>> from fedldp._internal import packing
        >>> schema = fedldp.Schema.vector(3, bound=1.0)
        >>> part = Part(schema, attributes=(0,), coders=(Duchi(1.0).channel(),), k=1)
        >>> cells = np.zeros(6, np.int64)
        >>> part.count(packing.empty(2, part.width), 0, cells)
        >>> cells
        array([2, 0, 0, 0, 0, 0])
        """
        before = None
        for number, slot in enumerate(self._slots):
            if not slot.unit_bits:
                coder = self._distinct[self._coder_of[number]]
                codes = coder.get(records, first + slot.start)
                coder.count(codes, int(self.starts[number]), cells)
                continue
            if self._small is not None:
                joint = records.get(first + slot.start, slot.unit_bits + slot.code_bits)
                self._count_small(joint, cells)
                units = joint >> slot.code_bits if self.k > 1 else joint
            else:
                units = records.get(first + slot.start, slot.unit_bits).astype(np.int64)
                if units.size and units.max() >= self.units:
                    raise WireError(f"a record names coordinate {units.max()} of {self.units}")
                self._count_slot(records, first, slot, units, cells)
            if before is not None and np.any(before >= units):
                raise WireError("the coordinates of a record do not ascend")
            before = units

    def valid(self, records: Records, first: int) -> Mask:
        r"""Return which records `count` can count: those without an unknown coordinate or code.

        Parameters
        ----------
        records
            The records to read.
        first
            The first bit of the part in a record.

        Returns
        -------
        array of bool
            Whether each record is valid.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp.mechanisms import Duchi
        >>> from fedldp._internal import packing
        >>> schema = fedldp.Schema.vector(3, bound=1.0)
        >>> part = Part(schema, attributes=(0,), coders=(Duchi(1.0).channel(),), k=1)
        >>> part.valid(packing.parse(b"\x5c", count=2, width=3), 0)
        array([ True, False])
        """
        good, before = np.ones(len(records), np.bool_), None
        for number, slot in enumerate(self._slots):
            if not slot.unit_bits:
                coder = self._distinct[self._coder_of[number]]
                unknown = coder.unknown(records, first + slot.start)
                if unknown is not None:
                    good &= ~unknown
                continue
            if self._small is not None:
                joint = records.get(first + slot.start, slot.unit_bits + slot.code_bits)
                good &= self._is_known.take(joint.astype(np.intp, copy=False))  # not uint64
                units = joint >> slot.code_bits if self.k > 1 else joint
            else:
                units = records.get(first + slot.start, slot.unit_bits).astype(np.int64)
                good &= units < self.units
                self._check_slot(records, first, slot, units, good)
            if before is not None:
                good &= before < units
            before = units
        return good

    def _check_slot(
        self, records: Records, first: int, slot: _Slot, units: Integers, good: Mask
    ) -> None:
        """Clear, among the good records, those with an unknown code in a slot."""
        known = np.where(good, units, 0)
        for place, coder in enumerate(self._distinct):
            rows = self._rows(known, place)
            spare, start = slot.code_bits - coder.bits, first + slot.end - coder.bits
            if spare:
                good[rows] &= ~records.get_bits(start - spare, spare)[rows].any(axis=1)
            unknown = coder.unknown(records, start, rows)
            if unknown is not None:
                good[rows] &= ~unknown

    @cached_property
    def _is_known(self) -> Mask:
        """Whether each number that a slot can hold names a counter, where there is a histogram."""
        slot = self._slots[0]
        known = np.zeros(1 << slot.unit_bits + slot.code_bits, np.bool_)
        known[cast(Integers, self._small)] = True
        return known

    @cached_property
    def _small(self) -> Integers | None:
        """What a slot holds for each counter, where one histogram covers all that it can hold."""
        slot = self._slots[0]
        by_code = all(coder.one_counter_per_code for coder in self._distinct)
        if not by_code or slot.unit_bits + slot.code_bits > _SMALL:
            return None
        cells = np.arange(self.starts[-1])
        units = np.searchsorted(self.starts, cells, side="right") - 1
        return (units << slot.code_bits) + cells - self.starts[units]

    def _count_small(self, joint: npt.NDArray[Any], cells: Integers) -> None:
        slot = self._slots[0]
        codes = joint.astype(np.intp, copy=False)  # NumPy 2.0 does not count uint64
        histogram = np.bincount(codes, minlength=1 << slot.unit_bits + slot.code_bits)
        found = histogram[cast(Integers, self._small)]
        if found.sum() != joint.size:
            raise WireError("a record names an unknown coordinate or code")
        cells += found

    def _count_slot(
        self, records: Records, first: int, slot: _Slot, units: Integers, cells: Integers
    ) -> None:
        for place, coder in enumerate(self._distinct):
            rows = self._rows(units, place)
            if not rows.size:
                continue
            spare, start = slot.code_bits - coder.bits, first + slot.end - coder.bits
            if spare and records.get_bits(start - spare, spare)[rows].any():
                raise WireError("a record has bits beyond its code")
            coder.count_at(coder.get(records, start, rows), self.starts.take(units[rows]), cells)

    # What the counters say.

    def by_block(self, cells: Cells) -> Iterator[tuple[Coder, tuple[Attribute, ...], Cells]]:
        """Yield each coder with its attributes and their counters.

        Parameters
        ----------
        cells
            The counters of the part, along the last axis. There may be further axes, such as one
            for replicas.

        Yields
        ------
        tuple
            A coder, its attributes and their counters, a row for each unit.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp.mechanisms import Duchi
        >>> schema = fedldp.Schema.vector(3, bound=1.0)
        >>> part = Part(schema, attributes=(0,), coders=(Duchi(1.0).channel(),), k=1)
        >>> [rows.tolist() for _, _, rows in part.by_block(np.arange(6))]
        [[[0, 1], [2, 3], [4, 5]]]
        """
        for coder, attributes, place in self._counters:
            rows = cells[..., place]
            yield coder, attributes, rows.reshape(*rows.shape[:-1], -1, coder.cells)

    def by_coder(self, cells: Cells) -> Iterator[tuple[Coder, tuple[Attribute, ...], Cells]]:
        """Yield each coder once, with all of its attributes and their counters, as `by_block`.

        Parameters
        ----------
        cells
            The counters of the part.

        Yields
        ------
        tuple
            A coder, its attributes and their counters, a row for each unit.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(a=(0, 1), b=["x", "y"], c=(0, 1))
        >>> plan = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="duchi"))
        >>> found = plan.parts[0].by_coder(np.arange(7))
        >>> [[attribute.name for attribute in attributes] for _, attributes, _ in found]
        [['a', 'c'], ['b']]
        """
        blocks: dict[int, list[tuple[Coder, tuple[Attribute, ...], Cells]]] = {}
        for block in self.by_block(cells):
            blocks.setdefault(id(block[0]), []).append(block)
        for coders, attributes, rows in (zip(*same, strict=True) for same in blocks.values()):
            yield coders[0], tuple(chain.from_iterable(attributes)), np.concatenate(rows)

    @cached_property
    def _counters(self) -> list[tuple[Coder, tuple[Attribute, ...], slice]]:
        """Each block's coder and attributes, and where its counters lie."""
        return [
            (coder, attributes, slice(int(self.starts[units.start]), int(self.starts[units.stop])))
            for coder, attributes, units in self._blocks
        ]

    def moments(self, cells: Cells) -> Iterator[tuple[tuple[Attribute, ...], Moments]]:
        """Yield the attributes of each coder with the moments of the answers about them.

        Parameters
        ----------
        cells
            The counters of the part.

        Yields
        ------
        tuple
            The attributes, and the moments of all their estimates: see `places`.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp.mechanisms import Duchi
        >>> schema = fedldp.Schema.vector(3, bound=1.0)
        >>> part = Part(schema, attributes=(0,), coders=(Duchi(1.0).channel(),), k=1)
        >>> [found.m for _, found in part.moments(np.array([3, 7, 5, 5, 6, 4]))]
        [array([10, 10, 10])]
        """
        for coder, attributes, rows in self.by_coder(cells):
            with np.errstate(divide="ignore", invalid="ignore"):
                found = coder.moments(rows)
            yield attributes, found

    def answered(self, cells: Cells) -> Cells:
        """Return how many answers there are for each unit.

        Parameters
        ----------
        cells
            The counters of the part.

        Returns
        -------
        array
            The number of answers of each unit.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp.mechanisms import Duchi
        >>> schema = fedldp.Schema.vector(3, bound=1.0)
        >>> part = Part(schema, attributes=(0,), coders=(Duchi(1.0).channel(),), k=1)
        >>> part.answered(np.array([3, 7, 5, 5, 6, 4]))
        array([10, 10, 10])
        """
        return np.concatenate([coder.answers(rows) for coder, _, rows in self.by_block(cells)])

    def invalid(self, reports: int, cells: Integers) -> str | None:
        """Return why counters cannot be those of a number of reports, or None if they can.

        Parameters
        ----------
        reports
            The number of reports.
        cells
            The counters of the part.

        Returns
        -------
        str or None
            The reason, or None if the counters are possible.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp.mechanisms import Duchi
        >>> schema = fedldp.Schema.vector(3, bound=1.0)
        >>> part = Part(schema, attributes=(0,), coders=(Duchi(1.0).channel(),), k=1)
        >>> part.invalid(2, np.array([2, 0, 0, 0, 0, 1]))
        'there are more answers, or fewer, than the reports can have'
        """
        if cells.shape != (self.starts[-1],):
            return "a part has the wrong number of counters"
        for coder, _, rows in self.by_block(cells):
            answers = coder.answers(rows)
            if np.any((answers < 0) | (answers > reports)):
                return "there are more answers than reports"
            if reason := coder.invalid(rows, answers):
                return reason
        if self.answered(cells).sum(dtype=object) != reports * self.k:
            return "there are more answers, or fewer, than the reports can have"
        return None


def round_at_random(inputs: Any, source: Source) -> Integers:
    """Round each input up or down at random, without bias, as `vehicle.letter_of` does."""
    words = source.words(inputs.shape, np.uint32).astype(np.int64)
    words += (inputs * 2.0**vehicle.ROUNDING + 0.5).astype(np.int64)
    words >>= vehicle.ROUNDING
    return words


def places(attributes: Sequence[Attribute]) -> Iterator[tuple[Attribute, slice]]:
    """Yield each of some attributes with the slice of its estimates among those of all."""
    start = 0
    for attribute in attributes:
        yield attribute, slice(start, start + attribute.inputs.estimates)
        start += attribute.inputs.estimates


def to_documents(parts: Sequence[Part]) -> tuple[list[Document], list[Document]]:
    """Return the coders of single coordinates, each once, and the parts, which refer to them."""
    tables: list[Document] = []
    numbers: dict[str, int] = {}  # of the tables, by their text
    documents: list[Document] = []
    for part in parts:
        document: Document = {"attributes": list(part.attributes)}
        if part.joint:
            document |= part.coders[0].to_document()
        else:
            mine = {}
            for coder in part.coders:
                if id(coder) not in mine:
                    table = coder.to_document()
                    text = vehicle.canonical(table)
                    if text not in numbers:
                        numbers[text] = len(tables)
                        tables.append(table)
                    mine[id(coder)] = numbers[text]
            named = [mine[id(coder)] for coder in part.coders]
            document |= {"kind": "sample", "k": part.k, "tables": named}
        documents.append(document)
    return tables, documents


def from_documents(
    schema: Schema, tables: list[Document], documents: list[Document]
) -> tuple[Part, ...]:
    """Read parts and validate them again; errors become `WireError` in `Plan.from_json`."""
    vehicle.check_tables(tables, documents)
    coders = [_coder(table, joint=False) for table in tables]
    return tuple(_part(schema, coders, dict(document)) for document in documents)


def _coder(document: Document, *, joint: bool, coordinates: int = 1) -> Coder:
    found = CODERS.get(document["kind"])
    if found is None or found.joint is not joint:
        raise ValueError(f"unknown kind of {'part' if joint else 'table'} {document['kind']!r}")
    return found.from_document(document, coordinates)


def _part(schema: Schema, coders: list[Coder], document: Document) -> Part:
    attributes = tuple(vehicle.integer(number) for number in document.pop("attributes"))
    if document["kind"] != "sample":
        d = sum(schema.attributes[number].size for number in attributes)
        return Part(schema, attributes, (_coder(document, joint=True, coordinates=d),), 1)
    if set(document) != {"kind", "k", "tables"}:
        raise ValueError("a part has unknown or missing entries")
    chosen = tuple(coders[vehicle.integer(number)] for number in document["tables"])
    return Part(schema, attributes, chosen, vehicle.integer(document["k"]))
