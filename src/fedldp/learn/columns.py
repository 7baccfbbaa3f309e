"""Columns of X: what the parameter `bounds` of the estimators declares, and rows as features."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from fedldp._internal.text import unknown
from fedldp._internal.validation import Floats, is_real, reals
from fedldp.errors import DomainError
from fedldp.learn.examples import Array, Rows
from fedldp.learn.features import FeatureRows, Features, Scaling, Singles, SparseFeatures
from fedldp.schema.attributes import Attribute, Category, Number
from fedldp.schema.attributes.base import Labelled
from fedldp.schema.frames import Frame
from fedldp.schema.quality import DataQuality
from fedldp.schema.schema import Schema

_ENTRY = 'An entry is (low, high), a list of labels such as ["Oslo", "Rome"], or bool.'
_BY_COLUMN = ' A data frame has them by column: {"age": (0, 120), "city": ["Oslo", "Rome"]}.'
_FORMS = (
    "Give (low, high) for all columns of numbers, two lists in round brackets ([low, ...], "
    "[high, ...]), a list with an entry for each column, or a dict with an entry for each name. "
    + _ENTRY
)


def named_columns(X: Any) -> Frame | None:
    """Return a data frame whose columns have names; None for other data."""
    if not hasattr(type(X), "columns"):
        return None
    names = getattr(X, "column_names", X.columns)  # `columns` of pyarrow are no names
    return Frame(X) if all(isinstance(name, str) for name in names) else None


def declares_labels(bounds: Any) -> bool:
    """Return whether bounds may declare labels, so that X need not be an array of numbers."""
    if isinstance(bounds, list) and not _are_two_numbers(bounds):
        return not all(entry is bool or _are_two_numbers(entry) for entry in bounds)
    return isinstance(bounds, Mapping)


def declared_features(bounds: Any, X: Any, estimator: str) -> Features:
    """Return the features that the columns of X become, by their public bounds and labels."""
    frame, declared = named_columns(X), {}
    if frame is not None:
        names = list(frame.names)
        declared = {
            name: declaration for name in names if (declaration := _declared_by_type(frame, name))
        }
    elif isinstance(bounds, Mapping):
        raise DomainError(f"bounds by name need a data frame; X has no names. {_FORMS}")
    elif _are_two_numbers(bounds):
        low, high = bounds
        return Features(Schema((Number("X", low, high, size=X.shape[1]),)))
    else:
        names = [f"X[:, {place}]" for place in range(X.shape[1])]
    entries = _entries(bounds, names, declared, estimator)
    schema = Schema(tuple(map(_attribute, names, entries)))
    booleans = tuple(name for name, entry in zip(names, entries, strict=True) if entry is bool)
    has_labels = any(attribute.feature_labels for attribute in schema.attributes)
    return Features(schema, "none" if has_labels else "first", booleans=booleans)


def read_columns(features: Features, X: Any) -> tuple[Floats, DataQuality]:
    """Return a row of numbers and codes of labels for each row of X, and what is replaced."""
    matrix, quality = features.schema.rows(X).read()
    for place, attribute in enumerate(features.schema.attributes):
        invalid = ~np.isfinite(matrix[:, place])
        if attribute.name in features.booleans:
            matrix[invalid, place] = 0.0
        elif not attribute.feature_labels and invalid.any():
            attribute_quality, row = quality[attribute.name], int(invalid.argmax())
            hint = " Fill in a public value, such as the middle of the bounds."
            if attribute_quality.unreadable:
                hint = ' Declare labels in square brackets, such as ["Oslo", "Rome"].'
            raise DomainError(
                f"column {attribute.name!r} must have a finite number in every row; "
                f"{attribute_quality.example or f'row {row}: {matrix[row, place]}'}.{hint}"
            )
    return matrix, quality


def linear_scores(
    features: Features, matrix: Array, coefficients: Array, intercepts: Array
) -> Floats:
    """Return a row of scores for each row, given coefficients for rows in their own units."""
    if not features.kinds[1].any():  # there are numbers only
        return np.asarray(matrix @ coefficients.T + intercepts)
    rows, weights = features.in_own_units(matrix), np.column_stack([coefficients, intercepts])
    if isinstance(rows, SparseFeatures):
        return np.asarray(rows.scores(weights).T)
    return np.asarray(rows @ weights.T)


def public_pair(ends: Any, keyword: str, estimator: str) -> tuple[Any, Any]:
    """Return the two ends of public bounds, or raise an error that says why they are needed."""
    if ends is None:
        raise DomainError(
            f"{estimator} needs {keyword}=(low, high), the smallest and the largest possible value."
            " Bounds are public and must come from you, never from the data: the extremes of the "
            "data would reveal the values of single vehicles. Use what is known without the data, "
            "such as (0, 120) for an age; a value outside counts as the bound."
            f"{_BY_COLUMN if keyword == 'bounds' else ''}"
        )
    if not isinstance(ends, list | tuple | np.ndarray) or len(ends) != 2:
        raise DomainError(f"{keyword} must be a pair (low, high); got {ends!r:.60}.")
    return ends[0], ends[1]


@final
@dataclass(frozen=True, eq=False)
class EncodedMatrix:
    """Rows whose features are scaled when they are read, without a second copy of X."""

    encoding: Features
    matrix: Array
    targets: Singles

    @property
    def dimensions(self) -> int:
        """The number of features, including the constant."""
        return self.encoding.dimensions

    def __len__(self) -> int:
        return len(self.matrix)

    def units(self, rows: Rows) -> Floats:
        """Return the numbers of some rows on the scale of [-1, 1]."""
        return self.encoding.units(self.matrix[rows])

    def scaled(self, scaling: Scaling) -> "EncodedMatrix":
        """Return the same rows with another scaling of their numbers."""
        return replace(self, encoding=replace(self.encoding, scaling=scaling))

    def read(self, rows: Rows) -> tuple[FeatureRows, Any]:
        """Return the features and the targets of some rows."""
        return self.encoding.encode(self.matrix[rows]), self.targets[rows]


def _declared_by_type(frame: Frame, name: str) -> Any:
    """Return bool or the category that the type of a column declares, or None."""
    declared = frame.declared(name)
    return Category(name, tuple(declared)) if isinstance(declared, list) else declared


def _entries(
    bounds: Any, names: Sequence[str], declared: Mapping[str, Any], estimator: str
) -> list[Any]:
    """Return what is declared about each column: an entry as in `Schema.of`, or bool."""
    if isinstance(bounds, Mapping):
        return _entries_by_name(bounds, names, declared)
    if isinstance(bounds, list) and not _are_two_numbers(bounds):
        if len(bounds) != len(names):
            raise DomainError(
                f"bounds as a list must have an entry for each of the {len(names)} columns; got "
                f"{len(bounds)}. {_ENTRY}"
            )
        return bounds
    ends = public_pair(bounds, "bounds", estimator)
    columns = [name for name in names if name not in declared]
    try:
        if isinstance(bounds, np.ndarray) or any(isinstance(end, tuple) for end in ends):
            raise ValueError  # it could be pairs, or two lists of ends
        lows, highs = (np.broadcast_to(reals(end, "bounds"), len(columns)) for end in ends)
    except ValueError:
        raise DomainError(
            f"bounds must be (low, high), or two lists with a number for each of the "
            f"{len(columns)} columns of numbers; got {bounds!r:.60}. {_FORMS}"
        ) from None
    pairs = dict(zip(columns, zip(lows.tolist(), highs.tolist(), strict=True), strict=True))
    return [declared[name] if name in declared else pairs[name] for name in names]


def _entries_by_name(
    bounds: Mapping[str, Any], names: Sequence[str], declared: Mapping[str, Any]
) -> list[Any]:
    """Return what is declared about each column, given entries by name."""
    for name in bounds:
        if name not in names:
            raise unknown("column", name, names)
    entries = {**declared, **bounds}
    if lacking := [name for name in names if name not in entries]:
        raise DomainError(
            f"bounds have no entry for {', '.join(map(repr, lacking)):.300}. Bounds and labels are "
            f"public: they come from you, never from the data. {_ENTRY}"
        )
    return [entries[name] for name in names]


def _attribute(name: str, entry: Any) -> Attribute:
    """Return a column as an attribute, given its entry."""
    if entry is bool:
        return Number(name, -1, 1)  # so that 0 stays 0
    attribute = Schema.of(**{name: entry})[name]
    if isinstance(attribute, Labelled) or (type(attribute) is Number and attribute.size == 1):
        return attribute
    raise DomainError(f"column {name!r} must be one number or have labels; got {attribute!r:.200}.")


def _are_two_numbers(bounds: Any) -> bool:
    """Return whether bounds are those of all columns."""
    return isinstance(bounds, list | tuple) and len(bounds) == 2 and all(map(is_real, bounds))
