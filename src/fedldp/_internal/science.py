"""SciPy, which plans, estimates and audits need, and agents do not."""

from importlib import import_module
from typing import Any

from fedldp.errors import MissingExtra


def scipy_module(name: str) -> Any:
    """Import a module of SciPy, or raise `MissingExtra`."""
    try:
        return import_module(f"scipy.{name}")
    except ModuleNotFoundError as error:
        if error.name != "scipy":
            raise
        raise MissingExtra("scipy") from None
