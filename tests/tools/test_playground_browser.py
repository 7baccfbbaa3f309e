"""The interactive page in a real browser: what it shows is what the library says."""

import itertools
import math
import re
import shutil
from bisect import bisect_right
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from browser import browser as start
from playground import FOLDER, PAGE, SIZES, cut_off, number, opened, plain

import fedldp
from fedldp import vehicle
from fedldp.coders import tables
from fedldp.coders.categories import RandomizedResponse
from fedldp.mechanisms import Optimal

pytestmark = pytest.mark.browser

# A linear congruential generator stands in for chance, so that every run sees the same draws.
FIXED_CHANCE = """
(() => {
  let state = 12345n;
  window.words = [];
  crypto.getRandomValues = (array) => {
    for (let i = 0; i < array.length; i += 1) {
      state = (state * 6364136223846793005n + 1442695040888963407n) % (1n << 64n);
      array[i] = Number(state >> 32n);
      window.words.push(array[i]);
    }
    return array;
  };
})();
"""


@pytest.fixture(scope="module")
def browser():
    with start() as started:
        started.command("Page.addScriptToEvaluateOnNewDocument", source=FIXED_CHANCE)
        yield started


@pytest.fixture
def page(browser):
    with opened(browser) as page:
        yield page


def numbers(text):
    return [number(each) for each in re.findall(r"[-+]?\d[\d,]*\.?\d*", plain(text))]


def heights(page, place):
    bars = f"[...document.querySelectorAll('{place} rect.bar')]"
    return np.array(page.evaluate(f"{bars}.map(bar => bar.height.baseVal.value)"))


def check(page, name, epsilon, x, outputs=None):
    """Compare all that the page shows with the library."""
    mechanism = fedldp.mechanism(name, epsilon)
    channel = mechanism.channel() if outputs is None else mechanism.channel(outputs)
    # The proof.
    columns = channel.counts.T.tolist()
    assert page.text("#ratio") == cut_off(max(Fraction(max(c), min(c)) for c in columns))
    assert page.text("#limit") == cut_off(vehicle.exp_below(vehicle.exact(epsilon)))
    assert "the table is private" in page.text("#verdict")
    # The law.
    law = tables.probabilities(channel.letters, channel.table, np.array(x))
    drawn = heights(page, "#law")
    np.testing.assert_allclose(drawn / drawn.sum(), law, atol=1e-6)
    assert plain(page.text("#law-title")) == f"What is sent for x\xa0=\xa0{x:g}"
    deviation = math.sqrt(channel.variance(x))
    assert numbers(page.text("#spread")) == [pytest.approx(deviation, rel=1e-3)]
    # The rows in use.
    left = min(bisect_right(channel.letters.tolist(), x), len(channel.letters) - 1) - 1
    between = channel.letters[[left, left + 1]]
    used = [x] if x in between else between.tolist()
    assert numbers(page.text("#rows-used")) == [pytest.approx(each, rel=1e-3) for each in used]
    # Every mechanism.
    bound = Optimal(epsilon).lower_bound
    assert number(page.text("#bound")) == pytest.approx(bound, rel=1e-3)
    rows = page.evaluate(
        "[...document.querySelectorAll('#errors tbody tr')].map("
        "row => [...row.children].map(cell => cell.innerText.trim()))"
    )
    expected = {
        each: fedldp.mechanism(each, epsilon).worst_case_variance
        for each in fedldp.mechanism_names()
    }
    assert [row[0] for row in rows] == sorted(expected, key=expected.get)
    for each, _, variance, relative in rows:
        assert float(variance) == pytest.approx(expected[each], rel=1e-3)
        assert float(relative) == pytest.approx(expected[each] / bound, abs=1e-3)
    assert page.text("#errors tr.used th") == name
    own = numbers(page.text("#own").partition("(the dot)")[2])
    assert own[0] == pytest.approx(channel.worst_case_variance, rel=1e-3)
    used = f"at most; {channel.outputs} used: {channel.bits} bit"
    assert page.text("#outputs-hint").startswith(used)
    return channel


def test_it_opens_with_the_librarys_numbers(page):
    check(page, "optimal", 1.0, 0.3, 31)
    assert page.text("#version") == fedldp.__version__
    assert "not a secure sampler" in page.text("footer")
    assert page.text("#report") == "Nothing has been sent yet."


def test_sliders_by_keyboard(page):
    page.evaluate("document.querySelector('#epsilon').focus()")
    page.press("ArrowRight", times=2)
    assert page.text("#epsilon-shown") == "2"
    page.evaluate("document.querySelector('#x').focus()")
    page.press("ArrowLeft", times=5)
    page.evaluate("document.querySelector('#outputs').focus()")
    page.press("ArrowLeft")
    check(page, "optimal", 2.0, 0.25, 15)


def test_sliders_by_mouse(page):
    page.click("#x")
    assert abs(number(page.evaluate("document.querySelector('#x').value"))) < 0.05
    page.click("#epsilon")
    assert page.text("#epsilon-shown") == "2"


def test_mechanisms_are_chosen_in_the_list_and_in_the_table(page):
    page.evaluate("document.querySelector('#mechanism').focus()")
    page.press("ArrowDown")
    check(page, "dominant", 1.0, 0.3, 31)
    page.click("#errors tbody tr:nth-child(8) button")
    check(page, "duchi", 1.0, 0.3)
    assert page.evaluate("document.activeElement.innerText") == "duchi"  # the keyboard stays there
    assert page.evaluate("document.querySelector('#outputs').disabled")
    assert page.evaluate("document.querySelector('#mechanism').value") == "duchi"


@pytest.mark.parametrize("x", [-1.0, -0.5, 0.0, 0.77, 1.0])
def test_a_value_is_typed(page, x):
    page.write("#x-typed", f"{x:g}")
    assert page.evaluate("document.querySelector('#x').value") == f"{x:g}"
    check(page, "optimal", 1.0, x, 31)


@pytest.mark.parametrize("text", ["2", "-1.5", ""])
def test_an_invalid_value_is_marked_and_forgotten(page, text):
    page.write("#x-typed", "0.5")
    page.write("#x-typed", text or "x")
    assert page.evaluate("document.querySelector('#x-typed').ariaInvalid") == "true"
    check(page, "optimal", 1.0, 0.5, 31)
    page.evaluate("document.querySelector('#x-typed').blur()")
    assert page.evaluate("document.querySelector('#x-typed').value") == "0.5"
    assert page.evaluate("document.querySelector('#x-typed').ariaInvalid") == "false"


def test_all_integers_are_the_channels(page):
    page.open(f"{PAGE}#epsilon=2&mechanism=hm-tp&outputs=7&x=0.3")
    assert page.evaluate("document.querySelector('#integers .scroll').children.length") == 0
    page.click("#integers summary")
    page.wait("document.querySelector('#integers tbody')")
    shown = page.evaluate(
        "[...document.querySelectorAll('#integers tbody tr')].map("
        "row => [row.className, ...[...row.children].map(cell => cell.innerText)])"
    )
    channel = check(page, "hm-tp", 2.0, 0.3, 7)
    assert [[int(count) for count in row[2:]] for row in shown] == channel.counts.tolist()
    framed = [number(row[1]) for row in shown if row[0] == "used"]
    around = channel.letters[np.abs(channel.letters - 0.3) < 2 / (len(channel.letters) - 1)]
    np.testing.assert_allclose(framed, around, rtol=1e-3)


def test_a_cell_is_read_by_keyboard_and_by_pointer(page):
    channel = Optimal(1.0).channel(31)
    page.evaluate("document.querySelector('#table').focus()")
    page.press("ArrowRight", times=3)
    page.press("ArrowDown")
    row, column = np.searchsorted(channel.letters, 0.3), 2
    count = channel.counts[row, column]
    expected = (
        f"Letter {channel.letters[row]:.4g}, output {channel.values[column]:.4g} (code {column}): "
        f"{count}, {count / channel.counts[:, column].min():.4g} times the least in its column."
    )
    assert plain(page.text("#cell")) == expected
    corner = page.evaluate(
        "(() => { const field = document.querySelector('#table .field');"
        "field.scrollIntoView({block: 'center'}); const box = field.getBoundingClientRect();"
        "return [box.right - 3, box.bottom - 3]; })()"
    )
    page.move(*corner)
    assert str(channel.counts[-1, -1]) in page.text("#cell")


def drawn_codes(channel, x, words):
    """Draw what the page should have drawn with these words, by sums of integers."""
    place = (x + 1) / 2 * (len(channel.letters) - 1)
    left = min(int(place), len(channel.letters) - 2)
    ends = [list(itertools.accumulate(row)) for row in channel.counts.tolist()]
    codes = []
    for high, low, rounding in zip(*[iter(words)] * 3, strict=True):
        letter = left + (rounding < (place - left) * 2**32)
        codes.append(bisect_right(ends[letter], ((high << 32) | low) * channel.total >> 64))
    return codes


def test_a_distribution_is_estimated_from_bins(page):
    """Each vehicle draws its code as vehicle.py does, and the shares are the library's estimate."""
    coder = RandomizedResponse.of(1.0, 13)
    words = page.evaluate("words.length")
    assert page.text("#fleet-odds") == f"{cut_off(Fraction(coder.same, coder.other), 4)} to 1"
    assert heights(page, "#fleet").size == 0
    page.click("#ask")
    page.click("#ask-many")
    thrown = iter(page.evaluate(f"words.slice({words})"))
    own = np.repeat(np.arange(13), page.evaluate("window.FEDLDP.fleet.vehicles"))
    codes = []
    for bin_ in np.tile(own, 21).tolist():
        word = mock.Mock(getrandbits=lambda _: next(thrown) << 32 | next(thrown))
        codes.append(vehicle.response_code(coder.same, coder.other, 13, bin_, word))
    assert next(thrown, None) is None
    _, shares = coder.frequencies(np.bincount(codes, minlength=13))
    drawn = heights(page, "#fleet")
    np.testing.assert_allclose(drawn / drawn.max(), shares.clip(0) / shares.max(), atol=1e-6)
    said = numbers(page.text("#fleet-said"))
    seen = np.bincount(codes, minlength=13) / len(codes)
    p, q = (each / (coder.same + 12 * coder.other) for each in (coder.same, coder.other))
    around = 1.96 * np.sqrt(seen * (1 - seen) / len(codes)) / (p - q)
    inside = np.abs(shares - np.bincount(own) / 1000) <= around
    assert said[:2] == [21_000, 4]
    assert said[2] == pytest.approx(100 * around.max(), rel=0.05)
    assert said[3:5] == [inside.sum(), 13]
    assert page.evaluate("document.querySelectorAll('#fleet .interval').length") == 3 * 13
    page.click("#forget")
    assert page.text("#fleet-said").startswith("Nobody has been asked yet")
    page.click("#ask")
    page.evaluate("document.querySelector('#epsilon').focus()")
    page.press("ArrowRight")  # another epsilon: other odds, and no reports
    assert page.text("#fleet-said").startswith("Nobody has been asked yet")


def test_reports_are_drawn_from_the_table(page):
    channel, x = Optimal(1.0).channel(31), 0.3
    page.click("#send")
    (code,) = drawn_codes(channel, x, page.evaluate("words"))
    assert page.evaluate("document.querySelector('.bits').innerText").split() == list(f"{code:04b}")
    said = plain(page.text("#report"))
    assert f"Code {code}" in said
    assert f"stands for {channel.values[code]:+.4g}." in said
    assert page.text("#estimate").startswith("1 report: x is about")

    for _ in range(3):
        page.click("#send-many")
    codes = drawn_codes(channel, x, page.evaluate("words"))
    assert len(codes) == 3001
    assert f"code {codes[-1]}," in page.text("#report")
    counts = np.bincount(codes, minlength=channel.outputs)
    drawn = heights(page, "#histogram")
    np.testing.assert_allclose(drawn / drawn.sum(), counts / counts.sum(), atol=1e-6)
    mean, around = channel.decode(codes).mean(), 1.96 * math.sqrt(channel.variance(x) / len(codes))
    assert page.text("#estimate") == f"3,001 reports: x is about {mean:.3f} ± {around:.3f} (95%)."
    assert abs(mean - x) < around  # these draws are always the same

    page.click("#clear")
    assert page.text("#report") == "Nothing has been sent yet."
    assert page.evaluate("document.querySelector('#received').hidden")


def test_another_choice_begins_anew(page):
    page.click("#send-many")
    page.evaluate("document.querySelector('#x').focus()")
    page.press("ArrowLeft")
    assert page.text("#report") == "Nothing has been sent yet."


def test_a_link_brings_back_what_was_chosen(page):
    page.open(f"{PAGE}#epsilon=4&mechanism=near-zero&outputs=7&x=-0.62")
    check(page, "near-zero", 4.0, -0.62, 7)
    page.click("#errors tbody tr:last-child button")
    page.wait("location.hash.includes('mechanism=duchi')")
    address = page.evaluate("location.href")
    shown = page.text("main")
    page.open(address)
    assert page.text("main") == shown
    page.open(f"{PAGE}#epsilon=99&mechanism=laplace&outputs=x&x=7")  # nothing of this exists
    check(page, "optimal", 1.0, 0.3, 31)


def test_every_choice_can_be_shown(page):
    """All tables, in turn: each is private by the page's own integers."""
    budgets = page.evaluate("window.FEDLDP.budgets.length")
    wrong = [page.evaluate(f"({SHOW_ALL})({budget})") for budget in range(budgets)]
    assert wrong == [[]] * budgets


SHOW_ALL = """
(budget) => {
  const set = (id, value, event) => {
    document.getElementById(id).value = value;
    document.getElementById(id).dispatchEvent(new Event(event));
  };
  const { budgets, outputs } = window.FEDLDP;
  set('epsilon', budget, 'input');
  return budgets[budget].mechanisms.flatMap((each) => each.tables.flatMap((table) => {
    document.getElementById('integers').open = table.asked === 7;
    set('mechanism', each.name, 'change');
    set('outputs', Math.max(0, outputs.indexOf(table.asked)), 'input');
    document.getElementById('send').click();
    const verdict = document.getElementById('verdict').textContent;
    const bars = document.querySelectorAll('#law .bar').length;
    const good = bars === table.values.length && verdict.includes('the table is private');
    return good ? [] : [[each.name, table.asked]];
  }));
}
"""


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]} wide")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_and_can_be_read(page, size, dark):
    page.size(*size, dark=dark)
    page.open(PAGE)
    page.click("#send-many")
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    too_wide = page.evaluate(
        "[...document.querySelectorAll('section *')].filter(e => e.getClientRects().length"
        " && !e.closest('.scroll, .unseen') && e.getBoundingClientRect().right > innerWidth)"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    assert too_wide == []
    assert page.faint() == []


def test_in_the_site_there_is_a_way_home(page, tmp_path):
    assert not page.evaluate("document.querySelector('#home').getClientRects().length")
    (tmp_path / "index.html").write_text("<title>Home</title>")
    copied = shutil.copytree(FOLDER, tmp_path / "playground")
    page.open((copied / "index.html").as_uri())
    assert page.faint() == []
    page.press("Tab")
    page.press("Enter")
    page.wait("document.title === 'Home'")


def test_the_keyboard_reaches_everything_and_it_has_a_name(page):
    page.evaluate("document.body.focus()")
    reached = []
    for _ in range(40):
        page.press("Tab")
        element = page.evaluate(
            "document.activeElement.id || document.activeElement.innerText.trim()"
        )
        if element in reached:
            break
        reached.append(element)
    first = ["epsilon", "x-typed", "x", "outputs", "mechanism", "table", "All integers"]
    names = [name for name in fedldp.mechanism_names() if name != "laplace"]
    assert reached[: len(first)] == first
    assert reached[len(first) :][:4] == ["ask", "ask-many", "send", "send-many"]
    assert set(names) <= set(reached)
    tree = page.command("Accessibility.getFullAXTree")["nodes"]
    nameless = [
        node["role"]["value"]
        for node in tree
        if any(p["name"] == "focusable" and p["value"]["value"] for p in node.get("properties", []))
        and not node.get("name", {}).get("value")
    ]
    assert nameless == []
