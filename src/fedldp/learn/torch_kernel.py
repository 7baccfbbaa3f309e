"""The products of directions with vectors, in one kernel for GPUs. Needs Triton.

It computes what `torch_directions._products` does without a word of it in memory: each thread mixes
the words of four directions of one seed, one coordinate after the other, and keeps four sums.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from fedldp import vehicle

Tensor = Any  # torch's types are not known where torch is not installed

_THREADS = 128  # that share a block: each has one word of each coordinate


def products(table: Tensor, numbers: Tensor, states: Tensor, words: int) -> Tensor:
    """Return the product of each direction of the seeds with vectors of whole numbers.

    Parameters
    ----------
    table : torch.Tensor of int16
        The numbers that directions are made of.
    numbers : torch.Tensor of int32 of shape (n, d)
        The vectors.
    states : torch.Tensor of int64 of shape (n,)
        The states of their seeds.
    words : int
        How many words one coordinate of all directions of a seed takes.

    Returns
    -------
    torch.Tensor of int64 of shape (n, 4 * words)
        The products; the last column is of a direction that is not used.
    """
    (n, d), rows = numbers.shape, max(1, _THREADS // words)
    found = torch.empty((n, 4 * words), dtype=torch.int64, device=numbers.device)
    modulus = 1 << vehicle.WORD
    _kernel[(triton.cdiv(n, rows),)](
        table,
        numbers,
        states,
        found,
        n,
        d,
        vehicle.GOLDEN,
        vehicle.GOLDEN * words % modulus,
        *vehicle.MIX,
        words,
        rows,
    )
    return found


def _sums(  # type: ignore[no-untyped-def] # Triton reads annotations, and knows few
    table,
    numbers,
    states,
    found,
    n,
    d,
    golden: tl.constexpr,
    step: tl.constexpr,
    first_factor: tl.constexpr,
    second_factor: tl.constexpr,
    words: tl.constexpr,
    rows: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    there = row < n
    word = tl.arange(0, words)[None, :]
    state = tl.load(states + row, mask=there, other=0).to(tl.uint64, bitcast=True)
    counter = state[:, None] + (word + 1).to(tl.uint64) * golden
    sum_0 = tl.zeros((rows, words), tl.int64)
    sum_1 = tl.zeros((rows, words), tl.int64)
    sum_2 = tl.zeros((rows, words), tl.int64)
    sum_3 = tl.zeros((rows, words), tl.int64)
    for place in range(d):
        x = tl.load(numbers + row * d + place, mask=there, other=0).to(tl.int64)[:, None]
        mixed = (counter ^ (counter >> 30)) * first_factor
        mixed = (mixed ^ (mixed >> 27)) * second_factor
        mixed = mixed ^ (mixed >> 31)
        sum_0 += x * tl.load(table + (mixed & 0xFFFF).to(tl.int32)).to(tl.int64)
        sum_1 += x * tl.load(table + (mixed >> 16 & 0xFFFF).to(tl.int32)).to(tl.int64)
        sum_2 += x * tl.load(table + (mixed >> 32 & 0xFFFF).to(tl.int32)).to(tl.int64)
        sum_3 += x * tl.load(table + (mixed >> 48).to(tl.int32)).to(tl.int64)
        counter += step
    at = found + (row[:, None] * words + word) * 4
    tl.store(at, sum_0, mask=there[:, None])
    tl.store(at + 1, sum_1, mask=there[:, None])
    tl.store(at + 2, sum_2, mask=there[:, None])
    tl.store(at + 3, sum_3, mask=there[:, None])


_kernel = triton.jit(_sums)
