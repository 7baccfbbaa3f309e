"""Inputs: what a coder takes of an attribute's values, and which coder the attribute prefers."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Protocol, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats
from fedldp._internal.vectors import scale_and_clip, shortened
from fedldp.coders.base import Coder, ForCategories
from fedldp.errors import DomainError

Values = npt.NDArray[Any]  # of an attribute, or a column in which they are stored

_FINEST_STEP = 1e-5  # below this spacing on the scale of [-1, 1], 32-bit numbers are fine enough


class OfferedCoders(Protocol):
    """The coders that a plan offers to its attributes. Equal arguments give the same object."""

    variance: float  # a public guess of the variance of numbers on the scale of [-1, 1]

    def for_numbers(self, epsilon: float) -> Coder:
        """Return the coder of numbers in [-1, 1]."""

    def for_labels(self, epsilon: float, number: int) -> ForCategories:
        """Return the coder of a number of labels, as plans of format 1 have it if they can."""

    def compact(self, epsilon: float, number: int) -> ForCategories:
        """Return the coder of a number of labels with few bits, for plans of format 2."""

    def noise(self, epsilon: float) -> float:
        """Return the largest variance of an answer of the coder of numbers."""


class Inputs(ABC):
    """What a coder takes: numbers in [-1, 1] or the numbers of labels. `of` makes them of values.

    Attributes
    ----------
    numeric
        Whether inputs are numbers in [-1, 1]; otherwise they are the numbers of labels.
    missing
        The input of a missing value.
    length
        The public bound on the length of a vector, if it has one.
    letters
        The labels of the rounded inputs, if the attribute is asked for within groups.
    ladder
        Between how many of the letters, from the first, a position may lie, and is rounded.
    """

    numeric: ClassVar[bool]
    missing: float
    length: float | None
    letters: tuple[str, ...]
    ladder: int

    @property
    @abstractmethod
    def ends(self) -> tuple[float, float]:
        """The least and the largest input: a coder with the same `inputs` fits."""

    @property
    @abstractmethod
    def estimates(self) -> int:
        """How many numbers a coder estimates."""

    @property
    def rounds(self) -> bool:
        """Whether an input may lie between two labels, and is rounded to one of them at random."""
        return self.ladder > 0 and not self.numeric

    @property
    @abstractmethod
    def scaling(self) -> tuple[float, float]:
        """The center and the scale: a value v becomes (v - centre) * scale."""

    def of(self, values: npt.ArrayLike) -> Floats:
        """Return the inputs of some values, scaled and clipped, and `missing` for NaN."""
        return scale_and_clip(np.array(values, np.float64), *self.scaling, self.missing, self.ends)

    @abstractmethod
    def positions(self, values: Values) -> Floats:
        """Return where values lie among the letters: 0.25 is rounded to letter 0 or to letter 1."""

    @abstractmethod
    def known(self, values: Values) -> npt.NDArray[np.bool_]:
        """Return which numbers are values of the attribute; NaN is not."""

    @abstractmethod
    def compact(self, values: Floats) -> Values:
        """Return a column of a data set: values in few bytes, clipped, without NaN."""

    @abstractmethod
    def check_column(self, name: str, column: Values) -> None:
        """Refuse a column of a data set that does not hold values of the attribute."""

    @abstractmethod
    def coder(self, epsilon: float, coders: OfferedCoders) -> Coder:
        """Return the coder that the attribute prefers, for an answer with this budget."""

    @abstractmethod
    def expected_error(self, epsilon: float, coders: OfferedCoders) -> float:
        """Return the squared error of an answer to each coordinate, summed over all estimates."""


@final
@dataclass(frozen=True)
class NumberInputs(Inputs):
    """Numbers in [-1, 1], made of numbers between bounds or of a vector of bounded length.

    >>> inputs = NumberInputs(0.0, 100.0, replacement=50.0)
    >>> inputs.of([25.0, 130.0, float("nan")])
    array([-0.5,  1. ,  0. ])
    """

    low: float
    high: float
    replacement: float
    size: int = 1
    length: float | None = None

    numeric = True
    ends = (-1.0, 1.0)
    letters = ("-", "+")
    ladder = 2

    @property
    def centre(self) -> float:
        """The middle between the bounds, which becomes 0."""
        return self.low / 2 + self.high / 2

    @property
    def scale(self) -> float:
        """The factor of a distance from the center."""
        width = self.high - self.low
        return 2 / width if width else inf

    @property
    def scaling(self) -> tuple[float, float]:
        return self.centre, self.scale

    @property
    def missing(self) -> float:  # type: ignore[override]
        return min(max((self.replacement - self.centre) * self.scale, -1.0), 1.0)

    @property
    def estimates(self) -> int:
        return self.size

    def of(self, values: npt.ArrayLike) -> Floats:
        inputs = np.array(values, np.float64)
        if self.length is not None and inputs.ndim and inputs.shape[-1] == self.size:
            with np.errstate(over="ignore"):
                return shortened(inputs * self.scale, self.missing)
        return super().of(inputs)

    def positions(self, values: Values) -> Floats:
        return (1 + self.of(values)) / 2

    def known(self, values: Values) -> npt.NDArray[np.bool_]:
        return ~np.isnan(values)

    def compact(self, values: Floats) -> Values:
        stored = np.clip(values, self.low, self.high)
        stored = np.where(np.isnan(stored), self.replacement, stored)
        step = np.spacing(np.float32(max(abs(self.low), abs(self.high))))
        if step * self.scale < _FINEST_STEP:
            stored = stored.astype(np.float32)
        return stored[:, 0] if self.size == 1 else stored

    def check_column(self, name: str, column: Values) -> None:
        if column.dtype.kind not in "iuf" or not self.known(column).all():
            raise DomainError(f"column {name!r} must hold numbers, none of them NaN.")

    def coder(self, epsilon: float, coders: OfferedCoders) -> Coder:
        return coders.for_numbers(epsilon)

    def expected_error(self, epsilon: float, coders: OfferedCoders) -> float:
        return self.size * (coders.noise(epsilon) + coders.variance)


@final
@dataclass(frozen=True)
class LabelInputs(Inputs):
    """The numbers of labels, from 0, or positions between them. A number beyond the last is it.

    Parameters
    ----------
    labels
        The labels.
    missing
        The number of the label that replaces a missing value.
    few_bits
        Whether plans of format 1 cannot have it, so that its coder takes few bits.
    ladder
        Between how many labels of each group, from its first, values are rounded; 0 for none.
    group
        How many labels each group has, if there are groups.

    >>> LabelInputs(("Oslo", "Rome", "other"), missing=2.0).of(np.array([1.0, np.nan]))
    array([1., 2.])
    """

    labels: tuple[str, ...]
    missing: float
    few_bits: bool = True
    ladder: int = 0
    group: int = 0

    numeric = False
    length = None
    scaling = (0.0, 1.0)

    @property
    def letters(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.labels

    @property
    def ends(self) -> tuple[float, float]:
        return 0.0, float(len(self.labels) - 1)

    @property
    def estimates(self) -> int:
        return len(self.labels)

    def positions(self, values: Values) -> Floats:
        return self.of(values)

    def known(self, values: Values) -> npt.NDArray[np.bool_]:
        low, high = self.ends
        with np.errstate(invalid="ignore"):  # infinity has no place in a group
            place = np.mod(values, self.group or len(self.labels))
        whole = place == np.rint(place)
        within = whole | (place <= self.ladder - 1)
        return np.asarray((values >= low) & (values <= high) & within)

    def compact(self, values: Floats) -> Values:
        positions = self.of(values[:, 0])
        if self.ladder:
            return positions if self.group else positions.astype(np.float32)
        return positions.astype(np.min_scalar_type(len(self.labels) - 1))

    def check_column(self, name: str, column: Values) -> None:
        kinds, what = ("iuf", "positions") if self.ladder else ("iu", "codes of its categories,")
        if column.dtype.kind not in kinds or not self.known(column).all():
            raise DomainError(f"column {name!r} must hold {what} from 0 to {len(self.labels) - 1}.")

    def coder(self, epsilon: float, coders: OfferedCoders) -> ForCategories:
        offered = coders.compact if self.few_bits else coders.for_labels
        return offered(epsilon, len(self.labels))

    def expected_error(self, epsilon: float, coders: OfferedCoders) -> float:
        return self.coder(epsilon, coders).variance + 1 - 1 / len(self.labels)
