"""`fedldp ledger`: what the owner of a ledger can see, and do if it is damaged."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, final

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedldp.budget import ledger as ledgers
from fedldp.budget.composition import COMPOSITION_DELTA, Composition
from fedldp.budget.ledger import Overview
from fedldp.budget.overview import costs
from fedldp.cli.plans import console
from fedldp.errors import DomainError
from fedldp.vehicle import exact

_BAR = 30  # characters of the longest bar
_LEVELS = 20  # of the budget, for people


@click.group("ledger")
def ledger_group() -> None:
    """Show or repair the file that records what was spent.

    \b
    fedldp ledger init ledger.db       make the ledger of new vehicles
    fedldp ledger show ledger.db       what the vehicles have spent
    fedldp ledger seal ledger.db       if the file is damaged: refuse everybody
    fedldp ledger mirror ledger.db second/ledger.db

    The ledger records what each vehicle has spent of its privacy budget. An
    agent and `fedldp report` write to it. Never delete it, and never restore a
    backup of it: that would forget what was spent since.
    """  # noqa: D301 (click wants the character \b itself)


@ledger_group.command("init")
@click.argument("ledger", type=click.Path(path_type=Path, dir_okay=False))
def init_command(ledger: Path) -> None:
    """Make the ledger of vehicles that have never answered.

    \b
    fedldp ledger init ledger.db

    Do this once in the life of these vehicles. No other command makes a missing
    ledger: if yours is gone, find it, because a new one would forget what was
    spent. Two files belong together, `ledger.db` and `ledger.db-head`.
    """  # noqa: D301 (click wants the character \b itself)
    ledgers.create(ledger)
    click.echo(f"Made the ledger {ledger}: nobody has spent anything.")


@ledger_group.command("seal")
@click.argument("ledger", type=click.Path(path_type=Path, dir_okay=False))
def seal_command(ledger: Path) -> None:
    """Replace a damaged or lost ledger by one that refuses everybody.

    \b
    fedldp ledger seal car/ledger.db

    It is no longer known what these vehicles have spent, so they may never
    spend anything again: an agent with this ledger answers no question. The old
    file is moved, unchanged, into a folder beside it, together with its -head,
    -wal and -shm files. Stop the agent first.
    """  # noqa: D301 (click wants the character \b itself)
    aside = ledgers.seal(ledger)
    moved = f"There was no file {ledger}." if aside is None else f"Moved {ledger} into {aside}."
    click.echo(f"{moved} Wrote a sealed ledger to {ledger}: it refuses every vehicle.")


_FILE = click.Path(path_type=Path, dir_okay=False)


@ledger_group.command("mirror")
@click.argument("ledger", type=_FILE)
@click.argument("mirror", type=_FILE)
def mirror_command(ledger: Path, mirror: Path) -> None:
    """Keep a second file of a ledger, on another disk.

    \b
    fedldp ledger mirror ledger.db second/ledger.db

    One bad sector can exclude all vehicles of a ledger for life. With a mirror,
    no answer leaves before both files are on disk, and if the ledger is lost,
    `fedldp ledger takeover` puts the mirror in its place. While the mirror is
    missing, the ledger answers nothing.
    """  # noqa: D301 (click wants the character \b itself)
    ledgers.mirror(ledger, mirror)
    click.echo(f"{mirror} mirrors {ledger} from now on.")


@ledger_group.command("takeover")
@click.argument("mirror", type=_FILE)
def takeover_command(mirror: Path) -> None:
    """Put a mirror in the place of a lost or damaged ledger.

    \b
    fedldp ledger takeover second/ledger.db

    The mirror is the ledger from now on: name it where the old file was named,
    such as `ledger` in agent.toml. If the old file can be read, the command
    refuses a mirror that may lack something that was spent, and marks the old
    file, which is refused for good. If the command cannot read the old file
    now, that file still cannot answer without its mirror: never detach the old
    file.
    """  # noqa: D301 (click wants the character \b itself)
    old = ledgers.take_over(mirror)
    click.echo(f"{mirror} is the ledger now. Never use {old} again.")


@ledger_group.command("detach")
@click.argument("ledger", type=_FILE)
def detach_command(ledger: Path) -> None:
    """Use a ledger without its mirror from now on.

    \b
    fedldp ledger detach ledger.db
    fedldp ledger mirror ledger.db third/ledger.db   a new one

    Use this if the mirror's disk has failed. The mirror lacks what is spent from
    now on, so it must never take over. Never detach a ledger whose mirror has
    taken over already: the ledger lacks what was spent since.
    """  # noqa: D301 (click wants the character \b itself)
    if ledgers.detach(ledger):
        click.echo(f"{ledger} has no mirror any more. Its former mirror never takes over.")
    else:
        click.echo(
            f"{ledger} has no mirror any more. Its former mirror could not be reached: destroy it, "
            "and never let it take over, because it lacks what is spent from now on."
        )


@ledger_group.command("show")
@click.argument(
    "path", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="LEDGER"
)
@click.option(
    "--cap",
    help="The cap of each vehicle, which a ledger does not contain.",
    metavar="EPSILON",
)
@click.option(
    "--delta",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=COMPOSITION_DELTA,
    show_default=True,
    help="The probability with which the smaller epsilon of many answers may fail to hold.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def show_command(path: Path, cap: str | None, delta: float, as_json: bool) -> None:
    """Show what is left of the vehicles' budgets.

    \b
    fedldp ledger show ledger.db
    fedldp ledger show ledger.db --cap 4

    It also shows which jobs they answered. `fedldp agent status` adds what the
    owner's settings say.

    What is promised and enforced is the sum of a vehicle's epsilons. Many small
    answers reveal less than this sum: except with the probability --delta, all
    of them together are as private as one answer of a smaller epsilon, which is
    shown, too. This holds if earlier answers did not decide the epsilons of
    later questions.

    This is for the owner of the vehicles: it shows what each vehicle has
    answered and spent, for all servers. The ledger has mode 600, so only the
    agent's user can read it; do not pass the output on.

    The agent may run meanwhile. Nothing is changed.
    """  # noqa: D301 (click wants the character \b itself)
    shown = _of_file(path, cap, delta)
    if as_json:
        click.echo(json.dumps(shown.document(), indent=2))
    else:
        console().print(shown.render())


@final
@dataclass(frozen=True)
class _Shown:
    """A ledger for its owner."""

    path: Path
    found: Overview
    delta: float
    cap: Fraction | None = None

    @property
    def budget(self) -> list[tuple[Fraction, int]]:
        """How many vehicles have how much left or, without a cap, have spent how much."""
        if self.cap is None:
            return sorted(Counter(self.found.totals.values()).items())
        return list(self.found.left(self.cap, 0).items())

    @cached_property
    def _most(self) -> tuple[Fraction, float] | None:
        """The largest sum of epsilons of a vehicle, and the largest second number."""
        different = {frozenset(each.items()) for each in costs(self.path).values()}
        composed = [Composition.of(dict(each)) for each in different]
        if not composed:
            return None
        most = max(each.epsilon for each in composed)
        return most, max(each.approximate(self.delta) for each in composed)

    @property
    def _which(self) -> str:
        return "spent" if self.cap is None else "left"

    def document(self) -> dict[str, Any]:
        return {
            "format": "fedldp ledger overview 1",
            "ledger": str(self.path),
            "cap": None if self.cap is None else str(float(self.cap)),
            "vehicles_answered": len(self.found.totals),
            "composition": self._composition,
            "budget": [{self._which: str(float(e)), "vehicles": n} for e, n in self.budget],
            "jobs": [job._asdict() for job in self.found.jobs],
            "sealed": self.found.sealed or None,
        }

    @property
    def _composition(self) -> dict[str, Any] | None:
        if self._most is None:
            return None
        most, approximate = self._most
        return {"epsilon": float(most), "approximate_epsilon": approximate, "delta": self.delta}

    def render(self) -> RenderableType:
        """Return it for people."""
        grid = Table.grid(padding=(0, 2))
        for row in self._rows():
            grid.add_row(*row)
        parts: list[RenderableType] = [Text(str(self.path), style="bold"), grid]
        if self.budget:
            parts.append(_table(self._which, self.budget))
        if self.found.jobs:
            jobs = Table(box=None, padding=(0, 2))
            for name in ("job", "questions", "answers"):
                jobs.add_column(name)
            for job in self.found.jobs:
                name = job.job or "(no job)"
                jobs.add_row(Text(name), f"{job.questions:,}", f"{job.answers:,}")
            parts.append(jobs)
        return Group(*parts)

    def _rows(self) -> Iterator[tuple[str, str]]:
        if self.cap is not None:
            yield "  cap", f"{float(self.cap)} for the life of a vehicle"
        yield "  have answered", f"{len(self.found.totals):,}"
        if self._most is not None:
            most, approximate = self._most
            smaller = approximate < most
            also = f"; together ({approximate:.3g}, {self.delta:g})-private" if smaller else ""
            yield "  spent at most", f"{float(most):.6g} by one vehicle{also}"
        if self.found.sealed:
            yield "  sealed", f"since {self.found.sealed}: it refuses every vehicle"


def _table(name: str, budget: list[tuple[Fraction, int]]) -> Table:
    """Return how many vehicles have, or have spent, how much."""
    table = Table(box=None, padding=(0, 2))
    for head in (name, "vehicles", ""):
        table.add_column(head, justify="right" if head == "vehicles" else "left")
    most = max(count for _, count in budget)
    for epsilon, count in budget[:_LEVELS]:
        table.add_row(str(float(epsilon)), f"{count:,}", "#" * max(1, _BAR * count // most))
    if len(budget) > _LEVELS:
        rest = sum(count for _, count in budget[_LEVELS:])
        table.add_row("other", f"{rest:,}", "")
    return table


def _of_file(path: Path, cap: str | None, delta: float) -> _Shown:
    try:
        number = None if cap is None else exact(cap)
    except ValueError:
        raise DomainError(f"--cap must be a positive number; got {cap!r:.80}.") from None
    return _Shown(path, ledgers.overview(path), delta, number)
