"""Vehicle (SensIT): what sensors beside a road heard of vehicles, and of which kind those were."""

import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from fedldp.datasets import File
from fedldp.datasets.dataset import About, Dataset
from fedldp.errors import DomainError
from fedldp.schema import frames
from fedldp.schema.schema import Schema
from fedldp_reproduction.datasets.download import FileDownload

_ROWS, _SIGNALS = 98_528, 100
_SCALED = 1.0  # the bound of signals in other files: assumed, not known
_STANDARDISED = 3.0  # the bound of signals divided by their standard deviation
_TARGETS = ("y", "class", "target", "label")  # what the column of kinds is called in files
_LIBSVM = (".libsvm", ".svm", ".t", ".scale")
_DAMAGED = (OSError, EOFError, BadZipFile, zlib.error)  # what NumPy raises for half a file

ABOUT = About(
    name="vehicle",
    title="Vehicle (SensIT)",
    source="https://www.openml.org/d/357",
    licence="none stated",
    citation="M. F. Duarte and Y. H. Hu. Vehicle classification in distributed sensor networks. "
    "Journal of Parallel and Distributed Computing 64(7), 2004.",
    rows=_ROWS,
    dimensions=101,
    note="No checksum is published: that of the first download is kept, and another file refused. "
    "In an NPZ file (X, y, device) signals are expected as multiples of their standard deviation, "
    "in others within [-1, 1], which is assumed; what lies outside is clipped.",
)

DOWNLOAD = FileDownload(
    url="https://api.openml.org/api/v1/json/data/357", file="vehicle.arff", described=True
)


def read(path: Path) -> Dataset:
    """Read an ARFF file, a CSV file with names, one of libsvm, or an NPZ file.

    That of libsvm has the kind and place:value pairs in each line, and an ending such as .libsvm or
    .t; an NPZ file has X, y and maybe device.
    """
    devices = None
    if path.suffix.lower() in _LIBSVM:
        bound = _SCALED
        signals, kinds = _libsvm(path)
    elif path.suffix.lower() == ".npz":
        bound = _STANDARDISED
        signals, kinds, devices = _npz(path)
    else:
        bound = _SCALED
        signals, kinds = _text(path)
    if signals.ndim != 2 or signals.shape[1] != _SIGNALS or kinds.shape != (len(signals),):
        raise DomainError(
            f"{path.name} must have {_SIGNALS} signals and a kind in each row; got shapes "
            f"{signals.shape} and {kinds.shape}."
        )
    if not len(signals) or not np.isfinite(signals).all() or not np.isin(kinds, (-1, 1)).all():
        raise DomainError(
            f"{path.name} must have rows of finite signals, each with a kind that is -1 or 1."
        )
    about = ABOUT
    if len(signals) != _ROWS:
        about = replace(ABOUT, title=f"Vehicle, {len(signals):,}-row subset")
    return Dataset(
        about,
        Schema.of(signal={"low": -bound, "high": bound, "size": _SIGNALS}, kind=["-1", "1"]),
        (signals, (kinds > 0).astype(np.uint8)),
        targets={"logistic": "kind", "hinge": "kind"},
        vehicle_ids=devices,
    )


def _npz(path: Path) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any] | None]:
    try:
        # Of a damaged file that it opened itself, NumPy would not close all.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in ("X", "y", "device") if name in arrays}
        signals, kinds = found["X"].astype(np.float32), found["y"].astype(np.float64)
    except (LookupError, ValueError, TypeError, AttributeError, *_DAMAGED) as error:
        raise DomainError(
            f"{path.name} must be an NPZ file with arrays X and y: {error}."
        ) from error
    return signals, kinds, found.get("device")


def _libsvm(path: Path) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return signals and kinds of a file of libsvm; of several kinds the last one is 1.

    SensIT has three kinds, of which the third, noise, is told from the two vehicles.
    """
    signals, labels = [], []
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            text = line.partition("#")[0].split()
            if not text:
                continue
            row = np.zeros(_SIGNALS, np.float32)
            try:
                label = float(text[0])
                for pair in text[1:]:
                    place, value = pair.split(":")
                    if not 1 <= int(place) <= _SIGNALS:
                        raise ValueError(f"places are 1 to {_SIGNALS}, not {place}")
                    row[int(place) - 1] = float(value)
            except ValueError as error:
                raise DomainError(
                    f"{path.name}, line {number}: expected a kind and place:value pairs; {error}."
                ) from error
            signals.append(row)
            labels.append(label)
    kinds = np.array(labels)
    if set(labels) == {1.0, 2.0, 3.0}:
        kinds = np.where(kinds == 3, 1.0, -1.0)
    return np.array(signals, np.float32).reshape(-1, _SIGNALS), kinds


def _text(path: Path) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = enumerate(file, 1)
        is_arff = path.suffix.lower() == ".arff"
        declared = _attributes(path, lines) if is_arff else _header(lines)
        names = [name for name, _ in declared]
        omitted = np.array([value for _, value in declared], np.float32)
        places = [place for place, name in enumerate(names) if name.lower() in _TARGETS]
        if len(places) != 1:
            raise DomainError(
                f"{path.name} must have one column with the name y, class, target or label; "
                f"got {names!r:.200}."
            )
        rows = []
        for number, line in lines:
            if text := line.strip().partition("%")[0]:
                try:
                    rows.append(_row(text, omitted))
                except (ValueError, IndexError) as error:
                    raise DomainError(f"{path.name}, line {number}: {error}.") from error
    table = np.array(rows, np.float32).reshape(-1, len(names))
    return np.delete(table, places[0], axis=1), table[:, places[0]]


def _header(lines: Iterator[tuple[int, str]]) -> list[tuple[str, float]]:
    _, line = next(lines, (0, ""))
    return [(name.strip().strip("'\""), 0.0) for name in line.split(",")]


def _attributes(path: Path, lines: Iterator[tuple[int, str]]) -> list[tuple[str, float]]:
    """Return the names that an ARFF file declares, and leave its data.

    With each name comes what a sparse row does not have to give: 0, or the first label.
    """
    found = []
    for number, line in lines:
        word, *rest = line.strip().split(maxsplit=2) or [""]
        if word.lower() == "@data":
            break
        if word.lower() == "@attribute":
            if len(rest) < 2:
                raise DomainError(
                    f"{path.name}, line {number}: an attribute needs a name and a type."
                )
            name, kind = rest
            label = kind.strip("{}").partition(",")[0].strip("'\" \t")
            found.append((name.strip("'\""), frames.to_float(label) if kind[0] == "{" else 0.0))
    return found


def _row(text: str, omitted: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the numbers of a row, also where only those that are not left out are given."""
    size = len(omitted)
    if not text.startswith("{"):
        row = np.array([float(field) for field in text.replace(",", " ").split()], np.float32)
        if len(row) != size:
            raise ValueError(f"there are {size} columns, but {len(row)} values")
        return row
    row = omitted.copy()
    for entry in filter(None, text.strip("{} \t").split(",")):
        place, value = entry.split()
        if not 0 <= int(place) < size:
            raise ValueError(f"there are {size} columns, but a value for number {place}")
        row[int(place)] = float(value)
    return row


VEHICLE = File(ABOUT, read, DOWNLOAD)
