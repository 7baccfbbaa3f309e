"""What the owner of a vault allows, beyond the cap: entries of vault.toml.

A question that breaks a rule is refused before anything is computed, and the vault's own log says
why. The rules look at the question, the ledger and the clock, never at the data.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any, final

from fedldp._internal import toml
from fedldp.budget.ledger import Period
from fedldp.errors import DomainError
from fedldp.schema.attributes import Attribute
from fedldp.schema.schema import Schema
from fedldp.vehicle import exact

ENTRIES: dict[str, toml.Types] = {
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
class Policy:
    """The rules of an owner. What is left out is allowed.

    >>> policy = Policy.of({"jobs": ["spring-*"], "most_epsilon": "1.0"})
    >>> policy.check("spring-2027", Fraction(1), Schema.of(speed=(0, 50)).attributes)
    >>> policy.check("summer", Fraction(1), Schema.of(speed=(0, 50)).attributes)
    Traceback (most recent call last):
    fedldp.errors.DomainError: the owner allows jobs called 'spring-*'; got 'summer'.
    """

    most_epsilon: Fraction | None = None
    period: Period | None = None
    jobs: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    fewest_vehicles: int = 1

    @classmethod
    def of(cls, entries: Mapping[str, Any]) -> "Policy":
        """Read the entries of vault.toml, or raise `DomainError`."""
        found = {name: value for name, value in entries.items() if name in ENTRIES}
        fewest = found.get("fewest_vehicles", cls.fewest_vehicles)
        if fewest < 1:
            raise DomainError(f"fewest_vehicles must be at least 1; got {fewest}.")
        return cls(
            _epsilon(found, "most_epsilon"),
            _period(found),
            _names(found, "jobs"),
            _names(found, "attributes"),
            fewest,
        )

    def check_schema(self, schema: Schema) -> None:
        """Raise `DomainError` if the allowed attributes are not all in the vault's schema."""
        held = [each.name for each in schema.attributes]
        if unknown := sorted(set(self.attributes) - set(held)):
            raise DomainError(
                f"attributes must be among those of the schema, {', '.join(held)}; "
                f"got {', '.join(unknown)}."
            )

    def check(self, job: str, cost: Fraction, attributes: Sequence[Attribute]) -> None:
        """Raise `DomainError` if the owner does not allow a question.

        Parameters
        ----------
        job : str
            The name of its job.
        cost : Fraction
            What an answer costs.
        attributes : sequence of Attribute
            What vehicles need in order to answer.

        Raises
        ------
        DomainError
            If a rule is broken. The message says which one.
        """
        if self.jobs and not any(fnmatchcase(job, each) for each in self.jobs):
            raise DomainError(f"the owner allows jobs called {_listed(self.jobs)}; got {job!r}.")
        if self.most_epsilon is not None and cost > self.most_epsilon:
            raise DomainError(
                f"the owner allows an epsilon of {float(self.most_epsilon):.12g} for a question; "
                f"got {float(cost):.12g}."
            )
        names = [each.name for each in attributes]
        if self.attributes and (others := [each for each in names if each not in self.attributes]):
            raise DomainError(
                f"the owner allows the attributes {_listed(self.attributes)}; the question also "
                f"needs {_listed(others)}."
            )

    def check_vehicles(self, count: int) -> None:
        """Raise `DomainError` if too few vehicles would answer: then none does."""
        if 0 < count < self.fewest_vehicles:
            raise DomainError(
                f"the owner wants at least {self.fewest_vehicles} vehicles behind an answer; "
                f"{count} of those that were asked for may answer."
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
    if (found := _PERIOD.fullmatch(text)) is None:
        raise DomainError(f'period must be like "7 days" or "12 hours"; got {text!r:.80}.')
    return Period(most, int(found[1]) * _SECONDS[found[2]])


def _names(entries: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = entries.get(name)
    if found is None:
        return ()
    if not found or not all(isinstance(each, str) and each for each in found):
        raise DomainError(
            f"{name} must be a list of names; got {found!r:.200}. Leave it out to allow all."
        )
    return tuple(found)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
