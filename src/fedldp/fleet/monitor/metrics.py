"""The metrics of a part in Prometheus' text format. Needs the extra `monitor`: prometheus-client.

Metrics are made from the status documents at each scrape, and only from the entries that are named
here. Those of a vault are about questions and the ledger: they are identical for all data sets.
Times are exported as timestamps, as Prometheus recommends: `time() - metric` is an age.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, final

from fedldp.errors import MissingExtra

try:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import GaugeMetricFamily, Metric
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingExtra("prometheus-client", "monitor") from error

MOST = 1000  # gateways, jobs or levels of budget of a part: more are left out

JOB_STATES = ("not begun", "waiting", "asking", "done", "failed")
GATEWAY_STATES = ("answered", "waiting", "silent", "not connected", "revoked")
OUTCOMES = {"answered": "reports", "silent": "silent", "refused or absent": "refused_or_absent"}

_ALL = ("part", "name")  # labels that every metric has

Document = Mapping[str, Any]
Sample = tuple[tuple[str, ...], float | None]  # further labels, and a value if it is known


class _Family(NamedTuple):
    """A metric: its name, its help, its further labels, and its samples in a status document."""

    name: str
    help: str
    labels: tuple[str, ...]
    samples: Callable[[Document], Iterable[Sample]]


def _one(*path: str, time: bool = False) -> Callable[[Document], Iterable[Sample]]:
    """Return a function that finds one number, or one time, in a document."""

    def samples(document: Document) -> Iterable[Sample]:
        found: Any = document
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return [((), _seconds(found) if time else found)]

    return samples


def _seconds(time: str | None) -> float | None:
    """Return a time as the seconds since 1970."""
    return None if time is None else datetime.fromisoformat(time).timestamp()


def _each(entry: str, labels: tuple[str, ...], value: str, *, time: bool = False) -> Any:
    """Return a function that finds a number or a time in each item of a list."""

    def samples(document: Document) -> Iterator[Sample]:
        for each in document.get(entry, ())[:MOST]:
            found = each.get(value)
            yield tuple(str(each.get(name)) for name in labels), _seconds(found) if time else found

    return samples


def _states(found: Any, known: Iterable[str], *labels: str) -> Iterator[Sample]:
    """Yield a sample for each known state: 1 for the current one, 0 for others."""
    for state in known:
        yield (*labels, state), float(found == state)


def _job_states(document: Document) -> Iterable[Sample]:
    job = document.get("job")
    return [] if job is None else _states(job["state"], JOB_STATES)


def _outcomes(document: Document) -> Iterator[Sample]:
    job = document.get("job") or {}
    for label, entry in OUTCOMES.items():
        yield (label,), job.get(entry)


def _gateway_states(document: Document) -> Iterator[Sample]:
    for each in document.get("gateways", ())[:MOST]:
        yield from _states(each["state"], GATEWAY_STATES, each["name"])


def _gateways(document: Document) -> Iterator[Sample]:
    if "gateways" in document:
        states = [each["state"] for each in document["gateways"]]
        for state in GATEWAY_STATES:
            yield (state,), states.count(state)


def _questions(document: Document) -> Iterator[Sample]:
    for outcome, count in document.get("questions", {}).items():
        yield (outcome,), count


def _certificates(document: Document) -> Iterator[Sample]:
    for name, expires in document["certificates"].items():
        yield (name,), _seconds(expires)


def _versions(document: Document) -> Iterator[Sample]:
    yield (document["version"],), 1.0


FAMILIES = (
    _Family(
        "fedldp_build_info",
        "Always 1; the label says which version of fedldp the part has.",
        ("version",),
        _versions,
    ),
    _Family("fedldp_running", "Whether the part is running: 1 or 0.", (), _one("running")),
    _Family(
        "fedldp_started_timestamp_seconds",
        "When the part was started.",
        (),
        _one("since", time=True),
    ),
    _Family(
        "fedldp_problems",
        "How many things keep the part from working; /healthz names them.",
        (),
        lambda document: [((), len(document["problems"]))],
    ),
    _Family("fedldp_disk_free_bytes", "Free space on the part's disk.", (), _one("disk", "free")),
    _Family("fedldp_disk_size_bytes", "Size of the part's disk.", (), _one("disk", "size")),
    _Family(
        "fedldp_certificate_expiry_timestamp_seconds",
        "When a certificate expires.",
        ("certificate",),
        _certificates,
    ),
    # The job of a server.
    _Family(
        "fedldp_job_state", "1 for the state that the job is in, 0 for others.", ("state",),
        _job_states,
    ),
    _Family("fedldp_job_round", "The round that the job is in.", (), _one("job", "round")),
    _Family("fedldp_job_rounds", "How many rounds the job has.", (), _one("job", "rounds")),
    _Family(
        "fedldp_job_epsilon",
        "The most that the job costs a vehicle of its privacy budget, per answer.",
        (),
        _one("job", "epsilon"),
    ),
    _Family(
        "fedldp_job_vehicles_asked", "How many vehicles were asked.", (), _one("job", "asked")
    ),
    _Family(
        "fedldp_job_reports",
        "What came of the questions to vehicles, so far.",
        ("outcome",),
        _outcomes,
    ),
    _Family(
        "fedldp_job_reports_expected",
        "How many reports the job collects if every planned one arrives.",
        (),
        _one("job", "expected"),
    ),
    _Family(
        "fedldp_job_round_opened_timestamp_seconds",
        "When the open round was asked.",
        (),
        _one("job", "open", "since", time=True),
    ),
    _Family(
        "fedldp_job_round_deadline_timestamp_seconds",
        "When the open round ends without the gateways that have not answered.",
        (),
        _one("job", "open", "deadline", time=True),
    ),
    _Family(
        "fedldp_job_round_gateways_asked",
        "How many gateways were asked in the open round.",
        (),
        _one("job", "open", "gateways"),
    ),
    _Family(
        "fedldp_job_round_gateways_answered",
        "How many gateways have answered in the open round.",
        (),
        _one("job", "open", "received"),
    ),
    _Family(
        "fedldp_implausible_counts",
        "How many warnings there are about reports that honest vehicles hardly ever send.",
        (),
        lambda document: (
            [((), len(document["warnings"]))] if document["part"] == "server" else []
        ),
    ),
    # The gateways of a server.
    _Family("fedldp_gateways", "How many gateways are in a state.", ("state",), _gateways),
    _Family(
        "fedldp_gateway_state",
        "1 for the state that a gateway is in, 0 for others.",
        ("gateway", "state"),
        _gateway_states,
    ),
    _Family(
        "fedldp_gateway_heard_timestamp_seconds",
        "When the server last heard from a gateway.",
        ("gateway",),
        _each("gateways", ("name",), "heard", time=True),
    ),
    _Family(
        "fedldp_gateway_reports",
        "How many reports came from a gateway.",
        ("gateway",),
        _each("gateways", ("name",), "reports"),
    ),
    _Family(
        "fedldp_gateway_received_bytes",
        "How many bytes of answers came from a gateway.",
        ("gateway",),
        _each("gateways", ("name",), "bytes"),
    ),
    # A vault.
    _Family("fedldp_vault_vehicles", "How many vehicles a vault has.", (), _one("vehicles")),
    _Family(
        "fedldp_vault_budget_left_vehicles",
        "How many vehicles have this much left of their cap.",
        ("left",),
        _each("budget", ("left",), "vehicles"),
    ),
    _Family(
        "fedldp_vault_answers",
        "How many answers of vehicles a vault has given to a job.",
        ("job",),
        _each("jobs", ("job",), "answers"),
    ),
    _Family(
        "fedldp_vault_questions",
        "What came of the questions to a vault.",
        ("outcome",),
        _questions,
    ),
)


@final
class Parts(Collector):
    """Collects the metrics of all parts of a document."""

    def __init__(self, look: Callable[[], Document]) -> None:
        self._look = look

    def collect(self) -> Iterator[Metric]:
        """Yield each metric that a part has."""
        parts = self._look()["parts"]
        for family in FAMILIES:
            metric = GaugeMetricFamily(
                family.name, family.help, labels=(*_ALL, *family.labels)
            )
            for part in parts:
                for labels, value in family.samples(part):
                    if value is not None:
                        metric.add_metric((part["part"], part["name"], *labels), float(value))
            if metric.samples:
                yield metric


def text(look: Callable[[], Document], accept: str) -> tuple[bytes, str]:
    """Return the metrics, and their content type, in a format that the caller accepts."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Parts(look))
    encode, kind = choose_encoder(accept)
    return encode(registry), kind
