"""The options of a training, and what follows from them by rule."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from inspect import signature
from typing import cast, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.options import (
    OneKind,
    OneOf,
    Real,
    Whole,
    document,
    option,
    options,
    validate,
)
from fedldp._internal.validation import Floats, Integers, reals
from fedldp._internal.validation import epsilon as check_epsilon
from fedldp.errors import DomainError
from fedldp.learn.clipping import Clip
from fedldp.learn.features import REFERENCES
from fedldp.learn.model import Model
from fedldp.learn.networks import LINEAR_LENGTH
from fedldp.learn.noise_aware import Prior, auto_aware_group
from fedldp.learn.objectives import Objective
from fedldp.learn.optimizer import (
    AUTO,
    LINEAR,
    OPTIMIZERS,
    SGD,
    Adam,
    NoiseAware,
    Optimizer,
    Recipe,
    State,
    auto_group,
    auto_rate,
    penalty,
)
from fedldp.learn.privacy import NoPrivacy
from fedldp.learn.survey import (
    SURVEYS,
    TARGET_SHARE,
    Survey,
    asks_target,
    choose,
    share_beyond,
    width_of,
)
from fedldp.learn.tasks import Task
from fedldp.learn.training import Procedure, Training
from fedldp.mechanisms import AnyMechanism
from fedldp.plan.plan import Plan
from fedldp.plan.strategies import (
    PAPER_MECHANISM,
    STRATEGIES,
    STRATEGY,
    Directions,
    Strategy,
    as_printed,
    each_part,
)
from fedldp.randomness import Source
from fedldp.results.estimate import HORVITZ_THOMPSON
from fedldp.schema.schema import Schema
from fedldp.vehicle import exact

PAPER_ALPHA = 1e-4  # lambda of the paper's experiments
PAPER_TOL = 1e-6  # "close enough": the paper gives no number


@final
@document()
@dataclass(frozen=True)
class Settings:
    """The options of a training. They are public, and must not depend on the vehicles' data.

    By default a vehicle answers its whole gradient at once, with one of some public directions, and
    its length is clipped to `bound`. With other strategies than `Directions`, each coordinate is
    clipped to +-`bound`. In each of its `participations` a vehicle spends an equal part of epsilon.
    `epsilon=None` is training without privacy, through the same code.

    The server of a linear model with directions is noise-aware by default, and a part of the fleet
    is surveyed first: see `fedldp.learn.noise_aware` and `fedldp.learn.survey`. Otherwise Adam
    steps. The learning rate and `group` are by default those of `auto_rate` and `group_size`.

    Parameters
    ----------
    {options}

    Raises
    ------
    DomainError
        If an option is invalid.

    See Also
    --------
    Adam, SGD, NoiseAware : How the server makes a step.
    fedldp.Plan : More about strategies.

    Examples
    --------
    >>> from fedldp.learn import objective
    >>> settings = Settings(epsilon=4.0)
    >>> settings.strategy.name, settings.plan(36).bits
    ('directions', 30)
    >>> settings.group_size(36, 294_611, objective("logistic"))
    590
    >>> settings = Settings(epsilon=4.0, strategy="sample", optimizer="adam")
    >>> settings.strategy.name, settings.plan(33).bits, settings.group_size(33, vehicles=294_611)
    ('sample', 11, 990)
    >>> round(settings.recipe(33, rounds=300, distance=8.0).rate, 2)
    0.08
    """

    epsilon: float | None = option(
        help="The privacy budget of a vehicle, for all that it sends; None trains without privacy."
    )
    strategy: str | Strategy = option(  # noqa: RUF009 (options are frozen)
        AUTO,
        STRATEGY,
        help="What each vehicle answers. directions (auto): one direction for all coordinates; "
        "sample: k coordinates; split: all, each with a part of the budget; paper: numbers and "
        "categories apart, as in the paper; cube: a sign for each number.",
    )
    bound: float | str = option(
        AUTO,
        Real(0, above=True, words=(AUTO,)),
        help="The length to which a gradient is clipped or, without directions, the bound of its "
        "numbers. auto is 1, with three exceptions for directions: 1.41 for several labels; for "
        "linear regression a length that grows with the fleet and epsilon; and for linear models "
        "without privacy a length that clips almost nothing.",
    )
    participations: int = option(
        1, Whole(1), help="How often each vehicle answers, with a part of its budget each time."
    )
    group: int | str = option(
        "auto",
        Whole(1, words=("auto",)),
        help="Vehicles in a round; auto divides the fleet into 10 to 500 rounds, more for more "
        "vehicles.",
    )
    max_iter: int | None = option(
        None,
        Whole(1, optional=True),
        help="Stop after this many rounds.  [default: when no vehicle is left]",
    )
    reference: str = option(
        "none",
        OneOf(REFERENCES),
        help="Which label of a category has no feature of its own; with none they are 0 and 1.",
    )

    _: KW_ONLY
    optimizer: str | Optimizer = option(  # noqa: RUF009 (options are frozen)
        AUTO,
        OneKind(OPTIMIZERS, (AUTO,)),
        help="How the server steps; auto is noise-aware for a linear model with directions, and "
        "adam otherwise.",
    )
    alpha: float = penalty()
    survey: str | None = option(
        AUTO,
        OneOf(SURVEYS),
        help="What a noise-aware server first asks a part of the fleet about its numbers. scale: "
        "centers and scales; whiten: correlations, too; none: nothing; auto decides from epsilon "
        "and the size of the fleet. For linear regression, it also asks others about the target.",
    )
    survey_share: float = option(
        0.1,
        Real(0, 1, above=True),
        help="The share of the fleet that is surveyed about its numbers; 0.4 times as many are "
        "surveyed about the target.",
    )

    @classmethod
    def paper(
        cls,
        epsilon: float | None,
        mechanism: AnyMechanism = PAPER_MECHANISM,
        *,
        learning_rate: float | str = AUTO,
        group: int | str = "auto",
        max_iter: int | None = None,
        tol: float = PAPER_TOL,
        alpha: float = PAPER_ALPHA,
        outputs: int | None = None,
        study: bool = False,
    ) -> "Settings":
        """Return LDP-FedSGD exactly as in the paper: its Algorithm 1 with its Algorithm 6.

        Each vehicle answers k = max(1, min(d, floor(epsilon / 2.5))) coordinates with epsilon/k
        each. The server multiplies the answers by d/k, divides their sum by the size of the group
        and makes a plain gradient step. The training ends when a step is shorter than `tol`, after
        `max_iter` rounds, or when no vehicle is left. The last label of a category is -1 in all its
        features. As in the paper's comparison, Laplace answers every coordinate with epsilon/d
        (`study` only) and Duchi et al. all of them at once.

        Parameters
        ----------
        epsilon : float or None
            The privacy budget of a vehicle; None is without privacy.
        mechanism : str, default="hm-tp"
            One of the paper's mechanisms.
        learning_rate : float or "auto", default="auto"
            The length of a step, which the paper leaves open; "auto" is `auto_rate`.
        group : int or "auto", default="auto"
            Vehicles in a round, which the paper leaves open; "auto" is `auto_group`.
        max_iter : int, optional
            The largest number of rounds. By default, rounds end when no vehicle is left.
        tol : float, default=1e-6
            Stop when a step is shorter than this.
        alpha : float, default=1e-4
            The weight of the penalty. The server adds its gradient, which depends on no data.
        outputs : int, optional
            The number of values of the exact tables; by default 2001, as in the experiments.
        study : bool, default=False
            Compute mechanisms in floating point.

        Returns
        -------
        Settings
            The settings.

        Raises
        ------
        DomainError
            If a parameter is invalid.

        Examples
        --------
        >>> settings = Settings.paper(5.0, learning_rate=0.1, group=1000)
        >>> settings.plan(94).parts[0].k, settings.optimizer.estimator
        (2, 'horvitz-thompson')
        """
        return cls(
            epsilon,
            as_printed(mechanism, outputs, study),
            bound=1.0,
            group=group,
            max_iter=max_iter,
            reference="last",
            optimizer=SGD(
                learning_rate,
                momentum=0.0,
                schedule="constant",
                average=False,
                tol=tol,
                estimator=HORVITZ_THOMPSON,
            ),
            alpha=alpha,
            survey=None,
        )

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            check_epsilon(self.epsilon)
        validate(self)
        if self.strategy == AUTO:
            object.__setattr__(self, "strategy", Directions())

    @property
    def private(self) -> bool:
        """Whether vehicles spend a budget; if not, they send their gradients without noise."""
        return self.epsilon is not None

    @property
    def budget(self) -> float:
        """The epsilon of a vehicle; `DomainError` without privacy."""
        if self.epsilon is None:
            raise DomainError("this needs privacy: give an epsilon; got epsilon=None.")
        return self.epsilon

    @property
    def _takes_length(self) -> bool:
        """Whether the length of a gradient is clipped, and not each number."""
        return cast(Strategy, self.strategy).takes_length

    def plan(
        self, dimensions: int, length: float = 1.0, mean_length: float = LINEAR_LENGTH
    ) -> Plan | NoPrivacy:
        """Return the plan for a gradient.

        Parameters
        ----------
        dimensions : int
            The number of weights of the model.
        length : float, default=1.0
            Where the objective wants the length of a gradient to be clipped, if `bound` is "auto".
        mean_length : float, default=0.3
            The mean length of gradients, if `mean_length` is "auto".

        Returns
        -------
        Plan or NoPrivacy
            The plan of one report; `NoPrivacy` without a mechanism.
        """
        return self._plan(dimensions, self.participations, length, mean_length)

    def plan_for(self, task: Task) -> Plan | NoPrivacy:
        """Return the plan for the gradient of a task.

        Parameters
        ----------
        task : Task
            The model to train.

        Returns
        -------
        Plan or NoPrivacy
            The plan of one report; `NoPrivacy` without a mechanism.

        Examples
        --------
        >>> from fedldp.learn import Arrays, Linear, objective
        >>> task = Linear(objective("squared"), Arrays(np.ones((2, 3)), np.zeros(2)))
        >>> Settings(epsilon=4.0).plan_for(task).schema.attributes[0].inputs.length
        0.553
        """
        clip = self._clip_for_task(
            task, self.survey_for(task.numbers, len(task), task.prior is not None)
        )
        return self.plan(task.dimensions, clip.length, clip.mean_length)

    def _survey_for_task(self, task: Task) -> Survey | None:
        return self.survey_for(task.numbers, len(task), task.prior is not None)

    def _clip_for_task(self, task: Task, survey: Survey | None) -> Clip:
        """Return where the gradients of a task are clipped, if a survey comes first."""
        if survey is not None:
            task = task.scaled(survey.start)
        clip = self.clip_for(task.prior, len(task))
        return clip or Clip(task.length, task.mean_length)

    def clip_for_model(self, model: Model, survey: Survey | None, vehicles: int) -> Clip:
        """Return where the gradients of a model are clipped.

        Parameters
        ----------
        model : Model
            The model that a fleet trains.
        survey : Survey or None
            The survey of its numbers.
        vehicles : int
            The number of vehicles in the fleet.

        Returns
        -------
        fedldp.learn.clipping.Clip
            The clip.

        Examples
        --------
        >>> from fedldp import Number
        >>> model = Model("squared", Schema.of(x=(-1, 1)), Number("y", -1, 1), [0.0, 0.0])
        >>> Settings(1.0).clip_for_model(model, None, 10_000).length < 1
        True
        """
        if survey is not None:
            model = model.scaled(survey.start)
        clip = self.clip_for(model.prior, vehicles)
        return clip or Clip(model.goal.length, model.network.mean_length)

    def clip_for(self, prior: Prior | None, vehicles: int) -> Clip | None:
        """Return where the gradients of a linear model are clipped, if a rule decides it.

        For a regression it depends on the fleet. Without privacy next to nothing is clipped.

        Parameters
        ----------
        prior : Prior or None
            What is known about the model, after a survey if there is one.
        vehicles : int
            The number of vehicles in the fleet.

        Returns
        -------
        fedldp.learn.clipping.Clip or None
            The clip; None where it is that of the objective.

        Examples
        --------
        >>> from fedldp.learn import objective
        >>> prior = Prior.of_numbers(5, objective("squared"))
        >>> [Settings(1.0, survey=None).clip_for(prior, n).length for n in (10_000, 1_000_000)]
        [0.601, 0.905]
        """
        if prior is None or not self._takes_length:
            return None
        if not self.private and isinstance(self.bound, str):
            return Clip.loose(prior)
        if prior.objective.classifies:
            return None
        if not isinstance(self.bound, str):
            return Clip.at(self.bound, prior.length)
        unit = cast(Plan, self.plan(len(prior.squares)))
        ((coder, _),) = unit.parts[0].asked
        reports = max(1, vehicles) * self.participations
        width, vehicles_asked = 1.0, self._asked_about_target(vehicles)
        if vehicles_asked:
            width = width_of(share_beyond(vehicles_asked, self.epsilon))
        return Clip.of(prior, float(coder.noise_at(LINEAR_LENGTH)) / reports, width)

    def _plan(
        self,
        dimensions: int,
        participations: int,
        length: float = 1.0,
        mean_length: float = LINEAR_LENGTH,
    ) -> Plan | NoPrivacy:
        strategy = cast(Strategy, self.strategy).for_gradients(mean_length)
        if strategy.takes_length:
            schema = Schema.vector(dimensions, length=self._bound(length))
        else:
            schema = Schema.vector(dimensions, self._bound(1.0))
        if self.epsilon is None:
            return NoPrivacy(schema)
        return Plan(schema, each_part(exact(self.epsilon), participations), strategy)

    def _bound(self, rule: float) -> float:
        """Return the bound as a number, given what "auto" is."""
        return rule if isinstance(self.bound, str) else self.bound

    def price(self, dimensions: int) -> float:
        """Return how much larger the error of the mean gradient is than with one participation.

        With r participations each vehicle answers r times, but each time with an r-th of epsilon.
        The error is that of small gradients.

        Parameters
        ----------
        dimensions : int
            The number of weights of the model.

        Returns
        -------
        float
            The ratio of the squared errors, at least 1 in practice.

        Examples
        --------
        >>> from fedldp.plan.strategies import Sample
        >>> round(Settings(4.0, Sample(mechanism="hm-tp"), participations=2).price(33), 1)
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
        """Return the settings for vehicles that choose their own epsilon.

        Parameters
        ----------
        epsilons : array-like of shape (vehicles,)
            The epsilon of each vehicle, instead of `epsilon`. It is public, and must not depend on
            the vehicle's data.

        Returns
        -------
        levels : list of Settings
            The settings for each different epsilon, in ascending order.
        places : ndarray of int of shape (vehicles,)
            The index in `levels` of each vehicle.

        Raises
        ------
        DomainError
            If the epsilons are invalid, or there is no mechanism.

        Examples
        --------
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
            raise DomainError("without privacy there are no epsilons: leave them out.")
        distinct, places = np.unique(chosen, return_inverse=True)
        return [replace(self, epsilon=float(epsilon)) for epsilon in distinct], places

    def optimizer_for(self, linear: bool = True) -> Optimizer:
        """Return the optimizer that is used, if it may be "auto".

        Parameters
        ----------
        linear : bool, default=True
            Whether the model is linear.

        Returns
        -------
        Optimizer
            The optimizer.

        Examples
        --------
        >>> settings = Settings(epsilon=4.0)
        >>> settings.optimizer_for().name, settings.optimizer_for(linear=False).name
        ('noise-aware', 'adam')
        """
        if not isinstance(self.optimizer, str):
            return self.optimizer
        return NoiseAware() if linear and self._takes_length else Adam()

    def _surveys_by_default(self, linear: bool) -> bool:
        """Return whether somebody is surveyed if `survey` is "auto"."""
        if self.participations > 1:
            return False
        if self.optimizer_for().needs_prior:
            return True
        return not linear and self._takes_length and isinstance(self.optimizer, Adam)

    def survey_for(self, numbers: int, vehicles: int, linear: bool = True) -> Survey | None:
        """Return the survey that a part of the fleet answers first.

        Parameters
        ----------
        numbers : int
            How many numbers a row has.
        vehicles : int
            The number of vehicles in the fleet.
        linear : bool, default=True
            Whether the model is linear.

        Returns
        -------
        Survey or None
            The survey; None if nobody is surveyed.

        Examples
        --------
        >>> Settings(epsilon=4.0, survey=None).survey_for(3, vehicles=100_000) is None
        True
        """
        if self.survey == AUTO and not self._surveys_by_default(linear):
            return None
        asked = round(self.survey_share * vehicles)
        kind = choose(self.survey, numbers, asked, self.epsilon)
        return None if kind is None else Survey(kind, numbers, self.epsilon)

    def target_survey_for(self, clip: Clip | None, vehicles: int) -> Survey | None:
        """Return the survey of the target of a linear regression.

        Parameters
        ----------
        clip : fedldp.learn.clipping.Clip or None
            Where gradients are clipped, as `clip_for` returns it.
        vehicles : int
            The number of vehicles in the fleet.

        Returns
        -------
        Survey or None
            The survey; None for other models, without privacy, or if nobody is surveyed.

        Examples
        --------
        >>> from fedldp.learn import objective
        >>> prior, settings = Prior.of_numbers(5, objective("squared")), Settings(1.0)
        >>> settings.target_survey_for(settings.clip_for(prior, 20_000), 20_000).kind
        'target'
        """
        if clip is None or clip.spreads is None:
            return None
        asked = self._asked_about_target(vehicles)
        return Survey.of_target(self.epsilon, asked, clip.spreads) if asked else None

    def _asked_about_target(self, vehicles: int) -> int:
        """Return how many vehicles of a linear regression are asked about their target."""
        if self.survey == AUTO and not self._surveys_by_default(linear=True):
            return 0
        asked = round(self.target_share * vehicles)
        return asked if self.private and asks_target(self.survey, asked, self.epsilon) else 0

    @property
    def target_share(self) -> float:
        """The share of the fleet that a survey of the target asks."""
        return TARGET_SHARE * self.survey_share

    def asked_for_gradients(self, task: Task) -> int:
        """Return how many vehicles are asked for a gradient, and not by a survey.

        Parameters
        ----------
        task : Task
            The model to train, and the data of the vehicles.

        Returns
        -------
        int
            The number of vehicles.

        Examples
        --------
        >>> from fedldp.learn import Arrays, Linear, objective
        >>> task = Linear(objective("squared"), Arrays(np.ones((20_000, 2)), np.zeros(20_000)))
        >>> Settings(1.0).asked_for_gradients(task)
        19200
        """
        survey = self._survey_for_task(task)
        target = self.target_survey_for(self._clip_for_task(task, survey), len(task))
        return len(task) - self.surveyed(survey, target, len(task))

    def surveyed(self, survey: Survey | None, target: Survey | None, vehicles: int) -> int:
        """Return how many vehicles the surveys of numbers and target ask.

        Parameters
        ----------
        survey, target : Survey or None
            The surveys, as `survey_for` and `target_survey_for` return them.
        vehicles : int
            The number of vehicles in the fleet.

        Returns
        -------
        int
            The number of vehicles, which are then not asked for a gradient.

        Examples
        --------
        >>> Settings(1.0).surveyed(Survey("scale", 3, 1.0), None, vehicles=20_000)
        2000
        """
        of_numbers = 0 if survey is None else round(self.survey_share * vehicles)
        return of_numbers + (0 if target is None else round(self.target_share * vehicles))

    def group_size(
        self, dimensions: int, vehicles: int, goal: Objective | None = None, length: float = 1.0
    ) -> int:
        """Return how many vehicles are asked in a round.

        Parameters
        ----------
        dimensions : int
            The number of weights of the model.
        vehicles : int
            The number of vehicles that are asked for gradients.
        goal : Objective, optional
            What a linear model minimizes; None for other models.
        length : float, default=1.0
            Where the length of a gradient is clipped, if `bound` is "auto".

        Returns
        -------
        int
            `group`, or the result of a rule if it is "auto".
        """
        if self.group != "auto":
            return int(self.group)
        plan = self.plan(dimensions, length)
        if goal is None or not self.optimizer_for(linear=True).needs_prior:
            return auto_group(vehicles, plan.parts[0].share)
        return auto_aware_group(goal, vehicles, _variance_of_a_report(plan, goal))

    def recipe(self, dimensions: int, rounds: int, distance: float, linear: bool = True) -> Recipe:
        """Return how the server steps, with a learning rate that is a number.

        Parameters
        ----------
        dimensions : int
            The number of weights of the model.
        rounds : int
            The number of rounds.
        distance : float
            How far from 0 the best weights may be: `Objective.distance`.
        linear : bool, default=True
            Whether the model is linear.

        Returns
        -------
        Recipe
            The recipe.
        """
        optimizer = self.optimizer_for(linear)
        falls = not linear and self._takes_length
        rate = auto_rate(distance, dimensions, rounds)
        optimizer = optimizer.resolve(rate, LINEAR if falls else "constant")
        falling = optimizer.steps.schedule == LINEAR
        return Recipe(optimizer, self.alpha, rounds if falling else None)

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
        state: State | None = None,
    ) -> Training:
        """Return a training with these settings; iterate over it to run it.

        Parameters
        ----------
        task : Linear or another task
            The model to train, and the data of the vehicles.
        distance : float
            How far from 0 the best weights may be: `Objective.distance`.
        source : Source
            The random source.
        replicas, shuffle, start, watch, label, state
            See `Training`. With a state there is no survey: it was made before.
        epsilons : array-like of shape (vehicles,), optional
            The epsilon of each vehicle, if they choose their own: see `levels`. The size of a group
            is then that for the smallest epsilon.

        Returns
        -------
        Training
            The training, before its first round.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp.learn import Arrays, Linear, objective
        >>> x = np.c_[fedldp.source(1).uniform(2000) * 2 - 1, np.ones(2000)]
        >>> logistic = objective("logistic")
        >>> task = Linear(logistic, Arrays(x, np.sign(x[:, 0])))
        >>> training = Settings(epsilon=4.0).training(task, logistic.distance, fedldp.source(2))
        >>> *_, last = training
        >>> last.reports, float(last.epsilon)
        (2000, 4.0)
        """
        d, levels, places = task.dimensions, [self], None
        if epsilons is not None:
            levels, places = self.levels(epsilons)
        asks = state is None and (self.survey != AUTO or (replicas == 1 and epsilons is None))
        survey = self._survey_for_task(task) if asks else None
        clip = levels[0]._clip_for_task(task, survey)
        target = self.target_survey_for(clip, len(task)) if asks else None
        plans = [level.plan(d, clip.length, clip.mean_length) for level in levels]
        linear = task.prior is not None
        vehicles_left = len(task) - self.surveyed(survey, target, len(task))
        goal = None if task.prior is None else task.prior.objective
        group = levels[0].group_size(d, vehicles_left, goal, clip.length)
        rounds = max(1, -(-vehicles_left // group)) * self.participations
        if self.max_iter is not None:
            rounds = min(rounds, self.max_iter)
        before = 0 if state is None else state.round
        procedure = Procedure(
            tuple(plans),
            self.recipe(d, rounds + before, distance, linear),
            group,
            self.participations,
            self.max_iter,
            levels=places,
            survey=survey,
            survey_share=self.survey_share,
            target_survey=target,
            target_share=self.target_share,
        )
        return Training(
            task,
            procedure,
            source,
            replicas=replicas,
            shuffle=shuffle,
            start=start,
            watch=watch,
            label=label,
            state=state,
        )


def _variance_of_a_report(plan: Plan | NoPrivacy, goal: Objective) -> float:
    """Return the most that the variance of a coordinate of one report is, by its public length.

    Its noise is one part of it. The other is that gradients differ between vehicles.
    """
    if isinstance(plan, NoPrivacy):
        return (LINEAR_LENGTH * goal.length) ** 2
    (part,) = plan.parts
    ((coder, attribute),) = part.asked
    noise = float(coder.noise_at(LINEAR_LENGTH)) / part.share
    return (noise + LINEAR_LENGTH**2) * attribute.estimand.half_width**2


_DECLARING: tuple[type, ...] = (Settings, *STRATEGIES)
PAPER_DECIDES = frozenset(name for kind in _DECLARING for name in options(kind)).difference(
    signature(Settings.paper).parameters
)
"""The options of commands that --paper decides: all that `Settings.paper` does not take."""
