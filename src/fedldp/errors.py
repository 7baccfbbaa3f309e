"""Every exception that fedldp raises on purpose, and its warnings.

FedLDPError
├── DomainError   (also ValueError)   a value outside what is allowed
│   └── UnknownName (also KeyError)   a name that does not exist
├── PrivacyError  (also ValueError)   a table that would leak more than it claims
├── BudgetError   (also ValueError)   more than a vehicle may still spend, or answer in a job
├── WireError     (also ValueError)   bytes or text that are not what they should be
└── MissingExtra  (also ImportError)  an optional package is not installed

UserWarning
├── AccuracyWarning                   a model is probably no better than a guess, or biased
├── DataWarning                       values of the data were clipped or replaced
└── ImplausibleWarning                reports that honest vehicles hardly ever send
"""

import re

__all__ = [
    "AccuracyWarning",
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
    """The base class of all errors that fedldp raises deliberately.

    Examples
    --------
    >>> import fedldp
    >>> try:
    ...     fedldp.mechanism("duchi", epsilon=0)
    ... except fedldp.errors.FedLDPError as error:
    ...     print(type(error).__name__)
    DomainError
    """


class DomainError(FedLDPError, ValueError):
    """A value is outside what is allowed. The message says what was given and what to do.

    Examples
    --------
    >>> import fedldp
    >>> fedldp.mechanism("duchi", epsilon=0)
    Traceback (most recent call last):
    fedldp.errors.DomainError: epsilon must be a number from 0.001 to 20 for study; got 0...
    """


class UnknownName(DomainError, KeyError):
    """A name is unknown, for example that of an attribute or a mechanism.

    The message lists the known names. It is also a `KeyError`, which `mapping[name]` raises.

    Examples
    --------
    >>> import fedldp
    >>> fedldp.mechanism("hm_tp", epsilon=1.0)
    Traceback (most recent call last):
    fedldp.errors.UnknownName: there is no mechanism 'hm_tp' (did you mean 'hm-tp'?); ...
    """

    def __str__(self) -> str:
        return Exception.__str__(self)  # that of KeyError would put quotes around the sentence


class PrivacyError(FedLDPError, ValueError):
    """A table would leak more than it claims. The message names the column and the ratio.

    Examples
    --------
    >>> import fedldp
    >>> fedldp.Channel(0.5, [[3, 1], [1, 3]], letters=[-1, 1], values=[-2, 2])
    Traceback (most recent call last):
    fedldp.errors.PrivacyError: not an epsilon = 0.5 channel: column 0 has a count 3 times the...
    """


class BudgetError(FedLDPError, ValueError):
    """A vehicle cannot afford a report, or has given all answers it may give in a job.

    The message says how much the vehicle has spent and what is allowed.

    Examples
    --------
    >>> import tempfile, fedldp
    >>> with fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
    ...     ledger.release("car 7", 2.0, "question", lambda: b"report")
    Traceback (most recent call last):
    fedldp.errors.BudgetError: 'car 7' has spent 0 of its cap of 1: 2 more is too much...
    """


class WireError(FedLDPError, ValueError):
    """Bytes or text from outside are invalid. Nothing of them is used.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> plan.parse(b"damaged")
    Traceback (most recent call last):
    fedldp.errors.WireError: a report has a header of 16 bytes; got 7.
    """


class MissingExtra(FedLDPError, ImportError):
    """An optional package is not installed. The message contains the command that installs it.

    The command names the packages of the extra. It works however fedldp was installed: from a
    clone, a wheel or a package index.

    Parameters
    ----------
    package
        The package that could not be imported.
    extra
        The extra that contains it. None if every installation should have the package, and this
        one is for a vehicle that left it out.
    distribution
        The distribution that defines the extra.

    Examples
    --------
    >>> print(MissingExtra("matplotlib", "plots"))
    matplotlib is not installed. Install the extra 'plots' with: pip install 'matplotlib>=3.9'
    >>> print(MissingExtra("scipy"))
    scipy is not installed. Install it with: pip install 'scipy>=1.13'
    """

    def __init__(
        self, package: str, extra: str | None = None, distribution: str = "fedldp"
    ) -> None:
        needed = _requirements(extra, distribution)
        if extra is None:
            needed = [line for line in needed if re.match(rf"{package}\b", line)]
        packages = " ".join(f"'{line}'" for line in needed)
        what = "it" if extra is None else f"the extra {extra!r}"
        super().__init__(f"{package} is not installed. Install {what} with: pip install {packages}")


class AccuracyWarning(UserWarning):
    """A model is probably no better than a guess, or biased. The message says why, and what to do.

    Examples
    --------
    >>> import warnings
    >>> from fedldp.learn.estimators import LDPLogisticRegression
    >>> X = [[number / 50] for number in range(50)]
    >>> model = LDPLogisticRegression(epsilon=1.0, bounds=(0, 1), random_state=0)
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     _ = model.fit(X, [number > 25 for number in range(50)])
    >>> print(caught[0].message)
    50 vehicles with epsilon = 1 are too few for 2 weights: about 1,100 are needed. Expect ...
    """


class DataWarning(UserWarning):
    """Values of the data were clipped or replaced. The message says which, how many, and by what.

    Examples
    --------
    >>> import warnings, fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     _ = plan.report([{"speed": 80}], fedldp.source(1))
    >>> caught[0].category.__name__
    'DataWarning'
    """


class ImplausibleWarning(UserWarning):
    r"""Honest vehicles hardly ever send such reports. The message says what was found.

    Examples
    --------
    >>> import warnings, fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> report = plan.report([{"speed": 50}] * 1000, fedldp.source(1))
    >>> always_high = fedldp.Report(report.plan, 1, 1000, b"\xff" * 125)
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     _ = plan.parse(always_high).estimate()
    >>> caught[0].category.__name__
    'ImplausibleWarning'
    """


def _requirements(extra: str | None, distribution: str) -> list[str]:
    """Return the packages that an extra, with the extras it includes, or no extra needs."""
    from importlib import metadata  # slow to import, and rarely needed

    packages: list[str] = []
    for line in metadata.requires(distribution) or []:
        package, _, marker = (part.strip() for part in line.partition(";"))
        named = re.search(r"extra == ['\"](.*?)['\"]", marker)
        if (named[1] if named else None) != extra:
            continue
        included = re.fullmatch(rf"{distribution}\[(.*)\]", package)
        extras = included[1].split(",") if included else []
        inner = [line for name in extras for line in _requirements(name, distribution)]
        packages += inner or [package]
    return list(dict.fromkeys(packages))
