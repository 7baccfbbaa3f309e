"""Attributes: what a schema consists of. A new kind is a class and an entry in `ATTRIBUTES`."""

from collections.abc import Mapping
from typing import Any

from fedldp.attributes.angle import Angle
from fedldp.attributes.base import Attribute, Labelled, Measured
from fedldp.attributes.binned import BinnedNumber
from fedldp.attributes.category import Category
from fedldp.attributes.distribution import Distribution
from fedldp.attributes.number import Number
from fedldp.attributes.open import HashedCategory, WholeNumbers
from fedldp.attributes.optional import OptionalNumber
from fedldp.attributes.within import Within
from fedldp.errors import DomainError

__all__ = [
    "Angle",
    "Attribute",
    "BinnedNumber",
    "Category",
    "Distribution",
    "HashedCategory",
    "Labelled",
    "Measured",
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


def from_table(name: str, table: Any) -> Attribute:
    """Return the attribute that a table in TOML declares."""
    if not isinstance(table, Mapping):
        raise DomainError(
            f"{name!r} must be a table of bounds or of categories; got {table!r:.60}."
        )
    for kind in ATTRIBUTES.values():
        if found := kind.from_table(name, table):
            return found
    raise DomainError(
        f"{name!r} needs {', or '.join(kind.declared_as for kind in ATTRIBUTES.values())}; got "
        f"{', '.join(map(repr, table)) or 'nothing'}."
    )
