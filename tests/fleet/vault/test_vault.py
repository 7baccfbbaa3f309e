"""The vault, asked by an adversary: what is drawn is right, what is paid is all there is."""

import itertools
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from fleets import NAMES, STRATEGIES, plan_for
from plans import HAND_MADE, canonical, changed, law
from scipy import stats
from vaults import (
    FEATURES,
    MATRIX,
    MODEL,
    ROWS,
    SCHEMA,
    WEIGHTS,
    asked,
    gradients,
    lines,
    vault,
)

import fedldp
from fedldp import Plan, Schema
from fedldp.budget.vehicle import NONCE_BYTES
from fedldp.errors import DomainError, FedLDPError
from fedldp.learn.examples import Arrays, VehicleRows
from fedldp.learn.features import Features, encode_target
from fedldp.learn.model import Model
from fedldp.learn.objectives import objective
from fedldp.learn.tasks import Linear
from fedldp.randomness import Source
from fedldp.schema.attributes import Number

CARS = tuple(f"car {i}" for i in range(len(MATRIX)))


def tally(plan, batch):
    return plan.parse(batch.report(plan.fingerprint).to_bytes())


def check_same_law(found, wanted):
    """Compare two tallies of as many vehicles.

    A counter is a sum of independent bits, so that the difference of two has a variance below
    their sum. Each test here compares less than 100 counters at 6 standard deviations, and would
    alarm by chance less than once in five million seeds.
    """
    assert found.reports == wanted.reports
    for ours, theirs in zip(found.counts, wanted.counts, strict=True):
        assert np.all(np.abs(ours - theirs) <= 6 * np.sqrt(ours + theirs + 10.0))


# What is drawn


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_gradients_have_the_law_of_the_simulator(tmp_path, name, strategy):
    """Each vehicle has one to three rows, of which the later ones differ from the first."""
    rng = fedldp.source(2)
    sizes = rng.below(3, 3000) + 1
    keys = np.repeat([f"car {i}" for i in range(3000)], sizes)
    later = np.concatenate([np.arange(size) > 0 for size in sizes])
    low, high = np.array([0.0, -1.0, -1.0]), np.array([100.0, 3.0, 3.0])
    numbers = low + (high - low) * rng.uniform((len(keys), 3)) ** (1 + 2 * later[:, None])
    matrix = np.column_stack([numbers, rng.below(3, len(keys)), later])
    matrix[::7, 0] = np.nan
    target = SCHEMA["late"] if objective(name).classifies else Number("goal", 0.0, 10.0)
    schema = Schema((*FEATURES.attributes, target))
    if name == "squared":
        matrix[:, -1] = 10 * rng.uniform(len(keys)) ** 2
    model = Model(name, FEATURES, target, WEIGHTS)
    plan = plan_for(len(WEIGHTS), strategy, epsilon=6.0)
    own = vault(tmp_path / "ledger", matrix, keys.tolist(), 6.0, schema)
    batch = own.answer(asked(3000, plan, model))
    examples = Arrays(
        Features(FEATURES).encode(matrix[:, :-1]), encode_target(target, matrix[:, -1])
    )
    fleet = Linear(objective(name), examples, VehicleRows(keys))
    everyone = fleet.gradients(np.array([WEIGHTS]), np.arange(3000))
    check_same_law(tally(plan, batch), plan.simulate_batches([everyone], fedldp.source(3)))


@pytest.mark.parametrize("name", HAND_MADE)
def test_statistics_have_the_law_of_the_plan(tmp_path, name):
    """The chi-squared test would alarm by chance once in a million seeds."""
    document = HAND_MADE[name]
    schema = Schema.from_document(document["schema"])
    row = [1.0] * schema.dimensions  # the highest letter, the second category
    held = vault(tmp_path / "ledger", np.array([row] * 4000), None, 4.0, schema)
    batch = held.answer(asked(4000, canonical(document)))
    found = Counter(f"{int.from_bytes(each):0{8 * len(each)}b}" for each in batch.split())
    wanted = {
        bits: float(odds)
        for bits, odds in law(document, [_letters(document, p) for p in document["parts"]]).items()
    }
    counts = [found.pop(bits.ljust(8 * len(batch.split()[0]), "0"), 0) for bits in wanted]
    assert not found
    assert stats.chisquare(counts, 4000 * np.array(list(wanted.values()))).pvalue > 1e-6


def _letters(document, part):
    """Return the letter, category or sign that each coordinate of a part has at the value 1."""
    found = []
    for place, number in enumerate(part["attributes"]):
        attribute, last = document["schema"][number], 1
        if part["kind"] == "sample" and "categories" not in attribute:
            last = len(document["tables"][part["tables"][place]]["letters"]) - 1
        found += [last] * attribute.get("size", 1)
    return found


def test_one_of_several_rows_is_reported_and_each_equally_likely(tmp_path):
    """At epsilon 16 the noise is gone. It would alarm by chance once in a million seeds."""
    city = Schema((SCHEMA["city"],))
    keys = [f"car {i // 3}" for i in range(9000)]
    held = vault(tmp_path / "ledger", np.arange(9000.0)[:, None] % 3, keys, 16.0, city)
    assert len(held) == 3000
    batch = held.answer(asked(5000, Plan(city, 16.0)))
    assert batch.answered == 3000
    (cells,) = tally(Plan(city, 16.0), batch).counts
    assert stats.chisquare(cells).pvalue > 1e-6


def test_every_fresh_vehicle_is_equally_likely(tmp_path):
    """Two of six, 300 times. It would alarm by chance once in a million seeds."""
    held = vault(tmp_path / "ledger", MATRIX[:6], None, 300.0)
    for number in range(300):
        assert held.answer(asked(2, job=f"{number}")).answered == 2
    spent = Counter(line.vehicle_id for line in lines(held))
    pairs = Counter(
        tuple(sorted(line.vehicle_id for line in same))
        for _, same in itertools.groupby(lines(held), lambda line: line.request)
    )
    assert stats.chisquare([spent[car] for car in CARS[:6]]).pvalue > 1e-6
    assert stats.chisquare([pairs[two] for two in itertools.combinations(CARS[:6], 2)])[1] > 1e-6


def test_who_has_answered_is_not_chosen_again_while_others_can(tmp_path):
    held = vault(tmp_path / "ledger", cap=1.0)
    for number, answered in enumerate((3, 3, 2, 0), 1):
        assert held.answer(asked(3, number=number)).answered == answered
    assert held._ledger.totals() == dict.fromkeys(CARS, 1)


@pytest.mark.parametrize("ask", [asked, gradients])
def test_the_answer_holds_neither_names_nor_an_order(one, ask):
    batch = one.answer(ask(n=8))
    stored = one._ledger._file.execute("SELECT answer FROM releases ORDER BY number")
    drawn = [answer[NONCE_BYTES:] for (answer,) in stored]
    assert drawn != sorted(drawn)  # with this seed
    assert batch.split() == sorted(drawn)
    assert b"car" not in batch.to_bytes()


# What is paid


@pytest.mark.parametrize("ask", [asked, gradients])
def test_the_same_question_gets_the_same_bytes_also_from_the_disk(tmp_path, ask):
    question = ask(n=5)
    held = vault(tmp_path / "ledger", seed=None)
    first = held.answer(question).to_bytes()
    before = lines(held)
    assert len(before) == len({line.vehicle_id for line in before}) == 5
    assert held.answer(question).to_bytes() == first
    held._ledger.close()
    for matrix in (MATRIX, MATRIX * 0, MATRIX[:1]):  # whatever it holds by then
        again = vault(tmp_path / "ledger", matrix, seed=None)
        assert again.answer(question).to_bytes() == first
        assert lines(again) == before
        again._ledger.close()


OTHERS = {
    "n": {"n": 4},
    "fewer": {"n": 2},
    "a model": {"model": replace(MODEL, weights=(0.5,) * 6).to_json()},
    "spaces in the model": {"model": MODEL.to_json() + " "},
    "a plan": {"plan": plan_for(6, "two", epsilon=1.0).to_json()},
    "an epsilon": {"plan": plan_for(6, "two", epsilon=0.1).to_json()},
    "rows": {"plan": ROWS.to_json(), "model": ""},
    "a gateway": {"gateway": "8"},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_another_question_in_the_same_round_is_refused(one, other):
    question = gradients()
    first = one.answer(question)
    before = lines(one)
    for _ in range(2):
        with pytest.raises(DomainError, match="another question was asked under this request"):
            one.answer(replace(question, **other))
    assert lines(one) == before
    assert one.answer(question) == first
    assert one.answer(replace(question, round=2, **other)).answered


def test_the_cap_is_for_life_and_a_new_job_buys_nothing(tmp_path):
    path = tmp_path / "ledger"
    held = vault(path, cap=2.0)
    assert [held.answer(asked(8, job=job)).answered for job in "abcdef"] == [8, 8, 0, 0, 0, 0]
    held._ledger.close()
    again = vault(path, cap=2.0)
    assert again.answer(gradients(job="another")).answered == 0
    assert again._ledger.totals() == dict.fromkeys(CARS, 2)
    again._ledger.close()
    richer = vault(path, cap=3.0)  # as its owner wishes
    assert richer.answer(asked(8, job="a", number=1)).answered == 8
    assert richer.answer(asked(8, job="another", number=2)).answered == 8
    assert richer._ledger.totals() == dict.fromkeys(CARS, 3)


def test_what_is_paid_is_what_a_report_costs_and_not_the_claim(tmp_path):
    document = changed(HAND_MADE["two of three"], ("epsilon",), "3.5")
    schema = Schema.from_document(document["schema"])
    held = vault(tmp_path / "ledger", MATRIX[:, :3] * 0, None, 4.0, schema)
    held.answer(asked(8, canonical(document)))
    assert set(held._ledger.totals().values()) == {Fraction(341, 100)}


def test_no_cheap_questions_without_end(one):
    """A price has a least, so that a cap limits the number of answers as well."""
    for epsilon in ("0.0009", "0", "0.0", "-1", "1e-9"):
        document = changed(json.loads(ROWS.to_json()), ("epsilon",), epsilon)
        for table in document["tables"]:
            table["epsilon"] = epsilon
        with pytest.raises(FedLDPError):
            one.answer(asked(plan=canonical(document)))
    assert lines(one) == []


def test_threads_that_ask_at_once_overspend_nothing(tmp_path):
    held = vault(tmp_path / "ledger", cap=3.0)
    questions = [asked(8 if i % 2 else 5, number=i // 3 + 1, job=f"{i % 3}") for i in range(24)]
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(held.answer, questions * 2))
    assert batches[:24] == batches[24:]
    totals, history = held._ledger.totals(), lines(held)
    assert set(totals.values()) == {3}
    assert len(history) == 24 == sum(batch.answered for batch in batches[:24])
    for question, batch in zip(questions, batches, strict=False):
        same = [line for line in history if line.request == question.request]
        assert {line.run for line in same} <= {question.job}
        assert len(same) == len({line.vehicle_id for line in same}) == batch.answered


class Failing(Source):
    """A source that fails when it is asked for the second time: when the reports are drawn."""

    __slots__ = ("calls",)

    def fill(self, out):
        self.calls += 1
        if self.calls > 1:
            raise OSError("the source has failed")
        super().fill(out)


@pytest.mark.parametrize("ask", [asked, gradients])
def test_when_drawing_fails_nothing_is_recorded(one, ask):
    rng, one._source = one._source, Failing(bytes(32), "failing")
    one._source.calls = 0
    with pytest.raises(OSError, match="the source has failed"):
        one.answer(ask())
    assert lines(one) == []
    one._source = rng
    assert one.answer(ask(n=5)).answered == 5  # the round has seen no question yet


def test_when_writing_fails_half_way_nothing_is_recorded(one, monkeypatch):
    file = one._ledger._file

    def fail(statement, rows):
        for row in itertools.islice(rows, 3):
            file.execute(statement, row)
        raise OSError("no more room")

    with monkeypatch.context() as patch:
        patch.setattr(file, "execute_many", fail)
        with pytest.raises(OSError, match="no more room"):
            one.answer(asked(8))
    assert lines(one) == []
    assert one.answer(asked(5)).answered == 5


def test_when_the_disk_is_full_nothing_is_recorded(one):
    one._ledger._file.execute("PRAGMA max_page_count = 1")
    plan = Plan(Schema((SCHEMA["way"],)), 0.1, strategy="cube")
    for number in range(1, 100):
        try:
            one.answer(asked(8, plan, job=f"{number}"))
        except OSError:
            break
    assert len(lines(one)) == 8 * (number - 1)
    one._ledger._file.execute("PRAGMA max_page_count = 1000")
    assert one.answer(asked(8, plan, job=f"{number}")).answered == 8
