"""The monitor of a folder: which routes it serves, and where."""

import asyncio
import logging
import signal
import socket
from http import HTTPStatus
from importlib import resources
from pathlib import Path

from fedldp.errors import MissingExtra
from fedldp.fleet import isolation
from fedldp.fleet.gateway import process as gateway_process
from fedldp.fleet.monitor.address import DEFAULT, MonitorAddress
from fedldp.fleet.monitor.observe import Observer
from fedldp.fleet.monitor.web import Reply, Request, Route, Site, serve
from fedldp.fleet.server import process as server_process
from fedldp.fleet.vault import process as vault_process

FILES = (server_process.FILE, gateway_process.FILE, vault_process.FILE)
PAGE = {  # the files of the live page, and their types
    "index.html": "text/html; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}

_log = logging.getLogger("fedldp.fleet.monitor")


def address_of(folder: Path) -> MonitorAddress | None:
    """Return where the configuration file in a folder wants a monitor to listen, if it does."""
    paths = (folder / name for name in FILES)
    return next((MonitorAddress.load(path) for path in paths if path.exists()), None)


def site(folder: Path, address: MonitorAddress, observer: Observer | None = None) -> Site:
    """Return what is served: the live page only where there is a server."""
    observer = observer or Observer(folder.resolve())
    look = observer.look

    def health(_: Request) -> Reply:
        if problems := look()["problems"]:
            failing = {"status": "failing", "reasons": problems}
            return Reply.json(failing, HTTPStatus.SERVICE_UNAVAILABLE)
        return Reply.json({"status": "ok"})

    def metrics(request: Request) -> Reply:
        try:
            from fedldp.fleet.monitor.metrics import text
        except MissingExtra as error:
            return Reply.text(HTTPStatus.NOT_IMPLEMENTED, str(error))
        content, kind = text(look, request.headers.get("accept", ""))
        return Reply(HTTPStatus.OK, content, kind)

    routes: dict[str, Route] = {"/healthz": health, "/metrics": metrics}
    if _has_server(folder):
        routes |= {"/": _file("index.html"), "/status.json": lambda _: Reply.json(look())}
        routes |= {f"/{name}": _file(name) for name in PAGE}
    return Site(address, routes)


def _has_server(folder: Path) -> bool:
    return any(folder.glob(server_process.FILE)) or any(folder.glob(f"*/{server_process.FILE}"))


def _file(name: str) -> Route:
    """Return a route to a file of the page."""
    reply = Reply(
        HTTPStatus.OK, (resources.files(__package__) / "page" / name).read_bytes(), PAGE[name]
    )
    return lambda _: reply


def run(folder: Path, listen: str | None = None, token: Path | None = None) -> None:
    """Serve the monitor of a folder until SIGTERM or Ctrl-C.

    It listens on a socket that a supervisor has handed on, at `listen`, where the configuration
    says, or at the default address.
    """
    folder = folder.resolve()
    address = address_of(folder) if listen is None else None
    if address is None:
        address = MonitorAddress.of(listen or DEFAULT, token=token and token.resolve())
    sockets = isolation.inherited()
    listening = sockets[0] if sockets else address.listen()
    _log.info("The monitor of %s is %s", folder.name, address.url)
    try:
        asyncio.run(_serve(site(folder, address), listening))
    finally:
        if address.path and not sockets:
            Path(address.path).unlink(missing_ok=True)


async def _serve(site: Site, listening: socket.socket) -> None:
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await serve(site, listening, stopped)
