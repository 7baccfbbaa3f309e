"""`fedldp compile` writes a plan as constants in C."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedldp.cli.app import fedldp
from fedldp.errors import PrivacyError, WireError

VECTORS = json.loads((Path(__file__).parents[2] / "docs/vectors.json").read_text("utf-8"))


def run(*arguments):
    return CliRunner().invoke(fedldp, ["compile", *map(str, arguments)])


def test_it_writes_a_header(tmp_path):
    case = VECTORS["cases"][0]
    plan, header = tmp_path / "plan.json", tmp_path / "plan.h"
    plan.write_text(case["plan"], "utf-8")
    result = run(plan, "--cap", "2", "-o", header, "--name", "trip")
    assert result.exit_code == 0
    assert "1 bits in a report, 296 bytes of constants, 8 bytes of working memory" in result.output
    text = header.read_text("ascii")
    assert case["fingerprint"] in text
    limbs = re.search(r"#define TRIP_CAP \{\{(\d+)u, (\d+)u, (\d+)u\}\}", text).groups()
    assert sum(int(limb) << 32 * i for i, limb in enumerate(limbs)) == 2 * 10**19


def test_a_calendar_has_periods(tmp_path):
    calendar, header = tmp_path / "calendar.json", tmp_path / "plan.h"
    calendar.write_text(VECTORS["calendars"][0]["calendar"], "utf-8")
    assert run(calendar, "--cap", "2", "-o", header).exit_code == 0
    assert "#define PLAN_ANSWERS 2u" in header.read_text("ascii")


@pytest.mark.parametrize(
    ("text", "cap", "error", "said"),
    [
        (VECTORS["cases"][0]["plan"], "0.9", PrivacyError, "the cap is 0.9"),
        (VECTORS["refused"][0]["plan"], "9", PrivacyError, "refused: column 0"),
        (VECTORS["calendars"][0]["calendar"], "1.9", PrivacyError, "it costs 2.0"),
        ("{}", "1", PrivacyError, "refused: it needs the entries"),
        (b"\xff", "1", WireError, "it is not text"),
    ],
)
def test_what_leaks_is_not_written(tmp_path, text, cap, error, said):
    plan, header = tmp_path / "plan.json", tmp_path / "plan.h"
    plan.write_bytes(text if isinstance(text, bytes) else text.encode())
    result = run(plan, "--cap", cap, "-o", header)
    assert isinstance(result.exception, error)
    assert said in str(result.exception)
    assert not header.exists()
