"""WISDM, from files that are made here."""

import gzip

import numpy as np
import pytest

from fedldp import datasets
from fedldp.errors import DomainError


def wisdm(path, text):
    path.write_text(text)
    return datasets.load("wisdm", path)


def test_wisdm_records_are_read_however_they_are_strewn(tmp_path):
    data = wisdm(
        tmp_path / "raw.txt",
        "33,Jogging,49105962326000,-0.7,12.5,0.5;\n"
        "33,Sitting,0,1,2,9.5,;1,Walking,5,-3,4,-5;\n"  # two in a line, a comma too many
        ";\n,;\n36,Standing,5,1e1,1e39,4.9;\n",
    )
    expected = [
        [-0.7, 12.5, 0.5, 32, 1, 0],
        [1, 2, 9.5, 32, 4, 1],
        [-3, 4, -5, 0, 0, 0],
        [10, 20, 4.9, 35, 5, 0],
    ]
    assert np.allclose(data.matrix(), expected)
    assert data.vehicle_ids.tolist() == [32, 32, 0, 35]
    assert data.dimensions == 43 == datasets.about("wisdm").dimensions
    assert data.asked.names == ("x", "y", "z", "user", "activity")
    assert "0 malformed" in data.about.note


@pytest.mark.parametrize(
    "record",
    [
        "11,Walking,5,1,2",  # no z
        "11,Walking,5,1,2,",
        "11,Walking,5,1,2,3,4",
        "11,Walking,5,1,2,3\n12,Walking,5,1,2,3",  # no semicolon between two
        "11,Walking,5,one,2,3",
        "11,Walking,5,nan,2,3",
        "11,Walking,5,inf,2,3",
        "11,Walking,5,inf,-inf,3",
        "11,Flying,5,1,2,3",
        "37,Walking,5,1,2,3",
        "0,Walking,5,1,2,3",
        "Walking",
        "\ufffd",
    ],
)
def test_malformed_records_are_counted_and_left_out(tmp_path, record):
    good = "33,Jogging,49105962326000,-0.7,12.5,0.5;\n"
    data = wisdm(tmp_path / "raw.txt", good + record + ";\n" + good)
    assert len(data) == 2
    assert "1 malformed records" in data.about.note
    with pytest.raises(DomainError, match=r"raw.txt has no record.* 1 that cannot be read"):
        wisdm(tmp_path / "raw.txt", record)


def test_wisdm_2019_is_a_csv_file(tmp_path):
    path = tmp_path / "watch.csv.gz"
    path.write_bytes(gzip.compress(b"user,activity,x,y,z\n1600,A,7,-0.5,8\n1641,F,25,1,-2\n"))
    data = datasets.load("wisdm2019", path)
    assert data.dimensions == 43 == datasets.about("wisdm2019").dimensions
    assert data.matrix().tolist() == [[7, -0.5, 8, 0, 0, 1], [20, 1, -2, 35, 5, 0]]
    for absent in ("1616", "1629", "1637"):
        row = f"{absent},A,7,1,8\n"
        path.write_bytes(gzip.compress(b"user,activity,x,y,z\n1630,A,7,1,8\n" + row.encode()))
        with pytest.raises(DomainError, match=f"row 1: '{absent}' is not one of the 36 categories"):
            datasets.load("wisdm2019", path)


@pytest.mark.parametrize("value", ["inf", "-inf", "1e999", "nan", ""])
def test_wisdm_2019_has_finite_numbers_alone(tmp_path, value):
    path = tmp_path / "watch.csv"
    path.write_text(f"user,activity,x,y,z\n1600,A,7,1,8\n1600,A,7,{value},8\n")
    with pytest.raises(DomainError, match=r"watch\.csv: .*(y: .*row 1: |row 1 .*column 'y')"):
        datasets.load("wisdm2019", path)
