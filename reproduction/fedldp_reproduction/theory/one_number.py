"""The paper's figures and tables about one number: introduction and sec. Single Attribute."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import exp, expm1, log

import numpy as np

from fedldp._internal.validation import LARGEST_STUDIED_EPSILON, SMALLEST_EPSILON, Floats
from fedldp.mechanisms import PM, Piecewise, PMOpt, PMSub, ThreeOutputs
from fedldp_reproduction.results import ClaimVerdict, FigureResult, Point
from fedldp_reproduction.theory import claims
from fedldp_reproduction.theory.checks import CLOSE, LN_2, points, result, spaced
from fedldp_reproduction.theory.claims import RangeClaim, TableRow, worst

MOST_OUTPUT = "e^eps / (e^eps + 2)"

_DRAWN = spaced(0.25, 8.0, 156)
_EVERY = spaced(SMALLEST_EPSILON, LARGEST_STUDIED_EPSILON)
_CHOICES = 2001  # values of a parameter tried to see whether the paper's is the best
_EXISTING = ("laplace", "duchi", "pm", "hm")
_PROPOSED = ("three-outputs", "pm-sub", "pm-opt", "hm-tp")
_PIECEWISE = (PM, PMSub, PMOpt)
_RANGE = (
    f"verdicts cover every epsilon that fedldp accepts, {SMALLEST_EPSILON} to "
    f"{LARGEST_STUDIED_EPSILON:g}"
)
_NO_GRID = "the paper gives no grid: drawn from 0.25 to 8, the end of its Fig. 3"


def worst_case_variance() -> FigureResult:
    """Return the worst-case variance of the paper's eight mechanisms over epsilon."""
    drawn = [points(name, _DRAWN, partial(worst, name)) for name in (*_EXISTING, *_PROPOSED)]
    return result(
        "worst-case-variance",
        "Worst-case variance for one number in [-1, 1]",
        "Fig. 1",
        sum(drawn, ()),
        _claimed("worst-case-variance"),
        (
            _NO_GRID,
            f"claims read from this figure are judged up to epsilon {claims.SHOWN:g}, the end of "
            "the axis of Fig. 3; what happens above it is reported separately",
            "a claim of lower variance fails where the variance is higher; where two are equal it "
            "does not, and the range is reported",
            "a printed bound may be off by one in its last digit",
        ),
        y_label="worst-case variance",
        y_log=True,
    )


def table_1() -> FigureResult:
    """Return the verdicts on Table I, the order of the existing mechanisms."""
    return _table("table-1", "Table I", "existing mechanisms")


def table_2() -> FigureResult:
    """Return the verdicts on Table II, the order of existing and proposed mechanisms."""
    return _table("table-2", "Table II", "existing and proposed mechanisms")


def _table(key: str, table: str, which: str) -> FigureResult:
    return result(
        key,
        f"{table}: the order of {which} by worst-case variance",
        table,
        (),
        (*_rows(table), *_claimed(key)),
        (
            "a row holds if its order does and its bounds, rounded to two decimals, are those",
            _RANGE,
        ),
    )


def _rows(table: str) -> Iterator[ClaimVerdict]:
    printed = claims.TABLES[table]
    computed = claims.table(printed[0].order.replace(" = ", " < ").split(" < "))
    for row in printed:
        middle = (row.low + row.high) / 2
        (found,) = [each for each in computed if each.low < middle <= each.high]
        yield ClaimVerdict(
            f"{row.order} for epsilon {_range(row)} ({table})",
            claims.same_to_two_decimals(found, row),
            f"Computed: {found.order} from {found.low:.4f} to {found.high:.4f}; {_values(found)}.",
        )


def _range(row: TableRow) -> str:
    if row.high == LARGEST_STUDIED_EPSILON:
        return f"above {row.low:g}"
    return f"from {row.low:g} to {row.high:g}"


def _values(row: TableRow) -> str:
    middle = (row.low + row.high) / 2
    names = row.order.replace(" = ", " < ").split(" < ")
    return f"at {middle:.4g}: " + ", ".join(f"{name} {worst(name, middle):.4g}" for name in names)


def _claimed(key: str) -> Iterator[ClaimVerdict]:
    """Yield the verdicts on the claims that are read from one figure or table."""
    for claim in claims.CLAIMS:
        if claim.figure == key:
            failures, later = claims.failures(claim), claims.beyond(claim)
            ties, holds = claims.ties(claim), claims.holds(claim)
            if failures:
                evidence = "It fails: " + "; ".join(map(str, failures))
            else:
                margins = (_margin(claim, rival) for rival in claim.rivals)
                evidence = "The difference is " + "; ".join(margins)
            if ties:
                evidence += "; " + "; ".join(map(str, ties))
            if later:
                beyond = "; ".join(map(str, later))
                evidence += f". Beyond epsilon {claims.SHOWN:g}, not judged, it fails: {beyond}"
            instead = "" if holds else claims.narrowed(claim)
            yield ClaimVerdict(claim.text, holds, f"{evidence}.", instead)


def _margin(claim: RangeClaim, rival: str) -> str:
    ratios = [
        worst(claim.name, each) / worst(rival, each) - 1 for each in spaced(claim.low, claim.high)
    ]
    low, high = (100 * round(each, 12) + 0.0 for each in (min(ratios), max(ratios)))
    return f"{low:+.3g}% to {high:+.3g}% against {rival}"


def optimal_a() -> FigureResult:
    """Return P(0 | 0) of Three-Outputs over epsilon."""
    grid = spaced(SMALLEST_EPSILON, 8.0)
    chosen = points("three-outputs", grid, lambda epsilon: ThreeOutputs(epsilon).a)
    zero = claims.changes(lambda epsilon: ThreeOutputs(epsilon).a > 0)
    rises = [after.y - before.y for before, after in pairwise(chosen) if after.y > 0]
    loss = max(
        worst("three-outputs", epsilon) / float(np.min(variances_by_a(epsilon))) - 1
        for epsilon in _EVERY
    )
    return result(
        "optimal-a",
        "Three-Outputs: the best probability P(0 | 0) of answering 0 when x = 0",
        "Fig. 3",
        chosen + points(MOST_OUTPUT, grid, most_output),
        (
            ClaimVerdict(
                "Eq. (a_opt_1) gives the least worst-case variance (Lemma 4)",
                loss < 1e-9,
                f"Against the best of {_CHOICES} values of a it is never worse by more than "
                f"{max(loss, 0.0):.1e}.",
            ),
            ClaimVerdict(
                "P(0|0) = 0 for a small epsilon, up to ln 2 (Remark 1)",
                [f"{each:.6f}" for each in zero] == [f"{LN_2:.6f}"],
                f"Zero up to {', '.join(f'{each:.6f}' for each in zero)}; ln 2 = {LN_2:.6f}.",
            ),
            ClaimVerdict(
                "P(0|0) increases with epsilon (Remark 1)",
                min(rises) > 0,
                f"From 0 at ln 2 to {chosen[-1].y:.4f} at epsilon 8, by {min(rises):.2g} or more "
                f"for each {grid[1] - grid[0]:.2g} of epsilon.",
            ),
        ),
        (_RANGE,),
        y_label="P(0 | 0)",
    )


def most_output(epsilon: float) -> float:
    """Return e^eps / (e^eps + 2), the largest P(0 | 0) there can be, Eq. (bound-for-a)."""
    return exp(epsilon) / (exp(epsilon) + 2)


def variances_by_a(epsilon: float) -> Floats:
    """Return Three-Outputs' worst-case variance for all values of P(0 | 0), Eq. (worst-val-2)."""
    E = exp(epsilon)
    a = np.linspace(0.0, E / (E + 2), _CHOICES)
    C = E * (E + 1) / (expm1(epsilon) * (E - a))
    summit = C**2 * a * (1 - 1 / E) / 2  # the |x| with the largest variance, if that is below 1
    worst_case: Floats = (1 - a) * C**2 + np.where(summit < 1, summit**2, 2 * summit - 1)
    return worst_case


def pm_opt_vs_pm_sub() -> FigureResult:
    """Return the worst-case variances of PM-OPT and of its simple form PM-SUB."""
    excess = [worst("pm-sub", each) / worst("pm-opt", each) - 1 for each in _EVERY]
    largest = int(np.argmax(excess))
    loss = max(
        worst("pm-opt", epsilon) / float(np.min(variances_by_t(epsilon))) - 1 for epsilon in _EVERY
    )
    drawn = [points(kind.name, _DRAWN, partial(worst, kind.name)) for kind in (PMOpt, PMSub)]
    return result(
        "pm-opt-vs-pm-sub",
        "PM-OPT against PM-SUB",
        "Fig. 5",
        sum(drawn, ()),
        (
            ClaimVerdict(
                "Eq. (t-value) gives the least worst-case variance (Lemma 7)",
                loss < 1e-9,
                f"Against the best of {_CHOICES} values of t it is never worse by more than "
                f"{max(loss, 0.0):.1e}.",
            ),
            ClaimVerdict(
                "PM-SUB's worst-case variance is close to PM-OPT's (sec. PM-SUB)",
                min(excess) >= 0 and excess[largest] <= CLOSE,
                f"It lies {min(excess):.2%} to {excess[largest]:.2%} above, the most at epsilon "
                f"{_EVERY[largest]:.3g}.",
            ),
        ),
        (
            _NO_GRID,
            _RANGE,
            f"close: within {CLOSE:.0%}",
            "t of PM-OPT by Newton's method: the radicals printed are right, but lose digits",
        ),
        y_label="worst-case variance",
        y_log=True,
    )


def variances_by_t(epsilon: float) -> Floats:
    """Return the worst-case variance of the piecewise family for many t, Eq. (max-var-y-to-x)."""
    E, rest = exp(epsilon), expm1(epsilon)
    t = np.exp(np.linspace(0.0, epsilon, _CHOICES))
    variance: Floats = (t + 1) / rest + (t + E) * ((t + 1) ** 3 + rest) / (3 * t**2 * rest**2)
    return variance


def window_parameter() -> FigureResult:
    """Return ln t / epsilon of the piecewise family, which led the paper to PM-SUB."""
    grid = spaced(SMALLEST_EPSILON, LARGEST_STUDIED_EPSILON, 201)
    drawn = [points(kind.name, grid, partial(_exponent, kind)) for kind in _PIECEWISE]
    best = [point.y for point in drawn[-1]]
    enough = claims.changes(lambda epsilon: _exponent(PMOpt, epsilon) >= (1 - CLOSE) / 3)
    return result(
        "window-parameter",
        "The piecewise family: the exponent of t = e^(exponent times ε)",
        "sec. PM-SUB",
        sum(drawn, ()),
        (
            ClaimVerdict(
                "ln t / epsilon of PM-OPT is close to 1/3 (sec. PM-SUB)",
                min(best) >= (1 - CLOSE) / 3,
                f"It grows from {best[0]:.4f} at epsilon {grid[0]:g} to {best[-1]:.4f} at "
                f"{grid[-1]:g}; the variance hardly minds (Fig. 5).",
                f"ln t / epsilon of PM-OPT lies between 1/4 and 1/3, grows with epsilon, and is "
                f"within {CLOSE:.0%} of 1/3 from epsilon {enough[0]:.2f} on."
                if min(best) > 0.25 - 1e-6
                and max(best) < 1 / 3
                and all(later > before for before, later in pairwise(best))
                else "",
            ),
        ),
        (_RANGE, f"close: within {CLOSE:.0%}"),
        y_label="ln t / ε",
    )


def _exponent(kind: Callable[[float], Piecewise], epsilon: float) -> float:
    return log(kind(epsilon).t) / epsilon


_SHOWN_EPSILON = 1.0
_SHOWN_INPUTS = (0.0, 0.5, 1.0)


def density() -> FigureResult:
    """Return the density of the piecewise family's outputs for three inputs."""
    drawn: list[Point] = []
    for x in _SHOWN_INPUTS:
        for kind in _PIECEWISE:
            pieces = _pieces(kind(_SHOWN_EPSILON), x)
            steps = [(end, height) for left, right, height in pieces for end in (left, right)]
            outline = [(steps[0][0], 0.0), *steps, (steps[-1][0], 0.0)]
            drawn += [Point(f"x = {x:g}", kind.name, *corner, None, None, 0) for corner in outline]
    return result(
        "density",
        f"The density of the piecewise family's outputs, ε = {_SHOWN_EPSILON:g}",
        "Fig. 4",
        tuple(drawn),
        _density_verdicts(),
        (f"epsilon = {_SHOWN_EPSILON:g} and x = 0, 0.5, 1: the paper names none",),
        x_label="output y",
        y_label="density",
    )


def _pieces(mechanism: Piecewise, x: float) -> list[tuple[float, float, float]]:
    """Return the three pieces of the density: from, to, height."""
    left, right = (float(each) for each in mechanism.window(x))
    high, low = mechanism.heights
    return [(-mechanism.A, left, low), (left, right, high), (right, mechanism.A, low)]


def _density_verdicts() -> Iterator[ClaimVerdict]:
    every = [
        kind(each) for kind in _PIECEWISE for each in spaced(0.25, LARGEST_STUDIED_EPSILON, 80)
    ]
    inputs = spaced(-1.0, 1.0, 5)
    outside, bias, spread, growth, stretch = [], [], [], [], []
    for each in every:
        laws = [_pieces(each, x) for x in inputs]
        # The lengths of the left and the middle piece: a row for each input.
        lengths = np.array([[right - left for left, right, _ in law[:2]] for law in laws])
        growth.append(float(np.min(np.diff(lengths[:, 0]))))
        stretch.append(float(np.max(np.abs(np.diff(lengths[:, 1])))))
        share = exp(each.epsilon) / (exp(each.epsilon) + each.t)
        outside.append(abs(float(lengths[0, 1]) * each.heights[0] - share))
        for x, law in zip(inputs, laws, strict=True):
            mean, square = (sum(h * (b**n - a**n) / n for a, b, h in law) for n in (2, 3))
            bias.append(abs(mean - x))
            spread.append(abs(square - mean**2 - each.variance(x)))
    where = f"PM, PM-SUB and PM-OPT, epsilon from {every[0].epsilon:g} to {every[-1].epsilon:g}"
    yield from _meaning_of_t(every, where)
    yield ClaimVerdict(
        "Y falls into [L, R] with probability e^eps / (t + e^eps) (sec. PM-OPT)",
        bool(max(outside) < 1e-9),
        f"To within {max(outside):.0e}, for {where}.",
    )
    yield ClaimVerdict(
        "E[Y|x] = x, and Var[Y|x] has the form given (Lemma 6)",
        bool(max(*bias, *spread) < 1e-9),
        f"The mean to within {max(bias):.0e}, the variance {max(spread):.0e}, for {where}.",
    )
    yield ClaimVerdict(
        "As the input grows, the middle piece keeps its length and the left one grows "
        "(introduction)",
        max(stretch) < 1e-9 and min(growth) > 0,
        f"When x grows by {inputs[1] - inputs[0]:g}, the middle one changes by {max(stretch):.0e} "
        f"at most and the left one grows by {min(growth):.3g} or more, for {where}.",
    )


def _meaning_of_t(every: Sequence[Piecewise], where: str) -> Iterator[ClaimVerdict]:
    """Yield the verdicts on what the paper says about t, L(1) and R(1)."""
    off = []
    for each in every:
        left, right = (float(end) for end in each.window(1.0))
        off.append(abs((each.t - 1) / (each.t + 1) - left / right))
    yield ClaimVerdict(
        "(t - 1) / (t + 1) is L(1) / R(1) (sec. PM-OPT)",
        max(off) < 1e-9,
        f"To within {max(off):.0e}, for {where}.",
    )
    E, ts = exp(_SHOWN_EPSILON), (1e-6, 1e6)
    ends = [[(E + t) * (t + sign) / (t * (E - 1)) for sign in (-1, 1)] for t in ts]
    (first, last), limit = ends, 2 / (E - 1)
    yield ClaimVerdict(
        "For t towards 0 the right boundary R(1) is opposite to the left one L(1) (sec. PM-OPT)",
        abs(first[0] / first[1] + 1) < 1e-5,
        f"At epsilon = {_SHOWN_EPSILON:g} and t = {ts[0]:g} L(1) / R(1) is "
        f"{first[0] / first[1]:.6f}.",
    )
    yield ClaimVerdict(
        "For t towards infinity the right boundary R(1) equals the left one L(1) (sec. PM-OPT)",
        abs(last[1] - last[0]) < 1e-5,
        f"At epsilon = {_SHOWN_EPSILON:g} and t = {ts[1]:g} L(1) / R(1) is "
        f"{last[0] / last[1]:.6f}, but R(1) - L(1) is {last[1] - last[0]:.6f}.",
        "For t towards infinity L(1) / R(1) tends to 1, and R(1) - L(1) to 2 / (e^eps - 1)."
        if abs(last[1] - last[0] - limit) < 1e-5
        else "",
    )
