"""Data sets, by name: the flights come with fedldp, others are registered, any file can be one.

>>> flights = load("flights", rows=1000)
>>> flights.examples("logistic").dimensions
33
>>> about("flights").title
'Flights from New York, 2013'
"""

from fedldp.datasets.dataset import About, Dataset
from fedldp.datasets.files import from_file
from fedldp.datasets.registry import (
    Embedded,
    File,
    Generated,
    Origin,
    about,
    fetch,
    listed,
    load,
    names,
    origin,
)

__all__ = [
    "About",
    "Dataset",
    "Embedded",
    "File",
    "Generated",
    "Origin",
    "about",
    "fetch",
    "from_file",
    "listed",
    "load",
    "names",
    "origin",
]
