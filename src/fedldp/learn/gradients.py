"""Gradients of models that are linear in their features; only what is asked for is computed.

A model has a row of weights for each of its outputs, one after the other: the gradient is the slope
of an output times the features.
"""

from abc import ABC, abstractmethod
from functools import partial
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, Integers
from fedldp._internal.vectors import SparseRows
from fedldp.learn.features import FeatureRows, SparseFeatures
from fedldp.learn.objectives import Objective
from fedldp.plan.parts import VehicleValues

BLOCK = 4096  # rows multiplied at a time: BLAS rounds differently for different shapes

# A vehicle reports for any model and any data; plans replace values that are not numbers.
silently = partial(np.errstate, over="ignore", invalid="ignore", divide="ignore")


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
) -> VehicleValues:
    """Return a batch of vehicles whose values are the gradients of a linear model.

    A gradient is the slope of the loss times the features; that of a vehicle with several rows,
    which begin at `begins`, is their mean.
    """
    with silently():
        scores = scores_of(features, weights.reshape(len(weights) * objective.outputs, -1))
        if objective.outputs > 1:
            scores = scores.reshape(len(weights), objective.outputs, -1).transpose(0, 2, 1)
        slopes = objective.slope(scores, targets).reshape(len(weights), len(features), -1)
    if isinstance(features, SparseFeatures):
        return SparseGradients(features, slopes, begins)
    return DenseGradients(features, slopes, begins)


class _Gradients(ABC):
    """Slopes and features, whose products are computed only where they are asked for."""

    def __init__(
        self, features: Any, slopes: npt.NDArray[Any], begins: Integers | None = None
    ) -> None:
        self._features, self._slopes = features, slopes  # slopes: models, rows, outputs
        self._begins = begins  # where each vehicle's rows begin, if it has several

    @abstractmethod
    def _at(self, columns: Integers) -> npt.NDArray[Any]:
        """Return of each row the feature in a place; there may be several such lists of places."""

    @abstractmethod
    def _written_out(self, columns: Integers) -> npt.NDArray[Any]:
        """Return some features of all rows."""

    def __len__(self) -> int:
        replicas, rows, _ = self._slopes.shape
        return int(replicas * (rows if self._begins is None else len(self._begins)))

    @silently()
    def take(self, rows: Integers | None, columns: Integers) -> Floats:
        """Return one coordinate of the gradient of each vehicle in `rows`, by default of all."""
        if rows is not None:
            everyone = np.zeros(len(self), np.int64)
            everyone[rows] = columns
            return self.take(None, everyone)[rows]
        columns = columns.reshape(len(self._slopes), -1)
        if self._begins is not None:
            columns = np.repeat(columns, self._sizes, axis=1)
        slopes = self._slopes[:, :, 0]
        if self._slopes.shape[2] > 1:
            outputs, columns = np.divmod(columns, self._features.shape[1])
            slopes = np.take_along_axis(self._slopes, outputs[:, :, None], axis=2)[:, :, 0]
        return mean_of_rows(self._at(columns) * slopes, self._begins).reshape(-1)

    @silently()
    def all(self, columns: Integers) -> Floats:
        """Return some coordinates of the gradients of all vehicles."""
        slopes, places = self._slopes, columns
        if self._slopes.shape[2] > 1:
            outputs, places = np.divmod(columns, self._features.shape[1])
            slopes = slopes[:, :, outputs]
        values = slopes * self._written_out(places)
        return mean_of_rows(values, self._begins).reshape(-1, len(columns))

    @property
    def _sizes(self) -> Integers:
        """The number of rows of each vehicle."""
        return np.diff(cast(Integers, self._begins), append=len(self._features))


@final
class DenseGradients(_Gradients):
    """Gradients for features that are written out."""

    def _at(self, columns: Integers) -> npt.NDArray[Any]:
        n, d = self._features.shape
        found: npt.NDArray[Any] = self._features.reshape(-1).take(columns + np.arange(0, n * d, d))
        return found

    def _written_out(self, columns: Integers) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self._features[:, columns]
        return found


@final
class SparseGradients(_Gradients):
    """Gradients for features of which most are zero: the zeros take neither time nor memory."""

    def _at(self, columns: Integers) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self._features.at(columns)
        return found

    def _written_out(self, columns: Integers) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self._features.dense()[:, columns]
        return found

    @silently()
    def vectors(self, columns: Integers) -> SparseRows:
        """Return all that can differ from zero in these columns, written out."""
        replicas, rows, outputs = self._slopes.shape
        d = outputs * self._features.dimensions
        if columns.size != d or not (columns == np.arange(d)).all():
            return SparseRows.every(self.all(columns))
        starts = np.arange(0, d, self._features.dimensions)  # of the weights of each output
        places = (self._features.columns[:, None, :] + starts[:, None]).reshape(rows, -1)
        numbers = self._slopes[..., None] * self._features.values[:, None, :]
        numbers = numbers.reshape(replicas, -1).astype(np.float64)
        if self._begins is None:
            counts = np.full(rows, places.shape[1])
        else:
            counts, places, numbers = self._merge(numbers, places, d)
        return SparseRows(
            np.tile(counts, replicas), np.tile(places.reshape(-1), replicas), numbers.reshape(-1)
        )

    def _merge(
        self, numbers: Floats, places: Integers, d: int
    ) -> tuple[Integers, Integers, Floats]:
        """Average over the rows of each vehicle.

        How many numbers a vehicle has depends on how many rows it has, and not on what is in them:
        a place that several rows have is followed by zeros.
        """
        rows, width = places.shape
        written = self._sizes * width
        most = np.minimum(written, d)
        vehicles = np.repeat(np.arange(len(written)), written)
        _, first, inverse = np.unique(
            vehicles * d + places.reshape(-1), return_index=True, return_inverse=True
        )
        sums = [np.bincount(inverse.reshape(-1), row, minlength=first.size) for row in numbers]
        means = np.zeros_like(numbers)
        means[:, first] = np.array(sums) / self._sizes[vehicles[first]]
        again = np.ones(rows * width, np.bool_)
        again[first] = False
        zeros = most - np.bincount(vehicles[first], minlength=len(most))
        count = np.cumsum(again)
        before = (count - again)[np.cumsum(written) - written]
        is_kept = ~again | (count - before[vehicles] <= zeros[vehicles])
        return most, places.reshape(-1)[is_kept], means[:, is_kept]


def mean_of_rows(values: npt.NDArray[Any], begins: Integers | None) -> Floats:
    """Average over the rows of each vehicle, which lie along the second axis."""
    values = values.astype(np.float64, copy=False)
    if begins is None:
        return values
    sizes = np.diff(begins, append=values.shape[1])
    sums: Floats = np.add.reduceat(values, begins, axis=1)
    return sums / sizes.reshape(-1, *[1] * (values.ndim - 2))
