"""What a vault has been asked since it was started: a small file in its state folder.

It is for the owner, who sees it with `fedldp fleet status`.

It counts questions and remembers the last ones that were not answered. All of it follows from the
questions, the ledger and the owner's configuration, so it is the same for all data; only its times
differ. The file is written at most once a second, so that strangers who ask often cannot wear out a
disk.
"""

import threading
from collections import deque
from pathlib import Path
from time import time
from typing import Any, Self, final

from fedldp import __version__
from fedldp.fleet.protocol import Question
from fedldp.fleet.state import note, noted

FORMAT = "fedldp vault status 1"
FILE = "vault.json"  # in the state folder
OUTCOMES = ANSWERED, REFUSED, NOT_READY = ("answered", "refused", "not ready")

_PAUSE = 1.0  # seconds between two writings
_JOBS = 100  # that are counted separately: anybody can invent names
_LAST = 10  # questions that were not answered, and are remembered


@final
class Record:
    """Counts what a vault was asked. In a `with` statement, it writes that to a file."""

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._vehicles, self._since = path, 0, time()
        self._lock = threading.Lock()
        self._changed, self._ended = threading.Event(), threading.Event()
        self._questions = dict.fromkeys(OUTCOMES, 0)
        self._jobs: dict[str, dict[str, int]] = {}
        self._unanswered: deque[dict[str, Any]] = deque(maxlen=_LAST)
        self._thread = threading.Thread(target=self._write_on, daemon=True)

    def __enter__(self) -> Self:
        if self._path is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join()

    def hold(self, vehicles: int) -> None:
        """Set how many vehicles the vault has."""
        self._vehicles = vehicles
        self._changed.set()

    def count(self, outcome: str, question: Question | None = None, why: str = "") -> None:
        """Count a question by its outcome, with the reason if it was not answered."""
        with self._lock:
            self._questions[outcome] += 1
            if question is not None and (question.job in self._jobs or len(self._jobs) < _JOBS):
                counts = self._jobs.setdefault(question.job, dict.fromkeys(OUTCOMES, 0))
                counts[outcome] += 1
            if outcome != ANSWERED:
                job, number = (None, None) if question is None else (question.job, question.round)
                entry = {"outcome": outcome, "job": job, "round": number, "why": why}
                self._unanswered.append({"time": time(), **entry})
        self._changed.set()

    def document(self) -> dict[str, Any]:
        """Return what is written."""
        with self._lock:
            return {
                "version": __version__,
                "since": self._since,
                "vehicles": self._vehicles,
                "questions": dict(self._questions),
                "jobs": {job: dict(counts) for job, counts in self._jobs.items()},
                "unanswered": list(self._unanswered),
            }

    def _write(self) -> None:
        if self._path is not None:
            note(self._path, FORMAT, **self.document())

    def _write_on(self) -> None:
        while not self._ended.is_set():
            self._changed.wait()
            self._changed.clear()
            self._write()
            self._ended.wait(_PAUSE)
        self._write()


def load(state: Path) -> dict[str, Any]:
    """Read the file in a state folder; return an empty document if there is none."""
    return noted(state / FILE, FORMAT, lambda found: empty() | found, empty())


def empty() -> dict[str, Any]:
    """Return what is known about a vault that has never run."""
    return Record().document() | {"since": None, "vehicles": None}
