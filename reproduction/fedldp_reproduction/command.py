"""`fedldp-reproduce`: every figure and claim of the paper, computed again, on one page."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, final

import click
from rich.progress import Progress
from rich.table import Table

from fedldp.cli.completion import offer
from fedldp.cli.plans import console
from fedldp.cli.runs import display
from fedldp.errors import FedLDPError
from fedldp_reproduction.experiments.material import FILES
from fedldp_reproduction.figures import Figure, description
from fedldp_reproduction.results import FigureResult

_INTERRUPTED = 130  # what a shell makes of Ctrl-C


def _paths(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, Path]:
    """Read NAME=FILE, each."""
    found = {}
    for each in given:
        name, equals, path = each.partition("=")
        if not equals or name not in FILES:
            raise click.BadParameter(
                f"must be NAME=FILE with a NAME of {', '.join(FILES)}; got {each}. A file of WISDM "
                "2019 goes under wisdm, the description of a census extract under br or mx."
            )
        if not Path(path).is_file():
            raise click.BadParameter(f"expected the path of a file; {path} does not exist.")
        found[name] = Path(path)
    return found


@click.command("fedldp-reproduce", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument(
    "keys",
    nargs=-1,
    metavar="[FIGURE]...",
    shell_complete=offer(lambda: description().figures),
)
@click.option("--quick", "profile", flag_value="quick", help="Less data, fewer runs: minutes.")
@click.option("--full", "profile", flag_value="full", help="As much as in the paper.")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, file_okay=False),
    default="reproduction/output",
    show_default=True,
    help="The folder for the report, its pictures and data.",
    metavar="FOLDER",
)
@click.option(
    "--data",
    "paths",
    multiple=True,
    callback=_paths,
    help="The file of a data set, if it was not fetched; a census extract.",
    metavar="NAME=FILE",
)
@click.option(
    "--jobs", type=click.IntRange(1), help="Processes at work.  [default: one for each core]"
)
@click.option(
    "--publish",
    "page",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Also write all results into a Markdown page, between its markers.",
    metavar="FILE",
)
@click.option("--list", "listed", is_flag=True, help="Only list the figures.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def reproduce_command(
    keys: tuple[str, ...],
    profile: str | None,
    output: Path,
    paths: dict[str, Path],
    jobs: int | None,
    page: Path | None,
    listed: bool,
    as_json: bool,
) -> None:
    """Compute the paper's figures again, and check what it says about them.

    \b
    fedldp-reproduce --quick                   all of it, in minutes
    fedldp-reproduce --list                    which figures there are
    fedldp-reproduce table-1 table-2           only these, with their numbers
    fedldp-reproduce --data mx=mexico.toml     with a census extract of IPUMS
    fedldp-reproduce --full --jobs 64 -o full  as much as in the paper
    fedldp-reproduce --publish docs/page.md    into a page of your own

    Writes report.html, a page that holds all it shows, and for each figure its
    data (CSV) and pictures (SVG, PNG). The page is written again after each
    figure. Stop at any time: the same command resumes where it stopped, and
    ends with the same numbers.

    Censuses are made up unless an extract is given, and called SYNTHETIC. Other
    data sets are used if they are available: see `fedldp data list`.

    \b
    Completion by tab, in bash (or zsh_source, fish_source in those shells):
    eval "$(_FEDLDP_REPRODUCE_COMPLETE=bash_source fedldp-reproduce)"
    """  # noqa: D301 (click wants the character \b itself)
    known = description()
    figures = [known.figure(key) for key in dict.fromkeys(keys or known.figures)]
    if listed:
        _list(figures, as_json)
        return
    if page is not None and len(figures) < len(known.figures):
        raise click.UsageError("--publish needs all figures: leave their names out.")
    from fedldp_reproduction import runner
    from fedldp_reproduction.pages import publish, report

    if page is not None:
        publish.check(page)
    output.mkdir(parents=True, exist_ok=True)
    profile = profile or "default"
    sections: list[report.Section] = []
    try:
        with display() as bars:
            watch = _Watch(bars, figures)
            found = runner.reproduce(
                figures, profile, paths, output / "runs", jobs or -1, watch.progress
            )
            for result in found:
                sections.append(report.section(result, output))
                written = report.write(sections, output, profile, len(figures))
                watch.finished(result, report.count([result]))
    except KeyboardInterrupt:
        console(stderr=True).print(
            f"Stopped. {len(sections)} of {len(figures)} figures are in {output}; "
            "the same command resumes here.",
            soft_wrap=True,
        )
        raise click.exceptions.Exit(_INTERRUPTED) from None
    if len(figures) < len(known.figures):
        console(stderr=True).print(
            f"The report holds only what was asked for: {len(figures)} of {len(known.figures)} "
            "figures. Without names the same command reports all, and repeats no run.",
            soft_wrap=True,
        )
    results = [section.result for section in sections]
    if page is not None:
        publish.publish(results, page, profile)
    claims, counts = report.claims(results), report.count(results)
    if as_json:
        document = {
            "profile": profile,
            "report": str(written),
            "verdicts": counts,
            "claims": claims,
            "figures": [_about(result) for result in results],
        }
        click.echo(json.dumps(document, indent=2))
        return
    screen = console()
    for result in results if keys else ():
        if result.table:
            screen.print(_table(result))
    screen.print(_render(claims, with_numbers=bool(keys)))
    screen.print(
        f"Claims: {_told(counts)}.\nThe numbers are in the report, {written}", soft_wrap=True
    )


@final
class _Watch:
    """What people see meanwhile: a bar where there is a terminal, a line for each figure."""

    def __init__(self, bars: Progress, figures: Sequence[Figure]) -> None:
        self._bars, self._figures = bars, figures
        self._bar = bars.add_task(figures[0].key, total=None, state="")
        self._finished = 0
        self._left = ""

    def progress(self, done: int, total: int, seconds: float | None) -> None:
        """Tell how many jobs are done, and how long the others will take."""
        self._left = "" if seconds is None else f", {duration(seconds)} left"
        state = f"{done:,} of {total:,} jobs{self._left}"
        self._bars.update(self._bar, completed=done, total=total, state=state)

    def finished(self, result: FigureResult, counts: dict[str, int]) -> None:
        """Tell what a figure has shown."""
        self._finished += 1
        place = f"{self._finished}/{len(self._figures)}"
        self._bars.console.print(
            f"{place} {result.key}: {_told(counts) or 'done'}{self._left}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        if self._finished < len(self._figures):
            self._bars.update(self._bar, description=self._figures[self._finished].key)


def duration(seconds: float) -> str:
    """Return a time for people.

    >>> duration(40), duration(400), duration(40_000)
    ('40 s', '7 min', '11 h')
    """
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _list(figures: Sequence[Figure], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([asdict(figure) for figure in figures], indent=2))
        return
    table = Table(title="Figures", show_lines=True)
    for heading in ("figure", "title"):
        table.add_column(heading, no_wrap=heading == "figure")
    for figure in figures:
        data = f"Data: {', '.join(figure.data)}." if figure.data else "Computed."
        table.add_row(figure.key, f"{figure.title} ({figure.paper}). {data}")
    console().print(table)


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {verdict}" for verdict, number in counts.items() if number)


def _about(result: FigureResult) -> dict[str, Any]:
    """Return a figure without its points, which are in its CSV, and without its claims."""
    return {
        "key": result.key,
        "title": result.title,
        "paper": result.paper,
        "synthetic": result.synthetic,
        "settings": result.settings,
        "data": result.data,
        "table": result.table,
    }


def _table(result: FigureResult) -> Table:
    """Return the table of a figure that is one."""
    heading, *rows = result.table
    table = Table(*heading, title=result.title)
    for row in rows:
        table.add_row(*row)
    return table


def _render(claims: Sequence[dict[str, str]], with_numbers: bool) -> Table:
    """Return the verdicts. The numbers of all figures would fill pages: they are in the report."""
    table = Table(title="What the paper says", show_lines=with_numbers)
    columns = ("figure", "claim", "verdict", *(("evidence",) if with_numbers else ()))
    for column in columns:
        table.add_column(column)
    for each in claims:
        row = [each[column] for column in columns]
        if with_numbers and each["true_instead"]:
            row[-1] += f" True is: {each['true_instead']}"
        table.add_row(*row)
    return table


def main() -> None:
    """Run `fedldp-reproduce`: an error it knows is one line on standard error, not a traceback."""
    try:
        reproduce_command(prog_name="fedldp-reproduce")
    except (FedLDPError, OSError) as error:
        sys.exit(f"fedldp-reproduce: {error}")
