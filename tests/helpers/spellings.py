"""Flat options of plans and estimators, as golden files and tables of tests spell them."""

from typing import Any

from fedldp import Plan, Schema
from fedldp.plan.strategies import strategy_of

_OF_STRATEGIES = (
    *("strategy", "mechanism", "k", "outputs", "threshold", "study", "mean_length", "fleet"),
    "variance",
)


def nested(options: dict[str, Any], *, gradients: bool = False) -> dict[str, Any]:
    """Return options with a strategy that carries its own."""
    flat = {name: options[name] for name in _OF_STRATEGIES if name in options}
    others = {name: options[name] for name in options if name not in _OF_STRATEGIES}
    if flat.get("mechanism", "") is None:  # training without privacy
        del flat["mechanism"]
        others["epsilon"] = None
    return others | {
        "strategy": strategy_of(flat.pop("strategy", "auto"), gradients=gradients, **flat)
    }


def flat_plan(schema: Schema, epsilon: float, **options: Any) -> Plan:
    """Return a plan from flat options."""
    return Plan(schema, epsilon, **nested(options))
