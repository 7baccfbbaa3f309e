"""The arrays of a Flower message as one vector, and a vector as such arrays again."""

from typing import Any

import numpy as np

from fedldp._internal.text import counted, listed
from fedldp._internal.validation import Floats
from fedldp.errors import DomainError, MissingExtra

try:
    from flwr.app import Array, ArrayRecord, RecordDict
except ImportError as error:
    raise MissingExtra("flwr", "flower") from error

_NUMBERS = "biuf"  # NumPy's kinds of numbers: Boolean, integers, floats


def vector(arrays: ArrayRecord) -> Floats:
    """Return all numbers of some arrays, one array after the other.

    >>> vector(ArrayRecord([np.array([[1, 2], [3, 4]]), np.array([0.5])]))
    array([1. , 2. , 3. , 4. , 0.5])
    """
    found = [np.empty(0), *(_numbers(name, each) for name, each in arrays.items())]
    return np.concatenate([each.reshape(-1) for each in found])


def moved(arrays: ArrayRecord, update: Floats) -> ArrayRecord:
    """Return arrays of the same names, shapes and types, moved by a vector.

    >>> before = ArrayRecord({"w": Array(np.zeros((2, 1), np.float32))})
    >>> moved(before, np.array([0.25, -1.0]))["w"].numpy()
    array([[ 0.25],
           [-1.  ]], dtype=float32)
    """
    after, start = {}, 0
    for name, each in arrays.items():
        old = _numbers(name, each)
        new = old + update[start : start + old.size].reshape(old.shape)
        start += old.size
        after[name] = Array(np.asarray(np.rint(new) if old.dtype.kind in "iu" else new, old.dtype))
    return ArrayRecord(after)


def difference(after: ArrayRecord, before: ArrayRecord) -> Floats:
    """Return how far arrays have moved, in the order of those before.

    Arrays are compared by name. If all names differ, as those of a NumPyClient do, they are
    compared in their order.

    >>> zeros, ones = (ArrayRecord([np.full(2, value)]) for value in (0.0, 1.0))
    >>> difference(ones, zeros)
    array([1., 1.])
    """
    shapes, new = _shapes(before), _shapes(after)
    names = list(after) if not set(shapes) & set(new) else list(before)
    if len(shapes) != len(new) or [new.get(name) for name in names] != list(shapes.values()):
        raise DomainError(
            f"the reply must have the arrays of the question, {_described(before)}; got "
            f"{_described(after)}."
        )
    return vector(ArrayRecord({name: after[name] for name in names})) - vector(before)


def only_arrays(content: RecordDict, what: str) -> ArrayRecord:
    """Return the one record of arrays in a message."""
    records = list(content.array_records.values())
    if len(records) != 1:
        names = listed(list(content.array_records)) or "none"
        raise DomainError(f"{what} must have exactly one record of arrays; got {names}.")
    return records[0]


def _numbers(name: str, array: Array) -> Any:
    found = array.numpy()
    if found.dtype.kind not in _NUMBERS:
        raise DomainError(f"the array {name!r} must hold numbers; got the type {found.dtype}.")
    return found


def _shapes(arrays: ArrayRecord) -> dict[str, tuple[int, ...]]:
    return {name: tuple(each.shape) for name, each in arrays.items()}


def _described(arrays: ArrayRecord) -> str:
    texts = [f"{name} {shape}" for name, shape in _shapes(arrays).items()]
    return f"{counted(len(texts), 'array')} ({listed(texts)})" if texts else "no array"
