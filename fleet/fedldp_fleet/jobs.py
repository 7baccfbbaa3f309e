"""Jobs: what a server asks, of how many vehicles, and when. There are three types.

A `StatisticJob` has a plan and one round, whose result is a tally. A `TrainingJob` has a model, a
recipe and rounds, in which groups of vehicles answer gradients; it may begin with a survey. A
`QuantileJob` finds one quantile by rounds of one-bit answers.
"""

import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, cast, final

import numpy as np

from fedldp import signing
from fedldp.budget.calendars import CalendarPeriod
from fedldp.errors import DomainError
from fedldp.learn.clipping import Clip
from fedldp.learn.computations import asked_for, check_work, read
from fedldp.learn.model import Model
from fedldp.learn.noise_aware import Prior
from fedldp.learn.optimizer import Recipe, State
from fedldp.learn.quantiles import ROUNDS, QuantileSearch
from fedldp.learn.survey import SURVEYS, Survey, choose
from fedldp.plan.plan import Plan
from fedldp.results.tally import Tally
from fedldp.schema.attributes import Number
from fedldp.schema.schema import Schema
from fedldp.signing import PublicKey
from fedldp.vehicle import canonical
from fedldp_fleet.common import documents
from fedldp_fleet.quantiles import Search
from fedldp_fleet.questions import LAST_ROUND, MOST_BYTES, Question, check_name
from fedldp_fleet.signed_jobs import (
    LONGEST_SECONDS,
    ORDERS,
    SignedJob,
    SignedStage,
    sha256_text,
)
from fedldp_fleet.stages import Collection, Descent, Learned, Span, Stage, SurveyStage, spans

STATISTIC, TRAINING = "fedldp statistic job 1", "fedldp training job 1"
QUANTILE = "fedldp quantile job 1"
MOST_WANTED = 1 << 40

_NUMBERS_OF_A_TARGET_MAP = 2
_OF_SEARCH = ("level", "epsilon", "vehicles", "confidence")
_DIGITS = 25  # of a weight in JSON, at most: the model in a question can become this much longer
_CHECKED_VEHICLES = 1  # a place may be for one vehicle: that much work must be allowed


@final
@dataclass(frozen=True)
class Schedule:
    """When a job is open, and how long its agents and rounds may take.

    >>> now = datetime.datetime(2027, 3, 1, tzinfo=datetime.UTC)
    >>> Schedule(now, now + datetime.timedelta(days=1)).round_seconds
    120.0
    """

    opens: datetime.datetime
    closes: datetime.datetime
    answer_seconds: float = 10.0  # that an agent needs at most to compute and deliver an answer
    round_seconds: float = 120.0  # after which a round gives no further places
    order: str = "call"

    def __post_init__(self) -> None:
        for name in ("opens", "closes"):
            moment = getattr(self, name)
            if not isinstance(moment, datetime.datetime) or moment.tzinfo is None:
                raise DomainError(f"{name} must be a time with a time zone; got {moment!r:.80}.")
            object.__setattr__(self, name, moment.replace(microsecond=0))
        if self.opens >= self.closes:
            raise DomainError(
                f"closes must be later than opens; got {self.opens} and {self.closes}."
            )
        for name in ("answer_seconds", "round_seconds"):
            seconds = getattr(self, name)
            number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            if not number or not 0 < seconds <= LONGEST_SECONDS:
                raise DomainError(
                    f"{name} must be positive, and at most {LONGEST_SECONDS:.0f}; got {seconds!r}."
                )
            object.__setattr__(self, name, float(seconds))
        if self.order not in ORDERS:
            raise DomainError(f"order must be one of {', '.join(ORDERS)}; got {self.order!r:.80}.")

    def check_rounds(self) -> None:
        """Raise `DomainError` if a job with several rounds leaves agents too little time."""
        if self.round_seconds < 2 * self.answer_seconds:
            raise DomainError(
                "round_seconds must be at least twice answer_seconds, or hardly any agent gets a "
                f"place in time; got {self.round_seconds:g} and {self.answer_seconds:g}."
            )

    def to_document(self) -> dict[str, Any]:
        """Return the schedule as JSON."""
        times = {name: signing.format_time(getattr(self, name)) for name in ("opens", "closes")}
        names = ("answer_seconds", "round_seconds", "order")
        return times | {name: getattr(self, name) for name in names}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Schedule":
        """Read what `to_document` returned; raise an error if it is invalid."""
        times = {name: signing.parse_time(document[name]) for name in ("opens", "closes")}
        return cls(**(dict(document) | times))


class Job(Protocol):
    """What the engine knows of a job: never which type it is."""

    @property
    def name(self) -> str:
        """The name, in ledgers too: a vehicle answers each name a limited number of times."""

    @property
    def schedule(self) -> Schedule:
        """When it is open."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What its rounds ask for."""

    @property
    def start(self) -> Learned:
        """What is known before the first round."""

    def check(self, learned: Learned) -> None:
        """Raise an error if anything in what was learned has overflowed."""

    def result(self, learned: Learned, tally_of: Callable[[int], Tally]) -> str:
        """Return the result as JSON, given what was learned and the tally of any round."""

    def to_json(self) -> str:
        """Return the job as canonical JSON."""

    def extends(self, other: "Job") -> bool:
        """Return whether it is another job with more answers, more rounds or a later end."""


@final
@dataclass(frozen=True)
class StatisticJob:
    """A statistic: one round, whose result is its tally.

    >>> import fedldp
    >>> now = datetime.datetime(2027, 3, 1, tzinfo=datetime.UTC)
    >>> schedule = Schedule(now, now + datetime.timedelta(days=1))
    >>> plan = Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0)
    >>> job = StatisticJob("spring", plan, 100, schedule)
    >>> read_job(job.to_json()) == job, question(job, 1, job.start).round
    (True, 1)
    """

    name: str
    plan: Plan
    wanted: int  # answers; the round closes with the job if fewer come
    schedule: Schedule
    period: CalendarPeriod | None = None  # if the statistic is asked again and again

    def __post_init__(self) -> None:
        check_name(self.name, "job")
        _check_number(self.wanted, "wanted", MOST_WANTED)
        if self.period is not None and self.period.calendar.plan != self.plan:
            raise DomainError("period must be of a calendar of the job's plan; got another plan's.")
        _check_questions(self)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The collection of its answers."""
        return (Collection(self.plan, self.wanted, self.period),)

    @property
    def start(self) -> Learned:
        """Nothing."""
        return Learned()

    def check(self, learned: Learned) -> None:
        """Check nothing: nothing is learned."""

    def result(self, learned: Learned, tally_of: Callable[[int], Tally]) -> str:
        """Return the tally."""
        return tally_of(1).to_json()

    def to_json(self) -> str:
        """Return the job as canonical JSON."""
        period = None if self.period is None else json.loads(self.period.to_json())
        plan = json.loads(self.plan.to_json())
        return _written(STATISTIC, self, {"plan": None if period else plan, "period": period})

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "StatisticJob":
        """Read the entries of a document; raise an error if they are invalid."""
        period, plan = document["period"], document["plan"]
        if period is not None:
            period = CalendarPeriod.from_json(canonical(period))
        asked = Plan.from_json(canonical(plan)) if period is None else period.calendar.plan
        schedule = Schedule.from_document(document["schedule"])
        return cls(document["name"], asked, document["wanted"], schedule, period)

    def extends(self, other: Job) -> bool:
        """Return whether it is another job with more answers or a later end."""
        if not isinstance(other, StatisticJob) or not _is_later(self.schedule, other.schedule):
            return False
        same = replace(self, wanted=other.wanted, schedule=other.schedule) == other
        return same and self.wanted >= other.wanted


@final
@dataclass(frozen=True)
class TrainingJob:
    """A training: rounds in which a group of vehicles answers gradients, after a survey or not."""

    name: str
    model_at_start: Model
    plans: tuple[Plan, ...]  # for a gradient; several if vehicles choose their own epsilon
    recipe: Recipe
    rounds: int  # of gradients
    group: int  # vehicles in each of them
    schedule: Schedule
    survey: str | None = None  # "scale", "whiten" or "auto": of the numbers
    surveyed: int = 0  # vehicles in all its rounds
    target_surveyed: int = 0  # vehicles in all rounds of a survey of the target

    def __post_init__(self) -> None:
        check_name(self.name, "job")
        object.__setattr__(self, "plans", tuple(self.plans))
        _check_number(self.rounds, "rounds", LAST_ROUND)
        _check_number(self.group, "group", MOST_WANTED)
        d = self.model_at_start.dimensions
        if not all(plan.schema.is_vector(d) for plan in self.plans):
            raise DomainError(
                f"the plan must be for the gradient of this model, a vector of {d} numbers; "
                f"got {self.plans[0].schema!r:.200}. Use Schema.vector({d}, bound=1.0)."
            )
        self.schedule.check_rounds()
        self._check_levels()
        self._check_surveys()
        model = self.model_at_start
        of_scaling = model.numbers * (model.numbers + 2)
        _check_questions(self, d + _NUMBERS_OF_A_TARGET_MAP + of_scaling)

    def _check_levels(self) -> None:
        if len({plan.epsilon for plan in self.plans}) < len(self.plans) or self.rounds % len(
            self.plans
        ):
            raise DomainError(
                "the plans of levels must have different epsilons, and rounds must be a multiple "
                f"of their number; got {len(self.plans)} plans and {self.rounds} rounds."
            )
        if any(plan.schema != self.plans[0].schema for plan in self.plans):
            raise DomainError("the plans of all levels must have the same schema and bound.")

    def _check_surveys(self) -> None:
        for name in ("surveyed", "target_surveyed"):
            if getattr(self, name):
                _check_number(getattr(self, name), name, MOST_WANTED)
        if self.survey not in SURVEYS or (self.survey is None) != (self.surveyed == 0):
            raise DomainError(
                "a survey needs a kind, one of 'auto', 'scale' and 'whiten', and the number of "
                f"vehicles that it asks; got {self.survey!r:.80} and {self.surveyed}."
            )
        model = self.model_at_start
        if len(self.plans) > 1 and (self.surveyed or self.target_surveyed):
            raise DomainError("a survey is for a training with one epsilon: leave it out.")
        if self.surveyed and model.scaling is not None:
            raise DomainError("a survey finds the scaling of a model; this model has one already.")
        if self.target_surveyed and (model.goal.classifies or model.layers is not None):
            raise DomainError("target_surveyed is for a linear regression: leave it out.")
        if any(stage.wanted < 1 for stage in self.stages):
            raise DomainError("a survey must ask at least one vehicle in each of its rounds.")

    @cached_property
    def _surveys(self) -> list[tuple[Survey, int]]:
        """The surveys that come first, each with the number of its vehicles."""
        found, model, epsilon = [], self.model_at_start, self.plans[0].epsilon
        if self.survey is not None:
            kind = choose(self.survey, model.numbers, self.surveyed, epsilon)
            if kind is not None:
                numbers = Survey(kind, model.numbers, epsilon)
                model = model.scaled(numbers.start)
                found.append((numbers, self.surveyed))
        if self.target_surveyed:
            vector = cast(Number, self.plans[0].schema.attributes[0])
            row_length = cast(Prior, model.prior).length
            clip = Clip.at(vector.high if vector.length is None else vector.length, row_length)
            spreads = cast(float, clip.spreads)
            target = Survey.of_target(epsilon, self.target_surveyed, spreads)
            found.append((target, self.target_surveyed))
        return found

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """A stage for each round of the surveys, and the gradients."""
        found: list[Stage] = []
        for survey, vehicles in self._surveys:
            groups = survey.groups(vehicles)
            for each, plan, group in zip(survey.rounds, survey.plans, groups, strict=True):
                found.append(SurveyStage(each, survey, plan, group, self.model_at_start))
        last = Descent(self.plans, self.rounds, self.group, self.model_at_start, self.recipe)
        return (*found, last)

    @property
    def start(self) -> Learned:
        """The state of an optimizer that has made no step."""
        return Learned(State.start(np.array(self.model_at_start.weights)))

    def check(self, learned: Learned) -> None:
        """Raise an error if a weight has overflowed."""
        learned.model(self.model_at_start)

    def result(self, learned: Learned, tally_of: Callable[[int], Tally]) -> str:
        """Return the model that was trained."""
        return learned.result(self.model_at_start).to_json()

    def to_json(self) -> str:
        """Return the job as canonical JSON."""
        return _written(
            TRAINING,
            self,
            {
                "model": json.loads(self.model_at_start.to_json()),
                "plans": [json.loads(plan.to_json()) for plan in self.plans],
                "recipe": self.recipe.to_document(),
            },
        )

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "TrainingJob":
        """Read the entries of a document; raise an error if they are invalid."""
        entries = dict(document)
        model = Model.from_json(canonical(entries.pop("model")))
        plans = tuple(Plan.from_json(canonical(plan)) for plan in entries.pop("plans"))
        recipe = Recipe.from_document(entries.pop("recipe"))
        schedule = Schedule.from_document(entries.pop("schedule"))
        return cls(model_at_start=model, plans=plans, recipe=recipe, schedule=schedule, **entries)

    def extends(self, other: Job) -> bool:
        """Return whether it is another job with more rounds or a later end."""
        if not isinstance(other, TrainingJob) or not _is_later(self.schedule, other.schedule):
            return False
        mine = replace(self, rounds=other.rounds, schedule=other.schedule)
        return mine.to_json() == other.to_json() and self.rounds >= other.rounds


@final
@dataclass(frozen=True)
class QuantileJob:
    """The search for one quantile: rounds that ask on which side of a threshold a number is.

    >>> now = datetime.datetime(2027, 3, 1, tzinfo=datetime.UTC)
    >>> schedule = Schedule(now, now + datetime.timedelta(days=1))
    >>> search = QuantileSearch(Number("speed", 0, 130), 0.9, epsilon=1.0, vehicles=1000)
    >>> job = QuantileJob("fast", search, schedule)
    >>> read_job(job.to_json()) == job, rounds_of(job), wanted_of(job)
    (True, 20, 1000)
    """

    name: str
    search: QuantileSearch
    schedule: Schedule

    def __post_init__(self) -> None:
        check_name(self.name, "job")
        if self.search.vehicles % ROUNDS:
            raise DomainError(
                f"vehicles must be a multiple of {ROUNDS}, so that every round asks equally many; "
                f"got {self.search.vehicles}."
            )
        _check_number(self.search.vehicles, "vehicles", MOST_WANTED)
        self.schedule.check_rounds()
        _check_questions(self)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The search."""
        return (Search(self.search),)

    @property
    def start(self) -> Learned:
        """What no round has found."""
        return Learned(sides=())

    def check(self, learned: Learned) -> None:
        """Check nothing: the answers of a round are bounded."""

    def result(self, learned: Learned, tally_of: Callable[[int], Tally]) -> str:
        """Return the quantile with its interval."""
        return self.search.result(learned.sides or ()).to_json()

    def to_json(self) -> str:
        """Return the job as canonical JSON."""
        search = self.search
        schema = Schema((search.number,)).to_document()
        others = {each: getattr(search, each) for each in _OF_SEARCH}
        return _written(QUANTILE, self, {"schema": schema, **others})

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "QuantileJob":
        """Read the entries of a document; raise an error if they are invalid."""
        [number] = Schema.from_document(document["schema"]).attributes
        if not isinstance(number, Number):
            raise ValueError("a quantile is that of a number")
        search = QuantileSearch(number, **{each: document[each] for each in _OF_SEARCH})
        return cls(document["name"], search, Schedule.from_document(document["schedule"]))

    def extends(self, other: Job) -> bool:
        """Return whether it is another job with a later end."""
        if not isinstance(other, QuantileJob) or not _is_later(self.schedule, other.schedule):
            return False
        return replace(self, schedule=other.schedule) == other


def question(job: Job, number: int, learned: Learned) -> Question:
    """Return what vehicles are asked in a round of a job."""
    span = span_of(job, number)
    plan = span.plan(number)
    asked = plan.to_json()
    if isinstance(span.stage, Collection) and span.stage.period is not None:
        asked = span.stage.period.to_json()
    return Question(job.name, number, asked, span.stage.computation(learned))


def span_of(job: Job, number: int) -> Span:
    """Return the stage of a round of a job, with its rounds."""
    return next(each for each in spans(job.stages) if each.last is None or number <= each.last)


def rounds_of(job: Job) -> int:
    """Return how many rounds a job has, with those of its surveys."""
    return sum(stage.rounds for stage in job.stages)


def wanted_of(job: Job) -> int:
    """Return how many answers a job wants in all."""
    return sum(stage.rounds * stage.wanted for stage in job.stages)


def to_sign(job: Job, server: PublicKey) -> SignedJob:
    """Return what an operator signs of a job, which a server with this key may ask."""
    stages = []
    for span in spans(job.stages):
        cycle = span.cycle(span.first)
        asked = [question(job, number, job.start) for number in cycle]
        asks = asked_for(span.plan(span.first).schema, asked[0].model)
        plans = tuple(sha256_text(each.plan) for each in asked)
        stage = span.stage
        stages.append(SignedStage(canonical(asks.declaration), plans, stage.rounds, stage.wanted))
    when = job.schedule
    return SignedJob(
        job.name, tuple(stages), when.opens, when.closes, when.answer_seconds, when.order, server
    )


def read_job(text: str) -> Job:
    """Read a job, or raise `WireError`."""
    with documents.reading("job"):
        document = json.loads(text)
        given = document.pop("format")
        if given not in _TYPES:
            raise ValueError(f"its format must be one of {', '.join(_TYPES)}; got {given!r:.80}")
        job = _TYPES[given](document)
        documents.check_written(job.to_json(), text)
    return job


_TYPES: dict[str, Callable[[Mapping[str, Any]], Job]] = {
    STATISTIC: StatisticJob.from_document,
    TRAINING: TrainingJob.from_document,
    QUANTILE: QuantileJob.from_document,
}


def _written(kind: str, job: Any, others: Mapping[str, Any]) -> str:
    """Return the document of a job: its plain entries, and others."""
    document = {"format": kind, "schedule": job.schedule.to_document(), **others}
    for name, value in vars(job).items():
        if isinstance(value, int | str | None) and name in job.__dataclass_fields__:
            document.setdefault(name, value)
    return canonical(document)


def _is_later(schedule: Schedule, other: Schedule) -> bool:
    """Return whether a schedule is another one that ends later, or the same one."""
    return replace(schedule, closes=other.closes) == other and schedule.closes >= other.closes


def _check_number(value: Any, name: str, most: int) -> None:
    if type(value) is not int or not 1 <= value <= most:
        raise DomainError(f"{name} must be a whole number from 1 to {most}; got {value!r:.80}.")


def _check_questions(job: Job, numbers: int = 1) -> None:
    """Refuse a job whose questions can become too large, or that an agent does not compute.

    `numbers` are those in a question that change from round to round.
    """
    for number in _first_rounds(spans(job.stages)):
        asked = question(job, number, job.start)
        if asked.model:
            check_work(read(asked.model), _CHECKED_VEHICLES)
        if (length := len(asked.to_bytes()) + _DIGITS * numbers) > MOST_BYTES:
            raise DomainError(
                f"a question must have at most {MOST_BYTES} bytes; with this plan and model it "
                f"may have {length}. Choose fewer features or fewer outputs."
            )


def _first_rounds(found: Iterable[Span]) -> list[int]:
    return [number for span in found for number in span.cycle(span.first)]
