"""What a user guesses works: arguments, additions, lookups and what is printed."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest

import fedldp
from fedldp import HMTP, Plan, Report, Schema, datasets
from fedldp.errors import DomainError, FedLDPError, UnknownName, WireError
from fedldp.learn import objective

SCHEMA = Schema.of(age=(0, 100), city=["Oslo", "Rome", "Lima"])
PLAN = Plan(SCHEMA, 2.0, mechanism="three-outputs")
OTHER = Plan(SCHEMA, 3.0, mechanism="three-outputs")
ROWS = [{"age": 31, "city": "Rome"}, {"age": 71, "city": "Oslo"}, {"age": 5, "city": "Lima"}]


@pytest.fixture
def report():
    return PLAN.report(ROWS, fedldp.source(1))


# Mechanisms of a plan


@pytest.mark.parametrize("name", ["duchi", "pm", "hm-tp", "three-outputs"])
def test_a_plan_takes_a_mechanism_by_name_class_or_example(name):
    wanted = Plan(SCHEMA, 2.0, mechanism=name, k=2)
    made = fedldp.mechanism(name, 2.0)
    assert Plan(SCHEMA, 2.0, mechanism=made, k=2) == wanted
    assert Plan(SCHEMA, 2.0, mechanism=type(made), k=2) == wanted
    paper = Plan.paper(SCHEMA, 2.0, mechanism=name)
    assert Plan.paper(SCHEMA, 2.0, mechanism=made) == paper


def test_the_options_of_a_mechanism_count():
    few = Plan(SCHEMA, 2.0, mechanism=fedldp.Optimal(2.0, outputs=5), k=1)
    assert few == Plan(SCHEMA, 2.0, mechanism="optimal", outputs=5, k=1)
    assert few != Plan(SCHEMA, 2.0, mechanism="optimal", k=1)


def test_a_mechanism_with_another_epsilon_is_refused():
    """It could mean the epsilon of the plan, or that of one answer: nothing is guessed."""
    message = r"must be the plan's, 2.0; got HMTP\(epsilon=1.0\).* or pass mechanism=HMTP,"
    with pytest.raises(DomainError, match=message):
        Plan(SCHEMA, 2.0, mechanism=HMTP(1.0), k=2)
    with pytest.raises(DomainError, match=message):
        Plan.paper(SCHEMA, 2.0, mechanism=HMTP(1.0))


def test_a_mechanism_of_ones_own_needs_no_registry():
    class Bare(fedldp.mechanisms.Finite):
        name = "bare"
        letters = np.array([-1.0, 1.0])
        values = property(lambda self: fedldp.Duchi(self.epsilon).values)
        table = property(lambda self: fedldp.Duchi(self.epsilon).table)

        def __init__(self, epsilon):
            self.epsilon = epsilon

        def _draw(self, x, u, out, scratch):
            raise NotImplementedError

    @dataclass(frozen=True)
    class Mine(Bare):
        epsilon: float

    wanted = Plan(SCHEMA, 2.0, mechanism="duchi")
    assert Plan(SCHEMA, 2.0, mechanism=Mine) == Plan(SCHEMA, 2.0, mechanism=Mine(2.0)) == wanted
    assert Plan(SCHEMA, 2.0, mechanism=Bare) == wanted
    with pytest.raises(DomainError, match=r"must be a dataclass .* Pass its class"):
        Plan(SCHEMA, 2.0, mechanism=Bare(2.0))


def test_options_of_a_plan_are_keywords():
    for make in (Plan, Plan.paper):
        with pytest.raises(TypeError, match="positional"):
            make(SCHEMA, 2.0, "duchi")


# Reports and tallies


def test_a_report_is_read_from_its_bytes(report):
    again = Report.from_bytes(report.to_bytes(), PLAN)
    assert again == report
    assert type(again.records) is bytes
    with pytest.raises(WireError, match="of another plan"):
        Report.from_bytes(report.to_bytes(), OTHER)
    with pytest.raises(WireError, match="the check value differs"):
        Report.from_bytes(report.to_bytes()[:-1] + b"\xff", PLAN)


def test_a_report_is_counted_as_its_bytes_are(report):
    wanted = PLAN.parse(report.to_bytes())
    assert PLAN.parse(report) == wanted
    assert PLAN.tally() + report == wanted
    for kind in (bytes, bytearray, memoryview):
        assert PLAN.tally() + kind(report.to_bytes()) == wanted
    assert sum([report, report], PLAN.tally()) == wanted + wanted
    assert sum([wanted, wanted]) == wanted + wanted
    assert sum([wanted]) is wanted


def test_a_report_that_was_made_up_is_checked_like_bytes(report):
    short = Report(report.plan, report.width, report.vehicles + 8, report.records)
    with pytest.raises(WireError, match=r"11 records of \d+ bits have \d+ bytes; got"):
        PLAN.parse(short)
    spare = -report.vehicles * report.width % 8
    assert spare
    dirty = bytes([*report.records[:-1], report.records[-1] | 1])
    with pytest.raises(WireError, match="bits after the last record"):
        PLAN.parse(Report(report.plan, report.width, report.vehicles, dirty))
    with pytest.raises(WireError, match="of another plan"):
        OTHER.parse(report)
    with pytest.raises(WireError, match="of another plan"):
        OTHER.tally() + report
    with pytest.raises(WireError, match="a report must be a Report or bytes; got str"):
        PLAN.parse("text")


@pytest.mark.parametrize("other", [1, 0.0, None, "text", True, [b""]])
def test_a_tally_adds_nothing_else(other):
    with pytest.raises(TypeError):
        PLAN.tally() + other
    with pytest.raises(TypeError):
        other + PLAN.tally()


def test_a_plan_for_study_has_no_reports(report):
    study = Plan(SCHEMA, 2.0, mechanism="pm", study=True)
    with pytest.raises(DomainError, match="for study has no reports: simulate it"):
        study.tally() + report
    with pytest.raises(DomainError, match="for study has no reports: simulate it"):
        study.parse(report)


# Names


@pytest.mark.parametrize(
    ("look_up", "kind", "name", "known"),
    [
        (SCHEMA.__getitem__, "attribute", "city", "age"),
        (PLAN.tally().estimate().__getitem__, "attribute", "city", "age"),
        (SCHEMA.check(ROWS).__getitem__, "attribute", "city", "age"),
        (lambda name: fedldp.mechanism(name, 1.0), "mechanism", "hm-tp", "laplace"),
        (lambda name: Plan(SCHEMA, 1.0, mechanism=name), "mechanism", "hm-tp", "laplace"),
        (objective, "objective", "logistic", "squared"),
        (datasets.load, "data set", "flights", "flights"),
        (datasets.about, "data set", "flights", "flights"),
    ],
)
def test_an_unknown_name_is_one_error_everywhere(look_up, kind, name, known):
    message = rf"^there is no {kind} '{name}s' \(did you mean '{name}'\?\); choose from {known}"
    with pytest.raises(UnknownName, match=message) as caught:
        look_up(f"{name}s")
    for each in (FedLDPError, DomainError, ValueError, KeyError):
        assert isinstance(caught.value, each)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    for wrong in ("", "no such thing at all", None, 7):
        with pytest.raises(UnknownName, match=f"there is no {kind} {wrong!r}; choose from {known}"):
            look_up(wrong)


def test_a_long_list_of_names_is_cut():
    wide = Schema.of(**{f"a{i}": (0, 1) for i in range(50)})
    with pytest.raises(UnknownName, match=r"choose from a0, a1, .*, a19 and 30 more\.$"):
        wide["b"]
