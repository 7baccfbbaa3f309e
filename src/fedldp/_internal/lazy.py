"""Packages whose public names are imported when they are first used (PEP 562)."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def attribute_loader(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that imports its public names on first use.

    Parameters
    ----------
    package
        The package's `__name__`.
    homes
        For each module of the package, the public names that are defined in it, separated by
        spaces. The public modules of the package stand under the empty name.

    """
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        owner = sys.modules[package]
        if name not in home_of:
            text = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(text, name=name, obj=owner)  # so that Python suggests another
        if not home_of[name]:
            return import_module(f"{package}.{name}")
        value = getattr(import_module(f"{package}.{home_of[name]}"), name)
        setattr(owner, name, value)  # so that this runs once for each name
        return value

    return load
