"""What a server can show about the reports of a round: estimates, or noise and steps.

All of it is computed from noisy reports, so it costs vehicles nothing and needs no protection. It
is for the operator of the server.
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, final

from fedldp.errors import ImplausibleWarning
from fedldp.results.tally import Tally
from fedldp.schema.schema import Schema
from fedldp_fleet.library import or_none

ROWS = 40  # at most: a page is for people


@final
@dataclass(frozen=True)
class NamedNumber:
    """A number with its name, and what else is known about it."""

    name: str
    shown: str  # the number, rounded, with its error if that is known
    value: float | None = None
    low: float | None = None  # the ends of its interval
    high: float | None = None
    scale: tuple[float, float] | None = None  # the least and the largest possible value
    answers: int | None = None


@final
@dataclass(frozen=True)
class Insight:
    """A short table for people.

    >>> numbers = (NamedNumber("length of the last step", "0.1"),)
    >>> Insight("Steps", numbers, ("A note.",)).document()["title"]
    'Steps'
    """

    title: str
    rows: tuple[NamedNumber, ...]
    notes: tuple[str, ...] = ()
    more: int = 0  # rows that are left out

    def document(self) -> dict[str, Any]:
        """Return the table for JSON."""
        return asdict(self)


def estimates(tally: Tally, schema: Schema, confidence: float = 0.95) -> Insight:
    """Return the estimates from the reports so far, with intervals.

    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 4.0, fedldp.Sample(mechanism="hm-tp"))
    >>> tally = plan.simulate([{"speed": 30}] * 10_000, fedldp.source(1))
    >>> found = estimates(tally, plan.schema)
    >>> found.title, found.rows[0].name, found.rows[0].shown
    ('Estimates from 10,000 reports', 'speed', '29.81 ± 0.16')
    """
    rows, summaries = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImplausibleWarning)  # the status has them
        found = tally.estimate(confidence=confidence)
    for name, result in found.items():
        for place, line in enumerate(result.shown.lines(name)):
            label, scale = schema[name].estimand.line(place)
            value, low, high = map(or_none, (line.estimate, line.low, line.high))
            rows.append(NamedNumber(label, line.shown, value, low, high, scale, line.answers))
        summaries += [f"{name}: {result.summary}"] if result.summary else []
    notes = (
        *summaries[:ROWS],
        f"Each interval contains the true value with a probability of {confidence:.0%}, if the "
        "vehicles are a random sample of those you ask about. Until the round is closed, they are "
        "those that called first.",
    )
    title = f"Estimates from {found.reports:,} report{'s' * (found.reports != 1)}"
    return Insight(title, tuple(rows[:ROWS]), notes, max(0, len(rows) - ROWS))


def lengths(named: Mapping[str, float]) -> Iterator[NamedNumber]:
    """Yield a row for each length that is known.

    >>> [row.name for row in lengths({"Last step": 0.25, "Noise": float("inf")})]
    ['Last step']
    """
    for name, value in named.items():
        if isfinite(value):
            yield NamedNumber(name, f"{value:.3g}", value)
