"""`fedldp mechanisms`: compare the mechanisms for one number."""

import contextlib
import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from fedldp._internal import validation
from fedldp.errors import DomainError
from fedldp.mechanisms import Mechanism, Optimal, best_channel, mechanism, mechanism_names

_MOST_BITS = 6
_INPUTS = (0.0, 0.25, 0.5, 0.75, 1.0)


@click.command("mechanisms")
@click.option(
    "--epsilon", type=float, default=1.0, show_default=True, help="The privacy budget of a number."
)
@click.option("--bits", is_flag=True, help="Show what each additional bit of a report gains.")
@click.option("--inputs", is_flag=True, help="Show the variance at several values of x.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also draw the comparison (.png, .svg or .pdf): over epsilon, unless --bits or --inputs "
    "is given.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def mechanisms_command(
    epsilon: float, bits: bool, inputs: bool, plot: Path | None, as_json: bool
) -> None:
    """Compare mechanisms by their worst-case variance.

    \b
    fedldp mechanisms --epsilon 1            all mechanisms, the best first
    fedldp mechanisms --bits --epsilon 2     how many bits are worth sending
    fedldp mechanisms --inputs --epsilon 4   how noisy each value becomes
    fedldp mechanisms --plot compare.png     over a range of epsilon

    A mechanism adds noise to one number in [-1, 1], so that a report of it is
    epsilon-private. The variance of the noise depends on the number; the worst
    case is the largest.
    """  # noqa: D301 (click wants the character \b itself)
    if bits and inputs:
        raise click.UsageError("choose either --bits or --inputs, not both.")
    budget = validation.studied_epsilon(epsilon)
    if plot is not None:
        _draw(plot, budget, bits, inputs)
    if bits:
        document = _bits(budget)
        rendered = _render_bits(document)
    elif inputs:
        document = _by_input(budget)
        rendered = _render_by_input(document)
    else:
        document = _ranking(budget)
        rendered = _render_ranking(document)
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    console = Console(highlight=False)
    console.print(rendered)
    if plot is not None:
        console.print(f"Wrote {plot}", soft_wrap=True)


def _draw(path: Path, epsilon: float, bits: bool, inputs: bool) -> None:
    from fedldp import _plots as plots

    plots.check_path(path)
    if bits:
        figure = plots.bits_against_error(epsilon)
    elif inputs:
        figure = plots.variance_over_inputs(epsilon)
    else:
        figure = plots.compare_mechanisms()
    plots.save(figure, path)


def _available(epsilon: float) -> list[Mechanism]:
    """Return all mechanisms that exist for an epsilon: some only exist up to 16."""
    found = []
    for name in mechanism_names():
        with contextlib.suppress(DomainError):
            found.append(mechanism(name, epsilon))
    return found


def _ranking(epsilon: float) -> dict[str, Any]:
    every = _available(epsilon)
    every.sort(key=lambda ranked: ranked.worst_case_variance)
    least = every[0].worst_case_variance
    return {
        "epsilon": epsilon,
        "mechanisms": [
            {
                "name": ranked.name,
                "worst_case_variance": ranked.worst_case_variance,
                "relative": ranked.worst_case_variance / least,
                "variance_at_zero": float(ranked.variance(0.0)),
                "bound": ranked.bound if ranked.bound < float("inf") else None,
            }
            for ranked in every
        ],
    }


def _render_ranking(document: dict[str, Any]) -> Table:
    rendered = Table(
        title=f"Worst-case variance for one number in [-1, 1], epsilon = {document['epsilon']:g}"
    )
    rendered.add_column("mechanism", no_wrap=True)
    for heading in ("worst case", "times best", "at x = 0", "largest output"):
        rendered.add_column(heading, justify="right")
    for row in document["mechanisms"]:
        rendered.add_row(
            row["name"],
            f"{row['worst_case_variance']:.5g}",
            f"{row['relative']:.3f}" if row["relative"] < 1000 else f"{row['relative']:.1e}",
            f"{row['variance_at_zero']:.5g}",
            "unbounded" if row["bound"] is None else f"{row['bound']:.4g}",
        )
    return rendered


def _bits(epsilon: float) -> dict[str, Any]:
    try:
        bound = Optimal(epsilon).lower_bound
    except DomainError:  # certificates do not exist for such an epsilon
        bound = None
    rows = []
    for bits in range(1, _MOST_BITS + 1):
        channel = best_channel(epsilon, bits)
        variance = channel.worst_case_variance
        rows.append(
            {
                "bits": bits,
                "outputs": channel.outputs,
                "worst_case_variance": variance,
                "above_bound": None if bound is None else variance / bound - 1,
            }
        )
    return {"epsilon": epsilon, "lower_bound": bound, "channels": rows}


def _render_bits(document: dict[str, Any]) -> Table:
    bound = document["lower_bound"]
    rendered = Table(
        title=f"The best channel for each number of bits, epsilon = {document['epsilon']:g}",
        caption=None if bound is None else f"No unbiased mechanism can go below {bound:.5g}.",
    )
    for heading in ("bits", "outputs used", "worst-case variance", "above the bound"):
        rendered.add_column(heading, justify="right")
    for row in document["channels"]:
        rendered.add_row(
            str(row["bits"]),
            str(row["outputs"]),
            f"{row['worst_case_variance']:.5g}",
            "-" if bound is None else f"{100 * row['above_bound']:.2f}%",
        )
    return rendered


def _by_input(epsilon: float) -> dict[str, Any]:
    rows = [
        {"name": each.name, "variance": each.variance(_INPUTS).tolist()}
        for each in _available(epsilon)
    ]
    return {"epsilon": epsilon, "x": list(_INPUTS), "mechanisms": rows}


def _render_by_input(document: dict[str, Any]) -> Table:
    rendered = Table(title=f"Variance of one report, epsilon = {document['epsilon']:g}")
    rendered.add_column("mechanism", no_wrap=True)
    for x in document["x"]:
        rendered.add_column(f"x = {x:g}", justify="right")
    for row in document["mechanisms"]:
        rendered.add_row(row["name"], *(f"{variance:.4g}" for variance in row["variance"]))
    return rendered
