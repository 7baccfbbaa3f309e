"""In one job each vehicle answers once, or as often as its owner allows, whatever its cap."""

import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from vaults import (
    FEATURES,
    GRADIENT,
    MATRIX,
    ROWS,
    SCHEMA,
    answer,
    asked,
    gradients,
    lines,
    listening,
    vault,
)

from fedldp import Plan, datasets
from fedldp.budget.ledger import create
from fedldp.errors import DomainError, FedLDPError
from fedldp.fleet.folder import Place, Work, init
from fedldp.fleet.gateway.relay import relay
from fedldp.fleet.job import Job
from fedldp.fleet.protocol import Answer
from fedldp.fleet.vault.process import VaultConfig
from fedldp.learn.settings import Settings

LARGE = MATRIX[np.arange(300) % len(MATRIX)]


def answers(held, job="spring"):
    """Return how many answers the ledger has of each vehicle in a job."""
    return Counter(line.vehicle_id for line in lines(held) if line.job == job)


@pytest.mark.parametrize("ask", [asked, gradients])
def test_four_rounds_ask_everybody_once(tmp_path, ask):
    """With a cap of four answers: 99 of 300 vehicles were never asked, and 82 more than once."""
    held = vault(tmp_path / "ledger", LARGE, cap=4.0)
    counts = [held.answer(ask(n=75, number=number)).answered for number in range(1, 7)]
    assert counts == [75, 75, 75, 75, 0, 0]
    assert set(answers(held).values()) == {1}
    assert len(answers(held)) == 300


def test_statistics_follow_the_same_rule(tmp_path):
    """A job that asks for rows in one round; further questions in its name get nothing."""
    held = vault(tmp_path / "ledger", cap=4.0)
    assert held.answer(asked(6)).answered == 6
    assert held.answer(asked(8, number=2)).answered == 2
    assert held.answer(asked(8, Plan(SCHEMA, 0.5), number=3)).answered == 0
    assert held.answer(gradients(n=8, number=4)).answered == 0  # of the same job
    assert answers(held) == Counter(f"car {i}" for i in range(8))


@pytest.mark.parametrize("n", [1, 3, 5])
def test_restarts_forget_nothing(tmp_path, n):
    first, path = {}, tmp_path / "ledger"
    for number in range(1, 12):
        held = vault(path, cap=20.0, seed=None)
        first[number] = held.answer(asked(n, number=number))
        held._ledger.close()
    held = vault(path, cap=20.0, seed=None)
    assert sum(batch.answered for batch in first.values()) == min(11 * n, 8)
    assert set(answers(held).values()) == {1}
    before = lines(held)
    for number, batch in first.items():
        if batch.answered:
            assert held.answer(asked(n, number=number)) == batch
    assert lines(held) == before


def test_the_same_question_counts_nothing_and_another_one_is_refused(tmp_path):
    path, question = tmp_path / "ledger", asked(3)
    held = vault(path, cap=20.0, seed=None)
    first = held.answer(question).to_bytes()
    held._ledger.close()
    held = vault(path, cap=20.0, seed=None)  # the job is resumed, also by a server that lost all
    assert held.answer(question).to_bytes() == first
    for other in ({"n": 4}, {"gateway": "8"}, {"plan": Plan(SCHEMA, 0.5).to_json()}):
        with pytest.raises(DomainError, match="another question was asked under this request"):
            held.answer(replace(question, **other))
    assert answers(held).total() == 3
    assert held.answer(asked(8, number=2)).answered == 5


def test_two_gateways_in_front_of_one_vault(tmp_path):
    """In each round the one that comes first is answered, and nobody answers both."""
    held = vault(tmp_path / "ledger", LARGE, cap=9.0)
    counts = Counter()
    with listening(held, tmp_path / "socket") as address:
        for number in range(1, 6):
            questions = [asked(50, number=number, gateway=gateway) for gateway in ("7", "8")]
            for question in questions[:: 1 if number % 2 else -1]:
                batch = Answer.from_bytes(relay(question.to_bytes(), [address], 60.0), question)
                counts[question.gateway] += batch.answered
    assert counts == {"7": 150, "8": 100}
    assert set(answers(held).values()) == {1}
    assert answers(held).total() == 250


def test_gateways_that_ask_at_once(tmp_path):
    """Twelve rounds, each asked by three gateways at the same time, and twice by each."""
    held = vault(tmp_path / "ledger", LARGE, cap=40.0)
    questions = [asked(30, number=n, gateway=g) for n in range(1, 13) for g in "abc"] * 2
    serving = listening(held, tmp_path / "socket", deadline=60.0)
    with serving as address, ThreadPoolExecutor(12) as pool:
        batches = list(pool.map(lambda question: answer(address, question), questions))
    rounds = Counter()
    for question, batch in zip(questions[:36], batches[:36], strict=True):
        rounds[question.round] += batch.answered
    assert set(answers(held).values()) == {1}
    assert answers(held).total() == rounds.total() == 300
    assert batches[:36] == batches[36:]


@pytest.mark.parametrize("vaults", [1, 3])
def test_threads_race_for_the_last_answers(tmp_path, vaults):
    """In one vault, and in several processes' vaults that share a ledger against all advice."""
    held = [vault(tmp_path / "ledger", cap=50.0, answers_per_job=2) for _ in range(vaults)]
    questions = [asked(5, number=number) for number in range(1, 25)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: held[i % vaults].answer(questions[i]), range(24)))
    assert max(answers(held[0]).values()) == 2
    if vaults == 1:
        assert answers(held[0]) == Counter({f"car {i}": 2 for i in range(8)})


def test_the_ledger_has_the_last_word(tmp_path):
    """A vault that does not know what another has released asks the wrong ones: none answers."""
    first, second = (vault(tmp_path / "ledger", cap=9.0) for _ in range(2))
    assert first.answer(asked(1)).answered == second.answer(asked(1, number=2)).answered == 1
    assert first.answer(asked(8, number=3)).answered == 6
    assert second.answer(asked(8, number=4)).answered == 0
    assert answers(first) == Counter(f"car {i}" for i in range(8))


def test_jobs_are_counted_apart_and_take_turns(tmp_path):
    held = vault(tmp_path / "ledger", cap=9.0)
    counts = [
        held.answer(asked(3, job=job, number=number)).answered
        for number, job in itertools.product(range(1, 5), ("spring", "autumn"))
    ]
    assert counts == [3, 3, 3, 3, 2, 2, 0, 0]
    for job in ("spring", "autumn"):
        assert answers(held, job) == Counter(f"car {i}" for i in range(8))


def test_new_names_of_jobs_never_raise_the_cap(tmp_path):
    held = vault(tmp_path / "ledger", cap=3.0)
    counts = [held.answer(asked(8, job=f"job-{i}")).answered for i in range(9)]
    assert counts == [8, 8, 8, 0, 0, 0, 0, 0, 0]
    assert set(held._ledger.totals().values()) == {3}


# Several answers, where the owner allows them


def test_those_with_the_fewest_answers_come_first(tmp_path):
    held = vault(tmp_path / "ledger", cap=9.0, answers_per_job=3)
    for number in range(1, 9):
        assert held.answer(asked(3, number=number)).answered == 3
        found = [answers(held)[f"car {i}"] for i in range(8)]
        assert max(found) - min(found) <= 1
    assert found == [3] * 8
    assert held.answer(asked(3, number=9)).answered == 0


def test_ties_are_broken_at_random(tmp_path):
    """Who comes second of six, 400 times. It would alarm by chance once in a million seeds."""
    held = vault(tmp_path / "ledger", MATRIX[:6], cap=1000.0, answers_per_job=2)
    for job, number in itertools.product(range(400), (1, 2)):
        held.answer(asked(1, job=f"{job}", number=number))
    pairs = Counter(
        tuple(line.vehicle_id for line in both)
        for _, both in itertools.groupby(lines(held), lambda line: line.job)
    )
    counts = [pairs[pair] for pair in itertools.permutations((f"car {i}" for i in range(6)), 2)]
    assert sum(counts) == 400  # the second is always another one
    assert stats.chisquare(counts).pvalue > 1e-6


def test_a_training_in_which_vehicles_take_part_twice_needs_their_owner(tmp_path):
    plan = Plan(GRADIENT.schema, 0.5, mechanism="three-outputs", k=3)  # half of epsilon each time
    for allowed, counts in ((1, [4, 4, 0, 0, 0]), (2, [4, 4, 4, 4, 0])):
        held = vault(tmp_path / f"{allowed}", cap=1.0, answers_per_job=allowed)
        rounds = [gradients(n=4, plan=plan, number=number) for number in range(1, 6)]
        assert [held.answer(question).answered for question in rounds] == counts
        assert set(answers(held).values()) == {allowed}


@pytest.mark.parametrize("entry", ['"answers_per_job":9,', '"participations":9,'])
def test_a_question_cannot_raise_it(tmp_path, entry):
    held = vault(tmp_path / "ledger", cap=9.0)
    held.answer(asked(8))
    plan = ROWS.to_json().replace("{", "{" + entry, 1)
    for number, question in enumerate((asked(8, plan), gradients(n=8, plan=plan)), 2):
        with pytest.raises(FedLDPError):
            held.answer(replace(question, round=number))
    assert answers(held).total() == 8


# As its owner configures it


def test_the_owner_sets_it_in_the_vaults_configuration(tmp_path):
    (tmp_path / "rows.csv").write_text("speed\n31\n48\n")
    (tmp_path / "rows.toml").write_text(FEATURES.to_toml())
    text = 'data = "rows.csv"\nschema = "rows.toml"\ncap = "4.0"\nlisten = "s"\n'
    create(tmp_path / "ledger.db")
    for line, allowed in (("", 1), ("answers_per_job = 3", 3)):
        (tmp_path / "vault.toml").write_text(f"{text}{line}\n")
        with VaultConfig.load(tmp_path).ledger() as ledger:
            assert ledger.answers_per_job == allowed
    for wrong, message in (
        ("0", "answers_per_job must be at least 1; got 0"),
        ("-1", "answers_per_job must be at least 1"),
        ('"2"', "answers_per_job has a value of a wrong type"),
        ("true", "answers_per_job has a value of a wrong type"),
    ):
        (tmp_path / "vault.toml").write_text(f"{text}answers_per_job = {wrong}\n")
        with pytest.raises(DomainError, match=rf"vault\.toml: {message}"):
            VaultConfig.load(tmp_path)


@pytest.mark.parametrize("times", [1, 2])
def test_a_fleet_that_is_written_allows_what_its_job_asks(tmp_path, times):
    flights = datasets.load("flights", rows=200)
    work = Work.on_data_set(flights, "logistic", 2, 4, {"rows": 200})
    settings = Settings(2.0, participations=times)
    init(tmp_path / "fleet", work, settings, 2, Place("127.0.0.1", 9001, 9002), cap=6.0)
    job = Job.load(tmp_path / "fleet" / "server" / "job.toml")
    depot = VaultConfig.load(tmp_path / "fleet" / "vault-1")
    assert (depot.answers_per_job, float(depot.cap)) == (times, 6.0)
    assert job.reports * job.rounds == 100 * times
    assert job.plan.total_epsilon * times == 2
    text = (tmp_path / "fleet" / "vault-1" / "vault.toml").read_text()
    assert f"answers_per_job = {times}  # how often each vehicle may answer one job" in text


@pytest.mark.parametrize("cap", [1.9, 0.0, -1.0, float("inf"), float("nan")])
def test_a_fleet_needs_a_cap_that_its_job_does_not_exceed(tmp_path, cap):
    work = Work.on_data_set(datasets.load("flights", rows=200), "logistic", 2, 4, {"rows": 200})
    with pytest.raises(DomainError, match=r"cap must be at least epsilon, 2\.0"):
        init(tmp_path / "fleet", work, Settings(2.0), 2, Place(), cap=cap)
    assert not (tmp_path / "fleet").exists()
