"""LDP-FedSGD, the paper's Algorithm 1: a server and groups of vehicles train a model.

In each round the server sends the model to a group of vehicles that have not been asked yet. Each
computes its gradient and answers once, through a plan: a few noisy bits of a few coordinates. From
the tally of the group the server makes one step. The training ends when the model settles, or when
no vehicle is left.

The vehicles' half is a `Task` and the server's half is in `optimizer`; a deployment uses the same
code. The simulation runs the vehicles' half for a whole group at once. It draws the coordinates
first, and computes only those parts of the gradients that are reported.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp import randomness, vehicle
from fedldp._internal import documents, notebook, packing
from fedldp._internal.text import counted
from fedldp._internal.validation import Floats, Integers, reals, whole
from fedldp.errors import DomainError
from fedldp.learn import optimizer
from fedldp.learn.clipping import ClippedShare
from fedldp.learn.features import Scaling
from fedldp.learn.gradients import BLOCK
from fedldp.learn.noise_aware import Observed, Prior
from fedldp.learn.optimizer import Recipe, State
from fedldp.learn.privacy import NoPrivacy, bits_of
from fedldp.learn.survey import Survey, target_map
from fedldp.learn.tasks import Task
from fedldp.plan.parts import Countable, VehicleValues
from fedldp.plan.plan import Plan
from fedldp.randomness import Source, study_source
from fedldp.results.estimate import means_of_levels
from fedldp.schema.schema import Schema
from fedldp.storage import files

FORMAT = "fedldp training 1"


@final
@dataclass(frozen=True)
class Round:
    """What is known after a round of a training.

    Parameters
    ----------
    number : int
        The number of the round; the first is 1.
    rounds : int
        The number of rounds that are planned.
    reports : int
        The number of reports so far, in each replica.
    bytes : int
        The size of these reports; without privacy, as floats of 32 bits.
    epsilon : Fraction or None
        The most that a vehicle has spent so far; None without privacy.
    change : float
        The length of the last step: the largest of all replicas.
    loss : float or None
        The mean of what `watch` returned; None without `watch`.

    Examples
    --------
    >>> Round(1, 40, reports=500, bytes=375, epsilon=Fraction(2), change=0.1, loss=None).reports
    500
    """

    number: int
    rounds: int
    reports: int
    bytes: int
    epsilon: Fraction | None
    change: float
    loss: float | None

    def _repr_html_(self) -> str:
        row = [getattr(self, each.name) for each in fields(self)]
        shown = [float(each) if isinstance(each, Fraction) else each for each in row]
        return notebook.table("Round", [each.name for each in fields(self)], [shown])


@final
@dataclass(frozen=True, eq=False)
class Procedure:
    """Who is asked what in a training, and how the server steps.

    `Settings.training` makes it from rules.

    Parameters
    ----------
    plans : Plan, NoPrivacy or a sequence of them
        The plan for a gradient: its schema is `Schema.vector(d, bound)`. With `NoPrivacy`, clipped
        gradients are averaged without noise. If vehicles choose their own epsilon, give a plan for
        each; their gradients are weighted by the inverse of their known variance.
    recipe : Recipe
        How the server makes a step.
    group : int
        The largest number of vehicles in a round.
    participations : int, default=1
        How often each vehicle is asked.
    max_iter : int, optional
        The largest number of rounds.
    levels : array-like of int of shape (vehicles,), optional
        The index of each vehicle's plan, if there are several plans.
    survey : Survey, optional
        Asks a share of the vehicles about their numbers first, and not for gradients. The numbers
        are then scaled by what these vehicles answer.
    survey_share : float, default=0.1
        The share of the vehicles that the survey asks.
    target_survey : Survey, optional
        Asks other vehicles about the target of a linear regression, and not for gradients. The
        target is then mapped by what these vehicles answer.
    target_share : float, default=0.04
        The share of the vehicles that the survey of the target asks.

    Raises
    ------
    DomainError
        If a value is invalid.

    Examples
    --------
    >>> from fedldp.learn.optimizer import SGD
    >>> Procedure(Plan(Schema.vector(2, 1.0), 2.0), Recipe(SGD(0.1)), group=500).participations
    1
    """

    plans: tuple[Plan | NoPrivacy, ...]
    recipe: Recipe
    group: int
    participations: int = 1
    max_iter: int | None = None
    levels: npt.ArrayLike | None = None
    survey: Survey | None = None
    survey_share: float = 0.1
    target_survey: Survey | None = None
    target_share: float = 0.04

    def __post_init__(self) -> None:
        object.__setattr__(self, "plans", _plans(self.plans))
        most = 1 if self.max_iter is None else self.max_iter
        numbers = {"group": self.group, "participations": self.participations, "max_iter": most}
        for name, number in numbers.items():
            _check_positive(number, name)
        if len(self.plans) > 1 and self.levels is None:
            raise DomainError("several plans need levels, the index of each vehicle's plan.")


@final
class Training:
    """A simulated training: iterate over it to run it round by round.

    Vehicles are asked in random order, in groups of about the same size. The training ends when
    the model settles (the recipe's `tol`), after `max_iter` rounds, or when no vehicle is left.
    `Settings.training` returns a training for given options.

    Parameters
    ----------
    task : Linear or another task
        The model to train, and the data of the vehicles.
    procedure : Procedure
        Who is asked what, and how the server steps.
    source : Source
        The random source.
    replicas : int, default=1
        How many trainings to run at once, with the same vehicles and different noise.
    shuffle : bool, default=True
        Whether to ask vehicles in random order. Use False for data that are in random order.
    start : array-like of shape (dimensions,) or (replicas, dimensions), optional
        The first weights; by default those of the task, and zeros for a linear model.
    watch : callable, optional
        Called with the models after each round, to measure them on public data; for example
        `Linear(objective, public_examples).loss`.
    label : str, default=""
        A text that identifies the data. A saved training is resumed only with the same label.
    state : State, optional
        The state in which another training of the same model has ended, with other vehicles: this
        one begins there.

    Attributes
    ----------
    state : State
        The current state.
    survey : Survey or None
        The survey.
    target_survey : Survey or None
        The survey of the target.
    surveyed : int
        How many vehicles both surveys ask.
    scaling : Scaling or None
        How the numbers are scaled, and the target is mapped, once the surveys are done.
    clipped : ClippedShare or None
        The share of gradients that are clipped, as a survey of the target has found it.

    Raises
    ------
    DomainError
        If an argument is invalid, or the arguments do not fit together.

    Examples
    --------
    >>> import fedldp
    >>> from fedldp.learn.examples import Arrays
    >>> from fedldp.learn.optimizer import Adam
    >>> from fedldp.learn.tasks import Linear
    >>> from fedldp.learn.objectives import objective
    >>> x = np.c_[fedldp.source(1).uniform(20_000) * 2 - 1, np.ones(20_000)]
    >>> task = Linear(objective("logistic"), Arrays(x, np.where(x[:, 0] > 0.2, 1.0, -1.0)))
    >>> from fedldp import Sample
    >>> plan = Plan(Schema.vector(2, bound=1.0), 2.0, Sample(mechanism="near-zero"))
    >>> procedure = Procedure(plan, Recipe(Adam(learning_rate=0.2)), group=500)
    >>> training = Training(task, procedure, fedldp.source(2))
    >>> *_, last = training
    >>> last.number, last.reports, last.bytes, float(last.epsilon)
    (40, 20000, 15000, 2.0)
    >>> slope, intercept = training.models[0]
    >>> print(f"predicts 1 above {-intercept / slope:.1f}")
    predicts 1 above 0.2
    >>> first = Training(task, procedure, fedldp.source(2))
    >>> first.advance().reports
    500
    >>> second = Training(task, procedure, fedldp.source(2))
    >>> second.resume(first.to_json())
    >>> second.advance() == first.advance()
    True
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "training.json")
    >>> second.save(path)
    >>> path.read_text() == second.to_json()
    True
    >>> folder.cleanup()
    """

    def __init__(
        self,
        task: Task,
        procedure: Procedure,
        source: Source,
        *,
        replicas: int = 1,
        shuffle: bool = True,
        start: Floats | None = None,
        watch: Callable[[Floats], Floats] | None = None,
        label: str = "",
        state: State | None = None,
    ) -> None:
        recipe, participations, levels = (
            procedure.recipe,
            procedure.participations,
            procedure.levels,
        )
        self._task, self._recipe, self._watch, self._label = task, recipe, watch, label
        self._plans = procedure.plans
        _check_schemas([each.schema for each in self._plans], task.dimensions)
        _check_positive(len(task), "the number of vehicles")
        _check_positive(replicas, "replicas")
        self._passes, self._replicas = whole(participations, ""), whole(replicas, "")
        self._vehicles, self._shuffle = len(task), bool(shuffle)
        self._levels: Integers | None = None  # the place of each vehicle's plan, if they differ
        if levels is not None:
            self._levels = _checked_levels(levels, len(task), self._plans)
        self.survey, self.target_survey = procedure.survey, procedure.target_survey
        self.scaling: Scaling | None = None
        self.clipped: ClippedShare | None = None
        of_numbers = of_target = 0
        if self.survey is not None:
            _check_survey(task, replicas, participations, levels)
            of_numbers = min(self._vehicles - 1, round(procedure.survey_share * self._vehicles))
        if self.target_survey is not None:
            _check_once(replicas, participations, levels)
            rest = self._vehicles - of_numbers - 1
            of_target = min(rest, round(procedure.target_share * self._vehicles))
        self._asked_by_survey = of_numbers, of_target
        self.surveyed = of_numbers + of_target
        vehicles_left = self._vehicles - self.surveyed
        self._groups = -(-vehicles_left // whole(procedure.group, "group"))
        max_iter = procedure.max_iter
        everyone = self._groups * self._passes
        self._rounds = everyone if max_iter is None else min(everyone, whole(max_iter, ""))
        self._source = study_source(source).spawn(1)[0]
        self._key = int(self._source.words(1)[0])  # of the order in which vehicles are asked
        start = task.start if start is None else start
        weights = np.zeros(task.dimensions) if start is None else reals(start, "start")
        shapes = (task.dimensions,), (replicas, task.dimensions)
        if weights.shape not in shapes or not np.isfinite(weights).all():
            raise DomainError(f"start must be {task.dimensions} finite numbers; got {start!r:.60}.")
        every = np.broadcast_to(weights, (self._replicas, task.dimensions))
        self.state = State.start(every) if state is None else state
        if self.state.weights.shape != (self._replicas, task.dimensions):
            raise DomainError(
                f"state must be of {self._replicas} x {task.dimensions} weights; "
                f"got {self.state.weights.shape}."
            )
        self._before = self.state.round  # rounds of trainings that went before
        self._ordered: tuple[int, Integers] | None = None
        self._prior: Prior | None = None
        if recipe.optimizer.needs_prior:
            self._prior = task.prior
            if self._prior is None:
                raise DomainError(
                    "a noise-aware server is for linear models: choose optimizer='adam'."
                )
        # What each report takes and costs, computed once: rounds can be very short.
        self._widths = [bits_of(plan_part) for plan_part in self._plans]
        costs = [each.total_epsilon for each in self._plans if each.total_epsilon is not None]
        self._spent = [max(costs) * number if costs else None for number in range(self._passes + 1)]

    def __repr__(self) -> str:
        return (
            f"<Training: round {self._done:,} of {self.rounds:,}, "
            f"{counted(self.reports, 'report')}{', finished' * self.finished}>"
        )

    def _repr_html_(self) -> str:
        rows = zip(range(self._task.dimensions), *self.models.tolist(), strict=True)
        replicas = [f"replica {number}" for number in range(len(self.models))]
        columns = ["weight", *(replicas if len(replicas) > 1 else ["value"])]
        return notebook.table(repr(self)[1:-1], columns, rows)

    @property
    def models(self) -> Floats:
        """The current weights, averaged over the rounds: a row for each replica."""
        return self._task.weights_for_target(self.state.average)

    @property
    def plans(self) -> tuple[Plan | NoPrivacy, ...]:
        """The plans for a gradient, one for each level."""
        return self._plans

    @property
    def surveys(self) -> tuple[Survey, ...]:
        """The surveys that come first."""
        both = self.survey, self.target_survey
        return tuple(each for each in both if each is not None)

    @property
    def rounds(self) -> int:
        """The number of rounds that are planned."""
        return self._rounds

    @property
    def _done(self) -> int:
        """The number of rounds of this training so far."""
        return self.state.round - self._before

    @property
    def reports(self) -> int:
        """The number of reports so far, in each replica."""
        again, place = divmod(self._done, self._groups)
        asked = self._vehicles - self.surveyed
        return self.survey_reports + again * asked + asked * place // self._groups

    @property
    def reports_by_level(self) -> list[int]:
        """The number of reports so far from the vehicles of each level."""
        if self._levels is None:
            return [self.reports]
        again, number = divmod(self.reports, self._vehicles)
        asked = self._order(again)[:number] if self._shuffle and number else np.arange(number)
        several = len(self._plans)
        found = again * np.bincount(self._levels, minlength=several)
        found += np.bincount(self._levels[asked], minlength=several)
        return [int(each) for each in found]

    @property
    def survey_reports(self) -> int:
        """How many of the reports were about numbers, and not gradients."""
        return 0 if self.scaling is None else self.surveyed

    @property
    def bytes(self) -> int:
        """How many bytes all reports take so far, in each replica."""
        counts = self.reports_by_level
        counts[0] -= self.survey_reports
        total = sum(map(packing.length, counts, self._widths))
        if self.scaling is not None:
            for survey, vehicles in zip(
                (self.survey, self.target_survey), self._asked_by_survey, strict=True
            ):
                if survey is not None:
                    groups = survey.groups(vehicles)
                    total += sum(map(packing.length, groups, map(bits_of, survey.plans)))
        return total

    @property
    def deviations(self) -> Floats | None:
        """The standard deviation of each weight of the models, as a noise-aware server knows it."""
        known = self.state.known
        if known is None:
            return None
        found: Floats = np.sqrt(known.average if self._recipe.optimizer.average else known.weights)
        target = None if self.scaling is None else self.scaling.target
        return found if target is None else found / target[1]

    @property
    def finished(self) -> bool:
        """Whether the model has settled, all rounds are done, or no vehicle is left."""
        if self._done >= self.rounds:
            return True
        return self._recipe.optimizer.tol > 0 and optimizer.settled(self._recipe, self.state)

    def __iter__(self) -> Iterator[Round]:
        while not self.finished:
            yield self.advance()

    def advance(self) -> Round:
        """Run one round.

        Returns
        -------
        Round
            What is known after the round.

        Raises
        ------
        DomainError
            If the training is finished.
        """
        if self.finished:
            raise DomainError("this training is finished: no vehicle may be asked again.")
        if self.surveys and self.scaling is None:
            self._scale(self._surveyed_scaling())
        again, place = divmod(self._done, self._groups)
        vehicles_left = self._vehicles - self.surveyed
        first = self.surveyed + vehicles_left * place // self._groups
        end = self.surveyed + vehicles_left * (place + 1) // self._groups
        order = self._order(again) if self._shuffle else None
        if self._levels is None:
            observed = self._average(self._batches(order, first, end), end - first)
        else:
            chosen = np.arange(first, end) if order is None else order[first:end]
            observed = self._average_of_levels(chosen, self._levels[chosen])
        self.state = optimizer.step(self._recipe, self.state, observed, self._prior)
        return self._round()

    def _surveyed_scaling(self) -> Scaling:
        """Simulate the surveys, and return what they find."""
        (of_numbers, of_target), scaling = self._asked_by_survey, Scaling((), ())
        if self.survey is not None:
            scaling = self.survey.simulate(self._units, of_numbers, self._source)
        if (survey := self.target_survey) is not None:
            read = partial(self._answers_of, self._task.targets, of_numbers)
            *_, (mean, found) = survey.simulate_rounds(read, of_target, self._source)
            self.clipped = ClippedShare.of(mean)  # the last round asks for tails
            scaling = replace(scaling, target=target_map(found))
        return scaling

    def _scale(self, scaling: Scaling) -> None:
        """Scale the numbers and the target from now on."""
        task = self._task.scaled(scaling)
        self.scaling, self._task = scaling, task
        if self._prior is not None:
            self._prior = task.prior

    def _units(self, first: int, end: int) -> Iterator[Floats]:
        """Yield the numbers of some vehicles of the survey."""
        return self._answers_of(self._task.units, 0, first, end)

    def _answers_of(
        self, read: Callable[[Integers, Source], Floats], skipped: int, first: int, end: int
    ) -> Iterator[Floats]:
        """Yield what some vehicles of a survey are asked about; others were skipped."""
        order = self._order(0) if self._shuffle else np.arange(self._vehicles)
        order, at_once = order[skipped:], self._task.at_once
        for at in range(first, end, at_once):
            yield read(order[at : min(at + at_once, end)], self._source)

    def _order(self, again: int) -> Integers:
        """Return the order in which the vehicles are asked, anew each time they take part."""
        if self._ordered is None or self._ordered[0] != again:
            words = randomness.source(self._key + again).words(self._vehicles)
            self._ordered = again, np.argsort(words, kind="stable")
        return self._ordered[1]

    def _batches(self, order: Integers | None, first: int, end: int) -> Iterator[VehicleValues]:
        """Yield the gradients of the vehicles from `first` on, as many at once as memory allows."""
        at_once = max(BLOCK, self._task.at_once // self._replicas // BLOCK * BLOCK)
        weights = self._task.weights_for_target(self.state.weights)
        for at in range(first, end, at_once):
            rows = slice(at, min(at + at_once, end))
            yield self._task.gradients(weights, rows if order is None else order[rows])

    def _average(self, batches: Iterable[VehicleValues], n: int) -> Observed:
        """Return the mean gradient of n vehicles, as the server learns it, for each replica."""
        (part,) = self._plans[0].parts
        return self._observed([(part, n, self._counted(part, batches))])

    def _observed(self, levels: list[tuple[Countable, int, npt.NDArray[Any]]]) -> Observed:
        estimator = self._recipe.optimizer.estimator
        if self._prior is None:  # nobody needs to know the noise
            return Observed(means_of_levels(levels, estimator))
        return optimizer.observe(levels, estimator)

    def _average_of_levels(self, asked: Integers, levels: Integers) -> Observed:
        """Return the mean gradient of vehicles whose levels differ, for each replica."""
        found: list[tuple[Countable, int, npt.NDArray[Any]]] = []
        for level, plan in enumerate(self._plans):
            mine, (part,) = asked[levels == level], plan.parts
            counted = self._counted(part, self._batches(mine, 0, len(mine)))
            found.append((part, len(mine), counted))
        return self._observed(found)

    def _counted(self, part: Countable, batches: Iterable[VehicleValues]) -> npt.NDArray[Any]:
        """Return what vehicles answer to a part, in a row of counters for each replica."""
        kind = np.float64 if part.study else np.int64
        cells = np.zeros((self._replicas, part.starts[-1]), kind)
        for batch in batches:
            part.simulate(batch, self._source, cells)
        return cells

    def _round(self) -> Round:
        again, place = divmod(self._done, self._groups)
        return Round(
            number=self._done,
            rounds=self.rounds,
            reports=self.reports,
            bytes=self.bytes,
            epsilon=self._spent[again + (place > 0)],
            change=float(self.state.change.max()),
            loss=None if self._watch is None else float(np.mean(self._watch(self.models))),
        )

    def to_json(self) -> str:
        """Return everything that `resume` needs, as JSON.

        Returns
        -------
        str
            The JSON.
        """
        document = {
            "format": FORMAT,
            "settings": self._settings,
            "order": self._key,
            "drawn": self._source.position,
            "state": json.loads(self.state.to_json()),
        }
        if self.scaling is not None:
            document["scaling"] = self.scaling.to_document()
        if self.clipped is not None:
            document["clipped"] = astuple(self.clipped)
        return vehicle.canonical(document)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the current state of the training to a file, which is replaced as a whole.

        Parameters
        ----------
        path : str or os.PathLike
            The file.

        Examples
        --------
        Save after each round, and resume after an interruption::

            if path.exists():
                training.resume(path.read_text())
            for done in training:
                training.save(path)
        """
        files.write(path, self.to_json())

    def resume(self, text: str) -> None:
        """Resume a training with the same settings at the round where it was saved.

        With a source from the same seed, the result is the same as without an interruption. With
        another source, vehicles that were asked after the training was saved are asked again, and
        spend again: a deployment saves before it asks, and its vehicles keep a ledger.

        Parameters
        ----------
        text : str
            JSON that `to_json` returned, or the content of a file that `save` wrote.

        Raises
        ------
        WireError
            If the text is invalid, or from a training with other settings.
        """
        with documents.reading(f"{FORMAT!r} of this training"):
            document = documents.parse(
                text, [FORMAT], ("settings", "order", "drawn", "state"), "scaling", "clipped"
            )
            order, drawn = document["order"], document["drawn"]
            if (type(order), type(drawn)) != (int, int):
                raise ValueError("order and drawn must be whole numbers")
            if document["settings"] != self._settings:
                raise ValueError("it was made with other settings")
            state = State.from_json(json.dumps(document["state"]))
            if state.weights.shape != self.state.weights.shape:
                raise ValueError("its arrays have other shapes")
            if not 0 <= state.round - self._before <= self._groups * self._passes:
                raise ValueError("it has more rounds than this training")
            if drawn < self._source.position or order < 0:
                raise ValueError("its position in the random stream is invalid")
            if ("scaling" in document) != (bool(self.surveys) and state.round > self._before):
                raise ValueError("it has a scaling without a survey, or none after one")
            scaling = Scaling.from_document(document["scaling"]) if "scaling" in document else None
            clipped = ClippedShare(*document["clipped"]) if "clipped" in document else None
        self.clipped = clipped
        if scaling is not None:
            self._scale(scaling)
        self._key, self._ordered, self.state = order, None, state
        self._source.skip(drawn - self._source.position)

    @cached_property
    def _settings(self) -> str:
        """A digest of everything that must be the same when a training is resumed."""
        plan: Any = self._plans[0].fingerprint
        if self._levels is not None:
            digest = hashlib.sha256(self._levels.tobytes()).hexdigest()
            plan = *(plan_part.fingerprint for plan_part in self._plans), digest
        numbers: tuple[Any, ...]
        numbers = self._vehicles, self._groups, self._passes, self._replicas, self._shuffle
        if self.survey is not None:
            numbers = *numbers, self._asked_by_survey[0], repr(self.survey)
        if self.target_survey is not None:
            numbers = *numbers, self._asked_by_survey[1], repr(self.target_survey)
        parts = map(repr, (self._label, self._task.kind, plan))
        text = f"({', '.join(parts)}, {self._recipe.digest_text}, {numbers})"
        return hashlib.sha256(text.encode()).hexdigest()


def _check_positive(number: Any, name: str) -> None:
    """Refuse a number that is no whole number, or below 1."""
    if whole(number, name) < 1:
        raise DomainError(f"{name} must be at least 1; got {number!r}.")


def _check_survey(
    task: Task, replicas: int, participations: int, levels: npt.ArrayLike | None
) -> None:
    """Refuse a survey of numbers where there is nothing to ask, or where its answers differ."""
    if not task.numbers:
        raise DomainError("a survey is for a model whose rows have numbers with bounds.")
    _check_once(replicas, participations, levels)


def _check_once(replicas: int, participations: int, levels: npt.ArrayLike | None) -> None:
    """Refuse a survey where its answers differ."""
    if replicas > 1 or participations > 1 or levels is not None:
        raise DomainError(
            "a survey is for one training in which each vehicle answers once, all with one "
            "epsilon: leave replicas, participations and levels out, or set survey=None."
        )


def _plans(plan: Any) -> tuple[Plan | NoPrivacy, ...]:
    """Return the plans: one, or one for each level."""
    plans = (plan,) if isinstance(plan, Plan | NoPrivacy) else tuple(plan)
    if not plans or not all(isinstance(each, Plan | NoPrivacy) for each in plans):
        raise DomainError(f"plan must be a Plan, or a Plan for each level; got {plan!r:.200}.")
    return plans


def _check_schemas(schemas: Sequence[Schema], dimensions: int) -> None:
    """Refuse plans for something else than one gradient."""
    if not schemas[0].is_vector(dimensions):
        raise DomainError(
            f"the plan must be for a vector of {dimensions} numbers; got {schemas[0]!r:.200}. "
            f"Use Schema.vector({dimensions}, bound=1.0)."
        )
    if any(schema != schemas[0] for schema in schemas):
        raise DomainError("the plans of all levels must have the same schema and bound.")


def _checked_levels(
    levels: npt.ArrayLike, vehicles: int, plans: Sequence[Plan | NoPrivacy]
) -> Integers:
    """Return the index of each vehicle's plan."""
    array = np.asarray(levels)
    if array.shape != (vehicles,) or array.dtype.kind not in "iu":
        raise DomainError(
            f"levels must be a whole number for each of {vehicles} vehicles, the index of its "
            f"plan; got {levels!r:.80}."
        )
    if not 0 <= int(array.min()) <= int(array.max()) < len(plans):
        raise DomainError(f"levels must be from 0 to {len(plans) - 1}, one for each plan.")
    if any(plan.total_epsilon is None for plan in plans):
        raise DomainError("every level needs a plan with privacy; got NoPrivacy.")
    return array.astype(np.int64)
