"""Attributes: what a schema consists of. A new kind is a class and an entry in `ATTRIBUTES`."""

from collections.abc import Mapping
from copy import copy
from typing import Any

from fedldp._internal.text import closest
from fedldp.errors import DomainError
from fedldp.schema.attributes.angle import Angle
from fedldp.schema.attributes.base import DECLARATIONS, Attribute, Labelled
from fedldp.schema.attributes.binned import BinnedNumber
from fedldp.schema.attributes.category import Category
from fedldp.schema.attributes.distribution import Distribution
from fedldp.schema.attributes.number import Number
from fedldp.schema.attributes.open import HashedCategory, WholeNumbers
from fedldp.schema.attributes.optional import OptionalNumber
from fedldp.schema.attributes.within import Within

__all__ = [
    "Angle",
    "Attribute",
    "BinnedNumber",
    "Category",
    "Distribution",
    "HashedCategory",
    "Labelled",
    "Number",
    "OptionalNumber",
    "WholeNumbers",
    "Within",
]

# Every kind of attribute by name, in the order in which a declaration is compared with them.
ATTRIBUTES: dict[str, type[Attribute]] = {
    "number": Number,
    "category": Category,
    "optional number": OptionalNumber,
    "number in bins": BinnedNumber,
    "angle": Angle,
    "whole numbers": WholeNumbers,
    "hashed category": HashedCategory,
    "within": Within,
}


# What the tables of attributes can have, and what other programs call some of it.
_ENTRIES = (
    "low", "high", "length", "size", "missing", "optional", "constant", "rule",
    "bins", "edges", "spacing", "categories", "buckets", "salt", "first", "last", "period", "grid",
)  # fmt: skip
_MEANT = {
    "min": "low", "minimum": "low", "lower": "low", "from": "low",
    "max": "high", "maximum": "high", "upper": "high", "to": "high",
    "labels": "categories", "values": "categories", "allowed": "categories", "enum": "categories",
    "default": "missing", "nullable": "optional",
}  # fmt: skip


def from_table(name: str, table: Any) -> Attribute:
    """Return the attribute that a table in TOML declares."""
    if not isinstance(table, Mapping):
        raise DomainError(
            f"{name!r} must be a table of bounds or of categories; got {table!r:.60}."
        )
    options = {key: table[key] for key in table if key not in DECLARATIONS}
    for kind in ATTRIBUTES.values():
        if attribute := kind.from_table(name, options):
            return _declared(attribute, {key: table[key] for key in table if key in DECLARATIONS})
    raise DomainError(
        f"{name!r} needs {', or '.join(kind.declared_as for kind in ATTRIBUTES.values())}; got "
        f"{', '.join(map(repr, table)) or 'nothing'}.{_hint(table)}"
    )


def _hint(table: Mapping[str, Any]) -> str:
    """Return which words were meant by those that no attribute has, or an empty text."""
    meant = {key: _MEANT.get(key) or closest(key, _ENTRIES) for key in table if key not in _ENTRIES}
    pairs = [f"{right!r} for {key!r}" for key, right in meant.items() if right]
    return f" Did you mean {' and '.join(pairs)}?" if pairs else ""


def from_entry(name: str, entry: Mapping[str, Any]) -> Attribute:
    """Return the attribute that an entry in JSON declares, in exactly the form of `declaration`."""
    attribute = from_table(name, entry)
    if attribute.declaration() != entry:
        raise DomainError(f"an entry does not describe an attribute: {entry!r:.200}")
    return attribute


def _declared(attribute: Attribute, declarations: Mapping[str, Any]) -> Attribute:
    if declarations and len(attribute.columns) > 1:
        each = " and ".join(declarations)
        raise DomainError(
            f"{attribute.name!r} has several columns: declare {each} of each of them."
        )
    if not isinstance(declarations.get("constant", False), bool):
        raise DomainError(
            f"constant of {attribute.name!r} must be true or false; "
            f"got {declarations['constant']!r:.60}."
        )
    declared = copy(attribute)
    for key, entry in declarations.items():
        object.__setattr__(declared, key, entry)
    return declared
