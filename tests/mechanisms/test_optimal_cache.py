"""What linear programs find is kept in files, and checked again when it is read."""

import json
from fractions import Fraction

import pytest

from fedldp._internal import cache
from fedldp.coders.channel import Channel
from fedldp.mechanisms import PM, Dominant, Duchi, NearZero, Optimal
from fedldp.mechanisms.optimal import search
from fedldp.mechanisms.optimal.certificate import certificate
from fedldp.mechanisms.optimal.search import four_outputs


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLDP_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    four_outputs.cache_clear()  # whatever a test has put there


@pytest.mark.parametrize("kind", [Optimal, Dominant, NearZero])
def test_what_was_found_is_kept_and_checked(folder, monkeypatch, kind):
    first = kind(1.0, outputs=7).channel()
    (path,) = folder.iterdir()
    monkeypatch.setattr(kind, "_find", None)  # nothing may be computed again
    assert kind(1.0, outputs=7).channel() == first
    with pytest.raises(TypeError):
        kind(1.0, outputs=8).channel()
    assert Channel.from_json(json.loads(path.read_text())["channel"]) == first


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    """Return a mechanism that was found, and the file that it was kept in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLDP_CACHE", str(tmp_path_factory.mktemp("solved")))
        channel = Dominant(1.0, outputs=7).channel()
        (path,) = cache.directory().iterdir()
        return channel, path


@pytest.mark.parametrize(
    "damage",
    ["", "{}", "[1]", "\0", "[" * 200_000, "tampered", "other epsilon", "large", "factor"],
)
def test_a_damaged_file_is_found_out(folder, solved, damage):
    first, kept = solved
    document = json.loads(kept.read_text())
    if damage == "tampered":
        channel = json.loads(document["channel"])
        channel["counts"][0][0] = str(int(channel["counts"][0][0]) + 10**15)
        channel["counts"][0][1] = str(int(channel["counts"][0][1]) - 10**15)
        document["channel"] = json.dumps(channel)
        damage = json.dumps(document)
    elif damage == "other epsilon":
        document["channel"] = Duchi(2.0).channel().to_json()
        damage = json.dumps(document)
    elif damage == "large":
        document["channel"] = PM(1.0).channel(outputs=31).to_json()
        damage = json.dumps(document)
    elif damage == "factor":
        damage = json.dumps({**document, "factor": 0.1})
    folder.mkdir()
    (folder / kept.name).write_text(damage)
    assert Dominant(1.0, outputs=7).channel() == first
    assert Dominant(1.0, outputs=7).factor > 0.9  # as it was kept again


def test_certificates_are_kept_and_checked(folder):
    first = certificate(0.77)
    (path,) = folder.iterdir()
    pitch, (alpha, lam, mu, x), *others = json.loads(path.read_text())
    certificate.cache_clear()
    assert certificate(0.77) == first
    forged = [alpha, lam, str(Fraction(mu) + 1), x]
    for text in (json.dumps([pitch, forged, *others]), "[", "[1/0]", '["1/0"]', "{}"):
        path.write_text(text)
        certificate.cache_clear()
        assert certificate(0.77) == first


def test_four_outputs_are_kept_and_checked(folder, tmp_path, monkeypatch):
    """What is found is tested in test_optimal.py; here any channel with four outputs will do."""
    with monkeypatch.context() as patch:
        patch.setenv("FEDLDP_CACHE", str(tmp_path / "another"))
        first = Optimal(1.0, outputs=4).channel()
    four_outputs.cache_clear()
    monkeypatch.setattr(search, "_four_outputs", {1.0: first}.__getitem__)
    assert four_outputs(1.0) == first
    (path,) = folder.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(search, "_four_outputs", None)  # nothing may be computed again
        four_outputs.cache_clear()
        assert four_outputs(1.0) == first
    others = [Duchi(2.0).channel(), PM(1.0).channel(outputs=31)]
    for text in ("", "[" * 200_000, "{}", *(each.to_json() for each in others)):
        path.write_text(text)
        four_outputs.cache_clear()
        assert four_outputs(1.0) == first
        assert Channel.from_json(path.read_text()) == first


def test_works_where_nothing_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDLDP_CACHE", str(tmp_path / "file" / "below"))
    assert Optimal(1.0, outputs=7).channel().outputs <= 7
    assert cache.load("anything") is None


def test_usual_place(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDLDP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache.save("key", "text")
    assert cache.load("key") == "text"
    assert cache.directory() == tmp_path / "fedldp"
