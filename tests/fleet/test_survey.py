"""A survey as the first rounds of a training: plain plans, one answer each, a map that stays."""

import contextlib
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from gateways import (
    FEATURES,
    MODEL,
    PLAN,
    AsSimulated,
    Network,
    batch,
    final,
    honest,
    result,
    training,
)
from kills import Killed, fast, kill_at
from vaults import MATRIX, SCHEMA, asked, lines, vault

import fedldp
from fedldp import OptionalNumber, Plan, Schema, datasets
from fedldp.errors import DomainError, FedLDPError, WireError
from fedldp.fleet.flower.messages import packed
from fedldp.fleet.job import Job
from fedldp.fleet.protocol import Answer
from fedldp.fleet.server import checkpoint, rounds
from fedldp.fleet.server.rounds import Rounds
from fedldp.fleet.server.watch import _round
from fedldp.fleet.stages import Learned
from fedldp.learn import computations
from fedldp.learn.features import Scaling
from fedldp.learn.model import Model
from fedldp.learn.objectives import objective
from fedldp.learn.optimizer import State
from fedldp.learn.settings import Settings
from fedldp.learn.survey import Survey, SurveyComputation, answered
from fedldp.learn.tasks import Linear


def surveyed(folder, **options):
    """A training of three rounds after a survey of three rounds; both numbers are asked about."""
    given = {"survey": "whiten", "survey_reports": 16, "rounds": 6}
    return training(folder, **(given | options))


# What a job asks


def test_the_stages_of_a_job(tmp_path):
    job, survey = surveyed(tmp_path), Survey("whiten", 2, PLAN.epsilon)
    assert job.actual_survey == survey
    assert [span.stage.name for span in job.spans] == [
        "a survey of centres",
        "a survey of scales",
        "a survey of signs",
        "gradients",
    ]
    assert [(span.first, span.last) for span in job.spans] == [(1, 1), (2, 2), (3, 3), (4, None)]
    assert [job.plan_of(number) for number in range(1, 9)] == [*survey.plans, *[PLAN] * 5]
    assert [job.question("7", number).n for number in (1, 2, 3, 4)] == [4, 4, 8, 8]
    assert job.expected == 3 * (16 + 3 * 8)
    assert {plan.epsilon for plan in survey.plans} == {PLAN.epsilon}
    assert _round(job, 3) == "Round 3 of 6, a survey of signs,"
    assert _round(job, 4) == "Round 4 of 6"


def test_a_question_carries_the_map_so_far(tmp_path):
    job = surveyed(tmp_path)
    first = SurveyComputation.from_json(job.question("7", 1).model)
    assert (first.asks, first.schema) == ("centres", FEATURES)
    assert first.scaling == Scaling((0.0, 0.0), (1.0, 1.0))
    known = replace(MODEL, scaling=Scaling((0.25, 0.5), (1.0, 1.0)))
    second = SurveyComputation.from_json(job.question("7", 2, known).model)
    assert (second.asks, second.scaling) == ("scales", known.scaling)
    assert Model.from_json(job.question("7", 4, known).model) == known


def test_numbers_that_some_vehicles_do_not_have_are_asked_about_too(tmp_path):
    """A survey of a fleet is about the same numbers as that of a simulation."""
    features = Schema((FEATURES["speed"], OptionalNumber("load", 0, 1)))
    job = surveyed(tmp_path, model=replace(MODEL, schema=features))
    for number in range(1, 4):
        asked = SurveyComputation.from_json(job.question("7", number).model)
        assert asked.schema == features
    assert job.actual_survey.numbers == job.model.features.numbers == 2


def test_public_numbers_decide(tmp_path):
    assert surveyed(tmp_path, survey="auto").actual_survey is None  # 48 vehicles
    assert len(surveyed(tmp_path, survey="auto").stages) == 1
    many = surveyed(tmp_path, survey="auto", survey_reports=200)
    assert many.actual_survey.kind == "scale"
    assert surveyed(tmp_path, survey="auto", survey_reports=20_000).actual_survey.kind == "whiten"
    assert training(tmp_path).actual_survey is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"survey_reports": 0}, "a survey needs both survey and survey_reports"),
        ({"survey": None}, "a survey needs both survey and survey_reports"),
        ({"survey": "all"}, "survey must be one of 'auto', 'scale', 'whiten'; got 'all'"),
        ({"survey_reports": True}, "survey_reports must be from 0 to"),
        ({"survey_reports": -1}, "survey_reports must be from 0 to"),
        ({"survey_reports": "8"}, "survey_reports must be a whole number; got '8'"),
        ({"survey_reports": 1}, "enough for a vehicle in each round of the survey; got 1"),
        ({"rounds": 3}, "rounds must be more than the 3 of the survey; got 3"),
        ({"model": None, "recipe": None, "rounds": 1}, "a survey is for a training"),
        (
            {"model": replace(MODEL, scaling=Scaling((0.0, 0.0), (1.0, 1.0)))},
            "the first model has one already",
        ),
        (
            {"levels": (Plan(Schema.vector(3, 1.0), 5.0, mechanism="duchi"),)},
            "one epsilon: leave survey out",
        ),
    ],
)
def test_surveys_that_cannot_be(tmp_path, options, said):
    with pytest.raises(DomainError, match=said):
        surveyed(tmp_path, **options)


def test_another_survey_is_another_job(tmp_path):
    jobs = [
        training(tmp_path),
        surveyed(tmp_path),
        surveyed(tmp_path, survey="scale"),
        surveyed(tmp_path, survey_reports=20),
    ]
    assert len({job.settings for job in jobs}) == len(jobs)
    assert surveyed(tmp_path, rounds=9).settings == surveyed(tmp_path).settings


def test_a_survey_from_a_file(tmp_path):
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    (tmp_path / "model.json").write_text(MODEL.to_json())
    (tmp_path / "job.toml").write_text(
        'job = "test"\nplan = "plan.json"\nmodel = "model.json"\ngateways = 3\nreports = 8\n'
        'rounds = 6\nsurvey = "whiten"\nsurvey_reports = 16\ncheckpoint = "state/job.db"\n'
        'result = "state/model.json"\nrecipe = {rate = 0.2}\n'
    )
    found = Job.load(tmp_path / "job.toml")
    assert found.settings == surveyed(tmp_path).settings
    assert found.stages == surveyed(tmp_path).stages


# What vehicles answer

NUMBERS = Schema(SCHEMA.attributes[:2])  # three numbers: speed, and two of way
START = Scaling((0.0,) * 3, (1.0,) * 3)


def test_a_vault_answers_a_survey(tmp_path):
    """At an epsilon where noise is negligible, the means are those of the numbers."""
    held = vault(tmp_path / "ledger.db", np.repeat(MATRIX, 50, axis=0), cap=60.0)
    survey, scaling = Survey("whiten", 3, 16.0), START
    units = np.c_[MATRIX[:, 0] / 50 - 1, (MATRIX[:, 1:3] - 1) / 2]
    for number, (each, plan) in enumerate(zip(survey.rounds, survey.plans, strict=True), 1):
        question = asked(
            400, plan, SurveyComputation(each.name, NUMBERS, scaling), f"job-{number}", number
        )
        tally = plan.parse(held.answer(question).report(plan.fingerprint))
        assert tally.reports == 400
        found = answered(tally)
        expected = each.answers(units, scaling).mean(axis=0)
        assert np.all(np.abs(found.mean - expected) < 6 * found.stderr + 0.01)
        scaling = each.improved(scaling, found)
    assert len(lines(held)) == 3 * 400


def test_one_answer_of_each_vehicle_in_survey_and_training(tmp_path):
    held = vault(tmp_path / "ledger.db", cap=9.0)
    plan = Survey("scale", 3, 1.0).plans[0]
    survey = asked(3, plan, SurveyComputation("centres", NUMBERS, START))
    assert held.answer(survey).answered == 3
    gradient = Plan(Schema.vector(4, 1.0), 1.0, mechanism="three-outputs", k=1)
    model = Model("logistic", NUMBERS, SCHEMA["late"], (0.0,) * 4, "none", START)
    later = asked(8, gradient, model, number=2)
    assert held.answer(later).answered == len(MATRIX) - 3
    assert len({line.vehicle_id for line in lines(held)}) == len(lines(held)) == len(MATRIX)


def test_a_vehicle_with_several_rows_answers_for_one(tmp_path):
    """Rows at both bounds: a mean of rows would be 0, one row is at a bound."""
    matrix = np.repeat([[0.0, -1, -1, 0, 0], [100.0, 3, 3, 0, 0]], 200, axis=0)
    keys = [f"car {i % 200}" for i in range(400)]
    held = vault(tmp_path / "ledger.db", matrix, keys, cap=60.0)
    plan = Survey("scale", 3, 16.0).plans[1]
    question = asked(200, plan, SurveyComputation("scales", NUMBERS, START))
    found = answered(plan.parse(held.answer(question).report(plan.fingerprint)))
    assert np.all(np.abs(found.mean) < 6 * found.stderr + 0.01)  # log2 1


def document(**changes):
    found = json.loads(SurveyComputation("centres", NUMBERS, START).to_json())
    return fedldp.vehicle.canonical(found | changes)


FOREIGN = Schema.of(speed=(0, 200))
DAMAGED = {
    "an unknown round": document(asks="names"),
    "no round": document(asks=None),
    "a map of other numbers": document(scaling=Scaling((0.0,), (1.0,)).to_document()),
    "a map of text": document(scaling={"centres": ["0"] * 3, "factors": [1.0] * 3}),
    "a huge map": document(scaling={"centres": [1e9] * 3, "factors": [1.0] * 3}),
    "a category": document(schema=SCHEMA.to_document()),
    "another format": document(format="fedldp survey 2"),
    "another entry": document(code="print"),
    "other bounds": SurveyComputation("centres", FOREIGN, Scaling((0.0,), (1.0,))).to_json(),
    "pairs of one": document(
        asks="signs", schema=FOREIGN.to_document(), scaling={"centres": [0.0], "factors": [1.0]}
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_a_vault_refuses(tmp_path, name):
    held, plan = vault(tmp_path / "ledger.db"), Survey("scale", 3, 1.0).plans[0]
    with pytest.raises(FedLDPError):
        held.answer(asked(3, plan, DAMAGED[name]))
    assert lines(held) == []


def test_the_plan_must_fit_the_survey(tmp_path):
    held = vault(tmp_path / "ledger.db")
    plans = Survey("whiten", 4, 1.0).plans
    with pytest.raises(DomainError, match="a vector of 3 numbers"):
        held.answer(asked(3, plans[0], SurveyComputation("centres", NUMBERS, START)))
    assert lines(held) == []


def test_computations_are_data():
    for text in ("", "[]", "7", '{"format": ["a"]}', '{"format": 7}', "{"):
        with pytest.raises(WireError):
            computations.read(text)
    found = computations.read(document())
    assert (found.asks, found.dimensions, found.one_row) == ("centres", 3, True)
    assert computations.read(MODEL.to_json()) == MODEL


# What the server makes of it


def test_by_the_book(tmp_path):
    """Once more by hand, from the tallies."""
    job, network = surveyed(tmp_path), Network(honest, honest, honest)
    network.start(job)
    scaling = job.actual_survey.start
    with checkpoint.Checkpoint(job.checkpoint, "test", job.settings) as file:
        survey = job.actual_survey
        for number, (each, plan) in enumerate(zip(survey.rounds, survey.plans, strict=True), 1):
            scaling = each.improved(scaling, answered(file.tally(plan, number)))
            (sent,) = {question.model for _, question in network.questions(number + 1)}
            assert computations.read(sent).scaling == scaling
    assert scaling.mixing is not None
    assert result(job).scaling == scaling
    final(job)  # a replay of the reports gives the same
    progress = checkpoint.status(job.checkpoint)
    assert (progress.rounds, progress.reports) == (6, job.expected)


@pytest.mark.parametrize(("kind", "before"), [("scale", 2), ("whiten", 3)])
def test_the_same_reports_give_the_model_of_the_simulation(tmp_path, kind, before):
    """Exactly: the same vehicles, the same random words, and every rule is in one place."""
    flights = replace(datasets.load("flights", rows=1000), reference="none")
    goal, settings = objective("logistic"), Settings(4.0, survey=kind, group=100)
    task = Linear(goal, flights.examples("logistic"))
    simulated = settings.training(task, goal.distance, fedldp.source(5))
    *_, last = simulated
    target = flights.schema[flights.targets["logistic"]]
    first = Model("logistic", flights.features.schema, target, (0.0,) * task.dimensions, "none")
    job = Job(
        "flights",
        settings.plan(task.dimensions, goal.length),
        tmp_path / "job.db",
        tmp_path / "model.json",
        reports=100,
        model=first,
        recipe=settings.recipe(task.dimensions, 9, goal.distance),
        rounds=before + 9,
        survey=kind,
        survey_reports=100,
    )
    Network(AsSimulated(flights, 5)).start(job)
    assert last.reports == job.expected == checkpoint.status(job.checkpoint).reports == 1000
    assert result(job).scaling == simulated.scaling
    assert final(job).to_json() == simulated.state.to_json()
    assert list(result(job).weights) == simulated.models[0].tolist()


def test_a_round_that_is_late_ends_with_what_it_has(tmp_path):
    def slow(question, _):
        if question.round > 2:
            yield packed(batch(question))

    job = surveyed(tmp_path)
    Network(honest, honest, slow).start(job)
    with checkpoint.Checkpoint(job.checkpoint, "test", job.settings) as file:
        assert [file.counts(number).reports for number in range(1, 7)] == [8, 8, 24, 24, 24, 24]
    final(job)


@pytest.mark.parametrize("left", [1, 3])
def test_nobody_is_left_for_gradients(tmp_path, left):
    """During the survey, or after it: there is no model, and the job says so."""

    def spent(question, _):
        yield packed(batch(question, answered=question.n if question.round <= left else 0))

    job = surveyed(tmp_path)
    with pytest.raises(DomainError, match=rounds.NO_GRADIENT):
        Network(spent, spent, spent).start(job)
    found = checkpoint.status(job.checkpoint)
    assert (found.ended, found.failed, found.rounds) == (rounds.NO_GRADIENT, True, left)
    assert not job.result.exists()


# Whenever the server is killed


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    job, network = surveyed(tmp_path_factory.mktemp("plain")), Network(honest, honest, honest)
    network.start(job)
    return final(job).to_json(), job.result.read_text(), job.summary.read_text(), set(network.sent)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_commit(after, tmp_path, monkeypatch, undisturbed):
    """In the midst of the survey, between survey and training, and later."""
    fast(monkeypatch)
    for place in itertools.count(1):
        job, network = surveyed(tmp_path / str(place)), Network(honest, honest, honest)
        with monkeypatch.context() as patch:
            reached = kill_at(patch, place, after)
            with contextlib.suppress(Killed):
                network.start(job)
        if not reached():
            break
        again = Network(honest, honest, honest)
        again.start(job)
        found = final(job).to_json(), job.result.read_text(), job.summary.read_text()
        assert (*found, {*network.sent, *again.sent}) == undisturbed
    assert place - 1 == 1 + 6 * (1 + 3 + 1) + 1  # the job; asks, batches and step; the end


def test_what_is_learned_is_kept_exactly(tmp_path):
    scaling = Scaling((0.1, -0.3), (7.0, 1 / 3), ((1.0, 0.1), (0.1, 1.0)))
    learned = Learned(State.start(np.zeros(3)), scaling)
    again = Learned.from_json(learned.to_json())
    assert (again.scaling, again.to_json()) == (scaling, learned.to_json())
    plain = Learned(State.start(np.zeros(3)))
    assert plain.to_json() == plain.state.to_json()  # as in version 0.1
    assert Learned.from_json("").to_json() == ""
    damaged = json.loads(learned.to_json())
    for name, value in (("scaling", {}), ("state", {}), ("more", 1)):
        with pytest.raises(WireError):
            Learned.from_json(fedldp.vehicle.canonical(damaged | {name: value}))
    job = surveyed(tmp_path)
    with contextlib.closing(Rounds(job)) as running:
        assert running.model == MODEL


def test_liars_in_a_survey_are_noticed(tmp_path):
    """All vehicles of a gateway send the same record, which honest ones do rarely."""

    def liar(question, _):
        records = Answer.from_bytes(batch(question), question).split()
        yield packed(Answer.of(question, records[:1] * question.n).to_bytes())

    job = surveyed(tmp_path, survey_reports=2000)
    Network(honest, liar, honest).start(job)
    found = checkpoint.warnings(job.checkpoint, job.stages)
    assert any(text.startswith("gateway 11, a survey of signs: Implausible") for text in found)
    assert not any(text.startswith("gateway 10") for text in found)


# The target of a linear regression


def regression(folder, rows=1000, **options):
    """A training of a linear regression, as a simulation and as a job with a survey of both."""
    flights = replace(datasets.load("flights", rows=rows), reference="none")
    goal, settings = objective("squared"), Settings(4.0, survey="scale", group=86)
    task = Linear(goal, flights.examples("squared"))
    target = flights.schema[flights.targets["squared"]]
    first = Model("squared", flights.features.schema, target, (0.0,) * task.dimensions, "none")
    given = {
        "plan": settings.plan_for(task),
        "reports": 86,
        "model": first,
        "recipe": settings.recipe(task.dimensions, 10, goal.distance),
        "rounds": 2 + 15 + 10,
        "survey": "scale",
        "survey_reports": 100,
        "target_reports": 40,
    }
    files = {"checkpoint": folder / "job.db", "result": folder / "model.json"}
    job = Job("flights", **files, **(given | options))
    return flights, settings.training(task, goal.distance, fedldp.source(5)), job


def test_the_same_reports_give_the_regression_of_the_simulation(tmp_path):
    flights, simulated, job = regression(tmp_path)
    *_, last = simulated
    assert job.target_survey == simulated.target_survey
    assert [stage.name for stage in job.stages[:4]] == [
        "a survey of centres",
        "a survey of scales",
        "a survey of the target, sides",
        "a survey of the target, sides",
    ]
    Network(AsSimulated(flights, 5)).start(job)
    assert last.reports == job.expected == checkpoint.status(job.checkpoint).reports == 1000
    assert final(job).to_json() == simulated.state.to_json()
    assert list(result(job).weights) == simulated.models[0].tolist()
    assert simulated.scaling.target is not None
    assert result(job).scaling == simulated.scaling.of_numbers  # which version 0.2 can read
    with checkpoint.Checkpoint(job.checkpoint, "flights", job.settings) as file:
        tally = file.tally(job.plan_of(17), 17)
    shown = job.stages[16].insight(Learned(), [tally])
    assert shown.rows[0].shown == str(simulated.clipped)


def test_what_a_question_about_a_target_carries(tmp_path):
    _, _, job = regression(tmp_path)
    asked = [SurveyComputation.from_json(job.question("7", n).model) for n in (3, 10, 17)]
    assert [each.asks for each in asked] == ["sides", "tails", "tails"]
    assert {each.schema for each in asked} == {Schema((job.model.target,))}
    assert [each.scaling.factors for each in asked[:2]] == [(4.0,), (4.0,)]
    known = replace(job.model, scaling=Scaling((), (), target=(0.25, 2.0)))
    text = job.question("7", 18, known).model
    assert '"format":"fedldp model 5"' in text
    assert Model.from_json(text) == known
    plain = computations.read(job.question("7", 18).model)
    row = np.array([[*np.zeros(len(job.model.schema)), 30.0]])
    every = np.arange(job.model.dimensions)
    np.testing.assert_allclose(known.answers(row).all(every), 2 * plain.answers(row).all(every))


def test_jobs_of_version_0_2_ask_the_same(tmp_path):
    """Without the new entry nothing changes: a checkpoint or a signature still fits."""
    _, _, job = regression(tmp_path, target_reports=0, rounds=12)
    assert [stage.name for stage in job.stages] == [
        "a survey of centres",
        "a survey of scales",
        "gradients",
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target_reports": -1}, "target_reports must be from 0 to"),
        ({"target_reports": True}, "target_reports must be from 0 to"),
        ({"target_reports": 3}, "enough for a vehicle in each round of the survey; got 100 and 3"),
        ({"rounds": 17}, "rounds must be more than the 17 of the survey; got 17"),
    ],
)
def test_surveys_of_a_target_that_cannot_be(tmp_path, options, said):
    with pytest.raises(DomainError, match=said):
        regression(tmp_path, **options)


def test_labels_are_no_targets_of_a_survey(tmp_path):
    with pytest.raises(DomainError, match="for a linear regression"):
        surveyed(tmp_path, target_reports=40)
