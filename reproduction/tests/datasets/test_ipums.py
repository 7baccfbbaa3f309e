"""IPUMS extracts, tiny ones of our own making, through their description."""

import gzip
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from fedldp import datasets
from fedldp.errors import DomainError, MissingExtra

DESCRIPTION = """
title = "A village"
data = "village.csv.gz"
target = "income"
above = 1000

[attributes.age]
variable = "AGE"
low = 0
high = 100
missing = 40
unknown = [999]

[attributes.income]
variable = "INCTOT"
low = 0
high = 10_000
unknown = [9999998, 9999999]

[attributes.marital]
variable = "MARST"
codes = {1 = "single", 2 = "married", 3 = "single", 4 = "widowed"}
missing = "widowed"
unknown = [0, 9]
"""
ROWS = [
    (20, 500, 1),
    (999, 1500, 2),
    (30, 9999999, 2),  # an unknown income
    (61, 20000, 9),
    (50, 1000, 3),
]
SHAPE = "ignore:the extract has 2 numbers:UserWarning"


def extract(folder, rows=ROWS, description=DESCRIPTION):
    lines = ["SERIAL,AGE,INCTOT,MARST", *(f"7,{age},{inc},{mar}" for age, inc, mar in rows)]
    (folder / "village.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    path = folder / "village.toml"
    path.write_text(description)
    return path


@pytest.mark.filterwarnings(SHAPE)
def test_an_extract_is_read_as_its_description_says(tmp_path):
    data = datasets.load("ipums", extract(tmp_path))
    assert data.title == "A village"
    assert data.schema["marital"].categories == ("single", "married", "widowed")
    assert data.matrix().tolist() == [  # age, income, marital, high_income
        [20, 500, 0, 0],
        [40, 1500, 1, 1],
        [61, 10_000, 2, 1],
        [50, 1000, 0, 0],
    ]
    assert "1 people" in data.about.note
    assert data.targets == {
        "squared": "income",
        "logistic": "high_income",
        "hinge": "high_income",
    }
    assert data.asked.names == ("age", "income", "marital")


@pytest.mark.filterwarnings(SHAPE)
@pytest.mark.parametrize("unknown", ["{}.0", "00{}", " {}", "{}.", "+{}", "{}e0"])
def test_an_unknown_number_is_unknown_however_it_is_written(tmp_path, unknown):
    rows = [(20, 500, 1), (unknown.format(999), 600, 1), (30, unknown.format(9999999), 2)]
    data = datasets.load("ipums", extract(tmp_path, rows))
    assert data.matrix().tolist() == [[20, 500, 0, 0], [40, 600, 0, 0]]
    assert "1 people" in data.about.note


@pytest.mark.filterwarnings(SHAPE)
def test_an_unknown_number_may_be_a_text(tmp_path):
    described = DESCRIPTION.replace("unknown = [999]", 'unknown = ["NIU", 999]')
    data = datasets.load("ipums", extract(tmp_path, [("NIU", 500, 1), (999.0, 1, 1)], described))
    assert data.matrix(names=["age"])[:, 0].tolist() == [40, 40]


def test_an_extract_of_unknown_targets_alone_is_refused(tmp_path):
    with pytest.raises(DomainError, match=r"village\.toml: 'income' is unknown of everybody"):
        datasets.load("ipums", extract(tmp_path, [(20, 9999999, 1)]))


@pytest.mark.filterwarnings(SHAPE)
def test_without_a_threshold_there_is_linear_regression_alone(tmp_path):
    path = extract(tmp_path, description=DESCRIPTION.replace("above = 1000", ""))
    data = datasets.load("ipums", path)
    assert data.targets == {"squared": "income"}
    assert data.asked == data.schema


def test_a_shape_that_is_not_the_papers_is_said(tmp_path):
    with pytest.warns(UserWarning, match="2 numbers and 1 categories with 4 dimensions") as found:
        datasets.load("ipums", extract(tmp_path))
    assert "6 numbers and 10 categories with 90 dimensions (Brazil)" in str(found[0].message)


def test_the_shape_of_brazil_is_taken_in_silence(tmp_path):
    sizes = [27, 16, 12, 10, 8, 6, 6, 5, 2, 2]
    tables = [f"[attributes.n{i}]\nlow = 0\nhigh = 9\n" for i in range(6)]
    for number, size in enumerate(sizes):
        codes = ", ".join(f'{code} = "label {code}"' for code in range(size))
        tables.append(f"[attributes.c{number}]\ncodes = {{{codes}}}\n")
    names = [*(f"n{i}" for i in range(6)), *(f"c{i}" for i in range(10))]
    (tmp_path / "br.csv").write_text(f"{','.join(names)}\n{','.join('1' * 16)}\n")
    path = tmp_path / "br.toml"
    path.write_text('data = "br.csv"\ntarget = "n0"\n' + "".join(tables))
    data = datasets.load("ipums", path)
    assert (len(data.asked), data.dimensions) == (16, 90)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ((20, 500, 7), r"marital: .*row 5: 'code 7' is not one of the 3 categories"),
        ((20, 500, ""), r"marital: .*row 5: the value is missing"),
        (("old", 500, 1), r"age: .*row 5: "),
        ((20, "", 1), r"income: .*row 5: the value is missing"),
    ],
)
def test_what_the_description_does_not_know_is_refused(tmp_path, row, complaint):
    with pytest.raises(DomainError, match=complaint) as caught:
        datasets.load("ipums", extract(tmp_path, [*ROWS, row]))
    assert "village.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("title =", "title", "expected valid TOML"),
        ('target = "income"', 'target = "wage"', "target 'wage'"),
        ('target = "income"', 'target = ["income"]', r"target \['income'\]"),
        ("above = 1000", 'above = "1000"', "above must be a number"),
        ("above = 1000", "over = 1000", "it needs data, target"),
        ('"village.csv.gz"', "7", "must be names of files"),
        ('"village.csv.gz"', '"village.dat.gz"', "needs its codebook"),
        ('variable = "AGE"', 'variable = "AGEMONTH"', "no variable 'AGEMONTH'"),
        ('variable = "AGE"', "variable = 3", "attributes.age needs"),
        ('1 = "single"', "1 = 1", "attributes.marital needs"),
        ("unknown = [999]", "unknown = 999", "attributes.age needs"),
        ("high = 100\n", "", "'age' needs low and high"),
        ('missing = "widowed"', 'missing = "gone"', "missing of 'marital'"),
        ("missing = 40", "codes = {}", "needs low and high"),
    ],
)
def test_a_description_with_faults_is_refused(tmp_path, old, new, complaint):
    changed = DESCRIPTION.replace(old, new)
    assert changed != DESCRIPTION
    with pytest.raises(DomainError, match=complaint):
        datasets.load("ipums", extract(tmp_path, description=changed))


def test_the_target_must_be_a_number(tmp_path):
    path = extract(tmp_path, description=DESCRIPTION.replace('"income"', '"marital"'))
    with pytest.raises(DomainError, match="'marital' of a linear regression must be one number"):
        datasets.load("ipums", path)


CODEBOOK = DESCRIPTION.replace(
    'data = "village.csv.gz"', 'data = "village.dat.gz"\nddi = "village.xml"'
)


def test_a_codebook_needs_ipumspy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipumspy", None)
    with pytest.raises(MissingExtra, match="ipumspy"):
        datasets.load("ipums", extract(tmp_path, description=CODEBOOK))


def ddi():
    """Return the codebook of a file of fixed width, as IPUMS writes it."""
    variables, start = [], 1
    for name, width in (("AGE", 3), ("INCTOT", 7), ("MARST", 1)):
        variables.append(
            f'<var ID="{name}" name="{name}" files="F1" dcml="0" intrvl="discrete">'
            f'<location StartPos="{start}" EndPos="{start + width - 1}" width="{width}"/>'
            f"<labl>{name}</labl><txt>{name}</txt><concept>x</concept>"
            '<varFormat type="numeric" schema="other"/></var>'
        )
        start += width
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<codeBook xmlns="ddi:codebook:2_5" version="2.5"><docDscr/><stdyDscr>'
        "<citation><titlStmt><titl>x</titl></titlStmt><prodStmt/>"
        '<serStmt><serName abbr="ipumsi">IPUMS</serName><serInfo>x</serInfo></serStmt></citation>'
        "<stdyInfo/><dataAccs><useStmt><citReq>Cite it.</citReq>"
        "<conditions>Do not pass it on.</conditions></useStmt></dataAccs><notes>x</notes>"
        '</stdyDscr><fileDscr ID="F1"><fileTxt><fileName>village.dat</fileName>'
        "<fileCont>x</fileCont><fileStrc type='rectangular'/><fileType charset='ISO-8859-1'/>"
        "<format>fixed length fields</format><filePlac>x</filePlac></fileTxt></fileDscr>"
        f"<dataDscr>{''.join(variables)}</dataDscr></codeBook>"
    )


if find_spec("ipumspy") is not None:

    @pytest.mark.filterwarnings(SHAPE)
    def test_a_file_of_fixed_width_is_read_with_its_codebook(tmp_path):
        by_name = datasets.load("ipums", extract(tmp_path))
        lines = "".join(f"{age:03}{income:07}{marital}\n" for age, income, marital in ROWS)
        (tmp_path / "village.dat.gz").write_bytes(gzip.compress(lines.encode()))
        (tmp_path / "village.xml").write_text(ddi())
        data = datasets.load("ipums", extract(tmp_path, description=CODEBOOK))
        assert np.array_equal(data.matrix(), by_name.matrix())

    def test_an_invalid_codebook_is_refused(tmp_path):
        for text in ("no XML", "<codeBook/>"):
            (tmp_path / "village.xml").write_text(text)
            with pytest.raises(
                DomainError, match=r"expected a codebook that ipumspy reads; got village\.xml"
            ):
                datasets.load("ipums", extract(tmp_path, description=CODEBOOK))
