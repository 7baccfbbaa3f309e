"""How a plan divides its budget: which attributes form a part, how many are answered, and how."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import ceil, fsum, nextafter
from typing import Any, ClassVar, final

from fedldp import vehicle
from fedldp._internal import validation
from fedldp._internal.options import (
    OneKind,
    OneOf,
    Real,
    Whole,
    document,
    option,
    valid_value,
    validate,
)
from fedldp._internal.validation import SMALLEST_EPSILON, is_real, whole
from fedldp.coders.base import Coder, ForCategories
from fedldp.coders.categories import UnaryEncoding, better
from fedldp.coders.cube import CubeCoder
from fedldp.coders.directions import DirectionsCoder
from fedldp.coders.lines import Lines, compact
from fedldp.coders.study import Study
from fedldp.errors import DomainError
from fedldp.mechanisms import PAPER_MECHANISMS, AnyMechanism, Mechanism, mechanism
from fedldp.plan.parts import Part
from fedldp.results.estimate import RATIO, expected_error
from fedldp.schema.attributes import Attribute
from fedldp.schema.schema import Schema

PLAN_MECHANISM = "dominant"  # of numbers in a plan; that of gradients is near-zero
AUTO = "auto"
PAPER_MECHANISM = "hm-tp"  # the one that the paper proposes for every epsilon
PAPER_OUTPUTS = 2001  # to which its experiments discretize mechanisms with continuous outputs
_FINITE = ("duchi", "three-outputs", "laplace")  # discrete, or without a table
CUBE_GAIN = 0.75  # of the squared error of sampling
MOST_SIGNS = 1000  # of a report, which has a bit for each
UNIFORM = 1 / 3  # the variance of a number that is uniform on [-1, 1]

CategoryCoder = Callable[[float, int], ForCategories]  # for an epsilon and a number of categories

_PAPER = Fraction(5, 2)  # the paper's budget for each coordinate
_ALWAYS_MORE = 0.6  # with a smaller budget for each, another coordinate always costs more


def _mechanism_option() -> Any:
    return option(
        AUTO,
        help="How numbers are made private: a name that `fedldp mechanisms` shows, a class, or a "
        "mechanism with options of its own; auto is dominant, and near-zero for gradients.",
    )


def _outputs_option() -> Any:
    return option(
        None,
        Whole(1, optional=True),
        help="The number of different values that may be sent for a number.  [default: the "
        "mechanism's own]",
    )


def _study_option() -> Any:
    return option(
        False,
        OneOf((True, False)),
        help="Compute in floating point, as in the paper: for study, never to be sent.",
    )


def _k_option() -> Any:
    return option(
        "best",
        Whole(1, words=("best", "paper")),
        help="How many coordinates each vehicle answers: a number, best (the least error) or "
        "paper (the paper's rule).",
    )


def _variance_option() -> Any:
    return option(
        UNIFORM,
        help="A public guess of the variance of numbers on the scale of [-1, 1], for the best k.",
    )


class Strategy(ABC):
    """How the budget is divided among attributes, and how they are answered.

    Attributes
    ----------
    name : str
        Its name on the command line and in `Plan`.
    takes_length : bool
        Whether it is for a vector with a bound on its length.
    """

    name: ClassVar[str]
    takes_length: ClassVar[bool] = False

    @abstractmethod
    def add_parts(self, division: "Division") -> None:
        """Add the parts of a plan."""

    @abstractmethod
    def for_gradients(self, mean_length: float) -> "Strategy":
        """Return it with the options of a training, where they are "auto"."""


@final
@document()
@dataclass(frozen=True)
class Sample(Strategy):
    """Each vehicle answers k coordinates, which it chooses with its own randomness.

    Parameters
    ----------
    {options}

    Raises
    ------
    DomainError
        If an option is invalid.

    Examples
    --------
    >>> from fedldp import Plan, Schema
    >>> Plan(Schema.vector(9, bound=1.0), 2.0, Sample(k=2, mechanism="hm-tp")).parts[0].k
    2
    """

    name: ClassVar[str] = "sample"

    k: int | str = _k_option()
    mechanism: AnyMechanism = _mechanism_option()  # noqa: RUF009
    outputs: int | None = _outputs_option()
    study: bool = _study_option()
    variance: float = _variance_option()

    def __post_init__(self) -> None:
        validate(self)
        _check_mechanism(self.mechanism)
        _check_variance(self.variance)

    def add_parts(self, division: "Division") -> None:
        """Add one part for all attributes."""
        division.refuse_length(self)
        coders = division.coders(self.mechanism, self.outputs, self.variance, study=self.study)
        division.sample(division.everything, division.epsilon, self.k, coders)

    def for_gradients(self, mean_length: float) -> "Strategy":
        """Return it with the mechanism of a training, if it is "auto"."""
        return replace(self, mechanism=_for_gradients(self.mechanism))


@final
@document()
@dataclass(frozen=True)
class Split(Strategy):
    """Each vehicle answers all d coordinates, with epsilon/d each.

    Parameters
    ----------
    {options}

    Raises
    ------
    DomainError
        If an option is invalid.

    Examples
    --------
    >>> from fedldp import Plan, Schema
    >>> Plan(Schema.vector(9, bound=1.0), 2.0, Split()).parts[0].k
    9
    """

    name: ClassVar[str] = "split"

    mechanism: AnyMechanism = _mechanism_option()  # noqa: RUF009
    outputs: int | None = _outputs_option()
    study: bool = _study_option()

    def __post_init__(self) -> None:
        validate(self)
        _check_mechanism(self.mechanism)

    def add_parts(self, division: "Division") -> None:
        """Add one part for all attributes."""
        division.refuse_length(self)
        coders = division.coders(self.mechanism, self.outputs, study=self.study)
        d = division.schema.dimensions
        division.sample(division.everything, division.epsilon, d, coders)

    def for_gradients(self, mean_length: float) -> "Strategy":
        """Return it with the mechanism of a training, if it is "auto"."""
        return replace(self, mechanism=_for_gradients(self.mechanism))


@final
@document()
@dataclass(frozen=True)
class Paper(Strategy):
    """The budget is divided between numbers and categories, as in the paper.

    `Plan.paper` makes all choices of the paper's experiments.

    Parameters
    ----------
    {options}

    Raises
    ------
    DomainError
        If an option is invalid.

    Examples
    --------
    >>> from fedldp import Plan, Schema
    >>> schema = Schema.of(age=(0, 100), city=["Oslo", "Rome", "Lima"])
    >>> [float(part.epsilon) for part in Plan(schema, 2.0, Paper(k="paper")).parts]
    [1.0, 1.0]
    """

    name: ClassVar[str] = "paper"

    k: int | str = _k_option()
    mechanism: AnyMechanism = _mechanism_option()  # noqa: RUF009
    outputs: int | None = _outputs_option()
    study: bool = _study_option()
    variance: float = _variance_option()

    def __post_init__(self) -> None:
        validate(self)
        _check_mechanism(self.mechanism)
        _check_variance(self.variance)

    def add_parts(self, division: "Division") -> None:
        """Add a part for numbers and a part for categories."""
        if division.compact:
            raise DomainError("the paper sends categories through OUE: leave compact=True out.")
        division.refuse_length(self)
        coders = division.coders(self.mechanism, self.outputs, self.variance, study=self.study)
        if division.numbers:
            division.sample(division.numbers, division.for_numbers, self.k, coders)
        division.add_categories()

    def for_gradients(self, mean_length: float) -> "Strategy":
        """Return it with the mechanism of a training, if it is "auto"."""
        return replace(self, mechanism=_for_gradients(self.mechanism))


@final
@document()
@dataclass(frozen=True)
class Cube(Strategy):
    """All numbers are answered at once, with one sign each; categories as in the paper.

    Parameters
    ----------
    {options}

    Examples
    --------
    >>> from fedldp import Plan, Schema
    >>> Plan(Schema.vector(9, bound=1.0), 2.0, Cube()).bits
    9
    """

    name: ClassVar[str] = "cube"

    threshold: int | str = option(
        "best", help="How many signs agree at least with the vector: see `CubeCoder.of`."
    )

    def add_parts(self, division: "Division") -> None:
        """Add a joint part for numbers, and a part for categories."""
        division.refuse_length(self)
        if division.numbers:
            budget, d = division.joint_budget, division.joint_dimensions
            division.add_joint(CubeCoder.of(budget, d, self.threshold))
        division.add_categories()

    def for_gradients(self, mean_length: float) -> "Strategy":
        """Return it as it is."""
        return self


@final
@document()
@dataclass(frozen=True)
class Directions(Strategy):
    """A vector with a bound on its length is answered with one of some random directions.

    Such a vector is a gradient, or `Schema.vector(d, length=1.0)`.

    Parameters
    ----------
    {options}

    Raises
    ------
    DomainError
        If an option is invalid.

    Examples
    --------
    >>> from fedldp import Plan, Schema
    >>> Plan(Schema.vector(36, length=1.0), 4.0, Directions(mean_length=0.3)).bits
    30
    """

    name: ClassVar[str] = "directions"
    takes_length: ClassVar[bool] = True

    mean_length: float | str = option(
        AUTO,
        Real(0, words=(AUTO,)),
        help="A public guess of the mean length of the vectors, as a share of the bound. auto is "
        "0.3 for gradients of a linear model, 0.5 of a network, 0.8 of a network for signals, "
        "and otherwise 1.",
    )
    fleet: int | None = option(
        None,
        Whole(1, optional=True),
        help="The largest fleet that you expect. Reports with directions contain a seed, which is "
        "longer for larger fleets.  [default: ten million]",
    )

    def __post_init__(self) -> None:
        validate(self)

    def add_parts(self, division: "Division") -> None:
        """Add a joint part for the vector, and a part for categories."""
        if not (len(division.with_length) == len(division.numbers) == 1):
            names = [division.schema.names[number] for number in division.numbers]
            raise DomainError(
                "strategy='directions' is for one vector with a bound on its length, such as "
                f"Schema.vector(d, length=1.0); got the numbers {names}."
            )
        length = 1.0 if isinstance(self.mean_length, str) else self.mean_length
        budget, d = division.joint_budget, division.joint_dimensions
        coder = DirectionsCoder.of(budget, d, mean_length=length, fleet=self.fleet)
        division.add_joint(coder)
        division.add_categories()

    def for_gradients(self, mean_length: float) -> "Strategy":
        """Return it with the mean length of gradients, if it is "auto"."""
        own = self.mean_length
        return replace(self, mean_length=mean_length if isinstance(own, str) else own)


STRATEGIES: tuple[type[Strategy], ...] = (Sample, Split, Paper, Cube, Directions)
STRATEGY = OneKind(STRATEGIES, (AUTO,))  # what is valid as a strategy


def _for_gradients(mechanism: AnyMechanism) -> AnyMechanism:
    return "near-zero" if mechanism == AUTO else mechanism


def _check_mechanism(which: AnyMechanism) -> None:
    if which != AUTO:
        mechanism(which, 1.0)


def _check_variance(variance: Any) -> None:
    if not is_real(variance) or not 0 <= variance <= 1:
        raise DomainError(
            f"variance must be a number from 0 to 1, on the scale of [-1, 1]; got {variance!r}."
        )


@final
class Division:
    """The parts of a plan, while a strategy forms them."""

    def __init__(self, schema: Schema, epsilon: float, *, compact: bool) -> None:
        self.schema, self.compact, self._given = schema, compact, epsilon
        self.epsilon = vehicle.exact(validation.epsilon(epsilon))
        attributes = schema.attributes
        self.everything = tuple(range(len(attributes)))
        self.numbers = tuple(i for i in self.everything if attributes[i].inputs.numeric)
        self.categories = tuple(i for i in self.everything if not attributes[i].inputs.numeric)
        self.with_length = [i for i in self.numbers if attributes[i].inputs.length is not None]
        # Some attributes are settled only when the budget of an answer is known.
        self._settled = list(attributes)
        self._parts: list[tuple[tuple[int, ...], tuple[Coder, ...], int]] = []

    @property
    def joint_dimensions(self) -> int:
        """How many numbers a joint coder answers."""
        return self.schema.dimensions - len(self.categories)

    @property
    def for_numbers(self) -> Fraction:
        """The share of the budget that numbers have, where categories are apart."""
        return self.epsilon * self.joint_dimensions / self.schema.dimensions

    @property
    def joint_budget(self) -> float:
        """The budget of a joint coder."""
        return each_part(self.for_numbers, 1)

    def refuse_length(self, strategy: Strategy) -> None:
        """Refuse a bound on the length of a vector."""
        if self.with_length:
            raise DomainError(
                f"{self.schema.attributes[self.with_length[0]].name!r} has a bound on its length, "
                f"which is for strategy='directions'; got {strategy.name!r}. Give bounds to each "
                "number instead."
            )

    def coders(
        self,
        which: AnyMechanism,
        outputs: int | None,
        variance: float = UNIFORM,
        *,
        study: bool,
    ) -> "Offered":
        """Return the coders that attributes choose from."""
        _check_epsilon(which, self._given)
        if study and not self.numbers:
            raise DomainError("categories are exact as they are: leave study=True out.")
        for_labels = _category_coder(oue=False, few_bits=self.compact)
        name = PLAN_MECHANISM if which == AUTO else which
        return Offered(name, outputs, variance, for_labels, study=study)

    def sample(
        self, attributes: tuple[int, ...], budget: Fraction, k: int | str, coders: "Offered"
    ) -> None:
        """Add a part in which each vehicle answers k coordinates of some attributes."""
        kinds = [self.schema.attributes[number] for number in attributes]
        chosen = _how_many(kinds, budget, k, coders)
        each = each_part(budget, chosen)
        for number, attribute in zip(attributes, kinds, strict=True):
            self._settled[number] = attribute.resolve(each, coders)
        made = tuple(self._settled[number].inputs.coder(each, coders) for number in attributes)
        self._parts.append((attributes, made, chosen))

    def add_joint(self, coder: Coder) -> None:
        """Add a part in which all numbers are answered at once."""
        self._parts.append((self.numbers, (coder,), 1))

    def add_categories(self) -> None:
        """Add a part for categories, as the paper asks for them."""
        if self.categories:
            for_labels = _category_coder(oue=True, few_bits=self.compact)
            coders = Offered(PLAN_MECHANISM, for_labels=for_labels)
            self.sample(self.categories, self.epsilon - self.for_numbers, "paper", coders)

    def parts(self) -> tuple[Part, ...]:
        """Return the parts."""
        unchanged = self._settled == list(self.schema.attributes)
        asked = self.schema if unchanged else Schema(tuple(self._settled))
        return tuple(Part(asked, *part) for part in self._parts)


def parts_of(
    schema: Schema, epsilon: float, strategy: str | Strategy, *, compact: bool
) -> tuple[Part, ...]:
    """Return the parts of the plan that a `Plan`'s arguments describe."""
    chosen = valid_value(STRATEGY, "strategy", strategy)
    if chosen == AUTO:
        chosen = choose(schema, epsilon).strategy
    division = Division(schema, epsilon, compact=compact)
    chosen.add_parts(division)
    return division.parts()


@final
@dataclass(frozen=True)
class Choice:
    """The strategy that "auto" means for a schema and an epsilon, and why."""

    strategy: Strategy
    reason: str


def choose(schema: Schema, epsilon: float) -> Choice:
    """Return the strategy that "auto" means: a rule of schema and epsilon alone.

    A cube replaces sampling only where its squared error is at most `CUBE_GAIN` of the sample's, if
    numbers are spread evenly. Numbers near their center lose by it, those near their bounds win
    more. So the rule asks for a clear gain: over the shapes of `tests/plan/test_plan_auto.py`, it
    then has less error on average. A cube of some attributes beside categories leaves these too
    little of the budget.

    >>> choose(Schema.vector(16, bound=1.0), 4.0).strategy.name
    'sample'
    >>> choose(Schema.vector(16, bound=1.0), 8.0)
    Choice(strategy=Cube(threshold='best'), reason="65% of the sample's squared error, ...")
    """
    division = Division(schema, epsilon, compact=False)
    if division.with_length:
        return Choice(Directions(), "the vector has a bound on its length")
    if division.categories:
        return Choice(Sample(), "not all attributes are plain numbers")
    if schema.dimensions == 1:
        return Choice(Sample(), "there is one number")
    if schema.dimensions > MOST_SIGNS:
        return Choice(Sample(), f"a cube is for at most {MOST_SIGNS:,} numbers")
    errors = {}
    for strategy in (Sample(), Cube()):
        division = Division(schema, epsilon, compact=False)
        strategy.add_parts(division)
        errors[strategy] = expected_error(division.parts(), 1, "uniform", RATIO, "population")
    sample, cube = errors.values()
    if cube <= CUBE_GAIN * sample:
        share = f"{100 * cube / sample:.0f}% of the sample's squared error"
        return Choice(Cube(), f"{share}, if numbers are spread evenly")
    share = f"a cube would have {100 * cube / sample:.0f}% of its squared error"
    return Choice(Sample(), f"{share}, if numbers are spread evenly")


def _check_epsilon(mechanism: AnyMechanism, epsilon: float) -> None:
    """Refuse a mechanism that was made with another epsilon than the plan's."""
    if isinstance(mechanism, Mechanism) and mechanism.epsilon != epsilon:
        name = type(mechanism).__name__
        raise DomainError(
            f"the mechanism's epsilon must be the plan's, {epsilon!r}; got {mechanism!r}. A plan "
            "divides its own epsilon among a vehicle's answers: give the mechanism that epsilon, "
            f"or pass the class, mechanism={name}."
        )


def strategy_of(
    name: str = AUTO,
    *,
    gradients: bool = False,
    mechanism: AnyMechanism = AUTO,
    k: int | str = "best",
    outputs: int | None = None,
    threshold: int | str = "best",
    study: bool = False,
    mean_length: float | str | None = None,
    fleet: int | None = None,
    variance: float = UNIFORM,
) -> str | Strategy:
    """Return the strategy that flat options describe, such as those of commands.

    Without a name, it is the one to which the options belong. Options that belong to another
    strategy are refused.

    >>> strategy_of(k=2, mechanism="pm"), strategy_of("cube"), strategy_of()
    (Sample(k=2, mechanism='pm', ..., Cube(threshold='best'), 'auto')
    """
    if name not in STRATEGY.values:
        raise DomainError(f"strategy must be one of {STRATEGY.values}; got {name!r}.")
    is_named = mechanism not in (AUTO, Directions.name)
    sampling = is_named or study or outputs is not None or k != "best" or variance != UNIFORM
    sampling = sampling or threshold != "best"
    if name == AUTO and (mean_length, fleet) != (None, None) and not sampling:
        name = Directions.name
    elif name == AUTO and sampling:
        name = Sample.name
    elif name == AUTO:
        return Directions() if gradients else AUTO
    if name in (Cube.name, Directions.name) and (study or outputs is not None):
        raise DomainError(
            f"strategy {name!r} is exact, with outputs of its own: leave study and outputs out."
        )
    if name == Directions.name and is_named:
        raise DomainError(
            "strategy='directions' needs no mechanism: leave it out, or choose "
            f"strategy='sample'; got mechanism={mechanism!r}."
        )
    if name != Directions.name and not mean_length is fleet is None:
        raise DomainError(f"mean_length and fleet are for directions alone; got strategy {name!r}.")
    if name != Cube.name and threshold != "best":
        raise DomainError(f"a threshold is for the cube alone; got strategy {name!r}.")
    if name == Directions.name:
        return Directions(AUTO if mean_length is None else mean_length, fleet)
    if name == Cube.name:
        return Cube(threshold)
    if name == Split.name:
        return Split(mechanism, outputs, study)
    kind = Sample if name == Sample.name else Paper
    return kind(k, mechanism, outputs, study, variance)


def as_printed(
    which: AnyMechanism, outputs: int | None = None, study: bool = False
) -> Sample | Split | Cube:
    """Return the strategy by which the paper asks for many numbers through a mechanism.

    Laplace answers everything with epsilon/d, Duchi et al. everything at once (where a tie counts
    once: see the cube), all others k coordinates. A mechanism that is not in the paper is refused.

    >>> as_printed("hm-tp").outputs, as_printed("duchi")
    (2001, Cube(threshold=0))
    """
    name: Any = getattr(which, "name", which)
    if name not in PAPER_MECHANISMS:
        raise DomainError(
            f"the paper has no mechanism {name!r}; choose from {', '.join(PAPER_MECHANISMS)}."
        )
    if name == "duchi":
        if study or outputs is not None:
            raise DomainError(
                "the paper's plan for duchi is a cube, which is exact, with outputs of its own: "
                "leave study and outputs out."
            )
        return Cube(threshold=0)
    outputs = outputs_as_printed(name, outputs, study)
    if name == "laplace":
        return Split(which, outputs, study)
    return Sample("paper", which, outputs, study)


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

    Plans of format 1 have randomized response or OUE, whichever has less error. Lines are for plans
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
    d = sum(attribute.size for attribute in attributes)
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
