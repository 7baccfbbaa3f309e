"""The process of a server: the road for agents and, on an address of its own, the page."""

import asyncio
import logging
import secrets
import signal
from contextlib import closing
from dataclasses import replace

from starlette.applications import Starlette

from fedldp_fleet.mqtt import Broker
from fedldp_fleet.server.api import api_routes
from fedldp_fleet.server.app import AgentConnection, HTTPSServer
from fedldp_fleet.server.desk import Desk
from fedldp_fleet.server.documents import Documents
from fedldp_fleet.server.folder import ServerFolder
from fedldp_fleet.server.guard import Guard
from fedldp_fleet.server.listener import Limits, Listener, bound, serve, tls_context
from fedldp_fleet.server.mqtt import MQTTServer
from fedldp_fleet.server.observer import Observer
from fedldp_fleet.server.page import page_routes
from fedldp_fleet.store.base import Store
from fedldp_fleet.topics import Topics

_LOG = logging.getLogger(__name__)
MOST_WAITING_BYTES = (
    1 << 28
)  # of messages of the broker: the answers of many agents, each of megabytes
PAGE_LIMITS = Limits(connections=64, connections_per_address=64)

_SPARE_FILES = 192  # beside the connections of agents: the page's, and the store's


def run(folder: ServerFolder) -> None:
    """Run a server until a signal ends it."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # strangers' noise
    with closing(folder.store()) as store, store.serving():
        asyncio.run(_run(folder, store))


async def _run(folder: ServerFolder, store: Store) -> None:
    guard = Guard()
    desk = Desk(store, folder.engine(), guard, second=folder.second)
    limits = Limits(connections=_connections())
    if folder.proxy:
        limits = replace(limits, connections_per_address=0)
    context = None
    if folder.certificate is not None:
        key = None if folder.certificate_key is None else str(folder.certificate_key)
        clients = None if folder.client_authority is None else str(folder.client_authority)
        context = tls_context(str(folder.certificate), key, clients)
    road = bound(*folder.listen)
    documents = Documents(store)
    app = HTTPSServer(desk, guard, documents)
    listener = Listener(app, road, limits, context, AgentConnection)
    observer = Observer(folder, store)
    page = bound(*folder.page)
    routes = page_routes(observer.look, folder.page[0]) + api_routes(folder, store, observer.look)
    watched = Listener(Starlette(routes=routes), page, PAGE_LIMITS)
    loop = asyncio.get_running_loop()

    def end() -> None:
        listener.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    host, port = road.getsockname()[:2]
    _LOG.info("agents call %s:%d%s", host, port, "" if context else ", without TLS")
    _LOG.info("the page is http://%s:%d/", *page.getsockname()[:2])
    with_broker = _with_broker(folder, desk, documents)
    if with_broker is not None:
        with_broker.start()
        _LOG.info("agents ask the broker %s", folder.broker)
    try:
        await desk.open()
        await serve(watched, listener)  # whoever reaches the road finds the page, too
    finally:
        await desk.close()
        if with_broker is not None:
            await with_broker.stop()


def _with_broker(folder: ServerFolder, desk: Desk, documents: Documents) -> MQTTServer | None:
    """Return the road over MQTT, if there is a broker."""
    if not folder.broker:
        return None
    keys = folder.broker_authority, folder.broker_certificate, folder.broker_key
    broker = Broker.of(folder.broker, *keys)
    broker.most_waiting = MOST_WAITING_BYTES
    client = f"server-{secrets.token_hex(8)}"
    limits = folder.vehicles_per_certificate, folder.broker_most_bytes
    return MQTTServer(desk, documents, Topics.of(folder.broker), broker.connect, client, *limits)


def _connections() -> int:
    """Return how many connections the process can have, if it opens as many files as it may."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = Limits.connections + _SPARE_FILES
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(Limits.connections, max(1, soft - _SPARE_FILES))
