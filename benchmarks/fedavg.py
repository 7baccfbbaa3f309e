"""Flower's own FedAvg, as an app for `make bench-fleet`: every SuperNode is a vehicle.

Each sends its vector in float32, and of how many examples it is, as FedAvg wants.
"""

import contextlib
import time

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedldp.fleet.job import Job
from fedldp.fleet.server.rounds import Rounds

server = ServerApp()
client = ClientApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run as many rounds as the job has, and write down when each has ended, from the zeroth on."""
    job = Job.load(str(context.run_config["job"]))

    def note(*_: object) -> None:
        with job.result.open("a") as ends:
            ends.write(f"{time.monotonic()}\n")

    first = ArrayRecord([np.zeros(len(job.model.weights), np.float32)])
    count = job.gateways
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=count, min_available_nodes=count)
    with contextlib.closing(Rounds(job)):  # while it is open, nobody orders another run
        strategy.start(grid, first, num_rounds=job.rounds, evaluate_fn=note)


@client.train()
def train(message: Message, _: Context) -> Message:
    """Send a vector of random numbers, as large as the model."""
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    gradient = np.random.default_rng().uniform(-1, 1, weights.shape).astype(np.float32)
    content = {"arrays": ArrayRecord([gradient]), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(content), reply_to=message)
