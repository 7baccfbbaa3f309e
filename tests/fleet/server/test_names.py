"""Gateways have the names of their keys' files, also after they were revoked."""

from fedldp.fleet.server import names


def test_names_are_kept(tmp_path):
    called = names.lookup(tmp_path)
    assert called("7") == "gateway 7"
    names.keep(tmp_path, {"7": "depot"})
    names.keep(tmp_path, {"8": "gateway-1"})
    assert (called("7"), called("8"), called("9")) == ("depot", "gateway-1", "gateway 9")


def test_the_file_is_written_only_if_something_is_new(tmp_path):
    names.keep(tmp_path, {"7": "depot"})
    before = (tmp_path / names.FILE).stat().st_ino
    names.keep(tmp_path, {"7": "depot"})
    assert (tmp_path / names.FILE).stat().st_ino == before


def test_without_a_readable_file_nodes_have_numbers(tmp_path):
    (tmp_path / names.FILE).write_text("damaged")
    assert names.lookup(tmp_path)("7") == "gateway 7"
    names.keep(tmp_path, {"7": "depot"})
    assert names.lookup(tmp_path)("7") == "depot"
