"""Try the node's half on this machine, before it goes into a run: nothing is paid or sent.

Needs: pip install '.[flower,learn]' in the root of the repository

python examples/flower/dry_run.py
"""

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from fedldp import Plan
from fedldp.fleet.flower.private import forecast


def main() -> None:
    """Ask a node what a server will ask, and say how much of its answer is clipped."""
    from iris.client_app import app, mod
    from iris.task import PLAN

    arrays = ArrayRecord([np.zeros((3, 4)), np.zeros(3)])
    for node in range(3):
        config = {"partition-id": node}
        quality = mod.dry_run(app, RecordDict({"arrays": arrays}), node_config=config)
        print(f"node {node}: {quality.clipping or 'nothing is clipped.'}")
    plan = Plan.from_json(PLAN.read_text("utf-8"))
    print(f"{plan.bits} bits each. {forecast(plan, vehicles=100)}.")


if __name__ == "__main__":
    main()
