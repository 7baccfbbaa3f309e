"""`fedldp predict`: what a model says about the rows of a file."""

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np

from fedldp._internal import files
from fedldp._internal.validation import Floats
from fedldp.cli.plans import INPUT, OUTPUT, console, naming
from fedldp.data import frames
from fedldp.data.quality import DataQuality, total
from fedldp.datasets.files import read
from fedldp.errors import DomainError
from fedldp.fleet.server.summary import shortfalls
from fedldp.learn.model import Model

COLUMN = "prediction"  # that is added


@click.command("predict")
@click.argument("model_file", metavar="MODEL", type=INPUT)
@click.argument("data", type=INPUT)
@click.option(
    "--output",
    "-o",
    type=OUTPUT,
    help="Write the CSV there.  [default: standard output]",
    metavar="FILE",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def predict_command(model_file: Path, data: Path, output: Path | None, as_json: bool) -> None:
    """Add a prediction to each row of a CSV or Parquet file.

    \b
    fedldp train --data fleet.csv --schema fleet.toml --target sold \\
      --task logistic --epsilon 4 --save model.json
    fedldp predict model.json new.csv               as CSV, to standard output
    fedldp predict model.json new.csv -o told.csv   or to a file

    A missing or unknown value counts as the schema's public value, as it does
    on a vehicle, and standard error says how many there are. If the file has
    the target too, the error is told. If a fleet trained the model with fewer
    reports than planned, that is told as well.
    """  # noqa: D301 (click wants the character \b itself)
    with naming(model_file):
        model = Model.from_json(model_file.read_text("utf-8", errors="replace"))
    said = console(stderr=True, soft_wrap=True)
    for line in shortfalls(model_file):
        said.print(line)
    text = io.StringIO()
    writer = csv.writer(text if output or as_json else sys.stdout, lineterminator="\n")
    predictions: list[Any] = []
    errors: list[Floats] = []
    qualities: list[DataQuality] = []
    for chunk in read(data):
        table = frames.table(chunk.data)
        if COLUMN in table.names:
            raise DomainError(f"{data} has a column {COLUMN!r} already: rename that first.")
        scores, quality = model.checked_scores(chunk.data, chunk.first_row)
        told = model.predictions(scores).tolist()
        qualities.append(quality)
        if chunk.first_row == 0:
            writer.writerow([*table.names, COLUMN])
        cells = [table.cells(name, 0, len(table)) for name in table.names]
        writer.writerows(zip(*cells, told, strict=True))
        predictions += told
        if model.target.name in table.names:
            errors.append(model.checked_errors(chunk.data)[0])
    if not predictions:
        raise DomainError(f"{data} has no rows.")
    if not (quality := total(qualities)).clean:
        click.echo(f"{data}: {quality}", err=True)
    if output is not None:
        files.write(output, text.getvalue())
    known = np.concatenate([each[each == each] for each in errors] or [np.empty(0)])
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
        click.echo(json.dumps(document, indent=2))
        return
    if error is not None:
        said.print(f"The error on {known.size:,} rows with the target is {error:.4g}.")
    if output is not None:
        said.print(f"Wrote {output}")
