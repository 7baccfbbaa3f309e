"""Another account of the machine attacks a fleet: Flower's ports ask it for no password.

Each attack is made twice. Once the fleet has private networks, as always; once it has not, which
shows that the attack works where nothing stops it. Then the server itself attacks a gateway.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from accounts import NOBODY, forked, needs_root
from fleet_parts import Fleet, edit, running, small_fleet, until
from flwr.cli.build import build_fab_from_files
from flwr.proto.control_pb2 import StartRunRequest, StartRunResponse
from flwr.proto.fab_pb2 import Fab
from flwr.proto.runtime_pb2 import AcquireTaskRequest, AcquireTaskResponse

from fedldp.fleet.isolation import Network
from fedldp.fleet.server.process import ServerConfig
from fedldp.fleet.server.registrations import registered

pytestmark = [
    pytest.mark.hostile,
    needs_root,
    pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning"),  # Flower uses it
]

# Starts a part of a fleet as its command does, but in the network of the machine.
SHARED = f"""
import sys
from pathlib import Path
from fedldp.fleet.{{part}} import process
from fedldp.fleet.isolation import Network
process.run(Path(sys.argv[1]), network={Network()!r}{{options}})
"""
COMMANDS = {
    True: {"server": ["-m", "fedldp", "fleet", "server", "--stay", "--require-isolation"]},
    False: {
        "server": ["-c", SHARED.format(part="server", options=", stay=True")],
        "gateway-1": ["-c", SHARED.format(part="gateway", options="")],
    },
}
# An app whose halves copy a secret each, wherever they are run.
EVIL = {
    "pyproject.toml": """
[project]
name = "evil"
version = "1.0.0"
description = "-"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "evil"
[tool.flwr.app.components]
serverapp = "at_server:app"
clientapp = "at_gateway:app"
[tool.flwr.app.config]
""",
    "at_server.py": """
from pathlib import Path
from time import sleep
from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp
Path({server_copy!r}).write_bytes(Path({server_key!r}).read_bytes())
app = ServerApp()
@app.main()
def main(grid, context):
    while not (nodes := list(grid.get_node_ids())):
        sleep(1)
    grid.push_messages([Message(RecordDict(), node, "train") for node in nodes])
    sleep(600)
""",
    "at_gateway.py": """
from pathlib import Path
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
Path({gateway_copy!r}).write_bytes(Path({gateway_key!r}).read_bytes())
app = ClientApp()
@app.train()
def train(message, context):
    return Message(RecordDict(), reply_to=message)
""",
}


@dataclass
class Attacked:
    fleet: Fleet
    private: bool
    copies: str = "copy"  # how the names of stolen files end

    @property
    def server(self):
        return ServerConfig.load(self.fleet.folder / "server")

    @property
    def secrets(self):
        folder = self.fleet.folder
        found = {"server_key": self.server.key, "gateway_key": folder / "gateway-1" / "key"}
        return found | {
            f"{name}_copy": folder / f"{name}.{self.copies}" for name in ("server", "gateway")
        }

    @property
    def evil(self):
        texts = {name: str(path) for name, path in self.secrets.items()}
        files = {
            name: (text.format(**texts) if name.endswith(".py") else text).encode()
            for name, text in EVIL.items()
        }
        return build_fab_from_files(files)[0]

    def steals(self, part):
        copy, key = (self.secrets[f"{part}_{name}"] for name in ("copy", "key"))
        return copy.exists() and copy.read_bytes() == key.read_bytes()


@pytest.fixture(scope="module", params=[True, False], ids=["private", "shared"])
def attacked(request, tmp_path_factory):
    """A fleet at work, in networks of its own or in that of the machine."""
    fleet = small_fleet(tmp_path_factory.mktemp("attacked") / "fleet", 1)
    try:
        for part in ("vault-1", "server", "gateway-1"):
            fleet.start(part, COMMANDS[request.param].get(part))
            if part == "server":
                until(lambda: registered(fleet.folder / "server" / "state"), "registration")
        until(fleet.rounds, "the first round")
        yield Attacked(fleet, request.param)
    finally:
        fleet.close()
    assert running(fleet.folder) == {}


def post(port, path, message, scheme="https"):
    """Return what comes back when a port of this machine is called, or why nothing does."""
    kind = {"content-type": "application/protobuf", "accept": "application/protobuf"}
    address = f"{scheme}://127.0.0.1:{port}{path}"
    try:
        with httpx.Client(verify=False, headers=kind, timeout=60) as client:
            answer = client.post(address, content=message.SerializeToString())
    except httpx.ConnectError as error:
        return str(error), b""
    return answer.status_code, answer.content


def start(attacked, **how):
    request = StartRunRequest(fab=Fab(content=attacked.evil))
    port = attacked.server.link
    return forked(lambda: post(port, "/v1/control/start-run", request), **how)


def test_code_on_the_server(attacked):
    """The attacker starts an app of its own on the server, which copies the server's key."""
    attacked = replace(attacked, copies="stolen")  # another test has the server itself run the app
    status, said = start(attacked, uid=NOBODY)
    if attacked.private:
        assert "Connection refused" in status
        assert not attacked.secrets["server_copy"].exists()
    else:
        assert status == 200
        assert StartRunResponse.FromString(said).run_id
        until(lambda: attacked.steals("server"), "the theft")


def test_tasks_of_the_gateway(attacked):
    """The attacker asks the SuperNode for a task, in the place of Flower's own process."""
    node = attacked.fleet.process("gateway-1", "flower-supernode")
    words = Path(f"/proc/{node}/cmdline").read_text().split("\0")
    port, request = words[words.index("--port") + 1], AcquireTaskRequest()
    status, said = forked(
        lambda: post(port, "/v1/runtime/acquire-task", request, "http"), uid=NOBODY
    )
    if attacked.private:
        assert "Connection refused" in status
    else:
        assert status == 200
        AcquireTaskResponse.FromString(said)


def test_the_superexec_of_the_server_has_a_secret(attacked):
    """A process that reaches the SuperLink gets no task without it."""
    link = attacked.fleet.process("server", "flower-superlink")
    port, request = attacked.server.link, AcquireTaskRequest()
    call = lambda: post(port, "/v1/runtime/acquire-task", request)  # noqa: E731
    assert forked(call, network_of=link)[0] == 401


def test_code_on_the_gateway(attacked):
    """The server itself ships another app, which the gateway refuses to run, or runs if it may."""
    link = attacked.fleet.process("server", "flower-superlink")
    folder = attacked.fleet.folder / "gateway-1"
    log = folder / "state" / "uplink.log"
    known = len(log.read_text())
    assert start(attacked, network_of=link)[0] == 200
    refusal = f"refused an app with the SHA-256 '{hashlib.sha256(attacked.evil).hexdigest()}'"
    until(lambda: refusal in log.read_text()[known:], "the refusal")
    assert not attacked.secrets["gateway_copy"].exists()
    attacked.fleet.popens["gateway-1"].terminate()
    attacked.fleet.popens["gateway-1"].wait(60)
    edit(folder / "gateway.toml", bundle=f'"{hashlib.sha256(attacked.evil).hexdigest()}"')
    attacked.fleet.start("gateway-1", COMMANDS[attacked.private].get("gateway-1"))
    assert start(attacked, network_of=link)[0] == 200
    until(lambda: attacked.steals("gateway"), "the theft")
