"""The verdicts on lemmas, misprints, the system and Table III, against other ways to them."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from theory_results import computed

from fedldp.mechanisms import ThreeOutputs
from fedldp_reproduction.theory import lemmas as theory_lemmas
from fedldp_reproduction.theory import misprints as theory_misprints
from fedldp_reproduction.theory import system as theory_system
from fedldp_reproduction.theory.lemmas import (
    Ternary,
    counterexample,
    printed_derivative,
    three_outputs_variance,
    true_derivative,
    valid,
)


def verdict(result, part):
    (found,) = [each for each in result.verdicts if part in each.claim]
    return found


def enumerated(found, x):
    """Return the law of three outputs at any x, linear between -1, 0 and 1."""
    low, middle, high = (np.array(law, dtype=object) for law in found.laws)
    return middle * (1 - x) + high * x if x >= 0 else middle * (1 + x) - low * x


@pytest.mark.parametrize("ratio", [Fraction(3, 2), Fraction(3)])
def test_mechanisms_are_what_they_should_be(ratio):
    """Proper, unbiased and private at many inputs; the worst case is the largest variance."""
    for found in list(valid(ratio))[::97]:
        inputs = [Fraction(number, 16) for number in range(-16, 17)]
        laws = [enumerated(found, x) for x in inputs]
        values = np.array([-found.C, Fraction(0), found.C], dtype=object)
        variances = []
        for x, law in zip(inputs, laws, strict=True):
            assert law.sum() == 1
            assert min(law) >= 0
            assert (law * values).sum() == x
            variances.append((law * values**2).sum() - x**2)
        for column in np.array(laws, dtype=object).T:
            assert max(column) <= ratio * min(column)
        assert max(variances) <= found.worst_case_variance
        assert float(max(variances)) == pytest.approx(float(found.worst_case_variance), abs=0.05)


def test_lemma_2_fails_in_one_case_that_can_be_checked_by_hand():
    ratio, before = counterexample()
    assert before.satisfies(ratio)
    assert before.is_symmetric
    low, _, high = (law[2] for law in before.laws)
    assert high < ratio * low  # the lemma's assumption
    less = (ratio * low - high) / (ratio - 1)
    new = [law[2] - less for law in before.laws]  # P(C|x) by Eq. (lem-2-1)
    assert new == [law[2] for law in before.tightened(ratio).laws]
    assert new[2] == ratio * new[0]  # as the lemma wants it
    assert not 0 <= max(new) <= ratio * min(new)  # but at x = 0 it is no longer private
    assert not before.is_monotone


def test_lemma_2_holds_for_three_outputs():
    """The paper's mechanism is monotone; the lemma changes nothing where it is tight already."""
    three = ThreeOutputs(1.5)
    law = three.probabilities([-1.0, 0.0, 1.0])
    assert np.all(np.diff(law[:, 2]) >= 0)
    assert law[2, 2] == pytest.approx(np.exp(1.5) * law[0, 2])


fractions = st.fractions(0, 1, max_denominator=50)


@given(fractions, fractions, fractions.filter(lambda b: b < Fraction(9, 10)))
def test_the_derivative_of_lemma_3(x, a, b):
    ratio, step = Fraction(3), Fraction(1, 10**9)
    up, down = (three_outputs_variance(ratio, a, b + h, x) for h in (step, -step))
    found = (up - down) / (2 * step)
    assert float(found) == pytest.approx(float(true_derivative(ratio, a, b, x)), abs=1e-6)
    assert true_derivative(ratio, a, b, x) * printed_derivative(ratio, a, b, x) <= 0


def test_which_lemmas_hold():
    found = {
        each.claim.rpartition("(")[2].rstrip(")"): each.holds
        for each in computed("lemmas").verdicts
    }
    assert found == {
        "Lemma 1": True,
        "Lemma 2": False,
        "Lemma 3": False,
        "conclusion of Lemma 3": True,
        "Lemma 5": True,
        "Lemma 8": True,
        "Lemma 11": True,
        "Lemma 14": True,
    }


def test_the_numbers_of_lemma_3():
    told = verdict(computed("lemmas"), "(Lemma 3)").evidence
    assert "from 4.142 at P(0|1) = P(0|0)/e^eps = 0.1104 to 14.3 at 0.5212" in told
    assert "to 96.28 at P(0|0) e^eps = 0.8155" in told


def test_a_lemma_that_fails_is_found_out(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Ternary, "symmetrized", lambda self: Ternary(9 * self.C, 0, 0, 0))
        assert not theory_lemmas.symmetrization().holds
    with monkeypatch.context() as patch:
        patch.setattr(theory_lemmas, "beta_1", lambda _: 0.0)
        assert not theory_lemmas.hybrid_worst_case().holds
    with monkeypatch.context() as patch:
        patch.setattr(theory_lemmas, "variances_by_a", lambda _: np.array([1e-3]))
        assert not theory_lemmas.closed_forms().holds


def test_every_misprint_is_really_wrong():
    """Each printed form is wrong, and each that is meant is right."""
    assert all(each.misprint and each.holds is None for each in computed("misprints").verdicts)
    assert len(computed("misprints").verdicts) == 32
    for part, number in (("3 e^eps t^-4", "4.187500"), ("35 subjects", "36 users")):
        assert number in verdict(computed("misprints"), part).evidence


def test_what_is_right_as_printed_is_no_misprint():
    right = theory_misprints.misprint("here", "a", "b", False, True, "Why.")
    assert (right.misprint, right.holds) == (False, True)
    hopeless = theory_misprints.misprint("here", "a", "b", True, False, "Why.")
    assert (hopeless.misprint, hopeless.holds) == (False, False)


def test_the_system_and_table_3():
    system, table = theory_system.system(), theory_system.table_3()
    assert all(each.holds for each in (*system.verdicts, *table.verdicts))
    assert {row[0].split()[0] for row in table.table[1:]} == {
        "ε-ULDP",
        "ε-RLDP",
        "ε-RLCP",
        "ε-ULCP",
    }
    assert "3 and 81 for m = 4" in verdict(table, "epsilon-RLDP").evidence
    assert "81 for all m = 4" in verdict(table, "epsilon-RLCP").evidence
    assert "9 bits: 7 say which coordinate, 2 are its answer" in (
        verdict(system, "Two bits").evidence
    )
