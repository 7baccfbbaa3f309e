"""Mechanisms found by linear programming: the optimum, its certificate, two that build on it."""

from fedldp.mechanisms.optimal.certificate import Certificate
from fedldp.mechanisms.optimal.dominant import Dominant, NearZero
from fedldp.mechanisms.optimal.optimal import Optimal, best_channel
from fedldp.mechanisms.optimal.solved import Solved

__all__ = ["Certificate", "Dominant", "NearZero", "Optimal", "Solved", "best_channel"]
