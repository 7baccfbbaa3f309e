"""What the fleet, beside `common`, uses of the library that is not public: only they say where."""

from fedldp._internal import owner, packing
from fedldp._internal.lazy import attribute_loader
from fedldp._internal.science import scipy_module
from fedldp._internal.text import counted, listed, or_none
from fedldp._internal.validation import Floats, Integers

__all__ = [
    "Floats",
    "Integers",
    "attribute_loader",
    "counted",
    "listed",
    "or_none",
    "owner",
    "packing",
    "scipy_module",
]
