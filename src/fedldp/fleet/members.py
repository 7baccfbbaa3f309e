"""Gateways come and go, and keys change, while a fleet runs.

All of this changes files that running parts look at: the server reads its folder of public keys at
every call, and its endpoint, its SuperLink and gateways notice new certificates and keys.

A gateway changes its key in three steps, each of which may take as long as it needs: it makes the
next key; the server gets the public half, and admits both keys; the gateway uses the next key,
whose first call makes the server forget the old one. The private key never leaves the gateway.
"""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from fedldp.budget import ledger
from fedldp.errors import DomainError
from fedldp.fleet import folder as fleet_folder
from fedldp.fleet import keys, texts
from fedldp.fleet.gateway import process as gateway_process
from fedldp.fleet.gateway.process import GatewayConfig
from fedldp.fleet.job import Job
from fedldp.fleet.server import admission, checkpoint
from fedldp.fleet.server import process as server_process
from fedldp.fleet.server.process import ServerConfig
from fedldp.fleet.vault import process as vault_process
from fedldp.fleet.vault.process import VaultConfig
from fedldp.schema.schema import Schema
from fedldp.storage import files

SERVER, GATEWAY, VAULT = "server", "gateway-", "vault-"  # how the folders of parts are called

_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
_OF_DATA_SETS = ("rows", "holdout", "part")  # entries of vault.toml
_TCP = "tcp://"


def server_of(folder: Path) -> ServerConfig:
    """Return the server of a fleet, given the folder of the fleet or that of the server."""
    for found in (folder, folder / SERVER):
        if (found / server_process.FILE).exists():
            return ServerConfig.load(found)
    raise DomainError(
        f"expected the folder of a fleet, which contains `{SERVER}`, or the folder of its server; "
        f"{folder} has no {server_process.FILE}."
    )


@final
@dataclass(frozen=True)
class Rows:
    """A file with the data of a vault: its columns, and the column with vehicle ids if any."""

    path: str  # in the folder of the vault
    schema: Schema
    vehicle: str | None = None


@final
@dataclass(frozen=True)
class Member:
    """A gateway with its vault, in the folder of a fleet."""

    gateway: Path
    vault: Path
    public: Path  # the file with its public key, in the folder of the server


def add_gateway(fleet: Path, name: str, rows: Rows | None = None) -> Member:
    """Write the folders of a gateway and its vault, and give its public key to the server.

    They get the configuration of the first gateway in the folder, and of its vault; with `rows`,
    the vault has other data.
    """
    fleet = fleet.resolve()
    if not _NAME.fullmatch(name):
        raise DomainError(
            f"the name of a gateway must be 1 to 40 letters, digits, _ or -; got {name!r:.80}."
        )
    server, like = server_of(fleet), _first(fleet)
    made = _member(fleet, name, server)
    for path in (made.gateway, made.vault, made.public):
        if path.exists():
            raise DomainError(f"{path} exists already: choose another name.")
    listen = _listens(like, made)
    entries = _with_rows(VaultConfig.load(like.vault), rows) | {"listen": listen}
    try:
        _write_gateway(made, like, server, listen)
        _write_vault(made.vault, like.vault, entries, rows)
        # Last, because from now on a running server admits it.
        shutil.copyfile(made.gateway / "key.pub", made.public)
    except BaseException:
        for path in (made.gateway, made.vault):
            shutil.rmtree(path, ignore_errors=True)
        raise
    return made


def _member(fleet: Path, name: str, server: ServerConfig) -> Member:
    gateway = fleet / f"{GATEWAY}{name}"
    public = admission.current(server.gateways, gateway.name)
    return Member(gateway, fleet / f"{VAULT}{name}", public)


def _first(fleet: Path) -> Member:
    """Return the first gateway in the folder of a fleet that has its vault beside it."""
    for path in sorted(fleet.glob(f"{GATEWAY}*/{gateway_process.FILE}")):
        found = _member(fleet, path.parent.name.removeprefix(GATEWAY), server_of(fleet))
        if (found.vault / vault_process.FILE).exists():
            return found
    raise DomainError(
        f"expected a folder with a gateway and its vault, whose configuration the new ones get; "
        f"{fleet} has none. Use the folder that `fedldp fleet init` wrote."
    )


def _listens(like: Member, made: Member) -> str:
    """Return where the new vault listens: beside its own folder, as the other one does."""
    listen = str(VaultConfig.load(like.vault).entries["listen"])
    if listen.startswith(_TCP):
        raise DomainError(
            f"{like.vault} listens on TCP, and only you know the address of the new vault. Write "
            "the folders with `fedldp fleet init` and change them: see docs/operations.md."
        )
    return listen.replace(like.vault.name, made.vault.name)


def _with_rows(vault: VaultConfig, rows: Rows | None) -> dict[str, Any]:
    """Return the entries of a vault that is like another one, but may have other data."""
    entries = dict(vault.entries)
    if rows is None:
        if "part" in entries:
            raise DomainError(
                f"the vaults divide the data set {entries['data']} among them, so there is nothing "
                "left for another one. Give it a file: --data and --schema."
            )
        return entries
    kept = {name: each for name, each in entries.items() if name not in (*_OF_DATA_SETS, "vehicle")}
    named = {} if rows.vehicle is None else {"vehicle": rows.vehicle}
    return {"data": rows.path, "schema": "schema.toml"} | named | _without(kept, "data", "schema")


def _without(entries: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in entries.items() if name not in names}


def _write_gateway(made: Member, like: Member, server: ServerConfig, listen: str) -> None:
    made.gateway.mkdir(mode=0o700)
    known = GatewayConfig.load(like.gateway)
    seen = listen if Path(listen).is_absolute() else f"../{made.vault.name}/{listen}"
    entries = {
        "server": known.server,
        "authority": fleet_folder.AUTHORITY,
        "key": "key",
        "vaults": [seen],
        "deadline": known.deadline,
        "bundle": known.bundle,
    }
    fleet_folder.write_toml(made.gateway / gateway_process.FILE, entries)
    shutil.copyfile(server.authority, made.gateway / fleet_folder.AUTHORITY)
    (made.gateway / "key.pub").write_bytes(keys.write_node(made.gateway / "key"))
    texts.write_gateway(made.gateway)


def _write_vault(vault: Path, like: Path, entries: dict[str, Any], rows: Rows | None) -> None:
    vault.mkdir(mode=0o700)
    if rows is not None:
        fleet_folder.write_schema(vault / "schema.toml", rows.schema)
    for name in ("schema", "operator"):  # files that all vaults have; data and token are their own
        if name in entries and not (vault / entries[name]).exists():
            shutil.copyfile(like / entries[name], vault / entries[name])
    fleet_folder.write_toml(vault / vault_process.FILE, entries)
    ledger.create(VaultConfig.load(vault).ledger_path)
    texts.write_vault(vault)


def remove_gateway(folder: Path, name: str) -> list[Path]:
    """Remove the public keys of a gateway, which the server then refuses at once; return them."""
    server = server_of(folder)
    known = [each(server.gateways, name) for each in (admission.current, admission.upcoming)]
    found = [path for path in known if path.exists()]
    if name not in admission.gateways(server.gateways):  # which are names, and no paths
        raise DomainError(
            f"{server.gateways} has no key of {name!r:.80}; it has those of "
            f"{', '.join(admission.gateways(server.gateways)) or 'nobody'}."
        )
    for path in found:
        path.unlink()
    files.sync(server.gateways)
    return found


def waits_in_vain(server: ServerConfig) -> str:
    """Return a warning if the job waits for more gateways than the server knows."""
    job, known = Job.load(server.job, signed=False), len(admission.gateways(server.gateways))
    found = checkpoint.status(job.checkpoint)
    if job.gateways <= known or (found is not None and found.gateways):  # it has begun
        return ""
    return (
        f"The first round of {job.name} waits for {job.gateways} gateways, and the server now "
        f"knows {known}: set `gateways` in {server.job} to {known} or less, and restart the server."
    )


# Keys.


def make_next_key(gateway: GatewayConfig) -> Path:
    """Make the key that a gateway will use next; return the file with its public half."""
    secret, public = _next(gateway)
    if secret.exists():
        raise DomainError(
            f"{secret} exists already: use it (--use), or remove it and {public} first."
        )
    files.write(public, keys.write_node(secret).decode())
    return public


def use_next_key(gateway: GatewayConfig) -> None:
    """Have a gateway use its next key; a running gateway notices it within a second."""
    secret, public = _next(gateway)
    if not secret.exists():
        raise DomainError(
            f"{gateway.folder} has no next key: make one with `fedldp fleet rotate-keys "
            f"{gateway.folder}`."
        )
    files.write(gateway.key.with_name(f"{gateway.key.name}.pub"), public.read_text("utf-8"))
    secret.replace(gateway.key)
    public.unlink()
    files.sync(gateway.folder)


def _next(gateway: GatewayConfig) -> tuple[Path, Path]:
    return gateway.next_key, gateway.next_key.with_name(f"{gateway.next_key.name}.pub")


def rotate_gateway(server: ServerConfig, gateway: GatewayConfig) -> None:
    """Change the key of a gateway whose folder is on the same machine as that of the server."""
    name = gateway.folder.name
    if not admission.current(server.gateways, name).exists():
        raise DomainError(f"{server.gateways} has no key of {name}: it was revoked, or renamed.")
    public = make_next_key(gateway)
    files.write(admission.upcoming(server.gateways, name), public.read_text("utf-8"))
    use_next_key(gateway)


def rotate_server(server: ServerConfig, authority_key: Path) -> None:
    """Give the server a new certificate and a new key; a running server uses it in a second."""
    keys.renew_server(server.certificate, server.key, server.authority, authority_key)
