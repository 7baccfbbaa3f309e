"""What `fedldp train` and `fedldp demo` share: a fleet, a hold-out, and a training to watch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from fedldp.datasets.base import Dataset
from fedldp.learn import fedsgd
from fedldp.learn.examples import Owners
from fedldp.learn.features import encode_target
from fedldp.learn.fedsgd import Training
from fedldp.learn.gradients import Linear
from fedldp.learn.objectives import objective
from fedldp.learn.privacy import Privacy, bits_of
from fedldp.learn.settings import Settings
from fedldp.plan import Plan
from fedldp.records import length

SAVE_EVERY = 2.0  # seconds, at the least

_POINTS = 50  # about so often the error is measured on the way
_UNITS = ("B", "kB", "MB", "GB")


class Task(NamedTuple):
    """An objective, and what people call it."""

    objective: str
    title: str


TASKS = {
    "logistic": Task("logistic", "Logistic regression"),
    "linear": Task("squared", "Linear regression"),
    "svm": Task("hinge", "Support vector machine"),
}


class Point(NamedTuple):
    """How good a model was on the hold-out after a round; means, of several replicas."""

    round: int
    error: float
    loss: float


def linear(data: Dataset, task: Task) -> Linear:
    """Return what the vehicles of a data set are to learn."""
    owners = None if data.clients is None else Owners(data.clients)
    return Linear(objective(task.objective), data.examples(task.objective), owners)


def base_rate(data: Dataset, task: Task) -> float:
    """Return the error of the best model that knows no features."""
    target = data.schema[data.targets[task.objective]]
    values = encode_target(target, data.matrix(names=(target.name,))[:, 0])
    if not objective(task.objective).classifies:
        return float(values.var())
    share = float((values > 0).mean())
    return min(share, 1 - share)


def spending(settings: Settings, fleet: Linear, reports: int) -> dict[str, Any]:
    """Return what a training costs each vehicle, and what so many reports take."""
    plan, times = settings.plan(fleet.dimensions), settings.participations
    document: dict[str, Any] = {
        "vehicles": len(fleet),
        "participations": times,
        "reports": reports,
    }
    if not isinstance(plan, Plan):
        bits = bits_of(plan)
        return document | {
            "epsilon": None,
            "exact_epsilon": None,
            "largest_ratio": None,
            "price": settings.price(fleet.dimensions),
            "bits_per_vehicle": times * bits,
            "bytes": length(reports, bits),
        }
    privacy = Privacy.of(plan, reports, times)
    return document | {
        "epsilon": settings.epsilon,
        "exact_epsilon": str(privacy.epsilon),
        "largest_ratio": None if privacy.ratio is None else float(privacy.ratio),
        "price": settings.price(fleet.dimensions),
        "bits_per_vehicle": None if plan.study else times * privacy.bits,
        "bytes": None if plan.study else privacy.bytes,
    }


@contextmanager
def display() -> Iterator[Progress]:
    """Show progress on a terminal, and nothing elsewhere."""
    screen = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(10), TextColumn("{task.fields[state]}")
    with Progress(*columns, transient=True, console=screen, disable=not screen.is_terminal) as bars:
        yield bars


def follow(
    bars: Progress,
    label: str,
    training: Training,
    public: Linear,
    *,
    measure: bool = False,
    checkpoint: Path | None = None,
) -> list[Point]:
    """Run a training to its end before people's eyes; return its error on the way.

    The error is measured if somebody watches, or if `measure` asks for it.
    """
    bar = bars.add_task(label, total=training.rounds, completed=training.state.round, state="")
    every = max(1, training.rounds // _POINTS)
    points: list[Point] = []
    saved = monotonic()
    try:
        # A model that leaves all bounds is refused when it is done.
        with np.errstate(over="ignore", invalid="ignore"):
            for progress in training:
                last = training.finished
                if (measure or not bars.disable) and (last or progress.round % every == 0):
                    points.append(_point(training, public))
                state = _state(progress, points)
                bars.update(bar, completed=progress.round, state=state)
                if checkpoint is not None and monotonic() - saved >= SAVE_EVERY:
                    training.save(checkpoint)
                    saved = monotonic()
    finally:
        if checkpoint is not None:
            training.save(checkpoint)
    if measure and not points:  # it was done before
        points.append(_point(training, public))
    return points


def _point(training: Training, public: Linear) -> Point:
    models = training.models
    error, loss = public.error(models), public.loss(models)
    return Point(training.state.round, float(error.mean()), float(loss.mean()))


def _state(progress: fedsgd.Progress, points: list[Point]) -> str:
    spent = "" if progress.epsilon is None else f", epsilon {float(progress.epsilon):g}"
    error = f", error {points[-1].error:.4f}" if points else ""
    return (
        f"{progress.round}/{progress.rounds}: {progress.vehicles:,} answers, "
        f"{volume(progress.bytes)}{spent}{error}"
    )


def volume(count: int) -> str:
    """Return a number of bytes for people.

    >>> volume(405_091)
    '405 kB'
    """
    number, unit = float(count), 0
    while number >= 999.5 and unit < len(_UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:.3g} {_UNITS[unit]}"
