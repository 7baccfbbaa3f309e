"""Write fedldp_quantiles.c: the quantiles of directions in their compact form.

python clients/c/quantiles.py clients/c/fedldp_quantiles.c

Quantiles are counted from the highest one, which is 0. The first ones stand whole; the others are
rounded from pieces of parabolas in whole numbers, and all 32,768 are compared.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np

from fedldp import vehicle

WHOLE = 128
RANGES = ((8192, 32768, 512), (1024, 8192, 256), (WHOLE, 1024, 32))  # first, end, and one piece
START_BITS, SLOPE_BITS, BEND_BITS = 18, 24, 32  # behind the point
GRID = np.arange(-12, 13)


@dataclass(frozen=True)
class Piece:
    """The quantiles start - (slope - bend * u) * u for u from 0 on."""

    start: int
    slope: int
    bend: int

    def quantiles(self, size: int) -> np.ndarray:
        """Return what the C computes."""
        u = np.arange(size)
        height = self.start - (_fall(u, self.slope, self.bend) >> SLOPE_BITS - START_BITS)
        return (height + (1 << START_BITS - 1)) >> START_BITS


def _fall(u: np.ndarray, slope: object, bend: object) -> np.ndarray:
    return (slope - (bend * u >> BEND_BITS - SLOPE_BITS)) * u


def _parabola(first: int, size: int) -> tuple[float, float]:
    """Return the slope and the bend of the parabola that meets the law in three places."""
    u = size / 2 * (1 + np.cos(np.pi * np.array([1, 3, 5]) / 6))
    law = [-1024 * NormalDist().inv_cdf((first + place + 0.5) / vehicle.QUANTILES) for place in u]
    bend, slope, _ = np.polyfit(u, law, 2)
    return -float(slope), float(bend)


def piece_of(first: int, quantiles: np.ndarray) -> Piece:
    """Return the piece whose start has the most room, by searches in finer and finer grids."""
    size = len(quantiles)
    slope, bend = (1 << SLOPE_BITS, 1 << BEND_BITS) * np.array(_parabola(first, size))
    half = 1 << START_BITS - 1
    for finer in range(5):
        step = 2.0**-4 / 6**finer / size
        bends = np.maximum(0, np.rint(bend + GRID * step / size * 2**BEND_BITS).astype(np.int64))
        tilts = (bends - bend) * size * 2.0 ** (SLOPE_BITS - BEND_BITS)
        slopes = np.rint(slope + GRID[:, None] * step * 2**SLOPE_BITS + tilts).astype(np.int64)
        falls = _fall(np.arange(size), slopes[:, :, None], bends[:, None])
        falls >>= SLOPE_BITS - START_BITS
        least = ((quantiles << START_BITS) - half + 1 + falls).max(axis=2)
        most = ((quantiles << START_BITS) + half - 2 + falls).min(axis=2)
        i, k = np.unravel_index((most - least).argmax(), least.shape)
        slope, bend = slopes[i, k], bends[k]
    return Piece(int(least[i, k] + most[i, k]) // 2, int(slope), int(bend))


def pieces(upper: np.ndarray) -> list[Piece]:
    """Return all pieces, after checking them."""
    made = []
    for first, end, size in RANGES:
        for place in range(first, end, size):
            quantiles = upper[place : place + size]
            piece = piece_of(place, quantiles)
            if not np.array_equal(piece.quantiles(size), quantiles):
                sys.exit(f"no parabola gives the quantiles from {place} on")
            made.append(piece)
    return made


def rows(numbers: list[str], count: int) -> str:
    """Return numbers in lines."""
    lines = (", ".join(numbers[i : i + count]) for i in range(0, len(numbers), count))
    return ",\n  ".join(lines)


def source() -> str:
    """Return the file."""
    upper = np.array(vehicle.quantiles()[: vehicle.QUANTILES // 2 - 1 : -1])
    parabolas = [f"{{{p.start}, {p.slope}, {p.bend}}}" for p in pieces(upper)]
    return f"""/* The upper half of the quantiles of docs/wire-format.md, in their compact form.
Written by quantiles.py; do not edit it. */

#include "fedldp.h"

const fedldp_parabola fedldp_quantile_pieces[{len(parabolas)}] = {{
  {rows(parabolas, 3)}}};

const uint16_t fedldp_quantile_whole[{WHOLE}] = {{
  {rows([str(number) for number in upper[:WHOLE]], 16)}}};
"""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(source(), "ascii")
