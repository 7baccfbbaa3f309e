"""Who is asking: requests are authenticated from their headers, before a body is read.

All agents are held in memory, so strangers cost neither the disk nor the store. Replayed requests
are refused while their time is accepted. After a restart they are not remembered, and harmless:
every act of the road has the same effect if it is repeated.
"""

import time
from collections.abc import Iterable, Mapping
from hmac import compare_digest
from typing import NamedTuple, final

from fedldp_fleet import road
from fedldp_fleet.engine import INCARNATION
from fedldp_fleet.server import members
from fedldp_fleet.store.base import Member, Transaction

UNKNOWN = b'{"error":"unknown agent, or wrong code","format":"fedldp error 1"}'

_BUCKET_SECONDS = 30
_MOST_DIGITS = 12
_NONE = b""
_AGENT, _TIME, _NONCE, _BODY, _MAC = (
    each.lower().encode() for each in (road.AGENT, road.TIME, road.NONCE, road.BODY, road.MAC)
)
_NAMES = frozenset((_AGENT, _TIME, _NONCE, _BODY, _MAC, b"content-length", b"transfer-encoding"))
_HEX = frozenset(b"0123456789abcdef")


class Refused(Exception):
    """A request that is not answered as it was meant: a status, and a body that says why."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status, body)
        self.status, self.body = status, body


class AuthenticatedRequest(NamedTuple):
    """An authenticated request."""

    agent: str
    length: int  # of its body
    body_hash: bytes  # in hexadecimal
    confirms: bytes = b""  # the next secret, if this is the first request with it


@final
class Guard:
    """Knows all agents, and the requests of the last minutes."""

    def __init__(self) -> None:
        self._members: dict[bytes, Member] = {}
        self._changes, self._incarnation = -1, ""
        self._seen: dict[int, set[int]] = {}  # by the time in the request
        self._heard: dict[str, float] = {}  # when agents were heard, until that is stored

    def refresh(self, store: Transaction) -> None:
        """Read the agents that were changed, by this process or another one."""
        changes, incarnation = members.changes(store), store.value(INCARNATION)
        if incarnation != self._incarnation or changes < self._changes:
            self._members, self._changes, self._incarnation = {}, -1, incarnation
        if changes != self._changes:
            found = store.members_since(self._changes)
            self._members.update((each.agent.encode(), each) for each in found)
            self._changes = changes

    def check(
        self,
        method: bytes,
        path: bytes,
        headers: Iterable[tuple[bytes, bytes]],
        now: float | None = None,
    ) -> AuthenticatedRequest:
        """Return who is asking, or raise `Refused`."""
        given = {name: value for name, value in headers if name in _NAMES}
        length = _length(given, method)
        now = time.time() if now is None else now
        agent, sent, nonce = (given.get(name, _NONE) for name in (_AGENT, _TIME, _NONCE))
        body_hash = given.get(_BODY, _NONE)
        member = self._members.get(agent)
        if member is None or member.revoked:
            raise Refused(401, UNKNOWN)
        line = (method, path, sent, nonce, length, body_hash)
        code, used = given.get(_MAC, _NONE), _NONE
        for secret in (member.secret, member.next_secret):
            if secret and compare_digest(road.mac(secret, *line).encode(), code):
                used = secret
                break
        if not used or not _is_hex(nonce, road.NONCE_BYTES) or not _is_number(sent):
            raise Refused(401, UNKNOWN)
        if abs(int(sent) - now) > road.CLOCK_SECONDS:
            raise Refused(401, road.clock_bytes(now))
        if self._repeats(int(sent), hash((agent, nonce)), now):
            raise Refused(401, UNKNOWN)
        self.hear(member.agent, now)
        confirms = used if used == member.next_secret else _NONE
        if confirms:  # from now on the old one is refused
            self._members[agent] = member._replace(secret=confirms, next_secret=b"")
        return AuthenticatedRequest(member.agent, int(length), body_hash, confirms)

    def hear(self, agent: str, now: float) -> None:
        """Remember that an agent was heard, until that is stored."""
        self._heard[agent] = now

    def store_heard(self, store: Transaction) -> bool:
        """Store when agents were heard since this was done last; return whether any was."""
        heard, self._heard = self._heard, {}
        for agent, time_heard in sorted(heard.items()):
            if store.member(agent) is not None:  # strangers must not fill the store
                store.set_heard(agent, time_heard)
        return bool(heard)

    def _repeats(self, sent: int, request: int, now: float) -> bool:
        """Remember a request; return whether it was made before. A replay has the same time."""
        number = sent // _BUCKET_SECONDS
        bucket = self._seen.get(number)
        if bucket is None:
            oldest = (now - road.CLOCK_SECONDS) // _BUCKET_SECONDS
            for each in [each for each in self._seen if each < oldest]:
                del self._seen[each]
            bucket = self._seen[number] = set()
        before = len(bucket)
        bucket.add(request)
        return len(bucket) == before


def length_of(method: bytes, headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the length of the body that follows, or raise `Refused`."""
    return int(_length(dict(headers), method))


def _length(given: Mapping[bytes, bytes], method: bytes) -> bytes:
    """Return the length of the body that follows, or raise `Refused`."""
    length = given.get(b"content-length", _NONE)
    if not length and method == b"GET" and b"transfer-encoding" not in given:
        return b"0"
    if not _is_number(length) or b"transfer-encoding" in given:
        raise Refused(411, b'{"error":"Content-Length is required","format":"fedldp error 1"}')
    return length


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) <= _MOST_DIGITS


def _is_hex(text: bytes, size: int) -> bool:
    return len(text) == 2 * size and _HEX.issuperset(text)
