"""A small HTTP server: GET requests, fixed routes, one request for each connection.

It listens on the loopback interface or a Unix socket, or anywhere if callers have a token. A
program sends the token in the header `Authorization: Bearer`. A person opens `/?token=...` once;
the browser then keeps a cookie that is derived from the token.

A page of another site can make a browser call the loopback interface. It cannot read the answers
unless its own name leads there (DNS rebinding), so requests with another name are refused.
"""

import asyncio
import hmac
import json
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, final
from urllib.parse import parse_qsl, urlsplit

from fedldp.fleet.monitor.address import MonitorAddress

COOKIE = "fedldp_monitor"
LARGEST = 1 << 14  # bytes of a request
PATIENCE = 10.0  # seconds for a request to arrive, and for its answer to leave
# At a time. A further one takes the place of the one that has waited longest for its request; if
# all of them have sent theirs, it is closed.
CONNECTIONS = 32

_HEADERS = (
    "Cache-Control: no-store",
    "Content-Security-Policy: default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy: same-origin",
    "Referrer-Policy: no-referrer",
    "X-Content-Type-Options: nosniff",
    "Connection: close",
)
_NAMES = ("localhost", "127.0.0.1", "[::1]")
_LINE = re.compile(r"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[01]")
# Spaces around the value are removed later: with a pattern for them too, a long line of spaces that
# does not match would take hours.
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z.-]+)(?::\d{1,5})?")

_log = logging.getLogger("fedldp.fleet.monitor")


@final
@dataclass(frozen=True)
class Reply:
    """What is sent back."""

    status: HTTPStatus
    content: bytes
    kind: str = "text/plain; charset=utf-8"
    headers: tuple[str, ...] = ()

    @classmethod
    def text(cls, status: HTTPStatus, text: str, *headers: str) -> "Reply":
        """Return a reply with a line of text."""
        return cls(status, f"{text}\n".encode(), headers=headers)

    @classmethod
    def json(cls, document: Any, status: HTTPStatus = HTTPStatus.OK) -> "Reply":
        """Return a reply with a document as JSON."""
        return cls(status, json.dumps(document).encode(), "application/json")

    def to_bytes(self) -> bytes:
        """Return the bytes to send."""
        lines = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.kind}",
            f"Content-Length: {len(self.content)}",
            *_HEADERS,
            *self.headers,
        )
        return "\r\n".join((*lines, "", "")).encode("latin-1") + self.content


@final
@dataclass(frozen=True)
class Request:
    """A GET request."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]  # names in lower case

    @classmethod
    def parse(cls, data: bytes) -> "Request | Reply":
        r"""Return the request, or the reply to an invalid one.

        >>> Request.parse(b"GET /metrics?a=b HTTP/1.1\r\nHost: localhost\r\n\r\n").path
        '/metrics'
        >>> Request.parse(b"POST / HTTP/1.1\r\n\r\n").status.value
        405
        """
        line, *rest = data.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        found = _LINE.fullmatch(line)
        pairs = [_HEADER.fullmatch(each) for each in rest]
        if not found or not all(pairs):
            return Reply.text(HTTPStatus.BAD_REQUEST, "This is not a valid HTTP request.")
        if found[1] != "GET":
            return Reply.text(HTTPStatus.METHOD_NOT_ALLOWED, "Use GET.", "Allow: GET")
        headers: dict[str, str] = {}
        for name, value in ((pair[1], pair[2].strip(" \t")) for pair in pairs if pair):
            if headers.setdefault(name.lower(), value) != value:
                return Reply.text(HTTPStatus.BAD_REQUEST, f"Two values of {name!r}.")
        try:
            target = urlsplit(f"http://monitor{found[2]}")
            return cls(target.path, dict(parse_qsl(target.query, max_num_fields=10)), headers)
        except ValueError:
            return Reply.text(HTTPStatus.BAD_REQUEST, "This is not a valid address.")


Route = Callable[[Request], Reply]


@final
@dataclass(frozen=True)
class Site:
    """The routes of a monitor, and who may use them."""

    address: MonitorAddress
    routes: Mapping[str, Route] = field(default_factory=dict)

    def answer(self, request: Request) -> Reply:
        """Return the reply to a request."""
        if self.address.loopback:
            host = _HOST.fullmatch(request.headers.get("host", ""))
            if host is None or host[1].lower() not in _NAMES:
                return Reply.text(
                    HTTPStatus.MISDIRECTED_REQUEST,
                    "This monitor answers only to the names localhost, 127.0.0.1 and [::1].",
                )
        if self.address.token:
            if "token" in request.query:
                return self._enter(request)
            if not self._admits(request):
                return Reply.text(
                    HTTPStatus.UNAUTHORIZED,
                    "This monitor needs a token. A program sends the header 'Authorization: Bearer "
                    "TOKEN'. In a browser, open /?token=TOKEN; if you came here through a link, "
                    "reload this page.",
                    'WWW-Authenticate: Bearer realm="fedldp monitor"',
                )
        if (route := self.routes.get(request.path)) is None:
            known = ", ".join(self.routes)
            return Reply.text(HTTPStatus.NOT_FOUND, f"Not found. This monitor serves {known}.")
        try:
            return route(request)
        except Exception:
            _log.exception("%s failed", request.path)
            return Reply.text(HTTPStatus.INTERNAL_SERVER_ERROR, "Failed: see the monitor's log.")

    @property
    def _cookie(self) -> str:
        """The value of the cookie, from which the token cannot be computed."""
        return hmac.digest(self.address.token.encode(), b"fedldp monitor cookie 1", "sha256").hex()

    def _admits(self, request: Request) -> bool:
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _equal(shown.strip(), self.address.token):
            return True
        cookies = request.headers.get("cookie", "").split(";")
        pairs = (each.strip().partition("=") for each in cookies)
        return any(name == COOKIE and _equal(value, self._cookie) for name, _, value in pairs)

    def _enter(self, request: Request) -> Reply:
        """Exchange the token in an address, which others may see, for a cookie."""
        if not _equal(request.query["token"], self.address.token):
            return Reply.text(HTTPStatus.UNAUTHORIZED, "This is not the token of this monitor.")
        path = request.path if request.path in self.routes else "/"
        cookie = f"{COOKIE}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"
        headers = (f"Location: {path}", f"Set-Cookie: {cookie}")
        return Reply.text(HTTPStatus.SEE_OTHER, f"Go to {path}", *headers)


def _equal(first: str, second: str) -> bool:
    """Compare two secrets in a time that does not depend on them."""
    return hmac.compare_digest(first.encode(), second.encode())


async def serve(site: Site, listening: socket.socket, stopped: asyncio.Event) -> None:
    """Answer requests on a socket until an event is set."""
    loop, open_ = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    waiting: dict[asyncio.Task[None], None] = {}  # for a request, the oldest first
    workers = ThreadPoolExecutor(2, thread_name_prefix="monitor")

    async def handle(
        task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(PATIENCE):
                try:
                    request = Request.parse(await reader.readuntil(b"\r\n\r\n"))
                except asyncio.LimitOverrunError:
                    status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                    request = Reply.text(status, f"Requests have at most {LARGEST} bytes.")
            waiting.pop(task, None)
            if isinstance(request, Request):
                reply = await loop.run_in_executor(workers, site.answer, request)
            else:
                reply = request
            async with asyncio.timeout(PATIENCE):
                writer.write(reply.to_bytes())
                await writer.drain()

    async def admit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(open_) >= CONNECTIONS and waiting:
            oldest = next(iter(waiting))
            waiting.pop(oldest)
            open_.discard(oldest)
            oldest.cancel()
        try:
            if len(open_) < CONNECTIONS and (task := asyncio.current_task()) is not None:
                open_.add(task)
                waiting[task] = None
                try:
                    await handle(task, reader, writer)
                finally:
                    open_.discard(task)
                    waiting.pop(task, None)
        finally:
            writer.close()

    server = await asyncio.start_server(admit, sock=listening, limit=LARGEST)
    try:
        await stopped.wait()
    finally:
        server.close()
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)
        workers.shutdown(wait=False)


@contextmanager
def serving(site: Site, listening: socket.socket) -> Iterator[None]:
    """Answer requests in a thread of this process, inside a `with` statement."""
    begun, ends = threading.Event(), []

    async def run() -> None:
        stopped = asyncio.Event()
        ends.append((asyncio.get_running_loop(), stopped))
        begun.set()
        await serve(site, listening, stopped)

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        ((loop, stopped),) = ends
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
