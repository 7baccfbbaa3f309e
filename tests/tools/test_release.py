"""What is published: one version everywhere, and a comparison that notices every difference."""

import io
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import release

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PLACES = {
    "CITATION.cff": r"(?m)^version: (.*)$",
    "docs/playground/data.js": r'"version":"([^"]*)"',
    "reproduction/pyproject.toml": r'(?m)^version = "(.*)"$',
    "CHANGELOG.md": r"(?m)^## ([0-9.]+)",  # the newest entry
}


@pytest.mark.parametrize("place", PLACES)
def test_the_version_is_the_same_everywhere(place):
    text = (ROOT / place).read_text("utf-8")
    assert re.search(PLACES[place], text)[1] == PROJECT["version"]


def wheel(folder, content=b"code", mode=0o644, date=(2026, 1, 1, 0, 0, 0), name="a.whl"):
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as archive:
        member = zipfile.ZipInfo("fedldp/plan.py", date)
        member.external_attr = mode << 16
        archive.writestr(member, content)
    return folder


def sdist(folder, content=b"code", **options):
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / "a.tar", "w") as archive:
        member = tarfile.TarInfo("fedldp-1/plan.py")
        member.size = len(content)
        for name, value in options.items():
            setattr(member, name, value)
        archive.addfile(member, io.BytesIO(content))
    return folder


def test_equal_builds_do_not_differ(tmp_path):
    for make in (wheel, sdist):
        assert list(release.differences(make(tmp_path / "a"), make(tmp_path / "b"))) == []


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (wheel, {"content": b"other"}),
        (wheel, {"mode": 0o600}),
        (wheel, {"date": (2026, 1, 1, 5, 45, 0)}),
        (sdist, {"content": b"other"}),
        (sdist, {"mode": 0o600}),
        (sdist, {"mtime": 1}),
        (sdist, {"uid": 1000}),
        (sdist, {"uname": "somebody"}),
    ],
)
def test_what_differs_is_named(tmp_path, make, options):
    [found] = release.differences(make(tmp_path / "a"), make(tmp_path / "b", **options))
    assert re.fullmatch(r"a\.(whl|tar): fedldp(-1)?/plan\.py", found)


def test_a_file_that_was_built_once_is_named(tmp_path):
    one, other = wheel(tmp_path / "a"), wheel(tmp_path / "b", name="b.whl")
    found = list(release.differences(one, other))
    assert found == ["a.whl: was built only once", "b.whl: was built only once"]


def test_a_copy_has_the_tracked_files_alone_and_is_as_old_as_it_is_told_to_be(tmp_path):
    release.copy(tmp_path / "young", age=0)
    release.copy(tmp_path / "old", age=86_400)
    young, old = ((tmp_path / name / "pyproject.toml") for name in ("young", "old"))
    assert old.read_bytes() == young.read_bytes() == (ROOT / "pyproject.toml").read_bytes()
    assert young.stat().st_mtime - old.stat().st_mtime > 80_000
    assert not (tmp_path / "old" / ".git").exists()
    assert not (tmp_path / "old" / ".venv").exists()
