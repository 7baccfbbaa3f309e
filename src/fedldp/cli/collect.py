"""`fedldp collect`: what a fleet would report, simulated on a data set."""

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import Progress

from fedldp import frames
from fedldp.checks import Floats
from fedldp.cli.estimates import draw, estimate_options, lines, render
from fedldp.cli.plans import INPUT, console, make_plan, plan_options, summary
from fedldp.errors import DomainError
from fedldp.parts import Matrix
from fedldp.plan import Plan
from fedldp.schema import Category, Schema
from fedldp.source import source
from fedldp.tally import Tally


@click.command("collect")
@click.argument("data", type=INPUT)
@click.option("--schema", type=INPUT, required=True, help="The columns (TOML).", metavar="FILE")
@plan_options
@estimate_options(of="fleet")
@click.option("--missing", is_flag=True, help="Replace missing values instead of refusing them.")
@click.option("--study", is_flag=True, help="Noisy floats, as in the paper: never to be sent.")
@click.option("--seed", type=int, help="Make the simulation reproducible.")
def collect_command(
    data: Path,
    schema: Path,
    estimator: str | None,
    of: str,
    confidence: float,
    plot: Path | None,
    as_json: bool,
    missing: bool,
    seed: int | None,
    **options: Any,
) -> None:
    """Simulate a fleet on a CSV or Parquet file, each row a vehicle.

    \b
    fedldp collect fleet.csv --schema fleet.toml --epsilon 2
    fedldp collect fleet.csv --schema fleet.toml --epsilon 2 --plot fleet.png
    fedldp collect fleet.csv --schema fleet.toml --epsilon 2 --strategy cube
    fedldp collect fleet.csv --schema fleet.toml --epsilon 2 --paper
    fedldp collect fleet.csv --schema fleet.toml --epsilon 2 --paper --study \\
      --mechanism laplace

    Shows the estimates beside the truth. A draft of the schema is made by
    `fedldp schema fleet.csv`. A missing or unknown value is refused, with its
    row and column; a real vehicle would replace it, as --missing does here (the
    truth then counts it as replaced).
    """  # noqa: D301 (click wants the character \b itself)
    plan = make_plan(schema, **options)
    tally, truth = _simulated(plan, data, strict=not missing, seed=seed)
    estimate = tally.estimate(estimator, of=of, confidence=confidence)
    rows = [
        row | {"truth": float(true)}
        for row, true in zip(lines(estimate, plan.schema), truth, strict=True)
    ]
    size = "for study" if plan.study else f"{plan.bits} bits each"
    title = f"{data.name}: {tally.reports} vehicles, {size}"
    if plot is not None:
        draw(plot, rows, title)
    if as_json:
        document = summary(plan) | {
            "vehicles": tally.reports,
            "confidence": confidence,
            "estimates": rows,
        }
        click.echo(json.dumps(document, indent=2))
        return
    console().print(render(title, rows, confidence))
    console().print(
        f"Each vehicle answered {summary(plan)['answers']} of {plan.schema.dimensions} with "
        f"epsilon {plan.epsilon:g} in all."
    )
    if plot is not None:
        console().print(f"Wrote {plot}", soft_wrap=True)


def _simulated(plan: Plan, path: Path, *, strict: bool, seed: int | None) -> tuple[Tally, Floats]:
    """Return the tally of a fleet and its true means and frequencies, in one pass of the file."""
    tally, chance = plan.tally(), source(seed)
    sums: Floats = np.zeros(1)
    screen = Console(stderr=True)
    with Progress(transient=True, console=screen, disable=not screen.is_terminal) as progress:
        task = progress.add_task("Collecting", total=1.0)
        for chunk in frames.read(path):
            rows = plan.schema.rows(chunk.data, chunk.first_row)
            matrix = rows.matrix()
            if strict:
                try:
                    rows.check(matrix)
                except DomainError as error:
                    raise DomainError(f"{error} Or replace all such values: --missing.") from error
            parts = (Matrix(matrix[slice(*chunk)]) for chunk in plan.chunks(len(matrix)))
            tally += plan.simulate_batches(parts, chance)
            sums = sums + _sums(plan.schema, matrix)
            progress.update(task, completed=chunk.fraction)
    if tally.reports == 0:
        raise DomainError(f"{path} has no rows.")
    return tally, sums / tally.reports


def _sums(schema: Schema, matrix: Floats) -> Floats:
    """Return the sum of each number, clipped, and how often each category occurs."""
    found, column = [], 0
    for attribute in schema:
        values = matrix[:, column : column + attribute.size]
        column += attribute.size
        if isinstance(attribute, Category):
            codes = np.nan_to_num(values, nan=attribute.codes[attribute.missing]).astype(int)
            found.append(np.bincount(codes.reshape(-1), minlength=len(attribute.categories)))
        else:
            found.append(attribute.from_unit(attribute.to_unit(values)).sum(axis=0))
    return np.concatenate(found)
