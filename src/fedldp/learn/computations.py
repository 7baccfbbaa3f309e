"""What vehicles compute from their rows before they answer: data that names what is installed.

A question carries no code. It carries a plan and, unless it asks for the rows themselves, a JSON
document: a model, whose gradient is asked for, or a round of a survey. Its format names one of the
computations below, which a vault has installed; its entries are validated before anything is
computed. A new kind of model needs a class with this interface and an entry in `FORMATS`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, final

from fedldp._internal.validation import Floats, Integers
from fedldp.attributes import Attribute
from fedldp.learn import model, survey
from fedldp.parts import Matrix, Values
from fedldp.vehicle import UNREADABLE


class Computation(Protocol):
    """What vehicles compute from their rows, and answer through a plan."""

    @property
    def one_row(self) -> bool:
        """Whether a vehicle answers for one row, a random one if it has several."""

    @property
    def attributes(self) -> Sequence[Attribute]:
        """The attributes that a row must have."""

    @property
    def dimensions(self) -> int:
        """How many numbers a vehicle answers."""

    def answers(self, matrix: Floats, begins: Integers | None) -> Values:
        """Return what vehicles answer before noise.

        `matrix` has the columns of the attributes. If vehicles have several rows, `begins` says
        where those of each begin; with `one_row`, it is None.
        """


@final
@dataclass(frozen=True)
class RowsThemselves:
    """What a statistic asks for: some attributes of one row.

    >>> import numpy as np
    >>> from fedldp import Schema
    >>> asked = RowsThemselves(Schema.of(speed=(0, 50)).attributes)
    >>> asked.answers(np.array([[31.0]]), None).matrix
    array([[31.]])
    """

    attributes: tuple[Attribute, ...]

    one_row: ClassVar[bool] = True

    @property
    def dimensions(self) -> int:
        """How many numbers a vehicle answers."""
        return sum(each.size for each in self.attributes)

    def answers(self, matrix: Floats, begins: Integers | None) -> Values:
        """Return the rows."""
        return Matrix(matrix)


FORMATS: dict[str, Callable[[str], Computation]] = {
    **dict.fromkeys(model.FORMATS, model.Model.from_json),
    survey.FORMAT: survey.SurveyComputation.from_json,
}


def read(text: str) -> Computation:
    """Return the computation that a document names; `WireError` if it is invalid or unknown.

    >>> read('{"format": "fedldp program 1"}')
    Traceback (most recent call last):
    fedldp.errors.WireError: not a 'fedldp model 1': the format differs; got 'fedldp program 1'...
    """
    try:
        found = json.loads(text)["format"]
        reader = FORMATS.get(found, model.Model.from_json)
    except (*UNREADABLE, LookupError):
        reader = model.Model.from_json  # which says what is wrong
    return reader(text)
