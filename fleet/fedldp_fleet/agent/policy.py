"""What the owner allows, beyond the cap: entries of agent.toml.

A question that breaks a rule is refused before anything is computed, and the owner is told why. The
rules look at the question, the ledger and the clock, never at the data.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any, final

from ..common import DomainError, Period, exact

ENTRIES: dict[str, type] = {
    "most_epsilon": str,  # of a question
    "most_epsilon_per_period": str,  # of a vehicle
    "period": str,  # "7 days" or "12 hours"
    "jobs": list,  # names, or patterns such as "spring-*"
    "attributes": list,  # names
    "fewest_vehicles": int,  # behind an answer
}

_PERIOD = re.compile(r"([1-9][0-9]{0,4}) (hour|day)s?")
_SECONDS = {"hour": 3600, "day": 86_400}


@final
@dataclass(frozen=True)
class OwnerRules:
    """The rules of an owner. What is left out is allowed.

    >>> policy = OwnerRules.of({"jobs": ["spring-*"], "most_epsilon": "1.0"})
    >>> policy.check("spring-2027", Fraction(1), ["speed"])
    >>> policy.check("summer", Fraction(1), ["speed"])
    Traceback (most recent call last):
    fedldp.errors.DomainError: the owner allows jobs called 'spring-*'; got 'summer'.
    """

    most_epsilon: Fraction | None = None
    period: Period | None = None
    jobs: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    fewest_vehicles: int = 1

    @classmethod
    def of(cls, entries: Mapping[str, Any]) -> "OwnerRules":
        """Read the entries of agent.toml, or raise `DomainError`."""
        given = {name: value for name, value in entries.items() if name in ENTRIES}
        fewest = given.get("fewest_vehicles", cls.fewest_vehicles)
        if fewest < 1:
            raise DomainError(f"fewest_vehicles must be at least 1; got {fewest}.")
        return cls(
            _epsilon(given, "most_epsilon"),
            _period(given),
            _names(given, "jobs"),
            _names(given, "attributes"),
            fewest,
        )

    def check_schema(self, held: Sequence[str]) -> None:
        """Raise `DomainError` if the allowed attributes are not all among those that are held."""
        if unknown := sorted(set(self.attributes) - set(held)):
            raise DomainError(
                f"attributes must be among those of the schema, {', '.join(held)}; "
                f"got {', '.join(unknown)}."
            )

    def check(self, job: str, cost: Fraction, attributes: Sequence[str]) -> None:
        """Raise `DomainError` if the owner does not allow a question, and say which rule it breaks.

        `cost` is what an answer costs; `attributes` names what vehicles need in order to answer.
        """
        if self.jobs and not any(fnmatchcase(job, pattern) for pattern in self.jobs):
            raise DomainError(f"the owner allows jobs called {_listed(self.jobs)}; got {job!r}.")
        if self.most_epsilon is not None and cost > self.most_epsilon:
            raise DomainError(
                f"the owner allows an epsilon of {float(self.most_epsilon):.12g} for a question; "
                f"got {float(cost):.12g}."
            )
        others = [name for name in attributes if name not in self.attributes]
        if self.attributes and others:
            raise DomainError(
                f"the owner allows the attributes {_listed(self.attributes)}; the question also "
                f"needs {_listed(others)}."
            )

    def check_vehicles(self, count: int) -> None:
        """Raise `DomainError` if too few vehicles would answer: then none does."""
        if 0 < count < self.fewest_vehicles:
            raise DomainError(
                f"the owner wants at least {self.fewest_vehicles} vehicles to answer together; "
                f"only {count} would."
            )


def _epsilon(entries: Mapping[str, Any], name: str) -> Fraction | None:
    if name not in entries:
        return None
    try:
        return exact(entries[name])
    except ValueError:
        raise DomainError(
            f'{name} must be a positive number, such as "1.0"; got {entries[name]!r:.80}.'
        ) from None


def _period(entries: Mapping[str, Any]) -> Period | None:
    most, text = _epsilon(entries, "most_epsilon_per_period"), entries.get("period")
    if (most is None) != (text is None):
        raise DomainError(
            "expected both `most_epsilon_per_period` and `period`, or neither; got "
            f"{'`period`' if most is None else '`most_epsilon_per_period`'} alone."
        )
    if most is None or text is None:
        return None
    if (parts := _PERIOD.fullmatch(text)) is None:
        raise DomainError(f'period must be like "7 days" or "12 hours"; got {text!r:.80}.')
    return Period(most, int(parts[1]) * _SECONDS[parts[2]])


def _names(entries: Mapping[str, Any], name: str) -> tuple[str, ...]:
    names = entries.get(name)
    if names is None:
        return ()
    if not names or not all(isinstance(item, str) and item for item in names):
        raise DomainError(
            f"{name} must be a list of names; got {names!r:.200}. Leave it out to allow all."
        )
    return tuple(names)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
