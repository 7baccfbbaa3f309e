"""What vehicles may still spend in the period that their owner's policy limits.

A period is a window that ends now: what a vehicle has spent returns to it when the window has moved
on. All of this follows from the ledger, the policy and the clock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

from fedldp.budget import ledger
from fedldp.budget.ledger import Period, Recent
from fedldp.fleet.status import clock, iso
from fedldp.fleet.vault.process import VaultConfig


@final
@dataclass(frozen=True)
class PeriodLeft:
    """What is left of a period's budget.

    >>> PeriodLeft(Period(Fraction(2), 3600), "1 hour", {Fraction(2): 40}).said
    'each vehicle spends at most 2.0 in any 1 hour'
    """

    period: Period
    length: str  # of the period, as the owner wrote it
    left: dict[Fraction, int]  # how many vehicles may spend how much now, the most first
    returns: tuple[int, int] | None = None  # when the first of what was spent returns, and the last

    @property
    def said(self) -> str:
        """What the policy allows."""
        return f"each vehicle spends at most {float(self.period.most)} in any {self.length}"

    @property
    def ending(self) -> str:
        """When vehicles get back what they have spent."""
        if self.returns is None:
            return "nothing was spent in it"
        first, last = map(clock, self.returns)
        if first == last:
            return f"what was spent returns at {first}"
        return f"what was spent returns from {first} on, the last of it at {last}"

    @property
    def warning(self) -> str:
        """A sentence if no vehicle may spend anything now; otherwise an empty text."""
        if not self.left or any(self.left):
            return ""
        return f"no vehicle has anything left in this period: {self.ending}."

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        first, last = self.returns or (None, None)
        return {
            "most": str(float(self.period.most)),
            "seconds": self.period.seconds,
            "budget": [
                {"left": str(float(each)), "vehicles": count} for each, count in self.left.items()
            ],
            "returns_from": iso(first),
            "returned_by": iso(last),
        }


def left(vault: VaultConfig, others: Callable[[Recent], int]) -> PeriodLeft | None:
    """Return what vehicles may still spend in the period of a vault; None if it limits none.

    `others` returns how many vehicles have spent nothing in it.
    """
    period = vault.policy.period
    if period is None:
        return None
    found = ledger.recent(vault.ledger_path, period)
    return PeriodLeft(
        period, vault.entries["period"], found.left(period, others(found)), found.returns
    )
