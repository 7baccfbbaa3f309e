"""The stages of a job: what its rounds ask, and what the server learns from the answers.

A job is a sequence of stages. Each has its own plans, asks vehicles to compute one thing, and has
its own rule for what follows from the tallies. A statistic has one stage. A training has one for
its gradients and, before that, one for each round of its survey. The search for a quantile has one
(`fedldp_fleet.quantiles`). The last stage lasts until the job ends.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from math import inf
from typing import NamedTuple, Protocol, final

import numpy as np

from fedldp.budget.calendars import CalendarPeriod
from fedldp.learn.clipping import ClippedShare
from fedldp.learn.features import Scaling
from fedldp.learn.model import Model
from fedldp.learn.optimizer import Recipe, State, observed, step
from fedldp.learn.quantiles import SideAnswers
from fedldp.learn.survey import (
    TARGET,
    Survey,
    SurveyComputation,
    SurveyRound,
    TailLimits,
    answered,
    searched,
    target_map,
)
from fedldp.plan.plan import Plan
from fedldp.results.tally import Tally
from fedldp.schema.schema import Schema
from fedldp.vehicle import canonical
from fedldp_fleet.common import documents
from fedldp_fleet.insight import Insight, NamedNumber, estimates, lengths
from fedldp_fleet.library import Floats
from fedldp_fleet.noise import Excess

FORMAT = "fedldp job state 1"  # of a job with a survey; others have the state of their optimizer
SEARCH_FORMAT = "fedldp job state 2"  # of the search for a quantile


@final
@dataclass(frozen=True, eq=False)
class Learned:
    """What a job has learned so far: all that its next question depends on.

    >>> start = Learned(State.start(np.zeros(2)))
    >>> start.to_json() == start.state.to_json()
    True
    >>> later = replace(start, scaling=Scaling((0.5,), (4.0,)))
    >>> Learned.from_json(later.to_json()).scaling
    Scaling(centres=(0.5,), factors=(4.0,), mixing=None, target=None)
    """

    state: State | None = None  # of the optimizer; a statistic has none
    scaling: Scaling | None = None  # that a survey has found; None for that of the first model
    sides: tuple[SideAnswers, ...] | None = None  # that the search for a quantile has found

    @property
    def has_begun(self) -> bool:
        """Whether the last stage has learned anything, so that there is a result."""
        return bool(self.sides) or (self.state is not None and self.state.round > 0)

    def model(self, first: Model, weights: Floats | None = None) -> Model:
        """Return a job's model with what was learned: its current weights, or other ones."""
        if weights is None and self.state is not None:
            weights = self.state.weights[0]
        if weights is None:
            weights = np.array(first.weights)
        if self.scaling is None:
            return replace(first, weights=tuple(weights))
        mapped = self.scaling.weights_for_target(weights)
        return replace(first.scaled(self.scaling), weights=tuple(mapped))

    def result(self, first: Model) -> Model:
        """Return the model that a job has trained: its average weights, which predict the target.

        It does not need the map of the target, which is for gradients; that of hidden numbers
        becomes a layer.
        """
        found = self.model(first, None if self.state is None else self.state.average[0])
        return replace(found, scaling=found.scaling and found.scaling.of_numbers).folded

    def to_json(self) -> str:
        """Return a text for the checkpoint, from which `from_json` reads it exactly."""
        if self.sides is not None:
            return canonical({"format": SEARCH_FORMAT, "sides": list(map(astuple, self.sides))})
        if self.state is None:
            return ""
        text = self.state.to_json()
        if self.scaling is None:
            return text
        scaling = self.scaling.to_document()
        return canonical({"format": FORMAT, "scaling": scaling, "state": json.loads(text)})

    @classmethod
    def from_json(cls, text: str) -> "Learned":
        """Read what `to_json` wrote, or raise `WireError`."""
        if not text:
            return cls()
        if '"format":"fedldp job state ' not in text:
            return cls(State.from_json(text))
        with documents.reading(repr(FORMAT)):
            if SEARCH_FORMAT in text:
                document = documents.parse(text, [SEARCH_FORMAT], ("sides",))
                sides = tuple(SideAnswers(*each) for each in document["sides"])
                documents.check_written(cls(sides=sides).to_json(), canonical(document))
                return cls(sides=sides)
            document = documents.parse(text, [FORMAT], ("scaling", "state"))
            scaling = Scaling.from_document(document["scaling"])
            found = cls(State.from_json(json.dumps(document["state"])), scaling)
            documents.check_written(found.to_json(), canonical(document))
        return found


class Stage(Protocol):
    """Some rounds of a job that ask for the same, and what the server learns from them."""

    @property
    def name(self) -> str:
        """What its rounds ask for, in messages."""

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans that its rounds take in turn; when all were asked, the server learns."""

    @property
    def rounds(self) -> int:
        """How many rounds it has."""

    @property
    def wanted(self) -> int:
        """How many vehicles should answer in each round."""

    def computation(self, learned: Learned) -> str:
        """Return what vehicles compute, as JSON, given what is known; empty for their rows."""

    def learn(self, learned: Learned, tallies: Sequence[Tally]) -> Learned:
        """Return what is known after a round of each plan."""

    def insight(self, learned: Learned, tallies: Sequence[Tally]) -> Insight:
        """Return what people can be told about the reports of a round of each plan, so far."""


@final
@dataclass(frozen=True)
class Collection:
    """The stage of a statistic, whose result is its tally."""

    plan: Plan
    wanted: int
    period: CalendarPeriod | None = None
    rounds: int = 1

    @property
    def name(self) -> str:
        """What is asked for and, if that is asked again and again, in which period."""
        if self.period is None:
            return "statistics"
        return f"statistics, period {self.period.number} of {self.period.calendar.periods}"

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plan."""
        return (self.plan,)

    def computation(self, learned: Learned) -> str:
        """Return an empty text: vehicles answer their rows."""
        return ""

    def learn(self, learned: Learned, tallies: Sequence[Tally]) -> Learned:
        """Return the same: the tally is all there is."""
        return learned

    def insight(self, learned: Learned, tallies: Sequence[Tally]) -> Insight:
        """Return the estimates so far."""
        (tally,) = tallies
        return estimates(tally, self.plan.schema)


@final
@dataclass(frozen=True)
class SurveyStage:
    """A round of a survey, which improves the scaling of a model, or the map of its target."""

    each: SurveyRound
    survey: Survey
    plan: Plan
    wanted: int
    model: Model  # the first one
    rounds: int = 1

    @property
    def name(self) -> str:
        """Which round it is."""
        of_target = self.survey.kind == TARGET
        return (
            f"a survey of the target, {self.each.name}"
            if of_target
            else (f"a survey of {self.each.name}")
        )

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plan."""
        return (self.plan,)

    def computation(self, learned: Learned) -> str:
        """Return what the survey asks, with the scaling so far."""
        asked = self.survey.asked_with(self.each, self._so_far(learned.scaling))
        asks, model = self.each.name, self.model
        if self.survey.kind == TARGET:
            found = SurveyComputation(asks, Schema((model.target,)), asked)
        elif model.hidden_scaling is None:
            found = SurveyComputation(asks, model.features.numeric, asked)
        else:
            found = SurveyComputation(asks, model.schema, asked, model.layers, model.reference)
        return found.to_json()

    def _so_far(self, scaling: Scaling | None) -> Scaling:
        """Return what the survey has found so far."""
        if self.survey.kind != TARGET:
            return scaling or self.survey.start
        target = None if scaling is None else scaling.target
        return self.survey.start if target is None else searched(target)

    def learn(self, learned: Learned, tallies: Sequence[Tally]) -> Learned:
        """Return what is known with a better scaling."""
        found = self.each.improved(self._so_far(learned.scaling), answered(*tallies))
        if self.survey.kind == TARGET:
            found = replace(learned.scaling or Scaling((), ()), target=target_map(found))
        return replace(learned, scaling=found)

    def insight(self, learned: Learned, tallies: Sequence[Tally]) -> Insight:
        """Return what this round is for; its answers are about scaled numbers."""
        title, rows = self.name.capitalize(), []
        if self.survey.kind != TARGET:
            note = "The answers scale the numbers that the model gets. Training begins after that."
        elif not isinstance(self.each, TailLimits):
            note = "The answers find the center and the spread of the target."
        else:
            clipped = ClippedShare.of(answered(*tallies))
            rows = [NamedNumber("Share of gradients that are clipped", str(clipped), clipped.share)]
            note = "If the share is surely too large, fewer are clipped from now on."
            if not self.each.octaves:
                note = clipped.warning if clipped.is_biased else "Training begins after that."
        return Insight(title, tuple(rows), (note,))


@final
@dataclass(frozen=True)
class Descent:
    """The stage of a training in which vehicles answer gradients, and each step uses a group."""

    plans: tuple[Plan, ...]
    rounds: int
    wanted: int
    model: Model  # the first one
    recipe: Recipe
    name: str = "gradients"

    def computation(self, learned: Learned) -> str:
        """Return the model, whose gradient is asked for."""
        return learned.model(self.model).to_json()

    def learn(self, learned: Learned, tallies: Sequence[Tally]) -> Learned:
        """Return what is known after a step; callers check that it is within bounds."""
        state, prior = learned.state or State.start(np.array(self.model.weights)), None
        if self.recipe.optimizer.needs_prior:
            prior = learned.model(self.model).prior
        with np.errstate(over="ignore", invalid="ignore"):
            found = observed(tallies, self.recipe.optimizer.estimator)
            return replace(learned, state=step(self.recipe, state, found, prior))

    def insight(self, learned: Learned, tallies: Sequence[Tally]) -> Insight:
        """Return how long the mean gradient is, how much of that is noise, and the last step."""
        found, state = observed(tallies, self.recipe.optimizer.estimator), learned.state
        d = found.gradient.shape[1]
        last = inf if state is None or not state.round else float(state.change[0])
        rows = lengths(
            {
                "Length of the mean gradient": float(np.linalg.norm(found.gradient[0])),
                "Length of the noise in it": float(
                    np.sqrt(np.broadcast_to(found.variance, (1, d)).sum())
                ),
                "Length of the last step": last,
            }
        )
        notes = (
            "A mean gradient that is not much longer than its noise says little: ask more vehicles "
            "in each round, or plan fewer rounds.",
            "The server has no data, so it cannot know the error of the model. Evaluate the result "
            "on public data with fedldp predict.",
        )
        agreement = Excess()
        for plan, tally in zip(self.plans, tallies, strict=True):
            agreement = agreement.plus(plan, tally)
        chance = NamedNumber(
            "Chance of such gradients from noise alone", f"{agreement.p_value:.2g}"
        )
        return Insight("Gradients", (*rows, chance), notes)


class Span(NamedTuple):
    """The rounds of a stage in its job; the last stage has no last round."""

    stage: Stage
    first: int
    last: int | None

    def plan(self, number: int) -> Plan:
        """Return the plan of one of its rounds."""
        plans = self.stage.plans
        return plans[(number - self.first) % len(plans)]

    def cycle(self, number: int) -> range:
        """Return the rounds, one for each plan, that use the same model as one of its rounds."""
        several = len(self.stage.plans)
        first = number - (number - self.first) % several
        return range(first, first + several)


def spans(stages: Sequence[Stage]) -> Iterator[Span]:
    """Yield the stages of a job with their rounds."""
    first = 1
    for stage in stages[:-1]:
        yield Span(stage, first, first + stage.rounds - 1)
        first += stage.rounds
    yield Span(stages[-1], first, None)


def span_of(stages: Sequence[Stage], number: int) -> Span:
    """Return the stage of a round."""
    return next(span for span in spans(stages) if span.last is None or number <= span.last)
