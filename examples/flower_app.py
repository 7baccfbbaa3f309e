"""A Flower app that a mod makes private: a fleet learns what its energy is spent on.

Needs: pip install '.[flower]'

python examples/flower_app.py     # vehicles and server in one process, without a network

In a deployment, `client` and `strategy` go into the components of your app: see
docs/flower-mod.md.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, Message, Metadata, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import fedldp
from fedldp.fleet.flower.mod import LDPMod, tally

TRUE_WEIGHTS = np.array([0.6, -0.3])  # of speed and temperature; nobody in the fleet knows them
ROUNDS, GROUP = 12, 50

# What is reported: a gradient of two numbers, each within [-1, 1]. The bound is public, and values
# outside it are clipped.
PLAN = fedldp.Plan(fedldp.Schema.vector(2, bound=1.0), epsilon=4.0, mechanism="near-zero")


def client(ledger: Path) -> ClientApp:
    """Return the vehicles' half. Apart from the mod it is an ordinary Flower app."""
    # The mod sends one report and nothing else: no loss, no num-examples. The ledger records what a
    # vehicle has spent, for life; with a cap of one answer no vehicle answers twice. The vehicle's
    # name comes from the node's own configuration, which the server cannot change.
    mod = LDPMod(
        PLAN, ledger=ledger, cap=4.0, vehicle_id=lambda node: str(node.node_config["vehicle"])
    )
    app = ClientApp(mods=[mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        (weights,) = message.content["model"].to_numpy_ndarrays()
        x, energy = own_trip(context.node_config["vehicle"])
        gradient = (x @ weights - energy) * x
        loss = MetricRecord({"loss": float(x @ weights - energy) ** 2})  # this would leak
        return Message(
            RecordDict({"gradient": ArrayRecord([gradient]), "metrics": loss}), reply_to=message
        )

    return app


class FedSGD(FedAvg):
    """The server's half: instead of averaging, it steps along the mean of the reports."""

    weights = np.zeros(2)

    def aggregate_train(self, server_round, replies):
        """Count the reports; refusals and errors among the replies are ignored."""
        counted = tally(PLAN, replies)
        if counted.reports:
            self.weights = self.weights - 0.8 * counted.estimate()["x"].mean
        return ArrayRecord([self.weights]), None


def own_trip(vehicle: int) -> tuple[np.ndarray, float]:
    """Return synthetic data of one vehicle: speed, temperature, and the energy they took."""
    *x, noise = 2 * fedldp.source(vehicle).uniform(3) - 1
    return np.array(x), float(x @ TRUE_WEIGHTS + 0.05 * noise)


def main() -> np.ndarray:
    """Ask a new group of vehicles in every round, as Flower's server does."""
    with tempfile.TemporaryDirectory() as folder:
        app, strategy = client(Path(folder) / "ledger.db"), FedSGD(fraction_evaluate=0.0)
        for number in range(ROUNDS):
            model = ArrayRecord([strategy.weights])
            group = range(number * GROUP, (number + 1) * GROUP)
            replies = [ask(app, vehicle, model) for vehicle in group]
            strategy.aggregate_train(number, replies)
    print(f"{ROUNDS * GROUP} vehicles, epsilon {PLAN.epsilon:g}, {PLAN.bits} bits each")
    print(f"weights {strategy.weights.round(2)}, the truth {TRUE_WEIGHTS}")
    return strategy.weights


def ask(app: ClientApp, vehicle: int, model: ArrayRecord) -> Message:
    """Bring a message to a vehicle and its reply back, as Flower's network does."""
    metadata = Metadata(1, "", 1, vehicle, "", "", time.time(), 60.0, "train")
    message = Message(content=RecordDict({"model": model}), metadata=metadata)
    return app(message, Context(1, vehicle, {"vehicle": vehicle}, RecordDict(), {}))


if __name__ == "__main__":
    main()
