"""The server's half. Apart from `private` it is an ordinary Flower app."""

import json
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedldp_fleet.flower import private
from iris.task import PLAN, TEST, accuracy, flowers

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds and evaluate after each, with flowers that no node has."""
    nodes = int(context.run_config["nodes"])
    strategy = private(FedAvg, PLAN)(min_train_nodes=nodes, min_available_nodes=nodes)
    result = strategy.start(
        grid,
        initial_arrays=ArrayRecord([np.zeros((3, 4)), np.zeros(3)]),
        num_rounds=int(context.run_config["rounds"]),
        evaluate_fn=evaluate,
    )
    if path := str(context.run_config["result"]):
        found = {number: dict(each) for number, each in result.evaluate_metrics_serverapp.items()}
        Path(path).write_text(json.dumps(found), encoding="utf-8")


def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
    """Return the accuracy of a model on the server's own flowers."""
    x, y = flowers()
    return MetricRecord({"accuracy": accuracy(*arrays.to_numpy_ndarrays(), x[:TEST], y[:TEST])})
