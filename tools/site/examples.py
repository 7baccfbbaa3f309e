"""Docstrings on the site: examples that run stand in a block of code of their own."""

import inspect
import pydoc
import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


def fenced(text: str) -> str:
    """Put a fence around each example, which ends at a blank line as in doctest."""
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found.group()}\n```", text)


class Fenced(griffe.Extension):
    """Changes the docstring of all that is documented."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change one docstring."""
        if obj.docstring is not None:
            if "{options}" in obj.docstring.value:  # completed when the class is imported
                obj.docstring.value = inspect.getdoc(pydoc.locate(obj.path)) or ""
            obj.docstring.value = fenced(obj.docstring.value)
