"""Another account of the machine attacks a fleet: Flower's ports ask it for no password.

Each attack is made twice. Once the fleet has a private network, as always; once it has not, which
shows that the attack works where nothing stops it.
"""

from dataclasses import dataclass

import httpx
import pytest
from accounts import NOBODY, forked, needs_root
from fleet_parts import Fleet, running, until
from flwr.cli.build import build_fab_from_files
from flwr.proto.control_pb2 import StartRunRequest, StartRunResponse
from flwr.proto.fab_pb2 import Fab
from test_fleet_hostile_processes import written

from fedldp.fleet.isolation import Network
from fedldp.fleet.server import Server, registered

pytestmark = [
    pytest.mark.hostile,
    needs_root,
    pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning"),  # Flower uses it
]

# Starts a part of a fleet as its command does, but in the network of the machine.
SHARED = f"""
import sys
from pathlib import Path
from fedldp.fleet import {{module}}
from fedldp.fleet.isolation import Network
{{module}}.run(Path(sys.argv[1]), network={Network()!r})
"""
MODULES = {"server": "server"}
EVIL = """
from pathlib import Path
from flwr.serverapp import ServerApp
Path({copy!r}).write_bytes(Path({secret!r}).read_bytes())
app = ServerApp()
@app.main()
def main(grid, context):
    pass
"""
PROJECT = """
[project]
name = "evil"
version = "1.0.0"
description = "-"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "evil"
[tool.flwr.app.components]
serverapp = "evil:app"
clientapp = "evil:app"
[tool.flwr.app.config]
"""


@dataclass
class Attacked:
    fleet: Fleet
    private: bool

    @property
    def server(self):
        return Server.load(self.fleet.folder / "server")


@pytest.fixture(scope="module", params=[True, False], ids=["private", "shared"])
def attacked(request, tmp_path_factory):
    """A fleet at work, in networks of its own or in that of the machine."""
    fleet = written(tmp_path_factory.mktemp("attacked") / "fleet", 1)
    try:
        for part in ("vault-1", "server"):
            module = MODULES.get(part.partition("-")[0])
            shared = module is not None and not request.param
            command = ["-c", SHARED.format(module=module)] if shared else None
            fleet.start(part, command)
        until(lambda: registered(fleet.folder / "server" / "state"), "registration")
        yield Attacked(fleet, request.param)
    finally:
        fleet.close()
    assert running(fleet.folder) == {}


def posted(port, path, body=b"", scheme="https"):
    """Return what another account gets when it calls a port of this machine, or why it does not."""

    def call():
        try:
            answer = client.post(f"{scheme}://127.0.0.1:{port}{path}", content=body)
        except httpx.ConnectError as error:
            return str(error), b""
        return answer.status_code, answer.content

    kind = {"content-type": "application/protobuf", "accept": "application/protobuf"}
    with httpx.Client(verify=False, headers=kind, timeout=60) as client:
        return forked(call, uid=NOBODY)


def test_code_on_the_server(attacked):
    """The attacker starts an app of its own on the server, which copies the server's key."""
    server, copy = attacked.server, attacked.fleet.folder / "copied"
    source = EVIL.format(copy=str(copy), secret=str(server.key))
    content, _ = build_fab_from_files(
        {"pyproject.toml": PROJECT.encode(), "evil.py": source.encode()}
    )
    request = StartRunRequest(fab=Fab(content=content), federation="")
    status, said = posted(server.link, "/v1/control/start-run", request.SerializeToString())
    if attacked.private:
        assert "Connection refused" in status
        assert not copy.exists()
    else:
        assert status == 200
        assert StartRunResponse.FromString(said).run_id
        until(copy.exists, "the theft")
        until(lambda: copy.read_bytes() == server.key.read_bytes())
