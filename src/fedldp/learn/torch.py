"""Neural networks as a fleet's task. Needs the extra `torch`.

Any module whose output for one example depends on that example alone can be trained. A vehicle's
gradient, of all weights that require one, is flattened to a vector, and goes the way of every other
gradient: `settings.training(task, distance, source, start=task.start)`.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, Integers
from fedldp.errors import DomainError, MissingExtra
from fedldp.learn.examples import Rows, VehicleRows, rows_of

try:
    import torch
    from torch.func import functional_call, grad, vmap
except ImportError as error:
    raise MissingExtra("torch", "torch") from error

Tensor = Any  # torch's types are not known where torch is not installed

_BLOCK = 512  # examples whose gradients are computed at a time
_BLOCK_NUMBERS = 1 << 24  # and fewer where a network is large
_KEPT = 1 << 26  # numbers of gradients that are kept from one question to the next


@final
class Network:
    """A module, its loss, and a fleet: a vehicle has one row or, with `vehicle_rows`, several.

    The module maps a batch of inputs to a batch of outputs, and the loss maps outputs and targets
    to a number, as `torch.nn.functional.cross_entropy` does. Work is done where the module is and
    in its precision, on a copy of it in evaluation mode: dropout is off, for it would draw from
    torch's own randomness. Weights that require no gradient stay as they are, and are not reported.
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
        self._trained = _trained(self._copy)
        self._inputs, self._targets = _tensor(inputs), _tensor(targets)
        rows = [len(self._inputs), len(self._targets)]
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
        return len(self._inputs if self._vehicle_rows is None else self._vehicle_rows)

    @property
    def start(self) -> Floats:
        """The weights that the module had, one after the other."""
        flat = torch.cat([each.detach().flatten() for each in self._trained.values()])
        return _array(flat.double())

    def load(self, weights: Floats) -> None:
        """Write the weights of one model into the module."""
        found = self._named(weights)
        with torch.no_grad():
            for name, parameter in _trained(self._module).items():
                parameter.copy_(found[name])

    def gradients(self, weights: Floats, vehicles: Rows) -> "Gradients":
        """Return the gradients of some vehicles for some models."""
        if isinstance(vehicles, slice):
            vehicles = np.arange(*vehicles.indices(len(self)))
        rows, begins = rows_of(self._vehicle_rows, vehicles)
        return Gradients(self, weights, cast(Integers, rows), begins)

    def loss(self, weights: Floats) -> Floats:
        """Return the mean loss of each row of weights over all examples."""
        return self._mean(vmap(self._loss_of_one, in_dims=(None, 0, 0)), weights)

    def error(self, weights: Floats) -> Floats:
        """Return what share of the examples each model gets wrong, or its mean squared error.

        Targets that are integers are classes, and the largest output is the prediction.
        """
        return self._mean(self._errors, weights)

    def gradient_blocks(self, weights: Floats, rows: Integers) -> Iterator[Tensor]:
        """Yield the gradients of some examples for one model, a block of them at a time."""
        each = vmap(grad(self._loss_of_one), in_dims=(None, 0, 0))
        for _, found in self._blocks(each, weights, rows):
            yield torch.cat([part.flatten(1) for part in found.values()], dim=1)

    def _blocks(
        self, function: Callable[..., Any], weights: Floats, rows: Integers
    ) -> Iterator[tuple[int, Any]]:
        """Yield how many examples a block has, and what a function gives for them."""
        named = self._named(weights)
        size = max(1, min(_BLOCK, _BLOCK_NUMBERS // self.dimensions))
        for first in range(0, len(rows), size):
            block = torch.from_numpy(rows[first : first + size])
            some = (self._moved(each[block]) for each in (self._inputs, self._targets))
            yield len(block), function(named, *some)

    def _mean(self, function: Callable[..., Tensor], weights: Floats) -> Floats:
        rows = np.arange(len(self._inputs))
        with torch.no_grad():
            totals = [
                sum(n * float(found.double().mean()) for n, found in self._blocks(function, *each))
                for each in ((model, rows) for model in weights)
            ]
        return np.array(totals) / len(rows)

    def _loss_of_one(self, named: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return self._loss(functional_call(self._copy, named, (x[None],)), y[None]).mean()

    def _errors(self, named: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        outputs = functional_call(self._copy, named, (x,))
        if y.is_floating_point():
            return (outputs.reshape(y.shape) - y) ** 2
        return outputs.argmax(dim=1) != y

    def _named(self, weights: Floats) -> dict[str, Tensor]:
        """Return the weights of one model in the shapes that the module has for them."""
        if weights.shape != (self.dimensions,):
            raise DomainError(
                f"the weights of a model must be {self.dimensions} numbers; got an array of shape "
                f"{weights.shape}."
            )
        flat = self._moved(torch.tensor(weights))
        sizes = [each.numel() for each in self._trained.values()]
        parts = zip(self._trained.items(), flat.split(sizes), strict=True)
        return {name: part.view(each.shape) for (name, each), part in parts}

    def _moved(self, tensor: Tensor) -> Tensor:
        """Return numbers as the module takes them: where it is, floats in its precision."""
        like = next(iter(self._trained.values()))
        kind = like.dtype if tensor.is_floating_point() else torch.int64
        return tensor.to(like.device, kind)


@final
class Gradients:
    """A batch of vehicles whose values are the gradients of a network.

    The gradients are computed when they are asked for, in blocks. They are kept for the next
    question if they are few, and otherwise computed again.
    """

    def __init__(
        self, network: Network, weights: Floats, rows: Integers, begins: Integers | None
    ) -> None:
        self._network, self._weights, self._rows = network, weights, rows
        self._begins = np.arange(len(rows)) if begins is None else begins  # of its vehicles
        self._sizes = np.diff(self._begins, append=len(rows))
        self._kept: list[Tensor] | None = None

    def __len__(self) -> int:
        return len(self._weights) * len(self._begins)

    def take(self, rows: Integers | None, columns: Integers) -> Floats:
        """Return of each vehicle (all of them, if None) the gradient in one column."""
        if rows is not None:
            everyone = np.zeros(len(self), np.int64)
            everyone[rows] = columns
            return self.take(None, everyone)[rows]
        of_rows = np.repeat(columns.reshape(len(self._weights), -1), self._sizes, axis=1).reshape(
            -1
        )
        places, found = torch.from_numpy(of_rows)[:, None], []
        for block in self._blocks():
            mine, places = places[: len(block)], places[len(block) :]
            found.append(block.gather(1, mine.to(block.device)))
        return self._mean(found)[:, 0]

    def all(self, columns: Integers) -> Floats:
        """Return of every vehicle the gradient in these columns."""
        chosen = torch.from_numpy(columns)
        return self._mean([block[:, chosen.to(block.device)] for block in self._blocks()])

    def _blocks(self) -> Iterable[Tensor]:
        """Return the gradients of all examples, for the first model, then for the second."""
        if self._kept is not None:
            return self._kept
        blocks = (
            block
            for model in self._weights
            for block in self._network.gradient_blocks(model, self._rows)
        )
        if len(self._weights) * len(self._rows) * self._network.dimensions > _KEPT:
            return blocks
        self._kept = list(blocks)
        return self._kept

    def _mean(self, found: list[Tensor]) -> Floats:
        """Average over the examples of each vehicle."""
        values = _array(torch.cat(found).double())
        if len(self._begins) == len(self._rows):
            return values
        values = values.reshape(len(self._weights), len(self._rows), -1)
        sums: Floats = np.add.reduceat(values, self._begins, axis=1)
        return (sums / self._sizes[:, None]).reshape(len(self), -1)


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


def _trained(module: Any) -> dict[str, Tensor]:
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


def _array(tensor: Tensor) -> npt.NDArray[Any]:
    return cast(npt.NDArray[Any], tensor.cpu().numpy())
