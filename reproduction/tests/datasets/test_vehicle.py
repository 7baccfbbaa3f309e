"""Vehicle, from files that are made here."""

import numpy as np
import pytest

from fedldp import datasets
from fedldp.errors import DomainError

SIGNALS = np.linspace(-0.5, 1.5, 300).reshape(3, 100)
KINDS = (1, -1, 1)


def dense(signals):
    return ",".join(map(repr, map(float, signals)))


def arff(rows, target="class {-1,1}", first=False):
    names = [f"@attribute 'x{i}' NUMERIC" for i in range(100)]
    names.insert(0 if first else 100, f"@ATTRIBUTE {target}")
    return "\n".join(["% made here", "@RELATION vehicle", *names, "@DATA", *rows, ""])


def check_vehicle(data):
    assert len(data) == 3
    assert data.dimensions == 101 == datasets.about("vehicle").dimensions
    assert data.title == "Vehicle, 3-row subset"
    assert np.allclose(data.matrix(names=["signal"]), SIGNALS)
    features, targets = data.examples("hinge").read(slice(None))
    assert targets.tolist() == list(KINDS)
    return features


def test_vehicle_is_read_from_arff_dense_or_sparse_and_from_csv(tmp_path):
    files = {
        "dense.arff": arff([f"{dense(x)},{y}" for x, y in zip(SIGNALS, KINDS, strict=True)]),
        "sparse.arff": arff(
            [
                "{"
                + ",".join([f"0 {y}", *(f"{i} {v!r}" for i, v in enumerate(x.tolist(), 1))])
                + "}"
                for x, y in zip(SIGNALS, KINDS, strict=True)
            ],
            target="Y NUMERIC",
            first=True,
        ),
        "table.csv": "\n".join(
            [
                ",".join(["y", *(f"x{i}" for i in range(100))]),
                *(f"{y},{dense(x)}" for x, y in zip(SIGNALS, KINDS, strict=True)),
            ]
        ),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        data = datasets.load("vehicle", tmp_path / name)
        assert data.vehicle_ids is None
        assert check_vehicle(data).max() == 1  # clipped to the public bounds


def test_what_a_sparse_row_leaves_out_is_zero(tmp_path):
    path = tmp_path / "vehicle.arff"
    path.write_text(arff(["{3 0.5,100 -1}", "{100 1}"]))
    data = datasets.load("vehicle", path)
    assert data.matrix().sum(axis=1).tolist() == [0.5, 1]  # of the codes, 0 and 1, too
    assert data.matrix()[0, 3] == 0.5


def test_a_kind_that_a_sparse_row_leaves_out_is_the_first_label(tmp_path):
    path = tmp_path / "vehicle.arff"
    for labels, kinds in (("{-1,1}", [-1, 1]), ("{ '1', '-1' }", [1, 1])):
        path.write_text(arff(["{3 0.5}", "{100 1}"], target=f"class {labels}"))
        assert datasets.load("vehicle", path).examples("hinge").read(slice(2))[1].tolist() == kinds
    path.write_text(arff(["{}", "{ 0 0.5 , 100 1 }"]))
    assert datasets.load("vehicle", path).matrix()[:, 0].tolist() == [0, 0.5]


def test_an_arff_file_may_have_tabs_for_spaces_and_commas(tmp_path):
    path = tmp_path / "vehicle.arff"
    rows = [f"{dense(x)},{y}" for x, y in zip(SIGNALS, KINDS, strict=True)]
    path.write_text(arff(rows).replace(" ", "\t").replace("@DATA", "@DATA\t"))
    check_vehicle(datasets.load("vehicle", path))
    head, _, tail = arff(rows).partition("@DATA")
    path.write_text(f"{head}@DATA{tail.replace(',', chr(9))}")
    check_vehicle(datasets.load("vehicle", path))


def test_vehicle_is_read_from_npz_with_devices(tmp_path):
    path = tmp_path / "vehicle.npz"
    np.savez(path, X=SIGNALS, y=np.array(KINDS, np.int8), device=np.array([4, 4, 7]))
    data = datasets.load("vehicle", path)
    assert check_vehicle(data).max() == 1  # the constant
    assert data.schema["signal"].high == 3
    assert data.vehicle_ids.tolist() == [4, 4, 7]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (arff([dense(SIGNALS[0])]), "line 105: there are 101 columns, but 100 values"),
        (arff([dense(SIGNALS[0]) + ",?"]), "line 105: could not convert"),
        (arff([dense(SIGNALS[0]) + ",1", "{101 1}"]), "line 106: there are 101 columns"),
        (arff(["{-1 1}"]), "line 105: there are 101 columns"),
        (arff(["{1 2 3}"]), "line 105"),
        (arff([dense(SIGNALS[0]) + ",2"]), "kind that is -1 or 1"),
        (arff([dense([*SIGNALS[0][1:], np.nan]) + ",1"]), "finite"),
        (arff([]), "must have rows"),
        (arff([], target="colour {red}"), "one column with the name"),
        ("", "one column with the name"),
        (arff([]).replace("'x7' NUMERIC", ""), "line 10: an attribute needs a name and a type"),
        (arff(["{0 1}"], target="class {no,1}"), "kind that is -1 or 1"),
        (arff([]).replace("@attribute 'x7' NUMERIC\n", ""), "must have 100 signals"),
    ],
)
def test_a_vehicle_file_with_faults_is_refused(tmp_path, text, complaint):
    path = tmp_path / "vehicle.arff"
    path.write_text(text)
    with pytest.raises(DomainError, match=complaint) as caught:
        datasets.load("vehicle", path)
    assert "vehicle.arff" in str(caught.value)


def test_an_npz_file_with_faults_is_refused(tmp_path):
    path = tmp_path / "vehicle.npz"
    for arrays in ({"X": SIGNALS}, {"X": SIGNALS, "y": np.array(["a", "b", "c"])}):
        np.savez(path, **arrays)
        with pytest.raises(DomainError, match="must be an NPZ file with arrays X and y"):
            datasets.load("vehicle", path)
    np.savez(path, X=SIGNALS, y=np.array(KINDS))
    whole = path.read_bytes()
    np.save(tmp_path / "one.npy", SIGNALS)
    single = (tmp_path / "one.npy").read_bytes()
    spoilt = bytearray(whole)
    spoilt[500:600] = bytes(100)
    np.savez_compressed(path, X=SIGNALS, y=np.array(KINDS))
    packed = bytearray(path.read_bytes())
    packed[60:160] = bytes(range(100))
    for damaged in (b"no zip", b"", whole[:50], whole[: len(whole) // 2], single, spoilt, packed):
        path.write_bytes(damaged)
        with pytest.raises(DomainError, match=r"vehicle\.npz must be an NPZ file"):
            datasets.load("vehicle", path)
    np.savez(path, X=SIGNALS, y=np.ones(2))
    with pytest.raises(DomainError, match="got shapes"):
        datasets.load("vehicle", path)
