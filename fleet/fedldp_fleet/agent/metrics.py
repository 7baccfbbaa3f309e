"""The metrics of an agent, in Prometheus' text format, for its owner.

An agent listens nowhere. Its owner writes them to a file from time to time, which node_exporter's
textfile collector reads, or asks for them in any other way. They follow from the ledger, the
owner's settings and the server, never from data; the names of problems, disk and version are those
of a server's metrics.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from fedldp import __version__

Document = Mapping[str, Any]
Labels = Mapping[str, str]


class _AgentMetric(NamedTuple):
    """A metric, with its samples."""

    name: str
    kind: str
    help: str
    samples: list[tuple[Labels, float]]


def text(document: Document, attention: Iterable[str]) -> str:
    """Return the metrics of an agent, given its status.

    >>> status = {"running": True, "cap": "4.0", "left": {"3.0": 1, "0.0": 1}}
    >>> [line for line in text(status, []).splitlines() if "left" in line][2:]  # doctest: +ELLIPSIS
    ['fedldp_agent_budget_left_epsilon{of="least"} 0.0', ...]
    """
    return "".join(_written(each) for each in _families(document, list(attention)) if each.samples)


def _families(document: Document, attention: list[str]) -> Iterator[_AgentMetric]:
    def gauge(name: str, what: str, value: Any) -> _AgentMetric:
        return _AgentMetric(name, "gauge", what, [] if value is None else [({}, float(value))])

    yield _AgentMetric("fedldp_build_info", "gauge", "Always 1.", [({"version": __version__}, 1.0)])
    yield gauge("fedldp_problems", "Things that somebody should look after.", len(attention))
    yield gauge("fedldp_disk_free_bytes", "Free space, rounded down.", document.get("disk_free"))
    yield gauge("fedldp_disk_size_bytes", "Size of the ledger's disk.", document.get("disk_size"))
    yield gauge("fedldp_agent_running", "1 if the agent runs.", document["running"])
    for name in ("last_call", "next_call"):
        what = f"When the {name.replace('_', ' ')} to the server is or was."
        yield gauge(f"fedldp_agent_{name}_timestamp_seconds", what, document.get(name))
    yield gauge(
        "fedldp_agent_cap_epsilon", "The most that a vehicle spends in its life.", document["cap"]
    )
    answered = document.get("vehicles_that_answered")
    yield gauge("fedldp_agent_vehicles_answered", "Vehicles that have ever answered.", answered)
    left = _left(document.get("left", {}))
    yield _AgentMetric(
        "fedldp_agent_budget_left_epsilon",
        "gauge",
        "What is left of the cap, of vehicles that have ever answered.",
        [({"of": name}, value) for name, value in left.items()],
    )
    yield _AgentMetric(
        "fedldp_agent_answers_total",
        "counter",
        "Answers of vehicles to a job.",
        [({"fedldp_job": job}, count) for job, count in document.get("jobs", {}).items()],
    )


def _left(counts: Mapping[str, int]) -> dict[str, float]:
    """Return the least, the median and the most of what is left."""
    ordered = sorted((float(left), count) for left, count in counts.items())
    if not ordered:
        return {}
    middle, passed, median = sum(count for _, count in ordered) / 2, 0, 0.0
    for left, count in ordered:
        median = left
        passed += count
        if passed >= middle:
            break
    return {"least": ordered[0][0], "median": median, "most": ordered[-1][0]}


def _written(family: _AgentMetric) -> str:
    lines = [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
    for labels, value in family.samples:
        listed = ",".join(f'{name}="{_escaped(of)}"' for name, of in labels.items())
        lines.append(
            f"{family.name}{{{listed}}} {value!r}" if listed else f"{family.name} {value!r}"
        )
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
