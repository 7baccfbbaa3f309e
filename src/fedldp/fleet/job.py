"""A job: what the server asks, with which plan and model, and how long it waits."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar, cast, final

from fedldp import signing
from fedldp._internal import toml
from fedldp._internal.validation import is_real, whole
from fedldp.budget.calendars import Calendar, CalendarPeriod, is_calendar
from fedldp.errors import DomainError, FedLDPError, WireError
from fedldp.fleet import signed_jobs
from fedldp.fleet.protocol import LAST_ROUND, MOST, MOST_BYTES, Question
from fedldp.fleet.signed_jobs import SignedJob
from fedldp.fleet.stages import Collection, Descent, Span, Stage, SurveyStage, span_of, spans
from fedldp.learn.clipping import Clip
from fedldp.learn.computations import check_work, read
from fedldp.learn.model import Model
from fedldp.learn.noise_aware import Prior
from fedldp.learn.optimizer import Recipe
from fedldp.learn.survey import SURVEYS, Survey, choose
from fedldp.plan.plan import Plan
from fedldp.schema.attributes import Number
from fedldp.signing import PublicKeys

LONGEST = 604_800  # seconds: a week
ENDING = ".summary.json"  # of the name of a job's summary

_OF_TARGET = 2  # numbers of the map of a target
_DIGITS = 25  # of a weight in JSON, at most: the model in a question can become this much longer

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Job:
    """A training or, without a model, a statistic: one round whose result is a tally.

    In each round the server asks every gateway for the reports of some vehicles. The rounds belong
    to stages, each with a plan of its own: a training may begin with a survey. When the job ends,
    its summary says how many reports came, and how many were expected.

    Parameters
    ----------
    name : str
        The name of the job, in all ledgers too: a vehicle answers each name a limited number of
        times. 1 to 64 letters, digits or any of ``. _ -``.
    plan : Plan
        What the vehicles report, and at which epsilon. For a training, a plan for the gradient of
        the model, as `Settings.plan` returns it.
    checkpoint : str or os.PathLike
        The file that holds the state of the job and all reports. A server that is started again
        resumes from it.
    result : str or os.PathLike
        The file to write: the model of a training, or the tally of a statistic (JSON).
    reports : int
        How many vehicles each gateway is asked for in a round.
    model : Model, optional
        The first model of a training. A statistic has none.
    recipe : Recipe, optional
        How the server makes a step, as `Settings.recipe` returns it. A training needs one.
    gateways : int, default=1
        How many gateways must be connected before the first round.
    rounds : int, default=1
        The largest number of rounds, with those of a survey.
    resend : float, default=12.0
        Seconds after which the same question is sent again to a gateway that has not answered.
    deadline : float, default=120.0
        Seconds after which a round ends without the gateways that have not answered, if any vehicle
        has answered.
    planned : int, default=0
        How many reports are planned in all, if the fleet has fewer vehicles than
        the rounds ask for. 0 means that all of these are planned.
    survey : {"auto", "scale", "whiten"}, optional
        Ask some vehicles about their numbers first, in two or three rounds: see
        `fedldp.learn.Survey`. The model then scales its numbers by what they answered. With "auto",
        public numbers decide; by default there is no survey.
    survey_reports : int, default=0
        How many vehicles each gateway is asked for in all rounds of the survey together. They are
        not asked for gradients.
    target_reports : int, default=0
        For a linear regression: how many vehicles each gateway is asked for in all rounds of a
        survey of the target together, which maps the target. They are not asked for gradients.
    levels : sequence of Plan, default=()
        Further plans for a training in which vehicles choose their own epsilon, one for each other
        epsilon. The rounds take the plans in turn, with the same model, and the model makes a step
        when all were asked: the gradients are weighted by their known variance. A vault whose owner
        has set an epsilon answers only plans with that epsilon.
    period : CalendarPeriod, optional
        For a statistic that is asked again and again: which period of a calendar of this plan is
        asked. Vehicles answer only in periods that they have drawn.
    signed : str, default=""
        What the operator has signed of this job, as `fedldp fleet sign` writes it. Vaults that hold
        the operator's public key answer only signed jobs.

    Raises
    ------
    DomainError
        If a parameter is invalid, or if the parameters do not fit together.

    Examples
    --------
    >>> import fedldp
    >>> plan = Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0, mechanism="duchi")
    >>> job = Job("speeds", plan, "job.db", "tally.json", reports=100)
    >>> job.question("7", 1).n, job.rounds, job.plan_of(1) == plan
    (100, 1, True)
    """

    name: str
    plan: Plan
    checkpoint: Path
    result: Path
    reports: int
    model: Model | None = None
    recipe: Recipe | None = None
    gateways: int = 1
    rounds: int = 1
    resend: float = 12.0
    deadline: float = 120.0
    planned: int = 0
    levels: tuple[Plan, ...] = ()
    survey: str | None = None
    survey_reports: int = 0
    target_reports: int = 0
    period: CalendarPeriod | None = None
    signed: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.plan, Plan):
            raise DomainError(f"plan must be a Plan; got {self.plan!r:.80}.")
        object.__setattr__(self, "levels", tuple(self.levels))
        for name, most in (("gateways", MOST), ("reports", MOST), ("rounds", LAST_ROUND)):
            value = getattr(self, name)
            if isinstance(value, bool) or not 1 <= whole(value, name) <= most:
                raise DomainError(f"{name} must be from 1 to {most}; got {value!r}.")
        if isinstance(self.planned, bool) or whole(self.planned, "planned") < 0:
            raise DomainError(
                "planned must be a positive number of reports, or be left out; "
                f"got {self.planned!r}."
            )
        for name in ("resend", "deadline"):
            value = getattr(self, name)
            if not is_real(value) or not 0 < value <= LONGEST:
                raise DomainError(
                    f"{name} must be a positive number of seconds up to {LONGEST}; got {value!r}."
                )
            object.__setattr__(self, name, float(value))
        if self.resend > self.deadline:
            raise DomainError(
                f"resend must be at most the deadline of {self.deadline:g} seconds, otherwise no "
                f"question is ever sent again; got {self.resend:g}."
            )
        for name in ("checkpoint", "result"):
            object.__setattr__(self, name, Path(getattr(self, name)))
        if self.checkpoint.resolve() == self.result.resolve():
            raise DomainError(
                f"checkpoint and result must be different files; got {self.result} twice."
            )
        _check_survey(self)
        if self.model is not None or self.recipe is not None:
            _check_training(self)
            _check_levels(self.plans, self.rounds)
            _check_rounds(self)
        elif self.levels:
            raise DomainError(
                "levels are for a training only. For a statistic, run a job for each level and "
                "combine the estimates with fedldp.combine_estimates."
            )
        elif self.period is not None and self.period.calendar.plan != self.plan:
            raise DomainError("period must be of a calendar of the job's plan; got another plan's.")
        elif self.rounds != 1:
            raise DomainError(
                "a job without a model is a statistic and has one round; "
                f"got rounds = {self.rounds}. Leave rounds out, or give a model."
            )
        if self.summary.resolve() in (self.checkpoint.resolve(), self.result.resolve()):
            raise DomainError(
                f"{self.summary} is the file of the job's summary: choose another name for the "
                "checkpoint or the result."
            )
        self._check_questions()
        if self.signed:
            _check_signed(self)

    def _check_questions(self) -> None:
        """Refuse a job whose questions can become too large, or that a vault does not compute."""
        numbers = 0 if self.model is None else len(self.model.weights) + _OF_TARGET
        if self.actual_survey is not None:
            numbers += self.actual_survey.numbers * (self.actual_survey.numbers + 2)  # of a scaling
        for first, last in ((span.first, span.cycle(span.first)[-1]) for span in self.spans):
            for number in range(first, last + 1):
                question = self.question("0", number)
                question.check()
                if question.model:
                    check_work(read(question.model), question.n)
                if (length := len(question.to_bytes()) + _DIGITS * numbers) > MOST_BYTES:
                    raise DomainError(
                        f"a question must have at most {MOST_BYTES} bytes; with this plan and "
                        f"model it may have {length}. Choose fewer features or fewer outputs."
                    )

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, signed: bool = True) -> "Job":
        """Read a job from a TOML file.

        Parameters
        ----------
        path : str or os.PathLike
            The file, as `fedldp fleet init` writes it. Paths in it are relative to its folder.
        signed : bool, default=True
            Whether to read what the operator has signed of the job, if the file names it. Without
            it, vaults that hold the operator's public key do not answer.

        Returns
        -------
        Job
            The job.

        Raises
        ------
        DomainError
            If an entry is missing, unknown or invalid, or the job was changed after it was signed.

        Examples
        --------
        >>> import fedldp, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> plan = Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0)
        >>> _ = Path(folder.name, "plan.json").write_text(plan.to_json())
        >>> _ = Path(folder.name, "job.toml").write_text('''
        ... job = "speeds"
        ... plan = "plan.json"
        ... reports = 100
        ... checkpoint = "job.db"
        ... result = "tally.json"
        ... ''')
        >>> Job.load(Path(folder.name, "job.toml")).reports
        100
        >>> folder.cleanup()
        """
        path = Path(path).resolve()
        entries = toml.read(path, _ENTRIES, _NEEDED)
        try:
            return cls(**_arguments(entries, path.parent, signed))
        except FedLDPError as error:
            raise DomainError(f"{path}: {error}") from error

    def question(self, gateway: str, number: int, model: Model | None = None) -> Question:
        """Return what a gateway is asked in a round.

        Parameters
        ----------
        gateway : str
            The name of the gateway.
        number : int
            The number of the round; the first is 1.
        model : Model, optional
            The model of that round; by default the first model of the job.

        Returns
        -------
        fedldp.fleet.protocol.Question
            The question, with the plan and the model as JSON.
        """
        span = self.span_of(number)
        asked = span.stage.computation(model or self.model)
        plan = (self.period or span.plan(number)).to_json()
        return Question(self.name, number, gateway, span.stage.reports, plan, asked, self.signed)

    @cached_property
    def actual_survey(self) -> Survey | None:
        """The survey that the job begins with; None if it has no survey, or "auto" decided so."""
        if self.survey is None or self.model is None:
            return None
        numbers, epsilon = self.model.numbers, self.plan.epsilon
        kind = choose(self.survey, numbers, self.gateways * self.survey_reports, epsilon)
        return None if kind is None else Survey(kind, numbers, epsilon)

    @cached_property
    def target_survey(self) -> Survey | None:
        """The survey of the target that comes next, if there is one."""
        if not self.target_reports or self.model is None:
            return None
        vector = cast(Number, self.plan.schema.attributes[0])
        features = self.model.features
        if (survey := self.actual_survey) is not None:
            features = replace(features, scaling=survey.start)
        row_length = Prior.of(features, self.model.goal).length
        clip = Clip.at(vector.high if vector.length is None else vector.length, row_length)
        vehicles = self.gateways * self.target_reports
        return Survey.of_target(self.plan.epsilon, vehicles, cast(float, clip.spreads))

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The stages: a survey's rounds and gradients, or the collection of a statistic."""
        if self.model is None or self.recipe is None:
            return (Collection(self.plan, self.reports, self.period),)
        found: list[Stage] = []
        surveys = (
            (self.actual_survey, self.survey_reports),
            (self.target_survey, self.target_reports),
        )
        for survey, reports in surveys:
            if survey is None:
                continue
            groups = survey.groups(reports)
            for each, plan, group in zip(survey.rounds, survey.plans, groups, strict=True):
                found.append(SurveyStage(each, survey, plan, group, self.model))
        rounds = self.rounds - len(found)
        return (*found, Descent(self.plans, rounds, self.reports, self.model, self.recipe))

    @property
    def spans(self) -> list[Span]:
        """The stages with their rounds."""
        return list(spans(self.stages))

    def span_of(self, number: int) -> Span:
        """Return the stage of a round, with its rounds.

        Parameters
        ----------
        number : int
            The number of the round; the first is 1.

        Returns
        -------
        fedldp.fleet.stages.Span
            The stage.

        Examples
        --------
        >>> import fedldp
        >>> plan = Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0)
        >>> Job("speeds", plan, "job.db", "tally.json", reports=100).span_of(1).stage.name
        'statistics'
        """
        return span_of(self.stages, number)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plan, followed by those of `levels`."""
        return (self.plan, *self.levels)

    def plan_of(self, number: int) -> Plan:
        """Return the plan of a round.

        Parameters
        ----------
        number : int
            The number of the round; the first is 1.

        Returns
        -------
        Plan
            The plan that the vehicles answer in this round.
        """
        return self.span_of(number).plan(number)

    @property
    def expected(self) -> int:
        """The number of reports that the job collects if every planned report arrives.

        It is the number of reports that are asked for, or `planned` if that is smaller.
        """
        asked = self.gateways * sum(stage.rounds * stage.reports for stage in self.stages)
        return min(asked, self.planned or asked)

    @property
    def summary(self) -> Path:
        """The path of the job's summary, in the folder of the result."""
        return self.result.with_name(f"{self.name}{ENDING}")

    @property
    def log(self) -> Path:
        """The path of the job's log, beside the checkpoint."""
        return self.checkpoint.with_suffix(".log")

    @cached_property
    def settings(self) -> str:
        """A digest of everything that must not change when a job is resumed.

        The numbers of gateways and rounds and the waiting times may change.
        """
        parts = (self.name, self.plan.fingerprint, self.model and self.model.fingerprint)
        levels = tuple(plan.fingerprint for plan in self.levels)
        recipe = "None" if self.recipe is None else self.recipe.digest_text
        texts = [*map(repr, parts), recipe, *map(repr, (self.reports, *levels))]
        for stage in self.stages[:-1]:
            texts.append(repr((stage.name, stage.plans[0].fingerprint, stage.reports)))
        if self.period is not None:
            texts.append(repr(self.period.to_json()))
        text = f"({', '.join(texts)})"
        return hashlib.sha256(text.encode()).hexdigest()


def _check_training(job: Job) -> None:
    plan, model, recipe = job.plan, job.model, job.recipe
    if not isinstance(model, Model) or not isinstance(recipe, Recipe):
        raise DomainError(
            "a training needs both a model and a recipe, a statistic neither. Give both, or leave "
            "both out."
        )
    if job.period is not None:
        raise DomainError("periods are for a statistic: leave period out, or model and recipe.")
    d = len(model.weights)
    if not plan.schema.is_vector(d):
        raise DomainError(
            f"the plan must be for the gradient of this model, a vector of {d} numbers; "
            f"got {plan.schema!r:.200}. Use Schema.vector({d}, bound=1.0)."
        )


def _check_signed(job: Job) -> None:
    """Refuse a job that differs from what its operator has signed: vaults would not answer it."""
    signed = SignedJob.unverified(job.signed)
    if SignedJob.of(job, signed.expires) != signed:
        raise DomainError(
            f"the job {job.name!r} was changed after it was signed, so vaults would not answer it. "
            f"Sign it again, where the operator's key is: {SIGN}"
        )


def _check_survey(job: Job) -> None:
    asked = whole(job.survey_reports, "survey_reports")
    if isinstance(job.survey_reports, bool) or not 0 <= asked <= MOST:
        raise DomainError(f"survey_reports must be from 0 to {MOST}; got {job.survey_reports!r}.")
    asked = whole(job.target_reports, "target_reports")
    if isinstance(job.target_reports, bool) or not 0 <= asked <= MOST:
        raise DomainError(f"target_reports must be from 0 to {MOST}; got {job.target_reports!r}.")
    if asked and (
        job.model is None or job.levels or job.model.goal.classifies or job.model.layers is not None
    ):
        raise DomainError(
            "target_reports are for a linear regression in which all vehicles answer with one "
            "epsilon: leave target_reports out."
        )
    if (job.survey is None) == (job.survey_reports > 0):
        raise DomainError(
            "a survey needs both survey and survey_reports, the number of vehicles that each "
            f"gateway is asked for; got {job.survey!r} and {job.survey_reports}."
        )
    if job.survey is None:
        return
    if job.survey not in SURVEYS:
        known = ", ".join(repr(each) for each in SURVEYS if each is not None)
        raise DomainError(f"survey must be one of {known}; got {job.survey!r:.80}.")
    if job.model is None or job.levels:
        raise DomainError(
            "a survey is for a training in which all vehicles answer with one epsilon: leave "
            "survey out, or give a model and no levels."
        )
    if job.model.scaling is not None:
        raise DomainError(
            "a survey finds the scaling of a model; the first model has one already. Leave survey "
            "out, or give a model without a scaling."
        )


def _check_rounds(job: Job) -> None:
    """Refuse a survey that leaves no round for gradients, or has rounds that ask nobody."""
    *survey, gradients = job.stages
    if gradients.rounds < 1:
        raise DomainError(
            f"rounds must be more than the {len(survey)} of the survey; got {job.rounds}."
        )
    if any(stage.reports < 1 for stage in survey):
        raise DomainError(
            "survey_reports and target_reports must be enough for a vehicle in each round of the "
            f"survey; got {job.survey_reports} and {job.target_reports}."
        )


def _check_levels(plans: tuple[Plan, ...], rounds: int) -> None:
    if not all(isinstance(plan, Plan) for plan in plans):
        raise DomainError(f"levels must be plans; got {plans[1:]!r:.200}.")
    if any(plan.schema != plans[0].schema for plan in plans):
        raise DomainError("the plans of all levels must have the same schema and bound.")
    if len({plan.epsilon for plan in plans}) < len(plans):
        raise DomainError("the plans of levels must have different epsilons.")
    if rounds % len(plans):
        raise DomainError(
            f"rounds must be a multiple of the number of plans, {len(plans)}, because each round "
            f"asks one of them; got {rounds}."
        )


_ENTRIES: dict[str, toml.Types] = {
    "job": str,
    "plan": str,
    "period": int,
    "levels": list,
    "model": str,
    "gateways": int,
    "reports": int,
    "rounds": int,
    "resend": (int, float),
    "deadline": (int, float),
    "planned": int,
    "survey": str,
    "survey_reports": int,
    "target_reports": int,
    "checkpoint": str,
    "result": str,
    "recipe": dict,
    "signed": str,
    "operator": str,  # the file with the public key that must have signed it
}
_NEEDED = ("job", "plan", "reports", "checkpoint", "result")
SIGN = "fedldp fleet sign FOLDER --key operator.key"


def _arguments(entries: dict[str, Any], folder: Path, signed: bool) -> dict[str, Any]:
    """Return the arguments of `Job` from the entries of its file."""
    entries = dict(entries)
    operator = entries.pop("operator", None)
    if not signed:
        entries.pop("signed", None)
    found = {"name" if name == "job" else name: value for name, value in entries.items()}
    written = [(folder / found[name]).resolve() for name in ("checkpoint", "result")]
    found["checkpoint"], found["result"] = written
    written.append(written[1].parent / f"{found['name']}{ENDING}")

    def read(name: str, place: Any, parse: Callable[[str], T]) -> T:
        if not isinstance(place, str):
            raise DomainError(f"{name} must be names of files; got {place!r:.80}.")
        path = (folder / place).resolve()
        if path in written:
            raise DomainError(
                f"the job would overwrite the file of its {name}, {path}: choose another file."
            )
        return _read(path, parse)

    parse = partial(_plan_and_period, found.get("period"))
    found["plan"], found["period"] = read("plan", found["plan"], parse)
    if "model" in found:
        found["model"] = read("model", found["model"], Model.from_json)
    found["levels"] = [read("levels", each, Plan.from_json) for each in found.get("levels", ())]
    if "signed" in found:
        found["signed"] = _signed(folder, found["signed"], operator)
    if "recipe" in found:
        found["recipe"] = Recipe.from_document(found["recipe"])
    return found


def _plan_and_period(number: int | None, text: str) -> tuple[Plan, CalendarPeriod | None]:
    """Read a plan, or a calendar with the number of one of its periods."""
    if not is_calendar(text):
        if number is not None:
            raise DomainError(
                "period needs a calendar, and the file contains a plan. Leave period out, or make "
                "a calendar with fedldp plan --periods."
            )
        return Plan.from_json(text), None
    if number is None:
        raise DomainError("this is a calendar: say in the job which period it asks, period = 1.")
    period = CalendarPeriod(Calendar.from_json(text), number)
    return period.calendar.plan, period


def _signed(folder: Path, name: str, operator: str | None) -> str:
    """Return the signed text of a job, which its operator must have signed."""
    path = folder / name
    if not path.exists():
        raise DomainError(f"{path} does not exist: the job is not signed. Sign it: {SIGN}")
    text = _read(path, str)
    if operator is not None:
        try:
            signing.verify(PublicKeys.load(folder / operator), text, signed_jobs.FORMAT)
        except WireError as error:
            raise DomainError(f"{path}: {error} Sign the job again: {SIGN}") from None
    return text


def _read(path: Path, parse: Callable[[str], T]) -> T:
    try:
        return parse(path.read_text("utf-8"))
    except OSError as error:
        raise DomainError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:  # from the parser, or because the bytes are not UTF-8
        raise DomainError(f"{path}: {error}") from error
