"""A training that was interrupted resumes as if it had not been: nobody is asked twice."""

import itertools
import json
from dataclasses import fields

import numpy as np
import pytest
from damage import damaged
from fleets import Spy, fleet, plan_for
from hypothesis import given, settings
from hypothesis import strategies as st

import fedldp
from fedldp import Plan, Schema
from fedldp.errors import WireError
from fedldp.learn.optimizer import SGD, Adam, Recipe, State
from fedldp.learn.privacy import NoPrivacy
from fedldp.learn.training import Procedure, Training
from fedldp.plan.strategies import Sample

TASK, PLAN = fleet(230, 3), plan_for(3)
CASES = {
    "plain": {},
    "settles": {"recipe": Recipe(SGD(0.5, schedule="inverse", tol=0.06))},
    "twice": {"participations": 2},
    "replicas": {"replicas": 3, "participations": 2},
    "in order": {"shuffle": False},
    "two of three": {
        "plan": plan_for(3, "two"),
        "recipe": Recipe(Adam(0.1, schedule="sqrt")),
    },
    "cube": {"plan": plan_for(3, "cube")},
    "no privacy": {"plan": NoPrivacy(Schema.vector(3, 0.5))},
    "study": {"plan": Plan(Schema.vector(3, 1.0), 2.0, Sample(mechanism="pm", study=True))},
    "started": {"start": np.array([0.1, 0.2, 0.3])},
}


def training_of(seed=1, **options):
    chosen = {
        "task": TASK,
        "plan": PLAN,
        "recipe": Recipe(Adam(0.2)),
        "group": 20,
    } | options
    chosen["plans"], task = chosen.pop("plan"), chosen.pop("task")
    names = {each.name for each in fields(Procedure)} & chosen.keys()
    procedure = Procedure(**{name: chosen.pop(name) for name in names})
    return Training(task, procedure, fedldp.source(seed), **chosen)


@pytest.mark.parametrize("name", CASES)
def test_interrupted_at_any_round(name, tmp_path):
    whole = training_of(**CASES[name])
    seen, texts = [], [whole.to_json()]
    for progress in whole:
        seen.append(progress)
        texts.append(whole.to_json())
    assert len(seen) >= 5
    assert whole.finished
    assert (len(seen) < whole.rounds) is (name == "settles")
    for done, text in enumerate(texts):
        again = training_of(**CASES[name])
        again.resume(text)
        assert again.to_json() == text
        assert list(again) == seen[done:]
        assert again.to_json() == texts[-1]
    path = tmp_path / "training.json"
    again.save(path)
    other = training_of(**CASES[name])
    other.resume(path.read_text())
    assert other.finished
    np.testing.assert_array_equal(other.models, whole.models)


@given(st.lists(st.integers(1, 4), max_size=6))
@settings(max_examples=20)
def test_interrupted_again_and_again(pieces):
    whole = training_of(participations=2)
    list(whole)
    text = training_of(participations=2).to_json()
    for rounds in pieces:
        training = training_of(participations=2)
        training.resume(text)
        list(itertools.islice(training, rounds))
        text = training.to_json()
    training = training_of(participations=2)
    training.resume(text)
    list(training)
    assert training.to_json() == whole.to_json()


@pytest.mark.parametrize("rounds", [0, 1, 4, 7, 11])
@pytest.mark.parametrize("shuffle", [True, False])
def test_nobody_is_asked_twice(rounds, shuffle):
    """Though the noise, and the order, come from the operating system: a new source each time."""
    asked, text = [], None
    for limit in (rounds, 2, 100):
        spy = Spy(53, 2)
        training = training_of(
            seed=None, task=spy, plan=plan_for(2), group=8, participations=2, shuffle=shuffle
        )
        if text is not None:
            training.resume(text)
        list(itertools.islice(training, limit))
        asked += spy.asked
        text = training.to_json()
    assert len(asked) == 14
    for again in (asked[:7], asked[7:]):
        assert sorted(itertools.chain(*again)) == list(range(53))


OTHER = {
    "plan": {"plan": plan_for(3, epsilon=2.5)},
    "no plan": {"plan": NoPrivacy(Schema.vector(3, 1.0))},
    "recipe": {"recipe": Recipe(Adam(0.2, momentum=0.7))},
    "learning_rate": {"recipe": Recipe(Adam(0.21))},
    "vehicles": {"task": fleet(231, 3)},
    "objective": {"task": fleet(230, 3, "hinge")},
    "group": {"group": 24},
    "participations": {"participations": 2},
    "replicas": {"replicas": 2},
    "shuffle": {"shuffle": False},
}


@pytest.mark.parametrize("name", OTHER)
def test_other_settings_are_refused(name):
    """And what was refused has changed nothing."""
    text = training_of().to_json()
    other = training_of(**OTHER[name])
    before = other.to_json()
    with pytest.raises(WireError, match="made with other settings"):
        other.resume(text)
    assert other.to_json() == before


def test_equal_settings_are_the_same_whatever_their_type():
    text = training_of(group=20, replicas=2, recipe=Recipe(Adam(0.25))).to_json()
    numbers = {"group": np.int64(20), "replicas": np.int32(2), "participations": np.uint8(1)}
    for options in (numbers, {"replicas": 2, "recipe": Recipe(Adam(np.float64(0.25)))}):
        other = training_of(**({"recipe": Recipe(Adam(0.25))} | options))
        other.resume(text)
        assert other.to_json() == text


def test_a_state_beyond_the_end_or_of_another_shape():
    training = training_of()
    document = json.loads(training.to_json())
    wrong = [State.start(np.zeros(shape)).to_json() for shape in ((2, 3), (1, 2))]
    beyond = json.loads(training.state.to_json()) | {"round": training.rounds + 1}
    for state in (*map(json.loads, wrong), beyond, None, "x", []):
        with pytest.raises(WireError, match="not a 'fedldp training 1' of this training"):
            training.resume(json.dumps(document | {"state": state}))


def test_words_are_never_used_twice():
    """A training that has gone on cannot go back: its vehicles would get the same noise again."""
    training = training_of()
    text = training.to_json()
    training.advance()
    later = training.to_json()
    with pytest.raises(WireError, match="its position in the random stream is invalid"):
        training.resume(text)
    assert training.to_json() == later
    for wrong in ({"drawn": -1}, {"drawn": 0}, {"drawn": 9.5}, {"drawn": "9"}, {"order": -1}):
        with pytest.raises(WireError):
            training_of().resume(json.dumps(json.loads(later) | wrong))


@pytest.mark.parametrize("text", ["", "{}", "[]", "7", "null", '"format"', "[" * 100_000, "{]"])
def test_texts_that_are_not_trainings(text):
    with pytest.raises(WireError, match="not a 'fedldp training 1' of this training"):
        training_of().resume(text)


@given(st.randoms(use_true_random=False))
def test_changed_texts(rng):
    """Only `WireError` may escape; then nothing has changed. What is accepted can be resumed."""
    training = training_of(task=Spy(40, 3), replicas=2)
    list(itertools.islice(training, 1))
    before = training.to_json()
    text = json.dumps(damaged(json.loads(before), rng))
    if rng.random() < 0.2:
        text = text[: rng.randrange(len(text))]
    other = training_of(task=Spy(40, 3), replicas=2)
    untouched = other.to_json()
    try:
        other.resume(text)
    except WireError:
        assert other.to_json() == untouched
        return
    assert json.loads(other.to_json()) == json.loads(text)
    list(other)
    assert other.finished
