"""Dask counts as the library does, bit for bit, also while workers are killed."""

import doctest

import dask
import pytest
from distributed import Client, LocalCluster
from engine_shards import OTHER, PLAN

from fedldp.counting.engines import dask as engine
from fedldp.errors import DataWarning, DomainError

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with two_workers() as client:
        yield client


def two_workers():
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    return Client(cluster, set_as_default=True)


def test_the_result_is_that_of_the_library(shards):
    found = engine.count_files(shards.plan, shards.folder)
    assert found == shards.found
    assert found.to_bytes() == shards.found.to_bytes()


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_any_scheduler(scheduler, shards):
    with dask.config.set(scheduler=scheduler):
        assert engine.count_files(shards.plan, shards.folder) == shards.found


def test_a_file_that_is_named_twice_counts_once(shards):
    twice = [shards.folder, str(shards.folder / "day=1/*.parquet"), shards.folder / "plain.bin"]
    with pytest.warns(DataWarning, match="14 files named more than once: each file counts once"):
        assert engine.count_files(shards.plan, twice) == shards.found


def test_only_new_files_are_counted(shards):
    first = engine.count_files(shards.plan, shards.folder / "day=0")
    rest = engine.count_files(shards.plan, shards.folder, known=first.manifest)
    assert len(first.manifest) + len(rest.manifest) == len(shards.found.manifest)
    assert first + rest == shards.found
    nothing = engine.count_files(shards.plan, shards.folder, known=shards.found.manifest)
    assert (nothing.tally.reports, len(nothing.manifest)) == (0, 0)


def test_few_of_many_refused_packets_are_listed(shards):
    few = engine.count_files(shards.plan, shards.folder, most_listed=7)
    assert few.listed == shards.found.listed[:7]
    assert few.refused == shards.found.refused


def test_another_plan_and_another_column(shards):
    found = engine.count_files(OTHER, shards.folder, column="packet")
    assert found == OTHER.count(shards.folder)
    with pytest.raises(DomainError, match="no binary column 'id'"):
        engine.count_files(PLAN, shards.folder, column="id")


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(shards, tmp_path):
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(DomainError, match=r"broken\.parquet cannot be read as a Parquet file"):
        engine.count_files(shards.plan, [shards.folder, tmp_path])


@pytest.mark.parametrize("faults", ["die", "fail"], indirect=True)
def test_workers_that_die_or_fail_change_nothing(faults, shards):
    """Each of three files kills its worker once, when it is counted and nobody knows it."""
    with two_workers(), dask.annotate(retries=2):
        found = engine.count_files(shards.plan, shards.folder)
    assert faults.happened()
    assert found.to_bytes() == shards.found.to_bytes()


def test_the_examples():
    found = doctest.testmod(engine)
    assert found.attempted
    assert not found.failed
