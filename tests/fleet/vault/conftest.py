import pytest
from vaults import vault


@pytest.fixture
def one(tmp_path):
    """One vault, with its ledger."""
    return vault(tmp_path / "ledger")


@pytest.fixture
def path(tmp_path):
    """Where the socket of a vault is."""
    return tmp_path / "socket"
