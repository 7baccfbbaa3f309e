"""Links in the pages of the repository lead somewhere in a fresh clone, before a build."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^ *(```+).*?^ *\1$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:href|src|srcset)=\"([^\"]+)\"")


def in_a_clone():
    """Return the files that a clone has, or all there are where this is not a repository."""
    git = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if git.returncode == 0:
        return {ROOT / name for name in git.stdout.splitlines()}
    return {path for path in ROOT.rglob("*") if path.is_file()}


def links(text):
    """Return the targets of all links in Markdown that stay in the repository, without anchors."""
    plain = CODE.sub("", FENCE.sub("", text))
    found = (first or second for first, second in LINK.findall(plain))
    inside = (target for target in found if not re.match(r"[a-z]+:|#", target))
    return {target.partition("#")[0] for target in inside}


FILES = in_a_clone()
FOLDERS = {folder for path in FILES for folder in path.parents}
PAGES = sorted(path for path in FILES if path.suffix == ".md" and "templates" not in path.parts)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_is_dead_in_a_clone(page):
    there = {target: (page.parent / target).resolve() for target in links(page.read_text("utf-8"))}
    dead = [target for target, path in there.items() if path not in FILES | FOLDERS]
    assert not dead


def test_links_are_found():
    text = '[a](b.md#c) ![d](e.png) `[no](x.md)` <img src="f.png">\n```\n[no](y.md)\n```\n[g](#h)'
    assert links(text) == {"b.md", "e.png", "f.png"}
    assert links("[web](https://example.org)") == set()
    assert {page.name for page in PAGES} >= {"README.md", "glossary.md"}
