"""Schemas: what a vehicle is asked for, with public bounds and public categories.

Bounds, categories and the replacement of a missing value are part of the question, never of the
data: taking them from the data would reveal something about the data.
"""

import keyword
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, final

from fedldp._internal import toml
from fedldp._internal.text import counted, listed, unknown
from fedldp._internal.validation import is_real
from fedldp.errors import DomainError, WireError
from fedldp.schema.attributes import (
    ATTRIBUTES,
    Attribute,
    Category,
    Number,
    from_entry,
    from_table,
)
from fedldp.schema.quality import DataQuality
from fedldp.schema.rows import Rows, kinds
from fedldp.schema.units import TRUTH_ALIASES
from fedldp.vehicle import MOST_COORDINATES, OTHER, RANDOM

__all__ = ["Schema", "template"]

UNFILLED = "?"  # what a template has instead of bounds and categories


@final
@dataclass(frozen=True, repr=False)
class Schema(Mapping[str, Attribute]):
    """Attributes with different names, in the order of their coordinates.

    A schema is a mapping from names to attributes; iterating over it gives the names.

    Parameters
    ----------
    attributes
        Numbers and categories. `Schema.of` is a shorter way to write them.

    Raises
    ------
    DomainError
        If there are no attributes, or two have the same name.

    Examples
    --------
    >>> schema = Schema.of(age=(0, 100), city=["Oslo", "Rome"])
    >>> schema
    <Schema of 2 attributes: age, city>
    >>> list(schema), schema.dimensions, schema["city"].missing
    (['age', 'city'], 2, 'Oslo')
    >>> schema.rows({"age": [31, 54], "city": ["Rome", "Bonn"]}).matrix()
    array([[31.,  1.],
           [54., nan]])
    """

    attributes: tuple[Attribute, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(self.attributes))
        if not all(isinstance(attribute, Attribute) for attribute in self.attributes):
            raise DomainError(
                "attributes must be Numbers, Categories or other attributes; "
                f"got {self.attributes!r:.200}."
            )
        if not self.attributes or len(set(self.names)) < len(self.names):
            raise DomainError(f"a schema needs attributes with different names; got {self.names}.")
        for item in self.attributes:
            if type(item.constant) is not bool:
                raise DomainError(
                    f"constant of {item.name!r} must be True or False; got {item.constant!r}."
                )
        _check_rules(self.attributes)
        if self.dimensions > MOST_COORDINATES:
            raise DomainError(
                f"a schema has at most {MOST_COORDINATES} coordinates; got {self.dimensions}."
            )

    @classmethod
    def of(cls, /, **attributes: Any) -> "Schema":
        """Make a schema: round brackets for bounds, square brackets for categories.

        Parameters
        ----------
        **attributes
            For each name the bounds as a tuple, of numbers or dates; the categories as a list;
            `bool` for true, false and other; a dict of options as in TOML; or an `Attribute`.

        Returns
        -------
        Schema
            The schema, in the order of the arguments.

        Raises
        ------
        DomainError
            If an argument has another form, or its bounds or categories are invalid.

        Examples
        --------
        >>> Schema.of(age={"low": 0, "high": 100, "missing": 40}, city=["Oslo", "Rome"]).names
        ('age', 'city')
        >>> from datetime import date
        >>> Schema.of(bought=(date(2020, 1, 1), date(2026, 12, 31)), alarm=bool)["bought"].unit
        'date'
        """
        return cls(tuple(_attribute(name, given) for name, given in attributes.items()))

    @classmethod
    def vector(cls, d: int, bound: float | None = None, *, length: float | None = None) -> "Schema":
        """Make the schema of a vector, such as a gradient.

        Pass either `bound` or `length`.

        Parameters
        ----------
        d
            How many numbers the vector has.
        bound
            Each number lies between -bound and bound.
        length
            The vector has at most this length: the root of the sum of its squares. Such a vector is
            for `strategy="directions"`.

        Returns
        -------
        Schema
            A schema with one attribute, "x".

        Raises
        ------
        DomainError
            If both or neither of bound and length are given, or one of them is not positive.

        Examples
        --------
        >>> Schema.vector(3, 0.5)["x"]
        Number(name='x', low=-0.5, high=0.5, missing=0.0, size=3)
        >>> Schema.vector(3, length=0.5)["x"]
        Number(name='x', low=-0.5, high=0.5, missing=0.0, size=3, length=0.5)
        """
        if (bound is None) is (length is None):
            raise DomainError(
                "a vector needs a bound for each number or one for its length, and not both: pass "
                f"bound= or length=; got {bound!r} and {length!r}."
            )
        name, most = ("length", length) if bound is None else ("bound", bound)
        if most is None or not is_real(most):
            raise DomainError(f"{name} must be a positive number; got {most!r}.")
        return cls((Number("x", -most, most, size=d, length=length),))

    @classmethod
    def infer(cls, data: Any, /, **known: Any) -> "Schema":
        """Take names, kinds and sizes from data; bounds and categories come from you.

        Parameters
        ----------
        data
            Rows as for `rows`, whose columns have names.
        **known
            The bounds or categories of each column, as for `of`; None leaves a column out.

        Returns
        -------
        Schema
            The schema of the columns that are not left out.

        Raises
        ------
        DomainError
            If the bounds or categories of a column are not given. The message contains the call
            with places to fill in.
        UnknownName
            If the data have no column of a given name.

        Examples
        --------
        >>> data = [{"id": 1, "age": 31, "city": "Rome"}]
        >>> Schema.infer(data, id=None, age=(0, 100), city=["Oslo", "Rome"]).names
        ('age', 'city')
        >>> Schema.infer(data, id=None)
        Traceback (most recent call last):
        fedldp.errors.DomainError: bounds and categories are public: they come from you, never from
        the data. Fill in what follows (None leaves a column out):
            Schema.infer(data, id=None, age=(low, high), city=[...])
        """
        kind_of = kinds(data)
        for name in known:
            if name not in kind_of:
                raise unknown("column", name, list(kind_of))
        if not kind_of.keys() <= known.keys():
            places = {
                name: repr(known[name]) if name in known else "(low, high)" if size else "[...]"
                for name, size in kind_of.items()
            }
            raise DomainError(
                "bounds and categories are public: they come from you, never from the data. Fill "
                f"in what follows (None leaves a column out):\n    Schema.infer({_call(places)})"
            )
        chosen = [(name, size) for name, size in kind_of.items() if known[name] is not None]
        return cls(tuple(_attribute(name, known[name], size) for name, size in chosen))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the attributes."""
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def dimensions(self) -> int:
        """How many coordinates there are: one for each number and each category."""
        return sum(attribute.size for attribute in self.attributes)

    def is_vector(self, d: int) -> bool:
        """Return whether this is the schema of one vector, such as a gradient.

        Parameters
        ----------
        d
            How many numbers the vector has.

        Returns
        -------
        bool
            Whether there is one attribute, with this many numbers.

        Examples
        --------
        >>> Schema.vector(3, 0.5).is_vector(3), Schema.of(age=(0, 100)).is_vector(3)
        (True, False)
        """
        return len(self) == 1 and self.attributes[0].inputs.numeric and self.dimensions == d

    def __repr__(self) -> str:
        return f"<Schema of {counted(len(self), 'attribute')}: {listed(self.names)}>"

    def __getitem__(self, name: str) -> Attribute:
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        raise unknown("attribute", name, self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.attributes)

    def rows(self, data: Any, first_row: int = 0, *, several: bool = False) -> Rows:
        """Return the rows of some data, ready to be read.

        Parameters
        ----------
        data
            A NumPy array, a list of dicts, a dict of columns, or a data frame of pandas, polars or
            pyarrow.
        first_row
            The number of the first row in messages.
        several
            Whether a vehicle may have several rows. A cell of an attribute with the rule "count"
            may then be anything.

        Returns
        -------
        Rows
            The rows, which are read in ranges.

        Raises
        ------
        DomainError
            If the data are of another kind, or lack a column of the schema.

        Examples
        --------
        >>> Schema.of(age=(0, 100)).rows([{"age": 31}, {"age": "old"}]).matrix()
        array([[31.],
               [nan]])
        """
        return Rows(self.attributes, data, first_row, several)

    def check(self, data: Any) -> DataQuality:
        """Return what a vehicle would clip or replace in some data. Nothing is drawn or spent.

        Parameters
        ----------
        data
            Rows as for `rows`.

        Returns
        -------
        DataQuality
            The number of values of each attribute that are clipped or replaced. It is for the owner
            of the data.

        Examples
        --------
        >>> quality = Schema.of(price=(0, 20_000)).check({"price": ["3933", "100 USD", None]})
        >>> quality.clean, quality["price"].unreadable, quality["price"].missing
        (False, 1, 1)
        """
        return self.rows(data).quality()

    def to_document(self) -> list[dict[str, Any]]:
        """Return the schema as it is written in a plan's JSON.

        Returns
        -------
        list of dict
            An entry for each attribute.

        Examples
        --------
        >>> Schema.of(city=["Oslo", "Rome"]).to_document()
        [{'name': 'city', 'categories': ['Oslo', 'Rome'], 'missing': 'Oslo'}]
        """
        return [
            {"name": attribute.name, **attribute.declaration()} for attribute in self.attributes
        ]

    @classmethod
    def from_document(cls, document: Any) -> "Schema":
        """Read what `to_document` returned.

        Parameters
        ----------
        document
            A list of entries, as read from JSON.

        Returns
        -------
        Schema
            The schema.

        Raises
        ------
        WireError
            If the document is not valid.

        Examples
        --------
        >>> schema = Schema.of(city=["Oslo", "Rome"])
        >>> Schema.from_document(schema.to_document()) == schema
        True
        """
        try:
            if not isinstance(document, list):
                raise DomainError(f"it must be a list; got {document!r:.60}")
            schema = cls(tuple(_from_entry(entry) for entry in document))
        except (ValueError, RecursionError) as error:
            raise WireError(f"not a schema: {error}") from error
        return schema

    def to_toml(self) -> str:
        """Return the schema as TOML, with a table for each attribute.

        Returns
        -------
        str
            Text that `from_toml` reads.

        Examples
        --------
        >>> print(Schema.of(age=(0, 100), city=["Oslo", "Rome"]).to_toml())
        [age]
        low = 0.0
        high = 100.0
        missing = 50.0
        size = 1
        <BLANKLINE>
        [city]
        categories = ["Oslo", "Rome"]
        missing = "Oslo"
        <BLANKLINE>
        """
        return "\n".join(toml.table(a.name, entries=a.table()) for a in self.attributes)

    @classmethod
    def from_toml(cls, text: str) -> "Schema":
        """Read a schema from TOML.

        Parameters
        ----------
        text
            A table for each attribute. `missing` and `size` are optional. A name with points may
            be written with quotes or without: `["Vehicle.Speed"]` or `[Vehicle.Speed]`. Before the
            tables there may be the format, a number, as in other files of fedldp.

        Returns
        -------
        Schema
            The schema.

        Raises
        ------
        DomainError
            If the text is not valid, or places of a template are not filled in.

        Examples
        --------
        >>> Schema.from_toml("age = {low = 0, high = 100}")["age"].missing
        50.0
        """
        entries = toml.parse(text, "the schema")
        if not isinstance(entries.get("format", {}), dict):  # a table would be an attribute
            toml.check_format(entries.pop("format"), "the schema")
        tables = dict(_flat(entries))
        unfilled = [
            f"{key} of {name!r}"
            for name, table in tables.items()
            if isinstance(table, dict)
            for key in ("low", "high", "size", "categories")
            if table.get(key) in (UNFILLED, [UNFILLED], [UNFILLED, OTHER])
        ]
        if unfilled:
            raise DomainError(
                f"fill in {', '.join(unfilled)}: bounds and categories are public and come from "
                "you. Delete the table of a column that vehicles should not be asked for."
            )
        return cls(tuple(from_table(name, table) for name, table in tables.items()))


def _check_rules(attributes: Sequence[Attribute]) -> None:
    """Refuse a rule that does not fit its attribute, and two rules for one column."""
    rules: dict[str, str] = {}
    for column in (column for attribute in attributes for column in attribute.columns):
        if column.rule not in (RANDOM, *column.rules):
            raise DomainError(
                f"rule of {column.name!r} must be one of {', '.join((RANDOM, *column.rules))}; "
                f"got {column.rule!r:.60}."
            )
        if rules.setdefault(column.name, column.rule) != column.rule:
            raise DomainError(
                f"the column {column.name!r} has two rules: "
                f"{rules[column.name]!r} and {column.rule!r}."
            )


def _flat(tables: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each attribute's name and table; tables of nothing but tables are parts of a name.

    Tables with names of their own are the parts of one attribute: see `Within`.
    """
    for name, table in tables.items():
        inner = list(table.values()) if isinstance(table, dict) else []
        branch = inner and all(isinstance(each, dict) for each in inner)
        if branch and not all(isinstance(each.get("name"), str) for each in inner):
            yield from _flat(table, f"{before}{name}.")
        else:
            yield f"{before}{name}", table


def template(data: Any) -> str:
    """Return a template of a schema in TOML for the columns of some data.

    >>> print(template([{"age": 31, "city": "Rome"}]))
    # Bounds and categories are public: fill in what you know without looking at the data.
    # Delete the table of a column that vehicles should not be asked for, such as their ids.
    # The category "other" counts every missing or unknown value. Delete it only where there are
    # none, as in a column of two labels that a model is to predict.
    # Spell categories as the file does: "True" is not "true". Dates need dates as bounds,
    # such as low = 2020-01-01; times of day need unit = "hour of day", and no categories.
    # Remove the "#" before bins to estimate the distribution of a number and not only its mean,
    # and before optional if some vehicles have no value.
    <BLANKLINE>
    [age]
    low = "?"
    high = "?"
    # bins = 20
    # optional = true
    <BLANKLINE>
    [city]
    categories = ["?", "other"]
    <BLANKLINE>
    """
    texts = [
        "# Bounds and categories are public: fill in what you know without looking at the data.\n"
        "# Delete the table of a column that vehicles should not be asked for, such as their ids.\n"
        '# The category "other" counts every missing or unknown value. Delete it only where there '
        "are\n# none, as in a column of two labels that a model is to predict.\n"
        '# Spell categories as the file does: "True" is not "true". Dates need dates as bounds,\n'
        '# such as low = 2020-01-01; times of day need unit = "hour of day", and no categories.\n'
        '# Remove the "#" before bins to estimate the distribution of a number and not only its '
        "mean,\n# and before optional if some vehicles have no value.\n"
    ]
    for name, size in kinds(data).items():
        options: dict[str, Any] = {"categories": [UNFILLED, OTHER]}
        if size is not None:
            options = {"low": UNFILLED, "high": UNFILLED, **({"size": size} if size > 1 else {})}
        proposed = "# bins = 20\n# optional = true\n" if size == 1 else ""
        texts.append(toml.table(name, entries=options) + proposed)
    return "\n".join(texts)


def _attribute(name: str, shorthand: Any, size: int | None = None) -> Attribute:
    """Return the attribute that an argument of `Schema.of` describes; refuse an ambiguous one."""
    if isinstance(shorthand, Attribute):
        if shorthand.name != name:
            raise DomainError(
                f"the attribute given as {name!r} has another name: {shorthand.name!r}."
            )
        return shorthand
    if isinstance(shorthand, Mapping):
        return from_table(name, shorthand)
    if shorthand is bool:
        return Category(name, ("false", "true", OTHER), aliases=TRUTH_ALIASES)
    if isinstance(shorthand, tuple) and any(isinstance(end, date) for end in shorthand):
        return from_table(name, dict(zip(("low", "high"), shorthand, strict=False)))
    for kind in ATTRIBUTES.values():
        if attribute := kind.from_shorthand(name, shorthand, size or 1):
            return attribute
    raise DomainError(
        f"{name!r} must be bounds in round brackets, such as (0, 100), or categories in square "
        f'brackets, such as ["Oslo", "Rome"]; got {shorthand!r:.60}. Two categories that are '
        'numbers are written as texts: ["0", "1"].'
    )


def _from_entry(entry: Any) -> Attribute:
    """Return an attribute from an entry that has exactly the keys of `to_document`."""
    if not isinstance(entry, dict) or "name" not in entry:
        raise DomainError(f"an entry has no name: {entry!r:.60}")
    options = {key: entry[key] for key in entry if key != "name"}
    return from_entry(entry["name"], options)


def _call(places: Mapping[str, str]) -> str:
    """Write arguments as in Python, where not every name can be a keyword argument."""
    plain = {name for name in places if name.isidentifier() and not keyword.iskeyword(name)}
    other = ", ".join(f"{name!r}: {place}" for name, place in places.items() if name not in plain)
    return ", ".join(
        ["data", *(f"{name}={places[name]}" for name in places if name in plain)]
        + ([f"**{{{other}}}"] if other else [])
    )
