"""The state folder of a process: the files it writes at run time, and a lock.

The lock file names the process that holds it, with the time when that process was started. So a
later process with the same number is not mistaken for it. For Linux.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from fedldp._internal import documents
from fedldp.errors import DomainError
from fedldp.storage import files, locks

STATE = "state"  # the name of the folder, inside the folder of each part of a fleet
LOCK = "supervisor.lock"

_LARGEST = 1 << 24  # bytes of a small file that is read


T = TypeVar("T")


def save(path: Path, format_: str, **entries: Any) -> None:
    """Write a small file in a state folder, for `noted` to read."""
    files.write(path, json.dumps({"format": format_, **entries}))


def note(path: Path, format_: str, **entries: Any) -> None:
    """Write a small file that only informs people.

    If the disk is full, it is not written: that must not end a part of a fleet.
    """
    with contextlib.suppress(OSError):
        save(path, format_, **entries)


def noted(
    path: Path,
    format_: str,
    understand: Callable[[dict[str, Any]], T],
    otherwise: T,
    advice: str = "It only informs people: delete it.",
) -> T:
    """Return what a function reads from such a file, or a default if the file is missing.

    A damaged one raises `WireError`, with some advice.
    """
    try:
        text = files.read_end(path, _LARGEST).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return otherwise
    with documents.reading(repr(format_), f" (in {path}). {advice}"):
        document = json.loads(text)
        documents.parse(text, [format_], [name for name in document if name != "format"])
        return understand(document)


@contextlib.contextmanager
def hold(state: Path) -> Iterator[None]:
    """Be the only process that works in a state folder, which is created if necessary."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    with open(os.open(state / LOCK, flags, 0o644), "r+") as lock:  # noqa: PTH123 (it is open)
        if not locks.take(lock):
            raise DomainError(
                f"{state.parent} is running already, as process {holder(state)}. "
                f"Stop it first: fedldp fleet stop {state.parent}"
            )
        if os.fstat(lock.fileno()).st_uid != os.geteuid():  # left behind by another user
            os.fchown(lock.fileno(), os.geteuid(), -1)
        lock.truncate(0)
        lock.write(f"{os.getpid()} {started(os.getpid())}")
        lock.flush()
        yield


def running(state: Path) -> bool:
    """Return whether a process works in a state folder, in whatever namespace it is."""
    try:
        with open_lock(state / LOCK) as lock:
            return locks.is_taken(lock)
    except FileNotFoundError:
        return False


def holder(state: Path) -> int | None:
    """Return the number of the process that works in a state folder, if there is one."""
    try:
        with open_lock(state / LOCK) as lock:
            return holder_of(lock)
    except FileNotFoundError:
        return None


def open_lock(path: str | Path, folder: int | None = None) -> IO[str]:
    """Open a lock file, but never through a link, which may lead to another user's file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    return open(descriptor, encoding="utf-8", errors="replace")  # noqa: PTH123 (it is open)


def holder_of(lock: IO[str]) -> int | None:
    """Return the number of the process that has locked a file, if the file names it.

    It must be a process of the user who owns the file: otherwise, somebody could name a process
    that they must not end.
    """
    if locks.is_taken(lock):
        lock.seek(0)
        pid, _, birth = lock.read(64).partition(" ")
        if pid.isdecimal() and str(started(int(pid))) == birth:
            return int(pid) if users(int(pid)) == {os.fstat(lock.fileno()).st_uid} else None
    return None


def users(pid: int) -> set[int]:
    """Return the real, effective, saved and file system user of a process: usually the same."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return set()
    return {int(uid) for line in lines if line.startswith("Uid:") for uid in line.split()[1:]}


def started(pid: int) -> int | None:
    """Return when a process was started, in ticks since boot; None if it is not running."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if after_name[0] in "ZX" else int(after_name[19])
