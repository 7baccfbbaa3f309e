"""Apps with the mod in Flower's simulation, which is a process of its own, with Ray's workers."""

import json
import os
import subprocess
import sys
from collections import Counter

import flower_apps
import pytest
import simulated_apps
from ledgers import open_ledger
from simulated_apps import NODES, SPEEDS

pytestmark = pytest.mark.simulation


def run(script, folder, *words):
    """Run a simulation in a process of its own, and return what it wrote to its log."""
    off = {"RAY_USAGE_STATS_ENABLED": "0", "FLWR_TELEMETRY_ENABLED": "0"}
    off |= {"FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(folder / "flwr")}
    off |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, script.__file__, *words, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | off,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_an_app_with_the_mod_answers_each_question_once(tmp_path):
    run(simulated_apps, tmp_path)
    first, again, other = (SPEEDS.load_tally(tmp_path / f"tally {i}.json") for i in range(3))
    assert first == again
    assert (first.reports, other.reports) == (NODES, 0)
    with open_ledger(tmp_path / "ledger.db", cap=1.0) as ledger:
        assert ledger.totals() == dict.fromkeys(map(str, range(NODES)), 1)


@pytest.mark.parametrize("pattern", flower_apps.PATTERNS)
def test_the_patterns_of_the_quickstarts_are_private_and_learn(tmp_path, pattern):
    said = run(flower_apps, tmp_path, pattern)
    found = json.loads((tmp_path / "result.json").read_text())
    with open_ledger(tmp_path / "ledger.db", cap=1000.0) as ledger:
        answers = [line.vehicle_id for line in ledger.history()]
    rounds = 1 if pattern == "query" else flower_apps.ROUNDS
    assert Counter(answers) == {str(node): rounds for node in range(flower_apps.NODES)}
    assert "public default" not in said
    if pattern == "query":
        assert found == {"reports": flower_apps.NODES}
    else:
        assert found["reports"] == [flower_apps.NODES] * rounds
        assert found["accuracy"] > 0.5  # see test_strategy.py
