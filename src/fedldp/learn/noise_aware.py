"""A server optimizer that knows its noise: the step `optimizer="noise-aware"`.

The server knows the variance R of every coordinate of a round's mean gradient G, from the plan and
the number of reports. Before anything is asked it also has a public idea of each weight: how large
it may be (tau), and how steep the loss is in it (its curvature h). Near the minimum G_j is about
h_j (theta_j - theta*_j) plus noise, so theta_j - G_j / h_j measures theta*_j with the variance
R / h_j^2. The best linear step is then that of a Kalman filter,

    theta_j <- theta_j - K G_j / h_j,    K = 1 / (t + q_j),    q_j = R / (h_j tau_j)^2,

in round t = 1, 2, ... A weight that is below the noise, whose q is large, hardly moves: it does not
random-walk, and it stays near 0. Three things are different from the textbook, as weights depend on
each other and curvatures are only roughly known:

- What the filter knows fades: K = c / (t + c (q_j + g)) with c = `FADING`. The first rounds were
  seen from afar, and directions with little curvature need longer steps later on: one with a share
  r of the assumed curvature keeps about (c (q + g) / T)^(r c) of its distance after T rounds.
- g = `CAUTION` times the number of attributes limits the first steps. Attributes that move together
  add up, at the worst all of them.
- Gains compare the noise of each weight with that weight alone, but noise of all weights adds up in
  the scores. It makes them vary between rounds by V, the sum of K_j R E[x_j^2] / (2 h_j^2), and the
  loss bends, so that noise as large as the scores themselves moves the mean of the gradient. All
  gains are therefore divided by 1 + V / s^2, with s how far a number moves a score by the prior.

Rounds cost nothing but time. With more of them the filter follows the bend of the loss more
closely, and each has more noise: `auto_aware_group` balances both.

With several labels, the gradients of all labels add up to 0 in each feature, and so do the weights.
What the reports say about the sum is noise: it is taken out of G, and R falls by the factor
1 - 1/m for m labels.

The model is the average of the iterates that `Recipe` describes, which takes back what longer steps
cost. The same recursion with the same gains gives the variance of each weight, prior and noise
together: `coef_std_` of the estimators. There a weight is taken to follow its own gradient with
`DOUBT` of the assumed curvature only, since the other weights may make up for the rest, and to be
`WIDER` times as large as the prior says: a number that spreads less than supposed has less
curvature and a larger weight, and the server does not know it. With both, intervals of two standard
deviations hold for correlated attributes too (docs/learning.md); they are about the model that all
vehicles' clipped gradients would lead to, and cautious where the noise is small.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from fedldp._internal.validation import Floats
from fedldp.learn.features import Features
from fedldp.learn.networks import Network
from fedldp.learn.objectives import Objective

# Settled on synthetic problems (benchmarks/synthetic.py); see docs/learning.md.
FADING = 32.0
CAUTION = 0.25
DOUBT = 1 / 16
WIDER = 1.5
NUMBER, LABEL, CONSTANT = 1 / 3, 1 / 12, 1 / 2  # by how much of the distance each moves a score
SPREAD = 1 / 9  # the mean square of a number that was not surveyed, on the scale of [-1, 1]
FEWEST_ROUNDS, MOST_ROUNDS = 30, 500

_MEMORY = 0.1  # the weight of the last round in the mean length of gradients


@final
@dataclass(frozen=True, eq=False)
class Prior:
    """What is known about a linear model before any vehicle is asked. None of it is from the data.

    If the objective has several scores, arrays have the features of the first score, then those of
    the second, and so on.

    Parameters
    ----------
    objective : Objective
        The loss.
    squares : ndarray of shape (dimensions,)
        The mean square of each feature.
    deviations : ndarray of shape (dimensions,)
        The standard deviation of each weight: how large it may be.
    attributes : int
        How many features of a row are not zero.

    Examples
    --------
    >>> from fedldp import Schema
    >>> from fedldp.learn.objectives import objective
    >>> schema = Schema.of(age=(0, 100), city=["Oslo", "Rome", "Lima", "Bonn"])
    >>> prior = Prior.of(Features(schema, reference="none"), objective("logistic"))
    >>> prior.squares.round(2), prior.deviations.round(2)
    (array([0.11, 0.25, 0.25, 0.25, 0.25, 1.  ]), array([8.  , 0.67, 0.67, 0.67, 0.67, 4.  ]))
    """

    objective: Objective
    squares: Floats
    deviations: Floats
    attributes: int

    @classmethod
    def of(cls, features: Features, objective: Objective) -> "Prior":
        """Return what is known about a model with these features.

        Parameters
        ----------
        features : Features
            The features.
        objective : Objective
            The loss.

        Returns
        -------
        Prior
            The prior.
        """
        numbers, labels = features.kinds
        spread = 1.0 if features.standardized else SPREAD
        sparse = features.reference == "none"
        squares = np.where(labels > 0, 1 / np.maximum(labels, 1) if sparse else 1.0, 1.0)
        squares = np.where(numbers, spread, squares)
        moves = np.where(numbers, NUMBER / np.sqrt(spread), np.where(labels > 0, LABEL, CONSTANT))
        categories = sum(1 for attribute in features.schema.attributes if attribute.feature_labels)
        nonzero = int(numbers.sum()) + categories + 1 if sparse else features.dimensions
        return cls._of_every_score(objective, squares, moves, nonzero)

    @classmethod
    def _of_every_score(
        cls, objective: Objective, squares: Floats, moves: Floats, attributes: int
    ) -> "Prior":
        """Return the prior, given what holds for the features of each score."""
        squares, moves = np.tile(squares, objective.outputs), np.tile(moves, objective.outputs)
        return cls(objective, squares, objective.distance * moves, attributes)

    @classmethod
    def of_numbers(
        cls, dimensions: int, objective: Objective, *, standardized: bool = False
    ) -> "Prior":
        """Return what is known about a model whose features are numbers, followed by the constant.

        Parameters
        ----------
        dimensions : int
            The number of features, including the constant.
        objective : Objective
            The loss.
        standardized : bool, default=False
            Whether a survey has given them the mean square 1.

        Returns
        -------
        Prior
            The prior.

        Examples
        --------
        >>> from fedldp.learn.objectives import objective
        >>> Prior.of_numbers(3, objective("squared")).squares.round(2)
        array([0.11, 0.11, 1.  ])
        """
        spread = 1.0 if standardized else SPREAD
        squares = np.append(np.full(dimensions - 1, spread), 1.0)
        moves = np.append(np.full(dimensions - 1, NUMBER / spread**0.5), CONSTANT)
        return cls._of_every_score(objective, squares, moves, dimensions)

    @classmethod
    def of_hidden(cls, network: Network, *, standardized: bool = False) -> "Prior | None":
        """Return what is known about the last layer of a classifier, if it alone is trained.

        Parameters
        ----------
        network : Network
            The network.
        standardized : bool, default=False
            Whether a survey has given the hidden numbers the mean square 1.

        Returns
        -------
        Prior or None
            The prior; None for other networks.

        Examples
        --------
        >>> from fedldp.learn.layers import ChannelMean
        >>> from fedldp.learn.objectives import objective
        >>> Prior.of_hidden(Network((3, 64), (ChannelMean(),), objective("logistic"))).attributes
        4
        """
        if not (network.only_last and network.objective.classifies):
            return None
        dimensions = network.hidden_numbers + 1
        return cls.of_numbers(dimensions, network.objective, standardized=standardized)

    @property
    def length(self) -> float:
        """The length of a row of features, roughly."""
        return float(np.sqrt(self.squares.sum() / self.objective.outputs))

    def centred(self, observed: "Observed") -> "Observed":
        """Take out of a round what is noise alone: the sum over several scores.

        Parameters
        ----------
        observed : Observed
            What the server learns from a round.

        Returns
        -------
        Observed
            The same for one score; for several, a gradient whose sum over the scores is 0.

        Examples
        --------
        >>> from fedldp.learn.objectives import objective
        >>> prior = Prior.of_numbers(1, objective("softmax"))
        >>> prior.centred(Observed(np.array([[3.0, 1.0]]), variance=1.0))[:2]
        (array([[ 1., -1.]]), 0.5)
        """
        outputs = self.objective.outputs
        if outputs == 1:
            return observed
        found = observed.gradient.reshape(len(observed.gradient), outputs, -1)
        found = (found - found.mean(axis=1, keepdims=True)).reshape(observed.gradient.shape)
        return observed._replace(gradient=found, variance=observed.variance * (1 - 1 / outputs))


class Observed(NamedTuple):
    """What the server learns from a round. Arrays have a row for each replica.

    Attributes
    ----------
    gradient : ndarray of shape (replicas, dimensions)
        The mean gradient.
    variance : ndarray or float, default=0.0
        The known variance of each coordinate.
    length : ndarray of shape (replicas,), optional
        The mean length of the gradients, if it is known.

    Examples
    --------
    >>> Observed(np.array([[0.3, 0.0]])).variance
    0.0
    """

    gradient: Floats
    variance: Floats | float = 0.0
    length: Floats | None = None


@final
@dataclass(frozen=True, eq=False)
class Knowledge:
    """What the filter knows after some rounds, beside the weights: a row for each replica."""

    weights: Floats  # the variance of each weight
    average: Floats  # the variance of its average
    together: Floats  # the covariance of both
    length: Floats  # the mean length of gradients lately; 0 where it is not known

    @classmethod
    def start(cls, prior: Prior, replicas: int) -> "Knowledge":
        """Return what is known at the beginning."""
        variance = np.tile((WIDER * prior.deviations) ** 2, (replicas, 1))
        return cls(variance, variance, variance, np.zeros(replicas))


def score_variance(prior: Prior, variance: float) -> float:
    """Return the variance that noise adds to a typical score of a regression.

    `variance` is that of a coordinate of the mean gradient of all vehicles. A weight whose noise is
    larger than its prior stays near 0, and adds no more than the prior.
    """
    weights = 1 / (prior.squares**2 / variance + 1 / prior.deviations**2)
    return float((weights * prior.squares).sum())


def auto_aware_group(goal: Objective, vehicles: int, variance: float) -> int:
    """Return how many vehicles a noise-aware server asks in a round.

    For n vehicles there are h s sqrt(n / R) rounds, at least 30 and at most 500, where R is the
    variance of a coordinate of one report, s is how far a number moves a score by the prior, and h
    the curvature of the loss at the beginning.

    >>> from fedldp.learn.objectives import objective
    >>> logistic = objective("logistic")
    >>> [auto_aware_group(logistic, 294_611, variance) for variance in (5.9, 1.14, 0.29)]
    [1978, 870, 590]
    >>> auto_aware_group(logistic, 10_000, 1.14)
    161
    """
    curvature = float(goal.curvature(np.array([goal.first_slope]))[0])
    rounds = curvature * NUMBER * goal.distance * math.sqrt(vehicles / variance)
    return max(1, math.ceil(vehicles / min(MOST_ROUNDS, max(FEWEST_ROUNDS, rounds))))


def gains(
    prior: Prior, known: Knowledge, variance: Floats | float, number: int
) -> tuple[Floats, Floats]:
    """Return the gain and the curvature of each weight in a round; the first has the number 1."""
    seen = known.length > 0
    slopes = np.where(seen, known.length / prior.length, prior.objective.first_slope)
    curvature = prior.objective.curvature(slopes)[:, None] * prior.squares
    noise = variance / (curvature * prior.deviations) ** 2
    first = noise + CAUTION * prior.attributes
    gain = np.minimum(1.0, FADING / (number + FADING * first))
    noise_of_scores = gain * prior.squares * variance / (2 * curvature**2)
    of_a_score = noise_of_scores.sum(axis=1, keepdims=True) / prior.objective.outputs
    return gain / (1 + of_a_score / (NUMBER * prior.objective.distance) ** 2), curvature


def filtered(
    prior: Prior, known: Knowledge, observed: Observed, number: int, kept: float
) -> tuple[Floats, Knowledge]:
    """Return how far the weights move, and what is known then.

    `kept` is the share of the old average in the new one.
    """
    observed = prior.centred(observed)
    gain, curvature = gains(prior, known, observed.variance, number)
    rest = 1 - DOUBT * gain
    weights = rest**2 * known.weights + gain**2 * observed.variance / curvature**2
    together = kept * rest * known.together + (1 - kept) * weights
    average = kept**2 * known.average + (1 - kept) * (
        2 * kept * rest * known.together + (1 - kept) * weights
    )
    length = known.length
    if observed.length is not None:
        lengths = np.clip(observed.length, 1e-9, None)
        new = np.where(length > 0, max(_MEMORY, 1 / number), 1.0)
        length = length + new * (lengths - length)
    return gain * observed.gradient / curvature, Knowledge(weights, average, together, length)
