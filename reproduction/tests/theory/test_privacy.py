"""The verdicts on privacy, bias and dimensions: what they compute, and that they can fail."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
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
    outputs = told("Four outputs")
    assert outputs.holds
    assert outputs.beyond
    assert "it is 1.7451 with the best 4 outputs" in outputs.evidence
    assert told("Which outputs").holds
    infinite = told("For very large")
    assert infinite.holds
    assert "3 from epsilon 3.5" in infinite.evidence


def test_many_dimensions_follow_the_rule_of_all_claims():
    """Each of the three against the best existing one; the other reading decides nothing."""
    many = told("The algorithm for many")
    assert many.holds is False
    assert "lower at 390 of 456 places, equal at 8 and higher at 58" in many.evidence
    assert "The best of the three is lower at 148 of 152 places, equal at 4" in many.evidence
    assert many.instead.startswith("three-outputs is nowhere higher.")
    assert "pm-sub is not higher from epsilon 2.9 on." in many.instead
    assert "hm-tp is not higher up to epsilon 0.7 and from epsilon 1.5 on." in many.instead


def test_a_rival_in_many_dimensions_decides(monkeypatch):
    monkeypatch.setattr(theory_privacy, "_best_existing", lambda *_: 0.1)
    assert theory_privacy._many_dimensions().holds is False
    monkeypatch.setattr(theory_privacy, "_best_existing", lambda *_: 1e9)
    assert theory_privacy._many_dimensions().holds is True


def test_an_output_that_betrays_its_input_is_found_out(monkeypatch):
    class Betrays:
        bound = 1.0

        def probabilities(self, x):
            return np.where(np.asarray(x)[:, None] > 0, [[1.0, 0.0]], [[0.5, 0.5]])

        def density(self, y, x):
            return np.ones(np.broadcast_shapes(y.shape, x.shape))

    monkeypatch.setattr(theory_privacy, "mechanism", lambda *_: Betrays())
    assert not theory_privacy._same_outputs().holds


def test_a_discretization_that_lowers_the_variance_is_found_out(monkeypatch):
    class Louder:  # a mechanism whose variance is above that of its table
        def __init__(self, chosen):
            self.channel = chosen.channel
            self.variance = lambda x: 10 * chosen.variance(x)

    monkeypatch.setattr(theory_privacy, "mechanism", lambda *of: Louder(mechanism(*of)))
    unbiased, lower = theory_privacy._discretization()
    assert unbiased.holds
    assert not lower.holds
