"""Ledgers that fleets of earlier versions have left in the middle of a job are continued."""

import contextlib
import sqlite3
import tarfile
from fractions import Fraction
from pathlib import Path

import pytest

from fedldp.budget.ledger import Ledger

GOLDEN = Path(__file__).parents[2] / "tests" / "golden"


@pytest.fixture(params=["0.1", "0.2"])
def ledgers(request, tmp_path):
    with tarfile.open(GOLDEN / request.param / "fleet.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    found = sorted(tmp_path.rglob("ledger.db"))
    assert found
    return found


def spent_before(path):
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        rows = file.execute("SELECT key, epsilon FROM releases").fetchall()
    found = {}
    for name, epsilon in rows:
        found[name] = found.get(name, Fraction()) + Fraction(epsilon)
    return found


def test_ledgers_of_earlier_fleets_keep_what_was_spent(ledgers):
    for path in ledgers:
        before = spent_before(path)
        most = max(before.values())
        assert most > 0
        with Ledger(path, most) as ledger:
            assert ledger.totals() == before
            name = max(before, key=before.get)
            with pytest.raises(Exception, match="of its cap of"):
                ledger.release(name, 1, "another question", lambda: b"", job="another job")
