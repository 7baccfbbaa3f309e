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
VAULT_STATES = ("answered", "silent", "not asked")
OUTCOMES = {"answered": "reports", "silent": "silent", "refused or absent": "refused_or_absent"}

_ALL = ("part", "name")  # labels that every metric has

Document = Mapping[str, Any]
Sample = tuple[tuple[str, ...], float | None]  # further labels, and a value if it is known


class _Family(NamedTuple):
    """A metric: its name, its help, its further labels, and its samples in a status document."""

    name: str
    help: str
    samples: Callable[[Document], Iterable[Sample]]
    labels: tuple[str, ...] = ()


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


def _each(
    entry: str, label: str, value: str, *, time: bool = False
) -> Callable[[Document], Iterable[Sample]]:
    """Return a function that finds a number or a time in each item of a list."""

    def samples(document: Document) -> Iterator[Sample]:
        for each in document.get(entry, ())[:MOST]:
            found = each[value]
            yield (str(each[label]),), _seconds(found) if time else found

    return samples


def _states(entry: str, known: Iterable[str]) -> Callable[[Document], Iterable[Sample]]:
    """Return a function that yields, for each item of a list, 1 for its state and 0 for others."""

    def samples(document: Document) -> Iterator[Sample]:
        for each in document.get(entry, ())[:MOST]:
            for state in known:
                yield (each["name"], state), float(each["state"] == state)

    return samples


def _job_states(document: Document) -> Iterator[Sample]:
    if (job := document.get("job")) is not None:
        for state in JOB_STATES:
            yield (state,), float(job["state"] == state)


def _outcomes(document: Document) -> Iterator[Sample]:
    job = document.get("job") or {}
    for label, entry in OUTCOMES.items():
        yield (label,), job.get(entry)


def _gateways(document: Document) -> Iterator[Sample]:
    if "gateways" in document:
        states = [each["state"] for each in document["gateways"]]
        for state in GATEWAY_STATES:
            yield (state,), states.count(state)


def _entries(name: str) -> Callable[[Document], Iterable[Sample]]:
    """Return a function that yields the numbers of a mapping."""
    return lambda document: [((key,), value) for key, value in document.get(name, {}).items()]


_COMMON = (
    _Family(
        "fedldp_build_info",
        "Always 1; the label says which version of fedldp the part has.",
        lambda document: [((document["version"],), 1.0)],
        ("version",),
    ),
    _Family("fedldp_running", "Whether the part is running: 1 or 0.", _one("running")),
    _Family(
        "fedldp_started_timestamp_seconds",
        "When the part was started.",
        _one("since", time=True),
    ),
    _Family(
        "fedldp_problems",
        "How many things keep the part from working; /healthz names them.",
        lambda document: [((), len(document["problems"]))],
    ),
    _Family("fedldp_disk_free_bytes", "Free space on the part's disk.", _one("disk", "free")),
    _Family("fedldp_disk_size_bytes", "Size of the part's disk.", _one("disk", "size")),
    _Family(
        "fedldp_certificate_expiry_timestamp_seconds",
        "When a certificate expires.",
        lambda document: [
            ((name,), _seconds(expires)) for name, expires in document["certificates"].items()
        ],
        ("certificate",),
    ),
)

_SERVER = (
    _Family(
        "fedldp_job_state",
        "1 for the state that the job is in, 0 for others.",
        _job_states,
        ("state",),
    ),
    _Family("fedldp_job_round", "The round that the job is in.", _one("job", "round")),
    _Family("fedldp_job_rounds", "How many rounds the job has.", _one("job", "rounds")),
    _Family(
        "fedldp_job_epsilon",
        "What an answer costs a vehicle of its privacy budget.",
        _one("job", "epsilon"),
    ),
    _Family("fedldp_job_vehicles_asked", "How many vehicles were asked.", _one("job", "asked")),
    _Family(
        "fedldp_job_reports",
        "What came of the questions to vehicles, so far.",
        _outcomes,
        ("outcome",),
    ),
    _Family(
        "fedldp_job_reports_expected",
        "How many reports the job collects if every planned one arrives.",
        _one("job", "expected"),
    ),
    _Family(
        "fedldp_job_round_opened_timestamp_seconds",
        "When the open round was asked.",
        _one("job", "open", "since", time=True),
    ),
    _Family(
        "fedldp_job_round_deadline_timestamp_seconds",
        "When the open round ends without the gateways that have not answered.",
        _one("job", "open", "deadline", time=True),
    ),
    _Family(
        "fedldp_job_round_gateways_asked",
        "How many gateways were asked in the open round.",
        _one("job", "open", "gateways"),
    ),
    _Family(
        "fedldp_job_round_gateways_answered",
        "How many gateways have answered in the open round.",
        _one("job", "open", "received"),
    ),
    _Family(
        "fedldp_implausible_counts",
        "How many warnings there are about reports that honest vehicles hardly ever send.",
        lambda document: [((), len(document["warnings"]))],
    ),
    _Family("fedldp_gateways", "How many gateways are in a state.", _gateways, ("state",)),
    _Family(
        "fedldp_gateway_state",
        "1 for the state that a gateway is in, 0 for others.",
        _states("gateways", GATEWAY_STATES),
        ("gateway", "state"),
    ),
    _Family(
        "fedldp_gateway_heard_timestamp_seconds",
        "When the server last heard from a gateway.",
        _each("gateways", "name", "heard", time=True),
        ("gateway",),
    ),
    _Family(
        "fedldp_gateway_reports",
        "How many reports came from a gateway.",
        _each("gateways", "name", "reports"),
        ("gateway",),
    ),
    _Family(
        "fedldp_gateway_received_bytes",
        "How many bytes of answers came from a gateway.",
        _each("gateways", "name", "bytes"),
        ("gateway",),
    ),
)

_GATEWAY = (
    _Family(
        "fedldp_server_connected",
        "Whether a gateway is connected with its server: 1 or 0.",
        _one("connected"),
    ),
    _Family(
        "fedldp_vault_state",
        "1 for the state that a vault of a gateway is in, 0 for others.",
        _states("vaults", VAULT_STATES),
        ("vault", "state"),
    ),
    _Family(
        "fedldp_vault_heard_timestamp_seconds",
        "When a gateway last heard from a vault.",
        _each("vaults", "name", "heard", time=True),
        ("vault",),
    ),
)

_VAULT = (
    _Family("fedldp_vault_vehicles", "How many vehicles a vault has.", _one("vehicles")),
    _Family(
        "fedldp_vault_budget_left_vehicles",
        "How many vehicles have this much left of their cap.",
        _each("budget", "left", "vehicles"),
        ("left",),
    ),
    _Family(
        "fedldp_vault_answers",
        "How many answers of vehicles a vault has given to a job.",
        _each("jobs", "job", "answers"),
        ("fedldp_job",),  # Prometheus itself has a label `job`
    ),
    _Family(
        "fedldp_vault_questions",
        "What came of the questions to a vault since it was started.",
        _entries("questions"),
        ("outcome",),
    ),
)

# The metrics of each kind of part: what is not named here is not exported.
FAMILIES = {
    "server": (*_COMMON, *_SERVER),
    "gateway": (*_COMMON, *_GATEWAY),
    "vault": (*_COMMON, *_VAULT),
}


@final
class Parts(Collector):
    """Collects the metrics of all parts of a document."""

    def __init__(self, look: Callable[[], Document]) -> None:
        self._look = look

    def collect(self) -> Iterator[Metric]:
        """Yield each metric that a part has."""
        found: dict[str, GaugeMetricFamily] = {}
        for part in self._look()["parts"]:
            for family in FAMILIES[part["part"]]:
                labels = (*_ALL, *family.labels)
                made = GaugeMetricFamily(family.name, family.help, labels=labels)
                metric = found.setdefault(family.name, made)
                for further, value in family.samples(part):
                    if value is not None:
                        metric.add_metric((part["part"], part["name"], *further), float(value))
        yield from (each for each in found.values() if each.samples)


def text(look: Callable[[], Document], accept: str) -> tuple[bytes, str]:
    """Return the metrics, and their content type, in a format that the caller accepts."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Parts(look))
    try:
        encode, kind = choose_encoder(accept)
    except (TypeError, ValueError):  # prometheus_client does not expect versions such as "abc"
        encode, kind = choose_encoder("")
    return encode(registry), kind
