"""Results as a page of the documentation."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_results import made, table
from theory_results import computed

from fedldp import __version__
from fedldp.errors import DomainError
from fedldp_reproduction import runner
from fedldp_reproduction.command import reproduce_command
from fedldp_reproduction.figures import description
from fedldp_reproduction.pages import publish
from fedldp_reproduction.pages.report import VERDICTS
from fedldp_reproduction.results import ClaimVerdict, to_csv

DOCS = Path(__file__).parents[3] / "docs"
PAGE = f"# Before\n\n{publish.BEGIN}\nold\n{publish.END}\n\nAfter.\n"


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE, encoding="utf-8")
    return path


def written(page, *results):
    publish.publish(results, page, "quick")
    return page.read_text("utf-8")


def test_what_is_around_the_results_is_kept(page):
    first = written(page, made(), table())
    assert first.startswith(f"# Before\n\n{publish.BEGIN}\n")
    assert first.endswith(f"{publish.END}\n\nAfter.\n")
    assert "\nold\n" not in first
    assert written(page, made(), table()) == first


def test_every_claim_has_its_verdict_its_numbers_and_its_figure(page):
    text = written(page, made())
    row = "| HM-TP is best (sec. Experiments) | **fails** | hm is lower by 3%. | [means](#means) |"
    assert row in text
    assert "| so on WISDM (sec. Experiments) | not decidable here |" in text
    assert "| fails | 1 |" in text
    assert "profile `quick`" in text


def test_a_claim_that_fails_is_followed_by_what_is_true(page):
    failed = ClaimVerdict("a < b (sec. 1)", False, "By 3%.", "a < b above 2.")
    text = written(page, made(verdicts=(failed,)))
    assert "| **fails** | By 3%. **True is:** a &lt; b above 2. | [means](#means) |" in text


def test_misprints_stand_apart(page):
    slip = ClaimVerdict("1 + 1 = 3; meant: 2 (sec. 1)", None, "It is 2.", misprint=True)
    text = written(page, made(verdicts=(slip,)))
    claims, _, misprints = text.partition("{#all-misprints}")
    assert "1 + 1 = 3" not in claims
    assert "| misprint | It is 2. |" in misprints
    assert "| fails | 0 |" in text
    assert "| misprint | 1 |" in text


def test_what_is_not_the_papers_stands_apart(page):
    ours = ClaimVerdict("the default is better (beyond the paper)", False, "By 3%.", beyond=True)
    text = written(page, made(verdicts=(ours,)))
    before, _, after = text.partition("{#beyond}")
    assert "the default is better" not in before
    assert "| **fails** | By 3%. |" in after
    assert "| fails | 0 |" in text  # of the paper's


def test_pictures_tables_data_and_settings(page):
    shown = replace(table("table-3"), table=(("a", "b"), ("1|2", "`c`")))
    text = written(page, made(), shown)
    assert "](images/reproduction/means.png)" in text
    picture = page.parent / "images" / "reproduction" / "means.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "| a | b |\n|---|---|\n| 1\\|2 | `c` |" in text
    assert "### Table I {#table-3}" in text
    assert "- 20 runs" in text
    assert text.count("License: CC0-1.0") == 1  # the data are named once
    absent = replace(made(), settings=("WISDM is not available: fetch it",))
    assert "**Missing:** WISDM is not available" in written(page, absent)
    assert "([numbers](images/reproduction/means.csv))" in text
    numbers = (picture.parent / "means.csv").read_text("utf-8")
    assert numbers == to_csv(made().points)
    assert "HM-TP is best" in (picture.parent / "claims.csv").read_text("utf-8")
    for name in ("gone.png", "gone.csv"):
        (picture.parent / name).write_bytes(b"")
    written(page, made())
    kept = {path.name for path in picture.parent.iterdir()}
    assert kept == {"claims.csv", "means.csv", "means.png"}


def test_texts_mean_nothing_to_markdown(page):
    text = written(page, made(verdicts=(ClaimVerdict("a* < b_1 | `x`", True, "<b>P(0|0)</b>."),)))
    assert "| a\\* &lt; b\\_1 \\| \\`x\\` | holds | &lt;b&gt;P(0\\|0)&lt;/b&gt;. |" in text


def test_a_page_without_markers_is_refused(tmp_path):
    path = tmp_path / "page.md"
    for text in ("nothing", publish.BEGIN, publish.END):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DomainError, match="must have the lines"):
            publish.check(path)
        with pytest.raises(DomainError, match="must have the lines"):
            publish.publish([made()], path, "quick")
        assert path.read_text("utf-8") == text


def test_on_the_command_line(page, tmp_path, monkeypatch):
    def fake(figures, *_):
        first = computed("table-1")
        yield from (replace(first, key=figure.key) for figure in figures)

    monkeypatch.setattr(runner, "reproduce", fake)
    arguments = ["--publish", str(page), "-o", str(tmp_path / "out")]
    partly = CliRunner().invoke(reproduce_command, ["table-1", *arguments])
    assert partly.exit_code == 2
    assert "--publish needs all figures" in partly.stderr
    assert page.read_text("utf-8") == PAGE
    done = CliRunner().invoke(reproduce_command, arguments)
    assert done.exit_code == 0, done.output
    for key in description().figures:
        assert f"{{#{key}}}" in page.read_text("utf-8")


def test_a_page_names_the_version_that_published_it(page):
    with pytest.raises(DomainError, match="has no results yet"):
        publish.published_version(page)
    written(page, made())
    assert publish.published_version(page) == __version__


# The page in the documentation. It is published by the release that it names: from then on it must
# say what the code says. If one of these fails: make reproduce.

of_this_version = pytest.mark.skipif(
    publish.published_version(DOCS / "reproduction.md") != __version__,
    reason="the page is that of an earlier release",
)


def results():
    text = (DOCS / "reproduction.md").read_text("utf-8")
    return text.partition(publish.BEGIN)[2].partition(publish.END)[0]


@of_this_version
def test_the_documentation_has_every_figure():
    text = results()
    for key, figure in description().figures.items():
        assert f"{{#{key}}}" in text
        assert publish.escaped(figure.title) in text
    for path in re.findall(r"\]\((images/reproduction/.*?)\)", text):
        assert (DOCS / path).is_file()


@of_this_version
def test_the_documentation_names_a_commit_that_readers_have():
    git = shutil.which("git")

    def asked(*arguments):
        command = [git, *arguments]
        return subprocess.run(command, cwd=DOCS, check=False, capture_output=True, text=True)

    if git is None or asked("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("needs git, and a clone with all commits")
    (commit,) = re.findall(r"\(commit ([0-9a-f]{12})\)", results())
    assert asked("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0


@of_this_version
def test_the_documentation_has_every_claim_of_the_theory_with_its_verdict():
    rows = re.findall(r"^\| (.*) \| (\**[a-z ]+\**) \| .* \| \[(.*)\]\(#.*\) \|$", results(), re.M)
    published = {(claim, key): verdict.strip("*") for claim, verdict, key in rows}
    assert set(published.values()) <= set(VERDICTS)
    from fedldp_reproduction.pages.report import verdict

    for key in ("table-1", "table-2", "table-3", "system", "lemmas", "privacy", "misprints"):
        for each in computed(key).verdicts:
            assert published[publish.escaped(each.claim), key] == verdict(each)
