r"""A vehicle on the standard library: check a plan, answer it through a ledger, send a few bytes.

    from fedldp_vehicle import Ledger, Plan, Vehicle

    ledger = Ledger("ledger.db", cap="4")  # made once, by `fedldp-vehicle ledger init ledger.db`
    plan = Plan(open("plan.json").read(), cap="4")
    answer = Vehicle(ledger, "car-7").answer(plan, {"speed": 31}, job="spring")
    send(answer.report)

`Plan` and `Calendar` are those of `vehicle.py`, one file that can be copied alone. `Ledger` and
`Vehicle` are the same as fedldp's, and read and write the same files.
"""

from .budget.ledger import Ledger, Period
from .budget.vehicle import PaidAnswer, Vehicle
from .errors import BudgetError, DomainError, FedLDPError, PrivacyError, WireError
from .vehicle import Calendar, Plan, read_row

__all__ = [
    "BudgetError",
    "Calendar",
    "DomainError",
    "FedLDPError",
    "Ledger",
    "PaidAnswer",
    "Period",
    "Plan",
    "PrivacyError",
    "Vehicle",
    "WireError",
    "read_row",
]
