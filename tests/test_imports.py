"""What an import costs: which packages are imported, and when. Times are left to `make bench`."""

import json
import subprocess
import sys

import pytest

LIGHT = "import fedldp; fedldp.Schema, fedldp.Plan, fedldp.source"
COLLECT = """
import fedldp
schema = fedldp.Schema.of(speed=(0, 50), fuel=["petrol", "none"])
plan = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="hm-tp"))
tally = plan.parse(plan.report([{"speed": 30, "fuel": "none"}], fedldp.source()).to_bytes())
"""
COMMAND = "import sys; sys.argv[:] = ['fedldp', '{}']; import fedldp.cli; fedldp.cli.main()"

OPTIONAL = {"click", "flwr", "httpx", "matplotlib", "narwhals", "pandas", "polars", "pyarrow"}
OPTIONAL |= {"rich", "sklearn", "torch"}
SLOW = {"scipy", "argparse", "asyncio", "email", "importlib.metadata", "sqlite3", "ssl", "tomllib"}
ABOVE = {"fedldp.cli", "fedldp.datasets", "fedldp.fleet", "fedldp.learn", "fedldp.budget.ledger"}


def imported_by(program):
    """Return the modules that a program has imported when it ends."""
    ending = "import atexit, json, sys; atexit.register(lambda: print(json.dumps([*sys.modules])))"
    done = subprocess.run(
        [sys.executable, "-c", f"{ending}\n{program}"], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("program", "not_needed"),
    [
        ("import fedldp; dir(fedldp)", {"numpy", "dataclasses", *OPTIONAL, *SLOW, *ABOVE}),
        (LIGHT, {*OPTIONAL, *SLOW, *ABOVE}),
        (COLLECT, {*OPTIONAL, *SLOW, *ABOVE}),
        ("import fedldp.errors", {"numpy", *OPTIONAL, *SLOW, *ABOVE}),
        (
            COMMAND.format("--version"),
            {"numpy", "scipy", "fedldp.plan.plan", *OPTIONAL} - {"click"},
        ),
        (COMMAND.format("--help"), {"numpy", "scipy", "fedldp.plan.plan", *OPTIONAL} - {"click"}),
        (
            "import fedldp; fedldp.learn.Settings, fedldp.datasets.load",
            {"scipy", "fedldp.cli", "fedldp.fleet", *OPTIONAL},
        ),
    ],
    ids=["import", "plan", "collect", "errors", "version", "help", "learn"],
)
def test_what_is_not_needed_is_not_imported(program, not_needed):
    assert not imported_by(program) & not_needed


def test_scipy_is_imported_when_it_is_used():
    assert "scipy.special" in imported_by(COLLECT + "tally.estimate()")
