"""The endpoint of the server: it ends TLS, and lets in what a gateway has to ask, no more.

Flower serves gateways, operators and its own processes at one port, and asks an operator for no
password. So that port is bound to the machine itself, and the network reaches this proxy, which
passes on ten calls. A gateway proves who it is with headers that it signs; the endpoint verifies
them before it reads a body, and Flower verifies them again.

The endpoint stays up while the server behind it is started again, and lets gateways wait: one whose
TLS handshake is cut short would never call again.
"""

import asyncio
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from time import monotonic
from typing import Any, final

import httpx
import uvicorn

from fedldp.fleet import isolation
from fedldp.fleet.server.admission import Gateways, Headers
from fedldp.fleet.server.process import ServerConfig

CALLS = frozenset(
    f"/v1/fleet/{name}".encode()
    for name in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "get-fab",
        "pull-object",
        "push-object",
        "confirm-message-received",
    )
)
PASSED = frozenset(
    (
        b"accept",
        b"content-type",
        b"flwr-component-name",
        b"flwr-package-name",
        b"flwr-package-version",
        b"flwr-public-key",
        b"flwr-signature",
        b"flwr-timestamp",
        b"flwr-version-incompatibility-message",
    )
)  # headers, either way
MOST_BYTES = 1 << 28  # of all calls at a time
LARGEST = 1 << 25  # bytes of a call: twice the largest batch
PATIENCE = 20.0  # seconds that a call waits for the server to be back
TIMEOUT = 25.0  # seconds that the server has to answer; a gateway waits for 30
MOST_CALLS = 400  # at a time: each has a file here and one behind

_PAUSE = 0.25

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


@final
@dataclass
class Endpoint:
    """An ASGI application that passes calls on by a client, which knows the server's address."""

    client: httpx.AsyncClient
    admits: Callable[[Headers], bool]  # whether a known gateway signed these headers
    largest: int = LARGEST
    patience: float = PATIENCE
    most: int = MOST_BYTES
    held: int = 0  # bytes of all calls that have not been answered

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Answer a call."""
        if scope["type"] != "http":
            return
        # The path as it was sent: what becomes one of the calls only when it is decoded is none.
        path = scope["raw_path"]
        if scope["method"] != "POST" or path not in CALLS or scope["query_string"]:
            await _answer(send, 404)
            return
        # Flower verifies them too, but only once it has the body: strangers must not fill memory.
        if not self.admits(scope["headers"]):
            await _answer(send, 401)
            return
        body = bytearray()
        try:
            await self._pass_on(path.decode(), scope["headers"], body, receive, send)
        finally:
            self.held -= len(body)

    async def _pass_on(
        self, path: str, headers: Headers, body: bytearray, receive: _Receive, send: _Send
    ) -> None:
        try:
            async with asyncio.timeout(self.patience):
                whole = await self._read(receive, body)
        except TimeoutError:
            whole = False
        if not whole:  # 503 is what a gateway tries again
            await _answer(send, 413 if len(body) > self.largest else 503)
            return
        try:
            response = await self._ask(path, _passed(headers), bytes(body))
        except httpx.HTTPError:
            # Perhaps it was heard: whether to ask again is for the gateway to decide.
            await _answer(send, 503)
            return
        await _answer(send, response.status_code, _passed(response.headers.raw), response.content)

    async def _read(self, receive: _Receive, body: bytearray) -> bool:
        """Read the body of a call; return False if it is too much, or its sender is gone."""
        while True:
            message = await receive()
            piece = message.get("body", b"")
            body += piece
            self.held += len(piece)
            if len(body) > self.largest or self.held > self.most:
                return False
            if message["type"] == "http.disconnect":
                return False
            if not message.get("more_body"):
                return True

    async def _ask(self, path: str, headers: Headers, body: bytes) -> httpx.Response:
        """Ask the server, as soon as it is there."""
        deadline = monotonic() + self.patience
        while True:
            try:
                return await self.client.post(path, headers=headers, content=body)
            except httpx.ConnectError:  # nothing of it was heard
                if monotonic() >= deadline:
                    raise
                await asyncio.sleep(_PAUSE)


def _passed(headers: Headers) -> Headers:
    return [(name, value) for name, value in headers if name.lower() in PASSED]


async def _answer(
    send: _Send, status: int, headers: Headers | None = None, body: bytes = b""
) -> None:
    length = b"content-length", str(len(body)).encode()
    start = {"type": "http.response.start", "status": status, "headers": [*(headers or []), length]}
    await send(start)
    await send({"type": "http.response.body", "body": body})


async def serve(app: Endpoint, certificate: Path, key: Path, listening: socket.socket) -> None:
    """Serve an application on a socket, with TLS, until a signal ends it."""
    config = uvicorn.Config(
        app,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        http="h11",  # which limits headers
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CALLS,
        timeout_graceful_shutdown=1,
    )
    await uvicorn.Server(config).serve([listening])


async def run(server: ServerConfig, listening: socket.socket) -> None:
    """Serve the endpoint of a server."""
    trusted = ssl.create_default_context(cafile=server.authority)
    async with httpx.AsyncClient(
        base_url=f"https://{server.address}",
        verify=trusted,
        timeout=TIMEOUT,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # gateways share the client
        limits=httpx.Limits(max_connections=None),
        trust_env=False,
    ) as client:
        endpoint = Endpoint(client, Gateways(server.gateways))
        await serve(endpoint, server.certificate, server.key, listening)


if __name__ == "__main__":
    _server = ServerConfig.load(Path(sys.argv[1]))
    _sockets = isolation.inherited() or [_server.listen()]
    asyncio.run(run(_server, _sockets[0]))
