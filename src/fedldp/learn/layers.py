"""The layers of a network as data: what each computes, forwards and backwards, in NumPy.

A layer takes the values of some rows, an array with a row for each, and gives those of the next
layer. Backwards it takes the slopes of the loss in its output, and gives the gradient of its own
weights, one row for each row, and the slopes in its input. A new layer is a class here and an entry
in `LAYERS`; its document, its limits and its tests follow.

The weights of a dense or convolutional layer have a row for each unit or filter, the bias last.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.text import unknown
from fedldp._internal.validation import plain_whole
from fedldp.errors import DomainError

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

MOST_UNITS = 1 << 16  # of a layer, and values of a signal
LEAST_LOG, MOST_LOG = -5.0, 1.0  # the bounds of the logarithm of a variance, to the base 10


class Layer(ABC):
    """A step of a network. Layers are data: equal layers compute the same.

    Attributes
    ----------
    kind : str
        Its name in documents.
    gain : float
        By how much the variance of first weights is larger than 1 / inputs, so that the next layer
        keeps about the variance of the values that it gets.

    Examples
    --------
    >>> layer = layer_from_document({"layer": "dense", "units": 3, "bias": True})
    >>> layer
    Dense(units=3, bias=True)
    """

    kind: ClassVar[str]
    gain: float = 1.0

    @abstractmethod
    def output(self, shape: Shape) -> Shape:
        """Return the shape of the output of one row.

        Parameters
        ----------
        shape : tuple of int
            The shape of its input: (values,), or (channels, values) for signals.

        Returns
        -------
        tuple of int
            The shape.

        Raises
        ------
        DomainError
            If the layer cannot have this input.

        Examples
        --------
        >>> Dense(3).output((5,))
        (3,)
        """

    def size(self, shape: Shape) -> int:
        """Return how many weights the layer has.

        Parameters
        ----------
        shape : tuple of int
            The shape of its input.

        Returns
        -------
        int
            The number of weights.

        Examples
        --------
        >>> Dense(3).size((5,))
        18
        """
        return 0

    def operations(self, shape: Shape) -> int:
        """Return about how many multiplications a row takes, forwards.

        Parameters
        ----------
        shape : tuple of int
            The shape of its input.

        Returns
        -------
        int
            The number.

        Examples
        --------
        >>> Dense(3).operations((5,))
        15
        """
        return math.prod(shape)

    def room(self, shape: Shape) -> int:
        """Return how many numbers a row needs in memory, its gradient included.

        Parameters
        ----------
        shape : tuple of int
            The shape of its input.

        Returns
        -------
        int
            The number.

        Examples
        --------
        >>> Dense(3).room((5,))
        26
        """
        return math.prod(shape) + math.prod(self.output(shape)) + self.size(shape)

    def inputs(self, shape: Shape) -> int:
        """Return how many values each of its units sees, for its first weights.

        Parameters
        ----------
        shape : tuple of int
            The shape of its input.

        Returns
        -------
        int
            The number, without the bias.

        Examples
        --------
        >>> Dense(3).inputs((5,))
        5
        """
        return 1

    @abstractmethod
    def forward(self, weights: Array, values: Array) -> tuple[Array, Any]:
        """Return the output for some rows, and what `backward` needs.

        Parameters
        ----------
        weights : ndarray of shape (size,)
            The weights.
        values : ndarray of shape (rows, *shape)
            The input.

        Returns
        -------
        output : ndarray
            The output.
        kept : object
            What `backward` needs.

        Examples
        --------
        >>> Dense(1).forward(np.array([1.0, 2.0, 0.5]), np.array([[1.0, 10.0]]))[0]
        array([[21.5]])
        """

    @abstractmethod
    def backward(self, weights: Array, kept: Any, slopes: Array) -> tuple[Array, Array]:
        """Return the gradient of the weights for each row, and the slopes in the input.

        Parameters
        ----------
        weights : ndarray of shape (size,)
            The weights.
        kept : object
            What `forward` returned.
        slopes : ndarray
            The slopes of the loss in the output of each row.

        Returns
        -------
        gradient : ndarray of shape (rows, size)
            The gradients.
        slopes : ndarray of shape (rows, *shape)
            The slopes in the input.

        Examples
        --------
        >>> weights, kept = np.array([1.0, 2.0, 0.5]), np.array([[1.0, 10.0]])
        >>> Dense(1).backward(weights, kept, np.array([[2.0]]))
        (array([[ 2., 20.,  2.]]), array([[2., 4.]]))
        """

    def to_document(self) -> dict[str, Any]:
        """Return the layer as plain values.

        Returns
        -------
        dict
            The kind of layer and its options, all of them.

        Examples
        --------
        >>> Dense(3).to_document()
        {'layer': 'dense', 'units': 3, 'bias': True}
        """
        return {"layer": self.kind} | asdict(self)  # type: ignore[call-overload,no-any-return]


@final
@dataclass(frozen=True)
class Dense(Layer):
    """Every output is a weighted sum of all inputs, plus a bias.

    Parameters
    ----------
    units : int
        The number of outputs.
    bias : bool, default=True
        Whether there is a bias.

    Raises
    ------
    DomainError
        If an option is invalid.

    Examples
    --------
    >>> Dense(2).size((3,))
    8
    """

    units: int
    bias: bool = True

    kind = "dense"

    def __post_init__(self) -> None:
        _check_whole(self, "units")
        _check_bool(self, "bias")

    def output(self, shape: Shape) -> Shape:
        _check_rank(self, shape, 1, "values: put a flatten or channel-mean layer before it")
        return (self.units,)

    def size(self, shape: Shape) -> int:
        return self.units * (self.inputs(shape) + self.bias)

    def operations(self, shape: Shape) -> int:
        return self.units * self.inputs(shape)

    def inputs(self, shape: Shape) -> int:
        return math.prod(shape)

    def forward(self, weights: Array, values: Array) -> tuple[Array, Any]:
        return self._sums(weights, values), values

    def _sums(self, weights: Array, values: Array) -> Array:
        """Return the sums of inputs along the last axis."""
        matrix = weights.reshape(self.units, -1)
        if not self.bias:
            return np.asarray(values @ matrix.T)
        return np.asarray(values @ matrix[:, :-1].T + matrix[:, -1])

    def backward(self, weights: Array, kept: Any, slopes: Array) -> tuple[Array, Array]:
        matrix, width = weights.reshape(self.units, -1), kept.shape[1]
        gradient = np.empty((len(kept), *matrix.shape), slopes.dtype)
        np.multiply(slopes[:, :, None], kept[:, None, :], out=gradient[:, :, :width])
        if self.bias:
            gradient[:, :, -1] = slopes
        return gradient.reshape(len(kept), -1), slopes @ matrix[:, :width]


@final
@dataclass(frozen=True)
class Conv(Layer):
    """A convolution of signals: each filter slides over all channels.

    Parameters
    ----------
    filters : int
        The number of filters, which are the channels of the output.
    width : int
        How many values of a channel a filter sees at a time.
    stride : int, default=1
        How far it slides.
    bias : bool, default=True
        Whether a filter has a bias.

    Raises
    ------
    DomainError
        If an option is invalid.

    Examples
    --------
    >>> Conv(4, width=5, stride=2).output((3, 64)), Conv(4, width=5).size((3, 64))
    ((4, 30), 64)
    """

    filters: int
    width: int
    stride: int = 1
    bias: bool = True

    kind = "conv"

    def __post_init__(self) -> None:
        for name in ("filters", "width", "stride"):
            _check_whole(self, name)
        _check_bool(self, "bias")

    def output(self, shape: Shape) -> Shape:
        return self.filters, _windows(self, shape, self.width, self.stride)

    def size(self, shape: Shape) -> int:
        return self.filters * (self.inputs(shape) + self.bias)

    def operations(self, shape: Shape) -> int:
        return math.prod(self.output(shape)) * self.inputs(shape)

    def room(self, shape: Shape) -> int:
        return super().room(shape) + 2 * self.output(shape)[1] * self.inputs(shape)

    def inputs(self, shape: Shape) -> int:
        return shape[0] * self.width

    def forward(self, weights: Array, values: Array) -> tuple[Array, Any]:
        seen = _sliding(values, self.width, self.stride)  # rows, channels, places, width
        rows, channels, places, width = seen.shape
        columns = seen.transpose(0, 2, 1, 3).reshape(rows, places, channels * width)
        matrix = weights.reshape(self.filters, -1)
        sums = columns.reshape(rows * places, -1) @ matrix[:, : channels * width].T
        if self.bias:
            sums += matrix[:, -1]
        output = sums.reshape(rows, places, self.filters).transpose(0, 2, 1)
        return output, (columns, values.shape)

    def backward(self, weights: Array, kept: Any, slopes: Array) -> tuple[Array, Array]:
        columns, shape = kept
        rows, places, seen = columns.shape
        matrix = weights.reshape(self.filters, -1)
        gradient = np.empty((rows, *matrix.shape), slopes.dtype)
        np.matmul(slopes, columns, out=gradient[:, :, :seen])
        if self.bias:
            slopes.sum(axis=2, out=gradient[:, :, -1])
        by_place = np.ascontiguousarray(slopes.transpose(0, 2, 1)).reshape(rows * places, -1)
        back = (by_place @ matrix[:, :seen]).reshape(rows, places, shape[1], self.width)
        return gradient.reshape(rows, -1), _add_windows(
            back.transpose(0, 2, 1, 3), shape, self.stride
        )


@final
@dataclass(frozen=True)
class Activation(Layer):
    """A function of each value.

    Parameters
    ----------
    function : {"relu", "tanh", "logistic", "silu"}
        The function; "silu" is x / (1 + e^-x).

    Raises
    ------
    DomainError
        If the function is unknown.

    Examples
    --------
    >>> Activation("relu").forward(np.empty(0), np.array([[-1.0, 2.0]]))[0]
    array([[0., 2.]])
    """

    function: str

    kind = "activation"

    def __post_init__(self) -> None:
        if self.function not in ACTIVATIONS:
            raise DomainError(f"function must be one of {ACTIVATIONS}; got {self.function!r:.80}.")

    @property
    def gain(self) -> float:  # type: ignore[override]
        """2 for functions that drop half of what they get."""
        return _FUNCTIONS[self.function][1]

    def output(self, shape: Shape) -> Shape:
        return shape

    def forward(self, weights: Array, values: Array) -> tuple[Array, Any]:
        return _FUNCTIONS[self.function][0](values)

    def backward(self, weights: Array, kept: Any, slopes: Array) -> tuple[Array, Array]:
        return _no_gradient(slopes), slopes * kept


@final
@dataclass(frozen=True)
class Pool(Layer):
    """The mean or the largest of neighboring values of a signal.

    Parameters
    ----------
    width : int
        How many neighbors.
    stride : int
        How far apart the first neighbors are.
    function : {"mean", "max"}, default="mean"
        What is taken.

    Raises
    ------
    DomainError
        If an option is invalid.

    Examples
    --------
    >>> Pool(2, 2, "max").forward(np.empty(0), np.array([[[1.0, 3.0, 2.0, 0.0]]]))[0]
    array([[[3., 2.]]])
    """

    width: int
    stride: int
    function: str = "mean"

    kind = "pool"

    def __post_init__(self) -> None:
        for name in ("width", "stride"):
            _check_whole(self, name)
        if self.function not in POOLS:
            raise DomainError(f"function must be one of {POOLS}; got {self.function!r:.80}.")

    def output(self, shape: Shape) -> Shape:
        return shape[0], _windows(self, shape, self.width, self.stride)

    def operations(self, shape: Shape) -> int:
        return self.width * math.prod(self.output(shape))

    def room(self, shape: Shape) -> int:
        return super().room(shape) + 2 * self.width * math.prod(self.output(shape))

    def forward(self, weights: Array, values: Array) -> tuple[Array, Any]:
        seen = _sliding(values, self.width, self.stride)
        if self.function == "mean":
            return seen.mean(axis=3), (None, values.shape)
        first = seen.argmax(axis=3)
        found = np.take_along_axis(seen, first[..., None], axis=3)[..., 0]
        return found, (first, values.shape)

    def backward(self, weights: Array, kept: Any, slopes: Array) -> tuple[Array, Array]:
        first, shape = kept
        if first is None:
            back = np.repeat(slopes[..., None] / self.width, self.width, axis=3)
        else:
            back = np.zeros((*slopes.shape, self.width), slopes.dtype)
            np.put_along_axis(back, first[..., None], slopes[..., None], axis=3)
        return _no_gradient(slopes), _add_windows(back, shape, self.stride)


@final
@dataclass(frozen=True)
class ChannelMean(Layer):
    """The mean of each channel.

    Examples
    --------
    >>> ChannelMean().output((4, 30))
    (4,)
    """

    kind = "channel-mean"

    def output(self, shape: Shape) -> Shape:
        _check_rank(self, shape, 2, "signals")
        return shape[:1]

    def forward(self, weights: Array, values: Array) -> tuple[Array, Any]:
        return values.mean(axis=2), values.shape

    def backward(self, weights: Array, kept: Any, slopes: Array) -> tuple[Array, Array]:
        back = np.broadcast_to((slopes / kept[2])[:, :, None], kept)
        return _no_gradient(slopes), back


@final
@dataclass(frozen=True)
class LogVariance(Layer):
    """The logarithm of the variance of each channel, from 1e-5 to 10, on the scale of [-1, 1].

    After fixed filters, it is a feature that tells signals apart: see `Convolutions.network`.

    Parameters
    ----------
    means : int, default=0
        Of how many of the last channels the mean is taken instead.

    Raises
    ------
    DomainError
        If `means` is not a whole number from 0 on.

    Examples
    --------
    >>> signals = np.array([[[1.0, -1.0, 1.0, -1.0], [0.5, 0.5, 0.5, 0.5]]])
    >>> LogVariance(means=1).forward(np.empty(0), signals)[0].round(2)
    array([[0.67, 0.5 ]])
    """

    means: int = 0

    kind = "log-variance"

    def __post_init__(self) -> None:
        _check_whole(self, "means", least=0)

    def output(self, shape: Shape) -> Shape:
        _check_rank(self, shape, 2, "signals")
        if self.means > shape[0]:
            raise DomainError(
                f"means of a {self.kind} layer must be at most {shape[0]}, the number of its "
                f"channels; got {self.means}."
            )
        return shape[:1]

    def room(self, shape: Shape) -> int:
        return super().room(shape) + math.prod(shape) + 2 * shape[0]

    def forward(self, weights: Array, values: Array) -> tuple[Array, Any]:
        means = values.mean(axis=2)
        away = values - means[:, :, None]
        variances = (away * away).mean(axis=2)
        low, high = 10.0**LEAST_LOG, 10.0**MOST_LOG
        logs = np.log10(np.clip(variances, low, high))
        found = (logs - (LEAST_LOG + MOST_LOG) / 2) / ((MOST_LOG - LEAST_LOG) / 2)
        is_log = np.arange(means.shape[1]) < means.shape[1] - self.means
        inside = is_log & (low < variances) & (variances < high)
        output = np.where(is_log, found, means).astype(values.dtype, copy=False)
        return output, (away, variances, inside)

    def backward(self, weights: Array, kept: Any, slopes: Array) -> tuple[Array, Array]:
        away, variances, inside = kept
        length = away.shape[2]
        factor = 2 / (math.log(10) * (MOST_LOG - LEAST_LOG) / 2 * length)
        of_log = np.where(inside, slopes * factor / np.where(inside, variances, 1), 0)
        back = away * of_log.astype(slopes.dtype, copy=False)[:, :, None]
        if self.means:
            back[:, -self.means :] = (slopes / length)[:, -self.means :, None]
        return _no_gradient(slopes), back


@final
@dataclass(frozen=True)
class Flatten(Layer):
    """All values of all channels, one channel after the other.

    Examples
    --------
    >>> Flatten().output((4, 30))
    (120,)
    """

    kind = "flatten"

    def output(self, shape: Shape) -> Shape:
        _check_rank(self, shape, 2, "signals")
        return (math.prod(shape),)

    def forward(self, weights: Array, values: Array) -> tuple[Array, Any]:
        return values.reshape(len(values), -1), values.shape

    def backward(self, weights: Array, kept: Any, slopes: Array) -> tuple[Array, Array]:
        return _no_gradient(slopes), slopes.reshape(kept)


def _relu(values: Array) -> tuple[Array, Array]:
    return np.maximum(values, 0), values > 0


def _tanh(values: Array) -> tuple[Array, Array]:
    found = np.tanh(values)
    return found, 1 - found * found


def _logistic(values: Array) -> tuple[Array, Array]:
    share = np.tanh(values * 0.5) * 0.5 + 0.5  # never overflows, unlike e^-x
    return share, share * (1 - share)


def _silu(values: Array) -> tuple[Array, Array]:
    share, _ = _logistic(values)
    found = values * share
    return found, share + found * (1 - share)


# Each returns the values and the derivatives; beside it, the gain of first weights.
_FUNCTIONS: Mapping[str, tuple[Callable[[Array], tuple[Array, Array]], float]] = {
    "relu": (_relu, 2.0),
    "tanh": (_tanh, 1.0),
    "logistic": (_logistic, 1.0),
    "silu": (_silu, 2.0),
}
ACTIVATIONS = tuple(_FUNCTIONS)
POOLS = ("mean", "max")
LAYERS: Mapping[str, type[Layer]] = {
    each.kind: each for each in (Dense, Conv, Activation, Pool, ChannelMean, LogVariance, Flatten)
}


def layer_from_document(document: Any) -> Layer:
    """Read a layer from plain values.

    Parameters
    ----------
    document : dict
        Entries as `Layer.to_document` returns them, all of them.

    Returns
    -------
    Layer
        The layer.

    Raises
    ------
    DomainError
        If the layer is unknown, or its entries are invalid.

    Examples
    --------
    >>> layer_from_document({"layer": "activation", "function": "tanh"})
    Activation(function='tanh')
    """
    if not isinstance(document, dict) or "layer" not in document:
        raise DomainError(f"a layer must be an object with the entry layer; got {document!r:.80}.")
    name = document["layer"]
    if not isinstance(name, str) or name not in LAYERS:
        raise unknown("layer", name, LAYERS)
    options = {key: value for key, value in document.items() if key != "layer"}
    names = [option.name for option in fields(LAYERS[name])]  # type: ignore[arg-type]
    if options.keys() != set(names):
        raise DomainError(
            f"the entries of a {name} layer must be {', '.join(['layer', *names])}; "
            f"got {', '.join(map(str, document))[:80]}."
        )
    return LAYERS[name](**options)


def _check_whole(layer: Any, name: str, least: int = 1) -> None:
    value = plain_whole(getattr(layer, name))
    object.__setattr__(layer, name, value)
    if type(value) is not int or not least <= value <= MOST_UNITS:
        raise DomainError(
            f"{name} of a {layer.kind} layer must be a whole number from {least} to {MOST_UNITS}; "
            f"got {value!r:.80}."
        )


def _check_bool(layer: Any, name: str) -> None:
    value = getattr(layer, name)
    if type(value) is not bool:
        raise DomainError(
            f"{name} of a {layer.kind} layer must be true or false; got {value!r:.80}."
        )


def _check_rank(layer: Layer, shape: Shape, rank: int, what: str) -> None:
    if len(shape) != rank:
        raise DomainError(
            f"the input of a {layer.kind} layer must be {what}; got the shape {shape}."
        )


def _windows(layer: Layer, shape: Shape, width: int, stride: int) -> int:
    """Return how many places a window has in a signal."""
    _check_rank(layer, shape, 2, "signals, (channels, values)")
    if width > shape[1]:
        raise DomainError(
            f"the width of a {layer.kind} layer must be at most {shape[1]}, the length of the "
            f"signal there; got {width}."
        )
    return (shape[1] - width) // stride + 1


def _sliding(values: Array, width: int, stride: int) -> Array:
    found: Array = np.lib.stride_tricks.sliding_window_view(values, width, axis=2)
    return found[:, :, ::stride]


def _add_windows(back: Array, shape: Shape, stride: int) -> Array:
    """Add up the slopes of windows, (rows, channels, places, width), where they lie."""
    found = np.zeros(shape, back.dtype)
    reach = (back.shape[2] - 1) * stride + 1
    for offset in range(back.shape[3]):
        found[:, :, offset : offset + reach : stride] += back[..., offset]
    return found


def _no_gradient(slopes: Array) -> Array:
    return np.empty((len(slopes), 0), slopes.dtype)
