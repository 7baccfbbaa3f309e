"""Downloads, from a server on this machine: good, tampered with, cut short, gone."""

import gc
import gzip
import hashlib
import io
import json
import tarfile
import warnings
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from archives import nested, recordings
from origins import register

from fedldp import datasets
from fedldp.errors import DomainError
from fedldp_reproduction.datasets import wisdm, wisdm_files
from fedldp_reproduction.datasets.download import FileDownload

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
                with suppress(ConnectionError):  # who has seen enough goes away
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # pooch does not close the response of a download that failed


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLDP_CACHE", str(tmp_path))
    return tmp_path / "datasets"


def left(cache):
    return sorted(path.name for path in cache.iterdir()) if cache.exists() else []


def pinned(site, content=CONTENT, **changes):
    url = site.put("/file", content)
    return replace(
        FileDownload(url, "file.bin", size=len(CONTENT), sha256=sha256(CONTENT)), **changes
    )


def test_a_good_download_is_kept_and_not_fetched_twice(site, cache):
    download, seen = pinned(site), []
    assert download.present() is None
    path = download.fetch(lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert left(cache) == ["file.bin"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert len(seen) > 1
    assert download.fetch() == path == download.present()
    assert site.asked == ["/file"]


@pytest.mark.parametrize(
    ("content", "length", "complaint"),
    [
        (CONTENT[:-1] + b"x", -1, "does not match the known hash"),
        (CONTENT[:-1], -1, "does not match the known hash"),
        (CONTENT[:1000], len(CONTENT), "cannot be downloaded: .*1000 bytes read"),  # it broke
        (CONTENT[:1000], None, "does not match the known hash"),
        (CONTENT * 100, None, "it has more than 256000 bytes"),
        (b"", -1, "does not match the known hash"),
    ],
)
def test_what_is_not_the_file_leaves_nothing_behind(site, cache, content, length, complaint):
    download = pinned(site)
    site.put("/file", content, length)
    with pytest.raises(DomainError, match=complaint) as caught:
        download.fetch()
    assert "--path" in str(caught.value)
    assert left(cache) == []


def test_a_file_without_end_is_not_read_to_its_end(site):
    download, seen = pinned(site), []
    site.put("/file", CONTENT * 100, None)
    with pytest.raises(DomainError):
        download.fetch(lambda *progress: seen.append(progress))
    assert max(seen)[0] <= len(CONTENT)


def test_a_page_that_is_gone_is_said(site, cache):
    download = replace(pinned(site), url=site.address + "/gone")
    with pytest.raises(DomainError, match=r"/gone cannot be downloaded: 404"):
        download.fetch()
    assert left(cache) == []


def test_a_server_that_is_not_reached_is_said(site, cache):
    download = pinned(site, url="http://127.0.0.1:1/file")  # nobody listens there
    with pytest.raises(DomainError, match=r"127\.0\.0\.1:1/file cannot be downloaded") as caught:
        download.fetch()
    assert "offline" in str(caught.value)
    assert "get file.bin elsewhere and give it with --path" in str(caught.value)
    assert left(cache) == []


def test_a_file_that_was_changed_here_is_refused(site):
    download = pinned(site)
    download.fetch().write_bytes(b"changed")
    with pytest.raises(DomainError, match="was changed"):
        download.present()
    with pytest.raises(DomainError, match="was changed"):
        download.fetch()


def test_without_a_published_checksum_the_first_download_counts(site, cache):
    download = pinned(site, size=None, sha256=None)
    path = download.fetch()
    assert left(cache) == ["file.bin", "file.bin.sha256"]
    path.write_bytes(b"changed here")
    with pytest.raises(DomainError, match="was changed"):
        download.present()
    path.unlink()
    assert download.fetch().read_bytes() == CONTENT
    path.unlink()
    site.put("/file", b"changed there")
    with pytest.raises(DomainError, match=r"Or delete .*file\.bin\.sha256"):
        download.fetch()
    assert left(cache) == ["file.bin.sha256"]
    download.pin.unlink()
    assert download.fetch().read_bytes() == b"changed there"


def test_a_broken_connection_does_not_count_as_the_first_download(site, cache):
    download = pinned(site, size=None, sha256=None)
    site.put("/file", CONTENT[:1000], len(CONTENT))
    with pytest.raises(DomainError, match="1000 bytes read") as caught:
        download.fetch()
    assert "delete" not in str(caught.value)  # there is nothing to delete
    assert left(cache) == []


def described(site, **changes):
    page = json.dumps({"data_set_description": {"url": site.put("/file", CONTENT)}, **changes})
    return FileDownload(site.put("/357", page.encode()), "file.bin", described=True)


def test_a_description_leads_to_the_file(site, cache):
    assert described(site).fetch().read_bytes() == CONTENT
    assert left(cache) == ["file.bin", "file.bin.sha256"]
    assert site.asked == ["/357", "/file"]


@pytest.mark.parametrize(
    ("description", "complaint"),
    [
        (b"<html>", "not a description"),
        (b"[1]", "not a description"),
        (b"{}", "not a description"),
        (b'{"data_set_description": {"url": "file:///etc/passwd"}}', "is not a web address"),
    ],
)
def test_an_invalid_description_is_refused(site, cache, description, complaint):
    download = described(site)
    site.put("/357", description)
    with pytest.raises(DomainError, match=complaint):
        download.fetch()
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
MEMBER = "WISDM_ar_v1.1/WISDM_ar_v1.1_raw.txt"
MEMBERS = {"../evil.txt": b"x", "WISDM_ar_v1.1/readme.txt": b"x", MEMBER: RAW}


def like_wisdm(site, content, member=RAW):
    return replace(
        wisdm.DOWNLOAD,
        url=site.put("/wisdm", content),
        size=len(content),
        sha256=sha256(content),
        member_sha256=sha256(member),
    )


def test_of_an_archive_the_named_file_alone_is_kept(site, cache):
    path = like_wisdm(site, archive(MEMBERS)).fetch()
    assert path.read_bytes() == RAW
    assert left(cache) == ["WISDM_ar_v1.1_raw.txt"]
    assert left(cache.parent) == ["datasets"]
    assert len(datasets.load("wisdm", path)) == 1


def test_nothing_is_written_to_the_screen(site, capfd):
    pinned(site).fetch()
    like_wisdm(site, archive(MEMBERS)).fetch()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (archive({"readme.txt": b"x"}), r"one file WISDM_ar_v1\.1_raw\.txt; it has 0"),
        (archive({MEMBER: RAW, "other/" + MEMBER: RAW}), "it has 2"),
        (archive({MEMBER: b"other"}), r"SHA-256 of WISDM_ar_v1\.1_raw\.txt"),
        (archive(MEMBERS)[:60], "did not give the expected file"),
        (b"no archive", "did not give the expected file"),
    ],
    ids=["without it", "twice", "another", "cut short", "no archive"],
)
def test_an_archive_with_something_else_leaves_nothing_behind(site, cache, content, complaint):
    with pytest.raises(DomainError, match=complaint):
        like_wisdm(site, content).fetch()
    assert left(cache) == []


def test_what_is_pinned_is_what_the_registry_has():
    assert datasets.origin("wisdm").download == wisdm.DOWNLOAD
    assert (wisdm.DOWNLOAD.size, wisdm.DOWNLOAD.sha256[:8]) == (11_404_612, "e5737912")
    assert datasets.origin("vehicle").download.described
    assert datasets.origin("flights").download is None


def test_the_archive_of_2019_is_kept_as_it_came_first(site):
    """No checksum is known, and the address was not verified: what fails says so."""
    address = site.put("/wisdm2019", nested(recordings()))
    download = replace(wisdm_files.DOWNLOAD_2019, url=address)
    assert len(datasets.load("wisdm2019", download.fetch())) == 36
    assert download.pin.read_text("ascii") == sha256(site.pages["/wisdm2019"][0])
    download.path.unlink()
    site.put("/wisdm2019", b"another file")
    with pytest.raises(DomainError, match="did not give the expected file"):
        download.fetch()
    with pytest.raises(DomainError, match="The address was never verified: it may be wrong"):
        replace(download, url=f"{site.address}/gone").fetch()


def test_what_is_not_here_says_how_to_get_it():
    with pytest.raises(DomainError, match=r"`fedldp data fetch wisdm`, or give its file"):
        datasets.load("wisdm")
    with pytest.raises(DomainError, match="ipums cannot be fetched: get its file yourself"):
        datasets.fetch("ipums")
    with pytest.raises(DomainError, match="flights cannot be fetched: it is here"):
        datasets.fetch("flights")


def test_what_was_fetched_is_loaded(site, monkeypatch):
    download = like_wisdm(site, archive(MEMBERS))
    register(monkeypatch, wisdm=replace(wisdm.WISDM, download=download))
    assert datasets.origin("wisdm").available == "to fetch"
    datasets.fetch("wisdm")
    assert datasets.origin("wisdm").available == "fetched"
    assert datasets.load("wisdm").matrix()[0, 1] == 12.5
