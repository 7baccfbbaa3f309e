"""The parts of a plan: which coordinates a vehicle answers, and through which table.

A coordinate is one number, or one category. In each part `encode` is the vehicle's half and
`count` the server's; both know the fields of a record, and nothing else does.
"""

from fedldp.parts.base import Batch, Matrix
from fedldp.parts.sampled import Coder, Sampled
from fedldp.parts.signs import Signs

__all__ = ["Batch", "Coder", "Matrix", "Part", "Sampled", "Signs"]

Part = Sampled | Signs
