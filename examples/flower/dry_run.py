"""Try the node's half on this machine, before it goes into a run: nothing is paid or sent.

Needs: pip install '.[learn]' './fleet[flower]' in the root of the repository

python examples/flower/dry_run.py
"""

import os
import tempfile
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from fedldp import Plan
from fedldp.budget.ledger import Ledger
from fedldp_fleet.flower.strategy import forecast


def main() -> None:
    """Ask nodes what a server will ask, and say how long their updates are."""
    from iris.client_app import app, mod
    from iris.task import PLAN

    question = RecordDict({"arrays": ArrayRecord([np.zeros((3, 4)), np.zeros(3)])})
    for number in range(20):
        mod.dry_run(app, question, node_config={"partition-id": number})
    plan = Plan.from_json(PLAN.read_text("utf-8"))
    print(
        f"The plan shortens updates to {plan.schema.attributes[0].length:g}. {plan.bits} bits each."
    )
    print(f"{forecast(plan, vehicles=100)}.")


if __name__ == "__main__":
    if "IRIS_LEDGER" in os.environ:  # can the nodes of this ledger afford an answer?
        main()
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ledger.db"
            Ledger.create(path, cap=6).close()
            os.environ["IRIS_LEDGER"] = str(path)
            main()
