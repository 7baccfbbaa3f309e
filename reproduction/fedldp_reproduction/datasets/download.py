"""Downloads: checked against what is known of them, and there whole or not at all."""

import gzip
import hashlib
import http.client
import json
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, final

from fedldp._internal import cache, files
from fedldp.errors import DomainError

Progress = Callable[[int, int | None], None]  # bytes so far, and in all if that is known

_BLOCK = 1 << 16
_TIMEOUT = 60  # seconds without a byte


@final
@dataclass(frozen=True)
class Download:
    """A file at an address, and what is known of it."""

    url: str
    file: str  # its name here
    size: int | None = None  # of what is transferred
    sha256: str | None = None  # of what is transferred
    member: str | None = None  # the one file to keep, where the rest is an archive (tar)
    member_sha256: str | None = None
    described: bool = False  # the address gives a description (JSON, of OpenML) with the address

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
        return present(self)

    def fetch(self, progress: Progress | None = None) -> Path:
        """Return where the file is, and get it before if it is not there."""
        return fetch(self, progress)


def present(download: Download) -> Path | None:
    """Return where the file is, or None; refuse one that was changed."""
    if not download.path.exists():
        return None
    published = download.sha256 if download.member is None else download.member_sha256
    known = published or _pinned(download)
    with download.path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if known is not None and found != known:
        raise DomainError(
            f"{download.path} was changed: its SHA-256 is {found}, not {known}. Delete it, and "
            "fetch it again."
        )
    return download.path


def fetch(download: Download, progress: Progress | None = None) -> Path:
    """Return where the file is, and get it before if it is not there."""
    if path := present(download):
        return path
    folder = download.path.parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as fresh:
        file = Path(fresh, "transferred")
        found = _transfer(download, file, progress)
        _check(download, "SHA-256", found, download.sha256 or _pinned(download))
        if download.member is not None:
            file = _extracted(download, file, Path(fresh, "member"))
        if download.sha256 is None:
            files.write(download.pin, found)  # first, so that no file is ever without
        file.replace(download.path)
    return download.path


def _pinned(download: Download) -> str | None:
    return download.pin.read_text("ascii") if download.pin.exists() else None


def _check(download: Download, what: str, found: object, known: object) -> None:
    if known is not None and found != known:
        pinned = download.pin.exists()
        hint = f" Or delete {download.pin}, if it may have changed." if pinned else ""
        raise DomainError(
            f"what {download.url} gave is not the file it should be: its {what} is {found}, not "
            f"{known}. Nothing was kept. Try again, or give the file with --path.{hint}"
        )


def _transfer(download: Download, path: Path, progress: Progress | None) -> str:
    """Write what the address gives to a file, and return its SHA-256."""
    digest, done = hashlib.sha256(), 0
    with _reaching(download), path.open("wb") as file, _opened(download) as response:
        length = response.headers.get("Content-Length")
        total = int(length) if length and length.isdecimal() else download.size
        while block := response.read(_BLOCK):
            done += len(block)
            if download.size is not None and done > download.size:
                break  # it is another file, and might have no end
            digest.update(block)
            file.write(block)
            if progress is not None:
                progress(done, total)
    # A connection that broke looks like the end of a file to whoever reads it in blocks.
    _check(download, "size", done, total if download.size is None else download.size)
    return digest.hexdigest()


@contextmanager
def _opened(download: Download) -> Iterator[Any]:
    url = download.url
    if download.described:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:  # noqa: S310 (our own)
            try:
                url = str(json.load(response)["data_set_description"]["url"])
            except (ValueError, KeyError, TypeError) as error:
                raise DomainError(f"{download.url} gave no description of a data set.") from error
        scheme, _, rest = url.partition("://")
        if scheme not in ("https", "http"):
            raise DomainError(f"{download.url} named {url!r:.100}, which is no web address.")
        url = f"{download.url.partition('://')[0]}://{rest}"  # no less safe than the description
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:  # noqa: S310 (checked)
        yield response


@contextmanager
def _reaching(download: Download) -> Iterator[None]:
    url, elsewhere = download.url, f"get {download.file} elsewhere and give it with --path."
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        raise DomainError(
            f"{url} cannot be had: the server says {error.code} {error.reason}. Nothing was kept. "
            f"Try again later, or {elsewhere}"
        ) from error
    except (
        urllib.error.URLError,
        http.client.HTTPException,
        TimeoutError,
        ConnectionError,
    ) as error:
        reason = getattr(error, "reason", error)
        raise DomainError(
            f"{url} cannot be reached: {reason}. Nothing was kept. If this "
            f"machine is offline, {elsewhere}"
        ) from error


def _extracted(download: Download, archive: Path, path: Path) -> Path:
    """Write the one member to a file, whatever else the archive holds."""
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                if member.isfile() and Path(member.name).name == download.member:
                    source: IO[bytes] | None = opened.extractfile(member)
                    break
            else:
                raise DomainError(f"what {download.url} gave holds no {download.member}.")
            if source is not None:
                with source, path.open("wb") as file:
                    shutil.copyfileobj(source, file, _BLOCK)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DomainError(f"what {download.url} gave is no archive: {error}.") from error
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    _check(download, f"SHA-256 of {download.member}", found, download.member_sha256)
    return path
