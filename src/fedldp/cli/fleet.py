"""`fedldp fleet`: a server, gateways and vaults as processes on one machine or on many."""

import asyncio
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import click

from fedldp import datasets
from fedldp._internal.text import counted
from fedldp.cli.fleet_demo import HOLDOUT, cap_option, demo_command, gateways_option
from fedldp.cli.options import declared
from fedldp.cli.plans import INPUT, console, given, read_schema, strict_option
from fedldp.cli.runs import (
    NETWORK,
    TASKS,
    architecture,
    goal_of,
    network_goal,
    network_options,
    read_network,
)
from fedldp.fleet import isolation, processes
from fedldp.fleet.flower import programs
from fedldp.fleet.folder import LINK, PORT, Place, Work, init
from fedldp.fleet.gateway import process as gateway_process
from fedldp.fleet.server import process as server_process
from fedldp.fleet.server.watch import JobFailed
from fedldp.fleet.vault.process import VaultConfig
from fedldp.learn.networks import Architecture, Network
from fedldp.learn.objectives import Objective
from fedldp.learn.settings import Settings

# Exit statuses of the server, which its systemd unit has too.
FAILED = 3  # the job has no result, and will have none
STOPPED = 4  # a signal came before the job was done

_STATISTICS = "statistics"
_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


@click.group("fleet")
def fleet_group() -> None:
    """Run a production fleet: vaults, gateways and a server.

    \b
    fedldp fleet demo                    a whole fleet on this machine
    fedldp fleet init fleet              write its files; then, on each machine:
    fedldp fleet vault fleet/vault-1
    fedldp fleet gateway fleet/gateway-1
    fedldp fleet server fleet/server
    fedldp fleet stop fleet              stop what runs on this machine

    A vault runs where the data are, for one vehicle or for many. It holds the
    data, the cap (the most that a vehicle may spend in its life) and the ledger
    (the file that records what each vehicle has spent), and it answers with
    noisy reports only. A gateway passes questions to its vaults and reports to
    the server; it is a node of Flower, the framework that connects them. The
    server asks, counts the reports and, in a training, improves the model.

    Needs Linux and the extras cli and flower. In a clone of fedldp, run
    pip install '.[cli,flower]'
    """  # noqa: D301 (click wants the character \b itself)


@fleet_group.command("init")
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
    type=click.Choice([*TASKS, NETWORK, _STATISTICS]),
    default="logistic",
    show_default=True,
    help="Train a model, or collect the means and frequencies of all columns in one round.",
)
@network_options
@click.option(
    "--network",
    type=INPUT,
    help="Train the network in this file (JSON, of `fedldp.learn.Network`) instead of a task.",
    metavar="FILE",
)
@declared(
    Settings, "epsilon", type=float, default=4.0, help="The privacy budget that the job spends."
)
@cap_option
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="The most rounds of a training in which vehicles answer gradients; a survey has two or "
    "three rounds before.",
)
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
    help="The column with the id of each row's vehicle, if a vehicle has several rows.",
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
    survey: str | None,
    survey_share: float,
    data: str,
    **of_files: Any,
) -> None:
    """Write the folder of a fleet: configuration, keys and a README.

    \b
    fedldp fleet init fleet                         flights, on this machine
    fedldp fleet init fleet --task statistics       their means and frequencies
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
    make, layers = architecture(task, hidden, activation), None
    if network is not None:
        if given("task", "hidden", "activation"):
            raise click.UsageError(
                "--network is the whole model: leave out --task, --hidden and --activation."
            )
        layers = read_network(network)
    objective = partial(_objective, task, layers)
    make = make if layers is None else lambda *_: layers
    if data in datasets.names():
        if any(value is not None for value in of_files.values()):
            raise click.UsageError(
                f"{data} has its own columns: leave out --schema, --target, --vehicle and "
                "--vehicles, which are for files."
            )
        found, _ = datasets.load(data).split(HOLDOUT)
        entries = {"holdout": HOLDOUT}
        goal = objective(lambda: network_goal(found))
        work = Work.on_data_set(found, goal, gateways, rounds, entries, job, make)
    else:
        work = _on_files(data, task != _STATISTICS, objective, rounds, job, make, **of_files)
    settings = Settings(epsilon, survey=survey, survey_share=survey_share)
    written = init(folder, work, settings, gateways, Place(host, port, link_port), cap)
    shown = console(soft_wrap=True)
    shown.print(f"Wrote {folder}: read {folder / 'README.md'}")
    *before, last = written.stages
    if before:
        shown.print(
            f"The job {written.name} first asks {gateways} gateways for {written.survey_reports:,} "
            f"reports about numbers each, in {counted(len(before), 'round')}."
        )
    shown.print(
        f"The job {written.name} asks {gateways} gateways for {written.reports:,} reports each, "
        f"in {counted(last.rounds, 'round')}."
    )


def _objective(task: str, layers: Network | None, of_target: Callable[[], Objective]) -> str | None:
    """Return the name of the objective that is trained, given that of the target; or None."""
    if layers is not None:
        return layers.objective.name
    if task == NETWORK:
        return of_target().name
    return TASKS[task].name if task in TASKS else None


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
    if schema is None or vehicles is None or (target is None) == training:
        raise click.UsageError(
            f"--data must be one of {datasets.listed()}, or a file. For a file, give --schema, "
            "--vehicles and, for a training but not for statistics, --target."
        )
    entries = {} if vehicle is None else {"vehicle": vehicle}
    columns = read_schema(schema)
    goal = objective(lambda: goal_of(columns[cast(str, target)]))
    return Work.on_files(path, columns, target, goal, vehicles, rounds, entries, job, make)


@fleet_group.command("vault")
@click.argument("folder", type=_FOLDER)
@strict_option
@click.option(
    "--check",
    is_flag=True,
    help="Only show what the vault would clip or replace in its data, with exit status 0 if "
    "nothing, 1 otherwise. Nothing is answered or spent.",
)
def vault_command(folder: Path, strict: bool, check: bool) -> None:
    """Answer for the vehicles of a vault, until Ctrl-C or SIGTERM.

    \b
    fedldp fleet vault fleet/vault-1
    fedldp fleet vault fleet/vault-1 --check   look at the data first

    FOLDER contains vault.toml: the data, the cap, how many answers each job
    gets, and where to listen. The ledger beside it is the only record of what
    every vehicle has spent: never delete it, never restore a backup.

    The vault prints why it refuses a question, and tells nobody else. At the
    start it prints how many values are clipped or replaced. It does not need
    Flower.
    """  # noqa: D301 (click wants the character \b itself)
    if not check:
        # In the same process, but without the packages of the command line, which need memory.
        words = [*programs.python("fedldp.fleet.vault", folder), *(["--strict"] if strict else [])]
        os.execv(words[0], words)  # noqa: S606 (words of our own, and no shell)
    quality = VaultConfig.load(folder).check()
    click.echo(str(quality))
    if not quality.clean:
        sys.exit(1)


_require_isolation = click.option(
    "--require-isolation",
    is_flag=True,
    help="Refuse to start if a private network for Flower's processes is not available.",
)


@fleet_group.command("gateway")
@click.argument("folder", type=_FOLDER)
@_require_isolation
@click.option(
    "--uplink",
    type=click.IntRange(1, 65535),
    help="Do not start an uplink: another systemd unit runs it, on this port of the loopback "
    "interface, and on the next ports for vaults on TCP.",
    metavar="PORT",
)
def gateway_command(folder: Path, require_isolation: bool, uplink: int | None) -> None:
    """Run a gateway until Ctrl-C or SIGTERM.

    \b
    fedldp fleet gateway fleet/gateway-1

    FOLDER contains gateway.toml (the server, the vaults) and the key of the
    gateway. It prints nothing: its logs are state/supernode.log and
    state/uplink.log in FOLDER. Run it as another user than its vault: it only
    needs the vault's socket.

    The gateway runs in a private network that other accounts of this machine
    cannot reach. Its uplink, a process outside, connects it with the server and
    accepts only the app that gateway.toml names.
    """  # noqa: D301 (click wants the character \b itself)
    gateway_process.run(folder, uplink=uplink, require_isolation=require_isolation)


@fleet_group.command("uplink")
@click.argument("folder", type=_FOLDER)
def uplink_command(folder: Path) -> None:
    """Connect a gateway with its server, as a systemd unit.

    \b
    fedldp fleet uplink fleet/gateway-1

    You do not need this command without systemd: `fedldp fleet gateway` starts
    an uplink itself. With systemd the uplink is a separate unit, because the
    unit of the gateway has no network: systemd gives the uplink sockets inside
    the private network of the gateway.
    """  # noqa: D301 (click wants the character \b itself)
    from fedldp.fleet.gateway import uplink

    asyncio.run(uplink.run(folder, isolation.inherited()))


@fleet_group.command("server")
@click.argument("folder", type=_FOLDER)
@click.option("--stay", is_flag=True, help="Keep serving gateways after the job is done.")
@_require_isolation
def server_command(folder: Path, stay: bool, require_isolation: bool) -> None:
    """Serve a fleet until the job is done, or until Ctrl-C or SIGTERM.

    \b
    fedldp fleet server fleet/server

    FOLDER contains server.toml and job.toml, which names the file of the
    result. After a crash, start the server again: it resumes the job, and
    repeats the open questions before it asks new ones.

    Flower's processes run in a private network that other accounts of this
    machine cannot reach. If the system does not allow that, a warning says so.

    JOB.summary.json, beside the result, says how many vehicles were asked,
    answered, were silent, and refused or were absent, and whether that is as
    many as planned. The server prints it too. If no vehicle answers, the job
    fails and has no result.

    \b
    Exit status:
    0  the job is done
    1  an error, which is printed: invalid configuration, file in use
    2  invalid command line
    3  the job has failed: starting the server again does not help
    4  a signal stopped the server before the job was done: start it again
    """  # noqa: D301 (click wants the character \b itself)
    try:
        done = server_process.run(
            folder, stay=stay, say=click.echo, require_isolation=require_isolation
        )
    except JobFailed as error:
        click.echo(f"fedldp: {error}", err=True)
        sys.exit(FAILED)
    if not done:
        sys.exit(STOPPED)


@fleet_group.command("stop")
@click.argument("folder", type=_FOLDER)
def stop_command(folder: Path) -> None:
    """Stop everything that runs in a folder and its subfolders.

    \b
    fedldp fleet stop fleet            all parts of a fleet on this machine
    fedldp fleet stop fleet/vault-1    one part

    This also stops processes that were left behind when another process was
    killed. Nothing is lost: when a part is started again, it resumes.
    """  # noqa: D301 (click wants the character \b itself)
    count = processes.stop(folder)
    click.echo(f"Stopped {count} process{'' if count == 1 else 'es'}.")


fleet_group.add_command(demo_command)
