"""The proof on the interactive page, in a real browser: what does not hold is not said to."""

import math
from fractions import Fraction

import numpy as np
import pytest
from browser import browser as start
from playground import PAGE, cut_off, number, opened, plain

from fedldp import vehicle
from fedldp.mechanisms import PM, Duchi

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    with start() as started:
        yield started


@pytest.fixture
def page(browser):
    with opened(browser) as page:
        yield page


def test_the_browser_sums_the_same_limit(page):
    epsilons = [0.1, 7.25, 12, *page.evaluate("window.FEDLDP.budgets.map(each => each.epsilon)")]
    sums = page.evaluate(f"{epsilons}.map(each => tables.expBelow(each).map(String))")
    for epsilon, (numerator, denominator) in zip(epsilons, sums, strict=True):
        below = vehicle.exp_below(vehicle.exact(epsilon))
        assert Fraction(int(numerator), int(denominator)) == below


def tamper(page, name, change):
    """Change a table of 3 outputs at most at epsilon 2, look at it, and return the verdict."""
    page.open(f"{PAGE}#epsilon=2&mechanism={name}&outputs=3")
    assert "the table is private" in page.text("#verdict")
    page.evaluate(
        "(() => { const budget = window.FEDLDP.budgets.find(each => each.epsilon === 2);"
        f"const [table] = budget.mechanisms.find(each => each.name === '{name}').tables;"
        f"{change}; document.querySelector('#x').dispatchEvent(new Event('input')); }})()"
    )
    said = plain(page.text("#verdict"))
    refused = page.evaluate("document.querySelector('#send').disabled")
    assert refused == ("private" not in said) == ("THIS TABLE MUST NOT BE USED" in said)
    assert refused == page.evaluate("document.querySelector('#send-many').disabled")
    return said


def test_a_count_that_was_tampered_with_is_found(page):
    channel = PM(2.0).channel(3)
    move = "const [a, b] = table.others.map(BigInt); table.others[0] = '1'"
    said = tamper(page, "pm", f"{move}; table.others[1] = String(a + b - 1n)")
    most = channel.counts[:, 0].max()
    assert f"(code 0) has counts of {most} and 1, whose ratio exceeds e^ε." in said
    assert page.text("#ratio") == cut_off(Fraction(int(most)))


def test_a_row_that_was_tampered_with_is_found(page):
    channel = PM(2.0).channel(3)
    said = tamper(page, "pm", "table.others[0] = String(BigInt(table.others[0]) + 1n)")
    row = f"the row of letter {channel.letters[1]:.4g} adds up to {channel.total + 1}"
    assert f"{row}, and that of letter -1 to {channel.total}." in said
    said = tamper(page, "duchi", "table.most[0] = String(BigInt(table.most[0]) - 1n)")
    row = f"the row of letter -1 adds up to {channel.total - 1}"
    assert f"{row}, which is not a power of two." in said


def test_integers_decide_to_the_last_digit(page):
    total = Duchi(2.0).channel().total
    limit = vehicle.exp_below(vehicle.exact(2.0))
    most = math.floor(total * limit / (limit + 1))  # the largest count that the limit allows
    change = "table.most = ['{0}', '{0}']; table.least = ['{1}', '{1}']"
    assert "is private" in tamper(page, "duchi", change.format(most, total - most))
    said = tamper(page, "duchi", change.format(most + 1, total - most - 1))
    assert f"has counts of {most + 1} and {total - most - 1}, whose ratio exceeds e^ε." in said
    said = tamper(page, "duchi", change.format(total, 0))
    assert "(code 0) has a count of 0." in said
    assert page.text("#ratio") == "none"


def test_colours_are_drawn_to_the_scale_that_is_shown(page):
    page.open(f"{PAGE}#epsilon=5&mechanism=pm&outputs=3")
    counts = PM(5.0).channel(3).counts
    strength = np.log(counts / counts.min(axis=0)) / 5
    drawn = page.evaluate(
        "[...document.querySelectorAll('#table .heat')].map(each => Number("
        "each.getAttribute('fill-opacity')))"
    )
    assert max(drawn) == pytest.approx(strength.max(), abs=6e-4)  # three digits are written
    assert number(page.text("#scale-end")) == pytest.approx(math.exp(5), rel=1e-3)
