"""What to expect of a training before any vehicle is asked.

From the schema, epsilon and the number of vehicles follows the noise of each weight of a linear
model: it depends on the plan and on public priors alone. Where public rows are given, the training
is simulated on them. That is all there is for a network with layers: how its loss bends is not
known before.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import numpy as np

from fedldp._internal.validation import Floats, whole
from fedldp.errors import DomainError
from fedldp.learn.clipping import Clip
from fedldp.learn.examples import Surveyed
from fedldp.learn.features import Features, Scaling
from fedldp.learn.networks import LINEAR_LENGTH
from fedldp.learn.noise_aware import Prior
from fedldp.learn.objectives import Objective
from fedldp.learn.objectives import objective as objective_of
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Layered, Linear
from fedldp.plan.plan import Plan
from fedldp.randomness import Source
from fedldp.randomness import source as source_of
from fedldp.schema.schema import Schema

PRECISION = 0.1  # of a score: how far noise moves it, as a share of how far a model moves it
TOO_NOISY = 1 / 2  # the precision from which on `fit` warns: a model hardly beats the base rate
BEATS = 1 / 3  # the precision from which on a model beats the base rate, as a rule
_SLOPE = 0.5  # of a model that predicts well, as a share of the first: noise is forecast for it
FEWEST_PUBLIC_ROWS = 20
_MOST = 1 << 40  # vehicles that are searched for
NARROWEST = 1 / 64  # the smallest spread on the scale of [-1, 1] that a survey can find
_ROWS = 10_000  # that are enough to estimate a spread


@final
@dataclass(frozen=True, eq=False)
class Forecast:
    """What to expect of a training. `print` it for sentences.

    `forecast` returns it. A weight whose noise is larger than its prior stays near 0.

    Parameters
    ----------
    epsilon : float
        The privacy budget of a vehicle.
    vehicles : int
        The number of vehicles.
    rounds : int
        The number of rounds.
    survey : {"scale", "whiten"} or None
        What a part of the vehicles is asked first.
    names : tuple of str
        The names of the features; none for a network with layers, whose noise is only simulated.
    deviations : ndarray of shape (features,)
        The standard deviation of each weight that the noise of all reports leaves, without a prior.
        With several labels it is the same for the weights of each label.
    priors : ndarray of shape (features,)
        How large each weight may be.
    squares : ndarray of shape (features,)
        The mean square of each feature.
    precision : float
        How far noise may move a typical score, as a share of how far a model moves it.
    needed : int or None
        How many vehicles this precision needs; None if no number is enough.
    needed_to_beat : int or None
        How many vehicles a model usually needs to beat the base rate.
    errors : ndarray, optional
        The errors of trainings that were simulated on public rows.
    base_rate : float, optional
        The base rate of the public rows.
    outputs : int, default=1
        The number of scores: one, or one for each of several labels.

    Examples
    --------
    >>> schema = Schema.of(age=(0, 100), city=["Oslo", "Rome", "Lima"])
    >>> found = forecast(schema, epsilon=1.0, vehicles=1_000_000)
    >>> found.learnable, len(found.names)
    (5, 5)
    """

    epsilon: float
    vehicles: int
    rounds: int
    survey: str | None
    names: tuple[str, ...]
    deviations: Floats
    priors: Floats
    squares: Floats
    precision: float
    needed: int | None
    needed_to_beat: int | None
    errors: Floats | None = None
    base_rate: float | None = None
    outputs: int = 1

    @property
    def weights(self) -> int:
        """How many weights a linear model has."""
        return len(self.names) * self.outputs

    @property
    def learnable(self) -> int:
        """How many weights have less noise than they may be large."""
        return int((self.deviations < self.priors).sum()) * self.outputs

    @property
    def score_noise(self) -> float:
        """How far noise moves a typical score."""
        shrunk = 1 / np.sqrt(1 / self.deviations**2 + 1 / self.priors**2)
        return float(np.sqrt((shrunk**2 * self.squares).sum()))

    @property
    def score_spread(self) -> float:
        """How far the weights that the prior expects move a typical score."""
        return float(np.sqrt((self.priors**2 * self.squares).sum()))

    def __str__(self) -> str:
        surveyed_for = {"scale": "centers and scales", "whiten": "centers, scales and correlations"}
        first = ""
        if self.survey is not None:
            first = f" Some are asked about {surveyed_for[self.survey]} of the numbers first."
        lines = [
            f"{self.vehicles:,} vehicles with epsilon = {self.epsilon:g}, each asked once, in "
            f"{self.rounds} rounds.{first}",
            *(self._about_noise() if self.names else ()),
        ]
        if self.errors is not None and self.base_rate is not None:
            beat = int((self.errors < self.base_rate).sum())
            lines.append(
                f"Simulated on the public rows, the error is {self.errors.mean():.4g} on average "
                f"and {self.errors.max():.4g} at worst; {beat} of {len(self.errors)} trainings "
                f"beat the base rate of {self.base_rate:.4g}."
            )
        return "\n".join(lines)

    def _about_noise(self) -> tuple[str, ...]:
        """Return the sentences about a linear model's weights and scores."""
        others = self.weights - self.learnable
        near_zero = f"; the other {others} will stay near 0" if others else ""
        share, have = self.score_noise / self.score_spread, f"you have {self.vehicles:,}."
        enough = f"No number of vehicles is enough for {self.precision:.0%}."
        if self.needed is not None:
            need = "You need" if self.needed <= self.vehicles else "You would need"
            enough = f"{need} {self.needed:,} vehicles for {self.precision:.0%}; {have}"
        beat = "No number of vehicles is enough for a model that beats the base rate."
        if self.needed_to_beat is not None:
            expect = "Expect" if self.needed_to_beat <= self.vehicles else "Do not expect"
            beat = (
                f"{expect} a model that beats the base rate: it needs about "
                f"{self.needed_to_beat:,} vehicles, and attributes that tell of the target; {have}"
            )
        return (
            f"{self.learnable} of {self.weights} weights should rise above the noise{near_zero}.",
            f"Noise moves a typical score by {self.score_noise:.2g}, {share:.0%} of what a model "
            f"moves it ({self.score_spread:.2g}). {enough}",
            beat,
        )


def forecast(
    features: Schema,
    epsilon: float,
    vehicles: int,
    *,
    objective: str | Objective = "logistic",
    precision: float = PRECISION,
    public: Linear | Layered | None = None,
    repeats: int = 5,
    source: Source | None = None,
    **options: Any,
) -> Forecast:
    """Return what to expect of a training by `Settings(epsilon, **options)`.

    Parameters
    ----------
    features
        The schema of all attributes but the target.
    epsilon, vehicles
        The budget of each vehicle, and how many there are.
    objective
        "logistic", "squared", "hinge", or for several labels `Softmax` with their number.
    precision
        How far noise may move a typical score, as a share of how far a model moves it.
    public
        Public rows that are like the fleet's, as a task. The training is simulated on as many
        vehicles as the fleet has, drawn from nine tenths of them with replacement, and measured on
        the rest. A task with layers is the network that is trained, instead of a linear model.
    repeats, source
        How often that is simulated, and the randomness for it.
    **options
        All other options of `Settings`.

    Returns
    -------
    Forecast
        The expected noise of each weight and of a score, and how many vehicles are needed; `print`
        it for a plain statement.

    Examples
    --------
    >>> schema = Schema.of(age=(0, 100), city=["Oslo", "Rome", "Lima"])
    >>> few, many = (forecast(schema, 1.0, vehicles=n) for n in (1_000, 1_000_000))
    >>> few.score_noise > 10 * many.score_noise
    True
    >>> print(many)
    1,000,000 vehicles with epsilon = 1, each asked once, in 260 rounds. Some are asked about ...
    5 of 5 weights should rise above the noise.
    Noise moves a typical score by 0.07, 1% of what a model moves it (4.9). You need 15,000 ...
    Expect a model that beats the base rate: it needs about 1,400 vehicles, and attributes ...
    """
    settings = Settings(epsilon, **options)
    if whole(vehicles, "vehicles") < 1:
        raise DomainError(f"vehicles must be at least 1; got {vehicles!r}.")
    if isinstance(public, Layered):
        predicted = _of_layers(settings, public, vehicles, precision)
    else:
        goal = objective_of(objective) if isinstance(objective, str) else objective
        encoding = Features(features, settings.reference)
        predicted = _of_linear(settings, encoding, goal, vehicles, precision)
    if public is None:
        return predicted
    errors, base = _simulate(settings, public, vehicles, repeats, source or source_of())
    return replace(predicted, errors=errors, base_rate=base)


def _of_linear(
    settings: Settings, encoding: Features, goal: Objective, vehicles: int, precision: float
) -> Forecast:
    """Return the forecast of a linear model, from public numbers alone."""
    noisy = partial(_noisy, settings, encoding, goal)
    deviations, prior, kind, vehicles_left = _deviations(settings, encoding, goal, vehicles)
    clip = _clip(settings, prior, vehicles)
    features = encoding.dimensions
    group = settings.group_size(features * goal.outputs, vehicles_left, goal, clip.length)
    return Forecast(
        epsilon=settings.budget,
        vehicles=vehicles,
        rounds=-(-vehicles_left // group) * settings.participations,
        survey=kind,
        names=encoding.names,
        deviations=deviations[:features],
        priors=prior.deviations[:features],
        squares=prior.squares[:features],
        precision=precision,
        needed=_needed_vehicles(noisy, precision),
        needed_to_beat=_needed_vehicles(noisy, BEATS),
        outputs=goal.outputs,
    )


def _of_layers(settings: Settings, task: Layered, vehicles: int, precision: float) -> Forecast:
    """Return the forecast of a network with layers: how it is asked, without its noise."""
    survey = settings.survey_for(task.numbers, vehicles, task.prior is not None)
    vehicles_left = vehicles - settings.surveyed(survey, None, vehicles)
    goal = None if task.prior is None else task.prior.objective
    group = settings.group_size(task.dimensions, vehicles_left, goal, task.length)
    unknown = np.empty(0)
    return Forecast(
        epsilon=settings.budget,
        vehicles=vehicles,
        rounds=-(-vehicles_left // group) * settings.participations,
        survey=None if survey is None else survey.kind,
        names=(),
        deviations=unknown,
        priors=unknown,
        squares=unknown,
        precision=precision,
        needed=None,
        needed_to_beat=None,
        outputs=task.objective.outputs,
    )


def too_few(settings: Settings, encoding: Features, goal: Objective, vehicles: int) -> str | None:
    """Return a warning if a model of so many vehicles hardly beats the base rate, or None.

    A forecast is about linear models with directions and one score; for others there is none.

    >>> encoding = Features(Schema.of(age=(0, 100)), "none")
    >>> print(too_few(Settings(1.0), encoding, objective_of("logistic"), 50))
    50 vehicles with epsilon = 1 are too few for 2 weights: about 1,100 are needed. Expect ...
    >>> too_few(Settings(1.0), encoding, objective_of("logistic"), 5_000)
    """
    if not settings.private or not settings.optimizer_for().needs_prior or goal.outputs > 1:
        return None
    noisy = partial(_noisy, settings, encoding, goal)
    if noisy(vehicles) <= TOO_NOISY:
        return None
    needed, base = _needed_vehicles(noisy, BEATS), "label" if goal.classifies else "number"
    enough = "no number is enough" if needed is None else f"about {needed:,} are needed"
    return (
        f"{vehicles:,} vehicles with epsilon = {settings.epsilon:g} are too few for "
        f"{encoding.dimensions} weights: {enough}. Expect predictions that are hardly better than "
        f"always the same {base}. Ask more vehicles, choose a larger epsilon, or fewer features; "
        "fedldp.learn.forecast says more."
    )


def too_wide(features: Features, matrix: Floats, targets: Floats | None) -> str | None:
    """Return a warning if the bounds are much wider than the data in a simulation, or None.

    >>> features = Features(Schema.of(age=(0, 1_000_000)))
    >>> print(too_wide(features, np.array([[20.0], [90.0]]), None))
    the bounds of the features are too wide: a typical spread is 3.5e-05 of their width, ...
    >>> too_wide(features, np.array([[200_000.0], [700_000.0]]), None)
    """
    every = max(1, len(matrix) // _ROWS)
    for name, units in (
        ("features", features.units(matrix[::every])),
        ("target", np.empty((0, 0)) if targets is None else targets[::every, None]),
    ):
        spreads = units.std(axis=0) if len(units) else np.empty(0)
        spreads = spreads[spreads > 0]  # a constant has no spread in any bounds
        if spreads.size and spreads.max() < NARROWEST:
            return (
                f"the bounds of the {name} are too wide: a typical spread is "
                f"{np.median(spreads) / 2:.2g} of their width, which noise hides. Expect "
                "predictions that are no better than always the same. Choose bounds that the "
                "values nearly fill; those outside count as the bound."
            )
    return None


def _noisy(settings: Settings, encoding: Features, goal: Objective, vehicles: int) -> float:
    """Return how far noise moves a typical score, as a share of how far a model moves it."""
    deviations, prior, *_ = _deviations(settings, encoding, goal, vehicles)
    shrunk = 1 / (1 / deviations**2 + 1 / prior.deviations**2)
    spread = (prior.deviations**2 * prior.squares).sum()
    return float(np.sqrt((shrunk * prior.squares).sum() / spread))


def _clip(settings: Settings, prior: Prior, vehicles: int) -> Clip:
    """Return where gradients are clipped."""
    return settings.clip_for(prior, vehicles) or Clip(prior.objective.length, LINEAR_LENGTH)


def _deviations(
    settings: Settings, encoding: Features, goal: Objective, vehicles: int
) -> tuple[Floats, Prior, str | None, int]:
    """Return the noise of each weight, the prior, what is surveyed, and who answers gradients."""
    survey = settings.survey_for(encoding.numbers, vehicles)
    if survey is not None:
        encoding = replace(encoding, scaling=survey.start)
    prior = Prior.of(encoding, goal)
    clip = _clip(settings, prior, vehicles)
    target = settings.target_survey_for(clip, vehicles)
    vehicles_left = vehicles - settings.surveyed(survey, target, vehicles)
    plan = settings.plan(len(prior.squares), clip.length, clip.mean_length)
    if not isinstance(plan, Plan):
        raise DomainError("a forecast is about noise: give an epsilon.")
    (part,) = plan.parts
    ((coder, attribute),) = part.asked
    slope = _SLOPE * goal.first_slope
    length = min(1.0, slope * prior.length / attribute.estimand.half_width)
    reports = max(vehicles_left, 1) * settings.participations
    variance = coder.noise_at(length) * attribute.estimand.half_width**2 / (reports * part.share)
    if goal.outputs > 1:
        variance = variance * (1 - 1 / goal.outputs)  # what is said about the sum is taken out
    curvature = goal.curvature(np.array([slope]))[0] * prior.squares
    deviations = np.sqrt(variance) / curvature
    return deviations, prior, None if survey is None else survey.kind, vehicles_left


def _needed_vehicles(noisy: Callable[[int], float], precision: float) -> int | None:
    """Return the least number of vehicles, to about a tenth, for a precision."""
    low, high = 1, 1
    while noisy(high) > precision:
        low, high = high, 2 * high
        if high > _MOST:
            return None
    while high > low + max(1, low // 16):
        middle = (low + high) // 2
        low, high = (low, middle) if noisy(middle) <= precision else (middle, high)
    digits = max(0, len(str(high)) - 2)
    return int(-(-high // 10**digits) * 10**digits)


def _simulate(
    settings: Settings, public: Linear | Layered, vehicles: int, repeats: int, source: Source
) -> tuple[Floats, float]:
    """Return the errors of simulated trainings on public rows, and the base rate."""
    if not isinstance(public.examples, Surveyed) or public.vehicle_rows is not None:
        raise DomainError("public must be the task of a data set with one row for each vehicle.")
    if len(public) < FEWEST_PUBLIC_ROWS:
        raise DomainError(
            f"public must have at least {FEWEST_PUBLIC_ROWS} rows; got {len(public)}."
        )
    errors, rates = [], []
    for _ in range(whole(repeats, "repeats")):
        order = np.argsort(source.words(len(public)), kind="stable")
        held = len(order) // 10
        drawn = (source.uniform(vehicles) * (len(order) - held)).astype(np.int64)
        fleet = replace(public, examples=_ChosenRows(public.examples, order[held:][drawn]))
        training = settings.training(fleet, fleet.distance, source, shuffle=False)
        for _ in training:
            pass
        test = replace(public, examples=_ChosenRows(public.examples, order[:held]))
        scaled = test if training.scaling is None else test.scaled(training.scaling)
        errors.append(float(scaled.error(training.models)[0]))
        _, targets = test.examples.read(slice(None))
        rates.append(public.objective.base_rate(targets))
    return np.array(errors), float(np.mean(rates))


@final
@dataclass(frozen=True, eq=False)
class _ChosenRows:
    """Some rows of examples, which may come several times."""

    of: Surveyed
    rows: Any

    @property
    def dimensions(self) -> int:
        return self.of.dimensions

    @property
    def encoding(self) -> Features:
        return self.of.encoding

    def __len__(self) -> int:
        return len(self.rows)

    def units(self, rows: Any) -> Floats:
        return self.of.units(self.rows[rows])

    def scaled(self, scaling: Scaling) -> "_ChosenRows":
        return _ChosenRows(self.of.scaled(scaling), self.rows)

    def read(self, rows: Any) -> Any:
        return self.of.read(self.rows[rows])
