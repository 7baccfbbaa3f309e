"""What a monitor shows: the status of each part, its disk, its certificates, the result so far."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol, final

from cryptography import x509

from fedldp import __version__
from fedldp._internal import toml
from fedldp.errors import FedLDPError
from fedldp.fleet import status
from fedldp.fleet.job import Job
from fedldp.fleet.server import process as server_process
from fedldp.fleet.server.checkpoint import Reader

FORMAT = "fedldp monitor 1"
EVERY = 1.0  # seconds at least between two looks: callers cannot make it look more often
SHARE = 0.2  # of the time, at most, is spent on looking, and on results
NEARLY_FULL = 0.05  # of a disk is free

_CERTIFICATES = ("authority", "certificate")  # entries of server.toml and gateway.toml
_LARGEST = 1 << 20  # bytes of a file with certificates


class Part(Protocol):
    """What is needed of `fedldp.fleet.status.Status`."""

    def document(self) -> dict[str, Any]:
        """Return the status as a document for JSON."""


Read = Callable[[Path], Iterable[Part]]


class Disk(NamedTuple):
    """Space in bytes."""

    free: int
    size: int

    @classmethod
    def of(cls, folder: Path, *, coarse: bool) -> "Disk":
        """Return the space of the disk that a folder is on.

        A vault shows it coarsely, rounded down to a power of two: the length of the owner's files
        is nobody's business.
        """
        found = os.statvfs(folder)
        free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        return cls(1 << (free.bit_length() - 1) if coarse and free else free, size)

    @property
    def nearly_full(self) -> bool:
        return self.free < NEARLY_FULL * self.size


@final
@dataclass(eq=False)
class Observer:
    """Looks at a folder when it is asked, but not all the time, and remembers what it saw."""

    folder: Path
    read: Read = status.read
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _seen: dict[str, Any] | None = None
    _due: float = 0.0
    _results: dict[Path, "_Result"] = field(default_factory=dict)

    def look(self) -> dict[str, Any]:
        """Return the document that the page and the metrics show."""
        with self._lock:
            if self._seen is None or self.clock() >= self._due:
                began = self.clock()
                self._seen = self._look()
                self._due = self.clock() + max(EVERY, _rest(self.clock() - began))
            return self._seen

    def _look(self) -> dict[str, Any]:
        parts, problems = [], []
        try:
            for each in self.read(self.folder):
                parts.append(self._part(each))
        except (FedLDPError, OSError, ValueError) as error:
            problems.append(f"the status of {self.folder.name} cannot be read: {error}")
        for part in parts:
            problems += part["problems"]
        return {
            "format": FORMAT,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "version": __version__,
            "parts": parts,
            "problems": problems,
        }

    def _part(self, part: Part) -> dict[str, Any]:
        document = part.document()
        inside = self.folder / document["name"]  # of a fleet; else it is the folder of one part
        folder = inside if inside.is_dir() else self.folder
        disk = Disk.of(folder, coarse=document["part"] == "vault")
        return {
            **document,
            "disk": disk._asdict(),
            "certificates": dict(certificates(folder)),
            **self._of_server(folder, document),
            "problems": list(_problems(document, disk)),
        }

    def _of_server(self, folder: Path, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return what only a server has: the result so far."""
        if not (folder / server_process.FILE).exists():
            return {}
        result = self._results.setdefault(folder, _Result(folder, self.clock)).look(document)
        return {"result": result}


@final
class _Result:
    """The result of a server's job so far, computed again when reports have come."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self._folder, self._clock = folder, clock
        self._key: object = None
        self._due = 0.0
        self._found: dict[str, Any] | None = None
        self._open: tuple[int, Job, Reader] | None = None  # and when the job's file was changed

    def look(self, document: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what is known, given the status of the server."""
        job = document.get("job") or {}
        key = tuple(job.get(name) for name in ("name", "state", "round", "reports"))
        if key == self._key or (began := self._clock()) < self._due:
            return self._found
        self._key = key
        try:
            self._found = self._compute()
        except (FedLDPError, OSError, ValueError) as error:
            self._found = {"title": "The result so far", "rows": [], "notes": [str(error)]}
        self._due = self._clock() + _rest(self._clock() - began)
        return self._found

    def _compute(self) -> dict[str, Any] | None:
        path = server_process.ServerConfig.load(self._folder).job
        changed = path.stat().st_mtime_ns
        if self._open is None or self._open[0] != changed:
            job = Job.load(path, signed=False)  # whether vaults accept it is their business
            self._open = changed, job, Reader(job.checkpoint)
        _, job, reader = self._open
        if (latest := reader.latest(job.stages)) is None:
            return None
        rounds = sorted({latest.rounds[0], latest.rounds[-1]})
        found = latest.stage.insight(latest.learned, latest.tallies).document()
        return found | {"rounds": rounds}


def _rest(seconds: float) -> float:
    """Return how long to rest after some work."""
    return seconds * (1 / SHARE - 1)


def _problems(document: Mapping[str, Any], disk: Disk) -> Iterator[str]:
    """Yield what keeps a part from working. The success of its job is another question."""
    name, job = document["name"], document.get("job") or {}
    if not document["running"] and job.get("state") not in ("done", "failed"):
        yield f"{name} is not running"
    if disk.nearly_full:
        yield f"the disk of {name} is nearly full: {disk.free / disk.size:.0%} is free"
    yield from document["unreadable"]


def certificates(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the certificates that a part uses, with the time when each of them expires."""
    for path in sorted(_certificate_files(folder)):
        try:
            if path.stat().st_size <= _LARGEST:
                found = x509.load_pem_x509_certificates(path.read_bytes())
                ends = min(each.not_valid_after_utc for each in found)
                yield path.name, ends.isoformat()
        except (OSError, ValueError):  # the part itself complains
            continue


def _certificate_files(folder: Path) -> Iterator[Path]:
    for path in folder.glob("*.toml"):
        try:
            entries = toml.parse(path.read_text("utf-8"), str(path))
        except (FedLDPError, OSError, ValueError):
            continue
        for name in _CERTIFICATES:
            if isinstance(place := entries.get(name), str):
                yield folder / place
