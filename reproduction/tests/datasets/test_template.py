"""From a codebook to a description that the loader reads."""

import re
import warnings

import numpy as np
import pytest

from fedldp import datasets
from fedldp.errors import DomainError
from fedldp_reproduction.datasets import template


def ddi(names, extra=""):
    """Return a codebook with two codes and an unknown one for each category."""
    variables = []
    for name in names:
        codes = [("001", f"first of {name}"), ("2", 'say "two"'), ("9", "Unknown")]
        if name in template.BOUNDS:
            codes = [("9999999", "NIU (not in universe)")]
        listed = "".join(
            f"<catgry><catValu>{code}</catValu><labl>{label}</labl></catgry>"
            for code, label in codes
        )
        variables.append(f'<var ID="{name}" name="{name}"><labl>About {name}</labl>{listed}</var>')
    return (
        '<?xml version="1.0"?><codeBook xmlns="ddi:codebook:2_5"><dataDscr>'
        f"{''.join(variables)}{extra}</dataDscr></codeBook>"
    )


@pytest.mark.parametrize("country", ["br", "mx"])
def test_a_template_is_read_by_the_loader(tmp_path, country, capsys):
    names = template.VARIABLES[country]
    codebook = tmp_path / "ipumsi_00001.xml"
    codebook.write_text(ddi((*names, "SERIAL")))
    template.main([str(codebook), country])
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert sum(line.startswith("[attributes.") for line in lines) == len(names)
    assert 'codes = {1 = "first of SEX", 2 = "say \\"two\\""}' in lines
    assert "unknown = [9]" in lines
    path = tmp_path / "census.toml"
    path.write_text(text.replace(".csv.gz", ".csv"))
    rows = [",".join(names), ",".join("1" for _ in names), ",".join("2" for _ in names)]
    (tmp_path / "ipumsi_00001.csv").write_text("\n".join(rows) + "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has fewer labels than the paper's
        data = datasets.load("ipums", path)
    assert len(data.asked) == len(names)
    numbers = sum(each.inputs.numeric for each in data.asked.attributes)
    assert numbers == {"br": 6, "mx": 5}[country]
    assert np.isfinite(data.matrix()).all()


def test_what_is_proposed_is_marked():
    found = {
        name: template.Variable(name, "", (("1", "a"), ("2", "b")))
        for name in template.VARIABLES["br"]
    }
    text = template.template(found, "br", "x.xml")
    highs = re.findall(r"^high = .*$", text, re.M)
    assert len(highs) == 6
    assert all(line.endswith("# CHECK") for line in highs)


@pytest.mark.parametrize(
    ("text", "country", "said"),
    [
        ("<codeBook", "br", "must be a codebook in XML"),
        ("<codeBook/>", "br", "has no variables"),
        (ddi(["AGE", "SEX"]), "br", "has no variable HRSWORK1, CHBORN"),
        (ddi(template.VARIABLES["br"]), "us", "the country must be br or mx; got 'us'"),
        (
            ddi(template.VARIABLES["br"]).replace('<labl>say "two"</labl>', "<labl>NIU</labl>"),
            "br",
            "needs at least two codes",
        ),
    ],
)
def test_a_codebook_with_a_fault_is_refused(tmp_path, text, country, said):
    path = tmp_path / "book.xml"
    path.write_text(text)
    with pytest.raises(DomainError, match=said):
        template.template(template.codebook(path), country, path.name)
    with pytest.raises(SystemExit, match=said):
        template.main([str(path), country])
    with pytest.raises(SystemExit, match="usage"):
        template.main([])
