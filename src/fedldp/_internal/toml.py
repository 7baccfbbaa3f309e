"""Configuration files in TOML: reading entries that are all known, and writing them."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import DomainError

Types = type | tuple[type, ...]

FORMAT = 2  # format 1, of fedldp 0.1, had no entry `format`


def read(
    path: str | os.PathLike[str], known: Mapping[str, Types], needed: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the entries of a file, and raise `DomainError` for unknown, invalid or missing ones.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "agent.toml")
    >>> _ = path.write_text('cap = "4"')
    >>> read(path, {"cap": str}, needed=["cap"])
    {'cap': '4'}
    """
    path = Path(path)
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise DomainError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise DomainError(f"{path} is not valid TOML: {error}.") from None
    entries = parse(text, str(path))
    check_format(entries.pop("format", 1), str(path))
    for name, value in entries.items():
        if name not in known:
            raise DomainError(f"{path}: unknown entry {name!r}; choose from {', '.join(known)}.")
        if not isinstance(value, known[name]) or (
            known[name] is not bool and isinstance(value, bool)
        ):
            raise DomainError(f"{path}: {name} has a value of a wrong type: {value!r:.80}.")
    for name in needed:
        if name not in entries:
            raise DomainError(f"{path}: the entry {name!r} is missing.")
    return entries


def check_format(given: object, what: str) -> None:
    """Refuse a format that this version does not know.

    >>> check_format(9, "agent.toml")
    Traceback (most recent call last):
    fedldp.errors.DomainError: agent.toml has format 9, and this version of fedldp reads formats...
    """
    if type(given) is not int or given < 1:
        raise DomainError(f"{what}: format must be a whole number from 1; got {given!r:.80}.")
    if given > FORMAT:
        raise DomainError(
            f"{what} has format {given}, and this version of fedldp reads formats up to {FORMAT}. "
            "A newer version has written it: use that one."
        )


def parse(text: str, what: str) -> dict[str, Any]:
    """Return what a text in TOML holds, or raise `DomainError`."""
    import tomllib  # slow to import, and rarely needed

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise DomainError(f"{what} is not valid TOML: {error}.") from None


def write(entries: Mapping[str, Any], notes: Mapping[str, str] | None = None) -> str:
    """Return entries as lines of TOML, some with a comment after them.

    >>> print(write({"cap": "4", "jobs": ["a", "b"]}, {"cap": "for life"}), end="")
    cap = "4"  # for life
    jobs = ["a", "b"]
    """
    notes = notes or {}
    return "".join(
        f"{_key(name)} = {_value(value)}{f'  # {notes[name]}' if name in notes else ''}\n"
        for name, value in entries.items()
    )


def table(*names: str, entries: Mapping[str, Any]) -> str:
    """Return a table of TOML with its header.

    >>> print(table("superlink", "my fleet", entries={"port": 9443}), end="")
    [superlink."my fleet"]
    port = 9443
    """
    return f"[{'.'.join(map(_key, names))}]\n{write(entries)}"


def _key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: Any) -> str:
    """Return a value in TOML: a text, a number or a list is as in JSON, except for one character.

    >>> _value({"name": "way", "low": 0.0})
    '{name = "way", low = 0.0}'
    """
    if isinstance(value, Mapping):
        pairs = (f"{_key(name)} = {_value(each)}" for name, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
