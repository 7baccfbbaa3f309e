"""What people are told about a job while it runs and when it has ended."""

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import final

from fedldp._internal.text import listed
from fedldp.errors import DomainError
from fedldp.fleet.job import Job
from fedldp.fleet.server.checkpoint import JobStatus
from fedldp.fleet.server.names import Name, unnamed
from fedldp.fleet.server.rounds import SETTLED
from fedldp.fleet.server.summary import collected

EVERY = 30.0  # seconds between two lines while nothing happens


@final
class JobFailed(DomainError):
    """A job has ended without a result. The message says what happened, and where to look."""


@final
class Watch:
    """Reports on a job: a line after each round, and one every `every` seconds in between."""

    def __init__(
        self,
        job: Job,
        say: Callable[[str], None],
        every: float = EVERY,
        clock: Callable[[], float] = monotonic,
        name: Name = unnamed,
    ) -> None:
        self._job, self._say, self._every, self._clock = job, say, every, clock
        self._name = name
        self._seen: tuple[int, bool] | None = None  # rounds done; whether the next was asked
        self._since = self._said = clock()
        self.text = ""  # what the job is doing now

    def look(self, found: JobStatus | None) -> None:
        """Report on the current status of the job; None if it has not begun."""
        now, before = self._clock(), self._seen
        self._seen = (0, False) if found is None else (found.rounds, found.asked > 0)
        if self._seen != before:
            self._since = now
        self.text = _waiting(found, self._job, now - self._since, self._name)
        if found is not None and before is not None and found.rounds > before[0]:
            self._tell(f"{_round(self._job, found.rounds)} is done: {found.last}.")
        elif now - self._said >= self._every and not (found is not None and found.ended):
            self._tell(self.text)

    def _tell(self, line: str) -> None:
        self._said = self._clock()
        self._say(line)


def _round(job: Job, number: int) -> str:
    """Return the name of a round; those of a survey are named after what they ask."""
    span = job.span_of(number)
    return f"Round {number} of {job.rounds}" + (f", {span.stage.name}," if span.last else "")


def _waiting(found: JobStatus | None, job: Job, seconds: float, name: Name) -> str:
    """Return a line that says what a job is waiting for, and since when."""
    rounds, asked = (0, 0) if found is None else (found.rounds, found.asked)
    line, log = _round(job, rounds + 1).rstrip(","), f" See {job.log}"
    if found is None or not asked:
        needed = "1 gateway" if rounds or job.gateways == 1 else f"{job.gateways} gateways"
        line += f": waiting for {needed} to connect ({seconds:.0f} s)."
        return line if seconds < EVERY else line + log
    line += f": {found.received} of {asked} gateways have answered ({seconds:.0f} s)."
    if seconds >= EVERY and found.missing:
        line += f" Not yet: {listed([name(each.gateway) for each in found.missing])}."
    if seconds < job.deadline or found.open.reports:
        return line
    return (
        f"{line} The deadline of {job.deadline:g} s has passed, but no vehicle has answered. The "
        f"round stays open, and the same question is sent again.{log}"
    )


def ending(found: JobStatus, job: Job, logs: Path) -> str:
    """Return the outcome of a job that has ended; `logs` is the folder of the server's logs."""
    counts = collected(found.total, job.expected)
    if found.failed:
        earlier = f" {job.result} belongs to another job." if job.result.exists() else ""
        return (
            f"the job {job.name} has failed and has no result: {found.ended}.{earlier}\n"
            f"{counts}\n{_reasons(job, logs)}"
        )
    lines = [f"The job {job.name} has ended: {found.ended}. The result is {job.result}", counts]
    if found.reports < job.expected:
        lines.append("These are fewer reports than planned.")
        if found.ended != SETTLED:  # then it stopped early, and no vehicle is missing
            lines.append(_reasons(job, logs))
    return "\n".join(lines)


def _reasons(job: Job, logs: Path) -> str:
    return (
        "Vehicles refuse if their cap is spent, if they have answered before, or if a job with the "
        "same name has asked something else.\n"
        "They are absent if a vault has fewer vehicles than were asked for, and silent if a vault "
        "or a gateway does not answer in time.\n"
        "Gateways that are not connected when a round begins are not asked in that round.\n"
        "A vault does not tell the server why it refused: see its own log, on its machine.\n"
        f"The server's logs are {job.log} and {logs}/*.log; all counts are in {job.summary}"
    )
