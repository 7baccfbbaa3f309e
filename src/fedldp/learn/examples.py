"""Training data: rows of features with a target, and which rows each vehicle has."""

from dataclasses import dataclass
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, Integers
from fedldp.errors import DomainError
from fedldp.learn.features import FeatureRows, Features, Scaling

Array = npt.NDArray[Any]
Rows = slice | Integers


class Examples(Protocol):
    """Rows of features in [-1, 1] and their targets. Callers do not modify what they read."""

    @property
    def dimensions(self) -> int:
        """The number of features of a row."""

    def __len__(self) -> int: ...

    def read(self, rows: Rows) -> tuple[FeatureRows, Floats]:
        """Return the features, C-contiguous, and the targets of some rows."""


@runtime_checkable
class Surveyed(Examples, Protocol):
    """Examples whose features are encoded as they are read, so that numbers can be scaled."""

    @property
    def encoding(self) -> Features:
        """How a row becomes features."""

    def units(self, rows: Rows) -> Floats:
        """Return the numbers of some rows on the scale of [-1, 1], before any scaling."""

    def scaled(self, scaling: Scaling) -> "Surveyed":
        """Return the same rows with another scaling of their numbers."""


@final
@dataclass(frozen=True, eq=False)
class Arrays:
    """Rows of features and targets in memory.

    Parameters
    ----------
    features : ndarray of shape (rows, features)
        The features, in [-1, 1]. The last one is usually the constant 1, whose weight is the
        intercept.
    targets : ndarray of shape (rows,)
        The targets: in [-1, 1] for a regression, -1 or 1 for a classification with two labels,
        the position of the label (0, 1, ...) for softmax.

    Raises
    ------
    DomainError
        If the shapes do not fit together.

    Examples
    --------
    >>> rows = Arrays(np.array([[0.5, 1.0], [-0.5, 1.0]]), np.array([1.0, -1.0]))
    >>> len(rows), rows.dimensions
    (2, 2)
    >>> rows.read(slice(1))
    (array([[0.5, 1. ]]), array([1.]))
    """

    features: Array
    targets: Array

    def __post_init__(self) -> None:
        shape, targets = np.shape(self.features), np.shape(self.targets)
        if len(shape) != 2 or targets != shape[:1]:
            raise DomainError(
                "features must be a matrix with a row for each target; "
                f"got arrays of shapes {shape} and {targets}."
            )
        features = np.ascontiguousarray(self.features)
        if features.dtype not in (np.float32, np.float64):
            features = features.astype(np.float64)
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "targets", np.asarray(self.targets, features.dtype))

    @property
    def dimensions(self) -> int:
        """The number of features of a row."""
        return int(self.features.shape[1])

    def __len__(self) -> int:
        return len(self.features)

    def read(self, rows: Rows) -> tuple[Array, Floats]:
        """Return the features and the targets of some rows.

        Parameters
        ----------
        rows : slice or ndarray of int
            Which rows.

        Returns
        -------
        features : ndarray
            Their features.
        targets : ndarray
            Their targets.
        """
        return self.features[rows], self.targets[rows]


@final
class VehicleRows:
    """Which rows belong to which vehicle, if vehicles have several rows.

    Vehicles are numbered in the order of their sorted ids.

    Parameters
    ----------
    vehicle_ids : array-like of shape (rows,)
        The id of each row's vehicle.

    Attributes
    ----------
    total : int
        The number of rows of all vehicles.

    Examples
    --------
    >>> rows = VehicleRows(np.array(["b", "a", "b", "c"]))
    >>> len(rows), rows.total
    (3, 4)
    >>> rows.of(np.array([1, 2]))     # of the second and the third vehicle, b and c
    (array([0, 2, 3]), array([0, 2]))
    """

    def __init__(self, vehicle_ids: npt.ArrayLike) -> None:
        _, first = np.unique(np.asarray(vehicle_ids), return_inverse=True)
        self._order = np.argsort(first, kind="stable")
        self.total = len(first)  # rows of all vehicles
        self._sizes = np.bincount(first)
        self._starts = np.cumsum(self._sizes) - self._sizes

    def __len__(self) -> int:
        """Return the number of vehicles."""
        return len(self._sizes)

    def one_each(self, values: npt.ArrayLike) -> Array | None:
        """Return the value that each vehicle has in all of its rows.

        Parameters
        ----------
        values : array-like of shape (rows,)
            A value for each row.

        Returns
        -------
        ndarray of shape (vehicles,) or None
            The value of each vehicle; None if the rows of a vehicle have different values.

        Examples
        --------
        >>> rows = VehicleRows(np.array(["b", "a", "b", "c"]))
        >>> rows.one_each([2.0, 4.0, 2.0, 1.0]), rows.one_each([2.0, 4.0, 1.0, 1.0])
        (array([4., 2., 1.]), None)
        """
        ordered = np.asarray(values)[self._order]
        found = ordered[self._starts]
        return found if np.array_equal(np.repeat(found, self._sizes), ordered) else None

    def of(self, vehicles: Rows) -> tuple[Integers, Integers]:
        """Return the rows of some vehicles, and where those of each vehicle begin.

        Parameters
        ----------
        vehicles : slice or ndarray of int
            The numbers of the vehicles.

        Returns
        -------
        rows : ndarray of int
            The rows of the first vehicle, then those of the second, and so on.
        begins : ndarray of int
            The position in `rows` at which the rows of each vehicle begin.
        """
        sizes, starts = self._sizes[vehicles], self._starts[vehicles]
        begins = np.cumsum(sizes) - sizes
        places = np.arange(sizes.sum()) + np.repeat(starts - begins, sizes)
        return self._order[places], begins


def rows_of(vehicle_rows: VehicleRows | None, vehicles: Rows) -> tuple[Rows, Integers | None]:
    """Return the rows of some vehicles, and where they begin; None if each has one row."""
    return (vehicles, None) if vehicle_rows is None else vehicle_rows.of(vehicles)
