"""The `fedldp` command. Each subcommand is imported when it is run or its own help is shown."""

from importlib import import_module
from typing import NamedTuple

import click

from fedldp import __version__


class _Entry(NamedTuple):
    """Where a subcommand is, and its line in the list of commands, which a test compares."""

    module: str
    attribute: str
    summary: str


_COMMANDS = {
    "audit": _Entry("audit", "audit_command", "Prove, from its integers, what a channel leaks."),
    "collect": _Entry(
        "collect",
        "collect_command",
        "Simulate a fleet on a CSV or Parquet file, each row a vehicle.",
    ),
    "data": _Entry("data", "data_group", "Show and fetch data sets."),
    "demo": _Entry(
        "demo", "demo_command", "Predict which flights are late, from a few bits of each."
    ),
    "estimate": _Entry(
        "estimates", "estimate_command", "Show means and frequencies, with error bars."
    ),
    "fleet": _Entry(
        "fleet", "fleet_group", "Run a fleet in earnest: vaults, gateways and a server."
    ),
    "ledger": _Entry("ledger", "ledger_group", "Look after the file that knows what was spent."),
    "mechanisms": _Entry(
        "mechanisms", "mechanisms_command", "Compare the mechanisms by their worst-case variance."
    ),
    "plan": _Entry(
        "plans", "plan_command", "Make the file that every vehicle and the server hold."
    ),
    "predict": _Entry(
        "predict", "predict_command", "Add a prediction to each row of a CSV or Parquet file."
    ),
    "report": _Entry("reports", "report_command", "Answer a plan once, as a vehicle does."),
    "schema": _Entry(
        "plans", "schema_command", "Draft a schema for the columns of a CSV or Parquet file."
    ),
    "tally": _Entry("reports", "tally_command", "Count reports, as a server does."),
    "train": _Entry(
        "train", "train_command", "Train a model on a fleet, with a few bits of each vehicle."
    ),
}


class _Commands(click.Group):
    """The subcommands by name; only the one that is asked for is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _COMMANDS.get(cmd_name)
        if entry is None:
            return None
        found: click.Command = getattr(import_module(f"fedldp.cli.{entry.module}"), entry.attribute)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name].summary) for name in sorted(_COMMANDS)])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def fedldp() -> None:
    """Private federated learning on fleets.

    Each vehicle sends a few noisy bits. Whoever sees them can change the odds
    of any guess about its data by a factor of e^epsilon at the most: the
    smaller its budget epsilon, the more private, and the more noise.

    \b
    Start:     demo
    Compare:   mechanisms, audit
    Try out:   schema, data, collect, train, predict
    Deploy:    plan, report, ledger (vehicle), tally, estimate (server),
               fleet (all of it)

    \b
    fedldp demo                        a fleet of flights learns, in seconds
    fedldp mechanisms --epsilon 1      how accurate one number can be
    fedldp train --data flights --task logistic --epsilon 4
    fedldp train --help                each command's help begins with examples

    \b
    Completion by tab, in bash (or zsh_source, fish_source in those shells):
    eval "$(_FEDLDP_COMPLETE=bash_source fedldp)"
    """  # noqa: D301 (click wants the character \b itself)
