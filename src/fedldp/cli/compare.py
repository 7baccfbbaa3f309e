"""`fedldp compare`: all mechanisms beside those of other papers."""

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedldp.baselines import comparison
from fedldp.baselines.comparison import MechanismComparison
from fedldp.cli.plans import INPUT, OUTPUT, console, naming, read_schema, tell
from fedldp.datasets.files import read
from fedldp.errors import DomainError
from fedldp.schema.frames import write_columns
from fedldp.schema.quality import total

QUESTIONS = ("number", "categories", "vector", "distribution", "data")


@click.command("compare")
@click.option("--number", is_flag=True, help="Compare mechanisms for one number in [-1, 1].")
@click.option(
    "--categories", type=click.IntRange(2), help="Compare mechanisms for so many categories."
)
@click.option(
    "--vector", type=click.IntRange(2), help="Compare mechanisms for a vector of so many numbers."
)
@click.option(
    "--distribution",
    type=click.IntRange(2),
    help="Compare, by simulation, mechanisms for a distribution in so many bins.",
)
@click.option(
    "--data",
    type=INPUT,
    help="Compare mechanisms for each column of a CSV or Parquet file; needs --schema.",
    metavar="FILE",
)
@click.option("--schema", type=INPUT, help="The columns of the data (TOML).", metavar="FILE")
@click.option(
    "--epsilon",
    type=float,
    multiple=True,
    help="The privacy budget of an answer; give it again for other budgets.  [default: 1]",
)
@click.option(
    "--vehicles",
    type=click.IntRange(100),
    default=20_000,
    show_default=True,
    help="How many vehicles answer in a simulation.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="The seed of simulations.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also draw the errors (.png, .svg or .pdf).",
)
@click.option(
    "--output", "-o", type=OUTPUT, help="Also write a tidy table (.csv or .parquet).",
    metavar="FILE",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def compare_command(
    epsilon: tuple[float, ...],
    plot: Path | None,
    output: Path | None,
    as_json: bool,
    **questions: Any,
) -> None:
    """Compare the library's mechanisms and those of other papers.

    \b
    fedldp compare --number
    fedldp compare --categories 64 --epsilon 1 --epsilon 4
    fedldp compare --vector 128 --epsilon 4 --plot vectors.png
    fedldp compare --distribution 32
    fedldp compare --data fleet.csv --schema fleet.toml -o errors.csv

    Mechanisms of the library, marked fedldp, are exact, and their answers may
    be released. Those of other papers (`fedldp.baselines`) are for study only.

    Two columns show the squared error of one answer: "at worst", and for
    "typical" inputs or "your data". These are exact unless the title says
    simulation. "times" compares the second with the smallest of the table.
    Divide an error by n for n vehicles. "bits" leaves out public random
    numbers. "µs" is the time of one vehicle. With --data, "±" is half of a 95%
    interval, in the unit of the column of DATA, if every row answers about this
    column only.
    """  # noqa: D301 (click wants the character \b itself)
    if plot is not None:
        from fedldp import _plots as plots

        plots.check_path(plot)
    rows = _comparisons(epsilon or (1.0,), **questions)
    if output is not None:
        entries = [row.to_dict() for row in rows]
        write_columns({name: [entry[name] for entry in entries] for name in entries[0]}, output)
    if plot is not None:
        plots.save(plots.compared(rows), plot)
    if as_json:
        click.echo(json.dumps({"comparisons": [row.to_dict() for row in rows]}, indent=2))
        return
    for _, same in groupby(rows, key=lambda row: (row.question, row.epsilon)):
        console().print(_table(list(same)))
    for path in (output, plot):
        if path is not None:
            console().print(f"Wrote {path}", soft_wrap=True)


def _comparisons(
    epsilons: Sequence[float],
    number: bool,
    categories: int | None,
    vector: int | None,
    distribution: int | None,
    data: Path | None,
    schema: Path | None,
    vehicles: int,
    seed: int,
) -> list[MechanismComparison]:
    """Return the comparisons that the options ask for."""
    if (data is None) is not (schema is None):
        raise click.UsageError("--data and --schema go together: give both.")
    rows: list[MechanismComparison] = []
    if number:
        rows += comparison.compare_numbers(epsilons)
    if categories is not None:
        rows += comparison.compare_categories(epsilons, categories)
    if vector is not None:
        rows += comparison.compare_vectors(epsilons, vector)
    if distribution is not None:
        rows += comparison.compare_distributions(
            epsilons, distribution, vehicles=vehicles, seed=seed
        )
    if data is not None and schema is not None:
        rows += _compared_data(epsilons, data, schema)
    if not rows:
        options = ", ".join(f"--{name}" for name in QUESTIONS)
        raise click.UsageError(f"say what to compare: {options}.")
    return rows


def _compared_data(
    epsilons: Sequence[float], data: Path, schema: Path
) -> list[MechanismComparison]:
    columns = read_schema(schema)
    with naming(data):
        chunks = [columns.rows(chunk.data, chunk.first_row).read() for chunk in read(data)]
        if not chunks:
            raise DomainError("expected at least one row; the file has none.")
        quality = total([seen for _, seen in chunks])
        quality.refuse_unusable()
    tell(data, quality)
    matrix = np.concatenate([values for values, _ in chunks])
    return comparison.compare_matrix(epsilons, matrix, columns)


def _table(rows: Sequence[MechanismComparison]) -> Table:
    """Return the table of one question at one epsilon."""
    first, with_data = rows[0], rows[0].half_width == rows[0].half_width
    simulated = f", by {first.found_by}" if first.found_by == comparison.SIMULATION else ""
    table = Table(
        title=f"{first.question}, epsilon {first.epsilon:g}: {first.error}{simulated}",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("mechanism", no_wrap=True)
    table.add_column("from", no_wrap=True)
    typical = "your data" if with_data else "typical"
    headings = ["at worst", typical, "times", "bits", "µs"]
    for heading in [*headings, *(["±"] if with_data else [])]:
        table.add_column(heading, justify="right", no_wrap=True)
    least = min(row.typical for row in rows)
    for row in rows:
        table.add_row(
            row.mechanism,
            row.origin,
            "-" if row.worst != row.worst else f"{row.worst:.3g}",
            f"{row.typical:.3g}",
            f"{row.typical / least:.2f}",
            f"{row.bits:,}",
            f"{row.microseconds:.2g}",
            *([f"{row.half_width:.3g}"] if with_data else []),
        )
    return table
