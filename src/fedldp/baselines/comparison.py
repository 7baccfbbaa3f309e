"""All mechanisms side by side: those of the library and those of other papers."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from math import nan, sqrt
from time import perf_counter
from typing import Any, NamedTuple, final

import numpy as np

from fedldp._internal import validation
from fedldp._internal.validation import Floats, Integers, whole
from fedldp.baselines.distributions import DISTRIBUTION_METHODS, BinnedOracle
from fedldp.baselines.frequencies import FREQUENCY_ORACLES, FrequencyOracle
from fedldp.baselines.means import NUMBER_MECHANISMS, VECTOR_MECHANISMS, OneBitMean
from fedldp.coders import DirectionsCoder, Lines, RandomizedResponse, UnaryEncoding
from fedldp.coders.base import Coder
from fedldp.errors import DomainError
from fedldp.mechanisms import mechanism, mechanism_names
from fedldp.plan.plan import Plan
from fedldp.randomness import source
from fedldp.schema.attributes import Attribute, BinnedNumber, Distribution
from fedldp.schema.schema import Schema

LIBRARY, BASELINE = "fedldp", "baseline"
FORMULA, SIMULATION = "formula", "simulation"
SHAPES = ("beta(2, 5)", "uniform", "two peaks", "spike")  # the first one is the typical case

_NORMAL_95 = 1.959964  # standard errors of a 95% interval
_TIMED_VEHICLES = 2000
_X = np.linspace(-1.0, 1.0, 4001)


@final
@dataclass(frozen=True)
class MechanismComparison:
    """One mechanism for one question at one epsilon.

    Attributes
    ----------
    question
        What is asked: the attribute of a data set, or a kind of value.
    mechanism
        The name of the mechanism.
    origin
        `"fedldp"`, or `"baseline"` for the mechanism of another paper.
    epsilon
        The privacy budget.
    worst
        The largest error over all inputs; NaN if it is not known.
    typical
        The error for typical inputs, or for the data.
    error
        What `worst` and `typical` are.
    found_by
        `"formula"`, which is exact, or `"simulation"`.
    bits
        How many bits an answer takes.
    microseconds
        How long an answer, and its part of the estimate, took here.
    half_width
        Half of a 95% interval, in the attribute's own unit, if all rows of the data answer this
        question alone; of categories for a frequency of 1 / categories; NaN without data.
    """

    question: str
    mechanism: str
    origin: str
    epsilon: float
    worst: float
    typical: float
    error: str
    found_by: str
    bits: int
    microseconds: float
    half_width: float = nan

    @property
    def can_be_released(self) -> bool:
        """Whether answers are drawn from integers that are checked, and may leave a vehicle."""
        return self.origin == LIBRARY

    def to_dict(self) -> dict[str, Any]:
        """Return all of it for JSON and tables, with None for what is not known.

        Returns
        -------
        dict
            An entry for each attribute, and `can_be_released`.

        Examples
        --------
        >>> compare_numbers([1.0])[0].to_dict()["error"]
        'variance of a number in [-1, 1]'
        """
        found = asdict(self) | {"can_be_released": self.can_be_released}
        return {key: None if value != value else value for key, value in found.items()}


class _Candidate(NamedTuple):
    """A mechanism that can be measured: `run` simulates some vehicles, for its time."""

    name: str
    origin: str
    worst: float
    typical: float
    bits: int
    run: Callable[[], Any]


def compare_numbers(epsilons: Iterable[float]) -> list[MechanismComparison]:
    """Compare all mechanisms for one number in [-1, 1] by the variance of an answer.

    Parameters
    ----------
    epsilons
        The privacy budgets.

    Returns
    -------
    list of MechanismComparison
        For each epsilon all mechanisms, the one with the least worst case first.

    Examples
    --------
    >>> compare_numbers([1.0])[0].mechanism
    'optimal'
    """
    what = "variance of a number in [-1, 1]"
    return _comparisons(epsilons, "number", what, lambda epsilon: _numbers(epsilon, _X))


def compare_categories(epsilons: Iterable[float], categories: int) -> list[MechanismComparison]:
    """Compare all frequency oracles by the squared error of an answer, summed over categories.

    Parameters
    ----------
    epsilons
        The privacy budgets.
    categories
        The number of categories.

    Returns
    -------
    list of MechanismComparison
        For each epsilon all mechanisms, the one with the least worst case first.

    Examples
    --------
    >>> [row.mechanism for row in compare_categories([1.0], 64)][:2]
    ['subset-selection', 'lines']
    """
    number = whole(categories, "categories")
    what = "squared error of an answer, summed over categories"
    return _comparisons(epsilons, f"{number} categories", what, lambda e: _categories(e, number))


def compare_vectors(epsilons: Iterable[float], d: int) -> list[MechanismComparison]:
    """Compare all mechanisms for a vector of length at most 1 by the squared error of an answer.

    Parameters
    ----------
    epsilons
        The privacy budgets.
    d
        How many numbers the vector has.

    Returns
    -------
    list of MechanismComparison
        For each epsilon all mechanisms, the one with the least error of a vector of length 1 first.

    Examples
    --------
    >>> [row.mechanism for row in compare_vectors([4.0], 64)][:2]
    ['privunit', 'privunitg']
    """
    number = whole(d, "d")
    what = "squared error of an answer, summed over numbers"
    return _comparisons(epsilons, f"vector of {number}", what, lambda e: _vectors(e, number))


def compare_distributions(
    epsilons: Iterable[float], bins: int, *, vehicles: int = 20_000, repeats: int = 5, seed: int = 1
) -> list[MechanismComparison]:
    """Compare methods for distributions by the Wasserstein distance of what a fleet estimates.

    The typical case is a Beta law with the parameters 2 and 5; the worst is the worst of the four
    in `SHAPES`.

    Parameters
    ----------
    epsilons
        The privacy budgets.
    bins
        In how many equal bins of [0, 1] the distribution is described.
    vehicles
        How many vehicles answer.
    repeats
        Of how many simulations each error is the mean.
    seed
        A number that makes the simulations reproducible.

    Returns
    -------
    list of MechanismComparison
        For each epsilon all methods, the one with the least worst case first.

    Examples
    --------
    >>> rows = compare_distributions([1.0], 16, vehicles=2000, repeats=1)
    >>> sorted(row.mechanism for row in rows if row.can_be_released)
    ['bins', 'bins, compact']
    """
    number, n = whole(bins, "bins"), whole(vehicles, "vehicles")
    laws = [_shape(name, n, np.random.default_rng(seed)) for name in SHAPES]
    what = f"Wasserstein distance of {n:,} vehicles, as a share of the range"

    def measured(epsilon: float) -> Iterator[_Candidate]:
        for name, origin, bits, shares in _distributions(epsilon, number):
            errors = [
                np.mean([_distance(shares(x, seed + i), x) for i in range(repeats)]) for x in laws
            ]
            run = partial(shares, laws[0][:_TIMED_VEHICLES], seed)
            yield _Candidate(name, origin, float(max(errors)), float(errors[0]), bits, run)

    question = f"distribution in {number} bins"
    return _comparisons(epsilons, question, what, measured, found_by=SIMULATION)


def compare_data(epsilons: Iterable[float], data: Any, schema: Schema) -> list[MechanismComparison]:
    """Compare all mechanisms on a data set, one attribute at a time.

    Each attribute is asked alone, of all rows, with the whole epsilon.

    Parameters
    ----------
    epsilons
        The privacy budgets.
    data
        Rows: a list of dicts, a dict of columns, a NumPy array or a data frame.
    schema
        The attributes, with their public bounds and categories.

    Returns
    -------
    list of MechanismComparison
        For each attribute and epsilon all mechanisms, with `half_width` in the attribute's unit.

    Raises
    ------
    DomainError
        If the data cannot be read, or have no rows.

    Examples
    --------
    >>> import fedldp
    >>> schema = fedldp.Schema.of(speed=(0, 130))
    >>> rows = compare_data([1.0], {"speed": [50.0, 70.0] * 5000}, schema)
    >>> rows[0].question, round(rows[0].half_width, 1)
    ('speed', 2.5)
    """
    matrix, quality = schema.rows(data).read()
    if not len(matrix):
        raise DomainError("data must have at least one row; got none.")
    quality.warn(stacklevel=2)
    return compare_matrix(epsilons, matrix, schema)


def compare_matrix(
    epsilons: Iterable[float], matrix: Floats, schema: Schema
) -> list[MechanismComparison]:
    """Compare all mechanisms on rows that a schema has read: see `compare_data`."""
    budgets, found, column = list(epsilons), list[MechanismComparison](), 0
    for attribute in schema.attributes:
        values = matrix[:, column : column + attribute.size]
        column += attribute.size
        found += _compared_attribute(budgets, attribute, attribute.inputs.of(values))
    return found


def _compared_attribute(
    epsilons: list[float], attribute: Attribute, inputs: Floats
) -> list[MechanismComparison]:
    """Compare all mechanisms on the inputs of one attribute."""
    unit, n = attribute.estimand.half_width, len(inputs)
    candidates: Callable[[float], Iterator[_Candidate]]
    if attribute.inputs.length is not None:
        what, across = "squared error of an answer, as a share of the bound", attribute.size
        square = float(np.mean(np.sum(inputs**2, axis=1)))

        def candidates(epsilon: float) -> Iterator[_Candidate]:
            for vector in _vectors(epsilon, attribute.size):
                yield vector._replace(typical=vector.typical + 1 - square)

    elif attribute.inputs.numeric:
        what, across = "variance of an answer on the scale of [-1, 1]", 1

        def candidates(epsilon: float) -> Iterator[_Candidate]:
            return _numbers(epsilon, inputs.reshape(-1))

    else:
        what, across = "squared error of an answer, summed over labels", attribute.inputs.estimates

        def candidates(epsilon: float) -> Iterator[_Candidate]:
            return _categories(epsilon, attribute.inputs.estimates)

    def half_width(typical: float) -> float:
        return _NORMAL_95 * unit * sqrt(typical / across / n)

    return _comparisons(epsilons, attribute.name, what, candidates, half_width=half_width)


def _comparisons(
    epsilons: Iterable[float],
    question: str,
    what: str,
    candidates: Callable[[float], Iterator[_Candidate]],
    *,
    found_by: str = FORMULA,
    half_width: Callable[[float], float] = lambda _: nan,
) -> list[MechanismComparison]:
    compared = []
    for epsilon in map(validation.epsilon, epsilons):
        rows = [
            MechanismComparison(
                question,
                candidate.name,
                candidate.origin,
                epsilon,
                candidate.worst,
                candidate.typical,
                what,
                found_by,
                candidate.bits,
                _microseconds(candidate.run),
                half_width(candidate.typical),
            )
            for candidate in candidates(epsilon)
        ]
        compared += sorted(rows, key=lambda row: (row.worst != row.worst, row.worst, row.typical))
    return compared


def _microseconds(run: Callable[[], Any]) -> float:
    """Return the time of a vehicle, the better of two runs."""
    times = []
    for _ in range(2):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return 1e6 * min(times) / _TIMED_VEHICLES


def _numbers(epsilon: float, x: Floats) -> Iterator[_Candidate]:
    timed = np.resize(x, _TIMED_VEHICLES)
    for name in mechanism_names():
        with suppress(DomainError):  # it has no channel, or none for this epsilon
            channel = mechanism(name, epsilon).channel()
            worst, typical = channel.worst_case_variance, float(np.mean(channel.variance(x)))
            run = _timed_coder(channel, timed)
            yield _Candidate(name, LIBRARY, worst, typical, channel.bits, run)
    for kind in NUMBER_MECHANISMS:
        other = kind(epsilon)
        worst, typical = other.worst_error, float(np.mean(other.error(x)))
        yield _Candidate(
            other.name, BASELINE, worst, typical, other.bits,
            partial(_answered_number, other, timed),
        )  # fmt: skip


def _categories(epsilon: float, categories: int) -> Iterator[_Candidate]:
    timed = np.arange(_TIMED_VEHICLES) % categories
    ours = (("response", RandomizedResponse), ("unary", UnaryEncoding), ("lines", Lines))
    for name, library in ours:
        with suppress(DomainError):  # it has an end of its own
            coder: Any = library.of(epsilon, categories)
            error = coder.variance
            yield _Candidate(name, LIBRARY, error, error, coder.bits, _timed_coder(coder, timed))
    for kind in FREQUENCY_ORACLES:
        oracle = kind(epsilon, categories)
        yield _Candidate(
            oracle.name, BASELINE, oracle.worst_error, oracle.typical_error, oracle.bits,
            partial(_answered_category, oracle, timed),
        )  # fmt: skip


def _vectors(epsilon: float, d: int) -> Iterator[_Candidate]:
    rows = np.random.default_rng(1).standard_normal((_TIMED_VEHICLES, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    with suppress(DomainError):
        directions = DirectionsCoder.of(epsilon, d)
        zero, full = np.zeros((1, d)), rows[:1]
        worst = max(float(np.sum(directions.assumed(x, 1.0)[0])) for x in (zero, full))
        typical = float(np.sum(directions.assumed(rows, 1.0)[0]))
        run = _timed_coder(directions, rows)
        yield _Candidate("directions", LIBRARY, worst, typical, directions.bits, run)
    bounded = Schema.vector(d, bound=1.0)
    for name in ("sample", "cube"):
        with suppress(DomainError):
            plan = Plan(bounded, epsilon, name)
            typical = plan.expected_error(1, rows, estimator="horvitz-thompson", of="fleet")
            yield _Candidate(
                name, LIBRARY, nan, typical, plan.bits,
                partial(plan.simulate, rows, source(1)),
            )  # fmt: skip
    for kind in VECTOR_MECHANISMS:
        other = kind(epsilon, d)
        yield _Candidate(
            other.name, BASELINE, other.worst_error, other.error, other.bits,
            partial(other.answer, rows, 1),
        )  # fmt: skip


Shares = Callable[[Floats, int], Floats]  # of the bins, as estimated from values with a seed


def _distributions(epsilon: float, bins: int) -> Iterator[tuple[str, str, int, Shares]]:
    binned = Schema((BinnedNumber.of("x", 0, 1, bins=bins),))
    for name, compact in (("bins", False), ("bins, compact", True)):
        plan = Plan(binned, epsilon, compact=compact)

        def ours(x: Floats, seed: int, plan: Plan = plan) -> Floats:
            result = plan.simulate(x[:, None], source(seed)).estimate()["x"]
            return result.histogram.frequencies if isinstance(result, Distribution) else x

        yield name, LIBRARY, plan.bits, ours
    methods = [kind(epsilon, bins) for kind in DISTRIBUTION_METHODS]
    for method in (*methods, *(BinnedOracle(epsilon, bins, kind) for kind in FREQUENCY_ORACLES)):
        yield method.name, BASELINE, method.bits, method.shares


def _answered_number(number: OneBitMean, values: Floats) -> Floats:
    return number.decode(number.answer(values, 1))


def _answered_category(oracle: FrequencyOracle, values: Integers) -> Floats:
    return oracle.estimate(oracle.answer(values, 1))


def _timed_coder(coder: Coder, inputs: Any) -> Callable[[], Any]:
    def run() -> None:
        cells = np.zeros(coder.cells, np.int64)
        coder.count(coder.encode(inputs, source(1)), 0, cells)
        coder.sums(cells[None])

    return run


def _shape(name: str, vehicles: int, random: np.random.Generator) -> Floats:
    """Return the values of a fleet with a law of `SHAPES`."""
    if name == "uniform":
        return random.random(vehicles)
    if name == "two peaks":
        centres = np.where(random.random(vehicles) < 0.6, 0.25, 0.7)
        return np.clip(random.normal(centres, 0.05), 0.0, 1.0)
    if name == "spike":
        return np.where(random.random(vehicles) < 0.3, 0.4, random.random(vehicles))
    return random.beta(2, 5, size=vehicles)


def _distance(shares: Floats, x: Floats) -> float:
    """Return the Wasserstein distance of shares of bins, each spread evenly, from some values."""
    bins = shares.size
    grid = np.linspace(0.0, 1.0, 16 * bins + 1)
    estimated = np.interp(grid, np.linspace(0.0, 1.0, bins + 1), np.append(0.0, np.cumsum(shares)))
    true = np.searchsorted(np.sort(x), grid, side="right") / x.size
    return float(np.trapezoid(np.abs(estimated - true), grid))
