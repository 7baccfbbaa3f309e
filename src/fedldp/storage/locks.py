"""Locks on files, which the system releases when a process ends, however it ends.

A process that only tests a lock holds it for a moment, so `take` retries for a while.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import IO, Any

__all__ = ["hold_lock", "is_taken", "lock_file", "take"]

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

RETRY_SECONDS = 0.1
_TRIES = 10


def lock_file(path: Path) -> Path:
    """Return the lock file of a file. The file may be replaced; its lock file stays.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    Path
        The path of its lock file, in the same folder.

    Examples
    --------
    >>> lock_file(Path("state.json")).name
    '.state.json.lock'
    """
    return path.with_name(f".{path.name}.lock")


def take(lock: IO[Any]) -> bool:
    """Lock an open file until it is closed.

    Parameters
    ----------
    lock
        The file, open for writing.

    Returns
    -------
    bool
        Whether it is locked: False if another process has held the lock for a second.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     take(file)
    True
    """
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if left:
                sleep(RETRY_SECONDS)
        else:
            return True
    return False


def is_taken(lock: IO[Any]) -> bool:
    """Return whether another process has locked an open file.

    Parameters
    ----------
    lock
        The file.

    Returns
    -------
    bool
        Whether it is locked at this moment.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     is_taken(file)
    False
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(lock, fcntl.LOCK_UN)
    return False


@contextlib.contextmanager
def hold_lock(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let one process at a time read and write a file; others wait, where the system has locks.

    Parameters
    ----------
    path
        The file, which may be replaced meanwhile.

    Yields
    ------
    None
        Nothing. The lock ends with the block.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "state.json")
    >>> with hold_lock(path):
    ...     path.write_text("{}")
    2
    """
    with lock_file(Path(path).resolve()).open("w") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
