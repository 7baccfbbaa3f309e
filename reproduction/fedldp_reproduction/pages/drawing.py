"""Draw a finished figure, and say in words what is to be seen in it."""

from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from itertools import cycle, pairwise
from math import inf, log10
from textwrap import fill
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from fedldp._plots import BLACK, GREEN, LIGHT_GREY, ORANGE, PURPLE, STYLES, VERMILION
from fedldp.errors import DomainError
from fedldp_reproduction.results import FigureResult, Point

WIDE, NARROW = 10.0, 4.0  # inches: of a page, and of a phone

# What the paper does not have; lines of one picture differ in colour, or else in style and mark.
_STYLES = STYLES | {
    "non-private": (BLACK, "-"),
    "converged": (LIGHT_GREY, "-"),
    "baseline": (LIGHT_GREY, "-."),
    "duchi-2018": (BLACK, ":"),
    "optimal": (VERMILION, "--"),
    "dominant": (GREEN, "-."),
    "near-zero": (PURPLE, ":"),
    "cube": (ORANGE, "-."),
}
_PREFERRED = ("hm-tp", "pm-sub", "three-outputs", "pm-opt", "pm", "hm", "duchi", "laplace")
_COLOURS = tuple(STYLES[name][0] for name in _PREFERRED)
_LINES = ("-", "--", "-.", ":")
_MARKS = "os^Dv<>P"
_CHARACTERS = 12  # to an inch
_MOST_COLUMNS = 3
_MOST_TICKS = 6
_ALONE = 7.0  # inches: a single panel needs no more
_HEIGHT = 3.2
_LINEAR_SPAN = 30.0  # by which factor positive values may differ before their axis is logarithmic


def heading(result: FigureResult) -> str:
    """Return the title of a figure, which says SYNTHETIC where its data are made up."""
    if not result.synthetic or "SYNTHETIC" in result.title:
        return result.title
    sampled = [point for point in result.points if point.runs]
    told = ["SYNTHETIC" in panel for panel in _names(sampled, "panel")]
    partly = "partly " if any(told) and not all(told) else ""
    return f"{result.title} ({partly}SYNTHETIC data)"


def draw(result: FigureResult, width: float = WIDE) -> Figure:
    """Draw a figure of the paper: panels side by side, a line for each series.

    Narrow pictures, for phones, have their panels one below the other and no title: on a phone
    it stands in the text above.

    >>> from fedldp_reproduction.results import Point, FigureResult
    >>> points = tuple(Point("", "duchi", x, 1 / x, None, None, 0) for x in (0.5, 1.0, 2.0))
    >>> head = ("a", "Title", "Fig. 1", "ε", "y", False, True)
    >>> result = FigureResult(*head, points, (), (), (), False)
    >>> [len(axes.lines) for axes in draw(result).axes]
    [1]
    """
    if not result.points:
        raise DomainError(f"{result.key} has no points to draw: it is a table.")
    panels, series = _names(result.points, "panel"), _names(result.points, "series")
    narrow = width <= NARROW
    columns = 1 if narrow else _columns(len(panels))
    rows = -(-len(panels) // columns)
    width = min(width, _ALONE) if columns == 1 else width
    room = 0.8 * width / columns  # beside the numbers of the axis
    names = max(1, int(_CHARACTERS * width / (max(map(len, series)) + 7)))  # in a line
    height = _HEIGHT * rows + 0.25 * -(-len(series) // names) + 0.4
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    styles = dict(zip(series, _styles(series), strict=True))
    for axes, panel in zip(grid.flat, panels, strict=False):
        shown = [point for point in result.points if point.panel == panel]
        axes.set_title(_wrapped(panel, room), fontsize="medium", parse_math=False)
        for name in _names(shown, "series"):
            _line(axes, [point for point in shown if point.series == name], styles[name])
        _axes(axes, result, shown)
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    for axes in figure.axes[-columns:]:
        axes.set_xlabel(_wrapped(result.x_label, room), parse_math=False)
    for axes in grid[:, 0]:
        axes.set_ylabel(_wrapped(result.y_label, _HEIGHT), parse_math=False)
    if not narrow:
        figure.suptitle(_wrapped(heading(result), width), parse_math=False)
    handles = _handles(figure)
    legend = figure.legend(
        [handles[name] for name in series],
        series,
        loc="outside upper center" if narrow else "outside lower center",
        ncols=min(names, len(series)),
        frameon=False,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def svg(figure: Figure) -> str:
    """Return a picture as text: the same picture, the same text."""
    text = StringIO()
    with rc_context({"svg.hashsalt": "fedldp"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def describe(result: FigureResult) -> str:
    """Return what is to be seen in a picture, for those who cannot see it.

    >>> from fedldp_reproduction.results import Point, FigureResult
    >>> points = tuple(Point("", "duchi", x, 1 / x, None, None, 0) for x in (0.5, 1.0, 2.0))
    >>> head = ("a", "Title", "Fig. 1", "ε", "y", False, True)
    >>> describe(FigureResult(*head, points, (), (), (), False))
    'Lines of y (log scale) over ε from 0.5 to 2: duchi. It goes from 2 at 0.5 to 0.5 at 2.'
    """
    series, panels = _names(result.points, "series"), _names(result.points, "panel")
    places = [point.x for point in result.points]
    y, x = _axis(result.y_label, result.y_log), _axis(result.x_label, result.x_log)
    span = f"from {min(places):.4g} to {max(places):.4g}"
    sentences = [f"Lines of {y} over {x} {span}: {'; '.join(series)}"]
    for panel in panels:
        points = [point for point in result.points if point.panel == panel]
        told = _told(points, len(series))
        name = panel if result.y_log else _axis(panel, _has_log_axis(result, points))
        sentences.append(f"{name}: {told}" if panel else f"{told[0].upper()}{told[1:]}")
    return ". ".join(sentences) + "."


def _told(points: Sequence[Point], competitors: int) -> str:
    """Return who is where in a panel: at its end, or each from its start to its end."""
    far = max(point.x for point in points)
    last = sorted((point for point in points if point.x == far), key=lambda point: point.y)
    if len(last) > 1 and last[0].series != last[-1].series:
        low, high = last[0], last[-1]
        return (
            f"at {far:.4g} the lowest is {low.series} with {low.y:.4g}, "
            f"the highest {high.series} with {high.y:.4g}"
        )
    courses = []
    for name in _names(points, "series"):
        course = [point for point in points if point.series == name]
        start, end = course[0], course[-1]
        who = name if competitors > 1 else "it"
        courses.append(f"{who} goes from {start.y:.4g} at {start.x:.4g} to {end.y:.4g}")
        courses[-1] += f" at {end.x:.4g}"
    return "; ".join(courses)


def _has_log_axis(result: FigureResult, points: Sequence[Point]) -> bool:
    """Return whether a panel is drawn on a log scale, without which its low values are one line."""
    values = [point.y for point in points]
    return result.y_log or 0 < _LINEAR_SPAN * min(values) < max(values)


def _axis(label: str, log: bool) -> str:
    return f"{label} (log scale)" if log else label


def _names(points: Iterable[Point], field: str) -> list[str]:
    """Return the panels or series, each once, in the order in which they come."""
    return list(dict.fromkeys(getattr(point, field) for point in points))


def _columns(panels: int) -> int:
    """Return how many columns leave the fewest gaps: four panels make a square."""
    return 2 if panels in (2, 4) else min(panels, _MOST_COLUMNS)


def _styles(series: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Return colour, line and mark of each series: its own, or one that nobody else has."""
    known = [_STYLES[name] for name in series if name in _STYLES]
    taken = {colour for colour, _ in known}
    palette = sorted(_COLOURS, key=taken.__contains__)  # what is free comes first
    spare = ((c, line) for line in _LINES for c in palette if (c, line) not in known)
    for name, mark in zip(series, cycle(_MARKS), strict=False):
        yield (*(_STYLES[name] if name in _STYLES else next(spare)), mark)


def _axes(axes: Any, result: FigureResult, points: Sequence[Point]) -> None:
    places = sorted({point.x for point in points})
    apart = min((after - before for before, after in pairwise(places)), default=0.0)
    if result.x_log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(base=2, numticks=_MOST_TICKS))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    elif _MOST_TICKS * apart >= (places[-1] - places[0]) / 2:
        axes.set_xticks(places, [f"{place:g}" for place in places])
    log = _has_log_axis(result, points)
    if log:
        axes.set_yscale("log")
    elif min(point.y for point in points) < 0 < max(point.y for point in points):
        axes.axhline(0, color=BLACK, lw=0.8)
    if any(point.low is not None for point in points):
        axes.set_ylim(*_limits(points, log))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _limits(points: Sequence[Point], log: bool) -> tuple[float, float]:
    """Return where the values are; of long intervals, half as much above and below."""
    scale = log10 if log else float
    least = 0.0 if log else -inf  # below it an interval has no end to be seen
    values = [scale(point.y) for point in points]
    ends = [end for point in points for end in (point.low, point.high) if end is not None]
    shown = values + [scale(end) if end > least else -inf for end in ends]
    room = (max(values) - min(values) or abs(values[0]) or 1.0) / 2
    low, high = max(min(shown), min(values) - room), min(max(shown), max(values) + room)
    low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)
    return (10**low, 10**high) if log else (low, high)


def _line(axes: Any, points: Sequence[Point], style: tuple[str, str, str]) -> None:
    """Draw a series: marks and intervals where it was sampled, a curve where it was computed."""
    colour, line, mark = style
    sampled = any(point.runs for point in points)
    errors = [
        [0.0 if point.low is None else point.y - point.low for point in points],
        [0.0 if point.high is None else point.high - point.y for point in points],
    ]
    axes.errorbar(
        [point.x for point in points],
        [point.y for point in points],
        errors if sampled else None,
        label=points[0].series,
        color=colour,
        linestyle=line,
        marker=mark if sampled or len(points) == 1 else "",
        markersize=4,
        linewidth=1.5,
        zorder=2 if line == "-" else 3,  # of two that are equal, both can be seen
        elinewidth=1,
    )


def _handles(figure: Figure) -> dict[str, Any]:
    """Return what a legend shows of each series, wherever it is drawn."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        lines, labels = axes.get_legend_handles_labels()
        found = dict(zip(labels, lines, strict=True)) | found
    return found


def _wrapped(text: str, inches: float) -> str:
    return fill(text, int(_CHARACTERS * inches))
