"""uvicorn with limits on time, size and connections, so that strangers cannot hold the server.

uvicorn alone keeps for ever a connection that is silent, whose headers or body never end, or that
takes no reply. Here a connection has a deadline in every state but while the server works for it,
and one request at a time.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SWEEP_SECONDS = 0.25
BODY_BYTES_PER_SECOND = 1 << 13  # that are expected of a long body

_ACCEPT_PAUSE_SECONDS = 0.1
_BACKLOG = 2048

_LOG = logging.getLogger(__name__)


@final
@dataclass(frozen=True)
class Limits:
    """What anybody may take of a server before it closes the connection."""

    header_seconds: float = 10.0  # for a TLS handshake, and for the headers of a request
    body_seconds: float = 30.0  # for a body; long ones have longer
    reply_seconds: float = 60.0  # for taking a reply
    idle_seconds: float = 15.0  # between two requests
    flush_seconds: float = 5.0  # for the rest of a reply when a connection is closed
    header_bytes: int = 1 << 14
    connections: int = 4096
    connections_per_address: int = 256  # 0 behind a proxy, which has one address for all


class LimitedConnection(HttpToolsProtocol):
    """A connection of uvicorn that says until when it may stay as it is."""

    limits: Limits
    ended: asyncio.Event
    deadline: float | None = None
    _is_closing = False
    _header_bytes = 0
    _is_in_headers = True  # or before them

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait(self.limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > self.limits.header_bytes:
                self.transport.abort()

    def on_message_begin(self) -> None:
        if not self.is_idle or self.flow.write_paused:  # replies that nobody takes would pile up
            self.transport.abort()
        self._is_in_headers, self._header_bytes = True, 0
        self._wait(self.limits.header_seconds)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self.begin_body()
        super().on_headers_complete()

    def begin_body(self) -> None:
        """Expect a body of the length that the headers say."""
        self._is_in_headers = False
        length = dict(self.headers).get(b"content-length", b"0")[:12]
        rest = int(length) / BODY_BYTES_PER_SECOND if length.isdigit() else 0.0
        self._wait(self.limits.body_seconds + rest)

    def on_message_complete(self) -> None:
        self.deadline = None  # the server works now
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.begin_wait()
        super().on_response_complete()

    def begin_wait(self) -> None:
        """Expect the next request, after the reply is taken."""
        taken = self.transport.get_write_buffer_size() == 0
        self._wait(self.limits.idle_seconds if taken else self.limits.reply_seconds)

    def shutdown(self) -> None:
        """End with the server: at once, or after the reply to what was asked."""
        is_sent = not self.transport.get_write_buffer_size()  # nothing knows it after two closings
        super().shutdown()
        if self.is_idle and is_sent:
            self.transport.abort()  # without waiting for the other side of TLS

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for its reply."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def _wait(self, seconds: float) -> None:
        if not self._is_closing:
            self.deadline = time.monotonic() + seconds

    def end(self, now: float) -> None:
        """Close the connection; if it does not take what was sent, cut it off."""
        if self._is_closing:
            self.transport.abort()
        self._is_closing, self.deadline = True, now + self.limits.flush_seconds
        self.transport.close()


@final
class Listener(uvicorn.Server):
    """Serves an application on a socket, within limits.

    Parameters
    ----------
    app
        The application, of ASGI unless the protocol wants another one.
    listening
        The socket.
    limits
        The limits.
    context
        What TLS needs; None for plain HTTP.
    protocol
        What serves a connection.
    """

    def __init__(
        self,
        app: Any,
        listening: socket.socket,
        limits: Limits | None = None,
        context: ssl.SSLContext | None = None,
        protocol: type[LimitedConnection] = LimitedConnection,
    ) -> None:
        self.limits = limits or Limits()
        self._protocol: type[LimitedConnection] = type(
            "_Protocol", (protocol,), {"limits": self.limits}
        )
        super().__init__(
            uvicorn.Config(
                app,
                http=self._protocol,
                ws="none",
                lifespan="off",
                interface="asgi3",
                proxy_headers=False,
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=round(self.limits.idle_seconds) or 1,
                timeout_graceful_shutdown=10,
            )
        )
        self._listening, self._context = listening, context
        self._addresses: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self.ready = asyncio.Event()

    @property
    def connections(self) -> int:
        """How many connections there are, with those in a handshake."""
        return self._addresses.total()

    async def startup(self, sockets: Sequence[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        self.servers = []
        self._listening.setblocking(False)
        self._listening.listen(_BACKLOG)
        self._run(self._accept())
        self._run(self._sweep())
        self.started = True
        self.ready.set()

    async def shutdown(self, sockets: Sequence[socket.socket] | None = None) -> None:
        """Accept no more connections, reply to what was asked, and end."""
        for task in self._tasks:
            task.cancel()
        self._listening.close()
        await super().shutdown()
        for each in list(self.server_state.connections):
            each.transport.abort()
        await asyncio.sleep(0)

    def _run(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, where = await loop.sock_accept(self._listening)
            except OSError:  # too many open files: some will be closed
                _LOG.warning("a connection could not be accepted", exc_info=True)
                await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            address, most = str(where[0]), self.limits.connections_per_address
            if self.connections >= self.limits.connections or (
                most and self._addresses[address] >= most
            ):
                accepted.close()
                continue
            self._addresses[address] += 1
            self._run(self._connect(accepted, address))

    async def _connect(self, accepted: socket.socket, address: str) -> None:
        """Make the handshake, and wait until the connection has ended."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def protocol() -> asyncio.Protocol:
            made = self._protocol(self.config, self.server_state, {})
            made.ended = ended
            return made

        try:
            timeouts = {
                "ssl_handshake_timeout": self.limits.header_seconds,
                "ssl_shutdown_timeout": self.limits.flush_seconds,
            }
            with contextlib.suppress(OSError):
                await loop.connect_accepted_socket(
                    protocol, accepted, ssl=self._context, **(timeouts if self._context else {})
                )
                await ended.wait()
        finally:
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]

    async def _sweep(self) -> None:
        """End the connections whose deadline is past."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = time.monotonic()
            for each in list(self.server_state.connections):
                deadline = getattr(each, "deadline", None)
                if deadline is not None and deadline <= now:
                    each.end(now)  # type: ignore[union-attr]


def tls_context(
    certificate: str, key: str | None = None, client_authority: str | None = None
) -> ssl.SSLContext:
    """Return what a server of TLS 1.3 needs; with an authority, clients need its certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    if client_authority is not None:
        context.load_verify_locations(client_authority)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def bound(host: str, port: int) -> socket.socket:
    """Return a socket at an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError:
        found.close()
        raise
    return found


async def serve(*listeners: Listener) -> None:
    """Serve on all listeners until one of them should end; then end all."""
    tasks = [asyncio.ensure_future(each._serve()) for each in listeners]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in listeners:
            each.should_exit = True
        await asyncio.gather(*tasks)
