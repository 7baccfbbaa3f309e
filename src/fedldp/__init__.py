"""Private federated learning on fleets, with exact local differential privacy.

>>> import fedldp
>>> channel = fedldp.mechanism("hm-tp", epsilon=1.0).channel()
>>> channel.encode([0.3, -0.7], fedldp.source()).shape
(2,)

`fedldp.source` and `fedldp.mechanisms` are functions; what else is in the modules of these names is
imported from them, as in `from fedldp.mechanisms import Finite`.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fedldp import errors
from fedldp.coders.channel import Channel
from fedldp.estimate import Estimate, combine
from fedldp.ledger import Ledger
from fedldp.mechanisms import (
    HM,
    HMTP,
    PM,
    Dominant,
    Duchi,
    Laplace,
    Mechanism,
    NearZero,
    Optimal,
    PMOpt,
    PMSub,
    ThreeOutputs,
    ThreeOutputsFlat,
    best,
    discretize,
    mechanism,
    mechanisms,
)
from fedldp.plan import Plan
from fedldp.randomness import Source, source
from fedldp.schema import Category, Number, Schema
from fedldp.tally import Tally

__version__ = version("fedldp")

__all__ = [
    "HM",
    "HMTP",
    "PM",
    "Category",
    "Channel",
    "Dominant",
    "Duchi",
    "Estimate",
    "Laplace",
    "Ledger",
    "Mechanism",
    "NearZero",
    "Number",
    "Optimal",
    "PMOpt",
    "PMSub",
    "Plan",
    "Schema",
    "Source",
    "Tally",
    "ThreeOutputs",
    "ThreeOutputsFlat",
    "best",
    "combine",
    "discretize",
    "errors",
    "mechanism",
    "mechanisms",
    "source",
]

if TYPE_CHECKING:
    from fedldp.learn.estimators import LDPLinearRegression as LDPLinearRegression
    from fedldp.learn.estimators import LDPLinearSVC as LDPLinearSVC
    from fedldp.learn.estimators import LDPLogisticRegression as LDPLogisticRegression
else:

    def __getattr__(name: str) -> Any:
        """Import the estimators when they are asked for: they need scikit-learn."""
        if name in ("LDPLinearRegression", "LDPLinearSVC", "LDPLogisticRegression"):
            return getattr(import_module("fedldp.learn.estimators"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
