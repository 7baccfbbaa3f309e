"""The server on a network of fakes: how rounds begin and end, and what a job gives."""

import logging

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from gateways import (
    FEATURES,
    MODEL,
    PLAN,
    RECIPE,
    Network,
    batch,
    final,
    honest,
    mute,
    result,
    statistic,
    training,
)

from fedldp import Plan
from fedldp.errors import DomainError, FedLDPError
from fedldp.fleet.flower.messages import packed
from fedldp.fleet.flower.strategy import LDPFedSGD
from fedldp.fleet.protocol import Answer
from fedldp.fleet.server import checkpoint, rounds
from fedldp.learn.model import Model
from fedldp.learn.optimizer import SGD, Adam, Recipe, State, observed, step
from fedldp.storage import locks

# A job that goes well


def test_a_training_by_the_book(tmp_path):
    job, network = training(tmp_path), Network(honest, honest, honest)
    found = network.start(job)
    # The same, written out: what each gateway answers is known.
    state = State.start(np.zeros(3))
    for number in (1, 2, 3):
        model = Model("logistic", FEATURES, MODEL.target, state.weights[0])
        asked = [job.question(str(node), number, model) for node in (10, 11, 12)]
        assert [question for _, question in network.questions(number)] == asked
        batches = [Answer.from_bytes(batch(question), question) for question in asked]
        reports = [PLAN.parse(each.report(PLAN.fingerprint).to_bytes()) for each in batches]
        state = step(RECIPE, state, observed([sum(reports, PLAN.tally())]))
    assert final(job).to_json() == state.to_json()
    assert result(job).weights == tuple(state.average[0])
    assert len(network.sent) == 9
    (weights,) = found.arrays.to_numpy_ndarrays()
    assert weights.tolist() == state.average[0].tolist()
    counts = {"asked": 24, "reports": 24, "refusals": 0, "silent": 0}
    assert {k: dict(v) for k, v in found.train_metrics_clientapp.items()} == dict.fromkeys(
        (1, 2, 3), counts
    )
    progress = checkpoint.status(job.checkpoint)
    assert (progress.rounds, progress.reports, progress.ended) == (3, 72, rounds.ROUNDS)
    size = job.question("10", 1).size
    assert progress.bytes == {"10": 3 * size, "11": 3 * size, "12": 3 * size}
    assert checkpoint.finished(job.checkpoint)
    assert not checkpoint.locked(job.checkpoint)


@pytest.mark.parametrize(("make", "answers"), [(training, 9), (statistic, 3)])
def test_a_report_is_counted_once(tmp_path, monkeypatch, make, answers):
    """As it is received. The checks, the steps and the result use what was counted."""
    job, network = make(tmp_path), Network(honest, honest, honest)
    parse, counted = Plan.parse, []
    monkeypatch.setattr(Plan, "parse", lambda plan, data: counted.append(data) or parse(plan, data))
    network.start(job)
    assert len(set(counted)) == len(counted) == answers


def test_a_job_that_is_over_asks_nobody(tmp_path):
    job = training(tmp_path)
    first = Network(honest, honest, honest).start(job)
    again = Network()
    found = again.start(job)
    assert again.calls == 0
    assert found.train_metrics_clientapp == first.train_metrics_clientapp
    (a,), (b,) = (each.arrays.to_numpy_ndarrays() for each in (first, found))
    assert a.tolist() == b.tolist()


def test_a_statistic_is_one_round(tmp_path):
    job, network = statistic(tmp_path), Network(honest, honest, honest)
    found = network.start(job)
    questions = [question for _, question in network.questions(1)]
    assert all(not question.model for question in questions)
    batches = [Answer.from_bytes(batch(question), question) for question in questions]
    reports = [job.plan.parse(each.report(job.plan.fingerprint).to_bytes()) for each in batches]
    tally = job.plan.load_tally(job.result)
    assert tally == sum(reports, job.plan.tally())
    assert tally.reports == 24
    assert len(network.sent) == 3
    counts = [each.tolist() for each in found.arrays.to_numpy_ndarrays()]
    assert counts == [each.tolist() for each in tally.counts]


def test_models_are_evaluated_by_the_server_alone(tmp_path):
    seen = {}

    def evaluate(number, arrays):
        (seen[number],) = arrays.to_numpy_ndarrays()
        return MetricRecord({"number": number}) if number > 1 else None

    job, network = training(tmp_path), Network(honest, honest, honest)
    found = network.start(job, evaluate_fn=evaluate)
    assert sorted(seen) == [1, 2, 3]
    assert seen[3].tolist() == list(result(job).weights)
    assert {k: v["number"] for k, v in found.evaluate_metrics_serverapp.items()} == {2: 2, 3: 3}
    strategy = network.strategy(job)
    assert strategy.configure_evaluate(1, ArrayRecord(), ConfigRecord(), network) == []
    assert strategy.aggregate_evaluate(1, []) is None


# A gateway that gets a new key is a new node of Flower


def test_an_open_question_goes_to_the_new_node_as_it_was(tmp_path):
    """The vault has answered it, and nobody has heard the answer: it is the same question."""
    job, network = training(tmp_path), Network(honest, mute, honest, honest)
    network.absent = {13}

    def after_a_while():
        if network.now > 20 and not network.before:
            network.before = {"13": "11"}
            network.absent = {11}

    network.after_sleep = after_a_while
    network.start(job)
    first = network.questions(1)
    assert {node for node, _ in first} == {10, 11, 12, 13}
    assert len({question for node, question in first if node in (11, 13)}) == 1
    for number in (2, 3):  # and it keeps the number of its first node
        asked = network.questions(number)
        assert [(node, question.gateway) for node, question in asked] == [
            (10, "10"),
            (13, "11"),
            (12, "12"),
        ]
    progress = checkpoint.status(job.checkpoint)
    assert (progress.reports, progress.silent) == (72, 0)
    assert progress.bytes.keys() == {"10", "11", "12"}


@pytest.mark.parametrize(
    ("before", "gone", "waits"),
    [
        ({}, set(), True),
        ({}, {"11"}, False),
        ({"13": "11"}, {"11"}, True),  # it has a new key
        ({"13": "11"}, {"11", "13"}, False),
    ],
)
def test_an_open_round_does_not_wait_for_a_revoked_gateway(tmp_path, before, gone, waits):
    job, network = training(tmp_path), Network(honest, mute, honest)
    network.before = before

    def after_a_while():
        if network.now > 20:
            network.absent, network.revoked = {11}, gone

    network.after_sleep = after_a_while
    network.start(job)
    assert (network.now >= job.deadline) == waits
    counts = checkpoint.status(job.checkpoint)
    assert (counts.reports, counts.silent) == (2 * 8 * 3, 8)


def test_a_gateway_with_two_nodes_is_asked_once(tmp_path):
    """Flower takes some time to notice that the old node is gone."""
    job, network = training(tmp_path), Network(honest, honest, honest, honest)
    network.before = {"13": "10"}
    network.start(job)
    assert {node for node, _ in network.questions(1)} == {11, 12, 13}
    assert len(network.sent) == 9


def test_a_node_that_is_not_used_yet_gets_nothing(tmp_path):
    job, network = training(tmp_path), Network(honest, honest, honest, honest)
    network.before, network.absent = {"13": "10"}, {13}
    network.start(job)
    assert {node for node, _ in network.questions(3)} == {10, 11, 12}
    assert len(network.sent) == 9


# Rounds begin and end


def test_the_first_round_waits_for_all_and_the_next_for_one(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    network = Network(honest, honest, honest)
    network.absent = {11, 12}

    def come():
        network.absent = {11} if network.now < 50 else set()

    network.after_sleep = come
    job = training(tmp_path)
    network.start(job)
    assert network.now == 50
    said = [each.getMessage() for each in caplog.records if "waiting for" in each.getMessage()]
    assert [each.partition(": ")[2] for each in said] == [
        "waiting for 3 gateways; 1 is connected.",
        "waiting for 3 gateways; 2 are connected.",
    ]
    assert [node for node, _ in network.questions(1)] == [10, 11, 12]

    late = Network(honest, honest, honest)
    late.gateways[10] = lambda question, _: late.absent.update({11, 12}) or honest(question, 0)
    job = training(tmp_path / "late")
    late.start(job)
    assert [node for node, _ in late.questions(1)] == [10, 11, 12, *[11, 12] * 2]
    assert [node for node, _ in late.questions(2)] == [10]  # the gateway that is connected
    assert final(job).round == 3


def test_one_that_joins_later_is_asked_from_the_next_round_on(tmp_path):
    network = Network(honest, honest)

    def third(question, _):
        network.gateways[12] = honest
        yield packed(batch(question))

    network.gateways[11] = third
    network.start(training(tmp_path, gateways=2))
    assert [[node for node, _ in network.questions(i)] for i in (1, 2, 3)] == [
        [10, 11],
        [10, 11, 12],
        [10, 11, 12],
    ]


def test_the_same_is_sent_again_until_the_deadline(tmp_path):
    """After 10, 30 and 70 seconds: a gateway that is slow must not drown in messages."""
    job, network = training(tmp_path, rounds=1), Network(honest, mute, honest)
    network.start(job)
    asked = [question for node, question in network.questions(1) if node == 11]
    assert len(asked) == 3
    assert len(set(asked)) == 1
    assert [node for node, _ in network.sent].count(10) == 1
    assert network.now == 60
    progress = checkpoint.status(job.checkpoint)
    assert (progress.rounds, progress.reports) == (1, 16)
    assert set(progress.bytes) == {"10", "12"}


def test_who_answers_the_second_time_is_in_time(tmp_path):
    def second(question, attempt):
        if attempt:
            yield packed(batch(question))

    job, network = training(tmp_path), Network(honest, second, second)
    network.start(job)
    assert network.now == 30
    plain = training(tmp_path / "plain")
    Network(honest, honest, honest).start(plain)
    assert final(job).to_json() == final(plain).to_json()


def test_a_slow_gateway_does_not_drown(tmp_path):
    """It takes three times as long for a message as the server waits before it sends another."""
    job, network = training(tmp_path, rounds=20, deadline=200.0), Network(honest, honest, honest)
    network.service[11] = 30.0
    network.start(job)
    assert checkpoint.status(job.checkpoint).reports == 20 * 24  # it is always in time
    assert [node for node, _ in network.sent].count(11) <= 20 * 4


def test_a_round_without_answers_is_never_stepped(tmp_path):
    """It is sent again beyond the deadline, and then to those who have come since."""
    network = Network(mute, mute, mute)

    def come():
        if network.now == 125:
            network.gateways[13] = honest

    network.after_sleep = come
    job = training(tmp_path, rounds=1)
    network.start(job)
    assert network.now == 130
    assert [node for node, _ in network.sent].count(10) == 5  # 0, 10, 30, 70, 130
    assert checkpoint.status(job.checkpoint).reports == 8


def test_it_ends_when_no_vehicle_is_left(tmp_path):
    left = {10: 12, 11: 8, 12: 3}  # vehicles

    def few(question, _):
        node = int(question.gateway)
        answers = min(left[node], question.n)
        left[node] -= answers
        yield packed(batch(question, answers))

    job, network = training(tmp_path, rounds=50), Network(few, few, few)
    network.start(job)
    progress = checkpoint.status(job.checkpoint)
    assert (progress.rounds, progress.ended) == (2, rounds.NOBODY)
    assert (progress.reports, progress.refusals, progress.silent) == (23, 3 * 24 - 23, 0)
    assert final(job).round == 2
    assert result(job).weights == tuple(final(job).average[0])


def test_those_who_are_silent_may_still_come(tmp_path):
    """An answer in which all vehicles are silent does not count; it does not end the job either."""

    def later(question, attempt):
        yield packed(batch(question, 8 if attempt == 2 else 0, silent=0 if attempt == 2 else 8))

    def nobody(question, _):
        yield packed(batch(question, 0))

    job, network = training(tmp_path, rounds=1), Network(later, nobody, nobody)
    network.start(job)
    assert network.now == 20
    progress = checkpoint.status(job.checkpoint)
    assert (progress.reports, progress.refusals, progress.silent) == (8, 16, 0)

    def some(question, _):
        yield packed(batch(question, 5, silent=2))

    job, network = training(tmp_path / "some", rounds=1), Network(some, some, some)
    network.start(job)
    progress = checkpoint.status(job.checkpoint)
    assert (progress.reports, progress.refusals, progress.silent) == (15, 3, 6)
    assert network.now == 0


def test_it_ends_when_the_model_settles(tmp_path):
    recipe = Recipe(SGD(0.5, schedule="inverse", momentum=0.0, tol=0.05))
    job = training(tmp_path, recipe=recipe, rounds=500)
    Network(honest, honest, honest).start(job)
    assert checkpoint.status(job.checkpoint).ended == rounds.SETTLED
    state = final(job)
    assert state.change[0] < 0.05
    assert 1 < state.round < 500


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (
            Recipe(SGD(1e20, momentum=0.0), alpha=1e4),
            "use a lower learning rate",
        ),
        (Recipe(Adam(0.1), alpha=1e200), "the numbers cannot be those of a training"),
    ],
)
def test_a_model_beyond_all_bounds_ends_the_job(tmp_path, recipe, said):
    job, network = training(tmp_path, recipe=recipe), Network(honest, honest, honest)
    for _ in range(2):  # the second time it only says so
        with pytest.raises(FedLDPError, match=said):
            network.start(job)
    progress = checkpoint.status(job.checkpoint)
    assert progress.failed
    assert checkpoint.finished(job.checkpoint)
    assert not job.result.exists()
    assert len(network.sent) == 3 * (progress.rounds + 1)
    assert checkpoint.replay(job.checkpoint, job.stages).state.round == progress.rounds


# Who uses it


def test_two_servers_do_not_share_a_job(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "RETRY_SECONDS", 0.0)
    job, network = training(tmp_path), Network(honest, honest, honest)

    def rival(question, _):
        with pytest.raises(BlockingIOError, match="Another server has"):
            Network(honest, honest, honest).start(job)
        yield packed(batch(question))

    network.gateways[11] = rival
    network.start(job)
    assert final(job).round == 3


@pytest.mark.parametrize(
    "options",
    [
        {"initial_arrays": ArrayRecord([np.zeros(3)])},
        {"num_rounds": 3},
        {"timeout": 3600.0},
        {"train_config": ConfigRecord({"lr": 0.1})},
        {"evaluate_config": ConfigRecord()},
    ],
)
def test_the_job_says_it_all(options, tmp_path):
    network = Network(honest, honest, honest)
    with pytest.raises(DomainError, match="start takes only the grid and evaluate_fn"):
        network.start(training(tmp_path), **options)
    assert network.calls == 0


def test_rounds_are_for_a_job_that_is_started(tmp_path):
    strategy = LDPFedSGD(training(tmp_path))
    with pytest.raises(DomainError, match=r"call start\(grid\)"):
        strategy.configure_train(1, ArrayRecord(), ConfigRecord(), Network(honest))
    with pytest.raises(DomainError, match=r"call start\(grid\)"):
        strategy.aggregate_train(1, [])
