"""Packets in files: Parquet, or reports one after another; on disk or in an object store.

A shard is a file that is counted as a whole. Its name is what a manifest lists: the full path, or
the address in the object store. pyarrow is imported when a Parquet file or an address is met.
"""

import glob
import hashlib
import os
import re
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, final
from urllib.parse import quote, unquote, urlsplit

from fedldp._internal.packets import Packets, RepeatedPackets
from fedldp.counting.packets import column_name, import_pyarrow, of_arrays, rows_at_a_time
from fedldp.errors import DomainError

ShardPath = str | os.PathLike[str]  # of one or many shards: see `find`
PacketReader = Callable[[BinaryIO], Iterator[Packets]]  # the packets of a stream of reports
CountingProgress = Callable[
    [int], object
]  # called with the number of bytes that were read since the last call

_READ_BYTES = 1 << 20
_PLACES_AT_ONCE = 1 << 18  # packets that are read as places in a dictionary
_PLACE_BYTES = 4
_PARQUET = b"PAR1"
_SNIFFED_BYTES = 16
_SAFE_ADDRESS_CHARACTERS = "/=+,:@!$&'()~"  # besides letters, digits and _.-
_SCHEME_ALIASES = {"gcs": "gs"}
_STORES = (
    "s3://, gs://, abfs:// or hdfs://, or that of another system of fsspec as in fsspec+http://"
)


def no_one(_: int) -> None:
    """Tell nobody how many bytes were read."""


def digest(file: BinaryIO) -> str:
    """Return the SHA-256 of an open file, and go back to its start."""
    found = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    file.seek(0)
    return found


class Shard(ABC):
    """A file of packets: a Parquet file, or reports one after another."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What a manifest calls the file, whatever the current folder and the credentials are."""

    @property
    @abstractmethod
    def address(self) -> str:
        """What `find` finds the file by, on any machine that can reach it."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of bytes, and 0 if the file is not there."""

    @property
    @abstractmethod
    def local(self) -> Path:
        """The path on this machine, or `DomainError`."""

    @abstractmethod
    def beginning(self) -> bytes:
        """Return the first bytes of the file, which show what it holds."""

    @abstractmethod
    def opened(self) -> AbstractContextManager[BinaryIO]:
        """Open the file, and refuse it if it changes before it is closed.

        Otherwise its SHA-256 and its packets might be those of two different files.
        """

    def digest(self) -> str:
        """Return the SHA-256 of the file."""
        with self.opened() as file:
            return digest(file)

    def packets(
        self,
        file: BinaryIO,
        split: PacketReader,
        column: str | None = None,
        progress: CountingProgress = no_one,
    ) -> Iterator[Packets | RepeatedPackets]:
        """Yield the packets of the open file; `split` finds reports that follow one another."""
        start = file.read(len(_PARQUET))
        file.seek(0)
        if start == _PARQUET:
            yield from self._of_parquet(file, column, progress)
            return
        done = 0
        for packets in split(file):
            yield packets
            progress(file.tell() - done)
            done = file.tell()

    def _of_parquet(
        self, file: BinaryIO, column: str | None, progress: CountingProgress
    ) -> Iterator[Packets | RepeatedPackets]:
        pa = import_pyarrow()
        from pyarrow import parquet

        def of_table(table: Any, at_once: int) -> Iterator[Packets | RepeatedPackets]:
            batches = table.iter_batches(at_once, columns=[name])
            for packets in of_arrays(pa, (batch.column(0) for batch in batches)):
                yield packets
                progress(self.size * len(packets) // rows)

        try:
            with parquet.ParquetFile(file, buffer_size=_READ_BYTES) as table:
                name = column_name(table.schema_arrow, column)
                facts, rows = table.metadata, max(table.metadata.num_rows, 1)
                groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
                length = sum(group.total_byte_size for group in groups) / rows
                if not _has_dictionary(groups, name, rows):
                    yield from of_table(table, rows_at_a_time(length))
                    return
                options = {"buffer_size": _READ_BYTES, "read_dictionary": [name]}
                with parquet.ParquetFile(file, **options) as encoded:
                    yield from of_table(encoded, _PLACES_AT_ONCE)
        except pa.ArrowException as error:
            raise DomainError(f"{self} cannot be read as a Parquet file: {error}") from error

    def _check_unchanged(self, before: Any, after: Any) -> None:
        if before != after:
            raise DomainError(f"{self} changed while it was read: count it once it is whole.")


def _has_dictionary(groups: list[Any], name: str, rows: int) -> bool:
    """Return whether a Parquet file has few different packets, and stores little more than places.

    A packet is longer than its header of 16 bytes, wherever it is stored.
    """
    columns = [
        group.column(number)
        for group in groups
        for number in range(group.num_columns)
        if group.column(number).path_in_schema == name
    ]
    stored = sum(column.total_uncompressed_size for column in columns)
    return all(column.has_dictionary_page for column in columns) and stored <= _PLACE_BYTES * rows


@final
@dataclass(frozen=True)
class LocalShard(Shard):
    """A file on this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        return self.path.resolve().as_posix()

    @property
    def address(self) -> str:
        return self.name

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    @property
    def local(self) -> Path:
        return self.path

    def beginning(self) -> bytes:
        with self.path.open("rb") as file:
            return file.read(_SNIFFED_BYTES)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        def state() -> tuple[int, int]:
            found = os.fstat(file.fileno())
            return found.st_size, found.st_mtime_ns

        with self.path.open("rb") as file:
            before = state()
            yield file
            self._check_unchanged(before, state())


@final
@dataclass(frozen=True)
class StoredShard(Shard):
    """A file in an object store, or another file system that pyarrow reads.

    It is copied to a temporary file before it is read: its bytes are fetched once, and those that
    are hashed are those that are counted.
    """

    url: str  # the address without its options
    options: str  # what follows the question mark in the address
    system: Any  # pyarrow's
    found: Any  # what it knows about the file

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return self.url

    @property
    def address(self) -> str:
        return f"{self.url}?{self.options}" if self.options else self.url

    @property
    def size(self) -> int:
        return int(self.found.size or 0)

    @property
    def local(self) -> Path:
        raise DomainError(
            f"a tally must be a file on this machine, with its manifest next to it; got {self}. "
            "Copy both here."
        )

    def beginning(self) -> bytes:
        with self.system.open_input_stream(self.found.path) as stream:
            return bytes(stream.read(_SNIFFED_BYTES))

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        # Asked for again: some stores give a list with more exact times than they give a file.
        before = self.system.get_file_info(self.found.path)
        with tempfile.TemporaryFile() as file:
            with self.system.open_input_stream(self.found.path) as stream:
                shutil.copyfileobj(stream, file, _READ_BYTES)
            after = self.system.get_file_info(self.found.path)
            got = file.tell()
            self._check_unchanged((before.size, before.mtime_ns), (got, after.mtime_ns))
            file.seek(0)
            yield file


def find(source: ShardPath) -> list[Shard]:
    """Return the files that a path names: a file, all files of a folder, or those of a pattern.

    As data sets have it, names that begin with a point or an underscore are left out in a folder.
    A text with "://" is an address in an object store.
    """
    if isinstance(source, str) and "://" in source:
        if not source.startswith("file://"):
            return _find_stored(source)
        source = unquote(urlsplit(source).path)  # one file has one name
    path = Path(source)
    if path.is_dir():
        inside = (inner for inner in path.rglob("*") if inner.is_file())
        shown = (inner for inner in sorted(inside) if not _is_hidden(inner.relative_to(path)))
        return [LocalShard(inner) for inner in shown]
    if not path.exists() and glob.has_magic(str(source)):
        paths = sorted(map(Path, glob.glob(str(source), recursive=True)))  # noqa: PTH207
        if not paths:
            raise DomainError(f"no file matches {str(source)!r}.")
        return [shard for match in paths for shard in find(match)]
    return [LocalShard(path)]


def find_all(sources: ShardPath | Iterable[ShardPath]) -> list[Shard]:
    """Return the files of one or many paths, in order; some may occur twice."""
    each = [sources] if isinstance(sources, str | os.PathLike) else sources
    return [shard for source in each for shard in find(source)]


def _find_stored(address: str) -> list[Shard]:
    import_pyarrow()
    from pyarrow import fs

    parts = urlsplit(address)
    if parts.password is not None:
        raise DomainError(
            f"an address must not hold a password; that of {parts.hostname} does. Set the "
            "credentials in the environment, where no manifest and no log shows them."
        )
    if parts.query and not all("=" in option for option in parts.query.split("&")):
        raise DomainError(
            f"a question mark begins the options of an address, as in ?region=eu-west-1; got "
            f"{parts.query!r}. A pattern has * and ** instead."
        )
    path = "*".join(map(_escape, parts.path.rstrip("/").split("*")))
    scheme = _SCHEME_ALIASES.get(parts.scheme, parts.scheme)
    name = f"{scheme}://{parts.netloc}{path}"  # one file has one name
    # A pattern is looked up in the folder above its first star.
    before, star, _ = name.partition("*")
    folder = before.rpartition("/")[0] if star else name
    system, key = _opened_store(f"{folder}?{parts.query}" if parts.query else folder)
    info = system.get_file_info(key)
    if info.type == fs.FileType.File and not star:
        return [StoredShard(name, parts.query, system, info)]
    if info.type == fs.FileType.NotFound:
        raise DomainError(f"there is no file and no folder {folder}.")
    inside = system.get_file_info(fs.FileSelector(key, recursive=True))
    matching = re.compile(_pattern(name) if star else ".*", re.DOTALL)
    shards: list[Shard] = []
    for entry in sorted(inside, key=lambda entry: str(entry.path)):
        within = entry.path.removeprefix(key).lstrip("/")
        full = f"{folder}/{quote(within, safe=_SAFE_ADDRESS_CHARACTERS)}"
        hidden = _is_hidden(PurePosixPath(within))
        if entry.type == fs.FileType.File and not hidden and matching.fullmatch(full):
            shards.append(StoredShard(full, parts.query, system, entry))
    if star and not shards:
        raise DomainError(f"no file matches {name!r}.")
    return shards


def _escape(path: str) -> str:
    """Return a path as it stands in an address, in one of the many ways to write it."""
    return quote(unquote(path), safe=_SAFE_ADDRESS_CHARACTERS)


def _opened_store(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it."""
    pa = import_pyarrow()
    from pyarrow import fs

    try:
        system, key = fs.FileSystem.from_uri(address)
    except pa.ArrowInvalid as error:
        raise DomainError(f"an address must begin with {_STORES}: {error}") from None
    return system, key


def _pattern(name: str) -> str:
    """Return the expression that a file, or a folder above it, must match.

    A star stands for any characters but a slash, and two of them for any number of folders.
    """
    pieces = [
        "(?:[^/]+/)*" if piece == "**" else re.escape(piece).replace(r"\*", "[^/]*") + "/"
        for piece in name.split("/")
    ]
    return "".join(pieces).removesuffix("/") + "(?:/.*)?"


def _is_hidden(path: PurePosixPath | Path) -> bool:
    return any(name.startswith((".", "_")) for name in path.parts)
