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

from fedldp._internal.text import unknown
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
    """Where a data set comes from: the base class of `Embedded`, `Generated` and `File`.

    Attributes
    ----------
    about
        What to know about the data set.
    download
        How to download it, if it can be downloaded.
    generated
        Whether it is generated, with any number of rows.

    Examples
    --------
    >>> where = origin("flights")
    >>> where.about.name, where.ready, where.available
    ('flights', True, 'embedded')
    """

    about: About
    download: Download | None = None
    generated: bool = False

    @property
    def ready(self) -> bool:
        """Whether the data set can be loaded without a path."""
        return True

    @property
    @abstractmethod
    def available(self) -> str:
        """Where the data set is, or how to get it: a word for display."""

    @abstractmethod
    def load(self, path: Path | None, rows: int | None, seed: int) -> Dataset:
        """Return the data set, or its first rows.

        Parameters
        ----------
        path
            The file, for a data set that is read from one; None for its usual place.
        rows
            The number of rows; None for all.
        seed
            The seed of a data set that is generated.

        Returns
        -------
        Dataset
            The data set.

        Raises
        ------
        DomainError
            If the data set is not available, has too few rows, or is not read from a file.

        Examples
        --------
        >>> len(origin("flights").load(None, 50, 0))
        50
        """

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
    """A data set that comes with a package.

    Parameters
    ----------
    about
        What to know about the data set.
    open
        Returns the whole data set.

    Examples
    --------
    >>> Embedded(flights.ABOUT, flights.load).available
    'embedded'
    """

    about: About
    open: Callable[[], Dataset]

    available = "embedded"

    def load(self, path: Path | None, rows: int | None, seed: int) -> Dataset:
        self._without_path(path)
        return self._first(self.open(), rows)


@final
@dataclass(frozen=True)
class Generated(Origin):
    """A data set that is generated from a number of rows and a seed.

    Parameters
    ----------
    about
        What to know about the data set.
    generate
        Returns the data set for a number of rows and a seed.

    Examples
    --------
    >>> few = Generated(flights.ABOUT, lambda rows, seed: flights.load().take(slice(rows)))
    >>> len(few.load(None, 50, seed=0))
    50
    """

    about: About
    generate: Callable[[int, int], Dataset]

    generated = True
    available = "made"

    def load(self, path: Path | None, rows: int | None, seed: int) -> Dataset:
        self._without_path(path)
        return self.generate(rows or self.about.rows or 0, seed)


@final
@dataclass(frozen=True)
class File(Origin):
    """A data set that is read from a file, which may have to be downloaded.

    Parameters
    ----------
    about
        What to know about the data set.
    read
        Returns the data set that a file holds.
    download
        How to download the file; None if that is not possible.

    Examples
    --------
    >>> by_path = File(flights.ABOUT, read=lambda path: flights.load())
    >>> by_path.ready, by_path.available
    (False, 'by path')
    """

    about: About
    read: Callable[[Path], Dataset]
    download: Download | None = None

    @property
    def ready(self) -> bool:
        return self._present() is not None

    @property
    def available(self) -> str:
        if self.download is None:
            return "by path"
        return "fetched" if self.ready else "to fetch"

    def load(self, path: Path | None, rows: int | None, seed: int) -> Dataset:
        found = path or self._present()
        if found is None:
            name = self.about.name
            fetching = f"fetch it with `fedldp data fetch {name}`, or " if self.download else ""
            raise DomainError(f"{name} is not available: {fetching}give its file with --path.")
        return self._first(self.read(found), rows)

    def _present(self) -> Path | None:
        return None if self.download is None else self.download.present()


# What to do if none but the flights are there.
_PAPER = (
    "for those of the paper, install fedldp-reproduction: `pip install ./reproduction` in a clone "
    "of fedldp"
)

_FLIGHTS = Embedded(flights.ABOUT, flights.load)


@cache
def _entry_points() -> dict[str, EntryPoint]:
    return {each.name: each for each in sorted(entry_points(group=GROUP))}


def names() -> tuple[str, ...]:
    """Return the names of all data sets.

    Returns
    -------
    tuple of str
        Names that `load` takes.

    Examples
    --------
    >>> "flights" in names()
    True
    """
    return (_FLIGHTS.about.name, *_entry_points())


def listed() -> str:
    """Return the names of all data sets for a message, and how to get those of the paper.

    Returns
    -------
    str
        The names, separated by commas.

    Examples
    --------
    >>> listed().startswith("flights")
    True
    """
    if _entry_points():
        return ", ".join(names())
    return f"{', '.join(names())} ({_PAPER})"


def origin(name: str) -> Origin:
    """Return where a data set comes from.

    Parameters
    ----------
    name
        The name of the data set.

    Returns
    -------
    Origin
        The origin, which can load the data set.

    Raises
    ------
    UnknownName
        If there is no such data set.
    DomainError
        If a package has registered something else.

    Examples
    --------
    >>> origin("flights").available
    'embedded'
    """
    if name == _FLIGHTS.about.name:
        return _FLIGHTS
    if name not in _entry_points():
        raise unknown("data set", name, names(), hint="" if _entry_points() else f" ({_PAPER})")
    found = _entry_points()[name].load()
    if not isinstance(found, Origin):
        raise DomainError(f"the entry point {name!r} of {GROUP} must be an Origin; got {found!r}.")
    return found


def about(name: str) -> About:
    """Return what to know about a data set, without loading it.

    Parameters
    ----------
    name
        The name of the data set.

    Returns
    -------
    About
        Its title, source, license and size.

    Raises
    ------
    UnknownName
        If there is no such data set.

    Examples
    --------
    >>> about("flights").rows
    327346
    """
    return origin(name).about


def load(
    name: str,
    path: str | PathLike[str] | None = None,
    rows: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Return a data set, or its first rows. Nothing is downloaded: that is what `fetch` does.

    Parameters
    ----------
    name
        The name of the data set.
    path
        The file, for a data set that is read from one and was not fetched.
    rows
        The number of rows; by default all.
    seed
        The seed of a data set that is generated.

    Returns
    -------
    Dataset
        The data set.

    Raises
    ------
    UnknownName
        If there is no such data set.
    DomainError
        If the data set is not available, or has too few rows.

    Examples
    --------
    >>> len(load("flights", rows=50))
    50
    """
    if rows is not None and whole(rows, "rows") < 1:
        raise DomainError(f"rows must be at least 1; got {rows}.")
    return origin(name).load(None if path is None else Path(path), rows, seed)


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Download a data set to the user's cache, unless it is there already.

    Parameters
    ----------
    name
        The name of the data set.
    progress
        A function that is called with the number of bytes so far, and in all if that is known.

    Returns
    -------
    Path
        The file in the cache.

    Raises
    ------
    UnknownName
        If there is no such data set.
    DomainError
        If the data set cannot be downloaded.

    Examples
    --------
    >>> fetch("flights")
    Traceback (most recent call last):
    fedldp.errors.DomainError: flights cannot be fetched: it is here...
    """
    wanted = origin(name)
    if wanted.download is None:
        how = "it is here" if wanted.ready else "get its file yourself, and give it with --path"
        raise DomainError(f"{name} cannot be fetched: {how}. See `fedldp data info {name}`.")
    return wanted.download.fetch(progress)
