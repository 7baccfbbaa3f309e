"""`fedldp fleet status`: what the parts of a fleet on this machine know about themselves."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedldp.cli.fleet.parts import FOLDER
from fedldp.cli.plans import console
from fedldp.fleet.status import Status, clock_of, read

EVERY = 2.0  # seconds between two looks

_SHOWN = 3  # errors for people


@click.command("status")
@click.argument("folder", type=FOLDER, default=".")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
@click.option(
    "--watch",
    is_flag=False,
    flag_value=EVERY,
    type=click.FloatRange(min=0.1),
    help=f"Repeat every SECONDS ({EVERY:g} by default), until Ctrl-C.",
    metavar="[SECONDS]",
)
def status_command(folder: Path, as_json: bool, watch: float | None) -> None:
    """Show what a server, a gateway or a vault is doing.

    \b
    fedldp fleet status                   in the folder of a part, or of a fleet
    fedldp fleet status fleet/server --watch
    fedldp fleet status fleet/vault-1 --json

    Each part shows what it knows. The server: the job, its round, reports, time
    left, and each gateway by name. A gateway: whether it reaches the server, and
    what its vaults answered. A vault, for its owner alone: budgets, jobs, and
    why questions were refused; nothing about the data.

    The command only reads files, whether the part runs or not. Run it as the
    user of the part, on the machine of the part. JSON is an array with an
    object for each part; with --watch, a line each time.

    \b
    Exit status:
    0  nothing needs attention; there may be warnings, such as spent budgets
    1  something needs attention, or cannot be read: the output shows what
    2  invalid command line
    """  # noqa: D301 (click wants the character \b itself)
    if watch is None:
        found = read(folder)
        if as_json:
            click.echo(json.dumps([each.document() for each in found], indent=2))
        else:
            _print(console(), found)
        sys.exit(0 if all(each.healthy for each in found) else 1)
    try:
        _watch(folder, as_json, watch)
    except KeyboardInterrupt:
        sys.exit(0)


def _watch(folder: Path, as_json: bool, seconds: float) -> None:
    screen = console()
    if as_json or not screen.is_terminal:
        while True:
            found = read(folder)
            if as_json:
                click.echo(json.dumps([each.document() for each in found]))
            else:
                screen.print(time.strftime("%Y-%m-%d %H:%M:%S"))
                _print(screen, found)
            time.sleep(seconds)
    with Live(console=screen, auto_refresh=False, screen=False) as live:
        while True:
            live.update(rendered(read(folder)), refresh=True)
            time.sleep(seconds)


def _print(screen: Console, found: Sequence[Status]) -> None:
    screen.print(rendered(found))


def rendered(found: Sequence[Status]) -> RenderableType:
    """Return the status of some parts for people."""
    parts: list[RenderableType] = []
    for each in found:
        parts += [*_part(each), Text()]
    return Group(*parts[:-1])


def _part(status: Status) -> list[RenderableType]:
    since = f" since {clock_of(status.since)}" if status.since else ""
    runs = f"runs{since}" if status.running else "does not run"
    head = Text(f"{status.name} ({status.part}) {runs}, fedldp {status.version}", style="bold")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in status.rows:
        grid.add_row(f"  {name}", Text(value))
    shown: list[RenderableType] = [head, grid]
    heads, *lines = status.table or [()]
    if lines:
        table = Table(box=None, padding=(0, 2), pad_edge=True)
        for name in heads:
            table.add_column(name)
        for line in lines:
            table.add_row(*map(Text, line))
        shown.append(table)
    last = Table.grid(padding=(0, 2))
    last.add_column(no_wrap=True)
    last.add_column(overflow="fold")
    for line in status.errors[-_SHOWN:]:
        last.add_row(f"  {clock_of(line.time)} {line.level}", Text(line.text))
    for text in status.warnings:
        if text not in status.attention:
            last.add_row("  warning", Text(text))
    for text in status.attention:
        last.add_row(Text("  attention", style="bold red"), Text(text))
    last.add_row("  next", Text(status.next))
    return [*shown, last]
