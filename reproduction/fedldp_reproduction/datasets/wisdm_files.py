"""WISDM in the files that are published: the archive of 2019, and the transformed set of v1.1.

The archive of UCI holds the recordings of phones and watches; here the accelerations of watches are
read, of the same users and activities as in the CSV file of `wisdm`. The transformed set has a row
for each ten seconds, with 43 numbers; the paper has 43 dimensions too, but describes the raw file.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import numpy.typing as npt

from fedldp.datasets import File
from fedldp.datasets.dataset import About, Dataset
from fedldp.errors import DomainError
from fedldp.schema.schema import Schema
from fedldp_reproduction.datasets.download import FileDownload
from fedldp_reproduction.datasets.wisdm import V1, V2019

_RECORDING = re.compile(r"(?:.*/)?watch/accel/data_(\d+)_accel_watch\.txt")
_MISSING = "?"
_MOVING = ("Walking", "Jogging", "Upstairs", "Downstairs")


def read_2019(path: Path) -> Dataset:
    """Read the archive of 2019 as it is published, or the CSV file that was made from it."""
    if path.suffix.lower() != ".zip":
        return V2019.read_csv(path)
    try:
        with ZipFile(path) as archive:
            inner = [name for name in archive.namelist() if name.lower().endswith(".zip")]
            if any(map(_RECORDING.fullmatch, archive.namelist())) or len(inner) != 1:
                return _recordings(path, archive)
            with archive.open(inner[0]) as opened, ZipFile(opened) as nested:
                return _recordings(path, nested)
    except (BadZipFile, EOFError, OSError, NotImplementedError) as error:
        raise DomainError(f"{path.name} must be a ZIP archive; it cannot be read: {error}.") from (
            error
        )


def _recordings(path: Path, archive: ZipFile) -> Dataset:
    users = {user: code for code, user in enumerate(V2019.users)}
    activities = {activity: code for code, activity in enumerate(V2019.activities)}
    tables, found = [], set()
    for name in sorted(archive.namelist()):
        match = _RECORDING.fullmatch(name)
        if match is None or int(match[1]) not in users:
            continue
        found.add(int(match[1]))
        with archive.open(name) as opened:
            rows = list(_records(name, TextIOWrapper(opened, "utf-8", errors="replace")))
        chosen = [
            (x, y, z, users[int(match[1])], activities[activity])
            for activity, x, y, z in rows
            if activity in activities
        ]
        tables.append(np.array(chosen, np.float64).reshape(-1, 5))
    absent = [user for user in V2019.users if user not in found]
    if absent:
        raise DomainError(
            f"{path.name} must have a file watch/accel/data_USER_accel_watch.txt for each of "
            f"{len(users)} users; those of {', '.join(map(str, absent[:5]))} are missing. Is it "
            "wisdm-dataset.zip of UCI 507?"
        )
    table = np.concatenate(tables)
    columns = tuple(
        each.inputs.compact(table[:, [i]]) for i, each in enumerate(V2019.measured.attributes)
    )
    return V2019.dataset(columns)


def _records(name: str, lines: TextIOWrapper) -> Iterator[tuple[str, float, float, float]]:
    """Yield activity, x, y and z of each line, which is user, activity, time, x, y and z."""
    for number, line in enumerate(lines, 1):
        text = line.strip().rstrip(";")
        if not text:
            continue
        try:
            _, activity, _, *accelerations = text.split(",")
            x, y, z = map(float, accelerations)
        except ValueError as error:
            raise DomainError(
                f"{name}, line {number}: expected user,activity,time,x,y,z; got {text!r:.80}."
            ) from error
        if not np.isfinite([x, y, z]).all():
            raise DomainError(f"{name}, line {number}: expected finite numbers; got {text!r:.80}.")
        yield activity, x, y, z


TRANSFORMED_ABOUT = About(
    name="wisdm-transformed",
    title="WISDM v1.1, transformed",
    source=V1.about.source,
    licence=V1.about.licence,
    citation=V1.about.citation,
    rows=5_418,
    dimensions=44,
    note="A row for ten seconds: 43 numbers. Peaks that were not found (?) are replaced by the "
    "public default. The target is whether the person moves, which is our choice.",
)


def _bounds(name: str) -> tuple[float, float]:
    """Return the public bounds of a number of the transformed set, from what it means."""
    if re.fullmatch(r"[XYZ]\d", name):
        return 0.0, 1.0  # the share of readings in a tenth of the range
    if name.endswith("PEAK"):
        return 0.0, 10_000.0  # milliseconds of ten seconds
    if name.endswith("AVG"):
        return -20.0, 20.0  # m/s^2, about 2 g
    return (0.0, 40.0) if name == "RESULTANT" else (0.0, 20.0)


def read_transformed(path: Path) -> Dataset:
    """Read the transformed set, an ARFF file."""
    names, rows = _arff(path)
    needed = ("user", "class")
    numbers = [name for name in names if name not in (*needed, "UNIQUE_ID")]
    if not set(needed) <= set(names) or len(numbers) != 43:
        raise DomainError(
            f"{path.name} must have user, class and 43 numbers; it has {names!r:.200}. Is it "
            "WISDM_ar_v1.1_transformed.arff?"
        )
    schema = Schema.of(**{name: _bounds(name) for name in numbers}, moves=["no", "yes"])
    table = np.array([[row[names.index(name)] for name in numbers] for row in rows])
    missing = np.array([np.mean(_bounds(name)) for name in numbers])  # the public default
    try:
        values = np.where(table == _MISSING, missing, 0.0)
        given = table != _MISSING
        values[given] = table[given].astype(np.float64)
        users = np.array([int(row[names.index("user")]) for row in rows])
    except ValueError as error:
        raise DomainError(f"{path.name}: expected numbers; {error}.") from error
    if not np.isfinite(values).all():
        raise DomainError(f"{path.name}: expected finite numbers.")
    columns: list[npt.NDArray[Any]] = [
        each.inputs.compact(values[:, [i]]) for i, each in enumerate(schema.attributes[:-1])
    ]
    moves = np.isin([row[names.index("class")] for row in rows], _MOVING)
    return Dataset(
        replace(TRANSFORMED_ABOUT, rows=len(rows)),
        schema,
        (*columns, moves.astype(np.uint8)),
        targets={"logistic": "moves", "hinge": "moves"},
        vehicle_ids=users,
    )


def _arff(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the names and rows of an ARFF file as texts."""
    names: list[str] = []
    rows: list[list[str]] = []
    inside = False
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            text = line.strip().partition("%")[0]
            attribute = re.match(r"@attribute\s+[\"']?([A-Za-z0-9_]+)", text, re.IGNORECASE)
            if attribute and not inside:
                names.append(attribute[1])
            elif text.lower() == "@data":
                inside = True
            elif inside and text:
                row = [field.strip().strip("\"'") for field in text.split(",")]
                if len(row) != len(names):
                    raise DomainError(
                        f"{path.name}, line {number}: there are {len(names)} attributes, but "
                        f"{len(row)} values."
                    )
                rows.append(row)
    if not rows:
        raise DomainError(f"{path.name} must be an ARFF file with rows after @data; it has none.")
    return names, rows


# The address could not be verified when it was added: no checksum is known, and that of the first
# download is kept. It gives an archive that holds wisdm-dataset.zip.
DOWNLOAD_2019 = FileDownload(
    url="https://archive.ics.uci.edu/static/public/507/"
    "wisdm+smartphone+and+smartwatch+activity+and+biometrics+dataset.zip",
    file="wisdm-2019.zip",
    verified=False,
)

WISDM_2019 = File(V2019.about, read_2019, DOWNLOAD_2019)
WISDM_TRANSFORMED = File(TRANSFORMED_ABOUT, read_transformed)
