"""`fedldp report`, on a vehicle, and `fedldp tally`, on a server."""

import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, cast

import click

from fedldp import report, vehicle
from fedldp._internal import locks
from fedldp.cli.plans import INPUT, OUTPUT, console, naming, read_plan, strict_option
from fedldp.errors import DomainError, WireError
from fedldp.ledger import Ledger
from fedldp.plan import Plan, for_vehicle
from fedldp.tally import Tally

_SHOWN = 10  # notes about a row that are printed


@click.command("report")
@click.argument("plan_file", metavar="PLAN", type=INPUT)
@click.argument("row", default="-")
@click.option("--cap", help="The most epsilon that this vehicle may spend in its life.  [required]")
@click.option(
    "--ledger",
    type=OUTPUT,
    help="The file that records what was spent; created if it does not exist. Never delete it.  "
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
    help="The name of a round. In each round the plan is answered, and paid for, again.",
    metavar="NAME",
)
@click.option(
    "--output",
    "-o",
    type=click.File("wb"),
    default="-",
    help="Where to write the report.  [default: standard output]",
    metavar="FILE",
)
@strict_option
@click.option(
    "--check",
    is_flag=True,
    help="Only show what would be clipped or replaced, with exit status 0 if nothing, 1 "
    "otherwise. Nothing is drawn or spent, and neither --cap nor --ledger is needed.",
)
def report_command(
    plan_file: Path,
    row: str,
    cap: str | None,
    ledger: Path | None,
    key: str,
    round_: str,
    output: BinaryIO,
    strict: bool,
    check: bool,
) -> None:
    """Answer a plan once, as a vehicle does.

    \b
    echo '{"age": 31, "city": "Rome"}' |
      fedldp report plan.json --cap 4 --ledger ledger.db -o report.bin

    PLAN is the file that `fedldp plan` wrote. ROW is a file with a JSON object;
    the default is standard input. Values outside the bounds are clipped;
    missing, unreadable and unknown values are replaced by the public default of
    the schema. Standard error says so, which nobody else sees; --strict refuses
    such a row.

    Input that is not JSON is an error of the calling program: the exit status
    is 1, and nothing is drawn or spent. Use a library to make the JSON.

    The ledger records the spending and the report before the report is written.
    The same plan and round get the same report again. No answer is given beyond
    the cap.
    """  # noqa: D301 (click wants the character \b itself)
    if not check and (cap is None or ledger is None):
        raise click.UsageError("give --cap and --ledger; only --check works without them.")
    asked = read_plan(plan_file)
    budget = asked.total_epsilon if cap is None else _budget(cap)
    with naming(plan_file):
        plan = for_vehicle(asked.to_json(), cap or budget)
    # Read before the ledger is opened: slow input must not block others.
    values = _row(row)
    notes = plan.check(values)
    if check:
        click.echo("\n".join(notes) or "All values are used as they are.")
        sys.exit(1 if notes else 0)
    if strict and notes:
        raise DomainError(f"the row must be usable as it is; {_some(notes)}.")
    if notes:
        click.echo(f"fedldp: warning: {_some(notes)}.", err=True)
    with Ledger(cast(Path, ledger), budget) as book:
        answer = book.release(
            key,
            plan.epsilon,
            f"{plan.fingerprint} {round_}",
            lambda: plan.report(values),
            run=round_,
        )
    output.write(answer)


def _row(path: str) -> Any:
    """Read a row; raise an error if it is invalid, before anything is drawn or spent."""
    if path == "-" and sys.stdin is None:
        raise DomainError("expected a row on standard input; it is closed. Give a file.")
    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        return vehicle.read_row(data)
    except ValueError as error:
        raise DomainError(f"{error}. Nothing was spent.") from None


def _some(notes: list[str]) -> str:
    """Return some notes in one line."""
    more = [f"and {len(notes) - _SHOWN:,} more"] if len(notes) > _SHOWN else []
    return "; ".join(notes[:_SHOWN] + more)


def _budget(cap: str) -> Fraction:
    try:
        return vehicle.exact(cap)
    except ValueError:
        raise DomainError(f"--cap must be a positive number; got {cap!r}.") from None


@click.command("tally")
@click.argument("plan_file", metavar="PLAN", type=INPUT)
@click.argument("reports", nargs=-1, type=click.Path(allow_dash=True, path_type=Path))
@click.option(
    "--output",
    "-o",
    type=OUTPUT,
    required=True,
    help="The file of the tally (JSON). If it exists, the reports are added to it.",
    metavar="FILE",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def tally_command(plan_file: Path, reports: tuple[Path, ...], output: Path, as_json: bool) -> None:
    """Count reports, as a server does.

    \b
    fedldp tally plan.json reports/*.bin -o tally.json
    cat reports/*.bin | fedldp tally plan.json - -o tally.json

    PLAN is the file that the vehicles answered. Each file of REPORTS may
    contain several reports, one after another. An invalid file is not counted
    at all; the others are, and the exit status is 1. A file that is given twice
    counts twice.
    """  # noqa: D301 (click wants the character \b itself)
    plan = read_plan(plan_file)
    refused = []
    with locks.waiting(output):
        with naming(output):
            before = plan.load_tally(output) if output.exists() else plan.tally()
        tally = before
        for path in reports or (Path("-"),):
            try:
                if str(path) == "-":
                    tally += _counted(plan, sys.stdin.buffer)
                else:
                    with path.open("rb") as stream:
                        tally += _counted(plan, stream)
            except (WireError, OSError) as error:
                refused.append({"file": str(path), "reason": str(error)})
        tally.save(output)
    added = tally.reports - before.reports
    if as_json:
        document = {"added": added, "reports": tally.reports, "refused": refused}
        click.echo(json.dumps(document, indent=2))
    else:
        shown = console(soft_wrap=True)
        for each in refused:
            shown.print(f"Refused {each['file']}: {each['reason']}")
        vehicles = "vehicle" if added == 1 else "vehicles"
        shown.print(f"Counted {added} {vehicles}, {tally.reports} in all. Wrote {output}")
    if refused:
        sys.exit(1)


def _counted(plan: Plan, stream: BinaryIO) -> Tally:
    tally = plan.tally()
    while (packet := report.read(stream, plan.fingerprint, plan.bits)) is not None:
        tally += plan.parse(packet)
    return tally
