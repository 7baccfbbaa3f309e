"""What all engines share, without an engine."""

import importlib
import pickle
import random
import sys

import pytest
from engine_shards import OTHER, PLAN

from fedldp import Manifest, Plan, Schema
from fedldp.counting.engines._work import Files, Work
from fedldp.errors import DataWarning, DomainError, MissingExtra, WireError
from fedldp.plan.strategies import Sample


@pytest.mark.parametrize("at_once", [1, 2, 5, 16])
def test_any_tree_of_sums_gives_the_same_bytes(at_once, shards):
    work = pickle.loads(pickle.dumps(Work.of(PLAN, most_listed=1000)))
    level = [work.counted_file(name) for name in shards.found.manifest.shards]
    random.Random(at_once).shuffle(level)
    while len(level) > 1:
        step = max(at_once, 2)
        level = [work.merge(level[i : i + step]) for i in range(0, len(level), step)]
    assert level[0] == shards.found.to_bytes()


def test_a_task_that_is_repeated_gives_the_same_bytes(shards):
    work, name = Work.of(PLAN), next(iter(shards.found.manifest.shards))
    first = work.counted_file(name)
    assert work.counted_file(name) == first
    with pytest.raises(DomainError, match="1 shard would count twice"):
        work.merge([work.merge([first]), first])


def test_results_of_another_plan_do_not_merge():
    with pytest.raises(WireError, match="belongs to another plan"):
        Work.of(OTHER).merge([Work.of(PLAN).counted([])])


def test_a_result_must_hold_the_files_that_were_asked_for(shards):
    wanted = Files.of(shards.folder)
    assert wanted.check(shards.found) is shards.found
    with pytest.raises(DomainError, match="each of 42 files once; it left out 28 and counted 0"):
        wanted.check(PLAN.count(shards.folder / "day=0"))
    with pytest.raises(DomainError, match="each of 14 files once; it left out 0 and counted 28"):
        Files.of(shards.folder / "day=0").check(shards.found)


def test_a_file_that_is_named_twice_is_found_once(shards, tmp_path):
    link = tmp_path / "link.bin"
    link.symlink_to(shards.folder / "plain.bin")
    with pytest.warns(DataWarning, match="1 file named more than once: each file counts once"):
        wanted = Files.of([shards.folder, link])
    assert wanted == Files.of(str(shards.folder))
    assert wanted.addresses.keys() == shards.found.manifest.shards.keys()
    some = PLAN.count(shards.folder / "day=1").manifest
    assert len(Files.of(shards.folder, some).addresses) == 42 - len(some)
    assert Files.of(shards.folder, Manifest()) == wanted


def test_copies_are_told(shards, tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.bin").write_bytes((shards.folder / "plain.bin").read_bytes())
    found = PLAN.count(tmp_path)
    with pytest.warns(DataWarning, match=r"2 files with the contents .*b\.bin = .*a\.bin, \.\.\."):
        Files.of(tmp_path).check(found)
    assert found.tally.reports == 3 * 50


def test_a_plan_for_study_is_refused_before_anything_is_sent():
    study = Plan(Schema.of(speed=(0, 50)), 1.0, Sample(mechanism="laplace", study=True))
    with pytest.raises(DomainError, match="a plan for study"):
        Work.of(study)
    with pytest.raises(DomainError, match="must not be negative"):
        Work.of(PLAN, most_listed=-1)


@pytest.mark.parametrize("name", ["dask", "pyspark"])
def test_a_missing_engine_is_named_with_its_extra(name, shards, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    engine = importlib.import_module(f"fedldp.counting.engines.{name.removeprefix('py')}")
    with pytest.raises(MissingExtra, match=rf"{name} is not installed.* pip install .*'{name}>="):
        engine.count_files(PLAN, shards.folder)


def test_beam_is_needed_to_import_its_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    monkeypatch.delitem(sys.modules, "fedldp.counting.engines.beam", raising=False)
    with pytest.raises(MissingExtra, match=r"pip install .*'apache-beam>="):
        importlib.import_module("fedldp.counting.engines.beam")
