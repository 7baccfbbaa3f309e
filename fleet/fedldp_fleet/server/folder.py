"""The folder of a server: its configuration, its keys, its store."""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from fedldp.errors import DomainError
from fedldp.signing import PrivateKey, PublicKey, PublicKeys
from fedldp.storage import locks
from fedldp_fleet import engine
from fedldp_fleet.engine import Engine
from fedldp_fleet.library import toml
from fedldp_fleet.server import certificates
from fedldp_fleet.store.sqlite import SQLiteStore

CONFIG, STORE, KEY, PUBLIC = "server.toml", "server.db", "server.key", "server.pub"
OPERATOR_KEY, OPERATOR = "operator.key", "operator.pub"
LISTEN, PAGE = "0.0.0.0:8443", "127.0.0.1:8480"
INCARNATION_BYTES = 16

_ENTRIES: dict[str, toml.Types] = {
    "listen": str,
    "page": str,
    "certificate": str,
    "certificate_key": str,
    "client_authority": str,
    "second": str,
    "proxy": bool,
    "broker": str,
    "broker_authority": str,
    "broker_certificate": str,
    "broker_key": str,
}
_FILES = (
    *("certificate", "certificate_key", "client_authority", "second"),
    *("broker_authority", "broker_certificate", "broker_key"),
)
_NOTES = {
    "listen": "where agents call",
    "page": "the live page and /metrics, for people and programs of this machine",
    "certificate": "of this server, in PEM; behind a proxy that ends TLS, leave it out",
    "second": "where the state of trainings is written too, at each step: another disk",
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
    proxy: bool = False  # whether all connections come from a proxy
    broker: str = ""  # its address and the name of the fleet, for the MQTT road
    broker_authority: Path | None = None
    broker_certificate: Path | None = None
    broker_key: Path | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "ServerFolder":
        """Read the configuration, or raise `DomainError`."""
        folder = Path(path).resolve()
        if not (folder / CONFIG).exists():
            raise DomainError(
                f"{path} is not the folder of a server: it has no {CONFIG}. Make one: "
                "fedldp server init FOLDER"
            )
        entries = toml.read(folder / CONFIG, _ENTRIES, ("listen", "page"))
        given: dict[str, Any] = {each: folder / entries[each] for each in _FILES if each in entries}
        given |= {each: entries[each] for each in ("proxy", "broker") if each in entries}
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

    def store(self) -> SQLiteStore:
        """Open the store, which must exist: a lost one is restored, and not made anew."""
        if not (self.path / STORE).exists():
            raise DomainError(
                f"{self.path / STORE} is missing. Restore the last backup: fedldp server restore"
            )
        return SQLiteStore(self.path / STORE)

    def engine(self) -> Engine:
        """Return an engine with the key of the server."""
        return Engine(self.key)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Refuse a second server for the same folder."""
        with locks.lock_file(self.path / STORE).open("w") as lock:
            if not locks.take(lock):
                raise DomainError(f"another process runs the server in {self.path}.")
            yield

    def is_running(self) -> bool:
        """Return whether a process runs this server."""
        try:
            with locks.lock_file(self.path / STORE).open("w") as lock:
                return locks.is_taken(lock)
        except OSError:
            return False


def init(
    path: str | os.PathLike[str],
    hosts: Sequence[str] = (),
    *,
    listen: str = LISTEN,
    page: str = PAGE,
    tls: bool = True,
    operator: PublicKey | None = None,
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
    store = SQLiteStore(folder / STORE)
    with store.transaction() as transaction:
        engine.start(transaction, secrets.token_bytes(INCARNATION_BYTES))
    store.close()
    text = toml.write({"format": toml.FORMAT, **entries}, _NOTES)
    (folder / CONFIG).write_text(text, "utf-8")  # last: it makes the folder one of a server
    return ServerFolder.load(folder)


def address(text: str) -> tuple[str, int]:
    """Return the host and the port of an address.

    >>> address("[::1]:8443"), address("127.0.0.1:0")
    (('::1', 8443), ('127.0.0.1', 0))
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise DomainError(f"expected an address such as 127.0.0.1:8443; got {text!r:.80}.")
    return host.strip("[]"), int(port)
