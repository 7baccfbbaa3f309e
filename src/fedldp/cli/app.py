"""The `fedldp` command and its subcommands."""

import click

from fedldp import __version__
from fedldp.cli.audit import audit_command
from fedldp.cli.collect import collect_command
from fedldp.cli.data import data_group
from fedldp.cli.demo import demo_command
from fedldp.cli.estimates import estimate_command
from fedldp.cli.fleet import fleet_group
from fedldp.cli.ledger import ledger_group
from fedldp.cli.mechanisms import mechanisms_command
from fedldp.cli.plans import plan_command, schema_command
from fedldp.cli.predict import predict_command
from fedldp.cli.reports import report_command, tally_command
from fedldp.cli.train import train_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
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


for command in (
    demo_command,
    mechanisms_command,
    audit_command,
    schema_command,
    collect_command,
    data_group,
    train_command,
    predict_command,
    plan_command,
    report_command,
    tally_command,
    estimate_command,
    ledger_group,
    fleet_group,
):
    fedldp.add_command(command)
