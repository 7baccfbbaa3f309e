"""What to expect of a plan before anybody has answered: half of an interval, in each unit.

From a law of the data that is assumed, the moments of all answers follow exactly, and from these,
in the same way as from a tally, the result of each attribute with its intervals. So nothing here
asks which kind an attribute has.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import ceil, inf, isfinite
from typing import Any, NamedTuple, final

import numpy as np

from fedldp._internal import notebook
from fedldp._internal.text import counted, unknown
from fedldp._internal.validation import Floats, is_real, whole
from fedldp.coders import tables
from fedldp.coders.base import ByLaw, Coder, ForCategories, VectorCoder
from fedldp.coders.moments import Moments
from fedldp.errors import DomainError
from fedldp.plan.parts import Part
from fedldp.results.estimate import results_of
from fedldp.schema.attributes import Attribute
from fedldp.schema.attributes.results import Result
from fedldp.schema.frames import to_frame
from fedldp.schema.units import DATE, named

__all__ = ["Expectation", "ExpectedError"]

MOST_VEHICLES = 10**12

_LARGEST_SHARE = 1.0

_X = np.linspace(-1.0, 1.0, 401)[:, None]
_PRECISION = 1e-3  # of the number of vehicles that is searched for

ValueLaw = Floats  # the probability of each label, or rows of numbers that are equally likely


class ExpectedError(NamedTuple):
    """What to expect of one number, or of several alike.

    Attributes
    ----------
    attribute
        The name of the attribute.
    what
        What is estimated: the mean, each of some frequencies, the median, and so on.
    typical
        Half of an interval in the attribute's own unit, for the data that are assumed. If several
        numbers are alike, the largest. Infinite if there are too few answers.
    worst
        The same for the worst data.
    answers
        How many vehicles answer.
    range
        The largest error there can be: half the distance of the bounds.
    first
        Whether it is the first number of the attribute.
    unit
        The unit of the errors; empty if the schema declares none, and for shares. Errors of dates
        are in days.

    Examples
    --------
    >>> ExpectedError("speed", "mean", 1.2, 1.9, 5000, 65.0).name
    'speed'
    """

    attribute: str
    what: str
    typical: float
    worst: float
    answers: int
    range: float
    first: bool = True
    unit: str = ""

    @property
    def name(self) -> str:
        """The attribute's name; for all but its first number, with what is estimated."""
        return self.attribute if self.first else f"{self.attribute}: {self.what}"

    @property
    def is_useful(self) -> bool:
        """Whether the interval is much shorter than the range: a tenth of it, at most."""
        return self.typical <= self.range / 10


@final
@dataclass(frozen=True, repr=False)
class Expectation(Mapping[str, ExpectedError]):
    """What to expect of a plan: `plan.expect(20_000)["speed"].typical`.

    It is a mapping from names to what is expected. A name is that of an attribute or, for what else
    is estimated about it, `"speed: median"`.

    Attributes
    ----------
    vehicles
        The number of vehicles.
    confidence
        The confidence of the intervals.
    rows
        What to expect of each number.

    Examples
    --------
    >>> import fedldp
    >>> schema = fedldp.Schema.of(speed=(0, 130), model=["A", "B", "C"])
    >>> expected = fedldp.Plan(schema, epsilon=2.0).expect(20_000)
    >>> expected
    <Expectation of 20,000 vehicles: speed ± 1.4, model ± 0.014>
    >>> round(expected["speed"].worst, 1), list(expected)
    (1.8, ['speed', 'model'])
    """

    vehicles: int
    confidence: float
    rows: tuple[ExpectedError, ...]

    def __getitem__(self, name: str) -> ExpectedError:
        for row in self.rows:
            if row.name == name:
                return row
        raise unknown("expected error", name, [*self])

    def __iter__(self) -> Iterator[str]:
        return (row.name for row in self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        shown = ", ".join(f"{row.name} ± {row.typical:.2g}" for row in self.rows)
        return f"<Expectation of {counted(self.vehicles, 'vehicle')}: {shown}>"

    def _repr_html_(self) -> str:
        rows = (
            [named(row.attribute, row.unit), row.what, row.typical, row.worst, row.answers]
            for row in self.rows
        )
        columns = ["attribute", "what", "± typical", "± at worst", "answers"]
        caption = f"Half of {100 * self.confidence:g}% intervals, {self.vehicles:,} vehicles"
        return notebook.table(caption, columns, rows)

    def to_frame(self) -> Any:
        """Return a pandas data frame with a row for each expected error.

        Returns
        -------
        pandas.DataFrame
            A column for each entry of `ExpectedError`.

        Examples
        --------
        >>> import fedldp
        >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 130)), epsilon=2.0)
        >>> plan.expect(20_000).to_frame().shape
        (1, 6)
        """
        names = ExpectedError._fields[:6]
        return to_frame({name: [getattr(row, name) for row in self.rows] for name in names})


def expect(
    parts: Sequence[Part],
    n: int,
    estimator: str,
    *,
    data: Mapping[str, ValueLaw] | None,
    spread: Mapping[str, float],
    confidence: float,
    worst: bool = True,
) -> Expectation:
    """Return what `Plan.expect` describes; data are the inputs of each attribute."""
    if not 1 <= whole(n, "n") <= MOST_VEHICLES:
        raise DomainError(f"n must be at least 1, and at most {MOST_VEHICLES:,}; got {n!r}.")
    if not is_real(confidence) or not 0 < confidence < 1:
        raise DomainError(f"confidence must lie between 0 and 1; got {confidence!r}.")
    schema = parts[0].schema
    for name in spread:
        if name not in schema.names:
            raise unknown("attribute", name, schema.names)
    number = sum(attribute.inputs.estimates for attribute in schema.attributes)
    rows: dict[str, list[ExpectedError]] = {}

    def result(part: Part, coder: Coder, attribute: Attribute, law: ValueLaw) -> Result:
        moments = _moments(coder, law, n * part.share, attribute.inputs.estimates)
        [found] = results_of(
            [attribute], moments, part, n, estimator,
            of="population", confidence=confidence, number=number,
        )  # fmt: skip
        return found

    for part in parts:
        for coder, attribute in part.asked:
            name = attribute.name
            typical = _typical(attribute, spread.get(name)) if data is None else data[name]
            rows[name] = [
                *_rows(
                    attribute,
                    partial(result, part, coder, attribute),
                    [typical, *(_worst(coder, attribute) if worst else ())],
                    n * part.share,
                )
            ]
    return Expectation(n, float(confidence), tuple(row for name in schema for row in rows[name]))


def vehicles_for(expected: Callable[[int], Expectation], targets: Mapping[str, float]) -> int:
    """Return the least number of vehicles, to three digits, with which all targets are met."""
    if not targets:
        raise DomainError('say what you want, such as vehicles_for({"speed": 1.0}).')
    for name, target in targets.items():
        if not is_real(target) or not 0 < target < inf:
            raise DomainError(f"the error of {name!r} must be a positive number; got {target!r}.")

    def suffice(n: int) -> bool:
        expectation = expected(n)
        return all(expectation[name].typical <= target for name, target in targets.items())

    low, high = 0, 100
    while not suffice(high):
        low, high = high, high * 4
        if high > MOST_VEHICLES:
            raise DomainError(
                f"more than {MOST_VEHICLES:,} vehicles would be needed. Ask for less, or raise "
                "epsilon: bins and grids limit how exact some results can be."
            )
    while high - low > max(1, _PRECISION * high):
        middle = (low + high) // 2
        low, high = (low, middle) if suffice(middle) else (middle, high)
    unit: int = 10 ** max(0, len(str(high)) - 3)
    return -(-high // unit) * unit


def label_shares(positions: Floats, labels: int) -> Floats:
    """Return the share of each label, of values that are rounded to one of two neighbors."""
    lower = np.floor(positions.reshape(-1)).astype(np.int64)
    upper = positions.reshape(-1) - lower
    shares = np.bincount(lower, 1 - upper, minlength=labels + 1)
    shares += np.bincount(lower + 1, upper, minlength=labels + 1)
    found: Floats = shares[:labels] / lower.size
    return found


def _typical(attribute: Attribute, spread: float | None) -> ValueLaw:
    """Return the law that is assumed: values that are spread evenly, and labels alike.

    Of numbers that are rounded to letters, one more letter would be as frequent as a missing value.
    """
    inputs = attribute.inputs
    if inputs.numeric:
        if spread is None:
            return np.repeat(_X, inputs.estimates, axis=1)
        if not is_real(spread) or not 0 <= spread <= attribute.estimand.half_width:
            raise DomainError(
                f"the spread of {attribute.name!r} must be a standard deviation from 0 to "
                f"{attribute.estimand.half_width:g}; got {spread!r}."
            )
        share = spread / attribute.estimand.half_width
        return np.repeat(np.array([[-share], [share]]), inputs.estimates, axis=1)
    if spread is not None:
        raise DomainError(
            f"{attribute.name!r} is asked for by labels, whose spread is not a number: give public "
            "rows that resemble the fleet's, data=..., instead."
        )
    shares = np.ones(inputs.estimates)
    if inputs.ladder > 1:
        group = getattr(inputs, "group", 0) or inputs.estimates
        for first in range(0, inputs.estimates, group):
            rungs = shares[first : first + inputs.ladder]
            rungs[:] = inputs.ladder / (inputs.ladder - 1)
            rungs[[0, -1]] /= 2
    law: ValueLaw = shares / shares.sum()
    return law


def _worst(coder: Coder, attribute: Attribute) -> Iterator[ValueLaw]:
    """Yield laws of which one has the largest error."""
    number = attribute.inputs.estimates
    if not isinstance(coder, ForCategories):
        _, _, square = coder.assumed("worst", 1.0)
        x = np.sqrt(np.broadcast_to(np.asarray(square, np.float64), number))
        yield np.stack([x, -x])
        return
    few = sorted({0, 1, number // 2, number - 1})
    half = min(max((0.5 - coder.q) / (coder.p - coder.q), 0.0), 1.0)
    for one in few:
        yield np.eye(number)[one]
    for one, other in combinations(few, 2):
        for share in {half, 1 - half, 0.5}:
            yield share * np.eye(number)[one] + (1 - share) * np.eye(number)[other]


def _moments(coder: Coder, law: ValueLaw, m: float, estimates: int) -> Moments:
    """Return the moments of m answers whose numbers are exactly those that are expected."""
    count = np.full(estimates, m)
    if isinstance(coder, ForCategories):
        covariance = coder._covariance(law)
        own = coder.q + (coder.p - coder.q) * law
        if isinstance(coder, ByLaw):
            histogram = m * np.stack([1 - own, own], axis=1)
            moments = Moments.by_law(coder.law, histogram)
            return replace(moments, covariance_at=lambda _: covariance)
        variance = own * (1 - own) / (coder.p - coder.q) ** 2
        return Moments(count, law, variance, law, variance, covariance_at=lambda _: covariance)
    if isinstance(coder, ByLaw):
        answers = tables.probabilities(coder.law.letters, coder.law.table, law)
        return Moments.by_law(coder.law, m * answers.mean(axis=0))
    if isinstance(coder, VectorCoder):
        law = law / np.maximum(np.linalg.norm(law, axis=1, keepdims=True), 1.0)
    noise, mean, square = (np.broadcast_to(moment, estimates) for moment in coder.assumed(law, 1.0))
    return Moments(count, mean, noise + square - mean**2, square, noise)


def _rows(
    attribute: Attribute, result: Callable[[ValueLaw], Result], laws: Sequence[ValueLaw], m: float
) -> Iterator[ExpectedError]:
    """Yield what to expect of each number of an attribute: the first law is the typical one."""
    if m < 2:
        low, high = attribute.estimand.line(0)[1]
        half = (high - low) / 2
        unit = _unit(attribute, half)
        yield ExpectedError(attribute.name, "all of it", inf, inf, int(m), half, unit=unit)
        return
    typical, *others = [_half_widths(attribute, result(law)) for law in laws]
    for place, (what, (half, reach)) in enumerate(typical.items()):
        worst = max([half, *(other[what][0] for other in others)])
        unit = _unit(attribute, reach)
        yield ExpectedError(attribute.name, what, half, worst, ceil(m), reach, place == 0, unit)


def _unit(attribute: Attribute, reach: float) -> str:
    """Return the unit of errors that can be so large: half of a share is at most a half."""
    unit = "days" if attribute.unit == DATE else attribute.unit
    return "" if reach == _LARGEST_SHARE / 2 else unit


def _half_widths(attribute: Attribute, result: Result) -> dict[str, tuple[float, float]]:
    """Return half the interval of each number, the largest of those alike, and of their range."""
    alike: dict[tuple[float, float], list[tuple[str, float]]] = {}
    shown = result.shown
    intervals = np.reshape(shown.interval, (-1, 2))
    for place, (low, high) in enumerate(intervals.tolist()):
        name, ends = attribute.estimand.line(place)
        half = (high - low) / 2
        alike.setdefault(ends, []).append((name, half if isfinite(half) else inf))
    half_widths = {}
    for (low, high), lines in alike.items():
        name = lines[0][0]
        what = "mean" if name == attribute.name else name
        if len(lines) > 1:
            what = f"each of {len(lines)}: {name.removeprefix(f'{attribute.name} = ')}, ..."
        half_widths[what] = max(half for _, half in lines), (high - low) / 2
    return half_widths | _of_distribution(result)


def _of_distribution(result: Result) -> dict[str, tuple[float, float]]:
    """Return half the interval of the median and the mean of a distribution, if it is one."""
    half_widths: dict[str, tuple[float, float]] = {}
    for group, details in result.distributions.items():
        reach = (details["edges"][-1] - details["edges"][0]) / 2
        intervals = {
            "median": [q["interval"] for q in details.get("quantiles", ()) if q["q"] == 0.5],
            "mean": [details["mean"]["interval"]] if "mean" in details else [],
        }
        for name, of_all in intervals.items():
            for low, high in of_all:
                what = f"{name} of each group" if group else name
                half = reach if low is None else (high - low) / 2
                half_widths[what] = max(half, half_widths.get(what, (0.0, reach))[0]), reach
    return half_widths
