"""`fedldp mechanisms`: compare the mechanisms for one number."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from fedldp.mechanisms import mechanism, mechanisms
from fedldp.paper import claims


@click.command("mechanisms")
@click.option("--epsilon", type=float, default=1.0, show_default=True, help="The privacy budget.")
@click.option("--table", is_flag=True, help="Check the paper's Tables I and II and its claims.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the comparison over epsilon to FILE (.png, .svg or .pdf).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def mechanisms_command(epsilon: float, table: bool, plot: Path | None, as_json: bool) -> None:
    r"""Compare the mechanisms by their worst-case variance.

    \b
    fedldp mechanisms --epsilon 1         all of them, the best first
    fedldp mechanisms --table             what holds of the paper's tables
    fedldp mechanisms --plot compare.png  over a range of epsilon
    """
    console = Console(highlight=False)
    if plot is not None:
        from fedldp.plots import compare_mechanisms

        compare_mechanisms(plot)
    if table:
        document = _checked_tables()
        tables = _render_checked_tables(document)
    else:
        document = _ranking(epsilon)
        tables = [_render_ranking(document)]
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    for each in tables:
        console.print(each)
    if plot is not None:
        console.print(f"Wrote {plot}", soft_wrap=True)


def _ranking(epsilon: float) -> dict[str, Any]:
    every = [mechanism(name, epsilon) for name in mechanisms()]
    every.sort(key=lambda each: each.worst_case_variance)
    best = every[0].worst_case_variance
    return {
        "epsilon": every[0].epsilon,
        "mechanisms": [
            {
                "name": each.name,
                "worst_case_variance": each.worst_case_variance,
                "relative": each.worst_case_variance / best,
                "variance_at_zero": each.variance(0.0),
                "bound": each.bound if each.bound < float("inf") else None,
            }
            for each in every
        ],
    }


def _render_ranking(document: dict[str, Any]) -> Table:
    rendered = Table(
        title=f"Worst-case variance for one number in [-1, 1], epsilon = {document['epsilon']:g}"
    )
    rendered.add_column("mechanism")
    for heading in ("worst case", "above the best", "at x = 0", "largest output"):
        rendered.add_column(heading, justify="right")
    for row in document["mechanisms"]:
        rendered.add_row(
            row["name"],
            f"{row['worst_case_variance']:.5g}",
            f"{100 * (row['relative'] - 1):.1f}%",
            f"{row['variance_at_zero']:.5g}",
            "unbounded" if row["bound"] is None else f"{row['bound']:.4g}",
        )
    return rendered


def _checked_tables() -> dict[str, Any]:
    document: dict[str, Any] = {"tables": {}, "claims": []}
    for title, printed in claims.TABLES.items():
        names = printed[0].order.replace(" = ", " < ").split(" < ")
        document["tables"][title] = [
            asdict(row) | {"as_printed": row_matches}
            for row, row_matches in _matched(claims.table(names), printed)
        ]
    for claim in claims.CLAIMS:
        failures = claims.failures(claim)
        document["claims"].append(
            {
                "claim": claim.text,
                "holds": not failures,
                "failures": [asdict(each) for each in failures],
            }
        )
    return document


def _matched(
    computed: list[claims.Row], printed: tuple[claims.Row, ...]
) -> list[tuple[claims.Row, bool]]:
    return [
        (row, any(claims.same_to_two_decimals(row, other) for other in printed)) for row in computed
    ]


def _render_checked_tables(document: dict[str, Any]) -> list[Table]:
    rendered = []
    for title, rows in document["tables"].items():
        one = Table(title=f"{title} of the paper, computed")
        one.add_column("epsilon", justify="right")
        one.add_column("worst-case variances")
        one.add_column("as printed")
        for row in rows:
            bounds = f"{row['low']:.4f} - {row['high']:.4f}"
            one.add_row(bounds, row["order"], "yes" if row["as_printed"] else "NO")
        rendered.append(one)
    checked = Table(title="Claims about worst-case variance, epsilon from 0.001 to 20")
    checked.add_column("claim")
    checked.add_column("verdict")
    checked.add_column("fails where, against whom", min_width=30)
    for claim in document["claims"]:
        failures = "\n".join(
            f"{each['low']:.3f} - {each['high']:.3f}: {each['rival']}, by {100 * each['gap']:.2g}%"
            for each in claim["failures"]
        )
        checked.add_row(claim["claim"], "holds" if claim["holds"] else "FAILS", failures)
    rendered.append(checked)
    return rendered
