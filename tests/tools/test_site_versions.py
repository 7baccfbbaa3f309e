"""Sites of several versions lie in one folder, which leads to the newest."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from browser import browser

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "site" / "versions.py"
TINY = "site_name: tiny\ntheme: {name: material, font: false}\nuse_directory_urls: false\n"


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("versions", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_newest_version_comes_first_and_earlier_ones_stay(tool, tmp_path):
    for name in ("0.9", "notes", "0.10"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(name, "utf-8")
        if name != "notes":
            tool.write(tmp_path)
    assert json.loads((tmp_path / "versions.json").read_text("utf-8")) == [
        {"version": "0.10", "title": "0.10", "aliases": ["latest"]},
        {"version": "0.9", "title": "0.9", "aliases": []},
    ]
    assert (tmp_path / "latest" / "index.html").read_text("utf-8") == "0.10"
    assert (tmp_path / "0.9" / "index.html").read_text("utf-8") == "0.9"
    start = (tmp_path / "index.html").read_text("utf-8")
    assert start.index("0.10/index.html") < start.index("0.9/index.html")


def test_a_correction_of_an_earlier_version_is_not_the_latest(tool, tmp_path):
    (tmp_path / "1.0").mkdir()
    tool.write(tmp_path)
    (tmp_path / "0.3").mkdir()
    tool.write(tmp_path)
    assert (tmp_path / "latest").resolve().name == "1.0"


def test_a_folder_without_versions_is_refused(tool, tmp_path):
    with pytest.raises(FileNotFoundError, match="make docs VERSION="):
        tool.write(tmp_path)
    assert not list(tmp_path.iterdir())


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder, and says nothing."""

    def log_message(self, *_):
        pass


@pytest.fixture
def address(tmp_path):
    """Build a tiny site in two versions, as `make docs` does, and serve the folder."""
    shutil.copy(ROOT / "mkdocs-version.yml", tmp_path)
    (tmp_path / "mkdocs.yml").write_text(TINY, "utf-8")
    (tmp_path / "docs").mkdir()
    for version in ("0.2", "0.3"):
        (tmp_path / "docs" / "index.md").write_text(f"# This is {version}", "utf-8")
        command = [Path(sys.executable).with_name("zensical"), "build", "--clean", "--strict"]
        subprocess.run(
            [*command, "--config-file", "mkdocs-version.yml"],
            cwd=tmp_path,
            env={**os.environ, "SITE_DIR": f"versions/{version}"},
            check=True,
            capture_output=True,
        )
        subprocess.run([sys.executable, TOOL, "versions"], cwd=tmp_path, check=True)
    handler = partial(Quiet, directory=tmp_path / "versions")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.browser
def test_readers_find_the_newest_version_and_choose_another(address):
    with browser() as page:
        page.open(address)
        page.wait("document.querySelector('h1')?.textContent.startsWith('This is 0.3')")
        assert page.evaluate("location.pathname") == "/latest/index.html"
        page.wait("document.querySelectorAll('.md-version__link').length === 2")
        page.evaluate("document.querySelectorAll('.md-version__link')[1].click()")
        page.wait("document.querySelector('h1')?.textContent.startsWith('This is 0.2')")
        assert "/0.2/" in page.evaluate("location.pathname")
        page.wait("document.querySelector('.md-version__current')?.textContent === '0.2'")
        assert not [error for error in page.errors if "versions" in str(error)]
