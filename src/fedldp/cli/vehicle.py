"""`fedldp vehicle`: answer campaigns over MQTT, as one vehicle."""

import sys
from pathlib import Path

import click

from fedldp import vehicle
from fedldp._internal import owner
from fedldp.campaigns.config import VehicleConfig, until_stopped
from fedldp.cli.fleet.parts import FOLDER, log_options

# Exit statuses, which depend on the network alone.
NOT_ACKNOWLEDGED = 3
NOT_REACHED = 4


@click.command("vehicle")
@click.argument("folder", type=FOLDER)
@click.option(
    "--once",
    is_flag=True,
    help="Look for campaigns and send answers once, then exit: for a vehicle that wakes up.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Only show what would be clipped or replaced in the data, with exit status 0 if nothing, "
    "1 otherwise. Nothing is answered or spent.",
)
@log_options
def vehicle_command(folder: Path, once: bool, check: bool) -> None:
    """Answer the campaigns of a fleet over MQTT, as one vehicle.

    \b
    fedldp vehicle car-7             until Ctrl-C or SIGTERM
    fedldp vehicle car-7 --once      one visit to the broker
    fedldp vehicle car-7 --check     check the data first

    FOLDER contains vehicle.toml: the broker, the operator's public key, the
    data, and the cap. The ledger beside it is the only record of what the
    vehicle has spent: never delete it, never restore a backup.

    The vehicle answers only campaigns that the operator has signed, each job
    once, and keeps sending the same bytes until a counter has acknowledged
    them or the deadline has passed. If it does not answer, it prints why;
    nobody else is told. If the data cannot be read, it prints that and answers
    with public values, as data must not decide whether a vehicle answers.

    \b
    Exit status:
    0  stopped by a signal; with --once: all answers are acknowledged
    1  an error, which is printed; with --check: some values are replaced
    2  invalid command line
    3  with --once: an answer is not acknowledged yet; run it again later
    4  with --once: the broker could not be reached; run it again later
    """  # noqa: D301 (click wants the character \b itself)
    owner.protect_process()
    config = VehicleConfig.load(folder)
    if check:
        quality = config.check()
        click.echo(str(quality))
        sys.exit(0 if quality.clean else 1)
    with until_stopped() as stop, config.agent() as agent:
        if not once:
            agent.run(*stop)
            return
        visit = agent.visit()
    if not visit.reached:
        vehicle.warn_owner("fedldp: the broker could not be reached.")
        sys.exit(NOT_REACHED)
    if visit.pending:
        vehicle.warn_owner("fedldp: an answer is not acknowledged yet.")
        sys.exit(NOT_ACKNOWLEDGED)
