"""Strict JSON documents: each has a format, known entries and one canonical text.

`vehicle.py` has its own reader, because it uses the standard library alone.
"""

import contextlib
import json
from collections.abc import Collection, Iterator
from typing import Any

from ..errors import PrivacyError, WireError
from ..vehicle import UNREADABLE, difference


@contextlib.contextmanager
def reading(what: str, advice: str = "") -> Iterator[None]:
    """Turn every error that invalid text causes into a `WireError` that says what was expected.

    >>> with reading("'fedldp tally 1'"):
    ...     parse('{"format": "fedldp plan 1"}', ["fedldp tally 1"], ["plan", "counts"])
    Traceback (most recent call last):
    fedldp.errors.WireError: not a 'fedldp tally 1': the format differs; got 'fedldp plan 1'
    """
    try:
        yield
    except PrivacyError:
        raise
    except RecursionError as error:
        raise WireError(f"not a {what}: it is nested too deeply{advice}") from error
    except (*UNREADABLE, LookupError, ArithmeticError) as error:
        raise WireError(f"not a {what}: {error}{advice}") from error


def parse(
    text: str | bytes, formats: Collection[str], entries: Collection[str], *optional: str
) -> dict[str, Any]:
    """Return a document, which must have one of some formats and exactly these entries."""
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("it must be a JSON object")
    format_found = document.get("format")
    if format_found not in formats:
        raise ValueError(difference(format_found, formats))
    if document.keys() - {"format", *optional} != set(entries):
        raise ValueError(f"its entries must be {', '.join(sorted(entries))}")
    return document


def check_written(expected: str, given: str) -> None:
    """Refuse a text that is not canonical: equal documents must have equal texts."""
    if given != expected:
        raise ValueError("it is not canonical: use the text as fedldp wrote it")
