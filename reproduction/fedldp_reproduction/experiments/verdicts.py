"""What the paper says about its experiments, judged by what was measured here.

A claim that one error is lower than others compares it with the lowest of these, at every place of
a figure. It fails if it is higher at one place beyond doubt. If not, it holds if it is lower on
average beyond doubt and, where the paper says so, nowhere undecided; where two errors are computed
to be equal it does not fail, as in the claims about formulas. The error of means is computed
from the data without noise, which leaves no doubt; that of models is measured, and all intervals
of a claim are right at once, with a risk of 5%. Where neither is so it is not decidable here.

That "the proposed mechanisms outperform existing ones" is read in the same way for every figure:
each of the three against the best existing one. The other reading, the best of the three, is
reported beside it and decides nothing. Where the paper names the epsilon of a figure, a claim is
judged there; what happens at others is reported separately.

A claim about the paper's data fails if it fails on those of them that are available, and holds
if it holds on all of them. What happens on other data, generated or collected elsewhere, is
reported and decides nothing.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Literal, NamedTuple, final

import numpy as np

from fedldp._internal.validation import Floats
from fedldp.mechanisms import Optimal
from fedldp_reproduction.experiments.explained import SERVERS
from fedldp_reproduction.experiments.samples import RISK, ErrorSample, Interval, Samples, interval
from fedldp_reproduction.figures import Figure
from fedldp_reproduction.results import ClaimVerdict, Point

PROPOSED = ("pm-sub", "three-outputs", "hm-tp")
EXISTING = ("laplace", "duchi", "pm", "hm")
CONTINUOUS = ("pm", "hm", "pm-sub", "hm-tp")
SIMILAR = 0.05  # errors that differ by less count as similar

_EACH = tuple((name,) for name in PROPOSED)
_RANKED = (*PROPOSED, *EXISTING)
_MIDDLE = "hm"  # the best of the existing ones, to which pictures show the difference
_COMPARED = (*PROPOSED, "duchi", "duchi-2018", "pm")  # Laplace would be far off the picture
_FEW_BITS = 4
_LARGE_BUDGET = 4.0  # "such as 4"
# Relative difference of what is computed, below which two are the same: of very many rows some are
# computed with, which tell an error to about this.
_TIE = 1e-3
_VAGUE = 2.0  # an interval so wide says nothing


class Judgement(NamedTuple):
    """Whether something holds on some data, and the numbers."""

    holds: bool | None
    evidence: str
    instead: str = ""  # where it fails: what is true


class Measured(NamedTuple):
    """All that a claim about a figure can be judged by."""

    figure: Figure
    samples: Samples
    beside: Samples  # of the figure that it is compared with
    by_theory: Samples = Samples(())  # with the rate of SGD's theory in place of the best one

    def at(self, xs: Collection[float]) -> "Measured":
        """Return what was measured at some places."""
        parts = (self.samples, self.beside, self.by_theory)
        return Measured(self.figure, *(part.at(xs) for part in parts))

    def stand_ins(self, wanted: bool) -> "Measured":
        """Return what was measured on other data than the paper's, or on the paper's."""
        parts = (self.samples, self.beside, self.by_theory)
        return Measured(self.figure, *(part.stand_ins(wanted) for part in parts))

    @property
    def where(self) -> str:
        """The data, in words."""
        return f"On {'; '.join(self.samples.panels)}"  # names have commas in them


Judge = Callable[[Measured], Judgement]


@final
@dataclass(frozen=True)
class MeasuredClaim:
    """A sentence, and how to judge it from the samples of a figure and of the one beside it."""

    text: str
    judge: Judge
    about: Literal["the paper's data", "any data", "formulas"] = "the paper's data"
    one_server: bool = True  # whether all that is compared was trained by the same server


def verdict(claim: MeasuredClaim, measured: Measured) -> ClaimVerdict:
    """Return whether a claim holds here."""
    place = measured.figure.paper
    theirs = place.startswith("Fig.") and claim.about == "the paper's data"
    text = f"{claim.text}, {place})" if theirs else f"{claim.text})"
    beyond = claim.about != "the paper's data"
    if claim.about == "formulas":
        holds, evidence, instead = claim.judge(measured)
        return ClaimVerdict(text, holds, evidence, instead, beyond=beyond)
    if not measured.samples.all:
        return ClaimVerdict(text, None, "No data are available.", beyond=beyond)
    decide = _about_any if claim.about == "any data" else _about_papers
    shown = measured.figure.shown
    others = [x for x in measured.samples.xs if x not in shown]
    holds, told, instead = decide(claim, measured.at(shown) if shown else measured)
    if shown and others:
        named = ", ".join(f"{x:g}" for x in shown)
        told = [f"At ε = {named}, as in the paper:", *told]
        told += ["At other ε:", *decide(claim, measured.at(others))[1]]
    if measured.figure.objective and claim.one_server:
        told.append(f"Trained by {SERVERS[measured.figure.server or 'paper']}.")
        if measured.by_theory.all and measured.figure.over != "rate":
            with_theory = measured._replace(samples=measured.by_theory)
            outcome = claim.judge(with_theory.at(shown) if shown else with_theory)
            told.append(
                f"With the rate of SGD's theory for all, it {_WORDS[outcome.holds]}: "
                f"{outcome.evidence}"
            )
    return ClaimVerdict(text, holds, " ".join(told), instead, beyond=beyond)


_WORDS = {True: "holds", False: "fails", None: "is undecided"}


def _about_any(claim: MeasuredClaim, measured: Measured) -> tuple[bool | None, list[str], str]:
    """Judge a claim about any data."""
    holds, evidence, instead = claim.judge(measured)
    return holds, [f"{measured.where}: {evidence}"], instead


def _about_papers(claim: MeasuredClaim, measured: Measured) -> tuple[bool | None, list[str], str]:
    """Judge a claim about the paper's data, and report what happens on others."""
    holds, told, instead = None, [], ""
    theirs, others = (measured.stand_ins(wanted) for wanted in (False, True))
    if theirs.samples.all:
        holds, evidence, instead = claim.judge(theirs)
        told.append(f"{theirs.where}: {evidence}")
        found, named = len(theirs.samples.panels), len(measured.figure.data)
        if holds and found < named:
            holds = None
            told.append(
                f"It holds there, but of the paper's {named} data sets {found} are available."
            )
    if others.samples.all:
        outcome, evidence, _ = claim.judge(others)
        told.append(f"{others.where}, not the paper's data, it {_WORDS[outcome]}: {evidence}")
    return holds, told, instead


def verdicts(measured: Measured) -> tuple[ClaimVerdict, ...]:
    """Return what became of each claim of a figure."""
    return tuple(verdict(CLAIMS[name], measured) for name in measured.figure.claims)


class _Comparison(NamedTuple):
    where: str
    first: ErrorSample
    second: ErrorSample

    @property
    def gaps(self) -> Floats:
        """By how much the first errors exceed the second ones, relative to these, in each run."""
        second = self.second.errors
        gaps: Floats = (self.first.errors - second) / second.mean()
        return gaps

    def gap(self, risk: float) -> Interval:
        """Return their mean over ever more runs: computed, or with some risk to be wrong."""
        if self.first.expected is None or self.second.expected is None:
            return interval(self.gaps, self.first.overlap, risk)
        exact = self.first.expected / self.second.expected - 1
        return Interval(exact, exact, exact) if abs(exact) > _TIE else Interval(0.0, 0.0, 0.0)


def _lower(
    comparisons: Sequence[_Comparison], rivals: int = 1, everywhere: bool = False
) -> Judgement:
    """Judge whether the first errors are lower than the second ones: on average, or each time.

    Where the second are the lowest of some rivals, all of these could have been compared.
    """
    if not comparisons:
        return Judgement(None, "nothing was measured at such places.")
    risk = RISK / (len(comparisons) * rivals + 1)
    found = [(each.where, each.gap(risk)) for each in comparisons]
    average = _average(comparisons, risk)
    below = sum(gap.high < 0 for _, gap in found)
    above = sum(gap.low > 0 for _, gap in found)
    not_higher = sum(gap.high <= 0 for _, gap in found)  # a tie that was computed is one
    where, worst = max(found, key=lambda each: each[1].low if above else each[1].mean)
    shown = average.high < 0 and (not everywhere or not_higher == len(found))
    computed = comparisons[0].first.expected is not None
    return Judgement(
        False if above else True if shown else None,
        f"{'computed, ' if computed else ''}on average {_percent(average)}; lower in {below} of "
        f"{len(found)}, higher in {above}; worst: {where}, {_percent(worst)}."
        + (f" Measured: on average {_percent(_measured(comparisons))}." if computed else ""),
        _where_not_higher(comparisons, risk) if above else "",
    )


def _where_not_higher(comparisons: Sequence[_Comparison], risk: float) -> str:
    """Return the places where the first error is lower than the second beyond doubt."""
    found: dict[str, dict[str, list[str]]] = {}
    for each in comparisons:
        if each.gap(risk).high < 0:
            panels = found.setdefault(each.first.series, {})
            panels.setdefault(each.first.panel, []).append(f"{each.first.x:g}")
    told = []
    for name, panels in found.items():
        places = (f"on {panel} at {', '.join(xs)}" for panel, xs in panels.items())
        told.append(f"{name} {' and '.join(places)}")
    return f"Lower beyond doubt are {'; '.join(told)}." if found else "Lower beyond doubt is none."


def _average(comparisons: Sequence[_Comparison], risk: float) -> Interval:
    if any(each.first.expected is None for each in comparisons):
        return _measured(comparisons, risk)
    exact = float(np.mean([each.gap(risk).mean for each in comparisons]))
    return Interval(exact, exact, exact)


def _measured(comparisons: Sequence[_Comparison], risk: float = RISK) -> Interval:
    gaps = [each.gaps for each in comparisons]
    return interval(np.mean(gaps, axis=0), comparisons[0].first.overlap, risk)


def _percent(gap: Interval) -> str:
    if gap.high == gap.low:
        return f"{gap.mean:+.1%}"
    if gap.high - gap.low > _VAGUE:
        return f"{gap.mean:+.1%} (too few runs to tell)"
    low = max(gap.low, -1.0)  # an error cannot be lower by more than all of it
    return f"{gap.mean:+.1%} ({low:+.1%} to {gap.high:+.1%})"


def _better(
    first: Sequence[tuple[str, ...]],
    second: tuple[str, ...],
    at: Callable[[list[float]], list[float]] = list,
    everywhere: bool = False,
) -> Judge:
    """Claim that the best of each of the first is better than all of the second, at some places."""

    def judge(measured: Measured) -> Judgement:
        figure, samples = measured.figure, measured.samples
        known = {sample.series for sample in samples.all}
        rivals = tuple(name for name in second if name in known)  # Laplace is not in all figures
        comparisons = []
        for panel, x, names in product(samples.panels, at(samples.xs), first):
            ours, theirs = (_least(samples, panel, group, x) for group in (names, rivals))
            where = f"{ours.series} against {theirs.series}, {_place(panel, figure, x)}"
            comparisons.append(_Comparison(where, ours, theirs))
        return _lower(comparisons, len(second) * max(map(len, first)), everywhere)

    return judge


def _proposed(everywhere: bool = False) -> Judge:
    """Claim that the proposed mechanisms are better than existing ones: each of them.

    The other reading, that the best of them is, is reported beside it.
    """
    each = _better(_EACH, EXISTING, everywhere=everywhere)
    best = _better((PROPOSED,), EXISTING, everywhere=everywhere)

    def judge(measured: Measured) -> Judgement:
        (holds, evidence, instead), other = each(measured), best(measured)
        return Judgement(
            holds,
            f"each of the three: {evidence} Read as the best of the three, it "
            f"{_WORDS[other.holds]}: {other.evidence}",
            instead,
        )

    return judge


def _least(samples: Samples, panel: str, names: Iterable[str], x: float) -> ErrorSample:
    return min((samples.sample(panel, name, x) for name in names), key=lambda each: each.level)


def _place(panel: str, figure: Figure, x: float) -> str:
    return f"{panel}, {'ε' if figure.over == 'epsilon' else figure.over} = {x:g}"


def _similar(measured: Measured) -> Judgement:
    """Claim that errors are much like those of the same mechanisms in the figure beside.

    For each run, the relative differences are averaged over all places.
    """
    figure, samples, beside, _ = measured
    names = [name for name in figure.series if name in CONTINUOUS]
    comparisons = [
        _Comparison("", samples.sample(panel, name, x), beside.sample(panel, name, x))
        for panel, x, name in product(samples.panels, samples.xs, names)
    ]
    gap, computed = _average(comparisons, RISK), comparisons[0].first.expected is not None
    holds = None
    if gap.low > -SIMILAR and gap.high < SIMILAR:
        holds = True
    elif gap.low > SIMILAR or gap.high < -SIMILAR:
        holds = False
    return Judgement(
        holds,
        f"{'computed, ' if computed else ''}{_percent(gap)} on average over {len(comparisons)} "
        f"places; similar is taken to mean within {SIMILAR:.0%}."
        + (f" Measured: {_percent(_measured(comparisons))}." if computed else ""),
        f"The errors differ by {_percent(gap)} on average." if holds is False else "",
    )


def _falls(measured: Measured) -> Judgement:
    """Claim that the error is lower with the most outputs than with the fewest."""
    samples = measured.samples
    few, *_, many = samples.xs
    return _lower(
        [
            _Comparison(
                f"{name}, {panel}, {many:g} outputs against {few:g}",
                *(samples.sample(panel, name, x) for x in (many, few)),
            )
            for panel, name in product(samples.panels, CONTINUOUS)
        ]
    )


def _same_order(measured: Measured) -> Judgement:
    """Claim that no two competitors change places between two places of a figure."""
    samples = measured.samples
    names = list(dict.fromkeys(sample.series for sample in samples.all if sample.series in _RANKED))
    pairs = list(product(samples.panels, combinations(names, 2)))
    risk = RISK / (len(pairs) * len(samples.xs))
    changed = []
    for panel, (one, other) in pairs:
        gaps = {
            x: _Comparison("", *(samples.sample(panel, name, x) for name in (one, other))).gap(risk)
            for x in samples.xs
        }
        below = [x for x, gap in gaps.items() if gap.high < 0]
        above = [x for x, gap in gaps.items() if gap.low > 0]
        if below and above:
            low, high = below[0], above[0]
            changed.append(
                f"{one} against {other}, {panel}: {_percent(gaps[low])} at {low:g}, "
                f"{_percent(gaps[high])} at {high:g}"
            )
    orders = []
    for panel, x in product(samples.panels, samples.xs):
        ranked = sorted(names, key=lambda name: samples.sample(panel, name, x).level)
        levels = (f"{name} {samples.sample(panel, name, x).level:.4g}" for name in ranked)
        orders.append(f"at {x:g}: {', '.join(levels)}")
    told = f"{len(changed)} of {len(pairs)} pairs change places beyond doubt"
    if changed:
        told += f", such as {changed[0]}"
    return Judgement(
        False if changed else None, f"{told}. From the lowest error, {'; '.join(orders)}."
    )


def _same_order_in_pairs(measured: Measured) -> Judgement:
    """Claim that competitors are in the same order on both data sets of each pair."""
    samples = measured.samples
    names = list(dict.fromkeys(each.series for each in samples.all if each.series in _RANKED))
    pairs = list(zip(samples.panels[::2], samples.panels[1::2], strict=True))
    places = list(product(pairs, samples.xs, combinations(names, 2)))
    if not places:
        return Judgement(None, "nothing was measured in pairs.")
    risk = RISK / (2 * len(places))
    changed = []
    for both, x, (one, other) in places:
        gaps = [
            _Comparison("", *(samples.sample(panel, name, x) for name in (one, other))).gap(risk)
            for panel in both
        ]
        if any(a.high < 0 < b.low for a, b in (gaps, gaps[::-1])):
            told = " and ".join(
                f"{_percent(gap)} on {panel}" for gap, panel in zip(gaps, both, strict=True)
            )
            changed.append(f"{one} against {other} at {x:g}: {told}")
    evidence = f"{len(changed)} of {len(places)} pairs of competitors change places beyond doubt"
    return Judgement(
        False if changed else None,
        f"{evidence}{': ' if changed else ''}{'; '.join(changed)}.",
        "The order depends on where the data lie in their range." if changed else "",
    )


def _few_bits(measured: Measured) -> Judgement:
    """Claim that a few bits are close to the least worst-case variance that there can be."""
    epsilon = measured.figure.epsilon
    reached = Optimal(epsilon, outputs=2**_FEW_BITS).worst_case_variance
    bound = Optimal(epsilon).lower_bound
    return Judgement(
        reached < (1 + SIMILAR) * bound,
        f"Worst-case variance {reached:.4g} at ε = {epsilon:g}; no mechanism has less than "
        f"{bound:.4g}: {reached / bound - 1:+.1%}.",
    )


def differences(samples: Sequence[ErrorSample]) -> Iterator[Point]:
    """Yield how the errors of private models differ from those of HM, fold by fold.

    Lines that lie on each other in a picture of errors can be told apart here.
    """
    known = {(sample.panel, sample.x): sample for sample in samples if sample.series == _MIDDLE}
    for sample in samples:
        if sample.series not in _COMPARED or (sample.panel, sample.x) not in known:
            continue
        gaps = sample.errors - known[sample.panel, sample.x].errors
        mean, low, high = interval(gaps, sample.overlap)
        ends = (low, high) if np.isfinite(high) else (None, None)
        panel = f"{sample.panel}: minus {_MIDDLE}"
        yield Point(panel, sample.series, sample.x, mean, ends[0], ends[1], gaps.size)


CLAIMS = {
    "means-proposed": MeasuredClaim(
        "The proposed approaches outperform existing solutions (sec. Experiments A", _proposed()
    ),
    "means-hm-tp": MeasuredClaim(
        "HM-TP outperforms existing solutions in all settings (sec. Experiments A",
        _better((("hm-tp",),), EXISTING, everywhere=True),
    ),
    "means-pm-sub": MeasuredClaim(
        "PM-SUB is better than PM at a large budget such as 4 (sec. Experiments A",
        _better((("pm-sub",),), ("pm",), lambda xs: [x for x in xs if x == _LARGE_BUDGET]),
    ),
    "means-three-outputs": MeasuredClaim(
        "Three-Outputs is better at a small budget (read as: than PM and PM-SUB; "
        "sec. Experiments A",
        _better((("three-outputs",),), ("pm", "pm-sub"), lambda xs: xs[:1]),
    ),
    "gaussian-proposed": MeasuredClaim(
        "PM-SUB, Three-Outputs and HM-TP outperform existing solutions (sec. Experiments A",
        _proposed(),
    ),
    "training-proposed": MeasuredClaim(
        "The proposed mechanisms have lower misclassification rates than others "
        "(sec. Experiments B",
        _proposed(),
    ),
    "linear-proposed": MeasuredClaim(
        "The proposed mechanisms outperform existing approaches in linear regression "
        "(sec. Experiments B",
        _proposed(),
    ),
    "linear-laplace": MeasuredClaim(
        "Laplace's error clearly exceeds all others in linear regression (sec. Experiments B",
        _better((*_EACH, ("duchi",), ("pm",), ("hm",)), ("laplace",), everywhere=True),
    ),
    "discretized-proposed": MeasuredClaim(
        "With 2001 outputs the proposed approaches outperform existing ones (sec. Experiments C",
        _proposed(),
    ),
    "discretized-means": MeasuredClaim(
        "Means with 2001 outputs are as good as with continuous ones (sec. Experiments C", _similar
    ),
    "discretized-training": MeasuredClaim(
        "Models with 2001 outputs are as good as with continuous ones (sec. Experiments C", _similar
    ),
    "outputs-fall": MeasuredClaim(
        "The error falls as the number of outputs grows (sec. Experiments C", _falls
    ),
    "outputs-pm-sub": MeasuredClaim(
        "PM-SUB outperforms Three-Outputs when there are many outputs (sec. Experiments C",
        _better((("pm-sub",),), ("three-outputs",), lambda xs: xs[-1:]),
    ),
    "library-proposed": MeasuredClaim(
        "With Adam the proposed mechanisms outperform existing ones (beyond the paper",
        _proposed(),
        about="any data",
    ),
    "library-hm-tp": MeasuredClaim(
        "Adam trains better models than Algorithm 1, both with HM-TP (beyond the paper",
        _better((("hm-tp-library",),), ("hm-tp",)),
        about="any data",
        one_server=False,
    ),
    "rate-order": MeasuredClaim(
        "The order of competitors does not depend on the learning rate (not in the paper",
        _same_order,
        about="any data",
        one_server=False,
    ),
    "groups-order": MeasuredClaim(
        "The order of competitors does not depend on the number of groups (not in the paper",
        _same_order,
        about="any data",
        one_server=False,
    ),
    "truncation-order": MeasuredClaim(
        "The order of competitors does not depend on how numbers are truncated (not in the paper",
        _same_order_in_pairs,
        about="any data",
    ),
    "target-order": MeasuredClaim(
        "The order of competitors does not depend on the target (not in the paper",
        _same_order_in_pairs,
        about="any data",
        one_server=False,
    ),
    "network-default": MeasuredClaim(
        "The default trains better networks than HM-TP with Algorithm 1 (beyond the paper",
        _better((("default-network",),), ("hm-tp-network",)),
        about="any data",
        one_server=False,
    ),
    "skewed-order": MeasuredClaim(
        "The order of competitors does not change if incomes lie near the bound (not in the paper",
        _same_order_in_pairs,
        about="any data",
        one_server=False,
    ),
    "beyond-dominant": MeasuredClaim(
        "Dominant has less error than HM-TP as the paper ran it (beyond the paper",
        _better((("dominant",),), ("hm-tp",)),
        about="any data",
    ),
    "beyond-near-zero": MeasuredClaim(
        "Near-zero with Adam trains better models than HM-TP with Algorithm 1 (beyond the paper",
        _better((("near-zero",),), ("hm-tp",)),
        about="any data",
        one_server=False,
    ),
    "beyond-mechanism": MeasuredClaim(
        "Near-zero trains better models than HM-TP, both with Adam (beyond the paper",
        _better((("near-zero",),), ("hm-tp-library",)),
        about="any data",
        one_server=False,
    ),
    "bits-four": MeasuredClaim(
        f"{_FEW_BITS} bits are within {SIMILAR:.0%} of the optimum (beyond the paper",
        _few_bits,
        about="formulas",
    ),
}
