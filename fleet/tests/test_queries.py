"""Rows of an agent that come from a query, of SQLite and of PostgreSQL."""

import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner

from fedldp import Ledger
from fedldp.errors import DomainError
from fedldp.signing import PrivateKey
from fedldp_fleet.agent.holders import rows_of
from fedldp_fleet.agent.queries import query
from fedldp_fleet.agent.service import AgentSettings
from fedldp_fleet.commands.agent import agent_group

SCHEMA = """
format = 2
[speed]
low = 0
high = 50
[late]
categories = ["no", "yes"]
"""
TABLE = "CREATE TABLE trips (car text, speed numeric, late text)"
ROWS = "INSERT INTO trips VALUES ('b', 30.5, 'no'), ('a', 10, 'yes'), ('b', 20, 'yes')"


@pytest.fixture
def database(new_database, tmp_path, postgresql_execute):
    """Return the address of a database with trips, and a function that executes a statement."""
    url = new_database()

    def execute(statement):
        if url:
            return postgresql_execute(url, statement)
        with closing(sqlite3.connect(tmp_path / "trips.db")) as file:
            file.execute(statement)
            return file.commit()

    execute(TABLE)
    execute(ROWS)
    return url or "trips.db", execute


@pytest.fixture
def postgresql_execute(request):
    def execute(url, statement):
        server = request.getfixturevalue("postgresql_server")
        return server.execute(url.rpartition("/")[2], statement)

    return execute


def settings_of(folder, database, **entries):
    (folder / "rows.toml").write_text(SCHEMA)
    Ledger.create(folder / "ledger.db", cap=4).close()
    given = {"cap": "4", "operator": "operator.pub", "schema": "rows.toml", "database": database}
    given |= entries
    lines = [f'{name} = "{value}"' for name, value in given.items() if value is not None]
    (folder / "agent.toml").write_text("\n".join(["format = 1", *lines]))
    return AgentSettings.load(folder)


def test_rows_of_several_vehicles_are_read_again_when_an_answer_is_drawn(database, tmp_path):
    address, execute = database
    asked = "SELECT car, speed, late FROM trips"
    rows = rows_of(settings_of(tmp_path, address, query=asked, vehicle="car"))
    assert list(rows.vehicle_ids) == ["a", "b"]
    held = rows.held()
    assert sorted(zip(held.owners.tolist(), held.matrix[:, 0].tolist(), strict=True)) == [
        (0, 10.0),
        (1, 20.0),
        (1, 30.5),
    ]
    execute("UPDATE trips SET speed = 40 WHERE car = 'a'")
    held = rows.held()
    assert held.matrix[held.owners == 0][:, 0].tolist() == [40.0]


def test_one_vehicle_needs_no_column(database, tmp_path):
    address, _ = database
    asked = "SELECT avg(speed) AS speed, max(late) AS late FROM trips"
    rows = rows_of(settings_of(tmp_path, address, query=asked))
    assert rows.held().matrix.shape == (1, 2)
    assert rows.held().matrix[0, 0] == pytest.approx(60.5 / 3)


def test_a_query_that_fails_makes_all_values_missing(database, tmp_path, capsys):
    address, execute = database
    asked = "SELECT car, speed, late FROM trips"
    rows = rows_of(settings_of(tmp_path, address, query=asked, vehicle="car"))
    execute("DROP TABLE trips")
    assert rows.held().matrix.shape == (2, 2)  # each vehicle has a row, whose values are missing
    assert "the rows cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("statement", ["DELETE FROM trips", "DROP TABLE trips"])
def test_a_query_changes_nothing(database, tmp_path, statement):
    address, execute = database
    with pytest.raises(Exception, match=r"read-?only"):
        query(address, statement, tmp_path)()
    execute("UPDATE trips SET speed = 1")  # it is still there


@pytest.mark.parametrize(
    "entries",
    [{"query": None}, {"query": "SELECT 1", "database": None}, {"query": "S", "data": "x"}],
)
def test_query_and_database_need_each_other(tmp_path, entries):
    with pytest.raises(DomainError, match=r"need each other|expected one of"):
        settings_of(tmp_path, **({"database": "trips.db"} | entries))


def test_an_agent_is_made_with_a_query(database, tmp_path):
    address, _ = database
    (tmp_path / "rows.toml").write_text(SCHEMA)
    PrivateKey.generate().public.save(tmp_path / "operator.pub")
    where = address if "://" in address else tmp_path / address
    words = ["init", tmp_path / "car", "--cap", "4", "--operator", tmp_path / "operator.pub"]
    words += ["--schema", tmp_path / "rows.toml", "--database", where]
    words += ["--query", "SELECT speed, late FROM trips"]
    done = CliRunner().invoke(agent_group, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0
    assert rows_of(AgentSettings.load(tmp_path / "car")).held().matrix.shape == (3, 2)
