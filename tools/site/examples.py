"""Docstrings on the site: examples in a block of code of their own, and related names as a list."""

import inspect
import pydoc
import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
_RELATED = re.compile(r"(?<=^See Also\n--------\n).*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"^(\S+)(?: : |$)", re.MULTILINE)


def listed(text: str) -> str:
    """Make a list of the names under "See Also", each with what is said about it."""
    return _RELATED.sub(lambda found: _NAME.sub(r"- `\1`: ", found.group()), text)


def fenced(text: str) -> str:
    """Put a fence around each example, which ends at a blank line as in doctest."""
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found.group()}\n```", text)


class Fenced(griffe.Extension):
    """Changes the docstring of all that is documented, and shows the defaults of options alone."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Change the value of a field from `option(...)` to its default, if there is one."""
        call = attr.value
        if isinstance(call, griffe.ExprCall) and call.canonical_path.endswith(".option"):
            defaults = vars(pydoc.locate(attr.parent.path))
            attr.value = repr(defaults[attr.name]) if attr.name in defaults else None

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change one docstring."""
        if obj.docstring is not None:
            if "{options}" in obj.docstring.value:  # completed when the class is imported
                obj.docstring.value = inspect.getdoc(pydoc.locate(obj.path)) or ""
            obj.docstring.value = fenced(listed(obj.docstring.value))
