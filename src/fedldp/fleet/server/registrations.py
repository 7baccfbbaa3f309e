"""The gateways that the SuperLink knows: a file with the public keys that the server registered."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fedldp._internal import documents
from fedldp.errors import FedLDPError
from fedldp.fleet.server import names, numbers
from fedldp.fleet.server.admission import Gateways, Headers
from fedldp.storage import files

FORMAT = "fedldp registered 2"  # that of version 0.1 is a list of keys
REVOKED = "revoked"  # in place of a gateway's number in Flower

_FILE = "registered.json"


def registered(state: Path) -> set[str]:
    """Return the public keys of gateways that the SuperLink of a state folder knows."""
    return {key for key, node in nodes(state).items() if node != REVOKED}


def revoked(state: Path) -> set[str]:
    """Return the numbers of gateways that the SuperLink has known and admits no more.

    If the number of any key is unknown, so are these.
    """
    numbered = set(nodes(state).values())
    return names.known(state).keys() - numbered if numbered and "" not in numbered else set()


def nodes(state: Path) -> dict[str, str]:
    """Return the number in Flower of each public key: empty if unknown, or `REVOKED`."""
    path = state / _FILE
    if not path.exists():
        return {}
    with documents.reading(f"{FORMAT!r}", f" in {path}"):
        found = json.loads(path.read_text("utf-8"))
        if isinstance(found, list):  # written by version 0.1
            given = numbers.of_keys(state)
            found = {key: given.get(without_comment(key), "") for key in found}
        elif "format" in found:
            found = documents.parse(json.dumps(found), [FORMAT], ("nodes",))["nodes"]
        return {without_comment(key): node for key, node in found.items()}


def save(state: Path, nodes: Mapping[str, str]) -> None:
    """Write the number of each public key."""
    document = {"format": FORMAT, "nodes": dict(nodes)}
    files.write(state / _FILE, json.dumps(document, sort_keys=True))


def is_old(state: Path) -> bool:
    """Return whether an earlier version has written the file."""
    path = state / _FILE
    return path.exists() and "format" not in json.loads(path.read_text("utf-8"))


def without_comment(key: str) -> str:
    """Return the type and the number of a public key, without the comment in its file.

    >>> without_comment("ecdsa-sha2-nistp384 AAAA somebody@somewhere")
    'ecdsa-sha2-nistp384 AAAA'
    """
    return " ".join(key.split()[:2])


@final
@dataclass(frozen=True)
class Early:
    """Tells which headers show a key that was put into the folder, and is not registered yet."""

    state: Path
    gateways: Gateways

    def __call__(self, headers: Headers) -> bool:
        try:
            known = nodes(self.state)
        except (FedLDPError, OSError, ValueError):  # the status of the server says so
            return False
        return without_comment(self.gateways.key(headers)) not in known
