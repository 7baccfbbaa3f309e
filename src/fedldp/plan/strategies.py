"""How a plan divides its budget: which attributes form a part, how many are answered, and how."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from math import ceil, fsum, nextafter
from numbers import Real
from typing import Any, SupportsIndex, final

from fedldp import vehicle
from fedldp._internal.validation import SMALLEST_EPSILON, whole
from fedldp.coders.base import Coder, ForCategories
from fedldp.coders.categories import UnaryEncoding, better
from fedldp.coders.cube import CubeCoder
from fedldp.coders.directions import DirectionsCoder
from fedldp.coders.lines import Lines, compact
from fedldp.coders.study import Study
from fedldp.errors import DomainError
from fedldp.mechanisms import PAPER_MECHANISMS, AnyMechanism, mechanism
from fedldp.plan.parts import Part
from fedldp.schema.attributes import Attribute
from fedldp.schema.schema import Schema

STRATEGIES = ("sample", "split", "paper", "cube", "directions")
PAPER_MECHANISM = "hm-tp"  # the one that the paper proposes for every epsilon
PAPER_OUTPUTS = 2001  # to which its experiments discretize mechanisms with continuous outputs
_FINITE = ("duchi", "three-outputs", "laplace")  # discrete, or without a table
UNIFORM = 1 / 3  # the variance of a number that is uniform on [-1, 1]

CategoryCoder = Callable[[float, int], ForCategories]  # for an epsilon and a number of categories

_PAPER = Fraction(5, 2)  # the paper's budget for each coordinate
_ALWAYS_MORE = 0.6  # with a smaller budget for each, another coordinate always costs more


def parts_of(
    schema: Schema,
    epsilon: Fraction,
    *,
    name: AnyMechanism,
    k: int | str,
    strategy: str,
    outputs: int | None,
    threshold: int | str,
    variance: float,
    study: bool,
    mean_length: float | None = None,
    fleet: int | None = None,
    few_bits: bool = False,
) -> tuple[Part, ...]:
    """Return the parts of the plan that a `Plan`'s arguments describe."""
    if strategy not in STRATEGIES:
        raise DomainError(f"strategy must be one of {STRATEGIES}; got {strategy!r}.")
    if strategy in ("cube", "directions") and (study or outputs is not None):
        raise DomainError(
            f"strategy {strategy!r} is exact, with outputs of its own: leave study and outputs out."
        )
    if strategy != "directions" and not mean_length is fleet is None:
        raise DomainError(
            f"mean_length and fleet are for directions alone; got strategy {strategy!r}."
        )
    if strategy != "cube" and threshold != "best":
        raise DomainError(f"a threshold is for the cube alone; got strategy {strategy!r}.")
    # These are validated whether the strategy uses them or not.
    mechanism(name, 1.0)
    if k not in ("best", "paper") and not isinstance(k, SupportsIndex):
        raise DomainError(f'k must be "best", "paper" or a whole number; got {k!r}.')
    if not isinstance(variance, Real) or not 0 <= variance <= 1:
        raise DomainError(
            f"variance must be a number from 0 to 1, on the scale of [-1, 1]; got {variance!r}."
        )
    if few_bits and strategy == "paper":
        raise DomainError("the paper sends categories through OUE: leave compact=True out.")
    everything = tuple(range(len(schema.attributes)))
    numbers = tuple(i for i in everything if schema.attributes[i].inputs.numeric)
    categories = tuple(i for i in everything if not schema.attributes[i].inputs.numeric)
    lengths = [i for i in numbers if schema.attributes[i].inputs.length is not None]
    if lengths and strategy != "directions":
        raise DomainError(
            f"{schema.attributes[lengths[0]].name!r} has a bound on its length, which is for "
            f"strategy='directions'; got {strategy!r}. Give bounds to each number instead."
        )
    if strategy == "directions" and not (len(lengths) == len(numbers) == 1):
        raise DomainError(
            "strategy='directions' is for one vector with a bound on its length, such as "
            f"Schema.vector(d, length=1.0); got the numbers {[schema.names[i] for i in numbers]}."
        )
    if study and not numbers:
        raise DomainError("categories are exact as they are: leave study=True out.")

    # Some attributes are settled only when the budget of an answer is known, and parts need all.
    settled, parts = list(schema.attributes), list[tuple[tuple[int, ...], tuple[Coder, ...], int]]()

    def sampled(attributes: tuple[int, ...], budget: Fraction, k: int | str, oue: bool) -> None:
        kinds = [schema.attributes[number] for number in attributes]
        coders = Offered(name, outputs, variance, _category_coder(oue, few_bits), study=study)
        chosen = _how_many(kinds, budget, k, coders)
        each = each_part(budget, chosen)
        for number, attribute in zip(attributes, kinds, strict=True):
            settled[number] = attribute.resolve(each, coders)
        made = tuple(settled[number].inputs.coder(each, coders) for number in attributes)
        parts.append((attributes, made, chosen))

    for_numbers = epsilon * (schema.dimensions - len(categories)) / schema.dimensions
    if strategy in ("sample", "split"):
        sampled(everything, epsilon, k if strategy == "sample" else schema.dimensions, oue=False)
    elif numbers and strategy in ("cube", "directions"):
        d, budget = schema.dimensions - len(categories), each_part(for_numbers, 1)
        joint: Coder
        if strategy == "cube":
            joint = CubeCoder.of(budget, d, threshold)
        else:
            length = 1.0 if mean_length is None else mean_length
            joint = DirectionsCoder.of(budget, d, mean_length=length, fleet=fleet)
        parts.append((numbers, (joint,), 1))
    elif numbers:
        sampled(numbers, for_numbers, k, oue=False)
    if categories and strategy not in ("sample", "split"):
        sampled(categories, epsilon - for_numbers, "paper", oue=True)
    asked = Schema(tuple(settled)) if settled != list(schema.attributes) else schema
    return tuple(Part(asked, *part) for part in parts)


def as_printed(name: str) -> dict[str, Any]:
    """Return the strategy by which the paper asks for many numbers through a mechanism.

    Laplace answers everything with epsilon/d, Duchi et al. everything at once (where a tie counts
    once: see the cube), all others k coordinates. A mechanism that is not in the paper is refused.

    >>> as_printed("hm-tp"), as_printed("duchi")
    ({'strategy': 'sample'}, {'strategy': 'cube', 'threshold': 0})
    """
    if name not in PAPER_MECHANISMS:
        raise DomainError(
            f"the paper has no mechanism {name!r}; choose from {', '.join(PAPER_MECHANISMS)}."
        )
    if name == "laplace":
        return {"strategy": "split"}
    return {"strategy": "cube", "threshold": 0} if name == "duchi" else {"strategy": "sample"}


def outputs_as_printed(name: str, outputs: int | None, study: bool) -> int | None:
    """Return how many outputs the channel of a mechanism has, given what was asked for.

    >>> outputs_as_printed("hm-tp", None, study=False), outputs_as_printed("duchi", None, False)
    (2001, None)
    >>> outputs_as_printed("hm-tp", 31, study=False), outputs_as_printed("hm-tp", None, study=True)
    (31, None)
    """
    if outputs is not None or study or name in _FINITE:
        return outputs
    return PAPER_OUTPUTS


def _category_coder(oue: bool, few_bits: bool) -> CategoryCoder:
    """Return which coder answers a number of categories with an epsilon.

    Plans of format 1 have randomised response or OUE, whichever has less error. Lines are for plans
    that ask for few bits, and for more categories than format 1 allows.
    """
    if few_bits:
        return compact
    known: CategoryCoder = UnaryEncoding.of if oue else better
    return lambda epsilon, a: (Lines.of if a > vehicle.MOST_CATEGORIES else known)(epsilon, a)


@final
class Offered:
    """The coders that a plan offers to its attributes, each made once.

    One object for equal arguments: the order of random draws depends on it.
    """

    def __init__(
        self,
        name: AnyMechanism,
        outputs: int | None = None,
        variance: float = UNIFORM,
        for_labels: CategoryCoder = better,
        *,
        study: bool = False,
    ) -> None:
        self._name, self._outputs, self.variance = name, outputs, variance
        self._study = study
        self.for_numbers = cache(self._for_numbers)
        self.for_labels = cache(lambda *given: self._same(for_labels(*given)))
        self.compact = cache(lambda *given: self._same(compact(*given)))
        self._made: dict[ForCategories, ForCategories] = {}
        self.noise = cache(self._noise)

    def _for_numbers(self, epsilon: float) -> Coder:
        chosen = mechanism(self._name, epsilon)
        return Study(chosen) if self._study else chosen.channel(self._outputs)

    def _same(self, coder: ForCategories) -> ForCategories:
        return self._made.setdefault(coder, coder)

    def _noise(self, epsilon: float) -> float:
        return mechanism(self._name, epsilon).quick_variance(self._outputs)


def _how_many(
    attributes: Sequence[Attribute], budget: Fraction, k: int | str, coders: Offered
) -> int:
    d = sum(each.size for each in attributes)
    if k == "paper":
        return max(1, min(d, int(budget / _PAPER)))
    if k == "best":
        return best_k(attributes, budget, coders)
    number = whole(k, "k")
    if not 1 <= number <= d:
        raise DomainError(f'k must be "best", "paper" or from 1 to {d}; got {k!r}.')
    return number


def best_k(attributes: Sequence[Attribute], budget: Fraction, coders: Offered) -> int:
    """Return how many coordinates give the least error with the ratio estimator.

    That is the least (d/k)(V(epsilon/k) + variance), summed over the attributes, where V is the
    worst-case variance. Once each coordinate's budget is small, V grows faster than k, so the
    search ends there.
    """

    def error(k: int) -> float:
        each = each_part(budget, k)
        return fsum(attribute.inputs.expected_error(each, coders) for attribute in attributes) / k

    d = sum(each.size for each in attributes)
    most = min(d, max(1, ceil(float(budget) / _ALWAYS_MORE)))
    return min(range(1, most + 1), key=error)


def each_part(budget: Fraction, k: int) -> float:
    """Return the largest float that, as written, is at most the k-th part of a budget."""
    each = float(budget / k)
    while vehicle.exact(each) * k > budget:
        each = nextafter(each, 0.0)
    if each < SMALLEST_EPSILON:
        raise DomainError(
            f"each of {k} answers would have a budget of {each:g}, and the least is "
            f"{SMALLEST_EPSILON}. Ask for fewer, or raise epsilon."
        )
    return each
