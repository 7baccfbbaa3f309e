"""Spark counts as the library does, also while its executors are killed."""

import doctest
import os
import sys

import engine_faults
import pytest
from engine_shards import OTHER, PLAN
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from fedldp.counting.engines import spark
from fedldp.errors import DataWarning, DomainError

pytestmark = pytest.mark.engines


INHERITED = (engine_faults.FOLDER, engine_faults.KIND, "PYTHONPATH")
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "OFF",
}


@pytest.fixture(scope="module")
def start():
    """Start two executors, each a process of Java that starts processes of Python.

    They are used again as long as the environment, which decides about faults, is the same.
    """
    running = {}
    os.environ["PYSPARK_PYTHON"] = sys.executable  # which Spark asks for, whatever its settings say

    def session():
        environment = {f"spark.executorEnv.{name}": os.environ.get(name, "") for name in INHERITED}
        if running.get("environment") != environment:
            stop()
            builder = SparkSession.builder.master("local-cluster[2,1,1024]")
            builder = builder.config(map=SETTINGS | environment)
            running.update(environment=environment, session=builder.getOrCreate())
        return running["session"]

    def stop():
        if running:
            running["session"].stop()

    yield session
    stop()


@pytest.fixture
def session(start):
    return start()


@pytest.mark.usefixtures("session")
def test_the_result_is_that_of_the_library(shards):
    found = spark.count_files(shards.plan, shards.folder)
    assert found == shards.found
    assert found.to_bytes() == shards.found.to_bytes()


def test_a_file_that_is_named_twice_counts_once(session, shards):
    twice = [shards.folder, f"file://{shards.folder}/plain.bin"]
    with pytest.warns(DataWarning, match="1 file named more than once: each file counts once"):
        assert spark.count_files(shards.plan, twice, session=session) == shards.found


@pytest.mark.usefixtures("session")
def test_only_new_files_are_counted(shards):
    first = spark.count_files(shards.plan, shards.folder / "day=0")
    rest = spark.count_files(shards.plan, shards.folder, known=first.manifest)
    assert first + rest == shards.found
    nothing = spark.count_files(shards.plan, shards.folder, known=shards.found.manifest)
    assert (nothing.tally.reports, len(nothing.manifest)) == (0, 0)


@pytest.mark.usefixtures("session")
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(shards, tmp_path):
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(PythonException, match=r"broken\.parquet cannot be read as a Parquet"):
        spark.count_files(shards.plan, tmp_path)


def test_a_frame_counts_as_in_the_library(session, shards):
    frame = session.read.parquet(str(shards.folder / "*/*.parquet"))
    found, expected = (
        spark.count_packets(shards.plan, frame),
        shards.plan.count(f"{shards.folder}/*/*.parquet"),
    )
    assert (found.tally, found.packets, found.refused) == (
        expected.tally,
        expected.packets,
        expected.refused,
    )
    assert (len(found.manifest), found.listed) == (0, ())
    one = session.createDataFrame([(1, each) for each in shards.packets], "id int, `a.b c` binary")
    some = spark.count_packets(PLAN, one.repartition(50), column="a.b c")
    assert some.tally == shards.found.tally
    assert spark.count_packets(PLAN, one.limit(0)) == PLAN.count([])
    assert spark.count_packets(OTHER, one).tally == OTHER.count(shards.packets).tally
    with pytest.raises(DomainError, match="no binary column 'id'"):
        spark.count_packets(PLAN, one, column="id")


@pytest.mark.parametrize("faults", ["die", "kill the executor"], indirect=True)
def test_killed_executors_change_nothing(faults, shards, start):
    """Each of three files kills its executor once, when it is counted and nobody knows it."""
    found = spark.count_files(shards.plan, shards.folder, session=start())
    assert faults.happened()
    assert found.to_bytes() == shards.found.to_bytes()


@pytest.mark.usefixtures("session")
def test_the_examples():
    found = doctest.testmod(spark)
    assert found.attempted
    assert not found.failed
