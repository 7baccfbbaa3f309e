"""Data sets, by name: one comes with fedldp, some are made, some are read from files.

>>> flights = load("flights", rows=1000)
>>> flights.examples("logistic").dimensions
33
>>> about("br").title
'SYNTHETIC census like Brazil'
"""

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple, final

from fedldp.checks import whole
from fedldp.datasets import census, flights, gaussian, ipums, vehicle, wisdm
from fedldp.datasets.base import About, Dataset
from fedldp.datasets.download import Download, Progress, present
from fedldp.datasets.download import fetch as fetch_download
from fedldp.datasets.files import from_file
from fedldp.errors import DomainError

__all__ = [
    "About",
    "Dataset",
    "about",
    "availability",
    "download",
    "fetch",
    "from_file",
    "load",
    "names",
]


@final
@dataclass(frozen=True)
class _Embedded:
    """It comes with fedldp."""

    open: Callable[[], Dataset]


@final
@dataclass(frozen=True)
class _Made:
    """It is made: so many rows, from a seed."""

    make: Callable[[int, int], Dataset]


@final
@dataclass(frozen=True)
class _File:
    """It is read from a file, which may be there to fetch."""

    read: Callable[[Path], Dataset]
    download: Download | None = None


class _Entry(NamedTuple):
    about: About
    origin: _Embedded | _Made | _File


_ENTRIES = {
    entry.about.name: entry
    for entry in (
        _Entry(flights.ABOUT, _Embedded(flights.load)),
        *(_Entry(each.about, _Made(each.make)) for each in gaussian.SETS),
        *(_Entry(each.about, _Made(each.make)) for each in (census.BR, census.MX)),
        _Entry(wisdm.V1.about, _File(wisdm.V1.read_records, wisdm.DOWNLOAD)),
        _Entry(wisdm.V2019.about, _File(wisdm.V2019.read_csv)),
        _Entry(vehicle.ABOUT, _File(vehicle.read, vehicle.DOWNLOAD)),
        _Entry(ipums.ABOUT, _File(ipums.load)),
    )
}


def names() -> tuple[str, ...]:
    """Return the names of all data sets."""
    return tuple(_ENTRIES)


def about(name: str) -> About:
    """Return what to know about a data set, without loading it."""
    return _entry(name).about


def download(name: str) -> Download | None:
    """Return where a data set is fetched from, or None if it is not."""
    origin = _entry(name).origin
    return origin.download if isinstance(origin, _File) else None


def availability(name: str) -> Literal["embedded", "made", "fetched", "to fetch", "by path"]:
    """Tell whether a data set can be loaded at once, or what it takes."""
    origin = _entry(name).origin
    if isinstance(origin, _Embedded):
        return "embedded"
    if isinstance(origin, _Made):
        return "made"
    if origin.download is None:
        return "by path"
    return "fetched" if origin.download.path.exists() else "to fetch"


def load(
    name: str,
    path: str | PathLike[str] | None = None,
    rows: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Return a data set, or its first rows. Nothing is downloaded: that is what `fetch` does.

    `path` is where the file is, for a data set that is read from one and was not fetched; `seed`
    is for those that are made.

    >>> len(load("gaussian-1-3", rows=50, seed=7))
    50
    """
    known, origin = _entry(name)
    if rows is not None and whole(rows, "rows") < 1:
        raise DomainError(f"rows must be at least 1; got {rows}.")
    if path is not None and not isinstance(origin, _File):
        raise DomainError(f"{name} is not read from a file: leave the path out.")
    if isinstance(origin, _Made):
        return origin.make(rows or known.rows or 0, seed)
    if isinstance(origin, _Embedded):
        found = origin.open()
    else:
        found = origin.read(_located(name, origin) if path is None else Path(path))
    if rows is not None and rows > len(found):
        raise DomainError(f"{name} has {len(found)} rows; got rows = {rows}.")
    return found if rows is None else found.take(slice(rows))


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Download a data set to the user's cache, unless it is there, and return its path."""
    wanted = download(name)
    if wanted is None:
        is_file = isinstance(_entry(name).origin, _File)
        way = "you get its file yourself, and give it with --path" if is_file else "it is here"
        raise DomainError(f"{name} cannot be fetched: {way}. See `fedldp data info {name}`.")
    return fetch_download(wanted, progress)


def _located(name: str, file: _File) -> Path:
    found = file.download and present(file.download)
    if found is None:
        fetching = f"fetch it with `fedldp data fetch {name}`, or " if file.download else ""
        raise DomainError(f"{name} is not here: {fetching}give its file with --path.")
    return found


def _entry(name: str) -> _Entry:
    if name not in _ENTRIES:
        raise DomainError(f"the data set must be one of {names()}; got {name!r}.")
    return _ENTRIES[name]
