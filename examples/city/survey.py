"""What the fleet is asked, what is estimated from its answers, and the truth beside it."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow
from traffic import (
    DISTANCE,
    DISTRICT,
    DISTRICTS,
    FIRST_HOUR,
    POWERTRAIN,
    POWERTRAINS,
    SLOT_HOURS,
    SLOTS,
    SPEED,
    WAITING,
    Rows,
)

import fedldp

EPSILONS = (1.0, 2.0, 4.0)
MOST_UNCERTAINTY = 5.0  # km/h: a district whose 95% interval reaches further is grey

_BY_DISTRICT = "Speed by district"
_SLOW = 20.0  # km/h: what the model predicts is whether a car was slower in its district
_HOLDOUT = 0.1


def calendar(epsilon: float, periods: int) -> fedldp.Calendar:
    """Return the question: the same plan in every period, of which a car answers one."""
    speed, district = fedldp.Number(SPEED, 0, 60), fedldp.Category(DISTRICT, DISTRICTS)
    schema = fedldp.Schema(
        (
            fedldp.Within(_BY_DISTRICT, speed, district),
            fedldp.BinnedNumber.of(WAITING, 0, 8, bins=16),
            fedldp.Category(POWERTRAIN, POWERTRAINS),
        )
    )
    return fedldp.Calendar(fedldp.Plan(schema, epsilon), periods=periods, answers=1)


def collect(asked: fedldp.Calendar, rows: Rows, source: fedldp.Source) -> dict[int, fedldp.Tally]:
    """Return the tally of each period: the cars that drew the period answer, all others do not."""
    tallies = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fedldp.errors.DataWarning)  # very long waits are clipped
        for period in range(1, asked.periods + 1):
            there = rows["period"] == period
            answers = {name: rows[name][there] for name in (SPEED, DISTRICT, WAITING, POWERTRAIN)}
            tallies[period] = asked.plan.simulate(answers, source)
    return tallies


def total(tallies: Mapping[int, fedldp.Tally], slot: int | None = None) -> fedldp.Estimate:
    """Estimate from all periods, or from those of one slot of the day, counted from 0."""
    kept = [tally for n, tally in tallies.items() if slot is None or (n - 1) % SLOTS == slot]
    return sum(kept[1:], kept[0]).estimate()


@dataclass(frozen=True)
class Speeds:
    """The mean speed of each district in km/h, with the ends of 95% intervals."""

    means: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def reach(self) -> np.ndarray:
        """How far the intervals reach from the means."""
        return np.fmax(self.means - self.low, self.high - self.means)

    @property
    def grey(self) -> np.ndarray:
        """Which districts are too uncertain to be shown."""
        return ~(self.reach <= MOST_UNCERTAINTY)

    @classmethod
    def of(cls, estimate: fedldp.Estimate) -> "Speeds":
        """Return what was estimated."""
        found = estimate[_BY_DISTRICT].means
        return cls(found.mean, *found.interval.T)

    @classmethod
    def true(cls, rows: Rows, slot: int | None = None) -> "Speeds":
        """Return the truth, which only a simulation knows; NaN where no car was."""
        there = (rows["period"] - 1) % SLOTS == slot if slot is not None else slice(None)
        places = np.searchsorted(DISTRICTS, rows[DISTRICT][there])
        with np.errstate(invalid="ignore"):
            cars = np.bincount(places, minlength=len(DISTRICTS))
            means = np.bincount(places, rows[SPEED][there], len(DISTRICTS)) / cars
        return cls(means, means, means)


def congestion(rows: Rows, epsilon: float | None) -> float:
    """Train a model that predicts whether a car is slow, and return its error on other cars.

    It knows the district, the time of the day and the length of the trip. Epsilon None is without
    privacy, 0 the majority baseline.
    """
    slow = rows[SPEED] < _SLOW
    hours = [f"from {FIRST_HOUR + slot * SLOT_HOURS}" for slot in range(SLOTS)]
    known = pyarrow.table(
        {
            DISTRICT: rows[DISTRICT],
            "time": np.array(hours)[(rows["period"] - 1) % SLOTS],
            DISTANCE: rows[DISTANCE],
        }
    )
    held_out = fedldp.source(1).uniform(slow.shape) < _HOLDOUT
    if epsilon == 0:
        return float(min(np.mean(slow[held_out]), np.mean(~slow[held_out])))
    model = fedldp.LDPLogisticRegression(
        epsilon=epsilon,
        bounds={DISTRICT: DISTRICTS, "time": hours, DISTANCE: (0, 8)},
        random_state=0,
    )
    model.fit(known.filter(~held_out), slow[~held_out])
    return float(1 - model.score(known.filter(held_out), slow[held_out]))


def lines(rows: Rows, estimates: Mapping[float, fedldp.Estimate]) -> list[list[str]]:
    """Return a table: in each line a question, the truth, and what is known at each epsilon."""
    truth, number = Speeds.true(rows), len(DISTRICTS)
    speeds = [Speeds.of(estimate) for estimate in estimates.values()]
    names = ["km/h in the busiest district", "km/h in the quietest district"]
    sizes = [np.sum(rows[DISTRICT] == name) for name in DISTRICTS]
    table = [
        [name, f"{truth.means[place]:.1f}"]
        + [f"{found.means[place]:.1f} ± {found.reach[place]:.1f}" for found in speeds]
        for name, place in zip(names, (np.argmax(sizes), np.argmin(sizes)), strict=True)
    ]
    grey = [f"{found.grey.sum()} of {number}" for found in speeds]
    table.append([f"districts grey: above ± {MOST_UNCERTAINTY:g} km/h", "", *grey])
    errors = [np.abs(found.means - truth.means)[~found.grey] for found in speeds]
    means = [f"{error.mean():.1f}" if error.size else "-" for error in errors]
    table.append(["km/h of error in the others", "", *means])
    held = [np.sum((found.low <= truth.means) & (truth.means <= found.high)) for found in speeds]
    table.append(["intervals that hold the truth", "", *(f"{n} of {number}" for n in held)])
    for level, name in ((0.5, "minutes that half wait less than"), (0.9, "minutes that 90% do")):
        found = [estimate[WAITING].quantile(level) for estimate in estimates.values()]
        ranges = [f"{each.value:.1f} ({each.low:.1f} to {each.high:.1f})" for each in found]
        table.append([name, f"{np.quantile(rows[WAITING], level):.1f}", *ranges])
    electric = f"{np.mean(rows[POWERTRAIN] == 'ELECTRIC'):.1%}"
    return [*table, ["electric cars", electric, *map(share, estimates.values())]]


def model_line(rows: Rows) -> list[str]:
    """Return the line of the table about the model."""
    baseline, best = congestion(rows, 0), congestion(rows, None)
    name = f"slow cars, wrong guesses: {baseline:.1%} without a model"
    return [name, f"{best:.1%}", *(f"{congestion(rows, epsilon):.1%}" for epsilon in EPSILONS)]


def share(estimate: fedldp.Estimate) -> str:
    """Return the share of electric cars, as text."""
    found, place = estimate[POWERTRAIN], POWERTRAINS.index("ELECTRIC")
    reach = np.ptp(found.interval[place]) / 2
    return f"{found.frequencies[place]:.1%} ± {reach:.1%}"
