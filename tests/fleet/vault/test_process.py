"""A vault from its folder: whose rows it holds, and what it says of a file that is wrong."""

import subprocess
import sys
import time
from fractions import Fraction

import numpy as np
import polars
import pytest
from ledgers import untouched
from vault_folders import SCHEMA, configured

from fedldp import Plan, Schema, datasets
from fedldp.budget.ledger import Ledger
from fedldp.errors import DomainError
from fedldp.fleet.gateway.relay import ask
from fedldp.fleet.protocol import Question
from fedldp.fleet.sockets import Address
from fedldp.fleet.vault import vault as module
from fedldp.fleet.vault.process import VaultConfig
from fedldp.fleet.vault.vault import Vault


def held(folder, **entries):
    return configured(folder, **entries).read()[0]


def test_rows_of_a_file_whatever_they_hold(tmp_path):
    (tmp_path / "rows.csv").write_text("id,speed,city\n 7 ,31,Rome\n8,,Bergen\n7,x,Oslo\n")
    schema, matrix, keys = held(tmp_path, vehicle="id")
    assert schema == SCHEMA
    np.testing.assert_array_equal(matrix, [[31, 1], [np.nan, np.nan], [np.nan, 0]])
    assert keys == ["7", "8", "7"]
    assert held(tmp_path)[2] == ["0", "1", "2"]


@pytest.mark.parametrize("rows", [40_000, 3])  # in several pieces, and in one
def test_who_is_nobody_has_no_rows(tmp_path, rows):
    ids = [*range(rows - 1), None]  # as numbers, with one missing: a reader may make floats of them
    columns = {"id": ids, "speed": [31.0] * rows, "city": ["Rome"] * rows}
    polars.DataFrame(columns).write_parquet(tmp_path / "rows.parquet")
    with pytest.raises(DomainError, match="the vehicle of the row is unknown"):
        held(tmp_path, data="rows.parquet", vehicle="id")
    polars.DataFrame(columns)[:-1].write_parquet(tmp_path / "rows.parquet")
    found = held(tmp_path, data="rows.parquet", vehicle="id")[2]
    assert found == [str(i) for i in range(rows - 1)]


def test_parts_of_a_data_set_hold_every_row_once(tmp_path):
    entries = {"data": "flights", "schema": None, "rows": 100, "holdout": 0.1}
    parts = [held(tmp_path, **entries, part=f"{i}/4") for i in (1, 2, 3, 4)]
    assert sorted(int(key) for _, _, keys in parts for key in keys) == list(range(90))
    fleet, _ = datasets.load("flights", rows=100).split(0.1)
    for _, matrix, keys in parts:
        np.testing.assert_array_equal(matrix, fleet.matrix()[[int(key) for key in keys]])


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"cap": "none"}, 'cap must be a positive number, such as "4.0"'),
        ({"cap": None}, "the entry 'cap' is missing"),
        ({"cap": 4}, "cap has a value of a wrong type"),
        ({"limit": 4}, "unknown entry 'limit'; choose from data, schema"),
        ({"data": "flight", "schema": None}, "data must be a file, with a schema, or one of"),
        ({"data": "flights", "schema": None, "part": "5/4"}, 'part must be like "2/3"'),
        ({"listen": "tcp://127.0.0.1:9400"}, "needs a token"),
        ({"listen": "tcp://127.0.0.1"}, "expected an address such as tcp://host:9400"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, entries, message):
    def read():
        found = configured(tmp_path, **entries)
        return found.address, found.read()

    with pytest.raises(DomainError, match=message):
        read()


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DomainError, match=r"vault\.toml cannot be read: No such file"):
        VaultConfig.load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"rows\.csv does not exist: put the data"):
        held(tmp_path)
    (tmp_path / "rows.csv").write_text("speed,city\n")
    with pytest.raises(DomainError, match="no rows"):
        held(tmp_path)


def test_of_very_many_rows_some_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_ROWS", 10)
    schema, counts = Schema.of(speed=(0, 50)), {"a": 5, "b": 10, "c": 2000}
    keys = [key for key, count in counts.items() for _ in range(count)]
    with Ledger.create(tmp_path / "ledger", cap=1) as ledger:
        vault = Vault(schema, np.arange(len(keys))[:, None] / 50, keys, ledger)
        rows, begins = vault._rows.of(np.arange(3))
        assert np.diff(begins, append=len(rows)).tolist() == [5, 10, 10]
        found = np.split((vault._matrix[rows, 0] * 50).round().astype(int), begins[1:])
        assert [part.tolist() for part in found[:2]] == [list(range(5)), list(range(5, 15))]
        assert len(set(found[2])) == 10
        assert found[2].min() >= 15
        assert found[2].tolist() != list(range(15, 25))  # chance: once in 10^26 it would be


def test_a_vault_answers_until_it_is_told_to_end(tmp_path):
    (tmp_path / "rows.csv").write_text("speed,city\n31,Rome\n48,Oslo\n")
    found = configured(tmp_path)
    script = "from fedldp.cli import main; main()"
    process = subprocess.Popen([sys.executable, "-c", script, "fleet", "vault", tmp_path])
    try:
        question = Question("spring", 1, "7", 3, Plan(SCHEMA, epsilon=1.0).to_json())
        address = Address.of(str(tmp_path / "s"))
        while not (tmp_path / "s").exists():
            assert process.poll() is None
            time.sleep(0.05)
        assert ask(address, question, time.monotonic() + 60).answered == 2
    finally:
        process.terminate()
        assert process.wait() == 0
    assert not (tmp_path / "s").exists()
    with found.ledger() as ledger:
        assert ledger.totals() == {"0": Fraction(1), "1": Fraction(1)}


BAD = "id,speed,city,colour\n7,131,Rome,red\n8,,Bergen,red\n7,31,Oslo,red\n"


def vault(folder, *options, **named):
    command = [sys.executable, "-m", "fedldp", "fleet", "vault", folder, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, **named)


def test_a_check_says_what_is_replaced_and_spends_nothing(tmp_path):
    (tmp_path / "rows.csv").write_text(BAD)
    configured(tmp_path, vehicle="id")
    done = vault(tmp_path, "--check")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "3 rows: 3 values are clipped or replaced.",
        "  speed: 1 of 3 (33%) clipped to [0, 50]; 1 of 3 (33%) missing, replaced by 25; "
        "row 1: the value is missing",
        "  city: 1 of 3 (33%) unknown, replaced by 'Oslo'; so the share of 'Oslo' is too large by "
        "33%: add the category 'other'; row 1: 'Bergen' is not one of the 2 "
        "categories",
        "  Unused column: 'colour'.",
    ]
    (tmp_path / "rows.csv").write_text("speed,city\n31,Rome\n")
    configured(tmp_path)
    done = vault(tmp_path, "--check")
    assert (done.returncode, done.stdout) == (0, "1 row: all values are used as they are.\n")
    assert not (tmp_path / "state").exists()
    assert untouched(tmp_path / "ledger.db")


def test_strict_does_not_start_with_bad_data(tmp_path):
    (tmp_path / "rows.csv").write_text(BAD)
    configured(tmp_path, vehicle="id")
    done = vault(tmp_path, "--strict")
    assert done.returncode == 1
    assert done.stderr.startswith("fedldp: the data must be usable as they are; speed: 1 of 3")
    assert untouched(tmp_path / "ledger.db")
    assert not (tmp_path / "s").exists()


def test_a_vault_logs_the_counts_at_its_start_and_no_values(tmp_path, caplog, monkeypatch):
    (tmp_path / "rows.csv").write_text(BAD)
    monkeypatch.setattr(VaultConfig, "_serve", lambda *_: None)
    configured(tmp_path, vehicle="id").run()
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "rows.csv: 3 rows: 3 values are clipped or replaced.",
        "rows.csv: speed: 1 of 3 (33%) clipped to [0, 50]; 1 of 3 (33%) missing, replaced by 25",
        "rows.csv: city: 1 of 3 (33%) unknown, replaced by 'Oslo'; so the share of 'Oslo' is too "
        "large by 33%: add the category 'other'",
        "rows.csv: Unused column: 'colour'.",
    ]
    assert {record.name for record in caplog.records} == {"fedldp.fleet"}
    caplog.clear()
    configured(tmp_path, data="flights", schema=None, rows=1000).run()
    [record] = caplog.records  # bounds that are meant to clip are worth a line
    assert record.getMessage().startswith("flights: the public bounds clip ")
    caplog.clear()
    (tmp_path / "rows.csv").write_text("speed,city\n31,Rome\n")
    configured(tmp_path).run()
    assert not caplog.records
