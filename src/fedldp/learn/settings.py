"""All that can be chosen about a training, and what follows from it by rule."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from inspect import signature
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.options import OneOf, Real, Whole, option, validate
from fedldp._internal.validation import Floats, Integers, epsilon, reals
from fedldp.errors import DomainError
from fedldp.estimate import HORVITZ_THOMPSON
from fedldp.learn.features import REFERENCES, Features
from fedldp.learn.optimizer import Recipe, auto_group, auto_rate
from fedldp.learn.privacy import NoPrivacy
from fedldp.learn.tasks import Task
from fedldp.learn.training import Training
from fedldp.plan import Plan
from fedldp.randomness import Source
from fedldp.schema import Schema
from fedldp.strategies import PAPER_MECHANISM, STRATEGIES, as_printed, each_part
from fedldp.vehicle import exact

PAPER_ALPHA = 1e-4  # lambda of the paper's experiments
PAPER_TOL = 1e-6  # "close enough": the paper gives no number


def _of_plan(name: str) -> Any:
    """Return the default of an option of `Plan`."""
    return signature(Plan).parameters[name].default


@final
@dataclass(frozen=True)
class Settings(Recipe):
    """What vehicles and server agree on. Nothing here may be taken from the vehicles' data.

    A vehicle's gradient is clipped to +-`bound` in each coordinate. In each of its
    `participations` it spends an equal part of epsilon. `mechanism=None` is training without
    privacy, through the same code. `learning_rate` and `group` are by default those of `auto_rate`
    and `auto_group`. How the server steps is described by `Recipe`; `mechanism`, `k`, `strategy`,
    `outputs`, `threshold` and `study` are described by `Plan`.

    >>> settings = Settings(epsilon=4.0)
    >>> settings.plan(33).bits, settings.group_size(33, vehicles=294_611)
    (11, 990)
    """

    epsilon: float = option(help="The privacy budget of a vehicle, for all that it sends.")
    mechanism: str | None = option(
        "near-zero",
        help="How numbers are made private: a name that `fedldp mechanisms` shows.",
    )
    bound: float = option(
        1.0, Real(0, above=True), help="Where each number of a gradient is clipped."
    )
    k: int | str = option(
        _of_plan("k"),
        Whole(1, words=("best", "paper")),
        help="How many coordinates each vehicle answers: best (for the error), paper (its rule), "
        "or a number.",
    )
    strategy: str = option(
        _of_plan("strategy"),
        OneOf(STRATEGIES),
        help="What each vehicle answers: k coordinates; all, each with a part of the budget; "
        "numbers and categories apart, as in the paper; a sign for each number.",
    )
    outputs: int | None = option(
        _of_plan("outputs"),
        Whole(1, optional=True),
        help="How many values a number may be sent as.  [default: the mechanism's own]",
    )
    threshold: int | str = option(_of_plan("threshold"), help="The threshold of the cube.")
    study: bool = option(
        _of_plan("study"),
        OneOf((True, False)),
        help="Noisy floats, as in the paper: never to be sent.",
    )
    participations: int = option(
        1, Whole(1), help="How often each vehicle answers, with a part of its budget each time."
    )
    group: int | str = option(
        "auto", Whole(1, words=("auto",)), help="Vehicles in a round; auto follows a rule."
    )
    max_iter: int | None = option(
        None,
        Whole(1, optional=True),
        help="Stop after this many rounds.  [default: when no vehicle is left]",
    )
    reference: str = option(
        Features.reference,
        OneOf(REFERENCES),
        help="Which label of a category has no feature of its own.",
    )

    @classmethod
    def paper(
        cls, epsilon: float, mechanism: str | None = PAPER_MECHANISM, **options: Any
    ) -> "Settings":
        """Return LDP-FedSGD as the paper prints it: its Algorithm 1 with its Algorithm 6.

        Each vehicle answers k = max(1, min(d, floor(epsilon / 2.5))) coordinates with epsilon/k
        each. The server multiplies the answers by d/k, divides their sum by the size of the group
        and takes a plain gradient step. The training ends when a step is shorter than `tol`, after
        `max_iter` rounds, or when no vehicle is left. The last label of a category is -1 in all its
        features. As in the paper's comparison, Laplace answers every coordinate with epsilon/d
        (`study` only) and Duchi et al. all of them at once.

        `options` are those that the paper leaves open: `learning_rate`, `group`, `max_iter`,
        `tol`, `alpha`, `outputs` and `study`. The paper does not give learning rate, group size,
        tolerance or the largest number of rounds; by default `auto_rate` and `auto_group` choose
        the first two. `study=True` takes the mechanisms in floating point, and the default their
        exact tables with as many `outputs` as you say: the paper tries 2001. The gradient of the
        penalty `alpha`, which depends on no data, is added by the server.

        >>> settings = Settings.paper(5.0, learning_rate=0.1, group=1000)
        >>> settings.plan(94).parts[0].k, settings.estimator, settings.optimizer
        (2, 'horvitz-thompson', 'sgd')
        """
        return cls(epsilon, mechanism, **paper_options(mechanism, options))

    def __post_init__(self) -> None:
        epsilon(self.epsilon)
        validate(self)

    @property
    def private(self) -> bool:
        """Whether there is a mechanism: without one, vehicles send their gradients as they are."""
        return self.mechanism is not None

    def plan(self, dimensions: int) -> Plan | NoPrivacy:
        """Return the plan for a gradient, or what stands for it without a mechanism."""
        return self._plan(dimensions, self.participations)

    def _plan(self, dimensions: int, participations: int) -> Plan | NoPrivacy:
        schema = Schema.vector(dimensions, self.bound)
        if not self.private:
            return NoPrivacy(schema)
        options = {name: getattr(self, name) for name in PLAN_OPTIONS}
        return Plan(schema, each_part(exact(self.epsilon), participations), **options)

    def price(self, dimensions: int) -> float:
        """Return how many times the error of the mean gradient grows by the participations.

        Each vehicle answers r times instead of once, but with an r-th of epsilon. The error is that
        of small gradients.

        >>> round(Settings(epsilon=4.0, mechanism="hm-tp", participations=2).price(33), 1)
        3.6
        """
        if not self.private:
            return 1.0
        zero = np.zeros((1, dimensions))
        several, once = (
            cast(Plan, self._plan(dimensions, times)).expected_error(times, zero)
            for times in (self.participations, 1)
        )
        return several / once

    def levels(self, epsilons: npt.ArrayLike) -> tuple[list["Settings"], Integers]:
        """Return the settings of each level, and the level of each vehicle.

        `epsilons` are what vehicles have chosen instead of `epsilon`, one for each. What they
        choose is public, and must not depend on their data.

        >>> levels, places = Settings(epsilon=1.0).levels([4.0, 1.0, 4.0])
        >>> [each.epsilon for each in levels], places
        ([1.0, 4.0], array([1, 0, 1]))
        """
        chosen = reals(epsilons, "epsilons")
        if chosen.ndim != 1 or not chosen.size:
            raise DomainError(
                f"epsilons must be a list, one for each vehicle; got {epsilons!r:.80}."
            )
        if not self.private:
            raise DomainError("without a mechanism there is no privacy: leave epsilons out.")
        found, places = np.unique(chosen, return_inverse=True)
        return [replace(self, epsilon=float(each)) for each in found], places

    def group_size(self, dimensions: int, vehicles: int) -> int:
        """Return how many vehicles are asked in a round."""
        if self.group != "auto":
            return int(self.group)
        return auto_group(vehicles, self.plan(dimensions).parts[0].share)

    def recipe(self, dimensions: int, rounds: int, distance: float) -> Recipe:
        """Return how the server steps to a minimum at this distance, in this many rounds."""
        options = {each.name: getattr(self, each.name) for each in fields(Recipe)}
        if self.learning_rate == "auto":
            options["learning_rate"] = auto_rate(distance, dimensions, rounds)
        return Recipe(**options)

    def training(
        self,
        task: Task,
        distance: float,
        source: Source,
        *,
        replicas: int = 1,
        shuffle: bool = True,
        start: Floats | None = None,
        watch: Callable[[Floats], Floats] | None = None,
        label: str = "",
        epsilons: npt.ArrayLike | None = None,
    ) -> Training:
        """Return a training of the task; iterate over it to run it.

        `epsilons` are for vehicles that choose their own: see `levels`. The group is then as for
        the most cautious ones.
        """
        d, levels, places = task.dimensions, [self], None
        if epsilons is not None:
            levels, places = self.levels(epsilons)
        plans = [each.plan(d) for each in levels]
        group = levels[0].group_size(d, len(task))
        rounds = max(1, -(-len(task) // group)) * self.participations
        if self.max_iter is not None:
            rounds = min(rounds, self.max_iter)
        return Training(
            task,
            plans,
            self.recipe(d, rounds, distance),
            source,
            group=group,
            participations=self.participations,
            max_iter=self.max_iter,
            replicas=replicas,
            shuffle=shuffle,
            start=start,
            watch=watch,
            label=label,
            levels=places,
        )


PLAN_OPTIONS = tuple(  # that a plan for gradients is made with
    each.name
    for each in fields(Settings)
    if each.name in signature(Plan).parameters and each.name not in ("epsilon", "estimator")
)

PAPER_DECIDES: Mapping[str, Any] = {
    "k": "paper",
    "strategy": Settings.strategy,  # of most mechanisms: see `as_printed`
    "threshold": Settings.threshold,
    "bound": Settings.bound,
    "participations": Settings.participations,
    "optimizer": "sgd",
    "schedule": "constant",
    "momentum": 0.0,
    "average": False,
    "estimator": HORVITZ_THOMPSON,
    "reference": "last",
}


def paper_options(mechanism: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of LDP-FedSGD as the paper prints it, completed by those it leaves open.

    >>> paper_options("hm-tp", {"tol": 0.0})["tol"], paper_options("duchi", {})["strategy"]
    (0.0, 'cube')
    """
    if refused := [name for name in given if name in PAPER_DECIDES]:
        raise DomainError(f"the paper decides {' and '.join(refused)}: leave it out.")
    strategy = {} if mechanism is None else as_printed(mechanism)
    return {"alpha": PAPER_ALPHA, "tol": PAPER_TOL, **PAPER_DECIDES, **strategy, **given}
