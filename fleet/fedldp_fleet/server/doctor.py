"""What is wrong with a server's folder and with what it needs: each problem is a sentence.

Nothing is changed, whether the server runs or not.
"""

import datetime
import secrets
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing

from fedldp.errors import FedLDPError
from fedldp.storage.database import snapshot
from fedldp_fleet.mqtt import LARGEST_PACKET, Broker
from fedldp_fleet.server import certificates
from fedldp_fleet.server.folder import OPERATOR_KEY, STORE, ServerFolder
from fedldp_fleet.server.listener import bound, tls_context
from fedldp_fleet.server.status import EXPIRES_SOON, NEARLY_FULL, Disk
from fedldp_fleet.store.sqlite import KIND
from fedldp_fleet.topics import Topics

FORMAT = "fedldp server doctor 1"
CLOCK_TOLERANCE_SECONDS = 60.0
CONNECT_SECONDS = 5.0

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def examine(folder: ServerFolder) -> dict[str, list[str]]:
    """Return the problems that each check has found."""
    problems: dict[str, list[str]] = {}
    for name, check in CHECKS.items():
        problems[name] = []
        try:
            problems[name] += check(folder)
        except (FedLDPError, OSError, ValueError) as error:
            problems[name].append(str(error))
    return problems


def _folder(folder: ServerFolder) -> Iterator[str]:
    if folder.path.stat().st_mode & _OTHERS:
        yield f"others can look into {folder.path}. Change it: chmod go= {folder.path}"
    for key in (folder.certificate_key, folder.broker_key):
        if key and key.parent != folder.path and key.stat().st_mode & _OTHERS:
            yield f"others can read {key}. Change it: chmod go= {key}"
    if folder.second is not None and not folder.second.is_dir():
        yield f"the folder {folder.second}, for the states of trainings, does not exist."


def _keys(folder: ServerFolder) -> Iterator[str]:
    if folder.key.public != folder.public:
        yield "server.pub is not the public half of server.key: agents would refuse all jobs."
    _ = folder.operator
    if (folder.path / OPERATOR_KEY).exists():
        yield f"{folder.path / OPERATOR_KEY} decides what is asked: move it to a machine offline."


def _certificates(folder: ServerFolder) -> Iterator[str]:
    if folder.certificate is not None:
        key = folder.certificate_key
        tls_context(str(folder.certificate), None if key is None else str(key))
    soon = datetime.datetime.now(datetime.UTC) + EXPIRES_SOON
    for path in (
        *(folder.certificate, folder.client_authority),
        *(folder.broker_authority, folder.broker_certificate),
    ):
        if path is not None and (expires := certificates.expires(path)) < soon:
            yield f"the certificate {path} expires at {expires.isoformat()}."


def _store(folder: ServerFolder) -> Iterator[str]:
    """Open the store, which refuses a database with careless settings; check a file of it."""
    folder.store().close()
    if not folder.database:
        with snapshot(folder.path / STORE, KIND) as file:
            [(verdict,)] = file.execute("PRAGMA integrity_check(1)")
        if verdict != "ok":
            yield f"{folder.path / STORE} is damaged ({verdict}): restore a backup."


def _disk(folder: ServerFolder) -> Iterator[str]:
    for path in filter(None, (folder.path, folder.second)):
        disk = Disk.of(path)
        if disk.free < NEARLY_FULL * disk.size:
            yield f"the disk of {path} is nearly full: {disk.free / disk.size:.0%} is free."
    if folder.second is not None and folder.second.stat().st_dev == folder.path.stat().st_dev:
        yield f"{folder.second} is on the same disk as the store, and would be lost with it."


def _clock(folder: ServerFolder) -> Iterator[str]:
    now = time.time()
    if folder.certificate is not None:
        begins = certificates.begins(folder.certificate)
        if now < begins.timestamp():
            yield f"the clock is wrong: the certificate begins at {begins.isoformat()}."
    with closing(folder.store()) as store, store.reading() as inside:
        latest = max(inside.heard().values(), default=0.0)
    if latest > now + CLOCK_TOLERANCE_SECONDS:
        yield f"the clock is {latest - now:.0f} seconds behind the last call of an agent."


def _addresses(folder: ServerFolder) -> Iterator[str]:
    if folder.page[0] not in _LOOPBACK and not folder.proxy:
        yield f"the page {folder.page[0]}:{folder.page[1]} has no password: everybody can read it."
    with closing(folder.store()) as store:
        running = store.is_served()
    for name, (host, port) in (("agents", folder.listen), ("the page", folder.page)):
        try:
            if running:
                reached = "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104 (all addresses)
                socket.create_connection((reached, port), CONNECT_SECONDS).close()
            else:
                bound(host, port).close()
        except OSError as error:
            yield f"{host}:{port}, for {name}, cannot be used: {error}."


def _broker(folder: ServerFolder) -> Iterator[str]:
    if not folder.broker:
        return
    keys = folder.broker_authority, folder.broker_certificate, folder.broker_key
    broker = Broker.of(folder.broker, *keys)
    with closing(broker.connect(f"server-{secrets.token_hex(8)}")) as connection:
        connection.subscribe(Topics.of(folder.broker).open, certain=True)
        if connection.most_bytes < LARGEST_PACKET:
            yield f"the broker takes at most {connection.most_bytes:,} bytes: large models fail."


CHECKS: dict[str, Callable[[ServerFolder], Iterator[str]]] = {
    "folder": _folder,
    "keys": _keys,
    "certificates": _certificates,
    "store": _store,
    "disk": _disk,
    "clock": _clock,
    "addresses": _addresses,
    "broker": _broker,
}
