"""Attributes: what a schema consists of. A new kind is a class and an entry in `ATTRIBUTES`."""

from collections.abc import Mapping
from copy import copy
from datetime import date
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
from fedldp.schema.units import DATE, HOUR, WEEKDAY, WEEKDAYS, days_of
from fedldp.vehicle import OTHER

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
    "low", "high", "length", "size", "missing", "optional", "constant", "rule", "unit",
    "bins", "edges", "spacing", "categories", "aliases", "buckets", "salt", "first", "last",
    "period", "grid", "of", "groups",
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
    table, unit = _with_unit(name, table)
    options = {key: table[key] for key in table if key not in DECLARATIONS}
    for kind in ATTRIBUTES.values():
        if attribute := kind.from_table(name, options):
            declarations = {key: table[key] for key in table if key in DECLARATIONS}
            return _declared(attribute, declarations | unit)
    raise DomainError(
        f"{name!r} needs {', or '.join(kind.declared_as for kind in ATTRIBUTES.values())}; got "
        f"{', '.join(map(repr, table)) or 'nothing'}.{_hint(table)}"
    )


# What a unit alone declares, and what decides otherwise.
_READY: dict[str, dict[str, Any]] = {
    HOUR: {"period": 24.0, "bins": 24},
    WEEKDAY: {"categories": [*WEEKDAYS, OTHER]},
}
_DECIDING = {"low", "high", "edges", "categories", "first", "last", "buckets", "of", "groups"}


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


def _with_unit(name: str, table: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a table without its unit and with dates as days, and the unit if there is one."""
    entries = {key: _days(table[key]) for key in table if key != "unit"}
    is_date = any(entries[key] is not table[key] for key in entries)
    unit = table.get("unit", DATE if is_date else "")
    if not isinstance(unit, str) or not unit.isprintable() or (is_date and unit != DATE):
        raise DomainError(
            f"unit of {name!r} must be a text, and {DATE!r} for dates; got {unit!r:.60}."
        )
    ready = _READY.get(unit, {}) if not entries.keys() & _DECIDING else {}
    return ready | entries, {"unit": unit} if unit else {}


def _days(entry: Any) -> Any:
    """Return a date as a number of days, also in a list; anything else as it is."""
    if isinstance(entry, date):
        return days_of(entry)
    if isinstance(entry, list | tuple) and any(isinstance(each, date) for each in entry):
        return [days_of(each) if isinstance(each, date) else each for each in entry]
    return entry


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
