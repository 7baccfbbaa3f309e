import os
import threading

import pytest

from fedldp.storage import files


def test_a_device_stays_what_it_is(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    files.write(pipe, "text")
    reader.join()
    assert read == ["text"]
    assert pipe.is_fifo()


def test_a_link_stays_a_link_and_nothing_else_is_left(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    files.write(tmp_path / "link", "new")
    assert (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "link").is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "link"]


def test_a_folder_is_refused_and_kept(tmp_path):
    with pytest.raises(IsADirectoryError):
        files.write(tmp_path, "text")
    assert tmp_path.is_dir()
