"""One malformed line of a file affects its own vehicle alone: all others answer as ever."""

import logging

import numpy as np
import pytest
from vault_folders import SCHEMA, configured

from fedldp import Plan
from fedldp.budget.ledger import Ledger
from fedldp.errors import DomainError
from fedldp.fleet.protocol import Question
from fedldp.fleet.vault.vault import Vault
from fedldp.schema import frames

GOOD = ["car,speed,city", "a,31,Oslo", "b,32,Rome", "c,33,Oslo", "d,34,Rome"]
MALFORMED = {
    "too few": b"b,32",
    "too many": b"b,32,Rome,Italy",
    "a quotation mark that stays open": b'b,"32,Rome',
    "text after a quotation mark": b'b,"32"x,Rome',
    "a quotation mark at the end": b'b,32,"Rome',
    "not UTF-8": b"b,32,R\xf6m",
    "a carriage return": b"b,3\r2,Rome",
    "alone": b"b",
    "without its vehicle": b'"',
    "spaces": b"   ",
    "NUL": b"b\0,32,Rome,",
    "a very long field": b"b,32,Rome," + b"x" * 200_000,
}
KNOWN = [name for name in MALFORMED if name not in ("without its vehicle", "spaces", "NUL")]


def written(folder, line, *, place=2):
    """Write a file in which one line is another one."""
    lines = [text.encode() for text in GOOD]
    lines[place] = line
    (folder / "rows.csv").write_bytes(b"\n".join(lines) + b"\n")


def answered(config, folder):
    """Return what a vault answers with the data of its folder, by vehicle."""
    (schema, matrix, names), _ = config.read()
    plan = Plan(SCHEMA, 1.0)
    with Ledger(folder / "ledger.db", config.cap) as ledger:
        vault = Vault(schema, matrix, names, ledger, epsilons=config.epsilons(len(names)))
        answer = vault.answer(Question("spring", 1, "7", 10, plan.to_json()))
        return answer.answered, set(ledger.totals())


@pytest.mark.parametrize("place", [1, 2, 4])
@pytest.mark.parametrize("name", MALFORMED)
def test_all_others_answer(tmp_path, name, place):
    written(tmp_path, MALFORMED[name], place=place)
    config = configured(tmp_path, vehicle="car")
    (_, matrix, names), quality = config.read()
    rows = dict(zip(names, matrix.tolist(), strict=True))
    others = {"a", "b", "c", "d"} - {GOOD[place][0]}
    for car, speed in zip("abcd", (31, 32, 33, 34), strict=True):
        if car in others - {"b"}:
            assert rows[car][0] == speed, "another vehicle is affected"
    assert not quality.clean
    assert (quality.malformed, quality.rows) == (1, 4)
    number, vehicles = answered(config, tmp_path)
    assert others - {"b"} <= vehicles
    assert number == len(vehicles)


@pytest.mark.parametrize("name", KNOWN)
def test_its_own_vehicle_answers_with_the_public_default(tmp_path, name):
    written(tmp_path, MALFORMED[name])
    config = configured(tmp_path, vehicle="car")
    (_, matrix, names), _ = config.read()
    assert names == ["a", "b", "c", "d"]
    assert np.isnan(matrix[1]).all()
    assert answered(config, tmp_path) == (4, {"a", "b", "c", "d"})


@pytest.mark.parametrize("name", MALFORMED)
def test_without_ids_a_vehicle_is_its_line(tmp_path, name):
    written(tmp_path, MALFORMED[name])
    (_, matrix, names), _ = configured(tmp_path).read()
    assert names == ["0", "1", "2", "3"]
    assert matrix[[0, 2, 3], 0].tolist() == [31, 33, 34]
    assert np.isnan(matrix[1]).all()


def test_a_shifted_cell_gives_no_row_to_another_vehicle(tmp_path):
    """A malformed line may seem to be one of a vehicle that has lines of its own."""
    written(tmp_path, b"a,32,Rome,Italy")
    (_, matrix, names), quality = configured(tmp_path, vehicle="car").read()
    assert names == ["a", "c", "d"]
    assert matrix[:, 0].tolist() == [31, 33, 34]
    assert quality.left_out == 1


@pytest.mark.parametrize("vehicle", ["", "a\x07", "\x00"])
def test_a_row_of_an_unknown_vehicle_is_left_out(tmp_path, vehicle):
    written(tmp_path, f"{vehicle},32,Rome".encode())
    config = configured(tmp_path, vehicle="car")
    (_, _, names), quality = config.read()
    assert names == ["a", "c", "d"]
    assert (quality.malformed, quality.left_out) == (0, 1)
    assert answered(config, tmp_path) == (3, {"a", "c", "d"})


def test_texts_may_have_several_lines(tmp_path):
    written(tmp_path, b'b,"32","Ro\nme"')
    (_, matrix, names), quality = configured(tmp_path, vehicle="car").read()
    assert names == ["a", "b", "c", "d"]
    assert (quality.malformed, quality["city"].unknown) == (0, 1)
    assert matrix[1, 0] == 32


def test_the_owner_is_told_and_not_what_it_says(tmp_path, caplog):
    written(tmp_path, b"b,Rome")
    config = configured(tmp_path, vehicle="car")
    with caplog.at_level(logging.WARNING):
        config._log_quality(config.check())
    assert "1 row malformed, so that all values are missing; line 3: the header" in caplog.text
    with pytest.raises(DomainError, match="1 row malformed"):
        config.check().refuse()


def test_a_malformed_line_keeps_the_choice_of_its_vehicle(tmp_path):
    """The epsilon of a vehicle is that of its other lines; without any, it answers no plan."""
    lines = ["car,speed,city,most", "a,31,Oslo,1.0", "b,32,Rome,1.0", "b,33", "c,34", "d,35,Rome,"]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    config = configured(tmp_path, vehicle="car", epsilons="most")
    (_, _, names), _ = config.read()
    assert names == ["a", "b", "c", "d"]
    assert config.epsilons(4) == [1, 1, 0, 0]
    assert answered(config, tmp_path) == (2, {"a", "b"})


def test_many_open_quotation_marks_are_read_once_each(tmp_path):
    lines = [GOOD[0], *(f'car {number},"{number},Oslo' for number in range(3000))]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    (_, _, names), quality = configured(tmp_path, vehicle="car").read()
    assert (len(names), quality.malformed) == (3000, 3000)


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_files_without_faults_are_read_as_ever(tmp_path, rows):
    text = '\ufeffcar,"city, land"\r\na,"Oslo, ""N""\r\nx"\r\n\r\nb,\nc,Rom\u00e9'
    path = tmp_path / "rows.csv"
    path.write_bytes(text.encode())
    for chunk, other in zip(
        frames.read(path, rows), frames.read(path, rows, tolerant=True), strict=True
    ):
        assert chunk[:2] == other[:2]
        assert not other.malformed


def test_a_cell_of_parquet_that_cannot_be_read_is_no_value(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    cities = pa.array([b"Oslo", b"R\xf6me", b"Rome"]).cast(pa.binary()).view(pa.string())
    table = pa.table({"speed": [31.0, 32.0, 33.0], "city": cities})
    parquet.write_table(table, tmp_path / "rows.parquet")
    config = configured(tmp_path, data="rows.parquet")
    (_, matrix, _), quality = config.read()
    assert matrix[:, 0].tolist() == [31, 32, 33]
    assert matrix[[0, 2], 1].tolist() == [0, 1]
    assert quality["city"].unknown == 1


def test_simulations_refuse_malformed_lines(tmp_path):
    written(tmp_path, b"b,32")
    with pytest.raises(DomainError, match="line 3: the header has 3 fields"):
        list(frames.read(tmp_path / "rows.csv"))
