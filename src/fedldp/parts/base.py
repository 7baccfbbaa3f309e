"""What the parts of a plan have in common: some attributes of a schema, scaled and counted."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, Integers
from fedldp.errors import DomainError
from fedldp.schema import Category, Number, Schema

Cells = npt.NDArray[Any]  # counters: integers; floats for study


class Batch(Protocol):
    """Some vehicles, which have a value for each column of a schema.

    A vehicle is asked for the values it has chosen only: what is costly to compute, such as a
    gradient, need not be computed for the others.
    """

    def __len__(self) -> int: ...

    def take(self, rows: Integers | None, columns: Integers) -> Floats:
        """Return a new array: of each row (all of them, if None) the value in one column."""

    def all(self, columns: Integers) -> Floats:
        """Return a new array: of every row the values in these columns."""


@final
@dataclass(frozen=True)
class Matrix:
    """A batch whose values lie ready: a row for each vehicle, NaN where one is missing."""

    matrix: Floats

    def __len__(self) -> int:
        return len(self.matrix)

    def take(self, rows: Integers | None, columns: Integers) -> Floats:
        """Return a new array: of each row (all of them, if None) the value in one column."""
        rows = np.arange(len(self.matrix)) if rows is None else rows
        values: Floats = self.matrix.reshape(-1).take(rows * self.matrix.shape[1] + columns)
        return values

    def all(self, columns: Integers) -> Floats:
        """Return a new array: of every row the values in these columns."""
        return self.matrix[:, columns]


class Base(ABC):
    """Some attributes of a schema, and where their coordinates lie in a row."""

    schema: Schema
    attributes: tuple[int, ...]
    coders: tuple[Any, ...]  # what each attribute is answered through
    k: int  # how many coordinates a vehicle answers

    @property
    @abstractmethod
    def starts(self) -> Integers:
        """Where each coordinate's counters begin in a tally, and where the last ones end."""

    @cached_property
    def columns(self) -> Integers:
        """The column of each coordinate of this part."""
        sizes = [attribute.size for attribute in self.schema]
        starts = np.cumsum([0, *sizes])
        return np.concatenate([np.arange(starts[a], starts[a + 1]) for a in self.attributes])

    @property
    def d(self) -> int:
        """How many coordinates there are."""
        return len(self.columns)

    @cached_property
    def scaling(self) -> tuple[Floats, Floats, Floats]:
        """For each coordinate: centre and scale to [-1, 1], and what a missing value becomes.

        Where all coordinates have the same, one stands for all of them.
        """
        rows: list[tuple[float, float, float]] = []
        for number in self.attributes:
            attribute = self.schema.attributes[number]
            if isinstance(attribute, Category):
                row = 0.0, 1.0, float(attribute.codes[attribute.missing])
            else:
                row = attribute.centre, attribute.scale, float(attribute.to_unit(math.nan))
            rows += [row] * attribute.size
        centre, scale, missing = np.array(rows if len(set(rows)) > 1 else rows[:1]).T
        return centre, scale, missing

    def check_attributes(self) -> None:
        known = range(len(self.schema.attributes))
        if not self.attributes or any(number not in known for number in self.attributes):
            raise DomainError(f"a part needs attributes of its schema; got {self.attributes!r}.")
        if len(set(self.attributes)) < len(self.attributes):
            raise DomainError(f"an attribute is named twice in {self.attributes!r}.")

    @property
    def places(self) -> Iterator[tuple[Number | Category, Any, slice]]:
        """Yield each attribute with its table and where its coordinates lie in this part."""
        start = 0
        for number, coder in zip(self.attributes, self.coders, strict=True):
            attribute = self.schema.attributes[number]
            yield attribute, coder, slice(start, start + attribute.size)
            start += attribute.size

    @abstractmethod
    def answered(self, cells: Cells) -> Cells:
        """Return how many answers there are for each coordinate."""

    def fault(self, reports: int, cells: Integers) -> str | None:
        """Return why counters cannot be those of so many reports, or None if they can."""
        if cells.shape != (self.starts[-1],) or np.any((cells < 0) | (cells > reports)):
            return "a part has the wrong number of counters, or one that cannot be"
        answered = self.answered(cells)
        if answered.sum(dtype=object) != reports * self.k or np.any(answered > reports):
            return "there are more answers, or fewer, than the reports can have"
        if np.any(cells > np.repeat(answered, np.diff(self.starts))):
            return "a bit was set more often than it was reported"
        return None


def to_unit(values: Floats, centre: Floats, scale: Floats, missing: Floats) -> Floats:
    """Scale and clip numbers, in place, to [-1, 1]; the same work whether one is missing or not."""
    with np.errstate(over="ignore", invalid="ignore"):
        values -= centre
        values *= scale
    np.clip(values, -1.0, 1.0, out=values)
    np.copyto(values, missing, where=values != values)
    return values
