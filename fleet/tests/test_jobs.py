"""Jobs as data: written, read, signed, extended."""

import datetime
import hashlib
from dataclasses import replace

import pytest
from engine_cases import (
    FIXED,
    GRADIENTS,
    MODEL,
    OF_FIXED,
    OPENS,
    OPERATOR,
    PLAN,
    RECIPE,
    ROWS,
    SCHEDULE,
    SERVER,
    statistic,
    training,
)

from fedldp import Calendar, Number, Plan, Schema
from fedldp.budget.calendars import CalendarPeriod
from fedldp.errors import DomainError, WireError
from fedldp.learn import Scaling, Settings, computations
from fedldp.learn.survey import Survey
from fedldp.plan.strategies import Directions, Sample
from fedldp.signing import PrivateKey
from fedldp_fleet import jobs
from fedldp_fleet.jobs import Schedule, StatisticJob, TrainingJob, read_job
from fedldp_fleet.questions import Question, Statement
from fedldp_fleet.server import work
from fedldp_fleet.signed_jobs import SignedJob, sha256_text

LATER = replace(SCHEDULE, closes=OPENS + datetime.timedelta(days=2))
LEVELS = (GRADIENTS, Plan(Schema.vector(3, 1.0), 4.0, Sample(k=1, mechanism="three-outputs")))
CALENDAR = Calendar(PLAN, periods=7, answers=2)

BY_RULE = Settings(2.0, survey="scale")

JOBS = {
    "statistic": statistic(),
    "period": statistic(period=CalendarPeriod(CALENDAR, 3)),
    "training": training(),
    "survey": training(survey="whiten", surveyed=16),
    "hidden numbers": work.training("learn", OF_FIXED, BY_RULE, 200, SCHEDULE),
    "levels": replace(training(), plans=LEVELS, rounds=4),
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_a_job_is_read_as_it_was_written(job):
    again = read_job(job.to_json())
    assert again.to_json() == job.to_json()
    for number in range(1, jobs.rounds_of(job) + 1):
        assert jobs.question(again, number, again.start) == jobs.question(job, number, job.start)


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_what_is_signed_covers_each_question_and_no_other(job):
    text = jobs.to_sign(job, SERVER.public).signed(OPERATOR)
    found = SignedJob.verified(text, OPERATOR.public)
    assert found.rounds == jobs.rounds_of(job)
    for number in range(1, found.rounds + 1):
        found.stage_of(jobs.question(job, number, job.start))
    asked = jobs.question(job, 1, job.start)
    for other in (
        replace(asked, job="other"),
        replace(asked, round=found.rounds + 1),
        replace(asked, plan=Plan(Schema.of(speed=(0, 50)), 1.0).to_json()),
    ):
        with pytest.raises(DomainError):
            found.stage_of(other)
    with pytest.raises(WireError):
        SignedJob.verified(text, PrivateKey.generate().public)


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_a_question_has_one_form(job):
    asked = jobs.question(job, 1, job.start)
    assert Question.from_bytes(asked.to_bytes()) == asked
    with pytest.raises(WireError):
        Question.from_bytes(asked.to_bytes() + b" ")
    statement = Statement(job.name, 1, asked.digest)
    text = statement.signed(SERVER)
    assert text == statement.signed(SERVER)  # the same bytes for all agents
    Statement.verified(text, SERVER.public).check(asked)
    with pytest.raises(WireError):
        Statement.verified(text, SERVER.public).check(replace(asked, round=2))
    with pytest.raises(WireError):
        Statement.verified(text, OPERATOR.public)


def test_the_stages_of_a_training_are_those_of_its_survey_and_its_gradients():
    job, survey = JOBS["survey"], Survey("whiten", 2, GRADIENTS.epsilon)
    assert [span.stage.name for span in jobs.spans(job.stages)] == [
        "a survey of centres",
        "a survey of scales",
        "a survey of signs",
        "gradients",
    ]
    plans = [jobs.span_of(job, number).plan(number) for number in range(1, 7)]
    assert plans == [*survey.plans, *[GRADIENTS] * 3]
    assert [stage.wanted for stage in job.stages] == [4, 4, 8, 8]
    assert jobs.wanted_of(job) == 16 + 3 * 8


def test_a_survey_of_hidden_numbers_names_the_layers_that_each_row_goes_through():
    job = JOBS["hidden numbers"]
    *surveys, gradients = (stage.computation(job.start) for stage in job.stages)
    for text, asks in zip(surveys, ("centres", "scales"), strict=True):
        asked = computations.read(text)
        assert (asked.asks, asked.layers, asked.schema) == (asks, FIXED, ROWS)
    assert job.recipe.optimizer.name == "noise-aware"
    stages, other = jobs.to_sign(job, SERVER.public).stages, replace(FIXED, fixed=(0.5,) * 9)
    for stage, text in zip(stages, (*surveys, gradients), strict=True):
        asked = computations.read(text)
        stage.check(asked)
        with pytest.raises(DomainError, match="other layers"):
            stage.check(replace(asked, layers=other))


def test_what_a_survey_finds_in_hidden_numbers_becomes_a_layer_of_the_result():
    found = Scaling((0.25, 0.0, -0.5), (2.0, 4.0, 1.0))
    learned = replace(JOBS["hidden numbers"].start, scaling=found)
    first = JOBS["hidden numbers"].model_at_start
    asked, result = learned.model(first), learned.result(first)
    assert asked.hidden_scaling == found
    assert (
        asked.declaration
        == first.declaration
        == result.declaration | {"network": FIXED.to_document()}
    )
    assert asked.network == result.network == result.layers == FIXED.scaled(found)
    assert result.hidden_scaling is None
    assert '"format":"fedldp model 4"' in result.to_json()


def test_a_job_of_an_earlier_version_surveys_the_attributes_before_fixed_layers():
    """Its files, questions and signature are those of the version that has made it."""
    plan = Plan(Schema.vector(4, length=1.0), 2.0, Directions(mean_length=0.5))
    job = TrainingJob("old", OF_FIXED, (plan,), RECIPE, 3, 8, SCHEDULE, "scale", 16)
    written = "ce233ba03a4ad24ebcd7d19403e7822ac05e4786a383fcfdb041ddf53c4db662"
    asked = "2e6053e20b0945f651142515cf8462cf8c9ede10fdc239df8a62eabad92e1a27"
    assert sha256_text(job.to_json()) == written
    digest, learned = hashlib.sha256(), job.start
    for number in range(1, jobs.rounds_of(job) + 1):
        if number == 3:
            learned = replace(learned, scaling=Scaling((0.25, 0.0), (2.0, 4.0)))
        digest.update(jobs.question(job, number, learned).to_bytes())
    digest.update(repr(jobs.to_sign(job, SERVER.public).stages).encode())
    digest.update(learned.result(OF_FIXED).to_json().encode())
    assert digest.hexdigest() == asked


def test_a_lot_stands_for_each_round_as_often_as_it_wants_answers():
    signed = jobs.to_sign(JOBS["survey"], SERVER.public)
    rounds = [signed.round_of(lot) for lot in range(2 * 40)]
    assert [rounds.count(number) for number in range(1, 7)] == [8, 8, 16, 16, 16, 16]


def test_a_job_is_extended_by_more_answers_more_rounds_or_a_later_end():
    assert statistic(wanted=20, schedule=LATER).extends(statistic(wanted=10))
    assert not statistic(wanted=5).extends(statistic(wanted=10))
    assert not statistic("other").extends(statistic())
    assert not training().extends(statistic())
    assert training(rounds=5).extends(training(rounds=3))
    assert not training(group=9).extends(training(group=8))
    assert not training(rounds=2).extends(training(rounds=3))
    earlier = replace(SCHEDULE, closes=OPENS + datetime.timedelta(hours=1))
    assert not statistic(schedule=earlier).extends(statistic())


def test_what_makes_no_sense_is_refused():
    with pytest.raises(DomainError, match="wanted must be a whole number"):
        statistic(wanted=0)
    with pytest.raises(DomainError, match="the name of a job"):
        statistic("a b")
    with pytest.raises(DomainError, match="closes must be later"):
        Schedule(OPENS, OPENS)
    with pytest.raises(DomainError, match="order must be one of call, lot"):
        replace(SCHEDULE, order="alphabet")
    with pytest.raises(DomainError, match="answer_seconds must be positive"):
        replace(SCHEDULE, answer_seconds=0)
    with pytest.raises(DomainError, match="round_seconds must be at least twice answer_seconds"):
        training(schedule=replace(SCHEDULE, answer_seconds=10, round_seconds=19))
    with pytest.raises(DomainError, match="a vector of 3 numbers"):
        replace(training(), plans=(PLAN,))
    with pytest.raises(DomainError, match="a survey needs a kind"):
        training(surveyed=3)
    with pytest.raises(DomainError, match="for a linear regression"):
        training(target_surveyed=3)
    with pytest.raises(DomainError, match="a calendar of the job's plan"):
        StatisticJob(
            "spring", Plan(Schema.of(x=(0, 1)), 2.0), 3, SCHEDULE, CalendarPeriod(CALENDAR, 1)
        )


@pytest.mark.parametrize(
    ("old", "new"),
    [("statistic job 1", "statistic job 9"), ('"wanted":10', '"wanted":-1'), ('"name":', '"nm":')],
)
def test_a_job_that_was_damaged_is_refused(old, new):
    with pytest.raises(WireError):
        read_job(statistic().to_json().replace(old, new))


def test_a_linear_regression_may_survey_its_target():
    model = replace(MODEL, objective="squared", target=Number("y", -10, 10))
    plan = Plan(Schema.vector(3, length=0.6), 2.0, strategy="directions")
    job = replace(training(), model_at_start=model, plans=(plan,), target_surveyed=300)
    assert next(stage.name for stage in job.stages) == "a survey of the target, sides"
    assert read_job(job.to_json()).to_json() == job.to_json()
