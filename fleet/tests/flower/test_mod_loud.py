"""What fails on a node is logged there, is refused before it costs anything, or fails a dry run."""

import re
from fractions import Fraction

import flower_apps
import numpy as np
import pytest
from flower_apps import partition
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from ledgers import made
from nodes import DRIVES, SIGNS, Node, asked, content, refused

from fedldp import Plan, Schema
from fedldp.budget.ledger import Ledger
from fedldp.errors import BudgetError, DomainError
from fedldp.plan.strategies import Split
from fedldp_fleet.flower.messages import DELTA, PLAN, unpacked
from fedldp_fleet.flower.mod import LDPMod, tally

# A vector of four numbers; all of the budget is in the signs, so that a report shows them.
SIGN = Plan(Schema.vector(4, 1.0), 16.0, Split(mechanism="duchi"))
LENGTH = Plan(Schema.vector(4, length=1.0), epsilon=4.0, strategy="directions")
BEFORE = np.array([[10.0, 20.0], [30.0, 40.0]])
MOVE = np.array([1.0, -1.0, -1.0, 1.0])
LOGGER = "flwr.fedldp.node"


def question(arrays=None, **config):
    arrays = ArrayRecord([BEFORE[0], BEFORE[1]]) if arrays is None else arrays
    return content(arrays=arrays, config=ConfigRecord({"server-round": 1} | config))


def replies(*arrays, **records):
    return content(arrays=ArrayRecord(list(arrays)), **records)


def delta_node(folder, reply, plan=SIGN, **options):
    return Node(folder, reply, plan, delta=True, **options)


def signs(node, parts=None, count=9):
    """Return the sign that most reports have for each number."""
    parts = question() if parts is None else parts
    found = plan_tally(node, [asked(parts=with_round(parts, i)) for i in range(count)])
    pairs = found.counts[0].reshape(4, 2)
    return np.sign(pairs[:, 1] - pairs[:, 0]).tolist()


def plan_tally(node, messages):
    return tally(SIGN, [node.ask(each) for each in messages])


def with_round(parts, number):
    config = ConfigRecord({"server-round": number})
    return RecordDict({**parts, "config": config})


def logged(caplog, level):
    return [
        each.getMessage()
        for each in caplog.records
        if (each.name, each.levelname) == (LOGGER, level)
    ]


# How far the app has moved what it received


def test_the_difference_is_reported(tmp_path, caplog):
    node = delta_node(tmp_path, replies(BEFORE[0] + MOVE[:2], BEFORE[1] + MOVE[2:]))
    assert signs(node) == MOVE.tolist()
    assert logged(caplog, "ERROR") == logged(caplog, "WARNING") == []


def test_arrays_are_compared_by_name(tmp_path):
    before = ArrayRecord({"a": Array(BEFORE[0]), "b": Array(BEFORE[1])})
    after = ArrayRecord({"b": Array(BEFORE[1] + MOVE[2:]), "a": Array(BEFORE[0] + MOVE[:2])})
    assert signs(delta_node(tmp_path, content(arrays=after)), question(before)) == MOVE.tolist()


def test_an_app_that_changes_what_it_received_is_compared_with_what_was_sent(tmp_path):
    def change(message, _):
        arrays = message.content["arrays"]
        for number, name in enumerate(list(arrays)):
            arrays[name] = Array(BEFORE[number] + MOVE[2 * number : 2 * number + 2])
        return content(model=arrays)

    node = delta_node(tmp_path, change)
    assert signs(node, count=1) == MOVE.tolist()


def test_an_update_that_is_too_long_is_clipped_to_the_length(tmp_path, caplog):
    node = delta_node(tmp_path, replies(BEFORE[0] + 9, BEFORE[1] + 9), LENGTH)
    assert tally(LENGTH, [node.ask(asked(parts=question()))]).reports == 1
    assert logged(caplog, "INFO") == [
        "LDPMod: the update has a length of 18; it is shortened to 1, 0.056 of it."
    ]


# A reply, what the log says about it, and what a dry run says if that is something else.
NO_FIT = {
    "another size": (
        replies(np.ones(5)),
        r"the arrays of the question, 2 arrays \(0 \(2,\), 1 \(2,\)\); got 1 array \(0 \(5,\)\)",
    ),
    "another shape": (replies(np.ones((2, 1)), np.ones(2)), r"got 2 arrays \(0 \(2, 1\)"),
    "a second record": (
        replies(*BEFORE, more=ArrayRecord([np.ones(1)])),
        "a reply must have exactly one record of arrays; got arrays, more",
    ),
    "a blob": (content(blob=ConfigRecord({"model": b"1234"})), "of arrays; got none"),
    "an error": (
        lambda message, _: Message(Error(code=1, reason="17 rows"), reply_to=message),
        "the app failed with ValueError",
        "must reply with content; got the error .*17 rows",
    ),
    "an exception": (lambda *_: {}["data"], "the app failed with KeyError: 'data'", "data"),
    "no numbers": (replies(BEFORE[0] * 1j, BEFORE[1]), "must hold numbers; got the type complex"),
}


@pytest.mark.parametrize("case", NO_FIT.values(), ids=NO_FIT)
def test_a_reply_that_does_not_fit_is_logged_and_the_default_is_paid_for(tmp_path, caplog, case):
    node = delta_node(tmp_path, case[0])
    assert plan_tally(node, [asked(parts=question())]).reports == 1
    (line,) = logged(caplog, "ERROR")
    assert re.match(rf"LDPMod reports the public default, at the usual cost: .*{case[1]}", line)
    assert node.spent() == 16


BY_NAME = {
    "another number of values": (
        content(arrays=ArrayRecord([np.ones(5)])),
        "must have 4 numbers in its arrays, or x by name; got 5 in arrays, and by name nothing.",
    ),
    "another name": (
        content(metrics=MetricRecord({"X": [1.0] * 4})),
        "got 0 in arrays, and by name X.",
    ),
}


@pytest.mark.parametrize(("reply", "why"), BY_NAME.values(), ids=BY_NAME)
def test_so_is_a_wrong_number_of_values_without_delta(tmp_path, caplog, reply, why):
    Node(tmp_path, reply, SIGN).ask()
    (line,) = logged(caplog, "ERROR")
    assert line.endswith(why)


def test_values_that_are_missing_are_logged(tmp_path, caplog):
    after = [BEFORE[0] + [0.5, np.nan], BEFORE[1]]
    delta_node(tmp_path, replies(*after)).ask(asked(parts=question()))
    (line,) = logged(caplog, "ERROR")
    assert "x: 1 of 4 (25%) missing, replaced by 0" in line


def test_two_mods_pay_once_and_say_so(tmp_path, caplog):
    node = delta_node(tmp_path, replies(*BEFORE))
    node.app = ClientApp(mods=[node.mod, node.mod])
    node.app.train()(node.handle)
    assert tally(SIGN, [node.ask(asked(parts=question()))]).reports == 1
    assert len(logged(caplog, "ERROR")) == 1
    assert node.spent() == 16


def test_a_numpy_client_that_is_asked_by_a_new_strategy_is_logged(tmp_path, caplog):
    app = flower_apps.Numpy().client(tmp_path)
    parts = content(arrays=flower_apps.Numpy().arrays(), config=ConfigRecord({"server-round": 1}))
    app(asked(parts=parts), Context(1, 7, {"partition-id": 1}, RecordDict(), {}))
    (line,) = logged(caplog, "ERROR")
    assert "the app failed with KeyError: 'fitins.parameters'" in line


# What is refused before it costs anything


QUESTIONS = {
    "no arrays": (content(config=ConfigRecord({"a": 1})), "exactly one record of arrays; got none"),
    "two records": (
        content(a=ArrayRecord([BEFORE]), b=ArrayRecord([BEFORE])),
        "exactly one record of arrays; got a, b",
    ),
    "another size": (question(ArrayRecord([np.ones(5)])), "for 4 numbers; the arrays of the quest"),
    "another plan": (question(**{PLAN: "00" * 32}), "counts reports of another plan"),
    "no moves": (question(**{DELTA: False}), "give LDPMod delta=False"),
}


@pytest.mark.parametrize(("parts", "why"), QUESTIONS.values(), ids=QUESTIONS)
def test_a_question_that_does_not_fit_costs_nothing(tmp_path, caplog, parts, why):
    node = delta_node(tmp_path, replies(*BEFORE))
    assert not any(unpacked(node.ask(asked(parts=parts)).content))
    (line,) = logged(caplog, "WARNING")
    assert line.startswith("LDPMod refused a question: DomainError: ")
    assert why in line
    assert (node.calls, node.spent()) == (0, 0)
    with pytest.raises(DomainError, match=why):
        node.mod.dry_run(node.app, parts)


def test_a_mod_without_delta_does_not_answer_a_server_that_counts_moves(tmp_path, caplog):
    node = Node(tmp_path, replies(*BEFORE), SIGN)
    assert not any(unpacked(node.ask(asked(parts=question(**{DELTA: True}))).content))
    assert "give LDPMod delta=True" in logged(caplog, "WARNING")[0]
    assert (node.calls, node.spent()) == (0, 0)


def test_the_server_may_name_the_plan_and_what_it_counts(tmp_path):
    node = delta_node(tmp_path, replies(*BEFORE))
    named = question(**{PLAN: SIGN.fingerprint, DELTA: True})
    assert plan_tally(node, [asked(parts=named)]).reports == 1


def test_a_node_with_a_partition_is_a_vehicle_of_its_own(tmp_path):
    node = Node(tmp_path, cap=16)
    for number in (3, 4):
        assert not refused(node.ask(**{"partition-id": number}))
        assert refused(node.ask(asked({"round": 2}), **{"partition-id": number}))
    with Ledger(node.ledger, 16) as ledger:
        assert ledger.totals() == {"3": Fraction(16), "4": Fraction(16)}


def test_a_node_that_gets_a_partition_or_loses_it_is_no_new_vehicle(tmp_path, caplog):
    for folder, first, second in (("a", {}, {"partition-id": 3}), ("b", {"partition-id": 3}, {})):
        (tmp_path / folder).mkdir()
        node = Node(tmp_path / folder)
        assert not refused(node.ask(**first))
        caplog.clear()
        assert refused(node.ask(asked({"round": 2}), **second))
        (line,) = logged(caplog, "WARNING")
        assert "whose partition-id was given or taken away since. Pass vehicle_id" in line
        with pytest.raises(DomainError, match="Pass vehicle_id"):
            node.mod.dry_run(node.app, DRIVES, node_config=second)
        assert node.calls == 1
        given = Node(tmp_path / folder, vehicle_id="vehicle")
        assert not refused(given.ask(asked({"round": 3}), **second))


@pytest.mark.parametrize("found", ["", None, 7])
def test_an_id_must_be_a_text(tmp_path, caplog, found):
    node = Node(tmp_path, vehicle_id=lambda _: found)
    assert refused(node.ask())
    assert "vehicle_id must be a text" in logged(caplog, "WARNING")[0]


def test_refusals_and_repeats_are_logged(tmp_path, caplog):
    node = Node(tmp_path, cap=16)
    node.ask()
    assert logged(caplog, "WARNING") == []
    again = Node(tmp_path, content(metrics=MetricRecord({"speed": 0.0})), cap=16)  # a new app
    assert not refused(again.ask())
    assert again.calls == 0
    (line,) = logged(caplog, "WARNING")
    assert "'vehicle' has answered this question before" in line
    assert "a change of the app has no effect" in line
    assert refused(again.ask(asked({"round": 2})))
    assert "BudgetError: 'vehicle' has spent 16 of its cap of 16" in logged(caplog, "WARNING")[1]


# A dry run


def dry(node, parts=None, **options):
    return node.mod.dry_run(node.app, question() if parts is None else parts, **options)


def test_a_dry_run_pays_nothing_and_says_what_is_clipped(tmp_path):
    node = delta_node(tmp_path, replies(BEFORE[0] + 2, BEFORE[1]))
    assert dry(node)["x"].clipped == 2
    assert (node.calls, node.spent()) == (1, 0)
    node.ask(asked(parts=question()))
    assert node.spent() == 16
    dry(node)  # the same question: the app is called all the same
    assert (node.calls, node.spent()) == (3, 16)


@pytest.mark.parametrize("case", NO_FIT.values(), ids=NO_FIT)
def test_a_dry_run_raises_what_would_be_logged(tmp_path, case):
    node = delta_node(tmp_path, case[0])
    with pytest.raises((DomainError, KeyError), match=case[-1]):
        dry(node)
    assert node.spent() == 0


def test_a_dry_run_raises_for_missing_values(tmp_path):
    node = delta_node(tmp_path, replies(BEFORE[0] * np.nan, BEFORE[1]))
    with pytest.raises(
        DomainError, match=r"lacks values of the plan: (?s:.*)2 of 4 \(50%\) missing"
    ):
        dry(node)


def test_lengths_of_updates_are_for_the_owner(tmp_path, caplog):
    def train(_, context):
        return replies(BEFORE[0] + [3.0 * context.node_config["partition-id"], 0.0], BEFORE[1])

    node = delta_node(tmp_path, train, LENGTH)
    for number in range(2):
        dry(node, node_config={"partition-id": number})
    assert "has a length of 0; up to 1 nothing is clipped" in logged(caplog, "INFO")[0]
    assert "has a length of 3; it is shortened to 1, 0.33 of it" in logged(caplog, "INFO")[1]
    assert node.spent() == 0
    bounded = delta_node(tmp_path, train)
    dry(bounded, node_config={"partition-id": 1})
    assert "length of 3; the public bounds clip 25% of x." in logged(caplog, "INFO")[-1]


def test_a_dry_run_says_what_is_not_trained(tmp_path, caplog):
    named = {"w": Array(np.zeros(4)), "running_mean": Array(np.ones(2)), "n": Array(np.array(7))}
    node = delta_node(tmp_path, content(arrays=ArrayRecord(named)), LENGTH)
    dry(node, question(ArrayRecord(named)))
    assert logged(caplog, "INFO")[0] == (
        "LDPMod: running_mean, n are not trained, and not reported."
    )


def test_a_dry_run_finds_a_mod_outside(tmp_path):
    def nosy(message, context, call_next):
        reply = call_next(message, context)
        reply.content["more"] = MetricRecord({"loss": 0.3})
        return reply

    node = delta_node(tmp_path, replies(*BEFORE))
    node.app = ClientApp(mods=[nosy, node.mod])
    node.app.train()(node.handle)
    with pytest.raises(DomainError, match="put LDPMod first in the list of mods"):
        dry(node)


def test_a_dry_run_finds_that_there_is_no_mod(tmp_path):
    node = delta_node(tmp_path, replies(*BEFORE))
    node.app = ClientApp()
    node.app.train()(node.handle)
    with pytest.raises(DomainError, match=r"must have this mod: ClientApp\(mods=\[mod\]\)"):
        dry(node)


def test_a_dry_run_knows_the_node_and_its_budget(tmp_path):
    node = delta_node(tmp_path, replies(*BEFORE), cap=16, vehicle_id=partition)
    with pytest.raises(KeyError, match="partition-id"):
        dry(node)
    node.ask(asked(parts=question()), **{"partition-id": 3})
    with pytest.raises(BudgetError, match="'3' has spent 16 of its cap of 16"):
        dry(node, node_config={"partition-id": 3})
    dry(node, node_config={"partition-id": 4})
    with Ledger(node.ledger, 16) as ledger:
        assert ledger.totals() == {"3": Fraction(16)}


def test_a_dry_run_is_of_the_type_that_is_answered(tmp_path):
    mod = LDPMod(SIGNS, ledger=made(tmp_path / "ledger.db"), cap=16, answers="query")
    app = ClientApp(mods=[mod])

    @app.query()
    def query(message, context):
        assert context.run_config == {"a": 1}
        return Message(DRIVES, reply_to=message)

    assert mod.dry_run(app, content(), run_config={"a": 1}).changed == 0
