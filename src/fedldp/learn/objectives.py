"""What a model is trained for: losses of a score, and the slopes that make a gradient.

A linear model gives a row x the score z = <theta, x>. The gradient of the loss is the slope at z
times x. The target y is a number for `squared`, and -1 or 1 for the others.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, final

import numpy as np

from fedldp._internal.text import unknown
from fedldp._internal.validation import Floats


class Objective(ABC):
    """A loss of score and target, convex in the score."""

    name: ClassVar[str]
    task: ClassVar[str]  # what the command line calls it
    title: ClassVar[str]  # what people call it
    classifies: ClassVar[bool] = True
    distance: ClassVar[float]  # how far from 0 the best weights may be: sets the step
    length: ClassVar[float] = 1.0  # where the length of a gradient is clipped by default

    @abstractmethod
    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each score."""

    def error(self, scores: Floats, targets: Floats) -> Floats:
        """Return what is reported as the error: 1 where the sign of a score is wrong."""
        return np.not_equal(scores > 0, targets > 0).astype(np.float64)

    @abstractmethod
    def slope(self, scores: Floats, targets: Floats) -> Floats:
        """Return the derivative of the loss at each score."""

    def curvature(self, slopes: Floats) -> Floats:
        """Return the mean second derivative of the loss, given the mean absolute slope.

        If the probabilities p of a logistic regression are right, the mean slope is the mean of
        2 p (1 - p), twice the curvature. That of the hinge is 0 but where it bends; the same rule
        gives steps of the right size.
        """
        return np.clip(slopes, 0.1, 1.0) / 2


@final
class Squared(Objective):
    """Linear regression: half the squared difference."""

    name = "squared"
    task = "linear"
    title = "Linear regression"
    distance = 1.0
    length = 0.6
    classifies = False

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        return (scores - targets) ** 2 / 2

    def error(self, scores: Floats, targets: Floats) -> Floats:
        """Return the squared difference."""
        return (scores - targets) ** 2

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return scores - targets

    def curvature(self, slopes: Floats) -> Floats:
        """Return the mean second derivative of the loss: 1."""
        return np.ones_like(slopes)


@final
class Logistic(Objective):
    """Logistic regression: ln(1 + e^(-y z))."""

    name = "logistic"
    task = "logistic"
    title = "Logistic regression"
    distance = 8.0

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        return np.logaddexp(0.0, -targets * scores)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        found = np.tanh(scores * 0.5)  # never overflows, unlike e^z
        found -= targets
        found *= 0.5
        return found


@final
class Hinge(Objective):
    """Support vector machine: max(0, 1 - y z)."""

    name = "hinge"
    task = "svm"
    title = "Support vector machine"
    distance = 4.0

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        return np.maximum(0.0, 1.0 - targets * scores)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return np.where(targets * scores < 1.0, -targets, 0.0)


OBJECTIVES: dict[str, Objective] = {kind.name: kind for kind in (Squared(), Logistic(), Hinge())}


def objective(name: str) -> Objective:
    """Return the objective of that name.

    >>> objective("hinge").slope(np.array([0.5, 2.0]), np.array([1.0, 1.0]))
    array([-1.,  0.])
    """
    if name not in OBJECTIVES:
        raise unknown("objective", name, OBJECTIVES)
    return OBJECTIVES[name]
