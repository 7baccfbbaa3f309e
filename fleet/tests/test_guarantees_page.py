"""The page of guarantees names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_names_exists():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/fleet-guarantees.md").read_text("utf-8")))
    texts = [path.read_text("utf-8") for path in (ROOT / "fleet/tests").rglob("test_*.py")]
    texts += [path.read_text("utf-8") for path in (ROOT / "vehicle/tests").glob("test_*.py")]
    known = {name for text in texts for name in re.findall(r"(?m)^def (test_\w+)", text)}
    assert len(named) > 50
    assert named - known == set()


def test_every_guarantee_names_a_test():
    page = (ROOT / "docs/fleet-guarantees.md").read_text("utf-8")
    rows = re.findall(r"(?m)^\| (?!guarantee |---)(.+) \| (.*) \|$", page)
    assert len(rows) > 25
    assert all("`test_" in tests for _, tests in rows)
