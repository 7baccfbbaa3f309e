"""The server's half of LDP-FedSGD: from the tally of a group to the next model.

Nothing that the server does with reports costs privacy. So it may average iterates, keep a
momentum, and scale its steps by the noise that it sees, as Adam does, or by the noise that it
knows: see `fedldp.learn.noise_aware`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self, cast, final

import numpy as np

from fedldp._internal import documents
from fedldp._internal.options import (
    OneOf,
    Real,
    Rule,
    Whole,
    document,
    option,
    valid_value,
    validate,
)
from fedldp._internal.validation import Floats
from fedldp.coders.base import Cells, VectorCoder
from fedldp.coders.tables import read_only
from fedldp.errors import DomainError
from fedldp.learn.noise_aware import Knowledge, Observed, Prior, filtered
from fedldp.plan.parts import Countable
from fedldp.results.estimate import ESTIMATORS, RATIO, means_of_levels
from fedldp.results.tally import Tally
from fedldp.vehicle import canonical

AUTO = "auto"
LINEAR = "linear"
POWERS = {"constant": 0.0, "sqrt": 0.5, "inverse": 1.0}  # the rate falls with this power
SCHEDULES = (*POWERS, LINEAR)
FORMAT = "fedldp state 1"
FORMAT_2 = "fedldp state 2"  # of a filter, with what it knows

ROUNDS = 300  # about this many, if there are enough vehicles
FEWEST_ROUNDS = 10
ANSWERS = 30  # for each coordinate in each round
LARGEST_RATE = 0.4

_SQUARES = 0.999  # Adam's memory of squared gradients
_TINY = 1e-8  # and what keeps it from dividing by zero
_NOTHING_KNOWN = 1e30  # the variance of a gradient that nobody has reported: finite, for JSON

_RATE = Real(0, above=True)


class Steps(NamedTuple):
    """The length of steps: its rate, how that falls with the rounds, and what the next one keeps.

    Examples
    --------
    >>> Steps(0.1).schedule
    'constant'
    """

    rate: float | str
    schedule: str = "constant"
    momentum: float = 0.8


def _average_option() -> Any:
    return option(
        True, OneOf((True, False)), help="Whether the model is an average over the rounds."
    )


def _tol_option() -> Any:
    return option(0.0, Real(0), help="Stop when a round moves the model by less than this.")


def _estimator_option() -> Any:
    return option(
        RATIO, OneOf(ESTIMATORS), help="How the answers of a group become a mean gradient."
    )


def _rate_option() -> Any:
    return option(
        AUTO,
        Real(0, above=True, words=(AUTO,)),
        help="The length of a step; auto is shorter for more weights and more rounds.",
    )


def _momentum_option() -> Any:
    return option(0.8, Real(0, 1), help="How much of the last step the next one keeps.")


def _schedule_option() -> Any:
    return option(
        AUTO,
        OneOf((AUTO, *SCHEDULES)),
        help="How the length of a step falls with the rounds; linear falls to 0 in the last one; "
        "auto is linear for a network with directions, and constant otherwise.",
    )


class Optimizer(ABC):
    """How a server steps from the mean gradient of a group. Its options are `Settings.optimizer`.

    Attributes
    ----------
    name : str
        Its name in files and on the command line.
    needs_prior : bool
        Whether it is for linear models alone, of which a prior is known.
    average : bool
        Whether the model is an average over the rounds, in which round t has the weight t (t + 1).
    tol : float
        The training stops when the model moves by less in a round.
    estimator : str
        How the answers of a group become a mean gradient.
    """

    name: ClassVar[str]
    needs_prior: ClassVar[bool] = False

    average: bool
    tol: float
    estimator: str

    @property
    @abstractmethod
    def steps(self) -> Steps:
        """The rate, schedule and momentum, as files name them for every server."""

    @classmethod
    @abstractmethod
    def with_steps(cls, steps: Steps, **options: Any) -> Self:
        """Return it as a file describes it."""

    @abstractmethod
    def resolve(self, rate: float, schedule: str) -> Self:
        """Return it with a rate and a schedule, where they are "auto"."""

    @abstractmethod
    def step(
        self, recipe: "Recipe", state: "State", observed: Observed, prior: Prior | None
    ) -> "State":
        """Return the state after one more group."""


@final
@document()
@dataclass(frozen=True)
class Adam(Optimizer):
    """Steps that are divided by the noise that was seen, coordinate by coordinate.

    Parameters
    ----------
    {options}

    Raises
    ------
    DomainError
        If an option is invalid.

    Examples
    --------
    >>> Adam(learning_rate=0.1).momentum
    0.8
    """

    name: ClassVar[str] = "adam"

    learning_rate: float | str = _rate_option()
    momentum: float = _momentum_option()
    schedule: str = _schedule_option()
    average: bool = _average_option()
    tol: float = _tol_option()
    estimator: str = _estimator_option()

    def __post_init__(self) -> None:
        validate(self)

    @property
    def steps(self) -> Steps:
        """The rate, schedule and momentum."""
        return Steps(self.learning_rate, self.schedule, self.momentum)

    @classmethod
    def with_steps(cls, steps: Steps, **options: Any) -> Self:
        """Return it as a file describes it."""
        return cls(steps.rate, steps.momentum, steps.schedule, **options)

    def resolve(self, rate: float, schedule: str) -> Self:
        """Return it with a rate and a schedule, where they are "auto"."""
        return replace(self, **_resolve_steps(self.learning_rate, rate, self.schedule, schedule))

    def step(
        self, recipe: "Recipe", state: "State", observed: Observed, prior: Prior | None
    ) -> "State":
        """Return the state after one more group."""
        t, gradient, remembered = state.round + 1, observed.gradient, self.momentum
        rate, momentum = recipe.rate_in(t), _with_momentum(remembered, state, gradient)
        squares = _SQUARES * state.squares + (1 - _SQUARES) * gradient**2
        scale = np.sqrt(squares / (1 - _SQUARES**t))
        scale += _TINY
        move = momentum / scale
        move *= rate * (1 - remembered) / (1 - remembered**t)
        return _move(self, state, move, momentum, squares)


@final
@document()
@dataclass(frozen=True)
class SGD(Optimizer):
    """Plain steps along the mean gradient. See `Settings.paper` for Algorithm 1 of the paper.

    Parameters
    ----------
    {options}

    Raises
    ------
    DomainError
        If an option is invalid.

    Examples
    --------
    >>> SGD(learning_rate=0.1, momentum=0.0).average
    True
    """

    name: ClassVar[str] = "sgd"

    learning_rate: float | str = _rate_option()
    momentum: float = _momentum_option()
    schedule: str = _schedule_option()
    average: bool = _average_option()
    tol: float = _tol_option()
    estimator: str = _estimator_option()

    def __post_init__(self) -> None:
        validate(self)

    @property
    def steps(self) -> Steps:
        """The rate, schedule and momentum."""
        return Steps(self.learning_rate, self.schedule, self.momentum)

    @classmethod
    def with_steps(cls, steps: Steps, **options: Any) -> Self:
        """Return it as a file describes it."""
        return cls(steps.rate, steps.momentum, steps.schedule, **options)

    def resolve(self, rate: float, schedule: str) -> Self:
        """Return it with a rate and a schedule, where they are "auto"."""
        return replace(self, **_resolve_steps(self.learning_rate, rate, self.schedule, schedule))

    def step(
        self, recipe: "Recipe", state: "State", observed: Observed, prior: Prior | None
    ) -> "State":
        """Return the state after one more group."""
        rate = recipe.rate_in(state.round + 1)
        momentum = _with_momentum(self.momentum, state, observed.gradient)
        return _move(self, state, rate * momentum, momentum, state.squares)


@final
@document()
@dataclass(frozen=True)
class NoiseAware(Optimizer):
    """Steps that know their noise, for linear models: see `fedldp.learn.noise_aware`.

    Parameters
    ----------
    {options}
    steps : Steps, optional
        The rate, schedule and momentum that files have for every server. It does not use them.

    Raises
    ------
    DomainError
        If an option is invalid.

    Examples
    --------
    >>> NoiseAware(tol=0.01).needs_prior
    True
    """

    name: ClassVar[str] = "noise-aware"
    needs_prior: ClassVar[bool] = True

    average: bool = _average_option()
    tol: float = _tol_option()
    estimator: str = _estimator_option()
    steps: Steps = field(default=Steps(1.0), kw_only=True, repr=False)

    def __post_init__(self) -> None:
        validate(self)

    @classmethod
    def with_steps(cls, steps: Steps, **options: Any) -> Self:
        """Return it as a file describes it."""
        return cls(**options, steps=steps)

    def resolve(self, rate: float, schedule: str) -> Self:
        """Return it with a rate and a schedule for files."""
        return replace(self, steps=Steps(valid_value(_RATE, "learning_rate", rate), schedule))

    def step(
        self, recipe: "Recipe", state: "State", observed: Observed, prior: Prior | None
    ) -> "State":
        """Return the state after one more group."""
        return _filter(self, state, observed, prior)


OPTIMIZERS: tuple[type[Optimizer], ...] = (Adam, SGD, NoiseAware)


def _resolve_steps(rate: float | str, auto_rate: float, schedule: str, auto_schedule: str) -> Any:
    """Return options of an optimizer, where they are "auto"."""
    return {
        "learning_rate": auto_rate if rate == AUTO else rate,
        "schedule": auto_schedule if schedule == AUTO else schedule,
    }


def penalty() -> Any:
    """Declare the option `alpha`, which settings and recipes have."""
    return option(
        0.0,
        Real(0),
        help="The weight of the L2 penalty, which is half the squared norm of the weights.",
    )


@final
@document()
@dataclass(frozen=True)
class Recipe:
    """How the server makes a step from the mean gradient of a group, with all numbers known.

    `Settings.recipe` returns it. It is part of a job, and its documents keep their form.

    Parameters
    ----------
    optimizer : Adam, SGD or NoiseAware
        The optimizer, whose learning rate is a number. Its schedule is constant if it is "auto".
    {options}

    Raises
    ------
    DomainError
        If an option is invalid.

    Examples
    --------
    >>> recipe = Recipe(SGD(learning_rate=0.1))
    >>> recipe.rate, recipe.optimizer.momentum
    (0.1, 0.8)
    >>> Recipe.from_document(recipe.to_document()) == recipe
    True
    """

    optimizer: Optimizer
    alpha: float = penalty()
    rounds: int | None = option(
        None,
        Whole(1, optional=True),
        help="The number of rounds of a linear schedule.  [default: that of the training]",
    )

    def __post_init__(self) -> None:
        validate(self)
        if not isinstance(self.optimizer, Optimizer):
            raise DomainError(
                "the optimizer of a recipe must be one with its options, such as "
                f"Adam(learning_rate=0.1); got {self.optimizer!r:.80}."
            )
        rate = self.optimizer.steps.rate
        if isinstance(rate, str):
            raise DomainError(
                f"the learning_rate of a server must be a number; got {rate!r}. Use "
                "Settings.recipe, which chooses one."
            )
        if self.optimizer.steps.schedule == AUTO:
            object.__setattr__(self, "optimizer", self.optimizer.resolve(rate, "constant"))

    def rate_in(self, number: int) -> float:
        """Return the learning rate of a round.

        Parameters
        ----------
        number : int
            The number of the round; the first is 1.

        Returns
        -------
        float
            The rate, which falls as the schedule says.

        Raises
        ------
        DomainError
            If the schedule is linear, and `rounds` is not known.

        Examples
        --------
        >>> Recipe(Adam(learning_rate=0.2, schedule="sqrt")).rate_in(4)
        0.1
        >>> Recipe(Adam(learning_rate=0.2, schedule="linear"), rounds=10).rate_in(6)
        0.1
        """
        schedule = self.optimizer.steps.schedule
        if schedule != LINEAR:
            return float(self.rate / number ** POWERS[schedule])
        if not isinstance(self.rounds, int):
            raise DomainError("a linear schedule needs the number of rounds. Use Settings.recipe.")
        return self.rate * max(0.0, 1 - (number - 1) / self.rounds)

    @property
    def rate(self) -> float:
        """The learning rate."""
        return cast(float, self.optimizer.steps.rate)

    def to_document(self) -> dict[str, Any]:
        """Return the recipe as plain values, with the names that files use.

        Returns
        -------
        dict
            A value for each entry.

        Examples
        --------
        >>> Recipe(Adam(learning_rate=0.1)).to_document()["rate"]
        0.1
        """
        optimizer, steps = self.optimizer, self.optimizer.steps
        document = {
            "rate": steps.rate,
            "optimizer": optimizer.name,
            "schedule": steps.schedule,
            "momentum": steps.momentum,
            "averaging": optimizer.average,
            "regularization": self.alpha,
            "tolerance": optimizer.tol,
            "estimator": optimizer.estimator,
        }
        # Files of before have no rounds.
        return document if self.rounds is None else document | {"rounds": self.rounds}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Recipe":
        """Read a recipe from the entries of a file.

        Parameters
        ----------
        document : mapping
            Entries as `to_document` returns them. The rate must be there, and be a number.

        Returns
        -------
        Recipe
            The recipe.

        Raises
        ------
        DomainError
            If the rate is missing, or an entry is unknown or invalid.

        Examples
        --------
        >>> Recipe.from_document({"rate": 0.1, "averaging": False}).optimizer.average
        False
        """
        if "rate" not in document or not document.keys() <= _ENTRIES.keys():
            raise DomainError(
                f"recipe must be a table with a rate and no other entries than "
                f"{', '.join(_ENTRIES)}; got {document!r:.200}."
            )
        options = {
            entry: valid_value(rule, entry, document[entry])
            for entry, (rule, _) in _ENTRIES.items()
            if entry in document
        }
        value = {entry: default for entry, (_, default) in _ENTRIES.items()} | options
        (kind,) = (optimizer for optimizer in OPTIMIZERS if optimizer.name == value["optimizer"])
        steps = Steps(value["rate"], value["schedule"], value["momentum"])
        common = {name: value[_COMMON[name]] for name in _COMMON}
        return cls(kind.with_steps(steps, **common), value["regularization"], value["rounds"])

    @property
    def digest_text(self) -> str:
        """The text that identifies the recipe in checkpoints, as in version 0.1."""
        values = ", ".join(f"{file}={value!r}" for file, value in self.to_document().items())
        return f"Recipe({values})"


_COMMON = {"average": "averaging", "tol": "tolerance", "estimator": "estimator"}
_ENTRIES: dict[
    str, tuple[Rule, Any]
] = {  # of files, which never change: what is valid, and default
    "rate": (_RATE, None),
    "optimizer": (OneOf(tuple(each.name for each in OPTIMIZERS)), Adam.name),
    "schedule": (OneOf(SCHEDULES), "constant"),
    "momentum": (Real(0, 1), 0.8),
    "averaging": (OneOf((True, False)), True),
    "regularization": (Real(0), 0.0),
    "tolerance": (Real(0), 0.0),
    "estimator": (OneOf(ESTIMATORS), RATIO),
    "rounds": (Whole(1, optional=True), None),
}


@final
@dataclass(frozen=True, eq=False)
class State:
    """The state of a training: everything that the next step depends on.

    Arrays have a row for each replica.

    Parameters
    ----------
    round : int
        The number of rounds that are done.
    weights : ndarray of shape (replicas, dimensions)
        The current weights.
    average : ndarray of shape (replicas, dimensions)
        The average of the weights over the rounds.
    momentum : ndarray of shape (replicas, dimensions)
        The sum of past gradients, with decreasing factors.
    squares : ndarray of shape (replicas, dimensions)
        The mean of past squared gradients, with decreasing factors.
    change : ndarray of shape (replicas,)
        The length of the last step.
    known : Knowledge, optional
        What a noise-aware server knows after its first round.

    Examples
    --------
    >>> state = State.start(np.zeros(3))
    >>> state.round, state.weights.shape
    (0, (1, 3))
    >>> State.from_json(state.to_json()).to_json() == state.to_json()
    True
    """

    round: int
    weights: Floats
    average: Floats
    momentum: Floats
    squares: Floats
    change: Floats
    known: Knowledge | None = None

    @classmethod
    def start(cls, weights: Floats) -> "State":
        """Return the state before the first round.

        Parameters
        ----------
        weights : ndarray of shape (dimensions,) or (replicas, dimensions)
            The first weights.

        Returns
        -------
        State
            The state.
        """
        weights = read_only(np.array(weights, np.float64, ndmin=2))
        zeros = read_only(np.zeros(weights.shape))
        unknown = read_only(np.full(len(weights), np.finfo(np.float64).max))  # JSON has no more
        return cls(0, weights, weights, zeros, zeros, unknown)

    def to_json(self) -> str:
        """Return the state as JSON, from which `from_json` reads it exactly.

        Returns
        -------
        str
            The JSON.
        """
        document: dict[str, Any] = {"format": FORMAT, "round": self.round} | {
            name: getattr(self, name).tolist() for name in _ARRAYS
        }
        if self.known is not None:
            known = {name: getattr(self.known, name).tolist() for name in _KNOWN}
            document |= {"format": FORMAT_2, "known": known}
        return canonical(document)

    @classmethod
    def from_json(cls, text: str) -> "State":
        """Read a state.

        Parameters
        ----------
        text : str
            JSON that `to_json` returned.

        Returns
        -------
        State
            The state.

        Raises
        ------
        WireError
            If the text is not a valid state.
        """
        with documents.reading(repr(FORMAT)):
            document = documents.parse(text, [FORMAT, FORMAT_2], ("round", *_ARRAYS), "known")
            if type(document["round"]) is not int or document["round"] < 0:
                raise ValueError("invalid number of rounds")
            arrays = {name: read_only(document[name]) for name in _ARRAYS}
            known = None
            if "known" in document:
                known = Knowledge(**{name: read_only(document["known"][name]) for name in _KNOWN})
            state = cls(document["round"], **arrays, known=known)
            *matrices, change = arrays.values()
            shape = state.weights.shape
            if known is not None:
                matrices += [known.weights, known.average, known.together]
                if known.length.shape != shape[:1] or not np.isfinite(known.length).all():
                    raise ValueError("the arrays do not fit together")
            if len(shape) != 2 or not all(matrix.shape == shape for matrix in matrices):
                raise ValueError("the arrays do not fit together")
            if change.shape != shape[:1] or not np.isfinite(matrices).all():
                raise ValueError("the numbers cannot be those of a training")
            documents.check_written(state.to_json(), canonical(document))
        return state


_ARRAYS = ("weights", "average", "momentum", "squares", "change")
_KNOWN = ("weights", "average", "together", "length")


def auto_group(vehicles: int, share: float) -> int:
    """Return how many vehicles to ask in a round, given the share that answers a coordinate.

    There are about 300 rounds, but fewer (at least 10) if a coordinate would get less than 30
    answers in a round. The number depends only on public numbers.

    >>> auto_group(294_611, 1 / 33), auto_group(20_000, 1 / 94)
    (990, 2000)
    """
    enough = min(math.ceil(ANSWERS / share), vehicles // FEWEST_ROUNDS)
    return max(1, enough, math.ceil(vehicles / ROUNDS))


def auto_rate(distance: float, dimensions: int, rounds: int) -> float:
    """Return the learning rate with which Adam can cover a distance, with any amount of noise.

    With noise in d coordinates, T steps of D / sqrt(d T) are best for a minimum at the distance D
    (Nemirovski et al. 2009): Adam divides by the noise. Steps larger than 0.4 overshoot. For plain
    gradient steps the same rule holds if no coordinate of a gradient exceeds 1.

    >>> round(auto_rate(8.0, 33, 300), 3), auto_rate(8.0, 33, 10)
    (0.08, 0.4)
    """
    return min(distance / math.sqrt(dimensions * rounds), LARGEST_RATE)


def observed(tallies: Sequence[Tally], estimator: str = RATIO) -> Observed:
    """Return what follows from the reports of a group, with a tally for each chosen epsilon."""
    levels = [(each.parts[0], each.reports, each.counts[0][None]) for each in tallies]
    return observe(levels, estimator)


def observe(levels: Sequence[tuple[Countable, int, Cells]], estimator: str = RATIO) -> Observed:
    """Return the mean gradient of a group, its known variance, and the mean length of gradients.

    Each level of epsilon has its part, its number of vehicles and its counters, a row for each
    replica. Levels are weighted by the inverse of their known variance.
    """
    gradient = means_of_levels(levels, estimator)
    precision: Any = 0.0
    weighed: Any = 0.0
    weights: Any = 0.0
    for part, n, counts in levels:
        ((coder, (attribute,), cells),) = part.by_block(counts.astype(np.float64))
        answers = coder.sums(cells)[0] if estimator == RATIO else n * part.share
        length = coder.mean_length(cells) if isinstance(coder, VectorCoder) else None
        noise = coder.noise if length is None else coder.noise_at(length)[:, None]
        with np.errstate(divide="ignore"):  # without noise, the gradient is known exactly
            precision = precision + answers / (noise * attribute.estimand.half_width**2)
        if length is not None and n:
            weighed, weights = weighed + n * length * attribute.estimand.half_width, weights + n
    with np.errstate(divide="ignore"):
        variance = np.minimum(1 / np.asarray(precision, np.float64), _NOTHING_KNOWN)
    known = np.asarray(weighed / weights) if weights else None
    return Observed(gradient, variance, known)


def step(
    recipe: Recipe, state: State, observed: Observed | Floats, prior: Prior | None = None
) -> State:
    """Return the state after one more group: a row for each replica.

    A noise-aware server needs everything that follows from the reports, and a prior. Other servers
    need only a mean gradient.
    """
    if not isinstance(observed, Observed):
        observed = Observed(observed)
    if recipe.alpha:
        gradient = observed.gradient + recipe.alpha * state.weights
        observed = observed._replace(gradient=gradient)
    return recipe.optimizer.step(recipe, state, observed, prior)


def _with_momentum(kept: float, state: State, gradient: Floats) -> Floats:
    return kept * state.momentum + gradient if kept else gradient


def _move(
    optimizer: Optimizer, state: State, move: Floats, momentum: Floats, squares: Floats
) -> State:
    """Return the state after a step of Adam or SGD."""
    t, weights = state.round + 1, state.weights - move
    average = weights
    if optimizer.average:
        average = state.average + 3 / (t + 2) * (weights - state.average)
    change = _step_lengths(optimizer, state, move, weights, average)
    return State(t, weights, average, momentum, squares, change)


def _filter(optimizer: Optimizer, state: State, observed: Observed, prior: Prior | None) -> State:
    """Return the state after one more step of a noise-aware server."""
    if prior is None:
        raise DomainError(
            "a noise-aware server needs a prior, which a linear model has: see `Prior.of`. For "
            'other models use optimizer="adam".'
        )
    t, known = state.round + 1, state.known
    if known is None:
        known = Knowledge.start(prior, len(state.weights))
    share_kept = 1 - 3 / (t + 2) if optimizer.average else 0.0
    move, known = filtered(prior, known, observed, t, share_kept)
    weights = state.weights - move
    average = (
        weights
        if not optimizer.average
        else share_kept * state.average + (1 - share_kept) * weights
    )
    change = _step_lengths(optimizer, state, move, weights, average)
    return replace(state, round=t, weights=weights, average=average, change=change, known=known)


def _step_lengths(
    optimizer: Optimizer, state: State, move: Floats, weights: Floats, average: Floats
) -> Floats:
    """Return the length of a step, and undo it in replicas that had settled before."""
    change: Floats = np.sqrt((move * move).sum(axis=1))
    still = state.change < optimizer.tol
    if optimizer.tol and still.any():
        weights[still], average[still] = state.weights[still], state.average[still]
        change[still] = state.change[still]
    return change


def settled(recipe: Recipe, state: State) -> bool:
    """Return whether the last step was shorter than `tol`, in every replica."""
    return bool((state.change < recipe.optimizer.tol).all())
