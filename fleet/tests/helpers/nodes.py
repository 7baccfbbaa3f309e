"""Nodes of Flower whose apps have the mod, and what they are asked.

Run as a script, `python nodes.py FOLDER`, it answers questions, one of them on a full disk.
"""

import resource
import sys
import time
from pathlib import Path

import numpy as np
from flwr.app import (
    ConfigRecord,
    Context,
    Message,
    Metadata,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from ledgers import made

from fedldp import Plan, Schema
from fedldp.budget.ledger import Ledger
from fedldp.plan.strategies import Sample
from fedldp.schema.attributes import Number
from fedldp_fleet.flower.messages import NAME, unpacked
from fedldp_fleet.flower.mod import LDPMod, tally

# At epsilon 16, the sign of an extreme value is sent wrongly once in nine million reports. With
# another seed, these tests together would fail by chance less than once in a thousand runs.
SPEED = Schema.of(speed={"low": 0, "high": 50, "missing": 0})
FAST, SLOW = 1, 0
SIGNS = Plan(SPEED, 16.0, Sample(mechanism="duchi"))
VECTOR = Plan(
    Schema((Number("x", -1, 1, missing=-1.0, size=3),)), 16.0, Sample(k=1, mechanism="duchi")
)
DIFFERENT = Plan(Schema.vector(64, 1.0), 0.1, strategy="cube")  # hardly any two reports are equal
SIZE = 17  # of a report in bytes: 16 of its head, and fewer than 9 bits


def content(**records):
    return RecordDict(records)


def asked(config=None, kind="train", node=7, run=1, number=1, parts=None):
    """Return a message as Flower delivers it."""
    parts = content(config=ConfigRecord(config or {"round": 1})) if parts is None else parts
    ids = (run, f"message {number}", 1, node, "", f"group {number}")
    return Message(content=parts, metadata=Metadata(*ids, time.time() - number, 600.0, kind))


DRIVES = content(metrics=MetricRecord({"speed": 50.0}))


class Node:
    """A node with an app that returns what it is told to, or does it."""

    def __init__(self, folder, reply=None, plan=SIGNS, cap=1000, **options):
        self.ledger, self.cap = made(folder / "ledger.db"), cap
        self.mod = LDPMod(plan, ledger=self.ledger, cap=cap, **options)
        self.reply, self.calls = DRIVES if reply is None else reply, 0
        self.app = ClientApp(mods=[self.mod])
        for register in (self.app.train, self.app.evaluate, self.app.query):
            register()(self.handle)

    def handle(self, message, context):
        self.calls += 1
        reply = self.reply(message, context) if callable(self.reply) else self.reply
        return Message(reply, reply_to=message) if isinstance(reply, RecordDict) else reply

    def ask(self, message=None, **node):
        return self.app(message or asked(), Context(1, 7, node, RecordDict(), {}))

    def untouched(self):
        """Return whether nobody has spent anything."""
        with Ledger(self.ledger, self.cap) as ledger:
            return not ledger.history()

    def spent(self, key="vehicle"):
        with Ledger(self.ledger, self.cap) as ledger:
            return ledger.spent(key)


def code(reply, plan=SIGNS):
    """Return what a report says: the number of its only count, or None for a refusal."""
    found = tally(plan, [reply])
    assert found.reports in (0, 1)
    return int(np.flatnonzero(found.counts[0])[0]) if found.reports else None


def check_shape(reply):
    """Check that a reply is one record with one value, of the length that all replies have."""
    assert reply.has_content()
    assert not reply.has_error()
    assert list(reply.content) == [NAME]
    assert type(reply.content[NAME]) is ConfigRecord
    assert list(reply.content[NAME]) == [NAME]
    assert len(unpacked(reply.content)) == SIZE


def refused(reply):
    check_shape(reply)
    return unpacked(reply.content) == bytes(SIZE)


def full_disk(folder):
    """Answer questions, the second with no room left on the disk."""

    def fill(message, _):
        room = 1024 if message.content["config"]["fill"] else resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        return DRIVES

    node, found = Node(folder, fill), []
    for number in (1, 2, 3):
        found.append(refused(node.ask(asked({"round": number, "fill": number == 2}))))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    print(found, node.calls, node.spent())


if __name__ == "__main__":
    full_disk(Path(sys.argv[1]))
