"""From a vehicle's attributes to what a linear model takes: features and a target.

As in the paper, a number becomes a feature on the scale of [-1, 1], and a category with a labels
becomes a - 1 features of -1 or 1. One label, the reference, is -1 in all of them: by default the
first, in the paper the last. The constant 1 comes last; its weight is the intercept.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats
from fedldp.errors import DomainError
from fedldp.schema import Category, Number, Schema

Singles = npt.NDArray[np.float32]

REFERENCES = ("first", "last")  # which label of a category is -1 in all of its features


@final
@dataclass(frozen=True)
class Features:
    """The features that the attributes of a schema become, and the constant.

    >>> schema = Schema.of(age=(0, 100), city=["Oslo", "Rome", "Lima"])
    >>> features = Features(schema)
    >>> features.names
    ('age', 'city=Rome', 'city=Lima', '1')
    >>> features.encode(schema.rows([{"age": 75, "city": "Lima"}, {"age": 0}]).matrix())
    array([[ 0.5, -1. ,  1. ,  1. ],
           [-1. , -1. , -1. ,  1. ]], dtype=float32)
    >>> Features(schema, reference="last").names  # the paper's coding
    ('age', 'city=Oslo', 'city=Rome', '1')
    """

    schema: Schema
    reference: str = "first"

    def __post_init__(self) -> None:
        if self.reference not in REFERENCES:
            raise DomainError(f"reference must be one of {REFERENCES}; got {self.reference!r}.")

    @property
    def _first(self) -> int:
        """The code of the label that has the first feature of its category."""
        return 1 if self.reference == "first" else 0

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What each feature is."""
        found: list[str] = []
        for each in self.schema.attributes:
            if isinstance(each, Category):
                labels = each.categories[self._first :][: len(each.categories) - 1]
                found += [f"{each.name}={label}" for label in labels]
            elif each.size == 1:
                found.append(each.name)
            else:
                found += [f"{each.name}[{i}]" for i in range(each.size)]
        return (*found, "1")

    @property
    def dimensions(self) -> int:
        """How many features there are; not by their names, of which a file may ask for many."""
        return 1 + sum(
            len(each.categories) - 1 if isinstance(each, Category) else each.size
            for each in self.schema.attributes
        )

    def encode(self, matrix: npt.NDArray[Any]) -> Singles:
        """Return the features of each row of a matrix, which the schema's `rows` give.

        Numbers outside the bounds count as the bound, what is missing as the public default.
        """
        encoded = np.empty((len(matrix), self.dimensions), np.float32)
        encoded[:, -1] = 1.0
        column = place = 0
        for each in self.schema.attributes:
            values = matrix[:, column : column + each.size]
            column += each.size
            if isinstance(each, Category):
                width = len(each.categories) - 1
                encoded[:, place : place + width] = -1.0
                own = category_codes(each, values[:, 0]) - self._first  # column of the label
                rows = np.flatnonzero((own >= 0) & (own < width))
                encoded[rows, place + own[rows]] = 1.0
            else:
                width = each.size
                encoded[:, place : place + width] = each.to_unit(values)
            place += width
        return encoded


def encode_target(attribute: Number | Category, values: npt.NDArray[Any]) -> Floats:
    """Return targets in [-1, 1]: a number's scaled, and -1 or 1 for the two labels of a category.

    >>> encode_target(Category("late", ["no", "yes"]), np.array([0.0, 1.0, np.nan]))
    array([-1.,  1., -1.])
    """
    if isinstance(attribute, Number):
        return attribute.to_unit(values)
    return 2.0 * category_codes(attribute, values).astype(np.float64) - 1.0


def category_codes(attribute: Category, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the number of each value's label: that of the public default, where it is missing."""
    missing = attribute.codes[attribute.missing]
    return np.where(values == values, values, missing).astype(np.int64)


def check_target(attribute: Number | Category, classifies: bool) -> None:
    """Refuse a target that an objective cannot have."""
    if classifies and (not isinstance(attribute, Category) or len(attribute.categories) != 2):
        raise DomainError(
            f"the target {attribute.name!r} must be a category with two labels to be classified; "
            f"got {attribute!r:.200}. For a number use linear regression, or make two labels of it."
        )
    if not classifies and (not isinstance(attribute, Number) or attribute.size > 1):
        raise DomainError(
            f"the target {attribute.name!r} of a linear regression must be one number with "
            f"bounds; got {attribute!r:.200}. For two labels use logistic regression or an SVM."
        )
