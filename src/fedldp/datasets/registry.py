"""Which data sets there are: the flights, and those that other packages register.

A package registers a data set with an entry point of the group `fedldp.datasets`. Its name is that
of the data set, and it points to an `Origin`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, final

from fedldp._internal.validation import whole
from fedldp.datasets import flights
from fedldp.datasets.dataset import About, Dataset
from fedldp.errors import DomainError

GROUP = "fedldp.datasets"

Progress = Callable[[int, int | None], None]  # bytes so far, and in all if that is known


class Download(Protocol):
    """A file that can be downloaded and is kept in the user's cache."""

    @property
    def description(self) -> dict[str, Any]:
        """Its address, size and checksum, as far as they are known."""

    def present(self) -> Path | None:
        """Return where the file is, or None if it was not downloaded."""

    def fetch(self, progress: Progress | None = None) -> Path:
        """Return where the file is; download it first if it is not there."""


class Origin(ABC):
    """Where a data set comes from."""

    about: About
    download: Download | None = None

    @property
    @abstractmethod
    def available(self) -> str:
        """Whether it can be loaded at once, or what it takes."""

    @abstractmethod
    def load(self, path: Path | None, rows: int | None, seed: int) -> Dataset:
        """Return the data set, or its first rows."""

    @property
    def how_to_get(self) -> str:
        """What to do to have it, if it cannot be downloaded."""
        return "it is here"

    def _without_path(self, path: Path | None) -> None:
        if path is not None:
            raise DomainError(f"{self.about.name} is not read from a file: leave the path out.")

    def _first(self, found: Dataset, rows: int | None) -> Dataset:
        if rows is None:
            return found
        if rows > len(found):
            raise DomainError(f"{self.about.name} has {len(found)} rows; got rows = {rows}.")
        return found.take(slice(rows))


@final
@dataclass(frozen=True)
class Embedded(Origin):
    """A data set that comes with a package."""

    about: About
    open: Callable[[], Dataset]

    available = "embedded"

    def load(self, path: Path | None, rows: int | None, seed: int) -> Dataset:
        self._without_path(path)
        return self._first(self.open(), rows)


@final
@dataclass(frozen=True)
class Generated(Origin):
    """A data set that is generated from a number of rows and a seed."""

    about: About
    generate: Callable[[int, int], Dataset]

    available = "made"

    def load(self, path: Path | None, rows: int | None, seed: int) -> Dataset:
        self._without_path(path)
        return self.generate(rows or self.about.rows or 0, seed)


@final
@dataclass(frozen=True)
class File(Origin):
    """A data set that is read from a file, which may be one to download."""

    about: About
    read: Callable[[Path], Dataset]
    download: Download | None = None

    @property
    def available(self) -> str:
        """Whether it can be loaded at once, or what it takes."""
        if self.download is None:
            return "by path"
        return "to fetch" if self.download.present() is None else "fetched"

    @property
    def how_to_get(self) -> str:
        """What to do to have it, if it cannot be downloaded."""
        return "you get its file yourself, and give it with --path"

    def load(self, path: Path | None, rows: int | None, seed: int) -> Dataset:
        return self._first(self.read(self._located() if path is None else path), rows)

    def _located(self) -> Path:
        name, download = self.about.name, self.download
        if download is not None and (found := download.present()) is not None:
            return found
        fetching = f"fetch it with `fedldp data fetch {name}`, or " if download else ""
        raise DomainError(f"{name} is not here: {fetching}give its file with --path.")


_FLIGHTS = Embedded(flights.ABOUT, flights.load)


@cache
def _registered() -> dict[str, EntryPoint]:
    return {each.name: each for each in sorted(entry_points(group=GROUP))}


def names() -> tuple[str, ...]:
    """Return the names of all data sets."""
    return (_FLIGHTS.about.name, *_registered())


def origin(name: str) -> Origin:
    """Return where a data set comes from."""
    if name == _FLIGHTS.about.name:
        return _FLIGHTS
    if name not in _registered():
        raise DomainError(f"the data set must be one of {names()}; got {name!r}.")
    found = _registered()[name].load()
    if not isinstance(found, Origin):
        raise DomainError(f"the entry point {name!r} of {GROUP} must be an Origin; got {found!r}.")
    return found


def about(name: str) -> About:
    """Return what to know about a data set, without loading it."""
    return origin(name).about


def load(
    name: str,
    path: str | PathLike[str] | None = None,
    rows: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Return a data set, or its first rows. Nothing is downloaded: that is what `fetch` does.

    `path` is where the file is, for a data set that is read from one and was not fetched; `seed`
    is for those that are generated.

    >>> len(load("flights", rows=50))
    50
    """
    if rows is not None and whole(rows, "rows") < 1:
        raise DomainError(f"rows must be at least 1; got {rows}.")
    return origin(name).load(None if path is None else Path(path), rows, seed)


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Download a data set to the user's cache, unless it is there, and return its path."""
    wanted = origin(name)
    if wanted.download is None:
        raise DomainError(
            f"{name} cannot be fetched: {wanted.how_to_get}. See `fedldp data info {name}`."
        )
    return wanted.download.fetch(progress)
