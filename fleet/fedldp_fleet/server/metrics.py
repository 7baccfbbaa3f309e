"""The metrics of a server, in Prometheus' text format.

They are made from the status at each scrape, and only from the entries that are named here. Times
are exported as timestamps, as Prometheus recommends: `time() - metric` is an age.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, final

from prometheus_client import GC_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from fedldp_fleet.store.base import STATES

MOST_JOBS = 1000  # the ones that were added last

Document = Mapping[str, Any]
Sample = tuple[tuple[str, ...], float | None]  # labels, and a value if it is known


class _Metric(NamedTuple):
    """A metric: its name, its help, its labels, and its samples in a status."""

    name: str  # of a counter, without _total
    help: str
    labels: tuple[str, ...]
    samples: Callable[[Document], Iterable[Sample]]
    counts: bool = False


def _time(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()


def _of_jobs(value: Callable[[Document], float | None]) -> Callable[[Document], Iterable[Sample]]:
    def samples(document: Document) -> Iterator[Sample]:
        for job in document["jobs"][-MOST_JOBS:]:
            yield (job["name"],), value(job)

    return samples


def _job_states(document: Document) -> Iterator[Sample]:
    for job in document["jobs"][-MOST_JOBS:]:
        for state in STATES:
            yield (job["name"], state), float(job["state"] == state)


def _uncounted(document: Document) -> Iterator[Sample]:
    for job in document["jobs"][-MOST_JOBS:]:
        for reason, vehicles in job["reasons"].items():
            yield (job["name"], reason), vehicles


def _one(*path: str) -> Callable[[Document], Iterable[Sample]]:
    def samples(document: Document) -> Iterable[Sample]:
        found: Any = document
        for name in path:
            found = found[name]
        return [((), found)]

    return samples


_JOB = ("fedldp_job",)  # Prometheus itself has a label `job`

FAMILIES = (
    _Metric(
        "fedldp_build_info",
        "Always 1; the label is the version of the server.",
        ("version",),
        lambda document: [((document["version"],), 1.0)],
    ),
    _Metric(
        "fedldp_problems",
        "Things that somebody should look after; /healthz names them.",
        (),
        lambda document: [((), len(document["problems"]))],
    ),
    _Metric("fedldp_disk_free_bytes", "Free space of the store's disk.", (), _one("disk", "free")),
    _Metric("fedldp_disk_size_bytes", "Size of the store's disk.", (), _one("disk", "size")),
    _Metric(
        "fedldp_certificate_expiry_timestamp_seconds",
        "When the server's certificate expires.",
        (),
        lambda document: [((), _time(document["certificate_expires"]))],
    ),
    _Metric(
        "fedldp_agents",
        "Agents that are enrolled, have joined, or are revoked.",
        ("state",),
        lambda document: [
            ((state,), document["agents"][state]) for state in ("enrolled", "joined", "revoked")
        ],
    ),
    _Metric(
        "fedldp_agents_heard",
        "Agents that were heard in the last hour, whatever their road.",
        (),
        _one("agents", "heard"),
    ),
    _Metric(
        "fedldp_agent_vehicles",
        "Vehicles for which agents that have joined may answer.",
        (),
        _one("agents", "vehicles"),
    ),
    _Metric(
        "fedldp_job_state",
        "1 for the state that a job is in, 0 for others.",
        (*_JOB, "state"),
        _job_states,
    ),
    _Metric(
        "fedldp_job_round", "The open round of a job.", _JOB, _of_jobs(lambda job: job["round"])
    ),
    _Metric("fedldp_job_rounds", "Rounds of a job.", _JOB, _of_jobs(lambda job: job["rounds"])),
    _Metric(
        "fedldp_job_answers",
        "Vehicles whose answers count.",
        _JOB,
        _of_jobs(lambda job: job["answers"]),
        counts=True,
    ),
    _Metric(
        "fedldp_job_answers_wanted",
        "Answers that a job wants in all.",
        _JOB,
        _of_jobs(lambda job: job["wanted"]),
    ),
    _Metric(
        "fedldp_job_agents",
        "Agents that have sent answers.",
        _JOB,
        _of_jobs(lambda job: job["agents"]),
    ),
    _Metric(
        "fedldp_job_answers_of_one_agent",
        "Vehicles whose answers count, of the agent that has sent the most.",
        _JOB,
        _of_jobs(lambda job: job["most_of_one_agent"]),
    ),
    _Metric(
        "fedldp_job_answers_uncounted",
        "Vehicles whose answers came and do not count, by reason.",
        (*_JOB, "reason"),
        _uncounted,
        counts=True,
    ),
    _Metric(
        "fedldp_job_epsilon",
        "What an answer costs a vehicle, at most.",
        _JOB,
        _of_jobs(lambda job: max(job["epsilon"])),
    ),
    _Metric(
        "fedldp_job_round_deadline_timestamp_seconds",
        "When the open round gives no further places.",
        _JOB,
        _of_jobs(lambda job: job["deadline"] if job["state"] == "running" else None),
    ),
    _Metric(
        "fedldp_job_closes_timestamp_seconds",
        "When a job, and the operator's signature of it, ends.",
        _JOB,
        _of_jobs(lambda job: _time(job["closes"])),
    ),
)


@final
class _Status(Collector):
    """Yields the metrics of a status."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def collect(self) -> Iterator[Metric]:
        for family in FAMILIES:
            make = CounterMetricFamily if family.counts else GaugeMetricFamily
            metric = make(family.name, family.help, labels=family.labels)
            for labels, value in family.samples(self._document):
                if value is not None:
                    metric.add_metric(labels, float(value))
            if metric.samples:
                yield metric


def text(document: Document, accept: str) -> tuple[bytes, str]:
    """Return the metrics, and their content type, in a format that the caller accepts."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Status(document))
    registry.register(PROCESS_COLLECTOR)
    registry.register(GC_COLLECTOR)
    try:
        encode, kind = choose_encoder(accept)
    except (TypeError, ValueError):  # prometheus_client does not expect versions such as "abc"
        encode, kind = choose_encoder("")
    return encode(registry), kind
