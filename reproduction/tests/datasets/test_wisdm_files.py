"""WISDM as it is published, from archives and files that are made here."""

import numpy as np
import pytest
from archives import nested, recordings

from fedldp import datasets
from fedldp.errors import DomainError
from fedldp_reproduction.datasets.wisdm import V2019


@pytest.mark.parametrize("wrap", [lambda inner: inner, nested])
def test_the_archive_of_2019_has_the_users_and_activities_of_the_csv_file(tmp_path, wrap):
    path = tmp_path / "wisdm.zip"
    path.write_bytes(wrap(recordings()))
    data = datasets.load("wisdm2019", path)
    assert len(data) == 36  # one line of each user, and none of 1616
    assert data.matrix(slice(None), ("x",))[:, 0] == pytest.approx(
        [user / 1000 for user in V2019.users], abs=1e-3
    )
    lines = ["user,activity,x,y,z"]
    lines += [f"{user},A,{user / 1000},8.79,1.05" for user in V2019.users]
    csv = tmp_path / "wisdm.csv"
    csv.write_text("\n".join(lines) + "\n")
    assert np.array_equal(datasets.load("wisdm2019", csv).matrix(), data.matrix())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no archive", "must be a ZIP archive"),
        (recordings(users=[1600]), "those of 1601, 1602"),
        (recordings()[:-30], "must be a ZIP archive"),
        (recordings(changed={1600: "1600,A,5,1,2;\n"}), r"data_1600.*line 1: expected user"),
        (recordings(changed={1600: "1600,A,5,1,2,nan;\n"}), "finite"),
    ],
)
def test_an_archive_with_a_fault_is_refused(tmp_path, content, said):
    path = tmp_path / "wisdm.zip"
    path.write_bytes(content)
    with pytest.raises(DomainError, match=said):
        datasets.load("wisdm2019", path)


NUMBERS = [f"{axis}{place}" for axis in "XYZ" for place in range(10)]
NUMBERS += [axis + kind for kind in ("AVG", "PEAK", "ABSOLDEV", "STANDDEV") for axis in "XYZ"]
NUMBERS += ["RESULTANT"]


def arff(rows, numbers=NUMBERS):
    head = ['@relation x\n@attribute "UNIQUE_ID" numeric', '@attribute "user" {"33", "17"}']
    head += [f'@attribute "{name}" numeric' for name in numbers]
    head += ['@attribute class{ "Walking", "Sitting" }', "@data"]
    return "\n".join([*head, *rows]) + "\n"


def row(user=33, last="Walking", **changes):
    values = dict.fromkeys(NUMBERS, "0.5") | changes
    return ",".join(["1", str(user), *values.values(), last])


def test_the_transformed_set(tmp_path):
    path = tmp_path / "transformed.arff"
    path.write_text(arff([row(), row(17, "Sitting", XPEAK="?"), row(XPEAK="2500")]))
    data = datasets.load("wisdm-transformed", path)
    assert data.vehicle_ids.tolist() == [33, 17, 33]
    assert data.matrix(slice(None), ("moves",))[:, 0].tolist() == [1, 0, 1]
    peaks = data.matrix(slice(None), ("XPEAK",))[:, 0]
    assert peaks == pytest.approx([0.5, 5000, 2500])  # one that is missing is in the middle
    assert data.dimensions == 44


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (arff([]), "it has none"),
        (arff(["1,2"]), "46 attributes, but 2 values"),
        (arff([row()], NUMBERS[:-1]), "45 attributes, but 46 values"),
        (arff([",".join([*row().split(",")[:-2], "Walking"])], NUMBERS[:-1]), "43 numbers"),
        (arff([row(XAVG="much")]), "expected numbers"),
        (arff([row(XAVG="inf")]), "finite"),
    ],
)
def test_a_transformed_set_with_a_fault_is_refused(tmp_path, text, said):
    path = tmp_path / "transformed.arff"
    path.write_text(text)
    with pytest.raises(DomainError, match=said):
        datasets.load("wisdm-transformed", path)


def test_vehicle_in_the_format_of_libsvm(tmp_path):
    path = tmp_path / "combined.libsvm"
    path.write_text("1 1:0.5 100:-0.25\n\n3 2:0.125 # noise\n2 1:-1\n")
    data = datasets.load("vehicle", path)
    assert data.matrix(slice(None), ("kind",))[:, 0].tolist() == [0, 1, 0]
    signals = data.matrix(slice(None), ("signal",))
    assert signals[:, [0, 1, 99]].tolist() == [[0.5, 0, -0.25], [0, 0.125, 0], [-1, 0, 0]]
    path.write_text("-1 1:0.5\n1 1:0.5\n")
    assert datasets.load("vehicle", path).matrix(slice(None), ("kind",))[:, 0].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1 101:0.5", "places are 1 to 100"),
        ("1 0:0.5", "places are 1 to 100"),
        ("1 1=0.5", "line 1: expected a kind and place:value pairs"),
        ("car 1:0.5", "line 1"),
        ("4 1:0.5", "kind that is -1 or 1"),
        ("", "must have rows"),
    ],
)
def test_a_file_of_libsvm_with_a_fault_is_refused(tmp_path, line, said):
    path = tmp_path / "combined.libsvm"
    path.write_text(line + "\n")
    with pytest.raises(DomainError, match=said):
        datasets.load("vehicle", path)
