"""Write fedldp_quantiles.c: the quantiles of directions in their compact form.

python clients/c/quantiles.py clients/c/fedldp_quantiles.c
"""

import sys
from pathlib import Path

from fedldp import vehicle

BLOCK = 32


def tail_of(upper: list[int]) -> int:
    """Return the start of the first block in which a quantile is more than 1 above the last."""
    wide = (i for i in range(1, len(upper)) if upper[i] - upper[i - 1] > 1 and i % BLOCK)
    return next(wide) // BLOCK * BLOCK


def rows(numbers: list[str], count: int) -> str:
    """Return numbers in lines."""
    lines = (", ".join(numbers[i : i + count]) for i in range(0, len(numbers), count))
    return ",\n  ".join(lines)


def source() -> str:
    """Return the file."""
    upper = vehicle.quantiles()[vehicle.QUANTILES // 2 :]
    tail = tail_of(upper)
    starts = range(0, tail, BLOCK)
    bases = [str(upper[start]) for start in starts]
    steps = [
        f"0x{sum((upper[start + i] - upper[start + i - 1]) << i for i in range(1, BLOCK)):08X}"
        for start in starts
    ]
    last = [str(number) for number in upper[tail:]]
    return f"""/* The upper half of the quantiles of docs/wire-format.md, in their compact form.
Written by quantiles.py; do not edit it. */

#include "fedldp.h"

const uint16_t fedldp_quantile_bases[FEDLDP_QUANTILE_TAIL / 32] = {{
  {rows(bases, 16)}}};

/* Bit i of a block: whether its quantile i is 1 above the one before. */
const uint32_t fedldp_quantile_steps[FEDLDP_QUANTILE_TAIL / 32] = {{
  {rows(steps, 8)}}};

const uint16_t fedldp_quantile_tail[32768 - FEDLDP_QUANTILE_TAIL] = {{
  {rows(last, 16)}}};
"""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(source(), "ascii")
