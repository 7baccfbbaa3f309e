"""What vehicles compute from their rows before they answer: data that names what is installed.

A question carries no code. It carries a plan and, unless it asks for the rows themselves, a JSON
document: a model, whose gradient is asked for, or a round of a survey. Its format names one of the
computations below, which an agent has installed; its entries are validated before anything is
computed. A new kind of model needs a class with this interface and an entry in `FORMATS`.

What a question may cost a vault in memory and time is limited, too, by public numbers alone.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, final

from fedldp._internal import documents
from fedldp._internal.validation import Floats, Integers
from fedldp.errors import DomainError
from fedldp.learn import model, survey
from fedldp.plan.parts import Matrix, VehicleValues
from fedldp.schema.attributes import Attribute
from fedldp.schema.schema import Schema
from fedldp.vehicle import UNREADABLE, difference

MOST_ROWS = 1000  # of a vehicle: the time to answer must not reveal how many it has
MOST_VEHICLES = 1 << 14  # answered together
MOST_WORK = 1 << 36  # multiplications for a question: about a minute of one core
_WORK_OF_ROWS = 1 << 20  # multiplications for further rows of a vehicle: a few milliseconds
_ROOM = 1 << 22  # numbers in memory for vehicles that are answered together


class Computation(Protocol):
    """What vehicles compute from their rows, and answer through a plan."""

    @property
    def declaration(self) -> dict[str, Any]:
        """What is asked, as JSON, without what changes from round to round."""

    @property
    def one_row(self) -> bool:
        """Whether a vehicle answers for one row, a random one if it has several."""

    @property
    def attributes(self) -> Sequence[Attribute]:
        """The attributes that a row must have."""

    @property
    def dimensions(self) -> int:
        """How many numbers a vehicle answers."""

    @property
    def cost(self) -> int:
        """About how many multiplications a row takes."""

    @property
    def room(self) -> int:
        """How many numbers a row needs in memory while others are computed."""

    def answers(self, matrix: Floats, begins: Integers | None) -> VehicleValues:
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
    def declaration(self) -> dict[str, Any]:
        """The attributes."""
        return {"computes": "rows", "schema": Schema(self.attributes).to_document()}

    @property
    def dimensions(self) -> int:
        """How many numbers a vehicle answers."""
        return sum(each.size for each in self.attributes)

    @property
    def cost(self) -> int:
        """About how many multiplications a row takes."""
        return self.dimensions

    @property
    def room(self) -> int:
        """How many numbers a row needs in memory."""
        return self.dimensions

    def answers(self, matrix: Floats, begins: Integers | None) -> VehicleValues:
        """Return the rows."""
        return Matrix(matrix)


FORMATS: dict[str, Callable[[str], Computation]] = {
    **dict.fromkeys(model.FORMATS, model.Model.from_json),
    **dict.fromkeys(survey.FORMATS, survey.SurveyComputation.from_json),
}


def check_format(text: str) -> None:
    """Raise `WireError` if a document has a format of fedldp that this version does not know.

    >>> check_format('{"format": "fedldp model 9"}')
    Traceback (most recent call last):
    fedldp.errors.WireError: not a computation: it is a 'fedldp model 9', which a newer version...
    """
    with documents.reading("computation"):
        document = json.loads(text)
        found = document.get("format") if isinstance(document, dict) else None
        if isinstance(found, str) and found.startswith("fedldp ") and found not in FORMATS:
            raise ValueError(difference(found, FORMATS))


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


def asked_for(schema: Schema, text: str) -> Computation:
    """Return what a question asks for: the rows of its plan's schema, or what its text names.

    >>> asked_for(Schema.of(speed=(0, 50)), "").declaration["computes"]
    'rows'
    """
    return read(text) if text else RowsThemselves(schema.attributes)


def most_rows(asked: Computation) -> int:
    """Return how many rows of a vehicle are used at most.

    It depends on what is asked, and not on the data: what takes long is computed for few rows, so
    that the time to answer does not reveal how many a vehicle has.

    >>> from fedldp import Schema
    >>> from fedldp.learn.model import Model
    >>> schema = Schema.of(speed=(0, 50), load=(0, 1))
    >>> most_rows(Model("squared", Schema.of(speed=(0, 50)), schema["load"], [0.0, 0.0]))
    1000
    """
    return 1 if asked.one_row else max(1, min(MOST_ROWS, _WORK_OF_ROWS // asked.cost))


def vehicles_at_once(asked: Computation) -> int:
    """Return for how many vehicles to compute at a time, so that memory is limited."""
    return max(1, min(MOST_VEHICLES, _ROOM // asked.room))


def check_work(asked: Computation, vehicles: int) -> None:
    """Raise `DomainError` if it takes too long to compute for this many vehicles."""
    each = asked.cost + model.OF_A_NUMBER * asked.dimensions  # which are drawn through a plan
    if vehicles * each > MOST_WORK:
        raise DomainError(
            f"a question may take at most {MOST_WORK:,} multiplications; got {each:,} for "
            f"each of {vehicles:,} vehicles. Ask fewer vehicles at a time, or a smaller model."
        )
