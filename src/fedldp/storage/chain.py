"""A hash chain of what was asked, in tables of a ledger: nothing in it can be changed unnoticed.

Each entry is a text. The head after an entry is the SHA-256 of the head before it, 32 bytes, and
the entry in UTF-8; the first head is 32 zero bytes. Files with equal heads have equal entries in
the same order.

Entries that somebody else can cause at no cost must not fill the disk. Of those, there is one for
each request in the chain, and others are kept in a list that has an end.
"""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from .database import Readable

__all__ = ["Link", "follow"]

TABLES = (
    """
    CREATE TABLE asked (  -- a hash chain
        number INTEGER PRIMARY KEY,
        request TEXT NOT NULL,
        entry TEXT NOT NULL,
        head BLOB NOT NULL,
        UNIQUE (request, entry)
    )
    """,
    """
    CREATE TABLE refused (  -- what was asked and is not in the chain
        request TEXT NOT NULL,
        entry TEXT NOT NULL,
        PRIMARY KEY (request, entry)
    )
    """,
)
MOST_REFUSED = 1000
START = bytes(32)


class Link(NamedTuple):
    """An entry of a chain, and the head after it.

    Attributes
    ----------
    entry
        The text.
    head
        The 32 bytes after it.

    Examples
    --------
    >>> Link("asked", follow(["asked"])).head.hex()[:8]
    '15dbaa19'
    """

    entry: str
    head: bytes


def follow(entries: Iterable[str], head: bytes = START) -> bytes:
    """Return the head after some entries.

    Parameters
    ----------
    entries
        The entries, in their order.
    head
        The head before them; by default, of an empty chain.

    Returns
    -------
    bytes
        The 32 bytes.

    Examples
    --------
    >>> follow(["a", "b"]) == follow(["b"], follow(["a"])) != follow(["b", "a"])
    True
    """
    for entry in entries:
        head = hashlib.sha256(head + entry.encode()).digest()
    return head


def append(file: Readable, request: str, entry: str) -> None:
    """Add an entry at the end, unless it is in the chain already; call it in a transaction."""
    if _holds(file, "asked", request, entry):
        return
    last = file.execute("SELECT head FROM asked ORDER BY number DESC LIMIT 1")
    head = follow([entry], bytes(last[0][0]) if last else START)
    insert = "INSERT INTO asked (request, entry, head) VALUES (?, ?, ?)"
    file.execute(insert, (request, entry, head))


def note(file: Readable, request: str, entry: str, *, chained: bool) -> None:
    """Record something that nobody has answered; call it in a transaction.

    If `chained`, it is added to the chain, unless there is an entry of the same request. Otherwise
    it is added to the list, up to `MOST_REFUSED` of them.
    """
    if _holds(file, "asked", request, entry):
        return
    if chained and not _has_request(file, request):
        append(file, request, entry)
        return
    file.execute(
        "INSERT OR IGNORE INTO refused SELECT ?, ? WHERE (SELECT COUNT(*) FROM refused) < ?",
        (request, entry, MOST_REFUSED),
    )


def links(file: Readable) -> list[Link]:
    """Return the chain, and check all of its hashes."""
    found, head = [], START
    for entry, stored in file.execute("SELECT entry, head FROM asked ORDER BY number"):
        head = follow([entry], head)
        if head != stored:
            raise file.damaged("the chain of what was asked does not fit together")
        found.append(Link(entry, head))
    return found


def refused_entries(file: Readable) -> list[str]:
    """Return the entries of the list."""
    return [entry for (entry,) in file.execute("SELECT entry FROM refused ORDER BY rowid")]


def _holds(file: Readable, table: str, request: str, entry: str) -> bool:
    query = f"SELECT 1 FROM {table} WHERE request = ? AND entry = ?"  # noqa: S608 (our own names)
    return bool(file.execute(query, (request, entry)))


def _has_request(file: Readable, request: str) -> bool:
    return bool(file.execute("SELECT 1 FROM asked WHERE request = ? LIMIT 1", (request,)))
