"""Vehicle ids: the column of a file that names the vehicle of each row."""

from typing import Any, final

import numpy as np

from fedldp._internal.validation import Integers
from fedldp.errors import DomainError
from fedldp.schema import frames


@final
class VehicleIds:
    """The vehicle of each row, for rows that are added some at a time.

    >>> found = VehicleIds("car")
    >>> found.add({"car": ["b", "a"]}, 0); found.add({"car": ["b"]}, 2)
    >>> found.names(), found.numbers()
    (['b', 'a', 'b'], array([0, 1, 0]))
    """

    def __init__(self, column: str | None, *, tolerant: bool = False) -> None:
        self._column, self._tolerant = column, tolerant
        self._known: dict[str, int] = {}
        self._numbers: list[int] = []

    def add(self, data: Any, first_row: int) -> None:
        """Add rows, and raise `DomainError` for one without a vehicle.

        If they are tolerant, the vehicle of such a row is an empty text, unless ids are numbers:
        with one missing, a reader may make floats of all of them, which are other ids.
        """
        if self._column is None:
            return
        table = frames.table(data)
        if self._column not in table.names:
            raise DomainError(
                f"the data have no column {self._column!r} with vehicle ids; they have "
                f"{list(table.names)!r:.500}."
            )
        cells = table.cells(self._column, 0, len(table))
        tolerant = self._tolerant and not isinstance(cells, np.ndarray)
        for row, cell in enumerate(cells, first_row):
            name = "" if frames.is_missing(cell) else str(cell).strip()
            if tolerant and not name.isprintable():
                name = ""
            if frames.is_missing(cell) and not tolerant:
                raise DomainError(
                    f"row {row} (the first is 0), column {self._column!r}: the value is missing, "
                    "so the vehicle of the row is unknown. Correct or drop the row."
                )
            self._numbers.append(self._known.setdefault(name, len(self._known)))

    def names(self) -> list[str]:
        """Return the vehicle_id of each row."""
        known = list(self._known)
        return [known[number] for number in self._numbers]

    def numbers(self) -> Integers | None:
        """Return a number for the vehicle of each row, in order of first occurrence.

        Return None if there is no such column: then each row is a vehicle of its own.
        """
        return None if self._column is None else np.array(self._numbers, np.int64)
