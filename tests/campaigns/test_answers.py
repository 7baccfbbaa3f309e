"""The rules of a vehicle: whom it answers, once, with the same bytes, whatever its data are."""

import datetime
import logging
import re
from fractions import Fraction

import pytest
from campaigns import HOUR, KEY, NOW, PLAN, SCHEMA, Clock, Vehicles, asked, sent

from fedldp import Plan, Schema
from fedldp.budget.vehicle import Vehicle
from fedldp.campaigns.answers import random_row
from fedldp.errors import BudgetError, DomainError, PrivacyError, WireError
from fedldp.fleet import transparency
from fedldp.fleet.protocol import Question
from fedldp.fleet.vault.policy import Policy
from fedldp.signing import PrivateKey, PublicKeys


@pytest.fixture
def vehicles(tmp_path):
    with Vehicles(tmp_path / "vehicle") as found:
        yield found


def test_asking_again_gives_the_same_bytes_and_costs_nothing(vehicles):
    answers, text = vehicles.answers(), sent(asked())
    first = answers.accept(text)
    assert first == answers.accept(text) == vehicles.answers().accept(text)
    assert vehicles.ledger.totals() == {"vehicle": 1}
    assert answers.pending() == [first]
    assert PLAN.count([first.payload[16:]]).tally.reports == 1


def test_an_acknowledged_answer_is_never_sent_again(vehicles):
    answers, text = vehicles.answers(), sent(asked())
    answers.acknowledge(answers.accept(text))
    assert answers.accept(text) is None
    assert answers.pending() == []


def test_the_ledger_alone_brings_the_bytes_back(vehicles):
    """The other file may be lost: the vehicle sends the same bytes, with the same identifier."""
    first = vehicles.answers().accept(sent(asked()))
    vehicles.accepted.close()
    for each in vehicles.folder.glob("campaigns.db*"):
        each.unlink()
    with Vehicles(vehicles.folder) as again:
        assert again.answers().accept(sent(asked())) == first
        assert again.ledger.totals() == {"vehicle": 1}


def test_what_was_answered_is_in_the_hash_chain_once(vehicles):
    """Owners can compare it: what was refused, or only repeated, adds nothing."""
    campaign = asked()
    for key in ("car 1", "car 2", "car 1"):
        vehicles.answers(key).accept(sent(campaign))
    with pytest.raises(BudgetError):
        vehicles.answers("car 1").accept(sent(asked(job="summer")))
    [link] = vehicles.ledger.asked()
    question = Question(
        job=campaign.job, round=campaign.round, gateway="7", n=9, plan=campaign.plan
    )
    assert link.entry == transparency.entry(question)
    assert vehicles.ledger.refused() == []


def test_identifiers_are_drawn_for_each_answer(vehicles):
    texts = [sent(asked(job=f"job-{n}")) for n in range(5)]
    with Vehicles(vehicles.folder / "rich", cap="5.0") as rich:
        found = [rich.answers(key).accept(text) for key in ("car 1", "car 2") for text in texts]
    assert len({each.identifier for each in found}) == 10


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        (sent(asked(), PrivateKey.generate()), WireError, "not signed by the expected key"),
        (sent(asked(fleet="south")), DomainError, "fleet 'south'"),
        (sent(asked(issued=NOW - 24 * HOUR)), DomainError, "its deadline was"),
        (sent(asked(issued=NOW + HOUR)), DomainError, "Set the clock"),
        (sent(asked(Plan(SCHEMA, epsilon=1.5))), PrivacyError, "the cap is 1"),
        (sent(asked(Plan(Schema.of(age=(0, 9)), 1.0))), DomainError, "does not have"),
        (sent(asked(Plan(Schema.of(speed=(0, 51)), 1.0))), DomainError, "does not have"),
    ],
)
def test_nothing_is_spent_on_what_is_refused(vehicles, text, error, why):
    with pytest.raises(error, match=why):
        vehicles.answers().accept(text)
    assert vehicles.ledger.totals() == {}
    assert vehicles.answers().pending() == []


def test_while_the_operator_changes_keys_both_are_valid(vehicles):
    new = PrivateKey.generate()
    with Vehicles(vehicles.folder / "rich", cap="9") as rich:
        answers = rich.answers(operator=PublicKeys((KEY.public, new.public)))
        assert answers.accept(sent(asked())) is not None
        assert answers.accept(sent(asked(job="summer"), new)) is not None
        with pytest.raises(WireError, match="not signed by the expected key"):
            answers.accept(sent(asked(job="autumn"), PrivateKey.generate()))


def test_one_answer_for_each_job_and_no_more_than_the_cap(vehicles):
    answers = vehicles.answers()
    answers.accept(sent(asked()))
    with pytest.raises(BudgetError):
        answers.accept(sent(asked(job="summer")))
    with Vehicles(vehicles.folder / "rich", cap="9") as rich:
        rich.answers().accept(sent(asked()))
        with pytest.raises(BudgetError, match="has answered the job 'spring' once"):
            rich.answers().accept(sent(asked(number=2)))
        assert rich.answers().accept(sent(asked(job="summer"))) is not None


def test_a_vehicle_that_has_chosen_an_epsilon_answers_no_other(vehicles):
    with pytest.raises(DomainError, match=r"only plans with an epsilon of 0\.5"):
        vehicles.answers(epsilon=Fraction(1, 2)).accept(sent(asked()))
    assert vehicles.answers(epsilon=Fraction(1)).accept(sent(asked())) is not None


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({"jobs": ["winter-*"]}, "jobs called 'winter-*'"),
        ({"most_epsilon": "0.5"}, "an epsilon of 0.5"),
        ({"attributes": ["speed"]}, "also needs 'city'"),
    ],
)
def test_the_owners_policy_is_kept(vehicles, rules, why):
    with pytest.raises(DomainError, match=re.escape(why)):
        vehicles.answers(policy=Policy.of(rules)).accept(sent(asked()))
    assert vehicles.ledger.totals() == {}


def test_an_older_round_is_a_repetition(tmp_path):
    with Vehicles(tmp_path, cap="9", answers_per_job=9) as vehicles:
        answers = vehicles.answers()
        old = sent(asked())
        answers.accept(old)
        answers.accept(sent(asked(number=2, issued=NOW - HOUR)))
        with pytest.raises(DomainError, match="repetition"):
            answers.accept(old)
        other = Plan(SCHEMA, epsilon=0.5)
        with pytest.raises(DomainError, match="another plan was accepted"):
            answers.accept(sent(asked(other, number=2)))
        assert vehicles.ledger.totals() == {"vehicle": 2}


def test_a_later_deadline_of_the_same_round_replaces_the_earlier_one(tmp_path):
    clock = Clock()
    with Vehicles(tmp_path, clock=clock) as vehicles:
        answers = vehicles.answers()
        earlier = sent(asked())
        first = answers.accept(earlier)
        clock.now = NOW + 2 * HOUR
        again = answers.accept(sent(asked(issued=clock.now, hours=48)))
        assert again.payload == first.payload
        assert again.deadline == NOW + 50 * HOUR
        with pytest.raises(DomainError, match="repetition"):
            answers.accept(earlier)
        clock.now = NOW + 49 * HOUR
        assert answers.pending() == [again]
        clock.now = NOW + 50 * HOUR
        assert answers.pending() == []


def test_a_clock_that_was_set_back_does_not_revive_old_campaigns(tmp_path):
    clock = Clock(NOW + 48 * HOUR)
    with Vehicles(tmp_path, cap="9", clock=clock) as vehicles:
        answers = vehicles.answers()
        answers.accept(sent(asked(issued=clock.now)))
        clock.now = NOW + HOUR
        with pytest.raises(DomainError, match="its deadline was"):
            answers.accept(sent(asked(job="winter")))


def test_a_plan_of_constants_repeats_the_report_and_not_the_identifier(tmp_path):
    schema = Schema.of(city={"categories": ["Oslo", "Rome", "Lima"], "constant": True})
    plan = Plan(schema, epsilon=1.0)
    with Vehicles(tmp_path, schema=schema) as vehicles:
        answers = vehicles.answers()
        texts = [sent(asked(plan, job=job)) for job in ("spring", "summer")]
        first, second = (answers.accept(text) for text in texts)
        assert vehicles.ledger.totals() == {"vehicle": 1}
        assert first.payload[16:] == second.payload[16:]
        assert first.identifier != second.identifier
        assert answers.accept(texts[0]) == first
        stored = Vehicle(vehicles.ledger).answer(plan, {}, job="autumn")
        assert stored.report == first.payload[16:]
        assert stored.nonce not in (first.identifier, second.identifier)


ODD = {"speed": datetime.date(2027, 3, 1), "city": [1, {}], 7: object()}


@pytest.mark.parametrize(
    "row", [{}, ODD, {"speed": None, "city": "Atlantis"}, {"speed": "x" * 999}]
)
def test_data_never_decide_whether_a_vehicle_answers(vehicles, row, caplog):
    with caplog.at_level(logging.INFO, "fedldp.fleet"):
        answer = vehicles.answers(row=row).accept(sent(asked()))
    assert len(answer.payload) == 16 + 16 + -(-PLAN.bits // 8)
    assert "clipped or replaced" in caplog.text
    assert "Atlantis" not in caplog.text  # logs are passed on


@pytest.mark.parametrize("contents", [None, "", "speed,city\n", "\x00\xff"])
def test_a_file_that_cannot_be_read_gives_an_empty_row_and_a_line_in_the_log(
    tmp_path, contents, caplog
):
    path = tmp_path / "rows.csv"
    if contents is not None:
        path.write_text(contents, "latin-1")
    assert random_row(path) == {}
    assert "all values count as missing" in caplog.text


def test_a_malformed_line_is_a_row_of_missing_values(tmp_path, caplog):
    path = tmp_path / "rows.csv"
    path.write_text("speed,city\n1,Oslo\n2\n3,Rome\n")
    rows = {tuple(random_row(path).values()) for _ in range(200)}  # false alarm below 1e-34
    assert rows == {("1", "Oslo"), (None, None), ("3", "Rome")}
    assert "1 line malformed" in caplog.text


def test_each_row_of_a_file_is_chosen(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("speed,city\n1,Oslo\n2,\n3,Rome\n")
    found = {tuple(random_row(path).items()) for _ in range(200)}
    # A row is missed in 200 draws with a probability of 3 (2/3)^200 < 1e-34.
    expected = {("1", "Oslo"), ("2", None), ("3", "Rome")}
    assert {(speed, city) for (_, speed), (_, city) in found} == expected
