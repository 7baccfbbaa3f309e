"""The error that a plan will have, before anybody has reported."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedldp._internal.validation import Floats
from fedldp.errors import DomainError
from fedldp.estimate import check_choices
from fedldp.parts import Part
from fedldp.schema import Category, Number

ASSUMPTIONS = ("uniform", "worst")

_X = np.linspace(-1.0, 1.0, 4001)

Assumed = tuple[Any, Any, Any]  # the mean noise, the mean of x and the mean of x^2


def expected_error(
    parts: Sequence[Part], n: int, data: Floats | str, estimator: str, of: str
) -> float:
    """Return what `Plan.expected_error` promises; the data are a matrix, as a schema reads it."""
    check_choices(estimator, of)
    if isinstance(data, str) and data not in ASSUMPTIONS:
        raise DomainError(f"data must be rows, or one of {ASSUMPTIONS}; got {data!r}.")
    total = 0.0
    for part in parts:
        for attribute, coder, place in part.places:
            columns = data if isinstance(data, str) else data[:, part.columns[place]]
            noise, mean, square = (
                _categories(attribute, coder, columns)
                if isinstance(attribute, Category)
                else _numbers(attribute, coder, columns, 1 - part.share if of == "fleet" else 1.0)
            )
            spread = square - mean**2
            counted = spread if estimator == "ratio" else square
            error = (noise + counted) / part.share
            if of == "fleet":
                error = error - counted
            elif estimator != "ratio":
                error = error - mean**2
            total += float(np.sum(error * np.ones(attribute.size)))
    return total / n


def _numbers(attribute: Number, coder: Any, columns: Floats | str, weight: float) -> Assumed:
    if not isinstance(columns, str):
        x = attribute.to_unit(columns)
        return coder.variance(x).mean(axis=0), x.mean(axis=0), (x**2).mean(axis=0)
    noise = coder.variance(_X)
    if columns == "worst":  # half of the vehicles at x, the others at -x
        worst = np.argmax(noise + weight * _X**2)
        return noise[worst], 0.0, _X[worst] ** 2
    return np.trapezoid(noise, _X) / 2, 0.0, 1 / 3


def _categories(attribute: Category, coder: Any, columns: Floats | str) -> Assumed:
    a = len(attribute.categories)
    shares = np.full(a, 1 / a)  # the worst case too
    if not isinstance(columns, str):
        codes = np.nan_to_num(columns, nan=attribute.codes[attribute.missing])
        shares = np.bincount(codes.astype(np.int64).reshape(-1), minlength=a) / len(codes)
    return coder.variance / a, shares, shares
