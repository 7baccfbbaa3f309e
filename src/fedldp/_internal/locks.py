"""Locks on files, which the system releases when a process ends, however it ends.

A process that only tests a lock holds it for a moment, so `take` retries for a while.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import IO, Any

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

PAUSE = 0.1  # seconds between two tries
_TRIES = 10


def lock_file(path: Path) -> Path:
    """Return the lock file of a file. The file may be replaced; its lock file stays."""
    return path.with_name(f".{path.name}.lock")


def take(lock: IO[Any]) -> bool:
    """Lock an open file until it is closed; return False if another process holds the lock."""
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if left:
                sleep(PAUSE)
        else:
            return True
    return False


def is_taken(lock: IO[Any]) -> bool:
    """Return whether another process has locked an open file."""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(lock, fcntl.LOCK_UN)
    return False


@contextlib.contextmanager
def waiting(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let one process at a time read and write a file; others wait, where the system has locks."""
    with lock_file(Path(path).resolve()).open("w") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
