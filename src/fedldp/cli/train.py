"""`fedldp train`: train a model on a simulated fleet."""

import json
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, cast

import click
from rich.table import Table

from fedldp import datasets
from fedldp.cli.completion import offer
from fedldp.cli.options import (
    STEP_OPTIONS,
    STRATEGY_OPTIONS,
    declared_option,
    pop_strategy,
    step_options,
    with_steps,
)
from fedldp.cli.plans import (
    INPUT,
    OUTPUT,
    answer_options,
    check_paper,
    console,
    given_options,
    naming,
    read_schema,
    strict_option,
    tell,
)
from fedldp.cli.runs import (
    NETWORK,
    TASKS,
    base_rate,
    chosen_model,
    compare_with_baseline,
    display,
    follow,
    holdout_errors,
    network_file_option,
    network_goal,
    network_options,
    network_task,
    note_clipping,
    scaled_holdout,
    shown_error,
    spending,
    title_of,
    volume,
)
from fedldp.datasets import Dataset
from fedldp.datasets.files import read_file
from fedldp.learn.clipping import ClippedShare
from fedldp.learn.examples import Surveyed
from fedldp.learn.forecasting import FEWEST_PUBLIC_ROWS, forecast
from fedldp.learn.model import Model
from fedldp.learn.networks import Network
from fedldp.learn.objectives import objective
from fedldp.learn.optimizer import AUTO
from fedldp.learn.settings import PAPER_DECIDES, Settings
from fedldp.learn.signals import FEWEST_SAMPLES, Convolutions, Window
from fedldp.learn.tasks import Layered, Linear, Supervised
from fedldp.mechanisms import mechanism_names
from fedldp.plan.strategies import PAPER_MECHANISM, Directions, Sample, Strategy
from fedldp.randomness import Source, source
from fedldp.schema.attributes import Attribute
from fedldp.storage import files

NO_PRIVACY = "none"  # instead of a mechanism

_OF_DATA = ("schema", "target", "vehicle", "strict", "path", "rows")


@click.command("train")
@click.option(
    "--data",
    "what",
    required=True,
    help="A data set, or a CSV or Parquet file.",
    metavar="NAME|FILE",
    shell_complete=offer(datasets.names, files=True),
)
@click.option(
    "--task",
    type=click.Choice([*TASKS, NETWORK]),
    help="The kind of model (see above).",
)
@network_options
@network_file_option
@click.option(
    "--fixed",
    type=OUTPUT,
    help="For --network with signals: where to write the network with fixed filters, with which "
    "yours is compared.",
    metavar="FILE",
)
@declared_option(
    Settings,
    "epsilon",
    type=float,
    required=False,
    help="The privacy budget of a vehicle, for all that it sends. Leave it out only with "
    f"--mechanism {NO_PRIVACY}.",
)
@declared_option(
    Sample,
    "mechanism",
    type=click.Choice([AUTO, *mechanism_names(), NO_PRIVACY]),
    help="The mechanism for numbers, one of those that `fedldp mechanisms` shows. auto uses "
    "directions, which need none; none trains without privacy.",
    metavar="NAME",
)
@click.option("--schema", type=INPUT, help="The columns of a file (TOML).", metavar="FILE")
@click.option("--target", help="The column of a file to predict.", metavar="COLUMN")
@click.option(
    "--vehicle",
    "--client",
    "vehicle",
    help="The column with the id of each row's vehicle, if a vehicle has several rows.",
    metavar="COLUMN",
)
@strict_option
@click.option(
    "--path", type=INPUT, help="The file of a data set that was not fetched.", metavar="FILE"
)
@click.option(
    "--rows", type=click.IntRange(1), help="Use only the first rows.  [default: all of them]"
)
@click.option(
    "--holdout",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.1,
    show_default=True,
    help="The share of vehicles that are kept apart, as public data, to measure the error.",
)
@declared_option(Settings, "strategy")
@answer_options
@declared_option(Directions, "mean_length", default=None)
@declared_option(Directions, "fleet")
@declared_option(Sample, "study")
@declared_option(Settings, "bound")
@declared_option(Settings, "group")
@step_options
@declared_option(Settings, "max_iter", "max_rounds")
@declared_option(Settings, "participations")
@declared_option(Settings, "alpha", "regularization")
@declared_option(Settings, "survey")
@declared_option(Settings, "survey_share")
@click.option(
    "--forecast",
    "only_forecast",
    is_flag=True,
    help="Ask no vehicle: say what to expect (see above).",
)
@click.option(
    "--vehicles",
    type=click.IntRange(1),
    help="The size of the fleet for --forecast.  [default: that of the data]",
)
@click.option("--seed", type=int, help="A number that makes the simulation reproducible.")
@click.option("--save", type=OUTPUT, help="Write the model to a file (JSON).", metavar="FILE")
@click.option(
    "--checkpoint",
    type=OUTPUT,
    help="Save the training every few seconds; resume it if the file exists.",
    metavar="FILE",
)
@click.option(
    "--plot",
    type=OUTPUT,
    help="Draw the error over the rounds (.png, .svg or .pdf).",
    metavar="FILE",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def train_command(
    what: str,
    task: str | None,
    hidden: tuple[int, ...],
    activation: str,
    network: Path | None,
    fixed: Path | None,
    epsilon: float | None,
    mechanism: str,
    holdout: float,
    paper: bool,
    only_forecast: bool,
    vehicles: int | None,
    seed: int | None,
    save: Path | None,
    checkpoint: Path | None,
    plot: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Simulate training: each vehicle sends a few bits.

    \b
    fedldp train --data flights --task logistic --epsilon 4
    fedldp train --data flights --task logistic --mechanism none
    fedldp train --data flights --task linear --epsilon 2 --plot rounds.png
    fedldp train --data fleet.csv --schema fleet.toml --target sold \\
      --task svm --epsilon 4 --save model.json
    fedldp train --data trips.parquet --schema trips.toml --target minutes \\
      --vehicle car --task linear --epsilon 4 --checkpoint trips.json
    fedldp train --data diamonds.csv --schema diamonds.toml --target cut \\
      --task multiclass --epsilon 2
    fedldp train --data flights --task mlp --hidden 8 --epsilon 4
    fedldp train --data waves.csv --schema waves.toml --target wave \\
      --network waves.json --epsilon 4
    fedldp train --data flights --task logistic --epsilon 1 --forecast
    fedldp train --data flights --task logistic --epsilon 4 --paper \\
      --group 1000 --learning-rate 0.2 --max-iter 200

    Each row of the data is a vehicle, or all rows with the same --vehicle. The
    fleet is simulated in this process; `fedldp server` runs a real one. `fedldp
    data list` shows the names of data sets. For your own file, `fedldp schema
    fleet.csv` makes a draft of the schema.

    Logistic regression (logistic) and a support vector machine (svm) predict
    one of two labels; their error is the share of wrong labels. Linear
    regression (linear) predicts a number; its error is the mean squared error
    on the scale of [-1, 1]. Logistic regression with several labels
    (multiclass) predicts one of two or more. A small network with hidden layers
    (mlp) predicts a label or a number, whatever the target is; it has more
    weights, and so needs more vehicles. The base rate is the error of always
    giving the same answer: a model that is not better is useless, and the output
    says so.

    --network trains the layers in a file, such as convolutions of signals. For
    signals the command also tries fixed features: a network of random filters,
    of which only the last layer is trained. It says which of the two has less
    error; mostly fixed features have.

    As on a vehicle, values outside the bounds are clipped; missing, unreadable
    and unknown values are replaced. Standard error says how many. --strict
    refuses such a file. A missing target is always refused.

    --forecast asks no vehicle. It says what to expect from the schema, epsilon
    and the number of vehicles. It also simulates the training on the rows that
    --holdout keeps apart, as if they were public; for a network it does only
    that.

    --paper follows the paper exactly: its Algorithm 1 with plain gradient
    steps, the sum of the answers divided by the size of the group, its
    mechanisms, its k and its encoding of categories.
    """  # noqa: D301 (click wants the character \b itself)
    if paper and not given_options("mechanism"):
        mechanism = PAPER_MECHANISM
    private = mechanism != NO_PRIVACY
    if only_forecast and not private:
        raise click.UsageError("--forecast needs a mechanism: without one there is no noise.")
    if private and epsilon is None:
        raise click.UsageError(f"give --epsilon, or --mechanism {NO_PRIVACY} for no privacy.")
    if plot is not None:
        from fedldp import _plots as plots

        plots.check_path(plot)
    of_data = {name: options.pop(name) for name in _OF_DATA}
    chosen = {name: value for name, value in options.items() if given_options(name)}
    if paper:
        check_paper(*(name for name in chosen if name in PAPER_DECIDES))
    steps = {name: chosen.pop(name) for name in STEP_OPTIONS if name in chosen}
    if paper:
        settings = Settings.paper(
            epsilon if private else None, mechanism if private else PAPER_MECHANISM, **chosen
        )
    else:
        chosen["strategy"] = pop_strategy(
            chosen | {"mechanism": _mechanism_of(mechanism)}, gradients=True
        )
        chosen = {name: chosen[name] for name in chosen if name not in STRATEGY_OPTIONS[1:]}
        settings = Settings(epsilon if private else None, **chosen)
    if task is None and network is None:
        raise click.UsageError(
            f"give --task ({', '.join([*TASKS, NETWORK])}), or --network with a file."
        )
    make, named = chosen_model(task or NETWORK, hidden, activation, network)
    data = _load(what, None if named is None else named.name, **of_data)
    data = replace(data, reference=settings.reference)
    goal = named or network_goal(data)
    fleet, public = data.split(holdout)
    work, test = (network_task(part, goal, make, seed or 0) for part in (fleet, public))
    settings = with_steps(settings, work.prior is not None, **steps)
    if vehicles is not None and not only_forecast:
        raise click.UsageError("--vehicles is for --forecast; to train on fewer, give --rows.")
    if only_forecast:
        if paper:
            raise click.UsageError("--forecast is about the defaults: leave out --paper.")
        can_simulate = test.vehicle_rows is None and len(test) >= FEWEST_PUBLIC_ROWS
        if isinstance(test, Layered) and not can_simulate:
            raise click.UsageError(
                "--forecast of a network is a simulation: hold out at least "
                f"{FEWEST_PUBLIC_ROWS} rows with --holdout, and leave out --vehicle."
            )
        chosen["optimizer"] = settings.optimizer
        size = vehicles or len(work)
        _forecast(settings, chosen, test, size, seed, can_simulate=can_simulate, as_json=as_json)
        return
    features = _fixed_features(work.network)
    if fixed is not None and features is None:
        raise click.UsageError(
            "--fixed is for --network with signals of at least "
            f"{FEWEST_SAMPLES} samples, labels, and layers that are trained."
        )
    label = f"{fleet.fingerprint} {seed}"
    training = settings.training(work, work.distance, source(seed), label=label)
    if checkpoint is not None and checkpoint.exists():
        with naming(checkpoint):
            training.resume(checkpoint.read_text("utf-8", errors="replace"))
        click.echo(f"Resuming from {checkpoint}, after round {training.state.round}.", err=True)
    began = monotonic()
    with display() as bars:
        measure = plot is not None
        points = follow(bars, "Training", training, test, measure=measure, checkpoint=checkpoint)
    seconds = monotonic() - began
    if fixed is not None and features is not None:
        files.write(fixed, features.to_json())
    target = data.target(goal.name)
    trained, scaling = work.network, training.scaling
    if isinstance(work, Layered) and work.prior is not None:
        trained, scaling = scaled_holdout(work, scaling).network, None  # one more layer scales
    model = Model(
        goal.name,
        data.features.schema,
        target,
        training.models[0],
        data.reference,
        scaling,
        trained if trained.layers else None,
    )
    if save is not None:
        files.write(save, model.to_json())
    comparison = compare_with_baseline(scaled_holdout(test, training.scaling), training.models[0])
    document = {
        "data": data.name,
        "title": data.title,
        "synthetic": data.about.synthetic,
        "task": task or NETWORK,
        "target": target.name,
        "error": float(holdout_errors(test, training)[0]),
        "base_rate": base_rate(public, goal),
        "better_than_base_rate": comparison.beats_base_rate,
        "mechanism": _mechanism_name(settings),
        "strategy": cast(Strategy, settings.strategy).name,
        "optimizer": settings.optimizer_for(linear=work.prior is not None).name,
        "survey": None if training.survey is None else training.survey.kind,
        "survey_reports": training.survey_reports,
        "clipped_share": None if training.clipped is None else training.clipped.share,
        **spending(settings, work, training),
        "holdout": len(public),
        "rounds": training.state.round,
        "seconds": seconds,
        "model": model.fingerprint,
    }
    if features is not None:
        document["error_of_fixed_features"] = _error(features, settings, work, test, source(seed))
    title = f"{title_of(task or NETWORK, goal)} of {target.name}: {data.title}"
    if plot is not None:
        plots.save(plots.training_rounds(points, document["base_rate"], title), plot)
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    console().print(_render(title, document, target, training.clipped))
    if training.clipped is not None and training.clipped.is_biased:
        console().print(training.clipped.warning)
    if not comparison.beats_base_rate:
        console().print(comparison.verdict)
    if private and settings.participations > 1:
        console().print(
            f"Each vehicle answers {settings.participations} times with a part of its budget: the "
            f"squared error of the mean gradient is {document['price']:.3g} times that of "
            "answering once."
        )
    if features is not None:
        console().print(_recommended(document))
    for path in (save, plot, fixed):
        if path is not None:
            console().print(f"Wrote {path}", soft_wrap=True)


def _fixed_features(network: Network) -> Network | None:
    """Return a network of fixed features for the same signals; None if there is none to compare."""
    if not network.signals or network.only_last or not network.objective.classifies:
        return None
    channels, length = network.inputs
    if length < FEWEST_SAMPLES:
        return None
    return Convolutions(Window(channels, length, low=-1, high=1)).network(network.objective)


def _error(
    network: Network, settings: Settings, work: Supervised, test: Supervised, random: Source
) -> float:
    """Return the error of another network that the same fleet trains, with default settings."""
    fleet, public = (Layered(network, part.examples, part.vehicle_rows) for part in (work, test))
    training = Settings(settings.epsilon).training(fleet, fleet.distance, random)
    for _ in training:
        pass
    return float(holdout_errors(public, training)[0])


def _recommended(document: dict[str, Any]) -> str:
    """Return which of two networks of signals to take."""
    fixed, trained = document["error_of_fixed_features"], document["error"]
    shown = f"Fixed features, of which only the last layer is trained, err by {fixed:.2%}"
    if fixed < trained:
        return f"{shown}: take them instead. --fixed FILE writes their network, for --network."
    return f"{shown}: keep the network."


def _mechanism_of(mechanism: str) -> str:
    """Return the mechanism of an option, which may say that there is no privacy."""
    return AUTO if mechanism == NO_PRIVACY else mechanism


def _mechanism_name(settings: Settings) -> str:
    """Return what made numbers private."""
    if not settings.private:
        return NO_PRIVACY
    strategy = cast(Strategy, settings.strategy).for_gradients(1.0)
    return str(getattr(strategy, "mechanism", strategy.name))


def _forecast(
    settings: Settings,
    chosen: dict[str, Any],
    public: Supervised,
    vehicles: int,
    seed: int | None,
    *,
    can_simulate: bool,
    as_json: bool,
) -> None:
    """Say what to expect of a training."""
    if not isinstance(public.examples, Surveyed):
        raise click.UsageError("--forecast needs a data set or a file.")
    task = cast(Linear | Layered, public)
    predicted = forecast(
        public.examples.encoding.schema,
        settings.budget,
        vehicles,
        objective=public.objective,
        public=task if can_simulate else None,
        source=source(seed),
        **chosen,
    )
    if not as_json:
        console(soft_wrap=True).print(str(predicted), highlight=False)
        return
    document = {
        "epsilon": predicted.epsilon,
        "vehicles": predicted.vehicles,
        "rounds": predicted.rounds,
        "survey": predicted.survey,
        "score_noise": predicted.score_noise if predicted.names else None,
        "score_spread": predicted.score_spread if predicted.names else None,
        "needed": predicted.needed,
        "needed_to_beat": predicted.needed_to_beat,
        "weights": {
            name: {"noise": noise, "prior": prior}
            for name, noise, prior in zip(
                predicted.names,
                predicted.deviations.tolist(),
                predicted.priors.tolist(),
                strict=True,
            )
        },
        "errors": None if predicted.errors is None else predicted.errors.tolist(),
        "base_rate": predicted.base_rate,
    }
    click.echo(json.dumps(document, indent=2))


def _load(
    what: str,
    objective_name: str | None,
    *,
    schema: Path | None,
    target: str | None,
    vehicle: str | None,
    strict: bool,
    path: Path | None,
    rows: int | None,
) -> Dataset:
    """Return the data set that has this name, or that is in this file."""
    if what in datasets.names():
        if schema is not None or target is not None or vehicle is not None or strict:
            raise click.UsageError(
                f"{what} has its own columns: leave out --schema, --target, --vehicle and "
                "--strict, which are for files."
            )
        dataset = datasets.load(what, path, rows)
        note_clipping(dataset)
        return dataset
    if not Path(what).is_file():
        raise click.UsageError(f"--data must be a file, or one of {datasets.listed()}; got {what}.")
    if schema is None or target is None or path is not None:
        raise click.UsageError(f"for the file {what}, give --schema and --target, but not --path.")
    columns = read_schema(schema)
    if objective_name is not None:
        with naming(schema):
            objective(objective_name).for_target(columns[target])
    dataset, quality = read_file(what, columns, target, vehicle, strict=strict)
    with naming(Path(what)):
        quality.refuse_unusable()
    tell(what, quality)
    if rows is not None and rows > len(dataset):
        raise click.UsageError(
            f"--rows must be at most {len(dataset)}, the rows of {what}; got {rows}."
        )
    return dataset if rows is None else dataset.take(slice(rows))


def _render(
    title: str, document: dict[str, Any], target: Attribute, clipped: ClippedShare | None
) -> Table:
    rendered = Table(title=title, show_header=False)
    rendered.add_column(no_wrap=True)
    rendered.add_column(overflow="fold")
    named = ("error on the hold-out", "error"), ("base rate", "base_rate")
    errors = [(name, shown_error(document[key], target)) for name, key in named]
    bits, epsilon = document["bits_per_vehicle"], document["epsilon"]
    if epsilon is None:
        privacy = "none: vehicles send their gradients as they are"
    elif document["largest_ratio"] is None:
        privacy = f"{epsilon:g}, for study"
    else:
        privacy = f"{epsilon:g}: odds change by a factor of {document['largest_ratio']:.4g} at most"
    for row in (
        *errors,
        ("rows held out", f"{document['holdout']:,}, public"),
        ("vehicles", f"{document['vehicles']:,}"),
        ("reports", f"{document['reports']:,}"),
        ("of them, surveyed", _survey(document)),
        *([] if clipped is None else [("gradients clipped", str(clipped))]),
        ("rounds", f"{document['rounds']:,}"),
        ("epsilon of a vehicle", privacy),
        ("mechanism", document["mechanism"]),
        ("server", document["optimizer"]),
        ("bits that each sends", "for study" if bits is None else f"{bits:,}"),
        ("received in all", "for study" if bits is None else volume(document["bytes"])),
        ("seconds", f"{document['seconds']:.2f}"),
    ):
        rendered.add_row(*row)
    return rendered


def _survey(document: dict[str, Any]) -> str:
    """Return for people what was asked first."""
    if not document["survey_reports"]:
        return "none"
    kinds = {"scale": ["centers, scales"], "whiten": ["centers, scales, correlations"]}
    asked = kinds.get(document["survey"], [])
    asked += ["target"] if document["clipped_share"] is not None else []
    return f"{document['survey_reports']:,}: {', '.join(asked)}"
