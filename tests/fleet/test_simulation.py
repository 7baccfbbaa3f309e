"""Flower's simulation: the fleet's own app with 100 gateways.

The vaults are threads of the test; what Flower runs, with Ray's workers, is a process of its own.
"""

import contextlib
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import simulations
from gateways import FEATURES, MODEL, PLAN, final, result
from ledgers import open_ledger
from simulations import NODES

import fedldp
from fedldp import Schema
from fedldp.fleet.job import Job
from fedldp.fleet.server import checkpoint, rounds
from fedldp.fleet.sockets import Address
from fedldp.fleet.vault.listener import Listener
from fedldp.fleet.vault.vault import Vault

pytestmark = pytest.mark.simulation

VEHICLES, ROUNDS, REPORTS = 7, 3, 2
JOB = f"""
job = "simulated"
plan = "plan.json"
model = "model.json"
gateways = {NODES}
reports = {REPORTS}
rounds = {ROUNDS}
checkpoint = "job.db"
result = "result.json"
[recipe]
rate = 0.2
"""


def run(folder, **environment):
    """Run a simulation in a process of its own, and return what it wrote to its log."""
    off = {"RAY_USAGE_STATS_ENABLED": "0", "FLWR_TELEMETRY_ENABLED": "0"}
    off |= {"FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(folder / "flwr")}
    done = subprocess.run(
        [sys.executable, simulations.__file__, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | off | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@contextlib.contextmanager
def vaults(folder):
    """Let as many vaults listen as there are nodes; yield their ledgers."""
    schema = Schema((*FEATURES.attributes, MODEL.target))
    with contextlib.ExitStack() as stack:
        ledgers = []
        for number in range(NODES):
            ledger = stack.enter_context(open_ledger(folder / f"{number}.db", cap=2.0))
            matrix = fedldp.source(number).uniform((VEHICLES, 3)) * [50, 1, 2]
            matrix[:, 2] = np.floor(matrix[:, 2])  # a category's number
            keys = [f"car {number}.{i}" for i in range(VEHICLES)]
            vault = Vault(schema, matrix, keys, ledger)
            listener = Listener(vault, Address.of(str(folder / f"{number}.sock")), tick=0.001)
            thread = threading.Thread(target=listener.serve)
            thread.start()
            stack.callback(thread.join)
            stack.callback(listener.close)
            ledgers.append(ledger)
        yield ledgers


def test_a_hundred_gateways_run_the_app_of_the_fleet(tmp_path):
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    (tmp_path / "model.json").write_text(MODEL.to_json())
    with vaults(tmp_path) as ledgers:
        run(tmp_path, FEDLDP_VAULTS=str(tmp_path / "{partition-id}.sock"))
        histories = [ledger.history() for ledger in ledgers]
    job = Job.load(tmp_path / "job.toml")
    progress = checkpoint.status(job.checkpoint)
    assert (progress.rounds, progress.ended) == (ROUNDS, rounds.ROUNDS)
    assert (progress.reports, progress.refusals, progress.silent) == (
        NODES * REPORTS * ROUNDS,
        0,
        0,
    )
    assert len(progress.bytes) == NODES
    for history in histories:
        assert len({each.vehicle_id for each in history}) == len(history) == REPORTS * ROUNDS
    state = final(job)  # which a replay of the reports gives, too
    assert result(job).weights == tuple(state.average[0])
    assert any(state.weights[0])
