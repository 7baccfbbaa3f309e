"""The numbers of the interactive page are the library's."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

import fedldp
from fedldp.coders.categories import RandomizedResponse
from fedldp.mechanisms import Optimal, Solved

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "playground"


def read(script):
    return json.loads(re.fullmatch(r"window\.FEDLDP = (.*);\n", script)[1])


DATA = read((PAGE / "data.js").read_text())


def counts(table):
    """Unpack a table as its description in tools/playground.py says."""
    others = iter(table["others"])

    def count(kind, least, most):
        return int({"-": least, "+": most}.get(kind) or next(others))

    ends = table["least"], table["most"]
    above = [[count(*cell) for cell in zip(row, *ends, strict=True)] for row in table["rows"]]
    assert next(others, None) is None
    below = len(table["letters"]) - len(above)
    return above + [row[::-1] for row in above[:below][::-1]]


def channel(epsilon, table):
    return fedldp.Channel(epsilon, np.array(counts(table)), table["letters"], table["values"])


@pytest.mark.parametrize("budget", DATA["budgets"], ids=lambda budget: str(budget["epsilon"]))
def test_every_table_is_private_and_as_good_as_it_says(budget):
    epsilon = budget["epsilon"]
    assert [each["name"] for each in budget["mechanisms"]] == list(fedldp.mechanism_names())
    for each in budget["mechanisms"]:
        assert bool(each["tables"]) == (each["name"] != "laplace")
        for table in each["tables"]:
            made = channel(epsilon, table)  # which refuses what leaks, in integers
            assert made.worst_case_variance == pytest.approx(table["worstCase"], rel=1e-12)
            assert made.worst_case_variance >= budget["lowerBound"]
            assert made.outputs <= table["asked"]
        mechanism = fedldp.mechanism(each["name"], epsilon)
        if not isinstance(mechanism, Solved):
            assert each["worstCase"] == pytest.approx(mechanism.worst_case_variance, rel=1e-12)


def test_what_is_found_by_linear_programs_is_found_again():
    budget = next(each for each in DATA["budgets"] if each["epsilon"] == 1.0)
    for each in budget["mechanisms"]:
        mechanism = fedldp.mechanism(each["name"], 1.0)
        if isinstance(mechanism, Solved):
            assert each["worstCase"] == pytest.approx(mechanism.worst_case_variance, rel=1e-4)
    assert budget["lowerBound"] == pytest.approx(Optimal(1.0).lower_bound, rel=1e-6)


def test_the_command_writes_the_librarys_tables():
    tool = ROOT / "tools" / "playground.py"
    spec = importlib.util.spec_from_file_location("playground", tool)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = json.loads(json.dumps(module.document((1.0,))))
    assert made["fleet"] == DATA["fleet"]
    assert made["outputs"] == DATA["outputs"]
    kept = next(each for each in DATA["budgets"] if each["epsilon"] == 1.0)["mechanisms"]
    for each, shown in zip(made["budgets"][0]["mechanisms"], kept, strict=True):
        asked = [table["asked"] for table in each["tables"]]
        assert asked == [table["asked"] for table in shown["tables"]]
        for table in each["tables"]:
            mechanism = fedldp.mechanism(each["name"], 1.0)
            fixed = len(each["tables"]) == 1
            expected = mechanism.channel() if fixed else mechanism.channel(table["asked"])
            assert channel(1.0, table) == expected


def test_the_distribution_has_the_librarys_odds():
    fleet = DATA["fleet"]
    assert sum(fleet["vehicles"]) == 1000
    assert fleet["edges"] == list(fedldp.BinnedNumber.of("speed", 0, 130, bins=13).edges)
    for budget in DATA["budgets"]:
        coder = RandomizedResponse.of(budget["epsilon"], len(fleet["vehicles"]))
        assert budget["response"] == {"same": str(coder.same), "other": str(coder.other)}


def test_the_page_is_small_and_loads_nothing_from_elsewhere():
    files = [each for each in PAGE.iterdir() if each.is_file()]
    assert sum(each.stat().st_size for each in files) < 2_000_000
    for each in files:
        addresses = re.findall(r"(?:https?:)?//[\w.-]+\.\w+", each.read_text())
        assert set(addresses) <= {"http://www.w3.org"}, each  # the name of SVG, which is not loaded
    html = (PAGE / "index.html").read_text()
    # The first is not a file; the second exists in the built site alone.
    for name in set(re.findall(r'(?:src|href)="([^"#]+)"', html)) - {"data:,", "../index.html"}:
        assert (PAGE / name).is_file()


def test_the_page_was_made_by_this_version():
    assert DATA["version"] == fedldp.__version__
