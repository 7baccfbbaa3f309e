"""Whether a model is of use: its error beside that of always giving the same answer."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats

ADVICE = "Try more vehicles, a larger epsilon or fewer columns."


@final
@dataclass(frozen=True)
class Comparison:
    """The error of a model on public rows, beside the best that is possible without features.

    Parameters
    ----------
    error : float
        The mean error of the model.
    base_rate : float
        The mean error of the best answer that is the same for all rows.
    gain : float
        The base rate less the error.
    margin : float
        Half the width of a 95% interval of the gain, over other sets of as many rows.
    rows : int
        The number of rows.

    Examples
    --------
    >>> right, wrong = np.zeros(90), np.ones(10)
    >>> found = Comparison.of(np.r_[right, wrong], base=np.tile([0, 1], 50))
    >>> found.beats_base_rate
    True
    >>> print(found)
    The model errs by 0.1 on 100 rows, and always the same answer by 0.5: 0.4 ± 0.115 less. It
    beats the base rate.
    """

    error: float
    base_rate: float
    gain: float
    margin: float
    rows: int

    @classmethod
    def of(cls, errors: npt.ArrayLike, base: npt.ArrayLike) -> "Comparison":
        """Compare the errors of a model with those of always the same answer.

        Parameters
        ----------
        errors : array-like of shape (rows,)
            The error of the model in each row.
        base : array-like of shape (rows,)
            The error of always the same answer in each row.

        Returns
        -------
        Comparison
            What they say.
        """
        own, other = np.asarray(errors, np.float64), np.asarray(base, np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # the weights may have overflowed
            gains, rows = other - own, len(own)
            deviation = float(gains.std(ddof=1)) if rows > 1 else np.inf
            margin = 1.96 * deviation / rows**0.5
            return cls(float(own.mean()), float(other.mean()), float(gains.mean()), margin, rows)

    @classmethod
    def of_labels(cls, labels: Any, predicted: Any) -> "Comparison":
        """Compare predicted labels with the most frequent one.

        Parameters
        ----------
        labels, predicted : array-like of shape (rows,)
            The labels, and those that a model predicts.

        Returns
        -------
        Comparison
            How many are wrong.

        Examples
        --------
        >>> Comparison.of_labels(["a", "a", "b", "b"], ["a", "a", "b", "a"]).gain
        0.25
        """
        found = np.asarray(labels)
        names, counts = np.unique(found, return_counts=True)
        return cls.of(np.asarray(predicted) != found, found != names[counts.argmax()])

    @classmethod
    def of_numbers(cls, numbers: Any, predicted: Any) -> "Comparison":
        """Compare predicted numbers with the mean of all.

        Parameters
        ----------
        numbers, predicted : array-like of shape (rows,)
            The numbers, and those that a model predicts.

        Returns
        -------
        Comparison
            The mean squared errors.

        Examples
        --------
        >>> Comparison.of_numbers([1.0, 3.0], [1.0, 2.0]).gain
        0.5
        """
        found: Floats = np.asarray(numbers, np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            return cls.of((np.asarray(predicted) - found) ** 2, (found - found.mean()) ** 2)

    @property
    def beats_base_rate(self) -> bool:
        """Whether the gain is positive, and larger than its margin."""
        return bool(self.gain > self.margin)

    @property
    def verdict(self) -> str:
        """A plain sentence on whether the model is of use."""
        if self.beats_base_rate:
            return "It beats the base rate."
        verb = "may do, as far as these rows can tell," if self.gain > 0 else "does"
        return (
            "This model is not better than the base rate: always giving the same answer "
            f"{verb} as well. {ADVICE}"
        )

    def __str__(self) -> str:
        return (
            f"The model errs by {self.error:.3g} on {self.rows:,} rows, and always the same answer "
            f"by {self.base_rate:.3g}: {self.gain:.3g} ± {self.margin:.3g} less. {self.verdict}"
        )
