"""Files that are written atomically, and files for their owner alone."""

import errno
import os
import secrets
import stat
from pathlib import Path
from typing import final

__all__ = ["WatchedFiles", "new_folder", "read_end", "sync", "write", "write_secret"]


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write a text to a file atomically, even if the power fails.

    A pipe, or a device such as /dev/null, is written to and stays what it is.

    Parameters
    ----------
    path
        The file. If it is a link, the file that it points to is written.
    text
        The text.

    Raises
    ------
    OSError
        If it cannot be written. Then the file is what it was.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "plan.json")
    >>> write(path, "{}")
    >>> path.read_text()
    '{}'
    """
    path = Path(path).resolve()  # a link stays a link
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    fresh = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        with fresh.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync(path.parent)


def read_end(path: Path, most: int) -> bytes:
    """Return the last bytes of a plain file.

    A pipe that nobody writes to would be waited for, and a device may never end: somebody else may
    have put them there.

    Parameters
    ----------
    path
        The file.
    most
        The largest number of bytes to return.

    Returns
    -------
    bytes
        The bytes.

    Raises
    ------
    OSError
        If it is not a plain file, or cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "log")
    >>> write(path, "first line, last line")
    >>> read_end(path, 9)
    b'last line'
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:  # noqa: PTH123 (it is open already)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        file.seek(max(0, found.st_size - most))
        return file.read(most)


def write_secret(path: Path, data: bytes) -> None:
    """Write a new file that only its owner can read, from the first moment on.

    Parameters
    ----------
    path
        The file, which must not exist.
    data
        Its content.

    Raises
    ------
    FileExistsError
        If there is such a file.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "key")
    >>> write_secret(path, b"secret")
    >>> oct(path.stat().st_mode & 0o777)
    '0o600'
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 (it is open already)
        file.write(data)


def new_folder(parent: Path, prefix: str) -> Path:
    """Make a folder with a unique name, for this user alone.

    The module tempfile would do the same, but needs a megabyte that a small vehicle may lack.

    Parameters
    ----------
    parent
        Where the folder is made.
    prefix
        What its name begins with.

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> import tempfile
    >>> new_folder(Path(tempfile.mkdtemp()), "aside-").name
    'aside-...'
    """
    folder = parent / f"{prefix}{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    return folder


def sync(folder: Path) -> None:
    """Wait until the names in a folder, or the content of a file, are on disk.

    Parameters
    ----------
    folder
        The folder or file.

    Examples
    --------
    >>> import tempfile
    >>> sync(Path(tempfile.mkdtemp()))
    """
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@final
class WatchedFiles:
    """Files that may be replaced while a process uses them.

    Parameters
    ----------
    *paths
        The files, some of which may be missing.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "key")
    >>> watched = WatchedFiles(path)
    >>> _ = path.write_text("new")
    >>> watched.changed(), watched.changed()
    (True, False)
    """

    def __init__(self, *paths: Path) -> None:
        self._paths = paths
        self._known = self._state()

    def changed(self) -> bool:
        """Return whether one of them is another file than when this was last asked.

        Returns
        -------
        bool
            Whether a file was replaced, written, removed or made since.
        """
        before, self._known = self._known, self._state()
        return self._known != before

    def _state(self) -> list[tuple[int, int]]:
        return [_version(path) for path in self._paths]


def _version(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:  # it is missing
        return 0, 0
    return found.st_ino, found.st_mtime_ns
