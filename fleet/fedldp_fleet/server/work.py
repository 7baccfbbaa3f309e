"""Jobs from what an operator says: a plan, or the settings of a training; and their files.

The file of a job holds the job, the public key of the server that may ask, and what the operator
has signed of both. It is made and signed where the operator's key is, and added where the server
is.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast, final

from fedldp.budget.calendars import Calendar, CalendarPeriod, is_calendar
from fedldp.errors import DomainError
from fedldp.learn.features import Features
from fedldp.learn.model import Model
from fedldp.learn.networks import Architecture, Network
from fedldp.learn.objectives import objective as named_objective
from fedldp.learn.quantiles import ROUNDS, QuantileSearch
from fedldp.learn.settings import Settings
from fedldp.plan.plan import Plan
from fedldp.schema.attributes import Number
from fedldp.schema.schema import Schema
from fedldp.signing import PrivateKey, PublicKey
from fedldp.storage import files
from fedldp.vehicle import canonical
from fedldp_fleet import jobs
from fedldp_fleet.common import documents
from fedldp_fleet.jobs import Job, QuantileJob, Schedule, StatisticJob, TrainingJob
from fedldp_fleet.signed_jobs import SignedJob

FORMAT = "fedldp job file 1"
ENDING = ".job.json"
NETWORK_SEED = 0  # of the first weights of a network: it is public


@final
@dataclass(frozen=True)
class JobFile:
    """A job on its way from an operator to a server."""

    job: Job
    server: PublicKey
    signed: str = ""  # empty before the operator has signed it

    def signed_by(self, operator: PrivateKey) -> "JobFile":
        """Return the file with the operator's signature."""
        return replace(self, signed=jobs.to_sign(self.job, self.server).signed(operator))

    def to_json(self) -> str:
        """Return the file's text."""
        document = {"format": FORMAT, "job": json.loads(self.job.to_json())}
        return canonical(document | {"server": self.server.text, "signed": self.signed})

    @classmethod
    def from_json(cls, text: str) -> "JobFile":
        """Read the file's text, or raise `WireError`."""
        with documents.reading(repr(FORMAT)):
            document = documents.parse(text, [FORMAT], ("job", "server", "signed"))
            job = jobs.read_job(canonical(document["job"]))
            found = cls(job, PublicKey.from_text(document["server"]), str(document["signed"]))
            if found.signed:
                SignedJob.unverified(found.signed)
            return found

    @classmethod
    def load(cls, path: Path) -> "JobFile":
        """Read a file."""
        return cls.from_json(path.read_text("utf-8", errors="replace"))

    def save(self, path: Path) -> None:
        """Write a file."""
        files.write(path, self.to_json())


def statistic(
    name: str, text: str, vehicles: int, schedule: Schedule, period: int | None = None
) -> StatisticJob:
    """Return the statistic of a plan or, with a period, of a calendar (JSON)."""
    if not is_calendar(text):
        if period is not None:
            raise DomainError(
                "period needs a calendar, and the file contains a plan. Leave the period out, or "
                "make a calendar with fedldp plan --periods."
            )
        return StatisticJob(name, Plan.from_json(text), vehicles, schedule)
    if period is None:
        raise DomainError("this is a calendar: say which period the job asks, from 1 on.")
    found = CalendarPeriod(Calendar.from_json(text), period)
    return StatisticJob(name, found.calendar.plan, vehicles, schedule, found)


def quantile(
    name: str,
    number: Number,
    level: float,
    epsilon: float,
    vehicles: int,
    schedule: Schedule,
    confidence: float = 0.95,
) -> QuantileJob:
    """Return the search for a quantile by at most so many vehicles, equally many in each round."""
    asked = vehicles - vehicles % ROUNDS
    return QuantileJob(name, QuantileSearch(number, level, epsilon, asked, confidence), schedule)


def training(
    name: str,
    model: Model,
    settings: Settings,
    vehicles: int,
    schedule: Schedule,
    rounds: int | None = None,
) -> TrainingJob:
    """Return the training that these settings describe for a number of vehicles.

    Every rule is that of a simulation: surveys, clip, plan, group and learning rate. With a number
    of rounds, the vehicles are divided among them; else rounds follow from the group.
    """
    if not settings.private:
        raise DomainError(
            "a fleet needs an epsilon, without which there is no privacy; got epsilon=None."
        )
    if settings.participations > 1:
        raise DomainError("in a fleet each vehicle answers a job once: leave participations out.")
    d, linear = model.dimensions, model.prior is not None
    survey = settings.survey_for(model.to_survey.numbers, vehicles, linear)
    if survey is not None:
        model = model.to_survey
    clip = settings.clip_for_model(model, survey, vehicles)
    plan = cast(Plan, settings.plan(d, clip.length, clip.mean_length))
    target = settings.target_survey_for(clip, vehicles)
    surveyed = 0 if survey is None else round(settings.survey_share * vehicles)
    target_surveyed = 0 if target is None else round(settings.target_share * vehicles)
    asked = vehicles - surveyed - target_surveyed
    if rounds is None:
        group = settings.group_size(d, asked, model.goal if linear else None, clip.length)
        rounds = max(1, -(-asked // group))
        if settings.max_iter is not None:
            rounds = min(rounds, settings.max_iter)
    elif settings.group == "auto":
        group = max(1, asked // rounds)
    else:
        raise DomainError("give either rounds or group: one follows from the other.")
    recipe = settings.recipe(d, rounds, model.network.distance, linear)
    kind = None if survey is None else survey.kind
    return TrainingJob(
        name,
        model,
        (plan,),
        recipe,
        rounds,
        group,
        schedule,
        kind,
        surveyed,
        target_surveyed,
    )


def first_model(
    objective: str,
    schema: Schema,
    target: str,
    network: Architecture = Network.linear,
    reference: str = Settings.reference,
) -> Model:
    """Return a model with public first weights: zeros, if it is linear."""
    features = Schema(tuple(each for each in schema.attributes if each.name != target))
    goal = named_objective(objective).for_target(schema[target])
    made = network(Features(features, reference).dimensions, goal)
    layers = made if made.layers else None
    weights = tuple(made.start(NETWORK_SEED).tolist())
    return Model(objective, features, schema[target], weights, reference, layers=layers)


def topped_up(
    job: Job,
    vehicles: int | None = None,
    rounds: int | None = None,
    schedule: Schedule | None = None,
) -> Job:
    """Return a job with more answers, more rounds or a later end; raise `DomainError` if not so."""
    if isinstance(job, QuantileJob):
        if rounds is not None or vehicles is not None:
            raise DomainError(
                "a search for a quantile cannot get more vehicles or rounds, only a later end."
            )
        more: Job = replace(job, schedule=schedule or job.schedule)
    elif isinstance(job, StatisticJob):
        if rounds is not None:
            raise DomainError("a statistic has one round: give more vehicles, or a later end.")
        more = replace(job, wanted=vehicles or job.wanted, schedule=schedule or job.schedule)
    elif isinstance(job, TrainingJob):
        if vehicles is not None:
            rounds = job.rounds + -(-(vehicles - jobs.wanted_of(job)) // job.group)
        more = replace(job, rounds=rounds or job.rounds, schedule=schedule or job.schedule)
    else:
        raise DomainError(f"expected a job; got {job!r:.80}.")
    if not more.extends(job):
        raise DomainError(
            f"the job {job.name!r} can only get more: more answers of a statistic, more rounds of "
            "a training, or a later end."
        )
    return more
