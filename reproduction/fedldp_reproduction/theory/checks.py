"""What the theory figures have in common: curves, and verdicts on the sign of a curve."""

from collections.abc import Callable, Iterable
from math import log

import numpy as np

from fedldp._internal.validation import LARGEST_STUDIED_EPSILON, SMALLEST_EPSILON
from fedldp_reproduction.results import ClaimVerdict, FigureResult, Point
from fedldp_reproduction.theory import claims

Curve = Callable[[float], float]

BUDGET = "privacy budget ε"
CLOSE = 0.1  # what the paper calls close or about is so if it is off by no more than this share
LN_2, LN_4 = log(2), log(4)
_SAMPLES = 401


def spaced(low: float, high: float, number: int = _SAMPLES) -> list[float]:
    """Return equally spaced numbers, both ends included.

    >>> spaced(0.0, 1.0, 3)
    [0.0, 0.5, 1.0]
    """
    return [float(each) for each in np.linspace(low, high, number)]


def points(series: str, x: Iterable[float], y: Curve, panel: str = "") -> tuple[Point, ...]:
    """Return a curve as tidy data.

    >>> points("square", [1.0, 2.0], lambda x: x**2)[1].y
    4.0
    """
    return tuple(Point(panel, series, each, float(y(each)), None, None, 0) for each in x)


def result(
    key: str,
    title: str,
    paper: str,
    drawn: tuple[Point, ...],
    verdicts: Iterable[ClaimVerdict],
    settings: tuple[str, ...],
    *,
    x_label: str = BUDGET,
    y_label: str = "",
    y_log: bool = False,
    table: tuple[tuple[str, ...], ...] = (),
) -> FigureResult:
    """Return a figure that is computed: it has no data set and nothing in it is sampled."""
    return FigureResult(
        key=key,
        title=title,
        paper=paper,
        x_label=x_label,
        y_label=y_label,
        x_log=False,
        y_log=y_log,
        points=drawn,
        verdicts=tuple(verdicts),
        settings=("computed from formulas, nothing is sampled", *settings),
        data=(),
        synthetic=False,
        table=table,
    )


def as_printed(value: float, printed: str) -> bool:
    """Return whether a number is the printed one, up to one unit in the last digit.

    >>> as_printed(1.433736, "1.4338"), as_printed(1.433736, "1.434"), as_printed(1.0, "1.1")
    (True, True, False)
    """
    decimals = len(printed.partition(".")[2])
    return abs(value - float(printed)) < 0.999 * 10.0**-decimals


def keeps_sign(
    claim: str,
    curve: Curve,
    sign: int,
    low: float = SMALLEST_EPSILON,
    high: float = LARGEST_STUDIED_EPSILON,
) -> ClaimVerdict:
    """Return the verdict on a claim that a curve is positive (1) or negative (-1) on a range.

    >>> keeps_sign("e^eps > 1", lambda epsilon: 2.0**epsilon - 1, 1, 1.0, 3.0).evidence
    'Between 1 and 7 for epsilon from 1 to 3.'
    """
    values = [curve(each) for each in spaced(low, high)]
    evidence = (
        f"Between {min(values):.5g} and {max(values):.5g} for epsilon from {low:.6g} to {high:.6g}."
    )
    return ClaimVerdict(claim, all(sign * value > 0 for value in values), evidence)


def changes_sign(
    claim: str,
    curve: Curve,
    printed: str,
    low: float = SMALLEST_EPSILON,
    high: float = LARGEST_STUDIED_EPSILON,
) -> ClaimVerdict:
    """Return the verdict on a claim that a curve changes its sign once, at a printed epsilon.

    >>> changes_sign("zero at 2", lambda epsilon: epsilon - 2.001, "2.00", 1.0, 3.0).evidence
    'Changes sign at 2.001000 for epsilon from 1 to 3.'
    """
    found = claims.changes(lambda epsilon: curve(epsilon) > 0, low, high)
    places = " and ".join(f"at {each:.6f}" for each in found) or "nowhere"
    return ClaimVerdict(
        claim,
        len(found) == 1 and as_printed(found[0], printed),
        f"Changes sign {places} for epsilon from {low:.6g} to {high:.6g}.",
    )
