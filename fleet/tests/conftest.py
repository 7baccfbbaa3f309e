import itertools

import pytest

from fedldp.storage.database import Database
from fedldp_fleet.store.sqlite import SQLiteStore

_NUMBERS = itertools.count()


class SQLiteStores:
    """Makes stores in files."""

    executor, acts = Database, ("execute", "execute_many")  # what executes each statement

    def __init__(self, request):
        self._folder = request.getfixturevalue("tmp_path")

    def open(self, name):
        return SQLiteStore(self._folder / f"{name}.db")


class PostgreSQLStores:
    """Makes stores in databases of a real PostgreSQL."""

    acts = ("execute",)

    def __init__(self, request):
        from fedldp_fleet.store import postgresql

        self.executor, self._make = postgresql.Session, postgresql.PostgreSQLStore
        self._server = request.getfixturevalue("postgresql_server")
        self._urls = {}

    def open(self, name):
        if name not in self._urls:
            self._urls[name] = self._server.make_database(f"test-{next(_NUMBERS)}")
        return self._make(self._urls[name], create=True)


STORES = {"sqlite": SQLiteStores, "postgresql": PostgreSQLStores}


@pytest.fixture(scope="session")
def postgresql_server():
    """Return a PostgreSQL that all tests share: nobody may kill it."""
    from postgresql_server import PostgreSQLServer
    from server_process import free_port

    server = PostgreSQLServer(free_port()).start()
    yield server
    server.stop()


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)],
)
def stores(request):
    """Return what opens stores of one kind."""
    return STORES[request.param](request)


@pytest.fixture(params=["file", pytest.param("database", marks=pytest.mark.postgresql)])
def new_database(request):
    """Return a function that makes a database for a server; empty for a file in its folder."""
    if request.param == "file":
        return lambda: ""
    server = request.getfixturevalue("postgresql_server")
    return lambda: server.make_database(f"test-{next(_NUMBERS)}")


@pytest.fixture
def make_store(stores):
    """Return a function that opens the same store again and again, as processes do."""
    opened = []

    def make(name="server"):
        opened.append(stores.open(name))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def store(make_store):
    return make_store()
