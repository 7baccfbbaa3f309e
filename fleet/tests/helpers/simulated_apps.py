"""Somebody's app with the mod, in Flower's simulation.

Run as a script, `python simulated_apps.py FOLDER`, with Ray's workers.
"""

import sys
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from ledgers import made

from fedldp import Plan, Schema
from fedldp_fleet.flower import LDPMod, tally

NODES = 100


def simulate(server, client, nodes):
    from flwr.simulation import run_simulation

    run_simulation(server, client, nodes, backend_config={"client_resources": {"num_cpus": 1}})


SPEEDS = Plan(Schema.of(speed=(0, 50)), epsilon=1.0)


class Average(FedAvg):
    """A strategy of somebody's, who counts reports instead of averaging arrays."""

    def __init__(self):
        nodes = {"min_train_nodes": NODES, "min_available_nodes": NODES}
        super().__init__(fraction_evaluate=0.0, **nodes)
        self.tallies = []

    def aggregate_train(self, server_round, replies):
        self.tallies.append(tally(SPEEDS, replies))
        return ArrayRecord([np.array([float(server_round)])]), None


def with_mod(folder):
    server = ServerApp()
    mod = LDPMod(
        SPEEDS,
        ledger=made(Path(folder) / "ledger.db"),
        cap=1.0,
        vehicle_id=lambda context: str(context.node_config["partition-id"]),
    )
    client = ClientApp(mods=[mod])

    @client.train()
    def train(message, _):
        return Message(RecordDict({"m": MetricRecord({"speed": 50.0})}), reply_to=message)

    @server.main()
    def main(grid, _):
        strategy = Average()
        for count in (1, 2):
            strategy.start(grid, ArrayRecord([np.zeros(1)]), num_rounds=count)
        for number, found in enumerate(strategy.tallies):
            found.save(Path(folder) / f"tally {number}.json")

    simulate(server, client, NODES)


if __name__ == "__main__":
    with_mod(sys.argv[1])
