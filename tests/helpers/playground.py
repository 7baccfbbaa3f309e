"""The interactive page, for the tests that open it in a browser."""

from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "playground"
PAGE = (FOLDER / "index.html").as_uri()
SIZES = [(1280, 900), (390, 844)]


@contextmanager
def opened(browser):
    """Open the page. Whatever is done with it, nothing may go wrong in it."""
    browser.errors.clear()
    browser.size(*SIZES[0])
    browser.open(PAGE)
    yield browser
    assert browser.errors == []


def plain(text):
    """Return a text with hyphens for its signs."""
    return text.replace("\N{MINUS SIGN}", "-")


def number(text):
    """Return the number that is shown."""
    return float(plain(text).replace(",", ""))


def cut_off(ratio, digits=18):
    """Return a fraction in decimals, cut off."""
    scaled = str(ratio.numerator * 10**digits // ratio.denominator).rjust(digits + 1, "0")
    return f"{scaled[:-digits]}.{scaled[-digits:]}"
