"""What fixed seeds gave in version 0.1, they give today: byte by byte where it is exact."""

import json
from pathlib import Path

import golden_files as golden
import numpy as np
import pytest
from spellings import flat_plan

import fedldp

# The data of version 0.1 are partly missing or outside the bounds, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fedldp.errors.DataWarning")

FOLDER = Path(__file__).parent / "golden" / "0.1"


def load(name):
    return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))


# Sums of floats depend on the processor: OpenBLAS has other kernels for each. What they train
# differs by up to 5e-8 between those for Haswell, Skylake-X and older processors.
BETWEEN_PROCESSORS = 1e-6


def close(found, expected, tolerance=1e-9):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("number", range(len(golden.PLANS)))
def test_plans_reports_tallies_and_estimates(number):
    name, epsilon, options = golden.PLANS[number]
    expected = load("collection")[number]
    assert (expected["schema"], expected["epsilon"], expected["options"]) == golden.PLANS[number]
    if golden.is_solved(options):
        plan = fedldp.Plan.from_json(expected["plan"])
    else:
        plan = flat_plan(golden.SCHEMAS[name], epsilon, **options)
    found = golden.collected(name, plan, 10 * number)
    for estimator, means in found.pop("means").items():
        for attribute, values in means.items():
            close(values, expected["means"][estimator][attribute])
    assert found == {key: expected[key] for key in found}


def test_models():
    for found, expected in zip(golden.models(), load("models"), strict=True):
        close(found.pop("coefficients"), expected.pop("coefficients"), BETWEEN_PROCESSORS)
        assert found == expected
