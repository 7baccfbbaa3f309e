"""The numbers of gateways that version 0.1 has registered: it recorded their keys alone.

Flower's commands show no keys, so the numbers are read from the database of its SuperLink. If that
fails, the fleet does without: such a gateway has a number instead of a name in logs.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)

FILE = "link.db"  # in the state folder of the server

_ASKED = "SELECT node_id, public_key FROM node WHERE status != 'unregistered'"
_PATIENCE = 5.0  # seconds that the SuperLink may keep the database locked


def of_keys(state: Path) -> dict[str, str]:
    """Return the number of each public key that the SuperLink of a state folder knows.

    >>> of_keys(Path("/nonexistent"))
    {}
    """
    address = f"{(state / FILE).absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=_PATIENCE)) as connection:
            rows = connection.execute(_ASKED).fetchall()
        return {_line(key): str(node % 2**64) for node, key in rows}  # it stores signed numbers
    except (sqlite3.Error, TypeError, ValueError, UnsupportedAlgorithm):
        return {}


def _line(key: bytes) -> str:
    """Return a public key as the file of a gateway has it."""
    found = load_pem_public_key(key)
    if not isinstance(found, EllipticCurvePublicKey):
        raise TypeError(f"expected the kind of key that Flower uses; got {type(found).__name__}.")
    return found.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
