"""`fedldp fleet`: a server, gateways and vaults as processes on one machine or on many."""

import click

from fedldp.cli.fleet.demo import demo_command
from fedldp.cli.fleet.doctor import doctor_command
from fedldp.cli.fleet.init import init_command
from fedldp.cli.fleet.members import (
    add_gateway_command,
    job_command,
    remove_gateway_command,
    rotate_keys_command,
)
from fedldp.cli.fleet.monitor import monitor_command
from fedldp.cli.fleet.parts import (
    gateway_command,
    reload_command,
    server_command,
    stop_command,
    uplink_command,
    vault_command,
)
from fedldp.cli.fleet.sign import sign_command
from fedldp.cli.fleet.status import status_command
from fedldp.cli.fleet.transparency import transparency_command


@click.group("fleet")
def fleet_group() -> None:
    """Run a production fleet: vaults, gateways and a server.

    \b
    fedldp fleet demo                    a whole fleet on this machine
    fedldp fleet init fleet              write its files; then, on each machine:
    fedldp fleet doctor fleet/vault-1    check it first
    fedldp fleet vault fleet/vault-1
    fedldp fleet gateway fleet/gateway-1
    fedldp fleet server fleet/server
    fedldp fleet status fleet            what its parts are doing here
    fedldp fleet reload fleet/vault-1    read its data again, for new vehicles
    fedldp fleet job fleet NAME          the next job, when this one is done
    fedldp fleet sign fleet/server --key operator.key   so that vaults answer
    fedldp fleet add-gateway fleet NAME  and remove-gateway, rotate-keys
    fedldp fleet transparency fleet/vault-1   what a vault was asked
    fedldp fleet monitor fleet/server    health, metrics and a live page
    fedldp fleet stop fleet              stop what runs on this machine

    A vault runs where the data are, for one vehicle or for many. It holds the
    data, the cap (the most that a vehicle may spend in its life) and the ledger
    (the file that records what each vehicle has spent), and it answers with
    noisy reports only. A gateway passes questions to its vaults and reports to
    the server; it is a node of Flower, the framework that connects them. The
    server asks, counts the reports and, in a training, improves the model.

    Needs Linux and the extras cli and flower. In a clone of fedldp, run
    pip install '.[cli,flower]'
    """  # noqa: D301 (click wants the character \b itself)


for command in (
    add_gateway_command,
    demo_command,
    doctor_command,
    gateway_command,
    init_command,
    job_command,
    monitor_command,
    reload_command,
    remove_gateway_command,
    rotate_keys_command,
    server_command,
    sign_command,
    status_command,
    stop_command,
    transparency_command,
    uplink_command,
    vault_command,
):
    fleet_group.add_command(command)
