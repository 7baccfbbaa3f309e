"""`fedldp estimate`: means, frequencies and distributions with error bars."""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from math import ceil, nan
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np
from rich.markup import escape
from rich.table import Table

from fedldp._internal.text import counted, number_and_interval, or_none, rounded
from fedldp.budget.calendars import Trend
from fedldp.budget.shuffling import shuffled_epsilon
from fedldp.cli.plans import (
    INPUT,
    OUTPUT,
    add,
    console,
    naming,
    read_plan,
    read_plan_and_calendar,
    read_schema,
)
from fedldp.errors import DomainError, ImplausibleWarning
from fedldp.plan.plan import Plan
from fedldp.results.estimate import ESTIMATORS, TARGETS, Estimate, compare_estimates
from fedldp.results.summary import shortfalls
from fedldp.results.tally import Tally
from fedldp.schema import units
from fedldp.schema.attributes.results import EMPIRICAL_BAYES
from fedldp.schema.schema import Schema

Command = TypeVar("Command", bound=Callable[..., Any])

_BAR = 20  # the length of the longest bar
_NAME = 16  # characters of a name in one line, at least
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_PROJECTED = (
    "Projected frequencies are not negative and add up to 1. A prior learned from all labels "
    "(empirical Bayes) gives them less error. The intervals are for the unbiased estimates."
)
_NOT_NEGATIVE = (
    "Frequencies are projected: none is negative, and all add up to 1. The intervals are for the "
    "unbiased estimates, which --json shows."
)
_GAIN = 0.9  # of a plan's epsilon: if shuffling leaves more of it, it is not worth a sentence
SHUFFLED_DELTA = 1e-9  # of the privacy that a trusted shuffler would add


def estimate_options(of: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of estimates; `of` is the default of --of."""

    def options(command: Command) -> Command:
        return add(
            command,
            click.option(
                "--estimator",
                type=click.Choice(ESTIMATORS),
                help="Divide by the number of answers (ratio), or by their expected number as in "
                "the paper (horvitz-thompson).  [default: the plan's]",
            ),
            click.option(
                "--of",
                type=click.Choice(TARGETS),
                default=of,
                show_default=True,
                help="What the error bars are for: the mean of a population of which these "
                "vehicles are a sample, or the mean of these vehicles (fleet).",
            ),
            click.option(
                "--confidence",
                type=click.FloatRange(0, 1, min_open=True, max_open=True),
                default=0.95,
                show_default=True,
                help="The probability that an interval contains the true value.",
            ),
            click.option(
                "--plot",
                type=OUTPUT,
                callback=_check_plot,
                metavar="FILE",
                help="Also draw the estimates (.png, .svg or .pdf).",
            ),
            click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts."),
        )

    return options


def estimate_of(tally: Tally, estimator: str | None, *, of: str, confidence: float) -> Estimate:
    """Return the estimate of a tally; print warnings about implausible reports to stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImplausibleWarning)
        estimate = tally.estimate(estimator, of=of, confidence=confidence)
    for text in estimate.warnings:
        click.echo(f"Warning: {text}", err=True)
    return estimate


def _check_plot(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    """Refuse a picture that cannot be written, before any work is done."""
    if path is not None:
        from fedldp import _plots as plots

        plots.check_path(path)
    return path


def lines(estimate: Estimate, schema: Schema) -> Iterator[dict[str, Any]]:
    """Yield each estimated number, with its name and its error."""
    for name, result in estimate.items():
        attribute, shown = schema[name], result.shown
        values = np.atleast_1d(shown.values)
        shape = values.size
        columns = zip(
            map(attribute.estimand.line, range(shape)),
            values.tolist(),
            np.atleast_1d(shown.stderr).tolist(),
            np.reshape(shown.interval, (shape, 2)).tolist(),
            np.reshape(shown.simultaneous, (shape, 2)).tolist(),
            np.broadcast_to(shown.answers, shape).tolist(),
            strict=True,
        )
        projected = None if shown.projected is None else shown.projected.tolist()
        for place, (line, value, stderr, interval, simultaneous, answers) in enumerate(columns):
            label, ends = line
            row = {
                "name": label,
                "estimate": or_none(value),
                "stderr": or_none(stderr),
                "interval": [or_none(end) for end in interval],
                "simultaneous": [or_none(end) for end in simultaneous],
                "answers": answers,
                "scale": list(ends),
                **({"unit": attribute.unit} if attribute.unit and ends != (0.0, 1.0) else {}),
            }
            if projected is not None:
                row |= {"projected": or_none(projected[place]), "projected_by": shown.projected_by}
            yield row


def distributions(
    estimate: Estimate, schema: Schema, rows: list[dict[str, Any]]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the distributions of an estimate, with the truth if rows have it, and other rows."""
    documents, others, start = {}, [], 0
    for name, result in estimate.items():
        stop = start + np.size(result.shown.values)
        for group, details in (shapes := result.distributions).items():
            unit = {"unit": schema[name].unit} if schema[name].unit else {}
            documents[f"{name}, {group}" if group else name] = details | unit
            # The rows begin with the bins. Within groups they are not shares of a group.
            for entry, row in zip(details["histogram"], rows[start:stop], strict=False):
                entry |= {"truth": row["truth"]} if "truth" in row and not group else {}
        others += [] if shapes else rows[start:stop]
        start = stop
    return documents, others


def show(title: str, estimate: Estimate, schema: Schema, rows: list[dict[str, Any]]) -> None:
    """Print a table of estimates, and one with bars for each distribution."""
    _, others = distributions(estimate, schema, rows)
    if others:
        console().print(render(title, others, estimate.confidence))
    start = 0
    for name, result in estimate.items():
        stop = start + np.size(result.shown.values)
        if result.heights is not None:
            heading = f"{units.named(name, schema[name].unit)}: {counted(result.answers, 'answer')}"
            heading = heading if others else f"{title}\n{heading}"
            bins = zip(rows[start:stop], result.shown.labels, result.heights, strict=True)
            console().print(_with_bars(heading, [*bins], estimate.confidence))
        if result.summary:
            console().print(f"{name}: {result.summary}", markup=False)
        start = stop


def _with_bars(
    title: str, rows: list[tuple[dict[str, Any], str, float]], confidence: float
) -> Table:
    """Return a table of a distribution: each row has a label and a bar of some height."""
    rendered = Table(title=escape(title))
    rendered.add_column("bin")
    numbers = [key for key in ("truth", "estimate") if key in rows[0][0]]
    heading, intervals = _intervals([row for row, _, _ in rows], confidence)
    for column in (*numbers, heading):
        rendered.add_column(column, justify="right", no_wrap=True)
    rendered.add_column("", no_wrap=True, min_width=_BAR)
    for (row, label, height), interval in zip(rows, intervals, strict=True):
        means = (_number_text(number, _half(row)) for number in map(row.get, numbers))
        rendered.add_row(escape(label), *means, interval, bar(height))
    return rendered


def _intervals(rows: list[dict[str, Any]], confidence: float) -> tuple[str, list[str]]:
    """Return the column of intervals: its heading, and a text for each row.

    If both sides of all intervals are alike, as far as they are shown, half of each is enough.
    """
    texts = [
        "-"
        if row["interval"][0] is None
        else number_and_interval(
            nan if row["estimate"] is None else row["estimate"], *row["interval"]
        )[1]
        for row in rows
    ]
    if all(text == "-" or text.startswith("±") for text in texts):
        return f"± ({100 * confidence:g}%)", [text.removeprefix("± ") for text in texts]
    return f"{100 * confidence:g}% interval", texts


def bar(height: float) -> str:
    """Return a bar of a height from 0 to 1, which lies on its side.

    >>> bar(0.5), bar(0.01)
    ('██████████', '▎')
    """
    whole, eighths = divmod(ceil(8 * _BAR * height), 8)
    return "█" * whole + _EIGHTHS[eighths]


def render(title: str, rows: list[dict[str, Any]], confidence: float) -> Table:
    """Return a table of estimates, beside the truth if it is known.

    If values were clipped or replaced, the table also has the mean of the values that the vehicles
    used, and the shares of such values. Frequencies of many labels have a second estimate, of less
    error.
    """
    better = [row.get("projected_by") == EMPIRICAL_BAYES for row in rows]
    points = [point(row) for row in rows]
    captions = [_PROJECTED] if any(better) else []
    captions += [_NOT_NEGATIVE] if any(map(_is_moved, rows)) else []
    rendered = Table(title=title, caption=" ".join(captions) or None)
    rendered.add_column("what", overflow="fold", min_width=_NAME)
    numbers, shares = [key for key in ("truth",) if key in rows[0]], []
    if any(row.get("clipped") or row.get("replaced") for row in rows):
        numbers, shares = ["truth", "used"], ["clipped", "replaced"]
    heading, intervals = _intervals(rows, confidence)
    projected = ["projected"] if any(better) else []
    for column in (*numbers, "estimate", heading, *projected, *shares, "answers"):
        rendered.add_column(column, justify="right", no_wrap=True)
    for row, value, interval, is_better in zip(rows, points, intervals, better, strict=True):
        likely = [
            _number_text(row["projected"] if is_better else None, _half(row)) for _ in projected
        ]
        means = [_unit_text(row, number) for number in (*map(row.get, numbers), value)]
        parts = [f"{row[key]:.1%}" for key in shares]
        name = units.named(row["name"], row.get("unit", ""))
        rendered.add_row(name, *means, interval, *likely, *parts, str(row["answers"]))
    return rendered


def point(row: dict[str, Any]) -> float | None:
    """Return the estimate that people are shown: a share is not negative.

    >>> point({"estimate": -0.01, "projected": 0.0, "projected_by": "projection"})
    0.0
    """
    is_projected = row.get("projected_by", EMPIRICAL_BAYES) != EMPIRICAL_BAYES
    value: float | None = row["projected" if is_projected else "estimate"]
    return value


def _is_moved(row: dict[str, Any]) -> bool:
    """Return whether people are shown another estimate than the unbiased one."""
    value = point(row)
    return value is not None and _unit_text(row, value) != _unit_text(row, row["estimate"])


def _half(row: dict[str, Any]) -> float | None:
    """Return half the length of a row's interval, if it is known."""
    low, high = row["interval"]
    return None if low is None else (high - low) / 2


def _unit_text(row: dict[str, Any], number: float | None) -> str:
    """Return a number as its unit is shown, rounded to two digits of the row's error."""
    return "-" if number is None else units.shown(number, _half(row) or 0.0, row.get("unit", ""))


def _number_text(number: float | None, error: float | None) -> str:
    """Return a number rounded to two digits of its error."""
    return "-" if number is None else rounded(number, error or 0.0)


def draw(
    path: Path, rows: list[dict[str, Any]], shapes: Mapping[str, Mapping[str, Any]], title: str
) -> None:
    """Draw estimates and distributions with their intervals to a file."""
    from fedldp import _plots as plots

    shown = [row | {"estimate": point(row)} for row in rows]
    plots.save(plots.estimates(shown, title, shapes), path)


def shuffled_privacy(plan: Plan, reports: int) -> dict[str, float]:
    """Return the privacy of all reports together if somebody trusted shuffled them."""
    epsilon = shuffled_epsilon(plan.epsilon, max(reports, 1), SHUFFLED_DELTA)
    return {"epsilon": epsilon, "delta": SHUFFLED_DELTA}


def _gain(plan: Plan, tally: Tally) -> str:
    """Return what a trusted shuffler would add, as a sentence; nothing if it is next to nothing."""
    central = shuffled_privacy(plan, tally.reports)
    if central["epsilon"] > _GAIN * float(plan.epsilon):
        return ""
    return (
        " If somebody whom the vehicles trust shuffled the reports (an additional assumption), all "
        f"of them together would be ({central['epsilon']:.2g}, {central['delta']:g})-private."
    )


@click.command("estimate")
@click.argument("plan_file", metavar="PLAN", type=INPUT)
@click.argument("tally_file", metavar="TALLY", type=INPUT)
@click.option(
    "--minus",
    type=INPUT,
    metavar="TALLY",
    help="Show by how much the estimates are larger than those of this tally, of the same plan.",
)
@click.option(
    "--schema",
    "schema_file",
    type=INPUT,
    metavar="FILE",
    help="The schema that the plan was made of (TOML): show its units, which a plan does not have.",
)
@estimate_options(of="population")
def estimate_command(
    plan_file: Path,
    tally_file: Path,
    minus: Path | None,
    schema_file: Path | None,
    estimator: str | None,
    of: str,
    confidence: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Show means, frequencies and distributions with error bars.

    \b
    fedldp estimate plan.json tally.json
    fedldp estimate plan.json tally.json --of fleet    only of these vehicles
    fedldp estimate plan.json tally.json --plot estimates.png
    fedldp estimate plan.json autumn.json --minus spring.json
    fedldp estimate plan.json tally.json --schema fleet.toml    with units

    PLAN is the file that `fedldp plan` wrote, TALLY the file of `fedldp tally`
    or the result of a fleet. If a fleet collected fewer reports than planned,
    standard error says so.
    """  # noqa: D301 (click wants the character \b itself)
    plan = read_plan(plan_file)
    schema = plan.schema
    if schema_file is not None:
        declared = read_schema(schema_file)
        with naming(schema_file):
            schema = _with_units(schema, declared)
    with naming(tally_file):
        tally = plan.load_tally(tally_file)
    for line in shortfalls(tally_file):
        console(stderr=True, soft_wrap=True).print(line)
    estimate = estimate_of(tally, estimator, of=of, confidence=confidence)
    if minus is not None:
        with naming(minus):
            earlier = plan.load_tally(minus)
        estimate = compare_estimates(
            estimate, estimate_of(earlier, estimator, of=of, confidence=confidence)
        )
        tally += earlier
    rows = list(lines(estimate, schema))
    what = "Estimates" if minus is None else "Differences"
    title = f"{what} from {tally.reports} vehicle{'s' * (tally.reports != 1)}"
    shapes, others = distributions(estimate, schema, rows)
    if plot is not None:
        draw(plot, others, shapes, title)
    if as_json:
        document = {
            "vehicles": tally.reports,
            "confidence": confidence,
            "estimates": rows,
            **({"distributions": shapes} if shapes else {}),
            "shuffled": shuffled_privacy(plan, tally.reports),
            "warnings": list(estimate.warnings),
        }
        click.echo(json.dumps(document, indent=2))
        return
    show(title, estimate, schema, rows)
    console().print(
        f"Each report is {plan.epsilon:g}-private against everybody.{_gain(plan, tally)}"
    )
    if plot is not None:
        console().print(f"Wrote {plot}", soft_wrap=True)


def _with_units(schema: Schema, declared: Schema) -> Schema:
    """Return a plan's schema with the units of the schema that the plan was made of."""
    attributes = []
    for attribute in schema.attributes:
        own = declared[attribute.name]
        if own != attribute and not own.unresolved:
            raise DomainError(
                f"{attribute.name!r} must be as in the plan, {attribute!r:.200}; got {own!r:.200}."
            )
        has_unit = any(field.name == "unit" for field in fields(attribute))  # type: ignore[arg-type]
        if own == attribute:
            attributes.append(own)
        else:
            attributes.append(replace(attribute, unit=own.unit) if has_unit else attribute)  # type: ignore[type-var]
    return Schema(tuple(attributes))


@click.command("trend")
@click.argument("plan_file", metavar="CALENDAR", type=INPUT)
@click.argument("tallies", metavar="[PERIOD=]TALLY...", nargs=-1, required=True)
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="The probability that an interval contains the true value.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def trend_command(
    plan_file: Path, tallies: tuple[str, ...], confidence: float, as_json: bool
) -> None:
    """Show how estimates change over the periods of a calendar.

    \b
    fedldp trend calendar.json day-1.json day-2.json day-3.json
    fedldp trend calendar.json 1=monday.json 5=friday.json

    CALENDAR is the file that `fedldp plan --periods` wrote. Each TALLY is the
    file of `fedldp tally` for one period; the first one is that of period 1,
    and each one without a number follows the one before it.

    The slope is the growth in one period. Error bars are for one number; with
    --json there are also wider ones, which hold for all numbers at once.
    """  # noqa: D301 (click wants the character \b itself)
    plan, calendar = read_plan_and_calendar(plan_file)
    if calendar is None:
        raise click.UsageError(
            f"{plan_file} is a plan without periods; compare two tallies with fedldp estimate "
            "--minus."
        )
    loaded = {}
    for period, path in _by_period(tallies).items():
        with naming(path):
            loaded[period] = plan.load_tally(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImplausibleWarning)
        trend = calendar.trend(loaded, confidence=confidence)
    for text in trend.slope.warnings:
        click.echo(f"Warning: {text}", err=True)
    described = dict(_trend_rows(trend, min(loaded), plan.schema))
    if as_json:
        document = {
            "confidence": confidence,
            "vehicles": {period: tally.reports for period, tally in loaded.items()},
            "trend": [{"what": what, "estimates": rows} for what, rows in described.items()],
        }
        click.echo(json.dumps(document, indent=2))
        return
    for what, rows in described.items():
        console().print(render(what, rows, confidence))


def _by_period(given: tuple[str, ...]) -> dict[int, Path]:
    """Return the file of each period."""
    path_of: dict[int, Path] = {}
    period = 0
    for text in given:
        number, sign, name = text.partition("=")
        named = bool(sign) and number.isascii() and number.isdigit()
        period, path = (int(number), Path(name)) if named else (period + 1, Path(text))
        if period in path_of:
            raise DomainError(f"period {period} is given twice: {path_of[period]} and {path}.")
        path_of[period] = path
    return path_of


def _trend_rows(
    trend: Trend, before: int, schema: Schema
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the slope and each change with what it is."""
    yield "Slope per period", list(lines(trend.slope, schema))
    for after, change in trend.changes.items():
        yield f"Change from period {before} to {after}", list(lines(change, schema))
        before = after
