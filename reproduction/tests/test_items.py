"""The map from the paper to the project: complete, and nothing in it leads nowhere."""

import re
from pathlib import Path

import click
import pytest
from theory_results import computed

from fedldp.cli.app import fedldp as command
from fedldp.errors import DomainError
from fedldp_reproduction.command import reproduce_command
from fedldp_reproduction.experiments.verdicts import CLAIMS
from fedldp_reproduction.figures import description
from fedldp_reproduction.items import Item, headings, items, page, resolve
from fedldp_reproduction.theory import FIGURES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT.parent / "shared" / "paper" / "paper.tex"
ROMAN = ("I", "II", "III")

NUMBERS = {
    "Definition": ["1"],
    "Remark": ["1"],
    "Algorithm": [str(number) for number in range(1, 7)],
    "Lemma": [str(number) for number in range(1, 15)],
    "Proposition": ["1"],
    "Table": list(ROMAN),
    "Figure": [str(number) for number in range(1, 29)],
}


def test_every_numbered_item_is_there_once():
    for kind, numbers in NUMBERS.items():
        assert [each.number for each in items() if each.kind == kind] == numbers
    assert {each.kind for each in items()} == NUMBERS.keys()


def names():
    return sorted({name for each in items() for name in each.code})


@pytest.mark.parametrize("name", names())
def test_every_name_can_be_imported(name):
    if ".fleet" in name:
        pytest.importorskip("flwr")
    assert resolve(name) is not None


def test_a_name_that_is_gone_is_found_out():
    with pytest.raises(AttributeError):
        resolve("fedldp.mechanisms.PMSub.no_such_thing")
    with pytest.raises(AttributeError):
        resolve("fedldp.no_such_module.thing")
    with pytest.raises(DomainError, match="nothing of the name"):
        resolve("no_such_package.thing")


def test_anchors_are_those_of_the_site():
    text = "# One: two\n```\n# no heading\n```\n## P(0) at ε, 1-2\n### Three {#four}\n"
    assert list(headings(text)) == ["one-two", "p0-at-ε-1-2", "four"]


@pytest.mark.parametrize("address", sorted({page for each in items() for page in each.pages}))
def test_every_page_has_its_heading(address):
    path, _, anchor = address.partition("#")
    assert anchor in headings((DOCS / path).read_text("utf-8"))


@pytest.mark.parametrize("line", sorted({each.command for each in items() if each.command}))
def test_every_command_and_its_options_exist(line):
    program, *words = line.split()
    if program == "fedldp-reproduce":
        with reproduce_command.make_context(program, words) as context:
            assert set(context.params["keys"]) <= description().figures.keys()
        return
    assert program == "fedldp"
    found = command
    context = click.Context(command)
    while words and isinstance(found, click.Group) and found.get_command(context, words[0]):
        found = found.get_command(context, words.pop(0))
    assert found is not command
    known = {option for each in found.params for option in each.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_every_figure_that_checks_an_item_exists_and_none_is_forgotten():
    known = description().figures
    used = {key for each in items() for key in each.figures}
    assert used <= known.keys()
    beyond = {key for key, figure in known.items() if figure.paper.startswith("beyond")}
    assert known.keys() - used <= beyond
    # A figure of the paper is checked by the figure here that bears its number.
    for each in items():
        for key in each.figures[:1] if each.kind == "Figure" else ():
            numbers = re.findall(r"\d+", known[key].paper)
            assert each.number in numbers, (each.name, known[key].paper)


def test_the_page_in_the_documentation_is_the_one_of_the_list():
    """If this fails: make paper-map."""
    assert (DOCS / "paper-map.md").read_text("utf-8") == page(DOCS)


def test_an_item_that_nothing_checks_is_refused():
    with pytest.raises(DomainError, match="must name the figure"):
        Item("Lemma", "15", "", "A lemma", ())
    with pytest.raises(DomainError, match="kind"):
        Item("Theorem", "1", "", "A theorem", ("lemmas",))


# How claims call the sections of the paper, and their headings in its source.
SECTIONS = {
    "System Model": "System Model",
    "System Model C": "Comparing  LDP-FedSGD",
    "Single Attribute": "Mechanisms for Estimation of A Single Numeric Attribute",
    "Three-Outputs": r"\texttt{Three-Outputs} Mechanism",
    "PM-OPT": r"\texttt{PM-OPT} Mechanism",
    "PM-SUB": r"\texttt{PM-SUB} Mechanism",
    "Discretization": "Discretization Post-Processing",
    "HM-TP": r"\texttt{HM-TP} Mechanism",
    "Multiple Attributes": "Mechanisms for Estimation of Multiple Numeric Attributes",
    "Experiments": "Experiments",
    "Experiments A": "Results on the Mean Values of Numeric Attributes",
    "Experiments B": "Results on Empirical Risk Minimization",
    "Experiments C": "Results after Discretization",
}


def test_claims_name_sections_that_there_are():
    told = [each.claim for key in FIGURES for each in computed(key).verdicts]
    told += [claim.text for claim in CLAIMS.values()]
    named = {name for text in told for name in re.findall(r"sec\. ([^,);]+)", text)}
    assert named <= SECTIONS.keys()
    assert not any(re.search(r"sec\. [IVX]+\b", text) for text in told)


@pytest.mark.skipif(not SOURCE.exists(), reason="the paper's source is not available")
@pytest.mark.parametrize("heading", SECTIONS.values())
def test_sections_are_those_of_the_papers_source(heading):
    assert re.search(r"section\{" + re.escape(heading), SOURCE.read_text("utf-8"))


def environments(text, name):
    return re.findall(rf"\\begin\{{{name}\*?\}}(.*?)\\end\{{{name}\*?\}}", text, re.DOTALL)


def label(text):
    found = re.search(r"\\label\{([^}]*)\}", text)
    return found[1] if found else ""


def captioned(text, name):
    """Return the labels of figures or tables that have a caption of their own, and so a number."""
    found = []
    for each in environments(text, name):
        outer = re.sub(r"\\begin\{subfigure\}.*?\\end\{subfigure\}", "", each, flags=re.DOTALL)
        if "\\caption" in outer:
            found.append(label(outer))
    return found


@pytest.mark.skipif(not SOURCE.exists(), reason="the paper's source is not available")
def test_the_list_is_that_of_the_papers_source():
    text = SOURCE.read_text("utf-8")
    labels = {kind: [each.label for each in items() if each.kind == kind] for kind in NUMBERS}
    assert [label(each) for each in environments(text, "lem")] == labels["Lemma"]
    assert [label(each) for each in environments(text, "algorithm")] == labels["Algorithm"]
    assert captioned(text, "figure") == labels["Figure"]
    assert captioned(text, "table") == labels["Table"]
    assert len(environments(text, "defn")) == len(labels["Definition"])
    assert len(environments(text, "rem")) == len(labels["Remark"])
    assert re.findall(r"Proposition (\d+)\.", text) == ["1"]
    (heading,) = re.findall(r"\\label\{([^}]*)\}\n\$\\textbf\{Proposition 1", text)
    assert [heading] == labels["Proposition"]
