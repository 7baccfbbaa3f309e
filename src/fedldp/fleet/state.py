"""The state folder of a process: what it writes at run time, and the lock that says who it is.

The lock's file names the process that holds it, with the time when that was started: a number that
is given to another process later is not mistaken for it. For Linux.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fedldp._internal import locks
from fedldp.errors import DomainError

STATE = "state"  # the name of the folder, in that of each part of a fleet
LOCK = "supervisor.lock"


@contextlib.contextmanager
def hold(state: Path) -> Iterator[None]:
    """Be the one process that works in a state folder, which is made if it is not there."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    with open(os.open(state / LOCK, flags, 0o644), "r+") as lock:  # noqa: PTH123 (it is open)
        if not locks.take(lock):
            raise DomainError(
                f"{state.parent} is at work already, as process {holder(state)}. "
                f"End it first: fedldp fleet stop {state.parent}"
            )
        if os.fstat(lock.fileno()).st_uid != os.geteuid():  # left behind by another user
            os.fchown(lock.fileno(), os.geteuid(), -1)
        lock.truncate(0)
        lock.write(f"{os.getpid()} {started(os.getpid())}")
        lock.flush()
        yield


def holder(state: Path) -> int | None:
    """Return the process that works in a state folder, if there is one."""
    try:
        with open_lock(state / LOCK) as lock:
            return holder_of(lock)
    except FileNotFoundError:
        return None


def open_lock(path: str | Path, folder: int | None = None) -> IO[str]:
    """Open a lock's file; never one that a link leads to, which may be another user's."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    return open(descriptor, encoding="utf-8", errors="replace")  # noqa: PTH123 (it is open)


def holder_of(lock: IO[str]) -> int | None:
    """Return the process that has locked a file, if it is the one that the file names.

    That is a process of the user who owns the file: any other could have been named in it by
    somebody who must not end it.
    """
    if locks.is_taken(lock):
        lock.seek(0)
        pid, _, birth = lock.read(64).partition(" ")
        if pid.isdecimal() and str(started(int(pid))) == birth:
            return int(pid) if users(int(pid)) == {os.fstat(lock.fileno()).st_uid} else None
    return None


def users(pid: int) -> set[int]:
    """Return the real, effective, saved and file system user of a process: one, as a rule."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return set()
    return {int(uid) for line in lines if line.startswith("Uid:") for uid in line.split()[1:]}


def started(pid: int) -> int | None:
    """Return when a process was started, in ticks since the system was; None if it is not alive."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if after_name[0] in "ZX" else int(after_name[19])
