"""What the server keeps: an interface, which `sqlite` and `postgresql` implement."""

from fedldp_fleet.store.base import Store
from fedldp_fleet.store.sqlite import SQLiteStore

POSTGRESQL = ("postgresql://", "postgres://")


def open_store(where: str, *, create: bool = False) -> Store:
    """Open the store in a file, or in a database of PostgreSQL."""
    if where.startswith(POSTGRESQL):
        from fedldp_fleet.store.postgresql import PostgreSQLStore  # which needs psycopg

        return PostgreSQLStore(where, create=create)
    return SQLiteStore(where, create=create)
