"""The paper's mechanisms for one number in [-1, 1], and a registry of them by name."""

from collections.abc import Callable
from dataclasses import is_dataclass, replace

from fedldp._internal.text import unknown
from fedldp.errors import DomainError
from fedldp.mechanisms.base import Mechanism
from fedldp.mechanisms.discretization import discretize
from fedldp.mechanisms.duchi import Duchi
from fedldp.mechanisms.finite import Finite
from fedldp.mechanisms.hybrid import HM, HMTP, Hybrid
from fedldp.mechanisms.laplace import Laplace
from fedldp.mechanisms.optimal.certificate import Certificate
from fedldp.mechanisms.optimal.dominant import Dominant, NearZero
from fedldp.mechanisms.optimal.optimal import Optimal, best_channel
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
    "best_channel",
    "discretize",
    "mechanism",
    "mechanism_names",
]

_PAPER = (Laplace, Duchi, PM, HM, ThreeOutputs, PMSub, PMOpt, HMTP)
_BEYOND = (ThreeOutputsFlat, Optimal, Dominant, NearZero)
_REGISTRY: dict[str, Callable[[float], Mechanism]] = {
    kind.name: kind for kind in (*_PAPER, *_BEYOND)
}

AnyMechanism = str | type[Mechanism] | Mechanism  # a name, a class, or one with options of its own

PAPER_MECHANISMS = tuple(kind.name for kind in _PAPER)


def mechanism_names() -> tuple[str, ...]:
    """Return the names of all mechanisms: the paper's eight, then those beyond it.

    Returns
    -------
    tuple of str
        Names for `mechanism`, `Plan` and the command line.

    Examples
    --------
    >>> mechanism_names()[:4]
    ('laplace', 'duchi', 'pm', 'hm')
    """
    return tuple(_REGISTRY)


def mechanism(which: AnyMechanism, epsilon: float) -> Mechanism:
    """Return a mechanism with a privacy budget.

    Parameters
    ----------
    which
        The name of a mechanism (see `mechanism_names`), its class, or a mechanism whose options
        are kept and whose epsilon is replaced.
    epsilon
        The privacy budget, from 0.001 to 20.

    Returns
    -------
    Mechanism
        The mechanism with this epsilon.

    Raises
    ------
    UnknownName
        If there is no mechanism with this name.
    DomainError
        If epsilon is out of range, or a given mechanism is not a dataclass.

    Examples
    --------
    >>> mechanism("three-outputs", epsilon=1.0)
    ThreeOutputs(epsilon=1.0)
    >>> mechanism(Dominant(epsilon=2.0, outputs=7), epsilon=1.0)
    Dominant(epsilon=1.0, outputs=7)
    """
    if isinstance(which, Mechanism):
        if not is_dataclass(which):
            raise DomainError(
                f"a mechanism must be a dataclass to be made with another epsilon; got {which!r}. "
                "Pass its class, or decorate the class with @dataclass(frozen=True)."
            )
        return replace(which, epsilon=epsilon)
    if isinstance(which, type) and issubclass(which, Mechanism):
        return which(epsilon)  # type: ignore[call-arg]  # every mechanism takes its epsilon first
    if not isinstance(which, str) or which not in _REGISTRY:
        raise unknown("mechanism", which, _REGISTRY)
    return _REGISTRY[which](epsilon)
