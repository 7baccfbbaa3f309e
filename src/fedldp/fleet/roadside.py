"""The machine of a gateway: a SuperNode of Flower, kept alive.

After a SuperNode was killed, the server refuses its key for up to a minute, and the next one ends;
it is started again until it is let in. One that has given up on the server stays alive and says so
in its log: it is ended, and started again.
"""

import re
from pathlib import Path
from typing import Any

from fedldp.errors import DomainError
from fedldp.fleet import flower, toml
from fedldp.fleet.gateway import DEADLINE
from fedldp.fleet.processes import FREE_PORT, STATE, Process, Supervisor
from fedldp.fleet.sockets import Address

FILE = "gateway.toml"
_DEAF = b"SSL/TLS handshake error detected."
_ENTRIES: dict[str, toml.Types] = {
    "server": str,  # host:port of its front
    "authority": str,  # the certificate that its certificate must come from
    "key": str,  # who this gateway is
    "vaults": list,  # addresses: paths of Unix sockets, or tcp://host:port
    "token": str,  # a file, for vaults on TCP
    "deadline": (int, float),
}


def run(folder: Path) -> None:
    """Keep the gateway of a folder alive until SIGTERM or Ctrl-C."""
    folder = folder.resolve()
    node = supernode(folder)
    with Supervisor(folder / STATE) as supervisor:
        supervisor.start(node)
        while supervisor.wait(60.0):
            pass


def supernode(folder: Path) -> Process:
    """Return how to run the SuperNode of a folder. Paths in its file are relative to the folder."""
    entries = toml.read(folder / FILE, _ENTRIES, ("server", "authority", "key", "vaults"))
    arguments = {
        "--superlink": entries["server"],
        "--root-certificates": folder / entries["authority"],
        "--auth-supernode-private-key": folder / entries["key"],
        "--port": FREE_PORT,
        "--node-config": _node_config(folder, entries),
    }
    words = [str(word) for pair in arguments.items() for word in pair]
    program = flower.program("flower-supernode", *words)
    return Process("supernode", program, flower.environment(folder / STATE), hopeless=_DEAF)


def _node_config(folder: Path, entries: dict[str, Any]) -> str:
    """Return what the gateway's app is told: the vaults, the deadline, the token's file."""
    token = str(folder / entries["token"]) if "token" in entries else None
    vaults = []
    for vault in entries["vaults"]:
        text = vault if str(vault).startswith("tcp://") else str((folder / str(vault)).resolve())
        Address.of(text, token)  # refuses what is no address
        vaults.append(text)
    told = {"vaults": ",".join(vaults), "token": token}
    if not vaults:
        raise DomainError(f"{folder / FILE}: a gateway needs a vault at least.")
    if any(re.search(r"[\"'\\\n]", text or "") for text in told.values()) or "," in "".join(vaults):
        raise DomainError(
            f"{folder / FILE}: paths may have no quotes, backslashes or commas; got {told}."
        )
    texts = [f'{name}="{text}"' for name, text in told.items() if text]
    return " ".join([*texts, f"deadline={float(entries.get('deadline', DEADLINE))}"])
