"""The paper's tables and claims, as computed, against what is known about them."""

import pytest

from fedldp.paper import claims


@pytest.mark.parametrize("title", claims.TABLES)
def test_both_tables_of_the_paper_are_right(title):
    printed = claims.TABLES[title]
    names = printed[0].order.replace(" = ", " < ").split(" < ")
    computed = claims.table(names)
    assert len(computed) == len(printed)
    for row, other in zip(computed, printed, strict=True):
        assert claims.same_to_two_decimals(row, other), (row, other)


def failing():
    return {claim: found for claim in claims.CLAIMS if (found := claims.failures(claim))}


def test_which_claims_fail_where_and_by_how_much():
    found = {claim.name: each for claim, each in failing().items()}
    assert set(found) == {"hm-tp"}
    switch, middle, top = found["hm-tp"]
    assert (switch.rival, middle.rival, top.rival) == ("hm", "hm", "pm-opt")
    assert (switch.low, switch.high) == pytest.approx((0.6094, 0.6501), abs=1e-4)
    assert (middle.low, middle.high) == pytest.approx((0.695, 1.593), abs=5e-4)
    assert (middle.gap, middle.at) == pytest.approx((0.031, 1.085), abs=5e-3)
    assert top.low == pytest.approx(5.44, abs=5e-3)


def test_a_wrong_claim_is_found_out():
    claim = claims.Claim("PM beats PM-SUB", "pm", "<", ("pm-sub",))
    (failure,) = claims.failures(claim)
    assert failure.gap > 0.5
    row = claims.Row(0.0, 1.2898, "pm < duchi < laplace")
    assert not claims.same_to_two_decimals(row, claims.TABLES["Table I"][0])
