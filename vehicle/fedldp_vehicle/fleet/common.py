"""What an agent needs of the library, on the standard library alone.

fedldp-fleet has a file of this name that imports the same from fedldp.
"""

from .. import signing, vehicle
from .._internal import documents
from ..budget.ledger import asked_and_refused
from ..budget.periods import Asked, asked
from ..errors import DomainError, WireError
from ..signing import PrivateKey, PublicKey, Trusted
from ..storage.chain import MOST_REFUSED, Link, follow
from ..vehicle import canonical

__all__ = [
    "MOST_REFUSED",
    "Asked",
    "DomainError",
    "Link",
    "PrivateKey",
    "PublicKey",
    "Trusted",
    "WireError",
    "asked",
    "asked_and_refused",
    "canonical",
    "documents",
    "follow",
    "signing",
    "vehicle",
]
