"""A fleet whose vehicles choose their own epsilon: rounds ask for one level after the other."""

import contextlib
from fractions import Fraction

import numpy as np
import pytest
from gateways import MODEL, PLAN, RECIPE, Network, batch, honest, result, statistic, training
from ledgers import open_ledger
from vault_folders import configured
from vaults import MATRIX, SCHEMA, asked
from vaults import MODEL as VAULT_MODEL

from fedldp import Plan, Schema
from fedldp.errors import DomainError, WireError
from fedldp.fleet.flower.messages import packed
from fedldp.fleet.job import Job
from fedldp.fleet.server import checkpoint, rounds
from fedldp.fleet.server.rounds import Rounds
from fedldp.fleet.vault.vault import Vault
from fedldp.learn import Model, optimizer
from fedldp.learn.optimizer import SGD, Adam, Recipe, State

BOLD = Plan(Schema.vector(3, 1.0), 5.0, mechanism="hm-tp", k=2)


def levels(folder, **options):
    return training(folder, **({"levels": (BOLD,), "rounds": 6} | options))


def only(*epsilons):
    """Return a gateway whose vehicles answer plans with these epsilons, and refuse others."""

    def gateway(question, _):
        answers = Plan.from_json(question.plan).epsilon in epsilons
        yield packed(batch(question, answered=question.n if answers else 0))

    return gateway


def test_rounds_alternate_and_the_model_steps_after_all_levels(tmp_path):
    """Once more by hand: from the tallies of both levels, weighted by their known variance."""
    job = levels(tmp_path)
    network = Network(only(2.0), only(5.0), honest)
    network.start(job)
    state, plans = State.start(np.zeros(3)), (PLAN, BOLD)
    for step in range(3):
        top, bottom, models = np.zeros(3), np.zeros(3), set()
        for place, plan in enumerate(plans):
            asked = [question for _, question in network.questions(2 * step + place + 1)]
            assert {question.plan for question in asked} == {plan.to_json()}
            models |= {Model.from_json(question.model) for question in asked}
            with checkpoint.Checkpoint(job.checkpoint, "test", job.settings) as file:
                tally = file.tally(plan, 2 * step + place + 1)
            assert tally.reports == 16  # of two gateways
            found = tally.estimate()["x"]
            weight = found.answers / plan.parts[0].coders[0].variance(0.0)
            top += np.nan_to_num(found.mean) * weight
            bottom += weight
        (model,) = models
        np.testing.assert_allclose(model.weights, state.weights[0], rtol=1e-9)
        state = optimizer.step(RECIPE, state, (top / bottom)[None])
    np.testing.assert_allclose(result(job).weights, state.average[0], rtol=1e-9)
    again = checkpoint.replay(job.checkpoint, job.stages).state
    np.testing.assert_allclose(again.weights, state.weights, rtol=1e-9)
    progress = checkpoint.status(job.checkpoint)
    assert (progress.rounds, progress.ended, progress.reports) == (6, rounds.ROUNDS, 96)
    assert job.expected == 3 * 8 * 6


def test_a_level_that_nobody_has_does_not_end_the_job(tmp_path):
    job = levels(tmp_path)
    Network(only(5.0), only(5.0), only(5.0)).start(job)
    progress = checkpoint.status(job.checkpoint)
    assert (progress.rounds, progress.ended, progress.reports) == (6, rounds.ROUNDS, 72)
    assert np.abs(result(job).weights).max() > 0


def test_it_ends_when_no_vehicle_of_any_level_is_left(tmp_path):
    def spent(question, _):
        yield packed(batch(question, answered=question.n if question.round <= 3 else 0))

    job = levels(tmp_path, rounds=20)
    Network(spent, spent, spent).start(job)
    progress = checkpoint.status(job.checkpoint)
    # The third round asked for the first level; in the fifth and sixth nobody answered.
    assert (progress.rounds, progress.ended, progress.reports) == (5, rounds.NOBODY, 72)


@pytest.mark.parametrize("killed", range(1, 7))
def test_killed_in_any_round_it_resumes(tmp_path, killed):
    """Also between two levels, where the model has not stepped yet."""

    class Killed(BaseException):
        pass

    def gateway(question, _):
        if question.round == killed and not network.absent:
            network.absent = {10}
            raise Killed
        yield packed(batch(question))

    whole, job = levels(tmp_path / "whole"), levels(tmp_path / "cut")
    Network(honest, honest, honest).start(whole)
    network = Network(gateway, honest, honest)
    with pytest.raises(Killed):
        network.start(job)
    Network(honest, honest, honest).start(job)
    assert job.result.read_text() == whole.result.read_text()


def test_it_settles_only_by_steps(tmp_path):
    recipe = Recipe(SGD(1e-9, momentum=0.0, tol=0.1))
    job = levels(tmp_path, recipe=recipe)
    Network(honest, honest, honest).start(job)
    progress = checkpoint.status(job.checkpoint)
    assert (progress.rounds, progress.ended) == (2, rounds.SETTLED)


def test_a_batch_of_another_level_is_refused(tmp_path):
    job = levels(tmp_path, gateways=1)
    with contextlib.closing(Rounds(job)) as running:
        running.ask(["10"])
        (question,) = running.questions().values()
        other = job.question("10", 2)
        with pytest.raises(WireError):
            running.receive(question, batch(other))
        running.receive(question, batch(question))
        running.step()
        assert running.number == 2
        assert running.model == MODEL  # it has not stepped


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rounds": 5}, "rounds must be a multiple of the number of plans, 2, .* got 5"),
        ({"levels": (PLAN,)}, "different epsilons"),
        (
            {"levels": (Plan(Schema.vector(3, 2.0), 5.0, mechanism="duchi"),)},
            "must have the same schema",
        ),
        ({"levels": ("plan.json",)}, "levels must be plans"),
    ],
)
def test_levels_that_cannot_be(tmp_path, options, said):
    with pytest.raises(DomainError, match=said):
        levels(tmp_path, **options)


def test_levels_are_for_trainings(tmp_path):
    with pytest.raises(DomainError, match="run a job for each level"):
        statistic(tmp_path, levels=(BOLD,))


def test_other_levels_are_another_job(tmp_path):
    plain = training(tmp_path, rounds=6)
    job = levels(tmp_path)
    other = levels(tmp_path, levels=(Plan(Schema.vector(3, 1.0), 4.0, mechanism="hm-tp", k=2),))
    assert len({plain.settings, job.settings, other.settings}) == 3


def test_levels_from_a_file(tmp_path):
    job = levels(tmp_path)
    for name, document in (("plan", PLAN), ("bold", BOLD), ("model", MODEL)):
        (tmp_path / f"{name}.json").write_text(document.to_json())
    text = """
        job = "test"
        plan = "plan.json"
        levels = ["bold.json"]
        model = "model.json"
        gateways = 3
        reports = 8
        rounds = 6
        checkpoint = "state/job.db"
        result = "state/model.json"
        recipe = {rate = 0.2}
    """
    (tmp_path / "job.toml").write_text(text)
    loaded = Job.load(tmp_path / "job.toml")
    assert loaded.plans == (PLAN, BOLD)
    assert loaded.settings == job.settings
    (tmp_path / "job.toml").write_text(text.replace('"bold.json"', "7"))
    with pytest.raises(DomainError, match="levels must be names of files"):
        Job.load(tmp_path / "job.toml")


# What vehicles answer


def vault_of(path, epsilons, cap=9.0, keys=None):
    matrix = np.tile(MATRIX, (3, 1))[: len(epsilons)]
    keys = [f"car {i}" for i in range(len(epsilons))] if keys is None else keys
    chosen = [Fraction(each) for each in epsilons]
    return Vault(SCHEMA, matrix, keys, open_ledger(path, cap), epsilons=chosen)


def gradient_plan(epsilon, **options):
    return Plan(Schema.vector(6, 1.0), epsilon, mechanism="three-outputs", **{"k": 3} | options)


def test_a_vehicle_answers_with_its_own_epsilon(tmp_path):
    """Whatever is asked first, and also where the parts of a plan cost a little less."""
    epsilons = [1, 5, 1, 5, 5, 2]
    own = {f"car {i}": Fraction(each) for i, each in enumerate(epsilons)}
    vault = vault_of(tmp_path / "ledger.db", epsilons)
    counts = []
    for number, epsilon in enumerate((1.0, 3.0, 5.0, 0.5, 2.0), 1):
        plan = gradient_plan(epsilon)
        assert plan.total_epsilon <= Fraction(epsilon)
        question = asked(n=6, plan=plan, model=VAULT_MODEL, number=number)
        counts.append(vault.answer(question).answered)
        assert vault.answer(question).answered == counts[-1]  # the same again
    assert counts == [2, 0, 3, 0, 1]
    spent = vault._ledger.totals()
    assert spent.keys() == own.keys()
    for name, each in spent.items():
        assert 0.999 * own[name] < each <= own[name]
    assert gradient_plan(5.0).total_epsilon < 5  # 5/3 as a float, three times
    vault._ledger.close()


def test_vaults_with_levels_train_a_model(tmp_path):
    """From vaults to the result: three vaults, two levels, everybody asked once."""
    plans = [
        Plan(Schema.vector(6, 1.0), each, mechanism="three-outputs", k=1) for each in (1.0, 5.0)
    ]
    chosen = [[1] * 8, [5] * 8, [1, 5] * 4]
    vaults = [vault_of(tmp_path / f"{i}.db", each) for i, each in enumerate(chosen)]

    def gateway(vault):
        def answer(question, _):
            yield packed(vault.answer(question).to_bytes())

        return answer

    job = Job(
        "spring", plans[0], tmp_path / "job.db", tmp_path / "model.json", 8,
        VAULT_MODEL, Recipe(Adam(0.5)), gateways=3, rounds=2, levels=(plans[1],),
    )  # fmt: skip
    Network(*map(gateway, vaults)).start(job)
    progress = checkpoint.status(job.checkpoint)
    assert (progress.rounds, progress.reports) == (2, 24)
    with checkpoint.Checkpoint(job.checkpoint, "spring", job.settings) as file:
        assert [file.counts(number).reports for number in (1, 2)] == [12, 12]
    assert result(job).weights != VAULT_MODEL.weights
    for vault, epsilons in zip(vaults, chosen, strict=True):
        spent = vault._ledger.totals()
        assert [float(spent[f"car {i}"]) for i in range(8)] == epsilons
        vault._ledger.close()


def test_a_vehicle_that_has_not_chosen_answers_anything(tmp_path):
    ledger = open_ledger(tmp_path / "ledger.db", 9.0)
    vault = Vault(SCHEMA, MATRIX, [f"car {i}" for i in range(8)], ledger)
    found = vault.answer(asked(n=20, plan=gradient_plan(3.0), model=VAULT_MODEL))
    assert found.answered == 8
    ledger.close()


def test_a_vehicle_has_one_epsilon(tmp_path):
    with pytest.raises(DomainError, match="epsilons must be the same in all rows of a vehicle"):
        vault_of(tmp_path / "a.db", [1, 2, 1], keys=["a", "a", "b"])
    with (
        open_ledger(tmp_path / "b.db", 9.0) as ledger,
        pytest.raises(DomainError, match="epsilons must have one for each of 8 rows; got 2"),
    ):
        Vault(SCHEMA, MATRIX, [*"abcdefgh"], ledger, epsilons=[Fraction(1)] * 2)
    vault = vault_of(tmp_path / "c.db", [1, 2, 1], keys=["b", "a", "b"])
    question = asked(n=3, plan=gradient_plan(2.0), model=VAULT_MODEL)
    assert vault.answer(question).answered == 1
    assert vault._ledger.totals().keys() == {"a"}
    vault._ledger.close()


def test_the_owner_sets_epsilons_in_the_vaults_folder(tmp_path):
    text = "id,speed,city,most\n7,31,Rome,1.0\n8,20,Oslo, 2 \n7,x,Oslo,1.0\n"
    (tmp_path / "rows.csv").write_text(text)
    own = configured(tmp_path, vehicle="id", epsilons="most", cap="4.0")
    assert own.epsilons(3) == [1, 2, 1]
    assert configured(tmp_path, epsilon="0.5").epsilons(3) == [Fraction(1, 2)] * 3
    assert configured(tmp_path).epsilons(3) is None


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"epsilon": "2"}, "up to its cap of 1; got '2'"),
        ({"epsilon": "0"}, "must be a positive number"),
        ({"epsilon": "much"}, "got 'much'"),
        ({"epsilons": "least"}, "epsilons must be a column of the file, one of .*; got 'least'"),
        ({"epsilon": "1", "epsilons": "most"}, "got both"),
        ({"data": "flights", "schema": None, "epsilons": "most"}, "must be a column of a file"),
    ],
)
def test_epsilons_that_an_owner_cannot_set(tmp_path, entries, said):
    (tmp_path / "rows.csv").write_text("id,speed,city,most\n7,31,Rome,1.0\n8,20,Oslo,\n")
    with pytest.raises(DomainError, match=said):
        configured(tmp_path, **entries).epsilons(2)
