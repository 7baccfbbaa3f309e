"""`fedldp predict`: apply a model to the rows of a file."""

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np

from fedldp._internal.validation import Floats
from fedldp.cli.plans import INPUT, OUTPUT, console, naming
from fedldp.datasets.files import read
from fedldp.errors import DomainError
from fedldp.learn.model import Model
from fedldp.results.summary import shortfalls
from fedldp.schema import frames
from fedldp.schema.quality import DataQuality, total
from fedldp.storage import files

COLUMN = "prediction"  # the name of the added column
PROBABILITY = "probability of "  # and how the names of those of labels begin


@click.command("predict")
@click.argument("model_file", metavar="MODEL", type=INPUT)
@click.argument("data", type=INPUT)
@click.option(
    "--output",
    "-o",
    type=OUTPUT,
    help="Write the CSV to a file.  [default: standard output]",
    metavar="FILE",
)
@click.option(
    "--probabilities", is_flag=True, help="Add the probability of each label, as columns."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def predict_command(
    model_file: Path, data: Path, output: Path | None, probabilities: bool, as_json: bool
) -> None:
    """Add a prediction to each row of a CSV or Parquet file.

    \b
    fedldp train --data fleet.csv --schema fleet.toml --target sold \\
      --task logistic --epsilon 4 --save model.json
    fedldp predict model.json new.csv                 CSV to standard output
    fedldp predict model.json new.csv -o output.csv   or to a file
    fedldp predict model.json new.csv --probabilities

    MODEL is a file that `fedldp train --save` or a fleet wrote. As on a
    vehicle, a missing or unknown value counts as the public default of the
    schema; standard error says how many there are. It also shows the error, if
    the file contains the target, and says if a fleet trained the model with
    fewer reports than planned. Models of the tasks logistic, multiclass and
    mlp for labels have probabilities.
    """  # noqa: D301 (click wants the character \b itself)
    with naming(model_file):
        model = Model.from_json(model_file.read_text("utf-8", errors="replace"))
    said = console(stderr=True, soft_wrap=True)
    for line in shortfalls(model_file):
        said.print(line)
    labels = _labels(model) if probabilities else []
    added = [COLUMN, *(f"{PROBABILITY}{label}" for label in labels)]
    text = io.StringIO()
    writer = csv.writer(text if output or as_json else sys.stdout, lineterminator="\n")
    predictions: list[Any] = []
    likely: list[list[float]] = []
    errors: list[Floats] = []
    qualities: list[DataQuality] = []
    for chunk in read(data):
        table = frames.table(chunk.data)
        if taken := [name for name in added if name in table.names]:
            raise DomainError(
                f"{data} must not have a column {taken[0]!r}, because predict adds one: rename "
                "it first."
            )
        scores, quality = model.checked_scores(chunk.data, chunk.first_row)
        told = model.predictions(scores).tolist()
        chances = model.goal.probabilities(scores).tolist() if labels else []
        qualities.append(quality)
        if chunk.first_row == 0:
            writer.writerow([*table.names, *added])
        cells = [table.cells(name, 0, len(table)) for name in table.names]
        columns = zip(*chances, strict=True) if labels else ()
        writer.writerows(zip(*cells, told, *columns, strict=True))
        predictions += told
        likely += chances
        if model.target.name in table.names:
            errors.append(model.checked_errors(chunk.data)[0])
    if not predictions:
        raise DomainError(f"expected at least one row; {data} has none.")
    if not (quality := total(qualities)).clean:
        click.echo(f"{data}: {quality}", err=True)
    if output is not None:
        files.write(output, text.getvalue())
    known = np.concatenate(
        [column_errors[column_errors == column_errors] for column_errors in errors] or [np.empty(0)]
    )
    error = float(known.mean()) if known.size else None
    if as_json:
        document = {
            "model": model.fingerprint,
            "target": model.target.name,
            "rows": len(predictions),
            "rows_with_target": known.size,
            "error": error,
            "predictions": predictions,
        }
        if labels:
            document |= {"labels": labels, "probabilities": likely}
        click.echo(json.dumps(document, indent=2))
        return
    if error is not None:
        said.print(f"The error on {known.size:,} rows with the target is {error:.4g}.")
    if output is not None:
        said.print(f"Wrote {output}")


def _labels(model: Model) -> list[str]:
    """Return the labels that have probabilities."""
    model.goal.probabilities(np.zeros((0, model.goal.outputs)))  # refuses a model that has none
    return list(model.target.labels)
