"""The survey before a training: public gates, plain plans, and a map that helps."""

import json
from dataclasses import replace

import numpy as np
import pytest

import fedldp
from fedldp.errors import DomainError, WireError
from fedldp.learn.examples import Arrays
from fedldp.learn.features import Features, Scaling, written_out
from fedldp.learn.layers import Activation, Dense
from fedldp.learn.model import Model
from fedldp.learn.networks import Network
from fedldp.learn.objectives import objective
from fedldp.learn.settings import Settings
from fedldp.learn.survey import ROUNDS, Survey, SurveyComputation, choose
from fedldp.learn.tasks import Layered, Linear
from fedldp.schema.attributes import Category
from fedldp.schema.schema import Schema

CENTRES, SPREADS = np.array([0.5, 0.0, -0.9]), np.array([0.05, 0.2, 0.02])


def numbers(n, seed=0):
    """Numbers whose first two correlate at 0.9."""
    z = np.random.default_rng(seed).normal(size=(n, 3))
    z[:, 1] = 0.9 * z[:, 0] + np.sqrt(1 - 0.9**2) * z[:, 1]
    return np.clip(CENTRES + SPREADS * z, -1, 1)


def mapped(kind, epsilon, vehicles, seed=1):
    rows = numbers(vehicles)
    survey = Survey(kind, 3, epsilon)
    return survey.simulate(
        lambda first, end: iter([rows[first:end]]), vehicles, fedldp.source(seed)
    )


def test_gates_are_public():
    assert choose(None, 4, 10**6, 4.0) is None
    assert choose("auto", 0, 10**6, 4.0) is None  # nothing to ask
    assert choose("auto", 1, 10**6, 4.0) == "scale"  # no pairs
    assert choose("auto", 4, 10**6, 4.0) == "whiten"
    assert choose("auto", 4, 2_000, 4.0) == "scale"
    assert choose("auto", 4, 100, 0.1) is None
    assert choose("auto", 65, 10**9, 4.0) == "scale"
    assert (choose("scale", 4, 9, 0.1), choose("whiten", 4, 9, 0.1)) == ("scale", "whiten")
    with pytest.raises(DomainError, match="2 to 64 numbers"):
        choose("whiten", 1, 10**6, 4.0)


def test_it_costs_what_a_report_costs():
    survey = Survey("whiten", 4, 1.5)
    assert {float(plan.total_epsilon) for plan in survey.plans} == {1.5}
    assert survey.ratio <= fedldp.vehicle.exp_below(fedldp.vehicle.exact(1.5))
    assert [plan.schema.dimensions for plan in survey.plans] == [4, 4, 6]
    for vehicles in (2, 3, 1_001):
        groups = survey.groups(vehicles)
        assert len(groups) == 3
        assert sum(groups) == vehicles


def test_numbers_get_the_mean_0_and_the_mean_square_1():
    """20,000 vehicles at epsilon = 4: errors of 2% of a centre's range, and of 10% of a scale."""
    z = mapped("scale", 4.0, 20_000)(numbers(50_000, seed=7))
    assert np.abs(z.mean(axis=0)).max() < 0.5
    assert ((z.std(axis=0) > 0.5) & (z.std(axis=0) < 1.5)).all()


def test_whitened_numbers_hardly_correlate():
    z = mapped("whiten", 4.0, 200_000)(numbers(50_000, seed=7))
    assert abs(np.corrcoef(z.T)[0, 1]) < 0.3
    assert mapped("scale", 4.0, 20_000).mixing is None


def test_few_vehicles_give_a_cautious_map():
    """Noise of many times the range: the public guess of centre 0 and scale 1/4, no mixing."""
    scaling = mapped("whiten", 0.01, 60)
    np.testing.assert_allclose(scaling.centres, 0.0, atol=0.1)
    np.testing.assert_allclose(scaling.factors, 4.0, rtol=0.3)
    np.testing.assert_allclose(scaling.mixing, np.eye(3), atol=0.1)


@pytest.mark.parametrize("vehicles", [2, 3, 5])
def test_hardly_any_vehicles(vehicles):
    for kind in ("scale", "whiten"):
        assert np.isfinite(mapped(kind, 1.0, vehicles).matrix).all()


def test_without_privacy_it_has_no_noise():
    scaling = mapped("whiten", None, 100_000)
    np.testing.assert_allclose(scaling.centres, CENTRES, atol=0.01)
    np.testing.assert_allclose(1 / np.array(scaling.factors), SPREADS, rtol=0.5)


# In a training

SCHEMA = Schema.of(a=(-1, 1), b=(-1, 1), c=(-1, 1))


class Rows:
    """Examples as a data set has them."""

    def __init__(self, n, scaling=None):
        self.matrix, self.encoding = numbers(n), Features(SCHEMA, "none", scaling)
        scores = (self.matrix - CENTRES) / SPREADS @ [1.0, -1.0, 0.5]
        self.targets = np.where(scores > 0.2, 1.0, -1.0)
        self.dimensions = 4

    def __len__(self):
        return len(self.matrix)

    def units(self, rows):
        return self.encoding.units(self.matrix[rows])

    def scaled(self, scaling):
        return Rows(len(self), scaling)

    def read(self, rows):
        return self.encoding.encode(self.matrix[rows]), self.targets[rows]


def training(n=4_000, seed=1, **options):
    task = Linear(objective("logistic"), Rows(n))
    return Settings(4.0, **options).training(task, 8.0, fedldp.source(seed)), task


def error(training, task):
    for _ in training:
        pass
    scaled = task if training.scaling is None else task.scaled(training.scaling)
    return scaled.error(training.models)[0]


def test_a_survey_helps():
    surveyed, plain = (error(*training(20_000, survey=kind)) for kind in ("auto", None))
    assert surveyed < plain - 0.05


def test_vehicles_of_the_survey_are_not_asked_again():
    found, task = training(survey="scale", survey_share=0.25)
    assert found.reports == 0
    first = found.advance()
    assert (found.survey_reports, first.reports) == (1_000, 1_000 + 3_000 // found.rounds)
    *_, last = found
    assert last.reports == len(task)
    asked = Survey("scale", 3, 4.0).plans[0].bits * 1_000 / 8
    gradients = Settings(4.0).plan(4).bits * 3_000 / 8
    assert last.bytes == asked + gradients
    assert float(last.epsilon) == 4.0


def test_a_break_changes_nothing():
    whole, _ = training()
    whole = [each.change for each in whole]
    broken, _ = training()
    start = broken.to_json()
    changes = [broken.advance().change for _ in range(5)]
    text = broken.to_json()
    again, _ = training()
    again.resume(text)
    assert again.scaling == broken.scaling
    assert changes + [each.change for each in again] == whole
    fresh, _ = training()
    fresh.resume(start)  # from before the survey
    assert [each.change for each in fresh] == whole
    without = json.loads(text)
    del without["scaling"]
    other, _ = training()
    with pytest.raises(WireError, match="after one"):
        other.resume(json.dumps(without))
    plain, _ = training(survey=None)
    with pytest.raises(WireError, match="other settings"):
        plain.resume(text)


def test_where_there_is_none():
    task = Linear(objective("logistic"), Rows(1_000))
    settings = Settings(4.0)
    assert settings.training(task, 8.0, fedldp.source(1), replicas=2).survey is None
    assert settings.training(task, 8.0, fedldp.source(1), epsilons=[4.0] * 1_000).survey is None
    assert training(optimizer="adam")[0].survey is None
    assert training(participations=2)[0].survey is None
    with pytest.raises(DomainError, match="one training in which each vehicle answers once"):
        training(participations=2, survey="scale")
    with pytest.raises(DomainError, match="survey must be one of"):
        training(survey="all")
    arrays = Linear(objective("logistic"), Arrays(np.ones((9, 2)), np.ones(9)))
    assert Settings(4.0, survey="scale").training(arrays, 8.0, fedldp.source(1)).survey is None


def test_the_map_travels_with_the_model():
    found, _ = training(survey="whiten")
    for _ in found:
        pass
    target = Category("late", ["no", "yes"])
    model = Model("logistic", SCHEMA, target, found.models[0], "none", found.scaling)
    text = model.to_json()
    assert json.loads(text)["format"] == "fedldp model 3"
    assert Model.from_json(text) == model
    rows = numbers(10)
    score = found.scaling(rows) @ model.weights[:-1] + model.weights[-1]
    np.testing.assert_allclose(model.scores(rows), score, rtol=1e-4, atol=1e-4)
    damaged = json.loads(text)
    damaged["scaling"]["factors"] = [1.0]
    with pytest.raises(WireError):
        Model.from_json(json.dumps(damaged))
    plain = Model("logistic", SCHEMA, target, found.models[0], "none")
    assert json.loads(plain.to_json())["format"] == "fedldp model 2"
    assert "scaling" not in plain.to_json()
    assert Scaling((0.0,) * 3, (1.0,) * 3) != found.scaling


# Hidden numbers: what the last layer of a network gets, if the others are fixed

PLACES = Schema.of(speed=(0, 100), city=["Oslo", "Rome"])
LATE = Category("late", ["no", "yes"])
HIDDEN = Network(
    (3,), (Dense(2), Activation("relu")), objective("logistic"), (1.0, 0.0, 0.5, 0.25) * 2
)
FOUND = Scaling((0.25, -0.5), (2.0, 4.0), ((1.0, 0.5), (0.5, 1.0)))
HEAD = Model("logistic", PLACES, LATE, (0.5, -1.0, 0.25), "none", layers=HIDDEN)


@pytest.mark.parametrize("asks", ["centres", "scales", "signs"])
def test_hidden_numbers_are_asked_for_as_a_simulation_asks(asks):
    asked = SurveyComputation(asks, PLACES, FOUND, HIDDEN, "none")
    rows = PLACES.rows({"speed": [0.0, 30.0, 100.0], "city": ["Rome", "Oslo", "Rome"]}).matrix()
    features = written_out(Features(PLACES, "none").encode(rows))
    task = Layered(HIDDEN, Arrays(features, np.ones(3)))
    units = task.units(slice(3), fedldp.source(1))
    assert (np.abs(units) <= 1).all()
    assert (HIDDEN.hidden(features) > 1).any()
    answers = asked.answers(rows).matrix
    assert answers.tolist() == ROUNDS[asks].answers(units, FOUND).tolist()
    assert answers.shape == (3, asked.dimensions)


@pytest.mark.parametrize("asks", ["centres", "scales", "signs"])
def test_a_question_about_hidden_numbers_is_read_as_it_was_written(asks):
    asked = SurveyComputation(asks, PLACES, FOUND, HIDDEN, "none")
    text = asked.to_json()
    again = SurveyComputation.from_json(text)
    assert (again, again.to_json()) == (asked, text)
    assert json.loads(text)["format"] == "fedldp survey 3"
    other = replace(asked, layers=replace(HIDDEN, fixed=(1.0,) * 8))
    assert replace(asked, scaling=Scaling((0.0,) * 2, (1.0,) * 2)).declaration == asked.declaration
    assert asked.declaration != other.declaration
    for old in ("fedldp survey 1", "fedldp survey 2", "fedldp survey 4"):
        with pytest.raises(WireError):
            SurveyComputation.from_json(text.replace("fedldp survey 3", old))
    for entry in ("network", "reference"):
        damaged = json.loads(text)
        del damaged[entry]
        with pytest.raises(WireError):
            SurveyComputation.from_json(json.dumps(damaged))


def test_a_survey_of_hidden_numbers_that_makes_no_sense_is_refused():
    asked = SurveyComputation("scales", PLACES, FOUND, HIDDEN, "none")
    with pytest.raises(DomainError, match="must have 2 inputs"):
        replace(asked, reference="first")
    with pytest.raises(DomainError, match="a scaling of 1 hidden numbers"):
        replace(asked, scaling=Scaling((0.0,), (1.0,)))
    with pytest.raises(DomainError, match="trains only its last layer"):
        replace(asked, layers=replace(HIDDEN, fixed=()))
    one = Network((3,), (Dense(1),), HIDDEN.objective, (1.0,) * 4)
    with pytest.raises(DomainError, match="pairs are asked of 2 to 64"):
        SurveyComputation("signs", PLACES, Scaling((0.0,), (1.0,)), one, "none")


def test_a_model_with_scaled_hidden_numbers_is_that_with_one_more_layer():
    before = HEAD.to_survey
    assert (before.numbers, HEAD.numbers) == (2, 1)
    model = before.scaled(FOUND)
    text = model.to_json()
    assert json.loads(text)["format"] == "fedldp model 6"
    assert Model.from_json(text) == model
    rows = {"speed": [0.0, 30.0, 100.0], "city": ["Rome", "Oslo", "Rome"]}
    folded = model.folded
    assert (folded.layers, folded.hidden_scaling) == (HIDDEN.scaled(FOUND), None)
    assert json.loads(folded.to_json())["format"] == "fedldp model 4"
    assert model.scores(rows).tolist() == folded.scores(rows).tolist() != HEAD.scores(rows).tolist()
    assert (HEAD.folded, model.declaration) == (HEAD, HEAD.declaration)
    squares = [each.prior.squares.tolist() for each in (HEAD, model)]
    np.testing.assert_allclose(squares, [[1 / 9, 1 / 9, 1], [1, 1, 1]])
    with pytest.raises(WireError):
        Model.from_json(text.replace("fedldp model 6", "fedldp model 4"))
    with pytest.raises(DomainError, match="a scaling of 1 hidden numbers"):
        model.scaled(Scaling((0.0,), (1.0,)))
    with pytest.raises(DomainError, match="hidden_scaling is for a classifier"):
        Model("logistic", PLACES, LATE, (0.0,) * 4, "none", hidden_scaling=FOUND)
    trained = replace(HIDDEN, fixed=())
    with pytest.raises(DomainError, match="hidden_scaling is for a classifier"):
        replace(model, layers=trained, weights=(0.0,) * trained.dimensions)
