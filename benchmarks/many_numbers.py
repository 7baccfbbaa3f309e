"""Means of many numbers through directions, with a learnt centre and length: gain and coverage.

A tenth of the fleet is asked for its numbers, whose means are the centre; a tenth is searched for a
quantile of the distance from the centre; the rest answer how they differ from the centre, shortened
to that length, through directions. Beside it stands one plan with `Sample` for all vehicles. For
each shape of SYNTHETIC numbers the table shows by how much fewer vehicles the stages need for the
same squared error, and how often their 95% intervals hold the true means: shortening is a bias that
no interval contains.

    python benchmarks/many_numbers.py --vehicles 20000 --runs 12
"""

import argparse

import numpy as np
from rich.console import Console
from rich.table import Table

import fedldp
from fedldp import Directions, Number, Plan, Schema
from fedldp.learn import QuantileSearch
from fedldp.plan.parts import Matrix

SHAPES = ("normal", "uniform", "skewed", "skewed together")
EPSILONS = (1.0, 2.0, 4.0)
SIZES = (6, 16)
STAGE_SHARE = 0.1  # of the fleet, for the centre and for the length
LEVEL = 0.97  # of the distance
MEAN_LENGTH = 0.7  # of the vectors, as a share of the length
LEAST_LENGTH = 0.02  # as a share of the largest distance


def drawn(shape: str, rows: int, d: int, seed: int) -> np.ndarray:
    """Return numbers in [-1, 1]."""
    random = np.random.default_rng(seed)
    normal = random.normal(size=(rows, d))
    if shape == "uniform":
        return random.uniform(-1, 1, (rows, d))
    if shape == "normal":
        return np.clip(0.25 * normal, -1, 1)
    if shape == "skewed together":  # all are large for the same vehicles, as sizes of diamonds
        normal = 0.9 * random.normal(size=(rows, 1)) + 0.44 * normal
    return np.clip(np.exp(0.8 * normal) / 2.5 - 1, -1, 1)


def mean_of(plan: Plan, rows: np.ndarray, source: fedldp.Source) -> tuple[np.ndarray, np.ndarray]:
    """Return the means that vehicles report, and their intervals."""
    (mean,) = plan.simulate_batches([Matrix(rows)], source).estimate().values()
    return mean.mean, mean.interval


def staged(rows: np.ndarray, epsilon: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return means and intervals of a collection in three stages."""
    source, d, asked = fedldp.source(seed), rows.shape[1], round(STAGE_SHARE * len(rows))
    centre, _ = mean_of(Plan(Schema.vector(d, bound=1.0), epsilon, "sample"), rows[:asked], source)
    centre = np.clip(centre, -1, 1)
    farthest = float(np.sqrt(((1 + np.abs(centre)) ** 2).sum()))
    search = QuantileSearch(Number("distance", 0, farthest), LEVEL, epsilon, asked)
    distances = np.linalg.norm(rows[asked : 2 * asked] - centre, axis=1)
    length = max(search.simulate(distances, source).value, LEAST_LENGTH * farthest)
    strategy = Directions(mean_length=MEAN_LENGTH)
    plan = Plan(Schema.vector(d, length=length), epsilon, strategy)
    mean, interval = mean_of(plan, rows[2 * asked :] - centre, source)
    return centre + mean, centre[:, None] + interval


def compared(
    shape: str, d: int, epsilon: float, vehicles: int, runs: int
) -> tuple[float, float, float]:
    """Return how many times fewer vehicles suffice, its standard error, and the coverage."""
    truth = drawn(shape, 400_000, d, seed=1).mean(axis=0)
    one_plan = Plan(Schema.vector(d, bound=1.0), epsilon, "sample")
    errors, covered = np.empty((2, runs)), []
    for run in range(runs):
        rows = drawn(shape, vehicles, d, seed=100 + run)
        mean, _ = mean_of(one_plan, rows, fedldp.source(run))
        errors[0, run] = ((mean - truth) ** 2).sum()
        mean, interval = staged(rows, epsilon, run)
        errors[1, run] = ((mean - truth) ** 2).sum()
        covered.append((interval[:, 0] <= truth) & (truth <= interval[:, 1]))
    ratio = errors[0].mean() / errors[1].mean()
    relative = errors.std(axis=1, ddof=1) / errors.mean(axis=1) / np.sqrt(runs)
    return ratio, ratio * float(np.hypot(*relative)), float(np.mean(covered))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vehicles", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=12)
    given = parser.parse_args()
    table = Table(title=f"{given.vehicles:,} vehicles, {given.runs} runs")
    for heading in ("numbers", "shape", "epsilon", "vehicles saved", "coverage of 95%"):
        table.add_column(heading)
    for d in SIZES:
        for shape in SHAPES:
            for epsilon in EPSILONS:
                gain, error, held = compared(shape, d, epsilon, given.vehicles, given.runs)
                cells = f"{gain:.2f} ± {error:.2f} times", f"{100 * held:.0f}%"
                table.add_row(str(d), shape, f"{epsilon:g}", *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
