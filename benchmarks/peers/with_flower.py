"""Flower: a round of its simulation engine, in which each client sends a gradient of floats."""

import os
import time

os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # Ray says so at length otherwise

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from work import Task, Work

PACKAGES = ("flwr", "ray")
CLOCK = "perf_counter"  # Ray works in processes of its own
CLIENTS = 200


def serve(work: Work, answer) -> None:
    x, y = work.examples(CLIENTS)
    client, server = ClientApp(), ServerApp()

    @client.train()
    def gradient(message: Message, context: Context) -> Message:
        (weights,) = message.content["weights"].to_numpy_ndarrays()
        number = int(context.node_config["partition-id"])
        slope = -y[number] / (1 + np.exp(y[number] * (x[number] @ weights)))
        return Message(RecordDict({"gradient": ArrayRecord([slope * x[number]])}), reply_to=message)

    @server.main()
    def main(grid: Grid, _: Context) -> None:
        while len(nodes := list(grid.get_node_ids())) < CLIENTS:
            time.sleep(0.1)

        def one_round() -> list[float]:
            weights = ArrayRecord([np.zeros(x.shape[1])])
            asked = [
                Message(RecordDict({"weights": weights}), message_type="train", dst_node_id=node)
                for node in nodes
            ]
            replies = list(grid.send_and_receive(asked))
            gradients = [each.content["gradient"].to_numpy_ndarrays()[0] for each in replies]
            return np.mean(gradients, axis=0).tolist()

        one_round()  # Ray starts its processes
        answer({"a round": Task(CLIENTS, one_round)})

    run_simulation(server, client, CLIENTS, backend_config={"client_resources": {"num_cpus": 1}})
