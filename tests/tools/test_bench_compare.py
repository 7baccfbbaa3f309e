"""`make bench-compare`: what it judges, and that it runs the library of both commits."""

import json
import subprocess
from pathlib import Path

import compare
import compare_cases
import pages
import pytest
from compare import Comparison, git
from harness import Spread

ROOT = Path(__file__).parents[2]


def case(low, middle, high):
    return Comparison("a case", 1.0, middle, Spread(low, middle, high))


@pytest.mark.parametrize(
    ("spread", "lost"),
    [
        ((1.11, 1.2, 1.3), True),
        ((0.99, 1.2, 1.3), False),  # within its spread
        ((1.05, 1.08, 1.09), False),  # certain, and small
        ((0.4, 0.5, 0.6), False),
    ],
)
def test_a_case_is_lost_beyond_a_tenth_and_its_spread(spread, lost):
    assert case(*spread).is_lost == lost


@pytest.fixture
def measured(monkeypatch):
    """Replace what is measured by seconds for each tree, and return them."""
    times = {"base": iter([]), "now": iter([])}

    def seconds(tree, *_):
        return next(times["now" if tree == compare.ROOT else "base"])

    monkeypatch.setattr(compare, "seconds", seconds)
    monkeypatch.setattr(compare, "checkout", lambda _: Path("base"))
    monkeypatch.setattr(compare, "stale_tables", lambda: iter(["a table is old."]))
    return times


def test_it_fails_on_a_loss_and_keeps_the_run(measured, tmp_path, capsys):
    arguments = ["--base", "v1", "--pairs", "3", "--only", "31 outputs", "--json"]
    for now, status in (([1.0, 1.3, 1.25], 1), ([1.0, 1.05, 1.3], 0)):
        measured["base"], measured["now"] = iter([1.0] * 3), iter(now)
        path = tmp_path / f"{status}.json"
        assert compare.main([*arguments, str(path)]) == status
        document = json.loads(path.read_text("utf-8"))
        assert (document["format"], document["base"]) == (compare.FORMAT, "v1")
        [row] = document["rows"]
        assert row["ratio"]["middle"] == sorted(now)[1]
        assert row["is_lost"] == bool(status)
        out = capsys.readouterr().out
        assert "a table is old." in out
        assert ("LOST" in out) == bool(status)


def test_what_the_base_cannot_do_is_not_compared(measured, capsys):
    measured["base"], measured["now"] = iter([None]), iter([1.0])
    assert compare.main(["--base", "v1", "--only", "31 outputs"]) == 0
    assert "cannot do that" in capsys.readouterr().out
    measured["base"], measured["now"] = iter([1.0]), iter([None])
    with pytest.raises(SystemExit, match="does not run in this commit"):
        compare.main(["--base", "v1", "--only", "31 outputs"])


def test_cases_are_timed_with_the_library_of_a_tree(tmp_path):
    assert compare.seconds(ROOT, "perturb, HM-TP", 1) > 0
    with pytest.raises(SystemExit, match="and not the library in"):
        compare.seconds(tmp_path, "perturb, HM-TP", 1)


@pytest.mark.parametrize("name", compare_cases.CASES)
def test_each_case_runs(name):
    work = compare_cases.CASES[name]()
    work()


@pytest.fixture
def repository(tmp_path):
    """Return an empty repository with a page of the documentation and a module."""
    for name in ("docs", "src/fedldp/learn"):
        (tmp_path / name).mkdir(parents=True)
    git("init", "--quiet", folder=tmp_path)
    return tmp_path


def commit(folder, **files):
    for name, text in files.items():
        path = {"page": "docs/page.md", "module": "src/fedldp/learn/module.py"}[name]
        (folder / path).write_text(text, "utf-8")
    git("add", ".", folder=folder)
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    git(*who, "commit", "--quiet", "-m", "Change", folder=folder)
    return git("rev-parse", "--short=12", "HEAD", folder=folder)


def table_of(text):
    return f"<!-- begin: regression -->\n*{text}*\n<!-- end: regression -->\n"


def test_tables_older_than_what_they_measure_are_named(repository):
    first = commit(repository, module="1", page=table_of("no name"))
    assert list(compare.stale_tables(repository)) == [
        "docs/page.md: the table 'regression' does not name its commit."
    ]
    commit(repository, page=table_of(f"commit {first}"))
    assert not list(compare.stale_tables(repository))
    commit(repository, module="2")
    [warning] = compare.stale_tables(repository)
    assert warning.endswith(f"is of commit {first}; changes since then: 1.")
    commit(repository, page=table_of("commit 0123456789ab"))
    [warning] = compare.stale_tables(repository)
    assert "which is not in this repository" in warning


def test_the_last_release_is_the_newest_tag(repository):
    commit(repository, module="1")
    with pytest.raises(SystemExit, match="--base COMMIT"):
        compare.last_release(repository)
    git("tag", "v0.2.0", folder=repository)
    git("tag", "other", folder=repository)
    assert compare.last_release(repository) == "v0.2.0"


def test_what_tables_measure_is_in_the_repository():
    pages_text = "".join(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))
    for name, paths in compare.MEASURED.items():
        assert f"<!-- begin: {name} -->" in pages_text
        assert all((ROOT / path).exists() for path in paths)


def test_a_table_names_its_commit(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- begin: regression -->\n<!-- end: regression -->\n", "utf-8")
    pages.publish("regression", [pages.Table("T", ("a", "b"), [("c", "1")])], "here", page)
    head = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    assert f"here; commit {head}" in page.read_text("utf-8")
