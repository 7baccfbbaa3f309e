"""Does a mechanism leak more than it claims? A proof for tables, an attack on any callable.

`exact` proves the privacy of a channel from its integers. `attack` draws from a mechanism and
gives a lower confidence bound on its epsilon: it can prove a leak, never its absence.
`reachable_fraction` finds what floating point reveals, which no number of samples would show.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from math import inf, lcm
from operator import index, mul
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal.science import scipy_module
from fedldp._internal.validation import Floats, Integers
from fedldp.coders.channel import Channel
from fedldp.errors import DomainError
from fedldp.randomness import Source

__all__ = [
    "Attack",
    "ExactAudit",
    "attack",
    "exact",
    "largest_ratio",
    "reachable_fraction",
    "true_epsilon",
]

Array = npt.NDArray[Any]
Bracket = tuple[Fraction, Fraction] | tuple[float, float]

_TAILS = 2.0 ** -np.arange(7, 15)
_QUANTILE_LEVELS = np.concatenate([_TAILS, np.arange(1, 64) / 64, 1 - _TAILS])
_LEAST_ATOM_COUNT = 16  # a value seen so often is an event of its own
_PRIOR_COUNT = 5  # added to both counts of a ratio: small counts say little


@final
@dataclass(frozen=True)
class ExactAudit:
    """What the integers of a channel prove; made by `exact`.

    Attributes
    ----------
    nominal
        The epsilon that the channel claims.
    low, high
        Two numbers that enclose the true epsilon.
    column
        The number of the output that attains the true epsilon.
    pair
        The letters at which that output is most and least likely.
    bias
        The largest absolute difference between a letter and the mean of its outputs.
    worst_case_variance
        The largest variance over all inputs in [-1, 1].
    letters
        The number of rows of the table.
    outputs
        The number of columns of the table.
    bits
        The number of bits of a code.

    Examples
    --------
    >>> import fedldp
    >>> audit = exact(fedldp.mechanisms.Duchi(epsilon=1.0).channel())
    >>> audit.holds, audit.pair, audit.bits
    (True, (-1.0, 1.0), 1)
    """

    nominal: Fraction
    low: Fraction | float
    high: Fraction | float
    column: int
    pair: tuple[float, float]
    bias: Fraction
    worst_case_variance: float
    letters: int
    outputs: int
    bits: int

    @property
    def holds(self) -> bool:
        """Whether the channel is as private as it claims."""
        return self.high <= self.nominal

    @property
    def shortfall(self) -> Fraction | float:
        """By how much the true epsilon stays below the nominal one."""
        return self.nominal - self.high


def exact(channel: Channel) -> ExactAudit:
    """Return what the integers of a channel prove, independently of its constructor.

    Parameters
    ----------
    channel
        The channel to audit.

    Returns
    -------
    ExactAudit
        The true epsilon, the bias and the size of the channel.

    Examples
    --------
    >>> import fedldp
    >>> audit = exact(fedldp.mechanisms.PM(epsilon=9.0).channel(outputs=33))
    >>> audit.holds, float(audit.low), float(audit.bias) < 1e-15
    (True, 8.4545..., True)
    """
    counts = channel.counts.tolist()
    column, ratio = largest_ratio(counts)
    low, high = _log(ratio)
    at = channel.counts[:, column]
    return ExactAudit(
        nominal=vehicle.exact(channel.epsilon),
        low=low,
        high=high,
        column=column,
        pair=(float(channel.letters[at.argmax()]), float(channel.letters[at.argmin()])),
        bias=_largest_bias(counts, channel.letters.tolist(), channel.values.tolist()),
        worst_case_variance=channel.worst_case_variance,
        letters=len(counts),
        outputs=channel.outputs,
        bits=channel.bits,
    )


def true_epsilon(counts: Sequence[Sequence[int]]) -> Bracket:
    """Return two numbers that enclose the epsilon of a table of counts.

    The table need not be a channel. Rows are inputs, with odds in proportion to their counts.

    Parameters
    ----------
    counts
        A list of rows of integers, all of the same length.

    Returns
    -------
    tuple
        A lower and an upper bound of epsilon. Both are infinite if an output is possible for one
        input and impossible for another.

    Raises
    ------
    DomainError
        If the counts are not a table of integers, or a count is negative, or a row is all zeros.

    Examples
    --------
    >>> low, high = true_epsilon([[3, 1], [1, 3]])          # ln 3
    >>> float(low), high - low < 1e-12
    (1.0986122886681098, True)
    >>> true_epsilon([[3, 1], [4, 0]])
    (inf, inf)
    """
    try:
        rows = [[index(count) for count in row] for row in counts]
    except TypeError:
        rows = []
    if len({len(row) for row in rows}) != 1 or any(min(row, default=-1) < 0 for row in rows):
        raise DomainError("counts must be a table of integers, none of them negative.")
    totals = [sum(row) for row in rows]
    if 0 in totals:
        raise DomainError(f"a row of counts must not be all zeros; row {totals.index(0)} is.")
    common = lcm(*totals)
    return _log(largest_ratio([[n * (common // sum(row)) for n in row] for row in rows])[1])


def largest_ratio(rows: list[list[int]]) -> tuple[int, Fraction | None]:
    """Return the column with the largest ratio of two counts, and that ratio.

    Parameters
    ----------
    rows
        A table of counts whose rows have the same total.

    Returns
    -------
    tuple
        The number of the column, and the ratio as a Fraction: None if it is infinite.

    Examples
    --------
    >>> largest_ratio([[3, 1, 4], [2, 5, 1]])
    (1, Fraction(5, 1))
    """
    largest, where = Fraction(0), 0
    for number, column in enumerate(zip(*rows, strict=True)):
        least, most = min(column), max(column)
        if least == 0 < most:
            return number, None
        if most * largest.denominator > largest.numerator * least:
            largest, where = Fraction(most, least), number
    return where, largest


def _log(ratio: Fraction | None) -> Bracket:
    """Return numbers below and above the logarithm of a ratio that is at least 1."""
    if ratio is None:
        return inf, inf
    # `decimal` is specified to round quotients and logarithms correctly, here to 80 digits. Both
    # errors together are far below 10^-60.
    context, pad = Context(prec=80), Fraction(1, 10**60)
    quotient = context.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    middle = Fraction(context.ln(quotient))
    return max(middle - pad, Fraction(0)), middle + pad


def _largest_bias(rows: list[list[int]], letters: list[float], values: list[float]) -> Fraction:
    # A float is an integer over a power of two: over the largest of these, all is integers.
    unit = max(number.as_integer_ratio()[1] for number in (*letters, *values))
    scaled = [int(Fraction(value) * unit) for value in values]
    biases = (
        abs(sum(map(mul, row, scaled)) - sum(row) * int(Fraction(letter) * unit))
        for row, letter in zip(rows, letters, strict=True)
    )
    return Fraction(max(biases), unit * sum(rows[0]))


@final
@dataclass(frozen=True)
class Attack:
    """The strongest evidence found that one input can be distinguished from another.

    Made by `attack`. With probability `confidence` or more, the true epsilon is at least `bound`.

    Attributes
    ----------
    bound
        The lower confidence bound on epsilon.
    confidence
        The probability that the bound is right.
    pair
        The two inputs that are distinguished.
    event
        The event that distinguishes them, in words. There, x and z are a pair in the order in
        which it was given.
    hits
        How many times the event happened for each input of the pair.
    trials
        The number of outputs of each input on which the event was measured.

    Examples
    --------
    >>> import fedldp
    >>> from fedldp.mechanisms import Duchi
    >>> found = attack(
    ...     Duchi(epsilon=1.0).perturb, [(-1.0, 1.0)], fedldp.source(7), samples=1000
    ... )
    >>> found.hits, found.trials, round(found.bound, 2)
    ((368, 129), 500, 0.76)
    """

    bound: float
    confidence: float
    pair: tuple[Any, Any]
    event: str
    hits: tuple[int, ...]
    trials: int


def attack(
    mechanism: Callable[[Array, Source], Any],
    pairs: Sequence[tuple[Any, Any]],
    source: Source,
    *,
    samples: int = 100_000,
    confidence: float = 0.99,
) -> Attack:
    """Return a lower confidence bound on the epsilon of anything that maps inputs to outputs.

    For each pair and in both directions, half of the samples choose the event that distinguishes
    the two inputs best, and the other half measures it (Clopper-Pearson).

    Parameters
    ----------
    mechanism
        A function of an array, in which one input is repeated (rows if inputs are vectors), and of
        a source. It returns as many outputs, each drawn independently: numbers, rows of numbers,
        text, or an array of objects.
    pairs
        The pairs of inputs to distinguish.
    source
        The random source, from `fedldp.source`, that the mechanism is given.
    samples
        The number of outputs to draw for each input of each pair.
    confidence
        The confidence of all pairs together (Bonferroni).

    Returns
    -------
    Attack
        The pair and the event with the largest bound.

    Raises
    ------
    DomainError
        If there are no pairs, fewer than two samples, the confidence is not between 0 and 1, or the
        mechanism does not return one output for each input.

    Examples
    --------
    >>> import fedldp
    >>> from fedldp.mechanisms import Duchi
    >>> found = attack(Duchi(epsilon=1.0).perturb, [(-1.0, 1.0)], fedldp.source(7))
    >>> round(found.bound, 2), found.confidence, found.pair, found.event
    (0.98, 0.99, (-1.0, 1.0), 'output = -2.16395')
    """
    if not pairs or samples < 2 or not 0 < confidence < 1:
        raise DomainError(
            "an attack needs a pair of inputs, two samples or more and a confidence between 0 "
            f"and 1; got {len(pairs)} pairs, samples={samples!r}, confidence={confidence!r}."
        )
    trials = samples // 2
    risk = (1 - confidence) / (4 * len(pairs))  # two bounds, each of them both ways round
    attacks = []
    for x, z in pairs:
        of_x, of_z = (_draw(mechanism, value, 2 * trials, source) for value in (x, z))
        # The halves that choose come first: they alone decide how objects are numbered.
        pooled = np.concatenate([of_x[:trials], of_z[:trials], of_x[trials:], of_z[trials:]])
        views = [_cells(name, view) for name, view in _views(pooled, x, z)]
        for pair, way in (((x, z), [0, 1]), ((z, x), [1, 0])):
            choices = [_best_event(view.choosing[way], trials, risk) for view in views]
            best = int(np.argmax([score for score, _ in choices]))
            view, event = views[best], choices[best][1]
            hits = view.measuring[way][:, event].sum(axis=1)
            bound = max(float(_bound(hits, trials, risk)), 0.0)
            words = view.words(event)
            attacks.append(Attack(bound, confidence, pair, words, tuple(hits.tolist()), trials))
    return max(attacks, key=lambda attempt: attempt.bound)


def _draw(mechanism: Callable[[Array, Source], Any], x: Any, size: int, source: Source) -> Array:
    outputs = np.asarray(mechanism(np.repeat(np.asarray(x)[None], size, axis=0), source))
    if outputs.ndim == 0 or len(outputs) != size:
        raise DomainError(f"a mechanism must return one output for each of {size} inputs.")
    return outputs.reshape(size, -1) if outputs.ndim > 2 else outputs


def _views(outputs: Array, x: Any, z: Any) -> Iterator[tuple[str, Array]]:
    """Yield what to examine: an output as a whole, its entries, and how far it lies along x - z."""
    yield "output", outputs
    if outputs.ndim == 2:
        for number, column in enumerate(outputs.T):
            yield f"output[{number}]", column
        if np.shape(x) == np.shape(z) == outputs.shape[1:]:
            yield "output . (x - z)", (outputs * np.subtract(x, z)).sum(axis=1)


@final
@dataclass(frozen=True)
class _Cells:
    """A partition of the outputs: cell i lies above the value cuts[i], up to cuts[i + 1]."""

    name: str
    values: Sequence[Any] | Array
    cuts: Integers  # indices of values; the first is -1, below all of them
    choosing: Integers  # how many outputs of x and of z lie in each cell, in the first half
    measuring: Integers  # and in the second

    def words(self, event: npt.NDArray[np.bool_]) -> str:
        """Describe a set of cells."""
        runs = np.flatnonzero(np.diff(event, prepend=False, append=False)).reshape(-1, 2)
        parts = []
        for first, end in runs[:3].tolist():
            low, high = self.cuts[first], self.cuts[end] if end < len(self.cuts) else None
            above = f"{_value_text(self.values[low])} < " if low >= 0 else ""
            up_to = f" <= {_value_text(self.values[high])}" if high is not None else ""
            if high == low + 1:
                above, up_to = "", up_to.replace("<=", "=", 1)
            parts.append(above + self.name + up_to)
        return " or ".join(parts) + (" or ..." if len(runs) > 3 else "")


def _cells(name: str, pooled: Array) -> _Cells:
    """Cut the outputs where the first half of them suggests: at quantiles, and around atoms."""
    values: Sequence[Any] | Array
    if pooled.dtype == object:
        numbers: dict[Any, int] = {}
        ranks = np.array([numbers.setdefault(cell, len(numbers)) for cell in pooled])
        values = list(numbers)
    else:
        values, ranks = np.unique(pooled, axis=0, return_inverse=True)
    seen = np.sort(ranks[: len(ranks) // 2])
    often, times = np.unique(seen, return_counts=True)
    atoms = often[times >= _LEAST_ATOM_COUNT]
    quantiles = seen[(_QUANTILE_LEVELS * seen.size).astype(int)]
    cuts = np.unique(np.concatenate([[-1], quantiles, atoms - 1, atoms]))
    parts = np.split(np.searchsorted(cuts, ranks.reshape(-1)) - 1, 4)
    counts = np.array([np.bincount(part, minlength=len(cuts)) for part in parts])
    return _Cells(name, values, cuts, choosing=counts[:2], measuring=counts[2:])


def _best_event(counts: Integers, trials: int, risk: float) -> tuple[float, npt.NDArray[np.bool_]]:
    """Return the largest bound, and its event: the cells with a ratio above some level."""
    likely, rival = counts + _PRIOR_COUNT
    order = np.argsort(-likely / rival, kind="stable")
    scores = _bound(np.cumsum(counts[:, order], axis=1), trials, risk)
    best = int(np.argmax(scores))
    event = np.zeros(order.size, np.bool_)
    event[order[: best + 1]] = True
    return float(scores[best]), event


def _bound(hits: Integers, trials: int, risk: float) -> Floats:
    """Return ln(p / q) with Clopper and Pearson's bounds, p from below and q from above."""
    special = scipy_module("special")
    betainccinv, betaincinv = special.betainccinv, special.betaincinv

    k, m = hits
    p = np.where(k > 0, betaincinv(np.maximum(k, 1), trials - k + 1, risk), 0.0)
    q = np.where(m < trials, betainccinv(m + 1, np.maximum(trials - m, 1), risk), 1.0)
    with np.errstate(divide="ignore"):
        result: Floats = np.log(p / q)
    return result


def _value_text(value: Any) -> str:
    if np.ndim(value):
        return f"({', '.join(_value_text(each) for each in value)})"
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def reachable_fraction(
    forward: Callable[[Floats, float], Floats],
    inverse: Callable[[Floats, float], Floats],
    outputs: npt.ArrayLike,
    x: float,
    *,
    step: float = 2.0**-53,
    reach: int = 16,
) -> float:
    """Return which fraction of some floating-point outputs could have come from x at all.

    A textbook mechanism computes `forward(u, x)` from a random u, a multiple of `step` in [0, 1).
    For the x that the outputs came from the result must be 1. If it is less for another x, the
    remaining outputs rule that x out with certainty, and the true epsilon is infinite.

    Parameters
    ----------
    forward
        Computes outputs from random numbers u and an input x.
    inverse
        Returns the u of outputs y and an input x, about as closely as floats can, with a last axis
        for the different ways to y, which `forward` takes too.
    outputs
        The outputs of a mechanism.
    x
        The input that the outputs may have come from.
    step
        The distance between two neighboring values of u.
    reach
        How many steps around `inverse(y, x)` are tried.

    Returns
    -------
    float
        The fraction of the outputs that `forward` can compute from x.

    Examples
    --------
    >>> def forward(u, x):
    ...     return x + 4 * (u - 0.5)
    >>> def inverse(y, x):
    ...     return ((y - x) / 4 + 0.5)[..., None]
    >>> import fedldp
    >>> outputs = forward(fedldp.source(7).uniform(10_000), 0.1)
    >>> [reachable_fraction(forward, inverse, outputs, x) for x in (0.1, 0.2)]
    [1.0, 0.0249]
    """
    y = np.asarray(outputs, np.float64)
    guess = np.rint(inverse(y, x) / step)
    is_reached = np.zeros(y.shape, np.bool_)
    for offset in range(-reach, reach + 1):
        u = (guess + offset) * step
        is_reached |= ((forward(u, x) == y[..., None]) & (u >= 0) & (u < 1)).any(axis=-1)
    return float(is_reached.mean())
