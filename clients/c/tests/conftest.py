import c_vehicle
import pytest


@pytest.fixture(scope="session")
def core(tmp_path_factory):
    """The core as a shared library."""
    return c_vehicle.library(str(tmp_path_factory.mktemp("core")))
