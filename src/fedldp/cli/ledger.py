"""`fedldp ledger`: what an owner can do about a ledger."""

from pathlib import Path

import click

from fedldp import ledger as ledgers


@click.group("ledger")
def ledger_group() -> None:
    """Look after the file that knows what was spent.

    \b
    fedldp ledger seal ledger.db   refuse everybody, if the file is damaged

    A vault and `fedldp report` write to it. Never delete it, and never restore
    a backup of it: what was spent since would be forgotten.
    """  # noqa: D301 (click wants the character \b itself)


@ledger_group.command("seal")
@click.argument("ledger", type=click.Path(path_type=Path, dir_okay=False))
def seal_command(ledger: Path) -> None:
    """Replace a damaged or lost ledger by one that refuses everybody.

    \b
    fedldp ledger seal fleet/vault-1/ledger.db

    Nobody knows any more what these vehicles have spent, so none of them may
    spend anything, for good: a vault with this ledger answers no question. The
    old file is moved into a folder beside it, with its -wal and -shm, and is
    not changed. Stop the vault first.
    """  # noqa: D301 (click wants the character \b itself)
    aside = ledgers.seal(ledger)
    moved = f"There was no file {ledger}." if aside is None else f"Moved {ledger} into {aside}."
    click.echo(f"{moved} Wrote a sealed ledger, {ledger}: it refuses every vehicle.")
