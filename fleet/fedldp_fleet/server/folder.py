"""The folder of a server: its configuration, its keys, its store."""

import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, final

from fedldp.errors import DomainError
from fedldp.signing import PrivateKey, PublicKey, PublicKeys
from fedldp_fleet import engine
from fedldp_fleet.common import toml
from fedldp_fleet.engine import Engine
from fedldp_fleet.mqtt import LARGEST_PACKET
from fedldp_fleet.server import audit, certificates
from fedldp_fleet.store import open_store
from fedldp_fleet.store.base import Store, Transaction

CONFIG, STORE, KEY, PUBLIC = "server.toml", "server.db", "server.key", "server.pub"
OPERATOR_KEY, OPERATOR = "operator.key", "operator.pub"
LISTEN, PAGE = "0.0.0.0:8443", "127.0.0.1:8480"
SERVER = "server"  # in the store's settings: whose it is
SHORTEST_IDLE_POLL, LONGEST_IDLE_POLL = 1, 3600  # seconds

T = TypeVar("T")

_ENTRIES: dict[str, toml.Types] = {
    "listen": str,
    "page": str,
    "certificate": str,
    "certificate_key": str,
    "client_authority": str,
    "second": str,
    "database": str,
    "proxy": bool,
    "broker": str,
    "broker_authority": str,
    "broker_certificate": str,
    "broker_key": str,
    "broker_most_bytes": int,
    "vehicles_per_certificate": int,
    "idle_poll": (int, float),
}
_FILES = (
    *("certificate", "certificate_key", "client_authority", "second"),
    *("broker_authority", "broker_certificate", "broker_key"),
)
_PLAIN = (
    *("proxy", "database", "broker", "broker_most_bytes"),
    *("vehicles_per_certificate", "idle_poll"),
)
_NOTES = {
    "listen": "where agents call",
    "page": "the live page and /metrics, for people and programs of this machine",
    "certificate": "of this server, in PEM; behind a proxy that terminates TLS, leave it out",
    "second": "where the state of trainings is written too, at each step: another disk",
    "database": "a PostgreSQL in place of server.db, which other servers with these keys share",
}


@final
@dataclass(frozen=True)
class ServerFolder:
    """What `server.toml` says; paths in it are relative to its folder."""

    path: Path
    listen: tuple[str, int]
    page: tuple[str, int]
    certificate: Path | None = None
    certificate_key: Path | None = None
    client_authority: Path | None = None
    second: Path | None = None
    database: str = ""  # the address of a PostgreSQL; empty for a file in the folder
    proxy: bool = False  # whether all connections come from a proxy
    broker: str = ""  # its address and the name of the fleet, for the MQTT road
    broker_authority: Path | None = None
    broker_certificate: Path | None = None
    broker_key: Path | None = None
    broker_most_bytes: int = LARGEST_PACKET  # of a payload, where the broker says more
    vehicles_per_certificate: int = 0  # for names that the broker lets in and nobody has enrolled
    idle_poll: float = engine.IDLE_POLL_SECONDS  # in which each agent hears of a new job

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "ServerFolder":
        """Read the configuration, or raise `DomainError`."""
        folder = Path(path).resolve()
        if not (folder / CONFIG).exists():
            raise DomainError(
                f"{path} is not the folder of a server: it has no {CONFIG}. Make one: "
                "fedldp server init FOLDER"
            )
        return cls._of(folder, entries_of(folder))

    @classmethod
    def _of(cls, folder: Path, entries: Mapping[str, Any]) -> "ServerFolder":
        given: dict[str, Any] = {each: folder / entries[each] for each in _FILES if each in entries}
        given |= {each: entries[each] for each in _PLAIN if each in entries}
        if not SHORTEST_IDLE_POLL <= given.get("idle_poll", 60) <= LONGEST_IDLE_POLL:
            raise DomainError(
                f"idle_poll must be from {SHORTEST_IDLE_POLL} to {LONGEST_IDLE_POLL} seconds, in "
                f"which every waiting agent calls once; got {given['idle_poll']}."
            )
        listen, page = (address(entries[each]) for each in ("listen", "page"))
        return cls(folder, listen, page, **given)

    @property
    def key(self) -> PrivateKey:
        """The key with which the server signs what it asks."""
        return PrivateKey.load(self.path / KEY)

    @property
    def public(self) -> PublicKey:
        """The key that operators write into jobs, and agents trust."""
        return PublicKey.load(self.path / PUBLIC)

    @property
    def operator(self) -> PublicKeys:
        """The keys that must have signed the jobs."""
        return PublicKeys.load(self.path / OPERATOR)

    def store(self) -> Store:
        """Open the store, which must exist: a lost one is restored, and not made anew."""
        store = open_store(self._where)
        with store.reading() as inside:
            owner = inside.value(SERVER)
        if owner != self.public.text:
            store.close()
            raise DomainError(
                f"the store in {_without_password(self._where)} belongs to another server, "
                f"whose public key is {owner or 'missing'}. Use the folder with that key, or "
                "another database."
            )
        return store

    def make_store(self, fill: Callable[[Transaction], T]) -> T:
        """Make the store, which must be new, and do something in its first transaction."""
        with closing(open_store(self._where, create=True)) as store, store.transaction() as inside:
            if inside.value(SERVER):
                raise DomainError(
                    f"there is a server's store in {_without_password(self._where)} already. Use "
                    "another database, or remove its schema: DROP SCHEMA fedldp CASCADE"
                )
            done = fill(inside)
            inside.set_value(SERVER, self.public.text)
            engine.settle(inside, secrets.token_bytes(engine.INCARNATION_BYTES))
            return done

    @property
    def _where(self) -> str:
        return self.database or str(self.path / STORE)

    def engine(self) -> Engine:
        """Return an engine with the key of the server."""
        return Engine(self.key, idle_poll=self.idle_poll)


def init(
    path: str | os.PathLike[str],
    hosts: Sequence[str] = (),
    *,
    listen: str = LISTEN,
    page: str = PAGE,
    tls: bool = True,
    operator: PublicKey | None = None,
    database: str = "",
) -> ServerFolder:
    """Make the folder of a server, which must be new or empty.

    Without an operator's public key, the key of an operator is made, which signs jobs: it should be
    moved to a machine of its own.
    """
    folder = Path(path).resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DomainError(f"expected a new or empty folder; {folder} exists. Choose another name.")
    address(listen), address(page)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = PrivateKey.generate()
    key.save(folder / KEY)
    key.public.save(folder / PUBLIC)
    if operator is None:
        signs = PrivateKey.generate()
        signs.save(folder / OPERATOR_KEY)
        operator = signs.public
    operator.save(folder / OPERATOR)
    entries: dict[str, Any] = {"listen": listen, "page": page}
    if tls:
        certificates.write(folder, hosts)
        entries["certificate"] = certificates.CERTIFICATE
        entries["certificate_key"] = certificates.KEY
    else:
        entries["proxy"] = True
    if database:
        entries["database"] = database
    detail = f"jobs are signed by {operator.fingerprint}"

    def fill(store: Transaction) -> None:
        audit.record(store, audit.person(), audit.CREATED, folder.name, detail)

    return write(folder, entries, fill)[0]


def write(
    folder: Path, entries: Mapping[str, Any], fill: Callable[[Transaction], T]
) -> tuple[ServerFolder, T]:
    """Make the store of a folder that has its keys, and make it the folder of a server."""
    made = ServerFolder._of(folder, entries)
    done = made.make_store(fill)
    text = toml.write({"format": toml.FORMAT, **entries}, _NOTES)
    (folder / CONFIG).write_text(text, "utf-8")  # last: it makes the folder one of a server
    return made, done


def entries_of(folder: Path) -> dict[str, Any]:
    """Return what the configuration of a server says."""
    return toml.read(folder / CONFIG, _ENTRIES, ("listen", "page"))


def _without_password(where: str) -> str:
    return re.sub("://([^:/@]*):[^@]*@", r"://\1@", where)


def address(text: str) -> tuple[str, int]:
    """Return the host and the port of an address.

    >>> address("[::1]:8443"), address("127.0.0.1:0")
    (('::1', 8443), ('127.0.0.1', 0))
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise DomainError(f"expected an address such as 127.0.0.1:8443; got {text!r:.80}.")
    return host.strip("[]"), int(port)
