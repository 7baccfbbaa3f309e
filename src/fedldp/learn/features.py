"""From the attributes of a vehicle to the input of a linear model: features and a target.

A number becomes a feature on the scale of [-1, 1], or what a public `Scaling` makes of it. With
`reference="none"` a category becomes a feature for each of its labels: 1 for the label of the row,
0 for the others. Such features are never written out: a row holds its numbers and its labels.

As in the paper, a category with a labels can also become a - 1 features of -1 or 1. One label, the
reference, is -1 in all of them: the first or, in the paper, the last. The constant 1 comes last;
its weight is the intercept.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, Integers, is_real
from fedldp._internal.vectors import without_tiny
from fedldp.errors import DomainError
from fedldp.schema.attributes import Attribute
from fedldp.schema.schema import Schema

Singles = npt.NDArray[np.float32]

REFERENCES = ("none", "first", "last")  # which label of a category has no feature of its own
LARGEST_FACTOR = 1e6  # of a scaling, so that features stay finite in 32 bits


@final
@dataclass(frozen=True)
class Scaling:
    """A public affine map of the numbers of a row: z = M (u - c), with u on the scale of [-1, 1].

    `fedldp.learn.survey` finds one that gives the numbers the mean 0 and the mean square 1, and
    makes them uncorrelated. For a linear regression it also finds a map of the target. Without
    centers, the numbers stay as they are, and only the target is mapped.

    Parameters
    ----------
    centres : tuple of float
        c, a center for each number.
    factors : tuple of float
        The diagonal of M, a factor for each number.
    mixing : tuple of tuples of float, optional
        A matrix; if given, M is this matrix times the diagonal matrix of the factors.
    target : tuple of float, optional
        The center and the factor of the target of a linear regression. Vehicles multiply their
        gradients by the factor, and the server learns the model of the mapped target.

    Raises
    ------
    DomainError
        If the lengths differ, or a number is too large.

    Examples
    --------
    >>> scaling = Scaling((0.5, 0.0), (4.0, 1.0))
    >>> scaling(np.array([[0.75, -0.25]]))
    array([[ 1.  , -0.25]])
    >>> scaling.to_document()
    {'centres': (0.5, 0.0), 'factors': (4.0, 1.0)}
    """

    centres: tuple[float, ...]
    factors: tuple[float, ...]
    mixing: tuple[tuple[float, ...], ...] | None = None
    target: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        p, rows = len(self.centres), () if self.mixing is None else self.mixing
        if len(self.factors) != p or (self.mixing is not None and len(rows) != p):
            raise DomainError("a scaling needs a center, a factor and a row for each number.")
        if any(len(row) != p for row in rows):
            raise DomainError(f"each row of a scaling's mixing must have {p} numbers.")
        target = () if self.target is None else self.target
        if self.target is not None and (len(target) != 2 or not target[1] > 0):
            raise DomainError(
                f"the target of a scaling must be a center and a positive factor; got {target!r}."
            )
        numbers = *self.centres, *self.factors, *(number for row in rows for number in row), *target
        for value in numbers:
            if not is_real(value) or not abs(value) <= LARGEST_FACTOR:
                raise DomainError(
                    f"a scaling must have numbers within +-{LARGEST_FACTOR:g}; got {value!r}."
                )

    def __call__(self, units: Floats) -> Floats:
        """Return the features of some rows of numbers."""
        found: Floats = (units - np.array(self.centres)) * np.array(self.factors)
        if self.mixing is not None:
            found = found @ np.array(self.mixing).T
        return found

    @property
    def matrix(self) -> Floats:
        """The matrix M."""
        diagonal = np.diag(np.array(self.factors))
        return diagonal if self.mixing is None else np.array(self.mixing) @ diagonal

    def to_document(self) -> dict[str, Any]:
        """Return the scaling as plain values.

        Returns
        -------
        dict
            The entries that a file has.
        """
        found: dict[str, Any] = {"centres": self.centres, "factors": self.factors}
        optional = {"mixing": self.mixing, "target": self.target}
        return found | {name: value for name, value in optional.items() if value is not None}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Scaling":
        """Read a scaling from plain values.

        Parameters
        ----------
        document : dict
            Entries as `to_document` returns them.

        Returns
        -------
        Scaling
            The scaling.

        Raises
        ------
        DomainError, TypeError, LookupError
            If the entries are invalid.

        Examples
        --------
        >>> Scaling.from_document({"centres": [0.5], "factors": [4.0]}).factors
        (4.0,)
        """
        if not document.keys() <= {"centres", "factors", "mixing", "target"}:
            raise DomainError(
                "a scaling must have no other entries than centres, factors, mixing and target; "
                f"got {', '.join(document)}."
            )
        mixing, target = document.get("mixing"), document.get("target")
        return cls(
            tuple(document["centres"]),
            tuple(document["factors"]),
            None if mixing is None else tuple(tuple(row) for row in mixing),
            None if target is None else tuple(target),
        )

    @property
    def of_numbers(self) -> "Scaling | None":
        """The map of the numbers alone; None if they stay as they are."""
        if self.target is None:
            return self
        return Scaling(self.centres, self.factors, self.mixing) if self.centres else None

    def weights_for_target(self, weights: Floats) -> Floats:
        """Return the weights of a linear model that predicts the target itself.

        Parameters
        ----------
        weights : ndarray of shape (..., features)
            The weights of a model of the mapped target; the last one is the intercept.

        Returns
        -------
        ndarray of shape (..., features)
            The weights, on the scale of [-1, 1].

        Examples
        --------
        >>> Scaling((), (), target=(0.5, 2.0)).weights_for_target(np.array([[1.0, -0.5]]))
        array([[0.5 , 0.25]])
        """
        if self.target is None:
            return weights
        centre, factor = self.target
        found: Floats = weights / factor
        found[..., -1] += centre
        return found


@final
@dataclass(frozen=True, eq=False)
class SparseFeatures:
    """Features of some rows, of which most are zero: their numbers, and the place of each label.

    What it takes does not depend on how many labels there are. The constant is in the last place.

    >>> features = SparseFeatures(4, np.array([0]), np.array([[0.5], [-1.0]]), np.array([[2], [1]]))
    >>> features.dense()
    array([[ 0.5,  0. ,  1. ,  1. ],
           [-1. ,  1. ,  0. ,  1. ]])
    >>> features.scores(np.array([[1.0, 10.0, 20.0, 0.25]]))
    array([[20.75,  9.25]])
    """

    dimensions: int
    places: Integers  # of the numbers
    numbers: npt.NDArray[Any]  # a row of numbers for each row
    labels: npt.NDArray[Any]  # a row of places, one for each category

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def shape(self) -> tuple[int, int]:
        """That of the features, written out."""
        return len(self), self.dimensions

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers."""
        return self.numbers.dtype

    def __getitem__(self, rows: slice | Integers) -> "SparseFeatures":
        return SparseFeatures(self.dimensions, self.places, self.numbers[rows], self.labels[rows])

    def scores(self, weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the products with each row of weights, in a row for each."""
        found: npt.NDArray[Any] = weights[:, self.places] @ self.numbers.T
        for places in self.labels.T:
            found += weights.take(places, axis=1)
        found += weights[:, -1:]
        return found

    @cached_property
    def columns(self) -> Integers:
        """The places of all that is not zero, in a row for each row: numbers, labels, constant."""
        found = np.empty((len(self), self.places.size + self.labels.shape[1] + 1), np.int64)
        found[:, : self.places.size] = self.places
        found[:, self.places.size : -1] = self.labels
        found[:, -1] = self.dimensions - 1
        return found

    @cached_property
    def values(self) -> npt.NDArray[Any]:
        """What is in these places."""
        found = np.ones(self.columns.shape, self.dtype)
        found[:, : self.places.size] = self.numbers
        return found

    def at(self, columns: Integers) -> npt.NDArray[Any]:
        """Return of each row the feature in a place; there may be several such lists of places."""
        found = np.zeros(columns.shape, self.dtype)
        for places, values in zip(self.columns.T, self.values.T, strict=True):
            np.copyto(found, values, where=columns == places)
        return found

    def dense(self) -> npt.NDArray[Any]:
        """Return the features, written out: for few rows, or few labels."""
        found = np.zeros(self.shape, self.dtype)
        np.put_along_axis(found, self.columns, self.values, axis=1)
        return found


FeatureRows = Singles | SparseFeatures


def written_out(features: FeatureRows) -> Singles:
    """Return features as an array: for few rows, or few labels."""
    return features.dense() if isinstance(features, SparseFeatures) else features


@final
@dataclass(frozen=True)
class Features:
    """The features that are made from the attributes of a schema, followed by the constant 1.

    Parameters
    ----------
    schema : Schema
        The attributes.
    reference : {"first", "last", "none"}, default="first"
        Which label of a category has no feature of its own: it is -1 in all features of the
        category, which are -1 or 1 otherwise. The paper uses the last. With "none", each label has
        a feature, which is 0 or 1.
    scaling : Scaling, optional
        How the numbers are scaled, as `fedldp.learn.survey` finds it.
    booleans : tuple of str, default=()
        The names of numbers that are only 0 or 1. They are neither surveyed nor scaled.

    Raises
    ------
    DomainError
        If the reference is unknown, or the scaling is for another number of features.

    Examples
    --------
    >>> schema = Schema.of(age=(0, 100), city=["Oslo", "Rome", "Lima"])
    >>> features = Features(schema)
    >>> features.names
    ('age', 'city=Rome', 'city=Lima', '1')
    >>> features.encode(schema.rows([{"age": 75, "city": "Lima"}, {"age": 0}]).matrix())
    array([[ 0.5, -1. ,  1. ,  1. ],
           [-1. , -1. , -1. ,  1. ]], dtype=float32)
    >>> Features(schema, reference="last").names  # the paper's coding
    ('age', 'city=Oslo', 'city=Rome', '1')
    >>> features = Features(schema, reference="none")
    >>> features.encode(schema.rows([{"age": 75, "city": "Lima"}]).matrix()).dense()
    array([[0.5, 0. , 0. , 1. , 1. ]], dtype=float32)
    >>> features.units(schema.rows([{"age": 75, "city": "Lima"}]).matrix())
    array([[0.5]])
    """

    schema: Schema
    reference: str = "first"
    scaling: Scaling | None = None
    booleans: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.reference not in REFERENCES:
            raise DomainError(f"reference must be one of {REFERENCES}; got {self.reference!r}.")
        if self.scaling is not None and len(self.scaling.centres) not in self._allowed_centres:
            raise DomainError(
                f"the scaling must be of {self.numbers} numbers; got {len(self.scaling.centres)}."
            )

    @property
    def _allowed_centres(self) -> tuple[int, ...]:
        """How many centres a scaling may have: none if it maps the target only."""
        mapped = self.scaling is not None and self.scaling.target is not None
        return (self.numbers, 0) if mapped else (self.numbers,)

    @property
    def standardized(self) -> bool:
        """Whether a survey has scaled the numbers."""
        return self.scaling is not None and len(self.scaling.centres) == self.numbers

    @cached_property
    def numeric(self) -> Schema:
        """The attributes of the schema that are numbers."""
        return Schema(tuple(each for each in self.schema.attributes if not each.feature_labels))

    @property
    def numbers(self) -> int:
        """How many of the features are numbers that a survey asks for."""
        every = sum(each.size for each in self.schema.attributes if not each.feature_labels)
        return every - len(self.booleans)

    @cached_property
    def scaled(self) -> Integers:
        """The places among the features of the numbers that a survey asks for."""
        asked = [each.name not in self.booleans for each in self.schema.attributes] + [True]
        return np.flatnonzero(self.kinds[0] & np.repeat(asked, self._widths))

    @property
    def _first(self) -> int:
        """The code of the label that has the first feature of its category."""
        return 1 if self.reference == "first" else 0

    def _width(self, attribute: Attribute) -> int:
        """Return how many features an attribute becomes."""
        if not attribute.feature_labels:
            return attribute.size
        return len(attribute.feature_labels) - (self.reference != "none")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each feature."""
        found: list[str] = []
        for each in self.schema.attributes:
            if each.feature_labels:
                labels = each.feature_labels[self._first :][: self._width(each)]
                found += [f"{each.name}={label}" for label in labels]
            else:
                found += [each.coordinate_name(place) for place in range(each.size)]
        return (*found, "1")

    @property
    def dimensions(self) -> int:
        """The number of features. It is computed without their names, which a file may inflate."""
        return 1 + sum(map(self._width, self.schema.attributes))

    @cached_property
    def kinds(self) -> tuple[npt.NDArray[np.bool_], Integers]:
        """For each feature, whether it is a number, and how many labels its category has, or 0."""
        labels = [len(each.feature_labels) for each in self.schema.attributes] + [0]
        numbers = [not each.feature_labels for each in self.schema.attributes] + [False]
        return np.repeat(numbers, self._widths), np.repeat(labels, self._widths)

    @property
    def _widths(self) -> list[int]:
        """How many features each attribute and the constant become."""
        return [*map(self._width, self.schema.attributes), 1]

    def encode(self, matrix: npt.NDArray[Any]) -> FeatureRows:
        """Return the features of some rows.

        Numbers outside the bounds count as the bound, missing values as the public default.

        Parameters
        ----------
        matrix : ndarray of shape (rows, width)
            The rows, as `Schema.rows(data).matrix()` returns them.

        Returns
        -------
        ndarray of float32 of shape (rows, dimensions) or SparseFeatures
            The features, with the constant 1 in the last column; without the zeros for the
            reference "none".
        """
        if self.reference == "none":
            return self._encode_sparse(matrix)
        encoded = np.empty((len(matrix), self.dimensions), np.float32)
        encoded[:, -1] = 1.0
        place = 0
        for encoder, values in self._columns(matrix):
            width = self._width(encoder)
            if encoder.feature_labels:
                encoded[:, place : place + width] = -1.0
                own = _codes(encoder, values) - self._first  # column of the label
                rows = np.flatnonzero((own >= 0) & (own < width))
                encoded[rows, place + own[rows]] = 1.0
            else:
                encoded[:, place : place + width] = encoder.to_features(values)
            place += width
        if self.scaling is not None and self.standardized:
            places = self.scaled
            scaled = self.scaling(encoded[:, places].astype(np.float64))
            encoded[:, places] = without_tiny(scaled)
        return encoded

    def units(self, matrix: npt.NDArray[Any]) -> Floats:
        """Return the numbers of some rows on the scale of [-1, 1], without categories.

        Parameters
        ----------
        matrix : ndarray of shape (rows, width)
            The rows, as `Schema.rows(data).matrix()` returns them.

        Returns
        -------
        ndarray of shape (rows, numbers)
            The numbers, before scaling.
        """
        found = self._numbers(matrix)
        return found[:, self._surveyed] if self.booleans else found

    def in_own_units(self, matrix: npt.NDArray[Any]) -> npt.NDArray[Any] | SparseFeatures:
        """Return the features of some rows, with numbers as they are: not clipped and not scaled.

        Parameters
        ----------
        matrix : ndarray of shape (rows, width)
            The rows, as `Schema.rows(data).matrix()` returns them.

        Returns
        -------
        ndarray of shape (rows, dimensions) or SparseFeatures
            The features, as `encode` returns them.

        Examples
        --------
        >>> schema = Schema.of(age=(0, 100), city=["Oslo", "Rome", "Lima"])
        >>> Features(schema).in_own_units(schema.rows([{"age": 75, "city": "Lima"}]).matrix())
        array([[75., -1.,  1.,  1.]])
        """
        found = replace(self, scaling=None).encode(matrix)
        numeric = [not each.feature_labels for each in self.schema.attributes]
        numbers = matrix[:, np.repeat(numeric, [each.size for each in self.schema.attributes])]
        if isinstance(found, SparseFeatures):
            return replace(found, numbers=numbers)
        found = found.astype(np.float64)
        found[:, np.flatnonzero(self.kinds[0])] = numbers
        return found

    def weights_in_own_units(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return the coefficients and the intercepts of a linear model for rows as they are.

        Parameters
        ----------
        weights : ndarray of shape (scores, dimensions)
            The weights of each score, for features as `encode` returns them.

        Returns
        -------
        coefficients : ndarray of shape (scores, dimensions - 1)
            The coefficients of the features that `in_own_units` returns.
        intercepts : ndarray of shape (scores,)
            The intercepts.

        Examples
        --------
        >>> Features(Schema.of(age=(0, 100))).weights_in_own_units(np.array([[1.0, 0.0]]))
        (array([[0.02]]), array([-1.]))
        """
        slopes, intercepts = weights[:, :-1], weights[:, -1]
        if self.scaling is not None and self.standardized:
            places, slopes = self.scaled, slopes.copy()
            slopes[:, places] = slopes[:, places] @ self.scaling.matrix
            intercepts = intercepts - slopes[:, places] @ np.array(self.scaling.centres)
        centers, scales = self._centers_and_scales
        coefficients = slopes * scales
        return coefficients, intercepts - coefficients @ centers

    def deviations_in_own_units(self, deviations: Floats) -> Floats:
        """Return the standard deviations of the coefficients that `weights_in_own_units` returns.

        Parameters
        ----------
        deviations : ndarray of shape (scores, dimensions)
            The standard deviations of the weights, which are taken to be independent.

        Returns
        -------
        ndarray of shape (scores, dimensions - 1)
            The standard deviations of the coefficients.

        Examples
        --------
        >>> Features(Schema.of(age=(0, 100))).deviations_in_own_units(np.array([[1.0, 0.5]]))
        array([[0.02]])
        """
        variances = deviations[:, :-1] ** 2
        if self.scaling is not None and self.standardized:
            places = self.scaled
            variances[:, places] = variances[:, places] @ self.scaling.matrix**2
        _, scales = self._centers_and_scales
        return np.asarray(np.sqrt(variances) * scales)

    @property
    def _centers_and_scales(self) -> Floats:
        """The centers of the features but the constant, and in a second row their scales."""
        pairs = [attribute.inputs.scaling for attribute in self.schema.attributes]
        return np.repeat(np.array(pairs).T, self._widths[:-1], axis=1)

    def _numbers(self, matrix: npt.NDArray[Any]) -> Floats:
        """Return all numbers of some rows on the scale of [-1, 1]."""
        found = np.empty((len(matrix), int(self.kinds[0].sum())))
        place = 0
        for each, values in self._columns(matrix):
            if not each.feature_labels:
                found[:, place : place + each.size] = each.to_features(values)
                place += each.size
        return found

    @cached_property
    def _surveyed(self) -> npt.NDArray[np.bool_]:
        """For each number, whether a survey asks for it."""
        return np.isin(np.flatnonzero(self.kinds[0]), self.scaled)

    def _encode_sparse(self, matrix: npt.NDArray[Any]) -> SparseFeatures:
        categories = sum(1 for attribute in self.schema.attributes if attribute.feature_labels)
        labels = np.empty((len(matrix), categories), np.int32)
        place = category = 0
        for encoder, values in self._columns(matrix):
            if encoder.feature_labels:
                labels[:, category] = place + _codes(encoder, values)
                category += 1
            place += self._width(encoder)
        numbers = self._numbers(matrix)
        if self.scaling is not None and self.standardized:
            if self.booleans:
                numbers[:, self._surveyed] = self.scaling(numbers[:, self._surveyed])
            else:
                numbers = self.scaling(numbers)
            numbers = without_tiny(numbers)
        places = np.flatnonzero(self.kinds[0])
        return SparseFeatures(self.dimensions, places, numbers.astype(np.float32), labels)

    def _columns(self, matrix: npt.NDArray[Any]) -> Iterator[tuple[Attribute, npt.NDArray[Any]]]:
        """Yield each attribute with its columns of a matrix."""
        column = 0
        for each in self.schema.attributes:
            yield each, matrix[:, column : column + each.size]
            column += each.size


def encode_target(attribute: Attribute, values: npt.NDArray[Any]) -> Floats:
    """Return targets in [-1, 1]: a number's scaled, and -1 or 1 for the two labels of a category.

    >>> from fedldp import Category
    >>> encode_target(Category("late", ["no", "yes"]), np.array([0.0, 1.0, np.nan]))
    array([-1.,  1., -1.])
    """
    found = attribute.to_features(values)
    return 2.0 * found - 1.0 if attribute.feature_labels else found


def _codes(attribute: Attribute, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the number of each row's label."""
    return attribute.to_features(values[:, 0]).astype(np.int64)


def check_target(attribute: Attribute, classifies: bool) -> None:
    """Raise an error if an objective cannot have this target."""
    if classifies and len(attribute.feature_labels) != 2:
        raise DomainError(
            f"the target {attribute.name!r} must be a category with two labels to be classified; "
            f"got {attribute!r:.200}. For a number use linear regression, or make two labels of it."
        )
    if not classifies and (attribute.feature_labels or attribute.size > 1):
        raise DomainError(
            f"the target {attribute.name!r} of a linear regression must be one number with "
            f"bounds; got {attribute!r:.200}. For two labels use logistic regression or an SVM."
        )
