"""The theory figures, each computed once in a process: some take seconds."""

from functools import cache

from fedldp_reproduction.results import FigureResult
from fedldp_reproduction.theory import FIGURES


@cache
def computed(key: str) -> FigureResult:
    return FIGURES[key]()
