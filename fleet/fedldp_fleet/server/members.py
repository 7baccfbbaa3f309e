"""Agents: enrolled by an operator with a one-time code, known by a secret, revoked, rotated.

The store keeps the SHA-256 of a code, which is useless to whoever reads it. Every change is one
transaction and counts up a number, by which each server process notices the changes of others.
"""

import base64
import hashlib
import secrets

from fedldp.errors import DomainError
from fedldp_fleet.messages import MOST_VEHICLES
from fedldp_fleet.questions import check_name
from fedldp_fleet.road import SECRET_BYTES, JoinedAgent
from fedldp_fleet.store.base import Member, Transaction

CHANGES = "changes of members"  # in the store's settings: how many there were

_CODE_BYTES = 20


def enroll(store: Transaction, agent: str, vehicles: int, *, again: bool = False) -> str:
    """Return a one-time code for an agent; its answers for that many vehicles count in a job.

    An agent that has joined already needs `again`: its old secret works until the code is used.
    """
    check_name(agent, "agent")
    if type(vehicles) is not int or not 1 <= vehicles <= MOST_VEHICLES:
        raise DomainError(
            f"vehicles must be a whole number from 1 to {MOST_VEHICLES}; got {vehicles!r:.80}."
        )
    before = store.member(agent)
    if before is not None and before.secret and not before.revoked and not again:
        raise DomainError(
            f"the agent {agent!r} has joined already, with {before.vehicles} vehicles. Use "
            "--again if it has lost its secret or has other vehicles now, or choose another name."
        )
    code = f"{agent}:{base64.b32encode(secrets.token_bytes(_CODE_BYTES)).decode()}"
    kept = Member(agent, vehicles) if before is None or before.revoked else before
    _save(store, kept._replace(vehicles=vehicles, code=code_hash(code)))
    return code


def join(store: Transaction, code: str) -> JoinedAgent | None:
    """Return a secret for a code that was not used before; None for any other."""
    member = store.member(code.partition(":")[0])
    if member is None or member.revoked or not secrets.compare_digest(member.code, code_hash(code)):
        return None
    secret = secrets.token_bytes(SECRET_BYTES)
    _save(store, member._replace(secret=secret, next_secret=b"", code=b""))
    return JoinedAgent(member.agent, secret, member.vehicles)


def rotate(store: Transaction, agent: str) -> bytes | None:
    """Return the next secret of an agent, the same until it is used; None if it is revoked."""
    member = store.member(agent)
    if member is None or member.revoked or not member.secret:
        return None
    if not member.next_secret:
        member = member._replace(next_secret=secrets.token_bytes(SECRET_BYTES))
        _save(store, member)
    return member.next_secret


def confirm(store: Transaction, agent: str, secret: bytes) -> None:
    """Let the next secret of an agent, which it has used, be its only one."""
    member = store.member(agent)
    if member is not None and member.next_secret == secret:
        _save(store, member._replace(secret=secret, next_secret=b""))


def revoke(store: Transaction, agent: str) -> None:
    """Refuse an agent from now on; what it has answered before still counts."""
    member = store.member(agent)
    if member is None:
        raise DomainError(f"there is no agent {agent!r:.80}. `fedldp server status` lists them.")
    revoked = Member(agent, member.vehicles, revoked=True)
    _save(store, revoked)


def changes(store: Transaction) -> int:
    """Return how many changes there were."""
    return int(store.value(CHANGES) or 0)


def _save(store: Transaction, member: Member) -> None:
    change = changes(store) + 1
    store.set_member(member._replace(change=change))
    store.set_value(CHANGES, str(change))


def code_hash(code: str) -> bytes:
    """Return what the store keeps of a code."""
    return hashlib.sha256(code.encode()).digest()
