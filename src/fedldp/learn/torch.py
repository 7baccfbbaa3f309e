"""Modules of PyTorch as a fleet's task, in a simulation. Needs the extra `torch`.

Any module whose output for one example depends on that example alone can be trained. A vehicle's
gradient, of all weights that require one, is flattened to a vector, and goes the way of every other
gradient: `settings.training(task, distance, source, start=task.start)`.

Gradients are computed where the module is. If that is a GPU, the directions of a vector with a
bound on its length are ranked and counted there, too (see `torch_directions`). Random words come
from the training's `Source` alone, and are drawn on the CPU.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast, final

import numpy as np

from fedldp._internal.validation import Floats, Integers
from fedldp._internal.vectors import DenseRows, Vectors
from fedldp.errors import DomainError, MissingExtra
from fedldp.learn.examples import Rows, VehicleRows, rows_of
from fedldp.learn.tasks import Task
from fedldp.learn.torch_directions import Tensor, TorchRows, array

try:
    import torch
    from torch.func import functional_call, grad, vmap
    from torch.overrides import TorchFunctionMode
except ImportError as error:
    raise MissingExtra("torch", "torch") from error

__all__ = ["Gradients", "ModuleTask"]

_BLOCK = 512  # examples whose gradients are computed at a time on a CPU: they stay in its cache
_BLOCK_ELSEWHERE = 1 << 17  # and on another device, which works on all of them at once
_BLOCK_NUMBERS = 1 << 26  # in the gradients of a block: large modules have fewer examples in it
_KEPT = 1 << 26  # numbers of gradients that are kept from one question to the next


@final
class ModuleTask(Task):
    """The task of training a `torch.nn.Module`.

    Work is done where the module is and in its precision, on a copy of it in evaluation mode:
    dropout is off, for it would draw from torch's own randomness. Weights that require no gradient
    stay as they are, and are not reported. Matrix products and convolutions are computed with all
    bits of their numbers: TF32 is off meanwhile.

    Parameters
    ----------
    module : torch.nn.Module
        Maps a batch of inputs to a batch of outputs.
    loss : callable
        Maps outputs and targets to a number, or to one for each example, as
        `torch.nn.functional.cross_entropy` does.
    inputs : torch.Tensor or array-like of shape (rows, ...)
        The inputs of all vehicles. If they are on the module's device already, they need not be
        moved there in every round.
    targets : torch.Tensor or array-like of shape (rows, ...)
        Their targets: integers are classes.
    vehicle_rows : VehicleRows, optional
        Which rows each vehicle has. By default each row is a vehicle.

    Raises
    ------
    DomainError
        If the numbers of rows differ, or the module normalizes by statistics of many examples, has
        nothing to train, or has weights on several devices or of several types.

    Examples
    --------
    >>> import fedldp
    >>> from fedldp.learn import Adam, Settings
    >>> x = fedldp.source(1).uniform((20_000, 1)) * 2 - 1
    >>> y = (x[:, 0] > 0.2).astype(np.int64)
    >>> module = torch.nn.Linear(1, 2, dtype=torch.float64)
    >>> for weights in module.parameters():
    ...     _ = torch.nn.init.zeros_(weights)
    >>> task = ModuleTask(module, torch.nn.functional.cross_entropy, x, y)
    >>> len(task), task.dimensions, task.kind
    (20000, 4, "{'weight': (2, 1), 'bias': (2,)}")
    >>> settings = Settings(epsilon=4.0, optimizer=Adam(0.1), group=1000)
    >>> training = settings.training(task, 1.0, fedldp.source(2), start=task.start)
    >>> *_, last = training
    >>> bool(task.error(training.models)[0] < 0.1)
    True
    >>> bool(task.loss(training.models)[0] < task.loss(task.start[None])[0])
    True
    >>> task.load(training.models[0])
    >>> module(torch.tensor([[-1.0], [1.0]], dtype=torch.float64)).argmax(dim=1)
    tensor([0, 1])
    >>> task.gradients(task.start[None], slice(3)).all(np.arange(4)).shape
    (3, 4)
    >>> [len(block) for block in task.gradient_blocks(task.start[None], np.arange(600))]
    [512, 88]
    """

    def __init__(
        self,
        module: Any,
        loss: Callable[[Tensor, Tensor], Tensor],
        inputs: Any,
        targets: Any,
        vehicle_rows: VehicleRows | None = None,
    ) -> None:
        self._module, self._loss, self._vehicle_rows = module, loss, vehicle_rows
        self._copy = copy.deepcopy(module).eval()
        _check_independent(self._copy)
        self._trained = _trained_parameters(self._copy)
        self._data = _tensor(inputs), _tensor(targets)
        self._recorded: dict[Any, Any] = {}  # work of a GPU, by the shapes of its inputs
        rows = [len(data) for data in self._data]
        if vehicle_rows is not None:
            rows.append(vehicle_rows.total)
        if len(set(rows)) > 1:
            raise DomainError(
                f"inputs, targets and vehicle_rows must be of equally many rows; got {rows}."
            )

    @property
    def kind(self) -> str:
        """The shapes of the weights that are trained."""
        return str({name: tuple(each.shape) for name, each in self._trained.items()})

    @property
    def dimensions(self) -> int:
        """How many weights are trained."""
        return sum(each.numel() for each in self._trained.values())

    def __len__(self) -> int:
        return len(self._data[0] if self._vehicle_rows is None else self._vehicle_rows)

    @property
    def device(self) -> Any:
        """Where the module is, and gradients are computed."""
        return next(iter(self._trained.values())).device

    @property
    def start(self) -> Floats:
        """The weights that the module had, one after the other."""
        flat = torch.cat([each.detach().flatten() for each in self._trained.values()])
        return array(flat.double())

    def load(self, weights: Floats) -> None:
        """Write the weights of one model into the module.

        Parameters
        ----------
        weights : ndarray of shape (dimensions,)
            The weights.

        Raises
        ------
        DomainError
            If there are more weights, or fewer, than the module trains.
        """
        found = self._weights_by_name(weights, ())
        with torch.no_grad():
            for name, parameter in _trained_parameters(self._module).items():
                parameter.copy_(found[name])

    def gradients(self, weights: Floats, vehicles: Rows) -> "Gradients":
        """Return the gradients of some vehicles for some models.

        Parameters
        ----------
        weights : ndarray of shape (models, dimensions)
            The weights of each model.
        vehicles : slice or ndarray of int
            The numbers of the vehicles.

        Returns
        -------
        Gradients
            The gradients, computed when they are needed: those of all vehicles for the first model,
            then those for the second, and so on.
        """
        if isinstance(vehicles, slice):
            vehicles = np.arange(*vehicles.indices(len(self)))
        rows, begins = rows_of(self._vehicle_rows, vehicles)
        return Gradients(self, weights, cast(Integers, rows), begins)

    def loss(self, weights: Floats) -> Floats:
        """Return the mean loss of some models over all examples.

        Parameters
        ----------
        weights : ndarray of shape (models, dimensions)
            The weights of each model.

        Returns
        -------
        ndarray of shape (models,)
            The mean losses.
        """
        return self._mean(vmap(self._loss_of_one, in_dims=(None, 0, 0)), weights)

    def error(self, weights: Floats) -> Floats:
        """Return the error of some models over all examples.

        Parameters
        ----------
        weights : ndarray of shape (models, dimensions)
            The weights of each model.

        Returns
        -------
        ndarray of shape (models,)
            The share of wrong classes, where the largest output is the prediction; if targets are
            not integers, the mean squared error.
        """
        return self._mean(self._errors, weights)

    def gradient_blocks(self, weights: Floats, rows: Integers) -> Iterator[Tensor]:
        """Yield the gradients of some examples for some models, a block of them at a time.

        Parameters
        ----------
        weights : ndarray of shape (models, dimensions)
            The weights of each model.
        rows : ndarray of int
            The numbers of the examples.

        Yields
        ------
        torch.Tensor of shape (gradients, dimensions)
            The gradients of a block, where the module is: those of all examples for the first
            model, then those for the second, and so on.
        """
        together = max(1, self._block // max(1, len(rows)))
        for first in range(0, len(weights), together):
            some_models = weights[first : first + together]
            named = self._weights_by_name(some_models, (len(some_models),))
            for some in self._read(rows):
                yield self._compute(named, *some)

    def _compute(self, named: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        """Return the gradients of each model for each example, in rows."""
        if self.device.type != "cuda":
            return self._gradients_of(named, x, y)
        inputs = [*named.values(), x, y]
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in inputs)

        def work(*tensors: Tensor) -> Tensor:
            return self._gradients_of(dict(zip(named, tensors, strict=False)), *tensors[-2:])

        if shapes not in self._recorded:  # the next inputs of these shapes are worth a record
            self._recorded[shapes] = None
            return work(*inputs)
        if self._recorded[shapes] is None:
            self._recorded[shapes] = Recorded.of(work, inputs) or work
        return self._recorded[shapes](*inputs)

    def _gradients_of(self, named: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        of_examples = vmap(grad(self._loss_of_one), in_dims=(None, 0, 0))
        with _all_bits(), _ConvolutionsAsProducts():
            found = vmap(of_examples, in_dims=(0, None, None))(named, x, y)
        return torch.cat([each.flatten(2) for each in found.values()], dim=2).flatten(0, 1)

    @property
    def at_once(self) -> int:
        """How many gradients a training asks for at a time: more if the module is on a GPU."""
        return max(super().at_once, self._block)

    @property
    def _block(self) -> int:
        """How many gradients are computed at a time."""
        most = _BLOCK if self.device.type == "cpu" else _BLOCK_ELSEWHERE
        return max(1, min(most, _BLOCK_NUMBERS // self.dimensions))

    def _read(self, rows: Integers) -> Iterator[list[Tensor]]:
        """Yield the inputs and the targets of some examples, a block of them at a time."""
        for first in range(0, len(rows), self._block):
            block = torch.from_numpy(rows[first : first + self._block])
            yield [self._to_module(each[block.to(each.device)]) for each in self._data]

    def _mean(self, function: Callable[..., Tensor], weights: Floats) -> Floats:
        rows, totals = np.arange(len(self._data[0])), []
        with torch.no_grad(), _all_bits():
            for model in weights:
                named = self._weights_by_name(model, ())
                sums = (function(named, *some).double().sum() for some in self._read(rows))
                totals.append(float(sum(sums)))
        return np.array(totals) / len(rows)

    def _loss_of_one(self, named: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return self._loss(functional_call(self._copy, named, (x[None],)), y[None]).mean()

    def _errors(self, named: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        outputs = functional_call(self._copy, named, (x,))
        if y.is_floating_point():
            return (outputs.reshape(y.shape) - y) ** 2
        return outputs.argmax(dim=1) != y

    def _weights_by_name(self, weights: Floats, models: tuple[int, ...]) -> dict[str, Tensor]:
        """Return the weights of a model, or of several, in the shapes that the module has."""
        if weights.shape != (*models, self.dimensions):
            raise DomainError(
                f"the weights of a model must be {self.dimensions} numbers; got an array of shape "
                f"{weights.shape}."
            )
        flat = self._to_module(torch.tensor(weights))
        sizes = [each.numel() for each in self._trained.values()]
        parts = zip(self._trained.items(), flat.split(sizes, dim=-1), strict=True)
        return {name: part.reshape(*models, *each.shape) for (name, each), part in parts}

    def _to_module(self, tensor: Tensor) -> Tensor:
        """Return numbers as the module takes them: where it is, floats in its precision."""
        like = next(iter(self._trained.values()))
        kind = like.dtype if tensor.is_floating_point() else torch.int64
        return tensor.to(like.device, kind)


@final
class Recorded:
    """Work of a GPU, recorded once and repeated without Python: starting it costs more than it."""

    def __init__(self, graph: Any, inputs: list[Tensor], result: Tensor) -> None:
        self._graph, self._inputs, self._result = graph, inputs, result

    @classmethod
    def of(cls, work: Callable[..., Tensor], inputs: list[Tensor]) -> "Recorded | None":
        """Record what some work does to inputs of these shapes; None if it cannot be recorded."""
        own, graph = [tensor.clone() for tensor in inputs], torch.cuda.CUDAGraph()
        aside = torch.cuda.Stream(own[0].device)
        aside.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(aside):  # recording must not choose kernels
                work(*own)
            torch.cuda.current_stream().wait_stream(aside)
            with torch.cuda.graph(graph):
                result = work(*own)
        except RuntimeError:  # the work waits for the GPU, or copies from memory
            return None
        return cls(graph, own, result)

    def __call__(self, *inputs: Tensor) -> Tensor:
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given)
        self._graph.replay()
        return self._result.clone()


@final
class Gradients:
    """A batch of vehicles whose values are the gradients of a module.

    The gradients are computed when they are asked for, in blocks. They are kept for the next
    question if they are few, and otherwise computed again.

    Parameters
    ----------
    task : ModuleTask
        The task.
    weights : ndarray of shape (models, dimensions)
        The weights of each model.
    rows : ndarray of int
        The examples of the first vehicle, then those of the second, and so on.
    begins : ndarray of int or None
        Where in `rows` the examples of each vehicle begin; None if each has one.

    Examples
    --------
    >>> module = torch.nn.Linear(1, 1, bias=False)
    >>> _ = torch.nn.init.ones_(module.weight)
    >>> inputs, targets = np.float32([[2.0], [3.0]]), np.float32([1.0, 5.0])
    >>> task = ModuleTask(module, lambda z, y: (z[:, 0] - y) ** 2, inputs, targets)
    >>> batch = task.gradients(task.start[None], slice(2))
    >>> len(batch), batch.take(None, np.array([0, 0])), batch.all(np.array([0]))
    (2, array([  4., -12.]), array([[  4.],
           [-12.]]))
    >>> batch.vectors(np.array([0])).shortened(scale=1 / 8, missing=0.0).lengths
    array([0.5, 1. ])
    """

    def __init__(
        self, task: ModuleTask, weights: Floats, rows: Integers, begins: Integers | None
    ) -> None:
        self._task, self._weights, self._rows = task, weights, rows
        self._begins = np.arange(len(rows)) if begins is None else begins  # of its vehicles
        self._sizes = np.diff(self._begins, append=len(rows))
        self._kept: list[Tensor] | None = None

    def __len__(self) -> int:
        return len(self._weights) * len(self._begins)

    def take(self, rows: Integers | None, columns: Integers) -> Floats:
        """Return one coordinate of the gradient of each vehicle.

        Parameters
        ----------
        rows : ndarray of int or None
            The numbers of the vehicles in the batch; None for all.
        columns : ndarray of int
            For each of them, the coordinate.

        Returns
        -------
        ndarray of shape (rows,)
            The values.
        """
        if rows is not None:
            everyone = np.zeros(len(self), np.int64)
            everyone[rows] = columns
            return self.take(None, everyone)[rows]
        of_rows = np.repeat(columns.reshape(len(self._weights), -1), self._sizes, axis=1).reshape(
            -1
        )
        places, taken = torch.from_numpy(of_rows)[:, None], []
        for block in self._blocks():
            mine, places = places[: len(block)], places[len(block) :]
            taken.append(block.gather(1, mine.to(block.device)))
        return array(self._mean(taken))[:, 0]

    def all(self, columns: Integers) -> Floats:
        """Return some coordinates of the gradients of all vehicles.

        Parameters
        ----------
        columns : ndarray of int
            The coordinates.

        Returns
        -------
        ndarray of shape (vehicles, columns)
            The values.
        """
        return array(self._all(columns))

    def vectors(self, columns: Integers) -> Vectors:
        """Return some coordinates of the gradients of all vehicles, where they are.

        Parameters
        ----------
        columns : ndarray of int
            The coordinates.

        Returns
        -------
        Vectors
            A row for each vehicle: in memory if the module is there, otherwise on its device.
        """
        found = self._all(columns)
        return DenseRows(array(found)) if found.device.type == "cpu" else TorchRows(found)

    def _all(self, columns: Integers) -> Tensor:
        if np.array_equal(columns, np.arange(self._task.dimensions)):
            return self._mean(list(self._blocks()))
        chosen = torch.from_numpy(columns)
        return self._mean([block[:, chosen.to(block.device)] for block in self._blocks()])

    def _blocks(self) -> Iterable[Tensor]:
        """Return the gradients of all examples, for the first model, then for the second."""
        if self._kept is not None:
            return self._kept
        blocks = self._task.gradient_blocks(self._weights, self._rows)
        if len(self._weights) * len(self._rows) * self._task.dimensions > _KEPT:
            return blocks
        self._kept = list(blocks)
        return self._kept

    def _mean(self, found: list[Tensor]) -> Tensor:
        """Average over the examples of each vehicle."""
        values = (torch.cat(found) if len(found) > 1 else found[0]).double()
        if len(self._begins) == len(self._rows):
            return values
        sizes = torch.from_numpy(np.tile(self._sizes, len(self._weights))).to(values.device)
        return torch.segment_reduce(values, "mean", lengths=sizes, axis=0)


@contextmanager
def _all_bits() -> Iterator[None]:
    """Compute with all bits of 32: TF32, with 19 of them, would give a GPU other gradients."""
    places = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [each.allow_tf32 for each in places]
    for each in places:
        each.allow_tf32 = False
    try:
        yield
    finally:
        for each, allowed in zip(places, before, strict=True):
            each.allow_tf32 = allowed


class _ConvolutionsAsProducts(TorchFunctionMode):  # type: ignore[misc]
    """Compute convolutions as matrix products.

    The gradient of one example is then a product of two small matrices. As a convolution, with a
    group for each example, it takes a GPU up to forty times as long.
    """

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        known = _CONVOLUTIONS.get(function)
        if known is None:
            return function(*arguments, **(options or {}))
        return _convolution(known, *arguments, **(options or {}))


_CONVOLUTIONS = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}  # and their dimensions


def _convolution(
    dimensions: int,
    input: Tensor,  # noqa: A002 (as torch names it)
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Return what `torch.conv1d`, `conv2d` and `conv3d` return, whose arguments these are."""
    stride, dilation = (_each(value, dimensions) for value in (stride, dilation))
    reach = [gap * (size - 1) for size, gap in zip(weight.shape[2:], dilation, strict=True)]
    if padding == "same":
        sides = [(length // 2, length - length // 2) for length in reach]
    else:
        sides = [(size, size) for size in _each(0 if padding == "valid" else padding, dimensions)]
    alone = input.ndim == dimensions + 1  # one example, and not a batch of them
    windows = input[None] if alone else input
    windows = torch.nn.functional.pad(windows, [side for pair in sides[::-1] for side in pair])
    for axis, (length, step, gap) in enumerate(zip(reach, stride, dilation, strict=True), start=2):
        windows = windows.unfold(axis, length + 1, step)[..., ::gap]
    n, channels, *places = windows.shape[: 2 + dimensions]
    windows = windows.reshape(n, groups, channels // groups, math.prod(places), -1)
    kernels = weight.reshape(groups, -1, channels // groups, windows.shape[-1])
    convolved = torch.einsum("ngcpk,gock->ngop", windows, kernels).reshape(n, len(weight), *places)
    if bias is not None:
        convolved = convolved + bias.view(-1, *[1] * dimensions)
    return convolved[0] if alone else convolved


def _each(value: Any, dimensions: int) -> tuple[int, ...]:
    return (value,) * dimensions if isinstance(value, int) else tuple(value)


def _check_independent(module: Any) -> None:
    """Refuse a module whose output for one example depends on others."""
    norms = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)
    for name, each in module.named_modules():
        if isinstance(each, (*norms, torch.nn.SyncBatchNorm)) or getattr(
            each, "track_running_stats", False
        ):
            raise DomainError(
                f"the module {name or 'given'!r}, {each}, normalizes by statistics of many "
                "examples, which no vehicle has and no report protects. Use GroupNorm or LayerNorm."
            )


def _trained_parameters(module: Any) -> dict[str, Tensor]:
    """Return the parameters that are trained, by name."""
    found = {name: each for name, each in module.named_parameters() if each.requires_grad}
    kinds = {(each.device, each.dtype) for each in found.values()}
    if len(kinds) != 1:
        raise DomainError(
            "the module must have parameters that require a gradient, all on one device and of "
            f"one type; got {sorted(map(str, kinds))}."
        )
    return found


def _tensor(data: Any) -> Tensor:
    """Return data as a tensor, without a copy if that can be."""
    if torch.is_tensor(data):
        return data
    return torch.from_numpy(np.require(data, requirements="W"))
