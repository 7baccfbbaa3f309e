"""What an agent needs of the library, on the standard library alone.

The files of an agent import it as `.common` or `..common`. They are files of fedldp-vehicle, too,
which has a file of this name that imports the same from its own modules.
"""

from fedldp import signing, vehicle
from fedldp._internal import documents
from fedldp.budget.ledger import asked_and_refused
from fedldp.budget.periods import Asked, asked
from fedldp.errors import DomainError, WireError
from fedldp.signing import PrivateKey, PublicKey, Trusted
from fedldp.storage.chain import MOST_REFUSED, Link, follow
from fedldp.vehicle import canonical

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
