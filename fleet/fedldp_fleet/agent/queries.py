"""Rows from a query of a database: a file of SQLite, or a PostgreSQL."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

from fedldp.errors import MissingExtra
from fedldp_fleet.agent.service import POSTGRESQL

TIMEOUT_SECONDS = 60

Rows = list[dict[str, Any]]


def query(database: str, statement: str, folder: Path) -> Callable[[], Rows]:
    """Return a function that runs a query, which can change nothing, and returns its rows.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with closing(sqlite3.connect(folder / "trips.db")) as file:
    ...     _ = file.execute("CREATE TABLE trips AS SELECT 31.5 AS speed")
    ...     file.commit()
    >>> query("trips.db", "SELECT speed FROM trips", folder)()
    [{'speed': 31.5}]
    """
    if database.startswith(POSTGRESQL):
        return lambda: _from_postgresql(database, statement)
    return lambda: _from_sqlite(folder / database, statement)


def _from_sqlite(path: Path, statement: str) -> Rows:
    uri = f"{path.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=TIMEOUT_SECONDS)) as file:
        cursor = file.execute(statement)
        return _named([name for name, *_ in cursor.description], cursor.fetchall())


def _from_postgresql(url: str, statement: str) -> Rows:
    try:
        import psycopg
    except ImportError:
        raise MissingExtra("psycopg", "postgresql", "fedldp-fleet") from None
    options = f"-c statement_timeout={TIMEOUT_SECONDS}s -c default_transaction_read_only=on"
    with psycopg.connect(url, options=options, connect_timeout=TIMEOUT_SECONDS) as connection:
        cursor = connection.execute(statement.encode())
        names = [column.name for column in cursor.description or ()]
        return _named(names, cursor.fetchall())


def _named(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Rows:
    return [dict(zip(names, map(_value, row), strict=True)) for row in rows]


def _value(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value
