"""Signals as vehicles name them: the Vehicle Signal Specification (VSS) of COVESA.

A catalog in JSON or YAML, as `vspec export` of vss-tools writes it, is a tree of branches whose
leaves are signals. The path of a signal, such as `Vehicle.Speed`, becomes the name of an attribute;
what the catalog says about its values becomes a draft of its bounds or categories.
"""

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import isfinite
from typing import Any, final

from fedldp._internal import documents, toml
from fedldp._internal.text import listed, unknown
from fedldp._internal.validation import is_real
from fedldp.errors import DomainError, MissingExtra
from fedldp.schema.frames import to_float
from fedldp.schema.schema import UNFILLED
from fedldp.schema.units import LIST, TRUTH_ALIASES
from fedldp.vehicle import OTHER, label

_INTEGERS = {
    f"{sign}int{bits}": (-(2 ** (bits - 1)) * (not sign), 2 ** (bits - (not sign)) - 1)
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}
_NUMBERS = {*_INTEGERS, "float", "double"}
_UNKNOWN_LABELS = ("unknown", "undefined", OTHER)
_ARRAY = "[]"
_IDENTIFYING = re.compile(
    r"VIN|LicensePlate|Serial|Subject|Issuer|Identi(fier|fication)$|PhoneNumber|IMEI|IMSI|MAC"
    r"|UUID|Latitude|Longitude|DriverID|Fleet(Vehicle)?ID"
)
_HEAD = """\
# Signals of a VSS catalog. Bounds and categories are public. Narrow the bounds to what you
# know without looking at the data: the error of an estimate is in proportion to their distance.
"""


@final
@dataclass(frozen=True)
class Signal:
    """A leaf of a catalog: what values a signal has.

    >>> catalog = read('{"Vehicle": {"type": "branch", "children": {"Speed": {"type": "sensor", '
    ...     '"datatype": "int32", "unit": "km/h", "min": -250, "max": 250}}}}')
    >>> catalog["Vehicle.Speed"].bounds, catalog["Vehicle.Speed"].unit
    ((-250, 250), 'km/h')
    """

    path: str
    entries: Mapping[str, Any]

    def _text(self, name: str) -> str:
        """Return an entry as one line that can be printed, and an empty text if it is absent."""
        text = self.entries.get(name)
        return _line(text) if isinstance(text, str) else ""

    @property
    def datatype(self) -> str:
        """The type of a value; old catalogs write it in capital letters at times."""
        return self._text("datatype").lower()

    @property
    def unit(self) -> str:
        """The unit, such as km/h."""
        return self._text("unit")

    @property
    def is_array(self) -> bool:
        """Whether a value has several numbers."""
        return self.datatype.endswith(_ARRAY)

    @property
    def labels(self) -> list[str] | None:
        """The allowed values; None if the catalog allows any."""
        if self.datatype == "boolean":
            return ["false", "true"]
        # VSS 2 calls a list of allowed values "enum"; VSS 6 has that for names of numbers.
        allowed = self.entries.get("allowed", self.entries.get("enum"))
        if allowed is None:
            return None
        known = allowed if isinstance(allowed, list | dict) else ()
        if not known or not all(isinstance(e, str | int | float) and e == e for e in known):
            raise DomainError(
                f"{self.path}: expected a list of allowed values, texts or numbers; "
                f"got {allowed!r:.200}."
            )
        return [label(value) for value in known]

    @property
    def aliases(self) -> dict[str, str]:
        """The texts that stand for labels: VSS 6 names numbers, and truth has many spellings."""
        if self.datatype == "boolean":
            return TRUTH_ALIASES
        names = self.entries.get("enum")
        if not isinstance(names, dict):
            return {}
        return {label(number): label(name) for name, number in names.items()}

    @property
    def identifies(self) -> bool:
        """Whether its value probably tells who or where somebody is."""
        return bool(_IDENTIFYING.search(self.path.rpartition(".")[2]))

    @property
    def has_values(self) -> bool:
        """Whether its values can be asked for, and not only those of its parts."""
        return self.is_number or self.labels is not None or self.datatype == "string"

    @property
    def lacks_bounds(self) -> bool:
        """Whether it is a number without a lower or an upper bound."""
        return self.is_number and None in self.bounds

    @property
    def is_number(self) -> bool:
        """Whether it is asked for as a number."""
        return self.datatype.removesuffix(_ARRAY) in _NUMBERS and self.labels is None

    @property
    def bounds(self) -> tuple[Any, Any]:
        """The bounds in the catalog; None stands for a bound that is absent."""
        found = self.entries.get("min"), self.entries.get("max")
        if not all(each is None or (is_real(each) and isfinite(to_float(each))) for each in found):
            raise DomainError(f"{self.path}: expected numbers as min and max; got {found!r:.200}.")
        return found

    @property
    def summary(self) -> str:
        """What the catalog says, in a few words."""
        low, high = self.bounds
        parts = [self._text("type"), self._text("datatype"), self.unit]
        if low is not None or high is not None:
            parts.append(f"catalog: {_end(low)} to {_end(high)}")
        elif isinstance(self.entries.get("enum"), dict):
            names = [f"{_line(name)} = {number}" for name, number in self.entries["enum"].items()]
            parts.append(f"names of numbers, {listed(names)}")
        elif self.is_array and self.labels is not None:
            parts.append("a list counts if it has one value")
        elif self.is_number:
            ends = _INTEGERS.get(self.datatype.removesuffix(_ARRAY))
            held = f" ({self._text('datatype')} holds {ends[0]} to {ends[1]})" if ends else ""
            parts.append(f"no bounds in the catalog{held}")
        return ", ".join(part for part in parts if part)

    def narrowed(self, low: float, high: float) -> tuple[float, float]:
        """Return bounds of the user, which must lie within those of the catalog."""
        least, most = self.bounds
        if not low < high:
            raise DomainError(f"{self.path}: low must be below high; got {low:g} and {high:g}.")
        if (least is not None and low < least) or (most is not None and high > most):
            raise DomainError(
                f"{self.path}: bounds must lie within those of the catalog, {_end(least)} to "
                f"{_end(most)}; got {low:g} to {high:g}."
            )
        return low, high

    def table(self, bounds: tuple[float, float] | None = None) -> str:
        """Return the draft of the attribute in TOML, with places to fill in where needed."""
        words = " ".join(filter(None, [self._text("description"), f"({self.summary})"]))
        comment = textwrap.indent(textwrap.fill(words, 96), "# ")
        return f"{comment}\n{toml.table(self.path, entries=self._options(bounds))}"

    def _options(self, bounds: tuple[float, float] | None) -> dict[str, Any]:
        if self.is_number:
            ends = self.bounds if bounds is None else self.narrowed(*bounds)
            low, high = (UNFILLED if end is None else _plain(end) for end in ends)
            unit = {"unit": self.unit} if self.unit else {}
            size = {"size": UNFILLED} if self.is_array else {}
            return {"low": low, "high": high, **size, **unit}
        if bounds is not None:
            raise DomainError(f"{self.path} is not a number and has no bounds ({self.summary}).")
        if not self.has_values:
            raise DomainError(
                f"{self.path} has the type {self._text('datatype')!r}: only numbers, lists of "
                "numbers, truth values, texts and lists of allowed texts can be asked for."
            )
        labels = [UNFILLED] if self.labels is None else self.labels
        missing = next((name for name in labels if name.lower() in _UNKNOWN_LABELS), None)
        aliases: dict[str, Any] = {"aliases": self.aliases} if self.aliases else {}
        aliases |= {"unit": LIST} if self.is_array else {}
        if missing is None:
            return {"categories": [*labels, OTHER], **aliases}
        return {"categories": labels, "missing": missing, **aliases}


@final
@dataclass(frozen=True)
class Catalog:
    """The signals of a catalog by their paths."""

    signals: Mapping[str, Signal]

    def __getitem__(self, path: str) -> Signal:
        if path in self.signals:
            return self.signals[path]
        inside = [each for each in self.signals if each.startswith(f"{path}.")]
        if inside:
            raise DomainError(f"{path} is a branch: name its signals, such as {listed(inside)}.")
        raise unknown("signal", path, list(self.signals))

    def matching(self, pattern: str) -> list[Signal]:
        """Return the signals of a path, in which "*" stands for any part, or for some letters.

        >>> speed = Signal("Vehicle.Row1.Speed", {"datatype": "float"})
        >>> Catalog({speed.path: speed}).matching("Vehicle.*.Speed") == [speed]
        True
        """
        if "*" not in pattern:
            return [self[pattern]]
        parts = pattern.split(".")
        found = [
            signal
            for path, signal in self.signals.items()
            if len(names := path.split(".")) == len(parts) and all(map(fnmatchcase, names, parts))
        ]
        if not found:
            raise unknown("signal", pattern, list(self.signals))
        return found


def read(text: str, *, is_yaml: bool = False) -> Catalog:
    """Read a catalog in JSON or YAML, or raise `WireError`."""
    kind, program = ("YAML", "yaml") if is_yaml else ("JSON", "json")
    with documents.reading(f"VSS catalog in {kind}", f". Make it with `vspec export {program}`."):
        tree = _yaml(text) if is_yaml else json.loads(text)
        if not isinstance(tree, dict):
            raise ValueError(f"it must be a {kind} object")
        signals = {path: Signal(path, node) for path, node in _leaves(tree, "")}
        if not signals:
            raise ValueError("it has no signals")
    return Catalog(signals)


def _yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingExtra("yaml", "vss") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error).replace("\n", " ")) from None


def _leaves(branch: Mapping[str, Any], before: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, node in branch.items():
        if not isinstance(node, dict) or not isinstance(name, str):
            raise ValueError(f"{before}{name} is not an object")
        if isinstance(node.get("children"), dict):
            yield from _leaves(node["children"], f"{before}{name}.")
        elif "datatype" in node:
            yield f"{before}{name}", node


def template(signals: Iterable[Signal], bounds: Mapping[str, tuple[float, float]]) -> str:
    """Return a draft of a schema in TOML: bounds of the user, or else those of the catalog.

    >>> speed = Signal("Vehicle.Speed", {"datatype": "int32", "min": -250, "max": 250})
    >>> print(template([speed], {"Vehicle.Speed": (0.0, 200.0)}))
    # Signals of a VSS catalog. Bounds and categories are public. Narrow the bounds to what you
    # know without looking at the data: the error of an estimate is in proportion to their distance.
    <BLANKLINE>
    # (int32, catalog: -250 to 250)
    ["Vehicle.Speed"]
    low = 0
    high = 200
    <BLANKLINE>
    """
    return "\n".join([_HEAD, *(each.table(bounds.get(each.path)) for each in signals)])


def _line(text: str) -> str:
    """Return a text in one line, without characters that a comment in TOML must not have."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _end(bound: float | None) -> str:
    return "?" if bound is None else f"{_plain(bound)}"


def _plain(number: float) -> float | int:
    """Return a whole number without a point."""
    return int(number) if float(number).is_integer() else number
