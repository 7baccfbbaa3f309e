"""The status of a server: how far its job is, and what each gateway has done, by name."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import time
from typing import Any, final

from fedldp._internal.text import counted
from fedldp.fleet import logs, signing
from fedldp.fleet.job import Job
from fedldp.fleet.processes import kept
from fedldp.fleet.server import admission, checkpoint, names
from fedldp.fleet.server.checkpoint import Exchange, JobStatus
from fedldp.fleet.server.process import LOG, ServerConfig, nodes_of
from fedldp.fleet.server.spending import Spent, spending, state_of
from fedldp.fleet.status import Attempts, Status, clock, duration, errors, iso, life

AWAY = 60.0  # seconds without a call after which a gateway is not connected

_IMPLAUSIBLE = "Implausible reports: "  # what Plausibility.warnings begin with
_JOBS = 5  # other jobs of the server for people
_LINES = 20  # of the job's log, among which warnings are looked for


def read(folder: Path) -> Status:
    """Return the status of the server of a folder."""
    attempt = Attempts()
    server = ServerConfig.load(folder)
    running, since = life(folder, attempt)
    job = attempt(lambda: Job.load(server.job))
    found = attempt(lambda: job and checkpoint.status(job.checkpoint))
    heard = attempt(lambda: admission.load(server.state / admission.HEARD)) or {}
    gateways = attempt(lambda: list(_gateways(server, job, found, heard, since))) or []
    progress = _Progress(folder, job, found, running)
    spent = attempt(lambda: spending(server.folder, server.job, running)) or []
    troubles = errors(server.state / LOG, *([job.log] if job else []), attempt=attempt)
    warnings = attempt(lambda: _warnings(job)) or []
    processes = attempt(lambda: kept(server.state)) or []
    attention = [
        *attempt.troubles,
        *progress.attention,
        *([text] if job and not _is_over(found) and (text := signing.expires_soon(job)) else []),
        *(f"{each.name} is {each.state}: {each.advice}" for each in gateways if each.advice),
        *(f"{each.name} does not run." for each in processes if running and not each.runs),
        *warnings,
    ]
    return Status(
        "server",
        folder.name,
        running,
        since,
        details={
            "job": progress.document(),
            "gateways": [each.document() for each in gateways],
            "processes": {each.name: each.runs for each in processes},
            "spent": spent,
        },
        rows=[*progress.rows(), *_others(spent, job)],
        table=[("gateway", "state", "since", "heard", "reports", "version")]
        + [each.row() for each in gateways],
        warnings=warnings,
        errors=[line for line in troubles if _IMPLAUSIBLE not in line.text],
        unreadable=attempt.troubles,
        attention=attention,
        next=progress.next,
    )


def _is_over(found: JobStatus | None) -> bool:
    return found is not None and bool(found.ended)


def _warnings(job: Job | None) -> list[str]:
    """Return what the log of the job says about implausible reports: checking again takes long."""
    lines = [] if job is None else logs.last(job.log, _LINES)
    mine = (line.text for line in lines if job and line.text.startswith(f"{job.name}, "))
    return [text for text in mine if _IMPLAUSIBLE in text]


@final
@dataclass(frozen=True)
class _Gateway:
    """What the server knows about a gateway."""

    name: str
    node: str
    state: str  # answered, waiting, silent, not connected or revoked
    since: float | None
    heard: float | None
    reports: int
    bytes: int
    version: str | None
    advice: str = ""  # if something is wrong

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "node": self.node or None,
            "state": self.state,
            "since": iso(self.since),
            "heard": iso(self.heard),
            "reports": self.reports,
            "bytes": self.bytes,
            "version": self.version,
        }

    def row(self) -> tuple[str, ...]:
        reports, version = f"{self.reports:,}", self.version or "-"
        return self.name, self.state, clock(self.since), clock(self.heard), reports, version


def _gateways(
    server: ServerConfig,
    job: Job | None,
    found: JobStatus | None,
    heard: dict[str, admission.Heard],
    since: str | None,
) -> Iterator[_Gateway]:
    """Yield the gateways whose keys are in the folder, then those that were revoked since."""
    nodes = nodes_of(server)
    named = {node: name for name, node in nodes.items() if node} | names.known(server.state)
    exchanges: dict[str, list[Exchange]] = {}
    for each in () if found is None else found.gateways:  # one with a new key has two numbers
        exchanges.setdefault(named.get(each.gateway) or names.unnamed(each.gateway), []).append(
            each
        )
    for name, node in nodes.items():
        called, said = heard.get(name), _together(node, exchanges.pop(name, []))
        state, begin, advice = _standing(job, found, said, called, since)
        times = [each for each in (called and called.time, said.heard) if each is not None]
        last, version = max(times, default=None), called and called.version
        yield _Gateway(name, node, state, begin, last, said.reports, said.bytes, version, advice)
    for name, several in exchanges.items():
        said = _together(several[-1].gateway, several)
        node, when = said.gateway, said.heard
        yield _Gateway(name, node, "revoked", when, when, said.reports, said.bytes, None)


def _together(node: str, several: list[Exchange]) -> Exchange:
    """Return what was exchanged with one gateway under all its numbers."""
    last = max(several, key=lambda each: each.round, default=Exchange(node))
    heard = [each.heard for each in several if each.heard is not None]
    return last._replace(
        gateway=node,
        reports=sum(each.reports for each in several),
        bytes=sum(each.bytes for each in several),
        heard=max(heard, default=None),
    )


def _standing(
    job: Job | None,
    found: JobStatus | None,
    said: Exchange,
    called: admission.Heard | None,
    since: str | None,
) -> tuple[str, float | None, str]:
    """Return the state of a gateway, since when it has it, and what to do about it.

    `since` says when the server was started, if it runs: gateways need some time to connect.
    """
    over, last = bool(found and found.ended), called and called.time
    away = since is not None and (last is None or time() - last > AWAY)
    patient = since is None or over or time() - datetime.fromisoformat(since).timestamp() < AWAY
    advice = "" if patient else "run `fedldp fleet status` on its machine."
    if said.round and not said.answered:
        late = said.asked is not None and job is not None and time() - said.asked > job.deadline
        if over or late or (found is not None and said.round <= found.rounds):
            return "silent", said.asked, advice
        return ("not connected", last, advice) if away else ("waiting", said.asked, "")
    if said.answered and (over or not away):
        return "answered", said.heard, ""
    if since is not None and not away:
        return "waiting", last, ""
    return "not connected", last, advice


@final
@dataclass(frozen=True)
class _Progress:
    """How far a job is."""

    folder: Path
    job: Job | None
    found: JobStatus | None
    running: bool

    @property
    def state(self) -> str:
        return state_of(self.found, self.running)

    @property
    def round(self) -> int:
        """The open round, or the last one of a job that has ended."""
        if self.job is None or self.found is None:
            return 1
        done = self.found.rounds
        return done if self.found.ended else min(done + 1, self.job.rounds)

    @property
    def seconds_left(self) -> float | None:
        if self.job is None or self.found is None or self.found.ended or not self.found.rate:
            return None
        return max(0, self.job.expected - self.found.reports) / self.found.rate

    @property
    def late(self) -> bool:
        """Whether the deadline of the open round has passed."""
        end = self._deadline
        return end is not None and time() > end

    @property
    def _deadline(self) -> float | None:
        if self.job is None or self.found is None or self.found.opened_at is None:
            return None
        return self.found.opened_at + self.job.deadline

    def document(self) -> dict[str, Any] | None:
        job, found = self.job, self.found
        if job is None:
            return None
        counts = checkpoint.Counts() if found is None else found.total
        return {
            "name": job.name,
            "task": _task(job),
            "epsilon": job.plan.epsilon,
            "plan": job.plan.fingerprint,
            "state": self.state,
            "why": found.ended if found else "",
            "round": self.round,
            "rounds": job.rounds,
            "rounds_done": found.rounds if found else 0,
            "stage": job.span_of(max(1, self.round)).stage.name,
            "reports": counts.reports,
            "expected": job.expected,
            "asked": counts.asked,
            "silent": counts.silent,
            "refused_or_absent": counts.refusals,
            "rate": found.rate if found else None,
            "seconds_left": self.seconds_left,
            "began": iso(found.began_at) if found else None,
            "ended": iso(found.ended_at) if found else None,
            "result": str(job.result),
            "open": self._open(),
        }

    def _open(self) -> dict[str, Any] | None:
        found = self.found
        if found is None or found.ended or not found.asked:
            return None
        return {
            "gateways": found.asked,
            "received": found.received,
            "since": iso(found.opened_at),
            "deadline": iso(self._deadline),
        }

    def rows(self) -> Iterator[tuple[str, str]]:
        job, found = self.job, self.found
        if job is None:
            return
        yield "job", f"{job.name}: {_task(job)}, epsilon {job.plan.epsilon:g}"
        why = f": {found.ended}" if found and found.ended else ""
        yield "state", f"{self.state}{why}"
        stage = job.span_of(max(1, self.round)).stage.name
        yield "round", f"{self.round} of {job.rounds} ({stage})"
        if found is None:
            yield "reports", f"0 of {job.expected:,} expected"
            return
        counts = found.total
        yield "reports", f"{counts.reports:,} of {job.expected:,} expected"
        yield "not received", f"{counts.silent:,} silent, {counts.refusals:,} refused or absent"
        if found.asked and not found.ended:
            since = clock(found.opened_at)
            asked = counted(found.asked, "gateway")
            yield "this round", f"{found.received} of {asked}, since {since}"
        if not found.ended and found.rate:
            left = duration(self.seconds_left)
            yield "speed", f"{found.rate:,.1f} reports a second, at most {left} left"

    @property
    def attention(self) -> list[str]:
        state, found = self.state, self.found
        if self.job is None:
            return []
        if state == "failed" and found is not None:
            return [f"the job has failed: {found.ended}."]
        if state != "done" and not self.running and (found is not None):
            return ["the job is not done, and the server does not run."]
        if state == "asking" and self.late and found is not None and not found.open.reports:
            return ["the deadline has passed, and no vehicle has answered in this round."]
        return []

    @property
    def next(self) -> str:
        job, found, state = self.job, self.found, self.state
        if job is None:
            return f"Repair {self.folder}: its job cannot be read."
        if state == "done":
            return f"The job is done. Its result is {job.result}"
        if state == "failed":
            return "The job has no result. Correct the cause, then start a job with another name."
        if not self.running:
            what = "resume" if found is not None else "begin"
            return f"Start the server to {what} the job: fedldp fleet server {self.folder}"
        if state == "waiting" or found is None:
            needed = 1 if found is not None and found.rounds else job.gateways
            return f"The server asks when {counted(needed, 'gateway')} can be reached."
        if found.received == found.asked:
            return "The round ends now."
        if found.open.reports:
            end = clock(self._deadline)
            return (
                f"The round ends when all gateways have answered, or at {end} without the others."
            )
        return (
            "The round ends when all gateways have answered. The same question is sent again "
            f"every {duration(job.resend)}."
        )


def _others(spent: list[Spent], job: Job | None) -> Iterator[tuple[str, str]]:
    """Yield the other jobs of a server for people: the latest ones, and how many more there are."""
    others = [each for each in spent if job is None or each["job"] != job.name]
    for each in others[:_JOBS]:
        epsilon = "an unknown epsilon" if each["epsilon"] is None else f"epsilon {each['epsilon']}"
        answers = "" if each["answers"] is None else f", {counted(each['answers'], 'answer')}"
        yield "other job", f"{each['job']}: {each['state']}, {epsilon}{answers}"
    if len(others) > _JOBS:
        yield "other jobs", f"{len(others) - _JOBS:,} more: see --json"


def _task(job: Job) -> str:
    return "statistics" if job.model is None else f"training ({job.model.objective})"
