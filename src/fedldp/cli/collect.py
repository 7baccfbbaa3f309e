"""`fedldp collect`: simulate what a fleet would report."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, final

import click
import numpy as np
from rich.console import Console
from rich.progress import Progress

from fedldp._internal.text import counted, or_none
from fedldp._internal.validation import Floats
from fedldp.cli.estimates import (
    distributions,
    draw,
    estimate_options,
    lines,
    show,
)
from fedldp.cli.options import declared_option
from fedldp.cli.plans import (
    INPUT,
    automatic_choice,
    console,
    make_plan,
    naming,
    plan_options,
    strategy_document,
    strict_option,
    summary,
    tell,
)
from fedldp.errors import DomainError
from fedldp.plan.parts import Matrix
from fedldp.plan.plan import Plan
from fedldp.plan.strategies import Sample
from fedldp.randomness import source
from fedldp.results.tally import Tally
from fedldp.schema import frames
from fedldp.schema.attributes import Attribute
from fedldp.schema.quality import DataQuality, total
from fedldp.schema.rows import names_of, with_counts
from fedldp.schema.rules import one_row_each
from fedldp.schema.schema import Schema
from fedldp.schema.vehicle_ids import VehicleIds


@click.command("collect")
@click.argument("data", type=INPUT)
@click.option("--schema", type=INPUT, required=True, help="The columns (TOML).", metavar="FILE")
@click.option(
    "--vehicle",
    help="The column with the id of each row's vehicle, if a vehicle has several rows. The rules "
    "of the schema combine them into one.",
    metavar="COLUMN",
)
@plan_options
@estimate_options(of="fleet")
@strict_option
@declared_option(Sample, "study")
@click.option("--seed", type=int, help="A number that makes the simulation reproducible.")
def collect_command(
    data: Path,
    schema: Path,
    vehicle: str | None,
    estimator: str | None,
    of: str,
    confidence: float,
    plot: Path | None,
    as_json: bool,
    strict: bool,
    seed: int | None,
    **options: Any,
) -> None:
    """Simulate statistics of a fleet: each row of a file is a vehicle.

    \b
    fedldp collect fleet.csv --schema fleet.toml --epsilon 2
    fedldp collect fleet.csv --schema fleet.toml --epsilon 2 --plot fleet.png
    fedldp collect trips.csv --schema trips.toml --epsilon 2 --vehicle car
    fedldp collect fleet.csv --schema fleet.toml --epsilon 2 --strategy cube
    fedldp collect fleet.csv --schema fleet.toml --epsilon 2 --paper
    fedldp collect fleet.csv --schema fleet.toml --epsilon 2 --paper --study \\
      --mechanism laplace

    DATA is a CSV or Parquet file. The table shows the estimates beside the
    truth: the mean of the raw numbers, and how often each category occurs.
    `fedldp schema fleet.csv` makes a draft of the schema. With --vehicle, a
    vehicle combines its rows into one before it answers. The schema says how, in
    the table of an attribute: `rule = "mean"`, "last", "maximum", "count" (the
    number of rows with a value) or "any" (true if one row is). Without a rule, a
    random row is used.

    As on a vehicle, values outside the bounds are clipped; missing, unreadable
    and unknown values are replaced. Standard error says how many. The table
    then also shows the mean of the values that were used, to which the estimate
    is close. --strict refuses such data.
    """  # noqa: D301 (click wants the character \b itself)
    plan = make_plan(schema, **options)
    choice = automatic_choice(plan, options)
    if strict:
        with naming(data):
            _check_data(plan.schema, data, vehicle).refuse()
    tally, truth, quality = _simulate(plan, data, vehicle, seed=seed)
    with naming(data):
        quality.refuse_unusable()
    tell(data, quality)
    estimate = tally.estimate(estimator, of=of, confidence=confidence)
    rows = [row | true for row, true in zip(lines(estimate, plan.schema), truth, strict=True)]
    size = "for study" if plan.study else f"{plan.bits} bits each"
    title = f"{data.name}: {tally.reports} vehicles, {size}"
    shapes, others = distributions(estimate, plan.schema, rows)
    if plot is not None:
        draw(plot, others, shapes, title)
    if as_json:
        document = summary(plan) | {
            **strategy_document(choice),
            "vehicles": tally.reports,
            "confidence": confidence,
            "estimates": rows,
            **({"distributions": shapes} if shapes else {}),
        }
        click.echo(json.dumps(document, indent=2))
        return
    show(title, estimate, plan.schema, rows)
    console().print(
        f"Each vehicle answered {summary(plan)['answers']} of "
        f"{counted(plan.schema.dimensions, 'question')}, with epsilon {plan.epsilon:g} in all."
    )
    if choice is not None:
        console().print(f"Strategy {choice.strategy.name}, chosen automatically: {choice.reason}.")
    if plot is not None:
        console().print(f"Wrote {plot}", soft_wrap=True)


def _check_data(schema: Schema, path: Path, vehicle: str | None) -> DataQuality:
    """Return what is clipped or replaced in a file, without drawing anything."""
    read = _vehicles(schema, path, vehicle, lambda vehicles: np.full(vehicles, 0.5))
    qualities = [quality for _, quality, _ in read]
    if not qualities:
        raise DomainError("expected at least one row; the file has none.")
    return total(qualities)


def _simulate(
    plan: Plan, path: Path, vehicle: str | None, *, seed: int | None
) -> tuple[Tally, list[dict[str, Any]], DataQuality]:
    """Return the tally of a fleet, the truth about it and its quality, in one pass of the file."""
    tally, random = plan.tally(), source(seed)
    truths = [_Truth(attribute) for attribute in plan.schema.attributes]
    qualities: list[DataQuality] = []
    screen = Console(stderr=True)
    with Progress(transient=True, console=screen, disable=not screen.is_terminal) as progress:
        task = progress.add_task("Collecting", total=1.0)
        for matrix, quality, fraction in _vehicles(plan.schema, path, vehicle, random.uniform):
            parts = (Matrix(matrix[slice(*part)]) for part in plan.chunks(len(matrix)))
            tally += plan.simulate_batches(parts, random)
            qualities.append(quality)
            column = 0
            for truth in truths:
                truth.add(matrix[:, column : column + truth.attribute.size])
                column += truth.attribute.size
            progress.update(task, completed=fraction)
    if tally.reports == 0:
        raise DomainError(f"expected at least one row; {path} has none.")
    quality = total(qualities)
    return tally, [line for truth in truths for line in truth.lines(quality)], quality


def _vehicles(
    schema: Schema, path: Path, vehicle: str | None, uniform: Callable[[int], Floats]
) -> Iterator[tuple[Floats, DataQuality, float]]:
    """Yield a row for each vehicle, its quality, and how much of the file was read."""
    if vehicle is None:
        for chunk in frames.read(path):
            yield *schema.rows(chunk.data, chunk.first_row).read(), chunk.fraction
        return
    read: list[tuple[Floats, Floats, DataQuality]] = []
    ids = VehicleIds(vehicle)
    for chunk in frames.read(path):
        rows = schema.rows(chunk.data, chunk.first_row, several=True)
        matrix, quality = rows.read()
        read.append((matrix, rows.unjoined(), quality))
        ids.add(chunk.data, chunk.first_row)
    if read:
        matrices, unjoined, qualities = zip(*read, strict=True)
        names, owners = np.unique(ids.names(), return_inverse=True)
        values, of_all = np.concatenate(unjoined), total(qualities).using(vehicle)
        rows_of_all = np.concatenate(matrices), values
        each = one_row_each(schema.attributes, *rows_of_all, owners, uniform(len(names)))
        yield each, with_counts(of_all, schema.attributes, values, owners, len(names)), 1.0


@final
class _Truth:
    """The true mean of a number, or the frequencies of a category, and those of the values used."""

    def __init__(self, attribute: Attribute) -> None:
        self.attribute = attribute
        self._readable: Any = 0  # of each coordinate
        self._raw: Any = 0.0  # sums of the readable values as they are
        self._used: Any = 0.0  # sums of the values that the vehicles use
        self._counted: Any = 0  # how many values are in each of these sums

    def add(self, values: Floats) -> None:
        """Add the values of some rows, with NaN for missing values."""
        estimand = self.attribute.estimand
        raw, readable = estimand.sums(values)
        used, number = estimand.sums(estimand.from_unit(self.attribute.inputs.of(values)))
        self._raw, self._readable = self._raw + raw, self._readable + readable
        self._used, self._counted = self._used + used, self._counted + number

    def lines(self, quality: DataQuality) -> list[dict[str, Any]]:
        """Return what to add to the line of each estimate."""
        # Of an attribute that is read from two columns, the one with more such values counts.
        qualities = [quality[name] for name in names_of(self.attribute)]
        shares = {
            "clipped": max(
                column_quality.clipped / column_quality.values for column_quality in qualities
            ),
            "replaced": max(
                column_quality.replaced / column_quality.values for column_quality in qualities
            ),
        }
        raw, used = (
            np.where(np.asarray(number) > 0, total / np.maximum(number, 1), np.nan).tolist()
            for total, number in ((self._raw, self._readable), (self._used, self._counted))
        )
        return [
            {"truth": or_none(true), "used": or_none(mean), **shares}
            for true, mean in zip(raw, used, strict=True)
        ]
