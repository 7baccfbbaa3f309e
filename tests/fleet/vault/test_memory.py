"""A vault on a small vehicle: what its process imports, and how much memory it takes."""

import datetime
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from signed import DAY, KEY, signed, statistic
from vault_folders import SCHEMA, configured

from fedldp import Plan
from fedldp.fleet.gateway.relay import ask
from fedldp.fleet.sockets import Address

# Kilobytes of a vault's own memory after its first answer. Pages of libraries come on top, about 23
# to 28 MB: they are shared, and how many of them are resident is up to the kernel.
MOST = 30 * 1024
NOT_NEEDED = ("click", "rich", "scipy", "flwr", "httpx", "uvicorn", "narwhals", "pandas", "polars")
NOT_NEEDED += ("pyarrow", "sklearn", "fedldp.cli", "fedldp.datasets", "fedldp.fleet.flower")
RULES = {
    "most_epsilon": "1.0",
    "most_epsilon_per_period": "1.0",
    "period": "7 days",
    "jobs": ["spring*"],
    "attributes": ["speed", "city"],
    "fewest_vehicles": 1,
}
# Runs a vault, and writes down what has been imported when it ends.
WATCHED = """
import json, pathlib, runpy, sys
folder = sys.argv[1]
runpy.run_module("fedldp.fleet.vault", run_name="__main__")
pathlib.Path(folder, "imported.json").write_text(json.dumps([*sys.modules]))
"""


def first_answer(folder, *command, environment=None):
    """Start a vault of one vehicle; return its process, which has answered one question.

    The vault holds the operator's public key, as those that `fedldp fleet init` writes, and has a
    rule for everything.
    """
    folder.mkdir(exist_ok=True)
    (folder / "rows.csv").write_text("speed,city\n31,Rome\n")
    KEY.public.save(folder / "operator.pub")
    configured(folder, operator="operator.pub", **RULES)
    process = subprocess.Popen([sys.executable, *command, str(folder)], env=environment)
    while not (folder / "s").exists():
        assert process.poll() is None
        time.sleep(0.02)
    job = statistic(folder, plan=Plan(SCHEMA, epsilon=1.0), reports=1)
    question = signed(job, expires=datetime.datetime.now(datetime.UTC) + DAY).question("7", 1)
    answer = ask(Address.of(str(folder / "s")), question, time.monotonic() + 60)
    assert answer.answered == 1
    return process


def test_a_vault_imports_what_it_needs(tmp_path):
    process = first_answer(tmp_path, "-c", WATCHED)
    process.terminate()
    assert process.wait() == 0
    imported = json.loads((tmp_path / "imported.json").read_text())
    assert "fedldp.fleet.vault.vault" in imported
    for name in NOT_NEEDED:
        assert not [each for each in imported if each == name or each.startswith(f"{name}.")]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("command", [["fedldp.fleet.vault"], ["fedldp", "fleet", "vault"]])
def test_a_vault_of_one_vehicle_takes_little_memory(tmp_path, command):
    """The first of two starts compiles the modules, which takes memory."""
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(tmp_path / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for start in ("first", "second"):
        process = first_answer(tmp_path / start, "-m", *command, environment=environment)
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
            kilobytes = int(re.search(r"RssAnon:\s+(\d+) kB", status)[1])
        finally:
            process.terminate()
            assert process.wait() == 0
    assert kilobytes <= MOST
