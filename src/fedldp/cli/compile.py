"""`fedldp compile`: write a plan as constants for the vehicle in C."""

from pathlib import Path

import click

from fedldp.cli.plans import INPUT, OUTPUT
from fedldp.errors import WireError
from fedldp.plan.compiled import compile_plan


@click.command("compile")
@click.argument("plan", type=INPUT)
@click.option(
    "--cap",
    required=True,
    metavar="EPSILON",
    help="The most that one report may cost; for a calendar, all of its answers.",
)
@click.option(
    "-o", "--output", required=True, type=OUTPUT, help="The header file to write.", metavar="FILE"
)
@click.option(
    "--name",
    default="plan",
    show_default=True,
    help="The word with which all names in the C file begin.",
)
def compile_command(plan: Path, cap: str, output: Path, name: str) -> None:
    """Write a plan as constants for the vehicle in C.

    \b
    fedldp compile plan.json --cap 2 -o plan.h

    PLAN is the file of a plan or of a calendar. The command checks it in exact
    arithmetic, as a vehicle does, and refuses it if it leaks more than it claims
    or costs more than the cap. A device repeats the check when it starts.
    """  # noqa: D301 (click wants the character \b itself)
    try:
        text = plan.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise WireError(f"{plan} is not a plan: it is not text ({error})") from None
    compiled = compile_plan(text, cap)
    output.write_text(compiled.to_header(name), "utf-8")
    entries = compiled.plan.entries
    click.echo(
        f"{output}: {entries['bits']} bits in a report, {compiled.flash_bytes:,} bytes of "
        f"constants, {8 * entries['scratch']:,} bytes of working memory"
    )
