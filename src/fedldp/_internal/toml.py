"""Configuration files: TOML with entries that are all known."""

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedldp.errors import DomainError

Types = type | tuple[type, ...]


def read(
    path: str | os.PathLike[str], known: Mapping[str, Types], needed: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the entries of a file; refuse unknown ones, other types, and the lack of any needed.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "vault.toml")
    >>> _ = path.write_text('cap = "4"')
    >>> read(path, {"cap": str}, needed=["cap"])
    {'cap': '4'}
    """
    path = Path(path)
    try:
        entries = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DomainError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise DomainError(f"{path} is no TOML file: {error}.") from None
    for name, value in entries.items():
        if name not in known:
            raise DomainError(f"{path}: {name!r} is no entry here. There are: {', '.join(known)}.")
        if not isinstance(value, known[name]) or isinstance(value, bool):
            raise DomainError(f"{path}: {name} has a value of a wrong type: {value!r:.80}.")
    for name in needed:
        if name not in entries:
            raise DomainError(f"{path}: the entry {name!r} is missing.")
    return entries
