"""What the moments of answers say about their bulk."""

import numpy as np
import pytest

from fedldp.coders.laws import Law
from fedldp.coders.moments import Moments


def test_the_bulk_is_the_variance_if_answers_are_normal_and_ignores_a_few_far_away():
    values = np.linspace(-4.0, 4.0, 801)
    counts = np.rint(1e6 * np.exp(-((values / 0.5) ** 2) / 2)).astype(np.int64)
    rows = np.stack([counts, counts])
    rows[1, -1] = counts.sum() // 50
    law = Law(np.array([-1.0, 1.0]), values, np.full((2, 801), 1 / 801))
    found = Moments.by_law(law, rows)
    # The two quartiles are each known to within one hundredth, the distance of the values.
    assert found.bulk == pytest.approx(0.25, rel=0.06)
    assert found.farthest == pytest.approx(16.0, rel=0.2)
