"""Beam counts as the library does, also if bundles are repeated and merged in any order."""

import doctest
import logging
import random

import apache_beam as beam
import engine_faults
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from engine_shards import PLAN

import fedldp.counting.engines.beam
from fedldp import Counted
from fedldp.counting.engines._work import Work
from fedldp.counting.engines.beam import CountFiles, CountPackets, _Combine
from fedldp.errors import DataWarning, DomainError

pytestmark = pytest.mark.engines

# DirectRunner would look for Prism, a program of Beam's that is not part of the package.
TWO_PROCESSES = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]
RUNNERS = {
    "FnApiRunner": ("FnApiRunner", []),
    "two processes": ("FnApiRunner", TWO_PROCESSES),
    "bundles": ("BundleBasedDirectRunner", []),
}


def run(given, transform, path, runner="FnApiRunner"):
    name, options = RUNNERS[runner]

    def keep(found, path=str(path)):
        with open(path, "xb") as file:  # noqa: PTH123 (once: an element more is an error)
            file.write(found.to_bytes())

    with beam.Pipeline(name, PipelineOptions(options)) as pipeline:
        _ = pipeline | beam.Create(given) | transform | beam.Map(keep)
    return Counted.from_bytes(path.read_bytes(), PLAN)


@pytest.mark.parametrize("runner", RUNNERS)
def test_files_count_as_in_the_library(runner, shards, tmp_path):
    found = run([str(shards.folder)], CountFiles(PLAN), tmp_path / "found", runner)
    assert found == shards.found
    assert (tmp_path / "found").read_bytes() == shards.found.to_bytes()


@pytest.mark.parametrize("runner", RUNNERS)
def test_packets_count_as_in_the_library(runner, shards, tmp_path):
    found = run(shards.packets, CountPackets(PLAN), tmp_path / "found", runner)
    expected = PLAN.count(shards.packets)
    assert (found.tally, found.packets, found.refused) == (
        expected.tally,
        expected.packets,
        expected.refused,
    )
    assert (len(found.manifest), found.listed) == (0, ())


def test_a_file_that_occurs_twice_counts_once(shards, tmp_path, caplog):
    twice = [f"{shards.folder}/day=*/*.parquet", str(shards.folder), f"{shards.folder}/plain.bin"]
    with caplog.at_level(logging.WARNING):
        assert run(twice, CountFiles(PLAN), tmp_path / "found") == shards.found
    said = [each for each in caplog.messages if "named more than once" in each]
    assert len(said) == len(shards.found.manifest) - 1  # all but empty.bin


def test_nothing_is_an_empty_result(tmp_path):
    assert run([], CountFiles(PLAN), tmp_path / "files") == PLAN.count([])
    assert run([], CountPackets(PLAN), tmp_path / "packets") == PLAN.count([])


@pytest.mark.parametrize("faults", ["fail"], indirect=True)
def test_a_bundle_that_is_repeated_changes_nothing(faults, shards, tmp_path, monkeypatch):
    engine_faults.install(monkeypatch.setattr)
    found = run([str(shards.folder)], CountFiles(PLAN), tmp_path / "found", "bundles")
    assert faults.happened()
    assert found == shards.found


def test_accumulators_merge_in_any_order(shards):
    combine = _Combine(Work.of(PLAN, most_listed=1000), Work.counted_file)
    rng = random.Random(1)
    for _ in range(10):
        names = list(shards.found.manifest.shards)
        rng.shuffle(names)
        some = [combine.create_accumulator() for _ in range(rng.randrange(1, 20))]
        for name in names:
            place = rng.randrange(len(some))
            some[place] = combine.add_input(some[place], name)
            if rng.random() < 0.2:
                some[place] = combine.compact(some[place])
        while len(some) > 1:
            rng.shuffle(some)
            count = rng.randrange(1, len(some) + 1)
            some = [combine.merge_accumulators(some[:count]), *some[count:]]
        assert combine.extract_output(some[0]) == shards.found


def test_a_result_that_is_delivered_twice_is_refused(shards):
    """No runner may do that; if one does, nothing is counted twice."""
    combine = _Combine(Work.of(PLAN), Work.counted_file)
    one, two = (
        [combine._work.counted_file(name)] for name in list(shards.found.manifest.shards)[:2]
    )
    both = combine.compact(combine.merge_accumulators([one, two]))
    with pytest.raises(DomainError, match="1 shard would count twice"):
        combine.compact(combine.merge_accumulators([both, two]))


def test_copies_are_told(shards, tmp_path):
    original = shards.folder / "plain.bin"
    (tmp_path / "copy.bin").write_bytes(original.read_bytes())
    with pytest.warns(DataWarning, match="1 file with the contents of another one"):
        run([str(original), str(tmp_path / "copy.bin")], CountFiles(PLAN), tmp_path / "found")


def test_the_examples():
    found = doctest.testmod(fedldp.counting.engines.beam)
    assert found.attempted
    assert not found.failed
