"""The Attribute protocol: the only place where kinds of attributes differ.

An attribute declares itself and has three roles, each an object of its own:

- its `readers` turn the cells of its columns into values (readers.py);
- its `inputs` are what a coder takes of the values (inputs.py);
- its `estimand` is what is estimated about them (estimands.py).

To add a kind, write a class in a file of its own, choose or write its three roles, and list it in
`fedldp.schema.attributes.ATTRIBUTES`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cached_property
from math import inf, isfinite
from typing import Any, ClassVar

from fedldp._internal.text import listed
from fedldp._internal.validation import Floats, is_real
from fedldp.errors import DomainError
from fedldp.schema.attributes.estimands import Estimand, LabelFrequencies
from fedldp.schema.attributes.inputs import Inputs, LabelInputs, OfferedCoders, Values
from fedldp.schema.attributes.readers import Reader
from fedldp.schema.frames import shown, to_float
from fedldp.vehicle import PLAN_FORMAT, RANDOM, rules_of

DECLARATIONS = "constant", "rule"  # of any kind of attribute
_COMMON = *DECLARATIONS, "unit"

__all__ = ["Attribute", "Labelled"]


class Attribute(ABC):
    """A named column of a schema, or several: how it is declared, read, asked for and estimated.

    Attributes
    ----------
    name
        Its name.
    size
        How many coordinates it has.
    constant
        Whether the value of a vehicle never changes: see `fedldp.Plan.constant`. A field of the
        class with the default False, and `kw_only`.
    rule
        How several rows of a vehicle become one value: `"random"` takes a random row; `"last"`,
        `"mean"`, `"maximum"`, `"count"` (of rows with a value) and `"any"` (of a truth value) leave
        out values that are missing or unusable. `rules` has those that fit. A field, as `constant`.
    unit
        What a value means to people, such as `"km/h"`: for tables and plots, and no part of a plan.
        Rows may have dates for the unit `"date"`, times for `"hour of day"` and `"weekday"`, and
        durations for `"ms"`, `"s"`, `"min"`, `"h"` and `"d"`: `fedldp.schema.units` converts them.
    unresolved
        Whether it leaves something to the plan: see `resolve`.
    reads_floats
        Whether an array of numbers holds its values as they are.
    declared_as
        Which entries declare it in TOML, for messages.
    plan_format
        The first format of plans that can have it.

    Examples
    --------
    >>> import fedldp
    >>> schema = fedldp.Schema.of(age=(0, 100), city=["Oslo", "Rome"])
    >>> [attribute.inputs.numeric for attribute in schema.attributes]
    [True, False]
    """

    name: str
    size: int
    constant: bool = False
    rule: str = RANDOM
    unit: str = ""
    unresolved: bool = False
    reads_floats: ClassVar[bool] = False
    declared_as: ClassVar[str]
    plan_format: ClassVar[str] = PLAN_FORMAT

    # How it is declared.

    @classmethod
    def from_shorthand(cls, name: str, given: Any, size: int) -> "Attribute | None":
        """Return the attribute that an argument of `Schema.of` describes, if it is of this kind.

        `size` is how many numbers a cell of its column holds.
        """
        return None

    @classmethod
    @abstractmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> "Attribute | None":
        """Return the attribute that a table in TOML declares, if its entries are of this kind."""

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Return the entries that declare it in JSON and TOML, without its name."""

    def declaration(self) -> dict[str, Any]:
        """Return its options, and what it declares besides, as every kind can."""
        return self.options() | self._declared

    def table(self) -> dict[str, Any]:
        """Return what declares it in TOML: its declaration, and its unit."""
        return self.declaration() | ({"unit": self.unit} if self.unit else {})

    @property
    def _declared(self) -> dict[str, Any]:
        """Its `constant` and `rule`; if it has several columns, each of these has its own."""
        if len(self.columns) > 1:
            return {}
        rule = {} if self.rule == RANDOM else {"rule": self.rule}
        return ({"constant": True} if self.constant else {}) | rule

    @property
    def columns(self) -> "tuple[Attribute, ...]":
        """The attributes that it consists of, with a column each: itself, or those within it."""
        return (self,)

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that it can have besides "random"."""
        return rules_of(self.options())

    def __repr__(self) -> str:
        keys = [each.name for each in fields(self) if each.name not in _COMMON]  # type: ignore[arg-type]
        return self._shown(keys)

    def _shown(self, keys: Iterable[str]) -> str:
        """Return the call that makes it, with some of its arguments."""
        shown = [*keys, *self._declared, *(["unit"] if self.unit else [])]
        given = ", ".join(f"{key}={getattr(self, key)!r}" for key in shown)
        return f"{type(self).__name__}({given})"

    @property
    @abstractmethod
    def domain(self) -> str:
        """The values that it can have, for display."""

    # Its roles.

    @property
    @abstractmethod
    def readers(self) -> tuple[Reader, ...]:
        """What reads its columns."""

    @property
    @abstractmethod
    def inputs(self) -> Inputs:
        """What a coder takes."""

    @property
    @abstractmethod
    def estimand(self) -> Estimand:
        """What is estimated."""

    def join(self, columns: list[Floats]) -> Floats:
        """Return its values from what its readers have read, a row for each vehicle."""
        return columns[0]

    def resolve(self, epsilon: float, coders: OfferedCoders, groups: int = 1) -> "Attribute":
        """Return the attribute with all that it leaves to the plan, alone or within groups."""
        return self

    # What people and models see.

    @property
    def labels(self) -> tuple[str, ...]:
        """The public labels of which frequencies are estimated; a number has none."""
        return ()

    def coordinate_name(self, place: int) -> str:
        """Return the name of one of its coordinates, for display."""
        return self.name if self.size == 1 else f"{self.name}[{place}]"

    @property
    def feature_labels(self) -> tuple[str, ...]:
        """The labels that can become features; empty if it becomes `size` numbers."""
        return self.labels

    def to_features(self, values: Values) -> Floats:
        """Return what a model sees: numbers in [-1, 1], or the numbers of labels."""
        return self.inputs.of(values)

    def from_features(self, numbers: Any) -> Any:
        """Convert numbers that a model predicts to the attribute's own units."""
        return self.estimand.from_unit(numbers)


class Labelled(Attribute):
    """An attribute whose values are the numbers of some labels, whose frequencies are estimated."""

    size: ClassVar[int] = 1  # type: ignore[misc]

    @property
    @abstractmethod
    def missing_input(self) -> float:
        """The number of the label that replaces a missing value."""

    @property
    def domain(self) -> str:
        """The labels, for display."""
        return listed(self.labels, room=60)

    @cached_property
    def inputs(self) -> LabelInputs:
        few_bits = self.plan_format != PLAN_FORMAT
        return LabelInputs(self.labels, self.missing_input, few_bits)

    @property
    def estimand(self) -> Estimand:
        return LabelFrequencies(self.name, self.inputs)


def finite(name: str, key: str, value: Any) -> float:
    """Return an option of an attribute as a float, or refuse it.

    >>> finite("speed", "low", 30)
    30.0
    """
    number = to_float(value) if is_real(value) else inf
    if not isfinite(number):
        hint = " Numbers and dates take no quotation marks." if isinstance(value, str) else ""
        raise DomainError(f"{key} of {name!r} must be a finite number; got {shown(value)}.{hint}")
    return number + 0.0  # not -0.0, which is equal but is written differently
