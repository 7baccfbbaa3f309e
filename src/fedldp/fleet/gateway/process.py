"""The processes of a gateway: a SuperNode of Flower in a private network, and its uplink outside.

After a SuperNode was killed, the server refuses its key for up to a minute, and a new SuperNode
ends immediately; it is started again until the server admits it. A SuperNode that has given up on
the server keeps running without asking for work. The uplink notices that, and the SuperNode is
stopped and started again.
"""

import contextlib
import logging
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from socket import socket
from typing import final

from fedldp._internal import toml
from fedldp.errors import DomainError
from fedldp.fleet import isolation, keys, logs
from fedldp.fleet.flower import bundle, programs
from fedldp.fleet.gateway.record import Teller
from fedldp.fleet.gateway.relay import DEADLINE
from fedldp.fleet.isolation import Network
from fedldp.fleet.monitor import launch
from fedldp.fleet.monitor.address import ENTRIES as MONITOR
from fedldp.fleet.processes import FREE_PORT, Process, Supervisor
from fedldp.fleet.sockets import Address
from fedldp.fleet.state import STATE
from fedldp.storage.files import WatchedFiles

FILE = "gateway.toml"
LOG = "gateway.log"  # in the state folder
SILENCE = 120.0  # seconds beyond the deadline: a SuperNode that asks for no work is restarted
_LOOK = 0.5  # seconds between two looks at the key, and at what there is to log
_ENTRIES: dict[str, toml.Types] = {
    "server": str,  # host:port of its endpoint
    "authority": str,  # the certificate authority that must have signed the server's certificate
    "key": str,  # the private key of this gateway
    "vaults": list,  # addresses: paths of Unix sockets, or tcp://host:port
    "token": str,  # a file, for vaults on TCP
    "deadline": (int, float),
    "bundle": str,  # the SHA-256 of the app that may run here
}

_log = logging.getLogger("fedldp.fleet.gateway")


@final
@dataclass(frozen=True)
class GatewayConfig:
    """The configuration of a gateway, read from its folder. Paths are relative to the folder."""

    folder: Path
    server: str
    authority: Path
    key: Path
    vaults: tuple[Address, ...]
    token: Path | None
    deadline: float
    bundle: str

    @classmethod
    def load(cls, folder: Path) -> "GatewayConfig":
        """Read the file gateway.toml in a folder."""
        folder = folder.resolve()
        path = folder / FILE
        entries = toml.read(path, _ENTRIES | MONITOR, ("server", "authority", "key", "vaults"))
        token = folder / entries["token"] if "token" in entries else None
        vaults = []
        for text in map(str, entries["vaults"]):
            address = text if text.startswith("tcp://") else str((folder / text).resolve())
            vaults.append(Address.of(address, token))
        known = str(entries.get("bundle", bundle.SHA256))
        deadline = float(entries.get("deadline", DEADLINE))
        if not 0 < deadline < inf:
            raise DomainError(
                f"{path}: deadline must be a positive number of seconds; got {deadline}."
            )
        if not vaults:
            raise DomainError(f"{path}: vaults must contain at least one vault; got none.")
        told = [str(token), str(folder), *(vault.path for vault in vaults)]
        if any(re.search(r"[\"'\\\n]", text) for text in told) or "," in "".join(told[2:]):
            raise DomainError(
                f"{path}: paths must not contain quotes, backslashes or commas; got {told}."
            )
        if not re.fullmatch("[0-9a-f]{64}", known):
            raise DomainError(
                f"{path}: bundle must be a SHA-256, 64 digits 0-9 or a-f; got {known!r}."
            )
        return cls(
            folder,
            entries["server"],
            folder / entries["authority"],
            folder / entries["key"],
            tuple(vaults),
            token,
            deadline,
            known,
        )

    @property
    def state(self) -> Path:
        """The folder for files that are written at run time."""
        return self.folder / STATE

    @property
    def next_key(self) -> Path:
        """The file of the key that this gateway will use next, if it has one."""
        return self.key.with_name(f"{self.key.name}.next")

    @property
    def distant(self) -> list[Address]:
        """The vaults on TCP, which are reached through the uplink."""
        return [vault for vault in self.vaults if not vault.path]

    @property
    def vault_names(self) -> list[str]:
        """What to call each vault in logs: the folder of its socket, or its address."""
        return [
            Path(vault.path).parent.name.removeprefix("fedldp-") or vault.path
            if vault.path
            else f"{vault.host}:{vault.port}"
            for vault in self.vaults
        ]

    @property
    def pulse(self) -> Path:
        """The file that the uplink touches whenever the SuperNode asks for work."""
        return self.state / "asked"

    @property
    def _uplink(self) -> Path:
        return self.state / "uplink"

    @property
    def certificate(self) -> Path:
        """The certificate of the uplink: the SuperNode accepts only connections with TLS."""
        return self._uplink / "server.crt"

    @property
    def certificate_key(self) -> Path:
        """The key of that certificate."""
        return self._uplink / "server.key"

    def certify(self) -> None:
        """Make a certificate for the uplink unless it has one. It never leaves this machine."""
        self.state.mkdir(mode=0o700, exist_ok=True)
        if self._uplink.exists():
            return
        with tempfile.TemporaryDirectory(dir=self.state) as fresh:
            made = Path(fresh) / "uplink"
            made.mkdir(mode=0o700)
            keys.write_server(made, Path(fresh) / "ca.key", [])
            with contextlib.suppress(OSError):  # another process has just made one
                made.rename(self._uplink)

    def uplink_process(self, sockets: Sequence[socket]) -> Process:
        """Return how to run the uplink, with sockets for the server and for vaults on TCP."""
        argv = programs.python("fedldp.fleet.gateway.uplink", self.folder)
        return Process("uplink", argv, sockets=tuple(sockets), outside=True)

    def way_process(self, listening: socket, uplink: Path) -> Process:
        """Return how to pass connections on to an uplink that listens on a Unix socket."""
        argv = programs.python("fedldp.fleet.gateway.way", uplink)
        return Process("way", argv, sockets=(listening,))

    def node_process(self, ports: Sequence[int]) -> Process:
        """Return how to run the SuperNode, which reaches the uplink on these ports."""
        arguments = {
            "--superlink": f"127.0.0.1:{ports[0]}",
            "--root-certificates": self._uplink / "ca.crt",
            "--auth-supernode-private-key": self.key,
            "--port": FREE_PORT,
            "--node-config": self._node_config(ports[1:]),
        }
        words = [str(word) for pair in arguments.items() for word in pair]
        return Process(
            "supernode",
            programs.program("flower-supernode", *words),
            programs.environment(self.state),
            pulse=self.pulse,
            silence=self.deadline + SILENCE,
        )

    def _node_config(self, ports: Sequence[int]) -> str:
        """Return the configuration of the gateway's app: vaults, their names, deadline, files."""
        through = iter(ports)
        vaults = [vault.path or f"tcp://127.0.0.1:{next(through)}" for vault in self.vaults]
        texts = {"vaults": ",".join(vaults), "names": ",".join(self.vault_names)}
        texts |= {"state": str(self.state)}
        texts |= {"token": str(self.token)} if self.token else {}
        words = [f'{name}="{text}"' for name, text in texts.items()]
        return " ".join([*words, f"deadline={self.deadline}"])


def run(
    folder: Path,
    *,
    uplink: int | Path | None = None,
    require_isolation: bool = False,
    network: Network | None = None,
) -> None:
    """Run the gateway of a folder until SIGTERM or Ctrl-C.

    The SuperNode runs in `network`, by default a private one if the system allows it; with
    `require_isolation`, the gateway refuses to start without one. With `uplink`, systemd has made
    the private network and runs the uplink, which listens on this port and, for vaults on TCP, on
    the ports after it. If it is a path, the uplink runs in another container and listens there.
    """
    gateway = GatewayConfig.load(folder)
    network = network or isolation.choose(uplink is not None, require_isolation)
    with (
        Supervisor(gateway.state, network=network) as supervisor,
        logs.to_file(gateway.state / LOG),
    ):
        gateway.certify()
        ways = 1 + len(gateway.distant)
        if uplink is None:
            sockets = [network.listen() for _ in range(ways)]
            supervisor.start(gateway.uplink_process(sockets))
            ports = [each.getsockname()[1] for each in sockets]
        elif isinstance(uplink, Path):
            listening = network.listen()
            supervisor.start(gateway.way_process(listening, uplink))
            ports = [listening.getsockname()[1]]
        else:
            ports = list(range(uplink, uplink + ways))
        key = WatchedFiles(gateway.key)
        supervisor.start(node := gateway.node_process(ports))
        launch.start(supervisor, gateway.folder / FILE, given=uplink is not None)
        _log.info("Started; the server is %s.", gateway.server)
        teller = Teller(gateway.state, gateway.server)
        while supervisor.wait(_LOOK):
            teller.look()
            if key.changed():  # what is being asked is asked again, by the new node
                _log.info("The key has changed: starting the SuperNode again.")
                supervisor.restart(node.name)
