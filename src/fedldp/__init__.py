"""Private federated learning on fleets, with exact local differential privacy.

>>> import fedldp as ldp
>>> m = ldp.mechanism("hm-tp", epsilon=1.0)
>>> m.perturb([0.3, -0.7], ldp.source(7)).shape
(2,)
"""

from importlib.metadata import version

from fedldp import errors
from fedldp.mechanisms import (
    HM,
    HMTP,
    PM,
    Duchi,
    Laplace,
    Mechanism,
    PMOpt,
    PMSub,
    ThreeOutputs,
    ThreeOutputsFlat,
    mechanism,
    mechanisms,
)
from fedldp.source import Source, source

__version__ = version("fedldp")

__all__ = [
    "HM",
    "HMTP",
    "PM",
    "Duchi",
    "Laplace",
    "Mechanism",
    "PMOpt",
    "PMSub",
    "Source",
    "ThreeOutputs",
    "ThreeOutputsFlat",
    "errors",
    "mechanism",
    "mechanisms",
    "source",
]
