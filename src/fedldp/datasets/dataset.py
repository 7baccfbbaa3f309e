"""Data sets: columns with a schema, compact in memory, encoded for a model as they are read."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, whole
from fedldp.data.quality import DataQuality
from fedldp.errors import DomainError
from fedldp.learn.examples import Rows, VehicleRows, rows_of
from fedldp.learn.features import Features, Singles, check_target, encode_target
from fedldp.learn.objectives import objective as named_objective
from fedldp.randomness import Source, source
from fedldp.schema import Category, Number, Schema

_ALL = slice(None)


@final
@dataclass(frozen=True)
class About:
    """What to know about a data set before it is there."""

    name: str
    title: str  # for people
    source: str  # where it comes from
    licence: str = ""
    citation: str = ""
    rows: int | None = None  # those of the published file, or those that are made by default
    dimensions: int | None = None  # features of a model, the constant included
    note: str = ""
    synthetic: bool = False

    def __post_init__(self) -> None:
        if self.synthetic and "SYNTHETIC" not in self.title:
            raise DomainError(f"the title of made-up data must say SYNTHETIC; got {self.title!r}.")


@final
@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows of numbers and categories, and which column each objective is after.

    >>> import fedldp.datasets
    >>> flights = fedldp.datasets.load("flights")
    >>> flights
    <Dataset Flights from New York, 2013: 327346 rows, 9 columns>
    >>> flights.matrix(slice(2), ["dep_delay", "carrier", "late"])
    array([[ 2., 11.,  0.],
           [ 4., 11.,  1.]])
    >>> features, targets = flights.examples("logistic").read(slice(2))
    >>> features.shape, targets
    ((2, 33), array([-1.,  1.]))
    """

    about: About
    schema: Schema  # of every column, those of targets included
    columns: tuple[npt.NDArray[Any], ...]  # of each attribute: numbers, or codes of categories
    targets: Mapping[str, str] = field(default_factory=dict)  # the column of each objective
    derived: tuple[str, ...] = ()  # columns made of others, which no vehicle is asked for
    vehicle_ids: npt.NDArray[np.integer[Any]] | None = None  # of each row, if some have several
    reference: str = Features.reference  # how categories become features: see `Features`

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 of the schema, the rows and whose they are, in hexadecimal."""
        # As version 0.1 wrote it: a training resumes only with data of the same fingerprint.
        text = f"(Schema(attributes={self.schema.attributes!r}), {dict(self.targets)!r})"
        found = hashlib.sha256(text.encode())
        if self.reference != Features.reference:
            found.update(self.reference.encode())
        for column in (*self.columns, *(() if self.vehicle_ids is None else (self.vehicle_ids,))):
            found.update(np.ascontiguousarray(column).data)
        return found.hexdigest()

    def __post_init__(self) -> None:
        if len(self.columns) != len(self.schema):
            raise DomainError(
                f"the schema has {len(self.schema)} attributes; got {len(self.columns)} columns."
            )
        lengths = {len(column) for column in self.columns}
        if self.vehicle_ids is not None:
            lengths.add(len(self.vehicle_ids))
        if len(lengths) > 1:
            raise DomainError(
                f"columns and vehicle_ids must have one length; got {sorted(lengths)}."
            )
        for attribute, column in zip(self.schema.attributes, self.columns, strict=True):
            _check_column(attribute, column)
        for name in (*self.targets.values(), *self.derived):
            self.schema[name]  # refuses what is not there

    @property
    def name(self) -> str:
        """What `load` calls it."""
        return self.about.name

    @property
    def title(self) -> str:
        """What to call it before people."""
        return self.about.title

    def __len__(self) -> int:
        return len(self.columns[0])

    def __repr__(self) -> str:
        return f"<Dataset {self.title}: {len(self)} rows, {len(self.schema)} columns>"

    @cached_property
    def asked(self) -> Schema:
        """What a vehicle is asked for in statistics: every column that is not made of others."""
        return _without(self.schema, self.derived)

    @cached_property
    def features(self) -> Features:
        """The features of a model: of every column that is no target."""
        return Features(_without(self.schema, tuple(self.targets.values())), self.reference)

    @property
    def dimensions(self) -> int:
        """How many features there are, the constant included."""
        return self.features.dimensions

    @cached_property
    def quality(self) -> DataQuality:
        """What a vehicle clips in these rows; nothing is missing in a data set."""
        numbers = tuple(each for each in self.schema.attributes if isinstance(each, Number))
        if not numbers:
            return DataQuality(len(self), ())
        return Schema(numbers).check({each.name: self._column(each.name) for each in numbers})

    def matrix(self, rows: Rows = _ALL, names: Sequence[str] | None = None) -> Floats:
        """Return some rows of the named columns, or of all, as `Schema.rows(...).matrix` does."""
        chosen = self.schema.attributes if names is None else [self.schema[name] for name in names]
        parts = [self._column(attribute.name)[rows] for attribute in chosen]
        matrix = np.empty((len(parts[0]), sum(attribute.size for attribute in chosen)))
        place = 0
        for attribute, part in zip(chosen, parts, strict=True):
            matrix[:, place : place + attribute.size] = part.reshape(len(part), -1)
            place += attribute.size
        return matrix

    def _column(self, name: str) -> npt.NDArray[Any]:
        return self.columns[self.schema.names.index(name)]

    def take(self, rows: Rows) -> "Dataset":
        """Return the data set of some of the rows."""
        return replace(
            self,
            columns=tuple(column[rows] for column in self.columns),
            vehicle_ids=None if self.vehicle_ids is None else self.vehicle_ids[rows],
        )

    def split(self, share: float) -> tuple["Dataset", "Dataset"]:
        """Return the fleet and the share that is held out: whole vehicles, the same every time.

        The vehicles of both are in a random order.
        """
        grouped = None if self.vehicle_ids is None else VehicleRows(self.vehicle_ids)
        vehicles = len(self if grouped is None else grouped)
        held = max(1, round(share * vehicles)) if 0 < share < 1 else vehicles
        if held >= vehicles:
            raise DomainError(
                f"of {vehicles} vehicles, a hold-out of {share:g} leaves none to train with: "
                "give more data, or lower the share."
            )
        order = np.argsort(chance("hold-out", 0).words(vehicles), kind="stable")
        fleet, public = (
            self.take(rows_of(grouped, part)[0]) for part in (order[held:], order[:held])
        )
        return fleet, public

    def examples(self, objective: str) -> "EncodedRows":
        """Return the features and targets that an objective trains on."""
        classifies = named_objective(objective).classifies
        if objective not in self.targets:
            raise DomainError(
                f"{self.name} has no target for {objective!r}; "
                f"it has targets for {list(self.targets)}."
            )
        target = self.schema[self.targets[objective]]
        check_target(target, classifies)
        return EncodedRows(self, target)


@final
@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Features and targets of a data set, encoded as they are read. Made by `Dataset.examples`."""

    data: Dataset
    target: Number | Category

    @property
    def dimensions(self) -> int:
        """How many features there are, the constant included."""
        return self.data.dimensions

    def __len__(self) -> int:
        return len(self.data)

    def read(self, rows: Rows) -> tuple[Singles, Floats]:
        """Return the features of some rows, each on the scale of [-1, 1], and their targets."""
        features = self.data.features
        encoded = features.encode(self.data.matrix(rows, features.schema.names))
        return encoded, encode_target(
            self.target, self.data.matrix(rows, (self.target.name,))[:, 0]
        )


def chance(name: str, seed: int) -> Source:
    """Return where the rows of a made-up set come from.

    The seed alone would give the stream that a simulation with this seed draws its noise from.
    """
    seed = whole(seed, "seed")
    text = f"fedldp data set {name}: {seed}"
    return source(int.from_bytes(hashlib.sha256(text.encode()).digest()))


def _without(schema: Schema, names: tuple[str, ...]) -> Schema:
    return Schema(
        tuple(attribute for attribute in schema.attributes if attribute.name not in names)
    )


def _check_column(attribute: Number | Category, column: npt.NDArray[Any]) -> None:
    """Refuse what would be encoded as something else than it is."""
    shape = (len(column), attribute.size) if attribute.size > 1 else (len(column),)
    if column.shape != shape:
        raise DomainError(
            f"column {attribute.name!r} must have the shape {shape}; got {column.shape}."
        )
    if isinstance(attribute, Number):
        if column.dtype.kind not in "iuf" or np.isnan(column).any():
            raise DomainError(f"column {attribute.name!r} must hold numbers, none of them NaN.")
        return
    number = len(attribute.categories)
    if column.dtype.kind not in "iu" or (
        len(column) and not 0 <= column.min() <= column.max() < number
    ):
        raise DomainError(
            f"column {attribute.name!r} must hold codes of its categories, from 0 to {number - 1}."
        )
