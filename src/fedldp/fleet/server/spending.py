"""What the jobs of a server have cost vehicles, job by job."""

import json
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedldp._internal import toml
from fedldp.errors import FedLDPError
from fedldp.fleet.job import ENDING
from fedldp.fleet.server import checkpoint
from fedldp.fleet.server.checkpoint import JobStatus
from fedldp.fleet.server.summary import Summary

MOST = 1000  # jobs: more are left out

_UNREADABLE = (FedLDPError, OSError, ValueError, KeyError, TypeError)

Spent = dict[str, Any]  # the entries job, state, epsilon and answers


def state_of(found: JobStatus | None, running: bool) -> str:
    """Return the state of the job that a server runs, or would run."""
    if found is not None and found.ended:
        return "failed" if found.failed else "done"
    if found is not None and found.asked:
        return "asking"
    return "waiting" if running or (found is not None and found.rounds) else "not begun"


def spending(folder: Path, current: Path, running: bool) -> list[Spent]:
    """Return what an answer to each job costs, and how many answers came; the current job first.

    Jobs are the TOML files in the folder of a server that name a checkpoint. `running` says whether
    the server runs the current one. Of a job whose checkpoint was removed after its end, the
    summary is read.
    """
    paths = sorted(folder.glob("*.toml"), key=lambda path: path.stat().st_mtime, reverse=True)
    paths.sort(key=lambda path: path != current)  # it keeps the order of the others
    found: list[Spent] = []
    for path in paths[:MOST]:
        with suppress(*_UNREADABLE):  # of the current job, the status of the server says so
            entries = toml.parse(path.read_text("utf-8"), str(path))
            if "checkpoint" in entries:
                found.append(_job(folder, entries, running if path == current else None))
    return found


def _job(folder: Path, entries: dict[str, Any], running: bool | None) -> Spent:
    """Return the entry of a job; `running` is None if it is not the current one."""
    state, answers = "cannot be read", None
    with suppress(*_UNREADABLE):
        state, answers = _standing(folder, entries, running)
    epsilon = None
    with suppress(*_UNREADABLE):
        plans = [folder / each for each in (entries["plan"], *entries.get("levels", ()))]
        epsilon = " or ".join(_epsilon(plan, plan.stat().st_mtime_ns) for plan in plans)
    return {"job": entries["job"], "state": state, "epsilon": epsilon, "answers": answers}


def _standing(folder: Path, entries: dict[str, Any], running: bool | None) -> tuple[str, int]:
    """Return the state of a job, and how many answers came."""
    found = checkpoint.status(folder / entries["checkpoint"])
    if found is None:
        summary = (folder / entries["result"]).with_name(f"{entries['job']}{ENDING}")
        if summary.exists():
            ended = Summary.load(summary)
            return "failed" if ended.failed else "done", ended.answered
    if running is None and found is not None and not found.ended:
        return "stopped", found.reports
    return state_of(found, running or False), 0 if found is None else found.reports


@lru_cache(MOST)
def _epsilon(plan: Path, changed: int) -> str:  # noqa: ARG001 (it is part of the key)
    """Return the cost of a plan, or of that of a calendar, without reading its tables."""
    document = json.loads(plan.read_text("utf-8"))
    return f"{float(document.get('plan', document)['epsilon']):g}"
