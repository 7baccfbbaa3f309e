"""The experiments: some runs of one competitor, at one epsilon, on one data set.

In the n-th run all competitors have the same folds, so that what they differ by is the mechanism
and its noise. At one epsilon they draw from the same stream, but each makes of it what it will.
"""

import hashlib
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from fedldp import __version__, source, vehicle
from fedldp._internal.validation import Floats, Integers
from fedldp.learn.examples import Arrays, Rows
from fedldp.learn.objectives import objective
from fedldp.learn.optimizer import auto_group
from fedldp.learn.privacy import NoPrivacy
from fedldp.learn.settings import PLAN_OPTIONS, Settings
from fedldp.learn.tasks import Linear
from fedldp.learn.training import Training
from fedldp.plan.parts import Matrix
from fedldp.plan.plan import Plan
from fedldp.randomness import Source
from fedldp.results.estimate import means_of_levels
from fedldp.schema.schema import Schema
from fedldp_reproduction.figures import Way

VERSION = 3  # part of the keys of finished jobs: raise it when results change between releases

REGULARIZATION = 1e-4  # lambda of the paper
BOUND = 1.0  # gradients are clipped to it in each coordinate
ROUNDS = 150  # of Algorithm 1

# Vehicles simulated together: their values stay in the cache, and in arrays so small the allocator
# does not go to the system for each, which would be half of the work.
_AT_ONCE = 1 << 13
_ENOUGH = 1 << 16  # rows that tell the mean of a variance to a part in a thousand


@final
@dataclass(frozen=True)
class Job:
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
    rate: float = 1.0  # the learning rate, as a multiple of the rule's

    @property
    def key(self) -> str:
        """What its results are kept under."""
        return _digest([__version__, VERSION, asdict(self)]).hex()

    def source(self, run: int) -> Source:
        """Return the random source of one run, which is the same for all ways."""
        same = [self.seed, self.task, self.data, self.epsilon, self.folds, self.held]
        return _source_for(["run", *same, run])


def settings_of(way: Way, epsilon: float, vehicles: int, d: int, rate: float = 1.0) -> Settings:
    """Return how a competitor trains: its plan, and one public rule for rate and group size.

    The rule is the same for all competitors, at every epsilon, and without privacy too: it depends
    on public numbers alone. The paper gives no rate and no group size. For its Algorithm 1
    (`Settings.paper`) the fleet is divided into 150 groups and the rate is 1/d: features lie in
    [-1, 1], so that |x|^2 <= d, and a larger step could overshoot the minimum of the squared loss
    of one example. The library's optimizer has rules of its own. `rate` multiplies the rate.

    >>> way = Way("hm-tp")
    >>> settings = settings_of(way, epsilon=4.0, vehicles=90_000, d=90)
    >>> settings.group, round(90 * settings.learning_rate, 9), settings.estimator
    (600, 1.0, 'horvitz-thompson')
    >>> settings_of(Way("", server="library"), 4.0, 90_000, 90).group
    2700
    """
    mechanism = way.mechanism or None
    if way.server == "paper":
        return Settings.paper(
            epsilon,
            mechanism,
            learning_rate=rate / d,
            group=-(-vehicles // ROUNDS),
            alpha=REGULARIZATION,
            outputs=way.outputs,
            study=way.study,
        )
    return Settings(
        epsilon,
        **_plan_options(way) | {"mechanism": mechanism},
        group=auto_group(vehicles, 1 / d),  # as if each vehicle answered one coordinate
        alpha=REGULARIZATION,
        estimator=way.estimator,
        reference="last",
    )


def _plan_options(way: Way) -> dict[str, Any]:
    """Return the options of a plan that a competitor has."""
    return {name: getattr(way, name) for name in PLAN_OPTIONS}


def _digest(document: Any) -> bytes:
    return hashlib.sha256(vehicle.canonical(document).encode()).digest()


def _source_for(document: Any) -> Source:
    return source(int.from_bytes(_digest(document)))


def run(job: Job, *arrays: npt.NDArray[Any]) -> list[float]:
    """Return the error of each run of a job: of means, or of models on what was held out.

    The arrays are numbers on the scale of [-1, 1], or features and targets.
    """
    plain = [np.asarray(array) for array in arrays]  # cutting a memory map takes much longer
    runs = range(job.first, job.first + job.runs)
    # With more threads a product of matrices may be rounded otherwise.
    with threadpool_limits(1):
        if not job.task:
            return _mean_errors(job, runs, *plain)
        return [_model_error(job, number, Arrays(*plain)) for number in runs]


def _mean_errors(job: Job, runs: range, numbers: npt.NDArray[Any]) -> list[float]:
    """Return the squared error of the mean, averaged over the attributes, of each run."""
    n, d = numbers.shape
    truth = numbers.mean(axis=0, dtype=np.float64)
    (part,) = _plan(job.way, job.epsilon, d).parts
    errors = []
    for number in runs:
        random = job.source(number)
        cells = np.zeros((1, part.starts[-1]), np.float64 if part.study else np.int64)
        for start in range(0, n, _AT_ONCE):
            part.simulate(Matrix(numbers[start : start + _AT_ONCE]), random, cells)
        found = means_of_levels([(part, n, cells)], job.way.estimator)
        errors.append(float(np.mean((found - truth) ** 2)))
    return errors


def expected_error(job: Job, numbers: npt.NDArray[Any]) -> float:
    """Return the mean that the errors of a job on means tend to, computed without any noise.

    Of very many rows some, spread evenly, are enough.
    """
    n, d = numbers.shape
    some = numbers[:: max(1, n // _ENOUGH)].astype(np.float64)
    plan = _plan(job.way, job.epsilon, d)
    return float(plan.expected_error(n, some, estimator=job.way.estimator, of="fleet") / d)


def _model_error(job: Job, number: int, examples: Arrays) -> float:
    """Return the error, on the fold that is held out, of a model trained on the others."""
    goal, n, d = objective(job.task), len(examples), examples.dimensions
    again, fold = divmod(number, job.held)
    order = _order(job.seed, job.data, again, n)
    first, end = n * fold // job.folds, n * (fold + 1) // job.folds
    train = _Chosen(examples, np.concatenate([order[:first], order[end:]]))
    task, test = Linear(goal, train), Linear(goal, _Chosen(examples, order[first:end]))
    settings = settings_of(job.way, job.epsilon, len(train), d, job.rate)
    group = settings.group_size(d, len(train))
    training = Training(
        task,
        _gradient_plan(settings, d),
        settings.recipe(d, -(-len(train) // group), goal.distance),
        job.source(number),
        group=group,
        shuffle=False,  # the order is random already
    )
    for _ in training:
        pass
    return float(test.error(training.models)[0])


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


@lru_cache(maxsize=1)  # the folds of one cross-validation come one after the other
def _order(seed: int, data: str, again: int, n: int) -> Integers:
    """Return the order in which rows are divided into folds, and asked."""
    return np.argsort(_source_for(["folds", seed, data, again]).words(n), kind="stable")


@lru_cache(maxsize=4)  # the runs of one job come one after the other
def _plan(way: Way, epsilon: float, d: int) -> Plan:
    return Plan(Schema.vector(d, BOUND), epsilon, **_plan_options(way))


@lru_cache(maxsize=4)
def _gradient_plan(settings: Settings, d: int) -> Plan | NoPrivacy:
    return settings.plan(d)
