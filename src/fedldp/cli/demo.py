"""`fedldp demo`: predict late flights, with and without privacy."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from importlib.metadata import entry_points
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from rich.progress import Progress
from rich.table import Table

from fedldp import datasets
from fedldp.cli.plans import console
from fedldp.cli.program import program
from fedldp.cli.runs import (
    TASKS,
    base_rate,
    display,
    holdout_errors,
    linear,
    note_clipping,
    spending,
)
from fedldp.datasets import Dataset
from fedldp.errors import MissingExtra
from fedldp.learn.features import written_out
from fedldp.learn.gradients import BLOCK
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Linear
from fedldp.randomness import source

_GOAL = TASKS["logistic"]
_EPSILONS = (1.0, 2.0, 4.0, None)  # None is without privacy
_FLEETS = (10_000, 30_000, 100_000)  # vehicles, and all of them
_HOLDOUT = 0.1
_SEED = 2013
_NEWTON = 8  # steps, after which nothing changes any more
_WORTH_PROCESSES = 100_000  # vehicles: below, a process takes longer to start than to train
_PENALTY = 1.0  # half of it times the squared weights, beside the sum of losses

SAME_STEPS, CONVERGED = "the same steps, no noise", "all data, to convergence"


@click.command("demo")
@click.option(
    "--fleet",
    is_flag=True,
    help="Run a server and three agents on this machine, over TLS, instead of a simulation.",
)
@click.option("--page", is_flag=True, help="With --fleet: show the live page until Ctrl-C.")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder for the picture or, with --fleet, for the fleet.  [default: demo; with "
    "--fleet a temporary one]",
    metavar="FOLDER",
)
@click.option(
    "--rows",
    type=click.IntRange(100),
    help="Use only this many flights; a tenth of these are test data.  [default: all; "
    "with --fleet 60,000]",
)
@click.option(
    "--replicas",
    type=click.IntRange(2),
    default=10,
    show_default=True,
    help="How often to repeat each training with noise.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def demo_command(
    fleet: bool,
    page: bool,
    output: Path | None,
    rows: int | None,
    replicas: int,
    as_json: bool,
) -> None:
    """Predict late flights from a few bits of each flight.

    \b
    fedldp demo                            all flights; the picture is in demo/
    fedldp demo --rows 20000 -o pictures   fewer flights, another folder
    fedldp demo --fleet --page             real processes, and their live page
    fedldp demo --json > errors.json       the same numbers, for scripts

    Trains models on the flights that left New York in 2013, with several
    privacy budgets and several numbers of flights. Each flight is a vehicle
    that sends a few noisy bits. Takes some seconds, prints a table and draws a
    picture.
    """  # noqa: D301 (click wants the character \b itself)
    if fleet:
        _run_fleet(rows, page=page, output=output, as_json=as_json)
        return
    if page:
        raise click.UsageError("--page shows a fleet: give --fleet, too.")
    _simulate(output or Path("demo"), rows, replicas, as_json)


def _run_fleet(rows: int | None, **options: Any) -> None:
    """Run the demo of the distribution fedldp-fleet, which the library does not know."""
    for found in entry_points(group="fedldp.demos", name="fleet"):
        found.load()(rows, **options)
        return
    raise MissingExtra("a fleet needs another distribution: pip install './fleet[server]'")


def _simulate(output: Path, rows: int | None, replicas: int, as_json: bool) -> None:
    """Train with several budgets and fleets in this process, and draw the errors."""
    from fedldp import _plots as plots

    output.mkdir(parents=True, exist_ok=True)
    flights = _flights(rows)
    note_clipping(flights)
    fleet, public = flights.split(_HOLDOUT)
    test, base = linear(public, _GOAL), base_rate(public, _GOAL)
    sizes = [*(size for size in _FLEETS if size < len(fleet)), len(fleet)]
    converged = _converged_error(linear(fleet, _GOAL), test)
    processes = 1 if len(fleet) < _WORTH_PROCESSES else os.cpu_count() or 1
    with display() as bars:
        runs = _runs(bars, rows, sizes, replicas, processes)
    picture = output / "flights.png"
    title = f"Late or not? {flights.title}. Mean and standard deviation of {replicas} trainings"
    lines = {"base rate": base, CONVERGED: converged}
    plots.save(plots.training_errors(runs, lines, SAME_STEPS, title), picture)
    document = {
        "data": flights.name,
        "flights": len(flights),
        "holdout": len(public),
        "base_rate": base,
        "converged": converged,
        "replicas": replicas,
        "runs": runs,
    }
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    console().print(_render(document, len(fleet)))
    shown = console(soft_wrap=True)
    shown.print(f"Drew {picture}: the error against epsilon and vehicles.")
    fedldp = program()
    shown.print(
        "\nTo try next:\n"
        f"  {fedldp} train --data flights --task logistic --epsilon 4 --save model.json\n"
        f"  {fedldp} train --data flights --task linear --epsilon 2 --plot rounds.png\n"
        f"  {fedldp} train --help     your own CSV or Parquet file"
    )


@lru_cache(maxsize=1)
def _flights(rows: int | None) -> Dataset:
    return replace(datasets.load("flights", rows=rows), reference=Settings.reference)


@lru_cache(maxsize=1)  # of the sizes, one after another
def _tasks(rows: int | None, size: int) -> tuple[Linear, Linear]:
    """Return the task of a fleet of a size, and that of the hold-out."""
    fleet, public = _flights(rows).split(_HOLDOUT)
    return linear(fleet.take(slice(size)), _GOAL), linear(public, _GOAL)


def _runs(
    bars: Progress, rows: int | None, sizes: list[int], replicas: int, processes: int
) -> list[dict[str, Any]]:
    """Train with each budget and each fleet size, and return the errors and the costs."""
    cases = [
        (epsilon, size, number)
        for epsilon in _EPSILONS
        for size in sizes
        for number in range(1 if epsilon is None else replicas)  # without noise, once is enough
    ]
    bar = bars.add_task("Training", total=len(cases), state="")
    trainings: dict[tuple[float | None, int], list[dict[str, Any]]] = {}
    largest_first = sorted(cases, key=lambda case: -case[1])
    with _pool(processes) as apply:
        for (epsilon, size, _), run in zip(
            largest_first, apply(partial(_train, rows), largest_first), strict=True
        ):
            trainings.setdefault((epsilon, size), []).append(run)
            state = f"{run['vehicles']:,} vehicles"
            bars.update(bar, advance=1, state=state)
    return [_summary(trainings[epsilon, size]) for epsilon in _EPSILONS for size in sizes]


@contextmanager
def _pool(processes: int) -> Iterator[Callable[..., Iterable[dict[str, Any]]]]:
    """Return a function like `map`, which uses several processes if there is more than one."""
    if processes == 1:
        yield map
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield pool.map


def _train(rows: int | None, case: tuple[float | None, int, int]) -> dict[str, Any]:
    """Train once; return the error and the costs."""
    epsilon, size, number = case
    began = monotonic()
    work, test = _tasks(rows, size)
    settings = Settings(epsilon)
    # The fleet is in random order already.
    training = settings.training(
        work, work.objective.distance, source(_SEED + number), shuffle=False
    )
    for _ in training:
        pass
    return {
        **spending(settings, work, training),
        "rounds": training.rounds,
        "error": float(holdout_errors(test, training)[0]),
        "seconds": monotonic() - began,
    }


def _summary(trainings: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what several trainings with the same settings cost, and their error."""
    errors = [training["error"] for training in trainings]
    return {
        **trainings[0],
        "error": float(np.mean(errors)),
        "spread": None if len(errors) == 1 else float(np.std(errors, ddof=1)),
        "seconds": sum(training["seconds"] for training in trainings),
    }


def _converged_error(fleet: Linear, test: Linear) -> float:
    """Return the error of a model that is trained on all data to convergence, without privacy.

    It is a logistic regression with a small penalty, by Newton's method.
    """
    features, y = fleet.examples.read(slice(None))
    x: npt.NDArray[Any] = written_out(features)
    weights = np.zeros(fleet.dimensions)
    for _ in range(_NEWTON):
        bend, step = _PENALTY * np.eye(len(weights)), _PENALTY * weights
        for start in range(0, len(x), BLOCK):  # blocks stay in the cache
            rows = x[start : start + BLOCK]
            slopes = fleet.objective.slope(
                rows @ weights.astype(x.dtype), y[start : start + BLOCK]
            ).astype(x.dtype)
            wrong = np.abs(slopes)  # the logistic slope is the probability of the other label
            bend += (rows * (wrong * (1 - wrong))[:, None]).T @ rows
            step += slopes @ rows
        weights -= np.linalg.solve(bend, step)
    return float(test.error(weights[None])[0])


def _render(document: dict[str, Any], vehicles: int) -> Table:
    rendered = Table(
        title=f"Late or not? {vehicles:,} flights answer, {document['holdout']:,} are the test",
        caption=f"With noise: mean, standard deviation, total time of {document['replicas']} "
        "trainings.",
    )
    rendered.add_column("", no_wrap=True)
    for heading in ("wrong", "st. dev.", "bits per vehicle", "seconds"):
        rendered.add_column(heading, justify="right", no_wrap=True)
    rendered.add_row("base rate: always the same", f"{document['base_rate']:.2%}", "", "0", "")
    for run in document["runs"]:
        if run["vehicles"] < vehicles:
            continue
        epsilon, spread = run["epsilon"], run["spread"]
        rendered.add_row(
            SAME_STEPS if epsilon is None else f"epsilon {epsilon:g}",
            f"{run['error']:.2%}",
            "" if spread is None else f"{spread:.2%}",
            f"{run['bits_per_vehicle']:,}",
            f"{run['seconds']:.2f}",
        )
    rendered.add_row(CONVERGED, f"{document['converged']:.2%}", "", "", "")
    return rendered
