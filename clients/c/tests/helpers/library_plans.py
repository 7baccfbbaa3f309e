"""Plans that the library makes: of all strategies, mechanisms, kinds of attributes and rules."""

from datetime import date

import fedldp
from fedldp.learn.quantiles import QuantileSearch
from fedldp.plan.strategies import Directions, Paper, Sample, Split
from fedldp.schema.attributes import Number

# Mechanisms that are linear programs, and epsilons whose solutions come with the library.
SOLVED, READY = ("optimal", "dominant", "near-zero"), (0.5, 1.0, 2.0, 4.0)
MECHANISMS = [name for name in fedldp.mechanism_names() if name != "laplace"]  # it has no table
CLOSED = [name for name in MECHANISMS if name not in SOLVED]
LABELS = [f"label {i}" for i in range(60)]
MODEL, CITY = {"categories": LABELS[:3], "optional": True}, {"categories": LABELS}
SPEED, RANGE = {"low": 0, "high": 130, "unit": "km/h"}, {"low": 0, "high": 500, "optional": True}
APP, ZONE = {"buckets": 32, "salt": "spring"}, {"first": 1, "last": 20}
TABLES = {
    "speed": SPEED,
    "acceleration": {"low": -9, "high": 9, "size": 3},
    "bought": {"low": date(2020, 1, 1), "high": date(2026, 12, 31)},
    "hour": {"unit": "hour of day"},
    "weekday": {"unit": "weekday"},
    "alarm": {"categories": ["true", "false", "other"]},
    "city": CITY,
    "model": MODEL,
    "range": RANGE,
    "load": {"low": 0, "high": 900, "bins": 6},
    "mileage": {"edges": [0, 10, 100, 1000], "optional": True},
    "heading": {"period": 360.0, "bins": 12, "optional": True},
    "zone": ZONE,
    "app": APP,
    "speed by model": {"of": {"name": "v", **SPEED}, "groups": {"name": "m", **MODEL}},
    "range by zone": {"of": {"name": "r", **RANGE}, "groups": {"name": "z", **ZONE}},
    "app by city": {"of": {"name": "a", **APP}, "groups": {"name": "c", **CITY}},
}


def declared(source, table, ruled, constant):
    """Return a table that has a rule, and is constant, if it may be."""
    rules = fedldp.Schema.of(x=table)["x"].rules
    rule = {"rule": source.choice(rules)} if ruled and rules else {}
    return {**table, **rule, **({"constant": True} if constant else {})}


def attribute(source, name, share_of_constants):
    """Return the table of an attribute, with declarations of its one or two columns."""
    table = TABLES[name]
    declarations = source.random() < 0.5, source.random() < share_of_constants
    if "groups" not in table:
        return declared(source, table, *declarations)
    parts = {}
    for key, part in table.items():
        options = {option: part[option] for option in part if option != "name"}
        parts[key] = {"name": part["name"], **declared(source, options, *declarations)}
    return parts


def library_plans(source, rounds):
    """Return ten plans in each round, the last of which is a calendar."""
    names = list(TABLES)
    for i in range(rounds):
        epsilon = source.randint(50, 8000) / 1000
        first = 2 * i % len(names)
        chosen = {*names[first : first + 2], *source.sample(names, source.randint(1, 6))}
        share_of_constants = 1.0 if i % 5 == 4 else 0.2
        mixed = fedldp.Schema.of(
            **{name: attribute(source, name, share_of_constants) for name in sorted(chosen)}
        )
        numbers = fedldp.Schema.of(a=(0, 1), b=(-3, 9), c=(0.5, 0.75))
        size = source.randint(1, 40)
        for name in (
            MECHANISMS[2 * i % len(MECHANISMS)],
            MECHANISMS[(2 * i + 1) % len(MECHANISMS)],
        ):
            spent = source.choice(READY) if name in SOLVED else epsilon
            yield fedldp.Plan(mixed, spent, Sample(k=1, mechanism=name))
        closed = CLOSED[i % len(CLOSED)]
        plan = fedldp.Plan(mixed, epsilon, Split(mechanism=closed))
        yield plan
        yield fedldp.Plan(mixed, epsilon, Sample(mechanism=closed), compact=True)
        yield fedldp.Plan(mixed, epsilon, Paper(mechanism=closed))
        yield fedldp.Plan(numbers, source.choice(READY))
        yield fedldp.Plan(
            source.choice([numbers, fedldp.Schema.vector(size, 1.0)]), epsilon, "cube"
        )
        vector = fedldp.Schema.vector(size, length=source.choice([1, 2.5]))
        yield fedldp.Plan(vector, epsilon, Directions(mean_length=source.choice([0.3, 1.0])))
        yield QuantileSearch(Number("x", -3, 9), 0.5, epsilon, 1000).plan
        periods = source.randint(1, 30)
        yield fedldp.Calendar(plan, periods, answers=source.randint(1, min(periods, 3)))
