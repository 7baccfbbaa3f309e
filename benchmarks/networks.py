"""`make networks`: what a neural network needs to be trained under local differential privacy.

A small convolutional network tells from 64 samples of an accelerometer (3 axes, 20 per second) what
its bearer does. Without `--path` the signals are SYNTHETIC: four made-up gaits. With the path of
the WISDM 2019 file (see `fedldp data info wisdm2019`) they are real, of six activities, and people
of the test are not in the training. Its 24 people are too few to learn anything from if each
answers once: here each vehicle holds one window, cut out at random, and so the privacy is that of a
window and not of a person, who is in many.

First it is computed what should work: how many vehicles a round needs until the noise in the mean
gradient is as large as the gradient itself. Then it is tried. Errors are shares of wrong answers.
"""

import argparse
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from scipy.special import ndtri
from torch import nn

import fedldp
from fedldp import _plots as plots
from fedldp import datasets
from fedldp.learn.settings import Settings
from fedldp.learn.torch import Network

LENGTH, RATE_HZ, GRAVITY = 64, 20, 9.81
TESTED = 6000
ROUNDS, STEP = 500, 0.06
PLAIN = {
    "mechanism": None,
    "bound": 3.0,
    "learning_rate": 0.03,
}  # without privacy little is clipped
CHANNELS, BOUND, EPSILON = 4, 1.0, 4.0
EPSILONS, BOUNDS, SIZES = (1.0, 2.0, 4.0, 8.0), (0.1, 0.3, 1.0, 3.0), (2, 4, 16)
STRATEGIES = ("sample", "cube")
PARTS = (16, 4, 1)  # of the fleet
MEASURED = 20_000  # vehicles from whose gradients it is computed what should work

UPRIGHT = np.array([0.0, 1.0, 0.0])  # how a sensor is worn, more or less

Windows = tuple[np.ndarray, np.ndarray]  # inputs and targets

GAITS = {  # steps per second, strength of the steps and of their first overtone, all in g
    "standing": (1.0, 0.02, 0.01),
    "walking": (1.8, 0.25, 0.10),
    "climbing stairs": (1.4, 0.20, 0.20),
    "jogging": (2.6, 0.80, 0.25),
}


class Fleet(NamedTuple):
    """What is learned from, and what the result is tested on."""

    title: str
    classes: int
    train: Windows
    test: Windows


def gait(n: int, source: fedldp.Source) -> Windows:
    """Accelerations, in g, of bearers whose gait, pace and orientation differ, with noise."""
    targets = source.below(len(GAITS), n)
    pace, first, second = np.array(list(GAITS.values())).T[:, targets, None]
    pace = pace * (1 + 0.1 * ndtri(source.uniform((n, 1))))
    angle = 2 * np.pi * (pace * np.arange(LENGTH) / RATE_HZ + source.uniform((n, 1)))
    steps = first * np.sin(angle) + second * np.sin(2 * angle + 2 * np.pi * source.uniform((n, 1)))
    up, along = UPRIGHT + 0.3 * ndtri(source.uniform((2, n, 3)))
    up, along = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (up, along))
    noise = 0.05 * ndtri(source.uniform((n, 3, LENGTH)))
    return (up[:, :, None] + along[:, :, None] * steps[:, None] + noise).astype(np.float32), targets


def synthetic(vehicles: int) -> Fleet:
    train, test = (
        gait(n, source)
        for n, source in zip((vehicles, TESTED), fedldp.source(1).spawn(2), strict=True)
    )
    return Fleet("SYNTHETIC gaits", len(GAITS), train, test)


def wisdm(path: Path, vehicles: int) -> Fleet:
    data = datasets.load("wisdm2019", path=path)
    signal = (data.matrix(names=("x", "y", "z")) / GRAVITY).astype(np.float32)
    user, activity = data.matrix(names=("user", "activity")).T.astype(np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(signal, LENGTH, axis=0)
    last = slice(LENGTH - 1, None)
    whole = (user[: len(windows)] == user[last]) & (activity[: len(windows)] == activity[last])
    tested = user[: len(windows)] % 3 == 0

    def cut(rows: np.ndarray, n: int, source: fedldp.Source) -> Windows:
        starts = rows[source.below(len(rows), n)]
        return np.ascontiguousarray(windows[starts]), activity[starts]

    chances = fedldp.source(1).spawn(2)
    train = cut(np.flatnonzero(whole & ~tested), vehicles, chances[0])
    test = cut(np.flatnonzero(whole & tested), TESTED, chances[1])
    return Fleet(data.title, int(activity.max()) + 1, train, test)


def network(channels: int, classes: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(
            nn.Conv1d(3, channels, kernel_size=5, stride=2),
            nn.SiLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(channels, classes),
        )


def task_of(windows: Windows, fleet: Fleet, channels: int) -> Network:
    return Network(network(channels, fleet.classes), nn.functional.cross_entropy, *windows)


def settings_of(vehicles: int, **choices: object) -> Settings:
    usual = {
        "epsilon": EPSILON,
        "bound": BOUND,
        "learning_rate": STEP,
        "group": -(-vehicles // ROUNDS),
    }
    return Settings(**(usual | choices))


def errors(
    fleet: Fleet, replicas: int, channels: int = CHANNELS, part: int = 1, **choices: object
) -> np.ndarray:
    """Train on a part of the fleet, and return the error on the test for each replica."""
    inputs, targets = fleet.train
    vehicles = len(inputs) // part
    task = task_of((inputs[:vehicles], targets[:vehicles]), fleet, channels)
    training = settings_of(vehicles, **choices).training(
        task, 1.0, fedldp.source(2), replicas=replicas, start=task.start
    )
    for _ in training:
        pass
    return task_of(fleet.test, fleet, channels).error(training.models)


def typical_gradients(fleet: Fleet, channels: int) -> np.ndarray:
    """The gradients of some vehicles after a tenth of a training without privacy."""
    task = task_of(fleet.train, fleet, channels)
    training = settings_of(len(task), **PLAIN).training(
        task, 1.0, fedldp.source(2), start=task.start
    )
    for _ in range(training.rounds // 10):
        training.advance()
    batch = task.gradients(training.state.weights, slice(MEASURED))
    return batch.all(np.arange(task.dimensions))


def vehicles_needed(gradients: np.ndarray, **choices: object) -> float:
    """How many vehicles make the noise in the mean gradient as large as the gradient.

    Of the clipped gradient only what points along the true one counts.
    """
    settings = settings_of(1, **choices)
    plan = settings.plan(gradients.shape[1])
    mean = gradients.mean(axis=0)
    clipped = np.clip(gradients, -settings.bound, settings.bound).mean(axis=0)
    signal = (clipped @ mean) ** 2 / (mean @ mean)
    return plan.expected_error(1, gradients) * settings.bound**2 / signal


def shown(values: np.ndarray) -> str:
    return f"{values.mean():.2f} ({values.min():.2f} to {values.max():.2f})"


def table_of(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


@dataclass(frozen=True)
class Study:
    """All that is computed and tried on one fleet."""

    fleet: Fleet
    replicas: int

    @property
    def vehicles(self) -> int:
        return len(self.fleet.train[0])

    def private(self, **choices: object) -> np.ndarray:
        return errors(self.fleet, self.replicas, **choices)

    def plain(self, **choices: object) -> float:
        return float(errors(self.fleet, 1, **(PLAIN | choices))[0])

    def bounds(self) -> Table:
        gradients = typical_gradients(self.fleet, CHANNELS)
        length = np.linalg.norm(gradients.mean(axis=0))
        median, most, nearly_all = np.quantile(np.abs(gradients), (0.5, 0.9, 0.99))
        table = table_of(
            f"Bounds: {gradients.shape[1]} weights, epsilon {EPSILON:g}. The gradient has length "
            f"{length:.2f}; a vehicle's coordinates are\nup to {median:.3f} in half of all cases, "
            f"{most:.2f} in 90%, {nearly_all:.2f} in 99%",
            "bound",
            *(f"needed in a round, {strategy}" for strategy in STRATEGIES),
            f"error, {self.vehicles:,} vehicles, sample",
            "clipped, no noise",
        )
        for bound in BOUNDS:
            needed = (
                vehicles_needed(gradients, bound=bound, strategy=strategy)
                for strategy in STRATEGIES
            )
            table.add_row(
                f"{bound:g}",
                *(f"{each:,.0f}" for each in needed),
                shown(self.private(bound=bound)),
                f"{self.plain(bound=bound):.2f}",
            )
        return table

    def sizes(self) -> Table:
        table = table_of(
            f"Sizes: vehicles needed in a round, bound {BOUND:g}, the better strategy",
            "weights",
            *(f"epsilon {epsilon:g}" for epsilon in EPSILONS),
            f"error, {self.vehicles:,} vehicles, epsilon {EPSILON:g}",
            "without privacy",
        )
        for channels in SIZES:
            gradients = typical_gradients(self.fleet, channels)
            needed = (
                min(
                    vehicles_needed(gradients, epsilon=epsilon, strategy=strategy)
                    for strategy in STRATEGIES
                )
                for epsilon in EPSILONS
            )
            table.add_row(
                str(gradients.shape[1]),
                *(f"{each:,.0f}" for each in needed),
                shown(self.private(channels=channels)),
                f"{self.plain(channels=channels):.2f}",
            )
        return table

    def by_epsilon(self) -> list[tuple[float, str, np.ndarray]]:
        return [
            (epsilon, strategy, self.private(epsilon=epsilon, strategy=strategy))
            for epsilon, strategy in product(EPSILONS, STRATEGIES)
        ]

    def by_vehicles(self) -> list[tuple[int, np.ndarray, float]]:
        return [
            (self.vehicles // part, self.private(part=part), self.plain(part=part))
            for part in PARTS
        ]


def picture(
    title: str,
    by_epsilon: list[tuple[float, str, np.ndarray]],
    by_vehicles: list[tuple[int, np.ndarray, float]],
    guessing: float,
) -> Figure:
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    figure.suptitle(title)
    for strategy, colour in zip(STRATEGIES, (plots.BLUE, plots.VERMILION), strict=True):
        mine = [(epsilon, found) for epsilon, name, found in by_epsilon if name == strategy]
        draw(left, mine, strategy, colour)
    draw(right, [(n, found) for n, found, _ in by_vehicles], f"epsilon {EPSILON:g}", plots.BLUE)
    n, _, plain = zip(*by_vehicles, strict=True)
    right.plot(n, plain, "o--", color=plots.GREEN, label="without privacy")
    for axes, label, ticks in (
        (left, f"epsilon, {max(n):,} vehicles", EPSILONS),
        (right, "vehicles", n),
    ):
        axes.axhline(guessing, color=plots.LIGHT_GREY, linestyle=":", label="guessing")
        axes.set(xscale="log", xlabel=label, ylabel="error", ylim=(0, 1))
        axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
        axes.minorticks_off()
        axes.legend()
    return figure


def draw(axes, points, label, colour):
    x, found = zip(*points, strict=True)
    axes.plot(x, [each.mean() for each in found], "o-", color=colour, label=label)
    axes.fill_between(
        x, [each.min() for each in found], [each.max() for each in found], color=colour, alpha=0.2
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--path", type=Path, help="the WISDM 2019 file; synthetic without it")
    parser.add_argument("--vehicles", type=int, default=200_000)
    parser.add_argument("--replicas", type=int, default=5, help="trainings with other noise")
    parser.add_argument("--plot", type=Path, help="where to write the picture")
    chosen = parser.parse_args()
    torch.set_num_threads(1)  # so small a network gains nothing from more
    console = Console(width=130)
    fleet = (
        synthetic(chosen.vehicles) if chosen.path is None else wisdm(chosen.path, chosen.vehicles)
    )
    guessing = 1 - np.bincount(fleet.test[1]).max() / TESTED
    console.print(f"{fleet.title}: {fleet.classes} classes; guessing errs in {guessing:.2f}.")
    console.print(f"{chosen.replicas} trainings each: mean error (lowest to highest)")
    study = Study(fleet, chosen.replicas)
    console.print(study.bounds())
    console.print(study.sizes())
    by_epsilon, by_vehicles = study.by_epsilon(), study.by_vehicles()
    table = table_of(f"{study.vehicles:,} vehicles", "epsilon", "strategy", "error")
    for epsilon, strategy, found in by_epsilon:
        table.add_row(f"{epsilon:g}", strategy, shown(found))
    console.print(table)
    table = table_of(f"epsilon {EPSILON:g}", "vehicles", "error", "without privacy")
    for n, found, plain in by_vehicles:
        table.add_row(f"{n:,}", shown(found), f"{plain:.2f}")
    console.print(table)
    if chosen.plot:
        plots.save(picture(fleet.title, by_epsilon, by_vehicles, guessing), chosen.plot)


if __name__ == "__main__":
    main()
