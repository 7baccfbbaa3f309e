"""The `fedldp` command and its subcommands."""

import click

from fedldp import __version__
from fedldp.cli.audit import audit_command
from fedldp.cli.mechanisms import mechanisms_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def fedldp() -> None:
    """Private federated learning on fleets."""


fedldp.add_command(mechanisms_command)
fedldp.add_command(audit_command)
