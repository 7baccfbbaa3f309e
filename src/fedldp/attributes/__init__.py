"""Attributes: what a schema consists of. A new kind is a class and an entry in `ATTRIBUTES`."""

from fedldp.attributes.base import Attribute, Labelled, Measured
from fedldp.attributes.category import Category
from fedldp.attributes.number import Number

__all__ = ["Attribute", "Category", "Labelled", "Measured", "Number"]

# Every kind of attribute by name, in the order in which a declaration is compared with them.
ATTRIBUTES: dict[str, type[Attribute]] = {"number": Number, "category": Category}
