"""A Flower app with LDPMod, beside the same app with Flower's own LocalDpMod, at the same epsilon.

python benchmarks/flower_mods.py [--json FILE] [--write docs/flower-mod.md]

The app is the one in examples/flower. All nodes are in one process; nothing else of Flower is
replaced. Every node answers in every round, and epsilon is what one answer costs.
"""

import contextlib
import json
import logging
import math
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, Metadata, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.common.serde import message_to_proto
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity
from pages import Table, busy, machine, options, publish

import fedldp
from fedldp.budget.ledger import Ledger
from fedldp.errors import DomainError
from fedldp_fleet.flower import LDPMod, private
from fedldp_fleet.flower.strategy import forecast

CLIENTS, ROUNDS, RUNS, WEIGHTS = 1000, 3, 5, 15
EPSILONS, DELTA, LENGTH = (1.0, 4.0), 1e-5, 1.0
SECRET = "row 17 has no petals"


class Network(Grid):
    """Nodes that are one app in one process. It keeps the last reply."""

    def __init__(self, app, nodes):
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
        self.app, self.nodes, self.reply = app, nodes, None

    run = property()

    def set_run(self, run):
        raise NotImplementedError

    create_message = push_messages = pull_messages = set_run

    def get_node_ids(self):
        return range(1, 1 + self.nodes)

    def send_and_receive(self, messages, *, timeout=None):
        return [self._sent(message) for message in messages]

    def _sent(self, message):
        about = message.metadata
        ids = (1, "", 1, about.dst_node_id, "", "")
        metadata = Metadata(*ids, about.created_at, about.ttl, about.message_type)
        context = Context(
            1, about.dst_node_id, {"partition-id": about.dst_node_id}, RecordDict(), {}
        )
        self.reply = self.app(Message(content=message.content, metadata=metadata), context)
        return self.reply


@dataclass
class Found:
    """What runs of one kind gave."""

    accuracies: list[float] = field(default_factory=list)
    reply: Message | None = None
    failure: str = ""

    def cells(self) -> list[str]:
        mean = statistics.fmean(self.accuracies)
        return [f"{mean:.3f}", f"{min(self.accuracies):.3f}", f"{self.size:,}"]

    @property
    def size(self) -> int:
        """The bytes of a whole reply, with Flower's metadata."""
        return len(message_to_proto(self.reply).SerializeToString())

    @property
    def content(self) -> str:
        """The names of what leaves the node, of records and of the values in them."""
        records = self.reply.content.items()
        return "; ".join(f"`{name}`: {', '.join(map(str, record))}" for name, record in records)


def mods(kind, epsilon, folder):
    """Return the mods of the nodes and the class of the server's strategy."""
    if kind == "LDPMod":
        schema = fedldp.Schema.vector(WEIGHTS, length=LENGTH)
        plan = fedldp.Plan(schema, epsilon, strategy="directions")
        who = lambda context: str(context.node_config["partition-id"])  # noqa: E731
        path = new_ledger(folder)
        mod = LDPMod(plan, ledger=path, cap=ROUNDS * epsilon, delta=True, vehicle_id=who)
        return [mod], private(FedAvg, plan)
    if kind == "LocalDpMod":  # any two clipped updates differ by at most twice the length
        return [LocalDpMod(LENGTH, 2 * LENGTH, epsilon, DELTA)], FedAvg
    return [], FedAvg


def new_ledger(folder):
    """Make a ledger in which nobody has spent anything, unless another process was faster."""
    path = Path(folder) / "ledger.db"
    with contextlib.suppress(DomainError):
        Ledger.create(path, cap=1).close()
    return path


def noise(kind, epsilon, clients):
    """Return the expected length of the noise of a round, in terms of a clipped update."""
    if kind == "LDPMod":
        schema = fedldp.Schema.vector(WEIGHTS, length=LENGTH)
        plan = fedldp.Plan(schema, epsilon, strategy="directions")
        return forecast(plan, clients).multiple
    if kind == "LocalDpMod":
        deviation = 2 * LENGTH * math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon
        return deviation * math.sqrt(WEIGHTS / clients) / LENGTH
    return 0.0


def measure(kind, epsilon, clients, runs):
    """Train some models, and see what leaves a node, also when its app fails."""
    from iris.client_app import train
    from iris.server_app import evaluate

    found, first = Found(), ArrayRecord([np.zeros((3, 4)), np.zeros(3)])
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            used, strategy = mods(kind, epsilon, folder)
            app = ClientApp(mods=used)
            app.train()(train)
            network = Network(app, clients)
            made = strategy(fraction_evaluate=0.0, min_available_nodes=clients)
            result = made.start(network, first, num_rounds=ROUNDS)
            found.accuracies.append(evaluate(0, result.arrays)["accuracy"])
            found.reply = network.reply
            found.failure = failure(used, first)
    return found


def failure(used, arrays):
    """Return what a server learns of an exception in the app."""

    def fail(*_):
        raise ValueError(SECRET)

    app = ClientApp(mods=used)
    app.train()(fail)
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({"another": 1})})
    message = Message(content, 1, "train")
    try:
        reply = Network(app, 1)._sent(message)
    except ValueError as error:
        return f"{type(error).__name__}: {error}"  # as Flower sends it
    return "a report like any other" if list(reply.content) == ["fedldp"] else "other content"


def main(arguments) -> list[Table]:
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    began = time.perf_counter()
    kinds = [("no mod", None)]
    kinds += [(kind, epsilon) for epsilon in EPSILONS for kind in ("LDPMod", "LocalDpMod")]
    results = {}
    known = {} if arguments.known is None else json.loads(arguments.known.read_text("utf-8"))
    for kind, epsilon in kinds:
        clients, runs = (8, 1) if known else (arguments.clients, arguments.runs)
        results[kind, epsilon] = found = measure(kind, epsilon, clients, runs)
        found.accuracies = known.get(f"{kind} {epsilon}", found.accuracies)
        print(f"{kind} {epsilon}: {found.accuracies}", file=sys.stderr)
    rows = [
        [
            kind,
            "-" if epsilon is None else f"{epsilon:g}",
            f"{noise(kind, epsilon, arguments.clients):.2f}",
            *each.cells(),
        ]
        for (kind, epsilon), each in results.items()
    ]
    title = (
        f"Iris, {WEIGHTS} weights, {arguments.clients:,} nodes, {ROUNDS} rounds, "
        f"{len(found.accuracies)} runs of each"
    )
    headings = [
        "mod",
        "epsilon of an answer",
        "noise of a round / clipped update",
        "accuracy, mean",
        "worst",
        "bytes of a reply",
    ]
    leaves = [
        [kind, results[kind, epsilon].content, results[kind, epsilon].failure]
        for kind, epsilon in kinds[1:3]
    ]
    tables = [
        Table(title, headings, rows),
        Table(
            "What leaves a node",
            ["mod", "content of a reply", f'an exception "{SECRET}" leaves as'],
            leaves,
            words=3,
        ),
    ]
    took = f"{busy()}, {time.perf_counter() - began:.0f} s"
    if known:
        took = "the accuracies are those of an earlier run, all else is computed anew"
    where = f"{machine('flwr', 'scikit-learn')}; {took}"
    publish("flower-mods", tables, where, arguments.write)
    if arguments.json is not None:
        found = {f"{kind} {epsilon}": each.accuracies for (kind, epsilon), each in results.items()}
        arguments.json.write_text(json.dumps(found), encoding="utf-8")
    return tables


def parser():
    found = options(__doc__)
    found.add_argument("--clients", type=int, default=CLIENTS, metavar="N")
    found.add_argument("--runs", type=int, default=RUNS, metavar="N")
    found.add_argument("--json", type=Path, metavar="FILE", help="write the accuracies to a file")
    found.add_argument(
        "--known", type=Path, metavar="FILE", help="take the accuracies from a file of --json"
    )
    return found


def with_example():
    """Let the example's modules be found; its ledger is not used."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "flower"))
    os.environ["IRIS_LEDGER"] = str(new_ledger(tempfile.mkdtemp()))


if __name__ == "__main__":
    with_example()
    main(parser().parse_args())
