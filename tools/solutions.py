"""Solve the linear programs of the mechanisms at the epsilons that people use, and write the file.

The library reads src/fedldp/mechanisms/optimal/solutions.json: see `make solutions`.
"""

import json
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from itertools import product
from unittest.mock import patch

from fedldp.mechanisms.optimal import (
    Dominant,
    NearZero,
    Optimal,
    dominant,
    optimal,
    search,
    solutions,
)
from fedldp.mechanisms.optimal.program import SOLVER_VERSION

TENTHS = {n / 10 for n in range(1, 41)}
QUARTERS = {n / 4 for n in range(1, 33)}
THIRDS = {2 / 3, 4 / 3, 8 / 3}  # of 2, 4 and 8: what is left if a vehicle answers three questions
EPSILONS = sorted(TENTHS | QUARTERS | THIRDS)
OUTPUTS = [15, 31]


def solve(case):
    """Return the key of a mechanism and its solution, or None if it needs no linear program."""
    kind, epsilon, outputs = case
    mechanism, tried = kind(epsilon, outputs=outputs), []

    def to_channel(values, base, epsilon):
        channel = search.to_channel(values, base, epsilon)
        tried.append((channel, values, base))
        return channel

    with ExitStack() as patches:
        for module in (dominant, optimal):
            patches.enter_context(patch.object(module, "to_channel", to_channel))
        channel, factor = mechanism._find()
    for other, values, base in tried:
        if other == channel:
            half = base[: (outputs + 1) // 2].tolist()
            if base[::-1].tolist() != base.tolist():
                raise ValueError(f"{mechanism!r} is not symmetric")
            return mechanism._key(), {"factor": factor, "range": float(values[-1]), "base": half}
    return None


def main():
    """Write the file anew."""
    cases = list(product((Dominant, NearZero, Optimal), EPSILONS, OUTPUTS))
    with ProcessPoolExecutor() as pool:
        solved = dict(filter(None, pool.map(solve, cases)))
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(solved[key])}" for key in sorted(solved))
    text = f'{{"solver": {SOLVER_VERSION}, "solutions": {{\n{lines}\n}}}}\n'
    solutions.FILE.write_text(text, "utf-8")
    print(
        f"{solutions.FILE.name}: {len(solved)} solutions, {solutions.FILE.stat().st_size:,} bytes"
    )


if __name__ == "__main__":
    main()
