"""A vault's metrics tell nothing about the data of its vehicles.

Two vaults hold the same vehicles with very different data, valid and invalid, and are asked the
same: what their monitors say is identical, apart from the time at which each was started.
"""

import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from fleet_parts import until
from monitored import ask, monitoring
from vault_folders import SCHEMA, configured

import fedldp
from fedldp.fleet.gateway.relay import ask as ask_vault
from fedldp.fleet.protocol import Question
from fedldp.fleet.state import STATE
from fedldp.fleet.vault import record

VEHICLES = 40
SOUND = "25.0,Oslo"
STRANGE = ["1e300,Rome", "nan,", ",Paris", "-4,oslo", "zero,Rome\u2028", "49.9999999,Oslo"]
PLAN = fedldp.Plan(SCHEMA, 0.5)
QUESTIONS = [  # job, round, how many vehicles, plan
    ("spring", 1, 10, PLAN),
    ("spring", 1, 10, PLAN),  # again: the same answer, which costs nothing
    ("spring", 2, 10, PLAN),
    ("autumn", 1, 15, fedldp.Plan(SCHEMA, 0.25)),
    ("too-dear", 1, 5, fedldp.Plan(SCHEMA, 2.0)),
    ("spring", 3, 100, PLAN),  # more vehicles than there are
    ("other-columns", 1, 5, fedldp.Plan(fedldp.Schema.of(height=(0, 1)), 0.5)),
    ("spring", 1, 7, PLAN),  # the same request with another question
]


def folder_of(place, rows):
    folder = place / "vault-1"
    folder.mkdir(parents=True)
    lines = [f"car {i},{row}" for i, row in enumerate(rows)]
    (folder / "rows.csv").write_text("\n".join(["id,speed,city", *lines]))
    return configured(folder, vehicle="id", cap="1.0", listen="v.sock", tick=0.01)


@contextmanager
def running(vault):
    """Run a vault as its owner does."""
    words = [sys.executable, "-m", "fedldp.fleet.vault", str(vault.folder)]
    with (vault.folder / "log").open("wb") as log:
        popen = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            until(
                lambda: Path(vault.address.path).exists() or popen.poll() is not None, "the vault"
            )
            assert popen.poll() is None, (vault.folder / "log").read_text()
            yield
        finally:
            popen.send_signal(signal.SIGTERM)
            popen.wait(60)


def asked(vault):
    """Ask all questions, and wait until the vault has noted that."""
    for job, number, n, plan in QUESTIONS:
        question = Question(job, number, "7", n, plan.to_json())
        ask_vault(vault.address, question, time.monotonic() + 60)
    until(
        lambda: sum(record.load(vault.folder / STATE)["questions"].values()) == len(QUESTIONS),
        "the record of all questions",
    )


def metrics(vault):
    with monitoring(vault.folder) as address:
        status, _, text = ask(address, "/metrics")
        health = ask(address, "/healthz")[2]
    assert status == 200, text
    timeless = [each for each in text.splitlines() if "_timestamp_seconds" not in each]
    return "\n".join(timeless), health


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What the monitors of both vaults say, while they run and after that."""
    place, found = tmp_path_factory.mktemp("v"), []
    strange = [STRANGE[i % len(STRANGE)] for i in range(VEHICLES)]
    for name, rows in (("a", [SOUND] * VEHICLES), ("b", strange)):
        vault = folder_of(place / name, rows)
        before = metrics(vault)
        with running(vault):
            asked(vault)
            found.append((before, metrics(vault)))
        found[-1] += (metrics(vault),)
    return found


def test_they_are_identical_for_all_data(said):
    assert said[0] == said[1]


def test_they_say_what_happened(said):
    """They would not be identical only because they say nothing."""
    (before, _), (text, health), (after, trouble) = said[0]
    assert health == '{"status": "ok"}'
    assert "vault-1 is not running" in trouble
    for line in (
        'fedldp_running{name="vault-1",part="vault"} 1.0',
        f'fedldp_vault_vehicles{{name="vault-1",part="vault"}} {VEHICLES}.0',
        'fedldp_vault_answers{fedldp_job="spring",name="vault-1",part="vault"}',
        'fedldp_vault_answers{fedldp_job="autumn",name="vault-1",part="vault"} 15.0',
        'fedldp_vault_budget_left_vehicles{left="0.25",name="vault-1",part="vault"} 15.0',
        'fedldp_vault_questions{name="vault-1",outcome="refused",part="vault"}',
    ):
        assert line in text, text
    assert "vault_answers" not in before
    assert 'fedldp_running{name="vault-1",part="vault"} 0.0' in after


def test_it_keeps_the_owners_secrets(said):
    for _, (text, health), _ in said:
        for secret in ("car ", "Oslo", "Rome", "speed", "city", "rows.csv"):
            assert secret not in text + health
