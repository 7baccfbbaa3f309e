"""`make ten-million`: what a job of ten million vehicles costs, computed from measured costs.

`fleet_costs.py` has measured them. Nothing here is measured, and no cost is typed in.
"""

import json
from typing import Any, NamedTuple

import pages
from fleet_costs import CONSTANTS, FORMAT
from pages import Table

VEHICLES = 10_000_000
WINDOWS = {"an hour": 3600.0, "a day": 86_400.0, "a week": 604_800.0}
USABLE = 0.7  # of a processor or a lock, so that queues stay short


class Need(NamedTuple):
    """What a job needs, given the seconds in which its answers come."""

    answers: float  # per second
    proxy: float  # cores
    server: float
    database: float
    lock: float  # the share of time in which it is held
    broker: float  # cores, over MQTT
    server_over_mqtt: float

    @classmethod
    def of(cls, costs: dict[str, Any], seconds: float) -> "Need":
        """Return the needs; each vehicle makes a connection of its own."""
        rate = VEHICLES / seconds
        http = costs["stores"]["PostgreSQL, two processes"]

        def cores(microseconds: float) -> float:
            return rate * microseconds / 1e6

        return cls(
            rate,
            cores(costs["handshake_microseconds"] + http["proxy"]),
            cores(http["server"]),
            cores(http["database"]),
            cores(costs["lock_microseconds"]),
            cores(costs["handshake_microseconds"] + costs["broker_microseconds"]),
            cores(costs["server_over_mqtt_microseconds"]),
        )


def tables(costs: dict[str, Any]) -> list[Table]:
    """Return what ten million answers need, and where that ends."""
    needs = {name: Need.of(costs, seconds) for name, seconds in WINDOWS.items()}
    labels = {
        "answers": "number of answers a second",
        "proxy": "HTTPS: proxy with TLS, new connections",
        "server": "HTTPS: server processes",
        "database": "HTTPS: PostgreSQL",
        "lock": "HTTPS: share of the time in which the lock is held",
        "broker": "MQTT: broker with TLS, new sessions",
        "server_over_mqtt": "MQTT: server process with SQLite",
    }
    rows = [
        [label, *(_shown(field, getattr(need, field)) for need in needs.values())]
        for field, label in labels.items()
    ]
    http = costs["stores"]["PostgreSQL"]
    network = http["up"] + http["down"] + costs["handshake_bytes"]
    fastest = USABLE * 1e6 / costs["lock_microseconds"]
    once = [
        ["rows of answers, with indexes", f"{VEHICLES * http['stored'] / 1e9:,.1f} GB"],
        ["the same in SQLite", f"{VEHICLES * costs['stores']['SQLite']['stored'] / 1e9:,.1f} GB"],
        ["network, HTTPS", f"{VEHICLES * network / 1e9:,.0f} GB"],
        [
            "agents in the memory of each process",
            f"{VEHICLES * costs['member_bytes'] / 1e9:,.1f} GB",
        ],
        [f"answers a second if the lock is held {USABLE:.0%} of the time", f"{fastest:,.0f}"],
        ["ten million answers at this rate", f"{VEHICLES / fastest / 60:,.0f} minutes"],
    ]
    return [
        Table("Ten million vehicles that answer within", ("cores, unless stated", *needs), rows),
        Table("Whenever they answer", ("what", "how much"), once),
    ]


def _shown(field: str, value: float) -> str:
    if field == "lock":
        return f"{value:.1%}"
    return f"{value:,.0f}" if field == "answers" else f"{value:.2f}"


def main() -> None:
    chosen = pages.options(__doc__ or "").parse_args()
    costs = json.loads(CONSTANTS.read_text("utf-8"))
    if costs["format"] != FORMAT:
        raise SystemExit(f"{CONSTANTS} is of another format: run benchmarks/fleet_costs.py")
    where = "Computed by `make ten-million` from what `make bench-fleet-costs` measured on"
    pages.publish("ten-million", tables(costs), f"{where} {costs['machine']}", chosen.write)


if __name__ == "__main__":
    main()
