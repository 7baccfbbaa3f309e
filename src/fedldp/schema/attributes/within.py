"""One attribute within the groups of another, such as the mean speed of each model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast, final

import numpy as np

from fedldp._internal.validation import Floats, checked_text
from fedldp.errors import DomainError
from fedldp.schema.attributes.base import Attribute
from fedldp.schema.attributes.estimands import Estimand, Groupable, Groups
from fedldp.schema.attributes.inputs import LabelInputs, OfferedCoders, Values
from fedldp.schema.attributes.readers import Reader
from fedldp.vehicle import MOST_LABELS, PLAN_FORMAT_2, RANDOM

__all__ = ["Within"]

_KEYS = {"of", "groups"}


@final
@dataclass(frozen=True, repr=False)
class Within(Attribute):
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
    >>> speed
    <Within 'speed by model': 'speed' within 'model', 4 labels>
    >>> speed.labels
    ('A -', 'A +', 'B -', 'B +')
    """

    name: str
    of: Attribute
    groups: Attribute

    size = 1
    declared_as = "of and groups"
    plan_format = PLAN_FORMAT_2

    def __post_init__(self) -> None:
        checked_text(self.name, "an attribute's name")
        for key in ("of", "groups"):
            part = getattr(self, key)
            if not isinstance(part, Attribute) or not _is_simple(part):
                raise DomainError(
                    f"{key} of {self.name!r} must be a number or a category; got {part!r:.80}."
                )
        if self.groups.inputs.ladder:
            raise DomainError(f"groups of {self.name!r} must be a category; got {self.groups!r}.")
        if self.of.name == self.groups.name:
            raise DomainError(f"{self.name!r} has the column {self.of.name!r} twice.")
        if (self.of.rule == RANDOM) is not (self.groups.rule == RANDOM):
            raise DomainError(
                f"{self.name!r} needs a rule for both of its columns, or for none; "
                f"got {self.of.rule!r} and {self.groups.rule!r}."
            )
        number = len(self.groups.labels) * len(self.of.inputs.letters)
        if number > MOST_LABELS:
            raise DomainError(
                f"{self.name!r} would have {number} labels; at most {MOST_LABELS} are allowed."
            )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The labels of the groups, each with every letter of the other attribute."""
        letters = self.of.inputs.letters
        return tuple(f"{group} {letter}" for group in self.groups.labels for letter in letters)

    def __repr__(self) -> str:
        names = f"{self.of.name!r} within {self.groups.name!r}"
        lasting = ", constant" if self.constant else ""
        return f"<Within {self.name!r}: {names}, {len(self.labels)} labels{lasting}>"

    @property
    def columns(self) -> tuple[Attribute, ...]:
        """The two attributes."""
        return self.of, self.groups

    @property
    def rule(self) -> str:  # type: ignore[override]
        """The rule of the attribute within the groups; both have one, or neither."""
        return self.of.rule

    @property
    def unit(self) -> str:  # type: ignore[override]
        """The unit of the attribute within the groups."""
        return self.of.unit

    @property
    def constant(self) -> bool:  # type: ignore[override]
        """Whether the values of both attributes never change."""
        return self.of.constant and self.groups.constant

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> "Within | None":
        if table.keys() != _KEYS:
            return None
        return cls(name, *(_part(name, table[key]) for key in ("of", "groups")))

    def options(self) -> dict[str, Any]:
        return {
            key: {"name": part.name, **part.declaration()}
            for key, part in (("of", self.of), ("groups", self.groups))
        }

    def table(self) -> dict[str, Any]:
        """Return what declares both in TOML, with their units."""
        return {
            key: {"name": part.name, **part.table()}
            for key, part in (("of", self.of), ("groups", self.groups))
        }

    @property
    def domain(self) -> str:
        """The values of both, for display."""
        return f"{self.of.domain} within {self.groups.domain}"

    @property
    def unresolved(self) -> bool:  # type: ignore[override]
        """Whether the attribute within the groups leaves something to the plan."""
        return self.of.unresolved

    def resolve(self, epsilon: float, coders: OfferedCoders, groups: int = 1) -> "Within":
        of = self.of.resolve(epsilon, coders, len(self.groups.labels))
        return self if of is self.of else replace(self, of=of)

    @property
    def readers(self) -> tuple[Reader, ...]:
        """What reads the columns of both attributes."""
        return *self.of.readers, *self.groups.readers

    def join(self, columns: list[Floats]) -> Floats:
        of, groups = self.of.join(columns[:1]), self.groups.join(columns[1:])
        letters = self.of.inputs.letters
        return self.groups.inputs.of(groups) * len(letters) + self.of.inputs.positions(of)

    @cached_property
    def inputs(self) -> LabelInputs:
        """What a coder takes: the number of a group together with a letter."""
        of, nothing = self.of.inputs, np.full((1, 1), np.nan)
        missing = float(self.join([nothing, nothing])[0, 0])
        return LabelInputs(self.labels, missing, ladder=of.ladder, group=len(of.letters))

    @property
    def estimand(self) -> Estimand:
        """What is estimated within each group."""
        groups = Groups(self.groups.name, self.groups.labels)
        return cast(Groupable, self.of.estimand).within(self.name, self.inputs, groups)

    def to_features(self, values: Values) -> Floats:
        raise DomainError(f"{self.name!r} is for statistics: a model takes its two attributes.")


def _is_simple(part: Attribute) -> bool:
    """Return whether an attribute has one column of single values, and can be within groups."""
    simple = part.size == 1 and len(part.readers) == 1
    return simple and isinstance(part.estimand, Groupable)


def _part(name: str, table: Any) -> Attribute:
    """Return one of the two attributes from a table with its name."""
    from fedldp.schema.attributes import from_table

    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise DomainError(
            f"of and groups of {name!r} must be tables with a name; got {table!r:.60}."
        )
    return from_table(table["name"], {key: table[key] for key in table if key != "name"})
