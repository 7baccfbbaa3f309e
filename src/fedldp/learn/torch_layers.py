"""Networks as data, from and to modules of PyTorch. Needs the extra `torch`.

Gradients agree: a network and its module give the same numbers, in another order. `fedldp.learn`
keeps the bias of a unit behind its weights, torch keeps all biases behind all weights.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedldp._internal.validation import Floats
from fedldp.errors import DomainError, MissingExtra
from fedldp.learn.layers import (
    LEAST_LOG,
    MOST_LOG,
    Activation,
    ChannelMean,
    Conv,
    Dense,
    Flatten,
    Layer,
    LogVariance,
    Pool,
    Shape,
)
from fedldp.learn.networks import Network
from fedldp.learn.objectives import Objective
from fedldp.randomness import source

try:
    import torch
    from torch import nn
except ImportError as error:
    raise MissingExtra("torch", "torch") from error

__all__ = ["from_module", "to_module", "to_torch"]

_CLOSE = 1e-4  # outputs of a module and of its network differ by less, in 32 bits


class LogVarianceModule(nn.Module):  # type: ignore[misc]
    """The layer `LogVariance` as a module.

    Parameters
    ----------
    means : int, default=0
        Of how many of the last channels the mean is taken instead.

    Examples
    --------
    >>> LogVarianceModule()(torch.tensor([[[1.0, -1.0, 1.0, -1.0]]])).round(decimals=2)
    tensor([[0.6700]])
    """

    def __init__(self, means: int = 0) -> None:
        super().__init__()
        self.means = means

    def forward(self, signals: Any) -> Any:
        """Return a number for each channel.

        Parameters
        ----------
        signals : torch.Tensor of shape (rows, channels, values)
            The signals.

        Returns
        -------
        torch.Tensor of shape (rows, channels)
            The numbers.
        """
        variances = signals.var(dim=2, correction=0).clamp(10.0**LEAST_LOG, 10.0**MOST_LOG)
        half_width = (MOST_LOG - LEAST_LOG) / 2
        logs = (variances.log10() - (LEAST_LOG + MOST_LOG) / 2) / half_width
        split = signals.shape[1] - self.means
        return torch.cat([logs[:, :split], signals[:, split:].mean(dim=2)], dim=1)


def to_module(network: Network, weights: Floats) -> Any:
    """Return a module of PyTorch that computes what a network computes.

    Parameters
    ----------
    network : Network
        The network.
    weights : ndarray of shape (dimensions,)
        Its weights.

    Returns
    -------
    torch.nn.Sequential
        The module, in double precision. It takes rows of the shape `network.inputs`, without the
        constant. Parameters of layers that are not trained require no gradient.

    Examples
    --------
    >>> from fedldp.learn import Network, objective
    >>> network = Network((2,), (Dense(3), Activation("tanh")), objective("logistic"))
    >>> to_module(network, network.start(1))[0]
    Linear(in_features=2, out_features=3, bias=True)
    """
    steps: list[Any] = []
    fixed = len(network.fixed)
    matrices = iter(network.dense_weights(weights))
    for layer, shape in network.steps:
        module = _TO[layer.kind](layer, shape).double()
        if own := list(module.parameters()):
            matrix = next(matrices)
            values = _to_torch(matrix, own)
            with torch.no_grad():
                for parameter, value in zip(own, values, strict=True):
                    parameter.copy_(value)
                    parameter.requires_grad_(fixed <= 0)
            fixed -= matrix.size
        steps.append(module)
    return nn.Sequential(*steps)


def from_module(module: Any, inputs: Shape, objective: Objective) -> tuple[Network, Floats]:
    """Return the network that computes what a module of PyTorch computes, and its weights.

    Parameters
    ----------
    module : torch.nn.Module
        `nn.Linear`, `nn.Conv1d`, `nn.ReLU`, `nn.Tanh`, `nn.Sigmoid`, `nn.SiLU`, `nn.AvgPool1d`,
        `nn.MaxPool1d`, `nn.AdaptiveAvgPool1d(1)`, `nn.Flatten`, or an `nn.Sequential` of them. The
        last layer must be linear. First layers whose parameters require no gradient are fixed.
    inputs : tuple of int
        The shape of a row.
    objective : Objective
        The loss, with as many outputs as the module.

    Returns
    -------
    network : Network
        The network.
    weights : ndarray of shape (dimensions,)
        Its weights.

    Raises
    ------
    DomainError
        If a layer is not supported, the weights do not fit the inputs, or the module computes
        something else.

    Examples
    --------
    >>> from fedldp.learn import objective
    >>> module = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> network, weights = from_module(module, (2,), objective("squared"))
    >>> network, weights.shape
    (<Network: (2,) -> dense, activation -> 1 score, squared, 13 weights>, (13,))
    """
    layers: list[Layer] = []
    matrices: list[tuple[Floats, bool]] = []
    shape = tuple(inputs)
    for module_layer in _flat(module):
        layer = _from(module_layer)
        if layer == Flatten() and len(shape) == 1:
            continue  # nothing is left to flatten
        shape = layer.output(shape)
        layers.append(layer)
        if own := list(module_layer.parameters()):
            if len({one.requires_grad for one in own}) > 1:
                raise DomainError(f"only whole layers can be fixed; got a part of {module_layer}.")
            matrices.append((_from_torch(own), own[0].requires_grad))
    last = Dense(objective.outputs)
    if not layers or layers[-1] != last:
        raise DomainError(
            f"the last layer must be nn.Linear with {objective.outputs} outputs and a bias; "
            f"got {layers[-1:]!r}."
        )
    frozen = 0
    while frozen < len(matrices) and not matrices[frozen][1]:
        frozen += 1
    if not all(trained for _, trained in matrices[frozen:]):
        raise DomainError("layers that are not trained must come before those that are.")
    parts = [matrix.reshape(-1) for matrix, _ in matrices]
    fixed = np.concatenate([np.empty(0), *parts[:frozen]])
    network = Network(tuple(inputs), tuple(layers[:-1]), objective, tuple(fixed.tolist()))
    weights = np.concatenate(parts[frozen:])
    if len(weights) != network.dimensions:
        raise DomainError(
            f"the module must have {network.dimensions} weights for rows of the shape {inputs}; "
            f"got {len(weights)}. Check the numbers of inputs and channels."
        )
    _check_equal(module, network, weights)
    return network, weights


def _check_equal(module: Any, network: Network, weights: Floats) -> None:
    """Refuse a module whose outputs for a few rows are others than those of its network."""
    rows = 2 * source(1).uniform((3, math.prod(network.inputs))) - 1
    expected = network.outputs(weights[None], np.c_[rows, np.ones(3)])[0]
    first = next(module.parameters())
    with torch.no_grad():
        inputs = torch.tensor(rows, dtype=first.dtype, device=first.device)
        computed = module(inputs.reshape(3, *network.inputs)).double().cpu().numpy()
    if computed.shape != expected.shape or not np.allclose(computed, expected, _CLOSE, _CLOSE):
        raise DomainError(
            "the module must give an output for each score of a row, as its layers do one after "
            f"the other; got outputs of the shape {computed.shape}. "
            "Put nn.Flatten before nn.Linear."
        )


def to_torch(network: Network, weights: Floats) -> Floats:
    """Return weights in the order of the parameters of `to_module`, as `torch.ModuleTask` has them.

    Parameters
    ----------
    network : Network
        The network.
    weights : ndarray of shape (..., dimensions)
        Weights, or gradients.

    Returns
    -------
    ndarray of shape (..., dimensions)
        The same in torch's order.

    Examples
    --------
    >>> from fedldp.learn import Network, objective
    >>> network = Network.linear(3, objective("softmax"))
    >>> to_torch(network, np.array([1, 2, 3, 4, 5, 6]))
    array([1, 2, 4, 5, 3, 6])
    """
    places, start = [], 0
    for layer, shape in network.steps:
        size = layer.size(shape)
        numbers = start + np.arange(size).reshape(-1, layer.inputs(shape) + _has_bias(layer))
        split = numbers.shape[-1] - _has_bias(layer)
        places += [numbers[:, :split].reshape(-1), numbers[:, split:].reshape(-1)] if size else []
        start += size
    order = np.concatenate(places)
    order = order[order >= len(network.fixed)] - len(network.fixed)
    return np.asarray(weights)[..., order]


def _has_bias(layer: Layer) -> int:
    return int(getattr(layer, "bias", False))


def _flat(module: Any) -> list[Any]:
    if isinstance(module, nn.Sequential):
        return [layer for each in module for layer in _flat(each)]
    return [module]


def _to_torch(matrix: Floats, own: list[Any]) -> list[Any]:
    """Return the weight and the bias of a layer."""
    split = math.prod(own[0].shape[1:])
    found = [torch.from_numpy(matrix[:, :split].copy()).reshape(own[0].shape)]
    return [*found, torch.from_numpy(matrix[:, split].copy())] if len(own) > 1 else found


def _from_torch(own: list[Any]) -> Floats:
    """Return the weights of a layer, the bias of each unit last."""
    parts = [each.detach().double().cpu().numpy().reshape(len(own[0]), -1) for each in own]
    return np.concatenate(parts, axis=1)


def _number(value: Any) -> int:
    return int(value[0] if isinstance(value, tuple) else value)


def _from(module: Any) -> Layer:
    reader = _FROM.get(type(module))  # a subclass may compute anything
    if reader is not None and (layer := reader(module)) is not None:
        return layer
    raise DomainError(
        f"a network has no layer like {module}. See fedldp.learn.torch.ModuleTask to train any "
        "module in a simulation."
    )


def _conv(module: Any) -> Layer | None:
    plain = _number(module.padding) == 0 if not isinstance(module.padding, str) else False
    if not plain or _number(module.dilation) != 1 or module.groups != 1:
        return None
    bias = module.bias is not None
    return Conv(module.out_channels, _number(module.kernel_size), _number(module.stride), bias)


def _pool(module: Any, function: str) -> Layer | None:
    if _number(module.padding) != 0 or _number(getattr(module, "dilation", 1)) != 1:
        return None
    if module.ceil_mode:
        return None
    return Pool(_number(module.kernel_size), _number(module.stride), function)


_FROM: Mapping[Any, Callable[[Any], Layer | None]] = {
    nn.Linear: lambda each: Dense(each.out_features, each.bias is not None),
    nn.Conv1d: _conv,
    nn.ReLU: lambda _: Activation("relu"),
    nn.Tanh: lambda _: Activation("tanh"),
    nn.Sigmoid: lambda _: Activation("logistic"),
    nn.SiLU: lambda _: Activation("silu"),
    nn.AvgPool1d: lambda each: _pool(each, "mean"),
    nn.MaxPool1d: lambda each: _pool(each, "max"),
    nn.AdaptiveAvgPool1d: lambda each: ChannelMean() if _number(each.output_size) == 1 else None,
    LogVarianceModule: lambda each: LogVariance(each.means),
    nn.Flatten: lambda each: Flatten() if (each.start_dim, each.end_dim) == (1, -1) else None,
}
_ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "logistic": nn.Sigmoid, "silu": nn.SiLU}
_POOLS = {"mean": nn.AvgPool1d, "max": nn.MaxPool1d}
_TO: Mapping[str, Callable[[Any, Shape], Any]] = {
    "dense": lambda each, shape: nn.Linear(shape[0], each.units, each.bias),
    "conv": lambda each, shape: nn.Conv1d(
        shape[0], each.filters, each.width, each.stride, bias=each.bias
    ),
    "activation": lambda each, _: _ACTIVATIONS[each.function](),
    "pool": lambda each, _: _POOLS[each.function](each.width, each.stride),
    "channel-mean": lambda _, __: nn.Sequential(nn.AdaptiveAvgPool1d(1), nn.Flatten()),
    "log-variance": lambda each, _: LogVarianceModule(each.means),
    "flatten": lambda _, __: nn.Flatten(),
}
