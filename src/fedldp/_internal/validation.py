"""Validation of numbers from outside: the only place."""

from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from fedldp._internal.checks import checked_text as checked_text
from fedldp._internal.checks import whole as whole
from fedldp.errors import DomainError

SMALLEST_EPSILON = 0.001
LARGEST_EPSILON = 16.0  # of all that a vehicle may send
LARGEST_STUDIED_EPSILON = 20.0  # of a mechanism in floating point, or a baseline
LARGEST_CERTIFIED_EPSILON = 9.0  # for which the optimum has a certificate

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def epsilon(value: Any) -> float:
    """Validate the privacy budget of what a vehicle may send and return it as a float.

    >>> epsilon(1)
    1.0
    """
    only = f"Only mechanisms for study, with `perturb`, go up to {LARGEST_STUDIED_EPSILON:g}."
    return _at_most(LARGEST_EPSILON, value, f"{LARGEST_EPSILON:g}", only)


def studied_epsilon(value: Any) -> float:
    """Validate the privacy budget of what is for study and return it as a float.

    >>> studied_epsilon(20)
    20.0
    """
    only = f"What a vehicle sends goes up to {LARGEST_EPSILON:g}."
    return _at_most(LARGEST_STUDIED_EPSILON, value, f"{LARGEST_STUDIED_EPSILON:g} for study", only)


def _at_most(largest: float, value: Any, shown: str, other_limit: str) -> float:
    if not is_real(value) or not SMALLEST_EPSILON <= value <= largest:
        raise DomainError(
            f"epsilon must be a number from {SMALLEST_EPSILON} to {shown}; got {value!r}. Below, "
            f"the noise hides any result; above, nothing is private. {other_limit}"
        )
    return float(value)


def plain_whole(value: Any) -> Any:
    """Return an integer of NumPy as a plain one, and anything else as it is.

    >>> plain_whole(np.int64(6)), plain_whole(True), plain_whole("6")
    (6, True, '6')
    """
    return int(value) if isinstance(value, np.integer) else value


def is_real(value: object) -> bool:
    """Return whether a value is a real number; a boolean is not."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def unit(x: npt.ArrayLike) -> Floats:
    """Validate that x is in [-1, 1] and return it as an array of floats.

    Nothing is clipped: a value that is outside by one part in 10^12 is refused too.
    """
    array = reals(x, "x")
    if not is_unit(array):
        place = np.unravel_index(int(np.argmin(np.abs(array) <= 1.0)), array.shape)
        where = f" at index {tuple(int(i) for i in place)}" if array.ndim else ""
        raise DomainError(
            f"x must lie in [-1, 1]; got {array[place].item()!r}{where}. Scale it with public "
            "bounds first, 2 * (x - low) / (high - low) - 1, and clip what lies outside."
        )
    return array


def is_unit(array: Floats, scratch: Floats | None = None) -> bool:
    """Return whether every entry lies in [-1, 1] (NaN does not), and leave |x| in scratch."""
    return array.size == 0 or bool(np.abs(array, out=scratch).max() <= 1.0)


def reals(x: npt.ArrayLike, name: str) -> Floats:
    """Validate that x is real and return it as an array of float64."""
    try:
        array = np.asarray(x)
    except (ValueError, TypeError, RuntimeError):
        array = np.empty(0, dtype=object)
    plain = array.dtype.kind in "iu" or array.dtype in (np.float16, np.float32, np.float64)
    if not plain or isinstance(x, np.ma.MaskedArray):
        raise DomainError(
            f"{name} must be a real number or a plain array of them; got {_description(x)}. "
            "Convert it to floats first."
        )
    return array.astype(np.float64, copy=False)


def _description(x: Any) -> str:
    text = repr(x)
    return f"{type(x).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
