"""The paper's mechanisms for one number in [-1, 1], and a registry of them by name."""

from collections.abc import Callable

from fedldp.errors import DomainError
from fedldp.mechanisms.base import Mechanism
from fedldp.mechanisms.discretization import discretize
from fedldp.mechanisms.duchi import Duchi
from fedldp.mechanisms.finite import Finite
from fedldp.mechanisms.hybrid import HM, HMTP, Hybrid
from fedldp.mechanisms.laplace import Laplace
from fedldp.mechanisms.optimal.certificate import Certificate
from fedldp.mechanisms.optimal.dominant import Dominant, NearZero
from fedldp.mechanisms.optimal.optimal import Optimal, best
from fedldp.mechanisms.optimal.solved import Solved
from fedldp.mechanisms.piecewise import PM, Piecewise, PMOpt, PMSub
from fedldp.mechanisms.three_outputs import ThreeOutputs, ThreeOutputsFlat

__all__ = [
    "HM",
    "HMTP",
    "PM",
    "Certificate",
    "Dominant",
    "Duchi",
    "Finite",
    "Hybrid",
    "Laplace",
    "Mechanism",
    "NearZero",
    "Optimal",
    "PMOpt",
    "PMSub",
    "Piecewise",
    "Solved",
    "ThreeOutputs",
    "ThreeOutputsFlat",
    "best",
    "discretize",
    "mechanism",
    "mechanism_names",
]

_PAPER = (Laplace, Duchi, PM, HM, ThreeOutputs, PMSub, PMOpt, HMTP)
_BEYOND = (ThreeOutputsFlat, Optimal, Dominant, NearZero)
_REGISTRY: dict[str, Callable[[float], Mechanism]] = {
    kind.name: kind for kind in (*_PAPER, *_BEYOND)
}

PAPER = tuple(kind.name for kind in _PAPER)  # names of the paper's mechanisms


def mechanism_names() -> tuple[str, ...]:
    """Return the names of all mechanisms: the paper's eight, then those beyond it.

    >>> mechanism_names()[:4]
    ('laplace', 'duchi', 'pm', 'hm')
    """
    return tuple(_REGISTRY)


def mechanism(name: str, epsilon: float) -> Mechanism:
    """Return the mechanism of that name with that privacy budget.

    >>> mechanism("three-outputs", epsilon=1.0)
    ThreeOutputs(epsilon=1.0)
    """
    if not isinstance(name, str) or name not in _REGISTRY:
        raise DomainError(f"there is no mechanism {name!r}; choose from {', '.join(_REGISTRY)}.")
    return _REGISTRY[name](epsilon)
