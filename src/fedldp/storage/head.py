"""The head of a database: a small file beside it that knows how much the database must hold.

A database alone cannot tell that its last transactions are missing: if its `-wal` is deleted, or a
bit of it flips, SQLite opens what is left without a word. So each transaction is counted, and the
sum of all its rows is known in two places: in the database, in the transaction itself, and in the
head, which is written and synced after each commit and before anything is released. Both must
agree when the database is opened. Only one difference is allowed: the database may be one commit
ahead, because a process was killed between the two. Nothing of that commit was released.

The head has four blocks. Commits are written alternately to the first and the second, and a copy
to the third or fourth, so that neither a write that was cut short nor one damaged block loses it.

The content of a database is the sum, modulo 2^128, of the hashes of its rows and of the statements
that made its tables. It finds damage. It is no protection against somebody who can write the files.
"""

import contextlib
import hashlib
import os
import secrets
import struct
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, final

from . import files

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

# Rows may be added to the other tables, and never changed or deleted: temporary triggers see to it.
# Tables that only repeat what others say may change, and are in no sum (`Kind.derived`).
TABLE = """
    CREATE TABLE head (  -- one row, which must agree with the file of this name
        identity BLOB NOT NULL,
        generation INTEGER NOT NULL,  -- how often a mirror has taken over
        commits INTEGER NOT NULL,
        content BLOB NOT NULL,  -- the sum of the hashes of all rows
        previous BLOB NOT NULL,  -- the digest of this row before the last commit
        role TEXT NOT NULL,
        partner TEXT NOT NULL  -- the path of its mirror, or of what it mirrors
    )
"""
ALONE, MIRRORED, MIRROR, DETACHED = "", "mirrored", "mirror", "detached"  # roles

_BLOCK_BYTES = 4096
_BLOCKS = 4
_sync_data = getattr(os, "fdatasync", os.fsync)  # the size of a head never changes
_MAGIC = b"fLDPhd1\n"
_FIELDS = struct.Struct(">8s16sQ16s")
_CHECKSUM_BYTES = 16
_USED_BYTES = _FIELDS.size + _CHECKSUM_BYTES  # of a block; the others are zeros
_ZEROS = bytes(_BLOCK_BYTES - _USED_BYTES)
_LOCK_POLL_SECONDS = 0.002
MODULUS = 1 << 128


class Mark(NamedTuple):
    """What a head says of its database."""

    identity: bytes
    commits: int
    digest: bytes


class Record(NamedTuple):
    """The row of the table `head`."""

    identity: bytes
    generation: int
    commits: int
    content: int
    previous: bytes
    role: str
    partner: str

    @classmethod
    def first(cls, content: int, *, has_rows: bool = False) -> "Record":
        """Return the record of a new database. Rows that it begins with count as a commit."""
        commits = int(has_rows)
        return cls(secrets.token_bytes(16), 0, commits, content, bytes(16), ALONE, "")

    @property
    def mark(self) -> Mark:
        """What the head must say."""
        return _mark_of(self)

    def following(self, rows: int, changed: "Record | None" = None) -> "Record":
        """Return the record after one more commit, which adds rows with this sum.

        The role, the partner and the generation are those of `changed`.
        """
        return (changed or self)._replace(
            commits=self.commits + 1,
            content=(self.content + rows) % MODULUS,
            previous=self.mark.digest,
        )

    def row(self) -> tuple[object, ...]:
        """Return the values of the columns."""
        return (*self[:3], self.content.to_bytes(16, "big"), *self[4:])

    def problem(self, mark: Mark, certain: bool) -> str:
        """Return why a database with this record does not belong to a head, or an empty text.

        A head that is not `certain` lacks its newer or its older half. Then the database must be
        ahead, as it is after a write of the head that was cut short.
        """
        if mark.identity != self.identity:
            return "its -head belongs to another one"
        if self.is_ahead(mark):
            return ""
        if self.commits < mark.commits:
            return f"it has lost its last {mark.commits - self.commits} commits"
        if self.mark != mark:
            return "it does not agree with its -head"
        return "" if certain else "its -head is damaged"

    def is_ahead(self, mark: Mark) -> bool:
        """Return whether the database has one commit that the head does not know yet."""
        return self.commits == mark.commits + 1 and self.previous == mark.digest


@lru_cache(maxsize=8)  # each is needed before and after a commit
def _mark_of(record: Record) -> Mark:
    fields = (record.identity, record.generation, record.commits, record.content, record.role)
    digest = row_hash("head", (*map(str, fields), record.partner))
    return Mark(record.identity, record.commits, digest.to_bytes(16, "big"))


def read_record(rows: list[Any]) -> Record | None:
    """Return the record of the rows of the table `head`, or None if it is damaged."""
    if len(rows) != 1:
        return None
    identity, generation, commits, content, previous, role, partner = rows[0]
    blobs = identity, content, previous
    whole = all(isinstance(blob, bytes) and len(blob) == 16 for blob in blobs)
    if not whole or not isinstance(generation, int) or not isinstance(commits, int):
        return None
    if commits < 0 or not isinstance(role, str) or not isinstance(partner, str):
        return None
    return Record(
        identity, generation, commits, int.from_bytes(content, "big"), previous, role, partner
    )


READ = "SELECT identity, generation, commits, content, previous, role, partner FROM head"
INSERT = "INSERT INTO head VALUES (?, ?, ?, ?, ?, ?, ?)"
UPDATE = """
    UPDATE head SET
    identity = ?, generation = ?, commits = ?, content = ?, previous = ?, role = ?, partner = ?
"""


def row_hash(table: str, values: tuple[object, ...]) -> int:
    """Return the hash of a row. Other values, or values of other types, have another one.

    >>> row_hash("draws", ("12", b"3")) == row_hash("draws", ("12", "3"))
    False
    """
    parts = [table.encode()]
    for value in values:
        if value.__class__ is str:
            data = value.encode("utf-8", "surrogatepass")
            parts += (b"t%d:" % len(data), data)
        elif value.__class__ is bytes:
            parts += (b"b%d:" % len(value), value)
        else:
            parts.append(f"n{value!r}:".encode())  # a number or None
    return int.from_bytes(hashlib.blake2b(b"".join(parts), digest_size=16).digest(), "big")


def path_of(database: Path) -> Path:
    """Return the path of the head of a database."""
    return Path(f"{database}-head")


@final
class Head:
    """An open head.

    >>> import tempfile
    >>> head = Head(Path(tempfile.mkdtemp(), "ledger.db-head"), create=True)
    >>> with head.locked(1.0):
    ...     head.start(Mark(bytes(16), 0, bytes(16)))
    ...     head.write(Mark(bytes(16), 1, bytes(16)))
    >>> head.read()[0].commits
    1
    >>> head.close()
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        flag = os.O_CREAT if create else 0
        self.path = path
        self._file = open(  # noqa: SIM115 (it is closed with the database)
            path, "r+b", buffering=0, opener=lambda name, flags: os.open(name, flags | flag, 0o600)
        )

    def close(self) -> None:
        """Close the file. Closing it again does nothing."""
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self.close()

    @contextlib.contextmanager
    def locked(self, patience: float) -> Iterator[None]:
        """Let nobody else write this head; the system releases it when the process ends."""
        if fcntl is None:  # not on Windows
            yield
            return
        deadline, process = time.monotonic() + patience, os.getpid()
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self.path} is locked. Nothing was committed.") from None
                time.sleep(_LOCK_POLL_SECONDS)
        try:
            yield
        finally:
            # A forked child shares the lock, and must not release that of its parent.
            if not self._file.closed and os.getpid() == process:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def is_in_place(self) -> bool:
        """Return whether the file still has its name."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._file.fileno()))
        except OSError:
            return False

    def read(self) -> tuple[Mark, bool] | None:
        """Return the newest mark, and whether it is certain that there is no newer one."""
        return read(self._content())

    def is_new(self) -> bool:
        """Return whether no commit was ever made, though a first write may have been cut short."""
        return is_new(self._content())

    def start(self, mark: Mark) -> None:
        """Write the first mark of a database, and wait until it is on disk."""
        self._write_at(0, _block(mark) * _BLOCKS)
        os.fsync(self._file.fileno())
        files.sync(self.path.parent)

    def write(self, mark: Mark) -> None:
        """Write the mark of the next commit, and wait until it is on disk."""
        first, block = mark.commits % 2, _block(mark)
        for place in (first, first + 2):
            self._write_at(place * _BLOCK_BYTES, block)
        self._sync()

    def _content(self) -> bytes:
        self._file.seek(0)
        return self._file.read(_BLOCKS * _BLOCK_BYTES + 1)

    def _write_at(self, offset: int, data: bytes) -> None:
        self._file.seek(offset)
        if self._file.write(data) != len(data):
            raise OSError(f"the file {self.path} cannot be written: is the disk full?")

    def _sync(self) -> None:
        if hasattr(fcntl, "F_FULLFSYNC"):  # without it, macOS does not wait for the disk
            fcntl.fcntl(self._file, fcntl.F_FULLFSYNC)
        else:
            _sync_data(self._file.fileno())


def read(data: bytes) -> tuple[Mark, bool] | None:
    """Return the newest mark in the bytes of a head, and whether there can be no newer one.

    None if the head is damaged: at least one half must be readable, and the halves must be those
    of two commits in a row.
    """
    if len(data) != _BLOCKS * _BLOCK_BYTES:
        return None
    marks = _marks(data)
    halves = []
    for copies in (marks[0::2], marks[1::2]):
        whole = [mark for mark in copies if mark is not None]
        if whole:
            halves.append(max(whole, key=lambda mark: mark.commits))
    if not halves:
        return None
    newest = max(halves, key=lambda mark: mark.commits)
    if any(newest.commits - half.commits > 1 for half in halves):
        return None
    return newest, len(halves) == 2


def is_new(data: bytes) -> bool:
    """Return whether the bytes of a head know of no commit.

    A first write may have been cut short: then blocks are missing, or the disk has zeros there.
    """
    padded = data + bytes(-len(data) % _BLOCK_BYTES)
    first = (mark is not None and mark.commits == 0 for mark in _marks(padded))
    blocks = _blocks(padded)
    cut_or_new = all(new or not any(block) for new, block in zip(first, blocks, strict=True))
    return cut_or_new and len(blocks) <= _BLOCKS


def _blocks(data: bytes) -> list[bytes]:
    return [data[at : at + _BLOCK_BYTES] for at in range(0, len(data), _BLOCK_BYTES)]


def _marks(data: bytes) -> list[Mark | None]:
    return [_mark(data, start) for start in range(0, len(data), _BLOCK_BYTES)]


@lru_cache(maxsize=4)  # what is written is read again before the next commit
def _block(mark: Mark) -> bytes:
    fields = _FIELDS.pack(_MAGIC, *mark)
    checksum = hashlib.blake2b(fields, digest_size=_CHECKSUM_BYTES).digest()
    return (fields + checksum).ljust(_BLOCK_BYTES, b"\0")


def _mark(data: bytes, start: int) -> Mark | None:
    end = start + _USED_BYTES
    return _used_mark(data[start:end]) if data.startswith(_ZEROS, end) else None


@lru_cache(maxsize=16)  # three of the four blocks are those that were read or written before
def _used_mark(used: bytes) -> Mark | None:
    magic, *fields = _FIELDS.unpack_from(used)
    mark = Mark(*fields)
    return mark if magic == _MAGIC and _block(mark).startswith(used) else None
