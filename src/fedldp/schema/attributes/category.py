"""Categories with public labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from math import nan
from numbers import Real
from typing import Any, final

import numpy as np

from fedldp._internal.text import did_you_mean
from fedldp._internal.validation import Floats, checked_text, is_real
from fedldp.errors import DomainError
from fedldp.schema.attributes.base import Labelled
from fedldp.schema.attributes.open import HashedCategory, WholeNumbers
from fedldp.schema.attributes.readers import LabelReader
from fedldp.schema.frames import Cells, codes, is_missing, shown
from fedldp.vehicle import MISSING, MOST_LABELS, OTHER, PLAN_FORMAT, PLAN_FORMAT_2, RANDOM, label

__all__ = ["Category"]

_MOST_COMPARED_LABELS = 1000


@final
@dataclass(frozen=True)
class Category(Labelled):
    """One of some public labels.

    Without a label such as "other", a missing or unknown value adds to the frequency of a real
    category.

    Parameters
    ----------
    name
        The name of the attribute.
    categories
        The public labels: at least two different texts or numbers, or a `range` of numbers.
        Numbers become texts.
    missing
        The label that counts for every value that is missing or unknown. By default it is "other"
        if there is such a label, and otherwise the first one.
    optional
        Report values that are unknown, and those that are missing, as two labels of their own:
        "other" and "missing" are added to the labels, unless they are there.
    constant
        Whether the value of a vehicle never changes. See `Attribute`.
    rule
        How several rows of a vehicle become one value. See `Attribute`.
    unit
        What a value means to people. See `Attribute`.
    aliases
        Other texts that stand for labels in rows, such as `{"1": "cool"}`. They are no part of a
        plan, and `vehicle.py` does not know them.

    See Also
    --------
    Category.hashed : For texts that are not known in advance.
    Category.of_range : For whole numbers.

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
    >>> Category("city", ["Oslo", "Rome"], optional=True).labels
    ('Oslo', 'Rome', 'other', 'missing')
    """

    name: str
    categories: tuple[str, ...]
    missing: str = None  # type: ignore[assignment]  # "other" or the first
    optional: bool = False
    constant: bool = field(default=False, kw_only=True)
    rule: str = field(default=RANDOM, kw_only=True)
    unit: str = field(default="", kw_only=True, compare=False)
    aliases: Mapping[str, str] = field(default_factory=dict, kw_only=True, compare=False)

    declared_as = "categories (with an optional missing, or optional = true)"

    def __post_init__(self) -> None:
        checked_text(self.name, "an attribute's name")
        if not isinstance(self.categories, list | tuple | range):
            raise DomainError(
                f"categories of {self.name!r} must be a list; got {self.categories!r:.60}."
            )
        if type(self.optional) is not bool or (self.optional and self.missing is not None):
            raise DomainError(
                f"optional of {self.name!r} must be True or False, and needs no `missing`; got "
                f"{self.optional!r} and {self.missing!r}."
            )
        labels = tuple(self._label(value) for value in self.categories)
        object.__setattr__(self, "categories", labels)
        most = MOST_LABELS - 2 * self.optional  # which has two labels more
        if not 2 <= len(labels) <= most:
            raise DomainError(
                f"{self.name!r} needs from 2 to {most} categories; got {len(labels)}."
            )
        twice = [text for number, text in enumerate(labels) if self.codes[text] != number]
        if twice:
            raise DomainError(f"{self.name!r} has the category {twice[0]!r} twice.")
        default = OTHER if OTHER in self.codes else labels[0]  # of what is unknown
        missing = default if self.missing is None else self._label(self.missing)
        if missing not in self.codes:
            raise DomainError(f"missing of {self.name!r} must be a category; got {missing!r}.")
        object.__setattr__(self, "missing", missing)
        if not isinstance(self.aliases, Mapping) or not {*self.aliases.values()} <= {*labels}:
            raise DomainError(
                f"aliases of {self.name!r} must be a table of texts and the categories that they "
                f"stand for; got {self.aliases!r:.80}."
            )

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
        return {text: code for code, text in enumerate(self.labels)}

    def __repr__(self) -> str:
        return self._shown(["name", "categories", "optional" if self.optional else "missing"])

    @classmethod
    def hashed(
        cls, name: str, buckets: int, salt: str = "", *, constant: bool = False
    ) -> HashedCategory:
        """Return a category for texts that are not known in advance, by their hash.

        Parameters
        ----------
        name
            The name of the attribute.
        buckets
            How many buckets there are. Labels in the same bucket are counted together.
        salt
            A public text: another salt puts labels into other buckets.
        constant
            Whether the label of a vehicle never changes.

        Returns
        -------
        HashedCategory
            The attribute.

        Examples
        --------
        >>> Category.hashed("app", buckets=1024).bucket("maps")
        989
        """
        return HashedCategory(name, buckets, salt, constant=constant)

    @classmethod
    def of_range(cls, name: str, first: int, last: int, *, constant: bool = False) -> WholeNumbers:
        """Return a category for each whole number of a range, and for "other" and "missing".

        Parameters
        ----------
        name
            The name of the attribute.
        first, last
            The least and the largest number with a category of its own.
        constant
            Whether the number of a vehicle never changes.

        Returns
        -------
        WholeNumbers
            The attribute.

        Examples
        --------
        >>> len(Category.of_range("zone", 10_000, 99_999).labels)
        90002
        """
        return WholeNumbers(name, first, last, constant=constant)

    @property
    def plan_format(self) -> str:  # type: ignore[override]
        """The first format of plans that can have the category."""
        return PLAN_FORMAT_2 if self.optional else PLAN_FORMAT

    @classmethod
    def from_shorthand(cls, name: str, given: Any, size: int) -> "Category | None":
        if not isinstance(given, list | tuple):
            return None
        texts = all(isinstance(value, str) for value in given)
        two_numbers = len(given) == 2 and all(map(is_real, given))
        if texts or (isinstance(given, list) and not two_numbers):
            return cls(name, tuple(given))
        return None

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> "Category | None":
        known = {"categories", "missing", "optional", "aliases"}
        if not {"categories"} <= table.keys() <= known:
            return None
        return cls(name, **table)

    def table(self) -> dict[str, Any]:
        return super().table() | ({"aliases": dict(self.aliases)} if self.aliases else {})

    def options(self) -> dict[str, Any]:
        if self.optional:
            return {"categories": list(self.categories), "optional": True}
        return {"categories": list(self.categories), "missing": self.missing}

    @property
    def labels(self) -> tuple[str, ...]:
        """The public labels."""
        return self._labels

    @cached_property
    def _labels(self) -> tuple[str, ...]:
        added = [label for label in (OTHER, MISSING) if label not in self.categories]
        return (*self.categories, *added) if self.optional else self.categories

    @property
    def missing_input(self) -> float:
        """The input of a missing value."""
        return float(self.codes[self.missing])

    @property
    def readers(self) -> tuple[LabelReader, ...]:
        """What reads its column."""
        missing = repr(self.missing)
        return (LabelReader(self.name, missing, self._codes, self._expected, self.optional),)

    def _codes(self, cells: Cells) -> Floats:
        return codes(cells, self.codes, self.codes[MISSING] if self.optional else nan)

    def _expected(self, cell: object) -> str:
        near = did_you_mean(cell, self.categories[:_MOST_COMPARED_LABELS])
        return f"one of the {len(self.categories)} categories{near}"
