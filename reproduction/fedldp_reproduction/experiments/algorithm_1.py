"""Algorithm 1 of the paper for many models at once: one for each learning rate and replicate.

All models see the same groups of vehicles; each has its own weights and its own noise. With one
rate and one replicate the result is that of `fedldp.learn.Training`, step by step: a test compares
them. What is sent and averaged is an `Answers`: through a plan of fedldp, or by a law that no plan
can have, for study.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats
from fedldp.learn.examples import Rows
from fedldp.learn.gradients import BLOCK, scores_of, silently
from fedldp.learn.tasks import Layered, Linear
from fedldp.plan.parts import Countable
from fedldp.randomness import Source
from fedldp.results.estimate import means_of_levels
from fedldp_reproduction.experiments.duchi import CitedDuchi

_NUMBERS_AT_ONCE = 1 << 22  # of gradients that are written out


class Answers(Protocol):
    """How the server learns the mean gradient of a group."""

    def mean(self, task: Linear | Layered, weights: Floats, rows: slice, source: Source) -> Floats:
        """Return the mean gradient of a group of vehicles, for each model."""
        ...


@final
@dataclass(frozen=True)
class Coded:
    """Answers through a part of a plan, exactly as `fedldp.learn.Training` simulates them."""

    part: Countable
    estimator: str

    def mean(self, task: Linear | Layered, weights: Floats, rows: slice, source: Source) -> Floats:
        """Return the mean gradient of a group of vehicles, for each model."""
        cells = np.zeros(
            (len(weights), self.part.starts[-1]), np.float64 if self.part.study else np.int64
        )
        at_once = max(BLOCK, task.at_once // len(weights) // BLOCK * BLOCK)
        for start in range(rows.start, rows.stop, at_once):
            batch = slice(start, min(start + at_once, rows.stop))
            self.part.simulate(task.gradients(weights, batch), source, cells)
        return means_of_levels([(self.part, rows.stop - rows.start, cells)], self.estimator)


@final
@dataclass(frozen=True)
class ClippedMean:
    """The mean of clipped gradients, without noise or with that of the Laplace mechanism.

    The sum of n draws of Laplace noise is the difference of two gamma variables with shape n, so
    that it is drawn at once, and exactly.
    """

    bound: float
    laplace_scale: float = 0.0

    def mean(self, task: Linear | Layered, weights: Floats, rows: slice, source: Source) -> Floats:
        """Return the mean gradient of a group of vehicles, for each model."""
        sums, n = clipped_sums(task, weights, rows, self.bound), rows.stop - rows.start
        if self.laplace_scale:
            generator = np.random.default_rng(source.words(4).tolist())
            plus, minus = generator.standard_gamma(n, (2, *sums.shape))
            sums += self.laplace_scale * (plus - minus)
        mean: Floats = sums / n
        return mean


@final
@dataclass(frozen=True)
class Cited:
    """Answers by the cited form of Duchi et al."""

    mechanism: CitedDuchi
    bound: float

    def mean(self, task: Linear | Layered, weights: Floats, rows: slice, source: Source) -> Floats:
        """Return the mean gradient of a group of vehicles, for each model."""
        models, d = weights.shape
        total = np.zeros((models, d))
        at_once = max(1, _NUMBERS_AT_ONCE // (models * d))
        for start in range(rows.start, rows.stop, at_once):
            batch = slice(start, min(start + at_once, rows.stop))
            gradients = task.gradients(weights, batch).all(np.arange(d))
            inputs = np.clip(gradients / self.bound, -1, 1)
            total += self.mechanism.sums(inputs, models, source)
        mean: Floats = total * self.bound / (rows.stop - rows.start)
        return mean


@silently()
def clipped_sums(task: Linear | Layered, weights: Floats, rows: slice, bound: float) -> Floats:
    """Return the sum of the clipped gradients of some vehicles, for each model.

    Features lie in [-1, 1]: only the gradients of rows with a slope above the bound are clipped,
    and only those are written out.
    """
    found, targets = task.examples.read(cast(Rows, rows))
    features = cast(npt.NDArray[np.floating], found)
    slopes = task.objective.slope(scores_of(features, weights), targets)
    steep = np.abs(slopes) > bound
    if np.abs(features).max(initial=0.0) > 1:
        steep[:] = True
    total: Floats = np.where(steep, 0.0, slopes).astype(np.float64) @ features
    for model in np.flatnonzero(steep.any(axis=1)):
        chosen = steep[model]
        long = slopes[model, chosen, None] * features[chosen]
        total[model] += np.clip(long, -bound, bound).sum(axis=0, dtype=np.float64)
    return total


def trained(
    task: Linear | Layered,
    answers: Answers,
    rates: Sequence[float],
    source: Source,
    *,
    group: int,
    alpha: float,
) -> Floats:
    """Return the weights of some models after every vehicle was asked once: a row for each rate.

    The gradient of the regularization depends on no data: the server adds it.
    """
    steps = np.array(rates, np.float64)[:, None]
    start = np.zeros(task.dimensions) if task.start is None else task.start
    weights = np.tile(start, (len(rates), 1))
    vehicles, groups = len(task), -(-len(task) // group)
    for number in range(groups):
        rows = slice(vehicles * number // groups, vehicles * (number + 1) // groups)
        gradient = answers.mean(task, weights, rows, source)
        weights = weights - steps * (gradient + alpha * weights)
    return weights
