"""DuckDB counts as the library does."""

import doctest

import duckdb
import pyarrow as pa
import pytest
from engine_shards import PLAN

import fedldp.counting.engines.duckdb
from fedldp.counting.engines.duckdb import count_packets
from fedldp.errors import DomainError

pytestmark = pytest.mark.engines


def same(found, expected):
    assert (found.tally, found.packets, found.refused) == (
        expected.tally,
        expected.packets,
        expected.refused,
    )
    assert found.tally.to_bytes() == expected.tally.to_bytes()
    assert (len(found.manifest), found.listed) == (0, ())  # DuckDB does not say which files


@pytest.mark.parametrize("threads", [None, 1, 2, 5])
def test_the_result_is_that_of_the_library(threads, shards):
    relation = duckdb.sql(f"SELECT * FROM '{shards.folder}/*/*.parquet'")
    expected = shards.plan.count(f"{shards.folder}/*/*.parquet")
    same(count_packets(shards.plan, relation, threads=threads), expected)


def test_a_query_chooses_packets(shards):
    name = shards.folder / "day=0/part-000.parquet"
    relation = duckdb.sql(f"SELECT packet FROM '{name}' WHERE id < 77")
    same(count_packets(PLAN, relation), PLAN.count(shards.packets[:77]))


def test_a_table_of_a_database(shards):
    table = pa.table({"packet": pa.array(shards.packets, pa.binary())})
    with duckdb.connect() as database:
        database.register("given", table)
        database.execute("CREATE TABLE reports AS SELECT packet FROM given")
        same(count_packets(PLAN, database.table("reports")), PLAN.count(shards.packets))


def test_the_column_is_the_only_blob_or_named():
    packet = PLAN.count([])  # nothing: only names matter here
    relation = duckdb.sql("""SELECT ''::BLOB AS a, ''::BLOB AS "b ""x"".y", 7 AS c""")
    with pytest.raises(DomainError, match="must have one binary column; this one has 2"):
        count_packets(PLAN, relation)
    with pytest.raises(DomainError, match="no binary column 'c'"):
        count_packets(PLAN, relation, column="c")
    found = count_packets(PLAN, relation, column='b "x".y')
    assert (found.tally, found.refused) == (packet.tally, {"length": 1})


def test_the_number_of_threads_is_positive():
    with pytest.raises(DomainError, match="threads must be at least 1; got 0"):
        count_packets(PLAN, duckdb.sql("SELECT ''::BLOB"), threads=0)


def test_an_error_in_the_query_is_raised():
    relation = duckdb.sql("SELECT error('no such day')::BLOB AS packet FROM range(10)")
    with pytest.raises(duckdb.Error, match="no such day"):
        count_packets(PLAN, relation)


def test_the_examples():
    found = doctest.testmod(fedldp.counting.engines.duckdb)
    assert found.attempted
    assert not found.failed
