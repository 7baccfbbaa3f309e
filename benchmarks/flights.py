"""`make flights`: what the mechanism is worth when a fleet learns to predict delays.

All flights out of New York in 2013, each a vehicle that is asked once; a tenth is held out. A seed
decides all of it: which flights are held out, the order in which the others are asked, and the
noise. Every way to train sees the same split and order, and steps by the same rule
(`fedldp.learn.settings`), so that differences between two ways are paired. The intervals are 95%,
by Student's t over the seeds.
"""

import sys

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.special import stdtrit

import fedldp
from fedldp import datasets
from fedldp.learn.examples import Arrays
from fedldp.learn.objectives import objective
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Linear

EPSILONS = (1.0, 2.0, 4.0)
WAYS = {  # name: mechanism, k, estimator, strategy
    "default (near-zero)": ("near-zero", "best", "ratio", "sample"),
    "dominant": ("dominant", "best", "ratio", "sample"),
    "optimal": ("optimal", "best", "ratio", "sample"),
    "hm-tp": ("hm-tp", "best", "ratio", "sample"),
    "paper (hm-tp, its k, its average)": ("hm-tp", "paper", "horvitz-thompson", "sample"),
    "cube": ("near-zero", "best", "ratio", "cube"),
}


def settings(epsilon: float, way: str) -> Settings:
    mechanism, k, estimator, strategy = WAYS[way]
    return Settings(epsilon, mechanism, k=k, estimator=estimator, strategy=strategy)


def measure(kind: str, seeds: int) -> dict[tuple[float | None, str], np.ndarray]:
    """The error on the held-out flights, for each seed."""
    features, targets = datasets.load("flights").examples(kind).read(slice(None))
    goal, held = objective(kind), len(targets) // 10
    errors: dict[tuple[float | None, str], list[float]] = {}
    for seed in track(range(seeds), "Training", transient=True):
        order = np.argsort(fedldp.source(seed).words(len(targets)))
        x, y = features[order], targets[order]
        test = Linear(goal, Arrays(x[:held], y[:held]))
        task = Linear(goal, Arrays(x[held:], y[held:]))
        for epsilon in EPSILONS:
            for way in WAYS:
                found = _trained(settings(epsilon, way), task, test, seed)
                errors.setdefault((epsilon, way), []).append(found)
        without = _trained(Settings(1.0, mechanism=None), task, test, seed)
        errors.setdefault((None, "without privacy"), []).append(without)
    return {key: np.array(found) for key, found in errors.items()}


def _trained(chosen: Settings, task: Linear, test: Linear, seed: int) -> float:
    source = fedldp.source(seed).spawn(1)[0]
    training = chosen.training(task, task.objective.distance, source, shuffle=False)
    for _ in training:
        pass
    return float(test.error(training.models)[0])


def interval(values: np.ndarray, digits: int) -> str:
    half = -stdtrit(len(values) - 1, 0.025) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.{digits}f} ± {half:.{digits}f}"


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    kind = sys.argv[2] if len(sys.argv) > 2 else "logistic"
    errors = measure(kind, seeds)
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
