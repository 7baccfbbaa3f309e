"""The part of a plan that answers all its numbers at once, with one sign for each."""

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import final

import numpy as np

from fedldp import vehicle
from fedldp._internal.packing import Bits, Records
from fedldp._internal.validation import Integers
from fedldp.coders.cube import Cube
from fedldp.errors import DomainError
from fedldp.parts.base import Base, Batch, Cells, to_unit
from fedldp.randomness import Source
from fedldp.schema import Category, Schema


@final
@dataclass(frozen=True)
class Signs(Base):
    """Each vehicle answers all of these numbers at once, with one sign for each."""

    schema: Schema
    attributes: tuple[int, ...]
    cube: Cube
    coders: tuple[Cube, ...] = field(init=False, repr=False)
    k: int = field(init=False, repr=False)

    share = 1.0
    study = False

    def __post_init__(self) -> None:
        self.check_attributes()
        object.__setattr__(self, "coders", (self.cube,) * len(self.attributes))
        object.__setattr__(self, "k", self.d)  # all of them
        kinds = [type(self.schema.attributes[number]) for number in self.attributes]
        if Category in kinds or self.cube.d != self.d:
            raise DomainError(f"the cube is for {self.cube.d} numbers; got {self.attributes!r}.")

    @property
    def epsilon(self) -> Fraction:
        """What a report costs."""
        return vehicle.exact(self.cube.epsilon)

    @property
    def width(self) -> int:
        """How many bits of a record this part takes."""
        return self.d

    @cached_property
    def starts(self) -> Integers:
        """Where each coordinate's two counters begin in a tally, and where the last ones end."""
        return np.arange(self.d + 1) * 2

    def _signs(self, batch: Batch, source: Source) -> Bits:
        centre, scale, missing = self.scaling
        values = to_unit(batch.all(self.columns), centre, scale, missing)
        return self.cube.encode(values, source)

    def encode(self, batch: Batch, source: Source, records: Records, first: int) -> None:
        """Write the answers of some vehicles, one for each row, into their records."""
        records.put_bits(first, self._signs(batch, source))

    def simulate(self, batch: Batch, source: Source, cells: Cells) -> None:
        """Add what some vehicles would answer to counters, of which each replica has a row."""
        signs = self._signs(batch, source).reshape(len(cells), -1, self.d)
        plus = signs.sum(axis=1, dtype=np.int64)
        cells[:, 0::2] += signs.shape[1] - plus
        cells[:, 1::2] += plus

    def count(self, records: Records, first: int, cells: Integers) -> None:
        """Add what some records say to a tally's counters."""
        plus = records.get_bits(first, self.d).sum(axis=0, dtype=np.int64)
        cells[0::2] += len(records) - plus
        cells[1::2] += plus

    def answered(self, cells: Cells) -> Integers:
        """Return how many answers there are for each coordinate."""
        return cells[0::2] + cells[1::2]
