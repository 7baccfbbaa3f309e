"""What the jobs of a server have cost vehicles, job by job."""

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedldp._internal import toml
from fedldp.errors import FedLDPError
from fedldp.fleet.server import checkpoint

MOST = 20  # jobs that are shown: the last ones


def spending(folder: Path) -> list[dict[str, Any]]:
    """Return what an answer to each job costs, and how many answers there were; the last first.

    Jobs are the TOML files in the folder of a server that name a checkpoint; those that have not
    begun are left out.
    """
    paths = sorted(folder.glob("*.toml"), key=lambda path: path.stat().st_mtime, reverse=True)
    found: list[dict[str, Any]] = []
    for path in paths:
        # What cannot be read is reported in the status of the server, if it matters.
        with suppress(FedLDPError, OSError, ValueError, KeyError, TypeError):
            found += _job(folder, toml.parse(path.read_text("utf-8"), str(path)))
        if len(found) == MOST:
            break
    return found


def _job(folder: Path, entries: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "checkpoint" not in entries:
        return
    status = checkpoint.status(folder / entries["checkpoint"])
    if status is not None:
        plans = [folder / each for each in (entries["plan"], *entries.get("levels", ()))]
        epsilons = [_epsilon(plan, plan.stat().st_mtime_ns) for plan in plans]
        yield {"job": status.job, "epsilon": " or ".join(epsilons), "answers": status.reports}


@lru_cache(4 * MOST)
def _epsilon(plan: Path, changed: int) -> str:  # noqa: ARG001 (it is part of the key)
    """Return the cost of a plan, without reading its tables."""
    return f"{float(json.loads(plan.read_text('utf-8'))['epsilon']):g}"
