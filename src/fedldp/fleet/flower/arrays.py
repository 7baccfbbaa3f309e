"""The arrays of a Flower message as one vector, and a vector as such arrays again."""

from collections.abc import Iterable, Mapping
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
    return _joined(_numbers(arrays).values())


def moved(arrays: ArrayRecord, update: Floats) -> ArrayRecord:
    """Return arrays of the same names, shapes and types, moved by a vector.

    >>> before = ArrayRecord({"w": Array(np.zeros((2, 1), np.float32))})
    >>> moved(before, np.array([0.25, -1.0]))["w"].numpy()
    array([[ 0.25],
           [-1.  ]], dtype=float32)
    """
    after, start = {}, 0
    for name, old in _numbers(arrays).items():
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
    old, new = _numbers(before), _numbers(after)
    names = list(new) if old.keys().isdisjoint(new) else list(old)
    shapes = [new[name].shape for name in names if name in new]
    if len(old) != len(new) or shapes != [each.shape for each in old.values()]:
        raise DomainError(
            f"the reply must have the arrays of the question, {_described(old)}; got "
            f"{_described(new)}."
        )
    return _joined(new[name] for name in names) - _joined(old.values())


def only_arrays(content: RecordDict, what: str) -> ArrayRecord:
    """Return the one record of arrays in a message."""
    records = list(content.array_records.values())
    if len(records) != 1:
        names = listed(list(content.array_records)) or "none"
        raise DomainError(f"{what} must have exactly one record of arrays; got {names}.")
    return records[0]


def _numbers(arrays: ArrayRecord) -> dict[str, Any]:
    """Return arrays as NumPy has them: the shapes that Flower notes beside them may be missing."""
    found = {name: each.numpy() for name, each in arrays.items()}
    for name, each in found.items():
        if each.dtype.kind not in _NUMBERS:
            raise DomainError(f"the array {name!r} must hold numbers; got the type {each.dtype}.")
    return found


def _joined(arrays: Iterable[Any]) -> Floats:
    return np.concatenate([np.empty(0), *(each.reshape(-1) for each in arrays)])


def _described(arrays: Mapping[str, Any]) -> str:
    texts = [f"{name} {each.shape}" for name, each in arrays.items()]
    return f"{counted(len(texts), 'array')} ({listed(texts)})" if texts else "no array"
