"""The experiments: some runs of one competitor, at one epsilon, on one data set.

In the n-th run all competitors have the same folds, so that what they differ by is the mechanism
and its noise. At one epsilon they draw from the same stream, but each makes of it what it will.

A run of a training is one fold. A model is trained at every learning rate of a public grid, several
times with other noise, and its error is kept on the rows it was trained on and on those that were
held out: the first chooses the rate, the second is reported.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import log2, sqrt
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from fedldp import __version__, source, vehicle
from fedldp._internal.validation import Floats, Integers
from fedldp.datasets.dataset import EncodedRows
from fedldp.learn.examples import Arrays, Rows
from fedldp.learn.features import FeatureRows, Features, Scaling
from fedldp.learn.networks import Network
from fedldp.learn.objectives import Objective, objective
from fedldp.learn.optimizer import Adam, auto_group
from fedldp.learn.privacy import NoPrivacy
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Layered, Linear
from fedldp.learn.training import Procedure, Training
from fedldp.plan.parts import Matrix
from fedldp.plan.plan import Plan
from fedldp.plan.strategies import Strategy, strategy_of
from fedldp.randomness import Source
from fedldp.results.estimate import means_of_levels
from fedldp.schema.schema import Schema
from fedldp_reproduction.experiments.algorithm_1 import Answers, Cited, ClippedMean, Coded, trained
from fedldp_reproduction.experiments.duchi import CitedDuchi
from fedldp_reproduction.figures import CITED, Way

VERSION = 4  # part of the keys of finished jobs: raise it when results change between releases

REGULARIZATION = 1e-4  # lambda of the paper
BOUND = 1.0  # gradients are clipped to it in each coordinate
GROUPS = 150  # of Algorithm 1

# Vehicles simulated together: their values stay in the cache, and in arrays so small the allocator
# does not go to the system for each, which would be half of the work.
_AT_ONCE = 1 << 13
_ENOUGH = 1 << 16  # rows that tell the mean of a variance to a part in a thousand
_SMOOTHED = 0.01  # the width over which the bend of the hinge is rounded for the converged model
_MOST_STEPS = 500

_LATER = {"hidden": 0, "rate_unit": 1.0}  # fields of a way that came later, and what was before

Outcome = Any  # the error of a run of means; of a training, errors by fold, rate and replicate


@final
@dataclass(frozen=True)
class ExperimentJob:
    """Some runs with the same settings. Equal jobs have equal results, wherever they run."""

    task: str  # the objective to train for; none for means
    data: str  # tells which rows
    way: Way
    epsilon: float  # for what is reported here
    first: int  # run
    runs: int
    seed: int
    folds: int = 0
    held: int = 0  # folds that are held out in turn
    rates: tuple[float, ...] = ()  # of Algorithm 1, as multiples of 1/d
    replicates: int = 1  # trainings of each fold, with other noise
    groups: int = GROUPS  # of Algorithm 1

    @property
    def key(self) -> str:
        """What its results are kept under."""
        document = asdict(self)
        for name, default in _LATER.items():  # finished runs from before are still found
            if getattr(self.way, name) == default:
                del document["way"][name]
        return _digest([__version__, VERSION, document]).hex()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its errors: of a training (runs, train and test, rates, replicates)."""
        if not self.task:
            return (self.runs,)
        return (self.runs, 2, len(self.rates) or 1, self.replicates)

    def source(self, run: int) -> Source:
        """Return the random source of one run, which is the same for all ways."""
        same = [self.seed, self.task, self.data, self.epsilon, self.folds, self.held]
        return _source_for(["run", *same, run])


def theory_rate(goal: Objective, d: int, groups: int, grid: tuple[float, ...]) -> float:
    """Return the rate of SGD's theory as a multiple of 1/d: the nearest one of a grid.

    Features lie in [-1, 1], so that |x|^2 <= d. Where the loss is smooth the rate is the inverse of
    its largest curvature: d for the squared loss, d/4 for the logistic one. Where it is not, T
    steps of D / (G sqrt(T)) are best for a minimum at the distance D and gradients of length G
    (Nemirovski et al. 2009): G = sqrt(d).

    >>> grid = (1.0, 2.0, 4.0, 8.0)
    >>> [theory_rate(objective(name), 90, 150, grid) for name in ("squared", "logistic", "hinge")]
    [1.0, 4.0, 4.0]
    """
    exact = {"squared": 1.0, "logistic": 4.0}.get(goal.name, goal.distance * sqrt(d / groups))
    return min(grid, key=lambda rate: abs(log2(rate / exact)))


def _strategy(way: Way) -> str | Strategy:
    """Return the strategy of a competitor."""
    return strategy_of(
        way.strategy,
        mechanism=way.mechanism or "auto",
        k=way.k,
        outputs=way.outputs,
        threshold=way.threshold,
        study=way.study,
    )


def _digest(document: Any) -> bytes:
    return hashlib.sha256(vehicle.canonical(document).encode()).digest()


def _source_for(document: Any) -> Source:
    return source(int.from_bytes(_digest(document)))


def run(job: ExperimentJob, *arrays: Any) -> list[Outcome]:
    """Return the outcome of each run of a job, of the shape that it says.

    The arrays are numbers on the scale of [-1, 1], or features and targets, or for the library's
    default the rows of a data set.
    """
    runs = range(job.first, job.first + job.runs)
    # With more threads a product of matrices may be rounded otherwise.
    with threadpool_limits(1):
        if isinstance(arrays[0], EncodedRows):
            return [_model_errors(job, number, *arrays).tolist() for number in runs]
        plain = [np.asarray(array) for array in arrays]  # cutting a memory map takes much longer
        if not job.task:
            return _mean_errors(job, runs, *plain)
        return [_model_errors(job, number, Arrays(*plain)).tolist() for number in runs]


def _mean_errors(job: ExperimentJob, runs: range, numbers: npt.NDArray[Any]) -> list[Outcome]:
    """Return the squared error of the mean, averaged over the attributes, of each run."""
    truth = numbers.mean(axis=0, dtype=np.float64)
    means = _cited_means if job.way.strategy == CITED else _coded_means
    found = (means(job, numbers, job.source(number)) for number in runs)
    return [float(np.mean((mean - truth) ** 2)) for mean in found]


def _coded_means(job: ExperimentJob, numbers: npt.NDArray[Any], random: Source) -> Floats:
    n, d = numbers.shape
    (part,) = _plan(job.way, job.epsilon, d).parts
    cells = np.zeros((1, part.starts[-1]), np.float64 if part.study else np.int64)
    for start in range(0, n, _AT_ONCE):
        part.simulate(Matrix(numbers[start : start + _AT_ONCE]), random, cells)
    mean: Floats = means_of_levels([(part, n, cells)], job.way.estimator)[0]
    return mean


def _cited_means(job: ExperimentJob, numbers: npt.NDArray[Any], random: Source) -> Floats:
    n, d = numbers.shape
    mean: Floats = CitedDuchi(job.epsilon, d).sums(numbers, 1, random)[0] / n
    return mean


def expected_error(job: ExperimentJob, numbers: npt.NDArray[Any]) -> float:
    """Return the mean that the errors of a job on means tend to, computed without any noise.

    Of very many rows some, spread evenly, are enough.
    """
    n, d = numbers.shape
    some = numbers[:: max(1, n // _ENOUGH)].astype(np.float64)
    if job.way.strategy == CITED:
        return CitedDuchi(job.epsilon, d).expected_error(some, n)
    plan = _plan(job.way, job.epsilon, d)
    return float(plan.expected_error(n, some, estimator=job.way.estimator, of="fleet") / d)


def _model_errors(job: ExperimentJob, number: int, examples: Arrays | EncodedRows) -> Floats:
    """Return the errors of the models of one fold: train and test, rates, replicates."""
    goal, n = objective(job.task), len(examples)
    again, fold = divmod(number, job.held)
    order = _order(job.seed, job.data, again, n)
    first, end = n * fold // job.folds, n * (fold + 1) // job.folds
    train = _task(job.way, goal, _chosen(examples, np.concatenate([order[:first], order[end:]])))
    test = _task(job.way, goal, _chosen(examples, order[first:end]))
    if job.way.server == "baseline":
        targets = train.examples.read(slice(None))[1]
        held = test.examples.read(slice(None))[1]
        constant = goal.constant(targets)
        errors = [goal.error(np.full(len(y), constant), y).mean() for y in (targets, held)]
        return np.reshape(np.array(errors, np.float64), (2, 1, 1))
    weights = np.concatenate(list(_models(job, train, job.source(number))))
    found = np.stack([train.error(weights), test.error(weights)])
    return found.reshape(job.shape[1:])


def _task(way: Way, goal: Objective, examples: "_Chosen | _Surveyed") -> Linear | Layered:
    """Return the model of a competitor on some rows: linear, or with a hidden layer."""
    if not way.hidden:
        return Linear(goal, examples)
    network = Network.perceptron(examples.dimensions, goal, hidden=[way.hidden])
    return Layered(network, examples)


def _models(job: ExperimentJob, train: Linear | Layered, random: Source) -> Iterator[Floats]:
    """Yield the weights of the models of one fold: for each rate, all replicates."""
    way, n, d = job.way, len(train), train.dimensions
    if way.server == "converged" and isinstance(train, Linear):
        yield converged(train)[None]
    elif way.server == "paper":
        rates = np.repeat(job.rates, job.replicates) * way.rate_unit / train.examples.dimensions
        if way.strategy == "directions":
            plan: Plan | NoPrivacy = Settings(job.epsilon, survey=None).plan_for(train)
            answers: Answers = Coded(plan.parts[0], way.estimator)
        elif way.hidden and not way.mechanism:
            plan = NoPrivacy(Schema.vector(d, BOUND))
            answers = Coded(plan.parts[0], way.estimator)
        else:
            answers = _answers(way, job.epsilon, d)
        yield trained(
            train,
            answers,
            rates.tolist(),
            random,
            group=-(-n // job.groups),
            alpha=REGULARIZATION,
        )
    elif way.server in ("noise-aware", "default"):
        settings = Settings(job.epsilon, survey="auto" if way.server == "default" else None)
        for source_of_one in random.spawn(job.replicates):
            training = settings.training(train, train.distance, source_of_one, shuffle=False)
            for _ in training:
                pass
            yield training.models
    else:
        settings = library_settings(way, job.epsilon, n, d)
        group = settings.group_size(d, n, train.objective)
        recipe = settings.recipe(d, -(-n // group), train.objective.distance)
        training = Training(
            train,
            Procedure((_gradient_plan(settings, d),), recipe, group),
            random,
            replicas=job.replicates,
            shuffle=False,  # the order is random already
        )
        for _ in training:
            pass
        yield training.models


def library_settings(way: Way, epsilon: float, vehicles: int, d: int) -> Settings:
    """Return how the library's Adam trains, which has rules of its own for rate and group size.

    >>> library_settings(Way("hm-tp", server="library"), 4.0, 90_000, d=90).group
    2700
    """
    return Settings(
        epsilon if way.mechanism else None,
        _strategy(way),
        group=auto_group(vehicles, 1 / d),  # as if each vehicle answered one coordinate
        alpha=REGULARIZATION,
        optimizer=Adam(estimator=way.estimator),
        reference="last",
    )


@lru_cache(maxsize=4)  # the runs of one job come one after the other
def _answers(way: Way, epsilon: float, d: int) -> Answers:
    """Return how a competitor of Algorithm 1 answers."""
    if not way.mechanism:
        return ClippedMean(BOUND)
    if way.strategy == CITED:
        return Cited(CitedDuchi(epsilon, d), BOUND)
    if way.mechanism == "laplace":
        return ClippedMean(BOUND, laplace_scale=2 * BOUND * d / epsilon)
    (part,) = _plan(way, epsilon, d).parts
    return Coded(part, way.estimator)


def converged(task: Linear) -> Floats:
    """Return the weights with the least regularized loss, without privacy.

    The bend of the hinge is rounded, so that its gradient changes continuously.
    """
    features, targets = task.examples.read(slice(None))
    x, y = np.asarray(features, np.float64), np.asarray(targets, np.float64)
    smooth = task.objective.name == "hinge"

    def loss(weights: Floats) -> tuple[float, Floats]:
        scores = x @ weights
        if smooth:
            short = (1 - y * scores) / _SMOOTHED
            each = _SMOOTHED * np.logaddexp(0.0, short)
            slopes = -y / (1 + np.exp(-np.clip(short, -500, 500)))
        else:
            each, slopes = task.objective.loss(scores, y), task.objective.slope(scores, y)
        penalty = REGULARIZATION / 2 * float(weights @ weights)
        return float(each.mean()) + penalty, slopes @ x / len(y) + REGULARIZATION * weights

    found = minimize(
        loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": _MOST_STEPS}
    )
    weights: Floats = found.x
    return weights


@final
@dataclass(frozen=True, eq=False)
class _Chosen:
    """Some of the examples, in some order."""

    examples: Arrays
    rows: Integers

    @property
    def dimensions(self) -> int:
        return self.examples.dimensions

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, rows: Rows) -> tuple[npt.NDArray[Any], Floats]:
        return self.examples.read(self.rows[rows])


@final
@dataclass(frozen=True, eq=False)
class _Surveyed:
    """Some rows of a data set, whose numbers a survey can ask for, in some order."""

    examples: EncodedRows
    rows: Integers

    @property
    def dimensions(self) -> int:
        return self.examples.dimensions

    @property
    def encoding(self) -> Features:
        return self.examples.encoding

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, rows: Rows) -> tuple[FeatureRows, Floats]:
        return self.examples.read(self.rows[rows])

    def units(self, rows: Rows) -> Floats:
        return self.examples.units(self.rows[rows])

    def scaled(self, scaling: Scaling) -> "_Surveyed":
        return replace(self, examples=self.examples.scaled(scaling))


def _chosen(examples: Arrays | EncodedRows, rows: Integers) -> "_Chosen | _Surveyed":
    return _Chosen(examples, rows) if isinstance(examples, Arrays) else _Surveyed(examples, rows)


@lru_cache(maxsize=1)  # the folds of one cross-validation come one after the other
def _order(seed: int, data: str, again: int, n: int) -> Integers:
    """Return the order in which rows are divided into folds, and asked."""
    return np.argsort(_source_for(["folds", seed, data, again]).words(n), kind="stable")


@lru_cache(maxsize=4)  # the runs of one job come one after the other
def _plan(way: Way, epsilon: float, d: int) -> Plan:
    return Plan(Schema.vector(d, BOUND), epsilon, _strategy(way))


@lru_cache(maxsize=4)
def _gradient_plan(settings: Settings, d: int) -> Plan | NoPrivacy:
    return settings.plan(d)
