"""Data sets from files of one's own. Every file here is made here."""

import gzip

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from fedldp import Schema
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


def test_a_number_is_for_linear_regression_and_labels_for_the_others(fleet):
    assert from_file(fleet, SCHEMA, "age").targets == {"squared": "age"}
    assert from_file(fleet, SCHEMA, "sold").targets == {"logistic": "sold", "hinge": "sold"}
    cities = Schema.of(age=(0, 100), city=["Oslo", "Rome", "Lima"])
    several = from_file(fleet, cities, "city")
    assert several.targets == {"softmax": "city"}
    assert several.examples("softmax").objective.outputs == 3
    assert from_file(fleet, SCHEMA, "sold").examples("softmax").objective.outputs == 2
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
    assert "city: 1 of 3 (33%) unknown, replaced by 'Oslo'; so the share of 'Oslo'" in said
    assert "row 2: 'Bonn' is not one of the 2 categories" in said
    with pytest.raises(DomainError, match=r"fleet\.csv: .*age: .*row 1: the value is missing"):
        from_file(fleet, SCHEMA, strict=True)
    fleet.write_text(CSV)
    assert len(from_file(fleet, SCHEMA, strict=True)) == 3  # an unused column is not an error


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


def test_a_row_without_a_vehicle_is_refused(fleet):
    fleet.write_text("id,age,city,sold\na,31,Oslo,no\n,54,Rome,yes\n")
    with pytest.raises(DomainError, match=r"row 1 .*column 'id'.*vehicle of the row is unknown"):
        from_file(fleet, SCHEMA, vehicle_id="id")
    with pytest.raises(DomainError, match="no column 'owner'"):
        from_file(fleet, SCHEMA, vehicle_id="owner")


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


def test_a_vehicle_is_one_however_its_id_is_padded(tmp_path):
    path = tmp_path / "fleet.csv"
    path.write_text("id,age\n1,31\n 1,54\n1 ,20\n2,40\n")
    data = from_file(path, Schema.of(age=(0, 100)), vehicle_id="id")
    assert data.vehicle_ids.tolist() == [0, 0, 0, 1]
