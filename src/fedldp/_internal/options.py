"""Options, each declared once: its name, type, default, help and what is valid.

A dataclass declares an option as a field:

    tol: float = option(0.0, Real(0), help="Stop when a step is shorter than this.")

Its validation (`validate`), the command line (`fedldp.cli.options`), the parameters of the
scikit-learn estimators and their documentation (`document`) follow from this declaration.
"""

import inspect
import math
import re
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from numbers import Real as AnyReal
from typing import Any, SupportsIndex, TypeVar, final

import numpy as np

from fedldp.errors import DomainError


class Rule(ABC):
    """What is valid for an option."""

    @abstractmethod
    def __str__(self) -> str:
        """Say what is valid, to complete "the option must be ..."."""

    @abstractmethod
    def __call__(self, value: Any) -> Any:
        """Return a valid value in its plain form, or raise `ValueError`."""

    def parse(self, text: str) -> Any:
        """Convert a text from the command line into a value."""
        return text


@final
@dataclass(frozen=True)
class OneOf(Rule):
    """One of some values."""

    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"one of {self.values}"

    def __call__(self, value: Any) -> Any:
        return self.values[self.values.index(value)]


@final
@dataclass(frozen=True)
class OneKind(Rule):
    """An instance of one of some dataclasses, the name of one, or one of some words."""

    kinds: tuple[Any, ...]  # dataclasses, each with a name
    words: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        """The words and names."""
        return (*self.words, *(kind.name for kind in self.kinds))

    def __str__(self) -> str:
        return f"one of {self.values}, or one with options: {self.kinds[0].__name__}(...)"

    def __call__(self, value: Any) -> Any:
        if isinstance(value, self.kinds) or (isinstance(value, str) and value in self.words):
            return value
        return {kind.name: kind for kind in self.kinds}[self.values[self.values.index(value)]]()


@final
@dataclass(frozen=True)
class Real(Rule):
    """A finite number from `low` (above it, if `above`) to below `below`, or one of some words."""

    low: float
    below: float = math.inf
    above: bool = False
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.above:
            span = "a positive number" if self.low == 0 else f"a number above {self.low:g}"
        else:
            span = f"a number from {self.low:g}"
        return _or(
            self.words, span + (f" to below {self.below:g}" if self.below < math.inf else "")
        )

    def __call__(self, value: Any) -> Any:
        if isinstance(value, str) and value in self.words:
            return value
        if not isinstance(value, AnyReal) or isinstance(value, bool | np.bool_):
            raise ValueError
        number = float(value)
        if not self.low <= number < self.below or (self.above and number == self.low):
            raise ValueError
        return number

    def parse(self, text: str) -> Any:
        return text if text in self.words else float(text)


@final
@dataclass(frozen=True)
class Whole(Rule):
    """A whole number of at least `least`, or one of some words; None, if `optional`."""

    least: int
    words: tuple[str, ...] = ()
    optional: bool = False

    def __str__(self) -> str:
        words = _or(self.words, f"a whole number of at least {self.least}")
        return f"None or {words}" if self.optional else words

    def __call__(self, value: Any) -> Any:
        if (value is None and self.optional) or (isinstance(value, str) and value in self.words):
            return value
        if not isinstance(value, SupportsIndex) or isinstance(value, bool | np.bool_):
            raise ValueError
        if value.__index__() < self.least:
            raise ValueError
        return value.__index__()

    def parse(self, text: str) -> Any:
        return text if text in self.words else int(text)


def _or(words: tuple[str, ...], other: str) -> str:
    quoted = ", ".join(f'"{word}"' for word in words)
    return f"{quoted} or {other}" if words else other


@final
@dataclass(frozen=True)
class Option:
    """What is declared about an option, besides its name, type and default."""

    help: str  # one sentence
    rule: Rule | None  # None where the code that uses the option validates it


def option(default: Any = MISSING, rule: Rule | None = None, *, help: str) -> Any:  # noqa: A002
    """Declare a field of a dataclass as an option; without a default it must be given."""
    return field(default=default, metadata={_KEY: Option(help, rule)})


_KEY = "option"


def options(kind: type) -> Mapping[str, Option]:
    """Return the options that a dataclass declares, by name."""
    return {each.name: each.metadata[_KEY] for each in fields(kind) if _KEY in each.metadata}


def validate(instance: Any) -> None:
    """Validate the options of a frozen dataclass, and store them in their plain form."""
    for name, declared in options(type(instance)).items():
        if declared.rule is not None:
            value = valid_value(declared.rule, name, getattr(instance, name))
            object.__setattr__(instance, name, value)


Kind = TypeVar("Kind", bound=type)


def document(declaring: type | None = None, **texts: str) -> Callable[[Kind], Kind]:
    """Return a decorator that completes the docstring of a class.

    A line `{options}` becomes the description of all parameters of the class that `declaring`, by
    default the class itself, declares as options. A line `{name}` becomes the text with this name.
    So each description is written once, and `help` shows all of them.
    """

    def decorate(kind: Kind) -> Kind:
        if kind.__doc__ is not None:  # as it is with python -OO
            text_so_far = inspect.cleandoc(kind.__doc__)
            described = _parameter_texts(kind if declaring is None else declaring, kind)
            clean = {name: inspect.cleandoc(text) for name, text in texts.items()}
            for name, text in (clean | {"options": described}).items():
                text_so_far = text_so_far.replace(f"{{{name}}}", text)
            kind.__doc__ = text_so_far
        return kind

    return decorate


def _parameter_texts(declaring: type, kind: type) -> str:
    """Return the parameters of a class that are options, as numpydoc describes parameters."""
    types = {field.name: field.type for field in fields(declaring)}
    declared, lines = options(declaring), []
    for name, parameter in inspect.signature(kind).parameters.items():
        if name not in declared:
            continue
        if parameter.default is None:
            default = ", optional"
        elif parameter.default is inspect.Parameter.empty:
            default = ""
        else:
            default = f", default={parameter.default!r}"
        text = re.sub(r"  \[default: (.*)\]$", r" By default, \1.", declared[name].help)
        lines += [
            f"{name} : {_type(types[name], declared[name].rule)}{default}",
            textwrap.fill(text, 92, initial_indent="    ", subsequent_indent="    "),
        ]
    return "\n".join(lines)


def _type(annotation: Any, rule: Rule | None) -> str:
    """Return what a docstring says about the type of an option."""
    if isinstance(rule, OneOf):
        names = ", ".join(map(repr, rule.values))
        return "bool" if set(rule.values) == {True, False} else f"{{{names}}}"
    name = getattr(annotation, "__name__", None) or str(annotation)
    return str(rule) if rule is not None else name.replace(" | ", " or ")


def valid_value(rule: Rule, name: str, value: Any) -> Any:
    """Return a valid value in its plain form, or raise `DomainError`."""
    try:
        return rule(value)
    except ValueError:
        raise DomainError(f"{name} must be {rule}; got {value!r}.") from None
