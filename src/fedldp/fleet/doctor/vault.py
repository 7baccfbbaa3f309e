"""Checks for a vault. The data are read as at its start; the ledger is only looked at."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from fedldp.budget import ledger
from fedldp.fleet.doctor import machine
from fedldp.fleet.doctor.examination import Check, Finding, ok, problem, warning
from fedldp.fleet.state import STATE, holder
from fedldp.fleet.vault import identity
from fedldp.fleet.vault.process import VaultConfig


def load(folder: Path) -> VaultConfig:
    """Read the configuration of a vault."""
    return VaultConfig.load(folder)


def _data(vault: VaultConfig) -> Iterator[Finding]:
    """Check what would be clipped or replaced in the data, and whose budgets may move."""
    (_, _, names), quality = vault.read()
    data, vehicles = vault.entries["data"], len(set(names))
    yield ok(f"{data} has {len(names):,} rows of {vehicles:,} vehicles")
    if not quality.clean and not vault.is_data_set:
        yield warning(
            f"{data}: {quality.changed:,} values would be clipped or replaced.",
            f"See which ones: fedldp fleet vault {vault.folder} --check",
        )
    if vault.is_data_set:
        return
    path = vault.folder / data
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o007 and path.parent.stat().st_mode & 0o001:
        yield warning(f"every account can read {path} (mode {mode:03o}).", f"chmod 600 {path}")
    if "vehicle" not in vault.entries:
        yield warning(
            "vault.toml names no vehicle column: a vehicle is the number of its row.",
            "Never insert, remove or move a row. Before the first answer, name a column: "
            'vehicle = "COLUMN"',
        )
    if vault.ledger_path.exists():  # otherwise the check of the ledger says so
        known = ledger.overview(vault.ledger_path, inspect=False).totals
        if text := identity.unknown_vehicles(known, names):
            yield problem(text, "See `Add vehicles` in docs/operations.md.")


def _ledger(vault: VaultConfig) -> Iterator[Finding]:
    path = vault.ledger_path
    found = ledger.overview(path)
    if found.sealed:
        yield problem(
            f"{path.name} was sealed on {found.sealed}: it refuses every vehicle.",
            "Vehicles of this ledger can never answer again. New ones need a vault of their own.",
        )
    else:
        yield ok(f"{path.name} can be read: {len(found.totals):,} vehicles have answered")
    yield from machine.secret(path)


def _socket(vault: VaultConfig) -> Iterator[Finding]:
    pid, address = holder(vault.folder / STATE), vault.address
    if pid is not None:
        yield ok(f"the vault runs, as process {pid}")
        return
    if not address.path:
        yield warning(
            f"the vault listens on TCP, at {address.host}, port {address.port}: not encrypted.",
            "Use it inside a tunnel, or in a network that you trust.",
        )
        if "token" in vault.entries:
            yield from machine.secret(vault.folder / vault.entries["token"])
        return
    folder = Path(address.path).parent
    if not folder.is_dir():
        yield warning(
            f"{folder} does not exist, where the vault's socket will be.",
            "The systemd unit creates it. Without systemd, change `listen`, or create it: "
            f"install -d -m 2750 -o USER -g GROUP {folder}",
        )
    elif not os.access(folder, os.W_OK):
        yield problem(
            f"this user cannot create the vault's socket in {folder}.",
            "Run the vault as the user to whom this folder belongs, or change `listen`.",
        )
    else:
        yield ok(f"the vault can listen at {address.path}")


def _limits(vault: VaultConfig) -> Iterator[Finding]:
    yield ok(
        f"a vehicle spends at most {float(vault.cap):g} in its life, and answers a job "
        f"{'once' if vault.answers_per_job == 1 else f'{vault.answers_per_job} times'}"
    )
    if (operator := vault.operator()) is None:
        yield warning(
            "vault.toml names no operator: the vault answers whatever a server asks, up to the "
            "cap.",
            "Put operator.pub, the public key of the operator, into this folder and "
            'operator = "operator.pub" into vault.toml; docs/fleet.md says how to make a key.',
        )
    else:
        yield ok("the vault answers only jobs that its operator has signed")
        if (count := len(operator.keys)) > 1:
            yield warning(
                f"{vault.entries['operator']} names {count} keys: jobs that any of them has signed "
                "are answered.",
                "When all jobs are signed with the new key, the operator sends a file without the "
                "old one.",
            )


def _disk(vault: VaultConfig) -> Iterator[Finding]:
    path = vault.ledger_path
    size = 2 * path.stat().st_size if path.exists() else 0  # a new version may copy it
    yield from machine.disk(vault.folder, size)


CHECKS = (
    Check("versions", lambda _: machine.versions("numpy", "cryptography")),
    Check("clock", lambda vault: machine.clock(vault.folder)),
    Check("disk", _disk),
    Check("permissions", lambda vault: machine.folder_is_private(vault.folder)),
    Check("user", lambda vault: machine.owner(vault.folder)),
    Check("limits", _limits),
    Check("data", _data),
    Check("ledger", _ledger),
    Check("socket", _socket),
)
