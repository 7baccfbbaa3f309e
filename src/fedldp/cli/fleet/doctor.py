"""`fedldp fleet doctor`: what is wrong on this machine, and what to do about it."""

import json
import sys
from pathlib import Path

import click
from rich.text import Text

from fedldp._internal.text import counted
from fedldp.cli.fleet.parts import FOLDER
from fedldp.cli.plans import console
from fedldp.fleet.doctor import Examined, examine
from fedldp.fleet.doctor.examination import OK, PROBLEM, WARNING

_STYLES = {OK: "green", WARNING: "yellow", PROBLEM: "bold red"}


@click.command("doctor")
@click.argument("folder", type=FOLDER, default=".")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def doctor_command(folder: Path, as_json: bool) -> None:
    """Check a machine, and explain how to fix problems.

    \b
    fedldp fleet doctor                   in the folder of a part, or of a fleet
    fedldp fleet doctor fleet/gateway-1 --json

    It checks the clock, disk, permissions, certificates, versions, ports and
    isolation; on a gateway, whether it reaches its vaults and the server, and
    whether the server admits its key; on a vault, the data and the ledger.
    Nothing is changed, answered or spent. Run it as the user of the part.

    \b
    Exit status:
    0  no problem; there may be warnings
    1  a problem, which prevents a part from working or from being safe
    2  invalid command line
    """  # noqa: D301 (click wants the character \b itself)
    found = examine(folder)
    if as_json:
        click.echo(json.dumps([each.document() for each in found], indent=2))
    else:
        _show(found)
    if not all(each.healthy for each in found):
        sys.exit(1)


def _show(found: list[Examined]) -> None:
    shown = console(soft_wrap=True)
    for part in found:
        shown.print(Text(f"{part.part} {part.name}", style="bold"))
        for each in part.findings:
            line = Text(f"  {each.level:8}", style=_STYLES[each.level])
            line.append(f"{each.check}: {each.said}", style="none")
            shown.print(line)
            if each.advice:
                shown.print(Text(f"          {each.advice}"))
    levels = [each.level for part in found for each in part.findings]
    problems, warnings = levels.count(PROBLEM), levels.count(WARNING)
    shown.print(f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}.")
