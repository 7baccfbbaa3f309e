"""Backups of a server, and what is restored from them.

A backup is a folder like the server's own: configuration, keys, certificate and store, as they are
at one moment. Agents notice that a server was restored, and send again all that they have. Ledgers
are never part of it: they are the agents', and never restored.
"""

import contextlib
import secrets
import shutil
import sqlite3
import time
from pathlib import Path
from typing import NamedTuple

from fedldp.errors import DomainError
from fedldp.storage import files
from fedldp_fleet import engine
from fedldp_fleet.server.desk import STATE_ENDING
from fedldp_fleet.server.folder import CONFIG, INCARNATION_BYTES, STORE, ServerFolder
from fedldp_fleet.store.base import QUEUED, RUNNING
from fedldp_fleet.store.sqlite import SQLiteStore

_LEFT_OUT = (f"{STORE}*", f".{STORE}*", "*.lock")  # the store is copied as it is at one moment


class Restored(NamedTuple):
    """What a restored server knows."""

    folder: ServerFolder
    open_jobs: tuple[str, ...]  # whose answers agents send again
    resumed: tuple[str, ...]  # trainings that go on from the second place


def back_up(folder: ServerFolder, target: Path) -> None:
    """Copy a server into a new folder, while it runs or not."""
    if target.exists():
        raise DomainError(f"expected a new folder for the backup; {target} exists.")
    fresh = files.new_folder(target.resolve().parent, ".backup-")
    try:
        shutil.copytree(
            folder.path, fresh, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*_LEFT_OUT)
        )
        (fresh / STORE).touch(mode=0o600)
        uri = f"{(folder.path / STORE).as_uri()}?mode=ro"
        with (
            contextlib.closing(sqlite3.connect(uri, uri=True)) as live,
            contextlib.closing(sqlite3.connect(fresh / STORE)) as copy,
        ):
            live.backup(copy)
        fresh.rename(target)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def restore(backup: Path, target: Path, second: Path | None = None) -> Restored:
    """Make the folder of a server from a backup and, if they are at hand, the last states.

    The server has another incarnation then. The old one must never run again: two servers with one
    key may ask differently, which agents can prove.
    """
    ServerFolder.load(backup)  # raises if it is none
    if not (backup / STORE).exists():
        raise DomainError(f"{backup} is not a backup: it has no {STORE}.")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DomainError(f"expected a new or empty folder; {target} exists. Choose another name.")
    configuration = (backup / CONFIG).read_text("utf-8")
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copytree(
        backup, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(CONFIG, "*.lock")
    )
    with contextlib.closing(SQLiteStore(target / STORE)) as store, store.transaction() as inside:
        engine.start(inside, secrets.token_bytes(INCARNATION_BYTES))
        texts = [] if second is None else sorted(second.glob(f"*{STATE_ENDING}"))
        resumed = [
            path.name.removesuffix(STATE_ENDING)
            for path in texts
            if engine.resume(inside, path.read_text("utf-8"), time.time())
        ]
        names = tuple(row.name for row in inside.jobs() if row.state in (QUEUED, RUNNING))
    (target / CONFIG).write_text(configuration, "utf-8")  # last: it makes it a server's folder
    return Restored(ServerFolder.load(target), names, tuple(resumed))
