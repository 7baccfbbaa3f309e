"""Vectors on a device of torch, and the directions that are ranked there. Needs the extra `torch`.

A simulation computes gradients on a GPU, and this module ranks directions where the gradients are:
the same whole numbers as `coders.codebook`, and so the same codes for the same vectors. The device
draws nothing. A coder draws seeds and ranks from its `Source`, on the CPU and in the same order as
always, and asks the device which direction of a seed has a rank.

Sums are of integers of 64 bits, or of whole numbers below 2^53: they are exact in any order.
"""

from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal.validation import Floats, Integers
from fedldp._internal.vectors import Vectors
from fedldp.coders import codebook
from fedldp.coders.codebook import Codebook
from fedldp.errors import MissingExtra

try:
    import torch
except ImportError as error:
    raise MissingExtra("torch", "torch") from error

Tensor = Any  # torch's types are not known where torch is not installed

_WORDS = 1 << 26  # mixed at a time where each step is written to memory: half a gibibyte
_ROWS = 1 << 17  # at a time where nothing of that is written


def _signed(word: int) -> int:
    """Return the signed integer with the same 64 bits: torch hardly knows any other."""
    return word - (1 << 64) if word >> 63 else word


_GOLDEN = _signed(vehicle.GOLDEN)
_MIXING = tuple(zip((30, 27), map(_signed, vehicle.MIX), strict=True))


@final
@dataclass(frozen=True, eq=False)
class TorchRows(Vectors):
    """Rows of a matrix on a device.

    Parameters
    ----------
    matrix : torch.Tensor of shape (rows, width)
        The numbers.
    """

    matrix: Tensor

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, part: slice) -> "TorchRows":
        return TorchRows(self.matrix[part])

    @property
    def lengths(self) -> Floats:
        return array(_lengths(self.matrix.double()))

    def fits(self, width: int) -> bool:
        return bool(self.matrix.ndim == 2 and self.matrix.shape[1] == width)

    def sums(self, parts: int, width: int) -> Floats:
        return array(self.matrix.double().view(parts, -1, width).sum(dim=1))

    def shortened(self, scale: float, missing: float) -> "TorchRows":
        largest = vehicle.LARGEST_COORDINATE
        matrix = (self.matrix.double() * scale).clamp_(-largest, largest)
        matrix = matrix.nan_to_num_(nan=missing)
        # Added from the first square to the last, as on every vehicle: on a CPU. A GPU adds in
        # another order, and may differ in the last digit, as its gradients do.
        squares = (matrix * matrix).cumsum(dim=1)[:, -1]
        return TorchRows(matrix.div_(squares.sqrt_().clamp_(min=1.0)[:, None]))

    def rounded(self, unit: int, *, zeros: bool = False) -> "TorchRows":
        return TorchRows((self.matrix.double() * unit).round_())

    def where(self, chosen: npt.NDArray[np.bool_]) -> "TorchRows":
        return TorchRows(self.matrix[torch.from_numpy(chosen).to(self.matrix.device)])

    def nearby(self, codebook: Codebook) -> "TorchCodebook":
        return TorchCodebook(codebook.d, codebook.directions, codebook.key, self.matrix.device)


@final
@dataclass(frozen=True)
class TorchCodebook(Codebook):
    """The directions of all seeds, on a device of torch.

    Parameters
    ----------
    d : int
        How many numbers a direction has.
    directions : int
        How many directions a seed has.
    key : int
        A number of 64 bits on which all directions depend.
    device : torch.device
        Where they are computed.
    """

    d: int
    directions: int
    key: int
    device: Any

    @property
    def _words(self) -> int:
        """How many words one coordinate of all directions of a seed takes."""
        return (self.directions + 1) // 4

    @property
    def _kernel(self) -> bool:
        """Whether a kernel computes products."""
        return self.device.type == "cuda" and find_spec("triton") is not None

    @property
    def rows(self) -> int:
        together = codebook.drawn_together(self.directions)
        most = _ROWS if self._kernel else _WORDS // (self.d * self._words)
        return max(1, most // together) * together

    def ranked(
        self, vectors: TorchRows, seeds: Any, signs: Any, ranks: Any, secret: bool = True
    ) -> Integers:
        products = _products
        if self._kernel:
            from fedldp.learn.torch_kernel import products
        best = int(ranks.max(initial=0)) + 1
        signs, ranks = (self._moved(numbers_given)[:, None] for numbers_given in (signs, ranks))
        numbers = vectors.matrix.to(torch.int32)
        sums = products(_table(self.device), numbers, self._states(seeds), self._words)
        # One number for product and direction; those of equal products descend with the number.
        numbers = torch.arange(self.directions, -1, -1, device=self.device)
        keys = (sums * (signs * (self.directions + 1)) + numbers)[:, :-1]
        keys = keys.topk(best, dim=1).values.gather(1, ranks)[:, 0]
        return array(self.directions - keys.remainder(self.directions + 1))

    def totals(self, parts: list[tuple[Any, Any]]) -> Integers:
        if self._kernel:
            from fedldp.learn.torch_kernel import totals as kernel

            table = _table(self.device)
            sums = [
                kernel(table, self._states(seeds), self._moved(numbers), self.d, self._words)
                for seeds, numbers in parts
            ]
            return array(torch.stack(sums))
        seeds, numbers = map(np.concatenate, zip(*parts, strict=True))
        numbers = self._moved(numbers)[:, None]
        states = self._states(seeds)[:, None] + ((numbers >> 2) + 1) * _GOLDEN
        places = torch.arange(self.d, device=self.device) * self._words * _GOLDEN
        which = self._moved(
            np.repeat(np.arange(len(parts)), [len(part_seeds) for part_seeds, _ in parts])
        )
        whose = which == torch.arange(len(parts), device=self.device)[:, None]
        totals = torch.zeros((len(parts), 2 * self.d), dtype=torch.int64, device=self.device)
        step = max(1, _WORDS // self.d)
        for start in range(0, len(states), step):
            block = slice(start, start + step)
            mixed = _mixed(states[block] + places)
            sent = _sent(_table(self.device), mixed, 16 * (numbers[block] & 3)).double()
            # A product of matrices sums up: floats of whole numbers below 2^53.
            both = torch.cat([sent, sent * sent], dim=1)
            totals += (whose[:, block].double() @ both).to(torch.int64)
        return array(totals.view(len(parts), 2, self.d))

    def _states(self, seeds: Any) -> Tensor:
        return _mixed((self._moved(seeds) + 1) * _GOLDEN + _signed(self.key))

    def _moved(self, numbers: npt.NDArray[Any]) -> Tensor:
        """Return whole numbers on the device."""
        return torch.from_numpy(numbers.astype(np.int64)).to(self.device)


def _lengths(matrix: Tensor) -> Tensor:
    """Return the length of each row; of whole numbers it is exact up to one rounding."""
    return (matrix * matrix).sum(dim=1).sqrt_()


def _products(table: Tensor, numbers: Tensor, states: Tensor, words: int) -> Tensor:
    """Return the product of each direction of the seeds with vectors of whole numbers.

    The last column is of a direction that is not used.
    """
    n, d = numbers.shape
    steps = torch.arange(1, d * words + 1, device=numbers.device).view(d, words)
    mixed = _mixed(states[:, None, None] + steps * _GOLDEN)
    numbers = numbers[:, :, None].to(torch.int64)
    lanes = [(_sent(table, mixed, shift) * numbers).sum(dim=1) for shift in (0, 16, 32, 48)]
    return torch.stack(lanes, dim=2).view(n, 4 * words)


def _sent(table: Tensor, mixed: Tensor, shift: Any) -> Tensor:
    """Return the coordinates of directions: a word has those of four."""
    return table[mixed >> shift & 0xFFFF].to(torch.int64)


def _mixed(words: Tensor) -> Tensor:
    """Mix words, as `vehicle.mixed` does. A shift must not repeat the sign."""
    for shift, factor in _MIXING:
        words = (words ^ words >> shift & (1 << 64 - shift) - 1) * factor
    return words ^ words >> 31 & (1 << 33) - 1


@lru_cache(maxsize=8)
def _table(device: Any) -> Tensor:
    """Return the numbers that directions are made of: so short that they fit into a cache."""
    return torch.from_numpy(codebook.table().astype(np.int16)).to(device)


def array(tensor: Tensor) -> npt.NDArray[Any]:
    """Return a tensor as an array in memory."""
    return cast(npt.NDArray[Any], tensor.cpu().numpy())
