"""Objectives: losses of a score, and their slopes, which make a gradient.

A linear model gives a row x the score z = <theta, x>. The gradient of the loss is the slope at z
times x. The target y is a number for `squared`, -1 or 1 for two labels, and for `softmax` the code
of a label, 0, 1, ...; `softmax` has a score for each label, along the last axis of an array.

A new objective is a class here and an entry in `OBJECTIVES`.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.text import unknown
from fedldp._internal.validation import Floats, plain_whole
from fedldp._internal.vectors import without_tiny
from fedldp.errors import DomainError
from fedldp.learn.features import check_target, encode_target
from fedldp.schema.attributes import Attribute

_LEAST = -60.0  # e^-60 counts as no probability: smaller numbers take time (see `without_tiny`)


class Objective(ABC):
    """A loss that depends on a score and a target, and is convex in the score.

    `objective` returns the objective with a given name.

    Attributes
    ----------
    name : str
        Its name: "squared", "logistic", "hinge" or "softmax".
    task : str
        Its name on the command line: "linear", "logistic", "svm" or "multiclass".
    title : str
        The usual name of the model.
    classifies : bool
        Whether the target is a label, and not a number.
    outputs : int
        How many scores a row has: one, or one for each label.
    distance : float
        How far from 0 the best weights may be; the automatic learning rate depends on it.
    length : float
        Where the length of a gradient is clipped by default.
    first_slope : float
        The mean length of slopes where all scores are 0.

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
    >>> hinge.decide(scores)
    array([1, 1, 0])
    >>> hinge.constant(targets)
    0.5
    """

    name: ClassVar[str]
    task: ClassVar[str]
    title: ClassVar[str]
    classifies: ClassVar[bool] = True
    length: ClassVar[float] = 1.0

    @property
    def outputs(self) -> int:
        """How many scores a row has."""
        return 1

    @property
    @abstractmethod
    def distance(self) -> float:
        """How far from 0 the best weights may be."""

    @property
    def first_slope(self) -> float:
        """The mean length of slopes where all scores are 0."""
        return 0.5

    def for_target(self, target: Attribute) -> "Objective":
        """Return this objective for a target, with as many outputs as it needs.

        Parameters
        ----------
        target : Attribute
            What is predicted.

        Returns
        -------
        Objective
            The objective.

        Raises
        ------
        DomainError
            If the objective cannot have this target.

        Examples
        --------
        >>> from fedldp import Category
        >>> objective("softmax").for_target(Category("gait", ["stand", "walk", "run"])).outputs
        3
        """
        check_target(target, self.classifies)
        return self

    def fits(self, target: Attribute) -> bool:
        """Return whether this objective can have a target.

        Parameters
        ----------
        target : Attribute
            What is predicted.

        Returns
        -------
        bool
            Whether `for_target` accepts it.

        Examples
        --------
        >>> from fedldp import Category
        >>> objective("squared").fits(Category("gait", ["stand", "walk", "run"]))
        False
        """
        try:
            self.for_target(target)
        except DomainError:
            return False
        return True

    def with_factor(self, factor: float) -> "Objective":
        """Return this objective with longer slopes, for a target that a survey has mapped.

        Parameters
        ----------
        factor : float
            By how much slopes are multiplied.

        Returns
        -------
        Objective
            The objective.

        Raises
        ------
        DomainError
            If the target is not a number.

        Examples
        --------
        >>> objective("squared").with_factor(4.0).slope(np.array([0.5]), np.array([0.25]))
        array([1.])
        """
        raise DomainError(f"{self.name} predicts a label, which has no factor.")

    def with_outputs(self, outputs: int) -> "Objective":
        """Return this objective with a number of outputs.

        Parameters
        ----------
        outputs : int
            The number of labels for "softmax", and 1 for the others.

        Returns
        -------
        Objective
            The objective.

        Raises
        ------
        DomainError
            If the objective cannot have this number of outputs.

        Examples
        --------
        >>> objective("softmax").with_outputs(6).outputs
        6
        """
        if type(plain_whole(outputs)) is not int or outputs != self.outputs:
            raise DomainError(f"{self.name} has {self.outputs} output; got {outputs!r:.80}.")
        return self

    def targets(self, target: Attribute, values: npt.NDArray[Any]) -> Floats:
        """Return the targets of some rows, as `loss`, `slope` and `error` take them.

        Parameters
        ----------
        target : Attribute
            What is predicted.
        values : ndarray of shape (rows,)
            Numbers in the units of the target, or codes of labels. A missing value, NaN, counts as
            the public default of the target.

        Returns
        -------
        ndarray of shape (rows,)
            The targets.

        Examples
        --------
        >>> from fedldp import Category
        >>> objective("logistic").targets(Category("late", ["no", "yes"]), np.array([0, 1]))
        array([-1.,  1.])
        """
        return encode_target(target, values)

    def decide(self, scores: Floats) -> npt.NDArray[Any]:
        """Return what scores predict.

        Parameters
        ----------
        scores : ndarray
            The scores of some rows.

        Returns
        -------
        ndarray
            The code of a label for each row; for "squared", a number on the scale of [-1, 1].
        """
        return (scores > 0).astype(np.intp)

    def constant(self, targets: Floats) -> Any:
        """Return the scores that are best if all rows get the same.

        Parameters
        ----------
        targets : ndarray of shape (rows,)
            The targets.

        Returns
        -------
        float or ndarray of shape (outputs,)
            The scores of one row.
        """
        return float((targets > 0).mean() - 0.5)

    def base_rate(self, targets: Floats) -> float:
        """Return the error of the best constant scores.

        Parameters
        ----------
        targets : ndarray of shape (rows,)
            The targets.

        Returns
        -------
        float
            The base rate: a model that errs as much is useless.

        Examples
        --------
        >>> objective("softmax").with_outputs(3).base_rate(np.array([0.0, 1.0, 1.0, 2.0]))
        0.5
        """
        same = np.broadcast_to(self.constant(targets), (len(targets), self.outputs))
        return float(self.error(same[:, 0] if self.outputs == 1 else same, targets).mean())

    def probabilities(self, scores: Floats) -> Floats:
        """Return the probability of each label.

        Parameters
        ----------
        scores : ndarray
            The scores of some rows.

        Returns
        -------
        ndarray
            A row of probabilities for each row.

        Raises
        ------
        DomainError
            If scores are not about probabilities.

        Examples
        --------
        >>> objective("logistic").probabilities(np.array([0.0]))
        array([[0.5, 0.5]])
        """
        raise DomainError(
            f"the scores of {self.title.lower()} are not probabilities. Use logistic regression, "
            "for two labels or several."
        )

    @abstractmethod
    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each score.

        Parameters
        ----------
        scores : ndarray
            The scores of some rows.
        targets : ndarray
            Their targets.

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
            Their targets.

        Returns
        -------
        ndarray
            1 if the label is wrong and 0 otherwise; the squared difference for "squared".
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
            Their targets.

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
@dataclass(frozen=True)
class Squared(Objective):
    """Linear regression: half the squared difference.

    Parameters
    ----------
    factor : float, default=1.0
        By how much slopes are multiplied, which a survey of the target finds. Losses and errors
        stay those of the target itself.
    """

    factor: float = field(default=1.0, repr=False)

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
        found: Floats = scores - targets
        if self.factor != 1.0:
            found *= self.factor
        return found

    def with_factor(self, factor: float) -> "Squared":
        """Return this objective with slopes that are this many times as long."""
        return Squared(factor)

    def curvature(self, slopes: Floats) -> Floats:
        """Return the mean second derivative of the loss: 1."""
        return np.ones_like(slopes)

    def decide(self, scores: Floats) -> npt.NDArray[Any]:
        """Return the scores: they are predictions."""
        return scores

    def constant(self, targets: Floats) -> float:
        """Return the mean of the targets."""
        return float(targets.mean())


@final
@dataclass(frozen=True)
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

    def probabilities(self, scores: Floats) -> Floats:
        """Return the probabilities of the two labels."""
        likely = np.tanh(scores * 0.5)
        return np.stack([0.5 - 0.5 * likely, 0.5 + 0.5 * likely], axis=-1)


@final
@dataclass(frozen=True)
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


@final
@dataclass(frozen=True)
class Softmax(Objective):
    """Logistic regression with several labels: ln(sum of e^z) - z_y.

    Adding the same to all scores of a row changes nothing. So the slopes of a row add up to 0, and
    what a server learns about their sum is noise alone: see `fedldp.learn.noise_aware`. With two
    labels this is logistic regression, whose score is the difference of the two.

    Parameters
    ----------
    outputs : int, default=2
        The number of labels.

    Raises
    ------
    DomainError
        If there are fewer than two labels.

    Examples
    --------
    >>> Softmax(3).probabilities(np.zeros((1, 3))).round(2)
    array([[0.33, 0.33, 0.33]])
    """

    outputs: int = 2

    name = "softmax"
    task = "multiclass"
    title = "Logistic regression with several labels"
    length = math.sqrt(2.0)  # so that with two labels it is that of logistic regression

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", plain_whole(self.outputs))
        if type(self.outputs) is not int or self.outputs < 2:
            raise DomainError(f"outputs must be at least 2, one a label; got {self.outputs!r}.")

    @property
    def distance(self) -> float:
        """How far from 0 the best weights may be.

        The difference of two labels' weights is that of a logistic regression, and the weights of
        all labels add up to 0.
        """
        return Logistic.distance * math.sqrt((1 - 1 / self.outputs) / 2)

    @property
    def first_slope(self) -> float:
        """The length of the slopes of a row where all scores are 0."""
        return math.sqrt(1 - 1 / self.outputs)

    def for_target(self, target: Attribute) -> "Softmax":
        """Return the objective with a score for each label of the target."""
        if not target.feature_labels:
            raise DomainError(
                f"the target {target.name!r} must be a category to be classified; got "
                f"{target!r:.200}. For a number use linear regression, or make labels of it."
            )
        return self.with_outputs(len(target.feature_labels))

    def with_outputs(self, outputs: int) -> "Softmax":
        """Return the objective with this many labels."""
        return Softmax(outputs)

    def targets(self, target: Attribute, values: npt.NDArray[Any]) -> Floats:
        """Return the codes of the labels."""
        return target.to_features(values)

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        top = scores.max(axis=-1)
        total = np.exp(scores - top[..., None]).sum(axis=-1)
        return np.asarray(np.log(total) + top - _at(scores, targets))

    def error(self, scores: Floats, targets: Floats) -> Floats:
        """Return 1 where another label has the largest score, and 0 elsewhere."""
        return np.asarray(self.decide(scores) != targets, np.float64)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        found = self.probabilities(scores)
        own = targets.astype(np.int64)
        found[..., np.arange(len(own)), own] -= 1
        return without_tiny(found)

    def curvature(self, slopes: Floats) -> Floats:
        """Return the mean second derivative along weights that add up to 0 over the labels.

        The mean length of slopes is sqrt(1 - 1/m) for m labels that are equally likely, where this
        derivative is 1/m. With two labels it is 2 p (1 - p), and the mean length of slopes is
        sqrt(2) times as much. Both are slopes / sqrt(m (m - 1)).
        """
        most = math.sqrt(2.0)
        return np.clip(slopes, 0.1 * most, most) / math.sqrt(self.outputs * (self.outputs - 1))

    def decide(self, scores: Floats) -> npt.NDArray[Any]:
        """Return the code of the label with the largest score; the first of several."""
        return np.asarray(scores.argmax(axis=-1))

    def constant(self, targets: Floats) -> Floats:
        """Return how often each label occurs."""
        return np.bincount(targets.astype(np.int64), minlength=self.outputs) / len(targets)

    def probabilities(self, scores: Floats) -> Floats:
        """Return the probabilities of the labels."""
        below = scores - scores.max(axis=-1, keepdims=True)
        found: Floats = np.exp(np.maximum(below, _LEAST))
        found /= found.sum(axis=-1, keepdims=True)
        return found


def _at(scores: Floats, targets: Floats) -> Floats:
    """Return the score of each row's own label."""
    own = targets.astype(np.int64)
    found: Floats = scores[..., np.arange(len(own)), own]
    return found


OBJECTIVES: dict[str, Objective] = {
    each.name: each for each in (Squared(), Logistic(), Hinge(), Softmax())
}


def objective(name: str) -> Objective:
    """Return the objective with this name.

    Parameters
    ----------
    name : str
        "squared", "logistic", "hinge" or "softmax".

    Returns
    -------
    Objective
        The objective; `Objective.for_target` gives it as many outputs as a target needs.

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
