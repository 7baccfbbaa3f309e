"""One attribute within the groups of another, such as the mean speed of each model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, checked_text
from fedldp.errors import DomainError
from fedldp.schema.attributes.base import Attribute, Coders, Labelled, Values
from fedldp.schema.attributes.results import Numbers, Result
from fedldp.schema.frames import Cells
from fedldp.vehicle import MOST_LABELS, PLAN_FORMAT_2

__all__ = ["Within"]

_KEYS = {"of", "groups"}


@final
@dataclass(frozen=True)
class Within(Labelled):
    """One attribute within the groups of another, answered together as one label.

    A number within groups gives the mean of each group (`GroupMeans`): its value is rounded at
    random to one of its bounds, so that there are two labels for each group. A category within
    groups gives a table of both (`TwoWay`), with a label for each pair.

    Parameters
    ----------
    name
        The name of the attribute, by which its estimate is found.
    of
        A number, an optional number or a category, named as its column.
    groups
        A category, named as its column.

    Raises
    ------
    DomainError
        If `of` is a vector, `groups` is not a category, or there are too many labels.

    Examples
    --------
    >>> from fedldp import Category, Number
    >>> speed = Within("speed by model", Number("speed", 0, 130), Category("model", ["A", "B"]))
    >>> speed.labels
    ('A -', 'A +', 'B -', 'B +')
    """

    name: str
    of: Attribute
    groups: Attribute

    declared_as = "of and groups"
    plan_format = PLAN_FORMAT_2
    invalid = "unreadable"
    limits = ""
    missing = None
    replacement = ""

    def __post_init__(self) -> None:
        checked_text(self.name, "an attribute's name")
        for key in ("of", "groups"):
            part = getattr(self, key)
            if not isinstance(part, Attribute) or part.size != 1 or part.parts != (part,):
                raise DomainError(
                    f"{key} of {self.name!r} must be a number or a category; got {part!r:.80}."
                )
        if self.groups.numeric or self.groups.rounds:
            raise DomainError(f"groups of {self.name!r} must be a category; got {self.groups!r}.")
        if self.of.name == self.groups.name:
            raise DomainError(f"{self.name!r} has the column {self.of.name!r} twice.")
        number = len(self.groups.labels) * len(self.of.letters)
        if number > MOST_LABELS:
            raise DomainError(
                f"{self.name!r} would have {number} labels; at most {MOST_LABELS} are allowed."
            )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The labels of the groups, each with every letter of the other attribute."""
        return tuple(f"{group} {each}" for group in self.groups.labels for each in self.of.letters)

    @property
    def constant(self) -> bool:  # type: ignore[override]
        """Whether the values of both attributes never change."""
        return self.of.constant and self.groups.constant

    @property
    def rounds(self) -> bool:  # type: ignore[override]
        """Whether a value is rounded at random: that of a number is."""
        return self.of.numeric or self.of.rounds

    @property
    def missing_input(self) -> float:
        """The input of a row without values: those of both attributes."""
        nothing = np.full((1, 1), np.nan)
        return float(self.joined([nothing, nothing])[0, 0])

    @classmethod
    def from_shorthand(cls, name: str, given: Any, size: int) -> None:
        return None

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> "Within | None":
        if table.keys() != _KEYS:
            return None
        return cls(name, *(_part(name, table[key]) for key in ("of", "groups")))

    @classmethod
    def is_entry(cls, options: Mapping[str, Any]) -> bool:
        return options.keys() == _KEYS and all(_is_entry(options[key]) for key in _KEYS)

    def options(self) -> dict[str, Any]:
        return {
            key: {"name": part.name, **part.declaration()}
            for key, part in zip(("of", "groups"), self.parts, strict=True)
        }

    @property
    def domain(self) -> str:
        """The values of both, for display."""
        return f"{self.of.domain} within {self.groups.domain}"

    @property
    def unsettled(self) -> bool:  # type: ignore[override]
        """Whether the attribute within the groups leaves something to the plan."""
        return self.of.unsettled

    def settled(self, epsilon: float, coders: Coders) -> "Within":
        of = self.of.settled_within(len(self.groups.labels), epsilon, coders)
        return self if of is self.of else replace(self, of=of)

    # How it is read.

    @property
    def parts(self) -> tuple[Attribute, ...]:
        """Both attributes."""
        return self.of, self.groups

    def joined(self, values: list[Floats]) -> Floats:
        of, groups = (part.joined([each]) for part, each in zip(self.parts, values, strict=True))
        return self.groups.to_inputs(groups) * len(self.of.letters) + self.of.positions(of)

    def read(self, cells: Cells) -> Floats:
        raise DomainError(
            f"{self.name!r} is read from the columns {self.of.name!r} and {self.groups.name!r}: "
            "give data whose columns have names."
        )

    def _expected(self, cell: object, is_entry: bool) -> str:
        return "a value"

    def known(self, values: Values) -> npt.NDArray[np.bool_]:
        low, high = self.inputs
        return (values >= low) & (values <= high)

    def compact(self, values: Floats) -> Values:
        return self.to_inputs(values[:, 0]) if self.rounds else super().compact(values)

    def check_column(self, column: Values) -> None:
        if column.dtype.kind not in "iuf" or not self.known(column).all():
            raise DomainError(
                f"column {self.name!r} must hold positions from 0 to {len(self.labels) - 1}."
            )

    def summary(self, values: Values) -> dict[str, Any]:
        found, number = self.sums(values)
        return {"estimates": (found / np.maximum(number, 1)).tolist()}

    def typical(self, summary: Mapping[str, Any]) -> str:
        return ""

    def to_features(self, values: Values) -> Floats:
        raise DomainError(f"{self.name!r} is for statistics: a model takes its two attributes.")

    # What is estimated.

    def result(self, numbers: Numbers) -> Result:
        return self.of.within(self.groups.labels, numbers)

    def described(self, place: int) -> tuple[str, tuple[float, float]]:
        if not self.rounds:
            return self.name_of(place), (0.0, 1.0)
        number = len(self.groups.labels)
        group = f"{self.groups.name} = {self.groups.labels[place % number]}"
        if place < number:
            return f"{self.of.name} where {group}", self.of.described(0)[1]
        return f"share of {group}", (0.0, 1.0)

    def moved(self, coder: Any, liars: float, group: float) -> float:
        return float(self.of.moved_within(coder, liars, group))

    def sums(self, values: Values) -> tuple[Values, Any]:
        groups, positions = np.divmod(self.to_inputs(values[:, 0]), len(self.of.letters))
        number = len(self.groups.labels)
        return self.of.sums_within(groups.astype(np.int64), number, positions)


def _part(name: str, table: Any) -> Attribute:
    """Return one of the two attributes from a table with its name."""
    from fedldp.schema.attributes import from_table

    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise DomainError(
            f"of and groups of {name!r} must be tables with a name; got {table!r:.60}."
        )
    return from_table(table["name"], {key: table[key] for key in table if key != "name"})


def _is_entry(entry: Any) -> bool:
    from fedldp.schema.attributes import is_entry

    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        return False
    options = {key: entry[key] for key in entry if key != "name"}
    return is_entry(options)
