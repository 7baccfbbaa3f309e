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
    "Angle",
    "BinnedNumber",
    "Calendar",
    "Category",
    "Channel",
    "Counted",
    "Cube",
    "DataQuality",
    "Directions",
    "Distribution",
    "Estimate",
    "LDPLinearRegression",
    "LDPLinearSVC",
    "LDPLogisticRegression",
    "LDPMLPClassifier",
    "LDPMLPRegressor",
    "Ledger",
    "Manifest",
    "Number",
    "OptionalNumber",
    "Plan",
    "Plausibility",
    "Report",
    "Sample",
    "Schema",
    "Source",
    "Split",
    "Tally",
    "Trend",
    "Vehicle",
    "Within",
    "audit",
    "best_channel",
    "coders",
    "combine_estimates",
    "compare_estimates",
    "datasets",
    "errors",
    "learn",
    "mechanism",
    "mechanism_names",
    "mechanisms",
    "shuffled_epsilon",
    "source",
    "vehicle",
]

if TYPE_CHECKING:
    from fedldp import (
        audit,
        coders,
        datasets,
        errors,
        learn,
        mechanisms,
        vehicle,
    )
    from fedldp.budget.calendars import Calendar, Trend
    from fedldp.budget.ledger import Ledger
    from fedldp.budget.shuffling import shuffled_epsilon
    from fedldp.budget.vehicle import Vehicle
    from fedldp.coders.channel import Channel
    from fedldp.counting.counts import Counted, Manifest
    from fedldp.learn.estimators import (
        LDPLinearRegression,
        LDPLinearSVC,
        LDPLogisticRegression,
        LDPMLPClassifier,
        LDPMLPRegressor,
    )
    from fedldp.mechanisms import best_channel, mechanism, mechanism_names
    from fedldp.plan.plan import Plan
    from fedldp.plan.report import Report
    from fedldp.plan.strategies import Cube, Directions, Sample, Split
    from fedldp.randomness import Source, source
    from fedldp.results.estimate import Estimate, combine_estimates, compare_estimates
    from fedldp.results.plausibility import Plausibility
    from fedldp.results.tally import Tally
    from fedldp.schema.attributes import (
        Angle,
        BinnedNumber,
        Category,
        Distribution,
        Number,
        OptionalNumber,
        Within,
    )
    from fedldp.schema.quality import DataQuality
    from fedldp.schema.schema import Schema

    __version__: str
else:
    # The same imports, made on first use; a test compares both lists.
    _load = attribute_loader(
        __name__,
        {
            "": "audit coders datasets errors learn mechanisms vehicle",
            "schema.attributes": "Angle BinnedNumber Category Distribution Number OptionalNumber "
            "Within",
            "coders.channel": "Channel",
            "counting.counts": "Counted Manifest",
            "schema.quality": "DataQuality",
            "results.estimate": "Estimate combine_estimates compare_estimates",
            "learn.estimators": "LDPLinearRegression LDPLinearSVC LDPLogisticRegression "
            "LDPMLPClassifier LDPMLPRegressor",
            "budget.ledger": "Ledger",
            "budget.vehicle": "Vehicle",
            "mechanisms": "best_channel mechanism mechanism_names",
            "budget.calendars": "Calendar Trend",
            "plan.plan": "Plan",
            "results.plausibility": "Plausibility",
            "randomness": "Source source",
            "plan.report": "Report",
            "plan.strategies": "Cube Directions Sample Split",
            "schema.schema": "Schema",
            "budget.shuffling": "shuffled_epsilon",
            "results.tally": "Tally",
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
