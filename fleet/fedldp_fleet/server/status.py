"""How a server does: its jobs, its agents, its disk, and what somebody should look after."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from fedldp import __version__
from fedldp.results.summary import Summary, digest
from fedldp_fleet import jobs
from fedldp_fleet.engine import SETTLED
from fedldp_fleet.server import certificates
from fedldp_fleet.server.desk import TROUBLE
from fedldp_fleet.server.folder import ServerFolder
from fedldp_fleet.server.mqtt import TROUBLE as BROKER_TROUBLE
from fedldp_fleet.store.base import DONE, FAILED, QUEUED, RUNNING, JobRow, RoundRow, Transaction

FORMAT = "fedldp server status 1"

NEARLY_FULL = 0.05  # of a disk is free
FEWEST_ANSWERS = 0.5  # of those wanted, below which a job has not ended well
MOST_SENDERS = 10  # that are named, if they send more than they may
MOST_REFUSED = 0.05  # of all answers to a job
EXPIRES_SOON = timedelta(days=30)
HEARD_SECONDS = 3600.0  # in which an agent that runs calls at least once

LATE = "late"

_CLOSING_SECONDS = 3600.0  # after which a job that should have ended is stuck


class Disk(NamedTuple):
    """Space in bytes."""

    free: int
    size: int

    @classmethod
    def of(cls, folder: Path) -> "Disk":
        """Return the space of the disk that a folder is on."""
        found = os.statvfs(folder)
        return cls(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def status(
    folder: ServerFolder, store: Transaction, *, running: bool, now: float | None = None
) -> dict[str, Any]:
    """Return the status as JSON; `problems` are sentences for people."""
    now = time.time() if now is None else now
    disk = Disk.of(folder.path)
    rows = store.jobs()
    found = [_job(store, row) for row in rows]
    members, heard = store.members(), store.heard()
    joined = [each for each in members if not each.revoked and (each.secret or each.agent in heard)]
    problems = [*_troubles(folder, store, rows, disk, running)]
    for row, document in zip(rows, found, strict=True):
        problems += _job_problems(row, document, now)
    return {
        "format": FORMAT,
        "version": __version__,
        "time": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds"),
        "running": running,
        "jobs": found,
        "agents": {
            "enrolled": len(members),
            "joined": len(joined),
            "revoked": sum(each.revoked for each in members),
            "heard": sum(time_heard >= now - HEARD_SECONDS for time_heard in heard.values()),
            "vehicles": sum(each.vehicles for each in joined),
        },
        "disk": disk._asdict(),
        "certificate_expires": _expires(folder),
        "problems": problems,
    }


def _job(store: Transaction, row: JobRow) -> dict[str, Any]:
    job, rounds = jobs.read_job(row.document), store.rounds(row.name)
    opened = rounds[-1] if rounds else None
    uncounted, senders = store.uncounted(row.name), store.senders(row.name, MOST_SENDERS)
    agents, most = store.most_used(row.name)
    return {
        "name": row.name,
        "state": row.state,
        "stage": jobs.span_of(job, row.round).stage.name if row.round else "",
        "round": row.round,
        "rounds": jobs.rounds_of(job),
        "epsilon": [plan.epsilon for plan in jobs.span_of(job, max(1, row.round)).stage.plans],
        "answers": sum(each.answers for each in rounds),
        "wanted": jobs.wanted_of(job),
        "open_answers": 0 if opened is None else opened.answers,
        "open_wanted": 0 if opened is None else opened.wanted,
        "placed": 0 if opened is None else opened.placed,
        "late": sum(each.vehicles for each in uncounted if each.reason == LATE),
        "refused": sum(each.vehicles for each in uncounted if each.reason != LATE),
        "agents": agents,
        "most_of_one_agent": most,
        "excess": {each.agent: each.excess for each in senders if each.excess},
        "reasons": {each.reason: each.vehicles for each in uncounted},
        "opens": job.schedule.opens.isoformat(),
        "closes": job.schedule.closes.isoformat(),
        "deadline": None if opened is None else opened.deadline,
        "extended": opened is not None and _is_extended(opened, job.schedule.round_seconds),
        "reason": row.reason,
        "restored": row.restored,
    }


def summary_of(store: Transaction, row: JobRow) -> Summary:
    """Return what came of a job. One whose model has settled wants no more answers."""
    rounds = store.rounds(row.name)
    wanted = jobs.wanted_of(jobs.read_job(row.document))
    if row.reason == SETTLED:
        wanted = sum(each.wanted for each in rounds)
    return Summary(
        row.name,
        wanted,
        tuple(each.answers for each in rounds),
        {each.reason: each.vehicles for each in store.uncounted(row.name)},
        row.reason,
        row.state == FAILED,
        digest(row.result.encode()),
    )


def _is_extended(opened: RoundRow, round_seconds: float) -> bool:
    """Return whether nobody has answered a round for more than its time."""
    longer = opened.deadline - opened.opened > 1.5 * round_seconds
    return not opened.answers and opened.closed is None and longer


def _troubles(
    folder: ServerFolder, store: Transaction, rows: list[JobRow], disk: Disk, running: bool
) -> Iterator[str]:
    if not running and any(row.state in (QUEUED, RUNNING) for row in rows):
        yield f"the server is not running. Start it: fedldp server run {folder.path}"
    if disk.free < NEARLY_FULL * disk.size:
        yield f"the disk of {folder.path} is nearly full: {disk.free / disk.size:.0%} is free."
    yield from filter(None, (store.value(TROUBLE), store.value(BROKER_TROUBLE)))
    expires = _expires(folder)
    if expires is not None and datetime.fromisoformat(expires) < datetime.now(UTC) + EXPIRES_SOON:
        yield f"the certificate {folder.certificate} expires at {expires}."


def _job_problems(row: JobRow, document: dict[str, Any], now: float) -> Iterator[str]:
    answers, wanted = document["answers"], document["wanted"]
    if row.state == FAILED:
        yield f"the job {row.name} has failed: {row.reason}."
    elif row.state == DONE and answers < FEWEST_ANSWERS * wanted and row.reason != SETTLED:
        yield f"the job {row.name} ended with {answers:,} of {wanted:,} answers: {row.reason}."
    elif row.state == RUNNING and document["extended"] and document["rounds"] > 1:
        yield f"nobody answers round {row.round} of the job {row.name}."
    if document["refused"] > MOST_REFUSED * (answers + document["refused"]):
        reasons = {name: of for name, of in document["reasons"].items() if name != LATE}
        listed = ", ".join(f"{of:,} ({name})" for name, of in sorted(reasons.items()))
        yield f"answers to the job {row.name} are refused: {listed}."
    for agent, excess in document["excess"].items():
        yield (
            f"the agent {agent} has sent {excess:,} answers to the job {row.name} beyond those for "
            "which it is enrolled. They do not count, and its other answers may be forged, too."
        )
    if row.state == RUNNING and document["deadline"] is not None and document["rounds"] == 1:
        closes = datetime.fromisoformat(document["closes"]).timestamp()
        if now > closes + _CLOSING_SECONDS:
            yield f"the job {row.name} should have ended at {document['closes']}."


def _expires(folder: ServerFolder) -> str | None:
    if folder.certificate is None:
        return None
    try:
        return certificates.expires(folder.certificate).isoformat()
    except (OSError, ValueError):  # the server itself complains
        return None
