"""`make flights`: where the accuracy comes from when a fleet learns to predict delays.

All flights out of New York in 2013, each a vehicle that is asked once; a tenth is held out. A seed
decides everything: which flights are held out, the order in which the others are asked, and the
noise. Every way to train has the same split and order. Errors are means with standard errors.

Beside the error of each way stands how many times the vehicles it needs: the default is trained on
parts of the fleet too, and the factor is the whole fleet over the part on which the default errs as
often, interpolated in the logarithm. The converged reference has all data and no noise: L-BFGS
minimizes the loss.

    python benchmarks/flights.py [--seeds 3] [--first 0] [--task logistic] [--vehicles N] \
      [--write PAGE]

A seed takes about 20 seconds of one core.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from pages import Table, busy, machine, options, publish
from rich.progress import track
from scipy.optimize import minimize

import fedldp
from fedldp import datasets
from fedldp.datasets import Dataset
from fedldp.learn.features import written_out
from fedldp.learn.objectives import objective
from fedldp.learn.optimizer import Adam, NoiseAware
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Linear
from fedldp.plan.strategies import Sample

EPSILONS = (1.0, 2.0, 4.0)
HALVINGS = 6  # of the fleet, down to a 64th
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


Parts = tuple[Dataset, Dataset]  # the fleet, and what is held out
DEFAULT = next(iter(WAYS))


def parts_of(seed: int, vehicles: int) -> Parts:
    """Return the fleet of a seed, and the flights that are held out."""
    flights = datasets.load("flights")
    order, held = np.argsort(fedldp.source(seed).words(len(flights))), len(flights) // 10
    return flights.take(order[held : held + vehicles]), flights.take(order[:held])


def tasks(parts: Parts, kind: str, reference: str) -> tuple[Linear, Linear]:
    """Return the tasks of the fleet and of what is held out."""
    fleet, test = (
        Linear(objective(kind), replace(part, reference=reference).examples(kind)) for part in parts
    )
    return fleet, test


def trained(chosen: Settings, parts: Parts, kind: str, seed: int) -> float:
    """Return the error of a training on what is held out."""
    fleet, test = tasks(parts, kind, chosen.reference)
    source = fedldp.source(seed).spawn(1)[0]
    training = chosen.training(fleet, fleet.objective.distance, source, shuffle=False)
    for _ in training:
        pass
    if training.scaling is not None:
        test = test.scaled(training.scaling)
    return float(test.error(training.models)[0])


def converged(parts: Parts, kind: str) -> float:
    """Return the error of the model with the least loss on the fleet's data."""
    fleet, test = tasks(parts, kind, "none")
    features, targets = fleet.examples.read(slice(None))
    x, goal = written_out(features).astype(np.float64), fleet.objective

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        scores = x @ weights
        slope = goal.slope(scores, targets)
        ridge = 1e-9 * weights
        value = goal.loss(scores, targets).mean() + weights @ ridge / 2
        return float(value), slope @ x / len(x) + ridge

    found = minimize(loss, np.zeros(x.shape[1]), jac=True, options={"maxiter": 2000})
    return float(test.error(found.x[None])[0])


def factor(error: float, curve: np.ndarray) -> str:
    """Return how many times the vehicles a way needs, given the default's errors on parts."""
    rising = np.maximum.accumulate(curve)  # of ever smaller parts
    if error <= rising[0]:
        return "1 or less"
    if error > rising[-1]:
        return f"more than {2**HALVINGS}"
    return f"{2 ** np.interp(error, rising, np.arange(HALVINGS + 1.0)):.2g}"


def majority(parts: Parts, kind: str) -> float:
    """Return the error of the same answer for all flights that are held out."""
    _, test = tasks(parts, kind, "none")
    return test.objective.base_rate(test.examples.read(slice(None))[1])


def table(kind: str, seeds: range, vehicles: int) -> Table:
    """Return a row for each way to train."""
    errors: dict[tuple[float, str], list[float]] = {}
    curves = np.zeros((len(EPSILONS), HALVINGS + 1, len(seeds)))
    references: dict[str, list[float]] = {}
    sizes = []
    for column, seed in enumerate(track(seeds, "Training", transient=True)):
        fleet, test = parts_of(seed, vehicles)
        sizes.append(len(fleet))
        for name, error in (
            ("this library, without privacy", trained(Settings(None), (fleet, test), kind, seed)),
            ("converged, without privacy", converged((fleet, test), kind)),
            ("majority baseline", majority((fleet, test), kind)),
        ):
            references.setdefault(name, []).append(error)
        for place, epsilon in enumerate(EPSILONS):
            for way, chosen in WAYS.items():
                found = trained(Settings(epsilon, **chosen), (fleet, test), kind, seed)
                errors.setdefault((epsilon, way), []).append(found)
            curves[place, 0, column] = errors[epsilon, DEFAULT][-1]
            for halving in range(1, HALVINGS + 1):
                part = fleet.take(np.arange(len(fleet) >> halving)), test
                curves[place, halving, column] = trained(Settings(epsilon), part, kind, seed)
    digits = 5 if kind == "squared" else 4
    rows = [
        [
            way,
            *(
                cell
                for place, epsilon in enumerate(EPSILONS)
                for cell in (
                    with_error(errors[epsilon, way], digits),
                    factor(np.mean(errors[epsilon, way]), curves[place].mean(axis=1)),
                )
            ),
        ]
        for way in WAYS
    ]
    for name, found in references.items():
        rows.append([name, *([with_error(found, digits), ""] * len(EPSILONS))])
    headings = [""]
    headings += [f"ε = {epsilon:g}{what}" for epsilon in EPSILONS for what in ("", ", vehicles")]
    what = "Mean squared error" if kind == "squared" else "Share of wrong predictions"
    size, number = f"{np.mean(sizes):,.0f}", f"{len(seeds)} seeds from {seeds.start}"
    title = f"{what} ({kind}) of models trained on {size} flights, with {number}"
    return Table(title, headings, rows)


def with_error(values: list[float], digits: int) -> str:
    """Return a mean with its standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{np.mean(values):.{digits}f} ± {error:.{digits}f}"


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--task", default="logistic", choices=("logistic", "squared", "hinge"))
    parser.add_argument("--vehicles", type=int, default=1 << 40)
    given = parser.parse_args()
    where = f"Measured on {machine()}; {busy()}"
    seeds = range(given.first, given.first + given.seeds)
    tables = [table(given.task, seeds, given.vehicles)]
    publish("flights", tables, where, given.write)


if __name__ == "__main__":
    main()
