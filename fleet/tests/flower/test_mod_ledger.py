"""The mod pays for what leaves, once for each question, and refuses what it cannot pay."""

import copy
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import nodes
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from nodes import (
    DIFFERENT,
    DRIVES,
    FAST,
    SIGNS,
    SPEED,
    Node,
    asked,
    code,
    content,
    refused,
)

from fedldp import Plan, Schema
from fedldp.budget.ledger import Ledger
from fedldp.errors import DomainError, PrivacyError, WireError
from fedldp.plan.strategies import Sample
from fedldp.schema.attributes import Number
from fedldp_fleet.flower.messages import unpacked
from fedldp_fleet.flower.mod import LDPMod, tally

# The ledger


def test_the_same_question_gets_the_same_bytes(tmp_path):
    node = Node(tmp_path, plan=DIFFERENT)
    first = unpacked(node.ask().content)
    other = {"kind": "train", "node": 8, "run": 2, "number": 3}
    assert unpacked(node.ask(asked(**other)).content) == first
    again = Node(tmp_path, plan=DIFFERENT)
    assert unpacked(again.ask(asked()).content) == first
    assert (node.calls, again.calls) == (1, 0)
    assert node.spent() == Fraction(1, 10)


def test_a_job_is_answered_once_in_however_many_runs(tmp_path):
    """Flower's run id changes when a run is resumed; the name of the job does not."""
    node = Node(tmp_path, plan=DIFFERENT, job="spring")
    first = unpacked(node.ask(asked({"round": 1}, run=1)).content)
    for run, number in ((1, 2), (2, 2), (2, 3)):
        assert not any(unpacked(node.ask(asked({"round": number}, run=run)).content))
    again = Node(tmp_path, plan=DIFFERENT, job="spring")
    assert unpacked(again.ask(asked({"round": 1}, run=3)).content) == first
    assert (node.calls, again.calls, node.spent()) == (1, 0, Fraction(1, 10))
    other = Node(tmp_path, plan=DIFFERENT, job="autumn")
    assert any(unpacked(other.ask(asked({"round": 2}, run=1)).content))
    with Ledger(node.ledger, node.cap) as ledger:
        assert [(line.run, line.job) for line in ledger.history()] == [
            ("1", "spring"),
            ("1", "autumn"),
        ]


CONSTANT = Plan(Schema((Number("x", -1, 1, size=64, constant=True),)), 0.5, strategy="cube")


@pytest.mark.parametrize("jobs", [[None], ["spring", "summer"]], ids=["rounds", "jobs"])
def test_what_never_changes_is_reported_and_paid_for_once(tmp_path, caplog, jobs):
    reply = content(metrics=MetricRecord({"x": [0.5] * 64}))
    nodes = [Node(tmp_path, reply, CONSTANT, cap=4, job=job) for job in jobs * (8 // len(jobs))]
    numbered = enumerate(nodes[: len(jobs)] if jobs[0] else nodes)
    found = [unpacked(node.ask(asked({"round": number})).content) for number, node in numbered]
    assert len(set(found)) == 1
    assert any(found[0])
    assert (sum(node.calls for node in nodes), nodes[0].spent()) == (1, Fraction(1, 2))
    repeats = [line for line in caplog.messages if "are all declared constant" in line]
    assert len(repeats) == len(found) - 1
    full = Node(tmp_path, reply, CONSTANT, cap=0.5)
    assert full.mod.dry_run(full.app, content()).changed == 0  # it can afford to repeat itself
    with Ledger(full.ledger, 4) as ledger:
        assert len(ledger.history()) == len(found)  # and a dry run leaves no trace


def test_without_a_job_only_the_cap_limits_it(tmp_path):
    node = Node(tmp_path, cap=48)
    found = [refused(node.ask(asked({"round": number}))) for number in range(1, 6)]
    assert found == [False, False, False, True, True]
    with Ledger(node.ledger, node.cap) as ledger:
        assert {line.job for line in ledger.history()} == {""}


def test_the_owner_says_how_often_a_job_is_answered(tmp_path):
    node = Node(tmp_path, job="spring", answers_per_job=2)
    found = [refused(node.ask(asked({"round": number}))) for number in range(1, 4)]
    assert found == [False, False, True]
    nodes = [Node(tmp_path, job="autumn", vehicle_id=key) for key in ("car 1", "car 2")]
    assert [refused(node.ask()) for node in nodes] == [False, False]


@pytest.mark.parametrize(
    "options", [{"job": ""}, {"job": 7}, {"answers_per_job": 0}, {"answers_per_job": "2"}]
)
def test_invalid_limits_are_refused_at_once(tmp_path, options):
    with pytest.raises(DomainError, match=f"^{next(iter(options))} must"):
        Node(tmp_path, **options)


def test_the_order_of_settings_makes_no_other_question(tmp_path):
    node = Node(tmp_path)
    node.ask(asked({"a": 1, "b": 2}))
    node.ask(asked({"b": 2, "a": 1}))
    assert node.calls == 1


def array(data=b"12", dtype="uint8", shape=(2,), stype="raw"):
    return Array(dtype, shape, stype, data)


def question(weights, name="arrays", **config):
    return RecordDict({name: ArrayRecord(weights), "config": ConfigRecord({"round": 1} | config)})


WEIGHTS = {"a": array(), "b": array(b"34")}
OTHERS = {
    "a setting": question(WEIGHTS, rate=0.1),
    "a kind of number": question(WEIGHTS, round=1.0),
    "a text": question(WEIGHTS, round="1"),
    "a weight": question(WEIGHTS | {"b": array(b"35")}),
    "a shape": question(WEIGHTS | {"b": array(b"34", shape=(2, 1))}),
    "a type": question(WEIGHTS | {"b": array(b"34", dtype="int8")}),
    "a way to write": question(WEIGHTS | {"b": array(b"34", stype="other")}),
    "an array's name": question({"a": WEIGHTS["a"], "c": WEIGHTS["b"]}),
    "the order": question({"b": WEIGHTS["b"], "a": WEIGHTS["a"]}),
    "a record's name": question(WEIGHTS, name="weights"),
    "a record less": content(config=ConfigRecord({"round": 1})),
    "a record's kind": content(
        arrays=question(WEIGHTS)["arrays"], config=MetricRecord({"round": 1})
    ),
}


@pytest.mark.parametrize("parts", OTHERS.values(), ids=OTHERS)
def test_another_question_is_paid_for(tmp_path, parts):
    node = Node(tmp_path)
    for _ in range(2):
        node.ask(asked(parts=question(WEIGHTS)))
        assert not refused(node.ask(asked(parts=copy.deepcopy(parts))))
    assert (node.calls, node.spent()) == (2, 32)


def test_another_plan_or_type_is_another_question(tmp_path):
    Node(tmp_path).ask()
    other = Node(tmp_path, plan=Plan(SPEED, 10.0, Sample(mechanism="duchi")))
    other.ask()
    assert (other.calls, other.spent()) == (1, 26)
    query = Node(tmp_path, answers="query")
    query.ask(asked(kind="query"))
    assert (query.calls, query.spent()) == (1, 42)


def test_what_the_app_does_to_the_message_does_not_change_the_question(tmp_path):
    def spoil(message, _):
        message.content["config"]["round"] = 99
        return content()

    node = Node(tmp_path, spoil)
    node.ask(asked({"round": 1}))
    node.ask(asked({"round": 1}))
    assert node.calls == 1


def test_a_spent_budget_is_a_refusal_and_the_app_is_not_called(tmp_path):
    node = Node(tmp_path, cap=40)
    assert [refused(node.ask(asked({"round": i}))) for i in range(4)] == [False, False, True, True]
    assert (node.calls, node.spent()) == (2, 32)
    assert not refused(node.ask(asked({"round": 1})))  # paid for long ago
    assert node.calls == 2


def test_other_messages_are_refused_and_the_app_is_not_called(tmp_path):
    node = Node(tmp_path)
    for kind in ("evaluate", "query"):
        assert refused(node.ask(asked(kind=kind)))
    assert (node.calls, node.spent()) == (0, 0)


def test_one_ledger_may_serve_many_nodes(tmp_path):
    node = Node(
        tmp_path, cap=16, vehicle_id=lambda context: f"car {context.node_config['partition-id']}"
    )
    for number in (1, 2):
        assert not refused(node.ask(**{"partition-id": number}))
        assert refused(node.ask(asked({"round": 2}), **{"partition-id": number}))
        assert node.spent(f"car {number}") == 16
    assert refused(node.ask())  # of nobody
    assert node.calls == 2


def test_the_app_is_not_called_in_the_midst_of_a_transaction(tmp_path):
    def nested(*_):
        with Ledger(node.ledger, 1000) as ledger:
            ledger.release("another", 1, "question", lambda: b"")
        return DRIVES

    node = Node(tmp_path, nested)
    assert code(node.ask()) == FAST


def test_threads_that_ask_the_same_get_the_same(tmp_path):
    node = Node(tmp_path, plan=DIFFERENT)
    with ThreadPoolExecutor(8) as pool:
        found = {unpacked(each.content) for each in pool.map(lambda _: node.ask(), range(16))}
    assert len(found) == 1
    assert node.spent() == Fraction(1, 10)


def test_a_mod_travels_to_other_processes(tmp_path):
    node = Node(tmp_path, cap=16)
    first = node.ask()
    node.app = ClientApp(mods=[pickle.loads(pickle.dumps(node.mod))])
    node.app.train()(node.handle)
    assert node.ask().content == first.content
    assert refused(node.ask(asked({"round": 2})))


def test_a_ledger_that_is_damaged_later_is_a_refusal(tmp_path):
    node = Node(tmp_path)
    (tmp_path / "ledger.db").write_bytes(b"no ledger")
    assert refused(node.ask())
    assert node.calls == 0


def test_a_ledger_that_is_damaged_or_missing_is_refused_at_once(tmp_path):
    path = tmp_path / "ledger.db"
    with pytest.raises(WireError, match="ledger init"):
        LDPMod(SIGNS, ledger=path, cap=16)
    assert not path.exists()
    path.write_bytes(b"no ledger")
    with pytest.raises(WireError, match="ledger"):
        LDPMod(SIGNS, ledger=path, cap=16)


def test_a_ledger_that_is_deleted_later_is_not_made_anew(tmp_path):
    node = Node(tmp_path, cap=16)
    assert not refused(node.ask())
    for path in tmp_path.glob("ledger.db*"):
        path.unlink()
    assert refused(node.ask(asked({"round": 2})))
    assert (node.calls, node.ledger.exists()) == (1, False)


@pytest.mark.parametrize("vehicle_id", ["", 7, b"car"])
def test_an_id_that_is_not_a_text_is_refused_at_once(tmp_path, vehicle_id):
    with pytest.raises(DomainError, match="vehicle_id must be a text"):
        Node(tmp_path, vehicle_id=vehicle_id)


def test_a_full_disk_is_a_refusal(tmp_path):
    command = [sys.executable, nodes.__file__, str(tmp_path)]
    here = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=here)
    assert run.stdout == "[False, True, False] 3 32\n", run.stderr


# The plan


def test_a_plan_may_be_a_file(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(SIGNS.to_json())
    reply = Node(tmp_path, plan=path).ask()
    assert code(reply) == FAST
    assert tally(str(path), [reply]) == tally(SIGNS, [reply])


def test_a_plan_that_costs_more_than_the_cap_is_refused_at_once(tmp_path):
    with pytest.raises(PrivacyError, match=r"it costs 16\.0, and the cap is 15"):
        LDPMod(SIGNS, ledger=tmp_path / "ledger.db", cap=15)
    assert not (tmp_path / "ledger.db").exists()


def test_a_plan_that_leaks_is_refused_at_once(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(SIGNS.to_json().replace('"epsilon":"16.0"', '"epsilon":"15.0"'))
    with pytest.raises(PrivacyError):
        LDPMod(path, ledger=tmp_path / "ledger.db", cap=100)
    path.write_text("{}")
    with pytest.raises(WireError):
        LDPMod(path, ledger=tmp_path / "ledger.db", cap=100)


def test_a_plan_for_study_is_refused_at_once(tmp_path):
    with pytest.raises(DomainError, match="study"):
        LDPMod(Plan(SPEED, 1.0, Sample(study=True)), ledger=tmp_path / "ledger.db", cap=100)


@pytest.mark.parametrize("cap", [0, -1, "none", float("nan"), None])
def test_a_cap_is_a_positive_number(tmp_path, cap):
    with pytest.raises(DomainError, match="cap must be a positive number"):
        LDPMod(SIGNS, ledger=tmp_path / "ledger.db", cap=cap)
