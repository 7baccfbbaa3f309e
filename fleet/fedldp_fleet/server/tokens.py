"""Tokens of the API: a name, a role, and a secret of which the store keeps the SHA-256."""

import hashlib
import secrets
from typing import NamedTuple, final

from fedldp.errors import DomainError
from fedldp_fleet.questions import check_name
from fedldp_fleet.store.base import Token, Transaction

VIEWER, OPERATOR = ROLES = ("viewer", "operator")  # each may do what those before it may

_SECRET_BYTES = 32


@final
class Caller(NamedTuple):
    """Who uses the API."""

    name: str
    role: str

    def may(self, role: str) -> bool:
        """Return whether this role, or one that may do more, is the caller's."""
        return ROLES.index(self.role) >= ROLES.index(role)


def create(store: Transaction, name: str, role: str) -> str:
    """Return a new token; one of the same name that is not revoked is refused."""
    check_name(name, "token")
    if role not in ROLES:
        raise DomainError(f"role must be one of {', '.join(ROLES)}; got {role!r:.80}.")
    before = store.token(name)
    if before is not None and not before.revoked:
        raise DomainError(f"there is a token {name!r} already. Revoke it, or choose another name.")
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    store.set_token(Token(name, role, _hash(secret)))
    return f"{name}:{secret}"


def revoke(store: Transaction, name: str) -> None:
    """Refuse a token from now on."""
    token = store.token(name)
    if token is None:
        raise DomainError(f"there is no token {name!r:.80}.")
    store.set_token(token._replace(revoked=True))


def caller(store: Transaction, text: str) -> Caller | None:
    """Return whose token this is; None if it is nobody's."""
    name, _, secret = text.partition(":")
    token = store.token(name)
    if token is None or token.revoked:
        return None
    same = secrets.compare_digest(token.secret_hash, _hash(secret))
    return Caller(token.name, token.role) if same else None


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
