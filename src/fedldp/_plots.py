"""Figures. This module needs the extra `plots`: matplotlib."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from fedldp._internal.validation import Floats
from fedldp.errors import DomainError, MissingExtra
from fedldp.mechanisms import (
    Dominant,
    Duchi,
    NearZero,
    Optimal,
    ThreeOutputs,
    ThreeOutputsFlat,
    best_channel,
    mechanism,
    mechanism_names,
)
from fedldp.schema.units import DATE, named, shown_date

try:
    from matplotlib.figure import Figure
except ImportError as error:
    raise MissingExtra("matplotlib", "plots") from error

# Okabe and Ito's palette, safe for colour-blind readers, and greys.
BLACK, GREY, LIGHT_GREY = "#000000", "#666666", "#999999"
BLUE, SKY_BLUE, GREEN = "#0072B2", "#56B4E9", "#009E73"
VERMILION, ORANGE, PURPLE = "#D55E00", "#E69F00", "#CC79A7"

STYLES = {  # line styles tell lines apart in grey
    "laplace": (LIGHT_GREY, ":"),
    "duchi": (BLACK, "--"),
    "pm": (ORANGE, "--"),
    "hm": (SKY_BLUE, "--"),
    "three-outputs": (GREEN, "-"),
    "pm-sub": (VERMILION, "-"),
    "pm-opt": (PURPLE, "-."),
    "hm-tp": (BLUE, "-"),
    "three-outputs-flat": (GREEN, ":"),
}
SOLVED_STYLES = {  # found by linear programs: slower to compute
    "optimal": (BLACK, "-"),
    "dominant": (GREEN, "-."),
    "near-zero": (PURPLE, ":"),
}
NO_STYLE = (GREY, "--")  # of a mechanism that is in neither
DEFAULTS = {"dominant": "default for statistics", "near-zero": "default for sampled gradients"}
MOST_ROWS_IN_A_PICTURE = 100
MOST_DISTRIBUTIONS = 12
SUFFIXES = (".png", ".svg", ".pdf")


def check_path(path: Path) -> None:
    """Validate the file of a picture before any work is done for it."""
    if path.suffix not in SUFFIXES:
        raise DomainError(f"a picture's name must end in {', '.join(SUFFIXES)}; got {path}.")
    if not path.absolute().parent.is_dir():
        raise DomainError(f"there is no folder {path.parent} to write {path.name} to.")


def save(figure: Figure, path: Path) -> None:
    """Write a picture to a file."""
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise DomainError(f"cannot write {path}: {error.strerror}.") from error


def estimates(
    rows: Sequence[Mapping[str, Any]],
    title: str,
    distributions: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> Figure:
    """Draw estimates with their intervals, and the truth where a row has one.

    Each row has a name, an estimate, an interval, and the ends of the scale it is drawn on. Rows of
    one unit and scale share an axis, from the lowest to the highest value there can be. Of very
    many rows the first are drawn. Each distribution has panels of its own: its histogram, and its
    distribution function if it has one.
    """
    if len(rows) > MOST_ROWS_IN_A_PICTURE:
        title = f"{title} (the first {MOST_ROWS_IN_A_PICTURE} of {len(rows)})"
        rows = rows[:MOST_ROWS_IN_A_PICTURE]
    shapes = list(distributions.items())[:MOST_DISTRIBUTIONS]
    alike = _by_scale(rows)
    heights = [*(0.9 + 0.28 * len(mine) for mine in alike), *[3.0] * len(shapes)]
    heights[:1] = [0.7 + height for height in heights[:1]]  # of the title and the legend
    figure = Figure(figsize=(9 if shapes else 7, sum(heights)), layout="constrained")
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    panels: list[Any] = []
    for line, mine in enumerate(alike):
        panels.append(figure.add_subplot(grid[line, :]))
        _draw_rows(panels[-1], mine)
    for line, (name, shape) in enumerate(shapes, start=len(panels)):
        has_cdf = "cdf" in shape
        panels.append(figure.add_subplot(grid[line, 0] if has_cdf else grid[line, :]))
        _draw_histogram(panels[-1], name, shape)
        if has_cdf:
            _draw_cdf(figure.add_subplot(grid[line, 1]), name, shape)
    # Names are shown as they are: dollar signs in them do not begin a formula.
    figure.suptitle(title, parse_math=False)
    handles: dict[str, Any] = {}
    for axes in panels:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower right", ncols=2)
    return figure


def _by_scale(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return rows of one unit and scale together, in the order of their first."""
    alike: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        alike.setdefault((row.get("unit", ""), *row["scale"]), []).append(row)
    return [*alike.values()]


def _draw_rows(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    places = np.arange(len(rows))[::-1]
    for place, row in zip(places, rows, strict=True):
        if row["interval"][0] is None:
            continue
        axes.plot(row["interval"], [place, place], color=BLUE, linewidth=2)
        if row["estimate"] is not None:
            axes.plot(row["estimate"], place, "o", color=BLUE, markersize=5, label="estimate")
        if row.get("truth") is not None:
            style = {"color": VERMILION, "markersize": 13, "mew": 2}
            axes.plot(row["truth"], place, "|", label="truth", **style)
    unit, (low, high) = rows[0].get("unit", ""), rows[0]["scale"]
    margin = (high - low) / 50
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("frequency" if (low, high) == (0, 1) else unit, parse_math=False)
    axes.set_yticks(places, [row["name"] for row in rows], parse_math=False)
    axes.grid(axis="x", alpha=0.3)
    _dates(axes, unit)


def _dates(axes: Any, unit: str) -> None:
    """Write the numbers of an axis as dates, if they are days."""
    if unit == DATE:
        axes.xaxis.set_major_formatter(lambda days, _: shown_date(days, 1.0))
        axes.tick_params(axis="x", rotation=20)


def _draw_histogram(axes: Any, name: str, shape: Mapping[str, Any]) -> None:
    edges = np.array(shape["edges"])
    shares, errors = _with_errors(shape["histogram"])
    axes.bar(edges[:-1], shares, np.diff(edges), align="edge", color=SKY_BLUE, label="estimate")
    centres = edges[:-1] / 2 + edges[1:] / 2
    axes.errorbar(centres, shares, errors, fmt="none", color=BLUE, capsize=2, lw=1)
    truth = [entry.get("truth") for entry in shape["histogram"]]
    if None not in truth:
        axes.stairs(truth, edges, color=VERMILION, lw=1.5, label="truth")
    axes.set(ylabel="share of a bin", ylim=(0, None))
    _label(axes, name, edges, shape.get("unit", ""))


def _draw_cdf(axes: Any, name: str, shape: Mapping[str, Any]) -> None:
    edges = np.array(shape["edges"])
    shares, errors = _with_errors(shape["cdf"])
    axes.plot(edges, [0.0, *shares, 1.0], color=SKY_BLUE, lw=2)
    axes.errorbar(edges[1:-1], shares, errors, fmt="none", color=BLUE, capsize=2, lw=1)
    truth = [entry.get("truth") for entry in shape["histogram"]]
    if None not in truth:
        axes.plot(edges, [0.0, *np.cumsum(truth)], color=VERMILION, lw=1.5)
    axes.set(ylabel="share below", ylim=(0, 1))
    _label(axes, name, edges, shape.get("unit", ""))


def _with_errors(entries: Sequence[Mapping[str, Any]]) -> tuple[Floats, Floats]:
    """Return estimates, NaN for unknown ones, and how far their intervals reach down and up."""
    values = np.array([entry["estimate"] for entry in entries], np.float64)
    low, high = np.array([entry["interval"] for entry in entries], np.float64).T
    return values, np.stack([values - low, high - values])


def _label(axes: Any, name: str, edges: Floats, unit: str) -> None:
    axes.set_xlabel(named(name, unit), parse_math=False)
    axes.grid(alpha=0.3)
    _dates(axes, unit)
    if edges[0] > 0 and np.ptp(np.diff(np.log(edges))) < 1e-6:  # bins of equal ratios
        axes.set_xscale("log")


def compare_mechanisms() -> Figure:
    """Draw worst-case variance over epsilon, the same relative to `optimal`, and P(0 | 0).

    Mechanisms in closed form are drawn on a fine grid; those that a solver finds, the library's
    defaults among them, and whatever is relative to them at a few epsilons, joined by lines.
    """
    fine = np.linspace(0.25, 8.0, 311)
    coarse = np.array(
        [0.25, 0.5, 0.61, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0]
    )
    least = np.array([Optimal(e).worst_case_variance for e in coarse])

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    absolute, relative, zero = figure.subplots(1, 3)
    for name, look in mechanism_looks().items():
        grid = coarse if name in SOLVED_STYLES else fine
        absolute.semilogy(grid, _worst_cases(name, grid), **look)
        relative.plot(coarse, _worst_cases(name, coarse) / least, **look)
    absolute.set(title="Worst-case variance", ylabel="variance, log scale", ylim=(5e-3, 100))
    relative.set(title="Relative to optimal", ylabel="times that of optimal", ylim=(0.97, 2.0))
    for kind in (ThreeOutputs, ThreeOutputsFlat):
        colour, style = STYLES[kind.name]
        zero.plot(fine, [kind(e).a for e in fine], style, color=colour, label=kind.name)
    zero.set(title="P(0 | 0) of the three-output ones", ylabel="probability", ylim=(0, 1))
    for axes in (absolute, relative, zero):
        axes.set(xlabel="privacy budget ε", xlim=(0, 8))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        *absolute.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False
    )
    return figure


def mechanism_looks() -> dict[str, dict[str, Any]]:
    """Return how the line of each mechanism is drawn, also of one that has no style of its own."""
    looks = {}
    for name in mechanism_names():
        colour, style = (STYLES | SOLVED_STYLES).get(name, NO_STYLE)
        width = 2.4 if name in SOLVED_STYLES else 1.5
        label = f"{name} ({DEFAULTS[name]})" if name in DEFAULTS else name
        looks[name] = {"color": colour, "linestyle": style, "linewidth": width, "label": label}
    return looks


def _worst_cases(name: str, epsilons: Floats) -> Floats:
    return np.array([mechanism(name, e).worst_case_variance for e in epsilons])


def variance_over_inputs(epsilon: float) -> Figure:
    """Draw the variance over x of HM-TP and of the channels that go beyond it."""
    x = np.linspace(-1, 1, 801)
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    lines = (
        (mechanism("hm-tp", epsilon), BLUE, "-"),
        (Optimal(epsilon), VERMILION, "--"),
        (Dominant(epsilon), GREEN, "-."),
        (NearZero(epsilon), PURPLE, ":"),
    )
    for drawn, colour, style in lines:
        axes.plot(x, drawn.variance(x), style, color=colour, lw=2, label=drawn.name)
    axes.set(
        title=f"Variance of one report at ε = {epsilon:g} (channels: 31 outputs)",
        xlabel="the true value x",
        ylabel="variance",
        xlim=(-1, 1),
        ylim=(0, None),
    )
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    return figure


def bits_against_error(epsilon: float) -> Figure:
    """Draw what each further bit of a report gains."""
    bits = np.arange(1, 7)
    variances = [best_channel(epsilon, int(b)).worst_case_variance for b in bits]
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(bits, variances, "o-", color=BLUE, lw=2, label="best channel")
    marks = ((Duchi(epsilon), 1, "s"), (ThreeOutputs(epsilon), 2, "^"))
    for marked, b, mark in marks:
        axes.plot(b, marked.worst_case_variance, mark, color=VERMILION, ms=8, label=marked.name)
    with contextlib.suppress(DomainError):  # certificates do not reach every epsilon
        bound = Optimal(epsilon).lower_bound
        axes.axhline(bound, color=BLACK, ls="--", lw=1, label="no mechanism can go below")
    axes.set(
        title=f"Worst-case variance against bits, ε = {epsilon:g}",
        xlabel="bits in a report",
        ylabel="worst-case variance",
        xticks=bits,
        ylim=(0, 1.08 * variances[0]),
    )
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def compared(rows: Sequence[Any]) -> Figure:
    """Draw the errors of comparisons: over epsilon, or as points if there is one epsilon alone."""
    questions = list(dict.fromkeys(row.question for row in rows))
    heights = [1.4 + 0.26 * len({r.mechanism for r in rows if r.question == q}) for q in questions]
    figure = Figure(figsize=(8, sum(heights)), layout="constrained")
    panels = figure.subplots(len(questions), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, question in zip(panels, questions, strict=True):
        mine = [row for row in rows if row.question == question]
        if len({row.epsilon for row in mine}) > 1:
            _draw_compared_lines(axes, mine)
        else:
            _draw_compared_points(axes, mine)
        axes.set_title(question, parse_math=False)
        axes.grid(axis="both", alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _draw_compared_points(axes: Any, rows: Sequence[Any]) -> None:
    ordered = sorted(rows, key=lambda row: row.typical, reverse=True)
    for place, row in enumerate(ordered):
        colour = BLUE if row.can_be_released else LIGHT_GREY
        label = "fedldp" if row.can_be_released else "for study only"
        axes.plot(row.typical, place, "o", color=colour, ms=8, label=label)
        if row.worst == row.worst:
            axes.plot(row.worst, place, "|", color=VERMILION, ms=12, mew=2, label="worst case")
    axes.set_yticks(range(len(ordered)), [row.mechanism for row in ordered], parse_math=False)
    axes.set(xscale="log", xlabel=f"{rows[0].error}, at epsilon {rows[0].epsilon:g}")
    _plain_ticks(axes.xaxis)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(handles.values(), handles.keys(), frameon=False)


def _draw_compared_lines(axes: Any, rows: Sequence[Any]) -> None:
    """Draw the error of each mechanism, as a multiple of the least one at each epsilon."""
    epsilons = sorted({row.epsilon for row in rows})
    least = {e: min(row.typical for row in rows if row.epsilon == e) for e in epsilons}
    colours = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY_BLUE, BLACK)
    marks = "osD^vPX*<>hpd"
    for place, name in enumerate(dict.fromkeys(row.mechanism for row in rows)):
        mine = sorted((r for r in rows if r.mechanism == name), key=lambda r: r.epsilon)
        axes.plot(
            [row.epsilon for row in mine],
            [row.typical / least[row.epsilon] for row in mine],
            marker=marks[place % len(marks)],
            linestyle="-" if mine[0].can_be_released else "--",
            color=colours[place % len(colours)],
            label=name if mine[0].can_be_released else f"{name} (for study)",
        )
    axes.set(xlabel="privacy budget ε", ylabel="error, times the least", yscale="log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    _plain_ticks(axes.yaxis)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _plain_ticks(axis: Any) -> None:
    """Write the ticks of a logarithmic axis as plain numbers."""
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("{x:g}" if axis.get_view_interval().max() < 8 else "")


def expected_errors(
    over_size: Mapping[int, Any], over_epsilon: Mapping[float, Any], vehicles: int
) -> Figure:
    """Draw half of each expected interval over the size of a fleet, and over epsilon.

    Errors are shares of the largest one there can be, so that all units fit one axis.
    """
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    colours = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY_BLUE, BLACK, GREY)
    sizes = list(over_size)
    names = list(over_size[sizes[-1]])[: 2 * len(colours)]
    for place, name in enumerate(names):
        style = {"color": colours[place % len(colours)], "ls": "-" if place < 8 else "--"}
        rows = [over_size[size].get(name) for size in sizes]
        label = named(name, over_size[sizes[-1]][name].unit)
        left.plot(sizes, [_share(row) for row in rows], label=label, lw=2, **style)
        left.plot(sizes, [_share(row, worst=True) for row in rows], lw=1, alpha=0.4, **style)
        shares = [_share(expected.get(name)) for expected in over_epsilon.values()]
        right.plot(list(over_epsilon), shares, marker="o", lw=2, **style)
    left.set(xscale="log", xlabel="vehicles", title="typical, and at worst (thin)")
    right.set(xlabel="privacy budget ε", title=f"{vehicles:,} vehicles", xlim=(0, None))
    for axes in (left, right):
        axes.axhline(10, color=LIGHT_GREY, ls=":", lw=1)
        axes.set(yscale="log", ylabel="half of a 95% interval, of half the range")
        axes.yaxis.set_major_formatter("{x:g}%")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return figure


def _share(row: Any, *, worst: bool = False) -> float:
    """Return an expected error as a share of the largest one, in percent; NaN if it is no less."""
    if row is None:
        return float("nan")
    error = row.worst if worst else row.typical
    return 100 * error / row.range if error < row.range else float("nan")


def training_rounds(points: Sequence[Any], base_rate: float, title: str) -> Figure:
    """Draw the error and the loss of a model after some rounds; a point has all three."""
    figure = Figure(figsize=(7, 5), layout="constrained")
    error, loss = figure.subplots(2, 1, sharex=True)
    rounds = [point.round for point in points]
    error.axhline(base_rate, color=BLACK, ls="--", lw=1, label="base rate")
    error.plot(rounds, [point.error for point in points], color=BLUE, lw=2, label="model")
    loss.plot(rounds, [point.loss for point in points], color=BLUE, lw=2)
    error.set_title(title, parse_math=False)
    error.set(ylabel="error on the hold-out", ylim=(0, None))
    error.legend(frameon=False)
    loss.set(xlabel="round", ylabel="loss on the hold-out", ylim=(0, None))
    for axes in (error, loss):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def training_errors(
    runs: Sequence[Mapping[str, Any]], lines: Mapping[str, float], bare_label: str, title: str
) -> Figure:
    """Draw the error of trainings against epsilon, and against the number of vehicles.

    Each run has the number of its vehicles, its epsilon (None for a bare one, without noise), its
    error and, if it was repeated, the spread of that. On the left are the runs with the most
    vehicles. Lines are errors to compare with, by their names.
    """
    styles = ((VERMILION, "o"), (ORANGE, "s"), (BLUE, "^"), (GREEN, "D"))
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    figure.suptitle(title, parse_math=False)
    left, right = figure.subplots(1, 2, sharey=True)

    vehicles = [run["vehicles"] for run in runs]
    largest = [run for run in runs if run["vehicles"] == max(vehicles)]
    private = [run for run in largest if run["epsilon"] is not None]
    _errors(left, "epsilon", private, color=GREY, fmt="-")
    for number, run in enumerate(private):
        colour, mark = styles[number % len(styles)]
        left.plot(run["epsilon"], 100 * run["error"], mark, color=colour, ms=7, zorder=3)
        left.annotate(
            f"{100 * run['error']:.1f}%",
            (run["epsilon"], 100 * run["error"]),
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
        )
        same = [other for other in runs if other["epsilon"] == run["epsilon"]]
        label = f"ε = {run['epsilon']:g}"
        _errors(right, "vehicles", same, color=colour, fmt=f"{mark}-", label=label)
    for run in largest:
        if run["epsilon"] is None:
            left.axhline(100 * run["error"], color=BLACK, lw=1)
    bare = [run for run in runs if run["epsilon"] is None]
    _errors(right, "vehicles", bare, color=BLACK, fmt=".-", label=bare_label, lw=1)
    for axes in (left, right):
        for (label, error), style in zip(lines.items(), ("--", ":"), strict=True):
            axes.axhline(100 * error, color=BLACK, ls=style, lw=1, label=label)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    left.set(
        title=f"{max(vehicles):,} vehicles", xlabel="privacy budget ε", ylabel="wrong, percent"
    )
    left.set(xticks=[run["epsilon"] for run in private], ylim=(0, None))
    left.margins(x=0.1)  # room for the labels at both ends
    right.set(title="fleets of several sizes", xlabel="vehicles, log scale", xscale="log")
    ticks = sorted(set(vehicles))
    right.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    right.minorticks_off()
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def _errors(axes: Any, over: str, runs: Sequence[Mapping[str, Any]], **style: Any) -> None:
    """Draw the errors of some runs, in percent, with their spread."""
    axes.errorbar(
        [run[over] for run in runs],
        [100 * run["error"] for run in runs],
        [100 * (run["spread"] or 0.0) for run in runs],
        **{"lw": 2, "capsize": 4, **style},
    )
