"""The paper's tables and claims, as computed, against what is known about them."""

from dataclasses import replace

import pytest

from fedldp_reproduction.theory import claims


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


def test_equality_decides_nothing_and_is_reported():
    """One rule for every claim: where two are equal it does not fail."""
    named = {each.name: each for each in claims.CLAIMS if each.name in ("hm", "hm-tp")}
    (equal,) = claims.ties(named["hm"])
    assert str(equal) == "equal to duchi from 0.0010 to 0.6094"
    assert claims.holds(named["hm"])
    assert {each.rival: round(each.high, 4) for each in claims.ties(named["hm-tp"])} == {
        "duchi": 0.6110,
        "three-outputs": 0.6110,
        "hm": 0.6094,
    }
    same = claims.RangeClaim("never lower", "three-outputs", "<", ("duchi",), high=0.6)
    assert not claims.failures(same)
    assert not claims.holds(same)  # it must be lower somewhere
    (equals,) = [each for each in claims.CLAIMS if each.relation == "="]
    assert claims.ties(equals) == []


def test_the_narrowest_true_sentence():
    (claim,) = [each for each in claims.CLAIMS if each.name == "hm-tp"]
    assert claims.narrowed(claim) == (
        "hm-tp is nowhere above laplace, duchi, pm, three-outputs, pm-sub; and not above hm except "
        "from 0.6094 to 0.6501 and from 0.6949 to 1.5934; and not above pm-opt except from 5.4401 "
        "to 8.0000."
    )
    (loses,) = [each for each in claims.CLAIMS if "loses" in each.text]
    wide = replace(loses, low=3.1)
    assert claims.narrowed(wide) == ("three-outputs is not below pm except from 3.1000 to 3.2694.")


def test_what_is_read_from_a_figure_is_judged_up_to_epsilon_eight():
    (claim,) = [each for each in claims.CLAIMS if each.name == "hm-tp"]
    assert claim.high == 8.0
    (later,) = claims.beyond(claim)
    assert (later.rival, later.low) == ("pm-opt", 8.0)
    assert not any(each.high > 8 for each in claims.failures(claim))
    assert claims.beyond(claims.RangeClaim("for any epsilon", "pm", "<", ("pm-sub",))) == []


def test_a_wrong_claim_is_found_out():
    claim = claims.RangeClaim("PM beats PM-SUB", "pm", "<", ("pm-sub",))
    (failure,) = claims.failures(claim)
    assert failure.gap > 0.5
    row = claims.TableRow(0.0, 1.2898, "pm < duchi < laplace")
    assert not claims.same_to_two_decimals(row, claims.TABLES["Table I"][0])
