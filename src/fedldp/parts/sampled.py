"""The part of a plan in which a vehicle answers k of d coordinates, each through a table."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal.packing import Bits, Records
from fedldp._internal.validation import Integers
from fedldp.coders.categories import RandomizedResponse, UnaryEncoding
from fedldp.coders.channel import Channel
from fedldp.errors import DomainError, WireError
from fedldp.mechanisms import Mechanism
from fedldp.parts.base import Base, Batch, Cells, to_unit
from fedldp.randomness import Source
from fedldp.schema import Category, Schema

Coder = Channel | RandomizedResponse | UnaryEncoding
Answer = tuple[int, Integers | None, Integers, Coder | Mechanism, npt.NDArray[Any]]

_SMALL = 16  # bits of a slot that are counted by one histogram


@final
@dataclass(frozen=True)
class Sampled(Base):
    """Each vehicle answers k of these coordinates, chosen at random, through their tables.

    For study, a mechanism can stand in the place of a table of numbers; what it answers is
    tallied, and never sent.
    """

    schema: Schema
    attributes: tuple[int, ...]
    coders: tuple[Coder | Mechanism, ...]  # one for each attribute
    k: int

    def __post_init__(self) -> None:
        self.check_attributes()
        if len(self.coders) != len(self.attributes) or not 1 <= self.k <= self.d:
            raise DomainError(
                f"need a table for each of {len(self.attributes)} attributes and k from 1 to "
                f"{self.d}; got {len(self.coders)} tables and k = {self.k!r}."
            )
        for number, coder in zip(self.attributes, self.coders, strict=True):
            attribute = self.schema.attributes[number]
            if isinstance(attribute, Category):
                fits = getattr(coder, "categories", None) == len(attribute.categories)
            else:
                fits = isinstance(coder, Channel | Mechanism)
            if not fits:
                raise DomainError(f"the table given for {attribute.name!r} is of another kind.")

    @property
    def epsilon(self) -> Fraction:
        """What a report costs: the k dearest coordinates."""
        costs = (
            (vehicle.exact(coder.epsilon), self.schema.attributes[number].size)
            for number, coder in zip(self.attributes, self.coders, strict=True)
        )
        return vehicle.dearest(costs, self.k)

    @property
    def share(self) -> float:
        """The probability that a vehicle answers a given coordinate."""
        return self.k / self.d

    @cached_property
    def study(self) -> bool:
        """Whether a mechanism stands in the place of a table."""
        return any(isinstance(coder, Mechanism) for coder in self.coders)

    @cached_property
    def _distinct(self) -> list[Coder | Mechanism]:
        return list({id(coder): coder for coder in self.coders}.values())

    @cached_property
    def _coder_of(self) -> Integers:
        """For each coordinate, the place of its coder among the distinct ones."""
        places = {id(coder): place for place, coder in enumerate(self._distinct)}
        sizes = [self.schema.attributes[number].size for number in self.attributes]
        return np.repeat([places[id(coder)] for coder in self.coders], sizes)

    @cached_property
    def starts(self) -> Integers:
        """Where each coordinate's counters begin in a tally, and where the last ones end."""
        cells = [cells_of(coder) for coder in self._distinct]
        return np.concatenate([[0], np.cumsum(np.array(cells)[self._coder_of])])

    @cached_property
    def _widths(self) -> Integers:
        """For each coordinate, the bits of its code."""
        return np.array([cast(Coder, coder).bits for coder in self._distinct])[self._coder_of]

    @cached_property
    def _slots(self) -> list["_Slot"]:
        if self.k == self.d:  # nothing to choose: slot j is coordinate j
            widths = self._widths.tolist()
            return [
                _Slot(end - width, 0, width)
                for end, width in zip(accumulate(widths), widths, strict=True)
            ]
        index, code = vehicle.column_bits(self.d), int(self._widths.max())
        return [_Slot(slot * (index + code), index, code) for slot in range(self.k)]

    @cached_property
    def width(self) -> int:
        """How many bits of a record this part takes."""
        if self.k == self.d:
            return int(self._widths.sum())
        return self.k * (vehicle.column_bits(self.d) + int(self._widths.max()))

    def _places(self, slot: int) -> list[int]:
        """Return which of the coders a slot can be for."""
        return [int(self._coder_of[slot])] if self.k == self.d else list(range(len(self._distinct)))

    def answers(self, batch: Batch, source: Source) -> Iterator[Answer]:
        """Choose coordinates; yield, for each slot and coder, which rows answer what."""
        n = len(batch)
        chosen = source.choose(self.k, self.d, n) if self.k < self.d else None
        for slot in range(self.k):
            index = np.full(n, slot) if chosen is None else chosen[:, slot]
            places = self._places(slot)
            for place in places:
                rows = None if len(places) == 1 else self._rows(index, place)
                at, coder = index if rows is None else index[rows], self._distinct[place]
                if at.size:
                    yield slot, rows, at, coder, self._values(batch, rows, at, coder)

    @cached_property
    def _in_order(self) -> bool:
        """Whether a coordinate's number is that of its column."""
        return bool((self.columns == np.arange(self.d)).all())

    def _rows(self, index: Integers, place: int) -> Integers:
        """Return where the coordinates are those of one coder."""
        return np.flatnonzero(self._coder_of.take(index) == place)

    def _values(
        self, batch: Batch, rows: Integers | None, index: Integers, coder: Coder | Mechanism
    ) -> npt.NDArray[Any]:
        """Return what the tables take: numbers in [-1, 1], or the numbers of categories."""
        values = batch.take(rows, index if self._in_order else self.columns.take(index))
        centre, scale, missing = (
            each if each.size == 1 else each.take(index) for each in self.scaling
        )
        if isinstance(coder, Channel | Mechanism):
            return to_unit(values, centre, scale, missing)
        return np.where(values == values, values, missing).astype(np.int64)

    def encode(self, batch: Batch, source: Source, records: Records, first: int) -> None:
        """Write the answers of some vehicles, one for each row, into their records."""
        for number, rows, index, coder, values in self.answers(batch, source):
            slot, coder = self._slots[number], cast(Coder, coder)
            codes = coder.encode(values, source)
            if slot.index_width:
                records.put(first + slot.start, slot.index_width, index, rows)
            if isinstance(coder, UnaryEncoding):
                records.put_bits(first + slot.end - coder.bits, codes, rows)
            else:
                records.put(first + slot.end - coder.bits, coder.bits, codes, rows)

    def count(self, records: Records, first: int, cells: Integers) -> None:
        """Add what some records say to a tally's counters, or raise `WireError`."""
        before = None
        for number, slot in enumerate(self._slots):
            if not slot.index_width:
                self._count_one(records, first, number, cells)
                continue
            if self._small is not None:
                joint = records.get(first + slot.start, slot.index_width + slot.code_width)
                self._count_small(joint, cells)
                index = joint >> slot.code_width if self.k > 1 else joint
            else:
                index = records.get(first + slot.start, slot.index_width).astype(np.int64)
                if index.size and index.max() >= self.d:
                    raise WireError(f"a record names coordinate {index.max()} of {self.d}")
                self._count(records, first, number, index, cells)
            if before is not None and np.any(before >= index):
                raise WireError("the coordinates of a record do not ascend")
            before = index

    @cached_property
    def _small(self) -> Integers | None:
        """What a slot holds for each counter, where one histogram covers all that it can hold."""
        slot = self._slots[0]
        unary = any(isinstance(coder, UnaryEncoding) for coder in self._distinct)
        if unary or slot.index_width + slot.code_width > _SMALL:
            return None
        cells = np.arange(self.starts[-1])
        coordinates = np.searchsorted(self.starts, cells, side="right") - 1
        return (coordinates << slot.code_width) + cells - self.starts[coordinates]

    def _count_small(self, joint: npt.NDArray[Any], cells: Integers) -> None:
        slot = self._slots[0]
        codes = joint.astype(np.intp, copy=False)  # NumPy 2.0 does not count uint64
        histogram = np.bincount(codes, minlength=1 << slot.index_width + slot.code_width)
        found = histogram[cast(Integers, self._small)]
        if found.sum() != joint.size:
            raise WireError("a record names a coordinate or a code that there is not")
        cells += found

    def _count_one(self, records: Records, first: int, number: int, cells: Integers) -> None:
        """Count a slot that is always for one coordinate."""
        slot, coder = self._slots[number], cast(Coder, self._distinct[self._coder_of[number]])
        mine = cells[self.starts[number] : self.starts[number + 1]]
        if isinstance(coder, UnaryEncoding):
            bits = records.get_bits(first + slot.start, coder.bits)
            mine[:-1] += bits.sum(axis=0, dtype=np.int64)
            mine[-1] += len(records)
            return
        codes = records.get(first + slot.start, coder.bits).astype(np.intp, copy=False)
        found = np.bincount(codes, minlength=mine.size)
        if found.size > mine.size:
            raise WireError(f"a record has code {codes.max()} of {mine.size}")
        mine += found

    def _count(
        self, records: Records, first: int, number: int, index: Integers, cells: Integers
    ) -> None:
        slot = self._slots[number]
        for place, coder in enumerate(cast(list[Coder], self._distinct)):
            rows = self._rows(index, place)
            if not rows.size:
                continue
            spare, start = slot.code_width - coder.bits, first + slot.end - coder.bits
            places = self.starts.take(index[rows])
            if spare and records.get_bits(start - spare, spare)[rows].any():
                raise WireError("a record has bits beyond its code")
            if isinstance(coder, UnaryEncoding):
                _add_bits(places, records.get_bits(start, coder.bits)[rows], cells)
                continue
            codes = records.get(start, coder.bits)[rows]
            if codes.max() >= cells_of(coder):
                raise WireError(f"a record has code {codes.max()} of {cells_of(coder)}")
            start, end = places.min(), self.starts[index[rows].max() + 1]
            places += codes.astype(np.int64)
            places -= start
            cells[start:end] += np.bincount(places, minlength=end - start)

    def answered(self, cells: Cells) -> npt.NDArray[Any]:
        """Return how many answers there are for each coordinate."""
        found = np.add.reduceat(cells, self.starts[:-1])
        for place, coder in enumerate(self._distinct):
            mine = np.flatnonzero(self._coder_of == place)
            if isinstance(coder, UnaryEncoding):
                found[mine] = cells[self.starts[mine + 1] - 1]
            elif isinstance(coder, Mechanism):
                found[mine] = cells[self.starts[mine]]
        return found

    def simulate(self, batch: Batch, source: Source, cells: Cells) -> None:
        """Add what some vehicles would answer to counters, of which each replica has a row.

        The batch holds the vehicles of the first replica, then those of the second. Chance is
        dealt out as in `encode`, so that one replica gives what its reports would. Mechanisms for
        study answer with noisy floats.
        """
        flat, replicas = cells.reshape(-1), len(cells)
        first: Integers | None = None  # cell of the replica of each vehicle
        if replicas > 1:
            first = np.repeat(np.arange(replicas) * cells.shape[1], len(batch) // replicas)
        for _, rows, index, coder, values in self.answers(batch, source):
            places = self.starts.take(index)
            if first is not None:
                places += first if rows is None else first[rows]
            if isinstance(coder, UnaryEncoding):
                _add_bits(places, coder.encode(values, source), flat)
            elif isinstance(coder, Mechanism):
                noisy = coder.perturb(values, source)
                for power in range(3):
                    flat += np.bincount(places + power, noisy**power, minlength=flat.size)
            else:
                places += coder.encode(values, source)
                flat += np.bincount(places, minlength=flat.size)


@final
@dataclass(frozen=True)
class _Slot:
    """A field of a record for one answer: the index of the coordinate, then the code."""

    start: int
    index_width: int
    code_width: int

    @property
    def end(self) -> int:
        return self.start + self.index_width + self.code_width


def cells_of(coder: Coder | Mechanism) -> int:
    """Return how many counters a tally keeps for a coordinate.

    One for each code, or for each bit and one for the reports; for study, the number of answers,
    their sum and the sum of their squares.
    """
    if isinstance(coder, Channel):
        return coder.outputs
    return 3 if isinstance(coder, Mechanism) else coder.cells


def _add_bits(places: Integers, bits: Bits, cells: Cells) -> None:
    """Add rows of bits to the counters that begin at their places, and to the one after these."""
    for place in np.unique(places):
        mine = bits[places == place]
        cells[place : place + bits.shape[1]] += mine.sum(axis=0, dtype=np.int64)
        cells[place + bits.shape[1]] += len(mine)
