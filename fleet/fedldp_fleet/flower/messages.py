"""Bytes as the content of a Flower message, and back."""

import logging

from flwr.app import ConfigRecord, RecordDict

from fedldp.errors import WireError
from fedldp_fleet.library import owner

NAME = "fedldp"  # of the one record in a message, and of the one value in it
PLAN = "fedldp-plan"  # the setting by which a server says which plan it counts: its fingerprint
DELTA = "fedldp-delta"  # and that by which it says whether it counts moves of its own arrays

# Apps on Flower set up no logging of their own. Lines of a child of Flower's logger appear where
# Flower's own lines do, on the node or on the server.
log = logging.getLogger("flwr.fedldp")

# What the mod logs on a node depends on its data, so it does not pass through Flower's handlers,
# which can wait, raise, or send lines to another machine. It goes to the node's standard error.
node_log = logging.getLogger("flwr.fedldp.node")
node_log.propagate = False
node_log.setLevel(logging.INFO)
_lines = owner.OwnerHandler()
_lines.setFormatter(logging.Formatter("%(levelname)-7s :     %(message)s"))
node_log.addHandler(_lines)

_EXPECTED = "a message must contain one record of bytes and nothing else."


def packed(data: bytes) -> RecordDict:
    """Return bytes as the content of a message, in one record: each record costs a kilobyte.

    >>> unpacked(packed(b"question"))
    b'question'
    """
    return RecordDict({NAME: ConfigRecord({NAME: data})})


def unpacked(content: RecordDict) -> bytes:
    """Return the bytes that a message contains; raise `WireError` if it contains anything else."""
    records = dict(content.items())
    record = records.get(NAME)
    if len(records) != 1 or not isinstance(record, ConfigRecord) or list(record) != [NAME]:
        raise WireError(_EXPECTED)
    data = record[NAME]
    if not isinstance(data, bytes):
        raise WireError(_EXPECTED)
    return data
