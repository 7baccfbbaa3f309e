"""`fedldp fleet demo`: a whole fleet on this machine, for a minute."""

import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from time import monotonic
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from fedldp import datasets
from fedldp.cli.plans import console
from fedldp.cli.runs import TASKS, base_rate, linear, volume
from fedldp.errors import DomainError
from fedldp.fleet import checkpoint, flower
from fedldp.fleet.checkpoint import Progress
from fedldp.fleet.depot import Depot
from fedldp.fleet.folder import Place, Work, init
from fedldp.fleet.job import Job
from fedldp.fleet.processes import GRACE, STATE, Process, Supervisor, free_port, stop
from fedldp.fleet.server import registered
from fedldp.learn.gradients import Linear
from fedldp.learn.model import Model
from fedldp.learn.settings import Settings
from fedldp.source import source

HOLDOUT = 0.1  # the share that is public, as in `fedldp train`

_TASK = TASKS["logistic"]
_SEEDS = 30
_LOOK = 0.5  # seconds
_PATIENCE = 300.0  # seconds for a round


gateways_option = click.option(
    "--gateways",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="How many there are, each with a vault.",
)


@click.command("demo")
@gateways_option
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="How many the training takes; a vehicle answers in one of them.",
)
@click.option(
    "--epsilon",
    type=float,
    default=4.0,
    show_default=True,
    help="The privacy budget of a vehicle, for all that it sends.",
)
@click.option("--rows", type=click.IntRange(100), help="Only so many flights.  [default: all]")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the fleet's folder here: look around in it.  [default: a temporary one]",
    metavar="FOLDER",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def demo_command(
    gateways: int,
    rounds: int,
    epsilon: float,
    rows: int | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Run a whole fleet on this machine: vaults, gateways and a server.

    \b
    fedldp fleet demo                        all flights, in a minute or two
    fedldp fleet demo --rows 20000           fewer of them
    fedldp fleet demo --gateways 5 -o fleet  more parts, in a folder that stays

    Real processes, with certificates, keys and ledgers, learn which flights
    are late. Then the error stands beside that of 30 simulations, and the
    ledgers are looked through: whether anybody answered twice, or spent more
    than the cap. Everything that was started is stopped, also by Ctrl-C; if
    the demo itself is killed, `fedldp fleet stop FOLDER` does it.
    """  # noqa: D301 (click wants the character \b itself)
    flower.program("flwr")  # refused here, if it is not installed, and not by parts that starve
    flights = datasets.load("flights", rows=rows)
    fleet, public = flights.split(HOLDOUT)
    test, settings = linear(public, _TASK), Settings(epsilon)
    entries: dict[str, Any] = {"holdout": HOLDOUT} | ({} if rows is None else {"rows": rows})
    work = Work.on_data_set(fleet, _TASK.objective, gateways, rounds, entries)
    began = monotonic()
    with _folder(output) as folder:
        click.echo(f"The fleet lives in {folder}", err=True)
        job = init(folder, work, settings, gateways, Place("127.0.0.1", free_port(), free_port()))
        try:
            found = _run(folder, job, gateways)
        finally:
            stop(folder)  # what was left behind by parts that were killed
        seconds = monotonic() - began
        model = Model.from_json(job.result.read_text("utf-8"))
        vaults = [Depot.load(folder / f"vault-{i}") for i in range(1, gateways + 1)]
        document: dict[str, Any] = {
            "gateways": gateways,
            "vehicles": len(fleet),
            "epsilon": epsilon,
            "rounds": found.rounds,
            "ended": found.ended,
            "reports": found.reports,
            "refusals": found.refusals,
            "silent": found.silent,
            "bytes": sum(found.bytes.values()),
            "error": float(test.error(np.array([model.weights]))[0]),
            "base_rate": base_rate(public, _TASK),
            "simulated": _simulated(linear(fleet, _TASK), test, settings, rounds),
            "ledgers": _ledgers(vaults, found.reports),
            "seconds": seconds,
        }
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        console().print(_render(document))
    if document["ledgers"]["answered_twice"] or document["ledgers"]["over_the_cap"]:
        sys.exit(1)


@contextmanager
def _folder(output: Path | None) -> Iterator[Path]:
    """Have a folder: one that stays, or one that goes if all went well."""
    if output is not None:
        yield output
        return
    folder = Path(tempfile.mkdtemp(prefix="fleet-"))
    try:
        yield folder
    except DomainError as error:
        raise DomainError(f"{error} The fleet's folder, with logs, is {folder}.") from error
    shutil.rmtree(folder)


def _run(folder: Path, job: Job, gateways: int) -> Progress:
    """Run a fleet until its job is done, before people's eyes."""
    # The parts are supervisors themselves: they need time to end what they have started.
    with Supervisor(folder / STATE, grace=2 * GRACE) as supervisor, _display() as show:
        for i in range(1, gateways + 1):
            supervisor.start(_part("vault", folder / f"vault-{i}"))
        supervisor.start(_part("server", folder / "server"))
        waiting = [_part("gateway", folder / f"gateway-{i}") for i in range(1, gateways + 1)]
        began = changed = monotonic()
        before = None
        while True:
            if len(registered(folder / "server" / STATE)) == gateways:  # else they are turned away
                while waiting:
                    supervisor.start(waiting.pop())
            found = checkpoint.progress(job.checkpoint)
            show(found, job, monotonic() - began)
            if found != before:
                before, changed = found, monotonic()
            if monotonic() - changed > _PATIENCE:
                raise DomainError(f"nothing has come for {_PATIENCE:g} seconds.")
            if found is not None and found.failed:
                raise DomainError(f"the job has failed: {found.ended}")
            if found is not None and found.ended:
                return found
            if not supervisor.wait(_LOOK):
                raise click.Abort


def _part(kind: str, folder: Path) -> Process:
    """Return how to run a part of a fleet: the server ends when the job is done."""
    argv = sys.executable, "-m", "fedldp", "fleet", kind, str(folder)
    return Process(folder.name, argv, restart="on-failure" if kind == "server" else "always")


@contextmanager
def _display() -> Iterator[Callable[[Progress | None, Job, float], None]]:
    """Show how far a job is: a table that changes or, without a terminal, a line each round."""
    screen = Console(stderr=True, highlight=False)
    if screen.is_terminal:
        with Live(console=screen, transient=True) as live:
            yield lambda found, job, seconds: live.update(_progress(found, job, seconds))
        return
    told = [-1]

    def tell(found: Progress | None, job: Job, seconds: float) -> None:
        rounds = 0 if found is None else found.rounds
        if rounds > told[0]:
            told[0] = rounds
            screen.print(_line(found, job, seconds), soft_wrap=True)

    yield tell


def _line(found: Progress | None, job: Job, seconds: float) -> str:
    if found is None:
        return "Vaults, gateways and the server are starting."
    return (
        f"{seconds:3.0f} s, round {found.rounds} of {job.rounds}: {found.reports:,} reports, "
        f"{volume(sum(found.bytes.values()))}, {found.refusals:,} refusals, {found.silent:,} silent"
    )


def _progress(found: Progress | None, job: Job, seconds: float) -> Table:
    shown = Table(title=f"The job {job.name}, {seconds:.0f} s", show_header=False)
    if found is None:
        shown.add_row("starting: vaults, gateways, the server")
        return shown
    shown.add_row("rounds", f"{found.rounds} of {job.rounds}")
    shown.add_row("this round", f"{found.received} of {found.asked} gateways have answered")
    shown.add_row("reports", f"{found.reports:,}")
    shown.add_row("refusals", f"{found.refusals:,}")
    shown.add_row("silent", f"{found.silent:,}")
    for gateway, count in found.bytes.items():
        shown.add_row(f"from {gateway}", volume(count))
    return shown


def _simulated(fleet: Linear, public: Linear, settings: Settings, rounds: int) -> dict[str, Any]:
    """Return what the simulator makes of the same fleet in as many rounds, with several seeds."""
    group = -(-len(fleet) // rounds)
    errors = []
    for seed in range(_SEEDS):
        chance = source(seed)
        training = replace(settings, group=group).training(fleet, fleet.objective.distance, chance)
        for _ in training:
            pass
        errors.append(float(public.error(training.models)[0]))
    return {
        "seeds": _SEEDS,
        "error": float(np.mean(errors)),
        "spread": float(np.std(errors, ddof=1)),
    }


def _ledgers(vaults: list[Depot], counted: int) -> dict[str, Any]:
    """Return what the ledgers prove: who answered how often, who spent how much.

    A vehicle that answered two requests, or spent more than its cap, would be counted here.
    """
    burnt, twice, over, most = 0, 0, 0, Fraction()
    for vault in vaults:
        with vault.ledger() as ledger:
            answers = Counter(spending.key for spending in ledger.history())
            totals = ledger.totals().values()
        burnt += answers.total()
        twice += sum(count > 1 for count in answers.values())
        over += sum(total > vault.cap for total in totals)
        most = max(most, *totals) if totals else most
    return {
        "burnt": burnt,
        "burnt_and_not_received": burnt - counted,
        "answered_twice": twice,
        "over_the_cap": over,
        "most_spent": float(most),
    }


def _render(document: dict[str, Any]) -> Table:
    """Return what came of it, for people."""
    simulated, ledgers = document["simulated"], document["ledgers"]
    rendered = Table(title=f"Late or not? {document['gateways']} gateways", show_header=False)
    rendered.add_column(no_wrap=True)
    rendered.add_column(overflow="fold")
    spread = f"{simulated['error']:.2%}, standard deviation {simulated['spread']:.2%}"
    for row in (
        ("error on the hold-out", f"{document['error']:.2%}"),
        (f"in {simulated['seeds']} simulations", spread),
        ("base rate", f"{document['base_rate']:.2%}"),
        ("vehicles", f"{document['vehicles']:,}"),
        ("epsilon of a vehicle", f"{document['epsilon']:g}"),
        ("rounds", f"{document['rounds']}: {document['ended']}"),
        ("reports counted", f"{document['reports']:,}"),
        ("received in all", volume(document["bytes"])),
        ("not there, or would not answer", f"{document['refusals']:,}"),
        ("did not answer in time", f"{document['silent']:,}"),
        ("seconds", f"{document['seconds']:.0f}"),
        ("reports in the ledgers", f"{ledgers['burnt']:,}"),
        ("burnt and not received", f"{ledgers['burnt_and_not_received']:,}"),
        ("vehicles that answered twice", f"{ledgers['answered_twice']:,}"),
        ("vehicles over their cap", f"{ledgers['over_the_cap']:,}"),
        ("most that anyone has spent", f"{ledgers['most_spent']:g}"),
    ):
        rendered.add_row(*row)
    return rendered
