"""`fedldp audit`: prove how much a channel leaks, and attack it."""

import json
from fractions import Fraction
from math import floor, inf
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from fedldp import audit
from fedldp._internal import validation
from fedldp.cli.completion import offer
from fedldp.coders.channel import Channel
from fedldp.errors import PrivacyError
from fedldp.mechanisms import mechanism, mechanism_names
from fedldp.randomness import source

_PAIRS = ((-1.0, 1.0), (0.0, 1.0), (0.1, 0.2))
_CONFIDENCE = 0.999999  # a false alarm in a million runs


@click.command("audit")
@click.argument("name", required=False, shell_complete=offer(mechanism_names))
@click.option("--epsilon", type=float, help="The privacy budget of the mechanism.  [default: 1.0]")
@click.option(
    "--outputs",
    type=int,
    help="The number of different values that may be sent.  [default: the mechanism's own]",
)
@click.option(
    "--channel",
    "path",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Audit the channel in FILE (JSON) instead of a mechanism.",
    metavar="FILE",
)
@click.option("--attack", is_flag=True, help="Also attack the channel with random samples.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def audit_command(
    name: str | None,
    epsilon: float | None,
    outputs: int | None,
    path: Path | None,
    attack: bool,
    as_json: bool,
) -> None:
    """Prove how much the table of a channel leaks.

    \b
    fedldp audit three-outputs --epsilon 1      the channel of a mechanism
    fedldp audit pm --epsilon 4 --outputs 2001  as many outputs as in the paper
    fedldp audit hm-tp --attack                 and attack what it sends
    fedldp audit --channel channel.json         a file, before you trust it

    A channel is a table of integers from which a vehicle draws what it sends.
    NAME is a mechanism of `fedldp mechanisms`. The exit status is 1 if the
    channel leaks more than it claims.
    """  # noqa: D301 (click wants the character \b itself)
    if (name is None) == (path is None):
        raise click.UsageError("give either the NAME of a mechanism or --channel FILE.")
    if path is not None:
        if epsilon is not None or outputs is not None:
            raise click.UsageError(
                "a --channel FILE has its own epsilon and outputs: leave out --epsilon and "
                "--outputs."
            )
        channel = _read(path)
    else:
        budget = validation.epsilon(1.0 if epsilon is None else epsilon)
        channel = mechanism(str(name), budget).channel(outputs)
    proved = audit.exact(channel)
    attempt = (
        audit.attack(channel.encode, (proved.pair, *_PAIRS), source(), confidence=_CONFIDENCE)
        if attack
        else None
    )
    document = _document(name or str(path), proved, attempt)
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        Console(highlight=False).print(_render(document))
    if not document["holds"]:
        epsilon = max(float(proved.low), attempt.bound if attempt else 0.0)
        raise PrivacyError(_leak(document["audited"], float(proved.nominal), epsilon))


def _read(path: Path) -> Channel:
    text = path.read_text("utf-8", errors="replace")
    try:
        return Channel.from_json(text)
    except PrivacyError as error:
        document = json.loads(text)
        low, _ = audit.true_epsilon([[int(n) for n in row] for row in document["counts"]])
        nominal = float(document["epsilon"])
        if low <= nominal:  # refused for another reason
            raise PrivacyError(f"{path}: {error}") from error
        raise PrivacyError(f"{_leak(str(path), nominal, float(low))} It is {error}") from error


def _leak(what: str, nominal: float, epsilon: float) -> str:
    return (
        f"{what} leaks more than it claims: its epsilon is {epsilon:.17g} or more, "
        f"not {nominal:g}. Do not use it."
    )


def _document(what: str, proved: audit.ExactAudit, found: audit.Attack | None) -> dict[str, Any]:
    document = {
        "audited": what,
        "holds": proved.holds and (found is None or found.bound <= proved.nominal),
        "epsilon": float(proved.nominal),
        "true_epsilon": [_decimal(proved.low), _decimal(proved.high, up=True)],
        "shortfall": float(proved.shortfall),
        "column": proved.column,
        "most_and_least_likely_at": proved.pair,
        "bias": float(proved.bias),
        "worst_case_variance": proved.worst_case_variance,
        "letters": proved.letters,
        "outputs": proved.outputs,
        "bits": proved.bits,
    }
    if found is not None:
        document["attack"] = vars(found)
    return document


def _decimal(number: Fraction | float, *, up: bool = False, digits: int = 24) -> str:
    """Return a number with `digits` decimals, rounded down or up: floats have too few."""
    if number == inf:
        return "inf"
    whole = floor(number * 10**digits) + up
    return f"{whole // 10**digits}.{whole % 10**digits:0{digits}}"


def _render(document: dict[str, Any]) -> Table:
    holds = document["holds"]
    rendered = Table(title=f"Audit of {document['audited']}", show_header=False)
    rendered.add_column(no_wrap=True)
    rendered.add_column()
    most, least = document["most_and_least_likely_at"]
    rows = [
        ("verdict", "as private as it claims" if holds else "LEAKS MORE THAN IT CLAIMS"),
        ("claimed epsilon", f"{document['epsilon']:.17g}"),
        ("true epsilon, at least", document["true_epsilon"][0]),
        ("true epsilon, at most", document["true_epsilon"][1]),
        ("short of the claim by", f"{document['shortfall']:.3g}"),
        ("attained by", f"output {document['column']}, at x = {most:.5g} against {least:.5g}"),
        ("largest bias", f"{document['bias']:.2g}"),
        ("worst-case variance", f"{document['worst_case_variance']:.6g}"),
        ("inputs, outputs", f"{document['letters']}, {document['outputs']}"),
        ("bits to send", str(document["bits"])),
    ]
    if "attack" in document:
        attack = document["attack"]
        first, second = attack["pair"]
        rows += [
            ("attack: epsilon at least", f"{attack['bound']:.4g}"),
            ("  with confidence", f"{100 * attack['confidence']:g}%"),
            ("  telling apart", f"x = {first:g} and x = {second:g}"),
            ("  by the event", attack["event"]),
            ("  which happened", "{} and {} times in {}".format(*attack["hits"], attack["trials"])),
        ]
    for row in rows:
        rendered.add_row(*row)
    return rendered
