"""The numbers of a report's header."""

import pytest

import fedldp
from fedldp import Plan, Schema
from fedldp.errors import WireError
from fedldp.plan import report
from fedldp.plan.strategies import Sample

# Rows here lack what a test does not need, or hold anything on purpose: what is said about that is
# tested in test_quality.py.
pytestmark = pytest.mark.filterwarnings("ignore::fedldp.errors.DataWarning")

PLAN = Plan(Schema.vector(94, bound=1.0), 1.0, Sample(k=1, mechanism="three-outputs"))  # 9 bits


def some_report(n):
    return PLAN.report([{}] * n, fedldp.source(1)).to_bytes()


def test_the_numbers_of_a_header_have_no_sign():
    data = some_report(3)
    with pytest.raises(WireError, match=r"the format of a report must be 1; got 255"):
        PLAN.parse(b"\xff" + data[1:])
    with pytest.raises(WireError, match=f"a report of {2**32 - 1} vehicles has"):
        PLAN.parse(data[:8] + b"\xff" * 4 + data[12:])
    most = report.Report(PLAN.fingerprint, 9, report.MOST_REPORTS, b"").to_bytes()
    assert most[8:12] == b"\xff" * 4
