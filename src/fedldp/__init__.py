"""Private federated learning on fleets, with exact local differential privacy.

>>> import fedldp
>>> channel = fedldp.mechanism("hm-tp", epsilon=1.0).channel()
>>> channel.encode([0.3, -0.7], fedldp.source()).shape
(2,)

`dir(fedldp)` lists the public names. Each of them is imported when it is first used, so that
`import fedldp` is fast and needs no optional package.
"""

from typing import TYPE_CHECKING, Any

from fedldp._internal.lazy import attribute_loader

__all__ = [
    "HM",
    "HMTP",
    "PM",
    "Angle",
    "Calendar",
    "Category",
    "Channel",
    "Counted",
    "DataQuality",
    "Distribution",
    "Dominant",
    "Duchi",
    "Estimate",
    "Frequencies",
    "LDPLinearRegression",
    "LDPLinearSVC",
    "LDPLogisticRegression",
    "LDPMLPClassifier",
    "LDPMLPRegressor",
    "Laplace",
    "Ledger",
    "Manifest",
    "Mean",
    "Mechanism",
    "NearZero",
    "Number",
    "Optimal",
    "PMOpt",
    "PMSub",
    "Plan",
    "Plausibility",
    "Report",
    "Schema",
    "Source",
    "Tally",
    "ThreeOutputs",
    "ThreeOutputsFlat",
    "Trend",
    "Within",
    "amplification",
    "attributes",
    "audit",
    "best",
    "campaigns",
    "coders",
    "combine",
    "datasets",
    "difference",
    "discretize",
    "engines",
    "errors",
    "fleet",
    "learn",
    "mechanism",
    "mechanism_names",
    "mechanisms",
    "parts",
    "source",
    "vehicle",
]

if TYPE_CHECKING:
    from fedldp import (
        attributes,
        audit,
        campaigns,
        coders,
        datasets,
        engines,
        errors,
        fleet,
        learn,
        mechanisms,
        parts,
        vehicle,
    )
    from fedldp.attributes import Angle, Distribution
    from fedldp.coders.channel import Channel
    from fedldp.counting import Counted, Manifest
    from fedldp.data.quality import DataQuality
    from fedldp.estimate import Estimate, Frequencies, Mean, combine, difference
    from fedldp.learn.estimators import (
        LDPLinearRegression,
        LDPLinearSVC,
        LDPLogisticRegression,
        LDPMLPClassifier,
        LDPMLPRegressor,
    )
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
        mechanism_names,
    )
    from fedldp.periods import Calendar, Trend
    from fedldp.plan import Plan
    from fedldp.plausibility import Plausibility
    from fedldp.randomness import Source, source
    from fedldp.report import Report
    from fedldp.schema import Category, Number, Schema, Within
    from fedldp.shuffling import amplification
    from fedldp.tally import Tally

    __version__: str
else:
    # The same imports, made on first use; a test compares both lists.
    _load = attribute_loader(
        __name__,
        {
            "": "attributes audit campaigns coders datasets engines errors fleet learn mechanisms "
            "parts vehicle",
            "attributes": "Angle Distribution",
            "coders.channel": "Channel",
            "counting": "Counted Manifest",
            "data.quality": "DataQuality",
            "estimate": "Estimate Frequencies Mean combine difference",
            "learn.estimators": "LDPLinearRegression LDPLinearSVC LDPLogisticRegression "
            "LDPMLPClassifier LDPMLPRegressor",
            "ledger": "Ledger",
            "mechanisms": "HM HMTP PM Dominant Duchi Laplace Mechanism NearZero Optimal PMOpt "
            "PMSub ThreeOutputs ThreeOutputsFlat best discretize mechanism mechanism_names",
            "periods": "Calendar Trend",
            "plan": "Plan",
            "plausibility": "Plausibility",
            "randomness": "Source source",
            "report": "Report",
            "schema": "Category Number Schema Within",
            "shuffling": "amplification",
            "tally": "Tally",
        },
    )

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used."""
        if name == "__version__":
            from importlib.metadata import version  # slow to import

            return version("fedldp")
        return _load(name)

    def __dir__() -> list[str]:
        """Return exactly the public names."""
        return sorted(__all__)
