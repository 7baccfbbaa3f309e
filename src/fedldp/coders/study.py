"""A mechanism in place of a table, for study: floating-point noise, as in the paper."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn, Protocol, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, Integers
from fedldp.coders.base import Cells, Codes, Document, ForNumbers
from fedldp.coders.moments import Moments
from fedldp.errors import DomainError
from fedldp.randomness import Source


class Perturbs(Protocol):
    """What is needed of a mechanism."""

    epsilon: float

    def perturb(self, x: npt.ArrayLike, source: Source) -> Any:
        """Return a noisy value for each x."""

    def variance(self, x: npt.ArrayLike) -> Any:
        """Return the variance of the noisy value, for each x."""

    @property
    def worst_case_variance(self) -> float:
        """The largest variance over all x in [-1, 1]."""


@final
@dataclass(frozen=True)
class Study(ForNumbers):
    """Answers with a mechanism's own `perturb`. It is tallied in a simulation, and never sent.

    A tally holds the number of answers, their sum and the sum of their squares.
    """

    exact = False
    one_counter_per_code = False

    mechanism: Perturbs

    @property
    def epsilon(self) -> float:  # type: ignore[override]
        """The mechanism's budget."""
        return self.mechanism.epsilon

    @property
    def bits(self) -> int:
        """0: nothing is sent."""
        return 0

    @property
    def cells(self) -> int:
        """How many counters a tally keeps."""
        return 3

    @property
    def likeliest(self) -> float:
        """1: nothing is sent."""
        return 1.0

    @property
    def ratio(self) -> Fraction:
        """Unknown: floating-point noise has no exact odds."""
        self._refuse()

    def to_document(self) -> Document:
        """Refuse: a plan for study cannot be written."""
        self._refuse()

    @classmethod
    def from_document(cls, document: Document, coordinates: int = 1) -> "Study":
        """Refuse: a plan for study cannot be written."""
        raise DomainError("a mechanism for study cannot be read from a plan.")

    def _refuse(self) -> NoReturn:
        raise DomainError("a mechanism for study is not exact: use its channel instead.")

    def encode(self, values: Any, source: Source) -> Floats:
        """Return a noisy value for each one."""
        found: Floats = self.mechanism.perturb(values, source)
        return found

    def count(self, codes: Codes, place: int, cells: Cells) -> None:
        """Add noisy values to the counters of one unit."""
        self.count_at(codes, np.full(codes.shape, place), cells)

    def count_at(self, codes: Codes, places: Integers, cells: Cells) -> None:
        """Add noisy values to the counters of several units."""
        for power in range(3):
            cells += np.bincount(places + power, codes**power, minlength=cells.size)

    def answers(self, cells: Cells) -> Cells:
        """Return how many answers the counters along the last axis hold."""
        found: Cells = cells[..., 0]
        return found

    def sums(self, cells: Cells) -> tuple[Floats, Floats]:
        """Return, for each number, how many answers there are and the sum of their values."""
        return cells[..., 0], cells[..., 1]

    def squares(self, cells: Cells) -> Floats:
        """Return, for each number, the sum of the squares of the values of all answers."""
        found: Floats = cells[..., 2]
        return found

    def moments(self, cells: Cells) -> Moments:
        """Return the moments of the answers.

        Without a table, the noise is at most the worst there is, and the rest is x^2.
        """
        m, total, squares = cells.T
        mean = total / m
        square = np.clip(squares / m - self.mechanism.worst_case_variance, mean**2, 1.0)
        return Moments(m, mean, squares / m - mean**2, square, 0.0)

    def beyond(self, m: Floats, mean: Floats) -> None:
        """Return None: without a table there is no law to judge a mean by."""

    @property
    def reach(self) -> float:
        """Unknown: the noise may have no largest value."""
        self._refuse()

    def variance(self, x: npt.ArrayLike) -> Any:
        """Return the variance of the noisy value, for each x."""
        return self.mechanism.variance(x)
