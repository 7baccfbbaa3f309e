"""`fedldp fleet init`: all files that a fleet needs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import click

from fedldp import datasets
from fedldp._internal.text import counted
from fedldp.cli.fleet.demo import HOLDOUT, cap_option, gateways_option
from fedldp.cli.options import declared
from fedldp.cli.plans import INPUT, console, period_options, read_schema
from fedldp.cli.runs import (
    NETWORK,
    TASKS,
    chosen_model,
    goal_of,
    network_file_option,
    network_goal,
    network_options,
)
from fedldp.fleet.folder import LINK, PORT, Place, Repeated, Work, init
from fedldp.learn.networks import Architecture
from fedldp.learn.objectives import Objective
from fedldp.learn.settings import Settings

STATISTICS = "statistics"
ROUNDS = 10  # of a training, by default


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@gateways_option
@click.option(
    "--server",
    "host",
    default=Place.host,
    show_default=True,
    help="The host name or address at which gateways reach the server.",
    metavar="HOST",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=PORT,
    show_default=True,
    help="The server's port for gateways: open it.",
)
@click.option(
    "--link-port",
    type=click.IntRange(1, 65535),
    default=LINK,
    show_default=True,
    help="The server's port for its own processes: keep it closed to others.",
)
@click.option(
    "--job",
    help="The name of the job, which ledgers record too.  [default: the name of the data]",
    metavar="NAME",
)
@click.option(
    "--task",
    type=click.Choice([*TASKS, NETWORK, STATISTICS]),
    default="logistic",
    show_default=True,
    help="Train a model, or collect the means and frequencies of all columns in one round.",
)
@network_options
@network_file_option
@declared(
    Settings, "epsilon", type=float, default=4.0, help="The privacy budget that the job spends."
)
@cap_option
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=ROUNDS,
    show_default=True,
    help="The most rounds of a training in which vehicles answer gradients; a survey has two or "
    "three rounds before.",
)
@period_options
@declared(Settings, "survey")
@declared(Settings, "survey_share")
@click.option(
    "--data",
    default="flights",
    show_default=True,
    help="A data set to divide among the vaults, or a file in the folder of each vault.",
    metavar="NAME|FILE",
)
@click.option(
    "--schema",
    type=INPUT,
    help="The columns of the files (TOML); `fedldp schema` makes a draft.",
    metavar="FILE",
)
@click.option("--target", help="The column of the files to predict.", metavar="COLUMN")
@click.option(
    "--vehicle",
    help="The column with the id of each row's vehicle, if a vehicle has several rows or you will "
    "add vehicles later.",
    metavar="COLUMN",
)
@click.option(
    "--vehicles", type=click.IntRange(1), help="How many vehicles to expect in each file."
)
def init_command(
    folder: Path,
    gateways: int,
    host: str,
    port: int,
    link_port: int,
    job: str | None,
    task: str,
    hidden: tuple[int, ...],
    activation: str,
    network: Path | None,
    epsilon: float,
    cap: float | None,
    rounds: int,
    periods: int | None,
    answers: int | None,
    survey: str | None,
    survey_share: float,
    data: str,
    **of_files: Any,
) -> None:
    """Write the folder of a fleet: settings, keys, READMEs.

    \b
    fedldp fleet init fleet                         flights, on this machine
    fedldp fleet init fleet --task statistics       their means and frequencies
    fedldp fleet init fleet --task statistics --epsilon 0.5 \\
      --periods 30 --answers 4                      again every day of a month
    fedldp fleet init fleet --task mlp --rounds 50  a small network
    fedldp fleet init fleet --epsilon 2 --server fleet.example.org \\
      --data rows.csv --schema rows.toml --target sold --vehicles 20000

    FOLDER gets a folder for the server, for each gateway and for each vault, to
    be copied to their machines. Its README says what to do next; units for
    systemd are included. The bounds in the schema and the number of vehicles
    are public: the server asks for a part of the vehicles in each round.

    Models are data, and vaults contain no code of yours: linear models for a
    number (linear), two labels (logistic, svm) or several (multiclass), a
    network with hidden layers for either (mlp), or the layers that a file
    lists, such as convolutions of signals (--network).
    """  # noqa: D301 (click wants the character \b itself)
    make, goal = chosen_model(task, hidden, activation, network)
    training = network is not None or task != STATISTICS

    def objective(of_target: Callable[[], Objective]) -> str | None:
        return (goal or of_target()).name if training else None

    if data in datasets.names():
        if any(value is not None for value in of_files.values()):
            raise click.UsageError(
                f"{data} has its own columns: leave out --schema, --target, --vehicle and "
                "--vehicles, which are for files."
            )
        found, _ = datasets.load(data).split(HOLDOUT)
        entries = {"holdout": HOLDOUT}
        trained = objective(lambda: network_goal(found))
        work = Work.on_data_set(found, trained, gateways, rounds, entries, job, make)
    else:
        work = _on_files(data, training, objective, rounds, job, make, **of_files)
    work = replace(work, repeated=_repeated(periods, answers))
    settings = Settings(epsilon, survey=survey, survey_share=survey_share)
    written = init(folder, work, settings, gateways, Place(host, port, link_port), cap)
    shown = console(soft_wrap=True)
    shown.print(f"Wrote {folder}: read {folder / 'README.md'}")
    *before, last = written.stages
    asks = f"asks {counted(gateways, 'gateway')} for"
    if before:
        shown.print(
            f"The job {written.name} first {asks} {written.survey_reports:,} "
            f"reports about numbers each, in {counted(len(before), 'round')}."
        )
    shown.print(
        f"The job {written.name} {asks} {written.reports:,} reports each, "
        f"in {counted(last.rounds, 'round')}."
    )
    if written.period is not None:
        shown.print(
            f"It asks period {written.period.number}; each vehicle answers if it has drawn this "
            f"period. {written.period.calendar!r}"
        )


def _repeated(periods: int | None, answers: int | None) -> Repeated | None:
    if periods is None:
        if answers is not None:
            raise click.UsageError("--answers is about periods: give --periods too.")
        return None
    return Repeated(periods, periods if answers is None else answers)


def _on_files(
    path: str,
    training: bool,
    objective: Callable[[Callable[[], Objective]], str | None],
    rounds: int,
    job: str | None,
    make: Architecture,
    *,
    schema: Path | None,
    target: str | None,
    vehicle: str | None,
    vehicles: int | None,
) -> Work:
    if schema is None or vehicles is None or (training and target is None):
        given: dict[str, object] = {"--schema": schema, "--vehicles": vehicles}
        given |= {"--target": target} if training else {}
        missing = " and ".join(name for name, value in given.items() if value is None)
        raise click.UsageError(
            f"--data must be one of {datasets.listed()}, or a file; got {path!r}. For a file, give "
            f"{missing} too."
        )
    if not training and target is not None:
        raise click.UsageError("--target is for a training: leave it out, or change --task.")
    entries = {} if vehicle is None else {"vehicle": vehicle}
    columns = read_schema(schema)
    if vehicle in columns.names:
        raise click.UsageError(
            f"{schema} would have vehicles asked for {vehicle}, the column of their ids. Delete "
            "its table from the schema: --vehicle is enough."
        )
    goal = objective(lambda: goal_of(columns[cast(str, target)]))
    return Work.on_files(path, columns, target, goal, vehicles, rounds, entries, job, make)
