"""The fleet's own app in Flower's simulation.

Run as a script, `python simulations.py FOLDER`, with Ray's workers.
"""

import sys
from pathlib import Path

from flwr.serverapp import ServerApp

from fedldp.fleet import app

NODES = 100


def simulate(server, client, nodes):
    from flwr.simulation import run_simulation

    run_simulation(server, client, nodes, backend_config={"client_resources": {"num_cpus": 1}})


def fleet(folder):
    server = ServerApp()

    @server.main()
    def main(grid, context):
        context.run_config["job"] = str(Path(folder) / "job.toml")  # as `flwr run -c` does
        app.server(grid, context)

    simulate(server, app.client, NODES)


if __name__ == "__main__":
    fleet(sys.argv[1])
