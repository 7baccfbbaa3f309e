"""Downloads, from a server on this machine: good, tampered with, cut short, gone."""

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from fedldp import datasets
from fedldp.errors import DomainError
from fedldp_reproduction.datasets import wisdm
from fedldp_reproduction.datasets.download import Download, fetch, present

CONTENT = bytes(range(256)) * 1000


def sha256(content):
    return hashlib.sha256(content).hexdigest()


class Site:
    """What the server gives: for each path the bytes, and the length that it claims."""

    def __init__(self):
        self.pages = {}
        self.asked = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                site.asked.append(self.path)
                if self.path not in site.pages:
                    self.send_error(404)
                    return
                content, length = site.pages[self.path]
                self.send_response(200)
                if length is not None:
                    self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def put(self, path, content, length=-1):
        self.pages[path] = content, len(content) if length == -1 else length
        return self.address + path


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    found = Site()
    thread = Thread(target=found.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLDP_CACHE", str(tmp_path))
    return tmp_path / "datasets"


def left(cache):
    return sorted(path.name for path in cache.iterdir()) if cache.exists() else []


def pinned(site, content=CONTENT, **changes):
    url = site.put("/file", content)
    return replace(Download(url, "file.bin", size=len(CONTENT), sha256=sha256(CONTENT)), **changes)


def test_a_good_download_is_kept_and_not_fetched_twice(site, cache):
    download, seen = pinned(site), []
    assert present(download) is None
    path = fetch(download, lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert left(cache) == ["file.bin"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert len(seen) > 1
    assert fetch(download) == path == present(download)
    assert site.asked == ["/file"]


@pytest.mark.parametrize(
    ("content", "length", "complaint"),
    [
        (CONTENT[:-1] + b"x", -1, "its SHA-256 is"),
        (CONTENT[:-1], -1, "its size is 255999, not 256000"),
        (CONTENT[:1000], len(CONTENT), "its size is 1000, not 256000"),  # the connection broke
        (CONTENT[:1000], None, "its size is 1000, not 256000"),
        (CONTENT * 100, None, "its size is"),
        (b"", -1, "its size is 0"),
    ],
)
def test_what_is_not_the_file_leaves_nothing_behind(site, cache, content, length, complaint):
    download = pinned(site)
    site.put("/file", content, length)
    with pytest.raises(DomainError, match=complaint) as caught:
        fetch(download)
    assert "--path" in str(caught.value)
    assert left(cache) == []


def test_a_file_without_end_is_not_read_to_its_end(site):
    download, seen = pinned(site), []
    site.put("/file", CONTENT * 100, None)
    with pytest.raises(DomainError):
        fetch(download, lambda *progress: seen.append(progress))
    assert max(seen)[0] <= len(CONTENT)


def test_a_page_that_is_gone_is_said(site, cache):
    download = replace(pinned(site), url=site.address + "/gone")
    with pytest.raises(DomainError, match=r"/gone cannot be had: the server says 404"):
        fetch(download)
    assert left(cache) == []


def test_a_server_that_is_not_reached_is_said(site, cache):
    download = pinned(site, url="http://127.0.0.1:1/file")  # nobody listens there
    with pytest.raises(DomainError, match=r"127\.0\.0\.1:1/file cannot be reached") as caught:
        fetch(download)
    assert "offline" in str(caught.value)
    assert "get file.bin elsewhere and give it with --path" in str(caught.value)
    assert left(cache) == []


def test_a_file_that_was_changed_here_is_refused(site):
    download = pinned(site)
    fetch(download).write_bytes(b"changed")
    with pytest.raises(DomainError, match="was changed"):
        present(download)
    with pytest.raises(DomainError, match="was changed"):
        fetch(download)


def test_without_a_published_checksum_the_first_download_counts(site, cache):
    download = pinned(site, size=None, sha256=None)
    path = fetch(download)
    assert left(cache) == ["file.bin", "file.bin.sha256"]
    path.write_bytes(b"changed here")
    with pytest.raises(DomainError, match="was changed"):
        present(download)
    path.unlink()
    assert fetch(download).read_bytes() == CONTENT
    path.unlink()
    site.put("/file", b"changed there")
    with pytest.raises(DomainError, match=r"Or delete .*file\.bin\.sha256"):
        fetch(download)
    assert left(cache) == ["file.bin.sha256"]
    download.pin.unlink()
    assert fetch(download).read_bytes() == b"changed there"


def test_a_broken_connection_is_no_first_download(site, cache):
    download = pinned(site, size=None, sha256=None)
    site.put("/file", CONTENT[:1000], len(CONTENT))
    with pytest.raises(DomainError, match="its size is 1000, not 256000") as caught:
        fetch(download)
    assert "delete" not in str(caught.value)  # there is nothing to delete
    assert left(cache) == []


def described(site, **changes):
    page = json.dumps({"data_set_description": {"url": site.put("/file", CONTENT)}, **changes})
    return Download(site.put("/357", page.encode()), "file.bin", described=True)


def test_a_description_leads_to_the_file(site, cache):
    assert fetch(described(site)).read_bytes() == CONTENT
    assert left(cache) == ["file.bin", "file.bin.sha256"]
    assert site.asked == ["/357", "/file"]


@pytest.mark.parametrize(
    ("description", "complaint"),
    [
        (b"<html>", "gave no description"),
        (b"[1]", "gave no description"),
        (b"{}", "gave no description"),
        (b'{"data_set_description": {"url": "file:///etc/passwd"}}', "is no web address"),
    ],
)
def test_a_description_that_is_none_is_refused(site, cache, description, complaint):
    download = described(site)
    site.put("/357", description)
    with pytest.raises(DomainError, match=complaint):
        fetch(download)
    assert left(cache) == []


def archive(members):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as opened:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            opened.addfile(entry, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)


RAW = b"33,Jogging,49105962326000,-0.7,12.5,0.5;\n"
MEMBERS = {"../evil.txt": b"x", "WISDM/readme.txt": b"x", "WISDM/WISDM_ar_v1.1_raw.txt": RAW}


def like_wisdm(site, content, member=RAW):
    return replace(
        wisdm.DOWNLOAD,
        url=site.put("/wisdm", content),
        size=len(content),
        sha256=sha256(content),
        member_sha256=sha256(member),
    )


def test_of_an_archive_the_named_file_alone_is_kept(site, cache):
    path = fetch(like_wisdm(site, archive(MEMBERS)))
    assert path.read_bytes() == RAW
    assert left(cache) == ["WISDM_ar_v1.1_raw.txt"]
    assert left(cache.parent) == ["datasets"]
    assert len(datasets.load("wisdm", path)) == 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (archive({"readme.txt": b"x"}), r"holds no WISDM_ar_v1\.1_raw\.txt"),
        (archive({"WISDM_ar_v1.1_raw.txt": b"other"}), r"SHA-256 of WISDM_ar_v1\.1_raw\.txt"),
        (archive(MEMBERS)[:60], "is no archive"),
        (b"no archive", "is no archive"),
    ],
    ids=["without it", "another", "cut short", "no archive"],
)
def test_an_archive_with_something_else_leaves_nothing_behind(site, cache, content, complaint):
    with pytest.raises(DomainError, match=complaint):
        fetch(like_wisdm(site, content))
    assert left(cache) == []


def test_what_is_pinned_is_what_the_registry_has():
    assert datasets.origin("wisdm").download == wisdm.DOWNLOAD
    assert (wisdm.DOWNLOAD.size, wisdm.DOWNLOAD.sha256[:8]) == (11_404_612, "e5737912")
    assert datasets.origin("vehicle").download.described
    assert datasets.origin("flights").download is None


def test_what_is_not_here_says_how_to_get_it():
    with pytest.raises(DomainError, match=r"`fedldp data fetch wisdm`, or give its file"):
        datasets.load("wisdm")
    with pytest.raises(DomainError, match="wisdm2019 cannot be fetched: you get its file"):
        datasets.fetch("wisdm2019")
    with pytest.raises(DomainError, match="flights cannot be fetched: it is here"):
        datasets.fetch("flights")


def test_what_was_fetched_is_loaded(site, monkeypatch):
    download = like_wisdm(site, archive(MEMBERS))
    entry = datasets._ENTRIES["wisdm"]
    origin = replace(entry.origin, download=download)
    monkeypatch.setitem(datasets._ENTRIES, "wisdm", entry._replace(origin=origin))
    assert datasets.origin("wisdm").available == "to fetch"
    datasets.fetch("wisdm")
    assert datasets.origin("wisdm").available == "fetched"
    assert datasets.load("wisdm").matrix()[0, 1] == 12.5
