"""The vehicles' half of LDP-FedSGD: a model, and the rows of all vehicles."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self, cast, final

import numpy as np

from fedldp._internal.validation import Floats, Integers
from fedldp.errors import DomainError
from fedldp.learn.examples import Examples, Rows, Surveyed, VehicleRows, rows_of
from fedldp.learn.features import Scaling
from fedldp.learn.gradients import BLOCK, silently
from fedldp.learn.networks import LINEAR_LENGTH, Network
from fedldp.learn.noise_aware import Prior
from fedldp.learn.objectives import Objective
from fedldp.plan.parts import VehicleValues
from fedldp.randomness import Source


class Task(ABC):
    """A model to train, and the data of the vehicles. Derive from it to train any other model.

    Examples
    --------
    >>> from fedldp.plan.parts import Matrix
    >>> class Means(Task):  # the gradient of half the squared distance from a vehicle's numbers
    ...     kind, dimensions = "means", 2
    ...     numbers_of_vehicles = np.array([[0.5, 0.1], [0.3, -0.1]])
    ...     def __len__(self):
    ...         return 2
    ...     def gradients(self, weights, vehicles):
    ...         rows = weights[:, None] - self.numbers_of_vehicles[vehicles]
    ...         return Matrix(rows.reshape(-1, 2))
    >>> Means().length, Means().prior, Means().start
    (1.0, None, None)
    """

    @property
    @abstractmethod
    def kind(self) -> str:
        """What distinguishes tasks that must not resume each other's training."""

    @property
    @abstractmethod
    def dimensions(self) -> int:
        """How many weights a model has."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many vehicles there are."""

    @abstractmethod
    def gradients(self, weights: Floats, vehicles: Rows) -> VehicleValues:
        """Return the gradients of some vehicles for some models.

        Parameters
        ----------
        weights : ndarray of shape (models, dimensions)
            The weights of each model.
        vehicles : slice or ndarray of int
            The numbers of the vehicles.

        Returns
        -------
        VehicleValues
            The gradients of all vehicles for the first model, then those for the second, and so on.
        """

    @property
    def at_once(self) -> int:
        """How many gradients a training asks for at a time, counted from the first of a group."""
        return 4 * BLOCK

    @property
    def start(self) -> Floats | None:
        """The public first weights; None for zeros."""
        return None

    @property
    def length(self) -> float:
        """Where the length of a gradient is clipped by default."""
        return 1.0

    @property
    def mean_length(self) -> float:
        """How long gradients are on average, roughly, as a share of where they are clipped."""
        return LINEAR_LENGTH

    @property
    def distance(self) -> float:
        """How far from the first weights the best ones may be; the learning rate depends on it."""
        return 1.0

    @property
    def prior(self) -> Prior | None:
        """What is known about the model before any vehicle is asked, for a noise-aware server."""
        return None

    @property
    def numbers(self) -> int:
        """How many numbers a survey can ask for."""
        return 0

    def units(self, vehicles: Rows, source: Source) -> Floats:
        """Return the numbers of some vehicles on the scale of [-1, 1], for a survey.

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
        raise DomainError("this task has no numbers that a survey can ask for.")

    def targets(self, vehicles: Rows, source: Source) -> Floats:
        """Return the targets of some vehicles on the scale of [-1, 1], for a survey of a target.

        Parameters
        ----------
        vehicles : slice or ndarray of int
            The numbers of the vehicles.
        source : Source
            The random source; it chooses one row of a vehicle that has several.

        Returns
        -------
        ndarray of shape (vehicles, 1)
            The targets.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp.learn import Arrays, objective
        >>> task = Linear(objective("squared"), Arrays(np.ones((2, 1)), np.array([0.5, 0.25])))
        >>> task.targets(slice(2), fedldp.source(1)).tolist()
        [[0.5], [0.25]]
        """
        raise DomainError("this task has no target that a survey can ask for.")

    def weights_for_target(self, weights: Floats) -> Floats:
        """Return the weights that predict the target itself, not what a survey maps it to.

        Parameters
        ----------
        weights : ndarray of shape (models, dimensions)
            The weights that a server learns.

        Returns
        -------
        ndarray of shape (models, dimensions)
            The weights.

        Examples
        --------
        >>> from fedldp.learn import Arrays, Scaling, objective
        >>> task = Linear(objective("squared"), Arrays(np.ones((2, 1)), np.zeros(2)))
        >>> task.scaled(Scaling((), (), target=(0.5, 2.0))).weights_for_target(np.ones((1, 1)))
        array([[1.]])
        """
        return weights

    def scaled(self, scaling: Scaling) -> Self:
        """Return the same task with scaled numbers, and a scaled target.

        Parameters
        ----------
        scaling : Scaling
            The public map of the numbers, and of the target.

        Returns
        -------
        Task
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
        raise DomainError("this task has no numbers that can be scaled.")


class Supervised(Task):
    """A model whose gradients follow from rows with a target: what `Linear` and `Layered` share.

    Attributes
    ----------
    network : Network
        The model that gives the gradients.
    objective : Objective
        The loss.
    examples : Examples
        The rows of all vehicles.
    vehicle_rows : VehicleRows or None
        Which rows each vehicle has; None if each row is a vehicle.

    Examples
    --------
    >>> from fedldp.learn import Arrays, objective
    >>> rows = Arrays(np.array([[0.5, 1.0], [-0.5, 1.0]]), np.array([1.0, -1.0]))
    >>> isinstance(Linear(objective("squared"), rows), Supervised)
    True
    """

    network: Network
    objective: Objective
    examples: Examples
    vehicle_rows: VehicleRows | None

    def __post_init__(self) -> None:
        if self.vehicle_rows is not None and self.vehicle_rows.total != len(self.examples):
            raise DomainError(
                f"vehicle_rows must be for {len(self.examples)} rows, as many as the examples; "
                f"got {self.vehicle_rows.total}."
            )

    @property
    def dimensions(self) -> int:
        """The number of weights of a model."""
        return self.network.dimensions

    @property
    def length(self) -> float:
        """Where the length of a gradient is clipped by default."""
        return self.objective.length

    @property
    def distance(self) -> float:
        """How far from the first weights the best ones may be."""
        return self.network.distance

    @property
    def at_once(self) -> int:
        """How many gradients a training asks for at a time: fewer where they are long."""
        return min(super().at_once, max(BLOCK, self.network.rows_at_once))

    @property
    def mean_length(self) -> float:
        """How long gradients are on average, roughly, as a share of where they are clipped."""
        return self.network.mean_length

    @property
    def numbers(self) -> int:
        """How many numbers a survey can ask for; none of signals, whose values are alike."""
        if self.network.signals or not isinstance(self.examples, Surveyed):
            return 0
        return self.examples.encoding.numbers

    def units(self, vehicles: Rows, source: Source) -> Floats:
        return cast(Surveyed, self.examples).units(self._one_row(vehicles, source))

    def _one_row(self, vehicles: Rows, source: Source) -> Rows:
        """Return a row of each of some vehicles, a random one if it has several."""
        rows, begins = rows_of(self.vehicle_rows, vehicles)
        if begins is not None:
            sizes = np.diff(begins, append=len(cast(Integers, rows)))
            if (sizes > 1).any():
                begins = begins + (source.uniform(len(begins)) * sizes).astype(np.int64)
            rows = cast(Integers, rows)[begins]
        return rows

    def scaled(self, scaling: Scaling) -> Self:
        return self.with_examples(cast(Surveyed, self.examples).scaled(scaling))

    def with_examples(self, examples: Examples) -> Self:
        """Return the same model on other rows.

        Parameters
        ----------
        examples : Examples
            As many rows as before.

        Returns
        -------
        Supervised
            The task.

        Examples
        --------
        >>> from fedldp.learn import Arrays, objective
        >>> task = Linear(objective("squared"), Arrays(np.ones((2, 1)), np.zeros(2)))
        >>> len(task.with_examples(Arrays(np.ones((3, 1)), np.zeros(3))))
        3
        """
        return replace(self, examples=examples)  # type: ignore[type-var] # a dataclass

    def __len__(self) -> int:
        return len(self.examples if self.vehicle_rows is None else self.vehicle_rows)

    def gradients(self, weights: Floats, vehicles: Rows) -> VehicleValues:
        rows, begins = rows_of(self.vehicle_rows, vehicles)
        return self.network.gradients(weights, *self.examples.read(rows), begins)

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

    @silently()
    def _mean(self, function: Callable[[Floats, Floats], Floats], weights: Floats) -> Floats:
        total = np.zeros(len(weights))
        for start in range(0, len(self.examples), BLOCK):
            features, targets = self.examples.read(slice(start, start + BLOCK))
            scores = self.network.scores(weights, features)
            total += function(scores, targets).sum(axis=1, dtype=np.float64)
        return total / len(self.examples)


@final
@dataclass(frozen=True, eq=False)
class Linear(Supervised):
    """The task of training a linear model.

    Parameters
    ----------
    objective : Objective
        The loss.
    examples : Arrays or another object with `dimensions`, `read` and a length
        The rows of all vehicles.
    vehicle_rows : VehicleRows, optional
        Which rows each vehicle has. By default each row is a vehicle.
    target : tuple of float, optional
        How a survey maps the target of a regression: see `Scaling`. Gradients are those of the
        mapped target; losses and errors stay those of the target itself.

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
    target: tuple[float, float] | None = None
    network: Network = field(init=False)

    def __post_init__(self) -> None:
        Supervised.__post_init__(self)
        goal = self.objective
        if self.target is not None:
            goal = goal.with_factor(self.target[1])
        network = Network.linear(self.examples.dimensions, goal)
        object.__setattr__(self, "network", network)

    def targets(self, vehicles: Rows, source: Source) -> Floats:
        _, found = self.examples.read(self._one_row(vehicles, source))
        return found.astype(np.float64)[:, None]

    def scaled(self, scaling: Scaling) -> "Linear":
        examples = self.examples
        if scaling.centres or self.numbers:
            examples = cast(Surveyed, examples).scaled(scaling)
        return replace(self, examples=examples, target=scaling.target)

    def weights_for_target(self, weights: Floats) -> Floats:
        return Scaling((), (), target=self.target).weights_for_target(weights)

    @property
    def kind(self) -> str:
        """The name of the objective."""
        return self.objective.name

    @property
    def prior(self) -> Prior:
        """What is known about the model before any vehicle is asked."""
        if isinstance(self.examples, Surveyed):
            return Prior.of(self.examples.encoding, self.objective)
        return Prior.of_numbers(self.examples.dimensions, self.objective)


@final
@dataclass(frozen=True, eq=False)
class Layered(Supervised):
    """The task of training a network with layers.

    If only the last layer of a classifier is trained, it is a linear model of what the others give:
    a survey asks about these numbers, and the server is noise-aware.

    Parameters
    ----------
    network : Network
        The network.
    examples : Arrays or another object with `dimensions`, `read` and a length
        The rows of all vehicles: the values of a row, flattened, and the constant.
    vehicle_rows : VehicleRows, optional
        Which rows each vehicle has. By default each row is a vehicle.
    seed : int, default=0
        The public seed of the first weights: see `Network.start`.
    unscaled : Network, optional
        The network before a survey, if there was one: see `scaled`.

    Raises
    ------
    DomainError
        If the rows do not fit the network, or `vehicle_rows` is for another number of rows.

    Examples
    --------
    >>> from fedldp.learn import Activation, Arrays, Dense, Network, objective
    >>> network = Network((1,), (Dense(2), Activation("relu")), objective("squared"))
    >>> rows = Arrays(np.array([[0.5, 1.0], [-0.5, 1.0]]), np.array([1.0, -1.0]))
    >>> task = Layered(network, rows)
    >>> weights = task.start[None]
    >>> task.dimensions, task.loss(weights), task.error(weights)
    (7, array([0.5]), array([1.]))
    >>> task.gradients(weights, slice(2)).all(np.arange(7)).shape
    (2, 7)
    """

    network: Network
    examples: Examples
    vehicle_rows: VehicleRows | None = None
    seed: int = 0
    unscaled: Network | None = None
    objective: Objective = field(init=False)

    def __post_init__(self) -> None:
        Supervised.__post_init__(self)
        if self.examples.dimensions != math.prod(self.network.inputs) + 1:
            raise DomainError(
                f"rows must have {math.prod(self.network.inputs)} values and the constant; "
                f"got {self.examples.dimensions}."
            )
        object.__setattr__(self, "objective", self.network.objective)

    @property
    def kind(self) -> str:
        """The fingerprint of the network."""
        return (self.unscaled or self.network).fingerprint

    @property
    def prior(self) -> Prior | None:
        """What is known about the last layer, if it alone is trained."""
        return Prior.of_hidden(self.network, standardized=self.unscaled is not None)

    @property
    def numbers(self) -> int:
        """How many numbers a survey can ask for."""
        if self.prior is None:
            return super().numbers
        return self.network.hidden_numbers

    def units(self, vehicles: Rows, source: Source) -> Floats:
        if self.prior is None:
            return super().units(vehicles, source)
        features, _ = self.examples.read(self._one_row(vehicles, source))
        return self.network.hidden_units(features)

    def scaled(self, scaling: Scaling) -> "Layered":
        if self.prior is None:
            return super().scaled(scaling)
        return replace(self, network=self.network.scaled(scaling), unscaled=self.network)

    @property
    def start(self) -> Floats:
        """The public first weights."""
        return self.network.start(self.seed)
