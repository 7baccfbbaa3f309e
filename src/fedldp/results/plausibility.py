"""Whether honest vehicles can have sent what a tally holds, and how far liars can move an estimate.

Two things about honest reports are known whatever the data are. Each vehicle chooses k of d
coordinates at random, so the number of answers about a coordinate is binomial with probability k/d.
And the mean of many answers lies in the attribute's range, up to noise whose law is known. Some
coders know more: for directions, how many null codes there can be, and how long directions from
random seeds are. A tally for which one of these is too unlikely was not sent by honest vehicles
alone. The reverse does not hold: liars who choose their coordinates at random, and stay in the
range, are not noticed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import exp, log, prod
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.science import scipy_module
from fedldp._internal.text import counted
from fedldp._internal.validation import Floats
from fedldp.plan.parts import Part, places
from fedldp.schema.attributes import Attribute

__all__ = ["Finding", "Influence", "Plausibility"]

FALSE_ALARM = 1e-6  # the probability that honest vehicles cause a warning, at most

_DESCRIBED_FINDINGS = 3  # the others are counted


@final
@dataclass(frozen=True)
class Finding:
    """One number that honest vehicles hardly ever cause.

    Attributes
    ----------
    name
        What the number is about: "speed", "way[3]" or "city = Oslo".
    kind
        "answers" for a number of answers, "range" for a mean. For other kinds see the coder.
    found
        The number.
    expected
        The expected number of answers, the end of the range that the mean lies beyond, or the end
        of what is expected.
    p_value
        The largest probability of it among honest vehicles, corrected for all checks.

    Examples
    --------
    >>> print(Finding("speed", "answers", found=900, expected=500, p_value=1e-90))
    speed has 900 answers, and 500 are expected. Honest vehicles cause this with a probability...
    """

    name: str
    kind: str
    found: float
    expected: float
    p_value: float

    def __str__(self) -> str:
        likely = "below 1e-300" if self.p_value < 1e-300 else f"at most {self.p_value:.0e}"
        if self.kind == "answers":
            what = (
                f"{self.name} has {self.found:,.0f} answers, and {self.expected:,.0f} are expected"
            )
        elif self.kind == "range":
            side = "above" if self.found > self.expected else "below"
            what = (
                f"the answers about {self.name} have the mean {self.found:.4g}, {side} the end of "
                f"the range at {self.expected:.4g}"
            )
        else:
            most = "at most" if self.found > self.expected else "at least"
            what = (
                f"the {self.kind} about {self.name} is {self.found:,.6g}, and {most} "
                f"{self.expected:,.6g} is expected"
            )
        return f"{what}. Honest vehicles cause this with a probability of {likely}"


@final
@dataclass(frozen=True)
class Plausibility:
    """What the checks of a tally, or of several, found. It is true if they found nothing.

    Honest vehicles cause a finding with a probability of at most one in a million, over all checks
    together: each p-value is multiplied by their number.

    Attributes
    ----------
    checks
        The number of checks.
    p_value
        The smallest p-value, corrected.
    findings
        The findings, the most unlikely first.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> found = plan.simulate([{"speed": 30}] * 1000, fedldp.source(1)).plausibility()
    >>> bool(found), found.checks, found.findings
    (True, 2, ())
    """

    checks: int
    p_value: float
    findings: tuple[Finding, ...]

    def __bool__(self) -> bool:
        return not self.findings

    @property
    def warnings(self) -> tuple[str, ...]:
        """The findings as sentences; at most a few."""
        shown = [f"Implausible reports: {each}." for each in self.findings[:_DESCRIBED_FINDINGS]]
        if (more := len(self.findings) - _DESCRIBED_FINDINGS) > 0:
            shown.append(f"Implausible reports: {counted(more, 'more finding')}.")
        return tuple(shown)

    def among(self, number: int) -> "Plausibility":
        """Return the findings that remain if this is one of several tallies that are all checked.

        Parameters
        ----------
        number
            The number of tallies.

        Returns
        -------
        Plausibility
            The same checks, with p-values multiplied by the number.

        Examples
        --------
        >>> Plausibility(2, 0.01, ()).among(10).p_value
        0.1
        """
        corrected = (replace(each, p_value=number * each.p_value) for each in self.findings)
        return Plausibility(
            number * self.checks,
            min(number * self.p_value, 1.0),
            tuple(each for each in corrected if each.p_value < FALSE_ALARM),
        )


def check(parts: Sequence[Part], n: int, counts: Sequence[npt.NDArray[Any]]) -> Plausibility:
    """Return the findings about a tally: see `Tally.plausibility`."""
    suspects = [
        suspects
        for part, cells in zip(parts, counts, strict=True)
        for suspects in (*_answers(part, n, cells), *_means(part, cells), *_others(part, cells))
    ]
    checks = sum(suspect.p_values.size for suspect in suspects)
    smallest = min((float(suspect.p_values.min()) for suspect in suspects), default=1.0)
    findings = [
        suspect.finding(int(place), checks)
        for suspect in suspects
        for place in np.flatnonzero(suspect.p_values * checks < FALSE_ALARM)
    ]
    findings.sort(key=lambda finding: (finding.p_value, finding.kind, finding.name))
    return Plausibility(checks, min(smallest * checks, 1.0), tuple(findings))


def merge(several: Sequence[Plausibility]) -> Plausibility:
    """Return what was found in any of several tallies; the false-alarm rate is that of one."""
    corrected = [each.among(len(several)) for each in several]
    findings = [finding for each in corrected for finding in each.findings]
    return Plausibility(
        sum(each.checks for each in several),
        min((each.p_value for each in corrected), default=1.0),
        tuple(sorted(findings, key=lambda each: each.p_value)),
    )


_About = tuple[str, float, float]  # the name of a number, what it is, and what is expected


@final
@dataclass(frozen=True)
class _Suspects:
    """Some numbers, with the probability of each among honest vehicles."""

    kind: str
    p_values: Floats
    about: Callable[[int], _About]  # by its number among them

    def finding(self, place: int, checks: int) -> Finding:
        p_value = float(self.p_values[place]) * checks
        name, found, expected = self.about(place)
        return Finding(name, self.kind, found, expected, p_value)


def _answers(part: Part, n: int, cells: npt.NDArray[Any]) -> Iterator[_Suspects]:
    """Compare the number of answers about each coordinate with the binomial law it must have.

    The law of one count is exact. How the counts depend on each other does not matter, as the
    correction for their number holds for all dependences.
    """
    special = scipy_module("special")
    bdtr, bdtrc = special.bdtr, special.bdtrc

    if part.k == part.units or not n:
        return
    counts, inverse = np.unique(part.answered(cells), return_inverse=True)
    few, many = bdtr(counts, n, part.share), bdtrc(counts - 1, n, part.share)

    def about(unit: int) -> _About:
        attribute, place = _owner(part.units_of, unit)
        return attribute.coordinate_name(place), float(counts[inverse[unit]]), n * part.share

    for p_values in (few[inverse], many[inverse]):
        yield _Suspects("answers", p_values, about)


def _means(part: Part, cells: npt.NDArray[Any]) -> Iterator[_Suspects]:
    """Compare the mean of the answers with the range it must lie in, where its law is known."""
    for coder, attributes, rows in part.by_coder(cells):
        m, total = coder.sums(rows)
        mean = total / np.maximum(m, 1)
        beyond = coder.beyond(m, mean)
        if beyond is None:
            continue

        for end, p_values in zip(reversed(coder.ends), beyond, strict=True):
            yield _Suspects("range", p_values, partial(_about_mean, attributes, mean, end))


def _about_mean(attributes: Sequence[Attribute], mean: Floats, end: float, number: int) -> _About:
    attribute, place = _owner(places(attributes), number)
    estimand = attribute.estimand
    found, expected = estimand.from_unit(mean[number]), estimand.from_unit(end)
    return estimand.name_of(place), float(found), float(expected)


def _others(part: Part, cells: npt.NDArray[Any]) -> Iterator[_Suspects]:
    """Compare what a coder knows of honest answers beyond their number and their mean."""
    for coder, attributes, rows in part.by_block(cells):
        # A coder with checks answers an attribute, or all of them, with one code.
        for attribute, row in zip(attributes, rows, strict=False):
            for check in coder.checks(row[None]):
                about = attribute.name, check.found, check.expected
                yield _Suspects(check.kind, np.array([check.p_value]), partial(_constant, about))


def _constant(about: _About, _: int) -> _About:
    return about


def _owner(slices: Iterable[tuple[Attribute, slice]], number: int) -> tuple[Attribute, int]:
    """Return whose an estimate or a unit is, and its number among those of this attribute."""
    return next(
        (attribute, number - place.start) for attribute, place in slices if number < place.stop
    )


def equal_reports(parts: Sequence[Part], copies: Sequence[int]) -> float:
    """Bound the probability that honest vehicles send as many equal reports, whatever their data.

    `copies` says how often each report occurs. Let q be the largest probability of any report, and
    n the number of reports. The i-th of them equals an earlier one with a probability of at most
    (i - 1) q, so the number of repeats is at most binomial with (n - 1) q. And m given vehicles
    send the same report with a probability of at most q^(m - 1), so that any m of the n do with at
    most C(n, m) times that. The smaller of both bounds, doubled, is returned.

    >>> import fedldp
    >>> few = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> many = fedldp.Plan(fedldp.Schema.vector(9, length=1), epsilon=1.0, strategy="directions")
    >>> equal_reports(few.parts, [40, 60]), equal_reports(many.parts, [2] * 50) < 1e-200
    (1.0, True)
    """
    special = scipy_module("special")
    bdtrc, gammaln = special.bdtrc, special.gammaln

    n, most = sum(copies), max(copies, default=0)
    likeliest = prod(part.likeliest for part in parts)
    if most < 2:
        return 1.0
    repeats = float(bdtrc(n - len(copies) - 1, n, min(1.0, (n - 1) * likeliest)))
    ways = gammaln(n + 1) - gammaln(most + 1) - gammaln(n - most + 1)
    same = exp(min(0.0, float(ways) + (most - 1) * log(likeliest))) if likeliest else 0.0
    return min(1.0, 2 * min(repeats, same))


class Influence(NamedTuple):
    """How far liars can move the estimate of an attribute at most, in its own units.

    For a number it is the shift of its mean, for a category of a frequency. For an optional number
    and within groups it is the shift of a mean or of a share among some of the vehicles; for bins,
    of a quantile; for an angle, of the mean direction.

    Attributes
    ----------
    together
        If all liars answer about this attribute, which the number of answers reveals.
    spread
        If they choose what they answer as honest vehicles do, which is not noticed.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50), range=(0, 400)), epsilon=1.0)
    >>> moved = plan.influence(0.01)["speed"]
    >>> round(moved.together, 2), round(moved.spread, 2)
    (1.95, 0.98)
    """

    together: float
    spread: float


def influence(parts: Sequence[Part], share: float, group: float) -> dict[str, Influence]:
    """Return how far liars can move each estimate: see `Plan.influence`."""
    found = {}
    for part in parts:
        answers = (1 - share) * part.share + share  # if all liars answer
        for coder, attribute in part.asked:
            found[attribute.name] = Influence(
                attribute.estimand.influence(coder, share / answers if share else 0.0, group),
                attribute.estimand.influence(coder, share, group),
            )
    return {name: found[name] for name in parts[0].schema}
