"""Downloads: pooch transfers, checks and unpacks; what is good is kept in the user's cache."""

import gzip
import hashlib
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, final

from fedldp._internal import cache
from fedldp.datasets.registry import Progress
from fedldp.errors import DomainError
from fedldp.storage import files

# pooch and requests are imported where they are used: listing the data sets needs neither.

_BLOCK = 1 << 16  # bytes transferred at a time
_TIMEOUT = 60  # seconds without a byte
_UNENCODED = {"Accept-Encoding": "identity"}  # checksums are those of the published bytes
_DAMAGED = (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error)


@final
@dataclass(frozen=True)
class FileDownload:
    """A file at an address, and what is known of it."""

    url: str
    file: str  # its name in the cache
    size: int | None = None  # of what is transferred
    sha256: str | None = None  # of what is transferred
    member: str | None = None  # the one file to keep of a tar archive, in any of its folders
    member_sha256: str | None = None
    described: bool = False  # the address gives a description (JSON, of OpenML) with the address
    verified: bool = True  # whether the address gave the file when it was added

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return cache.directory() / "datasets" / self.file

    @property
    def pin(self) -> Path:
        """Where the checksum of the first download is kept, if none was published."""
        return self.path.with_name(f"{self.file}.sha256")

    @property
    def description(self) -> dict[str, Any]:
        """Its address, size and checksum, as far as they are known."""
        return {"url": self.url, "size": self.size, "sha256": self.sha256}

    def present(self) -> Path | None:
        """Return where the file is, or None; refuse one that was changed."""
        if not self.path.exists():
            return None
        known = self._known if self.member is None else self.member_sha256
        found = sha256(self.path)
        if known not in (None, found):
            raise DomainError(
                f"{self.path} was changed: its SHA-256 is {found}, not {known}. Delete it, and "
                "fetch it again."
            )
        return self.path

    def fetch(self, progress: Progress | None = None) -> Path:
        """Return where the file is; download it first if it is not there."""
        if path := self.present():
            return path
        import requests

        self.path.parent.mkdir(parents=True, exist_ok=True)
        # What fails leaves nothing behind: a file is moved to its place when all is well.
        with TemporaryDirectory(dir=self.path.parent, prefix=".new-") as folder:
            try:
                transferred = self._transferred(folder, progress)
                file = transferred if self.member is None else self._member(transferred)
            except requests.RequestException as error:
                doubt = "" if self.verified else " The address was never verified: it may be wrong."
                raise DomainError(
                    f"{self.url} cannot be downloaded: {error}. Nothing was kept.{doubt} If this "
                    f"machine is offline, get {self.file} elsewhere and give it with --path."
                ) from error
            except (ValueError, *_DAMAGED) as error:
                pinned = f" Or delete {self.pin}, if the file may have changed."
                raise DomainError(
                    f"{self.url} did not give the expected file: {error}. Nothing was kept. Try "
                    "again, or get the file elsewhere and give it with --path."
                    f"{pinned if self.pin.exists() else ''}"
                ) from error
            if self.sha256 is None:
                files.write(self.pin, sha256(transferred))  # before the file is there
            file.replace(self.path)
        return self.path

    @property
    def _known(self) -> str | None:
        """The checksum that was published, or that of the first download."""
        if self.sha256 is None and self.pin.exists():
            return self.pin.read_text("ascii")
        return self.sha256

    def _transferred(self, folder: str, progress: Progress | None) -> Path:
        """Download to a folder, and return where the file is there."""
        import pooch

        transfer = pooch.HTTPDownloader(chunk_size=_BLOCK, timeout=_TIMEOUT, headers=_UNENCODED)

        def counted(url: str, output: str, *rest: Any) -> None:
            with Path(output).open("wb") as file:
                transfer(url, _Counted(file, self.size, progress), *rest)

        pooch.get_logger().setLevel("WARNING")  # it would tell about the temporary folder
        address = self._described() if self.described else self.url
        return Path(pooch.retrieve(address, self._known, self.file, folder, downloader=counted))

    def _described(self) -> str:
        """Return the address of the file, which its description names."""
        import requests

        response = requests.get(self.url, timeout=_TIMEOUT)
        response.raise_for_status()
        try:
            address = str(response.json()["data_set_description"]["url"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError("it is not a description of a data set") from error
        scheme, _, rest = address.partition("://")
        if scheme not in ("https", "http"):
            raise ValueError(f"{address!r:.100} is not a web address")
        return f"{self.url.partition('://')[0]}://{rest}"  # no less safe than the description

    def _member(self, archive: Path) -> Path:
        """Unpack the one member, whatever else the archive holds, and return where it is."""
        import pooch

        with tarfile.open(archive) as opened:
            names = [name for name in opened.getnames() if Path(name).name == self.member]
        if len(names) != 1:
            raise ValueError(f"the archive must have one file {self.member}; it has {len(names)}")
        (found,) = pooch.Untar(names)(str(archive), "download", None)
        member = Path(found)
        if self.member_sha256 not in (None, sha256(member)):
            raise ValueError(f"the SHA-256 of {self.member} is {sha256(member)}")
        return member


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@final
class _Counted:
    """A file to write to that reports progress, and refuses more bytes than there should be."""

    def __init__(self, file: IO[bytes], size: int | None, progress: Progress | None) -> None:
        self._file, self._size, self._progress = file, size, progress
        self._done = 0

    def write(self, block: bytes) -> None:
        self._done += len(block)
        if self._size is not None and self._done > self._size:
            raise ValueError(f"it has more than {self._size} bytes")
        self._file.write(block)
        if self._progress is not None:
            self._progress(self._done, self._size)

    def flush(self) -> None:
        self._file.flush()
