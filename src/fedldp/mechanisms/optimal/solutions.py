"""Solutions of linear programs that come with the library, for the epsilons that people use.

`make solutions` computes them, and `tools/solutions.py` says which. A solution is small: the range
of the outputs and the base measure. The table of integers is made from it, and checked, as if it
had just been found.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedldp._internal.validation import Floats
from fedldp.mechanisms.optimal.program import SOLVER_VERSION

FILE = Path(__file__).with_name("solutions.json")


def load(key: str, count: int) -> tuple[Floats, Floats, float] | None:
    """Return the outputs, the base measure and the factor of a solution, or None.

    Parameters
    ----------
    key
        The mechanism's key in the cache.
    count
        Its number of outputs.
    """
    entry = _solutions().get(key)
    if entry is None:
        return None
    half = np.array(entry["base"])
    base = np.concatenate([half, half[: count // 2][::-1]])
    return entry["range"] * np.linspace(-1.0, 1.0, count), base, entry["factor"]


@cache
def _solutions() -> dict[str, Any]:
    document = json.loads(FILE.read_text("utf-8"))
    solutions: dict[str, Any] = (
        document["solutions"] if document["solver"] == SOLVER_VERSION else {}
    )
    return solutions
