"""What an agent needs of the library, on the standard library alone.

The files of an agent import it as `.common` or `..common`. They are files of fedldp-vehicle, too,
which has a file of this name that imports the same from its own modules.
"""

from fedldp import signing, vehicle
from fedldp._internal import documents, toml
from fedldp.budget.ledger import Ledger, Period, asked_and_refused
from fedldp.budget.overview import overview
from fedldp.budget.periods import PlanOrPeriod, read_plan_or_period
from fedldp.budget.vehicle import (
    ONLY_VEHICLE,
    PaidAnswer,
    PlanQuestion,
    Vehicle,
    for_vehicle,
)
from fedldp.errors import BudgetError, DomainError, FedLDPError, PrivacyError, WireError
from fedldp.signing import PrivateKey, PublicKey, PublicKeys, TrustedKeys
from fedldp.storage import files, locks
from fedldp.storage.chain import MOST_REFUSED, Link, follow
from fedldp.storage.database import Database, Kind
from fedldp.vehicle import Calendar, canonical, exact, warn_owner

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
