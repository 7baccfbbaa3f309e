"""Validation of texts and whole numbers from outside, on the standard library."""

import operator
from typing import Any

from ..errors import DomainError


def checked_text(text: object, what: str, *, empty: bool = False) -> str:
    """Validate a text that must be encodable as UTF-8, and may be empty only if told so."""
    try:
        if isinstance(text, str) and (text or empty):
            text.encode()
            return text
    except UnicodeEncodeError:
        pass
    needed = "a text in Unicode" if empty else "a text in Unicode, and not empty"
    raise DomainError(f"{what} must be {needed}; got {text!r:.60}.")


def whole(value: Any, name: str) -> int:
    """Validate a whole number and return it as an int."""
    try:
        return operator.index(value)
    except TypeError:
        raise DomainError(f"{name} must be a whole number; got {value!r}.") from None
