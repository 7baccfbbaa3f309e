"""`fedldp ledger`: what the owner of a ledger can do if it is damaged."""

from pathlib import Path

import click

from fedldp import ledger as ledgers


@click.group("ledger")
def ledger_group() -> None:
    """Repair the file that records what was spent.

    \b
    fedldp ledger seal ledger.db   if the file is damaged: refuse everybody

    The ledger records what each vehicle has spent of its privacy budget. A
    vault and `fedldp report` write to it. Never delete it, and never restore a
    backup of it: that would forget what was spent since.
    """  # noqa: D301 (click wants the character \b itself)


@ledger_group.command("seal")
@click.argument("ledger", type=click.Path(path_type=Path, dir_okay=False))
def seal_command(ledger: Path) -> None:
    """Replace a damaged or lost ledger by one that refuses everybody.

    \b
    fedldp ledger seal fleet/vault-1/ledger.db

    It is no longer known what these vehicles have spent, so they may never
    spend anything again: a vault with this ledger answers no question. The old
    file is moved, unchanged, into a folder beside it, together with its -wal
    and -shm files. Stop the vault first.
    """  # noqa: D301 (click wants the character \b itself)
    aside = ledgers.seal(ledger)
    moved = f"There was no file {ledger}." if aside is None else f"Moved {ledger} into {aside}."
    click.echo(f"{moved} Wrote a sealed ledger to {ledger}: it refuses every vehicle.")
