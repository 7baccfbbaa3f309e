"""All that can be chosen about a training: the rules, the price, and what is refused."""

import math
from dataclasses import fields
from fractions import Fraction

import numpy as np
import pytest
from fleets import Spy, fleet
from hypothesis import given
from hypothesis import strategies as st

import fedldp
from fedldp import Plan, Schema, mechanism
from fedldp.errors import DomainError
from fedldp.learn.optimizer import SGD, Adam, NoiseAware, Recipe, Steps, auto_group, auto_rate
from fedldp.learn.privacy import NoPrivacy
from fedldp.learn.settings import Settings
from fedldp.plan.strategies import Cube, Directions, Sample


def training_of(n=500, d=3, **options):
    settings = Settings(**({"epsilon": 4.0, "strategy": Sample(mechanism="duchi")} | options))
    return settings.training(fleet(n, d), 8.0, fedldp.source(1))


def test_defaults_are_those_of_a_recipe():
    recipe = Settings(4.0, strategy="sample").recipe(33, 300, 8.0)
    rate = auto_rate(8.0, 33, 300)
    assert recipe == Recipe(Adam(rate))
    assert Settings(4.0).recipe(33, 300, 8.0) == Recipe(NoiseAware(steps=Steps(rate)))
    falling = Settings(4.0).recipe(33, 300, 8.0, linear=False)
    assert falling == Recipe(Adam(rate, schedule="linear"), rounds=300)
    other = Settings(4.0, optimizer=Adam(schedule="sqrt"))
    assert other.recipe(33, 300, 8.0, linear=False) == Recipe(Adam(rate, schedule="sqrt"))


def test_directions_unless_a_strategy_is_named():
    assert Settings(4.0).strategy == Settings(4.0, "directions").strategy == Directions()
    assert Settings(None).strategy == Directions()  # clips lengths, too
    assert Settings(4.0, "sample").strategy == Sample()
    near_zero = Plan(Schema.vector(5, 1.0), 4.0, Sample(mechanism="near-zero"))
    assert Settings(4.0, "sample").plan(5) == near_zero
    (part,) = Settings(4.0).plan(5, length=0.6).parts
    assert (part.coders[0].kind, part.schema.attributes[0].inputs.length) == ("directions", 0.6)
    (part,) = Settings(4.0, bound=0.7).plan(5, length=0.6).parts
    assert part.schema.attributes[0].inputs.length == 0.7


def test_every_choice_reaches_the_recipe():
    chosen = {
        "learning_rate": 0.07,
        "schedule": "sqrt",
        "momentum": 0.3,
        "average": False,
        "tol": 0.01,
        "estimator": "horvitz-thompson",
    }
    assert chosen.keys() == {each.name for each in fields(SGD)}
    settings = Settings(4.0, optimizer=SGD(**chosen), alpha=0.2)
    assert settings.recipe(33, 300, 8.0) == Recipe(SGD(**chosen), alpha=0.2)


def test_the_name_of_an_optimizer_is_short_for_its_defaults():
    assert Settings(4.0, optimizer="sgd") == Settings(4.0, optimizer=SGD())
    assert Settings(4.0, optimizer="noise-aware").optimizer == NoiseAware()


def test_who_is_surveyed_by_default():
    """Linear models with a noise-aware server, and networks with directions and Adam."""

    def surveys(linear, **options):
        return Settings(4.0, **options).survey_for(3, 100_000, linear) is not None

    assert surveys(True)
    assert surveys(False)
    assert surveys(False, optimizer=Adam(0.3))
    assert surveys(True, strategy="sample", optimizer="noise-aware")
    assert not surveys(True, optimizer="adam")
    assert not surveys(False, optimizer="sgd")
    assert not surveys(False, strategy="sample", optimizer="adam")
    assert not surveys(False, participations=2)


def test_every_choice_reaches_the_plan():
    settings = Settings(4.0, Sample(k=2, mechanism="hm", outputs=9), bound=0.3)
    assert settings.plan(5) == Plan(
        Schema.vector(5, 0.3), 4.0, Sample(k=2, mechanism="hm", outputs=9)
    )
    cube = Cube(threshold=2)
    assert Settings(4.0, cube).plan(5) == Plan(Schema.vector(5, 1.0), 4.0, cube)
    assert Settings(4.0, Sample(mechanism="pm", study=True)).plan(5).study
    sample = Settings(None, "sample", bound=0.3)
    assert sample.plan(5) == NoPrivacy(Schema.vector(5, 0.3))
    assert Settings(None, bound=0.3).plan(5) == NoPrivacy(Schema.vector(5, length=0.3))


@pytest.mark.parametrize(("epsilon", "participations"), [(5.0, 3), (1.0, 7), (0.3, 9), (16.0, 1)])
def test_each_participation_has_its_part_of_epsilon(epsilon, participations):
    """5/3 as a float is above five thirds: three of them would be too much."""
    plan = Settings(epsilon, Sample(mechanism="duchi"), participations=participations).plan(4)
    assert plan.total_epsilon * participations <= Fraction(str(epsilon))
    assert float(plan.total_epsilon) == pytest.approx(epsilon / participations, rel=1e-14)


def test_five_thirds():
    plan = Settings(5.0, Sample(k=1, mechanism="duchi"), participations=3).plan(4)
    assert Fraction(str(5 / 3)) * 3 > 5
    assert plan.epsilon == math.nextafter(5 / 3, 0)


@given(st.integers(1, 3000), st.integers(1, 3), st.sampled_from([None, 4.0]))
def test_rules_for_group_and_rate(n, participations, epsilon):
    settings = Settings(epsilon, Sample(k=1, mechanism="duchi"), participations=participations)
    group = auto_group(n, 1.0 if epsilon is None else 1 / 3)
    assert settings.group_size(3, n) == group
    spy = Spy(n, 3)
    training = settings.training(spy, 2.0, fedldp.source(1))
    assert training.rounds == -(-n // group) * participations
    training.advance()
    assert len(spy.asked[0]) <= group
    rate = auto_rate(2.0, 3, training.rounds)
    assert settings.recipe(3, training.rounds, 2.0).rate == rate


def test_the_group_that_was_chosen():
    assert Settings(4.0, Sample(mechanism="duchi"), group=7).group_size(3, 10**6) == 7
    assert training_of(n=50, group=7).rounds == 8


@pytest.mark.parametrize("replicas", [1, 4])
def test_a_training_has_what_it_was_given(replicas):
    settings = Settings(
        4.0, Sample(mechanism="duchi"), optimizer=SGD(0.5, momentum=0.0, average=False)
    )
    spy, start = Spy(60, 2), np.array([0.5, -0.5])
    seen = []

    def watch(models):
        seen.append(models.copy())
        return np.full(len(models), 3.5)

    training = settings.training(
        spy, 1.0, fedldp.source(1), replicas=replicas, shuffle=False, start=start, watch=watch
    )
    progress = training.advance()
    assert spy.weights[0].tolist() == [[0.5, -0.5]] * replicas
    assert spy.asked[0] == list(range(len(spy.asked[0])))
    assert progress.loss == 3.5
    np.testing.assert_array_equal(seen[0], training.models)
    change = np.sqrt(((training.models - start) ** 2).sum(axis=1))
    assert progress.change == pytest.approx(change.max())


# What participating several times costs


@pytest.mark.parametrize("name", ["duchi", "hm-tp", "pm"])
@pytest.mark.parametrize("participations", [1, 2, 5])
def test_the_price_of_participations(name, participations):
    """Of k = 1 in each: d V(eps / r) / r against d V(eps), both at zero."""
    epsilon, d = 2.0, 6
    settings = Settings(epsilon, Sample(k=1, mechanism=name), participations=participations)
    one, part = (mechanism(name, each).channel() for each in (epsilon, epsilon / participations))
    wanted = float(part.variance(0.0) / one.variance(0.0)) / participations
    assert settings.price(d) == pytest.approx(wanted, rel=1e-6)
    assert (settings.price(d) > 1) is (participations > 1)


def test_the_price_with_other_k_and_for_study():
    price = Settings(8.0, Sample(k=2, mechanism="duchi"), participations=4).price(10)
    wanted = mechanism("duchi", 1.0).variance(0.0) / mechanism("duchi", 4.0).variance(0.0) / 4
    assert price == pytest.approx(float(wanted), rel=1e-6)
    laplace = Settings(8.0, Sample(k=1, mechanism="laplace", study=True), participations=4).price(
        10
    )
    assert laplace == pytest.approx(16 / 4)  # 2 / epsilon^2
    assert Settings(None, participations=4).price(10) == 1.0


# What is refused


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epsilon": 0}, "epsilon must be a number from 0.001 to 16; got 0"),
        ({"epsilon": math.nan}, "epsilon must be"),
        ({"epsilon": "4"}, "epsilon must be"),
        ({"epsilon": 17.0}, "epsilon must be a number from 0.001 to 16; got 17"),
        ({"epsilon": 0.002, "participations": 3}, "the least is 0.001"),
        ({"group": 0}, 'group must be "auto" or a whole number of at least 1; got 0'),
        ({"group": 1.5}, 'group must be "auto" or a whole number of at least 1; got 1.5'),
        ({"group": "all"}, 'group must be "auto"'),
        ({"participations": 0}, "participations must be a whole number of at least 1; got 0"),
        ({"participations": 1.0}, "participations must be a whole number"),
        ({"strategy": Sample(k=4)}, 'k must be "best", "paper" or from 1 to 3; got 4'),
        ({"strategy": "all"}, r"strategy must be one of .*, or one with options: Sample\(...\)"),
        ({"optimizer": "lbfgs"}, r"optimizer must be one of .*, or one with options: Adam\(...\)"),
        ({"optimizer": SGD}, "optimizer must be one of"),
        ({"bound": 0}, 'bound must be "auto" or a positive number; got 0'),
        ({"bound": math.nan}, 'bound must be "auto" or a positive number; got nan'),
        ({"bound": "1"}, 'bound must be "auto" or a positive number'),
        ({"n": 0}, "the number of vehicles must be at least 1; got 0"),
    ],
)
def test_settings_that_cannot_be(options, said):
    with pytest.raises(DomainError, match=said):
        training_of(**options)


def test_options_of_directions_reach_the_plan():
    short, long = Settings(4.0, Directions(fleet=20_000)).plan(36), Settings(4.0).plan(36)
    assert short.bits < long.bits
    assert short == Plan(
        Schema.vector(36, length=1.0), 4.0, Directions(mean_length=0.3, fleet=20_000)
    )
    full = Settings(4.0, Directions(mean_length=1.0)).plan(36)
    assert full.parts[0].coders[0].null_input == 0 < long.parts[0].coders[0].null_input
    with pytest.raises(DomainError, match="fleet must be"):
        Settings(4.0, Directions(fleet=0))


def test_a_distance_that_is_none():
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(DomainError, match=r"learning_rate must be .* a positive number"):
            Settings(4.0, Sample(mechanism="duchi")).training(
                fleet(500, 3), wrong, fedldp.source(1)
            )
