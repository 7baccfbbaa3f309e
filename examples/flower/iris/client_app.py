"""The nodes' half. Apart from the mod it is an ordinary Flower app."""

import os
from pathlib import Path

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedldp_fleet.flower import LDPMod
from iris.task import PLAN, accuracy, own_flowers, trained

# Where the node's owner keeps the ledger, once made with `fedldp ledger init`. It must outlive the
# app, and the server must not choose it. The cap allows three answers at epsilon = 2, in the whole
# life of a node. Nodes of a simulation are told apart by their partition-id.
LEDGER = Path(os.environ.get("IRIS_LEDGER", "~/iris-ledger.db")).expanduser()

mod = LDPMod(PLAN, ledger=LEDGER, cap=6.0, delta=True)
app = ClientApp(mods=[mod])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model on the node's own flowers, and return it with the usual metrics."""
    x, y = own_flowers(int(context.node_config["partition-id"]))
    model = trained(*message.content["arrays"].to_numpy_ndarrays(), x, y)
    metrics = MetricRecord({"num-examples": len(x), "accuracy": accuracy(*model, x, y)})
    content = RecordDict({"arrays": ArrayRecord(model), "metrics": metrics})
    return Message(content, reply_to=message)
