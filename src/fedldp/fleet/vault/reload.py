"""Reload the data of a running vault: ask for it, and read what came of it.

`fedldp fleet reload` sends SIGHUP to the process of a vault, as `systemctl reload` does. The vault
reads its data again and writes the outcome to a file in its state folder.
"""

import json
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import final

from fedldp._internal import documents
from fedldp.errors import DomainError
from fedldp.fleet import state
from fedldp.storage import files

FORMAT = "fedldp reload 1"
PATIENCE = 600.0  # seconds for a vault to read its data

_FILE = "reload.json"  # in the state folder of a vault
_POLL = 0.05


@final
@dataclass(frozen=True)
class Outcome:
    """What came of a reload: whether the new data are used, and a sentence about it."""

    done: bool
    said: str

    def save(self, folder: Path) -> None:
        """Write it to the state folder of a vault."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, indent=2)
        files.write(folder / state.STATE / _FILE, text)

    @classmethod
    def load(cls, folder: Path) -> "Outcome":
        """Read the outcome of the last reload."""
        text = (folder / state.STATE / _FILE).read_text("utf-8")
        with documents.reading(repr(FORMAT)):
            entries = documents.parse(text, [FORMAT], ("done", "said"))
            return cls(bool(entries["done"]), str(entries["said"]))


def request(folder: Path, patience: float = PATIENCE) -> Outcome:
    """Have the running vault of a folder read its data again, and wait for the outcome."""
    outcome = files.WatchedFiles(folder / state.STATE / _FILE)
    pid = state.holder(folder / state.STATE)
    if pid is None:
        raise DomainError(
            f"{folder} is not running, so there is nothing to reload: a vault reads its data when "
            f"it starts. Start it: fedldp fleet vault {folder}"
        )
    os.kill(pid, signal.SIGHUP)
    deadline = monotonic() + patience
    while not outcome.changed():
        if state.holder(folder / state.STATE) != pid:
            raise DomainError(f"{folder} ended while it was asked to reload: see its log.")
        if monotonic() >= deadline:
            raise DomainError(
                f"{folder} has not finished reading its data after {patience:g} seconds. It still "
                "answers with the data that it had: see its log."
            )
        sleep(_POLL)
    return Outcome.load(folder)


def has_terminal() -> bool:
    """Return whether this process has a terminal that is open.

    SIGHUP also comes when the terminal of a process is closed, which then should end.
    """
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
