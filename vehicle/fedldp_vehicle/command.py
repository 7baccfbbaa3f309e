"""The command `fedldp-vehicle`: take part in a fleet, answer a plan, look after the ledger."""

import os
import sys
from fractions import Fraction
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .budget import ledger as ledgers
from .budget.ledger import Ledger
from .budget.vehicle import ONLY_VEHICLE, Vehicle, for_vehicle, some_notes, tell_nobody, tell_owner
from .errors import DomainError, FedLDPError, PrivacyError
from .vehicle import (
    CALENDAR_FORMAT,
    SYSTEM,
    WORD,
    Calendar,
    Plan,
    exact,
    protect_standard_files,
    read_row,
    warn_owner,
)

if TYPE_CHECKING:
    import argparse

USAGE_STATUS = 2

_AGENT = ".agent"


def report(options: "argparse.Namespace") -> None:
    """Answer a plan or a calendar once, and write the report."""
    cap = _number(options.cap)
    text = options.plan.read_text("utf-8")
    is_calendar = f'"format":"{CALENDAR_FORMAT}"' in text[:64]
    asked = _calendar(text, cap) if is_calendar else for_vehicle(text, cap)
    _check_period(asked, options)
    plan = asked.plan if isinstance(asked, Calendar) else asked
    row = plan.one_row(_row(options.row), SYSTEM.getrandbits(WORD))
    if options.strict and (notes := plan.check(row)):
        raise DomainError(f"the row must be usable as it is; {some_notes(notes)}.")
    if options.output is None and sys.stdout is None:
        raise DomainError("expected to write the report to standard output; it is closed. Give -o.")
    with Ledger(options.ledger, cap) as ledger:
        vehicle = Vehicle(ledger, options.key, tell_nobody)
        if isinstance(asked, Calendar):
            answer = vehicle.answer_period(asked, options.period, row)
        else:
            round_ = options.round
            former = (f"{plan.fingerprint} {round_}",)
            answer = vehicle.answer(
                plan, row, job=options.job, round=round_, run=round_, former=former
            )
    if answer is None:
        warn_owner(f"This vehicle has not drawn period {options.period}: it sends nothing.")
        return
    _send(answer.report, options.output)
    tell_owner(answer)


def init(options: "argparse.Namespace") -> None:
    """Make a new ledger."""
    ledgers.create(options.ledger)
    print(f"{options.ledger} is a new ledger: nothing is spent. Never delete it.")


def show(options: "argparse.Namespace") -> None:
    """Show what a ledger records."""
    found = ledgers.overview(options.ledger)
    if found.sealed:
        print(f"sealed since {found.sealed}: it refuses every vehicle")
    for vehicle_id, spent in sorted(found.totals.items()):
        left = ""
        if options.cap is not None:
            left = f", {float(max(Fraction(), _number(options.cap) - spent)):.12g} left"
        print(f"{vehicle_id}: {float(spent):.12g} spent{left}")
    for each in found.jobs:
        name = each.job or "(no job)"
        print(f"{name}: {each.questions} questions, {each.answers} answers")


def seal(options: "argparse.Namespace") -> None:
    """Move a damaged or lost ledger aside, and write one that refuses everybody."""
    aside = ledgers.seal(options.ledger)
    print(f"{options.ledger} refuses everybody from now on.", end=" ")
    print("There was no file." if aside is None else f"What was there is in {aside}.")


def mirror(options: "argparse.Namespace") -> None:
    """Keep a second file of a ledger, on another disk."""
    ledgers.mirror(options.ledger, options.mirror)
    print(f"{options.mirror} mirrors {options.ledger} from now on.")


def takeover(options: "argparse.Namespace") -> None:
    """Put a mirror in the place of a lost or damaged ledger."""
    old = ledgers.take_over(options.ledger)
    print(f"{options.ledger} is the ledger now. Never use {old} again.")


def detach(options: "argparse.Namespace") -> None:
    """Use a ledger without its mirror from now on."""
    told = ledgers.detach(options.ledger)
    ending = (
        "never takes over."
        if told
        else "could not be reached: destroy it, because it lacks what is spent from now on."
    )
    print(f"{options.ledger} has no mirror any more. Its former mirror {ending}")


def parser() -> "argparse.ArgumentParser":
    """Return what reads the command line."""
    import argparse

    found = argparse.ArgumentParser(prog="fedldp-vehicle", description=__doc__)
    commands = found.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser("report", help="answer a plan once")
    one.set_defaults(run=report)
    one.add_argument("plan", metavar="PLAN", type=Path, help="the plan, or a calendar")
    one.add_argument(
        "row",
        metavar="ROW",
        nargs="?",
        default="-",
        help="a file with a JSON object, or a list of them",
    )
    one.add_argument("--cap", required=True, help="the most epsilon to spend in a life")
    one.add_argument("--ledger", required=True, type=Path, metavar="FILE")
    one.add_argument("--key", default=ONLY_VEHICLE, metavar="ID", help="the id of this vehicle")
    one.add_argument("--job", metavar="NAME", help="a job, which is answered once")
    one.add_argument(
        "--round", default="", metavar="NAME", help="in each, the plan is paid for again"
    )
    one.add_argument("--period", type=int, help="the number of the period, if PLAN is a calendar")
    one.add_argument("--strict", action="store_true", help="refuse a row with unusable values")
    one.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: standard output")
    ledger = commands.add_parser("ledger", help="make a ledger, show it, protect it")
    acts = ledger.add_subparsers(required=True, metavar="ACT")
    for act in (init, show, seal, mirror, takeover, detach):
        each = acts.add_parser(act.__name__, help=(act.__doc__ or "").rstrip(".").lower())
        each.set_defaults(run=act)
        each.add_argument("ledger", type=Path, metavar="MIRROR" if act is takeover else "LEDGER")
        if act is mirror:
            each.add_argument("mirror", type=Path, metavar="MIRROR", help="a new file, elsewhere")
        if act is show:
            each.add_argument("--cap", help="the most epsilon to spend in a life")
    _add_agent(commands)
    return found


def _add_agent(commands: Any) -> None:
    """Add the commands of an agent, whose modules are imported when they run."""

    def command(name: str, text: str, folder: str) -> "argparse.ArgumentParser":
        found: argparse.ArgumentParser = commands.add_parser(name, help=text)
        found.set_defaults(run=partial(_run_agent, name))
        found.add_argument("folder", type=Path, metavar=folder)
        return found

    joining = command("join", "enroll in a fleet with a one-time code, or at a broker", "FOLDER")
    url_help = "such as https://fleet.example, or mqtts://broker.example/FLEET"
    joining.add_argument("url", metavar="URL", help=url_help)
    joining.add_argument("code", metavar="CODE", nargs="?", help="not for a broker")
    joining.add_argument(
        "--ca", type=Path, metavar="FILE", help="whom the server's certificate is of"
    )
    joining.add_argument("--name", help="as whom the broker knows the agent")
    joining.add_argument("--certificate", metavar="FILE", help="of the agent, for the broker")
    joining.add_argument("--key", metavar="FILE", help="of the certificate")
    joining.add_argument(
        "--shared", action="store_true", help="several agents have the same certificate"
    )
    joining.add_argument("--cap", help="the most epsilon to spend in a life")
    joining.add_argument("--operator", metavar="FILE", help="the operator's public key")
    joining.add_argument("--data", metavar="FILE", help="the row, a JSON object, or a list of rows")
    joining.add_argument("--program", metavar="MODULE:FUNCTION", help="or what returns the row")
    running = command("run", "take part in a fleet until SIGTERM or Ctrl-C", "FOLDER")
    running.add_argument(
        "--road", type=Path, metavar="SOCKET", help="of `network`, if it runs as another process"
    )
    running.add_argument("--once", action="store_true", help="end when there is nothing to do")
    relay = command("network", "run the part with the network as another process", "NETWORK")
    relay.add_argument("socket", type=Path, metavar="SOCKET")
    command("status", "show what is spent, and whether the agent runs", "FOLDER")


def _run_agent(name: str, options: "argparse.Namespace") -> None:
    getattr(import_module(_AGENT, __package__), name)(options)


def main() -> None:
    """Run the command; end with status 1 if it fails, 2 if it was used wrongly."""
    protect_standard_files()
    words = sys.argv[1:]
    try:
        if words[:1] == ["run"] and len(words) == 2 and not words[1].startswith("-"):
            sys.exit(import_module(_AGENT, __package__).run_folder(Path(words[1])))  # no argparse
        options = parser().parse_args()
        options.run(options)
    except (FedLDPError, OSError) as error:
        warn_owner(f"fedldp-vehicle: error: {error}")
        sys.exit(1)


def _calendar(text: str, cap: Fraction) -> Calendar:
    try:
        return Calendar(text, cap, repeats=True)
    except ValueError as error:
        raise PrivacyError(f"{error}.") from None


def _check_period(asked: Plan | Calendar, options: "argparse.Namespace") -> None:
    """Refuse options that make no sense for a plan, or for a calendar."""
    problem = ""
    if isinstance(asked, Plan) and options.period is not None:
        problem = f"{options.plan} is a plan without periods: leave out --period."
    elif isinstance(asked, Calendar) and (options.round or options.job):
        problem = f"{options.plan} is a calendar: leave out --round and --job."
    elif isinstance(asked, Calendar) and options.period is None:
        problem = f"{options.plan} is a calendar: give --period, from 1 to {asked.periods}."
    if problem:
        warn_owner(f"fedldp-vehicle: error: {problem}")
        sys.exit(USAGE_STATUS)


def _row(path: str) -> Any:
    """Read a row or several; refuse what is invalid, before anything is drawn or spent."""
    if path == "-" and sys.stdin is None:
        raise DomainError("expected a row on standard input; it is closed. Give a file.")
    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        return read_row(data)
    except ValueError as error:
        raise DomainError(f"{error}. Nothing was spent.") from None


def _send(data: bytes, output: Path | None) -> None:
    try:
        if output is not None:
            output.write_bytes(data)
            return
        # A file of its own, so that nothing is left to be written when Python ends.
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as file:
            file.write(data)
    except OSError as error:
        raise DomainError(
            f"the report cannot be written: {error}. The ledger has it: run the same command again."
        ) from None


def _number(cap: str) -> Fraction:
    try:
        return exact(cap)
    except ValueError:
        raise DomainError(f"--cap must be a positive number; got {cap!r}.") from None
