"""`fedldp schema` and `fedldp plan`: from columns to the plan that both sides use."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from fedldp._internal.text import listed, or_none, unknown
from fedldp.budget.calendars import Calendar, is_calendar
from fedldp.budget.composition import COMPOSITION_DELTA
from fedldp.cli.options import declared_option, pop_strategy
from fedldp.errors import DomainError, PrivacyError, UnknownName, WireError
from fedldp.learn.settings import Settings
from fedldp.mechanisms import mechanism_names
from fedldp.plan.expectation import Expectation, ExpectedError
from fedldp.plan.plan import Plan
from fedldp.plan.strategies import (
    AUTO,
    PAPER_MECHANISM,
    Choice,
    Directions,
    Sample,
    choose,
)
from fedldp.schema import frames, vss
from fedldp.schema.quality import DataQuality
from fedldp.schema.schema import Schema, template
from fedldp.schema.units import named
from fedldp.storage import files
from fedldp.vehicle import exact

Command = TypeVar("Command", bound=Callable[..., Any])


class _Output(click.Path):
    """A file to write; an error if its folder does not exist, before any work is done."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        path = Path(str(super().convert(value, param, ctx)))
        if not path.absolute().parent.is_dir():
            self.fail(
                f"cannot write {path.name}: the folder {path.parent} does not exist.", param, ctx
            )
        return path


PIPE_WIDTH = 200  # characters of a line that is not for a terminal

INPUT = click.Path(path_type=Path, exists=True, dir_okay=False)
OUTPUT = _Output(path_type=Path, dir_okay=False)


def console(**options: Any) -> Console:
    """Return a console that prints texts of users unchanged, without markup.

    In a pipe or a file, where nothing says how wide a line may be, it is wide: long names and
    numbers must stay in one piece for the program that reads them.
    """
    made = Console(highlight=False, markup=False, emoji=False, **options)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PIPE_WIDTH
    return made


def add(command: Command, *options: Callable[[Command], Command]) -> Command:
    """Add options to a command; the help shows them in this order."""
    for option in reversed(options):  # the option that is added last comes first in the help
        command = option(command)
    return command


def plan_options(command: Command) -> Command:
    """Add the options that describe a plan, except the schema."""
    return add(
        command,
        declared_option(
            Settings,
            "epsilon",
            type=float,
            help="The privacy budget of a vehicle, for all that it sends.",
        ),
        declared_option(
            Sample,
            "mechanism",
            type=click.Choice([AUTO, *mechanism_names()]),
            help="The mechanism for numbers, one of those that `fedldp mechanisms` shows; auto is "
            "dominant. Directions and the cube need none.",
            metavar="NAME",
        ),
        declared_option(
            Settings,
            "strategy",
            help="What each vehicle answers. sample: k coordinates; split: all, each with a part "
            "of the budget; paper: numbers and categories apart, as in the paper; cube: a sign for "
            "each number; directions: one direction for a vector. auto is directions for a vector "
            "with a bounded length, cube for numbers alone if it has clearly less error, else "
            "sample.",
        ),
        click.option(
            "--compact",
            is_flag=True,
            help="Send categories in few bits, with about the same error. Older vehicles refuse "
            "such a plan.",
        ),
        declared_option(
            Directions,
            "mean_length",
            default=None,
            type=float,
            help="For directions: a public guess of the mean length of the vectors, as a share of "
            "the bound.",
        ),
        declared_option(Directions, "fleet"),
        answer_options,
    )


def answer_options(command: Command) -> Command:
    """Add the options that say what each vehicle answers, beside the strategy."""
    return add(
        command,
        *(declared_option(Sample, name) for name in ("k", "outputs")),
        click.option(
            "--paper",
            is_flag=True,
            help="Follow the paper in all that it specifies. Its mechanism is hm-tp unless you "
            "name another one of the paper's.",
        ),
    )


def given_options(*names: str) -> list[str]:
    """Return which of a command's options the user gave."""
    context = click.get_current_context()
    default = ParameterSource.DEFAULT
    return [name for name in names if context.get_parameter_source(name) != default]


def check_paper(*fixed: str) -> None:
    """Refuse options that --paper decides."""
    if found := given_options(*fixed):
        options = " and ".join(f"--{name.replace('_', '-')}" for name in found)
        raise click.UsageError(f"--paper decides {options}: leave out one or the other.")


def make_plan(
    schema: Path,
    epsilon: float,
    mechanism: str,
    paper: bool,
    outputs: int | None,
    study: bool = False,
    compact: bool = False,
    **options: Any,
) -> Plan:
    """Return the plan that a command's options describe."""
    columns = read_schema(schema)
    if paper:
        check_paper("compact", *options)
        chosen = mechanism if given_options("mechanism") else PAPER_MECHANISM
        return Plan.paper(columns, epsilon, mechanism=chosen, outputs=outputs, study=study)
    flat = options | {"mechanism": mechanism, "outputs": outputs, "study": study}
    return Plan(columns, epsilon, pop_strategy(flat), compact=compact)


def read_schema(path: Path) -> Schema:
    """Read a schema, naming its file in errors."""
    with naming(path):
        return Schema.from_toml(path.read_text("utf-8", errors="replace"))


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the name of a file at the beginning of error messages about it."""
    try:
        yield
    except (DomainError, PrivacyError, WireError) as error:
        raise type(error)(f"{path}: {error}") from error


strict_option = click.option(
    "--strict", is_flag=True, help="Refuse data in which values would be clipped or replaced."
)


def tell(path: Path | str, quality: DataQuality) -> None:
    """Print on standard error what is clipped, replaced or unused in a file, if anything."""
    if not quality.clean or quality.unused_columns:
        click.echo(f"{path}: {quality}", err=True)


def read_plan(path: Path) -> Plan:
    """Read a plan, or the plan of a calendar, naming its file in errors."""
    return read_plan_and_calendar(path)[0]


def read_plan_and_calendar(path: Path) -> tuple[Plan, Calendar | None]:
    """Read a plan, and the calendar if the file is one, naming the file in errors."""
    with naming(path):
        text = path.read_text("utf-8", errors="replace")
        if not is_calendar(text):
            return Plan.from_json(text), None
        calendar = Calendar.from_json(text)
        return calendar.plan, calendar


def summary(plan: Plan) -> dict[str, Any]:
    """Return the main facts about a plan."""
    return {
        "fingerprint": plan.fingerprint,
        "epsilon": plan.epsilon,
        "coordinates": plan.schema.dimensions,
        "answers": sum(part.d if part.joint else part.k for part in plan.parts),
        "bits_per_vehicle": None if plan.study else plan.bits,
    }


@click.command("schema")
@click.argument("names", metavar="DATA | SIGNAL...", nargs=-1, required=True)
@click.option(
    "--vss",
    "catalog",
    type=INPUT,
    help="A VSS catalog of signals (JSON or YAML).",
    metavar="FILE",
)
@click.option(
    "--bounds",
    type=(str, float, float),
    multiple=True,
    help="Narrower bounds of a signal of the catalog.",
    metavar="SIGNAL LOW HIGH",
)
@click.option(
    "--ask/--no-ask",
    default=None,
    help="Whether to ask for the bounds of each signal.  [default: ask at a terminal]",
)
def schema_command(
    names: tuple[str, ...],
    catalog: Path | None,
    bounds: tuple[tuple[str, float, float], ...],
    ask: bool | None,
) -> None:
    """Draft a schema for the columns of a file, or for signals.

    \b
    fedldp schema fleet.csv > fleet.toml     then fill in bounds and categories
    fedldp schema --vss vss.json Vehicle.Speed Vehicle.Width > fleet.toml

    A schema says which columns there are, between which bounds numbers lie, and
    which labels categories have. All of that is public: it must come from you,
    never from the data. DATA is a CSV or Parquet file.

    With --vss, each SIGNAL is a path in a catalog of the Vehicle Signal
    Specification, as `vspec export json` or yaml writes it; "*" stands for any
    part of a path. Its bounds and allowed values come from the catalog. Narrow
    the bounds, with --bounds or when you are asked: a speed from 0 to 150 is
    estimated with less error than one from -250 to 250. Where the catalog has
    no bounds, fill them in.
    """  # noqa: D301 (click wants the character \b itself)
    if catalog is not None:
        interactive = sys.stdin.isatty() if ask is None else ask
        click.echo(_signals(catalog, names, bounds, interactive), nl=False)
        return
    if bounds or ask:
        raise click.UsageError("--bounds and --ask are for signals: give --vss too.")
    if len(names) != 1:
        raise click.UsageError("give one file, or --vss and signals.")
    data: Path = INPUT.convert(names[0], None, click.get_current_context())
    chunk = next(iter(frames.read(data)), None)
    if chunk is None:
        raise DomainError(f"expected at least one row; {data} has none.")
    click.echo(template(chunk.data), nl=False)


def _signals(
    path: Path,
    names: tuple[str, ...],
    bounds: tuple[tuple[str, float, float], ...],
    ask: bool,
) -> str:
    """Return the draft of a schema of some signals of a catalog."""
    with naming(path):
        is_yaml = path.suffix.lower() in (".yaml", ".yml", ".vspec")
        catalog = vss.read(path.read_text("utf-8", errors="replace"), is_yaml=is_yaml)
    chosen = {
        signal.path: signal
        for name in names
        for signal in catalog.matching(name)
        if "*" not in name or signal.has_values
    }
    signals = [*chosen.values()]
    bounds_of = {
        signal.path: (low, high)
        for name, low, high in bounds
        for signal in _matching(name, signals)
    }
    for signal in signals if ask else []:
        if signal.is_number and signal.path not in bounds_of:
            bounds_of[signal.path] = _ask_bounds(signal)
    draft = vss.template(signals, bounds_of)
    if named := [signal.path for signal in signals if signal.identifies]:
        click.echo(
            f"Warning: {', '.join(named)}: such values tell who or where somebody is. A label that "
            "few vehicles have cannot be estimated anyway: leave them out.",
            err=True,
        )
    if unbounded := [s.path for s in signals if s.lacks_bounds and s.path not in bounds_of]:
        click.echo(
            f"{len(unbounded)} of {len(signals)} signals have no bounds in the catalog: "
            f"{', '.join(unbounded)}. Fill them in, or give --bounds.",
            err=True,
        )
    return draft


def _matching(name: str, signals: Sequence[vss.Signal]) -> list[vss.Signal]:
    """Return the signals among those that were given that a path or a pattern names."""
    try:
        return vss.Catalog({signal.path: signal for signal in signals}).matching(name)
    except UnknownName:
        known = [signal.path for signal in signals]
        raise unknown("signal among those that were given", name, known) from None


def _ask_bounds(signal: vss.Signal) -> tuple[float, float]:
    """Ask at the terminal for bounds, with those of the catalog as defaults."""
    click.echo(f"{signal.path} ({signal.summary})", err=True)
    while True:
        low, high = (
            click.prompt(f"  {what}", type=float, default=default, err=True)
            for what, default in zip(("low", "high"), signal.bounds, strict=True)
        )
        try:
            return signal.narrowed(low, high)
        except DomainError as error:
            click.echo(f"  {error}", err=True)


def _targets(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, float]:
    """Return the error that is wanted of each name."""
    half_widths = {}
    for text in given:
        name, sign, number = text.rpartition("=")
        try:
            half_widths[name] = float(number)
        except ValueError:
            sign = ""
        if not sign or not name:
            raise click.BadParameter(f"write NAME=ERROR, such as speed=1; got {text!r}.")
    return half_widths


want_option = click.option(
    "--want",
    multiple=True,
    callback=_targets,
    help="The error that you accept for an attribute (half of a 95% interval, in its unit): show "
    "how many vehicles that takes. Give it again for other attributes.",
    metavar="NAME=ERROR",
)


def period_options(command: Command) -> Command:
    """Add the options of something that is asked again and again."""
    return add(
        command,
        click.option(
            "--periods",
            type=int,
            help="Ask the same in this many periods, such as the 30 days of a month.",
        ),
        click.option(
            "--answers",
            type=int,
            help="In how many of the periods each vehicle answers; it draws them before it sees "
            "any data.  [default: in all of them]",
        ),
    )


@click.command("plan")
@click.option("--schema", type=INPUT, required=True, help="The columns (TOML).", metavar="FILE")
@plan_options
@click.option(
    "--vehicles",
    type=int,
    default=100_000,
    show_default=True,
    help="The number of vehicles for which to show the expected errors.",
)
@want_option
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also draw the errors over the number of vehicles and over epsilon (.png, .svg or .pdf).",
)
@period_options
@click.option(
    "--lifetime",
    type=float,
    help="What a vehicle may spend over all periods. A calendar that costs more is refused.",
    metavar="EPSILON",
)
@click.option("--output", "-o", type=OUTPUT, help="Where to write the plan (JSON).", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def plan_command(
    schema: Path,
    vehicles: int,
    want: dict[str, float],
    plot: Path | None,
    periods: int | None,
    answers: int | None,
    lifetime: float | None,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Make the plan that every vehicle and the server use.

    \b
    fedldp plan --schema fleet.toml --epsilon 2               show its errors
    fedldp plan --schema fleet.toml --epsilon 2 --want speed=1
    fedldp plan --schema fleet.toml --epsilon 2 -o plan.json  and write it
    fedldp plan --schema fleet.toml --epsilon 2 --strategy cube
    fedldp plan --schema fleet.toml --epsilon 2 --paper       as the paper does
    fedldp plan --schema fleet.toml --epsilon 0.5 --periods 30 --answers 4

    A plan says what each vehicle answers, and with how much noise. For each
    result, the table shows the error to expect (half of a 95% interval, in the
    unit of the result): if values are spread evenly, and at worst. --want names
    an error that you accept, and shows how many vehicles it takes.

    With --periods the file is a calendar: the plan is asked in every period,
    and each vehicle draws at random in which of them it answers; --answers is
    their number. Epsilon is the cost of one report, which a vehicle pays for
    each answer. A vehicle repeats its first report, and pays once, only if the
    schema declares every attribute constant. The errors are those of one period.
    """  # noqa: D301 (click wants the character \b itself)
    plan = make_plan(schema, **options)
    if periods is None and (answers is not None or lifetime is not None):
        raise click.UsageError("--answers and --lifetime are about periods: give --periods too.")
    calendar = (
        None
        if periods is None
        else Calendar(plan, periods, periods if answers is None else answers)
    )
    if calendar is not None and lifetime is not None:
        _check_lifetime(calendar, lifetime)
    reports = vehicles if calendar is None else max(1, round(vehicles * calendar.share))
    number = sum(attribute.inputs.estimates for attribute in plan.schema.attributes)
    expected = plan.expect(reports)
    needed = {name: plan.vehicles_for({name: error}) for name, error in want.items()}
    if plot is not None:
        with_epsilon = partial(_plan_with, schema, options)
        _draw_errors(plot, plan, with_epsilon, reports)
    choice = automatic_choice(plan, options)
    document = summary(plan) | {
        **strategy_document(choice),
        "constant": plan.constant,
        "vehicles": vehicles,
        "error_if_uniform": (plan.expected_error(reports) / number) ** 0.5,
        "error_at_worst": (plan.expected_error(reports, "worst") / number) ** 0.5,
        "expected": expected_rows(expected),
        **({"vehicles_needed": needed} if needed else {}),
    }
    if calendar is not None:
        document |= {
            "periods": calendar.periods,
            "answers_of_a_vehicle": calendar.answers,
            "lifetime_epsilon": float(calendar.epsilon),
            "lifetime_approximate_epsilon": calendar.composition.approximate(),
            "lifetime_delta": COMPOSITION_DELTA,
            "reports_of_a_period": reports,
        }
    if output is not None:
        files.write(output, (calendar or plan).to_json())
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    rendered = Table(title=f"A plan for {schema}", show_header=False)
    periodic = []
    if calendar is not None:
        periodic = [
            ("periods", str(calendar.periods)),
            ("in which each vehicle answers", str(calendar.answers)),
            ("epsilon of a vehicle over all periods", f"{float(calendar.epsilon):g}"),
            *_approximate(calendar),
            (f"reports of a period, {vehicles} vehicles", str(reports)),
        ]
    lasting = [attribute.name for attribute in plan.schema.attributes if attribute.constant]
    again = "all: asked again, a vehicle repeats its answer at no cost"
    if not plan.constant:
        again = f"{listed(lasting)}: only in a plan of their own are answers repeated"
    for name, value in (
        ("epsilon of a whole report", f"{plan.epsilon:g}"),
        *([("declared constant", again)] if lasting else []),
        *periodic,
        *([("strategy", f"{choice.strategy.name}: {choice.reason}")] if choice else []),
        ("coordinates", str(document["coordinates"])),
        ("of which each vehicle answers", str(document["answers"])),
        ("bits that each vehicle sends", str(document["bits_per_vehicle"])),
        ("fingerprint", plan.fingerprint[:14]),
    ):
        rendered.add_row(name, value)
    console().print(rendered)
    console().print(expected_table(expected))
    for name, vehicles_needed in needed.items():
        console().print(
            f"{name} ± {want[name]:g}: you need {vehicles_needed:,} reports; you have {reports:,}.",
            soft_wrap=True,
        )
    for path in (output, plot):
        if path is not None:
            console().print(f"Wrote {path}", soft_wrap=True)
    if output is None:
        console().print("Write it to a file with -o.", soft_wrap=True)


def automatic_choice(plan: Plan, options: dict[str, Any]) -> Choice | None:
    """Return which strategy a plan has and why, if its command's options leave it to a rule."""
    flat = dict(options)
    if flat.pop("paper") or pop_strategy(flat) != AUTO:
        return None
    return choose(plan.schema, plan.epsilon)


def strategy_document(choice: Choice | None) -> dict[str, str]:
    """Return which strategy a rule has chosen and why, for JSON; empty if none has."""
    return {"strategy": choice.strategy.name, "because": choice.reason} if choice else {}


def expected_rows(expected: Expectation) -> list[dict[str, Any]]:
    """Return what to expect, for JSON."""
    return [
        {
            "attribute": row.attribute,
            "what": row.what,
            "typical": or_none(row.typical),
            "worst": or_none(row.worst),
            "reports": row.answers,
            **({"unit": row.unit} if row.unit else {}),
        }
        for row in expected.rows
    ]


def expected_table(expected: Expectation) -> Table:
    """Return a table of what to expect."""
    table = Table(title=f"Half of a 95% interval, {expected.vehicles:,} reports")
    table.add_column("attribute", overflow="fold")
    table.add_column("what", overflow="fold")
    for heading in ("± typical", "± at worst", "answers"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in expected.rows:
        errors = [error_text(row, error) for error in (row.typical, row.worst)]
        table.add_row(named(row.attribute, row.unit), row.what, *errors, f"{row.answers:,}")
    return table


def error_text(row: ExpectedError, error: float) -> str:
    """Return an error of two digits, or that nothing can be said."""
    return f"{error:.2g}" if error < row.range else "unknown"


def _plan_with(schema: Path, options: dict[str, Any], epsilon: float) -> Plan:
    """Return the plan of a command's options with another epsilon."""
    return make_plan(schema, **options | {"epsilon": epsilon})


def _draw_errors(path: Path, plan: Plan, again: Callable[[float], Plan], reports: int) -> None:
    """Draw the errors of a plan over the size of the fleet, and over epsilon."""
    from fedldp import _plots as plots

    plots.check_path(path)
    sizes = [round(10 ** (exponent / 4)) for exponent in range(8, 29)]
    over_size = {size: plan.expect(size) for size in sizes}
    over_epsilon = {}
    for epsilon in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0):
        with suppress(DomainError):  # too little for each of the answers, or too much
            over_epsilon[epsilon] = again(epsilon).expect(reports)
    plots.save(plots.expected_errors(over_size, over_epsilon, reports), path)


def _approximate(calendar: Calendar) -> list[tuple[str, str]]:
    """Return the row of the second number for many answers, if it is smaller."""
    second = calendar.composition.approximate()
    if second >= calendar.epsilon:
        return []
    return [(f"the same, but for a probability of {COMPOSITION_DELTA:g}", f"{second:.3g}")]


def _check_lifetime(calendar: Calendar, lifetime: float) -> None:
    """Refuse a claim that a vehicle spends less over all periods than it does."""
    if calendar.epsilon <= exact(lifetime):
        return
    advice = "Take a smaller epsilon."
    if others := [
        attribute.name for attribute in calendar.plan.schema.attributes if not attribute.constant
    ]:
        advice = (
            "Take a smaller epsilon or fewer answers. Answers are repeated at no cost only if the "
            f"schema declares all attributes constant; not declared so: {listed(others)}."
        )
    raise DomainError(
        f"a vehicle should spend at most {lifetime:.12g} over all periods; {calendar!r} costs "
        f"{float(calendar.epsilon):.12g}. {advice}"
    )
