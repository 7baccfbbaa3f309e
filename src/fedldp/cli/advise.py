"""`fedldp advise`: which epsilon and strategy fit a schema and a fleet."""

import json
import shlex
from pathlib import Path

import click

from fedldp.cli.plans import (
    INPUT,
    console,
    expected_rows,
    expected_table,
    naming,
    read_schema,
    want_option,
)
from fedldp.plan.advice import advise


@click.command("advise")
@click.argument("schema", type=INPUT)
@click.option("--vehicles", type=int, required=True, help="How many vehicles there are.")
@want_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def advise_command(schema: Path, vehicles: int, want: dict[str, float], as_json: bool) -> None:
    """Say which epsilon and strategy fit a schema and a fleet.

    \b
    fedldp advise fleet.toml --vehicles 20000
    fedldp advise fleet.toml --vehicles 20000 --want speed=1 --want model=0.01

    The advice is the smallest epsilon, up to 4, at which each result reaches
    its goal: the error that --want names, or without --want a 95% interval of
    ± 5% of the range. If the fleet is too small for a result, the advice says
    so, and how many vehicles it would take. SCHEMA is the file that `fedldp
    schema` drafts.
    """  # noqa: D301 (click wants the character \b itself)
    columns = read_schema(schema)
    with naming(schema):
        advice = advise(columns, vehicles, want)
    option = "" if advice.strategy == "sample" else f" --strategy {advice.strategy}"
    command = (
        f"fedldp plan --schema {shlex.quote(str(schema))} --epsilon {advice.plan.epsilon:g}"
        f"{option} -o plan.json"
    )
    if as_json:
        document = {
            "epsilon": advice.plan.epsilon,
            "strategy": advice.strategy,
            "bits_per_vehicle": advice.plan.bits,
            "expected": expected_rows(advice.expected),
            "vehicles_needed": dict(advice.needed),
            "sentences": list(advice.sentences),
            "command": command,
        }
        click.echo(json.dumps(document, indent=2))
        return
    for sentence in advice.sentences:
        console().print(sentence)
    console().print(expected_table(advice.expected))
    console().print(command, soft_wrap=True)
