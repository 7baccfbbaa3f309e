"""All that can be chosen about a training, and what follows from it by rule."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, Integers, epsilon, reals, whole
from fedldp.errors import DomainError
from fedldp.learn.features import Features
from fedldp.learn.optimizer import Recipe, auto_group, auto_rate
from fedldp.learn.tasks import Task
from fedldp.learn.training import Training
from fedldp.plan import Plan
from fedldp.randomness import Source
from fedldp.schema import Schema
from fedldp.strategies import PAPER_MECHANISM, as_printed, each_part
from fedldp.vehicle import exact

PAPER_REGULARIZATION = 1e-4  # lambda of the paper's experiments
PAPER_TOLERANCE = 1e-6  # "close enough": the paper gives no number


@final
@dataclass(frozen=True)
class Settings:
    """What vehicles and server agree on. Nothing here may be taken from the vehicles' data.

    A vehicle's gradient is clipped to +-`bound` in each coordinate. In each of its
    `participations` it spends an equal part of epsilon. `mechanism=None` is training without
    privacy, through the same code. `rate` and `group` are by default those of `auto_rate` and
    `auto_group`; the other choices are those of `Plan` and `Recipe`.

    >>> settings = Settings(epsilon=4.0)
    >>> settings.plan(33).bits, settings.group_size(33, vehicles=294_611)
    (11, 990)
    """

    epsilon: float
    mechanism: str | None = "near-zero"
    bound: float = 1.0
    k: int | str = "best"
    strategy: str = "sample"
    outputs: int | None = None
    threshold: int | str = "best"  # of the cube
    study: bool = False
    participations: int = 1
    group: int | str = "auto"
    max_rounds: int | None = None  # by default as many as there are groups
    rate: float | str = "auto"
    optimizer: str = Recipe.optimizer
    schedule: str = Recipe.schedule
    momentum: float = Recipe.momentum
    averaging: bool = Recipe.averaging
    regularization: float = Recipe.regularization
    tolerance: float = Recipe.tolerance
    estimator: str = Recipe.estimator
    reference: str = Features.reference  # how categories become features

    @classmethod
    def paper(
        cls,
        epsilon: float,
        mechanism: str | None = PAPER_MECHANISM,
        *,
        learning_rate: float | str = "auto",
        group: int | str = "auto",
        max_iter: int | None = None,
        tol: float = PAPER_TOLERANCE,
        regularization: float = PAPER_REGULARIZATION,
        outputs: int | None = None,
        study: bool = False,
    ) -> "Settings":
        """Return LDP-FedSGD as the paper prints it: its Algorithm 1 with its Algorithm 6.

        Each vehicle answers k = max(1, min(d, floor(epsilon / 2.5))) coordinates with epsilon/k
        each. The server multiplies the answers by d/k, divides their sum by the size of the group
        and takes a plain gradient step. The training ends when a step is shorter than `tol`, after
        `max_iter` rounds, or when no vehicle is left. The last label of a category is -1 in all its
        features. As in the paper's comparison, Laplace answers every coordinate with epsilon/d
        (`study` only) and Duchi et al. all of them at once.

        `study=True` takes the mechanisms in floating point, and the default their exact tables with
        as many `outputs` as you say: the paper tries 2001. The paper does not give learning rate,
        group size, tolerance or the largest number of rounds; by default `auto_rate` and
        `auto_group` choose the first two. The gradient of the regularization, which depends on no
        data, is added by the server.

        >>> settings = Settings.paper(5.0, learning_rate=0.1, group=1000)
        >>> settings.plan(94).parts[0].k, settings.estimator, settings.optimizer
        (2, 'horvitz-thompson', 'sgd')
        """
        choices = {} if mechanism is None else as_printed(mechanism)
        return cls(
            epsilon=epsilon,
            mechanism=mechanism,
            k="paper",
            outputs=outputs,
            study=study,
            group=group,
            max_rounds=max_iter,
            rate=learning_rate,
            optimizer="sgd",
            schedule="constant",
            momentum=0.0,
            averaging=False,
            regularization=regularization,
            tolerance=tol,
            estimator="horvitz-thompson",
            reference="last",
            **choices,
        )

    def __post_init__(self) -> None:
        epsilon(self.epsilon)
        if whole(self.participations, "participations") < 1:
            raise DomainError(f"participations must be at least 1; got {self.participations!r}.")
        if self.group != "auto" and whole(self.group, 'group must be "auto", or it') < 1:
            raise DomainError(f'group must be "auto" or at least 1; got {self.group!r}.')
        if self.max_rounds is not None and whole(self.max_rounds, "max_rounds") < 1:
            raise DomainError(f"max_rounds must be None or at least 1; got {self.max_rounds!r}.")
        if isinstance(self.rate, str) and self.rate != "auto":
            raise DomainError(f'rate must be "auto" or a positive number; got {self.rate!r}.')

    def plan(self, dimensions: int) -> Plan | Schema:
        """Return the plan for a gradient or, without a mechanism, its bare schema."""
        return self._plan(dimensions, self.participations)

    def _plan(self, dimensions: int, participations: int) -> Plan | Schema:
        schema = Schema.vector(dimensions, self.bound)
        if self.mechanism is None:
            return schema
        return Plan(
            schema,
            each_part(exact(self.epsilon), participations),
            self.mechanism,
            k=self.k,
            strategy=self.strategy,
            outputs=self.outputs,
            threshold=self.threshold,
            study=self.study,
        )

    def price(self, dimensions: int) -> float:
        """Return how many times the error of the mean gradient grows by the participations.

        Each vehicle answers r times instead of once, but with an r-th of epsilon. The error is that
        of small gradients.

        >>> round(Settings(epsilon=4.0, mechanism="hm-tp", participations=2).price(33), 1)
        3.6
        """
        several, once = self.plan(dimensions), self._plan(dimensions, 1)
        if not isinstance(several, Plan) or not isinstance(once, Plan):
            return 1.0
        zero = np.zeros((1, dimensions))
        return several.expected_error(self.participations, zero) / once.expected_error(1, zero)

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
        if self.mechanism is None:
            raise DomainError("without a mechanism there is no privacy: leave epsilons out.")
        found, places = np.unique(chosen, return_inverse=True)
        return [replace(self, epsilon=float(each)) for each in found], places

    def group_size(self, dimensions: int, vehicles: int) -> int:
        """Return how many vehicles are asked in a round."""
        if self.group != "auto":
            return int(self.group)
        plan = self.plan(dimensions)
        return auto_group(vehicles, plan.parts[0].share if isinstance(plan, Plan) else 1.0)

    def recipe(self, dimensions: int, rounds: int, distance: float) -> Recipe:
        """Return how the server steps, in so many rounds, to a minimum at such a distance."""
        rate = auto_rate(distance, dimensions, rounds) if self.rate == "auto" else self.rate
        return Recipe(
            rate=rate,  # type: ignore[arg-type]  # a Recipe checks it
            optimizer=self.optimizer,
            schedule=self.schedule,
            momentum=self.momentum,
            averaging=self.averaging,
            regularization=self.regularization,
            tolerance=self.tolerance,
            estimator=self.estimator,
        )

    def training(
        self,
        task: Task,
        distance: float,
        chance: Source,
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
        if self.max_rounds is not None:
            rounds = min(rounds, self.max_rounds)
        return Training(
            task,
            plans[0] if places is None else cast(list[Plan], plans),
            self.recipe(d, rounds, distance),
            chance,
            group=group,
            participations=self.participations,
            max_rounds=self.max_rounds,
            replicas=replicas,
            shuffle=shuffle,
            start=start,
            watch=watch,
            label=label,
            levels=places,
        )
