"""Helpers that look at a mechanism's law from outside, by exact summation and integration."""

from collections.abc import Callable
from math import inf, log, nextafter, sqrt

import numpy as np
from hypothesis import strategies as st

import fedldp
from fedldp import Source
from fedldp.mechanisms import Hybrid, Laplace, Mechanism, Piecewise, Solved, mechanism_names

NAMES = mechanism_names()
# Those with a formula are tried at any epsilon, those behind a linear program at a few.
CLOSED = tuple(n for n in NAMES if not isinstance(fedldp.mechanism(n, 1.0), Solved))
SOLVED = tuple(n for n in NAMES if n not in CLOSED)
FEW_EPSILONS = (0.01, 0.3, 0.609, 0.62, 1.0, 1.7, 3.0, 5.0, 9.0)

# Where a formula changes: ln sqrt 2, HM's switch, HM-TP's, the flat one's, ln 2, and the end of
# the cubic for Three-Outputs. Each with its neighbours in floating point and at 1e-6.
SWITCHES = (log(2) / 2, 0.609352, 0.610986, 0.647533, log(2), log((3 + sqrt(65)) / 2))
SPECIAL = tuple(
    sorted(
        {0.001, 20.0}
        | {e for s in SWITCHES for e in (s, nextafter(s, 0), nextafter(s, inf), s - 1e-6, s + 1e-6)}
    )
)


def epsilons(name: str) -> st.SearchStrategy[float]:
    if name in SOLVED:
        return st.sampled_from(FEW_EPSILONS)
    return st.one_of(st.sampled_from(SPECIAL), st.floats(0.001, 20.0))


INPUTS = st.one_of(st.sampled_from((-1.0, 0.0, 1.0)), st.floats(-1.0, 1.0))


def continuous_part(m: Mechanism) -> Piecewise | None:
    if isinstance(m, Hybrid):
        return m.continuous if m.beta > 0 else None
    return m if isinstance(m, Piecewise) else None


def integrate(m: Mechanism, x: float, f: Callable[[np.ndarray], np.ndarray]) -> float:
    """E f(Y) for a polynomial f of degree up to 5: exact up to rounding."""
    total = float(np.sum(m.probabilities(x) * f(m.values)))
    if isinstance(m, Laplace):
        nodes, weights = np.polynomial.laguerre.laggauss(12)
        for side in (-1, 1):
            y = x + side * m.scale * nodes
            total += float(np.sum(weights * np.exp(nodes) * m.density(y, x) * f(y))) * m.scale
    piecewise = continuous_part(m)
    if piecewise is not None:
        nodes, weights = np.polynomial.legendre.leggauss(3)
        for middle, half in pieces(piecewise, x):
            density = m.density(middle, x)  # constant on the piece
            total += float(np.sum(weights * f(middle + half * nodes))) * half * density
    return total


def pieces(m: Piecewise, x: float) -> list[tuple[float, float]]:
    """The middle and half the length of the low, the high and again the low part of the density.

    The high part is short for a large epsilon: its length must not come from a difference.
    """
    left, right = m.window(x)
    return [
        ((left - m.A) / 2, (left + m.A) / 2),
        (m.slope * x, m.slope / m.t),
        ((right + m.A) / 2, (m.A - right) / 2),
    ]


class Scripted(Source):
    """A source of given words, to reach cases that are hardly ever drawn."""

    __slots__ = ("script",)

    def __init__(self, words):
        super().__init__(bytes(32), "scripted")
        self.script = list(words)

    def fill(self, out):
        flat = out.reshape(-1)
        flat[:] = [self.script.pop(0) for _ in range(flat.size)]
