"""The one place where numbers from outside are accepted or refused."""

from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from fedldp.errors import DomainError

SMALLEST_EPSILON = 0.001
LARGEST_EPSILON = 20.0

Floats = npt.NDArray[np.float64]


def epsilon(value: Any) -> float:
    """Return a privacy budget as a float, or refuse it.

    >>> epsilon(1)
    1.0
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    if not is_number or not SMALLEST_EPSILON <= value <= LARGEST_EPSILON:
        raise DomainError(
            f"epsilon must be a number from {SMALLEST_EPSILON} to {LARGEST_EPSILON:g}; "
            f"got {value!r}. Below, the noise drowns any fleet; above, nothing is private."
        )
    return float(value)


def unit(x: npt.ArrayLike) -> npt.NDArray[np.float32] | Floats:
    """Return x as a float array with every entry in [-1, 1], or refuse it.

    Nothing is clipped: a value that is out by one part in 10^12 is refused too.
    """
    array = reals(x, "x")
    if array.size and not np.abs(array).max() <= 1.0:  # NaN included
        place = np.unravel_index(int(np.argmin(np.abs(array) <= 1.0)), array.shape)
        where = f" at index {tuple(int(i) for i in place)}" if array.ndim else ""
        raise DomainError(
            f"x must lie in [-1, 1]; got {array[place].item()!r}{where}. Scale it with public "
            "bounds first, 2 * (x - low) / (high - low) - 1, and clip what lies outside."
        )
    return array


def reals(x: npt.ArrayLike, name: str) -> npt.NDArray[np.float32] | Floats:
    """Return x as float32 if it is float32 already, as float64 otherwise, or refuse it."""
    try:
        array = np.asarray(x)
    except ValueError:
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "fiu":
        raise DomainError(
            f"{name} must be a real number or an array of them; got {_described(x)}. "
            "Convert it to floats first."
        )
    return array if array.dtype == np.float32 else array.astype(np.float64, copy=False)


def _described(x: Any) -> str:
    text = repr(x)
    return f"{type(x).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
