"""The audit log: who created, signed, enrolled or revoked what, and when.

It can only grow, and its hash chain shows if anything in it was changed: each head is the SHA-256
of the one before it and the entry. Somebody who can write to the store could replace all of it, so
the last head should be written down elsewhere, from time to time.
"""

import getpass
import json
import socket
import time
from typing import Any, NamedTuple, final

from fedldp.errors import DomainError, WireError
from fedldp.storage.chain import Link, follow
from fedldp.vehicle import canonical
from fedldp_fleet.store.base import AuditRow, Transaction

CREATED, RESTORED = "created", "restored"
JOB = "job"
ENROLLED, JOINED, REVOKED = "enrolled", "joined", "revoked"
TOKEN, TOKEN_REVOKED = "token", "token revoked"


@final
class AuditEntry(NamedTuple):
    """What was done, and by whom."""

    time: int
    actor: str  # an account of a machine, a token of the API, or an agent
    action: str
    subject: str
    detail: str

    def to_json(self) -> str:
        """Return the text of the entry."""
        return canonical(self._asdict())


def person() -> str:
    """Return who uses this machine."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # an account without a name
        return f"unknown@{socket.gethostname()}"


def record(store: Transaction, actor: str, action: str, subject: str, detail: str = "") -> None:
    """Add an entry, in the transaction of what it tells of."""
    last = store.last_audit()
    text = AuditEntry(int(time.time()), actor, action, subject, detail).to_json()
    number, before = (0, follow([])) if last is None else (last.number, last.head)
    store.add_audit(AuditRow(number + 1, text, follow([text], before)))


def entries(store: Transaction, expected: str = "") -> list[tuple[AuditEntry, Link]]:
    """Return all entries, or raise `WireError` if any was changed, added between or removed.

    With a head that was written down earlier, its entry must be among them.
    """
    found, head = [], follow([])
    for number, row in enumerate(store.audit(), start=1):
        head = follow([row.entry], head)
        if (row.number, bytes(row.head)) != (number, head):
            raise WireError(f"the audit log was changed: entry {number} does not fit the others.")
        found.append((AuditEntry(**_fields(row.entry)), Link(row.entry, head)))
    if expected and expected not in {link.head.hex() for _, link in found}:
        raise DomainError(
            f"the audit log has no entry with the head {expected:.80}: it was replaced, or the "
            "head is of another server."
        )
    return found


def _fields(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(text)
    if fields.keys() != set(AuditEntry._fields):
        raise WireError(f"the audit log has an entry that cannot be read: {text:.80}")
    return fields
