"""Apps as Flower's quickstarts have them, made private, and a network of nodes in one process.

Run as a script, `python flower_apps.py PATTERN FOLDER`, it runs a pattern in Flower's simulation.
"""

import json
import sys
from pathlib import Path

import numpy as np
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    Metadata,
    MetricRecord,
    RecordDict,
)
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam, FedAvg
from flwr.supercore.task_identity import TaskIdentity
from ledgers import made

from fedldp import Plan, Schema
from fedldp_fleet.flower import LDPMod, private, tally

NODES, ROWS, ROUNDS = 24, 10, 2
EPSILON = 12.0  # so that 24 nodes learn something: these tests are about the mechanics


def partition(context):
    return str(context.node_config["partition-id"])


# Data that are local: flowers of three species, a few for each node.


def iris():
    from sklearn.datasets import load_iris

    x, y = load_iris(return_X_y=True)
    return (x - x.mean(axis=0)) / (2 * x.std(axis=0)), y


def flowers(context):
    x, y = iris()
    rows = np.random.default_rng(context.node_config["partition-id"]).integers(len(x), size=ROWS)
    return x[rows], y[rows]


def accuracy(weights, bias):
    x, y = iris()
    return float(np.mean((x @ np.asarray(weights).T + bias).argmax(axis=1) == y))


# The patterns: what an app consists of before it is private, with one line more on each side.


class Sklearn:
    """As quickstart-sklearn: a model of scikit-learn, with its coefficients as arrays."""

    plan = Plan(Schema.vector(15, length=1.0), EPSILON, strategy="directions")
    strategy = FedAvg

    def client(self, folder):
        mod = LDPMod(
            self.plan,
            ledger=made(Path(folder) / "ledger.db"),
            cap=ROUNDS * EPSILON,
            delta=True,
            vehicle_id=partition,
        )
        app = ClientApp(mods=[mod])

        @app.train()
        def train(message, context):
            from sklearn.linear_model import SGDClassifier

            model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.2)
            model.classes_, model.t_ = np.arange(3), 1.0
            model.coef_, model.intercept_ = message.content["arrays"].to_numpy_ndarrays()
            x, y = flowers(context)
            model.partial_fit(x, y, classes=model.classes_)
            arrays = ArrayRecord([model.coef_, model.intercept_])
            metrics = MetricRecord({"num-examples": len(x), "train_loss": 0.7})
            content = RecordDict({"arrays": arrays, "metrics": metrics})
            return Message(content, reply_to=message)

        @app.evaluate()
        def evaluate(*_):
            raise AssertionError("vehicles are not asked to evaluate")

        return app

    def arrays(self):
        return ArrayRecord([np.zeros((3, 4)), np.zeros(3)])

    def accuracy(self, arrays):
        return accuracy(*arrays.to_numpy_ndarrays())

    def evaluate(self, _, arrays):
        return MetricRecord({"accuracy": self.accuracy(arrays)})

    def options(self):
        return {"min_train_nodes": NODES, "min_available_nodes": NODES}

    def serve(self, grid):
        strategy = private(self.strategy, self.plan)(**self.options())
        return strategy.start(
            grid, self.arrays(), num_rounds=ROUNDS, evaluate_fn=self.evaluate, timeout=600
        )


class PyTorch(Sklearn):
    """As quickstart-pytorch: the state of a network, by name, in float32."""

    strategy = FedAdam

    def client(self, folder):
        app = super().client(folder)
        app = ClientApp(mods=app._mods)

        @app.train()
        def train(message, context):
            import torch

            torch.set_num_threads(1)  # a network this small is slower with more
            model = self.model()
            model.load_state_dict(message.content["arrays"].to_torch_state_dict())
            x, y = (torch.tensor(each) for each in flowers(context))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
            for _ in range(10):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x.float()), y)
                loss.backward()
                optimizer.step()
            arrays = ArrayRecord(model.state_dict())
            metrics = MetricRecord({"num-examples": len(x), "train_loss": loss.item()})
            content = RecordDict({"arrays": arrays, "metrics": metrics})
            return Message(content, reply_to=message)

        return app

    def model(self):
        import torch

        torch.manual_seed(7)
        return torch.nn.Sequential(torch.nn.Linear(4, 3))

    def arrays(self):
        return ArrayRecord(self.model().state_dict())

    def options(self):
        return super().options() | {"eta": 0.3}

    def accuracy(self, arrays):
        model = self.model()
        model.load_state_dict(arrays.to_torch_state_dict())  # by name, shape and type
        return accuracy(model[0].weight.detach().numpy(), model[0].bias.detach().numpy())


class Numpy(Sklearn):
    """A NumPyClient: the strategy's records have the names that it knows."""

    class Client(NumPyClient):
        def __init__(self, data):
            self.data = data

        def fit(self, parameters, config):
            (weights, bias), (x, y) = parameters, self.data
            for _ in range(10):
                odds = np.exp(x @ weights.T + bias)
                error = odds / odds.sum(axis=1, keepdims=True) - np.eye(3)[y]
                weights = weights - 0.5 * error.T @ x / len(x)
                bias = bias - 0.5 * error.mean(axis=0)
            return [weights, bias], len(x), {"loss": 0.7}

    def client(self, folder):
        mods = super().client(folder)._mods
        return ClientApp(lambda context: self.Client(flowers(context)).to_client(), mods=mods)

    def options(self):
        names = {"arrayrecord_key": "fitins.parameters", "configrecord_key": "fitins.config"}
        return super().options() | names


class Query(Sklearn):
    """A query handler: a statistic by name, and a server without a strategy."""

    plan = Plan(Schema.of(petal={"low": 0, "high": 8}, species=["0", "1", "2"]), EPSILON)

    def client(self, folder):
        mod = LDPMod(
            self.plan,
            ledger=made(Path(folder) / "ledger.db"),
            cap=EPSILON,
            vehicle_id=partition,
            answers="query",
        )
        app = ClientApp(mods=[mod])

        @app.query()
        def query(message, context):
            _, y = flowers(context)
            metrics, config = MetricRecord({"petal": 3.0}), ConfigRecord({"species": str(y[0])})
            return Message(RecordDict({"m": metrics, "c": config}), reply_to=message)

        return app

    def serve(self, grid):
        question = RecordDict({"config": ConfigRecord({"survey": 1})})
        while len(nodes := list(grid.get_node_ids())) < NODES:
            pass
        messages = [Message(question, node, "query") for node in nodes]
        return tally(self.plan, grid.send_and_receive(messages, timeout=600))


class Network(Grid):
    """Nodes that are one app in one process, each with a configuration of its own."""

    def __init__(self, app, nodes=NODES, **config):
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # as Flower does
        self.app, self.nodes, self.config = app, nodes, config
        self.sent, self.replies = [], []

    run = property()

    def set_run(self, run):
        raise NotImplementedError

    create_message = push_messages = pull_messages = set_run

    def get_node_ids(self):
        return range(100, 100 + self.nodes)

    def context(self, node):
        config = {"partition-id": node - 100, "num-partitions": self.nodes} | self.config
        config = {name: value for name, value in config.items() if value is not None}
        return Context(1, node, config, RecordDict(), {})

    def send_and_receive(self, messages, *, timeout=None):
        found = []
        for number, message in enumerate(messages):
            about = message.metadata
            ids = (1, f"message {number}", 1, about.dst_node_id, "", about.group_id)
            metadata = Metadata(*ids, about.created_at, about.ttl, about.message_type)
            delivered = Message(content=message.content, metadata=metadata)
            self.sent.append(delivered)
            found.append(self.app(delivered, self.context(about.dst_node_id)))
        self.replies += found
        return found


PATTERNS = {"sklearn": Sklearn, "pytorch": PyTorch, "numpy": Numpy, "query": Query}


def simulate(pattern, folder):
    """Run a pattern in Flower's simulation; write down what came out."""
    from simulated_apps import simulate as run

    app, server = PATTERNS[pattern](), ServerApp()

    @server.main()
    def main(grid, _):
        found = app.serve(grid)
        result = (
            {"reports": found.reports}
            if pattern == "query"
            else {
                "reports": [each["reports"] for each in found.train_metrics_clientapp.values()],
                "accuracy": app.accuracy(found.arrays),
            }
        )
        Path(folder, "result.json").write_text(json.dumps(result))

    run(server, app.client(folder), NODES)


if __name__ == "__main__":
    simulate(*sys.argv[1:])
