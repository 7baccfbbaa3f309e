"""`make networks`: what networks and softmax reach under local differential privacy.

A small convolutional network tells from 64 samples of an accelerometer (3 axes, 20 per second) what
its bearer does. Without `--path` the signals are SYNTHETIC: four made-up gaits. With the path of
the WISDM 2019 file (see `fedldp data info wisdm2019`) they are real, of six activities, and people
of the test are not in the training. Its 24 people are too few to learn anything from if each
answers once: here each vehicle holds one window, cut out at random, and so the privacy is that of a
window and not of a person, who is in many.

Beside every network stands a softmax on ten statistics of a window. `--diamonds` is the file
`diamonds.csv` of the package plotnine: softmax and a multilayer perceptron tell the cut.

All options are the library's defaults: nothing is chosen for these data. Networks are evaluated in
NumPy or, where there is a GPU, by PyTorch; the codes that vehicles send are the same. Errors are
shares of wrong answers. Each run has other first weights and other noise.
"""

import argparse
import csv
import json
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from scipy.special import ndtri

import fedldp
from fedldp import _plots as plots
from fedldp import datasets
from fedldp.datasets.dataset import About, Dataset
from fedldp.learn import (
    Activation,
    Adam,
    Arrays,
    ChannelMean,
    Conv,
    Dense,
    Layered,
    Linear,
    Network,
    Settings,
    objective,
)
from fedldp.plan.strategies import Directions

LENGTH, RATE_HZ, GRAVITY = 64, 20, 9.81
TESTED = 6000
EPSILONS = (1.0, 2.0, 4.0)
SIZES = (4, 16, 64)  # filters
PARTS = (64, 16, 4, 1)  # of the fleet
UPRIGHT = np.array([0.0, 1.0, 0.0])  # how a sensor is worn, more or less
PLAIN = {"epsilon": None, "bound": 3.0, "optimizer": Adam(0.03, schedule="constant")}

Windows = tuple[np.ndarray, np.ndarray]  # inputs and targets

GAITS = {  # steps per second, strength of the steps and of their first overtone, all in g
    "standing": (1.0, 0.02, 0.01),
    "walking": (1.8, 0.25, 0.10),
    "climbing stairs": (1.4, 0.20, 0.20),
    "jogging": (2.6, 0.80, 0.25),
}
STATISTICS = fedldp.Schema.of(  # of a window, in g, with public bounds
    mean_x=(-2, 2),
    mean_y=(-2, 2),
    mean_z=(-2, 2),
    spread_x=(0, 2),
    spread_y=(0, 2),
    spread_z=(0, 2),
    mean_length=(0, 3),
    spread_length=(0, 2),
    jerk=(0, 1),
    range_length=(0, 6),
)


class Fleet(NamedTuple):
    """What is learned from, and what the result is tested on."""

    title: str
    classes: int
    train: Windows
    test: Windows


class Row(NamedTuple):
    """The errors of some runs."""

    data: str
    model: str
    weights: int
    vehicles: int
    epsilon: float | None  # None without privacy
    errors: list[float]


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

    sources = fedldp.source(1).spawn(2)
    train = cut(np.flatnonzero(whole & ~tested), vehicles, sources[0])
    test = cut(np.flatnonzero(whole & tested), TESTED, sources[1])
    return Fleet(data.title, int(activity.max()) + 1, train, test)


# Networks of signals


def network(filters: int, classes: int) -> Network:
    layers = Conv(filters, 5, 2), Activation("silu"), ChannelMean()
    return Network((3, LENGTH), layers, objective("softmax").with_outputs(classes))


def task_of(chosen: Network, windows: Windows) -> Any:
    """Return what is trained, on a GPU if there is one."""
    inputs, targets = windows
    if not _on_gpu():
        rows = np.c_[inputs.reshape(len(inputs), -1), np.ones(len(inputs), np.float32)]
        return Layered(chosen, Arrays(rows, targets.astype(np.float32)))
    import torch

    from fedldp.learn.torch import ModuleTask
    from fedldp.learn.torch_layers import to_module

    module = to_module(chosen, chosen.start(0)).float().to("cuda")
    moved = (torch.from_numpy(np.ascontiguousarray(each)).to("cuda") for each in windows)
    return ModuleTask(module, torch.nn.functional.cross_entropy, *moved)


def _on_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def first_weights(chosen: Network, runs: int) -> np.ndarray:
    found = np.array([chosen.start(seed) for seed in range(runs)])
    if not _on_gpu():
        return found
    from fedldp.learn.torch_layers import to_torch

    return to_torch(chosen, found)


def network_errors(
    fleet: Fleet, filters: int, runs: int, part: int = 1, **options: object
) -> tuple[int, list[float]]:
    """Train on a part of the fleet; return the number of weights, and the error of each run."""
    chosen = network(filters, fleet.classes)
    vehicles = len(fleet.train[0]) // part
    task = task_of(chosen, (fleet.train[0][:vehicles], fleet.train[1][:vehicles]))
    usual = {"strategy": Directions(chosen.mean_length), "optimizer": Adam(schedule="linear")}
    settings = Settings(**{"epsilon": 1.0, **usual, **options})
    training = settings.training(
        task, chosen.distance, fedldp.source(2), replicas=runs, start=first_weights(chosen, runs)
    )
    for _ in training:
        pass
    return chosen.dimensions, task_of(chosen, fleet.test).error(training.models).tolist()


# Softmax on statistics of windows, and on columns


def statistics(windows: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(windows, axis=1)
    return np.c_[
        windows.mean(axis=2),
        windows.std(axis=2),
        length.mean(axis=1),
        length.std(axis=1),
        np.abs(np.diff(length, axis=1)).mean(axis=1),
        np.ptp(length, axis=1),
    ]


def table(title: str, schema: fedldp.Schema, columns: list[np.ndarray], target: str) -> Dataset:
    about = About(title, title=title, source="made here", synthetic="SYNTHETIC" in title)
    return Dataset(about, schema, tuple(columns), {"softmax": target}, reference="none")


def window_tables(fleet: Fleet) -> tuple[Dataset, Dataset]:
    """The fleet and the test as ten statistics of each window."""
    labels = fedldp.Category("activity", [str(each) for each in range(fleet.classes)])
    schema = fedldp.Schema((*STATISTICS.attributes, labels))
    train, test = (
        table(fleet.title, schema, [*statistics(inputs).T, targets], "activity")
        for inputs, targets in (fleet.train, fleet.test)
    )
    return train, test


def diamond_table(path: Path) -> Dataset:
    """All diamonds, whose target is the cut."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    kinds = ["cut", "color", "clarity"]
    labels = {name: sorted({row[name] for row in rows}) for name in kinds}
    bounds = {"carat": (0, 5), "depth": (40, 80), "table": (40, 100), "price": (0, 20_000)}
    bounds |= {"x": (0, 12), "y": (0, 12), "z": (0, 8)}
    schema = fedldp.Schema(
        (
            *(fedldp.Number(name, *ends) for name, ends in bounds.items()),
            *(fedldp.Category(name, found) for name, found in labels.items()),
        )
    )
    columns = [np.clip([float(row[name]) for row in rows], *bounds[name]) for name in bounds]
    columns += [np.array([labels[name].index(row[name]) for row in rows]) for name in kinds]
    return table("diamonds", schema, columns, "cut")


def diamonds(path: Path, vehicles: int) -> tuple[Dataset, Dataset]:
    """Diamonds, a fifth of them held out; vehicles are drawn from the others."""
    whole, source = diamond_table(path), fedldp.source(1)
    order = np.argsort(source.words(len(whole)), kind="stable")
    held = len(whole) // 5
    drawn = order[held:][source.below(len(whole) - held, vehicles)]
    return whole.take(drawn), whole.take(order[:held])


def layered(data: Dataset, hidden: int, seed: int) -> Layered:
    rows = data.examples("softmax")
    layers = Dense(hidden), Activation("tanh")
    chosen = Network((rows.dimensions - 1,), layers, rows.objective)
    return Layered(chosen, rows, seed=seed)


def linear(data: Dataset, _: int, __: int) -> Linear:
    rows = data.examples("softmax")
    return Linear(rows.objective, rows)


def table_error(
    make: Any, hidden: int, tables: tuple[Dataset, Dataset], run: int, part: int, options: Any
) -> tuple[int, float]:
    """Train once on a part of a table; return the number of weights, and the error."""
    train, test = tables
    task, tested = make(train.take(slice(len(train) // part)), hidden, run), make(test, hidden, run)
    settings = Settings(**{"epsilon": 1.0, **options})
    training = settings.training(task, task.distance, fedldp.source(100 + run))
    for _ in training:
        pass
    tested = tested if training.scaling is None else tested.scaled(training.scaling)
    return task.dimensions, float(tested.error(training.models)[0])


def table_row(
    title: str,
    name: str,
    make: Any,
    hidden: int,
    tables: tuple[Dataset, Dataset],
    runs: int,
    epsilon: float | None,
    part: int = 1,
) -> Row:
    options = {"epsilon": None, "bound": 3.0} if epsilon is None else {"epsilon": epsilon}
    number = 1 if epsilon is None else runs
    with ProcessPoolExecutor(min(number, os.cpu_count() or 1)) as pool:
        jobs = [
            pool.submit(table_error, make, hidden, tables, run, part, options)
            for run in range(number)
        ]
        found = [job.result() for job in jobs]
    vehicles = len(tables[0]) // part
    return Row(title, name, found[0][0], vehicles, epsilon, [error for _, error in found])


def rows_of(fleet: Fleet, runs: int, sizes: list[int], parts: list[int]) -> Iterator[Row]:
    """Yield the errors of networks and of softmax on windows."""
    tables = window_tables(fleet)
    for epsilon in (None, *EPSILONS):
        yield table_row(fleet.title, "softmax, 10 statistics", linear, 0, tables, runs, epsilon)
    for filters in sizes:
        for epsilon in (None, *EPSILONS):
            for part in parts if epsilon else parts[-1:]:
                options = dict(PLAIN) if epsilon is None else {"epsilon": epsilon}
                number = min(runs, 3) if epsilon is None else runs
                weights, errors = network_errors(fleet, filters, number, part, **options)
                vehicles = len(fleet.train[0]) // part
                yield Row(fleet.title, "network", weights, vehicles, epsilon, errors)


def diamond_rows(path: Path, vehicles: int, runs: int) -> Iterator[Row]:
    tables = diamonds(path, vehicles)
    for epsilon in (None, *EPSILONS):
        yield table_row("diamonds, cut", "softmax", linear, 0, tables, runs, epsilon)
    for epsilon in (None, *EPSILONS):
        yield table_row("diamonds, cut", "mlp", layered, 8, tables, runs, epsilon)


def shown(row: Row) -> str:
    errors = np.array(row.errors)
    if len(errors) == 1:
        return f"{errors[0]:.3f}"
    return f"{errors.mean():.3f} +- {errors.std(ddof=1):.3f} (worst {errors.max():.3f})"


def tabulated(rows: list[Row]) -> Table:
    found = Table(title="Errors: mean +- standard deviation of runs", title_justify="left")
    for heading in ("data", "model", "weights", "vehicles", "epsilon", "runs", "error"):
        found.add_column(heading, justify="right")
    for row in rows:
        epsilon = "no privacy" if row.epsilon is None else f"{row.epsilon:g}"
        numbers = f"{row.weights:,}", f"{row.vehicles:,}", epsilon, str(len(row.errors))
        found.add_row(row.data, row.model, *numbers, shown(row))
    return found


def picture(rows: list[Row]) -> Figure:
    """Draw the error of each network over the number of vehicles."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    panels = figure.subplots(1, len(EPSILONS), sharey=True)
    colours = plots.BLUE, plots.VERMILION, plots.GREEN, plots.LIGHT_GREY
    for axes, epsilon in zip(panels, EPSILONS, strict=True):
        mine = [row for row in rows if row.epsilon == epsilon and row.model == "network"]
        for weights, colour in zip(sorted({row.weights for row in mine}), colours, strict=False):
            some = sorted((r for r in mine if r.weights == weights), key=lambda r: r.vehicles)
            n, errors = [row.vehicles for row in some], [np.array(row.errors) for row in some]
            axes.plot(n, [e.mean() for e in errors], "o-", color=colour, label=f"{weights} weights")
            low, high = ([f(e) for e in errors] for f in (np.min, np.max))
            axes.fill_between(n, low, high, color=colour, alpha=0.15)
        for row in rows:
            if row.epsilon == epsilon and row.model.startswith("softmax"):
                axes.plot(row.vehicles, np.mean(row.errors), "k*", label="softmax, 10 statistics")
        axes.set(
            xscale="log",
            xlabel="thousands of vehicles",
            ylim=(0, 0.8),
            title=f"epsilon {epsilon:g}",
        )
        ticks = sorted({row.vehicles for row in rows})
        axes.set_xticks(ticks, [f"{tick / 1000:.3g}" for tick in ticks])
        axes.minorticks_off()
        axes.legend(fontsize=7)
    panels[0].set_ylabel("error")
    figure.suptitle(rows[0].data)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--path", type=Path, help="the WISDM 2019 file; synthetic without it")
    parser.add_argument("--diamonds", type=Path, help="diamonds.csv of plotnine, instead")
    parser.add_argument("--vehicles", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--filters", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--parts", type=int, nargs="+", default=list(PARTS))
    parser.add_argument("--plot", type=Path, help="where to write the picture")
    parser.add_argument("--save", type=Path, help="where to write the errors (JSON lines)")
    parser.add_argument("--load", type=Path, help="errors that were saved: train nothing")
    chosen = parser.parse_args()
    load = synthetic if chosen.path is None else lambda n: wisdm(chosen.path, n)
    if chosen.load is not None:
        found = (Row(**json.loads(line)) for line in chosen.load.open())
    elif chosen.diamonds is not None:
        found = diamond_rows(chosen.diamonds, chosen.vehicles, chosen.runs)
    else:
        found = rows_of(load(chosen.vehicles), chosen.runs, chosen.filters, chosen.parts)
    rows = []
    for row in found:
        rows.append(row)
        print(
            f"{row.data}, {row.model}, {row.weights} weights, {row.vehicles:,} vehicles, "
            f"epsilon {row.epsilon}: {shown(row)}",
            flush=True,
        )
        if chosen.save:
            with chosen.save.open("a") as file:
                file.write(json.dumps(row._asdict()) + "\n")
    Console(width=130).print(tabulated(rows))
    if chosen.plot:
        plots.save(picture(rows), chosen.plot)


if __name__ == "__main__":
    main()
