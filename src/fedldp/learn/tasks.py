"""The vehicles' half of LDP-FedSGD: gradients, computed where a plan asks for them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, Integers
from fedldp.errors import DomainError
from fedldp.learn.examples import Examples, Rows, VehicleRows, rows_of
from fedldp.learn.objectives import Objective
from fedldp.parts import Values

BLOCK = 4096  # rows multiplied at a time: BLAS rounds differently for different shapes


# Whatever the model and the data are, a report goes out; plans clip what is no number.
_silently = partial(np.errstate, over="ignore", invalid="ignore")


class Task(Protocol):
    """What a fleet is to learn, and the data that it has for it."""

    @property
    def kind(self) -> str:
        """What tells tasks apart that may not resume each other's training."""

    @property
    def dimensions(self) -> int:
        """How many weights a model has."""

    def __len__(self) -> int:
        """Return how many vehicles there are."""

    def gradients(self, weights: Floats, vehicles: Rows) -> Values:
        """Return the gradients of some vehicles for some models: one row of weights for each.

        Those of all vehicles for the first model come first, then those for the second.
        """


@final
@dataclass(frozen=True, eq=False)
class Linear:
    """A linear model: each vehicle has one row or, where `vehicle_rows` says so, several."""

    objective: Objective
    examples: Examples
    vehicle_rows: VehicleRows | None = None

    def __post_init__(self) -> None:
        if self.vehicle_rows is not None and self.vehicle_rows.total != len(self.examples):
            raise DomainError(
                f"vehicle_rows must have a vehicle for each of {len(self.examples)} rows; "
                f"got {self.vehicle_rows.total}."
            )

    @property
    def kind(self) -> str:
        """The name of the objective."""
        return self.objective.name

    @property
    def dimensions(self) -> int:
        """How many weights a model has."""
        return self.examples.dimensions

    def __len__(self) -> int:
        return len(self.examples if self.vehicle_rows is None else self.vehicle_rows)

    def gradients(self, weights: Floats, vehicles: Rows) -> "Gradients":
        """Return the gradients of some vehicles for some models."""
        rows, begins = rows_of(self.vehicle_rows, vehicles)
        return Gradients(self.objective, weights, *self.examples.read(rows), begins)

    def loss(self, weights: Floats) -> Floats:
        """Return the mean loss of each row of weights over all examples."""
        return self._mean(self.objective.loss, weights)

    def error(self, weights: Floats) -> Floats:
        """Return what share of the examples each model gets wrong, or its mean squared error."""
        return self._mean(self.objective.error, weights)

    @_silently()
    def _mean(self, function: Callable[[Floats, Floats], Floats], weights: Floats) -> Floats:
        total = np.zeros(len(weights))
        for start in range(0, len(self.examples), BLOCK):
            features, targets = self.examples.read(slice(start, start + BLOCK))
            total += function(scores_of(features, weights), targets).sum(axis=1, dtype=np.float64)
        return total / len(self.examples)


def scores_of(features: npt.NDArray[Any], weights: Floats) -> npt.NDArray[Any]:
    """Return the scores of each row of features, in a row for each row of weights."""
    scores = np.empty((len(weights), len(features)), features.dtype)
    by_column = weights.T.astype(features.dtype)
    for start in range(0, len(features), BLOCK):
        block = slice(start, start + BLOCK)
        scores[:, block] = (features[block] @ by_column).T
    return scores


@final
class Gradients:
    """A batch of vehicles whose values are the gradients of a linear model.

    A gradient is the slope of the loss times the features. The slopes are computed here; of the
    products only those that are asked for.
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
        """Return of each vehicle (all of them, if None) the gradient in one column."""
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
        """Return of every vehicle the gradient in these columns."""
        values = self._slopes[:, :, None] * self._features[:, columns]
        return self._mean(values).reshape(-1, len(columns))

    @property
    def _sizes(self) -> Integers:
        """How many rows each vehicle has."""
        return np.diff(cast(Integers, self._begins), append=len(self._features))

    def _mean(self, values: npt.NDArray[Any]) -> Floats:
        """Average over the rows of each vehicle, which lie along the second axis."""
        values = values.astype(np.float64, copy=False)
        if self._begins is None:
            return values
        sums: Floats = np.add.reduceat(values, self._begins, axis=1)
        return sums / self._sizes.reshape(-1, *[1] * (values.ndim - 2))
