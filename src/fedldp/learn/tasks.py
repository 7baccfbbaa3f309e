"""The vehicles' half of LDP-FedSGD: gradients, of which only what is asked for is computed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, cast, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, Integers
from fedldp._internal.vectors import SparseRows
from fedldp.errors import DomainError
from fedldp.learn.examples import Examples, Rows, Surveyed, VehicleRows, rows_of
from fedldp.learn.features import FeatureRows, Scaling, SparseFeatures
from fedldp.learn.noise_aware import Prior
from fedldp.learn.objectives import Objective
from fedldp.parts import Values
from fedldp.randomness import Source

BLOCK = 4096  # rows multiplied at a time: BLAS rounds differently for different shapes


# A vehicle reports for any model and any data; plans replace values that are not numbers.
_silently = partial(np.errstate, over="ignore", invalid="ignore")


class Task(Protocol):
    """A model to train, and the data of the vehicles."""

    @property
    def kind(self) -> str:
        """What distinguishes tasks that must not resume each other's training."""

    @property
    def dimensions(self) -> int:
        """How many weights a model has."""

    def __len__(self) -> int:
        """Return how many vehicles there are."""

    def gradients(self, weights: Floats, vehicles: Rows) -> Values:
        """Return the gradients of some vehicles for some models, each a row of `weights`.

        The gradients of all vehicles for the first model come first, then those for the second.
        """


@final
@dataclass(frozen=True, eq=False)
class Linear:
    """The task of training a linear model.

    Parameters
    ----------
    objective : Objective
        The loss.
    examples : Arrays or another object with `dimensions`, `read` and a length
        The rows of all vehicles.
    vehicle_rows : VehicleRows, optional
        Which rows each vehicle has. By default each row is a vehicle.

    Raises
    ------
    DomainError
        If `vehicle_rows` is for another number of rows.

    Examples
    --------
    >>> from fedldp.learn import Arrays, objective
    >>> rows = Arrays(np.array([[0.5, 1.0], [-0.5, 1.0]]), np.array([1.0, -1.0]))
    >>> task = Linear(objective("squared"), rows)
    >>> weights = np.array([[1.0, 0.0]])  # one model
    >>> task.loss(weights), task.error(weights)
    (array([0.125]), array([0.25]))
    >>> task.gradients(weights, slice(2)).all(np.arange(2))
    array([[-0.25, -0.5 ],
           [-0.25,  0.5 ]])
    """

    objective: Objective
    examples: Examples
    vehicle_rows: VehicleRows | None = None

    def __post_init__(self) -> None:
        if self.vehicle_rows is not None and self.vehicle_rows.total != len(self.examples):
            raise DomainError(
                f"vehicle_rows must be for {len(self.examples)} rows, as many as the examples; "
                f"got {self.vehicle_rows.total}."
            )

    @property
    def kind(self) -> str:
        """The name of the objective."""
        return self.objective.name

    @property
    def dimensions(self) -> int:
        """The number of weights of a model."""
        return self.examples.dimensions

    @property
    def prior(self) -> Prior:
        """What is known about the model before any vehicle is asked."""
        if isinstance(self.examples, Surveyed):
            return Prior.of(self.examples.encoding, self.objective)
        return Prior.of_numbers(self.dimensions, self.objective)

    @property
    def length(self) -> float:
        """Where the length of a gradient is clipped by default."""
        return self.objective.length

    @property
    def numbers(self) -> int:
        """How many numbers a survey can ask for."""
        return self.examples.encoding.numbers if isinstance(self.examples, Surveyed) else 0

    def units(self, vehicles: Rows, source: Source) -> Floats:
        """Return the numbers of some vehicles on the scale of [-1, 1].

        Parameters
        ----------
        vehicles : slice or ndarray of int
            The numbers of the vehicles.
        source : Source
            The random source; it chooses one row of a vehicle that has several.

        Returns
        -------
        ndarray of shape (vehicles, numbers)
            The numbers.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp import datasets
        >>> from fedldp.learn import objective
        >>> flights = datasets.load("flights", rows=100)
        >>> task = Linear(objective("logistic"), flights.examples("logistic"))
        >>> task.units(slice(2), fedldp.source(1)).shape == (2, task.numbers)
        True
        """
        examples = cast(Surveyed, self.examples)
        rows, begins = rows_of(self.vehicle_rows, vehicles)
        if begins is not None:
            sizes = np.diff(begins, append=len(cast(Integers, rows)))
            if (sizes > 1).any():
                begins = begins + (source.uniform(len(begins)) * sizes).astype(np.int64)
            rows = cast(Integers, rows)[begins]
        return examples.units(rows)

    def scaled(self, scaling: Scaling) -> "Linear":
        """Return the same task with scaled numbers.

        Parameters
        ----------
        scaling : Scaling
            The public map of the numbers.

        Returns
        -------
        Linear
            The task.

        Examples
        --------
        >>> from fedldp import datasets
        >>> from fedldp.learn import Scaling, objective
        >>> flights = datasets.load("flights", rows=100)
        >>> task = Linear(objective("logistic"), flights.examples("logistic"))
        >>> same = Scaling((0.0,) * task.numbers, (1.0,) * task.numbers)
        >>> task.scaled(same).dimensions == task.dimensions
        True
        """
        return replace(self, examples=cast(Surveyed, self.examples).scaled(scaling))

    def __len__(self) -> int:
        return len(self.examples if self.vehicle_rows is None else self.vehicle_rows)

    def gradients(self, weights: Floats, vehicles: Rows) -> Values:
        """Return the gradients of some vehicles for some models.

        Parameters
        ----------
        weights : ndarray of shape (models, dimensions)
            The weights of each model.
        vehicles : slice or ndarray of int
            The numbers of the vehicles.

        Returns
        -------
        Values
            The gradients, computed when they are needed: those of all vehicles for the first model,
            then those for the second, and so on.
        """
        rows, begins = rows_of(self.vehicle_rows, vehicles)
        return gradients_of(self.objective, weights, *self.examples.read(rows), begins)

    def loss(self, weights: Floats) -> Floats:
        """Return the mean loss of some models over all rows.

        Parameters
        ----------
        weights : ndarray of shape (models, dimensions)
            The weights of each model.

        Returns
        -------
        ndarray of shape (models,)
            The mean losses.
        """
        return self._mean(self.objective.loss, weights)

    def error(self, weights: Floats) -> Floats:
        """Return the error of some models over all rows.

        Parameters
        ----------
        weights : ndarray of shape (models, dimensions)
            The weights of each model.

        Returns
        -------
        ndarray of shape (models,)
            The share of wrong labels, or the mean squared error of a regression.
        """
        return self._mean(self.objective.error, weights)

    @_silently()
    def _mean(self, function: Callable[[Floats, Floats], Floats], weights: Floats) -> Floats:
        total = np.zeros(len(weights))
        for start in range(0, len(self.examples), BLOCK):
            features, targets = self.examples.read(slice(start, start + BLOCK))
            total += function(scores_of(features, weights), targets).sum(axis=1, dtype=np.float64)
        return total / len(self.examples)


def scores_of(features: FeatureRows, weights: Floats) -> npt.NDArray[Any]:
    """Return the scores of all rows of features, in one row for each model."""
    if isinstance(features, SparseFeatures):
        return features.scores(weights.astype(features.dtype))
    scores = np.empty((len(weights), len(features)), features.dtype)
    by_column = weights.T.astype(features.dtype)
    for start in range(0, len(features), BLOCK):
        block = slice(start, start + BLOCK)
        scores[:, block] = (features[block] @ by_column).T
    return scores


def gradients_of(
    objective: Objective,
    weights: Floats,
    features: FeatureRows,
    targets: Floats,
    begins: Integers | None = None,
) -> Values:
    """Return a batch of vehicles whose values are the gradients of a linear model.

    A gradient is the slope of the loss times the features; that of a vehicle with several rows,
    which begin at `begins`, is their mean.
    """
    kind = SparseGradients if isinstance(features, SparseFeatures) else Gradients
    return kind(objective, weights, features, targets, begins)  # type: ignore[arg-type]


@final
class Gradients:
    """Gradients for features that are written out.

    The slopes are computed at once, their products with the features only where they are asked for.
    """

    def __init__(
        self,
        objective: Objective,
        weights: Floats,
        features: npt.NDArray[Any],
        targets: Floats,
        begins: Integers | None = None,
    ) -> None:
        self._features = features
        self._begins = begins  # where each vehicle's rows begin, if it has several
        with _silently():
            self._slopes = objective.slope(scores_of(features, weights), targets)

    def __len__(self) -> int:
        replicas, rows = self._slopes.shape
        return int(replicas * (rows if self._begins is None else len(self._begins)))

    @_silently()
    def take(self, rows: Integers | None, columns: Integers) -> Floats:
        """Return one coordinate of the gradient of each vehicle in `rows`, by default of all."""
        if rows is not None:
            everyone = np.zeros(len(self), np.int64)
            everyone[rows] = columns
            return self.take(None, everyone)[rows]
        n, d = self._features.shape
        if self._begins is not None:
            columns = np.repeat(columns.reshape(len(self._slopes), -1), self._sizes, axis=1)
        places = columns.reshape(-1, n) + np.arange(0, n * d, d)
        values = self._features.reshape(-1).take(places) * self._slopes
        return self._mean(values).reshape(-1)

    @_silently()
    def all(self, columns: Integers) -> Floats:
        """Return some coordinates of the gradients of all vehicles."""
        values = self._slopes[:, :, None] * self._features[:, columns]
        return self._mean(values).reshape(-1, len(columns))

    @property
    def _sizes(self) -> Integers:
        """The number of rows of each vehicle."""
        return np.diff(cast(Integers, self._begins), append=len(self._features))

    def _mean(self, values: npt.NDArray[Any]) -> Floats:
        """Average over the rows of each vehicle, which lie along the second axis."""
        return _mean_of_rows(values, self._begins)


@final
class SparseGradients:
    """Gradients for features of which most are zero: the zeros take neither time nor memory."""

    def __init__(
        self,
        objective: Objective,
        weights: Floats,
        features: SparseFeatures,
        targets: Floats,
        begins: Integers | None = None,
    ) -> None:
        self._features, self._begins = features, begins
        with _silently():
            self._slopes = objective.slope(scores_of(features, weights), targets)

    def __len__(self) -> int:
        replicas, rows = self._slopes.shape
        return int(replicas * (rows if self._begins is None else len(self._begins)))

    @_silently()
    def take(self, rows: Integers | None, columns: Integers) -> Floats:
        """Return of each vehicle (all of them, if None) the gradient in one column."""
        if rows is not None:
            everyone = np.zeros(len(self), np.int64)
            everyone[rows] = columns
            return self.take(None, everyone)[rows]
        columns = columns.reshape(len(self._slopes), -1)
        if self._begins is not None:
            columns = np.repeat(columns, self._sizes, axis=1)
        values = self._features.at(columns) * self._slopes
        return _mean_of_rows(values, self._begins).reshape(-1)

    @_silently()
    def all(self, columns: Integers) -> Floats:
        """Return of every vehicle the gradient in these columns."""
        values = self._slopes[:, :, None] * self._features.dense()[:, columns]
        return _mean_of_rows(values, self._begins).reshape(-1, len(columns))

    @_silently()
    def vectors(self, columns: Integers) -> SparseRows:
        """Return what is not zero in these columns, which must be all of them in their order."""
        d, places = self._features.dimensions, self._features.columns
        if columns.size != d or not (columns == np.arange(d)).all():
            return SparseRows.of(self.all(columns))
        numbers = self._slopes[:, :, None] * self._features.values
        numbers = numbers.reshape(len(self._slopes), -1).astype(np.float64)
        if self._begins is None:
            counts = np.full(len(places), places.shape[1])
        else:
            counts, places, numbers = self._merged(numbers)
        replicas = len(numbers)
        return SparseRows(
            np.tile(counts, replicas), np.tile(places.reshape(-1), replicas), numbers.reshape(-1)
        )

    def _merged(self, numbers: Floats) -> tuple[Integers, Integers, Floats]:
        """Average over the rows of each vehicle: a place stands once for each."""
        d, places, sizes = self._features.dimensions, self._features.columns, self._sizes
        vehicles = np.repeat(np.arange(len(sizes)), sizes)
        found, inverse = np.unique(vehicles[:, None] * d + places, return_inverse=True)
        owners, places = np.divmod(found, d)
        sums = [np.bincount(inverse.reshape(-1), row, minlength=found.size) for row in numbers]
        counts = np.bincount(owners, minlength=len(sizes))
        return counts, places, np.array(sums) / sizes[owners]

    @property
    def _sizes(self) -> Integers:
        """How many rows each vehicle has."""
        return np.diff(cast(Integers, self._begins), append=len(self._features))


def _mean_of_rows(values: npt.NDArray[Any], begins: Integers | None) -> Floats:
    """Average over the rows of each vehicle, which lie along the second axis."""
    values = values.astype(np.float64, copy=False)
    if begins is None:
        return values
    sizes = np.diff(begins, append=values.shape[1])
    sums: Floats = np.add.reduceat(values, begins, axis=1)
    return sums / sizes.reshape(-1, *[1] * (values.ndim - 2))
