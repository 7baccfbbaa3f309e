"""What each part of a fleet knows about itself, for its owner and on its own machine.

`read` returns a status for every part in a folder: a server, a gateway or a vault, or several of
them. It only reads files, which are correct while a part runs, after it has ended and before it has
ever run; nobody waits for it. A file that is damaged, or that this user may not read, is an error
in the status.

What a vault shows depends on the questions that it got, on its ledger and on its configuration,
never on the data of its vehicles.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, final

from fedldp import __version__
from fedldp._internal.text import listed
from fedldp.errors import DomainError, FedLDPError
from fedldp.fleet import logs, state

FORMAT = "fedldp status 1"

T = TypeVar("T")

# The file by which a folder is recognized, and the module whose `read` returns its status.
_READERS = {
    "server.toml": "fedldp.fleet.server.status",
    "gateway.toml": "fedldp.fleet.gateway.status",
    "vault.toml": "fedldp.fleet.vault.status",
}
_SHOWN = 5  # errors


@final
@dataclass(frozen=True)
class Status:
    """The status of one part.

    >>> found = Status("vault", "vault-1", running=True, details={"vehicles": 200})
    >>> found.document()["vehicles"], found.healthy
    (200, True)
    """

    part: str  # "server", "gateway" or "vault"
    name: str  # of its folder
    running: bool
    since: str | None = None  # when it was started, if it runs
    version: str = __version__  # of fedldp: that which runs, or else that which is installed
    details: Mapping[str, Any] = field(default_factory=dict)  # what only this kind of part knows
    rows: Sequence[tuple[str, str]] = ()  # the details for people
    table: Sequence[Sequence[str]] = ()  # more of them, with the heads of the columns first
    warnings: Sequence[str] = ()  # good to know; some of them need attention too
    errors: Sequence[logs.Line] = ()  # the last lines of the logs, of the level WARNING and above
    unreadable: Sequence[str] = ()  # why some files could not be read
    attention: Sequence[str] = ()  # what somebody should do something about
    next: str = ""  # what happens next

    @property
    def healthy(self) -> bool:
        """Whether nothing needs attention: then `fedldp fleet status` ends with 0."""
        return not self.attention

    def document(self) -> dict[str, Any]:
        """Return the status as a document for JSON."""
        return {
            "format": FORMAT,
            "part": self.part,
            "name": self.name,
            "version": self.version,
            "running": self.running,
            "since": self.since,
            **self.details,
            "warnings": list(self.warnings),
            "errors": [line._asdict() for line in self.errors],
            "unreadable": list(self.unreadable),
            "attention": list(self.attention),
            "next": self.next,
        }


def read(folder: str | os.PathLike[str]) -> list[Status]:
    """Return the status of each part in a folder: of one part, or of a fleet.

    Raise `DomainError` if there is none.
    """
    folder = Path(folder).resolve()
    found = [_status(each, module) for each, module in _parts(folder)]
    if not found:
        names = ", ".join(_READERS)
        closed = [each.name for each in _folders(folder) if not os.access(each, os.X_OK)]
        raise DomainError(
            f"expected the folder of a part of a fleet, with one of the files {names}, or a folder "
            f"that contains such folders; got {folder}."
            + (f" This user may not look into {listed(closed)}." if closed else "")
        )
    return found


def _parts(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the folders of the parts, each with the module that reads it."""
    for each in _folders(folder):
        yield from ((each, _READERS[name]) for name in _READERS if os.access(each / name, os.F_OK))


def _folders(folder: Path) -> list[Path]:
    try:
        return [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    except OSError as error:
        raise DomainError(f"cannot read {folder}: {error.strerror}.") from None


def _status(folder: Path, module: str) -> Status:
    found: Status
    part = module.split(".")[-2]
    try:
        found = import_module(module).read(folder)
    except (FedLDPError, OSError) as error:
        text = explained(error)
        found = Status(part, folder.name, running=False, next=_CANNOT)
        return replace(found, unreadable=[text], attention=[text])
    return found


_CANNOT = "The status cannot be read. See what needs attention."


# What the readers of all parts need.


@final
class Attempts:
    """Collects why some things could not be read, so that the others are still shown."""

    def __init__(self) -> None:
        self.troubles: list[str] = []

    def __call__(self, read: Callable[[], T]) -> T | None:
        """Return what a function reads, or None if it fails."""
        try:
            return read()
        except (FedLDPError, OSError) as error:
            text = explained(error)
            if text not in self.troubles:
                self.troubles.append(text)
            return None


def explained(error: Exception) -> str:
    """Return a sentence about what could not be read."""
    if isinstance(error, PermissionError):
        return f"This user may not read {error.filename}: run the command as the owner of the part."
    return logs.one_line(str(error))


def life(folder: Path, attempt: Attempts) -> tuple[bool, str | None]:
    """Return whether the part of a folder runs, and since when."""
    lock = folder / state.STATE / state.LOCK
    running = attempt(lambda: state.running(folder / state.STATE)) or False
    return running, iso(attempt(lambda: lock.stat().st_mtime)) if running else None


def errors(*paths: Path, attempt: Attempts) -> list[logs.Line]:
    """Return the last lines of some logs that people should know of."""
    found = [line for path in paths for line in attempt(partial(logs.last, path)) or []]
    return sorted(found)[-_SHOWN:]


def iso(seconds: float | None) -> str | None:
    """Return a time, given in seconds since 1970, in ISO 8601.

    >>> iso(0), iso(None)
    ('1970-01-01T00:00:00+00:00', None)
    """
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def clock(seconds: float | None) -> str:
    """Return a time for people: the time of day here, or the date too if it was another day."""
    if seconds is None:
        return "-"
    time, now = datetime.fromtimestamp(seconds), datetime.now()
    return f"{time:%H:%M:%S}" if time.date() == now.date() else f"{time:%Y-%m-%d %H:%M}"


def clock_of(text: str) -> str:
    """Return a time in ISO 8601 for people, as `clock` does."""
    return clock(datetime.fromisoformat(text).timestamp())


def duration(seconds: float | None) -> str:
    """Return a length of time for people.

    >>> duration(42), duration(150), duration(9000), duration(200_000), duration(None)
    ('42 s', '3 min', '2.5 h', '2.3 days', '-')
    """
    if seconds is None:
        return "-"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{-(-seconds // 60):.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
