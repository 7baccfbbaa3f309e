"""Backups of a server, and what is restored from them.

A backup is a folder like the server's own: configuration, keys, certificate and store, as they are
at one moment. Its store is a file, wherever that of the server is. Agents notice that a server was
restored, and send again all that they have. Ledgers are never part of it: they are the agents', and
never restored.
"""

import secrets
import shutil
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from fedldp.errors import DomainError
from fedldp.storage import files
from fedldp_fleet import engine
from fedldp_fleet.server import audit
from fedldp_fleet.server import folder as folders
from fedldp_fleet.server.desk import STATE_ENDING
from fedldp_fleet.server.folder import CONFIG, STORE, ServerFolder
from fedldp_fleet.store.base import Transaction
from fedldp_fleet.store.sqlite import SQLiteStore, reading

_LEFT_OUT = (f"{STORE}*", f".{STORE}*", "*.lock")  # the store is copied as it is at one moment
_RESTORED = "a backup"  # where a store comes from that is restored, before it has settled


class Restored(NamedTuple):
    """What a restored server knows."""

    folder: ServerFolder
    open_jobs: tuple[str, ...]  # whose answers agents send again
    resumed: tuple[str, ...]  # trainings that go on from the second place


def back_up(folder: ServerFolder, target: Path) -> None:
    """Copy a server into a new folder, while it runs or not."""
    if target.exists():
        raise DomainError(f"expected a new folder for the backup; {target} exists.")
    target.resolve().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = files.new_folder(target.resolve().parent, ".backup-")
    try:
        shutil.copytree(
            folder.path, fresh, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*_LEFT_OUT)
        )
        with (
            closing(folder.store()) as store,
            store.reading() as live,
            closing(SQLiteStore(fresh / STORE)) as copy,
            copy.transaction() as inside,
        ):
            _copy(live, inside)
        fresh.rename(target)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def restore(
    backup: Path, target: Path, second: Path | None = None, database: str | None = None
) -> Restored:
    """Make the folder of a server from a backup and, if they are at hand, the last states.

    The server has another incarnation then. The old one must never run again: two servers with one
    key may ask differently, which agents can prove.
    """
    ServerFolder.load(backup)  # raises if it is none
    if not (backup / STORE).exists():
        raise DomainError(f"{backup} is not a backup: it has no {STORE}.")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DomainError(f"expected a new or empty folder; {target} exists. Choose another name.")
    entries = folders.entries_of(backup)
    if database is not None:
        entries["database"] = database
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copytree(
        backup, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(CONFIG, *_LEFT_OUT)
    )

    def fill(inside: Transaction) -> tuple[list[str], tuple[str, ...]]:
        with reading(backup / STORE) as old:
            _copy(old, inside)
        inside.set_value(engine.ORIGIN, _RESTORED)
        engine.settle(inside, secrets.token_bytes(engine.INCARNATION_BYTES))
        audit.record(inside, audit.person(), audit.RESTORED, target.name, f"from {backup.name}")
        texts = [] if second is None else sorted(second.glob(f"*{STATE_ENDING}"))
        resumed = [
            path.name.removesuffix(STATE_ENDING)
            for path in texts
            if engine.resume(inside, path.read_text("utf-8"), time.time())
        ]
        return resumed, tuple(row.name for row in inside.active_jobs())

    folder, (resumed, names) = folders.write(target.resolve(), entries, fill)
    return Restored(folder, names, tuple(resumed))


def _copy(old: Transaction, new: Transaction) -> None:
    """Copy all that a store holds into another, whichever kinds they are."""
    for table, rows in old.tables():
        new.add_rows(table, rows)
