"""Whose budget is whose: the warnings of a vault if vehicles may have changed places.

With a vehicle column, this column identifies a vehicle, wherever its row is. Without one, it is
the number of its row: if a row is inserted, removed or moved, budgets pass to other vehicles. The
data alone cannot show which of these happened, or whether a vehicle only has new values. So the
vault keeps a digest of its rows, warns if they have changed, and leaves the judgement to the
owner. Rows that were added at the end move nobody.

The digest stays in the state folder beside the data, for the owner alone: anyone who has it and
guesses all values could confirm the guess.
"""

import contextlib
import hashlib
import json
from collections.abc import Collection
from pathlib import Path

from fedldp._internal import documents
from fedldp._internal.validation import Floats
from fedldp.storage import files

FORMAT = "fedldp rows 1"

_FILE = "rows.json"  # in the state folder of a vault


def unknown_vehicles(known: Collection[str], held: Collection[str]) -> str:
    """Return a warning if no vehicle of a ledger is in the data; otherwise an empty text.

    That happens if all vehicles got new ids, for example with another vehicle column.

    >>> unknown_vehicles(["car 1", "car 2"], ["car 2", "car 3"])
    ''
    >>> unknown_vehicles(["0", "1"], ["car 1"])[:53]
    'None of the 2 vehicles in the ledger is in the data. '
    """
    if not known or not set(known).isdisjoint(held):
        return ""
    return (
        f"None of the {len(known):,} vehicles in the ledger is in the data. If the vehicles are "
        "the same under other ids, every one of them can spend its whole cap again. Stop the vault "
        "and restore the ids and the entry `vehicle` in vault.toml."
    )


def moved_rows(state: Path, matrix: Floats, *, answered: bool) -> str:
    """Return a warning if rows have changed since the last start; remember those of today.

    This is for vaults without a vehicle column. `answered` says whether any vehicle has answered:
    before that, no budget can move.
    """
    path = state / _FILE  # the folder is open to its owner alone
    before = _remembered(path)
    moved = answered and before is not None and before != (before[0], _digest(matrix[: before[0]]))
    rows, digest = len(matrix), _digest(matrix)
    if before != (rows, digest):
        with contextlib.suppress(OSError):  # on a full disk: data never decide whether it starts
            files.write(path, json.dumps({"format": FORMAT, "rows": rows, "sha256": digest}))
    if not moved or before is None:
        return ""
    return (
        f"The rows have changed since the last start ({before[0]:,} rows then, {rows:,} "
        "now), and vault.toml names no vehicle column: a vehicle is the number of its row. If a "
        "row was inserted, removed or moved, vehicles now have the budgets of others: stop the "
        "vault and put every row back in its place. If each row is still the same vehicle and only "
        "its values have changed, all is well."
    )


def _remembered(path: Path) -> tuple[int, str] | None:
    """Return the number and the digest of the rows of the last start, if they are known."""
    try:
        found = documents.parse(path.read_text("utf-8"), [FORMAT], ("rows", "sha256"))
        return int(found["rows"]), str(found["sha256"])
    except (OSError, ValueError, TypeError):  # it is missing, damaged, or of another version
        return None


def _digest(matrix: Floats) -> str:
    return hashlib.sha256(matrix.tobytes()).hexdigest()
