"""The commands of a fleet, without `fedldp`: `python -m fedldp_fleet agent run FOLDER`."""

import sys

import click

from fedldp.errors import FedLDPError
from fedldp.vehicle import protect_standard_files, warn_owner
from fedldp_fleet.commands.agent import agent_group


@click.group()
def main() -> None:
    """Run the commands of a fleet."""


main.add_command(agent_group, "agent")

if __name__ == "__main__":
    protect_standard_files()
    try:
        main(prog_name="python -m fedldp_fleet")
    except (FedLDPError, OSError) as error:
        warn_owner(f"fedldp: {error}")
        sys.exit(1)
