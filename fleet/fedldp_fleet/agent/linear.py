"""What one vehicle computes on the standard library.

Its row, the gradient of a linear model, or on which side of a threshold a number is.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, final

from ..common import DomainError, WireError, vehicle

MOST_ROWS = 1000  # of the vehicle: a gradient is about the first ones
LARGEST_WEIGHT = 1e25
LARGEST_FACTOR = 1e6

_SIDES = "fedldp survey 2", "sides"
_MODELS = tuple(f"fedldp model {number}" for number in (1, 2, 3, 5))
_ENTRIES = {"format", "objective", "schema", "target", "weights"}
_OPTIONAL = {"reference", "scaling"}

Row = Mapping[str, Any]


class VehicleWork(Protocol):
    """What is computed from the rows of a vehicle before it answers."""

    @property
    def declaration(self) -> dict[str, Any]:
        """What is computed, as JSON, without what changes from round to round."""

    def answer(self, rows: Row | Sequence[Row], word: int) -> Any:
        """Return what the plan encodes; a random word of 64 bits chooses among rows.

        A row alone is what its vehicle's rules have made, and is taken as it is.
        """


@final
class RowItself:
    """What a statistic asks for."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._schema = plan["schema"]
        self._attributes = [vehicle.read_attribute(dict(entry), 0) for entry in self._schema]

    @property
    def declaration(self) -> dict[str, Any]:
        """The attributes."""
        return {"computes": "rows", "schema": self._schema}

    def answer(self, rows: Row | Sequence[Row], word: int) -> Row:
        """Return what is asked for, of several rows by the rule of each column."""
        return _one_row(self._attributes, rows, word)


@final
class Side:
    """On which side of a threshold a number of the vehicle is: -1, 0 or 1.

    >>> speed = {"name": "speed", "size": 1, "low": 0.0, "high": 100.0, "missing": 50.0}
    >>> document = {"format": "fedldp survey 2", "asks": "sides", "schema": [speed]}
    >>> side = Side({**document, "scaling": {"centres": [0.5], "factors": [1.0]}})
    >>> side.answer([{"speed": 80}], 0), side.answer([{"speed": 75}], 0), side.answer([], 0)
    ([1.0], [0.0], [-1.0])
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        try:
            if document.keys() != {"format", "asks", "schema", "scaling"}:
                raise ValueError("its entries must be format, asks, schema and scaling")
            [entry], [centre] = document["schema"], document["scaling"]["centres"]
            _input(entry, "none")
            self._number, self._document = vehicle.read_attribute(dict(entry), 0), document
            self._threshold = _number(centre, LARGEST_FACTOR)
            if self._number.categories or self._number.size != 1:
                raise ValueError("it must be about one number")
        except vehicle.UNREADABLE as error:
            raise WireError(f"not a question about a threshold: {error}") from None

    @property
    def declaration(self) -> dict[str, Any]:
        """The number, without the threshold."""
        return {"computes": "survey", "asks": "sides", "schema": self._document["schema"]}

    def answer(self, rows: Row | Sequence[Row], word: int) -> list[float]:
        """Return the side of the row's number, or of what the rule makes of several."""
        [value] = self._number.inputs(_one_row([self._number], rows, word))
        return [float((value > self._threshold) - (value < self._threshold))]


class _Input(NamedTuple):
    attribute: vehicle.Attribute
    labels: int  # how many it has; 0 for numbers
    first: int  # the label that has the first feature
    width: int  # features


@final
class LinearGradient:
    """The mean gradient of a linear model over the rows of a vehicle.

    Numbers and categories with listed labels can be features, and logistic, squared and hinge
    losses are known. It computes in double precision what the library computes in single precision.

    >>> age = {"name": "age", "size": 1, "low": 0.0, "high": 100.0, "missing": 50.0}
    >>> income = {**age, "name": "income"}
    >>> document = {"format": "fedldp model 1", "objective": "squared", "schema": [age]}
    >>> model = LinearGradient({**document, "target": income, "weights": [0.5, 0.25]})
    >>> model.answer([{"age": 75, "income": 100}])
    [-0.25, -0.5]
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        form = document.get("format")
        if form not in _MODELS:
            raise WireError(f"not a linear model: {vehicle.difference(form, _MODELS)}.")
        if not _ENTRIES <= document.keys() <= _ENTRIES | _OPTIONAL:
            raise WireError(f"a linear model has the entries {', '.join(sorted(_ENTRIES))}.")
        try:
            self._read(document)
        except vehicle.UNREADABLE as error:
            raise WireError(f"not a linear model: {error}") from None

    def _read(self, document: Mapping[str, Any]) -> None:
        self._document = document
        reference = document.get("reference", "first")
        if reference not in ("none", "first", "last"):
            raise ValueError(f"its reference is {reference!r:.80}")
        self._sparse = reference == "none"
        self._inputs = [_input(entry, reference) for entry in document["schema"]]
        target = _input(document["target"], "none")
        self._objective = document["objective"]
        if self._objective not in _SLOPES or (target.labels == 2) == (self._objective == "squared"):
            raise ValueError(
                f"this vehicle computes {', '.join(_SLOPES)}, with two labels or, for squared, a "
                f"number; got {self._objective!r:.80}"
            )
        if target.labels not in (0, 2) or target.width > 2:
            raise ValueError("its target must be a number or have two labels")
        self._target = target
        self._weights = [_number(weight, LARGEST_WEIGHT) for weight in document["weights"]]
        if len(self._weights) != 1 + sum(each.width for each in self._inputs):
            raise ValueError("it has another number of weights than of features")
        self._scale(document.get("scaling"))

    def _scale(self, scaling: Any) -> None:
        """Read how numbers are scaled, or leave them as they are."""
        self._factor, self._centres = 1.0, list[float]()
        self._matrix: list[list[float]] = []
        if scaling is None:
            return
        if (
            not {"centres", "factors"}
            <= scaling.keys()
            <= {
                "centres",
                "factors",
                "mixing",
                "target",
            }
        ):
            raise ValueError("its scaling has other entries")
        numbers = sum(each.width for each in self._inputs if not each.labels)
        centres = [_number(each, LARGEST_FACTOR) for each in scaling["centres"]]
        factors = [_number(each, LARGEST_FACTOR) for each in scaling["factors"]]
        mixing = scaling.get("mixing") or [
            [float(i == j) for j in range(len(factors))] for i in range(len(factors))
        ]
        if "target" in scaling:
            self._factor = _number(scaling["target"][1], LARGEST_FACTOR)
            if self._objective != "squared" or not self._factor > 0:
                raise ValueError("only the target of a linear regression can be mapped")
        if centres and not len(centres) == len(factors) == len(mixing) == numbers:
            raise ValueError("its scaling is for other numbers")
        self._centres = centres
        for row in mixing:
            if len(row) != len(factors):
                raise ValueError("its scaling is for other numbers")
            scaled = [_number(m, LARGEST_FACTOR) * f for m, f in zip(row, factors, strict=True)]
            self._matrix.append(scaled)

    @property
    def declaration(self) -> dict[str, Any]:
        """The objective and the attributes: all but the weights and the scaling."""
        return {
            "computes": "gradient",
            "objective": self._objective,
            "reference": self._document.get("reference", "first"),
            "schema": self._document["schema"],
            "target": self._document["target"],
        }

    @property
    def dimensions(self) -> int:
        """The number of weights."""
        return len(self._weights)

    def answer(self, rows: Row | Sequence[Row], word: int = 0) -> list[float]:
        """Return the mean gradient of the rows; of none, that of a row without values."""
        used = [rows] if isinstance(rows, Mapping) else list(rows)[:MOST_ROWS] or [{}]
        sums = [0.0] * self.dimensions
        for row in used:
            features = self.features(row)
            products = zip(self._weights, features, strict=True)
            score = math.fsum(weight * feature for weight, feature in products)
            slope = self._factor * _SLOPES[self._objective](score, self._goal(row))
            sums = [total + slope * x for total, x in zip(sums, features, strict=True)]
        return [total / len(used) for total in sums]

    def features(self, row: Row) -> list[float]:
        """Return the features of a row, with the constant 1 at the end."""
        found: list[float] = []
        places: list[int] = []
        for item in self._inputs:
            if not item.labels:
                places += range(len(found), len(found) + item.width)
                found += item.attribute.inputs(row)
                continue
            absent = 0.0 if self._sparse else -1.0
            own = int(item.attribute.find(row, 0)) - item.first
            found += [1.0 if place == own else absent for place in range(item.width)]
        if self._centres:
            moved = [found[p] - c for p, c in zip(places, self._centres, strict=True)]
            for place, line in zip(places, self._matrix, strict=True):
                found[place] = math.fsum(a * x for a, x in zip(line, moved, strict=True))
        return [*found, 1.0]

    def _goal(self, row: Row) -> float:
        value = self._target.attribute.find(row, 0)
        return 2.0 * value - 1.0 if self._target.labels else value


def _one_row(
    attributes: Sequence[vehicle.Attribute], rows: Row | Sequence[Row], word: int
) -> dict[str, Any]:
    if not isinstance(rows, Mapping):
        return vehicle.one_row(attributes, list(rows), word)
    names = {part.name for each in attributes for part in each.parts or (each,)}
    return {name: value for name, value in rows.items() if name in names}


def _input(document: Any, reference: str) -> _Input:
    """Read an attribute; refuse one whose features only the library knows."""
    plain = {key: document[key] for key in document if key not in ("constant", "rule")}
    attribute = vehicle.read_attribute(plain, 0)
    if attribute.newer:
        raise DomainError(
            f"this vehicle computes gradients of numbers and listed categories; {attribute.name!r} "
            "is another kind of attribute."
        )
    if not attribute.categories:
        return _Input(attribute, 0, 0, attribute.size)
    first = 1 if reference == "first" else 0
    return _Input(
        attribute, attribute.categories, first, attribute.categories - (reference != "none")
    )


def _logistic(score: float, goal: float) -> float:
    return 0.5 * (math.tanh(score * 0.5) - goal)


def _squared(score: float, goal: float) -> float:
    return score - goal


def _hinge(score: float, goal: float) -> float:
    return -goal if goal * score < 1.0 else 0.0


_SLOPES = {"logistic": _logistic, "squared": _squared, "hinge": _hinge}


def _number(value: Any, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= most:
        raise ValueError(f"a number must be within +-{most:g}; got {value!r:.80}")
    return float(value)


def work_for(plan: Mapping[str, Any], model: Mapping[str, Any] | None) -> VehicleWork:
    """Return what a question asks for; raise an error if this vehicle cannot compute it."""
    if model is None:
        return RowItself(plan)
    if (model.get("format"), model.get("asks")) == _SIDES:
        return Side(model)
    found = LinearGradient(model)
    [vector] = plan["schema"] if len(plan["schema"]) == 1 else [{}]
    if vector.get("size") != found.dimensions:
        raise WireError(
            f"the plan must be for the gradient of this model, a vector of {found.dimensions}."
        )
    return found
