"""The uplink of a gateway: the only way from its private network to the outside.

A SuperNode runs any app that its server ships, without checks. So it runs in a private network, and
reaches the server only through this process, which runs outside. The uplink terminates the TLS
connection of the SuperNode, makes its own TLS connection to the server, and passes on the ten calls
that a gateway needs. While the server cannot be reached, it accepts calls and lets the SuperNode
wait: a SuperNode whose TLS handshake is interrupted would never call again.

The uplink checks two of the answers. A run must name the app whose SHA-256 is in the configuration
of the gateway, and the app that arrives must have this hash. Otherwise the SuperNode gets neither,
and skips the message. The uplink also records when the SuperNode last asked for work, in a file
that the supervisor watches.

Connections to vaults on TCP go through the uplink too, unchanged.
"""

import asyncio
import hashlib
import logging
import re
import socket
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any, final
from urllib.request import getproxies, proxy_bypass

import httpx
from flwr.proto.fab_pb2 import Fab, GetFabResponse
from flwr.proto.run_pb2 import GetRunResponse
from google.protobuf.message import DecodeError

from fedldp import __version__
from fedldp.errors import DomainError
from fedldp.fleet import isolation, logs
from fedldp.fleet.gateway.process import GatewayConfig
from fedldp.fleet.gateway.record import CONNECTED, Connection
from fedldp.fleet.gateway.way import Way
from fedldp.fleet.server.admission import VERSION
from fedldp.fleet.server.endpoint import LARGEST, PASSED, Endpoint, serve

TIMEOUT = 28.0  # seconds for the server to answer: longer than its endpoint takes, less than 30

_ASKS = frozenset(("/v1/fleet/activate-node", "/v1/fleet/pull-messages"))  # calls that ask for work
_APP_ID, _VERSION = re.compile("[A-Za-z0-9_-]+/[A-Za-z0-9_-]+"), re.compile("[A-Za-z0-9_.+-]+")
_SERVER_APP = "flwr-serverapp"  # the kind of a run that has ClientApps
_REASONS = 100  # at most, each logged once: a server must not fill the disk

_REFUSALS = {  # what some statuses mean; others come from a server that can be reached
    401: "it does not admit this gateway. Its folder `gateways` must contain key.pub of this "
    "gateway, and the clocks must agree.",
    503: "its endpoint can be reached, but Flower behind it does not answer, or has not registered "
    "this gateway yet.",
}

_log = logging.getLogger("fedldp.fleet")


@final
class Checked(httpx.AsyncBaseTransport):
    """Passes calls on to the server, and rejects answers about any other than the known app."""

    def __init__(
        self,
        inner: httpx.AsyncBaseTransport,
        bundle: str,
        asked: Callable[[], None],
        connected: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._inner, self._bundle, self._asked, self._connected = inner, bundle, asked, connected
        self._noted: set[str] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a call on."""
        path = request.url.path
        if path in _ASKS:
            self._asked()
        try:
            answer = await self._inner.handle_async_request(request)
        except httpx.HTTPError as error:
            self._connected(f"it cannot be reached ({_reason(error)}).")
            raise
        self._connected(_REFUSALS.get(answer.status_code, ""))
        content = bytearray()
        try:
            async for piece in answer.aiter_bytes():
                content += piece
                if len(content) > LARGEST:
                    raise httpx.RemoteProtocolError("the answer is too long", request=request)
        finally:
            await answer.aclose()
        status, passed = answer.status_code, bytes(content)
        if status == 200 and path in CHECKS:
            try:
                passed = CHECKS[path](passed, self._bundle)
            except DomainError as error:
                self._note(str(error))
                status, passed = 403, b""  # which Flower takes for a run that is over
        headers = [(k, v) for k, v in answer.headers.raw if k.lower() in PASSED]
        return httpx.Response(status, headers=headers, content=passed, request=request)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _note(self, reason: str) -> None:
        if reason not in self._noted and len(self._noted) < _REASONS:
            self._noted.add(reason)
            _log.warning("%s", reason)


def checked_run(content: bytes, bundle: str) -> bytes:
    """Return the answer about a run if it runs the app with this SHA-256; else raise an error."""
    answer = _parsed(GetRunResponse, content)
    run = answer.run
    if run.fab_hash != bundle:
        raise DomainError(_other_app(run.fab_hash, bundle))
    # Flower makes a path from these two: it must not leave the folder of the app.
    if not (_APP_ID.fullmatch(run.fab_id) and _VERSION.fullmatch(run.fab_version)):
        raise DomainError("refused a run: its app has a malformed name or version.")
    if run.primary_task_type != _SERVER_APP:
        raise DomainError("refused a run: it must be of a ServerApp with its ClientApps.")
    return bytes(answer.SerializeToString())


def checked_app(content: bytes, bundle: str) -> bytes:
    """Return the answer with an app, written again, if the app has this SHA-256."""
    app = _parsed(GetFabResponse, content).fab.content
    found = hashlib.sha256(app).hexdigest()
    if found != bundle:
        raise DomainError(_other_app(found, bundle))
    return bytes(GetFabResponse(fab=Fab(hash_str=found, content=app)).SerializeToString())


CHECKS = {"/v1/fleet/get-run": checked_run, "/v1/fleet/get-fab": checked_app}


def _parsed(kind: Any, content: bytes) -> Any:
    try:
        return kind.FromString(content)
    except DecodeError:
        raise DomainError("refused a malformed answer of the server.") from None


def _other_app(found: str, bundle: str) -> str:
    return (
        f"refused an app with the SHA-256 {found!r:.80}. This gateway runs only the app with "
        f"{bundle}: see the entry `bundle` in gateway.toml."
    )


def proxy(server: str) -> str | None:
    """Return the proxy that the environment names for a server: HTTPS_PROXY, unless NO_PROXY."""
    host = server.rpartition(":")[0].strip("[]")
    return None if proxy_bypass(host) else getproxies().get("https")


async def run(folder: Path, sockets: list[socket.socket]) -> None:
    """Serve sockets until a signal: the first leads to the server, the others to vaults on TCP."""
    gateway = GatewayConfig.load(folder)
    gateway.certify()
    vaults = gateway.distant
    if len(sockets) != 1 + len(vaults):
        raise DomainError(
            f"{folder} needs {1 + len(vaults)} listening sockets, for the server and {len(vaults)} "
            f"vaults on TCP; got {len(sockets)}. With systemd, add a ListenStream= for each; in a "
            "container, vaults must be on Unix sockets."
        )
    ways = [
        await asyncio.start_server(Way(vault), sock=listening)
        for vault, listening in zip(vaults, sockets[1:], strict=True)
    ]
    trusted = ssl.create_default_context(cafile=gateway.authority)
    limits = httpx.Limits(max_connections=None)
    transport = httpx.AsyncHTTPTransport(verify=trusted, limits=limits, proxy=proxy(gateway.server))
    async with httpx.AsyncClient(
        base_url=f"https://{gateway.server}",
        transport=Checked(transport, gateway.bundle, gateway.pulse.touch, Line(gateway.state)),
        timeout=TIMEOUT,
        headers={VERSION.decode(): __version__},
        trust_env=False,  # with a proxy from the environment, httpx would bypass the checks
    ) as client:
        # Every process in the private network may call: the server checks the signature.
        endpoint = Endpoint(client, lambda _: True)
        await serve(endpoint, gateway.certificate, gateway.certificate_key, sockets[0])
    for way in ways:
        way.close()


def _reason(error: httpx.HTTPError) -> str:
    """Return why a call failed, in the same words whichever client has made it.

    >>> _reason(httpx.ConnectError("All connection attempts failed"))
    'nothing answers there'
    """
    said = str(error)
    if isinstance(error, httpx.ConnectError) and said in ("", "All connection attempts failed"):
        return "nothing answers there"
    return said or type(error).__name__


@final
class Line:
    """Records whether the server can be reached, whenever that changes: the gateway logs it."""

    def __init__(self, state: Path) -> None:
        self._state, self._why = state, "nothing was asked yet."

    def __call__(self, why: str) -> None:
        """Record that the server can be reached, or why it cannot."""
        if why != self._why:
            self._why = why
            state = "not connected" if why else CONNECTED
            Connection(state, time(), why).save(self._state)


if __name__ == "__main__":
    with logs.to_stderr():
        asyncio.run(run(Path(sys.argv[1]), isolation.inherited()))
