"""`make flights`: where the accuracy comes from when a fleet learns to predict delays.

All flights out of New York in 2013, each a vehicle that is asked once; a tenth is held out. A seed
decides everything: which flights are held out, the order in which the others are asked, and the
noise. Every way to train has the same split and order, so that differences between two ways are
paired. The intervals are 95%, by Student's t over the seeds.

    python benchmarks/flights.py [SEEDS] [logistic|squared|hinge] [VEHICLES]
"""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.special import stdtrit

import fedldp
from fedldp import datasets
from fedldp.learn.objectives import objective
from fedldp.learn.optimizer import Adam, NoiseAware
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Linear
from fedldp.plan.strategies import Sample

EPSILONS = (1.0, 2.0, 4.0)
OLD = {"strategy": "sample", "optimizer": "adam", "reference": "first", "survey": None}
PAPER = {"strategy": Sample("paper", "hm-tp")}
HT = "horvitz-thompson"
WAYS: dict[str, dict[str, Any]] = {
    "all together (the default)": {},
    "version 0.1": OLD,
    "only directions": {**OLD, "strategy": "directions"},
    "only a feature for each label": {**OLD, "reference": "none"},
    "only a noise-aware server": {**OLD, "optimizer": "noise-aware"},
    "only a survey": {**OLD, "survey": "scale"},
    "all but directions": {"strategy": "sample", "optimizer": "noise-aware"},
    "all but a feature for each label": {"reference": "first"},
    "all but a noise-aware server": {"optimizer": "adam", "survey": "scale"},
    "all but a survey": {"survey": None},
    "the paper's mechanism, version 0.1": {**OLD, **PAPER, "optimizer": Adam(estimator=HT)},
    "the paper's mechanism, same server": {**PAPER, "optimizer": NoiseAware(estimator=HT)},
}


def measure(kind: str, seeds: int, vehicles: int) -> dict[tuple[float | None, str], np.ndarray]:
    """The error on the held-out flights, for each seed."""
    flights, held = datasets.load("flights"), len(datasets.load("flights")) // 10
    errors: dict[tuple[float | None, str], list[float]] = {}
    for seed in track(range(seeds), "Training", transient=True):
        order = np.argsort(fedldp.source(seed).words(len(flights)))
        parts = flights.take(order[held : held + vehicles]), flights.take(order[:held])
        for epsilon in EPSILONS:
            for way, options in WAYS.items():
                found = _trained(Settings(epsilon, **options), parts, kind, seed)
                errors.setdefault((epsilon, way), []).append(found)
        without = _trained(Settings(None), parts, kind, seed)
        errors.setdefault((None, "without privacy"), []).append(without)
    return {key: np.array(found) for key, found in errors.items()}


def _trained(chosen: Settings, parts: Any, kind: str, seed: int) -> float:
    fleet, test = (
        Linear(objective(kind), replace(part, reference=chosen.reference).examples(kind))
        for part in parts
    )
    source = fedldp.source(seed).spawn(1)[0]
    training = chosen.training(fleet, fleet.objective.distance, source, shuffle=False)
    for _ in training:
        pass
    if training.scaling is not None:
        test = test.scaled(training.scaling)
    return float(test.error(training.models)[0])


def interval(values: np.ndarray, digits: int) -> str:
    half = -stdtrit(len(values) - 1, 0.025) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.{digits}f} ± {half:.{digits}f}"


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    kind = sys.argv[2] if len(sys.argv) > 2 else "logistic"
    vehicles = int(sys.argv[3]) if len(sys.argv) > 3 else 1 << 40
    errors = measure(kind, seeds, vehicles)
    what = "mean squared error on [-1, 1]" if kind == "squared" else "misclassified"
    digits = 5 if kind == "squared" else 4
    for title, shown in (
        (f"{what}: mean of {seeds} seeds", lambda e, way: errors[e, way]),
        ("more than the default", lambda e, way: errors[e, way] - errors[e, next(iter(WAYS))]),
    ):
        table = Table(title=f"flights, {kind}, {title}")
        for column in ("", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)):
            table.add_column(column)
        for way in WAYS:
            table.add_row(way, *(interval(shown(e, way), digits) for e in EPSILONS))
        Console().print(table)
    print("without privacy:", interval(errors[None, "without privacy"], digits))


if __name__ == "__main__":
    main()
