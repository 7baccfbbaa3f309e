"""Nothing is published before the project has an address, a date and the files that were built."""

import hashlib
from pathlib import Path

import package_metadata
import publishable
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ready(tmp_path):
    """Make a project that can be published."""
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nversion = "1.2.0"\n'
        '[tool.hatch.metadata.hooks.custom]\naddress = "https://example.org/fedldp"\n'
    )
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 (2026-11-19)\n")
    dist = tmp_path / "dist"
    dist.mkdir()
    (dist / "a.whl").write_bytes(b"wheel")
    (dist / "SHA256SUMS").write_text(f"{hashlib.sha256(b'wheel').hexdigest()}  a.whl\n")
    return tmp_path


def obstacles(root, tag="v1.2.0"):
    return list(publishable.obstacles(root, root / "dist", tag))


def test_what_is_ready_is_published(ready):
    assert obstacles(ready) == []


def replaced(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_what_is_not_ready_is_refused(ready):
    replaced(ready / "pyproject.toml", "https://example.org/fedldp", "")
    replaced(ready / "CHANGELOG.md", "2026-11-19", "unreleased")
    (ready / "dist" / "a.whl").write_bytes(b"other")
    found = obstacles(ready, "v1.1.0")
    for text, part in zip(found, ("public address", "v1.2.0", "CHANGELOG", "a.whl"), strict=True):
        assert part in text
    (ready / "dist" / "SHA256SUMS").unlink()
    assert "make dist" in obstacles(ready)[-1]


def test_this_project_has_no_address_yet():
    """Remove this test with the first address: then the release itself is the test."""
    assert "public address" in obstacles(ROOT)[0]


def test_no_link_of_the_long_description_leads_nowhere():
    text = (ROOT / "README.md").read_text("utf-8")
    for address in ("", "https://example.org/fedldp"):
        shown = package_metadata.with_links(text, address, "1.0")
        for *_, target in package_metadata.LINK.findall(shown):
            assert target.startswith("https://"), target
