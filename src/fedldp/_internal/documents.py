"""Strict JSON documents: each has one format, known entries and one way to be written.

`vehicle.py` reads documents by itself: it needs the standard library alone.
"""

import contextlib
import json
from collections.abc import Collection, Iterator
from typing import Any

from fedldp.errors import PrivacyError, WireError
from fedldp.vehicle import UNREADABLE


@contextlib.contextmanager
def reading(what: str, advice: str = "") -> Iterator[None]:
    """Have all that invalid text causes raise `WireError`, which says what it should have been.

    >>> with reading("'fedldp tally 1'"):
    ...     parse('{"format": "fedldp plan 1"}', ["fedldp tally 1"], ["plan", "counts"])
    Traceback (most recent call last):
    fedldp.errors.WireError: not a 'fedldp tally 1': the format differs; got 'fedldp plan 1'
    """
    try:
        yield
    except PrivacyError:
        raise
    except (*UNREADABLE, LookupError, ArithmeticError) as error:
        raise WireError(f"not a {what}: {error}{advice}") from error


def parse(
    text: str | bytes, formats: Collection[str], entries: Collection[str], *optional: str
) -> dict[str, Any]:
    """Return the entries of a document of one of some formats: all of them, and no others."""
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("it must be a JSON object")
    found = document.get("format")
    if found not in formats:
        raise ValueError(f"the format differs; got {found!r:.80}")
    if document.keys() - {"format", *optional} != set(entries):
        raise ValueError(f"it has other entries than {', '.join(sorted(entries))}")
    return document


def check_written(expected: str, given: str) -> None:
    """Refuse a text that says the same in another way: documents that are equal are equal texts."""
    if given != expected:
        raise ValueError("it is not canonical: use the text as fedldp wrote it")
