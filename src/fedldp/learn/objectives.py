"""Objectives: losses of a score, and their slopes, which make a gradient.

A linear model gives a row x the score z = <theta, x>. The gradient of the loss is the slope at z
times x. The target y is a number for `squared`, and -1 or 1 for the others.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, final

import numpy as np

from fedldp._internal.text import unknown
from fedldp._internal.validation import Floats


class Objective(ABC):
    """A loss that depends on a score and a target, and is convex in the score.

    `objective` returns the objective with a given name.

    Attributes
    ----------
    name : str
        Its name: "squared", "logistic" or "hinge".
    task : str
        Its name on the command line: "linear", "logistic" or "svm".
    title : str
        The usual name of the model.
    classifies : bool
        Whether the target is one of two labels, -1 or 1, and not a number.
    distance : float
        How far from 0 the best weights may be; the automatic learning rate depends on it.
    length : float
        Where the length of a gradient is clipped by default.

    Examples
    --------
    >>> hinge = objective("hinge")
    >>> scores, targets = np.array([0.5, 2.0, -1.0]), np.array([1.0, 1.0, 1.0])
    >>> hinge.loss(scores, targets)
    array([0.5, 0. , 2. ])
    >>> hinge.slope(scores, targets)
    array([-1.,  0., -1.])
    >>> hinge.error(scores, targets)
    array([0., 0., 1.])
    >>> hinge.curvature(np.array([0.5]))
    array([0.25])
    """

    name: ClassVar[str]
    task: ClassVar[str]
    title: ClassVar[str]
    classifies: ClassVar[bool] = True
    distance: ClassVar[float]
    length: ClassVar[float] = 1.0

    @abstractmethod
    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each score.

        Parameters
        ----------
        scores : ndarray
            The scores of some rows.
        targets : ndarray
            Their targets, in [-1, 1].

        Returns
        -------
        ndarray
            The losses.
        """

    def error(self, scores: Floats, targets: Floats) -> Floats:
        """Return the error of each score that is reported to users.

        Parameters
        ----------
        scores : ndarray
            The scores of some rows.
        targets : ndarray
            Their targets, in [-1, 1].

        Returns
        -------
        ndarray
            1 if the sign of a score is wrong and 0 otherwise; the squared difference for "squared".
        """
        return np.not_equal(scores > 0, targets > 0).astype(np.float64)

    @abstractmethod
    def slope(self, scores: Floats, targets: Floats) -> Floats:
        """Return the derivative of the loss at each score.

        Parameters
        ----------
        scores : ndarray
            The scores of some rows.
        targets : ndarray
            Their targets, in [-1, 1].

        Returns
        -------
        ndarray
            The slopes; a row's gradient is its slope times its features.
        """

    def curvature(self, slopes: Floats) -> Floats:
        """Return the mean second derivative of the loss, given the mean absolute slope.

        If the probabilities p of a logistic regression are right, the mean slope is the mean of
        2 p (1 - p), twice the curvature. That of the hinge is 0 except where it bends; the same
        rule gives steps of the right size.

        Parameters
        ----------
        slopes : ndarray
            Mean absolute slopes.

        Returns
        -------
        ndarray
            The mean second derivatives.
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
    """Return the objective with this name.

    Parameters
    ----------
    name : str
        "squared", "logistic" or "hinge".

    Returns
    -------
    Objective
        The objective.

    Raises
    ------
    UnknownName
        If there is no objective with this name.

    Examples
    --------
    >>> objective("hinge").slope(np.array([0.5, 2.0]), np.array([1.0, 1.0]))
    array([-1.,  0.])
    """
    if name not in OBJECTIVES:
        raise unknown("objective", name, OBJECTIVES)
    return OBJECTIVES[name]
