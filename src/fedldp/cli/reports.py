"""`fedldp report`, on a vehicle, and `fedldp tally`, on a server."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO, cast

import click
from rich.progress import Progress, TextColumn

from fedldp import vehicle
from fedldp._internal import owner
from fedldp._internal.text import counted
from fedldp.budget.ledger import Ledger
from fedldp.budget.vehicle import (
    PaidAnswer,
    Vehicle,
    for_vehicle,
    some_notes,
    tell_nobody,
    tell_owner,
)
from fedldp.cli.plans import (
    INPUT,
    OUTPUT,
    console,
    naming,
    read_plan,
    read_plan_and_calendar,
    strict_option,
)
from fedldp.counting import counts, shards
from fedldp.counting.counts import Counted, ShardOutcome
from fedldp.counting.shards import Shard
from fedldp.errors import DomainError
from fedldp.plan.plan import Plan
from fedldp.plan.report import REASONS
from fedldp.storage import locks

_NO_MANIFEST = "has no manifest: a file that was counted before counts again if you give it again."
_REPEATED = (
    "This vehicle repeats its report: all attributes are declared constant. If a value has changed "
    "since, nobody learns of it."
)
_STDOUT = Path("-")
_MOST_SHOWN = 10  # refused reports that are printed


@click.command("report")
@click.argument("plan_file", metavar="PLAN", type=INPUT)
@click.argument("row", default="-")
@click.option("--cap", help="The most epsilon that this vehicle may spend in its life.  [required]")
@click.option(
    "--ledger",
    type=OUTPUT,
    help="The file that records what was spent. `fedldp ledger init` makes it. Never delete it.  "
    "[required]",
    metavar="FILE",
)
@click.option(
    "--key",
    default="vehicle",
    show_default=True,
    help="The id of this vehicle, if several vehicles share a ledger.",
    metavar="ID",
)
@click.option(
    "--round",
    "round_",
    default="",
    help="The name of a round. In each round the plan is answered, and paid for, again, unless it "
    "asks only for attributes that are declared constant.",
    metavar="NAME",
)
@click.option(
    "--job",
    help="The name of a job. A vehicle answers each job once, in one round and with one plan, even "
    "if its cap allows more.  [default: only the cap counts]",
    metavar="NAME",
)
@click.option(
    "--period",
    type=int,
    help="The number of the period, from 1, if PLAN is a calendar.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    default="-",
    help="Where to write the report.  [default: standard output]",
    metavar="FILE",
)
@strict_option
@click.option(
    "--check",
    is_flag=True,
    help="Only show what would be clipped or replaced; the exit status is 0 if nothing, else 1. "
    "Nothing is drawn or spent, and neither --cap nor --ledger is needed.",
)
def report_command(
    plan_file: Path,
    row: str,
    cap: str | None,
    ledger: Path | None,
    key: str,
    round_: str,
    job: str | None,
    period: int | None,
    output: Path,
    strict: bool,
    check: bool,
) -> None:
    """Answer a plan once, as a vehicle does.

    \b
    echo '{"age": 31, "city": "Rome"}' |
      fedldp report plan.json --cap 4 --ledger ledger.db -o report.bin
    fedldp report calendar.json row.json --period 3 --cap 4 --ledger ledger.db

    PLAN is the file that `fedldp plan` wrote. ROW is a file with a JSON object,
    or with a list of objects: the rows of this vehicle, which the rules of the
    schema combine into one. The default is standard input. Values outside the
    bounds are clipped; missing, unreadable and unknown values are replaced by
    the public default of the schema. After the report, a warning on standard
    error says what was replaced, if standard error can be written. --strict
    refuses such a row.

    Other input, such as a list of values, is an error of the calling program:
    the exit status is 1, and nothing is drawn or spent. Use a library to make
    the JSON.

    The ledger records the spending and the report before the report is written.
    Make it once, with `fedldp ledger init`: a missing one is refused.
    The same plan, job and round get the same report again. No answer is given beyond
    the cap or, with --job, beyond one answer to the job.

    If PLAN is a calendar (`fedldp plan --periods`), the vehicle draws its
    periods when it is asked for the first time, and the ledger keeps them. In
    the other periods nothing is written, and the exit status is 0.

    If all attributes of the plan are declared constant, the vehicle repeats its
    first report in later rounds, jobs and periods, and pays nothing. A message
    on standard error says so. If the value has changed, nobody learns of it.
    """  # noqa: D301 (click wants the character \b itself)
    owner.protect_process()
    if not check and (cap is None or ledger is None):
        raise click.UsageError("give --cap and --ledger; only --check works without them.")
    plan_asked, calendar = read_plan_and_calendar(plan_file)
    if calendar is None and period is not None:
        raise click.UsageError(f"{plan_file} is a plan without periods: leave out --period.")
    if calendar is not None and (round_ or job):
        raise click.UsageError(f"{plan_file} is a calendar: leave out --round and --job.")
    if calendar is not None and period is None and not check:
        raise click.UsageError(
            f"{plan_file} is a calendar: give --period, from 1 to {calendar.periods}."
        )
    budget = plan_asked.total_epsilon if cap is None else _budget(cap)
    with naming(plan_file):
        plan = for_vehicle(plan_asked.to_json(), cap or budget)
    if output == _STDOUT and sys.stdout is None:
        raise DomainError("expected to write the report to standard output; it is closed. Give -o.")
    # Read before the ledger is opened: slow input must not block others.
    values = plan.one_row(_row(row), vehicle.SYSTEM.getrandbits(vehicle.WORD))
    if check:
        notes = plan.check(values)
        click.echo("\n".join(notes) or "All values are used as they are.")
        sys.exit(1 if notes else 0)
    if strict and (notes := plan.check(values)):
        raise DomainError(f"the row must be usable as it is; {some_notes(notes)}.")

    answer: PaidAnswer | None
    with Ledger(cast(Path, ledger), budget) as book:
        car = Vehicle(book, key, tell_nobody)
        if calendar is not None and period is not None:
            answer = car.answer_period(calendar, period, values)
        else:
            former = (f"{plan.fingerprint} {round_}",)
            answer = car.answer(plan, values, job=job, round=round_, run=round_, former=former)
    if answer is None:
        vehicle.warn_owner(f"This vehicle has not drawn period {period}: it sends nothing.")
        return
    _send(answer.report, output)
    if plan.constant and answer.repeated:
        vehicle.warn_owner(_REPEATED)
    tell_owner(answer)


def _send(report: bytes, output: Path) -> None:
    try:
        with click.open_file(str(output), "wb") as file:
            file.write(report)
            file.flush()
    except OSError as error:
        if output == _STDOUT:  # Python would try again when it ends, and then choose the status
            sys.stdout = None
        raise DomainError(
            f"the report cannot be written: {error}. The ledger has it: run the same command again."
        ) from None


def _row(path: str) -> Any:
    """Read a row; raise an error if it is invalid, before anything is drawn or spent."""
    if path == "-" and sys.stdin is None:
        raise DomainError("expected a row on standard input; it is closed. Give a file.")
    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        return vehicle.read_row(data)
    except ValueError as error:
        raise DomainError(f"{error}. Nothing was spent.") from None


def _budget(cap: str) -> Fraction:
    try:
        return vehicle.exact(cap)
    except ValueError:
        raise DomainError(f"--cap must be a positive number; got {cap!r}.") from None


@click.command("tally")
@click.argument("plan_file", metavar="PLAN", type=INPUT)
@click.argument("reports", nargs=-1, type=click.Path(allow_dash=True))
@click.option(
    "--output",
    "-o",
    type=OUTPUT,
    required=True,
    help="The file of the tally (JSON). If it exists, the reports are added to it.",
    metavar="FILE",
)
@click.option(
    "--column",
    help="The column of reports in Parquet files.  [default: the only binary column]",
    metavar="NAME",
)
@click.option(
    "--save-every",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    help="How often the tally is saved on the way.",
    metavar="SECONDS",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def tally_command(
    plan_file: Path,
    reports: tuple[str, ...],
    output: Path,
    column: str | None,
    save_every: float,
    as_json: bool,
) -> None:
    """Count reports, as a server does.

    \b
    fedldp tally plan.json reports/*.bin -o tally.json
    fedldp tally plan.json 'reports/**/*.parquet' -o tally.json
    fedldp tally plan.json north.json south.json -o all.json
    cat reports/*.bin | fedldp tally plan.json - -o tally.json

    PLAN is the file that the vehicles answered. REPORTS are files, folders and
    patterns, also in an object store: s3://fleet/reports. A file may be Parquet
    with a binary column of reports, contain reports one after another, or be
    the tally of another server, which is merged.

    An invalid report is not counted; the others are, and the exit status is 1.
    The output says how many were refused, and why.

    FILE.manifest, next to the tally, lists the files that are counted, each
    with its SHA-256. A file that it lists is not counted again, so the same
    command resumes after a stop or a crash. A tally that shares a file with
    this one is refused. Standard input and pipes have no name, and count every
    time.
    """  # noqa: D301 (click wants the character \b itself)
    plan = read_plan(plan_file)
    with locks.hold_lock(output):
        with naming(output):
            before = counts.load_or_begin(output, plan)
        if before.tally.reports and not counts.manifest_path(output.resolve()).exists():
            click.echo(f"fedldp: warning: {output} {_NO_MANIFEST}", err=True)
        run = _Tallying(plan, before, column)
        run.count(reports or ("-",), output, save_every)
    run.show(output, as_json)
    if run.refused or run.refused_packets:
        sys.exit(1)


def _is_stream(path: str) -> bool:
    """Return whether a path is standard input or a pipe, which have no name of their own."""
    return path == "-" or Path(path).is_fifo()


class _Tallying:
    """One run of `fedldp tally`."""

    def __init__(self, plan: Plan, before: Counted, column: str | None) -> None:
        self.plan, self.column = plan, column
        self.before = self.total = before
        self.refused: list[dict[str, str]] = []  # files
        self.refused_packets: Counter[str] = Counter()  # by reason
        self.skipped = self.twins = 0

    def count(self, reports: tuple[str, ...], output: Path, save_every: float) -> None:
        """Count what is new, and save the tally every few seconds and at the end."""
        named = [path for path in reports if not _is_stream(path)]
        own = output.resolve(), counts.manifest_path(output.resolve())
        names = [path.as_posix() for path in own]
        new = [shard for shard in self._shards(named) if shard.name not in names]
        screen = console(stderr=True)
        with Progress(
            *Progress.get_default_columns(),
            TextColumn("{task.fields[vehicles]:,} vehicles"),
            transient=True,
            console=screen,
            disable=not screen.is_terminal,
        ) as progress:
            size = sum(shard.size for shard in new)
            task = progress.add_task("Counting", total=size, vehicles=self.total.tally.reports)
            outcomes = counts.count_new(
                new,
                self.plan,
                self.before.manifest,
                self.column,
                lambda done: progress.advance(task, done),
            )
            while True:
                known, until = len(self.total.manifest), monotonic() + save_every
                self.total = counts.merge(self.total, self._some(outcomes, until))
                if len(self.total.manifest) == known:
                    break
                progress.update(task, vehicles=self.total.tally.reports)
                begun = monotonic()
                self.total.save(output)
                # A large tally is saved less often: saving takes a tenth of the time at most.
                save_every = max(save_every, 10 * (monotonic() - begun))
        for stream_path in filter(_is_stream, reports):
            with click.open_file(stream_path, "rb") as stream:
                counted = counts.count_stream(cast(BinaryIO, stream), self.plan)
            self.refused_packets.update(counted.refused)
            self.total += counted
        self.total.save(output)

    def _shards(self, reports: list[str]) -> Iterator[Shard]:
        for each in reports:
            try:
                yield from shards.find(each)
            except (DomainError, OSError) as error:
                self.refused.append({"file": each, "reason": str(error)})

    def _some(self, outcomes: Iterator[ShardOutcome], until: float) -> Iterator[Counted]:
        """Yield the results of some shards, until it is time to save them."""
        for outcome in outcomes:
            self.twins += outcome.twins
            if outcome.counted is not None:
                if not outcome.is_tally:
                    self.refused_packets.update(outcome.counted.refused)
                yield outcome.counted
                if monotonic() >= until:
                    return
            elif outcome.refused:
                self.refused.append({"file": str(outcome.shard), "reason": outcome.refused})
            else:
                self.skipped += 1

    def show(self, output: Path, as_json: bool) -> None:
        added = self.total.tally.reports - self.before.tally.reports
        if as_json:
            document = {
                "added": added,
                "reports": self.total.tally.reports,
                "refused": self.refused,
                "refused_packets": self.refused_packets,
                "listed": [refusal._asdict() for refusal in self.total.listed],
                "skipped": self.skipped,
                "same_contents": self.twins,
            }
            click.echo(json.dumps(document, indent=2))
            return
        shown = console(soft_wrap=True)
        for refusal in self.refused:
            shown.print(f"Refused {refusal['file']}: {refusal['reason']}", markup=False)
        for reason, said in REASONS.items():
            if number := self.refused_packets[reason]:
                shown.print(f"Refused {counted(number, 'report')}: {said}")
        for bad in self.total.listed[:_MOST_SHOWN]:
            place = f"{bad.shard or 'standard input'}, number {bad.number}"
            shown.print(f"  {place}: {bad.reason}", markup=False)
        if len(self.total.listed) > _MOST_SHOWN:
            shown.print("  and more: --json lists a thousand of them")
        if self.twins:
            shown.print(
                f"Note: {counted(self.twins, 'file')} with the contents of another one counted. "
                "Small files may be equal by chance, but a copied folder counts twice."
            )
        if self.skipped:
            shown.print(f"Skipped {counted(self.skipped, 'file')} that the tally has already")
        vehicles = "vehicle" if added == 1 else "vehicles"
        total = self.total.tally.reports
        shown.print(f"Counted {added} {vehicles}, {total} in all. Wrote {output}")
