"""Every public name has a complete docstring: parameters, result and an example.

The examples run as doctests of their modules.
"""

import dataclasses
import doctest
import importlib.util
import inspect
import typing
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from numpydoc.docscrape import NumpyDocString

from fedldp import vehicle

# The public names of these packages and modules are checked.
CHECKED = (
    "fedldp.signing",
    "fedldp.audit",
    "fedldp.budget.ledger",
    "fedldp.budget.composition",
    "fedldp.budget.vehicle",
    "fedldp.budget.vehicles",
    "fedldp.coders",
    "fedldp.counting.engines",
    "fedldp.counting.packets",
    "fedldp.counting.shards",
    "fedldp.datasets",
    "fedldp.errors",
    "fedldp.learn",
    "fedldp.mechanisms",
    "fedldp.plan.parts",
    "fedldp.plan.plan",
    "fedldp.plan.report",
    "fedldp.randomness",
    "fedldp.results.estimate",
    "fedldp.results.plausibility",
    "fedldp.results.summary",
    "fedldp.results.tally",
    "fedldp.schema.attributes",
    "fedldp.schema.frames",
    "fedldp.schema.quality",
    "fedldp.schema.rows",
    "fedldp.schema.schema",
    "fedldp.schema.vehicle_ids",
    "fedldp.storage",
    "fedldp.vehicle",
    "fedldp_fleet.flower",
)
# What extensions implement, and nobody else calls, is described in one line.
PROTOCOLS = (
    "fedldp.coders.base",
    "fedldp.learn.optimizer.Optimizer",
    "fedldp.schema.attributes.base",
)
EXAMPLE = ">>> "


def reference() -> ModuleType:
    path = Path(__file__).parent.parent / "tools/site/reference.py"
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_checked(module: str) -> bool:
    return any(f"{module}.".startswith(f"{each}.") for each in CHECKED)


def public() -> Iterator[Any]:
    """Yield the public classes and functions of the checked packages."""
    names = [each.what for each in reference().public_names() if each.what is not None]
    for what in (*names, vehicle.Plan, vehicle.read_row):
        if not isinstance(what, ModuleType) and is_checked(what.__module__):
            yield what


def method_names(kind: type) -> Iterator[str]:
    """Yield the names of the public methods and properties of a class that fedldp defines."""
    for name in dir(kind):
        owners = [base for base in kind.__mro__ if name in vars(base)]
        if name.startswith("_") or not owners[0].__module__.startswith("fedldp"):
            continue
        member = vars(owners[0])[name]
        is_method = isinstance(member, staticmethod | classmethod) or inspect.isfunction(member)
        if is_method or isinstance(member, property | cached_property):
            yield name


def docstring(kind: type, name: str) -> str:
    """Return the docstring of a method, or that of the base class's method it replaces."""
    for base in kind.__mro__:
        if name in vars(base) and (found := inspect.getdoc(vars(base)[name])):
            return found
    return ""


def is_of_protocol(kind: type, name: str) -> bool:
    """Return whether a method was declared by a protocol, by name or in the base class."""
    owners = [base for base in kind.__mro__ if name in vars(base)]
    return f"{owners[-1].__module__}.{owners[-1].__qualname__}".startswith(PROTOCOLS)


def described(text: str, *sections: str) -> dict[str, str]:
    """Return the names in some sections of a docstring, each with its description."""
    parsed = NumpyDocString(text)
    return {
        name.strip().lstrip("*"): " ".join(entry.desc).strip()
        for section in sections
        for entry in parsed[section]
        for name in entry.name.split(",")
    }


def parameter_gaps(what: Any, text: str, *sections: str) -> list[str]:
    known = described(text, *sections)
    names = [name for name in inspect.signature(what).parameters if name not in ("self", "cls")]
    return [f"parameter {name!r} is not described" for name in names if not known.get(name)]


def result_gaps(what: Any, text: str) -> list[str]:
    nothing = (None, typing.NoReturn, inspect.Signature.empty)
    if inspect.signature(what).return_annotation in nothing:
        return []
    parsed = NumpyDocString(text)
    entries = [*parsed["Returns"], *parsed["Yields"]]
    if entries and all("".join(entry.desc).strip() for entry in entries):
        return []
    return ["its result is not described"]


def function_gaps(what: Any) -> list[str]:
    text = inspect.getdoc(what) or ""
    gaps = parameter_gaps(what, text, "Parameters") + result_gaps(what, text)
    return gaps if EXAMPLE in text else [*gaps, "there is no example"]


def class_gaps(kind: type) -> list[str]:
    text = inspect.getdoc(kind) or ""
    gaps = []
    is_protocol = getattr(kind, "_is_protocol", False)
    if not is_protocol and (
        "__init__" in vars(kind) or dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")
    ):
        gaps += parameter_gaps(kind, text, "Parameters", "Attributes")
    if EXAMPLE not in text and kind.__module__ not in PROTOCOLS:
        gaps.append("there is no example")
    for name in method_names(kind):
        gaps += [f"{name}: {gap}" for gap in method_gaps(kind, name, text)]
    return gaps


def method_gaps(kind: type, name: str, class_text: str) -> list[str]:
    text = docstring(kind, name)
    is_property = isinstance(inspect.getattr_static(kind, name), property | cached_property)
    if is_property or is_of_protocol(kind, name):
        return [] if text else ["it is not described"]
    method = getattr(kind, name)
    gaps = parameter_gaps(method, text, "Parameters") + result_gaps(method, text)
    # An example of the class may show a method, too.
    shown = EXAMPLE in text or any(
        f".{name}(" in line for line in class_text.splitlines() if line.startswith((">>>", "..."))
    )
    return gaps if shown else [*gaps, "there is no example"]


@pytest.mark.parametrize("what", [*public()], ids=lambda each: f"{each.__module__}.{each.__name__}")
def test_the_docstring_describes_parameters_and_result_and_has_an_example(what):
    assert (class_gaps(what) if inspect.isclass(what) else function_gaps(what)) == []


@pytest.mark.torch
def test_the_docstrings_of_networks_are_complete_and_their_examples_run():
    from fedldp.learn import torch

    assert class_gaps(torch.ModuleTask) == class_gaps(torch.Gradients) == []
    assert doctest.testmod(torch).failed == 0


def test_the_docstring_check_finds_what_is_missing():
    def undocumented(x: int) -> int:
        """Return x."""

    def complete(x: int) -> int:
        """Return x.

        Parameters
        ----------
        x
            A number.

        Returns
        -------
        int
            The same number.

        Examples
        --------
        >>> complete(1)
        1

        """

    @dataclasses.dataclass
    class Kind:
        """A kind.

        >>> Kind(1).show()
        1
        """

        x: int

        def show(self) -> int:
            """Return x."""

    assert function_gaps(complete) == []
    assert function_gaps(undocumented) == [
        "parameter 'x' is not described",
        "its result is not described",
        "there is no example",
    ]
    assert class_gaps(Kind) == ["parameter 'x' is not described"]
