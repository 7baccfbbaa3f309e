"""The `fedldp` command. Each subcommand is imported when it is run or its own help is shown."""

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple

import click

from fedldp import __version__
from fedldp._internal.text import closest


class _Entry(NamedTuple):
    """Where a subcommand is, and its line in the list of commands, which a test checks."""

    module: str
    attribute: str
    summary: str


_COMMANDS = {
    "advise": _Entry(
        "advise", "advise_command", "Say which epsilon and strategy fit a schema and a fleet."
    ),
    "audit": _Entry("audit", "audit_command", "Prove how much the table of a channel leaks."),
    "collect": _Entry(
        "collect",
        "collect_command",
        "Simulate statistics of a fleet: each row of a file is a vehicle.",
    ),
    "compare": _Entry(
        "compare", "compare_command", "Compare the library's mechanisms and those of other papers."
    ),
    "compile": _Entry(
        "compile", "compile_command", "Write a plan as constants for the vehicle in C."
    ),
    "data": _Entry("data", "data_group", "List, describe and download data sets."),
    "demo": _Entry("demo", "demo_command", "Predict late flights from a few bits of each flight."),
    "estimate": _Entry(
        "estimates",
        "estimate_command",
        "Show means, frequencies and distributions with error bars.",
    ),
    "ledger": _Entry(
        "ledger", "ledger_group", "Show or repair the file that records what was spent."
    ),
    "mechanisms": _Entry(
        "mechanisms", "mechanisms_command", "Compare mechanisms by their worst-case variance."
    ),
    "plan": _Entry("plans", "plan_command", "Make the plan that every vehicle and the server use."),
    "predict": _Entry(
        "predict", "predict_command", "Add a prediction to each row of a CSV or Parquet file."
    ),
    "quantile": _Entry(
        "quantile",
        "quantile_command",
        "Simulate how a fleet finds one quantile: each row is a vehicle.",
    ),
    "report": _Entry("reports", "report_command", "Answer a plan once, as a vehicle does."),
    "schema": _Entry(
        "plans", "schema_command", "Draft a schema for the columns of a file, or for signals."
    ),
    "tally": _Entry("reports", "tally_command", "Count reports, as a server does."),
    "train": _Entry("train", "train_command", "Simulate training: each vehicle sends a few bits."),
    "trend": _Entry(
        "estimates", "trend_command", "Show how estimates change over the periods of a calendar."
    ),
}


class _Commands(click.Group):
    """The subcommands by name; only the one that is asked for is imported.

    Other distributions add commands with entry points of the group `fedldp.commands`.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS.keys() | _other_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (entry := _COMMANDS.get(cmd_name)) is not None:
            module = import_module(f"fedldp.cli.{entry.module}")
            found: click.Command = getattr(module, entry.attribute)
            return found
        added = _other_commands().get(cmd_name)
        return None if added is None else added.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the command that was meant by one that is misspelt."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and (near := closest(args[0], known)) is not None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        summaries = {name: entry.summary for name, entry in _COMMANDS.items()}
        for name, added in _other_commands().items():
            summaries[name] = added.load().get_short_help_str(limit=80)
        with formatter.section("Commands"):
            formatter.write_dl(sorted(summaries.items()))


def _other_commands() -> dict[str, EntryPoint]:
    """Return the commands of other distributions."""
    return {each.name: each for each in entry_points(group="fedldp.commands")}


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def fedldp() -> None:
    """Private federated learning on fleets.

    Each vehicle sends a few noisy bits. Anybody who sees them can improve the
    odds of a guess about its data by a factor of at most e^epsilon. A smaller
    privacy budget epsilon means more privacy and more noise.

    \b
    Start:       demo
    Compare:     mechanisms, compare, audit
    Plan:        schema, advise, plan
    Simulate:    data, collect, quantile, train, predict
    Deploy:      compile (for a device in C), report, ledger (on a vehicle),
                 tally, estimate, trend (on a server), server and agent (a
                 fleet)

    \b
    fedldp demo                        train on flights, in seconds
    fedldp mechanisms --epsilon 1      how accurate one number can be
    fedldp train --data flights --task logistic --epsilon 4
    fedldp train --help                the help of each command has examples

    \b
    To complete commands with the tab key, in bash (or zsh_source, fish_source):
    eval "$(_FEDLDP_COMPLETE=bash_source fedldp)"
    """  # noqa: D301 (click wants the character \b itself)
