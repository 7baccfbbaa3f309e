"""What a server is to find out, from which plan and model, and how patiently."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, final

from fedldp._internal import toml
from fedldp._internal.validation import whole
from fedldp.attributes import is_real
from fedldp.errors import DomainError, FedLDPError
from fedldp.fleet.protocol import LAST_ROUND, MOST, MOST_BYTES, Question
from fedldp.learn.model import Model
from fedldp.learn.optimizer import Recipe
from fedldp.plan import Plan
from fedldp.schema import Number

LONGEST = 604_800  # seconds: a week
ENDING = ".summary.json"  # of the name of a job's summary

_DIGITS = 25  # of a weight in JSON, at the most: as many as a model may yet grow by

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Job:
    """A training or, without a model, a statistic: one round whose result is a tally.

    In each round the server asks every gateway for `reports` vehicles. It puts the same question
    again every `resend` seconds to gateways that are silent, and goes on without them after
    `deadline` seconds. When it ends, its summary says how many reports came and how many were
    `expected`. Paths may be relative to the working directory.

    A training may have a plan for each of several `levels` of epsilon, for vehicles that choose
    their own. Its rounds ask for one level after the other, with one model, and the model steps
    when all of them were asked: the gradients are weighted by their known variance. A vault
    whose owner has set an epsilon answers plans with that epsilon alone.

    >>> import fedldp
    >>> plan = Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0, mechanism="duchi")
    >>> job = Job("speeds", plan, "job.db", "tally.json", reports=100)
    >>> job.question("7", 1).n, job.rounds
    (100, 1)
    """

    name: str
    plan: Plan
    checkpoint: Path
    result: Path
    reports: int  # asked of each gateway in a round
    model: Model | None = None  # the first one
    recipe: Recipe | None = None
    gateways: int = 1  # so many must be there before the first round
    rounds: int = 1  # at the most
    resend: float = 12.0
    deadline: float = 120.0
    planned: int = 0  # reports in all, if the fleet has fewer vehicles than are asked for
    levels: tuple[Plan, ...] = ()  # further plans, with other epsilons

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
                f"resend must be at most the deadline of {self.deadline:g} seconds, or nobody is "
                f"ever asked again; got {self.resend:g}."
            )
        for name in ("checkpoint", "result"):
            object.__setattr__(self, name, Path(getattr(self, name)))
        if self.checkpoint.resolve() == self.result.resolve():
            raise DomainError(f"checkpoint and result must be two files; got {self.result} twice.")
        if self.model is not None or self.recipe is not None:
            _check_training(self.plan, self.model, self.recipe)
            _check_levels(self.plans, self.rounds)
        elif self.levels:
            raise DomainError(
                "levels are for a training. For a statistic, run a job for each level, and combine "
                "the estimates with fedldp.combine."
            )
        elif self.rounds != 1:
            raise DomainError(
                f"a job without a model is a statistic of one round; got rounds = {self.rounds}. "
                "Leave rounds out, or name a model."
            )
        questions = [self.question("0", 1 + place) for place in range(len(self.plans))]
        if self.summary.resolve() in (self.checkpoint.resolve(), self.result.resolve()):
            raise DomainError(
                f"{self.summary} is where the job's summary is written: give the checkpoint and "
                "the result other names."
            )
        weights = 0 if self.model is None else _DIGITS * len(self.model.weights)
        for question in questions:
            question.check()
            if (length := len(question.to_bytes()) + weights) > MOST_BYTES:
                raise DomainError(
                    f"a question may have {MOST_BYTES} bytes, and with this plan and model it may "
                    f"take {length}: choose fewer features, or fewer outputs."
                )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Job":
        """Read a job from a TOML file, in which paths are relative to the file."""
        path = Path(path).resolve()
        entries = toml.read(path, _ENTRIES, _NEEDED)
        try:
            return cls(**_arguments(entries, path.parent))
        except FedLDPError as error:
            raise DomainError(f"{path}: {error}") from error

    def question(self, gateway: str, number: int, model: Model | None = None) -> Question:
        """Return what a gateway is asked in a round, the first of which is 1.

        The model is the one of that round, by default the first.
        """
        model = model or self.model
        text = "" if model is None else model.to_json()
        plan = self.plan_of(number).to_json()
        return Question(self.name, number, gateway, self.reports, plan, text)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans of all levels: one, if vehicles do not choose."""
        return (self.plan, *self.levels)

    def plan_of(self, number: int) -> Plan:
        """Return the plan that is asked in a round."""
        return self.plans[(number - 1) % len(self.plans)]

    @property
    def expected(self) -> int:
        """How many reports a job collects in which all that was planned comes.

        As many as it asks for or, as that is rounded up, as many as are planned.
        """
        asked = self.gateways * self.reports * self.rounds
        return min(asked, self.planned or asked)

    @property
    def summary(self) -> Path:
        """The file that says what came of the job, beside its result."""
        return self.result.with_name(f"{self.name}{ENDING}")

    @property
    def log(self) -> Path:
        """The job's own log, on the server."""
        return self.checkpoint.with_suffix(".log")

    @cached_property
    def settings(self) -> str:
        """A digest of all that a job may not change while it runs.

        How long it waits for whom, and when it ends, may change.
        """
        parts = (self.name, self.plan.fingerprint, self.model and self.model.fingerprint)
        levels = tuple(plan.fingerprint for plan in self.levels)
        recipe = "None" if self.recipe is None else self.recipe.digest_text
        texts = [*map(repr, parts), recipe, *map(repr, (self.reports, *levels))]
        text = f"({', '.join(texts)})"
        return hashlib.sha256(text.encode()).hexdigest()


def _check_training(plan: Plan, model: Model | None, recipe: Recipe | None) -> None:
    if not isinstance(model, Model) or not isinstance(recipe, Recipe):
        raise DomainError(
            "a training needs both a model, the first one, and a recipe, by which the server "
            "steps; a statistic has neither."
        )
    recipe.rate  # noqa: B018 (refuses one that is not resolved)
    vector, d = plan.schema.attributes[0], len(model.weights)
    if not isinstance(vector, Number) or (len(plan.schema), vector.size) != (1, d):
        raise DomainError(
            f"the plan must be for the gradient of this model, a vector of {d} numbers, as of "
            f"Schema.vector({d}, bound=1.0); got {plan.schema!r:.200}."
        )


def _check_levels(plans: tuple[Plan, ...], rounds: int) -> None:
    if not all(isinstance(plan, Plan) for plan in plans):
        raise DomainError(f"levels must be plans; got {plans[1:]!r:.200}.")
    if any(plan.schema != plans[0].schema for plan in plans):
        raise DomainError("the plans of all levels must have one schema: the same bound.")
    if len({plan.epsilon for plan in plans}) < len(plans):
        raise DomainError("the plans of levels must have different epsilons.")
    if rounds % len(plans):
        raise DomainError(
            f"rounds must be a multiple of the number of plans, {len(plans)}: each round asks for "
            f"one, and the model steps when all were asked; got {rounds}."
        )


_ENTRIES: dict[str, toml.Types] = {
    "job": str,
    "plan": str,
    "levels": list,
    "model": str,
    "gateways": int,
    "reports": int,
    "rounds": int,
    "resend": (int, float),
    "deadline": (int, float),
    "planned": int,
    "checkpoint": str,
    "result": str,
    "recipe": dict,
}
_NEEDED = ("job", "plan", "reports", "checkpoint", "result")
_READ = {"plan": Plan.from_json, "model": Model.from_json}


def _arguments(entries: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return what a job is made of, from the entries of its file."""
    found = {"name" if name == "job" else name: value for name, value in entries.items()}
    written = [(folder / found[name]).resolve() for name in ("checkpoint", "result")]
    found["checkpoint"], found["result"] = written
    written.append(written[1].parent / f"{found['name']}{ENDING}")

    def read(name: str, place: Any, parse: Callable[[str], T]) -> T:
        if not isinstance(place, str):
            raise DomainError(f"{name} must be the names of files; got {place!r:.80}.")
        path = (folder / place).resolve()
        if path in written:
            raise DomainError(f"the {name} would be overwritten by the job: name another file.")
        return _read(path, parse)

    for name, parse in _READ.items():
        if name in found:
            found[name] = read(name, found[name], parse)
    found["levels"] = [read("levels", each, Plan.from_json) for each in found.get("levels", ())]
    if "recipe" in found:
        found["recipe"] = Recipe.from_document(found["recipe"])
    return found


def _read(path: Path, parse: Callable[[str], T]) -> T:
    try:
        return parse(path.read_text("utf-8"))
    except OSError as error:
        raise DomainError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:  # of the parser, or bytes that are no text
        raise DomainError(f"{path}: {error}") from error
