"""What the fleet uses of the library that is not public: the only module that says where it is."""

from fedldp._internal import packing, toml
from fedldp._internal.text import counted, listed, or_none
from fedldp._internal.validation import Floats, Integers

__all__ = [
    "Floats",
    "Integers",
    "counted",
    "listed",
    "or_none",
    "packing",
    "toml",
]
