"""Data sets from your own files: CSV or Parquet, with a schema and a target."""

import gzip
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp.datasets.dataset import About, Dataset
from fedldp.errors import DomainError
from fedldp.learn.objectives import OBJECTIVES
from fedldp.schema import frames
from fedldp.schema.quality import DataQuality, total
from fedldp.schema.schema import Schema
from fedldp.schema.vehicle_ids import VehicleIds


def from_file(
    path: str | PathLike[str],
    schema: Schema,
    target: str | None = None,
    vehicle_id: str | None = None,
    *,
    strict: bool = False,
) -> Dataset:
    r"""Return the data set that a CSV (also .csv.gz) or Parquet file holds.

    Values outside the bounds are clipped, and missing, unreadable or unknown ones are replaced by
    the public default, as on a vehicle; a `DataWarning` says so.

    Parameters
    ----------
    path
        The file.
    schema
        The attributes of the columns to read.
    target
        The column of the schema that a model predicts: a number for linear regression, a category
        with two labels for the other objectives, with more labels for softmax.
    vehicle_id
        The column with the id of each row's vehicle, if a vehicle has several rows. Ids are
        compared as they are written.
    strict
        Raise `DomainError` if a value would be clipped or replaced.

    Returns
    -------
    Dataset
        The rows of the file.

    Raises
    ------
    DomainError
        If the file cannot be read, a target is missing (nobody may make one up), or `strict` is set
        and a value would be changed.

    Examples
    --------
    >>> path = Path(tempfile.mkdtemp(), "fleet.csv")
    >>> _ = path.write_text("age,city,sold\n31,Oslo,no\n54,Rome,yes\n")
    >>> schema = Schema.of(age=(0, 100), city=["Oslo", "Rome"], sold=["no", "yes"])
    >>> fleet = from_file(path, schema, target="sold")
    >>> len(fleet), fleet.targets
    (2, {'logistic': 'sold', 'hinge': 'sold'})
    """
    data, quality = read_file(path, schema, target, vehicle_id, strict=strict)
    quality.warn(stacklevel=2)
    return data


def read_file(
    path: str | PathLike[str],
    schema: Schema,
    target: str | None,
    vehicle_id: str | None,
    *,
    strict: bool,
) -> tuple[Dataset, DataQuality]:
    """Return what `from_file` returns, and what was clipped or replaced, without a warning."""
    path = Path(path)
    targets = _targets(schema, target)
    gathered, vehicles = Gathered(schema), VehicleIds(vehicle_id)
    try:
        for chunk in read(path):
            gathered.add(chunk.data, chunk.first_row)
            vehicles.add(chunk.data, chunk.first_row)
        columns, quality = gathered.columns(), gathered.quality().using(vehicle_id)
        if target is not None and quality[target].replaced:
            raise DomainError(
                f"every row must have the target; {quality[target]}. Correct or drop such rows."
            )
        if strict:
            quality.refuse()
    except DomainError as error:
        raise DomainError(f"{path.name}: {error}") from error
    about = About(path.stem, title=path.name, source=str(path))
    return Dataset(about, schema, columns, targets, vehicle_ids=vehicles.numbers()), quality


def read(path: Path) -> Iterator[frames.Chunk]:
    """Read a file as `frames.read` does, also a gzip-compressed one."""
    with unpack(path) as plain:
        yield from frames.read(plain)


@contextmanager
def unpack(path: Path) -> Iterator[Path]:
    """Unpack a .gz file temporarily, under its own name without the suffix."""
    if path.suffix.lower() != ".gz":
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="fedldp-") as folder:
        plain = Path(folder, path.stem)
        try:
            with gzip.open(path) as packed, plain.open("wb") as file:
                shutil.copyfileobj(packed, file, 1 << 20)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DomainError(
                f"{path.name} is damaged or not a gzip file: {error}. Download it again."
            ) from error
        yield plain


@final
class Gathered:
    """Compact columns that grow by some rows at a time."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._parts: list[list[npt.NDArray[Any]]] = [[] for _ in schema]
        self._qualities: list[DataQuality] = []

    def add(self, data: Any, first_row: int) -> DataQuality:
        """Add rows, and return what is clipped or replaced in them."""
        matrix, quality = self._schema.rows(data, first_row).read()
        self._qualities.append(quality)
        place = 0
        for attribute, parts in zip(self._schema.attributes, self._parts, strict=True):
            parts.append(attribute.inputs.compact(matrix[:, place : place + attribute.size]))
            place += attribute.size
        return quality

    def quality(self) -> DataQuality:
        """Return what was clipped or replaced in all rows."""
        return total(self._qualities)

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """Return the column of each attribute, or raise `DomainError` if there are no rows."""
        if not self._parts[0]:
            raise DomainError("there are no rows.")
        return tuple(np.concatenate(parts) for parts in self._parts)


def _targets(schema: Schema, target: str | None) -> dict[str, str]:
    if target is None:
        return {}
    fitting = [each for each in OBJECTIVES.values() if each.fits(schema[target])]
    if not fitting:
        OBJECTIVES["squared"].for_target(schema[target])  # says why
    # Two labels need no entry for "softmax", which would change the fingerprint of the data.
    chosen = [each.name for each in fitting if each.outputs == 1] or [e.name for e in fitting]
    return dict.fromkeys(chosen, target)
