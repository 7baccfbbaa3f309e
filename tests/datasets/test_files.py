"""Data sets from files: one's own, WISDM, Vehicle. Every file here is made here."""

import gzip

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from fedldp import Schema, datasets
from fedldp.datasets import from_file
from fedldp.errors import DataWarning, DomainError

SCHEMA = Schema.of(age=(0, 100), city=["Oslo", "Rome"], sold=["no", "yes"])
CSV = "id,age,city,sold\na,31,Oslo,no\nb,54,Rome,yes\na,100,Rome,no\n"


@pytest.fixture
def fleet(tmp_path):
    path = tmp_path / "fleet.csv"
    path.write_text(CSV)
    return path


def test_a_file_becomes_a_data_set(fleet):
    data = from_file(fleet, SCHEMA, target="sold", vehicle_id="id")
    assert (data.name, data.title, len(data)) == ("fleet", "fleet.csv", 3)
    assert data.matrix().tolist() == [[31, 0, 0], [54, 1, 1], [100, 1, 0]]
    assert data.vehicle_ids.tolist() == [0, 1, 0]
    features, targets = data.examples("hinge").read(slice(None))
    assert np.allclose(features, [[-0.38, -1, 1], [0.08, 1, 1], [1, 1, 1]])
    assert targets.tolist() == [-1, 1, -1]


def test_columns_are_kept_in_few_bytes(fleet):
    data = from_file(fleet, SCHEMA)
    assert [column.itemsize for column in data.columns] == [4, 1, 1]
    assert data.targets == {}
    assert data.vehicle_ids is None


def test_a_number_is_for_linear_regression_and_two_labels_for_the_others(fleet):
    assert from_file(fleet, SCHEMA, "age").targets == {"squared": "age"}
    assert from_file(fleet, SCHEMA, "sold").targets == {"logistic": "sold", "hinge": "sold"}
    cities = Schema.of(age=(0, 100), city=["Oslo", "Rome", "Lima"])
    with pytest.raises(DomainError, match="'city' must be a category with two labels"):
        from_file(fleet, cities, "city")
    with pytest.raises(DomainError, match="no attribute 'price'"):
        from_file(fleet, SCHEMA, "price")


def test_gzip_and_parquet_hold_the_same(fleet):
    expected = from_file(fleet, SCHEMA).matrix()
    packed = fleet.with_name("fleet.csv.gz")
    packed.write_bytes(gzip.compress(CSV.encode()))
    table = fleet.with_name("fleet.parquet")
    columns = {"age": [31, 54, 100], "city": ["Oslo", "Rome", "Rome"], "sold": ["no", "yes", "no"]}
    parquet.write_table(pa.table(columns), table)
    for path in (packed, table):
        assert np.array_equal(from_file(path, SCHEMA).matrix(), expected)


def test_a_column_of_lists_is_several_numbers(tmp_path):
    path = tmp_path / "fleet.parquet"
    parquet.write_table(pa.table({"at": [[1.0, 2.0], [3.0, 4.0]], "age": [31, 54]}), path)
    schema = Schema.of(at={"low": 0, "high": 9, "size": 2}, age=(0, 100))
    assert from_file(path, schema).matrix().tolist() == [[1, 2, 31], [3, 4, 54]]


def test_bad_cells_are_replaced_with_a_warning_or_refused(fleet):
    fleet.write_text("age,city,sold\n31,Oslo,no\n,Rome,yes\n120,Bonn,no\n")
    with pytest.warns(DataWarning) as caught:
        replaced = from_file(fleet, SCHEMA)
    assert replaced.matrix().tolist() == [[31, 0, 0], [50, 1, 1], [100, 0, 0]]
    assert [each.filename for each in caught] == [__file__]
    said = str(caught[0].message)
    assert "age: 1 of 3 (33%) clipped to [0, 100]; 1 of 3 (33%) missing, replaced by 50" in said
    assert "city: 1 of 3 (33%) unknown, replaced by 'Oslo'; row 2: 'Bonn' is not one of" in said
    with pytest.raises(DomainError, match=r"fleet\.csv: .*age: .*row 1: the value is missing"):
        from_file(fleet, SCHEMA, strict=True)
    fleet.write_text(CSV)
    assert len(from_file(fleet, SCHEMA, strict=True)) == 3  # an unused column is no fault


def test_files_that_cannot_be_read_are_refused_by_name(fleet):
    fleet.write_text("age,city,sold\n")
    with pytest.raises(DomainError, match=r"fleet\.csv: there are no rows"):
        from_file(fleet, SCHEMA)
    fleet.write_text("age,city\n31,Oslo\n")
    with pytest.raises(DomainError, match="no column 'sold'"):
        from_file(fleet, SCHEMA)
    packed = fleet.with_name("fleet.csv.gz")
    whole = gzip.compress(CSV.encode() * 100)
    for damaged in (b"age,city\n", whole[: len(whole) // 2]):
        packed.write_bytes(damaged)
        with pytest.raises(DomainError, match=r"fleet\.csv\.gz is damaged"):
            from_file(packed, SCHEMA)


def test_a_row_that_is_nobodys_is_refused(fleet):
    fleet.write_text("id,age,city,sold\na,31,Oslo,no\n,54,Rome,yes\n")
    with pytest.raises(DomainError, match=r"row 1 .*column 'id'.*whose row"):
        from_file(fleet, SCHEMA, vehicle_id="id")
    with pytest.raises(DomainError, match="no column 'owner'"):
        from_file(fleet, SCHEMA, vehicle_id="owner")


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


def test_a_target_is_never_made_up(tmp_path):
    path = tmp_path / "fleet.csv"
    path.write_text("age,sold\n31,no\n,yes\n54,\n")
    schema = Schema.of(age=(0, 100), sold=["no", "yes"])
    with pytest.raises(DomainError, match=r"have the target; sold: .*row 2: the value is missing"):
        from_file(path, schema, "sold")
    path.write_text("age,sold\n31,no\n,yes\n")
    with pytest.warns(DataWarning):
        assert from_file(path, schema, "sold").matrix()[:, 0].tolist() == [31, 50]


def test_numbers_far_from_zero_keep_their_digits(tmp_path):
    path = tmp_path / "fleet.csv"
    path.write_text("time\n1600000001\n1600000099\n")
    data = from_file(path, Schema.of(time=(1_600_000_000, 1_600_000_100)))
    assert data.matrix()[:, 0].tolist() == [1_600_000_001, 1_600_000_099]


def test_an_owner_is_one_however_its_id_is_padded(tmp_path):
    path = tmp_path / "fleet.csv"
    path.write_text("id,age\n1,31\n 1,54\n1 ,20\n2,40\n")
    data = from_file(path, Schema.of(age=(0, 100)), vehicle_id="id")
    assert data.vehicle_ids.tolist() == [0, 0, 0, 1]
