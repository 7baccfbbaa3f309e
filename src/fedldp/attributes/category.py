"""Categories with public labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from numbers import Real
from typing import Any, final

import numpy as np

from fedldp._internal.text import did_you_mean
from fedldp._internal.validation import Floats, checked_text, is_real
from fedldp.attributes.base import Labelled
from fedldp.data.frames import Cells, codes, is_missing, shown
from fedldp.errors import DomainError
from fedldp.vehicle import MOST_CATEGORIES, label

__all__ = ["Category"]

OTHER = "other"  # the label for missing and unknown values

_KEYS = {"categories", "missing"}
_MOST_COMPARED = 1000  # labels that are compared with an unknown one


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

    invalid = "unknown"
    declared_as = "categories (with an optional missing)"
    limits = ""

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
        return cls(name, **table) if {"categories"} <= table.keys() <= _KEYS else None

    @classmethod
    def is_entry(cls, options: Mapping[str, Any]) -> bool:
        labels = options.get("categories")
        return (
            options.keys() == _KEYS
            and isinstance(labels, list)
            and all(isinstance(text, str) for text in [*labels, options["missing"]])
        )

    def options(self) -> dict[str, Any]:
        return {"categories": list(self.categories), "missing": self.missing}

    @property
    def labels(self) -> tuple[str, ...]:
        """The public labels."""
        return self.categories

    @property
    def missing_input(self) -> float:
        """The input of a missing value."""
        return float(self.codes[self.missing])

    @property
    def replacement(self) -> str:
        """The public label that replaces an unusable one, in words."""
        return repr(self.missing)

    def read(self, cells: Cells) -> Floats:
        return codes(cells, self.codes)

    def _expected(self, cell: object, is_entry: bool) -> str:
        near = did_you_mean(cell, self.categories[:_MOST_COMPARED])
        return f"one of the {len(self.categories)} categories{near}"
