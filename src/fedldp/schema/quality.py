"""Data quality: what happens to the values of some data when they are read.

A vehicle always sends a report, whatever its data are: a value outside the bounds is clipped, and a
missing, unreadable or unknown value is replaced by a public one. The owner of the data must learn
about it. This module holds and displays the counts; nothing of it is ever sent.
"""

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import final

from fedldp._internal.text import counted, did_you_mean, unknown
from fedldp.errors import DataWarning, DomainError
from fedldp.vehicle import MISSING, OTHER

__all__ = ["AttributeQuality", "DataQuality"]

_LABELS_OF_UNKNOWN_VALUES = repr(OTHER), repr(MISSING)
_NAMES_IN_A_SUMMARY = 5


@final
@dataclass(frozen=True)
class AttributeQuality:
    """How many values of one attribute are clipped or replaced, and why.

    Single numbers and categories are counted: a vector of three numbers counts three.

    Attributes
    ----------
    name
        The name of the attribute.
    values
        The number of values.
    clipped
        How many values lie beyond a bound by more than a millionth of the range. Each number of a
        vector that is longer than the bound on its length counts.
    missing
        How many values are absent: None, NaN, null, an empty text, or an absent key.
    unreadable
        How many values are not numbers where a number is expected.
    unknown
        How many values are not one of the categories.
    bounds
        What values are clipped to, in words.
    replacement
        The public value that replaces missing, unreadable and unknown values, in words.
    example
        The first value that is replaced, with its row.

    Examples
    --------
    >>> import fedldp
    >>> print(fedldp.Schema.of(age=(0, 100)).check({"age": [31, 131, None, None]})["age"])
    age: 1 of 4 (25%) clipped to [0, 100]; 2 of 4 (50%) missing, replaced by 50; row 2: ...
    """

    name: str
    values: int = 0
    clipped: int = 0
    missing: int = 0
    unreadable: int = 0
    unknown: int = 0
    bounds: str = ""
    replacement: str = ""
    example: str = ""

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
        """Return the counts in one line.

        Parameters
        ----------
        example
            Whether to show the first value that is replaced.

        Returns
        -------
        str
            A line of text.

        Examples
        --------
        >>> AttributeQuality("age", values=10, clipped=1, bounds="[0, 100]").described()
        'age: 1 of 10 (10%) clipped to [0, 100]'
        """
        counts = [f"{self._share(self.clipped)} clipped to {self.bounds}"] if self.clipped else []
        for word in ("missing", "unreadable", "unknown"):
            if count := getattr(self, word):
                counts.append(f"{self._share(count)} {word}, replaced by {self.replacement}")
        if self.unknown and self.replacement not in _LABELS_OF_UNKNOWN_VALUES:
            counts.append(
                f"so the share of {self.replacement} is too large by "
                f"{_percent(self.unknown / self.values)}: add the category 'other'"
            )
        if example and self.example:
            counts.append(self.example)
        return f"{self.name}: {'; '.join(counts) or 'all values are used as they are'}"

    def _share(self, count: int) -> str:
        return f"{count:,} of {self.values:,} ({_percent(count / self.values)})"


@final
@dataclass(frozen=True)
class DataQuality:
    """What happens to the values of some rows, counted for each attribute; qualities add.

    `Schema.check` makes one: it reads the data and spends nothing. It is for the owner of the data
    and never leaves a vehicle.

    Attributes
    ----------
    rows
        The number of rows.
    attributes
        The counts of each attribute.
    unknown_keys
        Keys of dicts that the schema does not name, with the number of rows that have them.
    unused_columns
        Columns of a table that the schema does not name.
    malformed
        The number of rows whose line in a file could not be read: all of their values are missing.
    left_out
        The number of rows that belong to no known vehicle, and are not used.
    first_malformed
        What is wrong with the first of these lines.

    Examples
    --------
    >>> import fedldp
    >>> schema = fedldp.Schema.of(age=(0, 100), city=["Oslo", "Paris"])
    >>> quality = schema.check([{"age": 131, "city": "Pari"}, {"agee": 54, "city": "Oslo"}])
    >>> quality.clean, quality["age"].clipped, quality["age"].missing, quality["city"].unknown
    (False, 1, 1, 1)
    >>> print(quality.summary(examples=False))
    2 rows: 3 values are clipped or replaced.
      age: 1 of 2 (50%) clipped to [0, 100]; 1 of 2 (50%) missing, replaced by 50
      city: 1 of 2 (50%) unknown, replaced by 'Oslo'; so the share of 'Oslo' is too large...
      Unknown key: 'agee' in 1 of 2 rows (did you mean 'age'?).
    >>> quality["city"].example
    "row 0: 'Pari' is not one of the 2 categories (did you mean 'Paris'?)"
    """

    rows: int
    attributes: tuple[AttributeQuality, ...]
    unknown_keys: Mapping[str, int] = field(default_factory=dict, hash=False)
    unused_columns: tuple[str, ...] = ()
    malformed: int = 0
    left_out: int = 0
    first_malformed: str = ""

    @property
    def clean(self) -> bool:
        """Whether every value is used as it is, and no row is malformed or has an unknown key.

        Unused columns do not matter: a table must have every column of the schema, so none of
        them can be a misspelt one.
        """
        rows_are_used = not (self.unknown_keys or self.malformed or self.left_out)
        return rows_are_used and all(each.clean for each in self.attributes)

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
            self.malformed + other.malformed,
            self.left_out + other.left_out,
            self.first_malformed or other.first_malformed,
        )

    @property
    def clipping(self) -> str:
        """One line about clipped values, for data whose bounds are meant to clip; or nothing."""
        found = [each for each in self.attributes if each.clipped]
        found.sort(key=lambda each: -each.clipped)
        shares = [f"{_percent(each.clipped / each.values)} of {each.name}" for each in found[:3]]
        more = f" and some of {len(found) - 3:,} more attributes" if len(found) > 3 else ""
        return f"the public bounds clip {', '.join(shares)}{more}." if found else ""

    def using(self, *columns: str | None) -> "DataQuality":
        """Return the same quality without some columns and keys, which are used for something else.

        Parameters
        ----------
        *columns
            The names of the columns and keys; None is ignored.

        Returns
        -------
        DataQuality
            A quality in which these names are neither unused nor unknown.

        Examples
        --------
        >>> import fedldp
        >>> quality = fedldp.Schema.of(age=(0, 100)).check({"age": [31], "id": [7]})
        >>> quality.unused_columns, quality.using("id").unused_columns
        (('id',), ())
        """
        unused = tuple(name for name in self.unused_columns if name not in columns)
        keys = {key: count for key, count in self.unknown_keys.items() if key not in columns}
        return replace(self, unused_columns=unused, unknown_keys=keys)

    def with_malformed(self, rows: Mapping[int, str]) -> "DataQuality":
        """Return the same quality with some rows whose lines in a file could not be read.

        Parameters
        ----------
        rows
            What is wrong with each of them, by the number of the row.

        Returns
        -------
        DataQuality
            A quality that counts them.

        Examples
        --------
        >>> import fedldp
        >>> quality = fedldp.Schema.of(age=(0, 100)).check([{"age": 31}])
        >>> quality.with_malformed({0: "line 2: it is not UTF-8"}).malformed
        1
        """
        first = next(iter(rows.values()), "")
        return replace(self, malformed=len(rows), first_malformed=first)

    def __str__(self) -> str:
        return self.summary()

    def summary(self, *, examples: bool = True) -> str:
        """Return the counts in a few lines.

        Parameters
        ----------
        examples
            Whether to show examples of the values.

        Returns
        -------
        str
            Lines of text.

        Examples
        --------
        >>> import fedldp
        >>> print(fedldp.Schema.of(age=(0, 100)).check({"age": [31, 54]}).summary())
        2 rows: all values are used as they are.
        """
        rows = f"{self.rows:,} row{'' if self.rows == 1 else 's'}"
        one = self.changed == 1
        head = (
            f"{rows}: {self.changed:,} value{' is' if one else 's are'} clipped or replaced."
            if self.changed
            else f"{rows}: all values are used as they are."
        )
        return "\n  ".join([head, *self._lines(examples)])

    def _lines(self, examples: bool) -> list[str]:
        bad = [attribute for attribute in self.attributes if not attribute.clean]
        bad.sort(key=lambda attribute: -(attribute.clipped + attribute.replaced))  # the worst first
        lines = [attribute.described(example=examples) for attribute in bad[:_NAMES_IN_A_SUMMARY]]
        if len(bad) > _NAMES_IN_A_SUMMARY:
            lines.append(f"and {len(bad) - _NAMES_IN_A_SUMMARY:,} more attributes.")
        if self.malformed:
            lines.append(
                f"{counted(self.malformed, 'row')} malformed, so that all values are missing; "
                f"{self.first_malformed}."
            )
        if self.left_out:
            lines.append(f"{counted(self.left_out, 'row')} left out: the vehicle is unknown.")
        if self.unknown_keys:
            known = [attribute.name for attribute in self.attributes]
            keys = [
                f"{key!r:.60} in {count:,} of {self.rows:,} rows{did_you_mean(key, known)}"
                for key, count in list(self.unknown_keys.items())[:_NAMES_IN_A_SUMMARY]
            ]
            lines.append(f"Unknown key{_listed(keys, len(self.unknown_keys))}")
        if self.unused_columns:
            names = [f"{name!r:.60}" for name in self.unused_columns[:_NAMES_IN_A_SUMMARY]]
            lines.append(f"Unused column{_listed(names, len(self.unused_columns))}")
        return lines

    def refuse(self, *, clipped: bool = True) -> None:
        """Raise `DomainError` unless the data are clean.

        Parameters
        ----------
        clipped
            Whether to refuse clipped values too.

        Raises
        ------
        DomainError
            If a value would be replaced or, unless `clipped` is false, clipped.

        Examples
        --------
        >>> import fedldp
        >>> fedldp.Schema.of(age=(0, 100)).check({"age": [31, 131]}).refuse(clipped=False)
        """
        allowed = self if clipped else self._without_clipping()
        if not allowed.clean:
            said = "; ".join(line.removesuffix(".") for line in allowed._lines(examples=True))
            raise DomainError(
                f"the data must be usable as they are; {said}. Correct the data or the schema."
            )

    def refuse_unusable(self) -> None:
        """Raise `DomainError` if an attribute has no value that can be used.

        The result of a simulation would be the public default alone. A vehicle does not call this:
        its data never decide whether a report is sent.

        Raises
        ------
        DomainError
            If all values of an attribute are missing, unreadable or unknown.

        Examples
        --------
        >>> import fedldp
        >>> fedldp.Schema.of(age=(0, 100)).check({"age": ["old", "young"]}).refuse_unusable()
        Traceback (most recent call last):
        fedldp.errors.DomainError: no value of age can be used: 2 of 2 (100%) unreadable, ...
        """
        for attribute in self.attributes:
            unused = (
                attribute.replaced == attribute.values
                and attribute.replacement not in _LABELS_OF_UNKNOWN_VALUES
            )
            if attribute.values and unused:
                said = attribute.described().removeprefix(f"{attribute.name}: ")
                raise DomainError(
                    f"no value of {attribute.name} can be used: {said}. The result would be the "
                    "public default, whatever the data are. "
                    "Check the names and the formats of the data."
                )

    def _without_clipping(self) -> "DataQuality":
        return replace(self, attributes=tuple(replace(each, clipped=0) for each in self.attributes))

    def warn(self, stacklevel: int = 1, *, strict: bool = True) -> None:
        """Issue a `DataWarning` unless the data are clean.

        Parameters
        ----------
        stacklevel
            As for `warnings.warn`.
        strict
            Whether the caller has an option of this name, which the warning then recommends.

        Examples
        --------
        >>> import fedldp
        >>> fedldp.Schema.of(age=(0, 100)).check({"age": [31, 54]}).warn()
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
