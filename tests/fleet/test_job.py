"""Jobs from files: what is in them, and what is refused with what advice."""

import dataclasses
import math

import pytest

from fedldp import Category, Plan, Schema
from fedldp.errors import DomainError
from fedldp.fleet.job import Job
from fedldp.fleet.protocol import MOST
from fedldp.learn.model import Model
from fedldp.learn.optimizer import SGD, Adam, Recipe

FEATURES = Schema.of(speed=(0, 50), load=(0, 1))
MODEL = Model("logistic", FEATURES, Category("late", ["no", "yes"]), [0.0, 0.0, 0.5])
PLAN = Plan(Schema.vector(3, 1.0), 2.0, mechanism="three-outputs", k=1)

TRAINING = {
    "job": '"flights-1"',
    "plan": '"plan.json"',
    "model": '"model.json"',
    "gateways": "3",
    "reports": "9800",
    "rounds": "10",
    "resend": "12.0",
    "deadline": "120",
    "checkpoint": '"state/job.db"',
    "result": '"state/model.json"',
    "recipe": '{rate = 0.4, optimizer = "sgd"}',
}
STATISTIC = {name: TRAINING[name] for name in ("job", "plan", "reports", "checkpoint", "result")}


def write(folder, entries):
    (folder / "plan.json").write_text(PLAN.to_json())
    (folder / "model.json").write_text(MODEL.to_json())
    text = "".join(f"{name} = {value}\n" for name, value in entries.items() if value is not None)
    (folder / "job.toml").write_text(text)
    return folder / "job.toml"


def test_a_training_is_read(tmp_path):
    job = Job.load(write(tmp_path, TRAINING))
    assert job == Job(
        "flights-1",
        PLAN,
        tmp_path / "state" / "job.db",
        tmp_path / "state" / "model.json",
        reports=9800,
        model=MODEL,
        recipe=Recipe(SGD(0.4)),
        gateways=3,
        rounds=10,
        resend=12.0,
        deadline=120.0,
    )


def test_a_statistic_is_read(tmp_path, monkeypatch):
    write(tmp_path, STATISTIC)
    monkeypatch.chdir(tmp_path)
    job = Job.load("job.toml")
    assert (job.model, job.recipe, job.rounds, job.gateways) == (None, None, 1, 1)
    assert job.checkpoint == tmp_path / "state" / "job.db"  # wherever the server works


def test_a_question_is_the_models_and_the_gateways(tmp_path):
    job = Job.load(write(tmp_path, TRAINING))
    first = job.question("7", 1)
    assert (first.job, first.round, first.gateway, first.n) == ("flights-1", 1, "7", 9800)
    assert (first.plan, first.model) == (PLAN.to_json(), MODEL.to_json())
    other = dataclasses.replace(MODEL, weights=[1.0, 2.0, 3.0])
    assert job.question("7", 2, other).model == other.to_json()
    assert not Job.load(write(tmp_path, STATISTIC)).question("7", 1).model


CHANGES = {
    "job": '"flights-2"',
    "model": None,
    "reports": "9801",
    "recipe": "{rate = 0.5}",
}
HARMLESS = {
    "gateways": "2",
    "rounds": "11",
    "resend": "13",
    "deadline": "60",
    "checkpoint": '"elsewhere.db"',
    "result": '"elsewhere.json"',
}


def test_what_a_job_may_change_while_it_runs(tmp_path):
    settings = Job.load(write(tmp_path, TRAINING)).settings
    assert Job.load(write(tmp_path, TRAINING)).settings == settings
    for name, value in HARMLESS.items():
        assert Job.load(write(tmp_path, TRAINING | {name: value})).settings == settings
    for name, value in CHANGES.items():
        changed = TRAINING | {name: value}
        if name == "model":
            changed |= {"recipe": None, "rounds": None}
        assert Job.load(write(tmp_path, changed)).settings != settings
    job = Job.load(write(tmp_path, TRAINING))
    other = dataclasses.replace(MODEL, weights=[0.0, 0.0, 0.0])
    assert dataclasses.replace(job, model=other).settings != settings
    plan = Plan(Schema.vector(3, 1.0), 1.0, mechanism="three-outputs", k=1)
    assert dataclasses.replace(job, plan=plan).settings != settings


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"job": None}, "the entry 'job' is missing"),
        ({"plan": None}, "the entry 'plan' is missing"),
        ({"reports": None}, "'reports' is missing"),
        ({"checkpoint": None}, "'checkpoint' is missing"),
        ({"result": None}, "'result' is missing"),
        ({"round": "3"}, "unknown entry 'round'; choose from job, .*, rounds"),
        ({"name": '"x"'}, "unknown entry 'name'"),
        ({"job": '"flights 1"'}, "job must be 1 to 64 letters"),
        ({"job": '""'}, "job must be 1 to 64 letters"),
        ({"job": "7"}, "job has a value of a wrong type: 7"),
        ({"plan": "7"}, "plan has a value of a wrong type: 7"),
        ({"model": "{}"}, "model has a value of a wrong type"),
        ({"checkpoint": "[]"}, "checkpoint has a value of a wrong type"),
        ({"plan": '"none.json"'}, "none.json cannot be read: No such file"),
        ({"plan": '"model.json"'}, "model.json: not a plan"),
        ({"model": '"plan.json"'}, "plan.json: not a 'fedldp model 1'"),
        ({"model": '"."'}, "cannot be read: Is a directory"),
        ({"result": '"model.json"'}, "the job would overwrite the file of its model"),
        ({"result": '"state/../model.json"'}, "the job would overwrite the file of its model"),
        ({"checkpoint": '"plan.json"'}, "the job would overwrite the file of its plan"),
        ({"result": '"state/job.db"'}, "checkpoint and result must be different files"),
        ({"gateways": "0"}, f"gateways must be from 1 to {MOST}; got 0"),
        ({"gateways": "1.0"}, "gateways has a value of a wrong type: 1.0"),
        ({"reports": "0"}, "reports must be from 1 to"),
        ({"reports": f"{MOST + 1}"}, f"reports must be from 1 to {MOST}"),
        ({"reports": '"many"'}, "reports has a value of a wrong type: 'many'"),
        ({"reports": "true"}, "reports has a value of a wrong type: True"),
        ({"rounds": "-1"}, "rounds must be from 1 to"),
        ({"resend": "0.0"}, "resend must be a positive number of seconds .*; got 0.0"),
        ({"resend": "nan"}, "resend must be a positive number"),
        ({"resend": "true"}, "resend has a value of a wrong type: True"),
        ({"deadline": "inf"}, "deadline must be a positive number of seconds .*; got inf"),
        ({"deadline": '"soon"'}, "deadline has a value of a wrong type: 'soon'"),
        ({"deadline": "11"}, "resend must be at most the deadline of 11 seconds.*got 12"),
        ({"recipe": None}, "a training needs both a model and a recipe"),
        ({"model": None}, "a training needs both a model"),
        ({"model": None, "recipe": None}, "a statistic and has one round; got rounds = 10"),
        ({"recipe": "{}"}, "recipe must be a table with a rate"),
        ({"recipe": "7"}, "recipe has a value of a wrong type: 7"),
        ({"recipe": "{rate = 0.1, speed = 2}"}, "no other entries than rate, optimizer,"),
        ({"recipe": "{rate = 0}"}, "rate must be a positive number; got 0"),
        ({"recipe": '{rate = "auto"}'}, "rate must be a positive number; got 'auto'"),
    ],
)
def test_what_is_refused(changes, said, tmp_path):
    path = write(tmp_path, TRAINING | changes)
    with pytest.raises(DomainError, match=f"job.toml: .*{said}"):
        Job.load(path)


def test_files_that_are_not_jobs(tmp_path):
    path = tmp_path / "job.toml"
    with pytest.raises(DomainError, match=r"job\.toml cannot be read: No such file"):
        Job.load(path)
    for data in (b"job = ", b"\xff\xfe", b"job = 1\njob = 2"):
        path.write_bytes(data)
        with pytest.raises(DomainError, match=r"job\.toml is not valid TOML"):
            Job.load(path)
    path.write_bytes(b"")
    with pytest.raises(DomainError, match="'job' is missing"):
        Job.load(path)
    entries = write(tmp_path, TRAINING)
    (tmp_path / "plan.json").write_bytes(b"\xff")
    with pytest.raises(DomainError, match=r"plan\.json: "):
        Job.load(entries)


def test_the_plan_is_for_the_models_gradient(tmp_path):
    files = (tmp_path / "job.db", tmp_path / "model.json")
    for plan in (
        Plan(Schema.vector(4, 1.0), 2.0, mechanism="duchi"),
        Plan(FEATURES, 2.0, mechanism="duchi"),
    ):
        with pytest.raises(DomainError, match="a vector of 3 numbers; got <Schema"):
            Job("test", plan, *files, 8, model=MODEL, recipe=Recipe(Adam(0.1)))
    with pytest.raises(DomainError, match=r"plan must be a Plan; got 'plan\.json'"):
        Job("test", "plan.json", *files, 8)
    with pytest.raises(DomainError, match=r"reports must be from 1 to .*; got True"):
        Job("test", PLAN, *files, True)
    with pytest.raises(DomainError, match=r"gateways must be a whole number; got 1\.0"):
        Job("test", PLAN, *files, 8, gateways=1.0)
    study = Plan(Schema.vector(3, 1.0), 2.0, mechanism="duchi", study=True)
    with pytest.raises(DomainError, match="a plan for study"):
        Job("test", study, *files, 8, model=MODEL, recipe=Recipe(Adam(0.1)))


def test_a_batch_is_not_too_large(tmp_path):
    plan = Plan(Schema.vector(200, 1.0), 2.0, strategy="cube")
    with pytest.raises(DomainError, match="Ask fewer vehicles"):
        Job("test", plan, tmp_path / "a", tmp_path / "b", MOST)


def test_a_question_is_not_too_large(tmp_path, monkeypatch):
    """And will not be when the weights have all their digits."""
    options = {"reports": 8, "model": MODEL, "recipe": Recipe(Adam(0.1))}
    job = Job("test", PLAN, tmp_path / "a", tmp_path / "b", **options)
    long = dataclasses.replace(MODEL, weights=[-1.2345678901234567e-300] * 3)
    most = len(job.question("0", 1, long).to_bytes())
    monkeypatch.setattr("fedldp.fleet.job.MOST_BYTES", most - 1)
    with pytest.raises(DomainError, match=f"a question must have at most {most - 1} bytes"):
        dataclasses.replace(job)


@pytest.mark.parametrize("value", [math.nan, -1.0, None, 1e300, 604_801])
def test_times_are_numbers(value, tmp_path):
    with pytest.raises(DomainError, match="deadline must be a positive number of seconds"):
        Job("test", PLAN, tmp_path / "a", tmp_path / "b", 8, deadline=value)
