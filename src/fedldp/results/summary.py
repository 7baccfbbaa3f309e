"""What came of a job: the summary that lies beside its result.

A tally or a model contains only what was counted, and does not show how much is missing. The
summary does. It names the result by its SHA-256, so that nobody mistakes the result of another job
for this one's.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from fedldp._internal import documents
from fedldp.errors import WireError
from fedldp.storage import files
from fedldp.vehicle import canonical

FORMAT = "fedldp job summary 2"
ENDING = ".summary.json"

_ENTRIES = ("job", "wanted", "answers", "uncounted", "rounds", "reason", "failed", "result")


@final
@dataclass(frozen=True)
class Summary:
    """How many answers a job wanted and counted, and why it ended.

    Attributes
    ----------
    job
        Its name.
    wanted
        The answers that it wanted in all.
    rounds
        The answers that were counted in each round.
    uncounted
        The vehicles whose answers came and do not count, by reason.
    reason
        Why it ended.
    failed
        Whether it has no result.
    result
        The SHA-256 of the result, in hexadecimal.

    Examples
    --------
    >>> found = Summary("spring", 8, (4, 1), {"late": 3}, "all rounds are done")
    >>> found.answers, found.complete
    (5, False)
    >>> Summary.from_json(found.to_json()) == found
    True
    """

    job: str
    wanted: int
    rounds: tuple[int, ...]
    uncounted: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    failed: bool = False
    result: str = ""

    @property
    def answers(self) -> int:
        """How many answers were counted."""
        return sum(self.rounds)

    @property
    def complete(self) -> bool:
        """Whether the job has counted as many answers as it wanted."""
        return not self.failed and self.answers >= self.wanted

    def __str__(self) -> str:
        others = ", ".join(f"{count:,} {name}" for name, count in sorted(self.uncounted.items()))
        return f"{self.answers:,} of {self.wanted:,} answers{others and '; not counted: '}{others}."

    def to_json(self) -> str:
        """Return the summary as canonical JSON.

        Returns
        -------
        str
            The text.
        """
        document = {name: getattr(self, name) for name in _ENTRIES}
        document |= {"rounds": list(self.rounds), "uncounted": dict(self.uncounted)}
        return canonical({"format": FORMAT, **document})

    @classmethod
    def from_json(cls, text: str) -> "Summary":
        """Read a summary.

        Parameters
        ----------
        text
            What `to_json` has returned.

        Returns
        -------
        Summary
            The summary.

        Raises
        ------
        WireError
            If it is none, or contradicts itself.
        """
        with documents.reading(repr(FORMAT)):
            document = documents.parse(text, [FORMAT], _ENTRIES)
            rounds = tuple(map(int, document["rounds"]))
            names = ("job", "wanted", "uncounted", "reason", "failed", "result")
            found = cls(rounds=rounds, **{name: document[name] for name in names})
            documents.check_written(found.to_json(), canonical(document))
        return found

    def save(self, result: Path) -> Path:
        """Write the summary beside a result.

        Parameters
        ----------
        result
            The file of the result.

        Returns
        -------
        Path
            The file of the summary.
        """
        path = result.with_suffix(ENDING)
        files.write(path, self.to_json())
        return path


def digest(data: bytes) -> str:
    """Return the SHA-256 that a summary has of its result.

    >>> digest(b"")[:16]
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(data).hexdigest()


def shortfalls(result: Path) -> Iterator[str]:
    """Yield a line if a result is of a job that has counted fewer answers than it wanted.

    It is found in the summaries beside the result. Summaries of other results and invalid files are
    skipped.
    """
    beside = sorted(result.absolute().parent.glob(f"*{ENDING}"))
    own = digest(result.read_bytes()) if beside else ""
    for path in beside:
        try:
            summary = Summary.from_json(path.read_text("utf-8", errors="replace"))
        except (OSError, WireError):
            continue
        if summary.result == own and not summary.complete:
            yield (
                f"{result}: the job {summary.job} has counted {summary} It ended because "
                f"{summary.reason}. See {path.name}."
            )
