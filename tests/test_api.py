"""What a user guesses works: arguments, additions, lookups and what is printed."""

import pickle
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from xml.etree import ElementTree

import numpy as np
import pytest
from spellings import flat_plan

import fedldp
from fedldp import Plan, Report, Schema, datasets
from fedldp.errors import DomainError, FedLDPError, UnknownName, WireError
from fedldp.learn import (
    Adam,
    Arrays,
    Linear,
    Model,
    Procedure,
    Recipe,
    Training,
    objective,
)
from fedldp.mechanisms import HMTP, PM, Duchi, Finite, Optimal
from fedldp.plan.parts import Matrix
from fedldp.plan.strategies import Sample, Split

SCHEMA = Schema.of(age=(0, 100), city=["Oslo", "Rome", "Lima"])
PLAN = Plan(SCHEMA, 2.0, Sample(mechanism="three-outputs"))
OTHER = Plan(SCHEMA, 3.0, Sample(mechanism="three-outputs"))
ROWS = [{"age": 31, "city": "Rome"}, {"age": 71, "city": "Oslo"}, {"age": 5, "city": "Lima"}]


@pytest.fixture
def report():
    return PLAN.report(ROWS, fedldp.source(1))


# Mechanisms of a plan


@pytest.mark.parametrize("name", ["duchi", "pm", "hm-tp", "three-outputs"])
def test_a_plan_takes_a_mechanism_by_name_class_or_example(name):
    wanted = Plan(SCHEMA, 2.0, Sample(k=2, mechanism=name))
    made = fedldp.mechanism(name, 2.0)
    assert Plan(SCHEMA, 2.0, Sample(k=2, mechanism=made)) == wanted
    assert Plan(SCHEMA, 2.0, Sample(k=2, mechanism=type(made))) == wanted
    paper = Plan.paper(SCHEMA, 2.0, mechanism=name)
    assert Plan.paper(SCHEMA, 2.0, mechanism=made) == paper


def test_the_options_of_a_mechanism_count():
    few = Plan(SCHEMA, 2.0, Sample(k=1, mechanism=Optimal(2.0, outputs=5)))
    assert few == Plan(SCHEMA, 2.0, Sample(k=1, mechanism="optimal", outputs=5))
    assert few != Plan(SCHEMA, 2.0, Sample(k=1, mechanism="optimal"))


def test_a_mechanism_with_another_epsilon_is_refused():
    """It could mean the epsilon of the plan, or that of one answer: nothing is guessed."""
    message = r"must be the plan's, 2.0; got HMTP\(epsilon=1.0\).* pass the class, mechanism=HMTP"
    with pytest.raises(DomainError, match=message):
        Plan(SCHEMA, 2.0, Sample(k=2, mechanism=HMTP(1.0)))
    with pytest.raises(DomainError, match=message):
        Plan.paper(SCHEMA, 2.0, mechanism=HMTP(1.0))


def test_a_mechanism_of_ones_own_needs_no_registry():
    class Bare(Finite):
        name = "bare"
        letters = np.array([-1.0, 1.0])
        values = property(lambda self: Duchi(self.epsilon).values)
        table = property(lambda self: Duchi(self.epsilon).table)

        def __init__(self, epsilon):
            self.epsilon = epsilon

    @dataclass(frozen=True)
    class Mine(Bare):
        epsilon: float

    wanted = Plan(SCHEMA, 2.0, Sample(mechanism="duchi"))
    assert (
        Plan(SCHEMA, 2.0, Sample(mechanism=Mine))
        == Plan(SCHEMA, 2.0, Sample(mechanism=Mine(2.0)))
        == wanted
    )
    assert Plan(SCHEMA, 2.0, Sample(mechanism=Bare)) == wanted
    with pytest.raises(DomainError, match=r"must be a dataclass .* Pass its class"):
        Plan(SCHEMA, 2.0, Sample(mechanism=Bare(2.0)))


def test_options_of_a_plan_are_keywords():
    with pytest.raises(TypeError, match="positional"):
        Plan(SCHEMA, 2.0, "sample", True)
    with pytest.raises(TypeError, match="positional"):
        Plan.paper(SCHEMA, 2.0, "duchi")
    with pytest.raises(DomainError, match=r"strategy must be one of .*; got 'duchi'"):
        Plan(SCHEMA, 2.0, "duchi")


# Reports and tallies


def test_a_report_is_read_from_its_bytes(report):
    again = Report.from_bytes(report.to_bytes(), PLAN)
    assert again == report
    assert type(again.records) is bytes
    with pytest.raises(WireError, match="answers another plan"):
        Report.from_bytes(report.to_bytes(), OTHER)
    with pytest.raises(WireError, match="the checksum differs"):
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
    with pytest.raises(WireError, match="answers another plan"):
        OTHER.parse(report)
    with pytest.raises(WireError, match="answers another plan"):
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
    study = Plan(SCHEMA, 2.0, Sample(mechanism="pm", study=True))
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
        (lambda name: Plan(SCHEMA, 1.0, Sample(mechanism=name)), "mechanism", "hm-tp", "laplace"),
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
    wide = Schema.of(**{f"a{i}": (0, 1) for i in range(480)})
    with pytest.raises(UnknownName, match=r"choose from a0, a1, .* and 418 more\.$"):
        wide["b"]


def test_membership_and_iteration_agree():
    estimate = PLAN.tally().estimate()
    for mapping in (SCHEMA, estimate):
        assert isinstance(mapping, Mapping)
        assert list(mapping) == ["age", "city"]
        assert all(name in mapping for name in mapping)
        assert [*mapping.items()] == [(name, mapping[name]) for name in mapping]
        assert mapping.get("town") is None
        assert "town" not in mapping
        assert SCHEMA["age"] not in mapping
        assert len(mapping) == 2


# Equality


def test_estimates_are_equal_if_all_their_numbers_are(report):
    tally = PLAN.parse(report)
    estimate = tally.estimate()
    assert estimate == tally.estimate()
    assert estimate["age"] == tally.estimate()["age"]
    assert PLAN.tally().estimate() == PLAN.tally().estimate()  # where nothing is known
    for other in (
        (tally + report).estimate(),
        tally.estimate(confidence=0.9),
        tally.estimate(of="fleet"),
        tally.estimate("horvitz-thompson"),
        PLAN.tally().estimate(),
        dict(estimate),
        None,
    ):
        assert estimate != other
    assert estimate["age"] != estimate["city"]
    assert estimate["city"] != replace(estimate["city"], categories=("a", "b", "c"))
    for each in (estimate, estimate["age"], estimate["city"]):
        with pytest.raises(TypeError, match="unhashable"):
            hash(each)


def test_equal_estimates_may_name_the_attributes_in_any_order(report):
    estimate = PLAN.parse(report).estimate()
    turned = replace(estimate, attributes=dict(reversed(estimate.attributes.items())))
    assert turned == estimate


# What is printed

WIDE = Schema.of(
    **{f"a number with a long name {i}": (0, 1) for i in range(300)},
    **{f"<b>{i}</b>": [f"<script>{j}" for j in range(60)] for i in range(3)},
)
NUMBERS = Schema.vector(300, bound=1.0)
PLAIN = {"table", "caption", "thead", "tbody", "tr", "th", "td"}


def training():
    x = np.c_[fedldp.source(1).uniform(2000) * 2 - 1, np.ones(2000)]
    task = Linear(objective("logistic"), Arrays(x, np.where(x[:, 0] > 0.2, 1.0, -1.0)))
    plan = Plan(Schema.vector(2, bound=1.0), 2.0, Sample(mechanism="duchi"))
    return Training(task, Procedure(plan, Recipe(Adam(0.2)), group=500), fedldp.source(2))


def shown():
    """Yield everything public that has numbers in it, small and large."""
    found = training()
    yield from (found, found.advance(), found)
    yield Model("squared", WIDE, fedldp.Number("<i>", 0, 1), [0.5] * (300 + 3 * 59 + 1))
    for mechanism in (Duchi(1.0), PM(8.0)):
        yield mechanism.channel()
    for schema in (SCHEMA, WIDE, NUMBERS):
        yield schema
        for options in ({}, {"strategy": "cube"}, {"strategy": "split", "study": True}):
            if schema is WIDE and options.get("strategy") == "split":
                continue
            plan = flat_plan(schema, 2.0, mechanism="pm", **options)
            yield plan
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", fedldp.errors.DataWarning)
                nothing = Matrix(np.full((40, plan.schema.dimensions), np.nan))
                tally = plan.simulate_batches((nothing,), fedldp.source(1))
                if not plan.study:
                    yield plan.report([{}] * 40, fedldp.source(1))
            yield tally
            yield tally.estimate()
            yield from [*tally.estimate().values()][:: len(schema) - 1 or 1]


SHOWN = list(shown())


@pytest.mark.parametrize("each", SHOWN, ids=lambda each: type(each).__name__)
def test_a_repr_fits_on_two_lines(each):
    text = repr(each)
    assert type(each).__name__ in text
    assert "\n" not in text
    assert len(text) <= 200


@pytest.mark.parametrize(
    "each", [each for each in SHOWN if hasattr(each, "_repr_html_")], ids=lambda e: type(e).__name__
)
def test_a_table_is_well_formed_and_escaped(each):
    text = each._repr_html_()
    table = ElementTree.fromstring(text)  # every tag is closed, every text escaped
    assert {node.tag for node in table.iter()} <= PLAIN
    width = len(table.findall("thead/tr/th"))
    rows = table.findall("tbody/tr")
    assert 1 <= len(rows) <= 51
    for row in rows:
        assert sum(int(cell.get("colspan", 1)) for cell in row) == width
    assert {key for node in table.iter() for key in node.attrib} <= {"style", "colspan"}
    assert len(text) < 20_000


def test_what_has_a_table():
    wanted = {"Channel", "Estimate", "Model", "Plan", "Round", "Tally", "Training"}
    assert {type(each).__name__ for each in SHOWN if hasattr(each, "_repr_html_")} == wanted


def cells(each):
    table = ElementTree.fromstring(each._repr_html_())
    return [[cell.text for cell in row] for row in table.findall("tbody/tr")]


def test_tables_show_what_matters(report):
    plan = Plan(SCHEMA, 2.0, Sample(k=2, mechanism="duchi"))
    assert cells(plan) == [
        ["age", "0 to 100", "Channel", "1", "100%"],
        ["city", "Oslo, Rome, Lima", "RandomizedResponse", "1", "100%"],
    ]
    cube = Plan(SCHEMA, 2.0, strategy="cube")
    assert [row[2] for row in cells(cube)] == ["CubeCoder", "UnaryEncoding"]
    tally = PLAN.parse(report)
    (_, _, ages), (_, _, cities) = cells(tally)
    assert int(ages) + int(cities) == 3
    first = cells(tally.estimate())[0]
    assert first[0] == "age"
    assert float(first[2]) == pytest.approx(tally.estimate()["age"].mean, rel=1e-3)
    channel = Duchi(1.0).channel()
    assert cells(channel)[0] == ["0", "-2.164", "0.7311", "0.2689", "0.2689"]


def test_an_estimate_becomes_a_data_frame():
    schema = Schema.of(age=(0, 100), way={"low": 0, "high": 1, "size": 2}, city=["Oslo", "Rome"])
    plan = Plan(schema, 8.0, Split(mechanism="duchi"))
    estimate = plan.simulate([{"age": 5, "way": [0, 1], "city": "Oslo"}] * 9, fedldp.source(1))
    estimate = estimate.estimate()
    frame = estimate.to_frame()
    columns = ["attribute", "label", "estimate", "stderr", "low", "high", "answers"]
    assert [*frame.columns] == columns
    assert [*zip(frame.attribute, frame.label, strict=True)] == [
        ("age", ""),
        ("way", "0"),
        ("way", "1"),
        ("city", "Oslo"),
        ("city", "Rome"),
    ]
    age, *way, oslo, rome = frame.estimate
    assert age == estimate["age"].mean
    assert way == estimate["way"].mean.tolist()
    assert [oslo, rome] == estimate["city"].frequencies.tolist()
    assert frame.stderr[0] == estimate["age"].stderr
    assert frame[["low", "high"]].to_numpy().tolist()[3:] == estimate["city"].interval.tolist()
    assert frame.answers.tolist() == [9] * 5
    assert frame.dtypes["answers"] == np.int64


def test_a_data_frame_needs_pandas(monkeypatch, report):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        fedldp.errors.MissingExtra, match="Install the extra 'pandas' with: pip install"
    ):
        PLAN.parse(report).estimate().to_frame()
