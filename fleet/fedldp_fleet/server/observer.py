"""What the page and the metrics show: the status, and what can be told about the answers so far."""

import threading
import time
from collections.abc import Callable, Container
from contextlib import suppress
from typing import Any, NamedTuple, final

from fedldp.errors import FedLDPError
from fedldp.results.tally import from_json
from fedldp_fleet import jobs
from fedldp_fleet.server.folder import ServerFolder
from fedldp_fleet.server.status import status
from fedldp_fleet.stages import Collection, Learned
from fedldp_fleet.store.base import DONE, RUNNING, JobRow, Store, Transaction

LOOK_SECONDS = 1.0  # between two looks, however many callers there are
MOST_SHARE = 0.05  # of the time is spent on looking
SHOWN_RESULTS = 10  # of the jobs that were added last

MOST_COUNTED = 200_000  # answers to one round: what more of them tell is known at the end
_Key = tuple[str, int, int]  # the name of a job, a round, and how many vehicles have answered it


@final
class Observer:
    """Looks at a server when it is asked, but not all the time, and remembers what it saw.

    Parameters
    ----------
    folder
        The server's folder.
    store
        Its store.
    """

    def __init__(
        self,
        folder: ServerFolder,
        store: Store,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._store, self._clock = folder, store, clock
        self._lock = threading.Lock()
        self._seen: dict[str, Any] | None = None
        self._due = 0.0
        self._results: dict[_Key, dict[str, Any]] = {}

    def look(self) -> dict[str, Any]:
        """Return what there is to see."""
        with self._lock:
            if self._seen is None or self._clock() >= self._due:
                began = self._clock()
                self._seen = self._look()
                spent = self._clock() - began
                self._due = began + spent + max(LOOK_SECONDS, spent / MOST_SHARE - spent)
            return self._seen

    def _look(self) -> dict[str, Any]:
        with self._store.reading() as store:
            found = status(self._folder, store, running=True)
            rows = [row for row in store.jobs() if row.state in (RUNNING, DONE)]
            collected = [_collected(store, row, self._results) for row in rows[-SHOWN_RESULTS:]]
        # Only now are they counted: while somebody reads, answers have to wait.
        results = {each.key: self._results.get(each.key) or each.told() for each in collected}
        self._results = {key: told for key, told in results.items() if told}
        shown = {key[0]: told for key, told in self._results.items()}
        return {"name": self._folder.path.name, **found, "results": shown}


class _Collected(NamedTuple):
    """The answers to the last rounds of a job that got some, which are counted together."""

    key: _Key
    row: JobRow
    reports: tuple[list[bytes], ...]  # of each round; nothing if they are known, or too many

    def told(self) -> dict[str, Any]:
        """Return what they tell; empty if they are too few to tell anything."""
        job = jobs.read_job(self.row.document)
        span = jobs.span_of(job, max(1, self.key[1]))
        plans = [span.plan(number) for number in span.cycle(max(1, self.key[1]))]
        tallies = [
            plan.count(reports).tally for plan, reports in zip(plans, self.reports, strict=False)
        ]
        if self.row.result and isinstance(span.stage, Collection):
            tallies = [from_json(self.row.result, plans[0])]
        if len(tallies) < len(plans) or not all(tally.reports for tally in tallies):
            return {}
        with suppress(FedLDPError):
            return span.stage.insight(Learned.from_json(self.row.learned), tallies).document()
        return {}


def _collected(store: Transaction, row: JobRow, known: Container[_Key]) -> _Collected:
    states = [each for each in store.rounds(row.name) if each.answers]
    if not states:
        return _Collected((row.name, 0, 0), row, ())
    last = states[-1]
    key = row.name, last.number, last.answers
    if key in known or row.result or last.answers > MOST_COUNTED:
        return _Collected(key, row, ())
    cycle = jobs.span_of(jobs.read_job(row.document), last.number).cycle(last.number)
    return _Collected(key, row, tuple(list(store.answers(row.name, each)) for each in cycle))
