"""`fedldp fleet demo`: a whole fleet on this machine, for a minute or two."""

import json
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import click
import numpy as np
from rich.table import Table

from fedldp import datasets
from fedldp._internal.text import counted
from fedldp.cli.plans import console
from fedldp.cli.runs import (
    NETWORK,
    TASKS,
    architecture,
    as_scaled,
    base_rate,
    measured,
    network_goal,
    network_options,
    note_clipping,
    shown_error,
    supervised,
    title_of,
    volume,
)
from fedldp.cli.status import Status
from fedldp.errors import DomainError
from fedldp.fleet.flower import programs
from fedldp.fleet.folder import SEED, Place, Work, init
from fedldp.fleet.job import Job
from fedldp.fleet.monitor.address import MonitorAddress
from fedldp.fleet.monitor.process import site
from fedldp.fleet.monitor.web import serving
from fedldp.fleet.processes import GRACE, Process, Supervisor, free_port, stop
from fedldp.fleet.server import checkpoint, names
from fedldp.fleet.server.checkpoint import JobStatus
from fedldp.fleet.server.registrations import registered
from fedldp.fleet.server.summary import Summary
from fedldp.fleet.server.watch import JobFailed, Watch, ending
from fedldp.fleet.state import STATE
from fedldp.fleet.vault.process import VaultConfig
from fedldp.learn.model import Model
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Supervised
from fedldp.randomness import source
from fedldp.schema.attributes import Attribute

HOLDOUT = 0.1  # the share that is public, as in `fedldp train`

_SEEDS = 30
_LOOK = 0.5  # seconds
_PATIENCE = 300.0  # seconds for a round
_TAIL = 20  # lines of a log that are shown


gateways_option = click.option(
    "--gateways",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="The number of gateways, each with a vault.",
)


cap_option = click.option(
    "--cap",
    type=float,
    help="The most that a vehicle may spend in its life, over all jobs.  [default: epsilon]",
)


@click.command("demo")
@click.option(
    "--task",
    type=click.Choice([*TASKS, NETWORK]),
    default="logistic",
    show_default=True,
    help="The kind of model, as in `fedldp train`.",
)
@network_options
@gateways_option
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="The rounds of the training in which vehicles answer gradients; a survey comes before.",
)
@click.option(
    "--epsilon",
    type=float,
    default=4.0,
    show_default=True,
    help="The privacy budget of a vehicle, for everything that it sends.",
)
@cap_option
@click.option(
    "--rows", type=click.IntRange(100), help="Use only this many flights.  [default: all]"
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the fleet to this folder and keep it.  [default: a temporary folder]",
    metavar="FOLDER",
)
@click.option(
    "--page",
    is_flag=True,
    help="Show the job on a live page, and keep it up after the job until Ctrl-C.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def demo_command(
    task: str,
    hidden: tuple[int, ...],
    activation: str,
    gateways: int,
    rounds: int,
    epsilon: float,
    cap: float | None,
    rows: int | None,
    output: Path | None,
    page: bool,
    as_json: bool,
) -> None:
    """Run a whole fleet on this machine, for a minute or two.

    \b
    fedldp fleet demo                         all flights, in a minute or two
    fedldp fleet demo --rows 20000            fewer flights
    fedldp fleet demo --gateways 5 -o fleet   more gateways; keep the folder
    fedldp fleet demo --task mlp --rounds 50  a network with a hidden layer
    fedldp fleet demo --page                  watch it in a browser

    Real processes, with certificates, keys and ledgers, train a model of which
    flights are late, or how late (linear). The demo compares its error with that of 30 simulations.
    Then it reads the ledgers, and checks that no vehicle answered twice or
    spent more than its cap.

    Progress is shown on standard error. At the end, or after Ctrl-C, all
    processes are stopped; if the demo itself is killed, `fedldp fleet stop
    FOLDER` stops them. The exit status is 1 if the server fails or a ledger
    fails its check.
    """  # noqa: D301 (click wants the character \b itself)
    make = architecture(task, hidden, activation)
    programs.program("flwr")  # fails here if Flower is missing, and not later in its parts
    with Status() as status, _folder(output, status) as folder, ExitStack() as stack:
        status.stage("Reading the flights")
        flights = replace(datasets.load("flights", rows=rows), reference=Settings.reference)
        note_clipping(flights, status.note)
        fleet, public = flights.split(HOLDOUT)
        goal = network_goal(flights) if task == NETWORK else TASKS[task]
        test, settings = supervised(public, goal, make, SEED), Settings(epsilon)
        entries: dict[str, Any] = {"holdout": HOLDOUT} | ({} if rows is None else {"rows": rows})
        work = Work.on_data_set(fleet, goal.name, gateways, rounds, entries, network=make)
        began = monotonic()
        status.stage("Writing the fleet's folder: a plan, keys, certificates")
        place = Place("127.0.0.1", free_port(), free_port(), None)
        job = init(folder, work, settings, gateways, place, cap)
        address = stack.enter_context(_page(folder / "server")) if page else ""
        if address:
            status.note(f"The live page is {address}")
        try:
            found = _run(folder, job, gateways, status)
        finally:
            stop(folder)  # what was left behind by parts that were killed
        seconds = monotonic() - began
        simulated = _simulated(supervised(fleet, goal, make, SEED), test, settings, rounds, status)
        status.stage("Reading the ledgers")
        model = Model.from_json(job.result.read_text("utf-8"))
        vaults = [VaultConfig.load(folder / f"vault-{i}") for i in range(1, gateways + 1)]
        counts = Summary.load(job.summary).rounds
        document: dict[str, Any] = {
            "task": task,
            "weights": model.dimensions,
            "gateways": gateways,
            "vehicles": len(fleet),
            "epsilon": epsilon,
            "rounds": found.rounds,
            "ended": found.ended,
            "planned": job.expected,
            "asked": found.total.asked,
            "reports": found.reports,
            "refusals": found.refusals,
            "silent": found.silent,
            "bytes": sum(found.bytes.values()),
            "surveyed": sum(each.reports for each in counts[: len(job.stages) - 1]),
            "error": float(as_scaled(test, model.scaling).error(np.array([model.weights]))[0]),
            "base_rate": base_rate(public, goal),
            "simulated": simulated,
            "ledgers": _ledgers(vaults, found.reports),
            "seconds": seconds,
        }
        title = f"{title_of(task, goal)} of {model.target.name}: {counted(gateways, 'gateway')}"
        rendered = _render(title, document, model.target)
        if address:
            status.show(rendered)
            _keep(status, address)
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        console().print(rendered)
    if document["ledgers"]["answered_twice"] or document["ledgers"]["over_the_cap"]:
        sys.exit(1)


@contextmanager
def _folder(output: Path | None, status: Status) -> Iterator[Path]:
    """Provide the folder of the fleet: a temporary one is deleted unless something fails."""
    folder = Path(tempfile.mkdtemp(prefix="fleet-")) if output is None else output
    status.note(f"The fleet's folder is {folder}")
    try:
        yield folder
    except BaseException:
        status.note(f"The fleet's folder is kept. Logs: {folder}/*/state and {folder}/state")
        raise
    if output is None:
        shutil.rmtree(folder)


@contextmanager
def _page(folder: Path) -> Iterator[str]:
    """Serve the live page of a server from this process, at a free port."""
    address = MonitorAddress("127.0.0.1", free_port())
    with serving(site(folder, address), address.listen()):
        yield address.url


def _keep(status: Status, address: str) -> None:
    """Wait until Ctrl-C."""
    status.note(f"Done. The live page stays at {address} until Ctrl-C.")
    status.update("")
    with suppress(KeyboardInterrupt):
        threading.Event().wait()


def _run(folder: Path, job: Job, gateways: int, status: Status) -> JobStatus:
    """Run a fleet until its job is done, and show what it does."""
    logs = folder / "server" / STATE
    status.stage(f"Starting {gateways} vaults and the server")
    # The parts are supervisors themselves: they need time to stop what they have started.
    with Supervisor(folder / STATE, grace=2 * GRACE) as supervisor, ExitStack() as stack:
        stack.callback(status.stage, "Stopping all processes")
        stack.callback(status.show, None)
        numbers = range(1, gateways + 1)
        started = [_part("vault", folder / f"vault-{i}") for i in numbers]
        started.append(server := _part("server", folder / "server"))
        for part in started:
            supervisor.start(part)
        later = [_part("gateway", folder / f"gateway-{i}") for i in numbers]
        called = names.lookup(logs)
        watch, before, changed = Watch(job, status.stage, inf, name=called), None, monotonic()
        pids: dict[str, int] = {}
        while True:
            known = len(registered(logs))
            if later and known == gateways:  # before that they are turned away
                status.stage(f"Starting {gateways} gateways, which connect to the server")
                for part in later:
                    supervisor.start(part)
                started, later, changed = started + later, [], monotonic()
            ended = supervisor.status(server.name)  # first: the checkpoint is complete by then
            found = checkpoint.status(job.checkpoint)
            if later:
                status.update(f"Starting the server: {known} of {gateways} gateways are registered")
            else:
                watch.look(found)
                status.update(watch.text)
            if found != before:
                before, changed = found, monotonic()
            if found is not None:
                status.show(_table(found, job, called))
                if found.ended:
                    break
            if ended is not None:
                log = supervisor.log(server)
                raise DomainError(f"the server ended with status {ended}.\n{_tail(log)}")
            if monotonic() - changed > _PATIENCE:
                raise DomainError(f"nothing has happened for {_PATIENCE:g} seconds: {status.text}")
            now = {part.name: supervisor.pid(part.name) for part in started}
            for name in (name for name, pid in pids.items() if now[name] != pid):
                status.note(f"{name} died and was started again: see {folder / STATE / name}.log")
            pids = now
            if not supervisor.wait(_LOOK):
                raise click.Abort
    if found.failed:
        raise JobFailed(ending(found, job, logs))
    status.note(ending(found, job, logs))
    return found


def _part(kind: str, folder: Path) -> Process:
    """Return how to run a part of a fleet. If the server fails, the demo fails."""
    argv = programs.python("fedldp", "fleet", kind, folder)
    return Process(folder.name, argv, restart="no" if kind == "server" else "always")


def _tail(log: Path) -> str:
    """Return the end of a log."""
    lines = log.read_text("utf-8", errors="replace").splitlines()
    return "\n".join([f"The end of {log}:", *lines[-_TAIL:]])


def _table(found: JobStatus, job: Job, name: names.Name) -> Table:
    shown = Table(title=f"The job {job.name}", show_header=False)
    shown.add_row("rounds", f"{found.rounds} of {job.rounds}")
    shown.add_row("this round", f"{found.received} of {found.asked} gateways have answered")
    shown.add_row("reports", f"{found.reports:,} of {job.expected:,}")
    shown.add_row("refused or absent", f"{found.refusals:,}")
    shown.add_row("silent", f"{found.silent:,}")
    for gateway, count in found.bytes.items():
        shown.add_row(f"from {name(gateway)}", volume(count))
    return shown


def _simulated(
    fleet: Supervised, public: Supervised, settings: Settings, rounds: int, status: Status
) -> dict[str, Any]:
    """Return the error of simulations of the same training, with several seeds."""
    group = -(-settings.asked_for_gradients(fleet) // rounds)
    errors = []
    status.stage(f"Simulating the same training {_SEEDS} times, to compare")
    for seed in range(_SEEDS):
        status.update(f"Simulating the same training: {seed} of {_SEEDS} are done")
        training = replace(settings, group=group).training(fleet, fleet.distance, source(seed))
        for _ in training:
            pass
        errors.append(float(measured(public, training)[0]))
    return {
        "seeds": _SEEDS,
        "error": float(np.mean(errors)),
        "spread": float(np.std(errors, ddof=1)),
    }


def _ledgers(vaults: list[VaultConfig], counted: int) -> dict[str, Any]:
    """Return what the ledgers prove: how often vehicles answered, and how much they spent.

    Vehicles that answered a job twice, or spent more than their cap, would be counted here.
    """
    recorded, twice, over, most = 0, 0, 0, Fraction()
    for vault in vaults:
        with vault.ledger() as ledger:
            answers = Counter((spending.vehicle_id, spending.job) for spending in ledger.history())
            totals = ledger.totals().values()
        recorded += answers.total()
        twice += sum(count > 1 for count in answers.values())
        over += sum(total > vault.cap for total in totals)
        most = max(most, *totals) if totals else most
    return {
        "burnt": recorded,
        "burnt_and_not_received": recorded - counted,
        "answered_twice": twice,
        "over_the_cap": over,
        "most_spent": float(most),
    }


def _render(title: str, document: dict[str, Any], target: Attribute) -> Table:
    """Return the result as a table."""
    simulated, ledgers = document["simulated"], document["ledgers"]
    rendered = Table(title=title, show_header=False)
    rendered.add_column(no_wrap=True)
    rendered.add_column(overflow="fold")
    deviation = f"{simulated['spread']:{'.2%' if target.feature_labels else '.2g'}}"
    spread = f"{shown_error(simulated['error'], target)}, standard deviation {deviation}"
    for row in (
        ("error on the hold-out", shown_error(document["error"], target)),
        (f"in {simulated['seeds']} simulations", spread),
        ("base rate", shown_error(document["base_rate"], target)),
        ("weights of the model", f"{document['weights']:,}"),
        ("vehicles", f"{document['vehicles']:,}"),
        ("epsilon of a vehicle", f"{document['epsilon']:g}"),
        ("rounds", f"{document['rounds']}: {document['ended']}"),
        ("reports counted", f"{document['reports']:,} of {document['planned']:,} planned"),
        ("of them, about numbers", f"{document['surveyed']:,}: a survey before the training"),
        ("received in all", volume(document["bytes"])),
        ("vehicles asked", f"{document['asked']:,}"),
        ("refused or absent", f"{document['refusals']:,}"),
        ("silent", f"{document['silent']:,}"),
        ("seconds", f"{document['seconds']:.0f}"),
        ("reports in the ledgers", f"{ledgers['burnt']:,}"),
        ("spent but not received", f"{ledgers['burnt_and_not_received']:,}"),
        ("vehicles that answered twice", f"{ledgers['answered_twice']:,}"),
        ("vehicles over their cap", f"{ledgers['over_the_cap']:,}"),
        ("most that a vehicle spent", f"{ledgers['most_spent']:g}"),
    ):
        rendered.add_row(*row)
    return rendered
