"""Every page of the built site, in Chromium: desktop and phone, light and dark."""

from pathlib import Path

import pytest
from browser import browser as start
from site_pages import SitePages

pytestmark = pytest.mark.browser

SITE = Path(__file__).parents[2] / "site"
MOST_SCREENS = 15
# Generated, and not read from the beginning to the end.
LONGER = {
    "changelog.html": 30,  # the newest version comes first
    "reproduction.html": 110,  # every figure, table and claim of the paper
}
NOT_TESTED = {
    "404.html",  # its links are made for the root of a server
    "playground/index.html",  # test_playground_browser.py
}


@pytest.fixture(scope="module")
def browser():
    with start() as started:
        yield started


def test_every_page_looks_right(browser):
    """Open all pages once, since links lead from one to another."""
    names = {str(path.relative_to(SITE)) for path in SITE.rglob("*.html")} - NOT_TESTED
    assert len(names) > 40, "run `make docs` first"
    pages = SitePages(browser, SITE)
    faults = [fault for name in sorted(names) for fault in pages.faults(SITE / name)]
    faults += pages.dead_links()
    faults += [
        f"{name}: {screens:.1f} screens long"
        for name, screens in pages.screens.items()
        if screens > LONGER.get(name, MOST_SCREENS)
    ]
    assert not faults, "\n".join(faults)
    needless = {name for name in LONGER if pages.screens[name] <= MOST_SCREENS}
    assert not needless


GOOD = """
<!doctype html><meta name="viewport" content="width=device-width"><h1 id="top-of-it">Title</h1>
<p>A text with a <a href="#top-of-it">link</a> and <a href="other.html#there">another</a>.</p>
"""


@pytest.fixture
def faults(browser, tmp_path):
    """Return what is found in a good page to which something was added."""

    def find(added=""):
        (tmp_path / "page.html").write_text(GOOD + added, "utf-8")
        (tmp_path / "other.html").write_text(GOOD.replace("top-of-it", "there"), "utf-8")
        pages = SitePages(browser, tmp_path)
        found = [
            fault for name in ("page.html", "other.html") for fault in pages.faults(tmp_path / name)
        ]
        return [*found, *pages.dead_links()], pages

    return find


def test_a_good_page_has_no_faults(faults):
    found, pages = faults()
    assert found == []
    assert pages.screens["page.html"] == 1


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ("<div style='width: 1300px'>wide</div>", ["page.html, desktop: ", "page.html, phone: "]),
        ("<div style='width: 400px'>wide</div>", ["page.html, phone: "]),
        ("<details><p style='width: 400px'>wide</details>", ["page.html, phone: "]),
        ("<img src='none.png'>", ["page.html: no picture none.png"]),
        ("<a href='none.html'>dead</a>", ["page.html: no page file:"]),
        ("<a href='other.html#none'>dead</a>", ["page.html: no anchor file:"]),
        ("<a href='#none'>dead</a>", ["page.html: no anchor file:"]),
        ("<script>throw new Error('broken')</script>", ["page.html: ", "page.html: "]),
    ],
)
def test_a_fault_is_found(faults, added, expected):
    found, _ = faults(added)
    found = [fault for fault in found if "ERR_FILE_NOT_FOUND" not in fault]
    assert len(found) == len(expected)
    assert all(map(str.startswith, found, expected)), found


@pytest.mark.parametrize(
    ("style", "themes"),
    [
        ("color: #777", ["light", "dark"]),  # 4.48
        ("color: rgba(0, 0, 0, 0.5)", ["light", "dark"]),
        ("color: #767676", []),  # 4.54
        ("color: #777; font-size: 24px", []),
        ("color: oklch(70% 0 0)", ["light", "dark"]),
        ("color: white; background: black", []),
        ("color: light-dark(black, #ccc); color-scheme: light dark", ["dark"]),
        ("color: #777; visibility: hidden", []),
    ],
)
def test_faint_text_is_found(faults, style, themes):
    found, _ = faults(f"<p class='faint' style='{style}'>Can you read this?</p>")
    assert [fault.split(":")[0] for fault in found] == [
        f"page.html, {device}, {theme}" for device in ("desktop", "phone") for theme in themes
    ]


def test_a_long_page_is_measured(faults):
    _, pages = faults("<div style='height: 13600px'>long</div>")
    assert pages.screens["page.html"] > MOST_SCREENS
    _, pages = faults("<details><div style='height: 13600px'>long</div></details>")
    assert pages.screens["page.html"] == 1
