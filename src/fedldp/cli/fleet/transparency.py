"""`fedldp fleet transparency`: what a vault was asked, for owners to compare."""

import json
import sys
from pathlib import Path

import click
from rich.table import Table

from fedldp._internal.text import counted
from fedldp.cli.fleet.parts import FOLDER
from fedldp.cli.plans import INPUT, console
from fedldp.errors import DomainError, FedLDPError
from fedldp.fleet.transparency import Asked, Transparency
from fedldp.fleet.vault.process import VaultConfig

_SHORT = 16  # characters of a hash in the table


@click.command("transparency")
@click.argument("folder", type=FOLDER)
@click.option("--job", help="Only the questions of this job.", metavar="NAME")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, which --compare reads.")
@click.option(
    "--compare",
    type=INPUT,
    help="Show what differs from another vault, whose owner has sent what --json printed. The exit "
    "status is 1 if anything does.",
    metavar="FILE",
)
def transparency_command(
    folder: Path, job: str | None, as_json: bool, compare: Path | None
) -> None:
    """Show what a vault was asked, so that owners can compare.

    \b
    fedldp fleet transparency fleet/vault-1
    fedldp fleet transparency fleet/vault-1 --json > mine.json
    fedldp fleet transparency fleet/vault-1 --compare theirs.json

    A vault keeps a hash chain of the questions that it was asked: job, round,
    and the SHA-256 of plan and model. Two vaults with the same head were asked
    the same in the same order. Owners compare their heads by telephone or mail:
    if they differ, the server has asked them differently, or one of them was
    not reached in some round. The head of each job is shown too, because two
    jobs that run at the same time may reach vaults in different orders.

    Without the operator's public key in vault.toml, questions that nobody
    answered are not in the chain. Refused questions are in a list of their own,
    which holds at most a thousand. The output contains nothing about vehicles.
    """  # noqa: D301 (click wants the character \b itself)
    found = Transparency.read(VaultConfig.load(folder).ledger_path)
    found = found if job is None else found.of_job(job)
    if compare is not None:
        other = _read(compare)
        _compare(found, other if job is None else other.of_job(job), compare)
    elif as_json:
        click.echo(json.dumps(found.to_document(), indent=2))
    else:
        _show(found)


def _read(path: Path) -> Transparency:
    try:
        return Transparency.from_json(path.read_text("utf-8"))
    except (FedLDPError, UnicodeDecodeError) as error:
        raise DomainError(f"{path}: {error}") from None


def _compare(mine: Transparency, theirs: Transparency, path: Path) -> None:
    differences = mine.differences(theirs)
    if not differences:
        click.echo(f"The same {counted(len(mine.asked), 'question')}. Head: {mine.head}")
        return
    click.echo(f"This vault and {path.name} were asked differently:")
    for each in differences:
        click.echo(f"  {each}")
    sys.exit(1)


def _show(found: Transparency) -> None:
    shown = console()
    table = Table("job", "round", "plan", "model", title=counted(len(found.asked), "question"))
    for each in found.asked:
        table.add_row(*_cells(each))
    shown.print(table)
    for job in found.jobs:
        some = found.of_job(job)
        click.echo(f"{job}: {counted(len(some.asked), 'question')}, head {some.head}")
    click.echo(f"All: {counted(len(found.asked), 'question')}, head {found.head}")
    if found.refused:
        table = Table("job", "round", "plan", "model", title="Refused, and not in the chain")
        for each in found.refused:
            table.add_row(*_cells(each))
        shown.print(table)
        if found.is_full:
            click.echo("The list is full: further questions were refused and are not listed.")


def _cells(asked: Asked) -> tuple[str, str, str, str]:
    return asked.job, str(asked.round), asked.plan[:_SHORT], asked.model[:_SHORT] or "none: rows"
