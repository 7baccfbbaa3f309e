"""The HTTPS road over the desk. Nothing is read before it is allowed.

Agents are served without ASGI, whose layers would cost more than all that they ask for.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from hmac import compare_digest
from struct import Struct
from typing import Any, NamedTuple, final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from fedldp.errors import DomainError, FedLDPError, WireError
from fedldp.vehicle import canonical
from fedldp_fleet import road
from fedldp_fleet.messages import MOST_BITS, Acknowledgement, Announcement, Answer, Call, Offers
from fedldp_fleet.server import audit, members
from fedldp_fleet.server.desk import Desk
from fedldp_fleet.server.documents import Documents
from fedldp_fleet.server.guard import UNKNOWN, AuthenticatedRequest, Guard, Refused, length_of
from fedldp_fleet.server.listener import LimitedConnection
from fedldp_fleet.store.base import Transaction

MOST_BODY_BYTES = (1 << 16) + (MOST_BITS >> 3)

_SMALL = 1 << 16  # bytes of a call: at most 1,000 jobs, each with its name and a number
_TINY = 1 << 10

_BASE = road.BASE.encode()
_BYTE = Struct("?")
_HEAD = b"content-type: application/octet-stream\r\ncontent-length: %d\r\n%b\r\n"
_LAST = b"connection: close\r\n"

_LOG = logging.getLogger(__name__)

Headers = Sequence[tuple[bytes, bytes]]
Ask = Callable[[str, bytes, str], Awaitable[Any]]  # of an agent, a body, the end of the path


class _Endpoint(NamedTuple):
    """One path of the road."""

    method: bytes
    ask: Ask
    encode: Callable[[Any], bytes]
    most_bytes: int
    for_strangers: bool = False


class Request(NamedTuple):
    """A request whose body may be read."""

    endpoint: _Endpoint
    asking: AuthenticatedRequest
    last: str  # the part of the path that varies


@final
class HTTPSServer:
    """What agents ask for, and what they are replied."""

    def __init__(self, desk: Desk, guard: Guard, documents: Documents) -> None:
        self.desk, self._guard = desk, guard

        async def rotate(agent: str, _: bytes, __: str) -> bytes:
            secret = await desk.run(lambda store: members.rotate(store, agent))
            if secret is None:
                raise Refused(401, UNKNOWN)
            return road.rotated_bytes(secret)

        async def join(_: str, body: bytes, __: str) -> bytes:
            code = road.code_in(body)
            joined = await desk.run(lambda store: _joined(store, code))
            if joined is None:
                raise Refused(403, error_bytes("this code is wrong, or was used before"))
            return joined.to_bytes()

        def answer(agent: str, body: bytes, _: str) -> Awaitable[Acknowledgement]:
            return desk.deliver(agent, Answer.from_bytes(body))

        def call(agent: str, body: bytes, _: str) -> Awaitable[Offers]:
            return desk.call(agent, Call.from_bytes(body))

        def announce(agent: str, body: bytes, _: str) -> Awaitable[bool]:
            return desk.announce(agent, Announcement.from_bytes(body))

        def question(_: str, __: bytes, digest: str) -> Awaitable[bytes | None]:
            return documents.question(digest)

        def job(_: str, __: bytes, digest: str) -> Awaitable[bytes | None]:
            return documents.job(digest)

        self._endpoints = {
            b"/answer": _Endpoint(b"POST", answer, Acknowledgement.to_bytes, MOST_BODY_BYTES),
            b"/call": _Endpoint(b"POST", call, Offers.to_bytes, _SMALL),
            b"/announce": _Endpoint(b"POST", announce, _BYTE.pack, _TINY),
            b"/question/": _Endpoint(b"GET", question, _found, 0),
            b"/job/": _Endpoint(b"GET", job, _found, 0),
            b"/join": _Endpoint(b"POST", join, bytes, _TINY, for_strangers=True),
            b"/rotate": _Endpoint(b"POST", rotate, bytes, 0),
        }

    def request(self, method: bytes, target: bytes, headers: Headers) -> Request:
        """Return a request that is authentic, or raise `Refused`."""
        path, _, query = target.partition(b"?")
        base, name = path[: len(_BASE)], path[len(_BASE) :]
        at = name.find(b"/", 1) + 1 or len(name)
        endpoint = self._endpoints.get(name[:at]) if base == _BASE else None
        if endpoint is None:
            raise Refused(404, road.VERSIONS)
        if method != endpoint.method or query:
            raise Refused(405, error_bytes(f"use {endpoint.method.decode()}, without a query"))
        if endpoint.for_strangers:
            asking = AuthenticatedRequest("", length_of(method, headers), b"")
        else:
            asking = self._guard.check(method, target, headers)
        if asking.length > endpoint.most_bytes:
            raise Refused(413, error_bytes(f"a body may have at most {endpoint.most_bytes} bytes"))
        return Request(endpoint, asking, name[at:].decode("latin-1"))

    def ask(self, request: Request, body: bytes) -> Awaitable[Any]:
        """Begin to do what is asked, or raise `FedLDPError` or `Refused`."""
        agent, _, digest, confirms = request.asking
        if digest and not compare_digest(hashlib.sha256(body).hexdigest().encode(), digest):
            raise Refused(401, UNKNOWN)
        if confirms:
            return self._confirmed(request, body)
        return request.endpoint.ask(agent, body, request.last)

    async def _confirmed(self, request: Request, body: bytes) -> Any:
        agent, _, _, confirms = request.asking
        await self.desk.run(lambda store: members.confirm(store, agent, confirms))
        return await request.endpoint.ask(agent, body, request.last)


class _Exchange:
    """A request and its reply, as far as uvicorn looks at them."""

    message_event = asyncio.Event()  # nobody waits for it

    def __init__(self, *, keep_alive: bool) -> None:
        self.keep_alive = keep_alive
        self.response_complete = self.disconnected = False


class AgentConnection(LimitedConnection):
    """A connection of an agent. The application of its listener is a `HTTPSServer`."""

    app: HTTPSServer
    _body: list[bytes]
    _request: Request | None = None
    _given: tuple[bytes, bytes, Headers]  # method, target and headers
    _is_whole = False
    _work: asyncio.Future[Any]  # which nobody else holds

    def on_message_begin(self) -> None:
        self._request, self._body, self._is_whole = None, [], False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self.begin_body()
        if self.transport.is_closing():
            return
        self.cycle = _Exchange(keep_alive=self.parser.should_keep_alive())  # type: ignore[assignment]
        self._given = self.parser.get_method(), self.url, self.headers
        try:
            self._request = self.app.request(*self._given)
        except Refused as refused:
            if refused.body == UNKNOWN:  # it may have joined, or changed its secret, elsewhere
                self.flow.pause_reading()
                self._work = self.loop.create_task(self._look_again())
            else:
                self.loop.call_soon(self._refuse, refused)
        else:
            if self.expect_100_continue:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _look_again(self) -> None:
        try:
            await self.app.desk.refresh()
            self._request = self.app.request(*self._given)
        except Exception as error:
            self._refuse(error)
        else:
            self.flow.resume_reading()
            if self._is_whole:
                self._ask(self._request)

    def on_body(self, body: bytes) -> None:
        if not self.is_idle:  # it was not refused
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self.is_idle or self.transport.is_closing():
            return
        super().on_message_complete()
        self._is_whole = True
        if self._request is not None:
            self._ask(self._request)

    def _ask(self, request: Request) -> None:
        try:
            self._work = asyncio.ensure_future(self.app.ask(request, b"".join(self._body)))
        except (Refused, FedLDPError) as error:
            self.loop.call_soon(self._refuse, error)
        else:
            self._work.add_done_callback(partial(self._reply, request.endpoint.encode))

    def _reply(self, encode: Callable[[Any], bytes], work: "asyncio.Future[Any]") -> None:
        try:
            body = encode(work.result())
        except Exception as error:
            self._refuse(error)
        else:
            self._send(200, body)

    def _refuse(self, error: Exception) -> None:
        if isinstance(error, Refused):
            status, body = error.status, error.body
        elif isinstance(error, WireError | DomainError):
            status, body = 400, error_bytes(str(error))
        elif isinstance(error, OSError):
            _LOG.error("the store failed", exc_info=error)
            status, body = 503, error_bytes("the server cannot store anything now")
        else:
            _LOG.error("a request failed", exc_info=error)
            status, body = 500, error_bytes("the server has failed")
        self.cycle.keep_alive = False
        self._send(status, body)

    def _send(self, status: int, body: bytes) -> None:
        """Reply at once: what is written in two steps takes two packets."""
        if self.transport.is_closing():
            return
        kept = self.cycle.keep_alive
        head = STATUS_LINE[status] + _HEAD % (len(body), b"" if kept else _LAST)
        self.cycle.response_complete = True
        self.transport.write(head + body)
        if not kept:
            self.transport.close()
        self.begin_wait()


def _joined(store: Transaction, code: str) -> road.JoinedAgent | None:
    joined = members.join(store, code)
    if joined is not None:
        audit.record(store, joined.agent, audit.JOINED, joined.agent)
    return joined


def _found(body: bytes | None) -> bytes:
    if body is None:
        raise Refused(404, error_bytes("there is no such question or job"))
    return body


def error_bytes(text: str) -> bytes:
    """Return the body of a reply that says why a request was refused."""
    return canonical({"format": "fedldp error 1", "error": text}).encode()
