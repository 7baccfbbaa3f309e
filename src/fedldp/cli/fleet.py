"""`fedldp fleet`: a server, gateways and vaults as processes of one machine, or of many."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import click

from fedldp import datasets
from fedldp.cli.fleet_demo import HOLDOUT, cap_option, demo_command, gateways_option
from fedldp.cli.options import declared
from fedldp.cli.plans import INPUT, console, read_schema, strict_option
from fedldp.cli.runs import TASKS
from fedldp.fleet import isolation, processes
from fedldp.fleet.flower import programs
from fedldp.fleet.folder import LINK, PORT, Place, Work, init
from fedldp.fleet.gateway import process as gateway_process
from fedldp.fleet.server import process as server_process
from fedldp.fleet.server.watch import JobFailed
from fedldp.fleet.vault.process import VaultConfig
from fedldp.learn.settings import Settings

FAILED = 3  # the exit status for a job without a result: the unit for systemd names it, too

_STATISTICS = "statistics"
_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


@click.group("fleet")
def fleet_group() -> None:
    """Run a fleet in earnest: vaults, gateways and a server.

    \b
    fedldp fleet demo                    all of it on this machine, in minutes
    fedldp fleet init fleet              as files; then, each on its machine:
    fedldp fleet vault fleet/vault-1
    fedldp fleet gateway fleet/gateway-1
    fedldp fleet server fleet/server
    fedldp fleet stop fleet              end what runs of it on this machine

    A vault is a vehicle's own process, or that of many: it holds the data, the
    cap and the ledger, and answers with noisy reports alone. A gateway passes
    questions and reports on; it is a node of Flower. The server asks, counts
    the reports and, in a training, improves the model with them.

    Needs Linux and the extras cli and flower: in a clone of fedldp,
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
    help="The name or address by which gateways reach the server.",
    metavar="HOST",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=PORT,
    show_default=True,
    help="The server's port for gateways: open this one.",
)
@click.option(
    "--link-port",
    type=click.IntRange(1, 65535),
    default=LINK,
    show_default=True,
    help="The server's port for its own processes: keep it closed to others.",
)
@click.option(
    "--job", help="What the job is called, in all ledgers too.  [default: the name of the data]"
)
@click.option(
    "--task",
    type=click.Choice([*TASKS, _STATISTICS]),
    default="logistic",
    show_default=True,
    help="A training, or the means and frequencies of all columns, in one round.",
)
@declared(Settings, "epsilon", type=float, default=4.0, help="What a vehicle spends on the job.")
@cap_option
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="How many a training takes at the most; a vehicle answers in one of them.",
)
@click.option(
    "--data",
    default="flights",
    show_default=True,
    help="A data set to divide among the vaults, or the file that each has in its folder.",
    metavar="NAME|FILE",
)
@click.option(
    "--schema",
    type=INPUT,
    help="The columns of the files (TOML); `fedldp schema` drafts it.",
    metavar="FILE",
)
@click.option("--target", help="The column of the files to predict.", metavar="COLUMN")
@click.option("--vehicle", help="Whose row it is, if a vehicle has several.", metavar="COLUMN")
@click.option("--vehicles", type=click.IntRange(1), help="How many are expected in each file.")
def init_command(
    folder: Path,
    gateways: int,
    host: str,
    port: int,
    link_port: int,
    job: str | None,
    task: str,
    epsilon: float,
    cap: float | None,
    rounds: int,
    data: str,
    **of_files: Any,
) -> None:
    """Write the folder of a fleet: configuration, keys and a README.

    \b
    fedldp fleet init fleet                     flights, on this machine
    fedldp fleet init fleet --task statistics   their means and frequencies
    fedldp fleet init fleet --epsilon 2 --server fleet.example.org \\
      --data rows.csv --schema rows.toml --target sold --vehicles 20000

    Each folder in it belongs on a machine of its own; the README in it says
    what to do, and there are units for systemd. The bounds of the schema are
    public, and so is the number of vehicles: the server asks for a part of them
    in each round.
    """  # noqa: D301 (click wants the character \b itself)
    objective = TASKS[task].name if task in TASKS else None
    if data in datasets.names():
        if any(value is not None for value in of_files.values()):
            raise click.UsageError(f"{data} brings its own columns: leave out what is for files.")
        found, _ = datasets.load(data).split(HOLDOUT)
        entries = {"holdout": HOLDOUT}
        work = Work.on_data_set(found, objective, gateways, rounds, entries, job)
    else:
        work = _on_files(data, objective, rounds, job, **of_files)
    written = init(folder, work, Settings(epsilon), gateways, Place(host, port, link_port), cap)
    shown = console(soft_wrap=True)
    shown.print(f"Wrote {folder}: read {folder / 'README.md'}")
    shown.print(
        f"The job {written.name} asks {gateways} gateways for {written.reports:,} reports each, "
        f"in {written.rounds} round{'' if written.rounds == 1 else 's'}."
    )


def _on_files(
    path: str,
    objective: str | None,
    rounds: int,
    job: str | None,
    *,
    schema: Path | None,
    target: str | None,
    vehicle: str | None,
    vehicles: int | None,
) -> Work:
    if schema is None or vehicles is None or (target is None) == (objective is not None):
        raise click.UsageError(
            f"--data must be one of {datasets.listed()}, or a file: then give a "
            "--schema, how many --vehicles are in it and, for a training but not for statistics, "
            "a --target."
        )
    entries = {} if vehicle is None else {"vehicle": vehicle}
    columns = read_schema(schema)
    return Work.on_files(path, columns, target, objective, vehicles, rounds, entries, job)


@fleet_group.command("vault")
@click.argument("folder", type=_FOLDER)
@strict_option
@click.option(
    "--check",
    is_flag=True,
    help="Only say what the vault clips or replaces in its data: status 0 if nothing, 1 if "
    "something. Nothing is answered or spent.",
)
def vault_command(folder: Path, strict: bool, check: bool) -> None:
    """Answer for the vehicles of a vault, until Ctrl-C or SIGTERM.

    \b
    fedldp fleet vault fleet/vault-1
    fedldp fleet vault fleet/vault-1 --check   look at the data first

    FOLDER holds vault.toml: which data, which cap, how many answers per job,
    where to listen. The ledger beside it alone knows what every vehicle has
    spent: never delete it, never restore a backup. Why something was refused is
    told here, and to nobody else. So are, at the start, the numbers of values
    that are clipped or replaced. A vault needs no Flower.
    """  # noqa: D301 (click wants the character \b itself)
    if not check:
        # In the same process, but without the packages of the command line: they take much memory.
        words = [*programs.python("fedldp.fleet.vault", folder), *(["--strict"] if strict else [])]
        os.execv(words[0], words)  # noqa: S606 (words of our own, and no shell)
    quality = VaultConfig.load(folder).check()
    click.echo(str(quality))
    if not quality.clean:
        sys.exit(1)


_require_isolation = click.option(
    "--require-isolation",
    is_flag=True,
    help="Refuse to start where a private network for Flower's processes is not available.",
)


@fleet_group.command("gateway")
@click.argument("folder", type=_FOLDER)
@_require_isolation
@click.option(
    "--uplink",
    type=click.IntRange(1, 65535),
    help="Start no uplink: another unit of systemd runs it, for this port of the loopback "
    "interface, and the following ones for vaults on TCP.",
    metavar="PORT",
)
def gateway_command(folder: Path, require_isolation: bool, uplink: int | None) -> None:
    """Keep a gateway at work, until Ctrl-C or SIGTERM.

    \b
    fedldp fleet gateway fleet/gateway-1

    FOLDER holds gateway.toml (the server, the vaults) and the key of the
    gateway. It says nothing here: its logs are state/supernode.log and
    state/uplink.log in FOLDER. Let it be another user than that of its vault,
    of which it needs the socket only.

    The gateway runs in a private network, which other accounts of this machine
    do not reach. Its uplink, a process outside, connects it with the server and
    lets no app in but the one that gateway.toml names.
    """  # noqa: D301 (click wants the character \b itself)
    gateway_process.run(folder, uplink=uplink, require_isolation=require_isolation)


@fleet_group.command("uplink")
@click.argument("folder", type=_FOLDER)
def uplink_command(folder: Path) -> None:
    """Connect a gateway with its server, as a unit of systemd.

    \b
    fedldp fleet uplink fleet/gateway-1

    `fedldp fleet gateway` starts an uplink by itself. With systemd it is a unit
    of its own, as the gateway's unit has no network: systemd hands the uplink
    sockets that lie in the private network of the gateway.
    """  # noqa: D301 (click wants the character \b itself)
    from fedldp.fleet.gateway import uplink

    asyncio.run(uplink.run(folder, isolation.inherited()))


@fleet_group.command("server")
@click.argument("folder", type=_FOLDER)
@click.option("--stay", is_flag=True, help="Keep serving gateways when the job is done.")
@_require_isolation
def server_command(folder: Path, stay: bool, require_isolation: bool) -> None:
    """Serve a fleet until the job is done, or until Ctrl-C or SIGTERM.

    \b
    fedldp fleet server fleet/server

    FOLDER holds server.toml and job.toml, which names the file of the result.
    Started again after whatever has happened, it goes on where it stood: nobody
    is asked anything new before what was asked is answered.

    Flower's processes run in a private network, which other accounts of this
    machine do not reach. Where the system allows none, a warning says so.

    Beside the result, JOB.summary.json says how many vehicles were asked, how
    many answered, were silent, and refused or were absent, and whether that is
    as many as planned. It says so here, too. A job in which nobody answered has
    failed: it has no result.

    \b
    Exit status:
    0  the job is done, or the server was told to stop
    1  an error, which is shown: a wrong configuration, a file in use
    2  a wrong command line
    3  the job has failed: starting the server again does not help
    """  # noqa: D301 (click wants the character \b itself)
    try:
        server_process.run(folder, stay=stay, say=click.echo, require_isolation=require_isolation)
    except JobFailed as error:
        click.echo(f"fedldp: {error}", err=True)
        sys.exit(FAILED)


@fleet_group.command("stop")
@click.argument("folder", type=_FOLDER)
def stop_command(folder: Path) -> None:
    """End whatever runs in a folder, and in the folders in it.

    \b
    fedldp fleet stop fleet            all of a fleet on this machine
    fedldp fleet stop fleet/vault-1    a part of it

    That is for what was left behind when a supervisor was killed, too. Nothing
    is lost by it: started again, each part goes on where it stood.
    """  # noqa: D301 (click wants the character \b itself)
    count = processes.stop(folder)
    click.echo(f"Ended {count} process{'' if count == 1 else 'es'}.")


fleet_group.add_command(demo_command)
