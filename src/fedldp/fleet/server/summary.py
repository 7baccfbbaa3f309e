"""The outcome of a job: the summary that every job writes beside its result.

A tally or a model contains only what was counted, and does not show how much is missing. The
summary does. It names the result by its SHA-256, so that a reader can verify that they belong
together, and does not mistake the result of another job for this one's.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from fedldp._internal import documents
from fedldp.errors import WireError
from fedldp.fleet.job import ENDING
from fedldp.fleet.server.checkpoint import Counts, total
from fedldp.storage import files
from fedldp.vehicle import canonical

FORMAT = "fedldp job summary 1"

_ENTRIES = {"job", "plan", "planned", "complete", "failed", "reason", "rounds", "rounds_done"}
_ENTRIES |= {"result"}
_NAMES = {  # of the counts, in the file
    "asked": "asked",
    "answered": "reports",
    "silent": "silent",
    "refused_or_absent": "refusals",
}


@final
@dataclass(frozen=True)
class Summary:
    """How many reports a job planned and collected, in each round, and why it ended.

    >>> rounds = Counts(asked=4, reports=4), Counts(asked=4, reports=1, refusals=3)
    >>> found = Summary("spring", "ab", 8, rounds, done=2, reason="all rounds are done")
    >>> found.answered, found.complete, found.failed
    (5, False, False)
    >>> Summary.from_json(found.to_json()) == found
    True
    """

    job: str
    plan: str  # its fingerprint
    planned: int  # reports
    rounds: tuple[Counts, ...]  # that were asked
    done: int  # how many of these rounds were completed
    reason: str  # why the job ended
    failed: bool = False  # whether it has no result
    result: str = ""  # the SHA-256 of the result, in hexadecimal

    @property
    def total(self) -> Counts:
        """The counts of all rounds together."""
        return total(self.rounds)

    @property
    def answered(self) -> int:
        """How many reports the job collected."""
        return self.total.reports

    @property
    def complete(self) -> bool:
        """Whether the job collected as many reports as were planned."""
        return not self.failed and self.answered >= self.planned

    def __str__(self) -> str:
        return collected(self.total, self.planned)

    def to_json(self) -> str:
        """Return the summary as canonical JSON."""
        document = {
            "format": FORMAT,
            "job": self.job,
            "plan": self.plan,
            "planned": self.planned,
            "complete": self.complete,
            "failed": self.failed,
            "reason": self.reason,
            "rounds": [_document(counts) for counts in self.rounds],
            "rounds_done": self.done,
            "result": self.result or None,
        }
        return canonical(document | _document(self.total))

    @classmethod
    def from_json(cls, text: str) -> "Summary":
        """Read a summary, or raise `WireError`."""
        with documents.reading(repr(FORMAT)):
            document = documents.parse(text, [FORMAT], (*_ENTRIES, *_NAMES))
            found = cls(
                document["job"],
                document["plan"],
                document["planned"],
                tuple(_counts(each) for each in document["rounds"]),
                document["rounds_done"],
                document["reason"],
                document["failed"],
                document["result"] or "",
            )
            documents.check_written(found.to_json(), canonical(document))
        return found

    @classmethod
    def load(cls, path: Path) -> "Summary":
        """Read a summary from a file."""
        return cls.from_json(path.read_text("utf-8", errors="replace"))

    def save(self, path: Path) -> None:
        """Write the summary to a file."""
        files.write(path, self.to_json())


def collected(counts: Counts, planned: int) -> str:
    """Return a line that says how many of the planned reports came.

    >>> collected(Counts(asked=9, reports=8, silent=1), planned=10)
    '8 of 10 planned reports: 9 vehicles asked, 8 answered, 1 silent, 0 refused or absent.'
    """
    return f"{counts.reports:,} of {planned:,} planned reports: {counts}."


def digest(data: bytes) -> str:
    """Return the SHA-256 that a summary has of its result."""
    return hashlib.sha256(data).hexdigest()


def shortfalls(result: Path) -> Iterator[str]:
    """Yield a line if a result is of a job that collected fewer reports than planned.

    It is found in the summaries beside the result. Summaries of other results and invalid files are
    skipped.
    """
    beside = sorted(result.absolute().parent.glob(f"*{ENDING}"))
    own = digest(result.read_bytes()) if beside else ""
    for path in beside:
        try:
            found = Summary.load(path)
        except (OSError, WireError):
            continue
        if found.result == own and not found.complete:
            yield (
                f"{result}: the job {found.job} collected fewer reports than planned: {found} "
                f"It ended because {found.reason}. See {path.name}."
            )


def _document(counts: Counts) -> dict[str, int]:
    return {name: getattr(counts, field) for name, field in _NAMES.items()}


def _counts(document: dict[str, Any]) -> Counts:
    return Counts(**{field: document[name] for name, field in _NAMES.items()})
