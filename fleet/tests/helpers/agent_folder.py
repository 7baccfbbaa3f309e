"""The folder of an agent with vehicles, and its process."""

import json
import os
import subprocess
import sys

from fedldp.budget import ledger
from fedldp_fleet.agent import service

SCHEMA = """
format = 2
[speed]
low = 0
high = 50
[load]
low = 0
high = 1
[late]
categories = ["no", "yes"]
"""


def make(path, operator, vehicles, cap=4):
    """Make an agent with data and a ledger; its vehicles are called after its folder."""
    path.mkdir()
    operator.public.save(path / "operator.pub")
    (path / "schema.toml").write_text(SCHEMA)
    rows = (f"{path.name}-{each},{each % 50},0.5,no\n" for each in range(vehicles))
    (path / "rows.csv").write_text("car,speed,load,late\n" + "".join(rows))
    entries = {"cap": str(cap), "operator": "operator.pub", "schema": "schema.toml"}
    entries |= {"data": "rows.csv", "vehicle": "car", "tick": 0.1}
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in entries.items())
    (path / service.FILE).write_text("format = 2\n" + text)
    ledger.create(path / service.LEDGER)
    return path


def start(path, *words):
    """Start the agent of a folder, in a session of its own; it logs beside the folder."""
    with path.with_suffix(".log").open("a") as log:
        command = [sys.executable, "-m", "fedldp", "agent", "run", str(path), *words]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stderr=log, start_new_session=True, env=environment)
