"""The vehicle in C in the interactive page: its reports are those of `vehicle.py`."""

import importlib.util
import json
import re
from fractions import Fraction
from pathlib import Path
from unittest import mock

import pytest
from browser import browser as start
from playground import FOLDER, opened

import fedldp
from fedldp import vehicle

ROOT = Path(__file__).parents[2]
SCRIPT = (FOLDER / "c-vehicle.js").read_text("ascii")
PAGE_VEHICLE = json.loads(re.fullmatch(r"window\.FEDLDP_VEHICLE = (.*);\n", SCRIPT)[1])
PLAN = fedldp.Plan.from_json(PAGE_VEHICLE["plan"])

# Random bytes are kept, so that vehicle.py can draw the same report.
KEPT_CHANCE = """
(() => {
  const draw = crypto.getRandomValues.bind(crypto);
  window.bytes = [];
  crypto.getRandomValues = (array) => {
    draw(array);
    window.bytes.push(...new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
    return array;
  };
})();
"""


def build():
    """Return the module that builds the script."""
    path = ROOT / "clients/c/browser/build.py"
    spec = importlib.util.spec_from_file_location("build", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_plan_is_the_librarys():
    assert build().plan() == PLAN
    assert PAGE_VEHICLE["cities"] == build().CITIES


def test_the_code_is_what_zig_makes_of_the_sources():
    pytest.importorskip("ziglang", reason="zig not found: pip install --group wasm")
    assert build().script() == SCRIPT, "run make page-vehicle"


@pytest.fixture(scope="module")
def browser():
    with start() as started:
        started.command("Page.addScriptToEvaluateOnNewDocument", source=KEPT_CHANCE)
        yield started


@pytest.fixture
def page(browser):
    with opened(browser) as page:
        page.wait("!document.querySelector('#vehicle-draw').disabled")
        yield page


def random_source(data):
    """Return a source of random bits that reads certain bytes."""

    def bits(count):
        size = -(-count // 8)
        chunk = bytes(data.pop(0) for _ in range(size))
        return int.from_bytes(chunk, "big") >> (8 * size - count)

    return mock.Mock(getrandbits=bits)


@pytest.mark.browser
def test_a_report_is_drawn_and_its_epsilon_checked(page):
    assert page.text("#vehicle-fingerprint") == PLAN.fingerprint
    plan = vehicle.Plan(PAGE_VEHICLE["plan"], "2")
    assert Fraction(page.text("#vehicle-epsilon")) == plan.epsilon
    for speed, city in (("50", 0), ("131", 1), ("", 2), ("-1e300", 1), ("64.99", 0)):
        page.write("#vehicle-speed", speed or " ")
        page.evaluate(f"document.querySelector('#vehicle-city').value = {city}")
        page.evaluate("window.bytes = []")
        page.click("#vehicle-draw")
        data = page.evaluate("window.bytes")
        assert page.text("#vehicle-random") == str(len(data))
        row = {"speed": float(speed or "nan"), "city": PAGE_VEHICLE["cities"][city]}
        report = plan.report(row, random_source(data))
        assert data == []
        assert page.text("#vehicle-report") == report.hex()
        assert PLAN.parse(report).reports == 1
        assert "the cap allows it" in page.text("#vehicle-status")


@pytest.mark.browser
@pytest.mark.parametrize(
    ("cap", "said"),
    [("1.9999999999999999999", "costs more than the cap"), ("x", "is a number"), ("", "number")],
)
def test_a_cap_is_kept(page, cap, said):
    page.click("#vehicle-draw")
    page.write("#vehicle-cap", cap or " ")
    page.evaluate("window.bytes = []")
    page.click("#vehicle-draw")
    assert said in page.text("#vehicle-status")
    assert page.text("#vehicle-report") == ""
    assert page.evaluate("window.bytes") == []
    page.write("#vehicle-cap", "2.0")
    page.click("#vehicle-draw")
    assert page.text("#vehicle-report") != ""


@pytest.mark.browser
def test_a_random_generator_that_fails_gives_no_report(page):
    page.evaluate("crypto.getRandomValues = () => { throw new Error('no entropy'); }")
    page.click("#vehicle-draw")
    assert "random generator has failed" in page.text("#vehicle-status")
    assert page.text("#vehicle-report") == ""
