"""`fedldp quantile`: simulate how a fleet finds one quantile in rounds."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from fedldp._internal.validation import Floats
from fedldp.cli.plans import INPUT, add, console, naming, read_schema, strict_option, tell
from fedldp.errors import DomainError
from fedldp.learn.quantiles import ROUNDS, QuantileSearch
from fedldp.randomness import source
from fedldp.schema import frames
from fedldp.schema.attributes import Number
from fedldp.schema.quality import DataQuality, total
from fedldp.schema.schema import Schema
from fedldp.vehicle import RANDOM


def quantile_options(command: Any) -> Any:
    """Add the options that say which quantile is searched for, with which privacy."""
    return add(
        command,
        click.option("--column", required=True, help="A number with bounds.", metavar="NAME"),
        click.option(
            "--quantile",
            type=float,
            default=0.5,
            show_default=True,
            help="The quantile; 0.5 is the median.",
        ),
        click.option(
            "--epsilon", type=float, required=True, help="The privacy budget of a vehicle."
        ),
        click.option(
            "--confidence",
            type=float,
            default=0.95,
            show_default=True,
            help="The probability that the interval contains the true value.",
        ),
    )


@click.command("quantile")
@click.argument("data", type=INPUT)
@click.option("--schema", type=INPUT, required=True, help="The columns (TOML).", metavar="FILE")
@quantile_options
@strict_option
@click.option("--seed", type=int, help="A number that makes the simulation reproducible.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def quantile_command(
    data: Path,
    schema: Path,
    column: str,
    quantile: float,
    epsilon: float,
    confidence: float,
    strict: bool,
    seed: int | None,
    as_json: bool,
) -> None:
    """Simulate how a fleet finds one quantile: each row is a vehicle.

    \b
    fedldp quantile fleet.csv --schema fleet.toml --column speed --epsilon 1
    fedldp quantile fleet.csv --schema fleet.toml --column speed \\
      --quantile 0.99 --epsilon 1

    Each vehicle is asked once, on which side of a threshold its number is, and
    answers with one bit. Thresholds move towards the quantile in 20 rounds.

    A column with bins (`fedldp collect`) also has quantiles, but at epsilon 1 it
    needs more vehicles. Use bins for several quantiles at once, at a large
    epsilon, or if there can be one round only. `fedldp server job quantile` asks
    a fleet.
    """  # noqa: D301 (click wants the character \b itself)
    columns = read_schema(schema)
    number = number_of(columns, column)
    values, quality = _read(number, data)
    quality = quality.using(*(attribute.name for attribute in columns.attributes))
    with naming(data):
        if strict:
            quality.refuse()
        quality.refuse_unusable()
    tell(data, quality)
    search = QuantileSearch(number, quantile, epsilon, len(values), confidence)
    result = search.simulate(values, source(seed))
    truth = float(np.nanquantile(values, quantile))
    if as_json:
        document: dict[str, Any] = asdict(result) | {"truth": truth, "rounds": ROUNDS}
        click.echo(json.dumps(document | {"epsilon": epsilon, "bits": search.plan.bits}, indent=2))
        return
    low, high = result.interval
    console().print(
        f"The {quantile:g} quantile of {column} is {result.value:.4g}, between {low:.4g} and "
        f"{high:.4g} with {confidence:.0%} confidence. In the file it is {truth:.4g}.\n"
        f"{len(values):,} vehicles answered once each, one bit with epsilon {epsilon:g}, in "
        f"{ROUNDS} rounds."
    )


def number_of(schema: Schema, column: str) -> Number:
    """Return a column as a number with bounds."""
    names = [attribute.name for attribute in schema.attributes]
    if column not in names:
        raise DomainError(f"--column must be one of {', '.join(names)}; got {column!r:.80}.")
    found = schema[column]
    if not hasattr(found, "low") or not hasattr(found, "high") or getattr(found, "size", 1) != 1:
        raise DomainError(f"--column must be a number with bounds; {column!r:.80} is not one.")
    if found.rule != RANDOM:
        raise DomainError(
            f"a search for a quantile asks for one random row of a vehicle: {column!r:.80} must "
            "have no rule. A column that has bins may have one."
        )
    return Number(column, found.low, found.high)


def _read(number: Number, path: Path) -> tuple[Floats, DataQuality]:
    """Return the numbers of a file, with NaN for missing ones."""
    schema = Schema((number,))
    parts, qualities = [], []
    for chunk in frames.read(path):
        matrix, quality = schema.rows(chunk.data, chunk.first_row).read()
        parts.append(matrix[:, 0])
        qualities.append(quality)
    if not parts:
        raise DomainError(f"expected at least one row; {path} has none.")
    return np.concatenate(parts), total(qualities)
