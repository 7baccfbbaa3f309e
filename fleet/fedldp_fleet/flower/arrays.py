"""The arrays of a Flower message as one vector, and a vector as such arrays again.

Not all arrays of a model are weights. `num_batches_tracked` of a BatchNorm grows by hundreds in a
round, so that hardly anything of an update that is clipped would be left for the weights; running
means and variances are statistics of the data. Integers and running statistics are never trained:
nodes do not report them, and the server keeps its own.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

from fedldp.errors import DomainError
from fedldp_fleet.library import Floats, counted, listed

_NUMBERS = "biuf"  # NumPy's kinds of numbers: Boolean, integers, floats
_STATISTICS = (  # names of arrays that describe batches of data: those of PyTorch, and of Keras
    "running_mean",
    "running_var",
    "num_batches_tracked",
    "moving_mean",
    "moving_variance",
)


def vector(arrays: ArrayRecord) -> Floats:
    """Return all numbers of some arrays, one array after the other.

    >>> vector(ArrayRecord([np.array([[1, 2], [3, 4]]), np.array([0.5])]))
    array([1. , 2. , 3. , 4. , 0.5])
    """
    return _joined(_numbers(arrays).values())


def weights(arrays: ArrayRecord) -> Floats:
    """Return the numbers of the arrays that are trained, one array after the other.

    >>> network = {"weight": Array(np.ones(2)), "num_batches_tracked": Array(np.array(700))}
    >>> weights(ArrayRecord(network))
    array([1., 1.])
    """
    return _joined(_trained(_numbers(arrays)).values())


def untrained(arrays: ArrayRecord) -> list[str]:
    """Return the names of the arrays that are not trained: integers and running statistics.

    >>> norm = {"0.weight": np.ones(2), "0.running_mean": np.zeros(2), "0.count": np.array(7)}
    >>> untrained(ArrayRecord({name: Array(numbers) for name, numbers in norm.items()}))
    ['0.running_mean', '0.count']
    """
    numbers = _numbers(arrays)
    return [name for name in numbers if name not in _trained(numbers)]


def untrained_counters(arrays: ArrayRecord) -> list[str]:
    """Return the names of single integers that have no name but a number.

    A BatchNorm whose arrays have lost their names has such a counter, and beside it statistics that
    nothing tells from weights.

    >>> untrained_counters(ArrayRecord([np.ones(2), np.zeros(2), np.array(7)]))
    ['2']
    """
    return [
        name
        for name, array in _numbers(arrays).items()
        if name.isdecimal() and array.size == 1 and array.dtype.kind != "f"
    ]


def moved(arrays: ArrayRecord, update: Floats) -> ArrayRecord:
    """Return arrays of the same names, shapes and types, of which those trained move by a vector.

    >>> before = ArrayRecord({"w": Array(np.zeros((2, 1), np.float32)), "n": Array(np.array(7))})
    >>> after = moved(before, np.array([0.25, -1.0]))
    >>> after["w"].numpy(), after["n"] == before["n"]
    (array([[ 0.25],
           [-1.  ]], dtype=float32), True)
    """
    after, start = dict(arrays), 0
    for name, old in _trained(_numbers(arrays)).items():
        new = old + update[start : start + old.size].reshape(old.shape)
        start += old.size
        after[name] = Array(np.asarray(new, old.dtype))
    return ArrayRecord(after)


def with_untrained(after: ArrayRecord, before: ArrayRecord) -> ArrayRecord:
    """Return arrays whose integers and running statistics are those that they were before.

    >>> before, after = (ArrayRecord({"n": Array(np.array(count))}) for count in (7, 7.5))
    >>> with_untrained(after, before)["n"].numpy()
    array(7)
    """
    kept = {name: before[name] for name in untrained(before) if name in after}
    return ArrayRecord({**after, **kept})


def difference(after: ArrayRecord, before: ArrayRecord) -> Floats:
    """Return how far the arrays that are trained have moved, in the order of those before.

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
    trained = _trained(old)
    pairs = zip(old, names, strict=True)
    return _joined(new[name] for own, name in pairs if own in trained) - _joined(trained.values())


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


def _trained(numbers: dict[str, Any]) -> dict[str, Any]:
    return {
        name: array
        for name, array in numbers.items()
        if array.dtype.kind == "f" and name.rpartition(".")[2].rpartition("/")[2] not in _STATISTICS
    }


def _joined(arrays: Iterable[Any]) -> Floats:
    return np.concatenate([np.empty(0), *(each.reshape(-1) for each in arrays)])


def _described(arrays: Mapping[str, Any]) -> str:
    texts = [f"{name} {each.shape}" for name, each in arrays.items()]
    return f"{counted(len(texts), 'array')} ({listed(texts)})" if texts else "no array"
