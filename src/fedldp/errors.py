"""Every exception that fedldp raises on purpose, and its warnings.

FedLDPError
├── DomainError   (also ValueError)   a value outside what is allowed
│   └── UnknownName (also KeyError)   a name that does not exist
├── PrivacyError  (also ValueError)   a table that would leak more than it claims
├── BudgetError   (also ValueError)   more than a vehicle may still spend, or answer in a job
├── WireError     (also ValueError)   bytes or text that are not what they should be
└── MissingExtra  (also ImportError)  an optional package is not installed

UserWarning
├── DataWarning                       values of the data were clipped or replaced
└── ImplausibleWarning                reports that honest vehicles hardly ever send
"""

import re

__all__ = [
    "BudgetError",
    "DataWarning",
    "DomainError",
    "FedLDPError",
    "ImplausibleWarning",
    "MissingExtra",
    "PrivacyError",
    "UnknownName",
    "WireError",
]


class FedLDPError(Exception):
    """The common ancestor: catch it to catch everything fedldp refuses."""


class DomainError(FedLDPError, ValueError):
    """A value outside what is allowed: says what was given and what to do."""


class UnknownName(DomainError, KeyError):
    """A name that does not exist, of an attribute or a mechanism for example.

    It says which names there are. As a `KeyError` it is what `mapping[name]` raises anywhere else.
    """

    def __str__(self) -> str:
        return Exception.__str__(self)  # that of KeyError would put quotes around the sentence


class PrivacyError(FedLDPError, ValueError):
    """A table that would leak more than it claims: says which column, and by what ratio."""


class BudgetError(FedLDPError, ValueError):
    """More than a vehicle may still spend, or answer in one job: says how much it has, and may."""


class WireError(FedLDPError, ValueError):
    """Bytes or text from outside that are not what they should be: nothing of it is used."""


class MissingExtra(FedLDPError, ImportError):
    """An optional package is missing: says which command installs it.

    The command names the packages of the extra. It works wherever fedldp was installed from: a
    clone, a wheel or a package index.
    """

    def __init__(self, package: str, extra: str, distribution: str = "fedldp") -> None:
        packages = " ".join(f"'{each}'" for each in _requirements(extra, distribution))
        super().__init__(
            f"{package} is not installed. Install the extra {extra!r} with: pip install {packages}"
        )


class DataWarning(UserWarning):
    """Values of the data were clipped or replaced: says which, how many, and by what."""


class ImplausibleWarning(UserWarning):
    """Reports that honest vehicles hardly ever send: says what was found and how unlikely it is."""


def _requirements(extra: str, distribution: str) -> list[str]:
    """Return the packages that an extra needs, those of the extras it includes among them."""
    from importlib import metadata  # slow to import, and rarely needed

    found: list[str] = []
    for line in metadata.requires(distribution) or []:
        package, _, marker = (part.strip() for part in line.partition(";"))
        if not re.search(rf"extra == ['\"]{extra}['\"]", marker):
            continue
        included = re.fullmatch(rf"{distribution}\[(.*)\]", package)
        names = included[1].split(",") if included else []
        found += [each for name in names for each in _requirements(name, distribution)] or [package]
    return list(dict.fromkeys(found))
