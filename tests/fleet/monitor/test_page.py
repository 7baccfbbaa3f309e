"""The live page in a real browser: what it shows, on which screens, and when the server is gone."""

import copy
import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from browser import browser as start
from live_page import FIXED_TIME, PHONE, WIDE, LivePage, shown
from monitored import SERVER

import fedldp
from fedldp.fleet.insight import estimates

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=window.broken=1>\"'&amp;</td><script>window.broken=1</script>"


@pytest.fixture(scope="module")
def browser():
    with start() as started:
        started.command("Page.addScriptToEvaluateOnNewDocument", source=FIXED_TIME)
        started.command("Emulation.setTimezoneOverride", timezoneId="UTC")
        yield started


@pytest.fixture
def page(browser, tmp_path):
    """Open the page. Whatever is done with it, nothing may go wrong in it."""
    made = LivePage(browser, tmp_path)
    browser.leave()  # the page before, which still asks a monitor that has ended
    browser.errors.clear()
    browser.size(*WIDE)
    with made.served() as address:
        made.open(address)
        yield made
    assert browser.errors == []


def text(page, selector="body"):
    return page.browser.text(selector).replace("\xa0", " ")


def rows(page, place):
    cells = f"[...document.querySelectorAll('{place} tbody tr')].map(r => [...r.cells].map("
    return page.browser.evaluate(f"{cells}c => c.innerText.trim()))")


def statistic():
    schema = fedldp.Schema.of(speed=(0, 130), fuel=["petrol", "electric"])
    plan = fedldp.Plan(schema, 2.0, mechanism="hm-tp")
    data = [{"speed": 91, "fuel": "electric"}, {"speed": 40, "fuel": "petrol"}] * 5000
    tally = plan.simulate(data, fedldp.source(3))
    found = estimates(tally, schema).document()
    part = copy.deepcopy(SERVER)
    job = {"task": "statistics", "stage": "statistics", "round": 1, "rounds": 1, "rounds_done": 0}
    part["job"] |= job | {"name": "speeds", "epsilon": 2.0}
    return shown(part, json.loads(json.dumps(found | {"rounds": [1]}))), tally.estimate()


def test_a_training(page):
    said = text(page, "#summary")
    assert said == "Asking vehicles. Round 3 of 12 (gradients). gateway-3 is silent."
    assert text(page, "h1") == "flights"
    assert page.browser.evaluate("document.title") == "flights · fedldp"
    assert text(page, "#next").startswith("Next: The round ends when gateway-2")
    progress = text(page, "#progress")
    assert "41,250 of 294,611 expected (14%)" in progress
    assert "2 of 12 done" in progress
    assert "2 of 3 gateways have answered" in progress
    bars = "[...document.querySelectorAll('progress')].map(bar => [bar.value, bar.max])"
    assert page.browser.evaluate(bars) == [[41_250, 294_611], [2, 12], [2, 3]]
    facts = text(page, "#facts")
    for each in ("188 reports a second", "about 23 min", "49,102", "640"):
        assert each in facts, each
    assert [row[:2] for row in rows(page, "#gateways")] == [
        ["gateway-1", "✓answered"],
        ["gateway-2", "…waiting"],
        ["gateway-3", "!silent"],
    ]
    assert [row[2] for row in rows(page, "#gateways")] == ["just now", "just now", "13 min ago"]
    assert rows(page, "#budget") == [
        ["flights", "asking", "4", "41,250"],
        ["flights-october", "done", "1", "58,211"],
    ]
    warnings = text(page, "#warnings")
    assert "gateway-3 is silent: run" in warnings
    assert "8:07:31 AM gateway-3 has not answered round 2 in time." in warnings
    machine = text(page, "#machine")
    assert "412 GB of 1 TB" in machine
    assert "expires in 3650 days" in machine


def test_every_job_is_listed(page):
    """Also one that failed, and one whose files are gone."""
    document = shown()
    states = ["asking", "done", "failed", "stopped", "not begun"]
    entries = [
        {"job": f"job {i}", "state": each, "epsilon": "0.5", "answers": 10 * i}
        for i, each in enumerate(states)
    ]
    lost = {"job": "lost", "state": "cannot be read", "epsilon": None, "answers": None}
    document["parts"][0]["spent"] = [*entries, lost]
    page.show(document)
    found = rows(page, "#budget")
    assert [row[1] for row in found] == [*states, "cannot be read"]
    assert found[2] == ["job 2", "failed", "0.5", "20"]
    assert found[-1] == ["lost", "cannot be read", "unknown", "unknown"]


def test_estimates_with_intervals(page):
    document, estimate = statistic()
    page.show(document)
    lines = {name: shown for name, shown, *_ in rows(page, "#result")}
    (speed,) = estimate["speed"].lines("speed")
    assert lines["speed"] == speed.shown
    assert set(lines) == {"speed", "fuel = petrol", "fuel = electric"}
    assert "Estimates from 10,000 reports" in text(page, "#result")
    assert "95%" in text(page, "#result")
    # The drawing says the same as the number.
    band = page.browser.evaluate(
        "(() => { const b = document.querySelector('#result .band');"
        "return [b.x.baseVal.value, b.width.baseVal.value]; })()"
    )
    expected = [100 * speed.low / 130, 100 * (speed.high - speed.low) / 130]
    assert band == pytest.approx(expected, rel=1e-4)
    label = "document.querySelector('#result svg').getAttribute('aria-label')"
    ends = f"from {speed.low:.3g} to {speed.high:.3g}, on a scale from 0 to 130"
    assert page.browser.evaluate(label) == ends


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"state": "not begun", "open": None}, "The job has not begun."),
        ({"state": "waiting", "open": None}, "Waiting for gateways to connect."),
        (
            {"state": "done", "why": "all rounds are done", "open": None},
            "The job is done. All rounds",
        ),
        (
            {"state": "failed", "why": "no vehicle answered", "open": None},
            "The job has failed. No v",
        ),
    ],
    ids=["not begun", "waiting", "done", "failed"],
)
def test_every_state_has_a_sentence(page, entries, said):
    page.show(shown(**entries))
    assert text(page, "#state").startswith(said)


def test_a_server_that_is_stopped(page):
    page.show(shown(SERVER | {"running": False}, problems=["server is not running"]))
    assert "The server is not running." in text(page, "#state")
    assert "server is not running" in text(page, "#warnings")


def test_a_job_that_cannot_be_read(page):
    unreadable = {k: v for k, v in SERVER.items() if k != "gateways"} | {"job": None}
    page.show(shown(unreadable, problems=["job.toml is damaged"]))
    assert "cannot be read" in text(page, "#state")
    assert "job.toml is damaged" in text(page, "#warnings")
    assert page.browser.evaluate("document.querySelector('#budget').closest('section').hidden")


def test_names_are_only_text(page):
    """Names come from files and from other machines."""
    part = copy.deepcopy(SERVER)
    part["name"] = part["next"] = part["version"] = HOSTILE
    part["job"] |= {"name": HOSTILE, "why": HOSTILE, "stage": HOSTILE, "state": HOSTILE}
    for name in ("name", "state", "version"):
        part["gateways"][0][name] = HOSTILE
    part["warnings"] = part["attention"] = [HOSTILE]
    part["errors"] = [{"time": HOSTILE, "level": HOSTILE, "text": HOSTILE}]
    row = {"name": HOSTILE, "shown": HOSTILE, "value": 1, "low": 0, "high": 2, "scale": [0, 4]}
    result = {"title": HOSTILE, "rows": [row], "notes": [HOSTILE], "more": 1, "rounds": [1]}
    document = shown(part, result, [HOSTILE])
    document["parts"][0]["certificates"] = {HOSTILE: HOSTILE}
    spent = {"job": HOSTILE, "state": HOSTILE, "epsilon": HOSTILE, "answers": 1}
    document["parts"][0]["spent"] = [spent]
    page.show(document)
    assert page.browser.evaluate("window.broken === undefined")
    assert page.browser.evaluate("document.querySelectorAll('img, body script').length") == 0
    assert page.browser.evaluate("document.querySelectorAll('body *').length") < 300
    assert text(page, "h1") == HOSTILE
    assert rows(page, "#gateways")[0][0] == HOSTILE
    assert rows(page, "#result")[0][:2] == [HOSTILE, HOSTILE]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE, (768, 1024)], ids=["wide", "phone", "tablet"])
def test_it_fits_and_can_be_read(page, size, dark):
    document, _ = statistic()
    document["parts"][0]["gateways"][0]["name"] = "a-gateway-with-a-very-long-name-" * 3
    document["parts"][0]["warnings"] = ["x" * 200]
    page.browser.size(*size, dark=dark)
    page.show(document)
    width = page.browser.evaluate("document.documentElement.scrollWidth")
    assert width <= size[0], "it must not scroll sideways"
    assert page.browser.faint() == []


def test_nothing_is_said_by_colour_alone(page):
    """Every state has a word and a sign of its own."""
    part = copy.deepcopy(SERVER)
    states = ["answered", "waiting", "silent", "not connected", "revoked"]
    part["gateways"] = [part["gateways"][0] | {"name": each, "state": each} for each in states]
    page.show(shown(part))
    said = [row[1] for row in rows(page, "#gateways")]
    assert [each[1:] for each in said] == states
    assert len({each[0] for each in said}) == len(states)


def test_screen_readers_hear_the_summary_alone(page):
    live = "[...document.querySelectorAll('[aria-live], [role=alert], [role=status]')]"
    assert page.browser.evaluate(f"{live}.map(each => each.id)") == ["summary"]
    assert page.browser.evaluate("document.querySelectorAll('h1').length") == 1
    unnamed = "[...document.querySelectorAll('section')].filter(s => !document.getElementById("
    assert page.browser.evaluate(f"{unnamed}s.getAttribute('aria-labelledby'))).length") == 0
    # What did not change is not touched, so nothing is read out again.
    page.browser.evaluate("window.kept = document.querySelector('#gateways table')")
    page.browser.evaluate("window.told = 0")
    page.browser.evaluate(
        "new MutationObserver(() => { window.told += 1; }).observe("
        "document.querySelector('#summary'), {subtree: true, childList: true, characterData: true})"
    )
    page.show(shown(reports=42_000))
    assert "42,000" in text(page, "#progress")
    assert page.browser.evaluate("window.kept.isConnected")
    assert page.browser.evaluate("window.told") == 0


def test_links_can_be_reached_by_keyboard(page):
    page.browser.evaluate("document.activeElement.blur()")
    page.browser.press("Tab")
    assert page.browser.evaluate("document.activeElement.innerText") == "Metrics"


def test_nothing_is_fetched_from_elsewhere(page):
    names = page.browser.evaluate("performance.getEntriesByType('resource').map(each => each.name)")
    assert names
    assert all(name.startswith(f"http://127.0.0.1:{page.port}/") for name in names)


def test_it_survives_a_lost_connection(browser, tmp_path):
    """It says since when, keeps what it has shown, and goes on when the monitor is back."""
    page = LivePage(browser, tmp_path)
    browser.size(*WIDE)
    with page.served() as address:
        page.open(address)
        assert browser.evaluate("document.querySelector('#connection').hidden")
    browser.wait("!document.querySelector('#connection').hidden")
    assert text(page, "#connection").startswith("No connection since 8:15:12 AM.")
    assert "gateway-3" in text(page, "#gateways")
    page.document = shown(reports=50_000)
    with page.served():
        browser.wait("document.querySelector('#connection').hidden")
        browser.wait("document.querySelector('#progress').innerText.includes('50,000')")


def test_a_monitor_that_fails_is_named(page):
    page.document = None  # not a document: the page must not break
    page.browser.evaluate("window.fetch = async () => new Response('', {status: 500})")
    page.browser.wait("!document.querySelector('#connection').hidden")
    assert "error 500" in text(page, "#connection")
    page.browser.evaluate("window.fetch = async () => new Response('', {status: 401})")
    page.browser.wait("document.querySelector('#connection').innerText.includes('token')")


def test_the_pictures_of_the_documentation_can_be_taken(tmp_path):
    tool = Path(__file__).parents[3] / "tools" / "live_page.py"
    subprocess.run([sys.executable, str(tool), str(tmp_path)], check=True, timeout=300)
    for name in ("live-page.png", "live-page-phone.png"):
        (width,) = struct.unpack(">I", (tmp_path / name).read_bytes()[16:20])
        published = (tool.parents[1] / "docs" / "images" / name).read_bytes()
        assert (width,) == struct.unpack(">I", published[16:20])
