"""The verdicts on privacy, bias and dimensions: what they compute, and that they can fail."""

from dataclasses import replace
from fractions import Fraction

import pytest
from theory_results import computed

from fedldp import audit
from fedldp.mechanisms import mechanism
from fedldp_reproduction.theory import privacy as theory_privacy


def told(start):
    (found,) = [each for each in computed("privacy").verdicts if each.claim.startswith(start)]
    return found


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("name", ["duchi", "pm", "hm", "three-outputs", "pm-opt", "hm-tp"])
def test_the_largest_loss_is_epsilon(name, epsilon):
    assert theory_privacy.largest_loss(mechanism(name, epsilon)) == pytest.approx(epsilon)


def test_a_mechanism_that_leaks_is_found_out(monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(theory_privacy, "largest_loss", lambda chosen: 1.001 * chosen.epsilon)
        assert not theory_privacy._is_private("pm-sub", "").holds
    assert theory_privacy._is_private("pm-sub", "").holds
    exact = audit.exact
    less = Fraction(1, 1000)

    def claims_less(channel):
        found = exact(channel)
        return replace(found, nominal=found.nominal - less, high=found.high + less)

    monkeypatch.setattr(audit, "exact", claims_less)
    assert not theory_privacy._is_private("pm-sub", "").holds
    assert not theory_privacy._sampling_is_private().holds


def test_verdicts_on_what_is_sent():
    assert "3 numbers and 35 + 5" in told("WISDM has 43").evidence
    dimensions = told("BR has 90")
    assert dimensions.holds is None
    assert "94 in BR, 103 in MX, 2 in Vehicle" in dimensions.evidence
    binary = told("For very small")
    assert binary.holds is None
    assert "3.6% at 0.5" in binary.evidence
    assert "lower than the best existing one at 148 of 152 places and higher at 0" in (
        told("The algorithm for many").evidence
    )


def test_a_better_rival_in_many_dimensions_is_found_out(monkeypatch):
    monkeypatch.setattr(theory_privacy, "_best_existing", lambda *_: 0.1)
    assert not theory_privacy._many_dimensions().holds


def test_a_discretization_that_lowers_the_variance_is_found_out(monkeypatch):
    class Louder:  # a mechanism whose variance is above that of its table
        def __init__(self, chosen):
            self.channel = chosen.channel
            self.variance = lambda x: 10 * chosen.variance(x)

    monkeypatch.setattr(theory_privacy, "mechanism", lambda *of: Louder(mechanism(*of)))
    unbiased, lower = theory_privacy._discretization()
    assert unbiased.holds
    assert not lower.holds
