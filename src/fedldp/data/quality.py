"""Data quality: what happened to the values of some data when they were read.

A vehicle always sends a report, whatever its data are: a value outside the bounds is clipped, and a
missing, unreadable or unknown value is replaced by a public one. Its owner must see that it
happened. This module holds the counts and says them; nothing of it is ever sent.
"""

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import final

from fedldp._internal.text import did_you_mean, unknown
from fedldp.errors import DataWarning, DomainError

__all__ = ["AttributeQuality", "DataQuality"]

_SHOWN = 5  # attributes, keys or columns that a summary names


@final
@dataclass(frozen=True)
class AttributeQuality:
    """How many values of one attribute are clipped or replaced, and why.

    `values` counts single numbers or categories: a vector of three numbers counts three. A value
    is `clipped` if it is beyond a bound by more than a millionth of the range (each number of a
    vector that is longer than the bound on its length counts), `missing` if there
    is none (None, NaN, null, an empty text, an absent key), `unreadable` if it is not a number
    where one is expected, and `unknown` if it is not one of the categories.
    """

    name: str
    values: int = 0
    clipped: int = 0
    missing: int = 0
    unreadable: int = 0
    unknown: int = 0
    bounds: str = ""  # to which values are clipped
    replacement: str = ""  # what is used for a missing, unreadable or unknown value
    example: str = ""  # the first value that is replaced, with its row

    @property
    def replaced(self) -> int:
        """How many values are replaced: those that are missing, unreadable or unknown."""
        return self.missing + self.unreadable + self.unknown

    @property
    def clean(self) -> bool:
        """Whether every value is used as it is."""
        return not (self.clipped or self.replaced)

    def __add__(self, other: "AttributeQuality") -> "AttributeQuality":
        if not isinstance(other, AttributeQuality) or other.name != self.name:
            return NotImplemented
        return replace(
            self,
            values=self.values + other.values,
            clipped=self.clipped + other.clipped,
            missing=self.missing + other.missing,
            unreadable=self.unreadable + other.unreadable,
            unknown=self.unknown + other.unknown,
            example=self.example or other.example,
        )

    def __str__(self) -> str:
        return self.described()

    def described(self, *, example: bool = True) -> str:
        """Return the counts in one line, with or without the first value that is replaced."""
        counts = [f"{self._share(self.clipped)} clipped to {self.bounds}"] if self.clipped else []
        for word in ("missing", "unreadable", "unknown"):
            if count := getattr(self, word):
                counts.append(f"{self._share(count)} {word}, replaced by {self.replacement}")
        if example and self.example:
            counts.append(self.example)
        return f"{self.name}: {'; '.join(counts) or 'all values are used as they are'}"

    def _share(self, count: int) -> str:
        return f"{count:,} of {self.values:,} ({_percent(count / self.values)})"


@final
@dataclass(frozen=True)
class DataQuality:
    """What happened to the values of some rows, counted for each attribute; qualities add.

    Made by `Schema.check`, which reads the data and spends nothing. It is for the owner of the
    data and never leaves a vehicle.

    >>> import fedldp
    >>> schema = fedldp.Schema.of(age=(0, 100), city=["Oslo", "Paris"])
    >>> quality = schema.check([{"age": 131, "city": "Pari"}, {"agee": 54, "city": "Oslo"}])
    >>> quality.clean, quality["age"].clipped, quality["age"].missing, quality["city"].unknown
    (False, 1, 1, 1)
    >>> print(quality.summary(examples=False))
    2 rows: 3 values are clipped or replaced.
      age: 1 of 2 (50%) clipped to [0, 100]; 1 of 2 (50%) missing, replaced by 50
      city: 1 of 2 (50%) unknown, replaced by 'Oslo'
      Unknown key: 'agee' in 1 of 2 rows (did you mean 'age'?).
    >>> quality["city"].example
    "row 0: 'Pari' is not one of the 2 categories (did you mean 'Paris'?)"
    """

    rows: int
    attributes: tuple[AttributeQuality, ...]
    unknown_keys: Mapping[str, int] = field(default_factory=dict, hash=False)  # rows that have it
    unused_columns: tuple[str, ...] = ()  # of a table, which the schema does not name

    @property
    def clean(self) -> bool:
        """Whether every value is used as it is, and no row has an unknown key.

        Unused columns do not matter: a table must have every column of the schema, so none of
        them can be a misspelt one.
        """
        return all(each.clean for each in self.attributes) and not self.unknown_keys

    @property
    def changed(self) -> int:
        """How many values are clipped or replaced."""
        return sum(each.clipped + each.replaced for each in self.attributes)

    def __getitem__(self, name: str) -> AttributeQuality:
        for each in self.attributes:
            if each.name == name:
                return each
        raise unknown("attribute", name, [each.name for each in self.attributes])

    def __add__(self, other: "DataQuality") -> "DataQuality":
        if not isinstance(other, DataQuality):
            return NotImplemented
        keys = Counter(self.unknown_keys)
        keys.update(other.unknown_keys)
        return DataQuality(
            self.rows + other.rows,
            tuple(a + b for a, b in zip(self.attributes, other.attributes, strict=True)),
            dict(keys),
            tuple(dict.fromkeys((*self.unused_columns, *other.unused_columns))),
        )

    @property
    def clipping(self) -> str:
        """One line on what is clipped, for data whose bounds are meant to do so; or nothing."""
        found = [each for each in self.attributes if each.clipped]
        found.sort(key=lambda each: -each.clipped)
        shares = [f"{_percent(each.clipped / each.values)} of {each.name}" for each in found[:3]]
        more = f" and some of {len(found) - 3:,} more attributes" if len(found) > 3 else ""
        return f"the public bounds clip {', '.join(shares)}{more}." if found else ""

    def using(self, *columns: str | None) -> "DataQuality":
        """Return the same quality, where these columns and keys are used for something else."""
        unused = tuple(name for name in self.unused_columns if name not in columns)
        keys = {key: count for key, count in self.unknown_keys.items() if key not in columns}
        return replace(self, unused_columns=unused, unknown_keys=keys)

    def __str__(self) -> str:
        return self.summary()

    def summary(self, *, examples: bool = True) -> str:
        """Return the counts in a few lines, with or without examples of the values."""
        rows = f"{self.rows:,} row{'' if self.rows == 1 else 's'}"
        one = self.changed == 1
        head = (
            f"{rows}: {self.changed:,} value{' is' if one else 's are'} clipped or replaced."
            if self.changed
            else f"{rows}: all values are used as they are."
        )
        return "\n  ".join([head, *self._lines(examples)])

    def _lines(self, examples: bool) -> list[str]:
        bad = [each for each in self.attributes if not each.clean]
        bad.sort(key=lambda each: -(each.clipped + each.replaced))  # the worst first
        lines = [each.described(example=examples) for each in bad[:_SHOWN]]
        if len(bad) > _SHOWN:
            lines.append(f"and {len(bad) - _SHOWN:,} more attributes.")
        if self.unknown_keys:
            known = [each.name for each in self.attributes]
            keys = [
                f"{key!r:.60} in {count:,} of {self.rows:,} rows{did_you_mean(key, known)}"
                for key, count in list(self.unknown_keys.items())[:_SHOWN]
            ]
            lines.append(f"Unknown key{_listed(keys, len(self.unknown_keys))}")
        if self.unused_columns:
            names = [f"{name!r:.60}" for name in self.unused_columns[:_SHOWN]]
            lines.append(f"Unused column{_listed(names, len(self.unused_columns))}")
        return lines

    def refuse(self, *, clipped: bool = True) -> None:
        """Raise `DomainError` unless the data are clean; `clipped=False` allows clipping."""
        allowed = self if clipped else self._without_clipping()
        if not allowed.clean:
            said = "; ".join(line.removesuffix(".") for line in allowed._lines(examples=True))
            raise DomainError(
                f"the data must be usable as they are; {said}. Correct the data or the schema."
            )

    def _without_clipping(self) -> "DataQuality":
        return replace(self, attributes=tuple(replace(each, clipped=0) for each in self.attributes))

    def warn(self, stacklevel: int = 1, *, strict: bool = True) -> None:
        """Warn the owner with a `DataWarning`, unless the data are clean.

        `strict` is whether the caller has an option of that name, which the warning recommends.
        """
        if not self.clean:
            hint = "\n  With strict=True such data are refused." if strict else ""
            warnings.warn(f"{self}{hint}", DataWarning, stacklevel=stacklevel + 1)


def total(qualities: Iterable[DataQuality]) -> DataQuality:
    """Return the sum of at least one quality."""
    first, *others = qualities
    for each in others:
        first += each
    return first


def _listed(names: list[str], count: int) -> str:
    more = f", and {count - len(names):,} more" if count > len(names) else ""
    return f"{'' if count == 1 else 's'}: {', '.join(names)}{more}."


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{100 * share:.2g}%"
