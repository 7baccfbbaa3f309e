"""Where the rows of an agent's vehicles come from: a file, or a program.

Which vehicles there are is settled when the agent starts. From then on no vehicle is dropped
because of its data: one without rows counts as one whose values are all missing. A file is read
when the agent starts, and again when it has changed and an answer is drawn; if that fails, the rows
that were read before stay, and the owner is told.
"""

import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, final

import numpy as np

from fedldp.errors import DomainError
from fedldp.schema import frames
from fedldp.schema.quality import DataQuality, total
from fedldp.schema.rows import with_counts
from fedldp.schema.rules import by_rule
from fedldp.schema.schema import Schema
from fedldp.schema.vehicle_ids import VehicleIds
from fedldp.storage.files import WatchedFiles
from fedldp.vehicle import RANDOM, exact, warn_owner
from fedldp_fleet.agent.many import Held
from fedldp_fleet.library import Floats

Tell = Callable[[str], object]


@final
class TableRows:
    """Rows that are in memory: the matrix of a schema, and the id of each row's vehicle.

    >>> rows = TableRows(Schema.of(speed=(0, 50)), np.array([[31.0], [48.0]]), ["car 2", "car 1"])
    >>> rows.vehicle_ids, rows.held().owners
    (['car 1', 'car 2'], array([1, 0]))
    """

    def __init__(
        self,
        schema: Schema,
        matrix: Floats,
        ids: Sequence[str],
        epsilons: Sequence[Fraction | None] = (),
    ) -> None:
        width = sum(attribute.size for attribute in schema.attributes)
        if matrix.shape != (len(ids), width) or not len(ids):
            raise DomainError(
                f"the matrix must have a row of {width} values for each of {len(ids)} ids, and at "
                f"least one; got an array of shape {matrix.shape}."
            )
        self.schema = schema
        if any(attribute.rule != RANDOM for attribute in schema.attributes):
            raise DomainError("rows with rules must come from a file or a program, not a matrix.")
        names, owners = np.unique(np.asarray(ids), return_inverse=True)
        self.vehicle_ids: Sequence[str] = names.tolist()
        self.epsilons = epsilons
        self._held = Held(matrix, owners)

    def held(self) -> Held:
        """Return the rows."""
        return self._held


@final
class ProgramRows:
    """Rows that a program returns whenever an answer is drawn.

    Parameters
    ----------
    schema
        The attributes.
    program
        A function that returns rows in any form that `Schema.rows` reads. If it fails, all values
        count as missing.
    vehicle_ids
        The vehicles.
    column
        The column with the id of each row's vehicle; without it, all rows are those of the only
        vehicle.
    """

    def __init__(
        self,
        schema: Schema,
        program: Callable[[], Any],
        vehicle_ids: Sequence[str],
        column: str | None = None,
        epsilons: Sequence[Fraction | None] = (),
        tell: Tell = warn_owner,
    ) -> None:
        if column is None and len(vehicle_ids) != 1:
            raise DomainError("rows of several vehicles need a column with their ids.")
        self.schema, self.vehicle_ids, self.epsilons = schema, sorted(vehicle_ids), epsilons
        self._program, self._column, self._tell = program, column, tell

    def held(self) -> Held:
        """Call the program, and return its rows."""
        try:
            data = self._program()
            rows = self.schema.rows(data, several=True)
            matrix, quality = rows.read()
            ids = VehicleIds(self._column, tolerant=True)
            ids.add(data, 0)
            names = ids.names() if self._column else [self.vehicle_ids[0]] * len(matrix)
            if self._column:
                quality = quality_of_vehicles(self.schema, quality, rows.unjoined(), names)
            tell_quality(quality.using(self._column), self._tell)
            return of_vehicles(self.schema, matrix, rows.unjoined(), names, self.vehicle_ids)
        except BaseException as error:  # whatever the data cause, all vehicles answer
            self._tell(f"fedldp agent: the rows cannot be read: {type(error).__name__}: {error}")
        matrix = np.full((len(self.vehicle_ids), width_of(self.schema)), np.nan)
        return Held(matrix, np.arange(len(self.vehicle_ids)))


@final
class FileRows:
    """Rows of a CSV or Parquet file.

    Parameters
    ----------
    path, schema
        The file, and the attributes that are read from it.
    column
        The column with the id of each row's vehicle. Without it, a vehicle is the number of its
        row: then nothing may be inserted or removed.
    epsilon
        A column with the epsilon that each vehicle has chosen.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema,
        column: str | None = None,
        epsilon: str | None = None,
        tell: Tell = warn_owner,
    ) -> None:
        self.schema, self._path, self._column = schema, Path(path), column
        self._epsilon, self._tell = epsilon, tell
        self._watched = WatchedFiles(self._path)
        matrix, unjoined, names, epsilons = self._read()
        self.vehicle_ids: Sequence[str] = sorted(set(names))
        self._held = of_vehicles(schema, matrix, unjoined, names, self.vehicle_ids)
        chosen = dict(sorted(zip(names, epsilons, strict=True), key=lambda pair: bool(pair[1])))
        self.epsilons: Sequence[Fraction | None] = ()
        if epsilon is not None:  # without one, a vehicle fits no plan
            self.epsilons = [_epsilon(chosen[name]) for name in self.vehicle_ids]

    def held(self) -> Held:
        """Return the rows of the file, or those that were read before if it cannot be read now."""
        if self._watched.changed():
            try:
                matrix, unjoined, names, _ = self._read()
                self._held = of_vehicles(self.schema, matrix, unjoined, names, self.vehicle_ids)
            except Exception as error:  # a file that is being written, for example
                self._tell(
                    f"fedldp agent: {self._path} was not read again, the old rows stay: {error}"
                )
        return self._held

    def _read(self) -> tuple[Floats, Floats | None, list[str], list[str]]:
        """Return the rows that belong to a vehicle, twice, its id, and the epsilon in each row.

        A row is left out if its vehicle is unknown. So is a malformed one if its vehicle has
        others, as a cell that was shifted may name another vehicle.
        """
        matrices: list[Floats] = []
        unjoined: list[Floats] = []
        qualities: list[DataQuality] = []
        epsilons: list[str] = []
        ids, malformed = VehicleIds(self._column, tolerant=True), set[int]()
        for chunk in frames.read(self._path, tolerant=True, vehicle=self._column):
            several = self._column is not None
            rows = self.schema.rows(chunk.data, chunk.first_row, several=several)
            matrix, quality = rows.read()
            matrices.append(matrix)
            unjoined.append(rows.unjoined())
            qualities.append(quality.with_malformed(chunk.malformed))
            ids.add(chunk.data, chunk.first_row)
            malformed |= chunk.malformed.keys()
            epsilons += self._epsilons(chunk.data, len(matrix))
        matrix = np.concatenate(matrices or [np.empty((0, width_of(self.schema)))])
        names = ids.names() if self._column else [str(row) for row in range(len(matrix))]
        sound = {name for row, name in enumerate(names) if row not in malformed}
        used = [
            row
            for row, name in enumerate(names)
            if name and (row not in malformed or name not in sound)
        ]
        if not used:
            raise DomainError(f"{self._path} has no rows of a known vehicle.")
        quality = total(qualities)
        if self._column:
            mine = np.concatenate(unjoined)[used], [names[row] for row in used]
            quality = quality_of_vehicles(self.schema, quality, *mine)
        tell_quality(quality.using(self._column, self._epsilon), self._tell)
        return (
            matrix[used],
            np.concatenate(unjoined)[used] if self._column else None,
            [names[row] for row in used],
            [epsilons[row] for row in used],
        )

    def _epsilons(self, data: Any, rows: int) -> list[str]:
        if self._epsilon is None:
            return [""] * rows
        table = frames.table(data)
        if self._epsilon not in table.names:
            raise DomainError(
                f"epsilons must be a column of {self._path}, one of {list(table.names)!r:.500}; "
                f"got {self._epsilon!r}."
            )
        cells = table.cells(self._epsilon, 0, rows)
        return ["" if frames.is_missing(cell) else str(cell).strip() for cell in cells]


def of_vehicles(
    schema: Schema,
    matrix: Floats,
    unjoined: Floats | None,
    names: Sequence[str],
    vehicle_ids: Sequence[str],
) -> Held:
    """Return the rows of some vehicles, with a row of missing values for each that has none.

    `unjoined` is what `Rows` returns under this name, or None if each vehicle has one row.
    """
    place = {name: number for number, name in enumerate(vehicle_ids)}
    owners = np.array([place.get(name, -1) for name in names], np.int64)
    kept = owners >= 0
    absent = np.setdiff1d(np.arange(len(vehicle_ids)), owners[kept])
    missing = np.full((len(absent), width_of(schema)), np.nan)
    return Held(
        np.concatenate([matrix[kept], missing]),
        np.concatenate([owners[kept], absent]),
        None
        if unjoined is None
        else by_rule(schema.attributes, unjoined[kept], owners[kept], len(vehicle_ids)),
    )


def quality_of_vehicles(
    schema: Schema, quality: DataQuality, unjoined: Floats, names: Sequence[str]
) -> DataQuality:
    """Return the quality of rows, with that of the counts of each vehicle's rows."""
    vehicles, owners = np.unique(names, return_inverse=True)
    return with_counts(quality, schema.attributes, unjoined, owners, len(vehicles))


def width_of(schema: Schema) -> int:
    """Return how many columns the matrix of a schema has."""
    return sum(attribute.size for attribute in schema.attributes)


def tell_quality(quality: DataQuality, tell: Tell) -> None:
    """Tell the owner how many values will be clipped or replaced."""
    if not quality.clean:
        for line in quality.summary(examples=False).splitlines():
            tell(f"fedldp agent: {line.strip()}")


def _epsilon(text: str) -> Fraction:
    try:
        return exact(text)
    except ValueError:
        return Fraction()
