"""The endpoint of the server: it terminates TLS and admits only the calls that a gateway needs.

Flower serves gateways, operators and its own processes on one port, and operators need no password.
So that port is only reachable on the machine itself. The network reaches this proxy, which passes
on ten calls. A gateway proves its identity with signed headers; the endpoint verifies them before
it reads the body of a call, and Flower verifies them again.

The endpoint keeps running while the server behind it restarts, and lets gateways wait: a gateway
whose TLS handshake is interrupted would never call again. A gateway that introduces itself before
the server has registered its key waits too: Flower would refuse it, and its SuperNode would end.
"""

import asyncio
import logging
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, final

import httpx
import uvicorn

from fedldp.fleet import isolation, keys, logs
from fedldp.fleet.server.admission import HEARD, Gateways, Headers, Heard, save
from fedldp.storage.files import WatchedFiles

if TYPE_CHECKING:  # an uplink uses this module too, and need not know all about jobs
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
)  # headers, in both directions
MOST_BYTES = 1 << 28  # of all calls at a time
LARGEST = 1 << 25  # bytes of a call: twice the largest answer
PATIENCE = 20.0  # seconds that a call waits for the server to come back
TIMEOUT = 25.0  # seconds for the server to answer; a gateway waits for 30
RECORD = 2.0  # seconds between two writings of when gateways called
MOST_CALLS = 400  # at a time: each needs two open files

_FIRST = "/v1/fleet/activate-node"  # the first call of a SuperNode
_PAUSE = 0.25
_LOOK = 1.0  # seconds between two looks at the certificate

_log = logging.getLogger("fedldp.fleet")

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


@final
@dataclass
class Endpoint:
    """An ASGI application that passes calls on through an HTTP client of the server."""

    client: httpx.AsyncClient
    admits: Callable[[Headers], bool]  # whether a known gateway signed these headers
    used: Callable[[Headers], None] = lambda _: None  # told of headers that the server accepted
    early: Callable[[Headers], bool] = lambda _: False  # whether the key is still to be registered
    largest: int = LARGEST
    patience: float = PATIENCE
    most: int = MOST_BYTES
    held: int = 0  # bytes of all calls that have not been answered

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Answer a call."""
        if scope["type"] != "http":
            return
        # The path as it was sent: one that matches a call only after decoding is refused.
        path = scope["raw_path"]
        if scope["method"] != "POST" or path not in CALLS or scope["query_string"]:
            await _answer(send, 404)
            return
        # Flower verifies them too, but only after the body: strangers must not fill the memory.
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
        if path == _FIRST and not await self._registered(headers):
            await _answer(send, 503)
            return
        try:
            response = await self._ask(path, _passed(headers), bytes(body))
        except httpx.HTTPError:
            # The server may have received it: the gateway decides whether to call again.
            await _answer(send, 503)
            return
        if response.status_code == 200:
            self.used(headers)
        await _answer(send, response.status_code, _passed(response.headers.raw), response.content)

    async def _read(self, receive: _Receive, body: bytearray) -> bool:
        """Read the body of a call; return False if it is too large or the caller disconnects."""
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

    async def _registered(self, headers: Headers) -> bool:
        """Wait until the key of a new gateway is registered; return False if that takes long."""
        deadline = monotonic() + self.patience
        while self.early(headers):
            if monotonic() >= deadline:
                return False
            await asyncio.sleep(_PAUSE)
        return True

    async def _ask(self, path: str, headers: Headers, body: bytes) -> httpx.Response:
        """Call the server, and wait for it if it is not running."""
        deadline = monotonic() + self.patience
        while True:
            try:
                return await self.client.post(path, headers=headers, content=body)
            except httpx.ConnectError:  # the server has received nothing
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
        http="h11",  # it limits the size of headers
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CALLS,
        timeout_graceful_shutdown=1,
    )
    config.load()
    renewing = asyncio.create_task(_renew(config, certificate, key))
    try:
        await uvicorn.Server(config).serve([listening])
    finally:
        renewing.cancel()


async def _renew(config: uvicorn.Config, certificate: Path, key: Path) -> None:
    """Use a new certificate for new connections as soon as both of its files have been replaced."""
    files, due = WatchedFiles(certificate, key), False
    while config.ssl is not None:
        await asyncio.sleep(_LOOK)
        due |= files.changed()
        if due and keys.fit(certificate, key):
            config.ssl.load_cert_chain(certificate, key)
            due = False
            _log.info("New connections get the new certificate, %s.", certificate)


async def run(server: "ServerConfig", listening: socket.socket) -> None:
    """Serve the endpoint of a server."""
    from fedldp.fleet.server.registrations import Early  # not needed in an uplink

    trusted = ssl.create_default_context(cafile=server.authority)
    async with httpx.AsyncClient(
        base_url=f"https://{server.address}",
        verify=trusted,
        timeout=TIMEOUT,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # gateways share the client
        limits=httpx.Limits(max_connections=None),
        trust_env=False,
    ) as client:
        gateways = Gateways(server.gateways)
        recording = asyncio.create_task(_record(gateways, server.state / HEARD))
        try:
            endpoint = Endpoint(client, gateways, gateways.used, Early(server.state, gateways))
            await serve(endpoint, server.certificate, server.key, listening)
        finally:
            recording.cancel()


async def _record(gateways: Gateways, path: Path) -> None:
    """Write again and again when each gateway last called, for the status of the server."""
    before: dict[str, Heard] = {}
    while True:
        await asyncio.sleep(RECORD)
        if gateways.heard != before:
            before = dict(gateways.heard)
            await asyncio.to_thread(save, path, before)


if __name__ == "__main__":
    from fedldp.fleet.server.process import ServerConfig

    _server = ServerConfig.load(Path(sys.argv[1]))
    _sockets = isolation.inherited() or [_server.listen()]
    with logs.to_stderr():
        asyncio.run(run(_server, _sockets[0]))
