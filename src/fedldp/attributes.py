"""Attributes: numbers between public bounds, and categories with public labels."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from fedldp._internal import validation
from fedldp._internal.validation import Floats
from fedldp._internal.vectors import shortened
from fedldp.data.frames import Cells, codes, is_missing, numbers, shown, to_float
from fedldp.errors import DomainError
from fedldp.vehicle import MOST_CATEGORIES, MOST_COORDINATES, label

OTHER = "other"  # the label for missing and unknown values


class Attribute(ABC):
    """A named column of a schema, or several: what a coder reads, and what is estimated.

    A value v becomes the input (v - centre) * scale, clipped to `inputs`; a missing value becomes
    `missing_input`. An estimate on the scale of the inputs is turned back by `from_unit`.
    """

    name: str
    size: int  # how many coordinates it has
    centre: float
    scale: float
    half_width: float  # an error on the scale of the inputs is multiplied by it
    length: float | None  # the public bound on the length of a vector, if it has one

    @property
    @abstractmethod
    def inputs(self) -> tuple[float, float]:
        """The least and the largest input of a coder."""

    @property
    @abstractmethod
    def missing_input(self) -> float:
        """The input of a missing value."""

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """The public labels of a category; a number has none."""

    @property
    @abstractmethod
    def estimates(self) -> int:
        """How many numbers are estimated about it."""

    @abstractmethod
    def to_inputs(self, values: Floats) -> Floats:
        """Return the inputs that a coder reads for some values.

        Parameters
        ----------
        values
            Values as `read` returns them, NaN for a missing one.

        Returns
        -------
        array of float
            The inputs, scaled and clipped.

        Examples
        --------
        >>> Category("city", ["Oslo", "Rome", "other"]).to_inputs(np.array([1.0, np.nan]))
        array([1., 2.])
        """

    @abstractmethod
    def from_unit(self, mean: Any) -> Any:
        """Convert a mean from the scale of the inputs to the attribute's own units.

        Parameters
        ----------
        mean
            A number or an array on the scale of the inputs. A frequency stays as it is.

        Returns
        -------
        float or array
            The mean in the attribute's own units.

        Examples
        --------
        >>> Number("age", 0, 100).from_unit(0.1), Category("city", ["Oslo", "Rome"]).from_unit(0.1)
        (55.0, 0.1)
        """

    @abstractmethod
    def name_of(self, place: int) -> str:
        """Return the name of one of the estimates, for messages.

        Parameters
        ----------
        place
            The number of the estimate: of an entry of a vector, or of a category.

        Returns
        -------
        str
            The name.

        Examples
        --------
        >>> Number("way", 0, 1, size=3).name_of(2), Category("city", ["Oslo", "Rome"]).name_of(1)
        ('way[2]', 'city = Rome')
        """

    @abstractmethod
    def read(self, cells: Cells) -> Floats:
        """Return a number for each cell of a table.

        Parameters
        ----------
        cells
            A column of a table: texts, numbers or None.

        Returns
        -------
        array of float
            The numbers, or the codes of the categories, and NaN for every cell that is missing,
            unreadable or unknown.

        Examples
        --------
        >>> Number("age", 0, 100).read([31, "54", None])
        array([31., 54., nan])
        >>> Category("city", ["Oslo", "Rome"]).read(["Rome", "Bonn"])
        array([ 1., nan])
        """


@final
@dataclass(frozen=True)
class Number(Attribute):
    """A number between public bounds, or a vector of them; a value outside counts as the bound.

    Parameters
    ----------
    name
        The name of the attribute.
    low, high
        The public bounds.
    missing
        The public value that a vehicle uses if its own is missing or unreadable. By default it is
        the centre of the bounds.
    size
        How many numbers the attribute has: more than 1 for a vector.
    length
        A public bound on the length of a vector: the root of the sum of its squares. A longer
        vector is shortened to this length. `low` must then be -length and `high` length.

    Raises
    ------
    DomainError
        If a bound is not finite, low is not below high, or `missing` lies outside the bounds.

    Examples
    --------
    >>> age = Number("age", 0, 100)
    >>> age.to_unit([25.0, 130.0, float("nan")])
    array([-0.5,  1. ,  0. ])
    >>> age.from_unit(0.1)
    55.0
    """

    name: str
    low: float
    high: float
    missing: float = None  # type: ignore[assignment]  # the centre
    size: int = 1
    length: float | None = None

    inputs = (-1.0, 1.0)
    labels = ()

    def __post_init__(self) -> None:
        checked_text(self.name, "an attribute's name")
        for bound in ("low", "high"):
            object.__setattr__(self, bound, self._finite(bound))
        if not (0 < self.high - self.low < math.inf and 0 < self.scale < math.inf):
            raise DomainError(
                f"{self.name!r} needs low < high, with a difference that is a normal float; "
                f"got {self.low!r} and {self.high!r}"
                f"{': did you swap them?' if self.high < self.low else '.'}"
            )
        missing = self.centre if self.missing is None else self._finite("missing")
        if not self.low <= missing <= self.high:
            raise DomainError(
                f"missing of {self.name!r} must lie between {self.low!r} and {self.high!r}; "
                f"got {missing!r}."
            )
        object.__setattr__(self, "missing", missing)
        object.__setattr__(self, "size", validation.whole(self.size, f"size of {self.name!r}"))
        if not 1 <= self.size <= MOST_COORDINATES:
            raise DomainError(
                f"size of {self.name!r} must be from 1 to {MOST_COORDINATES}; got {self.size}."
            )
        if self.length is not None:
            object.__setattr__(self, "length", self._finite("length"))
            if (self.low, self.high) != (-self.length, self.length):
                raise DomainError(
                    f"{self.name!r} has a bound on its length, {self.length!r}: low must be "
                    f"{-self.length!r} and high {self.length!r}; got {self.low!r} and "
                    f"{self.high!r}. Leave them out, as in Schema.vector(d, length=1.0)."
                )

    def __repr__(self) -> str:
        shown = [
            f"{key}={getattr(self, key)!r}" for key in ("name", "low", "high", "missing", "size")
        ]
        shown += [] if self.length is None else [f"length={self.length!r}"]
        return f"Number({', '.join(shown)})"

    def _finite(self, key: str) -> float:
        value = getattr(self, key)
        number = to_float(value) if is_real(value) else math.nan
        if not math.isfinite(number):
            raise DomainError(
                f"{key} of {self.name!r} must be a finite number; got {shown(value)}."
            )
        return number + 0.0  # not -0.0, which is equal but is written differently

    @property
    def estimates(self) -> int:
        """How many numbers are estimated about the attribute: `size`."""
        return self.size

    @property
    def missing_input(self) -> float:
        """The input of a missing value."""
        return float(self.to_unit(math.nan))

    def to_inputs(self, values: Floats) -> Floats:
        return self.to_unit(values)

    def name_of(self, place: int) -> str:
        return self.name if self.size == 1 else f"{self.name}[{place}]"

    @property
    def centre(self) -> float:  # type: ignore[override]
        """The middle between the bounds, which becomes 0."""
        return self.low / 2 + self.high / 2

    @property
    def scale(self) -> float:  # type: ignore[override]
        """The factor of a distance from the centre."""
        width = self.high - self.low
        return 2 / width if width else math.inf

    @property
    def half_width(self) -> float:  # type: ignore[override]
        """The distance from the centre to a bound, which becomes 1."""
        return self.high / 2 - self.low / 2

    def to_unit(self, values: npt.ArrayLike) -> Floats:
        """Scale values to [-1, 1] and clip them.

        The work is the same for every value, also for a missing one.

        Parameters
        ----------
        values
            Numbers in the attribute's own units. NaN becomes what `missing` becomes. Rows of a
            vector with a bound on its length are clipped to that length.

        Returns
        -------
        array of float
            Numbers in [-1, 1].

        Examples
        --------
        >>> Number("age", 0, 100).to_unit([25.0, 130.0, float("nan")])
        array([-0.5,  1. ,  0. ])
        """
        with np.errstate(over="ignore"):
            units = (np.asarray(values, np.float64) - self.centre) * self.scale
        missing = min(max((self.missing - self.centre) * self.scale, -1.0), 1.0)
        if self.length is not None and units.ndim and units.shape[-1] == self.size:
            return shortened(units, missing)
        return np.where(np.isnan(units), missing, np.clip(units, -1.0, 1.0))

    def from_unit(self, mean: Any) -> Any:
        return self.centre + mean * self.half_width

    def read(self, cells: Cells) -> Floats:
        return numbers(cells)


@final
@dataclass(frozen=True)
class Category(Attribute):
    """One of some public labels.

    Without a label such as "other", a missing or unknown value adds to the frequency of a real
    category.

    Parameters
    ----------
    name
        The name of the attribute.
    categories
        The public labels: at least two different texts or numbers. Numbers become texts.
    missing
        The label that counts for every value that is missing or unknown. By default it is "other"
        if there is such a label, and otherwise the first one.

    Raises
    ------
    DomainError
        If there are fewer than two labels or too many, if two are equal, or if `missing` is not
        one of them.

    Examples
    --------
    >>> Category("city", ["Oslo", "Rome", "other"])
    Category(name='city', categories=('Oslo', 'Rome', 'other'), missing='other')
    >>> Category("doors", [2, 4, 5], missing=5)
    Category(name='doors', categories=('2', '4', '5'), missing='5')
    """

    name: str
    categories: tuple[str, ...]
    missing: str = None  # type: ignore[assignment]  # "other" or the first
    size: ClassVar[int] = 1  # type: ignore[misc]

    centre, scale, half_width, length = 0.0, 1.0, 1.0, None

    def __post_init__(self) -> None:
        checked_text(self.name, "an attribute's name")
        if not isinstance(self.categories, list | tuple):
            raise DomainError(
                f"categories of {self.name!r} must be a list; got {self.categories!r:.60}."
            )
        labels = tuple(self._label(value) for value in self.categories)
        object.__setattr__(self, "categories", labels)
        if not 2 <= len(labels) <= MOST_CATEGORIES:
            raise DomainError(
                f"{self.name!r} needs from 2 to {MOST_CATEGORIES} categories; got {len(labels)}."
            )
        twice = [text for number, text in enumerate(labels) if self.codes[text] != number]
        if twice:
            raise DomainError(f"{self.name!r} has the category {twice[0]!r} twice.")
        default = OTHER if OTHER in self.codes else labels[0]
        missing = default if self.missing is None else self._label(self.missing)
        if missing not in self.codes:
            raise DomainError(f"missing of {self.name!r} must be a category; got {missing!r}.")
        object.__setattr__(self, "missing", missing)

    def _label(self, value: object) -> str:
        if is_missing(value) or not isinstance(value, str | Real | np.generic | date):
            raise DomainError(
                f"a category of {self.name!r} must be a text or a number, not a missing value; "
                f"got {shown(value)}."
            )
        value = value.item() if isinstance(value, np.generic) else value
        return checked_text(label(value), f"a category of {self.name!r}")

    @cached_property
    def codes(self) -> dict[str, int]:
        """The code of each label: its number, from 0."""
        return {text: code for code, text in enumerate(self.categories)}

    @property
    def inputs(self) -> tuple[float, float]:
        """The least and the largest input of a coder: categories are numbered from 0."""
        return 0.0, float(len(self.categories) - 1)

    @property
    def labels(self) -> tuple[str, ...]:
        """The public labels."""
        return self.categories

    @property
    def estimates(self) -> int:
        """How many numbers are estimated about the attribute: the frequency of each label."""
        return len(self.categories)

    @property
    def missing_input(self) -> float:
        """The input of a missing value."""
        return float(self.codes[self.missing])

    def to_inputs(self, values: Floats) -> Floats:
        return np.nan_to_num(values, nan=self.missing_input)

    def from_unit(self, mean: Any) -> Any:
        return mean

    def name_of(self, place: int) -> str:
        return f"{self.name} = {self.categories[place]}"

    def read(self, cells: Cells) -> Floats:
        return codes(cells, self.codes)


def is_real(value: object) -> bool:
    """Return whether a value is a real number; a boolean is not."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def checked_text(text: object, what: str) -> str:
    """Validate a text that must be non-empty and encodable as UTF-8."""
    try:
        if isinstance(text, str) and text:
            text.encode()
            return text
    except UnicodeEncodeError:
        pass
    raise DomainError(f"{what} must be a text in Unicode, and not empty; got {text!r:.60}.")
