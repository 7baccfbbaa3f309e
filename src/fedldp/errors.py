"""Every exception that fedldp raises on purpose.

FedLDPError
├── DomainError   (also ValueError)   a value outside what is allowed
├── PrivacyError  (also ValueError)   a table that would leak more than it claims
├── BudgetError   (also ValueError)   more than a vehicle may still spend
├── WireError     (also ValueError)   bytes or text that are not what they should be
└── MissingExtra  (also ImportError)  an optional package is not installed
"""

__all__ = [
    "BudgetError",
    "DomainError",
    "FedLDPError",
    "MissingExtra",
    "PrivacyError",
    "WireError",
]


class FedLDPError(Exception):
    """The common ancestor: catch it to catch everything fedldp refuses."""


class DomainError(FedLDPError, ValueError):
    """A value outside what is allowed: says what was given and what to do."""


class PrivacyError(FedLDPError, ValueError):
    """A table that would leak more than it claims: says which column, and by what ratio."""


class BudgetError(FedLDPError, ValueError):
    """More than a vehicle may still spend: says what it has spent, its cap and what was asked."""


class WireError(FedLDPError, ValueError):
    """Bytes or text from outside that are not what they should be: nothing of it is used."""


class MissingExtra(FedLDPError, ImportError):
    """An optional package is missing: says which command installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed. Install it with: pip install 'fedldp[{extra}]'"
        )
