"""Bias and fit of linear regression on targets of different shapes, beside least squares.

    python benchmarks/regression.py --vehicles 20000 --vehicles 200000 --write docs/learning.md

A row has four correlated numbers, one of them skewed, which explain a part of the target. Each
vehicle answers once. *Before* is the clip of version 0.2: gradients at a length of 0.6, and no
survey of the target. Each figure is a mean over the seeds, measured on 20,000 other rows: the bias
is the mean prediction less the mean target, in standard deviations of the target. The excess error
is how much larger the mean squared error is than that of least squares without privacy.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
from pages import Table, busy, machine, options, publish

from fedldp.errors import AccuracyWarning, DataWarning
from fedldp.learn.estimators import LDPLinearRegression
from fedldp.learn.settings import Settings
from fedldp.plan.strategies import Directions

Floats = npt.NDArray[np.float64]
Draw = np.random.Generator

EPSILONS, TEST, FIRST_SEED = (1.0, 2.0, 4.0), 20_000, 1_000
BEFORE = {"bound": 0.6, "strategy": Directions(mean_length=0.3)}


def _share(score: Floats, share: float) -> Floats:
    """Return probabilities that grow with the score, about `share` on average."""
    return 1 / (1 + np.exp(-np.log(share / (1 - share)) - 0.5 * score))


def _zeros(score: Floats, draw: Draw) -> Floats:
    some = 40 + 2 * score + 5 * draw.standard_normal(len(score))
    return np.where(draw.random(len(score)) < _share(-score, 0.35), 0.0, some)


def _modes(score: Floats, draw: Draw) -> Floats:
    high = draw.random(len(score)) < _share(score, 0.3)
    return np.where(high, 70.0, 10.0) + 3 * draw.standard_normal(len(score))


def _rare(score: Floats, draw: Draw) -> Floats:
    some = 20 + 30 * draw.random(len(score))
    return np.where(draw.random(len(score)) < _share(score, 0.08), some, 0.0)


SHAPES: dict[str, tuple[tuple[float, float], Callable[[Floats, Draw], Floats]]] = {
    "normal": ((0, 80), lambda s, draw: 40 + 5 * s + 6 * draw.standard_normal(len(s))),
    "uniform": ((0, 80), lambda s, draw: 80 * draw.random(len(s)) ** np.exp(-0.3 * s)),
    "35% zeros, others about 40": ((0, 80), _zeros),
    "lognormal": ((0, 50), lambda s, draw: np.exp(0.4 * s + 0.8 * draw.standard_normal(len(s)))),
    "two modes": ((0, 80), _modes),
    "heavy tails": ((-500, 500), lambda s, draw: 10 * s + 10 * draw.standard_t(2.5, len(s))),
    "counts": ((0, 40), lambda s, draw: draw.poisson(np.exp(0.5 + 0.4 * s)).astype(float)),
    "piled up at one end": (
        (0, 100),
        lambda s, draw: np.minimum(100, 85 + 10 * s + 15 * draw.standard_normal(len(s))),
    ),
    "92% zeros": ((0, 60), _rare),
    "U shape": ((0, 1), lambda s, draw: draw.beta(0.4 * np.exp(0.3 * s), 0.4)),
    "three orders of magnitude": (
        (0, 1000),
        lambda s, draw: 10 ** np.clip(1.5 + 0.4 * s + draw.uniform(-1.5, 1.5, len(s)), 0, 3),
    ),
}


def rows(shape: str, number: int, seed: int) -> tuple[Floats, Floats, tuple[float, float]]:
    """Return features in [-5, 5], a target, and its bounds."""
    draw = np.random.default_rng(seed)
    mixed = draw.standard_normal((number, 4)) @ np.linalg.cholesky(0.3 + 0.7 * np.eye(4)).T
    score = mixed @ [0.8, -0.5, 0.4, 0.2]
    mixed[:, 3] = np.exp(0.5 * mixed[:, 3]) - 1
    bounds, target = SHAPES[shape]
    return np.clip(mixed, -5, 5), np.clip(target(score, draw), *bounds), bounds


def measured(shape: str, vehicles: int, seed: int) -> tuple[float, Floats]:
    """Return R^2 of least squares; and bias and excess error, for each epsilon, before and now."""
    x, y, bounds = rows(shape, vehicles + TEST, seed)
    known, rest = slice(vehicles), slice(vehicles, None)
    full = np.hstack([x, np.ones((len(x), 1))])
    best, *_ = np.linalg.lstsq(full[known], y[known])
    least = np.mean((full[rest] @ best - y[rest]) ** 2)
    results = np.empty((len(EPSILONS), 2, 2))
    for place, epsilon in enumerate(EPSILONS):
        public = {"bounds": (-5, 5), "target_bounds": bounds, "random_state": seed}
        for when, (way, given) in enumerate(((before(), BEFORE), (nullcontext(), {}))):
            model = LDPLinearRegression(epsilon=epsilon, **public, **given)
            with way, warnings.catch_warnings():
                warnings.simplefilter("ignore", AccuracyWarning)
                warnings.simplefilter("ignore", DataWarning)
                predicted = model.fit(x[known], y[known]).predict(x[rest])
            bias = (predicted.mean() - y[rest].mean()) / y[rest].std()
            excess = np.mean((predicted - y[rest]) ** 2) / least - 1
            results[place, when] = bias, excess
    return 1 - least / y[rest].var(), results


def before() -> AbstractContextManager[Any]:
    """Train as version 0.2 did, with the options `BEFORE`."""
    return mock.patch.object(Settings, "target_survey_for", return_value=None)


def table(vehicles: int, seeds: int) -> Table:
    """Return the table for a size of the fleet."""
    headings = ["target", "R² of least squares"]
    headings += [f"ε = {epsilon:g}, {when}" for epsilon in EPSILONS for when in ("before", "now")]
    return Table(
        f"{vehicles:,} vehicles, {seeds} seeds: bias, and excess error over least squares",
        headings,
        [*_lines(vehicles, seeds)],
    )


def _lines(vehicles: int, seeds: int) -> Iterator[list[str]]:
    for shape in SHAPES:
        runs = [measured(shape, vehicles, FIRST_SEED + seed) for seed in range(seeds)]
        fit = np.mean([fit for fit, _ in runs])
        means = np.mean([results for _, results in runs], axis=0).reshape(-1, 2)
        yield [shape, f"{fit:.3f}", *(f"{bias:+.2f}, {excess:.1%}" for bias, excess in means)]


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--vehicles", type=int, action="append", help="give it again for more")
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    where = f"Measured on {machine()}; {busy()}"
    sizes = given.vehicles or [20_000, 200_000]
    tables = [table(vehicles, given.seeds) for vehicles in sizes]
    publish("regression", tables, where, given.write)


if __name__ == "__main__":
    main()
