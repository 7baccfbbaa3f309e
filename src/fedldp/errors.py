"""Every exception that fedldp raises on purpose.

FedLDPError
├── DomainError   (also ValueError)   a value outside what is allowed
└── MissingExtra  (also ImportError)  an optional package is not installed
"""


class FedLDPError(Exception):
    """The common ancestor: catch it to catch everything fedldp refuses."""


class DomainError(FedLDPError, ValueError):
    """A value outside what is allowed: says what was given and what to do."""


class MissingExtra(FedLDPError, ImportError):
    """An optional package is missing: says which command installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed. Install it with: pip install 'fedldp[{extra}]'"
        )
