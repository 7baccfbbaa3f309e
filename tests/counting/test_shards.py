"""Files in an object store count as files on disk do; `make test-engines` has a real one."""

import pickle
import shutil
from urllib.parse import unquote

import pytest
from engine_shards import PLAN, packets
from pyarrow import fs

from fedldp import Manifest
from fedldp.counting import shards
from fedldp.errors import DomainError


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Keep a bucket "fleet" in a folder; the addresses that are opened are listed."""
    opened = []

    def open_store(address):
        opened.append(address)
        system = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
        return system, unquote(address.partition("?")[0].removeprefix("s3://"))

    monkeypatch.setattr(shards, "_opened_store", open_store)
    folder = tmp_path / "fleet/reports"
    for number, name in enumerate(["a/1.bin", "a/2.bin", "b/1.bin", "b/c/3.bin", "b/_log", ".x"]):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(packets(PLAN, 10 + number, seed=number)))
    return opened


def names(address):
    return [each.name.removeprefix("s3://fleet/reports/") for each in shards.find(address)]


EVERY = ["a/1.bin", "a/2.bin", "b/1.bin", "b/c/3.bin"]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("s3://fleet/reports", EVERY),
        ("s3://fleet/reports/", EVERY),
        ("s3://fleet/reports/b", ["b/1.bin", "b/c/3.bin"]),
        ("s3://fleet/reports/a/2.bin", ["a/2.bin"]),
        ("s3://fleet/reports/*/1.bin", ["a/1.bin", "b/1.bin"]),
        ("s3://fleet/reports/*/*.bin", ["a/1.bin", "a/2.bin", "b/1.bin"]),
        ("s3://fleet/reports/**/*.bin", EVERY),
        ("s3://fleet/reports/b/**/3.bin", ["b/c/3.bin"]),
        ("s3://fleet/rep*/b/c", ["b/c/3.bin"]),
        ("s3://fleet/*", EVERY),
        ("s3://fleet/reports/b*", ["b/1.bin", "b/c/3.bin"]),
        ("s3://fleet/reports/c", None),
        ("s3://fleet/reports/*.csv", None),
    ],
)
def test_files_folders_and_patterns(address, expected):
    if expected is None:
        with pytest.raises(DomainError, match=r"there is no file and no folder|no file matches"):
            names(address)
    else:
        assert names(address) == expected


def test_stored_files_count_as_files_do(store, tmp_path):
    found = PLAN.count("s3://fleet/reports/**/*.bin?region=oslo")
    local = PLAN.count(tmp_path / "fleet/reports")
    assert found.tally == local.tally
    assert len(found.manifest) == 4
    path = str(tmp_path)
    expected = {name.replace(path, "s3:/"): it for name, it in local.manifest.shards.items()}
    assert found.manifest == Manifest(expected)  # the options are not part of a name
    assert store == ["s3://fleet/reports?region=oslo"]
    with pytest.raises(DomainError, match="would count twice"):
        found + PLAN.count("s3://fleet/reports/a/1.bin")


@pytest.mark.usefixtures("store")
def test_an_address_is_enough_for_another_machine():
    for shard in shards.find("s3://fleet/reports?region=oslo"):
        assert shard.address == f"{shard.name}?region=oslo"
        (same,) = shards.find(pickle.loads(pickle.dumps(shard.address)))
        assert (same.name, same.size, same.digest()) == (shard.name, shard.size, shard.digest())
        assert len(shard.beginning()) == 16


@pytest.mark.usefixtures("store")
def test_a_stored_file_that_changed_is_refused(tmp_path, monkeypatch):
    (shard,) = shards.find("s3://fleet/reports/a/1.bin")
    copy = shutil.copyfileobj

    def and_change(*arguments):
        copy(*arguments)
        (tmp_path / "fleet/reports/a/1.bin").write_bytes(b"".join(packets(PLAN, 3, seed=1)))

    monkeypatch.setattr(shutil, "copyfileobj", and_change)
    with pytest.raises(DomainError, match=r"a/1\.bin changed while it was read"):
        shard.digest()


@pytest.mark.usefixtures("store")
def test_every_way_to_write_an_address_gives_one_name(tmp_path):
    odd = "a #1?*%=ü.bin"
    (tmp_path / "fleet/odd").mkdir()
    (tmp_path / "fleet/odd" / odd).write_bytes(b"".join(packets(PLAN, 3, seed=1)))
    (listed,) = shards.find("s3://fleet/odd")
    assert listed.name == "s3://fleet/odd/a%20%231%3F%2A%25=%C3%BC.bin"
    for same in (listed.address, listed.name.replace("=", "%3D"), "s3://fleet/odd/a*.bin"):
        (found,) = shards.find(same)
        assert (found.name, found.digest()) == (listed.name, listed.digest())
    assert shards._SCHEME_ALIASES["gcs"] == "gs"


@pytest.mark.usefixtures("store")
def test_a_stored_tally_must_be_copied_first():
    (shard,) = shards.find("s3://fleet/reports/a/1.bin")
    with pytest.raises(DomainError, match=r"a tally must be a file on this machine.*; got s3://"):
        _ = shard.local


def test_a_password_is_never_part_of_a_name():
    with pytest.raises(DomainError, match="must not hold a password; that of bucket does") as error:
        shards.find("s3://key:secret@bucket/reports")
    assert "secret" not in str(error.value)


@pytest.mark.usefixtures("store")
def test_a_question_mark_is_no_pattern():
    with pytest.raises(DomainError, match=r"begins the options of an address.*; got '\.bin'"):
        shards.find("s3://fleet/reports/a/?.bin")


def test_an_unknown_kind_of_address():
    with pytest.raises(DomainError, match="an address must begin with s3://, gs://"):
        shards.find("gopher://fleet/reports")


def test_a_file_has_one_name(tmp_path):
    path = tmp_path / "a file.bin"
    path.touch()
    found = [shards.find(each)[0] for each in (path, str(path), f"file://{tmp_path}/a%20file.bin")]
    assert len({each.name for each in found}) == 1
