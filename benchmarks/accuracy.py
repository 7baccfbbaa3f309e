"""`make accuracy`: how much less error, for the same privacy, than the paper's best.

The paper's Gaussian data: 16 attributes, each N(mu, 1/16) truncated to [-1, 1], and 100,000
vehicles. Data and noise are drawn anew for each seed, and the error is about the mean of the
population. A figure is n times the mean squared error of an attribute, over all seeds; it comes
with a 95% interval, as do the ratios, in which both sides saw the same data. Beside the measured
ratio stands the one that `expected_error` gives for the first seed's data, without any noise.
"""

import sys

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.special import ndtr, ndtri

import fedldp
from fedldp.plan.strategies import strategy_of

ATTRIBUTES, VEHICLES, SPREAD = 16, 100_000, 0.25
EPSILONS, MEANS = (0.5, 1.0, 2.0, 4.0), (0.0, 1 / 3, 2 / 3, 1.0)
WAYS = {  # name: mechanism, k, strategy, estimator
    "paper": ("hm-tp", "paper", "sample", "horvitz-thompson"),
    "hm-tp, ratio": ("hm-tp", "best", "sample", "ratio"),
    "optimal, ratio": ("optimal", "best", "sample", "ratio"),
    "default, h-t": ("dominant", "best", "sample", "horvitz-thompson"),
    "default": ("dominant", "best", "sample", "ratio"),
    "cube": ("dominant", "best", "cube", "ratio"),
}


def gaussian(mu: float, source: fedldp.Source) -> tuple[np.ndarray, float]:
    """Truncated Gaussian attributes, by inversion, and their true mean."""
    low, high = ndtr((-1 - mu) / SPREAD), ndtr((1 - mu) / SPREAD)
    u = source.uniform((VEHICLES, ATTRIBUTES))
    x = mu + SPREAD * ndtri(low + (high - low) * u)
    ends = np.array([-1 - mu, 1 - mu]) / SPREAD
    density = np.exp(-(ends**2) / 2) / np.sqrt(2 * np.pi)
    return np.clip(x, -1, 1), mu + SPREAD * (density[0] - density[1]) / (high - low)


def make_plans() -> dict[tuple[float, str], fedldp.Plan]:
    schema = fedldp.Schema.vector(ATTRIBUTES, bound=1.0)
    return {
        (epsilon, name): fedldp.Plan(
            schema, epsilon, strategy_of(strategy, mechanism=mechanism, k=k)
        )
        for epsilon in EPSILONS
        for name, (mechanism, k, strategy, _) in WAYS.items()
    }


def measure(
    plans: dict[tuple[float, str], fedldp.Plan], seeds: int
) -> dict[tuple[float, float, str], np.ndarray]:
    """n times the mean squared error over the attributes, for each seed."""
    errors: dict[tuple[float, float, str], list[float]] = {}
    for seed in track(range(seeds), "Simulating", transient=True):
        for number, mu in enumerate(MEANS):
            data, noise = fedldp.source(len(MEANS) * seed + number).spawn(2)
            x, mean = gaussian(mu, data)
            for (epsilon, name), plan in plans.items():
                found = plan.simulate(x, noise).estimate(WAYS[name][3])["x"]
                error = VEHICLES * float(np.mean((found.mean - mean) ** 2))
                errors.setdefault((epsilon, mu, name), []).append(error)
    return {key: np.array(each) for key, each in errors.items()}


def half_width(values: np.ndarray) -> float:
    """Half of a 95% interval for the mean."""
    return 1.96 * float(values.std(ddof=1)) / len(values) ** 0.5


def ratio(above: np.ndarray, below: np.ndarray) -> tuple[float, float]:
    """The ratio of two means from the same seeds, and half of its 95% interval."""
    value = above.mean() / below.mean()
    return value, half_width(above - value * below) / below.mean()


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    plans = make_plans()
    errors = measure(plans, seeds)
    table = Table(
        title=f"n x mean squared error, {VEHICLES} vehicles, {ATTRIBUTES} attributes, {seeds} seeds"
    )
    for heading in ("epsilon", "mu", *WAYS, "paper / default", "expected"):
        table.add_column(heading, justify="right")
    for epsilon in EPSILONS:
        for number, mu in enumerate(MEANS):
            x, _ = gaussian(mu, fedldp.source(number).spawn(1)[0])
            paper, default = (
                plans[epsilon, name].expected_error(VEHICLES, x, estimator=WAYS[name][3])
                for name in ("paper", "default")
            )
            cells = [errors[epsilon, mu, name] for name in WAYS]
            gain, around = ratio(errors[epsilon, mu, "paper"], errors[epsilon, mu, "default"])
            table.add_row(
                f"{epsilon:g}",
                f"{mu:.2f}",
                *(f"{each.mean():.3g} ±{half_width(each):.2g}" for each in cells),
                f"{gain:.2f} ±{around:.2f}",
                f"{paper / default:.2f}",
            )
        table.add_section()
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
