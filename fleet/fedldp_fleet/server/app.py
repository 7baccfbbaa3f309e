"""The HTTPS road: an ASGI application over the desk. Nothing is read before it is allowed."""

import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from hmac import compare_digest
from typing import Any, NamedTuple, final

from starlette.applications import Starlette
from starlette.routing import Route

from fedldp.errors import DomainError, WireError
from fedldp.vehicle import canonical
from fedldp_fleet import road
from fedldp_fleet.messages import MOST_BITS, Announcement, Answer, Call
from fedldp_fleet.server import audit, members
from fedldp_fleet.server.desk import Desk
from fedldp_fleet.server.documents import Documents
from fedldp_fleet.server.guard import UNKNOWN, Asking, Guard, Refused, length_of
from fedldp_fleet.store.base import Transaction

MOST_BODY_BYTES = (1 << 16) + (MOST_BITS >> 3)

_SMALL = 1 << 16  # bytes of a call: at most 1,000 jobs, each with its name and a number
_TINY = 1 << 10

_LOG = logging.getLogger(__name__)

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class _Request(NamedTuple):
    agent: str
    body: bytes
    last: str  # the part of the path that varies


Reply = Callable[[_Request], Awaitable[bytes]]


def road_app(desk: Desk, guard: Guard, documents: Documents) -> Starlette:
    """Return the application that agents call."""

    async def call(request: _Request) -> bytes:
        return (await desk.call(request.agent, Call.from_bytes(request.body))).to_bytes()

    async def announce(request: _Request) -> bytes:
        said = Announcement.from_bytes(request.body)
        return bytes([await desk.announce(request.agent, said)])

    async def answer(request: _Request) -> bytes:
        given = Answer.from_bytes(request.body)
        return (await desk.deliver(request.agent, given)).to_bytes()

    async def question(request: _Request) -> bytes:
        return _found(await documents.question(request.last))

    async def job(request: _Request) -> bytes:
        return _found(await documents.job(request.last))

    async def rotate(request: _Request) -> bytes:
        secret = await desk.run(lambda store: members.rotate(store, request.agent))
        if secret is None:
            raise Refused(401, UNKNOWN)
        return road.rotated_bytes(secret)

    async def join(request: _Request) -> bytes:
        code = road.code_in(request.body)
        joined = await desk.run(lambda store: _joined(store, code))
        if joined is None:
            raise Refused(403, _error("this code is wrong, or was used before"))
        return joined.to_bytes()

    def route(
        path: str, method: str, reply: Reply, most_bytes: int, *, known: bool = True
    ) -> Route:
        endpoint = _Endpoint(desk, guard if known else None, method, reply, most_bytes)
        return Route(road.BASE + path, endpoint)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await desk.open()
        yield
        await desk.close()

    routes = [
        route("/answer", "POST", answer, MOST_BODY_BYTES),
        route("/call", "POST", call, _SMALL),
        route("/announce", "POST", announce, _TINY),
        route("/question/{last}", "GET", question, 0),
        route("/job/{last}", "GET", job, 0),
        route("/join", "POST", join, _TINY, known=False),
        route("/rotate", "POST", rotate, 0),
        Route("/{path:path}", _Versions()),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


@final
class _Endpoint:
    """One path of the road: authenticates, reads, checks, replies."""

    def __init__(
        self, desk: Desk, guard: Guard | None, method: str, reply: Reply, most_bytes: int
    ) -> None:
        self._desk, self._guard, self._reply = desk, guard, reply
        self._method, self._most_bytes = method, most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await self._replied(scope, receive)
        except Refused as refused:
            await _send(send, refused.status, refused.body, close=True)
        except (WireError, DomainError) as error:
            await _send(send, 400, _error(str(error)), close=True)
        except OSError:
            _LOG.exception("the store failed")
            await _send(send, 503, _error("the server cannot store anything now"), close=True)
        else:
            await _send(send, 200, body)

    async def _replied(self, scope: Scope, receive: Receive) -> bytes:
        if scope["method"] != self._method or scope["query_string"]:
            raise Refused(405, _error(f"use {self._method}, without a query"))
        asking = await self._asking(scope)
        if asking.length > self._most_bytes:
            raise Refused(413, _error(f"a body may have at most {self._most_bytes} bytes"))
        body = await _read(receive, asking.length)
        if asking.body_hash:
            found = hashlib.sha256(body).hexdigest().encode()
            if not compare_digest(found, asking.body_hash):
                raise Refused(401, UNKNOWN)
        if asking.confirms:
            given = asking.agent, asking.confirms
            await self._desk.run(lambda store: members.confirm(store, *given))
        last = scope["path_params"].get("last", "")
        return await self._reply(_Request(asking.agent, body, last))

    async def _asking(self, scope: Scope) -> Asking:
        if self._guard is None:
            return Asking("", length_of(scope["method"], scope["headers"]), b"")
        given = scope["method"], scope["raw_path"], scope["headers"]
        try:
            return self._guard.check(*given)
        except Refused as refused:
            if refused.body != UNKNOWN:
                raise
        await self._desk.refresh()  # it may have joined, or changed its secret, elsewhere
        return self._guard.check(*given)


async def _read(receive: Receive, length: int) -> bytes:
    """Return a body of this length; one that is cut off is refused."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(400, b"")  # nobody is there to read it
        part = message.get("body", b"")
        size += len(part)
        if size > length:
            raise Refused(400, _error("the body is longer than its Content-Length"))
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


@final
class _Versions:
    """Every other path: which versions of the road there are."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _send(send, 404, road.VERSIONS, close=True)


async def _send(send: Send, status: int, body: bytes, *, close: bool = False) -> None:
    headers = [
        (b"content-type", b"application/octet-stream"),
        (b"content-length", str(len(body)).encode()),
    ]
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _joined(store: Transaction, code: str) -> road.Joined | None:
    joined = members.join(store, code)
    if joined is not None:
        audit.record(store, joined.agent, audit.JOINED, joined.agent)
    return joined


def _found(body: bytes | None) -> bytes:
    if body is None:
        raise Refused(404, _error("there is no such question or job"))
    return body


def _error(text: str) -> bytes:
    return canonical({"format": "fedldp error 1", "error": text}).encode()
