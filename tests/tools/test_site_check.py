"""The check of the built documentation finds what it says it finds."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "site" / "check.py"
SETTINGS = (
    "docs_dir: docs\nsite_dir: site\nnav:\n  - Home: index.md\n  - More: [{Page: page.html}]\n"
)
GOOD = {
    "mkdocs.yml": SETTINGS,
    "docs/index.md": "# Home",
    "docs/own.js": '/* from https://example.org */ element("http://www.w3.org/2000/svg", "a//b");',
    "site/index.html": '<h1 id="home"></h1><a href="#home"></a><a href="page.html#caf%C3%A9"></a>'
    '<a href="https://example.org/#there"></a><link rel="canonical" href="https://example.org">',
    "site/page.html": '<h1 id="café"></h1><a href="index.html"></a><script src="own.js"></script>',
    "site/404.html": '<a href="/nowhere.html"></a>',
    "site/own.js": "",
    "site/own.css": "body { background: url(picture.png); }",
}


@pytest.fixture
def faults(tmp_path):
    """Return what is found in a good site to which something was added."""
    spec = importlib.util.spec_from_file_location("check", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def find(name="site/page.html", added=""):
        for each, text in GOOD.items():
            path = tmp_path / each
            path.parent.mkdir(exist_ok=True)
            path.write_text(text + (added if each == name else ""), "utf-8")
        return list(module.faults(tmp_path / "mkdocs.yml"))

    return find


def test_a_good_site_has_no_faults(faults):
    assert faults() == []


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("none.html", "which is not in the site"),
        ("../docs/index.md", "which is not in the site"),
        ("#home", "a page without that anchor"),
        ("index.html#café", "a page without that anchor"),
    ],
)
def test_dead_links(faults, target, reason):
    assert faults(added=f"<a href='{target}'></a>") == [f"page.html links to {target}, {reason}"]


@pytest.mark.parametrize(
    ("name", "added", "found"),
    [
        ("site/page.html", "<img src='//example.org/a.png'>", "//example.org/a.png"),
        ("site/page.html", "<source srcset='https://example.org/a.png'>", "example.org/a.png"),
        ("site/404.html", "<link rel=icon href=https://example.org>", "https://example.org"),
        ("site/page.html", "<style>@import 'https://example.org/a.css'</style>", "example.org/a"),
        ("site/own.css", "p { background: url(https://example.org/a.png) }", "example.org/a.png"),
        ("docs/own.js", "new Image().src = 'https://example.org/a.png'", "example.org/a.png"),
        ("docs/own.js", "fetch(address)", "fetch("),
        ("docs/own.js", "new XMLHttpRequest()", "XMLHttpRequest"),
    ],
)
def test_requests(faults, name, added, found):
    (fault,) = faults(name, added)
    assert fault.startswith(Path(name).name)
    assert found in fault


def test_the_navigation_has_every_page(faults):
    (fault,) = faults("mkdocs.yml", "  - Missing: missing.md\n")
    assert fault == "missing.md must be both a page and in the navigation"
