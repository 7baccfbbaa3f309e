import pytest

from fedldp_fleet.store.sqlite import SQLiteStore

STORES = {"sqlite": lambda folder, name: SQLiteStore(folder / f"{name}.db")}


@pytest.fixture(params=STORES)
def make_store(request, tmp_path):
    """Return a function that opens the same store again and again, as processes do."""
    opened = []

    def make(name="server"):
        opened.append(STORES[request.param](tmp_path, name))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def store(make_store):
    return make_store()
