import random

import pytest

from fedldp import vehicle
from fedldp_fleet.flower.messages import node_log


@pytest.fixture(autouse=True)
def rng(monkeypatch):
    """Fix what vehicles draw. At epsilon 4, a sign is wrong once in 56 reports."""
    monkeypatch.setattr(vehicle.SYSTEM, "getrandbits", random.Random(7).getrandbits)


@pytest.fixture(autouse=True)
def seen_by_caplog(monkeypatch):
    """Let pytest see what a node logs, which Flower's handlers do not."""
    monkeypatch.setattr(node_log, "propagate", True)
