"""`fedldp data`: the data sets, and how to download those that are not included."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from fedldp import datasets
from fedldp.cli.completion import offer
from fedldp.cli.plans import INPUT, console
from fedldp.datasets import Dataset
from fedldp.schema.schema import Schema

_name = click.argument("name", metavar="NAME", shell_complete=offer(datasets.names))
_GENERATED_FOR_INFO = 1000  # rows that are enough to show the columns


@click.group("data")
def data_group() -> None:
    """List, describe and download data sets.

    \b
    fedldp data list
    fedldp data info flights
    fedldp data fetch wisdm

    The flights are included in fedldp. Other packages can register data sets:
    fedldp-reproduction adds those of the paper. To install it, run
    `pip install ./reproduction` in a clone of fedldp.
    """  # noqa: D301 (click wants the character \b itself)


@data_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def list_command(as_json: bool) -> None:
    """List all data sets.

    \b
    fedldp data list          which are included, downloaded, or can be fetched
    fedldp data list --json   for scripts
    """  # noqa: D301 (click wants the character \b itself)
    documents = [_about(name) for name in datasets.names()]
    if as_json:
        click.echo(json.dumps(documents, indent=2))
        return
    table = Table(title="Data sets")
    table.add_column("name", no_wrap=True)
    table.add_column("title")
    table.add_column("rows", justify="right")
    table.add_column("dimensions", justify="right")
    table.add_column("available", no_wrap=True)
    for described in documents:
        table.add_row(
            described["name"],
            described["title"],
            f"{described['rows']:,}" if described["rows"] else "",
            str(described["dimensions"] or ""),
            described["available"],
        )
    console().print(table)


@data_group.command("fetch")
@_name
def fetch_command(name: str) -> None:
    """Download a data set to the cache, and verify it.

    \b
    fedldp data fetch wisdm
    fedldp train --data wisdm --task logistic --epsilon 4

    If the publisher gives a checksum, the file must match it; otherwise later
    downloads must match the first one. A failed download leaves no file.
    """  # noqa: D301 (click wants the character \b itself)
    screen = Console(stderr=True)
    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(
        *columns, transient=True, console=screen, disable=not screen.is_terminal
    ) as progress:
        task = progress.add_task(name, total=None)
        path = datasets.fetch(
            name, lambda done, total: progress.update(task, completed=done, total=total)
        )
    console().print(f"{name} is in {path}", soft_wrap=True)


@data_group.command("info")
@_name
@click.option(
    "--path", type=INPUT, help="The file of a data set that was not fetched.", metavar="FILE"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def info_command(name: str, path: Path | None, as_json: bool) -> None:
    """Show the origin and the columns of a data set.

    \b
    fedldp data info flights
    fedldp data info wisdm --path WISDM_ar_latest.tar.gz   from elsewhere
    """  # noqa: D301 (click wants the character \b itself)
    document, origin, dataset = _about(name), datasets.origin(name), None
    if origin.generated:
        dataset = datasets.load(name, path, rows=_GENERATED_FOR_INFO)
        document |= _columns(dataset)
    elif path is not None or origin.ready:
        dataset = datasets.load(name, path)
        document |= {**asdict(dataset.about), "rows": len(dataset), **_columns(dataset)}
        document["available"] = document["available"] if path is None else str(path)
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    facts = Table(title=document["title"], show_header=False)
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")  # addresses and checksums, whole
    for key in ("name", "source", "licence", "citation", "rows", "dimensions", "note", "available"):
        facts.add_row("license" if key == "licence" else key, str(document[key] or ""))
    for key, value in (document["download"] or {}).items():
        facts.add_row(f"download: {key}", str(value or "not published"))
    for objective, target in document.get("targets", {}).items():
        facts.add_row(f"target: {objective}", target)
    console().print(facts)
    if dataset is not None:
        console().print(_table(dataset.schema, document["columns"]))


def _about(name: str) -> dict[str, Any]:
    """Return what is known about a data set before it is loaded."""
    origin = datasets.origin(name)
    return {
        **asdict(origin.about),
        "download": None if origin.download is None else origin.download.description,
        "available": origin.available,
    }


def _columns(data: Dataset) -> dict[str, Any]:
    """Return what is known about a data set after it is loaded."""
    columns = []
    for attribute, entry in zip(data.schema.attributes, data.schema.to_document(), strict=True):
        values = data.matrix(names=(attribute.name,))
        summary = attribute.estimand.summary(values)
        columns.append({**entry, **summary, "derived": attribute.name in data.derived})
    return {
        "dimensions": data.dimensions,
        "clients": None if data.vehicle_ids is None else len(np.unique(data.vehicle_ids)),
        "targets": dict(data.targets),
        "columns": columns,
    }


def _table(schema: Schema, columns: list[dict[str, Any]]) -> Table:
    rendered = Table(title="Columns")
    for heading in ("column", "public bounds or categories", "mean, or the most frequent", "note"):
        rendered.add_column(heading)
    for attribute, column in zip(schema.attributes, columns, strict=True):
        notes = ["derived from others"] if column["derived"] else []
        if column.get("outside"):
            notes.append(f"{column['outside']:.2%} outside the bounds")
        typical = attribute.estimand.typical(column)
        rendered.add_row(attribute.name, attribute.domain, typical, ", ".join(notes))
    return rendered
