"""What `fedldp train` and `fedldp demo` share: a fleet, a hold-out, and a progress display."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from fedldp._internal.validation import Floats
from fedldp.cli.plans import INPUT, given_options, naming
from fedldp.datasets.dataset import Dataset
from fedldp.errors import DomainError
from fedldp.learn.comparison import Comparison
from fedldp.learn.examples import VehicleRows
from fedldp.learn.features import Scaling
from fedldp.learn.gradients import BLOCK
from fedldp.learn.layers import ACTIVATIONS
from fedldp.learn.networks import Architecture, Network
from fedldp.learn.objectives import OBJECTIVES, Objective
from fedldp.learn.privacy import Privacy
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Layered, Linear, Supervised
from fedldp.learn.training import Round, Training
from fedldp.plan.plan import Plan
from fedldp.schema.attributes import Attribute

SAVE_EVERY = 2.0  # seconds, at least

_POINTS = 50  # the error is measured about this many times during a training
_UNITS = ("B", "kB", "MB", "GB")


TASKS: dict[str, Objective] = {each.task: each for each in OBJECTIVES.values()}


NETWORK = "mlp"  # the task of a network with hidden layers, whose objective follows from the target
HIDDEN = (8,)  # units of its layers by default


def network_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the task mlp to a command."""
    hidden = click.option(
        "--hidden",
        type=click.IntRange(1),
        multiple=True,
        help="The units of a hidden layer of mlp; give it again for more layers.  "
        f"[default: {HIDDEN[0]}]",
    )
    activation = click.option(
        "--activation",
        type=click.Choice(ACTIVATIONS),
        default="tanh",
        show_default=True,
        help="The function of the hidden units of mlp.",
    )
    return hidden(activation(command))


network_file_option = click.option(
    "--network",
    type=INPUT,
    help="Train the network in this file (JSON, of `fedldp.learn.Network`) instead of a task.",
    metavar="FILE",
)


def chosen_model(
    task: str, hidden: tuple[int, ...], activation: str, network: Path | None
) -> tuple[Architecture, Objective | None]:
    """Return the model that the options name, and its objective if these decide it."""
    if network is None:
        return architecture(task, hidden, activation), TASKS.get(task)
    if given_options("task", "hidden", "activation"):
        raise click.UsageError(
            "--network is the whole model: leave out --task, --hidden and --activation."
        )
    layers = read_network(network)
    return (lambda *_: layers), layers.objective


def architecture(task: str, hidden: tuple[int, ...], activation: str) -> Architecture:
    """Return what makes the network of a task."""
    if task == NETWORK:
        return partial(Network.perceptron, hidden=hidden or HIDDEN, activation=activation)
    if hidden or given_options("activation"):
        raise click.UsageError(f"--hidden and --activation are for --task {NETWORK}.")
    return Network.linear


def read_network(path: Path) -> Network:
    """Read a network from a file."""
    with naming(path):
        return Network.from_json(path.read_text("utf-8", errors="replace"))


class HoldoutPoint(NamedTuple):
    """The error and loss on the hold-out after a round: the mean of all replicas."""

    round: int
    error: float
    loss: float


def linear(data: Dataset, goal: Objective) -> Linear:
    """Return the training task of a data set."""
    examples = data.examples(goal.name)
    return Linear(examples.objective, examples, _vehicle_rows(data))


def network_task(data: Dataset, goal: Objective, make: Architecture, seed: int = 0) -> Supervised:
    """Return the task of training a network, with layers or without."""
    examples = data.examples(goal.name)
    network = make(examples.dimensions, examples.objective)
    if network.objective != examples.objective:
        raise DomainError(
            f"the network must have as many outputs as its target has scores, "
            f"{examples.objective.outputs}; got {network.objective.outputs}."
        )
    if not network.layers:
        return linear(data, goal)
    return Layered(network, examples, _vehicle_rows(data), seed)


def network_goal(data: Dataset) -> Objective:
    """Return the objective of a network: it follows from the first target of the data."""
    for name in data.targets.values():
        goal = goal_of(data.schema[name])
        if data.target(goal.name).name == name:
            return goal
    raise DomainError(f"{data.name} has no target: give --target.")


def goal_of(target: Attribute) -> Objective:
    """Return the objective of a network that predicts a target."""
    found = (OBJECTIVES[each] for each in ("squared", "logistic"))
    return next((goal for goal in found if goal.fits(target)), OBJECTIVES["softmax"])


def _vehicle_rows(data: Dataset) -> VehicleRows | None:
    return None if data.vehicle_ids is None else VehicleRows(data.vehicle_ids)


def base_rate(data: Dataset, goal: Objective) -> float:
    """Return the error of the best model without features."""
    target = data.target(goal.name)
    goal = goal.for_target(target)
    return goal.base_rate(goal.targets(target, data.matrix(names=(target.name,))[:, 0]))


def note_clipping(data: Dataset, say: Callable[[str], None] | None = None) -> None:
    """Print a line on standard error if the bounds of a data set clip values."""
    if data.quality.clipping:
        text = f"{data.name}: {data.quality.clipping}"
        click.echo(text, err=True) if say is None else say(text)


def holdout_errors(public: Supervised, training: Training) -> Floats:
    """Return the error of each model of a training on the hold-out."""
    return scaled_holdout(public, training.scaling).error(training.models)


def scaled_holdout(public: Supervised, scaling: Scaling | None) -> Supervised:
    """Return the hold-out as a model sees it whose numbers a survey has scaled."""
    return public if scaling is None else public.scaled(scaling)


def compare_with_baseline(test: Supervised, weights: Floats) -> Comparison:
    """Return how a model does on the hold-out, beside always the same answer."""
    errors, base = [], []
    _, targets = test.examples.read(slice(None))
    goal = test.objective
    always = np.broadcast_to(goal.constant(targets), (BLOCK, goal.outputs))
    always = always[:, 0] if goal.outputs == 1 else always
    for start in range(0, len(test.examples), BLOCK):
        features, targets = test.examples.read(slice(start, start + BLOCK))
        with np.errstate(over="ignore", invalid="ignore"):  # the weights may have overflowed
            errors.append(goal.error(test.network.scores(weights[None], features), targets)[0])
            base.append(goal.error(always[: len(targets)], targets))
    return Comparison.of(np.concatenate(errors), np.concatenate(base))


def spending(settings: Settings, fleet: Supervised, training: Training) -> dict[str, Any]:
    """Return what a training costs each vehicle, and the size of its reports."""
    (plan, *_), times = training.plans, settings.participations
    reports = training.reports
    spent = Privacy.of(plan, reports, times) if isinstance(plan, Plan) else None
    ratio = None if spent is None else spent.ratio
    if ratio is not None:
        ratio = max(ratio, *(survey.ratio for survey in training.surveys), Fraction())
    return {
        "vehicles": len(fleet),
        "participations": times,
        "reports": reports,
        "epsilon": None if spent is None else settings.epsilon,
        "exact_epsilon": None if spent is None else str(spent.epsilon),
        "largest_ratio": None if ratio is None else float(ratio),
        "price": settings.price(fleet.dimensions),
        "bits_per_vehicle": None if plan.study else times * plan.bits,
        "bytes": None if plan.study else training.bytes,
    }


@contextmanager
def display() -> Iterator[Progress]:
    """Show progress if standard error is a terminal."""
    screen = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(10), TextColumn("{task.fields[state]}")
    with Progress(*columns, transient=True, console=screen, disable=not screen.is_terminal) as bars:
        yield bars


def follow(
    bars: Progress,
    label: str,
    training: Training,
    public: Supervised,
    *,
    measure: bool = False,
    checkpoint: Path | None = None,
) -> list[HoldoutPoint]:
    """Run a training with a progress display; return its error during the training.

    The error is measured if there is a display, or if `measure` is true.
    """
    bar = bars.add_task(label, total=training.rounds, completed=training.state.round, state="")
    every = max(1, training.rounds // _POINTS)
    points: list[HoldoutPoint] = []
    saved = monotonic()
    try:
        # A model whose weights overflow is refused at the end.
        with np.errstate(over="ignore", invalid="ignore"):
            for done in training:
                last = training.finished
                if (measure or not bars.disable) and (last or done.number % every == 0):
                    points.append(_point(training, public))
                bars.update(bar, completed=done.number, state=_state(done, points))
                if checkpoint is not None and monotonic() - saved >= SAVE_EVERY:
                    training.save(checkpoint)
                    saved = monotonic()
    finally:
        if checkpoint is not None:
            training.save(checkpoint)
    if measure and not points:  # the training was finished before
        points.append(_point(training, public))
    return points


def _point(training: Training, public: Supervised) -> HoldoutPoint:
    models, public = training.models, scaled_holdout(public, training.scaling)
    error, loss = public.error(models), public.loss(models)
    return HoldoutPoint(training.state.round, float(error.mean()), float(loss.mean()))


def _state(done: Round, points: list[HoldoutPoint]) -> str:
    spent = "" if done.epsilon is None else f", epsilon {float(done.epsilon):g}"
    error = f", error {points[-1].error:.4f}" if points else ""
    return (
        f"{done.number}/{done.rounds}: {done.reports:,} answers, {volume(done.bytes)}{spent}{error}"
    )


def volume(count: int) -> str:
    """Return a number of bytes with a unit.

    >>> volume(405_091)
    '405 kB'
    """
    number, unit = float(count), 0
    while number >= 999.5 and unit < len(_UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:.3g} {_UNITS[unit]}"


def shown_error(error: float, target: Attribute) -> str:
    """Return an error for people: the share of wrong labels, or how far off a number is."""
    if target.feature_labels:
        return f"{error:.2%}"
    return f"{error:.4g} (root mean square: {error**0.5 * target.estimand.half_width:.4g})"


def title_of(task: str, goal: Objective) -> str:
    """Return the usual name of the model of a task."""
    return "Network with hidden layers" if task == NETWORK else goal.title
