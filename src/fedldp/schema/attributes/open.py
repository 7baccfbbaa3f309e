"""Categories that are not listed: whole numbers in a range, and texts that are hashed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np

from fedldp._internal import validation
from fedldp._internal.validation import Floats, checked_text
from fedldp.errors import DomainError
from fedldp.schema.attributes.base import Labelled
from fedldp.schema.attributes.readers import LabelReader
from fedldp.schema.frames import Cells, is_missing, labels_of, numbers
from fedldp.vehicle import MISSING, MOST_LABELS, OTHER, PLAN_FORMAT_2, RANDOM, bucket

__all__ = ["HashedCategory", "WholeNumbers"]

_MOST_LABEL_NUMBERS = 1 << 53  # so that doubles hold every number


@final
@dataclass(frozen=True, repr=False)
class WholeNumbers(Labelled):
    """A category for each whole number from `first` to `last`, one for others, and one for none.

    `Category.of_range` makes one.

    Parameters
    ----------
    name
        The name of the attribute.
    first, last
        The least and the largest number with a category of its own.
    constant
        Whether the value of a vehicle never changes. See `Attribute`.
    rule
        How several rows of a vehicle become one value. See `Attribute`.
    unit
        What a value means to people. See `Attribute`.

    Raises
    ------
    DomainError
        If first is not below last, or there are more than 2^20 categories.

    Examples
    --------
    >>> zone = WholeNumbers("zone", 1, 5)
    >>> zone.labels
    ('1', '2', '3', '4', '5', 'other', 'missing')
    >>> zone.readers[0].read(["3", 9, None, 2.5])
    array([ 2., nan,  6., nan])
    """

    name: str
    first: int
    last: int
    constant: bool = field(default=False, kw_only=True)
    rule: str = field(default=RANDOM, kw_only=True)
    unit: str = field(default="", kw_only=True, compare=False)

    plan_format = PLAN_FORMAT_2
    declared_as = "first and last"

    def __post_init__(self) -> None:
        checked_text(self.name, "an attribute's name")
        for key in ("first", "last"):
            number = validation.whole(getattr(self, key), f"{key} of {self.name!r}")
            object.__setattr__(self, key, number)
        fits = -_MOST_LABEL_NUMBERS <= self.first < self.last <= _MOST_LABEL_NUMBERS
        if not fits or self.last - self.first + 3 > MOST_LABELS:
            raise DomainError(
                f"{self.name!r} needs first < last and at most {MOST_LABELS} categories, with "
                f"'other' and 'missing'; got {self.first} and {self.last}."
            )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The numbers as texts, then "other" and "missing"."""
        return (*map(str, range(self.first, self.last + 1)), OTHER, MISSING)

    @property
    def missing_input(self) -> float:
        """The input of a value that is not in the range: "other"."""
        return float(self.last - self.first + 1)

    @classmethod
    def from_shorthand(cls, name: str, given: Any, size: int) -> "WholeNumbers | None":
        if isinstance(given, range) and given.step == 1 and len(given) > 1:
            return cls(name, given[0], given[-1])
        return None

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> "WholeNumbers | None":
        return cls(name, **table) if table.keys() == {"first", "last"} else None

    def options(self) -> dict[str, Any]:
        return {"first": self.first, "last": self.last}

    @property
    def domain(self) -> str:
        """The range, for display."""
        return f"{self.first} to {self.last}, other or missing"

    @property
    def readers(self) -> tuple[LabelReader, ...]:
        """What reads its column."""
        return (LabelReader(self.name, repr(OTHER), self._codes, self._expected, optional=True),)

    def _codes(self, cells: Cells) -> Floats:
        values = numbers(cells) - self.first
        known = (values >= 0) & (values <= self.last - self.first) & (values == np.rint(values))
        codes = np.where(known, values, np.nan)
        rows = np.flatnonzero(~known).tolist()
        codes[[row for row in rows if is_missing(cells[row])]] = self.missing_input + 1
        return codes

    def _expected(self, cell: object) -> str:
        return f"a whole number from {self.first} to {self.last}"


@final
@dataclass(frozen=True, repr=False)
class HashedCategory(Labelled):
    """Texts of an open vocabulary, each in one of some buckets, and a category for none.

    `Category.hashed` makes one. The bucket of a label is public: SHA-256 of the salt and the label
    decides. Two labels can share a bucket, and then share its frequency: ask about a label that
    matters with another salt too, and believe the smaller frequency. With as many buckets as
    labels, about 63% of all labels share theirs; with a hundred times as many, 1%.

    Parameters
    ----------
    name
        The name of the attribute.
    buckets
        How many buckets there are.
    salt
        A public text: other salts put labels into other buckets.
    constant
        Whether the value of a vehicle never changes. See `Attribute`.
    rule
        How several rows of a vehicle become one value. See `Attribute`.
    unit
        What a value means to people. See `Attribute`.

    Raises
    ------
    DomainError
        If there are fewer than 2 buckets, or too many.

    Examples
    --------
    >>> app = HashedCategory("app", buckets=1024)
    >>> app.bucket("maps"), len(app.labels), app.labels[-1]
    (989, 1025, 'missing')
    >>> app.readers[0].read(["maps", None])
    array([ 989., 1024.])
    """

    name: str
    buckets: int
    salt: str = ""
    constant: bool = field(default=False, kw_only=True)
    rule: str = field(default=RANDOM, kw_only=True)
    unit: str = field(default="", kw_only=True, compare=False)

    plan_format = PLAN_FORMAT_2
    declared_as = "buckets (with an optional salt)"

    def __post_init__(self) -> None:
        checked_text(self.name, "an attribute's name")
        number = validation.whole(self.buckets, f"buckets of {self.name!r}")
        object.__setattr__(self, "buckets", number)
        if not 2 <= number < MOST_LABELS:
            raise DomainError(
                f"{self.name!r} needs from 2 to {MOST_LABELS - 1} buckets; got {number}."
            )
        if self.salt:
            checked_text(self.salt, f"the salt of {self.name!r}")
        elif self.salt != "":
            raise DomainError(f"the salt of {self.name!r} must be a text; got {self.salt!r}.")

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The numbers of the buckets as texts, then "missing"."""
        return (*map(str, range(self.buckets)), MISSING)

    @property
    def missing_input(self) -> float:
        """The input of a missing value."""
        return float(self.buckets)

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> "HashedCategory | None":
        return cls(name, **table) if {"buckets"} <= table.keys() <= {"buckets", "salt"} else None

    def options(self) -> dict[str, Any]:
        return {"buckets": self.buckets, "salt": self.salt}

    @property
    def domain(self) -> str:
        """The number of buckets, for display."""
        return f"any text in {self.buckets:,} buckets, or missing"

    def bucket(self, label: object) -> int:
        """Return the number of the bucket of a label.

        Parameters
        ----------
        label
            A text, or a number, which becomes one.

        Returns
        -------
        int
            The number, from 0: an index into `frequencies`.

        Examples
        --------
        >>> HashedCategory("app", buckets=1024).bucket("maps")
        989
        """
        return bucket(label, self.buckets, self.salt)

    @property
    def readers(self) -> tuple[LabelReader, ...]:
        """What reads its column."""
        return (LabelReader(self.name, repr(MISSING), self._codes, _expected_text, optional=True),)

    def _codes(self, cells: Cells) -> Floats:
        return labels_of(cells, self.bucket, self.missing_input)


def _expected_text(_: object) -> str:
    return "a text or a number"
