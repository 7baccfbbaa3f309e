"""What the paper says about worst-case variances, checked against what is computed.

The claims are typed in, as data, from the text of Zhao et al. (2020); everything said about them
is computed from the mechanisms. A claim that one variance is lower than others fails if it is
higher somewhere. Where two are equal it neither fails nor holds: it must be lower somewhere to
hold, and the ranges of equality are reported. A claim that the paper makes "for any epsilon", or
from some epsilon on, is judged over the whole range that fedldp accepts. A claim that it reads from
a figure is judged up to epsilon 8, where the only axis that the paper describes ends (Fig. 3); what
happens beyond is reported separately. A printed bound may be off by one in its last digit: that
much of the range next to it is left out.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations, pairwise
from math import log

import numpy as np

from fedldp._internal.validation import LARGEST_STUDIED_EPSILON, SMALLEST_EPSILON
from fedldp.mechanisms import mechanism

_TIE = 1e-12  # relative difference below which two variances count as equal
_NARROW = 1e-4  # a range of epsilon too narrow to speak of, such as a tie next to a switch
_GRID = np.linspace(0.0, LARGEST_STUDIED_EPSILON, 1001)
SHOWN = 8.0  # the end of the axis of Fig. 3
_LARGE = 4.0  # what the paper calls a large budget: "such as 4"


@dataclass(frozen=True)
class TableRow:
    """One line of Table I or II: an order of mechanisms on a range of epsilon."""

    low: float
    high: float
    order: str


@dataclass(frozen=True)
class RangeClaim:
    """A sentence of the paper that compares one mechanism with others on a range of epsilon."""

    text: str
    name: str
    relation: str
    rivals: tuple[str, ...]
    low: float = SMALLEST_EPSILON
    high: float = LARGEST_STUDIED_EPSILON
    figure: str = "table-2"  # the key of the figure or table that it is read from


@dataclass(frozen=True)
class Failure:
    """A range of epsilon on which a claim fails against a rival, and by how much at most."""

    rival: str
    low: float
    high: float
    gap: float  # relative to the rival
    at: float

    def __str__(self) -> str:
        return (
            f"against {self.rival} {_range(self.low, self.high)}, by up to {self.gap:.2%}, at "
            f"{self.at:.4g}"
        )


@dataclass(frozen=True)
class Tie:
    """A range of epsilon on which two mechanisms have the same worst-case variance."""

    rival: str
    low: float
    high: float

    def __str__(self) -> str:
        return f"equal to {self.rival} {_range(self.low, self.high)}"


def _range(low: float, high: float) -> str:
    return f"from {low:.4f} to {high:.4f}"


TABLES = {
    "Table I": (
        TableRow(0.0, 1.29, "duchi < pm < laplace"),
        TableRow(1.29, 2.32, "pm < duchi < laplace"),
        TableRow(2.32, LARGEST_STUDIED_EPSILON, "pm < laplace < duchi"),
    ),
    "Table II": (
        TableRow(0.0, 0.69, "duchi = three-outputs < pm-sub < pm"),
        TableRow(0.69, 1.19, "three-outputs < duchi < pm-sub < pm"),
        TableRow(1.19, 1.29, "three-outputs < pm-sub < duchi < pm"),
        TableRow(1.29, 2.56, "three-outputs < pm-sub < pm < duchi"),
        TableRow(2.56, 3.27, "pm-sub < three-outputs < pm < duchi"),
        TableRow(3.27, LARGEST_STUDIED_EPSILON, "pm-sub < pm < three-outputs < duchi"),
    ),
}

CLAIMS = (
    RangeClaim(
        "PM is below Laplace for any epsilon (introduction)",
        "pm",
        "<",
        ("laplace",),
        figure="table-1",
    ),
    RangeClaim(
        "Laplace is above Duchi for epsilon up to 2.3 (related work)",
        "laplace",
        ">",
        ("duchi",),
        high=2.3 - 0.1,
        figure="table-1",
    ),
    RangeClaim(
        "Laplace is below Duchi for a larger epsilon (related work)",
        "laplace",
        "<",
        ("duchi",),
        low=2.3 + 0.1,
        figure="table-1",
    ),
    RangeClaim(
        "HM is lower than Duchi and PM (introduction)",
        "hm",
        "<",
        ("duchi", "pm"),
        figure="table-1",
    ),
    RangeClaim("PM-SUB beats PM for any epsilon (introduction)", "pm-sub", "<", ("pm",)),
    RangeClaim(
        "Three-Outputs equals Duchi up to ln 2 (introduction)",
        "three-outputs",
        "=",
        ("duchi",),
        high=log(2),
    ),
    RangeClaim(
        "Three-Outputs beats Duchi above ln 2 (introduction)",
        "three-outputs",
        "<",
        ("duchi",),
        low=log(2) + _NARROW,  # they meet at ln 2
    ),
    RangeClaim(
        "Three-Outputs beats Duchi and PM from ln 2 to 3.27 (introduction)",
        "three-outputs",
        "<",
        ("duchi", "pm"),
        low=log(2) + _NARROW,
        high=3.27 - 0.01,
    ),
    RangeClaim(
        "PM-SUB beats Duchi and PM above 1.19 (introduction)",
        "pm-sub",
        "<",
        ("duchi", "pm"),
        low=1.19 + 0.01,
    ),
    RangeClaim(
        "PM-OPT is below PM (sec. PM-OPT, Fig. 1)",
        "pm-opt",
        "<",
        ("pm",),
        high=SHOWN,
        figure="worst-case-variance",
    ),
    RangeClaim(
        "Three-Outputs is below PM for epsilon < 3.2 (sec. PM-OPT, Fig. 1)",
        "three-outputs",
        "<",
        ("pm",),
        high=3.2 - 0.1,
        figure="worst-case-variance",
    ),
    RangeClaim(
        "Three-Outputs loses that advantage from 3.2 on (sec. PM-OPT, Fig. 1)",
        "three-outputs",
        ">",
        ("pm",),
        low=3.2 + 0.1,
        high=SHOWN,
        figure="worst-case-variance",
    ),
    *(
        RangeClaim(
            f"{title} is below Three-Outputs and all existing solutions for a large epsilon, "
            f"read as {_LARGE:g} or more (sec. Single Attribute)",
            name,
            "<",
            ("three-outputs", "laplace", "duchi", "pm", "hm"),
            low=_LARGE,
            high=SHOWN,
            figure="worst-case-variance",
        )
        for title, name in (("PM-OPT", "pm-opt"), ("PM-SUB", "pm-sub"))
    ),
    RangeClaim(
        "HM-TP is lower than other solutions (sec. HM-TP, Fig. 1)",
        "hm-tp",
        "<",
        ("laplace", "duchi", "pm", "hm", "three-outputs", "pm-sub", "pm-opt"),
        high=SHOWN,
        figure="worst-case-variance",
    ),
)


@cache
def worst(name: str, epsilon: float) -> float:
    """Return a mechanism's worst-case variance."""
    return mechanism(name, epsilon).worst_case_variance


def relation(first: str, second: str, epsilon: float) -> str:
    """Return how two worst-case variances compare: '<', '=' or '>'.

    >>> relation("hm", "hm-tp", 1.0)
    '<'
    """
    a, b = worst(first, epsilon), worst(second, epsilon)
    if abs(a - b) <= _TIE * b:
        return "="
    return "<" if a < b else ">"


def changes(
    of: Callable[[float], object],
    low: float = SMALLEST_EPSILON,
    high: float = LARGEST_STUDIED_EPSILON,
) -> list[float]:
    """Return the epsilons at which a label changes, to 1e-9, starting from a grid."""
    inner = [float(e) for e in _GRID if low < e < high]
    points = [low, *inner, high]
    labels = [of(e) for e in points]
    found = []
    for (left, right), (before, after) in zip(pairwise(points), pairwise(labels), strict=True):
        if before != after:
            a, b = left, right
            while b - a > 1e-9:
                middle = (a + b) / 2
                a, b = (middle, b) if of(middle) == before else (a, middle)
            found.append(b)
    return found


def order(names: list[str], epsilon: float) -> str:
    """Return the names in the order of their worst-case variances, such as 'duchi < pm'."""
    ranked = sorted(names, key=lambda name: worst(name, epsilon))
    groups = [[ranked[0]]]
    for before, name in pairwise(ranked):
        if relation(before, name, epsilon) == "=":
            groups[-1].append(name)
        else:
            groups.append([name])
    return " < ".join(" = ".join(sorted(group)) for group in groups)


def table(names: list[str]) -> list[TableRow]:
    """Return the ranges of epsilon on which the order of the named mechanisms stays the same."""
    cuts = sorted(
        cut
        for first, second in combinations(names, 2)
        for cut in changes(partial(relation, first, second))
    )
    edges = [0.0, *cuts, LARGEST_STUDIED_EPSILON]
    return [TableRow(low, high, order(names, (low + high) / 2)) for low, high in pairwise(edges)]


def same_to_two_decimals(computed: TableRow, printed: TableRow) -> bool:
    """Return whether a computed row agrees with a row of the paper."""
    bounds = (round(computed.low, 2), round(computed.high, 2))
    return computed.order == printed.order and bounds == (printed.low, printed.high)


def relations(claim: RangeClaim, rival: str) -> list[tuple[float, float, str]]:
    """Return how a claim's mechanism compares with a rival, range by range."""
    low, high = claim.low, claim.high
    compared = partial(relation, claim.name, rival)
    edges = [low, *changes(compared, low, high), high]
    return [
        (left, right, compared((left + right) / 2))
        for left, right in pairwise(edges)
        if right - left > _NARROW
    ]


def ties(claim: RangeClaim) -> list[Tie]:
    """Return where a claim's mechanism equals a rival that it is said to differ from."""
    if claim.relation == "=":
        return []
    return [
        Tie(rival, low, high)
        for rival in claim.rivals
        for low, high, here in relations(claim, rival)
        if here == "="
    ]


def failures(claim: RangeClaim) -> list[Failure]:
    """Return where a claim fails, and by how much: an empty list if it fails nowhere."""
    found = []
    for rival in claim.rivals:
        for left, right, here in relations(claim, rival):
            if here not in (claim.relation, "="):
                inside = np.linspace(left, right, 400)
                gap = [abs(worst(claim.name, e) / worst(rival, e) - 1) for e in inside]
                largest = int(np.argmax(gap))
                found.append(Failure(rival, left, right, gap[largest], float(inside[largest])))
    return found


def holds(claim: RangeClaim) -> bool:
    """Return whether a claim fails nowhere, and is true of each rival somewhere."""
    shown = all(
        any(here == claim.relation for *_, here in relations(claim, rival))
        for rival in claim.rivals
    )
    return shown and not failures(claim)


def narrowed(claim: RangeClaim) -> str:
    """Return the narrowest true sentence of a claim that fails, in terms of its rivals.

    >>> claim = RangeClaim("", "three-outputs", "<", ("duchi", "pm"), high=8.0)
    >>> narrowed(claim)
    'three-outputs is nowhere above duchi; and not above pm except from 3.2694 to 8.0000.'
    """
    failed: dict[str, list[str]] = {}
    for each in failures(claim):
        failed.setdefault(each.rival, []).append(_range(each.low, each.high))
    never = [rival for rival in claim.rivals if rival not in failed]
    side = "above" if claim.relation == "<" else "below"
    parts = [f"nowhere {side} {', '.join(never)}"] if never else []
    parts += [f"not {side} {rival} except {' and '.join(at)}" for rival, at in failed.items()]
    return f"{claim.name} is {'; and '.join(parts)}."


def beyond(claim: RangeClaim) -> list[Failure]:
    """Return where a claim that is judged up to epsilon 8 fails above it."""
    if claim.high != SHOWN:
        return []
    return failures(replace(claim, low=SHOWN, high=LARGEST_STUDIED_EPSILON))
