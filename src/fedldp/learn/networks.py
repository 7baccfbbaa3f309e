"""Networks as data: a declared list of layers, evaluated in NumPy with a gradient for each vehicle.

A network is what stands between the features of a row and its scores. After its layers follows one
dense layer with an output for each score of the objective. Without layers, that is a linear model:
linear and logistic regression, a support vector machine, and softmax are networks without layers.
So there is one notion of a model that gives gradients, and a vehicle needs no other code.

A network contains no code: it names layers that are installed here. Its size and what a row costs
in memory and time are limited, and checked before anything is computed.

Rows of features end with the constant 1, as everywhere in `fedldp.learn`: it is the bias of the
first layer that follows. The others have a bias of their own.
"""

import hashlib
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from fedldp._internal import documents
from fedldp._internal.science import scipy_module
from fedldp._internal.validation import Floats, Integers, is_real, plain_whole, whole
from fedldp._internal.vectors import without_tiny
from fedldp.errors import DomainError
from fedldp.learn.features import FeatureRows, Scaling, written_out
from fedldp.learn.gradients import gradients_of, scores_of, silently
from fedldp.learn.layers import Activation, Array, Dense, Layer, Shape, layer_from_document
from fedldp.learn.objectives import Objective, objective
from fedldp.plan.parts import Matrix, VehicleValues
from fedldp.randomness import source
from fedldp.vehicle import canonical

FORMAT = "fedldp network 1"

# What a vehicle can be asked to compute. A row has a gradient of at most 65,536 numbers, takes at
# most 8 MB and some milliseconds.
MOST_LAYERS = 32
MOST_WEIGHTS = 1 << 16
MOST_ROOM = 1 << 20  # numbers in memory for a row
MOST_OPERATIONS = 1 << 22  # multiplications for a row, forwards
LARGEST_FIXED = 1e6  # of a weight that is not trained

# Settled on synthetic problems (benchmarks/settle_networks.py); see docs/networks.md.
LAYERED_DISTANCE, SIGNAL_DISTANCE = 4.0, 32.0
LINEAR_LENGTH, LAYERED_LENGTH, SIGNAL_LENGTH = 0.3, 0.5, 0.8

_BLOCK_NUMBERS = 1 << 22  # numbers in memory at a time
_DIGITS = 6  # of first weights, so that every machine has the same


@final
@dataclass(frozen=True)
class Network:
    """Layers between the features of a row and its scores, and the objective. It is data, not code.

    Parameters
    ----------
    inputs : tuple of int
        The shape of a row, without the constant: (features,), or (channels, values) for signals.
    layers : tuple of Layer
        The layers before the last one. The last one is dense and has `objective.outputs` units; it
        is not listed. Without layers the model is linear.
    objective : Objective
        The loss, and how many scores a row has.
    fixed : tuple of float, default=()
        Weights of the first layers that are public and not trained: those of whole layers, from the
        first one on. Vehicles do not report their gradients.

    Raises
    ------
    DomainError
        If the layers do not fit together, or the network is larger than a vehicle computes.

    Examples
    --------
    >>> from fedldp.learn.layers import Activation, ChannelMean, Conv
    >>> softmax = objective("softmax").with_outputs(6)
    >>> network = Network((3, 64), (Conv(4, 5, 2), Activation("silu"), ChannelMean()), softmax)
    >>> network
    <Network: (3, 64) -> conv, activation, channel-mean -> 6 scores, softmax, 94 weights>
    >>> Network.from_json(network.to_json()) == network
    True
    >>> weights = network.start(seed=1)
    >>> rows = np.ones((2, 3 * 64 + 1))  # with the constant
    >>> network.outputs(weights[None], rows).shape  # models, rows, scores
    (1, 2, 6)
    >>> network.gradients(weights[None], rows, np.array([0.0, 5.0])).all(np.arange(94)).shape
    (2, 94)
    """

    inputs: Shape
    layers: tuple[Layer, ...]
    objective: Objective
    fixed: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", _checked_shape(self.inputs))
        object.__setattr__(self, "layers", tuple(self.layers))
        if len(self.layers) > MOST_LAYERS or not all(isinstance(e, Layer) for e in self.layers):
            raise DomainError(
                f"layers must be at most {MOST_LAYERS} layers; got {self.layers!r:.200}."
            )
        if self.layers:
            _check_most("weights", sum(self._sizes), MOST_WEIGHTS)
            _check_most("numbers in memory for a row", self.room, MOST_ROOM)
            _check_most("multiplications for a row", self.operations, MOST_OPERATIONS)
        object.__setattr__(self, "fixed", _checked_weights(self.fixed, LARGEST_FIXED))
        if len(self.fixed) not in self._ends[:-1]:
            raise DomainError(
                f"fixed must be the weights of whole layers, {self._ends[1:-1]} of them; "
                f"got {len(self.fixed)}."
            )

    def __repr__(self) -> str:
        names = ", ".join(each.kind for each in self.layers) or "linear"
        scores = f"{self.objective.outputs} score{'s' * (self.objective.outputs > 1)}"
        fixed = f", {len(self.fixed)} of them fixed" * bool(self.fixed)
        return (
            f"<Network: {self.inputs} -> {names} -> {scores}, {self.objective.name}, "
            f"{sum(self._sizes)} weights{fixed}>"
        )

    @classmethod
    def linear(cls, features: int, objective: Objective) -> "Network":
        """Return a linear model.

        Parameters
        ----------
        features : int
            The number of features, including the constant.
        objective : Objective
            The loss.

        Returns
        -------
        Network
            The network without layers.

        Examples
        --------
        >>> from fedldp.learn.objectives import objective
        >>> Network.linear(4, objective("hinge")).dimensions
        4
        """
        return cls((features - 1,), (), objective)

    @classmethod
    def perceptron(
        cls, features: int, objective: Objective, hidden: Sequence[int], activation: str = "tanh"
    ) -> "Network":
        """Return a multilayer perceptron: dense layers, each with an activation.

        Parameters
        ----------
        features : int
            The number of features, including the constant.
        objective : Objective
            The loss.
        hidden : sequence of int
            The number of units of each hidden layer.
        activation : {"relu", "tanh", "logistic", "silu"}, default="tanh"
            The function of the hidden units.

        Returns
        -------
        Network
            The network.

        Raises
        ------
        DomainError
            If a number of units or the activation is invalid, or the network is too large.

        Examples
        --------
        >>> Network.perceptron(4, objective("logistic"), hidden=[8, 3])
        <Network: (3,) -> dense, activation, dense, activation -> 1 score, logistic, 63 weights>
        """
        layers: list[Layer] = []
        for units in hidden:
            layers += [Dense(units), Activation(activation)]
        return cls((features - 1,), tuple(layers), objective)

    @cached_property
    def _steps(self) -> tuple[Layer, ...]:
        """All layers, and the last one."""
        return (*self.layers, Dense(self.objective.outputs))

    @cached_property
    def _shapes(self) -> list[Shape]:
        """The shape of the input of each step."""
        shapes = [self.inputs]
        if self.layers:
            _check_most("values of a row", math.prod(self.inputs), MOST_ROOM)
        for number, layer in enumerate(self._steps[:-1], 1):
            try:
                shape = layer.output(shapes[-1])
            except DomainError as error:
                raise DomainError(f"layer {number} of a network: {error}") from error
            _check_most(f"values of layer {number}", math.prod(shape), MOST_ROOM)
            shapes.append(shape)
        if self.layers and len(shapes[-1]) != 1:
            raise DomainError(
                "the last layer of a network must give values and not signals: end it with a "
                f"flatten or channel-mean layer; got the shape {shapes[-1]}."
            )
        return [*shapes[:-1], (math.prod(shapes[-1]),)]

    @cached_property
    def _sizes(self) -> list[int]:
        """How many weights each step has."""
        return [step.size(shape) for step, shape in self.steps]

    @cached_property
    def _ends(self) -> list[int]:
        """Where the weights of each step begin, and where those of the last one end."""
        return [0, *np.cumsum(self._sizes).tolist()]

    @property
    def _frozen(self) -> int:
        """How many of the first steps have no weight that is trained."""
        return bisect_right(self._ends[:-1], len(self.fixed)) - 1

    @property
    def steps(self) -> list[tuple[Layer, Shape]]:
        """All layers, the last one too, each with the shape of its input."""
        return list(zip(self._steps, self._shapes, strict=True))

    @property
    def dimensions(self) -> int:
        """The number of weights that are trained."""
        return sum(self._sizes) - len(self.fixed)

    @property
    def room(self) -> int:
        """How many numbers a row needs in memory."""
        return sum(step.room(shape) for step, shape in self.steps)

    @property
    def operations(self) -> int:
        """About how many multiplications a row takes, forwards; a gradient takes thrice that."""
        return sum(step.operations(shape) for step, shape in self.steps)

    @property
    def signals(self) -> bool:
        """Whether rows are signals, and not features."""
        return len(self.inputs) == 2

    @property
    def only_last(self) -> bool:
        """Whether only the last layer is trained: a linear model of what the others compute."""
        return self._frozen == len(self.layers)

    @property
    def hidden_numbers(self) -> int:
        """How many numbers the last layer gets."""
        return math.prod(self._shapes[-1])

    def scaled(self, scaling: Scaling) -> "Network":
        """Return it with one more fixed layer, which maps what the last layer gets.

        Parameters
        ----------
        scaling : Scaling
            A map of as many numbers as the last layer gets.

        Returns
        -------
        Network
            The network.

        Raises
        ------
        DomainError
            If not only the last layer is trained, or the map is for another number of values.

        Examples
        --------
        >>> network = Network((1,), (Dense(1),), objective("logistic"), fixed=(2.0, 0.0))
        >>> network.scaled(Scaling((0.5,), (4.0,))).hidden(np.array([[0.25, 1.0], [0.5, 1.0]]))
        array([[0.],
               [2.]])
        """
        if not self.only_last or len(scaling.centres) != self.hidden_numbers:
            raise DomainError(
                f"a scaling of {len(scaling.centres)} hidden numbers is for a network that trains "
                f"only its last layer, on as many numbers; got {self!r}."
            )
        matrix = scaling.matrix
        weights = np.column_stack([matrix, -matrix @ np.array(scaling.centres)])
        fixed = (*self.fixed, *weights.reshape(-1).tolist())
        return replace(self, layers=(*self.layers, Dense(len(matrix))), fixed=fixed)

    def hidden(self, features: FeatureRows) -> Array:
        """Return what the last layer gets, if it alone is trained.

        Parameters
        ----------
        features : ndarray of shape (rows, features) or SparseFeatures
            The features, with the constant in the last column.

        Returns
        -------
        ndarray of shape (rows, values)
            The values of each row.

        Examples
        --------
        >>> from fedldp.learn.layers import ChannelMean
        >>> network = Network((1, 2), (ChannelMean(),), objective("logistic"))
        >>> network.hidden(np.array([[0.5, 1.0, 1.0]]))
        array([[0.75]])
        """
        result = np.empty((len(features), *self._shapes[-1]), features.dtype)
        for rows, values in self._blocks(features):
            parts = self._parts(np.zeros(self.dimensions), values)
            for step, mine in zip(self.layers, parts, strict=False):
                values = without_tiny(step.forward(mine, values)[0])
            result[rows] = values
        return result

    def hidden_units(self, features: FeatureRows) -> Floats:
        """Return the hidden numbers of some rows on the scale of [-1, 1], for a survey.

        Parameters
        ----------
        features : ndarray of shape (rows, features) or SparseFeatures
            The features, with the constant in the last column.

        Returns
        -------
        ndarray of shape (rows, values)
            The values of each row, clipped.

        Examples
        --------
        >>> network = Network((1,), (Dense(1),), objective("logistic"), fixed=(2.0, 0.0))
        >>> network.hidden_units(np.array([[0.25, 1.0], [0.75, 1.0]]))
        array([[0.5],
               [1. ]])
        """
        return np.clip(self.hidden(features).astype(np.float64), -1.0, 1.0)

    @property
    def distance(self) -> float:
        """How far from the first weights the best ones may be.

        The hidden weights must become large, whatever the objective. What tells signals apart is a
        small part of them, and their filters must become larger.
        """
        if self.only_last:
            return self.objective.distance
        least = max(self.objective.distance, LAYERED_DISTANCE)
        return least * (SIGNAL_DISTANCE if self.signals else 1.0)

    @property
    def mean_length(self) -> float:
        """How long gradients are on average, roughly, as a share of where they are clipped."""
        if self.only_last:
            return LINEAR_LENGTH
        return SIGNAL_LENGTH if self.signals else LAYERED_LENGTH

    @property
    def rows_at_once(self) -> int:
        """How many rows' gradients fit into about 128 MB."""
        return max(1, (1 << 24) // self.dimensions)

    def start(self, seed: int) -> Floats:
        """Return public first weights, the same on every machine.

        Biases and the last layer begin at 0: all scores of the first model are 0. The other weights
        are normal, with a variance at which values keep their size from layer to layer (He et al.
        2015). Without layers, all weights are 0.

        Parameters
        ----------
        seed : int
            The public seed.

        Returns
        -------
        ndarray of shape (dimensions,)
            The weights that are trained.

        Examples
        --------
        >>> from fedldp.learn.layers import Activation
        >>> network = Network((2,), (Dense(1), Activation("tanh")), objective("squared"))
        >>> network.start(seed=7)
        array([-0.039258, -0.03839 ,  0.      ,  0.      ,  0.      ])
        """
        found = [self._first(number, seed) for number in range(len(self._steps))]
        return np.concatenate(found)[len(self.fixed) :]

    def _first(self, number: int, seed: int) -> Floats:
        """Return the first weights of a step."""
        ndtri = scipy_module("special").ndtri

        step, shape, size = self._steps[number], self._shapes[number], self._sizes[number]
        if not size or number == len(self.layers):
            return np.zeros(size)
        inputs, units = step.inputs(shape), step.output(shape)[0]
        # Not the stream from which a simulation with this seed draws its noise.
        text = f"fedldp first weights of layer {number}: {whole(seed, 'seed')}"
        key = int.from_bytes(hashlib.sha256(text.encode()).digest())
        drawn = ndtri(source(key).uniform((units, inputs)))
        weights = np.zeros((units, size // units))
        gain = self._steps[number + 1].gain
        weights[:, :inputs] = np.round(drawn * math.sqrt(gain / inputs), _DIGITS)
        return weights.reshape(-1)

    def dense_weights(self, weights: Floats) -> list[Floats]:
        """Return the weights of each layer that has any, with a row for each unit or filter.

        Parameters
        ----------
        weights : ndarray of shape (dimensions,)
            The weights that are trained.

        Returns
        -------
        list of ndarray
            A matrix for each layer, the bias in the last column, that of the last layer last.

        Examples
        --------
        >>> network = Network((4,), (Dense(3),), objective("squared"))
        >>> [each.shape for each in network.dense_weights(network.start(1))]
        [(3, 5), (1, 4)]
        """
        parts = zip(self.steps, self._parts(weights, weights), strict=True)
        found = [(step.output(shape)[0], mine) for (step, shape), mine in parts if mine.size]
        return [mine.reshape(units, -1) for units, mine in found]

    def outputs(self, weights: Floats, features: FeatureRows) -> Array:
        """Return the scores of some rows.

        Parameters
        ----------
        weights : ndarray of shape (models, dimensions)
            The weights of each model.
        features : ndarray of shape (rows, features) or SparseFeatures
            The features, with the constant in the last column.

        Returns
        -------
        ndarray of shape (models, rows, outputs)
            The scores.
        """
        outputs = self.objective.outputs
        if not self.layers:
            scores = scores_of(features, weights.reshape(len(weights) * outputs, -1))
            return scores.reshape(len(weights), outputs, -1).transpose(0, 2, 1)
        result = np.empty((len(weights), len(features), outputs), features.dtype)
        for model, row in zip(result, weights, strict=True):
            for rows, values in self._blocks(features):
                for step, mine in zip(self._steps, self._parts(row, values), strict=True):
                    values = without_tiny(step.forward(mine, values)[0])
                model[rows] = values
        return result

    def scores(self, weights: Floats, features: FeatureRows) -> Array:
        """Return the scores of some rows as the objective takes them.

        Parameters
        ----------
        weights : ndarray of shape (models, dimensions)
            The weights of each model.
        features : ndarray of shape (rows, features) or SparseFeatures
            The features, with the constant in the last column.

        Returns
        -------
        ndarray of shape (models, rows) or (models, rows, outputs)
            The scores, without the last axis if there is one for each row.

        Examples
        --------
        >>> network = Network.linear(2, objective("logistic"))
        >>> network.scores(np.array([[2.0, -1.0]]), np.array([[0.5, 1.0]]))
        array([[0.]])
        """
        found = self.outputs(weights, features)
        return found[:, :, 0] if self.objective.outputs == 1 else found

    def gradients(
        self,
        weights: Floats,
        features: FeatureRows,
        targets: Floats,
        begins: Integers | None = None,
    ) -> VehicleValues:
        """Return the gradients of some vehicles for some models.

        Parameters
        ----------
        weights : ndarray of shape (models, dimensions)
            The weights of each model.
        features : ndarray of shape (rows, features) or SparseFeatures
            The features, with the constant in the last column.
        targets : ndarray of shape (rows,)
            The targets, as `Objective.targets` returns them.
        begins : ndarray of int, optional
            Where the rows of each vehicle begin, if vehicles have several: their gradient is the
            mean.

        Returns
        -------
        VehicleValues
            The gradients of all vehicles for the first model, then those for the second.
        """
        if not self.layers:  # the gradients need not be written out
            return gradients_of(self.objective, weights, features, targets, begins)
        with silently():
            every = [self._of_vehicles(row, features, targets, begins) for row in weights]
            return Matrix(np.concatenate(every))

    def _of_vehicles(
        self, weights: Floats, features: FeatureRows, targets: Floats, begins: Integers | None
    ) -> Floats:
        """Return the gradient of each vehicle for one model; few rows are in memory at a time."""
        begins = np.arange(len(features)) if begins is None else begins
        sizes = np.diff(begins, append=len(features))
        vehicles = np.repeat(np.arange(len(begins)), sizes)
        means = np.zeros((len(begins), self.dimensions))
        for rows, gradients in self._of_rows(weights, features, targets):
            own = vehicles[rows]
            starts = np.flatnonzero(np.diff(own, prepend=-1))
            means[own[starts]] += np.add.reduceat(gradients, starts, axis=0, dtype=np.float64)
        means /= sizes[:, None]
        return means

    def _of_rows(
        self, weights: Floats, features: FeatureRows, targets: Floats
    ) -> Iterator[tuple[slice, Array]]:
        """Yield the gradients of some rows at a time, for one model."""
        for rows, values in self._blocks(features):
            gradients = np.empty((len(values), self.dimensions), values.dtype)
            parts, intermediates = list(self._parts(weights, values)), []
            for step, mine in zip(self._steps, parts, strict=True):
                values, needed = step.forward(mine, values)
                values = without_tiny(values)
                intermediates.append(needed)
            one = self.objective.outputs == 1
            slopes = self.objective.slope(values[:, 0] if one else values, targets[rows])
            slopes = without_tiny(slopes.reshape(values.shape).astype(values.dtype, copy=False))
            end = self.dimensions
            for number in range(len(parts) - 1, self._frozen - 1, -1):
                step = self._steps[number]
                gradient, slopes = step.backward(parts[number], intermediates[number], slopes)
                slopes = without_tiny(slopes)
                gradients[:, end - gradient.shape[1] : end] = gradient
                end -= gradient.shape[1]
            yield rows, gradients

    def _blocks(self, features: FeatureRows) -> Iterator[tuple[slice, Array]]:
        """Yield the inputs of some rows at a time, so that memory is limited."""
        size = max(1, _BLOCK_NUMBERS // self.room)
        for start in range(0, len(features), size):
            rows = slice(start, start + size)
            dense = without_tiny(written_out(features[rows])[:, :-1])
            yield rows, dense.reshape(len(dense), *self.inputs)

    def _parts(self, weights: Floats, values: Array) -> Iterator[Array]:
        """Yield the weights of each step, in the precision of the values."""
        every = without_tiny(np.concatenate([np.array(self.fixed), weights]).astype(values.dtype))
        for start, end in zip(self._ends, self._ends[1:], strict=False):
            yield every[start:end]

    def to_document(self) -> dict[str, Any]:
        """Return the network as plain values, without the objective.

        Returns
        -------
        dict
            The entries inputs, layers and fixed.

        Examples
        --------
        >>> Network((2,), (Dense(3),), objective("squared")).to_document()["inputs"]
        [2]
        """
        return {
            "inputs": list(self.inputs),
            "layers": [each.to_document() for each in self.layers],
            "fixed": list(self.fixed),
        }

    @classmethod
    def from_document(cls, document: Any, objective: Objective) -> "Network":
        """Read a network from plain values, and validate all of it.

        Parameters
        ----------
        document : dict
            Entries as `to_document` returns them.
        objective : Objective
            The objective.

        Returns
        -------
        Network
            The network.

        Raises
        ------
        DomainError
            If an entry is invalid.

        Examples
        --------
        >>> document = {"inputs": [2], "layers": [], "fixed": []}
        >>> Network.from_document(document, objective("squared"))
        <Network: (2,) -> linear -> 1 score, squared, 3 weights>
        """
        if not isinstance(document, dict) or document.keys() != {"inputs", "layers", "fixed"}:
            raise DomainError(
                f"a network must have the entries inputs, layers and fixed; got {document!r:.80}."
            )
        layers = document["layers"]
        if not isinstance(layers, list) or len(layers) > MOST_LAYERS:
            raise DomainError(f"layers must be a list of at most {MOST_LAYERS} layers.")
        parsed = tuple(layer_from_document(layer) for layer in layers)
        return cls(document["inputs"], parsed, objective, document["fixed"])

    def to_json(self) -> str:
        """Return the network as canonical JSON, from which `from_json` reads it exactly.

        Returns
        -------
        str
            The JSON.
        """
        outputs = {"objective": self.objective.name, "outputs": self.objective.outputs}
        return canonical({"format": FORMAT} | outputs | self.to_document())

    @classmethod
    def from_json(cls, text: str) -> "Network":
        """Read a network and validate all of it.

        Parameters
        ----------
        text : str
            JSON that `to_json` returned.

        Returns
        -------
        Network
            The network.

        Raises
        ------
        WireError
            If the text is not a valid network.
        """
        with documents.reading(repr(FORMAT)):
            entries = ("objective", "outputs", "inputs", "layers", "fixed")
            document = documents.parse(text, [FORMAT], entries)
            goal = objective(document["objective"]).with_outputs(document["outputs"])
            body = {name: document[name] for name in ("inputs", "layers", "fixed")}
            network = cls.from_document(body, goal)
            documents.check_written(network.to_json(), canonical(document))
        return network

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the canonical JSON, in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


# What makes a network, given the number of features with the constant, and the objective: such as
# `Network.linear`.
Architecture = Callable[[int, Objective], Network]


def _checked_shape(shape: Any) -> Shape:
    found = tuple(map(plain_whole, shape)) if isinstance(shape, list | tuple) else ()
    if len(found) not in (1, 2) or any(type(each) is not int or each < 0 for each in found):
        raise DomainError(
            "inputs must be the shape of a row, (features,) or (channels, values); "
            f"got {shape!r:.80}."
        )
    return found


def _checked_weights(weights: Any, largest: float) -> tuple[float, ...]:
    if not isinstance(weights, list | tuple | np.ndarray) or len(weights) > MOST_WEIGHTS:
        raise DomainError(f"fixed must be at most {MOST_WEIGHTS} numbers; got {weights!r:.80}.")
    for weight in weights:
        if not is_real(weight) or not abs(weight) <= largest:
            raise DomainError(f"fixed must be numbers within +-{largest:g}; got {weight!r:.80}.")
    return tuple(float(weight) + 0.0 for weight in weights)


def _check_most(what: str, number: int, most: int) -> None:
    if number > most:
        raise DomainError(f"a network has at most {most:,} {what}; got {number:,}.")
