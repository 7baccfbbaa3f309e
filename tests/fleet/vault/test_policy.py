"""What the owner of a vault allows: each rule refuses before anything is computed or spent."""

from fractions import Fraction

import numpy as np
import pytest
from ledgers import open_ledger
from vault_folders import configured
from vaults import MATRIX, MODEL, SCHEMA, asked, gradients, lines, listening
from vaults import answer as sent
from vaults import vault as make_vault

from fedldp import Plan, Schema
from fedldp.budget import policy as policy_module
from fedldp.budget.ledger import Period
from fedldp.errors import DomainError
from fedldp.fleet.vault.policy import Policy
from fedldp.fleet.vault.vault import Vault

CHEAP = Plan(SCHEMA, 0.5, mechanism="three-outputs", k=1)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    now = [1_000_000]
    monkeypatch.setattr(policy_module, "now", lambda: now[0])
    return now


def vault(folder, cap=2.0, **entries):
    """Return a vault of eight vehicles with the policy that entries of vault.toml describe."""
    policy = Policy.of(entries)
    found = make_vault(folder / "ledger", cap=cap, answers_per_job=100, period=policy.period)
    found._policy = policy
    return found


def check_refused(one, question, why):
    """Check that a question is refused, and that the data have not been looked at."""
    before, matrix = lines(one), one._matrix
    one._matrix = None
    with pytest.raises(DomainError, match=why):
        one.answer(question)
    one._matrix = matrix
    assert lines(one) == before


# One rule after the other.


def test_the_largest_epsilon_of_a_question(tmp_path):
    one = vault(tmp_path, most_epsilon="0.999")
    check_refused(one, asked(), "allows an epsilon of 0.999 for a question; got 1.")
    check_refused(one, gradients(), "allows an epsilon of 0.999")
    assert one.answer(asked(plan=CHEAP)).answered == 3
    one._policy = Policy.of({"most_epsilon": "1.0"})
    assert one.answer(asked(job="summer")).answered == 3  # exactly as much as is allowed


@pytest.mark.parametrize("job", ["summer", "Spring-1", "spring", "xspring-1", "spring-"])
def test_the_jobs_that_are_allowed(tmp_path, job):
    one = vault(tmp_path, jobs=["spring-[0-9]*", "trial"])
    check_refused(one, asked(job=job), r"jobs called 'spring-\[0-9\]\*', 'trial'; got")
    for allowed in ("spring-2027", "trial"):
        assert one.answer(asked(job=allowed, n=1)).answered == 1


def test_the_attributes_that_are_allowed(tmp_path):
    one = vault(tmp_path, attributes=["speed", "way", "city"])
    check_refused(one, asked(), "'speed', 'way', 'city'; the question also needs 'late'")
    check_refused(one, gradients(), "the question also needs 'late'")  # the target of a model
    speeds = Plan(Schema((SCHEMA["speed"],)), 1.0)
    assert one.answer(asked(plan=speeds)).answered == 3


def test_the_fewest_vehicles_behind_an_answer(tmp_path):
    one = vault(tmp_path, fewest_vehicles=5)
    check_refused(one, asked(n=4), "at least 5 vehicles behind an answer; 4 of those")
    assert one.answer(asked(n=6)).answered == 6
    assert one.answer(asked(n=6)).answered == 6  # the same again
    assert one.answer(asked(n=8, job="b")).answered == 8
    # The cap of two vehicles covers a further answer, and that of the others does not.
    check_refused(one, asked(n=8, job="c"), "2 of those that were asked for may answer")
    one._policy = Policy()
    assert one.answer(asked(n=8, job="c")).answered == 2
    one._policy = Policy(fewest_vehicles=5)
    assert one.answer(asked(n=8, job="d")).answered == 0  # nobody could, with or without the rule


def test_if_fewer_could_answer_none_does(tmp_path):
    """Whether they can depends on the ledger and on the settings, never on data."""
    results = []
    for place, matrix in enumerate((MATRIX, np.full_like(MATRIX, np.nan), MATRIX[::-1])):
        folder = tmp_path / str(place)
        folder.mkdir()
        ledger = open_ledger(folder / "ledger", 1.0)
        names = [f"car {i}" for i in range(8)]
        one = Vault(SCHEMA, matrix, names, ledger, policy=Policy(fewest_vehicles=4))
        for name in names[:5]:
            ledger.release(name, 1, "before", lambda: b"")
        one = Vault(SCHEMA, matrix, names, ledger, policy=Policy(fewest_vehicles=4))
        with pytest.raises(DomainError, match=r"at least 4 vehicles .* 3 of those") as refusal:
            one.answer(asked(n=8))
        results.append((str(refusal.value), len(ledger.history())))
        ledger.close()
    assert len(set(results)) == 1


def test_repeated_answers_count_as_vehicles(tmp_path):
    """Of attributes that never change, some repeat and others answer for the first time."""
    schema = Schema.of(city={"categories": ["Oslo", "Rome"], "missing": "Rome", "constant": True})
    plan = Plan(schema, 1.0)
    ledger = open_ledger(tmp_path / "ledger", 1.0)
    names = [f"car {i}" for i in range(6)]
    one = Vault(schema, np.zeros((6, 1)), names, ledger, policy=Policy(fewest_vehicles=3))
    first = asked(n=3, plan=plan)
    assert one.answer(first).answered == 3
    assert one.answer(asked(n=6, plan=plan, job="summer")).answered == 6
    assert sum(line.epsilon for line in ledger.history()) == 6
    ledger.close()


def test_the_most_in_a_period(tmp_path, clock):
    one = vault(tmp_path, cap=10.0, most_epsilon_per_period="1.5", period="12 hours")
    assert one.answer(asked(n=3)).answered == 3
    # The other five come first; then nobody may spend another 1.
    assert one.answer(asked(n=8, job="b")).answered == 5
    assert one.answer(asked(n=8, job="c")).answered == 0
    assert one.answer(asked(n=8, job="d", plan=CHEAP)).answered == 8
    assert one.answer(asked(n=8, job="e", plan=CHEAP)).answered == 0
    clock[0] += 12 * 3600
    assert one.answer(asked(n=8, job="f")).answered == 0
    clock[0] += 1
    assert one.answer(asked(n=8, job="g")).answered == 8
    assert max(one._ledger.totals().values()) == Fraction(5, 2)


def test_a_restart_does_not_begin_a_new_period(tmp_path, clock):
    entries = {"cap": 10.0, "most_epsilon_per_period": "1.0", "period": "1 day"}
    one = vault(tmp_path, **entries)
    assert one.answer(asked(n=8)).answered == 8
    one._ledger.close()
    clock[0] += 86_400
    again = vault(tmp_path, **entries)
    assert again.answer(asked(n=8, job="b")).answered == 0
    clock[0] += 1
    assert again.answer(asked(n=8, job="b")).answered == 8


def test_the_owners_log_says_why_and_the_network_does_not(tmp_path, caplog):
    one = vault(tmp_path, jobs=["trial"])
    with listening(one, tmp_path / "socket") as address:
        found = sent(address, asked())
    assert (found.answered, found.silent) == (0, 0)
    assert "the owner allows jobs called 'trial'; got 'spring'" in caplog.text


def test_what_is_left_out_is_allowed(tmp_path):
    assert Policy.of({"cap": "1", "data": "rows.csv"}) == Policy()
    one = vault(tmp_path, cap=100)
    assert one.answer(asked(n=1, job="any")).answered == 1
    assert one.answer(gradients(n=1, job="any", number=2)).answered == 1
    assert Policy().check("any", Fraction(10**6), [*SCHEMA.attributes, MODEL.target]) is None


# The entries of vault.toml.


def test_they_are_read_from_the_folder(tmp_path):
    (tmp_path / "rows.csv").write_text("speed,city\n31,Rome\n")
    config = configured(
        tmp_path,
        most_epsilon="0.5",
        most_epsilon_per_period="1.5",
        period="7 days",
        jobs=["spring-*"],
        attributes=["speed"],
        fewest_vehicles=3,
    )
    week = Period(Fraction(3, 2), 7 * 86_400)
    assert config.policy == Policy(Fraction(1, 2), week, ("spring-*",), ("speed",), 3)
    with config.ledger() as ledger:
        assert ledger.period == week


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ({"most_epsilon": "much"}, 'most_epsilon must be a positive number, such as "1.0"; got'),
        ({"most_epsilon": "-1"}, "most_epsilon must be a positive number"),
        ({"most_epsilon": 1.0}, "most_epsilon has a value of a wrong type"),
        ({"most_epsilon_per_period": "1"}, "expected both .* got `most_epsilon_per_period` alone"),
        ({"period": "7 days"}, "expected both .* got `period` alone"),
        ({"most_epsilon_per_period": "1", "period": "a week"}, 'period must be like "7 days"'),
        ({"most_epsilon_per_period": "1", "period": "0 days"}, 'period must be like "7 days"'),
        (
            {"most_epsilon_per_period": "x", "period": "7 days"},
            "most_epsilon_per_period must be a positive number",
        ),
        ({"jobs": "spring"}, "jobs has a value of a wrong type"),
        ({"jobs": []}, "jobs must be a list of names; got .*Leave it out to allow all"),
        ({"jobs": [7]}, "jobs must be a list of names"),
        ({"attributes": [""]}, "attributes must be a list of names"),
        ({"fewest_vehicles": 0}, "fewest_vehicles must be at least 1; got 0"),
        ({"fewest_vehicles": "3"}, "fewest_vehicles has a value of a wrong type"),
        ({"most_epsilons": "1"}, "unknown entry 'most_epsilons'"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path, entries, why):
    with pytest.raises(DomainError, match=rf"vault\.toml: {why}"):
        configured(tmp_path, **entries)


def test_an_attribute_that_the_vault_does_not_hold_is_named(tmp_path):
    (tmp_path / "rows.csv").write_text("speed,city\n31,Rome\n")
    config = configured(tmp_path, attributes=["speed", "sped"])
    data, _ = config.read()
    with config.ledger() as ledger, pytest.raises(DomainError) as refusal:
        config._vault(data, ledger)
    assert str(refusal.value) == (
        f"{tmp_path / 'vault.toml'}: attributes must be among those of the schema, speed, city; "
        "got sped."
    )
