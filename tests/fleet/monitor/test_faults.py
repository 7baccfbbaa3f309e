"""A monitor that is killed comes back, and its fleet does not notice."""

from time import sleep

import pytest
from fleet_parts import VEHICLES, edit, kill, running, small_fleet
from monitored import ask

from fedldp.fleet.monitor.address import MonitorAddress
from fedldp.fleet.processes import free_port

pytestmark = pytest.mark.faults


@pytest.fixture
def fleet(tmp_path):
    fleet = small_fleet(tmp_path / "fleet", 1)
    yield fleet
    fleet.close()


def test_killed_again_and_again(fleet):
    address = MonitorAddress("127.0.0.1", free_port())
    edit(fleet.folder / "server" / "server.toml", monitor=f'"127.0.0.1:{address.port}"')

    def monitors():
        found = running(fleet.folder / "server").items()
        return [pid for pid, words in found if "fedldp.fleet.monitor" in words]

    server = fleet.start("server")
    for part in ("vault-1", "gateway-1"):
        fleet.start(part)
    killed = set()
    while server.poll() is None:
        for pid in set(monitors()) - killed:
            if not killed:  # later ones may die before they listen
                assert ask(address, "/healthz")[0] == 200
            kill([pid])
            killed.add(pid)
        sleep(0.2)
    assert len(killed) > 1
    assert server.returncode == 0, fleet.log("server")
    assert fleet.progress().total.reports == VEHICLES
    assert not monitors()
