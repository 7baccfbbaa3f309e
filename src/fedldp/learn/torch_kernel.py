"""The products of directions with vectors, and the sums of directions, for GPUs. Needs Triton.

A kernel computes what `torch_directions` does without a word of it in memory. For products, each
thread mixes the words of four directions of one seed, one coordinate after the other, and keeps
four sums. For sums, each thread mixes one word of one direction after the other, and keeps two.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from fedldp import vehicle

Tensor = Any  # torch's types are not known where torch is not installed

_THREADS = 128  # that share a block: each has one word of each coordinate
_SUMMED_ROWS = 64  # directions that a thread adds up


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


def totals(table: Tensor, states: Tensor, numbers: Tensor, d: int, words: int) -> Tensor:
    """Return the sum of some directions, and the sum of their squares.

    Parameters
    ----------
    table : torch.Tensor of int16
        The numbers that directions are made of.
    states : torch.Tensor of int64 of shape (n,)
        The states of their seeds.
    numbers : torch.Tensor of int64 of shape (n,)
        The number of a direction for each seed.
    d : int
        How many numbers a direction has.
    words : int
        How many words one coordinate of all directions of a seed takes.

    Returns
    -------
    torch.Tensor of int64 of shape (2, d)
        The sums, and those of squares.
    """
    n, modulus = len(states), 1 << vehicle.WORD
    found = torch.zeros((2, d), dtype=torch.int64, device=states.device)
    if n:
        _totals_kernel[(triton.cdiv(n, _SUMMED_ROWS), triton.cdiv(d, _THREADS))](
            table,
            states,
            numbers,
            found,
            n,
            d,
            vehicle.GOLDEN,
            vehicle.GOLDEN * words % modulus,
            *vehicle.MIX,
            _SUMMED_ROWS,
            _THREADS,
        )
    return found


def _add_up(  # type: ignore[no-untyped-def]
    table,
    states,
    numbers,
    found,
    n,
    d,
    golden: tl.constexpr,
    step: tl.constexpr,
    first_factor: tl.constexpr,
    second_factor: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * rows
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    there = column < d
    places = column.to(tl.uint64) * step
    total = tl.zeros((columns,), tl.int64)
    squares = tl.zeros((columns,), tl.int64)
    for row in range(first, tl.minimum(first + rows, n)):
        number = tl.load(numbers + row)
        state = tl.load(states + row).to(tl.uint64, bitcast=True)
        counter = state + ((number >> 2) + 1).to(tl.uint64) * golden + places
        mixed = (counter ^ (counter >> 30)) * first_factor
        mixed = (mixed ^ (mixed >> 27)) * second_factor
        mixed = mixed ^ (mixed >> 31)
        lane = (mixed >> (16 * (number & 3)).to(tl.uint64)) & 0xFFFF
        value = tl.load(table + lane.to(tl.int32)).to(tl.int64)
        total += value
        squares += value * value
    tl.atomic_add(found + column, total, mask=there)
    tl.atomic_add(found + d + column, squares, mask=there)


_kernel = triton.jit(_sums)
_totals_kernel = triton.jit(_add_up)
