"""What an agent needs of the library, on the standard library alone.

fedldp-fleet has a file of this name that imports the same from fedldp.
"""

from .. import signing, vehicle
from .._internal import documents, toml
from ..budget.ledger import Ledger, Period, asked_and_refused
from ..budget.overview import overview
from ..budget.periods import PlanOrPeriod, read_plan_or_period
from ..budget.vehicle import (
    ONLY_VEHICLE,
    PaidAnswer,
    PlanQuestion,
    Vehicle,
    for_vehicle,
)
from ..errors import BudgetError, DomainError, FedLDPError, PrivacyError, WireError
from ..signing import PrivateKey, PublicKey, PublicKeys, TrustedKeys
from ..storage import files, locks
from ..storage.chain import MOST_REFUSED, Link, follow
from ..storage.database import Database, Kind
from ..vehicle import Calendar, canonical, exact, warn_owner

__all__ = [
    "MOST_REFUSED",
    "ONLY_VEHICLE",
    "BudgetError",
    "Calendar",
    "Database",
    "DomainError",
    "FedLDPError",
    "Kind",
    "Ledger",
    "Link",
    "PaidAnswer",
    "Period",
    "PlanOrPeriod",
    "PlanQuestion",
    "PrivacyError",
    "PrivateKey",
    "PublicKey",
    "PublicKeys",
    "TrustedKeys",
    "Vehicle",
    "WireError",
    "asked_and_refused",
    "canonical",
    "documents",
    "exact",
    "files",
    "follow",
    "for_vehicle",
    "locks",
    "overview",
    "read_plan_or_period",
    "signing",
    "toml",
    "vehicle",
    "warn_owner",
]
